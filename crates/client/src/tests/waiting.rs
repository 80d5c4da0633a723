//! Operations that wait: for a pool, a primary, the end of a pause, room in a pool, the end of a backoff.

use super::fixture::*;
use super::{object, read};
use crate::{Effect, Event, Failure, ObjectRef, Operation, ReadOps, WriteOps};
use bytes::Bytes;
use wire::messages::{Body, MMonGetVersionReply, MOSDBackoff, Message};
use wire::types::osd_map::MapFlags;
use wire::types::{HObject, OsdFlags, PoolFlags, op_value};

fn write(name: &str) -> Operation {
    Operation::write(object(name), WriteOps::new().write_full(Bytes::from_static(b"data")))
}

fn elsewhere() -> Operation {
    Operation::read(ObjectRef::new(2, "x"), ReadOps::new().stat())
}

fn version_asked(effects: &[Effect], mon: machine::ConnId) -> Option<u64> {
    sent(effects, mon).iter().find_map(|m| match &m.body {
        Body::MMonGetVersion(ask) if ask.what == "osdmap" => Some(ask.handle),
        _ => None,
    })
}

#[test]
fn pool_missing_in_the_newest_map_fails() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, effects) = world.submit(elsewhere());
    let mon = world.mon.unwrap();
    let handle = version_asked(&effects, mon).unwrap();
    let answer = MMonGetVersionReply { handle, version: 7, oldest_version: 1 };
    let effects = world.message(mon, Message::new(answer));
    assert_eq!(asked_for_map(&effects, mon), Some((6, true)));
    assert_eq!(world.client.in_flight(), 1);
    world.maps(&[map(6, &[3])]);
    assert_eq!(world.client.in_flight(), 1);
    let effects = world.maps(&[map(7, &[3])]);
    let no_pool = |e: &Effect| matches!(e, Effect::Event(Event::Done { id: i, outcome: Err(Failure::NoPool) }) if *i == id);
    assert!(effects.iter().any(no_pool));
}

#[test]
fn pool_of_a_newer_map_is_used() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (_, effects) = world.submit(elsewhere());
    let mon = world.mon.unwrap();
    let handle = version_asked(&effects, mon).unwrap();
    world.message(mon, Message::new(MMonGetVersionReply { handle, version: 6, oldest_version: 1 }));
    let created = map_with(6, &[3], |map| {
        let pool = map.pools[&POOL].clone();
        map.pools.insert(2, pool);
        let temp: Vec<_> = map.pg_temp.iter().map(|(pg, osds)| (*pg, osds.clone())).collect();
        map.pg_temp.extend(temp.into_iter().map(|(pg, osds)| (wire::types::PgId { pool: 2, ..pg }, osds)));
    });
    let effects = world.maps(&[created]);
    let (conn, _) = called_osd(&effects).unwrap();
    assert_eq!(ops_sent(&effects, conn)[0].1.object.pool, 2);
}

#[test]
fn operation_without_a_primary_waits_for_a_map() {
    let nobody = map_with(5, &[3], |map| map.pg_temp.clear());
    let mut world = World::connected(&[(1, nobody)]);
    let (_, effects) = world.submit(read("x"));
    assert_eq!(asked_for_map(&effects, world.mon.unwrap()), Some((6, true)));
    assert!(called_osd(&effects).is_none());
    let effects = world.maps(&[map(6, &[3])]);
    assert!(called_osd(&effects).is_some());
}

#[test]
fn full_pool_holds_writes_without_full_try() {
    let full = |epoch| {
        map_with(epoch, &[3], |map| {
            map.pools.get_mut(&POOL).unwrap().flags.set(PoolFlags::FULL, true);
        })
    };
    let mut world = World::connected(&[(1, full(5))]);
    let (kept, effects) = world.submit(write("x"));
    assert_eq!(asked_for_map(&effects, world.mon.unwrap()), Some((6, false)), "its end must be heard of");
    let (_, effects) = world.submit(read("x"));
    let (conn, _) = called_osd(&effects).unwrap();
    let (_, effects) = world.submit(write("y").with_flags(OsdFlags::FULL_TRY));
    assert_eq!(ops_sent(&effects, conn).len(), 1);
    world.maps(&[full(6)]);
    let effects = world.maps(&[map(7, &[3])]);
    assert_eq!(ops_sent(&effects, conn).iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), [kept.0]);
}

/// An OSD may drop pending writes when the pool becomes full.
#[test]
fn writes_in_flight_are_resent_when_a_full_pool_has_room() {
    let base = map(5, &[3]);
    let mut world = World::connected(&[(1, base.clone())]);
    let (_, effects) = world.submit(read("x"));
    let (conn, _) = called_osd(&effects).unwrap();
    world.ready(conn);
    let (first, effects) = world.submit(write("x"));
    assert_eq!(ops_sent(&effects, conn).len(), 1);
    let (second, _) = world.submit(write("x"));
    let effects = world.full_for_a_moment(&base);
    let sent: Vec<_> = ops_sent(&effects, conn).iter().map(|(tid, _)| *tid).collect();
    assert_eq!(sent, [first.0, second.0], "the writes, and in their order");
}

#[test]
fn pause_flags_hold_reads_and_writes() {
    for (flag, reads, writes) in [(MapFlags::PAUSERD, 0, 1), (MapFlags::PAUSEWR, 1, 0)] {
        let paused = map_with(5, &[3], |map| map.flags.set(flag, true));
        let mut world = World::connected(&[(1, paused)]);
        let (_, effects) = world.submit(read("x"));
        assert_eq!(called_osd(&effects).is_some() as u32, reads);
        let mut world = World::connected(&[(1, map_with(5, &[3], |map| map.flags.set(flag, true)))]);
        let (_, effects) = world.submit(write("x"));
        assert_eq!(called_osd(&effects).is_some() as u32, writes);
        let effects = world.maps(&[map(6, &[3])]);
        assert_eq!(called_osd(&effects).is_some() as u32, 1 - writes);
    }
}

#[test]
fn backoff_holds_its_range_until_unblock_or_reset() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (first, effects) = world.submit(read("x"));
    let (conn, _) = called_osd(&effects).unwrap();
    world.ready(conn);
    let op = ops_sent(&effects, conn)[0].1.clone();
    let block = MOSDBackoff {
        pg: op.pg,
        epoch: 5,
        op: op_value::BACKOFF_BLOCK,
        id: 9,
        begin: HObject { pool: POOL, ..HObject::min() },
        end: HObject::max(),
    };
    let effects = world.message(conn, Message::new(block.clone()));
    let messages = sent(&effects, conn);
    let [Message { body: Body::MOSDBackoff(ack), priority: 63, .. }] = messages[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(**ack, MOSDBackoff { op: op_value::BACKOFF_ACK_BLOCK, ..block.clone() });
    let (second, effects) = world.submit(read("x"));
    assert!(ops_sent(&effects, conn).is_empty());
    // Another PG is not concerned.
    let free = (0..).map(|n| format!("o{n}")).find(|name| {
        let seed = |n: &str| placement::object_hash::rjenkins(n.as_bytes()) & 3;
        seed(name) != op.pg.pg.seed
    });
    let (_, effects) = world.submit(read(&free.unwrap()));
    assert_eq!(ops_sent(&effects, conn).len(), 1);

    let unblock = MOSDBackoff { op: op_value::BACKOFF_UNBLOCK, ..block.clone() };
    let effects = world.message(conn, Message::new(unblock));
    let tids =
        |effects: &[Effect], conn| ops_sent(effects, conn).iter().map(|(tid, _)| *tid).collect::<Vec<_>>();
    assert_eq!(tids(&effects, conn), [first.0, second.0]);

    world.message(conn, Message::new(block));
    let (third, effects) = world.submit(read("x"));
    assert!(ops_sent(&effects, conn).is_empty());
    let effects = world.close(conn);
    let (conn, _) = called_osd(&effects).unwrap();
    assert!(tids(&effects, conn).contains(&third.0));
}

#[test]
fn slow_operation_pings_its_osd_and_requests_a_map() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (_, effects) = world.submit(read("x"));
    let (conn, _) = called_osd(&effects).unwrap();
    world.ready(conn);
    let submitted_at = world.now;
    loop {
        let effects = world.pass_until_deadline();
        if sent(&effects, conn).iter().any(|m| matches!(m.body, Body::MPing(_))) {
            assert_eq!(asked_for_map(&effects, world.mon.unwrap()), Some((6, true)));
            break;
        }
    }
    assert_eq!((world.now - submitted_at).as_secs(), 10);
}
