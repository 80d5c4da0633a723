//! What does a daemon say it is?

/// The Ceph release whose behaviour shoal's daemons show to their peers.
pub const RELEASE: &str = "pacific";
pub const SHORT: &str = "16.2.15";
pub const LONG: &str =
    concat!("ceph version 16.2.15 (shoal-", env!("CARGO_PKG_VERSION"), ") pacific (stable)");
pub const GIT: &str = concat!("shoal-", env!("CARGO_PKG_VERSION"));
