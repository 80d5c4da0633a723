//! The placement group of an object, and the input of CRUSH for a placement group.

use crate::crush::hash::hash2;
use crate::object_hash::{linux_dcache, rjenkins};
use wire::types::{PgId, PgPool, PoolFlags};

/// Separates namespace and name in the hashed bytes; no namespace may hold it.
const NAMESPACE_END: u8 = 0x1f;

/// The 32 bits that place an object of a pool. A key, where there is one, is hashed instead of the name.
pub fn hash_of(pool: &PgPool, name: &[u8], key: &[u8], namespace: &[u8]) -> u32 {
    let placed_by = if key.is_empty() { name } else { key };
    let hash = if pool.object_hash == PgPool::HASH_RJENKINS { rjenkins } else { linux_dcache };
    if namespace.is_empty() {
        return hash(placed_by);
    }
    let mut joined = Vec::with_capacity(namespace.len() + 1 + placed_by.len());
    joined.extend_from_slice(namespace);
    joined.push(NAMESPACE_END);
    joined.extend_from_slice(placed_by);
    hash(&joined)
}

/// The placement group of an object; `pool` is the pool's number and what the map says of it.
pub fn pg_of(pool: (i64, &PgPool), name: &[u8], key: &[u8], namespace: &[u8]) -> PgId {
    let (number, pool) = pool;
    PgId { pool: number, seed: seed_of(pool, hash_of(pool, name, key, namespace)) }
}

/// The placement group's seed for an object's hash.
pub fn seed_of(pool: &PgPool, hash: u32) -> u32 {
    stable_mod(hash, pool.pg_num, pool.pg_num_mask())
}

/// The seed of the group with whose number CRUSH places a group: its own, or while `pgp_num` is less than `pg_num` that
/// of an ancestor. Never above `seed`.
pub fn placement_ancestor(pool: &PgPool, seed: u32) -> u32 {
    stable_mod(seed, pool.pgp_num, pool.pgp_num_mask())
}

/// The number that CRUSH maps for a placement group. Several share one while `pgp_num` is less than `pg_num`.
pub fn placement_seed(pool: &PgPool, pg: PgId) -> u32 {
    let seed = placement_ancestor(pool, pg.seed);
    match pool.flags.has(PoolFlags::HASHPSPOOL) {
        true => hash2(seed, pg.pool as u32),
        // Old pools' groups of the same number overlap with a shift by the pools' distance.
        false => seed.wrapping_add(pg.pool as u32),
    }
}

/// `x` modulo `n` such that a larger `n` moves as few values as possible; `mask` is one less than the power of two that
/// covers `n` (`ceph_stable_mod`).
pub fn stable_mod(x: u32, n: u32, mask: u32) -> u32 {
    if x & mask < n { x & mask } else { x & (mask >> 1) }
}

/// The seed of the group that has the objects of `seed` in a pool of `pg_num` groups.
pub fn ancestor_among(seed: u32, pg_num: u32) -> u32 {
    let mask = match pg_num.saturating_sub(1) {
        0 => 0,
        last => u32::MAX >> last.leading_zeros(),
    };
    stable_mod(seed, pg_num, mask)
}

/// The part of a placement group in the merge that its pool prepares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergePart {
    /// The group goes, and its objects become those of `target`.
    Source { target: u32 },
    /// The group takes the objects of `source` over.
    Target { source: u32 },
}

/// The part of a group in the pending merge of its pool. A pool merges its last group, one at a time.
pub fn merge_part(pg_num: u32, pg_num_pending: u32, seed: u32) -> Option<MergePart> {
    let source = pg_num_pending;
    if source == 0 || source.checked_add(1) != Some(pg_num) {
        return None;
    }
    let target = ancestor_among(source, source);
    match seed {
        _ if seed == source => Some(MergePart::Source { target }),
        _ if seed == target => Some(MergePart::Target { source }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_reverses_the_split_that_made_its_source() {
        for source in 1..40u32 {
            let (target, part) =
                (ancestor_among(source, source), |seed| merge_part(source + 1, source, seed));
            assert_eq!(part(source), Some(MergePart::Source { target }));
            assert_eq!(part(target), Some(MergePart::Target { source }));
            assert!((0..source).filter(|seed| *seed != target).all(|seed| part(seed).is_none()));
            let mask = PgPool { pg_num: source + 1, ..PgPool::default() }.pg_num_mask();
            for hash in 0..256 {
                let before = stable_mod(hash, source + 1, mask);
                let after = ancestor_among(hash, source);
                assert_eq!(after, if before == source { target } else { before }, "{hash} of {source}");
            }
        }
        for (pg_num, pg_num_pending) in [(4, 4), (1, 0), (0, 0), (8, 4), (4, 5)] {
            let is_none = |seed| merge_part(pg_num, pg_num_pending, seed).is_none();
            assert!((0..8).all(is_none), "{pg_num} {pg_num_pending}");
        }
    }

    #[test]
    fn growth_splits_one_group_and_moves_no_other() {
        for (few, many, few_mask, many_mask) in [(12, 13, 15, 15), (8, 12, 7, 15), (16, 17, 15, 31)] {
            for x in 0..1000 {
                let (before, after) = (stable_mod(x, few, few_mask), stable_mod(x, many, many_mask));
                assert!(before < few && after < many);
                assert!(before == after || after >= few, "{x}: {before} to {after}");
            }
        }
    }

    #[test]
    fn namespaces_and_keys_place() {
        let pool = PgPool { object_hash: PgPool::HASH_RJENKINS, pg_num: 64, ..PgPool::default() };
        assert_eq!(hash_of(&pool, b"foo", b"", b""), 0x7fc1_f406);
        assert_eq!(hash_of(&pool, b"bar", b"foo", b""), 0x7fc1_f406);
        assert_eq!(hash_of(&pool, b"foo", b"", b"ns"), rjenkins(b"ns\x1ffoo"));
        assert_eq!(pg_of((3, &pool), b"foo", b"", b""), PgId { pool: 3, seed: 0x06 });
    }
}
