//! Roots: the buckets from which the rules of pools take, as the evaluation of a distribution counts.

use super::layout::segments;
use std::collections::BTreeMap;
use wire::types::{OsdMap, PoolId};

/// Pools and OSDs of a bucket from which rules take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Root {
    pub pools: Vec<PoolId>,
    /// OSDs that are in, by their part of the root's weight.
    pub shares: BTreeMap<i32, f64>,
}

/// By the bucket's number, in ascending order.
pub fn roots(map: &OsdMap, counts: &dyn Fn(PoolId) -> bool) -> BTreeMap<i32, Root> {
    let mut roots: BTreeMap<i32, Root> = BTreeMap::new();
    for (pool, info) in map.pools.iter().filter(|(pool, _)| counts(**pool)) {
        let Some(rule) = map.crush.rule(info.crush_rule.into()) else { continue };
        for segment in segments(rule) {
            let root = roots.entry(segment.take).or_default();
            if !root.pools.contains(pool) {
                root.pools.push(*pool);
            }
        }
    }
    for (bucket, root) in &mut roots {
        let mut weights = BTreeMap::new();
        weigh(map, *bucket, 0, &mut weights);
        let all: f64 = weights.values().sum();
        root.shares = weights.into_iter().map(|(osd, weight)| (osd, weight / all)).collect();
    }
    roots
}

fn weigh(map: &OsdMap, bucket: i32, depth: usize, weights: &mut BTreeMap<i32, f64>) {
    let Some(bucket) = map.crush.bucket(bucket).filter(|_| depth < super::layout::DEPTH_MAX) else { return };
    for (at, item) in bucket.items.iter().enumerate() {
        let Ok(osd) = usize::try_from(*item) else {
            weigh(map, *item, depth + 1, weights);
            continue;
        };
        let is_in = map.osds.get(osd).filter(|row| map.exists(*item) && row.weight > 0);
        let weight = is_in.map_or(0.0, |row| f64::from(bucket.item_weight(at)) * f64::from(row.weight));
        if weight > 0.0 {
            weights.insert(*item, weight);
        }
    }
}
