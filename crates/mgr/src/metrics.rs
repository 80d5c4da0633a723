//! The manager's part of the Prometheus page: what stock's `prometheus` module serves, under its names.
//!
//! Health, quorum and metadata are the monitor's to tell; the process that hosts both adds them.

use crate::PgMap;
use crate::daemon_counters::DaemonCounters;
use command::perf::metric_name;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use wire::text::RecoveryIo;
use wire::types::osd_map::MapFlags;
use wire::types::{OsdMap, PgPool, PgState, PoolId, PoolOption, PoolOptionValue, PoolStat, StoreStatfs};

/// PG states in the order of stock's page.
const PG_STATES: [&str; 34] = [
    "active",
    "clean",
    "down",
    "recovery_unfound",
    "backfill_unfound",
    "scrubbing",
    "degraded",
    "inconsistent",
    "peering",
    "repair",
    "recovering",
    "forced_recovery",
    "backfill_wait",
    "incomplete",
    "stale",
    "remapped",
    "deep",
    "backfilling",
    "forced_backfill",
    "backfill_toofull",
    "recovery_wait",
    "recovery_toofull",
    "undersized",
    "activating",
    "peered",
    "snaptrim",
    "snaptrim_wait",
    "snaptrim_error",
    "creating",
    "unknown",
    "premerge",
    "failed_repair",
    "laggy",
    "wait",
];

/// Map flags that stock's page shows.
const OSD_FLAGS: [&str; 9] =
    ["noup", "nodown", "noout", "noin", "nobackfill", "norebalance", "norecover", "noscrub", "nodeep-scrub"];

/// Counters below this are left out (`PRIO_USEFUL`).
const PRIORITY_MIN: u8 = 5;

/// A page under construction.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// Begins a metric; its samples follow.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // A daemon's description of its counter is text from the network.
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if i == 0 { "{" } else { "," }, escaped(text));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    pub fn into_text(self) -> String {
        self.0
    }

    /// A metric with one sample for each pool.
    fn pools<T: Display>(&mut self, name: &str, kind: &str, help: &str, values: &[(PoolId, T)]) {
        self.family(name, kind, help);
        for (pool, value) in values {
            self.sample(name, &[("pool_id", &pool.to_string())], value);
        }
    }

    /// A metric with one sample for each OSD.
    fn osds<T: Display>(&mut self, name: &str, kind: &str, help: &str, values: &[(i32, T)]) {
        self.family(name, kind, help);
        for (osd, value) in values {
            self.sample(name, &[("ceph_daemon", &format!("osd.{osd}"))], value);
        }
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// `daemons`: by name, `osd.3`.
pub(crate) fn write<'a>(
    page: &mut Page,
    pg_map: &PgMap,
    daemons: impl Iterator<Item = (&'a str, &'a DaemonCounters)>,
) {
    let map = &*pg_map.map;
    let (total, by_pool) = pg_map.sums();
    pool_metadata(page, map);
    pgs(page, pg_map);
    osds(page, pg_map);
    space(page, pg_map, &by_pool);
    let sum = &total.stats.sum;
    for (name, help, value) in [
        ("ceph_num_objects_degraded", "Number of degraded objects", sum.num_objects_degraded),
        ("ceph_num_objects_misplaced", "Number of misplaced objects", sum.num_objects_misplaced),
        ("ceph_num_objects_unfound", "Number of unfound objects", sum.num_objects_unfound),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, &[], value);
    }
    slow_ops(page, pg_map);
    perf(page, daemons);
}

fn pool_metadata(page: &mut Page, map: &OsdMap) {
    page.family("ceph_pool_metadata", "untyped", "POOL Metadata");
    for (id, pool) in &map.pools {
        let compression = match pool.options.0.get(&PoolOption::COMPRESSION_MODE) {
            Some(PoolOptionValue::Text(mode)) => mode.as_str(),
            _ => "none",
        };
        let labels = [
            ("pool_id", &id.to_string()[..]),
            ("name", map.pool_names.get(id).map_or("", String::as_str)),
            ("type", "replicated"),
            ("description", &format!("replica:{}", pool.size)),
            ("compression_mode", compression),
            ("application", &applications(pool)),
        ];
        page.sample("ceph_pool_metadata", &labels, 1);
    }
}

/// A pool's applications as stock's page names them.
fn applications(pool: &PgPool) -> String {
    let names = pool.applications.keys().map(|name| match name.as_str() {
        "rbd" => "Block",
        "cephfs" => "Filesystem",
        "rgw" => "Object",
        other => other,
    });
    names.collect::<Vec<_>>().join(", ")
}

fn pgs(page: &mut Page, pg_map: &PgMap) {
    let mut counts: BTreeMap<PoolId, (u32, BTreeMap<PgState, u32>)> =
        pg_map.map.pools.keys().map(|pool| (*pool, Default::default())).collect();
    for (pg, stat) in &pg_map.pgs {
        let (total, states) = counts.entry(pg.pool).or_default();
        *total += 1;
        *states.entry(stat.state).or_default() += 1;
    }
    let totals: Vec<_> = counts.iter().map(|(pool, (total, _))| (*pool, *total)).collect();
    page.pools("ceph_pg_total", "gauge", "PG Total Count per Pool", &totals);
    for word in PG_STATES {
        // The flag of no state at all.
        let flag = PgState::from_word(word).unwrap_or(PgState::UNKNOWN);
        let is_in = |state: &PgState| match flag == PgState::UNKNOWN {
            true => *state == PgState::UNKNOWN,
            false => state.has(flag),
        };
        let in_state = |states: &BTreeMap<PgState, u32>| -> u32 {
            states.iter().filter(|(state, _)| is_in(state)).map(|(_, n)| n).sum()
        };
        let rows: Vec<_> = counts.iter().map(|(pool, (_, states))| (*pool, in_state(states))).collect();
        page.pools(&format!("ceph_pg_{word}"), "gauge", &format!("PG {word} per pool"), &rows);
    }
}

fn osds(page: &mut Page, pg_map: &PgMap) {
    let map = &*pg_map.map;
    for flag in OSD_FLAGS {
        let name = format!("ceph_osd_flag_{}", flag.replace('-', "_"));
        page.family(&name, "untyped", &format!("OSD Flag {flag}"));
        let is_set = MapFlags::by_name(&flag.replace('-', "")).or(MapFlags::by_name(flag));
        page.sample(&name, &[], u8::from(is_set.is_some_and(|bit| map.flags.has(bit))));
    }
    for (name, help, ratio) in [
        ("ceph_osd_full_ratio", "OSD full ratio of the cluster", map.full_ratio),
        ("ceph_osd_nearfull_ratio", "OSD nearfull ratio of the cluster", map.nearfull_ratio),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, &[], ratio);
    }
    page.family("ceph_cluster_osd_blocklist_count", "gauge", "Entries of the OSD blocklist");
    page.sample("ceph_cluster_osd_blocklist_count", &[], map.blocklist.len() + map.range_blocklist.len());
    let ids: Vec<i32> = map.osd_ids().collect();
    let rows = |of: &dyn Fn(i32) -> f64| ids.iter().map(|osd| (*osd, of(*osd))).collect::<Vec<_>>();
    let weight = |osd| f64::from(map.weight(osd)) / f64::from(OsdMap::WEIGHT_IN);
    page.osds("ceph_osd_weight", "untyped", "OSD status weight", &rows(&weight));
    page.osds("ceph_osd_up", "untyped", "OSD status up", &rows(&|osd| map.is_up(osd).into()));
    page.osds("ceph_osd_in", "untyped", "OSD status in", &rows(&|osd| map.is_in(osd).into()));
    let ms = |ns: u64| ns as f64 / 1e6;
    let latency = |of: &dyn Fn(&wire::types::OsdStat) -> u64| {
        pg_map.osds.iter().map(|(osd, stat)| (*osd, ms(of(stat)))).collect::<Vec<_>>()
    };
    let (apply, commit) = (latency(&|s| s.apply_latency_ns), latency(&|s| s.commit_latency_ns));
    page.osds("ceph_osd_apply_latency_ms", "gauge", "OSD stat apply_latency_ms", &apply);
    page.osds("ceph_osd_commit_latency_ms", "gauge", "OSD stat commit_latency_ms", &commit);
}

fn space(page: &mut Page, pg_map: &PgMap, by_pool: &BTreeMap<PoolId, PoolStat>) {
    let (statfs, by_class) = (pg_map.osd_sum().statfs, pg_map.osd_sum_by_class());
    let fields: [(&str, fn(&StoreStatfs) -> u64); 3] = [
        ("total_bytes", |statfs| statfs.total),
        ("total_used_bytes", StoreStatfs::used),
        ("total_used_raw_bytes", StoreStatfs::used_raw),
    ];
    for (name, of) in fields {
        let metric = format!("ceph_cluster_{name}");
        page.family(&metric, "gauge", &format!("DF {name}"));
        page.sample(&metric, &[], of(&statfs));
        let metric = format!("ceph_cluster_by_class_{name}");
        page.family(&metric, "gauge", &format!("DF by device class {name}"));
        for (class, sum) in &by_class {
            page.sample(&metric, &[("device_class", class)], of(&sum.statfs));
        }
    }
    let uses: Vec<(PoolId, PoolUse)> = pg_map
        .map
        .pools
        .keys()
        .map(|id| (*id, PoolUse::of(pg_map, *id, by_pool.get(id).copied().unwrap_or_default())))
        .collect();
    for (field, of) in POOL_FIELDS {
        let rows: Vec<_> = uses.iter().map(|(pool, use_)| (*pool, of(use_))).collect();
        let kind = if POOL_TOTALS.contains(&field) { "counter" } else { "gauge" };
        page.pools(&format!("ceph_pool_{field}"), kind, &format!("DF pool {field}"), &rows);
    }
    recovery_rates(page, pg_map);
    page.family("ceph_pool_objects_repaired", "counter", "Number of objects repaired in a pool Count");
    for (pool, stat) in by_pool {
        let labels = [("pool_id", &pool.to_string()[..])];
        page.sample("ceph_pool_objects_repaired", &labels, stat.stats.sum.num_objects_repaired);
    }
}

/// Recovery over the last intervals; the page has no keys that were recovered, as in stock.
fn recovery_rates(page: &mut Page, pg_map: &PgMap) {
    let recovery = |pool: &PoolId| {
        let (delta, over) = pg_map.rates.pool(*pool)?;
        RecoveryIo::of(&delta, over)
    };
    let rates: Vec<_> =
        pg_map.map.pools.keys().map(|pool| (*pool, recovery(pool).unwrap_or_default())).collect();
    for (index, (key, _)) in RecoveryIo::default().pairs().into_iter().enumerate() {
        if key != "num_keys_recovered" {
            let rows: Vec<_> = rates.iter().map(|(pool, io)| (*pool, io.pairs()[index].1)).collect();
            page.pools(&format!("ceph_pool_{key}"), "gauge", &format!("OSD pool stats: {key}"), &rows);
        }
    }
}

/// A pool's figures as `ceph df detail` has them.
struct PoolUse {
    stored: f64,
    stored_raw: f64,
    objects: f64,
    used: f64,
    percent: f64,
    max_avail: f64,
    avail_raw: f64,
    quota_bytes: f64,
    quota_objects: f64,
    stat: PoolStat,
}

type PoolField = (&'static str, fn(&PoolUse) -> f64);

const POOL_FIELDS: [PoolField; 16] = [
    ("max_avail", |p| p.max_avail),
    ("avail_raw", |p| p.avail_raw),
    ("stored", |p| p.stored),
    ("stored_raw", |p| p.stored_raw),
    ("objects", |p| p.objects),
    ("dirty", |_| 0.0),
    ("quota_bytes", |p| p.quota_bytes),
    ("quota_objects", |p| p.quota_objects),
    ("rd", |p| p.stat.stats.sum.num_rd as f64),
    ("rd_bytes", |p| (p.stat.stats.sum.num_rd_kb << 10) as f64),
    ("wr", |p| p.stat.stats.sum.num_wr as f64),
    ("wr_bytes", |p| (p.stat.stats.sum.num_wr_kb << 10) as f64),
    ("compress_bytes_used", |p| p.stat.store_stats.data_compressed_allocated as f64),
    ("compress_under_bytes", |p| p.stat.store_stats.data_compressed_original as f64),
    ("bytes_used", |p| p.used),
    ("percent_used", |p| p.percent),
];

/// Those of [`POOL_FIELDS`] that only grow.
const POOL_TOTALS: [&str; 4] = ["rd", "rd_bytes", "wr", "wr_bytes"];

impl PoolUse {
    fn of(pg_map: &PgMap, id: PoolId, stat: PoolStat) -> PoolUse {
        let pool = &pg_map.map.pools[&id];
        let copies = f64::from(pool.size).max(1.0);
        let omap = stat.store_stats.omap_allocated.max(0) as f64;
        let data = stat.stats.sum.num_bytes.max(0) as f64;
        let allocated = stat.store_stats.allocated.max(0) as f64;
        let stored = pg_map.stored(pool, &stat);
        let used = omap + if allocated > 0.0 { allocated } else { data * copies };
        let avail_raw = pg_map.available_for(pool.crush_rule.into()).max(0) as f64;
        PoolUse {
            stored,
            stored_raw: stored * copies,
            objects: stat.stats.sum.num_objects as f64,
            used,
            percent: if used == 0.0 { 0.0 } else { used / (used + avail_raw) },
            max_avail: avail_raw / copies,
            avail_raw,
            quota_bytes: pool.quota_max_bytes as f64,
            quota_objects: pool.quota_max_objects as f64,
            stat,
        }
    }
}

fn slow_ops(page: &mut Page, pg_map: &PgMap) {
    let help = "OSD or Monitor requests taking a long time to process";
    page.family("ceph_healthcheck_slow_ops", "gauge", help);
    let total: u64 = pg_map.slow_ops.values().map(|(count, _)| u64::from(*count)).sum();
    page.sample("ceph_healthcheck_slow_ops", &[], total);
    page.family("ceph_daemon_health_metrics", "gauge", "Health metrics for Ceph daemons");
    // An OSD without slow operations has a row too: a rate needs the zero before the first.
    let idle = pg_map.osds.keys().map(|osd| (format!("osd.{osd}"), 0));
    let slow = pg_map.slow_ops.iter().map(|(daemon, (count, _))| (daemon.clone(), *count));
    for (daemon, count) in idle.chain(slow).collect::<BTreeMap<String, u32>>() {
        let daemon = daemon.as_str();
        let labels = [("type", "SLOW_OPS"), ("ceph_daemon", daemon)];
        page.sample("ceph_daemon_health_metrics", &labels, count);
    }
}

/// Type bits of a declaration (`perfcounter_type_d`).
const TYPE_TIME: u8 = 0x1;
const TYPE_COUNTER: u8 = 0x8;

fn perf<'a>(page: &mut Page, daemons: impl Iterator<Item = (&'a str, &'a DaemonCounters)>) {
    type Sample<'a> = (&'a str, String);
    /// Name to kind, help and samples: a family's samples stand together.
    type Families<'a> = BTreeMap<String, (&'static str, &'a str, Vec<Sample<'a>>)>;
    let mut families: Families<'_> = BTreeMap::new();
    for (daemon, counters) in daemons {
        for (declaration, (value, count)) in counters.iter().filter(|(d, _)| d.priority >= PRIORITY_MIN) {
            let name = format!("ceph_{}", metric_name(&declaration.path));
            let help = declaration.description.as_str();
            let value = match declaration.kind & TYPE_TIME != 0 {
                true => (value as f64 / 1e9).to_string(),
                false => value.to_string(),
            };
            let kind = if declaration.kind & TYPE_COUNTER != 0 { "counter" } else { "gauge" };
            let mut add = |name: String, kind, value| {
                families.entry(name).or_insert((kind, help, Vec::new())).2.push((daemon, value));
            };
            match count {
                Some(count) => {
                    add(format!("{name}_sum"), "counter", value);
                    add(format!("{name}_count"), "counter", count.to_string());
                }
                None => add(name, kind, value),
            }
        }
    }
    for (name, (kind, help, samples)) in families {
        page.family(&name, kind, help);
        for (daemon, value) in samples {
            page.sample(&name, &[("ceph_daemon", daemon)], value);
        }
    }
}
