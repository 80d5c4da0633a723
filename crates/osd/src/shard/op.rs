//! A request on its way through a shard.

use crate::classes::Method;
use crate::errno::Errno;
use crate::object::ObjectTurn;
use crate::ops::{Copied, OpAccess, Operation};
use crate::signals::OpStamps;
use crate::slab::Key;
use machine::net::Held;
use machine::{ConnId, Time};
use smallvec::SmallVec;
use store::{Answer, ObjectId, Query};
use wire::messages::{MOSDOp, MOSDOpReply, OsdOps};
use wire::types::{ObjectInfo, OpCode, OsdFlags, ReqId, SnapId};

/// A request that has not begun: it waits for a map, or for its PG to be read.
#[derive(Debug)]
pub struct Parked {
    pub conn: ConnId,
    pub tid: u64,
    pub op: Box<MOSDOp>,
    /// The memory that it takes: given back when it has been answered or dropped.
    pub held: Held,
    /// When its message was complete.
    pub received: Time,
}

/// What a request may do, from its operations and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub reads: bool,
    pub writes: bool,
    /// Kept in order with the writes that its client sent before and after it: a write, and a read with RWORDERED.
    pub ordered: bool,
    pub is_pg: bool,
    pub returns: bool,
    /// An OSD reads the object for a copy of it.
    pub is_for_copy: bool,
    /// What the capability's `r` and `w` must cover: reads and writes other than those of class calls.
    pub plainly: (bool, bool),
}

impl Access {
    /// An ordered read shares its turn with reads: those begin when earlier writes are durable, so its answer follows theirs
    /// and tells nothing that a crash could take back.
    pub fn turn(&self) -> ObjectTurn {
        match self.writes {
            true => ObjectTurn::Write,
            false if self.is_for_copy => ObjectTurn::Copy,
            false => ObjectTurn::Read,
        }
    }
}

/// A request that has been admitted and works on an object.
pub struct Op {
    pub conn: ConnId,
    pub tid: u64,
    pub reqid: ReqId,
    pub message: Box<MOSDOp>,
    pub operations: SmallVec<[Operation; 2]>,
    pub access: Access,
    pub pg: Key,
    pub object: Key,
    /// Its place among the requests of this shard.
    pub order: u64,
    pub stage: Stage,
    pub stamps: OpStamps,
    /// The snapshot that it reads; [`SnapId::HEAD`] for the head, [`SnapId::DIR`] for the list of snapshots.
    pub snap: SnapId,
    /// Its reading of the info reads the snapshot set, too.
    pub reads_snaps: bool,
    /// Made when it reads a clone, or rolls back to one.
    pub past: Option<Box<Past>>,
    /// Made when a class call needs to read.
    pub call_reads: Option<Box<CallReads>>,
    /// Made when it copies other objects: those that it has, by the operation's position.
    pub copies: Vec<(u32, Result<Copied, Errno>)>,
    /// Made when a read needs more than the store here.
    #[cfg(feature = "erasure-trial")]
    pub gather: Option<Box<super::replicated::Gather>>,
    pub held: Held,
}

/// The clone that a request is about.
#[derive(Debug)]
pub struct Past {
    pub id: ObjectId,
    /// Once it has been read.
    pub info: Option<Box<ObjectInfo>>,
    /// Of a rollback: the answers that the list's operations take.
    pub planned: Vec<Answer>,
}

/// What class calls of a request have read so far.
#[derive(Debug, Default)]
pub struct CallReads {
    /// The answers that the plain operations take, kept for the next run.
    pub planned: Vec<Answer>,
    /// Asked and not answered yet.
    pub asked: Vec<Query>,
    pub known: Vec<(Query, Answer)>,
}

/// What a request waits for.
#[derive(Debug)]
pub enum Stage {
    /// Its turn on the object.
    Turn,
    /// The object's info, and whatever else it reads, are being read; nobody else may begin meanwhile.
    Loading,
    /// What it reads is being read. A read shares the object; a write has it alone.
    Reading,
    /// The object that it copies is being read, wherever that is. Its own object waits.
    Copying,
    /// Its change is on its way to stable storage; then this reply goes out.
    Committing(Box<Committing>),
}

#[derive(Debug)]
pub struct Committing {
    pub reply: MOSDOpReply,
    pub side_effects: crate::ops::SideEffects,
    /// Bytes of objects' data in the change.
    pub written_bytes: u64,
}

impl Access {
    /// `EINVAL`: the list asks for nothing at all. A call of a class or method that is not there refuses the whole
    /// list.
    pub fn of(flags: OsdFlags, ops: &OsdOps, operations: &[Operation]) -> Result<Access, Errno> {
        let mut access = Access {
            ordered: flags.contains(OsdFlags::RWORDERED),
            returns: flags.contains(OsdFlags::RETURNVEC),
            ..Access::default()
        };
        for (op, operation) in ops.iter().zip(operations) {
            let OpAccess { reads, writes, ordered } = operation.access(op.code);
            access.reads |= reads;
            access.writes |= writes;
            access.ordered |= ordered;
            access.is_pg |= op.code.is_pg();
            access.is_for_copy |= op.code == OpCode::COPY_GET;
        }
        access.plainly = (access.reads, access.writes);
        for (op, operation) in ops.iter().zip(operations).filter(|(op, _)| op.code == OpCode::CALL) {
            match operation {
                Operation::Call(call) => {
                    access.reads |= call.method.reads;
                    access.writes |= call.method.writes;
                }
                Operation::Refused(errno) => return Err(*errno),
                _ => unreachable!("{op:?} is a call"),
            }
        }
        let any = access.reads || access.writes || access.is_pg;
        match any {
            true => Ok(Access { ordered: access.ordered || access.writes, ..access }),
            false => Err(Errno::INVAL),
        }
    }
}

/// The methods that a list calls.
pub fn called(operations: &[Operation]) -> SmallVec<[&'static Method; 2]> {
    operations.iter().filter_map(Operation::method).collect()
}

impl Op {
    /// It reads a clone, or the head as a snapshot that no write has followed.
    pub fn is_of_snapshot(&self) -> bool {
        self.snap < SnapId::HEAD
    }

    /// The clone that its read under way is of.
    pub fn reads_past(&self) -> Option<&Past> {
        self.past.as_deref().filter(|past| past.info.is_none() || !self.access.writes)
    }

    /// The snapshot of its rollback.
    pub fn rollback(&self) -> Option<SnapId> {
        self.operations.iter().find_map(Operation::rollback)
    }

    /// Random enough for names that must not collide, and the same each time this request is run: no two requests
    /// of a cluster have the same id. (SplitMix64 over its parts.)
    pub fn seed(&self) -> u64 {
        let ReqId { name, tid, incarnation } = self.reqid;
        [u64::from(name.kind.0), name.num as u64, tid, incarnation as u64].into_iter().fold(
            0,
            |seed, part| {
                let mut z = (seed ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            },
        )
    }
}
