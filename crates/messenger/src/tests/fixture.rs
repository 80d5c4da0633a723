//! Endpoints on a network that delays, splits and cuts, on one clock from one seed; and a monitor just good enough
//! to hand out tickets.

use crate::testing::Monitor;
use crate::{Config, Effect, Endpoint, Input, ReadPlan, SocketId};
use bytes::{Bytes, BytesMut};
use machine::net::*;
use machine::{ConnId, Effects, Machine, Random, Time};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use wire::cephx::{AuthName, METHOD_NONE};
use wire::frames::{Banner, CONNECT_LOSSY, Control, FrameEncoder, MODE_CRC, MessageHeader, WriteQueue};
use wire::messages::{Body, Header, Message, Payload, UnknownMessage};
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, EntityName};

/// The most that a host reads at once into a shared buffer.
pub(super) const READ_LEN: usize = 20_000;

pub(super) struct Node {
    pub endpoint: Endpoint,
    pub addr: SocketAddr,
    pub events: Vec<NetEvent>,
    /// Reasons of refusals that only the host hears of.
    pub refused: Vec<CloseReason>,
    /// Its sockets are never written.
    pub is_unheard: bool,
    /// Set for a node that judges as a monitor does.
    pub monitor: Option<Monitor>,
    open: BTreeMap<SocketId, Far>,
    /// Bytes on sockets that are not to be read now.
    unread: BTreeMap<SocketId, Vec<u8>>,
}

/// The other end of a socket.
#[derive(Clone, Copy)]
struct Far {
    node: usize,
    socket: SocketId,
}

enum Delivery {
    Call { from: usize, socket: SocketId, to: SocketAddr },
    Bytes { to: usize, socket: SocketId, bytes: Vec<u8> },
    Broken { to: usize, socket: SocketId },
}

pub(super) struct World {
    pub now: Time,
    pub nodes: Vec<Node>,
    random: Random,
    flying: BTreeMap<(Time, u64), Delivery>,
    flown: u64,
    /// Break the socket that carries the byte with this number.
    pub cut_at: Option<u64>,
    pub carried: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            now: Time(1),
            nodes: Vec::new(),
            random: Random::from_number(seed),
            flying: BTreeMap::new(),
            flown: 0,
            cut_at: None,
            carried: 0,
        }
    }

    pub fn add(&mut self, kind: EntityKind, num: i64, change: impl FnOnce(&mut Config)) -> usize {
        let n = self.nodes.len();
        let addr: SocketAddr = format!("10.0.0.{}:6800", n + 1).parse().unwrap();
        let mut config = Config::new(EntityName::new(kind, num), EntityAddr::msgr2(addr, n as u32).into());
        change(&mut config);
        let endpoint = Endpoint::new(config, self.random.fork());
        let (open, unread) = (BTreeMap::new(), BTreeMap::new());
        self.nodes.push(Node {
            endpoint,
            addr,
            events: vec![],
            refused: vec![],
            is_unheard: false,
            monitor: None,
            open,
            unread,
        });
        n
    }

    pub fn addrs(&self, n: usize) -> EntityAddrVec {
        self.nodes[n].endpoint.config().addrs.clone()
    }

    pub fn role(&mut self, n: usize, effect: NetEffect) {
        self.step(n, Input::Role(effect));
    }

    /// Run until nothing moves and no deadline falls before `until`.
    pub fn run(&mut self, until: Duration) {
        let end = self.now + until;
        for turn in 0.. {
            assert!(turn < 200_000, "the network never comes to rest");
            let flying = self.flying.keys().next().map(|(at, _)| *at);
            let deadline = self.nodes.iter().filter_map(|n| n.endpoint.next_deadline()).min();
            let Some(next) = Time::earliest(flying, deadline).filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            match self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
                Some(first) => {
                    let delivery = first.remove();
                    self.deliver(delivery);
                }
                None => {
                    for n in 0..self.nodes.len() {
                        self.step(n, Input::Deadline);
                    }
                }
            }
        }
        self.now = end;
    }

    fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Call { from, socket, to } => {
                let Some(to) = self.nodes.iter().position(|n| n.addr == to) else {
                    return self.step(from, Input::Broken { socket, why: "refused".into() });
                };
                let (now, caller) = (self.now, self.nodes[from].addr);
                let mut effects = Effects::new();
                let there = self.nodes[to].endpoint.accept(now, caller, &mut effects);
                self.nodes[to].open.insert(there, Far { node: from, socket });
                self.nodes[from].open.insert(socket, Far { node: to, socket: there });
                self.follow(to, effects);
                self.step(from, Input::Connected { socket });
            }
            Delivery::Bytes { to, socket, bytes } => {
                if self.nodes[to].open.contains_key(&socket) {
                    self.give(to, socket, &bytes);
                }
            }
            Delivery::Broken { to, socket } => {
                if self.nodes[to].open.remove(&socket).is_some() {
                    self.step(to, Input::Broken { socket, why: "cut".into() });
                }
            }
        }
    }

    /// As a host does: into a large frame's own buffer, or shared.
    fn give(&mut self, to: usize, socket: SocketId, mut bytes: &[u8]) {
        if let Some(unread) = self.nodes[to].unread.get_mut(&socket) {
            return unread.extend_from_slice(bytes);
        }
        while !bytes.is_empty() {
            match self.nodes[to].endpoint.read_plan(socket) {
                ReadPlan::Nothing => {
                    self.nodes[to].unread.insert(socket, bytes.to_vec());
                    return;
                }
                ReadPlan::Own(buffer, missing) => {
                    let n = missing.min(bytes.len());
                    buffer.extend_from_slice(&bytes[..n]);
                    bytes = &bytes[n..];
                    self.step(to, Input::Filled { socket });
                }
                ReadPlan::Shared => {
                    let mut whole = self.nodes[to].endpoint.take_partial(socket);
                    let n = bytes.len().min(READ_LEN);
                    whole.extend_from_slice(&bytes[..n]);
                    bytes = &bytes[n..];
                    self.step(to, Input::Received { socket, bytes: whole });
                }
            }
        }
    }

    pub fn step(&mut self, n: usize, input: Input) {
        let mut effects = Effects::new();
        self.nodes[n].endpoint.step(self.now, input, &mut effects);
        self.nodes[n].endpoint.read_on(self.now, &mut effects);
        self.follow(n, effects);
    }

    fn follow(&mut self, n: usize, mut effects: Effects<Effect>) {
        self.nodes[n].endpoint.check();
        let mut read_again = Vec::new();
        for effect in effects.take() {
            match effect {
                Effect::Open { socket, to } => self.fly(Delivery::Call { from: n, socket, to }),
                Effect::Shut { socket } => self.shut(n, socket),
                Effect::Reading { socket, on: true } => read_again.push(socket),
                Effect::Reading { .. } => {}
                Effect::Refused { why, .. } => self.nodes[n].refused.push(why),
                Effect::Move { .. } => unreachable!("these endpoints have one core"),
                Effect::Event(NetEvent::Auth { conn, request }) if self.nodes[n].monitor.is_some() => {
                    let reply = self.nodes[n].monitor.as_mut().unwrap().judge(conn, *request);
                    self.role(n, NetEffect::AuthReply { conn, reply: reply.into() });
                }
                Effect::Event(event) => self.nodes[n].events.push(event),
            }
        }
        let mut dirty = Vec::new();
        if !self.nodes[n].is_unheard {
            self.nodes[n].endpoint.take_dirty(&mut dirty);
        }
        for socket in dirty {
            let Some(queue) = self.nodes[n].endpoint.outgoing(socket) else { continue };
            let bytes: Vec<u8> = queue.take().flat_map(|b| b.to_vec()).collect();
            self.send(n, socket, bytes);
            self.step(n, Input::Wrote { socket });
        }
        for socket in read_again {
            if let Some(bytes) = self.nodes[n].unread.remove(&socket) {
                self.give(n, socket, &bytes);
            }
        }
    }

    fn send(&mut self, n: usize, socket: SocketId, mut bytes: Vec<u8>) {
        let Some(far) = self.nodes[n].open.get(&socket).copied() else { return };
        let end = self.carried + bytes.len() as u64;
        let cut = self.cut_at.filter(|at| (self.carried..end).contains(at));
        if let Some(at) = cut {
            bytes.truncate((at - self.carried) as usize);
            self.cut_at = None;
        }
        self.carried = end;
        while !bytes.is_empty() {
            let len = (1 + self.random.below(20_000) as usize).min(bytes.len());
            let rest = bytes.split_off(len);
            self.fly(Delivery::Bytes { to: far.node, socket: far.socket, bytes });
            bytes = rest;
        }
        if cut.is_some() {
            self.fly(Delivery::Broken { to: far.node, socket: far.socket });
            self.fly(Delivery::Broken { to: n, socket });
        }
    }

    pub fn shut(&mut self, n: usize, socket: SocketId) {
        if let Some(far) = self.nodes[n].open.remove(&socket) {
            self.fly(Delivery::Broken { to: far.node, socket: far.socket });
        }
    }

    /// Cut every socket.
    pub fn cut_all(&mut self) {
        for n in 0..self.nodes.len() {
            for socket in self.nodes[n].open.keys().copied().collect::<Vec<_>>() {
                self.fly(Delivery::Broken { to: n, socket });
            }
        }
    }

    /// One delay for all keeps the order on each socket.
    fn fly(&mut self, delivery: Delivery) {
        self.flown += 1;
        self.flying.insert((self.now + Duration::from_micros(100), self.flown), delivery);
    }
}

/// A message whose content is a number and as many bytes as said.
pub(super) fn message(n: u64, data_len: usize) -> Message {
    let header = Header { tid: n, kind: 60_000, priority: 127, version: 1, compat: 1 };
    let front = Bytes::copy_from_slice(&n.to_le_bytes());
    let payload =
        Payload { front, middle: Bytes::new(), data: vec![n as u8; data_len].into(), data_sum: None };
    Message { tid: n, priority: 127, body: Body::Unknown(Box::new(UnknownMessage { header, payload })) }
}

impl Node {
    pub fn received(&self) -> Vec<u64> {
        let message = |e: &NetEvent| match e {
            NetEvent::Message { message, .. } => Some(message.tid),
            _ => None,
        };
        self.events.iter().filter_map(message).collect()
    }

    pub fn peers(&self) -> Vec<(ConnId, Peer)> {
        let ready = |e: &NetEvent| match e {
            NetEvent::Ready { conn, peer } => Some((*conn, Peer::clone(peer))),
            _ => None,
        };
        self.events.iter().filter_map(ready).collect()
    }

    pub fn closed(&self) -> Vec<CloseReason> {
        let closed = |e: &NetEvent| match e {
            NetEvent::Closed { why, .. } => Some(why.clone()),
            _ => None,
        };
        self.events.iter().filter_map(closed).collect()
    }

    pub fn grant(&self) -> Option<Grant> {
        self.events.iter().rev().find_map(|e| match e {
            NetEvent::Granted { grant, .. } => Some(grant.clone()),
            _ => None,
        })
    }
}

/// A peer that writes its own bytes, under `auth none`: what it sends comes when the test says.
pub(super) struct RawPeer {
    pub socket: SocketId,
    node: usize,
    encoder: FrameEncoder,
}

impl RawPeer {
    /// Calls node `node` in the name of `name`, and is authenticated.
    pub fn call(w: &mut World, node: usize, name: &str, global_id: u64) -> RawPeer {
        let mut effects = Effects::new();
        let socket = w.nodes[node].endpoint.accept(w.now, "10.9.9.9:1".parse().unwrap(), &mut effects);
        let mut peer = RawPeer { socket, node, encoder: FrameEncoder::new() };
        let name: AuthName = name.parse().unwrap();
        let mut queue = WriteQueue::new();
        queue.put(&Banner::OURS.encode());
        let opening = [
            Control::Hello { kind: name.kind, peer_addr: EntityAddr::default() },
            Control::AuthRequest {
                method: METHOD_NONE,
                preferred_modes: vec![MODE_CRC],
                payload: name.hello_service(global_id),
            },
        ];
        opening.iter().for_each(|frame| peer.encoder.control(frame, &mut queue));
        peer.write(w, &bytes_of(queue));
        peer.control(w, &Control::AuthSignature { signature: [0; 32] });
        peer
    }

    pub fn control(&mut self, w: &mut World, frame: &Control) {
        let mut queue = WriteQueue::new();
        self.encoder.control(frame, &mut queue);
        self.write(w, &bytes_of(queue));
    }

    /// A new lossy session under its global id.
    pub fn ident(&mut self, w: &mut World) {
        let to = w.addrs(self.node).0[0];
        let ident = Control::ClientIdent {
            addrs: EntityAddr::msgr2("10.9.9.9:1".parse().unwrap(), 1).into(),
            target: to,
            id: -1,
            global_seq: 1,
            supported: wire::features::SUPPORTED,
            required: codec::Features::NONE,
            flags: CONNECT_LOSSY,
            cookie: 0,
        };
        self.control(w, &ident);
    }

    /// The bytes of its next message.
    pub fn frame_of(&mut self, seq: u64, message: &Message) -> Vec<u8> {
        let (header, out) = message.encode(wire::features::SUPPORTED);
        let header = MessageHeader { seq, ack_seq: 0, data_offset: out.data_offset, header };
        let mut queue = WriteQueue::new();
        self.encoder.message(&header, out.front.into_vec(), out.middle, out.data, &mut queue);
        bytes_of(queue)
    }

    pub fn write(&self, w: &mut World, bytes: &[u8]) {
        w.give(self.node, self.socket, bytes);
    }
}

fn bytes_of(mut queue: WriteQueue) -> Vec<u8> {
    queue.take().flat_map(|b| b.to_vec()).collect()
}

/// Bytes as a stranger would send them, to one endpoint.
pub(super) fn stranger(endpoint: &mut Endpoint, now: Time, bytes: &[u8]) -> (SocketId, Vec<Effect>) {
    let mut effects = Effects::new();
    let socket = endpoint.accept(now, "10.9.9.9:1".parse().unwrap(), &mut effects);
    endpoint.step(now, Input::Received { socket, bytes: BytesMut::from(bytes) }, &mut effects);
    (socket, effects.take())
}
