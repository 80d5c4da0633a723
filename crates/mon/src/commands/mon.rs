//! `ceph mon …`, `quorum_status`: the monitors themselves.

use super::log::addrs_json;
use super::{Answer, Command, Ctx, Outcome, commands};
use crate::auth_policy::cipher_name;
use codec::Encode;
use command::errno::{ENOENT, EPERM};
use command::{Json, object};
use std::fmt::Write;
use wire::text::stamp;
use wire::types::{EntityAddr, EntityAddrVec, MonFeatures, MonInfo, MonMap, UTime};

pub(super) const COMMANDS: &[Command] = commands! {
    "mon dump name=epoch,type=CephInt,range=0,req=false", "show the monitor map", "mon", "r", dump;
    "mon stat", "say who the monitors are and who leads", "mon", "r", stat;
    "mon getmap name=epoch,type=CephInt,range=0,req=false", "write the monitor map as bytes", "mon", "r", getmap;
    "mon metadata name=id,type=CephString,req=false", "show what monitors said about themselves", "mon", "r", metadata;
    "mon count-metadata name=property,type=CephString", "count monitors by a metadata field", "mon", "r", count_metadata;
    "mon versions", "count monitors by version", "mon", "r", versions;
    "mon feature ls name=with_value,type=CephBool,req=false", "show the monitors' features", "mon", "r", feature_ls;
    "mon feature set name=feature_name,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "set provided feature on mon map", "mon", "rw", feature_set;
    "mon enable-msgr2", "enable the msgr2 protocol on all monitors", "mon", "rw", enable_msgr2;
    "mon ok-to-stop name=ids,type=CephString,n=N", "say whether monitors could stop with a quorum left", "mon", "r", ok_to_stop;
    "quorum_status", "show the quorum and the monitor map", "mon", "r", quorum_status;
    "mon_status", "show this monitor's state", "mon", "r", mon_status, Command::TELL;
};

fn cipher_json(number: i32) -> Json {
    object! { "name" => cipher_name(number), "value" => number }
}

/// A monitor's time with the separator that stock has here and nowhere else.
fn iso(at: UTime) -> String {
    stamp(at).replace("+0000", "Z")
}

fn v1_of(addrs: &EntityAddrVec) -> String {
    let found = addrs.0.iter().find(|a| a.kind == wire::types::AddrKind::LEGACY).or(addrs.0.first());
    found.map_or_else(|| ":/0".into(), |a: &EntityAddr| a.plain().to_string())
}

fn mon_json(rank: usize, mon: &MonInfo) -> Json {
    let location = mon.crush_location.iter().map(|(kind, name)| format!("{kind}={name}"));
    let added = stamp(mon.time_added);
    object! {
        "rank" => rank,
        "name" => mon.name.as_str(),
        "public_addrs" => addrs_json(&mon.addrs),
        "addr" => v1_of(&mon.addrs),
        "public_addr" => v1_of(&mon.addrs),
        "priority" => mon.priority,
        "weight" => mon.weight,
        "time_added" => added,
        "crush_location" => Json::array(location),
    }
}

fn features_json(map: &MonMap) -> Json {
    object! {
        "persistent" => Json::array(map.persistent_features.names()),
        "optional" => Json::array(map.optional_features.names()),
    }
}

fn removed_ranks(map: &MonMap) -> String {
    map.removed_ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The pairs of the map's own JSON, without the braces.
pub(super) fn monmap_json(map: &MonMap) -> Json {
    let auth = &map.auth;
    object! {
        "epoch" => map.epoch,
        "auth_epoch" => auth.epoch,
        "auth_service_cipher" => cipher_json(auth.service_cipher),
        "auth_allowed_ciphers" => Json::array(auth.allowed_ciphers.iter().map(|c| cipher_json(*c))),
        "auth_preferred_cipher" => cipher_json(auth.preferred_cipher),
        "fsid" => map.fsid.to_string(),
        "modified" => iso(map.last_changed),
        "created" => iso(map.created),
        "min_mon_release" => map.min_mon_release.0,
        "min_mon_release_name" => map.min_mon_release.name(),
        "election_strategy" => map.strategy,
        "disallowed_leaders" => map.disallowed_leaders.iter().cloned().collect::<Vec<_>>().join(","),
        "stretch_mode" => map.stretch_mode_enabled,
        "tiebreaker_mon" => map.tiebreaker_mon.as_str(),
        "removed_ranks" => removed_ranks(map),
        "features" => features_json(map),
        "mons" => Json::array(map.by_rank().map(|(rank, mon)| mon_json(rank, mon))),
    }
}

fn monmap_plain(map: &MonMap) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "epoch {}\nfsid {}", map.epoch, map.fsid);
    let _ = writeln!(out, "last_changed {}\ncreated {}", stamp(map.last_changed), stamp(map.created));
    let _ = writeln!(out, "min_mon_release {} ({})", map.min_mon_release.0, map.min_mon_release);
    let _ = writeln!(out, "election_strategy: {}", map.strategy);
    for (rank, mon) in map.by_rank() {
        let _ = writeln!(out, "{rank}: {} mon.{}", mon.addrs, mon.name);
    }
    let allowed: Vec<_> = map.auth.allowed_ciphers.iter().map(|c| cipher_name(*c)).collect();
    let _ = writeln!(out, "auth_epoch {}", map.auth.epoch);
    let _ = writeln!(out, "auth_service_cipher {}", cipher_name(map.auth.service_cipher));
    let _ = writeln!(out, "auth_allowed_ciphers {}", allowed.join(","));
    let _ = writeln!(out, "auth_preferred_cipher {}", cipher_name(map.auth.preferred_cipher));
    out
}

/// Only the newest epoch is kept: older ones are of no use to anybody.
fn wanted_map<'a>(ctx: &'a Ctx<'_>) -> Result<&'a MonMap, Answer> {
    let map = &ctx.state.monmap;
    match ctx.args.int("epoch") {
        Some(epoch) if epoch != 0 && epoch != i64::from(map.epoch) => {
            Err(Answer::error(ENOENT, format!("there is no map for epoch {epoch}")))
        }
        _ => Ok(map),
    }
}

fn dump(ctx: &mut Ctx<'_>) -> Outcome {
    let map = wanted_map(ctx)?;
    let quorum = &ctx.situation.quorum;
    let json = || {
        let mut json = monmap_json(map);
        json.push("quorum", Json::array(quorum.iter().copied()));
        json
    };
    let answer = ctx.show(json, || monmap_plain(map));
    Ok(answer.with_status(format!("dumped monmap epoch {}", map.epoch)))
}

fn getmap(ctx: &mut Ctx<'_>) -> Outcome {
    let map = wanted_map(ctx)?;
    Ok(Answer::body(map.to_vec(ctx.caller_features)).with_status(format!("got monmap epoch {}", map.epoch)))
}

fn rank_names(ctx: &Ctx<'_>) -> Vec<String> {
    let ranks = &ctx.state.monmap.ranks;
    ctx.situation.quorum.iter().filter_map(|r| ranks.get(*r)).cloned().collect()
}

fn leader_name(ctx: &Ctx<'_>) -> String {
    ctx.situation.leader.and_then(|rank| ctx.state.monmap.ranks.get(rank)).cloned().unwrap_or_default()
}

fn stat(ctx: &mut Ctx<'_>) -> Outcome {
    let map = &ctx.state.monmap;
    let leader = leader_name(ctx);
    let plain = || {
        let mons: Vec<_> = map.mons.values().map(|m| format!("{}={}", m.name, m.addrs)).collect();
        let quorum: Vec<_> = ctx.situation.quorum.iter().map(usize::to_string).collect();
        format!(
            "e{}: {} mons at {{{}}} removed_ranks: {{{}}} disallowed_leaders: {{{}}}, election epoch {}, leader {} {}, quorum {} {}\n",
            map.epoch,
            map.mons.len(),
            mons.join(","),
            removed_ranks(map),
            map.disallowed_leaders.iter().cloned().collect::<Vec<_>>().join(","),
            ctx.situation.election_epoch,
            ctx.situation.leader.unwrap_or_default(),
            leader,
            quorum.join(","),
            rank_names(ctx).join(",")
        )
    };
    let json = || {
        let quorum = ctx.situation.quorum.iter().zip(rank_names(ctx));
        object! {
            "epoch" => map.epoch,
            "min_mon_release_name" => map.min_mon_release.name(),
            "num_mons" => map.mons.len(),
            "leader" => leader.as_str(),
            "quorum" => Json::array(quorum.map(|(rank, name)| object! { "rank" => *rank, "name" => name })),
        }
    };
    Ok(ctx.show(json, plain))
}

fn metadata(ctx: &mut Ctx<'_>) -> Outcome {
    let known = &ctx.state.mon_metadata;
    if let Some(id) = ctx.args.text("id") {
        let id = id.strip_prefix("mon.").unwrap_or(&id);
        let found = known.get(id).ok_or_else(|| Answer::error(ENOENT, ""))?;
        let mut json = object! {};
        found.iter().for_each(|(key, value)| json.push(key.clone(), value.as_str()));
        return Ok(ctx.show_json(json));
    }
    let all = known.iter().map(|(name, fields)| {
        let mut json = object! { "name" => name.as_str() };
        fields.iter().for_each(|(key, value)| json.push(key.clone(), value.as_str()));
        json
    });
    let json = Json::array(all);
    Ok(ctx.show_json(json))
}

fn count_metadata(ctx: &mut Ctx<'_>) -> Outcome {
    let property = ctx.args.required("property")?;
    let json = super::count_by(ctx.state.mon_metadata.values(), &property);
    Ok(ctx.show_json(json))
}

fn versions(ctx: &mut Ctx<'_>) -> Outcome {
    let json = super::count_by(ctx.state.mon_metadata.values(), "ceph_version");
    Ok(ctx.show_json(json))
}

fn feature_ls(ctx: &mut Ctx<'_>) -> Outcome {
    let map = &ctx.state.monmap;
    let supported = MonFeatures::persistent_of(wire::types::Release::TENTACLE);
    let list = |features: MonFeatures| features.names().join(",");
    let plain = || {
        format!(
            "all features\n\tsupported: [{}]\n\tpersistent: [{}]\non current monmap (epoch {})\n\tpersistent: [{}]\n\trequired: [{}]\n",
            list(supported),
            list(supported),
            map.epoch,
            list(map.persistent_features),
            list(map.persistent_features)
        )
    };
    let json = || {
        let names = |features: MonFeatures| Json::array(features.names());
        object! {
            "all" => object! { "supported" => names(supported), "persistent" => names(supported) },
            "monmap" => object! {
                "persistent" => names(map.persistent_features),
                "optional" => names(map.optional_features),
                "required" => names(map.persistent_features),
            },
        }
    };
    Ok(ctx.show(json, plain))
}

/// Every feature that this release knows is set when a cluster is made.
fn feature_set(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("feature_name")?;
    let known = MonFeatures::persistent_of(wire::types::Release::TENTACLE);
    if !known.names().contains(&name.as_str()) {
        return Err(Answer::error(ENOENT, format!("unknown feature '{name}'")));
    }
    if !ctx.args.flag("yes_i_really_mean_it") {
        return Err(Answer::error(
            EPERM,
            format!(
                "please specify '--yes-i-really-mean-it' if you really, **really** want to set feature '[{name}]' in the \
                 monmap."
            ),
        ));
    }
    if !ctx.state.monmap.persistent_features.names().contains(&name.as_str()) {
        let text = format!("feature '{name}' is set when all monitors are of a release that has it");
        return Err(Answer::error(EPERM, text));
    }
    Ok(Answer::ok(format!("setting feature '[{name}]' feature '[{name}]' already set on monmap")))
}

/// shoal's monitors speak msgr2 from the beginning. The spelling is stock's.
fn enable_msgr2(_: &mut Ctx<'_>) -> Outcome {
    Ok(Answer::ok("all monitors have already enabled msrg2"))
}

fn ok_to_stop(ctx: &mut Ctx<'_>) -> Outcome {
    let mut left = ctx.situation.quorum.clone();
    let ids = ctx.args.texts("ids");
    for id in &ids {
        let id = id.strip_prefix("mon.").unwrap_or(id);
        match ctx.state.monmap.rank_of(id) {
            Some(rank) => left.retain(|r| *r != rank),
            None => return Err(Answer::error(ENOENT, format!("mon.{id} does not exist"))),
        }
    }
    let needed = ctx.situation.voters.len() / 2 + 1;
    let names: Vec<_> = left.iter().filter_map(|r| ctx.state.monmap.ranks.get(*r)).cloned().collect();
    let (names, ids) = (names.join(","), ids.join(","));
    if left.len() >= needed {
        return Ok(Answer::ok(format!("quorum should be preserved ({names}) after stopping [{ids}]")));
    }
    let text = format!("not enough monitors would be available ({names}) after stopping mons [{ids}]");
    Err(Answer::error(command::errno::EBUSY, text))
}

fn quorum_features() -> Json {
    object! {
        "quorum_con" => wire::features::SUPPORTED.0.to_string(),
        "quorum_mon" => Json::array(MonFeatures::persistent_of(wire::types::Release::TENTACLE).names()),
    }
}

fn quorum_status(ctx: &mut Ctx<'_>) -> Outcome {
    let json = object! {
        "election_epoch" => ctx.situation.election_epoch,
        "quorum" => Json::array(ctx.situation.quorum.iter().copied()),
        "quorum_names" => Json::array(rank_names(ctx)),
        "quorum_leader_name" => leader_name(ctx),
        "quorum_age" => ctx.situation.quorum_age_s,
        "features" => quorum_features(),
        "monmap" => monmap_json(&ctx.state.monmap),
    };
    // Without a plain form, and compact where nothing was asked for.
    Ok(Answer::json(ctx.args.format().or_json(), &json))
}

pub(super) fn mon_status_json(ctx: &Ctx<'_>) -> Json {
    let me = &ctx.situation.name;
    let rank = ctx.state.monmap.rank_of(me);
    object! {
        "name" => me.as_str(),
        "rank" => rank.map_or(-1, |r| r as i64),
        "state" => ctx.situation.part,
        "election_epoch" => ctx.situation.election_epoch,
        "quorum" => Json::array(ctx.situation.quorum.iter().copied()),
        "quorum_age" => ctx.situation.quorum_age_s,
        "features" => object! {
            "required_con" => wire::features::REQUIRED.0.to_string(),
            "required_mon" => Json::array(ctx.state.monmap.persistent_features.names()),
            "quorum_con" => wire::features::SUPPORTED.0.to_string(),
            "quorum_mon" => Json::array(MonFeatures::persistent_of(wire::types::Release::TENTACLE).names()),
        },
        "outside_quorum" => Json::Array(vec![]),
        "extra_probe_peers" => Json::Array(vec![]),
        "sync_provider" => Json::Array(vec![]),
        "monmap" => monmap_json(&ctx.state.monmap),
        "feature_map" => super::cluster::features_json(ctx),
        "stretch_mode" => false,
    }
}

fn mon_status(ctx: &mut Ctx<'_>) -> Outcome {
    let json = mon_status_json(ctx);
    Ok(ctx.show_json(json))
}
