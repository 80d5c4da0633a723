//! Where pure machines meet the machine they run on: disks, clocks, threads.
//!
//! - [`ask`]: how other threads ask a role something.
//! - [`osd`], [`mon`], [`mgr`]: the hosts of the roles' machines.
//! - [`stale_scan`]: the barrier between cores that start, for [`osd::node::stale`](::osd::node::stale).
//! - [`images`]: the client that the manager's work on block images uses.
//! - [`store`](mod@store): the store of one core; [`disk`]: on a disk; [`store_devices`]: its devices; [`making`]:
//!   mkfs; [`store_figures`]: its counters.
//! - [`addresses`]: where an OSD listens.
//! - [`identity`]: names, addresses and keys, from the configuration.
//! - [`store_files`]: a memory store between two runs of its daemon.

pub mod addresses;
pub mod ask;
pub mod disk;
pub mod identity;
pub mod images;
pub mod making;
pub mod mgr;
pub mod mgr_keeper;
pub mod mon;
pub mod mon_log;
pub mod osd;
pub mod stale_scan;
pub mod store;
pub mod store_devices;
mod store_figures;
pub mod store_files;
pub mod store_key;
