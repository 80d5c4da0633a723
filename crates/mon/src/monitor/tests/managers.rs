//! The end of a manager: its addresses and those of its clients go on the blocklist.

use super::senders::beacon;
use super::*;
use std::collections::BTreeSet;
use wire::messages::MMgrBeacon;
use wire::types::{AddrKind, EntityAddrVec};

fn client(nonce: u32) -> EntityAddrVec {
    let at = EntityAddr { nonce, ..addr(0).0[0] };
    EntityAddrVec(vec![at])
}

/// A beacon of this life of mgr.x, with a client.
fn alive(gid: u64, port: u16, nonce: u32) -> MMgrBeacon {
    MMgrBeacon {
        gid,
        addrs: addr(port),
        client_addrs: vec![client(nonce)],
        client_names: vec!["rbd_support".into()],
        ..beacon(true)
    }
}

/// The only monitor, with a manager of global id 4123 at port 6810 whose client has the nonce 77.
fn managed() -> (Fixture, ConnId) {
    let mut f = Fixture::new(AuthMode::None);
    let manager = f.connect("mgr.x", 6810);
    f.send(manager, beacon(true));
    f.send(manager, alive(4123, 6810, 77));
    assert_eq!(clients(&f), [("rbd_support".to_owned(), client(77))]);
    assert!(fenced(&f).is_empty());
    (f, manager)
}

fn clients(f: &Fixture) -> Vec<(String, EntityAddrVec)> {
    f.monitor.state().mgrmap.clients.clone()
}

/// Addresses on the blocklist, with the seconds for which they stay there.
fn fenced(f: &Fixture) -> Vec<(EntityAddr, u32)> {
    let now = Fixture::wall(f.now);
    f.monitor.state().osdmap().blocklist.iter().map(|(addr, until)| (*addr, until.sec - now.sec)).collect()
}

fn entries(addrs: &[EntityAddr], seconds: u32) -> Vec<(EntityAddr, u32)> {
    let any = |addr: &EntityAddr| EntityAddr { kind: AddrKind::ANY, ..*addr };
    let mut all: Vec<_> = addrs.iter().map(|addr| (any(addr), seconds)).collect();
    all.sort();
    all
}

#[test]
fn failed_manager_and_its_clients_are_fenced_for_a_day() {
    let (mut f, _) = managed();
    let epoch = f.monitor.state().osdmap().epoch;
    let admin = f.connect("client.admin", 7000);
    f.ok(admin, r#"{"prefix":"mgr fail"}"#);
    assert_eq!(fenced(&f), entries(&[addr(6810).0[0], client(77).0[0]], 86_400));
    assert!(clients(&f).is_empty());
    assert_eq!(f.monitor.state().mgrmap.last_failure_osd_epoch, epoch + 1);
    assert_eq!(f.monitor.state().osdmap().epoch, epoch + 1);
}

#[test]
fn silent_manager_and_its_clients_are_fenced() {
    let (mut f, manager) = managed();
    let admin = f.connect("client.admin", 7000);
    let set = r#"{"prefix":"config set","who":"mon","name":"mon_mgr_blocklist_interval","value":"7200"}"#;
    f.ok(admin, set);
    f.pass(Duration::from_secs(20));
    f.send(manager, alive(4123, 6810, 77));
    f.pass(Duration::from_secs(20));
    assert!(fenced(&f).is_empty(), "its beacons come");
    f.pass(Duration::from_secs(12));
    let left: Vec<(EntityAddr, u32)> = fenced(&f);
    assert_eq!(left.iter().map(|(addr, _)| addr.nonce).collect::<BTreeSet<_>>(), [1, 77].into());
    assert!(left.iter().all(|(_, seconds)| (7100..=7200).contains(seconds)), "{left:?}");
    assert_eq!(f.monitor.state().mgrmap.active_gid, 0);
}

#[test]
fn former_life_of_restarted_manager_is_fenced() {
    let (mut f, _) = managed();
    let again = f.connect_as("mgr.x", 6811, 5000);
    f.send(again, MMgrBeacon { client_addrs: vec![], client_names: vec![], ..alive(5000, 6811, 0) });
    assert_eq!(fenced(&f), entries(&[addr(6810).0[0], client(77).0[0]], 86_400));
    assert!(clients(&f).is_empty());
    f.send(again, alive(5000, 6811, 78));
    assert_eq!(clients(&f), [("rbd_support".to_owned(), client(78))]);
    assert_eq!(fenced(&f).len(), 2, "the new client is let in");
}

#[test]
fn manager_with_new_session_keeps_its_client() {
    let (mut f, _) = managed();
    let again = f.connect_as("mgr.x", 6810, 5000);
    f.send(again, alive(5000, 6810, 77));
    assert_eq!(f.monitor.state().mgrmap.active_gid, 5000);
    assert!(fenced(&f).is_empty());
    // Its client was replaced while it had no session.
    let again = f.connect_as("mgr.x", 6810, 6000);
    f.send(again, alive(6000, 6810, 78));
    assert_eq!(fenced(&f), entries(&client(77).0, 86_400));
}

#[test]
fn manager_that_waits_is_not_fenced() {
    let (mut f, _) = managed();
    let admin = f.connect("client.admin", 7000);
    f.ok(admin, r#"{"prefix":"auth add","entity":"mgr.y","caps":["mon","allow profile mgr"]}"#);
    let standby = f.connect_as("mgr.y", 6820, 7000);
    f.send(standby, MMgrBeacon { name: "y".into(), ..alive(7000, 6820, 90) });
    f.ok(admin, r#"{"prefix":"mgr fail","who":"y"}"#);
    assert!(f.monitor.state().mgrmap.standbys.is_empty());
    assert!(fenced(&f).is_empty());
    f.send(standby, MMgrBeacon { name: "y".into(), ..alive(7000, 6820, 90) });
    f.ok(admin, r#"{"prefix":"mgr fail","who":"x"}"#);
    assert_eq!(fenced(&f), entries(&[addr(6810).0[0], client(77).0[0]], 86_400));
    let map = &f.monitor.state().mgrmap;
    assert_eq!((map.active_name.as_str(), map.clients.len()), ("y", 0));
}
