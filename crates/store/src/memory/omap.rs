//! The omap of an object, and its header.

use super::extents::COPY_BELOW;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

/// A key with its first 16 bytes as a number, so that most comparisons are of two numbers. A short key lies in the tree's
/// node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Big-endian, padded with zeroes. If two differ, they order as the keys do.
    head: u128,
    bytes: SmallVec<[u8; 24]>,
}

impl Key {
    fn new(bytes: &[u8]) -> Key {
        let mut head = [0; 16];
        let len = bytes.len().min(head.len());
        head[..len].copy_from_slice(&bytes[..len]);
        Key { head: u128::from_be_bytes(head), bytes: SmallVec::from_slice(bytes) }
    }
}

#[derive(Clone, Default)]
pub(super) struct Omap {
    header: Bytes,
    entries: BTreeMap<Key, Bytes>,
    /// Bytes of keys, values and header.
    bytes: u64,
}

/// A key or value to store. A short one is copied, so that it does not keep its message alive.
pub(super) fn own(b: Bytes) -> Bytes {
    if b.len() < COPY_BELOW { Bytes::copy_from_slice(&b) } else { b }
}

impl Omap {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn header(&self) -> &Bytes {
        &self.header
    }

    pub(super) fn set_header(&mut self, header: Bytes) {
        self.bytes = self.bytes - self.header.len() as u64 + header.len() as u64;
        self.header = own(header);
    }

    pub(super) fn set(&mut self, key: Bytes, value: Bytes) {
        self.bytes += value.len() as u64;
        match self.entries.entry(Key::new(&key)) {
            Entry::Occupied(mut old) => {
                self.bytes -= old.get().len() as u64;
                old.insert(own(value));
            }
            Entry::Vacant(slot) => {
                self.bytes += key.len() as u64;
                slot.insert(own(value));
            }
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some((key, value)) = self.entries.remove_entry(&Key::new(key)) {
            self.bytes -= (key.bytes.len() + value.len()) as u64;
        }
    }

    /// Removes keys in `from..to`.
    pub(super) fn remove_range(&mut self, from: Bytes, to: Bytes) {
        if from >= to {
            return;
        }
        let range = Key::new(&from)..Key::new(&to);
        for (key, value) in self.entries.extract_if(range, |_, _| true) {
            self.bytes -= (key.bytes.len() + value.len()) as u64;
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.entries.get(&Key::new(key))
    }

    /// Entries whose keys are greater than `after`, at least `from`, and start with `prefix`; ascending.
    pub(super) fn list<'a>(
        &'a self,
        after: Option<&[u8]>,
        from: &'a [u8],
        prefix: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Bytes)> {
        let least = from.max(prefix);
        let start = match after {
            Some(after) if after >= least => Bound::Excluded(Key::new(after)),
            _ => Bound::Included(Key::new(least)),
        };
        let rest = self.entries.range((start, Bound::Unbounded));
        rest.map(|(key, value)| (&key.bytes[..], value)).take_while(move |(key, _)| key.starts_with(prefix))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &Bytes)> {
        self.entries.iter().map(|(key, value)| (&key.bytes[..], value))
    }

    /// Panics if an invariant is broken.
    pub(super) fn check(&self) {
        let mut last = None;
        for (key, _) in self.iter() {
            assert!(last.is_none_or(|last| last < key), "keys are in order");
            last = Some(key);
        }
        let entries: usize = self.iter().map(|(k, v)| k.len() + v.len()).sum();
        assert_eq!(self.bytes, (self.header.len() + entries) as u64, "the count of omap bytes is right");
    }
}
