//! `shoal leave`: a host gives its data away and leaves the cluster; a dead one is removed from another host.

use super::init::dir_flag;
use crate::cluster::ask::Asker;
use crate::cluster::host::leave;
use crate::cluster::host::record::{DIR_DEFAULT, HostRecord, Stage};
use crate::daemon::data_dir::DataDir;
use anyhow::{Context, ensure};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Drain this host and remove it from the cluster; or remove a dead one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal leave                        move this host's data to the others, stop its daemons, remove it
  shoal leave --destroy              the same, and then remove its files and wipe its disks
  shoal leave --host h2 --dead       on another host, which has a monitor: remove h2, which will not come back

  shoal leave --removed --destroy    on h2, if it comes back after that: stop its daemons, wipe its disks

Nothing is removed before every placement group is clean without the host. The command can be stopped and repeated.
The data of a host that has left stays in its directory and on its disks until `shoal leave --destroy`.")]
pub struct Args {
    /// The host's directory
    #[arg(long, default_value = DIR_DEFAULT)]
    dir: PathBuf,
    /// Another host, which is dead
    #[arg(long, requires = "dead")]
    host: Option<String>,
    /// The host will not come back: its daemons are all down
    #[arg(long, requires = "host")]
    dead: bool,
    /// Another host has removed this one as dead: stop its daemons alone
    #[arg(long, conflicts_with = "host")]
    removed: bool,
    /// Remove the host's files and wipe its disks once it has left
    #[arg(long, conflicts_with = "host")]
    destroy: bool,
    /// Give up when no data has moved for so many seconds
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let dir = std::path::absolute(&args.dir)?;
    let patience = Duration::from_secs(args.timeout);
    let _only_one =
        DataDir::open(&dir).with_context(|| format!("another `shoal` is at work in {}", dir.display()))?;
    if let Some(name) = &args.host {
        let mut admin = Asker::new(&crate::cluster::host::files::admin_access(&dir)?)?;
        if let Some(own) = HostRecord::load(&dir)? {
            ensure!(own.name != *name, "{name} is this host: leave --host and --dead out");
        }
        leave::remove_dead(&mut admin, name, patience)?;
        println!(
            "{name} is out of the cluster. If it comes back, its daemons are refused; there: shoal leave --removed --destroy"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut record = HostRecord::load(&dir)?.with_context(|| {
        format!("{} is no host's directory: `shoal leave` runs on a host that joined", dir.display())
    })?;
    if args.removed && record.stage != Stage::Left {
        leave::after_removal(&dir, &mut record)?;
        println!("{} is no longer of the cluster", record.name);
    } else if record.stage != Stage::Left {
        leave::drain(&dir, &mut record, patience)?;
        println!("{} has left the cluster", record.name);
    } else if !args.destroy {
        println!("{} has left the cluster already", record.name);
    }
    if args.destroy {
        leave::destroy(&dir, &record)?;
    } else {
        println!(
            "its data is still in {}: shoal leave --destroy{} removes it",
            dir.display(),
            dir_flag(&dir)
        );
    }
    Ok(ExitCode::SUCCESS)
}
