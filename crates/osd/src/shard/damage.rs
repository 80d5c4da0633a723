//! Objects that the store found damaged: who is told, and until when.
//!
//! A read that failed, for a checksum or because the disk says so, makes its PG inconsistent, as a scrub error does elsewhere: health says which PG, the
//! cluster's log which object. It ends when the object is removed or written anew as a whole, or when all of it has been
//! read. It is not kept over a restart: the next read that fails tells it again.

use super::{Effect, Fx, Shard, ToControl};
use crate::pg::Pg;
use crate::slab::Key;
use store::{Answer, Change};
use wire::types::HObject;

/// What a person needs of one PG's damage; more is for `shoal store fsck --deep`.
const DAMAGED_MAX: usize = 1000;

impl Shard {
    pub(super) fn found_damaged(&mut self, pg: Key, object: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[pg];
        let object = &pg.objects[object].id.object;
        if pg.damaged.len() < DAMAGED_MAX && pg.damaged.insert(object.clone()) {
            fx.push(Effect::Control(ToControl::Damaged { pg: pg.id, object: object.clone() }));
        }
    }
}

/// All of an object of `size` bytes has been read: whatever was damaged is not any more.
pub(super) fn read_whole(pg: &mut Pg, object: Key, size: u64, answers: &[Answer]) {
    if pg.damaged.is_empty() {
        return;
    }
    let is_whole = |answer: &Answer| matches!(answer, Answer::Data(data) if data.len() as u64 == size);
    if answers.iter().any(is_whole) {
        pg.damaged.remove(&pg.objects[object].id.object);
    }
}

/// What an object of `size` bytes held is gone, where these changes remove it or replace all of it.
pub(super) fn changed(pg: &mut Pg, object: &HObject, size: u64, changes: &[Change]) {
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
    if changes.iter().any(|change| replaces(change) || covers(change)) {
        pg.damaged.remove(object);
    }
}
