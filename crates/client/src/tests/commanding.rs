//! Commands to the manager and to OSDs.

use super::fixture::*;
use crate::{CommandId, CommandReply, Daemon, Effect, Event, Failure};
use bytes::Bytes;
use machine::{ConnId, Effects};
use std::time::Duration;
use wire::messages::{Body, MCommandReply, MMgrCommandReply, MMgrMap, Message};
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, MgrMap};

const TIMEOUT: Duration = Duration::from_secs(4);

fn command(world: &mut World, to: Daemon) -> (CommandId, Vec<Effect>) {
    let mut fx = Effects::new();
    let id = world.client.command(world.now, to, r#"{"prefix":"x"}"#.into(), TIMEOUT, &mut fx);
    (id, fx.take())
}

fn mgrmap(epoch: u32, port: u16, available: bool) -> Message {
    let addrs = EntityAddrVec(vec![EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 1)]);
    Message::new(MMgrMap { map: MgrMap { epoch, active_addrs: addrs, available, ..MgrMap::default() } })
}

/// Numbers of the commands that were sent.
fn commands_sent(effects: &[Effect], to: ConnId) -> Vec<u64> {
    let is_command = |m: &&&Message| matches!(m.body, Body::MCommand(_) | Body::MMgrCommand(_));
    sent(effects, to).iter().filter(is_command).map(|m| m.tid).collect()
}

fn outcomes(effects: &[Effect]) -> Vec<(CommandId, Result<CommandReply, Failure>)> {
    let outcome = |effect: &Effect| match effect {
        Effect::Event(Event::Commanded { id, outcome }) => Some((*id, outcome.clone())),
        _ => None,
    };
    effects.iter().filter_map(outcome).collect()
}

fn reply(output: &'static [u8]) -> CommandReply {
    CommandReply { result: 0, status: String::new(), output: Bytes::from_static(output) }
}

#[test]
fn osd_is_called_for_a_command_and_answers() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, effects) = command(&mut world, Daemon::Osd(3));
    let (conn, osd) = called_osd(&effects).expect("the OSD is called");
    assert_eq!((osd, commands_sent(&effects, conn)), (3, vec![id.0]));
    world.ready(conn);
    let answer = MCommandReply { result: 0, status: String::new(), output: Bytes::from_static(b"{}") };
    let effects = world.message(conn, Message::with_tid(id.0, answer.clone()));
    assert_eq!(outcomes(&effects), [(id, Ok(reply(b"{}")))]);
    assert_eq!(
        outcomes(&world.message(conn, Message::with_tid(id.0, answer))),
        [],
        "a second answer is none"
    );
    let (next, effects) = command(&mut world, Daemon::Osd(3));
    assert_eq!(commands_sent(&effects, conn), [next.0], "the session stays");
}

#[test]
fn command_to_a_down_osd_fails_at_once() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, effects) = command(&mut world, Daemon::Osd(4));
    assert_eq!(outcomes(&effects), [(id, Err(Failure::NotUp))]);
    assert!(called_osd(&effects).is_none());
}

#[test]
fn command_fails_with_its_connection_and_is_not_resent() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let (id, effects) = command(&mut world, Daemon::Osd(3));
    let (conn, _) = called_osd(&effects).unwrap();
    world.ready(conn);
    let effects = world.close(conn);
    assert_eq!(outcomes(&effects), [(id, Err(Failure::Disconnected))]);
    let (again, _) = called_osd(&effects).expect("the session is opened again");
    assert_eq!(commands_sent(&effects, again), [0u64; 0]);
    // The OSD goes down.
    let (id, _) = command(&mut world, Daemon::Osd(3));
    let effects = world.maps(&[map(6, &[2])]);
    assert_eq!(outcomes(&effects), [(id, Err(Failure::Disconnected))]);
}

#[test]
fn command_waits_for_the_map_and_times_out() {
    let mut world = World::new();
    let (id, effects) = command(&mut world, Daemon::Osd(3));
    assert_eq!(outcomes(&effects), []);
    let until = world.now + TIMEOUT;
    let mut seen = Vec::new();
    while world.now < until {
        seen.extend(world.pass_until_deadline());
    }
    assert_eq!(outcomes(&seen), [(id, Err(Failure::TimedOut))]);
    assert_eq!(world.now, until);
}

#[test]
fn manager_is_found_by_its_map_and_followed() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let mon = world.mon.unwrap();
    let (id, effects) = command(&mut world, Daemon::Manager);
    let wants_map = |m: &&Message| matches!(&m.body, Body::MMonSubscribe(s) if s.what.contains_key("mgrmap"));
    assert!(sent(&effects, mon).iter().any(wants_map), "the map of managers is asked for");
    let effects = world.message(mon, mgrmap(2, 6790, true));
    let (conn, addrs) = called(&effects, EntityKind::MGR).expect("the manager is called");
    assert_eq!((addrs.0[0].socket.unwrap().port(), commands_sent(&effects, conn)), (6790, vec![id.0]));
    let answer = MMgrCommandReply { result: 0, status: String::new(), output: Bytes::from_static(b"[]") };
    let effects = world.message(conn, Message::with_tid(id.0, answer));
    assert_eq!(outcomes(&effects), [(id, Ok(reply(b"[]")))]);

    // Another manager takes over while a command is under way.
    let (lost, effects) = command(&mut world, Daemon::Manager);
    assert_eq!(commands_sent(&effects, conn), [lost.0]);
    let effects = world.message(mon, mgrmap(3, 6791, true));
    assert_eq!(outcomes(&effects), [(lost, Err(Failure::Disconnected))]);
    let (id, effects) = command(&mut world, Daemon::Manager);
    let (next, addrs) = called(&effects, EntityKind::MGR).expect("the next manager is called");
    assert_eq!((addrs.0[0].socket.unwrap().port(), commands_sent(&effects, next)), (6791, vec![id.0]));
}

#[test]
fn command_fails_without_a_manager() {
    let mut world = World::connected(&[(1, map(5, &[3]))]);
    let mon = world.mon.unwrap();
    let (id, _) = command(&mut world, Daemon::Manager);
    let effects = world.message(mon, mgrmap(2, 6790, false));
    assert_eq!(outcomes(&effects), [(id, Err(Failure::NotUp))]);
    assert!(called(&effects, EntityKind::MGR).is_none());
    let (id, effects) = command(&mut world, Daemon::Manager);
    assert_eq!(outcomes(&effects), [(id, Err(Failure::NotUp))]);
    // A manager that breaks the connection is called for the next command.
    world.message(mon, mgrmap(3, 6790, true));
    let (id, effects) = command(&mut world, Daemon::Manager);
    let (conn, _) = called(&effects, EntityKind::MGR).unwrap();
    assert_eq!(outcomes(&world.close(conn)), [(id, Err(Failure::Disconnected))]);
    let (_, effects) = command(&mut world, Daemon::Manager);
    assert!(called(&effects, EntityKind::MGR).is_some());
}
