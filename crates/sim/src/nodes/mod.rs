//! The cluster's own machines as nodes, each with what its host does for it in production: a disk, a wall clock,
//! connections handed to the right machine.

mod admin;
mod client;
mod disk;
mod mgr;
mod mon;
mod osd;
mod osd_mail;
mod osd_store;

pub use admin::AdminNode;
pub use client::{ClientNode, QUIET, Shared, Workload};
pub use mgr::MgrNode;
pub use mon::MonNode;
pub use osd::{OsdConfig, OsdNode};
pub use osd_store::Medium;

use machine::Time;
use std::collections::BTreeMap;
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, UTime};

/// Where node `index` listens, or calls from. `life` tells apart the processes that follow one another.
pub fn addrs(index: usize, life: u32) -> EntityAddrVec {
    let socket = format!("10.0.0.{}:6800", index + 1).parse().expect("an address");
    EntityAddrVec::one(EntityAddr::msgr2(socket, life))
}

/// What the wall shows at a simulated moment.
pub fn wall(now: Time) -> UTime {
    const START_S: u64 = 1_700_000_000;
    UTime::from_nanos(START_S * 1_000_000_000 + now.0)
}

/// A session with the monitor at `monitor`, without authentication.
pub fn mon_session_config(
    kind: EntityKind,
    id: &str,
    monitor: EntityAddrVec,
    services: u32,
) -> mon_client::Config {
    mon_client::Config {
        auth_name: AuthName::new(kind, id),
        key: None,
        services,
        rotating_keys: false,
        hostname: "sim".into(),
        monitors: vec![monitor],
        timing: mon_client::Timing::default(),
    }
}

fn metadata() -> BTreeMap<String, String> {
    [("hostname", "sim"), ("ceph_version", "shoal")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}
