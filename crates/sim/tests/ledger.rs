//! The committed ledger of seeds: every line is a run that held.

use sim::ledger::{Entry, parse};
use std::collections::BTreeSet;

#[test]
fn ledger_lists_seeds_that_hold() {
    let entries = parse(include_str!("../ledger.tsv")).unwrap_or_else(|error| panic!("{error}"));
    let mut seen = BTreeSet::new();
    for entry in &entries {
        let Entry { commit, options, seed, minutes, broken, .. } = entry;
        assert_eq!(
            *broken, None,
            "seed {seed} at {commit}: mend the cause, keep the seed as a test, and drop the line"
        );
        assert!(seen.insert((commit, options, minutes, seed)), "seed {seed} at {commit} is listed twice");
    }
    let commits: BTreeSet<&String> = entries.iter().map(|entry| &entry.commit).collect();
    let minutes: u64 = entries.iter().map(|entry| entry.minutes).sum();
    println!("{} runs of seeds at {} commits, {minutes} simulated minutes", entries.len(), commits.len());
}
