//! Every message that an OSD's control machine takes, from every kind of peer: what must happen.
//!
//! The rows are compared with the registry: a message that an OSD takes has a row here (or is a client's request, which the
//! shards take), and no other has one.

use super::*;
use bytes::Bytes;
use codec::{Encode, Features};
use machine::identity::Proof;
use machine::net::Held;
use wire::messages::{
    ALL, MCommand, MMgrConfigure, MOSDForceRecovery, MOSDPeer, MOSDPing, MOSDScrub2, MPing, PingOp,
    senders_of,
};
use wire::types::{AuthName, EntityName, OsdId, OsdMapIncremental, PeerBody, Uuid};

/// The result of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It was carried out, or answered.
    Done,
    /// It was answered with an error.
    Denied,
    /// It changes nothing, and needs no line in the log.
    Dropped,
    /// It was dropped, and the OSD's log has one line about it.
    Logged,
}
use Outcome::{Denied, Done, Dropped, Logged};

/// The peers, in the order of a row's outcomes: their keys, and the capabilities for OSDs in their tickets. The last has no
/// key: the cluster runs with `auth none`, and it calls itself an OSD.
const PEERS: [(&str, Option<&str>); 7] = [
    ("client.admin", Some("allow *")),
    ("osd.3", Some("allow *")),
    ("mds.a", Some("allow rwx")),
    ("mgr.x", Some("allow *")),
    ("mon.", Some("allow *")),
    ("client.none", Some("")),
    ("osd.3", None),
];

struct Row {
    message: &'static str,
    sample: fn() -> Body,
    outcomes: [Outcome; 7],
}

const OF_OSD: [Outcome; 7] = [Logged, Done, Logged, Logged, Logged, Logged, Done];

const ROWS: &[Row] = &[
    Row { message: "MOSDMap", sample: || first_maps().into(), outcomes: OF_OSD },
    Row { message: "MOSDPing", sample: || ping().into(), outcomes: OF_OSD },
    Row {
        message: "MCommand",
        sample: || {
            let command = vec![r#"{"prefix":"version"}"#.to_owned()];
            MCommand { fsid: Uuid::default(), command, input: Bytes::new() }.into()
        },
        outcomes: [Done, Done, Denied, Done, Done, Denied, Done],
    },
    // It counts only over the connection that this OSD opened to the manager.
    Row {
        message: "MMgrConfigure",
        sample: || MMgrConfigure { period_sec: 1, threshold: 5, queries: Default::default() }.into(),
        outcomes: [Logged, Logged, Logged, Dropped, Logged, Logged, Logged],
    },
    // An OSD's goes to the shards, from the core that accepted its connection. The rest comes here to be refused.
    Row {
        message: "MOSDPeer",
        sample: || {
            let pg = PgId { pool: 1, seed: 0 }.into();
            MOSDPeer { pg, epoch: 1, interval: 1, body: PeerBody::Remove, data: Bytes::new().into() }.into()
        },
        outcomes: [Logged, Dropped, Logged, Logged, Logged, Logged, Dropped],
    },
    // As the message before.
    Row {
        message: "MOSDForceRecovery",
        sample: || {
            let pgs = vec![PgId { pool: 1, seed: 0 }.into()];
            let options = MOSDForceRecovery::RECOVERY;
            MOSDForceRecovery { fsid: Uuid::default(), pgs, options }.into()
        },
        outcomes: [Logged, Logged, Logged, Dropped, Logged, Logged, Logged],
    },
    // As the message before.
    Row {
        message: "MOSDScrub2",
        sample: || {
            let pgs = vec![PgId { pool: 1, seed: 0 }.into()];
            MOSDScrub2 { fsid: Uuid::default(), epoch: 1, pgs, is_repair: false, is_deep: true }.into()
        },
        outcomes: [Logged, Logged, Logged, Dropped, Logged, Logged, Logged],
    },
    // A sign of life without an answer.
    Row { message: "MPing", sample: || MPing.into(), outcomes: [Dropped; 7] },
];

/// The shards take these. Clients' requests ask capabilities: see `tests/senders.rs`.
const OF_SHARDS: [&str; 2] = ["MOSDOp", "MOSDBackoff"];

/// A valid increment to epoch 1: with the right checksums, as anybody can make it.
fn first_maps() -> MOSDMap {
    let nothing = OsdMap::default();
    let mut step = OsdMapIncremental::after(&nothing, UTime { sec: 1, nsec: 0 });
    step.new_max_osd = Some(4);
    step.seal(&nothing).unwrap();
    let bytes = Bytes::from(step.to_vec(Features(step.encode_features)));
    MOSDMap { incremental_maps: [(1, bytes)].into(), newest_map: 1, ..MOSDMap::default() }
}

fn ping() -> MOSDPing {
    MOSDPing {
        fsid: Uuid::default(),
        map_epoch: 0,
        op: PingOp::PING,
        ping_stamp: UTime::ZERO,
        up_from: 0,
        mono_ping_stamp_ns: 0,
        mono_send_stamp_ns: 0,
        delta_upper_bound_ns: None,
        min_message_size: 0,
    }
}

/// The control machine of osd.0, which has read its empty store and knows no map.
fn control() -> Control {
    let mon = mon_client::Config {
        auth_name: AuthName::new(EntityKind::OSD, "0"),
        key: None,
        services: 0,
        rotating_keys: false,
        hostname: "h".into(),
        monitors: vec![EntityAddr::default().into()],
        timing: mon_client::Timing::default(),
    };
    let config = ControlConfig {
        osd: OsdId(0),
        osd_fsid: Uuid([1; 16]),
        cores: 1,
        mon,
        addrs: Addrs::default(),
        metadata: BTreeMap::new(),
        options: Layers::new(command::options::Identity::named("osd.0")),
        version: VersionText::default(),
    };
    let mut control = Control::new(config, false, Random::from_number(1));
    let mut fx = Effects::new();
    control.step(Time(1), Input::Deadline, &mut fx);
    let said = ToControl::Loaded { pgs: Vec::new(), broken: Vec::new() };
    control.step(Time(1), Input::Shard { core: CoreId(0), said }, &mut fx);
    control
}

fn peer(name: &str, caps: Option<&str>) -> Peer {
    let name: AuthName = name.parse().unwrap();
    let claimed = EntityName::new(name.kind, name.id.parse().unwrap_or(0));
    let proof = match caps {
        Some(caps) => Proof::cephx(name, 4100, caps),
        None => Proof::none(name, 4100),
    };
    Peer::identified(proof, claimed, EntityAddr::default()).unwrap()
}

fn outcome_of(row: &Row, (name, caps): (&str, Option<&str>)) -> Outcome {
    let conn = ConnId::accepted(1);
    let mut control = control();
    let step = |control: &mut Control, event| {
        let mut fx = Effects::new();
        control.step(Time(2), Input::Net(event), &mut fx);
        fx.take()
    };
    step(&mut control, NetEvent::Ready { conn, peer: Box::new(peer(name, caps)) });
    let (epoch, period) = (control.epoch(), control.reports.asked_period());
    let body = (row.sample)();
    assert_eq!(body.name(), row.message);
    let send = || NetEvent::Message { conn, message: Message::new(body.clone()), held: Held::default() };
    let mut effects = step(&mut control, send());
    let is_changed = (epoch, period) != (control.epoch(), control.reports.asked_period());
    let answer = effects.iter().find_map(|effect| match effect {
        Effect::Net(NetEffect::Send { conn: to, message }) if *to == conn => Some(message.body.clone()),
        _ => None,
    });
    effects.extend(step(&mut control, send()));
    let lines = effects.iter().filter(|e| matches!(e, Effect::Log { level: Level::Warn, .. })).count();
    match (is_changed || answer.is_some(), lines) {
        (true, 0) if matches!(&answer, Some(Body::MCommandReply(reply)) if reply.result < 0) => Denied,
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
        let is_taken = !senders_of(*kind, EntityKind::OSD).is_nobody();
        let rows = ROWS.iter().filter(|row| row.message == *name).count();
        let of_shards = OF_SHARDS.contains(name);
        assert_eq!(rows + usize::from(of_shards), usize::from(is_taken), "{name}");
    }
}

#[test]
fn damaged_map_from_a_peer_is_refused_and_logged_once() {
    let mut control = control();
    let conn = ConnId::accepted(1);
    let mut fx = Effects::new();
    let peer = peer("osd.3", Some("allow *"));
    control.step(Time(2), Input::Net(NetEvent::Ready { conn, peer: peer.into() }), &mut fx);
    let mut maps = first_maps();
    let mut step: OsdMapIncremental = codec::decode_exact(&maps.incremental_maps[&1]).unwrap();
    step.full_crc ^= 1;
    maps.incremental_maps.insert(1, step.to_vec(Features(step.encode_features)).into());
    for _ in 0..3 {
        let (message, held) = (Message::new(maps.clone()), Held::default());
        control.step(Time(3), Input::Net(NetEvent::Message { conn, message, held }), &mut fx);
    }
    assert_eq!(control.epoch(), 0);
    let errors: Vec<String> = fx
        .take()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Log { level: Level::Error, text } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("OSDMap 1 from osd.3 is not used") && errors[0].contains("crc"), "{errors:?}");
}
