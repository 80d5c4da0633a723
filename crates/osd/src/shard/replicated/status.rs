//! The state of a PG as statistics, `pg query` and health show it.

use super::super::Shard;
use crate::pg::role::{Replica, Role, Stage};
use crate::pg::{Pg, PgPhase};
use crate::shard::Interval;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::types::{Eversion, HObject, PastIntervals, PgCopyInfo, PgState};

/// A PG as this OSD sees it, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgStatus {
    pub is_primary: bool,
    /// Meaningful on the primary.
    pub state: PgState,
    pub interval: Arc<Interval>,
    pub past: Arc<PastIntervals>,
    /// Copies that are missing, each counted once for each object.
    pub degraded: i64,
    pub misplaced: i64,
    pub missing_on_primary: i64,
    pub unfound: i64,
    /// OSDs that block peering.
    pub blocked_by: Vec<i32>,
    /// OSDs that peering waits for.
    pub probing: Vec<i32>,
    /// The step of peering, for `recovery_state`.
    pub stage: &'static str,
    pub backfill_targets: Vec<i32>,
    pub missing: usize,
    pub last_backfill: Option<HObject>,
    pub peers: Vec<PeerStatus>,
}

/// A peer as the primary knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    pub osd: i32,
    pub is_member: bool,
    pub info: Option<PgCopyInfo>,
    pub durable_to: Eversion,
    pub missing: usize,
    pub last_backfill: HObject,
}

impl Shard {
    pub(in crate::shard) fn status_of(&self, pg: &Pg) -> PgStatus {
        let interval = pg.interval.clone();
        let mut out = PgStatus {
            interval: interval.clone(),
            past: pg.past.clone(),
            missing: pg.missing.len(),
            last_backfill: Some(pg.progress.last_backfill.0.clone()),
            ..PgStatus::default()
        };
        let Role::Primary(primary) = &pg.role else {
            out.stage = match &pg.role {
                Role::Replica(Replica::Active) => "Started/ReplicaActive",
                _ => "Started/Stray",
            };
            return out;
        };
        out.is_primary = true;
        let objects = pg.progress.stats.objects.max(0);
        let acting = interval.acting.iter().filter(|osd| **osd >= 0 && **osd != i32::MAX).count();
        let size = interval.size as usize;
        let mut state = PgState::default();
        if acting < size {
            state = state.with(PgState::UNDERSIZED);
        }
        if interval.acting != interval.up {
            state = state.with(PgState::REMAPPED);
        }
        for (osd, peer) in &primary.peers {
            let is_member = primary.members.contains(osd);
            if primary.stage == Stage::Active && is_member && !peer.is_complete() {
                out.backfill_targets.push(*osd);
            }
            out.peers.push(PeerStatus {
                osd: *osd,
                is_member,
                info: peer.report.as_ref().map(|report| report.info.clone()),
                durable_to: peer.durable_to,
                missing: peer.missing.len(),
                last_backfill: peer.last_backfill.clone().unwrap_or_else(HObject::min),
            });
            if peer.is_asked && peer.report.is_none() {
                out.probing.push(*osd);
            }
        }
        out.stage = match &primary.stage {
            Stage::GetInfo => "Started/Primary/Peering/GetInfo",
            Stage::Down { blocked_by } => {
                out.blocked_by = blocked_by.clone();
                "Started/Primary/Peering/Down"
            }
            Stage::Incomplete => "Started/Primary/Peering/Incomplete",
            Stage::GetLog { .. } => "Started/Primary/Peering/GetLog",
            Stage::GetMissing => "Started/Primary/Peering/GetMissing",
            Stage::WaitActing { .. } => "Started/Primary/WaitActingChange",
            Stage::WaitUpThru => "Started/Primary/Peering/WaitUpThru",
            Stage::Activating | Stage::Active => "Started/Primary/Active",
        };
        match &primary.stage {
            Stage::Down { .. } => state = state.with(PgState::DOWN),
            Stage::Incomplete => state = state.with(PgState::INCOMPLETE),
            Stage::Activating if primary.is_waiting => {
                state = state.with(PgState::PEERING).with(PgState::WAIT);
            }
            Stage::Activating => state = state.with(PgState::ACTIVATING),
            Stage::Active => {
                state = state.with(self.active_state(pg, &mut out, objects, size - acting.min(size)))
            }
            _ => state = state.with(PgState::PEERING),
        }
        if !pg.damaged.is_empty() {
            state = state.with(PgState::INCONSISTENT);
        }
        out.state = state;
        out
    }

    fn active_state(&self, pg: &Pg, out: &mut PgStatus, objects: i64, absent: usize) -> PgState {
        let Role::Primary(primary) = &pg.role else { return PgState::default() };
        let mut state = if pg.phase == PgPhase::Active { PgState::ACTIVE } else { PgState::PEERED };
        out.missing_on_primary = pg.missing.len() as i64;
        out.unfound = primary.recovery.unfound.len() as i64;
        let mut degraded = absent as i64 * objects + pg.missing.len() as i64;
        let mut copies_elsewhere = 0;
        for osd in &primary.members {
            let peer = &primary.peers[osd];
            if peer.is_complete() {
                degraded += peer.missing.len() as i64;
            } else if pg.interval.acting.len() < pg.interval.size as usize {
                // It is to become the copy that is absent, which is counted.
            } else {
                copies_elsewhere += objects;
            }
        }
        out.degraded = degraded;
        if pg.interval.acting != pg.interval.up {
            let acting: BTreeSet<i32> = pg.interval.acting.iter().copied().collect();
            let leaving = pg.interval.up.iter().filter(|osd| !acting.contains(osd)).count();
            out.misplaced = copies_elsewhere.max(leaving as i64 * objects).min(leaving as i64 * objects);
        }
        if degraded > 0 {
            state = state.with(PgState::DEGRADED);
        }
        let recovery = &primary.recovery;
        if !recovery.unfound.is_empty() {
            state = state.with(PgState::RECOVERY_UNFOUND);
        }
        if !recovery.queue.is_empty() || !recovery.active.is_empty() {
            state = state.with(PgState::RECOVERING);
        } else if primary.backfill.as_ref().is_some_and(|backfill| !backfill.failed.is_empty()) {
            state = state.with(PgState::BACKFILL_UNFOUND);
        } else if !out.backfill_targets.is_empty() {
            state = state.with(PgState::BACKFILLING);
        }
        if primary.is_clean {
            state = state.with(PgState::CLEAN);
        }
        state
    }
}
