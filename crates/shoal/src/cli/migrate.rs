//! `shoal migrate`: change the layout of a cluster without a storm of backfill, from any host with the administrator's key.

use super::init::dir_flag;
use crate::cluster::host::record::DIR_DEFAULT;
use crate::cluster::layout::conf_path;
use crate::cluster::migrate::{self, Order};
use anyhow::Context;
use client_host::{Access, Modes};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Change the cluster's layout, and move the data a few placement groups at a time
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal migrate -- shoal up --dir /srv/shoal --osds 6      new OSDs, filled gradually
  shoal migrate -- ceph osd pool set data crush_rule racks  another failure domain
  shoal migrate -- ceph osd crush reweight osd.3 2.0        another weight
  shoal migrate                                            copies that are misplaced already
  shoal migrate --dry-run                                  how many copies that would be
  shoal migrate --resume                                   go on after an interruption

The command behind -- runs while `norebalance` is set. Then upmaps hold each misplaced copy where it is, if the rule of its pool allows
that place, and end a few placement groups at a time. Each placement group moves once. Clients are served all the while.
Several commands: -- sh -c 'first; second'. CEPH_CONF names the cluster's configuration for them.
Ctrl-C ends it; data that has not moved stays, and --resume goes on. On a cluster of stock Ceph give --conf.")]
pub struct Args {
    /// The program that changes the cluster, with its arguments
    #[arg(last = true)]
    command: Vec<String>,
    /// Placement groups that move at a time [default: the number of OSDs that are up]
    #[arg(long)]
    pgs: Option<usize>,
    /// Print how many misplaced copies can be held back, and end
    #[arg(long, conflicts_with = "command")]
    dry_run: bool,
    /// Go on with an unfinished migration
    #[arg(long, conflicts_with = "command")]
    resume: bool,
    /// Begin although placement groups are inactive or OSDs are down
    #[arg(long)]
    force: bool,
    /// Seconds without any progress after which it ends
    #[arg(long, default_value_t = 3600)]
    timeout: u64,
    /// The directory of the cluster, or of a host in it
    #[arg(long, default_value = DIR_DEFAULT)]
    dir: PathBuf,
    /// A configuration file instead of the one in the directory
    #[arg(long)]
    conf: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let conf = args.conf.clone().unwrap_or_else(|| conf_path(&args.dir));
    let access = Access::load(&conf, None, "client.admin", Modes::Default).with_context(|| {
        format!(
            "{} names no administrator's key: run this on a host with a monitor, or give --conf",
            conf.display()
        )
    })?;
    let order = Order {
        command: args.command.clone(),
        conf,
        pgs_max: args.pgs,
        dry_run: args.dry_run,
        resume: args.resume,
        force: args.force,
        patience: Duration::from_secs(args.timeout),
    };
    migrate::run(&access, &order, &again(args))?;
    Ok(ExitCode::SUCCESS)
}

fn again(args: &Args) -> String {
    let place = match &args.conf {
        Some(conf) => format!(" --conf {}", conf.display()),
        None => dir_flag(&args.dir),
    };
    format!("shoal migrate --resume{place}")
}
