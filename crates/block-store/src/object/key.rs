//! Keys of the index. Their byte order is the order of listings.
//!
//! | first byte | then | value |
//! |---|---|---|
//! | `10` | collection | [`super::collection::CollectionRecord`] |
//! | `11` | collection | the record of its PG meta object |
//! | `12` | collection | the record of its log object |
//! | `13` | collection | the state of its log, [`crate::pg_log::PgLog`] |
//! | `20` | area, pool, reversed hash, namespace, key, name, snapshot, generation | [`super::record::ObjectRecord`] |
//! | `30` | number, page | [`super::page::Page`] |
//! | `40` | number, `00` | header of an omap |
//! | `40` | number, `01`, key | value of an omap key |
//! | `40` | number, `02`, key | empty: this layer hides the key of its ancestors |
//! | `50` | block / 64 | [`super::refcount::Refcounts`] |
//! | `60` | zone | of version 1: the bitmap of a zone of the shard's region |
//! | `61` | zone | a lease, with one bit per block: it holds data |
//! | `68` | number | [`super::layer::Layer`] |
//! | `70` | number | empty, or the pool: pages and omap keys of this number are to be cleaned away |
//! | `71` | number | empty, or the pool: entries of this layer, or of its parent, are to be given on |
//! | `80` | pool | [`super::packed::encode_pool`] |
//!
//! Numbers are big-endian. A name ends with `00 00`, and a zero within it is `00 ff`.

use crate::varint;
use codec::{DecodeError, Reader};
use store::{Collection, ObjectId};
use wire::types::{HObject, Name, PgId, ShardId, SnapId, SpgId};

pub type Key = Vec<u8>;

const COLLECTION: u8 = 0x10;
const PG_META: u8 = 0x11;
const LOG_OBJECT: u8 = 0x12;
const LOG_STATE: u8 = 0x13;
const OBJECT: u8 = 0x20;
const PAGE: u8 = 0x30;
const OMAP: u8 = 0x40;
const REFCOUNT: u8 = 0x50;
const ZONE: u8 = 0x60;
const LAYER: u8 = 0x68;
const LEASE: u8 = 0x61;
const CLEANING: u8 = 0x70;
const LAYER_CLEANING: u8 = 0x71;
const POOL: u8 = 0x80;

const OMAP_HEADER: u8 = 0;
const OMAP_ENTRY: u8 = 1;
const OMAP_MARKER: u8 = 2;
/// Bytes before the omap key: first byte, number, kind.
const OMAP_PREFIX_LEN: usize = 10;

/// True for keys whose values change by few bytes: records of objects, pages, and headers of omaps. Their changes may be logged as
/// patches.
pub fn takes_patches(key: &[u8]) -> bool {
    match key.first() {
        Some(&(OBJECT | PAGE | PG_META | LOG_OBJECT)) => true,
        Some(&OMAP) => key.len() == OMAP_PREFIX_LEN && key.ends_with(&[OMAP_HEADER]),
        _ => false,
    }
}

/// The first key of a key space, and the first key behind it.
pub fn whole_space(first_byte: u8) -> (Key, Key) {
    (vec![first_byte], vec![first_byte + 1])
}

pub fn all_collections() -> (Key, Key) {
    whole_space(COLLECTION)
}

pub fn all_pg_metas() -> (Key, Key) {
    whole_space(PG_META)
}

pub fn all_log_objects() -> (Key, Key) {
    whole_space(LOG_OBJECT)
}

pub fn all_log_states() -> (Key, Key) {
    whole_space(LOG_STATE)
}

pub fn all_objects() -> (Key, Key) {
    whole_space(OBJECT)
}

pub fn all_pages() -> (Key, Key) {
    whole_space(PAGE)
}

pub fn all_omaps() -> (Key, Key) {
    whole_space(OMAP)
}

pub fn all_refcounts() -> (Key, Key) {
    whole_space(REFCOUNT)
}

/// Zones of version 1.
pub fn all_zones() -> (Key, Key) {
    whole_space(ZONE)
}

pub fn all_leases() -> (Key, Key) {
    whole_space(LEASE)
}

pub fn all_layers() -> (Key, Key) {
    whole_space(LAYER)
}

pub fn all_layer_cleanings() -> (Key, Key) {
    whole_space(LAYER_CLEANING)
}

/// Keys of [`cleaning`] and [`layer_cleaning`].
pub fn all_cleanups() -> (Key, Key) {
    (vec![CLEANING], vec![LAYER_CLEANING + 1])
}

/// True for a key of [`layer_cleaning`].
pub fn is_layer_cleaning(key: &[u8]) -> bool {
    key.first() == Some(&LAYER_CLEANING)
}

pub fn all_cleanings() -> (Key, Key) {
    whole_space(CLEANING)
}

pub fn all_pools() -> (Key, Key) {
    whole_space(POOL)
}

pub fn collection(id: Collection) -> Key {
    let mut out = vec![COLLECTION];
    put_collection(&mut out, id);
    out
}

pub fn pg_meta(id: Collection) -> Key {
    let mut out = vec![PG_META];
    put_collection(&mut out, id);
    out
}

pub fn log_object(id: Collection) -> Key {
    let mut out = vec![LOG_OBJECT];
    put_collection(&mut out, id);
    out
}

pub fn log_state(id: Collection) -> Key {
    let mut out = vec![LOG_STATE];
    put_collection(&mut out, id);
    out
}

fn put_collection(out: &mut Key, id: Collection) {
    match id {
        Collection::Meta => out.push(0),
        Collection::Pg(id) => {
            out.push(1);
            out.extend_from_slice(&flipped(id.pg.pool).to_be_bytes());
            out.extend_from_slice(&id.pg.seed.to_be_bytes());
            out.push(id.shard.0 as u8);
        }
    }
}

/// Decodes a key of [`collection`], [`pg_meta`], [`log_object`] or [`log_state`].
pub fn parse_collection(key: &[u8]) -> Result<Collection, DecodeError> {
    let mut r = Reader::new(key);
    r.u8()?;
    let out = match r.u8()? {
        0 => Collection::Meta,
        1 => {
            let pool = unflipped(take_be_u64(&mut r)?);
            let seed = take_be_u32(&mut r)?;
            let shard = ShardId(r.i8()?);
            Collection::Pg(SpgId { pg: PgId { pool, seed }, shard })
        }
        other => {
            return Err(DecodeError::Invalid { what: "collection", value: other as u64, offset: 1 });
        }
    };
    r.expect_end()?;
    Ok(out)
}

/// Appends a collection in few bytes: `00` for the daemon's own; else `01`, or `02` with a shard; varints pool, with the sign in
/// the lowest bit, and seed; the shard.
pub fn put_short_collection(out: &mut Vec<u8>, id: Collection) {
    let Collection::Pg(SpgId { pg: PgId { pool, seed }, shard }) = id else { return out.push(0) };
    let has_shard = shard != ShardId::NONE;
    out.push(if has_shard { 2 } else { 1 });
    varint::put_signed(out, pool);
    varint::put(out, seed.into());
    if has_shard {
        out.push(shard.0 as u8);
    }
}

pub fn take_short_collection(r: &mut Reader<'_>) -> Result<Collection, DecodeError> {
    let offset = r.offset();
    let kind = r.u8()?;
    match kind {
        0 => return Ok(Collection::Meta),
        1 | 2 => {}
        other => return Err(DecodeError::Invalid { what: "collection", value: other as u64, offset }),
    }
    let (pool, seed) = (varint::take_signed(r)?, varint::take_u32(r, "seed")?);
    let shard = if kind == 2 { ShardId(r.i8()?) } else { ShardId::NONE };
    Ok(Collection::Pg(SpgId { pg: PgId { pool, seed }, shard }))
}

/// Maps signed numbers to unsigned ones in the same order.
fn flipped(value: i64) -> u64 {
    (value as u64) ^ (1 << 63)
}

fn unflipped(value: u64) -> i64 {
    (value ^ (1 << 63)) as i64
}

fn take_be_u64(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    Ok(u64::from_be_bytes(r.take("number", 8)?.try_into().expect("eight bytes")))
}

fn take_be_u32(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    Ok(u32::from_be_bytes(r.take("number", 4)?.try_into().expect("four bytes")))
}

/// The first possible key of a pool's objects in an area, from this reversed hash on.
pub fn objects_from(area: u64, pool: i64, reversed_hash: u32) -> Key {
    let mut out = Vec::with_capacity(21);
    out.push(OBJECT);
    out.extend_from_slice(&area.to_be_bytes());
    out.extend_from_slice(&flipped(pool).to_be_bytes());
    out.extend_from_slice(&reversed_hash.to_be_bytes());
    out
}

/// The first key behind a pool's objects in an area.
pub fn objects_after_pool(area: u64, pool: i64) -> Key {
    match pool.checked_add(1) {
        Some(next) => objects_from(area, next, 0),
        None => {
            let mut out = vec![OBJECT];
            out.extend_from_slice(&(area + 1).to_be_bytes());
            out
        }
    }
}

pub fn object(area: u64, id: &ObjectId) -> Key {
    let HObject { pool, namespace, key, name, snap, .. } = &id.object;
    let mut out = Vec::with_capacity(48 + namespace.len() + key.len() + name.len());
    out.push(OBJECT);
    out.extend_from_slice(&area.to_be_bytes());
    out.extend_from_slice(&flipped(*pool).to_be_bytes());
    out.extend_from_slice(&id.object.reversed_hash().to_be_bytes());
    put_name(&mut out, namespace);
    put_name(&mut out, id.object.effective_key());
    // Most objects have no locator: the byte 2 says so, and orders them between smaller and larger names.
    if key.is_empty() || key == name {
        out.push(2);
    } else {
        out.push(if name < key { 1 } else { 3 });
        put_name(&mut out, name);
    }
    out.extend_from_slice(&snap.0.to_be_bytes());
    out.extend_from_slice(&id.generation.to_be_bytes());
    out
}

/// Decodes a key of [`object`]: the area and the object.
pub fn parse_object(key: &[u8]) -> Result<(u64, ObjectId), DecodeError> {
    let mut r = Reader::new(key);
    r.u8()?;
    let area = take_be_u64(&mut r)?;
    let pool = unflipped(take_be_u64(&mut r)?);
    let hash = take_be_u32(&mut r)?.reverse_bits();
    let namespace = take_name(&mut r)?;
    let effective_key = take_name(&mut r)?;
    let (key, name) = match r.u8()? {
        2 => (Name::EMPTY, effective_key),
        _ => (effective_key, take_name(&mut r)?),
    };
    let snap = SnapId(take_be_u64(&mut r)?);
    let generation = take_be_u64(&mut r)?;
    r.expect_end()?;
    let object = HObject { pool, hash, snap, namespace, key, name, max: false };
    Ok((area, ObjectId { object, generation }))
}

fn put_name(out: &mut Key, name: &[u8]) {
    for &byte in name {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

fn take_name(r: &mut Reader<'_>) -> Result<Name, DecodeError> {
    let mut out = Vec::new();
    loop {
        match r.u8()? {
            0 if r.u8()? == 0 => break,
            byte => out.push(byte),
        }
    }
    Ok(out.into())
}

fn numbered(first_byte: u8, number: u64, capacity: usize) -> Key {
    let mut out = Vec::with_capacity(9 + capacity);
    out.push(first_byte);
    out.extend_from_slice(&number.to_be_bytes());
    out
}

pub fn page(number: u64, page: u64) -> Key {
    let mut out = numbered(PAGE, number, 8);
    out.extend_from_slice(&page.to_be_bytes());
    out
}

/// Key range of the pages `from..to` of an object; of all from `from` on if `to` is `None`.
pub fn pages(number: u64, from: u64, to: Option<u64>) -> (Key, Key) {
    (page(number, from), to.map_or_else(|| numbered(PAGE, number + 1, 0), |to| page(number, to)))
}

/// Decodes a key of [`page`]: the object's number and the page.
pub fn parse_page(key: &[u8]) -> Result<(u64, u64), DecodeError> {
    let mut r = Reader::new(key);
    r.u8()?;
    let out = (take_be_u64(&mut r)?, take_be_u64(&mut r)?);
    r.expect_end()?;
    Ok(out)
}

pub fn omap_header(number: u64) -> Key {
    let mut out = numbered(OMAP, number, 1);
    out.push(OMAP_HEADER);
    out
}

pub fn omap(number: u64, key: &[u8]) -> Key {
    let mut out = numbered(OMAP, number, 1 + key.len());
    out.push(OMAP_ENTRY);
    out.extend_from_slice(key);
    out
}

/// The first key behind the entries of an omap below `to`; behind all of them if it is `None`.
pub fn omap_to(number: u64, to: Option<&[u8]>) -> Key {
    to.map_or_else(|| omap_marker(number, &[]), |to| omap(number, to))
}

/// Hides a key of the ancestors of an omap's layer.
pub fn omap_marker(number: u64, key: &[u8]) -> Key {
    let mut out = numbered(OMAP, number, 1 + key.len());
    out.push(OMAP_MARKER);
    out.extend_from_slice(key);
    out
}

/// The first key behind the markers below `to`; behind all of them if it is `None`.
pub fn omap_markers_to(number: u64, to: Option<&[u8]>) -> Key {
    to.map_or_else(|| omap_end(number), |to| omap_marker(number, to))
}

/// The omap key in a key of [`omap`] or [`omap_marker`].
pub fn omap_name(key: &[u8]) -> &[u8] {
    key.get(OMAP_PREFIX_LEN..).unwrap_or_default()
}

/// Kind of an omap's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OmapKind {
    Header,
    Entry,
    Marker,
}

pub fn omap_kind(key: &[u8]) -> Option<OmapKind> {
    match *key.get(OMAP_PREFIX_LEN - 1)? {
        OMAP_HEADER => Some(OmapKind::Header),
        OMAP_ENTRY => Some(OmapKind::Entry),
        OMAP_MARKER => Some(OmapKind::Marker),
        _ => None,
    }
}

/// The first key behind an omap.
pub fn omap_end(number: u64) -> Key {
    numbered(OMAP, number + 1, 0)
}

/// The omap key in a key of [`omap`]; `None` for the header.
pub fn omap_own(key: &[u8]) -> Option<&[u8]> {
    let (front, own) = key.split_at_checked(OMAP_PREFIX_LEN)?;
    front.ends_with(&[OMAP_ENTRY]).then_some(own)
}

/// The number of the omap that a key belongs to.
pub fn parse_omap_number(key: &[u8]) -> Result<u64, DecodeError> {
    let mut r = Reader::new(key);
    r.u8()?;
    take_be_u64(&mut r)
}

/// The next key in byte order.
pub fn successor(mut key: Key) -> Key {
    key.push(0);
    key
}

pub fn refcounts(group: u64) -> Key {
    numbered(REFCOUNT, group, 0)
}

/// Key of a zone of version 1.
pub fn zone(zone: u32) -> Key {
    zone_key(ZONE, zone)
}

pub fn lease(zone: u32) -> Key {
    zone_key(LEASE, zone)
}

fn zone_key(first_byte: u8, zone: u32) -> Key {
    let mut out = vec![first_byte];
    out.extend_from_slice(&zone.to_be_bytes());
    out
}

/// Decodes a key of [`all_zones`] or [`lease`].
pub fn parse_zone(key: &[u8]) -> Result<u32, DecodeError> {
    let mut r = Reader::new(key);
    r.u8()?;
    let out = take_be_u32(&mut r)?;
    r.expect_end()?;
    Ok(out)
}

pub fn layer(number: u64) -> Key {
    numbered(LAYER, number, 0)
}

pub fn layer_cleaning(number: u64) -> Key {
    numbered(LAYER_CLEANING, number, 0)
}

pub fn cleaning(number: u64) -> Key {
    numbered(CLEANING, number, 0)
}

/// Key of a pool's compression totals. Keys are ordered by pool, negative numbers first.
pub fn pool(pool: i64) -> Key {
    numbered(POOL, pool as u64 ^ 1 << 63, 0)
}

pub fn parse_pool(key: &[u8]) -> Result<i64, DecodeError> {
    Ok((parse_number(key)? ^ 1 << 63) as i64)
}

/// Decodes a key of [`layer`], [`layer_cleaning`], [`cleaning`] or [`refcounts`].
pub fn parse_number(key: &[u8]) -> Result<u64, DecodeError> {
    let mut r = Reader::new(key);
    r.u8()?;
    let out = take_be_u64(&mut r)?;
    r.expect_end()?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop_oneof![Just(0), Just(1), Just(b'a'), Just(b'b'), Just(0xc3), Just(0xff)],
            0..4,
        )
    }

    fn object_id() -> impl Strategy<Value = ObjectId> {
        let snap = prop_oneof![Just(SnapId::HEAD), (0u64..3).prop_map(SnapId)];
        let generation = prop_oneof![Just(ObjectId::NO_GENERATION), 0u64..3];
        ((-2i64..2), (0u32..4), name(), name(), name(), snap, generation).prop_map(
            |(pool, hash, namespace, key, name, snap, generation)| {
                // A locator that equals the name is none: both order the same.
                let key = if key == name { Vec::new() } else { key };
                let object = HObject {
                    pool,
                    hash,
                    snap,
                    namespace: namespace.into(),
                    key: key.into(),
                    name: name.into(),
                    max: false,
                };
                ObjectId { object, generation }
            },
        )
    }

    proptest! {
        #[test]
        fn keys_order_as_objects(a in object_id(), b in object_id()) {
            let keys = (object(7, &a), object(7, &b));
            prop_assert_eq!(keys.0.cmp(&keys.1), a.cmp(&b));
            prop_assert_eq!(parse_object(&keys.0).unwrap(), (7, a.clone()));
            prop_assert!(objects_from(7, a.object.pool, a.object.reversed_hash()) < keys.0);
            prop_assert!(objects_after_pool(7, a.object.pool) > keys.0);
        }

        #[test]
        fn arbitrary_keys_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse_object(&bytes);
            let _ = parse_collection(&bytes);
            let _ = parse_page(&bytes);
        }
    }

    #[test]
    fn collection_keys_round_trip() {
        let pg = |pool, seed, shard| Collection::Pg(SpgId { pg: PgId { pool, seed }, shard: ShardId(shard) });
        for id in
            [Collection::Meta, pg(1, 2, -1), pg(i64::MAX, u32::MAX, 3), pg(i64::MIN, 0, 0), pg(-7, 1, -1)]
        {
            assert_eq!(parse_collection(&collection(id)), Ok(id));
            let mut short = Vec::new();
            put_short_collection(&mut short, id);
            assert_eq!(take_short_collection(&mut Reader::new(&short)), Ok(id));
        }
    }
}
