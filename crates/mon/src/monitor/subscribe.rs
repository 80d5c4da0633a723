//! Subscriptions: a peer names a map and the first version that it lacks, and is sent what is new, once or as it
//! comes (`MMonSubscribe`); and the questions about versions that go with them.

use super::session::{Session, Subscription};
use super::{Monitor, Turn};
use crate::caps::Allow;
use crate::config_target::Receiver;
use crate::osd_step::changes_intervals;
use machine::ConnId;
use std::collections::BTreeMap;
use wire::messages::{
    MConfig, MGetConfig, MMgrMap, MMonGetVersion, MMonGetVersionReply, MMonMap, MMonSubscribe,
    MMonSubscribeAck, Message,
};
use wire::types::EntityKind;

/// The service whose read permission a subscription needs; `None` needs no permission at all.
fn needed(what: &str) -> Option<(&'static str, Allow)> {
    match what {
        "monmap" | "config" => None,
        "osdmap" => Some(("osd", Allow::R)),
        "osd_pg_creates" => Some(("osd", Allow::W)),
        what if what.starts_with("mdsmap") || what.starts_with("fsmap") => Some(("mds", Allow::R)),
        what if what.starts_with("kv:") => Some(("config-key", Allow::R)),
        _ => Some(("mon", Allow::R)),
    }
}

impl Monitor {
    pub(super) fn on_subscribe(&mut self, turn: &mut Turn<'_>, conn: ConnId, m: MMonSubscribe) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if !m.hostname.is_empty() {
            session.host = m.hostname;
        }
        let mut wants_ack = false;
        let mut changed = Vec::new();
        for (what, item) in m.what {
            if needed(&what).is_some_and(|(service, need)| !session.may(service, need)) {
                continue;
            }
            wants_ack |= !item.is_onetime();
            // An OSDMap subscriber that says it starts anew gets everything again.
            if what == "osdmap" && item.start == 0 {
                session.osd_epoch = 0;
            }
            // A client follows the log at one level: naming another ends the last.
            if what.starts_with("log-") {
                session.subscriptions.retain(|other, _| *other == what || !other.starts_with("log-"));
            }
            let subscription = Subscription { next: item.start, onetime: item.is_onetime() };
            session.subscriptions.insert(what.clone(), subscription);
            changed.push(what);
        }
        for what in changed {
            self.serve(turn, conn, &what);
        }
        let stateful =
            self.sessions.get(&conn).is_some_and(|s| s.peer.features.has(wire::features::SERVER_JEWEL));
        if wants_ack && !stateful {
            let fsid = self.states.committed.monmap.fsid;
            turn.send(conn, MMonSubscribeAck { interval_s: 86_400, fsid });
        }
    }

    /// Tells every subscriber what it has not got yet.
    pub(super) fn publish(&mut self, turn: &mut Turn<'_>) {
        self.refresh_caps();
        let wishes: Vec<(ConnId, String)> = self
            .sessions
            .iter()
            .flat_map(|(conn, s)| s.subscriptions.keys().map(|what| (*conn, what.clone())))
            .collect();
        for (conn, what) in wishes {
            self.serve(turn, conn, &what);
        }
        self.push_osdmaps(turn);
    }

    /// Sends OSDMaps that change intervals to every client and OSD that has got one from here before, subscribed or not.
    /// A stock client that waits for an OSD which is cut off would ask for a map after 10 s only.
    fn push_osdmaps(&mut self, turn: &mut Turn<'_>) {
        let newest = self.states.committed.osdmap().epoch;
        let published = std::mem::replace(&mut self.published_epoch, newest);
        let mut steps = (published + 1..=newest).filter_map(|epoch| self.states.committed.osd.step_to(epoch));
        if !steps.any(changes_intervals) {
            return;
        }
        let is_told = |s: &Session| {
            let kind = s.peer.identity.role();
            s.osd_epoch > 0 && (kind == EntityKind::CLIENT || kind == EntityKind::OSD)
        };
        let told: Vec<ConnId> = self.sessions.iter().filter(|(_, s)| is_told(s)).map(|(c, _)| *c).collect();
        for conn in told {
            self.send_osdmaps_since(turn, conn, 0);
        }
    }

    fn serve(&mut self, turn: &mut Turn<'_>, conn: ConnId, what: &str) {
        let next = match what {
            "monmap" => self.serve_monmap(turn, conn),
            "osdmap" => self.serve_osdmap(turn, conn),
            "mgrmap" => self.serve_mgrmap(turn, conn),
            "config" => self.serve_config(turn, conn),
            "osd_pg_creates" => self.serve_pg_creates(turn, conn),
            log if log.starts_with("log-") => self.serve_log(turn, conn, log),
            _ => None,
        };
        let Some(next) = next else { return };
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        match session.subscriptions.get_mut(what) {
            Some(subscription) if subscription.onetime => {
                session.subscriptions.remove(what);
            }
            Some(subscription) => subscription.next = next,
            None => {}
        }
    }

    /// The first version that the peer lacks of what it subscribed to.
    pub(super) fn wanted(&self, conn: ConnId, what: &str) -> Option<u64> {
        self.sessions.get(&conn)?.subscriptions.get(what).map(|s| s.next)
    }

    fn serve_monmap(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> Option<u64> {
        let epoch = u64::from(self.states.committed.monmap.epoch);
        if self.wanted(conn, "monmap")? > epoch {
            return None;
        }
        self.send_monmap(turn, conn);
        Some(epoch + 1)
    }

    pub(super) fn send_monmap(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        let Some(session) = self.sessions.get(&conn) else { return };
        turn.send(conn, MMonMap::new(&self.states.committed.monmap, session.peer.features));
    }

    fn serve_osdmap(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> Option<u64> {
        let next = self.wanted(conn, "osdmap")?;
        let newest = self.states.committed.osdmap().epoch;
        if newest == 0 || next > u64::from(newest) {
            return None;
        }
        let session = self.sessions.get_mut(&conn)?;
        let features = session.peer.features;
        let history = &self.states.committed.osd;
        if next == 0 {
            turn.send(conn, self.maps.newest(history, features));
        } else {
            let first = (next as u32).max(session.osd_epoch + 1);
            for message in self.maps.since(history, first, features) {
                turn.send(conn, message);
            }
        }
        session.osd_epoch = newest;
        Some(u64::from(newest) + 1)
    }

    /// Sends the OSDMaps from `first` on, whatever the peer subscribed to.
    pub(super) fn send_osdmaps_since(&mut self, turn: &mut Turn<'_>, conn: ConnId, first: u32) {
        if self.route_maps(turn, conn, first) {
            return;
        }
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        let first = first.max(session.osd_epoch + 1);
        session.osd_epoch = self.states.committed.osdmap().epoch;
        for message in self.maps.since(&self.states.committed.osd, first, session.peer.features) {
            turn.send(conn, message);
        }
    }

    fn serve_mgrmap(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> Option<u64> {
        let epoch = u64::from(self.states.committed.mgrmap.epoch);
        if self.wanted(conn, "mgrmap")? > epoch {
            return None;
        }
        turn.send(conn, MMgrMap { map: self.states.committed.mgrmap.clone() });
        Some(epoch + 1)
    }

    /// Sends the configuration when it differs from what the peer has. Configuration has no versions of its own
    /// on the wire; a subscription never ends by being served.
    fn serve_config(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> Option<u64> {
        let session = self.sessions.get_mut(&conn)?;
        let class_of = |osd| crate::crush::class_of(&self.states.committed.osdmap().crush, osd);
        let device_class = session.peer.identity.osd().and_then(class_of).unwrap_or_default();
        let to = Receiver { name: session.name(), host: &session.host, device_class };
        let config: BTreeMap<String, String> = self
            .states
            .committed
            .config
            .resolve(&to)
            .into_iter()
            .map(|(option, (_, value))| (option.to_owned(), value.to_owned()))
            .collect();
        if session.config.as_ref() != Some(&config) {
            session.config = Some(config.clone());
            turn.send(conn, MConfig { config });
        }
        Some(self.states.committed.config.version + 1)
    }

    /// A daemon asks for its options before it has anything else. Options of others need a permission, since they may hold
    /// secrets.
    pub(super) fn on_get_config(&mut self, turn: &mut Turn<'_>, conn: ConnId, m: MGetConfig) {
        let Some(session) = self.sessions.get(&conn) else { return };
        if *session.name() != m.name && !session.may("config", Allow::R) {
            return;
        }
        let to = Receiver { name: &m.name, host: &m.host, device_class: &m.device_class };
        let values = self.states.committed.config.resolve(&to);
        let config =
            values.into_iter().map(|(option, (_, value))| (option.to_owned(), value.to_owned())).collect();
        turn.send(conn, MConfig { config });
    }

    pub(super) fn on_get_version(&mut self, turn: &mut Turn<'_>, conn: ConnId, tid: u64, m: MMonGetVersion) {
        if !self.sessions.get(&conn).is_some_and(|s| s.may("mon", Allow::R)) {
            return;
        }
        let (version, oldest_version) = match m.what.as_str() {
            "osdmap" => {
                (self.states.committed.osdmap().epoch.into(), self.states.committed.osd.oldest().into())
            }
            "monmap" => (self.states.committed.monmap.epoch.into(), 1),
            "mgrmap" => (self.states.committed.mgrmap.epoch.into(), 1),
            // No file systems yet, and so no map of them: version 0, which a client takes for "none".
            _ => (0, 0),
        };
        let reply = MMonGetVersionReply { handle: m.handle, version, oldest_version };
        turn.send_message(conn, Message::with_tid(tid, reply));
    }
}
