//! The files that a Ceph user already has: `ceph.conf` and keyrings, read and written as stock tools do. And files that
//! only their owner can read.

pub mod conf_file;
pub mod keyring;
pub mod mon_host;
pub mod private;
