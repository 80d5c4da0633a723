//! The OSDMap and its past: enough epochs that a client or OSD that was away can catch up step by step.
//!
//! Steps are kept from the floor on, which the leader raises as PGs and OSDs stop needing old maps. Whole maps are kept
//! only every [`BASE_EVERY`] epochs and at the oldest; any other is made from the nearest base before it. (A whole map
//! for each epoch, as stock keeps on disk, would be 500 copies of the largest value there is.)

use crate::proposal::{Metadata, SealedStep};
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::types::{Epoch, IntervalSet, OsdMap, OsdMapIncremental, PgId, PoolId, UTime};

const BASE_EVERY: u32 = 64;

#[derive(Clone, Debug, Default)]
pub struct OsdHistory {
    map: Arc<OsdMap>,
    /// By the epoch that each leads to.
    steps: BTreeMap<Epoch, Arc<OsdMapIncremental>>,
    bases: BTreeMap<Epoch, Arc<OsdMap>>,
    /// Metadata of each OSD from its last boot.
    pub metadata: BTreeMap<i32, Metadata>,
    /// PGs of new pools that no OSD has made yet: since when.
    pub creating: BTreeMap<PgId, (Epoch, UTime)>,
    /// Snapshots of each pool that are removed and that every PG has trimmed, for ever: the map forgets them. With them the numbers
    /// that removals have taken, which were no snapshots, so that the ranges stay few.
    pub purged_snaps: BTreeMap<PoolId, IntervalSet>,
}

impl OsdHistory {
    /// A history whose oldest map is this one.
    pub fn starting_with(map: Arc<OsdMap>) -> OsdHistory {
        OsdHistory { bases: [(map.epoch, map.clone())].into(), map, ..OsdHistory::default() }
    }

    pub fn map(&self) -> &OsdMap {
        &self.map
    }

    pub fn shared_map(&self) -> Arc<OsdMap> {
        self.map.clone()
    }

    /// The oldest epoch that can be had whole.
    pub fn oldest(&self) -> Epoch {
        self.bases.keys().next().copied().unwrap_or(0)
    }

    pub fn step_to(&self, epoch: Epoch) -> Option<&OsdMapIncremental> {
        self.steps.get(&epoch).map(|step| &**step)
    }

    /// The whole map of an epoch that is kept.
    pub fn at(&self, epoch: Epoch) -> Option<Arc<OsdMap>> {
        if epoch == self.map.epoch {
            return Some(self.map.clone());
        }
        let (base_epoch, base) = self.bases.range(..=epoch).next_back()?;
        let mut map = base.clone();
        for step in (*base_epoch + 1)..=epoch {
            map = Arc::new(map.apply(self.steps.get(&step)?).ok()?);
        }
        Some(map)
    }

    pub fn set_metadata(&mut self, osd: i32, metadata: Option<Metadata>) {
        match metadata {
            Some(metadata) => self.metadata.insert(osd, metadata),
            None => self.metadata.remove(&osd),
        };
    }

    /// A lost PG is to be made anew as of the newest epoch.
    pub fn create_again(&mut self, pg: PgId, at: UTime) {
        self.creating.insert(pg, (self.map.epoch, at));
    }

    /// # Panics
    /// When the step does not fit the map.
    pub fn apply(&mut self, sealed: &SealedStep) {
        let (step, next) = (sealed.step(), sealed.map_after(&self.map));
        for (pool, row) in &step.new_pools {
            if !self.map.pools.contains_key(pool) {
                let pgs = (0..row.pg_num).map(|seed| PgId { pool: *pool, seed });
                self.creating.extend(pgs.map(|pg| (pg, (step.epoch, step.modified))));
            }
        }
        self.remember_purged(step);
        self.map = next;
        let map = &self.map;
        self.purged_snaps.retain(|pool, _| map.pools.contains_key(pool));
        self.creating.retain(|pg, _| map.pools.get(&pg.pool).is_some_and(|pool| pg.seed < pool.pg_num));
        self.steps.insert(step.epoch, step.clone());
        if self.bases.is_empty() || step.epoch.is_multiple_of(BASE_EVERY) {
            self.bases.insert(step.epoch, self.map.clone());
        }
    }

    fn remember_purged(&mut self, step: &OsdMapIncremental) {
        for (pool, snaps) in &step.new_purged_snaps {
            let purged = self.purged_snaps.entry(*pool).or_default();
            snaps.iter().for_each(|(start, len)| purged.insert(start, len));
        }
        for (pool, removed) in &step.new_removed_snaps {
            let (Some(before), Some(after)) = (self.map.pools.get(pool), step.new_pools.get(pool)) else {
                continue;
            };
            let taken = after.snap_seq.0;
            if after.snap_seq > before.snap_seq && !removed.contains(taken) {
                self.purged_snaps.entry(*pool).or_default().insert(taken, 1);
            }
        }
    }

    /// The snapshot was removed, whether or not it is trimmed.
    pub fn is_removed_snap(&self, pool: PoolId, snap: u64) -> bool {
        let is_in =
            |sets: &BTreeMap<PoolId, IntervalSet>| sets.get(&pool).is_some_and(|set| set.contains(snap));
        is_in(&self.map.removed_snaps_queue) || is_in(&self.purged_snaps)
    }

    /// True if a whole base's worth of epochs lies before `floor`.
    pub fn can_trim(&self, floor: Epoch) -> bool {
        self.bases.range(..=floor).next_back().is_some_and(|(base, _)| *base > self.oldest())
    }

    /// Forgets epochs before `floor`, a whole base's worth at a time.
    pub fn trim(&mut self, floor: Epoch) {
        let Some((&first, _)) = self.bases.range(..=floor).next_back() else { return };
        self.bases = self.bases.split_off(&first);
        self.steps = self.steps.split_off(&(first + 1));
    }
}

impl Encode for OsdHistory {
    fn encode(&self, w: &mut Writer) {
        let blob = |w: &mut Writer, map: &OsdMap| w.blob(&map.to_vec(map.encoding_features()));
        w.envelope(2, 1, |w| {
            blob(w, &self.map);
            w.count(self.steps.len());
            for (epoch, step) in &self.steps {
                w.u32(*epoch);
                w.blob(&step.to_vec(Features(step.encode_features)));
            }
            w.count(self.bases.len());
            for (epoch, map) in &self.bases {
                w.u32(*epoch);
                blob(w, map);
            }
            w.put(&self.metadata);
            w.put(&self.creating);
            w.put(&self.purged_snaps);
        });
    }
}

impl Decode for OsdHistory {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        fn blob<T: Decode>(r: &mut Reader<'_>) -> Result<Arc<T>, DecodeError> {
            codec::decode_exact(r.blob()?).map(Arc::new)
        }
        r.envelope("OSDMap history", 2, |r, version| {
            let mut history = OsdHistory { map: blob(r)?, ..OsdHistory::default() };
            for _ in 0..r.count("steps", 8)? {
                history.steps.insert(r.u32()?, blob(r)?);
            }
            for _ in 0..r.count("bases", 8)? {
                history.bases.insert(r.u32()?, blob(r)?);
            }
            history.metadata = r.get()?;
            history.creating = r.get()?;
            if version >= 2 {
                history.purged_snaps = r.get()?;
            }
            Ok(history)
        })
    }
}
