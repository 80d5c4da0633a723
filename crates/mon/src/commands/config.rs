//! `ceph config …`: the configuration that the cluster keeps.

use super::{Answer, Command, Ctx, Outcome, commands};
use crate::config_target::{ConfigChange, Receiver, Target};
use crate::proposal::Change;
use crate::state::ConfigLogEntry;
use codec::{Encode, Features};
use command::Json;
use command::errno::ENOENT;
use command::object;
use command::options::value::Unfit;
use command::options::{self, commands as option_commands, find, normal_name};
use std::collections::BTreeMap;
use std::fmt::Write;
use wire::text::{Align, Table, stamp};
use wire::types::AuthName;

pub(super) const COMMANDS: &[Command] = commands! {
    "config set name=who,type=CephString name=name,type=CephString name=value,type=CephString name=force,type=CephBool,req=false",
        "set an option for one or more entities", "config", "rw", set;
    "config rm name=who,type=CephString name=name,type=CephString",
        "clear an option for one or more entities", "config", "rw", rm;
    "config get name=who,type=CephString name=key,type=CephString,req=false",
        "show the options that an entity is given", "config", "r", get;
    "config dump", "show all options that are set", "config", "r", dump;
    "config help name=key,type=CephString", "say what kind of option this is", "config", "r", help;
    "config ls", "list the options there are", "config", "r", ls;
    "config assimilate-conf", "take the options of the ceph.conf given with -i", "config", "rw", assimilate;
    "config log name=num,type=CephInt,req=false", "show the last changes", "config", "r", log;
    "config reset name=num,type=CephInt,range=0", "go back to an earlier version", "config", "rw", reset;
    "config report", "say what this monitor's own options are, as daemons tell the manager", "config", "r", report, Command::HIDDEN;
    "config generate-minimal-conf", "write a ceph.conf that finds the monitors", "config", "r", minimal_conf;
};

fn propose(ctx: &mut Ctx<'_>, by: String, wanted: Vec<ConfigChange>) {
    let values = &ctx.state.config.values;
    let is_real = |c: &ConfigChange| {
        values.get(&(c.target.clone(), c.option.clone())).map(String::as_str) != c.value.as_deref()
    };
    let changes: Vec<_> = wanted.into_iter().filter(is_real).collect();
    if !changes.is_empty() {
        ctx.changes.push(Change::Config { by, changes });
    }
}

fn special(option: &str) -> Answer {
    Answer::invalid(format!("{option} is special and cannot be stored by the mon"))
}

fn target(ctx: &Ctx<'_>) -> Result<Target, Answer> {
    Target::parse(&ctx.args.required("who")?).map_err(Answer::invalid)
}

fn set(ctx: &mut Ctx<'_>) -> Outcome {
    let option = normal_name(&ctx.args.required("name")?);
    let mut value = ctx.args.required("value")?;
    let row = find(&option);
    if !ctx.args.flag("force") {
        let Some(row) = row else {
            return Err(Answer::invalid(format!("unrecognized config option '{option}'")));
        };
        let parsed = row.parse_value(&value);
        let unfit = |why: Unfit| Answer::error(why.errno, format!("error parsing value: {why}"));
        value = parsed.map_err(unfit)?.to_string();
        if !row.is_set_in_monitor() {
            return Err(special(&option));
        }
    }
    let target = target(ctx)?;
    let warning = match row {
        Some(row) => row.warning(&target.section),
        None => Some(format!("{option} is stored, but no option of that name is known")),
    };
    propose(ctx, String::new(), vec![ConfigChange { target, option, value: Some(value) }]);
    Ok(Answer::ok(warning.unwrap_or_default()))
}

fn rm(ctx: &mut Ctx<'_>) -> Outcome {
    let option = normal_name(&ctx.args.required("name")?);
    let target = target(ctx)?;
    propose(ctx, String::new(), vec![ConfigChange { target, option, value: None }]);
    Ok(Answer::default())
}

fn options_table() -> Table {
    let mut table = Table::default();
    for heading in ["WHO", "MASK", "LEVEL", "OPTION", "VALUE", "RO"] {
        table.column(heading, Align::Left);
    }
    table
}

fn level(option: &str) -> &'static str {
    find(option).map_or("unknown", |row| row.level)
}

fn is_live(option: &str) -> bool {
    find(option).is_some_and(|row| row.can_update_at_runtime())
}

fn mask_json(target: &Target) -> Json {
    let mut mask = object! {};
    if let Some(host) = &target.host {
        mask.push("location_type", "host");
        mask.push("location_value", host.as_str());
    }
    if let Some(class) = &target.device_class {
        mask.push("device_class", class.as_str());
    }
    mask
}

fn table_row(target: &Target, option: &str, value: &str) -> [String; 6] {
    let read_only = if is_live(option) { "" } else { "*" };
    let [level, option, value] = [level(option), option, value].map(str::to_owned);
    [target.section.clone(), target.mask(), level, option, value, read_only.to_owned()]
}

fn get(ctx: &mut Ctx<'_>) -> Outcome {
    let who = ctx.args.required("who")?.trim().to_owned();
    let entity: AuthName = who
        .parse()
        .or_else(|()| format!("{who}.").parse())
        .map_err(|()| Answer::invalid(format!("unrecognized entity '{who}'")))?;
    let device_class = match entity.id.parse::<i32>() {
        Ok(osd) if entity.kind == wire::types::EntityKind::OSD => {
            super::osd::device_class(ctx.state.osdmap(), osd).unwrap_or_default()
        }
        _ => "",
    };
    let values = ctx.state.config.resolve(&Receiver { name: &entity, host: "", device_class });
    if let Some(name) = ctx.args.text("key") {
        let name = normal_name(&name);
        let Some(row) = find(&name) else {
            return Err(Answer::error(ENOENT, format!("unrecognized key '{name}'")));
        };
        if name == "fsid" {
            return Ok(Answer::body(format!("{}\n", ctx.state.monmap.fsid)));
        }
        if !row.is_set_in_monitor() {
            return Err(special(&name));
        }
        let set = values.get(name.as_str()).map(|(_, value)| (*value).to_owned());
        let value = set.unwrap_or_else(|| row.default().to_string());
        return Ok(Answer::body(format!("{value}\n")));
    }
    let json = || {
        let entries = values.iter().map(|(option, (target, value))| {
            let entry = object! {
                "value" => *value,
                "section" => target.section.as_str(),
                "mask" => mask_json(target),
                "can_update_at_runtime" => is_live(option),
            };
            (option.to_string().into(), entry)
        });
        Json::Object(entries.collect())
    };
    let plain = || {
        let mut table = options_table();
        for (option, (target, value)) in &values {
            table.row(table_row(target, option, value));
        }
        table.to_string()
    };
    Ok(ctx.show(json, plain))
}

/// `global`, then types, then names below their type: as stock lists them.
fn dump_order(target: &Target) -> (u8, &str) {
    (u8::from(target.section != "global"), target.section.as_str())
}

fn dump(ctx: &mut Ctx<'_>) -> Outcome {
    let mut values: Vec<_> = ctx.state.config.values.iter().collect();
    values.sort_by_key(|((target, option), _)| (dump_order(target), option.as_str()));
    let json = || {
        Json::array(values.iter().map(|((target, option), value)| {
            object! {
                "section" => target.section.as_str(),
                "name" => option.as_str(),
                "value" => value.as_str(),
                "level" => level(option),
                "can_update_at_runtime" => is_live(option),
                "mask" => target.mask(),
                "location_type" => if target.host.is_some() { "host" } else { "" },
                "location_value" => target.host.as_deref().unwrap_or_default(),
            }
        }))
    };
    let plain = || {
        let mut table = options_table();
        for ((target, option), value) in &values {
            table.row(table_row(target, option, value));
        }
        table.to_string()
    };
    Ok(ctx.show(json, plain))
}

fn help(ctx: &mut Ctx<'_>) -> Outcome {
    let name = normal_name(&ctx.args.required("key")?);
    let Some(row) = find(&name) else {
        // Stock has no words for this.
        return Err(Answer::error(ENOENT, ""));
    };
    Ok(ctx.show(|| option_commands::describe(row), || option_commands::describe_plain(row)))
}

/// Encoded for the manager, which shows it: `ceph config show mon.a`.
fn report(ctx: &mut Ctx<'_>) -> Outcome {
    let own = BTreeMap::from([(format!("mon.{}", ctx.situation.name), ctx.layers.report())]);
    Ok(Answer::body(own.to_vec(Features::ALL)))
}

fn ls(ctx: &mut Ctx<'_>) -> Outcome {
    let names = || options::table::all().iter().map(|row| row.name);
    Ok(ctx.show(|| Json::array(names()), || names().fold(String::new(), |out, name| out + name + "\n")))
}

fn log(ctx: &mut Ctx<'_>) -> Outcome {
    let count = ctx.args.int("num").unwrap_or(10).max(0) as usize;
    let entries: Vec<&ConfigLogEntry> = ctx.state.config.log.iter().rev().take(count).collect();
    let json = || {
        Json::array(entries.iter().map(|entry| {
            let changes = entry.diff.iter().map(|(name, before, after)| {
                let mut change = object! { "name" => name.as_str() };
                for (key, value) in [("previous_value", before), ("new_value", after)] {
                    if let Some(value) = value {
                        change.push(key, value.as_str());
                    }
                }
                change
            });
            object! {
                "version" => entry.version,
                "timestamp" => stamp(entry.at),
                "name" => entry.name.as_str(),
                "changes" => Json::array(changes),
            }
        }))
    };
    let plain = || {
        let mut out = String::new();
        for entry in &entries {
            let _ = write!(out, "--- {} --- {} ---", entry.version, stamp(entry.at));
            if !entry.name.is_empty() {
                let _ = write!(out, " {}", entry.name);
            }
            out.push('\n');
            for (name, before, after) in &entry.diff {
                for (sign, value) in [('-', before), ('+', after)] {
                    if let Some(value) = value {
                        let _ = writeln!(out, "{sign} {name} = {value}");
                    }
                }
            }
        }
        out
    };
    Ok(ctx.show(json, plain))
}

fn reset(ctx: &mut Ctx<'_>) -> Outcome {
    let config = &ctx.state.config;
    let version = ctx.args.int("num").unwrap_or(-1);
    let oldest = config.log.front().map_or(config.version, |entry| entry.version - 1);
    let Some(version) = u64::try_from(version).ok().filter(|v| (oldest..=config.version).contains(v)) else {
        return Err(Answer::invalid(
            "must specify a valid historical version to revert to; see 'ceph config log' for a list of avialable \
             configuration historical versions",
        ));
    };
    // Undone newest first, so that the oldest value of an option is what remains.
    let mut values: BTreeMap<(Target, String), Option<String>> = BTreeMap::new();
    for entry in config.log.iter().rev().take_while(|entry| entry.version > version) {
        for (key, before, _) in &entry.diff {
            let (who, option) = key.rsplit_once('/').unwrap_or(("global", key));
            let target = Target::parse(who).map_err(Answer::invalid)?;
            values.insert((target, option.to_owned()), before.clone());
        }
    }
    let changes =
        values.into_iter().map(|((target, option), value)| ConfigChange { target, option, value }).collect();
    propose(ctx, format!("reset to {version}"), changes);
    Ok(Answer::default())
}

fn assimilate(ctx: &mut Ctx<'_>) -> Outcome {
    let text = std::str::from_utf8(ctx.input).map_err(|e| Answer::invalid(e.to_string()))?;
    let mut section = "global".to_owned();
    let mut changes = Vec::new();
    let mut left: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.trim().to_owned();
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            return Err(Answer::invalid(format!("parse error: {line}")));
        };
        let (option, value) = (normal_name(name), value.trim().trim_matches('"'));
        let taken = take_option(ctx, &section, &option, value);
        match taken {
            Some(Some(change)) => changes.push(change),
            Some(None) => {}
            None => left.entry(section.clone()).or_default().push((option, value.to_owned())),
        }
    }
    propose(ctx, String::new(), changes);
    let mut out = String::new();
    for (section, lines) in left {
        let _ = writeln!(out, "\n[{section}]");
        for (option, value) in lines {
            let _ = writeln!(out, "\t{option} = {value}");
        }
    }
    Ok(Answer::body(out))
}

/// `None`: not for the database, or there with another value already.
fn take_option(ctx: &Ctx<'_>, section: &str, option: &str, value: &str) -> Option<Option<ConfigChange>> {
    let row = find(option)?;
    if !row.is_set_in_monitor() || row.has_flag("cluster_create") {
        return None;
    }
    let value = row.parse_value(value).ok()?.to_string();
    let target = Target::parse(section).ok()?;
    match ctx.state.config.values.get(&(target.clone(), option.to_owned())) {
        Some(current) if *current == value => Some(None),
        Some(_) => None,
        None => Some(Some(ConfigChange { target, option: option.to_owned(), value: Some(value) })),
    }
}

fn minimal_conf(ctx: &mut Ctx<'_>) -> Outcome {
    let monmap = &ctx.state.monmap;
    let hosts: Vec<String> = monmap.mons.values().map(|mon| mon.addrs.to_string()).collect();
    let mut out = format!("# minimal ceph.conf for {}\n[global]\n", monmap.fsid);
    let _ = writeln!(out, "\tfsid = {}\n\tmon_host = {}", monmap.fsid, hosts.join(" "));
    Ok(Answer::body(out))
}
