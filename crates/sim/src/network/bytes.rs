//! Connections as the real session machines make them, over sockets that carry bytes.
//!
//! A node's endpoint dies with its process. A socket keeps bytes in order, delivers them in pieces of any length,
//! and ends on both sides when either shuts it, when its process dies, or when the network breaks it; what was on
//! its way then is lost.

use super::{Arrival, Cx};
use crate::node::{Life, NodeId};
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Time};
use messenger::{Config, Effect, Endpoint, Input, ReadPlan, SocketId};
use std::collections::{BTreeMap, VecDeque};

/// How a node's endpoint is set up in one of its lives.
pub(crate) type EndpointConfig = Box<dyn Fn(NodeId, Life) -> Config>;

pub(crate) struct BytesNetwork {
    config: EndpointConfig,
    endpoints: BTreeMap<NodeId, Host>,
    pipes: BTreeMap<u64, Pipe>,
    pipes_made: u64,
}

/// What a process has of the network.
struct Host {
    endpoint: Endpoint,
    life: Life,
    sockets: BTreeMap<SocketId, (u64, usize)>,
    /// Sockets that are not read from, with what has come meanwhile.
    unread: BTreeMap<SocketId, VecDeque<Vec<u8>>>,
}

struct Pipe {
    ends: [PipeEnd; 2],
    is_open: bool,
}

struct PipeEnd {
    node: NodeId,
    life: Life,
    socket: Option<SocketId>,
    arrives_after: Time,
}

#[derive(Debug)]
pub(crate) struct BytesArrival {
    pipe: u64,
    /// 0: at the caller; 1: at the called.
    end: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    Call,
    Connected,
    Bytes(Vec<u8>),
    Broken,
}

const CALLER: usize = 0;
const CALLED: usize = 1;

impl BytesNetwork {
    pub fn new(config: EndpointConfig) -> BytesNetwork {
        BytesNetwork { config, endpoints: BTreeMap::new(), pipes: BTreeMap::new(), pipes_made: 0 }
    }

    pub fn started(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let life = cx.station(node).life;
        let endpoint = Endpoint::new((self.config)(node, life), Random::from_number(cx.random.u64()));
        self.endpoints
            .insert(node, Host { endpoint, life, sockets: BTreeMap::new(), unread: BTreeMap::new() });
    }

    pub fn died(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(host) = self.endpoints.remove(&node) else { return };
        for (pipe, end) in host.sockets.into_values() {
            self.send(cx, pipe, 1 - end, What::Broken);
        }
    }

    pub fn effect(&mut self, cx: &mut Cx<'_>, node: NodeId, effect: NetEffect) {
        self.step(cx, node, Input::Role(effect));
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.endpoints.values().filter_map(|h| h.endpoint.next_deadline()).min()
    }

    pub fn deadline(&mut self, cx: &mut Cx<'_>) {
        let due = |h: &Host| h.endpoint.next_deadline().is_some_and(|at| at <= cx.now);
        let due: Vec<NodeId> = self.endpoints.iter().filter(|(_, h)| due(h)).map(|(n, _)| *n).collect();
        due.into_iter().for_each(|node| self.step(cx, node, Input::Deadline));
    }

    pub fn check(&self) {
        self.endpoints.values().for_each(|h| h.endpoint.check());
    }

    fn step(&mut self, cx: &mut Cx<'_>, node: NodeId, input: Input) {
        let Some(host) = self.endpoints.get_mut(&node) else { return };
        let name = cx.station(node).name;
        if host.endpoint.config().name != name {
            host.endpoint.set_name(name);
        }
        let mut effects = Effects::new();
        host.endpoint.step(cx.now, input, &mut effects);
        host.endpoint.read_on(cx.now, &mut effects);
        self.follow(cx, node, effects);
    }

    fn follow(&mut self, cx: &mut Cx<'_>, node: NodeId, mut effects: Effects<Effect>) {
        for effect in effects.take() {
            match effect {
                Effect::Open { socket, to } => self.open(cx, node, socket, to),
                Effect::Shut { socket } => self.shut(cx, node, socket),
                Effect::Reading { socket, on } => self.set_reading(cx, node, socket, on),
                Effect::Refused { .. } => {}
                Effect::Move { .. } => unreachable!("a simulated process has one core"),
                Effect::Event(event) => {
                    note(cx, node, &event);
                    cx.events.push_back((node, event));
                }
            }
        }
        let mut dirty = Vec::new();
        let Some(host) = self.endpoints.get_mut(&node) else { return };
        host.endpoint.take_dirty(&mut dirty);
        for socket in dirty {
            let Some(host) = self.endpoints.get_mut(&node) else { return };
            let Some(queue) = host.endpoint.outgoing(socket) else { continue };
            let bytes: Vec<u8> = queue.take().flat_map(|b| b.to_vec()).collect();
            if let Some((pipe, end)) = host.sockets.get(&socket).copied() {
                self.send_in_pieces(cx, pipe, 1 - end, bytes);
            }
            self.step(cx, node, Input::Wrote { socket });
        }
    }

    fn open(&mut self, cx: &mut Cx<'_>, node: NodeId, socket: SocketId, to: std::net::SocketAddr) {
        let at = |s: &super::Station| s.addrs.msgr2().and_then(|a| a.socket) == Some(to);
        let called = cx.stations.iter().position(at).map(NodeId);
        let Some(called) = called else {
            return self.step(cx, node, Input::Broken { socket, why: "no route".into() });
        };
        self.pipes_made += 1;
        let end = |node: NodeId, socket| PipeEnd {
            node,
            life: cx.station(node).life,
            socket,
            arrives_after: cx.now,
        };
        let ends = [end(node, Some(socket)), end(called, None)];
        self.pipes.insert(self.pipes_made, Pipe { ends, is_open: true });
        if let Some(host) = self.endpoints.get_mut(&node) {
            host.sockets.insert(socket, (self.pipes_made, CALLER));
        }
        self.send(cx, self.pipes_made, CALLED, What::Call);
    }

    fn shut(&mut self, cx: &mut Cx<'_>, node: NodeId, socket: SocketId) {
        let Some(host) = self.endpoints.get_mut(&node) else { return };
        host.unread.remove(&socket);
        if let Some((pipe, end)) = host.sockets.remove(&socket) {
            self.send(cx, pipe, 1 - end, What::Broken);
        }
    }

    fn set_reading(&mut self, cx: &mut Cx<'_>, node: NodeId, socket: SocketId, on: bool) {
        let Some(host) = self.endpoints.get_mut(&node) else { return };
        if !on {
            host.unread.entry(socket).or_default();
        } else if let Some(pieces) = host.unread.remove(&socket) {
            pieces.into_iter().for_each(|bytes| self.give(cx, node, socket, &bytes));
        }
    }

    fn send_in_pieces(&mut self, cx: &mut Cx<'_>, pipe: u64, to: usize, mut bytes: Vec<u8>) {
        while !bytes.is_empty() {
            // Mostly whole; now and then cut anywhere, as a socket may.
            let cut = if cx.random.below(8) == 0 {
                1 + cx.random.below(bytes.len() as u64) as usize
            } else {
                bytes.len()
            };
            let rest = bytes.split_off(cut);
            self.send(cx, pipe, to, What::Bytes(bytes));
            bytes = rest;
        }
    }

    fn send(&mut self, cx: &mut Cx<'_>, id: u64, to: usize, what: What) {
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let at = cx.transit(pipe.ends[1 - to].node, pipe.ends[to].node);
        let end = &mut pipe.ends[to];
        end.arrives_after = end.arrives_after.max(at);
        cx.schedule.push((end.arrives_after, Arrival::Bytes(BytesArrival { pipe: id, end: to, what })));
    }

    pub fn arrive(&mut self, cx: &mut Cx<'_>, arrival: BytesArrival) {
        let BytesArrival { pipe: id, end, what } = arrival;
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let here = &pipe.ends[end];
        let node = here.node;
        if let What::Call = what {
            let caller = pipe.ends[CALLER].node;
            if !pipe.is_open || !cx.station(node).is_up {
                return self.send(cx, id, CALLER, What::Broken);
            }
            let from =
                cx.station(caller).addrs.msgr2().and_then(|a| a.socket).expect("every node has an address");
            let mut effects = Effects::new();
            let Some(host) = self.endpoints.get_mut(&node) else { return };
            let socket = host.endpoint.accept(cx.now, from, &mut effects);
            host.sockets.insert(socket, (id, CALLED));
            (pipe.ends[CALLED].socket, pipe.ends[CALLED].life) = (Some(socket), host.life);
            self.send(cx, id, CALLER, What::Connected);
            return self.follow(cx, node, effects);
        }
        let Some(socket) = here.socket.filter(|_| cx.lives(node, here.life)) else { return };
        let Some(host) = self.endpoints.get_mut(&node).filter(|h| h.sockets.contains_key(&socket)) else {
            return;
        };
        match what {
            What::Connected => self.step(cx, node, Input::Connected { socket }),
            What::Bytes(_) if !pipe.is_open => {}
            What::Bytes(bytes) => {
                cx.trace.event(cx.now, node.0, "bytes", &bytes);
                match host.unread.get_mut(&socket) {
                    Some(unread) => unread.push_back(bytes),
                    None => self.give(cx, node, socket, &bytes),
                }
            }
            What::Broken => {
                cx.trace.event(cx.now, node.0, "broken", &[]);
                host.sockets.remove(&socket);
                host.unread.remove(&socket);
                self.step(cx, node, Input::Broken { socket, why: "reset".into() });
            }
            What::Call => unreachable!("handled above"),
        }
    }

    /// As a host does: into a large frame's own buffer, or shared.
    fn give(&mut self, cx: &mut Cx<'_>, node: NodeId, socket: SocketId, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(host) = self.endpoints.get_mut(&node) else { return };
            if let Some(unread) = host.unread.get_mut(&socket) {
                return unread.push_back(bytes.to_vec());
            }
            match host.endpoint.read_plan(socket) {
                ReadPlan::Own(buffer, missing) => {
                    let n = missing.min(bytes.len());
                    buffer.extend_from_slice(&bytes[..n]);
                    bytes = &bytes[n..];
                    self.step(cx, node, Input::Filled { socket });
                }
                _ => {
                    let mut whole = host.endpoint.take_partial(socket);
                    whole.extend_from_slice(bytes);
                    bytes = &[];
                    self.step(cx, node, Input::Received { socket, bytes: whole });
                }
            }
        }
    }

    pub fn break_one(&mut self, cx: &mut Cx<'_>) -> bool {
        let alive = |e: &PipeEnd| {
            let host = self.endpoints.get(&e.node);
            e.socket.is_some_and(|s| host.is_some_and(|h| h.life == e.life && h.sockets.contains_key(&s)))
        };
        self.pipes.retain(|_, p| p.ends.iter().any(alive));
        let open: Vec<u64> = self
            .pipes
            .iter()
            .filter(|(_, p)| p.is_open && p.ends.iter().all(alive))
            .map(|(id, _)| *id)
            .collect();
        let Some(&id) = open.get(cx.random.below(open.len() as u64) as usize) else { return false };
        self.pipes.get_mut(&id).expect("just listed").is_open = false;
        self.send(cx, id, CALLER, What::Broken);
        self.send(cx, id, CALLED, What::Broken);
        true
    }
}

fn note(cx: &mut Cx<'_>, node: NodeId, event: &NetEvent) {
    let station = &cx.stations[node.0];
    if let NetEvent::Message { message, .. } = event {
        cx.trace.cover(&format!("{} < {}", station.name.kind.name(), message.body.name()));
    }
    let (now, name) = (cx.now, station.name);
    cx.trace.note(|| format!("{now:?} {name} < {event:.300?}"));
}
