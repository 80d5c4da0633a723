//! The release of a copy that its OSD cannot read: the primary goes on without it, and tells the OSD to make a new one.
//!
//! ```text
//! report: unreadable ─▶ interval without it ─▶ Remove ─▶ removal ─▶ report: incomplete ─▶ interval with it ─▶ backfill
//! ```
//! The OSD keeps the copy until then, because it may have the only copy of something. [`Shard::release_unreadable`] has the
//! conditions under which it has not. The OSD's part is in [`crate::shard`]'s `release`.
//!
//! The new copy becomes a member with a new interval, as any other: a member that came in the middle of one would not have its
//! writes. Rejected: a rebuild in place, which keeps the objects and sets the copy's records anew. The hole that damage leaves in
//! the store's index stays with the collection, and the next listing fails.

use super::super::{Fx, Shard};
use crate::pg::Pg;
use crate::pg::role::Stage;
use crate::slab::Key;
use wire::types::{CopyReport, PeerBody};

impl Shard {
    /// Tells the OSDs of the up set that cannot read their copies to remove them, once each, if
    ///
    /// - the PG is active and `min_size` acting copies are whole: complete, and none of their objects missing;
    /// - no object is unfound, and none is known to be damaged;
    /// - recovery and backfill are not switched off (`norecover`, `nobackfill`).
    ///
    /// An acting OSD that finds its copy unreadable stays until the interval has ended.
    pub(super) fn release_unreadable(&mut self, key: Key, fx: &mut Fx) {
        let Some(pg) = self.pgs.get(key) else { return };
        let Some(primary) = pg.role.primary().filter(|primary| primary.stage == Stage::Active) else {
            return;
        };
        let is_due = |osd: &i32| {
            primary.is_unreadable(*osd)
                && !primary.peers[osd].is_released
                && !pg.interval.acting.contains(osd)
        };
        let due: Vec<i32> = pg.interval.up.iter().copied().filter(is_due).collect();
        if due.is_empty() || !self.may_release(pg) {
            return;
        }
        for osd in due {
            let primary = self.pgs[key].role.primary_mut();
            if let Some(peer) = primary.and_then(|primary| primary.peers.get_mut(&osd)) {
                peer.is_released = true;
            }
            self.tell_peer(key, osd, PeerBody::Remove, fx);
        }
    }

    /// The PG needs no copy besides its acting ones.
    fn may_release(&self, pg: &Pg) -> bool {
        let own = self.config.osd.0;
        let Some(primary) = pg.role.primary() else { return false };
        let is_whole = |osd: &&i32| {
            let peer = primary.peers.get(osd);
            **osd == own || peer.is_some_and(|peer| peer.is_complete() && peer.missing.is_empty())
        };
        let whole = pg.interval.acting.iter().filter(is_whole).count();
        let is_paused = self.is_recovery_paused() || self.is_backfill_paused(pg);
        whole >= (pg.interval.min_size as usize).max(1)
            && pg.missing.is_empty()
            && !pg.has_damage()
            && !is_paused
            && !pg.backend.has_positions()
    }

    /// A member has a new copy in the place of one that it could not read. It joins with the next interval, which begins when
    /// nothing else is to be recovered.
    pub(super) fn on_copy_rebuilt(&mut self, key: Key, osd: i32, report: CopyReport, fx: &mut Fx) {
        let primary = self.pgs[key].role.primary_mut();
        if let Some(peer) = primary.and_then(|primary| primary.peers.get_mut(&osd)) {
            peer.report = Some(report);
        }
        self.go_on_recovering(key, fx);
    }

    /// The next step tells the OSDs again that have not answered.
    pub(super) fn repeat_releases(&mut self, key: Key, only: Option<i32>) {
        let Some(primary) = self.pgs[key].role.primary_mut() else { return };
        let concerned = primary.peers.iter_mut().filter(|(osd, _)| only.is_none_or(|only| only == **osd));
        concerned.for_each(|(_, peer)| peer.is_released = false);
    }
}
