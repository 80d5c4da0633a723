//! Which promise was broken, when, and how it showed.

use machine::Time;
use std::fmt;

/// What a cluster promises to those who use it. A violation names the promise, so that a bug that is planted can be
/// told from one that nobody planted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Promise {
    /// What was acknowledged is there. (A read misses a write that every possible past contains.)
    KeptWhatWasAcknowledged,
    /// A write that is sent again is done once. (A read shows one token twice.)
    DoneOnce,
    /// There is an order of all operations that gives every answer. Broken in any way but those above.
    OneOrder,
    /// One client's writes on one object are answered in the order in which it asked.
    AnsweredInOrder,
    /// An operation has one answer, and that is no error that nobody asked for.
    Answered,
    /// A read fails only where the disk has damaged what it asks for, and what was not damaged is not said to be.
    OnlyDamageIsAnError,
    /// What a disk holds agrees with itself.
    SoundDisks,
    /// When the faults are over, everything is answered.
    AnsweredAtLast,
    /// A request from before the PG's present interval is not carried out.
    NoStaleRequest,
    /// The watch of a client that died ends.
    DeadWatchersEnd,
    /// Who watches is listed as a watcher.
    WatchersAreListed,
    /// A notification ends.
    NotificationsEnd,
    /// Clients get something done while there are faults.
    MakesProgress,
    /// The checker could tell of every object whether what clients saw was possible.
    Decided,
    /// Two runs of a seed are the same.
    Replays,
    /// A machine's own invariants.
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
