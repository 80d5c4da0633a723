//! The pace of recovery: flags of the map, and the number of objects under way.
//!
//! `norecover` stops recovery from the log, but for objects that requests wait for. `nobackfill` stops backfill. `norebalance`
//! stops the backfill of PGs that have all their copies. The PGs of a core that hold their places share
//! `osd_recovery_max_active` objects, at least one each; several small objects count as one. With `osd_recovery_sleep` a PG
//! pauses after it has begun `osd_recovery_max_single_start` objects.

use super::super::watches::Timer;
use super::super::{Fx, Shard};
use crate::pg::Pg;
use crate::pg::role::Role;
use crate::slab::Key;
use machine::Time;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::types::osd_map::MapFlags;

/// Objects of a PG with small ones count as one up to so many bytes together.
const TOGETHER_BYTES: i64 = 256 << 10;
/// Most objects that count as one.
const TOGETHER_MAX: i64 = 16;

/// Number of objects of a PG's usual size that count as one.
fn objects_together(pg: &Pg) -> usize {
    let stats = &pg.progress.stats;
    let mean = stats.bytes.max(0) / stats.objects.max(1);
    (TOGETHER_BYTES / mean.max(1)).clamp(1, TOGETHER_MAX) as usize
}

/// Objects that a PG has begun since its last pause, and the end of that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses {
    begun: usize,
    until: Time,
}

impl Shard {
    pub(super) fn is_recovery_paused(&self) -> bool {
        self.view.map.flags.has(MapFlags::NORECOVER)
    }

    pub(super) fn is_backfill_paused(&self, pg: &Pg) -> bool {
        let flags = self.view.map.flags;
        let has_all_copies = pg.interval.acting_count() >= pg.interval.size as usize;
        flags.has(MapFlags::NOBACKFILL) || (flags.has(MapFlags::NOREBALANCE) && has_all_copies)
    }

    /// True if a PG with its places may begin one more object now. It then counts as begun.
    pub(super) fn begin_object(&mut self, key: Key) -> bool {
        let limits = &self.config.limits;
        let share = (limits.recovery_active_max / self.local_holders_len().max(1)).max(1);
        let share = share.saturating_mul(objects_together(&self.pgs[key]));
        let Role::Primary(primary) = &mut self.pgs[key].role else { return false };
        let pushing = primary.backfill.as_ref().map_or(0, |backfill| backfill.pushing.len());
        let pauses = &mut primary.pauses;
        if primary.recovery.active.len() + pushing >= share || self.step_time < pauses.until {
            return false;
        }
        pauses.begun += 1;
        if limits.recovery_sleep > Duration::ZERO && pauses.begun >= limits.recovery_single_start_max {
            *pauses = Pauses { begun: 0, until: self.step_time + limits.recovery_sleep };
            self.timers.insert((pauses.until, Timer::Recovery(key)));
        }
        true
    }

    /// PGs whose window a request still used, or whose listings may go on.
    pub(in crate::shard) fn take_due(&mut self, now: Time, fx: &mut Fx) {
        for key in std::mem::take(&mut self.due) {
            if self.pgs.get(key).is_some() {
                self.serve_waiting_lists(now, key, fx);
                self.go_on_marking(key, fx);
                self.go_on_recovering(key, fx);
            }
        }
    }

    /// PGs whose places have changed. Each may change the places of others.
    pub(in crate::shard) fn take_woken(&mut self, fx: &mut Fx) {
        let mut woken: BTreeSet<Key> = std::mem::take(&mut self.woken);
        while let Some(key) = woken.pop_first() {
            if self.pgs.get(key).is_some() {
                self.go_on_recovering(key, fx);
            }
            woken.append(&mut self.woken);
        }
    }
}
