//! Do arbitrary bytes leave every decoder standing, and memory where it was?
//!
//! Random bytes die at the first length, so most inputs here are plausible: an envelope full of zeroes, which nearly
//! every type reads as empty, or a recorded map; then a few bytes of it are changed.

use bytes::Bytes;
use cap::Cap;
use codec::{Encode, Features, Reader, decode_exact};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::alloc::System;
use wire::dencode::{self, hostile};
use wire::features;
use wire::messages::{self, Header, Message, Payload};
use wire::types::{OsdMap, OsdMapIncremental};

/// Counts what the process has allocated. This file holds one test, so that nobody else's memory is counted.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Maximum memory that a decode takes, freed or not: so much per byte of input, on top of a floor.
const BYTES_PER_BYTE: usize = 40;
const FLOOR: usize = 64 * 1024;

/// An envelope of zeroes with some bytes set.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let interesting = prop_oneof![Just(0u8), Just(1), Just(2), Just(0x7f), Just(0xff), any::<u8>()];
    let writes = prop::collection::vec((any::<prop::sample::Index>(), interesting), 0..16);
    (0u8..40, 1u8..3, 0usize..1500, writes).prop_map(|(version, compat, len, writes)| {
        let mut bytes = vec![0; 6 + len];
        bytes[0] = version;
        bytes[1] = compat;
        bytes[2..6].copy_from_slice(&(len as u32).to_le_bytes());
        for (at, value) in writes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes
    })
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![plausible(), prop::collection::vec(any::<u8>(), 0..300)]
}

/// Maps as stock wrote them; a byte changed anywhere but in the crc is refused at the end, after all is read.
fn recorded_maps() -> Vec<(&'static str, Vec<u8>)> {
    let recorded = include_bytes!("recorded/osdmaps-20.2.4");
    let mut r = Reader::new(recorded);
    let count = r.u32().unwrap();
    let mut item = || {
        let (_epoch, kind) = (r.u32().unwrap(), r.u8().unwrap());
        (["OSDMap::Incremental", "OSDMap"][usize::from(kind)], r.blob().unwrap().to_vec())
    };
    (0..count).map(|_| item()).collect()
}

fn read_type(entry: &dencode::TypeEntry, bytes: &[u8]) {
    let before = MEMORY.total_allocated();
    // Not the printed form, which is as long as it likes.
    let written = entry.reencode(bytes, features::TENTACLE);
    let taken = MEMORY.total_allocated() - before;
    let allowed = FLOOR + BYTES_PER_BYTE * bytes.len();
    assert!(taken <= allowed, "{}: {taken} bytes to read {}: {bytes:02x?}", entry.name, bytes.len());
    drop(written);
}

fn read_message(kind: u16, version: u16, front: Vec<u8>) {
    let header = Header { kind, version, compat: 1, ..Header::default() };
    let allowed = FLOOR + BYTES_PER_BYTE * front.len();
    let payload = Payload { front: Bytes::from(front), ..Payload::default() };
    let before = MEMORY.total_allocated();
    let message = Message::decode(&header, payload);
    let taken = MEMORY.total_allocated() - before;
    assert!(taken <= allowed, "{}: {taken} bytes", messages::name_of(kind));
    drop(message);
}

#[test]
fn nothing_panics_and_nothing_grows() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) };
    let run = |name: &str, property: &mut dyn FnMut(Vec<u8>)| {
        let mut runner = proptest::test_runner::TestRunner::new_with_rng(
            config.clone(),
            proptest::test_runner::TestRng::from_seed(
                proptest::test_runner::RngAlgorithm::ChaCha,
                &std::array::from_fn::<u8, 32, _>(|i| name.as_bytes().get(i).copied().unwrap_or(7)),
            ),
        );
        for _ in 0..config.cases {
            let bytes = any_bytes().new_tree(&mut runner).unwrap().current();
            property(bytes);
        }
    };

    for entry in dencode::types() {
        run(entry.name, &mut |bytes| {
            read_type(entry, &bytes);
            hostile::decode_type(&[&hostile::type_tag(entry.name).to_le_bytes()[..], &bytes].concat());
        });
    }
    for (kind, name) in messages::ALL {
        run(name, &mut |bytes| {
            for version in [1, 4, 9] {
                read_message(*kind, version, bytes.clone());
            }
            let head = [bytes.len() as u8 % 12, 0, bytes.len() as u8 % 3];
            hostile::decode_message(&[&kind.to_le_bytes()[..], &head, &bytes].concat());
        });
    }
    for (at, (name, bytes)) in recorded_maps().into_iter().enumerate() {
        let entry = dencode::by_name(name).unwrap();
        // Every 7th byte of each, shifted from map to map, so that all kinds of places are hit.
        for place in (at % 7..bytes.len()).step_by(7) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[place] = value;
                read_type(entry, &changed);
            }
        }
        read_type(entry, &bytes[..bytes.len() / 2]);
    }
    applying_what_does_not_fit();
}

/// A change that decodes may still name what is not there.
fn applying_what_does_not_fit() {
    let changes: Vec<OsdMapIncremental> = recorded_maps()
        .into_iter()
        .filter(|(name, _)| *name == "OSDMap::Incremental")
        .map(|(_, bytes)| decode_exact(&bytes).unwrap())
        .collect();
    for inc in &changes {
        let map = OsdMap { epoch: inc.epoch - 1, fsid: inc.fsid, ..OsdMap::default() };
        if let Ok(next) = map.apply(inc) {
            next.to_vec(Features(inc.encode_features));
        }
    }
    let map = OsdMap { fsid: changes[0].fsid, ..OsdMap::default() };
    for max_osd in [-5, i32::MAX] {
        let inc =
            OsdMapIncremental { new_max_osd: Some(max_osd), ..OsdMapIncremental::after(&map, map.modified) };
        assert!(map.apply(&inc).is_err());
    }
}
