//! Numbers by name.

use std::collections::BTreeMap;
use wire::types::CrushMap;

/// A device or a bucket, shadow buckets (`NAME~CLASS`) included.
pub fn item_id(map: &CrushMap, name: &str) -> Option<i32> {
    by_name(&map.item_names, name)
}

pub fn type_id(map: &CrushMap, name: &str) -> Option<i32> {
    by_name(&map.type_names, name)
}

pub fn class_id(map: &CrushMap, name: &str) -> Option<i32> {
    by_name(&map.class_names, name)
}

pub fn rule_id(map: &CrushMap, name: &str) -> Option<u32> {
    by_name(&map.rule_names, name).and_then(|id| u32::try_from(id).ok())
}

fn by_name(names: &BTreeMap<i32, String>, name: &str) -> Option<i32> {
    names.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
}

/// Names are made of `A-Z a-z 0-9 - _ .`, so that a shadow bucket's can be no one else's.
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

/// True if a bucket only mirrors another one for a device class.
pub fn is_shadow(map: &CrushMap, id: i32) -> bool {
    map.item_names.get(&id).is_some_and(|name| !is_valid_name(name))
}
