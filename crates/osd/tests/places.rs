//! Stories of several PGs that recover and backfill at once: places, priorities, space, pauses.

mod harness;

use bytes::Bytes;
use harness::*;
use machine::net::Held;
use osd::ops::Limits;
use osd::shard::{
    ClusterView, Input, Interval, PgOrder, PgReport, PlacesInUse, PoolView, ShardConfig, StoreSpace,
    ToControl,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{Answer, Collection, ObjectId, ObjectStore, Query, ReadRequest};
use wire::messages::MOSDPeer;
use wire::types::*;

const SPLIT_BITS: u8 = 2;

/// OSDs, and the PGs 1.0 to 1.3, each with its own interval.
struct Cluster {
    hosts: BTreeMap<i32, Host>,
    epoch: Epoch,
    pgs: BTreeMap<u32, Placed>,
    wires: VecDeque<(i32, i32, Box<MOSDPeer>)>,
    limits: Limits,
    row_states: BTreeMap<i32, u32>,
    next_tid: u64,
}

struct Placed {
    interval: Interval,
    past: PastIntervals,
}

fn id(seed: u32) -> SpgId {
    PgId { pool: POOL, seed }.into()
}

/// The object of this number of a PG.
fn object_of(seed: u32, number: u32) -> HObject {
    let name = format!("o{number}");
    let hash = number.wrapping_mul(0x9e37_79b9) << SPLIT_BITS | seed;
    HObject { pool: POOL, hash, snap: SnapId::HEAD, name: name.as_str().into(), ..HObject::min() }
}

impl Cluster {
    /// `pgs`: seeds with their acting sets, which are also up.
    fn new(osds: i32, size: u32, pgs: &[(u32, &[i32])]) -> Cluster {
        Cluster::with(Limits::default(), osds, size, pgs)
    }

    fn with(limits: Limits, osds: i32, size: u32, pgs: &[(u32, &[i32])]) -> Cluster {
        let placed = |acting: &[i32]| Placed {
            interval: Interval::new(11, acting.to_vec(), size, 1),
            past: PastIntervals { known_since: 11, intervals: Vec::new() },
        };
        let mut cluster = Cluster {
            hosts: BTreeMap::new(),
            epoch: 11,
            pgs: pgs.iter().map(|(seed, acting)| (*seed, placed(acting))).collect(),
            wires: VecDeque::new(),
            limits,
            row_states: BTreeMap::new(),
            next_tid: 0,
        };
        (0..osds).for_each(|osd| cluster.start(osd, memory_store()));
        cluster.publish(true);
        cluster.run();
        cluster
    }

    fn start(&mut self, osd: i32, store: store::MemoryStore) {
        let config = ShardConfig { osd: OsdId(osd), limits: self.limits.clone(), ..config() };
        let mut host = Host::with(config, store);
        host.open(1, 4100);
        self.hosts.insert(osd, host);
    }

    fn kill(&mut self, osd: i32) -> store::MemoryStore {
        self.wires.retain(|(from, to, _)| *from != osd && *to != osd);
        self.hosts.remove(&osd).expect("it runs").store
    }

    fn view(&self) -> ClusterView {
        let mut view = ClusterView { epoch: self.epoch, ..ClusterView::of_osds(0..8) };
        let mut map = OsdMap::clone(&view.map);
        for (osd, row) in (0..).zip(&mut map.osds) {
            let is_up = self.hosts.contains_key(&osd);
            let extra = self.row_states.get(&osd).copied().unwrap_or_default();
            row.state = OsdState(OsdState::EXISTS | extra | if is_up { OsdState::UP } else { 0 });
        }
        (map.epoch, map.backfillfull_ratio) = (self.epoch, 0.9);
        view.map = Arc::new(map);
        let pool = PoolView { name: "data".into(), pg_num: 1 << SPLIT_BITS, ..PoolView::default() };
        view.pools.insert(POOL, pool);
        view
    }

    fn publish(&mut self, is_birth: bool) {
        let view = Arc::new(self.view());
        for (osd, host) in &mut self.hosts {
            host.view = ClusterView::clone(&view);
            let mut orders = Vec::new();
            for (seed, Placed { interval, past }) in &self.pgs {
                let named = interval.acting.contains(osd) || interval.up.contains(osd);
                let holds = host.store.collections().iter().any(|(c, _)| *c == Collection::Pg(id(*seed)));
                if named || holds {
                    orders.push(PgOrder::Interval {
                        pg: id(*seed),
                        split_bits: SPLIT_BITS,
                        created: if is_birth { 11 } else { 0 },
                        is_birth,
                        interval: Arc::new(interval.clone()),
                        past: Arc::new(past.clone()),
                    });
                }
            }
            host.step(Input::Map { view: view.clone(), orders });
        }
    }

    /// The next interval of some PGs: seed, up, acting.
    fn intervals(&mut self, pgs: &[(u32, &[i32], &[i32])]) {
        self.epoch += 10;
        for (seed, up, acting) in pgs {
            let placed = self.pgs.get_mut(seed).expect("a PG");
            let old = std::mem::take(&mut placed.interval);
            placed.past.intervals.push(PastInterval {
                first: old.since,
                last: self.epoch - 1,
                up: old.up,
                may_have_written: !old.acting.is_empty(),
                acting: old.acting,
                primary: old.primary,
            });
            let new = Interval::new(self.epoch, acting.to_vec(), old.size, old.min_size);
            placed.interval = Interval { up: up.to_vec(), up_primary: up[0], ..new };
        }
        // A PG whose interval stays gets no order: its role goes on.
        let changed: Vec<u32> = pgs.iter().map(|(seed, ..)| *seed).collect();
        let rest: Vec<(u32, Placed)> = self.pgs.extract_if(.., |seed, _| !changed.contains(seed)).collect();
        self.publish(false);
        self.pgs.extend(rest);
    }

    /// The flags of OSDs in the map change, and no interval.
    fn set_state(&mut self, osd: i32, state: u32) {
        self.row_states.insert(osd, state);
        self.intervals(&[]);
        self.run();
    }

    fn step(&mut self) -> bool {
        let mut moved = false;
        for (osd, host) in &mut self.hosts {
            moved |= host.poll_once();
            for (to, message) in host.peers.drain(..) {
                moved = true;
                self.wires.push_back((*osd, to.0, message));
            }
        }
        if let Some((from, to, message)) = self.wires.pop_front() {
            moved = true;
            if let Some(host) = self.hosts.get_mut(&to) {
                host.step(Input::Peer { from: OsdId(from), message, held: Held::default() });
            }
        }
        moved
    }

    fn run(&mut self) {
        self.run_watching(|_| {});
    }

    fn run_watching(&mut self, mut watch: impl FnMut(&mut Cluster)) {
        for _ in 0..200_000 {
            let has_moved = self.step();
            watch(self);
            if !has_moved && !self.take_wishes() {
                return;
            }
        }
        panic!("the cluster does not come to rest");
    }

    fn take_wishes(&mut self) -> bool {
        let mut wishes = BTreeMap::new();
        for host in self.hosts.values_mut() {
            for said in host.control.drain(..) {
                if let ToControl::WantActing { pg, acting } = said {
                    wishes.insert(pg.pg.seed, acting);
                }
            }
        }
        for (seed, acting) in &wishes {
            let up = self.pgs[seed].interval.up.clone();
            let acting = if acting.is_empty() { &up } else { acting };
            self.intervals(&[(*seed, &up[..], &acting[..])]);
        }
        !wishes.is_empty()
    }

    fn reset_links(&mut self, a: i32, b: i32) {
        self.wires.retain(|(from, to, _)| (*from, *to) != (a, b) && (*from, *to) != (b, a));
        for (one, other) in [(a, b), (b, a)] {
            if let Some(host) = self.hosts.get_mut(&one) {
                host.step(Input::LinkReset { osd: OsdId(other) });
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.hosts.values_mut().for_each(|host| host.pass(time));
        self.run();
    }

    fn host(&mut self, osd: i32) -> &mut Host {
        self.hosts.get_mut(&osd).expect("it runs")
    }

    fn write(&mut self, seed: u32, number: u32, len: usize) -> u64 {
        self.next_tid += 1;
        let tid = self.next_tid;
        let host = self.hosts.get_mut(&self.pgs[&seed].interval.primary).expect("the primary runs");
        let data = Bytes::from(vec![number as u8; len]);
        let ops = vec![OsdOp::extent(OpCode::WRITEFULL, 0, len as u64, data)];
        let request = wire::messages::MOSDOp { pg: id(seed), ..host.request(object_of(seed, number), ops) };
        host.resend(1, tid, request);
        tid
    }

    fn is_answered(&mut self, tid: u64) -> bool {
        let mut replies = self.hosts.values_mut().filter_map(|host| host.find_reply(tid));
        replies.next().is_some_and(|reply| reply.result == 0)
    }

    fn fill(&mut self, seed: u32, objects: std::ops::Range<u32>) {
        for number in objects {
            let tid = self.write(seed, number, 100);
            self.run();
            assert!(self.is_answered(tid), "object {number} of PG {seed}");
        }
    }

    fn has(&mut self, osd: i32, seed: u32, number: u32) -> bool {
        let object = ObjectId::from(object_of(seed, number));
        let queries = vec![Query::Stat];
        let request = ReadRequest { collection: Collection::Pg(id(seed)), object, queries };
        matches!(self.host(osd).read_now(request).as_deref(), Ok([Answer::Stat { .. }]))
    }

    fn report(&mut self, seed: u32) -> PgReport {
        let primary = self.pgs[&seed].interval.primary;
        let host = self.host(primary);
        // A report must not take what the shard has said to the control machine.
        let said = std::mem::take(&mut host.control);
        let mut reports = host.pg_reports();
        host.control = said;
        reports.retain(|report| report.pg == id(seed));
        reports.pop().expect("a PG")
    }

    fn state(&mut self, seed: u32) -> String {
        self.report(seed).status.state.to_string()
    }

    fn states(&mut self) -> Vec<String> {
        let seeds: Vec<u32> = self.pgs.keys().copied().collect();
        seeds.into_iter().map(|seed| self.state(seed)).collect()
    }

    fn assert_clean(&mut self, when: &str) {
        let states = self.states();
        assert!(states.iter().all(|state| state == "active+clean"), "{when}: {states:?}");
        for (osd, host) in &self.hosts {
            assert_eq!(host.shard.places_in_use(), PlacesInUse::default(), "{when}: places of osd.{osd}");
        }
    }

    /// Runs until all is done. Returns the PGs in the order in which their backfills end.
    fn order_of_ends(&mut self) -> Vec<u32> {
        let mut order = Vec::new();
        self.run_watching(|cluster| {
            for seed in cluster.pgs.keys().copied().collect::<Vec<_>>() {
                let status = cluster.report(seed).status;
                let has_ended = status.state.has(PgState::ACTIVE) && status.backfill_targets.is_empty();
                if has_ended && !order.contains(&seed) {
                    order.push(seed);
                }
            }
        });
        order
    }

    /// PGs whose primaries copy objects now.
    fn working(&mut self) -> usize {
        let states = self.states();
        states.iter().filter(|s| s.contains("backfilling") || s.contains("recovering")).count()
    }
}

/// PGs of two primaries, with so many objects each, move to osd.3.
fn two_backfills(objects: u32) -> Cluster {
    let mut cluster = Cluster::new(4, 2, &[(0, &[0, 2]), (1, &[1, 2])]);
    for seed in [0, 1] {
        cluster.fill(seed, 0..objects);
    }
    cluster.intervals(&[(0, &[0, 3], &[0, 2]), (1, &[1, 3], &[1, 2])]);
    cluster
}

#[test]
fn target_takes_one_backfill_at_a_time() {
    let mut cluster = two_backfills(20);
    let (mut most, mut has_waited) = (0, false);
    cluster.run_watching(|cluster| {
        most = most.max(cluster.working());
        let states = cluster.states();
        let is = |word: &str| states.iter().any(|state| state.contains(word));
        has_waited |= is("backfilling") && is("backfill_wait");
    });
    assert_eq!((most, has_waited), (1, true));
    cluster.assert_clean("at the end");
    for (seed, number) in [(0, 0), (0, 19), (1, 0), (1, 19)] {
        assert!(cluster.has(3, seed, number), "object {number} of PG {seed}");
    }
}

/// A place that is lost, kept or promised twice shows as a PG that never becomes clean, or as a place in use at the end.
#[test]
fn interrupted_backfills_leave_no_place() {
    for steps in (1..160).step_by(5) {
        for fault in ["interval", "links", "osd"] {
            let mut cluster = two_backfills(6);
            (0..steps).for_each(|_| {
                cluster.step();
            });
            match fault {
                "interval" => cluster.intervals(&[(0, &[0, 3], &[0, 2])]),
                "links" => {
                    cluster.reset_links(0, 3);
                    cluster.reset_links(1, 3);
                }
                _ => {
                    let store = cluster.kill(3);
                    cluster.intervals(&[(0, &[0, 2], &[0, 2]), (1, &[1, 2], &[1, 2])]);
                    cluster.run();
                    cluster.start(3, store);
                    cluster.intervals(&[(0, &[0, 3], &[0, 2]), (1, &[1, 3], &[1, 2])]);
                }
            }
            cluster.run();
            (0..4).for_each(|_| cluster.pass(Duration::from_secs(5)));
            cluster.assert_clean(&format!("{fault} after {steps} steps"));
        }
    }
}

/// Each of two PGs needs places on both returning OSDs, and its primary asks in its own time.
#[test]
fn recoveries_with_common_targets_do_not_deadlock() {
    for steps in 0..40 {
        let mut cluster = Cluster::new(4, 3, &[(0, &[0, 2, 3]), (1, &[1, 3, 2])]);
        let stores = [2, 3].map(|osd| (osd, cluster.kill(osd)));
        cluster.intervals(&[(0, &[0], &[0]), (1, &[1], &[1])]);
        cluster.run();
        for seed in [0, 1] {
            cluster.fill(seed, 0..5);
        }
        for (osd, store) in stores {
            cluster.start(osd, store);
        }
        cluster.intervals(&[(0, &[0, 2, 3], &[0, 2, 3])]);
        (0..steps).for_each(|_| {
            cluster.step();
        });
        cluster.intervals(&[(1, &[1, 3, 2], &[1, 3, 2])]);
        let mut most = 0;
        cluster.run_watching(|cluster| most = most.max(cluster.working()));
        assert_eq!(most, 1, "after {steps} steps");
        cluster.assert_clean(&format!("after {steps} steps"));
    }
}

#[test]
fn undersized_pg_goes_before_a_misplaced_one() {
    let mut cluster = Cluster::new(5, 2, &[(0, &[0, 1]), (1, &[0, 1]), (2, &[0, 2])]);
    for seed in 0..3 {
        cluster.fill(seed, 0..200);
    }
    cluster.intervals(&[(0, &[0, 3], &[0, 1]), (1, &[0, 3], &[0, 1])]);
    while !cluster.state(0).contains("backfilling") {
        assert!(cluster.step());
    }
    // PG 1.2 loses a copy. It takes the place of PG 1.0, which goes on before PG 1.1.
    cluster.kill(2);
    cluster.intervals(&[(2, &[0, 4], &[0])]);
    assert_eq!(cluster.order_of_ends(), [2, 0, 1]);
    cluster.assert_clean("at the end");
}

#[test]
fn forced_backfill_goes_first() {
    let mut cluster = Cluster::new(4, 2, &[(0, &[0, 1]), (1, &[0, 1]), (2, &[0, 1])]);
    for seed in 0..3 {
        cluster.fill(seed, 0..200);
    }
    cluster.intervals(&[(0, &[0, 3], &[0, 1]), (1, &[0, 3], &[0, 1]), (2, &[0, 3], &[0, 1])]);
    while !cluster.state(0).contains("backfilling") {
        assert!(cluster.step());
    }
    let pg = PgId { pool: POOL, seed: 2 };
    cluster.host(0).step(Input::Force { pg, flags: PgState::FORCED_BACKFILL });
    assert_eq!(cluster.order_of_ends(), [2, 0, 1]);
    cluster.assert_clean("at the end");
}

#[test]
fn full_target_refuses_until_it_has_space() {
    let mut cluster = two_backfills(20);
    // The 2,000 bytes of a PG would make it fuller than 90 %.
    let space = |available| Input::Usage(StoreSpace { total: 20_000, available });
    cluster.host(3).step(space(2_100));
    cluster.run();
    for state in cluster.states() {
        assert_eq!(state, "active+remapped+backfill_toofull");
    }
    assert!(!cluster.has(3, 0, 0) && !cluster.has(3, 1, 0));
    cluster.host(3).step(space(10_000));
    cluster.pass(Duration::from_secs(29));
    assert_eq!(cluster.state(0), "active+remapped+backfill_toofull");
    cluster.pass(Duration::from_secs(1));
    cluster.assert_clean("with space");
}

/// The store fills up while windows are copied.
#[test]
fn full_target_ends_a_backfill_between_windows() {
    let mut cluster = Cluster::new(3, 2, &[(0, &[0, 1])]);
    cluster.fill(0, 0..300);
    cluster.intervals(&[(0, &[0, 2], &[0, 1])]);
    while !cluster.state(0).contains("backfilling") {
        assert!(cluster.step());
    }
    cluster.host(2).step(Input::Usage(StoreSpace { total: 100_000, available: 5_000 }));
    cluster.run();
    assert_eq!(cluster.state(0), "active+remapped+backfill_toofull");
    let copied = (0..300).filter(|number| cluster.has(2, 0, *number)).count();
    assert!(copied < 300, "{copied} objects were copied");
    let tid = cluster.write(0, 7, 50);
    cluster.run();
    assert!(cluster.is_answered(tid), "no window holds the write back");
    cluster.host(2).step(Input::Usage(StoreSpace { total: 100_000, available: 90_000 }));
    cluster.pass(Duration::from_secs(30));
    cluster.assert_clean("with space");
}

#[test]
fn recovery_writes_nothing_beyond_the_failsafe() {
    let mut cluster = Cluster::new(2, 2, &[(0, &[0, 1])]);
    let store = cluster.kill(1);
    cluster.intervals(&[(0, &[0], &[0])]);
    cluster.run();
    cluster.fill(0, 0..5);
    cluster.start(1, store);
    cluster.host(1).step(Input::Space { full: true });
    cluster.intervals(&[(0, &[0, 1], &[0, 1])]);
    cluster.run();
    assert_eq!(cluster.state(0), "active+recovery_toofull+degraded");
    assert!((0..5).all(|number| !cluster.has(1, 0, number)));
    cluster.host(1).step(Input::Space { full: false });
    cluster.pass(Duration::from_secs(30));
    cluster.assert_clean("with space");
}

#[test]
fn recovery_waits_for_an_osd_that_the_map_has_full() {
    let mut cluster = Cluster::new(2, 2, &[(0, &[0, 1])]);
    let store = cluster.kill(1);
    cluster.intervals(&[(0, &[0], &[0])]);
    cluster.run();
    cluster.fill(0, 0..5);
    cluster.start(1, store);
    cluster.set_state(1, OsdState::FULL);
    cluster.intervals(&[(0, &[0, 1], &[0, 1])]);
    cluster.run();
    assert_eq!(cluster.state(0), "active+recovery_toofull+degraded");
    cluster.set_state(1, 0);
    cluster.pass(Duration::from_secs(30));
    cluster.assert_clean("with space");
}

/// The only copy of an object cannot be read. Its PG keeps no place, and other objects of the window take writes.
#[test]
fn unreadable_object_holds_nothing_back() {
    let mut cluster = Cluster::new(3, 1, &[(0, &[0]), (1, &[0])]);
    cluster.fill(0, 0..10);
    cluster.fill(1, 0..3);
    cluster.host(0).rot("o3");
    cluster.intervals(&[(0, &[2], &[0])]);
    cluster.run();
    assert_eq!(cluster.state(0), "active+backfill_unfound+remapped+inconsistent");
    let tid = cluster.write(0, 4, 50);
    cluster.run();
    assert!(cluster.is_answered(tid), "a write to another object of the window");
    cluster.intervals(&[(1, &[2], &[0])]);
    cluster.run();
    assert_eq!(cluster.state(1), "active+clean", "its place is free");
    // A write replaces the object: the backfill goes on at once.
    cluster.host(0).heal();
    let tid = cluster.write(0, 3, 50);
    cluster.run();
    assert!(cluster.is_answered(tid));
    cluster.assert_clean("after the write");
    assert!(cluster.has(2, 0, 3));
}

#[test]
fn pauses_bound_the_objects_of_a_second() {
    let recovery_sleep = Duration::from_secs(1);
    let limits = Limits { recovery_sleep, recovery_single_start_max: 2, ..Limits::default() };
    let mut cluster = Cluster::with(limits, 2, 2, &[(0, &[0, 1])]);
    let store = cluster.kill(1);
    cluster.intervals(&[(0, &[0], &[0])]);
    cluster.run();
    cluster.fill(0, 0..6);
    cluster.start(1, store);
    cluster.intervals(&[(0, &[0, 1], &[0, 1])]);
    cluster.run();
    for copied in [2, 4] {
        assert_eq!((0..6).filter(|number| cluster.has(1, 0, *number)).count(), copied);
        assert_eq!(cluster.state(0), "active+recovering+degraded");
        cluster.pass(Duration::from_secs(1));
    }
    cluster.assert_clean("after two pauses");
}

#[test]
fn recovered_objects_are_counted_once() {
    let mut cluster = Cluster::new(3, 3, &[(0, &[0, 1, 2])]);
    let stores = [1, 2].map(|osd| (osd, cluster.kill(osd)));
    cluster.intervals(&[(0, &[0], &[0])]);
    cluster.run();
    cluster.fill(0, 0..5);
    for (osd, store) in stores {
        cluster.start(osd, store);
    }
    cluster.intervals(&[(0, &[0, 1, 2], &[0, 1, 2])]);
    cluster.run();
    cluster.assert_clean("after the recovery");
    // Each object went to two members.
    assert_eq!(cluster.report(0).recovered, RecoveredCounts { objects: 5, bytes: 500, keys: 0 });
    // Another primary goes on with the count.
    cluster.intervals(&[(0, &[1, 0, 2], &[1, 0, 2])]);
    cluster.run();
    assert_eq!(cluster.report(0).recovered.objects, 5);
}

#[test]
fn pulled_objects_are_counted() {
    let mut cluster = Cluster::new(2, 2, &[(0, &[0, 1])]);
    let store = cluster.kill(0);
    cluster.intervals(&[(0, &[1], &[1])]);
    cluster.run();
    cluster.fill(0, 0..5);
    cluster.start(0, store);
    cluster.intervals(&[(0, &[0, 1], &[0, 1])]);
    cluster.run();
    assert_eq!(cluster.report(0).recovered, RecoveredCounts { objects: 5, bytes: 500, keys: 0 });
}

#[test]
fn misplaced_objects_of_a_backfill_are_counted() {
    let mut cluster = Cluster::new(3, 2, &[(0, &[0, 1])]);
    cluster.fill(0, 0..300);
    cluster.intervals(&[(0, &[0, 2], &[0, 1])]);
    let mut misplaced = Vec::new();
    cluster.run_watching(|cluster| {
        let report = cluster.report(0);
        if report.status.state.has(PgState::BACKFILLING) && misplaced.last() != Some(&report.status.misplaced)
        {
            misplaced.push(report.status.misplaced);
        }
    });
    assert_eq!(misplaced.first(), Some(&300));
    assert!(misplaced.is_sorted_by(|before, after| before > after), "{misplaced:?}");
    // One object after the other, and in steps of what copies end together.
    assert!(misplaced.len() > 100 && misplaced.contains(&(300 - 128)), "{misplaced:?}");
    assert_eq!(cluster.report(0).recovered.objects, 300);
    cluster.assert_clean("at the end");
}

/// Many large objects at once: no more than 8 MiB are under way to one OSD.
#[test]
fn pushes_under_way_are_bounded() {
    let limits = Limits { recovery_active_max: 60, ..Limits::default() };
    let mut cluster = Cluster::with(limits, 2, 2, &[(0, &[0, 1])]);
    let store = cluster.kill(1);
    cluster.intervals(&[(0, &[0], &[0])]);
    cluster.run();
    for number in 0..40 {
        let tid = cluster.write(0, number, 1 << 20);
        cluster.run();
        assert!(cluster.is_answered(tid));
    }
    cluster.start(1, store);
    cluster.intervals(&[(0, &[0, 1], &[0, 1])]);
    let mut most = 0;
    cluster.run_watching(|cluster| {
        let pushes =
            cluster.wires.iter().filter(|(_, to, m)| *to == 1 && matches!(m.body, PeerBody::Push(_)));
        most = most.max(pushes.map(|(.., message)| message.data.len()).sum::<usize>());
    });
    assert!((1 << 20..=8 << 20).contains(&most), "{most} bytes");
    cluster.assert_clean("at the end");
    assert_eq!(cluster.report(0).recovered, RecoveredCounts { objects: 40, bytes: 40 << 20, keys: 0 });
}

/// With the bug, the second PG waits for a place that nobody uses.
#[cfg(feature = "planted-bugs")]
#[test]
fn kept_place_is_seen() {
    use osd::planted::{PlantedBug, plant};
    plant(Some(PlantedBug::PlaceKept));
    let mut cluster = Cluster::new(3, 2, &[(0, &[0, 2]), (1, &[1, 2])]);
    let store = cluster.kill(2);
    cluster.intervals(&[(0, &[0], &[0]), (1, &[1], &[1])]);
    cluster.run();
    for seed in [0, 1] {
        cluster.fill(seed, 0..5);
    }
    cluster.start(2, store);
    cluster.intervals(&[(0, &[0, 2], &[0, 2]), (1, &[1, 2], &[1, 2])]);
    cluster.run();
    (0..4).for_each(|_| cluster.pass(Duration::from_secs(5)));
    plant(None);
    let states = cluster.states();
    assert!(states.iter().any(|state| state.contains("recovery_wait")), "{states:?}");
    let lent = cluster.hosts.values().map(|host| host.shard.places_in_use().lent).sum::<usize>();
    assert_eq!(lent, 2, "the place of the first PG and the request of the second");
}
