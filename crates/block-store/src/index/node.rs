//! Nodes of tables: sorted keys with values, in a multiple of 4 KiB.
//!
//! ```text
//!  0  u8   kind: 1 entries, 2 guide of a segment, 3 root of a table
//!  1  u8   1: slots are u32, 0: slots are u16
//!  2  u16  P, length of the prefix that all keys share
//!  4  u32  N, number of entries
//!  8  u32  L, length of the node: header, prefix, slots and entries
//! 12  u32  F, length of the filter (guides only)
//! 16  prefix, P bytes
//!     N slots: where each entry starts, counted from the node's start; in the order of the keys
//!     N entries: varint length of the key without its prefix; varint 0 for a deletion, else the value's length + 1;
//!                the key without its prefix; the value
//!  L  filter, F bytes; then zeroes up to a multiple of 4 KiB
//! ```
//!
//! A shared prefix and slots were chosen over delta-coded keys: a search bisects without decoding neighbours, and the keys of
//! a block share nearly all of their bytes anyway. The checksum lies with the pointer to the node, so a lost or misdirected
//! write is detected.

use bytes::Bytes;
use device::BLOCK;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

const HEADER: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Entries = 1,
    Guide = 2,
    Root = 3,
}

/// A parsed and validated node.
#[derive(Clone, Debug)]
pub struct Node {
    bytes: Bytes,
    count: usize,
    prefix: usize,
    wide: bool,
    len: usize,
    filter: usize,
    /// The first eight bytes of each key behind the prefix, as numbers: contiguous, for the search.
    heads: Arc<[u64]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Node {
    /// Parses and validates a node.
    pub fn parse(bytes: Bytes, kind: Kind) -> Result<Node, Malformed> {
        let header = bytes.first_chunk::<HEADER>().ok_or(Malformed)?;
        let word =
            |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize;
        if header[0] != kind as u8 || header[1] > 1 {
            return Err(Malformed);
        }
        let mut node = Node {
            count: word(4),
            prefix: u16::from_le_bytes([header[2], header[3]]) as usize,
            wide: header[1] == 1,
            len: word(8),
            filter: word(12),
            heads: Arc::default(),
            bytes,
        };
        let room = node.bytes.len().checked_sub(node.len).ok_or(Malformed)?;
        let slots = node.count.checked_mul(node.slot_len()).ok_or(Malformed)?;
        if node.filter > room || slots.checked_add(HEADER + node.prefix).is_none_or(|end| end > node.len) {
            return Err(Malformed);
        }
        node.heads = node.check_entries(HEADER + node.prefix + slots)?;
        Ok(node)
    }

    /// Checks that entries lie between slots and end, and that keys ascend. Returns the heads.
    fn check_entries(&self, start: usize) -> Result<Arc<[u64]>, Malformed> {
        // Bounded: the slots are there.
        let mut heads = Vec::with_capacity(self.count);
        let mut last: Option<&[u8]> = None;
        for i in 0..self.count {
            let at = self.slot(i);
            if at < start || at >= self.len {
                return Err(Malformed);
            }
            let body = &self.bytes[at..self.len];
            let (key_len, n) = varint(body).ok_or(Malformed)?;
            let (value_len, m) = varint(&body[n..]).ok_or(Malformed)?;
            let body = &body[n + m..];
            if key_len.checked_add(value_len.saturating_sub(1)).is_none_or(|end| end > body.len()) {
                return Err(Malformed);
            }
            let key = &body[..key_len];
            if last.is_some_and(|last| last >= key) {
                return Err(Malformed);
            }
            last = Some(key);
            heads.push(head(key));
        }
        Ok(heads.into())
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Memory of the node.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.count * size_of::<u64>() + size_of::<Node>()
    }

    pub fn filter(&self) -> &[u8] {
        &self.bytes[self.len..self.len + self.filter]
    }

    pub fn prefix(&self) -> &[u8] {
        &self.bytes[HEADER..HEADER + self.prefix]
    }

    /// Key of entry `i` without [`Node::prefix`].
    #[inline]
    pub fn suffix(&self, i: usize) -> &[u8] {
        let (key, _) = self.entry(i);
        &self.bytes[key]
    }

    pub fn key_into(&self, i: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.suffix(i));
    }

    pub fn key(&self, i: usize) -> Vec<u8> {
        [self.prefix(), self.suffix(i)].concat()
    }

    /// `None` is a deletion.
    #[inline]
    pub fn value(&self, i: usize) -> Option<&[u8]> {
        let (_, value) = self.entry(i);
        value.map(|range| &self.bytes[range])
    }

    /// The value without a copy: it keeps the node's memory alive.
    pub fn value_shared(&self, i: usize) -> Option<Bytes> {
        let (_, value) = self.entry(i);
        value.map(|range| self.bytes.slice(range))
    }

    /// The first entry whose key is not below `key`, and true if it equals `key`.
    pub fn seek(&self, key: &[u8]) -> (usize, bool) {
        let prefix = self.prefix();
        let shared = prefix.len().min(key.len());
        match key[..shared].cmp(&prefix[..shared]) {
            Ordering::Less => return (0, false),
            Ordering::Greater => return (self.count, false),
            Ordering::Equal if key.len() < prefix.len() => return (0, false),
            Ordering::Equal => {}
        }
        let rest = &key[shared..];
        let head = head(rest);
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.heads[middle].cmp(&head).then_with(|| self.suffix(middle).cmp(rest)) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// True if all keys are in `first..end`, as the pointer to the node says.
    pub fn is_within(&self, first: &[u8], end: &[u8]) -> bool {
        self.seek(first).0 == 0 && self.seek(end).0 == self.count
    }

    /// In a guide or root, whose keys are lower bounds: the entry whose range has `key`.
    pub fn covering(&self, key: &[u8]) -> Option<usize> {
        match self.seek(key) {
            (i, true) => Some(i),
            (i, false) => i.checked_sub(1),
        }
    }

    fn slot_len(&self) -> usize {
        if self.wide { 4 } else { 2 }
    }

    #[inline]
    fn slot(&self, i: usize) -> usize {
        let at = HEADER + self.prefix + i * self.slot_len();
        if self.wide {
            u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes")) as usize
        } else {
            u16::from_le_bytes(self.bytes[at..at + 2].try_into().expect("two bytes")) as usize
        }
    }

    /// Ranges of the key suffix and the value.
    #[inline]
    fn entry(&self, i: usize) -> (Range<usize>, Option<Range<usize>>) {
        let at = self.slot(i);
        let (key_len, n) = varint(&self.bytes[at..]).expect("checked when parsed");
        let (value_len, m) = varint(&self.bytes[at + n..]).expect("checked when parsed");
        let key = at + n + m;
        let value = key + key_len;
        (key..value, value_len.checked_sub(1).map(|len| value..value + len))
    }
}

/// Builder of a node; keys must ascend.
#[derive(Default)]
pub struct Builder {
    /// Keys and values, concatenated.
    staged: Vec<u8>,
    entries: Vec<Staged>,
    keys_len: usize,
    values_len: usize,
    /// Length of the common prefix of the first and last key, and so of all keys.
    prefix: usize,
}

struct Staged {
    key: Range<usize>,
    value_len: Option<usize>,
}

impl Builder {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn first_key(&self) -> &[u8] {
        self.entries.first().map_or(&[], |entry| &self.staged[entry.key.clone()])
    }

    pub fn last_key(&self) -> &[u8] {
        self.entries.last().map_or(&[], |entry| &self.staged[entry.key.clone()])
    }

    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        debug_assert!(self.is_empty() || self.last_key() < key, "keys ascend");
        self.prefix = self.prefix_with(key);
        let start = self.staged.len();
        self.staged.extend_from_slice(key);
        let end = self.staged.len();
        self.staged.extend_from_slice(value.unwrap_or_default());
        self.keys_len += key.len();
        self.values_len += value.map_or(0, <[u8]>::len);
        self.entries.push(Staged { key: start..end, value_len: value.map(<[u8]>::len) });
    }

    /// Upper bound of the length of the node, without filter and padding.
    pub fn len_bound(&self) -> usize {
        len_bound(self.entries.len(), self.keys_len, self.values_len, self.prefix)
    }

    /// [`Builder::len_bound`] with one more entry.
    pub fn len_bound_with(&self, key: &[u8], value: Option<&[u8]>) -> usize {
        len_bound(
            self.entries.len() + 1,
            self.keys_len + key.len(),
            self.values_len + value.map_or(0, <[u8]>::len),
            self.prefix_with(key),
        )
    }

    /// Appends the node to `out`, padded to a multiple of [`BLOCK`], and clears the builder.
    pub fn finish(&mut self, kind: Kind, filter: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let first = self.entries.first().map_or(0..0, |entry| entry.key.start..entry.key.start + self.prefix);
        // Rare: a very long value, or a guide of long keys.
        let wide = self.keys_len + self.values_len + HEADER + self.entries.len() * 14 > u16::MAX as usize;
        let slot_len = if wide { 4 } else { 2 };
        out.extend_from_slice(&[kind as u8, wide as u8]);
        out.extend_from_slice(&(self.prefix as u16).to_le_bytes());
        out.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(filter.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.staged[first]);
        let slots = out.len();
        out.resize(slots + self.entries.len() * slot_len, 0);
        for (i, entry) in self.entries.iter().enumerate() {
            let at = ((out.len() - start) as u32).to_le_bytes();
            out[slots + i * slot_len..][..slot_len].copy_from_slice(&at[..slot_len]);
            push_varint(out, entry.key.len() - self.prefix);
            push_varint(out, entry.value_len.map_or(0, |len| len + 1));
            let end = entry.key.end + entry.value_len.unwrap_or(0);
            out.extend_from_slice(&self.staged[entry.key.start + self.prefix..end]);
        }
        let len = (out.len() - start) as u32;
        out[start + 8..start + 12].copy_from_slice(&len.to_le_bytes());
        out.extend_from_slice(filter);
        out.resize(start + (out.len() - start).next_multiple_of(BLOCK), 0);
        self.clear();
    }

    fn clear(&mut self) {
        self.staged.clear();
        self.entries.clear();
        (self.keys_len, self.values_len, self.prefix) = (0, 0, 0);
    }

    fn prefix_with(&self, key: &[u8]) -> usize {
        if self.entries.is_empty() {
            return key.len().min(u16::MAX as usize);
        }
        common(&self.first_key()[..self.prefix], key)
    }
}

fn len_bound(count: usize, keys_len: usize, values_len: usize, prefix: usize) -> usize {
    // A slot of 2 bytes, and two varints of one byte each, or more for long entries.
    let per_entry = 2 + 2 + 2;
    let long = if keys_len + values_len >= 1 << 14 { count * 8 } else { 0 };
    HEADER + prefix + keys_len - count * prefix + values_len + count * per_entry + long
}

/// The first eight bytes as a number. A shorter key is padded with zeroes, so equal heads do not mean equal keys.
#[inline]
pub fn head(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(head)
}

/// Length of the common prefix of two slices.
pub fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A varint and its length; `None` if it is truncated or exceeds 32 bits.
#[inline]
fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((first as usize, 1));
    }
    let mut value = (first & 0x7f) as u64;
    for (i, byte) in bytes.iter().enumerate().skip(1).take(4) {
        value |= ((byte & 0x7f) as u64) << (7 * i);
        if byte & 0x80 == 0 {
            return (value <= u32::MAX as u64).then_some((value as usize, i + 1));
        }
    }
    None
}

fn push_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn build(entries: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> (Node, usize) {
        let mut builder = Builder::default();
        for (key, value) in entries {
            let promised = builder.len_bound_with(key, value.as_deref());
            builder.push(key, value.as_deref());
            assert_eq!(builder.len_bound(), promised);
        }
        let (bound, mut out) = (builder.len_bound(), Vec::new());
        builder.finish(Kind::Entries, b"filter", &mut out);
        (Node::parse(out.into(), Kind::Entries).unwrap(), bound)
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(0u8..4, 0..6),
            prop::collection::vec(0u8..3, 0..4).prop_map(|tail| [vec![7; 200], tail].concat()),
        ]
    }

    proptest! {
        #[test]
        fn built_entries_are_found(
            entries in prop::collection::btree_map(keys(), prop::option::of(prop::collection::vec(any::<u8>(), 0..300)), 0..60),
            probes in prop::collection::vec(keys(), 0..20),
        ) {
            let (node, bound) = build(&entries);
            prop_assert!(node.len <= bound);
            prop_assert_eq!(node.filter(), b"filter");
            let read: BTreeMap<_, _> = (0..node.count()).map(|i| (node.key(i), node.value(i).map(<[u8]>::to_vec))).collect();
            prop_assert_eq!(&read, &entries);
            for probe in probes.iter().chain(entries.keys()) {
                let below = entries.range::<Vec<u8>, _>(..probe).count();
                prop_assert_eq!(node.seek(probe), (below, entries.contains_key(probe)));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
            if small && bytes.len() >= HEADER {
                // Likely headers, so that the checks behind them are reached.
                bytes[0] = 1;
                bytes[1] &= 1;
                let len = bytes.len() as u32;
                bytes[3] = 0;
                bytes[5..8].fill(0);
                bytes[8..12].copy_from_slice(&len.to_le_bytes());
                bytes[12..16].fill(0);
                bytes[4] &= 7;
                bytes[2] &= 7;
            }
            if let Ok(node) = Node::parse(bytes.into(), Kind::Entries) {
                for i in 0..node.count() {
                    let key = node.key(i);
                    node.value(i);
                    prop_assert_eq!(node.seek(&key), (i, true));
                }
            }
        }
    }

    #[test]
    fn long_values_and_keys_fit() {
        let mut entries: BTreeMap<_, _> = (0..100u8).map(|i| (vec![i; 3000], Some(vec![i; 100]))).collect();
        entries.insert(vec![255], Some(vec![1; 3 << 20]));
        let (node, bound) = build(&entries);
        assert!(node.wide && node.len <= bound && node.count() == 101);
        assert_eq!(node.value(100).unwrap().len(), 3 << 20);
        assert_eq!(node.seek(&[50; 3000]), (50, true));
    }
}
