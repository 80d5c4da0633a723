//! OSDs and clients under faults, with a scripted monitor: nothing acknowledged is lost or done twice, watches of the
//! dead end, and bugs that are planted are caught (`--features planted-bugs`).

mod support;

use sim::{Config, Level, Report, run_with};
use std::time::Duration;
use support::scripted_monitor::ScriptedMonitor;

fn run(seed: u64, level: Level, seconds: u64) -> Report {
    let config = Config { level, monitor_crashes: false, ..Config::new(Duration::from_secs(seconds)) };
    let osds = config.osds;
    run_with(
        seed,
        &config,
        &|_, addrs, random, quiet_after| Box::new(ScriptedMonitor::new(addrs, random, quiet_after, osds, 16)),
        &[],
    )
}

fn holds(seeds: std::ops::Range<u64>, level: Level, seconds: u64) {
    for seed in seeds {
        let report = run(seed, level, seconds);
        println!("{report}");
        assert!(report.is_clean(), "seed {seed}");
        assert_eq!(report.summary.open, 0);
        assert!(
            report.summary.answered > 300 && report.summary.looks > 0,
            "seed {seed}: {:?}",
            report.summary
        );
        assert_eq!(run(seed, level, seconds).trace_hash, report.trace_hash, "seed {seed} replays");
    }
}

/// Open: in several seeds a client still waits for the end of a notification when the faults are long over. (The whole
/// cluster's seed 45 ends the same way; its other seeds, and the level of bytes below, hold.)
#[test]
#[ignore = "open: notifications without an end"]
fn with_messages_nothing_acknowledged_is_lost_or_done_twice() {
    holds(0..3, Level::Messages, 120);
}

#[test]
fn with_sessions_nothing_acknowledged_is_lost_or_done_twice() {
    holds(0..2, Level::Bytes { cephx: false }, 60);
}

#[test]
#[ignore = "long: 20 seeds of ten minutes"]
fn many_seeds_hold() {
    holds(1000..1020, Level::Messages, 600);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_caught() {
    use osd::planted::{PlantedBug, plant};
    for bug in [
        PlantedBug::ReplyBeforeCommit,
        PlantedBug::LostReqid,
        PlantedBug::StaleEpochAccepted,
        PlantedBug::WatchNeverExpires,
        PlantedBug::ActiveWithoutHistory,
        PlantedBug::ReplyOutOfOrder,
    ] {
        plant(Some(bug));
        let caught = (0..8).find_map(|seed| run(seed, Level::Messages, 120).violations.first().cloned());
        plant(None);
        println!("{bug:?}: {}", caught.as_deref().unwrap_or("NOT CAUGHT"));
        assert!(caught.is_some(), "{bug:?} is not caught");
    }
}
