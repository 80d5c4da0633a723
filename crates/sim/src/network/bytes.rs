//! Connections of the production session machines, over simulated sockets that carry bytes.
//!
//! A node's endpoints die with its process. A socket delivers bytes in order and in pieces of any length. It ends on both
//! sides when either end shuts it, when a process dies, or when the network resets it. A reset loses bytes in transit.

use super::{Arrival, Cx, Station};
use crate::node::{Life, NodeId};
use crate::trace::Source;
use bytes::{Bytes, BytesMut};
use machine::net::{NetEffect, NetEvent};
use machine::{CoreId, Effects, Machine, Random, Time};
use messenger::{Config, Effect, Endpoint, Input, Moved, ReadPlan, SocketId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The configuration of a node's endpoints in one of its lives, without the core.
pub(crate) type EndpointConfig = Box<dyn Fn(NodeId, Life) -> Config>;

pub(crate) struct BytesNetwork {
    config: EndpointConfig,
    hosts: BTreeMap<NodeId, Vec<CoreHost>>,
    pipes: BTreeMap<u64, Pipe>,
    pipes_made: u64,
}

/// The endpoint and sockets of one core of a process.
struct CoreHost {
    endpoint: Endpoint,
    sockets: BTreeMap<SocketId, (u64, usize)>,
    /// Sockets whose reading is paused, with the bytes that have arrived.
    unread: BTreeMap<SocketId, VecDeque<Bytes>>,
}

struct Pipe {
    ends: [PipeEnd; 2],
    is_open: bool,
}

struct PipeEnd {
    node: NodeId,
    life: Life,
    place: Place,
    arrives_after: Time,
}

/// The socket at one end of a pipe.
enum Place {
    /// Not accepted yet, or closed.
    Nowhere,
    Socket(CoreId, SocketId),
    /// Moving from one core to another, with the events that have arrived.
    BetweenCores(VecDeque<What>),
}

#[derive(Debug)]
pub(crate) struct BytesArrival {
    pipe: u64,
    /// [`CALLER`] or [`CALLED`].
    end: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    Call,
    Connected,
    Bytes(Bytes),
    Broken,
    /// Within a process: the session continues on this core.
    Moved(CoreId, Box<Moved>),
}

const CALLER: usize = 0;
const CALLED: usize = 1;
/// Maximum time of a session's move between cores. One in [`SLOW_MOVES_ONE_IN`] takes up to [`SLOW_MOVE_MAX`].
const MOVE_MAX: Duration = Duration::from_micros(100);
const SLOW_MOVE_MAX: Duration = Duration::from_millis(20);
const SLOW_MOVES_ONE_IN: u64 = 16;

impl BytesNetwork {
    pub fn new(config: EndpointConfig) -> BytesNetwork {
        BytesNetwork { config, hosts: BTreeMap::new(), pipes: BTreeMap::new(), pipes_made: 0 }
    }

    pub fn started(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Station { life, cores, .. } = *cx.station(node);
        let core = |core| {
            let config = Config { core: CoreId(core), core_count: cores, ..(self.config)(node, life) };
            let endpoint = Endpoint::new(config, Random::from_number(cx.random.u64()));
            CoreHost { endpoint, sockets: BTreeMap::new(), unread: BTreeMap::new() }
        };
        let cores = (0..cores).map(core).collect();
        self.hosts.insert(node, cores);
    }

    pub fn died(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(cores) = self.hosts.remove(&node) else { return };
        let ends =
            self.pipes.iter().flat_map(|(id, pipe)| [(id, CALLER, &pipe.ends), (id, CALLED, &pipe.ends)]);
        let is_between = |(_, end, ends): &(&u64, usize, &[PipeEnd; 2])| {
            ends[*end].node == node && matches!(ends[*end].place, Place::BetweenCores(_))
        };
        let between: Vec<(u64, usize)> = ends.filter(is_between).map(|(id, end, _)| (*id, end)).collect();
        let sockets = cores.into_iter().flat_map(|core| core.sockets.into_values());
        for (pipe, end) in sockets.chain(between) {
            self.send(cx, pipe, 1 - end, What::Broken);
        }
    }

    pub fn effect(&mut self, cx: &mut Cx<'_>, node: NodeId, effect: NetEffect) {
        if let NetEffect::HoldAtMost(len) = effect {
            let cores = cx.station(node).cores;
            return (0..cores).for_each(|core| {
                self.step(cx, node, CoreId(core), Input::Role(NetEffect::HoldAtMost(len)));
            });
        }
        self.step(cx, node, effect.core(CoreId(0)), Input::Role(effect));
    }

    pub fn next_deadline(&self, stations: &[Station]) -> Option<Time> {
        let running = self.hosts.iter().filter(|(node, _)| !stations[node.0].is_paused);
        let deadline = |(node, cores): (&NodeId, &Vec<CoreHost>)| {
            let at = cores.iter().filter_map(|core| core.endpoint.next_deadline()).min()?;
            Some(stations[node.0].clock.world(at))
        };
        running.filter_map(deadline).min()
    }

    pub fn deadline(&mut self, cx: &mut Cx<'_>) {
        let mut due = Vec::new();
        for (node, cores) in self.hosts.iter().filter(|(node, _)| !cx.station(**node).is_paused) {
            let now = cx.local(*node);
            for (core, host) in cores.iter().enumerate() {
                if host.endpoint.next_deadline().is_some_and(|at| at <= now) {
                    due.push((*node, CoreId(core as u16)));
                }
            }
        }
        due.into_iter().for_each(|(node, core)| self.step(cx, node, core, Input::Deadline));
    }

    fn core(&mut self, node: NodeId, core: CoreId) -> Option<&mut CoreHost> {
        self.hosts.get_mut(&node)?.get_mut(usize::from(core.0))
    }

    fn step(&mut self, cx: &mut Cx<'_>, node: NodeId, core: CoreId, input: Input) {
        let Some(host) = self.core(node, core) else { return };
        let (name, now) = (cx.station(node).name, cx.local(node));
        if host.endpoint.config().name != name {
            host.endpoint.set_name(name);
        }
        let mut effects = Effects::new();
        host.endpoint.step(now, input, &mut effects);
        host.endpoint.read_on(now, &mut effects);
        host.endpoint.check();
        cx.trace.states(Source::Endpoint(node, core), |see| host.endpoint.states(see));
        self.follow(cx, node, core, effects);
    }

    fn follow(&mut self, cx: &mut Cx<'_>, node: NodeId, core: CoreId, mut effects: Effects<Effect>) {
        for effect in effects.take() {
            match effect {
                Effect::Open { socket, to } => self.open(cx, node, core, socket, to),
                Effect::Shut { socket } => self.shut(cx, node, core, socket),
                Effect::Reading { socket, on } => self.set_reading(cx, node, core, socket, on),
                Effect::Refused { from, why } => {
                    let name = cx.station(node).name;
                    cx.trace.note(|| format!("{:?} {name} refuses {from}: {why:?}", cx.now));
                }
                Effect::Move { socket, to, session } => self.send_off(cx, node, core, socket, to, session),
                Effect::Event(event) => {
                    note(cx, node, &event);
                    cx.events.push_back((node, event));
                }
            }
        }
        let mut dirty = Vec::new();
        let Some(host) = self.core(node, core) else { return };
        host.endpoint.take_dirty(&mut dirty);
        for socket in dirty {
            let Some(host) = self.core(node, core) else { return };
            let Some(queue) = host.endpoint.outgoing(socket) else { continue };
            let mut bytes = BytesMut::new();
            queue.take().for_each(|piece| bytes.extend_from_slice(&piece));
            if let Some((pipe, end)) = host.sockets.get(&socket).copied() {
                self.send_in_pieces(cx, pipe, 1 - end, bytes.freeze());
            }
            self.step(cx, node, core, Input::Wrote { socket });
        }
    }

    fn open(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        core: CoreId,
        socket: SocketId,
        to: std::net::SocketAddr,
    ) {
        let at = |s: &Station| s.addrs.msgr2().and_then(|a| a.socket) == Some(to);
        let called = cx.stations.iter().position(at).map(NodeId);
        let Some(called) = called else {
            return self.step(cx, node, core, Input::Broken { socket, why: "no route".into() });
        };
        self.pipes_made += 1;
        let end =
            |node: NodeId, place| PipeEnd { node, life: cx.station(node).life, place, arrives_after: cx.now };
        let ends = [end(node, Place::Socket(core, socket)), end(called, Place::Nowhere)];
        self.pipes.insert(self.pipes_made, Pipe { ends, is_open: true });
        let pipe = self.pipes_made;
        if let Some(host) = self.core(node, core) {
            host.sockets.insert(socket, (pipe, CALLER));
        }
        self.send(cx, pipe, CALLED, What::Call);
    }

    fn shut(&mut self, cx: &mut Cx<'_>, node: NodeId, core: CoreId, socket: SocketId) {
        let Some(host) = self.core(node, core) else { return };
        host.unread.remove(&socket);
        if let Some((pipe, end)) = host.sockets.remove(&socket) {
            self.pipes.get_mut(&pipe).expect("a socket has its pipe").ends[end].place = Place::Nowhere;
            self.send(cx, pipe, 1 - end, What::Broken);
        }
    }

    fn set_reading(&mut self, cx: &mut Cx<'_>, node: NodeId, core: CoreId, socket: SocketId, on: bool) {
        let Some(host) = self.core(node, core) else { return };
        if !on {
            host.unread.entry(socket).or_default();
        } else if let Some(pieces) = host.unread.remove(&socket) {
            pieces.into_iter().for_each(|bytes| self.give(cx, node, core, socket, bytes));
        }
    }

    /// Sends a session to another core of its process.
    fn send_off(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        core: CoreId,
        socket: SocketId,
        to: CoreId,
        session: Box<Moved>,
    ) {
        let Some(host) = self.core(node, core) else { return };
        let unread = host.unread.remove(&socket).unwrap_or_default();
        let Some((pipe, end)) = host.sockets.remove(&socket) else { return };
        let waiting = unread.into_iter().map(What::Bytes).collect();
        self.pipes.get_mut(&pipe).expect("a socket has its pipe").ends[end].place =
            Place::BetweenCores(waiting);
        let max = if cx.random.below(SLOW_MOVES_ONE_IN) == 0 { SLOW_MOVE_MAX } else { MOVE_MAX };
        let at = cx.now + Duration::from_nanos(cx.random.below(max.as_nanos() as u64));
        let arrival = BytesArrival { pipe, end, what: What::Moved(to, session) };
        cx.schedule.push((at, Arrival::Bytes(arrival)));
    }

    /// Receives a session from another core.
    fn take_in(&mut self, cx: &mut Cx<'_>, id: u64, end: usize, core: CoreId, session: Box<Moved>) {
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let here = &mut pipe.ends[end];
        let Place::BetweenCores(waiting) = std::mem::replace(&mut here.place, Place::Nowhere) else { return };
        let (node, now) = (here.node, cx.local(here.node));
        let mut effects = Effects::new();
        let Some(host) = self.core(node, core) else { return };
        let socket = host.endpoint.receive_moved(now, *session, &mut effects);
        host.sockets.insert(socket, (id, end));
        self.pipes.get_mut(&id).expect("it was just there").ends[end].place = Place::Socket(core, socket);
        self.follow(cx, node, core, effects);
        waiting.into_iter().for_each(|what| self.arrive(cx, BytesArrival { pipe: id, end, what }));
    }

    fn send_in_pieces(&mut self, cx: &mut Cx<'_>, pipe: u64, to: usize, mut bytes: Bytes) {
        while !bytes.is_empty() {
            // One piece in eight is split at a random place, as by a socket.
            let cut = if cx.random.below(8) == 0 {
                1 + cx.random.below(bytes.len() as u64) as usize
            } else {
                bytes.len()
            };
            let piece = bytes.split_to(cut);
            self.send(cx, pipe, to, What::Bytes(piece));
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
        if let What::Call = what {
            return self.accept(cx, id);
        }
        let here = &mut pipe.ends[end];
        let node = here.node;
        if !cx.lives(node, here.life) {
            return;
        }
        if let What::Moved(core, session) = what {
            return self.take_in(cx, id, end, core, session);
        }
        let (core, socket) = match &mut here.place {
            Place::Nowhere => return,
            Place::BetweenCores(waiting) => return waiting.push_back(what),
            Place::Socket(core, socket) => (*core, *socket),
        };
        let is_open = pipe.is_open;
        match what {
            What::Connected => self.step(cx, node, core, Input::Connected { socket }),
            What::Bytes(_) if !is_open => {}
            What::Bytes(bytes) => {
                cx.trace.event(cx.now, node.0, "bytes", &bytes);
                let Some(host) = self.core(node, core) else { return };
                match host.unread.get_mut(&socket) {
                    Some(unread) => unread.push_back(bytes),
                    None => self.give(cx, node, core, socket, bytes),
                }
            }
            What::Broken => {
                cx.trace.event(cx.now, node.0, "broken", &[]);
                here.place = Place::Nowhere;
                let Some(host) = self.core(node, core) else { return };
                host.sockets.remove(&socket);
                host.unread.remove(&socket);
                self.step(cx, node, core, Input::Broken { socket, why: "reset".into() });
            }
            What::Call | What::Moved(..) => unreachable!("handled above"),
        }
    }

    /// A connection attempt arrives. The first core accepts, as in production.
    fn accept(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let (node, caller) = (pipe.ends[CALLED].node, pipe.ends[CALLER].node);
        if !pipe.is_open || !cx.station(node).is_up {
            return self.send(cx, id, CALLER, What::Broken);
        }
        let from =
            cx.station(caller).addrs.msgr2().and_then(|a| a.socket).expect("every node has an address");
        let core = CoreId(0);
        let mut effects = Effects::new();
        let Some(host) = self.core(node, core) else { return };
        let socket = host.endpoint.accept(cx.local(node), from, &mut effects);
        host.sockets.insert(socket, (id, CALLED));
        let end = &mut self.pipes.get_mut(&id).expect("it was just there").ends[CALLED];
        (end.place, end.life) = (Place::Socket(core, socket), cx.station(node).life);
        self.send(cx, id, CALLER, What::Connected);
        self.follow(cx, node, core, effects);
    }

    /// Delivers bytes as a host does: into the buffer of a large frame, or as a shared slice.
    fn give(&mut self, cx: &mut Cx<'_>, node: NodeId, core: CoreId, socket: SocketId, mut bytes: Bytes) {
        let Some(host) = self.core(node, core) else { return };
        let Some((pipe, end)) = host.sockets.get(&socket).copied() else { return };
        while !bytes.is_empty() {
            let Some(host) = self.core(node, core) else { return };
            if !host.sockets.contains_key(&socket) {
                // The socket was shut, or its session moved to another core and the rest follows it.
                if let Place::BetweenCores(waiting) =
                    &mut self.pipes.get_mut(&pipe).expect("it was open").ends[end].place
                {
                    waiting.push_back(What::Bytes(bytes));
                }
                return;
            }
            if let Some(unread) = host.unread.get_mut(&socket) {
                return unread.push_back(bytes);
            }
            match host.endpoint.read_plan(socket) {
                ReadPlan::Own(buffer, missing) => {
                    let part = bytes.split_to(missing.min(bytes.len()));
                    buffer.extend_from_slice(&part);
                    self.step(cx, node, core, Input::Filled { socket });
                }
                _ => {
                    let mut whole = host.endpoint.take_partial(socket);
                    whole.extend_from_slice(&bytes);
                    bytes = Bytes::new();
                    self.step(cx, node, core, Input::Received { socket, bytes: whole });
                }
            }
        }
    }

    pub fn destination(&self, arrival: &BytesArrival) -> Option<NodeId> {
        Some(self.pipes.get(&arrival.pipe)?.ends[arrival.end].node)
    }

    pub fn break_one(&mut self, cx: &mut Cx<'_>, pick: u64) -> bool {
        let is_alive = |end: &PipeEnd| cx.lives(end.node, end.life) && !matches!(end.place, Place::Nowhere);
        self.pipes.retain(|_, p| p.ends.iter().any(is_alive) || p.ends[CALLED].arrives_after >= cx.now);
        let is_open = |p: &Pipe| p.is_open && p.ends.iter().all(is_alive);
        let open: Vec<u64> = self.pipes.iter().filter(|(_, p)| is_open(p)).map(|(id, _)| *id).collect();
        let Some(place) = pick.checked_rem(open.len() as u64) else { return false };
        let id = open[place as usize];
        self.pipes.get_mut(&id).expect("just listed").is_open = false;
        self.send(cx, id, CALLER, What::Broken);
        self.send(cx, id, CALLED, What::Broken);
        true
    }
}

fn note(cx: &mut Cx<'_>, node: NodeId, event: &NetEvent) {
    let station = &cx.stations[node.0];
    if let NetEvent::Message { message, .. } = event {
        cx.trace.message(station.name.kind.name(), message.body.name());
    }
    let (now, name) = (cx.now, station.name);
    cx.trace.note(|| format!("{now:?} {name} < {event:?}"));
}
