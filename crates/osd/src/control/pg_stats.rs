//! The statistics of each PG that this OSD is the primary of (`pg_stat_t`), as the manager gets them.
//!
//! The shard computes a PG's state and counts of copies ([`PgStatus`]). This file adds the map's placement and the times of
//! the states. A stamp such as `last_clean` advances while its condition holds and stays when it ends, as in stock's
//! `prepare_stats_for_publish`. Stock stores the stamps with the PG. Here they begin when this OSD becomes the primary.

use super::holdings::Entry;
use crate::shard::{PgReport, PgStatus};
use wire::types::{
    Epoch, Eversion, HObject, ObjectStatCollection, ObjectStatSum, OsdId, PgShard, PgStat, PgState, ShardId,
    SnapId, UTime,
};

/// States in which a PG has peered.
fn is_peered(state: PgState) -> bool {
    state.has(PgState::ACTIVE) || state.has(PgState::PEERED)
}

/// A PG that was never active shows `creating` until it is. A copy that lacks objects is no new PG: the OSD has lost its
/// store, or the PG comes from another OSD.
fn with_creating(state: PgState, is_birth: bool, report: Option<&PgReport>) -> PgState {
    let is_new = report.map_or(is_birth, |report| {
        let is_whole = report.status.last_backfill.as_ref().is_some_and(|to| *to == HObject::max());
        report.history.last_epoch_started == 0 && is_whole
    });
    if is_new && !is_peered(state) { state.with(PgState::CREATING) } else { state }
}

/// Priority that an operator gave a PG: `FORCED_RECOVERY` and `FORCED_BACKFILL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Forced(PgState);

impl Forced {
    pub fn set(&mut self, flag: PgState) {
        self.0 = self.0.with(flag);
    }

    pub fn clear(&mut self, flag: PgState) {
        self.0 = self.0.without(flag);
    }

    /// The flags end with the work that they are for.
    pub fn keep_useful(&mut self, state: PgState) {
        let needs = |flags: &[PgState]| flags.iter().any(|flag| state.has(*flag));
        if !needs(&[PgState::DEGRADED, PgState::RECOVERY_WAIT, PgState::RECOVERING]) {
            self.clear(PgState::FORCED_RECOVERY);
        }
        if !needs(&[PgState::DEGRADED, PgState::BACKFILL_WAIT, PgState::BACKFILLING]) {
            self.clear(PgState::FORCED_BACKFILL);
        }
    }

    pub fn is_none(self) -> bool {
        self == Forced::default()
    }

    pub fn flags(self) -> PgState {
        self.0
    }
}

/// `pg_scrub_sched_status_t::active`.
const SCRUB_ACTIVE: u16 = 2;

/// The times of a PG's states, as this primary saw them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamps {
    state: PgState,
    change: UTime,
    active: UTime,
    peered: UTime,
    clean: UTime,
    undegraded: UTime,
    fullsized: UTime,
    became_active: UTime,
    became_peered: UTime,
}

impl Stamps {
    /// Of a PG that nobody has reported: stuck states count from now on.
    pub fn new(now: UTime) -> Stamps {
        Stamps {
            state: PgState::UNKNOWN,
            change: now,
            active: now,
            peered: now,
            clean: now,
            undegraded: now,
            fullsized: now,
            became_active: UTime::ZERO,
            became_peered: UTime::ZERO,
        }
    }

    pub fn advance(&mut self, now: UTime, state: PgState) {
        let old = std::mem::replace(&mut self.state, state);
        if old != state {
            self.change = now;
            // It was active until this change.
            if old.has(PgState::ACTIVE) {
                self.active = now;
            }
            if state.has(PgState::ACTIVE) && !old.has(PgState::ACTIVE) {
                self.became_active = now;
            }
            if is_peered(state) && !is_peered(old) {
                self.became_peered = now;
            }
        }
        let holds = [
            (state.has(PgState::CLEAN), &mut self.clean),
            (state.has(PgState::ACTIVE), &mut self.active),
            (is_peered(state), &mut self.peered),
            (!state.has(PgState::DEGRADED), &mut self.undegraded),
            (!state.has(PgState::UNDERSIZED), &mut self.fullsized),
        ];
        for (is_true, stamp) in holds {
            if is_true {
                *stamp = now;
            }
        }
    }
}

/// The shard's status of the present interval as primary. Older ones and those of a replica tell nothing about the PG.
pub(super) fn present_status(report: Option<&PgReport>, interval_since: Option<Epoch>) -> Option<&PgStatus> {
    let status = &report?.status;
    (status.is_primary && Some(status.interval.since) == interval_since).then_some(status)
}

/// `PG_STATE_*` of a PG that the map has this OSD the primary of.
pub(super) fn state_of(entry: &Entry, report: Option<&PgReport>) -> PgState {
    let since = Some(entry.intervals.present.since);
    let state = present_status(report, since).map_or(PgState::PEERING, |status| status.state);
    with_creating(state, entry.intervals.is_birth, report)
}

/// The number of a report, and its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    pub seq: u64,
    pub epoch: Epoch,
    pub at: UTime,
}

pub(super) fn pg_stat(
    entry: &Entry,
    report: Option<&PgReport>,
    status: Option<&PgStatus>,
    stamps: &Stamps,
    reported: Reported,
) -> PgStat {
    let placement = &entry.placement;
    let mut out = PgStat {
        reported_seq: reported.seq,
        reported_epoch: reported.epoch,
        state: stamps.state,
        up: placement.up.clone(),
        acting: placement.acting.clone(),
        up_primary: placement.up_primary,
        acting_primary: placement.acting_primary,
        mapping_epoch: entry.placed_since,
        last_fresh: reported.at,
        last_unstale: reported.at,
        last_change: stamps.change,
        last_active: stamps.active,
        last_peered: stamps.peered,
        last_clean: stamps.clean,
        last_undegraded: stamps.undegraded,
        last_fullsized: stamps.fullsized,
        last_became_active: stamps.became_active,
        last_became_peered: stamps.became_peered,
        ..PgStat::unknown()
    };
    let Some(report) = report else { return out };
    out.version = report.last_update;
    out.log_start = report.log_tail;
    out.ondisk_log_start = report.log_tail;
    out.created = report.history.created;
    out.last_epoch_clean = report.history.last_epoch_clean;
    out.log_size = report.log_len as i64;
    out.ondisk_log_size = report.log_len as i64;
    out.log_dups_size = report.duplicates_len as i64;
    let scrub = &report.scrub;
    (out.last_scrub, out.last_scrub_stamp) = (scrub.last_scrub, scrub.last_scrub_at);
    (out.last_deep_scrub, out.last_deep_scrub_stamp) = (scrub.last_deep_scrub, scrub.last_deep_scrub_at);
    out.last_clean_scrub_stamp = scrub.last_clean_at;
    out.last_scrub_duration = scrub.duration_ms.div_ceil(1000) as i32;
    out.scrub_duration_sec = scrub.duration_ms as f64 / 1000.0;
    out.objects_scrubbed = scrub.objects as i64;
    if stamps.state.has(PgState::SCRUBBING) {
        out.scrub.status = SCRUB_ACTIVE;
        out.scrub.is_active = true;
        out.scrub.is_deep = stamps.state.has(PgState::DEEP_SCRUB);
    }
    // A deep scrub counts keys and bytes.
    out.omap_stats_invalid = report.stats.omap_objects > 0 && scrub.last_deep_scrub == Eversion::ZERO;
    out.stats = ObjectStatCollection { sum: object_sum(report, status) };
    if let Some(status) = status {
        out.snaptrimq_len = status.untrimmed_snaps;
        out.purged_snaps = status.purged_snaps.iter().map(|(start, len)| (SnapId(start), len)).collect();
        out.blocked_by = status.blocked_by.clone();
        let shard = |osd: &i32| PgShard { osd: OsdId(*osd), shard: ShardId::NONE };
        out.avail_no_missing = status.complete.iter().map(shard).collect();
    }
    out
}

fn object_sum(report: &PgReport, status: Option<&PgStatus>) -> ObjectStatSum {
    let (s, interval) = (&report.stats, &report.status.interval);
    let objects = s.objects.max(0);
    let copies = (interval.size as usize).max(interval.up.len()).max(interval.acting.len());
    let none = PgStatus::default();
    let status = status.unwrap_or(&none);
    let scrub = &report.scrub;
    ObjectStatSum {
        num_bytes: s.bytes.max(0),
        num_objects: objects,
        num_object_clones: report.snap_counts.clones.max(0),
        num_whiteouts: report.snap_counts.whiteouts.max(0),
        num_object_copies: objects * copies.max(1) as i64,
        num_objects_missing_on_primary: status.missing_on_primary,
        num_objects_degraded: status.degraded,
        num_objects_misplaced: status.misplaced,
        num_objects_unfound: status.unfound,
        num_objects_recovered: report.recovered.objects,
        num_bytes_recovered: report.recovered.bytes,
        num_keys_recovered: report.recovered.keys,
        num_objects_dirty: objects,
        num_objects_omap: s.omap_objects.max(0),
        num_rd: s.reads,
        num_rd_kb: s.read_kib,
        num_wr: s.writes,
        num_wr_kb: s.write_kib,
        num_scrub_errors: report.damaged as i64 + (scrub.shallow_errors + scrub.deep_errors) as i64,
        num_shallow_scrub_errors: scrub.shallow_errors as i64,
        num_deep_scrub_errors: report.damaged as i64 + scrub.deep_errors as i64,
        num_objects_repaired: scrub.repaired as i64,
        num_omap_bytes: scrub.omap_bytes as i64,
        num_omap_keys: scrub.omap_keys as i64,
        ..ObjectStatSum::default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::holdings::held;
    use super::*;
    use crate::pg::PgPhase;
    use crate::pg::meta::{PgHistory, PgStats};
    use crate::shard::Interval;
    use machine::CoreId;
    use std::sync::Arc;
    use wire::types::{PgId, RecoveredCounts, SnapCounts};

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    /// An active PG of three copies with 10 objects, in an interval that began with map 5.
    pub fn report() -> PgReport {
        let interval = Arc::new(Interval::new(5, vec![0, 1, 2], 3, 2));
        PgReport {
            pg: PgId { pool: 1, seed: 0 }.into(),
            phase: PgPhase::Active,
            history: PgHistory {
                created: 2,
                last_epoch_started: 5,
                last_epoch_clean: 4,
                ..PgHistory::default()
            },
            last_update: Eversion { epoch: 5, version: 12 },
            committed: Eversion { epoch: 5, version: 12 },
            status: PgStatus {
                is_primary: true,
                state: PgState::ACTIVE.with(PgState::CLEAN),
                interval,
                stage: "Started/Primary/Active",
                last_backfill: Some(HObject::max()),
                ..PgStatus::default()
            },
            log_tail: Eversion::ZERO,
            log_len: 12,
            duplicates_len: 0,
            damaged: 0,
            scrub: Default::default(),
            stats: PgStats { objects: 10, bytes: 1000, ..PgStats::default() },
            recovered: RecoveredCounts { objects: 6, bytes: 600, keys: 2 },
            snap_counts: SnapCounts::default(),
        }
    }

    fn entry_since(since: Epoch) -> Entry {
        let mut entry = held(CoreId(0), 0);
        Arc::make_mut(&mut entry.intervals.present).since = since;
        entry
    }

    #[test]
    fn stamp_stays_when_its_condition_ends() {
        let clean = PgState::ACTIVE.with(PgState::CLEAN);
        let degraded = PgState::ACTIVE.with(PgState::DEGRADED).with(PgState::UNDERSIZED);
        let mut stamps = Stamps::new(at(1));
        stamps.advance(at(2), PgState::CREATING.with(PgState::PEERING));
        assert_eq!((stamps.active, stamps.became_active, stamps.undegraded), (at(1), UTime::ZERO, at(2)));
        stamps.advance(at(3), clean);
        stamps.advance(at(4), clean);
        assert_eq!((stamps.change, stamps.became_active, stamps.became_peered), (at(3), at(3), at(3)));
        assert_eq!((stamps.active, stamps.clean, stamps.fullsized), (at(4), at(4), at(4)));
        stamps.advance(at(5), degraded);
        stamps.advance(at(6), degraded);
        assert_eq!((stamps.clean, stamps.undegraded, stamps.fullsized), (at(4), at(4), at(4)));
        assert_eq!((stamps.active, stamps.change, stamps.became_active), (at(6), at(5), at(3)));
        // An inactive PG was active until then.
        stamps.advance(at(7), PgState::PEERING);
        stamps.advance(at(8), PgState::PEERING);
        assert_eq!((stamps.active, stamps.peered), (at(7), at(6)));
    }

    #[test]
    fn report_of_an_older_interval_shows_peering() {
        let (report, mut entry) = (report(), entry_since(5));
        assert_eq!(state_of(&entry, Some(&report)).to_string(), "active+clean");
        entry = entry_since(6);
        assert_eq!(state_of(&entry, Some(&report)).to_string(), "peering");
        assert_eq!(state_of(&entry, None).to_string(), "peering");
        entry.intervals.is_birth = true;
        assert_eq!(state_of(&entry, None).to_string(), "creating+peering");
    }

    #[test]
    fn pg_is_creating_until_it_was_active() {
        let (mut report, entry) = (report(), entry_since(5));
        report.history.last_epoch_started = 0;
        report.status.state = PgState::PEERING;
        assert_eq!(state_of(&entry, Some(&report)).to_string(), "creating+peering");
        report.status.state = PgState::ACTIVATING;
        assert_eq!(state_of(&entry, Some(&report)).to_string(), "creating+activating");
        report.status.state = PgState::PEERED.with(PgState::UNDERSIZED);
        assert_eq!(state_of(&entry, Some(&report)).to_string(), "undersized+peered");
        // Its store is new, and the PG is not.
        report.status.state = PgState::INCOMPLETE;
        report.status.last_backfill = Some(HObject::min());
        assert_eq!(state_of(&entry, Some(&report)).to_string(), "incomplete");
    }

    #[test]
    fn statistics_have_the_counts_of_copies() {
        let (mut report, entry) = (report(), held(CoreId(0), 0));
        report.status.state = PgState::ACTIVE.with(PgState::DEGRADED);
        (report.status.degraded, report.status.misplaced, report.status.unfound) = (7, 3, 1);
        (report.status.missing_on_primary, report.status.blocked_by) = (2, vec![4]);
        report.status.complete = vec![1];
        report.snap_counts = SnapCounts { clones: 4, whiteouts: 2 };
        let mut stamps = Stamps::new(at(1));
        stamps.advance(at(9), report.status.state);
        let reported = Reported { seq: 3, epoch: 8, at: at(9) };
        let stat = pg_stat(&entry, Some(&report), Some(&report.status), &stamps, reported);
        let sum = stat.stats.sum;
        assert_eq!((sum.num_objects, sum.num_object_copies), (10, 30));
        assert_eq!((sum.num_object_clones, sum.num_whiteouts), (4, 2));
        assert_eq!((sum.num_objects_degraded, sum.num_objects_misplaced), (7, 3));
        assert_eq!((sum.num_objects_recovered, sum.num_bytes_recovered, sum.num_keys_recovered), (6, 600, 2));
        assert_eq!((sum.num_objects_unfound, sum.num_objects_missing_on_primary), (1, 2));
        assert_eq!((stat.blocked_by, stat.avail_no_missing.len()), (vec![4], 1));
        assert_eq!((stat.state, stat.last_epoch_clean, stat.reported_epoch), (report.status.state, 4, 8));
        // Another interval: the objects are known, and where they lack is not.
        let stat = pg_stat(&entry, Some(&report), None, &stamps, reported);
        assert_eq!((stat.stats.sum.num_objects, stat.stats.sum.num_objects_degraded), (10, 0));
    }

    #[test]
    fn forced_flag_ends_with_its_work() {
        let mut forced = Forced::default();
        forced.set(PgState::FORCED_RECOVERY);
        forced.set(PgState::FORCED_BACKFILL);
        forced.keep_useful(PgState::ACTIVE.with(PgState::BACKFILLING));
        assert_eq!(forced.flags(), PgState::FORCED_BACKFILL);
        forced.keep_useful(PgState::ACTIVE.with(PgState::CLEAN));
        assert!(forced.is_none());
    }
}
