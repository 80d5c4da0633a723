//! Score: one number for the evenness of a distribution, computed as stock computes it. 0 is even, and less is better.
//!
//! For each root and each of PGs, objects and bytes: the load of an OSD is divided by its part of the root's weight; an OSD whose load
//! is above the mean counts with its part, times twice the normal distribution's integral from the mean to its excess in
//! units of the mean. The score is the mean over roots and the three measures (`Eval.calc_stats` of the balancer module).

use crate::PgMap;
use placement::Mapper;
use placement::balance::{Root, roots};
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{OsdMap, PgId, PoolId};

pub(crate) const MEASURES: [&str; 3] = ["pgs", "objects", "bytes"];

/// Load of the OSDs of a root.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    pub by_osd: BTreeMap<i32, f64>,
    pub total: f64,
    pub score: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Score {
    pub value: f64,
    /// By the root's name, in the order of [`MEASURES`].
    pub roots: BTreeMap<String, (Root, [Load; 3])>,
}

impl Score {
    /// The distribution of these pools under a map, which may have a plan's upmaps.
    pub fn of(pg_map: &PgMap, map: &OsdMap, pools: &BTreeSet<PoolId>) -> Score {
        let mut mapper = Mapper::default();
        let roots = roots(map, &|pool| pools.contains(&pool));
        let mut loads: BTreeMap<i32, [BTreeMap<i32, f64>; 3]> = BTreeMap::new();
        for (bucket, root) in &roots {
            let empty: BTreeMap<i32, f64> = root.shares.keys().map(|osd| (*osd, 0.0)).collect();
            loads.insert(*bucket, [empty.clone(), empty.clone(), empty]);
        }
        let pgs = map.pools.iter().filter(|(pool, _)| pools.contains(pool));
        for pg in pgs.flat_map(|(pool, info)| (0..info.pg_num).map(|seed| PgId { pool: *pool, seed })) {
            let sum = pg_map.pgs.get(&pg).map(|stat| stat.stats.sum).unwrap_or_default();
            let of_pg = [1.0, sum.num_objects as f64, sum.num_bytes as f64];
            for osd in &mapper.map(map, pg).up {
                // An OSD below two roots counts for the first.
                let of_osd = roots
                    .iter()
                    .filter(|(_, root)| root.pools.contains(&pg.pool))
                    .find_map(|(bucket, root)| root.shares.contains_key(osd).then_some(*bucket));
                let Some(measures) = of_osd.and_then(|bucket| loads.get_mut(&bucket)) else { continue };
                for (by_osd, more) in measures.iter_mut().zip(of_pg) {
                    *by_osd.entry(*osd).or_default() += more;
                }
            }
        }
        let of_root = |(bucket, root): (i32, Root)| {
            let name = map.crush.item_names.get(&bucket).cloned().unwrap_or_else(|| bucket.to_string());
            let loads = loads.remove(&bucket).expect("made above").map(|by_osd| load(&root, by_osd));
            (name, (root, loads))
        };
        let roots: BTreeMap<String, (Root, [Load; 3])> = roots.into_iter().map(of_root).collect();
        let scores = roots.values().flat_map(|(_, loads)| loads.iter().map(|load| load.score));
        let value = scores.sum::<f64>() / (3 * roots.len().max(1)) as f64;
        Score { value, roots }
    }
}

fn load(root: &Root, by_osd: BTreeMap<i32, f64>) -> Load {
    let total: f64 = by_osd.values().sum();
    let osds = root.shares.len().max(1) as f64;
    let mean = total / osds;
    let (mut score, mut weights) = (0.0, 0.0);
    for (osd, load) in by_osd.iter().filter(|_| total > 0.0) {
        let share = root.shares[osd];
        let adjusted = load / share / osds;
        if adjusted > mean {
            score += share * libm::erf((adjusted - mean) / mean / std::f64::consts::SQRT_2);
            weights += share;
        }
    }
    Load { by_osd, total, score: score / f64::max(weights, 1.0) }
}
