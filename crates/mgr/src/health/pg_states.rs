//! Health of placement groups by their states: unavailable, degraded, damaged, or held up by full OSDs.

use super::{Checks, insert};
use crate::PgMap;
use std::collections::BTreeMap;
use wire::text::{Age, ObjectShare, osd_list};
use wire::types::{HealthStatus, OsdMap, PgId, PgStat, PgState, UTime};

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

    fn describe(&self, map: &OsdMap, pg: PgId, stat: &PgStat, now: UTime) -> String {
        let (state, acting) = (stat.state, osd_list(&stat.acting));
        let mut text = match self.since.map(|since| since(stat)) {
            None => {
                let unfound = match stat.stats.sum.num_objects_unfound {
                    0 => String::new(),
                    n => format!(", {n} unfound"),
                };
                format!("pg {pg} is {state}, acting {acting}{unfound}")
            }
            Some(since) => {
                let since = match since {
                    UTime::ZERO => " since forever".into(),
                    then => format!(" for {}", Age::between(then, now)),
                };
                format!(
                    "pg {pg} is stuck {}{since}, current state {state}, last acting {acting}",
                    self.name()
                )
            }
        };
        let pool = map.pools.get(&pg.pool).filter(|pool| pool.min_size > 1);
        if let Some(pool) = pool.filter(|_| stat.state.has(PgState::INCOMPLETE)) {
            let name = map.pool_names.get(&pg.pool).map_or("", String::as_str);
            text += &format!(
                " (reducing pool {name} min_size from {} may help; search ceph.com/docs for 'incomplete')",
                pool.min_size
            );
        }
        text
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

pub(super) fn check(pg_map: &PgMap, now: UTime, checks: &mut Checks) {
    for consequence in Consequence::ALL {
        check_consequence(pg_map, consequence, now, checks);
    }
}

fn check_consequence(pg_map: &PgMap, consequence: Consequence, now: UTime, checks: &mut Checks) {
    let mut words: Vec<String> = Vec::new();
    let mut detail: BTreeMap<PgId, String> = BTreeMap::new();
    let mut count = 0;
    let stuck_sec = pg_map.options.pg_stuck_threshold_s;
    for rule in RULES.iter().filter(|rule| rule.consequence == consequence) {
        let hit: Vec<_> = pg_map.pgs.iter().filter(|(_, stat)| rule.applies(stat, stuck_sec, now)).collect();
        if hit.is_empty() {
            continue;
        }
        words.push(count_pgs(hit.len(), &rule.name()));
        count += hit.len() as i64;
        // Of several states the last one's sentence is kept.
        detail.extend(hit.into_iter().map(|(pg, stat)| (*pg, rule.describe(&pg_map.map, *pg, stat, now))));
    }
    if words.is_empty() {
        return;
    }
    let (code, severity, what) = consequence.check();
    let mut summary = what.to_owned();
    let sum = pg_map.sums().0.stats.sum;
    if let Some(share) = ObjectShare::degraded(&sum).filter(|_| consequence == Consequence::Degraded) {
        summary += &format!("{share}, ");
    }
    summary += &words.join(", ");
    // Stock's list, too, is one longer than the limit, and does not say that it was cut.
    let lines = detail.into_values().take(pg_map.options.health_detail_max + 1).collect();
    insert(checks, code, severity, summary, lines, count);
}

fn count_pgs(n: usize, what: &str) -> String {
    format!("{n} pg{} {what}", if n == 1 { "" } else { "s" })
}
