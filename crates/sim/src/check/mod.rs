//! What must hold of what clients saw.
//!
//! - [`object`]: an object as a value, and what each operation does to it; its bytes are [`data`].
//! - [`linear`]: linearizability of one object's operations.
//! - [`history`]: all operations of a run, and the promises that are not about one object's value.

pub mod data;
mod history;
mod linear;
pub mod object;
#[cfg(test)]
mod tests;
mod violation;

pub use data::Fill;
pub use history::{History, ListingRef, Summary, TrueTime};
pub use linear::{Checker, Impossible, OpRef};
pub use object::{Answer, Object, Output, Step};
pub use violation::{Promise, Violation};

/// What a write carries: a number that no other write of the run carries.
pub type Token = u64;
