//! Runs of contiguous blocks.

use device::BLOCK;
use std::ops::Range;

/// `len` blocks of the device from block number `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    pub start: u64,
    pub len: u64,
}

impl Run {
    pub fn new(start: u64, len: u64) -> Run {
        Run { start, len }
    }

    pub fn of_bytes(offset: u64, len: u64) -> Run {
        debug_assert!(offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK as u64));
        Run { start: offset / BLOCK as u64, len: len / BLOCK as u64 }
    }

    pub fn end(&self) -> u64 {
        self.start + self.len
    }

    pub fn blocks(&self) -> Range<u64> {
        self.start..self.end()
    }

    /// Offset on the device, in bytes.
    pub fn offset(&self) -> u64 {
        self.start * BLOCK as u64
    }

    pub fn bytes(&self) -> u64 {
        self.len * BLOCK as u64
    }
}
