//! The production machines as nodes, each with its host's part: a disk, a wall clock, and delivery of connections.

mod admin;
mod ballast;
mod client;
mod disk;
mod keys;
mod mgr;
mod mon;
mod monitors;
mod operator;
mod osd;
mod osd_mail;
mod osd_sight;
mod osd_store;
mod snapper;
mod workload;

pub use admin::AdminNode;
pub use client::{ClientNode, QUIET, Shared};
pub use keys::Keys;
pub use mgr::MgrNode;
pub use mon::MonNode;
pub use monitors::{Checks, Monitors};
pub use operator::{OpenCommand, OperatorNode};
pub use osd::{Bounds, OsdConfig, OsdNode};
pub use osd_store::Medium;
pub use snapper::SnapperNode;
pub use workload::Workload;

use crate::WallClock;
use ::client::{Client, Config, Timing};
use machine::Random;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName};

/// The address of node `index`. `life` tells its successive processes apart.
pub fn addrs(index: usize, life: u32) -> EntityAddrVec {
    let socket = format!("10.0.{}.{}:6800", (index + 1) >> 8, (index + 1) & 255).parse().expect("an address");
    EntityAddrVec::one(EntityAddr::msgr2(socket, life))
}

/// The part of a node that its run provides.
pub struct Seat {
    pub index: usize,
    pub monitors: Monitors,
    pub random: Random,
    pub wall: WallClock,
    /// `None` with `auth none`.
    pub keys: Option<Rc<Keys>>,
}

/// A client of objects, as the administrator.
fn new_client(monitors: &Monitors, keys: &Option<Rc<Keys>>, random: Random) -> Client {
    let services = EntityKind::OSD.0.into();
    let mon = mon_session_config(EntityKind::CLIENT, "admin", monitors, keys, services);
    Client::new(Config { mon, timing: Timing::default() }, 0, random)
}

/// The name of a client's sessions: the monitors give it its number.
fn name_of_client(client: Option<&Client>) -> EntityName {
    let global_id = client.map_or(0, Client::global_id);
    EntityName::new(EntityKind::CLIENT, if global_id > 0 { global_id as i64 } else { -1 })
}

/// The configuration of a session with the monitors.
pub fn mon_session_config(
    kind: EntityKind,
    id: &str,
    monitors: &Monitors,
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
        monitors: monitors.addrs().to_vec(),
        timing: mon_client::Timing::default(),
    }
}

fn metadata() -> BTreeMap<String, String> {
    [("hostname", "sim"), ("ceph_version", "shoal")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}
