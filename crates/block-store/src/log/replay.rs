//! Replay of the log: record after record, until one is incomplete.
//!
//! A record is *complete* if its checksums match and its chain names its predecessor. Direct data of a complete record may
//! be missing, if no later record says that it was flushed: the caller compares checksums and ends the replay there.
//!
//! An incomplete record was never acknowledged, unless a record behind it says that it was on stable storage. Then it was
//! damaged later, and to open the store without it would lose acknowledged transactions.

use super::{Record, RecordHead, Ring};
use crate::format::Header;
use crate::space::Run;
use bytes::Bytes;
use device::{BLOCK, DeviceError};
use thiserror::Error;

/// Bytes of one read.
const AHEAD_BLOCKS: u64 = 256;
/// Distance in which a record behind a missing one is searched for. A longer record has a single transaction with as many
/// bytes of keys.
const LOOKED_BEHIND_BLOCKS: u64 = 32 << 20 >> 12;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(
        "record {missing} of the log is damaged: record {later} was written when it was on stable storage"
    )]
    Damaged { missing: u64, later: u64 },
}

pub struct Replay {
    shard_identity: u64,
    run: Run,
    next_sequence: u64,
    chain: u32,
    ring: Ring,
    /// Bytes read ahead, and their first block in the ring.
    ahead: (u64, Bytes),
}

/// A position between two records.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    head: u64,
    next_sequence: u64,
    chain: u32,
}

/// Function that reads bytes at an offset of the device.
pub type ReadAt<'a> = dyn FnMut(u64, usize) -> Result<Bytes, DeviceError> + 'a;

impl Replay {
    pub fn new(header: &Header, run: Run) -> Replay {
        Replay {
            shard_identity: header.shard_identity,
            run,
            next_sequence: header.log_sequence,
            chain: header.log_chain,
            ring: Ring::new(run, header.log_block),
            ahead: (0, Bytes::new()),
        }
    }

    /// The next complete record.
    pub fn next(&mut self, read: &mut ReadAt<'_>) -> Result<Option<Record>, ReplayError> {
        let at = self.ring.block(self.ring.head());
        // A record that does not fit before the end of the ring is at its beginning.
        for block in [at, 0] {
            if let Some(record) = self.record_at(block, read)? {
                self.ring.found(block, record.head.blocks());
                self.next_sequence += 1;
                self.chain = record.head.crc;
                return Ok(Some(record));
            }
        }
        match self.later_record(read) {
            Some(later) => Err(ReplayError::Damaged { missing: self.next_sequence, later }),
            None => Ok(None),
        }
    }

    /// The sequence of a record that was written after the missing one was on stable storage.
    fn later_record(&mut self, read: &mut ReadAt<'_>) -> Option<u64> {
        let at = self.ring.block(self.ring.head());
        let behind = at..(at + LOOKED_BEHIND_BLOCKS).min(self.run.len);
        let wrapped = 0..LOOKED_BEHIND_BLOCKS.min(at);
        for block in behind.chain(wrapped) {
            // An unreadable block ends the search.
            let Ok(Some(front)) = self.blocks_at(block, 1, read) else { continue };
            let head = RecordHead::decode(&front, self.shard_identity);
            let is_later =
                |h: &RecordHead| h.sequence > self.next_sequence && h.flushed_up_to >= self.next_sequence;
            if let Some(head) = head.filter(is_later) {
                return Some(head.sequence);
            }
        }
        None
    }

    fn record_at(&mut self, block: u64, read: &mut ReadAt<'_>) -> Result<Option<Record>, DeviceError> {
        let Some(front) = self.blocks_at(block, 1, read)? else { return Ok(None) };
        let head = RecordHead::decode(&front, self.shard_identity)
            .filter(|h| h.sequence == self.next_sequence && h.chain == self.chain);
        let Some(head) = head else { return Ok(None) };
        let Some(bytes) = self.blocks_at(block, head.blocks(), read)? else { return Ok(None) };
        Ok(Record::decode(head, &bytes))
    }

    /// Blocks of the ring; `None` beyond its end.
    fn blocks_at(
        &mut self,
        block: u64,
        count: u64,
        read: &mut ReadAt<'_>,
    ) -> Result<Option<Bytes>, DeviceError> {
        if block + count > self.run.len {
            return Ok(None);
        }
        let (start, bytes) = &self.ahead;
        let end = start + (bytes.len() / BLOCK) as u64;
        if block < *start || block + count > end {
            let len = count.max(AHEAD_BLOCKS).min(self.run.len - block);
            let from = Run::new(self.run.start + block, len);
            self.ahead = (block, read(from.offset(), from.bytes() as usize)?);
        }
        let (start, bytes) = &self.ahead;
        let first = (block - start) as usize * BLOCK;
        Ok(Some(bytes.slice(first..first + count as usize * BLOCK)))
    }

    /// End of the last record of [`Replay::next`].
    pub fn mark(&self) -> Mark {
        Mark { head: self.ring.head(), next_sequence: self.next_sequence, chain: self.chain }
    }

    /// Drops the records after this mark, which are incomplete.
    pub fn rewind(&mut self, mark: Mark) {
        self.ring.rewind(mark.head);
        self.next_sequence = mark.next_sequence;
        self.chain = mark.chain;
    }

    /// The ring after the last record, and the sequence and chain of the next record.
    pub fn finish(self) -> (Ring, u64, u32) {
        (self.ring, self.next_sequence, self.chain)
    }
}
