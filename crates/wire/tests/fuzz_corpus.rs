//! Replays what the fuzz targets start from and have found, on stable Rust: `fuzz/corpus/TARGET/*`.
//!
//! The seeds were made by the ignored test here; run it again when a type or message is added.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the corpus is files")]

use bytes::Bytes;
use codec::{Encode, Reader};
use std::fs;
use std::path::{Path, PathBuf};
use wire::dencode::{self, hostile};
use wire::features::TENTACLE;
use wire::messages::{
    self, Body, Caller, Carried, Header, MMgrConfigure, MMgrMap, MMgrReport, MMonCommand, MMonMap, MMonPeer,
    MOSDBoot, MOSDMap, MOSDPeer, Message, MonHello, MonPeerBody, MonPulse, PaxosHeader, Payload,
};
use wire::types::{
    AuthName, BadCopies, CopyReport, EntityAddr, EntityAddrVec, EntityKind, EntityName, FsMap, HObject,
    LogRun, MetricReport, MgrMap, MissingObject, MonMap, ObjectSurvey, OsdMap, OsdSuperblock, PastInterval,
    PastIntervals, PeerBody, PerfCounterKind, PerfKeyPart, PerfLimit, PerfQuery, PerfReport, PgCopyInfo,
    PgId, PgPool, PlaceAnswer, PlaceDecision, PlaceRequest, ScanAnswer, ScrubStamps, ShortList, SurveyAnswer,
    SurveyRequest, Uuid,
};

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn replay(target: &str, run: fn(&[u8])) {
    let mut files: Vec<PathBuf> = fs::read_dir(folder(target)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 30, "{target} has {} seeds", files.len());
    for file in files {
        println!("{}", file.display());
        run(&fs::read(file).unwrap());
    }
}

#[test]
fn types() {
    replay("decode_type", hostile::decode_type);
}

#[test]
fn messages() {
    replay("decode_message", hostile::decode_message);
}

/// Enough that every decoder which can read zeroes gets to its end, and the large maps are there as stock wrote them.
#[test]
#[ignore = "writes fuzz/corpus"]
fn write_seeds() {
    fs::create_dir_all(folder("decode_type")).unwrap();
    fs::create_dir_all(folder("decode_message")).unwrap();
    for entry in dencode::types() {
        if let Some(bytes) = empty_value(|bytes| entry.print(bytes).is_ok()) {
            write_type(entry.name, "empty", &bytes);
        }
    }
    for (name, what, bytes) in recorded_values() {
        write_type(name, what, &bytes);
    }
    for (kind, name) in messages::ALL {
        let decodes = |version: u16, front: &[u8]| {
            let header = Header { kind: *kind, version, compat: 1, ..Header::default() };
            let payload = Payload { front: Bytes::copy_from_slice(front), ..Payload::default() };
            Message::decode(&header, payload).is_ok()
        };
        for version in [1u8, 12] {
            if let Some(len) = (0..400).find(|&len| decodes(version.into(), &vec![0; len])) {
                write_message(*kind, name, version, &vec![0; len]);
            }
        }
    }
    for message in whole_messages() {
        let (header, out) = Message::new(message).encode(TENTACLE);
        write_message(header.kind, "whole", header.version as u8, out.front.as_slice());
    }
    for body in statements() {
        let what = body.name();
        let pg = PgId { pool: 1, seed: 2 }.into();
        let message = MOSDPeer { pg, epoch: 5, interval: 4, body, data: Bytes::new().into() };
        let (header, out) = Message::new(message).encode(TENTACLE);
        write_message(header.kind, what, header.version as u8, out.front.as_slice());
    }
    for body in monitors_statements() {
        let what = body.name();
        let (header, out) = Message::new(MMonPeer { from: 1, to: 2, body }).encode(TENTACLE);
        write_message(header.kind, what, header.version as u8, out.front.as_slice());
    }
}

/// The newest envelope of zeroes, and the shortest, that decodes.
fn empty_value(decodes: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let envelope = |version: u8, len: usize| {
        let mut bytes = vec![version, 1];
        bytes.extend((len as u32).to_le_bytes());
        bytes.resize(6 + len, 0);
        bytes
    };
    let bare = (0..200).map(|len| vec![0; len]).find(|b| decodes(b));
    let enveloped = (1..40).rev().find_map(|v| (0..1500).map(|len| envelope(v, len)).find(|b| decodes(b)));
    enveloped.or(bare)
}

fn recorded_values() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut values = vec![
        ("MonMap", "recorded", Vec::from(include_bytes!("recorded/monmap-20.2.4"))),
        ("pg_pool_t", "default", PgPool::default().to_vec(TENTACLE)),
        ("OSDMap", "default", OsdMap::default().to_vec(TENTACLE)),
        ("FSMap", "default", FsMap::default().to_vec(TENTACLE)),
        ("MgrMap", "default", MgrMap::default().to_vec(TENTACLE)),
    ];
    let mut r = Reader::new(include_bytes!("recorded/osdmaps-20.2.4"));
    for _ in 0..r.u32().unwrap() {
        let (epoch, kind) = (r.u32().unwrap(), r.u8().unwrap());
        let bytes = r.blob().unwrap().to_vec();
        match (epoch, kind) {
            (40, 1) => values.push(("OSDMap", "recorded", bytes)),
            (1, 0) => values.push(("OSDMap::Incremental", "first", bytes)),
            (7, 0) => values.push(("OSDMap::Incremental", "later", bytes)),
            _ => {}
        }
    }
    values
}

fn whole_messages() -> Vec<Body> {
    let limit = PerfLimit { order_by: PerfCounterKind::WRITE_OPS, max_count: 256 };
    let packed = PerfReport::pack(&query().counters.0, |_| (7, 3));
    let key = vec![vec!["2".into()], vec!["1a2b".into()]];
    let report = PerfReport { counters: query().counters, packed: [(key, packed)].into() };
    let reports = [(query(), report)].into();
    vec![
        MMonMap::new(&MonMap::default(), TENTACLE).into(),
        MMgrMap { map: MgrMap::default() }.into(),
        MOSDMap { incremental_maps: [(2, Bytes::from_static(b"inc"))].into(), ..MOSDMap::default() }.into(),
        MOSDBoot {
            paxos: PaxosHeader::default(),
            superblock: OsdSuperblock::default(),
            heartbeat_back_addrs: EntityAddrVec::default(),
            cluster_addrs: EntityAddrVec::default(),
            boot_epoch: 0,
            heartbeat_front_addrs: EntityAddrVec::default(),
            metadata: [("hostname".into(), "h".into())].into(),
            features: TENTACLE.0,
        }
        .into(),
        MMgrConfigure { period_sec: 5, threshold: 5, queries: [(query(), [limit].into())].into() }.into(),
        MMgrReport {
            daemon_name: "0".into(),
            metrics: Some(MetricReport::Osd(reports)),
            ..MMgrReport::default()
        }
        .into(),
    ]
}

/// Operations by image, as the manager asks for them.
fn query() -> PerfQuery {
    let key = [(PerfKeyPart::POOL_ID, "^(.*)$"), (PerfKeyPart::OBJECT_NAME, r"^rbd_data\.([^.]+)\.")];
    let counters = vec![PerfCounterKind::WRITE_OPS, PerfCounterKind::WRITE_LATENCY];
    PerfQuery {
        key: ShortList(key.map(|(property, regex)| PerfKeyPart::new(property, regex)).into()),
        counters: ShortList(counters),
    }
}

/// Statements between OSDs that zeroes do not make.
fn statements() -> Vec<PeerBody> {
    let object = HObject { pool: 1, name: "a".into(), ..HObject::min() };
    let missing = vec![MissingObject { object: object.clone(), need: Default::default() }];
    let info = PgCopyInfo {
        created: 1,
        store_since: 2,
        activated: 3,
        last_epoch_started: 3,
        last_epoch_clean: 3,
        last_epoch_split: 0,
        last_update: Default::default(),
        last_user_version: 0,
        log_tail: Default::default(),
        last_backfill: HObject::max(),
        counts: Default::default(),
        imported: Default::default(),
        recovered: Default::default(),
        snap_counts: Default::default(),
    };
    let bad = missing.clone();
    let past = PastIntervals { known_since: 2, intervals: vec![PastInterval::default()] };
    vec![
        PeerBody::Report(CopyReport {
            info,
            missing: missing.clone(),
            damaged: missing.clone(),
            past,
            granted_ms: 340,
        }),
        PeerBody::Log(LogRun::default()),
        PeerBody::Scanned(ScanAnswer {
            begin: HObject::min(),
            end: object,
            objects: missing,
            has_failed: true,
        }),
        PeerBody::Remove,
        PeerBody::Reserve(PlaceRequest { attempt: 1, priority: 180, is_backfill: true, bytes: 1 << 20 }),
        PeerBody::Reserved(PlaceAnswer { attempt: 1, decision: PlaceDecision::Queued }),
        PeerBody::Survey(SurveyRequest {
            id: 1,
            begin: HObject::min(),
            end: HObject::max(),
            max: 25,
            is_deep: true,
        }),
        PeerBody::Surveyed(SurveyAnswer {
            id: 1,
            end: HObject::max(),
            objects: vec![ObjectSurvey {
                object: bad[0].object.clone(),
                faults: 0,
                size: 1,
                info: Bytes::from_static(b"info"),
                attrs_digest: 1,
                data_digest: Some(2),
                omap_digest: Some(3),
                omap_keys: 1,
                omap_bytes: 2,
                snap_set: Some(Bytes::from_static(b"snaps")),
            }],
            has_failed: false,
        }),
        PeerBody::BadCopies(BadCopies { id: 1, objects: bad }),
        PeerBody::Scrubbed(ScrubStamps::default()),
    ]
}

/// One of each that a monitor makes to another.
fn monitors_statements() -> Vec<MonPeerBody> {
    let addr = EntityAddr::msgr2(([10, 0, 0, 1], 3300).into(), 7);
    let caller = Caller {
        unproved: false,
        name: AuthName::new(EntityKind::CLIENT, "admin"),
        global_id: 4100,
        claimed: EntityName::new(EntityKind::CLIENT, -1),
        addrs: addr.into(),
        socket: addr,
        features: TENTACLE.0,
        secure: true,
        host: "h".into(),
    };
    let command = MMonCommand {
        paxos: PaxosHeader::default(),
        fsid: Uuid([1; 16]),
        command: vec![r#"{"prefix":"status"}"#.into()],
        input: Bytes::from_static(b"input"),
    };
    let carried = || Carried::new(&Message::with_tid(7, command.clone()), TENTACLE);
    let metadata = [("ceph_release".to_owned(), "tentacle".to_owned())].into();
    let fsid = Uuid([2; 16]);
    vec![
        MonPeerBody::Hello(MonHello {
            fsid,
            name: "b".into(),
            addrs: addr.into(),
            member: 3,
            disk: fsid,
            metadata,
        }),
        MonPeerBody::Welcome { member: 4 },
        MonPeerBody::Removed,
        MonPeerBody::Monitors { map: MonMap::default().to_vec(TENTACLE).into() },
        MonPeerBody::Log { bytes: Bytes::from_static(b"log") },
        MonPeerBody::Pulse(MonPulse { quorum: vec![1, 2], term: 5, ..MonPulse::default() }),
        MonPeerBody::Forward { serial: 1, session: 2, caller, message: carried() },
        MonPeerBody::Gone { session: 2 },
        MonPeerBody::Settled { through: 9 },
        MonPeerBody::Route { session: 2, message: carried() },
        MonPeerBody::RouteMaps { session: 2, first: 3, version: 4 },
        MonPeerBody::WantIds,
        MonPeerBody::Ids { first: 6, end: 7 },
        MonPeerBody::PromoteKey { name: AuthName::new(EntityKind::OSD, "1") },
    ]
}

fn write_type(name: &str, what: &str, bytes: &[u8]) {
    let file = folder("decode_type").join(format!("{}-{what}", name.replace("::", ".")));
    fs::write(file, [&hostile::type_tag(name).to_le_bytes()[..], bytes].concat()).unwrap();
}

fn write_message(kind: u16, what: &str, version: u8, front: &[u8]) {
    let file = folder("decode_message").join(format!("{}-{what}-{version}", messages::name_of(kind)));
    fs::write(file, [&kind.to_le_bytes()[..], &[version, 0, 0], front].concat()).unwrap();
}
