//! A whole cluster of production machines under faults: monitor, manager, OSDs and clients.

use sim::check::{Promise, Violation};
use sim::coverage::unlisted;
use sim::{
    ClusterChoice, ClusterConfig, Config, FaultChoice, Level, LevelChoice, MonitorsChoice, PoolConfig, run,
};
use std::ops::Range;
use std::time::Duration;

/// The fault of a seed, if it has one. With `twice`, a second run must have the same trace.
fn fault_of(seed: u64, config: &Config, twice: bool) -> Option<String> {
    let report = run(seed, config);
    let summary = report.summary;
    let wrong = if !report.is_clean() {
        "does not hold"
    } else if !unlisted(&report.coverage).is_empty() {
        "shows a state that `coverage` does not list"
    } else if summary.answered <= 300 || summary.looks == 0 {
        "shows too little"
    } else if twice && run(seed, config).trace_hash != report.trace_hash {
        "does not replay"
    } else {
        return None;
    };
    Some(format!("seed {seed} {wrong}: {summary:?}\n{report}"))
}

fn hold(seeds: Range<u64>, config: &Config) {
    hold_twice_in(4, seeds, config);
}

/// One seed in `twice_in` runs twice.
fn hold_twice_in(twice_in: u64, seeds: Range<u64>, config: &Config) {
    let mut faulty = Vec::new();
    for seed in seeds.clone() {
        let twice = seed.is_multiple_of(twice_in);
        if let Some(fault) = fault_of(seed, config, twice) {
            println!("{fault}");
            faulty.push(seed);
        }
    }
    assert!(faulty.is_empty(), "of {} seeds these have a fault: {faulty:?}", seeds.count());
}

fn seconds(span: u64) -> Config {
    Config { monitors: MonitorsChoice::Begin(1), ..Config::new(Duration::from_secs(span)) }
}

/// Both stores, over messages and over sessions with cephx.
#[test]
fn cluster_under_faults_keeps_its_promises() {
    hold(0..4, &seconds(30));
}

/// Two more OSDs, and three pools.
#[test]
fn several_pools_under_faults_keep_their_promises() {
    let cluster = ClusterConfig { osds: 5, pools: vec![PoolConfig { pg_num: 8, ..PoolConfig::ONE_COPY }; 3] };
    hold(0..2, &Config { cluster: ClusterChoice::Always(cluster), ..seconds(30) });
}

/// Each OSD pings each of its partners once a second, and is answered.
#[test]
fn idle_cluster_pings_once_a_second() {
    let osds = 6;
    let pool = PoolConfig { pg_num: 32, ..PoolConfig::of_size(3) };
    let cluster = ClusterConfig { osds, pools: vec![pool] };
    let config = Config {
        cluster: ClusterChoice::Always(cluster),
        clients: 0,
        faults: FaultChoice::Only(&[]),
        level: LevelChoice::Always(Level::Messages),
        ..seconds(60)
    };
    let report = run(3, &config);
    // Nobody asks for anything.
    let is_expected = |violation: &Violation| violation.promise == Promise::MakesProgress;
    assert!(report.violations.iter().all(is_expected), "{report}");
    let pings = report.coverage.messages[&("osd", "MOSDPing")];
    let pairs = (osds * (osds - 1)) as u64;
    // The quiet time follows the minute.
    let least = 2 * pairs * 60;
    let most = 2 * pairs * (report.simulated.as_secs() + 1);
    assert!((least..=most).contains(&pings), "{pings} pings and answers, not {least} to {most}");
}

/// `SHOAL_SIM_SEEDS=1000..1100` chooses other seeds.
#[test]
#[ignore = "long: 200 seeds of ten minutes, each twice: about 40 CPU minutes in release mode"]
fn cluster_over_many_seeds_keeps_its_promises() {
    let wanted = std::env::var("SHOAL_SIM_SEEDS").unwrap_or_else(|_| "0..200".into());
    let (from, to) = wanted.split_once("..").expect("SHOAL_SIM_SEEDS is FROM..TO");
    let number = |text: &str| text.parse::<u64>().expect("SHOAL_SIM_SEEDS is FROM..TO");
    hold_twice_in(1, number(from)..number(to), &seconds(600));
}
