//! Health of pools' settings.

use super::{Checks, insert};
use crate::PgMap;
use wire::types::HealthStatus;

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
}
