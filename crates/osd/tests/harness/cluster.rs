//! A cluster of shards: the map's intervals, links that deliver in order or break, and one client.
#![allow(dead_code, reason = "each test file uses a part")]

use super::*;
use osd::control::{CopyStart, CopyStarts, MergeVersions};
use osd::pg::log::LogLimits;
use osd::shard::{Interval, MergeState};
use std::collections::{BTreeMap, BTreeSet};
use store::ObjectId;
use wire::messages::MOSDPeer;

/// Some OSDs, the map's interval, and the statements under way.
pub struct Cluster {
    log: LogLimits,
    pub hosts: BTreeMap<i32, Host>,
    pub epoch: Epoch,
    /// Of every PG of the pool.
    pub interval: Interval,
    pub past: PastIntervals,
    /// A power of two, but for merges.
    pub pg_num: u32,
    /// The last PG is about to be merged with the first.
    pub is_merge_pending: bool,
    /// Maps that merged the two PGs.
    pub merges: Vec<(Epoch, MergeVersions)>,
    /// The last word of the source's primary on the merge.
    pub merge_state: Option<MergeState>,
    pub wires: VecDeque<(i32, i32, Box<MOSDPeer>)>,
    /// Links that lose everything, from and to.
    pub cut: Vec<(i32, i32)>,
    /// Requests of OSDs to OSDs, from and to.
    pub asked: Vec<(i32, i32)>,
    /// OSDs whose stores complete nothing.
    pub stalled: BTreeSet<i32>,
    /// The client counts its requests to all OSDs.
    pub next_tid: u64,
    pub flags: u32,
    /// Snapshots of the pool that were removed and not purged.
    pub removed_snaps: IntervalSet,
    /// Number of objects that were asked for, each time counted.
    pub pulls: usize,
    /// Pushes that were delivered: sender, receiver, and the statement.
    pub pushes: Vec<(i32, i32, Box<MOSDPeer>)>,
    /// Copies that an operator removed or imported.
    pub copy_starts: BTreeMap<i32, CopyStarts>,
    /// OSDs that were declared lost, with the epochs.
    pub lost: BTreeMap<i32, Epoch>,
    /// OSDs that kept objects unfound, each with the number of objects.
    pub not_given_up: Vec<(i32, u64)>,
    /// The PG's creation, as the records of OSDs have it that did not see it.
    pub created: Epoch,
    /// Number of times that a primary said that the PG was created.
    pub creations: usize,
    /// Copies that their primary has released: OSDs and PGs.
    pub releases: Vec<(i32, SpgId)>,
}

const MIN_SIZE: u32 = 1;

/// The client's, and the links of other OSDs and of its own.
fn open_connections(host: &mut Host) {
    host.open(1, 4100);
    for osd in 0..OSDS_MAX {
        host.step(Input::Opened { conn: link_of(osd), peer: Arc::new(osd_peer(osd)) });
    }
}

const OSDS_MAX: i32 = 8;

fn osd_config(osd: i32) -> ShardConfig {
    ShardConfig { osd: OsdId(osd), ..config() }
}

impl Cluster {
    pub fn new(osds: i32, acting: Vec<i32>) -> Cluster {
        Cluster::with_log(osds, acting, LogLimits::default())
    }

    pub fn with_log(osds: i32, acting: Vec<i32>, log: LogLimits) -> Cluster {
        let size = acting.len() as u32;
        let store = || {
            MemoryStore::new(memory::Config { track_committed: true, ..memory::Config::with_total(1 << 30) })
        };
        let host = |osd| Host::with(ShardConfig { log, ..osd_config(osd) }, store());
        let mut cluster = Cluster {
            log,
            hosts: (0..osds).map(|osd| (osd, host(osd))).collect(),
            epoch: 11,
            interval: Interval::new(11, acting, size, MIN_SIZE),
            past: PastIntervals { known_since: 11, intervals: Vec::new() },
            pg_num: 1,
            is_merge_pending: false,
            merges: Vec::new(),
            merge_state: None,
            wires: VecDeque::new(),
            cut: Vec::new(),
            asked: Vec::new(),
            stalled: BTreeSet::new(),
            next_tid: 0,
            flags: 0,
            removed_snaps: IntervalSet::new(),
            pulls: 0,
            pushes: Vec::new(),
            copy_starts: BTreeMap::new(),
            lost: BTreeMap::new(),
            not_given_up: Vec::new(),
            created: 0,
            creations: 0,
            releases: Vec::new(),
        };
        for host in cluster.hosts.values_mut() {
            open_connections(host);
        }
        cluster.publish(true);
        cluster.run();
        cluster
    }

    pub fn view(&self) -> ClusterView {
        let up = |osd: i32| self.hosts.contains_key(&osd);
        let mut view = ClusterView { epoch: self.epoch, ..ClusterView::of_osds(0..8) };
        let mut map = OsdMap::clone(&view.map);
        for (osd, row) in (0..).zip(&mut map.osds) {
            if !up(osd) {
                row.state = OsdState(OsdState::EXISTS);
            }
            row.info.lost_at = self.lost.get(&osd).copied().unwrap_or_default();
        }
        map.epoch = self.epoch;
        map.flags = osd_map::MapFlags(self.flags);
        // For those that ask other OSDs as clients: without CRUSH, every PG has the acting set of `pg_temp`.
        let pool = PgPool {
            kind: PoolKind::REPLICATED,
            size: self.interval.size as u8,
            pg_num: self.pg_num,
            pgp_num: self.pg_num,
            object_hash: 2,
            ..PgPool::default()
        };
        map.pools.insert(POOL, pool);
        for seed in 0..self.pg_num {
            map.pg_temp.insert(pg_of(seed).pg, self.interval.acting.clone());
        }
        view.map = Arc::new(map);
        let pg_num_pending = self.pg_num - u32::from(self.is_merge_pending);
        let mut pool =
            PoolView { name: "data".into(), pg_num: self.pg_num, pg_num_pending, ..PoolView::default() };
        pool.snapshots.removed = self.removed_snaps.clone();
        view.pools.insert(POOL, pool);
        view.routes = osd::Routes::new(1);
        (0..self.pg_num).for_each(|seed| view.routes.set(pg_of(seed).pg, CoreId(0)));
        view
    }

    pub fn publish(&mut self, is_birth: bool) {
        let view = Arc::new(self.view());
        let (interval, past) = (Arc::new(self.interval.clone()), Arc::new(self.past.clone()));
        let pgs = (0..self.pg_num).map(pg_of);
        for (osd, host) in &mut self.hosts {
            let named = interval.acting.contains(osd) || interval.up.contains(osd);
            let merges = host.merge_orders(&self.merges);
            let (splits, held) = host.splits(self.pg_num, self.epoch);
            let order = |pg| PgOrder::Interval {
                pg,
                split_bits: self.pg_num.ilog2() as u8,
                created: if is_birth { 11 } else { self.created },
                is_birth,
                interval: interval.clone(),
                past: past.clone(),
            };
            let starts = self.copy_starts.get(osd).cloned().unwrap_or_default();
            let view = Arc::new(ClusterView { copy_starts: Arc::new(starts), ..ClusterView::clone(&view) });
            host.view = ClusterView::clone(&view);
            let intervals = pgs.clone().filter(|pg| named || held.contains(pg)).map(order);
            let orders = merges.into_iter().chain(splits).chain(intervals).collect();
            host.step(Input::Map { view, orders });
        }
    }

    /// Splits every PG. A new interval begins.
    pub fn split(&mut self, pg_num: u32) {
        self.pg_num = pg_num;
        let Interval { up, acting, .. } = self.interval.clone();
        self.interval(up, acting);
        self.run();
    }

    /// The merge of the second PG with the first becomes pending. A new interval begins.
    pub fn prepare_merge(&mut self) {
        assert_eq!(self.pg_num, 2);
        self.is_merge_pending = true;
        let Interval { up, acting, .. } = self.interval.clone();
        self.interval(up, acting);
        self.run();
        self.look_at_merge();
    }

    pub fn look_at_merge(&mut self) {
        self.merge_state = None;
        for host in self.hosts.values_mut() {
            host.step(Input::LookAtMerge { source: pg_of(1) });
        }
        self.run();
    }

    /// The versions at which both PGs are quiet.
    pub fn merge_versions(&self) -> MergeVersions {
        match self.merge_state {
            Some(MergeState::Ready { versions, .. }) => versions,
            other => panic!("{other:?}"),
        }
    }

    /// The map of the merge: every holder joins its copies, and a new interval begins.
    pub fn merge(&mut self) {
        let versions = self.merge_versions();
        (self.pg_num, self.is_merge_pending) = (1, false);
        self.merges.push((self.epoch + 10, versions));
        let Interval { up, acting, .. } = self.interval.clone();
        self.interval(up, acting);
        self.run();
    }

    /// The map's next interval.
    pub fn interval(&mut self, up: Vec<i32>, acting: Vec<i32>) {
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
    pub fn set_flags(&mut self, flags: u32) {
        self.epoch += 1;
        self.flags = flags;
        let view = Arc::new(self.view());
        for host in self.hosts.values_mut() {
            host.view = ClusterView::clone(&view);
            host.step(Input::Map { view: view.clone(), orders: Vec::new() });
        }
        self.run();
    }

    /// An OSD that the interval does not name returns in the middle of it.
    pub fn start_stray(&mut self, osd: i32, store: store::MemoryStore) {
        self.start(osd, store);
        self.epoch += 1;
        let view = Arc::new(self.view());
        let (interval, past) = (Arc::new(self.interval.clone()), Arc::new(self.past.clone()));
        let order =
            PgOrder::Interval { pg: pg(), split_bits: 0, created: 0, is_birth: false, interval, past };
        for (at, host) in &mut self.hosts {
            host.view = ClusterView::clone(&view);
            let orders = if *at == osd { vec![order.clone()] } else { Vec::new() };
            host.step(Input::Map { view: view.clone(), orders });
        }
    }

    pub fn declare_lost(&mut self, osd: i32) {
        self.lost.insert(osd, self.epoch + 1);
        self.set_flags(self.flags);
    }

    /// An OSD's lease of another one ends in `ms` milliseconds.
    pub fn lease(&mut self, osd: i32, of: i32, ms: u64) {
        let host = self.hosts.get_mut(&osd).expect("it runs");
        let held = vec![(of, host.now + Duration::from_millis(ms))];
        host.step(Input::Leases(Arc::new(LeaseNews { held, ..LeaseNews::default() })));
    }

    /// The same of a lease for reads of copies.
    pub fn lease_copies(&mut self, osd: i32, of: i32, ms: u64) {
        let host = self.hosts.get_mut(&osd).expect("it runs");
        let held_for_copies = vec![(of, host.now + Duration::from_millis(ms))];
        host.step(Input::Leases(Arc::new(LeaseNews { held_for_copies, ..LeaseNews::default() })));
    }

    pub fn grant_copies(&mut self, osd: i32, to: i32, ms: u64) {
        let host = self.hosts.get_mut(&osd).expect("it runs");
        let granted_for_copies = vec![(to, host.now + Duration::from_millis(ms))];
        host.step(Input::Leases(Arc::new(LeaseNews { granted_for_copies, ..LeaseNews::default() })));
    }

    /// An OSD has granted another one a lease that ends in `ms` milliseconds.
    pub fn grant(&mut self, osd: i32, to: i32, ms: u64) {
        let host = self.hosts.get_mut(&osd).expect("it runs");
        let granted = vec![(to, host.now + Duration::from_millis(ms))];
        host.step(Input::Leases(Arc::new(LeaseNews { granted, ..LeaseNews::default() })));
    }

    pub fn pass(&mut self, ms: u64) {
        self.hosts.values_mut().for_each(|host| host.pass(Duration::from_millis(ms)));
        self.run();
    }

    /// An OSD's process dies; its store keeps what was durable.
    pub fn kill(&mut self, osd: i32) -> store::MemoryStore {
        self.wires.retain(|(from, to, _)| *from != osd && *to != osd);
        self.hosts.remove(&osd).expect("it runs").store
    }

    /// An OSD loses power: of its store remains what it has reported as durable.
    pub fn lose_power(&mut self, osd: i32) -> store::MemoryStore {
        self.stalled.remove(&osd);
        self.kill(osd).crash_image(0).expect("it is tracked")
    }

    pub fn start(&mut self, osd: i32, store: store::MemoryStore) {
        let mut host = Host::with(ShardConfig { log: self.log, ..osd_config(osd) }, store);
        open_connections(&mut host);
        self.hosts.insert(osd, host);
    }

    /// Requests of OSDs to OSDs, and their answers.
    fn step_requests(&mut self) -> bool {
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        for (osd, host) in &mut self.hosts {
            asked.extend(host.asks.drain(..).map(|(to, tid, request)| (*osd, to.0, tid, request)));
            for (conn, message) in std::mem::take(&mut host.sent) {
                match message.body {
                    Body::MOSDOpReply(reply) if conn >= link_of(0) => {
                        answered.push((conn, message.tid, reply))
                    }
                    body => host.sent.push_back((conn, Message { body, ..message })),
                }
            }
        }
        let moved = !asked.is_empty() || !answered.is_empty();
        for (from, to, tid, request) in asked {
            self.asked.push((from, to));
            if self.cut.contains(&(from, to)) {
                continue;
            }
            if let Some(host) = self.hosts.get_mut(&to) {
                host.resend(link_of(from).0, tid, *request);
            }
        }
        for (conn, tid, reply) in answered {
            let to = (conn.0 - link_of(0).0) as i32;
            if let Some(host) = self.hosts.get_mut(&to) {
                host.step(Input::Part { tid, reply });
            }
        }
        moved
    }

    /// One statement, or one completion of each store. False if nothing is under way.
    pub fn step(&mut self) -> bool {
        let mut moved = self.step_requests();
        for (osd, host) in &mut self.hosts {
            moved |= !self.stalled.contains(osd) && host.poll_once();
            for (to, message) in host.peers.drain(..) {
                moved = true;
                if !self.cut.contains(&(*osd, to.0)) {
                    self.wires.push_back((*osd, to.0, message));
                }
            }
        }
        if let Some((from, to, message)) = self.wires.pop_front() {
            moved = true;
            self.pulls += usize::from(matches!(message.body, PeerBody::Pull(_)));
            if matches!(message.body, PeerBody::Push(_)) {
                self.pushes.push((from, to, message.clone()));
            }
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

    pub fn run(&mut self) {
        for _ in 0..200_000 {
            if !self.step() && !self.take_wishes() {
                return;
            }
        }
        panic!("the cluster does not come to rest");
    }

    /// Carries out what primaries ask the monitor for.
    pub fn take_wishes(&mut self) -> bool {
        let mut wish = None;
        let (mut released, mut removed) = (Vec::new(), Vec::new());
        for (osd, host) in &mut self.hosts {
            for said in host.control.drain(..) {
                match said {
                    ToControl::WantActing { acting, .. } => wish = Some(acting),
                    ToControl::Created { .. } => self.creations += 1,
                    ToControl::MergeState { state, .. } => self.merge_state = Some(state),
                    ToControl::NotGivenUp { osd, objects, .. } => self.not_given_up.push((osd, objects)),
                    ToControl::Released { pg, split_bits } => released.push((*osd, pg, split_bits)),
                    ToControl::Removed { pg } => removed.push((*osd, pg)),
                    ToControl::Rejected { why } => assert!(why.contains("cannot be read"), "{why}"),
                    _ => {}
                }
            }
        }
        let mut has_done = !released.is_empty();
        for (osd, pg, split_bits) in released {
            self.releases.push((osd, pg));
            let start = CopyStart { since: self.epoch + 1, split_bits };
            self.copy_starts.entry(osd).or_default().begin(pg.pg, start);
            self.order(osd, vec![PgOrder::Rebuild { pg }]);
        }
        for (osd, pg) in removed {
            has_done |= self.order_again(osd, pg);
        }
        let Some(acting) = wish else { return has_done };
        let up = self.interval.up.clone();
        let acting = if acting.is_empty() { up.clone() } else { acting };
        self.interval(up, acting);
        true
    }

    /// Orders of an OSD's control machine without a new map.
    pub fn order(&mut self, osd: i32, orders: Vec<PgOrder>) {
        let starts = Arc::new(self.copy_starts.get(&osd).cloned().unwrap_or_default());
        let view = ClusterView { copy_starts: starts, ..self.view() };
        let host = self.hosts.get_mut(&osd).expect("it runs");
        host.view = view.clone();
        host.step(Input::Map { view: Arc::new(view), orders });
    }

    /// The map names an OSD that has removed its copy. False if it does not.
    fn order_again(&mut self, osd: i32, pg: SpgId) -> bool {
        let is_named = self.interval.acting.contains(&osd) || self.interval.up.contains(&osd);
        let is_here = self.hosts[&osd].shard.copies().any(|copy| copy.id == pg);
        if !is_named || is_here || pg.pg.seed >= self.pg_num {
            return false;
        }
        let (interval, past) = (Arc::new(self.interval.clone()), Arc::new(self.past.clone()));
        let split_bits = self.pg_num.ilog2() as u8;
        self.order(
            osd,
            vec![PgOrder::Interval { pg, split_bits, created: 0, is_birth: false, interval, past }],
        );
        true
    }

    pub fn reset_links(&mut self, a: i32, b: i32) {
        self.wires.retain(|(from, to, _)| (*from, *to) != (a, b) && (*from, *to) != (b, a));
        for (one, other) in [(a, b), (b, a)] {
            if let Some(host) = self.hosts.get_mut(&one) {
                host.step(Input::LinkReset { osd: OsdId(other) });
            }
        }
    }

    pub fn primary(&mut self) -> &mut Host {
        let primary = self.interval.primary;
        self.hosts.get_mut(&primary).expect("the primary runs")
    }

    pub fn send(&mut self, name: &str, ops: Vec<OsdOp>) -> u64 {
        self.next_tid += 1;
        let tid = self.next_tid;
        let pg = pg_of(object(name).hash & (self.pg_num - 1));
        let host = self.primary();
        let request = wire::messages::MOSDOp { pg, ..host.request(object(name), ops) };
        host.resend(1, tid, request);
        tid
    }

    /// Sends a write that knows these snapshots, newest first, and waits for the reply.
    pub fn ask_with(&mut self, name: &str, snaps: &[u64], ops: Vec<OsdOp>) -> wire::messages::MOSDOpReply {
        let request = self.primary().request(object(name), ops);
        let (snaps, seq) = (snaps.iter().map(|snap| SnapId(*snap)).collect::<Vec<_>>(), snaps.first());
        let snap_seq = SnapId(seq.copied().unwrap_or(0));
        self.ask_request(wire::messages::MOSDOp { snap_seq, snaps, ..request })
    }

    /// Reads an object as a snapshot has it, and waits for the reply.
    pub fn ask_snap(&mut self, name: &str, snap: u64, ops: Vec<OsdOp>) -> wire::messages::MOSDOpReply {
        let object = HObject { snap: SnapId(snap), ..object(name) };
        let request = self.primary().request(object, ops);
        self.ask_request(request)
    }

    pub fn ask_request(&mut self, request: wire::messages::MOSDOp) -> wire::messages::MOSDOpReply {
        self.next_tid += 1;
        let tid = self.next_tid;
        let pg = pg_of(request.object.hash & (self.pg_num - 1));
        self.primary().resend(1, tid, wire::messages::MOSDOp { pg, ..request });
        self.run();
        self.primary().reply(tid)
    }

    pub fn ask(&mut self, name: &str, ops: Vec<OsdOp>) -> wire::messages::MOSDOpReply {
        let tid = self.send(name, ops);
        self.run();
        self.primary().reply(tid)
    }

    /// Sends a read that any copy may answer to an OSD.
    pub fn send_copy(&mut self, osd: i32, name: &str, ops: Vec<OsdOp>) -> u64 {
        self.next_tid += 1;
        let tid = self.next_tid;
        let host = self.hosts.get_mut(&osd).expect("it runs");
        let mut request = host.request(object(name), ops);
        request.flags = OsdFlags::READ | OsdFlags::BALANCE_READS;
        host.resend(1, tid, request);
        tid
    }

    pub fn ask_copy(&mut self, osd: i32, name: &str, ops: Vec<OsdOp>) -> wire::messages::MOSDOpReply {
        let tid = self.send_copy(osd, name, ops);
        self.run();
        self.hosts.get_mut(&osd).expect("it runs").reply(tid)
    }

    /// Sends a listing of the PG's objects.
    pub fn send_listing(&mut self) -> u64 {
        self.next_tid += 1;
        let tid = self.next_tid;
        let cursor = codec::Encode::to_vec(&HObject::min(), codec::Features::ALL).into();
        let mut list = OsdOp::new(OpCode::PGNLS, osd_op::PglsParams { count: 100, start_epoch: 0 }, cursor);
        list.flags = OpFlags::NONE;
        let place = HObject { pool: POOL, snap: SnapId::HEAD, ..HObject::min() };
        let host = self.primary();
        let request = host.request(place, vec![list]);
        host.resend(1, tid, request);
        tid
    }

    /// The names in the answer to a listing.
    pub fn listed(&mut self, tid: u64) -> Vec<String> {
        let reply = self.primary().reply(tid);
        let page: ListPage = codec::decode_exact(&output(&reply, 0)).expect("a page");
        page.entries.iter().map(|entry| entry.name.to_string()).collect()
    }

    pub fn put(&mut self, name: &str, data: &'static [u8]) {
        assert_eq!(self.ask(name, vec![write_full(data)]).result, 0, "{name}");
    }

    pub fn get(&mut self, name: &str) -> Bytes {
        let reply = self.ask(name, vec![read(0, 0)]);
        if reply.result < 0 { Bytes::new() } else { output(&reply, 0) }
    }

    pub fn state(&mut self) -> String {
        self.report().status.state.to_string()
    }

    /// The primary's report of the pool's first PG.
    pub fn report(&mut self) -> PgReport {
        self.report_of(pg())
    }

    pub fn report_of(&mut self, pg: SpgId) -> PgReport {
        let reports = self.primary().pg_reports();
        reports.into_iter().find(|report| report.pg == pg).expect("the PG is there")
    }

    /// An object's bytes in an OSD's store.
    pub fn stored(&mut self, osd: i32, name: &str) -> Option<Bytes> {
        self.stored_object(osd, object(name))
    }

    /// A clone's bytes in an OSD's store.
    pub fn stored_clone(&mut self, osd: i32, name: &str, clone: u64) -> Option<Bytes> {
        self.stored_object(osd, HObject { snap: SnapId(clone), ..object(name) })
    }

    /// An object's bytes in the collection of the first PG, where a copy that could not be split keeps all of its objects.
    pub fn stored_unsplit(&mut self, osd: i32, name: &str) -> Option<Bytes> {
        self.stored_in(osd, pg(), object(name))
    }

    fn stored_object(&mut self, osd: i32, object: HObject) -> Option<Bytes> {
        self.stored_in(osd, pg_of(object.hash & (self.pg_num - 1)), object)
    }

    fn stored_in(&mut self, osd: i32, pg: SpgId, object: HObject) -> Option<Bytes> {
        let collection = Collection::Pg(pg);
        let host = self.hosts.get_mut(&osd).expect("it runs");
        let queries = vec![Query::Data { offset: 0, len: u64::MAX }];
        let object = ObjectId::from(object);
        match host.read_now(ReadRequest { collection, object, queries }) {
            Ok(mut answers) => match answers.pop() {
                Some(Answer::Data(data)) => Some(data.to_bytes()),
                other => panic!("{other:?}"),
            },
            Err(_) => None,
        }
    }
}

/// The store has the objects of its PG, and not the PG's records.
pub fn without_records(mut store: MemoryStore) -> MemoryStore {
    let object = ObjectId::pg_meta(pg());
    let changes = vec![Change::Remove { object: object.clone() }, Change::Touch { object }];
    store.submit(u64::MAX, store::Transaction { collection: Collection::Pg(pg()), changes });
    while store.poll(&mut Vec::new()) {}
    store
}

/// The PG with this seed.
pub fn pg_of(seed: u32) -> SpgId {
    SpgId::from(PgId { pool: POOL, seed })
}

impl Host {
    /// The merges that the stored copies need, as the control machine finds them.
    fn merge_orders(&mut self, merges: &[(Epoch, MergeVersions)]) -> Vec<PgOrder> {
        let is_held = |seed| self.shard.copies().any(|copy| copy.id == pg_of(seed));
        let source = is_held(1).then_some(pg_of(1));
        let due = merges[self.merges_told..].iter().filter(|_| is_held(0));
        self.merges_told = merges.len();
        let order = |&(epoch, versions): &(Epoch, MergeVersions)| PgOrder::Merge {
            pg: pg_of(0),
            source,
            split_bits: 0,
            epoch,
            versions: Some(versions),
        };
        due.map(order).collect()
    }

    /// The splits that the stored copies need, as the control machine finds them, and the PGs that are then here.
    fn splits(&self, pg_num: u32, epoch: Epoch) -> (Vec<PgOrder>, Vec<SpgId>) {
        let wanted = pg_num.ilog2() as u8;
        let (mut splits, mut held) = (Vec::new(), Vec::new());
        for (collection, placed) in self.store.placed() {
            let Collection::Pg(pg) = collection else { continue };
            if pg.pg.seed >= pg_num {
                continue;
            }
            held.push(pg);
            let has_split = self.shard.copies().any(|copy| copy.id == pg && copy.split_bits == wanted);
            let seeds = (pg.pg.seed..pg_num).step_by(1 << placed.split_bits).skip(1);
            let children: Vec<_> = seeds.map(|seed| (pg_of(seed), wanted)).collect();
            held.extend(children.iter().map(|(child, _)| *child));
            if placed.split_bits < wanted && !has_split {
                splits.push(PgOrder::Split { pg, split_bits: wanted, children, epoch });
            }
        }
        (splits, held)
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
