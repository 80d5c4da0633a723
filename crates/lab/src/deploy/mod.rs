//! Clusters that the lab starts and stops itself: shoal through the binary, stock Ceph from the machine's
//! packages or from a folder that holds another release.
//!
//! - [`stock`]: how stock Ceph is started.

mod stock;

pub use stock::Stock;

use crate::lab_host::LabHost;
use crate::matrix::{ClusterSpec, Deploy};
use crate::tool::release::Release;
use anyhow::{Context, bail, ensure};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A running cluster. The lab stops the clusters it started when this is dropped.
pub struct Running<'a> {
    pub conf: PathBuf,
    /// The stock client programs that measure it.
    pub tools: Release,
    dir: PathBuf,
    spec: ClusterSpec,
    port: u16,
    kind: Kind,
    lab_host: &'a dyn LabHost,
    /// Remove its folder afterwards.
    temporary: bool,
}

enum Kind {
    Existing,
    Shoal,
    Stock(Stock),
}

/// Starts the cluster of a spec in `dir`, or connects to the existing one.
pub fn start<'a>(
    lab_host: &'a dyn LabHost,
    spec: &ClusterSpec,
    existing: Option<&Path>,
    dir: &Path,
    port: u16,
) -> anyhow::Result<Running<'a>> {
    let tools = match spec.tools_release() {
        Some(release) => Release::find(Some(release), "rados")?,
        None => Release::default(),
    };
    let with = |kind, conf, temporary| {
        let (dir, spec) = (dir.to_owned(), spec.clone());
        Running { conf, tools: tools.clone(), dir, spec, port, kind, lab_host, temporary }
    };
    match &spec.deploy {
        Deploy::Existing => {
            let conf =
                spec.conf.as_deref().or(existing).context(
                    "which cluster? Give --conf CEPH_CONF, or `cluster: {deploy: shoal}` in the file",
                )?;
            ensure!(conf.exists(), "{} is not there", conf.display());
            Ok(with(Kind::Existing, std::path::absolute(conf)?, false))
        }
        Deploy::Shoal => {
            clear(dir)?;
            free_ports(port, 1)?;
            // Taken down again when the start fails half-way, or is interrupted.
            let mut running = with(Kind::Shoal, dir.join("ceph.conf"), true);
            running.conf = lab_host.start_cluster(dir, spec, port)?;
            Ok(running)
        }
        Deploy::Stock { release } => {
            clear(dir)?;
            let running =
                with(Kind::Stock(Stock::new(dir, release.as_deref())?), dir.join("ceph.conf"), true);
            if let Kind::Stock(stock) = &running.kind {
                stock.up(spec, port)?;
            }
            Ok(running)
        }
    }
}

/// True if daemons that keep their files here run.
pub fn is_running_in(dir: &Path) -> bool {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    files
        .filter(|file| file.extension().is_some_and(|e| e == "pid"))
        .any(|file| stock::pid_in(&file).is_some())
}

fn clear(dir: &Path) -> anyhow::Result<()> {
    if dir.exists() {
        ensure!(!is_running_in(dir), "a cluster runs in {}: stop it first", dir.display());
        std::fs::remove_dir_all(dir).with_context(|| format!("clearing {}", dir.display()))?;
    }
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))
}

/// A killed process holds its ports until the last of its threads has ended.
const PORT_PATIENCE: Duration = Duration::from_secs(5);

/// Checked here, because a monitor without its port fails late and does not name the option for another.
fn free_ports(first: u16, count: u16) -> anyhow::Result<()> {
    let deadline = Instant::now() + PORT_PATIENCE;
    for port in first..first.saturating_add(count) {
        while let Err(error) = TcpListener::bind(("127.0.0.1", port)) {
            let may_end = error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < deadline;
            ensure!(may_end, "port {port} cannot be used ({error}): choose others with --port");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

fn kill(dir: &Path, name: &str) -> anyhow::Result<()> {
    let file = dir.join(format!("{name}.pid"));
    let pid = stock::pid_in(&file).with_context(|| format!("{name} does not run (by {})", file.display()))?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    stock::wait_until_gone(pid)
}

impl Running<'_> {
    /// Leaves it running, with its folder, for `shoal lab peer`. Returns the command line that speaks to it.
    pub fn leave(mut self) -> String {
        self.temporary = false;
        match std::mem::replace(&mut self.kind, Kind::Existing) {
            Kind::Stock(stock) => stock.says(),
            Kind::Existing | Kind::Shoal => format!("ceph -c {}", self.conf.display()),
        }
    }

    /// True if the lab started this cluster, and can kill and start its daemons.
    pub fn is_ours(&self) -> bool {
        !matches!(self.kind, Kind::Existing)
    }

    /// Kills one daemon without a clean stop.
    pub fn kill_daemon(&self, name: &str) -> anyhow::Result<()> {
        match &self.kind {
            Kind::Existing => bail!("{name} is not the lab's to kill: it did not start this cluster"),
            Kind::Shoal => kill(&self.dir, name),
            Kind::Stock(stock) => stock.kill(name),
        }
    }

    /// Starts it again with its stored data.
    pub fn start_daemon(&self, name: &str) -> anyhow::Result<()> {
        match &self.kind {
            Kind::Existing => bail!("{name} is not the lab's to start: it did not start this cluster"),
            // All of it that does not run.
            Kind::Shoal => self.lab_host.restart_cluster(&self.dir, &self.spec, self.port),
            Kind::Stock(stock) => stock.start(name),
        }
    }

    /// True if this daemon runs on this host.
    pub fn runs(&self, name: &str) -> bool {
        stock::pid_in(&self.dir.join(format!("{name}.pid"))).is_some()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let result = match &self.kind {
            Kind::Existing => Ok(()),
            Kind::Shoal => self.lab_host.stop_cluster(&self.dir, &self.spec),
            Kind::Stock(stock) => stock.down(),
        };
        if let Err(error) = result {
            eprintln!("stopping the cluster in {}: {error:#}", self.dir.display());
        } else if self.temporary {
            drop(std::fs::remove_dir_all(&self.dir));
        }
    }
}
