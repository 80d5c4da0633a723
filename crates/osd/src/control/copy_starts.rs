//! Copies of PGs that began again: an operator removed a copy from the stopped OSD or imported one, or a copy that could not be
//! read was removed.
//!
//! The store is older than such a copy. Its OSD may have been a member of intervals whose writes the present copy lacks, so
//! it must not report that the store has held the PG all the time (see [`wire::types::PgCopyInfo::store_since`]).

use crate::pg::low_bits;
use bytes::Bytes;
use codec::{Decode, Encode, Features};
use std::collections::BTreeMap;
use wire::types::{Epoch, OsdMap, PgId};

/// The copy of a PG on this OSD began again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CopyStart {
    /// The first map of which the OSD can have served an interval with this copy.
    pub since: Epoch,
    /// Low bits of the hash that all objects of the PG shared then.
    pub split_bits: u8,
}

/// By PG. Mostly empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyStarts(pub BTreeMap<PgId, CopyStart>);

const START: u8 = b'c';

impl CopyStart {
    /// The record's key: `c`, pool (i64, big-endian), seed (u32, big-endian).
    pub fn key(pg: PgId) -> Bytes {
        [&[START][..], &pg.pool.to_be_bytes(), &pg.seed.to_be_bytes()].concat().into()
    }

    /// The PG of a record's key. `None`: it is no record's.
    pub fn pg_of(key: &[u8]) -> Option<PgId> {
        let (kind, rest) = key.split_first()?;
        let (pool, seed) = rest.split_first_chunk::<8>()?;
        let seed = <[u8; 4]>::try_from(seed).ok().filter(|_| *kind == START)?;
        Some(PgId { pool: i64::from_be_bytes(*pool), seed: u32::from_be_bytes(seed) })
    }

    pub fn to_bytes(self) -> Bytes {
        self.to_vec(Features::NONE).into()
    }
}

impl CopyStarts {
    /// The map since which the store holds this PG, or the one that it was split from. `store_since`: since which it holds
    /// the others, 0 if its OSD was never up.
    pub fn since(&self, pg: PgId, store_since: Epoch) -> Epoch {
        if self.0.is_empty() || store_since == 0 {
            return store_since;
        }
        let of_pool = self.0.range(PgId { seed: 0, ..pg }..=PgId { seed: u32::MAX, ..pg });
        let has_it = |(from, start): &(&PgId, &CopyStart)| pg.seed & low_bits(start.split_bits) == from.seed;
        of_pool.filter(has_it).map(|(_, start)| start.since).fold(store_since, Epoch::max)
    }

    /// Adds a start. Returns it, and the starts of children that have left the PG since its last start: these go on from there.
    pub fn begin(&mut self, pg: PgId, start: CopyStart) -> Vec<(PgId, CopyStart)> {
        let mut begun = Vec::new();
        if let Some(old) = self.0.get(&pg).filter(|old| old.split_bits < start.split_bits) {
            let before = CopyStart { split_bits: start.split_bits, ..*old };
            let children = 1..1u32 << (start.split_bits - old.split_bits).min(31);
            let seed = |child: u32| u32::checked_shl(child, old.split_bits.into()).map(|high| high | pg.seed);
            begun.extend(children.filter_map(seed).map(|seed| (PgId { seed, ..pg }, before)));
            begun.retain(|(child, _)| !self.0.contains_key(child));
        }
        begun.push((pg, start));
        self.0.extend(begun.iter().copied());
        begun
    }

    /// Forgets the PGs of deleted pools, and returns them.
    pub fn forget_deleted(&mut self, map: &OsdMap) -> Vec<PgId> {
        self.0.extract_if(.., |pg, _| !map.pools.contains_key(&pg.pool)).map(|(pg, _)| pg).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pg(seed: u32) -> PgId {
        PgId { pool: 3, seed }
    }

    #[test]
    fn start_holds_for_the_pg_and_its_later_children() {
        let start = CopyStart { since: 40, split_bits: 2 };
        let starts = CopyStarts([(pg(1), start)].into());
        for (seed, since) in [(1, 40), (5, 40), (9, 40), (2, 7), (3, 7), (0, 7)] {
            assert_eq!(starts.since(pg(seed), 7), since, "3.{seed:x}");
        }
        assert_eq!(starts.since(PgId { pool: 4, seed: 1 }, 7), 7);
        assert_eq!(starts.since(pg(1), 50), 50, "the whole store began later");
        assert_eq!(starts.since(pg(1), 0), 0, "an OSD that was never up has held nothing");
    }

    #[test]
    fn second_start_leaves_children_theirs() {
        let mut starts = CopyStarts([(pg(1), CopyStart { since: 40, split_bits: 2 })].into());
        // The PG was split into 1, 5, 9 and 13 since.
        let begun = starts.begin(pg(1), CopyStart { since: 90, split_bits: 4 });
        assert_eq!(begun.len(), 4);
        for (seed, since) in [(1, 90), (5, 40), (9, 40), (13, 40), (17, 90), (21, 40), (2, 7)] {
            assert_eq!(starts.since(pg(seed), 7), since, "3.{seed:x}");
        }
        // After a merge the copy has the objects of more hashes.
        assert_eq!(starts.begin(pg(1), CopyStart { since: 95, split_bits: 2 }).len(), 1);
        assert_eq!((starts.since(pg(5), 7), starts.since(pg(1), 7)), (95, 95));
    }

    #[test]
    fn starts_of_deleted_pools_are_forgotten() {
        let mut starts = CopyStarts([(pg(1), CopyStart::default())].into());
        let with_pool = OsdMap { pools: [(3, Default::default())].into(), ..OsdMap::default() };
        assert_eq!(starts.forget_deleted(&with_pool), []);
        assert_eq!(starts.forget_deleted(&OsdMap::default()), [pg(1)]);
        assert_eq!(starts, CopyStarts::default());
    }

    #[test]
    fn key_names_its_pg() {
        assert_eq!(CopyStart::pg_of(&CopyStart::key(pg(258))), Some(pg(258)));
        for key in [&b"c"[..], b"i12345678901", b"c1234567890", b"c1234567890123"] {
            assert_eq!(CopyStart::pg_of(key), None, "{key:?}");
        }
    }
}
