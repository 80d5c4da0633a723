//! One leased zone: its bitmaps, its use, and the longest run of free blocks.

use super::bitmap::Bitmap;
use super::run::Run;

/// Use of a zone. A zone is empty when all its blocks are free, and gets its use with its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneUse {
    Empty,
    /// Object data. In stores of version 1, and when space is short, tables and manifests, too.
    Data,
    /// Index tables and manifests.
    Index,
}

pub struct Zone {
    pub run: Run,
    /// Blocks of object data after all applied transactions: the zone's record in the index.
    stored: Bitmap,
    /// Blocks that are not free: stored ones, tables, manifests, released blocks in use, blocks that are being discarded.
    busy: Bitmap,
    pub is_for: ZoneUse,
    /// At least the length of the longest free run.
    longest: u64,
    /// `longest` is that length.
    is_exact: bool,
}

impl Zone {
    /// A zone whose blocks are all free.
    pub fn new(run: Run) -> Zone {
        Zone {
            run,
            stored: Bitmap::new(run.len),
            busy: Bitmap::new(run.len),
            is_for: ZoneUse::Empty,
            longest: run.len,
            is_exact: true,
        }
    }

    fn local(&self, run: Run) -> Run {
        Run::new(run.start - self.run.start, run.len)
    }

    fn global(&self, run: Run) -> Run {
        Run::new(run.start + self.run.start, run.len)
    }

    /// Sets the bits of its index record. Returns false if the record is malformed.
    pub fn load(&mut self, bytes: &[u8]) -> bool {
        let stored = Bitmap::from_bytes(self.run.len, bytes);
        if let Some(stored) = stored {
            self.stored = stored;
            return true;
        }
        false
    }

    /// The bits of its index record.
    pub fn record(&self) -> Vec<u8> {
        self.stored.to_bytes()
    }

    pub fn forget_stored(&mut self) {
        self.stored = Bitmap::new(self.run.len);
    }

    /// Marks blocks as holding data or not. Returns the number of changed blocks.
    pub fn set_stored(&mut self, run: Run, value: bool) -> u64 {
        self.stored.put(self.local(run), value)
    }

    pub fn stored_runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.stored.set_runs().map(|run| self.global(run))
    }

    /// For recovery: all blocks with data are busy.
    pub fn occupy_stored(&mut self) {
        let runs: Vec<Run> = self.stored.set_runs().collect();
        for run in &runs {
            self.busy.put(*run, true);
        }
        self.is_for = if runs.is_empty() { ZoneUse::Empty } else { ZoneUse::Data };
        self.is_exact = false;
    }

    /// Number of free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.busy.clear()
    }

    pub fn is_empty(&self) -> bool {
        self.busy.clear() == self.run.len
    }

    pub fn is_free(&self, run: Run) -> bool {
        self.busy.is_clear(self.local(run))
    }

    /// Takes free blocks. Returns the number of those that were free.
    pub fn occupy(&mut self, run: Run) -> u64 {
        self.is_exact = false;
        self.busy.put(self.local(run), true)
    }

    /// Frees blocks.
    pub fn free(&mut self, run: Run) {
        let local = self.local(run);
        self.busy.put(local, false);
        if local.len > 0 {
            self.longest = self.longest.max(self.busy.clear_around(local.start).len);
        }
    }

    /// Upper bound of the longest free run.
    pub fn longest_bound(&self) -> u64 {
        self.longest
    }

    /// True if [`Zone::longest`] need not read the bitmap.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Length of the longest free run. Reads the zone's bitmap if it has changed.
    pub fn longest(&mut self) -> u64 {
        if !self.is_exact {
            self.longest = self.busy.longest_clear();
            self.is_exact = true;
        }
        self.longest
    }

    /// No free run has as many as `blocks` blocks.
    pub fn lacks_runs_of(&mut self, blocks: u64) {
        self.longest = self.longest.min(blocks - 1);
    }

    /// The first run of `blocks` free blocks at or behind block `from`.
    pub fn find(&self, from: u64, blocks: u64) -> Option<Run> {
        let start = self.busy.find_clear(from.saturating_sub(self.run.start), blocks)?;
        Some(self.global(Run::new(start, blocks)))
    }

    /// The first free run of at least `min` blocks at or behind block `from`, of which at most `max` are returned.
    pub fn next_free(&self, from: u64, min: u64, max: u64) -> Option<Run> {
        let start = self.busy.find_clear(from.saturating_sub(self.run.start), min)?;
        self.busy.next_clear(start, max).map(|run| self.global(run))
    }
}
