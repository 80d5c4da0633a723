//! `shoal lab peer`: stock Ceph on loopback beside shoal; `shoal lab versus`: the two against each other.

use super::Where;
use super::host::ThisBinary;
use super::report::print;
use super::run::{Options, execute};
use anyhow::Context;
use clap::Subcommand;
use lab::deploy::Stock;
use lab::judge::compare::{Design, Metric, compare, noise_floor, repeats};
use lab::matrix::{ClusterSpec, Deploy, Matrix};
use std::path::PathBuf;
use std::process::ExitCode;

/// Start or stop stock Ceph on loopback, to compare with
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab peer up --dir /tmp/peer --osds 1       the release that is installed
  ceph -c /tmp/peer/ceph.conf -s
  shoal lab peer up --dir /tmp/p20 --release 20.2 --port 13900
                                                   another one, in the folder that SHOAL_CEPH20 names (needs root)
  shoal lab peer down --dir /tmp/peer")]
pub struct PeerArgs {
    #[command(subcommand)]
    what: Peer,
}

#[derive(Debug, Subcommand)]
enum Peer {
    /// Start it
    Up {
        /// Its folder; a cluster that was there before is lost
        #[arg(long)]
        dir: PathBuf,
        /// 16.2, 18.2, 20.2 [default: what is installed]
        #[arg(long)]
        release: Option<String>,
        /// How many OSDs
        #[arg(long, default_value_t = 1)]
        osds: u32,
        /// Where objects are: in memory, or in a file of 20 GiB at most in the folder
        #[arg(long, value_parser = ["memstore", "bluestore"], default_value = "memstore")]
        store: String,
        /// Whether clients and daemons show keys
        #[arg(long, value_parser = ["cephx", "none"], default_value = "cephx")]
        auth: String,
        /// The monitor's ports: this one and the next
        #[arg(long, default_value_t = 13800)]
        port: u16,
    },
    /// Stop it and remove its folder
    Down {
        /// Its folder
        #[arg(long)]
        dir: PathBuf,
    },
}

pub fn peer(args: &PeerArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        Peer::Down { dir } => Stock::stop_in(dir)?,
        Peer::Up { dir, release, osds, store, auth, port } => {
            anyhow::ensure!(
                !lab::deploy::is_running_in(dir),
                "a cluster runs in {}; stop it first: shoal lab peer down --dir {}",
                dir.display(),
                dir.display()
            );
            let is_ours = !dir.exists() || dir.join("ceph.conf").exists() || dir.read_dir()?.next().is_none();
            anyhow::ensure!(
                is_ours,
                "{} is not empty and holds no cluster: choose another folder",
                dir.display()
            );
            let deploy = Deploy::Stock { release: release.clone() };
            let spec = ClusterSpec {
                deploy,
                osds: *osds,
                auth: auth.clone(),
                store: store.clone(),
                cores: 1,
                tools: None,
            };
            let dir = std::path::absolute(dir)?;
            let says = lab::deploy::start(&ThisBinary, &spec, None, &dir, *port)?.leave();
            println!("it runs: {says} -s");
            println!("stop it: shoal lab peer down --dir {}", dir.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measure shoal and stock Ceph with the same short matrix, in turns, and print the ratios
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab versus                          4 KiB writes and reads, depth 1 and 64, three repeats: some minutes
  shoal lab versus --time 30 --release 20.2 longer, against another release
  shoal lab versus --matrix my.yaml         the workloads of a file")]
pub struct VersusArgs {
    /// Seconds of each point
    #[arg(long, default_value_t = 5.0)]
    time: f64,
    /// Repeats of every point; two or more are needed to tell a difference from noise
    #[arg(long, default_value_t = 3)]
    iterations: u32,
    /// Stock's release [default: what is installed]
    #[arg(long)]
    release: Option<String>,
    /// A file whose workloads are measured; its clusters are not used
    #[arg(long)]
    matrix: Option<PathBuf>,
    /// The first port of the clusters
    #[arg(long, default_value_t = 13700)]
    port: u16,
    #[command(flatten)]
    place: Where,
}

const SHORT: &str = "\
name: versus
workloads:
  - { tool: rados-bench, op: [write, randread], op_size: 4k, depth: [1, 64] }
  - { tool: shoal, op: [randwrite, randread], op_size: 4k, depth: 64, ramp: 1 }
";

pub fn versus(args: &VersusArgs) -> anyhow::Result<ExitCode> {
    let text = match &args.matrix {
        Some(path) => std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => SHORT.to_owned(),
    };
    let mut matrix = Matrix::parse(&text, "versus")?;
    let cluster = |deploy, store: &str| ClusterSpec {
        deploy,
        osds: 1,
        auth: "cephx".into(),
        store: store.into(),
        cores: 1,
        // The same programs measure both.
        tools: args.release.clone(),
    };
    let stock = cluster(Deploy::Stock { release: args.release.clone() }, "memstore");
    let shoal = cluster(Deploy::Shoal, "mem");
    matrix.clusters = vec![stock.clone(), shoal.clone()];
    matrix.iterations = args.iterations.max(1);
    if args.matrix.is_none() {
        matrix.specs.iter_mut().for_each(|spec| spec.seconds = args.time);
    }
    let options = Options { port: args.port, ..Options::default() };
    let (code, run) = execute(&matrix, &text, None, None, &args.place, options)?;
    let points = args.place.open()?.points(&run.context("nothing was measured")?)?;
    let of = |cluster: &ClusterSpec| {
        let own: Vec<_> = points.iter().filter(|p| p.cluster == *cluster).cloned().collect();
        repeats(&own, Metric::OpsPerS, true)
    };
    let (a, b) = (of(&stock), of(&shoal));
    let (each, whole) = compare(&a, &b, Design::InTurns);
    if a.is_empty() || b.is_empty() {
        println!("there is nothing to compare: see why each point failed above");
        return Ok(ExitCode::FAILURE);
    }
    println!("\nshoal's rate over stock's, the same tool and load:");
    print(&each, &whole.context("no point was measured on both")?, noise_floor(&a));
    Ok(code)
}
