//! Health checks from the reports. Codes, severities and sentences are stock's (`PGMap::get_health_checks`), because
//! people's alerts match on them.
//!
//! - `pg_states`: placement groups that are unavailable, degraded, damaged, or held up by full OSDs.
//! - `objects`: objects that are unfound, misplaced or damaged.
//! - `daemons`: slow operations, slow heartbeats, reads that an OSD had to repair, index tables that
//!   spilled from a db device.
//! - `pools`: settings of a pool that do not fit each other.
//! - `scrubs`: placement groups that were not scrubbed in time.

mod daemons;
mod objects;
mod pg_states;
mod pools;
mod scrubs;
#[cfg(test)]
mod tests;

use crate::PgMap;
use std::collections::BTreeMap;
use wire::types::{HealthCheck, HealthStatus, UTime};

type Checks = BTreeMap<String, HealthCheck>;

impl PgMap {
    pub fn health(&self, now: UTime) -> Checks {
        let mut checks = Checks::new();
        pg_states::check(self, now, &mut checks);
        objects::check(self, &mut checks);
        daemons::check(self, now, &mut checks);
        pools::check(self, &mut checks);
        scrubs::check(self, now, &mut checks);
        checks
    }
}

fn insert(
    checks: &mut Checks,
    code: &str,
    severity: HealthStatus,
    summary: String,
    detail: Vec<String>,
    count: i64,
) {
    checks.insert(code.into(), HealthCheck { severity, summary, detail, count });
}
