//! The cluster as a whole: `status`, `health`, `versions`, `features`, `df`, `fsid`, ….

use super::{Answer, Command, Ctx, Outcome, commands};
use crate::health;
use crate::proposal::Change;
use crate::situation::Skew;
use command::errno::ENOENT;
use command::{Format, Json, object};
use std::collections::BTreeMap;
use std::fmt::Write;
use wire::text::{Age, Align, Bytes, ClientIo, LowPrecision, ObjectShare, RecoveryIo, Si, Table, stamp};
use wire::types::osd_map::MapFlags;
use wire::types::{HealthCheck, HealthStatus, OsdMap, PgMapDigest, PgState, ServiceMap, StoreStatfs, UTime};

pub(super) const COMMANDS: &[Command] = commands! {
    "status", "show how the cluster is", "mon", "r", status;
    "health name=detail,type=CephChoices,strings=detail,req=false", "show what is wrong", "mon", "r", health;
    "health mute name=code,type=CephString name=ttl,type=CephString,req=false name=sticky,type=CephBool,req=false",
        "do not count a health check", "mon", "rw", mute;
    "health unmute name=code,type=CephString,req=false", "count a health check again", "mon", "rw", unmute;
    "df name=detail,type=CephChoices,strings=detail,req=false", "show how full the cluster is", "mon", "r", df;
    "fsid", "show the cluster's id", "mon", "r", fsid;
    "versions", "count daemons by version", "mon", "r", versions;
    "features", "count connected peers by features", "mon", "r", features;
    "node ls name=type,type=CephChoices,strings=all|osd|mon|mds|mgr,req=false", "list hosts with their daemons", "mon", "r", node_ls;
    "report name=tags,type=CephString,n=N,req=false", "show everything in one JSON document", "mon", "r", report;
    "time-sync-status", "show the monitors' clock skews", "mon", "r", time_sync_status;
    "version", "show this daemon's version", "mon", "r", version, Command::TELL;
};

fn checks(ctx: &Ctx<'_>) -> health::Checks {
    health::checks(ctx.state, ctx.reports, ctx.situation, ctx.options)
}

/// The worst of those that are not muted.
fn overall(ctx: &Ctx<'_>, checks: &health::Checks) -> HealthStatus {
    let heard = checks.iter().filter(|(code, _)| !ctx.state.mutes.contains_key(*code));
    heard.map(|(_, check)| check.severity).min().unwrap_or(HealthStatus::OK)
}

fn check_json(ctx: &Ctx<'_>, code: &str, check: &HealthCheck, detail: bool) -> Json {
    let mut json = object! {
        "severity" => check.severity.to_string(),
        "summary" => object! { "message" => check.summary.as_str(), "count" => check.count },
    };
    if detail {
        let lines = check.detail.iter().map(|line| object! { "message" => line.as_str() });
        json.push("detail", Json::array(lines));
    }
    json.push("muted", ctx.state.mutes.contains_key(code));
    json
}

fn health_json(ctx: &Ctx<'_>, detail: bool) -> Json {
    let checks = checks(ctx);
    let shown = checks.iter().map(|(code, c)| (code.clone().into(), check_json(ctx, code, c, detail)));
    let mutes = ctx.state.mutes.iter().map(|(code, mute)| {
        let mut json = object! { "code" => code.as_str() };
        if mute.until != UTime::ZERO {
            json.push("ttl", stamp(mute.until));
        }
        json.push("sticky", mute.sticky);
        json.push("summary", mute.summary.as_str());
        json.push("count", mute.count);
        json
    });
    object! {
        "status" => overall(ctx, &checks).to_string(),
        "checks" => Json::Object(shown.collect()),
        "mutes" => Json::array(mutes),
    }
}

/// One line, or in `status` several that are indented alike.
fn health_plain(ctx: &Ctx<'_>, detail: bool, first: &str, next: &str) -> String {
    let checks = checks(ctx);
    let mutes = &ctx.state.mutes;
    let mut out = overall(ctx, &checks).to_string();
    let heard = checks.iter().filter(|(code, _)| !mutes.contains_key(*code));
    let summary = heard.map(|(_, c)| c.summary.as_str()).collect::<Vec<_>>().join(next);
    if !summary.is_empty() {
        out += first;
        out += &summary;
    }
    let left = |until: UTime| Age::between(ctx.now, until).to_string();
    if !mutes.is_empty() {
        out += if summary.is_empty() { first } else { next };
        out += "(muted:";
        for (code, mute) in mutes {
            let _ = write!(out, " {code}");
            if mute.until != UTime::ZERO {
                let _ = write!(out, "({})", left(mute.until));
            }
        }
        out.push(')');
    }
    out.push('\n');
    if detail {
        for (code, check) in &checks {
            if let Some(mute) = mutes.get(code) {
                out += "(MUTED";
                if mute.until != UTime::ZERO {
                    let _ = write!(out, " ttl {}", left(mute.until));
                }
                if mute.sticky {
                    out += ", STICKY";
                }
                out += ") ";
            }
            let short = if check.severity == HealthStatus::ERR { "ERR" } else { "WRN" };
            let _ = writeln!(out, "[{short}] {code}: {}", check.summary);
            for line in &check.detail {
                let _ = writeln!(out, "    {line}");
            }
        }
    }
    out
}

fn health(ctx: &mut Ctx<'_>) -> Outcome {
    let detail = ctx.args.get("detail").is_some();
    Ok(ctx.show(|| health_json(ctx, detail), || health_plain(ctx, detail, " ", "; ")))
}

fn mute(ctx: &mut Ctx<'_>) -> Outcome {
    let code = ctx.args.required("code")?;
    let sticky = ctx.args.flag("sticky");
    let until = match ctx.args.text("ttl") {
        None => UTime::ZERO,
        Some(text) => {
            let seconds = command::options::value::seconds(&text)
                .map_err(|_| Answer::invalid(format!("not a valid duration: {text}")))?;
            UTime::from_nanos(ctx.now.as_nanos().saturating_add(seconds.saturating_mul(1_000_000_000)))
        }
    };
    let checks = checks(ctx);
    let found = checks.get(&code);
    if found.is_none() && !sticky {
        return Err(Answer::error(ENOENT, format!("health alert {code} is not currently raised")));
    }
    let (summary, count) = found.map(|c| (c.summary.clone(), c.count)).unwrap_or_default();
    ctx.changes.push(Change::Mute { code, until, sticky, summary, count });
    Ok(Answer::default())
}

fn unmute(ctx: &mut Ctx<'_>) -> Outcome {
    match ctx.args.text("code") {
        Some(code) => ctx.changes.push(Change::Unmute { code }),
        None => {
            let all = ctx.state.mutes.keys().map(|code| Change::Unmute { code: code.clone() });
            ctx.changes.extend(all.collect::<Vec<_>>());
        }
    }
    Ok(Answer::default())
}

fn fsid(ctx: &mut Ctx<'_>) -> Outcome {
    let id = ctx.state.monmap.fsid.to_string();
    Ok(ctx.show(|| object! { "fsid" => id.as_str() }, || id.clone()))
}

fn version(ctx: &mut Ctx<'_>) -> Outcome {
    let parts: Vec<&str> = ctx.situation.version.split_whitespace().collect();
    let json = object! {
        "version" => parts.get(2).copied().unwrap_or_default(),
        "release" => parts.get(4).copied().unwrap_or_default(),
        "release_type" => parts.get(5).map_or("", |t| t.trim_matches(['(', ')'])),
    };
    Ok(ctx.show_json(json))
}

fn versions(ctx: &mut Ctx<'_>) -> Outcome {
    let state = ctx.state;
    let up_osds = state.osd.metadata.iter().filter(|(osd, _)| state.osdmap().exists(**osd));
    let kinds = [
        ("mon", super::count_by(state.mon_metadata.values(), "ceph_version")),
        ("mgr", super::count_by(state.mgr_metadata.values(), "ceph_version")),
        ("osd", super::count_by(up_osds.map(|(_, fields)| fields), "ceph_version")),
    ];
    let mut json = object! {};
    let mut sum: BTreeMap<String, u64> = BTreeMap::new();
    for (kind, counts) in kinds {
        let Json::Object(pairs) = &counts else { continue };
        if pairs.is_empty() {
            continue;
        }
        for (version, n) in pairs {
            if let Json::Uint(n) = n {
                *sum.entry(version.to_string()).or_default() += n;
            }
        }
        json.push(kind, counts);
    }
    json.push("overall", Json::Object(sum.into_iter().map(|(v, n)| (v.into(), n.into())).collect()));
    Ok(ctx.show_json(json))
}

pub(super) fn features_json(ctx: &Ctx<'_>) -> Json {
    let mut json = object! {};
    for kind in ["mon", "mds", "osd", "client", "mgr"] {
        let entries: Vec<Json> = ctx
            .situation
            .peers
            .iter()
            .filter(|((k, _), _)| *k == kind)
            .map(|((_, bits), n)| {
                object! {
                    "features" => format!("{bits:#x}"),
                    "release" => wire::features::release_name(codec::Features(*bits)),
                    "num" => *n,
                }
            })
            .collect();
        if !entries.is_empty() {
            json.push(kind, entries);
        }
    }
    json
}

fn features(ctx: &mut Ctx<'_>) -> Outcome {
    let json = features_json(ctx);
    Ok(ctx.show_json(json))
}

fn time_sync_status(ctx: &mut Ctx<'_>) -> Outcome {
    let allowed = ctx.options.clock_drift_allowed;
    let mut skews: BTreeMap<&str, Skew> =
        ctx.situation.skews.iter().map(|(name, skew)| (name.as_str(), *skew)).collect();
    if !skews.is_empty() {
        skews.insert(&ctx.situation.name, Skew { skew: 0.0, latency: 0.0 });
    }
    let rows = skews.iter().map(|(name, skew)| {
        let health = if skew.skew.abs() > allowed { "HEALTH_WARN" } else { "HEALTH_OK" };
        ((*name).to_owned(), object! { "skew" => skew.skew, "latency" => skew.latency, "health" => health })
    });
    let rows: Vec<(String, Json)> = rows.collect();
    let mut json = object! {};
    if !rows.is_empty() {
        json.push(
            "time_skew_status",
            Json::Object(rows.into_iter().map(|(name, row)| (name.into(), row)).collect()),
        );
    }
    json.push(
        "timechecks",
        object! {
            "epoch" => ctx.situation.election_epoch,
            "round" => 0u32,
            "round_status" => "finished",
        },
    );
    Ok(ctx.show_json(json))
}

fn node_ls(ctx: &mut Ctx<'_>) -> Outcome {
    let wanted = ctx.args.text("type").unwrap_or_else(|| "all".into());
    let mut mons: BTreeMap<&str, Vec<Json>> = BTreeMap::new();
    let mut mgrs: BTreeMap<&str, Vec<Json>> = BTreeMap::new();
    let mut osds: BTreeMap<&str, Vec<Json>> = BTreeMap::new();
    let host = |fields: &'_ BTreeMap<String, String>| -> String {
        fields.get("hostname").cloned().unwrap_or_default()
    };
    let named = |all: &BTreeMap<String, BTreeMap<String, String>>| -> Vec<(String, Json)> {
        all.iter().map(|(name, fields)| (host(fields), name.as_str().into())).collect()
    };
    let mon_hosts = named(&ctx.state.mon_metadata);
    let mgr_hosts = named(&ctx.state.mgr_metadata);
    let osd_hosts: Vec<(String, Json)> =
        ctx.state.osd.metadata.iter().map(|(osd, fields)| (host(fields), (*osd).into())).collect();
    for (into, from) in [(&mut mons, &mon_hosts), (&mut mgrs, &mgr_hosts), (&mut osds, &osd_hosts)] {
        for (host, daemon) in from {
            into.entry(host.as_str()).or_default().push(daemon.clone());
        }
    }
    let json = |by_host: BTreeMap<&str, Vec<Json>>| {
        Json::Object(by_host.into_iter().map(|(h, d)| (h.to_owned().into(), Json::Array(d))).collect())
    };
    let out = match wanted.as_str() {
        "mon" => json(mons),
        "osd" => json(osds),
        "mgr" => json(mgrs),
        "mds" => object! {},
        _ => object! { "mon" => json(mons), "osd" => json(osds), "mgr" => json(mgrs) },
    };
    Ok(ctx.show_json(out))
}

fn report(ctx: &mut Ctx<'_>) -> Outcome {
    let json = object! {
        "cluster_fingerprint" => ctx.state.monmap.fsid.to_string(),
        "version" => ctx.situation.version.as_str(),
        "timestamp" => stamp(ctx.now),
        "tag" => ctx.args.texts("tags").join(" "),
        "health" => health_json(ctx, true),
        "monmap" => super::mon::monmap_json(&ctx.state.monmap),
        "osdmap" => super::osd::dump::map_json(ctx.state.osdmap()),
        "osd_metadata" => Json::array(super::osd::metadata_json(ctx.state)),
    };
    let body = json.pretty();
    let crc = wire::frames::crc32c(body.as_bytes());
    Ok(Answer::body(body).with_status(format!("report {crc}")))
}

// ---- status ----

pub fn status_json(ctx: &Ctx<'_>) -> Json {
    let state = ctx.state;
    let ranks = &ctx.situation.quorum;
    let names = ranks.iter().filter_map(|r| state.monmap.ranks.get(*r)).cloned();
    let mut json = object! { "fsid" => state.monmap.fsid.to_string(), "health" => health_json(ctx, false) };
    json.push("election_epoch", ctx.situation.election_epoch);
    json.push("quorum", Json::array(ranks.iter().copied()));
    json.push("quorum_names", Json::array(names));
    json.push("quorum_age", ctx.situation.quorum_age_s);
    json.push(
        "monmap",
        object! {
            "epoch" => state.monmap.epoch,
            "min_mon_release_name" => state.monmap.min_mon_release.name(),
            "num_mons" => state.monmap.mons.len(),
        },
    );
    json.push("osdmap", osd_summary_json(state.osdmap()));
    json.push("pgmap", pg_summary_json(ctx));
    json.push(
        "fsmap",
        object! {
            "epoch" => 1u32,
            "btime" => stamp(state.monmap.created),
            "by_rank" => Json::Array(vec![]),
            "up:standby" => 0u32,
        },
    );
    json.push("mgrmap", super::mgr::summary_json(ctx));
    json.push("servicemap", command::service_map::json(&service_map(ctx)));
    let events = ctx.reports.progress.iter().map(|(id, event)| {
        let json = object! {
            "message" => event.message.as_str(),
            "progress" => event.progress,
            "add_to_ceph_s" => event.add_to_status,
        };
        (id.clone().into(), json)
    });
    json.push("progress_events", Json::Object(events.collect()));
    json
}

/// Gateways and other service daemons, as the manager reports them.
fn service_map(ctx: &Ctx<'_>) -> ServiceMap {
    let first = || ServiceMap { epoch: 1, modified: ctx.state.monmap.created, ..ServiceMap::default() };
    codec::decode_exact(&ctx.reports.service_map).unwrap_or_else(|_| first())
}

fn status(ctx: &mut Ctx<'_>) -> Outcome {
    Ok(match ctx.args.format() {
        Format::Plain => Answer::body(status_plain(ctx)),
        format => Answer::json(format, &status_json(ctx)),
    })
}

fn status_plain(ctx: &Ctx<'_>) -> String {
    let state = ctx.state;
    let monmap = &state.monmap;
    let names: Vec<_> = ctx.situation.quorum.iter().filter_map(|r| monmap.ranks.get(*r)).cloned().collect();
    let indent = "\n            ";
    let mut out = format!("  cluster:\n    id:     {}\n", monmap.fsid);
    let _ = write!(out, "    health: {}", health_plain(ctx, false, indent, indent));
    out += "\n\n \n  services:\n";
    let age = Age { nanos: ctx.situation.quorum_age_s * 1_000_000_000 };
    let leader = ctx.situation.leader.and_then(|rank| monmap.ranks.get(rank)).map_or("", String::as_str);
    let services = service_map(ctx).services;
    let width = services.keys().map(String::len).fold("mon".len(), usize::max);
    let pad = " ".repeat(width - "mon".len());
    let _ = write!(
        out,
        "    mon: {pad}{} daemons, quorum {} (age {age}) [leader: {leader}]",
        monmap.mons.len(),
        names.join(",")
    );
    let outside: Vec<_> = monmap.ranks.iter().filter(|n| !names.contains(n)).cloned().collect();
    if !outside.is_empty() {
        let _ = write!(out, ", out of quorum: {}", outside.join(", "));
    }
    let _ = writeln!(out, "\n    mgr: {pad}{}", super::mgr::summary_plain(ctx));
    let indent = " ".repeat(width + "    : ".len());
    let osds = osd_summary_plain(state.osdmap(), ctx.now, &indent, false);
    let _ = write!(out, "    osd: {pad}{osds}");
    for (name, service) in &services {
        let space = width - name.len();
        let _ = writeln!(out, "    {name}: {:space$}{}", "", command::service_map::summary(service));
    }
    let tasks: String = services.iter().map(|(name, s)| command::service_map::tasks(name, s)).collect();
    if !tasks.is_empty() {
        let _ = write!(out, "\n \n  task status:{tasks}\n");
    }
    out += "\n \n  data:\n";
    out += &pg_summary_plain(ctx);
    let events = ctx.reports.progress.values().filter(|e| e.add_to_status);
    let lines: String = events.map(|e| format!("    {}\n", e.message)).collect();
    if !lines.is_empty() {
        out += "\n \n  progress:\n";
        out += &lines;
    }
    out += "\n ";
    out.replace("\n\n\n \n", "\n \n").replace("\n\n \n", "\n \n")
}

pub(super) fn osd_summary_json(map: &OsdMap) -> Json {
    let (all, up, inside) = map.osd_counts();
    object! {
        "epoch" => map.epoch,
        "num_osds" => all,
        "num_up_osds" => up,
        "osd_up_since" => map.last_up_change.sec,
        "num_in_osds" => inside,
        "osd_in_since" => map.last_in_change.sec,
        "num_remapped_pgs" => map.pg_temp.len(),
    }
}

pub(super) fn osd_summary_plain(map: &OsdMap, now: UTime, prefix: &str, with_epoch: bool) -> String {
    let (all, up, inside) = map.osd_counts();
    let since = |at: UTime| match at {
        UTime::ZERO => String::new(),
        at => format!(" (since {})", Age::between(at, now)),
    };
    let mut out = format!("{all} osds: {up} up{}", since(map.last_up_change));
    let _ = write!(out, ", {inside} in{}", since(map.last_in_change));
    if with_epoch {
        let _ = write!(out, "; epoch: e{}", map.epoch);
    }
    if !map.pg_temp.is_empty() {
        let _ = write!(out, "; {} remapped pgs", map.pg_temp.len());
    }
    out.push('\n');
    let flags = MapFlags(map.flags.0 & !MapFlags::SEMIHIDDEN);
    if flags.0 != 0 {
        let _ = writeln!(out, "{prefix}flags {flags}");
    }
    out
}

/// States with their counts, most frequent first.
fn by_count(digest: &PgMapDigest) -> Vec<(PgState, i32)> {
    let mut states: Vec<_> = digest.num_pg_by_state.iter().map(|(s, n)| (*s, *n)).collect();
    states.sort_by_key(|(state, n)| std::cmp::Reverse((*n, state.0)));
    states
}

fn raw_used(statfs: &StoreStatfs) -> u64 {
    statfs.total.saturating_sub(statfs.available)
}

/// Client traffic and recovery over the last reports.
fn io_rates(ctx: &Ctx<'_>) -> (Option<ClientIo>, Option<RecoveryIo>) {
    let digest = &ctx.reports.digest;
    (ClientIo::of(&digest.delta, digest.delta_over), RecoveryIo::of(&digest.delta, digest.delta_over))
}

fn pg_summary_json(ctx: &Ctx<'_>) -> Json {
    let digest = &*ctx.reports.sums(ctx.state.osdmap());
    let states =
        by_count(digest).into_iter().map(|(s, n)| object! { "state_name" => s.to_string(), "count" => n });
    let sum = &digest.pg_sum.stats.sum;
    let statfs = &digest.osd_sum.statfs;
    let mut json = object! {
        "pgs_by_state" => Json::array(states),
        "num_pgs" => digest.num_pg,
        "num_pools" => digest.pool_sums.len(),
        "num_objects" => sum.num_objects,
        "data_bytes" => sum.num_bytes,
        "bytes_used" => raw_used(statfs),
        "bytes_avail" => statfs.available,
        "bytes_total" => statfs.total,
    };
    let inactive = digest.num_pg - digest.num_pg_active - digest.num_pg_unknown;
    for (key, n) in [("unknown_pgs_ratio", digest.num_pg_unknown), ("inactive_pgs_ratio", inactive)] {
        if n > 0 {
            json.push(key, n as f32 / digest.num_pg as f32);
        }
    }
    for share in ObjectShare::all(sum) {
        let ObjectShare { trouble, part, whole } = share;
        json.push(format!("{trouble}_objects"), part);
        json.push(format!("{trouble}_total"), whole);
        json.push(format!("{trouble}_ratio"), share.ratio());
    }
    let (client, recovery) = io_rates(ctx);
    for (key, rate) in recovery.into_iter().flat_map(|io| io.pairs()) {
        json.push(key, rate);
    }
    for (key, rate) in client.into_iter().flat_map(|io| io.pairs()) {
        json.push(key, rate);
    }
    json
}

fn pg_summary_plain(ctx: &Ctx<'_>) -> String {
    let digest = &*ctx.reports.sums(ctx.state.osdmap());
    let sum = &digest.pg_sum.stats.sum;
    let statfs = &digest.osd_sum.statfs;
    let bytes = |n: i64| Bytes(n.max(0) as u64);
    let mut out = format!("    pools:   {} pools, {} pgs\n", digest.pool_sums.len(), digest.num_pg);
    let objects = Si(sum.num_objects.max(0) as u64);
    let _ = writeln!(out, "    objects: {objects} objects, {}", bytes(sum.num_bytes));
    let _ = writeln!(
        out,
        "    usage:   {} used, {} / {} avail",
        Bytes(raw_used(statfs)),
        Bytes(statfs.available),
        Bytes(statfs.total)
    );
    let mut lines = Vec::new();
    let share = |n: i64| n as f32 / digest.num_pg as f32 * 100.0;
    let inactive = digest.num_pg - digest.num_pg_active - digest.num_pg_unknown;
    if digest.num_pg_unknown > 0 {
        lines.push(format!("{:.3}% pgs unknown", share(digest.num_pg_unknown)));
    }
    if inactive > 0 {
        lines.push(format!("{:.3}% pgs not active", share(inactive)));
    }
    lines.extend(ObjectShare::all(sum).map(|share| share.to_string()));
    let states = by_count(digest);
    let width = states.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(1);
    lines.extend(states.iter().map(|(state, n)| format!("{n:<width$} {state}")));
    let _ = write!(out, "    pgs:     {}", lines.join("\n             "));
    if !lines.is_empty() {
        out.push('\n');
    }
    let (client, recovery) = io_rates(ctx);
    if client.is_some() || recovery.is_some() {
        out += "\n \n  io:\n";
    }
    if let Some(io) = client {
        let _ = writeln!(out, "    client:   {io}");
    }
    if let Some(io) = recovery {
        let _ = writeln!(out, "    recovery: {io}");
    }
    out
}

// ---- df ----

/// Used by data: what is taken without the store's own overhead.
fn used(statfs: &StoreStatfs) -> u64 {
    statfs.total.saturating_sub(statfs.available).saturating_sub(statfs.internally_reserved)
}

fn ratio(statfs: &StoreStatfs) -> f32 {
    if statfs.total == 0 { 0.0 } else { raw_used(statfs) as f32 / statfs.total as f32 }
}

#[derive(Clone, Copy)]
struct Parts {
    data: u64,
    omap: u64,
}

impl Parts {
    fn sum(self) -> u64 {
        self.data + self.omap
    }
}

struct PoolUse {
    id: i64,
    name: String,
    pgs: u32,
    /// Bytes that clients stored: data and omaps.
    stored: Parts,
    objects: i64,
    /// Bytes on the disks, in all copies.
    used: Parts,
    percent: f32,
    max_avail: u64,
    raw_avail: u64,
    copies: f32,
    /// Bytes of the disks that compressed data takes, and what it was before.
    compressed: (u64, u64),
}

fn pool_uses(ctx: &Ctx<'_>) -> Vec<PoolUse> {
    let digest = &ctx.reports.digest;
    let map = ctx.state.osdmap();
    let pools = map.pools.iter().filter_map(|(id, pool)| {
        let stat = digest.pool_sums.get(&(*id as i32))?;
        let copies = f32::from(pool.size).max(1.0);
        let omap = stat.store_stats.omap_allocated.max(0) as u64;
        let data = stat.stats.sum.num_bytes.max(0) as u64;
        let stored = Parts { data, omap: (omap as f32 / copies).round() as u64 };
        let allocated = stat.store_stats.allocated.max(0) as u64;
        let used =
            Parts { data: if allocated > 0 { allocated } else { (data as f32 * copies) as u64 }, omap };
        let raw_avail =
            digest.available_by_rule.get(&pool.crush_rule.into()).copied().unwrap_or(0).max(0) as u64;
        let percent = match (raw_avail, used.sum()) {
            (0, 0) => 0.0,
            (0, _) => 1.0,
            (avail, used) => used as f32 / (used as f32 + avail as f32),
        };
        Some(PoolUse {
            id: *id,
            name: map.pool_names.get(id).cloned().unwrap_or_default(),
            pgs: pool.pg_num,
            stored,
            objects: stat.stats.sum.num_objects,
            used,
            percent,
            max_avail: (raw_avail as f32 / copies) as u64,
            raw_avail,
            copies,
            compressed: (
                stat.store_stats.data_compressed_allocated.max(0) as u64,
                stat.store_stats.data_compressed_original.max(0) as u64,
            ),
        })
    });
    pools.collect()
}

fn df(ctx: &mut Ctx<'_>) -> Outcome {
    let detail = ctx.args.get("detail").is_some();
    let answer = ctx.show(|| df_json(ctx, detail), || df_plain(ctx, detail));
    Ok(answer)
}

fn statfs_json(statfs: &StoreStatfs) -> Json {
    object! {
        "total_bytes" => statfs.total,
        "total_avail_bytes" => statfs.available,
        "total_used_bytes" => used(statfs),
        "total_used_raw_bytes" => raw_used(statfs),
        "total_used_raw_ratio" => ratio(statfs),
    }
}

fn df_json(ctx: &Ctx<'_>, detail: bool) -> Json {
    let digest = &ctx.reports.digest;
    let mut stats = statfs_json(&digest.osd_sum.statfs);
    stats.push("num_osds", digest.osd_sum.num_osds);
    stats.push("num_per_pool_osds", digest.osd_sum.num_per_pool_osds);
    stats.push("num_per_pool_omap_osds", digest.osd_sum.num_per_pool_omap_osds);
    let by_class = digest.osd_sum_by_class.iter().map(|(c, o)| (c.clone().into(), statfs_json(&o.statfs)));
    let pools = pool_uses(ctx).into_iter().map(|p| {
        let mut stats = object! { "stored" => p.stored.sum() };
        if detail {
            stats.push("stored_data", p.stored.data);
            stats.push("stored_omap", p.stored.omap);
        }
        stats.push("objects", p.objects);
        stats.push("kb_used", p.used.sum().div_ceil(1024));
        stats.push("bytes_used", p.used.sum());
        if detail {
            stats.push("data_bytes_used", p.used.data);
            stats.push("omap_bytes_used", p.used.omap);
        }
        stats.push("percent_used", p.percent);
        stats.push("max_avail", p.max_avail);
        if detail {
            let pool = &ctx.state.osdmap().pools[&p.id];
            let sum = digest.pool_sums.get(&(p.id as i32)).map(|s| s.stats.sum).unwrap_or_default();
            stats.push("quota_objects", pool.quota_max_objects);
            stats.push("quota_bytes", pool.quota_max_bytes);
            stats.push("dirty", 0u32);
            stats.push("rd", sum.num_rd);
            stats.push("rd_bytes", sum.num_rd_kb * 1024);
            stats.push("wr", sum.num_wr);
            stats.push("wr_bytes", sum.num_wr_kb * 1024);
            stats.push("compress_bytes_used", p.compressed.0);
            stats.push("compress_under_bytes", p.compressed.1);
            stats.push("stored_raw", (p.stored.sum() as f32 * p.copies) as u64);
            stats.push("avail_raw", p.raw_avail);
        }
        object! { "name" => p.name, "id" => p.id, "stats" => stats }
    });
    object! {
        "stats" => stats,
        "stats_by_class" => Json::Object(by_class.collect()),
        "pools" => Json::array(pools),
    }
}

fn percent(value: f32) -> String {
    LowPrecision(f64::from(value) * 100.0).to_string()
}

fn df_plain(ctx: &Ctx<'_>, detail: bool) -> String {
    let digest = &ctx.reports.digest;
    let mut raw = Table::with_headings(&["CLASS", "SIZE", "AVAIL", "USED", "RAW USED", "%RAW USED"]);
    let by_class = digest.osd_sum_by_class.iter().map(|(class, osd)| (class.as_str(), &osd.statfs));
    for (name, statfs) in by_class.chain([("TOTAL", &digest.osd_sum.statfs)]) {
        raw.row([
            name.to_owned(),
            Bytes(statfs.total).to_string(),
            Bytes(statfs.available).to_string(),
            Bytes(used(statfs)).to_string(),
            Bytes(raw_used(statfs)).to_string(),
            percent(ratio(statfs)),
        ]);
    }
    let mut table = Table::default();
    let mut headings = vec!["POOL", "ID", "PGS", "STORED"];
    let extra = ["(DATA)", "(OMAP)"];
    if detail {
        headings.extend(extra);
    }
    headings.extend(["OBJECTS", "USED"]);
    if detail {
        headings.extend(extra);
    }
    headings.extend(["%USED", "MAX AVAIL"]);
    if detail {
        headings.extend(["QUOTA OBJECTS", "QUOTA BYTES", "DIRTY", "USED COMPR", "UNDER COMPR"]);
    }
    for (i, heading) in headings.into_iter().enumerate() {
        table.column(heading, if i == 0 { Align::Left } else { Align::Right });
    }
    for p in pool_uses(ctx) {
        let mut row = vec![p.name, p.id.to_string(), p.pgs.to_string(), Bytes(p.stored.sum()).to_string()];
        if detail {
            row.extend([Bytes(p.stored.data).to_string(), Bytes(p.stored.omap).to_string()]);
        }
        row.extend([Si(p.objects.max(0) as u64).to_string(), Bytes(p.used.sum()).to_string()]);
        if detail {
            row.extend([Bytes(p.used.data).to_string(), Bytes(p.used.omap).to_string()]);
        }
        row.extend([percent(p.percent), Bytes(p.max_avail).to_string()]);
        if detail {
            let pool = &ctx.state.osdmap().pools[&p.id];
            let or_none = |n: u64, text: String| if n == 0 { "N/A".to_owned() } else { text };
            row.push(or_none(pool.quota_max_objects, Si(pool.quota_max_objects).to_string()));
            row.push(or_none(pool.quota_max_bytes, Bytes(pool.quota_max_bytes).to_string()));
            let (used, under) = p.compressed;
            row.extend(["N/A".to_owned(), Bytes(used).to_string(), Bytes(under).to_string()]);
        }
        table.row(row);
    }
    format!("--- RAW STORAGE ---\n{raw} \n--- POOLS ---\n{table}")
}
