//! `MOSDOp` and its reply against bytes laid out by hand, and against bytes that nobody meant.

use super::{Header, MOSDOp, MOSDOpReply, Message, MessageBody, Payload};
use crate::features;
use crate::types::{
    EntityKind, EntityName, Eversion, HObject, OpCode, OsdFlags, OsdOp, OsdOpResult, PgId, ReplyVersions,
    ReqId, SnapId, UTime,
};
use bytes::Bytes;
use codec::{DecodeError, Features, Rope};
use proptest::prelude::*;
use smallvec::smallvec;

fn request() -> MOSDOp {
    MOSDOp {
        pg: PgId { pool: 3, seed: 0x15 }.into(),
        epoch: 77,
        flags: OsdFlags::WRITE | OsdFlags::ONDISK,
        explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 2 },
        client_incarnation: 2,
        mtime: UTime { sec: 10, nsec: 11 },
        object: HObject {
            pool: 3,
            hash: 0xdead_beef,
            snap: SnapId::HEAD,
            namespace: "ns".into(),
            key: "".into(),
            name: "obj".into(),
            max: false,
        },
        ops: smallvec![
            OsdOp::extent(OpCode::WRITE, 4, 5, Bytes::from_static(b"hello")),
            OsdOp::bare(OpCode::STAT),
            OsdOp::xattr(OpCode::SETXATTR, "a", b"v"),
        ],
        snap_seq: SnapId(9),
        snaps: vec![SnapId(9), SnapId(8)],
        retry_attempt: 1,
        features: 0x1234,
    }
}

/// The front of [`request`] for a peer before Squid, field by field.
fn front_v8() -> Vec<u8> {
    let mut b = Vec::new();
    let mut put = |bytes: &[u8]| b.extend_from_slice(bytes);
    put(&[1, 1, 18, 0, 0, 0]); // spg_t
    put(&[1]);
    put(&3u64.to_le_bytes());
    put(&0x15u32.to_le_bytes());
    put(&[0xff; 4]);
    put(&[0xff]);
    put(&0xdead_beefu32.to_le_bytes());
    put(&77u32.to_le_bytes());
    put(&0x24u32.to_le_bytes());
    put(&[2, 2, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]); // osd_reqid_t: blank name
    put(&0u64.to_le_bytes());
    put(&2u32.to_le_bytes());
    put(&[0; 24]); // trace
    put(&2u32.to_le_bytes());
    put(&[10, 0, 0, 0, 11, 0, 0, 0]);
    put(&[6, 3, 30, 0, 0, 0]); // object_locator_t
    put(&3u64.to_le_bytes());
    put(&[0xff; 4]);
    put(&[0, 0, 0, 0]);
    put(&[2, 0, 0, 0, b'n', b's']);
    put(&[0xff; 8]);
    put(&[3, 0, 0, 0, b'o', b'b', b'j']);
    put(&3u16.to_le_bytes());
    put(&[0x01, 0x22, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]); // write 4~5
    put(&[0; 12]);
    put(&[5, 0, 0, 0]);
    put(&[0x02, 0x12]); // stat
    put(&[0; 36]);
    put(&[0x01, 0x23, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]); // setxattr, lengths 1 and 1
    put(&[0; 20]);
    put(&[2, 0, 0, 0]);
    put(&(u64::MAX - 1).to_le_bytes());
    put(&9u64.to_le_bytes());
    put(&2u32.to_le_bytes());
    put(&9u64.to_le_bytes());
    put(&8u64.to_le_bytes());
    put(&1u32.to_le_bytes());
    put(&0x1234u64.to_le_bytes());
    b
}

fn payload_of(message: &Message, features: Features) -> (Header, Payload) {
    let (header, out) = message.encode(features);
    let data = out.data.to_bytes();
    (header, Payload { front: out.front.into_bytes(), middle: out.middle, data, data_sum: None })
}

#[test]
fn a_request_is_these_bytes() {
    let (header, payload) = payload_of(&Message::new(request()), Features::NONE);
    assert_eq!((header.version, header.compat, header.kind), (8, 3, 42));
    assert_eq!(payload.front, front_v8());
    assert_eq!(&payload.data[..], b"helloav");
}

#[test]
fn newer_peers_get_one_more_envelope() {
    let (header, payload) = payload_of(&Message::new(request()), Features(features::SERVER_SQUID));
    assert_eq!(header.version, 9);
    let mut expected = front_v8();
    let at = 24 + 12 + 27 + 24;
    expected.splice(at..at, [1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(payload.front, expected);
    assert_eq!(MOSDOp::decode(&header, &payload), Ok(request()));
}

#[test]
fn a_decoded_payload_is_a_slice_of_the_data_segment() {
    let (header, payload) = payload_of(&Message::new(request()), Features::NONE);
    let got = MOSDOp::decode(&header, &payload).unwrap();
    assert_eq!(got, request());
    assert_eq!(got.ops[0].input.as_ptr(), payload.data.as_ptr());
    assert_eq!(got.ops[2].input.as_ptr(), payload.data[5..].as_ptr());
}

#[test]
fn a_payload_longer_than_the_data_is_refused() {
    let (header, mut payload) = payload_of(&Message::new(request()), Features::NONE);
    payload.data.truncate(6);
    let got = MOSDOp::decode(&header, &payload);
    assert!(matches!(got, Err(DecodeError::Truncated { needed: 2, remaining: 1, .. })), "{got:?}");
}

#[test]
fn a_request_without_a_reqid_is_its_sessions() {
    let mut m = request();
    let me = EntityName::new(EntityKind::CLIENT, 4123);
    assert_eq!(m.reqid(me, 5), ReqId { name: me, tid: 5, incarnation: 2 });
    let other = ReqId { name: EntityName::new(EntityKind::OSD, 1), tid: 8, incarnation: 0 };
    m.explicit_reqid = other;
    assert_eq!(m.reqid(me, 5), other);
}

#[test]
fn a_key_equal_to_the_name_is_no_key() {
    let mut m = request();
    m.object.key = "obj".into();
    let (header, payload) = payload_of(&Message::new(m), Features::NONE);
    assert_eq!(MOSDOp::decode(&header, &payload), Ok(request()));
}

fn reply() -> MOSDOpReply {
    let r = request();
    let mut out = r.reply(0, 78, OsdFlags::ONDISK);
    let read: Rope = [&b"he"[..], b"llo"].into_iter().map(Bytes::from_static).collect();
    out.ops = smallvec![
        OsdOpResult::of(&r.ops[0], 5, read),
        OsdOpResult::of(&r.ops[1], -2, Rope::new()),
        OsdOpResult::of(&r.ops[2], 0, Rope::from(Bytes::from_static(b"x"))),
    ];
    out.versions = ReplyVersions::new(Eversion { epoch: 78, version: 5 }, 4);
    out
}

#[test]
fn a_reply_survives_and_joins_the_outputs() {
    let (header, payload) = payload_of(&Message::with_tid(9, reply()), Features::NONE);
    assert_eq!((header.version, header.tid), (8, 9));
    assert_eq!(&payload.data[..], b"hellox");
    let got = MOSDOpReply::decode(&header, &payload).unwrap();
    assert_eq!(got.ops[0].output.to_bytes(), "hello");
    assert_eq!(got.ops[1].result, -2);
    let legacy = Eversion { epoch: 78, version: 4 };
    assert_eq!((got.versions.legacy, got.versions.replay.version, got.versions.user), (legacy, 5, 4));
    assert_eq!(got.flags, OsdFlags::WRITE | OsdFlags::ONDISK);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(front: Vec<u8>, data: Vec<u8>, version in 7u16..11) {
        let payload = Payload { front: front.into(), middle: Bytes::new(), data: data.into(), data_sum: None };
        for kind in [42, 43, 44, 61] {
            let header = Header { kind, version, ..Header::default() };
            let _ = Message::decode(&header, payload.clone());
        }
    }

    #[test]
    fn a_damaged_request_never_panics(at in 0usize..400, value: u8, cut in 0usize..400) {
        let (header, mut payload) = payload_of(&Message::new(request()), Features::NONE);
        let mut front = payload.front.to_vec();
        let at = at % front.len();
        front[at] = value;
        front.truncate(cut.max(at));
        payload.front = front.into();
        let _ = MOSDOp::decode(&header, &payload);
    }
}
