//! shoal's client session gets into a stock monitor.

use super::release::{Dir, Release, Running, releases_or_skip};
use super::{CONN, Node};
use machine::net::*;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::{Duration, Instant};
use wire::cephx::{Key, KeyKind};
use wire::frames::{MODE_CRC, MODE_SECURE};
use wire::messages::{Body, Header, Message, Payload, UnknownMessage};
use wire::types::{EntityAddr, EntityKind};

const GET_MONMAP: u16 = 5;
const MONMAP: u16 = 4;

/// A stock monitor of its own, alone, without any other daemon.
struct StockMonitor {
    _process: Running,
    dir: Dir,
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
        // For an OSD that a test may add.
        tool(&[&keyring, "--gen-key", "-n", "osd.0", "--cap", "mon", all, "--cap", "osd", all]);
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
        let monitor = StockMonitor { _process: process, dir, addr, admin };
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
            credentials: credentials.into(),
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
    let body = Body::Unknown(Box::new(UnknownMessage { header, payload: Payload::default() }));
    node.effect(NetEffect::Send { conn: CONN, message: Message { tid: 0, priority: 127, body } });
    loop {
        match node.next() {
            NetEvent::Message { message, .. } if message.body.kind() == MONMAP => return,
            NetEvent::Message { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A stock OSD of the monitor's cluster.
struct StockOsd {
    _process: Running,
    /// With its nonce: a daemon answers to nothing else.
    addr: EntityAddr,
}

impl StockOsd {
    fn start(release: &Release, monitor: &StockMonitor) -> StockOsd {
        let path = |name: &str| monitor.dir.inside.join(name).display().to_string();
        let (conf, keyring, data) = (path("conf"), path("keyring"), path("osd"));
        std::fs::create_dir_all(monitor.dir.outside.join("osd")).unwrap();
        let uuid = "e2f8a1c5-52f3-4ba0-9a35-0a6a42a1c9aa";
        let ceph = |args: &[&str]| {
            release.run("ceph", &[&["-c", &conf, "-k", &keyring, "--connect-timeout", "20"], args].concat())
        };
        ceph(&["osd", "new", uuid]);
        let base =
            ["-i", "0", "-c", &conf, "-k", &keyring, "--osd-data", &data, "--osd-objectstore", "memstore"];
        release.run("ceph-osd", &[&base[..], &["--mkfs", "--osd-uuid", uuid]].concat());
        let mut daemon = release.command("ceph-osd");
        daemon.args(base).args(["-f"]).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Running(daemon.spawn().unwrap());
        let patience = Instant::now() + Duration::from_secs(40);
        loop {
            // osd.0 up in weight 1 ... [v2:127.0.0.1:6800/123,v1:...]
            let dump = ceph(&["osd", "dump"]);
            let line = dump.lines().find(|l| l.starts_with("osd.0 up"));
            if let Some(v2) = line.and_then(|l| l.split("v2:").nth(1)) {
                let (socket, rest) = v2.split_once('/').unwrap();
                let nonce = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
                let addr = EntityAddr::msgr2(socket.parse().unwrap(), nonce.parse().unwrap());
                return StockOsd { _process: process, addr };
            }
            assert!(Instant::now() < patience, "the stock OSD does not come up: {dump}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

#[test]
fn an_osd_with_a_ticket_in_both_modes() {
    for release in releases_or_skip!("ceph-osd") {
        let monitor = StockMonitor::start(&release, "cephx");
        let osd = StockOsd::start(&release, &monitor);
        for mode in [MODE_CRC, MODE_SECURE] {
            let node = Node::client(&[mode]);
            let key = monitor.admin.clone();
            let auth_name = || "client.admin".into();
            monitor.connect(
                &node,
                Credentials::Key { auth_name: auth_name(), key, want_services: 4, reclaim: None },
            );
            let NetEvent::Granted { grant, .. } = node.next() else { panic!("not let in") };
            get_monmap(&node, mode == MODE_SECURE);
            let ticket = grant.tickets.iter().find(|t| t.service == 4).unwrap().clone();
            let global_id = grant.global_id;
            node.effect(NetEffect::Close { conn: CONN });
            let call = |addr: EntityAddr, ticket| NetEffect::Connect {
                conn: CONN,
                to: addr.into(),
                kind: EntityKind::OSD,
                policy: Policy::Lossy,
                credentials: Box::new(Credentials::Ticket { auth_name: auth_name(), global_id, ticket }),
            };
            node.effect(call(osd.addr, ticket.clone()));
            match node.next() {
                NetEvent::Ready { peer, .. } => {
                    assert_eq!(
                        (peer.claimed.to_string().as_str(), peer.secure),
                        ("osd.0", mode == MODE_SECURE)
                    );
                }
                other => panic!("{}: {other:?}", release.name()),
            }
            // With a session key that is not the ticket's nobody gets in.
            node.effect(NetEffect::Close { conn: CONN });
            let mut stolen = ticket;
            let secret = vec![9; stolen.session_key.secret.len()];
            stolen.session_key.secret = wire::cephx::Secret::new(&secret);
            node.effect(call(osd.addr, stolen));
            match node.next() {
                NetEvent::Closed { why: CloseReason::Denied(_), .. } => {}
                other => panic!("{}: {other:?}", release.name()),
            }
            eprintln!("{}: in at an OSD, mode {mode}, {:?}", release.name(), monitor.admin);
        }
    }
}

#[test]
fn with_a_key_in_both_modes() {
    for release in releases_or_skip!("ceph-mon") {
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
    for release in releases_or_skip!("ceph-mon") {
        let monitor = StockMonitor::start(&release, "cephx");
        for kind in [KeyKind::Aes, KeyKind::Aes256k] {
            let secret = vec![7; kind.secret_len()].into();
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
    for release in releases_or_skip!("ceph-mon") {
        let monitor = StockMonitor::start(&release, "none");
        let node = Node::client(&[MODE_SECURE, MODE_CRC]);
        monitor.connect(&node, Credentials::None { auth_name: "client.admin".into(), global_id: 0 });
        let NetEvent::Granted { grant, .. } = node.next() else { panic!("not let in") };
        assert_ne!(grant.global_id, 0);
        get_monmap(&node, false);
    }
}
