//! Stories of the snapshot index: each copy has an entry for each snapshot that a head's list names, whatever brought the list.

mod harness;

use bytes::Bytes;
use codec::{Encode, Features};
use harness::cluster::{Cluster, pg_of};
use harness::*;
use osd::ops::SNAPS_ATTR;
use osd::pg::meta::PgProgress;
use osd::pg::snap_index;
use osd::shard::{Input, ScrubWish};
use std::collections::BTreeSet;
use store::{Answer, Change, Collection, ObjectId, ObjectStore, Query, ReadRequest, Transaction};
use wire::types::osd_map::MapFlags;
use wire::types::*;

type Entries = BTreeSet<(u64, String)>;

fn wrote(cluster: &mut Cluster, name: &str, snaps: &[u64], data: &'static [u8]) {
    assert_eq!(cluster.ask_with(name, snaps, vec![write_full(data)]).result, 0, "{name}");
}

fn answers_of(cluster: &mut Cluster, osd: i32, pg: SpgId, object: ObjectId, query: Query) -> Answer {
    let host = cluster.hosts.get_mut(&osd).expect("it runs");
    let request = ReadRequest { collection: Collection::Pg(pg), object, queries: vec![query] };
    host.read_now(request).expect("an answer").pop().expect("an answer")
}

/// The entries of a copy's index.
fn index(cluster: &mut Cluster, osd: i32, pg: SpgId) -> Entries {
    let query = snap_index::query(SnapId(0), None, usize::MAX);
    match answers_of(cluster, osd, pg, ObjectId::pg_meta(pg), query) {
        Answer::OmapList { entries, .. } => {
            let entry = |key: &[u8]| snap_index::decode(key).expect("an entry");
            entries
                .iter()
                .map(|(key, _)| entry(key))
                .map(|(snap, head)| (snap.0, head.name.to_string()))
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

/// The entries that the lists of a copy's heads ask for.
fn wanted(cluster: &mut Cluster, osd: i32, pg: SpgId) -> Entries {
    let list = Query::List { end: HObject::max().into(), max: usize::MAX };
    let Answer::List { objects, .. } = answers_of(cluster, osd, pg, HObject::min().into(), list) else {
        panic!("no listing")
    };
    let mut out = Entries::new();
    for id in objects.into_iter().filter(|id| id.object.snap == SnapId::HEAD) {
        let name = id.object.name.to_string();
        if let Answer::Attr(Some(set)) = answers_of(cluster, osd, pg, id, Query::Attr { name: SNAPS_ATTR }) {
            let set: SnapSet = codec::decode_exact(&set).expect("a list");
            out.extend(snap_index::snaps_of(&set).map(|snap| (snap.0, name.clone())));
        }
    }
    out
}

fn is_indexed(cluster: &Cluster, osd: i32, pg: SpgId) -> bool {
    let copy = cluster.hosts[&osd].shard.copies().find(|copy| copy.id == pg);
    copy.is_some_and(|copy| copy.progress.is_indexed)
}

/// Every copy's index is complete, and has no stray.
fn assert_exact(cluster: &mut Cluster, told: &str) {
    for osd in cluster.hosts.keys().copied().collect::<Vec<_>>() {
        for pg in (0..cluster.pg_num).map(pg_of) {
            assert!(is_indexed(cluster, osd, pg), "{told}: {pg} of osd.{osd}");
            assert_eq!(index(cluster, osd, pg), wanted(cluster, osd, pg), "{told}: {pg} of osd.{osd}");
        }
    }
}

fn trim(cluster: &mut Cluster, snap: u64) {
    cluster.removed_snaps.insert(snap, 1);
    cluster.set_flags(cluster.flags);
    (0..200).for_each(|_| cluster.pass(10));
    for pg in (0..cluster.pg_num).map(pg_of) {
        assert_eq!(cluster.report_of(pg).status.untrimmed_snaps, 0, "snapshot {snap} of {pg}");
    }
}

/// "a" has clones of snapshots 2 and 4 to 6, "b" of 6 and 4, "c" none.
fn with_snapshots(osds: i32) -> Cluster {
    let mut cluster = Cluster::new(osds, (0..osds).collect());
    ["a", "b", "c"].iter().for_each(|name| cluster.put(name, b"one"));
    wrote(&mut cluster, "a", &[2], b"two");
    wrote(&mut cluster, "a", &[6, 5, 4, 2], b"three");
    wrote(&mut cluster, "b", &[6, 4], b"two");
    cluster
}

fn listings(cluster: &Cluster) -> usize {
    cluster.hosts.values().map(|host| host.listings).sum()
}

#[test]
fn index_follows_writes_and_trims_on_every_member() {
    let mut cluster = with_snapshots(3);
    assert_exact(&mut cluster, "clones");
    assert_eq!(index(&mut cluster, 2, pg()).len(), 6);
    let rollback = OsdOp::new(OpCode::ROLLBACK, SnapId(2), Bytes::new());
    assert_eq!(cluster.ask_with("a", &[6, 5, 4, 2], vec![rollback]).result, 0);
    assert_eq!(cluster.ask_with("b", &[7, 6, 4], vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    assert_exact(&mut cluster, "a rollback, and a deletion that clones");
    assert_eq!(index(&mut cluster, 1, pg()).len(), 7);
    for snap in [5, 2, 6, 7, 4] {
        trim(&mut cluster, snap);
        assert_exact(&mut cluster, &format!("the trim of {snap}"));
    }
    for osd in 0..3 {
        assert_eq!(index(&mut cluster, osd, pg()), Entries::new());
        assert_eq!(cluster.stored(osd, "b"), None, "the last clone took the deleted head along");
    }
}

#[test]
fn trim_lists_no_objects() {
    let mut cluster = with_snapshots(2);
    let before = listings(&cluster);
    trim(&mut cluster, 4);
    trim(&mut cluster, 9);
    // Snapshots of one walk that are far apart.
    for snap in [2, 1 << 40, 6] {
        cluster.removed_snaps.insert(snap, 1);
    }
    trim(&mut cluster, 1 << 20);
    assert_eq!(index(&mut cluster, 1, pg()), Entries::from([(5, "a".into())]));
    assert_eq!(listings(&cluster), before);
}

#[test]
fn index_follows_recovery_and_backfill() {
    let mut cluster = with_snapshots(3);
    trim(&mut cluster, 5);
    let mut two = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    wrote(&mut cluster, "b", &[8, 6, 4], b"three");
    wrote(&mut cluster, "c", &[8], b"two");
    let changes = vec![snap_index::add(&ObjectId::pg_meta(pg()), &object("a"), [SnapId(5)])];
    two.submit(u64::MAX, Transaction { collection: Collection::Pg(pg()), changes });
    while two.poll(&mut Vec::new()) {}
    cluster.start(2, two);
    cluster.interval(vec![2, 1, 0], vec![2, 1, 0]);
    cluster.run();
    assert!(cluster.state().starts_with("active+clean"));
    // A stray, as of a trim that a member of an older program's primary took part in.
    let mut left = wanted(&mut cluster, 2, pg());
    assert!(left.insert((5, "a".into())));
    assert_eq!((index(&mut cluster, 2, pg()), is_indexed(&cluster, 2, pg())), (left, true));
    let before = listings(&cluster);
    cluster.removed_snaps = IntervalSet::new();
    cluster.set_flags(0);
    trim(&mut cluster, 5);
    trim(&mut cluster, 8);
    assert_eq!(listings(&cluster), before);
    assert_exact(&mut cluster, "the trims after a recovery");
    // An empty member.
    cluster.kill(0);
    cluster.start(0, memory_store());
    cluster.interval(vec![2, 1, 0], vec![2, 1]);
    cluster.run();
    cluster.pass(60_000);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert!(cluster.state().starts_with("active+clean"));
    assert_exact(&mut cluster, "a backfill");
    let before = listings(&cluster);
    trim(&mut cluster, 4);
    assert_eq!(listings(&cluster), before);
    assert_exact(&mut cluster, "a trim by an index that a backfill made");
}

/// Makes the copy of a stopped OSD one of an older program: without an index.
fn without_index(mut store: store::MemoryStore, progress: &PgProgress) -> store::MemoryStore {
    let meta = ObjectId::pg_meta(pg());
    let progress = PgProgress { is_indexed: false, ..progress.clone() };
    let changes = vec![snap_index::clear(&meta), osd::pg::meta::set_progress(&meta, &progress)];
    store.submit(u64::MAX, Transaction { collection: Collection::Pg(pg()), changes });
    while store.poll(&mut Vec::new()) {}
    store
}

#[test]
fn copies_of_an_older_program_are_trimmed_and_indexed() {
    let mut cluster = with_snapshots(2);
    for osd in 0..2 {
        let copy = cluster.hosts[&osd].shard.copies().next().expect("its copy");
        let progress = copy.progress.clone();
        let store = without_index(cluster.kill(osd), &progress);
        cluster.start(osd, store);
    }
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert!(!is_indexed(&cluster, 0, pg()) && !is_indexed(&cluster, 1, pg()));
    wrote(&mut cluster, "c", &[8], b"two");
    let before = listings(&cluster);
    trim(&mut cluster, 5);
    assert!(listings(&cluster) > before, "the first trim walks");
    assert!(is_indexed(&cluster, 0, pg()));
    assert_eq!(index(&mut cluster, 0, pg()), wanted(&mut cluster, 0, pg()));
    let before = listings(&cluster);
    trim(&mut cluster, 6);
    assert_eq!(listings(&cluster), before);
    // Over a restart, and on the other member, which has not walked.
    let zero = cluster.kill(0);
    cluster.start(0, zero);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert!(is_indexed(&cluster, 0, pg()));
    cluster.interval(vec![1, 0], vec![1, 0]);
    cluster.run();
    assert!(!is_indexed(&cluster, 1, pg()));
    trim(&mut cluster, 4);
    assert_exact(&mut cluster, "walks of both members");
    trim(&mut cluster, 2);
    trim(&mut cluster, 8);
    for osd in 0..2 {
        assert_eq!(wanted(&mut cluster, osd, pg()), Entries::new(), "osd.{osd}");
    }
    assert_eq!(cluster.report().snap_counts.clones, 0);
}

/// An older program writes the header without the mark, and then makes clones that it does not index.
#[test]
fn header_of_an_older_program_has_an_incomplete_index() {
    let progress = PgProgress { is_indexed: true, ..PgProgress::default() };
    let now = progress.to_vec(Features::NONE);
    assert!(codec::decode_exact::<PgProgress>(&now).unwrap().is_indexed);
    // Version 7: one byte less.
    let mut before = now[..now.len() - 1].to_vec();
    before[0] = 7;
    let len = u32::from_le_bytes(before[2..6].try_into().unwrap()) - 1;
    before[2..6].copy_from_slice(&len.to_le_bytes());
    assert!(!codec::decode_exact::<PgProgress>(&before).unwrap().is_indexed);
}

#[test]
fn trims_after_split_and_merge_find_everything() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        cluster.put(name, b"one");
        wrote(&mut cluster, name, &[2], b"two");
        wrote(&mut cluster, name, &[6, 2], b"three");
    }
    cluster.split(2);
    for seed in 0..2 {
        assert!(!is_indexed(&cluster, 0, pg_of(seed)));
        assert_eq!(index(&mut cluster, 0, pg_of(seed)), Entries::new());
    }
    wrote(&mut cluster, "a", &[7, 6, 2], b"four");
    trim(&mut cluster, 2);
    for pg in [0, 1].map(pg_of) {
        assert!(is_indexed(&cluster, 0, pg));
        let (has, wants) = (index(&mut cluster, 0, pg), wanted(&mut cluster, 0, pg));
        assert!(!has.is_empty());
        assert_eq!(has, wants);
    }
    cluster.prepare_merge();
    cluster.merge();
    assert!(!is_indexed(&cluster, 0, pg()));
    trim(&mut cluster, 7);
    assert!(is_indexed(&cluster, 0, pg()));
    let before = listings(&cluster);
    trim(&mut cluster, 6);
    assert_eq!(listings(&cluster), before);
    for osd in 0..2 {
        assert_eq!(wanted(&mut cluster, osd, pg()), Entries::new(), "osd.{osd}");
    }
    assert_eq!((cluster.report().stats.objects, cluster.report().snap_counts.clones), (5, 0));
}

#[test]
fn damaged_index_is_made_again() {
    let mut cluster = with_snapshots(2);
    let mut zero = cluster.kill(0);
    let entries = vec![(Bytes::from_static(b"t\0\0\0\0\0\0\0\x05what"), Bytes::new())];
    let changes = vec![Change::OmapSet { object: ObjectId::pg_meta(pg()), entries }];
    zero.submit(u64::MAX, Transaction { collection: Collection::Pg(pg()), changes });
    while zero.poll(&mut Vec::new()) {}
    cluster.start(0, zero);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.removed_snaps.insert(5, 1);
    cluster.set_flags(0);
    (0..100).for_each(|_| cluster.pass(1_000));
    assert_eq!(cluster.report().status.untrimmed_snaps, 0);
    assert_exact(&mut cluster, "a walk after a damaged index");
}

/// A member dies with a part of a head that has clones, at every moment of its recovery.
#[test]
fn interrupted_recovery_keeps_the_index_complete() {
    for steps in 0..60 {
        let mut cluster = with_snapshots(2);
        let one = cluster.kill(1);
        cluster.interval(vec![0], vec![0]);
        cluster.run();
        wrote(&mut cluster, "a", &[8, 6, 5, 4, 2], b"four");
        wrote(&mut cluster, "c", &[8], b"two");
        cluster.start(1, one);
        cluster.interval(vec![0, 1], vec![0, 1]);
        for _ in 0..steps {
            cluster.step();
        }
        let one = cluster.lose_power(1);
        cluster.interval(vec![0], vec![0]);
        cluster.run();
        cluster.start(1, one);
        cluster.flags = MapFlags::NORECOVER;
        cluster.interval(vec![0, 1], vec![0, 1]);
        cluster.run();
        let (has, wants) = (index(&mut cluster, 1, pg()), wanted(&mut cluster, 1, pg()));
        assert!(has.is_superset(&wants), "after {steps} steps: {has:?} {wants:?}");
        cluster.set_flags(0);
        cluster.pass(5_000);
        cluster.interval(vec![1, 0], vec![1, 0]);
        cluster.run();
        assert_exact(&mut cluster, &format!("after {steps} steps"));
    }
}

/// Changes the index of a running copy.
fn spoil(cluster: &mut Cluster, osd: i32, change: Change) {
    let host = cluster.hosts.get_mut(&osd).expect("it runs");
    host.store.submit(u64::MAX - 1, Transaction { collection: Collection::Pg(pg()), changes: vec![change] });
    host.settle();
}

#[test]
fn scrub_mends_absent_and_stray_entries() {
    for is_deep in [false, true] {
        let mut cluster = with_snapshots(3);
        let meta = ObjectId::pg_meta(pg());
        let heads = ["a", "b", "c", "gone"].map(object);
        spoil(&mut cluster, 0, snap_index::remove(&meta, &heads[0], [SnapId(4), SnapId(2)]));
        spoil(&mut cluster, 0, snap_index::add(&meta, &heads[3], [SnapId(4)]));
        spoil(&mut cluster, 1, snap_index::clear(&meta));
        for snap in 100..500 {
            spoil(&mut cluster, 2, snap_index::add(&meta, &heads[snap as usize % 4], [SnapId(snap)]));
        }
        let wish = ScrubWish { is_deep, is_repair: false, is_asked: true };
        cluster.primary().step(Input::Scrub { pg: pg().pg, wish });
        cluster.run();
        (0..40).for_each(|_| cluster.pass(50));
        assert_eq!(cluster.state(), "active+clean");
        assert_exact(&mut cluster, "a scrub");
    }
}
