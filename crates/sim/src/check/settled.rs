//! The cluster settles after the last fault: every PG is as clean as the dead OSDs allow, and no new maps follow each
//! other without end (an endless exchange of `pg_temp` is one such loop).
//!
//! The evidence is what an operator sees: the answers of `ceph status` to the administrator's node.

use crate::cluster::ClusterConfig;
use machine::Time;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::Epoch;

/// One answer of `ceph status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSight {
    pub at: Time,
    pub epoch: Epoch,
    /// Number of PGs by state.
    pub pgs: BTreeMap<String, u64>,
}

impl StatusSight {
    /// The answer in JSON. `None` if a field is missing.
    pub fn parse(at: Time, json: &[u8]) -> Option<StatusSight> {
        let json: serde_json::Value = serde_json::from_slice(json).ok()?;
        let states = json["pgmap"]["pgs_by_state"].as_array()?;
        let state =
            |row: &serde_json::Value| Some((row["state_name"].as_str()?.to_owned(), row["count"].as_u64()?));
        Some(StatusSight {
            at,
            epoch: json["osdmap"]["epoch"].as_u64()? as Epoch,
            pgs: states.iter().map(state).collect::<Option<_>>()?,
        })
    }
}

/// The part of the quiet time in which the cluster must be settled.
pub const SETTLED_FOR: Duration = Duration::from_secs(15);
/// Minimum answers within [`SETTLED_FOR`], and maximum new maps: an OSD's late full flag, a PG's late creation.
const ANSWERS_MIN: usize = 3;
const MAPS_MAX: Epoch = 4;

/// Losses of a run that stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// OSDs, which are out.
    pub dead: usize,
    /// PGs with objects that a damaged disk took: they stay unfound.
    pub lost_to_damage: u64,
}

/// Checks the answers of the last [`SETTLED_FOR`] before `end`.
pub fn check(
    statuses: &[StatusSight],
    end: Time,
    cluster: &ClusterConfig,
    losses: Losses,
) -> Result<(), String> {
    let is_late = |status: &&StatusSight| status.at + SETTLED_FOR >= end;
    let late: Vec<&StatusSight> = statuses.iter().filter(is_late).collect();
    let [first, .., last] = late[..] else {
        return Err(format!("the monitor gave {} answers at the end of the quiet time", late.len()));
    };
    if late.len() < ANSWERS_MIN {
        return Err(format!("the monitor gave {} answers at the end of the quiet time", late.len()));
    }
    let pg_num_min: u64 = cluster.pools.iter().map(|pool| u64::from(pool.pg_num)).sum();
    for status in &late {
        let StatusSight { at, pgs, .. } = status;
        if pgs.values().sum::<u64>() < pg_num_min {
            return Err(format!("{at:?}: of {pg_num_min} or more PGs the status shows {pgs:?}"));
        }
        let has_unfound = |state: &&String| is_unfound(state, cluster, losses.dead);
        let unfound: u64 = pgs.iter().filter(|(state, _)| has_unfound(state)).map(|(_, count)| count).sum();
        let is_explained = |state: &String| unfound <= losses.lost_to_damage && has_unfound(&state);
        let is_good = |state: &String| is_settled(state, cluster, losses.dead) || is_explained(state);
        if let Some((state, count)) = pgs.iter().find(|(state, _)| !is_good(state)) {
            return Err(format!("{at:?}: {count} PGs are still {state}; all: {pgs:?}"));
        }
    }
    match last.epoch - first.epoch {
        0..=MAPS_MAX => Ok(()),
        maps => {
            Err(format!("{maps} maps in the last {SETTLED_FOR:?} of the quiet time, up to {}", last.epoch))
        }
    }
}

/// True for the best state that a PG can reach with `dead` OSDs.
fn is_settled(state: &str, cluster: &ClusterConfig, dead: usize) -> bool {
    let size_max = cluster.pools.iter().map(|pool| usize::from(pool.size)).max().unwrap_or(1);
    let has_one_copy = cluster.pools.iter().any(|pool| pool.size == 1);
    // Scrubs go on at any time. Nothing repairs the only copy of an object.
    let parts: Vec<&str> =
        state.split('+').filter(|part| !matches!(*part, "scrubbing" | "deep" | "repair")).collect();
    let (damage, parts): (Vec<&str>, Vec<&str>) =
        parts.into_iter().partition(|part| matches!(*part, "inconsistent" | "failed_repair"));
    match parts[..] {
        ["active", "clean"] => damage.is_empty() || has_one_copy,
        // Its PG cannot move.
        ["active", "backfill_unfound", "remapped"] => has_one_copy,
        ["active", "undersized"] | ["active", "undersized", "degraded"] => {
            damage.is_empty() && cluster.osds as usize - dead < size_max
        }
        _ => false,
    }
}

/// The state of a PG that has everything but unfound objects.
fn is_unfound(state: &str, cluster: &ClusterConfig, dead: usize) -> bool {
    let mut parts: Vec<&str> = state.split('+').collect();
    let count = parts.len();
    parts.retain(|part| !matches!(*part, "recovery_unfound" | "backfill_unfound"));
    let has_unfound = parts.len() < count;
    let others = ["active", "degraded", "remapped", "inconsistent", "failed_repair"];
    let size_max = cluster.pools.iter().map(|pool| usize::from(pool.size)).max().unwrap_or(1);
    let may_be_undersized = cluster.osds as usize - dead < size_max;
    has_unfound
        && parts.contains(&"active")
        && parts.iter().all(|part| others.contains(part) || (*part == "undersized" && may_be_undersized))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::PoolConfig;

    const NOTHING: Losses = Losses { dead: 0, lost_to_damage: 0 };

    const END: Time = Time(100_000_000_000);

    fn cluster(size: u8) -> ClusterConfig {
        ClusterConfig { osds: 3, pools: vec![PoolConfig { pg_num: 8, ..PoolConfig::of_size(size) }] }
    }

    /// Answers every two seconds until [`END`].
    fn statuses(states: impl Fn(u64) -> (Epoch, &'static [(&'static str, u64)])) -> Vec<StatusSight> {
        let status = |second: u64| {
            let (epoch, pgs) = states(second);
            let pgs = pgs.iter().map(|(state, count)| ((*state).to_owned(), *count)).collect();
            StatusSight { at: Time(second * 1_000_000_000), epoch, pgs }
        };
        (0..50).map(|at| status(2 * at)).collect()
    }

    #[test]
    fn clean_pgs_and_constant_epoch_are_settled() {
        let recovers = |second| match second {
            0..80 => (second as Epoch, &[("active+recovering", 8)][..]),
            _ => (100, &[("active+clean", 8)][..]),
        };
        assert_eq!(check(&statuses(recovers), END, &cluster(3), NOTHING), Ok(()));
    }

    #[test]
    fn pg_that_stays_unclean_is_reported() {
        let stuck = |_| (100, &[("active+clean", 7), ("peering", 1)][..]);
        let found = check(&statuses(stuck), END, &cluster(3), NOTHING).unwrap_err();
        assert!(found.contains("1 PGs are still peering"), "{found}");
    }

    #[test]
    fn undersized_is_settled_with_too_few_osds_alone() {
        let undersized = |_| (100, &[("active+undersized+degraded", 8)][..]);
        assert!(check(&statuses(undersized), END, &cluster(3), NOTHING).is_err());
        assert_eq!(check(&statuses(undersized), END, &cluster(3), Losses { dead: 1, ..NOTHING }), Ok(()));
        assert!(
            check(&statuses(undersized), END, &cluster(2), Losses { dead: 1, ..NOTHING }).is_err(),
            "two OSDs can hold size 2"
        );
    }

    #[test]
    fn damage_is_settled_in_a_pool_of_one_copy_alone() {
        let damaged = |_| (100, &[("active+clean+inconsistent+failed_repair", 8)][..]);
        assert_eq!(check(&statuses(damaged), END, &cluster(1), NOTHING), Ok(()));
        assert!(check(&statuses(damaged), END, &cluster(3), NOTHING).is_err());
        let scrubbed = |_| (100, &[("active+clean+scrubbing+deep+repair", 8)][..]);
        assert_eq!(check(&statuses(scrubbed), END, &cluster(3), NOTHING), Ok(()));
    }

    #[test]
    fn unfound_is_settled_in_pgs_that_damage_explains() {
        let unfound =
            |_| (100, &[("active+clean", 6), ("active+recovery_unfound+degraded+inconsistent", 2)][..]);
        let check_with = |lost_to_damage| {
            check(&statuses(unfound), END, &cluster(3), Losses { lost_to_damage, ..NOTHING })
        };
        assert!(check_with(0).is_err() && check_with(1).is_err(), "2 PGs have unfound objects");
        assert_eq!(check_with(2), Ok(()));
        let recovers = |_| (100, &[("active+recovering+recovery_unfound", 1), ("active+clean", 7)][..]);
        let losses = Losses { lost_to_damage: 1, ..NOTHING };
        assert!(check(&statuses(recovers), END, &cluster(3), losses).is_err());
    }

    #[test]
    fn endless_maps_are_reported() {
        let loops = |second| (second as Epoch, &[("active+clean", 8)][..]);
        let found = check(&statuses(loops), END, &cluster(3), NOTHING).unwrap_err();
        assert!(found.contains("maps in the last"), "{found}");
    }

    #[test]
    fn missing_answers_and_pgs_are_reported() {
        let clean = |_| (100, &[("active+clean", 8)][..]);
        let late_end = Time(END.0 + 20_000_000_000);
        assert!(check(&statuses(clean), late_end, &cluster(3), NOTHING).is_err());
        let fewer = |_| (100, &[("active+clean", 7)][..]);
        assert!(check(&statuses(fewer), END, &cluster(3), NOTHING).is_err());
    }

    #[test]
    fn status_is_parsed_from_stock_s_json() {
        let json =
            br#"{"osdmap":{"epoch":12},"pgmap":{"pgs_by_state":[{"state_name":"active+clean","count":8}]}}"#;
        let status = StatusSight::parse(END, json).expect("it has all fields");
        assert_eq!((status.epoch, status.pgs), (12, [("active+clean".to_owned(), 8)].into()));
        assert_eq!(StatusSight::parse(END, b"{}"), None);
    }
}
