//! Stories of maps, and the orders that they give.

use super::super::births::{OldBirth, OldBirths};
use super::super::history::PgRecords;
use super::*;
use crate::control::MergeVersions;
use crate::shard::LoadedPg;
use codec::Encode;
use machine::Random;
use std::collections::VecDeque;
use wire::types::{Eversion, OsdRow, OsdState, PastInterval, PgPool, PoolKind};

const US: i32 = 0;
const PG: PgId = PgId { pool: 1, seed: 0 };

/// Epoch by epoch, with PGs placed by hand.
struct Story {
    map: OsdMap,
    holdings: Holdings,
    /// The map in which this store's OSD was first marked up.
    our_life: Epoch,
    /// The records as the store has them.
    stored: BTreeMap<PgId, bytes::Bytes>,
}

impl Story {
    fn new() -> Story {
        let mut row = OsdRow {
            state: OsdState(OsdState::EXISTS | OsdState::UP),
            weight: OsdMap::WEIGHT_IN,
            ..OsdRow::default()
        };
        row.info.up_from = 3;
        let map = OsdMap { epoch: 5, osds: vec![row; 4], ..OsdMap::default() };
        let mut story = Story { map, holdings: Holdings::new(US, 2), our_life: 3, stored: BTreeMap::new() };
        story.holdings.start(Some(&Arc::new(story.map.clone())));
        story
    }

    /// A pool of map 6 with one PG on these OSDs.
    fn with_pool(acting: &[i32]) -> (Story, Vec<PgOrder>) {
        let mut story = Story::new();
        let orders = story.next(|map| {
            pool(map, 1);
            on(map, PG, acting);
        });
        (story, orders)
    }

    /// The next map, changed by `change`.
    fn follow(&mut self, change: impl FnOnce(&mut OsdMap)) {
        let before = self.map.clone();
        self.map.epoch += 1;
        change(&mut self.map);
        self.holdings.follow(Some(&before), &Arc::new(self.map.clone()), self.our_life);
    }

    fn orders(&mut self, is_us: bool) -> Vec<PgOrder> {
        let orders = self.holdings.orders(&self.map, is_us);
        self.store();
        self.holdings.check(Some(&self.map));
        orders.into_values().flatten().collect()
    }

    /// The next map, and the orders it gives, in order of cores.
    fn next(&mut self, change: impl FnOnce(&mut OsdMap)) -> Vec<PgOrder> {
        self.follow(change);
        self.orders(true)
    }

    fn after_gap(&mut self, change: impl FnOnce(&mut OsdMap)) -> Vec<PgOrder> {
        self.map.epoch += 10;
        change(&mut self.map);
        self.holdings.follow(None, &Arc::new(self.map.clone()), self.our_life);
        self.orders(true)
    }

    fn store(&mut self) {
        let RecordChanges { set, gone } = self.holdings.take_record_changes();
        self.stored.extend(set.iter().map(|(pg, record)| (*pg, record.to_bytes())));
        gone.iter().for_each(|pg| drop(self.stored.remove(pg)));
    }

    /// The daemon dies and is back, with these copies in its stores.
    fn restart(&mut self, copies: &[(PgId, u8)]) {
        let intervals = self.stored.iter().map(|(pg, bytes)| (*pg, codec::decode_exact(bytes).unwrap()));
        let births = codec::decode_exact(&self.holdings.births().to_vec(codec::Features::NONE)).unwrap();
        let records = PgRecords { births, intervals: intervals.collect(), old_births: None };
        self.restart_with(records, copies);
    }

    fn restart_with(&mut self, records: PgRecords, copies: &[(PgId, u8)]) {
        self.holdings = Holdings::new(US, 2);
        self.holdings.read_records(records);
        for (pg, split_bits) in copies {
            // Of the newest split, whose map may be lost.
            self.find(LoadedPg { split_at: Epoch::MAX, ..loaded(*pg, *split_bits) });
        }
        self.start();
    }

    fn find(&mut self, copy: LoadedPg) {
        self.holdings.found(CoreId(1), &copy);
    }

    fn start(&mut self) {
        self.holdings.start(Some(&Arc::new(self.map.clone())));
        self.store();
    }
}

fn loaded(pg: PgId, split_bits: u8) -> LoadedPg {
    LoadedPg { pg: pg.into(), created: 6, split_bits, split_at: 0, merged_through: 0 }
}

fn pool(map: &mut OsdMap, pg_num: u32) {
    let kind = PoolKind::REPLICATED;
    let pool = PgPool { kind, size: 2, min_size: 1, pg_num, pgp_num: pg_num, ..PgPool::default() };
    map.pools.insert(1, pool);
    map.pool_max = 1;
}

fn on(map: &mut OsdMap, pg: PgId, acting: &[i32]) {
    map.pg_upmap.insert(pg, acting.to_vec());
}

fn child(seed: u32) -> PgId {
    PgId { pool: 1, seed }
}

/// The fields of an interval's order that differ from story to story.
#[derive(Debug, PartialEq)]
struct Told {
    pg: PgId,
    is_birth: bool,
    created: Epoch,
    since: Epoch,
    acting: Vec<i32>,
    known_since: Epoch,
    /// First and last epoch, acting set, and whether it may have written.
    past: Vec<(Epoch, Epoch, Vec<i32>, bool)>,
}

#[track_caller]
fn told(order: &PgOrder) -> Told {
    let PgOrder::Interval { pg, created, is_birth, interval, past, .. } = order else {
        panic!("no interval: {order:?}");
    };
    let spans = past.intervals.iter().map(|i| (i.first, i.last, i.acting.clone(), i.may_have_written));
    Told {
        pg: pg.pg,
        is_birth: *is_birth,
        created: *created,
        since: interval.since,
        acting: interval.acting.clone(),
        known_since: past.known_since,
        past: spans.collect(),
    }
}

#[track_caller]
fn only(orders: &[PgOrder]) -> Told {
    assert_eq!(orders.len(), 1, "{orders:?}");
    told(&orders[0])
}

fn born(pg: PgId, since: Epoch, acting: &[i32]) -> Told {
    Told { pg, is_birth: true, created: 6, since, acting: acting.to_vec(), known_since: 6, past: vec![] }
}

#[test]
fn first_interval_of_new_pool_is_birth() {
    assert_eq!(only(&Story::with_pool(&[US, 1]).1), born(PG, 6, &[US, 1]));
}

#[test]
fn replica_of_first_interval_is_birth() {
    assert_eq!(only(&Story::with_pool(&[1, US]).1), born(PG, 6, &[1, US]));
}

#[test]
fn pool_without_osds_begins_with_first_primary() {
    let (mut story, orders) = Story::with_pool(&[]);
    assert_eq!((orders, story.next(|_| ())), (vec![], vec![]));
    story.restart(&[]);
    assert_eq!(only(&story.next(|map| on(map, PG, &[1, US]))), born(PG, 8, &[1, US]));
}

#[test]
fn pg_that_began_elsewhere_is_no_birth() {
    let (mut story, orders) = Story::with_pool(&[1, 2]);
    assert_eq!(orders, []);
    let past = vec![(6, 6, vec![1, 2], true)];
    let want = Told { is_birth: false, created: 0, past, ..born(PG, 7, &[US, 2]) };
    assert_eq!(only(&story.next(|map| on(map, PG, &[US, 2]))), want);
}

#[test]
fn member_below_min_size_before_cannot_have_written() {
    let (mut story, _) = Story::with_pool(&[1]);
    story.next(|map| map.pools.get_mut(&1).unwrap().min_size = 2);
    let orders = story.next(|map| on(map, PG, &[1, US]));
    assert_eq!(only(&orders).past, [(7, 7, vec![1], false)]);
}

#[test]
fn lost_store_is_no_birth_of_its_earlier_life() {
    // The map still names our earlier life, whose store had the PG.
    let mut story = Story::new();
    story.our_life = 0;
    story.follow(|map| {
        pool(map, 1);
        on(map, PG, &[US]);
    });
    assert_eq!(story.orders(false), []);
    story.our_life = 8;
    story.follow(|map| map.osds[0].state.0 ^= OsdState::UP);
    assert_eq!(story.orders(false), [], "nothing is held, and the map names another OSD");
    let orders = story.next(|map| {
        map.osds[0].state.0 ^= OsdState::UP;
        map.osds[0].info.up_from = 8;
    });
    assert!(!only(&orders).is_birth);
}

#[test]
fn pool_before_first_map_has_unknown_past() {
    let mut story = Story::new();
    story.holdings = Holdings::new(US, 2);
    let orders = story.after_gap(|map| {
        pool(map, 1);
        on(map, PG, &[US, 1]);
    });
    let want = Told { is_birth: false, created: 0, known_since: 15, ..born(PG, 15, &[US, 1]) };
    assert_eq!(only(&orders), want);
}

#[test]
fn birth_before_creation_is_durable_survives_restart() {
    let (mut story, orders) = Story::with_pool(&[US, 1]);
    assert!(only(&orders).is_birth);
    story.restart(&[]);
    // The map has put it elsewhere meanwhile: the empty copy still proves that nothing was written here.
    let want = Told { past: vec![(6, 6, vec![US, 1], false)], ..born(PG, 7, &[1, 2]) };
    assert_eq!(only(&story.next(|map| on(map, PG, &[1, 2]))), want);
    assert!(story.holdings.created(PG) && !story.holdings.created(PG));
    story.store();
    story.restart(&[(PG, 0)]);
    assert!(!only(&story.next(|_| ())).is_birth);
}

/// The loss of power took the map back with which the pool came, and another core has the copy. It may have writes.
#[test]
fn copy_of_a_pool_that_the_stored_map_does_not_have_yet_stays() {
    let mut story = Story::new();
    story.restart(&[(PG, 0)]);
    assert_eq!(story.orders(true), []);
    let orders = story.next(|map| {
        pool(map, 1);
        on(map, PG, &[US, 1]);
    });
    assert_eq!(only(&orders), Told { is_birth: false, ..born(PG, 6, &[US, 1]) });
    let orders = story.next(|map| drop(map.pools.remove(&1)));
    assert!(matches!(orders[..], [PgOrder::Remove { .. }]), "{orders:?}");
}

#[test]
fn durable_copy_is_not_born_again() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.restart(&[(PG, 0)]);
    let want = Told { is_birth: false, ..born(PG, 6, &[US, 1]) };
    assert_eq!(only(&story.next(|_| ())), want, "the interval goes on");
    assert_eq!(story.next(|_| ()), [], "and is told once");
}

#[test]
fn unsaved_new_member_is_ordered_again_after_restart() {
    let (mut story, _) = Story::with_pool(&[1, 2]);
    let first = only(&story.next(|map| on(map, PG, &[US, 2])));
    story.restart(&[]);
    assert_eq!(only(&story.next(|_| ())), first);
    story.restart(&[]);
    assert_eq!(story.next(|map| on(map, PG, &[1, 2])), [], "no copy, and not named");
    assert!(story.holdings.entries.is_empty() && story.stored.is_empty());
}

#[test]
fn interval_with_up_thru_may_have_written() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    let second = story.next(|map| on(map, PG, &[1, US]));
    assert_eq!(only(&second).past, [(6, 6, vec![US, 1], false)]);
    assert_eq!(story.next(|map| map.osds[1].info.up_thru = 7), []);
    let third = story.next(|map| on(map, PG, &[US, 1]));
    assert_eq!(only(&third).past[1..], [(7, 8, vec![1, US], true)]);
    // The primary was marked up after the interval began: its up_thru is of another life.
    story
        .next(|map| map.osds[0].info = wire::types::OsdInfo { up_from: 10, up_thru: 10, ..map.osds[0].info });
    let fourth = story.next(|map| on(map, PG, &[1, US]));
    assert_eq!(only(&fourth).past[2..], [(9, 10, vec![US, 1], false)]);
}

#[test]
fn closed_interval_keeps_its_min_size() {
    let (mut story, _) = Story::with_pool(&[US]);
    story.next(|map| map.osds[0].info.up_thru = 6);
    let orders = story.next(|map| map.pools.get_mut(&1).unwrap().min_size = 2);
    assert_eq!(only(&orders).past, [(6, 7, vec![US], true)]);
    let orders = story.next(|map| on(map, PG, &[US, 1]));
    assert_eq!(only(&orders).past[1..], [(8, 8, vec![US], false)]);
}

#[test]
fn unrelated_change_begins_no_interval() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    assert_eq!(story.next(|map| map.osds[2].state.0 ^= OsdState::UP), []);
    assert_eq!(story.next(|map| map.pools.get_mut(&1).unwrap().last_change = 8), []);
}

#[test]
fn primary_since_spans_intervals_of_one_primary() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    let orders = story.next(|map| on(map, PG, &[US, 2]));
    let PgOrder::Interval { interval, .. } = &orders[0] else { panic!("{orders:?}") };
    assert_eq!((interval.since, interval.primary_since), (7, 6));
    assert_eq!(story.holdings.entries[&PG].primary_since, Some(6));
    story.next(|map| on(map, PG, &[2, US]));
    assert_eq!(story.holdings.entries[&PG].primary_since, None);
}

#[test]
fn intervals_of_one_message_are_all_recorded() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.follow(|map| on(map, PG, &[1, 2]));
    story.follow(|map| on(map, PG, &[2, US]));
    let orders = story.orders(true);
    let past = vec![(6, 6, vec![US, 1], false), (7, 7, vec![1, 2], false)];
    assert_eq!(only(&orders), Told { past, ..born(PG, 8, &[2, US]) });
}

#[test]
fn stray_copy_is_told_every_interval() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.holdings.created(PG);
    assert_eq!(only(&story.next(|map| on(map, PG, &[1, 2]))).since, 7);
    assert_eq!(only(&story.next(|map| on(map, PG, &[2, 1]))).since, 8);
    assert!(!story.holdings.removed(PG, CoreId(0)));
    story.store();
    assert!(story.holdings.entries.is_empty() && story.stored.is_empty());
}

#[test]
fn copy_that_is_named_while_it_goes_is_ordered_anew() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.holdings.created(PG);
    story.next(|map| on(map, PG, &[1, 2]));
    story.next(|map| on(map, PG, &[1, US]));
    assert!(story.holdings.removed(PG, CoreId(0)));
    let orders = story.orders(true);
    assert!(!only(&orders).is_birth && only(&orders).since == 8);
}

/// The map takes a PG away from this OSD and gives it back while a core still removes what a move has left.
#[test]
fn new_copy_waits_until_the_old_one_is_gone() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.holdings.created(PG);
    let source = story.holdings.entries[&PG].core;
    let target = CoreId(1 - source.0);
    story.holdings.leave(PG, target);
    story.holdings.cross(PG, source, target);
    story.next(|map| on(map, PG, &[1, 2]));
    assert!(!story.holdings.removed(PG, target));
    assert_eq!(story.next(|map| on(map, PG, &[1, US])), []);
    assert_eq!(story.next(|map| on(map, PG, &[US, 1])), []);
    assert!(!story.holdings.cleared(PG, target), "that is another core");
    assert_eq!(story.orders(true), []);
    assert!(story.holdings.cleared(PG, source));
    let orders = story.orders(true);
    assert!(!only(&orders).is_birth && only(&orders).since == 9);
    assert!(!story.holdings.cleared(PG, source), "no copy is to be made");
}

/// The shard found a collection that it cannot read: its creation is unknown.
#[test]
fn unreadable_copy_is_split_and_gets_no_new_children() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    let intervals = story.stored.iter().map(|(pg, bytes)| (*pg, codec::decode_exact(bytes).unwrap()));
    let records = PgRecords { intervals: intervals.collect(), ..PgRecords::default() };
    story.holdings = Holdings::new(US, 2);
    story.holdings.read_records(records);
    story.holdings.found(CoreId(0), &LoadedPg { created: 0, ..loaded(PG, 0) });
    story.holdings.start(Some(&Arc::new(story.map.clone())));
    let orders = story.next(|map| on(map, PG, &[1, US]));
    assert!(!only(&orders).is_birth, "{orders:?}");
    let child = PgId { seed: 1, ..PG };
    let orders = story.next(|map| map.pools.get_mut(&1).unwrap().pg_num = 2);
    let PgOrder::Split { children, .. } = &orders[0] else { panic!("{orders:?}") };
    assert_eq!(children[..], [(child.into(), 1)]);
    assert_eq!(story.holdings.entries[&child].holding, Holding::Held, "no order creates it");
    let orders = story.next(|map| drop(map.pools.remove(&1)));
    assert!(orders.iter().all(|order| matches!(order, PgOrder::Remove { .. })), "{orders:?}");
}

#[test]
fn gap_forgets_the_past() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.next(|map| on(map, PG, &[US, 2]));
    let orders = story.after_gap(|_| ());
    let want = Told { is_birth: false, known_since: 17, ..born(PG, 17, &[US, 2]) };
    assert_eq!(only(&orders), want);
    // It may have begun, and written, before the map after the gap.
    let orders = story.next(|map| on(map, PG, &[US, 1]));
    assert_eq!(only(&orders).past, [(17, 17, vec![US, 2], true)]);
}

#[test]
fn longer_past_of_a_peer_fills_the_gap() {
    let (mut story, _) = Story::with_pool(&[1, 2]);
    story.next(|map| on(map, PG, &[US, 1]));
    let theirs = |known_since, last| {
        let full = PastInterval { first: 4, last, acting: vec![1, 2], primary: 1, ..PastInterval::default() };
        PastIntervals { known_since, intervals: vec![full] }
    };
    assert!(!story.holdings.longer_past(PG, &theirs(6, 6)), "no longer than ours");
    assert!(!story.holdings.longer_past(PG, &theirs(4, 4)), "epoch 5 is missing");
    assert!(story.holdings.longer_past(PG, &theirs(4, 6)));
    assert_eq!(story.orders(true), [], "the shard has it already");
    let orders = story.next(|map| on(map, PG, &[US, 2]));
    let told = only(&orders);
    assert_eq!(told.known_since, 4);
    assert_eq!(told.past, [(4, 6, vec![1, 2], false), (7, 7, vec![US, 1], false)]);
}

#[test]
fn done_intervals_are_forgotten() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.next(|map| on(map, PG, &[US, 2]));
    story.holdings.intervals_done(PG, 7);
    story.store();
    story.restart(&[(PG, 0)]);
    let want = Told { is_birth: false, known_since: 7, ..born(PG, 7, &[US, 2]) };
    assert_eq!(only(&story.next(|_| ())), want);
}

#[test]
fn other_process_under_our_number_idles_the_shard() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    let idle = [PgOrder::Idle { pg: PG.into() }];
    story.follow(|_| ());
    assert_eq!(story.orders(false), idle);
    story.follow(|map| on(map, PG, &[US, 2]));
    assert_eq!(story.orders(false), [], "once");
    assert_eq!(story.holdings.entries[&PG].primary_since, None);
    assert_eq!(only(&story.next(|_| ())).since, 8);
    // A copy that the map does not name announces itself even then.
    story.follow(|map| on(map, PG, &[1, 2]));
    assert_eq!(only(&story.orders(false)).since, 10);
    // The interval and the process change with one map.
    assert_eq!(only(&story.next(|map| on(map, PG, &[US, 1]))).since, 11);
    story.follow(|map| on(map, PG, &[1, US]));
    assert_eq!(story.orders(false), idle);
}

#[test]
fn deleted_pool_is_removed_once_and_forgotten() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    let remove = PgOrder::Remove { pg: PG.into() };
    assert_eq!(story.next(|map| drop(map.pools.remove(&1))), [remove]);
    assert_eq!(story.next(|_| ()), []);
    assert!(!story.holdings.removed(PG, CoreId(0)));
    story.store();
    assert!(story.holdings.entries.is_empty() && story.stored.is_empty());
}

#[test]
fn split_gives_children_the_parents_past() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.next(|map| map.osds[0].info.up_thru = 6);
    let orders = story.next(|map| {
        map.pools.get_mut(&1).unwrap().pg_num = 4;
        (0..4).for_each(|seed| on(map, child(seed), if seed == 3 { &[1, 2] } else { &[US, 1] }));
    });
    let children = (1..4).map(|s| (child(s).into(), 2)).collect();
    let split = PgOrder::Split { pg: PG.into(), split_bits: 2, children, epoch: 8 };
    assert_eq!(orders[0], split);
    for (seed, order) in (0..4).zip(&orders[1..]) {
        let acting: &[i32] = if seed == 3 { &[1, 2] } else { &[US, 1] };
        let past = vec![(6, 7, vec![US, 1], true)];
        assert_eq!(told(order), Told { past, ..born(child(seed), 8, acting) });
        let PgOrder::Interval { interval, split_bits, .. } = order else { unreachable!() };
        assert_eq!((interval.split_at, *split_bits), (8, 2));
    }
    assert_eq!(orders.len(), 5);
    let cores: BTreeSet<CoreId> = story.holdings.entries.values().map(|e| e.core).collect();
    assert_eq!(cores.len(), 1, "children stay on their parent's core");
    // The parent's copy is durable, so its children are what a split makes of it, whenever.
    assert!(story.holdings.created(PG));
    assert!(story.holdings.entries.values().all(|entry| !entry.intervals.is_birth));
}

/// The shards of other cores have made a split durable, and a loss of power takes the map back that asked for it. The parent's
/// interval changes before the map comes again.
#[test]
fn child_of_a_split_whose_map_was_lost_has_its_parents_past() {
    let (mut story, _) = Story::with_pool(&[US]);
    story.next(|map| map.osds[0].info.up_thru = 6);
    story.restart(&[(PG, 1), (child(1), 1)]);
    assert_eq!(story.holdings.held().collect::<Vec<_>>(), [PG]);
    let away = story.next(|map| on(map, PG, &[]));
    assert_eq!(only(&away).pg, PG, "the child does not exist in this map");
    let orders = story.next(|map| {
        map.pools.get_mut(&1).unwrap().pg_num = 2;
        (0..2).for_each(|seed| on(map, child(seed), &[US]));
    });
    assert_eq!(orders.len(), 2, "both parts of the split are there: {orders:?}");
    for (seed, order) in (0..2).zip(&orders) {
        let past = vec![(6, 7, vec![US], true), (8, 8, vec![], false)];
        let want = Told { is_birth: false, past, ..born(child(seed), 9, &[US]) };
        assert_eq!(told(order), want);
    }
    story.restart(&[(PG, 1), (child(1), 1)]);
    assert_eq!(told(&story.next(|_| ())[1]).known_since, 6, "the record is stored");
}

/// Only the child's part was durable: the split is made again.
#[test]
fn split_whose_map_and_parent_were_lost_is_ordered_again() {
    let (mut story, _) = Story::with_pool(&[US]);
    story.next(|map| map.osds[0].info.up_thru = 6);
    story.restart(&[(PG, 0), (child(1), 1)]);
    let orders = story.next(|map| {
        map.pools.get_mut(&1).unwrap().pg_num = 2;
        (0..2).for_each(|seed| on(map, child(seed), &[US]));
    });
    let split =
        PgOrder::Split { pg: PG.into(), split_bits: 1, children: vec![(child(1).into(), 1)], epoch: 8 };
    assert_eq!(orders[0], split);
    assert_eq!(orders[1..].iter().map(|order| told(order).known_since).collect::<Vec<_>>(), [6, 6]);
}

/// Neither does the parent's copy have to be here, nor the pool.
#[test]
fn copy_ahead_of_the_map_without_a_parent_is_held() {
    let (mut story, _) = Story::with_pool(&[1]);
    story.restart(&[(child(1), 1)]);
    assert_eq!(story.next(|_| ()), []);
    let told = only(
        &story
            .next(|map| {
                map.pools.get_mut(&1).unwrap().pg_num = 2;
                (0..2).for_each(|seed| on(map, child(seed), &[US]));
            })
            .split_off(1),
    );
    assert_eq!((told.pg, told.is_birth, told.known_since), (child(1), false, 8));
    let (mut story, _) = Story::with_pool(&[1]);
    story.restart(&[(child(1), 1)]);
    let orders = story.next(|map| drop(map.pools.remove(&1)));
    assert_eq!(orders, [PgOrder::Remove { pg: child(1).into() }]);
}

#[test]
fn child_of_unserved_pg_is_birth() {
    let (mut story, _) = Story::with_pool(&[]);
    let orders = story.next(|map| {
        map.pools.get_mut(&1).unwrap().pg_num = 2;
        on(map, child(1), &[2, US]);
    });
    assert_eq!(only(&orders), born(child(1), 7, &[2, US]));
}

#[test]
fn child_of_pg_elsewhere_has_the_parents_members() {
    let (mut story, _) = Story::with_pool(&[1, 2]);
    let orders = story.next(|map| {
        map.pools.get_mut(&1).unwrap().pg_num = 2;
        on(map, child(1), &[2, US]);
    });
    let told = only(&orders);
    assert_eq!((told.is_birth, told.known_since), (false, 6));
    assert_eq!(told.past, [(6, 6, vec![1, 2], true)]);
}

#[test]
fn birth_and_split_in_one_message_make_all_births() {
    let mut story = Story::new();
    story.follow(|map| {
        pool(map, 1);
        on(map, PG, &[US, 1]);
    });
    story.follow(|map| {
        map.pools.get_mut(&1).unwrap().pg_num = 2;
        on(map, child(1), &[1, 2]);
    });
    let orders: VecDeque<Told> = story.orders(true).iter().map(told).collect();
    let past = || vec![(6, 6, vec![US, 1], false)];
    let want =
        [Told { past: past(), ..born(PG, 7, &[US, 1]) }, Told { past: past(), ..born(child(1), 7, &[1, 2]) }];
    assert!(orders.len() == 2 && want.iter().all(|told| orders.contains(told)), "{orders:?}");
}

#[test]
fn interrupted_split_is_ordered_again() {
    // Some of the children were durable, and the parent's own part was not.
    for made in [vec![], vec![1], vec![1, 2, 3]] {
        let (mut story, _) = Story::with_pool(&[US, 1]);
        story.holdings.created(PG);
        story.next(|map| {
            map.pools.get_mut(&1).unwrap().pg_num = 4;
            (0..4).for_each(|seed| on(map, child(seed), &[US, 1]));
        });
        let copies: Vec<(PgId, u8)> =
            std::iter::once((PG, 0)).chain(made.iter().map(|seed| (child(*seed), 2))).collect();
        story.restart(&copies);
        let orders = story.next(|_| ());
        let children = (1..4).map(|s| (child(s).into(), 2)).collect();
        assert_eq!(
            orders[0],
            PgOrder::Split { pg: PG.into(), split_bits: 2, children, epoch: 8 },
            "{made:?}"
        );
        for (seed, order) in (0..4).zip(&orders[1..]) {
            let past = vec![(6, 6, vec![US, 1], false)];
            let want = Told { is_birth: false, past, ..born(child(seed), 7, &[US, 1]) };
            assert_eq!(told(order), want, "{made:?}");
        }
        assert_eq!(story.next(|_| ()), []);
        let further = story.next(|map| map.pools.get_mut(&1).unwrap().pg_num = 5);
        let one = vec![(child(4).into(), 3)];
        assert_eq!(further[0], PgOrder::Split { pg: PG.into(), split_bits: 3, children: one, epoch: 10 });
    }
}

#[test]
fn gap_with_split_makes_children_of_unknown_past() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.holdings.created(PG);
    let orders = story.after_gap(|map| map.pools.get_mut(&1).unwrap().pg_num = 2);
    assert!(matches!(&orders[0], PgOrder::Split { children, .. } if children.len() == 1), "{orders:?}");
    let told: Vec<Told> = orders[1..].iter().map(told).collect();
    assert_eq!(told.iter().map(|told| told.pg.seed).collect::<Vec<_>>(), [0, 1]);
    assert!(told.iter().all(|told| !told.is_birth && told.known_since == 16 && told.past.is_empty()));
}

#[test]
fn store_of_first_release_serves_its_pgs() {
    let mut story = Story::new();
    story.map.epoch = 20;
    pool(&mut story.map, 2);
    story.map.pools.get_mut(&1).unwrap().size = 1;
    (0..3).for_each(|seed| on(&mut story.map, child(seed), &[US]));
    story.map.pg_upmap.insert(PgId { pool: 1, seed: 1 }, vec![1]);
    let ours = BTreeMap::from([(child(1), OldBirth { created: 6, since: None })]);
    let old = OldBirths { ours, unsettled: BTreeMap::new() };
    let records = PgRecords { old_births: Some(old), ..PgRecords::default() };
    story.restart_with(records, &[(PG, 1)]);
    let mut orders: Vec<Told> = story.next(|_| ()).iter().map(told).collect();
    orders.sort_by_key(|told| told.pg);
    let alone = vec![(6, 19, vec![US], true)];
    let want = [
        Told { is_birth: false, past: alone, ..born(PG, 20, &[US]) },
        // A birth that was not durable. The map gives it to another OSD, which must hear of the copy.
        born(child(1), 20, &[1]),
    ];
    assert_eq!(orders, want);
    assert_eq!(story.stored.len(), 2);
}

#[test]
fn record_is_decoded_as_it_was_encoded() {
    let (mut story, _) = Story::with_pool(&[US, 1]);
    story.next(|map| on(map, PG, &[1, US]));
    story.after_gap(|_| ());
    story.next(|map| on(map, PG, &[US, 2]));
    let before = story.holdings.entries[&PG].intervals.clone();
    story.restart(&[(PG, 0)]);
    assert_eq!(story.holdings.entries[&PG].intervals, before);
}

/// Two PGs on these OSDs, which are about to be merged. Both copies here are durable.
fn before_merge(acting: &[i32]) -> Story {
    let mut story = Story::new();
    story.next(|map| {
        pool(map, 2);
        (0..2).for_each(|seed| on(map, child(seed), acting));
    });
    for seed in 0..2 {
        story.holdings.created(child(seed));
    }
    story.next(|map| map.osds[0].info.up_thru = 7);
    let core = story.holdings.entries[&PG].core;
    story.holdings.entries.get_mut(&child(1)).unwrap().core = core;
    let orders = story.next(|map| map.pools.get_mut(&1).unwrap().pg_num_pending = 1);
    let since: Vec<Epoch> = orders.iter().map(|order| told(order).since).collect();
    assert_eq!(since, [8, 8], "both have a new interval");
    story
}

const VERSIONS: MergeVersions =
    MergeVersions { source: Eversion { epoch: 7, version: 4 }, target: Eversion { epoch: 7, version: 9 } };

fn merge_pgs(map: &mut OsdMap) {
    let ready_epoch = map.epoch - 1;
    let pool = map.pools.get_mut(&1).unwrap();
    (pool.pg_num, pool.pg_num_pending) = (1, 1);
    let merge = &mut pool.last_pg_merge;
    (merge.source, merge.ready_epoch) = (child(1), ready_epoch);
    (merge.source_version, merge.target_version) = (VERSIONS.source, VERSIONS.target);
}

fn order_to_merge(source: Option<PgId>, epoch: Epoch, versions: Option<MergeVersions>) -> PgOrder {
    PgOrder::Merge { pg: PG.into(), source: source.map(SpgId::from), split_bits: 0, epoch, versions }
}

#[test]
fn merge_is_ordered_before_its_interval() {
    let mut story = before_merge(&[US, 1]);
    let orders = story.next(merge_pgs);
    assert_eq!(orders[0], order_to_merge(Some(child(1)), 9, Some(VERSIONS)));
    let past = vec![(6, 7, vec![US, 1], true), (8, 8, vec![US, 1], false)];
    assert_eq!(only(&orders[1..]), Told { is_birth: false, past, ..born(PG, 9, &[US, 1]) });
    assert_eq!(story.holdings.entries.len(), 1);
    assert_eq!(story.orders(true), [], "it is ordered once");
    assert_eq!(story.stored.len(), 1, "the source has no record");
}

/// As [`merge_is_ordered_before_its_interval`], with the bug.
#[cfg(feature = "planted-bugs")]
#[test]
fn merge_that_loses_an_interval_is_seen() {
    let mut story = before_merge(&[US, 1]);
    crate::planted::plant(Some(crate::planted::PlantedBug::MergeLosesInterval));
    let orders = story.next(merge_pgs);
    crate::planted::plant(None);
    assert_eq!(told(&orders[1]).past, []);
}

#[test]
fn merge_that_is_not_durable_is_ordered_again() {
    let mut story = before_merge(&[US, 1]);
    let order = story.next(merge_pgs).remove(0);
    let mut back = |copies: &[LoadedPg], is_done: bool| {
        let intervals = story.stored.iter().map(|(pg, bytes)| (*pg, codec::decode_exact(bytes).unwrap()));
        let births = story.holdings.births().clone();
        let records = PgRecords { births, intervals: intervals.collect(), old_births: None };
        story.holdings = Holdings::new(US, 2);
        story.holdings.read_records(records);
        copies.iter().for_each(|copy| story.find(*copy));
        story.start();
        let orders = story.orders(true);
        if is_done {
            story.holdings.merged(PG, 9);
        }
        orders
    };
    assert_eq!(back(&[loaded(PG, 1), loaded(child(1), 1)], false)[0], order);
    // The target's records are durable, the move of the source's objects is not.
    let half = LoadedPg { merged_through: 9, ..loaded(PG, 0) };
    assert_eq!(back(&[half, loaded(child(1), 1)], false)[0], order);
    let again = back(&[half], true);
    assert_eq!(again[0], order_to_merge(None, 9, Some(VERSIONS)));
    assert_eq!(again.len(), 2);
    assert_eq!(back(&[half], false).len(), 1, "it is done");
}

/// The OSD ended before it heard that the merge was durable, and after the copy was split again.
#[test]
fn copy_that_was_split_after_its_merge_keeps_its_range() {
    let mut story = before_merge(&[US, 1]);
    story.follow(merge_pgs);
    let births = story.holdings.births().clone();
    story.follow(|map| map.pools.get_mut(&1).unwrap().pg_num = 2);
    let intervals = story.stored.iter().map(|(pg, bytes)| (*pg, codec::decode_exact(bytes).unwrap()));
    let records = PgRecords { births, intervals: intervals.collect(), old_births: None };
    story.holdings = Holdings::new(US, 2);
    story.holdings.read_records(records);
    let split = |pg| LoadedPg { merged_through: 9, split_at: 10, ..loaded(pg, 1) };
    story.find(split(PG));
    story.find(split(child(1)));
    story.start();
    let orders = story.orders(true);
    let is_merge = |order: &&PgOrder| matches!(order, PgOrder::Merge { split_bits: 1, .. });
    assert_eq!(orders.iter().filter(is_merge).count(), 1, "{orders:?}");
    assert_eq!(story.holdings.entries[&PG].split_bits, 1);
    assert!(
        !orders.iter().any(|order| matches!(order, PgOrder::Split { .. } | PgOrder::Remove { .. })),
        "{orders:?}"
    );
}

/// Another core made the merge durable, and a loss of power took its map back.
#[test]
fn copy_that_is_merged_ahead_of_its_map_is_not_split() {
    let mut story = before_merge(&[US, 1]);
    let births = story.holdings.births().clone();
    let intervals = story.stored.iter().map(|(pg, bytes)| (*pg, codec::decode_exact(bytes).unwrap()));
    let records = PgRecords { births, intervals: intervals.collect(), old_births: None };
    story.holdings = Holdings::new(US, 2);
    story.holdings.read_records(records);
    story.find(LoadedPg { merged_through: 9, ..loaded(PG, 0) });
    story.start();
    let orders = story.orders(true);
    assert!(!orders.iter().any(|order| matches!(order, PgOrder::Split { .. })), "{orders:?}");
    assert!(orders.iter().all(|order| order.pg().pg != PG), "the copy has more than the PG: {orders:?}");
    let orders = story.next(merge_pgs);
    let orders: Vec<PgOrder> = orders.into_iter().filter(|order| order.pg().pg == PG).collect();
    assert_eq!(orders[0], order_to_merge(None, 9, Some(VERSIONS)), "which the shard has");
    assert_eq!(only(&orders[1..]).since, 9);
}

#[test]
fn source_on_another_core_is_removed() {
    let mut story = before_merge(&[US, 1]);
    let core = story.holdings.entries[&PG].core;
    let other = CoreId(1 - core.0);
    story.holdings.entries.get_mut(&child(1)).unwrap().core = other;
    story.follow(merge_pgs);
    let orders = story.holdings.orders(&story.map, true);
    assert_eq!(orders[&core][0], order_to_merge(None, 9, Some(VERSIONS)));
    assert_eq!(orders[&other], [PgOrder::Remove { pg: child(1).into() }]);
    story.holdings.merged(PG, 9);
    // The PG is made again while its old copy goes.
    let split = |map: &mut OsdMap| map.pools.get_mut(&1).unwrap().pg_num = 2;
    assert_eq!(story.next(split), []);
    assert!(story.holdings.removed(child(1), other));
    let orders = story.orders(true);
    assert!(matches!(&orders[0], PgOrder::Split { .. }), "{orders:?}");
}

#[test]
fn source_without_a_target_here_is_removed() {
    let mut story = before_merge(&[US, 1]);
    story.holdings.entries.remove(&PG);
    let orders = story.next(|map| {
        merge_pgs(map);
        on(map, PG, &[1, 2]);
    });
    assert_eq!(orders, [PgOrder::Remove { pg: child(1).into() }]);
    assert!(story.holdings.births().merges.is_empty());
}

#[test]
fn merge_in_a_gap_of_maps_is_known_or_makes_copies_incomplete() {
    let mut story = before_merge(&[US, 1]);
    let orders = story.after_gap(merge_pgs);
    assert_eq!(orders[0], order_to_merge(Some(child(1)), 18, Some(VERSIONS)));
    // And split again: which part of the objects the copies have is unknown.
    let mut story = before_merge(&[US, 1]);
    let orders = story.after_gap(|map| {
        merge_pgs(map);
        map.pools.get_mut(&1).unwrap().pg_num = 2;
    });
    let merges = orders.iter().filter_map(|order| match order {
        PgOrder::Merge { pg, source: None, split_bits: 1, versions: None, .. } => Some(pg.pg),
        _ => None,
    });
    assert_eq!(merges.collect::<Vec<_>>(), [PG, child(1)]);
}

/// PGs of two pools on four OSDs by upmap, OSDs that go down and come back, splits, merges, skipped epochs, and a map that names
/// another process under our number.
#[test]
fn table_and_fresh_mapping_give_equal_orders() {
    let mut random = Random::from_number(7);
    for round in 0..40 {
        let mut map = Story::new().map;
        let (mut kept, mut fresh) = (Holdings::new(US, 2), Holdings::new(US, 2));
        let mut before: Option<Arc<OsdMap>> = None;
        for _ in 0..60 {
            map.epoch += 1;
            let change = random.below(16);
            random_step(&mut random, &mut map, change);
            let (next, is_us) = (Arc::new(map.clone()), random.below(8) > 0);
            let known = before.clone().filter(|_| random.below(10) > 0);
            fresh.table = PlacementTable::default();
            fresh.named_here.clear();
            if let Some(before) = &before {
                fresh.advance_table(before);
            }
            let step = |holdings: &mut Holdings| {
                holdings.follow(known.as_deref(), &next, 3);
                let records = holdings.take_record_changes();
                let orders = holdings.orders(&next, is_us);
                holdings.check(Some(&next));
                for (core, order) in
                    orders.iter().flat_map(|(core, orders)| orders.iter().map(|o| (*core, o)))
                {
                    match order {
                        PgOrder::Remove { pg } => drop(holdings.removed(pg.pg, core)),
                        PgOrder::Merge { pg, epoch, .. } => holdings.merged(pg.pg, *epoch),
                        _ => {}
                    }
                }
                (orders, records, holdings.births.clone())
            };
            assert_eq!(step(&mut kept), step(&mut fresh), "round {round}, map {}", map.epoch);
            check_entries(&kept, &next);
            before = Some(next);
        }
    }
}

/// Every PG that names us has an entry, and every entry's intervals follow one another without a hole.
fn check_entries(holdings: &Holdings, map: &OsdMap) {
    for (&pool, row) in &map.pools {
        for pg in (0..row.pg_num).map(|seed| PgId { pool, seed }) {
            let placement = placement::map_pg(map, pg);
            let is_named = placement.up.contains(&US) || placement.acting.contains(&US);
            assert!(!is_named || holdings.entries.contains_key(&pg), "{pg} in map {}", map.epoch);
        }
    }
    for (pg, entry) in &holdings.entries {
        let PgIntervals { present, past, .. } = &entry.intervals;
        let starts = past.intervals.iter().map(|i| i.first).skip(1).chain([present.since]);
        for (closed, next) in past.intervals.iter().zip(starts) {
            assert_eq!(closed.last + 1, next, "{pg} in map {}: {past:?}, {present:?}", map.epoch);
        }
    }
}

fn random_step(random: &mut Random, map: &mut OsdMap, change: u64) {
    let pool = 1 + random.below(2) as i64;
    let pg = PgId { pool, seed: random.below(8) as u32 };
    let osd = random.below(4) as i32;
    let other = random.below(4) as i32;
    match change {
        0 => map.osds[osd as usize].state.0 ^= OsdState::UP,
        1 => map.osds[osd as usize].weight = OsdMap::WEIGHT_IN - map.osds[osd as usize].weight,
        2 => {
            map.pools.remove(&pool);
            map.pool_max = map.pool_max.max(pool as i32);
        }
        4 => {
            let Some(row) = map.pools.get_mut(&pool).filter(|row| row.pg_num > 1) else { return };
            (row.pg_num, row.pgp_num) = (row.pg_num - 1, row.pgp_num.min(row.pg_num - 1));
            row.last_pg_merge.source = PgId { pool, seed: row.pg_num };
            row.last_pg_merge.ready_epoch = map.epoch - 1;
        }
        3 => {
            let kind = PoolKind::REPLICATED;
            let new = PgPool { kind, size: 2, min_size: 1, pg_num: 2, pgp_num: 2, ..PgPool::default() };
            let pool = map.pools.entry(pool).or_insert(new);
            pool.pg_num = (pool.pg_num * 2).min(8);
        }
        5 => drop(map.pg_temp.insert(pg, vec![osd])),
        6 => drop(map.pg_temp.pop_first()),
        7 => drop(map.primary_temp.insert(pg, osd)),
        8 => drop(map.primary_temp.pop_first()),
        9 => drop(map.pg_upmap.pop_first()),
        10 => map.osds[osd as usize].info.up_thru = map.epoch,
        11 => drop(map.pools.get_mut(&pool).map(|pool| pool.min_size = 3 - pool.min_size)),
        _ if osd == other => drop(map.pg_upmap.insert(pg, vec![osd])),
        _ => drop(map.pg_upmap.insert(pg, vec![osd, other])),
    }
}
