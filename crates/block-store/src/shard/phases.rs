//! Phases of a poll, told to an observer that has a clock: the store has none.

use super::Shard;

/// A part of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Transactions and reads that go on.
    Jobs,
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
    /// Calls `observer` at the end of each phase of a poll.
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
