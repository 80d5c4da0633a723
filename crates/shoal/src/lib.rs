//! The shoal binary's inside: command line, configuration, and the wiring of pure machines to the machine they run on.
//!
//! - [`cli`]: the command line, one file a command.
//! - [`cluster`]: a whole cluster in one directory.
//! - [`config`]: ceph.conf and command line, and the options that the host acts on.
//! - [`daemon`]: what every daemon has besides its role.
//! - [`host`]: where machines meet disks, clocks and threads.
//! - [`store_tool`]: a store on disk in a person's hands.

pub mod cli;
pub mod cluster;
pub mod config;
pub mod daemon;
pub mod host;
pub mod store_tool;
