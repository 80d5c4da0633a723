//! `shoal up`: a cluster in the background, when healthy.

use super::status::{Health, cluster_health};
use super::term;
use crate::cluster::host::join;
use crate::cluster::host::record::{HostRecord, Stage};
use crate::cluster::layout::{Cluster, conf_path};
use crate::cluster::provision::{Auth, FurtherWish, StoreKind, Wish, ensure_cluster};
use crate::cluster::register::register_daemons;
use crate::cluster::removed;
use crate::cluster::start::{make_disk, start_all};
use crate::config::parse_size;
use crate::daemon::data_dir::DataDir;
use crate::daemon::process::Daemon;
use anyhow::{Context, bail, ensure};
use conf::keyring::Keyring;
use ipnet::IpNet;
use std::io::stdout;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);

/// Start a cluster in the background: one process a daemon. On a directory that has one, or a host, start what is not running.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal up --dir /tmp/c --osds 3                 three OSDs, keys and all
  shoal up --dir /tmp/c --osds 3 --mons 3        the same with three monitors: one may fail
  shoal up --dir /tmp/c                          the same cluster again, after a reboot
  shoal up --dir /tmp/d --auth none --port 14300 a second one beside it, without keys
  shoal up --dir /tmp/e --size 100G              room for 100 GiB on each OSD
  shoal up --dir /tmp/g --encrypt                stores encrypted at rest, keys with the monitors
  shoal up --dir /tmp/f --store mem              objects in memory: to measure, not to keep

What is written: DIR/ceph.conf and DIR/keyring, which Ceph's tools read; for each daemon DIR/NAME.log,
DIR/NAME.pid, DIR/NAME.asok (ceph daemon DIR/osd.0.asok help) and its data in DIR/NAME/.
A store on disk is the file DIR/osd.N/block, which takes room only as it is filled. A memory store is
saved on `shoal down`, and lost when an OSD is killed.")]
pub struct Args {
    /// The cluster's directory
    #[arg(long)]
    dir: PathBuf,
    /// Number of monitors: 1, 3 or 5 [default: 1]. On a cluster that is there: up to this number join it
    #[arg(long)]
    mons: Option<u16>,
    /// Number of OSDs [default: 1]
    #[arg(long)]
    osds: Option<u32>,
    /// Medium of the OSDs' stores [default: disk]
    #[arg(long)]
    store: Option<StoreKind>,
    /// Capacity of each OSD: 20G [default: on disk 10G; in memory, half of the host's for all together]
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// Encrypt the stores of the OSDs that this makes; the monitors keep their keys
    #[arg(long)]
    encrypt: bool,
    /// A faster device for logs and index of each OSD of a new cluster: '/dev/nvme0n1p$id' [default: none]
    #[arg(long)]
    db: Option<String>,
    /// Size of new files for --db, or without it of DIR/osd.N/block.db
    #[arg(long, value_parser = parse_size)]
    db_size: Option<u64>,
    /// A faster device for logs alone, in the same way [default: none]
    #[arg(long)]
    wal: Option<String>,
    /// Size of new files for --wal, or without it of DIR/osd.N/block.wal
    #[arg(long, value_parser = parse_size)]
    wal_size: Option<u64>,
    /// Authentication of clients and daemons [default: cephx]
    #[arg(long)]
    auth: Option<Auth>,
    /// The first port; the daemons use it and those above [default: 13300]
    #[arg(long)]
    port: Option<u16>,
    /// The address to listen on [default: 127.0.0.1]
    #[arg(long)]
    addr: Option<IpAddr>,
    /// A network of their own for the traffic among OSDs: 10.1.0.0/16 [default: none]
    #[arg(long)]
    cluster_network: Option<IpNet>,
    /// Reactor cores of each OSD [default: 1]
    #[arg(long)]
    cores: Option<u32>,
    /// Seconds to wait until the cluster is healthy
    #[arg(long, default_value_t = 60)]
    timeout: u64,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let Args { mons, osds, auth, port, addr, cluster_network, cores, store, size, encrypt, .. } = *args;
    let db = FurtherWish { path: args.db.clone(), size: args.db_size };
    let wal = FurtherWish { path: args.wal.clone(), size: args.wal_size };
    let wish = Wish { mons, osds, auth, port, addr, cluster_network, cores, store, size, encrypt, db, wal };
    // Two `up` at once would start everything twice.
    let _only_one = DataDir::open(&args.dir).context("another `shoal up` is at work")?;
    let patience = Duration::from_secs(args.timeout);
    if HostRecord::load(&args.dir)?.is_some() {
        return start_host(args, patience);
    }
    let is_new = !conf_path(&args.dir).exists();
    let before = forget_removed(&args.dir)?;
    let cluster = ensure_cluster(&args.dir, &wish)?;
    refuse_lost_monitors(&cluster)?;
    refuse_old_disks(&cluster, &before)?;
    let mons = cluster.mons();
    cluster.osds().iter().chain(&mons).for_each(Daemon::wait_while_dying);
    if mons.len() > 1 && !mons[0].is_running() && !cluster.is_made() {
        make_disk(&cluster, &mons[0], &[])?;
    }
    start_all(&cluster, &mons, patience)?;
    register_daemons(&cluster)?;
    if cluster.store_kind()? == StoreKind::Disk {
        let keyring = Keyring::load(&cluster.dir.join("keyring"))?;
        for osd in cluster.osds().iter().filter(|osd| !osd.is_running()) {
            let encrypt = cluster.is_encrypted(&osd.name, &keyring).then(|| "--encrypt".to_owned());
            make_disk(&cluster, osd, encrypt.as_slice())?;
        }
    }
    start_all(&cluster, &cluster.osds(), patience)?;

    let conf = cluster.dir.join("ceph.conf");
    match wait_until_healthy(&cluster, patience)? {
        Health::Ok => {
            println!(
                "{} after {:.1} s. Next: ceph -c {} -s",
                term::green(&stdout(), "healthy"),
                began.elapsed().as_secs_f64(),
                conf.display()
            );
            if is_new {
                print!("{}", first_image(&conf));
            }
            Ok(ExitCode::SUCCESS)
        }
        Health::Warned(why) => {
            println!("{}", term::yellow(&stdout(), &why));
            println!("up after {:.1} s. Next: ceph -c {} -s", began.elapsed().as_secs_f64(), conf.display());
            if is_new {
                print!("{}", first_image(&conf));
            }
            Ok(ExitCode::SUCCESS)
        }
        Health::Not(why) => {
            println!(
                "{}: the daemons run, but the cluster is not healthy:",
                term::yellow(&stdout(), "warning")
            );
            println!("{why}");
            println!("Next: ceph -c {} health detail", conf.display());
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Three commands that make a block image and write to it. They work as they are: `test_rbd` runs them.
fn first_image(conf: &Path) -> String {
    format!(
        "A block image, by stock Ceph's tools (docs/guide/images.md):\n\
         \x20 export CEPH_CONF={}\n\
         \x20 ceph osd pool create rbd 32 && rbd pool init rbd && rbd create disk --size 10G\n\
         \x20 rbd bench --io-type write --io-total 64M disk\n",
        conf.display()
    )
}

/// Monitors that were taken out are not started. Returns the names of those that `ceph.conf` has.
fn forget_removed(dir: &Path) -> anyhow::Result<Vec<String>> {
    if !conf_path(dir).exists() {
        return Ok(Vec::new());
    }
    let mut cluster = Cluster::load(dir)?;
    for name in removed::forget(&mut cluster)? {
        println!(
            "mon.{name} was taken out (`ceph mon rm`): it is not started, and ceph.conf names it no more. It may join again when \
             {}/mon.{name} is removed",
            cluster.dir.display()
        );
    }
    Ok(cluster.mon_names())
}

/// A monitor that is to join must not have the disk of one that was taken out. `before`: monitors that are no new ones.
fn refuse_old_disks(cluster: &Cluster, before: &[String]) -> anyhow::Result<()> {
    let names = cluster.mon_names();
    for name in names.iter().filter(|name| !before.contains(name)) {
        let directory = cluster.dir.join(format!("mon.{name}"));
        ensure!(
            before.is_empty() || !removed::has_disk(&directory),
            "{} is the directory of a monitor that was taken out: remove it, and repeat this: mon.{name} then joins anew",
            directory.display()
        );
    }
    Ok(())
}

/// A monitor that starts without a disk makes a new cluster. Beside stores of OSDs that is the old cluster's end.
fn refuse_lost_monitors(cluster: &Cluster) -> anyhow::Result<()> {
    let has_store = |osd: &&Daemon| cluster.dir.join(&osd.name).join("block").exists();
    if let Some(osd) = cluster.osds().iter().find(has_store).filter(|_| !cluster.is_made()) {
        let dir = cluster.dir.display();
        bail!(
            "{} has a store, and no monitor of {dir} has a disk: the monitors' directories are lost. Put one back, or make a \
             monitor from the OSDs: shoal mon rebuild --conf {dir}/ceph.conf --id a {dir}/osd.*/",
            osd.name
        );
    }
    Ok(())
}

/// The directory is one of a host of several: its daemons start.
fn start_host(args: &Args, patience: Duration) -> anyhow::Result<ExitCode> {
    let dir = std::path::absolute(&args.dir)?;
    let mut record = HostRecord::of_member(&dir)?;
    let is_changed = args.mons.is_some()
        || args.osds.is_some()
        || args.store.is_some()
        || args.encrypt
        || args.size.is_some()
        || args.auth.is_some()
        || args.port.is_some()
        || args.addr.is_some();
    ensure!(!is_changed, "{} is the directory of a host: add disks to it with `shoal join`", dir.display());
    ensure!(
        record.stage != Stage::Joining,
        "{} has not joined completely: repeat the line of `shoal join`, or `shoal init`",
        record.name
    );
    let cluster = Cluster::load(&dir)?;
    join::begin(&dir, &cluster, &mut record, patience)?;
    println!("{} takes part. Next: shoal status --dir {}", record.name, dir.display());
    Ok(ExitCode::SUCCESS)
}

fn wait_until_healthy(cluster: &Cluster, patience: Duration) -> anyhow::Result<Health> {
    let deadline = Instant::now() + patience;
    loop {
        let now = cluster_health(cluster)?;
        if !matches!(now, Health::Not(_)) || Instant::now() > deadline {
            return Ok(now);
        }
        if let Some(gone) = cluster.osds().iter().chain(&cluster.mons()).find(|daemon| !daemon.is_running()) {
            bail!("{} has stopped; see {}", gone.name, gone.log_file().display());
        }
        std::thread::sleep(POLL);
    }
}
