//! Health of pools' settings.

use super::{Checks, insert};
use crate::{PgMap, autoscaler};
use wire::types::{HealthStatus, PgPool};

pub(super) fn check(pg_map: &PgMap, checks: &mut Checks) {
    let map = &pg_map.map;
    let smaller = map.pools.iter().filter(|(_, pool)| pool.pg_num_target > pool.pgp_num_target);
    let detail: Vec<String> = smaller
        .map(|(id, pool)| {
            let name = map.pool_names.get(id).map_or("", String::as_str);
            format!("pool {name} pg_num {} > pgp_num {}", pool.pg_num_target, pool.pgp_num_target)
        })
        .collect();
    if !detail.is_empty() {
        let count = detail.len() as i64;
        let summary = format!("{count} pools have pg_num > pgp_num");
        insert(checks, "SMALLER_PGP_NUM", HealthStatus::WARN, summary, detail, count);
    }
    check_scales(pg_map, checks);
}

/// Pools that the autoscaler warns of.
fn check_scales(pg_map: &PgMap, checks: &mut Checks) {
    let warns = |pool: &PgPool| pool.pg_autoscale_mode == PgPool::AUTOSCALE_WARN;
    if pg_map.options.autoscale_is_off || !pg_map.map.pools.values().any(warns) {
        return;
    }
    let (mut few, mut many) = (Vec::new(), Vec::new());
    let scales = autoscaler::scales(pg_map);
    for scale in scales.iter().filter(|scale| scale.is_off && scale.mode == PgPool::AUTOSCALE_WARN) {
        let (has, wanted) = (scale.pg_num_target, scale.pg_num_final);
        let line = format!("Pool {} has {has} placement groups, should have {wanted}", scale.name);
        if wanted > has { few.push(line) } else { many.push(line) }
    }
    for (code, what, detail) in [("POOL_TOO_FEW_PGS", "few", few), ("POOL_TOO_MANY_PGS", "many", many)] {
        if !detail.is_empty() {
            let count = detail.len() as i64;
            let summary = format!("{count} pools have too {what} placement groups");
            insert(checks, code, HealthStatus::WARN, summary, detail, count);
        }
    }
}
