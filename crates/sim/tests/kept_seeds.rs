//! Seeds that found a fault, kept after it was mended. A seed replays its faults only as long as no change of code moves them: the
//! fault's own test is beside the code.

use sim::{Config, Medium, StoreChoice, run};
use std::time::Duration;

fn holds(seed: u64, medium: Medium) {
    let config = Config { store: StoreChoice::Always(medium), ..Config::new(Duration::from_secs(240)) };
    let report = run(seed, &config);
    assert!(report.is_clean(), "{report}");
}

/// After a split the newest common log entries of two copies were a child's. Two PGs stayed incomplete.
#[test]
fn seed_with_split_logs_settles() {
    holds(11, Medium::Disk);
}
