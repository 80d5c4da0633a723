//! shoal's own client of a cluster, shoal's or Ceph's: maps in, operations out, answers back. A machine without I/O.
//!
//! Modules use only those above them:
//!
//! - `operation`, [`reply`], `listing`: one object's operation as a list of steps, the values that it returns, and
//!   a walk over a pool's objects.
//! - `event`, `config`: inputs, effects and events of the machine; its timing.
//! - `target`: the OSD of an operation under one map. `backoff`, `session`: the connection to one OSD.
//! - `in_flight`: operations without an answer. `watches`: watches and notifications.
//! - `client`: [`Client`], the machine that owns all of these.

mod backoff;
mod client;
mod config;
mod event;
mod in_flight;
mod listing;
mod operation;
pub mod reply;
mod session;
mod target;
#[cfg(test)]
mod tests;
mod watches;

pub use client::Client;
pub use config::{Config, Timing};
pub use event::{CommandId, CommandReply, Daemon, Effect, Event, Failure, Input, OpId, WatchEvent, WatchId};
pub use listing::{Listing, Page};
pub use operation::{ObjectRef, Operation, ReadOps, WriteOps};
pub use reply::Reply;
