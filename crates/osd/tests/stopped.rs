//! Stories of copies that an operator imported, completed or removed while their OSDs were stopped.

mod harness;

use bytes::Bytes;
use harness::cluster::Cluster;
use harness::*;
use osd::control::{CopyStart, CopyStarts};
use osd::pg::meta::{self, Stored};
use osd::shard::{Input, PgOrder};
use osd::stopped::{self, Daemon, MetaRecords, PgCopy};
use std::sync::Arc;
use store::{Answer, Change, Collection, Completion, ObjectId, ObjectStore, Transaction};
use wire::types::*;

/// The store of an OSD, as an operator's import has it on another one.
fn imported(mut store: store::MemoryStore, life: StoreLife) -> store::MemoryStore {
    edit_meta(&mut store, |records| {
        let Stored { mut history, progress, .. } = records;
        history.imported = life;
        meta::set_history(&ObjectId::pg_meta(pg()), &history, &progress).into()
    });
    store
}

fn edit_meta(store: &mut store::MemoryStore, edit: impl FnOnce(Stored) -> Vec<Change>) {
    let collection = Collection::Pg(pg());
    let (records, _) = MetaRecords::from_answers(ask_meta(store)).unwrap();
    let changes = edit(Stored::from_records(&records.header, records.entries, records.log).unwrap());
    store.submit(u64::MAX, Transaction { collection, changes });
    while store.poll(&mut Vec::new()) {}
}

fn ask_meta(store: &mut store::MemoryStore) -> Vec<Answer> {
    store.read(u64::MAX, PgCopy::request(pg()));
    let mut done = Vec::new();
    loop {
        store.poll(&mut done);
        if let Some(at) = done.iter().position(|done| matches!(done, Completion::Read { tag: u64::MAX, .. }))
        {
            let Completion::Read { answers, .. } = done.remove(at) else { unreachable!() };
            return answers.unwrap();
        }
    }
}

/// A store as it is now, while its OSD goes on.
fn image(store: &store::MemoryStore) -> store::MemoryStore {
    let mut bytes = Vec::new();
    store.save(&mut bytes).unwrap();
    store::MemoryStore::load(store::memory::Config::with_total(1 << 30), &mut &bytes[..]).unwrap()
}

/// OSD 0 wrote alone after OSD 1 had died, and its host is dead. Its copy is on OSD 3, which the map does not name.
#[test]
fn imported_copy_brings_a_down_pg_back() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"one");
    cluster.put("b", b"kept");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"two");
    let life = StoreLife { osd: 0, first: 1, last: cluster.epoch };
    let zero = imported(cluster.kill(0), life);
    cluster.interval(vec![], vec![]);
    cluster.start(1, one);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    assert_eq!(cluster.state(), "down");
    cluster.start(3, zero);
    cluster.publish(false);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"two"[..]);
    assert_eq!(cluster.get("b"), &b"kept"[..]);
    cluster.pass(10_000);
    assert!(cluster.state().starts_with("active"), "{}", cluster.state());
    assert_eq!(cluster.stored(1, "a").as_deref(), Some(&b"two"[..]));
}

/// The exported store ran again afterwards: the export has none of the writes of that time.
#[test]
fn older_export_is_no_authority() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"one");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"two");
    let zero = cluster.kill(0);
    let old = imported(image(&zero), StoreLife { osd: 0, first: 1, last: cluster.epoch });
    cluster.interval(vec![], vec![]);
    cluster.start(0, zero);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"three");
    cluster.kill(0);
    cluster.interval(vec![], vec![]);
    cluster.start(1, one);
    cluster.start(3, old);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    assert_eq!(cluster.state(), "down");
    assert_eq!(cluster.report().status.blocked_by, [0]);
}

/// A store whose copy was removed or imported has no claim on intervals that its OSD was in.
#[test]
fn removed_copy_blocks_the_intervals_of_its_osd() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"one");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"two");
    cluster.kill(0);
    let start = CopyStart { since: cluster.epoch + 1, split_bits: 0 };
    cluster.interval(vec![], vec![]);
    cluster.start(0, memory_store());
    cluster.start(1, one);
    cluster.copy_starts = [(0, CopyStarts([(pg().pg, start)].into()))].into();
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    assert_eq!(cluster.state(), "down");
    assert_eq!(cluster.report().status.blocked_by, [0]);
}

/// Marks the partial copy in the store of an OSD whose newest map is `epoch`.
fn complete(store: &mut store::MemoryStore, epoch: Epoch) {
    let map = OsdMap { epoch, ..OsdMap::default() };
    let entries = vec![(Bytes::from_static(b"full"), Bytes::from(map.to_canonical().0))];
    let daemon = Daemon::from_answers(vec![Answer::OmapList { entries, more: false }]).unwrap();
    let copy = PgCopy::from_answers(pg(), 0, ask_meta(store)).unwrap();
    assert!(!copy.is_complete());
    let (completion, transaction) =
        stopped::complete(copy, &daemon, 3000, Some(stopped::Held::default())).unwrap();
    assert!(completion.was_partial);
    store.submit(u64::MAX, transaction);
    while store.poll(&mut Vec::new()) {}
}

/// OSD 0 has objects that its target OSD 1 never got, and wrote alone in later maps. OSD 1 is completed, OSD 0 lost, and
/// then its old disk comes back.
#[test]
fn old_primary_of_a_completed_pg_is_backfilled() {
    for up in [vec![1, 0], vec![0, 1]] {
        let mut cluster = Cluster::new(2, vec![0]);
        cluster.put("a", b"lost");
        cluster.set_flags(osd_map::MapFlags::NOBACKFILL | osd_map::MapFlags::NOREBALANCE);
        cluster.interval(vec![1], vec![0]);
        cluster.run();
        cluster.put("b", b"lost, too");
        let epoch = cluster.epoch;
        let mut one = cluster.kill(1);
        cluster.interval(vec![0], vec![0]);
        cluster.run();
        for name in ["c", "d", "e"] {
            cluster.put(name, b"alone");
        }
        let zero = cluster.kill(0);
        cluster.interval(vec![], vec![]);
        cluster.set_flags(0);
        complete(&mut one, epoch);
        cluster.start(1, one);
        cluster.interval(vec![1], vec![1]);
        cluster.declare_lost(0);
        cluster.run();
        cluster.put("f", b"new");
        cluster.start(0, zero);
        cluster.interval(up.clone(), up.clone());
        cluster.run();
        cluster.pass(60_000);
        for name in ["a", "b", "c", "d", "e", "f"] {
            let stored = cluster.stored(1, name);
            assert_eq!(stored.is_some(), name == "f", "{name}, {up:?}");
            assert_eq!(cluster.stored(0, name), stored, "{name}, {up:?}");
        }
        assert_eq!(cluster.get("f"), &b"new"[..]);
    }
}

/// OSD 1 is a backfill's target when OSD 0, which alone has the objects, is gone for good.
#[test]
fn completed_copy_makes_its_pg_active() {
    let mut cluster = Cluster::new(2, vec![0]);
    cluster.put("a", b"lost");
    cluster.set_flags(osd_map::MapFlags::NOBACKFILL | osd_map::MapFlags::NOREBALANCE);
    cluster.interval(vec![1], vec![0]);
    cluster.run();
    cluster.put("b", b"lost, too");
    cluster.kill(0);
    cluster.set_flags(0);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    assert_eq!(cluster.state(), "down");
    let mut store = cluster.kill(1);
    let epoch = cluster.epoch;
    complete(&mut store, epoch);
    cluster.interval(vec![], vec![]);
    cluster.start(1, store);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.get("a"), &b""[..]);
    cluster.put("a", b"new");
    assert_eq!(cluster.get("a"), &b"new"[..]);
}

/// The process dies after the first objects of a copy were removed.
#[test]
fn interrupted_removal_leaves_an_incomplete_copy() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    for name in ["a", "b", "c"] {
        cluster.put(name, b"data");
    }
    let host = cluster.hosts.get_mut(&1).unwrap();
    let view = Arc::new(host.view.clone());
    host.step(Input::Map { view, orders: vec![PgOrder::Remove { pg: pg() }] });
    // Before the first object is removed, the copy says that it has none.
    let copy = PgCopy::from_answers(pg(), 0, ask_meta(&mut host.store)).unwrap();
    assert!(!copy.is_complete());
}
