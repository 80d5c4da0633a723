//! A request's turn on its object: reading what it needs before it can be carried out.

use super::op::{Op, Stage};
use super::{Fx, Pending, Shard};
use crate::errno::Errno;
use crate::object::{ObjectState, Watch};
use crate::ops::{INFO_ATTR, SNAPS_ATTR};
use crate::pg::PgPhase;
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use machine::Time;
use std::time::Duration;
use store::{Answer, Query, ReadError, ReadRequest};
use wire::types::{Eversion, ObjectFlags, ObjectInfo, SnapId, SnapSet};

impl Shard {
    /// It is `key`'s turn. Ends either with the request carried out or with a read under way.
    pub(super) fn begin(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(Pending::Op(op)) = self.pending.get(key) else { return };
        // The pool became full after its admission, and a request ahead of it may have been dropped.
        let is_sent_again = op.access.ordered && self.was_sent_before_full(op.conn, &op.message);
        if is_sent_again || self.is_withheld(op.conn, &op.message.object) {
            let op = self.take_op(key).expect("just seen");
            return self.pass_turn(op.pg, op.object);
        }
        if self.is_copy_read(key) && !self.begin_copy_read(now, key, fx) {
            return;
        }
        let Some(Pending::Op(op)) = self.pending.get(key) else { return };
        let pg = &self.pgs[op.pg];
        let is_old = |version: Eversion| version.epoch < pg.history.same_primary_since;
        let is_lost = |version| planted::has(PlantedBug::DedupLostAcrossPrimaries) && is_old(version);
        let is_known = || pg.log.find(&op.reqid).is_some_and(|seen| !is_lost(seen.version));
        if op.access.writes && !planted::has(PlantedBug::LostReqid) && is_known() {
            let op = self.take_op(key).expect("just seen");
            return self.answer_duplicate(now, *op, fx);
        }
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        op.stamps.begun = now;
        let pg = &mut self.pgs[op.pg];
        let object = &mut pg.objects[op.object];
        let mut queries = Vec::new();
        let unknown = object.state == ObjectState::Unknown;
        let is_of_snapshot = op.is_of_snapshot();
        if is_of_snapshot && !unknown {
            return self.begin_snapshot_read(now, key, fx);
        }
        if unknown {
            queries.push(Query::Attr { name: INFO_ATTR });
            op.reads_snaps = is_of_snapshot
                || op.snap == SnapId::DIR
                || op.message.snap_seq > SnapId(0)
                || object.expects_snaps
                || self.view.pools.get(&pg.id.pg.pool).is_some_and(|pool| pool.snapshots.is_used);
            if op.reads_snaps {
                queries.push(Query::Attr { name: SNAPS_ATTR });
            }
        }
        if object.state != ObjectState::Absent && !is_of_snapshot {
            let limits = &self.config.limits;
            op.operations.iter().for_each(|operation| operation.push_queries(limits, &mut queries));
        }
        if queries.is_empty() {
            return self.carry_out(now, key, Vec::new(), fx);
        }
        if unknown || op.access.writes {
            object.begin_exclusive();
        } else {
            object.begin_read();
        }
        op.stage = if unknown { Stage::Loading } else { Stage::Reading };
        let pg_key = op.pg;
        let request = ReadRequest { collection: pg.collection, object: object.id.clone(), queries };
        self.read_object(key, pg_key, request, fx);
    }

    /// A class call wants to see more of the object. Its request has read `planned` already; it has had its turn in
    /// this very step, so nobody else can have begun.
    pub(super) fn read_for_calls(
        &mut self,
        key: Key,
        planned: Vec<Answer>,
        queries: Vec<Query>,
        fx: &mut Fx,
    ) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        let pg = &mut self.pgs[op.pg];
        let object = &mut pg.objects[op.object];
        match op.access.writes {
            true => object.begin_exclusive(),
            false => object.begin_read(),
        }
        op.stage = Stage::Reading;
        let reads = op.call_reads.get_or_insert_default();
        reads.planned = planned;
        reads.asked = queries.clone();
        let pg_key = op.pg;
        // A read of a clone goes on with it. A rollback changes the head.
        let past = op.past.as_ref().filter(|_| !op.access.writes);
        let id = past.map_or(&object.id, |past| &past.id).clone();
        let request = ReadRequest { collection: pg.collection, object: id, queries };
        self.read_object(key, pg_key, request, fx);
    }

    pub(super) fn on_read(
        &mut self,
        now: Time,
        key: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        match self.pending.get(key) {
            Some(Pending::Op(_)) => self.on_object_read(now, key, answers, fx),
            Some(Pending::List(_)) => self.on_list_read(now, key, answers, fx),
            Some(Pending::LoadPg(_)) => self.on_pg_read(now, key, answers, fx),
            Some(Pending::LogRead(_)) => self.on_log_page(now, key, answers, fx),
            Some(Pending::RemovePg(..)) => self.on_removal_listed(key, answers, fx),
            Some(Pending::Departure { .. }) => self.on_departure_read(key, answers, fx),
            Some(Pending::Leftover { .. }) => self.on_leftover_listed(key, answers, fx),
            Some(Pending::PushRead(_)) => self.on_push_read(key, answers, fx),
            Some(Pending::Scan(_)) => self.on_scan_read(key, answers, fx),
            Some(Pending::Survey(_)) => self.on_survey_read(key, answers, fx),
            Some(Pending::InfoRead(_)) => self.on_info_read(key, answers, fx),
            Some(Pending::Trim(_)) => self.on_trim_read(now, key, answers, fx),
            #[cfg(feature = "erasure-trial")]
            Some(Pending::ShardRead(_)) => self.on_shard_read(key, answers, fx),
            // Its PG stopped serving meanwhile.
            Some(
                Pending::RemovedPg(_)
                | Pending::CreatePg(_)
                | Pending::Entry { .. }
                | Pending::Log { .. }
                | Pending::PushWrite(_)
                | Pending::Progress { .. }
                | Pending::Records(_)
                | Pending::BadCopies { .. }
                | Pending::Split(_)
                | Pending::Merge { .. }
                | Pending::Nobody
                | Pending::Part { .. }
                | Pending::Arrival(_),
            )
            | None => {}
        }
    }

    pub(super) fn on_object_read(
        &mut self,
        now: Time,
        key: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(answers) = self.complete_read(key, answers) else { return };
        let op = self.op(key).expect("the caller saw it");
        let (pg_key, object_key) = (op.pg, op.object);
        let (loading, exclusive) = match op.stage {
            Stage::Loading => (true, true),
            Stage::Reading => (false, op.access.writes),
            Stage::Turn | Stage::Copying | Stage::Committing(_) => return,
        };
        let object = &mut self.pgs[pg_key].objects[object_key];
        if exclusive {
            object.end_exclusive();
        } else {
            object.end_read();
        }
        let is_copy = self.is_copy_read(key);
        let past = self.op(key).and_then(Op::reads_past);
        let (awaits_past, past) =
            (past.is_some_and(|past| past.info.is_none()), past.map(|past| past.id.object.clone()));
        if let Err(ReadError::Io | ReadError::Corrupt) = answers
            && is_copy
        {
            let object = self.pgs[pg_key].objects[object_key].id.object.clone();
            self.found_damaged(pg_key, &object, fx);
        }
        if is_copy {
            let is_read = answers.is_ok() || loading && answers.as_ref().err() == Some(&ReadError::NoObject);
            if !self.is_copy_read_good(now, key, is_read, fx) {
                return;
            }
        }
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(ReadError::NoObject) if loading => Vec::new(),
            // Its info says that it is there.
            Err(ReadError::NoObject) => return self.fail(now, key, Errno::IO, fx),
            Err(error @ (ReadError::NoCollection | ReadError::Io | ReadError::Corrupt)) => {
                if error != ReadError::NoCollection {
                    let head = || self.pgs[pg_key].objects[object_key].id.object.clone();
                    let object = past.clone().unwrap_or_else(head);
                    self.found_damaged(pg_key, &object, fx);
                    if self.begin_repair(pg_key, &object, fx) {
                        return self.begin_again_later(key);
                    }
                }
                return self.fail(now, key, Errno::IO, fx);
            }
        };
        if awaits_past {
            return self.on_past_read(now, key, answers, fx);
        }
        let size = self.pgs[pg_key].objects[object_key].state.info().map(|info| info.size);
        if let Some(size) = size.filter(|_| past.is_none()) {
            self.read_whole(pg_key, object_key, size, &answers, fx);
        }
        if loading {
            let reads_snaps = self.op(key).is_some_and(|op| op.reads_snaps);
            match known(&mut answers, reads_snaps) {
                Ok(Some((info, snaps))) => {
                    if info.flags.contains(ObjectFlags::SNAP_SET) && !reads_snaps {
                        // Its snapshot set is needed, too: the request begins again and reads both.
                        self.pgs[pg_key].objects[object_key].expects_snaps = true;
                        return self.begin_again_now(now, key, fx);
                    }
                    if info.flags.contains(ObjectFlags::SNAP_SET) != snaps.is_some() {
                        return self.fail(now, key, Errno::IO, fx);
                    }
                    self.learn(now, pg_key, object_key, info);
                    self.pgs[pg_key].objects[object_key].snaps = snaps;
                }
                Ok(None) => self.pgs[pg_key].objects[object_key].state = ObjectState::Absent,
                Err(_) => return self.fail(now, key, Errno::IO, fx),
            }
        }
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        op.stamps.fetched = now;
        if loading && op.is_of_snapshot() {
            return self.begin_snapshot_read(now, key, fx);
        }
        if let Some(reads) = op.call_reads.as_deref_mut() {
            reads.known.extend(std::mem::take(&mut reads.asked).into_iter().zip(answers));
            answers = std::mem::take(&mut reads.planned);
        }
        self.carry_out(now, key, answers, fx);
    }

    /// The request has read what it needs in vain: it begins anew in its place, once the object is repaired.
    fn begin_again_later(&mut self, key: Key) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        (op.stage, op.call_reads, op.past) = (Stage::Turn, None, None);
        self.pgs[op.pg].objects[op.object].put_back(key, op.access.turn(), op.order);
    }

    /// The request still has its turn: nobody else has begun.
    fn begin_again_now(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        op.stage = Stage::Turn;
        self.begin(now, key, fx);
    }

    /// The object's info has been read. Its watchers are known from it; their clients have one time-out to return.
    pub(super) fn learn(&mut self, now: Time, pg_key: Key, object_key: Key, info: ObjectInfo) {
        let pg = &mut self.pgs[pg_key];
        let object = &mut pg.objects[object_key];
        let mut absent = Vec::new();
        // Watchers are the primary's affair.
        let watchers = (pg.phase != PgPhase::Replica).then_some(&info.watchers);
        for (&(cookie, client), watch) in watchers.into_iter().flatten() {
            let watch = Watch::absent(Duration::from_secs(watch.timeout_s as u64), now);
            absent.push((cookie, client, watch.expires));
            object.watches.insert((cookie, client), watch);
        }
        object.state = ObjectState::Present(Box::new(info));
        for (cookie, client, expires) in absent {
            self.set_watch_timer(pg_key, object_key, cookie, client, expires);
        }
    }

    /// Something on the object ended: others may begin, once this step has done what it is at. Not at once,
    /// because each that begins may end at once, and a long queue would be a deep recursion.
    pub(super) fn pass_turn(&mut self, pg_key: Key, object_key: Key) {
        self.turns.push_back((pg_key, object_key));
    }

    pub(super) fn take_turns(&mut self, now: Time, fx: &mut Fx) {
        while let Some((pg_key, object_key)) = self.turns.pop_front() {
            while let Some(pg) = self.pgs.get_mut(pg_key)
                && let Some(object) = pg.objects.get_mut(object_key)
                && let Some(key) = object.next_request()
            {
                self.begin(now, key, fx);
            }
            self.end_use(pg_key, object_key);
        }
    }

    /// Recovery leaves an object alone while a request changes it.
    fn end_use(&mut self, pg_key: Key, object_key: Key) {
        let Some(pg) = self.pgs.get(pg_key).filter(|pg| pg.awaits_use()) else { return };
        let Some(object) = pg.objects.get(object_key).filter(|object| !object.is_exclusive()) else { return };
        let object = object.id.object.clone();
        self.recover_after_use(pg_key, &object);
    }
}

/// The object's info from the first of the answers, and its snapshot set from the next one if it was asked for. Nothing there at
/// all: the object does not exist.
pub(super) fn known(
    answers: &mut Vec<Answer>,
    reads_snaps: bool,
) -> Result<Option<(ObjectInfo, Option<Box<SnapSet>>)>, codec::DecodeError> {
    if answers.is_empty() {
        return Ok(None);
    }
    let info = match answers.remove(0) {
        Answer::Attr(Some(bytes)) => codec::decode_exact(&bytes)?,
        Answer::Attr(None) => {
            return Err(codec::DecodeError::Invalid { what: "an object without info", value: 0, offset: 0 });
        }
        _ => unreachable!("the info was asked for first"),
    };
    let snaps = match reads_snaps.then(|| answers.remove(0)) {
        Some(Answer::Attr(Some(bytes))) => Some(Box::new(codec::decode_exact(&bytes)?)),
        _ => None,
    };
    Ok(Some((info, snaps)))
}
