//! `ceph mgr …`: the managers, as the monitor knows them.

use super::log::addrs_json;
use super::{Answer, Command, Ctx, Outcome, commands};
use crate::osd_step::{sealed, step_after};
use crate::proposal::Change;
use command::errno::{ENOENT, EPERM};
use command::{Json, object};
use wire::text::{Age, stamp};
use wire::types::{AddrKind, EntityAddr, EntityAddrVec, Epoch, MgrMap, OsdMap, UTime};

pub(super) const COMMANDS: &[Command] = commands! {
    "mgr stat", "say which manager is active", "mgr", "r", stat;
    "mgr dump name=epoch,type=CephInt,range=0,req=false", "show the manager map", "mgr", "r", dump;
    "mgr services", "list the addresses of what managers serve", "mgr", "r", services;
    "mgr versions", "count managers by version", "mgr", "r", versions;
    "mgr metadata name=who,type=CephString,req=false", "show what managers said about themselves", "mgr", "r", metadata;
    "mgr count-metadata name=property,type=CephString", "count managers by a metadata field", "mgr", "r", count_metadata;
    "mgr fail name=who,type=CephString,req=false", "let a standby take the place of a manager", "mgr", "rw", fail;
    "mgr module ls", "list the manager's modules", "mgr", "r", module_ls;
    "mgr module enable name=module,type=CephString name=force,type=CephBool,req=false",
        "enable mgr module", "mgr", "rw", module_enable;
    "mgr module disable name=module,type=CephString", "disable mgr module", "mgr", "rw", module_disable;
};

pub(super) fn summary_json(ctx: &Ctx<'_>) -> Json {
    object! {
        "available" => ctx.state.mgrmap.available,
        "num_standbys" => ctx.state.mgrmap.standbys.len() as u64,
        "modules" => Json::Array(vec![]),
        "services" => services_json(&ctx.state.mgrmap),
    }
}

pub(super) fn summary_plain(ctx: &Ctx<'_>) -> String {
    let map = &ctx.state.mgrmap;
    if map.active_gid == 0 {
        return "no daemons active".into();
    }
    let state = if map.available { "active" } else { "active, starting" };
    let since = match map.active_change {
        UTime::ZERO => String::new(),
        at => format!(", since {}", Age::between(at, ctx.now)),
    };
    let standbys: Vec<&str> = map.standbys.values().map(|standby| standby.name.as_str()).collect();
    let standbys =
        if standbys.is_empty() { String::new() } else { format!(", standbys: {}", standbys.join(", ")) };
    format!("{}({state}{since}){standbys}", map.active_name)
}

/// The next map, in which the active manager is gone and the first that waits takes its place. `osd_epoch` is the epoch of the OSDMap
/// that [`fence`] makes.
pub(crate) fn without_active(map: &MgrMap, now: UTime, osd_epoch: Epoch) -> MgrMap {
    let mut standbys = map.standbys.clone();
    let (active_gid, next) = standbys.pop_first().unwrap_or_default();
    MgrMap {
        epoch: map.epoch + 1,
        active_gid,
        active_name: next.name,
        active_features: next.features,
        active_addrs: Default::default(),
        available: false,
        active_change: now,
        standbys,
        services: Default::default(),
        clients: Vec::new(),
        last_failure_osd_epoch: osd_epoch,
        ..map.clone()
    }
}

/// Puts the active manager and its clients on the blocklist for so many seconds, but for addresses in `living`. Watches of the clients
/// end at once, and their locks can be broken. The change of the OSDMap, and its epoch; without an address that counts there is no
/// change. Facts: `MgrMonitor::drop_active`.
pub(crate) fn fence(
    map: &MgrMap,
    living: &[EntityAddrVec],
    osdmap: &OsdMap,
    now: UTime,
    seconds: f64,
) -> (Option<Change>, Epoch) {
    let lives = |addr: &EntityAddr| living.iter().any(|addrs| addrs.0.contains(addr));
    let all = [&map.active_addrs].into_iter().chain(map.clients.iter().map(|(_, addrs)| addrs));
    let gone = all.flat_map(|addrs| &addrs.0).filter(|addr| addr.socket.is_some() && !lives(addr));
    let until = UTime::from_nanos(now.as_nanos().saturating_add((seconds.max(0.0) * 1e9) as u64));
    let mut step = step_after(osdmap, now);
    // A client is the same whatever protocol it speaks.
    step.new_blocklist = gone.map(|addr| (EntityAddr { kind: AddrKind::ANY, ..*addr }, until)).collect();
    if step.new_blocklist.is_empty() {
        return (None, osdmap.epoch);
    }
    match sealed(step, osdmap) {
        None => (None, osdmap.epoch),
        change => (change, osdmap.epoch + 1),
    }
}

fn fail(ctx: &mut Ctx<'_>) -> Outcome {
    let map = &ctx.state.mgrmap;
    let who = ctx.args.text("who").unwrap_or_else(|| map.active_name.clone());
    let is_named = |gid: u64, name: &str| name == who || gid.to_string() == who;
    let next = if map.active_gid != 0 && is_named(map.active_gid, &map.active_name) {
        let (change, epoch) =
            fence(map, &[], ctx.state.osdmap(), ctx.now, ctx.options.mgr_blocklist_interval);
        ctx.changes.extend(change);
        without_active(map, ctx.now, epoch)
    } else if let Some(gid) = map.standbys.values().find(|s| is_named(s.gid, &s.name)).map(|s| s.gid) {
        let mut next = MgrMap { epoch: map.epoch + 1, ..map.clone() };
        next.standbys.remove(&gid);
        next
    } else if who.is_empty() {
        return Err(Answer::error(ENOENT, "Currently no active mgr"));
    } else {
        return Ok(Answer::ok(format!("Daemon not found '{who}', already failed?")));
    };
    ctx.changes.push(Change::MgrMap { map: Box::new(next) });
    Ok(Answer::default())
}

fn stat(ctx: &mut Ctx<'_>) -> Outcome {
    let map = &ctx.state.mgrmap;
    let json = object! {
        "epoch" => map.epoch,
        "available" => map.available,
        "active_name" => map.active_name.as_str(),
        "num_standby" => map.standbys.len() as u64,
    };
    Ok(ctx.show_json(json))
}

fn dump(ctx: &mut Ctx<'_>) -> Outcome {
    let map = &ctx.state.mgrmap;
    let standbys = map.standbys.iter().map(|(gid, standby)| {
        object! {
            "gid" => *gid,
            "name" => standby.name.as_str(),
            "mgr_features" => standby.features,
            "available_modules" => Json::Array(vec![]),
        }
    });
    let clients = map.clients.iter().map(|(name, addrs)| {
        let mut json = addrs_json(addrs);
        json.push("name", name.as_str());
        json
    });
    // A manager of shoal's has no modules, and none can be switched on.
    let none = || Json::Array(vec![]);
    let json = object! {
        "epoch" => map.epoch,
        "flags" => map.flags,
        "active_gid" => map.active_gid,
        "active_name" => map.active_name.as_str(),
        "active_addrs" => addrs_json(&map.active_addrs),
        "active_addr" => map.active_addrs.0.first().map_or_else(|| ":/0".into(), |a| a.plain().to_string()),
        "active_change" => stamp(map.active_change),
        "active_mgr_features" => map.active_features,
        "available" => map.available,
        "standbys" => Json::array(standbys),
        "modules" => none(),
        "available_modules" => none(),
        "services" => services_json(map),
        "always_on_modules" => object! {},
        "force_disabled_modules" => object! {},
        "last_failure_osd_epoch" => map.last_failure_osd_epoch,
        "active_clients" => Json::array(clients),
    };
    Ok(ctx.show_json(json))
}

fn services_json(map: &MgrMap) -> Json {
    Json::strings(&map.services)
}

fn services(ctx: &mut Ctx<'_>) -> Outcome {
    let services = services_json(&ctx.state.mgrmap);
    Ok(ctx.show_json(services))
}

fn module_ls(ctx: &mut Ctx<'_>) -> Outcome {
    let json = object! {
        "always_on_modules" => Json::Array(vec![]),
        "force_disabled_modules" => Json::Array(vec![]),
        "enabled_modules" => Json::Array(vec![]),
        "disabled_modules" => Json::Array(vec![]),
    };
    Ok(ctx.show(|| json, || "MODULE  \n".to_owned()))
}

/// Modules of stock whose work is a fixed part of shoal's manager.
const BUILT_IN: [&str; 6] = ["balancer", "crash", "pg_autoscaler", "progress", "prometheus", "status"];

fn module_enable(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("module")?;
    if BUILT_IN.contains(&name.as_str()) {
        return Ok(Answer::ok(format!("module '{name}' is already enabled (always-on)")));
    }
    let text = format!("all mgr daemons do not support module '{name}', pass --force to force enablement");
    Err(Answer::error(ENOENT, text))
}

fn module_disable(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("module")?;
    if BUILT_IN.contains(&name.as_str()) {
        return Err(Answer::error(
            EPERM,
            format!(
                "module '{name}' cannot be disabled (always-on), use 'ceph mgr module force disable' command to disable an \
                 always-on module"
            ),
        ));
    }
    Ok(Answer::ok(format!("module '{name}' is already disabled")))
}

fn versions(ctx: &mut Ctx<'_>) -> Outcome {
    let json = super::count_by(ctx.state.mgr_metadata.values(), "ceph_version");
    Ok(ctx.show_json(json))
}

fn count_metadata(ctx: &mut Ctx<'_>) -> Outcome {
    let property = ctx.args.required("property")?;
    let json = super::count_by(ctx.state.mgr_metadata.values(), &property);
    Ok(ctx.show_json(json))
}

fn metadata(ctx: &mut Ctx<'_>) -> Outcome {
    let one = |name: &str, fields: &std::collections::BTreeMap<String, String>| {
        let mut json = object! { "name" => name };
        fields.iter().for_each(|(key, value)| json.push(key.clone(), value.as_str()));
        json
    };
    if let Some(who) = ctx.args.text("who") {
        let missing = || Answer::error(ENOENT, format!("mgr.{who} does not exist"));
        let fields = ctx.state.mgr_metadata.get(&who).ok_or_else(missing)?;
        return Ok(ctx.show_json(one(&who, fields)));
    }
    let json = Json::array(ctx.state.mgr_metadata.iter().map(|(name, fields)| one(name, fields)));
    Ok(ctx.show_json(json))
}
