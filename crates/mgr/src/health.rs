//! What the reports warn of. Codes, severities and sentences are stock's, because people's alerts match on them.

use crate::PgMap;
use std::collections::BTreeMap;
use wire::text::{Age, osd_list};
use wire::types::{HealthCheck, HealthStatus, PgId, PgStat, PgState, UTime};

/// `mon_pg_stuck_threshold`: how long a PG may be unusable before a person is told of each one.
const STUCK_SEC: u64 = 60;
/// `mon_health_max_detail`.
const DETAIL_MAX: usize = 50;

/// Which flag of a PG calls for which warning.
struct Rule {
    code: &'static str,
    severity: HealthStatus,
    summary: &'static str,
    flags: &'static [PgState],
}

const RULES: &[Rule] = &[
    Rule {
        code: "PG_DAMAGED",
        severity: HealthStatus::ERR,
        summary: "Possible data damage",
        flags: &[
            PgState::INCONSISTENT,
            PgState::FAILED_REPAIR,
            PgState::SNAPTRIM_ERROR,
            PgState::RECOVERY_UNFOUND,
            PgState::BACKFILL_UNFOUND,
        ],
    },
    Rule {
        code: "PG_RECOVERY_FULL",
        severity: HealthStatus::ERR,
        summary: "Full OSDs blocking recovery",
        flags: &[PgState::RECOVERY_TOOFULL],
    },
    Rule {
        code: "PG_BACKFILL_FULL",
        severity: HealthStatus::WARN,
        summary: "Low space hindering backfill (add storage if this doesn't resolve itself)",
        flags: &[PgState::BACKFILL_TOOFULL],
    },
];

impl PgMap {
    pub fn health(&self, now: UTime) -> BTreeMap<String, HealthCheck> {
        let mut checks = BTreeMap::new();
        self.check_availability(now, &mut checks);
        for rule in RULES {
            self.check_flags(rule, &mut checks);
        }
        self.check_degraded(&mut checks);
        self.check_slow_ops(&mut checks);
        self.check_applications(&mut checks);
        checks
    }

    fn check_availability(&self, now: UTime, checks: &mut BTreeMap<String, HealthCheck>) {
        // A PG that is being made, or has only just changed, is no news yet unless it stays so.
        const REASONS: [(&str, PgState); 4] = [
            ("down", PgState::DOWN),
            ("incomplete", PgState::INCOMPLETE),
            ("peering", PgState::PEERING),
            ("stale", PgState::STALE),
        ];
        let mut by_reason: BTreeMap<&str, Vec<(PgId, &PgStat)>> = BTreeMap::new();
        for (pg, stat) in &self.pgs {
            if stat.state.has(PgState::ACTIVE) && !stat.state.has(PgState::STALE) {
                continue;
            }
            let reason = REASONS.iter().find(|(_, flag)| stat.state.has(*flag));
            let (name, flag) = reason.copied().unwrap_or(("inactive", PgState::UNKNOWN));
            let stuck =
                now.as_nanos().saturating_sub(stat.last_change.as_nanos()) >= STUCK_SEC * 1_000_000_000;
            if flag == PgState::UNKNOWN && !stuck {
                continue;
            }
            by_reason.entry(name).or_default().push((*pg, stat));
        }
        if by_reason.is_empty() {
            return;
        }
        let counts: Vec<String> = by_reason.iter().map(|(name, pgs)| count_pgs(pgs.len(), name)).collect();
        let mut detail: Vec<String> = Vec::new();
        for (name, pgs) in &by_reason {
            for (pg, stat) in pgs {
                detail.push(match *name {
                    "inactive" | "peering" => format!(
                        "pg {pg} is stuck {name} for {}, current state {}, last acting {}",
                        Age::between(stat.last_active, now),
                        stat.state,
                        osd_list(&stat.acting),
                    ),
                    _ => format!("pg {pg} is {}, acting {}", stat.state, osd_list(&stat.acting)),
                });
            }
        }
        let count = detail.len() as i64;
        let summary = format!("Reduced data availability: {}", counts.join(", "));
        insert(checks, "PG_AVAILABILITY", HealthStatus::WARN, summary, detail, count);
    }

    fn check_flags(&self, rule: &Rule, checks: &mut BTreeMap<String, HealthCheck>) {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        let mut detail = Vec::new();
        for (pg, stat) in &self.pgs {
            let set: Vec<usize> = (0..rule.flags.len()).filter(|i| stat.state.has(rule.flags[*i])).collect();
            set.iter().for_each(|i| *counts.entry(*i).or_default() += 1);
            if !set.is_empty() {
                detail.push(format!("pg {pg} is {}, acting {}", stat.state, osd_list(&stat.acting)));
            }
        }
        if detail.is_empty() {
            return;
        }
        let words: Vec<String> =
            counts.iter().map(|(i, n)| count_pgs(*n, &rule.flags[*i].to_string())).collect();
        let count = detail.len() as i64;
        let summary = format!("{}: {}", rule.summary, words.join(", "));
        insert(checks, rule.code, rule.severity, summary, detail, count);
    }

    fn check_degraded(&self, checks: &mut BTreeMap<String, HealthCheck>) {
        let (sum, _) = self.sums();
        let sum = sum.stats.sum;
        let degraded = sum.num_objects_degraded;
        let pgs = |flag| self.pgs.iter().filter(move |(_, s)| s.state.has(flag));
        let (n_degraded, n_undersized) = (pgs(PgState::DEGRADED).count(), pgs(PgState::UNDERSIZED).count());
        if n_degraded == 0 && n_undersized == 0 {
            return;
        }
        let mut words = Vec::new();
        if degraded > 0 && sum.num_object_copies > 0 {
            let copies = sum.num_object_copies;
            let percent = degraded as f64 / copies as f64 * 100.0;
            words.push(format!("{degraded}/{copies} objects degraded ({percent:.3}%)"));
        }
        for (n, name) in [(n_degraded, "degraded"), (n_undersized, "undersized")] {
            if n > 0 {
                words.push(count_pgs(n, name));
            }
        }
        let affected = |s: &PgStat| s.state.has(PgState::DEGRADED) || s.state.has(PgState::UNDERSIZED);
        let line = |(pg, stat): (&PgId, &PgStat)| {
            format!("pg {pg} is {}, acting {}", stat.state, osd_list(&stat.acting))
        };
        let detail: Vec<String> = self.pgs.iter().filter(|(_, s)| affected(s)).map(line).collect();
        let count = detail.len() as i64;
        let summary = format!("Degraded data redundancy: {}", words.join(", "));
        insert(checks, "PG_DEGRADED", HealthStatus::WARN, summary, detail, count);
    }

    fn check_slow_ops(&self, checks: &mut BTreeMap<String, HealthCheck>) {
        let count: u32 = self.slow_ops.values().map(|(n, _)| n).sum();
        let oldest = self.slow_ops.values().map(|(_, age)| *age).max().unwrap_or(0);
        if count == 0 {
            return;
        }
        let daemons: Vec<&str> = self.slow_ops.keys().map(String::as_str).collect();
        let who = match daemons.as_slice() {
            [one] => format!("{one} has slow ops"),
            many => format!("daemons [{}] have slow ops.", many.join(",")),
        };
        let summary = format!("{count} slow ops, oldest one blocked for {oldest} sec, {who}");
        insert(checks, "SLOW_OPS", HealthStatus::WARN, summary, Vec::new(), i64::from(count));
    }

    /// A pool with data that nobody has said the use of.
    fn check_applications(&self, checks: &mut BTreeMap<String, HealthCheck>) {
        let (_, by_pool) = self.sums();
        let mut detail = Vec::new();
        for (pool, info) in &self.map.pools {
            let used = by_pool.get(pool).is_some_and(|s| s.stats.sum.num_objects > 0);
            let internal = self.map.pool_names.get(pool).is_some_and(|n| n.starts_with('.'));
            if used && info.applications.is_empty() && !internal {
                let name = self.map.pool_names.get(pool).map_or("", String::as_str);
                detail.push(format!("application not enabled on pool '{name}'"));
            }
        }
        if detail.is_empty() {
            return;
        }
        let count = detail.len() as i64;
        let summary = format!("{count} pool(s) do not have an application enabled");
        detail.push(
            "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', 'rbd', \
             'rgw', or freeform for custom applications."
                .into(),
        );
        insert(checks, "POOL_APP_NOT_ENABLED", HealthStatus::WARN, summary, detail, count);
    }
}

fn count_pgs(n: usize, what: &str) -> String {
    format!("{n} pg{} {what}", if n == 1 { "" } else { "s" })
}

fn insert(
    checks: &mut BTreeMap<String, HealthCheck>,
    code: &str,
    severity: HealthStatus,
    summary: String,
    mut detail: Vec<String>,
    count: i64,
) {
    if detail.len() > DETAIL_MAX {
        let more = detail.len() - DETAIL_MAX;
        detail.truncate(DETAIL_MAX);
        detail.push(format!("{more} more"));
    }
    checks.insert(code.into(), HealthCheck { severity, summary, detail, count });
}
