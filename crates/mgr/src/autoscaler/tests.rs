//! Decisions on made-up clusters. The expected numbers are those of stock's module (16.2.15) for the same input.

use super::*;
use crate::fixture::{pg_map, place};
use std::sync::Arc;

const GIB: i64 = 1 << 30;

/// Ten OSDs of 100 GiB, and pools of size 3 with these stored GiB, PGs, and the flag `bulk`.
fn cluster(pools: &[(i64, u32, bool)]) -> PgMap {
    let mut pg_map = pg_map();
    pg_map.options.autoscale_pgs_per_osd = 100;
    pg_map.options.autoscale_threshold = 3.0;
    let mut map = (*pg_map.map).clone();
    map.osds = vec![map.osds[0].clone(); 10];
    let pool = map.pools.remove(&1).unwrap();
    for (id, (_, pg_num, is_bulk)) in (1..).zip(pools) {
        let mut pool = PgPool { pg_num: *pg_num, pg_num_target: *pg_num, ..pool.clone() };
        pool.pg_autoscale_mode = PgPool::AUTOSCALE_ON;
        pool.flags.set(PoolFlags::BULK, *is_bulk);
        map.pools.insert(id, pool);
        map.pool_names.insert(id, format!("p{id}"));
    }
    pg_map.map = Arc::new(map);
    let osds: Vec<(i32, &str, f64)> = (0..10).map(|osd| (osd, "host", 1.0)).collect();
    place(&mut pg_map, &osds);
    for osd in 0..10 {
        let mut stat = wire::types::OsdStat::default();
        (stat.statfs.total, stat.num_osds) = (100 << 30, 1);
        pg_map.osds.insert(osd, stat);
    }
    for (id, (stored, ..)) in (1..).zip(pools) {
        let stat = pg_map.pgs.get_mut(&wire::types::PgId { pool: id, seed: 0 }).expect("the map makes it");
        stat.stats.sum.num_bytes = stored * GIB;
    }
    pg_map
}

fn change(pg_map: &mut PgMap, id: PoolId, change: impl FnOnce(&mut PgPool)) {
    change(Arc::make_mut(&mut pg_map.map).pools.get_mut(&id).unwrap());
}

/// Pool, PGs that it should have, and whether they change.
fn decisions(pg_map: &PgMap) -> Vec<(PoolId, u32, bool)> {
    scales(pg_map).iter().map(|scale| (scale.id, scale.pg_num_final, scale.would_adjust())).collect()
}

#[test]
fn small_pools_begin_with_the_least_number() {
    assert_eq!(decisions(&cluster(&[(0, 32, false), (0, 8, false)])), [(1, 32, false), (2, 32, true)]);
    assert_eq!(decisions(&cluster(&[(0, 128, false)])), [(1, 32, true)]);
    assert_eq!(decisions(&cluster(&[(0, 64, false)])), [(1, 32, false)], "within the threshold");
}

#[test]
fn pools_get_their_share_of_the_space() {
    // Half of the raw space: 500 of 1,000 copies, a third of that for each PG.
    assert_eq!(decisions(&cluster(&[(167, 32, false)])), [(1, 128, true)]);
    // The second pool gets its share of what is left.
    assert_eq!(decisions(&cluster(&[(167, 32, false), (100, 32, false)])), [(1, 128, true), (2, 64, false)]);
}

#[test]
fn bulk_pools_share_what_is_left_evenly() {
    let all = cluster(&[(0, 32, true), (0, 32, true), (0, 32, false)]);
    assert_eq!(decisions(&all), [(3, 32, false), (1, 128, true), (2, 128, true)]);
    let one = cluster(&[(200, 32, true), (0, 32, true)]);
    assert_eq!(decisions(&one), [(1, 256, true), (2, 128, true)], "the first uses more than its even share");
}

#[test]
fn limits_targets_and_bias_count() {
    let mut pg_map = cluster(&[(0, 32, false), (0, 32, false)]);
    change(&mut pg_map, 1, |pool| {
        drop(pool.options.0.insert(PoolOption::PG_NUM_MIN, PoolOptionValue::Integer(128)))
    });
    assert_eq!(decisions(&pg_map)[0], (1, 128, true));
    let ratio = PoolOptionValue::Real(3.0);
    change(&mut pg_map, 2, |pool| drop(pool.options.0.insert(PoolOption::TARGET_SIZE_RATIO, ratio)));
    assert_eq!(decisions(&pg_map)[1], (2, 256, true), "the only ratio takes all");
    change(&mut pg_map, 2, |pool| {
        drop(pool.options.0.insert(PoolOption::PG_NUM_MAX, PoolOptionValue::Integer(64)))
    });
    assert_eq!(decisions(&pg_map)[1], (2, 64, false));
    let mut pg_map = cluster(&[(100, 32, false)]);
    assert_eq!(decisions(&pg_map), [(1, 128, true)]);
    change(&mut pg_map, 1, |pool| {
        drop(pool.options.0.insert(PoolOption::PG_AUTOSCALE_BIAS, PoolOptionValue::Real(4.0)))
    });
    assert_eq!(decisions(&pg_map), [(1, 512, true)]);
}

#[test]
fn mode_decides_whether_a_number_changes() {
    let mut pg_map = cluster(&[(0, 128, false)]);
    for (mode, adjusts) in
        [(PgPool::AUTOSCALE_ON, true), (PgPool::AUTOSCALE_WARN, false), (PgPool::AUTOSCALE_OFF, false)]
    {
        change(&mut pg_map, 1, |pool| pool.pg_autoscale_mode = mode);
        let scale = scales(&pg_map).remove(0);
        assert_eq!((scale.is_off, scale.would_adjust()), (true, adjusts));
    }
}

#[test]
fn scaled_pools_are_left_alone() {
    let mut pg_map = cluster(&[(167, 32, false), (3, 512, false), (0, 16, true)]);
    let first = decisions(&pg_map);
    for (id, pg_num, _) in first.iter().filter(|(.., adjusts)| *adjusts) {
        change(&mut pg_map, *id, |pool| pool.pg_num_target = *pg_num);
    }
    assert!(decisions(&pg_map).iter().all(|(.., adjusts)| !adjusts), "{first:?}");
}

#[test]
fn nearest_power_of_two_is_that_of_stock() {
    for (n, power) in
        [(0.0, 0), (1.0, 1), (2.9, 2), (3.0, 4), (5.9, 4), (6.0, 8), (95.0, 64), (96.0, 128), (97.0, 128)]
    {
        assert_eq!(nearest_power_of_two(n), power, "{n}");
    }
}
