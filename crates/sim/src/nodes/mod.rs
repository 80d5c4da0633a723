//! The cluster's own machines as nodes, each with what its host does for it in production: a disk, a wall clock,
//! connections handed to the right machine.

mod admin;
mod ballast;
mod client;
mod disk;
mod keys;
mod mgr;
mod mon;
mod osd;
mod osd_mail;
mod osd_store;
mod workload;

pub use admin::AdminNode;
pub use client::{ClientNode, QUIET, Shared};
pub use keys::Keys;
pub use mgr::MgrNode;
pub use mon::MonNode;
pub use osd::{OsdConfig, OsdNode};
pub use osd_store::Medium;
pub use workload::Workload;

use crate::WallClock;
use machine::Random;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind};

/// Where node `index` listens, or calls from. `life` tells apart the processes that follow one another.
pub fn addrs(index: usize, life: u32) -> EntityAddrVec {
    let socket = format!("10.0.0.{}:6800", index + 1).parse().expect("an address");
    EntityAddrVec::one(EntityAddr::msgr2(socket, life))
}

/// What a node is given by the world.
pub struct Seat {
    pub index: usize,
    pub monitor: EntityAddrVec,
    pub random: Random,
    pub wall: WallClock,
    /// With cephx.
    pub keys: Option<Rc<Keys>>,
}

/// A session with the monitor at `monitor`.
pub fn mon_session_config(
    kind: EntityKind,
    id: &str,
    monitor: EntityAddrVec,
    keys: &Option<Rc<Keys>>,
    services: u32,
) -> mon_client::Config {
    let auth_name = AuthName::new(kind, id);
    mon_client::Config {
        key: keys.as_ref().and_then(|keys| keys.of(&auth_name)),
        auth_name,
        services,
        rotating_keys: keys.is_some() && kind != EntityKind::CLIENT,
        hostname: "sim".into(),
        monitors: vec![monitor],
        timing: mon_client::Timing::default(),
    }
}

fn metadata() -> BTreeMap<String, String> {
    [("hostname", "sim"), ("ceph_version", "shoal")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}
