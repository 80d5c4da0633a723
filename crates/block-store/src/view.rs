//! Asking the index on behalf of something that can wait and ask again.

use crate::index::{Bad, Get, Holes, Index, Limit, Scan, Ticket};
use crate::io::Io;
use crate::object::key::Key;
use bytes::Bytes;
use smallvec::SmallVec;

/// Why a plan or a read cannot go on now. It is dropped, and begun again from its start when what it waits for is
/// there; so nothing half-made crosses a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The index will say that the ticket is ready.
    Index,
    /// These blocks of the device are needed.
    Units(SmallVec<[u64; 4]>),
    /// There are not so many free blocks; something that is under way may free some.
    Space,
    /// There is no room in the log; a checkpoint will make some.
    Log,
    /// It can never go on.
    Bad(Bad),
}

/// How many entries a scan takes from the index at once.
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

    /// Visit up to `max` entries of `from..to`; says whether there are more.
    pub fn scan(
        &mut self,
        from: &[u8],
        to: &[u8],
        max: usize,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool, Wait> {
        self.scan_over(from, to, max, Holes::Stop, each)
    }

    /// [`View::scan`], going on where a part of the index cannot be read.
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
        // Whether there are more: look for one.
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
