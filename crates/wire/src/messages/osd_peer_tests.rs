//! `MOSDPeer`: each statement there and back, bytes laid out by hand, and bytes that nobody meant.

use super::{Header, MOSDPeer, Message, MessageBody, Payload};
use crate::features;
use crate::types::*;
use bytes::Bytes;
use codec::{DecodeError, Rope};

const V: Eversion = Eversion { epoch: 5, version: 0x0102 };

fn object(name: &str) -> HObject {
    HObject { pool: 3, hash: 0xdead_beef, snap: SnapId::HEAD, name: name.into(), ..HObject::min() }
}

fn reqid() -> ReqId {
    ReqId { name: EntityName::new(EntityKind::CLIENT, 4100), tid: 9, incarnation: 2 }
}

fn entry() -> PgLogEntry {
    PgLogEntry {
        op: LogOp::MODIFY,
        object: object("a"),
        version: V,
        prior_version: Eversion { epoch: 4, version: 7 },
        reverting_to: Eversion::ZERO,
        reqid: reqid(),
        mtime: UTime { sec: 10, nsec: 11 },
        snaps: Bytes::new(),
        user_version: 12,
        mod_desc: ModDesc::default(),
        extra_reqids: Vec::new(),
        extra_reqid_results: Default::default(),
        clean_regions: CleanRegions::default(),
        result: 0,
        op_returns: Vec::new(),
        written_shards: ShardSet::default(),
    }
}

fn counts() -> PgCounts {
    PgCounts { objects: 1, bytes: 2, reads: 3, read_kib: 4, writes: 5, write_kib: 6, omap_objects: 7 }
}

fn snap_counts() -> SnapCounts {
    SnapCounts { clones: 8, whiteouts: 9 }
}

fn info() -> PgCopyInfo {
    PgCopyInfo {
        created: 1,
        store_since: 2,
        activated: 3,
        last_epoch_started: 4,
        last_epoch_clean: 5,
        last_epoch_split: 6,
        last_update: V,
        last_user_version: 12,
        log_tail: Eversion { epoch: 1, version: 1 },
        last_backfill: HObject::max(),
        counts: counts(),
        imported: StoreLife { osd: 3, first: 1, last: 9 },
        recovered: RecoveredCounts { objects: 8, bytes: 9, keys: 10 },
        snap_counts: snap_counts(),
    }
}

fn missing() -> Vec<MissingObject> {
    vec![MissingObject { object: object("a"), need: V }, MissingObject { object: object("b"), need: V }]
}

fn log() -> LogRun {
    let duplicate = PgLogDup { reqid: reqid(), version: V, user_version: 12, result: -2, op_returns: vec![] };
    LogRun { after: Eversion::ZERO, head: V, entries: vec![entry()], duplicates: vec![duplicate] }
}

fn past() -> PastIntervals {
    let interval = PastInterval {
        first: 2,
        last: 4,
        up: vec![0, 1],
        acting: vec![1, 0],
        primary: 1,
        may_have_written: true,
    };
    PastIntervals { known_since: 2, intervals: vec![interval] }
}

/// Every statement, in the order of their numbers.
fn bodies() -> Vec<PeerBody> {
    let changes = Bytes::from_static(b"changes");
    let (begin, end) = (HObject::min(), object("z"));
    vec![
        PeerBody::Probe,
        PeerBody::Report(CopyReport {
            info: info(),
            missing: missing(),
            damaged: missing(),
            past: past(),
            granted_ms: 340,
        }),
        PeerBody::LogRequest { have: V },
        PeerBody::Log(log()),
        PeerBody::Activate(Activation {
            info: info(),
            started: 5,
            log: log(),
            restart_backfill: true,
            past: past(),
        }),
        PeerBody::Activated { missing: missing() },
        PeerBody::Write(PeerWrite {
            entry: entry(),
            follows: Eversion::ZERO,
            counts: counts(),
            last_user_version: 12,
            committed_to: V,
            log_tail: Eversion::ZERO,
            changes: changes.clone(),
            earlier: vec![entry()],
            earlier_follow: V,
            snap_counts: snap_counts(),
        }),
        PeerBody::Ack { durable_to: V },
        PeerBody::Pull(ObjectPull { object: object("a"), need: V, is_urgent: true }),
        PeerBody::Push(ObjectPush { object: object("a"), version: V, step: 1, is_last: true, changes }),
        PeerBody::Pushed(PushAck { object: object("a"), version: V, step: 1, result: -28, window_kib: 64 }),
        PeerBody::Scan(ScanRequest { begin: begin.clone(), end: end.clone() }),
        PeerBody::Scanned(ScanAnswer { begin, end: end.clone(), objects: missing(), has_failed: true }),
        PeerBody::Progress(BackfillProgress {
            through: end.clone(),
            counts: counts(),
            snap_counts: snap_counts(),
        }),
        PeerBody::Progressed { through: end },
        PeerBody::Clean { epoch: 7 },
        PeerBody::Remove,
        PeerBody::Started { epoch: 7 },
        PeerBody::Reserve(PlaceRequest { attempt: 9, priority: 180, is_backfill: true, bytes: 1 << 40 }),
        PeerBody::Reserved(PlaceAnswer { attempt: 9, decision: PlaceDecision::Granted }),
        PeerBody::Release { attempt: 9 },
        PeerBody::WantCommitted,
        PeerBody::Committed { to: V },
        PeerBody::MergeReady { is_ready: true },
        PeerBody::Survey(SurveyRequest {
            id: 9,
            begin: object("a"),
            end: HObject::max(),
            max: 25,
            is_deep: true,
        }),
        PeerBody::Surveyed(SurveyAnswer {
            id: 9,
            end: object("b"),
            objects: vec![survey()],
            has_failed: true,
        }),
        PeerBody::BadCopies(BadCopies { id: 9, objects: missing() }),
        PeerBody::BadCopiesNoted { id: 9 },
        PeerBody::Scrubbed(ScrubStamps { last_scrub: V, omap_keys: 4, ..ScrubStamps::default() }),
        PeerBody::ReserveScrub { id: 9 },
        PeerBody::ScrubReserved { id: 9, is_granted: true },
        PeerBody::ReleaseScrub { id: 9 },
    ]
}

fn survey() -> ObjectSurvey {
    ObjectSurvey {
        object: object("a"),
        faults: 8,
        size: 1 << 33,
        info: Bytes::from_static(b"info"),
        attrs_digest: 5,
        data_digest: Some(6),
        omap_digest: Some(7),
        omap_keys: 2,
        omap_bytes: 20,
        snap_set: Some(Bytes::from_static(b"snaps")),
    }
}

fn statement(body: PeerBody) -> MOSDPeer {
    let pg = PgId { pool: 3, seed: 0x15 }.into();
    MOSDPeer { pg, epoch: 77, interval: 70, body, data: Rope::new() }
}

fn payload_of(message: MOSDPeer) -> (Header, Payload) {
    let (header, out) = Message::new(message).encode(features::TENTACLE);
    let data = out.data.to_bytes();
    (header, Payload { front: out.front.into_bytes(), middle: out.middle, data, data_sum: None })
}

/// Everything before the body.
const HEAD_LEN: usize = 24 + 4 + 4;

#[test]
fn statement_is_these_bytes() {
    let (header, payload) = payload_of(statement(PeerBody::Ack { durable_to: V }));
    assert_eq!((header.kind, header.version, header.compat), (0x5348, 1, 1));
    let mut expected = Vec::new();
    let mut put = |bytes: &[u8]| expected.extend_from_slice(bytes);
    put(&[1, 1, 18, 0, 0, 0]); // spg_t
    put(&[1]);
    put(&3u64.to_le_bytes());
    put(&0x15u32.to_le_bytes());
    put(&[0xff; 4]);
    put(&[0xff]);
    put(&77u32.to_le_bytes());
    put(&70u32.to_le_bytes());
    put(&[8]); // ack
    put(&0x0102u64.to_le_bytes());
    put(&5u32.to_le_bytes());
    assert_eq!(payload.front, expected);
}

#[test]
fn every_statement_comes_back_and_keeps_its_number() {
    for (number, body) in (1..).zip(bodies()) {
        let message = statement(body);
        let (header, payload) = payload_of(message.clone());
        assert_eq!(payload.front[HEAD_LEN], number, "{}", message.body.name());
        assert_eq!(MOSDPeer::decode(&header, &payload), Ok(message));
    }
}

/// The statement as version 1 had it: without its last field, and with another version and length in the envelope.
fn as_version_1(payload: &Payload, last_field_len: usize) -> Payload {
    let envelope = HEAD_LEN + 1;
    let mut front = payload.front.to_vec();
    front.truncate(front.len() - last_field_len);
    assert_eq!(front[envelope..envelope + 2], [2, 1]);
    let body_len = (front.len() - envelope - 6) as u32;
    front[envelope] = 1;
    front[envelope + 2..envelope + 6].copy_from_slice(&body_len.to_le_bytes());
    Payload { front: front.into(), ..payload.clone() }
}

#[test]
fn push_ack_of_version_1_tells_no_window() {
    let ack = PushAck { object: object("a"), version: V, step: 1, result: -28, window_kib: 64 };
    let (header, payload) = payload_of(statement(PeerBody::Pushed(ack.clone())));
    let expected = statement(PeerBody::Pushed(PushAck { window_kib: 0, ..ack }));
    assert_eq!(MOSDPeer::decode(&header, &as_version_1(&payload, 4)), Ok(expected));
}

#[test]
fn pull_of_version_1_is_not_urgent() {
    let pull = ObjectPull { object: object("a"), need: V, is_urgent: true };
    let (header, payload) = payload_of(statement(PeerBody::Pull(pull.clone())));
    let expected = statement(PeerBody::Pull(ObjectPull { is_urgent: false, ..pull }));
    assert_eq!(MOSDPeer::decode(&header, &as_version_1(&payload, 1)), Ok(expected));
}

/// The bytes of a struct as version 1 had them, without the last fields.
fn struct_of_version_1(of: &impl codec::Encode, last_fields_len: usize) -> Vec<u8> {
    let mut bytes = of.to_vec(codec::Features::NONE);
    assert_eq!(bytes[..2], [2, 1]);
    bytes.truncate(bytes.len() - last_fields_len);
    let len = (bytes.len() - 6) as u32;
    bytes[0] = 1;
    bytes[2..6].copy_from_slice(&len.to_le_bytes());
    bytes
}

#[test]
fn survey_of_version_1_tells_no_snapshot_set() {
    let old = struct_of_version_1(&survey(), 1 + 4 + 5);
    assert_eq!(codec::decode_exact(&old), Ok(ObjectSurvey { snap_set: None, ..survey() }));
}

#[test]
fn progress_of_version_1_has_no_clones() {
    let now = BackfillProgress { through: HObject::max(), counts: counts(), snap_counts: snap_counts() };
    let old = struct_of_version_1(&now, 2 * 8);
    let expected = BackfillProgress { snap_counts: SnapCounts::default(), ..now };
    assert_eq!(codec::decode_exact(&old), Ok(expected));
}

/// An OSD of an earlier version reads the fields that it knows and skips the rest of the envelope.
#[test]
fn fields_of_later_versions_are_skipped() {
    let ack = PushAck { object: object("a"), version: V, step: 1, result: 0, window_kib: 64 };
    let (header, payload) = payload_of(statement(PeerBody::Pushed(ack.clone())));
    let envelope = HEAD_LEN + 1;
    let mut front = payload.front.to_vec();
    front.extend_from_slice(&[9; 5]);
    let body_len = (front.len() - envelope - 6) as u32;
    front[envelope] = 3;
    front[envelope + 2..envelope + 6].copy_from_slice(&body_len.to_le_bytes());
    let later = Payload { front: front.into(), ..payload };
    assert_eq!(MOSDPeer::decode(&header, &later), Ok(statement(PeerBody::Pushed(ack))));
}

#[test]
fn names_of_statements_differ() {
    let names: std::collections::BTreeSet<_> = bodies().iter().map(PeerBody::name).collect();
    assert_eq!(names.len(), bodies().len());
}

#[test]
fn data_and_its_checksum_stay_with_the_statement() {
    let mut message = statement(PeerBody::Remove);
    message.data = [Bytes::from_static(b"hel"), Bytes::from_static(b"lo")].into_iter().collect();
    let (header, mut payload) = payload_of(message);
    payload.data_sum = Some(17);
    let got = MOSDPeer::decode(&header, &payload).unwrap();
    assert_eq!((&got.data.to_bytes()[..], got.data.sum()), (&b"hello"[..], Some(17)));
    assert_eq!(got.data.pieces()[0].as_ptr(), payload.data.as_ptr(), "a slice of the data segment");
}

#[test]
fn unknown_statement_is_refused() {
    let (header, payload) = payload_of(statement(PeerBody::Remove));
    for number in [0, bodies().len() as u8 + 1, 0xff] {
        let mut front = payload.front.to_vec();
        front[HEAD_LEN] = number;
        let got = MOSDPeer::decode(&header, &Payload { front: front.into(), ..payload.clone() });
        let offset = HEAD_LEN;
        assert!(
            matches!(got, Err(DecodeError::Invalid { value, offset: at, .. })
            if (value, at) == (number.into(), offset)),
            "{got:?}"
        );
    }
}

#[test]
fn cut_statement_is_refused() {
    for body in bodies() {
        let name = body.name();
        let (header, payload) = payload_of(statement(body));
        for len in 0..payload.front.len() {
            let cut = Payload { front: payload.front.slice(..len), ..payload.clone() };
            let got = MOSDPeer::decode(&header, &cut);
            assert!(matches!(got, Err(DecodeError::Truncated { .. })), "{name} of {len} bytes: {got:?}");
        }
    }
}

#[test]
fn count_beyond_the_front_is_refused() {
    let (header, payload) = payload_of(statement(PeerBody::Activated { missing: Vec::new() }));
    for count in [1, 1000, u32::MAX] {
        let mut front = payload.front.to_vec();
        front[HEAD_LEN + 1..].copy_from_slice(&count.to_le_bytes());
        let got = MOSDPeer::decode(&header, &Payload { front: front.into(), ..payload.clone() });
        assert!(matches!(got, Err(DecodeError::Truncated { .. })), "{count}: {got:?}");
    }
}

#[test]
fn decisions_about_places_are_three() {
    use PlaceDecision::*;
    for (number, decision) in (1..).zip([Granted, Queued, TooFull]) {
        let message = statement(PeerBody::Reserved(PlaceAnswer { attempt: 3, decision }));
        let (header, payload) = payload_of(message.clone());
        assert_eq!(payload.front.last(), Some(&number));
        assert_eq!(MOSDPeer::decode(&header, &payload), Ok(message));
        let mut front = payload.front.to_vec();
        *front.last_mut().unwrap() += 3;
        let got = MOSDPeer::decode(&header, &Payload { front: front.into(), ..payload });
        assert!(matches!(got, Err(DecodeError::Invalid { .. })), "{got:?}");
    }
}
