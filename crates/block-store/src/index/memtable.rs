//! Memtables: changes that are in no table yet, in order.
//!
//! A memtable is a B+ tree that only grows. Entries are added or replaced, never removed: a deletion is an entry that hides
//! those of older tables. The tree is freed as a whole after its flush. Keys are copied into chunks, without an allocation
//! for each; [`sorted`](super::sorted) searches the keys of a node.

use super::sorted::{FANOUT, KeyAt, Keys, Sorted};
use bytes::Bytes;
use smallvec::SmallVec;

const NONE: u32 = u32::MAX;

// Boxed, so that a growing list of nodes does not move them all.
#[allow(clippy::vec_box)]
pub struct Memtable {
    leaves: Vec<Box<Leaf>>,
    inner: Vec<Box<Inner>>,
    /// A leaf while `height` is 0.
    root: u32,
    height: u32,
    keys: Keys,
    entries: usize,
    /// Bytes of values, with the overhead of their allocations.
    values: usize,
}

struct Leaf {
    keys: Sorted,
    values: [Option<Bytes>; FANOUT],
    next: u32,
}

/// Child `i` has the keys below key `i`; the last child has the rest.
struct Inner {
    keys: Sorted,
    children: [u32; FANOUT + 1],
}

/// The inner nodes above a leaf, with the number of the child on the path.
type Path = SmallVec<[(u32, usize); 8]>;

/// A position in the order of entries, valid until the next put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    leaf: u32,
    at: u32,
}

/// Memory of a value in addition to its bytes: allocation and reference count.
const VALUE_OVERHEAD: usize = 32;

impl Default for Memtable {
    fn default() -> Memtable {
        Memtable {
            leaves: vec![Leaf::empty()],
            inner: Vec::new(),
            root: 0,
            height: 0,
            keys: Keys::default(),
            entries: 0,
            values: 0,
        }
    }
}

impl Memtable {
    pub fn put(&mut self, key: &[u8], value: Option<Bytes>) {
        let mut path = Path::new();
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inner[node as usize];
            let child = inner.child_of(key, &self.keys);
            path.push((node, child));
            node = inner.children[child];
        }
        let leaf = &mut self.leaves[node as usize];
        let (at, found) = leaf.keys.seek(key, &self.keys);
        self.values += weight(&value);
        if found {
            self.values -= weight(&leaf.values[at]);
            leaf.values[at] = value;
            return;
        }
        self.entries += 1;
        let key = self.keys.push(key);
        if leaf.keys.is_full() {
            self.insert_into_full(node, at, key, value, path);
        } else {
            leaf.insert(at, key, value, &self.keys);
        }
    }

    /// `Some(None)` is a deletion.
    pub fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        let leaf = &self.leaves[self.leaf_of(key) as usize];
        let (at, found) = leaf.keys.seek(key, &self.keys);
        found.then(|| &leaf.values[at])
    }

    /// Position of the first entry that is not below `key`.
    pub fn place(&self, key: &[u8]) -> Place {
        let leaf = self.leaf_of(key);
        let (at, _) = self.leaves[leaf as usize].keys.seek(key, &self.keys);
        Place { leaf, at: at as u32 }
    }

    pub fn start(&self) -> Place {
        // The first leaf keeps its number: a split moves the upper half.
        Place { leaf: 0, at: 0 }
    }

    /// The entry at or behind `place`, and the position behind it.
    pub fn entry(&self, mut place: Place) -> Option<(&[u8], &Option<Bytes>, Place)> {
        loop {
            let leaf = self.leaves.get(place.leaf as usize)?;
            let at = place.at as usize;
            if at < leaf.keys.len() {
                let key = self.keys.get(leaf.keys.key(at));
                return Some((key, &leaf.values[at], Place { at: place.at + 1, ..place }));
            }
            place = Place { leaf: leaf.next, at: 0 };
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Memory of the memtable, and an estimate of the size of its table.
    pub fn bytes(&self) -> usize {
        self.leaves.len() * size_of::<Leaf>()
            + self.inner.len() * size_of::<Inner>()
            + self.keys.bytes()
            + self.values
    }

    /// Frees a part of a memtable that is no longer read, to spread the cost over several turns. Returns false when nothing is
    /// left.
    pub fn dismantle(&mut self, leaves: usize) -> bool {
        if self.leaves.is_empty() {
            return self.keys.dismantle();
        }
        let left = self.leaves.len().saturating_sub(leaves);
        for leaf in self.leaves.drain(left..) {
            self.values -= leaf.values.iter().map(weight).sum::<usize>();
        }
        true
    }

    fn leaf_of(&self, key: &[u8]) -> u32 {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inner[node as usize];
            node = inner.children[inner.child_of(key, &self.keys)];
        }
        node
    }

    fn insert_into_full(&mut self, leaf: u32, at: usize, key: KeyAt, value: Option<Bytes>, path: Path) {
        let new = self.leaves.len() as u32;
        let left = &mut self.leaves[leaf as usize];
        // Ascending keys fill their leaves.
        let middle = if at == FANOUT { FANOUT } else { FANOUT / 2 };
        let mut right = left.split(middle, &self.keys);
        right.next = std::mem::replace(&mut left.next, new);
        if at < middle || (at == middle && middle < FANOUT) {
            left.insert(at, key, value, &self.keys);
        } else {
            right.insert(at - middle, key, value, &self.keys);
        }
        let first = right.keys.key(0);
        self.leaves.push(right);
        self.add_child(first, new, path);
    }

    /// Adds a new node to its parent, and splits full parents.
    fn add_child(&mut self, mut key: KeyAt, mut child: u32, mut path: Path) {
        while let Some((parent, at)) = path.pop() {
            let new = self.inner.len() as u32;
            let left = &mut self.inner[parent as usize];
            if !left.keys.is_full() {
                return left.insert(at, key, child, &self.keys);
            }
            let middle = if at == FANOUT { FANOUT - 1 } else { FANOUT / 2 };
            let (up, mut right) = left.split(middle, &self.keys);
            if at <= middle {
                left.insert(at, key, child, &self.keys);
            } else {
                right.insert(at - middle - 1, key, child, &self.keys);
            }
            self.inner.push(right);
            (key, child) = (up, new);
        }
        let mut root = Inner::above(self.root);
        root.insert(0, key, child, &self.keys);
        self.root = self.inner.len() as u32;
        self.height += 1;
        self.inner.push(root);
    }
}

fn weight(value: &Option<Bytes>) -> usize {
    value.as_ref().map_or(0, |value| value.len() + VALUE_OVERHEAD)
}

impl Leaf {
    fn empty() -> Box<Leaf> {
        Box::new(Leaf { keys: Sorted::default(), values: Default::default(), next: NONE })
    }

    fn insert(&mut self, at: usize, key: KeyAt, value: Option<Bytes>, keys: &Keys) {
        let len = self.keys.len();
        self.keys.insert(at, key, keys);
        self.values[len] = value;
        self.values[at..=len].rotate_right(1);
    }

    /// Moves the entries from `at` on to a new leaf.
    fn split(&mut self, at: usize, keys: &Keys) -> Box<Leaf> {
        let mut right = Leaf::empty();
        let len = self.keys.len();
        right.keys = self.keys.split_off(at, keys);
        right.values[..len - at].swap_with_slice(&mut self.values[at..len]);
        right
    }
}

impl Inner {
    fn above(child: u32) -> Box<Inner> {
        let mut children = [NONE; FANOUT + 1];
        children[0] = child;
        Box::new(Inner { keys: Sorted::default(), children })
    }

    fn child_of(&self, key: &[u8], keys: &Keys) -> usize {
        let (at, found) = self.keys.seek(key, keys);
        at + found as usize
    }

    /// Inserts a child for the keys from `key` on, behind child `at`.
    fn insert(&mut self, at: usize, key: KeyAt, child: u32, keys: &Keys) {
        let len = self.keys.len();
        self.keys.insert(at, key, keys);
        self.children.copy_within(at + 1..len + 1, at + 2);
        self.children[at + 1] = child;
    }

    /// Moves the keys behind key `at` to a new node, and returns that key for the parent.
    fn split(&mut self, at: usize, keys: &Keys) -> (KeyAt, Box<Inner>) {
        let len = self.keys.len();
        let up = self.keys.key(at);
        let mut right = Inner::above(self.children[at + 1]);
        right.keys = self.keys.split_off(at + 1, keys);
        right.children[..len - at].copy_from_slice(&self.children[at + 1..len + 1]);
        self.keys.truncate(at);
        (up, right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn entries(table: &Memtable, mut place: Place) -> Vec<(Vec<u8>, Option<Bytes>)> {
        let mut out = Vec::new();
        while let Some((key, value, next)) = table.entry(place) {
            out.push((key.to_vec(), value.clone()));
            place = next;
        }
        out
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(0u8..3, 0..5),
            any::<u16>().prop_map(|n| [&[9; 15][..], &n.to_be_bytes()].concat()),
            (0u16..2000).prop_map(|n| n.to_be_bytes().to_vec()),
        ]
    }

    proptest! {
        #[test]
        fn memtable_behaves_as_ordered_map(
            puts in prop::collection::vec((key(), prop::option::of(0u8..9)), 0..3000),
            probes in prop::collection::vec(key(), 0..20),
        ) {
            let (mut table, mut model) = (Memtable::default(), BTreeMap::new());
            for (key, value) in puts {
                let value = value.map(|n| Bytes::from(vec![n; n as usize]));
                table.put(&key, value.clone());
                model.insert(key, value);
            }
            let all: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            prop_assert_eq!(entries(&table, table.start()), all);
            let values: usize = model.values().map(weight).sum();
            prop_assert_eq!(table.values, values);
            for probe in &probes {
                prop_assert_eq!(table.get(probe), model.get(probe));
                let tail: Vec<_> = model.range(probe.clone()..).map(|(k, v)| (k.clone(), v.clone())).collect();
                prop_assert_eq!(entries(&table, table.place(probe)), tail);
            }
        }
    }

    #[test]
    fn ascending_keys_fill_their_leaves() {
        let mut table = Memtable::default();
        for i in 0..100_000u32 {
            table.put(&i.to_be_bytes(), None);
        }
        assert!(table.leaves.len() <= 100_000 / FANOUT + 1, "{} leaves", table.leaves.len());
        assert_eq!(entries(&table, table.start()).len(), 100_000);
        let (mut steps, mut bytes) = (0, table.bytes());
        while table.dismantle(100) {
            assert!(table.bytes() < bytes);
            (steps, bytes) = (steps + 1, table.bytes());
        }
        assert!(steps > 31 && table.values == 0 && table.keys.bytes() == 0);
    }
}
