//! Stories of logs at rest: PGs without requests keep no log in memory, and nobody may notice.

mod harness;

use bytes::Bytes;
use harness::cluster::{Cluster, pg_of};
use harness::*;
use osd::pg::log::LogLimits;
use osd::shard::{PgOrder, ShardConfig, ToControl};
use std::time::Duration;
use store::ObjectStore;
use wire::messages::MOSDOp;
use wire::types::*;

/// Longer than a log waits before it rests, twice.
const LONG: Duration = Duration::from_secs(11);

fn append() -> Vec<OsdOp> {
    vec![OsdOp::extent(OpCode::APPEND, 0, 1, Bytes::from_static(b"x"))]
}

/// Appends to the object, and returns the request for a repetition.
fn append_to(host: &mut Host, name: &str) -> (u64, MOSDOp) {
    let request = host.request(object(name), append());
    let tid = host.send(1, request.clone());
    host.settle();
    assert_eq!(host.reply(tid).result, 0);
    (tid, request)
}

fn repeat(host: &mut Host, (tid, request): &(u64, MOSDOp)) {
    host.resend(1, *tid, MOSDOp { epoch: host.view.epoch, ..request.clone() });
    host.settle();
    assert_eq!(host.reply(*tid).result, 0);
}

fn resting() -> (Host, (u64, MOSDOp)) {
    let mut host = Host::serving();
    let first = append_to(&mut host, "a");
    host.pass(LONG);
    assert!(!host.is_resident(pg()));
    (host, first)
}

#[test]
fn repeated_request_is_known_after_a_rest() {
    let (mut host, first) = resting();
    let before = host.pg_reports().pop().unwrap();
    assert_eq!((before.log_len, before.duplicates_len), (1, 0), "reports need no body");
    assert_eq!(host.ask("a", vec![read(0, 0)]).ops[0].output.to_bytes(), b"x"[..]);
    assert!(!host.is_resident(pg()), "reads need none either");
    repeat(&mut host, &first);
    assert!(host.is_resident(pg()));
    assert_eq!(host.ask("a", vec![read(0, 0)]).ops[0].output.to_bytes(), b"x"[..]);
}

#[test]
fn start_reads_no_log_and_repeated_request_is_known() {
    let mut host = Host::serving();
    let requests: Vec<_> = (0..1500).map(|_| append_to(&mut host, "a")).collect();
    let mut host = host.restart();
    assert!(!host.is_resident(pg()));
    for at in [0, 700, 1499] {
        repeat(&mut host, &requests[at]);
    }
    assert_eq!(host.ask("a", vec![read(0, 0)]).ops[0].output.len(), 1500, "no append is done twice");
}

/// Writes that wait for the log, and a read behind them, are answered in order.
#[test]
fn requests_wait_for_the_log_in_order() {
    let (mut host, _) = resting();
    let tids: Vec<u64> = [append(), vec![read(0, 0)], append(), vec![read(0, 0)]]
        .into_iter()
        .map(|ops| {
            let request = host.request(object("a"), ops);
            host.send(1, request)
        })
        .collect();
    host.settle();
    let replies: Vec<u64> = host.sent.iter().map(|(_, message)| message.tid).collect();
    assert_eq!(replies, tids);
    let lens: Vec<usize> = tids.iter().map(|tid| host.reply(*tid).ops[0].output.len()).collect();
    assert_eq!(lens, [0, 2, 0, 3]);
}

#[test]
fn log_in_use_does_not_rest() {
    let mut host = Host::serving();
    for _ in 0..20 {
        append_to(&mut host, "a");
        host.pass(Duration::from_secs(1));
        assert!(host.is_resident(pg()));
    }
}

#[test]
fn unreadable_log_is_no_empty_one() {
    let (mut host, (tid, request)) = resting();
    host.bad_log = Some(pg());
    host.resend(1, tid, request);
    host.settle();
    assert!(host.find_reply(tid).is_none(), "the append would be done twice");
    assert!(host.control.iter().any(|said| matches!(said, ToControl::Unreadable { .. })));
    let report = host.pg_reports().pop().unwrap();
    assert_eq!(report.status.state.to_string(), "down+inconsistent");
    // The next start reads it.
    host.bad_log = None;
    let mut host = host.restart();
    assert_eq!(host.ask("a", vec![read(0, 0)]).ops[0].output.to_bytes(), b"x"[..]);
}

/// An entry is gone from the store.
#[test]
fn log_that_lacks_an_entry_is_unreadable() {
    let mut host = Host::serving();
    let first = append_to(&mut host, "a");
    append_to(&mut host, "a");
    let log = host.shard.copies().next().unwrap().log.entries().next().unwrap().version;
    host.pass(LONG);
    let changes = vec![store::Change::LogTrim { to: log }];
    let transaction = store::Transaction { collection: store::Collection::Pg(pg()), changes };
    host.store.submit(u64::MAX, transaction);
    while host.store.poll(&mut Vec::new()) {}
    host.resend(1, first.0, first.1);
    host.settle();
    assert!(host.find_reply(first.0).is_none());
    assert_eq!(host.pg_reports().pop().unwrap().status.state.to_string(), "down+inconsistent");
}

fn split(host: &mut Host, pg_num: u32) {
    let bits = pg_num.ilog2() as u8;
    host.view.pools.get_mut(&POOL).unwrap().pg_num = pg_num;
    let epoch = host.view.epoch + 1;
    let held: Vec<SpgId> = host.shard.copies().map(|copy| copy.id).collect();
    let children = |pg: &SpgId| -> Vec<_> {
        let seeds = (pg.pg.seed..pg_num).step_by(held.len()).skip(1);
        seeds.map(|seed| (pg_of(seed), bits)).collect()
    };
    let splits =
        held.iter().map(|pg| PgOrder::Split { pg: *pg, split_bits: bits, children: children(pg), epoch });
    let intervals = (0..pg_num).map(|seed| PgOrder::alone(pg_of(seed), bits, epoch));
    let orders = splits.chain(intervals).collect();
    host.map_meanwhile(orders);
}

/// Two splits, the second while the log for the first is being read.
#[test]
fn resting_pg_is_split_with_its_log() {
    let mut host = Host::serving();
    let names = ["a", "b", "c", "d", "e", "f"];
    let requests: Vec<_> = names.iter().map(|name| append_to(&mut host, name)).collect();
    host.pass(LONG);
    split(&mut host, 2);
    split(&mut host, 4);
    host.settle();
    for _ in 0..2 {
        for (name, (tid, request)) in names.iter().zip(&requests) {
            let pg = pg_of(object(name).hash & 3);
            repeat(&mut host, &(*tid, MOSDOp { pg, ..request.clone() }));
            let reading = MOSDOp { pg, ..host.request(object(name), vec![read(0, 0)]) };
            let tid = host.send(1, reading);
            host.settle();
            assert_eq!(host.reply(tid).ops[0].output.to_bytes(), b"x"[..], "{name}");
        }
        let logged: usize = host.pg_reports().iter().map(|report| report.log_len).sum();
        assert_eq!(logged, names.len());
        host = host.restart();
        host.view.pools.get_mut(&POOL).unwrap().pg_num = 4;
        // Requests from before the split are dropped.
        host.view.epoch += 10;
        host.map(Vec::new());
    }
}

#[test]
fn split_of_an_unreadable_log_makes_unreadable_children() {
    let (mut host, _) = resting();
    host.bad_log = Some(pg());
    split(&mut host, 2);
    split(&mut host, 4);
    host.settle();
    let states: Vec<String> =
        host.pg_reports().iter().map(|report| report.status.state.to_string()).collect();
    assert_eq!(states, vec!["down+inconsistent"; 4]);
    assert_eq!(host.store.collections().len(), 1, "no child begins empty");
}

#[test]
fn writes_wait_while_many_are_not_committed() {
    let log = LogLimits { max_entries: 4, max_duplicates: 4, batch: 1, ..LogLimits::default() };
    let mut host = Host::with(ShardConfig { log, ..config() }, memory_store());
    host.open(1, 4100);
    let since = host.view.epoch;
    host.map(vec![PgOrder::alone(pg(), 0, since)]);
    // The object is read once.
    assert_eq!(host.ask("a", append()).result, 0);
    let tids: Vec<u64> = (0..49)
        .map(|_| {
            let request = host.request(object("a"), append());
            host.send(1, request)
        })
        .collect();
    assert_eq!(host.pg_reports().pop().unwrap().log_len, 1 + 4);
    host.settle();
    let replies: Vec<u64> = host.sent.iter().map(|(_, message)| message.tid).collect();
    assert_eq!(replies, tids);
    assert_eq!(host.ask("a", vec![read(0, 0)]).ops[0].output.len(), 50);
    assert!(host.pg_reports().pop().unwrap().log_len <= 10);
}

fn assert_resting(cluster: &Cluster, is_resting: bool) {
    for (osd, host) in &cluster.hosts {
        assert_eq!(host.is_resident(pg()), !is_resting, "osd.{osd}");
    }
}

/// A cluster whose logs rest, and its last request.
fn resting_cluster(osds: i32) -> (Cluster, u64) {
    let mut cluster = Cluster::new(osds, (0..osds).collect());
    cluster.put("a", b"old");
    let tid = cluster.send("a", append());
    cluster.run();
    assert_eq!(cluster.primary().reply(tid).result, 0);
    cluster.pass(11_000);
    assert_resting(&cluster, true);
    (cluster, tid)
}

fn repeat_append(cluster: &mut Cluster, tid: u64) {
    let host = cluster.primary();
    let request = host.request(object("a"), append());
    host.resend(1, tid, request);
    cluster.run();
    assert_eq!(cluster.primary().reply(tid).result, 0);
    assert_eq!(cluster.get("a"), &b"oldx"[..]);
}

#[test]
fn resting_replica_that_becomes_primary_knows_the_request() {
    let (mut cluster, tid) = resting_cluster(2);
    cluster.kill(0);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    repeat_append(&mut cluster, tid);
    cluster.put("b", b"new");
}

#[test]
fn equal_logs_stay_at_rest_over_new_intervals_and_starts() {
    let (mut cluster, tid) = resting_cluster(3);
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_resting(&cluster, true);
    cluster.start(2, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_resting(&cluster, true);
    cluster.put("b", b"new");
    assert_resting(&cluster, false);
    repeat_append(&mut cluster, tid);
}

#[test]
fn returning_osd_catches_up_from_a_resting_log() {
    let (mut cluster, tid) = resting_cluster(2);
    for returning in [1, 0] {
        let store = cluster.kill(returning);
        cluster.interval(vec![1 - returning], vec![1 - returning]);
        cluster.run();
        cluster.put("b", b"newer");
        cluster.pass(11_000);
        cluster.start(returning, store);
        cluster.interval(vec![returning, 1 - returning], vec![returning, 1 - returning]);
        cluster.run();
        assert_eq!(cluster.state(), "active+clean");
        assert_eq!(cluster.stored(returning, "b").as_deref(), Some(&b"newer"[..]));
        repeat_append(&mut cluster, tid);
        cluster.pass(11_000);
    }
}

/// Of either member, at the first write after a rest.
#[test]
fn pg_goes_on_without_a_member_whose_log_is_unreadable() {
    for bad in 0..3 {
        let (mut cluster, tid) = resting_cluster(3);
        cluster.set_flags(osd_map::MapFlags::NOBACKFILL);
        cluster.hosts.get_mut(&bad).unwrap().bad_log = Some(pg());
        cluster.send("c", append());
        cluster.run();
        let rest: Vec<i32> = (0..3).filter(|osd| *osd != bad).collect();
        assert_eq!(cluster.interval.acting, rest, "osd.{bad}");
        // Its client sends it again in the new interval.
        cluster.hosts.values_mut().for_each(Host::acknowledge_backoffs);
        cluster.run();
        cluster.put("c", b"new");
        assert_eq!(cluster.state(), "active+undersized+degraded+remapped+inconsistent");
        repeat_append(&mut cluster, tid);
        cluster.pass(30_000);
        assert_eq!(cluster.interval.acting, rest);
        // The restart can read it, and it gets what it missed.
        let store = cluster.kill(bad);
        cluster.flags = 0;
        cluster.interval(rest.clone(), rest.clone());
        cluster.run();
        cluster.start(bad, store);
        cluster.interval(vec![0, 1, 2], rest);
        cluster.run();
        assert_eq!(cluster.state(), "active+clean");
        assert_eq!(cluster.stored(bad, "c").as_deref(), Some(&b"new"[..]));
    }
}

/// The authority's log cannot be read when a primary asks for it.
#[test]
fn log_that_peering_cannot_read_blocks_it() {
    let (mut cluster, _) = resting_cluster(2);
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("b", b"newer");
    cluster.pass(11_000);
    cluster.hosts.get_mut(&0).unwrap().bad_log = Some(pg());
    cluster.start(1, one);
    cluster.interval(vec![1, 0], vec![1, 0]);
    cluster.run();
    let status = cluster.report().status;
    assert!(status.state.has(PgState::DOWN), "{}", status.state);
    assert_eq!(status.blocked_by, [0]);
}

#[test]
fn log_does_not_rest_while_objects_are_recovered() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"new");
    cluster.start(1, one);
    cluster.interval(vec![0, 1], vec![0, 1]);
    for _ in 0..10_000 {
        if cluster.report().status.progress.pushing.len() == 1 {
            break;
        }
        cluster.step();
    }
    assert_eq!(cluster.report().status.progress.pushing.len(), 1, "the object is on its way");
    cluster.hosts.get_mut(&0).unwrap().pass(LONG);
    assert!(cluster.hosts[&0].is_resident(pg()));
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    cluster.pass(11_000);
    assert_resting(&cluster, true);
}

/// The client sends both appends to `a` again, and each happens once.
fn assert_done_when_sent_again(cluster: &mut Cluster, tids: [u64; 2]) {
    for tid in tids {
        let host = cluster.primary();
        let request = host.request(object("a"), append());
        host.resend(1, tid, request);
    }
    cluster.run();
    for tid in tids {
        assert_eq!(cluster.primary().reply(tid).result, 0);
    }
    assert_eq!(cluster.get("a"), &b"oldxx"[..]);
}

/// The client was told to go on and has not acknowledged the word before that. What it sent until then it sends again, so a
/// request that waits for the log would overtake those before it.
#[test]
fn request_from_before_a_backoff_does_not_wait_for_the_log() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    cluster.interval(vec![0, 1], vec![0, 1]);
    let held_back = cluster.send("a", append());
    cluster.run();
    cluster.pass(11_000);
    assert_resting(&cluster, true);
    let sent_before = cluster.send("a", append());
    cluster.primary().acknowledge_backoffs();
    cluster.run();
    assert!(cluster.primary().find_reply(held_back).is_none());
    assert!(cluster.primary().find_reply(sent_before).is_none());
    assert_done_when_sent_again(&mut cluster, [held_back, sent_before]);
}

/// The later request names a map that the OSD lacks. While it waits for the map, the PG stops and serves again: the client sends
/// both requests again, and the one that waited would overtake the other.
#[test]
fn request_from_before_a_backoff_does_not_wait_for_a_map() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    let dropped = cluster.send("a", append());
    let of_next_map = dropped + 1;
    let host = cluster.primary();
    let request = host.request(object("a"), append());
    host.resend(1, of_next_map, MOSDOp { epoch: request.epoch + 11, ..request });
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.primary().acknowledge_backoffs();
    cluster.set_flags(0);
    cluster.run();
    assert!(cluster.primary().find_reply(dropped).is_none());
    assert!(cluster.primary().find_reply(of_next_map).is_none());
    assert_done_when_sent_again(&mut cluster, [dropped, of_next_map]);
}

/// osd.1 returns again and again, and nothing is written while it is there.
#[test]
fn log_of_a_member_that_comes_and_goes_is_trimmed() {
    let log = LogLimits { max_entries: 10, max_duplicates: 10, batch: 2, ..LogLimits::default() };
    let mut cluster = Cluster::with_log(2, vec![0, 1], log);
    for round in 0..6 {
        let store = cluster.kill(1);
        cluster.interval(vec![0], vec![0]);
        cluster.run();
        (0..5).for_each(|_| assert_eq!(cluster.ask("a", append()).result, 0));
        cluster.start(1, store);
        cluster.interval(vec![0, 1], vec![0, 1]);
        cluster.run();
        assert_eq!(cluster.state(), "active+clean");
        let copy = cluster.hosts[&1].shard.copies().next().unwrap().log.counts();
        assert!(copy.entries <= 12, "round {round}: {} entries", copy.entries);
    }
    let store = cluster.kill(1);
    cluster.start(1, store);
    let counts = cluster.hosts[&1].shard.copies().next().unwrap().log.counts();
    assert!(counts.entries <= 12, "the store has the same log: {} entries", counts.entries);
}
