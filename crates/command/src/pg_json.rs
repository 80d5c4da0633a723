//! Reports on placement groups as JSON, key by key as stock dumps them (`pg_stat_t::dump`).

use crate::{Json, object};
use wire::text::stamp;
use wire::types::{ObjectStatSum, PgShard, PgStat, ScrubSchedule};

/// An object's pairs, in order.
pub type Pairs = Vec<(&'static str, Json)>;

/// Counters by key: most keys are the field's name, some are not.
#[macro_export]
macro_rules! counters {
    ($from:expr; $($field:ident $(as $key:literal)?),* $(,)?) => {
        $crate::Json::Object(vec![$(($crate::counters!(@key $field $($key)?).into(), $from.$field.into())),*])
    };
    (@key $field:ident $key:literal) => { $key };
    (@key $field:ident) => { stringify!($field) };
}

/// `object_stat_sum_t`.
pub fn stat_sum(s: &ObjectStatSum) -> Json {
    counters!(s;
        num_bytes, num_objects, num_object_clones, num_object_copies, num_objects_missing_on_primary,
        num_objects_missing, num_objects_degraded, num_objects_misplaced, num_objects_unfound, num_objects_dirty,
        num_whiteouts, num_rd as "num_read", num_rd_kb as "num_read_kb", num_wr as "num_write",
        num_wr_kb as "num_write_kb", num_scrub_errors, num_shallow_scrub_errors, num_deep_scrub_errors,
        num_objects_recovered, num_bytes_recovered, num_keys_recovered, num_objects_omap,
        num_objects_hit_set_archive, num_bytes_hit_set_archive, num_flush, num_flush_kb, num_evict, num_evict_kb,
        num_promote, num_flush_mode_high, num_flush_mode_low, num_evict_mode_some, num_evict_mode_full,
        num_objects_pinned, num_legacy_snapsets, num_large_omap_objects, num_objects_manifest, num_omap_bytes,
        num_omap_keys, num_objects_repaired,
    )
}

/// One phrase on the scrub that runs or comes next.
pub fn scrub_schedule(s: &ScrubSchedule) -> String {
    // `pg_scrub_sched_status_t`.
    const UNKNOWN: u16 = 0;
    const NOT_QUEUED: u16 = 1;
    const SCHEDULED: u16 = 3;
    const QUEUED: u16 = 4;
    const BLOCKED: u16 = 5;
    let depth = if s.is_deep { "deep " } else { "" };
    if s.is_active {
        return match (s.status, s.num_to_reserve) {
            (BLOCKED, _) => format!("Blocked! locked objects (for {}s)", s.duration_sec),
            (_, 0) => format!("{depth}scrubbing for {}s", s.duration_sec),
            (_, n) => format!(
                "Reserving. Waiting {}s for OSD.{} ({}/{n})",
                s.duration_sec, s.osd_to_respond, s.ordinal_of_requested_replica
            ),
        };
    }
    match s.status {
        UNKNOWN => "--".into(),
        NOT_QUEUED => "no scrub is scheduled".into(),
        SCHEDULED => {
            let why = if s.is_periodic { "periodic" } else { "user requested" };
            format!("{why} {depth}scrub scheduled @ {}", stamp(s.scheduled_at))
        }
        QUEUED => format!("queued for {depth}scrub"),
        _ => "SCRUB STATE MISMATCH!".into(),
    }
}

/// An OSD, with the shard of an erasure-coded PG.
pub fn shard(p: &PgShard) -> String {
    match p.shard.0 {
        -1 => p.osd.0.to_string(),
        n => format!("{}({n})", p.osd.0),
    }
}

/// `pg_stat_t`.
pub fn pg_stat(s: &PgStat) -> Pairs {
    let locations = s.object_location_counts.iter().map(|(shards, n)| {
        let names: Vec<String> = shards.iter().map(shard).collect();
        object! { "shards" => names.join(","), "objects" => *n }
    });
    let purged = s.purged_snaps.iter().map(|(start, len)| {
        object! { "start" => format!("{:x}", start.0), "length" => format!("{len:x}") }
    });
    vec![
        ("version", s.version.to_string().into()),
        ("reported_seq", s.reported_seq.into()),
        ("reported_epoch", s.reported_epoch.into()),
        ("state", s.state.to_string().into()),
        ("last_fresh", stamp(s.last_fresh).into()),
        ("last_change", stamp(s.last_change).into()),
        ("last_active", stamp(s.last_active).into()),
        ("last_peered", stamp(s.last_peered).into()),
        ("last_clean", stamp(s.last_clean).into()),
        ("last_became_active", stamp(s.last_became_active).into()),
        ("last_became_peered", stamp(s.last_became_peered).into()),
        ("last_unstale", stamp(s.last_unstale).into()),
        ("last_undegraded", stamp(s.last_undegraded).into()),
        ("last_fullsized", stamp(s.last_fullsized).into()),
        ("mapping_epoch", s.mapping_epoch.into()),
        ("log_start", s.log_start.to_string().into()),
        ("ondisk_log_start", s.ondisk_log_start.to_string().into()),
        ("created", s.created.into()),
        ("last_epoch_clean", s.last_epoch_clean.into()),
        ("parent", s.parent.to_string().into()),
        ("parent_split_bits", s.parent_split_bits.into()),
        ("last_scrub", s.last_scrub.to_string().into()),
        ("last_scrub_stamp", stamp(s.last_scrub_stamp).into()),
        ("last_deep_scrub", s.last_deep_scrub.to_string().into()),
        ("last_deep_scrub_stamp", stamp(s.last_deep_scrub_stamp).into()),
        ("last_clean_scrub_stamp", stamp(s.last_clean_scrub_stamp).into()),
        ("objects_scrubbed", s.objects_scrubbed.into()),
        ("log_size", s.log_size.into()),
        ("log_dups_size", s.log_dups_size.into()),
        ("ondisk_log_size", s.ondisk_log_size.into()),
        ("stats_invalid", s.stats_invalid.into()),
        ("dirty_stats_invalid", s.dirty_stats_invalid.into()),
        ("omap_stats_invalid", s.omap_stats_invalid.into()),
        ("hitset_stats_invalid", s.hitset_stats_invalid.into()),
        ("hitset_bytes_stats_invalid", s.hitset_bytes_stats_invalid.into()),
        ("pin_stats_invalid", s.pin_stats_invalid.into()),
        ("manifest_stats_invalid", s.manifest_stats_invalid.into()),
        ("snaptrimq_len", s.snaptrimq_len.into()),
        ("last_scrub_duration", s.last_scrub_duration.into()),
        ("scrub_schedule", scrub_schedule(&s.scrub).into()),
        ("scrub_duration", s.scrub_duration_sec.into()),
        ("objects_trimmed", s.objects_trimmed.into()),
        ("snaptrim_duration", s.snaptrim_duration_sec.into()),
        ("stat_sum", stat_sum(&s.stats.sum)),
        ("up", s.up.clone().into()),
        ("acting", s.acting.clone().into()),
        ("avail_no_missing", Json::array(s.avail_no_missing.iter().map(shard))),
        ("object_location_counts", Json::array(locations)),
        ("blocked_by", s.blocked_by.clone().into()),
        ("up_primary", s.up_primary.into()),
        ("acting_primary", s.acting_primary.into()),
        ("purged_snaps", Json::array(purged)),
    ]
}
