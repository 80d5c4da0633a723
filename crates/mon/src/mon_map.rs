//! The next monitor map: with one monitor more, one less, or changed.

use wire::types::{EntityAddrVec, MonInfo, MonMap, UTime};

/// The next epoch of the map, to be changed.
pub(crate) fn next_map(map: &MonMap, now: UTime) -> MonMap {
    // They tell of the last change only.
    MonMap { epoch: map.epoch + 1, last_changed: now, removed_ranks: Default::default(), ..map.clone() }
}

/// The next map, with one monitor less.
pub(crate) fn without_monitor(map: &MonMap, name: &str, now: UTime) -> MonMap {
    let mut next = next_map(map, now);
    next.removed_ranks.extend(next.rank_of(name).map(|rank| rank as u32));
    next.ranks.retain(|other| other != name);
    next.mons.remove(name);
    next.disallowed_leaders.remove(name);
    next
}

/// The next map, with one monitor more. It has the last rank.
pub(crate) fn with_monitor(map: &MonMap, name: &str, addrs: EntityAddrVec, now: UTime) -> MonMap {
    let mut next = next_map(map, now);
    let info = MonInfo { name: name.to_owned(), addrs, time_added: now, ..MonInfo::default() };
    next.mons.insert(name.to_owned(), info);
    next.ranks.retain(|other| other != name);
    next.ranks.push(name.to_owned());
    next
}
