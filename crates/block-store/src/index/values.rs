//! Newest values of keys that are asked for again and again.
//!
//! A 4 KiB overwrite asks for the record of its object and for a page. Where the store has more of them than a memtable
//! holds, each of the two searches the memtables, and guides, filters and blocks of the tables. A value that is here costs one
//! look-up.
//!
//! A value is the newest at any time: [`Values::change`] gets each change that the memtables get, and neither a flush nor a
//! merge changes what a key has. So this is asked before the memtables.

use crate::cache::{self, Cache};
use bytes::Bytes;
use smallvec::SmallVec;

/// Each part has its own tables, which grow by moving their entries: a small one does in a short time.
const PARTS: usize = 64;
/// Longer values are not kept, so that few of them cannot take the room of many.
const VALUE_MAX: usize = 1024;
/// Keys of pages, and of records with short names, need no allocation of their own.
type Key = SmallVec<[u8; 32]>;

/// The hash of a key. Two keys of one hash take each other's place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Hash(u64);

struct Value {
    key: Key,
    /// `None` if the index does not have the key.
    value: Option<Bytes>,
}

pub struct Values {
    parts: Vec<Cache<Hash, Value>>,
    bytes: usize,
    budget: usize,
}

impl cache::Name for Hash {
    fn hash(self) -> u64 {
        self.0
    }
}

impl cache::Entry for Value {
    fn bytes(&self) -> usize {
        let spilled = if self.key.spilled() { self.key.len() } else { 0 };
        size_of::<Value>() + spilled + self.value.as_ref().map_or(0, Bytes::len)
    }
}

fn drop_it(_: Hash, _: Value) {}

impl Values {
    pub fn new(budget: usize) -> Values {
        Values { parts: (0..PARTS).map(|_| Cache::that_grows(budget / PARTS)).collect(), bytes: 0, budget }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the budget. A much smaller one is reached by and by: see [`Values::trim`].
    pub fn set_budget(&mut self, bytes: usize) {
        self.budget = bytes;
        self.parts.iter_mut().for_each(|part| part.set_budget(bytes / PARTS, &mut drop_it));
        self.count();
    }

    /// Evicts some values, while they are more than the budget. Returns true if another call would get further.
    pub fn trim(&mut self) -> bool {
        if self.bytes <= self.budget {
            return false;
        }
        let more = self.parts.iter_mut().fold(false, |more, part| more | part.trim(&mut drop_it));
        self.count();
        more
    }

    fn count(&mut self) {
        self.bytes = self.parts.iter().map(Cache::bytes).sum();
    }

    /// The newest value of a key; `Some(None)` if the index does not have the key, `None` if it is not known here.
    #[inline]
    pub fn find(&mut self, key: &[u8], hash: u64) -> Option<&Option<Bytes>> {
        let part = &mut self.parts[part_of(hash)];
        let slot = part.find(Hash(hash))?;
        let found = part.entry(slot);
        (found.key[..] == *key).then_some(&found.value)
    }

    /// The newest value, without a sign of use.
    pub fn peek(&self, key: &[u8], hash: u64) -> Option<&Option<Bytes>> {
        let found = self.parts[part_of(hash)].peek(Hash(hash))?;
        (found.key[..] == *key).then_some(&found.value)
    }

    /// Keeps the newest value of a key.
    pub fn keep(&mut self, key: &[u8], hash: u64, value: Option<Bytes>) {
        if value.as_ref().is_some_and(|value| value.len() > VALUE_MAX) {
            return;
        }
        let part = &mut self.parts[part_of(hash)];
        let before = part.bytes();
        part.insert(Hash(hash), Value { key: Key::from_slice(key), value }, 0, &mut drop_it);
        self.bytes = self.bytes + part.bytes() - before;
    }

    /// A key has got another value, or was deleted.
    #[inline]
    pub fn change(&mut self, key: &[u8], hash: u64, value: &Option<Bytes>) {
        let part = &mut self.parts[part_of(hash)];
        let before = part.bytes();
        part.change(Hash(hash), |entry| {
            let is_of_another = entry.key[..] != *key;
            let is_short = value.as_ref().is_none_or(|value| value.len() <= VALUE_MAX);
            if !is_of_another && is_short {
                entry.value.clone_from(value);
            }
            is_of_another || is_short
        });
        self.bytes = self.bytes + part.bytes() - before;
    }
}

/// The low bits are the place in the part's table.
fn part_of(hash: u64) -> usize {
    (hash >> 48) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::super::filter::hash;
    use super::*;

    const BUDGET: usize = 1 << 20;

    fn found(values: &mut Values, key: &[u8]) -> Option<Option<Bytes>> {
        let peeked = values.peek(key, hash(key)).cloned();
        let found = values.find(key, hash(key)).cloned();
        assert_eq!(found, peeked);
        found
    }

    #[test]
    fn value_is_the_last_change() {
        let mut values = Values::new(BUDGET);
        let one = Some(Bytes::from_static(b"one"));
        values.change(b"a", hash(b"a"), &one);
        assert_eq!(found(&mut values, b"a"), None, "nobody asked for it");
        values.keep(b"a", hash(b"a"), None);
        assert_eq!(found(&mut values, b"a"), Some(None));
        values.change(b"a", hash(b"a"), &one);
        assert_eq!(found(&mut values, b"a"), Some(one));
        values.change(b"a", hash(b"a"), &None);
        assert_eq!(found(&mut values, b"a"), Some(None));
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let mut values = Values::new(BUDGET);
        let one = Some(Bytes::from_static(b"one"));
        values.keep(b"a", 7, one.clone());
        assert_eq!(values.find(b"b", 7), None);
        values.change(b"b", 7, &None);
        assert_eq!(values.find(b"a", 7), Some(&one));
        values.keep(b"b", 7, None);
        assert_eq!((values.find(b"a", 7).cloned(), values.find(b"b", 7)), (None, Some(&None)));
    }

    #[test]
    fn long_value_is_not_kept() {
        let mut values = Values::new(BUDGET);
        let long = Some(Bytes::from(vec![1; VALUE_MAX + 1]));
        values.keep(b"a", hash(b"a"), long.clone());
        assert_eq!(found(&mut values, b"a"), None);
        values.keep(b"a", hash(b"a"), Some(Bytes::new()));
        values.change(b"a", hash(b"a"), &long);
        assert_eq!(found(&mut values, b"a"), None, "the former value is gone");
    }

    #[test]
    fn budget_holds_whatever_grows() {
        let mut values = Values::new(BUDGET);
        let keys: Vec<_> = (0..20_000u64).map(u64::to_be_bytes).collect();
        for key in &keys {
            values.keep(key, hash(key), None);
        }
        for key in &keys {
            values.change(key, hash(key), &Some(Bytes::from(vec![2; VALUE_MAX])));
        }
        while values.trim() {}
        assert!(values.bytes() <= BUDGET && values.bytes() > BUDGET / 2, "{}", values.bytes());
        let left = keys.iter().filter(|key| values.peek(&key[..], hash(&key[..])).is_some()).count();
        assert!(left * VALUE_MAX <= BUDGET && left > 0, "{left}");
        values.set_budget(0);
        while values.trim() {}
        assert_eq!(values.bytes(), 0);
    }
}
