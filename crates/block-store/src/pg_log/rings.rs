//! The logs of all collections of a shard, and those that wait for a spill or a checkpoint.

use super::state::{LogChange, PgLog};
use crate::planted::{self, PlantedBug};
use std::collections::{BTreeMap, BTreeSet};
use store::Collection;

#[derive(Default)]
pub struct PgLogs {
    by_collection: BTreeMap<Collection, Ring>,
    /// Logs that changed since their states were put into the index.
    dirty: BTreeSet<Collection>,
    /// Logs that a spill would write to blocks.
    spillable: BTreeSet<Collection>,
    recent_bytes: usize,
}

#[derive(Default)]
struct Ring {
    log: PgLog,
    /// It is in the set of that name.
    is_dirty: bool,
    is_spillable: bool,
}

impl PgLogs {
    pub fn get(&self, collection: Collection) -> Option<&PgLog> {
        self.by_collection.get(&collection).map(|ring| &ring.log)
    }

    pub fn apply(&mut self, collection: Collection, change: LogChange) {
        let ring = self.by_collection.entry(collection).or_default();
        self.recent_bytes -= ring.log.recent_bytes();
        ring.log.apply(change);
        self.recent_bytes += ring.log.recent_bytes();
        if !std::mem::replace(&mut ring.is_dirty, true) {
            self.dirty.insert(collection);
        }
        let can_spill = ring.log.can_spill();
        if std::mem::replace(&mut ring.is_spillable, can_spill) != can_spill {
            match can_spill {
                true => self.spillable.insert(collection),
                false => self.spillable.remove(&collection),
            };
        }
    }

    /// For recovery: a change of batch `batch`, unless the state of the index has it.
    pub fn replay(&mut self, collection: Collection, change: LogChange, batch: u64) {
        if self.get(collection).is_none_or(|log| batch > log.mark) {
            self.apply(collection, change);
        }
    }

    /// For recovery: the state of the index.
    pub fn load(&mut self, collection: Collection, log: PgLog) {
        self.recent_bytes += log.recent_bytes();
        let is_spillable = log.can_spill();
        if is_spillable {
            self.spillable.insert(collection);
        }
        self.by_collection.insert(collection, Ring { log, is_dirty: false, is_spillable });
    }

    /// The collection is removed, or was in this batch.
    pub fn remove(&mut self, collection: Collection, batch: u64) {
        if self.get(collection).is_some_and(|log| batch > log.mark) {
            let ring = self.by_collection.remove(&collection).expect("just seen");
            self.recent_bytes -= ring.log.recent_bytes();
            self.dirty.remove(&collection);
            self.spillable.remove(&collection);
        }
    }

    /// States of the logs that changed, for the index, with all changes of batches up to `mark`.
    pub fn take_dirty(&mut self, mark: u64) -> Vec<(Collection, Vec<u8>)> {
        let mark = mark + u64::from(planted::has(PlantedBug::LogStateMarkedLate));
        let state = |collection| {
            let ring: &mut Ring = self.by_collection.get_mut(&collection)?;
            (ring.log.mark, ring.is_dirty) = (mark, false);
            Some((collection, ring.log.encode(mark)))
        };
        let states = std::mem::take(&mut self.dirty).into_iter().filter_map(state);
        states.filter(|_| !planted::has(PlantedBug::LogStateNotWritten)).collect()
    }

    pub fn next_spillable(&self) -> Option<Collection> {
        self.spillable.first().copied()
    }

    /// Nothing of the log can be spilled until it changes.
    pub fn set_aside(&mut self, collection: Collection) {
        self.spillable.remove(&collection);
        if let Some(ring) = self.by_collection.get_mut(&collection) {
            ring.is_spillable = false;
        }
    }

    /// Encoded bytes of records that are in memory.
    pub fn recent_bytes(&self) -> usize {
        self.recent_bytes
    }
}
