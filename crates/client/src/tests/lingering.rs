//! Watches and notifications.

use super::fixture::*;
use super::object;
use crate::{Effect, Event, WatchEvent, WatchId};
use bytes::Bytes;
use machine::{ConnId, Effects};
use std::time::Duration;
use wire::messages::{MOSDOp, MWatchNotify, Message};
use wire::types::osd_op::WatchParams;
use wire::types::{NotifyAck, OpCode, op_value};

fn watch(world: &mut World) -> (WatchId, ConnId, (u64, MOSDOp)) {
    let mut fx = Effects::new();
    let id = world.client.watch(world.now, object("x"), Duration::from_secs(30), &mut fx);
    let effects = fx.take();
    let (conn, _) = called_osd(&effects).unwrap();
    world.ready(conn);
    let sent = ops_sent(&effects, conn).remove(0);
    (id, conn, sent)
}

fn params(op: &MOSDOp) -> WatchParams {
    assert_eq!(op.ops[0].code, OpCode::WATCH);
    op.ops[0].params.watch()
}

fn events(effects: &[Effect]) -> Vec<(WatchId, WatchEvent)> {
    let event = |e: &Effect| match e {
        Effect::Event(Event::Watch { id, event }) => Some((*id, event.clone())),
        _ => None,
    };
    effects.iter().filter_map(event).collect()
}

fn notification(id: WatchId, event: u8) -> Message {
    Message::new(MWatchNotify {
        event,
        cookie: id.0,
        version: 0,
        notify_id: 88,
        payload: Bytes::from_static(b"hear"),
        result: 0,
        notifier_gid: 5,
        outcome: Bytes::from_static(b"all"),
    })
}

#[test]
fn watch_is_registered_notified_and_acknowledged() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, conn, (tid, op)) = watch(&mut world);
    let asked = params(&op);
    assert_eq!((asked.op, asked.cookie, asked.timeout_s), (op_value::WATCH_WATCH, id.0, 30));
    let effects = world.reply(conn, tid, &op, 0);
    assert_eq!(events(&effects), [(id, WatchEvent::Registered)]);
    let effects = world.message(conn, notification(id, op_value::EVENT_NOTIFY));
    let expected = WatchEvent::Notify { notify_id: 88, notifier: 5, payload: Bytes::from_static(b"hear") };
    assert_eq!(events(&effects), [(id, expected)]);
    let mut fx = Effects::new();
    world.client.notify_ack(world.now, id, 88, Bytes::from_static(b"heard"), &mut fx).unwrap();
    let effects = fx.take();
    let ack = &ops_sent(&effects, conn)[0].1.ops[0];
    assert_eq!(ack.code, OpCode::NOTIFY_ACK);
    let read = NotifyAck::from_input(&ack.input, 0);
    assert_eq!((read.notify_id, read.cookie, &read.reply[..]), (88, Some(id.0), &b"heard"[..]));
}

#[test]
fn watch_reconnects_with_a_new_generation() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, conn, (tid, op)) = watch(&mut world);
    world.reply(conn, tid, &op, 0);
    let effects = world.close(conn);
    let (conn, _) = called_osd(&effects).unwrap();
    world.ready(conn);
    let (tid, op) = ops_sent(&effects, conn).remove(0);
    let asked = params(&op);
    assert_eq!((asked.op, asked.cookie, asked.generation), (op_value::WATCH_RECONNECT, id.0, 1));
    assert!(events(&world.reply(conn, tid, &op, 0)).is_empty(), "the caller need not know");

    // To another OSD.
    let effects = world.maps(&[map(6, &[4])]);
    let (conn, osd) = called_osd(&effects).unwrap();
    assert_eq!(osd, 4);
    let (tid, op) = ops_sent(&effects, conn).remove(0);
    assert_eq!(params(&op).generation, 2);
    // The OSD does not know it any more.
    let effects = world.reply(conn, tid, &op, -2);
    assert_eq!(events(&effects), [(id, WatchEvent::Lost(-107))]);
    let effects = world.close(conn);
    assert!(called_osd(&effects).is_none() || ops_sent(&effects, called_osd(&effects).unwrap().0).is_empty());
}

#[test]
fn watch_is_lost_when_a_ping_fails() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, conn, (tid, op)) = watch(&mut world);
    world.reply(conn, tid, &op, 0);
    let (mut last, mut pings) = (world.now, 0);
    while pings < 3 {
        let effects = world.pass_until_deadline();
        for (tid, op) in ops_sent(&effects, conn) {
            assert_eq!(params(&op).op, op_value::WATCH_PING);
            assert_eq!((world.now - last).as_secs(), 5);
            last = world.now;
            pings += 1;
            let result = if pings < 3 { 0 } else { -107 };
            let effects = world.reply(conn, tid, &op, result);
            assert_eq!(events(&effects).len(), (pings == 3) as usize);
            if pings == 3 {
                assert_eq!(events(&effects), [(id, WatchEvent::Lost(-107))]);
            }
        }
    }
}

#[test]
fn dropped_watch_is_reported_once() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, conn, (tid, op)) = watch(&mut world);
    world.reply(conn, tid, &op, 0);
    let effects = world.message(conn, notification(id, op_value::EVENT_DISCONNECT));
    assert_eq!(events(&effects), [(id, WatchEvent::Lost(-107))]);
    assert!(events(&world.message(conn, notification(id, op_value::EVENT_DISCONNECT))).is_empty());
}

#[test]
fn watch_on_a_missing_object_is_refused() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, conn, (tid, op)) = watch(&mut world);
    let effects = world.reply(conn, tid, &op, -2);
    assert_eq!(events(&effects), [(id, WatchEvent::Lost(-2))]);
    let mut fx = Effects::new();
    assert!(world.client.unwatch(world.now, id, &mut fx).is_some());
    let effects = fx.take();
    assert_eq!(params(&ops_sent(&effects, conn)[0].1).op, op_value::WATCH_UNWATCH);
    assert!(world.client.unwatch(world.now, id, &mut fx).is_none());
}

#[test]
fn notify_awaits_completion_and_is_resent_to_a_new_primary() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let mut fx = Effects::new();
    let id = world.client.notify(
        world.now,
        object("x"),
        Bytes::from_static(b"hi"),
        Duration::from_secs(3),
        &mut fx,
    );
    let effects = fx.take();
    let (conn, _) = called_osd(&effects).unwrap();
    let (tid, op) = ops_sent(&effects, conn).remove(0);
    assert_eq!((op.ops[0].code, op.ops[0].params.notify_cookie()), (OpCode::NOTIFY, id.0));
    let mut reply = reply_to(&op, 0);
    reply.ops[0].output = 88u64.to_le_bytes().to_vec().into();
    let effects = world.message(conn, Message::with_tid(tid, reply));
    assert!(effects.is_empty());

    let effects = world.maps(&[map(6, &[4])]);
    let (conn, _) = called_osd(&effects).unwrap();
    let (tid, op) = ops_sent(&effects, conn).remove(0);
    assert_eq!(op.ops[0].code, OpCode::NOTIFY);
    // The completion may come before the reply that names it.
    let effects = world.message(conn, notification(id, op_value::EVENT_NOTIFY_COMPLETE));
    let told = |e: &Effect| matches!(e, Effect::Event(Event::Notified { id: i, result: 0, outcome }) if *i == id && outcome == "all");
    // The first OSD gave it number 88, and so does the second here.
    assert!(effects.iter().any(told));
    assert!(world.reply(conn, tid, &op, 0).is_empty());
    assert_eq!(world.client.in_flight(), 0);
}

/// The OSD stopped serving in between, and has forgotten its watches and notifications.
#[test]
fn watch_reregisters_after_map_flap() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (_, conn, (tid, op)) = watch(&mut world);
    world.reply(conn, tid, &op, 0);
    let mut fx = Effects::new();
    let id = world.client.notify(world.now, object("x"), Bytes::new(), Duration::from_secs(3), &mut fx);
    let (tid, op) = ops_sent(&fx.take(), conn).remove(0);
    let numbered = |op: &MOSDOp, number: u64| {
        let mut reply = reply_to(op, 0);
        reply.ops[0].output = number.to_le_bytes().to_vec().into();
        reply
    };
    world.message(conn, Message::with_tid(tid, numbered(&op, 77)));
    assert_eq!(world.client.in_flight(), 0, "both are held by the OSD");

    let effects = world.away_and_back(&map(5, &[3]), 4);
    assert_eq!(world.client.map().unwrap().epoch, 7);
    let again = ops_sent(&effects, conn);
    let [(_, watch), (tid, notify)] = &again[..] else { panic!("{again:?}") };
    assert_eq!((params(watch).op, params(watch).generation), (op_value::WATCH_RECONNECT, 1));
    assert_eq!(notify.ops[0].code, OpCode::NOTIFY);
    // It has number 88 now, and may end before it is known to.
    let effects = world.message(conn, notification(id, op_value::EVENT_NOTIFY_COMPLETE));
    assert!(
        effects.iter().any(|e| matches!(e, Effect::Event(Event::Notified { id: told, .. }) if *told == id))
    );
    assert!(world.message(conn, Message::with_tid(*tid, numbered(notify, 88))).is_empty());
}
