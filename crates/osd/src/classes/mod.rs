//! Object classes: small programs that run beside an object, called by name (`CEPH_OSD_OP_CALL`).
//!
//! A call is a pure step over data that is already there. What it wants of the object it asks of its [`Call`]; where
//! the answer is not known yet the step ends with [`Step::Need`], and it is run *again from its start* once the
//! answers have come. So no half-made change ever crosses a wait, and a method reads like straight-line code. When
//! nothing is missing it ends with [`Step::Done`]: a result, an output, and the *operations* that it performs on the
//! object, which the executor carries out in order within the request's list, as if the client had sent them. The
//! first of them that fails makes the call fail with its errno.
//!
//! Rejected: methods as `async` functions (their state would be hidden from [`machine::Machine::check`] and could
//! not be compared), and giving them the object to change (a failed call would have to be undone).
//!
//! As with all operations of a list, reads see the object as it was before the list; only existence, size and mtime
//! follow along.

mod call;
mod hello;
pub mod hostile;
mod lock;
mod numops;
mod rbd;
mod refcount;
mod registry;
#[cfg(test)]
mod testing;
mod version;

pub use call::{Call, CallContext, Outcome, Step, Stop};
pub use registry::{Method, find};
