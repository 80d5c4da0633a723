//! Cleaning: pages and omap keys of removed objects and cleared omaps are taken away in small steps.
//!
//! A step goes on where the last one ended, so that the deletions of earlier steps are never scanned again. Its cost is
//! bounded by what it looks at, not by what it finds: a range of keys that clients have deleted costs as much as one of
//! keys that are there.

use super::damage::is_rot;
use super::{Effect, Plan};
use crate::index::{Holes, Limit, Scan};
use crate::object::key::{self, Key};
use crate::view::Wait;
use ::bytes::Bytes;

/// A page releases up to 16 blocks, and each of them may change a reference count.
const PAGE_LIMIT: Limit = Limit { entries: 16, bytes: 64 << 10, steps: CLEANING_STEPS_MAX };
const OMAP_LIMIT: Limit = Limit { entries: 64, bytes: 64 << 10, steps: CLEANING_STEPS_MAX };
/// Index entries that one cleaning step looks at.
pub const CLEANING_STEPS_MAX: usize = 512;

impl Plan<'_> {
    /// One cleaning step of `number`, from the key `from` on; from the first when there is none. Returns the key that the
    /// next step begins at, or `None` when nothing is left.
    pub fn cleaning(mut self, number: u64, from: Option<Key>) -> Result<(Effect, Option<Key>), Wait> {
        let mut next = None;
        let worked = self.clean(number, from).map(|key| next = key);
        self.finish(worked).map(|effect| (effect, next))
    }

    fn clean(&mut self, number: u64, from: Option<Key>) -> Result<Option<Key>, Wait> {
        let (first_page, end_of_pages) = key::pages(number, 0, None);
        let from = from.unwrap_or(first_page);
        if from < end_of_pages {
            let pool = self.pool_of(number)?;
            let mut pages: Vec<(Key, Bytes)> = Vec::new();
            let next = self.scan_once((&from, &end_of_pages), PAGE_LIMIT, &mut |key, page| {
                pages.push((key.to_vec(), Bytes::copy_from_slice(page)));
            })?;
            for (key, page) in pages {
                self.release_page(&page, pool)?;
                self.delete(key);
            }
            return Ok(Some(next.unwrap_or_else(|| key::omap_header(number))));
        }
        let mut keys: Vec<Key> = Vec::new();
        let range = (&from[..], &key::omap_end(number)[..]);
        let next = self.scan_once(range, OMAP_LIMIT, &mut |key, _| keys.push(key.to_vec()))?;
        keys.into_iter().for_each(|key| self.delete(key));
        if next.is_none() {
            self.delete(key::cleaning(number));
        }
        Ok(next)
    }

    /// The pool whose compression figures the pages count in. Figures are worth no failure: one that rotted, or that an
    /// older program did not write, is `None`.
    fn pool_of(&mut self, number: u64) -> Result<Option<i64>, Wait> {
        match self.get(&key::cleaning(number)) {
            Err(wait) if is_rot(&wait) => Ok(None),
            value => Ok(value?.and_then(|value| Some(i64::from_le_bytes(value[..].try_into().ok()?)))),
        }
    }

    /// One scan of the index. Returns the key to go on from; `None` at the end of the range. What a rotten part of the
    /// index named is passed over: nothing else finds it, and the number is never used again.
    fn scan_once(
        &mut self,
        range: (&[u8], &[u8]),
        limit: Limit,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Key>, Wait> {
        let view = &mut self.view;
        let mut scan = |holes, each: &mut dyn FnMut(&[u8], &[u8])| {
            view.index.scan_over(range, (limit, holes), view.ticket, view.io, each)
        };
        let answer = match scan(Holes::Stop, each) {
            Scan::Bad(bad) if bad.is_lost() => scan(Holes::Hide, each),
            answer => answer,
        };
        match answer {
            Scan::End => Ok(None),
            Scan::More(next) => Ok(Some(next)),
            Scan::Pending => Err(Wait::Index),
            Scan::Bad(bad) => Err(Wait::Bad(bad)),
        }
    }
}
