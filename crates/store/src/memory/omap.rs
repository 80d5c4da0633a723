//! The omap of an object, and its header.

use super::extents::COPY_BELOW;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// A key with its first 16 bytes as a number, so that most comparisons are of two numbers. A short key lies in the tree's
/// node. Keys of a PG log, which every write adds to, have nine bytes.
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
    /// Entries added in ascending order behind all of `entries`, and removed from the front: a log needs no search. Any other
    /// change moves them into the tree.
    tail: VecDeque<(Key, Bytes)>,
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
        let kept = Key::new(&key);
        let last = self.tail.back().map(|(last, _)| last);
        if last
            .or_else(|| self.entries.last_key_value().map(|(last, _)| last))
            .is_none_or(|last| *last < kept)
        {
            self.bytes += key.len() as u64;
            return self.tail.push_back((kept, own(value)));
        }
        if let Some(at) = self.find_in_tail(&kept) {
            let old = std::mem::replace(&mut self.tail[at].1, own(value));
            self.bytes -= old.len() as u64;
            return;
        }
        if self.tail.front().is_some_and(|(first, _)| *first < kept) {
            self.settle();
        }
        match self.entries.entry(kept) {
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

    fn find_in_tail(&self, key: &Key) -> Option<usize> {
        if self.tail.front().is_none_or(|(first, _)| first > key) {
            return None;
        }
        self.tail.binary_search_by(|(other, _)| other.cmp(key)).ok()
    }

    /// Moves the tail into the tree. Each entry moves at most once.
    fn settle(&mut self) {
        self.entries.extend(self.tail.drain(..));
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        let key = Key::new(key);
        let removed = match self.find_in_tail(&key) {
            Some(0) => self.tail.pop_front(),
            Some(_) => {
                self.settle();
                self.entries.remove_entry(&key)
            }
            None => self.entries.remove_entry(&key),
        };
        if let Some((key, value)) = removed {
            self.bytes -= (key.bytes.len() + value.len()) as u64;
        }
    }

    /// Removes keys in `from..to`.
    pub(super) fn remove_range(&mut self, from: Bytes, to: Bytes) {
        if from >= to {
            return;
        }
        self.settle();
        let range = Key::new(&from)..Key::new(&to);
        for (key, value) in self.entries.extract_if(range, |_, _| true) {
            self.bytes -= (key.bytes.len() + value.len()) as u64;
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Bytes> {
        let key = Key::new(key);
        match self.find_in_tail(&key) {
            Some(at) => Some(&self.tail[at].1),
            None => self.entries.get(&key),
        }
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
        let first = self.tail.partition_point(|(key, _)| match &start {
            Bound::Excluded(start) => key <= start,
            Bound::Included(start) => key < start,
            Bound::Unbounded => false,
        });
        let tail = self.tail.range(first..).map(|(key, value)| (key, value));
        let rest = self.entries.range((start, Bound::Unbounded)).chain(tail);
        rest.map(|(key, value)| (&key.bytes[..], value)).take_while(move |(key, _)| key.starts_with(prefix))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &Bytes)> {
        let tail = self.tail.iter().map(|(key, value)| (key, value));
        self.entries.iter().chain(tail).map(|(key, value)| (&key.bytes[..], value))
    }

    /// Panics if an invariant is broken.
    pub(super) fn check(&self) {
        let mut last = None;
        for (key, _) in self.iter() {
            assert!(last.is_none_or(|last| last < key), "keys are in order, also from tree to tail");
            last = Some(key);
        }
        let entries: usize = self.iter().map(|(k, v)| k.len() + v.len()).sum();
        assert_eq!(self.bytes, (self.header.len() + entries) as u64, "the count of omap bytes is right");
    }
}
