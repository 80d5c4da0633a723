//! The contract of one operation: decoding, reading, executing.

use super::reads::{Found, Reads};
use super::{Execution, Limits};
use crate::errno::Errno;
use codec::{DecodeError, Rope};
use store::Query;
use wire::types::{OpCode, OsdOp};

/// One kind of operation. A row of [`super::table`] names it; nothing else knows of it.
///
/// The type of what it reads decides the type of what it is given, so an operation cannot forget to ask for an answer
/// that it uses.
pub(super) trait Handler: Sized {
    /// Reads of the object, in its state before the list.
    type Reads: Reads;

    /// An operation of a mode that writes advances the object's user version, unless this is false: watches and
    /// what cache tiers do among themselves show to no user.
    const USER_VISIBLE: bool = true;

    /// An input that does not decode fails the operation in its turn, after the operations before it have been
    /// executed: clients expect the errors of a list in this order.
    fn decode(op: &OsdOp) -> Result<Self, Errno>;

    fn reads(&self, limits: &Limits) -> Self::Reads;

    fn execute(&self, list: &mut Execution<'_>, found: Found<Self::Reads>) -> OpOutcome;

    fn access(&self, code: OpCode) -> OpAccess {
        OpAccess::of(code)
    }
}

/// Access of an operation to its object, for capabilities and for the order of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpAccess {
    pub reads: bool,
    pub writes: bool,
    /// It waits for earlier writes and reads as a write does, whatever it does itself.
    pub ordered: bool,
}

impl OpAccess {
    /// As the code's mode bits say.
    pub fn of(code: OpCode) -> OpAccess {
        OpAccess { reads: code.reads(), writes: code.writes() || code.is_cache(), ordered: false }
    }
}

/// Result and output of one operation, as the reply carries them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpOutput {
    /// 0, a positive number, a negated errno, or for a comparison the place of the first difference.
    pub result: i32,
    pub output: Rope,
}

pub(super) type OpOutcome = Result<OpOutput, OpStop>;

/// Why an operation ended without success.
#[derive(Debug)]
pub enum OpStop {
    /// The list fails with it. The client gets the output nevertheless.
    Failed(OpOutput),
    /// A class call must read these first; the list is then executed again from its start.
    NeedsReads(Vec<Query>),
    /// The operation at this position of the list copies another object, which must be read first; then the same.
    NeedsCopy(u32),
}

impl From<Rope> for OpOutput {
    fn from(output: Rope) -> OpOutput {
        OpOutput { result: 0, output }
    }
}

impl From<Errno> for OpStop {
    fn from(errno: Errno) -> OpStop {
        OpStop::Failed(OpOutput { result: errno.result(), output: Rope::new() })
    }
}

impl From<DecodeError> for Errno {
    /// An input that does not decode is an invalid argument.
    fn from(_: DecodeError) -> Errno {
        Errno::INVAL
    }
}

/// Success without output.
pub(super) fn done() -> OpOutcome {
    Ok(OpOutput::default())
}

/// Operations that are large and rare are boxed, so that the common ones stay small.
impl<H: Handler> Handler for Box<H> {
    type Reads = H::Reads;
    const USER_VISIBLE: bool = H::USER_VISIBLE;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        H::decode(op).map(Box::new)
    }

    fn reads(&self, limits: &Limits) -> Self::Reads {
        H::reads(self, limits)
    }

    fn execute(&self, list: &mut Execution<'_>, found: Found<Self::Reads>) -> OpOutcome {
        H::execute(self, list, found)
    }

    fn access(&self, code: OpCode) -> OpAccess {
        H::access(self, code)
    }
}
