//! What does the lab need of the binary? The client with sockets, and clusters of shoal's own.
//!
//! The lab does not know sockets or daemons of shoal: the binary lends it these hands.

use crate::matrix::{ClusterSpec, Spec};
use crate::results::Measured;
use serde_json::Value;
use std::path::Path;

/// A connection to a cluster's monitors.
pub trait Cluster {
    /// A monitor command, `{"prefix": …}`; the answer as JSON where it is JSON, else as text. A refusal is an error
    /// that carries the monitor's words.
    fn ask(&mut self, command: Value) -> anyhow::Result<Value>;
}

pub trait Hands: Sync {
    /// An unreachable cluster or a wrong key is told within seconds.
    fn connect(&self, conf: &Path) -> anyhow::Result<Box<dyn Cluster>>;

    /// Load by shoal's own client, warm-up and prefill included. `began` is called when the load begins.
    fn load(&self, conf: &Path, pool: &str, spec: &Spec, began: &mut dyn FnMut())
    -> anyhow::Result<Measured>;

    /// Start a cluster of shoal's in this folder on ports from this one. The path of its ceph.conf.
    fn start_shoal(&self, dir: &Path, spec: &ClusterSpec, port: u16) -> anyhow::Result<std::path::PathBuf>;

    fn stop_shoal(&self, dir: &Path) -> anyhow::Result<()>;
}
