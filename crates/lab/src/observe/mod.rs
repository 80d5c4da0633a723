//! What goes on while a load runs? Samples of processes, processors, disks, links, daemons and PGs on one timeline.
//!
//! - [`procfs`]: what the kernel tells, as values that two readings make into rates.
//! - [`daemon`]: admin sockets: whose they are, and what their counters say.
//! - [`observer`]: the thread that looks at all of it.

pub mod daemon;
pub mod observer;
pub mod procfs;

pub use observer::Observer;
