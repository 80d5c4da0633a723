//! A whole cluster in one directory: who is in it, and what its first files say.
//!
//! - [`layout`]: which daemons a directory has, where they listen, how each is started.
//! - [`provision`]: a new cluster's `ceph.conf` and keys.
//! - [`register`]: introducing its OSDs to the monitor.

pub mod layout;
pub mod provision;
pub mod register;
