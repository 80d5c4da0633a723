//! Stories of snapshots: clones, whiteouts, rollbacks and trims of objects on several OSDs.

mod harness;

use bytes::Bytes;
use harness::cluster::Cluster;
use harness::*;
use machine::Machine;
use osd::errno::Errno;
use osd::shard::Input;
use std::time::Duration;
use wire::types::*;

fn at_snap(cluster: &mut Cluster, name: &str, snap: u64) -> Result<Bytes, i32> {
    let reply = cluster.ask_snap(name, snap, vec![read(0, 0)]);
    if reply.result < 0 { Err(reply.result) } else { Ok(output(&reply, 0)) }
}

fn wrote(cluster: &mut Cluster, name: &str, snaps: &[u64], data: &'static [u8]) {
    assert_eq!(cluster.ask_with(name, snaps, vec![write_full(data)]).result, 0, "{name}");
}

fn list_snaps(cluster: &mut Cluster, name: &str) -> Result<SnapList, i32> {
    let reply = cluster.ask_snap(name, SnapId::DIR.0, vec![OsdOp::bare(OpCode::LIST_SNAPS)]);
    if reply.result < 0 {
        return Err(reply.result);
    }
    Ok(codec::decode_exact(&output(&reply, 0)).expect("a list"))
}

fn clones(cluster: &mut Cluster, name: &str) -> Vec<u64> {
    list_snaps(cluster, name).expect("a list").clones.iter().map(|clone| clone.clone.0).collect()
}

fn rollback(snap: u64) -> OsdOp {
    OsdOp::new(OpCode::ROLLBACK, SnapId(snap), Bytes::new())
}

const NOENT: i32 = -2;
const HEAD: u64 = u64::MAX - 1;

/// "one" under no snapshot, "two" after snapshot 2, "three" after snapshot 4.
fn two_clones(osds: i32) -> Cluster {
    let mut cluster = Cluster::new(osds, (0..osds).collect());
    cluster.put("a", b"one");
    wrote(&mut cluster, "a", &[2], b"two");
    wrote(&mut cluster, "a", &[4, 2], b"three");
    cluster
}

#[test]
fn snapshot_keeps_contents_on_every_member() {
    let mut cluster = two_clones(3);
    let contents = [(2, "one"), (4, "two"), (5, "three"), (HEAD, "three")];
    for (snap, want) in contents {
        assert_eq!(at_snap(&mut cluster, "a", snap), Ok(Bytes::from(want)), "{snap}");
    }
    assert_eq!(at_snap(&mut cluster, "a", 3), Err(NOENT), "the clone does not name it");
    for osd in 0..3 {
        assert_eq!(cluster.stored_clone(osd, "a", 2).as_deref(), Some(&b"one"[..]), "osd.{osd}");
        assert_eq!(cluster.stored_clone(osd, "a", 4).as_deref(), Some(&b"two"[..]), "osd.{osd}");
    }
    let list = list_snaps(&mut cluster, "a").unwrap();
    let rows: Vec<_> = list.clones.iter().map(|c| (c.clone.0, c.snaps.len(), c.size)).collect();
    assert_eq!((rows, list.seq), (vec![(2, 1, 3), (4, 1, 3), (HEAD, 0, 5)], SnapId(4)));
    let listing = cluster.send_listing();
    cluster.run();
    assert_eq!(cluster.listed(listing), ["a"]);
    assert_eq!(cluster.report().stats.objects, 3);
}

#[test]
fn deleted_head_with_clones_is_whiteout() {
    let mut cluster = two_clones(2);
    assert_eq!(cluster.ask_with("a", &[4, 2], vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, NOENT);
    assert_eq!(cluster.ask_with("a", &[4, 2], vec![OsdOp::bare(OpCode::DELETE)]).result, NOENT);
    assert_eq!(at_snap(&mut cluster, "a", 5), Err(NOENT));
    assert_eq!(at_snap(&mut cluster, "a", 4), Ok(Bytes::from("two")));
    assert_eq!(clones(&mut cluster, "a"), [2, 4]);
    let exclusive = OsdOp { flags: OpFlags::EXCL, ..OsdOp::bare(OpCode::CREATE) };
    assert_eq!(cluster.ask_with("a", &[4, 2], vec![exclusive]).result, 0);
    assert_eq!(cluster.get("a"), "");
    assert_eq!(clones(&mut cluster, "a"), [2, 4, HEAD]);
    assert_eq!(cluster.report().stats.objects, 3);
}

#[test]
fn delete_under_new_snapshot_keeps_contents() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"one");
    assert_eq!(cluster.ask_with("a", &[7], vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    assert_eq!(at_snap(&mut cluster, "a", 7), Ok(Bytes::from("one")));
    assert_eq!(cluster.get("a"), "");
    assert_eq!(clones(&mut cluster, "a"), [7]);
}

#[test]
fn rollback_returns_data_and_attributes() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    let attr = |value: &'static [u8]| OsdOp::xattr(OpCode::SETXATTR, "x", value);
    assert_eq!(cluster.ask("a", vec![write_full(b"one"), attr(b"1")]).result, 0);
    assert_eq!(cluster.ask_with("a", &[2], vec![write_full(b"twenty"), attr(b"2")]).result, 0);
    assert_eq!(cluster.ask_with("a", &[2], vec![rollback(2)]).result, 0);
    assert_eq!(cluster.get("a"), "one");
    let found = cluster.ask("a", vec![OsdOp::xattr(OpCode::GETXATTR, "x", b"")]);
    assert_eq!(output(&found, 0), "1");
    for osd in 0..2 {
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"one"[..]));
    }
    assert_eq!(clones(&mut cluster, "a"), [2, HEAD]);
    // To a snapshot in which it did not exist.
    wrote(&mut cluster, "b", &[2], b"new");
    assert_eq!(cluster.ask_with("b", &[2], vec![rollback(2)]).result, 0);
    assert_eq!(cluster.ask("b", vec![read(0, 0)]).result, NOENT);
    // Of a deleted head.
    assert_eq!(cluster.ask_with("a", &[2], vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    assert_eq!(cluster.ask_with("a", &[2], vec![rollback(2)]).result, 0);
    assert_eq!(cluster.get("a"), "one");
}

#[test]
fn old_or_unordered_context_is_refused() {
    let mut cluster = two_clones(2);
    let mut request = cluster.primary().request(object("a"), vec![write_full(b"late")]);
    request.flags |= OsdFlags::ORDERSNAP;
    (request.snap_seq, request.snaps) = (SnapId(2), vec![SnapId(2)]);
    assert_eq!(cluster.ask_request(request.clone()).result, Errno::OLDSNAPC.result());
    request.snap_seq = SnapId(4);
    request.snaps = vec![SnapId(2), SnapId(4)];
    assert_eq!(cluster.ask_request(request.clone()).result, Errno::INVAL.result());
    request.snaps.reverse();
    assert_eq!(cluster.ask_request(request).result, 0);
    let write_to_snap = cluster.ask_snap("a", 2, vec![write_full(b"no")]);
    assert_eq!(write_to_snap.result, Errno::INVAL.result());
}

#[test]
fn clones_survive_failover_and_recovery() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    wrote(&mut cluster, "a", &[2], b"two");
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    wrote(&mut cluster, "a", &[4, 2], b"three");
    cluster.put("b", b"head");
    wrote(&mut cluster, "b", &[4, 2], b"later");
    cluster.start(2, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    cluster.interval(vec![2, 1], vec![2, 1]);
    cluster.run();
    for (name, snap, want) in [("a", 2, "one"), ("a", 4, "two"), ("b", 4, "head"), ("b", HEAD, "later")] {
        assert_eq!(at_snap(&mut cluster, name, snap), Ok(Bytes::from(want)), "{name} {snap}");
    }
    assert_eq!(clones(&mut cluster, "a"), [2, 4, HEAD]);
}

#[test]
fn clones_are_backfilled_to_a_new_member() {
    let mut cluster = two_clones(3);
    cluster.kill(2);
    cluster.start(2, memory_store());
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.stored_clone(2, "a", 2).as_deref(), Some(&b"one"[..]));
    assert_eq!(cluster.stored_clone(2, "a", 4).as_deref(), Some(&b"two"[..]));
}

#[test]
fn removed_snapshots_are_trimmed_from_every_member() {
    let mut cluster = two_clones(2);
    assert_eq!(cluster.ask_with("a", &[4, 2], vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    cluster.put("plain", b"stays");
    cluster.removed_snaps.insert(2, 1);
    let (up, acting) = (cluster.interval.up.clone(), cluster.interval.acting.clone());
    cluster.interval(up.clone(), acting.clone());
    cluster.run();
    for _ in 0..200 {
        cluster.pass(10);
    }
    for osd in 0..2 {
        assert_eq!(cluster.stored_clone(osd, "a", 2), None, "osd.{osd}");
        assert_eq!(cluster.stored_clone(osd, "a", 4).as_deref(), Some(&b"two"[..]), "osd.{osd}");
    }
    assert_eq!(clones(&mut cluster, "a"), [4]);
    assert_eq!(at_snap(&mut cluster, "a", 2), Err(NOENT));
    let report = cluster.report();
    assert_eq!(report.status.purged_snaps, IntervalSet::of(2, 1));
    assert_eq!((report.status.untrimmed_snaps, report.stats.objects), (0, 3));
    // The last clone takes the deleted head along.
    cluster.removed_snaps.insert(4, 1);
    cluster.interval(up, acting);
    cluster.run();
    for _ in 0..200 {
        cluster.pass(10);
    }
    assert_eq!(list_snaps(&mut cluster, "a"), Err(NOENT));
    for osd in 0..2 {
        assert_eq!((cluster.stored_clone(osd, "a", 4), cluster.stored(osd, "a")), (None, None), "osd.{osd}");
    }
    let report = cluster.report();
    assert_eq!((report.stats.objects, report.stats.bytes), (1, 5));
    assert_eq!(cluster.state(), "active+clean");
}

/// Objects, clones and whiteouts, as the primary counts them.
fn counts(cluster: &mut Cluster) -> (i64, i64, i64) {
    let report = cluster.report();
    (report.stats.objects, report.snap_counts.clones, report.snap_counts.whiteouts)
}

/// Removes snapshots, and waits for the trims.
fn trim(cluster: &mut Cluster, snap: u64) {
    cluster.removed_snaps.insert(snap, 1);
    let (up, acting) = (cluster.interval.up.clone(), cluster.interval.acting.clone());
    cluster.interval(up, acting);
    cluster.run();
    for _ in 0..200 {
        cluster.pass(10);
    }
}

#[test]
fn clones_and_whiteouts_are_counted_through_every_change() {
    let mut cluster = two_clones(3);
    cluster.put("plain", b"stays");
    assert_eq!(counts(&mut cluster), (4, 2, 0));
    let context = &[4, 2];
    assert_eq!(cluster.ask_with("a", context, vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    assert_eq!(counts(&mut cluster), (4, 2, 1));
    assert_eq!(cluster.ask_with("a", context, vec![OsdOp::bare(OpCode::DELETE)]).result, NOENT);
    assert_eq!(counts(&mut cluster), (4, 2, 1), "a second delete");
    assert_eq!(cluster.ask_with("a", context, vec![rollback(2)]).result, 0);
    assert_eq!(counts(&mut cluster), (4, 2, 0), "the rollback revived it");
    assert_eq!(cluster.ask_with("a", &[6, 4, 2], vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    assert_eq!(counts(&mut cluster), (5, 3, 1), "a delete that clones");
    wrote(&mut cluster, "a", &[6, 4, 2], b"again");
    assert_eq!(counts(&mut cluster), (5, 3, 0));
    assert_eq!(cluster.ask_with("a", &[6, 4, 2], vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    // A failover, and the trims under another primary.
    cluster.interval(vec![1, 0, 2], vec![1, 0, 2]);
    cluster.run();
    assert_eq!(counts(&mut cluster), (5, 3, 1));
    trim(&mut cluster, 4);
    assert_eq!(counts(&mut cluster), (4, 2, 1));
    trim(&mut cluster, 2);
    trim(&mut cluster, 6);
    assert_eq!(counts(&mut cluster), (1, 0, 0), "the last clone took the whiteout along");
}

#[test]
fn counts_of_clones_follow_recovery_backfill_split_and_merge() {
    let mut cluster = Cluster::new(3, vec![0, 1]);
    for name in ["a", "b", "c", "d"] {
        cluster.put(name, b"one");
        wrote(&mut cluster, name, &[2], b"two");
    }
    assert_eq!(cluster.ask_with("b", &[2], vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    // Recovery: a member that slept becomes primary.
    let store = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    wrote(&mut cluster, "c", &[4, 2], b"three");
    assert_eq!(counts(&mut cluster), (9, 5, 1));
    cluster.start(1, store);
    cluster.interval(vec![1, 0], vec![1, 0]);
    cluster.run();
    assert_eq!((cluster.state().as_str(), counts(&mut cluster)), ("active+clean", (9, 5, 1)));
    // Backfill of a member that knew nothing, which then is primary.
    cluster.interval(vec![2, 1], vec![1, 0]);
    cluster.run();
    cluster.interval(vec![2, 1], vec![2, 1]);
    cluster.run();
    assert_eq!(counts(&mut cluster), (9, 5, 1));
    cluster.split(2);
    let part = |cluster: &mut Cluster, seed| {
        let report = cluster.report_of(harness::cluster::pg_of(seed));
        [report.stats.objects, report.snap_counts.clones, report.snap_counts.whiteouts]
    };
    let (one, other) = (part(&mut cluster, 0), part(&mut cluster, 1));
    assert_eq!([one[0] + other[0], one[1] + other[1], one[2] + other[2]], [9, 5, 1]);
    assert!(other[1] > 0, "{other:?}");
    cluster.prepare_merge();
    cluster.merge();
    assert_eq!((cluster.state().as_str(), counts(&mut cluster)), ("active+clean", (9, 5, 1)));
}

#[test]
fn log_entry_of_a_clone_names_its_snapshots() {
    let mut cluster = two_clones(2);
    wrote(&mut cluster, "a", &[7, 6, 4, 2], b"four");
    for osd in 0..2 {
        let host = cluster.hosts.get_mut(&osd).expect("it runs");
        let copy = host.shard.copies().find(|copy| copy.id == pg()).expect("the PG is there");
        let clones = copy.log.entries().filter(|entry| entry.object.snap < SnapId::HEAD);
        let snaps: Vec<Vec<u64>> =
            clones.map(|entry| entry.snaps.iter().map(|snap| snap.0).collect()).collect();
        assert_eq!(snaps, [vec![2], vec![4], vec![7, 6]], "osd.{osd}");
    }
    // Over a restart, and by the log that another member sends.
    let store = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    wrote(&mut cluster, "a", &[9, 7, 6, 4, 2], b"five");
    cluster.start(1, store);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    let host = cluster.hosts.get_mut(&1).expect("it runs");
    let copy = host.shard.copies().find(|copy| copy.id == pg()).expect("the PG is there");
    let last = copy.log.entries().rev().find(|entry| entry.object.snap < SnapId::HEAD);
    assert_eq!(last.map(|entry| entry.snaps.to_vec()), Some(vec![SnapId(9)]));
}

/// A map that says nothing new of the pool's queue wakes no PG.
#[test]
fn map_without_newly_removed_snapshots_arms_no_trim() {
    let mut cluster = two_clones(1);
    cluster.removed_snaps.insert(2, 1);
    cluster.set_flags(0);
    cluster.run();
    // The first step reads, and the store does not answer.
    cluster.stalled.insert(0);
    let host = cluster.primary();
    host.now = host.now + Duration::from_millis(10);
    host.step(Input::Deadline);
    let deadline = cluster.primary().shard.next_deadline();
    cluster.set_flags(0);
    assert_eq!(cluster.primary().shard.next_deadline(), deadline);
    cluster.stalled.clear();
    (0..200).for_each(|_| cluster.pass(10));
    assert_eq!(clones(&mut cluster, "a"), [4, HEAD]);
}

#[test]
fn snapshot_that_is_queued_again_is_trimmed_again() {
    let mut cluster = two_clones(2);
    trim(&mut cluster, 2);
    assert_eq!(cluster.report().status.purged_snaps, IntervalSet::of(2, 1));
    // All PGs have purged it.
    cluster.removed_snaps = IntervalSet::new();
    cluster.set_flags(0);
    cluster.run();
    assert_eq!(cluster.report().status.purged_snaps, IntervalSet::new());
    cluster.removed_snaps.insert(2, 1);
    cluster.set_flags(0);
    assert_eq!(cluster.report().status.untrimmed_snaps, 1);
    (0..200).for_each(|_| cluster.pass(10));
    assert_eq!(cluster.report().status.purged_snaps, IntervalSet::of(2, 1));
}
