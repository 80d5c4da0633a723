//! A whole cluster of production machines under faults: monitor, manager, OSDs and clients.

use sim::coverage::unlisted;
use sim::{Config, Medium, StoreChoice, run};
use std::ops::Range;
use std::time::Duration;

/// The fault of a seed, if it has one. Runs it twice: the traces must be equal.
fn fault_of(seed: u64, config: &Config) -> Option<String> {
    let report = run(seed, config);
    let summary = report.summary;
    let wrong = if !report.is_clean() {
        "does not hold"
    } else if !unlisted(&report.coverage).is_empty() {
        "shows a state that `coverage` does not list"
    } else if summary.answered <= 300 || summary.looks == 0 {
        "shows too little"
    } else if run(seed, config).trace_hash != report.trace_hash {
        "does not replay"
    } else {
        return None;
    };
    Some(format!("seed {seed} {wrong}: {summary:?}\n{report}"))
}

fn hold(seeds: Range<u64>, config: &Config) {
    let mut faulty = Vec::new();
    for seed in seeds.clone() {
        if let Some(fault) = fault_of(seed, config) {
            println!("{fault}");
            faulty.push(seed);
        }
    }
    assert!(faulty.is_empty(), "of {} seeds these have a fault: {faulty:?}", seeds.count());
}

fn seconds(span: u64) -> Config {
    Config::new(Duration::from_secs(span))
}

#[test]
fn cluster_under_faults_keeps_its_promises() {
    hold(0..2, &seconds(90));
}

/// `SHOAL_SIM_SEEDS=1000..1100` chooses other seeds.
#[test]
#[ignore = "long: 200 seeds of ten minutes, each twice: about 20 minutes of one processor in release mode"]
fn cluster_over_many_seeds_keeps_its_promises() {
    let wanted = std::env::var("SHOAL_SIM_SEEDS").unwrap_or_else(|_| "0..200".into());
    let (from, to) = wanted.split_once("..").expect("SHOAL_SIM_SEEDS is FROM..TO");
    let number = |text: &str| text.parse::<u64>().expect("SHOAL_SIM_SEEDS is FROM..TO");
    hold(number(from)..number(to), &seconds(600));
}

/// An OSD died when the map that gave it a new pool's PGs was durable and not all of the PGs were. That they begin with
/// it was kept in memory only, and they stayed down for good; now it is kept with the map.
#[test]
fn seed_1113_holds() {
    hold(1113..1114, &Config { store: StoreChoice::Always(Medium::Memory), ..seconds(600) });
}
