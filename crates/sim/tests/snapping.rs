//! Snapshots under faults: each keeps the contents of its objects through crashes, recovery, backfill, splits and trims.
//!
//! Four bugs are planted one at a time. A seed catches each, and holds without the bug.

use sim::{Config, Kind, Medium, Report, StoreChoice};
use std::time::Duration;

fn config(kind: Kind, store: Medium) -> Config {
    Config { store: StoreChoice::Always(store), ..kind.config(Duration::from_secs(30)) }
}

fn is_kept(seed: u64, store: Medium) -> Report {
    let report = sim::run(seed, &config(Kind::Snapshots, store));
    assert!(report.is_clean(), "seed {seed}: {report}");
    assert!(report.summary.snap_answers > 300, "seed {seed}: {:?}", report.summary);
    report
}

#[test]
fn snapshots_in_memory_keep_their_contents() {
    (0..3).for_each(|seed| drop(is_kept(seed, Medium::Memory)));
}

#[test]
fn snapshots_on_disks_keep_their_contents() {
    (10..12).for_each(|seed| drop(is_kept(seed, Medium::Disk)));
}

#[test]
#[ignore = "long: 20 seeds of a minute"]
fn snapshots_keep_their_contents_under_all_faults() {
    for seed in 100..120 {
        let store = if seed % 2 == 0 { Medium::Disk } else { Medium::Memory };
        let config = config(Kind::SnapshotsAndAll, store);
        let report = sim::run(seed, &config);
        assert!(report.is_clean(), "seed {seed}: {report}");
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use osd::planted::{PlantedBug, plant};
    use sim::FaultChoice;
    use sim::check::Promise;

    const SEEDS_MAX: u64 = 20;
    const NONE: Option<FaultChoice> = Some(FaultChoice::Only(&[]));

    /// The bug breaks one of the promises first, in some seed that holds without it.
    fn is_caught(bug: PlantedBug, faults: Option<FaultChoice>, promises: &[Promise]) {
        let mut config = config(Kind::Snapshots, Medium::Memory);
        config.faults = faults.unwrap_or(config.faults);
        for seed in 0..SEEDS_MAX {
            plant(Some(bug));
            let report = sim::run(seed, &config);
            plant(None);
            let Some(violation) = report.violations.first() else { continue };
            assert!(promises.contains(&violation.promise), "seed {seed}: {violation}");
            println!("{bug:?}: seed {seed}: {violation}");
            let without = sim::run(seed, &config);
            assert!(without.is_clean(), "seed {seed} without the bug: {without}");
            return;
        }
        panic!("{bug:?} breaks none of {promises:?}");
    }

    #[test]
    fn overlap_after_a_truncation_is_caught() {
        is_caught(PlantedBug::TruncateKeepsOverlap, NONE, &[Promise::SnapshotsKept]);
    }

    #[test]
    fn trim_of_a_needed_clone_is_caught() {
        is_caught(PlantedBug::TrimTakesNeededClone, NONE, &[Promise::SnapshotsKept]);
    }

    #[test]
    fn recovered_head_without_index_entries_is_caught() {
        is_caught(PlantedBug::TransferNotIndexed, None, &[Promise::SnapshotsIndexed]);
    }

    #[test]
    fn merged_clone_that_is_not_missing_is_caught() {
        let promises =
            &[Promise::SnapshotsKept, Promise::ReplicasEqual, Promise::Invariant, Promise::LogsAgree];
        is_caught(PlantedBug::MergedCloneNotMissing, None, promises);
    }
}
