//! A PG moves between two cores while clients use it: every order of what the cores and their stores do that a seed gives.
//!
//! The test is the clients, the messages between the cores (in order between any two, otherwise in any order), and the
//! control machine's part. After every step the power could be cut: one copy must count then, with all that was answered.

mod harness;

use bytes::Bytes;
use harness::two_cores::{Core, Hop, name, text_in, text_of};
use harness::{client_peer, completed, object, output, pg, read, request_at, write_full};
use machine::net::Held;
use machine::{ConnId, CoreId, Effects, Machine, Random, Time};
use osd::Routes;
use osd::shard::{ClusterView, Effect, Input, Parked, PgOrder, PoolView, ToControl};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::memory::{Config, Delay};
use store::moving::leftovers;
use store::{Change, Collection, MemoryStore, ObjectId, ObjectStore};
use wire::messages::{Body, MOSDOp, Message};
use wire::types::*;

const OBJECTS: usize = 100;
const CLIENTS: u64 = 3;

struct Cluster {
    cores: Vec<Core>,
    /// Mail on its way from one core to another: the control machine is on core 0.
    hops: BTreeMap<(usize, usize), VecDeque<Hop>>,
    random: Random,
    now: Time,
    epoch: Epoch,
    at: usize,
    /// Of each client, by the object: what was appended, and how much of it was answered.
    appended: BTreeMap<usize, Vec<(u64, u64)>>,
    answered: BTreeMap<usize, usize>,
    waiting: BTreeMap<u64, (ConnId, usize)>,
    order: BTreeMap<(ConnId, usize), VecDeque<u64>>,
    sent: Vec<(ConnId, Message)>,
    next_tid: u64,
    moved: usize,
    stayed: Vec<String>,
    /// An order for the PG has gone to its core since the move began.
    is_ended: bool,
    cleared: usize,
    /// Causes for which old copies cannot be removed.
    not_cleared: Vec<String>,
    cut_every: u64,
    /// Hints of clients that the cores' stores were given.
    hints: [usize; 2],
    /// Reads of it fail.
    rotten: Option<ObjectId>,
    /// Connections that shards want ended.
    closed: Vec<ConnId>,
    removed_snaps: IntervalSet,
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let mut random = Random::from_seed([seed as u8; 32]);
        let cores = (0..2).map(|core| {
            let store = MemoryStore::new(Config {
                bytes_total: 1 << 30,
                delay: Some(Delay { seed: random.u64(), hold: 128 }),
                track_committed: true,
            });
            Core::new(0, core, store, Vec::new())
        });
        let mut cluster = Cluster {
            cores: cores.collect(),
            hops: BTreeMap::new(),
            random,
            now: Time::ZERO,
            epoch: 10,
            at: 0,
            appended: BTreeMap::new(),
            answered: BTreeMap::new(),
            waiting: BTreeMap::new(),
            order: BTreeMap::new(),
            sent: Vec::new(),
            next_tid: 0,
            moved: 0,
            stayed: Vec::new(),
            is_ended: false,
            cleared: 0,
            not_cleared: Vec::new(),
            cut_every: 0,
            hints: [0; 2],
            closed: Vec::new(),
            rotten: None,
            removed_snaps: IntervalSet::new(),
        };
        for client in 1..=CLIENTS {
            for core in 0..2 {
                let peer = Arc::new(client_peer(client, 4100 + client, -1));
                cluster.step(core, Input::Opened { conn: ConnId(client), peer });
            }
        }
        cluster.epoch += 1;
        let since = cluster.epoch;
        let create = PgOrder::alone(pg(), 0, since);
        cluster.map(vec![create]);
        cluster.settle();
        cluster
    }

    /// From the control machine, to every core.
    fn map(&mut self, orders: Vec<PgOrder>) {
        self.is_ended |= !orders.is_empty();
        let mut view = ClusterView { epoch: self.epoch, ..ClusterView::of_osds(0..1) };
        let mut pool = PoolView { name: "data".into(), pg_num: 1, ..PoolView::default() };
        pool.snapshots.removed = self.removed_snaps.clone();
        view.pools.insert(harness::POOL, pool);
        view.routes = Routes::new(2);
        view.routes.set(pg().pg, CoreId(self.at as u16));
        let view = Arc::new(view);
        for core in 0..2 {
            let orders = if core == self.at { orders.clone() } else { Vec::new() };
            self.hop(0, core, Hop::Input(Input::Map { view: view.clone(), orders }));
        }
    }

    fn hop(&mut self, from: usize, to: usize, hop: Hop) {
        self.hops.entry((from, to)).or_default().push_back(hop);
    }

    fn step(&mut self, core: usize, input: Input) {
        if let Input::Map { view, .. } = &input {
            self.cores[core].routes = view.routes.clone();
        }
        let mut fx = Effects::new();
        let Core { shard, .. } = &mut self.cores[core];
        shard.step(self.now, input, &mut fx);
        shard.check();
        for effect in fx.drain() {
            match effect {
                Effect::Send { conn, message } => self.on_sent(conn, message),
                Effect::SendPeer { .. } | Effect::AskPeer { .. } => {}
                Effect::Close { conn } => self.closed.push(conn),
                Effect::Submit { tag, transaction } => {
                    let is_hint = |change: &&Change| matches!(change, Change::AllocHint { flags: 4, .. });
                    self.hints[core] += transaction.changes.iter().filter(is_hint).count();
                    self.cores[core].store.submit(tag.0, transaction);
                }
                Effect::Read { tag, request } if self.rotten.as_ref() == Some(&request.object) => {
                    let answers = Err(store::ReadError::Corrupt);
                    self.hop(core, core, Hop::Input(Input::Read { tag, answers }));
                }
                Effect::Read { tag, request } => self.cores[core].store.read(tag.0, request),
                Effect::Reroute(Parked { conn, tid, op, held, received }) => {
                    let to = self.cores[core].routes.core_of(op.pg).expect("it is somewhere");
                    self.hop(core, to.0.into(), Hop::Input(Input::Op { conn, tid, op, held, received }));
                }
                Effect::ToShard { core: to, input } => self.hop(core, to.0.into(), Hop::Input(*input)),
                Effect::Control(said) => self.hop(core, 0, Hop::Said(said)),
            }
        }
        if self.cut_every > 0 && self.random.below(self.cut_every) == 0 {
            self.cut();
        }
    }

    fn on_sent(&mut self, conn: ConnId, message: Message) {
        if let Body::MOSDOpReply(reply) = &message.body
            && let Some((_, object)) = self.waiting.remove(&message.tid)
        {
            assert_eq!(reply.result, 0);
            let first = self.order.get_mut(&(conn, object)).and_then(VecDeque::pop_front);
            assert_eq!(first, Some(message.tid), "a client's requests on one object are answered in order");
            *self.answered.entry(object).or_default() += 1;
        }
        self.sent.push((conn, message));
    }

    /// The control machine's part.
    fn control(&mut self, said: ToControl) {
        match said {
            ToControl::Drained { pg } if self.is_ended => {
                self.hop(0, self.at, Hop::Input(Input::Stay { pg }));
            }
            ToControl::Drained { pg } => {
                let source = CoreId(self.at as u16);
                self.hop(0, self.at, Hop::Input(Input::Cross { pg }));
                self.at = 1 - self.at;
                self.map(Vec::new());
                (0..2).for_each(|core| self.hop(0, core, Hop::Input(Input::Switch { pg, source })));
            }
            ToControl::Moved { .. } => self.moved += 1,
            ToControl::Stayed { why, .. } => self.stayed.push(why),
            ToControl::Cleared { why: None, .. } => {
                self.cleared += 1;
            }
            ToControl::Cleared { why: Some(why), .. } => {
                assert!(self.rotten.is_some(), "{why}");
                self.not_cleared.push(why);
            }
            _ => {}
        }
    }

    /// One thing, whatever it is. False when there was nothing.
    fn turn(&mut self) -> bool {
        self.now = self.now + Duration::from_micros(50);
        let ready: Vec<(usize, usize)> =
            self.hops.iter().filter(|(_, q)| !q.is_empty()).map(|(k, _)| *k).collect();
        let choice = self.random.below(ready.len() as u64 + 2) as usize;
        if let Some(pair) = ready.get(choice) {
            match self.hops.get_mut(pair).and_then(VecDeque::pop_front).expect("not empty") {
                Hop::Input(input) => self.step(pair.1, input),
                Hop::Said(said) => self.control(said),
            }
            return true;
        }
        let core = choice - ready.len();
        let mut done = Vec::new();
        let busy = self.cores[core].store.poll(&mut done);
        let idle = done.is_empty() && !busy;
        for completion in done {
            self.step(core, completed(completion));
        }
        if self.cores[core].shard.next_deadline().is_some_and(|at| at <= self.now) {
            self.step(core, Input::Deadline);
            return true;
        }
        !idle || !ready.is_empty()
    }

    fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..1_000_000 {
            quiet = if self.turn() { 0 } else { quiet + 1 };
            let pauses = self
                .cores
                .iter()
                .filter_map(|c| c.shard.next_deadline())
                .any(|at| at < self.now + Duration::from_secs(1));
            if quiet > 40 && !pauses {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    fn depart(&mut self) {
        self.is_ended = false;
        let to = CoreId(1 - self.at as u16);
        self.hop(0, self.at, Hop::Input(Input::Depart { pg: pg(), to, cores: 2 }));
    }

    fn request(&mut self, client: u64, name: &str, ops: Vec<OsdOp>, epoch: Epoch) -> u64 {
        self.next_tid += 1;
        let tid = self.next_tid;
        self.resend(client, tid, name, ops, epoch);
        tid
    }

    /// By the routes that the core of the client's connection has just now.
    fn resend(&mut self, client: u64, tid: u64, name: &str, ops: Vec<OsdOp>, epoch: Epoch) {
        let op = Box::new(request_at(epoch, object(name), ops));
        let input = Input::Op { conn: ConnId(client), tid, op, held: Held::default(), received: Time::ZERO };
        let core = (client % 2) as usize;
        let to = self.cores[core].routes.core_of(pg()).expect("it is somewhere").0.into();
        if to == core { self.step(core, input) } else { self.hop(core, to, Hop::Input(input)) }
    }

    fn append(&mut self, client: u64, object: usize) {
        let text = format!("{client}:{} ", self.next_tid + 1);
        let op = OsdOp::extent(OpCode::APPEND, 0, text.len() as u64, Bytes::from(text));
        // Some clients have seen the next map already.
        let epoch = self.epoch + u32::from(self.random.below(40) == 0 && self.cut_every == 0);
        let tid = self.next_tid + 1;
        self.appended.entry(object).or_default().push((client, tid));
        self.waiting.insert(tid, (ConnId(client), object));
        self.order.entry((ConnId(client), object)).or_default().push_back(tid);
        assert_eq!(self.request(client, &name(object), vec![op], epoch), tid);
    }

    fn random_append(&mut self) {
        let client = 1 + self.random.below(CLIENTS);
        let object = self.random.below(OBJECTS as u64) as usize;
        self.append(client, object);
    }

    /// The power is cut now: what the stores have left.
    fn cut(&mut self) {
        let images: Vec<MemoryStore> = self
            .cores
            .iter()
            .map(|core| {
                let survivors = self.random.below(core.store.uncommitted() as u64 + 1) as usize;
                core.store.crash_image(survivors).expect("it is tracked")
            })
            .collect();
        let found = |images: &[MemoryStore]| -> Vec<(usize, Collection, store::Placed)> {
            let of = |(i, store): (usize, &MemoryStore)| {
                store.placed().into_iter().map(move |(c, placed)| (i, c, placed)).collect::<Vec<_>>()
            };
            images.iter().enumerate().flat_map(of).collect()
        };
        let all = found(&images);
        let left = leftovers(all.clone());
        let counts: Vec<usize> =
            all.iter().filter(|(i, c, _)| !left.contains(&(*i, *c))).map(|(i, ..)| *i).collect();
        let [holder] = counts[..] else { panic!("{all:?}") };
        let mut holder = images.into_iter().nth(holder).expect("it is one of them");
        let answered: Vec<(usize, usize)> = self.answered.iter().map(|(o, n)| (*o, *n)).collect();
        for (object, count) in answered {
            let text = contents(&mut holder, object);
            let there = text.split_whitespace().count();
            assert!(there >= count, "object {object}: {count} appends were answered and {text} is there");
        }
    }
}

fn contents(store: &mut MemoryStore, n: usize) -> String {
    text_in(store, n).unwrap_or_default()
}

fn watch() -> OsdOp {
    let params =
        osd_op::WatchParams { cookie: 5, op: op_value::WATCH_WATCH, timeout_s: 30, ..Default::default() };
    OsdOp::new(OpCode::WATCH, params, Bytes::new())
}

fn notify() -> OsdOp {
    let input = Bytes::from_static(b"\x01\0\0\0\x0a\0\0\0\x02\0\0\0hi");
    OsdOp { input, ..OsdOp::bare(OpCode::NOTIFY) }
}

fn ack(id: u64) -> OsdOp {
    let input = [&id.to_le_bytes()[..], &5u64.to_le_bytes(), b"\x02\0\0\0yo"].concat().into();
    OsdOp { input, ..OsdOp::bare(OpCode::NOTIFY_ACK) }
}

/// Clients append all the time, and the PG goes there and back.
fn story(seed: u64, cut_every: u64) {
    let mut c = Cluster::new(seed);
    (0..OBJECTS).for_each(|object| c.append(1 + object as u64 % CLIENTS, object));
    c.settle();
    c.cut_every = cut_every;
    let mut before_the_last = 0;
    for round in 1..=3 {
        before_the_last = c.next_tid;
        c.depart();
        let mut turns = 0;
        while c.cleared + c.moved < 2 * round {
            if c.random.below(10) == 0 {
                c.random_append();
            }
            c.turn();
            turns += 1;
            if turns % 500 == 0 {
                // The map that some clients have seen comes, too.
                let open = c.stayed.is_empty() && c.moved + 1 < round;
                if open {
                    c.epoch += 1;
                    c.map(Vec::new());
                }
            }
            assert!(turns < 200_000, "seed {seed}: moves come to an end: {:?}", c.stayed);
        }
        assert_eq!((c.moved, c.stayed.len()), (round, 0), "seed {seed}: {:?}", c.stayed);
    }
    c.epoch += 1;
    c.map(Vec::new());
    c.settle();
    assert_eq!(c.at, 1, "three moves of two");
    assert!(c.waiting.is_empty(), "seed {seed}: requests are not answered: {:?}", c.waiting);
    assert_eq!(c.cores[0].store.placed(), []);
    for (object, appends) in c.appended.clone() {
        let text = contents(&mut c.cores[1].store, object);
        let found: Vec<(u64, u64)> = text
            .split_whitespace()
            .map(|w| w.split_once(':').map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())).unwrap())
            .collect();
        assert_eq!(found.len(), appends.len(), "each happened once: {text} and {appends:?}");
        for client in 1..=CLIENTS {
            let of = |all: &[(u64, u64)]| {
                all.iter().filter(|(who, _)| *who == client).copied().collect::<Vec<_>>()
            };
            assert_eq!(of(&found), of(&appends), "seed {seed}: in the order sent");
        }
    }
    // What happened before a move is known after it.
    let all = c
        .appended
        .iter()
        .flat_map(|(object, appends)| appends.iter().map(move |(client, tid)| (*tid, *client, *object)));
    let (tid, client, object) =
        all.filter(|(tid, ..)| *tid <= before_the_last).max().expect("there were some");
    let before = contents(&mut c.cores[1].store, object);
    let text = format!("{client}:{tid} ");
    let op = OsdOp::extent(OpCode::APPEND, 0, text.len() as u64, Bytes::from(text));
    c.resend(client, tid, &name(object), vec![op], c.epoch);
    c.settle();
    assert_eq!(contents(&mut c.cores[1].store, object), before, "a repeated request is recognised");
}

#[test]
fn no_order_of_events_loses_doubles_or_reorders_a_request() {
    (0..100).for_each(|seed| story(seed, 0));
}

#[test]
fn at_every_moment_one_copy_counts_and_has_what_was_answered() {
    (100..120).for_each(|seed| story(seed, 20));
}

#[test]
fn watches_and_notifications_go_along() {
    let mut c = Cluster::new(7);
    c.request(1, "w", vec![write_full(b"x")], 11);
    c.settle();
    c.request(1, "w", vec![watch()], 11);
    c.settle();
    c.sent.clear();
    // A notification is under way when the PG goes, and is answered when it has gone.
    c.request(2, "w", vec![notify()], 11);
    c.settle();
    let event = |c: &Cluster| {
        c.sent.iter().rev().find_map(|(conn, m)| match &m.body {
            Body::MWatchNotify(event) => Some((conn.0, event.clone())),
            _ => None,
        })
    };
    let (conn, told) = event(&c).expect("the watcher is told");
    assert_eq!((conn, told.cookie), (1, 5));
    c.depart();
    c.settle();
    assert_eq!((c.at, c.moved, c.cleared), (1, 1, 1), "{:?}", c.stayed);
    c.sent.clear();
    c.request(1, "w", vec![ack(told.notify_id)], 11);
    c.settle();
    let (conn, outcome) = event(&c).expect("the notifier hears of it");
    assert_eq!((conn, outcome.event, outcome.result), (2, op_value::EVENT_NOTIFY_COMPLETE, 0));
    // And a new one reaches the watcher without its doing.
    c.sent.clear();
    c.request(2, "w", vec![notify()], 11);
    c.settle();
    let (conn, told) = event(&c).expect("the watcher is told");
    assert_eq!((conn, told.cookie, told.event), (1, 5, op_value::EVENT_NOTIFY));
    // Its connection breaks: the new core knows, and the watch has its time-out to come back.
    (0..2).for_each(|core| {
        let why = machine::net::CloseReason::Broken("test".into());
        c.step(core, Input::Closed { conn: ConnId(1), why });
    });
    c.now = c.now + Duration::from_secs(100);
    c.step(1, Input::Deadline);
    c.settle();
    c.sent.clear();
    let tid = c.request(2, "w", vec![OsdOp::bare(OpCode::LIST_WATCHERS), read(0, 0)], 11);
    c.settle();
    let reply = c.sent.iter().find_map(|(_, m)| match &m.body {
        Body::MOSDOpReply(reply) if m.tid == tid => Some(reply.clone()),
        _ => None,
    });
    let reply = reply.expect("an answer");
    assert_eq!(&output(&reply, 1)[..], b"x");
    assert!(output(&reply, 0).len() < 20, "nobody watches any more: {:?}", output(&reply, 0));
}

#[test]
fn what_clients_said_of_compression_goes_along() {
    let mut c = Cluster::new(11);
    let hint = osd_op::AllocHint { object_size: 8, write_size: 4, flags: 4 };
    let hint = OsdOp::new(OpCode::SETALLOCHINT, hint, Bytes::new());
    c.request(1, "h", vec![hint, write_full(b"x")], 11);
    c.settle();
    c.depart();
    c.settle();
    assert_eq!((c.moved, c.hints), (1, [1, 1]));
}

/// The trim waits while the PG moves. It goes on where the PG went.
#[test]
fn snapshot_removed_in_the_middle_of_a_move_is_trimmed() {
    let clone = HObject { snap: SnapId(2), ..object(&name(0)) };
    for turns in [0, 10, 30, 60, 90] {
        let mut c = Cluster::new(19);
        c.cut_every = u64::MAX;
        (0..OBJECTS).for_each(|object| c.append(1, object));
        c.settle();
        let write = request_at(c.epoch, object(&name(0)), vec![write_full(b"new")]);
        let op = Box::new(MOSDOp { snap_seq: SnapId(2), snaps: vec![SnapId(2)], ..write });
        let (tid, held, received) = (9_999, Held::default(), c.now);
        c.step(0, Input::Op { conn: ConnId(2), tid, op, held, received });
        c.settle();
        assert!(text_of(&mut c.cores[0].store, clone.clone().into()).is_some(), "the write has cloned");
        c.depart();
        for _ in 0..turns {
            c.turn();
        }
        c.epoch += 1;
        c.removed_snaps = IntervalSet::of(2, 1);
        c.map(Vec::new());
        c.settle();
        assert_eq!((c.at, c.moved), (1, 1), "after {turns} turns: {:?}", c.stayed);
        c.now = c.now + Duration::from_secs(2);
        c.settle();
        assert_eq!(text_of(&mut c.cores[1].store, clone.clone().into()), None, "after {turns} turns");
    }
}

/// Before anything is copied, and in the middle of it.
#[test]
fn a_core_without_room_takes_no_pg() {
    for turns in [0, 30, 60, 90] {
        let mut c = Cluster::new(13);
        c.cut_every = u64::MAX;
        (0..OBJECTS).for_each(|object| c.append(1, object));
        c.settle();
        c.depart();
        for _ in 0..turns {
            c.turn();
        }
        assert_eq!(c.cleared, 0, "it is not done yet");
        c.step(1, Input::Space { full: true });
        c.settle();
        assert_eq!((c.at, c.moved, c.cleared), (0, 0, 1), "after {turns} turns");
        assert_eq!(c.stayed, ["there is no room"]);
        assert_eq!(c.cores[1].store.placed(), []);
        c.append(2, 7);
        c.settle();
        assert!(c.waiting.is_empty());
    }
}

/// The other core does not know what was dropped here, and what comes next must not overtake that.
#[test]
fn client_of_dropped_write_is_disconnected_when_pg_leaves() {
    let mut c = Cluster::new(14);
    c.cut_every = u64::MAX;
    (0..OBJECTS).for_each(|object| c.append(1, object));
    c.settle();
    c.step(0, Input::Space { full: true });
    c.append(2, 7);
    c.settle();
    assert_eq!((c.waiting.len(), c.closed.len()), (1, 0));
    c.depart();
    c.settle();
    assert_eq!((c.at, c.moved), (1, 1));
    assert_eq!(c.closed, [ConnId(2)]);
}

#[test]
fn an_object_that_cannot_be_read_keeps_its_pg_where_it_is() {
    let mut c = Cluster::new(9);
    // Every client has the map that the cores have.
    c.cut_every = u64::MAX;
    (0..OBJECTS).for_each(|object| c.append(1, object));
    c.settle();
    c.rotten = Some(ObjectId::from(object(&name(50))));
    c.depart();
    c.settle();
    assert_eq!((c.at, c.moved, c.cleared), (0, 0, 1));
    assert!(c.stayed[0].contains("o50") && c.stayed[0].contains("checksum"), "{:?}", c.stayed);
    assert_eq!(c.cores[1].store.placed(), []);
    // It goes on as before, and goes when it can.
    c.append(2, 3);
    c.settle();
    c.rotten = None;
    c.depart();
    c.settle();
    assert_eq!((c.at, c.moved, c.cleared), (1, 1, 2));
}

/// The source cannot list its old copy. It tries again until it can.
#[test]
fn old_copy_that_cannot_be_listed_is_removed_later() {
    let mut c = Cluster::new(9);
    (0..OBJECTS).for_each(|object| c.append(1, object));
    c.settle();
    // The place where a removal begins to list.
    c.rotten = Some(ObjectId::from(HObject::min()));
    c.depart();
    c.settle();
    assert_eq!((c.at, c.moved, c.cleared, c.not_cleared.len()), (1, 1, 0, 1), "{:?}", c.not_cleared);
    assert_eq!(c.cores[0].store.placed().len(), 1);
    // It is in the way, and stays so.
    c.depart();
    c.settle();
    assert_eq!((c.at, c.moved, c.cleared, c.not_cleared.len()), (1, 1, 0, 2), "{:?}", c.not_cleared);
    assert!(c.stayed[0].contains("in the way"), "{:?}", c.stayed);
    c.now = c.now + Duration::from_secs(60);
    c.settle();
    assert_eq!((c.cleared, c.not_cleared.len()), (0, 2), "the listing fails again");
    (c.rotten, c.not_cleared) = (None, Vec::new());
    c.now = c.now + Duration::from_secs(60);
    c.settle();
    assert_eq!((c.cleared, c.cores[0].store.placed().len()), (1, 0));
    c.append(2, 3);
    c.depart();
    c.settle();
    assert_eq!((c.at, c.moved, c.cleared), (0, 2, 2));
}

#[test]
fn stopped_or_removed_pg_cancels_its_move_without_remains() {
    let orders: [fn() -> PgOrder; 2] = [|| PgOrder::Idle { pg: pg() }, || PgOrder::Remove { pg: pg() }];
    for (seed, order) in orders.iter().enumerate() {
        let mut c = Cluster::new(seed as u64);
        (0..OBJECTS).for_each(|object| c.append(1, object));
        c.settle();
        c.depart();
        for _ in 0..30 {
            c.turn();
        }
        c.epoch += 1;
        c.map(vec![order()]);
        c.settle();
        assert_eq!((c.at, c.moved, c.cleared, c.stayed.len()), (0, 0, 1, 1));
        assert_eq!(c.cores[1].store.placed(), []);
        let is_removed = matches!(order(), PgOrder::Remove { .. });
        assert_eq!(c.cores[0].store.placed().is_empty(), is_removed);
    }
}

/// The order waits at the destination until the PG lives there.
#[test]
fn order_behind_point_of_no_return_waits_for_arrival() {
    let child = SpgId::from(PgId { pool: harness::POOL, seed: 1 });
    let split = || PgOrder::Split { pg: pg(), split_bits: 1, children: vec![(child, 1)], epoch: 12 };
    let collections = |c: &Cluster| c.cores[1].store.placed().iter().map(|(c, _)| *c).collect::<Vec<_>>();
    let pgs = |pgs: &[SpgId]| pgs.iter().map(|pg| Collection::Pg(*pg)).collect::<Vec<_>>();
    for turns in [0, 3, 10, 30] {
        let orders = [PgOrder::Idle { pg: pg() }, PgOrder::Remove { pg: pg() }, split()];
        for (order, left) in orders.into_iter().zip([pgs(&[pg()]), Vec::new(), pgs(&[pg(), child])]) {
            let mut c = Cluster::new(17);
            c.cut_every = u64::MAX;
            (0..OBJECTS).for_each(|object| c.append(1, object));
            c.settle();
            c.depart();
            while c.at == 0 {
                c.turn();
            }
            for _ in 0..turns {
                c.turn();
            }
            c.epoch += 1;
            c.map(vec![order.clone()]);
            c.settle();
            assert_eq!((c.moved, c.cleared, c.stayed.len()), (1, 1, 0), "{order:?} after {turns} turns");
            assert_eq!(c.cores[0].store.placed(), []);
            assert_eq!(collections(&c), left, "{order:?} after {turns} turns");
        }
    }
}

/// Nothing but the answer to the first word tells whether the destination takes it.
#[test]
fn pg_without_objects_goes_if_there_is_a_place() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        cluster.depart();
        cluster.settle();
        assert_eq!((cluster.moved, cluster.stayed.len()), (1, 0), "{:?}", cluster.stayed);
        let mut cluster = Cluster::new(seed);
        cluster.step(1, Input::Space { full: true });
        cluster.depart();
        cluster.settle();
        assert_eq!((cluster.moved, cluster.stayed.len()), (0, 1));
        assert_eq!(cluster.at, 0);
    }
}
