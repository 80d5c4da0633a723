//! Since when pools are full, so that what clients sent before can be told from what they sent knowing it.

use mon_client::osd_maps::Step;
use std::collections::BTreeMap;
use wire::types::{Epoch, OsdMap, PoolFlags, PoolId};

/// Of pools that are full, or were while this OSD ran. (Who is connected to it has connected since.)
#[derive(Default)]
pub struct FullPools(BTreeMap<PoolId, FullPool>);

struct FullPool {
    is_full: bool,
    /// The first epoch of the last time.
    since: Epoch,
}

impl FullPools {
    /// Takes every map in order: a pool may have room in a single epoch. After skipped maps, a full pool counts as full since
    /// this one.
    pub fn note(&mut self, map: &OsdMap, step: Step) {
        self.0.retain(|id, _| map.pools.contains_key(id));
        for (id, pool) in &map.pools {
            let is_full = pool.flags.has(PoolFlags::FULL);
            if !is_full && !self.0.contains_key(id) {
                continue;
            }
            let known = self.0.entry(*id).or_insert(FullPool { is_full: false, since: 0 });
            if is_full && (!known.is_full || step != Step::Next) {
                known.since = map.epoch;
            }
            known.is_full = is_full;
        }
    }

    /// 0: it was never full.
    pub fn since(&self, pool: PoolId) -> Epoch {
        self.0.get(&pool).map_or(0, |pool| pool.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::PgPool;

    #[test]
    fn the_last_time_counts_and_lasts() {
        let mut pools = FullPools::default();
        let mut map = OsdMap::default();
        map.pools.insert(1, PgPool::default());
        let mut since = Vec::new();
        for (epoch, is_full) in [(3, false), (4, true), (5, true), (6, false), (7, false), (9, true)] {
            map.epoch = epoch;
            let flags = if is_full { PoolFlags(PoolFlags::FULL) } else { PoolFlags(0) };
            map.pools.get_mut(&1).unwrap().flags = flags;
            pools.note(&map, Step::Next);
            since.push(pools.since(1));
        }
        assert_eq!(since, [0, 4, 4, 4, 4, 9]);
        map.epoch = 12;
        pools.note(&map, Step::Jump);
        assert_eq!(pools.since(1), 12, "there may have been room in an epoch that was skipped");
        map.pools.clear();
        pools.note(&map, Step::Next);
        assert_eq!(pools.since(1), 0);
    }
}
