//! Health checks, from the monitor's state and the manager's reports.
//!
//! Codes and summaries are stock's, because alerts match them.

use crate::crush::Subtree;
use crate::fullness::grade_of;
use crate::options::MonOptions;
use crate::situation::{Reports, Situation};
use crate::state::State;
use std::collections::BTreeMap;
use wire::types::osd_map::MapFlags;
use wire::types::{EntityKind, HealthCheck, HealthStatus, OsdMap, PoolFlags, UTime};

pub type Checks = BTreeMap<String, HealthCheck>;

fn check(severity: HealthStatus, summary: String, detail: Vec<String>) -> HealthCheck {
    HealthCheck { severity, summary, count: detail.len().max(1) as i64, detail }
}

/// Everything that is wrong now, muted or not.
pub fn checks(state: &State, reports: &Reports, situation: &Situation, options: &MonOptions) -> Checks {
    let mut out = reports.health.clone();
    monitors(state, situation, &mut out);
    osds(state.osdmap(), options, &mut out);
    pools(state.osdmap(), situation.now, options, &mut out);
    flags(state.osdmap(), &mut out);
    keys(state, options, &mut out);
    out
}

fn plural<'a>(n: usize, one: &'a str, many: &'a str) -> &'a str {
    if n == 1 { one } else { many }
}

fn monitors(state: &State, situation: &Situation, out: &mut Checks) {
    let monmap = &state.monmap;
    let absent = monmap.by_rank().filter(|(rank, _)| !situation.quorum.contains(rank));
    let detail: Vec<String> = absent
        .map(|(rank, mon)| {
            format!("mon.{} (rank {rank}) addr {} is down (out of quorum)", mon.name, mon.addrs)
        })
        .collect();
    if !detail.is_empty() {
        let names = situation.quorum.iter().filter_map(|r| monmap.ranks.get(*r)).cloned();
        let summary = format!(
            "{}/{} mons down, quorum {}",
            detail.len(),
            monmap.mons.len(),
            names.collect::<Vec<_>>().join(",")
        );
        out.insert("MON_DOWN".into(), check(HealthStatus::WARN, summary, detail));
    }
    let mgr = &state.mgrmap;
    if mgr.epoch > 0 && !mgr.available && mgr.active_gid == 0 {
        let summary = "no active mgr".to_owned();
        out.insert("MGR_DOWN".into(), check(HealthStatus::WARN, summary, Vec::new()));
    }
}

/// OSDs that are down though they should serve; whole hosts and racks of them; OSDs of which there are too few.
fn osds(map: &OsdMap, options: &MonOptions, out: &mut Checks) {
    let ids: Vec<i32> = map.osd_ids().collect();
    if ids.is_empty() {
        let min = options.pool_size;
        if options.warn_on_too_few_osds && min > 0 {
            let summary = format!("OSD count 0 < osd_pool_default_size {min}");
            out.insert("TOO_FEW_OSDS".into(), check(HealthStatus::WARN, summary, Vec::new()));
        }
        return;
    }
    let down_in: Vec<i32> = ids.iter().copied().filter(|&o| !map.is_up(o) && map.is_in(o)).collect();
    if !down_in.is_empty() {
        subtrees_down(map, &down_in, out);
        let detail = down_in.iter().map(|&o| format!("osd.{o} ({}) is down", place_of(map, o))).collect();
        let n = down_in.len();
        // One, too, is "osds": people's alerts match the sentence.
        let summary = format!("{n} osds down");
        out.insert("OSD_DOWN".into(), check(HealthStatus::WARN, summary, detail));
    }
    let wanted = options.pool_size;
    if (ids.len() as u64) < wanted && options.warn_on_too_few_osds {
        let summary = format!("OSD count {} < osd_pool_default_size {wanted}", ids.len());
        out.insert("TOO_FEW_OSDS".into(), check(HealthStatus::WARN, summary, Vec::new()));
    }
    for (grade, code, what, detail, severity) in [
        (0, "OSD_FULL", "full", "full", HealthStatus::ERR),
        (1, "OSD_BACKFILLFULL", "backfillfull", "backfill full", HealthStatus::WARN),
        (2, "OSD_NEARFULL", "nearfull", "near full", HealthStatus::WARN),
    ] {
        let hit = ids.iter().filter(|osd| grade_of(map, **osd) == Some(grade));
        let detail: Vec<String> = hit.map(|osd| format!("osd.{osd} is {detail}")).collect();
        if !detail.is_empty() {
            let summary = format!("{} {what} osd(s)", detail.len());
            out.insert(code.into(), check(severity, summary, detail));
        }
    }
}

/// `OSD_HOST_DOWN`, `OSD_ROOT_DOWN`, …: buckets all of whose OSDs are down, when they hold any that is in.
fn subtrees_down(map: &OsdMap, down_in: &[i32], out: &mut Checks) {
    let crush = &map.crush;
    let mut by_kind: BTreeMap<i32, Vec<Subtree>> = BTreeMap::new();
    for subtree in crate::crush::subtrees(crush) {
        let any_in = subtree.osds.iter().any(|o| down_in.contains(o));
        if any_in && subtree.osds.iter().all(|&o| !map.is_up(o)) {
            by_kind.entry(subtree.kind).or_default().push(subtree);
        }
    }
    for (kind, down) in by_kind {
        let (n, osds) = (down.len(), down.iter().map(|subtree| subtree.osds.len()).sum::<usize>());
        let kind = crate::crush::type_name(crush, kind);
        let summary = format!("{n} {kind}{} ({osds} osds) down", if n == 1 { "" } else { "s" });
        let line = |subtree: &Subtree| {
            let name = crate::crush::name_of(crush, subtree.id);
            let place = match place_of(map, subtree.id) {
                place if place.is_empty() => String::new(),
                place => format!(" ({place})"),
            };
            format!("{kind} {name}{place} ({} osds) is down", subtree.osds.len())
        };
        let detail = down.iter().map(line).collect();
        out.insert(format!("OSD_{}_DOWN", kind.to_uppercase()), check(HealthStatus::WARN, summary, detail));
    }
}

/// `root=default,host=a`; nothing for a root.
fn place_of(map: &OsdMap, item: i32) -> String {
    let path = crate::crush::location(&map.crush, item);
    path.iter().map(|(kind, name)| format!("{kind}={name}")).collect::<Vec<_>>().join(",")
}

fn pools(map: &OsdMap, now: UTime, options: &MonOptions, out: &mut Checks) {
    let name = |id: &i64| map.pool_names.get(id).map_or("?", String::as_str);
    if options.warn_on_pool_no_redundancy {
        let bare = map.pools.iter().filter(|(_, p)| p.is_replicated() && p.size == 1);
        let detail: Vec<_> =
            bare.map(|(id, _)| format!("pool '{}' has no replicas configured", name(id))).collect();
        if !detail.is_empty() {
            let summary = format!("{} pool(s) have no replicas configured", detail.len());
            out.insert("POOL_NO_REDUNDANCY".into(), check(HealthStatus::WARN, summary, detail));
        }
    }
    if options.warn_on_pool_no_app {
        // A new pool may still get its application.
        let grace_ns = options.warn_on_pool_no_app_grace.as_nanos() as u64;
        let is_old = |made: UTime| now.as_nanos().saturating_sub(made.as_nanos()) > grace_ns;
        let unnamed = map.pools.iter().filter(|(_, p)| p.applications.is_empty() && is_old(p.create_time));
        let mut detail: Vec<_> =
            unnamed.map(|(id, _)| format!("application not enabled on pool '{}'", name(id))).collect();
        if !detail.is_empty() {
            let count = detail.len() as i64;
            let summary = format!("{count} pool(s) do not have an application enabled");
            detail.push(
                "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', 'rbd', \
                 'rgw', or freeform for custom applications."
                    .into(),
            );
            let check = HealthCheck { severity: HealthStatus::WARN, summary, detail, count };
            out.insert("POOL_APP_NOT_ENABLED".into(), check);
        }
    }
    pools_full(map, out);
}

/// As full as the fullest of their OSDs, or at their quota.
fn pools_full(map: &OsdMap, out: &mut Checks) {
    for (flag, code, what) in [
        (PoolFlags::FULL, "POOL_FULL", "full"),
        (PoolFlags::BACKFILLFULL, "POOL_BACKFILLFULL", "backfillfull"),
        (PoolFlags::NEARFULL, "POOL_NEARFULL", "nearfull"),
    ] {
        let hit = map.pools.iter().filter(|(_, pool)| pool.flags.has(flag));
        let detail: Vec<String> = hit
            .map(|(id, pool)| {
                let name = map.pool_names.get(id).map_or("", String::as_str);
                let why = match (flag, pool.flags.has(PoolFlags::FULL_QUOTA)) {
                    (PoolFlags::FULL, true) => " (running out of quota)",
                    (PoolFlags::FULL, false) => " (no space)",
                    _ => "",
                };
                format!("pool '{name}' is {what}{why}")
            })
            .collect();
        if !detail.is_empty() {
            let summary = format!("{} pool(s) {what}", detail.len());
            out.insert(code.into(), check(HealthStatus::WARN, summary, detail));
        }
    }
}

fn flags(map: &OsdMap, out: &mut Checks) {
    let loud = MapFlags(
        map.flags.0
            & (MapFlags::FULL
                | MapFlags::PAUSERD
                | MapFlags::PAUSEWR
                | MapFlags::PAUSEREC
                | MapFlags::NOUP
                | MapFlags::NODOWN
                | MapFlags::NOIN
                | MapFlags::NOOUT
                | MapFlags::NOBACKFILL
                | MapFlags::NORECOVER
                | MapFlags::NOSCRUB
                | MapFlags::NODEEP_SCRUB
                | MapFlags::NOTIERAGENT
                | MapFlags::NOSNAPTRIM
                | MapFlags::NOREBALANCE),
    );
    if loud.0 != 0 {
        let summary = format!("{loud} flag(s) set");
        out.insert("OSDMAP_FLAGS".into(), check(HealthStatus::WARN, summary, Vec::new()));
    }
}

fn keys(state: &State, options: &MonOptions, out: &mut Checks) {
    if options.allow_insecure_global_id_reclaim && options.warn_on_insecure_global_id_reclaim {
        let names = state.monmap.by_rank().map(|(_, mon)| mon);
        let detail: Vec<_> = names
            .map(|mon| format!("mon.{} has auth_allow_insecure_global_id_reclaim set to true", mon.name))
            .collect();
        let n = detail.len();
        let text = format!("{} allowing insecure global_id reclaim", plural(n, "mon is", "mons are"));
        out.insert("AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED".into(), check(HealthStatus::WARN, text, detail));
    }
    let mut bad = Vec::new();
    for (name, entity) in &state.auth.entities {
        let mon_caps = entity.caps.get("mon").map(|text| crate::caps::MonCap::parse(text));
        if let Some(Err(error)) = mon_caps {
            bad.push(format!("{name} {error}"));
        }
        if name.kind != EntityKind::CLIENT && entity.key.secret.is_empty() {
            bad.push(format!("{name} has no key"));
        }
    }
    if !bad.is_empty() {
        let summary = format!("{} auth entities have invalid capabilities", bad.len());
        out.insert("AUTH_BAD_CAPS".into(), check(HealthStatus::ERR, summary, bad));
    }
}
