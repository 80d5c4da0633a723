//! Which PGs this OSD holds, which it should serve, and what a new map means for each.
//!
//! **A PG is served only by an OSD that can prove it holds the PG's history.** While pools have one copy, the history
//! is where the PG began, because nothing moves it: with the first OSD that the map made its primary. So this OSD may
//! create a PG empty only if it has followed the maps from the pool's creation, nobody was the PG's primary before,
//! and it was this very store's life that the map then made primary (see [`super::history::Lineage`]). A PG that is
//! held stays with its holder: when CRUSH moves it, the holder asks the monitor to keep it acting (`pg_temp`). A PG
//! that should be served here and is not held is *blocked*: its clients hold back, and it is reported as down.
//!
//! That a PG begins here is known from the maps alone, and the PG is durable a little later than they are. What is known
//! of that ([`Births`]) is therefore kept with the maps: an OSD that dies in between still begins what is its own.
//!
//! Each map costs work in proportion to what it changes and to the PGs of this OSD: the placements come from a
//! [`PlacementTable`], and the PGs that this OSD is primary of are kept as a set.
//!
//! A split, too, is durable a little later than the map that asks for it, so whether one is due is told by what the store
//! has, not by the map before: a PG that was to be split when the daemon died is split when it is back.

use super::births::{Birth, Births};
use crate::Routes;
use crate::node::spread;
use crate::pg::split_bits;
use crate::planted::{self, PlantedBug};
use crate::shard::{LoadedPg, PgOrder};
use machine::CoreId;
use placement::pg::stable_mod;
use placement::{Placement, PlacementTable};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::types::{Epoch, OsdMap, PgId, PoolId, SpgId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Its collection is in a store shard.
    Held,
    /// We should serve it and have nothing of it.
    Blocked,
    /// Its pool is gone; the shard is removing it.
    Leaving,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub core: CoreId,
    pub holding: Holding,
    /// Of what is held: how many low bits of the hash all its objects share.
    split_bits: u8,
    /// Since which map we are its primary, if we are.
    pub primary_since: Option<Epoch>,
    /// The shard has been told to serve it.
    serving: bool,
    pub placement: Placement,
    /// Since which map it is placed so.
    pub placed_since: Epoch,
}

/// Orders for the shards of each core.
pub type Orders = BTreeMap<CoreId, Vec<PgOrder>>;

pub struct Holdings {
    osd: i32,
    cores: u16,
    pub entries: BTreeMap<PgId, Entry>,
    births: Births,
    /// What the shards know of: pools and their number of PGs.
    pg_nums: BTreeMap<PoolId, u32>,
    table: PlacementTable,
    /// The PGs whose acting primary is this OSD's number, under the table's map.
    acting_here: BTreeSet<PgId>,
}

impl Holdings {
    pub fn new(osd: i32, cores: u16) -> Holdings {
        Holdings {
            osd,
            cores,
            entries: BTreeMap::new(),
            births: Births::default(),
            pg_nums: BTreeMap::new(),
            table: PlacementTable::default(),
            acting_here: BTreeSet::new(),
        }
    }

    /// A PG that the store of `core` brought along.
    pub fn found(&mut self, core: CoreId, pg: &LoadedPg) {
        self.births.ours.remove(&pg.pg.pg);
        self.entries.insert(pg.pg.pg, held(core, pg.split_bits));
    }

    /// The pools as they were when the daemon ended, and what was known then of PGs that had not begun.
    pub fn resume(&mut self, map: &OsdMap, births: Births) {
        self.pg_nums = map.pools.iter().map(|(id, pool)| (*id, pool.pg_num)).collect();
        self.births = births;
        self.births.ours.retain(|pg, birth| {
            // The map that makes this process the primary is yet to come.
            birth.since = None;
            !self.entries.contains_key(pg)
        });
    }

    /// What is to be kept with the maps.
    pub fn births(&self) -> &Births {
        &self.births
    }

    /// The PG is durable. True when it was the last that was waited for: then that is worth a record, and not at each
    /// of a large pool's, for what the record still names and the store has does no harm.
    pub fn created(&mut self, pg: PgId) -> bool {
        self.births.ours.remove(&pg).is_some() && self.births.ours.is_empty()
    }

    pub fn removed(&mut self, pg: PgId) {
        if self.entries.get(&pg).is_some_and(|e| e.holding == Holding::Leaving) {
            self.entries.remove(&pg);
        }
    }

    /// One map after another, none left out: who begins which PG. `before` is the map just before, if it was seen.
    /// `our_life`: the map in which this store's OSD was first marked up, 0 before that. `is_us`: the map names this
    /// very process under our number.
    pub fn follow(&mut self, before: Option<&OsdMap>, map: &Arc<OsdMap>, our_life: Epoch, is_us: bool) {
        self.advance_table(map);
        for (pg, entry) in &mut self.entries {
            // Exactly when we became primary matters: a client that has seen it does not send again.
            let mine = is_us && self.acting_here.contains(pg);
            entry.primary_since = mine.then(|| entry.primary_since.unwrap_or(map.epoch));
        }
        let Some(before) = before else {
            // What came into being in between cannot be known.
            self.births.unsettled.clear();
            return;
        };
        for (&pool, row) in &map.pools {
            let old = before.pools.get(&pool).map(|p| (p.pg_num, p.pg_num_mask()));
            for seed in old.map_or(0, |(num, _)| num)..row.pg_num {
                let pg = PgId { pool, seed };
                match old {
                    None => drop(self.births.unsettled.insert(pg, map.epoch)),
                    // A child of a PG that nobody has begun has not begun either.
                    Some((num, mask)) => {
                        let parent = PgId { pool, seed: stable_mod(seed, num, mask) };
                        if let Some(created) = self.births.unsettled.get(&parent).copied() {
                            self.births.unsettled.insert(pg, created);
                        } else if !self.entries.contains_key(&parent)
                            && let Some(birth) = self.births.ours.get(&parent).cloned()
                        {
                            self.births.ours.insert(pg, birth);
                        }
                    }
                }
            }
        }
        let (osd, table, mut placement) = (self.osd, &self.table, Placement::default());
        let Births { unsettled, ours } = &mut self.births;
        let up_from = map.osd(osd).map_or(0, |row| row.info.up_from);
        let is_this_life = our_life != 0 && up_from >= our_life;
        unsettled.retain(|pg, created| {
            if !map.pools.contains_key(&pg.pool) {
                return false;
            }
            table.lookup(*pg, &mut placement);
            let primary = placement.acting_primary;
            if primary == osd && is_this_life {
                ours.insert(*pg, Birth { created: *created, since: None });
            }
            primary < 0
        });
        ours.retain(|pg, birth| {
            let mine = is_us && self.acting_here.contains(pg);
            birth.since = mine.then(|| birth.since.unwrap_or(map.epoch));
            map.pools.contains_key(&pg.pool)
        });
    }

    fn advance_table(&mut self, map: &Arc<OsdMap>) {
        let mut placement = Placement::default();
        for pg in self.table.advance(map) {
            self.table.lookup(pg, &mut placement);
            if placement.acting_primary == self.osd {
                self.acting_here.insert(pg);
            } else {
                self.acting_here.remove(&pg);
            }
        }
    }

    /// What `map`, the newest, means for every PG here.
    pub fn orders(&mut self, map: &Arc<OsdMap>, is_us: bool) -> Orders {
        self.advance_table(map);
        let mut orders = Orders::new();
        self.leave_deleted_pools(map, &mut orders);
        self.split(map, &mut orders);
        // A PG that has no entry, and whose primary is another OSD, gets no order.
        let here: BTreeSet<PgId> = self.entries.keys().chain(&self.acting_here).copied().collect();
        let mut placement = Placement::default();
        for pg in here {
            let Some(pool) = map.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num) else { continue };
            self.table.lookup(pg, &mut placement);
            self.place(map, pg, pool.pg_num, &placement, is_us, &mut orders);
        }
        self.pg_nums = map.pools.iter().map(|(id, pool)| (*id, pool.pg_num)).collect();
        orders
    }

    fn leave_deleted_pools(&mut self, map: &OsdMap, orders: &mut Orders) {
        self.entries.retain(|pg, entry| {
            if map.pools.contains_key(&pg.pool) {
                return true;
            }
            let of_core = orders.entry(entry.core).or_default();
            match entry.holding {
                Holding::Held => {
                    of_core.push(PgOrder::Remove { pg: (*pg).into() });
                    entry.holding = Holding::Leaving;
                    entry.serving = false;
                    entry.primary_since = None;
                    true
                }
                Holding::Blocked => false,
                Holding::Leaving => true,
            }
        });
    }

    fn split(&mut self, map: &OsdMap, orders: &mut Orders) {
        for (&pool, row) in &map.pools {
            self.split_held(pool, row.pg_num, map.epoch, orders);
            self.forget_blocked_parents(pool, row.pg_num, orders);
        }
    }

    fn split_held(&mut self, pool: PoolId, pg_num: u32, epoch: Epoch, orders: &mut Orders) {
        let seeds = PgId { pool, seed: 0 }..PgId { pool, seed: pg_num };
        let known: Vec<PgId> = self.entries.range(seeds).map(|(pg, _)| *pg).collect();
        let mut children = BTreeSet::new();
        for pg in known {
            let wanted = split_bits(pg.seed, pg_num);
            // A child that is here already was made by a split that did not come to its end: it has nothing yet.
            let Some(parent) = self.entries.get_mut(&pg).filter(|_| !children.contains(&pg)) else {
                continue;
            };
            if parent.holding != Holding::Held || parent.split_bits >= wanted {
                continue;
            }
            let step = 1 << parent.split_bits;
            parent.split_bits = wanted;
            // It rests while it splits.
            parent.serving = false;
            let core = parent.core;
            let mut order = Vec::new();
            for seed in (pg.seed..pg_num).step_by(step).skip(1) {
                let (child, bits) = (PgId { pool, seed }, split_bits(seed, pg_num));
                self.entries.insert(child, held(core, bits));
                children.insert(child);
                order.push((child.into(), bits));
            }
            orders.entry(core).or_default().push(PgOrder::Split {
                pg: pg.into(),
                split_bits: wanted,
                children: order,
                epoch,
            });
        }
    }

    /// The clients of a PG that is not here are told anew which objects it would have.
    fn forget_blocked_parents(&mut self, pool: PoolId, pg_num: u32, orders: &mut Orders) {
        let Some(&old) = self.pg_nums.get(&pool) else { return };
        let old_mask = (old.next_power_of_two()).wrapping_sub(1);
        for seed in old..pg_num {
            let parent = PgId { pool, seed: stable_mod(seed, old, old_mask) };
            if let Some(blocked) = self.entries.get(&parent).filter(|e| e.holding == Holding::Blocked) {
                self.entries.remove(&parent);
            }
        }
    }

    fn place(
        &mut self,
        map: &OsdMap,
        pg: PgId,
        pg_num: u32,
        placement: &Placement,
        is_us: bool,
        orders: &mut Orders,
    ) {
        let mine = is_us && placement.acting_primary == self.osd;
        let id = SpgId::from(pg);
        let Some(known) = self.entries.get_mut(&pg) else {
            if !mine {
                return;
            }
            let core = CoreId(spread(pg, self.cores));
            let of_core = orders.entry(core).or_default();
            let birth = self.births.ours.get(&pg).map(|b| (b.created, b.since.unwrap_or(map.epoch)));
            let forged = planted::has(PlantedBug::ActiveWithoutHistory).then_some((map.epoch, map.epoch));
            let holding = match birth.or(forged) {
                Some((created, since)) => Holding::Held,
                None => Holding::Blocked,
            };
            let mut new = Entry { holding, ..held(core, split_bits(pg.seed, pg_num)) };
            new.primary_since = Some(birth.map_or(map.epoch, |(_, since)| since));
            new.serving = holding == Holding::Held;
            new.placement = placement.clone();
            new.placed_since = map.epoch;
            self.entries.insert(pg, new);
            return;
        };
        if known.placement != *placement {
            known.placement = placement.clone();
            known.placed_since = map.epoch;
        }
        known.primary_since = match (mine, known.primary_since) {
            (true, since) => Some(since.unwrap_or(map.epoch)),
            (false, _) => None,
        };
        let of_core = orders.entry(known.core).or_default();
        match (known.holding, mine) {
            (Holding::Held, true) if !known.serving => {
                known.serving = true;
            }
            (Holding::Held, false) if known.serving => {
                known.serving = false;
                of_core.push(PgOrder::Idle { pg: id });
            }
            // Created elsewhere once, by us after all now: a pool of the same number does not come back, so this
            // is a child that its parent's holder brought.
            (Holding::Blocked, false) => {
                self.entries.remove(&pg);
            }
            (Holding::Held | Holding::Blocked | Holding::Leaving, _) => {}
        }
    }

    /// The PGs whose data is here.
    pub fn held(&self) -> impl Iterator<Item = PgId> {
        self.entries.iter().filter(|(_, e)| e.holding == Holding::Held).map(|(pg, _)| *pg)
    }

    /// PGs that we hold and that the map gives to somebody who does not: the monitor is asked to leave them here.
    /// And those that are to be ours again without that: the wish is taken back.
    pub fn wanted_temps(&self, map: &OsdMap) -> BTreeMap<PgId, Vec<i32>> {
        let wish = |pg: &PgId, entry: &Entry| {
            if entry.primary_since.is_none() {
                return Some(vec![self.osd]);
            }
            let needless = entry.placement.up_primary == self.osd && map.pg_temp.contains_key(pg);
            needless.then(Vec::new)
        };
        let held = self.entries.iter().filter(|(_, e)| e.holding == Holding::Held);
        // Nobody but us may begin these.
        let elsewhere = |pg: &PgId, birth: &Birth| birth.since.is_none() && !self.entries.contains_key(pg);
        let unborn = self.births.ours.iter().filter(|(pg, birth)| elsewhere(pg, birth));
        held.filter_map(|(pg, entry)| Some((*pg, wish(pg, entry)?)))
            .chain(unborn.map(|(pg, _)| (*pg, vec![self.osd])))
            .collect()
    }

    pub fn routes(&self) -> Routes {
        let mut routes = Routes::new(self.cores);
        self.entries.iter().for_each(|(pg, entry)| routes.set(*pg, entry.core));
        routes
    }

    pub fn check(&self, map: Option<&OsdMap>) {
        for (pg, entry) in &self.entries {
            let Entry { core, holding, primary_since, serving, .. } = entry;
            assert!(core.0 < self.cores, "{pg} is on core {}, which does not exist", core.0);
            let is_primary = primary_since.is_some();
            assert!(
                !serving || (*holding == Holding::Held && is_primary),
                "{pg} is served by a primary that holds it"
            );
            assert!(
                is_primary || *holding != Holding::Blocked,
                "{pg} blocks clients where this OSD is primary"
            );
            let has_pool = map.is_some_and(|map| map.pools.contains_key(&pg.pool));
            assert!(!has_pool || *holding != Holding::Leaving, "{pg} is removed and its pool exists");
        }
        self.check_placement();
    }

    /// Maps one PG without the table, another one with each epoch.
    fn check_placement(&self) {
        let map = self.table.map();
        let at = (map.epoch as usize).checked_rem(self.entries.len());
        let Some(pg) = at.and_then(|at| self.entries.keys().nth(at)) else { return };
        let mut placement = Placement::default();
        self.table.lookup(*pg, &mut placement);
        let epoch = map.epoch;
        assert_eq!(placement, placement::map_pg(map, *pg), "{pg} in the placement table of map {epoch}");
        let is_here = self.acting_here.contains(pg);
        assert_eq!(is_here, placement.acting_primary == self.osd, "{pg} in map {epoch}: acting here");
    }

    /// The OSDs that share a PG with us.
    pub fn neighbours(&self) -> BTreeSet<i32> {
        let acting = self.entries.values().flat_map(|e| e.placement.acting.iter().chain(&e.placement.up));
        acting.copied().filter(|osd| *osd != self.osd && *osd >= 0 && *osd != i32::MAX).collect()
    }
}

pub(super) fn held(core: CoreId, split_bits: u8) -> Entry {
    Entry {
        core,
        holding: Holding::Held,
        split_bits,
        primary_since: None,
        serving: false,
        placement: Placement::default(),
        placed_since: 0,
    }
}
