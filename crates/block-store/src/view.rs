//! Index queries of a plan or read, which is repeated when it has to wait.

use crate::index::{Bad, Get, Holes, Index, Limit, Scan, Ticket};
use crate::io::Io;
use crate::object::key::Key;
use crate::object::layer::{self, Ancestors};
use bytes::Bytes;
use smallvec::SmallVec;
use store::Refusal;

/// Reason that a plan or read cannot go on now. It is dropped, and repeated from the start later, so no partial result
/// survives a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Index blocks are being read; the index reports the ticket as ready.
    Index,
    /// These data blocks must be read first.
    Units(SmallVec<[u64; 4]>),
    /// Too few free blocks; work in progress may free some.
    Space,
    /// A chain of layers is too long; the cleaner shortens it.
    Cleaner,
    /// No room in the log; a checkpoint will make room.
    Log,
    /// The index is damaged, or its device failed.
    Bad(Bad),
    /// It will never fit.
    Refused(Refusal),
}

/// Entries and bytes of one index scan.
const SCAN_ENTRIES: usize = 1024;
const SCAN_BYTES: usize = 4 << 20;

pub struct View<'a> {
    pub index: &'a mut Index,
    pub io: &'a mut Io,
    pub ticket: Ticket,
}

impl View<'_> {
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, Wait> {
        match self.index.get(key, self.ticket, self.io) {
            Get::Found(value) => Ok(Some(value)),
            Get::Absent => Ok(None),
            Get::Pending => Err(Wait::Index),
            Get::Bad(bad) => Err(Wait::Bad(bad)),
        }
    }

    /// False if further look-ups are for the next turn, in which the ticket is ready.
    pub fn may_ask_more(&mut self) -> bool {
        self.index.may_ask_more(self.ticket)
    }

    /// A layer and its ancestors, nearest first.
    pub fn layers(&mut self, number: u64, is_layered: bool) -> Result<Ancestors, Wait> {
        let mut out = Ancestors::from_slice(&[number]);
        if is_layered {
            out.extend(layer::ancestors(number, &mut |key| self.get(key))?);
        }
        Ok(out)
    }

    /// Keeps the blocks of all queries so far until the ticket is ready, after queries that went on behind a pending one.
    pub fn hold(&mut self) {
        self.index.hold(self.ticket);
    }

    /// The ticket comes again, whether or not it waits: answers of the tables are remembered for it.
    pub fn keep_answers(&mut self) {
        self.index.keep_answers(self.ticket);
    }

    /// Visits up to `max` entries of `from..to`. Returns true if there are more.
    pub fn scan(
        &mut self,
        from: &[u8],
        to: &[u8],
        max: usize,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool, Wait> {
        self.scan_over(from, to, max, Holes::Stop, each)
    }

    /// Like [`View::scan`], and goes on behind unreadable parts of the index as `holes` says.
    pub fn scan_over(
        &mut self,
        from: &[u8],
        to: &[u8],
        max: usize,
        holes: Holes,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool, Wait> {
        if from >= to {
            return Ok(false);
        }
        let mut at: Key = from.to_vec();
        let mut left = max;
        while left > 0 {
            let limit = Limit::new(left.min(SCAN_ENTRIES), SCAN_BYTES);
            let mut visited = 0;
            let range = (&at[..], to);
            let scan =
                self.index.scan_over(range, (limit, holes), self.ticket, self.io, &mut |key, value| {
                    visited += 1;
                    each(key, value);
                });
            left -= visited.min(left);
            match scan {
                Scan::End => return Ok(false),
                Scan::More(next) => at = next,
                Scan::Pending => return Err(Wait::Index),
                Scan::Bad(bad) => return Err(Wait::Bad(bad)),
            }
        }
        // Look for one more entry.
        let mut more = false;
        loop {
            let one = Limit::new(1, 1);
            let range = (&at[..], to);
            match self.index.scan_over(range, (one, holes), self.ticket, self.io, &mut |_, _| more = true) {
                _ if more => return Ok(true),
                Scan::End => return Ok(false),
                Scan::More(next) => at = next,
                Scan::Pending => return Err(Wait::Index),
                Scan::Bad(bad) => return Err(Wait::Bad(bad)),
            }
        }
    }
}
