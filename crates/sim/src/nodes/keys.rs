//! Keys and capabilities of a simulated cluster with cephx, as `shoal up` creates them.

use machine::{Random, Time};
use mon::auth_entity::AuthEntity;
use std::collections::BTreeMap;
use wire::cephx::{Key, KeyKind};
use wire::types::AuthName;

use crate::WallClock;

pub struct Keys {
    entities: BTreeMap<AuthName, AuthEntity>,
    /// Lifetime of tickets for services, and of tickets for the monitor. Short ones are renewed many times in a run.
    pub service_ttl_s: u64,
    pub monitor_ttl_s: u64,
}

/// Capabilities of the monitor, the manager and all clients. OSDs have [`OSD_CAPS`].
const CAPS: [(&str, &[(&str, &str)]); 3] = [
    ("mon.", &[("mon", "allow *")]),
    ("mgr.x", &[("mds", "allow *"), ("mon", "allow profile mgr"), ("osd", "allow *")]),
    ("client.admin", &[("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")]),
];
const OSD_CAPS: &[(&str, &str)] =
    &[("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];

impl Keys {
    pub(crate) fn new(random: &mut Random, osds: i32) -> Keys {
        let now = WallClock::default().at(Time::ZERO);
        let mut entities = BTreeMap::new();
        let mut add = |random: &mut Random, name: &str, caps: &[(&str, &str)]| {
            let caps =
                caps.iter().map(|(service, caps)| ((*service).to_owned(), (*caps).to_owned())).collect();
            let entity = AuthEntity::new(Key::generate(KeyKind::Aes, now, random), caps);
            entities.insert(name.parse().expect("these are names"), entity);
        };
        CAPS.iter().for_each(|(name, caps)| add(random, name, caps));
        (0..osds).for_each(|osd| add(random, &format!("osd.{osd}"), OSD_CAPS));
        let one_of = |random: &mut Random, of: &[u64]| of[random.below(of.len() as u64) as usize];
        Keys {
            entities,
            service_ttl_s: one_of(random, &[60, 120, 600, 3_600]),
            monitor_ttl_s: one_of(random, &[120, 600, 259_200]),
        }
    }

    pub fn entities(&self) -> &BTreeMap<AuthName, AuthEntity> {
        &self.entities
    }

    pub fn of(&self, name: &AuthName) -> Option<Key> {
        Some(self.entities.get(name)?.key.clone())
    }
}
