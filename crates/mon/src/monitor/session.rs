//! A connected peer: who it is, what it may do, what it subscribed to.

use super::{Monitor, Turn};
use crate::caps::{Allow, MonCap, Wanted};
use machine::ConnId;
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
    /// What its key is under: `client.admin`.
    pub auth_name: AuthName,
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
            entity: &self.auth_name.to_string(),
            service,
            command,
            args,
            need,
            peer: self.peer.socket.socket.map(|s| s.ip()),
        })
    }
}

impl Monitor {
    pub(super) fn on_ready(&mut self, _: &mut Turn<'_>, conn: ConnId, peer: Peer) {
        let fallback = || AuthName::new(peer.name.kind, peer.name.num.max(0).to_string());
        let auth_name: AuthName = peer.auth_name.parse().unwrap_or_else(|()| fallback());
        let caps = if peer.allow_all {
            MonCap::allow_all()
        } else {
            let text = self.committed.auth.caps(&auth_name, "mon").unwrap_or_default();
            MonCap::parse(text).unwrap_or_default()
        };
        let session = Session {
            peer,
            auth_name,
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
        for session in self.sessions.values_mut().filter(|s| !s.peer.allow_all) {
            let text = self.committed.auth.caps(&session.auth_name, "mon").unwrap_or_default();
            if text != session.caps.text() {
                session.caps = MonCap::parse(text).unwrap_or_default();
            }
        }
    }
}
