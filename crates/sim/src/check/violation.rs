//! Broken promises, with their time and evidence.

use machine::Time;
use std::fmt;

/// The cluster's promises to its clients. A violation names its promise, so that tests can tell a planted bug from others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Promise {
    /// Acknowledged writes are kept. Broken if a read misses a write that every possible past contains.
    KeptWhatWasAcknowledged,
    /// A resent write takes effect once. Broken if a read shows one token twice.
    DoneOnce,
    /// Some order of all operations gives every answer. Covers each break that the promises above do not.
    OneOrder,
    /// One client's writes to one object are answered in submission order.
    AnsweredInOrder,
    /// Each operation gets one answer, without an unexpected error.
    Answered,
    /// A read fails only if the disk damaged its object, and a store reports only damage that exists.
    OnlyDamageIsAnError,
    /// The contents of each disk are consistent.
    SoundDisks,
    /// All operations are answered after the last fault.
    AnsweredAtLast,
    /// After the last fault every PG becomes as clean as the dead OSDs allow, and the map stands still.
    Settles,
    /// The balancer never takes back what it did.
    LeftAlone,
    /// A balanced cluster without faults stands still: no new map, no peering, no copied object.
    StandsStill,
    /// Without faults each PG keeps min_size complete copies that serve, also while copies move.
    KeepsMinSize,
    /// One interval of a PG at a time commits writes, and no older one answers reads.
    OneWriter,
    /// An acknowledged write is durable on every living acting member.
    OnEveryMember,
    /// The copies of a PG have the same committed log entries.
    LogsAgree,
    /// Logs keep to their limits, and no entry is trimmed that an acting member lacks.
    LogsBounded,
    /// A primary answers reads while it holds its leases.
    ReadsByLease,
    /// A running OSD whose connections break, and no worse, stays up.
    StaysUp,
    /// In the quiet time the copies of a PG are equal.
    ReplicasEqual,
    /// The snapshot index of each copy is complete, if it says so.
    SnapshotsIndexed,
    /// Each snapshot keeps the contents of its objects, as long as it exists.
    SnapshotsKept,
    /// A scrub finds errors only after damage, and blames only damaged OSDs.
    ScrubsBlameDamage,
    /// A request from before the PG's current interval is not executed.
    NoStaleRequest,
    /// The watch of a dead client ends.
    DeadWatchersEnd,
    /// A client that watches is listed as a watcher.
    WatchersAreListed,
    /// Every notification completes.
    NotificationsEnd,
    /// Several monitors have equal states at equal versions.
    MonitorsAgree,
    /// Two clients never have the same global id, whichever monitor gave it.
    IdsDiffer,
    /// An undisturbed majority of the monitors has a leader.
    MonitorsElect,
    /// In the quiet time every monitor takes part, and all have one state.
    MonitorsSettle,
    /// A command that was answered is in the monitors' state.
    CommandsKept,
    /// A command that was sent again, over whichever monitor, is carried out once.
    CommandsDoneOnce,
    /// A command that reads shows at least what was acknowledged or read before it.
    CommandsCurrent,
    /// Commands are answered, and succeed.
    CommandsAnswered,
    /// Clients make progress during faults.
    MakesProgress,
    /// The checker decided every object.
    Decided,
    /// Two runs of a seed have the same trace.
    Replays,
    /// The invariants of every machine hold, and no machine panics.
    Invariant,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub promise: Promise,
    pub at: Time,
    pub words: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}: {}", self.at, self.promise, self.words)
    }
}
