//! Decoders of the index under arbitrary bytes, for the fuzz target and property tests.
//!
//! A function here panics only if a guarantee is broken. Checksums are corrected first, so that they do not protect the
//! decoders. No input may make a decoder panic, or allocate more than a small multiple of its length.

use super::node::{Builder, Kind, Node};
use super::table::{At, BlockAt, Segment, Table};
use super::{
    Get, Index, Levels, Limit, LogMark, Options, Purpose, Scan, TakeSpace, Ticket, filter, manifest,
};
use crate::io::{Io, Owner};
use device::simulated::{Pace, Simulated};
use device::{BLOCK, Durability};
use std::sync::{Arc, OnceLock};

const DEVICE_BYTES: u64 = 1 << 20;

/// Decodes `data`; the first byte chooses the decoder.
pub fn decode(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    match choice % 3 {
        0 => decode_node(rest),
        1 => decode_manifest(rest),
        _ => use_table(rest),
    }
}

/// A node: every query of an accepted node succeeds.
pub fn decode_node(data: &[u8]) {
    let Some(kind) = data.first() else { return };
    let kind = [Kind::Entries, Kind::Guide, Kind::Root][*kind as usize % 3];
    let mut bytes = data.to_vec();
    bytes[0] = kind as u8;
    let Ok(node) = Node::parse(bytes.into(), kind) else { return };
    for i in 0..node.count() {
        let key = node.key(i);
        assert_eq!(node.seek(&key), (i, true));
        assert_eq!(node.value(i).map(<[u8]>::len), node.value_shared(i).map(|value| value.len()));
        filter::may_hold(node.filter(), filter::hash(&key));
    }
}

/// A manifest behind its checksum: an accepted one survives an encode and decode.
pub fn decode_manifest(data: &[u8]) {
    let blob = [b"shoalidx", &crc_fast::crc32_iscsi(data).to_le_bytes()[..], data].concat();
    let Ok(state) = manifest::decode(&blob) else { return };
    let again = manifest::encode(state.flushed, state.next_table, &state.levels);
    assert_eq!(again.len(), blob.len());
    assert!(manifest::decode(&again).is_ok());
}

/// A table whose root and guide have arbitrary pointers and correct checksums: look-ups, scans and merges end, with any
/// answer.
pub fn use_table(data: &[u8]) {
    let (pointers, content) = data.split_at(data.len().min(64) / 2);
    let mut blocks = content.to_vec();
    blocks.resize(4 * BLOCK, 0);
    let mut io = Io::new(Box::new(Simulated::new(DEVICE_BYTES, Pace::AtOnce, 1)));
    // Entries, then the guide, then the root, with correct checksums for pointers that stay within the table.
    let (mut guide, mut root) = (Builder::default(), Builder::default());
    for (i, pointer) in pointers.chunks(2).enumerate() {
        let (unit, units) = (pointer[0] as usize % 5, pointer.last().map_or(0, |n| *n as usize % 4));
        let crc = blocks.get(unit * BLOCK..(unit + units) * BLOCK).map_or(0, crc_fast::crc32_iscsi);
        let at = BlockAt { unit: unit as u32, units: units as u32, crc };
        guide.push(&[i as u8], Some(&at.encode()));
    }
    let mut bytes = Vec::new();
    guide.finish(Kind::Guide, &[], &mut bytes);
    let guide_at = (blocks.len() / BLOCK, bytes.len() / BLOCK, crc_fast::crc32_iscsi(&bytes));
    blocks.extend_from_slice(&bytes);
    for (i, pointer) in pointers.chunks(4).enumerate() {
        let skew = if pointer[0] < 200 { 0 } else { pointer[0] as u64 - 199 };
        let at = Segment {
            unit: skew,
            data_units: guide_at.0 as u32,
            guide_units: guide_at.1 as u32,
            guide_crc: guide_at.2,
        };
        let whole = at.encode();
        root.push(&[i as u8 * 2], Some(if pointer[0] == 255 { &pointer[1..] } else { &whole[..] }));
    }
    bytes.clear();
    root.finish(Kind::Root, &[], &mut bytes);
    let unit = (blocks.len() / BLOCK) as u64;
    let at = At { unit, units: (bytes.len() / BLOCK) as u32, crc: crc_fast::crc32_iscsi(&bytes) };
    blocks.extend_from_slice(&bytes);
    let units = (blocks.len() / BLOCK) as u64;
    io.write(Owner::Data, 0, 0, blocks.into(), Durability::Later);
    io.poll(&mut Vec::new());
    let table = |number| Table {
        number,
        first: vec![],
        end: vec![255],
        root: at,
        entries: 1,
        deletions: 0,
        runs: vec![(0, units)],
        born: 0,
        root_node: OnceLock::new(),
    };
    let mut index = Index::new(Options::default());
    let mut levels = Levels::default();
    (0..4).for_each(|number| levels.add_fresh(vec![Arc::new(table(number))]));
    (index.levels, index.background.next_table) = (levels, 4);
    ask(&mut index, &mut io);
    let mut space = Rest(units * BLOCK as u64);
    for _ in 0..1000 {
        if !turn(&mut index, &mut io, &mut space) {
            break;
        }
    }
    ask(&mut index, &mut io);
}

fn ask(index: &mut Index, io: &mut Io) {
    for key in 0..=40 {
        for _ in 0..20 {
            match index.get(&[key], Ticket(1), io) {
                Get::Pending => drop(turn(index, io, &mut Rest(0))),
                _ => break,
            }
        }
    }
    let mut from = Vec::new();
    for _ in 0..100 {
        let limit = Limit::new(10, 1000);
        match index.scan(&from, &[255], limit, Ticket(2), io, &mut |_, _| ()) {
            Scan::More(next) => from = next,
            Scan::Pending => drop(turn(index, io, &mut Rest(0))),
            Scan::End | Scan::Bad(_) => break,
        }
    }
}

fn turn(index: &mut Index, io: &mut Io, space: &mut Rest) -> bool {
    let mut done = Vec::new();
    io.poll(&mut done);
    done.into_iter().for_each(|done| index.on_done(done.token, done.result, io));
    index.ready(&mut Vec::new());
    index.maintain(LogMark(0), io, space) || io.under_way() > 0
}

/// Free space behind the table.
struct Rest(u64);

impl TakeSpace for Rest {
    fn take(&mut self, len: u64, _: Purpose) -> Option<u64> {
        let start = self.0;
        (start > 0 && start + len <= DEVICE_BYTES).then(|| {
            self.0 += len;
            start
        })
    }

    fn give_back(&mut self, _: u64, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn anything_at_all(data in prop::collection::vec(any::<u8>(), 0..400)) {
            decode(&data);
        }

        #[test]
        fn a_table_of_anything(pointers in prop::collection::vec(any::<u8>(), 32), nodes in prop::collection::vec(entries(), 4)) {
            use_table(&[&pointers[..], &nodes.concat()].concat());
        }

        #[test]
        fn a_likely_manifest(mut data in prop::collection::vec(0u8..3, 0..300)) {
            if let Some(format) = data.first_chunk_mut::<2>() {
                *format = [1, 0];
            }
            decode_manifest(&data);
        }
    }

    /// A block of entries as it should be, with a byte changed now and then.
    fn entries() -> impl Strategy<Value = Vec<u8>> {
        let entry = (any::<[u8; 2]>(), prop::option::of(any::<[u8; 20]>()));
        let entries = prop::collection::btree_map(any::<u8>(), entry, 1..20);
        (entries, prop::option::of((0..64usize, any::<u8>()))).prop_map(|(entries, change)| {
            let (mut builder, mut out) = (Builder::default(), Vec::new());
            for (first, (rest, value)) in entries {
                builder.push(&[&[first], &rest[..]].concat(), value.as_ref().map(|value| &value[..]));
            }
            builder.finish(Kind::Entries, &[], &mut out);
            if let Some((at, byte)) = change {
                out[at] = byte;
            }
            out
        })
    }
}
