//! Requests about snapshots: reads of clones, rollbacks, and the snapshot context of a write.
//!
//! A clone has no queue of its own. A read of a snapshot has its turn on the head, whose snapshot set names the clone, and then
//! reads the clone. So a clone neither changes nor goes during the read, and one turn covers all clones of an object.

use super::op::{Op, Past, Stage};
use super::view::ClusterView;
use super::{Fx, Pending, Shard};
use crate::errno::Errno;
use crate::object::ObjectContext;
use crate::object::snapshots::{SnapContext, SnapTarget, target_of};
use crate::ops::{INFO_ATTR, RollbackTo, SNAPS_ATTR, object_info};
use crate::slab::Key;
use codec::{Encode, Features};
use machine::Time;
use std::sync::Arc;
use store::{Answer, Change, ObjectId, Query, ReadRequest};
use wire::types::{Eversion, HObject, ObjectFlags, ObjectInfo, OsdFlags, SnapId};

impl Shard {
    /// The read of a snapshot has its turn on the head, whose state is known.
    pub(super) fn begin_snapshot_read(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(op) = self.op(key) else { return };
        let object = &self.pgs[op.pg].objects[op.object];
        let target = match op.message.flags.contains(OsdFlags::MAP_SNAP_CLONE) {
            true => clone_itself(object, op.snap),
            false => target_in(object, &self.view, op.snap),
        };
        match target {
            SnapTarget::Absent => self.reply_missing(now, key, fx),
            SnapTarget::Head => self.read_head(now, key, fx),
            SnapTarget::Clone(clone) => {
                let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
                let mut queries = vec![Query::Attr { name: INFO_ATTR }];
                let limits = &self.config.limits;
                op.operations.iter().for_each(|operation| operation.push_queries(limits, &mut queries));
                let id = clone_of(&self.pgs[op.pg].objects[op.object].id, clone);
                op.past = Some(Box::new(Past { id: id.clone(), info: None, planned: Vec::new() }));
                self.read_for(key, id, queries, fx);
            }
        }
    }

    /// No write has followed the snapshot: the head has its contents.
    fn read_head(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        let object = &self.pgs[op.pg].objects[op.object];
        let mut queries = Vec::new();
        if object.state.live().is_some() {
            let limits = &self.config.limits;
            op.operations.iter().for_each(|operation| operation.push_queries(limits, &mut queries));
        }
        if queries.is_empty() {
            return self.carry_out(now, key, Vec::new(), fx);
        }
        let id = object.id.clone();
        self.read_for(key, id, queries, fx);
    }

    fn read_for(&mut self, key: Key, object: ObjectId, queries: Vec<Query>, fx: &mut Fx) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        let pg = &mut self.pgs[op.pg];
        match op.access.writes {
            true => pg.objects[op.object].begin_exclusive(),
            false => pg.objects[op.object].begin_read(),
        }
        op.stage = Stage::Reading;
        let (pg_key, collection) = (op.pg, pg.collection);
        self.read_object(key, pg_key, ReadRequest { collection, object, queries }, fx);
    }

    /// The clone that a rollback goes back to, whose info it needs.
    pub(super) fn rollback_needs(&self, op: &Op, object: &ObjectContext) -> Option<SnapId> {
        match target_in(object, &self.view, op.rollback()?) {
            SnapTarget::Clone(clone) => Some(clone),
            SnapTarget::Absent | SnapTarget::Head => None,
        }
    }

    /// `planned`: the answers to the queries of the list.
    pub(super) fn read_for_rollback(&mut self, key: Key, clone: SnapId, planned: Vec<Answer>, fx: &mut Fx) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        let id = clone_of(&self.pgs[op.pg].objects[op.object].id, clone);
        op.past = Some(Box::new(Past { id: id.clone(), info: None, planned }));
        self.read_for(key, id, vec![Query::Attr { name: INFO_ATTR }], fx);
    }

    /// The clone's info has been read, and with a read of it what its operations take.
    pub(super) fn on_past_read(&mut self, now: Time, key: Key, mut answers: Vec<Answer>, fx: &mut Fx) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        op.stamps.fetched = now;
        let Some(past) = op.past.as_deref_mut() else { return };
        let info = if answers.is_empty() { None } else { object_info(&answers.remove(0)) };
        let Some(info) = info else { return self.fail(now, key, Errno::IO, fx) };
        past.info = Some(Box::new(info));
        let answers = if op.access.writes { std::mem::take(&mut past.planned) } else { answers };
        self.carry_out(now, key, answers, fx);
    }

    /// The snapshot context of a write, as `PrimaryLogPG::execute_ctx` chooses it. `None`: it knows no snapshots.
    pub(super) fn snap_context(&self, op: &Op) -> Option<WriteContext> {
        let message = &op.message;
        let pool = self.view.pools.get(&message.pg.pg.pool);
        if let Some(context) = self.context_of_pool(op) {
            return Some(WriteContext::Pool(context.clone()));
        }
        if message.snap_seq == SnapId(0) {
            return None;
        }
        let is_kept = |snap: &&SnapId| pool.is_none_or(|pool| !pool.snapshots.removed.contains(snap.0));
        let snaps = message.snaps.iter().filter(is_kept).copied().collect();
        Some(WriteContext::Client(SnapContext { seq: message.snap_seq, snaps }))
    }

    fn context_of_pool(&self, op: &Op) -> Option<&Arc<SnapContext>> {
        let pool = self.view.pools.get(&op.message.pg.pg.pool)?;
        let is_enforced = op.message.flags.contains(OsdFlags::ENFORCE_SNAPC);
        pool.snapshots.context.as_ref().filter(|_| !is_enforced)
    }

    /// The object has seen newer snapshots than a writer that wants to know of them.
    pub(super) fn refuses_context(&self, op: &Op, object: &ObjectContext) -> Option<Errno> {
        if !op.message.flags.contains(OsdFlags::ORDERSNAP) {
            return None;
        }
        let seq = self.context_of_pool(op).map_or(op.message.snap_seq, |context| context.seq);
        let is_old = object.snaps.as_ref().is_some_and(|set| seq < set.seq);
        is_old.then_some(Errno::OLDSNAPC)
    }
}

/// The snapshots that a write knows: all writes of a map share those of their pool.
pub(super) enum WriteContext {
    Pool(Arc<SnapContext>),
    Client(SnapContext),
}

impl std::ops::Deref for WriteContext {
    type Target = SnapContext;
    fn deref(&self) -> &SnapContext {
        match self {
            WriteContext::Pool(context) => context,
            WriteContext::Client(context) => context,
        }
    }
}

/// The object that has the contents of a snapshot.
fn target_in(object: &ObjectContext, view: &ClusterView, snap: SnapId) -> SnapTarget {
    if object.state.info().is_none() {
        return SnapTarget::Absent;
    }
    // The head itself, as a rollback may name it.
    if snap >= SnapId::HEAD {
        return SnapTarget::Head;
    }
    let none = Default::default();
    let pool = view.pools.get(&object.id.object.pool);
    target_of(object.snaps.as_deref(), snap, pool.map_or(&none, |pool| &pool.snapshots.removed))
}

/// As [`target_in`] where the number is that of the clone, whatever snapshots it stands for.
fn clone_itself(object: &ObjectContext, clone: SnapId) -> SnapTarget {
    match object.snaps.as_deref() {
        _ if object.state.info().is_none() => SnapTarget::Absent,
        Some(set) if clone > set.seq => SnapTarget::Head,
        Some(set) if set.clones.contains(&clone) => SnapTarget::Clone(clone),
        Some(_) => SnapTarget::Absent,
        None => SnapTarget::Head,
    }
}

/// The state that a list's rollback goes back to.
pub(super) fn rollback_of<'a>(
    op: &'a Op,
    object: &'a ObjectContext,
    view: &ClusterView,
) -> Option<(SnapId, RollbackTo<'a>)> {
    let snap = op.rollback()?;
    let to = match target_in(object, view, snap) {
        SnapTarget::Clone(_) => {
            let past = op.past.as_deref()?;
            RollbackTo::Clone(&past.id, past.info.as_deref()?)
        }
        SnapTarget::Head if object.state.live().is_some() => RollbackTo::Head,
        SnapTarget::Head | SnapTarget::Absent => RollbackTo::Absent,
    };
    Some((snap, to))
}

pub(super) fn clone_of(head: &ObjectId, clone: SnapId) -> ObjectId {
    ObjectId { object: HObject { snap: clone, ..head.object.clone() }, generation: head.generation }
}

/// Puts the changes that clone a head before those of the write. Returns the clone's name.
pub(super) fn make_clone(
    head: &ObjectId,
    info: &ObjectInfo,
    clone: SnapId,
    version: Eversion,
    changes: &mut Vec<Change>,
) -> HObject {
    let id = clone_of(head, clone);
    let mut info = ObjectInfo {
        object: id.object.clone(),
        version,
        prior_version: info.version,
        watchers: Default::default(),
        ..info.clone()
    };
    info.flags.clear(ObjectFlags::SNAP_SET);
    let mut value = codec::Writer::with_capacity(Features::ALL, 384);
    info.encode(&mut value);
    let made = [
        Change::Clone { from: head.clone(), to: id.clone() },
        Change::SetAttr { object: id.clone(), name: INFO_ATTR, value: value.into_bytes() },
        Change::RemoveAttr { object: id.clone(), name: SNAPS_ATTR },
    ];
    changes.splice(0..0, made);
    id.object
}
