//! Weights of items: in their bucket, in all the buckets above, and in every weight set.

use super::bucket;
use super::classes::rebuild_shadow_trees;
use super::{EditError, Refusal};
use std::collections::BTreeMap;
use wire::types::CrushMap;
use wire::types::crush::{Bucket, Choice, ChooseArg};

/// A weight as people write it, in 16.16 fixed point.
pub fn fixed_point(weight: f32) -> Result<u32, EditError> {
    let fixed = (weight * 65536.0) as u64;
    match i32::try_from(fixed) {
        Ok(fixed) if weight >= 0.0 => Ok(fixed as u32),
        _ => Err(EditError::new(Refusal::Overflow, "weight is out of range")),
    }
}

/// The weight of a bucket, or of a device in the first bucket that holds it.
pub fn weight_of(map: &CrushMap, id: i32) -> Option<u32> {
    map.buckets.iter().flatten().find_map(|b| {
        let in_it = || b.items.iter().position(|i| *i == id).map(|position| b.item_weight(position));
        if b.id == id { Some(b.weight) } else { in_it() }
    })
}

/// Give an item a weight wherever it is, and its ancestors theirs. Returns in how many buckets it was found.
pub fn reweight(map: &mut CrushMap, id: i32, weight: u32, in_weight_sets: bool) -> Result<usize, EditError> {
    let mut changed = 0;
    for index in 0..map.buckets.len() {
        changed += usize::from(reweight_in(map, id, weight, -1 - index as i32, in_weight_sets)? > 0);
    }
    match changed {
        0 => Err(EditError::new(Refusal::NotFound, "no such item in the map")),
        n => Ok(n),
    }
}

/// Give every device below a bucket the same weight. Returns how many there are.
pub fn reweight_subtree(map: &mut CrushMap, id: i32, weight: u32) -> Result<usize, EditError> {
    if map.bucket(id).is_none() {
        return Err(EditError::new(Refusal::NotFound, "no such bucket"));
    }
    let mut changed = 0;
    let mut queue = std::collections::VecDeque::from([id]);
    while let Some(id) = queue.pop_front() {
        let items = map.bucket(id).map(|b| b.items.clone()).unwrap_or_default();
        for item in items {
            if item >= 0 {
                reweight_in(map, item, weight, id, true)?;
                changed += 1;
            } else {
                queue.push_back(item);
            }
        }
    }
    rebuild_shadow_trees(map)?;
    Ok(changed)
}

/// Make every bucket's weights what its children weigh, from the leaves up.
pub fn reweight_all(map: &mut CrushMap) -> Result<(), EditError> {
    for root in super::tree::roots(map, false) {
        sum_up(map, root, 0)?;
        let sets: Vec<i64> = map.choose_args.keys().copied().collect();
        for set in sets {
            sum_up_weight_set(map, root, set, 0);
        }
    }
    rebuild_shadow_trees(map)
}

fn sum_up(map: &mut CrushMap, id: i32, depth: usize) -> Result<u32, EditError> {
    let Some(old) = map.bucket(id).filter(|_| depth <= map.buckets.len()).cloned() else { return Ok(0) };
    let mut weights = bucket::weights(&old);
    let mut children = 0usize;
    let mut children_weight = 0u32;
    for (weight, item) in weights.iter_mut().zip(&old.items) {
        if *item < 0 {
            *weight = sum_up(map, *item, depth + 1)?;
            children += 1;
            children_weight = children_weight
                .checked_add(*weight)
                .ok_or(EditError::new(Refusal::OutOfRange, "the weights' sum is too large"))?;
        }
    }
    if let Choice::Uniform { item_weight } = old.choice {
        // All children weigh the same: their average, when they are the majority.
        let average = children_weight.checked_div(children as u32).unwrap_or(0);
        weights.fill(if children > old.items.len() - children { average } else { item_weight });
    }
    let made = remake(map, &old, old.items.clone(), weights)?;
    let weight = made.weight;
    put(map, made);
    Ok(weight)
}

/// The sums of a weight set's first position, for each of its positions (as stock does it).
fn sum_up_weight_set(map: &mut CrushMap, id: i32, set: i64, depth: usize) -> Vec<u32> {
    let index = CrushMap::bucket_index(id).unwrap_or(usize::MAX) as u32;
    let arg = map.choose_args.get(&set).and_then(|args| args.get(&index)).cloned().unwrap_or_default();
    let mut sums = vec![0u32; arg.weight_sets.len()];
    let Some(items) = map.bucket(id).filter(|_| depth <= map.buckets.len()).map(|b| b.items.clone()) else {
        return sums;
    };
    let mut first = arg.weight_sets.first().cloned().unwrap_or_default();
    for (position, item) in items.into_iter().enumerate() {
        let below = (item < 0).then(|| sum_up_weight_set(map, item, set, depth + 1));
        for (place, sum) in sums.iter_mut().enumerate() {
            let Some(weight) = first.get_mut(position) else { continue };
            if let Some(below) = &below {
                *weight = below.get(place).copied().unwrap_or(0);
            }
            *sum = sum.wrapping_add(*weight);
        }
    }
    if let Some(arg) = map.choose_args.get_mut(&set).and_then(|args| args.get_mut(&index))
        && let Some(slot) = arg.weight_sets.first_mut()
    {
        *slot = first;
    }
    sums
}

/// Give an item its weight in one bucket, and pass the bucket's new weight on to the buckets above. Returns how
/// often the item is in the bucket.
pub(super) fn reweight_in(
    map: &mut CrushMap,
    id: i32,
    weight: u32,
    bucket_id: i32,
    in_weight_sets: bool,
) -> Result<usize, EditError> {
    let Some(bucket) = map.bucket(bucket_id) else { return Ok(0) };
    let positions: Vec<usize> =
        bucket.items.iter().enumerate().filter(|(_, item)| **item == id).map(|(i, _)| i).collect();
    for &position in &positions {
        if in_weight_sets {
            for set in weight_sets_of(map, bucket_id) {
                set[position] = weight;
            }
        }
        let old = map.bucket(bucket_id).expect("still there").clone();
        let mut weights = bucket::weights(&old);
        match old.choice {
            Choice::Uniform { .. } => weights.fill(weight),
            _ => weights[position] = weight,
        }
        let made = remake(map, &old, old.items.clone(), weights)?;
        let total = made.weight;
        put(map, made);
        // A root has no one to tell.
        match reweight(map, bucket_id, total, false) {
            Err(e) if e.kind != Refusal::NotFound => return Err(e),
            _ => {}
        }
    }
    // Weight sets go on summing up, too.
    let sets: Vec<i64> = map.choose_args.keys().copied().collect();
    for set in sets {
        let index = CrushMap::bucket_index(bucket_id).expect("a bucket") as u32;
        let arg = map.choose_args[&set].get(&index);
        let Some(sums) = arg.filter(|a| !a.weight_sets.is_empty()).map(sums_of) else { continue };
        reweight_in_set(map, set, bucket_id, &sums);
    }
    Ok(positions.len())
}

fn sums_of(arg: &ChooseArg) -> Vec<u32> {
    arg.weight_sets.iter().map(|set| set.iter().fold(0u32, |sum, w| sum.wrapping_add(*w))).collect()
}

/// Every weight set of every pool for one bucket.
fn weight_sets_of(map: &mut CrushMap, bucket_id: i32) -> impl Iterator<Item = &mut Vec<u32>> {
    let index = CrushMap::bucket_index(bucket_id).expect("a bucket") as u32;
    map.choose_args
        .values_mut()
        .filter_map(move |args| args.get_mut(&index))
        .flat_map(|arg| arg.weight_sets.iter_mut())
}

/// Give an item its weights (one for each position) in a pool's weight set, wherever it is. A bucket that has no
/// weight set yet gets one from its own weights, as in stock. Returns how many buckets have changed, and the last bucket
/// whose sets have another number of positions.
pub(super) fn reweight_in_set(
    map: &mut CrushMap,
    set: i64,
    id: i32,
    weights: &[u32],
) -> (usize, Option<i32>) {
    let (mut buckets_changed, mut misfit) = (0, None);
    for index in 0..map.buckets.len() {
        let Some(bucket) = map.buckets[index].clone() else { continue };
        let positions = positions_of(&map.choose_args[&set]);
        let arg = map.choose_args.get_mut(&set).expect("it was there").entry(index as u32).or_default();
        let mut changed = false;
        if arg.weight_sets.is_empty() {
            arg.weight_sets = vec![bucket::weights(&bucket); positions];
            changed = true;
        }
        if arg.weight_sets.len() != weights.len() {
            misfit = Some(bucket.id);
            continue;
        }
        for position in bucket.items.iter().enumerate().filter(|(_, item)| **item == id).map(|(i, _)| i) {
            for (set, weight) in arg.weight_sets.iter_mut().zip(weights) {
                set[position] = *weight;
            }
            changed = true;
        }
        if changed {
            buckets_changed += 1;
            let sums = sums_of(arg);
            reweight_in_set(map, set, bucket.id, &sums);
        }
    }
    (buckets_changed, misfit)
}

/// Number of positions in a pool's weight sets.
pub fn positions_of(args: &BTreeMap<u32, ChooseArg>) -> usize {
    args.values().map(|a| a.weight_sets.len()).find(|n| *n > 0).unwrap_or(1)
}

/// The same bucket with other items.
pub(super) fn remake(
    map: &CrushMap,
    old: &Bucket,
    items: Vec<i32>,
    weights: Vec<u32>,
) -> Result<Bucket, EditError> {
    let version = map.tunables.straw_calc_version;
    let mut made = bucket::make(old.id, old.kind, old.algorithm(), items, weights, version)?;
    made.hash = old.hash;
    if let (Choice::Uniform { item_weight }, Choice::Uniform { item_weight: before }) =
        (&mut made.choice, &old.choice)
        && made.items.is_empty()
    {
        *item_weight = *before;
    }
    Ok(made)
}

pub(super) fn put(map: &mut CrushMap, bucket: Bucket) {
    let id = bucket.id;
    *map.bucket_mut(id).expect("it replaces a bucket") = bucket;
}
