//! Scrubs and repairs under faults: copies differ or cannot be read, clients verify, and in the end all copies are equal.

use sim::{
    ClusterChoice, ClusterConfig, Config, FaultChoice, Medium, MonitorsChoice, PoolConfig, Report,
    StoreChoice,
};
use std::time::Duration;

const DAMAGE: &[&str] = &["scrub", "copy differs", "bit flip on OSD disk", "unreadable block"];
const FAILURES: &[&str] =
    &["scrub", "copy differs", "bit flip on OSD disk", "OSD crash", "node isolated", "PG split", "PG merge"];
const LOGS: &[&str] = &["bit flip in both copies of a log", "OSD crash", "PG split"];

fn run(seed: u64, faults: &'static [&'static str]) -> Report {
    let pool = PoolConfig { pg_num: 8, ..PoolConfig::of_size(3) };
    let config = Config {
        cluster: ClusterChoice::Always(ClusterConfig { osds: 4, pools: vec![pool] }),
        store: StoreChoice::Always(Medium::Disk),
        has_one_shard: true,
        faults: FaultChoice::Only(faults),
        fault_rate: 4,
        quiet: Duration::from_secs(60),
        monitors: MonitorsChoice::Begin(1),
        ..Config::new(Duration::from_secs(40))
    };
    sim::run(seed, &config)
}

fn hold(seeds: std::ops::Range<u64>, faults: &'static [&'static str]) {
    let struck = |report: &Report, name: &str| {
        report.faults.iter().find(|(row, _)| *row == name).map_or(0, |(_, struck)| *struck)
    };
    let (mut scrubs, mut differ) = (0, 0);
    for seed in seeds {
        let report = run(seed, faults);
        assert!(report.is_clean(), "seed {seed}: {report}");
        scrubs += struck(&report, "scrub");
        differ += struck(&report, "copy differs");
    }
    assert!(scrubs > 5 && differ > 0, "{scrubs} scrubs, {differ} copies that differ");
}

#[test]
fn damaged_copies_are_repaired() {
    hold(0..2, DAMAGE);
}

#[test]
fn scrubs_between_failures_leave_equal_copies() {
    hold(0..1, FAILURES);
}

/// An OSD that has started reads logs which have rotted. It gets new copies of these PGs, and all PGs become clean.
#[test]
fn copies_with_rotten_logs_are_replaced() {
    let mut unreadable = 0;
    for seed in 0..12 {
        let report = run(seed, LOGS);
        assert!(report.is_clean(), "seed {seed}: {report}");
        let states = report.coverage.states.iter().filter(|((_, state), _)| *state == "unreadable");
        unreadable += states.map(|(_, count)| *count).sum::<u64>();
        if unreadable > 0 && seed >= 2 {
            break;
        }
    }
    assert!(unreadable > 0, "no log was read");
}
