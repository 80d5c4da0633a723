//! `shoal join`: a new host, with the key of a join token, gets its OSDs, their place in CRUSH, and all keys that it needs.
//!
//! Everything happens in one proposal, or nothing. The host draws its own id and those of its OSDs, so that it can repeat a join
//! whose answer was lost: it gets the same answer, and counts once.

use super::osd::lockbox;
use super::{Answer, Command, Ctx, Outcome, commands};
use crate::auth_entity::AuthEntity;
use crate::join_token;
use crate::joining::{Host, Token};
use crate::osd_step::{sealed, step_after};
use crate::proposal::Change;
use base64::prelude::{BASE64_STANDARD, Engine};
use command::errno::{EBUSY, EEXIST, EPERM};
use command::{Json, object, signature};
use placement::crush::edit::{self, Location};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use wire::text::stamp;
use wire::types::{AuthName, CrushMap, EntityKind, OsdMap, OsdState, Uuid};

pub(super) const COMMANDS: &[Command] = commands! {
    "shoal join name=name,type=CephString name=id,type=CephUUID name=addr,type=CephString name=clock,type=CephInt,range=0 name=monitor,type=CephChoices,strings=auto|yes|no,req=false name=osds,type=CephString,n=N,req=false",
        "add a host with OSDs, each UUID:BYTES:CLASS or UUID:BYTES:CLASS:encrypted, by the key of a join token", "mon", "rwx", join;
};

/// True for the command whose answer has keys: it needs a connection in secure mode.
pub fn hands_out_keys(prefix: &str) -> bool {
    COMMANDS.iter().any(|command| signature::prefix(command.signature) == prefix)
}

/// A host whose clock is further off would have its tickets refused, and a monitor on it would not be heeded.
const CLOCK_OFF_S_MAX: u64 = 10;
/// With fewer monitors a new host gets one unless it says no.
const MONITORS_WANTED: usize = 3;
const MONITORS_MAX: usize = 5;
const OSDS_MAX: usize = 256;
/// Random bytes of the key of an encrypted store, as many as stock's.
const STORE_KEY_BYTES: usize = 128;
/// CRUSH weights count TiB.
const TIB: f64 = (1u64 << 40) as f64;
pub(super) const ROOT: &str = "default";

/// An OSD that the host has made room for.
struct NewOsd {
    uuid: Uuid,
    bytes: u64,
    class: String,
    /// Its store is encrypted with a key that the monitors make and keep.
    is_encrypted: bool,
}

impl NewOsd {
    fn parse(text: &str) -> Result<NewOsd, Answer> {
        let parsed = || {
            let mut parts = text.split(':');
            let (uuid, bytes, class) = (parts.next()?, parts.next()?, parts.next()?);
            let is_encrypted = match parts.next() {
                None => false,
                Some(word) => (word == "encrypted").then_some(true)?,
            };
            let (uuid, bytes) = (uuid.parse().ok()?, bytes.parse().ok()?);
            let osd = NewOsd { uuid, bytes, class: class.to_owned(), is_encrypted };
            let fits = parts.next().is_none() && edit::is_valid_name(class) && osd.uuid != Uuid::default();
            fits.then_some(osd)
        };
        parsed().ok_or_else(|| {
            Answer::invalid(format!("'{text}' is no OSD: expected UUID:BYTES:CLASS[:encrypted]"))
        })
    }
}

/// The arguments of the joining host.
struct Wish {
    name: String,
    id: Uuid,
    addr: IpAddr,
    monitor: Option<bool>,
    osds: Vec<NewOsd>,
}

fn wish(ctx: &Ctx<'_>) -> Result<Wish, Answer> {
    let args = ctx.args;
    let addr = args.required("addr")?;
    let id = args.required("id")?;
    let osds = args.texts("osds");
    if osds.len() > OSDS_MAX {
        return Err(Answer::invalid(format!("{} OSDs at once: at most {OSDS_MAX}", osds.len())));
    }
    Ok(Wish {
        name: args.required("name")?,
        id: id.parse().map_err(|()| Answer::invalid(format!("invalid uuid value '{id}'")))?,
        addr: addr.parse().map_err(|_| Answer::invalid(format!("{addr} is no address")))?,
        monitor: match args.text("monitor").as_deref() {
            Some("yes") => Some(true),
            Some("no") => Some(false),
            _ => None,
        },
        osds: osds.iter().map(|text| NewOsd::parse(text)).collect::<Result<_, _>>()?,
    })
}

fn join(ctx: &mut Ctx<'_>) -> Outcome {
    if !ctx.caller_is_secure {
        let text = "joining hands out keys, so it needs a connection in secure mode: let ms_mon_service_mode of the monitors \
                    allow secure";
        return Err(Answer::error(EPERM, text));
    }
    let (token_id, token) = token(ctx)?;
    let wish = wish(ctx)?;
    check_clock(ctx)?;
    let is_known = check_name(ctx, &wish)?;
    if !is_known && token.uses_left == Some(0) {
        let text = format!(
            "the token {token_id} is used up: {} hosts joined with it. Make another: shoal token create",
            token.used
        );
        return Err(Answer::error(EPERM, text));
    }
    let has_monitor = wants_monitor(ctx, &wish, is_known, &token_id, &token)?;
    let osds = add_osds(ctx, &wish)?;

    let mut keys = BTreeMap::new();
    for ((osd, is_new), wished) in osds.iter().zip(&wish.osds) {
        let caps = [("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];
        let name = AuthName::new(EntityKind::OSD, osd.to_string());
        give_key(ctx, &mut keys, name, &caps, *is_new)?;
        if wished.is_encrypted {
            give_lockbox(ctx, &mut keys, wished.uuid)?;
        }
    }
    give_key(
        ctx,
        &mut keys,
        own_entity(&wish.name),
        &[("mgr", "allow r"), ("mon", "profile shoal-host")],
        !is_known,
    )?;
    if has_monitor {
        let caps = [("mds", "allow *"), ("mon", "profile mgr"), ("osd", "allow *")];
        give_key(ctx, &mut keys, AuthName::new(EntityKind::MGR, wish.name.clone()), &caps, false)?;
        // The key of the monitors opens everything: with it, the administrator's adds convenience and no power.
        for name in [AuthName::new(EntityKind::MON, ""), AuthName::new(EntityKind::CLIENT, "admin")] {
            if let Some(entity) = ctx.state.auth.entities.get(&name) {
                keys.insert(name.to_string(), entity.clone());
            }
        }
    }

    let before = ctx.state.joining.hosts.get(&wish.name);
    let host = Host {
        id: wish.id,
        addr: wish.addr.to_string(),
        monitor: has_monitor,
        joined: before.map_or(ctx.now, |host| host.joined),
    };
    if before != Some(&host) {
        ctx.changes.push(Change::Host { name: wish.name.clone(), host: Some(host) });
    }
    if !is_known {
        let token = token.after_use(&wish.name, ctx.now);
        ctx.changes.push(Change::JoinToken { id: token_id, token: Some(token) });
    }
    let ids: Vec<i32> = osds.into_iter().map(|(osd, _)| osd).collect();
    Ok(answer(ctx, &wish, has_monitor, &ids, &keys))
}

/// The key that a host has for itself.
fn own_entity(host: &str) -> AuthName {
    AuthName::new(EntityKind::CLIENT, format!("host-{host}"))
}

fn answer(
    ctx: &Ctx<'_>,
    wish: &Wish,
    has_monitor: bool,
    ids: &[i32],
    keys: &BTreeMap<String, AuthEntity>,
) -> Answer {
    let monitors = ctx.state.monmap.by_rank().filter_map(|(_, mon)| mon.addrs.msgr2()?.socket);
    let keys = keys.iter().map(|(name, entity)| {
        object! { "name" => name.as_str(), "key" => entity.key.to_base64(), "caps" => Json::strings(&entity.caps) }
    });
    let osds = ids.iter().zip(&wish.osds);
    ctx.show_json(object! {
        "fsid" => ctx.state.monmap.fsid.to_string(),
        "name" => wish.name.as_str(),
        "monitor" => has_monitor,
        "monitors" => Json::array(monitors.map(|addr| addr.to_string())),
        "osds" => Json::array(osds.map(|(id, osd)| object! { "id" => *id, "uuid" => osd.uuid.to_string() })),
        "keys" => Json::array(keys),
    })
}

/// The token whose key the caller has.
fn token(ctx: &Ctx<'_>) -> Result<(String, Token), Answer> {
    let id = join_token::id_of(ctx.caller);
    let found = id.and_then(|id| Some((id.to_owned(), ctx.state.joining.tokens.get(id)?.clone())));
    let Some((id, token)) = found else {
        let text = format!(
            "{} is the key of no token that is in force: join with what `shoal token create` prints",
            ctx.caller
        );
        return Err(Answer::error(EPERM, text));
    };
    if token.expires <= ctx.now {
        let text =
            format!("the token {id} expired at {}. Make another: shoal token create", stamp(token.expires));
        return Err(Answer::error(EPERM, text));
    }
    Ok((id, token))
}

fn check_clock(ctx: &Ctx<'_>) -> Result<(), Answer> {
    let theirs = ctx.args.int("clock").unwrap_or(0);
    let off = theirs - i64::from(ctx.now.sec);
    if off.unsigned_abs() <= CLOCK_OFF_S_MAX {
        return Ok(());
    }
    let text = format!(
        "this host's clock is {} s {} that of the monitors: set it (`timedatectl set-ntp true`, or chrony) and repeat",
        off.unsigned_abs(),
        if off > 0 { "ahead of" } else { "behind" }
    );
    Err(Answer::invalid(text))
}

/// True if the host has joined before, under this name.
fn check_name(ctx: &Ctx<'_>, wish: &Wish) -> Result<bool, Answer> {
    let name = &wish.name;
    if !edit::is_valid_name(name) || name.contains('.') {
        let text = format!("{name} is no name for a host: letters, digits, - and _. Choose one with --name");
        return Err(Answer::invalid(text));
    }
    let state = ctx.state;
    match state.joining.hosts.get(name) {
        Some(host) if host.id == wish.id => return Ok(true),
        Some(host) => {
            let text = format!(
                "a host {name} is in the cluster already, at {}. Choose another name with --name, or remove that host first: \
                 shoal leave --host {name} --dead",
                host.addr
            );
            return Err(Answer::error(EEXIST, text));
        }
        None => {}
    }
    // Its key is somebody's, and may open more than a host's.
    if state.auth.entities.contains_key(&own_entity(name)) {
        let text = format!("{} is there already: choose another name with --name", own_entity(name));
        return Err(Answer::error(EEXIST, text));
    }
    let crush = &state.osdmap().crush;
    if let Some(item) = edit::item_id(crush, name) {
        let is_host = edit::type_id(crush, "host") == Some(crate::crush::kind_of(crush, item));
        if !is_host || !crate::crush::leaves(crush, item).is_empty() {
            let text = format!(
                "the CRUSH map has a {} {name} already, with other OSDs: choose another name with --name",
                crate::crush::type_name(crush, crate::crush::kind_of(crush, item))
            );
            return Err(Answer::error(EEXIST, text));
        }
    }
    let of_monitor = state.monmap.mons.get(name).and_then(|mon| mon.addrs.msgr2()?.socket);
    if of_monitor.is_some_and(|at: SocketAddr| at.ip() != wish.addr) {
        let text = format!("a monitor {name} is at another address already: choose another name with --name");
        return Err(Answer::error(EEXIST, text));
    }
    Ok(false)
}

/// The host is to have a monitor. It has its name. Whoever gets one gets all keys, so the token must allow it, or the host has one.
fn wants_monitor(
    ctx: &Ctx<'_>,
    wish: &Wish,
    is_known: bool,
    token_id: &str,
    token: &Token,
) -> Result<bool, Answer> {
    let state = ctx.state;
    if is_known && state.joining.hosts.get(&wish.name).is_some_and(|host| host.monitor) {
        return Ok(true);
    }
    if state.monmap.mons.contains_key(&wish.name) {
        let text = format!(
            "the monitor {} is of the cluster, and the token {token_id} is for hosts without one: choose another name with \
             --name, or make another token: shoal token create --mons",
            wish.name
        );
        return if token.mons { Ok(true) } else { Err(Answer::error(EPERM, text)) };
    }
    let is_on_its_way =
        |(name, host): &(&String, &Host)| host.monitor && !state.monmap.mons.contains_key(*name);
    let count = state.monmap.mons.len() + state.joining.hosts.iter().filter(is_on_its_way).count();
    match wish.monitor {
        Some(true) if !token.mons => {
            let text = format!(
                "the token {token_id} adds no monitors: join with --no-mon, or make another: shoal token create --mons"
            );
            Err(Answer::error(EPERM, text))
        }
        Some(true) if count >= MONITORS_MAX => {
            let text = format!("the cluster has {count} monitors, which is enough: join with --no-mon");
            Err(Answer::error(EBUSY, text))
        }
        Some(wanted) => Ok(wanted),
        None => Ok(token.mons && count < MONITORS_WANTED),
    }
}

/// Makes the host's OSDs that are new, and puts them below its bucket. Returns the numbers of all that were asked for; true: it is
/// new.
fn add_osds(ctx: &mut Ctx<'_>, wish: &Wish) -> Result<Vec<(i32, bool)>, Answer> {
    let map = ctx.state.osdmap();
    let mut crush = (*map.crush).clone();
    let mut step = step_after(map, ctx.now);
    let place: Location =
        [("host", wish.name.as_str()), ("root", ROOT)].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let refused = |error: edit::EditError| Answer::error(error.errno(), error.message);
    place_host(&mut crush, &wish.name).map_err(refused)?;
    let mut ids: Vec<(i32, bool)> = Vec::new();
    for osd in &wish.osds {
        let (id, is_new) = match map.osd_ids().find(|&id| map.osds[id as usize].uuid == osd.uuid) {
            Some(id) => (id, false),
            None => (free_id(map, &ids), true),
        };
        ids.push((id, is_new));
        if !is_new {
            if edit::is_at(&crush, id, &place).is_none() {
                let text = format!("osd.{id} of {} is in another place of the CRUSH map", osd.uuid);
                return Err(Answer::error(EEXIST, text));
            }
            continue;
        }
        // A destroyed OSD's row becomes a new one's.
        let now = map.osds.get(id as usize).map_or(0, |row| row.state.0);
        step.new_state.insert(id, (OsdState::EXISTS | OsdState::NEW) ^ now);
        step.new_weight.insert(id, 0);
        step.new_uuid.insert(id, osd.uuid);
        let weight = edit::fixed_point((osd.bytes as f64 / TIB) as f32).map_err(refused)?;
        edit::create_or_move(&mut crush, id, weight, &format!("osd.{id}"), &place, true).map_err(refused)?;
        edit::set_device_class(&mut crush, id, &osd.class).map_err(refused)?;
    }
    if let Some(last) = ids.iter().map(|(id, _)| *id).max().filter(|last| *last >= map.max_osd()) {
        step.new_max_osd = Some(last + 1);
    }
    if crush != *map.crush {
        step.set_crush(&crush, wire::features::SUPPORTED);
    }
    if !step.new_state.is_empty() || !step.crush.is_empty() {
        let change = sealed(step, map).ok_or_else(|| Answer::invalid("the change does not fit the map"))?;
        ctx.changes.push(change);
    }
    Ok(ids)
}

/// The lowest number that no OSD has.
fn free_id(map: &OsdMap, taken: &[(i32, bool)]) -> i32 {
    (0..)
        .find(|id| !map.exists(*id) && taken.iter().all(|(other, _)| other != id))
        .expect("numbers do not run out")
}

/// The host's bucket below the root, without OSDs if it is new.
fn place_host(crush: &mut CrushMap, name: &str) -> Result<(), edit::EditError> {
    if edit::item_id(crush, name).is_some() {
        return Ok(());
    }
    let kind = edit::type_id(crush, "host").unwrap_or(1);
    let id = edit::add_bucket(crush, name, kind as u16)?;
    edit::move_bucket(crush, id, &[("root".to_owned(), ROOT.to_owned())].into())
}

/// The key that reads the key of an encrypted OSD's store goes to the host. The store's key is made here, once.
fn give_lockbox(ctx: &mut Ctx<'_>, keys: &mut BTreeMap<String, AuthEntity>, osd: Uuid) -> Result<(), Answer> {
    let caps = lockbox::caps(osd);
    let caps: Vec<(&str, &str)> = caps.iter().map(|(service, text)| (*service, text.as_str())).collect();
    give_key(ctx, keys, lockbox::entity(osd), &caps, false)?;
    let key = lockbox::key_path(osd);
    if !ctx.state.config_keys.contains_key(&key) {
        let secret: [u8; STORE_KEY_BYTES] = ctx.random.bytes();
        let value = Some(BASE64_STANDARD.encode(secret).into());
        ctx.changes.push(Change::ConfigKey { key, value });
    }
    Ok(())
}

/// The entity's key goes to the host. One that is new, or that is a new daemon's, gets a key that nobody has had.
fn give_key(
    ctx: &mut Ctx<'_>,
    keys: &mut BTreeMap<String, AuthEntity>,
    name: AuthName,
    caps: &[(&str, &str)],
    is_new: bool,
) -> Result<(), Answer> {
    let known = ctx.state.auth.entities.get(&name).filter(|_| !is_new).cloned();
    let entity = match known {
        Some(entity) => entity,
        None => {
            let caps =
                caps.iter().map(|(service, text)| ((*service).to_owned(), (*text).to_owned())).collect();
            let entity = AuthEntity::new(super::auth::new_key_of_any_kind(ctx)?, caps);
            ctx.changes.push(Change::AuthSet { name: name.clone(), entity: entity.clone() });
            entity
        }
    };
    keys.insert(name.to_string(), entity);
    Ok(())
}
