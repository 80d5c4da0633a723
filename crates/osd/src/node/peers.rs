//! OSDs that have connected to this core, and the order of their statements.
//!
//! A statement comes over a connection on one core and goes to the core of its PG. The first names its sender: the OSD that
//! the connection's key proves. The second keeps the order: when a link breaks, statements of the old connection may still
//! be in sockets and mail while the new connection's pass them on another core. They are dropped as if the break had lost
//! them, which the sender assumes anyway.

use crate::fast_map::FastMap;
use crate::shard;
use machine::net::{Held, Peer};
use machine::{ConnId, CoreId};
use std::collections::BTreeMap;
use wire::messages::MOSDPeer;
use wire::types::{OsdId, OsdMap};

/// A statement on its way to the core of its PG.
#[derive(Debug)]
pub struct Statement {
    pub sender: Sender,
    /// Number of the connection, as the sender counts.
    pub link: ConnId,
    pub message: Box<MOSDPeer>,
    pub held: Held,
}

/// The process at the other end of an accepted connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    pub osd: OsdId,
    /// A monitor gives each process another one.
    pub global_id: u64,
}

#[derive(Default)]
pub(super) struct Peers {
    /// Accepted connections of this core that are OSDs'.
    senders: FastMap<ConnId, Sender>,
    /// The newest connection that a statement to this core came over, by OSD and its core.
    newest: BTreeMap<(OsdId, CoreId), Newest>,
}

struct Newest {
    global_id: u64,
    link: ConnId,
}

impl Peers {
    pub(super) fn on_ready(&mut self, conn: ConnId, peer: &Peer) {
        if let Some(osd) = peer.identity.osd() {
            self.senders.insert(conn, Sender { osd: OsdId(osd), global_id: peer.identity.global_id() });
        }
    }

    pub(super) fn on_closed(&mut self, conn: ConnId) {
        self.senders.remove(&conn);
    }

    /// The OSD at the other end of an accepted connection of this core. `None`: another kind of peer.
    pub(super) fn sender(&self, conn: ConnId) -> Option<Sender> {
        self.senders.get(&conn).copied()
    }

    /// A statement for this core's shard, unless a newer connection has overtaken it.
    pub(super) fn admit(&mut self, statement: Statement) -> Option<shard::Input> {
        let Statement { sender: Sender { osd, global_id }, link, message, held } = statement;
        let newest = self.newest.entry((osd, link.core())).or_insert(Newest { global_id, link: ConnId(0) });
        if newest.global_id == global_id && link < newest.link {
            return None;
        }
        *newest = Newest { global_id, link };
        Some(shard::Input::Peer { from: osd, message, held })
    }

    pub(super) fn on_map(&mut self, map: &OsdMap) {
        self.newest.retain(|(osd, _), _| map.is_up(osd.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{PeerBody, PgId};

    fn statement(global_id: u64, core: u16, number: u64) -> Statement {
        let pg = PgId { pool: 1, seed: 0 }.into();
        let data = bytes::Bytes::new().into();
        Statement {
            sender: Sender { osd: OsdId(3), global_id },
            link: ConnId::outgoing_on(CoreId(core), number),
            message: Box::new(MOSDPeer { pg, epoch: 1, interval: 1, body: PeerBody::Probe, data }),
            held: Held::default(),
        }
    }

    #[test]
    fn statement_behind_a_newer_connection_is_dropped() {
        let mut peers = Peers::default();
        let mut admits = |global_id, core, number| peers.admit(statement(global_id, core, number)).is_some();
        assert!(admits(1, 0, 5) && admits(1, 0, 6) && admits(1, 0, 6));
        assert!(!admits(1, 0, 5));
        assert!(admits(1, 1, 2), "the links of the sender's cores are apart");
        assert!(admits(2, 0, 1), "a new process counts from the beginning");
        assert!(!peers.newest.is_empty());
        peers.on_map(&OsdMap::default());
        assert!(peers.newest.is_empty());
    }
}
