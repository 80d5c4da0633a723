//! Repair of an object whose copy here cannot be read, from another member's copy. Requests on it wait meanwhile.
//!
//! The primary reads the object's info for the version, notes the object as missing, also on disk, and recovers it as any
//! missing object. A copy that nobody has a better one of stays as it is: reads of it fail with `EIO`, and its PG is inconsistent.

use super::super::{Fx, Pending, Shard};
use crate::object::{ObjectBlock, ObjectState};
use crate::ops::INFO_ATTR;
use crate::pg::meta;
use crate::pg::role::{Role, Stage};
use crate::slab::Key;
use store::{Answer, Change, Query, ReadError, ReadRequest, Transaction};
use wire::types::{Epoch, Eversion, HObject, ObjectInfo};

/// The read of a damaged object's info.
#[derive(Debug)]
pub(in crate::shard) struct InfoRead {
    pg: Key,
    interval: Epoch,
    object: HObject,
}

impl Shard {
    /// Begins to repair an object if another member may have a copy. Requests on it wait from now on. False: nobody can help.
    pub(in crate::shard) fn begin_repair(&mut self, key: Key, object: &HObject, fx: &mut Fx) -> bool {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return false };
        let may_help = primary.stage == Stage::Active
            && !primary.members.is_empty()
            && pg.moving.is_none()
            && !primary.recovery.unrepairable.contains(object);
        if !may_help {
            return false;
        }
        if let Some(context) = pg.objects.find(object) {
            pg.objects[context].block = ObjectBlock::All;
        }
        if !primary.recovery.repairing.insert(object.clone()) {
            return true;
        }
        primary.is_clean = false;
        let (collection, interval) = (pg.collection, pg.interval.since);
        let read = InfoRead { pg: key, interval, object: object.clone() };
        let tag = self.pending.insert(Pending::InfoRead(Box::new(read)));
        let queries = vec![Query::Attr { name: INFO_ATTR }];
        self.read(tag, ReadRequest { collection, object: object.clone().into(), queries }, fx);
        true
    }

    pub(in crate::shard) fn on_info_read(
        &mut self,
        tag: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::InfoRead(read)) = self.pending.remove(tag) else { return };
        let InfoRead { pg: key, interval, object } = *read;
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| pg.interval.since == interval) else { return };
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(version) = version_in(answers) else {
            self.give_up_repair(key, &object, fx);
            return self.go_on_recovering(key, fx);
        };
        primary.recovery.queue.insert(object.clone());
        pg.missing.add(object.clone(), version);
        if let Some(context) = pg.objects.find(&object) {
            pg.objects[context].state = ObjectState::Unknown;
        }
        let change = meta::set_missing(&pg.meta, [(&object, &version)]);
        self.submit_about_repair(key, change, fx);
        self.want_recovered(key, &object, fx);
    }

    /// No member has a better copy: the one here counts again, damaged as it is.
    pub(super) fn give_up_repair(&mut self, key: Key, object: &HObject, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        primary.recovery.repairing.remove(object);
        primary.recovery.unrepairable.insert(object.clone());
        if primary.members.iter().any(|osd| primary.peers[osd].missing.contains(object)) {
            primary.recovery.unfound.insert(object.clone());
        }
        if pg.missing.remove(object).is_some() {
            let change = meta::remove_missing(&pg.meta, [object]);
            self.submit_about_repair(key, change, fx);
        }
        self.unblock(key, object);
    }

    fn submit_about_repair(&mut self, key: Key, change: Change, fx: &mut Fx) {
        let transaction = Transaction { collection: self.pgs[key].collection, changes: vec![change] };
        self.submit(Pending::Nobody, transaction, fx);
    }
}

fn version_in(answers: Result<Vec<Answer>, ReadError>) -> Option<Eversion> {
    let Some(Answer::Attr(Some(info))) = answers.ok()?.into_iter().next() else { return None };
    codec::decode_exact::<ObjectInfo>(&info).ok().map(|info| info.version)
}
