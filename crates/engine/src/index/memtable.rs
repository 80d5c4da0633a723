//! Changes that are in no table yet, in order.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A deletion is an entry without a value: it hides what older tables hold.
#[derive(Default)]
pub struct Memtable {
    entries: BTreeMap<Box<[u8]>, Option<Bytes>>,
    bytes: usize,
}

impl Memtable {
    pub fn put(&mut self, key: &[u8], value: Option<Bytes>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        self.entries.insert(key.into(), value);
    }

    pub fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.entries.get(key)
    }

    pub fn range<'a>(
        &'a self,
        from: &[u8],
        to: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Option<Bytes>)> {
        self.entries
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
            .map(|(key, value)| (&key[..], value))
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
