//! shoal's own load generator, without I/O: it says what to do when, and is told when it was done.
//!
//! - [`generator`]: arrivals, mixes, which object.
//! - [`recorder`]: latencies, seconds, errors.
//! - [`content`]: bytes that prove themselves when they are read back.
//! - [`ceiling`]: the load that tells how much the client can do at all.

pub mod ceiling;
pub mod content;
pub mod generator;
pub mod recorder;
#[cfg(test)]
mod tests;

pub use generator::{Generator, Start};
pub use recorder::Recorder;
