//! `shoal bench`: a preset of the lab's load generator on one pool; and single objects, stored or fetched.

mod object;
mod report;

use crate::cluster::layout::conf_path;
use anyhow::Context;
use bytes::Bytes;
use client_host::{Access, ClientHost, Modes};
use lab::load::{Load, Objects};
use lab::matrix::{Op, Spec, Tool};
use report::Report;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use wire::messages::{Body, MMonCommand, MPoolOp, PaxosHeader};
use wire::types::{SnapId, Uuid};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// Write at random places
    Write,
    /// Read at random places; the objects are written first
    Read,
    /// Seven reads to three writes
    Mixed,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Write => "write",
            Work::Read => "read",
            Work::Mixed => "mixed",
        }
    }

    fn op(self) -> Op {
        match self {
            Work::Write => Op::RandWrite,
            Work::Read => Op::RandRead,
            Work::Mixed => Op::RandMixed,
        }
    }
}

/// Measure a cluster, shoal's or Ceph's, with shoal's own client
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("cluster").required(true).args(["dir", "conf"]), after_help = "\
Examples:
  shoal bench --dir .shoal --pool first                           4 KiB objects, written and read, 8 x 64 in flight
  shoal bench --conf /etc/ceph/ceph.conf --pool test -t 1 --connections 1 --work read
  shoal bench --dir .shoal --pool first --object-size 4M --objects 320 --keep --work write
                                                                  4 KiB at random places in 2560 objects of 4 MiB
  shoal bench --dir .shoal --pool first --object-size 4M --objects 320 --existing --work read")]
pub struct Args {
    /// The cluster's directory
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A ceph.conf, of shoal or of Ceph
    #[arg(long, short)]
    conf: Option<PathBuf>,
    /// The keyring, when the ceph.conf does not say where it is
    #[arg(long)]
    keyring: Option<PathBuf>,
    #[arg(long, default_value = "client.admin")]
    name: String,
    /// Protection of connections
    #[arg(long, value_enum, default_value = "default")]
    mode: Modes,
    #[arg(long)]
    pool: String,
    /// Make the pool when it is not there
    #[arg(long)]
    create_pool: bool,

    /// Store a file as an object, and do nothing else
    #[arg(long, num_args = 2, value_names = ["OBJECT", "FILE"], conflicts_with_all = ["get", "stat", "list"])]
    put: Option<Vec<OsString>>,
    /// Fetch an object into a file, and do nothing else
    #[arg(long, num_args = 2, value_names = ["OBJECT", "FILE"], conflicts_with_all = ["stat", "list"])]
    get: Option<Vec<OsString>>,
    /// Print an object's size, and do nothing else
    #[arg(long, value_name = "OBJECT", conflicts_with = "list")]
    stat: Option<OsString>,
    /// Print the names of the pool's objects, and do nothing else
    #[arg(long)]
    list: bool,

    /// The load; writes and then reads if not given
    #[arg(long, value_enum)]
    work: Option<Work>,
    /// Bytes of one operation (4k, 4M, …)
    #[arg(long, default_value = "4k", value_parser = parse_bytes)]
    size: u64,
    /// Bytes of one object: operations go to random places in it. As large as an operation when not given
    #[arg(long, value_parser = parse_bytes)]
    object_size: Option<u64>,
    /// Objects for each connection
    #[arg(long, default_value_t = 256)]
    objects: u64,
    /// Operations in flight on each connection
    #[arg(long, short = 't', default_value_t = 64)]
    depth: u32,
    /// Connections, each with a client of its own; all run on one thread
    #[arg(long, default_value_t = 8)]
    connections: u32,
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds of load before counting begins
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// Seconds after the end in which replies are awaited: a cluster that went away does not hold the load up
    #[arg(long, default_value_t = 30.0)]
    grace: f64,
    /// Leave the objects there
    #[arg(long)]
    keep: bool,
    /// The objects are there from an earlier run with --keep: do not write them first
    #[arg(long)]
    existing: bool,
    /// Tell the result as JSON
    #[arg(long)]
    json: bool,
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    match crate::config::parse_size(text) {
        Ok(0) | Err(_) => Err(format!("{text} is no size: expected a number, and K, M or G")),
        Ok(bytes) => Ok(bytes),
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let conf = match (&args.dir, &args.conf) {
        (Some(dir), _) => conf_path(dir),
        (None, Some(conf)) => conf.clone(),
        (None, None) => anyhow::bail!("--dir or --conf says which cluster"),
    };
    let access = Access::load(&conf, args.keyring.as_deref(), &args.name, args.mode)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.create_pool {
        runtime.block_on(create_pool(&access, &args.pool))?;
    }
    if args.put.is_some() || args.get.is_some() || args.stat.is_some() || args.list {
        return runtime.block_on(object::run(args, &access));
    }
    let works = args.work.map_or_else(|| vec![Work::Write, Work::Read], |work| vec![work]);
    let mut is_clean = true;
    for work in works {
        let report = measure(args, &access, work)?;
        is_clean &= report.is_clean();
        match args.json {
            true => println!("{}", report.to_json()),
            false => println!("{report}"),
        }
    }
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One load of the lab's generator: closed loop, random places, in a pool that is there.
fn measure(args: &Args, access: &Access, work: Work) -> anyhow::Result<Report> {
    let object_bytes = args.object_size.unwrap_or(args.size);
    anyhow::ensure!(object_bytes.is_multiple_of(args.size), "--object-size must be a multiple of --size");
    anyhow::ensure!(
        args.connections > 0 && args.depth > 0 && args.objects > 0,
        "--connections, --depth and --objects must be at least 1"
    );
    for seconds in [args.seconds, args.warm_up, args.grace] {
        Duration::try_from_secs_f64(seconds).context("a time must be a positive number of seconds")?;
    }
    let spec = Spec {
        tool: Tool::Shoal,
        op: work.op(),
        op_bytes: args.size,
        object_bytes: (object_bytes > args.size).then_some(object_bytes),
        objects: args.objects,
        clients: args.connections,
        depth: args.depth,
        seconds: args.seconds,
        ramp_s: args.warm_up,
        ..Spec::default()
    };
    let bar = report::Bar::new(!args.json && std::io::stderr().is_terminal());
    let progress = |progress| bar.show(progress);
    let load = Load {
        objects: Objects { prefix: "shoal_bench".into(), exist: args.existing, keep: args.keep },
        grace: Duration::from_secs_f64(args.grace),
        progress: Some(&progress),
        ..Load::new(access, &args.pool, &spec)
    };
    let measured = load.run(&mut || Ok(()));
    bar.clear();
    Ok(Report { work, spec, measured: measured? })
}

const TIMEOUT: Duration = Duration::from_secs(30);
const EEXIST: i32 = -17;

async fn create_pool(access: &Access, pool: &str) -> anyhow::Result<()> {
    let mut host = ClientHost::new(access)?;
    host.connect(TIMEOUT).await?;
    if host.client().pool_by_name(pool).is_some() {
        return Ok(());
    }
    let create = MPoolOp {
        paxos: PaxosHeader::default(),
        fsid: Uuid::default(),
        pool: 0,
        op: MPoolOp::CREATE,
        snap: SnapId(0),
        name: pool.to_owned(),
        crush_rule: -1,
    };
    let Body::MPoolOpReply(reply) = host.ask_monitor(create, TIMEOUT).await? else {
        anyhow::bail!("the monitor answered the pool creation with a message that is no pool reply");
    };
    anyhow::ensure!(
        reply.result >= 0 || reply.result == EEXIST,
        "creating pool {pool}: errno {}",
        -reply.result
    );
    let enable = serde_json::json!({
        "prefix": "osd pool application enable", "pool": pool, "app": "rados", "yes_i_really_mean_it": true,
    });
    let command = MMonCommand {
        paxos: PaxosHeader::default(),
        fsid: Uuid::default(),
        command: vec![enable.to_string()],
        input: Bytes::new(),
    };
    // A pool without an application works, and health warns of it.
    host.ask_monitor(command, TIMEOUT).await?;
    let epoch = reply.epoch;
    host.with(|(client, now, fx)| client.want_map(now, epoch, fx));
    while host.client().pool_by_name(pool).is_none() {
        tokio::time::timeout(TIMEOUT, host.turn())
            .await
            .with_context(|| format!("pool {pool} does not appear"))?;
    }
    Ok(())
}
