//! Three monitors on one thread from one seed: messages are delayed, lost and cut off, monitors die with writes under
//! way and come back with what had reached their disks, and none ever contradicts another.

use super::{Quorum, Ticket};
use crate::replication::{Recovered, Write};
use bytes::Bytes;
use machine::{Random, Tag};
use std::collections::{BTreeMap, BTreeSet};

const MONITORS: u64 = 3;

#[derive(Clone, Default)]
struct Disk {
    vote: Option<Bytes>,
    snapshot: Option<(u64, Bytes)>,
    entries: BTreeMap<u64, Bytes>,
}

impl Disk {
    fn apply(&mut self, write: &Write) {
        if let Some(vote) = &write.vote {
            self.vote = Some(vote.clone());
        }
        for (number, bytes) in &write.entries {
            self.entries.retain(|n, _| n < number);
            self.entries.insert(*number, bytes.clone());
        }
        if let Some(snapshot) = &write.snapshot {
            self.snapshot = Some(snapshot.clone());
        }
        if let Some(through) = write.trim_through {
            self.entries.retain(|n, _| *n > through);
        }
    }

    fn recovered(&self) -> Recovered {
        Recovered {
            vote: self.vote.clone(),
            snapshot: self.snapshot.clone(),
            entries: self.entries.iter().map(|(n, b)| (*n, b.clone())).collect(),
        }
    }
}

/// A monitor and the state it keeps: the list of all that was committed.
struct Node {
    quorum: Option<Quorum>,
    disk: Disk,
    state: Vec<u64>,
    lives: u32,
}

enum Event {
    Message { from: u64, to: u64, bytes: Bytes },
    Written { rank: u64, life: u32, tag: Tag, write: Write },
}

struct Cluster {
    random: Random,
    nodes: Vec<Node>,
    /// By time, then by order of creation.
    events: BTreeMap<(u64, u64), Event>,
    now: u64,
    made: u64,
    cut: BTreeSet<(u64, u64)>,
    loss_percent: u64,
    /// Entries that any monitor delivered, by number. All monitors must deliver the same.
    truth: Vec<u64>,
    trace: u64,
    proposed: u64,
    open: BTreeMap<Ticket, u64>,
    snapshots: u32,
}

fn encode(state: &[u64]) -> Bytes {
    state.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>().into()
}

fn decode(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let node = |_| Node { quorum: None, disk: Disk::default(), state: Vec::new(), lives: 0 };
        let mut cluster = Cluster {
            random: Random::from_number(seed),
            nodes: (0..MONITORS).map(node).collect(),
            events: BTreeMap::new(),
            now: 0,
            made: 0,
            cut: BTreeSet::new(),
            loss_percent: 0,
            truth: Vec::new(),
            trace: 0,
            proposed: 0,
            open: BTreeMap::new(),
            snapshots: 0,
        };
        (1..=MONITORS).for_each(|rank| cluster.start(rank));
        cluster
    }

    fn node(&mut self, rank: u64) -> &mut Node {
        &mut self.nodes[rank as usize - 1]
    }

    fn start(&mut self, rank: u64) {
        let node = self.node(rank);
        node.lives += 1;
        node.state = node.disk.snapshot.as_ref().map(|(_, state)| decode(state)).unwrap_or_default();
        let quorum =
            Quorum::recover(rank, MONITORS, node.lives, node.disk.recovered()).expect("its own disk");
        node.quorum = Some(quorum);
        self.settle(rank);
    }

    fn crash(&mut self, rank: u64) {
        self.node(rank).quorum = None;
    }

    fn schedule(&mut self, delay_max: u64, event: Event) {
        let at = self.now + 1 + self.random.below(delay_max);
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x100_0000_01b3).rotate_left(5);
    }

    /// Carry out what a monitor wants done.
    fn settle(&mut self, rank: u64) {
        let Some(quorum) = self.node(rank).quorum.as_mut() else { return };
        let outcome = quorum.take();
        for (number, ticket, bytes) in outcome.committed {
            let value = u64::from_le_bytes(bytes[..].try_into().unwrap());
            self.open.remove(&ticket);
            self.node(rank).state.push(value);
            assert_eq!(self.node(rank).state.len() as u64, number, "entries come in order, each once");
            self.note(number ^ value << 8 ^ rank << 60);
        }
        self.check(rank);
        for (to, bytes) in outcome.send {
            if !self.cut.contains(&(rank, to)) && self.random.below(100) >= self.loss_percent {
                self.schedule(3, Event::Message { from: rank, to, bytes });
            }
        }
        if let Some((tag, write)) = outcome.write {
            let life = self.node(rank).lives;
            self.schedule(4, Event::Written { rank, life, tag, write });
        }
    }

    /// No monitor contradicts what any has said before.
    fn check(&mut self, rank: u64) {
        let state = self.node(rank).state.clone();
        let common = state.len().min(self.truth.len());
        assert_eq!(state[..common], self.truth[..common], "monitor {rank} contradicts another");
        if state.len() > common {
            self.truth = state;
        }
    }

    fn propose(&mut self, rank: u64) {
        self.proposed += 1;
        let value = self.proposed;
        if let Some(quorum) = self.node(rank).quorum.as_mut() {
            let ticket = quorum.propose(Bytes::copy_from_slice(&value.to_le_bytes()));
            self.open.insert(ticket, value);
            self.settle(rank);
        }
    }

    fn snapshot(&mut self, rank: u64) {
        let node = self.node(rank);
        let (index, state) = (node.state.len() as u64, encode(&node.state));
        if let Some(quorum) = node.quorum.as_mut() {
            quorum.snapshot(index, state);
            self.snapshots += 1;
            self.settle(rank);
        }
    }

    /// One tick of everybody's clock, and whatever arrives within it.
    fn tick(&mut self) {
        self.now += 1;
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            match entry.remove() {
                Event::Message { from, to, bytes } => {
                    if let Some(quorum) = self.node(to).quorum.as_mut() {
                        quorum.receive(&bytes);
                        self.note(from << 32 ^ to << 40 ^ bytes.len() as u64);
                        self.settle(to);
                    }
                }
                Event::Written { rank, life, tag, write } => {
                    // A write of an earlier life that was under way when it ended did not happen.
                    if self.node(rank).lives == life && self.node(rank).quorum.is_some() {
                        self.node(rank).disk.apply(&write);
                        self.node(rank).quorum.as_mut().expect("checked").on_written(tag);
                        self.settle(rank);
                    }
                }
            }
        }
        for rank in 1..=MONITORS {
            if let Some(quorum) = self.node(rank).quorum.as_mut() {
                quorum.tick();
                self.settle(rank);
            }
        }
    }

    fn heal(&mut self) {
        self.cut.clear();
        self.loss_percent = 0;
        for rank in 1..=MONITORS {
            if self.node(rank).quorum.is_none() {
                self.start(rank);
            }
        }
        for rank in 1..=MONITORS {
            for other in (1..=MONITORS).filter(|o| *o != rank) {
                self.node(rank).quorum.as_mut().expect("started").reconnected(other);
            }
            self.settle(rank);
        }
    }

    /// Trouble for a while, never of more than one monitor at a time.
    fn trouble(&mut self) {
        let rank = 1 + self.random.below(MONITORS);
        match self.random.below(4) {
            0 => self.crash(rank),
            1 => {
                for other in 1..=MONITORS {
                    self.cut.insert((rank, other));
                    self.cut.insert((other, rank));
                }
            }
            2 => self.loss_percent = 20,
            _ => self.snapshot(rank),
        }
    }

    fn run(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.trouble();
            for _ in 0..40 {
                let rank = 1 + self.random.below(MONITORS);
                if self.random.below(3) == 0 {
                    self.propose(rank);
                }
                self.tick();
            }
            self.heal();
            for _ in 0..150 {
                self.tick();
            }
        }
    }
}

#[test]
fn monitors_agree_through_crashes_losses_and_partitions() {
    let (mut committed, mut snapshots) = (0, 0);
    for seed in 0..40 {
        let mut cluster = Cluster::new(seed);
        cluster.run(25);
        // Safety was checked all along. Liveness: once healed, everyone has everything and new entries commit.
        let before = cluster.truth.len();
        cluster.propose(1);
        (0..200).for_each(|_| cluster.tick());
        assert!(cluster.truth.len() > before, "seed {seed}: nothing commits after the trouble is over");
        for node in &cluster.nodes {
            assert_eq!(node.state, cluster.truth, "seed {seed}");
        }
        committed += cluster.truth.len();
        snapshots += cluster.snapshots;
    }
    assert!(committed > 2000, "the seeds must exercise something: {committed} entries");
    assert!(snapshots > 50, "the seeds must exercise snapshots: {snapshots}");
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    let run = |seed| {
        let mut cluster = Cluster::new(seed);
        cluster.run(10);
        (cluster.trace, cluster.truth)
    };
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn an_entry_holds_with_two_of_three_and_not_with_one() {
    let mut cluster = Cluster::new(7);
    (0..150).for_each(|_| cluster.tick());
    let leader = cluster.node(1).quorum.as_ref().unwrap().leader().expect("a leader");
    let others: Vec<u64> = (1..=MONITORS).filter(|r| *r != leader).collect();
    cluster.crash(others[0]);
    cluster.propose(leader);
    (0..150).for_each(|_| cluster.tick());
    assert_eq!(cluster.truth, [1]);
    cluster.crash(others[1]);
    cluster.propose(leader);
    (0..200).for_each(|_| cluster.tick());
    assert_eq!(cluster.truth, [1], "one monitor alone decides nothing");
    cluster.heal();
    (0..300).for_each(|_| cluster.tick());
    assert_eq!(cluster.truth, [1, 2]);
}

#[test]
fn messages_leave_after_the_write_that_they_rest_on() {
    let mut alone = Quorum::recover(1, MONITORS, 1, Recovered::default()).unwrap();
    let mut write = None;
    for _ in 0..30 {
        alone.tick();
        let outcome = alone.take();
        write = write.or(outcome.write);
        if write.is_some() {
            assert!(outcome.send.is_empty(), "sent with a write under way");
        }
    }
    // Nobody answers, so it may ask for votes for ever without writing; a promise to another is what it must keep.
    let mut other = Quorum::recover(2, MONITORS, 1, Recovered::default()).unwrap();
    other.receive(b"not a message");
    assert!(other.take().committed.is_empty());
}
