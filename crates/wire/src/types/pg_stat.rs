//! An OSD's report on one PG (`pg_stat_t`).

use super::{Epoch, Eversion, ObjectStatCollection, OsdId, PgId, PgState, ShardId, SnapId, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// An OSD in its role for one erasure-coded shard (`pg_shard_t`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PgShard {
    pub osd: OsdId,
    pub shard: ShardId,
}

impl Encode for PgShard {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.i32(self.osd.0);
            w.put(&self.shard);
        });
    }
}

impl Decode for PgShard {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("pg_shard_t", 1, |r, _| Ok(PgShard { osd: OsdId(r.i32()?), shard: r.get()? }))
    }
}

/// The scrub that runs or comes next, as the OSD plans it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ScrubSchedule {
    pub scheduled_at: UTime,
    pub duration_sec: i32,
    /// `pg_scrub_sched_status_t`.
    pub status: u16,
    pub is_active: bool,
    pub is_deep: bool,
    pub is_periodic: bool,
    pub osd_to_respond: u16,
    pub ordinal_of_requested_replica: u8,
    pub num_to_reserve: u8,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct PgStat {
    pub version: Eversion,
    pub reported_seq: u64,
    pub reported_epoch: Epoch,
    pub state: PgState,
    pub log_start: Eversion,
    pub ondisk_log_start: Eversion,
    pub created: Epoch,
    pub last_epoch_clean: Epoch,
    pub parent: PgId,
    pub parent_split_bits: u32,
    pub last_scrub: Eversion,
    pub last_scrub_stamp: UTime,
    pub stats: ObjectStatCollection,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    pub up: Vec<i32>,
    pub acting: Vec<i32>,
    /// When each was last true: reported; changed; active; clean; not stale.
    pub last_fresh: UTime,
    pub last_change: UTime,
    pub last_active: UTime,
    pub last_clean: UTime,
    pub last_unstale: UTime,
    pub mapping_epoch: Epoch,
    pub last_deep_scrub: Eversion,
    pub last_deep_scrub_stamp: UTime,
    pub stats_invalid: bool,
    pub last_clean_scrub_stamp: UTime,
    pub last_became_active: UTime,
    pub dirty_stats_invalid: bool,
    /// -1: nobody. A blank report must say so, which `PgStat::unknown` does.
    pub up_primary: i32,
    pub acting_primary: i32,
    pub omap_stats_invalid: bool,
    pub hitset_stats_invalid: bool,
    pub blocked_by: Vec<i32>,
    pub last_undegraded: UTime,
    pub last_fullsized: UTime,
    pub hitset_bytes_stats_invalid: bool,
    pub last_peered: UTime,
    pub last_became_peered: UTime,
    pub pin_stats_invalid: bool,
    pub snaptrimq_len: u32,
    /// First snapshot of a run, and its length.
    pub purged_snaps: BTreeMap<SnapId, u64>,
    pub manifest_stats_invalid: bool,
    pub avail_no_missing: Vec<PgShard>,
    pub object_location_counts: BTreeMap<BTreeSet<PgShard>, i32>,
    pub last_scrub_duration: i32,
    pub scrub: ScrubSchedule,
    pub objects_scrubbed: i64,
    pub scrub_duration_sec: f64,
    pub objects_trimmed: i64,
    pub snaptrim_duration_sec: f64,
    pub log_dups_size: i64,
}

impl PgStat {
    /// Nobody has reported the PG yet.
    pub fn unknown() -> PgStat {
        PgStat { up_primary: -1, acting_primary: -1, ..PgStat::default() }
    }
}

/// The state's halves stand apart, because it once had 32 bits.
impl Encode for PgStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(30, 22, |w| {
            w.put(&self.version);
            w.put(&self.reported_seq);
            w.put(&self.reported_epoch);
            w.u32(self.state.0 as u32);
            w.put(&self.log_start);
            w.put(&self.ondisk_log_start);
            w.put(&self.created);
            w.put(&self.last_epoch_clean);
            w.put(&self.parent);
            w.put(&self.parent_split_bits);
            w.put(&self.last_scrub);
            w.put(&self.last_scrub_stamp);
            w.put(&self.stats);
            w.put(&self.log_size);
            w.put(&self.ondisk_log_size);
            w.put(&self.up);
            w.put(&self.acting);
            w.put(&self.last_fresh);
            w.put(&self.last_change);
            w.put(&self.last_active);
            w.put(&self.last_clean);
            w.put(&self.last_unstale);
            w.put(&self.mapping_epoch);
            w.put(&self.last_deep_scrub);
            w.put(&self.last_deep_scrub_stamp);
            w.put(&self.stats_invalid);
            w.put(&self.last_clean_scrub_stamp);
            w.put(&self.last_became_active);
            w.put(&self.dirty_stats_invalid);
            w.put(&self.up_primary);
            w.put(&self.acting_primary);
            w.put(&self.omap_stats_invalid);
            w.put(&self.hitset_stats_invalid);
            w.put(&self.blocked_by);
            w.put(&self.last_undegraded);
            w.put(&self.last_fullsized);
            w.put(&self.hitset_bytes_stats_invalid);
            w.put(&self.last_peered);
            w.put(&self.last_became_peered);
            w.put(&self.pin_stats_invalid);
            w.put(&self.snaptrimq_len);
            w.u32((self.state.0 >> 32) as u32);
            w.put(&self.purged_snaps);
            w.put(&self.manifest_stats_invalid);
            w.put(&self.avail_no_missing);
            w.put(&self.object_location_counts);
            w.put(&self.last_scrub_duration);
            w.put(&self.scrub.scheduled_at);
            w.put(&self.scrub.duration_sec);
            w.put(&self.scrub.status);
            w.put(&self.scrub.is_active);
            w.put(&self.scrub.is_deep);
            w.put(&self.scrub.is_periodic);
            w.put(&self.objects_scrubbed);
            w.put(&self.scrub_duration_sec);
            w.put(&self.objects_trimmed);
            w.put(&self.snaptrim_duration_sec);
            w.put(&self.log_dups_size);
            w.put(&self.scrub.osd_to_respond);
            w.put(&self.scrub.ordinal_of_requested_replica);
            w.put(&self.scrub.num_to_reserve);
        });
    }
}

impl Decode for PgStat {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("pg_stat_t", 30, |r, version| {
            if version < 22 {
                return Err(DecodeError::TooOld { what: "pg_stat_t", version });
            }
            let mut s = PgStat::unknown();
            s.version = since(r, "version", true)?;
            s.reported_seq = since(r, "reported_seq", true)?;
            s.reported_epoch = since(r, "reported_epoch", true)?;
            let low = r.u32()?;
            s.log_start = since(r, "log_start", true)?;
            s.ondisk_log_start = since(r, "ondisk_log_start", true)?;
            s.created = since(r, "created", true)?;
            s.last_epoch_clean = since(r, "last_epoch_clean", true)?;
            s.parent = since(r, "parent", true)?;
            s.parent_split_bits = since(r, "parent_split_bits", true)?;
            s.last_scrub = since(r, "last_scrub", true)?;
            s.last_scrub_stamp = since(r, "last_scrub_stamp", true)?;
            s.stats = since(r, "stats", true)?;
            s.log_size = since(r, "log_size", true)?;
            s.ondisk_log_size = since(r, "ondisk_log_size", true)?;
            s.up = since(r, "up", true)?;
            s.acting = since(r, "acting", true)?;
            s.last_fresh = since(r, "last_fresh", true)?;
            s.last_change = since(r, "last_change", true)?;
            s.last_active = since(r, "last_active", true)?;
            s.last_clean = since(r, "last_clean", true)?;
            s.last_unstale = since(r, "last_unstale", true)?;
            s.mapping_epoch = since(r, "mapping_epoch", true)?;
            s.last_deep_scrub = since(r, "last_deep_scrub", true)?;
            s.last_deep_scrub_stamp = since(r, "last_deep_scrub_stamp", true)?;
            s.stats_invalid = since(r, "stats_invalid", true)?;
            s.last_clean_scrub_stamp = since(r, "last_clean_scrub_stamp", true)?;
            s.last_became_active = since(r, "last_became_active", true)?;
            s.dirty_stats_invalid = since(r, "dirty_stats_invalid", true)?;
            s.up_primary = since(r, "up_primary", true)?;
            s.acting_primary = since(r, "acting_primary", true)?;
            s.omap_stats_invalid = since(r, "omap_stats_invalid", true)?;
            s.hitset_stats_invalid = since(r, "hitset_stats_invalid", true)?;
            s.blocked_by = since(r, "blocked_by", true)?;
            s.last_undegraded = since(r, "last_undegraded", true)?;
            s.last_fullsized = since(r, "last_fullsized", true)?;
            s.hitset_bytes_stats_invalid = since(r, "hitset_bytes_stats_invalid", true)?;
            s.last_peered = since(r, "last_peered", true)?;
            s.last_became_peered = since(r, "last_became_peered", true)?;
            s.pin_stats_invalid = since(r, "pin_stats_invalid", true)?;
            s.snaptrimq_len = since(r, "snaptrimq_len", version >= 23)?;
            let high: u32 = since(r, "state (high half)", version >= 24)?;
            s.state = PgState(u64::from(high) << 32 | u64::from(low));
            s.purged_snaps = since(r, "purged_snaps", version >= 24)?;
            s.manifest_stats_invalid = since(r, "manifest_stats_invalid", version >= 25)?;
            s.avail_no_missing = since(r, "avail_no_missing", version >= 26)?;
            s.object_location_counts = since(r, "object_location_counts", version >= 26)?;
            s.last_scrub_duration = since(r, "last_scrub_duration", version >= 27)?;
            s.scrub.scheduled_at = since(r, "scrub.scheduled_at", version >= 27)?;
            s.scrub.duration_sec = since(r, "scrub.duration_sec", version >= 27)?;
            s.scrub.status = since(r, "scrub.status", version >= 27)?;
            s.scrub.is_active = since(r, "scrub.is_active", version >= 27)?;
            s.scrub.is_deep = since(r, "scrub.is_deep", version >= 27)?;
            s.scrub.is_periodic = since(r, "scrub.is_periodic", version >= 27)?;
            s.objects_scrubbed = since(r, "objects_scrubbed", version >= 27)?;
            s.scrub_duration_sec = since(r, "scrub_duration_sec", version >= 28)?;
            s.objects_trimmed = since(r, "objects_trimmed", version >= 28)?;
            s.snaptrim_duration_sec = since(r, "snaptrim_duration_sec", version >= 28)?;
            s.log_dups_size = since(r, "log_dups_size", version >= 29)?;
            s.scrub.osd_to_respond = since(r, "scrub.osd_to_respond", version >= 30)?;
            s.scrub.ordinal_of_requested_replica =
                since(r, "scrub.ordinal_of_requested_replica", version >= 30)?;
            s.scrub.num_to_reserve = since(r, "scrub.num_to_reserve", version >= 30)?;
            Ok(s)
        })
    }
}

fn since<T: Decode + Default>(
    r: &mut Reader<'_>,
    name: &'static str,
    present: bool,
) -> Result<T, DecodeError> {
    codec::field(r, name, present, T::default)
}
