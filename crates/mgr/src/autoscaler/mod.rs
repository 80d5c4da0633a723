//! The autoscaler: the number of PGs that each pool should have, from its share of the space.
//!
//! The OSDs under a CRUSH root have `mon_target_pg_per_osd` PG copies each to give away. Pools without the flag `bulk` get the
//! part of them that their share of the space is, and at least [`PG_NUM_MIN`] PGs. Pools with it share the rest evenly, but for
//! those that use more than an even share. A number of PGs changes when it is wrong by more than a factor, 3 by default, so that
//! a pool near a limit does not go back and forth. Pools whose roots overlap are left alone.
//! (Ceph: `pybind/mgr/pg_autoscaler/module.py`.)

#[cfg(test)]
mod tests;

use crate::PgMap;
use placement::crush::edit::osds_below;
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{OsdMap, PgPool, PoolFlags, PoolId, PoolOption, PoolOptionValue};

/// PGs of a pool without the option `pg_num_min`, at least.
const PG_NUM_MIN: u32 = 32;

/// One pool, as `osd pool autoscale-status` shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolScale {
    pub id: PoolId,
    pub name: String,
    pub root: i32,
    pub mode: u8,
    pub pg_num_target: u32,
    pub logical_used: f64,
    pub target_bytes: f64,
    /// Raw bytes for each logical one.
    pub rate: f64,
    pub capacity: f64,
    pub target_ratio: f64,
    pub effective_ratio: f64,
    /// The share of the space that counts: of the bytes, or a target.
    pub capacity_ratio: f64,
    pub bias: f64,
    pub is_bulk: bool,
    pub pg_num_ideal: u32,
    pub pg_num_final: u32,
    /// The number of PGs is wrong by more than the threshold.
    pub is_off: bool,
}

impl PoolScale {
    pub fn actual_raw_used(&self) -> f64 {
        self.logical_used * self.rate
    }

    pub fn raw_used(&self) -> f64 {
        self.logical_used.max(self.target_bytes) * self.rate
    }

    pub fn would_adjust(&self) -> bool {
        self.is_off && self.mode == PgPool::AUTOSCALE_ON
    }
}

/// The OSDs that pools with one CRUSH root share.
#[derive(Clone, Debug, Default)]
struct Root {
    osds: BTreeSet<i32>,
    pools: u32,
    /// Pools that have their PGs already.
    pools_done: u32,
    capacity: f64,
    /// PG copies that are not given away.
    copies_left: f64,
    target_ratios: f64,
    target_bytes: f64,
    overlaps: bool,
}

/// Every pool that can be scaled, in the order of the passes.
pub(crate) fn scales(pg_map: &PgMap) -> Vec<PoolScale> {
    let map = &*pg_map.map;
    let mut roots = roots_of(pg_map);
    let (_, stats) = pg_map.sums();
    let mut out = Vec::new();
    let mut bulk = Vec::new();
    for (&id, pool) in &map.pools {
        let Some((root_id, root)) = root_id_of(map, pool).and_then(|id| Some((id, roots.get_mut(&id)?)))
        else {
            continue;
        };
        if root.overlaps || root.capacity == 0.0 {
            continue;
        }
        let stored = stats.get(&id).map_or(0.0, |stat| pg_map.stored(pool, stat));
        let scale = scale_of(map, id, pool, root_id, root, stored);
        match scale.is_bulk {
            true => bulk.push(scale),
            false => {
                let copies = scale.capacity_ratio * root.copies_left;
                out.push(finish(pg_map, scale, root, copies));
            }
        }
    }
    let mut even = Vec::new();
    for scale in bulk {
        let Some(root) = roots.get_mut(&scale.root) else { continue };
        match scale.capacity_ratio > even_ratio(root) {
            true => {
                let copies = scale.capacity_ratio * root.copies_left;
                out.push(finish(pg_map, scale, root, copies));
            }
            false => even.push(scale),
        }
    }
    for scale in even {
        let Some(root) = roots.get(&scale.root) else { continue };
        let copies = even_ratio(root) * root.copies_left;
        out.push(finish(pg_map, scale, &mut root.clone(), copies));
    }
    out
}

fn even_ratio(root: &Root) -> f64 {
    1.0 / f64::from(root.pools.saturating_sub(root.pools_done).max(1))
}

/// Gives the pool its part of the PG copies.
fn finish(pg_map: &PgMap, mut scale: PoolScale, root: &mut Root, copies: f64) -> PoolScale {
    let pool = &pg_map.map.pools[&scale.id];
    root.copies_left -= copies.trunc();
    root.pools_done += 1;
    let ideal = copies / f64::from(pool.size).max(1.0) * scale.bias;
    let least = number(pool, PoolOption::PG_NUM_MIN).map_or(PG_NUM_MIN, |least| least as u32);
    let most = number(pool, PoolOption::PG_NUM_MAX).map_or(u32::MAX, |most| most as u32);
    scale.pg_num_ideal = ideal as u32;
    scale.pg_num_final = nearest_power_of_two(ideal).max(least).min(most);
    let (target, wanted) = (f64::from(scale.pg_num_target), f64::from(scale.pg_num_final));
    let threshold = pg_map.options.autoscale_threshold.max(1.0);
    let is_wrong = wanted > target * threshold || wanted < target / threshold;
    scale.is_off = is_wrong && (0.0..=1.0).contains(&scale.capacity_ratio);
    scale
}

fn scale_of(map: &OsdMap, id: PoolId, pool: &PgPool, root_id: i32, root: &Root, stored: f64) -> PoolScale {
    let rate = f64::from(pool.size);
    let target_ratio = number(pool, PoolOption::TARGET_SIZE_RATIO).unwrap_or(0.0);
    // A ratio goes before bytes.
    let target_bytes = if target_ratio == 0.0 { target_bytes_of(pool) } else { 0.0 };
    let effective_ratio = effective_ratio(target_ratio, root);
    let used = stored.max(target_bytes) * rate / root.capacity;
    PoolScale {
        id,
        name: map.pool_names.get(&id).cloned().unwrap_or_default(),
        root: root_id,
        mode: pool.pg_autoscale_mode,
        pg_num_target: pool.pg_num_target,
        logical_used: stored,
        target_bytes,
        rate,
        capacity: root.capacity,
        target_ratio,
        effective_ratio,
        capacity_ratio: used.max(effective_ratio),
        bias: number(pool, PoolOption::PG_AUTOSCALE_BIAS).unwrap_or(1.0),
        is_bulk: pool.flags.has(PoolFlags::BULK),
        pg_num_ideal: 0,
        pg_num_final: 0,
        is_off: false,
    }
}

fn target_bytes_of(pool: &PgPool) -> f64 {
    number(pool, PoolOption::TARGET_SIZE_BYTES).unwrap_or(0.0)
}

/// A pool's target ratio among those of its root, of the space that targets in bytes leave.
fn effective_ratio(target: f64, root: &Root) -> f64 {
    let share = if root.target_ratios > 0.0 { target / root.target_ratios } else { target };
    let taken =
        if root.target_bytes > 0.0 && root.capacity > 0.0 { root.target_bytes / root.capacity } else { 0.0 };
    share * (1.0 - taken.min(1.0))
}

fn number(pool: &PgPool, option: PoolOption) -> Option<f64> {
    match pool.options.0.get(&option)? {
        PoolOptionValue::Integer(value) => Some(*value as f64),
        PoolOptionValue::Real(value) => Some(*value),
        PoolOptionValue::Text(_) => None,
    }
    .filter(|value| *value > 0.0)
}

/// The nearest power of two, the lower one of two that are as near.
fn nearest_power_of_two(n: f64) -> u32 {
    let whole = (n as u32).clamp(1, 1 << 31);
    let high = whole.next_power_of_two();
    let low = high / 2;
    if f64::from(high) - n > n - f64::from(low) { low } else { high }
}

/// The bucket that a pool's rule takes first.
fn root_id_of(map: &OsdMap, pool: &PgPool) -> Option<i32> {
    const TAKE: u32 = 1;
    let rule = map.crush.rule(pool.crush_rule.into())?;
    rule.steps.iter().find(|step| step.op == TAKE).map(|step| step.arg1)
}

fn roots_of(pg_map: &PgMap) -> BTreeMap<i32, Root> {
    let map = &*pg_map.map;
    let mut roots: BTreeMap<i32, Root> = BTreeMap::new();
    for pool in map.pools.values() {
        let Some(id) = root_id_of(map, pool) else { continue };
        let root =
            roots.entry(id).or_insert_with(|| Root { osds: osds_below(&map.crush, id), ..Root::default() });
        root.pools += 1;
        match number(pool, PoolOption::TARGET_SIZE_RATIO) {
            Some(ratio) => root.target_ratios += ratio,
            None => root.target_bytes += target_bytes_of(pool) * f64::from(pool.size),
        }
    }
    let all: Vec<(i32, BTreeSet<i32>)> = roots.iter().map(|(id, root)| (*id, root.osds.clone())).collect();
    let per_osd = f64::from(pg_map.options.autoscale_pgs_per_osd);
    for (id, root) in &mut roots {
        root.overlaps = all.iter().any(|(other, osds)| other != id && !osds.is_disjoint(&root.osds));
        root.copies_left = root.osds.len() as f64 * per_osd;
        let stats = root.osds.iter().filter_map(|osd| pg_map.osds.get(osd));
        root.capacity = stats.map(|stat| (stat.statfs.total >> 10 << 10) as f64).sum();
    }
    roots
}
