//! Pools that shrink and grow under faults: PGs merge while OSDs die, maps change and clients verify.

use sim::{
    ClusterChoice, ClusterConfig, Config, FaultChoice, Medium, MonitorsChoice, PoolConfig, StoreChoice,
};
use std::time::Duration;

const FAULTS: &[&str] = &["PG merge", "PG split", "OSD crash", "OSD marked down", "PG upmap set or removed"];

/// Seeds of the first test, and the merges of all of them, at least.
const SEEDS: u64 = 4;
const MERGES_MIN: u64 = 4;

fn config(faults: &'static [&'static str]) -> Config {
    let pool = PoolConfig { pg_num: 8, ..PoolConfig::of_size(3) };
    Config {
        cluster: ClusterChoice::Always(ClusterConfig { osds: 4, pools: vec![pool] }),
        store: StoreChoice::Always(Medium::Disk),
        has_one_shard: true,
        faults: FaultChoice::Only(faults),
        fault_rate: 2,
        quiet: Duration::from_secs(60),
        monitors: MonitorsChoice::Begin(1),
        ..Config::new(Duration::from_secs(60))
    }
}

#[test]
fn pgs_merge_without_loss() {
    let mut merges = 0;
    for seed in 0..SEEDS {
        let report = sim::run(seed, &config(FAULTS));
        assert!(report.is_clean(), "seed {seed}: {report}");
        println!("seed {seed}: {} merges", report.merges);
        merges += report.merges;
    }
    assert!(merges >= MERGES_MIN, "{merges} merges");
}

/// An OSD comes back with copies of PGs that have merged.
#[test]
fn pgs_merge_while_an_osd_is_away() {
    let report = sim::run(0, &config(&["PG merge", "PG split", "OSD away"]));
    assert!(report.is_clean(), "{report}");
    assert!(report.merges > 0, "no merge");
}
