//! shoal's own client of a cluster, shoal's or Ceph's: maps in, operations out, answers back. A machine without I/O.
//!
//! - [`Client`] holds the monitor session, the map, a session for each OSD in use, and every operation that has no
//!   answer yet.
//! - [`Operation`] says what to do to one object; [`ReadOps`] and [`WriteOps`] build the list of steps.
//! - [`Listing`] walks a pool's objects; [`reply`] reads what operations return.

mod backoff;
mod client;
mod in_flight;
mod linger;
mod listing;
mod operation;
pub mod reply;
mod session;
mod target;
#[cfg(test)]
mod tests;

pub use client::{Client, Config, Effect, Event, Failure, Input, OpId, Timing};
pub use linger::{WatchEvent, WatchId};
pub use listing::{Listing, Page};
pub use operation::{ObjectRef, Operation, ReadOps, WriteOps};
pub use reply::Reply;
