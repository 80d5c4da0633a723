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

#[cfg(test)]
mod tests {
    use super::*;

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
