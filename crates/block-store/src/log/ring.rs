//! Where in the ring the next record goes, and how much of the ring is in use.

use crate::space::Run;

/// Positions count blocks since the store was opened and never go back; the block of one is its remainder.
pub struct Ring {
    run: Run,
    /// What is needed begins here.
    tail: u64,
    /// The next record goes here, or to the ring's beginning when it does not fit before its end.
    head: u64,
}

impl Ring {
    /// Empty, with the next record at `block` of the ring.
    pub fn new(run: Run, block: u64) -> Ring {
        Ring { run, tail: block, head: block }
    }

    pub fn blocks(&self) -> u64 {
        self.run.len
    }

    pub fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// Where the next record goes.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The block, within the ring, of a position.
    pub fn block(&self, position: u64) -> u64 {
        position % self.run.len
    }

    /// The largest record that could be placed now.
    pub fn room(&self) -> u64 {
        let to_end = self.run.len - self.block(self.head);
        let free = self.run.len - self.used();
        // Behind the head, or at the ring's beginning once the rest of the ring is given up.
        free.min(to_end).max(free.saturating_sub(to_end))
    }

    /// Take the next `blocks`, which [`Ring::room`] has: where they lie on the device.
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

    /// When opening: a record was found at this block of the ring.
    pub fn found(&mut self, block: u64, blocks: u64) {
        let at = self.block(self.head);
        if block != at {
            self.head += self.run.len - at + block;
        }
        self.head += blocks;
    }

    /// When opening: what was found after `head` is not whole.
    pub fn rewind(&mut self, head: u64) {
        debug_assert!((self.tail..=self.head).contains(&head));
        self.head = head;
    }

    /// What lies before `position` is not needed any more.
    pub fn free_before(&mut self, position: u64) {
        debug_assert!((self.tail..=self.head).contains(&position));
        self.tail = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_lie_in_one_piece_and_do_not_meet() {
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
