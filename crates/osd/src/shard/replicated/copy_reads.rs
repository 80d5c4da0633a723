//! Reads of clients from a replica: balanced and localized reads.
//!
//! A stock client may send a read to any acting OSD (`BALANCE_READS`, `LOCALIZE_READS`). `EAGAIN` makes it ask the primary, as on
//! stock (`Objecter::handle_osd_op_reply`). A replica serves a read if all of this holds, and answers `EAGAIN` otherwise:
//!
//! - The primary serves in this interval. It has said so with `Started`, a write or `Committed`. So all members have activated, and
//!   replicas of earlier intervals read no more.
//! - Each other acting OSD has given this one a lease for reads of copies (see [`leases`](super::leases)). It is checked when the
//!   reply goes out.
//! - This copy has the object as the log says: it is not missing, not beyond the cursor of a backfill and not damaged.
//! - Every write of the object in the log is known to be durable on all members. Otherwise a client would see a value that a crash
//!   could take back, while the primary still hides it.
//! - The list of operations is a pure read of one object.
//!
//! A write is answered when it is durable on every member, so a client reads its own writes from each replica. A replica hears with
//! the next write how far writes are committed. While it has reads it asks the primary to tell it (`WantCommitted`). Then the primary
//! says `Committed` as soon as no write is under way.
//!
//! A write or push that arrives during a read makes its result stale: that read goes to the primary, too. Reads of a replica know
//! the object's info only until then.
//!
//! Cost without such reads: a look into an empty table for each write. Rejected: to hold a read back until its writes are committed.
//! The primary answers sooner, for it knows first.

use super::super::op::{Access, Parked};
use super::super::{Effect, Fx, Pending, Shard, ToControl};
use crate::errno::Errno;
use crate::ops::Operation;
use crate::pg::Pg;
use crate::pg::role::{Replica, Role, Stage};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use machine::Time;
use std::time::Duration;
use wire::messages::{MOSDOp, Message};
use wire::types::{Eversion, HObject, OpCode, OsdOpResult, PeerBody, SnapId};

/// Pause between two requests of a replica to be told of commits.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The primary tells a replica of commits for so long after it was asked.
const TOLD_FOR: Duration = Duration::from_secs(10);

/// A replica's state of clients' reads in the present interval.
#[derive(Debug, Default)]
pub struct CopyReads {
    /// The primary serves in this interval.
    is_open: bool,
    /// The next request to be told of commits.
    ask_at: Time,
}

impl CopyReads {
    /// The primary serves.
    pub(super) fn open(&mut self) {
        self.is_open = true;
    }
}

/// The cause for which a replica sends a read to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// The object is missing, or unreadable.
    Missing,
    /// A write of the object may not be durable on all members.
    Unstable,
    /// A lease, the interval or the kind of the request.
    Other,
}

impl Shard {
    /// A request that its client sent to any copy.
    pub(in crate::shard) fn read_copy(
        &mut self,
        now: Time,
        key: Key,
        parked: Parked,
        access: Access,
        operations: smallvec::SmallVec<[Operation; 2]>,
        fx: &mut Fx,
    ) {
        self.signals.totals.copy_reads += 1;
        let is_served = is_pure_read(&parked.op, &access) && self.may_serve_copies(key);
        if is_served {
            self.use_copy_leases(now, key, fx);
            self.ask_for_commits(now, key, fx);
        }
        let cause = match is_served {
            true => self.copy_hindrance(now, key, &parked.op.object),
            false => Some(Redirect::Other),
        };
        match cause {
            Some(cause) => {
                self.count_redirect(cause);
                self.refuse(&parked, Errno::AGAIN, fx);
            }
            None => self.admit(now, key, parked, access, operations, fx),
        }
    }

    /// The PG's state in the map lets this copy serve reads.
    fn may_serve_copies(&self, key: Key) -> bool {
        let pg = &self.pgs[key];
        pg.interval.acting.contains(&self.config.osd.0)
            && pg.interval.acting_count() >= pg.interval.min_size as usize
            && !pg.backend.has_positions()
            && matches!(pg.role, Role::Replica(Replica::Active))
    }

    /// The cause for which this copy cannot answer a read of the object now.
    fn copy_hindrance(&self, now: Time, key: Key, object: &HObject) -> Option<Redirect> {
        let pg = &self.pgs[key];
        match () {
            () if !pg.copy_reads.is_open || !self.may_read_copy(pg, now) => Some(Redirect::Other),
            () if pg.missing.contains(object)
                || pg.damaged.contains(object)
                || !pg.progress.has_reached(object) =>
            {
                Some(Redirect::Missing)
            }
            () if has_unstable_write(pg, object) => Some(Redirect::Unstable),
            () => None,
        }
    }

    /// A read has its turn on a replica. False: it was sent to the primary.
    pub(in crate::shard) fn begin_copy_read(&mut self, now: Time, key: Key, fx: &mut Fx) -> bool {
        let Some(op) = self.op(key) else { return false };
        let (pg_key, object) = (op.pg, op.object);
        let mut cause = self.copy_hindrance(now, pg_key, &op.message.object);
        if cause.is_none() && !self.pgs[pg_key].objects[object].forget_stale() {
            cause = Some(Redirect::Unstable);
        }
        let Some(cause) = cause else { return true };
        self.redirect(key, cause, fx);
        false
    }

    /// What a replica has read is there. False: it does not count, and the read was sent to the primary.
    pub(in crate::shard) fn is_copy_read_good(
        &mut self,
        now: Time,
        key: Key,
        is_read: bool,
        fx: &mut Fx,
    ) -> bool {
        let Some(op) = self.op(key) else { return false };
        let cause = match () {
            () if self.pgs[op.pg].objects[op.object].is_stale()
                && !planted::has(PlantedBug::CopyReadsUncommitted) =>
            {
                Some(Redirect::Unstable)
            }
            () if !is_read => Some(Redirect::Missing),
            () => self.copy_hindrance(now, op.pg, &op.message.object),
        };
        let Some(cause) = cause else {
            self.signals.totals.copy_reads_served += 1;
            return true;
        };
        self.redirect(key, cause, fx);
        false
    }

    /// Sends an admitted read to the primary.
    fn redirect(&mut self, key: Key, cause: Redirect, fx: &mut Fx) {
        self.count_redirect(cause);
        let Some(op) = self.take_op(key) else { return };
        let mut reply = op.message.reply(Errno::AGAIN.result(), self.view.epoch, op.message.flags);
        reply.ops = op.message.ops.iter().map(|o| OsdOpResult::of(o, 0, codec::Rope::new())).collect();
        fx.push(Effect::Send { conn: op.conn, message: Message::with_tid(op.tid, reply) });
        self.pass_turn(op.pg, op.object);
    }

    fn count_redirect(&mut self, cause: Redirect) {
        match cause {
            Redirect::Missing => self.signals.totals.copy_reads_missing += 1,
            Redirect::Unstable => self.signals.totals.copy_reads_unstable += 1,
            Redirect::Other => {}
        }
    }

    /// The primary serves: everything that this copy was activated with is durable on all members.
    pub(super) fn open_copy_reads(&mut self, key: Key) {
        let pg = &mut self.pgs[key];
        if !matches!(pg.role, Role::Replica(Replica::Active)) {
            return;
        }
        pg.copy_reads.is_open = true;
        let head = pg.progress.last_update;
        // Otherwise a write of this interval has come before, and says more.
        if head.epoch < pg.interval.since {
            pg.committed = pg.committed.max(head);
        }
    }

    pub(super) fn on_committed_to(&mut self, key: Key, to: Eversion) {
        let pg = &mut self.pgs[key];
        if matches!(pg.role, Role::Replica(Replica::Active)) {
            pg.copy_reads.is_open = true;
            pg.committed = pg.committed.max(to.min(pg.progress.last_update));
        }
    }

    /// Primaries of older programs do not know the statement. They give no leases for reads of copies either.
    fn ask_for_commits(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &self.pgs[key];
        let primary = pg.interval.primary;
        if now >= pg.copy_reads.ask_at && self.may_read_copy(pg, now) {
            self.pgs[key].copy_reads.ask_at = now + ASK_AGAIN;
            self.tell_peer(key, primary, PeerBody::WantCommitted, fx);
        }
    }

    /// A replica has reads.
    pub(super) fn on_want_committed(&mut self, now: Time, key: Key, from: i32, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let committed = pg.committed;
        let Role::Primary(primary) = &mut pg.role else { return };
        if primary.stage != Stage::Active || !primary.members.contains(&from) {
            return;
        }
        primary.readers.insert(from, now + TOLD_FOR);
        self.tell_peer(key, from, PeerBody::Committed { to: committed }, fx);
    }

    /// Tells replicas that have reads what is committed, unless the next write does so at once.
    pub(super) fn tell_readers(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let to = pg.committed;
        let Role::Primary(primary) = &mut pg.role else { return };
        if primary.readers.is_empty() || !primary.unacknowledged.is_empty() {
            return;
        }
        primary.readers.retain(|_, until| now < *until);
        let readers: Vec<i32> = primary.readers.keys().copied().collect();
        readers.into_iter().for_each(|osd| self.tell_peer(key, osd, PeerBody::Committed { to }, fx));
    }

    /// True if this OSD may answer reads of a copy: each other acting OSD has given it a lease for that.
    pub fn may_read_copy(&self, pg: &Pg, now: Time) -> bool {
        self.leases.allow_copies(self.config.osd.0, &pg.interval.acting, now)
    }

    fn use_copy_leases(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let osds = self.leases.note_copy_use(self.config.osd.0, &self.pgs[key].interval.acting, now);
        if !osds.is_empty() {
            fx.push(Effect::Control(ToControl::LeasesUsed { osds, is_for_copies: true }));
        }
    }

    /// True if the request reads a copy here.
    pub(in crate::shard) fn is_copy_read(&self, key: Key) -> bool {
        let Some(Pending::Op(op)) = self.pending.get(key) else { return false };
        matches!(self.pgs[op.pg].role, Role::Replica(_))
    }
}

/// The log has a write of the object that may not be durable on all members.
fn has_unstable_write(pg: &Pg, object: &HObject) -> bool {
    if pg.committed >= pg.progress.last_update || planted::has(PlantedBug::CopyReadsUncommitted) {
        return false;
    }
    !pg.log.is_resident() || pg.log.after(pg.committed).any(|entry| entry.object == *object)
}

/// The list reads one object, and nothing but its contents.
fn is_pure_read(op: &MOSDOp, access: &Access) -> bool {
    let reads_contents = |code: OpCode| {
        matches!(
            code,
            OpCode::READ
                | OpCode::SYNC_READ
                | OpCode::SPARSE_READ
                | OpCode::MAPEXT
                | OpCode::CMPEXT
                | OpCode::STAT
                | OpCode::CHECKSUM
                | OpCode::GETXATTR
                | OpCode::GETXATTRS
                | OpCode::CMPXATTR
                | OpCode::ASSERT_VER
                | OpCode::OMAPGETKEYS
                | OpCode::OMAPGETVALS
                | OpCode::OMAPGETHEADER
                | OpCode::OMAPGETVALSBYKEYS
                | OpCode::OMAP_CMP
                | OpCode::CALL
        )
    };
    access.reads
        && !access.writes
        && !access.is_pg
        && !access.ordered
        // The primary knows the clones.
        && op.object.snap == SnapId::HEAD
        && op.ops.iter().all(|op| reads_contents(op.code))
}
