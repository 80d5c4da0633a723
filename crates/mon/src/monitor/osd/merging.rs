//! The merge of a pool's last PG with the PG that it was split from.
//!
//! `pg_num_pending` is one less than `pg_num` while a merge is pending: both PGs hold requests back. The primary of the
//! source answers with the versions at which both are quiet, and the next map has one PG less. No map lies between the one
//! that the primary spoke of and the merge: so no interval of either PG has begun since, and every copy at these versions is
//! whole. An answer about an older map is passed over, and the primary repeats it with each map.
//! (Ceph: `OSDMonitor::prepare_pg_ready_to_merge`, which counts answers of any map.)
//!
//! A merge that has not happened [after a time](PENDING_MAX) is given up, and so is one while an OSD is up whose build cannot
//! merge. Stock waits for the answer without end.

use super::super::{Monitor, Turn};
use crate::old_builds::{obstacle_to_merges, osds_without_merges};
use crate::osd_step::step_after;
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::MOSDPGReadyToMerge;
use wire::types::{Epoch, LogPriority, OsdMap, PgId, PgMergeMeta, PgPool, PoolId};

/// Clients of both PGs wait while a merge is pending. Their primary gives it up after 10 s, or its successor, once the map
/// names that one. This ends the merges without a primary, and those whose primary says nothing.
const PENDING_MAX: Duration = Duration::from_secs(30);

/// Pending merges that this monitor has seen while it led.
#[derive(Debug, Default)]
pub(super) struct Merges(BTreeMap<PoolId, Pending>);

#[derive(Debug)]
struct Pending {
    /// The epoch in which the merge became pending.
    begun: Epoch,
    since: Time,
}

impl Monitor {
    pub(super) fn on_ready_to_merge(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        from: Option<i32>,
        m: &MOSDPGReadyToMerge,
    ) {
        let Some(osd) = from else { return };
        let map = self.states.head().osdmap();
        let epoch = m.paxos.version as Epoch;
        let is_ready = m.ready && osds_without_merges(self.states.head()).is_empty();
        let Some(pool) = after(map, osd, m, is_ready) else {
            return self.send_maps_later(turn, conn, epoch.saturating_add(1));
        };
        self.propose_merge_step(turn, m.source, pool, is_ready, None);
    }

    /// The map in which a pending merge has ended: the source is gone if `is_merged`.
    fn propose_merge_step(
        &mut self,
        turn: &mut Turn<'_>,
        source: PgId,
        mut pool: PgPool,
        is_merged: bool,
        line: Option<String>,
    ) {
        let map = self.states.head().osdmap();
        let mut step = step_after(map, self.wall(turn.now));
        pool.last_change = step.epoch;
        // Clients from before Nautilus do not see that intervals begin with it.
        pool.last_force_op_resend_prenautilus = step.epoch;
        if is_merged {
            step.old_pg_upmap.extend(map.pg_upmap.contains_key(&source).then_some(source));
            step.old_pg_upmap_items.extend(map.pg_upmap_items.contains_key(&source).then_some(source));
            let has_primary = map.pg_upmap_primaries.contains_key(&source);
            step.old_pg_upmap_primaries.extend(has_primary.then_some(source));
        }
        step.new_pools.insert(source.pool, pool);
        let now = self.wall(turn.now);
        let more = line.map(|line| self.log_change(now, LogPriority::WARN, "cluster", line));
        self.propose_step(turn, step, more.into_iter().collect());
    }

    /// Gives up pending merges that cannot go on. The manager asks for them again.
    pub(super) fn tick_merges(&mut self, turn: &mut Turn<'_>) {
        let state = self.states.head();
        let map = state.osdmap();
        let pending: BTreeMap<PoolId, Epoch> = map
            .pools
            .iter()
            .filter(|(_, pool)| is_merge_pending(pool))
            .map(|(id, pool)| (*id, pool.last_force_op_resend_prenautilus))
            .collect();
        if pending.is_empty() {
            return self.osd.merges.0.clear();
        }
        let obstacle = obstacle_to_merges(state);
        self.osd.merges.0.retain(|pool, merge| pending.get(pool) == Some(&merge.begun));
        for (id, begun) in pending {
            let map = self.states.head().osdmap();
            let merge = self.osd.merges.0.entry(id).or_insert(Pending { begun, since: turn.now });
            let mut pool = map.pools[&id].clone();
            let source = PgId { pool: id, seed: pool.pg_num_pending };
            let why = match &obstacle {
                Some(why) => why.clone(),
                None if turn.now < merge.since + PENDING_MAX => continue,
                None => silence(map, source),
            };
            pool.pg_num_pending = pool.pg_num;
            self.propose_merge_step(
                turn,
                source,
                pool,
                false,
                Some(format!("pg {source} is not merged now: {why}")),
            );
        }
    }
}

fn is_merge_pending(pool: &PgPool) -> bool {
    pool.pg_num_pending > 0 && pool.pg_num_pending.checked_add(1) == Some(pool.pg_num)
}

fn silence(map: &OsdMap, source: PgId) -> String {
    let seconds = PENDING_MAX.as_secs();
    match placement::map_pg(map, source).acting_primary {
        osd if osd >= 0 => format!("its primary osd.{osd} has not answered for {seconds} s"),
        _ => format!("it has had no primary for {seconds} s"),
    }
}

/// The pool after the answer. `None`: the answer does not count.
fn after(map: &OsdMap, from: i32, m: &MOSDPGReadyToMerge, is_ready: bool) -> Option<PgPool> {
    let epoch = m.paxos.version as Epoch;
    let mut pool = map.pools.get(&m.source.pool)?.clone();
    let is_pending = is_merge_pending(&pool) && pool.pg_num_pending == m.source.seed;
    if !is_pending || placement::map_pg(map, m.source).acting_primary != from {
        return None;
    }
    match is_ready {
        true if epoch == map.epoch => {
            pool.pg_num = m.source.seed;
            pool.pgp_num = pool.pgp_num.min(pool.pg_num);
            pool.pgp_num_target = pool.pgp_num_target.min(pool.pg_num);
            pool.last_pg_merge = PgMergeMeta {
                source: m.source,
                ready_epoch: epoch,
                last_epoch_started: m.last_epoch_started,
                last_epoch_clean: m.last_epoch_clean,
                source_version: m.source_version,
                target_version: m.target_version,
            };
        }
        // An answer to an earlier attempt says nothing of this one.
        false if epoch >= pool.last_change => pool.pg_num_pending = pool.pg_num,
        _ => return None,
    }
    Some(pool)
}
