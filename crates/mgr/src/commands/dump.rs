//! Reports as JSON, key by key as stock dumps them.

pub(super) use command::pg_json::{Pairs, pg_stat, scrub_schedule};

use command::pg_json::stat_sum;
use command::{Json, counters, object};
use wire::text::stamp;
use wire::types::{OsdStat, PgStat, PingTimes, PoolStat, StoreStatfs, UTime};

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

pub(super) fn pg_brief(s: &PgStat) -> Pairs {
    vec![
        ("state", s.state.to_string().into()),
        ("up", s.up.clone().into()),
        ("acting", s.acting.clone().into()),
        ("up_primary", s.up_primary.into()),
        ("acting_primary", s.acting_primary.into()),
    ]
}
