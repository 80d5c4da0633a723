//! A deterministic cluster: members, disks and network in virtual time, from one seed.
//!
//! Time has units. A member ticks every few units, each at its own rate; messages and writes take some units. Every
//! output is checked when it appears: the same entries in the same order everywhere, each once; one leader a term; the
//! same members at the same entry; no read that misses what was acknowledged before it.

use crate::replication::Recovered;
use crate::replication::quorum::{Event as Output, Members, Quorum, Role};
use bytes::Bytes;
use machine::{Random, Tag};
use std::collections::{BTreeMap, BTreeSet};

/// An entry of a host: its index, and a value that is proposed once.
pub type Applied = (u64, u64);

pub struct Node {
    pub quorum: Option<Quorum>,
    pub disk: Recovered,
    pub state: Vec<Applied>,
    pub role: Role,
    pub tick_every: u64,
    pub disk_units_max: u64,
    life: u64,
    next_tick: u64,
    /// Entries after which the host takes a snapshot.
    snapshot_every: usize,
    snapshot_len: usize,
    /// Reads that wait, each with the number of entries that were acknowledged when it was asked.
    reads: BTreeMap<u64, usize>,
}

enum Event {
    Message { from: u64, to: u64, bytes: Bytes },
    Written { id: u64, life: u64, tag: Tag, write: crate::replication::Write },
}

pub struct Cluster {
    pub random: Random,
    pub nodes: BTreeMap<u64, Node>,
    events: BTreeMap<(u64, u64), Event>,
    pub now: u64,
    made: u64,
    /// Directions in which messages are lost.
    pub cut: BTreeSet<(u64, u64)>,
    pub loss_percent: u64,
    pub corrupt_percent: u64,
    /// Entries that any host was handed, in order.
    pub truth: Vec<Applied>,
    values: BTreeSet<u64>,
    pub members: (u64, Members),
    members_at: BTreeMap<u64, Members>,
    leaders: BTreeMap<u64, u64>,
    pub trace: u64,
    next_value: u64,
    pub next_id: u64,
    pub reads_answered: usize,
    pub states_installed: usize,
    pub changes: usize,
    pub writes: usize,
    pub leaders_removed: usize,
    pub is_checked: bool,
}

pub fn encode(state: &[Applied]) -> Bytes {
    let numbers = state.iter().flat_map(|(index, value)| [*index, *value]);
    numbers.flat_map(u64::to_le_bytes).collect::<Vec<_>>().into()
}

pub fn decode(bytes: &[u8]) -> Vec<Applied> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    bytes.chunks_exact(16).map(|pair| (number(&pair[..8]), number(&pair[8..]))).collect()
}

impl Cluster {
    /// A new cluster whose members are 1 to `members`.
    pub fn new(seed: u64, members: u64) -> Cluster {
        let ids: Vec<u64> = (1..=members).collect();
        let mut cluster = Cluster {
            random: Random::from_number(seed),
            nodes: BTreeMap::new(),
            events: BTreeMap::new(),
            now: 0,
            made: 0,
            cut: BTreeSet::new(),
            loss_percent: 0,
            corrupt_percent: 0,
            truth: Vec::new(),
            values: BTreeSet::new(),
            members: (1, Members::of_voters(&ids)),
            members_at: BTreeMap::new(),
            leaders: BTreeMap::new(),
            trace: 0,
            next_value: 0,
            next_id: members + 1,
            reads_answered: 0,
            states_installed: 0,
            changes: 0,
            writes: 0,
            leaders_removed: 0,
            is_checked: true,
        };
        for id in &ids {
            let mut disk = Recovered::default();
            disk.apply(Quorum::format(&ids, encode(&[])));
            cluster.add_node(*id, disk);
        }
        cluster
    }

    pub fn add_node(&mut self, id: u64, disk: Recovered) {
        let node = Node {
            quorum: None,
            disk,
            state: Vec::new(),
            role: Role::Joining,
            tick_every: 4 + self.random.below(5),
            disk_units_max: 6,
            life: 0,
            next_tick: self.now + 1,
            snapshot_every: 5 + self.random.below(20) as usize,
            snapshot_len: 0,
            reads: BTreeMap::new(),
        };
        self.nodes.insert(id, node);
        self.start(id);
    }

    pub fn start(&mut self, id: u64) {
        let random = self.random.fork();
        let node = self.nodes.get_mut(&id).expect("a node");
        node.life += 1;
        node.state = node.disk.snapshot.as_ref().map(|(_, state)| decode(state)).unwrap_or_default();
        node.snapshot_len = node.state.len();
        node.reads.clear();
        let mut quorum = Quorum::recover(id, node.life, node.disk.clone(), random).expect("its own disk");
        quorum.set_retention(8, 1 << 20);
        node.role = quorum.role();
        node.quorum = Some(quorum);
        self.settle(id);
    }

    /// The member dies. Its write under way is on the disk, or is not.
    pub fn crash(&mut self, id: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.quorum.take().is_none() {
            return;
        }
        let is_written = self.random.below(2) == 0;
        let of_node = |event: &Event| matches!(event, Event::Written { id: of, .. } if *of == id);
        let keys: Vec<_> =
            self.events.iter().filter(|(_, event)| of_node(event)).map(|(key, _)| *key).collect();
        for key in keys {
            let Some(Event::Written { life, write, .. }) = self.events.remove(&key) else { continue };
            if is_written && life == node.life {
                node.disk.apply(write);
            }
        }
    }

    pub fn schedule_message(&mut self, from: u64, to: u64, bytes: Bytes) {
        let units = 1 + self.random.below(6);
        self.schedule(units, Event::Message { from, to, bytes });
    }

    fn schedule(&mut self, units: u64, event: Event) {
        self.made += 1;
        self.events.insert((self.now + units, self.made), event);
    }

    fn note(&mut self, number: u64) {
        self.trace = (self.trace ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(5);
    }

    /// Carries out and checks what a member has to say.
    pub fn settle(&mut self, id: u64) {
        loop {
            let Some(quorum) = self.nodes.get_mut(&id).and_then(|node| node.quorum.as_mut()) else { return };
            let outcome = quorum.take();
            let is_empty = outcome == Default::default();
            for (to, bytes) in outcome.send {
                self.post(id, to, bytes);
            }
            if let Some((tag, write)) = outcome.write {
                self.writes += 1;
                let node = &self.nodes[&id];
                let (life, units_max) = (node.life, node.disk_units_max);
                let units = 1 + self.random.below(units_max);
                self.schedule(units, Event::Written { id, life, tag, write });
            }
            for event in outcome.events {
                self.observe(id, event);
            }
            if is_empty {
                return;
            }
        }
    }

    fn post(&mut self, from: u64, to: u64, bytes: Bytes) {
        if self.cut.contains(&(from, to)) || self.random.below(100) < self.loss_percent {
            return;
        }
        let copies = 1 + u64::from(self.random.below(100) < 4);
        for _ in 0..copies {
            let mut bytes = bytes.clone();
            if self.corrupt_percent > 0 && self.random.below(100) < self.corrupt_percent {
                bytes = self.corrupt(bytes);
            }
            self.schedule_message(from, to, bytes);
        }
    }

    fn corrupt(&mut self, bytes: Bytes) -> Bytes {
        let mut bytes = bytes.to_vec();
        for _ in 0..1 + self.random.below(3) {
            let at = self.random.below(bytes.len() as u64) as usize;
            match self.random.below(3) {
                0 => bytes[at] ^= 1 << self.random.below(8),
                1 => bytes[at] = self.random.below(256) as u8,
                _ => bytes.truncate(at.max(1)),
            }
        }
        bytes.into()
    }

    fn observe(&mut self, id: u64, event: Output) {
        match event {
            Output::Committed { index, entry } => {
                let value = u64::from_le_bytes(entry[..].try_into().unwrap_or_default());
                self.on_committed(id, (index, value));
            }
            Output::Installed { index, state } => {
                self.states_installed += 1;
                let state = decode(&state);
                self.note(index << 8 ^ id);
                let node = self.nodes.get_mut(&id).expect("a node");
                node.snapshot_len = state.len();
                if self.is_checked {
                    assert!(state.len() >= node.state.len(), "member {id} goes back by an installed state");
                    let common = state.len().min(self.truth.len());
                    assert_eq!(state[..], self.truth[..common], "member {id} installs another history");
                    assert!(state.last().is_none_or(|(last, _)| *last <= index));
                }
                node.state = state;
            }
            Output::Members { index, members } => {
                self.note(index << 16 ^ id ^ members.id_max << 32);
                let known = self.members_at.entry(index).or_insert_with(|| members.clone());
                if self.is_checked {
                    // An installed state repeats the members of an earlier entry at a later index.
                    assert_eq!(*known, members, "members differ at {index}");
                }
                if index > self.members.0 {
                    self.changes += usize::from(self.members.1 != members);
                    self.members = (index, members);
                }
            }
            Output::Role(role) => {
                let before = std::mem::replace(&mut self.nodes.get_mut(&id).expect("a node").role, role);
                let is_own_removal = role == Role::Removed && matches!(before, Role::Leader { .. });
                self.leaders_removed += usize::from(is_own_removal);
                if let Role::Leader { term, .. } = role {
                    self.note(term << 24 ^ id);
                    let leader = *self.leaders.entry(term).or_insert(id);
                    assert!(
                        !self.is_checked || leader == id,
                        "two leaders in term {term}: {leader} and {id}"
                    );
                }
            }
            Output::Readable { read, index } => {
                let node = self.nodes.get_mut(&id).expect("a node");
                let acknowledged = node.reads.remove(&read).expect("a read is answered once");
                if self.is_checked {
                    assert!(node.state.len() >= acknowledged, "a read at {id} misses an acknowledged entry");
                }
                self.reads_answered += 1;
                self.note(read ^ index << 20);
            }
            Output::StateWanted { .. } => self.snapshot(id),
        }
    }

    fn on_committed(&mut self, id: u64, applied: Applied) {
        self.note(applied.0 << 20 ^ applied.1 << 4 ^ id);
        let node = self.nodes.get_mut(&id).expect("a node");
        let at = node.state.len();
        node.state.push(applied);
        if self.is_checked {
            match self.truth.get(at) {
                Some(known) => assert_eq!(*known, applied, "member {id} contradicts another"),
                None => {
                    assert!(self.truth.last().is_none_or(|(last, _)| *last < applied.0), "indices ascend");
                    assert!(self.values.insert(applied.1), "entry {applied:?} came twice");
                    self.truth.push(applied);
                }
            }
        }
        let node = &self.nodes[&id];
        if node.state.len() >= node.snapshot_len + node.snapshot_every {
            self.snapshot(id);
        }
    }

    /// The host of a member hands in its present state.
    pub fn snapshot(&mut self, id: u64) {
        let node = self.nodes.get_mut(&id).expect("a node");
        let index = node.state.last().map_or(1, |(index, _)| *index);
        node.snapshot_len = node.state.len();
        let state = encode(&node.state);
        if let Some(quorum) = node.quorum.as_mut() {
            quorum.snapshot(index, state);
        }
    }

    pub fn leader(&self) -> Option<u64> {
        let is_leader = |node: &Node| {
            node.quorum
                .as_ref()
                .is_some_and(|quorum| matches!(quorum.role(), Role::Leader { is_established: true, .. }))
        };
        let of_term = |node: &Node| match node.role {
            Role::Leader { term, .. } => term,
            _ => 0,
        };
        let leaders = self.nodes.iter().filter(|(_, node)| is_leader(node));
        leaders.max_by_key(|(_, node)| of_term(node)).map(|(id, _)| *id)
    }

    pub fn quorum(&mut self, id: u64) -> &mut Quorum {
        self.nodes.get_mut(&id).and_then(|node| node.quorum.as_mut()).expect("a member that runs")
    }

    /// Proposes one value at every member that takes it.
    pub fn propose_everywhere(&mut self) {
        for id in self.ids() {
            self.next_value += 1;
            let value = Bytes::copy_from_slice(&self.next_value.to_le_bytes());
            if let Some(quorum) = self.nodes.get_mut(&id).and_then(|node| node.quorum.as_mut()) {
                let _ = quorum.propose(value);
            }
            self.settle(id);
        }
    }

    pub fn read(&mut self, id: u64) {
        let acknowledged = self.truth.len();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(quorum) = node.quorum.as_mut() {
            let read = quorum.read();
            node.reads.insert(read, acknowledged);
        }
        self.settle(id);
    }

    pub fn ids(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    pub fn pick(&mut self, ids: &[u64]) -> u64 {
        ids[self.random.below(ids.len() as u64) as usize]
    }

    /// One unit of time.
    pub fn step(&mut self) {
        self.now += 1;
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            match entry.remove() {
                Event::Message { from, to, bytes } => {
                    self.note(from << 32 ^ to << 40 ^ bytes.len() as u64);
                    if let Some(quorum) = self.nodes.get_mut(&to).and_then(|node| node.quorum.as_mut()) {
                        let _ = quorum.receive(from, &bytes);
                        self.settle(to);
                    }
                }
                Event::Written { id, life, tag, write } => {
                    let Some(node) = self.nodes.get_mut(&id) else { continue };
                    if node.life == life
                        && let Some(quorum) = node.quorum.as_mut()
                    {
                        node.disk.apply(write);
                        quorum.on_written(tag);
                        self.settle(id);
                    }
                }
            }
        }
        for id in self.ids() {
            let node = self.nodes.get_mut(&id).expect("a node");
            if self.now >= node.next_tick {
                node.next_tick = self.now + node.tick_every;
                if let Some(quorum) = node.quorum.as_mut() {
                    quorum.tick();
                    self.settle(id);
                }
            }
        }
    }

    /// Every member's state, for the output of a test that fails.
    pub fn print(&self) {
        println!("time {}, {} entries, cut {:?}, {:?}", self.now, self.truth.len(), self.cut, self.members);
        for (id, node) in &self.nodes {
            let status = node.quorum.as_ref().map(|quorum| quorum.status());
            println!("{id}: {} entries, {} reads, {status:?}", node.state.len(), node.reads.len());
        }
    }

    pub fn run(&mut self, units: u64) {
        (0..units).for_each(|_| self.step());
    }

    /// Runs until `done`, for at most `units`. False when the time was not enough.
    pub fn run_until(&mut self, units: u64, done: impl Fn(&Cluster) -> bool) -> bool {
        for _ in 0..units {
            if done(self) {
                return true;
            }
            self.step();
        }
        done(self)
    }

    pub fn cut_both_ways(&mut self, a: u64, b: u64) {
        self.cut.extend([(a, b), (b, a)]);
    }

    pub fn isolate(&mut self, id: u64) {
        for other in self.ids() {
            if other != id {
                self.cut_both_ways(id, other);
            }
        }
    }

    /// The network is whole again, and every member runs.
    pub fn heal(&mut self) {
        self.loss_percent = 0;
        self.corrupt_percent = 0;
        for id in self.ids() {
            self.nodes.get_mut(&id).expect("a node").disk_units_max = 6;
            if self.nodes[&id].quorum.is_none() {
                self.start(id);
            }
        }
        for (from, to) in std::mem::take(&mut self.cut) {
            self.reset_session(from, to);
            self.reset_session(to, from);
        }
    }

    /// Every message that is on its way to a member is lost.
    pub fn lose_messages(&mut self, to: u64) {
        self.events.retain(|_, event| !matches!(event, Event::Message { to: of, .. } if *of == to));
    }

    pub fn reset_session(&mut self, at: u64, to: u64) {
        if let Some(quorum) = self.nodes.get_mut(&at).and_then(|node| node.quorum.as_mut()) {
            quorum.reset_session(to);
            self.settle(at);
        }
    }

    /// True when every member holds everything and votes, and no read waits.
    pub fn is_whole(&self) -> bool {
        let members = &self.members.1;
        members.learners.is_empty()
            && members.voters.iter().all(|id| {
                self.nodes.get(id).is_some_and(|node| {
                    node.state == self.truth
                        && node.reads.is_empty()
                        && node.quorum.as_ref().is_some_and(|quorum| quorum.members() == members)
                })
            })
    }
}
