//! The balancer: plans of upmaps and of primaries, made by hand or at intervals, and the state that `balancer status` shows.
//!
//! [`placement::balance`] makes a plan. Here is when one may be made: not while PGs are unknown, inactive or degraded, nor while more
//! than `target_max_misplaced_ratio` of the objects are on their way. `manager::balancing` has the timer and the monitors' answers.

mod plan;
mod score;
#[cfg(test)]
mod tests;

use crate::PgMap;
use crate::planted::{self, PlantedBug};
use command::{Answer, errno};
use placement::balance::{self, Limits};
pub(crate) use plan::Plan;
pub(crate) use score::{MEASURES, Score};
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{OsdMap, PgId, PgState, PoolId, UTime};

/// The copies of PGs are evened out.
pub(crate) const UPMAP: &str = "upmap";
/// The primaries of PGs are evened out.
pub(crate) const READ: &str = "read";
/// First the copies. When nothing is left to do for them, the primaries: a new primary of a PG that moves would move again.
pub(crate) const UPMAP_READ: &str = "upmap-read";

#[derive(Clone, Debug, Default)]
pub(crate) struct Balancer {
    pub plans: BTreeMap<String, Plan>,
    /// The last attempt, and what came of it.
    pub started: Option<UTime>,
    pub result: String,
    /// Some attempt found nothing to do, as stock's `no_optimization_needed` says.
    pub needs_nothing: bool,
}

/// Stock's words for an attempt that led to a plan.
const MADE: &str = "Optimization plan created successfully";

impl Balancer {
    pub fn note(&mut self, now: UTime, attempt: &Result<Plan, Answer>) {
        self.started = Some(now);
        match attempt {
            Ok(_) => MADE.clone_into(&mut self.result),
            Err(why) => {
                self.result.clone_from(&why.status);
                self.needs_nothing |= is_even(why);
            }
        }
    }
}

/// True if an attempt led to this answer because nothing is left to do.
pub(crate) fn is_even(why: &Answer) -> bool {
    why.result == -errno::EALREADY
}

/// A command's change of the balancer's state.
pub(crate) enum Change {
    /// Keep the plan of this name, if one was made.
    Attempt(String, Result<Plan, Answer>),
    Remove(String),
    RemoveAll,
    /// Have the monitors carry out the plan, and forget it.
    Execute(String),
}

/// The pools that the automatic balancer is limited to; none: it is not limited.
pub(crate) fn limited_to(text: &str) -> BTreeSet<PoolId> {
    text.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

/// Makes a plan, or says why there is none. `pools`: their names; empty for all.
pub(crate) fn attempt(pg_map: &PgMap, pools: &[String]) -> Result<Plan, Answer> {
    hindrance(pg_map).map_or_else(|| make_plan(pg_map, pools), Err)
}

fn make_plan(pg_map: &PgMap, pools: &[String]) -> Result<Plan, Answer> {
    let (map, options) = (&*pg_map.map, &pg_map.options);
    let mode = match options.balancer_mode.as_str() {
        UPMAP => UPMAP,
        READ => READ,
        UPMAP_READ => UPMAP_READ,
        _ => {
            let why = "Please do \"ceph balancer mode\" to choose a valid mode first";
            return Err(Answer::error(errno::ENOEXEC, why));
        }
    };
    if map.pools.is_empty() {
        return Err(Answer::error(errno::ENOENT, "No pools available"));
    }
    let chosen = pools_of(map, pools);
    // The number of its PGs falls: they are about to be merged.
    let is_shrinking =
        |pool: PoolId| map.pools.get(&pool).is_some_and(|info| info.pg_num > info.pg_num_target);
    let counts = |pool: PoolId| chosen.contains(&pool) && !is_shrinking(pool);
    // PGs that are neither recovering nor scrubbing.
    let is_clean =
        |pg: &PgId| pg_map.pgs.get(pg).is_some_and(|stat| stat.state == PgState::ACTIVE.with(PgState::CLEAN));
    let clean = pg_map.pgs.keys().filter(|pg| counts(pg.pool) && is_clean(pg)).count();
    let changes_max = options.balancer_changes_max.min(clean);
    let mut plan = Plan {
        mode,
        pools: pools.to_vec(),
        epoch: map.epoch,
        crush_version: map.crush_version,
        ..Plan::default()
    };
    if planted::has(PlantedBug::BalancerOscillates) {
        plan.upmaps = map.pg_upmap_items.keys().map(|pg| (*pg, Vec::new())).collect();
        plan.primaries = map.pg_upmap_primaries.keys().map(|pg| (*pg, None)).collect();
        if !plan.upmaps.is_empty() || !plan.primaries.is_empty() {
            return Ok(plan);
        }
    }
    if mode != READ {
        let limits = Limits { deviation_max: options.balancer_deviation_max, changes_max };
        plan.upmaps = balance::plan(map, &counts, limits).upmaps;
    }
    if mode != UPMAP && plan.upmaps.is_empty() {
        plan.primaries = balance::plan_primaries(map, &counts, changes_max);
    }
    if plan.upmaps.is_empty() && plan.primaries.is_empty() {
        let why = "Unable to find further optimization, or pool(s) pg_num is decreasing, or distribution is already perfect";
        return Err(Answer::error(errno::EALREADY, why));
    }
    Ok(plan)
}

/// Pools of these names; all, if there are none.
pub(crate) fn pools_of(map: &OsdMap, names: &[String]) -> BTreeSet<PoolId> {
    let is_meant = |(_, name): &(&PoolId, &String)| names.is_empty() || names.contains(name);
    map.pool_names.iter().filter(is_meant).map(|(pool, _)| *pool).collect()
}

/// The share of object copies that are on another OSD than the one that CRUSH names.
pub(crate) fn misplaced_ratio(pg_map: &PgMap) -> f64 {
    let sums = pg_map.pgs.values().map(|stat| &stat.stats.sum);
    let (copies, misplaced) = sums.fold((0i64, 0i64), |(copies, misplaced), sum| {
        (copies + sum.num_object_copies, misplaced + sum.num_objects_misplaced)
    });
    misplaced as f64 / copies.max(1) as f64
}

/// The reason for which nothing is to move now.
pub(crate) fn hindrance(pg_map: &PgMap) -> Option<Answer> {
    let (mut unknown, mut inactive) = (0u32, 0u32);
    let (mut copies, mut degraded, mut misplaced) = (0i64, 0i64, 0i64);
    for stat in pg_map.pgs.values() {
        unknown += u32::from(stat.state == PgState::UNKNOWN);
        inactive += u32::from(stat.state != PgState::UNKNOWN && !stat.state.has(PgState::ACTIVE));
        let sum = &stat.stats.sum;
        copies += sum.num_object_copies;
        degraded += sum.num_objects_degraded;
        misplaced += sum.num_objects_misplaced;
    }
    let of_pgs = |count: u32| f64::from(count) / pg_map.pgs.len().max(1) as f64;
    let of_copies = |count: i64| count as f64 / copies.max(1) as f64;
    let most = pg_map.options.misplaced_ratio_max;
    let why = match () {
        () if unknown > 0 => format!("Some PGs ({:.6}) are unknown; try again later", of_pgs(unknown)),
        () if degraded > 0 => {
            format!("Some objects ({:.6}) are degraded; try again later", of_copies(degraded))
        }
        () if inactive > 0 => format!("Some PGs ({:.6}) are inactive; try again later", of_pgs(inactive)),
        () if of_copies(misplaced) >= most && misplaced > 0 => {
            format!(
                "Too many objects ({:.6} > {most:.6}) are misplaced; try again later",
                of_copies(misplaced)
            )
        }
        () => return None,
    };
    Some(Answer::error(errno::EAGAIN, why))
}
