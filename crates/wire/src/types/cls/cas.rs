//! The `cas` class: references to a chunk of data that several objects share, in the chunk's `chunk_refs` attribute.

use crate::types::HObject;
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, varint};
use std::collections::BTreeMap;

/// [`CreateOrGetOp::flags`]: an existing chunk must hold the same data.
pub const FLAG_VERIFY: u64 = 1;

/// `cls_cas_chunk_create_or_get_ref_op`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CreateOrGetOp {
    /// The object that refers to the chunk.
    pub source: HObject,
    /// `FLAG_*`.
    pub flags: u64,
    pub data: Bytes,
}

/// `cls_cas_chunk_get_ref_op` and `cls_cas_chunk_put_ref_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct RefOp {
    pub source: HObject,
}

/// References of a chunk (`chunk_refs_t`), as exactly as their number allows.
///
/// The class writes the form that it has read, and begins with objects. Ceph's deduplication tools write the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChunkRefs {
    Objects(ObjectRefs),
    Hashes(HashRefs),
    Pools(PoolRefs),
    Count(CountRefs),
}

const BY_OBJECT: u8 = 1;
const BY_HASH: u8 = 2;
const BY_POOL: u8 = 4;
const COUNT: u8 = 5;

impl Default for ChunkRefs {
    fn default() -> ChunkRefs {
        ChunkRefs::Objects(ObjectRefs::default())
    }
}

impl Encode for ChunkRefs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| match self {
            ChunkRefs::Objects(refs) => {
                w.u8(BY_OBJECT);
                w.put(refs);
            }
            ChunkRefs::Hashes(refs) => {
                w.u8(BY_HASH);
                w.put(refs);
            }
            ChunkRefs::Pools(refs) => {
                w.u8(BY_POOL);
                w.put(refs);
            }
            ChunkRefs::Count(refs) => {
                w.u8(COUNT);
                w.put(refs);
            }
        });
    }
}

impl Decode for ChunkRefs {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("chunk_refs_t", 1, |r, _| match r.u8()? {
            BY_OBJECT => r.get().map(ChunkRefs::Objects),
            BY_HASH => r.get().map(ChunkRefs::Hashes),
            BY_POOL => r.get().map(ChunkRefs::Pools),
            COUNT => r.get().map(ChunkRefs::Count),
            kind => Err(r.invalid("kind of chunk references", kind)),
        })
    }
}

/// `chunk_refs_by_object_t`: an object as often as it refers to the chunk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectRefs {
    /// Ascending.
    objects: Vec<HObject>,
}

impl ObjectRefs {
    pub fn objects(&self) -> &[HObject] {
        &self.objects
    }

    pub fn insert(&mut self, source: HObject) {
        let at = self.objects.partition_point(|object| *object <= source);
        self.objects.insert(at, source);
    }

    /// False if the object does not refer to the chunk.
    pub fn remove(&mut self, source: &HObject) -> bool {
        let found = self.objects.binary_search_by(|object| object.cmp(source));
        found.map(|at| self.objects.remove(at)).is_ok()
    }
}

impl Encode for ObjectRefs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| w.put(&self.objects));
    }
}

impl Decode for ObjectRefs {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut objects: Vec<HObject> = r.envelope("chunk_refs_by_object_t", 1, |r, _| r.get())?;
        objects.sort();
        Ok(ObjectRefs { objects })
    }
}

/// `chunk_refs_by_hash_t`: how many references come from the objects of a pool with a hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HashRefs {
    pub total: u64,
    /// Low bits of the hash that count, 1 to 32.
    hash_bits: u32,
    /// By pool and hash.
    pub counts: BTreeMap<(i64, u32), u64>,
}

impl HashRefs {
    /// The key of an object's references.
    pub fn key(&self, source: &HObject) -> (i64, u32) {
        (source.pool, source.hash & (u32::MAX >> (u32::BITS - self.hash_bits)))
    }

    /// Bytes of a hash.
    fn hash_len(&self) -> usize {
        self.hash_bits.div_ceil(8) as usize
    }
}

impl Encode for HashRefs {
    fn encode(&self, w: &mut Writer) {
        let mut body = Vec::new();
        varint::put(&mut body, self.total);
        varint::put(&mut body, self.hash_bits.into());
        varint::put(&mut body, self.counts.len() as u64);
        for ((pool, hash), count) in &self.counts {
            put_pool(&mut body, *pool);
            body.extend_from_slice(&hash.to_le_bytes()[..self.hash_len()]);
            varint::put(&mut body, *count);
        }
        w.envelope(1, 1, |w| w.raw(&body));
    }
}

impl Decode for HashRefs {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("chunk_refs_by_hash_t", 1, |r, _| {
            let total = varint::take(r)?;
            let hash_bits = varint::take_u32(r, "bits of a hash")?;
            if !(1..=u32::BITS).contains(&hash_bits) {
                return Err(r.invalid("bits of a hash", hash_bits));
            }
            let mut refs = HashRefs { total, hash_bits, counts: BTreeMap::new() };
            for _ in 0..varint::take(r)? {
                let pool = take_pool(r)?;
                let mut hash = [0; 4];
                hash[..refs.hash_len()].copy_from_slice(r.take("hash", refs.hash_len())?);
                refs.counts.insert((pool, u32::from_le_bytes(hash)), varint::take(r)?);
            }
            Ok(refs)
        })
    }
}

/// `chunk_refs_by_pool_t`: how many references come from a pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolRefs {
    pub total: u64,
    pub counts: BTreeMap<i64, u64>,
}

impl Encode for PoolRefs {
    fn encode(&self, w: &mut Writer) {
        let mut body = Vec::new();
        varint::put(&mut body, self.total);
        varint::put(&mut body, self.counts.len() as u64);
        for (pool, count) in &self.counts {
            put_pool(&mut body, *pool);
            varint::put(&mut body, *count);
        }
        w.envelope(1, 1, |w| w.raw(&body));
    }
}

impl Decode for PoolRefs {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("chunk_refs_by_pool_t", 1, |r, _| {
            let mut refs = PoolRefs { total: varint::take(r)?, counts: BTreeMap::new() };
            for _ in 0..varint::take(r)? {
                let pool = take_pool(r)?;
                refs.counts.insert(pool, varint::take(r)?);
            }
            Ok(refs)
        })
    }
}

/// `chunk_refs_count_t`: the number of references alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CountRefs {
    pub total: u64,
}

/// A signed number as Ceph's `denc_signed_varint` writes it: the sign in the lowest bit, the magnitude above it. (The
/// codec's own signed numbers are shoal's, with another order of the negative ones.)
fn put_pool(out: &mut Vec<u8>, pool: i64) {
    let magnitude = pool.unsigned_abs();
    let first = u8::from(pool < 0) | ((magnitude & 0x3f) as u8) << 1;
    match magnitude >> 6 {
        0 => out.push(first),
        rest => {
            out.push(first | 0x80);
            varint::put(out, rest);
        }
    }
}

fn take_pool(r: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let first = r.u8()?;
    let rest = if first & 0x80 == 0 { 0 } else { varint::take(r)? };
    if rest > u64::MAX >> 6 {
        return Err(r.invalid("pool of chunk references", rest));
    }
    let magnitude = (rest << 6 | u64::from(first >> 1 & 0x3f)) as i64;
    Ok(if first & 1 == 0 { magnitude } else { magnitude.wrapping_neg() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Features;

    #[test]
    fn pool_numbers_carry_their_sign_in_the_lowest_bit() {
        let pools: [(i64, &[u8]); 7] = [
            (0, &[0]),
            (1, &[2]),
            (-1, &[3]),
            (63, &[0x7e]),
            (64, &[0x80, 1]),
            (-64, &[0x81, 1]),
            (i64::MIN, &[0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]),
        ];
        for (pool, bytes) in pools {
            let mut written = Vec::new();
            put_pool(&mut written, pool);
            assert_eq!(written, bytes, "{pool}");
            assert_eq!(take_pool(&mut Reader::new(bytes)), Ok(pool));
        }
    }

    /// Bytes drawn by hand: the corpus has none with negative pools or few bits.
    #[test]
    fn hash_of_few_bits_takes_few_bytes() {
        let refs = HashRefs { total: 300, hash_bits: 9, counts: [((2, 0x1ff), 299), ((-1, 0), 1)].into() };
        let bytes = [1, 1, 13, 0, 0, 0, 0xac, 2, 9, 2, 3, 0, 0, 1, 4, 0xff, 1, 0xab, 2];
        assert_eq!(refs.to_vec(Features::NONE), bytes);
        assert_eq!(codec::decode_exact(&bytes), Ok(refs.clone()));
        let object = HObject { pool: 2, hash: 0xffff_ffff, ..HObject::min() };
        assert_eq!(refs.key(&object), (2, 0x1ff));
    }

    #[test]
    fn foreign_kinds_and_widths_are_refused() {
        let of_kind = |kind: u8, body: &[u8]| {
            let mut w = Writer::new(Features::NONE);
            w.envelope(1, 1, |w| {
                w.u8(kind);
                w.envelope(1, 1, |w| w.raw(body));
            });
            codec::decode_exact::<ChunkRefs>(&w.into_vec())
        };
        assert!(of_kind(BY_POOL, &[0, 0]).is_ok());
        assert!(of_kind(3, &[0, 0]).is_err(), "a kind that stock names and never writes");
        assert!(of_kind(BY_HASH, &[0, 32, 0]).is_ok());
        assert!(of_kind(BY_HASH, &[0, 33, 0]).is_err());
        assert!(of_kind(BY_HASH, &[0, 0, 0]).is_err());
        assert!(of_kind(BY_HASH, &[0, 32, 0xff, 0xff, 0xff, 0xff, 0xf]).is_err(), "more than there is");
    }
}
