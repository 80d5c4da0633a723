//! The map of a cluster that has just been made.

use super::items::add_bucket;
use super::rules::{Mode, NewRule, add_rule};
use wire::types::CrushMap;
use wire::types::crush::{Rule, Tunables};

/// Types of buckets, from the device up.
const TYPES: [&str; 12] =
    ["osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"];

/// Name of a new map's bucket type: 0 is `osd`, 1 `host`.
pub fn new_map_type(number: i64) -> Option<&'static str> {
    TYPES.get(usize::try_from(number).ok()?).copied()
}

/// A root named `default`, no host yet, and `replicated_rule`, which spreads over `failure_domain` (stock's
/// `osd_crush_chooseleaf_type`: `host`, or `osd` where one host is all there is).
///
/// # Panics
/// When `failure_domain` is no type.
pub fn new_map(failure_domain: &str) -> CrushMap {
    let mut map = CrushMap { tunables: Tunables::DEFAULT, ..CrushMap::default() };
    for (number, name) in TYPES.iter().enumerate() {
        map.type_names.insert(number as i32, (*name).to_owned());
    }
    add_bucket(&mut map, "default", TYPES.len() as u16 - 1).expect("an empty map has room");
    let rule = NewRule {
        name: "replicated_rule",
        root: "default",
        failure_domain,
        failure_domains: 0,
        device_class: "",
    };
    add_rule(&mut map, rule, Mode::Firstn, Rule::REPLICATED).expect("the failure domain is a type");
    map
}
