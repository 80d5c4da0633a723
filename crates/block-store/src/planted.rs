//! Planted bugs, to prove that the tests catch them. They exist only with the feature `planted-bugs`, which only the tests of
//! this crate enable; without it [`has`] is false at compile time.

/// Bugs that a store must not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// A log record with a torn body is replayed.
    TornRecordReplayed,
    /// A block is allocated before the transaction that released it is durable.
    ReusedBeforeDurable,
    /// A block is discarded before the transaction that released it is durable.
    DiscardedBeforeDurable,
    /// Data is not compared with its checksum.
    ChecksumNotCompared,
    /// A clone is not counted as an owner of shared blocks.
    CloneNotCounted,
    /// An object writes to a layer that others read.
    LayerWrittenWhileShared,
    /// The removal of an omap key does not hide it in the ancestors of its layer.
    MarkerNotPut,
    /// A layer without objects is released, and its child gets nothing.
    HeirNotGiven,
    /// A header names a manifest and tables that were not flushed.
    HeaderBeforeTables,
    /// The log is freed before its deferred data is in its blocks.
    LogFreedBeforePlaced,
    /// A batch is acknowledged after the write, before the flush.
    AcknowledgedBeforeFlush,
    /// A batch is acknowledged before its predecessor is durable.
    AcknowledgedOutOfOrder,
    /// A clean stop ends when the log is written, before its checkpoint.
    StoppedBeforeCheckpoint,
    /// A block is allocated while a read of it is in flight.
    ReadNotPinned,
    /// A batch is sealed between two parts of a transaction.
    SealedBetweenParts,
    /// A memtable is frozen between two transactions of a batch: tables have a part of a log record.
    MemtableEndsWithinBatch,
    /// A patch is made from the value that the tables have, without the changes in memory.
    PatchOnStaleBase,
    /// A value that is cached by its key is not changed with the key.
    CachedValueNotChanged,
    /// A checkpoint leaves the states of PG logs as they are in the index.
    LogStateNotWritten,
    /// The state of a PG log has the number of the batch behind it.
    LogStateMarkedLate,
    /// Blocks of a PG log are allocated again before its spill is durable.
    LogBlocksReusedEarly,
    /// The pool gets a zone before the record that gives it back is durable.
    ZoneGivenBackEarly,
    /// A zone is used before its lease is logged.
    ZoneUsedBeforeLease,
    /// Replay keeps deferred data of blocks that were released before their zone was given back.
    GivenBackZoneWritten,
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<PlantedBug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in every shard that this thread drives from now on.
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
