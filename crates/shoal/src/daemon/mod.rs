//! Every daemon has, besides its role, one data directory, a log, an admin socket, a metrics page, a clean stop.
//!
//! None of it runs on a reactor's thread: [`side`] owns one thread for them all, and asks the role for what only
//! the role knows.

pub mod admin_commands;
pub mod admin_socket;
pub mod block_devices;
pub mod boot;
pub mod cluster_metrics;
pub mod crash;
pub mod data_dir;
pub mod host_facts;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod process;
pub mod restart;
pub mod side;
mod start_checks;
pub mod stored_options;
pub mod version;
