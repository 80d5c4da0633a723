//! A shard's state of one client connection.

use super::op::Parked;
use super::room::Withheld;
use crate::fast_map::{FastMap, FastSet};
use crate::slab::Key;
use machine::net::Peer;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::caps::OsdCap;
use wire::messages::MOSDOp;
use wire::types::{EntityAddr, EntityName, Epoch, ReqId, SpgId};

pub struct Session {
    pub peer: Arc<Peer>,
    /// The name that its requests, watches and locks carry: by its key, whatever it calls itself.
    pub name: EntityName,
    pub addr: EntityAddr,
    pub caps: OsdCap,
    /// The newest map that we know the client to have, or have asked to be sent to it.
    pub epoch: Epoch,
    /// Requests that name a newer map than ours, and all that came after them.
    pub waiting_for_map: VecDeque<Parked>,
    /// PGs for which the client has been told to hold back, by the id of that message.
    pub backoffs: FastMap<SpgId, u64>,
    /// Those messages that the client has not acknowledged. Requests that it sent before it got the message may come after
    /// the PG serves again: they are dropped until the acknowledgement, which comes behind them.
    pub unacknowledged_backoffs: FastMap<SpgId, u64>,
    /// What it lost for want of room.
    pub withheld: Withheld,
    /// Objects that the client watches over this connection: PG, object, cookie.
    pub watches: FastSet<(Key, Key, u64)>,
}

impl Session {
    pub fn new(peer: Arc<Peer>) -> Session {
        let addr = peer.addrs.msgr2().or_else(|| peer.addrs.0.first().copied()).unwrap_or(peer.socket);
        Session {
            name: peer.identity.entity(),
            caps: crate::caps::of_peer(&peer),
            addr,
            peer,
            epoch: 0,
            waiting_for_map: VecDeque::new(),
            backoffs: FastMap::default(),
            unacknowledged_backoffs: FastMap::default(),
            withheld: Withheld::default(),
            watches: FastSet::default(),
        }
    }

    /// The id of a request. Only another OSD may name a client for whom it acts: a client that could would have its
    /// request taken for somebody else's, or somebody else's for its own.
    pub fn reqid(&self, op: &MOSDOp, tid: u64) -> ReqId {
        match self.peer.identity.osd() {
            Some(_) => op.reqid(self.name, tid),
            None => ReqId { name: self.name, tid, incarnation: op.explicit_reqid.incarnation },
        }
    }
}
