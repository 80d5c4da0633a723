//! Stories of one PG on several OSDs: production's shards, memory stores, links that deliver in order or break.

mod harness;

use bytes::Bytes;
use harness::*;
use machine::net::Held;
use machine::{ConnId, Time};
use osd::shard::{
    ClusterView, Input, Interval, LeaseNews, PgOrder, PgReport, PoolView, ShardConfig, ToControl,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{Answer, Collection, Completion, ObjectId, ObjectStore, Query, ReadRequest};
use wire::messages::MOSDPeer;
use wire::types::*;

/// Some OSDs, the map's interval, and the statements under way.
struct Cluster {
    hosts: BTreeMap<i32, Host>,
    epoch: Epoch,
    interval: Interval,
    past: PastIntervals,
    wires: VecDeque<(i32, i32, Box<MOSDPeer>)>,
    /// Links that lose everything, from and to.
    cut: Vec<(i32, i32)>,
    /// The client counts its requests to all OSDs.
    next_tid: u64,
    flags: u32,
}

const MIN_SIZE: u32 = 1;

fn osd_config(osd: i32) -> ShardConfig {
    ShardConfig { osd: OsdId(osd), ..config() }
}

impl Cluster {
    fn new(osds: i32, acting: Vec<i32>) -> Cluster {
        let size = acting.len() as u32;
        let mut cluster = Cluster {
            hosts: (0..osds).map(|osd| (osd, Host::with(osd_config(osd), memory_store()))).collect(),
            epoch: 11,
            interval: Interval::new(11, acting, size, MIN_SIZE),
            past: PastIntervals { known_since: 11, intervals: Vec::new() },
            wires: VecDeque::new(),
            cut: Vec::new(),
            next_tid: 0,
            flags: 0,
        };
        for host in cluster.hosts.values_mut() {
            host.open(1, 4100);
        }
        cluster.publish(true);
        cluster.run();
        cluster
    }

    fn view(&self) -> ClusterView {
        let up = |osd: i32| self.hosts.contains_key(&osd);
        let mut view = ClusterView { epoch: self.epoch, ..ClusterView::of_osds(0..8) };
        let mut map = OsdMap::clone(&view.map);
        for (osd, row) in (0..).zip(&mut map.osds) {
            if !up(osd) {
                row.state = OsdState(OsdState::EXISTS);
            }
        }
        map.epoch = self.epoch;
        map.flags = osd_map::MapFlags(self.flags);
        view.map = Arc::new(map);
        view.pools.insert(POOL, PoolView { name: "data".into(), pg_num: 1, ..PoolView::default() });
        view
    }

    fn publish(&mut self, is_birth: bool) {
        let view = Arc::new(self.view());
        let (interval, past) = (Arc::new(self.interval.clone()), Arc::new(self.past.clone()));
        for (osd, host) in &mut self.hosts {
            let named = interval.acting.contains(osd) || interval.up.contains(osd);
            let holds = host.store.collections().iter().any(|(c, _)| *c == Collection::Pg(pg()));
            let order = PgOrder::Interval {
                pg: pg(),
                split_bits: 0,
                created: if is_birth { 11 } else { 0 },
                is_birth,
                interval: interval.clone(),
                past: past.clone(),
            };
            host.view = ClusterView::clone(&view);
            let orders = if named || holds { vec![order] } else { Vec::new() };
            host.step(Input::Map { view: view.clone(), orders });
        }
    }

    /// The map's next interval.
    fn interval(&mut self, up: Vec<i32>, acting: Vec<i32>) {
        self.epoch += 10;
        let old = std::mem::take(&mut self.interval);
        let may_have_written = !old.acting.is_empty();
        self.past.intervals.push(PastInterval {
            first: old.since,
            last: self.epoch - 1,
            up: old.up,
            acting: old.acting,
            primary: old.primary,
            may_have_written,
        });
        let up_primary = up.first().copied().unwrap_or(-1);
        self.interval =
            Interval { up, up_primary, ..Interval::new(self.epoch, acting, old.size, old.min_size) };
        self.publish(false);
    }

    /// A map with other flags, in which nothing else changes.
    fn set_flags(&mut self, flags: u32) {
        self.epoch += 1;
        self.flags = flags;
        let view = Arc::new(self.view());
        for host in self.hosts.values_mut() {
            host.view = ClusterView::clone(&view);
            host.step(Input::Map { view: view.clone(), orders: Vec::new() });
        }
        self.run();
    }

    /// An OSD's lease of another one ends in `ms` milliseconds.
    fn lease(&mut self, osd: i32, of: i32, ms: u64) {
        let host = self.hosts.get_mut(&osd).expect("it runs");
        let held = vec![(of, host.now + Duration::from_millis(ms))];
        host.step(Input::Leases(Arc::new(LeaseNews { held, ..LeaseNews::default() })));
    }

    /// An OSD has granted another one a lease that ends in `ms` milliseconds.
    fn grant(&mut self, osd: i32, to: i32, ms: u64) {
        let host = self.hosts.get_mut(&osd).expect("it runs");
        let granted = vec![(to, host.now + Duration::from_millis(ms))];
        host.step(Input::Leases(Arc::new(LeaseNews { granted, ..LeaseNews::default() })));
    }

    fn pass(&mut self, ms: u64) {
        self.hosts.values_mut().for_each(|host| host.pass(Duration::from_millis(ms)));
        self.run();
    }

    /// An OSD's process dies; its store keeps what was durable.
    fn kill(&mut self, osd: i32) -> store::MemoryStore {
        self.wires.retain(|(from, to, _)| *from != osd && *to != osd);
        self.hosts.remove(&osd).expect("it runs").store
    }

    fn start(&mut self, osd: i32, store: store::MemoryStore) {
        let mut host = Host::with(osd_config(osd), store);
        host.open(1, 4100);
        self.hosts.insert(osd, host);
    }

    /// One statement, or one completion of each store. False if nothing is under way.
    fn step(&mut self) -> bool {
        let mut moved = false;
        for (osd, host) in &mut self.hosts {
            moved |= host.poll_once();
            for (to, message) in host.peers.drain(..) {
                moved = true;
                if !self.cut.contains(&(*osd, to.0)) {
                    self.wires.push_back((*osd, to.0, message));
                }
            }
        }
        if let Some((from, to, message)) = self.wires.pop_front() {
            moved = true;
            // Over the wire: encoded and decoded.
            let message = over_the_wire(*message);
            if let Some(host) = self.hosts.get_mut(&to) {
                host.step(Input::Peer {
                    from: OsdId(from),
                    message: Box::new(message),
                    held: Held::default(),
                });
            }
        }
        moved
    }

    fn run(&mut self) {
        for _ in 0..200_000 {
            if !self.step() && !self.take_wishes() {
                return;
            }
        }
        panic!("the cluster does not come to rest");
    }

    /// Carries out what primaries ask the monitor for.
    fn take_wishes(&mut self) -> bool {
        let mut wish = None;
        for host in self.hosts.values_mut() {
            for said in host.control.drain(..) {
                match said {
                    ToControl::WantActing { acting, .. } => wish = Some(acting),
                    ToControl::Rejected { why } => assert!(why.contains("cannot be read"), "{why}"),
                    _ => {}
                }
            }
        }
        let Some(acting) = wish else { return false };
        let up = self.interval.up.clone();
        let acting = if acting.is_empty() { up.clone() } else { acting };
        self.interval(up, acting);
        true
    }

    fn reset_links(&mut self, a: i32, b: i32) {
        self.wires.retain(|(from, to, _)| (*from, *to) != (a, b) && (*from, *to) != (b, a));
        for (one, other) in [(a, b), (b, a)] {
            if let Some(host) = self.hosts.get_mut(&one) {
                host.step(Input::LinkReset { osd: OsdId(other) });
            }
        }
    }

    fn primary(&mut self) -> &mut Host {
        let primary = self.interval.primary;
        self.hosts.get_mut(&primary).expect("the primary runs")
    }

    fn send(&mut self, name: &str, ops: Vec<OsdOp>) -> u64 {
        self.next_tid += 1;
        let tid = self.next_tid;
        let host = self.primary();
        let request = host.request(object(name), ops);
        host.resend(1, tid, request);
        tid
    }

    fn ask(&mut self, name: &str, ops: Vec<OsdOp>) -> wire::messages::MOSDOpReply {
        let tid = self.send(name, ops);
        self.run();
        self.primary().reply(tid)
    }

    fn put(&mut self, name: &str, data: &'static [u8]) {
        assert_eq!(self.ask(name, vec![write_full(data)]).result, 0, "{name}");
    }

    fn get(&mut self, name: &str) -> Bytes {
        let reply = self.ask(name, vec![read(0, 0)]);
        if reply.result < 0 { Bytes::new() } else { output(&reply, 0) }
    }

    fn state(&mut self) -> String {
        self.report().status.state.to_string()
    }

    fn report(&mut self) -> PgReport {
        let host = self.primary();
        host.pg_reports().pop().expect("a PG")
    }

    /// An object's bytes in an OSD's store.
    fn stored(&mut self, osd: i32, name: &str) -> Option<Bytes> {
        let store = &mut self.hosts.get_mut(&osd).expect("it runs").store;
        let queries = vec![Query::Data { offset: 0, len: u64::MAX }];
        let object = ObjectId::from(object(name));
        store.read(u64::MAX, ReadRequest { collection: Collection::Pg(pg()), object, queries });
        let mut done = Vec::new();
        while done.is_empty() {
            store.poll(&mut done);
        }
        match done.pop() {
            Some(Completion::Read { answers: Ok(mut answers), .. }) => match answers.pop() {
                Some(Answer::Data(data)) => Some(data.to_bytes()),
                other => panic!("{other:?}"),
            },
            _ => None,
        }
    }
}

fn over_the_wire(message: MOSDPeer) -> MOSDPeer {
    use wire::messages::{Body, Message, Payload};
    let (header, out) = Message::new(message).encode(codec::Features::ALL);
    let payload = Payload {
        front: out.front.into_bytes(),
        middle: out.middle,
        data: out.data.to_bytes(),
        data_sum: None,
    };
    match Message::decode(&header, payload).expect("it was encoded here").body {
        Body::MOSDPeer(message) => *message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn write_is_durable_on_all_members_when_answered() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    assert_eq!(cluster.state(), "active+clean");
    cluster.put("a", b"one");
    for osd in 0..3 {
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"one"[..]), "osd.{osd}");
    }
    let tid = cluster.send("a", vec![write_full(b"two")]);
    cluster.primary().settle();
    assert!(cluster.primary().find_reply(tid).is_none(), "it is durable on the primary alone");
    cluster.run();
    assert_eq!(cluster.primary().reply(tid).result, 0);
}

#[test]
fn member_that_was_away_gets_what_it_missed_from_the_log() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    for name in ["a", "b", "c"] {
        cluster.put(name, b"old");
    }
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.state(), "active+undersized+degraded");
    cluster.put("a", b"new");
    cluster.put("d", b"new");
    assert_eq!(cluster.ask("b", vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    cluster.start(2, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    let want = [("a", Some("new")), ("b", None), ("c", Some("old")), ("d", Some("new"))];
    for (name, want) in want {
        let found = cluster.stored(2, name);
        assert_eq!(found.as_deref(), want.map(str::as_bytes), "{name}");
    }
}

#[test]
fn primary_that_was_away_pulls_before_it_answers() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"old");
    let store = cluster.kill(0);
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    cluster.put("a", b"new");
    cluster.start(0, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"new"[..]);
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn divergent_write_of_an_old_primary_is_taken_back() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"old");
    cluster.cut = vec![(0, 1), (0, 2)];
    let tid = cluster.send("a", vec![write_full(b"lost")]);
    let created = cluster.send("x", vec![write_full(b"lost")]);
    cluster.primary().settle();
    assert!(cluster.primary().find_reply(tid).is_none());
    assert!(cluster.primary().find_reply(created).is_none());
    let store = cluster.kill(0);
    cluster.cut.clear();
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"old"[..]);
    cluster.put("b", b"new");
    cluster.start(0, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.get("a"), &b"old"[..]);
    assert_eq!(cluster.get("b"), &b"new"[..]);
    assert_eq!(cluster.stored(0, "x"), None);
}

#[test]
fn empty_member_is_backfilled_and_replaces_the_one_before() {
    let mut cluster = Cluster::new(4, vec![0, 1, 2]);
    let names: Vec<String> = (0..300).map(|n| format!("o{n}")).collect();
    for name in &names {
        cluster.put(name, b"data");
    }
    cluster.interval(vec![3, 1, 2], vec![3, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.interval.acting, [3, 1, 2]);
    for name in &names {
        assert_eq!(cluster.stored(3, name).as_deref(), Some(&b"data"[..]), "{name}");
    }
    let left = cluster.hosts[&0].store.collections();
    assert!(left.is_empty(), "the stray copy is removed: {left:?}");
    assert_eq!(cluster.get("o7"), &b"data"[..]);
}

#[test]
fn statements_that_a_broken_link_lost_are_sent_again() {
    for lost in 0..60 {
        let mut cluster = Cluster::new(3, vec![0, 1, 2]);
        cluster.put("a", b"old");
        let store = cluster.kill(2);
        cluster.interval(vec![0, 1], vec![0, 1]);
        cluster.run();
        for name in ["a", "b", "c", "d", "e", "f"] {
            cluster.put(name, b"new");
        }
        cluster.start(2, store);
        cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
        let tid = cluster.send("g", vec![write_full(b"new")]);
        for _ in 0..lost {
            cluster.step();
        }
        cluster.reset_links(0, 2);
        cluster.run();
        assert_eq!(cluster.state(), "active+clean", "after {lost} steps");
        assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"new"[..]));
        let _ = cluster.primary().find_reply(tid);
    }
}

#[test]
fn interval_that_may_have_written_blocks_until_a_member_returns() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    let two = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.put("a", b"two");
    let (zero, _one) = (cluster.kill(0), cluster.kill(1));
    cluster.interval(vec![], vec![]);
    cluster.start(2, two);
    cluster.interval(vec![2], vec![2]);
    cluster.run();
    assert_eq!(cluster.state(), "down");
    let report = cluster.report();
    assert_eq!(report.status.blocked_by, [0, 1]);
    cluster.start(0, zero);
    cluster.interval(vec![0, 2], vec![0, 2]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"two"[..]);
}

#[test]
fn repeated_write_is_recognised_by_the_next_primary() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    let request = cluster
        .primary()
        .request(object("a"), vec![OsdOp::extent(OpCode::APPEND, 0, 1, Bytes::from_static(b"x"))]);
    let tid = 1;
    cluster.primary().resend(1, tid, request.clone());
    cluster.run();
    assert_eq!(cluster.primary().reply(tid).result, 0);
    let store = cluster.kill(0);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    let again = wire::messages::MOSDOp { epoch: cluster.epoch, ..request };
    cluster.primary().resend(1, tid, again);
    cluster.run();
    assert_eq!(cluster.primary().reply(tid).result, 0);
    assert_eq!(cluster.get("a"), &b"x"[..]);
    drop(store);
}

#[test]
fn large_object_is_pushed_in_steps() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    let store = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    let data = Bytes::from((0..3_000_000u32).map(|n| (n % 251) as u8).collect::<Vec<u8>>());
    let write = OsdOp::extent(OpCode::WRITEFULL, 0, data.len() as u64, data.clone());
    assert_eq!(cluster.ask("big", vec![write]).result, 0);
    cluster.start(1, store);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(1, "big"), Some(data));
}

#[test]
fn reply_without_lease_waits_and_keeps_later_replies_behind_it() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"one");
    cluster.lease(0, 1, 300);
    assert_eq!(cluster.get("a"), &b"one"[..], "the lease holds");
    let read_late = cluster.send("a", vec![read(0, 0)]);
    cluster.hosts.get_mut(&0).unwrap().now = Time::ZERO + Duration::from_millis(300);
    cluster.run();
    assert!(cluster.primary().find_reply(read_late).is_none(), "the lease ended before the store answered");
    let missing = cluster.send("b", vec![read(0, 0)]);
    let write = cluster.send("a", vec![write_full(b"two")]);
    cluster.run();
    assert!(cluster.primary().sent.is_empty(), "{:?}", cluster.primary().sent);
    cluster.lease(0, 1, 800);
    let order: Vec<u64> = cluster.primary().sent.iter().map(|(_, message)| message.tid).collect();
    assert_eq!(order, [read_late, missing, write]);
    assert_eq!(output(&cluster.primary().reply(read_late), 0), &b"one"[..]);
    assert_eq!(cluster.get("a"), &b"two"[..]);
}

#[test]
fn old_primary_drops_its_reads_and_new_one_waits_for_the_grant() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    cluster.lease(0, 1, 0);
    let tid = cluster.send("a", vec![read(0, 0)]);
    cluster.run();
    assert!(cluster.primary().find_reply(tid).is_none());
    // osd.2 granted last.
    cluster.grant(1, 0, 300);
    cluster.grant(2, 0, 500);
    let mut old = cluster.hosts.remove(&0).unwrap();
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "undersized+degraded+peering+wait");
    cluster.pass(499);
    assert_eq!(cluster.state(), "undersized+degraded+peering+wait");
    cluster.pass(1);
    assert_eq!(cluster.state(), "active+undersized+degraded");
    cluster.put("a", b"two");
    // The old primary hears of it.
    let order = PgOrder::Interval {
        pg: pg(),
        split_bits: 0,
        created: 0,
        is_birth: false,
        interval: Arc::new(cluster.interval.clone()),
        past: Arc::new(cluster.past.clone()),
    };
    old.step(Input::Map { view: Arc::new(cluster.view()), orders: vec![order] });
    old.step(Input::Leases(Arc::new(LeaseNews::endless(0..8))));
    old.settle();
    assert!(!old.sent.iter().any(|(conn, message)| *conn == ConnId(1) && message.tid == tid));
}

#[test]
fn interval_that_ended_while_it_waited_hands_the_wait_on() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    cluster.grant(1, 0, 500);
    cluster.hosts.remove(&0).unwrap();
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "undersized+degraded+peering+wait");
    // osd.2 granted nothing itself. It knows that osd.1 may have been waiting.
    cluster.hosts.remove(&1).unwrap();
    cluster.interval(vec![2], vec![2]);
    cluster.run();
    assert_eq!(cluster.state(), "undersized+degraded+peering+wait");
    cluster.pass(840);
    assert_eq!(cluster.state(), "active+undersized+degraded");
}

#[test]
fn old_primary_that_is_up_needs_no_wait() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    cluster.grant(1, 0, 500);
    cluster.grant(2, 0, 500);
    cluster.interval(vec![1, 2, 0], vec![1, 2, 0]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn damaged_copy_is_repaired_while_its_reader_waits() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"whole");
    cluster.put("b", b"other");
    cluster.primary().rotten = Some("a");
    let first = cluster.send("a", vec![read(0, 0)]);
    let append = cluster.send("a", vec![write(5, b" and more")]);
    let last = cluster.send("a", vec![read(0, 0)]);
    cluster.run();
    let host = cluster.primary();
    assert_eq!(host.rotten, None, "the copy was replaced");
    assert_eq!(output(&host.reply(first), 0), &b"whole"[..]);
    assert_eq!(host.reply(append).result, 0);
    assert_eq!(output(&host.reply(last), 0), &b"whole and more"[..]);
    assert_eq!(cluster.state(), "active+clean");
    for osd in 0..3 {
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"whole and more"[..]), "osd.{osd}");
    }
}

/// A restart in the middle of a repair goes on with it.
#[test]
fn damaged_copy_is_missing_after_a_restart() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"whole");
    cluster.primary().rotten = Some("a");
    cluster.cut = vec![(0, 1)];
    cluster.send("a", vec![read(0, 0)]);
    cluster.run();
    assert_eq!(cluster.report().status.missing, 1);
    let store = cluster.kill(0);
    cluster.cut.clear();
    cluster.start(0, store);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"whole"[..]);
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn object_that_is_damaged_on_every_member_is_an_error() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"whole");
    cluster.hosts.values_mut().for_each(|host| host.rotten = Some("a"));
    for _ in 0..2 {
        assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, -5);
        assert_eq!(cluster.state(), "active+clean+inconsistent");
    }
    assert_eq!(cluster.ask("a", vec![write_full(b"new")]).result, 0);
    assert_eq!(cluster.state(), "active+clean");
}

/// An interval begins in which osd.2 lacks the newest "a", and osd.0, the primary, cannot read its own.
fn damaged_primary_and_stale_member() -> Cluster {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"old");
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.put("a", b"new");
    cluster.primary().rotten = Some("a");
    cluster.start(2, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster
}

/// A member that lacks an object gets it although the primary's own copy is damaged.
#[test]
fn damaged_copy_is_repaired_before_it_is_pushed() {
    let mut cluster = damaged_primary_and_stale_member();
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    for osd in 0..3 {
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"new"[..]), "osd.{osd}");
    }
}

#[test]
fn norecover_holds_back_all_but_what_requests_wait_for() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    for name in ["a", "b"] {
        cluster.put(name, b"data");
    }
    cluster.set_flags(osd_map::MapFlags::NORECOVER);
    cluster.start(2, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+recovery_wait+degraded");
    cluster.put("a", b"newer");
    assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"newer"[..]), "a write waited for it");
    assert_eq!(cluster.stored(2, "b"), None);
    cluster.set_flags(0);
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(2, "b").as_deref(), Some(&b"data"[..]));
}

#[test]
fn nobackfill_and_norebalance_hold_back_backfill() {
    use osd_map::MapFlags;
    let mut cluster = Cluster::new(4, vec![0, 1, 2]);
    cluster.put("a", b"data");
    cluster.set_flags(MapFlags::NOREBALANCE);
    // osd.3 replaces osd.0: all copies are there.
    cluster.interval(vec![3, 1, 2], vec![3, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+remapped+backfill_wait");
    assert_eq!(cluster.stored(3, "a"), None);
    cluster.set_flags(MapFlags::NOBACKFILL);
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+remapped+backfill_wait");
    cluster.set_flags(0);
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(3, "a").as_deref(), Some(&b"data"[..]));
}

/// A read and a push find the same damage: one repair serves both.
#[test]
fn repair_serves_a_reader_and_a_push_at_once() {
    let mut tried = 0;
    for steps in 0..60 {
        let mut cluster = damaged_primary_and_stale_member();
        for _ in 0..steps {
            cluster.step();
        }
        // Before that, a request is held back.
        if !cluster.state().starts_with("active") {
            continue;
        }
        tried += 1;
        assert_eq!(cluster.get("a"), &b"new"[..], "after {steps} steps");
        cluster.pass(5_000);
        assert_eq!(cluster.state(), "active+clean", "after {steps} steps");
        for osd in 0..3 {
            assert_eq!(
                cluster.stored(osd, "a").as_deref(),
                Some(&b"new"[..]),
                "osd.{osd} after {steps} steps"
            );
        }
    }
    assert!(tried > 5, "only {tried} numbers of steps end in the recovery");
}
