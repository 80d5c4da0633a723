//! Changes that are in no table yet, in order.
//!
//! A B+ tree that only grows: an entry is replaced or added, never removed (a deletion is an entry too, it hides what
//! older tables hold), and the whole goes away once a table has it. Nodes have a place for 32 keys, and of each key its
//! first 16 bytes lie in the node as one number, so that a search rarely leaves the node. Keys themselves are
//! copied end to end into chunks: no allocation for each. The standard library's map was the first choice; it took
//! about twice the time for a put, with an allocation a key.

use bytes::Bytes;
use smallvec::SmallVec;
use std::cmp::Ordering;

const FANOUT: usize = 32;
/// Of keys: the first is small, and each is twice the one before until this.
const CHUNK_MAX: usize = 64 << 10;
const CHUNK_MIN: usize = 4 << 10;
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
    /// Of values, with what their allocations cost.
    values: usize,
}

struct Leaf {
    len: usize,
    next: u32,
    heads: [u128; FANOUT],
    slots: [Slot; FANOUT],
}

#[derive(Default)]
struct Slot {
    key: KeyAt,
    value: Option<Bytes>,
}

/// Child `i` holds keys from `keys[i]` on, the first child also what is below.
struct Inner {
    len: usize,
    heads: [u128; FANOUT],
    keys: [KeyAt; FANOUT],
    children: [u32; FANOUT],
}

/// Keys end to end, in chunks.
#[derive(Default)]
struct Keys {
    chunks: Vec<Vec<u8>>,
    bytes: usize,
}

#[derive(Clone, Copy, Default)]
struct KeyAt {
    chunk: u32,
    start: u32,
    len: u32,
}

/// A place between or at entries, which stays right while nothing is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    leaf: u32,
    at: u32,
}

/// What a value takes beyond its bytes: the share of an allocation and its counter.
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
        let probe = Probe::new(key);
        let mut path = SmallVec::<[(u32, u32); 8]>::new();
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inner[node as usize];
            let child = inner.child_of(&probe, &self.keys);
            path.push((node, child as u32));
            node = inner.children[child];
        }
        let leaf = &mut self.leaves[node as usize];
        let (at, found) = seek(&leaf.heads[..leaf.len], |i| leaf.slots[i].key, &probe, &self.keys);
        self.values += weight(&value);
        if found {
            self.values -= weight(&leaf.slots[at].value);
            leaf.slots[at].value = value;
            return;
        }
        self.entries += 1;
        let slot = Slot { key: self.keys.push(key), value };
        if leaf.len < FANOUT {
            leaf.insert(at, probe.head, slot);
        } else {
            self.insert_into_full(node, at, probe.head, slot, path);
        }
    }

    /// `Some(None)` is a deletion.
    pub fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        let probe = Probe::new(key);
        let leaf = &self.leaves[self.leaf_of(&probe) as usize];
        let (at, found) = seek(&leaf.heads[..leaf.len], |i| leaf.slots[i].key, &probe, &self.keys);
        found.then(|| &leaf.slots[at].value)
    }

    /// Where the first entry not below `key` is.
    pub fn place(&self, key: &[u8]) -> Place {
        let probe = Probe::new(key);
        let leaf = self.leaf_of(&probe);
        let node = &self.leaves[leaf as usize];
        let (at, _) = seek(&node.heads[..node.len], |i| node.slots[i].key, &probe, &self.keys);
        Place { leaf, at: at as u32 }
    }

    pub fn start(&self) -> Place {
        // The first leaf keeps its number: splits move the upper half away.
        Place { leaf: 0, at: 0 }
    }

    /// The entry at or behind `place`, and the place behind it.
    pub fn entry(&self, mut place: Place) -> Option<(&[u8], &Option<Bytes>, Place)> {
        loop {
            let leaf = self.leaves.get(place.leaf as usize)?;
            if (place.at as usize) < leaf.len {
                let slot = &leaf.slots[place.at as usize];
                return Some((self.keys.get(slot.key), &slot.value, Place { at: place.at + 1, ..place }));
            }
            place = Place { leaf: leaf.next, at: 0 };
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Memory taken, and about what its table will take of the device.
    pub fn bytes(&self) -> usize {
        self.leaves.len() * size_of::<Leaf>()
            + self.inner.len() * size_of::<Inner>()
            + self.keys.bytes
            + self.values
    }

    /// Free a part of a memtable that nobody reads any more, so that no turn pays for all of it. Returns false when
    /// nothing is left.
    pub fn dismantle(&mut self, leaves: usize) -> bool {
        let left = self.leaves.len().saturating_sub(leaves);
        for leaf in self.leaves.drain(left..) {
            self.values -= leaf.slots.iter().map(|slot| weight(&slot.value)).sum::<usize>();
        }
        left > 0
    }

    fn leaf_of(&self, probe: &Probe) -> u32 {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inner[node as usize];
            node = inner.children[inner.child_of(probe, &self.keys)];
        }
        node
    }

    fn insert_into_full(
        &mut self,
        leaf: u32,
        at: usize,
        head: u128,
        slot: Slot,
        path: SmallVec<[(u32, u32); 8]>,
    ) {
        let new = self.leaves.len() as u32;
        let left = &mut self.leaves[leaf as usize];
        let mut right = left.split(if at == FANOUT { FANOUT } else { FANOUT / 2 });
        right.next = std::mem::replace(&mut left.next, new);
        match at.checked_sub(left.len) {
            Some(at) if at > 0 || right.len == 0 => right.insert(at, head, slot),
            _ => left.insert(at, head, slot),
        }
        let (head, key) = (right.heads[0], right.slots[0].key);
        self.leaves.push(right);
        self.add_child(head, key, new, path);
    }

    /// Make a new node known to the one above, and so on upwards while those are full.
    fn add_child(
        &mut self,
        mut head: u128,
        mut key: KeyAt,
        mut child: u32,
        mut path: SmallVec<[(u32, u32); 8]>,
    ) {
        while let Some((parent, at)) = path.pop() {
            let new = self.inner.len() as u32;
            let left = &mut self.inner[parent as usize];
            let at = at as usize + 1;
            if left.len < FANOUT {
                return left.insert(at, head, key, child);
            }
            let mut right = left.split(if at == FANOUT { FANOUT } else { FANOUT / 2 });
            match at.checked_sub(left.len) {
                Some(at) if at > 0 || right.len == 0 => right.insert(at, head, key, child),
                _ => left.insert(at, head, key, child),
            }
            (head, key, child) = (right.heads[0], right.keys[0], new);
            self.inner.push(right);
        }
        let mut root = Inner::empty();
        root.insert(0, 0, KeyAt::default(), self.root);
        root.insert(1, head, key, child);
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
        Box::new(Leaf { len: 0, next: NONE, heads: [0; FANOUT], slots: Default::default() })
    }

    fn insert(&mut self, at: usize, head: u128, slot: Slot) {
        self.heads.copy_within(at..self.len, at + 1);
        self.heads[at] = head;
        self.slots[self.len] = slot;
        self.slots[at..=self.len].rotate_right(1);
        self.len += 1;
    }

    /// Move the entries from `at` on to a new leaf.
    fn split(&mut self, at: usize) -> Box<Leaf> {
        let mut right = Leaf::empty();
        right.len = self.len - at;
        right.heads[..right.len].copy_from_slice(&self.heads[at..self.len]);
        right.slots[..right.len].swap_with_slice(&mut self.slots[at..self.len]);
        self.len = at;
        right
    }
}

impl Inner {
    fn empty() -> Box<Inner> {
        Box::new(Inner {
            len: 0,
            heads: [0; FANOUT],
            keys: [KeyAt::default(); FANOUT],
            children: [0; FANOUT],
        })
    }

    fn child_of(&self, probe: &Probe, keys: &Keys) -> usize {
        // The first child has no lower bound, so its key is not looked at.
        let (at, found) = seek(&self.heads[1..self.len], |i| self.keys[i + 1], probe, keys);
        if found { at + 1 } else { at }
    }

    fn insert(&mut self, at: usize, head: u128, key: KeyAt, child: u32) {
        let len = self.len;
        self.heads.copy_within(at..len, at + 1);
        self.keys.copy_within(at..len, at + 1);
        self.children.copy_within(at..len, at + 1);
        (self.heads[at], self.keys[at], self.children[at]) = (head, key, child);
        self.len += 1;
    }

    fn split(&mut self, at: usize) -> Box<Inner> {
        let mut right = Inner::empty();
        right.len = self.len - at;
        right.heads[..right.len].copy_from_slice(&self.heads[at..self.len]);
        right.keys[..right.len].copy_from_slice(&self.keys[at..self.len]);
        right.children[..right.len].copy_from_slice(&self.children[at..self.len]);
        self.len = at;
        right
    }
}

impl Keys {
    fn push(&mut self, key: &[u8]) -> KeyAt {
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < key.len()) {
            let usual = self.chunks.last().map_or(CHUNK_MIN, |chunk| chunk.capacity() * 2).min(CHUNK_MAX);
            let capacity = usual.max(key.len());
            self.chunks.push(Vec::with_capacity(capacity));
            self.bytes += capacity;
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let start = chunk.len();
        chunk.extend_from_slice(key);
        KeyAt { chunk: number as u32, start: start as u32, len: key.len() as u32 }
    }

    #[inline]
    fn get(&self, at: KeyAt) -> &[u8] {
        &self.chunks[at.chunk as usize][at.start as usize..(at.start + at.len) as usize]
    }
}

/// A key that is looked for.
struct Probe<'a> {
    head: u128,
    key: &'a [u8],
}

impl<'a> Probe<'a> {
    fn new(key: &'a [u8]) -> Probe<'a> {
        let mut head = [0; 16];
        let len = key.len().min(16);
        head[..len].copy_from_slice(&key[..len]);
        // Zeroes behind a short key: equal heads say nothing, different ones everything.
        Probe { head: u128::from_be_bytes(head), key }
    }

    #[inline]
    fn compare(&self, head: u128, key: KeyAt, keys: &Keys) -> Ordering {
        head.cmp(&self.head).then_with(|| keys.get(key).cmp(self.key))
    }
}

/// The first of the sorted keys that is not below the probe, and whether it is the probe.
#[inline]
fn seek(heads: &[u128], key: impl Fn(usize) -> KeyAt, probe: &Probe, keys: &Keys) -> (usize, bool) {
    let (mut low, mut high) = (0, heads.len());
    while low < high {
        let middle = low.midpoint(high);
        match probe.compare(heads[middle], key(middle), keys) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return (middle, true),
            Ordering::Greater => high = middle,
        }
    }
    (low, false)
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
        fn it_is_an_ordered_map(
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
        let mut steps = 0;
        while table.dismantle(100) {
            steps += 1;
        }
        assert_eq!(steps, 31);
    }
}
