//! OmniPaxos's storage: a mirror in memory, and the writes that make the disk follow it.

use super::entry::Entry;
use super::{CorruptLog, Recovered, Write};
use bytes::Bytes;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::storage::{NoSnapshot, StopSign, Storage, StorageOp, StorageResult};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;

/// The small facts that change together with entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Record {
    promise: Option<Ballot>,
    accepted_round: Option<Ballot>,
    decided: usize,
    compacted: usize,
    /// The number of the last entry. Those beyond it on disk were accepted once and then overruled.
    last: u64,
}

#[derive(Default)]
struct Mirror {
    record: Record,
    /// Number of entries before the first of `entries`.
    trimmed: usize,
    entries: Vec<Entry>,
    /// The number that this monitor's own snapshot is of: entries after it stay on its disk.
    snapshot: u64,
    pending: Write,
    record_changed: bool,
}

/// One owner besides OmniPaxos, which keeps its storage to itself; both live in one machine on one thread.
#[derive(Clone)]
pub(super) struct Shared(Rc<RefCell<Mirror>>);

pub(super) struct Log(Shared);

/// State of a start besides the shared log.
pub(super) struct Known {
    /// The number that our snapshot is of.
    pub snapshot: u64,
    /// Entries after it that the shared log has let go.
    pub decided: Vec<(u64, Entry)>,
}

impl Shared {
    pub(super) fn set_snapshot(&self, index: u64, state: Bytes) {
        let mut m = self.0.borrow_mut();
        m.snapshot = index;
        m.pending.snapshot = Some((index, state));
        m.trim_disk();
    }

    /// The write that brings the disk up to date, if it is behind.
    pub(super) fn take_write(&self) -> Option<Write> {
        let mut m = self.0.borrow_mut();
        let mut write = std::mem::take(&mut m.pending);
        if std::mem::take(&mut m.record_changed) {
            write.vote = Some(encode(&m.record));
        }
        (write != Write::default()).then_some(write)
    }
}

fn encode<T: Serialize>(value: &T) -> Bytes {
    postcard::to_allocvec(value).expect("plain data").into()
}

fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, CorruptLog> {
    postcard::from_bytes(bytes).map_err(|_| CorruptLog)
}

impl Log {
    pub(super) fn recover(disk: Recovered) -> Result<(Log, Known), CorruptLog> {
        let mut m = Mirror::default();
        if let Some(vote) = &disk.vote {
            m.record = decode(vote)?;
        }
        m.trimmed = m.record.compacted;
        m.snapshot = disk.snapshot.map_or(0, |(index, _)| index);
        let mut known = Known { snapshot: m.snapshot, decided: Vec::new() };
        let first = m.snapshot.min(m.trimmed as u64) + 1;
        let mut next = first;
        for (number, bytes) in disk.entries.iter().filter(|(n, _)| *n >= first && *n <= m.record.last) {
            if *number != next {
                return Err(CorruptLog);
            }
            next += 1;
            let entry = decode(bytes)?;
            match *number > m.trimmed as u64 {
                true => m.entries.push(entry),
                false => known.decided.push((*number, entry)),
            }
        }
        if next != m.record.last + 1 && m.record.last >= m.snapshot {
            return Err(CorruptLog);
        }
        Ok((Log(Shared(Rc::new(RefCell::new(m)))), known))
    }

    pub(super) fn share(&self) -> Shared {
        self.0.clone()
    }

    fn read<T>(&self, f: impl FnOnce(&Mirror) -> T) -> StorageResult<T> {
        Ok(f(&self.0.0.borrow()))
    }

    fn change(&mut self, f: impl FnOnce(&mut Mirror)) -> StorageResult<()> {
        f(&mut self.0.0.borrow_mut());
        Ok(())
    }

    fn change_record(&mut self, f: impl FnOnce(&mut Record)) -> StorageResult<()> {
        self.change(|m| {
            f(&mut m.record);
            m.record_changed = true;
        })
    }
}

impl Mirror {
    fn append(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.entries.push(entry);
            let number = (self.trimmed + self.entries.len()) as u64;
            let bytes = encode(self.entries.last().expect("just pushed"));
            self.pending.entries.push((number, bytes));
        }
        self.note_last();
    }

    fn note_last(&mut self) {
        self.record.last = (self.trimmed + self.entries.len()) as u64;
        self.record_changed = true;
    }

    fn trim(&mut self, index: usize) {
        let gone = index.saturating_sub(self.trimmed).min(self.entries.len());
        self.entries.drain(..gone);
        self.trimmed = self.trimmed.max(index);
        self.note_last();
        self.trim_disk();
    }

    /// The disk keeps what others may ask for, and what we need to get from our snapshot to the present.
    fn trim_disk(&mut self) {
        let through = self.snapshot.min(self.trimmed as u64);
        self.pending.entries.retain(|(number, _)| *number > through);
        self.pending.trim_through = Some(through);
    }
}

impl Storage<Entry> for Log {
    fn write_atomically(&mut self, ops: Vec<StorageOp<Entry>>) -> StorageResult<()> {
        for op in ops {
            match op {
                StorageOp::AppendEntry(entry) => self.append_entry(entry)?,
                StorageOp::AppendEntries(entries) => self.append_entries(entries)?,
                StorageOp::AppendOnPrefix(from, entries) => self.append_on_prefix(from, entries)?,
                StorageOp::SetPromise(ballot) => self.set_promise(ballot)?,
                StorageOp::SetDecidedIndex(index) => self.set_decided_idx(index)?,
                StorageOp::SetAcceptedRound(ballot) => self.set_accepted_round(ballot)?,
                StorageOp::SetCompactedIdx(index) => self.set_compacted_idx(index)?,
                StorageOp::Trim(index) => self.trim(index)?,
                StorageOp::SetStopsign(sign) => self.set_stopsign(sign)?,
                StorageOp::SetSnapshot(snapshot) => self.set_snapshot(snapshot)?,
            }
        }
        Ok(())
    }

    fn append_entry(&mut self, entry: Entry) -> StorageResult<()> {
        self.change(|m| m.append(vec![entry]))
    }

    fn append_entries(&mut self, entries: Vec<Entry>) -> StorageResult<()> {
        self.change(|m| m.append(entries))
    }

    fn append_on_prefix(&mut self, from: usize, entries: Vec<Entry>) -> StorageResult<()> {
        self.change(|m| {
            m.entries.truncate(from.saturating_sub(m.trimmed));
            m.pending.entries.retain(|(number, _)| *number <= from as u64);
            m.append(entries);
        })
    }

    fn set_promise(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.change_record(|r| r.promise = Some(ballot))
    }

    fn set_decided_idx(&mut self, index: usize) -> StorageResult<()> {
        self.change_record(|r| r.decided = index)
    }

    fn get_decided_idx(&self) -> StorageResult<usize> {
        self.read(|m| m.record.decided)
    }

    fn set_accepted_round(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.change_record(|r| r.accepted_round = Some(ballot))
    }

    fn get_accepted_round(&self) -> StorageResult<Option<Ballot>> {
        self.read(|m| m.record.accepted_round)
    }

    fn get_entries(&self, from: usize, to: usize) -> StorageResult<Vec<Entry>> {
        self.read(|m| {
            let range = from.checked_sub(m.trimmed).zip(to.checked_sub(m.trimmed));
            range.and_then(|(from, to)| m.entries.get(from..to)).unwrap_or_default().to_vec()
        })
    }

    fn get_log_len(&self) -> StorageResult<usize> {
        self.read(|m| m.entries.len())
    }

    fn get_suffix(&self, from: usize) -> StorageResult<Vec<Entry>> {
        self.read(|m| {
            from.checked_sub(m.trimmed).and_then(|f| m.entries.get(f..)).unwrap_or_default().to_vec()
        })
    }

    fn get_promise(&self) -> StorageResult<Option<Ballot>> {
        self.read(|m| m.record.promise)
    }

    /// The set of monitors does not change under this log.
    fn set_stopsign(&mut self, _: Option<StopSign>) -> StorageResult<()> {
        Ok(())
    }

    fn get_stopsign(&self) -> StorageResult<Option<StopSign>> {
        Ok(None)
    }

    fn trim(&mut self, index: usize) -> StorageResult<()> {
        self.change(|m| m.trim(index))
    }

    fn set_compacted_idx(&mut self, index: usize) -> StorageResult<()> {
        self.change_record(|r| r.compacted = index)
    }

    fn get_compacted_idx(&self) -> StorageResult<usize> {
        self.read(|m| m.record.compacted)
    }

    /// Not used: see the module.
    fn set_snapshot(&mut self, _: Option<NoSnapshot>) -> StorageResult<()> {
        Ok(())
    }

    fn get_snapshot(&self) -> StorageResult<Option<NoSnapshot>> {
        Ok(None)
    }
}
