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

    /// Every PG of this pool has answered, so that it is active, whatever the monitors have heard of it. An error is no
    /// more than not to know.
    fn reach(&mut self, pool: &str) -> anyhow::Result<()>;
}

pub trait Hands: Sync {
    /// An unreachable cluster or a wrong key is told within seconds.
    fn connect(&self, conf: &Path) -> anyhow::Result<Box<dyn Cluster>>;

    /// The key that this ceph.conf's client needs, as a keyring; empty where the cluster asks for none.
    fn keyring(&self, conf: &Path) -> anyhow::Result<String>;

    /// Load by shoal's own client, warm-up and prefill included. `begin` is called when all is ready, and the load
    /// begins when it returns.
    fn load(
        &self,
        conf: &Path,
        pool: &str,
        spec: &Spec,
        begin: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured>;

    /// How many operations a second shoal's own client makes of this load on a target that takes no time.
    fn ceiling(&self, spec: &Spec) -> anyhow::Result<f64>;

    /// Start a cluster of shoal's in this folder on ports from this one. The path of its ceph.conf.
    fn start_shoal(&self, dir: &Path, spec: &ClusterSpec, port: u16) -> anyhow::Result<std::path::PathBuf>;

    /// Start what of it does not run, with what it has stored.
    fn start_shoal_again(&self, dir: &Path, spec: &ClusterSpec, port: u16) -> anyhow::Result<()>;

    fn stop_shoal(&self, dir: &Path) -> anyhow::Result<()>;
}
