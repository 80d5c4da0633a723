//! Kinds of runs: the cluster, workload and faults that one area of the code needs. Tests and `shoal sim --kind` share them.

use crate::{
    ClusterChoice, ClusterConfig, Config, FaultChoice, Level, LevelChoice, Medium, MonitorsChoice,
    PoolConfig, StoreChoice,
};
use std::time::Duration;

/// One kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cluster drawn from the seed, under the rows of faults that the seed draws.
    Whole,
    /// A cluster drawn from the seed, with snapshots. Scrubs, repairs, merges, splits, balancer and autoscaler in every seed, and
    /// further faults by seed.
    Care,
    /// Pools that shrink and grow while OSDs die.
    Merges,
    /// Pools that shrink and grow while an OSD is away for a minute.
    MergesAway,
    /// Scrubs of copies that differ or cannot be read.
    Damage,
    /// Scrubs of copies that differ, beside crashes, partitions, splits and merges.
    DamageAndCrashes,
    /// Logs that rotted, read by an OSD that starts.
    Logs,
    /// Snapshots beside crashes, partitions and splits.
    Snapshots,
    /// Snapshots beside every fault that damages no disk.
    SnapshotsAndAll,
}

const CARE: &[&str] = &[
    "scrub",
    "copy differs",
    "PG merge",
    "PG split",
    "balancer turned on or off",
    "autoscaler turned on or off",
];
const MERGES: &[&str] = &["PG merge", "PG split", "OSD crash", "OSD marked down", "PG upmap set or removed"];
const MERGES_AWAY: &[&str] = &["PG merge", "PG split", "OSD away"];
const DAMAGE: &[&str] = &["scrub", "copy differs", "bit flip on OSD disk", "unreadable block"];
const DAMAGE_AND_CRASHES: &[&str] =
    &["scrub", "copy differs", "bit flip on OSD disk", "OSD crash", "node isolated", "PG split", "PG merge"];
const LOGS: &[&str] = &["bit flip in both copies of a log", "OSD crash", "PG split"];
const SNAPSHOTS: &[&str] = &["OSD crash", "node isolated", "slow network", "connection reset", "PG split"];
const SNAPSHOTS_AND_ALL: &[&str] = &[
    "OSD crash",
    "OSD crash during write",
    "OSD power loss during write",
    "OSD away",
    "OSD marked out or in",
    "PG acting set overridden",
    "PG split",
    "PG merge",
    "client crash",
    "connection reset",
    "node isolated",
    "slow network",
    "scrub",
];

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Whole,
        Kind::Care,
        Kind::Merges,
        Kind::MergesAway,
        Kind::Damage,
        Kind::DamageAndCrashes,
        Kind::Logs,
        Kind::Snapshots,
        Kind::SnapshotsAndAll,
    ];

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Whole => "whole",
            Kind::Care => "care",
            Kind::Merges => "merges",
            Kind::MergesAway => "merges-away",
            Kind::Damage => "damage",
            Kind::DamageAndCrashes => "damage-and-crashes",
            Kind::Logs => "logs",
            Kind::Snapshots => "snapshots",
            Kind::SnapshotsAndAll => "snapshots-and-all",
        }
    }

    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The configuration of a run with this duration of work and faults.
    pub fn config(self, span: Duration) -> Config {
        let small = |faults: &'static [&'static str], fault_rate: u32| {
            let pool = PoolConfig { pg_num: 8, ..PoolConfig::of_size(3) };
            Config {
                cluster: ClusterChoice::Always(ClusterConfig { osds: 4, pools: vec![pool] }),
                store: StoreChoice::Always(Medium::Disk),
                has_one_shard: true,
                faults: FaultChoice::Only(faults),
                fault_rate,
                quiet: Duration::from_secs(60),
                monitors: MonitorsChoice::Begin(1),
                ..Config::new(span)
            }
        };
        let snapshots = |faults: &'static [&'static str]| Config {
            level: LevelChoice::Always(Level::Messages),
            store: StoreChoice::BySeed,
            clients: 2,
            snappers: 2,
            ..small(faults, 4)
        };
        match self {
            Kind::Whole => Config::new(span),
            Kind::Care => Config {
                faults: FaultChoice::BySeedAnd(CARE),
                has_one_shard: true,
                snappers: 1,
                ..Config::new(span)
            },
            Kind::Merges => small(MERGES, 2),
            Kind::MergesAway => small(MERGES_AWAY, 2),
            Kind::Damage => small(DAMAGE, 4),
            Kind::DamageAndCrashes => small(DAMAGE_AND_CRASHES, 4),
            Kind::Logs => small(LOGS, 4),
            Kind::Snapshots => Config { has_one_shard: false, ..snapshots(SNAPSHOTS) },
            Kind::SnapshotsAndAll => {
                Config { quiet: Duration::from_secs(90), ..snapshots(SNAPSHOTS_AND_ALL) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::ROWS;

    #[test]
    fn kinds_name_rows_of_the_table() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
            let names = match kind.config(Duration::from_secs(60)).faults {
                FaultChoice::BySeed => continue,
                FaultChoice::BySeedAnd(names) | FaultChoice::Only(names) => names,
            };
            for name in names {
                assert!(ROWS.iter().any(|row| row.name == *name), "{kind:?}: {name}");
            }
        }
    }
}
