//! The end of a copy that cannot be read, on its OSD, after the primary has released it.
//!
//! | durable step | copy after a crash |
//! |---|---|
//! | the daemon's record: the copy begins again with a later map | unreadable |
//! | the copy's own records: it has no object and no log | incomplete; or unreadable, if the damage outlasts the records |
//! | some of its objects are removed | the same |
//! | the collection is removed | none; it begins again, incomplete |
//! | a new collection, incomplete | incomplete |
//!
//! Until the collection is gone the copy stays [`PgPhase::Unreadable`], so that a primary goes on without it in every interval.
//! The control machine then hears that it is removed, and orders a new one where the map names this OSD.
//!
//! A split does not divide an unreadable copy: the store keeps the children's objects in the parent's collection. Such a copy
//! is not removed, because the primary of one of these PGs knows nothing of the others' objects. A split that comes after the
//! release is another matter: the primary that released the copy answered for all objects. Their removal ends the children,
//! too.

use super::{Effect, Fx, Pending, Shard, ToControl};
use crate::pg::meta::{self, Complete, PgHistory, PgProgress};
use crate::pg::{Pg, PgPhase, log_records, low_bits};
use crate::slab::Key;
use store::moving::CollectionRemoval;
use store::{Change, Transaction};
use wire::types::{HObject, SpgId};

impl Shard {
    /// The primary does not need this copy. Repeated until it hears of a new one.
    pub(super) fn ask_for_rebuild(&mut self, key: Key, fx: &mut Fx) {
        let pg = &self.pgs[key];
        // An acting member may have to vouch for the interval's writes.
        if pg.may_be_rebuilt() && !pg.interval.acting.contains(&self.config.osd.0) {
            fx.push(Effect::Control(ToControl::Released { pg: pg.id, split_bits: pg.split_bits }));
        }
    }

    /// The daemon's records say that the copy begins again ([`super::PgOrder::Rebuild`]).
    pub(super) fn begin_rebuild(&mut self, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        if !pg.may_be_rebuilt() {
            return;
        }
        pg.released = Some(pg.split_bits);
        let progress = PgProgress { last_backfill: Complete(HObject::min()), ..PgProgress::default() };
        let meta = || pg.meta.clone();
        let mut changes = vec![Change::Touch { object: meta() }, Change::OmapClear { object: meta() }];
        changes.push(log_records::clear());
        changes.extend(meta::set_history(&pg.meta, &PgHistory::default(), &progress));
        let transaction = Transaction { collection: pg.collection, changes };
        self.submit(Pending::Records(key), transaction, fx);
        self.go_on_removing(key, CollectionRemoval::default(), fx);
    }

    /// The collection of a released copy is gone, and with it the objects of PGs that were split from it meanwhile.
    pub(super) fn remove_released_children(&mut self, parent: SpgId, split_bits: u8, fx: &mut Fx) {
        let is_child = |pg: &Pg| {
            let (id, seed) = (pg.id.pg, parent.pg.seed);
            pg.phase == PgPhase::Unreadable
                && pg.is_store_behind
                && pg.released.is_none()
                && id.pool == parent.pg.pool
                && id.seed & low_bits(split_bits) == seed
        };
        let children: Vec<Key> = self.pgs.iter().filter(|(_, pg)| is_child(pg)).map(|(key, _)| key).collect();
        for key in children {
            let pg = self.pgs[key].id;
            self.remove_pg(key);
            fx.push(Effect::Control(ToControl::Removed { pg }));
        }
    }
}

impl Pg {
    /// An unreadable copy that the store has as it was.
    fn may_be_rebuilt(&self) -> bool {
        self.phase == PgPhase::Unreadable
            && self.released.is_none()
            && !self.is_store_behind
            && self.merges_into.is_none()
            && self.moving.is_none()
    }

    /// This OSD is not to serve the copy: the map does not name it, or the copy cannot be read.
    pub fn is_beside(&self) -> bool {
        matches!(self.phase, PgPhase::Stray | PgPhase::Unreadable)
    }

    /// Some object is known to be damaged on some copy, which an unreadable one may have whole.
    pub fn has_damage(&self) -> bool {
        let repairs = self.role.primary().map(|primary| &primary.recovery);
        let is_repaired = |recovery: &crate::pg::role::Recovery| {
            recovery.repairing.is_empty() && recovery.unrepairable.is_empty() && recovery.unfound.is_empty()
        };
        !self.damaged.is_empty() || !self.scrub.objects.is_empty() || !repairs.is_none_or(is_repaired)
    }
}
