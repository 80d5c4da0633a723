//! `ceph auth …`: who has which key and may do what.

use super::{Answer, Command, Ctx, Keyring, Outcome, commands, keyring};
use crate::auth_entity::AuthEntity;
use crate::auth_policy;
use crate::caps::MonCap;
use crate::proposal::Change;
use command::Json;
use command::errno::ENOENT;
use command::object;
use std::collections::BTreeMap;
use std::fmt::Write;
use wire::cephx::Key;
use wire::types::AuthName;

pub(super) const COMMANDS: &[Command] = commands! {
    "auth export name=entity,type=CephString,req=false", "write one entity's keyring, or all", "auth", "rx", export;
    "auth get name=entity,type=CephString", "write one entity's keyring", "auth", "rx", get;
    "auth get-key name=entity,type=CephString", "show an entity's key", "auth", "rx", print_key;
    "auth print-key name=entity,type=CephString", "show an entity's key", "auth", "rx", print_key;
    "auth print_key name=entity,type=CephString", "show an entity's key", "auth", "rx", print_key;
    "auth list", "list entities with keys and capabilities", "auth", "rx", list, Command::DEPRECATED;
    "auth ls", "list entities with keys and capabilities", "auth", "rx", list;
    "auth import", "take entities from the keyring given with -i", "auth", "rwx", import;
    "auth add name=entity,type=CephString name=caps,type=CephString,n=N,req=false name=key_type,type=CephChoices,strings=aes|aes256k,req=false",
        "add an entity; its key comes from the keyring given with -i, or is made", "auth", "rwx", add;
    "auth get-or-create-key name=entity,type=CephString name=caps,type=CephString,n=N,req=false name=key_type,type=CephChoices,strings=aes|aes256k,req=false",
        "show an entity's key; add the entity when it is not there", "auth", "rwx", get_or_create_key;
    "auth get-or-create name=entity,type=CephString name=caps,type=CephString,n=N,req=false name=key_type,type=CephChoices,strings=aes|aes256k,req=false",
        "write an entity's keyring; add the entity when it is not there", "auth", "rwx", get_or_create;
    "auth get-or-create-pending name=entity,type=CephString name=key_type,type=CephChoices,strings=aes|aes256k,req=false",
        "make a key that takes over once it has been used", "auth", "rwx", get_or_create_pending;
    "auth clear-pending name=entity,type=CephString", "drop an entity's pending key", "auth", "rwx", clear_pending;
    "auth commit-pending name=entity,type=CephString", "make an entity's pending key its key", "auth", "rwx", commit_pending;
    "auth rotate name=entity,type=CephString name=key_type,type=CephChoices,strings=aes|aes256k,req=false",
        "give an entity a new key at once", "auth", "rwx", rotate;
    "auth caps name=entity,type=CephString name=caps,type=CephString,n=N", "set all of an entity's capabilities", "auth", "rwx", caps;
    "auth del name=entity,type=CephString", "remove an entity", "auth", "rwx", remove, Command::DEPRECATED;
    "auth rm name=entity,type=CephString", "remove an entity", "auth", "rwx", remove;
};

fn entity_name(ctx: &Ctx<'_>) -> Result<AuthName, Answer> {
    ctx.args.required("entity")?.parse().map_err(|()| Answer::invalid("bad entity name"))
}

fn known(ctx: &Ctx<'_>, name: &AuthName) -> Option<AuthEntity> {
    ctx.state.auth.entities.get(name).cloned()
}

/// `mon 'allow r' osd 'allow *'` as pairs, each checked by the grammar of its service.
fn wanted_caps(ctx: &Ctx<'_>) -> Result<BTreeMap<String, String>, Answer> {
    let words = ctx.args.texts("caps");
    if !words.len().is_multiple_of(2) {
        return Err(Answer::invalid("bad capabilities request; odd number of arguments"));
    }
    let caps: BTreeMap<_, _> = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    for (service, text) in &caps {
        check_caps(service, text).map_err(Answer::invalid)?;
    }
    Ok(caps)
}

fn check_caps(service: &str, text: &str) -> Result<(), String> {
    match service {
        "mon" => MonCap::parse(text).map(drop).map_err(|e| e.to_string()),
        "mgr" => crate::caps::check_mgr(text).map_err(|e| e.to_string()),
        "osd" => wire::caps::OsdCap::parse(text).map(drop).map_err(|e| e.to_string()),
        "mds" if text.is_empty() || text.contains("allow") => Ok(()),
        "mds" => Err(format!("mds capability parse failed, stopped at '{text}' of '{text}'")),
        other => Err(format!("unknown cap type '{other}'")),
    }
}

/// A key of the asked or the preferred cipher.
fn new_key(ctx: &mut Ctx<'_>) -> Result<Key, Answer> {
    let policy = &ctx.state.monmap.auth;
    let asked = ctx.args.text("key_type").and_then(|name| auth_policy::parse_cipher(&name));
    let cipher = asked.unwrap_or(policy.preferred_cipher);
    let name = auth_policy::cipher_name(cipher);
    let Some(kind) = auth_policy::kind_of(cipher) else {
        return Err(Answer::invalid(format!("unknown cipher {cipher}")));
    };
    if !auth_policy::allowed_ciphers(policy, ctx.options).contains(&cipher) {
        return Err(Answer::invalid(format!(
            "refusing to create key with type ({name}) that cannot be used for auth (auth_allowed_ciphers)"
        )));
    }
    if cipher == auth_policy::AES && !ctx.options.allow_insecure_key {
        return Err(Answer::invalid(format!("creating key with insecure key type (\"{name}\") not allowed")));
    }
    Ok(Key::generate(kind, ctx.now, ctx.random))
}

/// A key for an entity of which nobody chose the cipher.
pub(super) fn new_key_of_any_kind(ctx: &mut Ctx<'_>) -> Result<Key, Answer> {
    let kind = auth_policy::kind_of_new_keys(&ctx.state.monmap.auth, ctx.options).ok_or_else(|| {
        Answer::invalid(
            "no key can be made: mon_auth_allow_insecure_key is off, and auth_allowed_ciphers has aes alone",
        )
    })?;
    Ok(Key::generate(kind, ctx.now, ctx.random))
}

fn show_section(ctx: &Ctx<'_>, name: &AuthName, entity: &AuthEntity) -> Answer {
    ctx.show(|| Json::Array(vec![keyring::section_json(name, entity)]), || keyring::section(name, entity))
}

fn show_key(ctx: &Ctx<'_>, key: &Key) -> Answer {
    ctx.show(|| object! { "key" => key.to_base64() }, || key.to_base64())
}

fn export(ctx: &mut Ctx<'_>) -> Outcome {
    if ctx.args.get("entity").is_some() {
        let name = entity_name(ctx)?;
        let entity = known(ctx, &name)
            .ok_or_else(|| Answer::error(ENOENT, "no key for auth(key=AAAAAAAAAAAAAAAA)"))?;
        return Ok(show_section(ctx, &name, &entity));
    }
    let all = &ctx.state.auth.entities;
    Ok(ctx.show(
        || Json::array(all.iter().map(|(name, entity)| keyring::section_json(name, entity))),
        || all.iter().map(|(name, entity)| keyring::section(name, entity)).collect(),
    ))
}

fn get(ctx: &mut Ctx<'_>) -> Outcome {
    let name = entity_name(ctx)?;
    let entity = known(ctx, &name)
        .ok_or_else(|| Answer::error(ENOENT, format!("failed to find {name} in keyring")))?;
    Ok(show_section(ctx, &name, &entity))
}

fn print_key(ctx: &mut Ctx<'_>) -> Outcome {
    let name = entity_name(ctx)?;
    let entity = known(ctx, &name).ok_or_else(|| Answer::error(ENOENT, format!("don't have {name}")))?;
    Ok(show_key(ctx, &entity.key))
}

fn list(ctx: &mut Ctx<'_>) -> Outcome {
    // Stock orders entities by kind, then id: the order of the database.
    let all = &ctx.state.auth.entities;
    let plain = || {
        let mut out = String::new();
        for (name, entity) in all {
            let _ = writeln!(out, "{name}\n\tkey: {}", entity.key.to_base64());
            for (service, caps) in &entity.caps {
                let _ = writeln!(out, "\tcaps: [{service}] {caps}");
            }
        }
        out
    };
    let json = || {
        let entities = all.iter().map(|(name, entity)| {
            object! {
                "entity" => name.to_string(),
                "key" => entity.key.to_base64(),
                "caps" => Json::strings(&entity.caps),
            }
        });
        object! { "auth_dump" => Json::array(entities) }
    };
    Ok(ctx.show(json, plain))
}

fn input_keyring(ctx: &Ctx<'_>) -> Result<Keyring, String> {
    let text = std::str::from_utf8(ctx.input).map_err(|e| e.to_string())?;
    Keyring::parse(text)
}

fn import(ctx: &mut Ctx<'_>) -> Outcome {
    if ctx.input.is_empty() {
        return Err(Answer::invalid("auth import: no data supplied"));
    }
    let keyring = input_keyring(ctx).map_err(|e| Answer::invalid(format!("error decoding keyring {e}")))?;
    for entity in keyring.0.values() {
        if entity.caps.is_empty() {
            return Err(Answer::invalid("auth import: no caps supplied"));
        }
        for (service, text) in &entity.caps {
            check_caps(service, text).map_err(Answer::invalid)?;
        }
    }
    ctx.changes.extend(keyring.0.into_iter().map(|(name, entity)| Change::AuthSet { name, entity }));
    Ok(Answer::default())
}

fn add(ctx: &mut Ctx<'_>) -> Outcome {
    let name = entity_name(ctx)?;
    let mut caps = wanted_caps(ctx)?;
    let mut given_key = None;
    if !ctx.input.is_empty() {
        let keyring = input_keyring(ctx).map_err(|_| Answer::invalid("error decoding keyring"))?;
        let given = keyring.0.get(&name);
        let given =
            given.ok_or_else(|| Answer::invalid(format!("key for {name} not found in provided keyring")))?;
        if !caps.is_empty() && !given.caps.is_empty() {
            return Err(Answer::invalid("caps cannot be specified both in keyring and in command"));
        }
        if caps.is_empty() {
            caps = given.caps.clone();
        }
        given_key = Some(given.key.clone());
    }
    if let Some(existing) = known(ctx, &name) {
        if given_key.is_some_and(|key| key != existing.key) {
            return Err(Answer::invalid(format!("entity {name} exists but key does not match")));
        }
        if caps != existing.caps {
            return Err(Answer::invalid(format!("entity {name} exists but caps do not match")));
        }
        return Ok(Answer::default());
    }
    let key = match given_key {
        Some(key) => key,
        None => new_key(ctx)?,
    };
    ctx.changes.push(Change::AuthSet { name: name.clone(), entity: AuthEntity::new(key, caps) });
    Ok(Answer::ok(format!("added key for {name}")))
}

/// The entity as it is, or made: with these capabilities either way. True when it is new.
fn ensure(ctx: &mut Ctx<'_>) -> Result<(AuthName, AuthEntity, bool), Answer> {
    let name = entity_name(ctx)?;
    let wanted = wanted_caps(ctx)?;
    if let Some(entity) = known(ctx, &name) {
        for (service, caps) in &wanted {
            if entity.caps.get(service) != Some(caps) {
                let text = format!("key for {name} exists but cap {service} does not match");
                return Err(Answer::invalid(text));
            }
        }
        return Ok((name, entity, false));
    }
    let entity = AuthEntity::new(new_key(ctx)?, wanted);
    ctx.changes.push(Change::AuthSet { name: name.clone(), entity: entity.clone() });
    Ok((name, entity, true))
}

fn get_or_create(ctx: &mut Ctx<'_>) -> Outcome {
    let (name, entity, _) = ensure(ctx)?;
    // Without the capabilities, whether it is new or not.
    let shown = AuthEntity { caps: BTreeMap::new(), ..entity.clone() };
    Ok(ctx.show(
        || Json::Array(vec![keyring::section_json(&name, &entity)]),
        || keyring::section(&name, &shown),
    ))
}

fn get_or_create_key(ctx: &mut Ctx<'_>) -> Outcome {
    let (_, entity, _) = ensure(ctx)?;
    Ok(show_key(ctx, &entity.key))
}

fn existing(ctx: &Ctx<'_>) -> Result<(AuthName, AuthEntity), Answer> {
    let name = entity_name(ctx)?;
    match known(ctx, &name) {
        Some(entity) => Ok((name, entity)),
        None => Err(Answer::error(ENOENT, format!("entity {name} does not exist"))),
    }
}

fn get_or_create_pending(ctx: &mut Ctx<'_>) -> Outcome {
    let (name, mut entity) = existing(ctx)?;
    if entity.pending_key.is_none() {
        entity.pending_key = Some(new_key(ctx)?);
        ctx.changes.push(Change::AuthSet { name: name.clone(), entity: entity.clone() });
    }
    let shown = AuthEntity { caps: BTreeMap::new(), ..entity };
    Ok(show_section(ctx, &name, &shown))
}

fn clear_pending(ctx: &mut Ctx<'_>) -> Outcome {
    let (name, entity) = existing(ctx)?;
    if entity.pending_key.is_some() {
        let entity = AuthEntity { pending_key: None, ..entity };
        ctx.changes.push(Change::AuthSet { name, entity });
    }
    Ok(Answer::default())
}

fn commit_pending(ctx: &mut Ctx<'_>) -> Outcome {
    let (name, entity) = existing(ctx)?;
    match entity.pending_key {
        None => Ok(Answer::ok("no pending key")),
        Some(key) => {
            ctx.changes.push(Change::AuthSet { name, entity: AuthEntity::new(key, entity.caps) });
            Ok(Answer::default())
        }
    }
}

fn rotate(ctx: &mut Ctx<'_>) -> Outcome {
    let name = entity_name(ctx)?;
    let mut entity = known(ctx, &name).ok_or_else(|| Answer::error(ENOENT, "entity does not exist"))?;
    entity.key = new_key(ctx)?;
    ctx.changes.push(Change::AuthSet { name: name.clone(), entity: entity.clone() });
    Ok(show_section(ctx, &name, &entity))
}

fn caps(ctx: &mut Ctx<'_>) -> Outcome {
    let name = entity_name(ctx)?;
    let mut entity =
        known(ctx, &name).ok_or_else(|| Answer::error(ENOENT, format!("couldn't find entry {name}")))?;
    entity.caps = wanted_caps(ctx)?;
    let text = format!("updated caps for {name}");
    let shown = show_section(ctx, &name, &entity);
    ctx.changes.push(Change::AuthSet { name, entity });
    Ok(shown.with_status(text))
}

fn remove(ctx: &mut Ctx<'_>) -> Outcome {
    let name = entity_name(ctx)?;
    if known(ctx, &name).is_some() {
        ctx.changes.push(Change::AuthRemove { name });
    }
    Ok(Answer::default())
}
