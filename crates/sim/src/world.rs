//! The world: nodes, the network between them, one clock, one queue of what happens next.
//!
//! Everything random is drawn from the seed, in streams of their own for the network and the faults, so that
//! a change in the one does not shift the other. Events at the same time happen in the order in which they were
//! put down. Two runs of one seed are the same event by event; [`Trace::hash`] tells.

use crate::network::{Arrival, BytesNetwork, Cx, EndpointConfig, MessageNetwork, Network, Station, Weather};
use crate::node::{Death, Life, Node, NodeId};
use crate::trace::Trace;
use machine::net::{NetEffect, NetEvent};
use machine::{Random, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub struct World {
    now: Time,
    nodes: Vec<Box<dyn Node>>,
    /// What the network knows of each, kept up to date.
    stations: Vec<Station>,
    network: Network,
    weather: Weather,
    network_random: Random,
    fault_random: Random,
    /// Who dies when it next writes, if that is before a time; of what, and how long it is down.
    ambushes: BTreeMap<NodeId, (Time, Death, Duration)>,
    queue: BTreeMap<(Time, u64), Event>,
    queued: u64,
    trace: Trace,
    work: VecDeque<Work>,
}

/// What the present event has yet to lead to, at the same moment.
enum Work {
    Event(NodeId, NetEvent),
    Effect(NodeId, NetEffect),
}

#[derive(Debug)]
enum Event {
    Arrival(Arrival),
    Start(NodeId),
    /// A stalled node is reachable again.
    Unstall(NodeId),
}

/// What the simulator does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One connection breaks.
    Break,
    /// The process dies, and starts again after a while.
    Crash { node: NodeId, death: Death, down_for: Duration },
    /// The same, at the first moment within a time at which its disk is writing: what it has said by then arrives.
    CrashWriting { node: NodeId, death: Death, within: Duration, down_for: Duration },
    /// The same as a crash, and it comes back with nothing on its disk. More than a cluster of one copy survives.
    LoseDisk { node: NodeId, down_for: Duration },
    /// The node's disk is slow for a while.
    SlowDisk { node: NodeId, slow_for: Duration },
    /// The node's disk answers nothing for a while.
    StallDisk { node: NodeId, stalled_for: Duration },
    /// A bit of what the node's disk holds flips.
    FlipBit { node: NodeId },
    /// Something on the node's disk cannot be read for a while.
    FailReads { node: NodeId, fails_for: Duration },
    /// Nothing reaches or leaves the node for a while; then it all arrives.
    Stall { node: NodeId, stalled_for: Duration },
}

impl World {
    pub fn with_messages(seed: u64) -> World {
        World::new(seed, Network::Messages(MessageNetwork::default()))
    }

    /// With session machines; `config` says how each node's is set up.
    pub fn with_bytes(seed: u64, config: impl Fn(NodeId, Life) -> messenger::Config + 'static) -> World {
        let config: EndpointConfig = Box::new(config);
        World::new(seed, Network::Bytes(Box::new(BytesNetwork::new(config))))
    }

    fn new(seed: u64, network: Network) -> World {
        let mut random = Random::from_number(seed);
        World {
            // Not zero, so that no machine's "never" looks like now.
            now: Time(1_000_000_000),
            nodes: Vec::new(),
            stations: Vec::new(),
            network,
            weather: Weather::default(),
            network_random: random.fork(),
            fault_random: random.fork(),
            ambushes: BTreeMap::new(),
            queue: BTreeMap::new(),
            queued: 0,
            trace: Trace::default(),
            work: VecDeque::new(),
        }
    }

    /// A node that is down until it is started.
    pub fn add(&mut self, node: Box<dyn Node>) -> NodeId {
        self.stations.push(Station {
            name: node.name(),
            addrs: node.addrs(),
            cores: node.cores(),
            judges: node.judges(),
            is_up: false,
            life: 0,
        });
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    pub fn start(&mut self, node: NodeId) {
        self.put(self.now, Event::Start(node));
    }

    /// What does not agree with itself on the disks of those who are up. For the end: they do not go on as before.
    pub fn examine(&mut self) -> Vec<String> {
        let up = self.nodes.iter_mut().zip(&self.stations).filter(|(_, station)| station.is_up);
        up.filter_map(|(node, _)| node.examine().err().map(|why| format!("{}: {why}", node.name()))).collect()
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    pub fn is_up(&self, node: NodeId) -> bool {
        self.stations[node.0].is_up
    }

    fn put(&mut self, at: Time, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    /// Run for a while.
    pub fn run(&mut self, span: Duration) {
        self.run_while(span, || true);
    }

    /// Run for a while, but not further than the event after which `go_on` says no.
    pub fn run_while(&mut self, span: Duration, go_on: impl Fn() -> bool) {
        let end = self.now + span;
        while self.step(end) {
            if !go_on() {
                return;
            }
        }
        self.now = end;
    }

    /// The next event, if it comes by `end`.
    fn step(&mut self, end: Time) -> bool {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let up = self.nodes.iter().zip(&self.stations).enumerate().filter(|(_, (_, station))| station.is_up);
        let woken = up.filter_map(|(i, (node, _))| Some((node.next_wake()?, i))).min();
        let sessions = self.network.next_deadline();
        let earliest = Time::earliest(queued, Time::earliest(woken.map(|(at, _)| at), sessions));
        let Some(at) = earliest.filter(|at| *at <= end) else { return false };
        self.now = self.now.max(at);
        if queued == Some(at) {
            let (_, event) = self.queue.pop_first().expect("its time was just read");
            self.happen(event);
        } else if let Some((_, node)) = woken.filter(|(t, _)| *t == at) {
            self.trace.event(self.now, node, "wake", &[]);
            self.with_node(NodeId(node), |node, now, out| node.wake(now, out));
        } else {
            self.with_network(|network, cx| network.deadline(cx));
        }
        self.settle();
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(arrival) => self.with_network(|network, cx| network.arrive(cx, arrival)),
            Event::Start(node) => {
                let station = &mut self.stations[node.0];
                if station.is_up {
                    return;
                }
                station.is_up = true;
                station.life += 1;
                let life = station.life;
                self.trace.event(self.now, node.0, "start", &life.to_le_bytes());
                self.trace.note(|| format!("{:?} {node:?} starts, life {life}", self.now));
                self.with_network(|network, cx| network.started(cx, node));
                self.with_node(node, |node, now, out| node.start(now, out));
                self.stations[node.0].addrs = self.nodes[node.0].addrs();
            }
            Event::Unstall(node) => {
                if self.weather.stalls.get(&node).is_some_and(|until| *until <= self.now) {
                    self.weather.stalls.remove(&node);
                }
            }
        }
    }

    pub fn fault(&mut self, fault: Fault) {
        self.trace.event(self.now, 0, "fault", format!("{fault:?}").as_bytes());
        self.trace.note(|| format!("{:?} fault {fault:?}", self.now));
        match fault {
            Fault::Break => {
                self.trace.cover("fault: connection broken");
                self.with_network(|network, cx| {
                    network.break_one(cx);
                });
            }
            Fault::Crash { node, death, down_for } => {
                if self.crash(node, death, down_for) {
                    self.trace.cover(&format!("fault: {} {}", self.kind_of(node), words_of(death)));
                }
            }
            Fault::CrashWriting { node, death, within, down_for } => {
                self.ambushes.insert(node, (self.now + within, death, down_for));
            }
            Fault::LoseDisk { node, down_for } => {
                if self.crash(node, Death::Process, down_for) {
                    self.trace.cover(&format!("fault: {} lost its disk", self.kind_of(node)));
                    self.nodes[node.0].lose_disk();
                }
            }
            Fault::SlowDisk { node, slow_for } => {
                self.trace.cover(&format!("fault: {}'s disk was slow", self.kind_of(node)));
                self.nodes[node.0].slow_disk(self.now + slow_for);
            }
            Fault::StallDisk { node, stalled_for } => {
                self.trace.cover(&format!("fault: {}'s disk stalled", self.kind_of(node)));
                self.nodes[node.0].stall_disk(self.now + stalled_for);
            }
            Fault::FlipBit { node } => {
                if self.stations[node.0].is_up && self.nodes[node.0].flip_bit() {
                    self.trace.cover(&format!("fault: a bit on {}'s disk flips", self.kind_of(node)));
                }
            }
            Fault::FailReads { node, fails_for } => {
                if self.stations[node.0].is_up && self.nodes[node.0].fail_reads(self.now + fails_for) {
                    let kind = self.kind_of(node);
                    self.trace.cover(&format!("fault: something on {kind}'s disk could not be read"));
                }
            }
            Fault::Stall { node, stalled_for } => {
                self.trace.cover(&format!("fault: {} stalled", self.kind_of(node)));
                let until = self.now + stalled_for;
                self.weather.stalls.insert(node, until);
                self.put(until, Event::Unstall(node));
            }
        }
        self.settle();
    }

    /// The process dies, if it was alive.
    fn crash(&mut self, node: NodeId, death: Death, down_for: Duration) -> bool {
        if !self.stations[node.0].is_up {
            return false;
        }
        self.with_network(|network, cx| network.died(cx, node));
        self.stations[node.0].is_up = false;
        self.nodes[node.0].crash(self.now, death, &mut self.fault_random);
        self.put(self.now + down_for, Event::Start(node));
        true
    }

    /// Those who were to die in the middle of a write, and are in one, do.
    fn spring_ambushes(&mut self) {
        if self.ambushes.is_empty() {
            return;
        }
        let now = self.now;
        self.ambushes.retain(|_, (until, ..)| now < *until);
        let writes = |(node, (_, death, down_for)): (&NodeId, &(Time, Death, Duration))| {
            let is_it = self.stations[node.0].is_up && self.nodes[node.0].is_writing();
            is_it.then_some((*node, *death, *down_for))
        };
        let caught: Vec<(NodeId, Death, Duration)> = self.ambushes.iter().filter_map(writes).collect();
        for (node, death, down_for) in caught {
            self.ambushes.remove(&node);
            self.trace.event(now, node.0, "crashes while it writes", &[]);
            self.trace.note(|| format!("{now:?} {node:?} crashes while it writes"));
            self.trace.cover(&format!("fault: {} {} while it wrote", self.kind_of(node), words_of(death)));
            self.crash(node, death, down_for);
        }
    }

    fn kind_of(&self, node: NodeId) -> &'static str {
        self.nodes[node.0].name().kind.name()
    }

    fn with_node(&mut self, id: NodeId, f: impl FnOnce(&mut dyn Node, Time, &mut Vec<NetEffect>)) {
        if !self.stations[id.0].is_up {
            return;
        }
        let node = &mut self.nodes[id.0];
        let mut out = Vec::new();
        f(node.as_mut(), self.now, &mut out);
        node.check();
        self.stations[id.0].name = node.name();
        let trace = &mut self.trace;
        node.states(&mut |state| trace.cover(state));
        self.work.extend(out.into_iter().map(|effect| Work::Effect(id, effect)));
    }

    /// Lend the network what it works with.
    fn with_network(&mut self, f: impl FnOnce(&mut Network, &mut Cx<'_>)) {
        let mut schedule = Vec::new();
        let mut events = VecDeque::new();
        let mut cx = Cx {
            now: self.now,
            random: &mut self.network_random,
            weather: &mut self.weather,
            stations: &self.stations,
            trace: &mut self.trace,
            schedule: &mut schedule,
            events: &mut events,
        };
        f(&mut self.network, &mut cx);
        for (at, arrival) in schedule {
            self.put(at, Event::Arrival(arrival));
        }
        self.work.extend(events.into_iter().map(|(node, event)| Work::Event(node, event)));
    }

    /// Carry events to nodes and effects to the network until neither is left.
    fn settle(&mut self) {
        self.carry();
        self.spring_ambushes();
        self.carry();
        self.network.check();
    }

    fn carry(&mut self) {
        while let Some(work) = self.work.pop_front() {
            match work {
                Work::Event(node, event) => {
                    self.with_node(node, |node, now, out| node.on_net(now, event, out))
                }
                Work::Effect(node, effect) => {
                    self.with_network(|network, cx| network.effect(cx, node, effect))
                }
            }
        }
    }
}

fn words_of(death: Death) -> &'static str {
    match death {
        Death::Process => "crashed",
        Death::Power => "lost its power",
    }
}
