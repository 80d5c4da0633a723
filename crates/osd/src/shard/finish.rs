//! Carrying a request out: its operations, the log entry, the transaction, and the reply when it is durable.

use super::op::{Committing, Op, Stage};
use super::snapshots::{make_clone, rollback_of};
use super::{Fx, Pending, Shard};
use crate::errno::Errno;
use crate::object::snapshots::{self, HeadBefore};
use crate::object::{ObjectContext, ObjectState};
use crate::ops::{
    CallEnvironment, Execution, INFO_ATTR, ListOutcome, ListStatus, NewState, Operation, SNAPS_ATTR,
    Snapshots, StatDelta,
};
use crate::pg::log::{EntryKind, LogEntry};
use crate::pg::{CommitWaiter, Pg, PgPhase};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use bytes::Bytes;
use codec::{Encode, Features, Rope};
use machine::Time;
use store::{Answer, Change};
use wire::messages::{MOSDOpReply, Message};
use wire::types::{
    EntityKind, EntityName, Eversion, ObjectFlags, ObjectInfo, OsdFlags, OsdOpResult, ReplyVersions, SnapId,
    UTime,
};

/// What a reply says when the change is durable; clients of today wait for nothing less.
const DURABLE: OsdFlags = OsdFlags(OsdFlags::ACK.0 | OsdFlags::ONDISK.0);

impl Shard {
    /// Everything that the request reads is there, and nobody else works on the object.
    /// `answers`: to the queries of its plan. A request whose class calls need more waits for that and is run again.
    pub(super) fn carry_out(&mut self, now: Time, key: Key, answers: Vec<Answer>, fx: &mut Fx) {
        let wall = self.wall(now);
        let next_notify_id = self.next_notify_id();
        let Some(op) = self.op(key) else { return };
        let (pg_key, object_key) = (op.pg, op.object);
        let Some(session) = self.sessions.get(&op.conn) else {
            // The client is gone: what has not begun need not happen.
            self.pending.remove(key);
            return self.pass_turn(pg_key, object_key);
        };
        let object = &self.pgs[pg_key].objects[object_key];
        if !op.access.writes && !is_there(op, object) {
            return self.reply_missing(now, key, fx);
        }
        if op.access.writes && object.snaps.is_some() {
            if let Some(errno) = self.refuses_context(op, object) {
                return self.fail(now, key, errno, fx);
            }
            let clone = if op.past.is_none() { self.rollback_needs(op, object) } else { None };
            if let Some(clone) = clone {
                return self.read_for_rollback(key, clone, answers, fx);
            }
        }
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        let copies = std::mem::take(&mut op.copies);
        let pg = &mut self.pgs[pg_key];
        let object = &pg.objects[object_key];
        let past = op.past.as_deref().filter(|_| !op.access.writes);
        let connected = |cookie: u64, client: EntityName| {
            object.watches.get(&(cookie, client)).is_some_and(|w| w.conn.is_some())
        };
        // The answers are slices and counts; only a list that calls classes may have to be run again with them.
        let calls_something = op.operations.iter().any(|o| matches!(o, Operation::Call(_)));
        let kept = if calls_something { answers.clone() } else { Vec::new() };
        let known = op.call_reads.as_ref().map_or(&[][..], |r| &r.known);
        let run = Execution::new(
            &self.config.limits,
            past.map_or(&object.id, |past| &past.id),
            (session.name, session.addr, session.peer.features),
            next_notify_id,
            &connected,
            CallEnvironment {
                now: wall,
                seed: if calls_something { op.seed() } else { 0 },
                pg_user_version: pg.progress.last_user_version,
                known,
            },
            Snapshots { set: object.snaps.as_deref(), rollback: rollback_of(op, object, &self.view) },
            past.map_or(object.state.live(), |past| past.info.as_deref()),
            answers,
            &copies,
        )
        .run(&op.message.ops, &op.operations);
        let outcome = match run {
            ListStatus::Done(outcome) => outcome,
            ListStatus::NeedsReads(queries) => {
                op.copies = copies;
                return self.read_for_calls(key, kept, queries, fx);
            }
            ListStatus::NeedsCopy(position) => {
                op.copies = copies;
                return self.begin_copy(now, key, position, fx);
            }
        };
        self.next_notify = self.next_notify.wrapping_add(outcome.side_effects.notifies.len() as u32);

        if !op.access.writes {
            self.finish_read(now, key, outcome, fx);
        } else {
            self.finish_write(now, key, outcome, wall, fx);
        }
    }

    /// A read of an object that does not exist: nothing is executed, and the reply carries no version
    /// (`PrimaryLogPG::do_op`, `OSDService::reply_op_error`).
    pub(super) fn reply_missing(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let op = self.take_op(key).expect("the caller saw it");
        self.pace.on_answered(now, &op.stamps);
        self.signals.on_reply(now, &op, &self.sessions, Errno::NOENT.result(), (0, 0));
        let mut reply = op.message.reply(Errno::NOENT.result(), self.view.epoch, DURABLE);
        reply.ops = op.message.ops.iter().map(|o| OsdOpResult::of(o, 0, Rope::new())).collect();
        let Op { conn, tid, pg, object, held, .. } = *op;
        self.reply_by_lease(now, pg, conn, Message::with_tid(tid, reply), held, fx);
        self.pass_turn(pg, object);
    }

    fn finish_read(&mut self, now: Time, key: Key, outcome: ListOutcome, fx: &mut Fx) {
        let epoch = self.view.epoch;
        let op = self.take_op(key).expect("the caller saw it");
        let ListOutcome { results, result, stats, side_effects, data_offset, .. } = outcome;
        let pg = &mut self.pgs[op.pg];
        // The primary's counts are the PG's.
        if pg.phase != PgPhase::Replica {
            count(pg, stats);
        }
        self.pace.on_answered(now, &op.stamps);
        self.signals.on_reply(now, &op, &self.sessions, result, (0, out_bytes(&results)));
        let mut reply = op.message.reply(result, epoch, DURABLE);
        reply.data_offset = data_offset.unwrap_or(0) as u16;
        reply.ops = results;
        // A method that returns ENOENT for an object that exists carries the floor of the next version.
        let info = match &op.past {
            Some(past) => past.info.as_deref(),
            None => pg.objects[op.object].state.info(),
        };
        reply.versions = match info {
            None => ReplyVersions::new(Eversion::ZERO, 0),
            Some(_) if result == Errno::NOENT.result() => {
                ReplyVersions::failed(pg.progress.last_update, pg.progress.last_user_version)
            }
            Some(info) => ReplyVersions::new(Eversion::ZERO, info.user_version),
        };
        if result >= 0 && !side_effects.is_empty() {
            self.apply_side_effects(now, &op, side_effects, fx);
        }
        let checked_at = if planted::has(PlantedBug::LeaseBeforeRead) { op.stamps.begun } else { now };
        let Op { conn, tid, pg, object, held, .. } = *op;
        self.reply_by_lease(checked_at, pg, conn, Message::with_tid(tid, reply), held, fx);
        self.pass_turn(pg, object);
    }

    fn finish_write(&mut self, now: Time, key: Key, mut outcome: ListOutcome, wall: UTime, fx: &mut Fx) {
        let op = self.op(key).expect("the caller saw it");
        let mut changed = outcome.result >= 0 && (!outcome.changes.is_empty() || outcome.touched);
        let mut refused = None;
        if changed {
            let metadata: u64 = outcome.changes.iter().map(Change::metadata).sum();
            let space = self.space_for(op, &outcome);
            if metadata > self.config.limits.max_metadata_size {
                refused = Some(Errno::MSGSIZE);
            } else if let Space::No(errno) = space {
                refused = Some(errno);
            } else if matches!(space, Space::Wait | Space::Withhold) {
                let op = self.take_op(key).expect("the caller saw it");
                if matches!(space, Space::Withhold) {
                    self.withhold(op.conn, &op.message.object);
                }
                return self.pass_turn(op.pg, op.object);
            }
        }
        if changed && op.access.returns && refused.is_none() {
            if let Some(long) = self.overlong(&outcome) {
                outcome.results[long].result = Errno::OVERFLOW.result();
                outcome.results[long].output = Rope::new();
                refused = Some(Errno::OVERFLOW);
            }
        } else if changed {
            // Clients that do not ask for more get no data from a write, and no result but success.
            outcome.result = 0;
            outcome.results.iter_mut().for_each(|r| r.output = Rope::new());
        }
        if let Some(errno) = refused {
            outcome.result = errno.result();
            outcome.stats = StatDelta::default();
            changed = false;
        }
        if changed {
            self.commit_change(key, outcome, wall, fx);
        } else {
            self.commit_result(key, outcome, fx);
        }
        self.await_commit(now, key);
    }

    /// The request waits until its log entry is durable. The next one on its object may begin.
    fn await_commit(&mut self, now: Time, key: Key) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else {
            unreachable!("it waits for its commit")
        };
        op.stamps.submitted = now;
        let (pg_key, object_key) = (op.pg, op.object);
        self.pgs[pg_key].objects[object_key].begin_write();
        self.pass_turn(pg_key, object_key);
    }

    /// Whether a full pool, or a full store, takes this write. Clients hold writes back while they see a full pool, and
    /// send them when it is no longer; one that comes nevertheless has not seen the map yet, unless it says otherwise.
    fn space_for(&self, op: &Op, outcome: &ListOutcome) -> Space {
        // Also what overwrites takes room until what it replaces is let go.
        if self.store_full && outcome.changes.iter().any(|change| change.growth() > 0) {
            let insists = op.message.flags.intersects(OsdFlags::FULL_TRY | OsdFlags::FULL_FORCE);
            return if insists { Space::No(Errno::NOSPC) } else { Space::Withhold };
        }
        let grows = outcome.stats.bytes > 0 || outcome.stats.objects > 0;
        let pool = self.view.pools.get(&op.message.pg.pg.pool).filter(|_| grows);
        let Some(pool) = pool.filter(|p| p.full) else { return Space::Yes };
        let flags = op.message.flags;
        if flags.contains(OsdFlags::FULL_FORCE) || op.reqid.name.kind == EntityKind::MDS {
            return Space::Yes;
        }
        match (flags.contains(OsdFlags::FULL_TRY), pool.full_quota) {
            (true, true) => Space::No(Errno::DQUOT),
            (true, false) => Space::No(Errno::NOSPC),
            (false, _) => Space::Wait,
        }
    }

    /// The first operation whose output is longer than a write's reply may carry.
    fn overlong(&self, outcome: &ListOutcome) -> Option<usize> {
        outcome.results.iter().position(|r| r.output.len() > self.config.limits.max_write_op_reply_len)
    }

    /// The object changes: log entry, new info and the changes themselves in one transaction.
    fn commit_change(&mut self, key: Key, outcome: ListOutcome, wall: UTime, fx: &mut Fx) {
        let (epoch, output_max) = (self.view.epoch, self.config.limits.max_write_op_reply_len);
        let (osd, context) = (self.config.osd, self.op(key).and_then(|op| self.snap_context(op)));
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        let pg = &mut self.pgs[op.pg];
        let mut version = pg.next_version(epoch);
        let object = &mut pg.objects[op.object];
        let ListOutcome {
            result,
            results,
            mut changes,
            new_state,
            user_modified,
            copied_version,
            mut stats,
            side_effects,
            ..
        } = outcome;

        if !pg.damaged.is_empty() {
            let (id, size) = (object.id.object.clone(), object.state.info().map_or(0, |i| i.size));
            super::damage::changed(pg, &id, size, &mut changes);
        }
        let object = &mut pg.objects[op.object];
        let live = object.state.live();
        let snaps = snapshots::after_write(
            HeadBefore { size: live.map(|info| info.size), set: object.snaps.as_deref() },
            context.as_deref(),
            &changes,
            &object.id,
        );
        let mut earlier = Vec::new();
        let mut is_whiteout = false;
        if let Some(after) = &snaps {
            // The clone's entry comes first.
            if let (Some(clone), Some(info)) = (after.new_clone, live) {
                let made = make_clone(&object.id, info, clone, version, &mut changes);
                stats.objects += 1;
                stats.clones += 1;
                stats.omap_objects += i64::from(info.flags.contains(ObjectFlags::OMAP));
                let (kind, zero) = (EntryKind::Clone, Eversion::ZERO);
                let snaps = after.set.clone_snaps.get(&clone).map(|snaps| Box::from(&snaps[..]));
                earlier.push(LogEntry {
                    snaps: snaps.unwrap_or_default(),
                    ..LogEntry::of_osd(osd, kind, made, version, zero, info.user_version)
                });
                version.version += 1;
            }
            stats.bytes += after.unshared as i64;
            is_whiteout = new_state == NewState::Absent && !after.set.clones.is_empty();
            // A whiteout counts as an object.
            let (was, is) = (live.is_none() && object.state.info().is_some(), is_whiteout);
            stats.whiteouts += i64::from(is) - i64::from(was);
            stats.objects += i64::from(is) - i64::from(was);
        }
        let before = object.state.info();
        let prior_version = before.map_or(Eversion::ZERO, |i| i.version);
        let mut user_version = copied_version.unwrap_or(before.map_or(0, |i| i.user_version));
        if user_modified {
            // Never below the log's own counter, which is all that the oldest clients see.
            user_version = (pg.progress.last_user_version.max(user_version) + 1).max(version.version);
        }
        let after = match new_state {
            NewState::Absent if is_whiteout => {
                changes.push(Change::Touch { object: object.id.clone() });
                let mut info = Box::new(ObjectInfo::new(object.id.object.clone()));
                info.flags.set(ObjectFlags::WHITEOUT);
                Some(info)
            }
            NewState::Absent => None,
            NewState::Present(info) => Some(info),
            NewState::Unchanged => match std::mem::replace(&mut object.state, ObjectState::Unknown) {
                ObjectState::Present(info) => Some(info),
                ObjectState::Absent | ObjectState::Unknown => {
                    unreachable!("unchanged info of an object that exists")
                }
            },
        };
        // A copy keeps the time of its source.
        let mtime = if copied_version.is_some() { UTime::ZERO } else { op.message.mtime };
        let kind = if after.is_some() { EntryKind::Modify } else { EntryKind::Delete };
        object.state = match after {
            Some(mut info) => {
                info.version = version;
                info.prior_version = prior_version;
                info.last_reqid = op.reqid;
                info.user_version = user_version;
                if mtime != UTime::ZERO {
                    info.mtime = mtime;
                    info.local_mtime = wall;
                }
                if let Some(after) = &snaps {
                    info.flags.set(ObjectFlags::SNAP_SET);
                    // Room for some clones: it grows once for many.
                    let mut set = codec::Writer::with_capacity(Features::ALL, 384);
                    after.set.encode(&mut set);
                    let (object, value) = (object.id.clone(), set.into_bytes());
                    changes.push(Change::SetAttr { object, name: SNAPS_ATTR, value });
                }
                let mut w = codec::Writer::with_capacity(Features::ALL, 384);
                info.encode(&mut w);
                let object = object.id.clone();
                changes.push(Change::SetAttr { object, name: INFO_ATTR, value: w.into_bytes() });
                ObjectState::Present(info)
            }
            None => ObjectState::Absent,
        };
        object.snaps = snaps.filter(|_| object.state != ObjectState::Absent).map(|after| Box::new(after.set));
        let entry = LogEntry {
            kind,
            object: object.id.object.clone(),
            version,
            prior_version,
            user_version,
            reqid: op.reqid,
            mtime,
            result: if op.access.returns { result } else { 0 },
            returns: if op.access.returns { returns(&results, output_max) } else { Vec::new() },
            snaps: Box::default(),
        };
        if user_modified || copied_version.is_some() {
            pg.progress.last_user_version = pg.progress.last_user_version.max(user_version);
        }
        count(pg, stats);

        let data = |change: &Change| match change {
            Change::Write { data, .. } => data.len() as u64,
            _ => 0,
        };
        let written_bytes = changes.iter().map(data).sum();
        let mut reply = op.message.reply(result, epoch, DURABLE);
        reply.ops = results;
        reply.versions = ReplyVersions::new(version, user_version);
        op.stage = Stage::Committing(Box::new(Committing { reply, side_effects, written_bytes }));
        self.submit_change(key, earlier, entry, changes, fx);
    }

    /// Nothing changes, but how the request came out must be remembered: sent again, it comes out the same.
    fn commit_result(&mut self, key: Key, outcome: ListOutcome, fx: &mut Fx) {
        let (epoch, output_max) = (self.view.epoch, self.config.limits.max_write_op_reply_len);
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        let pg = &mut self.pgs[op.pg];
        let version = pg.next_version(epoch);
        let ListOutcome { result, results, stats, side_effects, .. } = outcome;
        count(pg, stats);
        let object = &pg.objects[op.object];
        let user_version = object.state.info().map_or(0, |i| i.user_version);
        let entry = LogEntry {
            kind: EntryKind::Error,
            object: object.id.object.clone(),
            version,
            prior_version: Eversion::ZERO,
            user_version: 0,
            reqid: op.reqid,
            mtime: UTime::ZERO,
            result,
            returns: if op.access.returns || result < 0 { returns(&results, output_max) } else { Vec::new() },
            snaps: Box::default(),
        };
        let mut reply = op.message.reply(result, epoch, DURABLE);
        reply.ops = results;
        reply.versions = if result == Errno::NOENT.result() {
            ReplyVersions::failed(pg.progress.last_update, pg.progress.last_user_version)
        } else {
            ReplyVersions::new(version, user_version)
        };
        let side_effects = if result >= 0 { side_effects } else { Default::default() };
        op.stage = Stage::Committing(Box::new(Committing { reply, side_effects, written_bytes: 0 }));
        self.submit_change(key, Vec::new(), entry, Vec::new(), fx);
    }

    fn submit_change(
        &mut self,
        key: Key,
        earlier: Vec<LogEntry>,
        entry: LogEntry,
        changes: Vec<Change>,
        fx: &mut Fx,
    ) {
        let pg_key = self.op(key).expect("the caller made it").pg;
        self.submit_entries(pg_key, Some(key), earlier, entry, changes, fx);
        if planted::has(PlantedBug::ReplyBeforeCommit)
            && let Some(op) = self.op(key)
            && let Stage::Committing(committing) = &op.stage
        {
            self.send(op.conn, Message::with_tid(op.tid, committing.reply.clone()), fx);
        }
    }

    /// Fails a request that has its turn. The failure of a write is logged like every other outcome: its reply comes
    /// behind those of earlier writes, and if it is lost, the request that is sent again fails again, instead of
    /// overtaking what its client sent later.
    pub(super) fn fail(&mut self, now: Time, key: Key, errno: Errno, fx: &mut Fx) {
        let op = self.op(key).expect("the caller saw it");
        let results = op.message.ops.iter().map(|o| OsdOpResult::of(o, 0, Rope::new())).collect();
        let outcome = ListOutcome {
            result: errno.result(),
            results,
            changes: Vec::new(),
            new_state: NewState::Unchanged,
            user_modified: false,
            copied_version: None,
            touched: false,
            stats: StatDelta::default(),
            side_effects: Default::default(),
            data_offset: None,
        };
        if op.access.writes {
            self.commit_result(key, outcome, fx);
            self.await_commit(now, key);
        } else {
            self.finish_read(now, key, outcome, fx);
        }
    }

    pub(super) fn on_committed(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(pending) = self.pending.remove(key) else { return };
        let is_saved = |copy: Key| {
            let pg = self.pgs.get_mut(copy)?;
            pg.unsaved -= 1;
            (pg.unsaved == 0).then_some(copy)
        };
        let (saved, all_saved) = match &pending {
            Pending::Split(copies) => (None, copies.iter().copied().filter_map(is_saved).collect()),
            _ => (pending.copies().next().and_then(is_saved), Vec::new()),
        };
        match pending {
            Pending::Entry { pg, interval, version, submitted } => {
                self.signals.totals.store_commits.record(now.since(submitted).as_nanos() as u64);
                self.on_entry_durable(now, pg, interval, version, fx);
            }
            Pending::Log { pg, interval, version } => {
                self.on_log_durable(now, pg, interval, version, fx);
            }
            Pending::PushWrite(step) => self.on_push_durable(now, *step, fx),
            Pending::Progress { pg, interval, through } => {
                self.on_progress_durable(pg, interval, through, fx);
            }
            Pending::BadCopies { pg, interval, id } => self.on_bad_copies_durable(pg, interval, id, fx),
            Pending::RemovePg(pg, removal, charge) => {
                charge.into_iter().for_each(|charge| self.end_paced(charge));
                self.go_on_removing(pg, removal, fx);
            }
            Pending::RemovedPg(pg) => self.on_removed(pg, fx),
            Pending::CreatePg(pg) => self.on_created(pg, fx),
            Pending::Part { pg, from, lane } => self.on_part_committed(pg, from, lane, fx),
            Pending::Arrival(pg) => self.on_arrived(now, pg, fx),
            Pending::Leftover { pg, removal } => self.on_leftover_removed(pg, removal, fx),
            Pending::Merge { pg, epoch } => self.on_merge_durable(pg, epoch, fx),
            Pending::Records(_) | Pending::Split(_) | Pending::Nobody => {}
            #[cfg(feature = "erasure-trial")]
            Pending::ShardRead(_) => unreachable!("reads do not commit"),
            Pending::Op(_)
            | Pending::List(_)
            | Pending::LoadPg(_)
            | Pending::LogRead(_)
            | Pending::Departure { .. }
            | Pending::PushRead(_)
            | Pending::InfoRead(_)
            | Pending::Trim(_)
            | Pending::Survey(_)
            | Pending::Scan(_) => unreachable!("reads do not commit"),
        }
        saved.into_iter().chain(all_saved).for_each(|copy| self.on_saved(now, copy, fx));
    }

    /// The request's change is durable on every member.
    pub(super) fn on_change_committed(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(mut op) = self.take_op(key) else { return };
        let Stage::Committing(committing) = std::mem::replace(&mut op.stage, Stage::Turn) else {
            unreachable!("only what was submitted commits");
        };
        let Committing { reply, side_effects, written_bytes } = *committing;
        op.stamps.durable = now;
        let bytes = (written_bytes, out_bytes(&reply.ops));
        self.pace.on_answered(now, &op.stamps);
        self.signals.on_reply(now, &op, &self.sessions, reply.result, bytes);
        self.pgs[op.pg].objects[op.object].end_write();
        self.send_committed(&mut op, reply, fx);
        if !side_effects.is_empty() {
            self.apply_side_effects(now, &op, side_effects, fx);
        }
        self.pass_turn(op.pg, op.object);
    }

    fn send_committed(&mut self, op: &mut Op, reply: MOSDOpReply, fx: &mut Fx) {
        let message = Message::with_tid(op.tid, reply);
        #[cfg(feature = "planted-bugs")]
        if planted::has(PlantedBug::ReplyOutOfOrder) {
            match self.held_reply.take() {
                None if op.tid.is_multiple_of(5) => self.held_reply = Some((op.conn, message)),
                held => {
                    self.send(op.conn, message, fx);
                    held.into_iter().for_each(|(conn, message)| self.send(conn, message, fx));
                }
            }
            return;
        }
        if !planted::has(PlantedBug::ReplyBeforeCommit) {
            let held = std::mem::take(&mut op.held);
            self.reply_in_order(op.pg, op.conn, message, held, fx);
        }
    }

    /// Answers repeated requests and listings that waited for version `to`, if it is included, or for an earlier one.
    pub(super) fn answer_commit_waiters(
        &mut self,
        now: Time,
        pg_key: Key,
        to: Eversion,
        included: bool,
        fx: &mut Fx,
    ) {
        let is_due = |w: &mut CommitWaiter| w.version < to || included && w.version == to;
        while let Some(w) = self.pgs[pg_key].commit_waiters.pop_front_if(is_due) {
            let CommitWaiter { conn, tid, reply, held, .. } = w;
            self.reply_by_lease(now, pg_key, conn, Message::with_tid(tid, reply), held, fx);
        }
    }
}

/// The object exists for a read. A deleted head has a list of snapshots while it has clones.
fn is_there(op: &Op, object: &ObjectContext) -> bool {
    match op.snap {
        SnapId::DIR => object.state.info().is_some(),
        _ => op.past.is_some() || object.state.live().is_some(),
    }
}

/// What a full pool says to a write that takes space.
enum Space {
    Yes,
    No(Errno),
    /// Dropped: the map tells the client to send it again.
    Wait,
    /// Dropped: see [`super::room`].
    Withhold,
}

fn out_bytes(results: &[OsdOpResult]) -> u64 {
    results.iter().map(|result| result.output.len() as u64).sum()
}

/// Results for the log. Long outputs, which only failed requests have, are left out, because thousands of entries stay in
/// memory: a repeated reply lacks them.
fn returns(results: &[OsdOpResult], output_max: usize) -> Vec<(i32, Bytes)> {
    let kept = |output: &Rope| if output.len() <= output_max { output.to_bytes() } else { Bytes::new() };
    results.iter().map(|r| (r.result, kept(&r.output))).collect()
}

fn count(pg: &mut Pg, delta: StatDelta) {
    let s = &mut pg.progress.stats;
    s.objects += delta.objects;
    s.bytes += delta.bytes;
    s.reads += delta.reads;
    s.read_kib += delta.read_kib;
    s.writes += delta.writes;
    s.write_kib += delta.write_kib;
    s.omap_objects += delta.omap_objects;
    let snaps = &mut pg.progress.snap_counts;
    snaps.clones += delta.clones;
    snaps.whiteouts += delta.whiteouts;
}
