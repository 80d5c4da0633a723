//! Reports as JSON, key by key as stock dumps them.

use command::{Json, object};
use wire::text::stamp;
use wire::types::{
    ObjectStatSum, OsdStat, PgShard, PgStat, PingTimes, PoolStat, ScrubSchedule, StoreStatfs, UTime,
};

type Pairs = Vec<(&'static str, Json)>;

/// Counters by key: most keys are the field's name, some are not.
macro_rules! counters {
    ($from:expr; $($field:ident $(as $key:literal)?),* $(,)?) => {
        Json::Object(vec![$((counters!(@key $field $($key)?).into(), $from.$field.into())),*])
    };
    (@key $field:ident $key:literal) => { $key };
    (@key $field:ident) => { stringify!($field) };
}

fn stat_sum(s: &ObjectStatSum) -> Json {
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

pub(super) fn statfs(s: &StoreStatfs) -> Json {
    counters!(s;
        total, available, internally_reserved, allocated, data_stored, data_compressed, data_compressed_allocated,
        data_compressed_original, omap_allocated, internal_metadata,
    )
}

pub(super) fn pool_stat(s: &PoolStat) -> Pairs {
    vec![
        ("stat_sum", stat_sum(&s.stats.sum)),
        ("store_stats", statfs(&s.store_stats)),
        ("log_size", s.log_size.into()),
        ("ondisk_log_size", s.ondisk_log_size.into()),
        ("up", s.up.into()),
        ("acting", s.acting.into()),
        ("num_store_stats", s.num_store_stats.into()),
    ]
}

pub(super) fn kib(bytes: i64) -> u64 {
    bytes as u64 >> 10
}

pub(super) fn perf(s: &OsdStat) -> Json {
    object! {
        "commit_latency_ms" => s.commit_latency_ns as f64 / 1e6,
        "apply_latency_ms" => s.apply_latency_ns as f64 / 1e6,
        "commit_latency_ns" => s.commit_latency_ns,
        "apply_latency_ns" => s.apply_latency_ns,
    }
}

pub(super) fn osd_stat(s: &OsdStat) -> Pairs {
    let ages = &s.op_queue_age_hist;
    let alerts = s.alerts.iter().flat_map(|(pool, alerts)| {
        alerts.iter().map(move |(name, text)| {
            Json::Object(vec![("pool".into(), (*pool).into()), (name.clone().into(), text.as_str().into())])
        })
    });
    vec![
        ("up_from", s.up_from.into()),
        ("seq", s.seq.into()),
        ("num_pgs", s.num_pgs.into()),
        ("num_osds", s.num_osds.into()),
        ("num_per_pool_osds", s.num_per_pool_osds.into()),
        ("num_per_pool_omap_osds", s.num_per_pool_omap_osds.into()),
        ("kb", (s.statfs.total >> 10).into()),
        ("kb_used", (s.statfs.used_raw() >> 10).into()),
        ("kb_used_data", kib(s.statfs.allocated).into()),
        ("kb_used_omap", kib(s.statfs.omap_allocated).into()),
        ("kb_used_meta", kib(s.statfs.internal_metadata).into()),
        ("kb_avail", (s.statfs.available >> 10).into()),
        ("statfs", statfs(&s.statfs)),
        ("hb_peers", s.hb_peers.clone().into()),
        ("snap_trim_queue_len", s.snap_trim_queue_len.into()),
        ("num_snap_trimming", s.num_snap_trimming.into()),
        ("num_shards_repaired", s.num_shards_repaired.into()),
        (
            "op_queue_age_hist",
            object! { "histogram" => ages.clone(), "upper_bound" => 1u64 << ages.len().min(63) },
        ),
        ("perf_stat", perf(s)),
        ("alerts", Json::array(alerts)),
        ("network_ping_times", Json::array(s.ping_times.iter().map(ping_times))),
    ]
}

fn ping_times(p: &PingTimes) -> Json {
    let ms = |us: u32| f64::from(us) / 1000.0;
    let spans = |t: (u32, u32, u32)| object! { "1min" => ms(t.0), "5min" => ms(t.1), "15min" => ms(t.2) };
    let interface = |name: &str, average, min, max, last| {
        object! {
            "interface" => name,
            "average" => spans(average),
            "min" => spans(min),
            "max" => spans(max),
            "last" => ms(last),
        }
    };
    let mut interfaces = vec![interface("back", p.back_us, p.back_us_min, p.back_us_max, p.back_us_last)];
    if p.front_us.0 != 0 {
        interfaces.push(interface("front", p.front_us, p.front_us_min, p.front_us_max, p.front_us_last));
    }
    object! {
        "osd" => p.peer,
        "last update" => stamp(UTime { sec: p.last_update_sec, nsec: 0 }),
        "interfaces" => interfaces,
    }
}

/// One phrase on the scrub that runs or comes next.
pub(super) fn scrub_schedule(s: &ScrubSchedule) -> String {
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

pub(super) fn pg_brief(s: &PgStat) -> Pairs {
    vec![
        ("state", s.state.to_string().into()),
        ("up", s.up.clone().into()),
        ("acting", s.acting.clone().into()),
        ("up_primary", s.up_primary.into()),
        ("acting_primary", s.acting_primary.into()),
    ]
}

fn shard(p: &PgShard) -> String {
    match p.shard.0 {
        -1 => p.osd.0.to_string(),
        n => format!("{}({n})", p.osd.0),
    }
}

pub(super) fn pg_stat(s: &PgStat) -> Pairs {
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
