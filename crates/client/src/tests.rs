//! The client against scripted monitors and OSDs, in virtual time.

mod commanding;
mod fixture;
mod lingering;
mod moving;
mod waiting;

use crate::{Event, Failure, Listing, ObjectRef, Operation, ReadOps, WriteOps};
use bytes::Bytes;
use fixture::*;
use std::collections::BTreeMap;
use wire::types::{HObject, ListPage, ListedObject, OpCode, OsdFlags, OsdMap};

#[test]
fn operation_reaches_its_primary_and_its_reply_returns() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let write = WriteOps::new().create(true).write(0, Bytes::from_static(b"abc"));
    let (id, effects) = world.submit(Operation::write(object("x"), write));
    let (conn, osd) = called_osd(&effects).expect("the OSD is called at once");
    assert_eq!(osd, 3);
    // Sent behind the call: the messenger keeps it until the session is there.
    let sent = ops_sent(&effects, conn);
    assert_eq!(sent.len(), 1);
    let (tid, op) = &sent[0];
    assert_eq!(*tid, id.0);
    assert_eq!((op.epoch, op.retry_attempt), (5, 0));
    assert!(op.flags.contains(OsdFlags::WRITE | OsdFlags::ONDISK | OsdFlags::KNOWN_REDIR));
    assert!(!op.flags.contains(OsdFlags::RETRY));
    assert_eq!(op.ops.iter().map(|o| o.code).collect::<Vec<_>>(), [OpCode::CREATE, OpCode::WRITE]);
    assert_eq!(op.object.name, "x");
    world.ready(conn);
    let effects = world.reply(conn, *tid, op, 0);
    assert!(
        matches!(&effects[..], [crate::Effect::Event(Event::Done { id: done, outcome: Ok(r) })] if *done == id && r.is_ok())
    );
    assert_eq!(world.client.in_flight(), 0);
    // A second answer is none.
    assert!(world.reply(conn, *tid, op, 0).is_empty());
}

#[test]
fn second_operation_reuses_the_session() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (_, effects) = world.submit(read("x"));
    let (conn, _) = called_osd(&effects).unwrap();
    let (_, effects) = world.submit(read("y"));
    assert!(called_osd(&effects).is_none());
    assert_eq!(ops_sent(&effects, conn).len(), 1);
}

#[test]
fn operations_before_the_first_map_are_sent_in_order() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        let (_, effects) = world.submit(read(name));
        assert!(effects.is_empty());
    }
    let effects = world.connect(&[(1, map(5, &[3]))]);
    let (conn, _) = called_osd(&effects).unwrap();
    let names: Vec<_> = ops_sent(&effects, conn).iter().map(|(_, op)| op.object.name.to_string()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

/// The halves of a PG that splits are both walked, whenever the split is seen.
#[test]
fn listing_restarts_when_pgs_split() {
    let page = |name: &str| {
        let entry = ListedObject { namespace: "".into(), name: name.into(), locator: "".into() };
        let page = ListPage { next: HObject::max(), entries: vec![entry] };
        let op = wire::types::OsdOp::bare(wire::types::OpCode::PGNLS);
        let output = codec::Encode::to_vec(&page, codec::Features::ALL).into();
        let result = wire::types::OsdOpResult::of(&op, 0, output);
        crate::Reply { result: 1, ops: smallvec::smallvec![result], version: 0, epoch: 5 }
    };
    let before = map(5, &[3]);
    let mut after = map(6, &[3]);
    after.pools.get_mut(&POOL).expect("the pool of the fixture").pg_num *= 2;
    let pgs = after.pools[&POOL].pg_num;
    for seen_at in ["reply", "request"] {
        let mut listing = Listing::new(&before, POOL, "", 10).unwrap();
        assert_eq!(listing.next_page(&before).pg_seed, Some(0));
        let at_reply = if seen_at == "reply" { &after } else { &before };
        assert!(!listing.take(at_reply, &page("a")).unwrap().complete);
        let mut seeds = Vec::new();
        while !listing.is_complete() {
            seeds.extend(listing.next_page(&after).pg_seed);
            listing.take(&after, &page("a")).unwrap();
        }
        assert_eq!(seeds, (0..pgs).collect::<Vec<u32>>(), "the split is seen at the {seen_at}");
    }
    // The OSD has split before the page arrived, and refuses its cursor.
    let mut listing = Listing::new(&before, POOL, "", 10).unwrap();
    let _ = listing.next_page(&before);
    let refused = crate::Reply { result: -22, ops: smallvec::SmallVec::new(), version: 0, epoch: 6 };
    assert!(listing.take(&before, &refused).is_err(), "without a split it is an error");
    assert!(!listing.take(&after, &refused).unwrap().complete);
    assert_eq!(listing.next_page(&after).pg_seed, Some(0));
}

#[test]
fn eagain_resends_and_redirect_is_followed() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, effects) = world.submit(read("x"));
    let (conn, _) = called_osd(&effects).unwrap();
    let sent = ops_sent(&effects, conn);
    let effects = world.reply(conn, id.0, &sent[0].1, -11);
    let again = ops_sent(&effects, conn);
    assert_eq!((again[0].0, again[0].1.retry_attempt), (id.0, 1));

    let mut reply = reply_to(&again[0].1, 0);
    let locator = wire::types::ObjectLocator { pool: POOL, namespace: "n".into(), ..Default::default() };
    reply.redirect = Some(wire::types::RequestRedirect { locator, object: "y".into() });
    let effects = world.message(conn, wire::messages::Message::with_tid(id.0, reply));
    let there = ops_sent(&effects, conn);
    assert_eq!((&there[0].1.object.name[..], &there[0].1.object.namespace[..]), (&b"y"[..], &b"n"[..]));
    assert!(there[0].1.flags.contains(OsdFlags::REDIRECTED));
    assert_eq!(there[0].1.retry_attempt, 2);
}

#[test]
fn timeout_ends_an_operation_in_every_state() {
    let limit = std::time::Duration::from_secs(7);
    let mut world = World::new();
    let (id, _) = world.submit(read("x").with_timeout(limit));
    let end = world.now + limit;
    let mut seen = Vec::new();
    while world.now < end {
        seen.extend(world.pass_until_deadline());
    }
    let done = |e: &&crate::Effect| matches!(e, crate::Effect::Event(Event::Done { id: i, outcome: Err(Failure::TimedOut) }) if *i == id);
    assert_eq!(seen.iter().filter(done).count(), 1);
    assert_eq!(world.now, end);
    assert_eq!(world.client.in_flight(), 0);
}

#[test]
fn listing_walks_a_pool_by_pg_and_page() {
    let map = map(5, &[3]);
    let mut listing = Listing::new(&map, POOL, Listing::ALL_NAMESPACES, 2).unwrap();
    assert!(Listing::new(&map, 99, "", 2).is_none());
    let entry = |name: &str| ListedObject { namespace: "".into(), name: name.into(), locator: "".into() };
    let cursor = HObject { pool: POOL, hash: 4, name: "b".into(), ..HObject::min() };
    let end = HObject::max();
    let pages = [
        (vec!["a", "b"], cursor, 0),
        (vec!["c"], end.clone(), 1),
        (vec![], end.clone(), 1),
        (vec!["d"], end.clone(), 1),
        (vec![], end, 1),
    ];
    let mut world = World::connected(&[(1, map.clone())]);
    let mut names = Vec::new();
    let mut seeds = Vec::new();
    let mut conn = None;
    for (entries, next, result) in pages {
        assert!(!listing.is_complete());
        let (id, effects) = world.submit(listing.next_page(&map));
        let conn = *conn.get_or_insert_with(|| called_osd(&effects).unwrap().0);
        let sent = ops_sent(&effects, conn);
        let op = &sent[0].1;
        assert!(op.object.name.is_empty() && op.flags.contains(OsdFlags::PGOP));
        seeds.push(op.pg.pg.seed);
        let page = ListPage { next, entries: entries.iter().map(|n| entry(n)).collect() };
        let mut reply = reply_to(op, result);
        reply.ops[0].output = codec::Encode::to_vec(&page, codec::Features::ALL).into();
        let effects = world.message(conn, wire::messages::Message::with_tid(id.0, reply));
        let [crate::Effect::Event(Event::Done { outcome: Ok(reply), .. })] = &effects[..] else {
            panic!("{effects:?}")
        };
        names.extend(listing.take(&map, reply).unwrap().objects.into_iter().map(|o| o.name));
    }
    assert!(listing.is_complete());
    assert_eq!(seeds, [0, 0, 1, 2, 3]);
    assert_eq!(names, ["a", "b", "c", "d"]);
}

#[test]
fn builders_encode_as_stock() {
    let compare = ReadOps::new().compare_xattr("a", 1, 1, b"v").omap_keys(b"k", 9);
    assert_eq!(&compare.ops()[0].input[..], b"av");
    assert_eq!(&compare.ops()[1].input[..], b"\x01\0\0\0k\x09\0\0\0\0\0\0\0");
    let call = WriteOps::new().exec("lock", "unlock", b"!");
    assert_eq!(&call.ops()[0].input[..], b"lockunlock!");
    let truncate = WriteOps::new().truncate(77);
    assert_eq!(truncate.ops()[0].params.extent().offset, 77);
    assert_eq!(ReadOps::new().assert_version(5).ops()[0].params.assert_version(), 5);
}

fn read(name: &str) -> Operation {
    Operation::read(object(name), ReadOps::new().read(0, 0))
}

fn object(name: &str) -> ObjectRef {
    ObjectRef::new(POOL, name)
}

#[test]
fn balanced_read_goes_to_any_acting_osd_and_then_to_the_primary() {
    let both = |map: &mut OsdMap| {
        map.pg_temp.values_mut().for_each(|acting| *acting = vec![3, 4]);
        map.pools.values_mut().for_each(|pool| pool.size = 2);
    };
    let mut world = World::connected(&[(1, map_with(5, &[3, 4], both))]);
    let (mut conns, mut asked) = (BTreeMap::new(), BTreeMap::from([(3, Vec::new()), (4, Vec::new())]));
    for n in 0..20 {
        let balanced = read(&n.to_string()).with_flags(OsdFlags::BALANCE_READS);
        let (_, effects) = world.submit(balanced);
        conns.extend(called_osd(&effects).map(|(conn, osd)| (osd, conn)));
        for (osd, conn) in &conns {
            asked.entry(*osd).or_default().extend(ops_sent(&effects, *conn));
        }
    }
    assert!(asked.values().all(|ops| ops.len() > 2), "{asked:?}");
    let write = WriteOps::new().create(false);
    let flags = OsdFlags::BALANCE_READS;
    let (_, effects) = world.submit(Operation::write(object("w"), write).with_flags(flags));
    assert_eq!(ops_sent(&effects, conns[&3]).len(), 1, "a write goes to the primary");

    // The replica does not serve the read.
    let (tid, op) = asked[&4][0].clone();
    assert!(op.flags.contains(OsdFlags::BALANCE_READS));
    let effects = world.reply(conns[&4], tid, &op, -11);
    let sent = ops_sent(&effects, conns[&3]);
    assert_eq!(sent.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), [tid]);
    assert!(!sent[0].1.flags.contains(OsdFlags::BALANCE_READS));
}
