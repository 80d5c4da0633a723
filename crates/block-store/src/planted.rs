//! Bugs that the tests must catch, to show that they would. They exist only with the feature `planted-bugs`, which nothing
//! but the engine's own tests switches on; without it every question here is `false` at compile time.

/// One bug each: what a store must never do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// A record of the log counts though its body is torn.
    TornRecordReplayed,
    /// A block is taken again before the transaction that let go of it is durable.
    ReusedBeforeDurable,
    /// The device is told to forget a block before the transaction that let go of it is durable.
    DiscardedBeforeDurable,
    /// What was read is not compared with its checksum.
    ChecksumNotCompared,
    /// A clone does not count as an owner of what it shares.
    CloneNotCounted,
    /// A header names a manifest and tables that were not flushed.
    HeaderBeforeTables,
    /// The log is freed before the data that it holds is in its blocks.
    LogFreedBeforePlaced,
    /// A batch is acknowledged when it is written, before the flush.
    AcknowledgedBeforeFlush,
    /// A batch is acknowledged though the one before it is not durable yet.
    AcknowledgedOutOfOrder,
    /// What a read points to is taken again while it is being read.
    ReadNotPinned,
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<PlantedBug>> = const { std::cell::Cell::new(None) };
}

/// Plant a bug in every shard that this thread drives from now on.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<PlantedBug>) {
    PLANTED.set(bug);
}

#[cfg(feature = "planted-bugs")]
pub(crate) fn has(bug: PlantedBug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub(crate) const fn has(_: PlantedBug) -> bool {
    false
}
