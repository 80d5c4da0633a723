//! Questions about the CRUSH hierarchy that health and commands ask: where an item is, what is below a bucket.

use wire::types::CrushMap;

/// A bucket's or OSD's name.
pub fn name_of(crush: &CrushMap, item: i32) -> String {
    match crush.item_names.get(&item) {
        Some(name) => name.clone(),
        None if item >= 0 => format!("osd.{item}"),
        None => format!("bucket{item}"),
    }
}

pub fn type_name(crush: &CrushMap, kind: i32) -> &str {
    crush.type_names.get(&kind).map_or("unknown", String::as_str)
}

/// True for the copies of the hierarchy that hold one device class each (`default~hdd`).
pub fn is_shadow(crush: &CrushMap, item: i32) -> bool {
    crush.item_names.get(&item).is_some_and(|name| name.contains('~'))
}

pub fn class_of(crush: &CrushMap, item: i32) -> Option<&str> {
    let class = crush.item_classes.get(&item)?;
    crush.class_names.get(class).map(String::as_str)
}

/// The real bucket that holds an item.
pub fn parent_of(crush: &CrushMap, item: i32) -> Option<i32> {
    let holds = crush.buckets.iter().flatten().filter(|b| b.items.contains(&item));
    holds.map(|b| b.id).find(|&id| !is_shadow(crush, id))
}

/// The buckets above an item, from its own up to the root.
pub fn ancestors(crush: &CrushMap, item: i32) -> Vec<i32> {
    let mut path = Vec::new();
    let mut at = item;
    while let Some(parent) = parent_of(crush, at) {
        path.push(parent);
        at = parent;
        if path.len() > crush.buckets.len() {
            break;
        }
    }
    path
}

pub fn kind_of(crush: &CrushMap, item: i32) -> i32 {
    crush.bucket(item).map_or(0, |bucket| i32::from(bucket.kind))
}

/// From the root down to the item's own bucket: type and name of each. `root=default,host=a`.
pub fn location(crush: &CrushMap, item: i32) -> Vec<(String, String)> {
    let path = ancestors(crush, item).into_iter().rev();
    path.map(|id| (type_name(crush, kind_of(crush, id)).to_owned(), name_of(crush, id))).collect()
}

/// An item's location as one line; nothing for a root.
pub fn location_text(crush: &CrushMap, item: i32) -> String {
    let path = location(crush, item);
    path.iter().map(|(kind, name)| format!("{kind}={name}")).collect::<Vec<_>>().join(",")
}

/// All OSDs below an item.
pub fn leaves(crush: &CrushMap, item: i32) -> Vec<i32> {
    if item >= 0 {
        return vec![item];
    }
    let Some(bucket) = crush.bucket(item) else { return Vec::new() };
    bucket.items.iter().flat_map(|&child| leaves(crush, child)).collect()
}

/// A real bucket that holds OSDs.
pub struct Subtree {
    pub id: i32,
    pub kind: i32,
    pub osds: Vec<i32>,
}

/// Every real bucket that holds OSDs.
pub fn subtrees(crush: &CrushMap) -> Vec<Subtree> {
    let real = crush.buckets.iter().flatten().filter(|b| !is_shadow(crush, b.id));
    real.map(|b| Subtree { id: b.id, kind: i32::from(b.kind), osds: leaves(crush, b.id) })
        .filter(|subtree| !subtree.osds.is_empty())
        .collect()
}
