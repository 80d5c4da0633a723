//! Decoders of the disk format under arbitrary bytes, for the fuzz target and the replay of its corpus. (The index has its
//! own: [`crate::index::hostile`].)
//!
//! Checksums are corrected first, so that they do not protect the decoders. No input may make a decoder panic, or allocate
//! more than a small multiple of its length. Accepted values survive an encode and decode.

use crate::checksum::crc32c;
use crate::format::{Header, Superblock, sealed_block};
use crate::log::{Entries, Record, RecordHead, patched};
use crate::object::collection::CollectionRecord;
use crate::object::key;
use crate::object::layer::Layer;
use crate::object::packed::{decode_pool, unpack};
use crate::object::page::Page;
use crate::object::record::ObjectRecord;
use crate::object::refcount::Refcounts;
use crate::pg_log::{PgLog, records_of};
use bytes::Bytes;
use device::BLOCK;
use store::CompressionAlgorithm;
use wire::types::Eversion;

/// Decodes `data`; the first byte chooses the decoder.
pub fn decode(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    match choice % 8 {
        0 => superblock(rest),
        1 => header(rest),
        2 => record(rest),
        3 => drop(Entries::new(rest).take_while(Result::is_ok).count()),
        4 => page(rest),
        5 => object(rest),
        7 => packed(rest),
        _ => others(rest),
    }
}

/// A sealed block with these contents.
fn sealed(data: &[u8]) -> Vec<u8> {
    sealed_block(data[..data.len().min(BLOCK - 4)].to_vec())
}

fn superblock(data: &[u8]) {
    let block = sealed(data);
    let choose = |block: &[u8]| Superblock::choose(&[None, Some(block)], u64::MAX);
    let Ok(superblock) = choose(&block) else { return };
    // One of version 1 with many shards may have no room for the tables of version 2.
    let Ok(again) = superblock.encode() else { return };
    let written = Superblock { version: superblock.present_version(), ..superblock };
    assert_eq!(choose(&again), Ok(written));
}

fn header(data: &[u8]) {
    let identity =
        data.get(8..16).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    if let Some(header) = Header::decode(&sealed(data), identity) {
        assert_eq!(Header::decode(&header.encode(), identity), Some(header));
    }
}

/// A log record with correct checksums.
fn record(data: &[u8]) {
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().next_multiple_of(BLOCK).max(BLOCK), 0);
    let body_len = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes")) as usize;
    if let Some(body) = bytes.get(64..64usize.saturating_add(body_len)) {
        let crc = crc32c(body);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32c(&bytes[8..64]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    let identity = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let Some(head) = RecordHead::decode(&bytes, identity) else { return };
    let Some(record) = Record::decode(head, &bytes.into()) else { return };
    let _ = Entries::new(record.entries()).take_while(Result::is_ok).count();
    let _ = record.data();
}

fn page(data: &[u8]) {
    if let Ok(page) = Page::decode(data) {
        assert_eq!(Page::decode(&page.encode()), Ok(page));
    }
}

/// Compressed data: refused, or unpacked to the recorded length.
fn packed(data: &[u8]) {
    let Some((blocks, data)) = data.split_first() else { return };
    let blocks = 2 + blocks % 15;
    for algorithm in CompressionAlgorithm::ALL {
        let out = unpack(algorithm, blocks, data);
        assert!(out.is_none_or(|out| out.len() == blocks as usize * BLOCK));
    }
}

fn object(data: &[u8]) {
    if let Ok(record) = ObjectRecord::decode(&Bytes::copy_from_slice(data)) {
        let _ = record.encode();
    }
}

/// Logs of collections: a state, a chunk, a patch.
fn logs(data: &[u8]) {
    if let Ok(log) = PgLog::decode(data) {
        assert_eq!(PgLog::decode(&log.encode(log.mark)), Ok(log));
    }
    let _ = records_of(data, Eversion::ZERO, Eversion::MAX);
    let (patch, base) = data.split_at(data.len() / 2);
    let front = [&[base.len() as u8 & 0x7f][..], &crc32c(&base[..base.len() & 0x7f]).to_le_bytes()].concat();
    let _ = patched(&[&front, patch].concat(), &base[..base.len() & 0x7f]);
}

fn others(data: &[u8]) {
    logs(data);
    let _ =
        (CollectionRecord::decode(data), Refcounts::decode(data), decode_pool(data), key::parse_pool(data));
    let _ =
        (key::parse_collection(data), key::parse_page(data), key::parse_zone(data), key::parse_number(data));
    if key::parse_omap_number(data).is_ok() {
        let _ = key::omap_own(data);
    }
    if let Ok(layer) = Layer::decode(data) {
        assert_eq!(Layer::decode(&layer.encode()), Ok(layer));
    }
    if let Ok((area, id)) = key::parse_object(data) {
        // A locator that equals the name is not encoded.
        let again = key::object(area, &id);
        let (same_area, same) = key::parse_object(&again).expect("written by us");
        assert_eq!((same_area, key::object(area, &same)), (area, again));
    }
}
