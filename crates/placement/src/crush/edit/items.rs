//! Items in the hierarchy: add, move, link, swap, remove, rename.

use super::bucket;
use super::classes::rebuild_shadow_trees;
use super::names::{is_shadow, is_valid_name, item_id};
use super::weights::{positions_of, put, remake, reweight, reweight_in, weight_of};
use super::{EditError, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use wire::types::CrushMap;
use wire::types::crush::{Algorithm, Choice, ChooseArg, step};

/// Where an item belongs: type names to bucket names, `host=a rack=r1 root=default`.
pub type Location = BTreeMap<String, String>;

fn invalid(message: impl Into<String>) -> EditError {
    EditError::new(Refusal::Invalid, message)
}

fn not_found(message: impl Into<String>) -> EditError {
    EditError::new(Refusal::NotFound, message)
}

fn check_names(name: &str, location: &Location) -> Result<(), EditError> {
    let parts = location.iter().flat_map(|(k, v)| [k.as_str(), v.as_str()]);
    match std::iter::once(name).chain(parts).find(|n| !is_valid_name(n)) {
        Some(bad) => Err(invalid(format!("'{bad}' does not match [-_.0-9a-zA-Z]+"))),
        None => Ok(()),
    }
}

/// The weight after a conversion to a 32-bit float and back, which stock makes.
fn through_float(weight: u32) -> u32 {
    (weight as f32 / 65536.0 * 65536.0) as u32
}

/// A new bucket of a type under a name, in no other bucket, with the best algorithm that the tunables allow.
pub fn add_bucket(map: &mut CrushMap, name: &str, kind: u16) -> Result<i32, EditError> {
    let id = add_bucket_with(map, kind, &[])?;
    map.item_names.insert(id, name.to_owned());
    Ok(id)
}

/// Holding items of weight 0.
fn add_bucket_with(map: &mut CrushMap, kind: u16, items: &[i32]) -> Result<i32, EditError> {
    let best_first =
        [Algorithm::Straw2, Algorithm::Straw, Algorithm::Tree, Algorithm::List, Algorithm::Uniform];
    let algorithm = best_first
        .into_iter()
        .find(|a| map.tunables.allowed_bucket_algs & a.bit() != 0)
        .ok_or_else(|| invalid("the tunables allow no bucket algorithm"))?;
    let id = free_bucket_id(map);
    let weights = vec![0; items.len()];
    let made =
        bucket::make(id, kind, algorithm, items.to_vec(), weights.clone(), map.tunables.straw_calc_version)?;
    place_bucket(map, made);
    if !items.is_empty() {
        for args in map.choose_args.values_mut() {
            let arg = ChooseArg { weight_sets: vec![weights.clone(); positions_of(args)], ids: Vec::new() };
            args.insert((-1 - id) as u32, arg);
        }
    }
    Ok(id)
}

fn free_bucket_id(map: &CrushMap) -> i32 {
    let hole = map.buckets.iter().position(Option::is_none);
    -1 - hole.unwrap_or(map.buckets.len()) as i32
}

/// Put a new bucket at its number. The table grows by doubling, which the encoded map shows.
pub(super) fn place_bucket(map: &mut CrushMap, bucket: wire::types::crush::Bucket) {
    let index = CrushMap::bucket_index(bucket.id).expect("a bucket's number is negative");
    while index >= map.buckets.len() {
        let size = (map.buckets.len() * 2).max(8);
        map.buckets.resize(size, None);
    }
    debug_assert!(map.buckets[index].is_none());
    map.buckets[index] = Some(bucket);
}

/// The weight of the item in the lowest bucket that a location names; `None` if that does not hold it.
pub fn is_at(map: &CrushMap, item: i32, location: &Location) -> Option<u32> {
    let lowest =
        map.type_names.iter().filter(|(kind, _)| **kind != 0).find_map(|(_, name)| location.get(name))?;
    let bucket = map.bucket(item_id(map, lowest)?)?;
    let position = bucket.items.iter().position(|i| *i == item)?;
    Some(bucket.item_weight(position))
}

/// The bucket that holds an item (shadow buckets aside); the first, where links give it several.
pub fn parent_of(map: &CrushMap, item: i32) -> Option<i32> {
    map.buckets.iter().flatten().find(|b| !is_shadow(map, b.id) && b.items.contains(&item)).map(|b| b.id)
}

/// The OSDs in a bucket and in all buckets below it; of an OSD, itself.
pub fn osds_below(map: &CrushMap, item: i32) -> BTreeSet<i32> {
    let (mut osds, mut pending) = (BTreeSet::new(), vec![item]);
    while let Some(item) = pending.pop() {
        match map.bucket(item) {
            Some(bucket) => pending.extend(&bucket.items),
            None if item >= 0 => drop(osds.insert(item)),
            None => {}
        }
    }
    osds
}

/// Add an item under a name, below the lowest bucket that the location names; buckets of the location that are not
/// there come into being below the first that is.
pub fn insert(
    map: &mut CrushMap,
    item: i32,
    weight: u32,
    name: &str,
    location: &Location,
    in_weight_sets: bool,
) -> Result<(), EditError> {
    check_names(name, location)?;
    match item_id(map, name) {
        Some(id) if id != item => {
            return Err(EditError::new(Refusal::Exists, format!("name '{name}' already exists as id {id}")));
        }
        Some(_) => {}
        None => {
            map.item_names.insert(item, name.to_owned());
        }
    }
    let levels: Vec<(i32, String)> = map
        .type_names
        .iter()
        .filter(|(kind, _)| **kind != 0)
        .filter_map(|(kind, type_name)| Some((*kind, location.get(type_name)?.clone())))
        .collect();
    let mut below = item;
    for (kind, bucket_name) in levels {
        let Some(id) = item_id(map, &bucket_name) else {
            let id = add_bucket_with(map, kind as u16, &[below])?;
            map.item_names.insert(id, bucket_name);
            below = id;
            continue;
        };
        let bucket = map.bucket(id).ok_or_else(|| invalid(format!("'{bucket_name}' is not a bucket")))?;
        if contains(map, id, below) {
            return Err(invalid(format!("item {below} already exists beneath {id}")));
        }
        if i32::from(bucket.kind) != kind {
            return Err(invalid(format!("bucket '{bucket_name}' is of another type")));
        }
        if contains(map, below, id) {
            return Err(EditError::new(Refusal::Loop, format!("{below} already contains {id}")));
        }
        add_to(map, id, below)?;
        break;
    }
    // With its weight only now, so that the ancestors hear of it.
    let mut found = 0;
    for bucket_name in location.values() {
        if let Some(id) = item_id(map, bucket_name).filter(|id| *id < 0) {
            found += reweight_in(map, item, weight, id, item >= 0 && in_weight_sets)?;
        }
    }
    if found == 0 {
        return Err(invalid(format!("didn't find anywhere to add item {item}")));
    }
    map.max_devices = map.max_devices.max(item.saturating_add(1));
    rebuild_shadow_trees(map)
}

/// True if a subtree holds an item, or is it.
fn contains(map: &CrushMap, root: i32, item: i32) -> bool {
    fn below(map: &CrushMap, root: i32, item: i32, depth: usize) -> bool {
        root == item
            || depth <= map.buckets.len()
                && map.bucket(root).is_some_and(|b| b.items.iter().any(|i| below(map, *i, item, depth + 1)))
    }
    below(map, root, item, 0)
}

/// Add an item of weight 0.
fn add_to(map: &mut CrushMap, bucket_id: i32, item: i32) -> Result<(), EditError> {
    append(map, bucket_id, item, 0)
}

/// Append an item to a bucket and to its weight sets. A uniform bucket takes only its own weight.
fn append(map: &mut CrushMap, bucket_id: i32, item: i32, weight: u32) -> Result<(), EditError> {
    let old = map.bucket(bucket_id).expect("the caller has looked it up");
    if matches!(old.choice, Choice::Uniform { item_weight } if item_weight != weight) {
        return Err(invalid("a uniform bucket's items all have the same weight"));
    }
    let (mut items, mut weights) = (old.items.clone(), bucket::weights(old));
    items.push(item);
    weights.push(weight);
    let made = remake(map, old, items, weights)?;
    put(map, made);
    let index = (-1 - bucket_id) as u32;
    for arg in map.choose_args.values_mut().filter_map(|args| args.get_mut(&index)) {
        arg.weight_sets.iter_mut().for_each(|set| set.push(weight));
        if !arg.ids.is_empty() {
            arg.ids.push(item);
        }
    }
    Ok(())
}

/// Take the item at `position` out of a bucket and its weight sets.
fn take_out(map: &mut CrushMap, bucket_id: i32, position: usize) -> Result<(), EditError> {
    let old = map.bucket(bucket_id).expect("the caller has looked it up");
    let (mut items, mut weights) = (old.items.clone(), bucket::weights(old));
    if old.algorithm() == Algorithm::Tree {
        // Leaves keep their places, so that the others are drawn as before; only the end is cut.
        (items[position], weights[position]) = (0, 0);
        let keep = weights.iter().rposition(|w| *w > 0).map_or(0, |last| last + 1);
        items.truncate(keep);
        weights.truncate(keep);
    } else {
        items.remove(position);
        weights.remove(position);
    }
    let made = remake(map, old, items, weights)?;
    put(map, made);
    let index = (-1 - bucket_id) as u32;
    for arg in map.choose_args.values_mut().filter_map(|args| args.get_mut(&index)) {
        for set in &mut arg.weight_sets {
            if position < set.len() {
                set.remove(position);
            }
        }
        if position < arg.ids.len() {
            arg.ids.remove(position);
        }
    }
    Ok(())
}

/// Put an item where it belongs unless it is there already; one that is elsewhere keeps its weight. Returns whether
/// anything changed.
pub fn create_or_move(
    map: &mut CrushMap,
    item: i32,
    weight: u32,
    name: &str,
    location: &Location,
    in_weight_sets: bool,
) -> Result<bool, EditError> {
    check_names(name, &Location::new())?;
    if is_at(map, item, location).is_some() {
        return Ok(false);
    }
    let mut weight = weight;
    if is_held(map, item) {
        weight = through_float(weight_of(map, item).unwrap_or(weight));
        remove(map, item, true)?;
    }
    insert(map, item, weight, name, location, in_weight_sets)?;
    Ok(true)
}

/// Set an item's place, weight and name (`osd crush set`). True if anything changed.
pub fn update(
    map: &mut CrushMap,
    item: i32,
    weight: u32,
    name: &str,
    location: &Location,
) -> Result<bool, EditError> {
    check_names(name, location)?;
    let Some(before) = is_at(map, item, location) else {
        if map.item_names.contains_key(&item) {
            remove(map, item, true)?;
        }
        insert(map, item, weight, name, location, true)?;
        return Ok(true);
    };
    let mut changed = false;
    if before != weight {
        for bucket_name in location.values() {
            if let Some(id) = item_id(map, bucket_name).filter(|id| *id < 0) {
                reweight_in(map, item, weight, id, true)?;
            }
        }
        rebuild_shadow_trees(map)?;
        changed = true;
    }
    if map.item_names.get(&item).is_none_or(|n| n != name) {
        map.item_names.insert(item, name.to_owned());
        changed = true;
    }
    Ok(changed)
}

fn bucket_name(map: &CrushMap, id: i32) -> Result<String, EditError> {
    if id >= 0 {
        return Err(invalid("not a bucket"));
    }
    let name = map.item_names.get(&id).filter(|_| map.bucket(id).is_some());
    name.cloned().ok_or_else(|| not_found("no such bucket"))
}

/// Move a bucket with all below it.
pub fn move_bucket(map: &mut CrushMap, id: i32, location: &Location) -> Result<(), EditError> {
    let name = bucket_name(map, id)?;
    let weight = map.bucket(id).expect("named above").weight;
    if let Some(parent) = parent_of(map, id) {
        reweight_in(map, id, 0, parent, true)?;
        let position = position_in(map, parent, id).expect("its parent holds it");
        take_out(map, parent, position)?;
    }
    insert(map, id, through_float(weight), &name, location, false)
}

/// Make a bucket appear in a second place.
pub fn link_bucket(map: &mut CrushMap, id: i32, location: &Location) -> Result<(), EditError> {
    let name = bucket_name(map, id)?;
    let weight = map.bucket(id).expect("named above").weight;
    insert(map, id, through_float(weight), &name, location, true)
}

/// Exchange the contents, weights and names of two buckets, neither of which holds the other.
pub fn swap_buckets(map: &mut CrushMap, source: i32, target: i32) -> Result<(), EditError> {
    let (source_name, target_name) = (bucket_name(map, source)?, bucket_name(map, target)?);
    if contains(map, source, target) || contains(map, target, source) {
        return Err(invalid("one of the buckets is below the other"));
    }
    let weight = |map: &CrushMap, id| map.bucket(id).expect("named above").weight;
    let (source_weight, target_weight) = (weight(map, source), weight(map, target));
    // A root is in no bucket, which is no fault here.
    let _ = reweight(map, source, target_weight, true);
    let _ = reweight(map, target, source_weight, true);
    let drain = |map: &mut CrushMap, id| -> Result<Vec<(i32, u32)>, EditError> {
        let mut taken = Vec::new();
        while let Some(item) = map.bucket(id).and_then(|b| b.items.first().copied()) {
            taken.push((item, map.bucket(id).expect("just looked").item_weight(0)));
            take_out(map, id, 0)?;
        }
        Ok(taken)
    };
    let mut from_source = drain(map, source)?;
    let from_target = drain(map, target)?;
    // Stock keeps the first list in a map by item number meanwhile.
    from_source.sort();
    for (item, weight) in from_target {
        append(map, source, item, weight)?;
    }
    for (item, weight) in from_source {
        append(map, target, item, weight)?;
    }
    map.item_names.insert(source, target_name);
    map.item_names.insert(target, source_name);
    rebuild_shadow_trees(map)
}

fn position_in(map: &CrushMap, bucket_id: i32, item: i32) -> Option<usize> {
    map.bucket(bucket_id)?.items.iter().position(|i| *i == item)
}

fn is_held(map: &CrushMap, item: i32) -> bool {
    map.buckets.iter().flatten().any(|b| b.items.contains(&item))
}

/// True if a rule starts from a bucket or its shadow, or if it is a shadow itself.
fn is_used(map: &CrushMap, id: i32) -> bool {
    if map.shadow_buckets.values().any(|shadows| shadows.values().any(|s| *s == id)) {
        return true;
    }
    let takes =
        map.rules.iter().flatten().flat_map(|r| &r.steps).filter(|s| s.op == step::TAKE).map(|s| s.arg1);
    let original = |id: i32| {
        map.shadow_buckets
            .iter()
            .find(|(_, s)| s.values().any(|s| *s == id))
            .map_or(id, |(original, _)| *original)
    };
    takes.into_iter().any(|take| take == id || original(take) == id)
}

/// Remove an item from every bucket. Unless it is only unlinked, it ends, and a bucket must be empty and unused.
pub fn remove(map: &mut CrushMap, item: i32, unlink_only: bool) -> Result<(), EditError> {
    if item < 0 && !unlink_only {
        check_removable(map, item)?;
        if is_used(map, item) {
            return Err(EditError::new(Refusal::Busy, "in use by a rule"));
        }
    }
    let mut found = false;
    for index in 0..map.buckets.len() {
        found |= remove_from(map, item, -1 - index as i32)?;
    }
    found |= end_if_last(map, item, unlink_only)?;
    if found { Ok(()) } else { Err(not_found("no such item in the map")) }
}

/// Remove an item from the buckets at and below `ancestor`; where that was its last place, it ends as in [`remove`].
pub fn remove_under(
    map: &mut CrushMap,
    item: i32,
    ancestor: i32,
    unlink_only: bool,
) -> Result<(), EditError> {
    if !unlink_only && is_used(map, item) {
        return Err(EditError::new(Refusal::Busy, "in use by a rule"));
    }
    if map.bucket(ancestor).is_none() {
        return Err(invalid("no such bucket"));
    }
    let mut found = false;
    let mut seen = std::collections::BTreeSet::new();
    let mut todo = vec![ancestor];
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        let below = map.bucket(id).map(|b| b.items.clone()).unwrap_or_default();
        todo.extend(below.into_iter().filter(|i| *i < 0 && *i != item));
        found |= remove_from(map, item, id)?;
    }
    if !found {
        return Err(not_found("no such item there"));
    }
    if item < 0 && !unlink_only {
        check_removable(map, item)?;
    }
    end_if_last(map, item, unlink_only).map(drop)
}

fn check_removable(map: &CrushMap, id: i32) -> Result<(), EditError> {
    match map.bucket(id) {
        None => Err(not_found("no such bucket")),
        Some(b) if !b.items.is_empty() => Err(EditError::new(Refusal::NotEmpty, "bucket is not empty")),
        Some(_) => Ok(()),
    }
}

fn remove_from(map: &mut CrushMap, item: i32, bucket_id: i32) -> Result<bool, EditError> {
    let mut found = false;
    while let Some(position) = position_in(map, bucket_id, item) {
        // The hole that a tree bucket keeps looks like device 0, of weight 0.
        let bucket = map.bucket(bucket_id).expect("it holds the item");
        if bucket.algorithm() == Algorithm::Tree && item == 0 && found {
            break;
        }
        reweight_in(map, item, 0, bucket_id, true)?;
        take_out(map, bucket_id, position)?;
        found = true;
    }
    Ok(found)
}

/// An item that no bucket holds any more goes from the names and classes too, and a bucket from the table.
fn end_if_last(map: &mut CrushMap, item: i32, unlink_only: bool) -> Result<bool, EditError> {
    if is_held(map, item) || item < 0 && is_used(map, item) {
        return Ok(false);
    }
    if item < 0 && !unlink_only {
        drop_bucket(map, item);
        map.item_classes.remove(&item);
    }
    if item >= 0 || !unlink_only {
        map.item_names.remove(&item);
        if item >= 0 && !unlink_only {
            map.item_classes.remove(&item);
        }
    }
    rebuild_shadow_trees(map)?;
    Ok(true)
}

/// Free a bucket's number and what hangs on it.
pub(super) fn drop_bucket(map: &mut CrushMap, id: i32) {
    let index = CrushMap::bucket_index(id).expect("a bucket's number is negative");
    map.buckets[index] = None;
    map.shadow_buckets.remove(&id);
    let buckets = &map.buckets;
    for args in map.choose_args.values_mut() {
        // Weight sets are for straw2 buckets that exist.
        args.retain(|index, _| {
            let bucket = buckets.get(*index as usize).and_then(Option::as_ref);
            bucket.is_some_and(|b| b.algorithm() == Algorithm::Straw2)
        });
    }
}

/// Give a bucket another name. Its shadows get theirs when they are next rebuilt.
pub fn rename_bucket(map: &mut CrushMap, source: &str, target: &str) -> Result<(), EditError> {
    let (id, taken) = (item_id(map, source), item_id(map, target).is_some());
    match id {
        Some(_) if taken => {
            Err(EditError::new(Refusal::Exists, format!("dstname = '{target}' already exists")))
        }
        Some(_) if !is_valid_name(target) => {
            Err(invalid(format!("dstname = '{target}' does not match [-_.0-9a-zA-Z]+")))
        }
        Some(id) if id >= 0 => Err(EditError::new(
            Refusal::NotABucket,
            format!("srcname = '{source}' is not a bucket because its id = {id} is >= 0"),
        )),
        Some(id) => {
            map.item_names.insert(id, target.to_owned());
            Ok(())
        }
        None if taken => Err(EditError::new(
            Refusal::AlreadyDone,
            format!("srcname = '{source}' does not exist and dstname = '{target}' already exists"),
        )),
        None => Err(not_found(format!("srcname = '{source}' does not exist"))),
    }
}
