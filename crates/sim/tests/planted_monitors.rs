//! Rules of the monitors' quorum, broken one at a time: the checkers catch each within 100 seeds, in a seed that holds without.

#![cfg(feature = "planted-bugs")]

use mon::replication::quorum::planted::{Rule, plant};
use sim::check::Promise;
use sim::{Config, FaultChoice, Level, LevelChoice, Medium, MonitorsChoice, StoreChoice, run};
use std::time::Duration;

const SEEDS_MAX: u64 = 100;

/// The first seed that shows the broken rule is `from`. The seeds before it hold.
fn is_caught(rule: Rule, promises: &[Promise], faults: &'static [&'static str], from: u64) {
    let config = Config {
        monitors: MonitorsChoice::Begin(3),
        level: LevelChoice::Always(Level::Messages),
        store: StoreChoice::Always(Medium::Memory),
        clients: 1,
        faults: FaultChoice::Only(faults),
        fault_rate: 8,
        quiet: Duration::from_secs(50),
        ..Config::new(Duration::from_secs(60))
    };
    let mut others = Vec::new();
    for seed in from..SEEDS_MAX {
        plant(Some(rule));
        let report = run(seed, &config);
        plant(None);
        match report.violations.first() {
            Some(violation) if promises.contains(&violation.promise) => {
                println!("{rule:?}: {:?} in seed {seed}: {violation}", violation.promise);
                let without = run(seed, &config);
                assert!(without.is_clean(), "seed {seed} with the rule: {without}");
                return;
            }
            violation => others.extend(violation.map(|v| format!("seed {seed}: {:?} {v}", v.promise))),
        }
    }
    panic!("{rule:?} breaks none of {promises:?}, but {others:#?}");
}

/// The leader's question to the others is lost with a connection, and whoever waits for the answer waits for ever.
#[test]
fn read_that_is_not_retried_is_caught() {
    let faults = &["connection reset", "leader cut off from monitors", "monitors divided"];
    is_caught(Rule::RetryReads, &[Promise::CommandsAnswered, Promise::Settles], faults, 0);
}

/// A monitor that dies forgets what it has acknowledged.
#[test]
fn promise_before_write_is_caught() {
    let promises =
        [Promise::MonitorsAgree, Promise::CommandsKept, Promise::CommandsCurrent, Promise::Invariant];
    let faults =
        &["crash of all monitors", "slow monitor disk", "follower's disk slow", "monitor crash during write"];
    is_caught(Rule::PromiseAfterWrite, &promises, faults, 13);
}

/// The answer was lost, and the next leader carries the command out again.
#[test]
fn command_done_twice_is_caught() {
    let faults = &["leader crash", "connection reset", "leader cut off from monitors"];
    is_caught(Rule::RepeatsAreKnown, &[Promise::CommandsDoneOnce], faults, 0);
}
