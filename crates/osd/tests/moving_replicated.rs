//! Copies of a replicated PG move between the cores of their OSDs while clients write, OSDs die, links break and intervals
//! begin: every order of that which a seed gives.
//!
//! Each OSD has two cores of production's shard, with mail between them in order, and each of its cores has its own links to the
//! other OSDs. The test is the clients, the monitor, and the control machine's part of a move.

mod harness;

use bytes::Bytes;
use harness::two_cores::{Core, Hop, name, text_in};
use harness::{client_peer, completed, object, pg, request_at};
use machine::net::Held;
use machine::{ConnId, CoreId, Effects, HeldBytes, Machine, Random, Time};
use osd::Routes;
use osd::pg::role::{Replica, Role};
use osd::shard::{
    ClusterView, Effect, Input, Interval, LeaseNews, Moving, Parked, PgOrder, PoolView, ToControl,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::memory::{Config, Delay};
use store::moving::{leftovers, remove};
use store::{Collection, MemoryStore, ObjectStore, Placed};
use wire::messages::{Body, MOSDBackoff, MOSDPeer, Message};
use wire::types::*;

const OSDS: i32 = 3;
const OBJECTS: usize = 40;
const CLIENTS: u64 = 3;

/// One map of the monitor, as an OSD gets it.
#[derive(Clone)]
struct Map {
    epoch: Epoch,
    interval: Arc<Interval>,
    past: Arc<PastIntervals>,
    up: Vec<i32>,
    is_birth: bool,
}

struct Osd {
    cores: Vec<Core>,
    hops: BTreeMap<(usize, usize), VecDeque<Hop>>,
    /// Maps that its control machine has not seen.
    maps: VecDeque<Map>,
    /// The newest that it has.
    map: Map,
    told: Option<Epoch>,
    /// The core of the PG, by the control machine.
    at: usize,
    is_moving: bool,
    is_ended: bool,
    /// Number of words about the end of a move. There are two, from two cores, in any order.
    ends: u8,
}

#[derive(Default)]
struct Client {
    /// Sent or to be sent, and not answered: by tid.
    unanswered: BTreeMap<u64, usize>,
    /// OSDs that told it to hold back, and the ids of those messages.
    blocked: BTreeMap<i32, u64>,
}

#[derive(Default, Debug)]
struct Counts {
    moved: [usize; 2],
    stayed: BTreeMap<String, usize>,
    answered: usize,
    cut_while_moving: usize,
}

struct Cluster {
    osds: BTreeMap<i32, Osd>,
    dead: BTreeMap<i32, [MemoryStore; 2]>,
    /// Statements on their way: by the core that sent them, and by the OSD that gets them.
    wires: BTreeMap<(i32, usize, i32), VecDeque<Box<MOSDPeer>>>,
    random: Random,
    now: Time,
    map: Map,
    clients: BTreeMap<u64, Client>,
    appended: BTreeMap<usize, Vec<(u64, u64)>>,
    next_tid: u64,
    counts: Counts,
}

fn new_store(random: &mut Random) -> MemoryStore {
    let delay = Some(Delay { seed: random.u64(), hold: 64 });
    MemoryStore::new(Config { bytes_total: 1 << 30, delay, track_committed: true })
}

impl Osd {
    fn new(osd: i32, stores: [MemoryStore; 2], map: Map) -> Osd {
        let found: Vec<(usize, Collection, Placed)> = stores
            .iter()
            .enumerate()
            .flat_map(|(i, store)| store.placed().into_iter().map(move |(c, placed)| (i, c, placed)))
            .collect();
        let left = leftovers(found.clone());
        let mut stores = stores;
        for (i, collection) in &left {
            remove(&mut stores[*i], *collection, &mut |_| ()).expect("it can be removed");
        }
        let mut at = 0;
        let cores = (0..).zip(stores).map(|(core, store)| {
            let held: Vec<(SpgId, Placed)> = found
                .iter()
                .filter(|(i, c, _)| *i == usize::from(core) && !left.contains(&(*i, *c)))
                .filter_map(|(_, c, placed)| match c {
                    Collection::Pg(pg) => Some((*pg, *placed)),
                    Collection::Meta => None,
                })
                .collect();
            if !held.is_empty() {
                at = usize::from(core);
            }
            Core::new(osd, core, store, held)
        });
        let cores = cores.collect();
        let mut out = Osd {
            cores,
            hops: BTreeMap::new(),
            maps: VecDeque::new(),
            map,
            told: None,
            at,
            is_moving: false,
            is_ended: false,
            ends: 0,
        };
        for core in 0..2 {
            // Clients come once it is up. Then its control machine knows where the PG is.
            out.cores[core].routes.set(pg().pg, CoreId(at as u16));
        }
        out
    }

    fn hop(&mut self, from: usize, to: usize, hop: Hop) {
        self.hops.entry((from, to)).or_default().push_back(hop);
    }

    /// From the control machine, to every core.
    fn publish(&mut self, orders: Vec<PgOrder>) {
        self.is_ended |= self.is_moving && !orders.is_empty();
        let mut view = ClusterView { epoch: self.map.epoch, ..ClusterView::of_osds(0..OSDS) };
        let mut map = OsdMap::clone(&view.map);
        map.epoch = self.map.epoch;
        for (osd, row) in (0..).zip(&mut map.osds) {
            if !self.map.up.contains(&osd) {
                row.state = OsdState(OsdState::EXISTS);
            }
        }
        view.map = Arc::new(map);
        view.pools.insert(harness::POOL, PoolView { name: "data".into(), pg_num: 1, ..PoolView::default() });
        view.routes = Routes::new(2);
        view.routes.set(pg().pg, CoreId(self.at as u16));
        let view = Arc::new(view);
        for core in 0..2 {
            let orders = if core == self.at { orders.clone() } else { Vec::new() };
            self.hop(0, core, Hop::Input(Input::Map { view: view.clone(), orders }));
        }
    }

    /// The control machine sees the next map.
    fn take_map(&mut self, osd: i32) {
        let Some(map) = self.maps.pop_front() else { return };
        self.map = map;
        let Map { interval, past, is_birth, .. } = self.map.clone();
        let is_named = interval.up.contains(&osd);
        let is_new = self.told != Some(interval.since);
        let mut orders = Vec::new();
        if is_named && is_new {
            self.told = Some(interval.since);
            let created = if is_birth { 11 } else { 0 };
            orders.push(PgOrder::Interval { pg: pg(), split_bits: 0, created, is_birth, interval, past });
        }
        self.publish(orders);
    }

    fn copy(&self) -> Option<&osd::pg::Pg> {
        self.cores.iter().flat_map(|core| core.shard.copies()).find(|copy| copy.id == pg())
    }

    fn is_quiet(&self) -> bool {
        !self.is_moving && self.maps.is_empty() && self.hops.values().all(VecDeque::is_empty)
    }
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let mut random = Random::from_number(seed);
        let interval = Arc::new(Interval::new(11, vec![0, 1, 2], 3, 1));
        let past = Arc::new(PastIntervals { known_since: 11, intervals: Vec::new() });
        let map = Map { epoch: 11, interval, past, up: vec![0, 1, 2], is_birth: true };
        let osds = (0..OSDS).map(|osd| {
            let stores = [new_store(&mut random), new_store(&mut random)];
            let mut out = Osd::new(osd, stores, map.clone());
            out.maps.push_back(map.clone());
            (osd, out)
        });
        let osds = osds.collect();
        let mut cluster = Cluster {
            osds,
            dead: BTreeMap::new(),
            wires: BTreeMap::new(),
            random,
            now: Time::ZERO,
            map,
            clients: (1..=CLIENTS).map(|client| (client, Client::default())).collect(),
            appended: BTreeMap::new(),
            next_tid: 0,
            counts: Counts::default(),
        };
        (0..OSDS).for_each(|osd| cluster.open(osd));
        cluster
    }

    /// Clients have connections to an OSD from its start.
    fn open(&mut self, id: i32) {
        for core in 0..2 {
            self.step(id, core, Input::Wall { now: UTime { sec: 1000, nsec: 0 } });
            self.step(id, core, Input::Leases(Arc::new(LeaseNews::endless(0..8))));
            for client in 1..=CLIENTS {
                self.step(
                    id,
                    core,
                    Input::Opened {
                        conn: ConnId(client),
                        peer: Arc::new(client_peer(client, 4100 + client, -1)),
                    },
                );
            }
        }
    }

    /// A map in which nothing changes for the PG, or its next interval.
    fn publish(&mut self, acting: Option<Vec<i32>>) {
        self.map.epoch += 1;
        self.map.up = self.osds.keys().copied().collect();
        let has_changed_primary =
            acting.as_ref().is_some_and(|acting| acting[0] != self.map.interval.primary);
        if let Some(acting) = acting {
            // All that live are up: one that does not act is recovered beside the others.
            let mut up = acting.clone();
            up.extend(self.map.up.iter().filter(|osd| !acting.contains(osd)));
            let up_primary = up[0];
            let old = std::mem::replace(
                &mut self.map.interval,
                Arc::new(Interval { up, up_primary, ..Interval::new(self.map.epoch, acting, 3, 1) }),
            );
            let old = Interval::clone(&old);
            Arc::make_mut(&mut self.map.past).intervals.push(PastInterval {
                first: old.since,
                last: self.map.epoch - 1,
                up: old.up,
                acting: old.acting,
                primary: old.primary,
                may_have_written: true,
            });
            self.map.is_birth = false;
        }
        for osd in self.osds.values_mut() {
            osd.maps.push_back(self.map.clone());
        }
        if has_changed_primary {
            for client in 1..=CLIENTS {
                self.send_all(client);
            }
        }
    }

    fn client(&mut self, client: u64) -> &mut Client {
        self.clients.get_mut(&client).expect("it is one of them")
    }

    fn kill(&mut self, id: i32) {
        let Some(mut osd) = self.osds.remove(&id) else { return };
        self.counts.cut_while_moving += usize::from(osd.is_moving);
        let stores = osd.cores.drain(..).map(|core| {
            let survivors = self.random.below(core.store.uncommitted() as u64 + 1) as usize;
            core.store.crash_image(survivors).expect("it is tracked")
        });
        let stores: Vec<MemoryStore> = stores.collect();
        let found: Vec<(usize, Collection, Placed)> = (0..2)
            .flat_map(|i: usize| {
                stores[i].placed().into_iter().map(move |(c, placed)| (i, c, placed)).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(found.len() - leftovers(found.clone()).len(), 1, "one copy counts: {found:?}");
        self.dead.insert(id, <[MemoryStore; 2]>::try_from(stores).ok().expect("there are two"));
        self.wires.retain(|(from, _, to), _| *from != id && *to != id);
        self.clients.values_mut().for_each(|client| {
            client.blocked.remove(&id);
        });
        let rest: Vec<i32> = self.osds.keys().copied().collect();
        self.publish(Some(rest));
    }

    fn revive(&mut self, id: i32) {
        let Some(stores) = self.dead.remove(&id) else { return };
        self.osds.insert(id, Osd::new(id, stores, self.map.clone()));
        self.open(id);
        let all: Vec<i32> = self.osds.keys().copied().collect();
        self.publish(Some(all));
    }

    fn break_link(&mut self, from: i32, core: usize, to: i32) {
        self.wires.remove(&(from, core, to));
        self.step(from, core, Input::LinkReset { osd: OsdId(to) });
    }

    fn step(&mut self, id: i32, core: usize, input: Input) {
        let Some(osd) = self.osds.get_mut(&id) else { return };
        if let Input::Map { view, .. } = &input {
            osd.cores[core].routes = view.routes.clone();
        }
        let mut fx = Effects::new();
        let Core { shard, .. } = &mut osd.cores[core];
        shard.step(self.now, input, &mut fx);
        shard.check();
        for effect in fx.drain() {
            let osd = self.osds.get_mut(&id).expect("it lives");
            match effect {
                Effect::Send { conn, message } => self.on_sent(id, conn, message),
                Effect::SendPeer { to, message } => {
                    if self.osds.contains_key(&to.0) {
                        self.wires.entry((id, core, to.0)).or_default().push_back(message);
                    }
                }
                Effect::AskPeer { .. } => panic!("nobody copies"),
                Effect::Close { .. } => panic!("no store is full"),
                Effect::Submit { tag, transaction } => osd.cores[core].store.submit(tag.0, transaction),
                Effect::Read { tag, request } => osd.cores[core].store.read(tag.0, request),
                Effect::Reroute(Parked { conn, tid, op, held, received }) => {
                    let to = osd.cores[core].routes.core_of(op.pg).expect("it is somewhere");
                    osd.hop(core, to.0.into(), Hop::Input(Input::Op { conn, tid, op, held, received }));
                }
                Effect::ToShard { core: to, input } => osd.hop(core, to.0.into(), Hop::Input(*input)),
                Effect::Control(said) => osd.hop(core, 0, Hop::Said(said)),
            }
        }
        let here: Vec<bool> = self.osds[&id]
            .cores
            .iter()
            .map(|core| core.shard.owned_pgs().any(|owned| owned == pg()))
            .collect();
        assert!(here != [true, true], "the PG is on both cores of osd.{id}");
    }

    fn on_sent(&mut self, from: i32, conn: ConnId, message: Message) {
        let is_primary = from == self.map.interval.primary;
        match message.body {
            Body::MOSDOpReply(reply) => {
                let Some(object) = self.client(conn.0).unanswered.remove(&message.tid) else { return };
                assert_eq!(reply.result, 0);
                let earlier = self.client(conn.0).unanswered.range(..message.tid);
                let overtaken: Vec<u64> =
                    earlier.filter(|(_, o)| **o == object).map(|(tid, _)| *tid).collect();
                assert!(overtaken.is_empty(), "{conn:?} has {} before {overtaken:?}", message.tid);
                self.counts.answered += 1;
            }
            Body::MOSDBackoff(told) if told.op == op_value::BACKOFF_BLOCK => {
                self.client(conn.0).blocked.insert(from, told.id);
                let ack = Box::new(MOSDBackoff { op: op_value::BACKOFF_ACK_BLOCK, ..*told });
                self.route(from, conn, Input::Backoff { conn, message: ack });
            }
            Body::MOSDBackoff(told) if self.client(conn.0).blocked.get(&from) == Some(&told.id) => {
                self.client(conn.0).blocked.remove(&from);
                if is_primary {
                    self.send_all(conn.0);
                }
            }
            _ => {}
        }
    }

    /// A client's message, by the routes of the core that has its connection.
    fn route(&mut self, id: i32, conn: ConnId, input: Input) {
        let Some(osd) = self.osds.get_mut(&id) else { return };
        let core = (conn.0 % 2) as usize;
        let to = osd.cores[core].routes.core_of(pg()).map_or(0, |core| core.0.into());
        osd.hop(core, to, Hop::Input(input));
    }

    fn send_all(&mut self, client: u64) {
        let waiting: Vec<(u64, usize)> =
            self.clients[&client].unanswered.iter().map(|(tid, object)| (*tid, *object)).collect();
        waiting.into_iter().for_each(|(tid, object)| self.send(client, tid, object));
    }

    fn send(&mut self, client: u64, tid: u64, n: usize) {
        if self.clients[&client].blocked.contains_key(&self.map.interval.primary) {
            return;
        }
        let text = format!("{client}:{tid} ");
        let op = OsdOp::extent(OpCode::APPEND, 0, text.len() as u64, Bytes::from(text));
        let op = Box::new(request_at(self.map.epoch, object(&name(n)), vec![op]));
        let conn = ConnId(client);
        let input = Input::Op { conn, tid, op, held: Held::default(), received: self.now };
        self.route(self.map.interval.primary, conn, input);
    }

    fn append(&mut self) {
        let client = 1 + self.random.below(CLIENTS);
        let n = self.random.below(OBJECTS as u64) as usize;
        self.next_tid += 1;
        let tid = self.next_tid;
        self.appended.entry(n).or_default().push((client, tid));
        self.client(client).unanswered.insert(tid, n);
        self.send(client, tid, n);
    }

    fn depart(&mut self, id: i32) {
        let Some(osd) = self.osds.get_mut(&id) else { return };
        if osd.is_moving || osd.told.is_none() {
            return;
        }
        (osd.is_moving, osd.is_ended, osd.ends) = (true, false, 0);
        let to = CoreId(1 - osd.at as u16);
        let at = osd.at;
        osd.hop(0, at, Hop::Input(Input::Depart { pg: pg(), to, cores: 2 }));
    }

    /// The control machine's part of a move. It asks for the next move once what does not count is gone.
    fn control(&mut self, id: i32, said: ToControl) {
        let osd = self.osds.get_mut(&id).expect("it lives");
        let is_end =
            matches!(said, ToControl::Moved { .. } | ToControl::Stayed { .. } | ToControl::Cleared { .. });
        osd.ends += u8::from(is_end);
        osd.is_moving &= osd.ends < 2;
        match said {
            ToControl::Drained { pg } if osd.is_ended => {
                let at = osd.at;
                osd.hop(0, at, Hop::Input(Input::Stay { pg }));
            }
            ToControl::Drained { pg } => {
                let source = CoreId(osd.at as u16);
                osd.hop(0, osd.at, Hop::Input(Input::Cross { pg }));
                osd.at = 1 - osd.at;
                // Orders wait at the destination from now on.
                osd.is_ended = false;
                osd.publish(Vec::new());
                (0..2).for_each(|core| osd.hop(0, core, Hop::Input(Input::Switch { pg, source })));
            }
            ToControl::Moved { .. } => {
                let is_primary = matches!(osd.copy().map(|copy| &copy.role), Some(Role::Primary(_)));
                self.counts.moved[usize::from(is_primary)] += 1;
            }
            ToControl::Stayed { why, .. } => *self.counts.stayed.entry(why).or_default() += 1,
            ToControl::Cleared { why, .. } => {
                assert_eq!(why, None);
            }
            ToControl::WantActing { acting, .. } if id == self.map.interval.primary => {
                let acting = if acting.is_empty() { self.map.interval.up.clone() } else { acting };
                if acting != self.map.interval.acting {
                    self.publish(Some(acting));
                }
            }
            ToControl::Rejected { why } => panic!("{why}"),
            _ => {}
        }
    }

    /// One thing, whatever it is. False when there was nothing.
    fn turn(&mut self) -> bool {
        // Leases of earlier intervals end in less than a second.
        self.now = self.now + Duration::from_micros(200);
        let mut ready: Vec<(i32, usize, usize)> = Vec::new();
        for (id, osd) in &self.osds {
            ready.extend(osd.hops.iter().filter(|(_, q)| !q.is_empty()).map(|((a, b), _)| (*id, *a, *b)));
        }
        let wires: Vec<(i32, usize, i32)> =
            self.wires.iter().filter(|(_, q)| !q.is_empty()).map(|(k, _)| *k).collect();
        let maps: Vec<i32> =
            self.osds.iter().filter(|(_, osd)| !osd.maps.is_empty()).map(|(id, _)| *id).collect();
        let stores: Vec<(i32, usize)> = self.osds.keys().flat_map(|id| [(*id, 0), (*id, 1)]).collect();
        let choices = ready.len() + wires.len() + maps.len() + stores.len();
        let mut choice = self.random.below(choices as u64) as usize;
        if let Some(&(id, from, to)) = ready.get(choice) {
            let hops = &mut self.osds.get_mut(&id).expect("it lives").hops;
            match hops.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("not empty") {
                Hop::Input(input) => self.step(id, to, input),
                Hop::Said(said) => self.control(id, said),
            }
            return true;
        }
        choice -= ready.len();
        if let Some(&(from, core, to)) = wires.get(choice) {
            let message =
                self.wires.get_mut(&(from, core, to)).and_then(VecDeque::pop_front).expect("not empty");
            // Each link is a connection on a core of its own choice.
            let conn_core = (from as usize + core) % 2;
            let osd = self.osds.get_mut(&to).expect("it lives");
            let at = osd.cores[conn_core].routes.core_of(pg()).map_or(0, |core| core.0.into());
            let input = Input::Peer { from: OsdId(from), message, held: Held::default() };
            osd.hop(conn_core, at, Hop::Input(input));
            return true;
        }
        choice -= wires.len();
        if let Some(id) = maps.get(choice) {
            self.osds.get_mut(id).expect("it lives").take_map(*id);
            return true;
        }
        choice -= maps.len();
        let (id, core) = stores[choice];
        let mut done = Vec::new();
        let store = &mut self.osds.get_mut(&id).expect("it lives").cores[core].store;
        let busy = store.poll(&mut done);
        let idle = done.is_empty() && !busy;
        for completion in done {
            self.step(id, core, completed(completion));
        }
        let deadline = self.osds[&id].cores[core].shard.next_deadline();
        if deadline.is_some_and(|at| at <= self.now) {
            self.step(id, core, Input::Deadline);
            return true;
        }
        !idle || !ready.is_empty() || !wires.is_empty() || !maps.is_empty()
    }

    fn is_quiet(&self) -> bool {
        self.osds.values().all(Osd::is_quiet)
            && self.wires.values().all(VecDeque::is_empty)
            && self.clients.values().all(|client| client.unanswered.is_empty())
    }

    /// Until all is answered. Time passes where nothing else happens.
    fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..400_000 {
            quiet = if self.turn() { 0 } else { quiet + 1 };
            if quiet > 60 {
                if self.is_quiet() && self.is_clean() {
                    return;
                }
                self.now = self.now + Duration::from_millis(100);
                quiet = 30;
            }
        }
        let state = |osd: &Osd| {
            osd.copy().map(|copy| {
                (
                    copy.state_name(),
                    copy.progress.last_update,
                    copy.log.tail(),
                    copy.missing.len(),
                    copy.history.activated,
                    copy.progress.last_backfill.0.max,
                    copy.role.primary().map(|primary| primary.stage.clone()),
                )
            })
        };
        let states: Vec<_> = self.osds.iter().map(|(id, osd)| (*id, state(osd))).collect();
        panic!("it does not come to rest: {states:?}, {:?}", self.counts);
    }

    fn is_clean(&self) -> bool {
        let Some(primary) = self.osds.get(&self.map.interval.primary).and_then(Osd::copy) else {
            return false;
        };
        primary.role.primary().is_some_and(|role| role.is_clean)
    }

    fn contents(&mut self, id: i32, n: usize) -> String {
        let osd = self.osds.get_mut(&id).expect("it lives");
        let text = text_in(&mut osd.cores[osd.at].store, n);
        text.unwrap_or_else(|| panic!("osd.{id} lacks o{n}"))
    }

    /// Every copy has every append once, in the order of each client, and nothing else is in the stores.
    fn check_contents(&mut self, seed: u64) {
        for id in 0..OSDS {
            let osd = &self.osds[&id];
            assert_eq!(osd.cores[1 - osd.at].store.placed(), [], "seed {seed}: osd.{id} has one copy");
        }
        for (n, appends) in self.appended.clone() {
            let text = self.contents(0, n);
            let found: Vec<(u64, u64)> = text
                .split_whitespace()
                .map(|word| {
                    word.split_once(':').map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())).unwrap()
                })
                .collect();
            assert_eq!(found.len(), appends.len(), "seed {seed}, o{n}: {text} and {appends:?}");
            for client in 1..=CLIENTS {
                let of = |all: &[(u64, u64)]| -> Vec<(u64, u64)> {
                    all.iter().filter(|(who, _)| *who == client).copied().collect()
                };
                assert_eq!(of(&found), of(&appends), "seed {seed}, o{n}: in the order sent");
            }
            for id in 1..OSDS {
                assert_eq!(self.contents(id, n), text, "seed {seed}: o{n} on osd.{id}");
            }
        }
    }
}

/// Faults besides writes and moves.
#[derive(Clone, Copy)]
struct Faults {
    turns: u64,
    /// One in so many turns; 0 for never.
    link_breaks: u64,
    maps: u64,
    intervals: u64,
    deaths: u64,
}

fn story(seed: u64, faults: Faults) -> Counts {
    let mut c = Cluster::new(seed);
    (0..2 * OBJECTS).for_each(|_| c.append());
    c.settle();
    let happens = |c: &mut Cluster, one_in: u64| one_in > 0 && c.random.below(one_in) == 0;
    for _ in 0..faults.turns {
        if c.random.below(80) == 0 {
            c.append();
        }
        if c.random.below(300) == 0 {
            let id = c.random.below(OSDS as u64) as i32;
            c.depart(id);
        }
        let (from, to) = (c.random.below(OSDS as u64) as i32, c.random.below(OSDS as u64) as i32);
        if happens(&mut c, faults.link_breaks) && from != to {
            let core = c.random.below(2) as usize;
            c.break_link(from, core, to);
        }
        if happens(&mut c, faults.maps) {
            c.publish(None);
        }
        if happens(&mut c, faults.intervals) {
            // Members stay, sometimes in another order.
            let mut acting: Vec<i32> = c.osds.keys().copied().collect();
            let first = c.random.below(acting.len() as u64) as usize;
            acting.rotate_left(first);
            c.publish(Some(acting));
        }
        if happens(&mut c, faults.deaths) {
            match c.dead.keys().next().copied() {
                Some(id) => c.revive(id),
                None => c.kill(from),
            }
        }
        c.turn();
    }
    for id in 0..OSDS {
        c.revive(id);
    }
    c.settle();
    c.check_contents(seed);
    c.counts
}

fn stories(seeds: std::ops::Range<u64>, faults: Faults) -> Counts {
    let mut all = Counts::default();
    for seed in seeds {
        let counts = story(seed, faults);
        (0..2).for_each(|role| all.moved[role] += counts.moved[role]);
        counts.stayed.into_iter().for_each(|(why, count)| *all.stayed.entry(why).or_default() += count);
        all.answered += counts.answered;
        all.cut_while_moving += counts.cut_while_moving;
    }
    println!("{all:?}");
    all
}

const NO_FAULTS: Faults = Faults { turns: 100_000, link_breaks: 0, maps: 0, intervals: 0, deaths: 0 };

#[test]
fn copies_move_while_clients_write() {
    let counts = stories(0..3, Faults { maps: 500, ..NO_FAULTS });
    assert!(counts.moved[0] > 20 && counts.moved[1] > 10, "replicas and primaries: {counts:?}");
    assert_eq!(counts.stayed, BTreeMap::new());
}

#[test]
fn broken_links_lose_nothing_of_moving_copies() {
    let counts = stories(20..23, Faults { link_breaks: 150, maps: 500, ..NO_FAULTS });
    assert!(counts.moved[0] > 20 && counts.moved[1] > 10, "replicas and primaries: {counts:?}");
}

#[test]
fn new_interval_ends_move_or_waits_for_it() {
    let counts = stories(
        40..45,
        Faults { turns: 100_000, link_breaks: 2000, maps: 900, intervals: 3000, ..NO_FAULTS },
    );
    assert!(counts.moved[0] > 20 && counts.moved[1] > 5, "replicas and primaries: {counts:?}");
    assert!(counts.stayed["the map changed"] > 10, "{counts:?}");
}

#[test]
fn dead_members_and_power_cuts_end_moves() {
    let counts = stories(
        70..76,
        Faults { turns: 150_000, link_breaks: 2000, maps: 900, intervals: 8000, deaths: 4000 },
    );
    assert!(counts.moved[0] > 10 && counts.moved[1] > 3, "replicas and primaries: {counts:?}");
    assert!(counts.cut_while_moving > 10, "{counts:?}");
}

/// A member that does not answer: the primary serves again after a while, and the move is given up.
#[test]
fn primary_without_acknowledgements_gives_its_move_up() {
    let mut c = Cluster::new(7);
    (0..OBJECTS).for_each(|_| c.append());
    c.settle();
    // A write that osd.1 never hears of is under way when the PG closes.
    c.append();
    for _ in 0..200 {
        c.wires.retain(|(from, _, to), _| *from != 1 && *to != 1);
        c.turn();
    }
    assert_eq!(c.clients.values().map(|client| client.unanswered.len()).sum::<usize>(), 1);
    c.depart(0);
    let is_closed = |c: &Cluster| {
        let copy = c.osds[&0].copy().expect("it is here");
        matches!(copy.moving, Some(Moving::Departing(_)))
    };
    for _ in 0..3000 {
        c.wires.retain(|(from, _, to), _| *from != 1 && *to != 1);
        c.turn();
    }
    assert!(is_closed(&c), "it waits for osd.1: {:?}", c.counts);
    c.append();
    c.now = c.now + Duration::from_secs(3);
    for _ in 0..300 {
        c.wires.retain(|(from, _, to), _| *from != 1 && *to != 1);
        c.turn();
    }
    assert_eq!(c.counts.stayed.keys().collect::<Vec<_>>(), ["it was not quiet 2 s after it had closed"]);
    // The link is made anew, and all is answered where it was.
    for (from, to) in [(0, 1), (1, 0)] {
        (0..2).for_each(|core| c.break_link(from, core, to));
    }
    c.settle();
    c.check_contents(7);
    assert_eq!((c.osds[&0].at, c.counts.moved), (0, [0, 0]));
    c.depart(0);
    c.settle();
    assert_eq!((c.osds[&0].at, c.counts.moved), (1, [0, 1]));
    assert!(matches!(c.osds[&1].copy().map(|copy| &copy.role), Some(Role::Replica(Replica::Active))));
}

/// A primary repeats its writes for as long as a replica is between two cores.
#[test]
fn repeated_statements_do_not_pile_up_between_cores() {
    let mut c = Cluster::new(11);
    (0..OBJECTS).for_each(|_| c.append());
    c.settle();
    let mut met = 0;
    for _ in 0..20 {
        c.depart(1);
        let is_write = |message: &MOSDPeer| matches!(message.body, PeerBody::Write(_));
        for turn in 0..4000 {
            if turn % 20 == 0 {
                c.append();
            }
            c.turn();
            let is_between = |core: &Core| {
                let moving = core.shard.copies().find_map(|copy| copy.moving.as_ref());
                matches!(moving, Some(Moving::Arriving(_)))
            };
            // The source still has its copy while the destination has a place only.
            let Some(core) = c.osds[&1].cores.iter().position(is_between) else { continue };
            let its = c.wires.iter().filter(|((.., to), _)| *to == 1).flat_map(|(_, wire)| wire);
            let Some((from, message)) =
                its.filter(|message| is_write(message)).map(|message| (OsdId(0), message.clone())).next()
            else {
                continue;
            };
            let account = Arc::default();
            for _ in 0..100 {
                let held = Held::new(HeldBytes::new(&account, 1), HeldBytes::default());
                c.step(1, core, Input::Peer { from, message: message.clone(), held });
            }
            let waiting = account.load(std::sync::atomic::Ordering::Relaxed);
            assert!(waiting <= 1, "{waiting} of the same statement wait");
            met += waiting;
            break;
        }
        c.settle();
    }
    c.check_contents(11);
    assert!(met > 5, "writes met a move {met} times");
}
