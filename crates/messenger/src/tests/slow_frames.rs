//! Large frames that come slowly: each holds memory that others wait for.

use super::fixture::*;
use machine::ConnId;
use machine::net::{CloseReason, Credentials, NetEffect, Policy};
use std::time::Duration;
use wire::cephx::METHOD_NONE;
use wire::types::EntityKind;

const OSD: usize = 0;
const BUDGET: usize = 4 << 20;
const WINDOW: Duration = Duration::from_secs(20);
const FRAME_LEN: usize = 3 << 20;

/// An OSD, and a client that has sent the first `sent` bytes of a frame of 3 MiB; the rest of the frame.
fn begun(sent: usize) -> (World, RawPeer, Vec<u8>) {
    let mut w = World::new(1);
    w.add(EntityKind::OSD, 0, |c| {
        c.methods = vec![METHOD_NONE];
        c.held_len_max = BUDGET;
    });
    let mut peer = RawPeer::call(&mut w, OSD, "client.slow", 9);
    peer.ident(&mut w);
    let frame = peer.frame_of(1, &message(1, FRAME_LEN));
    peer.write(&mut w, &frame[..sent]);
    let rest = frame[sent..].to_vec();
    assert_eq!(w.nodes[OSD].endpoint.session_count(), 1);
    (w, peer, rest)
}

/// Sends `bytes` in each of `windows` windows.
fn drip(w: &mut World, peer: &RawPeer, rest: &mut Vec<u8>, bytes: usize, windows: usize) {
    for _ in 0..windows * 10 {
        if w.nodes[OSD].endpoint.session_count() > 0 {
            let some: Vec<u8> = rest.drain(..(bytes / 10).min(rest.len())).collect();
            peer.write(w, &some);
        }
        w.run(WINDOW / 10);
    }
}

/// Another client, whose message finds no room.
fn add_waiting_client(w: &mut World) -> usize {
    let client = w.add(EntityKind::CLIENT, 5, |c| c.methods = vec![METHOD_NONE]);
    let (to, conn, policy) = (w.addrs(OSD), ConnId::outgoing(1), Policy::Lossy);
    let credentials = Credentials::None { auth_name: "client.x".into(), global_id: 5 };
    w.role(
        client,
        NetEffect::Connect { conn, to, kind: EntityKind::OSD, policy, credentials: credentials.into() },
    );
    w.role(client, NetEffect::Send { conn, message: message(7, 2 << 20) });
    w.run(Duration::from_millis(10));
    client
}

#[test]
fn frame_that_stops_is_given_up_and_its_room_freed() {
    let (mut w, _peer, _) = begun(100_000);
    add_waiting_client(&mut w);
    w.run(WINDOW / 2);
    assert_eq!(w.nodes[OSD].received(), [] as [u64; 0], "there is no room for the other client");
    w.run(WINDOW);
    assert!(matches!(&w.nodes[OSD].closed()[..], [CloseReason::Broken(why)] if why.contains("too slowly")));
    assert_eq!(w.nodes[OSD].received(), [7], "the other client has its room");
    assert_eq!(w.nodes[OSD].endpoint.session_count(), 1);
}

#[test]
fn slow_frame_finishes_while_nobody_waits() {
    let (mut w, peer, mut rest) = begun(100_000);
    drip(&mut w, &peer, &mut rest, 100_000, 40);
    assert_eq!(w.nodes[OSD].received(), [1]);
    assert!(w.nodes[OSD].closed().is_empty());
}

#[test]
fn slow_frame_is_given_up_while_others_wait() {
    let (mut w, peer, mut rest) = begun(100_000);
    add_waiting_client(&mut w);
    drip(&mut w, &peer, &mut rest, 100_000, 3);
    assert_eq!(w.nodes[OSD].received(), [7]);
    assert_eq!(w.nodes[OSD].closed().len(), 1);
}

#[test]
fn fast_enough_frame_finishes_while_others_wait() {
    let (mut w, peer, mut rest) = begun(100_000);
    add_waiting_client(&mut w);
    drip(&mut w, &peer, &mut rest, 1_200_000, 3);
    assert_eq!(w.nodes[OSD].received(), [1]);
    assert!(w.nodes[OSD].closed().is_empty());
}

#[test]
fn silent_session_without_a_frame_lasts_to_the_idle_timeout() {
    let (mut w, peer, rest) = begun(100_000);
    peer.write(&mut w, &rest);
    w.run(Duration::from_secs(800));
    assert_eq!(w.nodes[OSD].endpoint.session_count(), 1);
    w.run(Duration::from_secs(200));
    assert_eq!(w.nodes[OSD].closed(), [CloseReason::TimedOut]);
}
