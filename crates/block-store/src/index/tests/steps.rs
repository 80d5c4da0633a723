//! Merges in small steps: none grows with the index, and level 0 stays short under a steady load.

use super::rig::{Rig, small};
use crate::index::levels::{FRESH_MAX, Target};
use crate::index::{Index, Options};
use bytes::Bytes;

/// Bytes that one step of a merge may read: its tables and those below, with one at each end of the range.
pub fn step_max(options: &Options) -> u64 {
    // A table ends with its segment.
    let table = options.table_bytes + 2 * options.segment_bytes as u64;
    table * (options.fanout + 5)
}

fn key(cluster: u8, at: u64) -> Vec<u8> {
    [&[cluster][..], &at.to_be_bytes()].concat()
}

/// Bytes of the inputs of the running merge; 0 for one of whole runs.
pub fn step_bytes(index: &Index) -> u64 {
    let Some(merge) = &index.background.merge else { return 0 };
    match (merge.plan.target, &merge.plan.inputs[..]) {
        (Target::Level(_), [upper, lower]) => upper.iter().chain(lower).map(|table| table.bytes()).sum(),
        _ => 0,
    }
}

/// Changes random keys of these clusters, durable at once. Returns the bytes of the largest step, and the most runs of level 0.
fn change(rig: &mut Rig, clusters: &[u8], keys: u64, count: u64) -> (u64, usize) {
    let (mut largest, mut most) = (0, 0);
    for _ in 0..count {
        let cluster = clusters[rig.dice.below(clusters.len() as u64) as usize];
        let at = rig.dice.below(keys);
        rig.apply(vec![(key(cluster, at), Some(Bytes::from(vec![cluster; 100])))]);
        rig.durable = rig.log.len();
        for _ in 0..2 {
            rig.turn();
            largest = largest.max(step_bytes(&rig.index));
            most = most.max(rig.index.fresh_tables());
        }
    }
    (largest, most)
}

#[test]
fn steps_are_small_beside_a_large_index() {
    for seed in 0..3 {
        let mut rig = Rig::new(small(), seed);
        let (largest, most) = change(&mut rig, &[5], 1 << 20, 40_000);
        assert!(rig.index.levels.deep.len() >= 4, "{} levels", rig.index.levels.deep.len());
        let bytes = rig.index.levels.bytes();
        assert!(bytes > 8 * step_max(&small()), "{bytes} bytes");
        assert!(largest > 0 && largest <= step_max(&small()), "a step of {largest} bytes");
        assert!(most < FRESH_MAX, "{most} runs in level 0");
        rig.settle();
        rig.check_all();
    }
}

#[test]
fn table_ends_before_a_gap_with_much_below() {
    let mut rig = Rig::new(small(), 1);
    change(&mut rig, &[5], 1 << 20, 20_000);
    rig.checkpoint();
    rig.settle();
    // Clusters before and behind that one, in the same memtables.
    let (largest, _) = change(&mut rig, &[1, 9], 2_000, 20_000);
    assert!(largest > 0 && largest <= step_max(&small()), "a step of {largest} bytes");
    rig.settle();
    // Level 1 has nothing else, and the levels below have the large cluster.
    let wide = rig.index.levels.deep[..1].iter().flatten().filter(|t| t.first[0] < 5 && t.end[0] > 5).count();
    assert_eq!(wide, 0);
    rig.check_all();
}

#[test]
fn ascending_keys_are_moved_and_not_merged() {
    let mut rig = Rig::new(small(), 2);
    for at in 0..20_000 {
        rig.apply(vec![(key(1, at), Some(Bytes::from(vec![1; 100])))]);
        rig.durable = rig.log.len();
        rig.turn();
    }
    rig.settle();
    let written = rig.index.background.next_table;
    let tables = rig.index.levels.tables().count() as u64;
    assert!(rig.index.levels.deep.len() >= 3, "{} levels", rig.index.levels.deep.len());
    assert!(written <= tables * 4, "{written} tables were written for {tables}");
    rig.check_all();
}
