//! Calls of object classes within a list.

use super::execution::Execution;
use super::handler::{Handler, OpOutcome, OpOutput, OpStop};
use super::{Limits, Operation};
use crate::classes::{self, CallContext, Method, MethodCall, MethodStatus};
use crate::errno::Errno;
use bytes::Bytes;
use codec::Reader;
use store::{Answer, Query};
use wire::types::{OsdOp, UTime};

/// Inputs of class calls besides the object and the client.
#[derive(Clone, Copy, Debug)]
pub struct CallEnvironment<'a> {
    /// Wall time.
    pub now: UTime,
    /// The same each time the list is executed.
    pub seed: u64,
    /// User version of the PG's newest change.
    pub pg_user_version: u64,
    /// Queries of earlier executions of the list with their answers.
    pub known: &'a [(Query, Answer)],
}

/// A class call. The list with a call of a method that does not exist is refused as a whole, before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassCall {
    pub method: &'static Method,
    /// A slice of the message.
    argument: Bytes,
}

impl Handler for ClassCall {
    type Reads = ();

    /// The input is class name, method name and argument.
    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let p = op.params.call();
        let mut r = Reader::new(&op.input);
        let class = r.take("class", p.class_len as usize)?;
        let method = r.take("method", p.method_len as usize)?;
        let argument = op.input.slice_ref(r.take("argument", p.input_len as usize)?);
        Ok(ClassCall { method: classes::find(class, method)?, argument })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let context = CallContext {
            argument: &self.argument,
            client: list.client,
            client_addr: list.client_addr,
            features: list.features,
            now: list.calls.now,
            seed: list.calls.seed,
            exists: list.exists,
            size: list.info.size,
            mtime: list.info.mtime,
            stored: list.is_stored(),
            watchers: &list.info.watchers,
            snapset_seq: list.snapshots.set.map_or(0, |set| set.seq.0),
            pg_user_version: list.calls.pg_user_version,
            position: list.position,
            known: list.calls.known,
        };
        let outcome = match MethodCall::run(self.method, &context) {
            MethodStatus::NeedsReads(queries) => return Err(OpStop::NeedsReads(queries)),
            MethodStatus::Done(outcome) => outcome,
        };
        // Whether or not it changes anything this time.
        list.user_modified |= self.method.writes;
        for op in &outcome.operations {
            let result = match list.execute_for_method(&Operation::decode(op)) {
                Ok(_) => continue,
                Err(OpStop::Failed(failed)) => failed.result,
                Err(OpStop::NeedsReads(_) | OpStop::NeedsCopy(_)) => Errno::IO.result(),
            };
            return Err(OpStop::Failed(OpOutput { result, output: outcome.output }));
        }
        Ok(OpOutput { result: outcome.result, output: outcome.output })
    }
}
