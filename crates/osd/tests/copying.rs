//! Stories of objects that are copied from other objects: of the same PG, of other PGs, of snapshots.

mod harness;

use bytes::Bytes;
use codec::{Features, Writer};
use harness::cluster::{Cluster, pg_of};
use harness::*;
use osd::errno::Errno;
use wire::messages::{MOSDOp, MOSDOpReply};
use wire::types::osd_op::CopyFromParams;
use wire::types::*;

/// An object with the hash that its name has: OSDs compute the place of an object that they copy.
fn placed(name: &str) -> HObject {
    let pool = PgPool { object_hash: 2, ..PgPool::default() };
    HObject { hash: placement::pg::hash_of(&pool, name.as_bytes(), b"", b""), ..object(name) }
}

fn copy_from(source: &str, snap: u64, version: u64) -> OsdOp {
    let params = CopyFromParams { snap: SnapId(snap), source_version: version, flags: 0, source_fadvise: 0 };
    copy_with(source, params, &[])
}

fn copy_with(source: &str, params: CopyFromParams, rest: &[u8]) -> OsdOp {
    let mut input = Writer::new(Features::ALL);
    input.string(source);
    input.put(&ObjectLocator { pool: POOL, ..ObjectLocator::default() });
    input.raw(rest);
    let code = if rest.is_empty() { OpCode::COPY_FROM } else { OpCode::COPY_FROM2 };
    OsdOp::new(code, params, input.into_bytes())
}

fn request(cluster: &mut Cluster, name: &str, snaps: &[u64], ops: Vec<OsdOp>) -> MOSDOp {
    let request = cluster.primary().request(placed(name), ops);
    let snaps: Vec<SnapId> = snaps.iter().map(|snap| SnapId(*snap)).collect();
    MOSDOp { snap_seq: snaps.first().copied().unwrap_or(SnapId(0)), snaps, ..request }
}

fn ask(cluster: &mut Cluster, name: &str, ops: Vec<OsdOp>) -> MOSDOpReply {
    let request = request(cluster, name, &[], ops);
    cluster.ask_request(request)
}

fn ask_with(cluster: &mut Cluster, name: &str, snaps: &[u64], ops: Vec<OsdOp>) -> i32 {
    let request = request(cluster, name, snaps, ops);
    cluster.ask_request(request).result
}

/// Sends a request to the primary without waiting.
fn send(cluster: &mut Cluster, name: &str, ops: Vec<OsdOp>) -> u64 {
    let request = request(cluster, name, &[], ops);
    cluster.next_tid += 1;
    let (tid, pg) = (cluster.next_tid, pg_of(request.object.hash & (cluster.pg_num - 1)));
    cluster.primary().resend(1, tid, MOSDOp { pg, ..request });
    tid
}

fn get(cluster: &mut Cluster, name: &str) -> Result<Bytes, i32> {
    let reply = ask(cluster, name, vec![read(0, 0)]);
    if reply.result < 0 { Err(reply.result) } else { Ok(output(&reply, 0)) }
}

fn omap_set(key: &str, value: &str) -> OsdOp {
    let mut input = Writer::new(Features::ALL);
    input.put(&vec![(Bytes::from(key.to_string()), Bytes::from(value.to_string()))]);
    OsdOp::new(OpCode::OMAPSETVALS, OpParams::default(), input.into_bytes())
}

fn omap(cluster: &mut Cluster, name: &str) -> Vec<(Bytes, Bytes)> {
    let mut input = Writer::new(Features::ALL);
    input.string("");
    input.u64(9999);
    input.string("");
    let list = OsdOp::new(OpCode::OMAPGETVALS, OpParams::default(), input.into_bytes());
    let reply = ask(cluster, name, vec![list]);
    assert_eq!(reply.result, 0, "{name}");
    let out = output(&reply, 0);
    let mut r = codec::Reader::new(&out);
    r.get().expect("entries")
}

fn attr(name: &str, value: &[u8]) -> OsdOp {
    OsdOp::xattr(OpCode::SETXATTR, name, value)
}

/// Small parts, so that each copy takes several.
fn in_small_parts(cluster: &mut Cluster) {
    for host in cluster.hosts.values_mut() {
        let mut layers = command::options::Layers::new(command::options::Identity::named("osd.0"));
        layers.set_override("osd_copyfrom_max_chunk", "4096").expect("an option");
        host.step(osd::shard::Input::Limits(Box::new(osd::options::LimitOptions::read(&layers))));
    }
}

#[test]
fn copy_has_contents_version_and_time_of_its_source() {
    for pg_num in [1, 4] {
        let mut cluster = Cluster::new(3, vec![0, 1, 2]);
        cluster.split(pg_num);
        let all = vec![write_full(b"contents"), attr("x", b"1"), omap_set("k", "v")];
        let wrote = ask(&mut cluster, "source", all);
        assert_eq!(wrote.result, 0);
        assert_eq!(
            ask(&mut cluster, "target", vec![write_full(b"longer than it"), attr("y", b"2")]).result,
            0
        );
        for target in ["target", "new"] {
            let copied = ask(&mut cluster, target, vec![copy_from("source", SnapId::HEAD.0, 0)]);
            assert_eq!((copied.result, copied.versions.user), (0, wrote.versions.user), "{target}");
            assert_eq!(get(&mut cluster, target), Ok(Bytes::from("contents")));
            assert_eq!(omap(&mut cluster, target), [(Bytes::from("k"), Bytes::from("v"))]);
            let attrs = ask(&mut cluster, target, vec![OsdOp::bare(OpCode::GETXATTRS)]);
            let attrs: Vec<(Bytes, Bytes)> = codec::decode_exact(&output(&attrs, 0)).unwrap();
            assert_eq!(attrs, [(Bytes::from("x"), Bytes::from("1"))], "{target}: the old ones are gone");
            let stat = ask(&mut cluster, target, vec![OsdOp::bare(OpCode::STAT)]);
            assert_eq!(stat.versions.user, wrote.versions.user);
        }
        // The next write goes on from there.
        let again = ask(&mut cluster, "new", vec![write_full(b"changed")]);
        assert!(again.versions.user > wrote.versions.user);
        assert_eq!(get(&mut cluster, "source"), Ok(Bytes::from("contents")));
        let reports = cluster.primary().pg_reports();
        let total = |of: fn(&osd::shard::PgReport) -> i64| reports.iter().map(of).sum::<i64>();
        assert_eq!((total(|r| r.stats.objects), total(|r| r.stats.bytes)), (3, 8 + 8 + 7));
        assert_eq!(total(|r| r.stats.omap_objects), 3);
    }
}

#[test]
fn large_copy_comes_in_parts() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    in_small_parts(&mut cluster);
    let data: Bytes = (0..30_000u32).flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>().into();
    let whole = OsdOp::extent(OpCode::WRITEFULL, 0, data.len() as u64, data.clone());
    assert_eq!(ask(&mut cluster, "source", vec![whole]).result, 0);
    let entries: Vec<(Bytes, Bytes)> =
        (0..3000).map(|n| (Bytes::from(format!("key {n:05}")), Bytes::from(vec![b'v'; n % 40]))).collect();
    let mut input = Writer::new(Features::ALL);
    input.put(&entries);
    let set = OsdOp::new(OpCode::OMAPSETVALS, OpParams::default(), input.into_bytes());
    let header = OsdOp { input: Bytes::from("header"), ..OsdOp::bare(OpCode::OMAPSETHEADER) };
    assert_eq!(ask(&mut cluster, "source", vec![set, header]).result, 0);
    let before = cluster.asked.len();
    assert_eq!(ask(&mut cluster, "target", vec![copy_from("source", SnapId::HEAD.0, 0)]).result, 0);
    assert!(cluster.asked.len() - before > 35, "{}", cluster.asked.len() - before);
    assert_eq!(get(&mut cluster, "target"), Ok(data.clone()));
    assert_eq!(omap(&mut cluster, "target").len(), 1024, "a page");
    let header = ask(&mut cluster, "target", vec![OsdOp::bare(OpCode::OMAPGETHEADER)]);
    assert_eq!(output(&header, 0), "header");
    let keys = |cluster: &mut Cluster, name: &str| {
        let mut input = Writer::new(Features::ALL);
        input.put(&entries.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>());
        let get = OsdOp::new(OpCode::OMAPGETVALSBYKEYS, OpParams::default(), input.into_bytes());
        let reply = ask(cluster, name, vec![get]);
        codec::decode_exact::<Vec<(Bytes, Bytes)>>(&output(&reply, 0)).unwrap()
    };
    assert_eq!(keys(&mut cluster, "target"), entries);
}

#[test]
fn source_that_changes_between_parts_fails_the_copy() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    in_small_parts(&mut cluster);
    let long = OsdOp::extent(OpCode::WRITEFULL, 0, 20_000, vec![7; 20_000].into());
    let version = ask(&mut cluster, "source", vec![long]).versions.user;
    let copy = send(&mut cluster, "target", vec![copy_from("source", SnapId::HEAD.0, 0)]);
    while cluster.asked.len() < 2 {
        assert!(cluster.step());
    }
    let write = send(&mut cluster, "source", vec![write(0, b"changed")]);
    cluster.run();
    let changed = cluster.primary().reply(write);
    assert_eq!(changed.result, 0);
    assert_eq!(cluster.primary().reply(copy).result, Errno::RANGE.result());
    assert_eq!(get(&mut cluster, "target"), Err(Errno::NOENT.result()));
    // A version that the client asks for.
    let of_version = |version| vec![copy_from("source", SnapId::HEAD.0, version)];
    assert_eq!(ask(&mut cluster, "target", of_version(version)).result, Errno::RANGE.result());
    assert_eq!(
        ask(&mut cluster, "target", of_version(changed.versions.user + 9)).result,
        Errno::OVERFLOW.result()
    );
    assert_eq!(ask(&mut cluster, "target", of_version(changed.versions.user)).result, 0);
}

#[test]
fn copies_of_snapshots_and_under_snapshots() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    assert_eq!(ask_with(&mut cluster, "source", &[], vec![write_full(b"one")]), 0);
    assert_eq!(ask_with(&mut cluster, "source", &[2], vec![write_full(b"second")]), 0);
    assert_eq!(ask_with(&mut cluster, "target", &[], vec![write_full(b"before")]), 0);
    // The target is cloned as by any write.
    assert_eq!(ask_with(&mut cluster, "target", &[3, 2], vec![copy_from("source", 2, 0)]), 0);
    assert_eq!(get(&mut cluster, "target"), Ok(Bytes::from("one")));
    let at_snap = |cluster: &mut Cluster, name: &str, snap: u64| {
        let object = HObject { snap: SnapId(snap), ..placed(name) };
        let request = cluster.primary().request(object, vec![read(0, 0)]);
        let reply = cluster.ask_request(request);
        if reply.result < 0 { Err(reply.result) } else { Ok(output(&reply, 0)) }
    };
    assert_eq!(at_snap(&mut cluster, "target", 3), Ok(Bytes::from("before")));
    // An object from its own past.
    assert_eq!(ask_with(&mut cluster, "source", &[2], vec![copy_from("source", 2, 0)]), 0);
    assert_eq!(get(&mut cluster, "source"), Ok(Bytes::from("one")));
    assert_eq!(at_snap(&mut cluster, "source", 2), Ok(Bytes::from("one")));
    assert_eq!(ask_with(&mut cluster, "new", &[2], vec![copy_from("source", 1, 0)]), Errno::NOENT.result());
}

#[test]
fn objects_that_copy_each_other_do_not_wait_for_ever() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    for (name, data) in [("a", &b"of a"[..]), ("b", b"of b")] {
        assert_eq!(ask(&mut cluster, name, vec![write_full(data)]).result, 0);
    }
    let tids = [("a", "b"), ("b", "a")].map(|(to, from)| {
        (
            send(&mut cluster, to, vec![copy_from(from, SnapId::HEAD.0, 0)]),
            send(&mut cluster, to, vec![read(0, 0)]),
        )
    });
    cluster.run();
    for ((copy, read), want) in tids.into_iter().zip(["of b", "of a"]) {
        assert_eq!(cluster.primary().reply(copy).result, 0);
        let reply = cluster.primary().reply(read);
        assert_eq!(output(&reply, 0), want, "each had what the other was before");
    }
}

#[test]
fn refused_copies_leave_the_object_as_it_was() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    assert_eq!(ask(&mut cluster, "a", vec![write_full(b"a")]).result, 0);
    let refused = |cluster: &mut Cluster, op: OsdOp, want: Errno| {
        assert_eq!(ask(cluster, "a", vec![write_full(b"no"), op]).result, want.result());
        assert_eq!(get(cluster, "a"), Ok(Bytes::from("a")));
    };
    refused(&mut cluster, copy_from("a", SnapId::HEAD.0, 0), Errno::INVAL);
    refused(&mut cluster, copy_from("absent", SnapId::HEAD.0, 0), Errno::NOENT);
    let params = CopyFromParams { snap: SnapId::HEAD, source_version: 0, flags: 0x40, source_fadvise: 0 };
    refused(&mut cluster, copy_with("b", params, &[0; 12]), Errno::INVAL);
    let mut other_pool = Writer::new(Features::ALL);
    other_pool.string("b");
    other_pool.put(&ObjectLocator { pool: 99, ..ObjectLocator::default() });
    let params = CopyFromParams { flags: 0, ..params };
    refused(&mut cluster, OsdOp::new(OpCode::COPY_FROM, params, other_pool.into_bytes()), Errno::NOENT);
}

#[test]
fn second_form_sets_the_truncation() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    assert_eq!(ask(&mut cluster, "a", vec![write_full(b"0123456789")]).result, 0);
    let mut rest = Writer::new(Features::ALL);
    rest.u32(5);
    rest.u64(4);
    let params = CopyFromParams { snap: SnapId::HEAD, source_version: 0, flags: 0x20, source_fadvise: 0 };
    assert_eq!(ask(&mut cluster, "b", vec![copy_with("a", params, rest.as_slice())]).result, 0);
    // A write from before that truncation adds nothing behind the end.
    let extent = osd_op::Extent { offset: 8, len: 6, truncate_size: 0, truncate_seq: 3 };
    let late = OsdOp::new(OpCode::WRITE, extent, Bytes::from("abcdef"));
    assert_eq!(ask(&mut cluster, "b", vec![late]).result, 0);
    assert_eq!(get(&mut cluster, "b"), Ok(Bytes::from("01234567ab")));
}

#[test]
fn copy_survives_lost_requests_and_a_new_interval_of_its_source() {
    let mut cluster = Cluster::new(3, vec![0, 1]);
    assert_eq!(ask(&mut cluster, "a", vec![write_full(b"contents")]).result, 0);
    cluster.cut = vec![(0, 0)];
    let copy = send(&mut cluster, "b", vec![copy_from("a", SnapId::HEAD.0, 0)]);
    let behind = send(&mut cluster, "b", vec![read(0, 0)]);
    cluster.run();
    assert_eq!(cluster.primary().find_reply(copy), None);
    cluster.cut.clear();
    cluster.reset_links(0, 0);
    cluster.run();
    assert_eq!(cluster.primary().reply(copy).result, 0);
    let reply = cluster.primary().reply(behind);
    assert_eq!(output(&reply, 0), "contents");
    // Without any news it asks again in its own time.
    cluster.cut = vec![(0, 0)];
    let copy = send(&mut cluster, "c", vec![copy_from("a", SnapId::HEAD.0, 0)]);
    cluster.run();
    cluster.cut.clear();
    for _ in 0..8 {
        cluster.pass(1000);
    }
    assert_eq!(cluster.primary().reply(copy).result, 0);
    // A new interval drops both ends. Its client sends it again.
    cluster.cut = vec![(0, 0)];
    let copy = send(&mut cluster, "d", vec![copy_from("a", SnapId::HEAD.0, 0)]);
    cluster.run();
    cluster.cut.clear();
    cluster.interval(vec![1, 0], vec![1, 0]);
    cluster.run();
    assert_eq!(cluster.primary().find_reply(copy), None);
    assert_eq!(ask(&mut cluster, "d", vec![copy_from("a", SnapId::HEAD.0, 0)]).result, 0);
    assert_eq!(get(&mut cluster, "d"), Ok(Bytes::from("contents")));
}

#[test]
fn many_copies_take_turns() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    assert_eq!(ask(&mut cluster, "a", vec![write_full(b"contents")]).result, 0);
    cluster.cut = vec![(0, 0)];
    let names: Vec<String> = (0..20).map(|n| format!("copy {n}")).collect();
    let tids: Vec<u64> =
        names.iter().map(|name| send(&mut cluster, name, vec![copy_from("a", SnapId::HEAD.0, 0)])).collect();
    cluster.run();
    assert_eq!(cluster.asked.len(), 4, "the others wait for a place");
    cluster.cut.clear();
    cluster.reset_links(0, 0);
    cluster.run();
    for tid in tids {
        assert_eq!(cluster.primary().reply(tid).result, 0);
    }
    assert_eq!(get(&mut cluster, "copy 19"), Ok(Bytes::from("contents")));
}

#[test]
fn client_without_read_access_to_the_source_is_refused() {
    use machine::identity::{Method, Proof};
    let mut cluster = Cluster::new(2, vec![0, 1]);
    assert_eq!(ask(&mut cluster, "a", vec![write_full(b"secret")]).result, 0);
    let caps = codec::Encode::to_vec(&"allow w".to_string(), Features::NONE).into();
    let name = "client.writer".parse().unwrap();
    let proof = Proof { method: Method::Cephx, name, global_id: 5000, caps, allow_all: false };
    let addr = EntityAddr::msgr2("10.0.0.1:40009".parse().unwrap(), 9);
    let peer =
        machine::net::Peer::identified(proof, EntityName::new(EntityKind::CLIENT, 5000), addr).unwrap();
    let request = request(&mut cluster, "b", &[], vec![copy_from("a", SnapId::HEAD.0, 0)]);
    let conn = machine::ConnId(9);
    let host = cluster.primary();
    host.step(osd::shard::Input::Opened { conn, peer: std::sync::Arc::new(peer) });
    host.resend(9, 77, request);
    cluster.run();
    assert_eq!(cluster.primary().reply(77).result, Errno::PERM.result());
}
