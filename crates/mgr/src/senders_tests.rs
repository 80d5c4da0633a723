//! Every message that a manager takes, from every kind of peer: what must happen.
//!
//! The rows are compared with the registry: a message that a manager takes has a row here, and no other has one.

use super::*;
use bytes::Bytes;
use machine::identity::Proof;
use machine::net::Held;
use wire::messages::{ALL, HealthMetric, MCommand, MMgrCommand, MPing, ServiceDaemon, senders_of};
use wire::types::{
    AuthName, EntityAddr, EntityName, OsdInfo, OsdRow, OsdStat, OsdState, PgId, PgPool, PgStat, PgState,
    UTime, Uuid,
};

/// The result of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It was carried out, or answered.
    Done,
    /// It was answered with an error.
    Denied,
    /// It changes nothing, and needs no line in the log.
    Dropped,
    /// It was dropped, and the manager's log has one line about it.
    Logged,
}
use Outcome::{Denied, Done, Dropped, Logged};

/// The peers, in the order of a row's outcomes: their keys, and the capabilities for managers in their tickets. The last
/// has no key: the cluster runs with `auth none`, and it calls itself an OSD.
const PEERS: [(&str, Option<&str>); 7] = [
    ("client.admin", Some("allow *")),
    ("osd.0", Some("allow profile osd")),
    ("mds.a", Some("allow profile mds")),
    ("mgr.x", Some("allow *")),
    ("mon.", Some("allow *")),
    ("client.none", Some("")),
    ("osd.0", None),
];

struct Row {
    message: &'static str,
    /// Messages before it, in the name of the peer.
    before: fn(&AuthName) -> Vec<Body>,
    sample: fn(&AuthName) -> Body,
    outcomes: [Outcome; 7],
}

fn nothing(_: &AuthName) -> Vec<Body> {
    Vec::new()
}

const COMMAND: &str = r#"{"prefix":"pg stat"}"#;

const ROWS: &[Row] = &[
    Row {
        message: "MMgrOpen",
        before: nothing,
        sample: |name| open(&name.id).into(),
        outcomes: [Logged, Done, Done, Done, Done, Logged, Done],
    },
    Row {
        message: "MMgrReport",
        before: |name| vec![open(&name.id).into()],
        sample: |name| slow_ops(&name.id).into(),
        outcomes: [Logged, Done, Done, Done, Done, Logged, Done],
    },
    Row {
        message: "MPGStats",
        before: nothing,
        sample: |_| stats().into(),
        outcomes: [Logged, Done, Logged, Logged, Logged, Logged, Done],
    },
    Row {
        message: "MMgrClose",
        before: nothing,
        sample: |_| MMgrClose { daemon_name: "x".into(), service_name: String::new() }.into(),
        outcomes: [Done; 7],
    },
    Row {
        message: "MCommand",
        before: nothing,
        sample: |_| {
            MCommand { fsid: Uuid::default(), command: vec![COMMAND.into()], input: Bytes::new() }.into()
        },
        outcomes: [Done, Denied, Denied, Done, Done, Denied, Done],
    },
    Row {
        message: "MMgrCommand",
        before: nothing,
        sample: |_| {
            MMgrCommand { fsid: Uuid::default(), command: vec![COMMAND.into()], input: Bytes::new() }.into()
        },
        outcomes: [Done, Denied, Denied, Done, Done, Denied, Done],
    },
    // A sign of life without an answer.
    Row { message: "MPing", before: nothing, sample: |_| MPing.into(), outcomes: [Dropped; 7] },
];

fn open(id: &str) -> MMgrOpen {
    MMgrOpen { daemon_name: id.to_owned(), ..MMgrOpen::default() }
}

fn slow_ops(id: &str) -> MMgrReport {
    let health = vec![HealthMetric { kind: 0, value: 3 | 60 << 32 }];
    MMgrReport { daemon_name: id.to_owned(), health, ..MMgrReport::default() }
}

fn stats() -> MPGStats {
    let stat = PgStat {
        state: PgState::ACTIVE.with(PgState::CLEAN),
        reported_epoch: 2,
        reported_seq: 1,
        up: vec![0],
        acting: vec![0],
        up_primary: 0,
        acting_primary: 0,
        ..PgStat::unknown()
    };
    MPGStats {
        paxos: PaxosHeader::default(),
        fsid: Uuid::default(),
        osd: OsdStat { seq: 1, num_osds: 1, ..OsdStat::default() },
        pgs: [(PgId { pool: 1, seed: 0 }, stat)].into(),
        epoch: 2,
        had_map_for: UTime::ZERO,
        pools: Default::default(),
    }
}

/// A manager that knows a map with `osd.0` up and a pool of one PG.
pub(super) fn manager() -> Manager {
    let monitors = mon_client::Config {
        auth_name: AuthName::new(EntityKind::MGR, "x"),
        key: None,
        services: 0,
        rotating_keys: false,
        hostname: "h".into(),
        monitors: vec![EntityAddr::default().into()],
        timing: mon_client::Timing::default(),
    };
    let config = Config {
        name: "x".into(),
        monitors,
        addrs: EntityAddr::default().into(),
        metadata: BTreeMap::new(),
        services: Default::default(),
        timing: Timing::default(),
        options: Layers::new(command::options::Identity::named("mgr.x")),
    };
    let mut fx = Effects::new();
    let mut manager = Manager::new(config, Time::ZERO, UTime::ZERO, Random::from_number(1), &mut fx);
    let row = OsdRow {
        state: OsdState(OsdState::EXISTS | OsdState::UP),
        weight: OsdMap::WEIGHT_IN,
        info: OsdInfo { up_from: 1, ..OsdInfo::default() },
        ..OsdRow::default()
    };
    let map = Arc::new(OsdMap {
        epoch: 2,
        pools: [(1, PgPool { pg_num: 1, size: 1, min_size: 1, ..PgPool::default() })].into(),
        osds: vec![row],
        ..OsdMap::default()
    });
    manager.pg_map.on_osd_map(UTime::ZERO, map);
    manager
}

pub(super) fn peer(name: &AuthName, caps: Option<&str>) -> Peer {
    let number = name.id.parse().unwrap_or(0);
    let proof = match caps {
        Some(caps) => Proof::cephx(name.clone(), 4100, caps),
        None => Proof::none(name.clone(), 4100),
    };
    let claimed = EntityName::new(name.kind, number);
    Peer::identified(proof, claimed, EntityAddr::default()).unwrap()
}

/// State that a message could have changed.
fn state_of(manager: &Manager) -> impl PartialEq + use<> {
    let map = &manager.pg_map;
    (map.digest(UTime::ZERO), map.osds.clone(), map.slow_ops.clone())
}

fn outcome_of(row: &Row, (name, caps): (&str, Option<&str>)) -> Outcome {
    let name: AuthName = name.parse().unwrap();
    let conn = ConnId::accepted(1);
    let mut manager = manager();
    let step = |manager: &mut Manager, event| {
        let mut fx = Effects::new();
        manager.step(Time(5), Input::Net(event), &mut fx);
        fx.take()
    };
    step(&mut manager, NetEvent::Ready { conn, peer: Box::new(peer(&name, caps)) });
    let send =
        |body: &Body| NetEvent::Message { conn, message: Message::new(body.clone()), held: Held::default() };
    for body in (row.before)(&name) {
        step(&mut manager, send(&body));
    }
    let before = state_of(&manager);
    let body = (row.sample)(&name);
    assert_eq!(body.name(), row.message);
    let mut effects = step(&mut manager, send(&body));
    let is_changed = before != state_of(&manager);
    let answers = effects.iter().filter(|effect| !matches!(effect, Effect::Warn(_))).count();
    let is_error = effects.iter().any(|effect| match effect {
        Effect::Net(NetEffect::Send { message, .. }) => match &message.body {
            Body::MCommandReply(reply) => reply.result < 0,
            Body::MMgrCommandReply(reply) => reply.result < 0,
            _ => false,
        },
        _ => false,
    });
    effects.extend(step(&mut manager, send(&body)));
    let lines = effects.iter().filter(|effect| matches!(effect, Effect::Warn(_))).count();
    match (is_changed || answers > 0, lines) {
        (true, 0) if is_error => Denied,
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
        for (peer, expected) in PEERS.iter().zip(row.outcomes) {
            let actual = outcome_of(row, *peer);
            if actual != expected {
                wrong.push(format!("{} from {peer:?}: {actual:?}, not {expected:?}", row.message));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_message_in_the_registry_has_a_row_or_is_refused() {
    for (kind, name) in ALL {
        let is_taken = !senders_of(*kind, EntityKind::MGR).is_nobody();
        let rows = ROWS.iter().filter(|row| row.message == *name).count();
        assert_eq!(rows, usize::from(is_taken), "{name}");
    }
}

#[test]
fn a_peer_reports_in_its_own_name_only() {
    let forged = [
        ("osd.0", MMgrOpen { daemon_name: "1".into(), ..MMgrOpen::default() }),
        (
            "client.admin",
            MMgrOpen { service_name: "osd".into(), daemon_name: "0".into(), ..MMgrOpen::default() },
        ),
        (
            "client.admin",
            MMgrOpen { service_name: "mon".into(), daemon_name: "a".into(), ..MMgrOpen::default() },
        ),
    ];
    for (name, open) in forged {
        let mut manager = manager();
        let (mut fx, conn) = (Effects::new(), ConnId::accepted(1));
        let peer = peer(&name.parse().unwrap(), Some("allow *"));
        manager.on_peer(conn, peer, &mut fx);
        manager.on_message(Time(5), conn, Message::new(open), &mut fx);
        manager.on_message(Time(5), conn, Message::new(slow_ops("0")), &mut fx);
        assert!(manager.pg_map.slow_ops.is_empty());
        let effects = fx.take();
        let is_refused = |effect: &Effect| matches!(effect, Effect::Warn(line) if line.contains("report"));
        assert!(effects.len() == 2 && effects.iter().all(is_refused), "{effects:?}");
    }
    // A service runs with a client's key.
    let mut manager = manager();
    let (mut fx, conn) = (Effects::new(), ConnId::accepted(1));
    let open = MMgrOpen { service_name: "rgw".into(), daemon_name: "gate".into(), ..MMgrOpen::default() };
    manager.on_peer(conn, peer(&"client.rgw".parse().unwrap(), Some("allow rw")), &mut fx);
    manager.on_message(Time(5), conn, Message::new(open.clone()), &mut fx);
    assert!(matches!(fx.take()[..], [Effect::Net(NetEffect::Send { .. })]));
    // It does not make the cluster's health, and keeps its name.
    manager.on_message(Time(5), conn, Message::new(slow_ops("gate")), &mut fx);
    assert!(manager.pg_map.slow_ops.is_empty());
    let renamed = MMgrOpen { daemon_name: "other".into(), ..open };
    manager.on_message(Time(5), conn, Message::new(renamed), &mut fx);
    assert!(matches!(&fx.take()[..], [Effect::Warn(line)] if line.contains("rgw.other")));
}

#[test]
fn service_stays_listed_until_it_closes_or_is_silent() {
    let mut manager = manager();
    let (mut fx, conn) = (Effects::new(), ConnId::accepted(1));
    let told = ServiceDaemon { metadata: [("id".into(), "x".into())].into(), status: BTreeMap::new() };
    let open = MMgrOpen {
        service_name: "rgw".into(),
        daemon_name: "4146".into(),
        service: Some(told),
        ..MMgrOpen::default()
    };
    let is_listed = |manager: &Manager| manager.services.status().compact().contains("4146");
    let begin = |manager: &mut Manager, conn, fx: &mut Effects<Effect>| {
        manager.on_peer(conn, peer(&"client.rgw.x".parse().unwrap(), Some("allow rw")), fx);
        manager.on_message(Time(5), conn, Message::new(open.clone()), fx);
    };
    begin(&mut manager, conn, &mut fx);
    assert!(is_listed(&manager) && manager.digest_at.is_some());
    let status = [("current_sync".to_owned(), "[]".to_owned())].into();
    let report = MMgrReport { daemon_name: "4146".into(), status: Some(status), ..MMgrReport::default() };
    manager.on_message(Time(6), conn, Message::new(report), &mut fx);
    assert!(manager.services.status().compact().contains("current_sync"));
    // The gateway may go on without the manager.
    manager.on_peer_gone(conn);
    assert!(is_listed(&manager));
    let conn = ConnId::accepted(2);
    begin(&mut manager, conn, &mut fx);
    fx.take();
    let close = MMgrClose { daemon_name: "4146".into(), service_name: "rgw".into() };
    manager.on_message(Time(7), conn, Message::new(close.clone()), &mut fx);
    assert!(!is_listed(&manager));
    // It waits for its own message.
    let effects = fx.take();
    let [Effect::Net(NetEffect::Send { message, .. })] = &effects[..] else { panic!("{effects:?}") };
    assert!(matches!(&message.body, Body::MMgrClose(m) if **m == close), "{message:?}");
    // A program that only reports, and registers nothing, is no service.
    let conn = ConnId::accepted(3);
    manager.on_peer(conn, peer(&"client.rgw.y".parse().unwrap(), Some("allow rw")), &mut fx);
    let plain = MMgrOpen { service: None, ..open.clone() };
    manager.on_message(Time(8), conn, Message::new(plain), &mut fx);
    assert!(!is_listed(&manager));
}

#[test]
fn late_end_of_an_old_session_forgets_no_daemon() {
    let mut manager = manager();
    let (mut fx, [old, new]) = (Effects::new(), [ConnId::accepted(1), ConnId::accepted(2)]);
    for conn in [old, new] {
        manager.on_peer(conn, peer(&"osd.0".parse().unwrap(), Some("allow *")), &mut fx);
        let open = MMgrOpen { daemon_name: "0".into(), ..MMgrOpen::default() };
        manager.on_message(Time(5), conn, Message::new(open), &mut fx);
        manager.on_message(Time(5), conn, Message::new(slow_ops("0")), &mut fx);
    }
    manager.on_peer_gone(old);
    assert_eq!(manager.pg_map.slow_ops.len(), 1);
    manager.on_peer_gone(new);
    assert!(manager.pg_map.slow_ops.is_empty());
}
