//! The backend seam, tried with the OSD's throw-away erasure backend: two shards whose bytes differ, positions in acting sets
//! with holes, reads that another member answers, and recovery that makes one shard from the other.
//!
//! The checkers are those of replicated pools. Copies are compared by the client's bytes. A mix-up of shards must be caught.
//! [Decision](../../../docs/decisions/2026-11-25-backend-seam.md).

#![cfg(feature = "erasure-trial")]

use osd::backend::Tally;
use sim::{
    ClusterChoice, ClusterConfig, Config, FaultChoice, Level, LevelChoice, Medium, MonitorsChoice,
    PoolConfig, StoreChoice, run,
};
use std::time::Duration;

/// Faults after which CRUSH names every OSD in its position again. The trial has no copies of two shards on one OSD.
const FAULTS: &[&str] = &[
    "connection reset",
    "node isolated",
    "pairwise partition",
    "one-way partition",
    "cluster network divided",
    "OSD cut off from monitor",
    "slow network",
    "OSD pause",
    "OSD crash",
    "OSD crash during write",
    "OSD power loss during write",
    "OSD clean stop",
    "OSD marked down",
    "monitor crash",
    "client crash",
    "slow OSD disk",
    "OSD disk stall",
    "bit flip on OSD disk",
    "unreadable block",
    "primary affinity changed",
    "blackout of all OSDs",
    "disk loss",
];

fn config(min_size: u8, seconds: u64) -> Config {
    let pool = PoolConfig { size: 2, min_size, pg_num: 8, is_erasure: true };
    Config {
        cluster: ClusterChoice::Always(ClusterConfig { osds: 4, pools: vec![pool] }),
        faults: FaultChoice::Only(FAULTS),
        fault_rate: 3,
        monitors: MonitorsChoice::Begin(1),
        ..Config::new(Duration::from_secs(seconds))
    }
}

/// Runs seeds, and returns the number of lost disks and the uses of the seam.
fn hold(seeds: impl IntoIterator<Item = u64>, config: &Config) -> (u64, Tally) {
    let mut faulty = Vec::new();
    let mut disks_lost = 0;
    Tally::take();
    for seed in seeds {
        let report = run(seed, config);
        println!("{report}");
        if !report.is_clean() || report.summary.answered <= 300 {
            faulty.push(seed);
        }
        disks_lost +=
            report.faults.iter().filter(|(row, _)| *row == "disk loss").map(|(_, n)| n).sum::<u64>();
    }
    let tally = Tally::take();
    println!("{disks_lost} disks lost; {tally:?}");
    assert!(faulty.is_empty(), "these seeds have a fault: {faulty:?}");
    (disks_lost, tally)
}

/// Two runs of a seed take the same way.
#[test]
fn seed_of_the_trial_replays() {
    let config = config(1, 60);
    assert_eq!(run(2, &config).trace_hash, run(2, &config).trace_hash);
}

#[test]
fn shards_under_faults_keep_their_promises() {
    let (disks_lost, tally) = hold(0..6, &config(1, 180));
    let Tally { member_reads, decoded_reads, pushed_parity, pushed_data, refused_reads: _ } = tally;
    let least = [disks_lost, member_reads, decoded_reads, pushed_parity, pushed_data].into_iter().min();
    assert!(least > Some(0), "the runs show too little");
}

#[test]
#[ignore = "long: 100 seeds of three minutes"]
fn shards_over_many_seeds_keep_their_promises() {
    hold(1000..1080, &config(1, 180));
    hold(1080..1100, &config(2, 180));
}

/// Requests wait while one shard is absent.
#[test]
fn shards_that_must_both_act_keep_their_promises() {
    let (disks_lost, tally) = hold(0..2, &config(2, 180));
    assert!(disks_lost > 0 && tally.member_reads > 0, "the runs show too little");
}

/// Blocks of one disk break. Reads are decoded from the other shard.
#[test]
fn unreadable_shard_is_decoded_around() {
    let faults: &[&str] = &["bit flip on OSD disk", "unreadable block", "primary affinity changed"];
    let config = Config {
        store: StoreChoice::Always(Medium::Disk),
        faults: FaultChoice::Only(faults),
        fault_rate: 60,
        ..config(2, 120)
    };
    let (_, tally) = hold(0..2, &config);
    assert!(tally.refused_reads > 0, "the runs show too little");
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use osd::planted::{PlantedBug, plant};
    use sim::check::Promise;

    fn is_caught(bug: PlantedBug, promises: &[Promise], faults: &'static [&'static str]) {
        let config = Config {
            level: LevelChoice::Always(Level::Messages),
            store: StoreChoice::Always(Medium::Memory),
            faults: FaultChoice::Only(faults),
            ..config(1, 60)
        };
        let mut others = Vec::new();
        for seed in 0..20 {
            plant(Some(bug));
            let report = run(seed, &config);
            plant(None);
            match report.violations.first() {
                Some(violation) if promises.contains(&violation.promise) => {
                    println!("{bug:?}: {:?} after {} seeds: {violation}", violation.promise, seed + 1);
                    let without = run(seed, &config);
                    assert!(without.is_clean(), "seed {seed} without the bug: {without}");
                    return;
                }
                violation => others.extend(violation.map(|v| format!("seed {seed}: {:?} {v}", v.promise))),
            }
        }
        panic!("{bug:?} breaks none of {promises:?}, but {others:#?}");
    }

    const DIFFERS: &[Promise] =
        &[Promise::ReplicasEqual, Promise::KeptWhatWasAcknowledged, Promise::OneOrder];

    #[test]
    fn shard_pushed_to_other_position_as_it_is_is_caught() {
        is_caught(PlantedBug::ShardPushedAsIs, DIFFERS, &["OSD crash", "disk loss"]);
    }

    #[test]
    fn parity_given_to_a_client_is_caught() {
        is_caught(PlantedBug::ShardNotDecoded, DIFFERS, &["OSD crash", "OSD marked down"]);
    }
}
