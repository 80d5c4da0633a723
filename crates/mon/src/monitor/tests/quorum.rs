//! Several monitors: whole machines, joined by a network that loses nothing unless it is cut, with clients on each.

use super::{AuthEntity, AuthMode, FSID, START, addr, keys, local_options, settings};
use crate::genesis::Genesis;
use crate::monitor::{Effect, Input, Monitor, Settings, Turn};
use crate::replication::{Recovered, Write};
use bytes::Bytes;
use machine::identity::Proof;
use machine::net::{CloseReason, Held, NetEffect, NetEvent, Peer};
use machine::{ConnId, Effects, Machine, Random, Tag, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wire::cephx::{Key, KeyKind};
use wire::messages::*;
use wire::types::*;

const STEP: Duration = Duration::from_millis(10);

struct Node {
    settings: Settings,
    disk: Recovered,
    writes: VecDeque<(Tag, Write)>,
    /// `None`: it does not run.
    monitor: Option<Monitor>,
    /// Messages to clients.
    sent: VecDeque<(ConnId, Message)>,
    /// Sessions that the monitor closed.
    closed: BTreeSet<ConnId>,
    /// The number by which it calls itself.
    number: i64,
    lives: u64,
}

/// A connection between two monitors, by its number at either end.
struct Wire {
    ends: [(usize, ConnId); 2],
}

struct Cluster {
    now: Time,
    nodes: Vec<Node>,
    wires: Vec<Wire>,
    mail: VecDeque<(usize, NetEvent)>,
    /// From whom nothing reaches whom.
    cuts: BTreeSet<(usize, usize)>,
    next_conn: u64,
    next_tid: u64,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn settings_of(n: usize) -> Settings {
    let mut layers = local_options(&[("mon_allow_pool_delete", "true")]);
    layers.run();
    let seeds = (0..3).filter(|other| *other != n).map(|other| addr(3300 + other as u16)).collect();
    let metadata = BTreeMap::from([("hostname".into(), format!("host-{n}"))]);
    let addrs = addr(3300 + n as u16);
    Settings { name: NAMES[n].into(), addrs, seeds, metadata, ..settings(AuthMode::Cephx) }
}

impl Cluster {
    /// `first` monitors that make the cluster, and others that are not started yet.
    fn new(first: usize, all: usize) -> Cluster {
        let genesis = Genesis {
            fsid: FSID,
            monitors: (0..first).map(|n| (NAMES[n].to_owned(), addr(3300 + n as u16))).collect(),
            entities: keys(),
            failure_domain: "osd".into(),
            full_ratios: Default::default(),
        };
        let node = |n: usize| {
            let mut disk = Recovered::default();
            if n < first {
                disk.apply(genesis.write(NAMES[n], START, &mut Random::from_number(5)));
            }
            Node {
                settings: settings_of(n),
                disk,
                writes: VecDeque::new(),
                monitor: None,
                sent: VecDeque::new(),
                closed: BTreeSet::new(),
                number: -1,
                lives: 0,
            }
        };
        let mut cluster = Cluster {
            now: Time::ZERO,
            nodes: (0..all).map(node).collect(),
            wires: Vec::new(),
            mail: VecDeque::new(),
            cuts: BTreeSet::new(),
            next_conn: 1,
            next_tid: 1,
        };
        (0..first).for_each(|n| cluster.start(n));
        cluster
    }

    fn wall(&self) -> UTime {
        UTime::from_nanos(START.as_nanos() + self.now.0)
    }

    fn start(&mut self, n: usize) {
        let wall = self.wall();
        let node = &mut self.nodes[n];
        node.lives += 1;
        let random = Random::from_number(100 * n as u64 + node.lives);
        let monitor = Monitor::recover(node.settings.clone(), node.disk.clone(), random, self.now, wall);
        node.monitor = Some(monitor.unwrap());
        self.step(n, Input::Deadline { wall });
    }

    /// The process dies. What was not on its disk is lost.
    fn kill(&mut self, n: usize) {
        self.nodes[n].monitor = None;
        self.nodes[n].writes.clear();
        let (gone, kept): (Vec<Wire>, Vec<Wire>) = std::mem::take(&mut self.wires)
            .into_iter()
            .partition(|wire| wire.ends.iter().any(|(node, _)| *node == n));
        self.wires = kept;
        for (node, conn) in gone.into_iter().flat_map(|wire| wire.ends).filter(|(node, _)| *node != n) {
            self.mail.push_back((node, NetEvent::Closed { conn, why: CloseReason::Reset }));
        }
    }

    fn step(&mut self, n: usize, input: Input) {
        let now = self.now;
        let Some(monitor) = &mut self.nodes[n].monitor else { return };
        let mut effects = Effects::new();
        monitor.step(now, input, &mut effects);
        monitor.check();
        for effect in effects.take() {
            match effect {
                Effect::Write { tag, write } => self.nodes[n].writes.push_back((tag, write)),
                Effect::Net(NetEffect::Connect { conn, to, .. }) => self.connect_monitors(n, conn, &to),
                Effect::Net(NetEffect::Send { conn, message }) => self.carry(n, conn, message),
                Effect::Net(NetEffect::Number(number)) => self.nodes[n].number = number,
                Effect::Net(NetEffect::Close { conn }) => {
                    self.nodes[n].closed.insert(conn);
                    self.disconnect(n, conn);
                }
                _ => {}
            }
        }
    }

    /// This end has closed: the other hears of it.
    fn disconnect(&mut self, n: usize, conn: ConnId) {
        let Some(at) = self.wires.iter().position(|wire| wire.ends.contains(&(n, conn))) else { return };
        let other = self.wires.remove(at).ends.into_iter().find(|end| *end != (n, conn));
        let (node, conn) = other.expect("a connection has two ends");
        self.mail.push_back((node, NetEvent::Closed { conn, why: CloseReason::Reset }));
    }

    fn connect_monitors(&mut self, from: usize, conn: ConnId, to: &EntityAddrVec) {
        let is_there = |n: &usize| {
            let is_cut = self.cuts.contains(&(from, *n)) || self.cuts.contains(&(*n, from));
            self.nodes[*n].settings.addrs == *to && self.nodes[*n].monitor.is_some() && !is_cut
        };
        let Some(target) = (0..self.nodes.len()).find(is_there) else {
            let why = CloseReason::Broken("nobody is there".into());
            return self.mail.push_back((from, NetEvent::Closed { conn, why }));
        };
        self.next_conn += 1;
        let accepted = ConnId::accepted(self.next_conn);
        self.wires.push(Wire { ends: [(from, conn), (target, accepted)] });
        for (node, conn, port) in [(from, conn, 3300 + target), (target, accepted, 3300 + from)] {
            let proof = Proof::cephx(AuthName::new(EntityKind::MON, ""), 1, "allow *");
            let peer =
                Peer::identified(proof, EntityName::new(EntityKind::MON, 0), addr(port as u16).0[0]).unwrap();
            self.mail.push_back((node, NetEvent::Ready { conn, peer: peer.into() }));
        }
    }

    fn carry(&mut self, from: usize, conn: ConnId, message: Message) {
        let Some(wire) = self.wires.iter().find(|wire| wire.ends.contains(&(from, conn))) else {
            return self.nodes[from].sent.push_back((conn, message));
        };
        let (to, conn) = if wire.ends[0] == (from, conn) { wire.ends[1] } else { wire.ends[0] };
        if !self.cuts.contains(&(from, to)) {
            // As it goes over a real connection.
            let message = Carried::new(&message, codec::Features::ALL).message().unwrap();
            self.mail.push_back((to, NetEvent::Message { conn, message, held: Held::default() }));
        }
    }

    fn deliver(&mut self) {
        let mut delivered = 0;
        loop {
            delivered += 1;
            assert!(delivered < 100_000, "the monitors never come to rest: {:?}", self.mail.front());
            if let Some((n, event)) = self.mail.pop_front() {
                self.step(n, Input::Net(event));
            } else if let Some(n) = (0..self.nodes.len()).find(|n| !self.nodes[*n].writes.is_empty()) {
                let (tag, write) = self.nodes[n].writes.pop_front().unwrap();
                self.nodes[n].disk.apply(write);
                self.step(n, Input::Written(tag));
            } else {
                break;
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + STEP;
            let wall = self.wall();
            for n in 0..self.nodes.len() {
                let due = self.nodes[n].monitor.as_ref().and_then(Machine::next_deadline);
                if due.is_some_and(|due| due <= self.now) {
                    self.step(n, Input::Deadline { wall });
                }
            }
            self.deliver();
        }
    }

    fn cut_off(&mut self, n: usize) {
        for other in (0..self.nodes.len()).filter(|other| *other != n) {
            self.cuts.extend([(n, other), (other, n)]);
        }
    }

    fn monitor(&self, n: usize) -> &Monitor {
        self.nodes[n].monitor.as_ref().unwrap()
    }

    fn leader(&self) -> Option<usize> {
        let leads = |n: &usize| self.nodes[*n].monitor.as_ref().is_some_and(Monitor::is_leading);
        let leaders: Vec<usize> = (0..self.nodes.len()).filter(leads).collect();
        // One that was cut off may not know yet that another leads.
        leaders.into_iter().max_by_key(|n| self.monitor(*n).quorum.role.term)
    }

    fn wait_leader(&mut self) -> usize {
        for _ in 0..500 {
            self.pass(STEP);
            if let Some(leader) = self.leader() {
                return leader;
            }
        }
        panic!("nobody leads after five seconds");
    }

    fn connect(&mut self, n: usize, name: &str, global_id: u64) -> ConnId {
        self.next_conn += 1;
        let conn = ConnId::accepted(self.next_conn);
        let name: AuthName = name.parse().unwrap();
        let claimed = EntityName::new(name.kind, name.id.parse().unwrap_or(-1));
        let peer = Peer::identified(Proof::cephx(name, global_id, ""), claimed, addr(7000).0[0]).unwrap();
        let peer = Peer { features: wire::features::TENTACLE, ..peer };
        self.step(n, Input::Net(NetEvent::Ready { conn, peer: peer.into() }));
        conn
    }

    fn send(&mut self, n: usize, conn: ConnId, tid: u64, body: impl Into<Body>) {
        let message = Message::with_tid(tid, body.into());
        self.step(n, Input::Net(NetEvent::Message { conn, message, held: Held::default() }));
    }

    fn ask(&mut self, n: usize, conn: ConnId, tid: u64, json: &str) {
        let paxos = PaxosHeader::default();
        let body = MMonCommand { paxos, fsid: FSID, command: vec![json.into()], input: Bytes::new() };
        self.send(n, conn, tid, body);
    }

    /// Answers to commands that came for this session.
    fn answers(&mut self, n: usize, conn: ConnId) -> Vec<(u64, i32, String)> {
        let (mine, others): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.nodes[n].sent).into_iter().partition(|(to, _)| *to == conn);
        self.nodes[n].sent = others;
        let answers = mine.into_iter().filter_map(|(_, message)| match message.body {
            Body::MMonCommandAck(ack) => Some((message.tid, ack.result, ack.status.clone())),
            _ => None,
        });
        answers.collect()
    }

    /// Runs a command at a monitor, which must succeed within three seconds.
    fn ok(&mut self, n: usize, conn: ConnId, json: &str) {
        self.next_tid += 1;
        let tid = self.next_tid;
        self.ask(n, conn, tid, json);
        for _ in 0..300 {
            self.pass(STEP);
            if let Some((_, result, status)) = self.answers(n, conn).into_iter().find(|(of, ..)| *of == tid) {
                assert_eq!(result, 0, "{json}: {status}");
                return;
            }
        }
        panic!("no answer to {json}; {n} sees {:?}", self.monitor(n).quorum.role);
    }

    fn assert_equal_states(&mut self) {
        self.pass(Duration::from_secs(2));
        let running: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.nodes[*n].monitor.is_some()).collect();
        let digests: BTreeMap<usize, _> = running
            .iter()
            .map(|n| (*n, (self.monitor(*n).state().version, self.monitor(*n).state().digest())))
            .collect();
        let first = digests[&running[0]];
        assert!(digests.values().all(|digest| *digest == first), "{digests:?}");
        // What a former leader proposed in vain is gone from its other copy, too.
        for n in running.into_iter().filter(|n| !self.monitor(*n).is_leading()) {
            assert_eq!(self.monitor(n).states.head().digest(), self.monitor(n).states.committed.digest());
        }
    }

    fn keys_stored(&self, n: usize) -> Vec<String> {
        self.monitor(n).state().config_keys.keys().cloned().collect()
    }
}

fn set(key: &str) -> String {
    format!(r#"{{"prefix":"config-key set","key":"{key}","val":"1"}}"#)
}

#[test]
fn a_command_at_any_monitor_reaches_all() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    for n in 0..3 {
        let conn = c.connect(n, "client.admin", 5000 + n as u64);
        c.ok(n, conn, &set(&format!("k{n}")));
        c.ok(n, conn, r#"{"prefix":"status"}"#);
    }
    c.assert_equal_states();
    assert_eq!(c.keys_stored(0), ["k0", "k1", "k2"]);
    assert_eq!(c.leader(), Some(leader), "nothing went wrong");
    let quorum = c.monitor((leader + 1) % 3).quorum_ranks();
    assert_eq!(quorum, [0, 1, 2], "followers hear who takes part");
}

#[test]
fn a_command_waits_for_the_next_leader() {
    let mut c = Cluster::new(3, 3);
    let old = c.wait_leader();
    let n = (old + 1) % 3;
    let conn = c.connect(n, "client.admin", 5000);
    c.ok(n, conn, &set("before"));
    c.kill(old);
    // It waits for the next leader, and nobody sends it again.
    c.ok(n, conn, &set("after"));
    assert_ne!(c.leader(), Some(old));
    c.start(old);
    c.assert_equal_states();
    assert_eq!(c.keys_stored(old), ["after", "before"]);
}

/// A request that the dead leader had committed, without its answer having come, is answered from the log.
#[test]
fn a_command_is_carried_out_once_whoever_answers_it() {
    let mut c = Cluster::new(3, 3);
    let old = c.wait_leader();
    let (n, other) = ((old + 1) % 3, (old + 2) % 3);
    let conn = c.connect(n, "client.admin", 5000);
    c.ok(n, conn, r#"{"prefix":"osd pool create","pool":"first"}"#);
    // The answer of the leader does not come back.
    let create = r#"{"prefix":"osd pool create","pool":"p"}"#;
    c.ask(n, conn, 900, create);
    c.deliver();
    let answered = c.answers(n, conn).len();
    assert_eq!(answered, 1, "it is decided within one round");
    // The client did not get it and asks another monitor under the same number.
    c.kill(old);
    let again = c.connect(other, "client.admin", 5000);
    c.ask(other, again, 900, create);
    c.pass(Duration::from_secs(3));
    let answers = c.answers(other, again);
    assert_eq!(answers, [(900, 0, "pool 'p' created".to_owned())], "not: it exists already");
    let map = c.monitor(other).state().osdmap();
    assert_eq!(map.pools.len(), 2);
}

#[test]
fn a_leader_that_is_cut_off_answers_nothing() {
    let mut c = Cluster::new(3, 3);
    let old = c.wait_leader();
    let conn = c.connect(old, "client.admin", 5000);
    c.ok(old, conn, &set("before"));
    c.cut_off(old);
    c.ask(old, conn, 901, r#"{"prefix":"config-key ls"}"#);
    c.ask(old, conn, 902, &set("lost"));
    c.pass(Duration::from_secs(1));
    assert_eq!(c.answers(old, conn), [], "others may have changed what it would say");
    c.pass(Duration::from_secs(6));
    assert!(c.nodes[old].closed.contains(&conn), "another monitor can serve this client");
    let new = c.wait_leader();
    assert_ne!(new, old);
    let there = c.connect(new, "client.admin", 5000);
    c.ok(new, there, &set("after"));
    c.cuts.clear();
    c.pass(Duration::from_secs(8));
    c.assert_equal_states();
    assert_eq!(c.keys_stored(old), ["after", "before"]);
}

#[test]
fn monitors_join_and_join_anew_without_their_disk() {
    let mut c = Cluster::new(1, 3);
    let conn = c.connect(0, "client.admin", 5000);
    c.wait_leader();
    for n in 0..1300 {
        c.next_tid += 1;
        let tid = c.next_tid;
        c.ask(0, conn, tid, &set(&format!("k{}", n % 50)));
        c.deliver();
    }
    for n in [1, 2] {
        c.start(n);
        c.pass(Duration::from_secs(8));
        let map = &c.monitor(0).state().monmap;
        assert_eq!(map.mons.len(), n + 1);
    }
    c.assert_equal_states();
    let voters = c.monitor(0).replication.as_ref().unwrap().members().voters.clone();
    assert_eq!(voters, [1, 2, 3]);

    // One loses its disk: it gets another number, and the old one is gone.
    c.kill(1);
    c.nodes[1].disk = Recovered::default();
    c.pass(Duration::from_secs(3));
    c.start(1);
    c.pass(Duration::from_secs(12));
    c.assert_equal_states();
    let voters = c.monitor(0).replication.as_ref().unwrap().members().voters.clone();
    assert_eq!(voters, [1, 3, 4]);
    assert_eq!(c.monitor(1).quorum.member, 4);
    assert_eq!(c.monitor(0).state().monmap.mons.len(), 3);

    // Any one may die now.
    c.kill(0);
    let there = c.connect(2, "client.admin", 5001);
    c.ok(2, there, &set("last"));
}

#[test]
fn an_osd_that_speaks_to_a_follower_boots_and_gets_its_maps() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let n = (leader + 1) % 3;
    let admin = c.connect(n, "client.admin", 5000);
    let uuid = "01010101-0101-0101-0101-010101010101";
    c.ok(n, admin, &format!(r#"{{"prefix":"osd new","uuid":"{uuid}"}}"#));
    let osd = c.connect(n, "osd.0", 5001);
    let what = BTreeMap::from([("osdmap".to_owned(), SubscribeItem { start: 1, flags: 0 })]);
    c.send(n, osd, 1, MMonSubscribe { what, hostname: "h".into() });
    c.send(n, osd, 2, super::cluster::boot_of(0, 6800));
    c.pass(Duration::from_secs(2));
    assert!(c.monitor(n).state().osdmap().is_up(0));
    let told =
        c.nodes[n].sent.iter().filter(|(to, message)| *to == osd && matches!(message.body, Body::MOSDMap(_)));
    assert!(told.count() >= 2, "the first map, and the one that marks it up");
}

#[test]
fn clients_get_ids_of_their_own_from_each_monitor() {
    let mut c = Cluster::new(3, 3);
    c.wait_leader();
    c.pass(Duration::from_secs(2));
    let mut seen = BTreeSet::new();
    for n in 0..3 {
        for _ in 0..3 {
            let now = c.now;
            let mut effects = Effects::new();
            let monitor = c.nodes[n].monitor.as_mut().unwrap();
            let mut turn = crate::monitor::Turn { now, effects: &mut effects };
            assert!(seen.insert(monitor.take_global_id(&mut turn).expect("the leader has given some")));
        }
    }
}

#[test]
fn clocks_and_absent_monitors_show_in_health() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    c.pass(Duration::from_secs(3));
    let skews = c.monitor(leader).quorum.skews(c.now);
    assert_eq!(skews.len(), 2);
    assert!(skews.values().all(|skew| skew.skew.abs() < 0.05), "{skews:?}");
    let follower = (leader + 1) % 3;
    c.kill(follower);
    c.pass(Duration::from_secs(5));
    let ranks = c.monitor(leader).quorum_ranks();
    assert_eq!(ranks.len(), 2, "{ranks:?}");
    assert!(c.monitor(leader).last_checks.contains_key("MON_DOWN"));
}

#[test]
fn all_monitors_may_die_at_once() {
    let mut c = Cluster::new(1, 3);
    c.wait_leader();
    for n in [1, 2] {
        c.start(n);
        c.pass(Duration::from_secs(8));
    }
    let conn = c.connect(1, "client.admin", 5000);
    c.ok(1, conn, &set("before"));
    (0..3).for_each(|n| c.kill(n));
    c.pass(Duration::from_secs(1));
    (0..3).for_each(|n| c.start(n));
    assert_eq!([0, 1, 2].map(|n| c.monitor(n).quorum.member), [1, 2, 3], "each knows its own number");
    c.wait_leader();
    let conn = c.connect(1, "client.admin", 5001);
    c.ok(1, conn, &set("after"));
    c.assert_equal_states();
    assert_eq!(c.keys_stored(2), ["after", "before"]);
}

/// A directory of one monitor from before monitors had numbers: a snapshot, entries, and nothing else.
#[test]
fn an_old_directory_gets_its_number_with_the_first_write() {
    let mut c = Cluster::new(1, 3);
    c.wait_leader();
    let state = c.monitor(0).state().clone();
    c.kill(0);
    let mut old = Recovered { snapshot: Some((state.version, state.snapshot())), ..Recovered::default() };
    let proposal = crate::proposal::Proposal {
        at: START,
        base: None,
        changes: vec![crate::proposal::Change::ConfigKey { key: "old".into(), value: Some(Bytes::new()) }],
    };
    let entry = codec::Encode::to_vec(&proposal, codec::Features::ALL);
    old.entries.push((state.version + 1, entry.into()));
    c.nodes[0].disk = old;
    for _ in 0..2 {
        c.start(0);
        c.wait_leader();
        assert_eq!(c.keys_stored(0), ["old"]);
        assert_eq!(c.nodes[0].disk.identity.map(|identity| identity.member), Some(1));
        c.kill(0);
    }
    // A disk that lost its number is no member's.
    c.nodes[0].disk.identity = None;
    let again =
        Monitor::recover(settings_of(0), c.nodes[0].disk.clone(), Random::from_number(1), c.now, c.wall());
    assert!(matches!(again, Err(crate::monitor::Unreadable::NoIdentity)));
}

/// It gets a number and dies before its first write; with the next number it joins, and so does the third monitor.
#[test]
fn a_monitor_that_dies_while_it_joins_stands_in_nobodys_way() {
    let mut c = Cluster::new(1, 3);
    c.wait_leader();
    c.start(1);
    while c.monitor(1).quorum.member == 0 {
        c.now = c.now + STEP;
        let wall = c.wall();
        (0..2).for_each(|n| c.step(n, Input::Deadline { wall }));
        for _ in 0..1000 {
            if c.monitor(1).quorum.member != 0 {
                break;
            } else if let Some((n, event)) = c.mail.pop_front() {
                c.step(n, Input::Net(event));
            } else if let Some((tag, write)) = c.nodes[0].writes.pop_front() {
                c.nodes[0].disk.apply(write);
                c.step(0, Input::Written(tag));
            }
        }
    }
    c.kill(1);
    assert_eq!(c.nodes[1].disk.identity, None);
    // The leader takes it for a learner all the same.
    c.pass(Duration::from_secs(3));
    for n in [1, 2] {
        c.start(n);
        c.pass(Duration::from_secs(12));
    }
    c.assert_equal_states();
    let members = c.monitor(0).replication.as_ref().unwrap().members().clone();
    assert_eq!((members.voters.len(), members.learners.len()), (3, 0), "{members:?}");
}

/// A leader's link to a follower breaks while an answer is on its way: the request is answered over the next one.
#[test]
fn an_answer_that_a_broken_connection_lost_comes_over_the_next() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let n = (leader + 1) % 3;
    let conn = c.connect(n, "client.admin", 5000);
    c.ok(n, conn, &set("first"));
    for (from, to) in [(leader, n), (n, leader)] {
        let key = format!("k{from}{to}");
        c.ask(n, conn, 700 + from as u64, &set(&key));
        // What goes from one to the other is lost, and then the connections are.
        c.cuts.insert((from, to));
        c.deliver();
        let broken: Vec<(usize, ConnId)> = c
            .wires
            .iter()
            .filter(|wire| wire.ends.iter().all(|(node, _)| [leader, n].contains(node)))
            .map(|wire| wire.ends[0])
            .collect();
        for (node, conn) in broken {
            c.disconnect(node, conn);
            c.mail.push_back((node, NetEvent::Closed { conn, why: CloseReason::Reset }));
        }
        c.cuts.clear();
        c.pass(Duration::from_secs(2));
        let answers = c.answers(n, conn);
        // It may come more than once: a client knows its commands by number. It was carried out once.
        assert!(!answers.is_empty() && answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    c.assert_equal_states();
}

#[test]
fn the_key_of_mon_is_in_the_state_once_a_monitor_has_one() {
    let key = Key::generate(KeyKind::Aes, START, &mut Random::from_number(7));
    let own = AuthEntity::new(key.clone(), Default::default());
    let genesis = Genesis {
        fsid: FSID,
        monitors: vec![("a".into(), addr(3300))],
        entities: [("mon.".parse().unwrap(), own)].into(),
        failure_domain: "osd".into(),
        full_ratios: Default::default(),
    };
    let mut disk = Recovered::default();
    disk.apply(genesis.write("a", START, &mut Random::from_number(5)));
    let settings = Settings { monitor_key: None, ..settings(AuthMode::Cephx) };
    let monitor = Monitor::recover(settings, disk, Random::from_number(1), Time::ZERO, START).unwrap();
    assert_eq!(monitor.settings.monitor_key, Some(key));
}

#[test]
fn the_leader_knows_what_every_monitor_says_about_itself() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    c.pass(Duration::from_secs(3));
    let known = &c.monitor(leader).state().mon_metadata;
    let hosts: Vec<&str> = known.values().map(|metadata| metadata["hostname"].as_str()).collect();
    assert_eq!(hosts, ["host-0", "host-1", "host-2"]);
}

fn rm(name: &str) -> String {
    format!(r#"{{"prefix":"mon rm","name":"{name}"}}"#)
}

impl Cluster {
    fn voters(&self, n: usize) -> Vec<u64> {
        self.monitor(n).replication.as_ref().unwrap().members().voters.clone()
    }

    /// Runs a command that is refused; returns the error's number and text.
    fn refused(&mut self, n: usize, conn: ConnId, json: &str) -> (i32, String) {
        self.next_tid += 1;
        let tid = self.next_tid;
        self.ask(n, conn, tid, json);
        self.pass(Duration::from_secs(1));
        let answer = self.answers(n, conn).into_iter().find(|(of, ..)| *of == tid);
        answer.map(|(_, result, status)| (result, status)).expect("an answer")
    }
}

#[test]
fn a_monitor_that_is_taken_out_serves_nobody_and_can_join_anew() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let (gone, n) = ((leader + 1) % 3, (leader + 2) % 3);
    let conn = c.connect(n, "client.admin", 5000);
    let there = c.connect(gone, "client.admin", 5001);
    c.ok(n, conn, &rm(NAMES[gone]));
    c.pass(Duration::from_secs(3));
    assert_eq!(c.voters(leader).len(), 2);
    assert_eq!(c.monitor(gone).part(), "shutdown");
    assert!(c.nodes[gone].closed.contains(&there), "its client finds another one");
    assert_eq!(c.monitor(leader).state().mon_metadata.len(), 2);
    c.ok(n, conn, &set("without"));

    // With its old disk it takes no part, also after a restart.
    c.kill(gone);
    c.start(gone);
    c.pass(Duration::from_secs(3));
    assert_eq!(c.monitor(gone).part(), "shutdown");
    assert_eq!(c.leader(), Some(leader), "it disturbs nobody");

    c.kill(gone);
    c.nodes[gone].disk = Recovered::default();
    c.start(gone);
    c.pass(Duration::from_secs(8));
    assert_eq!(c.voters(leader).len(), 3);
    assert_eq!(c.monitor(gone).quorum.member, 4, "numbers are not used again");
    c.assert_equal_states();
}

#[test]
fn a_leader_that_is_taken_out_hands_its_part_over_first() {
    let mut c = Cluster::new(3, 3);
    let old = c.wait_leader();
    let conn = c.connect(old, "client.admin", 5000);
    c.ok(old, conn, &rm(NAMES[old]));
    c.pass(Duration::from_secs(5));
    let new = c.wait_leader();
    assert_ne!(new, old);
    assert_eq!(c.voters(new).len(), 2);
    assert_eq!(c.monitor(old).part(), "shutdown");
    let there = c.connect(new, "client.admin", 5001);
    c.ok(new, there, &set("after"));
    // And down to one.
    let last = (0..3).find(|n| *n != old && *n != new).unwrap();
    c.ok(new, there, &rm(NAMES[last]));
    c.pass(Duration::from_secs(3));
    assert!(c.monitor(new).is_alone());
    c.ok(new, there, &set("alone"));
    assert_eq!(c.refused(new, there, &rm(NAMES[new])).0, -22, "the last one stays");
}

#[test]
fn a_monitor_stays_that_the_majority_needs() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let (dead, other) = ((leader + 1) % 3, (leader + 2) % 3);
    c.kill(dead);
    c.pass(Duration::from_secs(3));
    let conn = c.connect(leader, "client.admin", 5000);
    let (result, status) = c.refused(leader, conn, &rm(NAMES[other]));
    assert_eq!(result, -16, "{status}");
    assert_eq!(c.monitor(leader).state().monmap.mons.len(), 3);
    c.ok(leader, conn, &rm(NAMES[dead]));
    c.pass(Duration::from_secs(2));
    assert_eq!(c.voters(leader).len(), 2);
    // It was away when it was taken out: the leader tells it when it returns.
    c.start(dead);
    c.pass(Duration::from_secs(3));
    assert_eq!(c.monitor(dead).part(), "shutdown");
    assert_eq!(c.voters(leader).len(), 2);
}

#[test]
fn a_monitor_that_was_added_counts_when_it_has_come() {
    let mut c = Cluster::new(3, 4);
    let leader = c.wait_leader();
    let conn = c.connect(leader, "client.admin", 5000);
    c.ok(leader, conn, r#"{"prefix":"mon add","name":"d","addr":"127.0.0.1:9999"}"#);
    c.pass(Duration::from_secs(2));
    assert_eq!((c.monitor(leader).state().monmap.mons.len(), c.voters(leader).len()), (4, 3));
    // Two of four in the map, and a majority of those that vote.
    c.kill((leader + 1) % 3);
    c.ok(leader, conn, &set("two"));
    c.start((leader + 1) % 3);
    c.start(3);
    c.pass(Duration::from_secs(8));
    assert_eq!(c.voters(leader).len(), 4);
    let map = &c.monitor(leader).state().monmap;
    assert_eq!(map.mons["d"].addrs, addr(3303), "where it listens, not where it was expected");
    c.assert_equal_states();
}

#[test]
fn pools_made_by_message_and_tells_are_carried_out_once() {
    let mut c = Cluster::new(3, 3);
    let old = c.wait_leader();
    let (n, other) = ((old + 1) % 3, (old + 2) % 3);
    let conn = c.connect(n, "client.admin", 5000);
    let create = MPoolOp {
        paxos: PaxosHeader::default(),
        fsid: FSID,
        pool: 0,
        op: MPoolOp::CREATE,
        snap: SnapId(0),
        name: "p".into(),
        crush_rule: -1,
    };
    let tell = r#"{"prefix":"osd pool create","pool":"q"}"#;
    let tell = MCommand { fsid: FSID, command: vec![tell.into()], input: Bytes::new() };
    let results = |c: &mut Cluster, n: usize| -> Vec<i32> {
        let sent = std::mem::take(&mut c.nodes[n].sent).into_iter();
        let result = sent.filter_map(|(_, message)| match message.body {
            Body::MPoolOpReply(reply) => Some(reply.result),
            Body::MCommandReply(reply) => Some(reply.result),
            _ => None,
        });
        result.collect()
    };
    c.send(n, conn, 900, create.clone());
    c.send(n, conn, 900, tell.clone());
    c.pass(Duration::from_secs(1));
    assert_eq!(results(&mut c, n), [0, 0]);
    c.kill(old);
    let again = c.connect(other, "client.admin", 5000);
    c.send(other, again, 900, create.clone());
    c.send(other, again, 900, tell);
    c.send(other, again, 901, create);
    c.pass(Duration::from_secs(3));
    assert_eq!(results(&mut c, other), [0, 0, -17], "under a new number it exists already");
    assert_eq!(c.monitor(other).state().osdmap().pools.len(), 2);
}

#[test]
fn an_osd_whose_monitor_is_cut_off_has_time_to_find_another() {
    for cut_off in [false, true] {
        let mut c = Cluster::new(3, 3);
        let leader = c.wait_leader();
        let n = (leader + 1) % 3;
        let admin = c.connect(n, "client.admin", 5000);
        c.ok(n, admin, r#"{"prefix":"osd new","uuid":"01010101-0101-0101-0101-010101010101"}"#);
        let osd = c.connect(n, "osd.0", 5001);
        c.send(n, osd, 2, super::cluster::boot_of(0, 6800));
        c.pass(Duration::from_secs(1));
        let up_from = c.monitor(n).state().osdmap().osd(0).unwrap().info.up_from;
        for number in 1..10 {
            let pulse =
                MOSDPulse { up_from, number, heard: number - 1, device_stall_ms: 0, core_stall_ms: 0 };
            c.send(n, osd, 0, pulse);
            c.pass(Duration::from_millis(200));
        }
        if cut_off {
            c.cut_off(n);
        }
        c.pass(Duration::from_millis(1500));
        let is_up = |c: &Cluster| c.monitor(leader).state().osdmap().is_up(0);
        assert_eq!(is_up(&c), cut_off, "its own silence counts at once, its monitor's does not");
        c.pass(Duration::from_secs(3));
        assert!(!is_up(&c), "it has not found another one");
    }
}

#[test]
fn sessions_are_listed_where_they_are() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let n = (leader + 1) % 3;
    let conn = c.connect(n, "client.admin", 5000);
    c.ok(n, conn, &set("k"));
    let listed = |c: &mut Cluster, n: usize| {
        let monitor = c.nodes[n].monitor.as_mut().unwrap();
        let args = command::Args::parse(r#"{"prefix":"sessions","format":"json"}"#).unwrap();
        let (now, mut effects) = (c.now, Effects::new());
        let mut turn = Turn { now, effects: &mut effects };
        let answer = monitor.run_admin(&mut turn, "sessions", &args).unwrap();
        String::from_utf8(answer.body.to_vec()).unwrap().matches("entity_name").count()
    };
    assert_eq!((listed(&mut c, n), listed(&mut c, leader)), (3, 2), "two monitors, and the client at one");
}

/// The answer is lost with the leader's connection. When the next one comes, the follower has just lost sight of its leader.
#[test]
fn an_answer_that_was_lost_comes_although_nobody_seems_to_lead() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let n = (leader + 1) % 3;
    let conn = c.connect(n, "client.admin", 5000);
    c.ok(n, conn, &set("first"));
    c.cuts.insert((leader, n));
    c.ask(n, conn, 700, &set("second"));
    c.deliver();
    let wire = c.wires.iter().find(|wire| wire.ends[0].0 == leader && wire.ends[1].0 == n).unwrap();
    let (_, link) = wire.ends[0];
    c.disconnect(leader, link);
    c.mail.push_back((leader, NetEvent::Closed { conn: link, why: CloseReason::Reset }));
    while c.monitor(n).quorum.role.leader().is_some() {
        c.pass(STEP);
    }
    assert_eq!(c.answers(n, conn), []);
    c.cuts.clear();
    c.pass(Duration::from_secs(3));
    let answers = c.answers(n, conn);
    assert!(!answers.is_empty() && answers.iter().all(|(tid, result, _)| (*tid, *result) == (700, 0)));
    assert_eq!(c.leader(), Some(leader), "another one would have been asked anyway");
}

/// The heir does not hear of it. Commands wait until the leader leads on, or another one does.
#[test]
fn commands_wait_while_the_leader_hands_its_role_over() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let (heir, n) = ((leader + 1) % 3, (leader + 2) % 3);
    let conns = [leader, n].map(|at| c.connect(at, "client.admin", 5000 + at as u64));
    c.ok(n, conns[1], &set("before"));
    c.cuts.insert((leader, heir));
    let log = c.nodes[leader].monitor.as_mut().unwrap().replication.as_mut().unwrap();
    log.transfer_leadership(1 + heir as u64).unwrap();
    assert!(!c.monitor(leader).can_propose());
    c.ask(leader, conns[0], 800, &set("here"));
    c.ask(n, conns[1], 801, &set("there"));
    c.deliver();
    assert_eq!((c.answers(leader, conns[0]), c.answers(n, conns[1])), (vec![], vec![]));
    c.cuts.clear();
    c.pass(Duration::from_secs(3));
    let results = |answers: Vec<(u64, i32, String)>| answers.iter().map(|a| (a.0, a.1)).collect::<Vec<_>>();
    assert_eq!(results(c.answers(leader, conns[0])), [(800, 0)]);
    assert_eq!(results(c.answers(n, conns[1])), [(801, 0)]);
    c.assert_equal_states();
}

/// The next leader is there before the last one ends, and takes what clients ask.
#[test]
fn stopping_leader_hands_over_before_it_ends() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let n = (leader + 1) % 3;
    let conn = c.connect(n, "client.admin", 5000);
    c.ok(n, conn, &set("before"));
    let asked_at = c.now;
    c.step(leader, Input::Stop);
    assert_eq!(c.monitor(leader).stop.deadline(), Some(asked_at + Duration::from_secs(1)), "not at once");
    while c.monitor(leader).stop.deadline().is_some() {
        c.pass(STEP);
    }
    assert!(c.now.since(asked_at) <= 5 * STEP, "{:?}", c.now.since(asked_at));
    c.kill(leader);
    let next = c.wait_leader();
    assert!(next != leader && c.now.since(asked_at) <= 10 * STEP, "{:?}", c.now.since(asked_at));
    c.ok(n, conn, &set("after"));
}

/// Its sessions end with its process: nobody waits for its silence.
#[test]
fn killed_follower_leaves_the_quorum_at_once() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    c.pass(Duration::from_secs(3));
    let (gone, stays) = ((leader + 1) % 3, (leader + 2) % 3);
    let told = |c: &Cluster| [leader, stays].map(|n| c.monitor(n).quorum.role.quorum.len());
    assert_eq!(told(&c), [3, 3]);
    c.kill(gone);
    c.pass(2 * STEP);
    assert_eq!(told(&c), [2, 2]);
    c.start(gone);
    c.pass(Duration::from_secs(3));
    assert_eq!(told(&c), [3, 3]);
}

/// A network that breaks connections and lets new ones through.
#[test]
fn follower_whose_sessions_broke_returns_to_the_quorum() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    c.pass(Duration::from_secs(3));
    let follower = (leader + 1) % 3;
    let ends: Vec<(usize, ConnId)> = c.wires.iter().map(|wire| wire.ends[0]).collect();
    ends.into_iter().filter(|(node, _)| *node == follower).for_each(|(node, conn)| {
        c.disconnect(node, conn);
        c.step(node, Input::Net(NetEvent::Closed { conn, why: CloseReason::Reset }));
    });
    c.deliver();
    assert_eq!(c.monitor(leader).quorum.role.quorum.len(), 2);
    c.pass(Duration::from_secs(3));
    assert_eq!(c.monitor(leader).quorum.role.quorum.len(), 3);
    assert_eq!(c.leader(), Some(leader));
}

#[test]
fn stopping_monitor_without_heir_ends() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    c.step((leader + 1) % 3, Input::Stop);
    assert_eq!(c.monitor((leader + 1) % 3).stop.deadline(), None, "a follower has nothing to hand over");
    for n in (0..3).filter(|n| *n != leader) {
        c.kill(n);
    }
    c.step(leader, Input::Stop);
    c.pass(Duration::from_secs(2));
    assert_eq!(c.monitor(leader).stop.deadline(), None);
}

/// The new leader has no room for what comes before it leads. Its sender keeps the request, and sends it again.
#[test]
fn early_request_without_room_is_sent_again() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let (heir, n) = ((leader + 1) % 3, (leader + 2) % 3);
    let conn = c.connect(n, "client.admin", 5000);
    c.ok(n, conn, &set("before"));
    c.cuts.insert((leader, heir));
    let monitor = c.nodes[leader].monitor.as_mut().unwrap();
    monitor.replication.as_mut().unwrap().transfer_leadership(1 + heir as u64).unwrap();
    monitor.quorum.early.bytes_max = 0;
    c.nodes[leader].closed.clear();
    c.ask(n, conn, 802, &set("there"));
    c.deliver();
    assert_eq!(c.nodes[leader].closed.len(), 1, "the connection of the monitor that passed the command on");
    c.cuts.clear();
    c.pass(Duration::from_secs(3));
    // The answer may come twice; the command is carried out once.
    let answers = c.answers(n, conn);
    assert!(!answers.is_empty() && answers.iter().all(|(tid, result, _)| (*tid, *result) == (802, 0)));
    c.assert_equal_states();
}

#[test]
fn monitors_call_themselves_by_their_ranks() {
    let mut c = Cluster::new(3, 4);
    c.wait_leader();
    let numbers = |c: &Cluster| c.nodes.iter().map(|node| node.number).collect::<Vec<i64>>();
    assert_eq!(numbers(&c), [0, 1, 2, -1]);
    let conn = c.connect(2, "client.admin", 5000);
    c.ok(2, conn, &rm("a"));
    c.pass(Duration::from_secs(3));
    assert_eq!(numbers(&c)[1..], [0, 1, -1]);
    c.start(3);
    c.pass(Duration::from_secs(8));
    assert_eq!(numbers(&c)[1..], [0, 1, 2]);
}

/// It has its number and no state, so it knows nobody's key: a client that it refused would give up its ticket, and its id.
#[test]
fn a_monitor_that_joins_judges_nobody_before_it_has_the_state() {
    let mut c = Cluster::new(1, 2);
    c.wait_leader();
    c.start(1);
    while c.monitor(1).quorum.member == 0 {
        c.now = c.now + STEP;
        let wall = c.wall();
        (0..2).for_each(|n| c.step(n, Input::Deadline { wall }));
        for _ in 0..1000 {
            if c.monitor(1).quorum.member != 0 {
                break;
            } else if let Some((n, event)) = c.mail.pop_front() {
                c.step(n, Input::Net(event));
            } else if let Some((tag, write)) = c.nodes[0].writes.pop_front() {
                c.nodes[0].disk.apply(write);
                c.step(0, Input::Written(tag));
            }
        }
    }
    assert_eq!(c.monitor(1).state().monmap.epoch, 0);
    let conn = ConnId::accepted(77);
    let request = machine::net::AuthRequest {
        method: wire::cephx::METHOD_CEPHX,
        first: true,
        payload: Bytes::new(),
        peer_kind: EntityKind::CLIENT,
        peer_addr: addr(7000).0[0],
        mode: 2,
    };
    c.step(1, Input::Net(NetEvent::Auth { conn, request: request.into() }));
    assert!(c.nodes[1].closed.contains(&conn), "it finds another one, and comes back later");
    c.pass(Duration::from_secs(8));
    assert!(c.monitor(1).is_in_quorum(c.now));
}

#[test]
fn a_lost_disk_never_counts_beside_its_successor() {
    let mut c = Cluster::new(3, 3);
    let leader = c.wait_leader();
    let lost = (leader + 1) % 3;
    let old = 1 + lost as u64;
    c.kill(lost);
    c.nodes[lost].disk = Recovered::default();
    c.pass(Duration::from_secs(3));
    c.start(lost);
    while !c.voters(leader).contains(&4) {
        c.pass(STEP);
    }
    assert!(!c.voters(leader).contains(&old), "with both, two of four would be no majority");
    // So any one may die at once.
    c.kill((leader + 2) % 3);
    let conn = c.connect(leader, "client.admin", 5000);
    c.ok(leader, conn, &set("after"));
}

#[test]
fn member_votes_for_one_that_came_while_it_was_away() {
    let mut c = Cluster::new(3, 4);
    let leader = c.wait_leader();
    let (away, removed) = ((leader + 1) % 3, (leader + 2) % 3);
    c.cut_off(away);
    c.start(3);
    c.pass(Duration::from_secs(8));
    let conn = c.connect(leader, "client.admin", 5000);
    c.ok(leader, conn, &rm(NAMES[removed]));
    c.pass(Duration::from_secs(2));
    let mut voters = vec![1 + leader as u64, 1 + away as u64, 4];
    voters.sort_unstable();
    assert_eq!(c.voters(leader), voters);
    assert!(!c.monitor(away).state().monmap.mons.contains_key("d"));

    // Two of three voters are left, and one of them knows nothing of the other.
    c.kill(leader);
    c.kill(removed);
    c.cuts.clear();
    assert_eq!(c.wait_leader(), 3, "the other lacks what was committed");
    let there = c.connect(away, "client.admin", 5001);
    c.ok(away, there, &set("after"));
    assert_eq!(c.monitor(away).state().monmap.mons.len(), 3);
}
