//! What recovery waits for: flags of the map, and a place among the backfills of this core.
//!
//! `norecover` stops recovery from the log, but for objects that requests wait for. `nobackfill` stops backfill. `norebalance`
//! stops the backfill of PGs that have all their copies. A core backfills PGs of its own one after the other
//! (`osd_max_backfills` at once). The others show `backfill_wait`.

use super::super::{Fx, Shard};
use crate::pg::Pg;
use crate::slab::Key;
use machine::Time;
use std::collections::BTreeSet;
use wire::types::osd_map::MapFlags;

/// PGs with this core's places for backfills, and those that wait for one.
#[derive(Default)]
pub(in crate::shard) struct BackfillPlaces {
    taken: BTreeSet<Key>,
    waiting: BTreeSet<Key>,
}

impl Shard {
    pub(super) fn is_recovery_paused(&self) -> bool {
        self.view.map.flags.has(MapFlags::NORECOVER)
    }

    fn is_backfill_paused(&self, pg: &Pg) -> bool {
        let flags = self.view.map.flags;
        let has_all_copies = pg.interval.acting.len() >= pg.interval.size as usize;
        flags.has(MapFlags::NOBACKFILL) || (flags.has(MapFlags::NOREBALANCE) && has_all_copies)
    }

    /// True if the PG may copy a window of objects now. Otherwise it is called when it may, or tries again with its timer.
    pub(super) fn may_backfill(&mut self, key: Key) -> bool {
        if self.is_backfill_paused(&self.pgs[key]) {
            self.end_backfill(key);
            return false;
        }
        let places = &mut self.backfill_places;
        places.waiting.remove(&key);
        let max = self.config.limits.backfills_max.max(1);
        if places.taken.contains(&key) || places.taken.len() < max {
            places.taken.insert(key);
            return true;
        }
        places.waiting.insert(key);
        false
    }

    /// Number of PGs that have a place to backfill.
    pub fn backfills(&self) -> usize {
        self.backfill_places.taken.len()
    }

    /// A PG backfills no more, or cannot go on: another one may.
    pub(in crate::shard) fn end_backfill(&mut self, key: Key) {
        let places = &mut self.backfill_places;
        places.waiting.remove(&key);
        if places.taken.remove(&key)
            && let Some(next) = places.waiting.pop_first()
        {
            self.due.insert(next);
        }
    }

    /// PGs whose backfill has a place now, or whose window a request still used, or whose listings may go on.
    pub(in crate::shard) fn take_due(&mut self, now: Time, fx: &mut Fx) {
        for key in std::mem::take(&mut self.due) {
            if self.pgs.get(key).is_some() {
                self.serve_waiting_lists(now, key, fx);
                self.go_on_marking(key, fx);
                self.go_on_backfilling(key, fx);
            }
        }
    }
}
