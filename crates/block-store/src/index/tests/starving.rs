//! Flushes and merges without space or with read errors, which go on later.

use super::rig::{Rig, small};
use super::steps::{step_bytes, step_max};
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
    let mut small_steps = 0;
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
        // A merge of a deeper level may have been given up, and tables move without space.
        if rig.index.levels.takes_small_steps() {
            let step = step_bytes(&rig.index);
            assert!(step > 0 && step <= step_max(&small()), "the next merge needs {step} bytes");
            small_steps += 1;
        }
        rig.settle();
        assert!(rig.index.fresh_tables() < 4);
        rig.check_all();
        rig.store_manifest();
        rig.settle();
        let tables: u64 = rig.index.runs().map(|(_, len)| len / BLOCK as u64).sum();
        assert_eq!(rig.space.free.iter().filter(|free| !**free).count() as u64, tables);
    }
    assert!(small_steps > 0);
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
        // A running merge may have read all that there is.
        while rig.index.background.merge.is_some() {
            rig.turn();
        }
        let tables: Vec<(u64, u64)> = rig.index.runs().collect();
        tables.iter().for_each(|(offset, len)| rig.disk.fail_reads(*offset..offset + len));
        // Merges are begun and given up, while changes wait for the index as the store lets them wait.
        for _ in 0..10_000 {
            if rig.index.background.unreadable.failures() >= 2 {
                break;
            }
            if !rig.index.is_behind() {
                rig.change_durably(20);
            }
            rig.turn();
        }
        let failures = rig.index.background.unreadable.failures();
        assert!(failures >= 2, "seed {seed}: {failures} failures, {} fresh runs", rig.index.fresh_tables());
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
