//! Damaged blocks: no wrong answer, and no damage beyond the block.

use super::rig::{Rig, small};
use crate::index::{Bad, Get, Index, Limit, Scan};
use device::BLOCK;
use proptest::prelude::*;

/// A rig with all entries in tables, with the blocks damaged that `which` chooses.
fn damaged(seed: u64, mut which: impl FnMut(usize) -> bool) -> Rig {
    let mut rig = Rig::new(small(), seed);
    for _ in 0..150 {
        rig.change_durably(20);
        rig.turn();
    }
    rig.checkpoint();
    rig.settle();
    rig.checkpoint();
    let blocks: Vec<u64> =
        rig.index.runs().flat_map(|(offset, len)| (offset..offset + len).step_by(BLOCK)).collect();
    for (i, offset) in blocks.into_iter().enumerate() {
        if which(i) {
            rig.disk.poke(offset, |bytes| bytes[i * 37 % BLOCK] ^= 1 << (i % 8));
        }
    }
    // Without a cache of what was there before.
    rig.crash(small())
}

/// Number of unreadable keys; all others are compared.
fn unreadable(rig: &mut Rig) -> usize {
    let keys: Vec<_> = rig.model.keys().cloned().collect();
    let mut bad = 0;
    for key in keys {
        match rig.get(&key, |_| ()) {
            Get::Bad(Bad::Corrupt) => bad += 1,
            Get::Found(value) => assert_eq!(Some(&value), rig.model.get(&key)),
            other => panic!("{other:?} for {key:?}"),
        }
    }
    for _ in 0..300 {
        let key = rig.random_key();
        let answer = rig.get(&key, |_| ());
        if answer != Get::Bad(Bad::Corrupt) {
            assert_eq!(answer, rig.model.get(&key).cloned().map_or(Get::Absent, Get::Found));
        }
    }
    bad
}

#[test]
fn damaged_block_hides_few_keys_through_merges() {
    for seed in 0..8 {
        let mut rig = damaged(seed, |i| i == 20 + seed as usize * 5);
        let before = unreadable(&mut rig);
        let total = rig.model.len();
        assert!(before < total / 2, "{before} of {total}");
        // New changes bring about merges of everything; what was put anew is readable again.
        for _ in 0..200 {
            rig.change_durably(20);
            rig.turn();
            rig.turn();
        }
        rig.checkpoint();
        rig.settle();
        let after = unreadable(&mut rig);
        // The filter of the block goes along with its hole, and passes few other keys of the levels below.
        let others = after.saturating_sub(before);
        assert!(others <= total / 200, "{before} unreadable keys of {total} became {after}");
    }
}

#[test]
fn heavy_damage_gives_no_wrong_answer() {
    for seed in 0..6 {
        let mut rig = damaged(seed, |i| (i as u64 + seed).is_multiple_of(5));
        assert!(unreadable(&mut rig) > 0);
        for _ in 0..150 {
            rig.change_durably(20);
            rig.turn();
        }
        rig.checkpoint();
        rig.settle();
        unreadable(&mut rig);
        scan_past_damage(&mut rig);
    }
}

/// Scans past damage, and compares the readable entries.
fn scan_past_damage(rig: &mut Rig) {
    let (mut from, to, mut stops) = (Vec::new(), vec![255; 40], 0);
    let ticket = rig.ticket();
    loop {
        let mut seen = Vec::new();
        let limit = Limit::new(100, 1 << 20);
        let answer = rig.index.scan(&from, &to, limit, ticket, &mut rig.io, &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
        });
        let end = match &answer {
            Scan::End => to.clone(),
            Scan::More(next) => next.clone(),
            Scan::Pending | Scan::Bad(_) => from.clone(),
        };
        let range = rig.model.range(from.clone()..end.clone().max(from.clone()));
        assert_eq!(seen, range.map(|(key, value)| (key.clone(), value.to_vec())).collect::<Vec<_>>());
        match answer {
            Scan::End => break,
            Scan::More(next) => from = next,
            Scan::Pending => rig.wait_for(ticket),
            Scan::Bad(bad) => {
                assert_eq!(bad, Bad::Corrupt);
                stops += 1;
                // On behind the next key that there should be.
                match rig.model.range(from.clone()..).next() {
                    Some((key, _)) => from = [&key[..], &[0]].concat(),
                    None => break,
                }
            }
        }
    }
    assert!(stops > 0);
}

#[test]
fn one_bad_sector_costs_one_block() {
    let mut rig = damaged(3, |_| false);
    let table =
        rig.index.levels.deep.last().and_then(|run| run.first()).expect("a table in the deepest level");
    let at = table.runs[0].0 * BLOCK as u64;
    rig.disk.fail_reads(at..at + 512);
    let keys: Vec<_> = rig.model.keys().cloned().collect();
    let bad = keys.iter().filter(|key| rig.get(key, |_| ()) == Get::Bad(Bad::Io)).count();
    assert!(bad > 0 && bad < keys.len() / 2, "{bad}");
    // What passes is forgotten.
    rig.disk.heal();
    assert!(keys.iter().all(|key| matches!(rig.get(key, |_| ()), Get::Found(_))));
    rig.disk.fail_reads(at..at + 512);
    for _ in 0..100 {
        rig.change_durably(20);
        rig.turn();
    }
    rig.checkpoint();
    rig.settle();
    let mut unreadable = 0;
    for key in &keys {
        match rig.get(key, |_| ()) {
            Get::Bad(_) => unreadable += 1,
            answer => assert_eq!(answer, rig.model.get(key).cloned().map_or(Get::Absent, Get::Found)),
        }
    }
    assert!(unreadable <= bad, "{bad} unreadable keys became {unreadable}");
}

#[test]
fn failed_write_stops_background_without_loss() {
    let mut rig = Rig::new(small(), 4);
    let changes = rig.random_changes(300);
    rig.apply(changes);
    rig.disk.fail_writes(0..super::rig::DEVICE_BYTES);
    rig.index.freeze();
    rig.settle();
    assert!(rig.index.failed().is_some());
    assert_eq!(rig.index.flushed_mark().0, 0);
    rig.check_all();
}

proptest! {
    #[test]
    fn arbitrary_manifest_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Index::open(small(), &bytes).is_err());
    }

    #[test]
    fn a_changed_manifest_with_a_right_checksum_never_panics(
        flips in prop::collection::vec((any::<u16>(), any::<u8>()), 1..4), seed in 0u64..3,
    ) {
        let rig = damaged(seed, |_| false);
        let mut blob = rig.manifest.clone().unwrap().to_vec();
        for (at, byte) in flips {
            let at = 12 + at as usize % (blob.len() - 12);
            blob[at] = byte;
        }
        let crc = crc_fast::crc32_iscsi(&blob[12..]);
        blob[8..12].copy_from_slice(&crc.to_le_bytes());
        if let Ok(index) = Index::open(small(), &blob) {
            let mut rig = rig;
            rig.index = index;
            for key in [&b"a"[..], &[0, 0, 5, 5], &[9; 17]] {
                // Whatever it says: it is another index.
                rig.get(key, |_| ());
            }
        }
    }
}
