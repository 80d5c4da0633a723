//! Are the messages that stock's clients and daemons sent each other read whole, and written byte for byte as they
//! did?
//!
//! Of each message and version, the smallest and a larger one that was seen on the wire between the clients, the
//! monitor, the manager and two OSDs of a stock cluster.

use bytes::Bytes;
use codec::{Features, Reader};
use std::collections::BTreeSet;
use wire::features;
use wire::messages::{Body, Header, Message, Payload};

const PACIFIC: &[u8] = include_bytes!("recorded/messages-16.2.15");
const TENTACLE: &[u8] = include_bytes!("recorded/messages-20.2.4");

/// Messages with a type inside that shoal writes in a newer version than Pacific does.
const NEWER_THAN_PACIFIC: [&str; 5] = ["MFSMap", "MMgrMap", "MMonMgrReport", "MOSDBoot", "MPGStats"];

fn recorded(bytes: &[u8]) -> Vec<(Header, Payload)> {
    let mut r = Reader::new(bytes);
    let count = r.u32().unwrap();
    let mut message = || {
        let (kind, version, compat, priority) =
            (r.u16().unwrap(), r.u16().unwrap(), r.u16().unwrap(), r.u16().unwrap());
        let header = Header { tid: r.u64().unwrap(), kind, priority, version, compat };
        let mut section = || Bytes::copy_from_slice(r.blob().unwrap());
        (header, Payload { front: section(), middle: section(), data: section(), data_sum: None })
    };
    let out = (0..count).map(|_| message()).collect();
    r.expect_end().unwrap();
    out
}

fn write(message: &Message, features: Features) -> (Header, Payload) {
    let (header, out) = message.encode(features);
    (
        header,
        Payload {
            front: out.front.into_bytes(),
            middle: out.middle,
            data: out.data.to_bytes(),
            data_sum: None,
        },
    )
}

/// Returns the names of all that came back exactly.
fn check(bytes: &[u8], features: Features, newer: &[&str]) -> BTreeSet<&'static str> {
    let mut exact = BTreeSet::new();
    for (header, payload) in recorded(bytes) {
        let message = Message::decode(&header, payload.clone()).unwrap_or_else(|e| panic!("{header:?}: {e}"));
        let name = message.body.name();
        assert!(!matches!(message.body, Body::Unknown(_)), "{header:?}");
        let (ours, written) = write(&message, features);
        if (ours, &written) == (header, &payload) {
            exact.insert(name);
            continue;
        }
        assert!(newer.contains(&name), "{name} is written otherwise: {header:?} {ours:?} {message:#?}");
        assert_eq!(Message::decode(&ours, written).unwrap(), message, "{name}");
    }
    exact
}

#[test]
fn tentacles_messages_come_back_byte_for_byte() {
    let exact = check(TENTACLE, features::TENTACLE, &[]);
    assert!(exact.len() >= 35, "{exact:?}");
}

#[test]
fn pacifics_messages_come_back_byte_for_byte_or_newer() {
    let exact = check(PACIFIC, features::PACIFIC, &NEWER_THAN_PACIFIC);
    assert!(exact.len() >= 30, "{exact:?}");
}
