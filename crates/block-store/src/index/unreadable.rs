//! Merges that were given up because a block of their inputs was unreadable, by the place of the block.
//!
//! The fault may be transient, so the merge is repeated some times, the next time after a level has changed. After that the
//! block counts as lost. Merges elsewhere succeed meanwhile, so failures are counted for each place.

use super::table::Table;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Merges that are given up for one place.
const FAILURES_MAX: u32 = 4;
/// Places that are remembered. With more of them, all begin again.
const PLACES_MAX: usize = 256;

#[derive(Default)]
pub struct Unreadable(BTreeMap<u64, u32>);

impl Unreadable {
    /// True if a merge that failed at this block should be repeated.
    pub fn may_recover(&self, at: u64) -> bool {
        self.0.get(&at).is_none_or(|failures| *failures < FAILURES_MAX)
    }

    /// Counts a merge that was given up.
    pub fn count(&mut self, at: u64) {
        if self.0.len() >= PLACES_MAX && !self.0.contains_key(&at) {
            self.0.clear();
        }
        *self.0.entry(at).or_default() += 1;
    }

    /// These tables were merged.
    pub fn forget<'a>(&mut self, tables: impl Iterator<Item = &'a Arc<Table>>) {
        if self.0.is_empty() {
            return;
        }
        for (start, units) in tables.flat_map(|table| &table.runs) {
            while let Some((at, _)) = self.0.range(*start..start + units).next() {
                let at = *at;
                self.0.remove(&at);
            }
        }
    }

    /// Merges given up, for all places that are remembered.
    #[cfg(test)]
    pub fn failures(&self) -> u32 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_given_up_after_its_own_failures() {
        let mut unreadable = Unreadable::default();
        for _ in 0..FAILURES_MAX {
            assert!(unreadable.may_recover(7));
            unreadable.count(7);
            unreadable.count(8);
        }
        assert!(!unreadable.may_recover(7) && unreadable.may_recover(9));
        for place in 0..PLACES_MAX as u64 + 8 {
            unreadable.count(place << 10);
        }
        assert!(unreadable.may_recover(7), "the memory is bounded");
    }
}
