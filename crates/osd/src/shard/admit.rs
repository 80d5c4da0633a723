//! Whether a request may happen here and now. The order of the questions is Ceph's, because clients see it.

use super::op::{Access, Op, Parked, Stage, called};
use super::session::Session;
use super::{Effect, Fx, Pending, Shard, ToControl};
use crate::caps;
use crate::errno::Errno;
use crate::object::ObjectBlock;
use crate::object::snapshots::SnapContext;
use crate::ops::Operation;
use crate::pg::{CommitWaiter, PgPhase};
use crate::planted::{self, PlantedBug};
use crate::signals::OpStamps;
use crate::slab::Key;
use machine::{ConnId, Time};
use smallvec::SmallVec;
use wire::messages::{MOSDOp, Message};
use wire::types::{Epoch, OpCode, OsdFlags, OsdOpResult, ReplyVersions, SnapId};

/// What becomes of a request.
#[allow(
    clippy::large_enum_variant,
    reason = "made once a request and taken apart at once: a box would cost more"
)]
enum Verdict {
    /// Go on.
    Admit(Access, SmallVec<[Operation; 2]>),
    /// Say no. The client gets the error at once; nothing is logged.
    Refuse(Errno),
    /// Say nothing: the client knows, or will know from a map, that it must send again.
    Drop,
    /// Say nothing now, and have it sent again when there is room.
    NoRoom,
}

impl Shard {
    pub(super) fn on_op(&mut self, now: Time, parked: Parked, fx: &mut Fx) {
        let Some(session) = self.sessions.get_mut(&parked.conn) else { return };
        let epoch = parked.op.epoch;
        if epoch > self.view.epoch || !session.waiting_for_map.is_empty() {
            if is_sent_again(session, &parked.op) {
                return;
            }
            session.waiting_for_map.push_back(parked);
            self.signals.totals.delayed_for_map += 1;
            fx.push(Effect::Control(ToControl::WantMap { epoch }));
            return;
        }
        if epoch < self.view.epoch && session.epoch < self.view.epoch {
            let since = session.epoch.max(epoch);
            session.epoch = self.view.epoch;
            fx.push(Effect::Control(ToControl::ShareMap { conn: parked.conn, since }));
        }
        self.dispatch(now, parked, fx);
    }

    /// Sends a request that our map covers to its PG.
    pub(super) fn dispatch(&mut self, now: Time, parked: Parked, fx: &mut Fx) {
        let Parked { conn, ref op, .. } = parked;
        let Some(&pg_key) = self.pg_by_id.get(&op.pg) else {
            // Another core's, or not here at all: then the client will see in a map where it is.
            if self.view.routes.core_of(op.pg).is_some_and(|core| core != self.config.core) {
                fx.push(Effect::Reroute(parked));
            }
            return;
        };
        if self.sessions.get(&conn).is_some_and(|session| is_sent_again(session, op)) {
            return;
        }
        if self.pgs[pg_key].holds_requests() {
            return self.pgs[pg_key].parked.push_back(parked);
        }
        match self.pgs[pg_key].phase {
            PgPhase::Loading => self.pgs[pg_key].parked.push_back(parked),
            PgPhase::Peering => self.hold_back(pg_key, conn, fx),
            // Another OSD may become primary.
            PgPhase::Unreadable if self.pgs[pg_key].interval.primary == self.config.osd.0 => {
                self.hold_back(pg_key, conn, fx);
            }
            // The client knows of other copies, and asks the primary.
            PgPhase::Unreadable if is_for_any_copy(op) => self.refuse(&parked, Errno::AGAIN, fx),
            // Its client sends it again in each interval.
            PgPhase::Replica if is_for_any_copy(op) && op.epoch < self.pgs[pg_key].interval.since => {
                self.refuse(&parked, Errno::AGAIN, fx);
            }
            PgPhase::Replica if is_for_any_copy(op) => match self.judge(pg_key, conn, op) {
                Verdict::Admit(access, operations) => {
                    self.read_copy(now, pg_key, parked, access, operations, fx);
                }
                Verdict::Refuse(errno) => self.refuse(&parked, errno, fx),
                Verdict::Drop | Verdict::NoRoom => self.refuse(&parked, Errno::AGAIN, fx),
            },
            // The client will see in a map that it has the wrong OSD, or that the pool is gone.
            PgPhase::Replica | PgPhase::Stray | PgPhase::Unreadable | PgPhase::Removing => {}
            // Behind requests that wait for the log.
            PgPhase::Active if !self.pgs[pg_key].parked.is_empty() => {
                self.pgs[pg_key].parked.push_back(parked)
            }
            PgPhase::Active => match self.judge(pg_key, conn, op) {
                // A repeated write is known by the log. Too many writes that are not committed keep the log from being trimmed.
                Verdict::Admit(access, _)
                    if access.writes && (self.has_many_in_flight(pg_key) || !self.wake_log(pg_key, fx)) =>
                {
                    self.pgs[pg_key].parked.push_back(parked);
                }
                // A listing shows what the log has, so it waits for this OSD's missing objects.
                Verdict::Admit(access, _) if access.is_pg && !self.pgs[pg_key].missing.is_empty() => {
                    if let Some(primary) = self.pgs[pg_key].role.primary_mut() {
                        primary.waiting_lists.push_back(parked);
                    }
                }
                Verdict::Admit(access, _) if access.is_pg => self.begin_listing(now, pg_key, parked, fx),
                Verdict::Admit(access, operations) => self.admit(now, pg_key, parked, access, operations, fx),
                Verdict::Refuse(errno) => self.refuse(&parked, errno, fx),
                Verdict::Drop => {}
                Verdict::NoRoom => self.withhold(conn, &op.object),
            },
        }
    }

    /// Writes wait until others are committed.
    pub(super) fn has_many_in_flight(&self, key: Key) -> bool {
        let in_flight = self.pgs[key].role.primary().map_or(0, |primary| primary.in_flight.len());
        in_flight >= self.config.log.max_entries
    }

    fn judge(&self, pg_key: Key, conn: ConnId, op: &MOSDOp) -> Verdict {
        let pg = &self.pgs[pg_key];
        let Some(pool) = self.view.pools.get(&op.pg.pg.pool) else { return Verdict::Drop };
        let Some(session) = self.sessions.get(&conn) else { return Verdict::Drop };
        let history = &pg.history;
        let sent_again_after: Epoch =
            history.same_primary_since.max(pool.last_force_op_resend).max(history.last_epoch_split);
        if op.epoch < sent_again_after && !planted::has(PlantedBug::StaleEpochAccepted) {
            return Verdict::Drop;
        }
        if !pg.contains(op.object.hash) {
            return Verdict::Drop;
        }
        if op.flags.contains(OsdFlags::PARALLELEXEC) {
            return Verdict::Refuse(Errno::INVAL);
        }
        let mut operations = SmallVec::<[Operation; 2]>::with_capacity(op.ops.len());
        op.ops.iter().for_each(|op| operations.push(Operation::decode(op)));
        let mut access = match Access::of(op.flags, &op.ops, &operations) {
            Ok(access) => access,
            Err(errno) => return Verdict::Refuse(errno),
        };
        // A client's own read keeps its place among what it has sent.
        access.is_for_copy &= session.peer.identity.osd().is_some();
        let (cap, peer, calls) = (&session.caps, &session.peer, called(&operations));
        if !caps::allow(cap, peer, &pool.name, &pool.applications, op, access.plainly, &calls) {
            return Verdict::Refuse(Errno::PERM);
        }
        if access.is_pg {
            return Verdict::Admit(access, operations);
        }
        if let Err(errno) = self.name_is_allowed(op) {
            return Verdict::Refuse(errno);
        }
        if self.view.is_blocklisted(&session.addr) {
            return Verdict::Refuse(Errno::BLOCKLISTED);
        }
        if access.ordered && self.was_sent_before_full(conn, op) {
            return Verdict::Drop;
        }
        if access.ordered && self.view.failsafe.is_full && !op.flags.contains(OsdFlags::FULL_TRY) {
            return Verdict::NoRoom;
        }
        if pool.eio {
            return match op.flags.contains(OsdFlags::SUPPORTSPOOLEIO) {
                true => Verdict::Drop,
                false => Verdict::Refuse(Errno::IO),
            };
        }
        if access.writes {
            if op.object.snap != SnapId::HEAD || !SnapContext::is_valid(op.snap_seq, &op.snaps) {
                return Verdict::Refuse(Errno::INVAL);
            }
            let bytes: usize = op.ops.iter().map(|op| op.input.len()).sum();
            if bytes > self.config.limits.max_write_size {
                return Verdict::Refuse(Errno::MSGSIZE);
            }
        }
        Verdict::Admit(access, operations)
    }

    fn name_is_allowed(&self, op: &MOSDOp) -> Result<(), Errno> {
        let (o, limits) = (&op.object, &self.config.limits);
        if o.name.len() > limits.max_object_name_len
            || o.key.len() > limits.max_object_name_len
            || o.namespace.len() > limits.max_object_namespace_len
        {
            return Err(Errno::NAMETOOLONG);
        }
        if o.name.is_empty() { Err(Errno::INVAL) } else { Ok(()) }
    }

    pub(super) fn admit(
        &mut self,
        now: Time,
        pg_key: Key,
        parked: Parked,
        access: Access,
        operations: SmallVec<[Operation; 2]>,
        fx: &mut Fx,
    ) {
        let Parked { conn, tid, mut op, held, received } = parked;
        let reqid = self.sessions[&conn].reqid(&op, tid);
        // `list-snaps` is asked of the snapshot directory, and nothing else may be.
        let snap = op.object.snap;
        if op.ops.iter().any(|o| (o.code == OpCode::LIST_SNAPS) != (snap == SnapId::DIR)) {
            return self.refuse(&Parked { conn, tid, op, held, received }, Errno::INVAL, fx);
        }
        // Requests on clones queue with those on their head: a clone comes, changes and goes with the head's snapshot set.
        op.object.snap = SnapId::HEAD;

        self.stay_awake(now, pg_key);
        let pg = &mut self.pgs[pg_key];
        let object = pg.objects.open(&op.object, self.config.object_cache_bytes);
        let turn = access.turn();
        self.next_order += 1;
        let (message, stage, order) = (op, Stage::Turn, self.next_order);
        let op = Op {
            conn,
            tid,
            reqid,
            message,
            operations,
            access,
            pg: pg_key,
            object,
            order,
            stage,
            stamps: OpStamps { received, admitted: now, ..OpStamps::default() },
            snap,
            reads_snaps: false,
            past: None,
            call_reads: None,
            copies: Vec::new(),
            #[cfg(feature = "erasure-trial")]
            gather: None,
            held,
        };
        let key = self.pending.insert(Pending::Op(Box::new(op)));
        let pg = &mut self.pgs[pg_key];
        let mut blocked = None;
        if pg.may_block() {
            let id = pg.objects[object].id.object.clone();
            let block = pg.block_of(&id);
            pg.objects[object].block = block;
            blocked = Some(id).filter(|_| block != ObjectBlock::None);
        }
        if self.pgs[pg_key].objects[object].enter(key, turn, order) {
            self.begin(now, key, fx);
        }
        if let Some(object) = blocked {
            self.want_recovered(pg_key, &object, fx);
        }
    }

    /// A write that has been seen before is answered as it was then, once that is durable. Asked when its turn has
    /// come, so that the first sending is not still on its way.
    pub(super) fn answer_duplicate(&mut self, now: Time, op: Op, fx: &mut Fx) {
        let epoch = self.view.epoch;
        let pg = &mut self.pgs[op.pg];
        let Some(seen) = pg.log.find(&op.reqid) else { return };
        let message = &op.message;
        let kind = message.flags & (OsdFlags::ACK | OsdFlags::ONDISK);
        let mut reply = message.reply(seen.result, epoch, kind);
        reply.versions = ReplyVersions::new(seen.version, seen.user_version);
        let outcome = |(i, o): (usize, &wire::types::OsdOp)| match seen.returns.get(i) {
            Some((result, output)) => OsdOpResult::of(o, *result, output.clone().into()),
            None => OsdOpResult::of(o, 0, codec::Rope::new()),
        };
        reply.ops = message.ops.iter().enumerate().map(outcome).collect();
        let (conn, tid, held) = (op.conn, op.tid, op.held);
        let waiter = CommitWaiter { version: seen.version, conn, tid, reply, held };
        if planted::has(PlantedBug::DuplicateBeforeCommit) {
            let CommitWaiter { reply, held, .. } = waiter;
            return self.reply_by_lease(now, op.pg, conn, Message::with_tid(tid, reply), held, fx);
        }
        self.reply_when_committed(now, op.pg, waiter, fx);
    }

    /// Sends a reply that shows a change once that is durable on every member.
    pub(super) fn reply_when_committed(&mut self, now: Time, pg_key: Key, waiter: CommitWaiter, fx: &mut Fx) {
        let pg = &mut self.pgs[pg_key];
        if waiter.version > pg.committed {
            let at = pg.commit_waiters.partition_point(|w| w.version <= waiter.version);
            return pg.commit_waiters.insert(at, waiter);
        }
        let CommitWaiter { conn, tid, reply, held, .. } = waiter;
        self.reply_by_lease(now, pg_key, conn, Message::with_tid(tid, reply), held, fx);
    }

    /// An error before anything was tried.
    pub(super) fn refuse(&self, parked: &Parked, errno: Errno, fx: &mut Fx) {
        let Parked { conn, tid, op, .. } = parked;
        let kind = op.flags & (OsdFlags::ACK | OsdFlags::ONDISK);
        let mut reply = op.reply(errno.result(), self.view.epoch, kind);
        reply.ops = op.ops.iter().map(|o| OsdOpResult::of(o, 0, codec::Rope::new())).collect();
        self.send(*conn, Message::with_tid(*tid, reply), fx);
    }

    /// Requests that waited for a map that has come, in their order.
    pub(super) fn release_waiting_for_map(&mut self, now: Time, fx: &mut Fx) {
        let ready: Vec<ConnId> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.waiting_for_map.front().is_some_and(|p| p.op.epoch <= self.view.epoch))
            .map(|(conn, _)| *conn)
            .collect();
        for conn in ready {
            while let Some(session) = self.sessions.get_mut(&conn)
                && let Some(parked) = session.waiting_for_map.pop_front_if(|p| p.op.epoch <= self.view.epoch)
            {
                self.dispatch(now, parked, fx);
            }
        }
    }
}

/// A read that its client may have sent to any acting OSD.
fn is_for_any_copy(op: &MOSDOp) -> bool {
    op.flags.intersects(OsdFlags::BALANCE_READS | OsdFlags::LOCALIZE_READS)
}

/// The client sends the request again, after earlier ones: a backoff covers its PG, or requests of its object are withheld.
/// A request that a queue kept until the client acknowledged the backoff would overtake the dropped ones, so each queue asks.
fn is_sent_again(session: &Session, op: &MOSDOp) -> bool {
    session.backoffs.contains_key(&op.pg)
        || session.unacknowledged_backoffs.contains_key(&op.pg)
        || session.withheld.holds(&op.object)
}
