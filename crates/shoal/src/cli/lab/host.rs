//! Clusters of shoal's own for the lab, started and stopped by `shoal up` and `shoal down`.

use anyhow::Context;
use lab::lab_host::LabHost;
use lab::matrix::ClusterSpec;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const START_TIMEOUT: Duration = Duration::from_secs(120);

/// This binary, unless a cluster's spec names another one.
pub struct ThisBinary;

fn shoal(spec: &ClusterSpec, command: &str, dir: &Path) -> anyhow::Result<Command> {
    let program = spec.program.clone().map_or_else(std::env::current_exe, Ok)?;
    let mut out = Command::new(program);
    out.arg(command).arg("--dir").arg(dir);
    Ok(out)
}

impl LabHost for ThisBinary {
    fn start_cluster(&self, dir: &Path, spec: &ClusterSpec, port: u16) -> anyhow::Result<PathBuf> {
        let mut up = shoal(spec, "up", dir)?;
        up.args(["--osds", &spec.osds.to_string(), "--auth", &spec.auth]);
        up.args(["--store", &spec.store, "--port", &port.to_string(), "--cores", &spec.cores.to_string()]);
        lab::tool::process::run(up, START_TIMEOUT).context("starting shoal")?;
        Ok(dir.join("ceph.conf"))
    }

    fn restart_cluster(&self, dir: &Path, spec: &ClusterSpec, port: u16) -> anyhow::Result<()> {
        let mut up = shoal(spec, "up", dir)?;
        // The directory remembers its other options.
        up.args(["--osds", &spec.osds.to_string(), "--port", &port.to_string()]);
        lab::tool::process::run(up, START_TIMEOUT).context("starting shoal again").map(drop)
    }

    fn stop_cluster(&self, dir: &Path, spec: &ClusterSpec) -> anyhow::Result<()> {
        let output = shoal(spec, "down", dir)?.output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }
}
