//! The changes of keys of one plan, in the order of the keys.
//!
//! A client's write changes half a dozen: those lie side by side. A plan that changes many has them in a tree.

use crate::object::key::Key;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

/// More than that are a tree.
const FEW: usize = 16;

type Entry = (Key, Option<Bytes>);

#[derive(Debug, Default)]
pub struct Changes {
    /// Sorted. Empty, once there is a tree.
    few: Vec<Entry>,
    many: BTreeMap<Key, Option<Bytes>>,
}

impl Changes {
    /// The newer change of a key replaces the older.
    pub fn insert(&mut self, key: Key, value: Option<Bytes>) {
        if !self.many.is_empty() {
            self.many.insert(key, value);
            return;
        }
        match self.place(&key) {
            Ok(at) => self.few[at].1 = value,
            Err(_) if self.few.len() == FEW => {
                self.many.extend(self.few.drain(..));
                self.many.insert(key, value);
            }
            Err(at) => {
                if self.few.capacity() == 0 {
                    self.few.reserve(FEW / 2);
                }
                self.few.insert(at, (key, value));
            }
        }
    }

    fn place(&self, key: &[u8]) -> Result<usize, usize> {
        self.few.binary_search_by(|(k, _)| k[..].cmp(key))
    }

    /// `Some(None)`: it is deleted.
    pub fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        match self.many.is_empty() {
            true => self.place(key).ok().map(|at| &self.few[at].1),
            false => self.many.get(key),
        }
    }

    /// Those with `from <= key < to`; `from` must not be above `to`.
    pub fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&Key, &Option<Bytes>)> {
        let (start, end) = (self.place(from), self.place(to));
        let (Ok(start) | Err(start), Ok(end) | Err(end)) = (start, end);
        let few = self.few[start..end].iter().map(|(key, value)| (key, value));
        few.chain(self.many.range::<[u8], _>((Included(from), Excluded(to))))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Option<Bytes>)> {
        self.few.iter().map(|(key, value)| (key, value)).chain(&self.many)
    }
}

impl IntoIterator for Changes {
    type Item = Entry;
    type IntoIter = std::iter::Chain<
        std::vec::IntoIter<Entry>,
        std::collections::btree_map::IntoIter<Key, Option<Bytes>>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.few.into_iter().chain(self.many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_an_ordered_map(
            entries in prop::collection::vec((0u8..40, prop::option::of(any::<u8>())), 0..60),
            (from, to) in (0u8..40, 0u8..40),
        ) {
            let (mut changes, mut model) = (Changes::default(), BTreeMap::new());
            for (key, value) in entries {
                let (key, value) = (vec![key], value.map(|byte| Bytes::from(vec![byte])));
                changes.insert(key.clone(), value.clone());
                model.insert(key, value);
                prop_assert!(changes.iter().eq(model.iter()));
            }
            let (from, to) = (vec![from.min(to)], vec![from.max(to)]);
            let expected = model.range::<[u8], _>((Included(&from[..]), Excluded(&to[..])));
            prop_assert!(changes.range(&from, &to).eq(expected));
            for key in 0..40 {
                prop_assert_eq!(changes.get(&[key]), model.get(&[key][..]));
            }
            prop_assert_eq!(changes.into_iter().collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
        }
    }
}
