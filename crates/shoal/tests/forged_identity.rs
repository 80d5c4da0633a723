//! A cluster with cephx, and a program that holds a client's key and says that it is a daemon.
//!
//! The key is `client.admin`'s, which may run every command: even that makes nobody an OSD.

use bytes::Bytes;
use codec::{Encode, Features};
use conf::keyring::Keyring;
use machine::net::{CloseReason, Credentials, Grant, NetEffect, NetEvent, Policy};
use machine::{ConnId, Time};
use runtime::{Options, Reactors, Role, Turn};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;
use wire::messages::*;
use wire::types::*;

const PATIENCE: Duration = Duration::from_secs(20);
/// The time that a forged message gets to do harm.
const HARM: Duration = Duration::from_secs(3);
/// A number that stands nowhere but in forged reports.
const MARK: i64 = 987_654_321;

/// A cluster of one OSD, as `shoal up` makes it.
struct Cluster {
    dir: PathBuf,
    port: u16,
    keyring: Keyring,
}

impl Cluster {
    fn start() -> Cluster {
        let dir = std::env::temp_dir().join(format!("shoal-forged-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let mut cluster = Cluster { dir, port: free_port(), keyring: Keyring::default() };
        let port = cluster.port.to_string();
        cluster.shoal(&["up", "--osds", "1", "--store", "mem", "--size", "1G", "--port", &port]);
        cluster.keyring = Keyring::load(&cluster.dir.join("keyring")).unwrap();
        cluster
    }

    fn shoal(&self, args: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
        let done = command.arg(args[0]).arg("--dir").arg(&self.dir).args(&args[1..]).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn monitor(&self) -> EntityAddrVec {
        EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], self.port)), 0).into()
    }

    fn credentials(&self, name: &str) -> Credentials {
        let key = self.keyring.key_of(name).unwrap().clone();
        let want_services = u32::from(EntityKind::OSD.0 | EntityKind::MGR.0);
        Credentials::Key { auth_name: name.into(), key, want_services, reclaim: None }
    }

    fn log_lines(&self, daemon: &str, with: &str) -> usize {
        let log = std::fs::read_to_string(self.dir.join(format!("{daemon}.log"))).unwrap();
        log.lines().filter(|line| line.contains(with)).count()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for daemon in ["mon.a", "osd.0"] {
                let log = std::fs::read_to_string(self.dir.join(format!("{daemon}.log"))).unwrap_or_default();
                log.lines().rev().take(20).for_each(|line| println!("{daemon}: {line}"));
            }
        }
        self.shoal(&["down", "--grace", "10"]);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The first of a run of ports that nobody listens on.
fn free_port() -> u16 {
    let first = 20_000 + (std::process::id() % 500) as u16 * 20;
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (first..60_000).step_by(20).find(|base| (*base..base + 14).all(is_free)).expect("ports are free")
}

/// Events out by a channel, effects in by the mailbox.
struct Remote(mpsc::Sender<NetEvent>);

impl Role for Remote {
    type Hop = NetEffect;

    fn on_net(&mut self, event: NetEvent, _: &mut Turn<NetEffect>) {
        let _ = self.0.send(event);
    }

    fn on_hop(&mut self, effect: NetEffect, turn: &mut Turn<NetEffect>) {
        turn.net(effect);
    }

    fn on_deadline(&mut self, _: &mut Turn<NetEffect>) {}

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

/// A program with a messenger of its own that calls itself `name`.
struct Program {
    reactors: Reactors<NetEffect>,
    events: mpsc::Receiver<NetEvent>,
}

impl Program {
    fn named(kind: EntityKind, number: i64) -> Program {
        let nonce = std::process::id() ^ (number as u32) << 8;
        let blank = EntityAddr { kind: AddrKind::MSGR2, nonce, socket: None };
        let session = messenger::Config::new(EntityName::new(kind, number), blank.into());
        let (sender, events) = mpsc::channel();
        let options = Options {
            idle_poll: Duration::ZERO,
            cores: 1,
            listeners: Vec::new(),
            session,
            seed: [kind.0 ^ number as u8; 32],
            name: "forger".into(),
        };
        let reactors = Reactors::start(options, move |_, _| Remote(sender.clone())).unwrap();
        Program { reactors, events }
    }

    fn effect(&self, effect: NetEffect) {
        self.reactors.mailboxes()[0].post(effect);
    }

    fn send(&self, conn: ConnId, body: impl Into<Body>) {
        self.effect(NetEffect::Send { conn, message: Message::with_tid(7, body) });
    }

    /// Waits for a session; with a monitor also for its tickets.
    fn connect(
        &self,
        conn: ConnId,
        to: EntityAddrVec,
        kind: EntityKind,
        credentials: Credentials,
    ) -> Result<Option<Grant>, CloseReason> {
        self.effect(NetEffect::Connect {
            conn,
            to,
            kind,
            policy: Policy::Lossy,
            credentials: credentials.into(),
        });
        let mut granted = None;
        loop {
            match self.events.recv_timeout(PATIENCE).expect("an event in time") {
                NetEvent::Granted { grant, .. } => granted = Some(grant),
                NetEvent::Ready { .. } => return Ok(granted),
                NetEvent::Closed { why, .. } => return Err(why),
                _ => {}
            }
        }
    }

    /// The next message that `pick` wants.
    fn wait_for<T>(&self, mut pick: impl FnMut(Body) -> Option<T>) -> T {
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("a message in time");
            if let NetEvent::Message { message, .. } = event
                && let Some(found) = pick(message.body)
            {
                return found;
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.reactors.stop();
    }
}

const MON: ConnId = ConnId::outgoing(1);
const MGR: ConnId = ConnId::outgoing(2);
const OSD: ConnId = ConnId::outgoing(3);

/// `client.admin`, honestly, connected to all three daemons.
struct Admin {
    program: Program,
    grant: Grant,
    fsid: Uuid,
    map: OsdMap,
    manager: EntityAddrVec,
}

fn ticket_of(grant: &Grant, service: EntityKind) -> Credentials {
    let ticket = grant.tickets.iter().find(|t| t.service == u32::from(service.0)).expect("a ticket").clone();
    Credentials::Ticket { auth_name: "client.admin".into(), global_id: grant.global_id, ticket }
}

impl Admin {
    fn connect(cluster: &Cluster) -> Admin {
        let program = Program::named(EntityKind::CLIENT, -1);
        let credentials = cluster.credentials("client.admin");
        let grant = program.connect(MON, cluster.monitor(), EntityKind::MON, credentials).unwrap().unwrap();
        let subscribe = |what: &str| {
            let what = BTreeMap::from([(what.to_owned(), SubscribeItem { start: 0, flags: 1 })]);
            program.send(MON, MMonSubscribe { what, hostname: "h".into() });
        };
        subscribe("osdmap");
        let map = program.wait_for(|body| match body {
            Body::MOSDMap(m) => Some(codec::decode_exact::<OsdMap>(m.maps.values().next_back()?).unwrap()),
            _ => None,
        });
        subscribe("mgrmap");
        let manager = program.wait_for(|body| match body {
            Body::MMgrMap(m) => Some(m.map.active_addrs),
            _ => None,
        });
        let osd = map.osds[0].addrs.client.clone();
        for (conn, to, kind) in [(MGR, manager.clone(), EntityKind::MGR), (OSD, osd, EntityKind::OSD)] {
            program.connect(conn, to, kind, ticket_of(&grant, kind)).unwrap();
        }
        Admin { program, grant, fsid: map.fsid, map, manager }
    }

    fn osd(&self) -> EntityAddrVec {
        self.map.osds[0].addrs.client.clone()
    }

    fn monitor(&self, command: &str) -> String {
        let (command, input) = (vec![command.to_owned()], Bytes::new());
        self.program
            .send(MON, MMonCommand { paxos: PaxosHeader::default(), fsid: self.fsid, command, input });
        self.program.wait_for(|body| match body {
            Body::MMonCommandAck(m) => Some(String::from_utf8_lossy(&m.output).into_owned()),
            _ => None,
        })
    }

    fn tell(&self, conn: ConnId, command: &str) -> String {
        self.program
            .send(conn, MCommand { fsid: self.fsid, command: vec![command.to_owned()], input: Bytes::new() });
        self.program.wait_for(|body| match body {
            Body::MCommandReply(m) => Some(String::from_utf8_lossy(&m.output).into_owned()),
            _ => None,
        })
    }

    /// The state that monitor, manager and OSD report.
    fn truth(&self) -> [String; 3] {
        [
            self.monitor(r#"{"prefix":"osd dump","format":"json"}"#),
            self.monitor(r#"{"prefix":"health","detail":"detail","format":"json"}"#),
            self.tell(OSD, r#"{"prefix":"status"}"#),
        ]
    }
}

/// A map without pools that follows `map`, with the right checksums.
fn forged_maps(map: &OsdMap) -> MOSDMap {
    let mut step = OsdMapIncremental::after(map, UTime { sec: 2_000_000_000, nsec: 0 });
    step.old_pools = map.pools.keys().copied().collect();
    step.seal(map).unwrap();
    let bytes = Bytes::from(step.to_vec(Features(step.encode_features)));
    let epoch = map.epoch + 1;
    MOSDMap {
        fsid: map.fsid,
        incremental_maps: [(epoch, bytes)].into(),
        newest_map: epoch,
        ..MOSDMap::default()
    }
}

fn forged_stats(fsid: Uuid) -> MPGStats {
    let mut stat = PgStat { reported_epoch: u32::MAX, reported_seq: u64::MAX, ..PgStat::unknown() };
    stat.stats.sum.num_objects = MARK;
    let mut osd = OsdStat { seq: u64::MAX, num_osds: 1, ..OsdStat::default() };
    osd.statfs.total = MARK as u64 * 1024;
    MPGStats {
        paxos: PaxosHeader::default(),
        fsid,
        osd,
        pgs: [(PgId { pool: 1, seed: 0 }, stat)].into(),
        epoch: u32::MAX,
        had_map_for: UTime::ZERO,
        pools: BTreeMap::new(),
    }
}

fn pg_temp() -> MOSDPGTemp {
    let pg_temp = BTreeMap::from([(PgId { pool: 1, seed: 0 }, vec![0])]);
    MOSDPGTemp { paxos: PaxosHeader::default(), map_epoch: 1, pg_temp, forced: false }
}

/// Every message that only a daemon may send, to the daemon that takes it.
fn forge(admin: &Admin) {
    let (fsid, paxos, program) = (admin.fsid, PaxosHeader::default(), &admin.program);
    let row = &admin.map.osds[0];
    program.send(
        MON,
        MOSDFailure {
            paxos,
            fsid,
            target_osd: 0,
            target_addrs: row.addrs.client.clone(),
            epoch: admin.map.epoch,
            flags: MOSDFailure::FAILED | MOSDFailure::IMMEDIATE,
            failed_for_s: 1000,
        },
    );
    let superblock =
        OsdSuperblock { cluster_fsid: fsid, osd_fsid: row.uuid, whoami: 0, ..OsdSuperblock::default() };
    let addrs = EntityAddrVec::default();
    program.send(
        MON,
        MOSDBoot {
            paxos,
            superblock,
            heartbeat_back_addrs: addrs.clone(),
            cluster_addrs: addrs.clone(),
            boot_epoch: 0,
            heartbeat_front_addrs: addrs,
            metadata: BTreeMap::new(),
            features: wire::features::SUPPORTED.0,
        },
    );
    program.send(MON, pg_temp());
    let check = HealthCheck { summary: "FORGED".into(), ..HealthCheck::default() };
    program.send(
        MON,
        MMonMgrReport {
            paxos,
            health: HealthChecks(BTreeMap::from([("FORGED".to_owned(), check)])),
            service_map: Bytes::new(),
            progress: BTreeMap::new(),
            gid: admin.grant.global_id,
            digest: PgMapDigest::default().to_vec(Features::ALL).into(),
        },
    );
    program.send(MGR, forged_stats(fsid));
    let (service_name, daemon_name) = ("osd".to_owned(), "0".to_owned());
    program.send(MGR, MMgrOpen { service_name, daemon_name: daemon_name.clone(), ..MMgrOpen::default() });
    let health = vec![HealthMetric { kind: 0, value: 77 | 1000 << 32 }];
    program.send(MGR, MMgrReport { daemon_name, health, ..MMgrReport::default() });
    program.send(OSD, forged_maps(&admin.map));
}

#[test]
fn client_that_acts_as_a_daemon_changes_nothing() {
    let cluster = Cluster::start();
    let admin = Admin::connect(&cluster);
    admin.monitor(r#"{"prefix":"osd pool create","pool":"data","pg_num":8}"#);
    drop(admin);
    std::thread::sleep(HARM);

    // As it is: messages of a daemon, over an honest client's sessions.
    let admin = Admin::connect(&cluster);
    assert_eq!(admin.map.pools.len(), 1);
    let before = admin.truth();
    for _ in 0..3 {
        forge(&admin);
    }
    std::thread::sleep(HARM);
    assert_eq!(admin.truth(), before);
    let dump = admin.tell(MGR, r#"{"prefix":"pg dump","format":"json"}"#);
    assert!(dump.contains("pg_stats") && !dump.contains(&MARK.to_string()), "{dump}");
    for (daemon, message) in [
        ("mon.a", "MOSDFailure, which only"),
        ("mon.a", "MOSDBoot, which only"),
        ("mon.a", "MOSDPGTemp, which only"),
        ("mon.a", "MMonMgrReport, which only"),
        ("mon.a", "MPGStats, which only"),
        ("mon.a", "reports of osd.0"),
        ("mon.a", "a report of no daemon"),
        ("osd.0", "MOSDMap, which only"),
    ] {
        assert_eq!(cluster.log_lines(daemon, message), 1, "{message} in the log of {daemon}");
    }

    // Under a daemon's name: nobody lets it in, and each daemon logs why.
    let claims = [(EntityKind::OSD, 0), (EntityKind::OSD, 7), (EntityKind::MGR, 0), (EntityKind::MON, 0)];
    for (n, (kind, number)) in claims.into_iter().enumerate() {
        let liar = Program::named(kind, number);
        let attempts = [
            (cluster.monitor(), EntityKind::MON, cluster.credentials("client.admin")),
            (admin.manager.clone(), EntityKind::MGR, ticket_of(&admin.grant, EntityKind::MGR)),
            (admin.osd(), EntityKind::OSD, ticket_of(&admin.grant, EntityKind::OSD)),
        ];
        for (conn, (to, service, credentials)) in attempts.into_iter().enumerate() {
            let outcome = liar.connect(ConnId::outgoing(conn as u64 + 1), to, service, credentials);
            assert!(
                matches!(outcome, Err(CloseReason::Denied(_))),
                "{kind:?} {number} at {service:?}: {outcome:?}"
            );
        }
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(cluster.log_lines("mon.a", "which its key is not"), 2 * (n + 1));
        assert_eq!(cluster.log_lines("osd.0", "which its key is not"), n + 1);
    }
    // And a client under another client's number.
    let liar = Program::named(EntityKind::CLIENT, 1);
    let outcome = liar.connect(OSD, admin.osd(), EntityKind::OSD, ticket_of(&admin.grant, EntityKind::OSD));
    assert!(outcome.is_err());
    assert_eq!(admin.truth(), before);

    // The same message with the right key acts: the test above could fail.
    let osd = Program::named(EntityKind::OSD, 0);
    osd.connect(MON, cluster.monitor(), EntityKind::MON, cluster.credentials("osd.0")).unwrap();
    osd.send(MON, pg_temp());
    std::thread::sleep(HARM);
    assert_ne!(admin.truth()[0], before[0], "osd.0 itself may ask for this");
}
