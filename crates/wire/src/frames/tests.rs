//! Encoder and decoder against each other and against bytes made by hand; hostile input.

use super::*;
use crate::messages::{Header, Payload};
use crate::types::{EntityAddr, EntityAddrVec, EntityKind, UTime};
use bytes::{Bytes, BytesMut};
use codec::{Features, Rope};
use proptest::prelude::*;

struct Pair {
    tx: FrameEncoder,
    rx: FrameDecoder,
}

fn pair(secure: bool) -> Pair {
    let (mut client, mut server) = ends();
    if secure {
        let secret: Vec<u8> = (0..64).collect();
        SecureKeys::new(&secret, Side::Connecting).unwrap().install(&mut client.tx, &mut client.rx);
        SecureKeys::new(&secret, Side::Accepting).unwrap().install(&mut server.tx, &mut server.rx);
    }
    Pair { tx: client.tx, rx: server.rx }
}

fn ends() -> (Pair, Pair) {
    let end = || {
        let mut rx = FrameDecoder::new();
        rx.set_frame_len_max(64 << 20);
        Pair { tx: FrameEncoder::new(), rx }
    };
    (end(), end())
}

fn bytes_of(mut q: WriteQueue) -> Vec<u8> {
    q.take().flat_map(|b| b.to_vec()).collect()
}

/// Feed `bytes` in pieces of `step`, large frames through their own buffer.
fn decode_all(rx: &mut FrameDecoder, bytes: &[u8], step: usize) -> Result<Vec<Frame>, FrameError> {
    let (mut shared, mut frames, mut at) = (BytesMut::new(), Vec::new(), 0);
    loop {
        while let Some(frame) = rx.decode(&mut shared)? {
            frames.push(frame);
        }
        if at == bytes.len() {
            return Ok(frames);
        }
        let into = match rx.own_buffer() {
            Some((buffer, missing)) => (buffer, missing.min(step)),
            None => (&mut shared, step),
        };
        let n = into.1.min(bytes.len() - at);
        into.0.extend_from_slice(&bytes[at..at + n]);
        at += n;
    }
}

fn header(seq: u64) -> MessageHeader {
    let header = Header { tid: 77, kind: 42, priority: 127, version: 8, compat: 3 };
    MessageHeader { seq, ack_seq: 5, data_offset: 100, header }
}

fn some_controls() -> Vec<Control> {
    let addr = EntityAddr::msgr2("10.1.2.3:6800".parse().unwrap(), 99);
    let payload =
        Bytes::from_static(b"some payload that is longer than the inline block of a sealed preamble");
    vec![
        Control::Hello { kind: EntityKind::OSD, peer_addr: addr },
        Control::AuthRequest { method: 2, preferred_modes: vec![2, 1], payload: payload.clone() },
        Control::AuthBadMethod {
            method: 1,
            result: -95,
            allowed_methods: vec![2],
            allowed_modes: vec![1, 2],
        },
        Control::AuthReplyMore { payload: Bytes::from_static(b"x") },
        Control::AuthRequestMore { payload: Bytes::new() },
        Control::AuthDone { global_id: 4123, mode: 2, payload },
        Control::AuthSignature { signature: [7; 32] },
        Control::ClientIdent {
            addrs: EntityAddrVec::one(addr),
            target: addr,
            id: -1,
            global_seq: 3,
            supported: Features(0x3f01cfbffffdffff),
            required: Features(1 << 59),
            flags: CONNECT_LOSSY,
            cookie: 0x1234,
        },
        Control::SessionReconnect {
            addrs: EntityAddrVec::one(addr),
            client_cookie: 1,
            server_cookie: 2,
            global_seq: 3,
            connect_seq: 4,
            message_seq: 5,
        },
        Control::SessionReset { full: true },
        Control::Wait,
        Control::Keepalive2 { stamp: UTime { sec: 1, nsec: 2 } },
        Control::Ack { seq: 9 },
        Control::CompressionDone { compress: false, method: 0 },
    ]
}

#[test]
fn controls_survive_both_modes_at_any_split() {
    for secure in [false, true] {
        for step in [1, 13, 100_000] {
            let mut p = pair(secure);
            let mut q = WriteQueue::new();
            for c in some_controls() {
                p.tx.control(&c, &mut q);
            }
            let frames = decode_all(&mut p.rx, &bytes_of(q), step).unwrap();
            let got: Vec<Control> = frames.iter().map(|f| f.control().unwrap()).collect();
            assert_eq!(got, some_controls());
        }
    }
}

#[test]
fn messages_of_every_shape_survive_both_modes() {
    let piece = |n: usize, b: u8| Bytes::from((0..n).map(|i| b ^ i as u8).collect::<Vec<_>>());
    let lens = [0usize, 1, 15, 16, 17, 4096, 40_000];
    for secure in [false, true] {
        for step in [97, 1 << 20] {
            let mut p = pair(secure);
            let mut q = WriteQueue::new();
            let mut want = Vec::new();
            for front in lens {
                for middle in [0, 20] {
                    for data in lens {
                        let payload = Payload {
                            front: piece(front, 1),
                            middle: piece(middle, 2),
                            data: piece(data, 3),
                            data_sum: (!secure && data > 0).then(|| crc32c(&piece(data, 3))),
                        };
                        let rope: Rope = payload.data.chunks(3000).map(Bytes::copy_from_slice).collect();
                        let h = header(want.len() as u64);
                        p.tx.message(&h, payload.front.to_vec(), payload.middle.clone(), rope, &mut q);
                        want.push((h, payload));
                    }
                }
            }
            let frames = decode_all(&mut p.rx, &bytes_of(q), step).unwrap();
            let got: Vec<_> = frames.into_iter().map(|f| f.message().unwrap()).collect();
            assert!(got == want, "secure {secure}, step {step}");
        }
    }
}

#[test]
fn keepalive_in_crc_mode_has_known_bytes() {
    let mut q = WriteQueue::new();
    FrameEncoder::new().control(&Control::Keepalive2 { stamp: UTime { sec: 1, nsec: 2 } }, &mut q);
    let mut want = vec![18, 1, 8, 0, 0, 0, 8, 0];
    want.resize(28, 0);
    let preamble_crc = crc::crc32c_from_zero(want[..].try_into().unwrap());
    want.extend(preamble_crc.to_le_bytes());
    want.extend([1, 0, 0, 0, 2, 0, 0, 0]);
    want.extend(crc32c(&[1, 0, 0, 0, 2, 0, 0, 0]).to_le_bytes());
    assert_eq!(bytes_of(q), want);
}

#[test]
fn large_data_lands_on_a_page() {
    for secure in [false, true] {
        let mut p = pair(secure);
        let mut q = WriteQueue::new();
        let data = Bytes::from(vec![9; 100_000]);
        p.tx.message(&header(1), vec![1; 333], Bytes::new(), data.clone().into(), &mut q);
        let frames = decode_all(&mut p.rx, &bytes_of(q), 4096).unwrap();
        assert_eq!(frames[0].segments[3], data);
        assert_eq!(frames[0].segments[3].as_ptr() as usize % 4096, 0, "secure {secure}");
    }
}

#[test]
fn large_payload_is_sent_without_copy() {
    let mut q = WriteQueue::new();
    let data = Bytes::from(vec![9; 100_000]);
    let at = data.as_ptr();
    FrameEncoder::new().message(&header(1), vec![], Bytes::new(), data.into(), &mut q);
    assert!(q.take().any(|b| b.as_ptr() == at));
}

#[test]
fn aborted_frame_is_dropped_and_next_read() {
    let mut q = WriteQueue::new();
    let mut tx = FrameEncoder::new();
    tx.message(&header(1), vec![1; 10], Bytes::new(), Rope::new(), &mut q);
    let mut bytes = bytes_of(q);
    let epilogue = bytes.len() - 13;
    bytes[epilogue] = 0x1;
    let mut q = WriteQueue::new();
    tx.control(&Control::Wait, &mut q);
    bytes.extend(bytes_of(q));
    let mut rx = FrameDecoder::new();
    let frames = decode_all(&mut rx, &bytes, 1000).unwrap();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].control().unwrap(), Control::Wait);
    bytes[epilogue] = 0x7;
    assert_eq!(decode_all(&mut FrameDecoder::new(), &bytes, 1000), Err(FrameError::LateStatus(7)));
}

#[test]
fn stranger_cannot_announce_large_frame() {
    let mut q = WriteQueue::new();
    let payload = Bytes::from(vec![0; FRAME_LEN_MAX_BEFORE_AUTH]);
    FrameEncoder::new().control(&Control::AuthRequestMore { payload }, &mut q);
    let bytes = bytes_of(q);
    let mut rx = FrameDecoder::new();
    let got = rx.decode(&mut BytesMut::from(&bytes[..32]));
    assert!(matches!(got, Err(FrameError::TooLong { .. })), "{got:?}");
}

#[test]
fn flipped_bit_in_sealed_frame_is_detected() {
    let mut q = WriteQueue::new();
    pair(true).tx.message(&header(1), vec![1; 100], Bytes::new(), Bytes::from(vec![2; 100]).into(), &mut q);
    let bytes = bytes_of(q);
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode_all(&mut pair(true).rx, &bad, 100_000), Err(FrameError::Sealed), "bit {bit}");
    }
}

#[test]
fn flipped_bit_in_crc_frame_is_detected() {
    let mut q = WriteQueue::new();
    pair(false).tx.message(&header(1), vec![1; 100], Bytes::new(), Bytes::from(vec![2; 100]).into(), &mut q);
    let bytes = bytes_of(q);
    for bit in 0..bytes.len() * 8 {
        // The high half of the late status means nothing yet, and one bit turns "complete" to neither word.
        if bit / 8 == bytes.len() - 13 && bit % 8 >= 4 {
            continue;
        }
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let got = decode_all(&mut pair(false).rx, &bad, 100_000);
        assert!(got.is_err(), "bit {bit}: {got:?}");
    }
}

proptest! {
    #[test]
    fn garbage_never_panics_or_exceeds_the_buffer_bound(
        garbage in proptest::collection::vec(any::<u8>(), 0..300),
        secure: bool,
    ) {
        let mut p = pair(secure);
        let _ = decode_all(&mut p.rx, &garbage, 50);
        let _ = Banner::decode(&garbage);
        for tag in 0..=23 {
            let _ = Control::decode(Tag(tag), &garbage);
        }
        let _ = MessageHeader::from_bytes(&garbage);
    }

    #[test]
    fn damaged_preamble_with_valid_crc_never_panics(
        mut raw in proptest::array::uniform28(any::<u8>()),
        count in 0u8..6,
        lens in proptest::array::uniform4(0u32..70_000),
        rest in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        raw[1] = count;
        raw[26] = 0;
        for (i, len) in lens.iter().enumerate() {
            raw[2 + 6 * i..6 + 6 * i].copy_from_slice(&len.to_le_bytes());
        }
        let mut bytes = raw.to_vec();
        bytes.extend(crc::crc32c_from_zero(&raw).to_le_bytes());
        bytes.extend(rest);
        let mut rx = FrameDecoder::new();
        let _ = decode_all(&mut rx, &bytes, 777);
        if let Some((buffer, _)) = rx.own_buffer() {
            prop_assert!(buffer.capacity() <= FRAME_LEN_MAX_BEFORE_AUTH + 8192);
        }
    }
}
