//! Flushes and merges without space or with read errors, which go on later.

use super::rig::{Rig, small};
use crate::index::Get;
use crate::index::levels::Target;
use device::BLOCK;

/// Works until a flush or a merge waits for space.
fn starve(rig: &mut Rig) {
    rig.space.run_max = 0;
    for _ in 0..400 {
        rig.change_durably(20);
        rig.turn();
    }
    assert!(rig.index.is_starving() && !rig.index.has_room());
}

#[test]
fn starved_flush_goes_on_with_space() {
    for seed in 0..6 {
        let mut rig = Rig::new(small(), seed);
        for _ in 0..seed * 40 {
            rig.change_durably(20);
            rig.turn();
        }
        starve(&mut rig);
        rig.space.run_max = if seed % 2 == 0 { usize::MAX } else { 12 };
        rig.settle();
        assert!(!rig.index.is_starving() && rig.index.has_room());
        assert!(rig.index.fresh_tables() < 4, "{} fresh runs", rig.index.fresh_tables());
        rig.check_all();
    }
}

#[test]
fn starved_merge_goes_on_with_space() {
    for seed in 0..6 {
        let mut rig = Rig::new(small(), seed);
        while rig.index.background.merge.is_none() {
            rig.change_durably(20);
            rig.turn();
        }
        rig.space.run_max = 0;
        for _ in 0..20_000 {
            rig.turn();
        }
        rig.space.run_max = usize::MAX;
        rig.settle();
        assert!(!rig.index.is_starving() && rig.index.fresh_tables() < 4);
        rig.check_all();
    }
}

#[test]
fn starving_merge_gives_space_to_flush() {
    for seed in 0..6 {
        let mut rig = Rig::new(small(), seed);
        while rig.index.background.merge.is_none() {
            rig.change_durably(20);
            rig.turn();
        }
        for _ in 0..seed {
            rig.turn();
        }
        starve(&mut rig);
        assert!(rig.index.background.merge.is_none());
        rig.space.run_max = usize::MAX;
        while rig.index.background.merge.is_none() {
            rig.turn();
        }
        let inputs = &rig.index.background.merge.as_ref().expect("seen").plan.inputs;
        assert!(inputs.len() == 2 && inputs[0].len() == 1, "the next merge needs little space");
        rig.settle();
        assert!(rig.index.fresh_tables() < 4);
        rig.check_all();
        rig.store_manifest();
        rig.settle();
        let tables: u64 = rig.index.runs().map(|(_, len)| len / BLOCK as u64).sum();
        assert_eq!(rig.space.free.iter().filter(|free| !**free).count() as u64, tables);
    }
}

/// The next merge would need as much space as the one that was given up.
#[test]
fn starving_merge_of_a_deep_level_is_not_begun_again() {
    for seed in 0..6 {
        let mut rig = Rig::new(small(), seed);
        let is_deep = |rig: &Rig| {
            let merge = rig.index.background.merge.as_ref();
            merge.is_some_and(|merge| matches!(merge.plan.target, Target::Level(level) if level > 1))
        };
        while !is_deep(&rig) {
            rig.change_durably(20);
            while !is_deep(&rig) && rig.turn() {}
        }
        starve(&mut rig);
        rig.settle();
        assert!(rig.index.background.merge.is_none());
        rig.space.run_max = usize::MAX;
        rig.settle();
        rig.check_all();
    }
}

#[test]
fn transient_read_errors_lose_no_data() {
    for seed in 0..6 {
        let mut rig = Rig::new(small(), seed);
        for _ in 0..100 {
            rig.change_durably(20);
            rig.turn();
        }
        let tables: Vec<(u64, u64)> = rig.index.runs().collect();
        tables.iter().for_each(|(offset, len)| rig.disk.fail_reads(*offset..offset + len));
        // Merges are begun and given up.
        let before = rig.index.background.failed_merges;
        while rig.index.background.failed_merges < before + 2 {
            rig.change_durably(20);
            rig.turn();
        }
        rig.disk.heal();
        for _ in 0..100 {
            rig.change_durably(20);
            rig.turn();
        }
        rig.settle();
        assert!(rig.index.fresh_tables() < 4);
        let keys: Vec<_> = rig.model.keys().cloned().collect();
        for key in keys {
            assert!(matches!(rig.get(&key, |_| ()), Get::Found(_)), "seed {seed}: {key:?}");
        }
        rig.check_all();
    }
}
