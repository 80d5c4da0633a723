//! An OSD's record of one PG (`pg_info_t`): extent of its log, its statistics, its history.

use super::{Epoch, Eversion, HObject, IntervalSet, PgId, PgStat, ShardId, SpgId, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Milestones of a PG's life that all its OSDs agree on (`pg_history_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PgHistory {
    pub epoch_created: Epoch,
    pub epoch_pool_created: Epoch,
    /// The last epoch in which it was active.
    pub last_epoch_started: Epoch,
    /// The first epoch of the interval in which that was.
    pub last_interval_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub last_interval_clean: Epoch,
    pub last_epoch_split: Epoch,
    pub last_epoch_marked_full: Epoch,
    /// Since when the up set, both sets and the primary are what they are.
    pub same_up_since: Epoch,
    pub same_interval_since: Epoch,
    pub same_primary_since: Epoch,
    pub last_scrub: Eversion,
    pub last_scrub_stamp: UTime,
    pub last_deep_scrub: Eversion,
    pub last_deep_scrub_stamp: UTime,
    pub last_clean_scrub_stamp: UTime,
    /// Time, from when it is read, in which an earlier interval may still serve reads: seconds and nanoseconds.
    pub prior_readable_until: (i32, i32),
}

impl Encode for PgHistory {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 4, |w| {
            w.u32(self.epoch_created);
            w.u32(self.last_epoch_started);
            w.u32(self.last_epoch_clean);
            w.u32(self.last_epoch_split);
            w.u32(self.same_interval_since);
            w.u32(self.same_up_since);
            w.u32(self.same_primary_since);
            w.put(&self.last_scrub);
            w.put(&self.last_scrub_stamp);
            w.put(&self.last_deep_scrub);
            w.put(&self.last_deep_scrub_stamp);
            w.put(&self.last_clean_scrub_stamp);
            w.u32(self.last_epoch_marked_full);
            w.u32(self.last_interval_started);
            w.u32(self.last_interval_clean);
            w.u32(self.epoch_pool_created);
            w.put(&self.prior_readable_until);
        });
    }
}

impl Decode for PgHistory {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // Versions below 9 were written before any release that shoal meets.
        r.envelope("pg_history_t", 10, |r, v| {
            if v < 9 {
                return Err(DecodeError::TooOld { what: "pg_history_t", version: v });
            }
            let mut out = PgHistory {
                epoch_created: r.u32()?,
                last_epoch_started: r.u32()?,
                last_epoch_clean: r.u32()?,
                last_epoch_split: r.u32()?,
                same_interval_since: r.u32()?,
                same_up_since: r.u32()?,
                same_primary_since: r.u32()?,
                last_scrub: r.get()?,
                last_scrub_stamp: r.get()?,
                last_deep_scrub: r.get()?,
                last_deep_scrub_stamp: r.get()?,
                last_clean_scrub_stamp: r.get()?,
                last_epoch_marked_full: r.u32()?,
                last_interval_started: r.u32()?,
                last_interval_clean: r.u32()?,
                epoch_pool_created: r.u32()?,
                prior_readable_until: (0, 0),
            };
            if v >= 10 {
                out.prior_readable_until = r.get()?;
            }
            Ok(out)
        })
    }
}

/// One archived set of objects that were hit, of a cache tier (`pg_hit_set_info_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct HitSetInfo {
    pub begin: UTime,
    pub end: UTime,
    pub version: Eversion,
    #[since(2)]
    pub using_gmt: bool,
}

/// `pg_hit_set_history_t`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct HitSetHistory {
    pub current_last_update: Eversion,
    /// Unused, and so is the next.
    pub current_last_stamp: UTime,
    pub current_info: HitSetInfo,
    pub history: Vec<HitSetInfo>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct PgInfo {
    pub pg: SpgId,
    /// The newest entry of its log.
    pub last_update: Eversion,
    /// Up to there nothing is missing.
    pub last_complete: Eversion,
    /// The entry before the oldest of its log.
    pub log_tail: Eversion,
    pub last_epoch_started: Epoch,
    pub last_interval_started: Epoch,
    pub last_user_version: u64,
    /// Objects before it have been backfilled; the maximum when all have.
    pub last_backfill: HObject,
    pub purged_snaps: IntervalSet,
    pub stats: PgStat,
    pub history: PgHistory,
    pub hit_set: HitSetHistory,
    /// Of an erasure-coded PG: from where to where a shard was left out of partial writes.
    pub partial_writes_last_complete: BTreeMap<ShardId, (Eversion, Eversion)>,
    pub partial_writes_last_complete_epoch: Epoch,
}

impl Encode for PgInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(34, 26, |w| {
            w.put(&self.pg.pg);
            w.put(&self.last_update);
            w.put(&self.last_complete);
            w.put(&self.log_tail);
            // Where backfill was when objects had another order.
            w.put(&HObject::min());
            w.put(&self.stats);
            w.put(&self.history);
            w.put(&self.purged_snaps);
            w.u32(self.last_epoch_started);
            w.u64(self.last_user_version);
            w.put(&self.hit_set);
            w.put(&self.pg.shard);
            w.put(&self.last_backfill);
            // In today's order.
            w.bool(true);
            w.u32(self.last_interval_started);
            w.put(&self.partial_writes_last_complete);
            w.u32(self.partial_writes_last_complete_epoch);
        });
    }
}

impl Decode for PgInfo {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("pg_info_t", 34, |r, v| {
            if v < 31 {
                return Err(DecodeError::TooOld { what: "pg_info_t", version: v });
            }
            let pg: PgId = r.get()?;
            let (last_update, last_complete, log_tail) = (r.get()?, r.get()?, r.get()?);
            r.get::<HObject>()?;
            let (stats, history, purged_snaps) = (r.get()?, r.get()?, r.get()?);
            let last_epoch_started = r.u32()?;
            let (last_user_version, hit_set) = (r.u64()?, r.get()?);
            let shard = r.get()?;
            let last_backfill = r.get()?;
            r.bool()?;
            let last_interval_started = if v >= 32 { r.u32()? } else { last_epoch_started };
            Ok(PgInfo {
                pg: SpgId { pg, shard },
                last_update,
                last_complete,
                log_tail,
                last_epoch_started,
                last_interval_started,
                last_user_version,
                last_backfill,
                purged_snaps,
                stats,
                history,
                hit_set,
                partial_writes_last_complete: if v >= 33 { r.get()? } else { BTreeMap::new() },
                partial_writes_last_complete_epoch: if v >= 34 { r.u32()? } else { 0 },
            })
        })
    }
}
