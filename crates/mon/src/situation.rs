//! Facts beside the replicated state that commands and health checks read: the manager's reports and the answering
//! monitor's own situation.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::{HealthCheck, PgMapDigest, ProgressEvent, UTime};

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

/// Parts of an OSD that hang, by its own account: how long its device has answered nothing, and one of its cores not run.
/// Zero: it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    pub device: Duration,
    pub core: Duration,
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
    pub leader: usize,
    pub quorum_age_s: u64,
    /// Number of sessions by kind and features, for `ceph features`.
    pub peers: BTreeMap<(&'static str, u64), usize>,
    pub stalls: BTreeMap<i32, Stall>,
}
