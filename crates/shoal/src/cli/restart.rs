//! `shoal restart`: daemons of the whole cluster start again, one after the other, from any host with the administrator's key.

use super::init::dir_flag;
use crate::cluster::host::record::DIR_DEFAULT;
use crate::cluster::layout::{Cluster, conf_path};
use crate::cluster::restart::{self, Only, Order, Past};
use anyhow::Context;
use client_host::{Access, Modes};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Restart daemons, each with the program that is installed on its host by then; the cluster goes on serving
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["names", "rolling"]), after_help = "\
Examples:
  shoal restart --rolling --dry-run      the plan, and nothing else
  shoal restart --rolling                all daemons of all hosts: monitors, then OSDs host by host
  shoal restart --rolling --host h2      those of one host
  shoal restart --rolling --resume       go on where the last one was interrupted
  shoal restart osd.3                    one daemon

To upgrade: install the new program on every host, under the path of the old one, and restart.
Every daemon stops cleanly and starts again in its process; nothing logs in to other hosts. A monitor restarts once all others are in
the quorum; the leader hands over and goes last. As many OSDs of a host restart together as `ceph osd ok-to-stop` allows, with `noout`
set for them alone, and the next ones once they are up and all PGs are as clean as before. A daemon whose installed program does not
run stays as it is. A manager restarts with the monitor in whose process it is.
Ctrl-C ends it after the command that is under way; the cluster goes on.")]
pub struct Args {
    /// Daemons: osd.3, mon.a
    names: Vec<String>,
    /// All daemons, or those that --only and --host name
    #[arg(long)]
    rolling: bool,
    /// Daemons of one kind
    #[arg(long, requires = "rolling")]
    only: Option<Only>,
    /// Daemons of one host
    #[arg(long, requires = "rolling")]
    host: Option<String>,
    /// Print the plan and end
    #[arg(long)]
    dry_run: bool,
    /// Leave out what an interrupted rolling restart has done
    #[arg(long, requires = "rolling")]
    resume: bool,
    /// Forget an interrupted rolling restart
    #[arg(long, requires = "rolling", conflicts_with = "resume")]
    anew: bool,
    /// Restart on an unhealthy cluster, and OSDs whose placement groups become inactive meanwhile
    #[arg(long)]
    force: bool,
    /// Seconds for each wait: until a daemon is back, until PGs are clean
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// The directory of the cluster, or of a host in it
    #[arg(long, default_value = DIR_DEFAULT)]
    dir: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    Cluster::load(&args.dir)?;
    let access =
        Access::load(&conf_path(&args.dir), None, "client.admin", Modes::Default).with_context(|| {
            format!("{} has no administrator's key: run this on a host with a monitor", args.dir.display())
        })?;
    let order = Order {
        names: args.names.clone(),
        only: args.only,
        host: args.host.clone(),
        force: args.force,
        dry_run: args.dry_run,
        past: match (args.resume, args.anew) {
            (true, _) => Past::Resume,
            (false, true) => Past::Forget,
            (false, false) => Past::Refuse,
        },
        patience: Duration::from_secs(args.timeout),
    };
    restart::run(&access, &order, &again(args))?;
    Ok(ExitCode::SUCCESS)
}

/// The command with the choice of daemons that these arguments make.
fn again(args: &Args) -> String {
    let only = match args.only {
        Some(Only::Mon) => " --only mon",
        Some(Only::Osd) => " --only osd",
        None => "",
    };
    let host = args.host.iter().map(|host| format!(" --host {host}")).collect::<String>();
    format!("shoal restart --rolling{only}{host}{}", dir_flag(&args.dir))
}
