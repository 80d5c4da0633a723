//! Strangers: whatever they send costs a bounded buffer and a deadline.

use super::fixture::*;
use crate::{Config, Effect, Endpoint, Input};
use bytes::BytesMut;
use machine::net::*;
use machine::{Effects, Machine, Random, Time};
use proptest::prelude::*;
use std::time::Duration;
use wire::frames::{Banner, Control, FrameEncoder, WriteQueue};
use wire::types::{EntityAddr, EntityKind, EntityName};

fn endpoint() -> Endpoint {
    let addr = EntityAddr::msgr2("10.0.0.1:6800".parse().unwrap(), 1);
    Endpoint::new(Config::new(EntityName::new(EntityKind::OSD, 0), addr.into()), Random::from_number(1))
}

/// The bytes of a client's opening: banner and these frames.
fn opening(frames: &[Control]) -> Vec<u8> {
    let mut queue = WriteQueue::new();
    queue.put(&Banner::OURS.encode());
    let mut encoder = FrameEncoder::new();
    frames.iter().for_each(|f| encoder.control(f, &mut queue));
    queue.take().flat_map(|b| b.to_vec()).collect()
}

fn hello() -> Control {
    Control::Hello { kind: EntityKind::CLIENT, peer_addr: EntityAddr::default() }
}

fn is_shut(effects: &[Effect]) -> bool {
    effects.iter().any(|e| matches!(e, Effect::Shut { .. }))
}

#[test]
fn silent_stranger_is_closed_at_the_deadline() {
    let mut e = endpoint();
    for _ in 0..10_000 {
        stranger(&mut e, Time(5), &opening(&[hello()]));
    }
    assert_eq!(e.session_count(), 10_000);
    assert_eq!(e.next_deadline(), Some(Time(5) + Duration::from_secs(10)));
    let mut effects = Effects::new();
    e.step(Time(5) + Duration::from_secs(11), Input::Deadline, &mut effects);
    assert_eq!(e.session_count(), 0);
    let effects = effects.take();
    assert_eq!(effects.len(), 20_000);
    assert_eq!(effects.iter().filter(|e| matches!(e, Effect::Shut { .. })).count(), 10_000);
    let timed_out = |e: &&Effect| matches!(e, Effect::Refused { why: CloseReason::TimedOut, .. });
    assert_eq!(effects.iter().filter(timed_out).count(), 10_000);
}

#[test]
fn protocol_violation_closes_the_socket() {
    let auth = Control::AuthRequest { method: 2, preferred_modes: vec![1], payload: vec![0; 5].into() };
    let ident = Control::SessionReconnect {
        addrs: EntityAddr::default().into(),
        client_cookie: 1,
        server_cookie: 1,
        global_seq: 1,
        connect_seq: 1,
        message_seq: 1,
    };
    for (what, bytes) in [
        ("http", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("msgr v1", b"ceph v027".to_vec()),
        ("a session before authentication", opening(&[hello(), ident])),
        ("authentication before HELLO", opening(&[auth])),
        ("HELLO twice", opening(&[hello(), hello()])),
        ("a signature unasked", opening(&[hello(), Control::AuthSignature { signature: [0; 32] }])),
        ("a keepalive unasked", opening(&[hello(), Control::Keepalive2 { stamp: Default::default() }])),
    ] {
        let mut e = endpoint();
        let (_, effects) = stranger(&mut e, Time(1), &bytes);
        assert!(is_shut(&effects), "{what}: {effects:?}");
        assert_eq!(e.session_count(), 0, "{what}");
    }
}

#[test]
fn repeated_auth_attempts_hit_the_byte_bound() {
    let mut e = endpoint();
    let (socket, _) = stranger(&mut e, Time(1), &opening(&[hello()]));
    let auth = Control::AuthRequest { method: 2, preferred_modes: vec![1], payload: vec![0; 900].into() };
    let mut queue = WriteQueue::new();
    FrameEncoder::new().control(&auth, &mut queue);
    let bytes: Vec<u8> = queue.take().flat_map(|b| b.to_vec()).collect();
    let mut tries = 0;
    while e.session_count() == 1 {
        tries += 1;
        assert!(tries < 100, "still there after {} bytes", tries * bytes.len());
        let mut effects = Effects::new();
        e.step(Time(1), Input::Received { socket, bytes: BytesMut::from(&bytes[..]) }, &mut effects);
    }
}

#[test]
fn peer_that_fetches_nothing_is_not_read() {
    let mut w = World::new(1);
    let none = |c: &mut Config| {
        c.methods = vec![wire::cephx::METHOD_NONE];
        c.unwritten_len_max = 100_000;
    };
    let osd = w.add(EntityKind::OSD, 0, none);
    let client = w.add(EntityKind::CLIENT, 1, none);
    let credentials = Credentials::None { auth_name: "client.x".into(), global_id: 1 };
    let (to, conn) = (w.addrs(osd), machine::ConnId::outgoing(1));
    let connect = NetEffect::Connect {
        conn,
        to,
        kind: EntityKind::OSD,
        policy: Policy::Lossy,
        credentials: credentials.into(),
    };
    w.role(client, connect);
    w.run(Duration::from_secs(1));
    let (conn, _) = w.nodes[osd].peers().pop().unwrap();

    let e = &mut w.nodes[osd].endpoint;
    let (mut effects, mut sent) = (Effects::new(), 0);
    while effects.is_empty() {
        let send = NetEffect::Send { conn, message: message(1, 5000) };
        e.step(w.now, Input::Role(send), &mut effects);
        sent += 1;
        assert!(sent < 100);
    }
    let socket = match effects.take()[..] {
        [Effect::Reading { socket, on: false }] => socket,
        ref other => panic!("{other:?}"),
    };
    assert!((20..22).contains(&sent), "{sent} messages of 5000 bytes fit 100000");
    e.outgoing(socket).unwrap().clear();
    e.step(w.now, Input::Wrote { socket }, &mut effects);
    assert!(matches!(effects.take()[..], [Effect::Reading { on: true, .. }]));
}

proptest! {
    #[test]
    fn random_bytes_after_any_opening_never_panic(
        frames in 0usize..3,
        garbage in proptest::collection::vec(any::<u8>(), 0..500),
        steps in 1usize..5,
    ) {
        let auth = Control::AuthRequest { method: 2, preferred_modes: vec![1], payload: garbage.clone().into() };
        let open = [vec![], opening(&[hello()]), opening(&[hello(), auth])][frames].clone();
        let mut e = endpoint();
        let (socket, _) = stranger(&mut e, Time(1), &open);
        let mut effects = Effects::new();
        for piece in garbage.chunks(1 + garbage.len() / steps) {
            e.step(Time(1), Input::Received { socket, bytes: BytesMut::from(piece) }, &mut effects);
            e.check();
        }
    }
}
