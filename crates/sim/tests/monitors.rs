//! A whole cluster with several monitors, under the faults of [`sim::faults`] among them too.

use sim::coverage::unlisted;
use sim::{Config, MonitorsChoice, run};
use std::ops::Range;
use std::time::Duration;

/// One seed in two runs twice.
fn hold(founders: usize, seeds: Range<u64>) {
    let monitors = MonitorsChoice::Begin(founders);
    let config = Config { monitors, ..Config::new(Duration::from_secs(90)) };
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
    assert!(faulty.is_empty(), "with {founders} monitors these seeds have a fault: {faulty:?}");
}

/// Over messages, over sessions with cephx and without, and with monitors that join.
#[test]
fn three_monitors_under_faults_keep_their_promises() {
    hold(3, 0..6);
}

#[test]
fn five_monitors_under_faults_keep_their_promises() {
    hold(5, 2..5);
}
