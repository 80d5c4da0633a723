//! Bugs of replication, planted in the OSDs one at a time: the checkers catch each within 200 seeds, in a seed that holds without
//! the bug. `osds.rs` has the bugs that one copy shows.
//!
//! Each bug names the faults that reach it, and the first seed that shows it, where the test begins. The
//! [decision note](../../../docs/decisions/2026-11-24-proof-of-replication.md) has the number of seeds that each took. Bugs that take long
//! are ignored tests, which `make test-long` runs. `RepairBesideWrite` needs an old copy at the right moment, which no seed had: its
//! story is one of the OSD's own tests (`repair_beside_a_write_is_seen`). `MergeLosesInterval` has a story, too
//! (`merge_that_loses_an_interval_is_seen`).

#![cfg(feature = "planted-bugs")]

use osd::pg::log::LogLimits;
use osd::planted::{PlantedBug, plant};
use sim::check::Promise;
use sim::nodes::Workload;
use sim::{
    Bounds, BoundsChoice, ClusterChoice, ClusterConfig, Config, FaultChoice, Level, LevelChoice, Medium,
    MonitorsChoice, PoolConfig, StoreChoice,
};
use std::time::Duration;

const SEEDS_MAX: u64 = 200;

/// A run in which a bug shows.
struct Plan {
    bug: PlantedBug,
    /// The seeds before this one hold in spite of the bug.
    from: u64,
    /// The promises that the bug breaks: one of them first.
    promises: &'static [Promise],
    faults: &'static [&'static str],
    fault_rate: u32,
    cluster: ClusterConfig,
    seconds: u64,
    quiet_seconds: u64,
    store: Medium,
    bounds: Option<Bounds>,
    /// See [`Workload`]. The seeds of most bugs are older than balanced reads.
    balanced_every: u64,
    /// Objects that clients use.
    objects: u64,
}

impl Plan {
    /// Three OSDs and a pool of size 3 in memory, for half a minute.
    fn new(bug: PlantedBug, promises: &'static [Promise], faults: &'static [&'static str]) -> Plan {
        Plan {
            bug,
            from: 0,
            promises,
            faults,
            fault_rate: 4,
            cluster: cluster(3, PoolConfig::of_size(3)),
            seconds: 30,
            quiet_seconds: 50,
            store: Medium::Memory,
            bounds: None,
            balanced_every: 0,
            objects: Config::new(Duration::ZERO).workload.objects,
        }
    }

    fn config(&self) -> Config {
        let bounds = self.bounds.map_or(BoundsChoice::BySeed, BoundsChoice::Always);
        let plain = Config::new(Duration::from_secs(self.seconds));
        let workload =
            Workload { balanced_every: self.balanced_every, objects: self.objects, ..plain.workload };
        Config {
            level: LevelChoice::Always(Level::Messages),
            cluster: ClusterChoice::Always(self.cluster.clone()),
            store: StoreChoice::Always(self.store),
            faults: FaultChoice::Only(self.faults),
            fault_rate: self.fault_rate,
            bounds,
            quiet: Duration::from_secs(self.quiet_seconds),
            monitors: MonitorsChoice::Begin(1),
            workload,
            ..plain
        }
    }

    fn is_caught(&self) {
        let Plan { bug, promises, .. } = self;
        let config = self.config();
        let mut others = Vec::new();
        for seed in self.from..SEEDS_MAX {
            plant(Some(*bug));
            let report = sim::run(seed, &config);
            plant(None);
            match report.violations.first() {
                Some(violation) if promises.contains(&violation.promise) => {
                    println!("{bug:?}: {:?} after {} seeds: {violation}", violation.promise, seed + 1);
                    let without = sim::run(seed, &config);
                    assert!(without.is_clean(), "seed {seed} without the bug: {without}");
                    return;
                }
                violation => others.extend(violation.map(|v| format!("seed {seed}: {:?} {v}", v.promise))),
            }
        }
        panic!("{bug:?} breaks none of {promises:?}, but {others:#?}");
    }
}

fn cluster(osds: i32, pool: PoolConfig) -> ClusterConfig {
    ClusterConfig { osds, pools: vec![pool] }
}

/// Two copies, of which one is enough: a write may be on one disk alone.
const TWO_OR_ONE: PoolConfig = PoolConfig { size: 2, min_size: 1, pg_num: 8, is_erasure: false };

/// A log of a few writes.
fn short_log(max_entries: usize, max_duplicates: usize) -> Option<Bounds> {
    let log = LogLimits { max_entries, max_duplicates, batch: 2, ..LogLimits::default() };
    Some(Bounds { log, ..Bounds::SMALL })
}

const LOSES_WRITES: &[Promise] = &[Promise::KeptWhatWasAcknowledged, Promise::OneOrder];
const DIVERGES: &[Promise] = &[
    Promise::LogsAgree,
    Promise::ReplicasEqual,
    Promise::KeptWhatWasAcknowledged,
    Promise::OneOrder,
    Promise::LogsBounded,
    Promise::Invariant,
];
const STANDS_STILL: &[Promise] = &[Promise::Settles, Promise::AnsweredAtLast, Promise::MakesProgress];

#[test]
fn ack_before_replicas_is_caught() {
    let promises = &[Promise::OnEveryMember];
    Plan::new(PlantedBug::AckBeforeReplicas, promises, &[]).is_caught();
}

#[test]
fn duplicate_before_commit_is_caught() {
    let promises = &[Promise::OnEveryMember];
    let faults = &["connection reset", "slow network", "slow OSD disk"];
    Plan { from: 1, fault_rate: 10, ..Plan::new(PlantedBug::DuplicateBeforeCommit, promises, faults) }
        .is_caught();
}

#[test]
fn read_of_uncommitted_write_is_caught() {
    let faults = &["node isolated", "cluster network divided", "OSD crash"];
    Plan { from: 60, ..Plan::new(PlantedBug::ReadUncommitted, LOSES_WRITES, faults) }.is_caught();
}

#[test]
fn copy_read_of_uncommitted_write_is_caught() {
    let faults = &["slow network", "OSD disk stall"];
    let plan = Plan::new(PlantedBug::CopyReadsUncommitted, LOSES_WRITES, faults);
    Plan { balanced_every: 2, ..plan }.is_caught();
}

#[test]
fn lease_checked_before_the_read_is_caught() {
    let promises = &[Promise::ReadsByLease];
    let faults = &["OSD disk stall", "slow OSD disk", "OSD pause", "node isolated"];
    Plan { from: 24, store: Medium::Disk, ..Plan::new(PlantedBug::LeaseBeforeRead, promises, faults) }
        .is_caught();
}

#[test]
fn lease_from_receipt_is_caught() {
    let promises = &[Promise::OneWriter, Promise::KeptWhatWasAcknowledged, Promise::OneOrder];
    let faults =
        &["node isolated", "one-way partition", "cluster network divided", "OSD cut off from monitor"];
    Plan { from: 88, ..Plan::new(PlantedBug::LeaseFromReceipt, promises, faults) }.is_caught();
}

#[test]
#[ignore = "long: the cluster must stand still to the end of its run"]
fn dropped_lease_timer_is_caught() {
    let faults = &["OSD crash", "OSD clean stop", "OSD marked down"];
    Plan { from: 1, ..Plan::new(PlantedBug::LeaseTimerDropped, STANDS_STILL, faults) }.is_caught();
}

#[test]
fn log_trimmed_before_commit_is_caught() {
    let promises = &[Promise::LogsBounded];
    let faults = &["slow network", "slow OSD disk", "node isolated"];
    let pool = PoolConfig { pg_num: 1, ..PoolConfig::of_size(3) };
    Plan {
        cluster: cluster(3, pool),
        bounds: short_log(4, 1000),
        ..Plan::new(PlantedBug::TrimBeforeCommit, promises, faults)
    }
    .is_caught();
}

#[test]
fn unbounded_duplicates_are_caught() {
    let promises = &[Promise::LogsBounded];
    let pool = PoolConfig { pg_num: 2, ..PoolConfig::of_size(3) };
    Plan {
        cluster: cluster(3, pool),
        bounds: short_log(20, 200),
        ..Plan::new(PlantedBug::UnboundedDuplicates, promises, &["connection reset"])
    }
    .is_caught();
}

#[test]
fn dedup_lost_across_primaries_is_caught() {
    let promises = &[Promise::DoneOnce, Promise::KeptWhatWasAcknowledged, Promise::OneOrder];
    let faults = &["connection reset", "OSD crash", "primary affinity changed", "slow network"];
    Plan { fault_rate: 8, ..Plan::new(PlantedBug::DedupLostAcrossPrimaries, promises, faults) }.is_caught();
}

#[test]
fn dedup_lost_at_rest_is_caught() {
    let promises = &[Promise::DoneOnce, Promise::KeptWhatWasAcknowledged, Promise::OneOrder];
    let faults = &["connection reset", "OSD crash", "slow network"];
    let log = LogLimits { rest_after: Duration::from_millis(20), ..Bounds::SMALL.log };
    let bounds = Some(Bounds { log, ..Bounds::SMALL });
    Plan { bounds, fault_rate: 8, ..Plan::new(PlantedBug::DedupLostAtRest, promises, faults) }.is_caught();
}

#[test]
fn log_since_started_is_caught() {
    let faults = &["OSD crash", "OSD crash during write", "OSD marked down"];
    Plan { fault_rate: 6, ..Plan::new(PlantedBug::LogSinceStarted, DIVERGES, faults) }.is_caught();
}

/// A primary dies before it has recorded its activation, which the target of its backfill has. The run is short: the target's
/// next crash would let the PG go on.
#[test]
fn start_of_incomplete_copy_is_caught() {
    let faults = &["OSD crash", "OSD disk stall", "OSD disk hang"];
    Plan {
        from: 16,
        fault_rate: 8,
        cluster: cluster(3, TWO_OR_ONE),
        seconds: 16,
        store: Medium::Disk,
        bounds: short_log(4, 1000).map(|bounds| Bounds { scan_max: 1, ..bounds }),
        ..Plan::new(PlantedBug::IncompleteStartTrusted, STANDS_STILL, faults)
    }
    .is_caught();
}

#[test]
fn skipped_up_thru_is_caught() {
    let promises = &[Promise::KeptWhatWasAcknowledged, Promise::OneOrder, Promise::OneWriter];
    let faults = &["OSD crash", "node isolated", "OSD cut off from monitor"];
    Plan {
        fault_rate: 6,
        cluster: cluster(3, TWO_OR_ONE),
        ..Plan::new(PlantedBug::UpThruSkipped, promises, faults)
    }
    .is_caught();
}

#[test]
fn split_that_forgets_the_past_is_caught() {
    let promises = &[Promise::KeptWhatWasAcknowledged, Promise::OneOrder];
    let faults = &["OSD crash", "PG split", "node isolated", "OSD marked down"];
    Plan {
        from: 12,
        fault_rate: 10,
        cluster: cluster(3, TWO_OR_ONE),
        ..Plan::new(PlantedBug::SplitForgetsPast, promises, faults)
    }
    .is_caught();
}

#[test]
fn merge_without_rewind_is_caught() {
    let faults = &["OSD crash", "OSD crash during write", "cluster network divided", "blackout of all OSDs"];
    Plan { from: 4, ..Plan::new(PlantedBug::MergeWithoutRewind, DIVERGES, faults) }.is_caught();
}

/// Each turn of the loop is a map and a past interval, and a run's cost grows with the square of their number. So the run is short,
/// with two PGs. The second pool tolerates no dead OSD, for which the run would wait.
#[test]
#[ignore = "long: one seed, with a hundred maps a second"]
fn acting_loop_is_caught() {
    let pool = |min_size| PoolConfig { min_size, pg_num: 1, ..PoolConfig::of_size(3) };
    Plan {
        cluster: ClusterConfig { osds: 3, pools: vec![pool(2), pool(3)] },
        bounds: short_log(4, 1000),
        fault_rate: 36,
        seconds: 7,
        quiet_seconds: 18,
        ..Plan::new(PlantedBug::ActingLoop, STANDS_STILL, &["OSD marked down"])
    }
    .is_caught();
}

#[test]
#[ignore = "long: the cluster must stand still to the end of its run"]
fn leaked_backfill_place_is_caught() {
    let faults = &["OSD marked out or in", "OSD crash", "disk loss", "PG upmap set or removed"];
    Plan {
        from: 5,
        cluster: cluster(4, PoolConfig::of_size(3)),
        fault_rate: 8,
        bounds: Some(Bounds::SMALL),
        ..Plan::new(PlantedBug::BackfillPlaceLeaked, STANDS_STILL, faults)
    }
    .is_caught();
}

#[test]
fn backfill_cursor_off_by_one_is_caught() {
    let promises = &[Promise::ReplicasEqual, Promise::Invariant];
    let faults = &["OSD marked out or in", "disk loss", "PG upmap set or removed"];
    let pool = PoolConfig { pg_num: 2, ..PoolConfig::of_size(3) };
    Plan {
        from: 69,
        cluster: cluster(4, pool),
        bounds: Some(Bounds { scan_max: 1, ..Bounds::SMALL }),
        ..Plan::new(PlantedBug::BackfillCursorOff, promises, faults)
    }
    .is_caught();
}

#[test]
fn reset_counted_as_death_is_caught() {
    let promises = &[Promise::StaysUp];
    let faults = &["connection reset"];
    Plan { from: 7, fault_rate: 40, ..Plan::new(PlantedBug::ResetIsDeath, promises, faults) }.is_caught();
}

/// A write has reached one copy and not yet another.
#[test]
fn scrub_that_holds_nothing_is_caught() {
    let promises = &[Promise::ScrubsBlameDamage];
    let pool = PoolConfig { pg_num: 2, ..PoolConfig::of_size(3) };
    Plan {
        cluster: cluster(3, pool),
        fault_rate: 10,
        objects: 2,
        ..Plan::new(PlantedBug::ScrubHoldsNothing, promises, &["scrub", "slow network"])
    }
    .is_caught();
}

/// The primary's copy differs, and a scrub blames the others.
#[test]
fn scrub_that_blames_the_good_copy_is_caught() {
    let promises = &[Promise::ScrubsBlameDamage];
    let pool = PoolConfig { pg_num: 2, ..PoolConfig::of_size(3) };
    Plan {
        cluster: cluster(4, pool),
        ..Plan::new(PlantedBug::ScrubBlamesGoodCopy, promises, &["scrub", "copy differs"])
    }
    .is_caught();
}
