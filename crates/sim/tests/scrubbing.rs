//! Scrubs and repairs under faults: copies differ or cannot be read, clients verify, and in the end all copies are equal.

use sim::{Kind, Report};
use std::time::Duration;

fn run(seed: u64, kind: Kind) -> Report {
    sim::run(seed, &kind.config(Duration::from_secs(40)))
}

fn hold(seeds: std::ops::Range<u64>, kind: Kind) {
    let struck = |report: &Report, name: &str| {
        report.faults.iter().find(|(row, _)| *row == name).map_or(0, |(_, struck)| *struck)
    };
    let (mut scrubs, mut differ) = (0, 0);
    for seed in seeds {
        let report = run(seed, kind);
        assert!(report.is_clean(), "seed {seed}: {report}");
        scrubs += struck(&report, "scrub");
        differ += struck(&report, "copy differs");
    }
    assert!(scrubs > 5 && differ > 0, "{scrubs} scrubs, {differ} copies that differ");
}

#[test]
fn damaged_copies_are_repaired() {
    hold(0..2, Kind::Damage);
}

#[test]
fn scrubs_between_failures_leave_equal_copies() {
    hold(0..1, Kind::DamageAndCrashes);
}

/// An OSD that has started reads logs which have rotted. It gets new copies of these PGs, and all PGs become clean.
#[test]
fn copies_with_rotten_logs_are_replaced() {
    let mut unreadable = 0;
    for seed in 0..12 {
        let report = run(seed, Kind::Logs);
        assert!(report.is_clean(), "seed {seed}: {report}");
        let states = report.coverage.states.iter().filter(|((_, state), _)| *state == "unreadable");
        unreadable += states.map(|(_, count)| *count).sum::<u64>();
        if unreadable > 0 && seed >= 2 {
            break;
        }
    }
    assert!(unreadable > 0, "no log was read");
}
