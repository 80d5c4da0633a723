//! The checkers. The history checker decides if the answers that clients got are possible:
//!
//! - [`object`]: an object as a value, and the effect of each operation on it. Its bytes are in [`data`].
//! - [`linear`]: linearizability of one object's operations.
//! - [`history`]: all operations of a run, and the promises beyond one object's value.
//! - [`snapshots`]: an object with snapshots as a value, for objects that one client alone uses.
//! - [`copies`]: invariants of all copies of a PG, which no client sees.
//! - [`left_alone`]: the balancer, in the maps.
//! - [`standing_still`]: a cluster at rest, in which nothing may change.
//! - [`settled`]: the state of the cluster some time after the last fault.

pub mod commands;
pub mod copies;
pub mod data;
pub mod elections;
mod history;
pub mod left_alone;
mod linear;
pub mod monitors;
pub mod object;
pub mod settled;
pub mod snapshots;
pub mod standing_still;
#[cfg(test)]
mod tests;
mod violation;

pub use data::Fill;
pub use history::{History, ListingRef, Summary, TrueTime, history_key};
pub use linear::{Checker, Impossible, OpRef};
pub use object::{Answer, Object, Output, Step};
pub use violation::{Promise, Violation};

/// The number of a write, unique in its run. The bytes of the write are derived from it.
pub type Token = u64;
