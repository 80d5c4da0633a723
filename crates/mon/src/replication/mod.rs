//! The seam between the monitor and what makes its log durable and agreed upon.
//!
//! The leader proposes entries; they come back in one order, the same on every monitor, when they are durable on a majority. The
//! monitor applies them and only then answers whoever asked. Nothing here reads a clock or touches a disk: the host writes what
//! it is told ([`Write`]) and says when that is safe.

pub mod quorum;

pub use quorum::{CorruptLog, Event, Quorum, Refused, Role};

use bytes::Bytes;
use wire::types::Uuid;

/// The owner of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its number as a member of the log.
    pub member: u64,
    /// Drawn when the disk was formatted. Nil on a disk from before there were several monitors.
    pub disk: Uuid,
}

/// One atomic write to the disk, in the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Write {
    /// The consensus's own small record (who was voted for, what is committed). Replaces the one before.
    pub vote: Option<Bytes>,
    /// Entries by number. One that is there already under the same number is replaced, and those after it go.
    pub entries: Vec<(u64, Bytes)>,
    /// The state after the entry of this number. Replaces the snapshot before it.
    pub snapshot: Option<(u64, Bytes)>,
    /// Entries up to and including this number are no longer needed.
    pub trim_through: Option<u64>,
    /// Once in a disk's life.
    pub identity: Option<Identity>,
}

/// The disk's content at the monitor's start.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    pub vote: Option<Bytes>,
    pub snapshot: Option<(u64, Bytes)>,
    /// In order, without gaps, starting after the snapshot (or before it, where trimming was cut short).
    pub entries: Vec<(u64, Bytes)>,
    pub identity: Option<Identity>,
}

impl Recovered {
    /// The disk after a write, as every host must make it.
    pub fn apply(&mut self, write: Write) {
        let Write { vote, entries, snapshot, trim_through, identity } = write;
        self.identity = identity.or(self.identity);
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
