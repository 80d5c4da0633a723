//! Objects that the store found damaged: who is told, and until when.
//!
//! A read that failed, for a checksum or because the disk says so, makes its PG inconsistent, as a scrub error does
//! elsewhere: health says which PG, the cluster's log which object. It ends when the object is removed or written anew as a
//! whole, or when all of it has been read. Until then it is kept with what the PG keeps about itself, also over a restart.

use super::{Effect, Fx, Pending, Shard, ToControl};
use crate::pg::role::Role;
use crate::pg::{Pg, meta};
use crate::slab::Key;
use store::{Answer, Change, Transaction};
use wire::types::HObject;

/// What a person needs of one PG's damage; more is for `shoal store fsck --deep`.
const DAMAGED_MAX: usize = 1000;

impl Shard {
    pub(super) fn found_damaged(&mut self, key: Key, object: &HObject, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        if pg.damaged.len() < DAMAGED_MAX && pg.damaged.insert(object.clone()) {
            fx.push(Effect::Control(ToControl::Damaged { pg: pg.id, object: object.clone() }));
            let change = meta::set_damaged(&pg.meta, [object]);
            self.submit_about_damage(key, vec![change], fx);
        }
    }

    /// All of an object of `size` bytes has been read: whatever was damaged is not any more.
    pub(super) fn read_whole(&mut self, key: Key, object: Key, size: u64, answers: &[Answer], fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        if pg.damaged.is_empty() {
            return;
        }
        let is_whole = |answer: &Answer| matches!(answer, Answer::Data(data) if data.len() as u64 == size);
        let object = &pg.objects[object].id.object;
        if answers.iter().any(is_whole) && pg.damaged.remove(object) {
            may_be_repaired_again(&mut pg.role, object);
            let change = meta::remove_damaged(&pg.meta, [object]);
            self.submit_about_damage(key, vec![change], fx);
        }
    }

    pub(super) fn submit_about_damage(&mut self, key: Key, changes: Vec<Change>, fx: &mut Fx) {
        let transaction = Transaction { collection: self.pgs[key].collection, changes };
        self.submit(Pending::Records(key), transaction, fx);
    }
}

fn may_be_repaired_again(role: &mut Role, object: &HObject) {
    if let Role::Primary(primary) = role {
        primary.recovery.unrepairable.remove(object);
        primary.recovery.repairs.remove(object);
    }
}

/// What an object of `size` bytes held is gone, where these changes remove it or replace all of it: they say so, too.
pub(super) fn changed(pg: &mut Pg, object: &HObject, size: u64, changes: &mut Vec<Change>) {
    if pg.damaged.is_empty() {
        return;
    }
    let replaces = |change: &Change| match change {
        Change::Remove { object: id } => id.object == *object,
        Change::Truncate { object: id, size: 0 } => id.object == *object,
        _ => false,
    };
    // Cut down to what is then written is the same as written over.
    let cut = changes.iter().filter_map(|change| match change {
        Change::Truncate { object: id, size } if id.object == *object => Some(*size),
        _ => None,
    });
    let size = cut.fold(size, u64::min);
    let covers = |change: &Change| {
        matches!(change, Change::Write { object: id, offset: 0, data }
            if id.object == *object && data.len() as u64 >= size)
    };
    if changes.iter().any(|change| replaces(change) || covers(change)) && pg.damaged.remove(object) {
        may_be_repaired_again(&mut pg.role, object);
        changes.push(meta::remove_damaged(&pg.meta, [object]));
    }
}
