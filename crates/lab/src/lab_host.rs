//! The binary's part of the lab: starting and stopping clusters of shoal's own.
//!
//! The lab knows the client and the messenger, but no daemon. The binary implements this trait with its own `up` and
//! `down`.

use crate::matrix::ClusterSpec;
use std::path::{Path, PathBuf};

pub trait LabHost: Sync {
    /// Start a cluster of shoal's in this folder, on ports from `port` on. Returns the path of its `ceph.conf`.
    fn start_cluster(&self, dir: &Path, spec: &ClusterSpec, port: u16) -> anyhow::Result<PathBuf>;

    /// Start the daemons of this folder that do not run, with the data that they stored.
    fn restart_cluster(&self, dir: &Path, spec: &ClusterSpec, port: u16) -> anyhow::Result<()>;

    fn stop_cluster(&self, dir: &Path, spec: &ClusterSpec) -> anyhow::Result<()>;
}
