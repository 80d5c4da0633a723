//! `shoal join`: this host becomes one of a cluster's.

use super::init::{HostArgs, dir_flag};
use crate::cluster::host::record::{HostRecord, Stage};
use crate::cluster::host::supervise;
use crate::cluster::host::{join, leave, monitors};
use crate::cluster::layout::Cluster;
use anyhow::{Context, bail, ensure};
use mon::join_token::JoinToken;
use runtime::system;
use std::io::Read;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

/// A token is one line; more on standard input is something else.
const INPUT_BYTES_MAX: u64 = 4096;

/// Join a cluster with the token that `shoal init` or `shoal token create` printed, or add disks to a host that has
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal join shoal1-…  --device /dev/nvme0n1 --device /dev/sdb
                            an OSD on each disk; and a monitor, as long as the cluster has fewer than three
  shoal join - < token      the token from standard input, so that it is in no list of processes
  shoal join shoal1-… --dir /srv/h2 --osds 1 --size 4G --addr 10.0.0.2
                            an OSD on a file, in a directory of its own, to try things

Disks must be blank. The host's place in the CRUSH map is host=NAME below root=default; its OSDs' weight is their size, and their
class is hdd or ssd as the kernel says. A join that failed half way says why, and is repeated with the same line.")]
pub struct Args {
    /// The token, or - for standard input
    token: String,
    #[command(flatten)]
    host: HostArgs,
    /// The address of this host that the others reach [default: that of the route to the monitors]
    #[arg(long)]
    addr: Option<IpAddr>,
    /// Run a monitor here, though the cluster has three
    #[arg(long, conflicts_with = "no_mon")]
    mon: bool,
    /// Run no monitor here
    #[arg(long)]
    no_mon: bool,
}

fn read_token(text: &str) -> anyhow::Result<JoinToken> {
    let mut typed = text.to_owned();
    if text == "-" {
        typed.clear();
        std::io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut typed).context("standard input")?;
    }
    Ok(typed.parse()?)
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        !args.host.foreground || args.token == "-",
        "--foreground stays, and every user would see the token in the list of processes: give it on standard input, as in \
         `shoal join - --foreground < FILE`"
    );
    let token = read_token(&args.token)?;
    let (dir, lock) = args.host.open()?;
    let patience = Duration::from_secs(args.host.timeout);
    let there = HostRecord::load(&dir)?;
    ensure!(
        there.is_some() || !dir.join("ceph.conf").exists(),
        "{} has a cluster of `shoal up` already: choose another --dir",
        dir.display()
    );
    if there.is_some() {
        HostRecord::of_member(&dir)?;
    }
    let monitor = if args.mon { Some(true) } else { args.no_mon.then_some(false) };
    let wish = args.host.wish(args.addr, monitor);
    let addr = || match args.addr {
        Some(addr) => Ok(addr),
        None => join::own_address(&token.monitors),
    };
    let mut random = system::os_random()?;
    let before = there.clone();
    let mut record = join::plan(&dir, &token.fsid.to_string(), there, &wish, addr, &mut random)?;
    let has_joined = before.as_ref().is_some_and(|record| record.stage == Stage::Joined);
    let wants_more = before.as_ref().is_none_or(|before| before.osds.len() < record.osds.len())
        || (monitor == Some(true) && !record.monitor);
    if !has_joined && record.osds.is_empty() && monitor == Some(false) {
        bail!("nothing to add: name disks with --device, or leave --no-mon out");
    }
    let cluster = if has_joined && !wants_more {
        println!("{}: host {} is in cluster {} already", dir.display(), record.name, record.fsid);
        let cluster = Cluster::load(&dir)?;
        join::begin(&dir, &cluster, &mut record, patience)?;
        cluster
    } else {
        if before.is_none() {
            join::check_address(&record, monitor != Some(false))?;
        }
        match join::join(&dir, &mut record, &token, monitor, patience) {
            Ok(cluster) => cluster,
            // Where nothing was changed there is nothing to go on with.
            Err(error) if HostRecord::load(&dir)?.is_none() => return Err(error),
            Err(error) => {
                bail!("{error:#}\n{} has not joined completely: repeat the same line to go on", record.name)
            }
        }
    };
    let osds: Vec<String> = record.osds.iter().filter_map(|osd| Some(format!("osd.{}", osd.id?))).collect();
    let monitor = if record.monitor { "a monitor and " } else { "" };
    let osds = if osds.is_empty() { "no OSDs".to_owned() } else { osds.join(", ") };
    println!("{} is in the cluster, with {monitor}{osds}. Next: shoal status{}", record.name, dir_flag(&dir));
    if record.monitor {
        leave::advise_on_monitors(monitors::count(&dir)?);
    }
    drop(lock);
    if args.host.foreground {
        supervise::stay(&cluster, &record.daemons(), patience)?;
    }
    Ok(ExitCode::SUCCESS)
}
