//! `ceph mon add`, `mon rm` and their kin: changes of the monitor map. The leader makes the members of the log follow the map
//! ([`crate::monitor`]): a monitor that was added counts when it has come and has caught up, never before.

use super::osd::lockbox;
use super::{Answer, Command, Ctx, Outcome, commands};
use crate::auth_policy;
use crate::proposal::Change;
use command::errno::{EBUSY, EEXIST, ENOENT};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, MonInfo, MonMap, Uuid};

pub(super) const COMMANDS: &[Command] = commands! {
    "mon add name=name,type=CephString name=addr,type=CephIPAddr name=location,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=],req=false",
        "add a monitor to the map; it takes part when it has started", "mon", "rw", add;
    "mon rm name=name,type=CephString", "take a monitor out of the cluster", "mon", "rw", rm;
    "mon remove name=name,type=CephString", "take a monitor out of the cluster", "mon", "rw", rm, Command::DEPRECATED;
    "mon ok-to-add-offline", "say whether a monitor could be added before it has started", "mon", "r", ok_to_add_offline;
    "mon ok-to-rm name=id,type=CephString", "say whether a monitor could be taken out with a quorum left", "mon", "r", ok_to_rm;
    "mon set-rank name=name,type=CephString name=rank,type=CephInt", "give a monitor another rank", "mon", "rw", set_rank;
    "mon set-weight name=name,type=CephString name=weight,type=CephInt,range=0|65535",
        "set how often clients choose a monitor", "mon", "rw", set_weight;
    "mon set-addrs name=name,type=CephString name=addrs,type=CephString", "set the addresses of a monitor", "mon", "rw", set_addrs;
    "mon set name=name,type=CephChoices,strings=auth_service_cipher|auth_allowed_ciphers|auth_preferred_cipher \
     name=value,type=CephString",
        "choose the ciphers of keys and tickets", "mon", "rw", set;
    "mon set_location name=name,type=CephString name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "set the CRUSH location of a monitor", "mon", "rw", set_location;
};

const PORT: u16 = 3300;
/// Of the messenger's first version, which shoal does not speak.
const OLD_PORT: u16 = 6789;

/// The monitor's entry and the next map, in which to change it.
fn wanted(ctx: &Ctx<'_>, name: &str, missing: &str) -> Result<MonMap, Answer> {
    let next = next_map(ctx);
    if next.mons.contains_key(name) {
        Ok(next)
    } else {
        Err(Answer::error(ENOENT, format!("mon.{name} {missing}")))
    }
}

fn next_map(ctx: &Ctx<'_>) -> MonMap {
    crate::mon_map::next_map(&ctx.state.monmap, ctx.now)
}

fn propose(ctx: &mut Ctx<'_>, map: MonMap, status: impl Into<String>) -> Outcome {
    ctx.changes.push(Change::MonMap { map });
    Ok(Answer::ok(status))
}

/// `10.1.0.3`, or with a port.
fn parse_addr(text: &str) -> Result<EntityAddrVec, Answer> {
    let ip = |text: &str| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    let addr = text.parse::<SocketAddr>().or_else(|_| ip(text));
    let addr =
        addr.map_err(|_| Answer::invalid(format!("'{text}' is no IP address, with or without a port")))?;
    if addr.port() == OLD_PORT {
        let text = format!(
            "port {OLD_PORT} is that of msgr v1, which shoal does not speak: leave it out, for {PORT}"
        );
        return Err(Answer::invalid(text));
    }
    Ok(EntityAddrVec::one(EntityAddr::msgr2(addr, 0)))
}

/// `[v2:10.1.0.3:3300/0,v1:10.1.0.3:6789/0]` or `v2:10.1.0.3:3300`. Addresses of msgr v1 are left out.
fn parse_addrs(text: &str) -> Option<EntityAddrVec> {
    let list = text.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(text);
    let mut addrs = Vec::new();
    for item in list.split(',').filter(|item| !item.starts_with("v1:")) {
        let plain = item.strip_prefix("v2:").unwrap_or(item);
        let plain = plain.split_once('/').map_or(plain, |(addr, _nonce)| addr);
        addrs.push(EntityAddr::msgr2(plain.parse().ok()?, 0));
    }
    (!addrs.is_empty()).then_some(EntityAddrVec(addrs))
}

fn parse_location(ctx: &Ctx<'_>, name: &str) -> Result<BTreeMap<String, String>, Answer> {
    let pairs = ctx.args.texts(name).into_iter().map(|text| match text.split_once('=') {
        Some((kind, bucket)) if !kind.is_empty() && !bucket.is_empty() => {
            Ok((kind.to_owned(), bucket.to_owned()))
        }
        _ => Err(Answer::invalid(format!("'{text}' is no location: it is a type and a name, as in rack=r1"))),
    });
    pairs.collect()
}

/// The monitor that has one of these addresses.
fn holder<'a>(map: &'a MonMap, addrs: &EntityAddrVec) -> Option<&'a MonInfo> {
    let sockets = |addrs: &EntityAddrVec| addrs.0.iter().filter_map(|addr| addr.socket).collect::<Vec<_>>();
    let wanted = sockets(addrs);
    map.mons.values().find(|mon| sockets(&mon.addrs).iter().any(|socket| wanted.contains(socket)))
}

fn add(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let addrs = parse_addr(&ctx.args.required("addr")?)?;
    let crush_location = parse_location(ctx, "location")?;
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(Answer::invalid("a monitor's name has no spaces and no slashes"));
    }
    let mut next = next_map(ctx);
    if ctx.state.members.is_leaving(&name) {
        return Err(Answer::error(EBUSY, format!("mon.{name} is being removed; try again")));
    }
    let known = next.mons.get(&name);
    if known.is_some_and(|mon| mon.addrs == addrs) {
        return Ok(Answer::ok(format!("mon.{name} at {addrs} already exists")));
    }
    if let Some(mon) = known.or_else(|| holder(&next, &addrs)) {
        return Err(Answer::error(
            EEXIST,
            format!("mon.{} already exists at address {}", mon.name, mon.addrs),
        ));
    }
    let status = format!("adding mon.{name} at {addrs}");
    let info =
        MonInfo { name: name.clone(), addrs, crush_location, time_added: ctx.now, ..MonInfo::default() };
    next.mons.insert(name.clone(), info);
    next.ranks.push(name);
    propose(ctx, next, status)
}

/// Of the monitors with a vote that stay when this one goes: how many take part, and how many there are.
fn without(ctx: &Ctx<'_>, rank: usize) -> (usize, usize) {
    let map = &ctx.state.monmap;
    let stays = |other: &usize| {
        *other != rank && map.ranks.get(*other).is_some_and(|name| !ctx.state.members.is_leaving(name))
    };
    let others = |ranks: &[usize]| ranks.iter().filter(|other| stays(other)).count();
    (others(&ctx.situation.quorum), others(&ctx.situation.voters))
}

fn rm(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let (map, members) = (&ctx.state.monmap, &ctx.state.members);
    let (Some(mon), Some(rank), false) = (map.mons.get(&name), map.rank_of(&name), members.is_leaving(&name))
    else {
        return Ok(Answer::ok(format!("mon.{name} does not exist or has already been removed")));
    };
    let left = map.mons.keys().filter(|other| **other != name && !members.is_leaving(other)).count();
    if left == 0 {
        return Err(Answer::invalid(format!("error: refusing removal of last monitor {name}")));
    }
    let (active, voters) = without(ctx, rank);
    if active <= voters / 2 {
        let text = format!(
            "without mon.{name} only {active} of {voters} monitors would take part, which is no majority: start the others first, or \
             remove those that are gone"
        );
        return Err(Answer::error(EBUSY, text));
    }
    let status = format!("removing mon.{name} at {}, there will be {left} monitors", mon.addrs);
    let has_come = members.get(&name).is_some_and(|member| member.disk != Uuid::default());
    ctx.changes.push(match has_come || ctx.situation.voters.contains(&rank) {
        true => Change::MonLeaving { name },
        false => Change::MonMap { map: crate::mon_map::without_monitor(map, &name, ctx.now) },
    });
    Ok(Answer::ok(status))
}

/// A monitor that has not come has no vote, so it is never waited for.
fn ok_to_add_offline(_: &mut Ctx<'_>) -> Outcome {
    Ok(Answer::ok("adding another mon that is not yet online will not break quorum"))
}

fn ok_to_rm(ctx: &mut Ctx<'_>) -> Outcome {
    let id = ctx.args.required("id")?;
    let Some(rank) = ctx.state.monmap.rank_of(&id) else {
        return Ok(Answer::ok(format!("mon.{id} does not exist")));
    };
    let (active, voters) = without(ctx, rank);
    if active <= voters / 2 {
        return Err(Answer::error(EBUSY, format!("removing mon.{id} would break quorum")));
    }
    Ok(Answer::ok(format!("safe to remove mon.{id}")))
}

fn set_rank(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let rank = ctx.args.int("rank").unwrap_or_default();
    let mut next = wanted(ctx, &name, "does not exist in monmap")?;
    next.ranks.retain(|other| *other != name);
    let rank = usize::try_from(rank.max(0)).map_or(next.ranks.len(), |rank| rank.min(next.ranks.len()));
    next.ranks.insert(rank, name);
    propose(ctx, next, "")
}

fn set_weight(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let weight = ctx.args.int("weight").and_then(|weight| u16::try_from(weight).ok());
    let weight = weight.ok_or_else(|| Answer::invalid("a weight is between 0 and 65535"))?;
    change(ctx, &name, |mon| mon.weight = weight)
}

fn set_addrs(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let text = ctx.args.required("addrs")?;
    let addrs =
        parse_addrs(&text).ok_or_else(|| Answer::invalid(format!("failed to parse addrs '{text}'")))?;
    if let Some(mon) = holder(&ctx.state.monmap, &addrs).filter(|mon| mon.name != name) {
        return Err(Answer::error(
            EEXIST,
            format!("mon.{} already exists at address {}", mon.name, mon.addrs),
        ));
    }
    change(ctx, &name, |mon| mon.addrs = addrs)
}

fn set_location(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let location = parse_location(ctx, "args")?;
    change(ctx, &name, |mon| mon.crush_location = location)
}

fn change(ctx: &mut Ctx<'_>, name: &str, change: impl FnOnce(&mut MonInfo)) -> Outcome {
    let mut next = wanted(ctx, name, "does not exist")?;
    if let Some(mon) = next.mons.get_mut(name) {
        change(mon);
    }
    propose(ctx, next, "")
}

/// Ciphers in the map. A change that would shut out daemons or the caller is refused.
fn set(ctx: &mut Ctx<'_>) -> Outcome {
    let (name, value) = (ctx.args.required("name")?, ctx.args.required("value")?);
    let parse = |text: &str| {
        let cipher = auth_policy::parse_cipher(text.trim());
        cipher.ok_or_else(|| Answer::invalid("(22) Invalid argument"))
    };
    let mut next = next_map(ctx);
    match name.as_str() {
        "auth_service_cipher" => next.auth.service_cipher = parse(&value)?,
        "auth_preferred_cipher" => next.auth.preferred_cipher = parse(&value)?,
        _ => {
            let mut ciphers = value.split(',').map(parse).collect::<Result<Vec<i32>, _>>()?;
            ciphers.sort_unstable();
            ciphers.dedup();
            next.auth.allowed_ciphers = ciphers;
        }
    }
    if next.auth == ctx.state.monmap.auth {
        return Ok(Answer::ok("already set"));
    }
    let is_needed = |name: &AuthName| match name.kind {
        // Monitors know each other by their key itself, of either cipher.
        EntityKind::MON => false,
        // An encrypted OSD fetches its store's key by the second name.
        EntityKind::CLIENT => name.id == "admin" || lockbox::is_entity(name) || name == ctx.caller,
        _ => true,
    };
    // Whatever the emergency option allows for now.
    let shut_out = ctx.state.auth.entities.iter().filter(|(name, entity)| {
        is_needed(name) && !auth_policy::is_allowed(&next.auth.allowed_ciphers, &entity.key)
    });
    let names: Vec<String> = shut_out.map(|(name, _)| name.to_string()).collect();
    if !names.is_empty() {
        let why = format!(
            "keys of {} could no longer authenticate: rotate them first (`ceph auth rotate`)",
            names.join(", ")
        );
        return Err(Answer::error(EBUSY, why));
    }
    propose(ctx, next, "")
}
