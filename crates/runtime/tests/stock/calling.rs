//! shoal's client session gets into a stock monitor.

use super::release::{Dir, Release, Running, releases_with};
use super::{CONN, Node};
use bytes::Bytes;
use machine::net::*;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::{Duration, Instant};
use wire::cephx::{Key, KeyKind};
use wire::frames::{MODE_CRC, MODE_SECURE};
use wire::messages::{Body, Header, Message, Payload};
use wire::types::{EntityAddr, EntityKind};

const GET_MONMAP: u16 = 5;
const MONMAP: u16 = 4;

/// A stock monitor of its own, alone, without any other daemon.
struct StockMonitor {
    _process: Running,
    _dir: Dir,
    addr: SocketAddr,
    admin: Key,
}

impl StockMonitor {
    fn start(release: &Release, auth: &str) -> StockMonitor {
        let dir = release.dir();
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let path = |name: &str| dir.inside.join(name).display().to_string();
        let (keyring, map, conf, data) = (path("keyring"), path("map"), path("conf"), path("data"));
        let fsid = "7d0f6f0c-5cb1-4a3c-8a0b-3d9f7c1d2e4a";
        let all = "allow *";
        let tool = |args: &[&str]| release.run("ceph-authtool", args);
        tool(&["--create-keyring", &keyring, "--gen-key", "-n", "mon.", "--cap", "mon", all]);
        tool(&[&keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", all, "--cap", "osd", all]);
        let admin = Key::from_base64(&tool(&[&keyring, "-p", "-n", "client.admin"])).unwrap();
        let addv = format!("[v2:{addr}]");
        release.run("monmaptool", &["--create", "--addv", "a", &addv, "--fsid", fsid, &map]);
        let settings = ["cluster", "service", "client"].map(|who| format!("auth_{who}_required = {auth}\n"));
        let own = format!(
            "run_dir = {0}\nlog_file = {0}/log\nmon_host = {addv}\nfsid = {fsid}\n",
            dir.inside.display()
        );
        std::fs::write(dir.outside.join("conf"), format!("[global]\n{own}{}", settings.concat())).unwrap();
        let base = ["-i", "a", "--mon-data", &data, "-c", &conf, "--keyring", &keyring];
        release.run("ceph-mon", &[&base[..], &["--mkfs", "--monmap", &map]].concat());
        let mut daemon = release.command("ceph-mon");
        daemon.args(base).args(["-f"]).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Running(daemon.spawn().unwrap());
        let monitor = StockMonitor { _process: process, _dir: dir, addr, admin };
        monitor.wait_until_it_judges(auth);
        monitor
    }

    /// Until it has a quorum (of itself) it closes every connection.
    fn wait_until_it_judges(&self, auth: &str) {
        let patience = Instant::now() + Duration::from_secs(30);
        let node = Node::client(&[MODE_CRC, MODE_SECURE]);
        let auth_name = || "client.admin".into();
        loop {
            let key = || Credentials::Key {
                auth_name: auth_name(),
                key: self.admin.clone(),
                want_services: 1,
                reclaim: None,
            };
            let none = || Credentials::None { auth_name: auth_name(), global_id: 0 };
            self.connect(&node, if auth == "none" { none() } else { key() });
            match node.next() {
                NetEvent::Closed { why: CloseReason::Broken(_), .. } => {}
                _ => return,
            }
            assert!(Instant::now() < patience, "the stock monitor lets no one in");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn connect(&self, node: &Node, credentials: Credentials) {
        node.effect(NetEffect::Connect {
            conn: CONN,
            to: EntityAddr::msgr2(self.addr, 0).into(),
            kind: EntityKind::MON,
            policy: Policy::Lossy,
            credentials,
        });
    }
}

/// Ask for the monitors' map: an answer says that messages pass both ways.
fn get_monmap(node: &Node, secure: bool) {
    match node.next() {
        NetEvent::Ready { peer, .. } => assert_eq!(peer.secure, secure),
        other => panic!("{other:?}"),
    }
    let header = Header { tid: 0, kind: GET_MONMAP, priority: 127, version: 1, compat: 1 };
    let body = Body::Unknown { header, payload: Payload::default() };
    node.effect(NetEffect::Send { conn: CONN, message: Message { tid: 0, priority: 127, body } });
    loop {
        match node.next() {
            NetEvent::Message { message, .. } if message.body.kind() == MONMAP => return,
            NetEvent::Message { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn with_a_key_in_both_modes() {
    for release in releases_with("ceph-mon") {
        let monitor = StockMonitor::start(&release, "cephx");
        eprintln!("{}: client.admin's key is {:?}", release.name(), monitor.admin);
        for mode in [MODE_CRC, MODE_SECURE] {
            let key = |reclaim| Credentials::Key {
                auth_name: "client.admin".into(),
                key: monitor.admin.clone(),
                want_services: 1 | 4,
                reclaim,
            };
            let node = Node::client(&[mode]);
            monitor.connect(&node, key(None));
            let NetEvent::Granted { grant, .. } = node.next() else { panic!("not let in") };
            let services: Vec<u32> = grant.tickets.iter().map(|t| t.service).collect();
            assert!(services.contains(&32) && services.contains(&4), "{services:?}");
            get_monmap(&node, mode == MODE_SECURE);

            // Come back as who we were.
            let auth = grant.tickets.iter().find(|t| t.service == 32).unwrap().clone();
            let again = Node::client(&[mode]);
            monitor.connect(&again, key(Some((grant.global_id, auth))));
            let NetEvent::Granted { grant: second, .. } = again.next() else { panic!("not let in again") };
            assert_eq!(second.global_id, grant.global_id);
            get_monmap(&again, mode == MODE_SECURE);
        }
    }
}

#[test]
fn not_with_a_wrong_key() {
    for release in releases_with("ceph-mon") {
        let monitor = StockMonitor::start(&release, "cephx");
        for kind in [KeyKind::Aes, KeyKind::Aes256k] {
            let secret = Bytes::from(vec![7; kind.secret_len()]);
            let key = Key { kind: kind as u16, created: Default::default(), secret };
            let node = Node::client(&[MODE_CRC, MODE_SECURE]);
            let auth_name = "client.admin".into();
            monitor.connect(&node, Credentials::Key { auth_name, key, want_services: 1, reclaim: None });
            match node.next() {
                NetEvent::Closed { why: CloseReason::Denied(why), .. } => {
                    assert!(why.contains("-13"), "{why}")
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn without_keys() {
    for release in releases_with("ceph-mon") {
        let monitor = StockMonitor::start(&release, "none");
        let node = Node::client(&[MODE_SECURE, MODE_CRC]);
        monitor.connect(&node, Credentials::None { auth_name: "client.admin".into(), global_id: 0 });
        let NetEvent::Granted { grant, .. } = node.next() else { panic!("not let in") };
        assert_ne!(grant.global_id, 0);
        get_monmap(&node, false);
    }
}
