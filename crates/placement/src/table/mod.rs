//! The placement table: the OSDs of every PG of a cluster, carried from one OSDMap to the next.
//!
//! CRUSH is the expensive part of a placement, and it depends on little of a map. So the table holds CRUSH's answers
//! (`rows`) and computes the rest at each lookup: upmaps, states, affinities and temporary sets cost some 30 ns. A new
//! map is compared with the one before (`changes`), which gives three sets of PGs:
//!
//! - **CRUSH runs again** for all rows of a pool whose rule, size or part of the hierarchy changed, and for the rows
//!   that read the weight of an OSD whose weight changed.
//! - **Candidates** are PGs of rows that changed or that hold an OSD whose state or affinity changed, PGs whose
//!   exceptions changed or name such an OSD, and PGs that begin, end or move to another row.
//! - **Changed** are the candidates whose placement before and after differs. [`PlacementTable::advance`] returns them.
//!
//! The comparison is between two maps, not along an incremental, so epochs may be skipped. One pass over the rows finds
//! those that hold a changed OSD; an index from OSD to rows was rejected, because the pass takes half a millisecond
//! for 262,144 PGs and the index more memory than the rows.

mod changes;
mod rows;

use crate::osd_map::{Placement, pool_of, resolve};
use crate::pg::placement_ancestor;
use changes::OsdChanges;
use rows::{CrushRunner, PoolRows};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::types::{OsdMap, PgId, PgPool, PoolId};

/// The placement of every PG under one map.
///
/// Memory: 4 bytes for each place of a PG and 4 for the PG; 4 MiB for 262,144 PGs of size 3.
#[derive(Default)]
pub struct PlacementTable {
    map: Arc<OsdMap>,
    pools: BTreeMap<PoolId, PoolRows>,
    runner: CrushRunner,
    work: Work,
}

/// The work of one step from map to map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows that CRUSH computed.
    pub crush_runs: usize,
    /// PGs whose placements before and after were compared.
    pub candidates: usize,
}

impl PlacementTable {
    /// Follows to `next`, from whatever map was followed before. Returns the PGs whose placement differs between the two,
    /// in ascending order. A PG that one of the maps lacks has the empty placement there.
    pub fn advance(&mut self, next: &Arc<OsdMap>) -> Vec<PgId> {
        self.work = Work::default();
        let before = std::mem::replace(&mut self.map, next.clone());
        if Arc::ptr_eq(&before, next) {
            return Vec::new();
        }
        let osds = OsdChanges::between(&before, next);
        let mut step =
            Step { before: &before, next, osds: &osds, replaced: BTreeMap::new(), candidates: Vec::new() };
        changes::exceptions(&before, next, &osds, &mut step.candidates);
        let pools: BTreeSet<PoolId> = before.pools.keys().chain(next.pools.keys()).copied().collect();
        for pool in pools {
            step.advance_pool(pool, &mut self.pools, &mut self.runner, &mut self.work);
        }

        let Step { replaced, candidates: mut changed, .. } = step;
        changed.sort_unstable();
        changed.dedup();
        self.work.candidates = changed.len();
        let (mut old, mut new) = (Placement::default(), Placement::default());
        changed.retain(|pg| {
            let now = self.pools.get(&pg.pool);
            read(&before, replaced.get(&pg.pool).or(now), *pg, &mut old);
            read(next, now, *pg, &mut new);
            old != new
        });
        changed
    }

    /// The map that the table follows.
    pub fn map(&self) -> &Arc<OsdMap> {
        &self.map
    }

    /// The OSDs of a PG into `placement`; no OSD where there is no such PG.
    pub fn lookup(&self, pg: PgId, placement: &mut Placement) {
        read(&self.map, self.pools.get(&pg.pool), pg, placement);
    }

    /// The work of the last [`PlacementTable::advance`].
    pub fn work(&self) -> Work {
        self.work
    }

    /// Bytes of memory that the rows take.
    pub fn memory_bytes(&self) -> usize {
        self.pools.values().map(PoolRows::memory_bytes).sum()
    }
}

fn read(map: &OsdMap, rows: Option<&PoolRows>, pg: PgId, placement: &mut Placement) {
    placement.clear();
    let (Some(pool), Some(rows)) = (pool_of(map, pg), rows) else { return };
    placement.up.extend_from_slice(rows.row(placement_ancestor(pool, pg.seed)));
    resolve(map, pool, pg, placement);
}

/// A step between two maps, pool by pool.
struct Step<'a> {
    before: &'a OsdMap,
    next: &'a OsdMap,
    osds: &'a OsdChanges,
    /// The rows of `before`, of pools where rows changed.
    replaced: BTreeMap<PoolId, PoolRows>,
    candidates: Vec<PgId>,
}

impl Step<'_> {
    fn advance_pool(
        &mut self,
        id: PoolId,
        pools: &mut BTreeMap<PoolId, PoolRows>,
        runner: &mut CrushRunner,
        work: &mut Work,
    ) {
        let (before, next) = (self.before, self.next);
        let (old, new) = match (before.pools.get(&id), next.pools.get(&id)) {
            (None, None) => return,
            (Some(old), None) => {
                self.replaced.extend(pools.remove_entry(&id));
                return self.add_seeds(id, 0..old.pg_num);
            }
            (None, Some(new)) => {
                let rows = PoolRows::compute(next, id, new, runner);
                work.crush_runs += rows.count() as usize;
                pools.insert(id, rows);
                return self.add_seeds(id, 0..new.pg_num);
            }
            (Some(old), Some(new)) => (old, new),
        };
        let all = 0..old.pg_num.max(new.pg_num);
        if !changes::has_same_crush(before, next, id) {
            let rows = PoolRows::compute(next, id, new, runner);
            work.crush_runs += rows.count() as usize;
            self.replaced.extend(pools.insert(id, rows).map(|rows| (id, rows)));
            return self.add_seeds(id, all);
        }

        let rows = pools.get_mut(&id).expect("the pools of the map before have rows");
        let count = PoolRows::count_for(new);
        let (stale, mut touched) = rows.affected_by(self.osds, count);
        if !stale.is_empty() || count < rows.count() {
            self.replaced.insert(id, rows.clone());
        }
        work.crush_runs += stale.len() + count.saturating_sub(rows.count()) as usize;
        touched.extend(stale.into_iter().filter(|row| rows.remap(*row, next, id, new, runner)));
        rows.resize(next, id, new, runner);

        if !changes::resolves_alike(old, new) {
            return self.add_seeds(id, all);
        }
        self.add_seeds_of(id, old, new, &touched);
        self.add_seeds(id, old.pg_num.min(new.pg_num)..all.end);
    }

    fn add_seeds(&mut self, pool: PoolId, seeds: std::ops::Range<u32>) {
        self.candidates.extend(seeds.map(|seed| PgId { pool, seed }));
    }

    /// Of the PGs in both maps those whose row is one of `rows`, or another one than before.
    fn add_seeds_of(&mut self, pool: PoolId, old: &PgPool, new: &PgPool, rows: &[u32]) {
        let seeds = 0..old.pg_num.min(new.pg_num);
        if old.pgp_num == new.pgp_num && new.pgp_num >= new.pg_num {
            // Each PG has a row of its own.
            let in_both = rows.iter().filter(|row| seeds.contains(row));
            return self.candidates.extend(in_both.map(|row| PgId { pool, seed: *row }));
        }
        if old.pgp_num == new.pgp_num && rows.is_empty() {
            return;
        }
        let mut is_touched = vec![false; PoolRows::count_for(new) as usize];
        rows.iter().for_each(|row| is_touched[*row as usize] = true);
        let is_candidate = |seed: &u32| {
            let row = placement_ancestor(new, *seed);
            is_touched[row as usize] || row != placement_ancestor(old, *seed)
        };
        self.candidates.extend(seeds.filter(is_candidate).map(|seed| PgId { pool, seed }));
    }
}
