//! What a removed object or a cleared omap left behind is taken away in small steps, each a batch's guest.

use super::damage::is_rot;
use super::{Effect, Plan};
use crate::index::Holes;
use crate::object::key::{self, Key};
use crate::view::Wait;
use ::bytes::Bytes;

/// Keys of a step.
const STEP: usize = 256;

impl Plan<'_> {
    /// A step of cleaning away what a number named. Says whether that was the last.
    pub fn cleaning(mut self, number: u64) -> Result<(Effect, bool), Wait> {
        let mut is_last = false;
        let worked = self.clean(number).map(|last| is_last = last);
        self.finish(worked).map(|effect| (effect, is_last))
    }

    fn clean(&mut self, number: u64) -> Result<bool, Wait> {
        // It is for the figures alone: one that cannot be had, or that an older program did not say, costs nothing else.
        let pool = match self.get(&key::cleaning(number)) {
            Err(wait) if is_rot(&wait) => None,
            value => value?.and_then(|value| Some(i64::from_le_bytes(value[..].try_into().ok()?))),
        };
        let (from, to) = key::pages(number, 0, None);
        let (pages, more_pages) = self.step(&from, &to)?;
        for (key, value) in pages {
            self.release_page(&value, pool)?;
            self.delete(key);
        }
        if more_pages {
            return Ok(false);
        }
        let (keys, more_keys) = self.step(&key::omap_header(number), &key::omap_end(number))?;
        for (key, _) in keys {
            self.delete(key);
        }
        if more_keys {
            return Ok(false);
        }
        self.delete(key::cleaning(number));
        Ok(true)
    }

    /// What a part of the index that rotted named is never found again; the number is not used again either.
    fn step(&mut self, from: &[u8], to: &[u8]) -> Result<(Vec<(Key, Bytes)>, bool), Wait> {
        match self.scan(from, to, STEP) {
            Err(wait) if is_rot(&wait) => self.scan_rotten((from, to), STEP, Holes::Hide),
            scanned => scanned,
        }
    }
}
