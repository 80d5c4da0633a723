//! The hierarchy in the order in which `osd tree` prints it.

use super::is_shadow;
use std::collections::BTreeSet;
use wire::types::CrushMap;

/// One line of the listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeItem {
    pub id: i32,
    /// The bucket above; `None` at a root.
    pub parent: Option<i32>,
    pub depth: u32,
    /// 16.16 fixed point, as the bucket above has it.
    pub weight: u32,
    /// In the order in which stock names them: the last printed first.
    pub children: Vec<i32>,
}

/// Buckets that no bucket holds, by number, the most negative first. Shadow trees' roots on request.
pub(super) fn roots(map: &CrushMap, with_shadows: bool) -> Vec<i32> {
    let held: BTreeSet<i32> = map.buckets.iter().flatten().flat_map(|b| b.items.iter().copied()).collect();
    let ids = map.buckets.iter().rev().flatten().map(|b| b.id);
    ids.filter(|id| !held.contains(id) && (with_shadows || !is_shadow(map, *id))).collect()
}

/// Every bucket and device, parents before children, children ordered by class and name; devices for which `shows`
/// says no are left out.
pub fn tree(map: &CrushMap, with_shadows: bool, shows: impl Fn(i32) -> bool) -> Vec<TreeItem> {
    let mut out = Vec::new();
    for root in roots(map, with_shadows) {
        let weight = map.bucket(root).expect("a root is a bucket").weight;
        let mut todo = vec![TreeItem { id: root, parent: None, depth: 0, weight, children: Vec::new() }];
        while let Some(mut item) = todo.pop() {
            let below = children(map, &item, &shows);
            item.children = below.iter().map(|c| c.id).collect();
            if item.depth as usize <= map.buckets.len() {
                todo.extend(below);
            }
            out.push(item);
        }
    }
    out
}

/// In descending order: they are taken from the end.
fn children(map: &CrushMap, parent: &TreeItem, shows: &impl Fn(i32) -> bool) -> Vec<TreeItem> {
    let Some(bucket) = map.bucket(parent.id) else { return Vec::new() };
    let child = |(position, &id): (usize, &i32)| TreeItem {
        id,
        parent: Some(bucket.id),
        depth: parent.depth + 1,
        weight: bucket.item_weight(position),
        children: Vec::new(),
    };
    let mut children: Vec<TreeItem> =
        bucket.items.iter().enumerate().filter(|(_, id)| **id < 0 || shows(**id)).map(child).collect();
    children.sort_by_cached_key(|c| std::cmp::Reverse(sort_key(map, c.id)));
    children
}

fn sort_key(map: &CrushMap, id: i32) -> String {
    if id < 0 {
        return format!("_{}", map.item_names.get(&id).map_or("", String::as_str));
    }
    let class = map.item_classes.get(&id).and_then(|c| map.class_names.get(c));
    format!("{}_osd.{id:08}", class.map_or("", String::as_str))
}
