//! The balancer ends: its exceptions never return to an earlier state while nothing else changes.
//!
//! Each move of the balancer lowers the unevenness, so the same exceptions twice mean that it takes back what it did, and copies data
//! for ever. [`settled`](super::settled) sees this in its last seconds alone, and only of a balancer that plans every few seconds.

use std::collections::BTreeMap;
use wire::types::{Epoch, OsdMap, OsdState, PgId, PoolId};

/// Decisions of the balancer: items of upmaps, and primaries.
type Exceptions = (BTreeMap<PgId, Vec<(i32, i32)>>, BTreeMap<PgId, i32>);

/// Parts of the map on which a decision of the balancer depends.
#[derive(Clone, Debug, PartialEq)]
struct Ground {
    osds: Vec<(OsdState, u32)>,
    primary_affinity: Option<Vec<u32>>,
    /// `pg_num`, `pgp_num` and size of each pool.
    pools: Vec<(PoolId, u32, u32, u8)>,
    upmaps: BTreeMap<PgId, Vec<i32>>,
    crush_version: u32,
}

impl Ground {
    fn of(map: &OsdMap) -> Ground {
        let pools = map.pools.iter().map(|(id, pool)| (*id, pool.pg_num, pool.pgp_num, pool.size));
        Ground {
            osds: map.osds.iter().map(|row| (row.state, row.weight)).collect(),
            primary_affinity: map.primary_affinity.clone(),
            pools: pools.collect(),
            upmaps: map.pg_upmap.clone(),
            crush_version: map.crush_version,
        }
    }
}

/// The exceptions of all maps since anything else changed.
#[derive(Debug, Default)]
pub struct LeftAlone {
    newest: Epoch,
    ground: Option<Ground>,
    seen: Vec<Exceptions>,
}

impl LeftAlone {
    /// An administrator sends a command: it may change the balancer's mode.
    pub fn begin_anew(&mut self) {
        self.ground = None;
    }

    /// Looks at a map. Older maps than the newest so far are left out: a monitor may be behind.
    pub fn look(&mut self, map: &OsdMap) -> Result<(), String> {
        if map.epoch <= self.newest {
            return Ok(());
        }
        self.newest = map.epoch;
        let (ground, found) = (Ground::of(map), (map.pg_upmap_items.clone(), map.pg_upmap_primaries.clone()));
        if self.ground.as_ref() != Some(&ground) {
            (self.ground, self.seen) = (Some(ground), vec![found]);
            return Ok(());
        }
        if self.seen.last() == Some(&found) {
            return Ok(());
        }
        if let Some(earlier) = self.seen.iter().position(|earlier| *earlier == found) {
            let changes = self.seen.len() - earlier;
            return Err(format!(
                "epoch {}: after {changes} changes of the balancer and none of the cluster, its exceptions are those of before: {found:?}",
                map.epoch
            ));
        }
        self.seen.push(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps in which PG 1.N has an exception or none.
    fn look_at(steps: &[&[u32]], change: impl Fn(usize, &mut OsdMap)) -> Result<(), String> {
        let mut checker = LeftAlone::default();
        steps.iter().enumerate().try_for_each(|(at, seeds)| {
            let mut map = OsdMap { epoch: 1 + at as Epoch, ..OsdMap::default() };
            map.pg_upmap_items =
                seeds.iter().map(|seed| (PgId { pool: 1, seed: *seed }, vec![(0, 1)])).collect();
            change(at, &mut map);
            checker.look(&map)
        })
    }

    #[test]
    fn exceptions_that_return_are_reported() {
        let same = |_: usize, _: &mut OsdMap| {};
        assert_eq!(look_at(&[&[], &[0], &[0], &[0, 1], &[1]], same), Ok(()));
        let found = look_at(&[&[], &[0], &[0, 1], &[1], &[]], same).unwrap_err();
        assert!(found.contains("epoch 5: after 4 changes"), "{found}");
    }

    #[test]
    fn exceptions_may_return_after_another_change() {
        let reweighted = |at: usize, map: &mut OsdMap| map.crush_version = u32::from(at >= 2);
        assert_eq!(look_at(&[&[], &[0], &[]], reweighted), Ok(()));
        let older = |at: usize, map: &mut OsdMap| map.epoch = if at == 2 { 1 } else { map.epoch };
        assert_eq!(look_at(&[&[], &[0], &[]], older), Ok(()), "a monitor that is behind");
    }
}
