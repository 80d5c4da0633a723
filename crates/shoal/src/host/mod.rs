//! Where pure machines meet the machine they run on: disks, clocks, threads.
//!
//! - [`ask`]: how other threads ask a role something.
//! - [`census`]: which of two copies of a collection counts, when cores start.
//! - [`clock`]: when machines are told the wall time anew.
//! - [`store`]: what one core keeps its objects in; [`disk`]: on a disk; [`shards`]: several shards of it;
//!   [`store_figures`]: what it counts.
//! - [`identity`]: names, addresses and keys, from the configuration.
//! - [`store_files`]: a memory store between two runs of its daemon.

pub mod ask;
pub mod census;
pub mod clock;
pub mod disk;
pub mod identity;
pub mod mgr;
pub mod mon;
pub mod mon_log;
pub mod osd;
pub mod shards;
pub mod store;
mod store_figures;
pub mod store_files;
