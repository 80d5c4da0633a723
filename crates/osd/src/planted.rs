//! Bugs that the simulator must catch, to show that it would. They exist only with the feature `planted-bugs`, which
//! nothing but the simulator's own tests switches on; without it every question here is `false` at compile time.
//!
//! Each bug of replication was one of Ceph (number in its tracker in the
//! [decision note](../../../docs/decisions/2026-11-24-proof-of-replication.md)) or breaks a rule of the protocol. Some of Ceph's
//! bugs have no counterpart here:
//!
//! - A newer fast info after a rewind (27698): progress is one record, which each change of the log writes whole
//!   (`meta::set_progress`). There is no shorter record that a start could prefer.
//! - A replica that answers reads of uncommitted writes (56677): replicas answer no reads.

/// One bug each: what a store must never do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// A write is answered before its transaction has committed.
    ReplyBeforeCommit,
    /// A write is answered when it is durable on the primary alone.
    AckBeforeReplicas,
    /// A repeated request is answered before its first sending is durable on every member.
    DuplicateBeforeCommit,
    /// A read does not wait for the commit of earlier writes of its object.
    ReadUncommitted,
    /// A read's lease is checked when the read begins.
    LeaseBeforeRead,
    /// A lease counts from the arrival of its grant.
    LeaseFromReceipt,
    /// A primary that waits for old leases to end sets no timer.
    LeaseTimerDropped,
    /// The log is trimmed although some member lacks the entries.
    TrimBeforeCommit,
    /// Duplicates are never dropped.
    UnboundedDuplicates,
    /// A log that comes back from the store recognises no request.
    DedupLostAtRest,
    /// A primary does not recognise requests that an earlier primary carried out.
    DedupLostAcrossPrimaries,
    /// The authority sends its log only from its `last_epoch_started` on.
    LogSinceStarted,
    /// `last_epoch_started` of an incomplete copy counts.
    IncompleteStartTrusted,
    /// A copy reports, and a primary counts itself, before the log is durable.
    ReportUnsaved,
    /// A replica answers a read of an object that has writes which may not be durable on all members.
    CopyReadsUncommitted,
    /// A primary serves without `up_thru`.
    UpThruSkipped,
    /// A child PG does not inherit its parent's past intervals.
    SplitForgetsPast,
    /// A merged PG forgets its past intervals, and takes any copy of the source for a whole one.
    MergeLosesInterval,
    /// Divergent entries stay in the log when it is merged.
    MergeWithoutRewind,
    /// Two acting sets are asked for in turn.
    ActingLoop,
    /// A backfill that its interval's end interrupts keeps its place.
    BackfillPlaceLeaked,
    /// A backfill has reached the object at its cursor.
    BackfillCursorOff,
    /// An object that a request is changing is repaired.
    RepairBesideWrite,
    /// A scrub takes the primary's copy for the good one.
    ScrubBlamesGoodCopy,
    /// A scrub judges a suspect while writes of it are under way.
    ScrubHoldsNothing,
    /// A truncation leaves the overlap of the head and its newest clone as it was.
    TruncateKeepsOverlap,
    /// A trim removes a clone that has another snapshot, which exists.
    TrimTakesNeededClone,
    /// A head that recovery or backfill brings gets no entries in the snapshot index.
    TransferNotIndexed,
    /// A copy that merges another log does not miss the clones that it names.
    MergedCloneNotMissing,
    /// With the trial backend: a member is sent another member's shard.
    ShardPushedAsIs,
    /// With the trial backend: a read takes parity for the client's bytes.
    ShardNotDecoded,
    /// A connection of a neighbour that breaks counts as refused.
    ResetIsDeath,
    /// A write that is sent again is done again.
    LostReqid,
    /// A request from before the present interval is carried out.
    StaleEpochAccepted,
    /// A watcher that went silent is kept for ever.
    WatchNeverExpires,
    /// A PG that somebody else had begins here, empty.
    ActiveWithoutHistory,
    /// Now and then a reply is overtaken by the next.
    ReplyOutOfOrder,
    /// In the assembly: shards of other cores than core 0 do not hear that a client's session has closed.
    ClosedOnCoreZeroOnly,
    /// The target of a recovery or backfill keeps the place that the primary has released.
    PlaceKept,
    /// Bytes of a transfer that its interval's end drops stay charged to the window.
    PaceBytesKept,
    /// In the assembly: a request on its way to another core is overtaken by the next.
    RequestMailOvertakes,
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<PlantedBug>> = const { std::cell::Cell::new(None) };
}

/// Plant a bug in every OSD that this thread drives from now on.
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
