//! Pools with a limit: full when what the manager reports of them has reached it, and not full any more below it.

use super::{Monitor, Turn};
use crate::osd_step::step_after;
use wire::text::Bytes;
use wire::types::{LogPriority, ObjectStatSum, PgPool, PoolFlags};

/// The limits that a pool has reached, as the cluster log names them.
fn reached(pool: &PgPool, sum: &ObjectStatSum) -> Vec<String> {
    let over = |limit: u64, used: i64| limit > 0 && used.max(0) as u64 >= limit;
    let mut out = Vec::new();
    if over(pool.quota_max_bytes, sum.num_bytes) {
        out.push(format!("max_bytes: {}", Bytes(pool.quota_max_bytes)));
    }
    if over(pool.quota_max_objects, sum.num_objects) {
        out.push(format!("max_objects: {}", pool.quota_max_objects));
    }
    out
}

impl Monitor {
    pub(super) fn tick_quotas(&mut self, turn: &mut Turn<'_>) {
        let now = self.wall(turn.now);
        let map = self.states.head().osdmap();
        let mut step = step_after(map, now);
        let mut lines = Vec::new();
        for (&id, pool) in &map.pools {
            let was_full = pool.flags.has(PoolFlags::FULL_QUOTA);
            // No report yet is no news: a pool stays as it is.
            let Some(report) = self.reports.digest.pool_sums.get(&(id as i32)) else { continue };
            let reached = reached(pool, &report.stats.sum);
            if was_full != reached.is_empty() {
                continue;
            }
            let name = map.pool_names.get(&id).map_or("", String::as_str);
            let mut pool = pool.clone();
            pool.flags.set(PoolFlags::FULL_QUOTA | PoolFlags::FULL, !was_full);
            if was_full {
                let line = format!("pool '{name}' no longer out of quota; removing NO_QUOTA flag");
                lines.push((LogPriority::INFO, line));
            } else {
                pool.flags.set(PoolFlags::NEARFULL | PoolFlags::BACKFILLFULL, false);
                let line = |limit| format!("pool '{name}' is full (reached quota's {limit})");
                lines.extend(reached.into_iter().map(|limit| (LogPriority::WARN, line(limit))));
            }
            pool.last_change = step.epoch;
            step.new_pools.insert(id, pool);
        }
        if step.new_pools.is_empty() {
            return;
        }
        let more = lines.into_iter().map(|(priority, line)| self.log_change(now, priority, "cluster", line));
        let more = more.collect();
        self.propose_step(turn, step, more);
    }
}
