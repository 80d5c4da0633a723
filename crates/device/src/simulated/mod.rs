//! A disk in memory that does everything the contract allows: completions in any order, loss and tearing of unflushed
//! writes, errors, and a full file system.
//!
//! Handles are shared: a test keeps a clone of the one that it gives to the store, to inject faults and to inspect blocks.

mod power_cut;
#[cfg(test)]
mod tests;

use super::dice::Dice;
use super::{BLOCK, BlockDevice, DeviceError, Done, Durability, Request};
use bytes::{Bytes, BytesMut};
use codec::Rope;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// Byte of blocks that were never written. Not zero, so that no code relies on zeroes.
const NEVER_WRITTEN: u8 = 0xa5;

/// Order and number of completions in a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// All requests, in the order submitted, at the next poll.
    AtOnce,
    /// Random order; a poll completes between none and this many.
    Shuffled { per_poll_max: usize },
    /// One random request at every second poll. A test that polls until nothing completes sees each of them apart.
    Steps,
}

/// A simulated disk. A clone is a second handle to it.
#[derive(Clone)]
pub struct Simulated(Rc<RefCell<Disk>>);

struct Disk {
    size: u64,
    pace: Pace,
    dice: Dice,
    /// Blocks on stable storage, by number; others were never flushed.
    durable: BTreeMap<u64, Bytes>,
    /// Blocks whose newest contents are not in `durable`.
    cached: BTreeMap<u64, Bytes>,
    /// Unflushed writes, oldest first.
    unflushed: Vec<BlockWrite>,
    queue: Vec<Queued>,
    /// The disk answers nothing.
    is_stalled: bool,
    /// The last poll completed a request.
    last_poll_completed: bool,
    /// Counts submissions and completions, to order them.
    moment: u64,
    faults: Faults,
    counts: Counts,
}

#[derive(Clone)]
struct BlockWrite {
    block: u64,
    data: Bytes,
    done_at: u64,
}

struct Queued {
    token: u64,
    request: Request,
    submitted_at: u64,
}

#[derive(Default)]
struct Faults {
    reads: Vec<Range<u64>>,
    /// Blocks that cannot be read until they are written.
    rotten: BTreeSet<u64>,
    writes: Vec<Range<u64>>,
    flushes: bool,
    discards: bool,
    gone: bool,
    /// Number of never-written blocks that may still be written.
    fresh_blocks_left: Option<u64>,
    written: BTreeSet<u64>,
}

/// Requests since the disk was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub discard_bytes: u64,
}

impl Simulated {
    pub fn new(size: u64, pace: Pace, seed: u64) -> Simulated {
        assert!(size.is_multiple_of(BLOCK as u64), "a device is a whole number of blocks");
        Simulated::with_durable(size, pace, Dice::new(seed), BTreeMap::new())
    }

    fn with_durable(size: u64, pace: Pace, dice: Dice, durable: BTreeMap<u64, Bytes>) -> Simulated {
        Simulated(Rc::new(RefCell::new(Disk {
            size,
            pace,
            dice,
            durable,
            cached: BTreeMap::new(),
            unflushed: Vec::new(),
            queue: Vec::new(),
            is_stalled: false,
            last_poll_completed: false,
            moment: 0,
            faults: Faults::default(),
            counts: Counts::default(),
        })))
    }

    pub fn counts(&self) -> Counts {
        self.0.borrow().counts
    }

    pub fn set_pace(&self, pace: Pace) {
        self.0.borrow_mut().pace = pace;
    }

    /// Requests in flight.
    pub fn under_way(&self) -> usize {
        self.0.borrow().queue.len()
    }

    /// Changes with every event that may change the outcome of a power cut.
    pub fn moment(&self) -> u64 {
        self.0.borrow().moment
    }

    /// Reads that touch this range fail, until [`Simulated::heal`].
    pub fn fail_reads(&self, range: Range<u64>) {
        self.0.borrow_mut().faults.reads.push(range);
    }

    /// Reads of this block fail until it is written, as a drive remaps it then; or until [`Simulated::heal`].
    pub fn fail_reads_until_written(&self, offset: u64) {
        self.0.borrow_mut().faults.rotten.insert(offset / BLOCK as u64);
    }

    /// Writes that touch this range fail, with any part of them done, until [`Simulated::heal`].
    pub fn fail_writes(&self, range: Range<u64>) {
        self.0.borrow_mut().faults.writes.push(range);
    }

    /// Flushes fail and lose the data that they cover, until [`Simulated::heal`].
    pub fn fail_flushes(&self) {
        self.0.borrow_mut().faults.flushes = true;
    }

    /// Discards fail, until [`Simulated::heal`].
    pub fn fail_discards(&self) {
        self.0.borrow_mut().faults.discards = true;
    }

    /// Every request fails, until [`Simulated::heal`].
    pub fn unplug(&self) {
        self.0.borrow_mut().faults.gone = true;
    }

    /// No request completes until this is taken back. They are carried out then.
    pub fn stall(&self, is_stalled: bool) {
        self.0.borrow_mut().is_stalled = is_stalled;
    }

    /// Only so many more never-written blocks can be written: a sparse file on a file system that fills up.
    pub fn limit_fresh_blocks(&self, blocks: u64) {
        let disk = &mut *self.0.borrow_mut();
        disk.faults.fresh_blocks_left = Some(blocks);
        disk.faults.written = disk.durable.keys().chain(disk.cached.keys()).copied().collect();
    }

    pub fn heal(&self) {
        self.0.borrow_mut().faults = Faults::default();
    }

    /// The block that a read would return.
    pub fn peek(&self, offset: u64) -> Bytes {
        self.0.borrow().block(offset / BLOCK as u64)
    }

    /// Changes stored bytes without a request.
    pub fn poke(&self, offset: u64, change: impl FnOnce(&mut [u8])) {
        let disk = &mut *self.0.borrow_mut();
        let block = offset / BLOCK as u64;
        let mut data = disk.block(block).to_vec();
        change(&mut data);
        disk.cached.remove(&block);
        disk.unflushed.retain(|w| w.block != block);
        disk.durable.insert(block, data.into());
    }
}

fn never_written() -> Bytes {
    static BLANK: [u8; BLOCK] = [NEVER_WRITTEN; BLOCK];
    Bytes::from_static(&BLANK)
}

/// Contents of the blocks of a discarded range: random, and different each time.
fn discarded(offset: u64, len: u64, moment: u64) -> impl Iterator<Item = (u64, Bytes)> {
    let first = offset / BLOCK as u64;
    (first..first + len / BLOCK as u64).map(move |block| {
        let mut dice = Dice::new(block ^ moment << 32);
        (block, (0..BLOCK / 8).flat_map(|_| dice.roll().to_le_bytes()).collect::<Vec<u8>>().into())
    })
}

/// The blocks of a write, each in a buffer of its own.
fn blocks_of(offset: u64, data: &Rope) -> impl Iterator<Item = (u64, Bytes)> + '_ {
    let first = offset / BLOCK as u64;
    (0..data.len() / BLOCK).map(move |i| {
        let block = data.slice(i * BLOCK, BLOCK).expect("within the write");
        (first + i as u64, Bytes::from(block.to_bytes().to_vec()))
    })
}

fn touches(ranges: &[Range<u64>], offset: u64, len: u64) -> bool {
    ranges.iter().any(|r| r.start < offset + len && offset < r.end)
}

impl Disk {
    fn block(&self, block: u64) -> Bytes {
        self.cached.get(&block).or_else(|| self.durable.get(&block)).cloned().unwrap_or_else(never_written)
    }

    fn write_block(&mut self, block: u64, data: Bytes) {
        self.cached.insert(block, data.clone());
        self.unflushed.push(BlockWrite { block, data, done_at: self.moment });
    }

    /// Makes writes that were done before `before` durable.
    fn flush(&mut self, before: u64) {
        let kept_from = self.unflushed.partition_point(|w| w.done_at < before);
        for write in self.unflushed.drain(..kept_from) {
            self.durable.insert(write.block, write.data);
        }
        self.forget_cached();
    }

    /// Keeps only blocks in the cache that are not durable.
    fn forget_cached(&mut self) {
        let dirty: BTreeSet<u64> = self.unflushed.iter().map(|w| w.block).collect();
        self.cached.retain(|block, _| dirty.contains(block));
    }

    fn execute(&mut self, queued: &Queued) -> Result<Bytes, DeviceError> {
        self.moment += 1;
        if self.faults.gone {
            return Err(DeviceError::Gone);
        }
        match &queued.request {
            Request::Read { offset, len } => {
                self.counts.reads += 1;
                self.counts.read_bytes += *len as u64;
                let first = offset / BLOCK as u64;
                let mut rotten = self.faults.rotten.range(first..first + (*len / BLOCK) as u64);
                if touches(&self.faults.reads, *offset, *len as u64) || rotten.next().is_some() {
                    return Err(DeviceError::Io);
                }
                let mut out = BytesMut::with_capacity(*len);
                for block in first..first + (*len / BLOCK) as u64 {
                    out.extend_from_slice(&self.block(block));
                }
                Ok(out.freeze())
            }
            Request::Write { offset, data, durability } => {
                self.counts.writes += 1;
                self.counts.write_bytes += data.len() as u64;
                self.write(*offset, data, *durability)
            }
            Request::Flush => {
                self.counts.flushes += 1;
                if self.faults.flushes {
                    self.unflushed.clear();
                    self.cached.clear();
                    return Err(DeviceError::Io);
                }
                self.flush(queued.submitted_at);
                Ok(Bytes::new())
            }
            Request::Discard { offset, len } => {
                self.counts.discards += 1;
                self.counts.discard_bytes += len;
                if self.faults.discards {
                    return Err(DeviceError::Io);
                }
                for (block, data) in discarded(*offset, *len, queued.submitted_at) {
                    self.write_block(block, data);
                    self.faults.written.remove(&block);
                }
                Ok(Bytes::new())
            }
        }
    }

    fn write(&mut self, offset: u64, data: &Rope, durability: Durability) -> Result<Bytes, DeviceError> {
        if touches(&self.faults.writes, offset, data.len() as u64) {
            for (block, bytes) in blocks_of(offset, data) {
                if self.dice.chance(50) {
                    self.write_block(block, bytes);
                }
            }
            return Err(DeviceError::Io);
        }
        if let Some(left) = self.faults.fresh_blocks_left {
            let first = offset / BLOCK as u64;
            let blocks = first..first + (data.len() / BLOCK) as u64;
            let fresh = blocks.clone().filter(|b| !self.faults.written.contains(b)).count() as u64;
            if fresh > left {
                return Err(DeviceError::NoSpace);
            }
            self.faults.fresh_blocks_left = Some(left - fresh);
            self.faults.written.extend(blocks);
        }
        for (block, bytes) in blocks_of(offset, data) {
            self.faults.rotten.remove(&block);
            if durability == Durability::Flushed {
                // Older contents of these blocks cannot come back. Other blocks stay unflushed.
                self.unflushed.retain(|w| w.block != block);
                self.cached.remove(&block);
                self.durable.insert(block, bytes);
            } else {
                self.write_block(block, bytes);
            }
        }
        Ok(Bytes::new())
    }

    fn take_next(&mut self) -> Option<Queued> {
        if self.queue.is_empty() {
            return None;
        }
        let at = match self.pace {
            Pace::AtOnce => 0,
            Pace::Shuffled { .. } | Pace::Steps => self.dice.below(self.queue.len() as u64) as usize,
        };
        Some(self.queue.remove(at))
    }
}

impl BlockDevice for Simulated {
    fn size(&self) -> u64 {
        self.0.borrow().size
    }

    fn submit(&mut self, token: u64, request: Request) {
        let disk = &mut *self.0.borrow_mut();
        request.check(disk.size);
        disk.moment += 1;
        disk.queue.push(Queued { token, request, submitted_at: disk.moment });
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        let disk = &mut *self.0.borrow_mut();
        let count = match disk.pace {
            _ if disk.is_stalled => 0,
            Pace::AtOnce => disk.queue.len(),
            Pace::Shuffled { per_poll_max } => disk.dice.below(per_poll_max as u64 + 1) as usize,
            Pace::Steps => !disk.last_poll_completed as usize,
        };
        disk.last_poll_completed = count > 0 && !disk.queue.is_empty();
        for _ in 0..count {
            let Some(queued) = disk.take_next() else { break };
            let result = disk.execute(&queued);
            out.push(Done { token: queued.token, result });
        }
        !disk.queue.is_empty()
    }
}
