//! `ceph config-key …`: a store of small values that modules and people keep in the monitors.

use super::{Answer, Command, Ctx, Outcome, commands};
use crate::proposal::Change;
use bytes::Bytes;
use command::Json;
use command::errno::{E2BIG, ENOENT};

/// Stock's `mon_config_key_max_entry_size`.
const VALUE_BYTES_MAX: usize = 65_536;

pub(super) const COMMANDS: &[Command] = commands! {
    "config-key get name=key,type=CephString", "show a key's value", "config-key", "r", get;
    "config-key set name=key,type=CephString name=val,type=CephString,req=false",
        "set a key's value, from the command line or from -i", "config-key", "rw", set;
    "config-key put name=key,type=CephString name=val,type=CephString,req=false",
        "set a key's value", "config-key", "rw", set, Command::DEPRECATED;
    "config-key del name=key,type=CephString", "remove a key", "config-key", "rw", rm, Command::DEPRECATED;
    "config-key rm name=key,type=CephString", "remove a key", "config-key", "rw", rm;
    "config-key exists name=key,type=CephString", "say whether a key exists", "config-key", "r", exists;
    "config-key list", "list keys", "config-key", "r", ls, Command::DEPRECATED;
    "config-key ls", "list keys", "config-key", "r", ls;
    "config-key dump name=key,type=CephString,req=false", "show keys that start so, with values", "config-key", "r", dump;
};

fn get(ctx: &mut Ctx<'_>) -> Outcome {
    let value = ctx.state.config_keys.get(&ctx.args.required("key")?);
    value.map(|value| Answer::body(value.clone())).ok_or_else(|| Answer::error(ENOENT, ""))
}

fn set(ctx: &mut Ctx<'_>) -> Outcome {
    let key = ctx.args.required("key")?;
    let value = ctx.args.text("val").map_or_else(|| ctx.input.clone(), Bytes::from);
    if value.len() > VALUE_BYTES_MAX {
        let text = format!(
            "error: entry size limited to {VALUE_BYTES_MAX} bytes. Use 'mon config key max entry size' to manually adjust"
        );
        return Err(Answer::error(E2BIG, text));
    }
    ctx.changes.push(Change::ConfigKey { key: key.clone(), value: Some(value) });
    Ok(Answer::ok(format!("set {key}")))
}

fn rm(ctx: &mut Ctx<'_>) -> Outcome {
    let key = ctx.args.required("key")?;
    if ctx.state.config_keys.contains_key(&key) {
        ctx.changes.push(Change::ConfigKey { key, value: None });
    }
    Ok(Answer::ok("key deleted"))
}

fn exists(ctx: &mut Ctx<'_>) -> Outcome {
    let key = ctx.args.required("key")?;
    if ctx.state.config_keys.contains_key(&key) {
        Ok(Answer::ok(format!("key '{key}' exists")))
    } else {
        Err(Answer::error(ENOENT, format!("key '{key}' doesn't exist")))
    }
}

fn ls(ctx: &mut Ctx<'_>) -> Outcome {
    Ok(ctx.show_json(Json::array(ctx.state.config_keys.keys().map(String::as_str))))
}

fn dump(ctx: &mut Ctx<'_>) -> Outcome {
    let prefix = ctx.args.text("key").unwrap_or_default();
    let entries = ctx.state.config_keys.iter().filter(|(key, _)| key.starts_with(&prefix));
    let shown = entries.map(|(key, value)| {
        let text = match std::str::from_utf8(value) {
            Ok(text) if !text.chars().any(|c| c.is_control() && c != '\n') => text.to_owned(),
            _ => format!("<<< binary blob of length {} >>>", value.len()),
        };
        (key.clone().into(), text.into())
    });
    let json = Json::Object(shown.collect());
    Ok(ctx.show_json(json))
}
