//! The manager: who is active, for how long without a word, and what it reports.

use super::{Monitor, Turn};
use crate::caps::Allow;
use crate::proposal::Change;
use crate::state::State;
use codec::{Encode, Features};
use machine::{ConnId, Time};
use std::time::Duration;
use wire::messages::{Body, MMgrBeacon, MMonMgrReport, MessageBody};
use wire::types::{EntityKind, LogPriority, MgrMap};

const GRACE_MIN: Duration = Duration::from_secs(1);

pub(super) struct MgrWatch {
    /// When the active manager was last heard of.
    last_beacon: Time,
}

impl MgrWatch {
    /// A manager that was active gets a full grace after a start.
    pub fn start(_: &State, now: Time) -> MgrWatch {
        MgrWatch { last_beacon: now }
    }
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
        if m.fsid != self.committed.monmap.fsid {
            return;
        }
        let map = &self.head.mgrmap;
        if map.active_gid == m.gid {
            self.mgr.last_beacon = turn.now;
            if map.available == m.available && map.active_addrs == m.addrs && !map.active_addrs.0.is_empty() {
                return;
            }
        } else if map.active_gid != 0 && map.active_name != m.name {
            return;
        }
        let now = self.wall(turn.now);
        let is_new = map.active_gid != m.gid;
        let next = MgrMap {
            epoch: map.epoch + 1,
            active_gid: m.gid,
            active_name: m.name.clone(),
            active_addrs: m.addrs.clone(),
            available: m.available,
            active_change: if is_new { now } else { map.active_change },
            active_features: m.features,
            services: m.services.clone(),
            ..map.clone()
        };
        let became_available = m.available && (!map.available || is_new);
        self.mgr.last_beacon = turn.now;
        let mut changes = vec![
            Change::MgrMap { map: Box::new(next) },
            Change::MgrMetadata { name: m.name.clone(), metadata: Some(m.metadata.clone()) },
        ];
        let descriptions = m.commands.to_vec(Features::ALL);
        if !m.commands.is_empty() && self.head.mgr_commands != descriptions {
            changes.push(Change::MgrCommands { descriptions: descriptions.into() });
        }
        if became_available {
            let line = format!("Manager daemon {} is now available", m.name);
            changes.push(self.log_change(now, LogPriority::INFO, "cluster", line));
        }
        self.propose(turn.now, changes);
    }

    fn on_mgr_report(&mut self, conn: ConnId, m: &MMonMgrReport) {
        let map = &self.head.mgrmap;
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

    /// Drops an active manager that has been silent for too long.
    pub(super) fn tick_mgr(&mut self, turn: &mut Turn<'_>) {
        let map = &self.head.mgrmap;
        let grace = self.options.mgr_beacon_grace.max(GRACE_MIN);
        if map.active_gid == 0 || turn.now.since(self.mgr.last_beacon) < grace {
            return;
        }
        let now = self.wall(turn.now);
        let name = map.active_name.clone();
        let next = MgrMap {
            epoch: map.epoch + 1,
            active_gid: 0,
            active_name: String::new(),
            active_addrs: Default::default(),
            available: false,
            active_change: now,
            last_failure_osd_epoch: self.head.osdmap().epoch,
            ..map.clone()
        };
        let line = format!("Manager daemon {name} is unresponsive. No standby daemons available.");
        let changes = vec![
            Change::MgrMap { map: Box::new(next) },
            Change::MgrMetadata { name, metadata: None },
            self.log_change(now, LogPriority::ERROR, "cluster", line),
        ];
        self.propose(turn.now, changes);
    }
}
