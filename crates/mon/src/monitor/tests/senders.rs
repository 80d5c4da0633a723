//! Every message that a monitor takes, from every kind of peer: what must happen.
//!
//! The rows are compared with the registry: a message that a monitor takes has a row here, and no other has one.

use super::{AuthMode, FSID, Fixture, addr};
use bytes::Bytes;
use codec::{Encode, Features};
use machine::ConnId;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::*;
use wire::types::*;

/// The result of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It was carried out, or answered.
    Done,
    /// It was answered with an error.
    Denied,
    /// It was dropped for want of a capability, as stock does.
    Dropped,
    /// It was dropped, and the monitor's log has one line about it.
    Logged,
}
use Outcome::{Denied, Done, Dropped, Logged};

/// The peers, in the order of a row's outcomes. The last but one has a key without capabilities, the last has no key: the
/// cluster runs with `auth none`, and it calls itself an OSD.
const PEERS: [&str; 7] = ["client.admin", "osd.0", "mds.a", "mgr.x", "mon.", "client.none", "osd.0"];

struct Row {
    message: &'static str,
    /// Makes it, in the name of the peer.
    sample: fn(&mut Fixture, &AuthName) -> Body,
    outcomes: [Outcome; 7],
}

const PAXOS: PaxosHeader = PaxosHeader { version: 0 };

fn command(prefix: &str) -> Vec<String> {
    vec![format!(r#"{{"prefix":"{prefix}","key":"noout"}}"#)]
}

const ROWS: &[Row] = &[
    // Everybody may ask; capabilities decide what is answered.
    Row {
        message: "MAuth",
        // Garbage: a real request proves its own key.
        sample: |_, _| MAuth { paxos: PAXOS, protocol: 2, payload: Bytes::new(), monmap_epoch: 0 }.into(),
        outcomes: [Denied; 7],
    },
    Row { message: "MMonGetMap", sample: |_, _| MMonGetMap {}.into(), outcomes: [Done; 7] },
    Row { message: "MPing", sample: |_, _| MPing.into(), outcomes: [Done; 7] },
    Row {
        message: "MGetConfig",
        sample: |_, name| {
            let (host, device_class) = (String::new(), String::new());
            MGetConfig { name: name.clone(), host, device_class }.into()
        },
        outcomes: [Done; 7],
    },
    Row {
        message: "MMonSubscribe",
        sample: |_, _| {
            let what = BTreeMap::from([("osdmap".to_owned(), SubscribeItem { start: 1, flags: 0 })]);
            MMonSubscribe { what, hostname: "h".into() }.into()
        },
        outcomes: [Done, Done, Done, Done, Done, Dropped, Done],
    },
    Row {
        message: "MMonGetVersion",
        sample: |_, _| MMonGetVersion { handle: 1, what: "osdmap".into() }.into(),
        outcomes: [Done, Done, Done, Done, Done, Dropped, Done],
    },
    Row {
        message: "MMonCommand",
        sample: |_, _| {
            MMonCommand { paxos: PAXOS, fsid: FSID, command: command("osd set"), input: Bytes::new() }.into()
        },
        outcomes: [Done, Done, Denied, Done, Done, Denied, Done],
    },
    Row {
        message: "MCommand",
        sample: |_, _| MCommand { fsid: FSID, command: command("config show"), input: Bytes::new() }.into(),
        outcomes: [Done, Denied, Denied, Denied, Done, Denied, Done],
    },
    Row {
        message: "MLog",
        sample: |_, name| log_line(name).into(),
        outcomes: [Done, Done, Dropped, Done, Done, Dropped, Done],
    },
    Row {
        message: "MStatfs",
        sample: |_, _| MStatfs { paxos: PAXOS, fsid: FSID, data_pool: None }.into(),
        outcomes: [Done, Done, Done, Dropped, Done, Dropped, Done],
    },
    Row {
        message: "MGetPoolStats",
        sample: |_, _| MGetPoolStats { paxos: PAXOS, fsid: FSID, pools: vec!["data".into()] }.into(),
        outcomes: [Done, Done, Done, Dropped, Done, Dropped, Done],
    },
    Row {
        message: "MPoolOp",
        sample: |_, _| {
            let (pool, op, snap) = (0, MPoolOp::CREATE, SnapId(0));
            MPoolOp { paxos: PAXOS, fsid: FSID, pool, op, snap, name: "new".into(), crush_rule: 0 }.into()
        },
        outcomes: [Done, Done, Denied, Done, Done, Denied, Done],
    },
    Row {
        message: "MRemoveSnaps",
        sample: |_, _| MRemoveSnaps { paxos: PAXOS, snaps: [(1, vec![SnapId(5)])].into() }.into(),
        outcomes: [Done, Done, Dropped, Done, Done, Dropped, Done],
    },
    // An OSD speaks for itself.
    Row { message: "MOSDBoot", sample: |_, _| boot(0, 7800).into(), outcomes: OF_OSD },
    Row {
        message: "MOSDAlive",
        sample: |f, _| {
            let want = f.monitor.states.head().osdmap().epoch;
            MOSDAlive { paxos: PaxosHeader { version: want.into() }, want }.into()
        },
        outcomes: OF_OSD,
    },
    Row {
        message: "MOSDBeacon",
        sample: |_, _| {
            let last_purged_snaps_scrub = UTime::ZERO;
            let (pgs, min_last_epoch_clean, beacon_interval_s) = (vec![], 0, 30);
            MOSDBeacon { paxos: PAXOS, pgs, min_last_epoch_clean, last_purged_snaps_scrub, beacon_interval_s }
                .into()
        },
        outcomes: OF_OSD,
    },
    Row {
        message: "MMonPeer",
        // A monitor that asks to join.
        sample: |_, _| {
            let hello = MonHello {
                fsid: FSID,
                name: "b".into(),
                addrs: addr(3301),
                member: 0,
                disk: Uuid([8; 16]),
                metadata: Default::default(),
            };
            MMonPeer { from: 0, to: 0, body: MonPeerBody::Hello(hello) }.into()
        },
        outcomes: [Logged, Logged, Logged, Logged, Done, Logged, Logged],
    },
    Row {
        message: "MOSDPulse",
        sample: |f, _| {
            let up_from = f.monitor.states.head().osdmap().osds[0].info.up_from;
            MOSDPulse { up_from, number: 1, heard: 0, device_stall_ms: 0, core_stall_ms: 0 }.into()
        },
        outcomes: OF_OSD,
    },
    Row {
        message: "MOSDFailure",
        sample: |f, _| {
            let epoch = f.monitor.states.head().osdmap().epoch;
            let flags = MOSDFailure::FAILED | MOSDFailure::IMMEDIATE;
            let target_addrs = addr(6900);
            MOSDFailure {
                paxos: PAXOS,
                fsid: FSID,
                target_osd: 1,
                target_addrs,
                epoch,
                flags,
                failed_for_s: 9,
            }
            .into()
        },
        outcomes: OF_OSD,
    },
    Row {
        message: "MOSDFull",
        sample: |_, _| MOSDFull { paxos: PAXOS, map_epoch: 1, state: OsdState::NEARFULL }.into(),
        outcomes: OF_OSD,
    },
    Row {
        message: "MOSDMarkMeDown",
        sample: |_, _| {
            let (target_osd, target_addrs, epoch) = (0, addr(6800), 1);
            let (request_ack, down_and_dead) = (true, true);
            MOSDMarkMeDown {
                paxos: PAXOS,
                fsid: FSID,
                target_osd,
                target_addrs,
                epoch,
                request_ack,
                down_and_dead,
            }
            .into()
        },
        outcomes: OF_OSD,
    },
    Row {
        message: "MOSDMarkMeDead",
        sample: |f, _| {
            let admin = f.connect("client.admin", 5001);
            f.ok(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
            MOSDMarkMeDead { paxos: PAXOS, fsid: FSID, target_osd: 0, epoch: 2 }.into()
        },
        outcomes: OF_OSD,
    },
    Row {
        message: "MOSDPGTemp",
        sample: |_, _| {
            let pg_temp = BTreeMap::from([(PgId { pool: 1, seed: 0 }, vec![1])]);
            MOSDPGTemp { paxos: PAXOS, map_epoch: 1, pg_temp, forced: false }.into()
        },
        outcomes: OF_OSD,
    },
    Row {
        message: "MOSDPGReadyToMerge",
        sample: |_, _| {
            MOSDPGReadyToMerge {
                paxos: PAXOS,
                source: PgId { pool: 1, seed: 0 },
                source_version: Default::default(),
                target_version: Default::default(),
                last_epoch_started: 1,
                last_epoch_clean: 1,
                ready: true,
            }
            .into()
        },
        outcomes: OF_OSD,
    },
    Row {
        message: "MOSDPGCreated",
        sample: |f, _| {
            let pg = *f.monitor.states.head().osd.creating.keys().next().expect("the pool's groups are new");
            MOSDPGCreated { paxos: PAXOS, pg }.into()
        },
        outcomes: OF_OSD,
    },
    // And the active manager.
    Row { message: "MMgrBeacon", sample: |_, _| beacon(false).into(), outcomes: OF_MGR },
    Row {
        message: "MMonMgrReport",
        sample: |_, _| {
            let check = HealthCheck { summary: "forged".into(), ..HealthCheck::default() };
            MMonMgrReport {
                paxos: PAXOS,
                health: HealthChecks(BTreeMap::from([("FORGED".to_owned(), check)])),
                service_map: Bytes::new(),
                progress: BTreeMap::new(),
                gid: 4123,
                digest: PgMapDigest::default().to_vec(Features::ALL).into(),
            }
            .into()
        },
        outcomes: OF_MGR,
    },
];

const OF_OSD: [Outcome; 7] = [Logged, Done, Logged, Logged, Logged, Logged, Done];
const OF_MGR: [Outcome; 7] = [Logged, Logged, Logged, Done, Logged, Logged, Logged];

fn boot(osd: i32, port: u16) -> MOSDBoot {
    MOSDBoot {
        paxos: PAXOS,
        superblock: OsdSuperblock {
            cluster_fsid: FSID,
            osd_fsid: Uuid([osd as u8 + 1; 16]),
            whoami: osd,
            ..OsdSuperblock::default()
        },
        heartbeat_back_addrs: addr(port + 1),
        cluster_addrs: addr(port + 2),
        boot_epoch: 0,
        heartbeat_front_addrs: addr(port + 3),
        metadata: BTreeMap::new(),
        features: wire::features::TENTACLE.0,
    }
}

pub(super) fn beacon(available: bool) -> MMgrBeacon {
    MMgrBeacon {
        paxos: PAXOS,
        addrs: addr(6810),
        gid: 4123,
        available,
        name: "x".into(),
        fsid: FSID,
        module_names: Default::default(),
        commands: Vec::new(),
        metadata: BTreeMap::new(),
        services: BTreeMap::new(),
        modules: Vec::new(),
        features: wire::features::TENTACLE.0,
        client_addrs: Vec::new(),
        client_names: Vec::new(),
    }
}

fn log_line(name: &AuthName) -> MLog {
    let entry = LogEntry {
        name: name.clone(),
        rank: EntityName::new(EntityKind::OSD, 7),
        addrs: addr(1),
        stamp: super::START,
        seq: 1,
        priority: LogPriority::INFO,
        message: "a line".into(),
        channel: "cluster".into(),
    };
    MLog { paxos: PAXOS, fsid: FSID, entries: vec![entry] }
}

/// A cluster with `osd.0` and `osd.1` up, a pool, an active manager, and keys for all of [`PEERS`].
fn cluster(auth: AuthMode) -> Fixture {
    let mut f = Fixture::new(auth);
    let admin = f.connect("client.admin", 5000);
    for osd in [0, 1] {
        let uuid = Uuid([osd as u8 + 1; 16]);
        f.ok(admin, &format!(r#"{{"prefix":"osd new","uuid":"{uuid}","id":{osd}}}"#));
    }
    // osd.0 is primary of all placement groups.
    f.ok(
        admin,
        r#"{"prefix":"osd crush create-or-move","id":0,"weight":1.0,"args":["host=h","root=default"]}"#,
    );
    for (name, caps) in [
        ("osd.1", r#"["mon","allow profile osd"]"#),
        ("mds.a", r#"["mon","allow r"]"#),
        ("mon.", r#"["mon","allow *"]"#),
        ("client.none", "[]"),
    ] {
        f.ok(admin, &format!(r#"{{"prefix":"auth add","entity":"{name}","caps":{caps}}}"#));
    }
    for (osd, port) in [(0, 6800), (1, 6900)] {
        let conn = f.connect(&format!("osd.{osd}"), port);
        f.send(conn, boot(osd, port));
    }
    f.ok(admin, r#"{"prefix":"osd pool create","pool":"data","pg_num":4}"#);
    let manager = f.connect("mgr.x", 6810);
    f.send(manager, beacon(true));
    f.pass(Duration::from_secs(1));
    f.warned.clear();
    f
}

/// Everything that a message could have changed.
fn state_of(f: &Fixture, conn: ConnId) -> impl PartialEq + use<> {
    let m = &f.monitor;
    let subscriptions = m.sessions.get(&conn).map_or(0, |s| s.subscriptions.len());
    let volatile = format!("{:?} {:?} {subscriptions}", m.osd, m.reports);
    (m.states.head().digest(), volatile)
}

fn is_error(answer: &Body) -> bool {
    match answer {
        Body::MMonCommandAck(m) => m.result < 0,
        Body::MCommandReply(m) => m.result < 0,
        Body::MPoolOpReply(m) => m.result < 0,
        Body::MAuthReply(m) => m.result < 0,
        _ => false,
    }
}

fn outcome_of(row: &Row, column: usize) -> Outcome {
    let auth = if column == PEERS.len() - 1 { AuthMode::None } else { AuthMode::Cephx };
    let mut f = cluster(auth);
    let name: AuthName = PEERS[column].parse().unwrap();
    let body = (row.sample)(&mut f, &name);
    assert_eq!(body.name(), row.message);
    let conn = f.connect(PEERS[column], 7800);
    f.sent.clear();
    let before = state_of(&f, conn);
    f.send(conn, body.clone());
    let answers = f.received(conn);
    let has_acted = before != state_of(&f, conn) || !answers.is_empty();
    f.send(conn, body);
    match (has_acted, f.warned.len()) {
        (true, 0) if answers.iter().any(is_error) => Denied,
        (true, 0) => Done,
        (false, 0) => Dropped,
        (false, 1) => Logged,
        (acted, lines) => panic!("{} from {name}: acted {acted}, {lines} lines", row.message),
    }
}

#[test]
fn messages_act_only_from_their_senders() {
    let mut wrong = Vec::new();
    for row in ROWS {
        for (column, expected) in row.outcomes.iter().enumerate() {
            let actual = outcome_of(row, column);
            if actual != *expected {
                let (message, peer) = (row.message, PEERS[column]);
                wrong.push(format!("{message} from {peer} ({column}): {actual:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_message_in_the_registry_has_a_row_or_is_refused() {
    for (kind, name) in ALL {
        let is_taken = !senders_of(*kind, EntityKind::MON).is_nobody();
        let rows = ROWS.iter().filter(|row| row.message == *name).count();
        assert_eq!(rows, usize::from(is_taken), "{name}");
    }
}

#[test]
fn log_lines_in_another_name_are_dropped_and_the_rank_is_ours() {
    let mut f = cluster(AuthMode::Cephx);
    let osd = f.connect("osd.0", 6800);
    f.send(osd, log_line(&"osd.1".parse().unwrap()));
    let own = log_line(&"osd.0".parse().unwrap());
    f.send(osd, own);
    let lines: Vec<_> = f.monitor.state().log.last(9, LogPriority::DEBUG, "cluster").into_iter().collect();
    let sent: Vec<_> = lines.iter().filter(|line| line.message == "a line").collect();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].name.to_string(), sent[0].rank.to_string()), ("osd.0".into(), "osd.0".into()));
    assert_eq!(f.warned.len(), 1, "{:?}", f.warned);
}

#[test]
fn an_osd_does_not_speak_for_another() {
    let mut f = cluster(AuthMode::Cephx);
    let osd = f.connect("osd.1", 6900);
    let before = f.monitor.states.head().digest();
    f.send(osd, boot(0, 7900));
    let bye = MOSDMarkMeDown {
        paxos: PAXOS,
        fsid: FSID,
        target_osd: 0,
        target_addrs: addr(6800),
        epoch: 1,
        request_ack: false,
        down_and_dead: true,
    };
    f.send(osd, bye);
    assert!(before == f.monitor.states.head().digest());
    assert!(f.warned[0].contains("osd.1") && f.warned[0].contains("boot of osd.0"), "{:?}", f.warned);
}

#[test]
fn options_of_others_need_a_permission() {
    let mut f = cluster(AuthMode::Cephx);
    for (peer, may) in [("client.admin", true), ("osd.1", false), ("client.none", false)] {
        let conn = f.connect(peer, 7000);
        let ask =
            MGetConfig { name: "osd.0".parse().unwrap(), host: "h".into(), device_class: String::new() };
        f.send(conn, ask);
        assert_eq!(f.received(conn).len(), usize::from(may), "{peer}");
    }
}

#[test]
fn tell_needs_every_permission_for_any_command() {
    let mut f = cluster(AuthMode::Cephx);
    for prefix in ["config show", "sessions", "mon_status", "get_command_descriptions", "no such command"] {
        for (peer, may) in [("client.admin", true), ("client.poor", false), ("client.none", false)] {
            let conn = f.connect(peer, 7000);
            f.send(conn, MCommand { fsid: FSID, command: command(prefix), input: Bytes::new() });
            let answers = f.received(conn);
            let [Body::MCommandReply(reply)] = &answers[..] else { panic!("{answers:?}") };
            assert_eq!(reply.result != -command::errno::EACCES, may, "{prefix} by {peer}: {}", reply.status);
        }
    }
}
