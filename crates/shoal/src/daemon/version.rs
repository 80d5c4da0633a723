//! The version that a daemon reports.

/// The Ceph release whose behaviour shoal's daemons show to their peers.
pub const RELEASE: &str = "tentacle";
pub const SHORT: &str = "20.2.4";
pub const LONG: &str =
    concat!("ceph version 20.2.4 (shoal-", env!("CARGO_PKG_VERSION"), ") tentacle (stable)");
pub const GIT: &str = concat!("shoal-", env!("CARGO_PKG_VERSION"));
