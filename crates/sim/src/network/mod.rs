//! The network between nodes: delays, reorders between connections, breaks and stalls; never loses, doubles or
//! reorders within a connection, as TCP does not.
//!
//! Two levels. [`messages`]: a whole message goes from role to role, encoded and decoded on the way; handshakes are
//! only acted out, with `auth none`. Fast, and enough for everything above the session. [`bytes`]: each node has
//! the real session machines, and bytes go from socket to socket, cut anywhere; cephx, ciphers, acknowledgements
//! and reconnects are real.

mod bytes;
mod messages;
mod weather;

use crate::clock::Clock;
use crate::node::{Life, NodeId};
use crate::trace::Trace;
use machine::net::{NetEffect, NetEvent};
use machine::{Random, Time};
use std::collections::VecDeque;
use wire::types::{EntityAddrVec, EntityName};

pub(crate) use bytes::{BytesArrival, BytesNetwork, EndpointConfig};
pub(crate) use messages::{MessageArrival, MessageNetwork};
pub(crate) use weather::Weather;

/// At which level connections are simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Messages,
    /// With the given choice of authentication.
    Bytes {
        cephx: bool,
    },
}

pub(crate) enum Network {
    Messages(MessageNetwork),
    Bytes(Box<BytesNetwork>),
}

/// Something on its way.
#[derive(Debug)]
pub(crate) enum Arrival {
    Messages(MessageArrival),
    Bytes(BytesArrival),
}

/// What the network may know of a node.
pub(crate) struct Station {
    pub name: EntityName,
    pub addrs: EntityAddrVec,
    pub cores: u16,
    pub judges: bool,
    pub is_up: bool,
    /// The process is stopped: what arrives waits.
    pub is_paused: bool,
    pub life: Life,
    pub clock: Clock,
}

/// The world as the network sees it during one event.
pub(crate) struct Cx<'a> {
    pub now: Time,
    pub random: &'a mut Random,
    pub weather: &'a mut Weather,
    pub stations: &'a [Station],
    pub trace: &'a mut Trace,
    /// For the event queue.
    pub schedule: &'a mut Vec<(Time, Arrival)>,
    /// For nodes, now.
    pub events: &'a mut VecDeque<(NodeId, NetEvent)>,
}

impl Cx<'_> {
    pub fn station(&self, node: NodeId) -> &Station {
        &self.stations[node.0]
    }

    pub fn lives(&self, node: NodeId, life: Life) -> bool {
        self.station(node).is_up && self.station(node).life == life
    }

    pub fn listening_at(&self, addrs: &EntityAddrVec) -> Option<NodeId> {
        let wanted = addrs.msgr2()?.socket?;
        let at = |s: &Station| s.addrs.msgr2().and_then(|a| a.socket) == Some(wanted);
        self.stations.iter().position(at).map(NodeId)
    }

    /// The node's own time.
    pub fn local(&self, node: NodeId) -> Time {
        self.station(node).clock.local(self.now)
    }

    /// When something sent now from one node to another arrives.
    pub fn transit(&mut self, from: NodeId, to: NodeId) -> Time {
        self.weather.transit(self.now, self.random, from, to)
    }
}

impl Network {
    pub fn effect(&mut self, cx: &mut Cx<'_>, node: NodeId, effect: NetEffect) {
        match self {
            Network::Messages(n) => n.effect(cx, node, effect),
            Network::Bytes(n) => n.effect(cx, node, effect),
        }
    }

    pub fn arrive(&mut self, cx: &mut Cx<'_>, arrival: Arrival) {
        match (self, arrival) {
            (Network::Messages(n), Arrival::Messages(a)) => n.arrive(cx, a),
            (Network::Bytes(n), Arrival::Bytes(a)) => n.arrive(cx, a),
            _ => unreachable!("a network schedules arrivals of its own kind"),
        }
    }

    /// Of the session machines, in the world's time.
    pub fn next_deadline(&self, stations: &[Station]) -> Option<Time> {
        match self {
            Network::Messages(_) => None,
            Network::Bytes(n) => n.next_deadline(stations),
        }
    }

    /// The node that something arrives at; none if it is lost.
    pub fn destination(&self, arrival: &Arrival) -> Option<NodeId> {
        match (self, arrival) {
            (Network::Messages(n), Arrival::Messages(a)) => n.destination(a),
            (Network::Bytes(n), Arrival::Bytes(a)) => n.destination(a),
            _ => unreachable!("a network schedules arrivals of its own kind"),
        }
    }

    pub fn deadline(&mut self, cx: &mut Cx<'_>) {
        if let Network::Bytes(n) = self {
            n.deadline(cx);
        }
    }

    pub fn started(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if let Network::Bytes(n) = self {
            n.started(cx, node);
        }
    }

    pub fn died(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        match self {
            Network::Messages(n) => n.died(cx, node),
            Network::Bytes(n) => n.died(cx, node),
        }
    }

    /// Break the connection with this number, round and round, if there is any.
    pub fn break_one(&mut self, cx: &mut Cx<'_>, pick: u64) -> bool {
        match self {
            Network::Messages(n) => n.break_one(cx, pick),
            Network::Bytes(n) => n.break_one(cx, pick),
        }
    }
}
