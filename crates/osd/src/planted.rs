//! Bugs that the simulator must catch, to show that it would. They exist only with the feature `planted-bugs`, which
//! nothing but the simulator's own tests switches on; without it every question here is `false` at compile time.

/// One bug each: what a store must never do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// A write is answered before its transaction has committed.
    ReplyBeforeCommit,
    /// A write is answered when it is durable on the primary alone.
    AckBeforeReplicas,
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
