//! Where pure machines meet the machine they run on: disks, clocks, threads.
//!
//! - [`store_files`]: a memory store between two runs of its daemon.

pub mod store_files;
