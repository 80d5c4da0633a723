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
/// Factor by which a read ahead that failed is repeated shorter.
const READ_LESS: u64 = 8;
/// Distance in which a record behind a missing one is searched for. A longer record has a single transaction with as many
/// bytes of keys.
const LOOKED_BEHIND_BLOCKS: u64 = 32 << 20 >> 12;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(
        "record {missing} of the log, at bytes {} to {} of the device, is damaged: record {later} was written when it was on \
         stable storage", place.offset(), place.offset() + place.bytes() - 1
    )]
    Damaged { missing: u64, later: u64, place: Run },
    #[error(
        "record {sequence} of the log, at bytes {} to {} of the device, cannot be read",
        place.offset(), place.offset() + place.bytes() - 1
    )]
    Unreadable { sequence: u64, place: Run },
    #[error("both slots have header {found} or older, and the log was written behind header {needed}")]
    HeaderLost { found: u64, needed: u64 },
}

pub struct Replay {
    shard_identity: u64,
    header_sequence: u64,
    /// Greatest incarnation of the records that were seen, whole or not.
    incarnation: u32,
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
            header_sequence: header.sequence,
            incarnation: header.incarnation,
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
        self.look_behind(read)?;
        Ok(None)
    }

    /// Looks at the records behind the end of the log. Fails if one of them was written after the missing one was on stable
    /// storage.
    fn look_behind(&mut self, read: &mut ReadAt<'_>) -> Result<(), ReplayError> {
        let at = self.ring.block(self.ring.head());
        let behind = at..(at + LOOKED_BEHIND_BLOCKS).min(self.run.len);
        let wrapped = 0..LOOKED_BEHIND_BLOCKS.min(at);
        for block in behind.chain(wrapped) {
            let Some(head) = self.head_at(block, read)? else { continue };
            if head.front.sequence > self.next_sequence && head.front.flushed_up_to >= self.next_sequence {
                let end = if block > at { block } else { self.run.len };
                let place = Run::new(self.run.start + at, end - at);
                return Err(ReplayError::Damaged {
                    missing: self.next_sequence,
                    later: head.front.sequence,
                    place,
                });
            }
        }
        Ok(())
    }

    /// The complete header of a record at this block. An unreadable block has none.
    fn head_at(&mut self, block: u64, read: &mut ReadAt<'_>) -> Result<Option<RecordHead>, ReplayError> {
        let Some(Some(bytes)) = self.blocks_at(block, 1, read)? else { return Ok(None) };
        let Some(head) = RecordHead::decode(&bytes, self.shard_identity) else { return Ok(None) };
        self.incarnation = self.incarnation.max(head.front.incarnation);
        match head.front.header_sequence > self.header_sequence {
            true => Err(ReplayError::HeaderLost {
                found: self.header_sequence,
                needed: head.front.header_sequence,
            }),
            false => Ok(Some(head)),
        }
    }

    fn record_at(&mut self, block: u64, read: &mut ReadAt<'_>) -> Result<Option<Record>, ReplayError> {
        let head = self.head_at(block, read)?;
        let is_next =
            |head: &RecordHead| head.front.sequence == self.next_sequence && head.front.chain == self.chain;
        let Some(head) = head.filter(is_next) else { return Ok(None) };
        match self.blocks_at(block, head.blocks(), read)? {
            None => Ok(None),
            Some(Some(bytes)) => Ok(Record::decode(head, &bytes)),
            // A header of this chain stands before it, so the record was written. It may have been acknowledged.
            Some(None) => Err(ReplayError::Unreadable {
                sequence: head.front.sequence,
                place: Run::new(self.run.start + block, head.blocks()),
            }),
        }
    }

    /// Blocks of the ring; `None` beyond its end, `Some(None)` if some of them cannot be read. What is read ahead may be
    /// unreadable: it may lie behind the end of the log.
    fn blocks_at(
        &mut self,
        block: u64,
        count: u64,
        read: &mut ReadAt<'_>,
    ) -> Result<Option<Option<Bytes>>, ReplayError> {
        if block + count > self.run.len {
            return Ok(None);
        }
        let (start, bytes) = &self.ahead;
        let end = start + (bytes.len() / BLOCK) as u64;
        if block < *start || block + count > end {
            let ahead = count.max(AHEAD_BLOCKS).min(self.run.len - block);
            let mut read_run = |len: u64| {
                let from = Run::new(self.run.start + block, len);
                read(from.offset(), from.bytes() as usize)
            };
            let (mut len, mut bytes) = (ahead, read_run(ahead));
            while bytes == Err(DeviceError::Io) && len > count {
                len = (len / READ_LESS).max(count);
                bytes = read_run(len);
            }
            match bytes {
                Ok(bytes) => self.ahead = (block, bytes),
                Err(DeviceError::Io) => return Ok(Some(None)),
                Err(error) => return Err(error.into()),
            }
        }
        let (start, bytes) = &self.ahead;
        let first = (block - start) as usize * BLOCK;
        Ok(Some(Some(bytes.slice(first..first + count as usize * BLOCK))))
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

    /// The incarnation of this opening: greater than all that were seen.
    pub fn next_incarnation(&self) -> u32 {
        self.incarnation.wrapping_add(1)
    }

    /// The ring after the last record, and the sequence and chain of the next record.
    pub fn finish(self) -> (Ring, u64, u32) {
        (self.ring, self.next_sequence, self.chain)
    }
}
