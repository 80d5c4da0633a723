//! The timeline of a load: samples of processes, processors, disks, links, daemons and PGs.
//!
//! - [`procfs`]: the kernel's counters; two readings give rates.
//! - [`daemon`]: admin sockets: their daemons, and their counters.
//! - [`observer`]: the thread that looks at all of it.

pub mod daemon;
pub mod observer;
pub mod procfs;

pub use observer::Observer;
