//! The network between nodes: it delays, resets connections and reorders between connections. Within a connection it
//! never loses, duplicates or reorders, as TCP.
//!
//! There are two levels. [`messages`] carries whole messages, encoded and decoded on the way, with a simplified handshake
//! and `auth none`. It is fast, and enough for everything above the session. [`bytes`] runs the production session
//! machines on both ends and carries bytes between sockets, split anywhere: cephx, ciphers, acknowledgements and
//! reconnects are real.

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

/// The level at which connections are simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Messages,
    /// Session machines, with cephx or `auth none`.
    Bytes {
        cephx: bool,
    },
}

pub(crate) enum Network {
    Messages(MessageNetwork),
    Bytes(Box<BytesNetwork>),
}

/// A message or a piece of bytes in transit.
#[derive(Debug)]
pub(crate) enum Arrival {
    Messages(MessageArrival),
    Bytes(BytesArrival),
}

/// The network's view of a node.
pub(crate) struct Station {
    pub name: EntityName,
    pub addrs: EntityAddrVec,
    pub cores: u16,
    pub judges: bool,
    pub is_up: bool,
    /// The process is stopped. Arrivals wait.
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
    /// New entries for the event queue.
    pub schedule: &'a mut Vec<(Time, Arrival)>,
    /// Events for nodes, at this moment.
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

    /// The current time of the node's own clock.
    pub fn local(&self, node: NodeId) -> Time {
        self.station(node).clock.local(self.now)
    }

    /// Arrival time of a message that one node sends to another now.
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

    /// The next deadline of the session machines, in the world's time.
    pub fn next_deadline(&self, stations: &[Station]) -> Option<Time> {
        match self {
            Network::Messages(_) => None,
            Network::Bytes(n) => n.next_deadline(stations),
        }
    }

    /// The node that an arrival is for. `None` if it is lost.
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

    /// Resets connection number `pick`, modulo the number of open connections. False if there is none.
    pub fn break_one(&mut self, cx: &mut Cx<'_>, pick: u64) -> bool {
        match self {
            Network::Messages(n) => n.break_one(cx, pick),
            Network::Bytes(n) => n.break_one(cx, pick),
        }
    }
}
