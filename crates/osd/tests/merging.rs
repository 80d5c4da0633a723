//! Stories of two PGs that become one: production's shards, memory stores, links that deliver in order or break.

mod harness;

use harness::cluster::{Cluster, pg_of};
use harness::*;
use osd::shard::{Input, MergeState, PgOrder};
use std::sync::Arc;
use store::{Collection, ObjectStore};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn is_source(name: &str) -> bool {
    object(name).hash & 1 == 1
}

/// Two PGs with objects on these OSDs.
fn two_pgs(osds: i32, acting: Vec<i32>) -> Cluster {
    let mut cluster = Cluster::new(osds, acting);
    cluster.put("before", b"both");
    cluster.split(2);
    NAMES.iter().for_each(|name| cluster.put(name, b"old"));
    assert!(NAMES.iter().any(|name| is_source(name)) && NAMES.iter().any(|name| !is_source(name)));
    cluster
}

fn states(cluster: &mut Cluster) -> [String; 2] {
    [0, 1].map(|seed| cluster.report_of(pg_of(seed)).status.state.to_string())
}

/// Every member has each object, and no other collection.
fn check_members(cluster: &mut Cluster, osds: &[i32], data: &[u8]) {
    for osd in osds {
        for name in NAMES {
            assert_eq!(cluster.stored(*osd, name).as_deref(), Some(data), "{name} on osd.{osd}");
        }
        let collections = cluster.hosts[osd].store.collections();
        let pgs: Vec<_> = collections.into_iter().map(|(collection, _)| collection).collect();
        assert_eq!(pgs, [Collection::Pg(pg())], "osd.{osd}");
    }
}

#[test]
fn merge_keeps_objects_requests_and_counts() {
    let mut cluster = two_pgs(3, vec![0, 1, 2]);
    let objects = |cluster: &mut Cluster, seed| cluster.report_of(pg_of(seed)).stats.objects;
    let before = objects(&mut cluster, 0) + objects(&mut cluster, 1);
    let tids: Vec<u64> = NAMES.iter().map(|name| cluster.send(name, vec![write_full(b"new")])).collect();
    cluster.run();
    cluster.prepare_merge();
    assert_eq!(states(&mut cluster), ["clean+premerge+peered"; 2].map(|state| state.to_owned()));
    cluster.merge();
    assert_eq!(cluster.state(), "active+clean");
    check_members(&mut cluster, &[0, 1, 2], b"new");
    assert_eq!(cluster.report().stats.objects, before);
    // The client sends its requests again.
    for (name, tid) in NAMES.iter().zip(tids) {
        let host = cluster.primary();
        host.sent.clear();
        let request = host.request(object(name), vec![write_full(b"twice")]);
        host.resend(1, tid, request);
        cluster.run();
        assert_eq!(cluster.primary().reply(tid).result, 0, "{name}");
        assert_eq!(cluster.get(name), &b"new"[..], "{name}");
    }
    cluster.put("i", b"later");
    assert_eq!(cluster.get("i"), &b"later"[..]);
}

#[test]
fn requests_wait_while_a_merge_is_pending() {
    let mut cluster = two_pgs(2, vec![0, 1]);
    cluster.prepare_merge();
    let tids = NAMES.map(|name| cluster.send(name, vec![write_full(b"new")]));
    cluster.run();
    assert!(tids.iter().all(|tid| cluster.primary().find_reply(*tid).is_none()));
    assert!(matches!(cluster.merge_state, Some(MergeState::Ready { .. })));
    // The attempt ends.
    cluster.is_merge_pending = false;
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(states(&mut cluster), ["active+clean"; 2].map(|state| state.to_owned()));
    cluster.primary().acknowledge_backoffs();
    assert_eq!(cluster.get("a"), &b"old"[..]);
}

/// Each of the two may have the only copy of some write, and a client may be served nowhere else.
#[test]
fn merge_is_not_ready_before_every_member_is() {
    let mut cluster = two_pgs(3, vec![0, 1, 2]);
    cluster.cut = vec![(2, 0)];
    cluster.prepare_merge();
    assert_eq!(cluster.merge_state, Some(MergeState::Waiting), "osd.2 has not activated");
    cluster.cut.clear();
    cluster.reset_links(0, 2);
    cluster.run();
    cluster.look_at_merge();
    assert!(matches!(cluster.merge_state, Some(MergeState::Ready { .. })));
}

#[test]
fn degraded_pgs_do_not_merge() {
    let mut cluster = two_pgs(3, vec![0, 1, 2]);
    cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.prepare_merge();
    assert_eq!(cluster.merge_state, Some(MergeState::Hindered));
}

/// osd.2 was away when the source was written to, and is back with both copies.
#[test]
fn copy_that_missed_writes_of_the_source_is_backfilled() {
    let mut cluster = two_pgs(4, vec![0, 1, 2]);
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1, 3], vec![0, 1, 3]);
    cluster.run();
    NAMES.iter().for_each(|name| cluster.put(name, b"new"));
    cluster.prepare_merge();
    cluster.merge();
    assert_eq!(cluster.state(), "active+clean");
    cluster.start(2, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    check_members(&mut cluster, &[0, 1, 2], b"new");
}

/// The members of the merged PG are gone, and osd.2 has an older copy of the source.
fn left_with_an_old_copy() -> Cluster {
    let mut cluster = two_pgs(4, vec![0, 1, 2]);
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1, 3], vec![0, 1, 3]);
    cluster.run();
    let sources = NAMES.iter().filter(|name| is_source(name));
    sources.for_each(|name| cluster.put(name, b"new"));
    cluster.prepare_merge();
    cluster.merge();
    [0, 1, 3].into_iter().for_each(|osd| drop(cluster.kill(osd)));
    cluster.start(2, store);
    cluster
}

#[test]
fn old_copy_of_the_source_does_not_serve() {
    let mut cluster = left_with_an_old_copy();
    cluster.interval(vec![2], vec![2]);
    cluster.run();
    assert!(cluster.state().contains("down"), "{}", cluster.state());
}

/// As [`old_copy_of_the_source_does_not_serve`], with the bug.
#[cfg(feature = "planted-bugs")]
#[test]
fn merge_that_loses_an_interval_is_seen() {
    use osd::planted::{PlantedBug, plant};
    let mut cluster = left_with_an_old_copy();
    plant(Some(PlantedBug::MergeLosesInterval));
    // The control machine has lost the past.
    cluster.past.intervals.clear();
    cluster.interval(vec![2], vec![2]);
    cluster.past.intervals.clear();
    cluster.publish(false);
    cluster.run();
    plant(None);
    assert!(cluster.state().starts_with("active"), "{}", cluster.state());
    assert!(NAMES.iter().any(|name| cluster.get(name) == b"old"[..]), "acknowledged writes are lost");
}

#[test]
fn merge_interrupted_by_crash_is_repeated_without_loss() {
    let mut cut_short = 0;
    for survivors in 0.. {
        let mut cluster = two_pgs(1, vec![0]);
        cluster.prepare_merge();
        let (versions, epoch) = (cluster.merge_versions(), cluster.epoch + 10);
        let host = cluster.hosts.get_mut(&0).unwrap();
        host.settle();
        let order = PgOrder::Merge {
            pg: pg_of(0),
            source: Some(pg_of(1)),
            split_bits: 0,
            epoch,
            versions: Some(versions),
        };
        host.view.epoch = epoch;
        host.step(Input::Map { view: Arc::new(host.view.clone()), orders: vec![order] });
        if survivors > host.store.uncommitted() {
            break;
        }
        let image = host.store.crash_image(survivors).unwrap();
        let has_source = image.collections().iter().any(|(c, _)| *c == Collection::Pg(pg_of(1)));
        cut_short += u32::from(has_source);
        cluster.kill(0);
        cluster.start(0, image);
        cluster.merge();
        assert_eq!(cluster.state(), "active+clean", "after {survivors} transactions of the merge");
        check_members(&mut cluster, &[0], b"old");
        let bits: Vec<u8> = cluster.hosts[&0].store.collections().into_iter().map(|(_, bits)| bits).collect();
        assert_eq!(bits, [0], "after {survivors} transactions of the merge");
        for name in NAMES {
            assert_eq!(cluster.get(name), &b"old"[..], "{name} after {survivors} transactions of the merge");
            cluster.put(name, b"new");
        }
        check_members(&mut cluster, &[0], b"new");
    }
    assert_eq!(cut_short, 2, "with none and one of the two transactions");
}

/// The next start then takes it for a copy of all objects, as the others do.
#[test]
fn merge_without_a_source_widens_the_stored_range() {
    let mut cluster = two_pgs(1, vec![0]);
    let epoch = cluster.epoch + 10;
    let host = cluster.hosts.get_mut(&0).unwrap();
    let remove = PgOrder::Remove { pg: pg_of(1) };
    host.step(Input::Map { view: Arc::new(host.view.clone()), orders: vec![remove] });
    host.settle();
    assert_eq!(host.store.collections(), [(Collection::Pg(pg_of(0)), 1)]);
    let merge = PgOrder::Merge { pg: pg_of(0), source: None, split_bits: 0, epoch, versions: None };
    host.view.epoch = epoch;
    host.step(Input::Map { view: Arc::new(host.view.clone()), orders: vec![merge] });
    host.settle();
    assert_eq!(host.store.collections(), [(Collection::Pg(pg_of(0)), 0)]);
}

#[test]
fn merged_pg_splits_again() {
    let mut cluster = two_pgs(3, vec![0, 1, 2]);
    cluster.prepare_merge();
    cluster.merge();
    cluster.split(2);
    NAMES.iter().for_each(|name| cluster.put(name, b"new"));
    assert_eq!(states(&mut cluster), ["active+clean"; 2].map(|state| state.to_owned()));
    cluster.prepare_merge();
    cluster.merge();
    check_members(&mut cluster, &[0, 1, 2], b"new");
}

/// The logs of both PGs are read before they are joined.
#[test]
fn pgs_at_rest_merge() {
    let mut cluster = two_pgs(2, vec![0, 1]);
    cluster.prepare_merge();
    let versions = cluster.merge_versions();
    cluster.pass(60_000);
    cluster.look_at_merge();
    assert_eq!(cluster.merge_versions(), versions);
    cluster.merge();
    assert_eq!(cluster.state(), "active+clean");
    check_members(&mut cluster, &[0, 1], b"old");
}

/// An OSD that was away gets both maps at once. The merge waits for the logs, and the split behind it does not take the source's
/// copy for the remains of a split.
#[test]
fn split_behind_a_merge_at_rest_keeps_objects() {
    let mut cluster = two_pgs(1, vec![0]);
    cluster.prepare_merge();
    let versions = cluster.merge_versions();
    let store = cluster.kill(0);
    cluster.start(0, store);
    let epoch = cluster.epoch + 10;
    cluster.is_merge_pending = false;
    cluster.epoch += 20;
    let view = cluster.view();
    let host = cluster.hosts.get_mut(&0).unwrap();
    host.settle();
    host.view = view;
    let children = vec![(pg_of(1), 1)];
    let orders = vec![
        PgOrder::Merge {
            pg: pg_of(0),
            source: Some(pg_of(1)),
            split_bits: 0,
            epoch,
            versions: Some(versions),
        },
        PgOrder::Split { pg: pg_of(0), split_bits: 1, children, epoch: epoch + 10 },
        PgOrder::alone(pg_of(0), 1, epoch + 10),
        PgOrder::alone(pg_of(1), 1, epoch + 10),
    ];
    host.step(Input::Map { view: Arc::new(host.view.clone()), orders });
    cluster.run();
    assert_eq!(states(&mut cluster), ["active+clean"; 2].map(|state| state.to_owned()));
    for name in NAMES {
        assert_eq!(cluster.get(name), &b"old"[..], "{name}");
    }
}
