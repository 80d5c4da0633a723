//! Health of daemons as they report it: slow operations, slow heartbeats, repaired reads, full db devices.

use super::{Checks, insert};
use crate::PgMap;
use crate::outliers::Evidence;
use command::osd_network;
use placement::crush::edit::parent_of;
use std::collections::BTreeSet;
use wire::types::{CrushMap, HealthStatus, OsdMap, PingTimes, UTime};

/// Daemons that a summary names.
const NAMED_MAX: usize = 10;
/// Pairs of OSDs that a check of heartbeats lists.
const PAIRS_MAX: usize = 10;
/// A stock cluster's `mon_osd_warn_num_repaired`.
const REPAIRED_MAX: u64 = 10;

pub(super) fn check(pg_map: &PgMap, now: UTime, checks: &mut Checks) {
    check_slow_ops(pg_map, checks);
    check_repaired_reads(pg_map, checks);
    check_spillover(pg_map, checks);
    check_outliers(pg_map, now, checks);
    for network in NETWORKS {
        check_pings(pg_map, network, now, checks);
    }
}

fn check_slow_ops(pg_map: &PgMap, checks: &mut Checks) {
    let count: u64 = pg_map.slow_ops.values().map(|(n, _)| u64::from(*n)).sum();
    let oldest = pg_map.slow_ops.values().map(|(_, age)| *age).max().unwrap_or(0);
    if count == 0 {
        return;
    }
    let daemons: Vec<&str> = pg_map.slow_ops.keys().map(String::as_str).collect();
    let who = match daemons.as_slice() {
        [one] => format!("{one} has slow ops"),
        many if many.len() > NAMED_MAX => {
            format!("daemons [{}]... have slow ops.", many[..NAMED_MAX].join(","))
        }
        many => format!("daemons [{}] have slow ops.", many.join(",")),
    };
    let summary = format!("{count} slow ops, oldest one blocked for {oldest} sec, {who}");
    insert(checks, "SLOW_OPS", HealthStatus::WARN, summary, Vec::new(), count as i64);
}

fn check_repaired_reads(pg_map: &PgMap, checks: &mut Checks) {
    let repaired = pg_map.osds.iter().filter(|(_, stat)| stat.num_shards_repaired > REPAIRED_MAX);
    let detail: Vec<String> = repaired
        .map(|(osd, stat)| format!("osd.{osd} had {} reads repaired", stat.num_shards_repaired))
        .collect();
    if !detail.is_empty() {
        let count = detail.len() as i64;
        let summary = format!("Too many repaired reads on {count} OSDs");
        insert(checks, "OSD_TOO_MANY_REPAIRS", HealthStatus::WARN, summary, detail, count);
    }
}

/// Index tables of OSDs that found no room on their db devices.
fn check_spillover(pg_map: &PgMap, checks: &mut Checks) {
    const CODE: &str = "BLUEFS_SPILLOVER";
    let alerts = pg_map.osds.values().flat_map(|stat| &stat.alerts);
    let spilled = alerts.filter_map(|(osd, alerts)| Some((osd, alerts.get(CODE)?)));
    let detail: Vec<String> = spilled.map(|(osd, text)| format!(" osd.{osd} {text}")).collect();
    if !detail.is_empty() {
        let count = detail.len() as i64;
        let summary = format!("{count} OSD(s) experiencing BlueFS spillover");
        insert(checks, CODE, HealthStatus::WARN, summary, detail, count);
    }
}

/// OSDs that commit writes more slowly than their peers. The code is shoal's own.
fn check_outliers(pg_map: &PgMap, now: UTime, checks: &mut Checks) {
    let line = |(osd, evidence): (i32, &Evidence)| {
        let Evidence { own_ns, peers_ns, peers, class, since } = evidence;
        let kind = if class.is_empty() { "no device class" } else { class };
        let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
        format!(
            "osd.{osd} ({kind}) commits writes in {}, its {peers} peers in {}, for {} s: look at its device",
            ms(*own_ns),
            ms(*peers_ns),
            now.sec.saturating_sub(since.sec)
        )
    };
    let detail: Vec<String> = pg_map.outliers.slow().map(line).collect();
    if !detail.is_empty() {
        let count = detail.len() as i64;
        let summary = format!("{count} OSD(s) slower than their peers");
        insert(checks, "OSD_SLOWER_THAN_PEERS", HealthStatus::WARN, summary, detail, count);
    }
}

/// One of the two networks that heartbeats travel on.
struct Network {
    name: &'static str,
    code: &'static str,
    /// Means over 1, 5 and 15 minutes, in microseconds.
    means_us: fn(&PingTimes) -> (u32, u32, u32),
}

const NETWORKS: [Network; 2] = [
    Network { name: "back", code: "OSD_SLOW_PING_TIME_BACK", means_us: |ping| ping.back_us },
    Network { name: "front", code: "OSD_SLOW_PING_TIME_FRONT", means_us: |ping| ping.front_us },
];

fn check_pings(pg_map: &PgMap, network: Network, now: UTime, checks: &mut Checks) {
    let options = &pg_map.options;
    let grace_s = f64::from(options.heartbeat_grace_s);
    let limit_us = 1e3 * osd_network::warning_ms(grace_s, options.slow_ping_ms, options.slow_ping_ratio);
    if limit_us <= 0.0 {
        return;
    }
    let is_recent = |ping: &&PingTimes| {
        now.sec.saturating_sub(ping.last_update_sec) <= options.heartbeat_grace_s.saturating_mul(60)
    };
    let mut slow: Vec<(u32, i32, i32, bool)> = Vec::new();
    for (osd, stat) in &pg_map.osds {
        for ping in stat.ping_times.iter().filter(is_recent) {
            let (minute, five, fifteen) = (network.means_us)(ping);
            let worst = minute.max(five).max(fifteen);
            if f64::from(worst) > limit_us {
                slow.push((worst, *osd, ping.peer, minute < five && five < fifteen));
            }
        }
    }
    slow.sort();
    let Some((longest, ..)) = slow.last() else { return };
    let ms = |us: u32| format!("{}.{:03}", us / 1000, us % 1000);
    let summary = format!("Slow OSD heartbeats on {} (longest {}ms)", network.name, ms(*longest));
    let place = |osd: i32| {
        let down = if pg_map.map.is_up(osd) { "" } else { " (down)" };
        format!("osd.{osd} [{}]{down}", place_of(&pg_map.map, osd, &options.reporter_level))
    };
    let line = |(us, from, to, is_improving): &(u32, i32, i32, bool)| {
        let improving = if *is_improving { " possibly improving" } else { "" };
        let (from, to) = (place(*from), place(*to));
        format!("Slow OSD heartbeats on {} from {from} to {to} {} msec{improving}", network.name, ms(*us))
    };
    let mut detail: Vec<String> = slow.iter().rev().take(PAIRS_MAX).map(line).collect();
    if slow.len() > PAIRS_MAX {
        let rest =
            "Truncated long network list.  Use ceph daemon mgr.# dump_osd_network for more information";
        detail.push(rest.into());
    }
    insert(checks, network.code, HealthStatus::WARN, summary, detail, slow.len() as i64);
}

/// The buckets above an OSD, without the root and without the level whose subtrees count as one reporter.
fn place_of(map: &OsdMap, osd: i32, reporter_level: &str) -> String {
    let crush = &map.crush;
    let kind_of = |bucket: i32| crush.bucket(bucket).map_or(0, |b| i32::from(b.kind));
    let mut names = BTreeSet::new();
    let mut at = osd;
    for _ in 0..crush.buckets.len() {
        let Some(parent) = parent_of(crush, at) else { break };
        let kind = crush.type_names.get(&kind_of(parent)).map_or("", String::as_str);
        if kind != "root" && kind != reporter_level {
            names.insert(name_of(crush, parent));
        }
        at = parent;
    }
    names.into_iter().collect::<Vec<_>>().join(",")
}

fn name_of(crush: &CrushMap, item: i32) -> &str {
    crush.item_names.get(&item).map_or("", String::as_str)
}
