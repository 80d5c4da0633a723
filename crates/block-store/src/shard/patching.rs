//! Patches of a recovery whose base is in the tables.
//!
//! They wait, so that many values are read at a time, before the store opens. Later patches of the same key follow them, and a put
//! or deletion of the key makes them superfluous.

use crate::index::LogMark;
use crate::object::key::Key;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Patching {
    /// By key, oldest first. Copies: a slice would keep a whole log record in memory.
    kept: BTreeMap<Key, Vec<Box<[u8]>>>,
    /// The record of the first of them.
    first: Option<LogMark>,
    bytes: usize,
}

/// Memory of a patch in addition to its bytes.
const OVERHEAD: usize = 64;

impl Patching {
    pub(super) fn keep(&mut self, key: &[u8], patch: &[u8], mark: LogMark) {
        self.first.get_or_insert(mark);
        self.bytes += key.len() + patch.len() + OVERHEAD;
        match self.kept.get_mut(key) {
            Some(patches) => patches.push(patch.into()),
            None => drop(self.kept.insert(key.to_vec(), vec![patch.into()])),
        }
    }

    pub(super) fn forget(&mut self, key: &[u8]) {
        if !self.kept.is_empty() {
            self.kept.remove(key);
        }
    }

    /// Upper bound of their memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of them in the order of keys, and the first record that has one.
    pub(super) fn take(&mut self) -> Option<(LogMark, BTreeMap<Key, Vec<Box<[u8]>>>)> {
        let Patching { kept, first, .. } = std::mem::take(self);
        first.map(|first| (first, kept))
    }
}
