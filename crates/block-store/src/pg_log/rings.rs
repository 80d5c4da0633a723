//! The logs of all collections of a shard, and those that wait for a spill or a checkpoint.

use super::state::{LogChange, PgLog};
use crate::planted::{self, PlantedBug};
use std::collections::{BTreeMap, BTreeSet};
use store::Collection;

/// Work of a state in addition to its bytes.
const STATE_WORK: usize = 256;

#[derive(Default)]
pub struct PgLogs {
    by_collection: BTreeMap<Collection, Ring>,
    /// Logs that changed since their states were put into the index.
    dirty: BTreeSet<Collection>,
    /// Of those, the logs whose states the checkpoint in progress writes.
    settling: BTreeSet<Collection>,
    /// Logs that a spill would write to blocks.
    spillable: BTreeSet<Collection>,
    recent_bytes: usize,
}

#[derive(Default)]
struct Ring {
    log: PgLog,
    /// It is in `dirty` or `settling`.
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
            self.settling.remove(&collection);
            self.spillable.remove(&collection);
        }
    }

    /// Begins a checkpoint: [`PgLogs::next_states`] returns the states of all logs that have changed until now.
    pub fn begin_states(&mut self) {
        self.settling.append(&mut self.dirty);
    }

    /// True if [`PgLogs::next_states`] has a state.
    pub fn has_states(&self) -> bool {
        !self.settling.is_empty()
    }

    /// States of logs for the index, of about `bytes_max` bytes. No batch is open, and they have all changes of batches up to
    /// `mark`, the last one.
    pub fn next_states(&mut self, mark: u64, bytes_max: usize) -> Vec<(Collection, Vec<u8>)> {
        let mark = mark + u64::from(planted::has(PlantedBug::LogStateMarkedLate));
        let (mut out, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some(collection) = self.settling.pop_first()
        {
            let ring = self.by_collection.get_mut(&collection).expect("a removed log is in no set");
            (ring.log.mark, ring.is_dirty) = (mark, false);
            let state = ring.log.encode(mark);
            bytes += STATE_WORK + state.len();
            if !planted::has(PlantedBug::LogStateNotWritten) {
                out.push((collection, state));
            }
        }
        out
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
