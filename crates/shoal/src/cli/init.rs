//! `shoal init`: a new cluster on this host, which others join.

use crate::cluster::ask::Asker;
use crate::cluster::host::join::{self, JOIN_PATIENCE, Wish};
use crate::cluster::host::record::{DIR_DEFAULT, HostRecord, Stage};
use crate::cluster::host::{files, supervise};
use crate::cluster::layout::Cluster;
use crate::cluster::provision::new_uuid;
use crate::cluster::start::make_disk;
use crate::config::parse_size;
use crate::daemon::data_dir::DataDir;
use anyhow::{Context, ensure};
use ipnet::IpNet;
use mon::join_token::JoinToken;
use runtime::system;
use serde_json::json;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Seconds for which the token that this command makes for itself is valid.
const OWN_TOKEN_S: u32 = 600;

/// Make a cluster of several hosts, with this one as its first. Prints the line to type on the others
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal init --addr 10.0.0.1 --device /dev/nvme0n1 --device /dev/nvme1n1
                            on the first host: a monitor, a manager and an OSD for each disk
  shoal join TOKEN --device /dev/nvme0n1
                            on each other host: the line that `shoal init` printed, and its disks
  shoal status              on any host: the whole cluster

The cluster keeps three copies of each object, on three hosts; pools become clean once three hosts have OSDs.
Where systemd runs, root's daemons are units (shoal-mon@NAME, shoal-osd@N) on /var/lib/shoal. With another --dir they are
processes in the background. Ports: PORT of the monitor, PORT + 1 the manager, PORT + 10 + 2·N OSD number N, and the metrics page
of each in the next one.
A second `shoal init` on the same directory starts what does not run, adds disks that are new, and makes no second cluster.")]
pub struct Args {
    /// The address of this host that the others reach
    #[arg(long)]
    addr: IpAddr,
    #[command(flatten)]
    host: HostArgs,
    /// The level over which copies are spread
    #[arg(long, default_value = "host", value_parser = ["host", "osd"])]
    failure_domain: String,
    /// A network of their own for the traffic among OSDs: 10.1.0.0/16 [default: none]
    #[arg(long)]
    cluster_network: Option<IpNet>,
}

/// The part that `init` and `join` share.
#[derive(Debug, clap::Args)]
// clap names a group after its struct.
#[group(skip)]
pub struct HostArgs {
    /// The host's directory
    #[arg(long, default_value = DIR_DEFAULT)]
    pub dir: PathBuf,
    /// The host's name in the cluster [default: its hostname up to the first dot]
    #[arg(long)]
    pub name: Option<String>,
    /// A blank disk or partition for an OSD; several times for several
    #[arg(long = "device")]
    pub devices: Vec<PathBuf>,
    /// A faster device for logs and index of the OSD on a --device: the first for the first one, and so on
    #[arg(long = "db", requires = "devices")]
    pub dbs: Vec<PathBuf>,
    /// A faster device for logs alone, in the same way
    #[arg(long = "wal", requires = "devices")]
    pub wals: Vec<PathBuf>,
    /// OSDs on files in the directory, to try things
    #[arg(long)]
    pub osds: Option<u32>,
    /// Size of each such file
    #[arg(long, default_value = "10G", value_parser = parse_size)]
    pub size: u64,
    /// Encrypt the stores of the OSDs that this makes; the monitors keep their keys
    #[arg(long)]
    pub encrypt: bool,
    /// The port of the host's monitor; its daemons use those above [default: 3300]
    #[arg(long)]
    pub port: Option<u16>,
    /// Stay, and stop the host's daemons on SIGTERM: for containers and supervisors
    #[arg(long)]
    pub foreground: bool,
    /// Seconds to wait until the host's daemons take part
    #[arg(long, default_value_t = JOIN_PATIENCE.as_secs())]
    pub timeout: u64,
}

impl HostArgs {
    pub fn wish(&self, addr: Option<IpAddr>, monitor: Option<bool>) -> Wish {
        Wish {
            name: self.name.clone(),
            addr,
            port: self.port,
            devices: self.devices.clone(),
            dbs: self.dbs.clone(),
            wals: self.wals.clone(),
            osds: self.osds,
            size: self.size,
            monitor,
            encrypt: self.encrypt,
        }
    }

    /// The directory, held against a second `shoal` that would change it.
    pub fn open(&self) -> anyhow::Result<(PathBuf, DataDir)> {
        let dir = std::path::absolute(&self.dir)?;
        let lock = DataDir::open(&dir)
            .with_context(|| format!("another `shoal` is at work in {}", dir.display()))?;
        Ok((dir, lock))
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (dir, lock) = args.host.open()?;
    let patience = std::time::Duration::from_secs(args.host.timeout);
    let there = HostRecord::load(&dir)?;
    let is_again = there.as_ref().is_some_and(|record| record.stage == Stage::Joined);
    if there.is_some() {
        HostRecord::of_member(&dir)?;
    }
    ensure!(
        there.is_some() || !dir.join("ceph.conf").exists(),
        "{} has a cluster of `shoal up` already: choose another --dir",
        dir.display()
    );
    let mut random = system::os_random()?;
    let fsid = there.as_ref().map_or_else(|| new_uuid(&mut random), |record| record.fsid.clone());
    let wish = args.host.wish(Some(args.addr), Some(true));
    let before = there.as_ref().map_or(0, |record| record.osds.len());
    let mut record = join::plan(&dir, &fsid, there, &wish, || Ok(args.addr), &mut random)?;
    ensure!(
        record.monitor || !is_again,
        "the host {} of {} has joined a cluster and did not make it: use `shoal join` here",
        record.name,
        dir.display()
    );
    let cluster = match is_again {
        true if record.osds.len() == before => {
            println!(
                "{}: host {} of cluster {} is there already: nothing is made anew",
                dir.display(),
                record.name,
                record.fsid
            );
            let cluster = Cluster::load(&dir)?;
            join::begin(&dir, &cluster, &mut record, patience)?;
            cluster
        }
        _ => {
            if !is_again {
                make(&dir, args, &mut record, patience)?;
            }
            let mut admin = Asker::new(&files::admin_access(&dir)?)?;
            let token = make_token(&mut admin, &json!({ "expires": OWN_TOKEN_S, "uses": 1, "mons": true }))?;
            let cluster = join::join(&dir, &mut record, &token, Some(true), patience)?;
            admin.ask(&json!({ "prefix": "shoal token revoke", "id": token.id }))?;
            cluster
        }
    };
    let mut admin = Asker::new(&files::admin_access(&dir)?)?;
    tell_next(&dir, &record, &mut admin, is_again)?;
    drop(lock);
    if args.host.foreground {
        supervise::stay(&cluster, &record.daemons(), patience)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The first monitor, alone. A second time it is only started.
fn make(
    dir: &Path,
    args: &Args,
    record: &mut HostRecord,
    patience: std::time::Duration,
) -> anyhow::Result<()> {
    record.monitor = true;
    let is_made = dir.join("ceph.conf").exists() && Cluster::load(dir)?.is_made();
    if !is_made {
        join::check_address(record, true)?;
        record.save(dir)?;
        let mut cluster = files::write(dir, record, &[])?;
        let chooseleaf_type = if args.failure_domain == "host" { 1 } else { 0 };
        files::set_failure_domain(&mut cluster, chooseleaf_type)?;
        // A second time after a crash there are keys already, and the disk is made with those.
        if !dir.join("keyring").exists() {
            files::add_keys(dir, files::first_keys(record, &mut system::os_random()?))?;
        }
        make_disk(&cluster, &cluster.daemon(&format!("mon.{}", record.name)), &[])?;
    }
    let cluster = Cluster::load(dir)?;
    supervise::start(&cluster, record, &[format!("mon.{}", record.name)], patience)?;
    if let Some(network) = args.cluster_network {
        let mut admin = Asker::new(&files::admin_access(dir)?)?;
        let (name, value) = ("cluster_network", network.to_string());
        admin.ask(&json!({ "prefix": "config set", "who": "global", "name": name, "value": value }))?;
    }
    Ok(())
}

/// A new token: `more` has the terms.
pub fn make_token(admin: &mut Asker, more: &serde_json::Value) -> anyhow::Result<JoinToken> {
    let mut command = json!({ "prefix": "shoal token create" });
    for (name, value) in more.as_object().into_iter().flatten() {
        command[name] = value.clone();
    }
    let answer = admin.json(&command)?;
    let text = answer["token"].as_str().context("the monitors' answer has no token")?;
    Ok(text.parse()?)
}

fn tell_next(dir: &Path, record: &HostRecord, admin: &mut Asker, is_again: bool) -> anyhow::Result<()> {
    let shown = dir.display();
    if is_again {
        println!("for another host make a token: shoal token create --mons{}", dir_flag(dir));
        return Ok(());
    }
    let token = make_token(admin, &json!({ "mons": true }))?;
    println!(
        "\ncluster {} has its first host, {}. On each other host, with its disks:\n",
        record.fsid, record.name
    );
    println!("  shoal join {token}\n");
    println!(
        "The token is valid for a day and opens the cluster to whoever has it. End it: shoal token revoke {}{}",
        token.id,
        dir_flag(dir)
    );
    println!("Next: shoal status{}; ceph -c {shown}/ceph.conf -s", dir_flag(dir));
    Ok(())
}

/// `--dir DIR` for a command line that is to be typed, if it is needed there.
pub fn dir_flag(dir: &Path) -> String {
    if dir == Path::new(DIR_DEFAULT) { String::new() } else { format!(" --dir {}", dir.display()) }
}
