//! An ordered map by offset, without allocation for one entry and without a tree for a few.
//!
//! Most objects have one extent. A tree node for it would be six times its size, and one more cache miss per access.

use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Largest number of entries in a sorted list; more are in a tree.
const FEW: usize = 32;

#[derive(Clone)]
pub(super) enum ExtentMap<T> {
    Few(SmallVec<[(u64, T); 1]>),
    Many(BTreeMap<u64, T>),
}

impl<T> Default for ExtentMap<T> {
    fn default() -> ExtentMap<T> {
        ExtentMap::Few(SmallVec::new())
    }
}

impl<T> ExtentMap<T> {
    /// The last extent that begins before `end`.
    pub(super) fn last_before(&self, end: u64) -> Option<(u64, &T)> {
        match self {
            ExtentMap::Few(list) => {
                let at = list.partition_point(|(at, _)| *at < end);
                list[..at].last().map(|(at, extent)| (*at, extent))
            }
            ExtentMap::Many(tree) => tree.range(..end).next_back().map(|(at, extent)| (*at, extent)),
        }
    }

    pub(super) fn last_before_mut(&mut self, end: u64) -> Option<(u64, &mut T)> {
        match self {
            ExtentMap::Few(list) => {
                let at = list.partition_point(|(at, _)| *at < end);
                list[..at].last_mut().map(|(at, extent)| (*at, extent))
            }
            ExtentMap::Many(tree) => tree.range_mut(..end).next_back().map(|(at, extent)| (*at, extent)),
        }
    }

    /// Extents that begin in `start..end`; `end` is at least `start`.
    pub(super) fn range(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &T)> {
        let (few, many) = match self {
            ExtentMap::Few(list) => {
                let first = list.partition_point(|(at, _)| *at < start);
                let last = list.partition_point(|(at, _)| *at < end);
                (&list[first..last], None)
            }
            ExtentMap::Many(tree) => (&[][..], Some(tree.range(start..end))),
        };
        let few = few.iter().map(|(at, extent)| (*at, extent));
        few.chain(many.into_iter().flatten().map(|(at, extent)| (*at, extent)))
    }

    pub(super) fn first_in(&self, start: u64, end: u64) -> Option<u64> {
        self.range(start, end).next().map(|(at, _)| at)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let (few, many) = match self {
            ExtentMap::Few(list) => (&list[..], None),
            ExtentMap::Many(tree) => (&[][..], Some(tree.iter())),
        };
        let few = few.iter().map(|(at, extent)| (*at, extent));
        few.chain(many.into_iter().flatten().map(|(at, extent)| (*at, extent)))
    }

    /// Inserts an extent at a free offset.
    pub(super) fn insert(&mut self, at: u64, extent: T) {
        match self {
            ExtentMap::Few(list) if list.len() < FEW => {
                let index = list.partition_point(|(other, _)| *other < at);
                list.insert(index, (at, extent));
            }
            ExtentMap::Few(list) => {
                let mut tree: BTreeMap<u64, T> = std::mem::take(list).into_iter().collect();
                tree.insert(at, extent);
                *self = ExtentMap::Many(tree);
            }
            ExtentMap::Many(tree) => drop(tree.insert(at, extent)),
        }
    }

    pub(super) fn remove(&mut self, at: u64) -> Option<T> {
        match self {
            ExtentMap::Few(list) => {
                let index = list.binary_search_by(|(other, _)| other.cmp(&at)).ok()?;
                Some(list.remove(index).1)
            }
            ExtentMap::Many(tree) => {
                let removed = tree.remove(&at);
                if tree.len() <= FEW / 4 {
                    *self = ExtentMap::Few(std::mem::take(tree).into_iter().collect());
                }
                removed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_sorted_map(steps in prop::collection::vec((0..80u64, any::<bool>()), 0..300), a in 0..90u64, b in 0..90u64) {
            let (mut map, mut model) = (ExtentMap::default(), BTreeMap::new());
            for (n, (at, puts)) in steps.into_iter().enumerate() {
                if !puts || model.contains_key(&at) {
                    prop_assert_eq!(map.remove(at), model.remove(&at));
                } else {
                    map.insert(at, n);
                    model.insert(at, n);
                }
                prop_assert!(map.iter().eq(model.iter().map(|(at, n)| (*at, n))));
            }
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(map.range(a, b).eq(model.range(a..b).map(|(at, n)| (*at, n))));
            let last = model.range(..a).next_back().map(|(at, n)| (*at, *n));
            prop_assert_eq!(map.last_before(a).map(|(at, n)| (at, *n)), last);
            prop_assert_eq!(map.last_before_mut(a).map(|(at, n)| (at, *n)), last);
        }
    }
}
