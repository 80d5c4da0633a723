//! Health of objects: unfound, misplaced, damaged, or with large omaps.

use super::{Checks, insert};
use crate::PgMap;
use wire::text::ObjectShare;
use wire::types::HealthStatus;

pub(super) fn check(pg_map: &PgMap, checks: &mut Checks) {
    let (total, by_pool) = pg_map.sums();
    let sum = total.stats.sum;
    if sum.num_scrub_errors > 0 {
        let summary = format!("{} scrub errors", sum.num_scrub_errors);
        insert(checks, "OSD_SCRUB_ERRORS", HealthStatus::ERR, summary, Vec::new(), sum.num_scrub_errors);
    }
    if sum.num_large_omap_objects > 0 {
        let large = by_pool.iter().map(|(pool, sum)| (pool, sum.stats.sum.num_large_omap_objects));
        let mut detail: Vec<String> = large
            .filter(|(_, large)| *large > 0)
            .map(|(pool, large)| {
                let name = pg_map.map.pool_names.get(pool).map_or("", String::as_str);
                format!("{large} large objects found in pool '{name}'")
            })
            .collect();
        detail.push("Search the cluster log for 'Large omap object found' for more details.".into());
        let count = sum.num_large_omap_objects;
        let summary = format!("{count} large omap objects");
        insert(checks, "LARGE_OMAP_OBJECTS", HealthStatus::WARN, summary, detail, count);
    }
    if let Some(share) = ObjectShare::misplaced(&sum).filter(|_| pg_map.options.warn_on_misplaced) {
        insert(checks, "OBJECT_MISPLACED", HealthStatus::WARN, share.to_string(), Vec::new(), share.part);
    }
    if let Some(share) = ObjectShare::unfound(&sum) {
        let detail = unfound_detail(pg_map);
        insert(checks, "OBJECT_UNFOUND", HealthStatus::WARN, share.to_string(), detail, share.part);
    }
}

fn unfound_detail(pg_map: &PgMap) -> Vec<String> {
    let unfound = pg_map.pgs.iter().map(|(pg, stat)| (pg, stat.stats.sum.num_objects_unfound));
    let lines = unfound.filter(|(_, n)| *n > 0).map(|(pg, n)| format!("pg {pg} has {n} unfound objects"));
    let max = pg_map.options.health_detail_max + 1;
    let mut detail: Vec<String> = lines.take(max).collect();
    if detail.len() == max {
        detail.push("(additional pgs left out for brevity)".into());
    }
    detail
}
