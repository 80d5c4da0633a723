//! Effects of operations on objects, as a client sees them.

mod harness;

use bytes::Bytes;
use harness::*;
use osd::errno::Errno;
use osd::shard::{Interval, PgOrder};
use std::sync::Arc;
use std::time::Duration;
use wire::types::*;

#[test]
fn what_is_written_is_read_and_stat_tells_its_size() {
    let mut host = Host::serving();
    let wrote = host.ask("a", vec![write_full(b"hello world")]);
    assert_eq!(wrote.result, 0);
    assert!(wrote.flags.contains(OsdFlags::ONDISK));
    assert_eq!(wrote.versions.user, 1);

    let got = host.ask("a", vec![read(6, 100)]);
    assert_eq!((got.result, &output(&got, 0)[..]), (0, &b"world"[..]));
    assert_eq!(got.versions.user, 1);
    assert_eq!(got.versions.replay, Eversion::ZERO, "a read has no version of its own");

    let stat = host.ask("a", vec![OsdOp::bare(OpCode::STAT)]);
    let mut want = 11u64.to_le_bytes().to_vec();
    want.extend(77u32.to_le_bytes());
    want.extend(0u32.to_le_bytes());
    assert_eq!(output(&stat, 0), want);
}

#[test]
fn an_absent_object_is_enoent_for_every_read_and_for_a_removal() {
    let mut host = Host::serving();
    host.ask("other", vec![write_full(b"x")]);
    for op in [read(0, 1), OsdOp::bare(OpCode::STAT), OsdOp::xattr(OpCode::GETXATTR, "x", b"")] {
        let reply = host.ask("no", vec![op]);
        assert_eq!(reply.result, Errno::NOENT.result());
        assert_eq!(reply.versions, ReplyVersions::default(), "a read of a missing object has no version");
    }
    assert_eq!(host.ask("no", vec![OsdOp::bare(OpCode::DELETE)]).result, Errno::NOENT.result());
    host.ask("no", vec![write_full(b"x")]);
    assert_eq!(host.ask("no", vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    assert_eq!(host.ask("no", vec![read(0, 1)]).result, Errno::NOENT.result());
}

/// librados tells its caller the version of a failed read; its own test expects zero (`src/test/librados/asio.cc`).
#[test]
fn absent_object_read_carries_version_zero() {
    let mut host = Host::serving();
    assert_eq!(host.ask("a", vec![write_full(b"x")]).versions.user, 1);
    let absent = host.ask("no", vec![read(0, 1)]);
    assert_eq!(
        (absent.result, absent.versions),
        (Errno::NOENT.result(), ReplyVersions::new(Eversion::ZERO, 0))
    );
}

#[test]
fn a_list_happens_whole_or_not_at_all() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"before")]);
    let exclusive = OsdOp { flags: OpFlags::EXCL, ..OsdOp::bare(OpCode::CREATE) };
    let failed = host.ask("a", vec![write(0, b"AFTER!"), exclusive.clone()]);
    assert_eq!(failed.result, Errno::EXIST.result());
    assert_eq!(failed.ops[1].result, Errno::EXIST.result());
    assert_eq!(output(&host.ask("a", vec![read(0, 0)]), 0), "before");

    let lenient = OsdOp { flags: OpFlags::EXCL | OpFlags::FAILOK, ..exclusive };
    let passed = host.ask("a", vec![write(0, b"AFTER!"), lenient]);
    assert_eq!(passed.result, 0);
    assert_eq!(output(&host.ask("a", vec![read(0, 0)]), 0), "AFTER!");
}

#[test]
fn write_beyond_end_leaves_zeroes_and_append_extends() {
    let mut host = Host::serving();
    host.ask("a", vec![write(3, b"x")]);
    host.ask("a", vec![OsdOp::extent(OpCode::APPEND, 0, 2, Bytes::from_static(b"yz"))]);
    assert_eq!(&output(&host.ask("a", vec![read(0, 0)]), 0)[..], b"\0\0\0xyz");
    host.ask("a", vec![OsdOp::extent(OpCode::TRUNCATE, 4, 0, Bytes::new())]);
    assert_eq!(&output(&host.ask("a", vec![read(0, 0)]), 0)[..], b"\0\0\0x");
    host.ask("a", vec![OsdOp::extent(OpCode::ZERO, 2, 10, Bytes::new())]);
    assert_eq!(&output(&host.ask("a", vec![read(0, 0)]), 0)[..], b"\0\0", "zeroes to the end cut it");
}

#[test]
fn requests_on_one_object_are_answered_in_order() {
    let mut host = Host::serving();
    let first = host.request(object("a"), vec![write_full(b"1")]);
    let second = host.request(object("a"), vec![read(0, 0)]);
    let third = host.request(object("a"), vec![write_full(b"3")]);
    let fourth = host.request(object("a"), vec![read(0, 0)]);
    let tids: Vec<u64> = [first, second, third, fourth].into_iter().map(|r| host.send(1, r)).collect();
    host.settle();
    let answered: Vec<u64> = host.sent.iter().map(|(_, m)| m.tid).collect();
    assert_eq!(answered, tids);
    assert_eq!(output(&host.reply(tids[1]), 0), "1");
    assert_eq!(output(&host.reply(tids[3]), 0), "3");
}

/// librados' `OPERATION_ORDER_READS_WRITES`: Ceph's model checker sends one such read behind the writes of an object, and
/// takes an answer before theirs for a fault (`src/test/osd/RadosModel.h`).
#[test]
fn ordered_read_is_answered_after_earlier_writes() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"0")]);
    let writes = [
        host.request(object("a"), vec![write_full(b"1")]),
        host.request(object("a"), vec![write_full(b"2")]),
    ];
    let mut ordered = host.request(object("a"), vec![read(0, 0)]);
    ordered.flags |= OsdFlags::RWORDERED;
    let later = host.request(object("a"), vec![write_full(b"3")]);
    let requests = writes.into_iter().chain([ordered, later]);
    let tids: Vec<u64> = requests.map(|request| host.send(1, request)).collect();
    assert!(host.sent.is_empty(), "nothing is durable yet");
    host.settle();
    let answered: Vec<u64> = host.sent.iter().map(|(_, m)| m.tid).collect();
    assert_eq!(answered, tids);
    assert_eq!(output(&host.reply(tids[2]), 0), "2");
}

#[test]
fn resent_write_is_answered_and_not_repeated() {
    let mut host = Host::serving();
    let append = OsdOp::extent(OpCode::APPEND, 0, 1, Bytes::from_static(b"x"));
    let request = host.request(object("a"), vec![append]);
    let tid = host.send(1, request.clone());
    host.resend(1, tid, request.clone());
    host.settle();
    let (first, second) = (host.reply(tid), host.reply(tid));
    assert_eq!((first.versions, first.result), (second.versions, second.result));
    host.resend(1, tid, request);
    host.settle();
    assert_eq!(host.reply(tid).versions, first.versions);
    assert_eq!(output(&host.ask("a", vec![read(0, 0)]), 0), "x");
}

#[test]
fn resent_write_is_recognised_after_restart() {
    let mut host = Host::serving();
    let append = OsdOp::extent(OpCode::APPEND, 0, 1, Bytes::from_static(b"x"));
    let request = host.request(object("a"), vec![append]);
    let tid = host.send(1, request.clone());
    let missing = host.request(object("b"), vec![OsdOp::bare(OpCode::DELETE)]);
    let missing_tid = host.send(1, missing.clone());
    host.settle();
    let first = host.reply(tid);
    host.ask("b", vec![write_full(b"now there")]);

    let epoch = host.view.epoch;
    let mut host = Host::with(config(), host.store);
    host.view.epoch = epoch;
    host.open(1, 4100);
    host.map(vec![PgOrder::alone(pg(), 0, epoch)]);
    host.resend(1, tid, request);
    host.resend(1, missing_tid, missing);
    host.settle();
    assert_eq!(host.reply(tid).versions, first.versions);
    assert_eq!(host.reply(missing_tid).result, Errno::NOENT.result());
    assert_eq!(output(&host.ask("a", vec![read(0, 0)]), 0), "x");
    assert_eq!(output(&host.ask("b", vec![read(0, 0)]), 0), "now there");
}

#[test]
fn request_of_newer_map_waits_and_blocks_later_requests() {
    let mut host = Host::serving();
    let mut early = host.request(object("a"), vec![write_full(b"1")]);
    early.epoch += 1;
    let late = host.request(object("a"), vec![write_full(b"2")]);
    let (early, late) = (host.send(1, early), host.send(1, late));
    host.settle();
    assert!(host.sent.is_empty());
    host.map(Vec::new());
    let order: Vec<u64> = host.sent.iter().map(|(_, m)| m.tid).collect();
    assert_eq!(order, [early, late]);
}

#[test]
fn attributes_and_omap() {
    let mut host = Host::serving();
    host.ask("a", vec![OsdOp::xattr(OpCode::SETXATTR, "color", b"blue")]);
    let got = host.ask("a", vec![OsdOp::xattr(OpCode::GETXATTR, "color", b"")]);
    assert_eq!(output(&got, 0), "blue");
    let none = host.ask("a", vec![OsdOp::xattr(OpCode::GETXATTR, "shape", b"")]);
    assert_eq!(none.result, Errno::NODATA.result());
    let all = host.ask("a", vec![OsdOp::bare(OpCode::GETXATTRS)]);
    assert_eq!(&output(&all, 0)[..], b"\x01\0\0\0\x05\0\0\0color\x04\0\0\0blue");

    let mut set = OsdOp::bare(OpCode::OMAPSETVALS);
    set.input = Bytes::from_static(b"\x02\0\0\0\x01\0\0\0k\x01\0\0\0v\x01\0\0\0l\x01\0\0\0w");
    host.ask("a", vec![set]);
    let mut list = OsdOp::bare(OpCode::OMAPGETVALS);
    list.input = Bytes::from_static(b"\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0");
    let got = host.ask("a", vec![list]);
    assert_eq!(&output(&got, 0)[..], b"\x01\0\0\0\x01\0\0\0k\x01\0\0\0v\x01", "one entry, and there is more");
}

#[test]
fn a_watcher_is_told_and_the_notifier_hears_its_answer() {
    let mut host = Host::serving();
    host.open(2, 4200);
    host.ask("a", vec![write_full(b"")]);
    let watch = osd_op::WatchParams { cookie: 5, op: op_value::WATCH_WATCH, ..Default::default() };
    let request = host.request(object("a"), vec![OsdOp::new(OpCode::WATCH, watch, Bytes::new())]);
    let tid = host.send(2, request);
    host.settle();
    assert_eq!(host.reply(tid).result, 0);

    let mut notify = OsdOp::bare(OpCode::NOTIFY);
    notify.input = Bytes::from_static(b"\x01\0\0\0\x0a\0\0\0\x02\0\0\0hi");
    let started = host.ask("a", vec![notify]);
    let id = u64::from_le_bytes(output(&started, 0)[..].try_into().unwrap());
    let event = host.event(2).unwrap();
    assert_eq!((event.notify_id, event.cookie, &event.payload[..]), (id, 5, &b"hi"[..]));
    assert!(host.event(1).is_none(), "not before the watcher has answered");

    let mut ack = OsdOp::bare(OpCode::NOTIFY_ACK);
    ack.input = [&id.to_le_bytes()[..], &5u64.to_le_bytes(), b"\x02\0\0\0yo"].concat().into();
    let request = host.request(object("a"), vec![ack]);
    host.send(2, request);
    host.settle();
    let done = host.event(1).unwrap();
    assert_eq!((done.event, done.result), (op_value::EVENT_NOTIFY_COMPLETE, 0));
    let outcome: NotifyOutcome = codec::decode_exact(&done.outcome).unwrap();
    assert_eq!(outcome.replies, [((4200, 5), Bytes::from_static(b"yo"))]);
}

/// The log keeps thousands of results in memory.
#[test]
fn log_keeps_no_long_output_of_a_failed_write() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(&[7; 5000])]);
    let mismatch = OsdOp::extent(OpCode::CMPEXT, 0, 1, Bytes::from_static(b"x"));
    let request = host.request(object("a"), vec![read(0, 10), read(0, 5000), mismatch, write(0, b"y")]);
    let tid = host.send(1, request.clone());
    host.settle();
    let first = host.reply(tid);
    assert!(first.result < 0);
    assert_eq!((output(&first, 0).len(), output(&first, 1).len()), (10, 5000));
    host.resend(1, tid, request);
    host.settle();
    let again = host.reply(tid);
    assert_eq!((again.result, again.ops[2].result), (first.result, first.ops[2].result));
    assert_eq!((output(&again, 0).len(), output(&again, 1).len()), (10, 0));
}

/// The OSD was marked down by mistake and is up again: it serves the PG anew, in the same process.
#[test]
fn watcher_of_an_earlier_interval_times_out() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"x")]);
    let watch =
        osd_op::WatchParams { cookie: 5, op: op_value::WATCH_WATCH, timeout_s: 7, ..Default::default() };
    host.open(2, 4200);
    let request = host.request(object("a"), vec![OsdOp::new(OpCode::WATCH, watch, Bytes::new())]);
    host.send(2, request);
    host.settle();
    // A write that is not durable when the PG stops serving. Its client sends it again in the next interval.
    let mut request = host.request(object("a"), vec![write_full(b"y")]);
    let tid = host.send(1, request.clone());
    host.map_meanwhile(vec![PgOrder::Idle { pg: pg() }]);
    host.close(2);
    host.settle();
    assert!(host.find_reply(tid).is_none(), "the interval ended before the commit");
    let since = host.view.epoch + 1;
    host.map(vec![PgOrder::alone(pg(), 0, since)]);
    host.acknowledge_backoffs();
    request.epoch = since;
    host.resend(1, tid, request);
    host.settle();
    let again = host.reply(tid);
    assert_eq!((again.result, again.versions.replay.epoch), (0, since - 2), "it was carried out once");

    let watchers = |host: &mut Host| {
        let reply = host.ask("a", vec![OsdOp::bare(OpCode::LIST_WATCHERS)]);
        codec::decode_exact::<WatcherList>(&output(&reply, 0)).unwrap().entries.len()
    };
    assert_eq!(watchers(&mut host), 1, "it may come back");
    host.pass(Duration::from_secs(8));
    // The log had come to rest: the end of the watch waits for it.
    host.pass(Duration::from_millis(100));
    assert_eq!(watchers(&mut host), 0);
}

#[test]
fn a_silent_watcher_times_out_and_is_struck_from_the_object() {
    let mut host = Host::serving();
    host.open(2, 4200);
    host.ask("a", vec![write_full(b"")]);
    let watch =
        osd_op::WatchParams { cookie: 5, op: op_value::WATCH_WATCH, timeout_s: 7, ..Default::default() };
    let request = host.request(object("a"), vec![OsdOp::new(OpCode::WATCH, watch, Bytes::new())]);
    host.send(2, request);
    host.settle();
    let watchers = |host: &mut Host| {
        let reply = host.ask("a", vec![OsdOp::bare(OpCode::LIST_WATCHERS)]);
        codec::decode_exact::<WatcherList>(&output(&reply, 0)).unwrap().entries.len()
    };
    assert_eq!(watchers(&mut host), 1);
    host.close(2);
    host.pass(Duration::from_secs(6));
    assert_eq!(watchers(&mut host), 1);
    host.pass(Duration::from_secs(2));
    host.pass(Duration::from_millis(100));
    assert_eq!(watchers(&mut host), 0);
}

/// A client breaks the lock of another one and puts that on the blocklist: it need not wait for the other's watches.
#[test]
fn blocklisted_watchers_are_struck_from_the_object() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"")]);
    for (conn, gid) in [(2, 4200), (3, 4300)] {
        host.open(conn, gid);
        let watch = osd_op::WatchParams { cookie: 5, op: op_value::WATCH_WATCH, ..Default::default() };
        let request = host.request(object("a"), vec![OsdOp::new(OpCode::WATCH, watch, Bytes::new())]);
        host.send(conn, request);
        host.settle();
    }
    let watchers = |host: &mut Host| {
        let reply = host.ask("a", vec![OsdOp::bare(OpCode::LIST_WATCHERS)]);
        codec::decode_exact::<WatcherList>(&output(&reply, 0)).unwrap().entries
    };
    let before = watchers(&mut host);
    assert_eq!(before.len(), 2);
    let mut notify = OsdOp::bare(OpCode::NOTIFY);
    notify.input = Bytes::from_static(b"\x01\0\0\0\x0a\0\0\0\0\0\0\0");
    host.ask("a", vec![notify]);
    // One of them is connected and silent, the other one's connection is lost.
    host.close(3);
    for watcher in &before {
        host.view.blocklist.insert(EntityAddr { kind: AddrKind::ANY, ..watcher.addr });
    }
    host.map(Vec::new());
    host.pass(Duration::ZERO);
    let done = host.event(1).expect("the notification is complete");
    assert_eq!((done.event, done.result), (op_value::EVENT_NOTIFY_COMPLETE, 0));
    assert_eq!(watchers(&mut host), []);
}

#[test]
fn a_notification_that_is_not_answered_in_time_says_who_did_not() {
    let mut host = Host::serving();
    host.open(2, 4200);
    host.ask("a", vec![write_full(b"")]);
    let watch = osd_op::WatchParams { cookie: 5, op: op_value::WATCH_WATCH, ..Default::default() };
    let request = host.request(object("a"), vec![OsdOp::new(OpCode::WATCH, watch, Bytes::new())]);
    host.send(2, request);
    host.settle();
    let mut notify = OsdOp::bare(OpCode::NOTIFY);
    notify.input = Bytes::from_static(b"\x01\0\0\0\x03\0\0\0\0\0\0\0");
    host.ask("a", vec![notify]);
    host.pass(Duration::from_secs(4));
    let done = host.event(1).unwrap();
    assert_eq!(done.result, Errno::TIMEDOUT.result());
    let outcome: NotifyOutcome = codec::decode_exact(&done.outcome).unwrap();
    assert_eq!(outcome.missed, [(4200, 5)]);
}

#[test]
fn listing_continues_at_cursor_until_complete() {
    let mut host = Host::serving();
    for name in ["a", "b", "c", "d", "e"] {
        host.ask(name, vec![write_full(b"x")]);
    }
    let mut cursor = HObject::min();
    let mut names = Vec::new();
    for _ in 0..10 {
        let mut op = OsdOp::new(
            OpCode::PGNLS,
            osd_op::PglsParams { count: 2, start_epoch: 0 },
            codec::Encode::to_vec(&cursor, codec::Features::ALL).into(),
        );
        op.flags = OpFlags::NONE;
        let place = HObject { pool: POOL, snap: SnapId::HEAD, ..HObject::min() };
        let request = host.request(place, vec![op]);
        let tid = host.send(1, request);
        host.settle();
        let reply = host.reply(tid);
        let page: ListPage = codec::decode_exact(&output(&reply, 0)).unwrap();
        assert!(page.entries.len() <= 2);
        names.extend(page.entries.into_iter().map(|e| e.name));
        if reply.result == 1 {
            break;
        }
        cursor = page.next;
    }
    names.sort();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
}

#[test]
fn clients_of_a_pg_that_is_not_here_are_held_back_and_let_go() {
    let mut host = Host::with(config(), memory_store());
    host.open(1, 4100);
    let interval = |since, acting: Vec<i32>| PgOrder::Interval {
        pg: pg(),
        split_bits: 0,
        created: 0,
        is_birth: false,
        interval: Arc::new(Interval::new(since, acting, 1, 1)),
        past: Arc::new(PastIntervals { known_since: 10, intervals: Vec::new() }),
    };
    host.map(vec![interval(11, vec![0])]);
    let request = host.request(object("a"), vec![write_full(b"x")]);
    host.send(1, request);
    host.settle();
    let backoffs = |host: &mut Host| {
        let ops: Vec<u8> = host
            .sent
            .drain(..)
            .filter_map(|(_, m)| match m.body {
                wire::messages::Body::MOSDBackoff(b) => Some(b.op),
                _ => None,
            })
            .collect();
        ops
    };
    assert_eq!(backoffs(&mut host), [op_value::BACKOFF_BLOCK]);
    host.map(vec![interval(12, vec![1])]);
    assert_eq!(backoffs(&mut host), [op_value::BACKOFF_UNBLOCK]);
}

/// The primary has this copy removed while the map splits the PG, whose children are elsewhere or here.
#[test]
fn split_of_a_pg_that_is_removed_makes_no_children() {
    use osd::shard::ToControl;
    use store::ObjectStore;
    let mut host = Host::serving();
    for n in 0..20 {
        host.ask(&format!("o{n}"), vec![write_full(b"x")]);
    }
    host.map_meanwhile(vec![PgOrder::Remove { pg: pg() }]);
    host.view.pools.get_mut(&POOL).unwrap().pg_num = 2;
    let child = SpgId::from(PgId { pool: POOL, seed: 1 });
    let split =
        PgOrder::Split { pg: pg(), split_bits: 1, children: vec![(child, 1)], epoch: host.view.epoch + 1 };
    host.map_meanwhile(vec![split, PgOrder::Idle { pg: pg() }]);
    host.settle();
    assert_eq!(host.store.collections(), []);
    let removed = host.control.iter().filter_map(|said| match said {
        ToControl::Removed { pg } => Some(*pg),
        _ => None,
    });
    assert_eq!(removed.collect::<Vec<_>>(), [child, pg()]);
}

#[test]
fn a_deleted_pools_pg_leaves_nothing_behind() {
    let mut host = Host::serving();
    for n in 0..300 {
        host.ask(&format!("o{n}"), vec![write_full(b"x")]);
    }
    host.map(vec![PgOrder::Remove { pg: pg() }]);
    use store::ObjectStore;
    assert_eq!(host.store.collections(), []);
    assert!(host.control.iter().any(|c| matches!(c, osd::shard::ToControl::Removed { .. })));
}

#[test]
fn removal_whose_listing_failed_is_repeated() {
    use store::ObjectStore;
    let mut host = Host::serving();
    host.ask("o", vec![write_full(b"x")]);
    // A listing of all objects begins with no object's name.
    host.hidden = Some(("", Hidden::Listing));
    host.map(vec![PgOrder::Remove { pg: pg() }]);
    host.pass(std::time::Duration::from_secs(61));
    assert_eq!(host.store.collections().len(), 1);
    host.heal();
    host.pass(std::time::Duration::from_secs(61));
    assert_eq!(host.store.collections(), []);
    assert!(host.control.iter().any(|c| matches!(c, osd::shard::ToControl::Removed { .. })));
}

#[test]
fn a_split_gives_each_child_its_objects_and_its_log() {
    let mut host = Host::serving();
    let mut requests = Vec::new();
    for n in 0..64 {
        let request = host.request(object(&format!("o{n}")), vec![write_full(b"x")]);
        requests.push((host.send(1, request.clone()), request));
    }
    host.settle();
    host.sent.clear();
    host.view.pools.get_mut(&POOL).unwrap().pg_num = 4;
    let since = host.view.epoch - 1;
    let epoch = host.view.epoch + 1;
    let child = |seed| SpgId::from(PgId { pool: POOL, seed });
    let mut orders = vec![PgOrder::Split {
        pg: pg(),
        split_bits: 2,
        children: (1..4).map(|s| (child(s), 2)).collect(),
        epoch,
    }];
    orders.extend((0..4).map(|seed| PgOrder::alone(child(seed), 2, since)));
    host.map(orders);
    for (tid, mut request) in requests {
        let seed = request.object.hash & 3;
        request.pg = child(seed);
        request.epoch = host.view.epoch;
        let again = request.clone();
        host.resend(1, tid, again);
        host.settle();
        assert_eq!(host.reply(tid).result, 0, "recognised as seen before");
        request.ops = wire::messages::OsdOps::from_vec(vec![read(0, 0)]);
        let tid = host.send(1, request);
        host.settle();
        assert_eq!(output(&host.reply(tid), 0), "x");
    }
}

/// A write of the parent is on its way, and requests are held back until the children serve: simulator seed 38 of 2026-11-23 read
/// ENOENT in a child that began before the split was submitted.
#[test]
fn requests_waiting_for_a_child_start_behind_the_split() {
    let mut host = Host::serving();
    let names: Vec<String> = (0..16).map(|n| format!("o{n}")).collect();
    for name in &names {
        assert_eq!(host.ask(name, vec![write_full(b"x")]).result, 0);
    }
    let unfinished = host.request(object("o0"), vec![write_full(b"x")]);
    host.send(1, unfinished);
    host.view.epoch += 1;
    host.view.pools.get_mut(&POOL).unwrap().pg_num = 4;
    let since = host.view.epoch;
    let child = |seed| SpgId::from(PgId { pool: POOL, seed });
    let children = (1..4).map(|seed| (child(seed), 2)).collect();
    let mut orders = vec![PgOrder::Split { pg: pg(), split_bits: 2, children, epoch: since }];
    orders.extend((0..4).map(|seed| PgOrder::alone(child(seed), 2, since)));
    host.step(osd::shard::Input::Map { view: host.view.clone().into(), orders });
    let mut tids = Vec::new();
    for name in &names {
        let mut request = host.request(object(name), vec![read(0, 0)]);
        request.pg = child(request.object.hash & 3);
        tids.push((host.send(1, request.clone()), request));
    }
    host.settle();
    let told = |host: &Host, op: u8| {
        let is_it = |m: &wire::messages::Message| matches!(&m.body, wire::messages::Body::MOSDBackoff(b) if b.op == op);
        host.sent.iter().filter(|(_, m)| is_it(m)).count()
    };
    assert_eq!(told(&host, op_value::BACKOFF_BLOCK), 4);
    assert_eq!(told(&host, op_value::BACKOFF_UNBLOCK), 4);
    // What the client sends before it has seen the message is dropped, so that nothing overtakes what it keeps.
    let (tid, request) = tids[0].clone();
    host.resend(1, tid, request);
    host.settle();
    assert!(host.find_reply(tid).is_none());
    host.acknowledge_backoffs();
    for (name, (tid, request)) in names.iter().zip(tids) {
        assert!(host.find_reply(tid).is_none(), "the client keeps it");
        host.resend(1, tid, request);
        host.settle();
        let reply = host.reply(tid);
        assert_eq!((reply.result, output(&reply, 0)), (0, "x".into()), "{name}");
    }
}

#[test]
fn split_interrupted_by_crash_is_repeated_without_loss() {
    use store::ObjectStore;
    let child = |seed| SpgId::from(PgId { pool: POOL, seed });
    let split = |epoch| PgOrder::Split {
        pg: pg(),
        split_bits: 2,
        children: (1..4).map(|s| (child(s), 2)).collect(),
        epoch,
    };
    let names: Vec<String> = (0..64).map(|n| format!("o{n}")).collect();
    let mut cut_short = 0;
    for survivors in 0.. {
        let tracked =
            store::memory::Config { track_committed: true, ..store::memory::Config::with_total(1 << 30) };
        let mut host = Host::with(config(), store::MemoryStore::new(tracked));
        host.open(1, 4100);
        let since = host.view.epoch;
        host.map(vec![PgOrder::alone(pg(), 0, since)]);
        for name in &names {
            assert_eq!(host.ask(name, vec![write_full(b"x")]).result, 0);
        }
        host.settle();
        host.view.epoch += 1;
        host.view.pools.get_mut(&POOL).unwrap().pg_num = 4;
        let (view, orders) = (host.view.clone().into(), vec![split(host.view.epoch)]);
        host.step(osd::shard::Input::Map { view, orders });
        if survivors > host.store.uncommitted() {
            break;
        }

        let mut back = Host::with(config(), host.store.crash_image(survivors).unwrap());
        back.view.pools.get_mut(&POOL).unwrap().pg_num = 4;
        back.view.epoch = host.view.epoch;
        back.open(1, 4100);
        let parent = back.store.collections().into_iter().find(|(c, _)| *c == store::Collection::Pg(pg()));
        let is_split = parent.unwrap().1 == 2;
        cut_short += !is_split as u32;
        let since = back.view.epoch + 1;
        let mut orders = if is_split { vec![] } else { vec![split(since)] };
        orders.extend((0..4).map(|seed| PgOrder::alone(child(seed), 2, since)));
        back.map(orders);
        for name in &names {
            let mut request = back.request(object(name), vec![read(0, 0)]);
            request.pg = child(request.object.hash & 3);
            let tid = back.send(1, request);
            back.settle();
            assert_eq!(
                output(&back.reply(tid), 0),
                "x",
                "{name} after {survivors} of the split's transactions"
            );
        }
    }
    assert_eq!(cut_short, 4, "with none, one, two and three of the children, and not the parent");
}

/// Of an object that is only just being made there is nothing to compare with.
#[test]
fn attributes_of_an_absent_object_are_enoent_within_a_write() {
    let mut host = Host::serving();
    let create = OsdOp::bare(OpCode::CREATE);
    for op in [OsdOp::xattr(OpCode::GETXATTR, "x", b""), OsdOp::bare(OpCode::GETXATTRS), equal("x", "")] {
        let label = format!("{op:?}");
        assert_eq!(host.ask("no", vec![create.clone(), op]).result, Errno::NOENT.result(), "{label}");
    }
    host.ask("a", vec![create]);
    assert_eq!(host.ask("a", vec![OsdOp::xattr(OpCode::GETXATTR, "x", b"")]).result, Errno::NODATA.result());
    assert_eq!(host.ask("a", vec![equal("x", ""), write_full(b"y")]).result, 0);
    assert_eq!(host.ask("a", vec![equal("x", "")]).result, 1, "a comparison that holds says so");
    assert_eq!(host.ask("a", vec![equal("x", "z")]).result, Errno::CANCELED.result());
}

/// `cmpxattr NAME == VALUE`, as text.
fn equal(name: &str, value: &str) -> OsdOp {
    let params = osd_op::XattrParams {
        name_len: name.len() as u32,
        value_len: value.len() as u32,
        cmp_op: op_value::CMP_EQ,
        cmp_mode: op_value::CMP_MODE_STRING,
    };
    OsdOp::new(OpCode::CMPXATTR, params, [name.as_bytes(), value.as_bytes()].concat().into())
}

#[test]
fn full_pool_takes_removals_and_fails_writes_with_full_try() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"x")]);
    host.view.pools.get_mut(&POOL).unwrap().full = true;
    host.map(Vec::new());
    let mut send = |name: &str, flags: OsdFlags, op: OsdOp| {
        let mut request = host.request(object(name), vec![op]);
        request.flags = flags;
        let tid = host.send(1, request);
        host.settle();
        host.find_reply(tid).map(|r| r.result)
    };
    assert_eq!(send("a", OsdFlags::NONE, write_full(b"longer")), None, "the client will send it again");
    assert_eq!(send("a", OsdFlags::FULL_TRY, write_full(b"longer")), Some(Errno::NOSPC.result()));
    assert_eq!(send("a", OsdFlags::NONE, write_full(b"y")), Some(0), "it takes no more space");
    assert_eq!(send("b", OsdFlags::FULL_FORCE, write_full(b"x")), Some(0));
    assert_eq!(send("a", OsdFlags::NONE, OsdOp::bare(OpCode::DELETE)), Some(0));
}
