//! Peers whose claimed name goes beyond their key.

use super::fixture::*;
use crate::testing::Monitor;
use crate::{Config, ModeLists};
use machine::ConnId;
use machine::net::*;
use std::time::Duration;
use wire::cephx::{KeyKind, METHOD_CEPHX, METHOD_NONE};
use wire::frames::{Control, MODE_CRC, MODE_SECURE};
use wire::types::EntityKind;

const OSD: usize = 0;
const CALLER: usize = 1;
const CONN: ConnId = ConnId::outgoing(1);

/// An OSD, and a caller that claims `kind` and `num` with a ticket in the name of `key` (global id 4000). Modes of `modes`
/// at the OSD; the caller wants `wants`.
fn call(key: &str, kind: EntityKind, num: i64, modes: ModeLists, wants: &[u32]) -> World {
    let mut w = World::new(1);
    w.add(EntityKind::OSD, 0, |c: &mut Config| {
        c.methods = vec![METHOD_CEPHX];
        c.modes = modes;
    });
    w.add(kind, num, |c: &mut Config| c.modes = ModeLists::all(wants));
    let mut monitor = Monitor::new(KeyKind::Aes256k);
    monitor.name = key.parse().unwrap();
    w.role(OSD, NetEffect::ServiceKeys(monitor.osd_keys.clone()));
    let ticket = monitor.service_ticket(EntityKind::OSD);
    let credentials = Credentials::Ticket { auth_name: key.into(), global_id: 4000, ticket };
    let to = w.addrs(OSD);
    w.role(
        CALLER,
        NetEffect::Connect {
            conn: CONN,
            to,
            kind: EntityKind::OSD,
            policy: Policy::Lossy,
            credentials: credentials.into(),
        },
    );
    w.role(CALLER, NetEffect::Send { conn: CONN, message: message(1, 10) });
    w.run(Duration::from_secs(1));
    w
}

fn both() -> ModeLists {
    ModeLists::all(&[MODE_CRC, MODE_SECURE])
}

/// The OSD's role has heard nothing, and the host logs one line.
fn assert_refused(w: &World, why: &str) {
    assert!(w.nodes[OSD].events.is_empty(), "{:?}", w.nodes[OSD].events);
    assert_eq!(w.nodes[OSD].endpoint.session_count(), 0);
    match &w.nodes[OSD].refused[..] {
        [CloseReason::Denied(said)] => assert!(said.contains(why), "{said}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn client_key_claiming_daemon_is_refused() {
    for kind in [EntityKind::OSD, EntityKind::MON, EntityKind::MGR, EntityKind::MDS] {
        for mode in [MODE_CRC, MODE_SECURE] {
            let w = call("client.admin", kind, 1, both(), &[mode]);
            assert_refused(&w, "which its key is not");
            assert!(matches!(w.nodes[CALLER].closed()[..], [CloseReason::Denied(_)]), "it is told");
        }
    }
}

#[test]
fn osd_key_claiming_another_osd_is_refused() {
    assert_refused(&call("osd.2", EntityKind::OSD, 1, both(), &[MODE_CRC]), "another daemon's name");
    let honest = call("osd.2", EntityKind::OSD, 2, both(), &[MODE_CRC]);
    assert_eq!(honest.nodes[OSD].peers()[0].1.identity.osd(), Some(2));
}

#[test]
fn client_claiming_another_global_id_is_refused() {
    assert_refused(&call("client.a", EntityKind::CLIENT, 4001, both(), &[MODE_CRC]), "its global id is 4000");
    for num in [-1, 0, 4000] {
        let honest = call("client.a", EntityKind::CLIENT, num, both(), &[MODE_CRC]);
        assert_eq!(honest.nodes[OSD].received(), [1]);
    }
}

/// The mode is negotiated by the claim, before anything is proved.
#[test]
fn claim_does_not_escape_secure_mode() {
    let secure_for_clients = || ModeLists { cluster: vec![MODE_CRC], ..ModeLists::all(&[MODE_SECURE]) };
    let forged = call("client.a", EntityKind::OSD, 1, secure_for_clients(), &[MODE_CRC]);
    assert_refused(&forged, "which its key is not");
    let osd = call("osd.1", EntityKind::OSD, 1, secure_for_clients(), &[MODE_CRC]);
    assert!(!osd.nodes[OSD].peers()[0].1.secure, "a proven OSD may");
    let client = call("client.a", EntityKind::CLIENT, -1, secure_for_clients(), &[MODE_CRC]);
    assert!(client.nodes[OSD].peers().is_empty());
    // A daemon's key in a client's hands is bound by the clients' modes.
    let tool = call("osd.1", EntityKind::CLIENT, -1, secure_for_clients(), &[MODE_CRC]);
    assert!(tool.nodes[OSD].peers().is_empty());
}

#[test]
fn daemon_key_in_a_tool_is_metered_and_lossy() {
    let mut w = call("osd.1", EntityKind::CLIENT, -1, both(), &[MODE_CRC]);
    let (conn, peer) = w.nodes[OSD].peers().pop().unwrap();
    assert_eq!((peer.identity.osd(), peer.identity.is_daemon()), (None, false));
    assert!(w.nodes[OSD].endpoint.sessions[&conn].is_metered());
    w.cut_all();
    w.run(Duration::from_secs(1));
    assert_eq!(w.nodes[OSD].endpoint.session_count(), 0);
}

/// A program reconnects to the session that node 0 has with `osd.1`, with the right addresses and cookies and
/// under `auth none` in the name of `name`.
fn reconnect(w: &mut World, name: &str) -> Vec<CloseReason> {
    let session = w.nodes[OSD].endpoint.sessions.values().next().unwrap();
    let back = Control::SessionReconnect {
        addrs: session.peer.addrs.clone(),
        client_cookie: session.client_cookie,
        server_cookie: session.server_cookie,
        global_seq: session.peer_global_seq + 1,
        connect_seq: session.connect_seq + 1,
        message_seq: 0,
    };
    let mut peer = RawPeer::call(w, OSD, name, 0);
    peer.control(w, &back);
    std::mem::take(&mut w.nodes[OSD].refused)
}

#[test]
fn reconnect_in_another_name_is_refused() {
    let mut w = World::new(2);
    let open = |c: &mut Config| {
        c.methods = vec![METHOD_NONE];
        c.accept_policy_default = Policy::LosslessPeer;
    };
    w.add(EntityKind::OSD, 0, open);
    w.add(EntityKind::OSD, 1, open);
    let (to, policy) = (w.addrs(OSD), Policy::LosslessPeer);
    let credentials = Credentials::None { auth_name: "osd.1".into(), global_id: 0 };
    w.role(
        CALLER,
        NetEffect::Connect { conn: CONN, to, kind: EntityKind::OSD, policy, credentials: credentials.into() },
    );
    w.run(Duration::from_secs(1));
    for thief in ["osd.2", "client.a", "mgr.x"] {
        let refused = reconnect(&mut w, thief);
        assert!(matches!(&refused[..], [CloseReason::Denied(_)]), "{thief}: {refused:?}");
    }
    w.role(CALLER, NetEffect::Send { conn: CONN, message: message(7, 0) });
    w.run(Duration::from_secs(1));
    assert_eq!(w.nodes[OSD].received(), [7], "the session goes on with its owner");
    assert!(reconnect(&mut w, "osd.1").is_empty(), "the owner itself may come back");
}
