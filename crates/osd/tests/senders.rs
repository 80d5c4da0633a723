//! Requests of clients, from every kind of peer: what must happen. The names that they may carry.

mod harness;

use bytes::Bytes;
use codec::{Encode, Features};
use harness::*;
use machine::ConnId;
use machine::identity::Proof;
use machine::net::Peer;
use osd::errno::Errno;
use osd::shard::Input;
use std::sync::Arc;
use wire::types::cls::lock;
use wire::types::*;

fn open(host: &mut Host, conn: u64, name: &str, caps: Option<&str>) {
    let addr = EntityAddr::msgr2(format!("10.0.0.1:{}", 40000 + conn).parse().unwrap(), conn as u32);
    let name: AuthName = name.parse().unwrap();
    let number = if name.kind == EntityKind::OSD { name.id.parse().unwrap() } else { -1 };
    let claimed = EntityName::new(name.kind, number);
    let proof = match caps {
        Some(caps) => Proof::cephx(name, 4000 + conn, caps),
        None => Proof::none(name, 4000 + conn),
    };
    let peer = Peer::identified(proof, claimed, addr).unwrap();
    host.step(Input::Opened { conn: ConnId(conn), peer: Arc::new(peer) });
}

#[test]
fn requests_need_a_capability_whoever_sends_them() {
    let mut host = Host::serving();
    for (conn, name, caps, is_allowed) in [
        (10, "client.admin", Some("allow *"), true),
        (11, "osd.3", Some("allow *"), true),
        (12, "mds.a", Some("allow rw"), true),
        (13, "mgr.x", Some("allow *"), true),
        (14, "mon.", Some(""), false),
        (15, "client.none", Some(""), false),
        (16, "osd.3", Some(""), false),
        (17, "client.anybody", None, true),
    ] {
        open(&mut host, conn, name, caps);
        let request = host.request(object("a"), vec![write_full(b"x")]);
        let tid = host.send(conn, request);
        host.settle();
        let result = host.reply(tid).result;
        assert_eq!(result, if is_allowed { 0 } else { Errno::PERM.result() }, "{name} with {caps:?}");
    }
}

/// A client that repeats a request is answered from the log. One that could name somebody else's request would be answered
/// for it, or would have the other's taken for a repetition.
#[test]
fn client_cannot_use_another_clients_request_id() {
    let mut host = Host::serving();
    open(&mut host, 2, "client.victim", Some("allow rw"));
    open(&mut host, 3, "client.thief", Some("allow rw"));
    open(&mut host, 4, "osd.3", Some("allow *"));
    let victims = |tid| ReqId { name: EntityName::new(EntityKind::CLIENT, 4002), tid, incarnation: 0 };

    let forged = |host: &mut Host| {
        let mut request = host.request(object("a"), vec![write_full(b"forged")]);
        request.explicit_reqid = victims(900);
        request
    };
    let request = forged(&mut host);
    let tid = host.send(3, request);
    host.settle();
    assert_eq!(host.reply(tid).result, 0, "it is a request of the thief's own");
    let request = host.request(object("a"), vec![write_full(b"real")]);
    host.resend(2, 900, request);
    host.settle();
    assert_eq!(host.reply(900).result, 0);
    assert_eq!(output(&host.ask("a", vec![read(0, 10)]), 0), "real", "it was carried out");

    // Another OSD may act for a client: the request counts as the client's.
    let request = forged(&mut host);
    let tid = host.send(4, request);
    host.settle();
    host.reply(tid);
    assert_eq!(output(&host.ask("a", vec![read(0, 10)]), 0), "real", "the repetition is recognised");
}

#[test]
fn watches_and_locks_carry_the_proven_name() {
    let mut host = Host::serving();
    host.ask("a", vec![write_full(b"x")]);
    let addr = EntityAddr::msgr2("10.0.0.1:40002".parse().unwrap(), 2);
    let proof = || Proof::cephx("client.b".parse().unwrap(), 4002, "allow rwx");
    let claimed = |number| EntityName::new(EntityKind::CLIENT, number);
    assert!(Peer::identified(proof(), claimed(4100), addr).is_err(), "another client's number is refused");
    let peer = Peer::identified(proof(), claimed(-1), addr).unwrap();
    host.step(Input::Opened { conn: ConnId(2), peer: Arc::new(peer) });

    let watch = osd_op::WatchParams { cookie: 5, op: op_value::WATCH_WATCH, ..Default::default() };
    let take = lock::LockOp {
        name: "l".into(),
        kind: lock::LockType::EXCLUSIVE,
        cookie: "c".into(),
        ..lock::LockOp::default()
    };
    let take = OsdOp::call("lock", "lock", &take.to_vec(Features::ALL)).unwrap();
    for op in [OsdOp::new(OpCode::WATCH, watch, Bytes::new()), take] {
        let request = host.request(object("a"), vec![op]);
        let tid = host.send(2, request);
        host.settle();
        assert_eq!(host.reply(tid).result, 0);
    }

    let proven = EntityName::new(EntityKind::CLIENT, 4002);
    let reply = host.ask("a", vec![OsdOp::bare(OpCode::LIST_WATCHERS)]);
    let watchers: WatcherList = codec::decode_exact(&output(&reply, 0)).unwrap();
    assert_eq!(watchers.entries.iter().map(|watcher| watcher.name).collect::<Vec<_>>(), [proven]);
    let info = lock::GetInfoOp { name: "l".into() }.to_vec(Features::ALL);
    let reply = host.ask("a", vec![OsdOp::call("lock", "get_info", &info).unwrap()]);
    let info: lock::LockInfo = codec::decode_exact(&output(&reply, 0)).unwrap();
    assert!(info.lockers.keys().map(|holder| holder.locker).eq([proven]));
}
