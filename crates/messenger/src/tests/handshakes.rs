//! Handshakes that succeed, in every mode, and those that are denied.

use super::fixture::*;
use crate::testing::Monitor;
use crate::{Config, ModeLists};
use machine::ConnId;
use machine::identity::Capabilities;
use machine::net::*;
use std::time::Duration;
use wire::cephx::{Key, KeyKind, METHOD_CEPHX, METHOD_NONE};
use wire::frames::{MODE_CRC, MODE_SECURE};
use wire::types::{AddrKind, EntityAddr, EntityAddrVec, EntityKind, UTime};

const MON: usize = 0;
const OSD: usize = 1;
const CLIENT: usize = 2;
const TO_MON: ConnId = ConnId::outgoing(1);
const TO_OSD: ConnId = ConnId::outgoing(2);

fn world(kind: KeyKind, method: u32, modes: &[u32]) -> World {
    world_with_client(-1, kind, method, modes)
}

fn world_with_client(number: i64, kind: KeyKind, method: u32, modes: &[u32]) -> World {
    let mut w = World::new(1);
    let change = |c: &mut Config| {
        c.methods = vec![method];
        c.modes = ModeLists::all(modes);
    };
    w.add(EntityKind::MON, 0, change);
    w.add(EntityKind::OSD, 3, change);
    w.add(EntityKind::CLIENT, number, change);
    let monitor = Monitor::new(kind);
    w.role(OSD, NetEffect::ServiceKeys(monitor.osd_keys.clone()));
    w.nodes[MON].monitor = Some(monitor);
    w
}

fn connect(w: &mut World, conn: ConnId, to: usize, kind: EntityKind, credentials: Credentials) {
    let to = w.addrs(to);
    w.role(
        CLIENT,
        NetEffect::Connect { conn, to, kind, policy: Policy::Lossy, credentials: credentials.into() },
    );
    w.run(Duration::from_secs(1));
}

fn with_key(w: &World) -> Credentials {
    let key = w.nodes[MON].monitor.as_ref().unwrap().key.clone();
    Credentials::Key { auth_name: "client.admin".into(), key, want_services: 4, reclaim: None }
}

fn with_ticket(w: &World) -> Credentials {
    let grant = w.nodes[CLIENT].grant().expect("the monitor let us in");
    let ticket = grant.tickets.iter().find(|t| t.service == 4).unwrap().clone();
    Credentials::Ticket { auth_name: "client.admin".into(), global_id: grant.global_id, ticket }
}

#[test]
fn client_reaches_monitor_then_osd_in_every_mode() {
    for kind in [KeyKind::Aes, KeyKind::Aes256k] {
        for mode in [MODE_CRC, MODE_SECURE] {
            let mut w = world(kind, METHOD_CEPHX, &[mode]);
            let credentials = with_key(&w);
            connect(&mut w, TO_MON, MON, EntityKind::MON, credentials);
            let credentials = with_ticket(&w);
            connect(&mut w, TO_OSD, OSD, EntityKind::OSD, credentials);

            let at_mon = w.nodes[MON].peers();
            assert_eq!(at_mon[0].1.identity.name().to_string(), "client.admin");
            assert_eq!(at_mon[0].1.secure, mode == MODE_SECURE);
            let (at_osd, peer) = w.nodes[OSD].peers().pop().expect("the OSD has a peer");
            assert_eq!(peer.identity.capabilities(), Capabilities::Text("allow rw".into()));
            assert_eq!(peer.identity.entity().to_string(), "client.4000", "the id of its ticket");
            assert_eq!(w.nodes[CLIENT].peers()[1].1.claimed.to_string(), "osd.3");

            // Messages of all sizes, both ways, in order.
            for n in 0..20 {
                let len = [0, 100, 40_000, 300_000][n as usize % 4];
                w.role(CLIENT, NetEffect::Send { conn: TO_OSD, message: message(n, len) });
                w.role(OSD, NetEffect::Send { conn: at_osd, message: message(100 + n, len) });
            }
            w.run(Duration::from_secs(1));
            assert_eq!(w.nodes[OSD].received(), (0..20).collect::<Vec<_>>());
            assert_eq!(w.nodes[CLIENT].received(), (100..120).collect::<Vec<_>>());
            assert!(w.nodes.iter().all(|n| n.closed().is_empty()));
        }
    }
}

/// `ceph tell mon.X` opens a second session: it gets a global id of its own, and calls itself by that of the first.
#[test]
fn second_monitor_session_keeps_the_number_of_the_first() {
    let mut w = world_with_client(77, KeyKind::Aes, METHOD_CEPHX, &[MODE_SECURE]);
    let credentials = with_key(&w);
    connect(&mut w, TO_MON, MON, EntityKind::MON, credentials);
    let (_, peer) = w.nodes[MON].peers().pop().expect("the monitor admits the client");
    assert_eq!(peer.identity.entity().to_string(), "client.4000", "the proven id counts");
}

/// An OSD with a cluster network is called at two addresses, and is at each what its caller expects.
#[test]
fn peer_that_is_called_in_its_second_network_says_so() {
    let mut w = World::new(1);
    let second: EntityAddrVec = EntityAddr::msgr2("10.0.1.1:6801".parse().unwrap(), 0).into();
    let addrs = second.clone();
    let osd = w.add(EntityKind::OSD, 3, |c| {
        c.methods = vec![METHOD_NONE];
        c.second_addrs = Some(addrs);
    });
    let client = w.add(EntityKind::CLIENT, -1, |c| c.methods = vec![METHOD_NONE]);
    let call = |w: &mut World, number, to: EntityAddrVec| {
        // The host that the packets go to is the same.
        w.nodes[osd].addr = to.0[0].socket.unwrap();
        let credentials = Credentials::None { auth_name: "client.admin".into(), global_id: 4000 };
        let connect = NetEffect::Connect {
            conn: ConnId::outgoing(number),
            to,
            kind: EntityKind::OSD,
            policy: Policy::Lossy,
            credentials: credentials.into(),
        };
        w.role(client, connect);
        w.run(Duration::from_secs(1));
        (w.nodes[client].peers().len(), w.nodes[client].closed().len())
    };
    let first = w.addrs(osd);
    assert_eq!(call(&mut w, 1, first), (1, 0));
    assert_eq!(call(&mut w, 2, second), (2, 0));
    let other: EntityAddrVec = EntityAddr::msgr2("10.0.1.1:6801".parse().unwrap(), 9).into();
    assert_eq!(call(&mut w, 3, other), (2, 1), "another process was there before");
}

#[test]
fn auth_none_admits_everyone_in_crc_mode() {
    let mut w = world(KeyKind::Aes, METHOD_NONE, &[MODE_SECURE, MODE_CRC]);
    let none = |global_id| Credentials::None { auth_name: "client.admin".into(), global_id };
    connect(&mut w, TO_MON, MON, EntityKind::MON, none(0));
    assert_eq!(w.nodes[CLIENT].grant().unwrap().global_id, 4000);
    connect(&mut w, TO_OSD, OSD, EntityKind::OSD, none(4000));
    let (_, peer) = w.nodes[OSD].peers().pop().unwrap();
    assert_eq!((peer.identity.global_id(), peer.secure), (4000, false));
    assert_eq!(peer.identity.capabilities(), Capabilities::Everything);
}

#[test]
fn connecting_sides_preference_decides_the_mode() {
    for (client, picked) in [([MODE_CRC, MODE_SECURE], false), ([MODE_SECURE, MODE_CRC], true)] {
        let mut w = world(KeyKind::Aes, METHOD_CEPHX, &[MODE_CRC, MODE_SECURE]);
        let other = w.add(EntityKind::CLIENT, -1, |c| c.modes = ModeLists::all(&client));
        let (to, credentials) = (w.addrs(MON), with_key(&w));
        let connect = NetEffect::Connect {
            conn: TO_MON,
            to,
            kind: EntityKind::MON,
            policy: Policy::Lossy,
            credentials: credentials.into(),
        };
        w.role(other, connect);
        w.run(Duration::from_secs(1));
        assert_eq!(w.nodes[MON].peers()[0].1.secure, picked);
    }
}

fn denied(w: &World) -> String {
    match w.nodes[CLIENT].closed().pop() {
        Some(CloseReason::Denied(why)) => why,
        other => panic!("expected a denial, got {other:?}"),
    }
}

#[test]
fn wrong_key_is_denied() {
    let mut w = world(KeyKind::Aes256k, METHOD_CEPHX, &[MODE_CRC]);
    let key = Key::generate(KeyKind::Aes256k, UTime::ZERO, &mut machine::Random::from_number(99));
    let credentials =
        Credentials::Key { auth_name: "client.admin".into(), key, want_services: 4, reclaim: None };
    connect(&mut w, TO_MON, MON, EntityKind::MON, credentials);
    assert!(denied(&w).contains("-13"));
    assert!(w.nodes[MON].peers().is_empty());
    let logged = CloseReason::Denied("authentication failed with error -13".into());
    assert_eq!(w.nodes[MON].refused, [logged], "the host logs what its role has refused");
}

#[test]
fn ticket_under_rotated_out_key_is_denied() {
    let mut w = world(KeyKind::Aes, METHOD_CEPHX, &[MODE_CRC]);
    let credentials = with_key(&w);
    connect(&mut w, TO_MON, MON, EntityKind::MON, credentials);
    let credentials = with_ticket(&w);
    let later = Monitor::new(KeyKind::Aes).osd_keys;
    let later = wire::cephx::RotatingKeys {
        secrets: later.secrets.into_iter().map(|(id, s)| (id + 3, s)).collect(),
        max_version: 6,
    };
    w.role(OSD, NetEffect::ServiceKeys(later));
    connect(&mut w, TO_OSD, OSD, EntityKind::OSD, credentials);
    assert!(denied(&w).contains("-13"));
    assert!(w.nodes[OSD].peers().is_empty());
}

#[test]
fn disjoint_methods_are_denied() {
    let mut w = world(KeyKind::Aes, METHOD_CEPHX, &[MODE_SECURE]);
    let none = Credentials::None { auth_name: "client.admin".into(), global_id: 0 };
    connect(&mut w, TO_MON, MON, EntityKind::MON, none);
    assert!(denied(&w).contains("-95"));
}

#[test]
fn unanswered_auth_request_times_out() {
    let mut w = world(KeyKind::Aes, METHOD_CEPHX, &[MODE_CRC]);
    let credentials = with_key(&w);
    w.nodes[MON].monitor = None;
    connect(&mut w, TO_MON, MON, EntityKind::MON, credentials);
    w.run(Duration::from_secs(20));
    assert_eq!(w.nodes[CLIENT].closed().len(), 1);
    assert_eq!(w.nodes[MON].endpoint.session_count(), 0);
}

#[test]
fn refused_connection_closes_the_session() {
    let mut w = world(KeyKind::Aes, METHOD_CEPHX, &[MODE_CRC]);
    let credentials = with_key(&w);
    w.nodes[MON].addr = "10.0.0.99:1".parse().unwrap();
    connect(&mut w, TO_MON, MON, EntityKind::MON, credentials);
    assert!(matches!(w.nodes[CLIENT].closed()[..], [CloseReason::Broken(_)]));
}

#[test]
fn client_learns_its_address_from_its_peer() {
    let mut w = world(KeyKind::Aes, METHOD_CEPHX, &[MODE_CRC]);
    let blank = EntityAddr { kind: AddrKind::MSGR2, nonce: 9, socket: None };
    w.nodes.pop();
    w.add(EntityKind::CLIENT, -1, |c| {
        c.methods = vec![METHOD_CEPHX];
        c.modes = ModeLists::all(&[MODE_CRC]);
        c.addrs = blank.into();
    });
    assert_eq!(w.nodes[CLIENT].endpoint.addrs_seen_by(TO_MON), None);
    let credentials = with_key(&w);
    connect(&mut w, TO_MON, MON, EntityKind::MON, credentials);
    let learned = w.nodes[CLIENT].endpoint.addrs_seen_by(TO_MON).unwrap();
    assert_eq!(learned.0, [EntityAddr { socket: Some(([10, 0, 0, 3], 0).into()), ..blank }]);
    assert_eq!(w.nodes[MON].peers()[0].1.addrs, learned, "the monitor knows it by this");
}
