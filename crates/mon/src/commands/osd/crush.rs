//! `ceph osd crush …`: the hierarchy, its weights, classes, rules and tunables.

use super::{propose, step, tree};
use crate::commands::{Answer, Command, Ctx, Outcome, commands};
use crate::crush;
use codec::{Decode, Reader};
use command::errno::{EBUSY, EEXIST, EINVAL, ENOENT, ENOTEMPTY};
use command::{Json, json::general, object, parse_osd};
use placement::crush::edit::{self, EditError, Location, Mode, NewRule};
use wire::types::crush::{Rule, step as rule_step};
use wire::types::{CrushMap, OsdMap};

pub(in crate::commands) const COMMANDS: &[Command] = commands! {
    "osd crush dump", "show the CRUSH map", "osd", "r", dump;
    "osd crush tree name=show_shadow,type=CephChoices,strings=--show-shadow,req=false", "show the hierarchy", "osd", "r", show_tree;
    "osd crush ls name=node,type=CephString,goodchars=[A-Za-z0-9-_.]", "list what is right below a bucket", "osd", "r", ls;
    "osd crush add-bucket name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=],req=false",
        "make an empty bucket", "osd", "rw", add_bucket;
    "osd crush rename-bucket name=srcname,type=CephString,goodchars=[A-Za-z0-9-_.] name=dstname,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "rename a bucket", "osd", "rw", rename_bucket;
    "osd crush set name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "put an OSD at a place with a weight", "osd", "rw", set;
    "osd crush add name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "put an OSD at a place with a weight", "osd", "rw", set;
    "osd crush create-or-move name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "put an OSD at a place; keep its weight when it has one", "osd", "rw", create_or_move;
    "osd crush move name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "move a bucket or an OSD", "osd", "rw", move_item;
    "osd crush link name=name,type=CephString name=args,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=]",
        "put a bucket at a second place", "osd", "rw", link;
    "osd crush rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=ancestor,type=CephString,req=false,goodchars=[A-Za-z0-9-_.]",
        "remove a bucket or an OSD from the hierarchy", "osd", "rw", rm;
    "osd crush remove name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=ancestor,type=CephString,req=false,goodchars=[A-Za-z0-9-_.]",
        "remove a bucket or an OSD from the hierarchy", "osd", "rw", rm, Command::DEPRECATED;
    "osd crush unlink name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=ancestor,type=CephString,req=false,goodchars=[A-Za-z0-9-_.]",
        "take a bucket away from one of its places", "osd", "rw", unlink;
    "osd crush swap-bucket name=source,type=CephString,goodchars=[A-Za-z0-9-_.] name=dest,type=CephString,goodchars=[A-Za-z0-9-_.] name=yes_i_really_mean_it,type=CephBool,req=false",
        "swap existing bucket contents from (orphan) bucket <source> and <target>", "osd", "rw", swap_bucket;
    "osd crush set-all-straw-buckets-to-straw2", "convert all CRUSH current straw buckets to use the straw2 algorithm", "osd", "rw", straw_to_straw2;
    "osd crush reweight name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=weight,type=CephFloat,range=0.0",
        "change an item's weight", "osd", "rw", reweight;
    "osd crush reweight-subtree name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=weight,type=CephFloat,range=0.0",
        "give all OSDs below a bucket one weight", "osd", "rw", reweight_subtree;
    "osd crush reweight-all", "add up all buckets' weights anew", "osd", "rw", reweight_all;
    "osd crush class ls", "list device classes", "osd", "r", class_ls;
    "osd crush class ls-osd name=class,type=CephString,goodchars=[A-Za-z0-9-_]", "list the OSDs of a device class", "osd", "r", class_ls_osd;
    "osd crush get-device-class name=ids,type=CephString,n=N", "show OSDs' device classes", "osd", "r", get_device_class;
    "osd crush set-device-class name=class,type=CephString name=ids,type=CephString,n=N",
        "set OSDs' device class", "osd", "rw", set_device_class;
    "osd crush rm-device-class name=ids,type=CephString,n=N", "take OSDs' device class away", "osd", "rw", rm_device_class;
    "osd crush rule ls", "list rules", "osd", "r", rule_ls;
    "osd crush rule list", "list rules", "osd", "r", rule_ls, Command::DEPRECATED;
    "osd crush rule dump name=name,type=CephString,goodchars=[A-Za-z0-9-_.],req=false", "show rules", "osd", "r", rule_dump;
    "osd crush rule create-simple name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=root,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString,goodchars=[A-Za-z0-9-_.] name=mode,type=CephChoices,strings=firstn|indep,req=false",
        "make a rule that spreads copies", "osd", "rw", rule_create_simple;
    "osd crush rule create-replicated name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=root,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString,goodchars=[A-Za-z0-9-_.] name=class,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        "make a rule that spreads copies over one device class", "osd", "rw", rule_create_replicated;
    "osd crush rule rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.]", "remove a rule", "osd", "rw", rule_rm;
    "osd crush rule rename name=srcname,type=CephString,goodchars=[A-Za-z0-9-_.] name=dstname,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "rename a rule", "osd", "rw", rule_rename;
    "osd crush tunables name=profile,type=CephChoices,strings=legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default",
        "choose a tunables profile", "osd", "rw", tunables;
    "osd crush show-tunables", "show the tunables", "osd", "r", show_tunables;
    "osd crush get-tunable name=tunable,type=CephChoices,strings=straw_calc_version", "show a tunable", "osd", "r", get_tunable;
    "osd crush set-tunable name=tunable,type=CephChoices,strings=straw_calc_version name=value,type=CephInt",
        "change a tunable", "osd", "rw", set_tunable;
};

pub(super) fn refusal(error: EditError) -> Answer {
    Answer::error(error.errno(), error.message)
}

pub(super) fn propose_crush(ctx: &mut Ctx<'_>, map: &CrushMap) -> Result<(), Answer> {
    let mut step = step(ctx);
    step.set_crush(map, wire::features::SUPPORTED);
    propose(ctx, step)
}

/// Edits a copy of the map and proposes it.
pub(super) fn edited<T>(
    ctx: &mut Ctx<'_>,
    edit: impl FnOnce(&mut CrushMap) -> Result<T, EditError>,
) -> Result<T, Answer> {
    let mut map = (*ctx.state.osdmap().crush).clone();
    let out = edit(&mut map).map_err(refusal)?;
    propose_crush(ctx, &map)?;
    Ok(out)
}

/// `root=default host=a` as type to name.
fn location(ctx: &Ctx<'_>) -> Result<Location, Answer> {
    let mut location = Location::default();
    for pair in ctx.args.texts("args") {
        let Some((kind, name)) = pair.split_once('=').filter(|(k, n)| !k.is_empty() && !n.is_empty()) else {
            return Err(Answer::invalid("(22) Invalid argument"));
        };
        if edit::type_id(&ctx.state.osdmap().crush, kind).is_none() {
            return Err(Answer::invalid(format!("type '{kind}' does not exist")));
        }
        location.insert(kind.to_owned(), name.to_owned());
    }
    Ok(location)
}

fn shown(location: &Location) -> String {
    let pairs: Vec<_> = location.iter().map(|(kind, name)| format!("{kind}={name}")).collect();
    format!("{{{}}}", pairs.join(","))
}

fn weight(ctx: &Ctx<'_>) -> Result<(u32, String), Answer> {
    let value = ctx.args.float("weight").unwrap_or(0.0);
    Ok((edit::fixed_point(value as f32).map_err(refusal)?, general(value, 6)))
}

pub(super) fn set_map(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    if let Some(prior) = ctx.args.int("prior_version") {
        let now = i64::from(map.crush_version);
        if prior == now - 1 {
            return Ok(Answer::ok(map.crush_version.to_string()));
        }
        if prior != now {
            return Err(Answer::error(
                EPERM_VERSION,
                format!("prior_version {prior} != crush version {now}"),
            ));
        }
    }
    let mut r = Reader::new(ctx.input);
    let new =
        CrushMap::decode(&mut r).map_err(|e| Answer::invalid(format!("Failed to parse crushmap: {e}")))?;
    let used: Vec<u8> = map.pools.values().map(|pool| pool.crush_rule).collect();
    if let Some(missing) = used.iter().find(|rule| new.rule(u32::from(**rule)).is_none()) {
        return Err(Answer::invalid(format!(
            "Failed crushmap test: rule {missing} is used by a pool but missing"
        )));
    }
    if new.max_devices > map.max_osd() && map.max_osd() > 0 {
        let beyond = new.buckets.iter().flatten().flat_map(|b| b.items.iter()).any(|&i| i >= map.max_osd());
        if beyond {
            return Err(Answer::invalid("Failed crushmap test: a device in it is beyond max_osd"));
        }
    }
    let version = map.crush_version + 1;
    propose_crush(ctx, &new)?;
    Ok(Answer::ok(version.to_string()))
}

const EPERM_VERSION: i32 = command::errno::EPERM;

fn add_bucket(ctx: &mut Ctx<'_>) -> Outcome {
    let (name, kind) = (ctx.args.required("name")?, ctx.args.required("type")?);
    let location = location(ctx)?;
    let crush = &ctx.state.osdmap().crush;
    if edit::item_id(crush, &name).is_some() {
        return Ok(Answer::ok(format!("bucket '{name}' already exists")));
    }
    let Some(kind_id) = edit::type_id(crush, &kind) else {
        return Err(Answer::invalid(format!("type '{kind}' does not exist")));
    };
    if kind_id == 0 {
        return Err(Answer::invalid("type osd is reserved for devices only"));
    }
    if !edit::is_valid_name(&name) {
        return Err(Answer::invalid(format!("bucket name '{name}' is not valid")));
    }
    edited(ctx, |map| {
        let id = edit::add_bucket(map, &name, kind_id as u16)?;
        if !location.is_empty() {
            edit::move_bucket(map, id, &location)?;
        }
        Ok(())
    })?;
    Ok(Answer::ok(match location.is_empty() {
        true => format!("added bucket {name} type {kind} to crush map"),
        false => format!("added bucket {name} type {kind} to location {}", shown(&location)),
    }))
}

fn rename_bucket(ctx: &mut Ctx<'_>) -> Outcome {
    let (source, target) = (ctx.args.required("srcname")?, ctx.args.required("dstname")?);
    edited(ctx, |map| edit::rename_bucket(map, &source, &target))?;
    Ok(Answer::ok(format!("renamed bucket {source} into {target}")))
}

/// The OSD that gets a place.
fn placeable(ctx: &Ctx<'_>) -> Result<i32, Answer> {
    let osd = ctx.args.osd("id")?.0;
    let missing = || format!("osd.{osd} does not exist.  create it before updating the crush map");
    if ctx.state.osdmap().exists(osd) { Ok(osd) } else { Err(Answer::error(ENOENT, missing())) }
}

fn set(ctx: &mut Ctx<'_>) -> Outcome {
    let osd = placeable(ctx)?;
    let name = format!("osd.{osd}");
    let (weight, text) = weight(ctx)?;
    let location = location(ctx)?;
    let changed = {
        let mut map = (*ctx.state.osdmap().crush).clone();
        let changed = edit::update(&mut map, osd, weight, &name, &location).map_err(refusal)?;
        if changed {
            propose_crush(ctx, &map)?;
        }
        changed
    };
    let verb = if ctx.args.text("prefix").as_deref() == Some("osd crush add") { "add" } else { "set" };
    let place = shown(&location);
    Ok(Answer::ok(match changed {
        true => format!("{verb} item id {osd} name '{name}' weight {text} at location {place} to crush map"),
        false => format!("set item id {osd} name '{name}' weight {text} at location {place}: no change"),
    }))
}

fn create_or_move(ctx: &mut Ctx<'_>) -> Outcome {
    let osd = placeable(ctx)?;
    let name = format!("osd.{osd}");
    let (weight, text) = weight(ctx)?;
    let location = location(ctx)?;
    let mut map = (*ctx.state.osdmap().crush).clone();
    edit::create_or_move(&mut map, osd, weight, &name, &location, true).map_err(refusal)?;
    let done = match map == *ctx.state.osdmap().crush {
        true => "updated",
        false => {
            propose_crush(ctx, &map)?;
            "updating"
        }
    };
    Ok(Answer::ok(format!(
        "create-or-move {done} item name '{name}' weight {text} at location {} to crush map",
        shown(&location)
    )))
}

fn wanted_item(ctx: &Ctx<'_>) -> Result<(i32, String), Answer> {
    let name = ctx.args.required("name")?;
    match edit::item_id(&ctx.state.osdmap().crush, &name) {
        Some(id) => Ok((id, name)),
        None => Err(Answer::error(ENOENT, format!("item {name} does not exist"))),
    }
}

fn move_item(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, name) = wanted_item(ctx)?;
    let location = location(ctx)?;
    if edit::is_at(&ctx.state.osdmap().crush, id, &location).is_some() {
        let text = format!(
            "no need to move item id {id} name '{name}' to location {} in crush map",
            shown(&location)
        );
        return Ok(Answer::ok(text));
    }
    edited(ctx, |map| {
        if id >= 0 {
            let weight = edit::weight_of(map, id).unwrap_or(0);
            edit::create_or_move(map, id, weight, &name, &location, true).map(drop)
        } else {
            edit::move_bucket(map, id, &location)
        }
    })?;
    Ok(Answer::ok(format!("moved item id {id} name '{name}' to location {} in crush map", shown(&location))))
}

fn link(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, name) = wanted_item(ctx)?;
    let location = location(ctx)?;
    if edit::is_at(&ctx.state.osdmap().crush, id, &location).is_some() {
        let text = format!(
            "no need to move item id {id} name '{name}' to location {} in crush map",
            shown(&location)
        );
        return Ok(Answer::ok(text));
    }
    edited(ctx, |map| edit::link_bucket(map, id, &location))?;
    Ok(Answer::ok(format!("linked item id {id} name '{name}' to location {} in crush map", shown(&location))))
}

fn take_away(ctx: &mut Ctx<'_>, unlink_only: bool) -> Outcome {
    let name = ctx.args.required("name")?;
    let crush = &ctx.state.osdmap().crush;
    let Some(id) = edit::item_id(crush, &name) else {
        return Ok(Answer::ok(format!("device '{name}' does not appear in the crush map")));
    };
    let ancestor = match ctx.args.text("ancestor") {
        None => None,
        Some(text) => {
            let found = edit::item_id(crush, &text);
            Some(found.ok_or_else(|| {
                Answer::error(ENOENT, format!("ancestor item '{text}' does not appear in the crush map"))
            })?)
        }
    };
    if id < 0 && !unlink_only && crush.bucket(id).is_some_and(|bucket| !bucket.items.is_empty()) {
        return Err(Answer::error(ENOTEMPTY, "(39) Directory not empty"));
    }
    edited(ctx, |map| match ancestor {
        Some(ancestor) => edit::remove_under(map, id, ancestor, unlink_only),
        None => edit::remove(map, id, unlink_only),
    })?;
    Ok(Answer::ok(format!("removed item id {id} name '{name}' from crush map")))
}

fn rm(ctx: &mut Ctx<'_>) -> Outcome {
    take_away(ctx, false)
}

fn unlink(ctx: &mut Ctx<'_>) -> Outcome {
    take_away(ctx, true)
}

fn swap_bucket(ctx: &mut Ctx<'_>) -> Outcome {
    let (source, dest) = (ctx.args.required("source")?, ctx.args.required("dest")?);
    let crush = &ctx.state.osdmap().crush;
    let bucket = |role: &str, name: &str| match edit::item_id(crush, name) {
        Some(id) if id < 0 => Ok(id),
        Some(_) => Err(Answer::invalid(format!("{role} item {name} is not a bucket"))),
        None => Err(Answer::error(ENOENT, format!("{role} item {name} does not exist"))),
    };
    let (source_id, dest_id) = (bucket("source", &source)?, bucket("dest", &dest)?);
    let source_parent = crush::parent_of(crush, source_id);
    if source_parent.is_some() && !ctx.args.flag("yes_i_really_mean_it") {
        let text = format!(
            "source item {source} is not an orphan bucket; pass --yes-i-really-mean-it to proceed anyway"
        );
        return Err(Answer::error(EPERM_VERSION, text));
    }
    if crush::ancestors(crush, source_id).contains(&dest_id)
        || crush::ancestors(crush, dest_id).contains(&source_id)
    {
        return Err(Answer::invalid("failed to swap bucket contents: (22) Invalid argument"));
    }
    edited(ctx, |map| edit::swap_buckets(map, source_id, dest_id))?;
    Ok(Answer::ok(format!("swapped bucket of {source} to {dest}")))
}

fn straw_to_straw2(ctx: &mut Ctx<'_>) -> Outcome {
    let mut map = (*ctx.state.osdmap().crush).clone();
    if edit::straw_to_straw2(&mut map).map_err(refusal)? {
        propose_crush(ctx, &map)?;
    }
    Ok(Answer::default())
}

fn reweight(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let Some(id) = edit::item_id(&ctx.state.osdmap().crush, &name) else {
        return Err(Answer::error(ENOENT, format!("device '{name}' does not appear in the crush map")));
    };
    if id < 0 {
        return Err(Answer::invalid(format!("device '{name}' is not a leaf in the crush map")));
    }
    let (weight, text) = weight(ctx)?;
    edited(ctx, |map| edit::reweight(map, id, weight, true))?;
    Ok(Answer::ok(format!("reweighted item id {id} name '{name}' to {text} in crush map")))
}

fn reweight_subtree(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let Some(id) = edit::item_id(&ctx.state.osdmap().crush, &name) else {
        return Err(Answer::error(ENOENT, format!("device '{name}' does not appear in the crush map")));
    };
    if id >= 0 {
        return Err(Answer::invalid(format!("device '{name}' is not a subtree in the crush map")));
    }
    let (weight, text) = weight(ctx)?;
    edited(ctx, |map| edit::reweight_subtree(map, id, weight))?;
    Ok(Answer::ok(format!("reweighted subtree id {id} name '{name}' to {text} in crush map")))
}

fn reweight_all(ctx: &mut Ctx<'_>) -> Outcome {
    edited(ctx, edit::reweight_all)?;
    Ok(Answer::ok("reweighted crush hierarchy"))
}

fn ls(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("node")?;
    let crush = &ctx.state.osdmap().crush;
    let Some(id) = edit::item_id(crush, &name) else {
        return Err(Answer::error(ENOENT, format!("node '{name}' does not exist")));
    };
    let items = match crush.bucket(id) {
        Some(bucket) => bucket.items.clone(),
        None => vec![id],
    };
    let names: Vec<String> = items.into_iter().map(|item| crush::name_of(crush, item)).collect();
    Ok(ctx.show(
        || Json::array(names.iter().map(String::as_str)),
        || names.iter().map(|name| format!("{name}\n")).collect(),
    ))
}

fn show_tree(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    let shadow = ctx.args.get("show_shadow").is_some();
    let items = edit::tree(&map.crush, shadow, |_| true);
    Ok(ctx.show(|| tree::json(map, &items, &[], false), || tree::plain(map, &items, &[], false)))
}

// ---- classes ----

fn class_ls(ctx: &mut Ctx<'_>) -> Outcome {
    let names = ctx.state.osdmap().crush.class_names.values().map(String::as_str);
    let json = Json::array(names);
    Ok(ctx.show_json(json))
}

fn class_ls_osd(ctx: &mut Ctx<'_>) -> Outcome {
    let class = ctx.args.required("class")?;
    let map = ctx.state.osdmap();
    if edit::class_id(&map.crush, &class).is_none() {
        return Err(Answer::error(ENOENT, format!("class '{class}' does not exist")));
    }
    let osds: Vec<i32> =
        map.osd_ids().filter(|&osd| crush::class_of(&map.crush, osd) == Some(class.as_str())).collect();
    Ok(ctx.show(|| Json::array(osds.iter().copied()), || osds.iter().map(|osd| format!("{osd}\n")).collect()))
}

fn wanted_osds(ctx: &Ctx<'_>) -> Result<Vec<i32>, Answer> {
    let map = ctx.state.osdmap();
    let ids = ctx.args.texts("ids");
    if ids.first().is_some_and(|id| ["all", "any", "*"].contains(&id.as_str())) {
        return Ok(map.osd_ids().collect());
    }
    let osds: Result<Vec<i32>, Answer> = ids.iter().map(|id| parse_osd(id).map(|osd| osd.0)).collect();
    let osds = osds?;
    match osds.iter().find(|&&osd| !map.exists(osd)) {
        Some(osd) => Err(Answer::error(ENOENT, format!("osd.{osd} does not exist"))),
        None => Ok(osds),
    }
}

fn get_device_class(ctx: &mut Ctx<'_>) -> Outcome {
    let osds = wanted_osds(ctx)?;
    let map = ctx.state.osdmap();
    let class = |osd: i32| crush::class_of(&map.crush, osd).unwrap_or_default().to_owned();
    let json = || Json::array(osds.iter().map(|&osd| object! { "osd" => osd, "device_class" => class(osd) }));
    let plain = || match osds.as_slice() {
        [one] => class(*one) + "\n",
        many => many.iter().map(|&osd| format!("osd.{osd}: {}\n", class(osd))).collect(),
    };
    Ok(ctx.show(json, plain))
}

fn osd_names(osds: &[i32]) -> String {
    osds.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

fn set_device_class(ctx: &mut Ctx<'_>) -> Outcome {
    let class = ctx.args.required("class")?;
    let osds = wanted_osds(ctx)?;
    let map = ctx.state.osdmap();
    let mut new = (*map.crush).clone();
    for &osd in &osds {
        let now = crush::class_of(&map.crush, osd);
        if now.is_some_and(|now| now != class) {
            let text = format!(
                "osd.{osd} has already bound to class '{}', can not reset class to '{class}'; use 'ceph osd crush rm-device-class <id>' to remove old class first",
                now.unwrap_or_default()
            );
            return Err(Answer::error(EBUSY, text));
        }
        edit::set_device_class(&mut new, osd, &class).map_err(refusal)?;
    }
    if new != *map.crush {
        propose_crush(ctx, &new)?;
    }
    Ok(Answer::ok(format!("set osd(s) {} to class '{class}'", osd_names(&osds))))
}

fn rm_device_class(ctx: &mut Ctx<'_>) -> Outcome {
    let osds = wanted_osds(ctx)?;
    let map = ctx.state.osdmap();
    let mut new = (*map.crush).clone();
    let mut gone = Vec::new();
    for &osd in &osds {
        if edit::remove_device_class(&mut new, osd).map_err(refusal)? {
            gone.push(osd);
        }
    }
    if new != *map.crush {
        propose_crush(ctx, &new)?;
    }
    Ok(Answer::ok(format!("done removing class of osd(s): {}", osd_names(&gone))))
}

// ---- rules ----

fn rule_ls(ctx: &mut Ctx<'_>) -> Outcome {
    let crush = &ctx.state.osdmap().crush;
    let names = || {
        let used = (0..crush.rules.len()).filter(|id| crush.rules[*id].is_some());
        used.map(|id| crush.rule_names.get(&(id as i32)).map_or("", String::as_str))
    };
    Ok(ctx.show(|| Json::array(names()), || names().map(|name| format!("{name}\n")).collect()))
}

fn rule_json(map: &CrushMap, id: usize, rule: &Rule) -> Json {
    let steps = rule.steps.iter().map(|s| {
        let choose = |op: &'static str| {
            object! { "op" => op, "num" => s.arg1, "type" => crush::type_name(map, s.arg2) }
        };
        let set = |op: &'static str| object! { "op" => op, "num" => s.arg1 };
        match s.op {
            rule_step::NOOP => object! { "op" => "noop" },
            rule_step::TAKE => object! {
                "op" => "take",
                "item" => s.arg1,
                "item_name" => crush::name_of(map, s.arg1),
            },
            rule_step::EMIT => object! { "op" => "emit" },
            rule_step::CHOOSE_FIRSTN => choose("choose_firstn"),
            rule_step::CHOOSE_INDEP => choose("choose_indep"),
            rule_step::CHOOSELEAF_FIRSTN => choose("chooseleaf_firstn"),
            rule_step::CHOOSELEAF_INDEP => choose("chooseleaf_indep"),
            rule_step::CHOOSE_MSR => choose("choosemsr"),
            rule_step::SET_CHOOSE_TRIES => set("set_choose_tries"),
            rule_step::SET_CHOOSELEAF_TRIES => set("set_chooseleaf_tries"),
            other => object! { "opcode" => other, "arg1" => s.arg1, "arg2" => s.arg2 },
        }
    });
    object! {
        "rule_id" => id,
        "rule_name" => map.rule_names.get(&(id as i32)).cloned().unwrap_or_default(),
        "type" => rule.kind,
        "steps" => Json::array(steps),
    }
}

fn rules_json(map: &CrushMap) -> Json {
    let rules = map.rules.iter().enumerate().filter_map(|(id, rule)| Some((id, rule.as_ref()?)));
    Json::array(rules.map(|(id, rule)| rule_json(map, id, rule)))
}

fn rule_dump(ctx: &mut Ctx<'_>) -> Outcome {
    let crush = &ctx.state.osdmap().crush;
    let json = match ctx.args.text("name") {
        None => rules_json(crush),
        Some(name) => {
            let id = edit::rule_id(crush, &name)
                .ok_or_else(|| Answer::error(ENOENT, format!("unknown crush rule '{name}'")))?;
            let rule = crush.rule(id).ok_or_else(|| Answer::error(ENOENT, "no such rule"))?;
            rule_json(crush, id as usize, rule)
        }
    };
    Ok(ctx.show_json(json))
}

const RULE_REPLICATED: u8 = 1;

fn create_rule(ctx: &mut Ctx<'_>, mode: Mode, class: String) -> Outcome {
    let (name, root, kind) =
        (ctx.args.required("name")?, ctx.args.required("root")?, ctx.args.required("type")?);
    if edit::rule_id(&ctx.state.osdmap().crush, &name).is_some() {
        return Ok(Answer::ok(format!("rule {name} already exists")));
    }
    edited(ctx, |map| {
        let new = NewRule {
            name: &name,
            root: &root,
            failure_domain: if kind == "osd" { "" } else { &kind },
            failure_domains: 0,
            device_class: &class,
        };
        edit::add_rule(map, new, mode, RULE_REPLICATED)
    })?;
    Ok(Answer::default())
}

fn rule_create_simple(ctx: &mut Ctx<'_>) -> Outcome {
    let mode = match ctx.args.text("mode").as_deref() {
        Some("indep") => Mode::Indep,
        _ => Mode::Firstn,
    };
    create_rule(ctx, mode, String::new())
}

fn rule_create_replicated(ctx: &mut Ctx<'_>) -> Outcome {
    let class = ctx.args.text("class").unwrap_or_default();
    create_rule(ctx, Mode::Firstn, class)
}

fn rule_rm(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("name")?;
    let map = ctx.state.osdmap();
    let Some(id) = edit::rule_id(&map.crush, &name) else {
        return Ok(Answer::ok(format!("rule {name} does not exist")));
    };
    if map.pools.values().any(|pool| u32::from(pool.crush_rule) == id) {
        return Err(Answer::error(EBUSY, format!("crush rule {name} ({id}) is in use")));
    }
    edited(ctx, |map| edit::remove_rule(map, id))?;
    Ok(Answer::default())
}

fn rule_rename(ctx: &mut Ctx<'_>) -> Outcome {
    let (source, target) = (ctx.args.required("srcname")?, ctx.args.required("dstname")?);
    let crush = &ctx.state.osdmap().crush;
    match (edit::rule_id(crush, &source), edit::rule_id(crush, &target)) {
        (None, Some(_)) => return Ok(Answer::ok("already renamed")),
        (Some(_), Some(_)) => {
            let text = format!("destination rule name '{target}' already exists");
            return Err(Answer::error(EEXIST, text));
        }
        _ => {}
    }
    edited(ctx, |map| edit::rename_rule(map, &source, &target))?;
    Ok(Answer::default())
}

// ---- tunables, dump ----

fn tunables(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("profile")?;
    let now = &ctx.state.osdmap().crush.tunables;
    let profile = edit::profile(&name, now)
        .ok_or_else(|| Answer::error(EINVAL, format!("unrecognized profile '{name}'")))?;
    let mut map = (*ctx.state.osdmap().crush).clone();
    map.tunables = profile;
    propose_crush(ctx, &map)?;
    Ok(Answer::ok(format!("adjusted tunables profile to {name}")))
}

fn get_tunable(ctx: &mut Ctx<'_>) -> Outcome {
    let value = ctx.state.osdmap().crush.tunables.straw_calc_version;
    Ok(ctx.show(|| object! { "straw_calc_version" => value }, || format!("{value}\n")))
}

fn set_tunable(ctx: &mut Ctx<'_>) -> Outcome {
    let value = ctx.args.int("value").unwrap_or(-1);
    if !(0..=2).contains(&value) {
        return Err(Answer::invalid("value must be 0, 1, or 2; got ")
            .with_status(format!("value must be 0, 1, or 2; got {value}")));
    }
    let mut map = (*ctx.state.osdmap().crush).clone();
    map.tunables.straw_calc_version = value as u8;
    propose_crush(ctx, &map)?;
    Ok(Answer::ok(format!("adjusted tunable straw_calc_version to {value}")))
}

fn tunables_json(map: &CrushMap) -> Json {
    let t = &map.tunables;
    let profile = edit::profile_name(t);
    let has_classes = false;
    let has_straw2 =
        map.buckets.iter().flatten().any(|b| b.algorithm() == wire::types::crush::Algorithm::Straw2);
    let has = |wanted: &[u32]| {
        u32::from(map.rules.iter().flatten().any(|r| r.steps.iter().any(|s| wanted.contains(&s.op))))
    };
    let _ = has_classes;
    object! {
        "choose_local_tries" => t.choose_local_tries,
        "choose_local_fallback_tries" => t.choose_local_fallback_tries,
        "choose_total_tries" => t.choose_total_tries,
        "chooseleaf_descend_once" => t.chooseleaf_descend_once,
        "chooseleaf_vary_r" => t.chooseleaf_vary_r,
        "chooseleaf_stable" => t.chooseleaf_stable,
        "msr_descents" => t.msr_descents,
        "msr_collision_tries" => t.msr_collision_tries,
        "straw_calc_version" => t.straw_calc_version,
        "allowed_bucket_algs" => t.allowed_bucket_algs,
        "profile" => profile,
        "optimal_tunables" => u32::from(profile == "jewel"),
        "legacy_tunables" => u32::from(profile == "argonaut"),
        "minimum_required_version" => if profile == "unknown" { "jewel" } else { profile },
        "require_feature_tunables" => u32::from(t.choose_local_tries != 2),
        "require_feature_tunables2" => u32::from(t.chooseleaf_descend_once != 0),
        "has_v2_rules" => has(&[rule_step::CHOOSE_INDEP, rule_step::CHOOSELEAF_INDEP, rule_step::SET_CHOOSE_TRIES, rule_step::SET_CHOOSELEAF_TRIES]),
        "require_feature_tunables3" => u32::from(t.chooseleaf_vary_r != 0),
        "has_v3_rules" => 0u32,
        "has_v4_buckets" => u32::from(has_straw2),
        "require_feature_tunables5" => u32::from(t.chooseleaf_stable != 0),
        "has_v5_rules" => 0u32,
        "has_msr_rules" => u32::from(map.rules.iter().flatten().any(|r| r.is_msr())),
    }
}

fn show_tunables(ctx: &mut Ctx<'_>) -> Outcome {
    let json = tunables_json(&ctx.state.osdmap().crush);
    Ok(ctx.show_json(json))
}

fn dump(ctx: &mut Ctx<'_>) -> Outcome {
    let json = crush_json(ctx.state.osdmap());
    Ok(ctx.show_json(json))
}

fn crush_json(map: &OsdMap) -> Json {
    let crush = &map.crush;
    let devices = crush.item_names.iter().filter(|(id, _)| **id >= 0).map(|(id, name)| {
        let mut json = object! { "id" => *id, "name" => name.as_str() };
        if let Some(class) = crush::class_of(crush, *id) {
            json.push("class", class);
        }
        json
    });
    let types =
        crush.type_names.iter().map(|(id, name)| object! { "type_id" => *id, "name" => name.as_str() });
    let buckets = crush.buckets.iter().flatten().map(|b| {
        let items = b.items.iter().enumerate().map(|(position, item)| {
            object! { "id" => *item, "weight" => b.item_weight(position), "pos" => position }
        });
        object! {
            "id" => b.id,
            "name" => crush::name_of(crush, b.id),
            "type_id" => b.kind,
            "type_name" => crush::type_name(crush, i32::from(b.kind)),
            "weight" => b.weight,
            "alg" => algorithm(b.algorithm()),
            "hash" => "rjenkins1",
            "items" => Json::array(items),
        }
    });
    object! {
        "devices" => Json::array(devices),
        "types" => Json::array(types),
        "buckets" => Json::array(buckets),
        "rules" => rules_json(crush),
        "tunables" => tunables_json(crush),
        "choose_args" => super::weight_sets::choose_args_json(map),
    }
}

fn algorithm(algorithm: wire::types::crush::Algorithm) -> &'static str {
    use wire::types::crush::Algorithm;
    match algorithm {
        Algorithm::Uniform => "uniform",
        Algorithm::List => "list",
        Algorithm::Tree => "tree",
        Algorithm::Straw => "straw",
        Algorithm::Straw2 => "straw2",
    }
}
