//! `ceph osd …`: the OSDs and their map. CRUSH, pools and placement groups have files of their own.

mod compression;
pub(super) mod crush;
pub(super) mod device_classes;
pub(super) mod dump;
pub(super) mod exceptions;
pub(super) mod hold_flags;
mod lifecycle;
pub(super) mod lockbox;
pub(super) mod pg;
pub(crate) mod pool;
mod pool_app;
pub(crate) mod pool_create;
mod pool_pg_num;
pub(crate) mod pool_snap;
mod tree;
pub(super) mod weight_sets;

use super::{Answer, Command, Ctx, Outcome, commands};
use crate::osd_step::{mark_down, sealed, step_after};
use crate::proposal::Change;
use crate::state::State;
use codec::Encode;
use command::errno::{EINVAL, ENOENT, EPERM};
use command::{Args, Json, object, parse_osd};
use placement::spread::Spread;
use std::collections::BTreeMap;
use std::fmt::Write;
use wire::types::osd_map::MapFlags;
use wire::types::{EntityAddr, OsdMap, OsdMapIncremental, OsdState, Release, UTime};

pub(super) const COMMANDS: &[Command] = commands! {
    "osd stat", "say how many OSDs are up and in", "osd", "r", stat;
    "osd dump name=epoch,type=CephInt,range=0,req=false", "show the OSDMap", "osd", "r", dump::dump;
    "osd ls name=epoch,type=CephInt,range=0,req=false", "list the OSDs there are", "osd", "r", ls;
    "osd tree name=epoch,type=CephInt,range=0,req=false name=states,type=CephChoices,strings=up|down|in|out|destroyed,n=N,req=false",
        "show the CRUSH hierarchy with the OSDs' state", "osd", "r", tree::tree;
    "osd tree-from name=epoch,type=CephInt,range=0,req=false name=bucket,type=CephString name=states,type=CephChoices,strings=up|down|in|out|destroyed,n=N,req=false",
        "show the CRUSH hierarchy below a bucket", "osd", "r", tree::tree_from;
    "osd ls-tree name=epoch,type=CephInt,range=0,req=false name=name,type=CephString,req=true",
        "list the OSDs below a bucket", "osd", "r", tree::ls_tree;
    "osd getmap name=epoch,type=CephInt,range=0,req=false", "write the OSDMap as bytes", "osd", "r", getmap;
    "osd getcrushmap name=epoch,type=CephInt,range=0,req=false", "write the CRUSH map as bytes", "osd", "r", getcrushmap;
    "osd setcrushmap name=prior_version,type=CephInt,req=false", "take the CRUSH map given with -i", "osd", "rw", crush::set_map;
    "osd getmaxosd", "show how many OSDs the map has room for", "osd", "r", getmaxosd;
    "osd setmaxosd name=newmax,type=CephInt,range=0", "make room in the map for OSDs", "osd", "rw", setmaxosd;
    "osd find name=id,type=CephOsdName", "say where an OSD is", "osd", "r", find;
    "osd metadata name=id,type=CephOsdName,req=false", "show what OSDs said about themselves", "osd", "r", metadata;
    "osd count-metadata name=property,type=CephString", "count OSDs by a metadata field", "osd", "r", count_metadata;
    "osd numa-status", "show NUMA status of OSDs", "osd", "r", numa_status;
    "osd last-stat-seq name=id,type=CephOsdName", "get the last pg stats sequence number reported for this osd", "osd", "r", last_stat_seq;
    "osd versions", "count OSDs by version", "osd", "r", versions;
    "osd set name=key,type=CephChoices,strings=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit|noautoscale name=yes_i_really_mean_it,type=CephBool,req=false",
        "set a flag of the cluster", "osd", "rw", set;
    "osd unset name=key,type=CephChoices,strings=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|noautoscale",
        "clear a flag of the cluster", "osd", "rw", unset;
    "osd pause", "stop reads and writes", "osd", "rw", pause;
    "osd unpause", "allow reads and writes", "osd", "rw", unpause;
    "osd in name=ids,type=CephString,n=N", "give OSDs data", "osd", "rw", mark_in;
    "osd out name=ids,type=CephString,n=N", "take data away from OSDs", "osd", "rw", mark_out;
    "osd down name=ids,type=CephString,n=N name=definitely_dead,type=CephBool,req=false",
        "mark OSDs down", "osd", "rw", down;
    "osd stop name=ids,type=CephString,n=N", "stop OSDs for good", "osd", "rw", stop;
    "osd reweight name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0|1.0",
        "set the share of its data that an OSD takes", "osd", "rw", reweight;
    "osd reweightn name=weights,type=CephString",
        "set the shares of several OSDs, as {'0': '32768', '1': '65536'}", "osd", "rw", reweightn;
    "osd info name=id,type=CephOsdName,req=false", "show the map's rows of OSDs", "osd", "r", dump::info;
    "osd primary-affinity name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0|1.0",
        "set how often an OSD is primary", "osd", "rw", primary_affinity;
    "osd new name=uuid,type=CephUUID name=id,type=CephOsdName,req=false",
        "make an OSD; its keys come with -i", "osd", "rw", lifecycle::new;
    "osd create name=uuid,type=CephUUID,req=false name=id,type=CephOsdName,req=false",
        "make an OSD", "osd", "rw", lifecycle::create;
    "osd rm name=ids,type=CephString,n=N", "remove OSDs that are down", "osd", "rw", lifecycle::rm;
    "osd destroy-actual name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "forget an OSD's keys and identity, keep its number", "osd", "rw", lifecycle::destroy;
    "osd purge-actual name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "remove all traces of an OSD", "osd", "rw", lifecycle::purge;
    "osd purge-new name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "purge all traces of an OSD that was partially created but never started", "osd", "rw", lifecycle::purge_new;
    "osd lost name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "declare an OSD's data lost", "osd", "rw", lifecycle::lost;
    "osd blocklist name=range,type=CephString,goodchars=[range],req=false name=blocklistop,type=CephChoices,strings=add|rm name=addr,type=CephEntityAddr name=expire,type=CephFloat,range=0.0,req=false",
        "keep an address out for a while, or let it in again", "osd", "rw", blocklist;
    "osd blocklist ls", "list addresses that are kept out", "osd", "r", blocklist_ls;
    "osd blocklist clear", "let all addresses in again", "osd", "rw", blocklist_clear;
    "osd blacklist name=blacklistop,type=CephChoices,strings=add|rm name=addr,type=CephEntityAddr name=expire,type=CephFloat,range=0.0,req=false",
        "add (optionally until <expire> seconds from now) or remove <addr> from blacklist", "osd", "rw", blocklist, Command::DEPRECATED;
    "osd blacklist ls", "show blacklisted clients", "osd", "r", blocklist_ls, Command::DEPRECATED;
    "osd blacklist clear", "clear all blacklisted clients", "osd", "rw", blocklist_clear, Command::DEPRECATED;
    "osd set-full-ratio name=ratio,type=CephFloat,range=0.0|1.0", "say when an OSD is full", "osd", "rw", set_full_ratio;
    "osd set-backfillfull-ratio name=ratio,type=CephFloat,range=0.0|1.0", "say when an OSD is too full for backfill", "osd", "rw", set_backfillfull_ratio;
    "osd set-nearfull-ratio name=ratio,type=CephFloat,range=0.0|1.0", "say when an OSD is nearly full", "osd", "rw", set_nearfull_ratio;
    "osd get-require-min-compat-client", "show the oldest client release that may be served", "osd", "r", get_min_client;
    "osd set-require-min-compat-client name=version,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "set the oldest client release that may be served", "osd", "rw", set_min_client;
    "osd require-osd-release name=release,type=CephChoices,strings=octopus|pacific|quincy|reef|squid|tentacle name=yes_i_really_mean_it,type=CephBool,req=false",
        "set the oldest OSD release that may join", "osd", "rw", require_release;
    "osd erasure-code-profile ls", "list erasure code profiles", "osd", "r", profile_ls;
    "osd erasure-code-profile get name=name,type=CephString", "show an erasure code profile", "osd", "r", profile_get;
    "osd utilization", "say how evenly placement groups are spread", "osd", "r", utilization;
};

/// An OSD's device class.
pub(super) fn device_class(map: &OsdMap, osd: i32) -> Option<&str> {
    crate::crush::class_of(&map.crush, osd)
}

/// The step that a command makes; it becomes a change when it changes something.
fn step(ctx: &Ctx<'_>) -> OsdMapIncremental {
    step_after(ctx.state.osdmap(), ctx.now)
}

fn propose(ctx: &mut Ctx<'_>, step: OsdMapIncremental) -> Result<(), Answer> {
    let change = sealed(step, ctx.state.osdmap());
    ctx.changes.push(change.ok_or_else(|| Answer::invalid("the change does not fit the map"))?);
    Ok(())
}

/// The map of the epoch asked for, or the newest.
fn map_at(ctx: &Ctx<'_>) -> Result<std::sync::Arc<OsdMap>, Answer> {
    match ctx.args.int("epoch") {
        None | Some(0) => Ok(ctx.state.osd.shared_map()),
        Some(epoch) => {
            let found = u32::try_from(epoch).ok().and_then(|e| ctx.state.osd.at(e));
            found.ok_or_else(|| Answer::error(ENOENT, format!("there is no map for epoch {epoch}")))
        }
    }
}

fn stat(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    let plain = || super::cluster::osd_summary_plain(map, ctx.now, "", true);
    Ok(ctx.show(|| super::cluster::osd_summary_json(map), plain))
}

fn ls(ctx: &mut Ctx<'_>) -> Outcome {
    let map = map_at(ctx)?;
    Ok(ctx.show(|| Json::array(map.osd_ids()), || map.osd_ids().map(|osd| format!("{osd}\n")).collect()))
}

fn getmap(ctx: &mut Ctx<'_>) -> Outcome {
    let map = map_at(ctx)?;
    let bytes = map.to_vec(map.features_for(ctx.caller_features));
    Ok(Answer::body(bytes).with_status(format!("got osdmap epoch {}", map.epoch)))
}

fn getcrushmap(ctx: &mut Ctx<'_>) -> Outcome {
    let map = map_at(ctx)?;
    Ok(Answer::body(map.crush.to_vec(map.features_for(ctx.caller_features)))
        .with_status(map.crush_version.to_string()))
}

fn getmaxosd(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    let json = || object! { "epoch" => map.epoch, "max_osd" => map.max_osd() };
    Ok(ctx.show(json, || format!("max_osd = {} in epoch {}", map.max_osd(), map.epoch)))
}

fn setmaxosd(ctx: &mut Ctx<'_>) -> Outcome {
    const MAX: i64 = 10_000;
    let wanted = ctx.args.int("newmax").unwrap_or(0);
    let map = ctx.state.osdmap();
    if wanted > MAX {
        let text = format!("cannot set max_osd to {wanted} which is > conf.mon_max_osd ({MAX})");
        return Err(Answer::error(command::errno::ERANGE, text));
    }
    let highest = map.osd_ids().last().map_or(0, |osd| i64::from(osd) + 1);
    if wanted < highest {
        let text = format!(
            "cannot shrink max_osd to {wanted} because osd.{} (and possibly others) still in use",
            highest - 1
        );
        return Err(Answer::error(command::errno::EBUSY, text));
    }
    let mut step = step(ctx);
    step.new_max_osd = Some(wanted as i32);
    propose(ctx, step)?;
    Ok(Answer::ok(format!("set new max_osd = {wanted}")))
}

/// An OSD that exists, or the answer that it does not.
fn existing(ctx: &Ctx<'_>, argument: &str) -> Result<i32, Answer> {
    let osd = ctx.args.osd(argument)?.0;
    if ctx.state.osdmap().exists(osd) {
        Ok(osd)
    } else {
        Err(Answer::error(ENOENT, format!("osd.{osd} does not exist")))
    }
}

fn find(ctx: &mut Ctx<'_>) -> Outcome {
    let osd = existing(ctx, "id")?;
    let map = ctx.state.osdmap();
    let row = &map.osds[osd as usize];
    let mut json = object! {
        "osd" => osd,
        "addrs" => super::log::addrs_json(&row.addrs.client),
        "osd_fsid" => row.uuid.to_string(),
    };
    let said = ctx.state.osd.metadata.get(&osd);
    for (key, field) in [
        ("host", "hostname"),
        ("pod_name", "pod_name"),
        ("pod_namespace", "pod_namespace"),
        ("container_name", "container_hostname"),
    ] {
        if let Some(value) = said.and_then(|m| m.get(field)).filter(|v| !v.is_empty()) {
            json.push(key, value.as_str());
        }
    }
    let mut location: Vec<_> = crate::crush::location(&map.crush, osd);
    location.sort();
    let pairs = location.into_iter().map(|(kind, name)| (kind.into(), name.into()));
    json.push("crush_location", Json::Object(pairs.collect()));
    Ok(ctx.show_json(json))
}

pub(super) fn metadata_json(state: &State) -> Vec<Json> {
    let known = state.osdmap().osd_ids().filter_map(|osd| Some((osd, state.osd.metadata.get(&osd)?)));
    known.map(|(osd, fields)| one_metadata(osd, fields)).collect()
}

fn one_metadata(osd: i32, fields: &BTreeMap<String, String>) -> Json {
    let mut json = object! { "id" => osd };
    fields.iter().for_each(|(key, value)| json.push(key.clone(), value.as_str()));
    json
}

fn metadata(ctx: &mut Ctx<'_>) -> Outcome {
    if ctx.args.get("id").is_none() {
        let json = Json::Array(metadata_json(ctx.state));
        return Ok(ctx.show_json(json));
    }
    let osd = existing(ctx, "id")?;
    let fields = ctx.state.osd.metadata.get(&osd);
    let fields =
        fields.ok_or_else(|| Answer::error(ENOENT, format!("failed to get metadata for osd.{osd}")))?;
    Ok(ctx.show_json(one_metadata(osd, fields)))
}

fn count_metadata(ctx: &mut Ctx<'_>) -> Outcome {
    let property = ctx.args.required("property")?;
    let json = super::count_by(ctx.state.osd.metadata.values(), &property);
    Ok(ctx.show_json(json))
}

fn versions(ctx: &mut Ctx<'_>) -> Outcome {
    let json = super::count_by(ctx.state.osd.metadata.values(), "ceph_version");
    Ok(ctx.show_json(json))
}

/// The sequence number of an OSD's newest statistics that the manager has told; nothing where a format is asked for.
fn last_stat_seq(ctx: &mut Ctx<'_>) -> Outcome {
    let osd = ctx.args.osd("id")?.0;
    let known = &ctx.reports.digest.osd_last_seq;
    let seq = usize::try_from(osd).ok().and_then(|osd| known.get(osd).copied()).unwrap_or(0);
    Ok(match ctx.args.format().is_plain() {
        true => Answer::body(seq.to_string()),
        false => Answer::default(),
    })
}

/// The NUMA nodes of each OSD's network, devices and threads, as far as the OSD has told them.
fn numa_status(ctx: &mut Ctx<'_>) -> Outcome {
    const NODES: [&str; 3] = ["network_numa_node", "objectstore_numa_node", "numa_node"];
    let known = ctx.state.osdmap().osd_ids().filter_map(|osd| Some((osd, ctx.state.osd.metadata.get(&osd)?)));
    let known: Vec<_> = known.collect();
    let field =
        |said: &BTreeMap<String, String>, name: &str| said.get(name).filter(|v| !v.is_empty()).cloned();
    let json = || {
        Json::array(known.iter().map(|(osd, said)| {
            let mut row = object! { "osd" => *osd, "host" => field(said, "hostname").unwrap_or_default() };
            for name in NODES {
                if let Some(node) = field(said, name).and_then(|text| text.parse::<i64>().ok()) {
                    row.push(name, node);
                }
            }
            row
        }))
    };
    let plain = || {
        use wire::text::Align::{Left, Right};
        let mut table = wire::text::Table::default();
        for (heading, align) in [
            ("OSD", Right),
            ("HOST", Left),
            ("NETWORK", Right),
            ("STORAGE", Right),
            ("AFFINITY", Right),
            ("CPUS", Left),
        ] {
            table.column(heading, align);
        }
        for (osd, said) in &known {
            let mut row = vec![osd.to_string(), field(said, "hostname").unwrap_or_default()];
            row.extend(NODES.map(|name| field(said, name).unwrap_or_else(|| "-".into())));
            row.push(field(said, "numa_node_cpus").unwrap_or_else(|| "-".into()));
            table.row(row);
        }
        table.to_string()
    };
    Ok(ctx.show(json, plain))
}

// ---- flags ----

/// A flag's bits. Fullness is a pool's: the flag `full` is in the signature and unknown here, as in stock.
fn flag_bits(name: &str) -> Option<u32> {
    match name {
        "pause" => Some(MapFlags::PAUSERD | MapFlags::PAUSEWR),
        name => MapFlags::by_name(name),
    }
}

fn change_flags(ctx: &mut Ctx<'_>, bits: u32, on: bool) -> Result<(), Answer> {
    let flags = ctx.state.osdmap().flags.0;
    let wanted = if on { flags | bits } else { flags & !bits };
    let mut step = step(ctx);
    step.new_flags = Some(wanted);
    propose(ctx, step)
}

fn set(ctx: &mut Ctx<'_>) -> Outcome {
    let key = ctx.args.required("key")?;
    let bits = flag_bits(&key).ok_or_else(|| Answer::invalid(format!("unrecognized flag '{key}'")))?;
    change_flags(ctx, bits, true)?;
    let shown = if key == "pause" { "pauserd,pausewr" } else { &key };
    Ok(Answer::ok(format!("{shown} is set")))
}

fn unset(ctx: &mut Ctx<'_>) -> Outcome {
    let key = ctx.args.required("key")?;
    let bits = flag_bits(&key).ok_or_else(|| Answer::invalid(format!("unrecognized flag '{key}'")))?;
    change_flags(ctx, bits, false)?;
    let shown = if key == "pause" { "pauserd,pausewr" } else { &key };
    Ok(Answer::ok(format!("{shown} is unset")))
}

fn pause(ctx: &mut Ctx<'_>) -> Outcome {
    change_flags(ctx, MapFlags::PAUSERD | MapFlags::PAUSEWR, true)?;
    Ok(Answer::ok("pauserd,pausewr is set"))
}

fn unpause(ctx: &mut Ctx<'_>) -> Outcome {
    change_flags(ctx, MapFlags::PAUSERD | MapFlags::PAUSEWR, false)?;
    Ok(Answer::ok("pauserd,pausewr is unset"))
}

// ---- in, out, down ----

/// `0`, `osd.1`, or `all`/`any`/`*` for each that is as `fits` says.
fn wanted_osds(ctx: &Ctx<'_>, fits: impl Fn(i32) -> bool) -> Result<Vec<i32>, Answer> {
    let ids = ctx.args.texts("ids");
    if ids.first().is_some_and(|id| ["all", "any", "*"].contains(&id.as_str())) {
        return Ok(ctx.state.osdmap().osd_ids().filter(|&osd| fits(osd)).collect());
    }
    ids.iter().map(|id| parse_osd(id).map(|osd| osd.0)).collect()
}

/// Runs `change` for each OSD asked for; its text, or why nothing was to be done, goes to the caller.
fn for_each(
    ctx: &mut Ctx<'_>,
    osds: Vec<i32>,
    mut change: impl FnMut(&OsdMap, &mut OsdMapIncremental, i32) -> (bool, String),
) -> Outcome {
    let mut step = step(ctx);
    let (mut any, mut said) = (false, String::new());
    for osd in osds {
        let map = ctx.state.osdmap();
        if !map.exists(osd) {
            let _ = write!(said, "osd.{osd} does not exist. ");
            continue;
        }
        let (changed, text) = change(map, &mut step, osd);
        any |= changed;
        let _ = write!(said, "{text}. ");
    }
    if any {
        propose(ctx, step)?;
    }
    Ok(Answer::ok(said))
}

fn mark_in(ctx: &mut Ctx<'_>) -> Outcome {
    let now = ctx.now;
    let map = ctx.state.osdmap();
    let osds = wanted_osds(ctx, |osd| !map.is_in(osd))?;
    for_each(ctx, osds, |map, step, osd| {
        if map.is_in(osd) {
            return (false, format!("osd.{osd} is already in"));
        }
        let mut xinfo = map.osds[osd as usize].xinfo;
        let weight = if xinfo.old_weight > 0 { xinfo.old_weight } else { OsdMap::WEIGHT_IN };
        xinfo.old_weight = 0;
        step.new_weight.insert(osd, weight);
        step.new_xinfo.insert(osd, xinfo);
        step.new_last_in_change = now;
        (true, format!("marked in osd.{osd}"))
    })
}

fn mark_out(ctx: &mut Ctx<'_>) -> Outcome {
    let now = ctx.now;
    let map = ctx.state.osdmap();
    let osds = wanted_osds(ctx, |osd| map.is_in(osd))?;
    for_each(ctx, osds, |map, step, osd| {
        if !map.is_in(osd) {
            return (false, format!("osd.{osd} is already out"));
        }
        step.new_weight.insert(osd, 0);
        step.new_last_in_change = now;
        (true, format!("marked out osd.{osd}"))
    })
}

fn down(ctx: &mut Ctx<'_>) -> Outcome {
    let now = ctx.now;
    let dead = ctx.args.flag("definitely_dead");
    let map = ctx.state.osdmap();
    let osds = wanted_osds(ctx, |osd| map.is_up(osd))?;
    for_each(ctx, osds, |map, step, osd| {
        if !map.is_up(osd) && !dead {
            return (false, format!("osd.{osd} is already down"));
        }
        if map.is_up(osd) {
            mark_down(map, step, osd, now);
        }
        if dead {
            let xinfo = step.new_xinfo.entry(osd).or_insert(map.osds[osd as usize].xinfo);
            xinfo.dead_epoch = map.epoch;
        }
        (true, format!("marked down osd.{osd}"))
    })
}

fn stop(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    let osds = wanted_osds(ctx, |osd| map.is_up(osd))?;
    for_each(ctx, osds, |map, step, osd| {
        if !map.is_up(osd) {
            return (false, format!("osd.{osd} is already down"));
        }
        if map.osds[osd as usize].state.has(OsdState::STOP) {
            return (false, format!("osd.{osd} is already stopped"));
        }
        step.new_state.insert(osd, OsdState::STOP);
        (true, format!("stop down osd.{osd}"))
    })
}

fn reweight(ctx: &mut Ctx<'_>) -> Outcome {
    let osd = ctx.args.osd("id")?.0;
    let share = ctx.args.float("weight").unwrap_or(1.0);
    if !ctx.state.osdmap().exists(osd) {
        return Err(Answer::error(ENOENT, format!("osd.{osd} does not exist")));
    }
    let weight = (f64::from(OsdMap::WEIGHT_IN) * share) as u32;
    let mut step = step(ctx);
    step.new_weight.insert(osd, weight);
    step.new_last_in_change = ctx.now;
    propose(ctx, step)?;
    let share = command::json::general(share, 6);
    Ok(Answer::ok(format!("reweighted osd.{osd} to {share} ({weight:x})")))
}

/// Shares in 65,536ths, as the manager's `reweight-by-*` plan them.
fn reweightn(ctx: &mut Ctx<'_>) -> Outcome {
    let text = ctx.args.required("weights")?;
    let bad = |errno| Answer::error(errno, format!("unable to parse 'weights' value '{text}'"));
    // JSON with single quotes, since it stands in a string of JSON.
    let weights = Args::parse(&text.replace('\'', "\"")).map_err(|_| bad(EINVAL))?.for_caps();
    let mut new_weights = BTreeMap::new();
    for (osd, weight) in weights {
        let (Ok(osd), Ok(weight)) = (osd.parse::<i32>(), weight.parse::<u32>()) else {
            return Err(bad(EINVAL));
        };
        if !ctx.state.osdmap().exists(osd) {
            return Err(bad(ENOENT));
        }
        new_weights.insert(osd, weight.min(OsdMap::WEIGHT_IN));
    }
    let mut step = step(ctx);
    step.new_weight = new_weights;
    propose(ctx, step)?;
    Ok(Answer::default())
}

fn primary_affinity(ctx: &mut Ctx<'_>) -> Outcome {
    let osd = existing(ctx, "id")?;
    let share = ctx.args.float("weight").unwrap_or(1.0);
    let affinity = (f64::from(OsdMap::DEFAULT_PRIMARY_AFFINITY) * share) as u32;
    let mut step = step(ctx);
    step.new_primary_affinity.insert(osd, affinity);
    propose(ctx, step)?;
    let share = command::json::general(share, 6);
    Ok(Answer::ok(format!("set osd.{osd} primary-affinity to {share} ({affinity})")))
}

// ---- blocklist ----

fn parse_addr(text: &str) -> Option<EntityAddr> {
    let (socket, nonce) = text.split_once('/').unwrap_or((text, "0"));
    let socket = match socket.split_once(':') {
        Some(("v1" | "v2" | "any", rest)) => rest,
        _ => socket,
    };
    let with_port = if socket.contains(':') { socket.to_owned() } else { format!("{socket}:0") };
    let kind = wire::types::AddrKind::ANY;
    Some(EntityAddr { kind, nonce: nonce.parse().ok()?, socket: Some(with_port.parse().ok()?) })
}

/// A network as the map holds it: an address whose nonce is the number of bits that count.
fn parse_network(text: &str) -> Result<EntityAddr, Answer> {
    /// `entity_addr_t::TYPE_CIDR`.
    const CIDR: wire::types::AddrKind = wire::types::AddrKind(4);
    let (ip, bits) = text.split_once('/').unwrap_or((text, "0"));
    let ip = ip.trim_matches(['[', ']']).parse::<std::net::IpAddr>().ok();
    let (Some(ip), Ok(bits)) = (ip, bits.parse::<u32>()) else {
        return Err(Answer::invalid(format!("unable to parse address {text}")));
    };
    let network = EntityAddr { kind: CIDR, nonce: bits, socket: Some((ip, 0).into()) };
    if bits == 0 {
        let shown = network.plain();
        let what = format!("You specified a range command, but v2:{shown} does not parse as a CIDR range");
        return Err(Answer::invalid(what));
    }
    if bits > if ip.is_ipv4() { 32 } else { 128 } {
        return Err(Answer::invalid("Too many bits in range for that protocol!"));
    }
    Ok(network)
}

fn blocklist(ctx: &mut Ctx<'_>) -> Outcome {
    /// An hour.
    const EXPIRE_DEFAULT_S: f64 = 3600.0;
    let text = ctx.args.required("addr")?;
    let is_range = ctx.args.get("range").is_some();
    let addr = match is_range {
        true => parse_network(&text)?,
        false => {
            parse_addr(&text).ok_or_else(|| Answer::invalid(format!("unable to parse address {text}")))?
        }
    };
    let mut step = step(ctx);
    let shown = if is_range { format!("cidr:{}", addr.plain()) } else { addr.plain().to_string() };
    let map = ctx.state.osdmap();
    let (listed, new, old) = match is_range {
        true => (&map.range_blocklist, &mut step.new_range_blocklist, &mut step.old_range_blocklist),
        false => (&map.blocklist, &mut step.new_blocklist, &mut step.old_blocklist),
    };
    let operation = ctx.args.text("blocklistop").or_else(|| ctx.args.text("blacklistop"));
    if operation.as_deref() == Some("rm") {
        if !listed.contains_key(&addr) {
            return Ok(Answer::ok(format!("{shown} isn't blocklisted")));
        }
        old.push(addr);
        propose(ctx, step)?;
        return Ok(Answer::ok(format!("un-blocklisting {shown}")));
    }
    let seconds = ctx.args.float("expire").unwrap_or(EXPIRE_DEFAULT_S).max(0.0);
    let until = UTime::from_nanos(ctx.now.as_nanos() + (seconds * 1e9) as u64);
    new.insert(addr, until);
    propose(ctx, step)?;
    let until = wire::text::stamp(until);
    let seconds = command::json::general(seconds, 6);
    Ok(Answer::ok(format!("blocklisting {shown} until {until} ({seconds} sec)")))
}

fn blocklist_ls(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    let one = |(addr, until): (&EntityAddr, &UTime)| (addr.plain().to_string(), wire::text::stamp(*until));
    let hosts = || map.blocklist.iter().map(one);
    let networks = || map.range_blocklist.iter().map(one);
    let json = || {
        let hosts = hosts().map(|(addr, until)| object! { "addr" => addr, "until" => until });
        let networks = networks().map(|(range, until)| object! { "range" => range, "until" => until });
        Json::array(hosts.chain(networks))
    };
    let plain = || {
        let hosts = hosts().map(|(addr, until)| format!("{addr} {until}\n"));
        hosts.chain(networks().map(|(range, until)| format!("cidr:{range} {until}\n"))).collect()
    };
    let count = map.blocklist.len() + map.range_blocklist.len();
    Ok(ctx.show(json, plain).with_status(format!("listed {count} entries")))
}

fn blocklist_clear(ctx: &mut Ctx<'_>) -> Outcome {
    let mut step = step(ctx);
    step.old_blocklist = ctx.state.osdmap().blocklist.keys().copied().collect();
    step.old_range_blocklist = ctx.state.osdmap().range_blocklist.keys().copied().collect();
    if !step.old_blocklist.is_empty() || !step.old_range_blocklist.is_empty() {
        propose(ctx, step)?;
    }
    Ok(Answer::ok(" removed all blocklist entries"))
}

// ---- ratios, releases, profiles ----

fn set_ratio(ctx: &mut Ctx<'_>, what: &str, place: impl FnOnce(&mut OsdMapIncremental, f32)) -> Outcome {
    let ratio = ctx.args.float("ratio").unwrap_or(0.0);
    let mut step = step(ctx);
    place(&mut step, ratio as f32);
    propose(ctx, step)?;
    Ok(Answer::ok(format!("osd set-{what}-ratio {}", command::json::general(ratio, 6))))
}

fn set_full_ratio(ctx: &mut Ctx<'_>) -> Outcome {
    set_ratio(ctx, "full", |step, ratio| step.new_full_ratio = Some(ratio))
}

fn set_backfillfull_ratio(ctx: &mut Ctx<'_>) -> Outcome {
    set_ratio(ctx, "backfillfull", |step, ratio| step.new_backfillfull_ratio = Some(ratio))
}

fn set_nearfull_ratio(ctx: &mut Ctx<'_>) -> Outcome {
    set_ratio(ctx, "nearfull", |step, ratio| step.new_nearfull_ratio = Some(ratio))
}

fn get_min_client(ctx: &mut Ctx<'_>) -> Outcome {
    let release = ctx.state.osdmap().require_min_compat_client;
    // The bare word in every format.
    Ok(Answer::body(format!("{release}\n")))
}

fn set_min_client(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("version")?;
    let release = Release::from_name(&name)
        .ok_or_else(|| Answer::invalid(format!("version {name} is not recognized")))?;
    let mut step = step(ctx);
    step.new_require_min_compat_client = Some(release);
    propose(ctx, step)?;
    Ok(Answer::ok(format!("set require_min_compat_client to {release}")))
}

fn require_release(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("release")?;
    let release =
        Release::from_name(&name).ok_or_else(|| Answer::invalid(format!("unrecognized release {name}")))?;
    let now = ctx.state.osdmap().require_osd_release;
    if release < now {
        return Err(Answer::error(EPERM, "require_osd_release cannot be lowered once it has been set"));
    }
    if release == now {
        return Ok(Answer::default());
    }
    let mut step = step(ctx);
    step.new_require_osd_release = Some(release);
    propose(ctx, step)?;
    Ok(Answer::default())
}

fn profile_ls(ctx: &mut Ctx<'_>) -> Outcome {
    let names = || ctx.state.osdmap().erasure_code_profiles.keys();
    Ok(ctx.show(
        || Json::array(names().map(String::as_str)),
        || names().map(|name| format!("{name}\n")).collect(),
    ))
}

fn profile_get(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let profile = ctx.state.osdmap().erasure_code_profiles.get(&name);
    let profile =
        profile.ok_or_else(|| Answer::error(ENOENT, format!("unknown erasure code profile '{name}'")))?;
    Ok(ctx.show(
        || Json::strings(profile),
        || profile.iter().map(|(key, value)| format!("{key}={value}\n")).collect(),
    ))
}

fn utilization(ctx: &mut Ctx<'_>) -> Outcome {
    let Spread { mean, deviation, deviation_expected, fewest, most, .. } =
        Spread::of(ctx.state.osdmap(), &|_| true);
    let extremes = [("min", fewest), ("max", most)];
    let extremes = || extremes.into_iter().filter_map(|(what, osd)| Some((what, osd?)));
    let g = |value: f32| command::json::general(value.into(), 6);
    let plain = || {
        let mut text = format!(
            "avg {}\nstddev {} (expected baseline {})\n",
            g(mean),
            g(deviation),
            g(deviation_expected)
        );
        for (what, (osd, copies)) in extremes() {
            let times = if mean > 0.0 { copies as f32 / mean } else { 0.0 };
            let _ = writeln!(text, "{what} osd.{osd} with {copies} pgs ({} * mean)", g(times));
        }
        text
    };
    let json = || {
        let mut json = object! {
            "avg_pgs" => f64::from(mean),
            "std_dev" => f64::from(deviation),
            "expected_baseline_std_dev" => f64::from(deviation_expected),
        };
        for (what, (osd, copies)) in extremes() {
            json.push(format!("{what}_osd"), osd);
            json.push(format!("{what}_osd_pgs"), copies);
        }
        json
    };
    Ok(ctx.show(json, plain))
}

/// Changes of the map that a caller outside the command table makes.
pub(crate) fn change_of(step: OsdMapIncremental, state: &State) -> Result<Change, Answer> {
    sealed(step, state.osdmap()).ok_or_else(|| Answer::error(EINVAL, "the change does not fit the map"))
}
