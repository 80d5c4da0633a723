//! Pools that shrink and grow under faults: PGs merge while OSDs die, maps change and clients verify.

use sim::Kind;
use std::time::Duration;

/// Seeds of the first test, and the merges of all of them, at least.
const SEEDS: u64 = 4;
const MERGES_MIN: u64 = 4;
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn pgs_merge_without_loss() {
    let mut merges = 0;
    for seed in 0..SEEDS {
        let report = sim::run(seed, &Kind::Merges.config(MINUTE));
        assert!(report.is_clean(), "seed {seed}: {report}");
        println!("seed {seed}: {} merges", report.merges);
        merges += report.merges;
    }
    assert!(merges >= MERGES_MIN, "{merges} merges");
}

/// An OSD comes back with copies of PGs that have merged.
#[test]
fn pgs_merge_while_an_osd_is_away() {
    let report = sim::run(0, &Kind::MergesAway.config(MINUTE));
    assert!(report.is_clean(), "{report}");
    assert!(report.merges > 0, "no merge");
}
