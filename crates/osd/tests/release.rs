//! Stories of copies that cannot be read: they are replaced without a person, and kept while they may be needed.

mod harness;

use harness::cluster::{Cluster, pg_of, without_records};
use harness::*;
use osd::pg::PgPhase;
use osd::shard::{Input, PgOrder};
use osd_map::MapFlags;
use std::time::Duration;
use store::{Collection, MemoryStore, ObjectStore};
use wire::types::*;

/// Three OSDs with three objects. The copy of one of them cannot be read, and is kept until [`release`].
fn with_unreadable(osd: i32) -> Cluster {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    ["a", "b", "c"].into_iter().for_each(|name| cluster.put(name, b"kept"));
    cluster.flags = MapFlags::NOBACKFILL;
    restart_unreadable(&mut cluster, osd);
    cluster
}

/// The OSD starts with its store, and without the PG's records.
fn restart_unreadable(cluster: &mut Cluster, osd: i32) {
    let store = without_records(cluster.kill(osd));
    start_again(cluster, osd, store);
}

/// The OSD was down for an interval.
fn start_again(cluster: &mut Cluster, osd: i32, store: MemoryStore) {
    let all = cluster.interval.up.clone();
    let rest: Vec<i32> = all.iter().copied().filter(|other| *other != osd).collect();
    cluster.interval(rest.clone(), rest);
    cluster.run();
    cluster.start(osd, store);
    cluster.interval(with(all, osd), with(cluster.interval.acting.clone(), osd));
    cluster.run();
}

fn with(mut osds: Vec<i32>, osd: i32) -> Vec<i32> {
    if !osds.contains(&osd) {
        osds.push(osd);
    }
    osds
}

/// Backfill may go on.
fn release(cluster: &mut Cluster) {
    cluster.set_flags(0);
    cluster.pass(5_000);
    cluster.pass(5_000);
    cluster.pass(5_000);
}

fn phase(cluster: &Cluster, osd: i32) -> Option<PgPhase> {
    cluster.hosts[&osd].shard.copies().find(|copy| copy.id == pg()).map(|copy| copy.phase)
}

#[test]
fn unreadable_copy_is_replaced() {
    for osd in 0..3 {
        let mut cluster = with_unreadable(osd);
        assert_eq!(phase(&cluster, osd), Some(PgPhase::Unreadable));
        cluster.put("d", b"new");
        release(&mut cluster);
        assert_eq!(cluster.state(), "active+clean", "osd.{osd}");
        assert_eq!(cluster.releases, [(osd, pg())]);
        assert_eq!(cluster.interval.acting, cluster.interval.up);
        for (name, data) in [("a", "kept"), ("b", "kept"), ("c", "kept"), ("d", "new")] {
            assert_eq!(cluster.stored(osd, name).as_deref(), Some(data.as_bytes()), "{name} on osd.{osd}");
        }
        // The copy is one to rely on.
        (0..3).filter(|other| *other != osd).for_each(|other| drop(cluster.kill(other)));
        cluster.interval(vec![osd], vec![osd]);
        cluster.run();
        assert_eq!((cluster.get("a"), cluster.get("d")), ("kept".into(), "new".into()));
    }
}

#[test]
fn log_that_rots_at_rest_is_replaced() {
    for osd in 0..3 {
        let mut cluster = Cluster::new(3, vec![0, 1, 2]);
        cluster.put("a", b"kept");
        cluster.pass(11_000);
        cluster.pass(11_000);
        cluster.hosts.get_mut(&osd).unwrap().bad_log = Some(pg());
        cluster.send("b", vec![write_full(b"new")]);
        cluster.run();
        cluster.hosts.values_mut().for_each(Host::acknowledge_backoffs);
        cluster.run();
        release(&mut cluster);
        assert_eq!((cluster.state().as_str(), cluster.releases.len()), ("active+clean", 1), "osd.{osd}");
        cluster.put("b", b"newer");
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"kept"[..]));
        assert_eq!(cluster.stored(osd, "b").as_deref(), Some(&b"newer"[..]));
    }
}

/// The statements that release the copy, and that report the new one, are lost with their links.
#[test]
fn lost_statements_are_repeated() {
    let mut cluster = with_unreadable(2);
    cluster.cut = (0..2).flat_map(|osd| [(osd, 2), (2, osd)]).collect();
    release(&mut cluster);
    assert!(cluster.releases.is_empty());
    cluster.cut.retain(|(from, _)| *from == 2);
    cluster.pass(5_000);
    assert_eq!(phase(&cluster, 2), Some(PgPhase::Replica), "the primary has not heard of the new copy");
    assert!(cluster.state().contains("inconsistent"), "{}", cluster.state());
    cluster.cut.clear();
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn copy_stays_while_fewer_than_min_size_are_whole() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.interval.min_size = 2;
    cluster.put("a", b"kept");
    let one = cluster.kill(1);
    cluster.interval(vec![0, 2], vec![0, 2]);
    cluster.run();
    restart_unreadable(&mut cluster, 2);
    release(&mut cluster);
    assert_eq!(cluster.state(), "undersized+degraded+remapped+inconsistent+peered");
    assert_eq!((cluster.stored(2, "a"), cluster.releases.len()), (Some("kept".into()), 0));
    // osd.1 has a new disk: as long as its copy is not whole, the other one stays.
    cluster.start(1, memory_store());
    cluster.flags = MapFlags::NOBACKFILL;
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.releases.len(), 0);
    cluster.kill(1);
    cluster.flags = 0;
    cluster.interval(vec![0, 2], vec![0, 2]);
    cluster.run();
    cluster.start(1, one);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!((cluster.state().as_str(), cluster.releases.len()), ("active+clean", 1));
}

/// osd.0 alone has "n", and cannot read its copy. The others have the log that names it.
#[test]
fn copy_stays_while_objects_are_unfound() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"kept");
    let stores = [1, 2].map(|osd| (osd, cluster.kill(osd)));
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("n", b"new");
    cluster.set_flags(MapFlags::NORECOVER);
    stores.into_iter().for_each(|(osd, store)| cluster.start(osd, store));
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    restart_unreadable(&mut cluster, 0);
    release(&mut cluster);
    let report = cluster.report();
    assert_eq!((report.status.unfound, cluster.releases.len()), (1, 0), "{}", report.status.state);
    assert_eq!(cluster.stored(0, "n").as_deref(), Some(&b"new"[..]));
}

#[test]
fn copy_stays_while_an_object_is_damaged() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"kept");
    cluster.put("b", b"kept");
    let one = without_records(cluster.kill(1));
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.hosts.get_mut(&0).unwrap().rot_range("a", 0..4);
    assert_eq!(cluster.get("a"), "");
    cluster.start(1, one);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    release(&mut cluster);
    assert_eq!((cluster.releases.len(), cluster.stored(1, "a")), (0, Some("kept".into())));
    cluster.put("a", b"newer");
    cluster.pass(5_000);
    cluster.pass(5_000);
    assert_eq!((cluster.state().as_str(), cluster.releases.len()), ("active+clean", 1));
    assert_eq!(cluster.stored(1, "a"), Some("newer".into()));
}

/// osd.2 loses power after each step of the replacement.
#[test]
fn crash_at_each_step_leaves_no_copy_that_looks_whole() {
    let mut phases = std::collections::BTreeSet::new();
    for steps in 0.. {
        let mut cluster = with_unreadable(2);
        cluster.flags = 0;
        (0..3).for_each(|osd| cluster.order(osd, Vec::new()));
        // Where nothing is under way, time passes until repetitions are due.
        let mut rests = 0;
        for _ in 0..steps {
            if !cluster.step() && !cluster.take_wishes() {
                rests += 1;
                cluster.hosts.values_mut().for_each(|host| {
                    host.now = host.now + Duration::from_secs(5);
                    host.step(Input::Deadline);
                });
            }
        }
        let is_over = rests > 5;
        let is_backfilled = phase(&cluster, 2) == Some(PgPhase::Replica)
            && cluster.stored(2, "c").is_some()
            && cluster.interval.acting.contains(&2);
        let store = cluster.lose_power(2);
        let started = Host::with(config(), store);
        for copy in started.shard.copies() {
            let is_readable = copy.phase != PgPhase::Unreadable;
            let claims_all = is_readable && copy.progress.is_complete();
            assert!(!claims_all || copy.progress.last_update != Eversion::ZERO, "after step {steps}");
            phases.insert((is_readable, claims_all));
        }
        if started.shard.copies().next().is_none() {
            phases.insert((false, true));
        }
        // None of the others may be missed before the new copy is whole.
        start_again(&mut cluster, 2, started.store);
        release(&mut cluster);
        assert_eq!(cluster.state(), "active+clean", "after step {steps}");
        assert_eq!(cluster.stored(2, "b").as_deref(), Some(&b"kept"[..]), "after step {steps}");
        if is_over || is_backfilled {
            break;
        }
    }
    // Unreadable, incomplete, none, complete.
    assert_eq!(
        phases.into_iter().collect::<Vec<_>>(),
        [(false, false), (false, true), (true, false), (true, true)]
    );
}

/// A crash in the middle of the replacement, and then the only other copies are lost: what osd.2 has is no proof.
#[test]
fn half_replaced_copy_is_no_survivor() {
    let mut cluster = with_unreadable(2);
    cluster.stalled.insert(2);
    release(&mut cluster);
    assert_eq!(cluster.releases.len(), 1);
    let store = cluster.lose_power(2);
    let others = [0, 1].map(|osd| (osd, cluster.kill(osd)));
    cluster.interval(vec![], vec![]);
    cluster.start(2, store);
    cluster.interval(vec![2], vec![2]);
    cluster.run();
    assert!(cluster.state().contains("down"), "{}", cluster.state());
    others.into_iter().for_each(|(osd, store)| cluster.start(osd, store));
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn deleted_pool_during_the_removal_leaves_no_collection() {
    let mut cluster = with_unreadable(2);
    cluster.stalled.insert(2);
    release(&mut cluster);
    cluster.order(2, vec![PgOrder::Remove { pg: pg() }]);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.stalled.clear();
    cluster.run();
    let host = &cluster.hosts[&2];
    assert_eq!(host.shard.copies().count(), 0);
    assert!(host.store.placed().iter().all(|(collection, _)| *collection != Collection::Pg(pg())));
}

/// The map splits the PG while osd.2 removes its unreadable copy. Of the child it has none either, and gets both anew.
#[test]
fn split_during_the_removal_replaces_each_child() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    NAMES.into_iter().for_each(|name| cluster.put(name, b"kept"));
    cluster.flags = MapFlags::NOBACKFILL;
    restart_unreadable(&mut cluster, 2);
    cluster.flags = 0;
    (0..3).for_each(|osd| cluster.order(osd, Vec::new()));
    let is_removing = |cluster: &Cluster| {
        let mut copies = cluster.hosts[&2].shard.copies();
        copies.any(|copy| copy.id == pg() && copy.released.is_some())
    };
    for _ in 0..10_000 {
        if is_removing(&cluster) {
            break;
        }
        if !cluster.step() && !cluster.take_wishes() {
            cluster.hosts.values_mut().for_each(|host| host.pass(Duration::from_secs(5)));
        }
    }
    assert!(is_removing(&cluster), "osd.2 removes its copy");
    assert_eq!(phase(&cluster, 2), Some(PgPhase::Unreadable));
    cluster.split(2);
    (0..6).for_each(|_| cluster.pass(5_000));
    for seed in [0, 1] {
        assert_eq!(cluster.report_of(pg_of(seed)).status.state.to_string(), "active+clean", "{seed}");
    }
    let halves: std::collections::BTreeSet<u32> = NAMES.iter().map(|name| object(name).hash & 1).collect();
    assert_eq!(halves.len(), 2, "both PGs have objects");
    for name in NAMES {
        assert_eq!(cluster.stored(2, name).as_deref(), Some(&b"kept"[..]), "{name}");
    }
}

/// osd.3 was a member once. The PG has all its copies elsewhere.
#[test]
fn unreadable_stray_of_a_clean_pg_is_removed() {
    let mut cluster = Cluster::new(4, vec![1, 2, 3]);
    cluster.put("a", b"kept");
    let store = without_records(cluster.kill(3));
    cluster.interval(vec![0, 1, 2], vec![1, 2]);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    cluster.start_stray(3, store);
    cluster.run();
    assert_eq!(cluster.releases, [(3, pg())]);
    assert_eq!(cluster.hosts[&3].shard.copies().count(), 0);
}
