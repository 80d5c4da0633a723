//! The library's storage: a mirror in memory of the log on disk plus the write under way.
//!
//! The library may read an entry before it is durable, as long as it learns of the durability later
//! (`on_persist_ready`). So the mirror changes at once and [`Mirror::write_since`] makes the disk follow it. Reads of
//! trimmed entries are errors, never empty lists.

use super::planted::{Rule, is_broken};
use super::record::{CorruptLog, Members, Position, Record, decode_entry, encode_entry};
use crate::replication::{Recovered, Write};
use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, HardState, Snapshot, SnapshotMetadata};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Entries before the snapshot that are kept for a member that is away. Beyond either bound it gets a state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retention {
    pub entries_max: u64,
    pub bytes_max: usize,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { entries_max: 4096, bytes_max: 32 << 20 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Mirror {
    pub retention: Retention,
    pub hard: HardState,
    base: Position,
    entries: Vec<Entry>,
    snapshot: Position,
    /// Members as of the snapshot.
    members: Members,
    state: Bytes,
    /// Members that need a state newer than the snapshot, each with the lowest index that serves it.
    wanted: RefCell<BTreeMap<u64, u64>>,
}

impl Mirror {
    /// The mirror of a disk with a hard record.
    pub(super) fn recover(record: Record, disk: Recovered) -> Result<Mirror, CorruptLog> {
        let state = match disk.snapshot {
            Some((index, state)) if index == record.snapshot.index => state,
            None if record.snapshot.index == 0 => Bytes::new(),
            _ => return Err(CorruptLog::Contradiction("snapshot and record are of different entries")),
        };
        let hard = HardState { term: record.term, vote: record.vote, commit: record.commit };
        let mut mirror = Mirror {
            hard,
            base: record.base,
            snapshot: record.snapshot,
            members: record.members,
            state,
            ..Mirror::default()
        };
        let mut previous = mirror.base;
        for (index, bytes) in disk.entries {
            if index <= previous.index {
                continue;
            }
            if index > record.last {
                break;
            }
            if index != previous.index + 1 {
                return Err(CorruptLog::Contradiction("an entry is missing"));
            }
            let entry = decode_entry(index, &bytes)?;
            if entry.term < previous.term || entry.term > record.term {
                return Err(CorruptLog::Contradiction("terms are out of order"));
            }
            previous = Position { index, term: entry.term };
            mirror.entries.push(entry);
        }
        if previous.index != record.last {
            return Err(CorruptLog::Contradiction("the last entries are missing"));
        }
        if mirror.term_at(mirror.snapshot.index) != Some(mirror.snapshot.term) {
            return Err(CorruptLog::Contradiction("snapshot and log are of different terms"));
        }
        Ok(mirror)
    }

    /// Entries on the disk of the only member hold, though the commit index beside them is older: nobody else can say otherwise.
    /// A change of the members among those entries must be handed out first, as any other.
    pub(super) fn commit_alone(&mut self, member: u64) {
        let is_change = |entry: &Entry| entry.entry_type() != EntryType::EntryNormal;
        let open = self.entries.iter().filter(|entry| entry.index > self.hard.commit);
        let is_alone =
            self.members == Members { id_max: self.members.id_max, ..Members::of_voters(&[member]) };
        let has_changes =
            self.entries.iter().any(|entry| entry.index > self.snapshot.index && is_change(entry));
        if is_alone && !has_changes {
            self.hard.commit = open.map(|entry| entry.index).max().unwrap_or(self.hard.commit);
        }
    }

    /// A log of decided entries without terms, as one monitor alone kept it. All become entries of term 1.
    pub(super) fn convert(members: Members, state: Option<(u64, Bytes)>, entries: Vec<Entry>) -> Mirror {
        let (index, state) = state.unwrap_or_default();
        let snapshot = Position { index, term: u64::from(index > 0) };
        let commit = entries.last().map_or(index, |entry| entry.index);
        Mirror {
            hard: HardState { term: 1, vote: 0, commit },
            base: snapshot,
            entries,
            snapshot,
            members,
            state,
            ..Mirror::default()
        }
    }

    pub(super) fn snapshot_position(&self) -> Position {
        self.snapshot
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    pub(super) fn state(&self) -> Bytes {
        self.state.clone()
    }

    pub(super) fn last(&self) -> u64 {
        self.base.index + self.entries.len() as u64
    }

    pub(super) fn first(&self) -> u64 {
        self.base.index + 1
    }

    /// True on the disk of a member that waits for its first state.
    pub(super) fn is_joining(&self) -> bool {
        self.members.voters.is_empty()
    }

    pub(super) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        let offset = index.checked_sub(self.first())?;
        self.entries.get(usize::try_from(offset).ok()?).map(|entry| entry.term)
    }

    pub(super) fn append(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first() else { return };
        let keep = first.index.checked_sub(self.first()).expect("a trimmed entry is never replaced");
        let keep = usize::try_from(keep).expect("entries are in memory");
        assert!(keep <= self.entries.len(), "entries come without gaps");
        self.entries.truncate(keep);
        self.entries.extend(entries);
    }

    /// Replaces log and snapshot by a state that the leader sent.
    pub(super) fn install(&mut self, at: Position, members: Members, state: Bytes) {
        self.entries.clear();
        self.base = at;
        self.snapshot = at;
        self.members = members;
        self.state = state;
    }

    /// Replaces the snapshot by a newer one of this member's host and trims the log.
    ///
    /// `needed` is the lowest index that another member still lacks. Entries before it go when the snapshot includes
    /// them; entries from it on are kept within the bounds.
    pub(super) fn set_snapshot(&mut self, index: u64, members: Members, state: Bytes, needed: u64) {
        let term = self.term_at(index).expect("an applied entry after the last snapshot is in memory");
        self.snapshot = Position { index, term };
        self.members = members;
        self.state = state;
        self.wanted.borrow_mut().clear();
        self.trim(needed);
    }

    fn trim(&mut self, needed: u64) {
        let Retention { entries_max, bytes_max } = self.retention;
        let mut bytes = 0;
        let mut first_kept = self.snapshot.index + 1;
        while first_kept > self.first().max(needed) && self.snapshot.index + 1 - first_kept < entries_max {
            let entry = &self.entries[usize::try_from(first_kept - 1 - self.first()).expect("in memory")];
            bytes += entry.data.len();
            if bytes > bytes_max {
                break;
            }
            first_kept -= 1;
        }
        let through = first_kept - 1;
        if through > self.base.index {
            let term = self.term_at(through).expect("an entry up to the snapshot is in memory");
            let gone = usize::try_from(through - self.base.index).expect("in memory");
            self.entries.drain(..gone);
            self.base = Position { index: through, term };
        }
    }

    /// Bytes of entries in memory, for the host's counters.
    pub(super) fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.data.len()).sum()
    }

    /// Takes the members that wait for a newer state than the snapshot.
    pub(super) fn wanted(&self) -> BTreeMap<u64, u64> {
        self.wanted.borrow().clone()
    }

    pub(super) fn forget_wanted(&self) {
        self.wanted.borrow_mut().clear();
    }

    /// The write that carries `entries_from` and all after it, the hard record, and the snapshot where it changed.
    pub(super) fn write_since(&self, entries_from: Option<u64>, has_snapshot: bool) -> Write {
        let record = Record {
            term: self.hard.term,
            vote: self.hard.vote,
            commit: if is_broken(Rule::CommitWithEntries) { self.snapshot.index } else { self.hard.commit },
            base: self.base,
            last: self.last(),
            snapshot: self.snapshot,
            members: self.members.clone(),
        };
        let from = entries_from.map_or(self.last() + 1, |from| from.max(self.first()));
        let skip = usize::try_from(from - self.first()).expect("in memory");
        Write {
            vote: Some(record.to_bytes()),
            entries: self.entries[skip..].iter().map(|entry| (entry.index, encode_entry(entry))).collect(),
            snapshot: has_snapshot.then(|| (self.snapshot.index, self.state.clone())),
            trim_through: has_snapshot.then_some(self.base.index),
            ..Write::default()
        }
    }
}

fn compacted() -> Error {
    Error::Store(StorageError::Compacted)
}

impl Storage for Mirror {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState { hard_state: self.hard.clone(), conf_state: self.members.to_conf() })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first() {
            return Err(compacted());
        }
        assert!(high <= self.last() + 1, "the library reads within the log");
        let range = usize::try_from(low - self.first()).expect("in memory")
            ..usize::try_from(high - self.first()).expect("in memory");
        let budget = max_size.into().unwrap_or(u64::MAX);
        let mut used = 0u64;
        let mut entries = Vec::new();
        for entry in &self.entries[range] {
            used += entry.data.len() as u64 + 32;
            if used > budget && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    /// Index 0 of a log that has members but no snapshot is an error: a joiner needs the members, which are in no
    /// entry, so the leader must send it a state.
    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == 0 && !self.is_joining() {
            return Err(compacted());
        }
        match self.term_at(index) {
            Some(term) => Ok(term),
            None if index < self.base.index => Err(compacted()),
            None => Err(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// A receiver silently ignores a state whose members lack it, so such a state is never handed out.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let is_usable = self.snapshot.index > 0 && self.snapshot.index >= request_index;
        let includes_receiver = self.members.contains(to) || is_broken(Rule::StateIncludesReceiver);
        if !is_usable || !includes_receiver {
            let index = request_index.max(self.snapshot.index + 1);
            self.wanted.borrow_mut().insert(to, index);
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        let metadata = SnapshotMetadata {
            conf_state: Some(self.members.to_conf()),
            index: self.snapshot.index,
            term: self.snapshot.term,
        };
        let mut data = Vec::with_capacity(8 + self.state.len());
        data.extend(self.members.id_max.to_le_bytes());
        data.extend(&self.state[..]);
        Ok(Snapshot { data, metadata: Some(metadata) })
    }
}
