//! Daemons of a directory as background processes: making their disks, starting them.

use super::layout::Cluster;
use crate::daemon::process::{Daemon, last_lines};
use std::time::Duration;

/// Makes the disk of an OSD, or of the first of several monitors. Once: a second time finds it made. `more`: further arguments of
/// `--mkfs`.
pub fn make_disk(cluster: &Cluster, daemon: &Daemon, more: &[String]) -> anyhow::Result<()> {
    let mut args = cluster.start_args(daemon)?;
    args.push("--mkfs".into());
    args.extend_from_slice(more);
    let mut child = daemon.start(&args)?;
    anyhow::ensure!(
        child.wait()?.success(),
        "{}'s disk could not be made; its log ends with:\n{}",
        daemon.name,
        last_lines(&daemon.log_file(), 5)
    );
    Ok(())
}

/// Starts those that do not run, as background processes.
pub fn start_all(cluster: &Cluster, daemons: &[Daemon], patience: Duration) -> anyhow::Result<()> {
    let mut started = Vec::new();
    for daemon in daemons {
        if let Some(pid) = daemon.pid() {
            println!("{:<8} runs already (process {pid})", daemon.name);
        } else {
            started.push((daemon, daemon.start(&cluster.start_args(daemon)?)?));
        }
    }
    for (daemon, child) in &mut started {
        daemon.wait_until_up(child, patience)?;
        println!("{:<8} started (process {})", daemon.name, child.id());
    }
    Ok(())
}
