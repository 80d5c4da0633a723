//! Encoding of consensus records on disk: the hard record and the log entries.
//!
//! The hard record is [`Write::vote`](crate::replication::Write::vote). Every write carries it, so that the commit
//! index, the bounds of the log and the snapshot's members are always of the same moment as the entries beside them.
//!
//! An entry is `version u8 = 1 | kind u8 | term u64 | payload`. Version 1 exists because entries of one monitor alone
//! were bare payloads; those have no hard record beside them (see [`super::convert`]).

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use raft::eraftpb::{ConfState, Entry, EntryType};

/// Bytes on the disk that no monitor wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CorruptLog {
    #[error("the monitor's log holds an unreadable record: {0}")]
    Unreadable(#[from] DecodeError),
    #[error("the monitor's log contradicts itself: {0}")]
    Contradiction(&'static str),
}

/// Members that vote and members that only receive the log, as of one entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Ids in ascending order. Empty on a disk whose member waits for its first state.
    pub voters: Vec<u64>,
    pub learners: Vec<u64>,
    /// Voters of the configuration that a joint configuration leaves. Empty otherwise.
    pub voters_outgoing: Vec<u64>,
    pub learners_next: Vec<u64>,
    pub auto_leave: bool,
    /// Highest id that any member ever had. An id up to it that is no member was removed and never returns.
    pub id_max: u64,
}

impl Members {
    pub(super) fn of_voters(voters: &[u64]) -> Members {
        let mut voters = voters.to_vec();
        voters.sort_unstable();
        voters.dedup();
        Members { id_max: voters.last().copied().unwrap_or(0), voters, ..Members::default() }
    }

    pub(super) fn from_conf(conf: &ConfState, id_max: u64) -> Members {
        let sorted = |ids: &[u64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids
        };
        let mut members = Members {
            voters: sorted(&conf.voters),
            learners: sorted(&conf.learners),
            voters_outgoing: sorted(&conf.voters_outgoing),
            learners_next: sorted(&conf.learners_next),
            auto_leave: conf.auto_leave,
            id_max,
        };
        members.id_max = members.ids().max().unwrap_or(0).max(id_max);
        members
    }

    pub(super) fn to_conf(&self) -> ConfState {
        ConfState {
            voters: self.voters.clone(),
            learners: self.learners.clone(),
            voters_outgoing: self.voters_outgoing.clone(),
            learners_next: self.learners_next.clone(),
            auto_leave: self.auto_leave,
        }
    }

    /// Every member's id; a joint configuration may repeat some.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        let lists = [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next];
        lists.into_iter().flatten().copied()
    }

    pub fn contains(&self, id: u64) -> bool {
        self.ids().any(|member| member == id)
    }

    /// True for an id that was a member once.
    pub fn is_removed(&self, id: u64) -> bool {
        id <= self.id_max && !self.contains(id)
    }

    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    /// Members that the library accepts without a panic.
    pub(super) fn is_valid(&self) -> bool {
        let strictly_ascends = |ids: &[u64]| ids.windows(2).all(|pair| pair[0] < pair[1]);
        let lists = [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next];
        let is_listed = lists.iter().all(|ids| ids.len() <= MEMBERS_MAX && strictly_ascends(ids));
        let is_known = self.ids().all(|id| (1..=NUMBER_MAX).contains(&id) && id <= self.id_max);
        let apart = |id: &u64| !self.voters.contains(id) && !self.voters_outgoing.contains(id);
        let staged = |id: &u64| self.voters_outgoing.contains(id) && !self.voters.contains(id);
        is_listed
            && is_known
            && !self.voters.is_empty()
            && self.id_max <= NUMBER_MAX
            && self.learners.iter().all(apart)
            && self.learners_next.iter().all(staged)
            && self.learners_next.iter().all(|id| !self.learners.contains(id))
            && (self.is_joint() || !self.auto_leave)
    }
}

/// Upper bound of a configuration; stock's largest is far below it.
pub(super) const MEMBERS_MAX: usize = 64;

/// Upper bound of terms, indices and ids. Sums of two stay within a `u64`.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

impl Encode for Members {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.voters);
            w.put(&self.learners);
            w.put(&self.voters_outgoing);
            w.put(&self.learners_next);
            w.bool(self.auto_leave);
            w.u64(self.id_max);
        });
    }
}

impl Decode for Members {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("members", 1, |r, _| {
            Ok(Members {
                voters: r.get()?,
                learners: r.get()?,
                voters_outgoing: r.get()?,
                learners_next: r.get()?,
                auto_leave: r.bool()?,
                id_max: r.u64()?,
            })
        })
    }
}

/// An index and the term of the entry there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub index: u64,
    pub term: u64,
}

/// The hard record: consensus state that every write replaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub term: u64,
    /// Member that this one voted for in `term`; zero for none.
    pub vote: u64,
    /// Highest index known to be committed. It may lag behind, because it is never written for itself.
    pub commit: u64,
    /// Last entry that was trimmed.
    pub base: Position,
    /// Last valid entry. Entries on disk beyond it were overruled by an installed state.
    pub last: u64,
    /// The entry that the snapshot on disk includes last.
    pub snapshot: Position,
    /// Members as of the snapshot.
    pub members: Members,
}

impl Encode for Record {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            for number in [
                self.term,
                self.vote,
                self.commit,
                self.base.index,
                self.base.term,
                self.last,
                self.snapshot.index,
                self.snapshot.term,
            ] {
                w.u64(number);
            }
            w.put(&self.members);
        });
    }
}

impl Decode for Record {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("consensus record", 1, |r, _| {
            Ok(Record {
                term: r.u64()?,
                vote: r.u64()?,
                commit: r.u64()?,
                base: Position { index: r.u64()?, term: r.u64()? },
                last: r.u64()?,
                snapshot: Position { index: r.u64()?, term: r.u64()? },
                members: r.get()?,
            })
        })
    }
}

impl Record {
    pub(super) fn to_bytes(&self) -> Bytes {
        self.to_vec(Features::ALL).into()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Record, CorruptLog> {
        let record: Record = codec::decode_exact(bytes)?;
        record.check()?;
        Ok(record)
    }

    /// Every relation between the numbers that the library takes for granted.
    fn check(&self) -> Result<(), CorruptLog> {
        let numbers = [self.term, self.vote, self.last, self.base.term, self.snapshot.term];
        let is_joining = self.members == Members::default();
        let checks = [
            (numbers.iter().all(|number| *number <= NUMBER_MAX), "a number is out of range"),
            (self.base.index <= self.snapshot.index || self.snapshot.index == 0, "log starts after snapshot"),
            (self.snapshot.index <= self.commit, "the snapshot is not committed"),
            (self.commit <= self.last, "the commit index is beyond the log"),
            (self.base.index <= self.commit, "an uncommitted entry was trimmed"),
            (self.base.term <= self.term && self.snapshot.term <= self.term, "an entry is of a later term"),
            (is_joining || self.members.is_valid(), "the members are no configuration"),
            (!is_joining || self.last == 0, "entries without members"),
        ];
        match checks.into_iter().find(|(holds, _)| !holds) {
            Some((_, reason)) => Err(CorruptLog::Contradiction(reason)),
            None => Ok(()),
        }
    }
}

const ENTRY_VERSION: u8 = 1;
const ENTRY_HEAD_LEN: usize = 10;

/// The bytes of an entry on disk.
pub(super) fn encode_entry(entry: &Entry) -> Bytes {
    let mut bytes = Vec::with_capacity(ENTRY_HEAD_LEN + entry.data.len());
    bytes.push(ENTRY_VERSION);
    bytes.push(entry.entry_type as u8);
    bytes.extend(entry.term.to_le_bytes());
    bytes.extend(&entry.data[..]);
    bytes.into()
}

/// Reads what [`encode_entry`] wrote.
pub(super) fn decode_entry(index: u64, bytes: &[u8]) -> Result<Entry, CorruptLog> {
    let mut reader = Reader::new(bytes);
    let version = reader.u8()?;
    if version != ENTRY_VERSION {
        return Err(reader.invalid("entry version", version).into());
    }
    let kind = reader.u8()?;
    let kind = match EntryType::from_i32(kind.into()) {
        Some(kind) => kind,
        None => return Err(reader.invalid("entry kind", kind).into()),
    };
    let term = reader.u64()?;
    if term == 0 || term > NUMBER_MAX {
        return Err(reader.invalid("entry term", term).into());
    }
    Ok(new_entry(index, term, kind, reader.rest().to_vec()))
}

pub(super) fn new_entry(index: u64, term: u64, kind: EntryType, data: Vec<u8>) -> Entry {
    Entry { entry_type: kind as i32, term, index, data, ..Entry::default() }
}
