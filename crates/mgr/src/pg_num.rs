//! Steps towards a smaller number of PGs: which one a pool may take now.
//!
//! `pgp_num` comes first. It falls by so many PGs that the misplaced objects stay below `target_max_misplaced_ratio`, while
//! nothing is inactive or degraded. A PG and the one that it was split from then lie on the same OSDs, and may merge when both
//! are clean. A pool merges one PG at a time. (Ceph: `DaemonServer::adjust_pgs`.)

use crate::PgMap;
use crate::balancer;
use command::{Json, object};
use placement::pg::ancestor_among;
use wire::types::{OsdMap, PgId, PgPool, PgState, PoolFlags, PoolId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The placement groups that CRUSH tells apart.
    Place { pool: PoolId, pgp_num: u32 },
    /// The pool's last PG is to merge.
    Merge { pool: PoolId, pg_num: u32 },
    /// An exception to CRUSH keeps the PG away from the one that it merges with. The command that removes it.
    Release { pg: PgId, prefix: &'static str },
}

/// The steps that pools may take now. `may_merge`: an earlier attempt does not forbid the pool another one.
pub(crate) fn steps(pg_map: &PgMap, may_merge: impl Fn(PoolId) -> bool) -> Vec<Step> {
    let map = &*pg_map.map;
    let mut out = Vec::new();
    for (&id, pool) in map.pools.iter().filter(|(_, pool)| is_shrinking(pool)) {
        if pool.pgp_num_target < pool.pgp_num {
            out.extend(place(pg_map, id, pool));
        }
        if pool.pg_num_target < pool.pg_num && may_merge(id) {
            merge(pg_map, id, pool, &mut out);
        }
    }
    out
}

fn is_shrinking(pool: &PgPool) -> bool {
    (pool.pg_num_target < pool.pg_num || pool.pgp_num_target < pool.pgp_num)
        && pool.pg_num_target != 0
        && pool.pgp_num_target != 0
        && !pool.flags.has(PoolFlags::NOPGCHANGE)
        && !pool.flags.has(PoolFlags::CREATING)
}

fn place(pg_map: &PgMap, id: PoolId, pool: &PgPool) -> Option<Step> {
    if balancer::hindrance(pg_map).is_some() || !is_reported(pg_map, id, pool) {
        return None;
    }
    let room = (pg_map.options.misplaced_ratio_max - balancer::misplaced_ratio(pg_map)).max(0.0);
    let most = ((f64::from(pool.pg_num) * room) as u32).max(1);
    let pgp_num = pool.pgp_num.saturating_sub(most).max(pool.pgp_num_target);
    Some(Step::Place { pool: id, pgp_num })
}

/// Every PG of the pool was reported since the pool's last change: what moves because of it counts.
fn is_reported(pg_map: &PgMap, id: PoolId, pool: &PgPool) -> bool {
    (0..pool.pg_num).all(|seed| has_reported(pg_map, PgId { pool: id, seed }, pool))
}

fn has_reported(pg_map: &PgMap, pg: PgId, pool: &PgPool) -> bool {
    pg_map.pgs.get(&pg).is_some_and(|stat| stat.reported_epoch >= pool.last_change)
}

fn merge(pg_map: &PgMap, id: PoolId, pool: &PgPool, out: &mut Vec<Step>) {
    let pg_num = pool.pg_num - 1;
    if pool.pg_num_pending != pool.pg_num || pool.pgp_num > pg_num || pg_num == 0 {
        return;
    }
    let source = PgId { pool: id, seed: pg_num };
    let target = PgId { pool: id, seed: ancestor_among(pg_num, pg_num) };
    let releases: Vec<Step> =
        [source, target].into_iter().flat_map(|pg| exceptions(&pg_map.map, pg)).collect();
    if !releases.is_empty() {
        return out.extend(releases);
    }
    let is_clean = |pg: &PgId| {
        let state = pg_map.pgs[pg].state;
        state.has(PgState::ACTIVE.with(PgState::CLEAN)) && !state.has(PgState::STALE)
    };
    let is_quiet = [source, target].iter().all(|pg| has_reported(pg_map, *pg, pool) && is_clean(pg));
    if is_quiet && pg_map.pgs[&source].acting == pg_map.pgs[&target].acting {
        out.push(Step::Merge { pool: id, pg_num });
    }
}

/// The commands that remove a PG's upmaps.
fn exceptions(map: &OsdMap, pg: PgId) -> impl Iterator<Item = Step> {
    let found = [
        (map.pg_upmap.contains_key(&pg), "osd rm-pg-upmap"),
        (map.pg_upmap_items.contains_key(&pg), "osd rm-pg-upmap-items"),
        (map.pg_upmap_primaries.contains_key(&pg), "osd rm-pg-upmap-primary"),
    ];
    found.into_iter().filter(|(has_it, _)| *has_it).map(move |(_, prefix)| Step::Release { pg, prefix })
}

impl Step {
    /// The monitors' command.
    pub fn command(&self, map: &OsdMap) -> Option<Json> {
        let set = |pool: &PoolId, var: &str, value: u32| {
            let name = map.pool_names.get(pool)?;
            let prefix = "osd pool set";
            Some(
                object! { "prefix" => prefix, "pool" => name.as_str(), "var" => var, "val" => value.to_string() },
            )
        };
        match self {
            Step::Place { pool, pgp_num } => set(pool, "pgp_num_actual", *pgp_num),
            Step::Merge { pool, pg_num } => set(pool, "pg_num_actual", *pg_num),
            Step::Release { pg, prefix } => Some(object! { "prefix" => *prefix, "pgid" => pg.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{pg_map, report};
    use std::sync::Arc;

    /// Pool 1 with four clean PGs is to have fewer.
    fn shrinking(change: impl FnOnce(&mut OsdMap)) -> PgMap {
        let mut pg_map = pg_map();
        pg_map.options.misplaced_ratio_max = 0.05;
        let mut map = (*pg_map.map).clone();
        let pool = map.pools.get_mut(&1).unwrap();
        (pool.pgp_num, pool.pg_num_pending, pool.pg_num_target, pool.pgp_num_target) = (4, 4, 2, 2);
        pool.last_change = 2;
        change(&mut map);
        pg_map.map = Arc::new(map);
        pg_map
    }

    fn pool(map: &mut OsdMap) -> &mut PgPool {
        map.pools.get_mut(&1).unwrap()
    }

    fn all(pg_map: &PgMap) -> Vec<Step> {
        steps(pg_map, |_| true)
    }

    const PLACE: Step = Step::Place { pool: 1, pgp_num: 3 };
    const MERGE: Step = Step::Merge { pool: 1, pg_num: 3 };

    #[test]
    fn placement_shrinks_before_pgs_merge() {
        assert_eq!(all(&shrinking(|_| {})), [PLACE]);
        assert_eq!(
            all(&shrinking(|map| pool(map).pgp_num = 3)),
            [Step::Place { pool: 1, pgp_num: 2 }, MERGE]
        );
        assert_eq!(all(&shrinking(|map| pool(map).pgp_num = 2)), [MERGE]);
        assert!(all(&shrinking(|map| pool(map).pg_num_target = 0)).is_empty());
        let done = |map: &mut OsdMap| {
            let pool = pool(map);
            (pool.pg_num_target, pool.pgp_num_target) = (4, 4);
        };
        assert!(all(&shrinking(done)).is_empty());
        assert!(all(&shrinking(|map| pool(map).flags.set(PoolFlags::NOPGCHANGE, true))).is_empty());
    }

    #[test]
    fn pool_merges_one_pg_at_a_time() {
        let pending = |map: &mut OsdMap| {
            let pool = pool(map);
            (pool.pgp_num, pool.pg_num_pending) = (2, 3);
        };
        assert!(all(&shrinking(pending)).is_empty());
        let pg_map = shrinking(|map| pool(map).pgp_num = 2);
        assert!(steps(&pg_map, |_| false).is_empty());
    }

    #[test]
    fn pgs_that_are_not_quiet_together_do_not_merge() {
        // PG 3 was split from PG 1.
        let ready = || shrinking(|map| pool(map).pgp_num = 2);
        for (seed, acting, state) in [
            (3, [0, 1, 2], "active+recovering"),
            (1, [0, 1, 2], "peered+clean"),
            (3, [1, 0, 2], "active+clean"),
        ] {
            let mut pg_map = ready();
            report(&mut pg_map, seed, &acting, state, |_| {});
            assert!(!all(&pg_map).contains(&MERGE), "PG {seed} {state} on {acting:?}");
        }
        let mut pg_map = ready();
        report(&mut pg_map, 0, &[1, 0, 2], "active+clean", |_| {});
        assert_eq!(all(&pg_map), [MERGE], "another PG");
        let old = shrinking(|map| {
            pool(map).pgp_num = 2;
            pool(map).last_change = 3;
        });
        assert!(all(&old).is_empty(), "the reports are older than the pool's last change");
    }

    #[test]
    fn upmaps_of_merging_pgs_go_first() {
        let pg_map = shrinking(|map| {
            pool(map).pgp_num = 2;
            map.pg_upmap_items.insert(PgId { pool: 1, seed: 1 }, vec![(0, 1)]);
            map.pg_upmap_items.insert(PgId { pool: 1, seed: 2 }, vec![(0, 1)]);
        });
        let pg = PgId { pool: 1, seed: 1 };
        let release = Step::Release { pg, prefix: "osd rm-pg-upmap-items" };
        assert_eq!(all(&pg_map), [release]);
        let text = |step: Step| step.command(&pg_map.map).unwrap().compact();
        assert_eq!(text(release), r#"{"prefix":"osd rm-pg-upmap-items","pgid":"1.1"}"#);
        let set = r#"{"prefix":"osd pool set","pool":"data","var":"pg_num_actual","val":"3"}"#;
        assert_eq!(text(MERGE), set);
    }

    #[test]
    fn degraded_objects_hold_placement_back() {
        let mut pg_map = shrinking(|_| {});
        report(&mut pg_map, 0, &[0, 1], "active+undersized+degraded", |stat| {
            stat.stats.sum.num_objects_degraded = 10;
        });
        assert!(all(&pg_map).is_empty());
    }
}
