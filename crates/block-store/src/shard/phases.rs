//! Phases of a poll or a submission, told to an observer that has a clock: the store has none.

use super::Shard;

/// A part of a poll or a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Transactions and reads that go on, beside the four phases of a transaction.
    Jobs,
    /// A transaction is planned: look-ups, checksums, choice of blocks.
    Planning,
    /// The entries of a transaction go into the open batch.
    LogEntries,
    /// Its keys go into the memtable.
    Memtable,
    /// Its data is staged, its blocks are let go, and the state in memory follows.
    Staging,
    /// Released blocks become free, and leases that are durable are taken up.
    Release,
    Cleaning,
    Spills,
    /// Zones are leased or given back.
    Leases,
    /// The open batch becomes a log record.
    Seal,
    /// Flushes and merges.
    Index,
    Checkpoint,
    Placement,
    Discards,
    /// The device is polled.
    Device,
    /// Completions of the device are taken.
    Completions,
}

pub(super) type Observer = Option<Box<dyn FnMut(Phase)>>;

impl Shard {
    /// Calls `observer` at the end of each phase of a poll or a submission.
    pub fn observe_phases(&mut self, observer: impl FnMut(Phase) + 'static) {
        self.observer = Some(Box::new(observer));
    }

    #[inline]
    pub(super) fn ended(&mut self, phase: Phase) {
        if let Some(observer) = &mut self.observer {
            observer(phase);
        }
    }
}
