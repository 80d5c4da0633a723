//! The whole cluster: production monitor, manager, OSDs and clients, under faults.

use sim::{Config, run};
use std::time::Duration;

fn holds(seeds: std::ops::Range<u64>, seconds: u64) {
    let config = Config::new(Duration::from_secs(seconds));
    for seed in seeds {
        let report = run(seed, &config);
        println!("{report}");
        assert!(report.is_clean(), "seed {seed}");
        assert!(
            report.summary.answered > 300 && report.summary.looks > 0,
            "seed {seed}: {:?}",
            report.summary
        );
        assert_eq!(run(seed, &config).trace_hash, report.trace_hash, "seed {seed} replays");
    }
}

#[test]
fn a_few_seeds_hold() {
    holds(0..2, 90);
}

#[test]
#[ignore = "long: 200 seeds of ten minutes, each twice; seed 45 is open, see below"]
fn two_hundred_seeds_hold() {
    holds(0..200, 600);
}

/// Found by the long run: after its faults are over, a client still waits for the end of a notification.
#[test]
#[ignore = "open: a notification without an end"]
fn seed_45_holds() {
    holds(45..46, 600);
}
