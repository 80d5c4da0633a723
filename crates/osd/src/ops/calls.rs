//! Calls of object classes within a list.

use super::execution::{Execution, Failure};
use super::step::{Call, Step};
use crate::classes::{self, CallContext};
use codec::Rope;
use store::{Answer, Query};
use wire::types::UTime;

/// What calls depend on besides the object and the client.
#[derive(Clone, Copy, Debug)]
pub struct CallWorld<'a> {
    /// Wall time.
    pub now: UTime,
    /// The same each time the list is run.
    pub seed: u64,
    /// What earlier runs of the list needed, with the answers.
    pub known: &'a [(Query, Answer)],
}

impl Execution<'_> {
    /// One call's result and output, or what must be read before it can be made.
    pub(super) fn call(&mut self, call: &Call) -> Result<(i32, Rope), Vec<Query>> {
        let context = CallContext {
            argument: &call.argument,
            client: self.client,
            client_addr: self.client_addr,
            features: self.features,
            now: self.calls.now,
            seed: self.calls.seed,
            exists: self.exists,
            size: self.info.size,
            mtime: self.info.mtime,
            stored: self.answered,
            known: self.calls.known,
        };
        let outcome = match classes::Call::run(call.method, &context) {
            classes::Step::Need(queries) => return Err(queries),
            classes::Step::Done(outcome) => outcome,
        };
        // Whether or not it changes anything this time.
        self.user_modified |= call.method.writes;
        for op in &outcome.operations {
            debug_assert!(op.code.writes(), "a method reads through its call, not with {op:?}");
            if let Err(Failure { result, .. }) = self.step(&Step::parse(op)) {
                return Ok((result, outcome.output));
            }
        }
        Ok((outcome.result, outcome.output))
    }
}
