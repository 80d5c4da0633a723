//! Clean stops of OSDs in a whole cluster: they tell the monitor, end with an empty log and keep acknowledged writes.

use sim::{Config, MonitorsChoice, Report, run};
use std::time::Duration;

/// In this seed OSDs with disks stop.
const SEED_ON_DISKS: u64 = 4;

fn run_minute(seed: u64) -> Report {
    run(seed, &Config { monitors: MonitorsChoice::Begin(1), ..Config::new(Duration::from_secs(60)) })
}

fn stops(report: &Report) -> u64 {
    report.faults.iter().filter(|(row, _)| *row == "OSD clean stop").map(|(_, struck)| struck).sum()
}

/// On disks, and with memory stores, which a clean stop saves.
#[test]
fn stopped_osds_tell_the_monitor_and_lose_no_write() {
    for seed in [SEED_ON_DISKS, 5] {
        let report = run_minute(seed);
        assert!(report.is_clean() && report.summary.answered > 300, "{report}");
        let seen = stops(&report);
        let count = |state| report.coverage.states.get(&("OSD", state)).copied().unwrap_or(0);
        let told = report.coverage.messages.get(&("mon", "MOSDMarkMeDown")).copied().unwrap_or(0);
        println!("seed {seed}: {seen} stops, {} completed, {told} messages", count("stopped"));
        assert!(seen > 0 && count("stopped") > 0 && told > 0, "{report}");
    }
}

/// The next start has a log to replay.
#[test]
#[cfg(feature = "planted-bugs")]
fn planted_stop_before_checkpoint_is_caught() {
    use block_store::planted::{PlantedBug, plant};
    use sim::check::Promise;
    plant(Some(PlantedBug::StoppedBeforeCheckpoint));
    let report = run_minute(SEED_ON_DISKS);
    plant(None);
    let violation = report.violations.first().expect("the bug is caught");
    println!("{violation}");
    assert!(
        violation.promise == Promise::SoundDisks && violation.to_string().contains("replays"),
        "{report}"
    );
}
