//! The files that a Ceph user already has: `ceph.conf` and keyrings, read and written as stock tools do.

pub mod conf_file;
pub mod keyring;
