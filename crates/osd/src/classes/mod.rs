//! Object classes: small programs that run beside an object, called by name (`CEPH_OSD_OP_CALL`).
//!
//! A method is a pure, resumable function over data that was read before. It asks its [`MethodCall`] for what it
//! needs of the object. When an answer is missing the run ends with [`MethodStatus::NeedsReads`], and the method is
//! run *again from its start* once the answers are there: no half-made change crosses a wait, and a method reads like
//! straight-line code. When nothing is missing the run ends with [`MethodStatus::Done`]: a result, an output, and the
//! *operations* to perform on the object. The executor performs them in order within the request's list, as if the
//! client had sent them. The first that fails fails the call.
//!
//! As for all operations of a list, reads see the object as it was before the list; only existence, size and mtime
//! follow the list.
//!
//! A new method is a function in its class's file or folder, a row in [`registry`], and where its argument is a new type, that
//! type in `wire/src/types/cls/`.
//!
//! Rejected: methods as `async` functions (their state would be hidden from [`machine::Machine::check`] and could
//! not be compared), and methods that change the object themselves (a failed call would have to be undone).

mod call;
mod cas;
mod cephfs;
mod cmpomap;
mod fifo;
mod hello;
pub mod hostile;
mod journal;
mod lock;
mod log;
mod numops;
mod omap;
mod otp;
mod queue;
mod rbd;
mod refcount;
mod registry;
mod rgw;
mod rgw_gc;
mod sem_set;
#[cfg(test)]
mod stock_calls;
#[cfg(test)]
mod testing;
mod time_key;
mod timeindex;
mod two_phase_queue;
mod user;
mod version;

pub use call::{CallContext, MethodCall, MethodOutcome, MethodStatus, MethodStop};
pub use registry::{Method, find};
