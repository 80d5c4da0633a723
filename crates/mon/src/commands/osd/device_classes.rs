//! `osd crush class …` and rules of a class: device classes that are made, renamed and removed by hand.

use super::crush::{edited, refusal};
use crate::commands::{Answer, Command, Ctx, Outcome, commands};
use command::Json;
use command::errno::{EBUSY, ENOENT};
use placement::crush::edit;
use wire::types::CrushMap;
use wire::types::crush::step;

pub(in crate::commands) const COMMANDS: &[Command] = commands! {
    "osd crush class create name=class,type=CephString,goodchars=[A-Za-z0-9-_.]", "create crush device class <class>", "osd", "rw", create;
    "osd crush class rename name=srcname,type=CephString,goodchars=[A-Za-z0-9-_] name=dstname,type=CephString,goodchars=[A-Za-z0-9-_]",
        "rename crush device class <srcname> to <dstname>", "osd", "rw", rename;
    "osd crush class rm name=class,type=CephString,goodchars=[A-Za-z0-9-_.]", "remove crush device class <class>", "osd", "rw", rm;
    "osd crush rule ls-by-class name=class,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "list all crush rules that reference the same <class>", "osd", "r", rules_of_class;
};

fn create(ctx: &mut Ctx<'_>) -> Outcome {
    let class = ctx.args.required("class")?;
    if edit::class_id(&ctx.state.osdmap().crush, &class).is_some() {
        return Ok(Answer::ok(format!("class '{class}' already exists")));
    }
    let id = edited(ctx, |map| Ok(edit::class_or_new(map, &class)))?;
    Ok(Answer::ok(format!("created class {class} with id {id} to crush map")))
}

fn rename(ctx: &mut Ctx<'_>) -> Outcome {
    let (source, target) = (ctx.args.required("srcname")?, ctx.args.required("dstname")?);
    let crush = &ctx.state.osdmap().crush;
    if edit::class_id(crush, &source).is_none() && edit::class_id(crush, &target).is_some() {
        return Ok(Answer::ok(format!("already renamed to '{target}'")));
    }
    let mut map = (**crush).clone();
    edit::rename_class(&mut map, &source, &target).map_err(|why| {
        let errno = refusal(why).result.abs();
        let name = if errno == ENOENT { "No such file or directory" } else { "File exists" };
        Answer::error(errno, format!("fail to rename '{source}' to '{target}' : ({errno}) {name}"))
    })?;
    super::crush::propose_crush(ctx, &map)?;
    Ok(Answer::ok(format!("rename class '{source}' to '{target}'")))
}

fn rm(ctx: &mut Ctx<'_>) -> Outcome {
    let class = ctx.args.required("class")?;
    let crush = &ctx.state.osdmap().crush;
    let Some(id) = edit::class_id(crush, &class) else {
        return Ok(Answer::default());
    };
    let users: Vec<&str> = rules_with(crush, id).collect();
    if !users.is_empty() {
        let text = format!("class '{class}' still referenced by crush_rule(s): '{}'", users.join("','"));
        return Err(Answer::error(EBUSY, text));
    }
    edited(ctx, |map| {
        map.item_classes.retain(|item, of| *item < 0 || *of != id);
        edit::rebuild_shadow_trees(map)?;
        map.class_names.remove(&id);
        Ok(())
    })?;
    Ok(Answer::ok(format!("removed class {class} with id {id} from crush map")))
}

/// Names of the rules that start from a shadow bucket of the class.
fn rules_with(map: &CrushMap, class: i32) -> impl Iterator<Item = &str> {
    let rules = map.rules.iter().enumerate().filter_map(|(id, rule)| Some((id, rule.as_ref()?)));
    let takes = move |item: i32| item < 0 && map.item_classes.get(&item) == Some(&class);
    let of_class =
        rules.filter(move |(_, rule)| rule.steps.iter().any(|s| s.op == step::TAKE && takes(s.arg1)));
    of_class.map(|(id, _)| map.rule_names.get(&(id as i32)).map_or("", String::as_str))
}

fn rules_of_class(ctx: &mut Ctx<'_>) -> Outcome {
    let class = ctx.args.required("class")?;
    let crush = &ctx.state.osdmap().crush;
    let Some(id) = edit::class_id(crush, &class) else {
        return Err(Answer::error(ENOENT, format!("failed to get rules by class '{class}'")));
    };
    let mut names: Vec<&str> = rules_with(crush, id).collect();
    names.sort_unstable();
    let plain = || names.iter().map(|name| format!("{name}\n")).collect();
    Ok(ctx.show(|| Json::array(names.iter().copied()), plain))
}
