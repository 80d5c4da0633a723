//! shoal's own load generator, the only one: `shoal lab run` (tool `shoal`) and `shoal bench` both use it.
//!
//! - [`generator`], [`schedule`], [`recorder`], [`content`]: without I/O, tested in virtual time. When each operation
//!   starts, when the load is over, what was measured, and whether a read returned the bytes that were written.
//! - [`connections`]: the same over real connections to a cluster.
//! - [`ceiling`]: the rate of this load generator on a cluster that takes no time ([`null_cluster`]).

pub mod ceiling;
mod connections;
pub mod content;
mod generator;
mod null_cluster;
mod recorder;
mod schedule;
#[cfg(test)]
mod tests;

pub use connections::{Load, NO_ROOM, Objects};
pub use generator::{Generator, Start};
pub use recorder::{Progress, Recorder};
pub use schedule::{Next, Schedule};
