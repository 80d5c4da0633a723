//! Operations in flight when a connection breaks or a map changes: sent again, in order, under the same number.

use super::fixture::*;
use super::{object, read};
use crate::{Effect, Event, Failure, Operation, WriteOps};
use bytes::Bytes;
use machine::net::{CloseReason, NetEffect, NetEvent};
use wire::types::EntityKind;
use wire::types::OsdFlags;

fn write(n: u8) -> Operation {
    Operation::write(object("x"), WriteOps::new().append(Bytes::copy_from_slice(&[n])))
}

fn done(effects: &[Effect]) -> Vec<u64> {
    let id = |e: &Effect| match e {
        Effect::Event(Event::Done { id, outcome: Ok(_) }) => Some(id.0),
        _ => None,
    };
    effects.iter().filter_map(id).collect()
}

#[test]
fn reconnect_resends_operations_in_order() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (first, effects) = world.submit(write(1));
    let (old, _) = called_osd(&effects).unwrap();
    let first_op = ops_sent(&effects, old)[0].1.clone();
    world.ready(old);
    let (second, _) = world.submit(write(2));
    let effects = world.close(old);
    let (new, osd) = called_osd(&effects).expect("at once, since it had worked");
    assert_eq!(osd, 3);
    let sent = ops_sent(&effects, new);
    assert_eq!(sent.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), [first.0, second.0]);
    assert!(sent.iter().all(|(_, op)| op.retry_attempt == 1 && op.flags.contains(OsdFlags::RETRY)));
    // Nothing that comes on the old connection counts, nor an answer to the first attempt.
    assert!(world.reply(old, first.0, &first_op, 0).is_empty());
    assert!(world.reply(new, first.0, &first_op, 0).is_empty());
    assert_eq!(done(&world.reply(new, first.0, &sent[0].1, 0)), [first.0]);
}

#[test]
fn unreachable_osd_is_called_with_exponential_backoff() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (_, effects) = world.submit(read("x"));
    let (mut conn, _) = called_osd(&effects).unwrap();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let effects = world.close(conn);
        assert!(called_osd(&effects).is_none());
        let failed_at = world.now;
        conn = loop {
            let effects = world.pass_until_deadline();
            if let Some((conn, _)) = called_osd(&effects) {
                assert_eq!(ops_sent(&effects, conn).len(), 1);
                break conn;
            }
        };
        pauses.push((world.now - failed_at).as_millis());
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
}

#[test]
fn new_primary_gets_operations_of_the_old_one() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, effects) = world.submit(write(1));
    let (old, _) = called_osd(&effects).unwrap();
    let effects = world.maps(&[map(6, &[4])]);
    assert!(effects.iter().any(|e| matches!(e, Effect::Net(NetEffect::Close { conn }) if *conn == old)));
    let (new, osd) = called_osd(&effects).unwrap();
    assert_eq!(osd, 4);
    let sent = ops_sent(&effects, new);
    assert_eq!((sent[0].0, sent[0].1.epoch, sent[0].1.retry_attempt), (id.0, 6, 1));
}

#[test]
fn unrelated_map_leaves_an_operation_alone() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (_, effects) = world.submit(write(1));
    let (conn, _) = called_osd(&effects).unwrap();
    let effects = world.maps(&[map(6, &[3])]);
    assert!(ops_sent(&effects, conn).is_empty());
    assert!(called_osd(&effects).is_none());
    // After a gap in the maps an interval may have passed: the operation is resent.
    let effects = world.maps(&[map(9, &[3])]);
    assert_eq!(ops_sent(&effects, conn).len(), 1);
}

#[test]
fn primary_flap_within_one_message_resends() {
    let mut world = World::connected(&[(1, map(5, &[3, 4]))]);
    let (_, effects) = world.submit(write(1));
    let (conn, osd) = called_osd(&effects).unwrap();
    let other = if osd == 3 { 4 } else { 3 };
    let effects = world.away_and_back(&map(5, &[3, 4]), other);
    assert_eq!(world.client.map().unwrap().epoch, 7);
    assert_eq!(ops_sent(&effects, conn).len(), 1);
}

#[test]
fn gap_in_maps_is_requested() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let mut message = osdmap(&[]);
    message.incremental_maps = [(9, Bytes::from_static(b"?"))].into();
    let mon = world.mon.unwrap();
    let effects = world.message(mon, wire::messages::Message::new(message));
    assert_eq!(asked_for_map(&effects, mon), Some((6, true)));
    assert_eq!(world.client.map().unwrap().epoch, 5);
    // One that is next but cannot be read: a whole one, please.
    let mut message = osdmap(&[]);
    message.incremental_maps = [(6, Bytes::from_static(b"?"))].into();
    let effects = world.message(mon, wire::messages::Message::new(message));
    assert_eq!(asked_for_map(&effects, mon), Some((0, true)));
}

#[test]
fn wanted_map_is_asked_for_from_the_next_epoch() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let mon = world.mon.unwrap();
    let mut fx = machine::Effects::new();
    world.client.want_map(world.now, 9, &mut fx);
    assert_eq!(asked_for_map(&fx.take(), mon), Some((6, true)), "a monitor sends no epoch twice");
    // Its monitor is behind: the client goes on until it has the map.
    assert_eq!(asked_for_map(&world.maps(&[map(7, &[3])]), mon), Some((8, true)));
    assert_eq!(asked_for_map(&world.maps(&[map(9, &[3])]), mon), None);
    assert_eq!(world.client.map().unwrap().epoch, 9);
}

#[test]
fn maps_of_osds_are_taken_unless_of_another_cluster() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (_, effects) = world.submit(read("x"));
    let (conn, _) = called_osd(&effects).unwrap();
    let mut foreign = osdmap(&[map(8, &[4])]);
    foreign.fsid = wire::types::Uuid([1; 16]);
    world.message(conn, wire::messages::Message::new(foreign));
    assert_eq!(world.client.map().unwrap().epoch, 5);
    let effects = world.message(conn, wire::messages::Message::new(osdmap(&[map(6, &[4])])));
    assert_eq!(called_osd(&effects).unwrap().1, 4);
}

#[test]
fn restarted_osd_is_called_at_its_new_address() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, effects) = world.submit(read("x"));
    let (old, _) = called_osd(&effects).unwrap();
    let restarted = map_with(6, &[3], |map| {
        let addrs = &mut map.osds[3].addrs.client;
        addrs.0[0].nonce += 1;
    });
    let effects = world.maps(&[restarted]);
    assert!(effects.iter().any(|e| matches!(e, Effect::Net(NetEffect::Close { conn }) if *conn == old)));
    let (new, _) = called_osd(&effects).unwrap();
    assert_eq!(ops_sent(&effects, new)[0].0, id.0);
}

#[test]
fn client_with_a_new_identity_fails_pending_writes() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (written, effects) = world.submit(write(1));
    let (osd, _) = called_osd(&effects).unwrap();
    let (looked, _) = world.submit(read("y"));
    let mon = world.mon.unwrap();
    let effects = world.net(NetEvent::Closed { conn: mon, why: CloseReason::Reset });
    let (mon, _) = called(&effects, EntityKind::MON).unwrap();
    let effects = world.admit(mon, 4712);
    assert!(effects.iter().any(|e| matches!(e, Effect::Net(NetEffect::Close { conn }) if *conn == osd)));
    let lost = |e: &Effect| matches!(e, Effect::Event(Event::Done { id, outcome: Err(Failure::IdentityLost) }) if *id == written);
    assert!(effects.iter().any(lost));
    let effects = world.maps(&[map(6, &[3])]);
    let (new, _) = called_osd(&effects).unwrap();
    let sent = ops_sent(&effects, new);
    assert_eq!(sent.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), [looked.0]);
}

#[test]
fn pool_setting_that_begins_an_interval_resends() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (_, effects) = world.submit(write(1));
    let (conn, _) = called_osd(&effects).unwrap();
    let effects = world.maps(&[map_with(6, &[3], |m| m.pools.get_mut(&POOL).unwrap().min_size = 2)]);
    assert_eq!(ops_sent(&effects, conn).len(), 1);
}
