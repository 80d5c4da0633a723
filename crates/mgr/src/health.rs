//! Health checks from the reports. Codes, severities and sentences are stock's, because people's alerts match on them.

use crate::PgMap;
use std::collections::BTreeMap;
use wire::text::{Age, osd_list};
use wire::types::{HealthCheck, HealthStatus, PgId, PgStat, PgState, UTime};

/// `mon_health_max_detail`.
const DETAIL_MAX: usize = 50;

/// Consequence for clients of PGs in some state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Consequence {
    Unavailable,
    Degraded,
    BackfillFull,
    Damaged,
    RecoveryFull,
}

impl Consequence {
    const ALL: [Consequence; 5] = [
        Consequence::Unavailable,
        Consequence::Degraded,
        Consequence::BackfillFull,
        Consequence::Damaged,
        Consequence::RecoveryFull,
    ];

    fn check(self) -> (&'static str, HealthStatus, &'static str) {
        match self {
            Consequence::Unavailable => {
                ("PG_AVAILABILITY", HealthStatus::WARN, "Reduced data availability: ")
            }
            Consequence::Degraded => ("PG_DEGRADED", HealthStatus::WARN, "Degraded data redundancy: "),
            Consequence::BackfillFull => (
                "PG_BACKFILL_FULL",
                HealthStatus::WARN,
                "Low space hindering backfill (add storage if this doesn't resolve itself): ",
            ),
            Consequence::Damaged => ("PG_DAMAGED", HealthStatus::ERR, "Possible data damage: "),
            Consequence::RecoveryFull => {
                ("PG_RECOVERY_FULL", HealthStatus::ERR, "Full OSDs blocking recovery: ")
            }
        }
    }
}

/// A state that people are told of.
struct Rule {
    flag: PgState,
    consequence: Consequence,
    /// When the state is no news unless it lasts: the last time that the PG was not in it.
    since: Option<fn(&PgStat) -> UTime>,
}

impl Rule {
    const fn at_once(flag: PgState, consequence: Consequence) -> Rule {
        Rule { flag, consequence, since: None }
    }

    const fn stuck(flag: PgState, consequence: Consequence, since: fn(&PgStat) -> UTime) -> Rule {
        Rule { flag, consequence, since: Some(since) }
    }

    /// `ACTIVE` is the one state whose absence is bad.
    fn applies(&self, stat: &PgStat, stuck_sec: u64, now: UTime) -> bool {
        if stat.state.has(self.flag) == (self.flag == PgState::ACTIVE) {
            return false;
        }
        let Some(since) = self.since else { return true };
        let last_good = since(stat);
        let began = if last_good == UTime::ZERO { stat.last_change } else { last_good };
        now.as_nanos().saturating_sub(began.as_nanos()) > stuck_sec * 1_000_000_000
    }

    fn name(&self) -> String {
        if self.flag == PgState::ACTIVE { "inactive".into() } else { self.flag.to_string() }
    }

    fn describe(&self, pg: PgId, stat: &PgStat, now: UTime) -> String {
        let (state, acting) = (stat.state, osd_list(&stat.acting));
        let Some(since) = self.since else { return format!("pg {pg} is {state}, acting {acting}") };
        let since = match since(stat) {
            UTime::ZERO => " since forever".into(),
            then => format!(" for {}", Age::between(then, now)),
        };
        format!("pg {pg} is stuck {}{since}, current state {state}, last acting {acting}", self.name())
    }
}

/// In the order of the states' bits, which is the order of the words in a summary.
const RULES: &[Rule] = &[
    Rule::stuck(PgState::ACTIVE, Consequence::Unavailable, |stat| stat.last_active),
    Rule::at_once(PgState::DOWN, Consequence::Unavailable),
    Rule::at_once(PgState::RECOVERY_UNFOUND, Consequence::Damaged),
    Rule::at_once(PgState::BACKFILL_UNFOUND, Consequence::Damaged),
    Rule::at_once(PgState::DEGRADED, Consequence::Degraded),
    Rule::at_once(PgState::INCONSISTENT, Consequence::Damaged),
    Rule::stuck(PgState::PEERING, Consequence::Unavailable, |stat| stat.last_peered),
    Rule::at_once(PgState::INCOMPLETE, Consequence::Unavailable),
    Rule::stuck(PgState::STALE, Consequence::Unavailable, |stat| stat.last_unstale),
    Rule::at_once(PgState::BACKFILL_TOOFULL, Consequence::BackfillFull),
    Rule::stuck(PgState::UNDERSIZED, Consequence::Degraded, |stat| stat.last_fullsized),
    Rule::at_once(PgState::RECOVERY_TOOFULL, Consequence::RecoveryFull),
    Rule::at_once(PgState::SNAPTRIM_ERROR, Consequence::Damaged),
];

impl PgMap {
    pub fn health(&self, now: UTime) -> BTreeMap<String, HealthCheck> {
        let mut checks = BTreeMap::new();
        for consequence in Consequence::ALL {
            self.check_states(consequence, now, &mut checks);
        }
        self.check_scrub_errors(&mut checks);
        self.check_slow_ops(&mut checks);
        checks
    }

    fn check_states(&self, consequence: Consequence, now: UTime, checks: &mut BTreeMap<String, HealthCheck>) {
        let mut words: Vec<String> = Vec::new();
        let mut detail: BTreeMap<PgId, String> = BTreeMap::new();
        let mut count = 0;
        for rule in RULES.iter().filter(|rule| rule.consequence == consequence) {
            let hit: Vec<_> =
                self.pgs.iter().filter(|(_, stat)| rule.applies(stat, self.stuck_sec(), now)).collect();
            if hit.is_empty() {
                continue;
            }
            words.push(count_pgs(hit.len(), &rule.name()));
            count += hit.len() as i64;
            // Of several states the last one's sentence is kept.
            detail.extend(hit.into_iter().map(|(pg, stat)| (*pg, rule.describe(*pg, stat, now))));
        }
        if words.is_empty() {
            return;
        }
        let (code, severity, what) = consequence.check();
        let mut summary = what.to_owned();
        if consequence == Consequence::Degraded {
            let sum = self.sums().0.stats.sum;
            let (degraded, copies) = (sum.num_objects_degraded, sum.num_object_copies);
            if degraded > 0 && copies > 0 {
                let percent = degraded as f64 / copies as f64 * 100.0;
                summary += &format!("{degraded}/{copies} objects degraded ({percent:.3}%), ");
            }
        }
        summary += &words.join(", ");
        insert(checks, code, severity, summary, detail.into_values().collect(), count);
    }

    fn check_scrub_errors(&self, checks: &mut BTreeMap<String, HealthCheck>) {
        let errors = self.sums().0.stats.sum.num_scrub_errors;
        if errors > 0 {
            let summary = format!("{errors} scrub errors");
            insert(checks, "OSD_SCRUB_ERRORS", HealthStatus::ERR, summary, Vec::new(), errors);
        }
    }

    fn check_slow_ops(&self, checks: &mut BTreeMap<String, HealthCheck>) {
        let count: u64 = self.slow_ops.values().map(|(n, _)| u64::from(*n)).sum();
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
        insert(checks, "SLOW_OPS", HealthStatus::WARN, summary, Vec::new(), count as i64);
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
        // Stock's list, too, is one longer than the limit, and does not say that it was cut.
        detail.truncate(DETAIL_MAX + 1);
    }
    checks.insert(code.into(), HealthCheck { severity, summary, detail, count });
}
