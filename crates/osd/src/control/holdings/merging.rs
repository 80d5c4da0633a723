//! Merges of PGs: the copies that a map joins, and the orders that join them.
//!
//! A map that lowers a pool's `pg_num` ends the source's entry at once. Its copy waits in [`Holdings::sources`] for the order,
//! and the merge in [`Births::merges`](super::super::births::Births), until the shard has made it durable. So a start after a
//! crash orders it again, and an OSD that was away carries out one merge after another, in the order of the maps. A copy tells
//! through which map it has its merges: an order for an earlier one changes nothing.
//!
//! The copies of the two PGs are on one core wherever both are whole: the primary agrees to a merge only then. A source on
//! another core, or without a copy of the target here, is removed.

use super::super::births::DueMerge;
use super::{Holding, Holdings, Orders, is_left, pgs_of};
use crate::control::MergeVersions;
use crate::pg::split_bits;
use crate::shard::{LoadedPg, PgOrder};
use machine::CoreId;
use placement::pg::ancestor_among;
use std::collections::BTreeMap;
use wire::types::{Epoch, OsdMap, PgId, PgPool, ShardId, SpgId};

/// A copy whose PG was merged with another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    core: CoreId,
    shard: ShardId,
}

impl Source {
    fn id(&self, pg: PgId) -> SpgId {
        SpgId { pg, shard: self.shard }
    }
}

impl Holdings {
    /// The map ends PGs: their copies become sources of merges.
    pub(super) fn end_merged(&mut self, before: &OsdMap, map: &OsdMap) {
        for (&id, row) in &map.pools {
            let Some(old) = before.pools.get(&id).filter(|old| row.pg_num < old.pg_num) else { continue };
            let versions = known_versions(id, old, row, before.epoch);
            let gone = PgId { pool: id, seed: row.pg_num }..=PgId { pool: id, seed: u32::MAX };
            let with_entry: Vec<PgId> = self.entries.range(gone).map(|(pg, _)| *pg).collect();
            for source in with_entry.iter().rev() {
                self.end_source(*source);
            }
            // Few: a map merges one PG, and a gap ends with all PGs of a pool.
            let targets = (row.pg_num..old.pg_num).rev().take(self.entries.len() + self.sources.len());
            for seed in targets {
                self.note_merge(PgId { pool: id, seed }, row.pg_num, map.epoch, versions);
            }
        }
    }

    /// Maps are missing, and PGs were merged in one of them. Which copies took part is not known.
    pub(super) fn end_merged_in_gap(&mut self, old: &OsdMap, map: &OsdMap) {
        for (&id, row) in &map.pools {
            let Some(before) = old.pools.get(&id) else { continue };
            if row.pg_num >= before.pg_num && row.last_pg_merge.ready_epoch < old.epoch {
                continue;
            }
            let epoch = row.last_pg_merge.ready_epoch + 1;
            let is_one = before.pg_num == row.pg_num + 1 && epoch > old.epoch;
            let last = PgPool { pg_num: row.pg_num + 1, ..PgPool::default() };
            if let Some(versions) = known_versions(id, &last, row, epoch - 1).filter(|_| is_one) {
                let source = PgId { pool: id, seed: row.pg_num };
                self.end_source(source);
                self.note_merge(source, row.pg_num, epoch, Some(versions));
                continue;
            }
            for pg in self.entries.range(pgs_of(id)).map(|(pg, _)| *pg).collect::<Vec<_>>() {
                if pg.seed >= row.pg_num {
                    self.end_source(pg);
                } else if self.entries[&pg].holding == Holding::Held {
                    let (epoch, pg_num) = (map.epoch, row.pg_num);
                    self.births.merges.push(DueMerge {
                        source: pg,
                        target: pg,
                        epoch,
                        pg_num,
                        versions: None,
                    });
                }
            }
        }
    }

    fn end_source(&mut self, source: PgId) {
        let Some(entry) = self.entries.remove(&source) else { return };
        self.unsaved.insert(source);
        if entry.holding == Holding::Held {
            self.sources.insert(source, Source { core: entry.core, shard: entry.shard });
        }
    }

    fn note_merge(&mut self, source: PgId, pg_num: u32, epoch: Epoch, versions: Option<MergeVersions>) {
        let target = PgId { seed: ancestor_among(source.seed, pg_num), ..source };
        let has_target = self.entries.contains_key(&target) || self.sources.contains_key(&target);
        if has_target || self.sources.contains_key(&source) {
            self.births.merges.push(DueMerge { source, target, epoch, pg_num, versions });
        }
    }

    /// A copy of a start that a merge ended, or that is left over from one. True if it is no PG's copy any more.
    pub(super) fn find_source(&mut self, core: CoreId, loaded: &LoadedPg, is_ahead: bool) -> bool {
        let pg = loaded.pg.pg;
        let mut merges = self.births.merges.iter();
        let is_due =
            merges.any(|due| due.source == pg && due.target != pg && loaded.merged_through < due.epoch);
        // A split whose map was lost made the others.
        let map = self.table.map().epoch;
        let is_left_over = is_ahead && loaded.created != 0 && loaded.split_at <= map;
        if is_due || is_left_over {
            self.sources.insert(pg, Source { core, shard: loaded.pg.shard });
        }
        is_due || is_left_over
    }

    /// Orders for merges of maps up to `map` that the shards have not been told, in the order of the maps. `Merge` orders of
    /// one core go before its other ones.
    pub(super) fn merge(&mut self, map: &OsdMap, orders: &mut Orders) {
        self.births.merges.retain(|due| map.pools.contains_key(&due.target.pool));
        for due in self.births.merges.clone() {
            if !self.told_merges.insert((due.target, due.epoch, due.source)) {
                continue;
            }
            self.order_merge(&due, orders);
        }
        let merges = &self.births.merges;
        self.told_merges.retain(|(target, epoch, source)| {
            merges.iter().any(|due| (due.target, due.epoch, due.source) == (*target, *epoch, *source))
        });
        for (source, Source { core, shard }) in std::mem::take(&mut self.sources) {
            self.remove_source(source, core, shard, orders);
        }
    }

    fn order_merge(&mut self, due: &DueMerge, orders: &mut Orders) {
        let is_held = |holding| matches!(holding, Holding::Held);
        let entry = self.entries.get(&due.target).filter(|entry| is_held(entry.holding));
        // Its bits are those of the split then.
        let is_split_since =
            entry.is_some_and(|entry| entry.merged_through >= due.epoch && entry.split_at > due.epoch);
        let place = entry.map(|entry| (entry.core, entry.id(due.target), Some(entry.split_bits)));
        // The target was the source of a later merge.
        let place = place.or_else(|| {
            let target = self.sources.get(&due.target)?;
            Some((target.core, target.id(due.target), None))
        });
        let Some((core, id, had_bits)) = place else {
            // A copy that is made from now on has the source's objects.
            self.births.merges.retain(|other| other != due);
            return;
        };
        let source = match due.source == due.target {
            true => None,
            false => self.sources.get(&due.source).copied(),
        };
        let joined = source.filter(|source| source.core == core);
        if joined.is_some() {
            self.sources.remove(&due.source);
        }
        let wanted = split_bits(due.target.seed, due.pg_num);
        let split_bits = match had_bits {
            Some(had) if is_split_since => had,
            Some(had) => had.min(wanted),
            None => wanted,
        };
        orders.entry(core).or_default().push(PgOrder::Merge {
            pg: id,
            source: joined.map(|source| source.id(due.source)),
            split_bits,
            epoch: due.epoch,
            versions: due.versions,
        });
        if let Some(entry) = self.entries.get_mut(&due.target) {
            entry.split_bits = split_bits;
            entry.merged_through = entry.merged_through.max(due.epoch);
            entry.is_told = false;
        }
    }

    /// The copy is of no use. No copy of its PG is made until it is gone.
    fn remove_source(&mut self, source: PgId, core: CoreId, shard: ShardId, orders: &mut Orders) {
        self.left.insert((source, core));
        orders.entry(core).or_default().push(PgOrder::Remove { pg: SpgId { pg: source, shard } });
    }

    /// The shard has made the merge durable.
    pub fn merged(&mut self, target: PgId, epoch: Epoch) {
        self.births.merges.retain(|due| due.target != target || due.epoch > epoch);
    }

    /// A removed copy was the source of a merge. True if a copy of its PG may be made now and could not before.
    pub(super) fn is_source_gone(&mut self, pg: PgId, core: CoreId) -> bool {
        self.left.remove(&(pg, core)) && !is_left(&self.left, pg)
    }

    /// Copies that the shards are removing do not count for a merge.
    pub fn has_left(&self, pg: PgId) -> bool {
        is_left(&self.left, pg)
    }

    /// Sources of pending merges that this OSD has a copy of.
    pub fn pending_sources(&self, map: &OsdMap) -> Vec<PgId> {
        let pending = map.pools.iter().filter(|(_, pool)| pool.pg_num_pending < pool.pg_num);
        let sources = pending.map(|(&id, pool)| PgId { pool: id, seed: pool.pg_num - 1 });
        let is_held = |pg: &PgId| self.entries.get(pg).is_some_and(|entry| entry.holding == Holding::Held);
        sources.filter(is_held).collect()
    }

    /// Cores of the source and the target of the merges that pools are about to need, where they differ.
    pub fn apart(&self, map: &OsdMap) -> BTreeMap<PgId, CoreId> {
        let shrinking = map.pools.iter().filter(|(_, pool)| pool.pg_num_target < pool.pg_num);
        let mut out = BTreeMap::new();
        for (&id, pool) in shrinking {
            // The target of another merge does not move before that.
            let half = 1 << (pool.pg_num - 1).checked_ilog2().unwrap_or(0);
            let least = pool.pg_num_target.max(half);
            let going = PgId { pool: id, seed: least }..=PgId { pool: id, seed: u32::MAX };
            for (source, entry) in self.entries.range(going) {
                let target = PgId { seed: ancestor_among(source.seed, source.seed), ..*source };
                let held = |entry: &&super::Entry| entry.holding == Holding::Held;
                let Some(other) = self.entries.get(&target).filter(held) else { continue };
                if held(&entry) && entry.core != other.core {
                    out.insert(*source, other.core);
                }
            }
        }
        out
    }
}

/// The versions of the merge that led from `old` to `row`, if it is the only one, with the map after `before`.
fn known_versions(pool: i64, old: &PgPool, row: &PgPool, before: Epoch) -> Option<MergeVersions> {
    let merge = &row.last_pg_merge;
    let is_it = old.pg_num == row.pg_num + 1
        && merge.source == PgId { pool, seed: row.pg_num }
        && merge.ready_epoch == before;
    is_it.then_some(MergeVersions { source: merge.source_version, target: merge.target_version })
}
