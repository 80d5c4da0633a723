//! Balance of primaries: exceptions (`pg_upmap_primaries`) that give every OSD its share of the PGs that it serves reads of.
//!
//! As Ceph's read balancer (`OSDMap::balance_primaries`): an OSD's share of a replicated pool's primaries is the number of its PGs by the
//! pool's size, times its primary affinity, scaled to the pool. A PG's primary changes to the member that is furthest below its share,
//! while the two differ by more than one PG. Each change lessens the sum of the squares of the differences, so a plan ends, and a
//! balanced pool is left alone. No data moves.

use crate::Mapper;
use std::collections::BTreeMap;
use wire::types::{OsdMap, PgId, PgPool, PoolId};

/// The least by which two OSDs differ when a primary changes from one to the other.
const GAIN_MIN: f64 = 1.0;

/// Passes over the PGs of a pool. A pass without a change is the last one.
const PASSES_MAX: usize = 100;

/// A PG of the pool and its members.
struct Group {
    pg: PgId,
    up: Vec<i32>,
    primary: i32,
    /// Without an exception.
    natural: i32,
    old: i32,
}

/// New primaries for PGs of the pools that count; none: the PG's exception ends. At most `changes_max`.
pub fn plan_primaries(
    map: &OsdMap,
    counts: &dyn Fn(PoolId) -> bool,
    changes_max: usize,
) -> BTreeMap<PgId, Option<i32>> {
    let plain = OsdMap { pg_upmap_primaries: BTreeMap::new(), ..map.clone() };
    let mut changes = BTreeMap::new();
    for (pool, info) in map.pools.iter().filter(|(pool, info)| counts(**pool) && !info.is_erasure()) {
        let left = changes_max - changes.len();
        changes.extend(plan_pool(map, &plain, *pool, info, left));
    }
    changes
}

/// Puts new primaries into a map; none ends a PG's exception.
pub fn apply_primaries(primaries: &BTreeMap<PgId, Option<i32>>, map: &mut OsdMap) {
    for (pg, primary) in primaries {
        match primary {
            None => drop(map.pg_upmap_primaries.remove(pg)),
            Some(osd) => drop(map.pg_upmap_primaries.insert(*pg, *osd)),
        }
    }
}

/// The greatest number of primaries of an OSD beyond its share, by pool. Replicated pools alone.
pub fn primaries_beyond_share(map: &OsdMap, counts: &dyn Fn(PoolId) -> bool) -> BTreeMap<PoolId, f64> {
    let pools = map.pools.iter().filter(|(pool, info)| counts(**pool) && !info.is_erasure());
    let most = |(pool, info): (&PoolId, &PgPool)| {
        let groups = groups(map, map, *pool, info);
        let most = scores(map, &groups, info).into_values().fold(0.0, f64::max);
        (*pool, most)
    };
    pools.map(most).collect()
}

fn groups(map: &OsdMap, plain: &OsdMap, pool: PoolId, info: &PgPool) -> Vec<Group> {
    let mut mapper = Mapper::default();
    let mut out = Vec::new();
    for pg in (0..info.pg_num).map(|seed| PgId { pool, seed }) {
        let natural = mapper.map(plain, pg).up_primary;
        let placed = mapper.map(map, pg);
        // A PG with another acting set has work to do first.
        if placed.up_primary >= 0 && placed.acting == placed.up {
            let (primary, old) = (placed.up_primary, placed.up_primary);
            out.push(Group { pg, up: placed.up.clone(), primary, natural, old });
        }
    }
    out
}

/// The primaries of each OSD beyond its share.
fn scores(map: &OsdMap, groups: &[Group], info: &PgPool) -> BTreeMap<i32, f64> {
    let mut shares: BTreeMap<i32, f64> = BTreeMap::new();
    for osd in groups.iter().flat_map(|group| &group.up) {
        *shares.entry(*osd).or_default() += affinity(map, *osd) / f64::from(info.size.max(1));
    }
    let sum: f64 = shares.values().sum();
    // Nobody wants to be primary: everybody is as good as another.
    let scale = if sum > 0.0 { groups.len() as f64 / sum } else { 0.0 };
    let mut scores: BTreeMap<i32, f64> =
        shares.into_iter().map(|(osd, share)| (osd, -share * scale)).collect();
    for group in groups {
        *scores.entry(group.primary).or_default() += 1.0;
    }
    scores
}

fn affinity(map: &OsdMap, osd: i32) -> f64 {
    f64::from(map.primary_affinity_of(osd)) / f64::from(OsdMap::DEFAULT_PRIMARY_AFFINITY)
}

fn plan_pool(
    map: &OsdMap,
    plain: &OsdMap,
    pool: PoolId,
    info: &PgPool,
    changes_max: usize,
) -> BTreeMap<PgId, Option<i32>> {
    let mut groups = groups(map, plain, pool, info);
    let mut scores = scores(map, &groups, info);
    let mut changed = 0;
    for _ in 0..PASSES_MAX {
        let mut has_moved = false;
        for group in &mut groups {
            // One that returns to its old primary costs no change.
            if changed >= changes_max && group.primary == group.old {
                continue;
            }
            let others = group.up.iter().copied().filter(|osd| affinity(map, *osd) > 0.0);
            let Some(least) = others.min_by(|a, b| scores[a].total_cmp(&scores[b])) else { continue };
            if scores[&group.primary] - scores[&least] <= GAIN_MIN {
                continue;
            }
            changed += usize::from(group.primary == group.old);
            *scores.entry(group.primary).or_default() -= 1.0;
            *scores.entry(least).or_default() += 1.0;
            group.primary = least;
            has_moved = true;
        }
        if !has_moved {
            break;
        }
    }
    let moved = groups.iter().filter(|group| group.primary != group.old);
    let wanted = |group: &Group| (group.pg, (group.primary != group.natural).then_some(group.primary));
    let mut plan: BTreeMap<PgId, Option<i32>> = moved.map(wanted).collect();
    // An OSD with a low affinity passes the office on again.
    let mut next = map.clone();
    apply_primaries(&plan, &mut next);
    let mut mapper = Mapper::default();
    for group in groups.iter().filter(|group| group.primary != group.old) {
        if mapper.map(&next, group.pg).up_primary != group.primary {
            plan.remove(&group.pg);
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cluster, coded, pool};
    use super::*;

    const ALL: &dyn Fn(PoolId) -> bool = &|_| true;

    fn uneven() -> OsdMap {
        let mut map = cluster(&[&[1], &[1], &[1], &[1], &[1], &[1]]);
        map.pools = [(1, pool(64, 3)), (2, coded(32, 3))].into();
        map
    }

    fn applied(map: &OsdMap, plan: &BTreeMap<PgId, Option<i32>>) -> OsdMap {
        let mut next = map.clone();
        apply_primaries(plan, &mut next);
        next
    }

    #[test]
    fn primaries_come_within_one_pg_of_their_shares() {
        let map = uneven();
        let before = primaries_beyond_share(&map, ALL)[&1];
        let plan = plan_primaries(&map, ALL, usize::MAX);
        let next = applied(&map, &plan);
        let after = primaries_beyond_share(&next, ALL);
        assert!(before > 1.5 && after[&1] <= 1.0, "{before} {after:?}");
        assert!(
            !after.contains_key(&2) && plan.keys().all(|pg| pg.pool == 1),
            "erasure-coded pools have shards"
        );
        let (mut old, mut new) = (Mapper::default(), Mapper::default());
        for seed in 0..64 {
            let pg = PgId { pool: 1, seed };
            let (mut before, mut after) = (old.map(&map, pg).up.clone(), new.map(&next, pg).up.clone());
            before.sort_unstable();
            after.sort_unstable();
            assert_eq!(before, after, "no data moves");
            let wanted = plan.get(&pg).copied().flatten();
            assert_eq!(wanted.unwrap_or(old.map(&map, pg).up_primary), new.map(&next, pg).up_primary);
        }
        assert!(plan_primaries(&next, ALL, usize::MAX).is_empty(), "a balanced pool is left alone");
    }

    #[test]
    fn plan_keeps_to_its_number_of_changes_and_ends_in_steps() {
        let mut map = uneven();
        for step in 0.. {
            let plan = plan_primaries(&map, ALL, 2);
            if plan.is_empty() {
                assert!(step > 1);
                break;
            }
            assert!(plan.len() <= 2 && step < 64);
            map = applied(&map, &plan);
        }
        assert!(primaries_beyond_share(&map, ALL)[&1] <= 1.0);
    }

    #[test]
    fn osd_without_affinity_gets_no_primary() {
        let mut map = uneven();
        let mut affinity = vec![OsdMap::DEFAULT_PRIMARY_AFFINITY; 6];
        affinity[2] = 0;
        map.primary_affinity = Some(affinity);
        let next = applied(&map, &plan_primaries(&map, ALL, usize::MAX));
        let mut mapper = Mapper::default();
        let with = |seed| PgId { pool: 1, seed };
        assert!((0..64).all(|seed| mapper.map(&next, with(seed)).up_primary != 2));
        assert!(primaries_beyond_share(&next, ALL)[&1] <= 1.0);
    }

    #[test]
    fn exception_that_names_the_natural_primary_ends() {
        let mut map = uneven();
        // All PGs that osd.0 has are served by it.
        let mut mapper = Mapper::default();
        for pg in (0..64).map(|seed| PgId { pool: 1, seed }) {
            let placed = mapper.map(&map, pg).clone();
            if placed.up.contains(&0) && placed.up_primary != 0 {
                map.pg_upmap_primaries.insert(pg, 0);
            }
        }
        let plan = plan_primaries(&map, ALL, usize::MAX);
        assert!(plan.values().any(Option::is_none), "{plan:?}");
        assert!(primaries_beyond_share(&applied(&map, &plan), ALL)[&1] <= 1.0);
    }
}
