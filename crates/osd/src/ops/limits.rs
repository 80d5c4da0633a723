//! The bounds that configuration sets on one operation, and on recovery. Names and defaults are Ceph's.

use crate::options::LimitOptions;
use crate::shard::ScrubTimes;
use command::options::{Identity, Layers};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    pub max_object_size: u64,
    pub max_object_name_len: usize,
    pub max_object_namespace_len: usize,
    pub max_attr_name_len: usize,
    /// 0: no bound.
    pub max_attr_size: usize,
    pub max_omap_entries_per_request: usize,
    pub max_omap_bytes_per_request: usize,
    pub max_write_op_reply_len: usize,
    pub max_write_size: usize,
    /// Bytes of one part of an object that is copied from another PG.
    pub copy_part_max: u64,
    /// Of keys and values in one request: what the store can take at once. Not Ceph's, whose store takes any.
    pub max_metadata_size: u64,
    pub max_pgls: usize,
    pub client_watch_timeout_s: u32,
    pub default_notify_timeout_s: u32,
    /// Places of one core: for PGs that it recovers and backfills at once as the primary, and for as many as a target.
    pub backfills_max: usize,
    /// Peering takes a complete copy that was not a member of the newest active interval, if it finds no better one.
    pub ignore_history_les: bool,
    /// Objects that a copy may lack, or changes that it may be behind, before it recovers without delaying writes.
    pub async_recovery_min_cost: u64,
    pub backfill_retry_interval: Duration,
    pub recovery_retry_interval: Duration,
    /// Objects that the PGs of one core recover at once.
    pub recovery_active_max: usize,
    /// Objects that a PG begins between two pauses of `recovery_sleep`.
    pub recovery_single_start_max: usize,
    pub recovery_sleep: Duration,
    /// Places of one core for scrubs, as the primary and as a member.
    pub scrubs_max: usize,
    pub scrub_times: ScrubTimes,
    /// Objects of one chunk of a deep scrub, and of a shallow one.
    pub scrub_chunk_max: u32,
    pub scrub_chunk_max_shallow: u32,
    /// Pause of a scrub between two chunks.
    pub scrub_sleep: Duration,
    /// Scheduled scrubs begin although PGs of the core are recovering.
    pub scrub_during_recovery: bool,
    /// A scrub that finds errors, at most `scrub_auto_repair_errors_max`, is followed by a repair.
    pub scrub_auto_repair: bool,
    pub scrub_auto_repair_errors_max: u64,
}

/// Bounds of `osd_copyfrom_max_chunk`: a copy gets on, and a part is one message.
const COPY_PART_MIN: u64 = 4096;
const COPY_PART_MAX: u64 = 64 << 20;

/// With the defaults of the table of options.
impl Default for Limits {
    fn default() -> Limits {
        Limits::of(&LimitOptions::read(&Layers::new(Identity::named("osd.0"))), u64::MAX)
    }
}

impl Limits {
    /// As the options have them. `max_metadata_size`: the store's own bound.
    pub fn of(options: &LimitOptions, max_metadata_size: u64) -> Limits {
        Limits {
            max_object_size: options.object_size_max,
            max_object_name_len: options.object_name_len_max,
            max_object_namespace_len: options.object_namespace_len_max,
            max_attr_name_len: options.attr_name_len_max,
            max_attr_size: options.attr_size_max,
            max_omap_entries_per_request: options.omap_entries_max,
            max_omap_bytes_per_request: options.omap_bytes_max,
            max_write_op_reply_len: options.write_op_reply_len_max,
            max_write_size: options.write_size_max_mib.saturating_mul(1 << 20),
            copy_part_max: options.copy_part_max.clamp(COPY_PART_MIN, COPY_PART_MAX),
            max_metadata_size,
            max_pgls: options.pgls_max,
            client_watch_timeout_s: options.client_watch_timeout_s,
            default_notify_timeout_s: options.default_notify_timeout_s,
            backfills_max: options.backfills_max,
            ignore_history_les: options.ignore_history_les,
            async_recovery_min_cost: options.async_recovery_min_cost,
            backfill_retry_interval: options.backfill_retry_interval,
            recovery_retry_interval: options.recovery_retry_interval,
            recovery_active_max: match options.recovery_active_max {
                0 => options.recovery_active_max_ssd,
                max => max,
            },
            recovery_single_start_max: options.recovery_single_start_max,
            recovery_sleep: options.recovery_sleep,
            scrubs_max: options.scrubs_max,
            scrub_times: ScrubTimes {
                min_s: options.scrub_min_s,
                max_s: options.scrub_max_s,
                deep_s: options.deep_scrub_s,
                spread: options.scrub_spread,
                hours: (options.scrub_begin_hour, options.scrub_end_hour),
                days: (options.scrub_begin_day, options.scrub_end_day),
                may_scrub: true,
                may_deep_scrub: true,
            },
            scrub_chunk_max: options.scrub_chunk_max,
            scrub_chunk_max_shallow: options.scrub_chunk_max_shallow,
            scrub_sleep: options.scrub_sleep,
            scrub_during_recovery: options.scrub_during_recovery,
            scrub_auto_repair: options.scrub_auto_repair,
            scrub_auto_repair_errors_max: options.scrub_auto_repair_errors_max,
        }
    }

    /// Maximum omap entries for a request that asks for `wanted`.
    pub fn omap_entries(&self, wanted: u64) -> usize {
        usize::try_from(wanted).unwrap_or(usize::MAX).min(self.max_omap_entries_per_request)
    }
}
