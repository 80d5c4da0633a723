//! The PGs of this OSD, and the orders that a new map gives to the shards.
//!
//! An entry exists for every PG whose copy is in a store shard and for every PG whose up or acting set has this OSD's number.
//! Each entry follows the PG's intervals map by map (see [`super::intervals`]). A shard hears of an interval when it begins
//! and after a start; peering decides there whether the PG is served. The map is the only source of orders: no statement of
//! another OSD creates a copy.
//!
//! **A birth** is a copy that begins empty and complete. This OSD followed the maps since the pool's creation, no interval
//! had a primary before, the first one with a primary has this OSD as a member, and the map meant this very store's life (see
//! [`super::history::Lineage`]). The record of the interval keeps that until the copy is durable, so that a crash in between
//! does not turn the birth into an incomplete copy.
//!
//! Each map costs work in proportion to what it changes and to the PGs of this OSD: the placements come from a
//! [`PlacementTable`], and the PGs that name this OSD are kept as a set.
//!
//! A split is durable a little later than the map that asks for it. So the split bits of the stored copy tell that one is
//! due, not the map before: a split that a crash interrupted is ordered again.

mod merging;
mod start;

use super::births::Births;
use super::intervals::{PgIntervals, RecordChanges, ancestor, interval, is_merge, is_new_interval, is_split};
use crate::Routes;
use crate::node::spread;
use crate::pg::split_bits;
use crate::planted::{self, PlantedBug};
use crate::shard::{Interval, LoadedPg, PgOrder};
use machine::CoreId;
use placement::{Placement, PlacementTable};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::types::{Epoch, OsdMap, PastIntervals, PgId, PgPool, PoolId, ShardId, SpgId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// The map names this OSD, or a split will make the copy. No store has it.
    Named,
    /// Its collection is in a store shard, or is being created there.
    Held,
    /// Its pool is gone; the shard is removing it.
    Leaving,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub core: CoreId,
    pub holding: Holding,
    /// Of a held copy: the low bits of the hash that all its objects share.
    split_bits: u8,
    /// The last map that had split the copy at the start of the OSD.
    split_at: Epoch,
    /// The copy has every merge of maps up to this one, or has the order for it.
    merged_through: Epoch,
    /// The copy's shard. `NONE` in pools of whole copies.
    pub shard: ShardId,
    /// Since which map we are its primary, if we are.
    pub primary_since: Option<Epoch>,
    pub placement: Placement,
    /// Since which map it is placed so.
    pub placed_since: Epoch,
    pub intervals: PgIntervals,
    /// The shard has the order for the present interval.
    is_told: bool,
    /// The shard acts on an interval: the last order for the PG was none to rest.
    is_active: bool,
    /// Children that are made from this copy and are as little durable.
    unborn_children: Vec<PgId>,
}

/// Orders for the shards of each core.
pub type Orders = BTreeMap<CoreId, Vec<PgOrder>>;

pub struct Holdings {
    osd: i32,
    cores: u16,
    pub entries: BTreeMap<PgId, Entry>,
    births: Births,
    table: PlacementTable,
    /// The PGs whose up or acting set has this OSD's number, under the table's map.
    named_here: BTreeSet<PgId>,
    /// PGs whose records the store does not have as they are.
    unsaved: BTreeSet<PgId>,
    /// Copies that do not count, which moves have left on these cores. Until the last of them is gone, no copy of its PG is
    /// made: a store would have two, and a restart would count the wrong one.
    left: BTreeSet<(PgId, CoreId)>,
    /// Copies whose PGs were merged with others, until the shards are told.
    sources: BTreeMap<PgId, merging::Source>,
    /// Merges that the shards have been told: target, map, source.
    told_merges: BTreeSet<(PgId, Epoch, PgId)>,
    /// Copies of PGs that no map makes yet which this daemon knows: a loss of power has taken back the map whose split made them. They
    /// get their parents' past when that map has come again.
    ahead: BTreeMap<PgId, (CoreId, LoadedPg)>,
    /// What the stores and the records brought, until [`Holdings::start`].
    loading: start::Loading,
    /// The map whose placement [`Holdings::check`] has compared.
    checked: Cell<Epoch>,
}

impl Holdings {
    pub fn new(osd: i32, cores: u16) -> Holdings {
        Holdings {
            osd,
            cores,
            entries: BTreeMap::new(),
            births: Births::default(),
            table: PlacementTable::default(),
            named_here: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            left: BTreeSet::new(),
            sources: BTreeMap::new(),
            told_merges: BTreeSet::new(),
            ahead: BTreeMap::new(),
            loading: start::Loading::default(),
            checked: Cell::new(0),
        }
    }

    /// PGs that name this OSD in the first map that it sees after a gap, or ever.
    fn add_unknown(&mut self) {
        let is_new = |pg: &PgId| !self.entries.contains_key(pg) && !self.births.unsettled.contains_key(pg);
        for pg in self.named_here.iter().copied().filter(is_new).collect::<Vec<_>>() {
            self.insert_named(pg, PgIntervals::unknown(0, self.present_of(pg)));
        }
    }

    fn insert_named(&mut self, pg: PgId, intervals: PgIntervals) {
        let core = CoreId(spread(pg, self.cores));
        self.insert(pg, Entry::new(core, Holding::Named, intervals));
    }

    fn insert(&mut self, pg: PgId, entry: Entry) {
        self.entries.insert(pg, entry);
        self.unsaved.insert(pg);
    }

    /// The interval of a PG that begins with the table's map.
    fn present_of(&self, pg: PgId) -> Interval {
        let map = self.table.map();
        let mut placement = Placement::default();
        self.table.lookup(pg, &mut placement);
        let Some(pool) = map.pools.get(&pg.pool) else {
            return Interval { since: map.epoch, up_primary: -1, primary: -1, ..Interval::default() };
        };
        interval(map.epoch, &placement, pool)
    }

    /// To be kept with the maps.
    pub fn births(&self) -> &Births {
        &self.births
    }

    /// The records that changed since they were last taken, for the store.
    pub fn take_record_changes(&mut self) -> RecordChanges {
        let mut out = RecordChanges::default();
        for pg in std::mem::take(&mut self.unsaved) {
            match self.entries.get(&pg) {
                Some(entry) => out.set.push((pg, entry.intervals.to_record())),
                None => out.gone.push(pg),
            }
        }
        out
    }

    /// The copy is durable, and with it, or by a split of it, its children. True when it was the last that was waited for:
    /// then the records are worth a transaction of their own.
    pub fn created(&mut self, pg: PgId) -> bool {
        let mut durable = vec![pg];
        let mut was_birth = false;
        while let Some(pg) = durable.pop() {
            let Some(entry) = self.entries.get_mut(&pg) else { continue };
            durable.append(&mut entry.unborn_children);
            if std::mem::take(&mut entry.intervals.is_birth) {
                was_birth = true;
                self.unsaved.insert(pg);
            }
        }
        was_birth && !self.entries.values().any(|entry| entry.intervals.is_birth)
    }

    /// The shard has removed the copy. True if the map names this OSD again meanwhile: then it is to be ordered anew.
    pub fn removed(&mut self, pg: PgId, core: CoreId) -> bool {
        if self.left.contains(&(pg, core)) {
            return self.is_source_gone(pg, core);
        }
        let Some(entry) = self.entries.get_mut(&pg) else { return false };
        let is_wanted = entry.holding == Holding::Held && entry.names(self.osd);
        if is_wanted {
            entry.holding = Holding::Named;
            (entry.is_told, entry.is_active) = (false, false);
            entry.intervals.is_birth = false;
        } else {
            self.entries.remove(&pg);
        }
        self.unsaved.insert(pg);
        is_wanted
    }

    /// The copy of the core is to begin again, and not as a birth. False if the core has none that counts.
    pub fn begin_again(&mut self, pg: PgId, core: CoreId) -> bool {
        let Some(entry) = self.entries.get_mut(&pg) else { return false };
        let is_held = entry.holding == Holding::Held && entry.core == core;
        if is_held {
            entry.intervals.is_birth = false;
            self.unsaved.insert(pg);
        }
        is_held
    }

    /// A core has a copy of the PG that does not count, or begins one.
    pub fn leave(&mut self, pg: PgId, core: CoreId) {
        self.left.insert((pg, core));
    }

    /// The copy that counts goes from one core to the other.
    pub fn cross(&mut self, pg: PgId, source: CoreId, target: CoreId) {
        self.left.remove(&(pg, target));
        self.leave(pg, source);
        if let Some(entry) = self.entries.get_mut(&pg) {
            entry.core = target;
        }
    }

    /// A core has no copy of the PG that does not count. True if a copy may be made, split off or merged now and could not
    /// before.
    pub fn cleared(&mut self, pg: PgId, core: CoreId) -> bool {
        let is_merging = || {
            let pool = self.table.map().pools.get(&pg.pool);
            pool.is_some_and(|pool| pool.pg_num_pending < pool.pg_num)
        };
        let is_wanted = match self.entries.get(&pg) {
            Some(entry) => entry.holding == Holding::Named || is_merging(),
            None => true,
        };
        self.left.remove(&(pg, core)) && !is_left(&self.left, pg) && is_wanted
    }

    /// Intervals that ended before `epoch` matter no more.
    pub fn intervals_done(&mut self, pg: PgId, epoch: Epoch) {
        if let Some(entry) = self.entries.get_mut(&pg)
            && entry.intervals.forget_before(epoch)
        {
            self.unsaved.insert(pg);
        }
    }

    /// Another OSD knows of more intervals. True if the record changed.
    pub fn longer_past(&mut self, pg: PgId, past: &PastIntervals) -> bool {
        let is_longer = self.entries.get_mut(&pg).is_some_and(|entry| entry.intervals.lengthen(past));
        if is_longer {
            self.unsaved.insert(pg);
        }
        is_longer
    }

    /// The first map of a PG's present interval.
    pub fn interval_since(&self, pg: PgId) -> Option<Epoch> {
        self.entries.get(&pg).map(|entry| entry.intervals.present.since)
    }

    /// Follows the intervals of every entry. One map after another, none left out. `before` is the map just before, if it was
    /// seen. `our_life`: the map in which this store's OSD was first marked up, 0 before that.
    pub fn follow(&mut self, before: Option<&OsdMap>, map: &Arc<OsdMap>, our_life: Epoch) {
        let old = self.table.map().clone();
        let changed = self.advance_table(map);
        let Some(before) = before else { return self.follow_gap(&old, map) };
        self.note_unsettled(before, map);
        self.end_merged(before, map);
        self.add_children(before, map, |parent, present| parent.child(before, present));
        self.begin_intervals(before, map, &changed);
        let born = self.settle(map, our_life);
        for pg in changed {
            let is_new = self.named_here.contains(&pg) && !self.entries.contains_key(&pg);
            if !is_new || self.births.unsettled.contains_key(&pg) {
                continue;
            }
            let present = self.present_of(pg);
            let intervals = match born.get(&pg) {
                Some(created) => PgIntervals::birth(*created, present),
                None => PgIntervals::newly_named(pg, before, present),
            };
            self.insert_named(pg, intervals);
        }
    }

    /// Returns the PGs whose placement changed.
    fn advance_table(&mut self, map: &Arc<OsdMap>) -> Vec<PgId> {
        let mut placement = Placement::default();
        let changed = self.table.advance(map);
        for pg in &changed {
            self.table.lookup(*pg, &mut placement);
            if placement.up.contains(&self.osd) || placement.acting.contains(&self.osd) {
                self.named_here.insert(*pg);
            } else {
                self.named_here.remove(pg);
            }
        }
        changed
    }

    /// Maps are missing: no interval before this map is known for sure.
    fn follow_gap(&mut self, old: &OsdMap, map: &OsdMap) {
        self.births.unsettled.clear();
        self.end_merged_in_gap(old, map);
        self.add_children(old, map, |parent, present| {
            let mut child = parent.clone();
            child.forget_past(Interval { split_at: present.since, ..present });
            child
        });
        for pg in self.entries.keys().copied().collect::<Vec<_>>() {
            let Some(pool) = map.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num) else { continue };
            let mut present = self.present_of(pg);
            let Some(entry) = self.entries.get_mut(&pg) else { continue };
            let had = old.pools.get(&pg.pool).map_or(0, |pool| pool.pg_num);
            let last_split = entry.intervals.present.split_at;
            present.split_at = if is_split(pg.seed, had, pool.pg_num) { map.epoch } else { last_split };
            entry.intervals.forget_past(present);
            entry.follow_interval();
            self.unsaved.insert(pg);
        }
        self.add_unknown();
    }

    /// PGs of pools that came into being, and children of PGs that no OSD has served.
    fn note_unsettled(&mut self, before: &OsdMap, map: &OsdMap) {
        let unsettled = &mut self.births.unsettled;
        for (&pool, row) in &map.pools {
            let old = before.pools.get(&pool);
            for seed in old.map_or(0, |old| old.pg_num)..row.pg_num {
                let created = match old {
                    None => Some(map.epoch),
                    Some(old) => unsettled.get(&PgId { pool, seed: ancestor(seed, old) }).copied(),
                };
                if let Some(created) = created {
                    unsettled.insert(PgId { pool, seed }, created);
                }
            }
        }
    }

    /// The first interval with a primary begins: returns the PGs of this OSD that begin with it, with the maps of their
    /// creation.
    fn settle(&mut self, map: &OsdMap, our_life: Epoch) -> BTreeMap<PgId, Epoch> {
        let up_from = map.osd(self.osd).map_or(0, |row| row.info.up_from);
        let is_this_life = our_life != 0 && up_from >= our_life;
        let (table, named_here, mut placement) = (&self.table, &self.named_here, Placement::default());
        let mut born = BTreeMap::new();
        self.births.unsettled.retain(|pg, created| {
            if map.pools.get(&pg.pool).is_none_or(|pool| pg.seed >= pool.pg_num) {
                return false;
            }
            table.lookup(*pg, &mut placement);
            let is_settled = placement.acting_primary >= 0;
            if is_settled && is_this_life && named_here.contains(pg) {
                born.insert(*pg, *created);
            }
            !is_settled
        });
        born
    }

    /// Entries for the children of entries, before the parents' intervals end.
    fn add_children(
        &mut self,
        before: &OsdMap,
        map: &OsdMap,
        child_of: impl Fn(&PgIntervals, Interval) -> PgIntervals,
    ) {
        for (&pool, row) in &map.pools {
            let Some(old) = before.pools.get(&pool) else { continue };
            for seed in old.pg_num..row.pg_num {
                let (child, parent) = (PgId { pool, seed }, PgId { pool, seed: ancestor(seed, old) });
                let parent = self.entries.get(&parent).filter(|_| !self.entries.contains_key(&child));
                let Some(parent) = parent else { continue };
                let intervals = child_of(&parent.intervals, self.present_of(child));
                let entry = match self.ahead.remove(&child) {
                    Some((core, loaded)) => Entry::found(core, &loaded, intervals),
                    None => Entry::new(parent.core, Holding::Named, intervals),
                };
                self.insert(child, entry);
            }
        }
        self.hold_rest_of_ahead(map);
    }

    /// Copies that the map makes, or whose pool it does not have, and whose parents are not here.
    fn hold_rest_of_ahead(&mut self, map: &OsdMap) {
        let due: Vec<PgId> = self.ahead.keys().copied().filter(|pg| !is_ahead(*pg, map)).collect();
        for pg in due {
            let Some((core, loaded)) = self.ahead.remove(&pg) else { continue };
            let intervals = PgIntervals::unknown(loaded.created, self.present_of(pg));
            self.insert(pg, Entry::found(core, &loaded, intervals));
        }
    }

    fn begin_intervals(&mut self, before: &OsdMap, map: &OsdMap, changed: &[PgId]) {
        let mut suspects: BTreeSet<PgId> =
            changed.iter().copied().filter(|pg| self.entries.contains_key(pg)).collect();
        for (&pool, row) in &map.pools {
            let old = before.pools.get(&pool);
            if old.is_some_and(|old| {
                let cuts = |pool: &PgPool| (pool.size, pool.min_size, pool.pg_num, pool.pg_num_pending);
                cuts(old) != cuts(row)
            }) {
                suspects.extend(self.entries.range(pgs_of(pool)).map(|(pg, _)| *pg));
            }
        }
        let mut placement = Placement::default();
        for pg in suspects {
            let Some(pool) = map.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num) else { continue };
            let Some(entry) = self.entries.get_mut(&pg) else { continue };
            self.table.lookup(pg, &mut placement);
            if !before.pools.contains_key(&pg.pool) {
                entry.intervals.forget_past(interval(map.epoch, &placement, pool));
                entry.follow_interval();
                self.unsaved.insert(pg);
                continue;
            }
            let Some(old) = before.pools.get(&pg.pool) else { continue };
            let is_split = is_split(pg.seed, old.pg_num, pool.pg_num);
            let is_cut = is_split || is_merge(pg.seed, old, pool);
            if is_new_interval(&entry.intervals.present, &placement, pool, is_cut) {
                entry.intervals.begin(before, interval(map.epoch, &placement, pool), is_split);
                if self::is_split(pg.seed, pool.pg_num, old.pg_num) {
                    entry.intervals.keep_past_of_merge();
                }
                entry.follow_interval();
                self.unsaved.insert(pg);
            }
        }
    }

    /// The orders that `map`, the newest, gives for every PG here: removals, then merges, splits and intervals. `is_us`: the map
    /// names this very process under our number.
    pub fn orders(&mut self, map: &OsdMap, is_us: bool) -> Orders {
        let mut orders = Orders::new();
        self.leave_deleted_pools(map, &mut orders);
        self.merge(map, &mut orders);
        self.split(map, &mut orders);
        self.order_intervals(map, is_us, &mut orders);
        orders
    }

    fn leave_deleted_pools(&mut self, map: &OsdMap, orders: &mut Orders) {
        let unsaved = &mut self.unsaved;
        self.entries.retain(|pg, entry| {
            // A loss of power may take a map back that other cores have acted on: a pool that this map does not know yet comes
            // again with a later one, and its copies here may have been written to.
            let is_deleted = !map.pools.contains_key(&pg.pool) && pg.pool <= i64::from(map.pool_max);
            if is_deleted && entry.holding == Holding::Held {
                orders.entry(entry.core).or_default().push(PgOrder::Remove { pg: entry.id(*pg) });
                entry.holding = Holding::Leaving;
                entry.primary_since = None;
            }
            let is_kept = !is_deleted || entry.holding == Holding::Leaving;
            if !is_kept {
                unsaved.insert(*pg);
            }
            is_kept
        });
    }

    fn split(&mut self, map: &OsdMap, orders: &mut Orders) {
        let is_due = |pg: &PgId, entry: &Entry| {
            let pool = map.pools.get(&pg.pool);
            entry.holding == Holding::Held
                && pool.is_some_and(|pool| entry.split_bits < split_bits(pg.seed, pool.pg_num))
        };
        let due = self.entries.iter().filter(|(pg, entry)| is_due(pg, entry));
        let mut made = BTreeSet::new();
        for pg in due.map(|(pg, _)| *pg).collect::<Vec<_>>() {
            // A child that has a collection was made by a split that did not come to its end: it is made anew.
            if made.contains(&pg) {
                continue;
            }
            let (parent, pool) = (self.entries[&pg].clone(), &map.pools[&pg.pool]);
            let wanted = split_bits(pg.seed, pool.pg_num);
            if self.must_wait_to_split(pg, map) {
                continue;
            }
            let mut order = Vec::new();
            for child in children(pg, &parent, pool.pg_num) {
                let bits = split_bits(child.seed, pool.pg_num);
                self.hold_child(child, &parent, bits);
                made.insert(child);
                order.push((parent.id(child), bits));
            }
            if let Some(entry) = self.entries.get_mut(&pg) {
                entry.split_bits = wanted;
                entry.is_told = false;
                if parent.intervals.is_birth {
                    entry.unborn_children.extend(order.iter().map(|(child, _): &(SpgId, u8)| child.pg));
                }
            }
            orders.entry(parent.core).or_default().push(PgOrder::Split {
                pg: parent.id(pg),
                split_bits: wanted,
                children: order,
                epoch: map.epoch,
            });
        }
    }

    /// A copy that a later map merged is not split, nor one whose child's last copy is being removed. It gets no interval either.
    fn must_wait_to_split(&self, pg: PgId, map: &OsdMap) -> bool {
        let (Some(entry), Some(pool)) = (self.entries.get(&pg), map.pools.get(&pg.pool)) else {
            return false;
        };
        entry.merged_through > map.epoch
            || children(pg, entry, pool.pg_num).any(|child| is_left(&self.left, child))
    }

    fn hold_child(&mut self, child: PgId, parent: &Entry, bits: u8) {
        // The maps that ask for the split have made an entry, unless one of them was dropped since.
        let known = self.entries.remove(&child).map(|entry| entry.intervals);
        let intervals =
            known.unwrap_or_else(|| PgIntervals::unknown(parent.intervals.created, self.present_of(child)));
        let intervals =
            PgIntervals { is_birth: intervals.is_birth && parent.intervals.is_birth, ..intervals };
        let (shard, merged_through) = (parent.shard, parent.merged_through.max(self.table.map().epoch));
        let entry = Entry {
            split_bits: bits,
            merged_through,
            shard,
            ..Entry::new(parent.core, Holding::Held, intervals)
        };
        self.insert(child, entry);
    }

    fn order_intervals(&mut self, map: &OsdMap, is_us: bool, orders: &mut Orders) {
        let is_wide = |pg: &PgId, entry: &Entry| {
            let pool = map.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num);
            entry.holding == Holding::Held
                && pool.is_some_and(|pool| entry.split_bits < split_bits(pg.seed, pool.pg_num))
        };
        let unsplit: Vec<PgId> =
            self.entries.iter().filter(|(pg, entry)| is_wide(pg, entry)).map(|(pg, _)| *pg).collect();
        let (osd, unsaved, left) = (self.osd, &mut self.unsaved, &self.left);
        self.entries.retain(|pg, entry| {
            if unsplit.contains(pg) {
                entry.primary_since = None;
                return true;
            }
            let pool = map.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num);
            let Some(pool) = pool.filter(|_| matches!(entry.holding, Holding::Named | Holding::Held)) else {
                return true;
            };
            let is_named = entry.names(osd);
            if entry.holding == Holding::Named && pool.is_erasure() {
                entry.shard = entry.intervals.present.shard_of(osd);
            }
            let id = entry.id(*pg);
            let PgIntervals { created, is_birth, present, past, .. } = entry.intervals.clone();
            entry.primary_since = (is_us && present.primary == osd).then_some(present.primary_since);
            if is_named && !is_us {
                entry.is_told = false;
                if std::mem::take(&mut entry.is_active) {
                    orders.entry(entry.core).or_default().push(PgOrder::Idle { pg: id });
                }
                return true;
            }
            if entry.is_told {
                return true;
            }
            let is_new_copy = entry.holding == Holding::Named;
            if is_new_copy && !is_named && !is_birth {
                unsaved.insert(*pg);
                return false;
            }
            if is_new_copy && is_left(left, *pg) {
                return true;
            }
            if is_new_copy {
                entry.holding = Holding::Held;
                entry.split_bits = split_bits(pg.seed, pool.pg_num);
                entry.merged_through = map.epoch;
            }
            let split_bits = entry.split_bits;
            let mut order =
                PgOrder::Interval { pg: id, split_bits, created, is_birth, interval: present, past };
            if is_new_copy && planted::has(PlantedBug::ActiveWithoutHistory) {
                forge_birth(&mut order, map.epoch);
            }
            (entry.is_told, entry.is_active) = (true, true);
            orders.entry(entry.core).or_default().push(order);
            true
        });
    }

    /// The PGs whose data is here.
    pub fn held(&self) -> impl Iterator<Item = PgId> {
        self.entries.iter().filter(|(_, e)| e.holding == Holding::Held).map(|(pg, _)| *pg)
    }

    pub fn routes(&self) -> Routes {
        let mut routes = Routes::new(self.cores);
        self.entries.iter().for_each(|(pg, entry)| routes.set(*pg, entry.core));
        routes
    }

    pub fn check(&self, map: Option<&OsdMap>) {
        for (pg, entry) in &self.entries {
            let Entry { core, holding, primary_since, is_told, intervals, .. } = entry;
            assert!(core.0 < self.cores, "{pg} is on core {}, which does not exist", core.0);
            assert!(!is_told || *holding != Holding::Named, "{pg} has an order and no copy");
            let PgIntervals { present, past, .. } = intervals;
            assert!(
                primary_since.is_none() || present.primary == self.osd,
                "{pg} has another primary in its present interval"
            );
            assert!(
                past.intervals.last().is_none_or(|last| last.last < present.since),
                "{pg}: a past interval ends after the present one began"
            );
            let is_stale = *holding == Holding::Held && self.left.contains(&(*pg, *core));
            assert!(!is_stale, "{pg} is on core {core:?}, whose copy does not count");
            let has_pool = map.is_some_and(|map| map.pools.contains_key(&pg.pool));
            assert!(!has_pool || *holding != Holding::Leaving, "{pg} is removed and its pool exists");
            let is_ended =
                map.and_then(|map| map.pools.get(&pg.pool)).is_some_and(|pool| pg.seed >= pool.pg_num);
            assert!(!is_ended, "{pg} was merged and has an entry");
        }
        self.check_placement();
    }

    /// Maps one PG without the table, another one with each epoch, once.
    fn check_placement(&self) {
        let map = self.table.map();
        if self.checked.replace(map.epoch) == map.epoch {
            return;
        }
        let at = (map.epoch as usize).checked_rem(self.entries.len());
        let Some((pg, entry)) = at.and_then(|at| self.entries.iter().nth(at)) else { return };
        let mut placement = Placement::default();
        self.table.lookup(*pg, &mut placement);
        let epoch = map.epoch;
        assert_eq!(placement, placement::map_pg(map, *pg), "{pg} in the placement table of map {epoch}");
        let is_named = placement.up.contains(&self.osd) || placement.acting.contains(&self.osd);
        assert_eq!(self.named_here.contains(pg), is_named, "{pg} in map {epoch}: named here");
        if map.pools.get(&pg.pool).is_some_and(|pool| pg.seed < pool.pg_num) {
            assert_eq!(entry.placement, placement, "{pg} in map {epoch}: the present interval");
        }
    }

    /// The OSDs that share a PG with us.
    pub fn neighbours(&self) -> BTreeSet<i32> {
        let acting = self.entries.values().flat_map(|e| e.placement.acting.iter().chain(&e.placement.up));
        acting.copied().filter(|osd| *osd != self.osd && *osd >= 0 && *osd != i32::MAX).collect()
    }

    /// OSDs that writes wait for together with this one: members of a PG's acting set, and those that it recovers or backfills.
    pub fn partners(&self) -> BTreeSet<i32> {
        let members = |entry: &Entry| {
            let Placement { acting, up, .. } = &entry.placement;
            acting.iter().chain(up).copied().collect::<Vec<i32>>()
        };
        let ours = self.entries.values().map(members).filter(|members| members.contains(&self.osd)).flatten();
        ours.filter(|osd| *osd != self.osd && *osd >= 0 && *osd != i32::MAX).collect()
    }
}

impl Entry {
    fn new(core: CoreId, holding: Holding, intervals: PgIntervals) -> Entry {
        let mut out = Entry {
            core,
            holding,
            split_bits: 0,
            split_at: 0,
            merged_through: 0,
            shard: ShardId::NONE,
            primary_since: None,
            placement: Placement::default(),
            placed_since: 0,
            intervals,
            is_told: false,
            is_active: false,
            unborn_children: Vec::new(),
        };
        out.follow_interval();
        out
    }

    /// A copy in a store. It is durable, so no birth any more.
    fn found(core: CoreId, loaded: &LoadedPg, intervals: PgIntervals) -> Entry {
        let created = if intervals.created == 0 { loaded.created } else { intervals.created };
        let intervals = PgIntervals { created, is_birth: false, ..intervals };
        let LoadedPg { split_bits, split_at, merged_through, pg: SpgId { shard, .. }, .. } = *loaded;
        Entry { split_bits, split_at, merged_through, shard, ..Entry::new(core, Holding::Held, intervals) }
    }

    /// The name of the copy here.
    pub fn id(&self, pg: PgId) -> SpgId {
        SpgId { pg, shard: self.shard }
    }

    /// After the present interval changed.
    fn follow_interval(&mut self) {
        let Interval { since, up, up_primary, acting, primary, .. } =
            Interval::clone(&self.intervals.present);
        let placement = Placement { up, up_primary, acting, acting_primary: primary };
        if self.placement != placement || self.placed_since == 0 {
            (self.placement, self.placed_since) = (placement, since);
        }
        self.is_told = false;
    }

    fn names(&self, osd: i32) -> bool {
        let Interval { up, acting, .. } = &*self.intervals.present;
        up.contains(&osd) || acting.contains(&osd)
    }
}

/// True if a later map splits the pool into this PG.
fn is_ahead(pg: PgId, map: &OsdMap) -> bool {
    map.pools.get(&pg.pool).is_some_and(|pool| pg.seed >= pool.pg_num)
}

/// The PGs that a copy with the entry's split bits has objects of, without itself.
fn children(pg: PgId, parent: &Entry, pg_num: u32) -> impl Iterator<Item = PgId> + use<> {
    let step = 1usize << parent.split_bits;
    let is_due = parent.holding == Holding::Held && parent.split_bits < split_bits(pg.seed, pg_num);
    let seeds = (pg.seed..pg_num).step_by(step).skip(1);
    seeds.filter(move |_| is_due).map(move |seed| PgId { seed, ..pg })
}

fn is_left(left: &BTreeSet<(PgId, CoreId)>, pg: PgId) -> bool {
    left.range((pg, CoreId(0))..=(pg, CoreId(u16::MAX))).next().is_some()
}

fn pgs_of(pool: PoolId) -> std::ops::RangeInclusive<PgId> {
    PgId { pool, seed: 0 }..=PgId { pool, seed: u32::MAX }
}

/// The planted bug: a copy that begins now although other OSDs had the PG before.
fn forge_birth(order: &mut PgOrder, epoch: Epoch) {
    if let PgOrder::Interval { created, is_birth, past, .. } = order {
        (*created, *is_birth) = (epoch, true);
        *past = PastIntervals { known_since: epoch, intervals: Vec::new() }.into();
    }
}

#[cfg(test)]
pub(super) fn held(core: CoreId, split_bits: u8) -> Entry {
    Entry { split_bits, ..Entry::new(core, Holding::Held, PgIntervals::unknown(0, Interval::default())) }
}

#[cfg(test)]
mod tests;
