//! Health checks, from the monitor's state and the manager's reports.
//!
//! Codes and summaries are stock's, because alerts match them.

mod ciphers;

use crate::crush::{Subtree, location_text};
use crate::fullness::grade_of;
use crate::old_builds::obstacle_to_merges;
use crate::options::MonOptions;
use crate::osd_flags::Hold;
use crate::situation::{Reports, Situation, Stall};
use crate::state::State;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::osd_map::MapFlags;
use wire::types::{EntityKind, HealthCheck, HealthStatus, OsdMap, OsdState, PoolFlags, UTime};

pub type Checks = BTreeMap<String, HealthCheck>;

pub(crate) fn check(severity: HealthStatus, summary: String, detail: Vec<String>) -> HealthCheck {
    HealthCheck { severity, summary, count: detail.len().max(1) as i64, detail }
}

/// Everything that is wrong now, muted or not.
pub fn checks(state: &State, reports: &Reports, situation: &Situation, options: &MonOptions) -> Checks {
    let mut out = reports.health.clone();
    monitors(state, situation, &mut out);
    clocks(situation, options, &mut out);
    disks(situation, options, &mut out);
    osds(state.osdmap(), options, &mut out);
    stalls(&situation.stalls, &mut out);
    orphans(state.osdmap(), &mut out);
    full_ratios(state.osdmap(), options, &mut out);
    pools(state.osdmap(), situation.now, options, &mut out);
    merges_held(state, &mut out);
    flags(state.osdmap(), &mut out);
    local_flags(state.osdmap(), &mut out);
    if options.osd_down_out_interval.is_zero() && options.warn_on_osd_down_out_interval_zero {
        let text = |name| format!("mon{name} has mon_osd_down_out_interval set to 0");
        let detail = vec![text(format!(".{}", situation.name))];
        let check = check(HealthStatus::WARN, text(format!(" {}", situation.name)), detail);
        out.insert("OSD_NO_DOWN_OUT_INTERVAL".into(), check);
    }
    keys(state, options, &mut out);
    ciphers::add(state, options, &mut out);
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

/// Clocks of monitors that differ from the leader's.
fn clocks(situation: &Situation, options: &MonOptions, out: &mut Checks) {
    let allowed = options.clock_drift_allowed;
    let off = situation.skews.iter().filter(|(_, skew)| skew.skew.abs() > allowed);
    let (names, detail): (Vec<String>, Vec<String>) = off
        .map(|(name, skew)| {
            let (off, latency) = (skew.skew.abs(), skew.latency);
            (
                format!("mon.{name}"),
                format!("mon.{name} clock skew {off:.6}s > max {allowed}s (latency {latency:.6}s)"),
            )
        })
        .unzip();
    if !detail.is_empty() {
        let summary = format!("clock skew detected on {}", names.join(", "));
        out.insert("MON_CLOCK_SKEW".into(), check(HealthStatus::WARN, summary, detail));
    }
}

/// Monitors whose disk is nearly full.
fn disks(situation: &Situation, options: &MonOptions, out: &mut Checks) {
    let (mut low, mut very_low) = (Vec::new(), Vec::new());
    for (name, (total, available)) in &situation.disks {
        let Some(percent) = (available * 100).checked_div(*total) else { continue };
        let is_below = |limit: i64| (percent as i64) < limit;
        if is_below(options.data_avail_crit) {
            very_low.push((name.as_str(), percent));
        } else if is_below(options.data_avail_warn) {
            low.push((name.as_str(), percent));
        }
    }
    for (code, found, how, severity) in [
        ("MON_DISK_CRIT", very_low, "very low", HealthStatus::ERR),
        ("MON_DISK_LOW", low, "low", HealthStatus::WARN),
    ] {
        if found.is_empty() {
            continue;
        }
        let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
        let (mons, are) = (plural(names.len(), "mon", "mons"), plural(names.len(), "is", "are"));
        let summary = format!("{mons} {} {are} {how} on available space", names.join(","));
        let detail = found.iter().map(|(name, percent)| format!("mon.{name} has {percent}% avail")).collect();
        out.insert(code.into(), check(severity, summary, detail));
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
        let detail =
            down_in.iter().map(|&o| format!("osd.{o} ({}) is down", location_text(&map.crush, o))).collect();
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

/// Two codes of shoal's own: `OSD_DEVICE_STALLED`, `OSD_CORE_STALLED`. Stock has warnings of slow devices, whose OSDs go on.
fn stalls(stalls: &BTreeMap<i32, Stall>, out: &mut Checks) {
    let shown = |stall: Duration| format!("{:.1} s", stall.as_secs_f64());
    let device = |(osd, stall): (&i32, &Stall)| {
        let line = || format!("osd.{osd} has a device that has answered nothing for {}", shown(stall.device));
        (!stall.device.is_zero()).then(line)
    };
    let core = |(osd, stall): (&i32, &Stall)| {
        let line = || format!("osd.{osd} has a core that has not run for {}", shown(stall.core));
        (!stall.core.is_zero()).then(line)
    };
    let devices: Vec<String> = stalls.iter().filter_map(device).collect();
    let cores: Vec<String> = stalls.iter().filter_map(core).collect();
    for (code, what, detail) in [
        ("OSD_DEVICE_STALLED", "have a device that does not answer", devices),
        ("OSD_CORE_STALLED", "have a core that does not run", cores),
    ] {
        if !detail.is_empty() {
            let summary = format!("{} osds {what}", detail.len());
            out.insert(code.into(), check(HealthStatus::WARN, summary, detail));
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
            let place = match location_text(crush, subtree.id) {
                place if place.is_empty() => String::new(),
                place => format!(" ({place})"),
            };
            format!("{kind} {name}{place} ({} osds) is down", subtree.osds.len())
        };
        let detail = down.iter().map(line).collect();
        out.insert(format!("OSD_{}_DOWN", kind.to_uppercase()), check(HealthStatus::WARN, summary, detail));
    }
}

/// A code of shoal's own: `POOL_MERGES_HELD`. Stock refuses OSDs of old releases by `require_osd_release`.
fn merges_held(state: &State, out: &mut Checks) {
    let map = state.osdmap();
    let shrinking =
        map.pools.iter().filter(|(_, pool)| pool.pg_num_target > 0 && pool.pg_num_target < pool.pg_num);
    let names: Vec<&str> =
        shrinking.map(|(id, _)| map.pool_names.get(id).map_or("?", String::as_str)).collect();
    if names.is_empty() {
        return;
    }
    let Some(why) = obstacle_to_merges(state) else { return };
    let detail = names.iter().map(|name| format!("pool '{name}' keeps its PGs: {why}")).collect();
    let summary = format!("{} pool(s) cannot merge PGs because of OSDs of older builds", names.len());
    out.insert("POOL_MERGES_HELD".into(), check(HealthStatus::WARN, summary, detail));
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
    if options.warn_on_pool_pg_num_not_power_of_two {
        let odd = map.pools.iter().filter(|(_, pool)| !pool.pg_num_target.is_power_of_two());
        let detail: Vec<_> = odd
            .map(|(id, pool)| {
                format!("pool '{}' pg_num {} is not a power of two", name(id), pool.pg_num_target)
            })
            .collect();
        if !detail.is_empty() {
            let summary = format!("{} pool(s) have non-power-of-two pg_num", detail.len());
            out.insert("POOL_PG_NUM_NOT_POWER_OF_TWO".into(), check(HealthStatus::WARN, summary, detail));
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
        // Stock counts the characters of the list, so that a mute ends when a flag comes.
        let count = loud.to_string().len() as i64;
        let check = HealthCheck { count, ..check(HealthStatus::WARN, summary, Vec::new()) };
        out.insert("OSDMAP_FLAGS".into(), check);
    }
}

/// `OSD_FLAGS`: noup, nodown, noin, noout of OSDs, CRUSH buckets and device classes.
fn local_flags(map: &OsdMap, out: &mut Checks) {
    let held = Hold::ALL.iter().fold(0, |all, hold| all | hold.state_bit());
    let line = |what: String, bits: u32| {
        let mut names: Vec<_> = OsdState(bits & held).names().collect();
        names.sort_unstable();
        (!names.is_empty()).then(|| format!("{what} has flags {}", names.join(",")))
    };
    let crush = &map.crush;
    let osds = map.osd_ids().map(|osd| line(format!("osd.{osd}"), map.osds[osd as usize].state.0));
    let buckets = map.crush_node_flags.iter().filter(|(id, _)| crush.bucket(**id).is_some());
    let buckets = buckets.map(|(&id, &bits)| {
        let kind = crate::crush::type_name(crush, crate::crush::kind_of(crush, id));
        line(format!("{kind} {}", crate::crush::name_of(crush, id)), bits)
    });
    let classes = map.device_class_flags.iter().filter_map(|(class, bits)| {
        Some(line(format!("device class '{}'", crush.class_names.get(class)?), *bits))
    });
    let detail: Vec<String> = osds.chain(buckets).chain(classes).flatten().collect();
    if !detail.is_empty() {
        let summary = format!(
            "{} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set",
            detail.len()
        );
        out.insert("OSD_FLAGS".into(), check(HealthStatus::WARN, summary, detail));
    }
}

/// `OSD_ORPHAN`: places in CRUSH whose OSD is gone.
fn orphans(map: &OsdMap, out: &mut Checks) {
    let orphan = |osd: &i32| !map.exists(*osd) && crate::crush::parent_of(&map.crush, *osd).is_some();
    let detail: Vec<String> = (0..map.max_osd())
        .filter(orphan)
        .map(|osd| format!("osd.{osd} exists in crush map but not in osdmap"))
        .collect();
    if !detail.is_empty() {
        let summary = format!("{} osds exist in the crush map but not in the osdmap", detail.len());
        out.insert("OSD_ORPHAN".into(), check(HealthStatus::WARN, summary, detail));
    }
}

/// `OSD_OUT_OF_ORDER_FULL`: OSDs raise a ratio that is below a lesser one.
fn full_ratios(map: &OsdMap, options: &MonOptions, out: &mut Checks) {
    let failsafe = options.osd_failsafe_full_ratio as f32;
    let failsafe = if failsafe > 1.0 { failsafe / 100.0 } else { failsafe };
    let shown = |ratio: f32| command::json::general(f64::from(ratio), 6);
    let mut lower = ("nearfull_ratio", map.nearfull_ratio);
    let mut detail = Vec::new();
    for (name, ratio) in [
        ("backfillfull_ratio", map.backfillfull_ratio),
        ("full_ratio", map.full_ratio),
        ("osd_failsafe_full_ratio", failsafe),
    ] {
        if ratio < lower.1 {
            detail.push(format!("{name} ({}) < {} ({}), increased", shown(ratio), lower.0, shown(lower.1)));
        }
        lower = (name, ratio.max(lower.1));
    }
    if !detail.is_empty() {
        let summary = "full ratio(s) out of order".to_owned();
        let check = HealthCheck { severity: HealthStatus::ERR, summary, detail, count: 0 };
        out.insert("OSD_OUT_OF_ORDER_FULL".into(), check);
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
