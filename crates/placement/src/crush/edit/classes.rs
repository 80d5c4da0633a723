//! Device classes: each (`ssd`, `hdd`, …) has, beside the tree of buckets, a shadow tree with only its devices, from
//! which rules may start.
//!
//! Shadow trees are derived: after every change they are torn down and built again, each bucket under the number it
//! had before.

use super::bucket;
use super::items::{drop_bucket, place_bucket};
use super::names::{class_id, is_valid_name, item_id};
use super::weights::{put, remake};
use super::{EditError, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use wire::types::CrushMap;
use wire::types::crush::{Choice, ChooseArg, step};

/// Bind a device to a class. Returns whether that is new.
pub fn set_device_class(map: &mut CrushMap, device: i32, class: &str) -> Result<bool, EditError> {
    let bound = map.item_classes.get(&device).and_then(|c| map.class_names.get(c));
    if let Some(bound) = bound.filter(|b| *b != class) {
        let message = format!(
            "osd.{device} has already bound to class '{bound}', can not reset class to '{class}'; \
             use 'ceph osd crush rm-device-class <id>' to remove old class first"
        );
        return Err(EditError::new(Refusal::Busy, message));
    }
    if device < 0 || !is_valid_name(class) {
        return Err(EditError::new(Refusal::Invalid, format!("cannot set class '{class}' of {device}")));
    }
    let class = class_or_new(map, class);
    if map.item_classes.insert(device, class) == Some(class) {
        return Ok(false);
    }
    rebuild_shadow_trees(map)?;
    Ok(true)
}

/// Free a device of its class. Returns whether it had one.
pub fn remove_device_class(map: &mut CrushMap, device: i32) -> Result<bool, EditError> {
    if !map.item_names.contains_key(&device) {
        return Err(EditError::new(Refusal::NotFound, format!("osd.{device} does not have a name")));
    }
    if map.item_classes.remove(&device).is_none() {
        return Ok(false);
    }
    rebuild_shadow_trees(map)?;
    Ok(true)
}

/// Bind every device below a bucket to a class, whatever it had.
pub fn set_subtree_class(map: &mut CrushMap, bucket: &str, class: &str) -> Result<(), EditError> {
    let missing = || EditError::new(Refusal::NotFound, format!("no bucket '{bucket}'"));
    let root = item_id(map, bucket).ok_or_else(missing)?;
    let class = class_or_new(map, class);
    let mut seen = BTreeSet::new();
    let mut todo = vec![root];
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        for item in map.bucket(id).ok_or_else(missing)?.items.clone() {
            if item >= 0 {
                map.item_classes.insert(item, class);
            } else {
                todo.push(item);
            }
        }
    }
    Ok(())
}

/// Give a class another name, and its shadow buckets too.
pub fn rename_class(map: &mut CrushMap, source: &str, target: &str) -> Result<(), EditError> {
    let id = class_id(map, source)
        .ok_or_else(|| EditError::new(Refusal::NotFound, format!("no class '{source}'")))?;
    if class_id(map, target).is_some() {
        return Err(EditError::new(Refusal::Exists, format!("class '{target}' already exists")));
    }
    for (item, _) in map.item_classes.iter().filter(|(item, class)| **item < 0 && **class == id) {
        if let Some(name) = map.item_names.get_mut(item)
            && let Some((bucket, _)) = name.split_once('~')
        {
            *name = format!("{bucket}~{target}");
        }
    }
    map.class_names.insert(id, target.to_owned());
    Ok(())
}

/// True if a rule starts from a shadow tree of the class.
pub fn class_is_used(map: &CrushMap, class: i32) -> bool {
    let roots: BTreeSet<i32> = map.shadow_buckets.values().filter_map(|s| s.get(&class).copied()).collect();
    let mut steps = map.rules.iter().flatten().flat_map(|r| &r.steps);
    steps.any(|s| s.op == step::TAKE && roots.contains(&s.arg1))
}

/// The number of a class, which is made if it is not there.
pub fn class_or_new(map: &mut CrushMap, name: &str) -> i32 {
    class_id(map, name).unwrap_or_else(|| {
        let id = map.class_names.last_key_value().map_or(0, |(id, _)| id.wrapping_add(1).max(0));
        map.class_names.insert(id, name.to_owned());
        id
    })
}

/// Build all shadow trees anew, and forget classes that no device has and no rule uses.
pub fn rebuild_shadow_trees(map: &mut CrushMap) -> Result<(), EditError> {
    let dead: Vec<i32> = map
        .class_names
        .keys()
        .filter(|class| !map.item_classes.iter().any(|(item, c)| *item >= 0 && c == *class))
        .filter(|class| !class_is_used(map, **class))
        .copied()
        .collect();
    dead.iter().for_each(|class| drop(map.class_names.remove(class)));

    let before = map.shadow_buckets.clone();
    let shadow_roots = super::tree::roots(map, true).into_iter().filter(|id| super::is_shadow(map, *id));
    for root in shadow_roots.collect::<Vec<_>>() {
        remove_tree(map, root);
    }
    map.shadow_buckets.clear();

    let mut builder = Builder {
        taken: before.values().flat_map(|s| s.values().copied()).collect(),
        before,
        set_weights: BTreeMap::new(),
    };
    let classes: Vec<i32> = map.class_names.keys().copied().collect();
    for root in super::tree::roots(map, false) {
        for class in &classes {
            builder.shadow(map, root, *class, 0)?;
        }
    }
    Ok(())
}

/// Remove a tree of shadow buckets. A bucket that links brought into two trees is gone the second time.
fn remove_tree(map: &mut CrushMap, id: i32) {
    let Some(bucket) = map.bucket(id) else { return };
    for item in bucket.items.clone().into_iter().filter(|i| *i < 0) {
        remove_tree(map, item);
    }
    if map.bucket(id).is_some() {
        drop_bucket(map, id);
    }
    map.item_names.remove(&id);
    map.item_classes.remove(&id);
}

struct Builder {
    /// The shadows before the rebuild, whose numbers are used again.
    before: BTreeMap<i32, BTreeMap<i32, i32>>,
    taken: BTreeSet<i32>,
    /// For each pool with weight sets: what a shadow bucket weighs in each position.
    set_weights: BTreeMap<(i64, i32), Vec<u32>>,
}

impl Builder {
    /// The shadow of `original` for a class, with all below it.
    fn shadow(
        &mut self,
        map: &mut CrushMap,
        original: i32,
        class: i32,
        depth: usize,
    ) -> Result<i32, EditError> {
        let unnamed = || EditError::new(Refusal::Invalid, format!("bucket {original} has no name"));
        let name = map.item_names.get(&original).ok_or_else(unnamed)?;
        let name = format!("{name}~{}", map.class_names[&class]);
        if let Some(id) = item_id(map, &name) {
            return Ok(id);
        }
        let source =
            map.bucket(original).filter(|_| depth <= map.buckets.len()).cloned().ok_or_else(unnamed)?;

        let (mut items, mut weights, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for (position, &item) in source.items.iter().enumerate() {
            let (item, weight) = if item >= 0 {
                if map.item_classes.get(&item) != Some(&class) {
                    continue;
                }
                (item, source.item_weight(position))
            } else {
                let shadow = self.shadow(map, item, class, depth + 1)?;
                (shadow, map.bucket(shadow).expect("just made").weight)
            };
            items.push(item);
            weights.push(weight);
            positions.push(position);
        }
        if matches!(source.choice, Choice::Uniform { .. }) && weights.iter().any(|w| *w != 0) {
            // A uniform shadow starts with weight 0 and takes no other: stock refuses here, too.
            return Err(EditError::new(Refusal::Invalid, "a uniform bucket has no shadow"));
        }
        let id = self.number_for(map, original, class);
        let version = map.tunables.straw_calc_version;
        let empty = bucket::make(id, source.kind, source.algorithm(), Vec::new(), Vec::new(), version)?;
        place_bucket(map, empty);
        let empty = map.bucket(id).expect("just placed");
        let mut made = remake(map, empty, items, weights)?;
        made.hash = source.hash;
        put(map, made);
        map.item_classes.insert(id, class);
        map.item_names.insert(id, name);
        map.shadow_buckets.entry(original).or_default().insert(class, id);
        self.shadow_weight_sets(map, original, id, &positions);
        Ok(id)
    }

    fn number_for(&self, map: &CrushMap, original: i32, class: i32) -> i32 {
        let before = self.before.get(&original).and_then(|s| s.get(&class).copied());
        let is_free = |id: &i32| map.bucket(*id).is_none() && !self.taken.contains(id);
        before.unwrap_or_else(|| (i32::MIN..0).rev().find(is_free).expect("there are 2^31 numbers"))
    }

    /// A device weighs in the shadow's sets what it weighs in the original's, a bucket the sum of what is below.
    fn shadow_weight_sets(&mut self, map: &mut CrushMap, original: i32, shadow: i32, positions: &[usize]) {
        let items = map.bucket(shadow).expect("just made").items.clone();
        for (pool, args) in &mut map.choose_args {
            let Some(source) = args.get(&((-1 - original) as u32)).filter(|a| !a.weight_sets.is_empty())
            else {
                continue;
            };
            let weight = |place: usize, i: usize, item: i32| match item {
                0.. => source.weight_sets[place].get(positions[i]).copied().unwrap_or(0),
                _ => self.set_weights.get(&(*pool, item)).and_then(|w| w.get(place)).copied().unwrap_or(0),
            };
            let places = 0..source.weight_sets.len();
            let sets: Vec<Vec<u32>> = places
                .map(|place| items.iter().enumerate().map(|(i, item)| weight(place, i, *item)).collect())
                .collect();
            let sums = sets.iter().map(|s| s.iter().fold(0u32, |sum, w| sum.wrapping_add(*w))).collect();
            self.set_weights.insert((*pool, shadow), sums);
            args.insert((-1 - shadow) as u32, ChooseArg { weight_sets: sets, ids: Vec::new() });
        }
    }
}
