//! `osd crush weight-set …`: other CRUSH weights for one pool, or for all pools without a set of their own (the compat set).

use super::crush::{propose_crush, refusal};
use crate::commands::{Answer, Command, Ctx, Outcome, commands};
use command::errno::{ENOENT, EPERM};
use command::{Json, object};
use placement::crush::edit;
use wire::types::crush::ChooseArg;
use wire::types::{CrushMap, OsdMap, Release};

const COMPAT: i64 = CrushMap::DEFAULT_CHOOSE_ARGS;
/// 1.0 as a CRUSH weight.
const ONE: f64 = 65536.0;

pub(in crate::commands) const COMMANDS: &[Command] = commands! {
    "osd crush weight-set ls", "list crush weight sets", "osd", "r", ls;
    "osd crush weight-set dump", "dump crush weight sets", "osd", "r", dump;
    "osd crush weight-set create-compat", "create a default backward-compatible weight-set", "osd", "rw", create_compat;
    "osd crush weight-set create name=pool,type=CephPoolname name=mode,type=CephChoices,strings=flat|positional",
        "create a weight-set for a given pool", "osd", "rw", create;
    "osd crush weight-set rm name=pool,type=CephPoolname", "remove the weight-set for a given pool", "osd", "rw", rm;
    "osd crush weight-set rm-compat", "remove the backward-compatible weight-set", "osd", "rw", rm_compat;
    "osd crush weight-set reweight name=pool,type=CephPoolname name=item,type=CephString name=weight,type=CephFloat,range=0.0,n=N",
        "set weight for an item (bucket or osd) in a pool's weight-set", "osd", "rw", reweight;
    "osd crush weight-set reweight-compat name=item,type=CephString name=weight,type=CephFloat,range=0.0,n=N",
        "set weight for an item (bucket or osd) in the backward-compatible weight-set", "osd", "rw", reweight_compat;
};

fn ls(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    let names: Vec<String> = map.crush.choose_args.keys().map(|set| name_of(map, *set)).collect();
    let plain = || names.iter().map(|name| format!("{name}\n")).collect();
    Ok(ctx.show(|| Json::array(names.iter().map(String::as_str)), plain))
}

/// The name under which a weight set is shown: its pool's.
pub(super) fn name_of(map: &OsdMap, set: i64) -> String {
    match set {
        COMPAT => "(compat)".into(),
        pool => map.pool_names.get(&pool).cloned().unwrap_or_else(|| pool.to_string()),
    }
}

fn dump(ctx: &mut Ctx<'_>) -> Outcome {
    let json = choose_args_json(ctx.state.osdmap());
    Ok(ctx.show_json(json))
}

/// As stock dumps weight sets: by set, the buckets that have one.
pub(super) fn choose_args_json(map: &OsdMap) -> Json {
    let sets = map.crush.choose_args.iter().map(|(set, args)| {
        let buckets = args.iter().filter(|(_, arg)| !(arg.weight_sets.is_empty() && arg.ids.is_empty()));
        let buckets = buckets.map(|(index, arg)| bucket_json(-1 - *index as i32, arg));
        (set.to_string().into(), Json::array(buckets))
    });
    Json::Object(sets.collect())
}

fn bucket_json(bucket: i32, arg: &ChooseArg) -> Json {
    let weights = |set: &Vec<u32>| Json::array(set.iter().map(|weight| f64::from(*weight) / ONE));
    let mut json = object! { "bucket_id" => bucket };
    if !arg.weight_sets.is_empty() {
        json.push("weight_set", Json::array(arg.weight_sets.iter().map(weights)));
    }
    if !arg.ids.is_empty() {
        json.push("ids", Json::array(arg.ids.iter().copied()));
    }
    json
}

fn create_compat(ctx: &mut Ctx<'_>) -> Outcome {
    let mut map = (*ctx.state.osdmap().crush).clone();
    if !edit::create_weight_set(&mut map, COMPAT, 1) {
        return Ok(Answer::ok("compat weight-set already created"));
    }
    propose_crush(ctx, &map)?;
    Ok(Answer::default())
}

fn wanted_pool(ctx: &Ctx<'_>) -> Result<(i64, String), Answer> {
    let name = ctx.args.required("pool")?;
    match ctx.state.osdmap().pool_by_name(&name) {
        Some(id) => Ok((id, name)),
        None => Err(Answer::error(ENOENT, format!("pool '{name}' not found"))),
    }
}

fn create(ctx: &mut Ctx<'_>) -> Outcome {
    let (pool, name) = wanted_pool(ctx)?;
    let map = ctx.state.osdmap();
    let oldest = map.require_min_compat_client;
    if oldest < Release::LUMINOUS {
        let text = format!(
            "require_min_compat_client {oldest} < luminous, which is required for per-pool weight-sets. Try 'ceph osd set-require-min-compat-client luminous' before using the new interface"
        );
        return Err(Answer::error(EPERM, text));
    }
    let positions = match ctx.args.text("mode").as_deref() {
        Some("positional") => usize::from(map.pools[&pool].size),
        _ => 1,
    };
    let mut crush = (*map.crush).clone();
    if !edit::create_weight_set(&mut crush, pool, positions) {
        return Ok(Answer::ok(format!("weight-set for pool '{name}' already created")));
    }
    propose_crush(ctx, &crush)?;
    Ok(Answer::default())
}

fn remove(ctx: &mut Ctx<'_>, set: i64) -> Outcome {
    let mut map = (*ctx.state.osdmap().crush).clone();
    if map.choose_args.remove(&set).is_some() {
        propose_crush(ctx, &map)?;
    }
    Ok(Answer::default())
}

fn rm(ctx: &mut Ctx<'_>) -> Outcome {
    let (pool, _) = wanted_pool(ctx)?;
    remove(ctx, pool)
}

fn rm_compat(ctx: &mut Ctx<'_>) -> Outcome {
    remove(ctx, COMPAT)
}

fn reweight(ctx: &mut Ctx<'_>) -> Outcome {
    let (pool, name) = wanted_pool(ctx)?;
    reweight_in(ctx, pool, &format!("no weight-set for pool '{name}'"))
}

fn reweight_compat(ctx: &mut Ctx<'_>) -> Outcome {
    reweight_in(ctx, COMPAT, "no backward-compatible weight-set")
}

fn reweight_in(ctx: &mut Ctx<'_>, set: i64, missing: &str) -> Outcome {
    let mut map = (*ctx.state.osdmap().crush).clone();
    if !map.choose_args.contains_key(&set) {
        return Err(Answer::error(ENOENT, missing));
    }
    let item = ctx.args.required("item")?;
    let id = edit::item_id(&map, &item);
    let id = id.ok_or_else(|| Answer::error(ENOENT, format!("item '{item}' does not exist")))?;
    let weights: Result<Vec<u32>, _> =
        ctx.args.texts("weight").iter().map(|text| fixed_point(text)).collect();
    let (weights, positions) = (weights?, edit::positions_of(&map.choose_args[&set]));
    if weights.len() != positions {
        return Err(Answer::invalid(format!("must specify exact {positions} weight values")));
    }
    edit::reweight_in_weight_set(&mut map, set, id, &weights).map_err(refusal)?;
    propose_crush(ctx, &map)?;
    Ok(Answer::default())
}

fn fixed_point(text: &str) -> Result<u32, Answer> {
    let weight: f32 =
        text.parse().map_err(|_| Answer::invalid(format!("unable to parse weight '{text}'")))?;
    edit::fixed_point(weight).map_err(refusal)
}
