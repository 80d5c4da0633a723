//! The record of a collection: the places of its objects in the index.
//!
//! Keys of objects begin with an *area*, a number, not with the collection: a split gives the child a range of hashes of
//! its parent's area, and moves no key. A collection is a list of segments that covers all (reversed) hashes, each with
//! the area of its objects. A new collection has a new area. A split gives its source a new, empty area for the range that
//! it loses.
//!
//! Within an area keys are ordered by pool before hash, as objects are, and a listing visits all pools that the collection
//! ever had objects of: nearly always one.

use crate::varint;
use codec::{DecodeError, Reader};
use smallvec::SmallVec;

/// Version 2 adds flags and the number of moves; a collection that never moved is written as version 1.
const VERSION: u8 = 1;
const VERSION_MOVED: u8 = 2;

/// Flag of version 2.
const ARRIVING: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionRecord {
    pub split_bits: u8,
    /// Ascending by first reversed hash; the first is 0.
    pub segments: SmallVec<[Segment; 2]>,
    /// Pools of all objects ever created here, ascending.
    pub pools: SmallVec<[i64; 1]>,
    /// See [`store::Placed`].
    pub moves: u32,
    pub arriving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub first: u32,
    pub area: u64,
}

/// Reversed hashes `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashRange {
    pub first: u32,
    pub last: u32,
}

impl HashRange {
    pub const ALL: HashRange = HashRange { first: 0, last: u32::MAX };

    /// Range of the hashes whose low `split_bits` bits are `seed`; `None` if there is no such hash.
    pub fn of_split(split_bits: u8, seed: u32) -> Option<HashRange> {
        let bits = split_bits.min(32) as u32;
        if bits < 32 && seed >> bits != 0 {
            return None;
        }
        let first = seed.reverse_bits();
        let span = if bits == 0 { u32::MAX } else { ((1u64 << (32 - bits)) - 1) as u32 };
        Some(HashRange { first, last: first + span })
    }

    fn intersect(self, other: HashRange) -> Option<HashRange> {
        let out = HashRange { first: self.first.max(other.first), last: self.last.min(other.last) };
        (out.first <= out.last).then_some(out)
    }
}

impl CollectionRecord {
    pub fn new(split_bits: u8, area: u64) -> CollectionRecord {
        CollectionRecord {
            split_bits,
            segments: smallvec::smallvec![Segment { first: 0, area }],
            pools: SmallVec::new(),
            moves: 0,
            arriving: false,
        }
    }

    pub fn area_of(&self, reversed_hash: u32) -> u64 {
        let after = self.segments.partition_point(|s| s.first <= reversed_hash);
        self.segments[after - 1].area
    }

    /// The segments of `range` with their areas, ascending.
    pub fn areas(&self, range: HashRange) -> impl Iterator<Item = (HashRange, u64)> + '_ {
        (0..self.segments.len()).filter_map(move |i| {
            let last = self.segments.get(i + 1).map_or(u32::MAX, |next| next.first - 1);
            let own = HashRange { first: self.segments[i].first, last };
            own.intersect(range).map(|part| (part, self.segments[i].area))
        })
    }

    /// Changes the area of `range`.
    pub fn put_area(&mut self, range: HashRange, area: u64) {
        let mut out: SmallVec<[Segment; 2]> = SmallVec::new();
        let mut push = |segment: Segment| {
            if out.last().is_none_or(|last: &Segment| last.area != segment.area) {
                out.push(segment);
            }
        };
        let before = range.first.checked_sub(1).map(|last| HashRange { first: 0, last });
        let after = range.last.checked_add(1).map(|first| HashRange { first, last: u32::MAX });
        for (part, area) in before.into_iter().flat_map(|r| self.areas(r)) {
            push(Segment { first: part.first, area });
        }
        push(Segment { first: range.first, area });
        for (part, area) in after.into_iter().flat_map(|r| self.areas(r)) {
            push(Segment { first: part.first, area });
        }
        self.segments = out;
    }

    /// Adds a pool. Returns true if it is new.
    pub fn add_pool(&mut self, pool: i64) -> bool {
        match self.pools.binary_search(&pool) {
            Ok(_) => false,
            Err(at) => {
                self.pools.insert(at, pool);
                true
            }
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let has_moved = self.moves > 0 || self.arriving;
        let mut out = vec![if has_moved { VERSION_MOVED } else { VERSION }, self.split_bits];
        if has_moved {
            out.push(if self.arriving { ARRIVING } else { 0 });
            varint::put(&mut out, self.moves.into());
        }
        varint::put(&mut out, self.segments.len() as u64);
        for segment in &self.segments {
            out.extend_from_slice(&segment.first.to_le_bytes());
            varint::put(&mut out, segment.area);
        }
        for pool in &self.pools {
            out.extend_from_slice(&pool.to_le_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<CollectionRecord, DecodeError> {
        let mut r = Reader::new(bytes);
        let version = r.u8()?;
        if !(VERSION..=VERSION_MOVED).contains(&version) {
            return Err(DecodeError::Incompatible {
                what: "collection",
                compat: version,
                supported: VERSION_MOVED,
            });
        }
        let split_bits = r.u8()?;
        let (mut arriving, mut moves) = (false, 0);
        if version == VERSION_MOVED {
            let offset = r.offset();
            let flags = r.u8()?;
            if flags & !ARRIVING != 0 {
                return Err(DecodeError::Invalid { what: "collection flags", value: flags.into(), offset });
            }
            arriving = flags == ARRIVING;
            let offset = r.offset();
            let value = varint::take(&mut r)?;
            moves =
                u32::try_from(value).map_err(|_| DecodeError::Invalid { what: "moves", value, offset })?;
        }
        let count = varint::take(&mut r)?;
        let mut segments: SmallVec<[Segment; 2]> = SmallVec::new();
        for _ in 0..count {
            let offset = r.offset();
            let segment = Segment { first: r.u32()?, area: varint::take(&mut r)? };
            let in_order = match segments.last() {
                None => segment.first == 0,
                Some(last) => last.first < segment.first,
            };
            if !in_order {
                return Err(DecodeError::Invalid { what: "segment", value: segment.first as u64, offset });
            }
            segments.push(segment);
        }
        if segments.is_empty() {
            return Err(DecodeError::Invalid { what: "segments", value: 0, offset: 2 });
        }
        let mut pools = SmallVec::new();
        while !r.is_empty() {
            pools.push(r.i64()?);
        }
        Ok(CollectionRecord { split_bits, segments, pools, moves, arriving })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn split_range_has_hashes_that_end_in_its_seed() {
        for (bits, seed) in [(0, 0), (1, 0), (1, 1), (3, 5), (32, 77)] {
            let range = HashRange::of_split(bits, seed).unwrap();
            for hash in [0, 1, 5, 13, 77, 0x8000_0005, u32::MAX] {
                let mask = if bits == 32 { u32::MAX } else { (1 << bits) - 1 };
                let within = (range.first..=range.last).contains(&hash.reverse_bits());
                assert_eq!(within, hash & mask == seed, "{bits} {seed} {hash:x}");
            }
        }
        assert_eq!(HashRange::of_split(1, 2), None);
    }

    #[test]
    fn unmoved_collection_is_written_as_version_1() {
        let still = CollectionRecord::new(3, 100);
        assert_eq!(still.encode()[0], VERSION);
        for (moves, arriving) in [(1, true), (1, false), (u32::MAX, false), (0, true)] {
            let moved = CollectionRecord { moves, arriving, ..still.clone() };
            assert_eq!(moved.encode()[0], VERSION_MOVED);
            assert_eq!(CollectionRecord::decode(&moved.encode()), Ok(moved));
        }
    }

    proptest! {
        #[test]
        fn areas_cover_all_hashes_with_the_last_put(puts in prop::collection::vec((any::<u32>(), any::<u32>()), 0..8), probes in prop::collection::vec(any::<u32>(), 20)) {
            let mut collection = CollectionRecord::new(3, 100);
            for (i, (a, b)) in puts.iter().enumerate() {
                collection.put_area(HashRange { first: *a.min(b), last: *a.max(b) }, i as u64 % 3);
            }
            let probes = probes.into_iter().chain(puts.iter().flat_map(|(a, b)| [*a, *b]));
            for hash in probes {
                let expected = puts.iter().enumerate().rev()
                    .find(|(_, (a, b))| (*a.min(b)..=*a.max(b)).contains(&hash))
                    .map_or(100, |(i, _)| i as u64 % 3);
                prop_assert_eq!(collection.area_of(hash), expected);
            }
            let parts: Vec<_> = collection.areas(HashRange::ALL).collect();
            prop_assert_eq!(parts[0].0.first, 0);
            prop_assert_eq!(parts.last().unwrap().0.last, u32::MAX);
            prop_assert!(parts.windows(2).all(|w| w[0].0.last + 1 == w[1].0.first && w[0].1 != w[1].1));
            prop_assert_eq!(CollectionRecord::decode(&collection.encode()), Ok(collection));
        }
    }
}
