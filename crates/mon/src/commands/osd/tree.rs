//! `ceph osd tree`: the CRUSH hierarchy with what is up, in and how heavy.

use super::map_at;
use crate::commands::{Answer, Ctx, Outcome};
use crate::crush;
use command::errno::ENOENT;
use command::{Json, object};
use placement::crush::edit::{self, TreeItem};
use std::collections::BTreeMap;
use wire::text::{Align, Table, Weight};
use wire::types::crush::ChooseArg;
use wire::types::{OsdMap, OsdState};

/// True when the OSD is in one of the states (`up`, `down`, `in`, `out`, `destroyed`), or no state is named.
fn shows(map: &OsdMap, states: &[String], osd: i32) -> bool {
    let is = |state: &str| states.iter().any(|s| s == state);
    if states.is_empty() {
        return true;
    }
    let destroyed = map.osd(osd).is_some_and(|row| row.state.has(OsdState::DESTROYED));
    let up_down = !(is("up") || is("down") || is("destroyed"))
        || (is("up") && map.is_up(osd))
        || (is("down") && !map.is_up(osd))
        || (is("destroyed") && destroyed);
    let in_out = !(is("in") || is("out")) || (is("in") && map.is_in(osd)) || (is("out") && !map.is_in(osd));
    up_down && in_out
}

fn items(map: &OsdMap, states: &[String]) -> Vec<TreeItem> {
    let all = edit::tree(&map.crush, false, |osd| map.exists(osd) && shows(map, states, osd));
    if states.is_empty() {
        return all;
    }
    // Buckets without anything wanted below are left out.
    let keep = |item: &TreeItem| {
        item.id >= 0
            || crush::leaves(&map.crush, item.id).iter().any(|&o| map.exists(o) && shows(map, states, o))
    };
    all.into_iter().filter(|item| keep(item)).collect()
}

/// OSDs that are in the map and nowhere in CRUSH.
fn strays(map: &OsdMap, states: &[String]) -> Vec<i32> {
    let placed: Vec<i32> = map.crush.buckets.iter().flatten().flat_map(|b| b.items.iter().copied()).collect();
    map.osd_ids().filter(|osd| !placed.contains(osd) && shows(map, states, *osd)).collect()
}

pub(super) fn tree(ctx: &mut Ctx<'_>) -> Outcome {
    let map = map_at(ctx)?;
    let states = ctx.args.texts("states");
    let items = items(&map, &states);
    let strays = strays(&map, &states);
    Ok(ctx.show(|| json(&map, &items, &strays, true), || plain(&map, &items, &strays, true)))
}

pub(super) fn tree_from(ctx: &mut Ctx<'_>) -> Outcome {
    let map = map_at(ctx)?;
    let name = ctx.args.required("bucket")?;
    let Some(root) = edit::item_id(&map.crush, &name) else {
        return Err(Answer::error(ENOENT, format!("bucket '{name}' does not exist")));
    };
    if root >= 0 {
        return Err(Answer::invalid(format!("\"{name}\" is not a bucket")));
    }
    let states = ctx.args.texts("states");
    let all = items(&map, &states);
    let start = all.iter().position(|item| item.id == root).unwrap_or(all.len());
    let depth = all.get(start).map_or(0, |item| item.depth);
    let below = all.into_iter().skip(start).enumerate();
    let items: Vec<TreeItem> = below
        .take_while(|(n, item)| *n == 0 || item.depth > depth)
        .map(|(_, item)| TreeItem { depth: item.depth - depth, ..item })
        .collect();
    Ok(ctx.show(|| json(&map, &items, &[], true), || plain(&map, &items, &[], true)))
}

pub(super) fn ls_tree(ctx: &mut Ctx<'_>) -> Outcome {
    let map = map_at(ctx)?;
    let name = ctx.args.required("name")?;
    let Some(root) = edit::item_id(&map.crush, &name) else {
        return Err(Answer::error(ENOENT, format!("\"{name}\" does not exist")));
    };
    let below = crush::leaves(&map.crush, root);
    let osds: Vec<i32> = map.osd_ids().filter(|osd| below.contains(osd)).collect();
    Ok(ctx.show(|| Json::array(osds.iter().copied()), || osds.iter().map(|osd| format!("{osd}\n")).collect()))
}

fn status(map: &OsdMap, osd: i32) -> &'static str {
    match map.osd(osd) {
        None => "DNE",
        Some(row) if row.state.has(OsdState::UP) => "up",
        Some(row) if row.state.has(OsdState::DESTROYED) => "destroyed",
        Some(_) => "down",
    }
}

fn fixed(value: u32) -> f64 {
    f64::from(value as f32 / 65536.0)
}

/// An item's weights in the weight sets of the bucket above: by set, one for each position.
fn set_weights(map: &OsdMap, item: &TreeItem) -> Vec<(String, Vec<u32>)> {
    let bucket = item.parent.and_then(|parent| map.crush.bucket(parent));
    let position = bucket.and_then(|bucket| bucket.items.iter().position(|id| *id == item.id));
    let index = bucket.map(|bucket| (-1 - bucket.id) as u32);
    let of_set = |(set, args): (&i64, &BTreeMap<u32, ChooseArg>)| {
        let arg = index.and_then(|index| args.get(&index));
        let weights = arg.into_iter().flat_map(|arg| &arg.weight_sets);
        let weights = weights.filter_map(|weights| weights.get(position?).copied()).collect();
        (super::weight_sets::name_of(map, *set), weights)
    };
    map.crush.choose_args.iter().map(of_set).collect()
}

fn pool_weights(map: &OsdMap, item: &TreeItem) -> Json {
    let sets = set_weights(map, item).into_iter().filter(|(_, weights)| !weights.is_empty());
    Json::Object(
        sets.map(|(name, weights)| (name.into(), Json::array(weights.into_iter().map(fixed)))).collect(),
    )
}

/// With the OSDs' own state, or (for `osd crush tree`) only what CRUSH knows.
pub(super) fn json(map: &OsdMap, items: &[TreeItem], strays: &[i32], with_state: bool) -> Json {
    let osd_fields = |json: &mut Json, osd: i32| {
        if with_state {
            json.push("exists", u32::from(map.exists(osd)));
            json.push("status", status(map, osd));
            json.push("reweight", fixed(map.weight(osd)));
            json.push("primary_affinity", fixed(map.primary_affinity_of(osd)));
        }
    };
    let nodes = items.iter().map(|item| {
        let crush = &map.crush;
        let mut node = object! { "id" => item.id };
        if let Some(class) = crush::class_of(crush, item.id) {
            node.push("device_class", class);
        }
        let kind = if item.id >= 0 { 0 } else { crush.bucket(item.id).map_or(0, |b| i32::from(b.kind)) };
        node.push("name", crush::name_of(crush, item.id));
        node.push("type", crush::type_name(crush, kind));
        node.push("type_id", kind);
        if item.id >= 0 {
            node.push("crush_weight", fixed(item.weight));
            node.push("depth", item.depth);
        }
        if item.parent.is_some() {
            node.push("pool_weights", pool_weights(map, item));
        }
        if item.id >= 0 {
            osd_fields(&mut node, item.id);
        } else {
            node.push("children", Json::array(item.children.iter().copied()));
        }
        node
    });
    let strays = strays.iter().map(|&osd| {
        let mut node = object! {
            "id" => osd,
            "name" => format!("osd.{osd}"),
            "type" => "osd",
            "type_id" => 0u32,
            "crush_weight" => 0u32,
            "depth" => 0u32,
        };
        osd_fields(&mut node, osd);
        node
    });
    object! { "nodes" => Json::array(nodes), "stray" => Json::array(strays) }
}

pub(super) fn plain(map: &OsdMap, items: &[TreeItem], strays: &[i32], with_state: bool) -> String {
    let mut table = Table::default();
    table.column("ID", Align::Right).column("CLASS", Align::Right).column("WEIGHT", Align::Left);
    // Stock shows weight sets where CRUSH alone is shown.
    let shows_sets = !with_state;
    if shows_sets {
        for set in map.crush.choose_args.keys() {
            table.column(super::weight_sets::name_of(map, *set), Align::Right);
        }
    }
    table.column("TYPE NAME", Align::Left);
    if with_state {
        table.column("STATUS", Align::Right).column("REWEIGHT", Align::Right).column("PRI-AFF", Align::Right);
    }
    let tail = |osd: i32| -> Vec<String> {
        if !with_state {
            return Vec::new();
        }
        vec![
            status(map, osd).to_owned(),
            Weight(fixed(map.weight(osd))).to_string(),
            Weight(fixed(map.primary_affinity_of(osd))).to_string(),
        ]
    };
    for item in items {
        let crush = &map.crush;
        let indent = "    ".repeat(item.depth as usize);
        let name = crush::name_of(crush, item.id);
        let label = if item.id >= 0 {
            format!("{indent}{name}")
        } else {
            let kind = crush.bucket(item.id).map_or(0, |b| i32::from(b.kind));
            format!("{indent}{} {name}", crush::type_name(crush, kind))
        };
        let class = crush::class_of(crush, item.id).unwrap_or_default().to_owned();
        let mut row = vec![item.id.to_string(), class, Weight(fixed(item.weight)).to_string()];
        if shows_sets {
            let first = |weights: Vec<u32>| weights.first().map(|weight| Weight(fixed(*weight)).to_string());
            row.extend(
                set_weights(map, item).into_iter().map(|(_, weights)| first(weights).unwrap_or_default()),
            );
        }
        row.push(label);
        if item.id >= 0 {
            row.extend(tail(item.id));
        } else if with_state {
            row.extend(["".to_owned(), "".to_owned(), "".to_owned()]);
        }
        table.row(row);
    }
    for &osd in strays {
        let mut row = vec![osd.to_string(), String::new(), "0".into(), format!("osd.{osd}")];
        row.extend(tail(osd));
        table.row(row);
    }
    table.to_string()
}
