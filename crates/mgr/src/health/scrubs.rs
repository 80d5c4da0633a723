//! Health of scrubs: placement groups that were not scrubbed in time.

use super::{Checks, insert};
use crate::PgMap;
use wire::text::stamp;
use wire::types::{HealthStatus, PgId, PgPool, PgStat, PoolOption, PoolOptionValue, UTime};

/// One kind of scrub.
struct Kind {
    code: &'static str,
    adjective: &'static str,
    option: PoolOption,
    last: fn(&PgStat) -> UTime,
    interval_s: f64,
    ratio: f64,
}

pub(super) fn check(pg_map: &PgMap, now: UTime, checks: &mut Checks) {
    let options = &pg_map.options;
    let kinds = [
        Kind {
            code: "PG_NOT_SCRUBBED",
            adjective: "scrubbed",
            option: PoolOption::SCRUB_MAX_INTERVAL,
            last: |stat| stat.last_scrub_stamp,
            interval_s: options.scrub_interval_max_s,
            ratio: options.not_scrubbed_ratio,
        },
        Kind {
            code: "PG_NOT_DEEP_SCRUBBED",
            adjective: "deep-scrubbed",
            option: PoolOption::DEEP_SCRUB_INTERVAL,
            last: |stat| stat.last_deep_scrub_stamp,
            interval_s: options.deep_scrub_interval_s,
            ratio: options.not_deep_scrubbed_ratio,
        },
    ];
    for kind in kinds.into_iter().filter(|kind| kind.ratio > 0.0) {
        let late: Vec<(&PgId, UTime)> = pg_map
            .pgs
            .iter()
            .map(|(pg, stat)| (pg, (kind.last)(stat)))
            // A PG without a stamp was created a moment ago.
            .filter(|(pg, last)| {
                *last != UTime::ZERO && kind.is_late(pg_map.map.pools.get(&pg.pool), *last, now)
            })
            .collect();
        if late.is_empty() {
            continue;
        }
        let max = options.health_detail_max;
        let line =
            |(pg, last): &(&PgId, UTime)| format!("pg {pg} not {} since {}", kind.adjective, stamp(*last));
        let mut detail: Vec<String> = late.iter().take(max).map(line).collect();
        if late.len() > max {
            detail.push(format!("{} more pgs... ", late.len() - max));
        }
        let summary = format!("{} pgs not {} in time", late.len(), kind.adjective);
        insert(checks, kind.code, HealthStatus::WARN, summary, detail, late.len() as i64);
    }
}

impl Kind {
    fn is_late(&self, pool: Option<&PgPool>, last: UTime, now: UTime) -> bool {
        let own = pool.and_then(|pool| match pool.options.0.get(&self.option) {
            Some(PoolOptionValue::Real(seconds)) if *seconds > 0.0 => Some(*seconds),
            _ => None,
        });
        let interval_s = own.unwrap_or(self.interval_s);
        now.as_secs_f64() - last.as_secs_f64() > interval_s * (1.0 + self.ratio)
    }
}
