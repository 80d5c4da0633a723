//! The differences between two OSDMaps that bear on placement.

use super::rows;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::types::crush::step;
use wire::types::{CrushMap, OsdMap, PgId, PgPool, PoolFlags, PoolId};

/// The OSDs that differ.
pub(super) struct OsdChanges {
    /// By OSD.
    kinds: Vec<u8>,
    weight_bits: u32,
    is_empty: bool,
}

impl OsdChanges {
    /// CRUSH may answer otherwise.
    pub(super) const WEIGHT: u8 = 1;
    /// Existence, up or down, or primary affinity.
    pub(super) const STATE: u8 = 2;

    pub(super) fn between(before: &OsdMap, next: &OsdMap) -> OsdChanges {
        let kind = |osd: i32| {
            // More than 1.0 is as good as 1.0 to CRUSH.
            let weight = |map: &OsdMap| map.weight(osd).min(OsdMap::WEIGHT_IN);
            let state = |map: &OsdMap| (map.exists(osd), map.is_up(osd), map.primary_affinity_of(osd));
            let weight_kind = if weight(before) == weight(next) { 0 } else { OsdChanges::WEIGHT };
            let state_kind = if state(before) == state(next) { 0 } else { OsdChanges::STATE };
            weight_kind | state_kind
        };
        let kinds: Vec<u8> = (0..before.max_osd().max(next.max_osd())).map(kind).collect();
        let reweighted = (0i32..).zip(&kinds).filter(|(_, kind)| **kind & OsdChanges::WEIGHT != 0);
        OsdChanges {
            weight_bits: reweighted.fold(0, |all, (osd, _)| all | rows::bit(osd)),
            is_empty: kinds.iter().all(|kind| *kind == 0),
            kinds,
        }
    }

    /// The kinds of change of an OSD; 0 for none, and for numbers that are no OSD's.
    #[inline]
    pub(super) fn of(&self, osd: i32) -> u8 {
        self.kinds.get(osd as u32 as usize).copied().unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The OSDs whose weight changed, each as [`rows::bit`].
    pub(super) fn weight_bits(&self) -> u32 {
        self.weight_bits
    }
}

/// Adds the PGs that have an exception to CRUSH's answer in one map only, another one than before, or one that names
/// an OSD of `osds`.
pub(super) fn exceptions(before: &OsdMap, next: &OsdMap, osds: &OsdChanges, found: &mut Vec<PgId>) {
    differing(&before.pg_temp, &next.pg_temp, found);
    differing(&before.primary_temp, &next.primary_temp, found);
    differing(&before.pg_upmap, &next.pg_upmap, found);
    differing(&before.pg_upmap_items, &next.pg_upmap_items, found);
    differing(&before.pg_upmap_primaries, &next.pg_upmap_primaries, found);
    if osds.is_empty() {
        return;
    }
    let is_changed = |osd: &i32| osds.of(*osd) != 0;
    naming(&next.pg_temp, |set| set.iter().any(is_changed), found);
    naming(&next.pg_upmap, |set| set.iter().any(is_changed), found);
    naming(&next.pg_upmap_items, |pairs| pairs.iter().any(|(_, to)| is_changed(to)), found);
    naming(&next.pg_upmap_primaries, is_changed, found);
}

fn naming<V>(exceptions: &BTreeMap<PgId, V>, is_changed: impl Fn(&V) -> bool, found: &mut Vec<PgId>) {
    found.extend(exceptions.iter().filter(|(_, value)| is_changed(value)).map(|(pg, _)| *pg));
}

/// Adds the keys whose values differ, or that one map lacks.
fn differing<V: PartialEq>(before: &BTreeMap<PgId, V>, next: &BTreeMap<PgId, V>, found: &mut Vec<PgId>) {
    let (mut old, mut new) = (before.iter().peekable(), next.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let old = if order.is_le() { old.next() } else { None };
        let new = if order.is_ge() { new.next() } else { None };
        if old != new {
            found.extend(old.or(new).map(|(pg, _)| *pg));
        }
    }
}

/// True if CRUSH gives the same answer for a pool's placement seed under both maps, as far as weights of OSDs are the
/// same. The pool is in both.
pub(super) fn has_same_crush(before: &OsdMap, next: &OsdMap, id: PoolId) -> bool {
    let inputs = |pool: &PgPool| (pool.crush_rule, pool.size, pool.flags.has(PoolFlags::HASHPSPOOL));
    let (old, new) = (&before.pools[&id], &next.pools[&id]);
    inputs(old) == inputs(new) && has_same_hierarchy(&before.crush, &next.crush, id, new.crush_rule.into())
}

/// True if the rule, and all buckets and weight sets that it reaches, are equal.
fn has_same_hierarchy(before: &Arc<CrushMap>, next: &Arc<CrushMap>, pool: PoolId, rule: u32) -> bool {
    if Arc::ptr_eq(before, next) {
        return true;
    }
    // The length of the list of buckets bounds a descent. It grows by doubling, so it is compared without regret.
    let bounds = |map: &CrushMap| (map.tunables, map.max_devices, map.buckets.len());
    if bounds(before) != bounds(next) || before.rule(rule) != next.rule(rule) {
        return false;
    }
    let Some(rule) = before.rule(rule) else { return true };
    let (old_args, new_args) = (before.choose_args_for(pool), next.choose_args_for(pool));
    let mut is_seen = vec![false; before.buckets.len()];
    let takes = rule.steps.iter().filter(|step| step.op == step::TAKE);
    let mut open: Vec<i32> = takes.map(|step| step.arg1).collect();
    while let Some(item) = open.pop() {
        let index = CrushMap::bucket_index(item).filter(|index| *index < is_seen.len());
        let Some(index) = index.filter(|index| !std::mem::replace(&mut is_seen[*index], true)) else {
            continue;
        };
        let key = index as u32;
        let has_same_args = old_args.and_then(|a| a.get(&key)) == new_args.and_then(|a| a.get(&key));
        if before.buckets[index] != next.buckets[index] || !has_same_args {
            return false;
        }
        open.extend(before.buckets[index].iter().flat_map(|bucket| &bucket.items));
    }
    true
}

/// True if the same answer of CRUSH means the same for a PG under both rows of its pool.
pub(super) fn resolves_alike(old: &PgPool, new: &PgPool) -> bool {
    let inputs = |pool: &PgPool| {
        (pool.can_shift_osds(), pool.flags.has(PoolFlags::EC_OPTIMIZATIONS), pool.nonprimary_shards)
    };
    inputs(old) == inputs(new)
}
