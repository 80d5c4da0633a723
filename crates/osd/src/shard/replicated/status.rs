//! The state of a PG as statistics, `pg query` and health show it.

use super::super::Shard;
use crate::pg::role::{Hindrance, Peer, Primary, Replica, Role, Stage};
use crate::pg::{Pg, PgPhase};
use crate::shard::Interval;
use std::sync::Arc;
use wire::types::{Eversion, HObject, IntervalSet, PastIntervals, PgCopyInfo, PgState};

/// A PG as this OSD sees it, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgStatus {
    pub is_primary: bool,
    /// Clean and complete: the copy can go to another core.
    pub is_at_rest: bool,
    /// Meaningful on the primary.
    pub state: PgState,
    pub interval: Arc<Interval>,
    pub past: Arc<PastIntervals>,
    /// Copies that are missing, each counted once for each object.
    pub degraded: i64,
    /// Copies that are on another OSD than the one that CRUSH names.
    pub misplaced: i64,
    pub missing_on_primary: i64,
    pub unfound: i64,
    /// OSDs that may have objects which no known copy has. True: the primary knows what they have.
    pub might_have_unfound: Vec<(i32, bool)>,
    /// OSDs that peering or activation waits for.
    pub blocked_by: Vec<i32>,
    /// OSDs whose report peering waits for.
    pub probing: Vec<i32>,
    /// The step of peering, for `recovery_state`.
    pub stage: &'static str,
    pub backfill_targets: Vec<i32>,
    /// Members that recover from the log and that writes do not wait for.
    pub async_recovery_targets: Vec<i32>,
    /// OSDs whose copies lack nothing. Known while the PG is not clean.
    pub complete: Vec<i32>,
    pub missing: usize,
    pub last_backfill: Option<HObject>,
    pub peers: Vec<PeerStatus>,
    pub progress: ProgressStatus,
    /// Number of removed snapshots that the PG may have clones of.
    pub untrimmed_snaps: u32,
    /// Removed snapshots that the PG has no clone of.
    pub purged_snaps: IntervalSet,
}

/// Objects that recovery and backfill copy now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgressStatus {
    pub recovering: Vec<HObject>,
    /// Objects that the primary pulls, with their sources.
    pub pulling: Vec<(i32, HObject)>,
    /// Objects that the primary pushes, with their targets.
    pub pushing: Vec<(i32, HObject)>,
    /// The backfill's target and its window. The window's end is unknown while it is listed.
    pub window: Option<(i32, HObject, Option<HObject>)>,
}

/// A peer as the primary knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    pub osd: i32,
    pub is_member: bool,
    pub info: Option<PgCopyInfo>,
    pub durable_to: Eversion,
    pub missing: usize,
    /// Objects that the peer lacks: those of its missing set, and those that its backfill has not reached. Their number is an
    /// estimate until a backfill begins.
    pub lacks: i64,
    pub last_backfill: HObject,
}

impl Shard {
    pub(in crate::shard) fn status_of(&self, pg: &Pg) -> PgStatus {
        let mut out = PgStatus {
            interval: pg.interval.clone(),
            past: pg.past.clone(),
            missing: pg.missing.len(),
            last_backfill: Some(pg.progress.last_backfill.0.clone()),
            is_at_rest: pg.is_at_rest(),
            ..PgStatus::default()
        };
        if pg.phase == PgPhase::Unreadable {
            self.fill_unreadable(&mut out, pg);
            return out;
        }
        match &pg.role {
            Role::Primary(primary) => self.fill_primary(&mut out, pg, primary),
            Role::Replica(Replica::Active) => out.stage = "Started/ReplicaActive",
            _ => out.stage = "Started/Stray",
        }
        out
    }

    /// An unreadable copy says so where the map has its OSD the primary.
    fn fill_unreadable(&self, out: &mut PgStatus, pg: &Pg) {
        let own = self.config.osd.0;
        out.is_primary = pg.interval.primary == own;
        out.stage = if out.is_primary { "Started/Primary/Peering/Down" } else { "Started/Stray" };
        if out.is_primary {
            out.blocked_by = vec![own];
            out.state = PgState::DOWN.with(PgState::INCONSISTENT);
            if pg.interval.acting != pg.interval.up {
                out.state = out.state.with(PgState::REMAPPED);
            }
        }
    }

    fn fill_primary(&self, out: &mut PgStatus, pg: &Pg, primary: &Primary) {
        out.is_primary = true;
        let own = self.config.osd.0;
        let is_active = primary.stage == Stage::Active;
        for (osd, peer) in &primary.peers {
            let is_member = primary.members.contains(osd);
            if is_active && is_member && !peer.is_complete() {
                out.backfill_targets.push(*osd);
            } else if is_active && is_member && !pg.interval.acting.contains(osd) {
                out.async_recovery_targets.push(*osd);
            }
            let last_backfill = peer.last_backfill.clone().unwrap_or_else(HObject::min);
            out.peers.push(PeerStatus {
                osd: *osd,
                is_member,
                info: peer.report.as_ref().map(|report| report.info.clone()),
                durable_to: peer.durable_to,
                missing: peer.missing.len(),
                lacks: lacks_of(pg, primary, *osd, peer),
                last_backfill,
            });
            if peer.is_asked && peer.report.is_none() {
                out.probing.push(*osd);
            }
        }
        (out.stage, out.blocked_by) = stage_of(primary, &out.probing);
        if primary.stage == Stage::GetInfo && out.probing.is_empty() {
            out.blocked_by = vec![self.config.osd.0];
        }
        let mut state = match &primary.stage {
            Stage::Down { .. } => PgState::DOWN,
            Stage::Incomplete => PgState::INCOMPLETE,
            Stage::Activating if primary.is_waiting => PgState::PEERING.with(PgState::WAIT),
            Stage::Activating => PgState::ACTIVATING,
            Stage::Active if pg.phase == PgPhase::Active => PgState::ACTIVE,
            Stage::Active => PgState::PEERED,
            _ => PgState::PEERING,
        };
        if pg.interval.acting != pg.interval.up {
            state = state.with(PgState::REMAPPED);
        }
        // Stock sets these with the beginning of the activation.
        if matches!(primary.stage, Stage::Activating | Stage::Active) {
            if pg.interval.acting_count() < pg.interval.size as usize {
                state = state.with(PgState::UNDERSIZED);
            }
            out.missing_on_primary = pg.missing.len() as i64;
            out.unfound = primary.recovery.unfound.len() as i64;
            if !primary.is_clean {
                let might_have = pg.might_have_unfound(own).into_iter();
                out.might_have_unfound = might_have.map(|osd| (osd, pg.has_probed(osd))).collect();
            }
            if !primary.is_clean {
                let mut copies: Vec<Copy> = vec![Copy { osd: own, lacks: out.missing_on_primary }];
                copies.extend(
                    out.peers
                        .iter()
                        .filter(|peer| peer.is_member)
                        .map(|p| Copy { osd: p.osd, lacks: p.lacks }),
                );
                out.complete = copies.iter().filter(|copy| copy.lacks == 0).map(|copy| copy.osd).collect();
                let objects = pg.progress.stats.objects.max(0);
                (out.degraded, out.misplaced) = count_copies(&pg.interval, objects, copies);
            }
            if out.degraded > 0 {
                state = state.with(PgState::DEGRADED);
            }
        }
        if is_active && self.merge_part_of(pg.id.pg).is_some() {
            state = state.with(PgState::PREMERGE);
        }
        if is_active {
            state = state.with(recovery_state(primary, &out.backfill_targets));
            out.progress = progress_of(primary);
            if let Some(scrub) = &primary.scrub {
                state = state.with(scrub.state());
            }
            let (untrimmed, trim) = self.trim_status(pg);
            state = state.with(trim);
            (out.untrimmed_snaps, out.purged_snaps) = (untrimmed, primary.trims.purged.clone());
            if pg.scrub.stamps.has_failed_repair {
                state = state.with(PgState::FAILED_REPAIR);
            }
        }
        let named = pg.interval.up.iter().chain(&pg.interval.acting);
        let has_errors = pg.scrub.stamps.shallow_errors + pg.scrub.stamps.deep_errors > 0;
        if has_errors || !pg.damaged.is_empty() || named.into_iter().any(|osd| primary.is_unreadable(*osd)) {
            state = state.with(PgState::INCONSISTENT);
        }
        out.state = state;
    }
}

/// The name of the stage in stock's state machine, and the OSDs that it waits for.
fn stage_of(primary: &Primary, probing: &[i32]) -> (&'static str, Vec<i32>) {
    let peers_that = |wait: fn(&crate::pg::role::Peer) -> bool| -> Vec<i32> {
        primary.peers.iter().filter(|(_, peer)| wait(peer)).map(|(osd, _)| *osd).collect()
    };
    match &primary.stage {
        Stage::GetInfo => ("Started/Primary/Peering/GetInfo", probing.to_vec()),
        Stage::Down { blocked_by } => ("Started/Primary/Peering/Down", blocked_by.clone()),
        Stage::Incomplete => ("Started/Primary/Peering/Incomplete", Vec::new()),
        Stage::GetLog { from } => ("Started/Primary/Peering/GetLog", vec![*from]),
        Stage::GetMissing => {
            ("Started/Primary/Peering/GetMissing", peers_that(|peer| peer.is_log_asked && peer.log.is_none()))
        }
        Stage::WaitActing { .. } => ("Started/Primary/WaitActingChange", Vec::new()),
        Stage::WaitUpThru => ("Started/Primary/Peering/WaitUpThru", Vec::new()),
        Stage::Activating => {
            let members = primary.members.iter().copied();
            let waits = |osd: &i32| primary.peers.get(osd).is_none_or(|peer| !peer.is_activated);
            ("Started/Primary/Active", members.filter(waits).collect())
        }
        Stage::Active => ("Started/Primary/Active", Vec::new()),
    }
}

/// The flags of an active PG's recovery. Unfound objects show when nothing else is left to recover.
fn recovery_state(primary: &Primary, backfill_targets: &[i32]) -> PgState {
    let recovery = &primary.recovery;
    if primary.is_clean {
        return PgState::CLEAN;
    }
    let has_places = primary.reservation.as_ref().is_some_and(|reservation| reservation.is_complete);
    let hindrance = primary.hold_off.map(|hold_off| hold_off.why);
    if !recovery.active.is_empty() || !recovery.repairing.is_empty() {
        PgState::RECOVERING
    } else if !recovery.queue.is_empty() {
        match hindrance {
            Some(Hindrance::RecoveryTooFull) => PgState::RECOVERY_TOOFULL,
            _ if has_places => PgState::RECOVERING,
            _ => PgState::RECOVERY_WAIT,
        }
    } else if !recovery.unfound.is_empty() {
        PgState::RECOVERY_UNFOUND
    } else if primary.backfill.is_some() {
        PgState::BACKFILLING
    } else if !backfill_targets.is_empty() {
        match hindrance {
            Some(Hindrance::BackfillTooFull) => PgState::BACKFILL_TOOFULL,
            Some(Hindrance::Unreadable) => PgState::BACKFILL_UNFOUND,
            _ => PgState::BACKFILL_WAIT,
        }
    } else {
        PgState::default()
    }
}

fn progress_of(primary: &Primary) -> ProgressStatus {
    let active = &primary.recovery.active;
    let mut out =
        ProgressStatus { recovering: active.keys().cloned().collect(), ..ProgressStatus::default() };
    for (object, recovering) in active {
        out.pulling.extend(recovering.pulling_from.map(|from| (from, object.clone())));
        out.pushing.extend(recovering.pushing_to.iter().map(|to| (*to, object.clone())));
    }
    if let Some(backfill) = &primary.backfill {
        out.pushing.extend(backfill.pushing.iter().map(|object| (backfill.target, object.clone())));
        out.window = Some((backfill.target, backfill.begin.clone(), backfill.end.clone()));
    }
    out
}

/// Objects that a peer lacks. They are counted while it is backfilled.
fn lacks_of(pg: &Pg, primary: &Primary, osd: i32, peer: &Peer) -> i64 {
    let cursor = peer.last_backfill.clone().unwrap_or_else(HObject::min);
    let Some(reached) = peer.reached.filter(|_| !cursor.max) else {
        return lacking(pg, peer.missing.len(), &cursor);
    };
    let objects = pg.progress.stats.objects.max(0);
    let window = primary.backfill.as_ref().filter(|backfill| backfill.target == osd);
    let copied = window.map_or(0, |backfill| backfill.copied());
    (objects - reached - copied + peer.missing.len() as i64).clamp(objects.min(1), objects)
}

/// Objects that a copy lacks. Objects are spread evenly over the hashes, so the part beyond `last_backfill` is an estimate.
pub(super) fn lacking(pg: &Pg, missing: usize, last_backfill: &HObject) -> i64 {
    let objects = pg.progress.stats.objects.max(0);
    let missing = missing as i64;
    if last_backfill.max {
        return missing;
    }
    let (beyond, range) = share_beyond(pg, last_backfill);
    let beyond = (i128::from(objects) * i128::from(beyond)).div_euclid(i128::from(range)) as i64;
    // A backfill that has not ended lacks something, unless the PG is empty.
    (beyond + missing).clamp(objects.min(1), objects)
}

/// The part of a PG's hashes beyond a backfill cursor, and the number of all of them.
pub(super) fn share_beyond(pg: &Pg, last_backfill: &HObject) -> (u64, u64) {
    let range = 1u64 << (32 - u32::from(pg.split_bits));
    let start = u64::from(pg.start().reversed_hash());
    let reached = match (last_backfill.max, last_backfill.is_min()) {
        (true, _) => range,
        (_, true) => 0,
        _ => u64::from(last_backfill.reversed_hash()).saturating_sub(start).min(range),
    };
    (range - reached, range)
}

/// A member's copy of a PG.
#[derive(Clone, Copy, Debug)]
struct Copy {
    osd: i32,
    lacks: i64,
}

/// Degraded and misplaced copies, after `PeeringState::update_calc_stats`. A copy that an OSD of the up set lacks is misplaced
/// if an acting OSD outside of up stands in with it, and degraded otherwise. `members`: the acting and up OSDs.
fn count_copies(interval: &Interval, objects: i64, members: Vec<Copy>) -> (i64, i64) {
    let target = (interval.size as usize).max(interval.up.len());
    let (targets, sources): (Vec<Copy>, Vec<Copy>) =
        members.into_iter().partition(|copy| interval.up.contains(&copy.osd));
    let mut lacking: Vec<i64> = targets.iter().map(|copy| copy.lacks).collect();
    lacking.extend(std::iter::repeat_n(objects, target.saturating_sub(targets.len())));
    lacking.sort_unstable_by(|a, b| b.cmp(a));
    let mut sources: Vec<i64> = sources.iter().map(|copy| copy.lacks).collect();
    sources.sort_unstable();
    let mut sources = sources.into_iter();
    let (mut degraded, mut misplaced) = (0, 0);
    for lacks in lacking {
        match sources.next() {
            Some(source) if lacks >= source => {
                misplaced += lacks - source;
                degraded += source;
            }
            _ => degraded += lacks,
        }
    }
    // Surplus copies have no place.
    misplaced += sources.map(|lacks| (objects - lacks).max(0)).sum::<i64>();
    (degraded, misplaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::PgId;

    fn interval(up: &[i32], acting: &[i32]) -> Interval {
        Interval { up: up.to_vec(), ..Interval::new(5, acting.to_vec(), 3, 2) }
    }

    fn copies(lacks: &[(i32, i64)]) -> Vec<Copy> {
        lacks.iter().map(|(osd, lacks)| Copy { osd: *osd, lacks: *lacks }).collect()
    }

    #[test]
    fn absent_copy_degrades_every_object() {
        let counted = count_copies(&interval(&[0, 1], &[0, 1]), 10, copies(&[(0, 0), (1, 0)]));
        assert_eq!(counted, (10, 0));
    }

    #[test]
    fn missing_objects_degrade_their_copies() {
        let counted = count_copies(&interval(&[0, 1, 2], &[0, 1, 2]), 10, copies(&[(0, 2), (1, 3), (2, 0)]));
        assert_eq!(counted, (5, 0));
    }

    #[test]
    fn stand_in_makes_copies_misplaced() {
        // OSD 3 is to replace OSD 2, which still acts.
        let moved = interval(&[0, 1, 3], &[0, 1, 2]);
        let counted = |left| count_copies(&moved, 10, copies(&[(0, 0), (1, 0), (2, 0), (3, left)]));
        assert_eq!((counted(10), counted(4), counted(0)), ((0, 10), (0, 4), (0, 0)));
        // What the stand-in itself lacks is degraded.
        let counted = count_copies(&moved, 10, copies(&[(0, 0), (1, 0), (2, 3), (3, 10)]));
        assert_eq!(counted, (3, 7));
    }

    #[test]
    fn backfill_target_without_stand_in_is_degraded() {
        // OSD 2 is gone, OSD 3 gets everything: no copy is elsewhere.
        let counted = count_copies(&interval(&[0, 1, 3], &[0, 1]), 10, copies(&[(0, 0), (1, 0), (3, 6)]));
        assert_eq!(counted, (6, 0));
    }

    #[test]
    fn complete_targets_leave_nothing_misplaced() {
        let all = copies(&[(0, 0), (1, 0), (2, 0), (3, 4), (4, 0)]);
        let counted = count_copies(&interval(&[0, 1, 2], &[0, 1, 2, 3, 4]), 10, all);
        assert_eq!(counted, (0, 0));
    }

    #[test]
    fn backfill_lacks_the_hashes_beyond_its_place() {
        let mut pg = Pg::new(PgId { pool: 1, seed: 1 }.into(), 1, PgPhase::Active);
        pg.progress.stats.objects = 100;
        let quarter = HObject { hash: (0x8000_0000u32 + 0x2000_0000).reverse_bits(), ..pg.start() };
        assert_eq!(lacking(&pg, 0, &HObject::max()), 0);
        assert_eq!(lacking(&pg, 7, &HObject::max()), 7);
        assert_eq!(lacking(&pg, 0, &HObject::min()), 100);
        assert_eq!(lacking(&pg, 0, &pg.start()), 100);
        assert_eq!(lacking(&pg, 0, &quarter), 75);
        assert_eq!(lacking(&pg, 3, &quarter), 78);
    }
}
