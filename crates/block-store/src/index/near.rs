//! Where the last look-up of a caller was in each run.
//!
//! The keys of a transaction come in order, so most of them are in the same segment as the one before. Such a look-up needs no
//! search of the run and of the table's root, nor of the cache: it goes to the guide at once, whose filter is in the processor's
//! cache by then.

use super::Ticket;
use super::table::Segment;

/// Look-ups of a caller in the tables before places are noted: most callers make a few, of keys far from each other.
const SCATTERED: usize = 4;

/// The segment of a run that was searched last.
#[derive(Debug, Default)]
pub struct Near {
    /// Position of the table in its run.
    pub table: usize,
    pub segment: Segment,
    /// Slot of the cache where the guide was.
    pub slot: u32,
    /// Keys of the segment: from `first` up to, not including, `end`.
    pub first: Vec<u8>,
    pub end: Vec<u8>,
    /// The search has noted the segment: false if its root or guide was not in memory.
    pub is_set: bool,
    /// Of [`Nears`], when the search began.
    generation: u64,
}

#[derive(Default)]
pub struct Nears {
    asker: Option<Ticket>,
    /// Look-ups of the asker in the tables.
    asked: usize,
    /// Version of the levels that positions of runs and tables are of.
    levels: u64,
    /// Of each run, newest first.
    runs: Vec<Near>,
    generation: u64,
}

impl Nears {
    /// A caller begins its queries: it has used no guide yet.
    pub fn begin_caller(&mut self) {
        self.asker = None;
    }

    /// A look-up of this caller begins, in levels of this version.
    #[inline]
    pub fn begin(&mut self, ticket: Ticket, levels: u64) {
        if (self.asker, self.levels) != (Some(ticket), levels) {
            (self.asker, self.levels, self.asked) = (Some(ticket), levels, 0);
            self.generation += 1;
        }
        self.asked += 1;
    }

    /// The segment of a run, if it is the one that has this key.
    #[inline]
    pub fn find(&self, run: usize, key: &[u8]) -> Option<&Near> {
        if self.asked <= SCATTERED {
            return None;
        }
        let near = self.runs.get(run).filter(|near| near.is_set && near.generation == self.generation)?;
        (&near.first[..] <= key && key < &near.end[..]).then_some(near)
    }

    /// A table of a run is searched: the place to note the segment, unless look-ups are few.
    #[inline]
    pub fn note(&mut self, run: usize, table: usize) -> Option<&mut Near> {
        if self.asked < SCATTERED {
            return None;
        }
        if self.runs.len() <= run {
            self.runs.resize_with(run + 1, Near::default);
        }
        let near = &mut self.runs[run];
        (near.generation, near.table, near.is_set) = (self.generation, table, false);
        Some(near)
    }
}
