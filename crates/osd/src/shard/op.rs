//! A request on its way through a shard.

use crate::ops::{Step, WatchKind};
use crate::slab::Key;
use machine::ConnId;
use smallvec::SmallVec;
use wire::messages::{MOSDOp, MOSDOpReply, OsdOps};
use wire::types::{OsdFlags, ReqId};

/// A request that has not begun: it waits for a map, or for its PG to be read.
#[derive(Debug)]
pub struct Parked {
    pub conn: ConnId,
    pub tid: u64,
    pub op: Box<MOSDOp>,
}

/// What a request may do, from its operations and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub reads: bool,
    pub writes: bool,
    /// Waits for reads in flight as a write does.
    pub ordered: bool,
    pub is_pg: bool,
    pub returns: bool,
}

/// A request that has been admitted and works on an object.
pub struct Op {
    pub conn: ConnId,
    pub tid: u64,
    pub reqid: ReqId,
    pub message: Box<MOSDOp>,
    pub steps: SmallVec<[Step; 2]>,
    pub access: Access,
    pub pg: Key,
    pub object: Key,
    pub stage: Stage,
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
    /// Its change is on its way to stable storage; then this reply goes out.
    Committing(Box<Committing>),
}

#[derive(Debug)]
pub struct Committing {
    pub reply: MOSDOpReply,
    pub version: wire::types::Eversion,
    pub side_effects: crate::ops::SideEffects,
}

impl Access {
    /// `None`: the list asks for nothing at all, or calls a class that is not there.
    pub fn of(flags: OsdFlags, ops: &OsdOps, steps: &[Step]) -> Option<Access> {
        let mut access = Access {
            ordered: flags.contains(OsdFlags::RWORDERED),
            returns: flags.contains(OsdFlags::RETURNVEC),
            ..Access::default()
        };
        for (op, step) in ops.iter().zip(steps) {
            // A ping changes nothing, but it comes after the writes before it.
            if let Step::Watch { kind: WatchKind::Ping, .. } = step {
                access.ordered = true;
            } else {
                access.writes |= op.code.writes();
            }
            access.reads |= op.code.reads() || matches!(step, Step::Watch { .. });
            access.is_pg |= op.code.is_pg();
            access.writes |= op.code.is_cache();
        }
        let any = access.reads || access.writes || access.is_pg;
        any.then_some(Access { ordered: access.ordered || access.writes, ..access })
    }
}
