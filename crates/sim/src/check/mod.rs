//! The history checker: are the answers that clients got possible?
//!
//! - [`object`]: an object as a value, and the effect of each operation on it. Its bytes are in [`data`].
//! - [`linear`]: linearizability of one object's operations.
//! - [`history`]: all operations of a run, and the promises beyond one object's value.

pub mod data;
mod history;
mod linear;
pub mod object;
pub mod settled;
pub mod sight;
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
