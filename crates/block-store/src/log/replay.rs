//! Reading the log back: record after record, until one is not whole.
//!
//! A record is *whole* when its checksums match and it names the one before it. Data that went straight to its blocks
//! may be missing behind a whole record if nothing written later says that it was flushed: the caller looks, and stops
//! there when it is. What is not whole was never acknowledged, unless a later record somewhere behind it says that it was
//! on stable storage. Then what is not whole was damaged later, and to go on without it would lose what was acknowledged.

use super::{Record, RecordHead, Ring};
use crate::format::Header;
use crate::space::Run;
use bytes::Bytes;
use device::{BLOCK, DeviceError};
use thiserror::Error;

/// How much is read at once.
const AHEAD_BLOCKS: u64 = 256;
/// How far a record that follows is looked for where one is missing. Only a single transaction with as many bytes of keys
/// makes a longer one.
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
    /// What was read ahead, and at which block of the ring it begins.
    ahead: (u64, Bytes),
}

/// A place between two records.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    head: u64,
    next_sequence: u64,
    chain: u32,
}

/// Reads so many bytes at an offset of the device.
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

    /// The next whole record.
    pub fn next(&mut self, read: &mut ReadAt<'_>) -> Result<Option<Record>, ReplayError> {
        let at = self.ring.block(self.ring.head());
        // A record that did not fit before the ring's end was written to its beginning.
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

    /// The sequence of a record that was written when the one that is not there was on stable storage.
    fn later_record(&mut self, read: &mut ReadAt<'_>) -> Option<u64> {
        let at = self.ring.block(self.ring.head());
        let behind = at..(at + LOOKED_BEHIND_BLOCKS).min(self.run.len);
        let wrapped = 0..LOOKED_BEHIND_BLOCKS.min(at);
        for block in behind.chain(wrapped) {
            // A block that cannot be read holds nothing back: what was not found before it is not found.
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

    /// Blocks of the ring; `None` when it ends before.
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

    /// Where the last record that [`Replay::next`] gave ended.
    pub fn mark(&self) -> Mark {
        Mark { head: self.ring.head(), next_sequence: self.next_sequence, chain: self.chain }
    }

    /// The records after this mark turned out not to be whole.
    pub fn rewind(&mut self, mark: Mark) {
        self.ring.rewind(mark.head);
        self.next_sequence = mark.next_sequence;
        self.chain = mark.chain;
    }

    /// After the last record: the ring as it is, the next record's sequence and chain.
    pub fn finish(self) -> (Ring, u64, u32) {
        (self.ring, self.next_sequence, self.chain)
    }
}
