//! OSDs come into the map and leave it: `osd new`, `rm`, `purge`, ….

use super::lockbox::{self, Secrets};
use super::{existing, propose, step};
use crate::auth_entity::AuthEntity;
use crate::commands::{Answer, Ctx, Outcome};
use crate::proposal::Change;
use command::errno::{EBUSY, EEXIST, EPERM};
use command::{object, parse_osd};
use std::fmt::Write;
use wire::types::{AuthName, EntityKind, OsdMap, OsdState, Uuid};

/// The lowest number that is free.
fn free_id(map: &OsdMap) -> i32 {
    (0..).find(|&osd| !map.exists(osd)).expect("numbers do not run out")
}

/// Puts an OSD into the map: there, not up, not in.
fn add(ctx: &mut Ctx<'_>, id: i32, uuid: Uuid) -> Result<(), Answer> {
    let map = ctx.state.osdmap();
    let mut step = step(ctx);
    if id >= map.max_osd() {
        step.new_max_osd = Some(id + 1);
    }
    // What a destroyed OSD's row holds is flipped back to a new one's.
    let now = map.osds.get(id as usize).map_or(0, |row| row.state.0);
    step.new_state.insert(id, (OsdState::EXISTS | OsdState::NEW) ^ now);
    step.new_weight.insert(id, 0);
    if uuid != Uuid::default() {
        step.new_uuid.insert(id, uuid);
    }
    propose(ctx, step)
}

fn wanted_uuid(ctx: &Ctx<'_>) -> Result<Option<Uuid>, Answer> {
    let Some(text) = ctx.args.text("uuid") else { return Ok(None) };
    text.parse().map(Some).map_err(|()| Answer::invalid(format!("invalid uuid value '{text}'")))
}

fn wanted_id(ctx: &Ctx<'_>) -> Result<Option<i32>, Answer> {
    ctx.args.text("id").map(|text| parse_osd(&text).map(|osd| osd.0)).transpose()
}

fn find_uuid(map: &OsdMap, uuid: Uuid) -> Option<i32> {
    map.osd_ids().find(|&osd| map.osds[osd as usize].uuid == uuid)
}

fn show_id(ctx: &Ctx<'_>, id: i32) -> Answer {
    ctx.show(|| object! { "osdid" => id }, || id.to_string())
}

pub(super) fn new(ctx: &mut Ctx<'_>) -> Outcome {
    let uuid =
        wanted_uuid(ctx)?.ok_or_else(|| Answer::invalid("requires the OSD's UUID to be specified."))?;
    let wanted = wanted_id(ctx)?;
    let secrets = Secrets::parse(ctx.input)?;
    let map = ctx.state.osdmap();
    if let Some(id) = find_uuid(map, uuid) {
        if wanted.is_some_and(|w| w != id) {
            return Err(Answer::error(EEXIST, format!("uuid {uuid} already in use for different id {id}")));
        }
        secrets.check(ctx, uuid)?;
        return Ok(show_id(ctx, id));
    }
    if let Some(id) = wanted
        && map.exists(id)
        && !map.osds[id as usize].state.has(OsdState::DESTROYED)
        && map.osds[id as usize].uuid != Uuid::default()
    {
        return Err(Answer::error(EEXIST, format!("id {id} already in use and does not match uuid {uuid}")));
    }
    let id = wanted.unwrap_or_else(|| free_id(map));
    secrets.check(ctx, uuid)?;
    if let Some(key) = secrets.cephx.clone() {
        let caps = [("mon", "allow profile osd"), ("mgr", "allow profile osd"), ("osd", "allow *")];
        let caps = caps.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let name = AuthName::new(EntityKind::OSD, id.to_string());
        ctx.changes.push(Change::AuthSet { name, entity: AuthEntity::new(key, caps) });
    }
    secrets.put(ctx, uuid);
    add(ctx, id, uuid)?;
    Ok(show_id(ctx, id))
}

pub(super) fn create(ctx: &mut Ctx<'_>) -> Outcome {
    let uuid = wanted_uuid(ctx)?.unwrap_or_default();
    let wanted = wanted_id(ctx)?;
    let map = ctx.state.osdmap();
    if uuid != Uuid::default()
        && let Some(id) = find_uuid(map, uuid)
    {
        return match wanted.filter(|w| *w != id) {
            Some(w) => Err(Answer::invalid(format!("uuid {uuid} already in use for different id {w}"))),
            None => Ok(show_id(ctx, id)),
        };
    }
    if let Some(id) = wanted.filter(|id| map.exists(*id)) {
        return Err(Answer::error(EEXIST, format!("osd.{id} already exists")));
    }
    let id = wanted.unwrap_or_else(|| free_id(map));
    add(ctx, id, uuid)?;
    Ok(show_id(ctx, id))
}

/// The step that takes an OSD out of the map, bit by bit of its state.
fn take_out(ctx: &Ctx<'_>, ids: &[i32]) -> wire::types::OsdMapIncremental {
    let map = ctx.state.osdmap();
    let mut step = step(ctx);
    for &osd in ids {
        step.new_state.insert(osd, map.osds[osd as usize].state.0);
        step.new_uuid.insert(osd, Uuid::default());
    }
    step
}

pub(super) fn rm(ctx: &mut Ctx<'_>) -> Outcome {
    let mut said = String::new();
    let mut gone = Vec::new();
    for text in ctx.args.texts("ids") {
        let osd = parse_osd(&text)?.0;
        let map = ctx.state.osdmap();
        if !map.exists(osd) {
            let _ = write!(said, "osd.{osd} does not exist. ");
        } else if map.is_up(osd) {
            return Err(Answer::error(
                EBUSY,
                format!("osd.{osd} is still up; must be down before removal. "),
            ));
        } else {
            gone.push(osd);
            let _ = write!(said, "{}osd.{osd}", if gone.len() == 1 { "removed " } else { ", " });
        }
    }
    if !gone.is_empty() {
        let step = take_out(ctx, &gone);
        propose(ctx, step)?;
        ctx.changes.extend(gone.iter().map(|&osd| Change::OsdMetadata { osd, metadata: None }));
    }
    Ok(Answer::ok(said))
}

fn sure(ctx: &Ctx<'_>) -> Result<(), Answer> {
    if ctx.args.flag("yes_i_really_mean_it") {
        return Ok(());
    }
    Err(Answer::error(
        EPERM,
        "Are you SURE?  Did you verify with 'ceph osd safe-to-destroy'?  This will mean real, permanent data loss, as well as \
         deletion of cephx and lockbox keys. Pass --yes-i-really-mean-it if you really do.",
    ))
}

/// Removes the keys of an OSD: its own, that of its encrypted store, and its private ones.
fn forget_keys(ctx: &mut Ctx<'_>, osd: i32) {
    let uuid = ctx.state.osdmap().osds[osd as usize].uuid;
    lockbox::forget(ctx, uuid);
    let name = AuthName::new(EntityKind::OSD, osd.to_string());
    if ctx.state.auth.entities.contains_key(&name) {
        ctx.changes.push(Change::AuthRemove { name });
    }
    let prefix = format!("daemon-private/osd.{osd}/");
    let private = ctx.state.config_keys.keys().filter(|key| key.starts_with(&prefix)).cloned();
    let private: Vec<_> = private.map(|key| Change::ConfigKey { key, value: None }).collect();
    ctx.changes.extend(private);
}

pub(super) fn destroy(ctx: &mut Ctx<'_>) -> Outcome {
    sure(ctx)?;
    let osd = ctx.args.osd("id")?.0;
    let map = ctx.state.osdmap();
    if !map.exists(osd) {
        return Ok(Answer::ok(format!("osd.{osd} does not exist")));
    }
    if map.is_up(osd) {
        return Err(Answer::error(EBUSY, format!("osd.{osd} is not `down`.")));
    }
    let state = map.osds[osd as usize].state;
    if state.has(OsdState::DESTROYED) {
        return Ok(Answer::ok(format!("destroyed osd.{osd}")));
    }
    let mut step = step(ctx);
    step.new_state.insert(osd, OsdState::DESTROYED);
    step.new_uuid.insert(osd, Uuid::default());
    forget_keys(ctx, osd);
    propose(ctx, step)?;
    Ok(Answer::ok(format!("destroyed osd.{osd}")))
}

pub(super) fn purge(ctx: &mut Ctx<'_>) -> Outcome {
    sure(ctx)?;
    purge_if(ctx, |_| Ok(()))
}

/// For an OSD that never came up: a failed installation undoes its first step with this.
pub(super) fn purge_new(ctx: &mut Ctx<'_>) -> Outcome {
    sure(ctx)?;
    let osd = ctx.args.osd("id")?.0;
    purge_if(ctx, |state| match state.has(OsdState::NEW) {
        true => Ok(()),
        false => Err(Answer::error(EPERM, format!("osd.{osd} is not new"))),
    })
}

fn purge_if(ctx: &mut Ctx<'_>, check: impl FnOnce(OsdState) -> Result<(), Answer>) -> Outcome {
    let osd = ctx.args.osd("id")?.0;
    let map = ctx.state.osdmap();
    if !map.exists(osd) {
        return Ok(Answer::ok(format!("osd.{osd} does not exist")));
    }
    if map.is_up(osd) {
        return Err(Answer::error(EBUSY, format!("osd.{osd} is not `down`.")));
    }
    check(map.osds[osd as usize].state)?;
    let mut step = take_out(ctx, &[osd]);
    let mut crush = (*map.crush).clone();
    if placement::crush::edit::remove(&mut crush, osd, false).is_ok() {
        step.set_crush(&crush, wire::features::SUPPORTED);
    }
    forget_keys(ctx, osd);
    propose(ctx, step)?;
    ctx.changes.push(Change::OsdMetadata { osd, metadata: None });
    Ok(Answer::ok(format!("purged osd.{osd}")))
}

pub(super) fn lost(ctx: &mut Ctx<'_>) -> Outcome {
    if !ctx.args.flag("yes_i_really_mean_it") {
        return Err(Answer::error(
            EPERM,
            "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you really do.",
        ));
    }
    let osd = existing(ctx, "id")?;
    let map = ctx.state.osdmap();
    if map.is_up(osd) {
        return Err(Answer::error(EBUSY, format!("osd.{osd} is not down")));
    }
    let epoch = map.osds[osd as usize].info.down_at;
    let mut step = step(ctx);
    step.new_lost.insert(osd, epoch);
    propose(ctx, step)?;
    Ok(Answer::ok(format!("marked osd lost in epoch {epoch}")))
}
