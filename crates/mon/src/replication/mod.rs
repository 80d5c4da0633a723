//! The seam between the monitor and what makes its log durable and agreed upon.
//!
//! [`Quorum`] is the log of one or more monitors, [`Solo`] that of one monitor alone, on which the monitor still runs. Both
//! write through [`Write`], and a quorum starts from a disk that `Solo` wrote.
//!
//! `propose` hands in an entry; entries come back from [`Replication::take`] in one order, the same on every
//! monitor, when they are durable where they must be. The monitor applies them and only then answers whoever
//! asked. Nothing here reads a clock or touches a disk: the host writes what it is told ([`Write`]) and says when
//! that is safe.

pub mod quorum;
mod solo;

pub use quorum::Quorum;
pub use solo::Solo;

use bytes::Bytes;
use machine::Tag;

/// One atomic write to the disk, in the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Write {
    /// The quorum's hard record: term, vote, commit index, bounds of the log, members. Replaces the one before.
    pub vote: Option<Bytes>,
    /// Entries by number. One that is there already under the same number is replaced, and those after it go.
    pub entries: Vec<(u64, Bytes)>,
    /// The state after the entry of this number. Replaces the snapshot before it.
    pub snapshot: Option<(u64, Bytes)>,
    /// Entries up to and including this number are no longer needed.
    pub trim_through: Option<u64>,
}

/// The disk's content at the monitor's start.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    pub vote: Option<Bytes>,
    pub snapshot: Option<(u64, Bytes)>,
    /// In order, without gaps, starting after the snapshot, or before it for members that are behind. Entries beyond the
    /// last one that the hard record names were overruled.
    pub entries: Vec<(u64, Bytes)>,
}

impl Recovered {
    /// The disk after a write, as every host must make it.
    pub fn apply(&mut self, write: Write) {
        let Write { vote, entries, snapshot, trim_through } = write;
        if vote.is_some() {
            self.vote = vote;
        }
        if let Some((first, _)) = entries.first() {
            self.entries.retain(|(index, _)| index < first);
        }
        self.entries.extend(entries);
        if snapshot.is_some() {
            self.snapshot = snapshot;
        }
        if let Some(through) = trim_through {
            self.entries.retain(|(index, _)| *index > through);
        }
    }
}

/// The output of a turn.
#[derive(Debug, Default)]
pub struct Ready {
    /// At most one is under way at a time; the next comes after [`Replication::on_written`].
    pub write: Option<(Tag, Write)>,
    /// Entries that now hold, in order.
    pub committed: Vec<(u64, Bytes)>,
    /// Messages to other monitors, by rank.
    pub send: Vec<(usize, Bytes)>,
}

pub trait Replication {
    /// True when entries may be proposed here.
    fn is_leader(&self) -> bool;
    /// The entry's number.
    fn propose(&mut self, entry: Bytes) -> u64;
    /// A snapshot of the state after `index`, so that the log before it can go.
    fn snapshot(&mut self, index: u64, state: Bytes);
    fn on_written(&mut self, tag: Tag);
    fn take(&mut self) -> Ready;
}
