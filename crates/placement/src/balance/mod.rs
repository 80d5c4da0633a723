//! Balance: upmaps that give every OSD its share of the placement groups of every pool, and of all pools together.
//!
//! CRUSH places at random, so the fullest OSD of a large cluster has some tenths more than its share. [`plan`] finds exceptions
//! (`pg_upmap_items`) that even this out. It moves one copy at a time from an OSD that has too many to one that has too few, and
//! only if the pool's rule could have chosen that one (`layout`). A move always lessens the sum of the squares of what OSDs have
//! beyond their shares (`shares`), so a plan ends, and a cluster that is within the limit is left alone. First each pool is evened out
//! by itself; then all pools together, as far as each stays within the limit.
//!
//! Of several PGs that could move the plan takes one whose exception ends by it, then one that has an exception already: the map stays
//! small. Exceptions without effect, of an OSD that CRUSH does not choose any more, end with the next plan.

mod hold;
mod layout;
mod primaries;
mod roots;
mod shares;
#[cfg(test)]
mod tests;

use crate::crush::{ITEM_NONE, Workspace};
use crate::osd_map::assigned;
pub use hold::{Hold, hold};
use layout::{Layout, Place};
pub use primaries::{apply_primaries, plan_primaries, primaries_beyond_share};
pub use roots::{Root, roots};
use shares::{InGroup, PG, shares};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wire::types::{OsdMap, PgId, PoolId};

/// Passes over all pools. A pass without a move is the last one.
const PASSES_MAX: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// PGs by which an OSD may differ from its share. At least 1.
    pub deviation_max: u32,
    /// PGs whose exceptions the plan may change.
    pub changes_max: usize,
}

/// The OSDs with the most and the fewest PGs beyond their shares, and by how many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extremes {
    pub most: Option<(i32, f64)>,
    pub fewest: Option<(i32, f64)>,
}

impl Extremes {
    /// The greatest difference from a share, either way.
    pub fn deviation(&self) -> f64 {
        [self.most, self.fewest].into_iter().flatten().map(|(_, by)| by.abs()).fold(0.0, f64::max)
    }
}

/// Evenness of pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evenness {
    pub pools: BTreeMap<PoolId, Extremes>,
    /// All of them together.
    pub all: Extremes,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The exceptions of PGs that change, as pairs of OSDs from and to; none: the PG's exception ends.
    pub upmaps: BTreeMap<PgId, Vec<(i32, i32)>>,
    /// Copies that move.
    pub moves: usize,
    pub before: Evenness,
    pub after: Evenness,
}

/// Exceptions for the pools that count. States of OSDs do not matter, only whether they are in.
pub fn plan(map: &OsdMap, counts: &dyn Fn(PoolId) -> bool, limits: Limits) -> Plan {
    let mut balance = Balance::new(map, counts, limits);
    let before = balance.evenness();
    for _ in 0..PASSES_MAX {
        let moves = balance.moves;
        (0..balance.pools.len()).for_each(|pool| balance.even_out(Scope::Pool(pool)));
        balance.even_out(Scope::All);
        if balance.moves == moves || balance.is_at_end() {
            break;
        }
    }
    balance.tidy();
    Plan { upmaps: balance.upmaps(), moves: balance.moves, before, after: balance.evenness() }
}

/// Puts exceptions into a map: pairs of OSDs by PG, none to end a PG's exception.
pub fn apply(upmaps: &BTreeMap<PgId, Vec<(i32, i32)>>, map: &mut OsdMap) {
    for (pg, items) in upmaps {
        match items.is_empty() {
            true => drop(map.pg_upmap_items.remove(pg)),
            false => drop(map.pg_upmap_items.insert(*pg, items.clone())),
        }
    }
}

/// OSDs by what they have beyond their share, in units of [`PG`].
#[derive(Default)]
struct Deviations {
    of: BTreeMap<i32, i64>,
    ordered: BTreeSet<(i64, i32)>,
}

impl Deviations {
    fn add(&mut self, osd: i32, by: i64) {
        let deviation = self.of.entry(osd).or_default();
        self.ordered.remove(&(*deviation, osd));
        *deviation += by;
        self.ordered.insert((*deviation, osd));
    }

    fn get(&self, osd: i32) -> i64 {
        self.of.get(&osd).copied().unwrap_or(0)
    }

    fn extremes(&self) -> Extremes {
        let in_pgs = |&(by, osd): &(i64, i32)| (osd, by as f64 / PG as f64);
        Extremes { most: self.ordered.last().map(in_pgs), fewest: self.ordered.first().map(in_pgs) }
    }
}

struct Pool {
    id: PoolId,
    layout: Rc<Layout>,
    /// CRUSH's answer for each PG, and where its copies belong: places of equal order.
    raw: Vec<Vec<i32>>,
    placed: Vec<Vec<i32>>,
    /// PGs by OSD.
    by_osd: BTreeMap<i32, Vec<u32>>,
    deviations: Deviations,
    /// PGs with a pair of OSDs in their exceptions that has no effect.
    untidy: BTreeSet<u32>,
    changed: BTreeSet<u32>,
}

/// Extent of an evening-out.
#[derive(Clone, Copy)]
enum Scope {
    Pool(usize),
    All,
}

/// A copy's move to another OSD.
struct Move {
    pool: usize,
    seed: u32,
    place: usize,
}

struct Balance {
    pools: Vec<Pool>,
    all: Deviations,
    limit: i64,
    changes_left: usize,
    moves: usize,
}

impl Balance {
    fn new(map: &OsdMap, counts: &dyn Fn(PoolId) -> bool, limits: Limits) -> Balance {
        let mut layouts: BTreeMap<u32, Rc<Layout>> = BTreeMap::new();
        let mut workspace = Workspace::default();
        let mut all = Deviations::default();
        let mut pools = Vec::new();
        for (&id, info) in map.pools.iter().filter(|(id, _)| counts(**id)) {
            let Some(rule) = map.crush.rule(info.crush_rule.into()) else { continue };
            let layout = layouts
                .entry(info.crush_rule.into())
                .or_insert_with(|| Rc::new(Layout::of(map, rule)))
                .clone();
            let pool = Pool::new(map, id, info.pg_num, layout, &mut workspace);
            pool.deviations.of.iter().for_each(|(osd, by)| all.add(*osd, *by));
            pools.push(pool);
        }
        let limit = i64::from(limits.deviation_max.max(1)) * PG;
        Balance { pools, all, limit, changes_left: limits.changes_max, moves: 0 }
    }

    fn evenness(&self) -> Evenness {
        let pools = self.pools.iter().map(|pool| (pool.id, pool.deviations.extremes())).collect();
        Evenness { pools, all: self.all.extremes() }
    }

    fn is_at_end(&self) -> bool {
        self.changes_left == 0
    }

    fn deviations(&self, scope: Scope) -> &Deviations {
        match scope {
            Scope::Pool(pool) => &self.pools[pool].deviations,
            Scope::All => &self.all,
        }
    }

    /// Moves copies until no OSD differs from its share by more than the limit, or nothing that is left can move.
    fn even_out(&mut self, scope: Scope) {
        let mut stuck = BTreeSet::new();
        while !self.is_at_end() {
            let ordered = &self.deviations(scope).ordered;
            let limit = self.limit;
            let has_too_many = ordered.iter().rev().take_while(|(by, _)| *by > limit);
            let has_too_few = ordered.iter().take_while(|(by, _)| *by < -limit);
            let Some(&(by, osd)) = has_too_many.chain(has_too_few).find(|(_, osd)| !stuck.contains(osd))
            else {
                return;
            };
            // A move between two OSDs helps if they differ by more than one PG.
            let others: Vec<i32> = match by > 0 {
                true => {
                    ordered.iter().take_while(|(other, _)| by - other > PG).map(|(_, osd)| *osd).collect()
                }
                false => ordered
                    .iter()
                    .rev()
                    .take_while(|(other, _)| other - by > PG)
                    .map(|(_, osd)| *osd)
                    .collect(),
            };
            let pair = |other: i32| if by > 0 { (osd, other) } else { (other, osd) };
            let found = others.into_iter().find_map(|other| {
                let (from, to) = pair(other);
                Some((self.find(scope, from, to)?, from, to))
            });
            match found {
                Some((step, from, to)) => self.carry_out(&step, from, to),
                None => drop(stuck.insert(osd)),
            }
        }
    }

    fn find(&self, scope: Scope, from: i32, to: i32) -> Option<Move> {
        let find = |pool: usize| {
            let (seed, place) = self.pools[pool].find(from, to)?;
            Some(Move { pool, seed, place })
        };
        match scope {
            Scope::Pool(pool) => find(pool),
            Scope::All => {
                let stays_even = |pool: &usize| {
                    let of = &self.pools[*pool].deviations;
                    of.get(from) - PG >= -self.limit && of.get(to) + PG <= self.limit
                };
                (0..self.pools.len()).filter(stays_even).find_map(find)
            }
        }
    }

    fn carry_out(&mut self, step: &Move, from: i32, to: i32) {
        let pool = &mut self.pools[step.pool];
        pool.placed[step.seed as usize][step.place] = to;
        pool.by_osd.entry(from).or_default().retain(|seed| *seed != step.seed);
        pool.by_osd.entry(to).or_default().push(step.seed);
        for deviations in [&mut pool.deviations, &mut self.all] {
            deviations.add(from, -PG);
            deviations.add(to, PG);
        }
        self.moves += 1;
        if pool.changed.insert(step.seed) {
            self.changes_left -= 1;
        }
    }

    fn tidy(&mut self) {
        for pool in &mut self.pools {
            for seed in std::mem::take(&mut pool.untidy) {
                let is_new = self.changes_left > 0 && pool.changed.insert(seed);
                self.changes_left -= usize::from(is_new);
            }
        }
    }

    fn upmaps(&self) -> BTreeMap<PgId, Vec<(i32, i32)>> {
        let of_pool = |pool: &Pool| {
            let changed = pool.changed.iter();
            changed.map(|seed| (PgId { pool: pool.id, seed: *seed }, pool.items(*seed))).collect::<Vec<_>>()
        };
        self.pools.iter().flat_map(of_pool).collect()
    }
}

impl Pool {
    fn new(map: &OsdMap, id: PoolId, pg_num: u32, layout: Rc<Layout>, workspace: &mut Workspace) -> Pool {
        let mut pool = Pool {
            id,
            raw: Vec::new(),
            placed: Vec::new(),
            by_osd: BTreeMap::new(),
            deviations: Deviations::default(),
            untidy: BTreeSet::new(),
            changed: BTreeSet::new(),
            layout,
        };
        let mut in_groups = vec![InGroup::default(); pool.layout.groups];
        let mut has_one = BTreeSet::new();
        for seed in 0..pg_num {
            let (raw, placed) = assigned(map, PgId { pool: id, seed }, workspace);
            has_one.clear();
            for osd in placed.iter().filter(|osd| **osd != ITEM_NONE) {
                pool.by_osd.entry(*osd).or_default().push(seed);
                if let Some(place) = pool.layout.places.get(osd) {
                    in_groups[place.group].copies += 1;
                    has_one.insert(place.group);
                }
            }
            has_one.iter().for_each(|group| in_groups[*group].pgs += 1);
            // An administrator's whole set is not the balancer's to change.
            let is_fixed = map.pg_upmap.contains_key(&PgId { pool: id, seed }) || raw.len() != placed.len();
            pool.raw.push(if is_fixed { Vec::new() } else { raw });
            pool.placed.push(placed);
            let pairs = map.pg_upmap_items.get(&PgId { pool: id, seed }).into_iter().flatten();
            if !is_fixed && pairs.clone().any(|pair| !pool.items(seed).contains(pair)) {
                pool.untidy.insert(seed);
            }
        }
        for (osd, share) in shares(&pool.layout, &in_groups) {
            let copies = pool.by_osd.get(&osd).map_or(0, Vec::len) as i64;
            pool.deviations.add(osd, copies * PG - share);
        }
        pool
    }

    /// A PG that can move a copy between these, and the copy's place.
    fn find(&self, from: i32, to: i32) -> Option<(u32, usize)> {
        let (here, there) = (*self.layout.places.get(&from)?, *self.layout.places.get(&to)?);
        if here.group != there.group || there.weight == 0 {
            return None;
        }
        let mut best: Option<(u8, u32, usize)> = None;
        for seed in self.by_osd.get(&from)? {
            let Some((cost, place)) = self.cost(*seed, from, to, there) else { continue };
            if best.is_none_or(|(least, ..)| cost < least) {
                best = Some((cost, *seed, place));
            }
            if cost == 0 {
                break;
            }
        }
        best.map(|(_, seed, place)| (seed, place))
    }

    /// Growth of the map by the move: 0 it ends an exception, 1 it changes one, 2 it adds to a PG's, 3 it adds a PG. `None`: it is not
    /// allowed.
    fn cost(&self, seed: u32, from: i32, to: i32, there: Place) -> Option<(u8, usize)> {
        let (raw, placed) = (&self.raw[seed as usize], &self.placed[seed as usize]);
        if raw.is_empty() {
            return None;
        }
        let place = placed.iter().position(|osd| *osd == from)?;
        let collides = |(at, osd): (usize, &i32)| {
            let of = || self.layout.places.get(osd);
            at != place
                && (*osd == to || of().is_some_and(|of| (of.group, of.domain) == (there.group, there.domain)))
        };
        if placed.iter().enumerate().any(collides) {
            return None;
        }
        if raw[place] == to {
            return Some((0, place));
        }
        // An exception to an OSD that CRUSH has chosen for another place counts for nothing.
        if raw.contains(&to) {
            return None;
        }
        let cost = match () {
            () if raw[place] != from => 1,
            () if raw != placed => 2,
            () => 3,
        };
        Some((cost, place))
    }

    fn items(&self, seed: u32) -> Vec<(i32, i32)> {
        let pairs = self.raw[seed as usize].iter().zip(&self.placed[seed as usize]);
        pairs.filter(|(from, to)| from != to).map(|(from, to)| (*from, *to)).collect()
    }
}
