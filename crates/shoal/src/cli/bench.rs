//! `shoal bench`: load on a cluster through shoal's own client; and one object stored, fetched or looked at with it.

use crate::bench::{Load, Work};
use crate::cluster::layout::conf_path;
use anyhow::Context;
use bytes::Bytes;
use client::{Listing, ObjectRef, Operation, ReadOps, WriteOps};
use client_host::{Access, ClientHost, Modes};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use wire::messages::{Body, MMonCommand, MPoolOp, PaxosHeader};
use wire::types::{PoolId, SnapId, Uuid};

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
    /// How connections are protected
    #[arg(long, value_enum, default_value = "default")]
    mode: Modes,
    #[arg(long)]
    pool: String,
    /// Make the pool when it is not there
    #[arg(long)]
    create_pool: bool,

    /// Store a file as an object, and do nothing else
    #[arg(long, num_args = 2, value_names = ["OBJECT", "FILE"], conflicts_with_all = ["get", "stat", "list"])]
    put: Option<Vec<String>>,
    /// Fetch an object into a file, and do nothing else
    #[arg(long, num_args = 2, value_names = ["OBJECT", "FILE"], conflicts_with_all = ["stat", "list"])]
    get: Option<Vec<String>>,
    /// Print an object's size, and do nothing else
    #[arg(long, value_name = "OBJECT", conflicts_with = "list")]
    stat: Option<String>,
    /// Print the names of the pool's objects, and do nothing else
    #[arg(long)]
    list: bool,

    /// What to do; both writing and reading when not given
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
    depth: usize,
    /// Connections, each with a client of its own
    #[arg(long, default_value_t = 8)]
    connections: usize,
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds of load before counting begins
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
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
    match crate::config::options::parse_size(text) {
        Some(0) | None => Err(format!("{text} is no size: expected a number, and K, M or G")),
        Some(bytes) => Ok(bytes),
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(go(args))
}

async fn go(args: &Args) -> anyhow::Result<ExitCode> {
    let conf = match (&args.dir, &args.conf) {
        (Some(dir), _) => conf_path(dir),
        (None, Some(conf)) => conf.clone(),
        (None, None) => anyhow::bail!("--dir or --conf says which cluster"),
    };
    let access = Access::load(&conf, args.keyring.as_deref(), &args.name, args.mode)?;
    if args.create_pool {
        create_pool(&access, &args.pool).await?;
    }
    if args.put.is_some() || args.get.is_some() || args.stat.is_some() || args.list {
        return one_object(args, &access).await;
    }
    let works = args.work.map_or_else(|| vec![Work::Write, Work::Read], |work| vec![work]);
    let mut failed = false;
    for work in works {
        let load = load_of(args, work)?;
        let progress = !args.json && std::io::stderr().is_terminal();
        let report = crate::bench::run(&access, &args.pool, &load, progress).await?;
        failed |= report.errors() > 0;
        if args.json {
            println!("{}", report.to_json());
        } else {
            println!("{report}");
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn load_of(args: &Args, work: Work) -> anyhow::Result<Load> {
    let object_bytes = args.object_size.unwrap_or(args.size);
    anyhow::ensure!(object_bytes.is_multiple_of(args.size), "--object-size must be a multiple of --size");
    anyhow::ensure!(args.connections > 0 && args.depth > 0 && args.objects > 0, "a load of nothing");
    let seconds =
        |s: f64| Duration::try_from_secs_f64(s).context("a time must be a positive number of seconds");
    Ok(Load {
        work,
        io_bytes: args.size,
        object_bytes,
        objects_per_connection: args.objects,
        connections: args.connections,
        depth: args.depth,
        warm_up: seconds(args.warm_up)?,
        duration: seconds(args.seconds)?,
        keep_objects: args.keep,
        objects_exist: args.existing,
    })
}

const WAIT: Duration = Duration::from_secs(30);
const EEXIST: i32 = -17;

async fn create_pool(access: &Access, pool: &str) -> anyhow::Result<()> {
    let mut host = ClientHost::new(access)?;
    host.connect(WAIT).await?;
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
    let Body::MPoolOpReply(reply) = host.ask_monitor(create, WAIT).await? else {
        anyhow::bail!("the monitor's answer is none to a pool operation");
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
    host.ask_monitor(command, WAIT).await?;
    let epoch = reply.epoch;
    host.with(|(client, now, fx)| client.want_map(now, epoch, fx));
    while host.client().pool_by_name(pool).is_none() {
        tokio::time::timeout(WAIT, host.turn())
            .await
            .with_context(|| format!("pool {pool} does not appear"))?;
    }
    Ok(())
}

async fn one_object(args: &Args, access: &Access) -> anyhow::Result<ExitCode> {
    let mut host = ClientHost::new(access)?;
    host.connect(WAIT).await?;
    let pool =
        host.client().pool_by_name(&args.pool).with_context(|| format!("there is no pool {}", args.pool))?;
    if let Some([object, file]) = args.put.as_deref() {
        put(&mut host, ObjectRef::new(pool, object.as_str()), file.as_ref()).await?;
    } else if let Some([object, file]) = args.get.as_deref() {
        get(&mut host, ObjectRef::new(pool, object.as_str()), file.as_ref()).await?;
    } else if let Some(object) = &args.stat {
        println!("{}", stat(&mut host, ObjectRef::new(pool, object.as_str())).await?);
    } else {
        list(&mut host, pool).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Objects go over the wire in parts of this size.
const PART: usize = 4 << 20;

async fn done(host: &mut ClientHost, operation: Operation) -> anyhow::Result<client::Reply> {
    let object = operation.object.name.clone();
    let reply = host.operate(operation.with_timeout(WAIT)).await?;
    if reply.result < 0 {
        return Err(std::io::Error::from_raw_os_error(-reply.result)).with_context(|| object.to_string());
    }
    Ok(reply)
}

async fn put(host: &mut ClientHost, object: ObjectRef, file: &std::path::Path) -> anyhow::Result<()> {
    let contents = Bytes::from(std::fs::read(file).with_context(|| file.display().to_string())?);
    done(host, Operation::write(object.clone(), WriteOps::new().create(false).truncate(0))).await?;
    for start in (0..contents.len()).step_by(PART) {
        let part = contents.slice(start..contents.len().min(start + PART));
        done(host, Operation::write(object.clone(), WriteOps::new().write(start as u64, part))).await?;
    }
    Ok(())
}

async fn get(host: &mut ClientHost, object: ObjectRef, file: &std::path::Path) -> anyhow::Result<()> {
    let size = stat(host, object.clone()).await?;
    let mut out = std::fs::File::create(file).with_context(|| file.display().to_string())?;
    let mut at = 0;
    while at < size {
        let len = (size - at).min(PART as u64);
        let reply = done(host, Operation::read(object.clone(), ReadOps::new().read(at, len))).await?;
        let part = reply.data(0);
        anyhow::ensure!(!part.is_empty(), "the object became shorter while it was read");
        out.write_all(&part)?;
        at += part.len() as u64;
    }
    Ok(())
}

async fn stat(host: &mut ClientHost, object: ObjectRef) -> anyhow::Result<u64> {
    let reply = done(host, Operation::read(object, ReadOps::new().stat())).await?;
    Ok(reply.stat(0)?.0)
}

async fn list(host: &mut ClientHost, pool: PoolId) -> anyhow::Result<()> {
    const PAGE: u64 = 1000;
    let map = host.client().map().context("there is no map")?.clone();
    let mut listing = Listing::new(&map, pool, "", PAGE).context("the pool is gone")?;
    let mut out = std::io::stdout().lock();
    while !listing.is_complete() {
        let reply = done(host, listing.next_page()).await?;
        for object in listing.take(&reply)?.objects {
            writeln!(out, "{}", object.name)?;
        }
    }
    Ok(())
}
