//! Space for recovery: a target above backfillfull refuses backfills, and no copied object makes a store fuller than the
//! failsafe.
//!
//! A backfill counts with the bytes that it has yet to write: those beyond the cursor, without those that an older copy here
//! holds already. The store that counts is the one of the PG's core, as everywhere where an OSD is full.

use super::super::{Fx, Shard, StoreSpace};
use super::status::share_beyond;
use crate::pg::Pg;
use crate::pg::role::{Hindrance, Role};
use crate::slab::Key;
use store::Change;
use wire::types::{HObject, PlaceRequest};

impl Shard {
    /// True if the store has room for the PG of a request. Recovery from the log is not measured: it replaces objects.
    pub(super) fn has_room_for(&self, key: Key) -> bool {
        let coming = |(key, request): (&Key, &PlaceRequest)| match self.pgs.get(*key) {
            Some(pg) if request.is_backfill => bytes_to_come(pg, request.bytes),
            _ => 0,
        };
        let Some(request) = self.reservations.request(key).filter(|request| request.is_backfill) else {
            return true;
        };
        let others = self.reservations.granted().filter(|(other, _)| **other != key);
        let all = others.map(coming).fold(coming((&key, request)), u64::saturating_add);
        !self.is_backfillfull(all)
    }

    /// The store would be above the map's backfillfull ratio with so many bytes more.
    fn is_backfillfull(&self, more: u64) -> bool {
        let ratio = f64::from(self.view.map.backfillfull_ratio);
        let Some(StoreSpace { total, available }) = self.space.filter(|space| space.total > 0) else {
            return false;
        };
        let used = total.saturating_sub(available).saturating_add(more);
        ratio > 0.0 && used as f64 >= ratio * total as f64
    }

    /// A store that came to be too full meanwhile takes no further windows of a backfill. True: the place is taken back.
    pub(super) fn refuse_window(&mut self, key: Key, fx: &mut Fx) -> bool {
        let is_backfill = self.reservations.request(key).is_some_and(|request| request.is_backfill);
        if !is_backfill || !self.is_backfillfull(0) {
            return false;
        }
        self.refuse_place(key, fx);
        self.settle_lent(None, fx);
        true
    }

    /// The store may have no room for more than was submitted.
    pub(crate) fn await_usage(&mut self, is_awaited: bool) {
        self.is_usage_awaited = is_awaited;
    }

    /// The store is beyond the failsafe, or may be, and the changes would make it fuller.
    pub(super) fn lacks_space_for(&self, changes: &[Change]) -> bool {
        (self.store_full || self.is_usage_awaited) && changes.iter().any(|change| change.growth() > 0)
    }

    /// A member has no space for an object. The PG goes on later.
    pub(super) fn on_push_too_full(&mut self, key: Key, osd: i32, object: &HObject, fx: &mut Fx) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let recovery = &mut primary.recovery;
        let mut why = Hindrance::RecoveryTooFull;
        if let Some(backfill) = primary.backfill.as_mut().filter(|backfill| backfill.target == osd)
            && backfill.pushing.remove(object)
        {
            why = Hindrance::BackfillTooFull;
        } else if let Some(recovering) = recovery.active.get_mut(object) {
            recovering.pushing_to.remove(&osd);
            if recovering.pushing_to.is_empty() && recovering.pulling_from.is_none() {
                recovery.active.remove(object);
                recovery.queue.insert(object.clone());
            }
        }
        self.unblock(key, object);
        self.hold_off(key, why, fx);
        self.go_on_recovering(key, fx);
    }

    /// The primary itself has no space for an object that it pulls.
    pub(super) fn on_pull_too_full(&mut self, key: Key, object: &HObject, fx: &mut Fx) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        if primary.recovery.active.remove(object).is_some() {
            primary.recovery.queue.insert(object.clone());
        }
        self.hold_off(key, Hindrance::RecoveryTooFull, fx);
        self.go_on_recovering(key, fx);
    }
}

/// Bytes that a backfill has yet to write to this copy. `bytes`: of the whole PG.
fn bytes_to_come(pg: &Pg, bytes: u64) -> u64 {
    let (beyond, range) = share_beyond(pg, &pg.progress.last_backfill.0);
    let beyond = (u128::from(bytes) * u128::from(beyond) / u128::from(range)) as u64;
    beyond.min(bytes.saturating_sub(pg.stale_bytes))
}

/// Bytes of this copy's objects before its backfill cursor.
pub(super) fn bytes_here(pg: &Pg) -> u64 {
    let bytes = pg.progress.stats.bytes.max(0) as u64;
    let (beyond, range) = share_beyond(pg, &pg.progress.last_backfill.0);
    bytes - (u128::from(bytes) * u128::from(beyond) / u128::from(range)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::PgPhase;
    use crate::pg::meta::Complete;
    use wire::types::PgId;

    #[test]
    fn backfill_counts_with_what_the_copy_lacks() {
        let mut pg = Pg::new(PgId { pool: 1, seed: 0 }.into(), 0, PgPhase::Replica);
        assert_eq!(bytes_to_come(&pg, 1000), 0, "a complete copy");
        pg.progress.last_backfill = Complete(HObject::min());
        assert_eq!(bytes_to_come(&pg, 1000), 1000);
        pg.progress.stats.bytes = 1000;
        pg.progress.last_backfill = Complete(HObject { hash: 0x4000_0000u32.reverse_bits(), ..pg.start() });
        assert_eq!((bytes_to_come(&pg, 1000), bytes_here(&pg)), (750, 250));
        // The objects of an older copy are replaced.
        pg.stale_bytes = 900;
        assert_eq!(bytes_to_come(&pg, 1000), 100);
        pg.stale_bytes = 5000;
        assert_eq!(bytes_to_come(&pg, 1000), 0);
    }
}
