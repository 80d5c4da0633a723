//! Signals of a shard's operations: counters that move, stages that add up, operations described while they wait.

mod harness;

use bytes::Bytes;
use harness::*;
use osd::pg::meta::PgStats;
use osd::shard::{Input, Inquiry, InquiryAnswer, PgOrder, ToControl};
use osd::signals::counters::{self, ControlFigures};
use osd::signals::queries::{KeyCounts, MetricQuery};
use osd::signals::{OpRecord, Progress, Stage, TrackingLimits};
use std::time::Duration;
use wire::types::*;

fn ops(host: &mut Host, inquiry: Inquiry) -> Vec<OpRecord> {
    host.control.clear();
    host.step(Input::Inquire { id: 5, inquiry });
    match host.control.pop().expect("an answer") {
        ToControl::Answered { id: 5, answer: InquiryAnswer::Ops(ops) } => ops,
        other => panic!("{other:?}"),
    }
}

fn stats(host: &mut Host) -> Vec<PgStats> {
    host.pg_reports().into_iter().map(|pg| pg.stats).collect()
}

fn omap_objects(host: &mut Host) -> i64 {
    stats(host).iter().map(|stats| stats.omap_objects).sum()
}

/// Time passes without anything happening.
fn wait(host: &mut Host, ms: u64) {
    host.now = host.now + Duration::from_millis(ms);
}

fn serving() -> Host {
    let mut host = Host::serving();
    wait(&mut host, 1000);
    host
}

#[test]
fn stages_of_a_write_add_up_to_its_latency() {
    let mut host = serving();
    let request = host.request(object("a"), vec![write_full(b"hello")]);
    let tid = host.send(1, request);
    wait(&mut host, 3);
    // The object's info is read, then the change is submitted.
    host.poll_once();
    wait(&mut host, 7);
    host.settle();
    assert_eq!(host.reply(tid).result, 0);
    let figures = host.figures();
    let ms = |stage: Stage| figures.write_stages[stage as usize].sum_ns / 1_000_000;
    assert_eq!(Stage::ALL.map(ms), [0, 0, 3, 7, 0]);
    let writes = figures.totals.writes;
    assert_eq!((writes.count, writes.in_bytes, writes.latency.sum_ns), (1, 5, 10_000_000));
    assert_eq!(figures.commit().count, 1);
}

#[test]
fn every_counter_of_an_operation_moves() {
    let mut host = serving();
    let call = |class: &str, method: &str| OsdOp::call(class, method, b"").unwrap();
    let read_and_write = vec![read(0, 0), write(0, b"x")];
    let lists =
        [vec![write_full(b"hello")], vec![read(0, 0)], vec![call("hello", "turn_it_to_11")], read_and_write];
    for ops in lists {
        let mut request = host.request(object("a"), ops);
        request.flags = OsdFlags::RETURNVEC;
        let tid = host.send(1, request);
        // Every step takes a while, so that every latency is more than nothing.
        for _ in 0..4 {
            wait(&mut host, 1);
            host.poll_once();
        }
        assert!(host.reply(tid).result >= 0);
    }
    // Another core's part of the way.
    let late = host.request(object("b"), vec![write_full(b"x")]);
    let received = host.now;
    wait(&mut host, 2);
    host.step(Input::Op {
        conn: machine::ConnId(1),
        tid: 900,
        op: Box::new(late),
        held: Default::default(),
        received,
    });
    host.poll_once();
    // One that waits for the map that its client has, and one that is being written.
    let mut early = host.request(object("c"), vec![read(0, 0)]);
    early.epoch += 1;
    host.send(1, early);
    let figures = host.figures();
    let own = ControlFigures {
        pgs: 1,
        pgs_primary: 1,
        pgs_replica: 1,
        pgs_stray: 1,
        heartbeat_peers: 1,
        map_messages: 1,
        map_epochs: 1,
        stat_bytes: 1,
        stat_bytes_used: 1,
        stat_bytes_avail: 1,
    };
    for counter in counters::osd(&figures, &own).into_iter().chain(counters::stages(&figures)) {
        let moved = match counter.value {
            command::perf::Reading::Total(n) | command::perf::Reading::Level(n) => n > 0,
            command::perf::Reading::Time { count, .. } => count > 0,
        };
        // Replicas and recoveries count these: see `copy_reads.rs` and tests/interop/test_metrics.py.
        let is_elsewhere =
            ["replica_read", "recovery_"].iter().any(|prefix| counter.name.starts_with(prefix));
        assert!(moved || is_elsewhere, "{counter:?}");
    }
}

#[test]
fn operations_are_described_where_they_wait() {
    let mut host = serving();
    host.ask("a", vec![write_full(b"x")]);
    wait(&mut host, 10);
    let write = host.request(object("a"), vec![write(0, b"y")]);
    host.send(1, write);
    let read_behind = host.request(object("a"), vec![read(0, 1)]);
    host.send(1, read_behind);
    let mut early = host.request(object("a"), vec![OsdOp::xattr(OpCode::GETXATTR, b"\xff", b"")]);
    early.epoch += 1;
    host.send(1, early);
    wait(&mut host, 40);
    let mut found = ops(&mut host, Inquiry::OpsInFlight);
    found.sort_by_key(|op| op.tid);
    let progress: Vec<Progress> = found.iter().map(|op| op.progress).collect();
    assert_eq!(progress, [Progress::Commits, Progress::WaitsForObject, Progress::WaitsForMap]);
    assert!(found.iter().all(|op| op.duration(host.now) == Duration::from_millis(40)));
    assert!(found[0].description.starts_with("osd_op(client.4100.0:"), "{}", found[0].description);
    assert!(found[0].description.contains(":::a:head [write 0~1] snapc 0=[]"), "{}", found[0].description);
    assert!(found[2].description.contains("[getxattr %ff]"), "{}", found[2].description);
    host.settle();
    assert_eq!(ops(&mut host, Inquiry::OpsInFlight).len(), 1, "what waits for a map still does");
}

#[test]
fn slow_operations_are_counted_and_remembered() {
    let mut host = serving();
    let (complaint_time, slow_threshold) = (Duration::from_millis(20), Duration::from_millis(30));
    host.step(Input::Tracking(TrackingLimits {
        complaint_time,
        slow_threshold,
        ..TrackingLimits::default()
    }));
    let request = host.request(object("a"), vec![write_full(b"x")]);
    host.send(1, request);
    wait(&mut host, 25);
    let in_flight = host.figures().in_flight;
    assert_eq!((in_flight.count, in_flight.slow, in_flight.oldest.as_millis()), (1, 1, 25));
    wait(&mut host, 10);
    host.settle();
    assert_eq!(host.figures().in_flight.slow, 0);
    let slow = ops(&mut host, Inquiry::SlowOps);
    assert_eq!((slow.len(), slow[0].duration(host.now).as_millis()), (1, 35));
    assert_eq!(ops(&mut host, Inquiry::SlowestOps), slow);
}

#[test]
fn refused_and_failed_operations_count_in_stages_alone() {
    let mut host = serving();
    host.ask("missing", vec![read(0, 1)]);
    let mut request = host.request(object("a"), vec![]);
    request.flags = OsdFlags::PARALLELEXEC;
    host.send(1, request);
    host.settle();
    let figures = host.figures();
    assert_eq!(figures.totals.all().count, 0);
    assert_eq!(figures.read_stages[Stage::Reply as usize].count, 1);
}

#[test]
fn objects_with_omaps_are_counted() {
    let mut host = serving();
    let set = || {
        let input = Bytes::from_static(b"\x01\0\0\0\x01\0\0\0k\x01\0\0\0v");
        OsdOp { input, ..OsdOp::bare(OpCode::OMAPSETVALS) }
    };
    let header = || OsdOp { input: Bytes::from_static(b"h"), ..OsdOp::bare(OpCode::OMAPSETHEADER) };
    let mut after = |name: &str, ops: Vec<OsdOp>| {
        assert_eq!(host.ask(name, ops).result, 0);
        omap_objects(&mut host)
    };
    assert_eq!(after("a", vec![set(), set()]), 1);
    assert_eq!(after("a", vec![header()]), 1);
    assert_eq!(after("b", vec![header()]), 2);
    assert_eq!(after("c", vec![write_full(b"x")]), 2);
    assert_eq!(after("a", vec![OsdOp::bare(OpCode::OMAPCLEAR)]), 1);
    assert_eq!(after("a", vec![set(), OsdOp::bare(OpCode::DELETE)]), 1);
    assert_eq!(after("b", vec![OsdOp::bare(OpCode::DELETE)]), 0);
}

#[test]
fn failed_list_counts_nothing_but_its_reads() {
    let mut host = serving();
    host.ask("there", vec![write_full(b"12345678")]);
    let before = stats(&mut host);
    let failing = || OsdOp { flags: OpFlags::EXCL, ..OsdOp::bare(OpCode::CREATE) };
    for ops in
        [vec![write_full(b"new"), failing()], vec![OsdOp::bare(OpCode::DELETE), OsdOp::bare(OpCode::DELETE)]]
    {
        for name in ["absent", "there"] {
            assert!(host.ask(name, ops.clone()).result < 0);
        }
    }
    assert_eq!(stats(&mut host), before);
}

/// A request that was held back during a split is timed from its resend.
#[test]
fn latency_of_a_request_during_a_split_is_its_own() {
    let mut host = serving();
    host.ask("a", vec![write_full(b"x")]);
    wait(&mut host, 1_000_000);
    // Its interval ends before it is durable: it is not answered.
    let unsettled = host.request(object("a"), vec![write_full(b"x")]);
    host.send(1, unsettled);
    let child = SpgId::from(PgId { pool: POOL, seed: 1 });
    host.view.pools.get_mut(&POOL).unwrap().pg_num = 2;
    let epoch = host.view.epoch + 1;
    let split = PgOrder::Split { pg: pg(), split_bits: 1, children: vec![(child, 1)], epoch };
    let serve = |pg| PgOrder::alone(pg, 1, epoch);
    host.map_meanwhile(vec![split, serve(pg()), serve(child)]);
    let mut held = Vec::new();
    for name in ["b", "c", "d", "e"] {
        let hash = object(name).hash;
        let mut request = host.request(object(name), vec![write_full(b"y")]);
        request.pg = if hash & 1 == 1 { child } else { pg() };
        held.push((host.send(1, request.clone()), request));
    }
    host.settle();
    host.acknowledge_backoffs();
    held.into_iter().for_each(|(tid, request)| host.resend(1, tid, request));
    host.settle();
    let figures = host.figures();
    assert_eq!(figures.totals.all().count, 5);
    let stages = figures.write_stages.iter().map(|stage| stage.sum_ns).max().unwrap();
    assert!(stages < 1_000_000_000, "a stage took {stages} ns");
}

#[test]
fn operations_of_an_image_count_for_a_metric_query() {
    let mut host = serving();
    let counted = |host: &mut Host| -> Vec<KeyCounts> {
        host.control.clear();
        host.step(Input::Report);
        let counts = host.control.drain(..).filter_map(|said| match said {
            ToControl::Counted(counts) => Some(counts),
            _ => None,
        });
        counts.flatten().flat_map(|shard| shard.counts.into_values()).collect()
    };
    assert_eq!(host.ask("rbd_data.1a.0", vec![write_full(b"before")]).result, 0);
    assert_eq!(counted(&mut host), [], "without a query nothing is counted");
    let query = PerfQuery {
        key: ShortList(vec![PerfKeyPart::new(PerfKeyPart::OBJECT_NAME, r"^rbd_data\.([^.]+)\.")]),
        counters: ShortList(vec![PerfCounterKind::WRITE_OPS]),
    };
    host.step(Input::Queries([MetricQuery::compile(&query).unwrap().into()].into()));
    for name in ["rbd_data.1a.0", "rbd_data.1a.1", "rbd_header.1a"] {
        let request = host.request(object(name), vec![write_full(b"hello")]);
        let tid = host.send(1, request);
        wait(&mut host, 3);
        host.settle();
        assert_eq!(host.reply(tid).result, 0);
    }
    assert_eq!(host.ask("rbd_data.1a.1", vec![read(0, 0)]).result, 0);
    assert!(host.ask("rbd_data.1a.9", vec![read(0, 0)]).result < 0, "an error is not counted");
    let [counts] = counted(&mut host)[..] else { panic!("one image") };
    let KeyCounts { writes, reads, written_bytes, read_bytes, write_ns, .. } = counts;
    assert_eq!((writes, reads, written_bytes, read_bytes, write_ns), (2, 1, 10, 5, 6_000_000));
    assert_eq!(counted(&mut host), [], "counts begin again");
}
