//! A connected peer: its capabilities and subscriptions.

use super::{Effect, Monitor, Turn};
use crate::caps::{Allow, MonCap, Wanted};
use machine::ConnId;
use machine::gate::Refused;
use machine::identity::Capabilities;
use machine::net::Peer;
use std::collections::BTreeMap;
use wire::types::AuthName;

/// A standing (or one-time) wish for a map's new versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    /// The first version that has not been sent.
    pub next: u64,
    pub onetime: bool,
}

pub(super) struct Session {
    pub peer: Peer,
    pub caps: MonCap,
    pub subscriptions: BTreeMap<String, Subscription>,
    /// The host's name, as the peer says it.
    pub host: String,
    /// The newest OSDMap sent to it.
    pub osd_epoch: u32,
    /// The configuration sent last, so that only changes are sent.
    pub config: Option<BTreeMap<String, String>>,
}

impl Session {
    /// The name that its key is under: `client.admin`.
    pub fn name(&self) -> &AuthName {
        self.peer.identity.name()
    }

    pub fn may(&self, service: &str, need: Allow) -> bool {
        let none = BTreeMap::new();
        self.permits(service, "", &none, need)
    }

    pub fn permits(
        &self,
        service: &str,
        command: &str,
        args: &BTreeMap<String, String>,
        need: Allow,
    ) -> bool {
        self.caps.permits(&Wanted {
            entity: &self.name().to_string(),
            service,
            command,
            args,
            need,
            peer: self.peer.socket.socket.map(|s| s.ip()),
        })
    }
}

impl Monitor {
    /// A peer has spoken for somebody else: its message of type `kind` is dropped, which is logged once.
    pub(super) fn refuse(&mut self, turn: &mut Turn<'_>, conn: ConnId, kind: u16, what: &str) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let Refused(line) = self.gate.refuse_kind(&session.peer, kind, what);
        line.into_iter().for_each(|line| turn.effects.push(Effect::Warn(line)));
    }

    pub(super) fn on_ready(&mut self, _: &mut Turn<'_>, conn: ConnId, peer: Peer) {
        let caps = match peer.identity.capabilities() {
            Capabilities::Everything => MonCap::allow_all(),
            // The database is newer than any ticket.
            Capabilities::Text(_) => {
                let text = self.states.committed.auth.caps(peer.identity.name(), "mon").unwrap_or_default();
                MonCap::parse(text).unwrap_or_default()
            }
        };
        let session = Session {
            peer,
            caps,
            subscriptions: BTreeMap::new(),
            host: String::new(),
            osd_epoch: 0,
            config: None,
        };
        self.sessions.insert(conn, session);
    }

    /// After somebody's capabilities changed: sessions hold by the new ones at once.
    pub(super) fn refresh_caps(&mut self) {
        let is_limited = |s: &&mut Session| s.peer.identity.capabilities() != Capabilities::Everything;
        for session in self.sessions.values_mut().filter(is_limited) {
            let text = self.states.committed.auth.caps(session.name(), "mon").unwrap_or_default();
            if text != session.caps.text() {
                session.caps = MonCap::parse(text).unwrap_or_default();
            }
        }
    }
}
