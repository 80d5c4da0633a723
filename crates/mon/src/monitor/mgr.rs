//! The manager: who is active, for how long without a word, and what it reports.

use super::{Monitor, Turn};
use crate::caps::Allow;
use crate::commands::mgr::{fence, without_active};
use crate::proposal::Change;
use crate::state::State;
use codec::{Encode, Features};
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::{Body, MMgrBeacon, MMonMgrReport, MessageBody};
use wire::types::{EntityAddrVec, EntityKind, LogPriority, ManagerStandby, MgrMap};

const GRACE_MIN: Duration = Duration::from_secs(1);

pub(super) struct MgrWatch {
    /// When the active manager was last heard of.
    last_beacon: Time,
    /// The same of those that wait, by global id.
    standbys: BTreeMap<u64, Time>,
}

impl MgrWatch {
    /// The managers get a full grace after a start.
    pub fn start(state: &State, now: Time) -> MgrWatch {
        let standbys = state.mgrmap.standbys.keys().map(|gid| (*gid, now)).collect();
        MgrWatch { last_beacon: now, standbys }
    }
}

/// The clients that a beacon names, as the map has them. Beacons before version 11 have addresses alone.
fn clients_of(m: &MMgrBeacon) -> Vec<(String, EntityAddrVec)> {
    let names = m.client_names.iter().cloned().chain(std::iter::repeat(String::new()));
    let mut clients: Vec<_> = names.zip(m.client_addrs.iter().cloned()).collect();
    clients.sort_by(|a, b| a.0.cmp(&b.0));
    clients
}

impl Monitor {
    /// True when it was the manager's.
    pub(super) fn on_mgr_message(&mut self, turn: &mut Turn<'_>, conn: ConnId, body: &Body) -> bool {
        match body {
            Body::MMgrBeacon(m) => self.on_mgr_beacon(turn, conn, m),
            Body::MMonMgrReport(m) => self.on_mgr_report(conn, m),
            _ => return false,
        }
        true
    }

    /// The manager at the other end, when it may act as one: the name under which it holds a key, and its global id.
    fn manager_of(&self, conn: ConnId) -> Option<(&str, u64)> {
        let session = self.sessions.get(&conn).filter(|session| session.may("mgr", Allow::X))?;
        let identity = &session.peer.identity;
        Some((identity.daemon(EntityKind::MGR)?, identity.global_id()))
    }

    fn on_mgr_beacon(&mut self, turn: &mut Turn<'_>, conn: ConnId, m: &MMgrBeacon) {
        if self.manager_of(conn) != Some((&m.name, m.gid)) {
            let what = format!("a beacon of mgr.{} with global id {}", m.name, m.gid);
            return self.refuse(turn, conn, MMgrBeacon::TYPE, &what);
        }
        if m.fsid != self.states.committed.monmap.fsid {
            return;
        }
        let map = &self.states.head().mgrmap;
        let clients = clients_of(m);
        if map.active_gid == m.gid {
            self.mgr.last_beacon = turn.now;
            let is_known = map.available == m.available && map.active_addrs == m.addrs;
            if is_known && map.clients == clients && !map.active_addrs.0.is_empty() {
                return;
            }
        } else if map.active_gid != 0 && map.active_name != m.name {
            return self.on_standby_beacon(turn, m);
        }
        let now = self.wall(turn.now);
        let is_new = map.active_gid != m.gid;
        let has_restarted = is_new && map.active_gid != 0;
        // Its former life may have left locks and watches. A process that only has a new session lives on.
        let (fencing, fenced_epoch) = if has_restarted {
            let living: Vec<EntityAddrVec> = m.client_addrs.iter().chain([&m.addrs]).cloned().collect();
            let head = self.states.head().osdmap();
            fence(map, &living, head, now, self.options.mgr_blocklist_interval)
        } else {
            (None, map.last_failure_osd_epoch)
        };
        let next = MgrMap {
            epoch: map.epoch + 1,
            active_gid: m.gid,
            active_name: m.name.clone(),
            active_addrs: m.addrs.clone(),
            available: m.available,
            active_change: if is_new { now } else { map.active_change },
            active_features: m.features,
            services: m.services.clone(),
            clients,
            last_failure_osd_epoch: fenced_epoch,
            standbys: map
                .standbys
                .iter()
                .filter(|(_, s)| s.name != m.name)
                .map(|(gid, s)| (*gid, s.clone()))
                .collect(),
            ..map.clone()
        };
        let became_available = m.available && (!map.available || is_new);
        self.mgr.last_beacon = turn.now;
        let mut changes = vec![
            Change::MgrMap { map: Box::new(next) },
            Change::MgrMetadata { name: m.name.clone(), metadata: Some(m.metadata.clone()) },
        ];
        let descriptions = m.commands.to_vec(Features::ALL);
        if !m.commands.is_empty() && self.states.head().mgr_commands != descriptions {
            changes.push(Change::MgrCommands { descriptions: descriptions.into() });
        }
        changes.extend(fencing);
        if has_restarted {
            let line = format!("Active manager daemon {} restarted", m.name);
            changes.push(self.log_change(now, LogPriority::INFO, "cluster", line));
        }
        if became_available {
            let line = format!("Manager daemon {} is now available", m.name);
            changes.push(self.log_change(now, LogPriority::INFO, "cluster", line));
        }
        self.propose(turn.now, changes);
    }

    pub(super) fn on_mgr_report(&mut self, conn: ConnId, m: &MMonMgrReport) {
        let map = &self.states.head().mgrmap;
        // A standby has no say, nor has a manager's former life.
        if self.manager_of(conn) != Some((&map.active_name, map.active_gid)) {
            return;
        }
        if let Ok(digest) = codec::decode_exact(&m.digest) {
            self.reports.digest = digest;
        }
        self.reports.health = m.health.0.clone();
        self.reports.progress = m.progress.clone();
        if !m.service_map.is_empty() {
            self.reports.service_map = m.service_map.clone();
        }
    }

    /// Another manager is active: this one waits.
    fn on_standby_beacon(&mut self, turn: &mut Turn<'_>, m: &MMgrBeacon) {
        self.mgr.standbys.insert(m.gid, turn.now);
        if self.states.head().mgrmap.standbys.contains_key(&m.gid) {
            return;
        }
        let mut next = self.states.head().mgrmap.clone();
        next.epoch += 1;
        // Its former life is over.
        next.standbys.retain(|_, standby| standby.name != m.name);
        let standby =
            ManagerStandby { gid: m.gid, name: m.name.clone(), modules: Vec::new(), features: m.features };
        next.standbys.insert(m.gid, standby);
        let line = format!("Standby manager daemon {} started", m.name);
        let changes = vec![
            Change::MgrMap { map: Box::new(next) },
            Change::MgrMetadata { name: m.name.clone(), metadata: Some(m.metadata.clone()) },
            self.log_change(self.wall(turn.now), LogPriority::INFO, "cluster", line),
        ];
        self.propose(turn.now, changes);
    }

    /// Drops managers that have been silent for too long; one that waits takes the place of the active one.
    pub(super) fn tick_mgr(&mut self, turn: &mut Turn<'_>) {
        let (now, wall) = (turn.now, self.wall(turn.now));
        let grace = self.options.mgr_beacon_grace.max(GRACE_MIN);
        let is_silent = |at: &Time| now.since(*at) >= grace;
        let map = &self.states.head().mgrmap;
        let mut changes = Vec::new();
        let mut next = map.clone();
        let heard = &self.mgr.standbys;
        next.standbys.retain(|gid, _| !heard.get(gid).is_none_or(is_silent));
        let gone = map.standbys.values().filter(|standby| !next.standbys.contains_key(&standby.gid));
        let gone: Vec<String> = gone.map(|standby| standby.name.clone()).collect();
        if !gone.is_empty() {
            next.epoch = map.epoch + 1;
        }
        let active = map.active_name.clone();
        if map.active_gid != 0 && is_silent(&self.mgr.last_beacon) {
            let (change, osd_epoch) =
                fence(map, &[], self.states.head().osdmap(), wall, self.options.mgr_blocklist_interval);
            changes.extend(change);
            next = without_active(&MgrMap { epoch: map.epoch, ..next }, wall, osd_epoch);
            self.mgr.last_beacon = now;
            let (what, priority) = match next.active_name.as_str() {
                "" => (". No standby daemons available.".to_owned(), LogPriority::ERROR),
                heir => (format!(", replacing it with standby daemon {heir}"), LogPriority::WARN),
            };
            let line = format!("Manager daemon {active} is unresponsive{what}");
            changes.push(Change::MgrMetadata { name: active, metadata: None });
            changes.push(self.log_change(wall, priority, "cluster", line));
        }
        for name in gone {
            changes.push(Change::MgrMetadata { name, metadata: None });
        }
        if next.epoch != self.states.head().mgrmap.epoch {
            changes.insert(0, Change::MgrMap { map: Box::new(next) });
            self.propose(now, changes);
        }
    }
}
