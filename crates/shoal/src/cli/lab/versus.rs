//! `shoal lab versus`: two clusters against each other, in turns.

use super::Where;
use super::report::{By, print};
use super::run::{Options, execute};
use anyhow::{Context, ensure};
use lab::judge::compare::{Design, compare, noise_floor, rounds};
use lab::matrix::{ClusterSpec, Deploy, Matrix};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure two clusters with the same short matrix, in turns, and print the ratios: shoal and stock Ceph, or any two
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab versus                              stock Ceph (A) and shoal (B), started for this: under five minutes
  shoal lab versus --time 30 --release 20.2     longer, against another release
  shoal lab versus --program ./shoal-0.1.0 --store disk
                                                another build of shoal (A) and this one (B)
  shoal lab versus --a /tmp/peer/ceph.conf --b /tmp/c/ceph.conf
                                                two clusters that are there, point by point in turns
  shoal lab versus --release 20.2 --a /tmp/p20/ceph.conf --b /tmp/c/ceph.conf
                                                the same by the clients of 20.2, which read the keys of 20.2.4
  shoal lab versus --matrix my.yaml --by cpu    the workloads of a file; by processor time of an operation")]
pub struct VersusArgs {
    /// Seconds of each point
    #[arg(long, default_value_t = 2.0)]
    time: f64,
    /// Rounds: each measures every point on both clusters. Three at least are needed for a verdict
    #[arg(long, visible_alias = "rounds", default_value_t = 4)]
    iterations: u32,
    /// The ceph.conf of a cluster that is there, to compare with
    #[arg(long, requires = "b")]
    a: Option<PathBuf>,
    /// The ceph.conf of a cluster that is there, to be judged
    #[arg(long, requires = "a")]
    b: Option<PathBuf>,
    /// The keyring of --a and --b, when their ceph.conf does not say where it is
    #[arg(long, requires = "a")]
    keyring: Option<PathBuf>,
    /// Another build of shoal to compare with, instead of stock Ceph
    #[arg(long, conflicts_with_all = ["a", "release"])]
    program: Option<PathBuf>,
    /// Stock's release, whose clients measure both clusters [default: what is installed]
    #[arg(long)]
    release: Option<String>,
    /// Where objects are, of clusters that are started for this
    #[arg(long, value_parser = ["mem", "disk"], default_value = "mem", conflicts_with = "a")]
    store: String,
    /// A file whose workloads are measured; its clusters are not used
    #[arg(long)]
    matrix: Option<PathBuf>,
    /// The compared quantity
    #[arg(long, value_enum, default_value = "rate")]
    by: By,
    /// The first port of the clusters
    #[arg(long, default_value_t = 13700)]
    port: u16,
    #[command(flatten)]
    place: Where,
}

const SHORT: &str = "\
name: versus
cool_down: 0.3
workloads:
  - { tool: rados-bench, op: [write, randread], op_size: 4k, depth: [1, 64] }
  - { tool: shoal, op: [randwrite, randread], op_size: 4k, depth: 64, ramp: 0.5 }
";

pub fn versus(args: &VersusArgs) -> anyhow::Result<ExitCode> {
    let text = match &args.matrix {
        Some(path) => std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => SHORT.to_owned(),
    };
    let mut matrix = Matrix::parse(&text, "versus")?;
    let (a, b) = sides(args)?;
    matrix.clusters = vec![a.clone(), b.clone()];
    matrix.iterations = args.iterations.max(1);
    if args.matrix.is_none() {
        matrix.specs.iter_mut().for_each(|spec| spec.seconds = args.time);
    }
    let options = Options { port: args.port, ..Options::default() };
    let (code, run) = execute(&matrix, &text, None, args.keyring.clone(), &args.place, options)?;
    let points = args.place.open()?.points(&run.context("nothing was measured")?)?;
    let of = |cluster: &ClusterSpec| {
        let own: Vec<_> = points.iter().filter(|p| p.cluster == *cluster).cloned().collect();
        rounds(&own, args.by.metric(), true)
    };
    let (of_a, of_b) = (of(&a), of(&b));
    let (each, whole) = compare(&of_a, &of_b, Design::InTurns);
    let Some(whole) = whole else {
        println!("there is nothing to compare: see why each point failed above");
        return Ok(ExitCode::FAILURE);
    };
    println!("\nA: {}   B: {}   the same tool and load, in turns:", a.label(), b.label());
    print(&each, &whole, noise_floor(&of_a), Design::InTurns);
    Ok(code)
}

/// The cluster to compare with, and the one to be judged.
fn sides(args: &VersusArgs) -> anyhow::Result<(ClusterSpec, ClusterSpec)> {
    if let (Some(a), Some(b)) = (&args.a, &args.b) {
        for conf in [a, b] {
            ensure!(conf.exists(), "{} is not there", conf.display());
        }
        let (a, b) = (std::path::absolute(a)?, std::path::absolute(b)?);
        ensure!(a != b, "--a and --b are the same cluster: {}", a.display());
        let of_conf = |conf| ClusterSpec { tools: args.release.clone(), ..ClusterSpec::of_conf(conf) };
        return Ok((of_conf(a), of_conf(b)));
    }
    let cluster = |deploy, store: &str, program| ClusterSpec {
        deploy,
        osds: 1,
        auth: "cephx".into(),
        store: store.into(),
        cores: 1,
        // The same programs measure both.
        tools: args.release.clone(),
        conf: None,
        program,
    };
    let a = match &args.program {
        Some(program) => {
            ensure!(program.exists(), "{} is not there", program.display());
            cluster(Deploy::Shoal, &args.store, Some(std::path::absolute(program)?))
        }
        None => {
            let store = if args.store == "mem" { "memstore" } else { "bluestore" };
            cluster(Deploy::Stock { release: args.release.clone() }, store, None)
        }
    };
    Ok((a, cluster(Deploy::Shoal, &args.store, None)))
}
