//! Sorted keys of a memtable node.
//!
//! The keys of a node mostly share a long prefix. The node stores its length, and for each key the next eight bytes as a
//! number. So a search compares the prefix once, then contiguous numbers, and whole keys only if those are equal.

use super::node::{common, head};
use std::cmp::Ordering;

pub const FANOUT: usize = 32;

/// Sizes of key chunks: the first is small, and each is twice as large as its predecessor, up to the maximum.
const CHUNK_MAX: usize = 64 << 10;
const CHUNK_MIN: usize = 4 << 10;

/// Concatenated keys in chunks: each key is copied once and freed with all others.
#[derive(Default)]
pub struct Keys {
    chunks: Vec<Vec<u8>>,
    bytes: usize,
}

#[derive(Clone, Copy, Default)]
pub struct KeyAt {
    chunk: u32,
    start: u32,
    len: u32,
}

impl Keys {
    pub fn push(&mut self, key: &[u8]) -> KeyAt {
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < key.len()) {
            let usual = self.chunks.last().map_or(CHUNK_MIN, |chunk| chunk.capacity() * 2).min(CHUNK_MAX);
            let capacity = usual.max(key.len());
            let chunk = Vec::with_capacity(capacity);
            self.bytes += chunk.capacity();
            self.chunks.push(chunk);
        }
        let number = self.chunks.len() - 1;
        let chunk = &mut self.chunks[number];
        let start = chunk.len();
        chunk.extend_from_slice(key);
        KeyAt { chunk: number as u32, start: start as u32, len: key.len() as u32 }
    }

    #[inline]
    pub fn get(&self, at: KeyAt) -> &[u8] {
        &self.chunks[at.chunk as usize][at.start as usize..(at.start + at.len) as usize]
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frees the last chunk of a memtable that is freed in steps. Returns false if there is none.
    pub fn dismantle(&mut self) -> bool {
        let chunk = self.chunks.pop();
        self.bytes -= chunk.as_ref().map_or(0, Vec::capacity);
        chunk.is_some()
    }
}

#[derive(Default)]
pub struct Sorted {
    len: usize,
    /// A common prefix length of all keys, not necessarily the longest.
    prefix: usize,
    /// The eight bytes behind the prefix, as a big-endian number; zeroes behind a short key.
    heads: [u64; FANOUT],
    keys: [KeyAt; FANOUT],
}

impl Sorted {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_full(&self) -> bool {
        self.len == FANOUT
    }

    pub fn key(&self, at: usize) -> KeyAt {
        self.keys[at]
    }

    /// The first key that is not below `key`, and true if it equals `key`.
    #[inline]
    pub fn seek(&self, key: &[u8], keys: &Keys) -> (usize, bool) {
        if self.len == 0 {
            return (0, false);
        }
        let prefix = &keys.get(self.keys[0])[..self.prefix];
        let shared = prefix.len().min(key.len());
        match key[..shared].cmp(&prefix[..shared]) {
            Ordering::Less => return (0, false),
            Ordering::Greater => return (self.len, false),
            Ordering::Equal if key.len() < prefix.len() => return (0, false),
            Ordering::Equal => {}
        }
        let rest = &key[shared..];
        let head = head(rest);
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low.midpoint(high);
            // Of equal heads nothing is known: a short key's is filled up with zeroes.
            let order = self.heads[middle]
                .cmp(&head)
                .then_with(|| keys.get(self.keys[middle])[self.prefix..].cmp(rest));
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    pub fn insert(&mut self, at: usize, key: KeyAt, keys: &Keys) {
        let bytes = keys.get(key);
        let shared = match self.len {
            0 => bytes.len(),
            _ => common(&keys.get(self.keys[0])[..self.prefix], bytes),
        };
        if self.len == 0 {
            self.prefix = shared;
        } else if shared < self.prefix {
            self.set_prefix(shared, keys);
        }
        self.heads.copy_within(at..self.len, at + 1);
        self.keys.copy_within(at..self.len, at + 1);
        self.heads[at] = head(&bytes[self.prefix..]);
        self.keys[at] = key;
        self.len += 1;
    }

    /// Take away the keys from `at` on.
    pub fn split_off(&mut self, at: usize, keys: &Keys) -> Sorted {
        let mut right = Sorted { len: self.len - at, ..Sorted::default() };
        right.keys[..right.len].copy_from_slice(&self.keys[at..self.len]);
        right.fit_prefix(keys);
        self.len = at;
        self.fit_prefix(keys);
        right
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = len;
    }

    /// The longest that all keys share.
    fn fit_prefix(&mut self, keys: &Keys) {
        if self.len > 0 {
            let (first, last) = (keys.get(self.keys[0]), keys.get(self.keys[self.len - 1]));
            self.set_prefix(common(first, last), keys);
        }
    }

    fn set_prefix(&mut self, prefix: usize, keys: &Keys) {
        self.prefix = prefix;
        for (out, key) in self.heads.iter_mut().zip(&self.keys[..self.len]) {
            *out = head(&keys.get(*key)[prefix..]);
        }
    }
}
