//! A whole cluster with several monitors, under the faults of [`sim::faults`] among them too.

use sim::coverage::unlisted;
use sim::{Config, MonitorsChoice, MonitorsConfig, run};
use std::ops::Range;
use std::time::Duration;

/// One seed in two runs twice.
fn hold(monitors: MonitorsChoice, seeds: Range<u64>) {
    let config = Config { monitors, ..Config::new(Duration::from_secs(60)) };
    let mut faulty = Vec::new();
    for seed in seeds {
        let report = run(seed, &config);
        let replays = !seed.is_multiple_of(2) || run(seed, &config).trace_hash == report.trace_hash;
        let figures = report.monitors.expect("there are several");
        let shows_enough = figures.commands > 100 && figures.compared > 20 && figures.judged_s > 10;
        if !shows_enough || !report.is_clean() || !replays || !unlisted(&report.coverage).is_empty() {
            println!("{report}\nreplays: {replays}, unlisted: {:?}", unlisted(&report.coverage));
            faulty.push(seed);
        }
    }
    assert!(faulty.is_empty(), "with monitors {monitors:?} these seeds have a fault: {faulty:?}");
}

/// Over messages, over sessions with cephx and without, and with monitors that join.
#[test]
fn three_monitors_under_faults_keep_their_promises() {
    hold(MonitorsChoice::Begin(3), 0..4);
}

#[test]
fn five_monitors_under_faults_keep_their_promises() {
    hold(MonitorsChoice::Begin(5), 2..4);
}

#[test]
fn one_monitor_that_becomes_three_keeps_its_promises() {
    hold(MonitorsChoice::Always(MonitorsConfig::GROWING), 4..5);
}
