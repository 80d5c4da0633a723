//! The state of one log, its changes, and its record in the index.
//!
//! The record, all numbers varints:
//!
//! ```text
//! u8 version: 1 | u8 flags: 1 damaged | batch up to which the state has all changes
//! trimmed key | last key                 (a key: epoch, version)
//! end of the log object, in blocks
//! count of garbage runs; of each: blocks since the end of the run before, blocks
//! count of chunks; of each: blocks since the end of the chunk before, 2 · blocks + 1 if it is closed, last key
//! records in no chunk, as in a chunk, up to the end
//! ```

use super::chunk::{encoded_len, put_record, take_key, take_record};
use crate::varint;
use codec::{DecodeError, Reader};
use device::BLOCK;
use smallvec::SmallVec;
use std::collections::VecDeque;
use store::LogRecord;
use wire::types::Eversion;

const VERSION: u8 = 1;
const DAMAGED: u8 = 1;

/// A chunk that a spill fills is closed with so many blocks.
const CHUNK_BLOCKS: u64 = 16;
/// Blocks that one spill releases at most.
const RELEASED_MAX: u64 = 256;

/// First blocks of the two copies of all chunks in the log object. A log ends far below the second.
pub const LOG_COPIES: [u64; 2] = [0, 1 << 40];

/// Some records of a log, in neighbouring blocks of the log object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// First block, counted in the log object.
    pub start: u64,
    pub blocks: u64,
    /// A rewind took away its last records: later ones go into another chunk.
    pub closed: bool,
    /// No record of the chunk is above this.
    pub last: Eversion,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.blocks
    }

    /// True if a spill at this block of the log object adds to the chunk.
    fn takes_more(&self, at: u64) -> bool {
        self.end() == at && !self.closed && self.blocks < CHUNK_BLOCKS
    }
}

/// A run of blocks of the log object that no chunk needs.
type Garbage = (u64, u64);

/// Records that go into blocks, and blocks that are released. What [`PgLog::next_spill`] proposes and [`PgLog::apply`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spill {
    /// The last record of memory that goes.
    pub last: Eversion,
    pub start: u64,
    /// None: blocks are released, and no record goes.
    pub blocks: u64,
    /// Released blocks of the first run of garbage.
    pub released: u64,
    /// The pages of the log object were unreadable: its chunks are lost.
    pub lost: bool,
}

/// A spill with its bytes, in whole blocks, and the released run of the log object.
pub struct SpillData {
    pub spill: Spill,
    pub bytes: Vec<u8>,
    pub released: Garbage,
}

/// One change of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogChange {
    Append(SmallVec<[LogRecord; 1]>),
    Trim(Eversion),
    Rewind(Eversion),
    Clear,
    Spill(Spill),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgLog {
    /// Batch up to which the record in the index has all changes.
    pub mark: u64,
    trimmed: Eversion,
    /// No record is above this; the next one will be.
    last: Eversion,
    chunks: VecDeque<Chunk>,
    /// Records that are in no chunk, ascending.
    recent: VecDeque<LogRecord>,
    /// Their bytes, encoded.
    recent_bytes: usize,
    /// End of the last chunk that there was.
    end: u64,
    garbage: VecDeque<Garbage>,
    /// Its record or its chunks were unreadable. Listings fail until it is cleared.
    damaged: bool,
}

impl PgLog {
    /// A log whose record in the index is unreadable.
    pub fn damaged() -> PgLog {
        PgLog { damaged: true, ..PgLog::default() }
    }

    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    pub fn recent_bytes(&self) -> usize {
        self.recent_bytes
    }

    pub fn recent(&self) -> &VecDeque<LogRecord> {
        &self.recent
    }

    pub fn chunks(&self) -> &VecDeque<Chunk> {
        &self.chunks
    }

    /// Records up to here are trimmed.
    pub fn trimmed(&self) -> Eversion {
        self.trimmed
    }

    /// Applies a change, in operation and in recovery.
    ///
    /// # Panics
    /// If an appended key is not above the last one.
    pub fn apply(&mut self, change: LogChange) {
        match change {
            LogChange::Append(records) => records.into_iter().for_each(|record| self.append(record)),
            LogChange::Trim(to) => self.trim(to),
            LogChange::Rewind(to) => self.rewind(to),
            LogChange::Clear => self.clear(),
            LogChange::Spill(spill) => self.spilled(spill),
        }
    }

    fn append(&mut self, record: LogRecord) {
        assert!(record.0 > self.last, "a log's record {} is not above {}", record.0, self.last);
        self.last = record.0;
        self.recent_bytes += encoded_len(&record);
        self.recent.push_back(record);
    }

    fn trim(&mut self, to: Eversion) {
        self.trimmed = self.trimmed.max(to);
        self.last = self.last.max(to);
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.last <= to) {
            self.discard(chunk);
        }
        while let Some(gone) = self.recent.pop_front_if(|(key, _)| *key <= to) {
            self.recent_bytes -= encoded_len(&gone);
        }
    }

    fn rewind(&mut self, to: Eversion) {
        if to >= self.last {
            return;
        }
        self.last = to.max(self.trimmed);
        while let Some(gone) = self.recent.pop_back_if(|(key, _)| *key > to) {
            self.recent_bytes -= encoded_len(&gone);
        }
        while let Some(mut chunk) = self.chunks.pop_back_if(|chunk| chunk.last > to) {
            // All records of a chunk are above those of the one before.
            let before = self.chunks.back().map_or(self.trimmed, |before| before.last);
            if before < to {
                (chunk.last, chunk.closed) = (to, true);
                self.chunks.push_back(chunk);
                break;
            }
            self.discard(chunk);
        }
    }

    fn clear(&mut self) {
        for chunk in std::mem::take(&mut self.chunks) {
            self.discard(chunk);
        }
        self.recent.clear();
        self.recent_bytes = 0;
        (self.trimmed, self.last, self.damaged) = (Eversion::ZERO, Eversion::ZERO, false);
    }

    /// Its blocks are garbage.
    fn discard(&mut self, chunk: Chunk) {
        let at = self.garbage.partition_point(|(start, _)| *start < chunk.start);
        self.garbage.insert(at, (chunk.start, chunk.blocks));
        if at + 1 < self.garbage.len() && self.garbage[at + 1].0 == chunk.end() {
            self.garbage[at].1 += self.garbage[at + 1].1;
            self.garbage.remove(at + 1);
        }
        if at > 0 && self.garbage[at - 1].0 + self.garbage[at - 1].1 == chunk.start {
            self.garbage[at - 1].1 += self.garbage[at].1;
            self.garbage.remove(at);
        }
    }

    /// True if a spill would write a block, or release one.
    pub fn can_spill(&self) -> bool {
        self.recent_bytes >= BLOCK || !self.garbage.is_empty()
    }

    /// The next spill: as many whole blocks of the oldest records as the last chunk takes, and some garbage.
    pub fn next_spill(&self) -> Option<SpillData> {
        if !self.can_spill() {
            return None;
        }
        let released =
            self.garbage.front().map_or((0, 0), |&(start, blocks)| (start, blocks.min(RELEASED_MAX)));
        let open = self.chunks.back().filter(|chunk| chunk.takes_more(self.end));
        let room = CHUNK_BLOCKS - open.map_or(0, |chunk| chunk.blocks);
        let blocks = room.min((self.recent_bytes / BLOCK) as u64);
        let mut bytes = Vec::with_capacity(blocks as usize * BLOCK);
        let mut last = Eversion::ZERO;
        for record in self.recent.iter().take_while(|_| blocks > 0) {
            // One that is larger has a chunk as large as it needs.
            if !bytes.is_empty() && bytes.len() + encoded_len(record) > blocks as usize * BLOCK {
                break;
            }
            put_record(&mut bytes, record);
            last = record.0;
        }
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        let blocks = (bytes.len() / BLOCK) as u64;
        let spill = Spill { last, start: self.end, blocks, released: released.1, lost: false };
        Some(SpillData { spill, bytes, released })
    }

    fn spilled(&mut self, spill: Spill) {
        let Spill { last, start, blocks, released, lost } = spill;
        self.damaged |= lost;
        if let Some((start, left)) = self.garbage.front_mut().filter(|_| released > 0) {
            let released = released.min(*left);
            (*start, *left) = (*start + released, *left - released);
            self.garbage.pop_front_if(|(_, left)| *left == 0);
        }
        if blocks == 0 {
            return;
        }
        while let Some(gone) = self.recent.pop_front_if(|(key, _)| *key <= last) {
            self.recent_bytes -= encoded_len(&gone);
        }
        match self.chunks.back_mut() {
            Some(chunk) if chunk.takes_more(start) && chunk.blocks + blocks <= CHUNK_BLOCKS => {
                chunk.blocks += blocks;
                chunk.last = last;
            }
            _ => self.chunks.push_back(Chunk { start, blocks, closed: false, last }),
        }
        self.end = start + blocks;
    }

    /// The record for the index, with all changes of batches up to `mark`.
    pub fn encode(&self, mark: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 16 * self.chunks.len() + self.recent_bytes);
        out.extend_from_slice(&[VERSION, if self.damaged { DAMAGED } else { 0 }]);
        varint::put(&mut out, mark);
        put_key(&mut out, self.trimmed);
        put_key(&mut out, self.last);
        varint::put(&mut out, self.end);
        varint::put(&mut out, self.garbage.len() as u64);
        let mut end = 0;
        for (start, blocks) in &self.garbage {
            varint::put(&mut out, start - end);
            varint::put(&mut out, *blocks);
            end = start + blocks;
        }
        varint::put(&mut out, self.chunks.len() as u64);
        let mut end = 0;
        for chunk in &self.chunks {
            varint::put(&mut out, chunk.start - end);
            varint::put(&mut out, chunk.blocks << 1 | u64::from(chunk.closed));
            put_key(&mut out, chunk.last);
            end = chunk.end();
        }
        self.recent.iter().for_each(|record| put_record(&mut out, record));
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<PgLog, DecodeError> {
        let mut r = Reader::new(bytes);
        let version = r.u8()?;
        if version != VERSION {
            return Err(DecodeError::Incompatible { what: "PG log", compat: version, supported: VERSION });
        }
        let flags = r.u8()?;
        if flags & !DAMAGED != 0 {
            return Err(DecodeError::Invalid { what: "PG log flags", value: flags.into(), offset: 1 });
        }
        let mut out = PgLog { damaged: flags == DAMAGED, mark: varint::take(&mut r)?, ..PgLog::default() };
        (out.trimmed, out.last) = (take_key(&mut r)?, take_key(&mut r)?);
        out.end = checked(0, varint::take(&mut r)?, LOG_COPIES[1], &r)?;
        let mut end = 0;
        for _ in 0..varint::take(&mut r)? {
            let (start, blocks) = take_run(&mut r, end, out.end)?;
            out.garbage.push_back((start, blocks));
            end = start + blocks;
        }
        let mut end = 0;
        for _ in 0..varint::take(&mut r)? {
            let gap = varint::take(&mut r)?;
            let (start, doubled) = (checked(end, gap, out.end, &r)?, varint::take(&mut r)?);
            let blocks = doubled >> 1;
            end = checked(start, blocks, out.end, &r)?;
            let closed = doubled & 1 == 1;
            out.chunks.push_back(Chunk { start, blocks, closed, last: take_key(&mut r)? });
        }
        let mut before = Eversion::ZERO;
        while !r.is_empty() {
            let offset = r.offset();
            let record = take_record(&mut r)?;
            let in_order = record.filter(|(key, _)| *key > before && *key <= out.last);
            let Some(record) = in_order else {
                return Err(DecodeError::Invalid { what: "order of log records", value: 0, offset });
            };
            before = record.0;
            out.recent_bytes += encoded_len(&record);
            out.recent.push_back(record);
        }
        Ok(out)
    }
}

fn put_key(out: &mut Vec<u8>, key: Eversion) {
    varint::put(out, key.epoch.into());
    varint::put(out, key.version);
}

fn take_run(r: &mut Reader<'_>, end: u64, max: u64) -> Result<Garbage, DecodeError> {
    let gap = varint::take(r)?;
    let start = checked(end, gap, max, r)?;
    let blocks = varint::take(r)?;
    checked(start, blocks, max, r)?;
    Ok((start, blocks))
}

/// `at + len`, if it is at most `max`.
fn checked(at: u64, len: u64, max: u64, r: &Reader<'_>) -> Result<u64, DecodeError> {
    let end = at.checked_add(len).filter(|end| *end <= max);
    end.ok_or(DecodeError::Invalid { what: "blocks of a PG log", value: len, offset: r.offset() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn key(version: u64) -> Eversion {
        Eversion { epoch: 1, version }
    }

    fn record(version: u64, len: usize) -> LogRecord {
        (key(version), Bytes::from(vec![version as u8; len]))
    }

    fn append(log: &mut PgLog, versions: std::ops::RangeInclusive<u64>, len: usize) {
        log.apply(LogChange::Append(versions.map(|version| record(version, len)).collect()));
    }

    fn spill(log: &mut PgLog) -> Option<SpillData> {
        let data = log.next_spill()?;
        assert_eq!(data.bytes.len() as u64, data.spill.blocks * BLOCK as u64);
        log.apply(LogChange::Spill(data.spill));
        Some(data)
    }

    #[test]
    fn spills_fill_chunks_and_leave_less_than_a_block() {
        let mut log = PgLog::default();
        append(&mut log, 1..=100, 1000);
        let mut blocks = 0;
        while let Some(data) = spill(&mut log) {
            blocks += data.spill.blocks;
        }
        assert!(log.recent_bytes() < BLOCK && blocks >= 24, "{blocks}");
        let chunk_blocks: Vec<u64> = log.chunks().iter().map(|chunk| chunk.blocks).collect();
        assert_eq!(chunk_blocks[0], CHUNK_BLOCKS);
        assert_eq!(chunk_blocks.iter().sum::<u64>(), blocks);
        append(&mut log, 101..=101, 300_000);
        while spill(&mut log).is_some() {}
        assert!(log.recent().is_empty());
        assert!(log.chunks().back().is_some_and(|chunk| chunk.blocks > 70 && chunk.last == key(101)));
    }

    #[test]
    fn trimmed_and_rewound_chunks_become_garbage_once() {
        let mut log = PgLog::default();
        append(&mut log, 1..=400, 1000);
        while spill(&mut log).is_some() {}
        let total = log.end;
        let first = log.chunks()[0];
        log.apply(LogChange::Trim(first.last));
        assert_eq!(log.garbage, [(0, first.blocks)]);
        let cut = log.chunks()[2].last;
        log.apply(LogChange::Rewind(Eversion { version: cut.version - 1, ..cut }));
        let kept = log.chunks().back().copied().expect("some are left");
        assert!(kept.closed && kept.last < cut && log.recent().is_empty());
        assert_eq!(log.garbage, [(0, first.blocks), (kept.end(), total - kept.end())]);
        append(&mut log, 2000..=2010, 1000);
        let data = spill(&mut log).expect("more than a block");
        assert_eq!((data.spill.start, data.released), (total, (0, first.blocks)), "behind the closed chunk");
        log.apply(LogChange::Clear);
        while spill(&mut log).is_some() {}
        assert!(log.garbage.is_empty() && log.chunks().is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_states_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = PgLog::decode(&bytes);
            if bytes.len() > 2 {
                (bytes[0], bytes[1]) = (VERSION, 0);
            }
            if let Ok(log) = PgLog::decode(&bytes) {
                prop_assert_eq!(PgLog::decode(&log.encode(log.mark)), Ok(log));
            }
        }

        /// The same changes from a decoded state: recovery and operation agree.
        #[test]
        fn decoded_state_goes_on_like_its_origin(steps in prop::collection::vec((0u8..8, 1u64..40, 0usize..3000), 1..80), cut in 0usize..80) {
            let (mut log, mut copy) = (PgLog::default(), None);
            let mut version = 1u64;
            for (i, (kind, n, len)) in steps.into_iter().enumerate() {
                if i == cut {
                    copy = Some(PgLog::decode(&log.encode(7)).unwrap());
                }
                let change = match kind {
                    0 => LogChange::Trim(key(version.saturating_sub(n))),
                    1 => LogChange::Rewind(key(version.saturating_sub(n))),
                    2 if n == 1 => LogChange::Clear,
                    3 | 4 => match log.next_spill() {
                        Some(data) => LogChange::Spill(data.spill),
                        None => continue,
                    },
                    _ => {
                        version += n;
                        LogChange::Append(std::iter::once(record(version, len)).collect())
                    }
                };
                if let Some(copy) = &mut copy {
                    copy.apply(change.clone());
                }
                log.apply(change);
            }
            if let Some(copy) = copy {
                prop_assert_eq!(PgLog { mark: 0, ..copy }, log);
            }
        }
    }
}
