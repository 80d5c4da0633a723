//! Facts beside the replicated state that commands and health checks read: the manager's reports and the answering
//! monitor's own situation.

use bytes::Bytes;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::{HealthCheck, OsdMap, PgMapDigest, PgState, ProgressEvent, UTime};

/// Reports of the manager. The replicated log does not hold them: the manager repeats them within seconds.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// The manager's sums over PGs and OSDs.
    pub digest: PgMapDigest,
    /// Health checks that the manager finds.
    pub health: BTreeMap<String, HealthCheck>,
    pub progress: BTreeMap<String, ProgressEvent>,
    /// The manager's map of other services, encoded.
    pub service_map: Bytes,
}

impl Reports {
    /// The sums. Until a manager has reported, every PG of the map is unknown, as it is to a manager that has just become active.
    pub fn sums(&self, map: &OsdMap) -> Cow<'_, PgMapDigest> {
        let pgs: u32 = map.pools.values().map(|pool| pool.pg_num).sum();
        if self.digest.num_pg > 0 || pgs == 0 {
            return Cow::Borrowed(&self.digest);
        }
        let mut digest = self.digest.clone();
        (digest.num_pg, digest.num_pg_unknown) = (pgs.into(), pgs.into());
        digest.num_pg_by_state = BTreeMap::from([(PgState::UNKNOWN, pgs as i32)]);
        digest.pool_sums.extend(map.pools.keys().map(|id| (*id as i32, Default::default())));
        Cow::Owned(digest)
    }
}

/// Parts of an OSD that hang, by its own account: how long its device has answered nothing, and one of its cores not run.
/// Zero: it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    pub device: Duration,
    pub core: Duration,
}

/// The clock of another monitor less ours, and the time for a message there and back, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    pub skew: f64,
    pub latency: f64,
}

/// The answering monitor's own situation: time, name, quorum, sessions, stalls that OSDs tell it of.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// Wall time.
    pub now: UTime,
    pub name: String,
    pub version: String,
    pub host: String,
    pub election_epoch: u64,
    /// Ranks.
    pub quorum: Vec<usize>,
    /// Ranks of the monitors that have a vote. One that was added has none until it has come.
    pub voters: Vec<usize>,
    /// The leader's rank. `None`: no leader is known.
    pub leader: Option<usize>,
    /// This monitor's part, as `mon_status` calls it: leader, peon, electing, probing (it has no number), synchronizing.
    pub part: &'static str,
    pub quorum_age_s: u64,
    /// Number of sessions by kind and features, for `ceph features`.
    pub peers: BTreeMap<(&'static str, u64), usize>,
    pub stalls: BTreeMap<i32, Stall>,
    /// Clocks of the other monitors that speak to this one.
    pub skews: BTreeMap<String, Skew>,
    /// Size of the file system of each monitor's data, and what is free there. This monitor's is among them.
    pub disks: BTreeMap<String, (u64, u64)>,
}
