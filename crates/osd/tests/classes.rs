//! Class calls and capabilities, seen as a client sees them.

mod harness;

use bytes::Bytes;
use codec::{Encode, Features};
use harness::*;
use machine::{ConnId, identity::Proof, net::Peer};
use osd::errno::Errno;
use osd::shard::Input;
use std::sync::Arc;
use wire::types::cls::{cas, fifo, lock, refcount, version};
use wire::types::*;

fn call<T: Encode>(class: &str, method: &str, argument: &T) -> OsdOp {
    OsdOp::call(class, method, &argument.to_vec(Features::ALL)).unwrap()
}

fn bare_call(class: &str, method: &str, argument: &[u8]) -> OsdOp {
    OsdOp::call(class, method, argument).unwrap()
}

fn take_lock(cookie: &str) -> OsdOp {
    let op = lock::LockOp {
        name: "l".into(),
        kind: lock::LockType::EXCLUSIVE,
        cookie: cookie.into(),
        ..lock::LockOp::default()
    };
    call("lock", "lock", &op)
}

#[test]
fn a_lock_is_taken_seen_and_refused_to_another() {
    let mut host = Host::serving();
    host.open(2, 4200);
    assert_eq!(host.ask("a", vec![take_lock("c")]).result, 0);
    assert_eq!(host.ask("a", vec![take_lock("c")]).result, Errno::EXIST.result());
    let request = host.request(object("a"), vec![take_lock("c")]);
    let tid = host.send(2, request);
    host.settle();
    assert_eq!(host.reply(tid).result, Errno::BUSY.result());

    let info = call("lock", "get_info", &lock::GetInfoOp { name: "l".into() });
    let reply = host.ask("a", vec![info]);
    let info: lock::LockInfo = codec::decode_exact(&output(&reply, 0)).unwrap();
    let (holder, locker) = info.lockers.first_key_value().unwrap();
    assert_eq!(holder.locker, EntityName::new(EntityKind::CLIENT, 4100));
    assert_eq!(locker.addr.kind, AddrKind::LEGACY);
}

#[test]
fn call_reads_state_before_list_and_changes_within_it() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"quiet")]);
    let loud = bare_call("hello", "turn_it_to_11", b"");
    let failing = OsdOp { flags: OpFlags::EXCL, ..OsdOp::bare(OpCode::CREATE) };
    assert_eq!(host.ask("a", vec![loud.clone(), failing]).result, Errno::EXIST.result());
    assert_eq!(output(&host.ask("a", vec![read(0, 0)]), 0), "quiet");

    // Plain reads beside it keep their answers although the list is run again.
    assert_eq!(host.ask("a", vec![OsdOp::xattr(OpCode::SETXATTR, "x", b"1"), loud]).result, 0);
    let got = host.ask("a", vec![read(0, 2), bare_call("hello", "replay", b""), read(2, 9)]);
    let outputs: Vec<Bytes> = (0..3).map(|i| output(&got, i)).collect();
    assert_eq!(outputs, ["QU", "QUIET", "IET"]);
    let signed = host.ask("a", vec![OsdOp::xattr(OpCode::GETXATTR, "amplified_by", b"")]);
    assert_eq!(output(&signed, 0), "client.4100 v2:10.0.0.1:40001/1");
}

#[test]
fn a_write_returns_data_only_to_whoever_asks() {
    let mut host = Host::serving();
    let ask = |host: &mut Host, method: &str, flags| {
        let op = bare_call("hello", method, b"");
        let mut request = host.request(object("a"), vec![op]);
        request.flags = flags;
        let tid = host.send(1, request);
        host.settle();
        host.reply(tid)
    };
    let quiet = ask(&mut host, "write_return_data", OsdFlags::NONE);
    assert_eq!((quiet.result, output(&quiet, 0).len()), (0, 0));
    let told = ask(&mut host, "write_return_data", OsdFlags::RETURNVEC);
    assert_eq!((told.result, told.ops[0].result), (42, 42));
    assert_eq!(output(&told, 0), "you might see this");
    let overlong = ask(&mut host, "write_too_much_return_data", OsdFlags::RETURNVEC);
    assert_eq!(overlong.result, Errno::OVERFLOW.result());
    let failed = host.ask("a", vec![bare_call("hello", "write_return_data", b"x")]);
    assert_eq!(failed.result, Errno::INVAL.result());
}

#[test]
fn what_is_not_there_is_refused_and_misbehaviour_is_an_io_error() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"x")]);
    for (class, method, errno) in [
        ("nothing", "x", Errno::PERM),
        ("rgw", "x", Errno::OPNOTSUPP),
        ("lock", "nothing", Errno::OPNOTSUPP),
        ("hello", "bad_reader", Errno::IO),
        ("hello", "bad_writer", Errno::IO),
    ] {
        assert_eq!(
            host.ask("a", vec![bare_call(class, method, b"")]).result,
            errno.result(),
            "{class}.{method}"
        );
    }
    let mut short = bare_call("hello", "say_hello", b"argument");
    short.input = short.input.slice(..short.input.len() - 1);
    assert_eq!(host.ask("a", vec![short]).result, Errno::INVAL.result());
    let absent = host.ask("no", vec![bare_call("hello", "say_hello", b"")]);
    assert_eq!(absent.result, Errno::NOENT.result());
}

#[test]
fn the_last_reference_takes_the_object_along() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"x")]);
    let tag = || refcount::TagOp { tag: "t".into(), implicit_ref: false };
    assert_eq!(host.ask("a", vec![call("refcount", "get", &tag())]).result, 0);
    assert_eq!(host.ask("a", vec![call("refcount", "put", &tag())]).result, 0);
    assert_eq!(host.ask("a", vec![read(0, 0)]).result, Errno::NOENT.result());
}

#[test]
fn shared_chunk_lives_as_long_as_its_references() {
    let mut host = Host::serving();
    let source = |name: &str| HObject { name: name.into(), ..HObject::min() };
    let create = |name: &str, data: &'static [u8]| {
        let data = Bytes::from_static(data);
        let op = cas::CreateOrGetOp { source: source(name), flags: cas::FLAG_VERIFY, data };
        call("cas", "chunk_create_or_get_ref", &op)
    };
    let with = |method: &str, name: &str| call("cas", method, &cas::RefOp { source: source(name) });
    for (op, errno) in [
        (with("chunk_get_ref", "a"), Errno::NOENT.result()),
        (create("a", b"data"), 0),
        (create("b", b"other"), Errno::NOMSG.result()),
        (create("b", b"data"), 0),
        (with("chunk_get_ref", "b"), 0),
        (with("chunk_put_ref", "x"), Errno::NOLINK.result()),
        (with("chunk_put_ref", "a"), 0),
        (with("chunk_put_ref", "b"), 0),
        (with("chunk_put_ref", "b"), 0),
        (with("chunk_put_ref", "b"), Errno::NOENT.result()),
        (call("cas", "references_chunk", &Name::from("c")), Errno::NOENT.result()),
    ] {
        assert_eq!(host.ask("chunk", vec![op.clone()]).result, errno, "{op:?}");
    }
    assert_eq!(host.ask("chunk", vec![read(0, 0)]).result, Errno::NOENT.result());
}

#[test]
fn queue_part_tells_how_many_entries_it_took() {
    let mut host = Host::serving();
    let params = fifo::PartParams { max_part_size: 4096, max_entry_size: 64, full_size_threshold: 600 };
    let init = call("fifo", "init_part", &fifo::InitPartOp { params, ..fifo::InitPartOp::default() });
    let made = host.ask("part", vec![OsdOp::bare(OpCode::CREATE), init]);
    assert_eq!(made.result, 0);
    let entries = vec![Bytes::from_static(b"entry"); 3];
    let push = fifo::PushPartOp { entries, total_len: 15, ..fifo::PushPartOp::default() };
    let push = |host: &mut Host| {
        let mut request = host.request(object("part"), vec![call("fifo", "push_part", &push)]);
        request.flags = OsdFlags::RETURNVEC;
        let tid = host.send(1, request);
        host.settle();
        host.reply(tid)
    };
    let pushed = push(&mut host);
    assert_eq!((pushed.result, pushed.ops[0].result), (2, 2));
    assert_eq!(push(&mut host).result, Errno::RANGE.result());
    let list = fifo::ListPartOp { max: 9, ..fifo::ListPartOp::default() };
    let reply = host.ask("part", vec![call("fifo", "part_list", &list)]);
    let reply: fifo::ListPartReply = codec::decode_exact(&output(&reply, 0)).unwrap();
    assert_eq!((reply.entries.len(), reply.more, reply.full), (2, false, true));
    let trim = fifo::TrimPartOp { offset: 4096, ..fifo::TrimPartOp::default() };
    assert_eq!(host.ask("part", vec![call("fifo", "trim_part", &trim)]).result, 0);
    let gone = host.ask("part", vec![call("fifo", "part_list", &list)]);
    assert_eq!(gone.result, Errno::NOENT.result());
}

#[test]
fn two_objects_get_two_version_tags() {
    let mut host = Host::serving();
    let mut tag = |name: &str| {
        host.ask(name, vec![call("version", "inc", &version::CondsOp::default())]);
        let reply = host.ask(name, vec![bare_call("version", "read", b"")]);
        codec::decode_exact::<version::VersionBox>(&output(&reply, 0)).unwrap().version.tag
    };
    assert_ne!(tag("a"), tag("b"));
}

fn open_with(host: &mut Host, conn: u64, cap: &str) {
    let addr = EntityAddr::msgr2(format!("10.0.0.1:{}", 40000 + conn).parse().unwrap(), conn as u32);
    let proof = Proof::cephx("client.x".parse().unwrap(), 4000 + conn, cap);
    let peer = Peer::identified(proof, EntityName::new(EntityKind::CLIENT, -1), addr).unwrap();
    host.step(Input::Opened { conn: ConnId(conn), peer: Arc::new(peer) });
}

#[test]
fn a_request_is_judged_by_its_connections_capability() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"x")]);
    let read_lock = || call("lock", "get_info", &lock::GetInfoOp { name: "l".into() });
    // Which of a read, a write, a class read, a class write and a listing are refused.
    for (conn, cap, refused) in [
        (10, "allow *", [false; 5]),
        (11, "allow r", [false, true, true, true, false]),
        (12, "allow rw", [false, false, true, true, false]),
        (13, "allow x", [true, true, false, false, true]),
        (14, "allow rwx pool data", [false; 5]),
        (15, "allow rwx pool other", [true; 5]),
        (16, "allow class lock get_info", [true, true, false, true, true]),
        (17, "no capability", [true; 5]),
    ] {
        open_with(&mut host, conn, cap);
        let list = OsdOp::bare(OpCode::PGNLS);
        let asked = [read(0, 1), write_full(b"x"), read_lock(), take_lock("c"), list];
        for (op, refused) in asked.into_iter().zip(refused) {
            let name = if op.code == OpCode::PGNLS { "" } else { "a" };
            let label = format!("{op:?} with {cap:?}");
            let request = host.request(object(name), vec![op]);
            let tid = host.send(conn, request);
            host.settle();
            assert_eq!(host.reply(tid).result == Errno::PERM.result(), refused, "{label}");
        }
    }
}
