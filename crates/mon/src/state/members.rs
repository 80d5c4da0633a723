//! The members of the log: each monitor of the MonMap has a number there, which is never used again.

use codec::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{MonMap, Uuid};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Member {
    pub id: u64,
    /// Drawn when the monitor's disk was formatted. Nil: the monitor was made before disks had one, or has not come yet.
    pub disk: Uuid,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Members {
    by_name: BTreeMap<String, Member>,
    /// The highest number that was ever given out.
    last: u64,
    /// Monitors that are being taken out: they stay in the map until the log has no such member.
    leaving: BTreeSet<String>,
}

impl Members {
    /// Of a state from before monitors had numbers: there was one monitor, or ranks as numbers.
    pub(super) fn of_map(map: &MonMap) -> Members {
        let mut members = Members::default();
        members.follow(map);
        members
    }

    /// No members yet; the first one gets a number above `last`.
    pub(crate) fn numbered_after(last: u64) -> Members {
        Members { last, ..Members::default() }
    }

    pub fn get(&self, name: &str) -> Option<Member> {
        self.by_name.get(name).copied()
    }

    pub fn name_of(&self, id: u64) -> Option<&str> {
        self.by_name.iter().find(|(_, member)| member.id == id).map(|(name, _)| name.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Member)> {
        self.by_name.iter().map(|(name, member)| (name.as_str(), *member))
    }

    pub fn is_leaving(&self, name: &str) -> bool {
        self.leaving.contains(name)
    }

    pub(super) fn leave(&mut self, name: &str) {
        self.leaving.extend(self.by_name.get_key_value(name).map(|(name, _)| name.clone()));
    }

    /// Numbers for the names that have none; the numbers of names that left are gone for good.
    pub(super) fn follow(&mut self, map: &MonMap) {
        self.by_name.retain(|name, _| map.mons.contains_key(name));
        self.leaving.retain(|name| map.mons.contains_key(name));
        for name in &map.ranks {
            if !self.by_name.contains_key(name) {
                self.renew(name, Uuid::default());
            }
        }
    }

    /// A new number for a monitor whose disk is another one.
    pub(super) fn renew(&mut self, name: &str, disk: Uuid) {
        self.last += 1;
        self.by_name.insert(name.to_owned(), Member { id: self.last, disk });
    }

    /// The disk of a monitor that had not come yet.
    pub(super) fn set_disk(&mut self, name: &str, disk: Uuid) {
        if let Some(member) = self.by_name.get_mut(name) {
            member.disk = disk;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::MonInfo;

    fn map(names: &[&str]) -> MonMap {
        MonMap {
            mons: names.iter().map(|name| (name.to_string(), MonInfo::default())).collect(),
            ranks: names.iter().map(|name| name.to_string()).collect(),
            ..MonMap::default()
        }
    }

    #[test]
    fn numbers_are_never_used_again() {
        let mut members = Members::of_map(&map(&["a", "b", "c"]));
        assert_eq!(members.get("c").unwrap().id, 3);
        members.follow(&map(&["a", "b"]));
        assert_eq!(members.name_of(3), None);
        members.follow(&map(&["a", "b", "c"]));
        assert_eq!(members.get("c").unwrap().id, 4);
        members.renew("a", Uuid([9; 16]));
        assert_eq!(members.get("a"), Some(Member { id: 5, disk: Uuid([9; 16]) }));
        assert_eq!(members.name_of(1), None);
    }

    #[test]
    fn a_monitor_leaves_until_the_map_has_it_no_more() {
        let mut members = Members::of_map(&map(&["a", "b"]));
        members.leave("b");
        members.leave("x");
        assert!(members.is_leaving("b") && !members.is_leaving("a") && !members.is_leaving("x"));
        members.follow(&map(&["a"]));
        members.follow(&map(&["a", "b"]));
        assert!(!members.is_leaving("b"), "this is another one");
    }
}
