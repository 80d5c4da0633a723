//! The gate in front of a daemon's message handlers: it drops a message that its sender may not send.
//!
//! The table in `wire::messages` says which kinds of peers may send a message to which daemon; the gate compares it with
//! the peer's [`Identity`](crate::identity::Identity). A handler that finds a peer speaking for another entity (`osd.1`
//! reports for `osd.2`) reports that here too. Each name and message type is logged once in a daemon's life, so a peer
//! that goes on cannot fill the log.

use crate::net::Peer;
use std::collections::BTreeSet;
use wire::messages::Body;
use wire::types::{AuthName, EntityKind};

/// Pairs of name and message type that are remembered. Beyond it nothing is logged.
const LOGGED_MAX: usize = 1000;

#[derive(Debug)]
pub struct Gate {
    receiver: EntityKind,
    logged: BTreeSet<(AuthName, u16)>,
}

/// A message that must be dropped, and the line to log about it: `None` when one like it was logged before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused(pub Option<String>);

impl Gate {
    /// In front of a daemon of this kind.
    pub fn new(receiver: EntityKind) -> Gate {
        Gate { receiver, logged: BTreeSet::new() }
    }

    /// Refuses a message from a peer of a kind that may not send it to this daemon.
    pub fn admit(&mut self, peer: &Peer, body: &Body) -> Result<(), Refused> {
        let senders = body.senders(self.receiver);
        let (role, name) = (peer.identity.role(), body.name());
        let is_role_proven = role == EntityKind::CLIENT || peer.identity.is_daemon();
        if is_role_proven && senders.include(role) {
            return Ok(());
        }
        // A release that speaks of more than we know is no attack.
        if matches!(body, Body::Unknown(_)) {
            return Err(Refused(None));
        }
        let why = match senders.is_nobody() {
            true => format!("{name}, which this daemon takes from nobody"),
            false => format!("{name}, which only these may send: {senders}"),
        };
        Err(self.refuse(peer, body, &why))
    }

    /// Refuses a message in which a handler found that the peer speaks for another entity. `what` goes into the log line.
    pub fn refuse(&mut self, peer: &Peer, body: &Body, what: &str) -> Refused {
        self.refuse_kind(peer, body.kind(), what)
    }

    /// As [`Gate::refuse`], where the message has been taken apart already.
    pub fn refuse_kind(&mut self, peer: &Peer, kind: u16, what: &str) -> Refused {
        let name = peer.identity.name().clone();
        let is_new = self.logged.len() < LOGGED_MAX && self.logged.insert((name, kind));
        Refused(is_new.then(|| {
            let (key, claimed, from) = (peer.identity.name(), peer.claimed, peer.socket.plain());
            format!("dropped from {key} ({claimed} at {from}): {what}")
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Proof;
    use wire::messages::{MMgrOpen, MOSDMap, MPing};
    use wire::types::{EntityAddr, EntityName};

    fn peer(key: &str, claimed: EntityName) -> Peer {
        let proof = Proof::cephx(key.parse().unwrap(), 4100, "");
        Peer::identified(proof, claimed, EntityAddr::default()).unwrap()
    }

    #[test]
    fn daemon_messages_pass_from_that_daemon_only() {
        let osd = peer("osd.3", EntityName::new(EntityKind::OSD, 3));
        let tool = peer("osd.3", EntityName::new(EntityKind::CLIENT, -1));
        let client = peer("client.admin", EntityName::new(EntityKind::CLIENT, -1));
        let mut gate = Gate::new(EntityKind::OSD);
        let maps = Body::from(MOSDMap::default());
        assert_eq!(gate.admit(&osd, &maps), Ok(()));
        assert!(gate.admit(&tool, &maps).is_err());
        assert!(gate.admit(&client, &maps).is_err());
        assert_eq!(gate.admit(&client, &Body::from(MPing)), Ok(()));
        assert!(gate.admit(&osd, &Body::from(MMgrOpen::default())).is_err(), "it is for the manager");
        assert_eq!(Gate::new(EntityKind::MGR).admit(&osd, &Body::from(MMgrOpen::default())), Ok(()));
    }

    #[test]
    fn refusal_is_logged_once_for_each_name_and_message() {
        let client = peer("client.admin", EntityName::new(EntityKind::CLIENT, -1));
        let mut gate = Gate::new(EntityKind::OSD);
        let Err(Refused(Some(line))) = gate.admit(&client, &Body::from(MOSDMap::default())) else {
            panic!("the first is logged")
        };
        assert_eq!(
            line,
            "dropped from client.admin (client.? at :/0): MOSDMap, which only these may send: osd"
        );
        assert_eq!(gate.admit(&client, &Body::from(MOSDMap::default())), Err(Refused(None)));
        let other = peer("client.b", EntityName::new(EntityKind::CLIENT, -1));
        assert!(matches!(gate.admit(&other, &Body::from(MOSDMap::default())), Err(Refused(Some(_)))));
        let Err(Refused(Some(line))) = gate.admit(&client, &Body::from(MMgrOpen::default())) else {
            panic!("another message is logged")
        };
        assert!(line.ends_with("MMgrOpen, which this daemon takes from nobody"), "{line}");
    }

    #[test]
    fn log_stays_bounded_under_many_names() {
        let mut gate = Gate::new(EntityKind::OSD);
        let lines = (0..2 * LOGGED_MAX).filter(|n| {
            let name = format!("client.{n}");
            let client = peer(&name, EntityName::new(EntityKind::CLIENT, -1));
            gate.admit(&client, &Body::from(MOSDMap::default())) != Err(Refused(None))
        });
        assert_eq!(lines.count(), LOGGED_MAX);
    }
}
