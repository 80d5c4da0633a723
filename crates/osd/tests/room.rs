//! Requests for which there is no room, as a client sees them: they are sent again, in order.

mod harness;

use bytes::Bytes;
use harness::*;
use machine::ConnId;
use osd::errno::Errno;
use osd::shard::{Input, PoolView};
use wire::types::*;

const DELETE: OpCode = OpCode::DELETE;

fn send(host: &mut Host, conn: u64, name: &str, op: OsdOp) -> u64 {
    let request = host.request(object(name), vec![op]);
    let tid = host.send(conn, request);
    host.settle();
    tid
}

fn is_answered(host: &mut Host, tid: u64) -> bool {
    host.find_reply(tid).is_some()
}

fn full(host: &mut Host, full: bool) {
    host.step(Input::Space { full });
    host.settle();
}

/// Two clients, and an object that is there.
fn host() -> Host {
    let mut host = Host::serving();
    host.open(2, 4200);
    host.ask("a", vec![write_full(b"before")]);
    host
}

#[test]
fn client_of_dropped_write_is_disconnected_when_room_returns() {
    let mut host = host();
    full(&mut host, true);
    let lost = send(&mut host, 1, "a", write_full(b"lost"));
    assert!(!is_answered(&mut host, lost));
    full(&mut host, true);
    assert_eq!(host.closed, []);
    full(&mut host, false);
    assert_eq!(host.closed, [ConnId(1)], "and not the client that lost nothing");
    host.close(1);
    host.open(3, 4100);
    let again = send(&mut host, 3, "a", write_full(b"again"));
    assert!(is_answered(&mut host, again));
    full(&mut host, true);
    full(&mut host, false);
    assert_eq!(host.closed, [ConnId(1)]);
}

#[test]
fn nothing_of_the_same_client_overtakes_what_it_lost() {
    let mut host = host();
    full(&mut host, true);
    send(&mut host, 1, "a", write_full(b"lost"));
    // What takes no room, and what only reads.
    for op in [OsdOp::bare(DELETE), read(0, 0)] {
        let later = send(&mut host, 1, "a", op);
        assert!(!is_answered(&mut host, later));
    }
    // Others, and other objects, are not concerned.
    let other_client = send(&mut host, 2, "a", read(0, 0));
    assert_eq!(output(&host.reply(other_client), 0), "before");
    let other_object = send(&mut host, 1, "b", read(0, 0));
    assert_eq!(host.reply(other_object).result, Errno::NOENT.result());
    // Also not what comes between room and the connection's end.
    full(&mut host, false);
    let too_early = send(&mut host, 1, "a", write_full(b"too early"));
    assert!(!is_answered(&mut host, too_early));
    full(&mut host, false);
    assert_eq!(host.closed, [ConnId(1)], "once");
    let untouched = send(&mut host, 2, "a", read(0, 0));
    assert_eq!(output(&host.reply(untouched), 0), "before");
}

/// Behind another client's read, when there is room before its turn has come.
#[test]
fn nor_does_what_waited_when_there_was_room_again() {
    let mut host = host().restart();
    host.open(2, 4200);
    // The log does not rest any more, and the object is not read yet.
    assert_eq!(host.ask("other", vec![write_full(b"x")]).result, 0);
    full(&mut host, true);
    let requests = [(1, write_full(b"lost")), (2, read(0, 0)), (1, write_full(b"behind"))];
    let [lost, other, behind] = requests.map(|(conn, op)| {
        let request = host.request(object("a"), vec![op]);
        host.send(conn, request)
    });
    // The first is dropped, and the second is reading.
    host.poll_once();
    host.step(Input::Space { full: false });
    assert_eq!(host.closed, [ConnId(1)]);
    host.settle();
    assert_eq!([lost, behind].map(|tid| is_answered(&mut host, tid)), [false; 2]);
    assert_eq!(output(&host.reply(other), 0), "before");
}

#[test]
fn nor_does_what_waited_behind_it() {
    let mut host = host();
    // Their turns come when the object has been read, and by then there is no room.
    let mut host = std::mem::replace(&mut host, Host::serving()).restart();
    let requests = [write_full(b"lost"), OsdOp::bare(DELETE), read(0, 0)];
    let tids = requests.map(|op| {
        let request = host.request(object("a"), vec![op]);
        host.send(1, request)
    });
    full(&mut host, true);
    assert_eq!(tids.map(|tid| is_answered(&mut host, tid)), [false; 3]);
    full(&mut host, false);
    assert_eq!(host.closed, [ConnId(1)]);
}

#[test]
fn a_write_that_insists_is_refused_and_a_delete_is_done() {
    let mut host = host();
    full(&mut host, true);
    for flag in [OsdFlags::FULL_TRY, OsdFlags::FULL_FORCE] {
        let mut request = host.request(object("a"), vec![write_full(b"lost")]);
        request.flags = flag;
        let tid = host.send(1, request);
        host.settle();
        assert_eq!(host.reply(tid).result, Errno::NOSPC.result());
    }
    let delete = send(&mut host, 1, "a", OsdOp::bare(DELETE));
    assert_eq!(host.reply(delete).result, 0);
    full(&mut host, false);
    assert_eq!(host.closed, []);
}

#[test]
fn beyond_the_failsafe_ratio_it_is_the_same() {
    let mut host = host();
    host.view.failsafe.is_full = true;
    host.map(Vec::new());
    let lost = send(&mut host, 1, "a", OsdOp::bare(DELETE));
    assert!(!is_answered(&mut host, lost));
    let later = send(&mut host, 1, "a", read(0, 0));
    assert!(!is_answered(&mut host, later));
    full(&mut host, true);
    full(&mut host, false);
    assert_eq!(host.closed, [], "there is no room yet");
    host.view.failsafe.is_full = false;
    host.map(Vec::new());
    assert_eq!(host.closed, [ConnId(1)]);
}

/// As stock does: what was sent before the pool was full is sent again after, and must not happen before what was
/// dropped meanwhile.
#[test]
fn what_was_sent_before_the_pool_was_full_is_dropped() {
    let mut host = host();
    let early = host.view.epoch;
    let with_pool = |host: &mut Host, full, full_since| {
        host.view.pools.insert(POOL, PoolView { full, full_since, ..host.view.pools[&POOL].clone() });
        host.map(Vec::new());
    };
    with_pool(&mut host, true, early + 1);
    with_pool(&mut host, false, early + 1);
    let ask = |host: &mut Host, epoch, flags, op| {
        let mut request = host.request(object("a"), vec![op]);
        (request.epoch, request.flags) = (epoch, flags);
        let tid = host.send(1, request);
        host.settle();
        is_answered(host, tid)
    };
    let none = OsdFlags::NONE;
    assert!(!ask(&mut host, early, none, write_full(b"early")));
    assert!(!ask(&mut host, early, none, OsdOp::bare(DELETE)));
    assert!(ask(&mut host, early, none, read(0, 0)));
    assert!(ask(&mut host, early, OsdFlags::FULL_TRY, write_full(b"insists")));
    assert!(ask(&mut host, early + 1, none, write_full(b"has seen it")));
    assert_eq!(host.closed, []);
}

/// The first write needs room and is reading when the pool becomes full; the second needs none.
#[test]
fn write_does_not_overtake_one_that_is_dropped_at_its_turn() {
    let mut host = host();
    let compare = OsdOp::extent(OpCode::CMPEXT, 0, 6, Bytes::from_static(b"before"));
    let growing = host.request(object("a"), vec![compare, write(6, b" and after")]);
    let growing = host.send(1, growing);
    let header = OsdOp { input: Bytes::from_static(b"header"), ..OsdOp::bare(OpCode::OMAPSETHEADER) };
    let small = host.request(object("a"), vec![header]);
    let small = host.send(1, small);
    let others = host.request(object("a"), vec![read(0, 0)]);
    let others = host.send(2, others);
    let full_since = host.view.epoch + 1;
    host.view.pools.insert(POOL, PoolView { full: true, full_since, ..host.view.pools[&POOL].clone() });
    host.map(Vec::new());
    host.settle();
    assert!(!is_answered(&mut host, growing) && !is_answered(&mut host, small));
    assert_eq!(host.reply(others).ops[0].output.to_bytes(), b"before"[..]);
    assert_eq!(host.closed, [], "its client sends both again when a map says that there is room");
}
