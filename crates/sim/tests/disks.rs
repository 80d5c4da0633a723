//! The whole cluster with the durable store on simulated disks: nothing acknowledged is lost by power cuts, nothing wrong
//! is served from disks that rot, and bugs that are planted in the store are caught (`--features planted-bugs`).

use sim::{Config, Medium, StoreChoice, run};
use std::time::Duration;

fn config(seconds: u64) -> Config {
    Config { store: StoreChoice::Always(Medium::Disk), ..Config::new(Duration::from_secs(seconds)) }
}

/// Of a few seeds, each twice: they hold, they replay, and disks were broken in them.
#[test]
fn nothing_is_lost_by_power_cuts_and_nothing_wrong_is_read_from_disks_that_rot() {
    let (mut power_cuts, mut failed) = (0, 0);
    // Seeds whose objects are blocks on the disk, not entries of the index.
    for seed in 4..8 {
        let report = run(seed, &config(120));
        assert!(report.is_clean(), "{report}");
        assert!(report.summary.answered > 300, "{report}");
        assert_eq!(run(seed, &config(120)).trace_hash, report.trace_hash, "seed {seed} replays");
        let cuts = report.faults.iter().filter(|(row, _)| row.contains("loses power"));
        power_cuts += cuts.map(|(_, struck)| struck).sum::<u64>();
        failed += report.summary.failed;
    }
    assert!(power_cuts > 0 && failed > 0, "{power_cuts} power cuts, {failed} failed reads");
}

/// Each bug breaks a promise that it is a bug against, and the seed that shows it holds without the bug.
#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use block_store::planted::{PlantedBug, plant};
    use sim::check::Promise;
    use std::ops::Range;

    fn is_caught(bug: PlantedBug, promises: &[Promise], seeds: Range<u64>) {
        let mut others = Vec::new();
        for seed in seeds {
            plant(Some(bug));
            let report = run(seed, &config(120));
            plant(None);
            match report.violations.first() {
                Some(violation) if promises.contains(&violation.promise) => {
                    println!("{bug:?}, seed {seed}: {violation}");
                    let without = run(seed, &config(120));
                    assert!(without.is_clean(), "seed {seed} without the bug: {without}");
                    return;
                }
                violation => others.extend(violation.map(|v| format!("seed {seed}: {v}"))),
            }
        }
        panic!("{bug:?} breaks none of {promises:?}, but {others:#?}");
    }

    /// What is gone then is a record of the log that a later one says was kept, or data that nothing has damaged.
    #[test]
    fn planted_acknowledged_before_flush_is_caught() {
        let promises = [Promise::SoundDisks, Promise::OnlyDamageIsAnError, Promise::KeptWhatWasAcknowledged];
        is_caught(PlantedBug::AcknowledgedBeforeFlush, &promises, 0..20);
    }

    /// A later batch was answered and the one before it was not written, just when the power failed: one seed in a hundred,
    /// so the search begins where there is one, and goes on far when the simulation has changed. Or blocks are free too
    /// early, and taken for two things, which a debug assertion of the store sees first.
    #[test]
    fn planted_acknowledged_out_of_order_is_caught() {
        let promises = [Promise::OnlyDamageIsAnError, Promise::KeptWhatWasAcknowledged, Promise::Invariant];
        is_caught(PlantedBug::AcknowledgedOutOfOrder, &promises, 80..400);
    }

    /// A read shows what nobody wrote.
    #[test]
    fn planted_checksum_not_compared_is_caught() {
        is_caught(PlantedBug::ChecksumNotCompared, &[Promise::OneOrder], 0..20);
    }
}
