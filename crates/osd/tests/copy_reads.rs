//! Reads of clients from replicas: what a replica serves, and what it leaves to the primary.

mod harness;

use bytes::Bytes;
use harness::cluster::Cluster;
use harness::*;
use osd::errno::Errno;
use std::time::Duration;
use wire::types::*;

const AGAIN: i32 = Errno::AGAIN.result();

/// Every replica has been told that the last write is committed.
fn read_before(cluster: &mut Cluster, replicas: &[i32]) {
    for osd in replicas {
        cluster.ask_copy(*osd, "other", vec![read(0, 0)]);
        cluster.run();
    }
}

/// Three OSDs with an object, whose replicas serve reads.
fn serving() -> Cluster {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("c", b"one");
    cluster.put("a", b"one");
    read_before(&mut cluster, &[1, 2]);
    cluster
}

fn bytes_of(cluster: &mut Cluster, osd: i32, name: &str) -> Result<Bytes, i32> {
    let reply = cluster.ask_copy(osd, name, vec![read(0, 0)]);
    if reply.result < 0 { Err(reply.result) } else { Ok(output(&reply, 0)) }
}

fn one() -> Result<Bytes, i32> {
    Ok(Bytes::from_static(b"one"))
}

fn two() -> Result<Bytes, i32> {
    Ok(Bytes::from_static(b"two"))
}

#[test]
fn replica_serves_reads_once_it_knows_the_commits() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    assert_eq!(
        bytes_of(&mut cluster, 1, "a"),
        Err(AGAIN),
        "only the primary knows that the write is committed"
    );
    assert_eq!(bytes_of(&mut cluster, 1, "a"), one());
    assert_eq!(bytes_of(&mut cluster, 1, "none"), Err(Errno::NOENT.result()));
    // From now on it hears of each commit.
    for data in [&b"two"[..], b"three", b"four"] {
        cluster.put("a", data);
        assert_eq!(bytes_of(&mut cluster, 1, "a"), Ok(Bytes::from_static(data)));
    }
    assert_eq!(cluster.ask("a", vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    assert_eq!(bytes_of(&mut cluster, 1, "a"), Err(Errno::NOENT.result()));
}

/// A write that osd.2 does not acknowledge is on osd.1.
fn uncommitted() -> Cluster {
    let mut cluster = serving();
    cluster.cut = vec![(2, 0)];
    cluster.send("a", vec![write_full(b"two")]);
    cluster.run();
    cluster
}

#[test]
fn replica_hides_writes_that_are_not_committed() {
    let mut cluster = uncommitted();
    assert_eq!(bytes_of(&mut cluster, 1, "a"), Err(AGAIN));
    assert_eq!(bytes_of(&mut cluster, 1, "other"), Err(Errno::NOENT.result()), "it has no such write");
    cluster.cut.clear();
    cluster.reset_links(0, 2);
    cluster.run();
    assert_eq!(bytes_of(&mut cluster, 1, "a"), two());
}

/// The planted bug: a later interval without osd.1 takes the value back.
#[cfg(feature = "planted-bugs")]
#[test]
fn planted_read_of_an_uncommitted_write_is_visible() {
    let mut cluster = uncommitted();
    osd::planted::plant(Some(osd::planted::PlantedBug::CopyReadsUncommitted));
    let seen = bytes_of(&mut cluster, 1, "a");
    osd::planted::plant(None);
    assert_eq!(seen, two());
}

#[test]
fn read_that_a_write_overtakes_goes_to_the_primary() {
    let mut cluster = serving();
    assert_eq!(bytes_of(&mut cluster, 1, "a"), one());
    cluster.stalled.insert(1);
    let tid = cluster.send_copy(1, "a", vec![read(0, 0)]);
    cluster.send("a", vec![write_full(b"two")]);
    cluster.run();
    cluster.stalled.clear();
    cluster.run();
    assert_eq!(cluster.hosts.get_mut(&1).unwrap().reply(tid).result, AGAIN);
    assert_eq!(bytes_of(&mut cluster, 1, "a"), two(), "and the info that it knew is forgotten");
    assert_eq!(cluster.ask_copy(1, "a", vec![OsdOp::bare(OpCode::STAT)]).result, 0);
}

#[test]
fn replica_without_leases_asks_for_them_and_serves_later() {
    let mut cluster = serving();
    cluster.lease_copies(1, 2, 300);
    assert_eq!(bytes_of(&mut cluster, 1, "a"), one());
    cluster.pass(300);
    assert_eq!(bytes_of(&mut cluster, 1, "a"), Err(AGAIN));
    cluster.lease_copies(1, 2, 300);
    assert_eq!(bytes_of(&mut cluster, 1, "a"), one());
    // The lease ends while the store reads.
    cluster.stalled.insert(1);
    let tid = cluster.send_copy(1, "a", vec![read(0, 0)]);
    cluster.pass(300);
    cluster.stalled.clear();
    cluster.run();
    assert_eq!(cluster.hosts.get_mut(&1).unwrap().reply(tid).result, AGAIN);
}

#[test]
fn lost_replica_delays_writes_by_its_copy_leases_alone() {
    let state_after = |for_copies: bool| {
        let mut cluster = serving();
        match for_copies {
            true => cluster.grant_copies(0, 2, 300),
            false => cluster.grant(0, 2, 300),
        }
        cluster.kill(2);
        cluster.interval(vec![0, 1], vec![0, 1]);
        cluster.run();
        let early = cluster.state();
        cluster.pass(300);
        (early, cluster.state())
    };
    let serves = "active+undersized+degraded".to_owned();
    assert_eq!(state_after(false), (serves.clone(), serves.clone()));
    assert_eq!(state_after(true), ("undersized+degraded+peering+wait".to_owned(), serves));
}

#[test]
fn replica_without_the_object_sends_its_reads_away() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"one");
    let store = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("b", b"two");
    cluster.put("a", b"two");
    cluster.set_flags(osd_map::MapFlags::NORECOVER);
    cluster.start(1, store);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    read_before(&mut cluster, &[1]);
    for name in ["a", "b"] {
        assert_eq!(bytes_of(&mut cluster, 1, name), Err(AGAIN), "it knows that it lacks {name}");
    }
    cluster.set_flags(0);
    cluster.pass(20_000);
    assert_eq!(cluster.state(), "active+clean");
    read_before(&mut cluster, &[1]);
    assert_eq!((bytes_of(&mut cluster, 1, "a"), bytes_of(&mut cluster, 1, "b")), (two(), two()));
}

#[test]
fn damaged_copy_sends_its_readers_away() {
    let mut cluster = serving();
    cluster.hosts.get_mut(&1).unwrap().rot("a");
    assert_eq!(bytes_of(&mut cluster, 1, "a"), Err(AGAIN));
    assert_eq!(cluster.ask_copy(1, "a", vec![OsdOp::bare(OpCode::STAT)]).result, AGAIN);
    assert_eq!(cluster.get("a"), &b"one"[..]);
}

#[test]
fn replica_leaves_all_but_pure_reads_to_the_primary() {
    let mut cluster = serving();
    for op in [write_full(b"two"), OsdOp::bare(OpCode::LIST_WATCHERS), OsdOp::bare(OpCode::DELETE)] {
        assert_eq!(cluster.ask_copy(1, "a", vec![op.clone()]).result, AGAIN, "{op:?}");
    }
    assert_eq!(cluster.ask_copy(1, "a", vec![read(0, 0), OsdOp::bare(OpCode::STAT)]).result, 0);
}

#[test]
fn interval_below_min_size_and_old_requests_are_not_served() {
    let mut cluster = serving();
    cluster.interval.min_size = 3;
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    read_before(&mut cluster, &[1]);
    assert_eq!(bytes_of(&mut cluster, 1, "a"), Err(AGAIN));
    cluster.interval.min_size = 1;
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    read_before(&mut cluster, &[1]);
    assert_eq!(bytes_of(&mut cluster, 1, "a"), one());
    let since = cluster.interval.since;
    let host = cluster.hosts.get_mut(&1).unwrap();
    let mut request = host.request(object("a"), vec![read(0, 0)]);
    (request.epoch, request.flags) = (since - 1, OsdFlags::READ | OsdFlags::BALANCE_READS);
    host.resend(1, 7777, request);
    host.settle();
    assert_eq!(host.reply(7777).result, AGAIN);
}

/// A replica serves in an interval when the primary does.
#[test]
fn replica_waits_for_the_primary_of_its_interval() {
    let mut cluster = serving();
    cluster.grant(1, 0, 500);
    cluster.kill(0);
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    assert_eq!(bytes_of(&mut cluster, 2, "a"), Err(AGAIN), "the old primary may answer reads");
    cluster.pass(500);
    assert_eq!(bytes_of(&mut cluster, 2, "a"), one());
    cluster.pass(Duration::from_secs(30).as_millis() as u64);
    assert_eq!(bytes_of(&mut cluster, 2, "a"), one(), "its log rests, and is not needed");
}

#[test]
fn reads_of_copies_are_counted_by_their_outcome() {
    let mut cluster = uncommitted();
    assert_eq!(bytes_of(&mut cluster, 1, "a"), Err(AGAIN));
    assert_eq!(bytes_of(&mut cluster, 1, "other"), Err(Errno::NOENT.result()));
    cluster.hosts.get_mut(&1).unwrap().rot("c");
    assert_eq!(bytes_of(&mut cluster, 1, "c"), Err(AGAIN));
    let host = cluster.hosts.get_mut(&1).unwrap();
    let totals = host.figures().totals;
    assert_eq!((totals.copy_reads, totals.copy_reads_served), (4, 1));
    assert_eq!((totals.copy_reads_missing, totals.copy_reads_unstable), (1, 1));
}
