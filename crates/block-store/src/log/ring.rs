//! Allocation in the ring of the log.

use crate::space::Run;

/// Positions count blocks since the store was opened and only grow; the block of a position is its remainder.
pub struct Ring {
    run: Run,
    /// Position of the oldest record that is needed.
    tail: u64,
    /// Position of the next record, unless it does not fit before the end of the ring.
    head: u64,
}

impl Ring {
    /// An empty ring with the next record at `block`.
    pub fn new(run: Run, block: u64) -> Ring {
        Ring { run, tail: block, head: block }
    }

    pub fn blocks(&self) -> u64 {
        self.run.len
    }

    pub fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// Position of the next record.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Block of a position, within the ring.
    pub fn block(&self, position: u64) -> u64 {
        position % self.run.len
    }

    /// Largest record that fits now, in blocks.
    pub fn room(&self) -> u64 {
        let to_end = self.run.len - self.block(self.head);
        let free = self.run.len - self.used();
        // Behind the head, or at the beginning of the ring if the blocks up to its end are skipped.
        free.min(to_end).max(free.saturating_sub(to_end))
    }

    /// Allocates `blocks`, at most [`Ring::room`], and returns their place on the device.
    pub fn take(&mut self, blocks: u64) -> Run {
        assert!(blocks <= self.room(), "{blocks} blocks of log in {}", self.room());
        let to_end = self.run.len - self.block(self.head);
        if blocks > to_end {
            self.head += to_end;
        }
        let start = self.run.start + self.block(self.head);
        self.head += blocks;
        Run::new(start, blocks)
    }

    /// For recovery: a record was found at this block of the ring.
    pub fn found(&mut self, block: u64, blocks: u64) {
        let at = self.block(self.head);
        if block != at {
            self.head += self.run.len - at + block;
        }
        self.head += blocks;
    }

    /// For recovery: the records after `head` are incomplete.
    pub fn rewind(&mut self, head: u64) {
        debug_assert!((self.tail..=self.head).contains(&head));
        self.head = head;
    }

    /// Frees the blocks before `position`.
    pub fn free_before(&mut self, position: u64) {
        debug_assert!((self.tail..=self.head).contains(&position));
        self.tail = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_contiguous_and_disjoint() {
        let mut ring = Ring::new(Run::new(100, 10), 0);
        assert_eq!(ring.take(6), Run::new(100, 6));
        assert_eq!(ring.room(), 4);
        assert_eq!(ring.take(3), Run::new(106, 3));
        assert_eq!(ring.room(), 1);
        ring.free_before(6);
        assert_eq!(ring.room(), 6);
        assert_eq!(ring.take(5), Run::new(100, 5), "not at the end, where one block was left");
        assert_eq!((ring.used(), ring.room()), (9, 1));
        ring.free_before(15);
        assert_eq!(ring.used(), 0);
        assert_eq!(ring.room(), 5);
    }
}
