//! An object's ordered map and its header.

use super::extents::COPY_BELOW;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

#[derive(Clone, Default)]
pub(super) struct Omap {
    header: Bytes,
    entries: BTreeMap<Bytes, Bytes>,
    /// Keys, values and header.
    bytes: u64,
}

/// A key or value as it is kept: a short one is copied, so that it does not keep the message alive that it came in.
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
        let (key_len, value_len) = (key.len() as u64, value.len() as u64);
        self.bytes += value_len;
        match self.entries.get_mut(&key) {
            Some(old) => {
                self.bytes -= old.len() as u64;
                *old = own(value);
            }
            None => {
                self.bytes += key_len;
                self.entries.insert(own(key), own(value));
            }
        }
    }

    pub(super) fn remove(&mut self, key: &Bytes) {
        if let Some((key, value)) = self.entries.remove_entry(key) {
            self.bytes -= (key.len() + value.len()) as u64;
        }
    }

    /// Keys in `from..to`.
    pub(super) fn remove_range(&mut self, from: Bytes, to: Bytes) {
        if from >= to {
            return;
        }
        for (key, value) in self.entries.extract_if(from..to, |_, _| true) {
            self.bytes -= (key.len() + value.len()) as u64;
        }
    }

    pub(super) fn get(&self, key: &Bytes) -> Option<(Bytes, Bytes)> {
        self.entries.get_key_value(key).map(|(k, v)| (k.clone(), v.clone()))
    }

    /// Entries with keys greater than `after`, at least `from`, and starting with `prefix`, ascending.
    pub(super) fn list<'a>(
        &'a self,
        after: Option<&Bytes>,
        from: &'a Bytes,
        prefix: &'a Bytes,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
        let least = from.max(prefix);
        let start = match after {
            Some(after) if after >= least => Bound::Excluded(after.clone()),
            _ => Bound::Included(least.clone()),
        };
        self.entries.range((start, Bound::Unbounded)).take_while(move |(key, _)| key.starts_with(prefix))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.entries.iter()
    }

    /// Panics when an invariant does not hold.
    pub(super) fn check(&self) {
        let entries: usize = self.entries.iter().map(|(k, v)| k.len() + v.len()).sum();
        assert_eq!(self.bytes, (self.header.len() + entries) as u64, "the count of omap bytes is right");
    }
}
