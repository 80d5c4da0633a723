//! `shoal lab run`: a matrix, from its file to its results.

use super::Where;
use super::host::ThisBinary;
use crate::cli::term;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lab::cluster::Login;
use lab::matrix::Matrix;
use lab::results::PointRecord;
use lab::run::{Event, Wish};
use lab::tool::process::STOP;
use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Measure a matrix of points: a YAML file of the lab's own, or of CBT
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab run matrix.yaml --conf /etc/ceph/ceph.conf     on a cluster that is there
  shoal lab run cbt.yaml --conf ceph.conf --time 3 --iterations 1
                                                           CBT's file as it is, shortened
  shoal lab run matrix.yaml --dry-run                      only say what would run

A matrix:
  name: hockey stick
  iterations: 3
  cluster: { deploy: [shoal, stock], auth: [cephx, none] }   # started by the lab; absent: that of --conf
  workloads:
    - { tool: shoal, op: [randwrite, randread], op_size: 4k, depth: [1, 4, 16, 64], time: 30, ramp: 2 }
    - { tool: rados-bench, op: write, op_size: [4k, 4M], depth: 16, clients: [1, 2], pool: 3, pg_num: 64 }
    - { tool: fio-rbd, op: randrw, read_percent: 70, op_size: 4k, depth: 32, volume_size: 1G }
    - { tool: shoal, op: mixed, op_size: { 4k: 70, 64k: 30 }, rate: 1000..5000, time: 60 }
    - { tool: shoal, time: 60, faults: [{ at: 20, kill: osd.0 }, { at: 40, start: osd.0 }] }
    - { tool: [tcp-ping, tcp-stream], clients: [1, 4], time: 10, to: other-host }
    - { tool: fio, op: write, op_size: 4k, depth: 1, clients: [1, 16], fsync: 1, path: /dev/nvme1n1 }
Any key may be a list: an axis. docs/guide/lab.md explains every key.

Ctrl-C ends the run; the points that were complete are kept, and pools of the lab's are removed.")]
pub struct Args {
    file: PathBuf,
    /// The ceph.conf of the cluster to measure
    #[arg(long, short)]
    conf: Option<PathBuf>,
    /// The keyring, when the ceph.conf does not say where it is
    #[arg(long)]
    keyring: Option<PathBuf>,
    #[command(flatten)]
    place: Where,
    /// Name of the run [default: the name in the file, or the file's name]
    #[arg(long)]
    name: Option<String>,
    /// Rounds of every point, instead of the file's
    #[arg(long)]
    iterations: Option<u32>,
    /// Seconds of every point, instead of the file's
    #[arg(long)]
    time: Option<f64>,
    /// The order of points follows from this, instead of the file's seed
    #[arg(long)]
    seed: Option<u64>,
    /// The first port of clusters that the lab starts
    #[arg(long, default_value_t = 13700)]
    port: u16,
    /// Let fio overwrite block devices that the file names
    #[arg(long)]
    overwrite_devices: bool,
    /// Make the load on this host, whatever hosts the file names
    #[arg(long)]
    here: bool,
    /// Say what would run, and run nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(&args.file).with_context(|| args.file.display().to_string())?;
    let stem = args.file.file_stem().unwrap_or_default().to_string_lossy();
    let mut matrix =
        Matrix::parse(&text, &stem).with_context(|| format!("{} is no matrix", args.file.display()))?;
    matrix.name = args.name.clone().unwrap_or(matrix.name);
    matrix.seed = args.seed.unwrap_or(matrix.seed);
    matrix.iterations = args.iterations.unwrap_or(matrix.iterations).max(1);
    if args.here {
        matrix.hosts = None;
    }
    if let Some(seconds) = args.time {
        matrix.specs.iter_mut().for_each(|spec| spec.seconds = seconds.max(0.1));
        let late =
            |spec: &&lab::matrix::Spec| spec.faults.iter().any(|f| f.at_s >= spec.ramp_s + spec.seconds);
        if let Some(spec) = matrix.specs.iter().find(late) {
            anyhow::bail!("--time {seconds} ends before the last fault of `{}`", spec.label());
        }
    }
    execute(
        &matrix,
        &text,
        args.conf.as_deref(),
        args.keyring.clone(),
        &args.place,
        Options { port: args.port, overwrite_devices: args.overwrite_devices, dry_run: args.dry_run },
    )
    .map(|(code, _)| code)
}

#[derive(Clone, Copy, Default)]
pub struct Options {
    pub port: u16,
    pub overwrite_devices: bool,
    pub dry_run: bool,
}

/// Runs it with progress for a person. The exit code, and the run's id if there is one.
pub fn execute(
    matrix: &Matrix,
    text: &str,
    conf: Option<&std::path::Path>,
    keyring: Option<PathBuf>,
    place: &Where,
    options: Options,
) -> anyhow::Result<(ExitCode, Option<String>)> {
    for note in &matrix.notes {
        eprintln!("{} {note}", term::yellow(&std::io::stderr(), "note:"));
    }
    println!(
        "{}: {} points on {} cluster{}, {} round{}; measuring takes {}",
        matrix.name,
        matrix.specs.len(),
        matrix.clusters.len(),
        if matrix.clusters.len() == 1 { "" } else { "s" },
        matrix.iterations,
        if matrix.iterations == 1 { "" } else { "s" },
        minutes(Duration::from_secs_f64(matrix.seconds()))
    );
    if options.dry_run {
        for turn in lab::matrix::order::shuffled(matrix) {
            let (cluster, spec) = (&matrix.clusters[turn.cluster], &matrix.specs[turn.spec]);
            println!("  {}  {} · {}", turn.iteration + 1, cluster.label(), spec.label());
        }
        return Ok((ExitCode::SUCCESS, None));
    }
    listen_for_ctrl_c()?;
    let mut results = place.open()?;
    let login = Login::with_keyring(keyring);
    // Before anything is written down: a cluster that cannot be reached is an error of its own.
    let named = matrix.clusters.iter().filter_map(|cluster| cluster.conf.as_deref());
    for conf in conf.into_iter().chain(named) {
        drop(login.connect(conf)?);
    }
    print_ceilings(matrix)?;
    let scratch = std::env::temp_dir().join(format!("shoal-lab-{}", std::process::id()));
    let wish = Wish {
        matrix,
        text,
        conf,
        login: &login,
        lab_host: &ThisBinary,
        port: options.port,
        scratch: &scratch,
        overwrite_devices: options.overwrite_devices,
    };
    let mut shown = Shown::new(matrix.points());
    let outcome = lab::run::run(&mut results, &wish, &mut |event| shown.tell(&event));
    shown.bar.finish_and_clear();
    drop(std::fs::remove_dir_all(&scratch));
    let run = outcome?;
    let points = results.points(&run.id)?;
    let failed = points.iter().filter(|p| p.error.is_some()).count();
    println!("run {} is {}: {} points, {failed} failed", run.id, run.state, points.len());
    println!("see it: shoal lab report {} --out {}.html", run.id, run.id);
    let ok = run.state == "complete" && failed == 0;
    Ok((if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }, Some(run.id)))
}

/// Operations in flight when its ceiling is measured.
fn in_flight(spec: &lab::matrix::Spec) -> u32 {
    lab::load::ceiling::spec_of(spec).depth.saturating_mul(spec.clients)
}

/// Prints the ceiling of the load generator before the first point.
fn print_ceilings(matrix: &Matrix) -> anyhow::Result<()> {
    let own = matrix.specs.iter().filter(|spec| spec.tool == lab::matrix::Tool::Shoal);
    let mut told = std::collections::BTreeMap::new();
    for spec in own {
        let key = (spec.op_bytes_max(), in_flight(spec), spec.op.reads(), spec.verify, spec.mode.clone());
        told.entry(key).or_insert(spec);
    }
    // The extremes tell enough for a large matrix; each point measures and keeps its own.
    let shown: Vec<_> = told.values().collect();
    let ends = if shown.len() > 4 { vec![shown[0], shown[shown.len() - 1]] } else { shown };
    for spec in ends.iter() {
        println!(
            "the client alone, on a target that takes no time: {:.0} op/s of {} · depth {}{}",
            lab::load::ceiling::measure(spec)?,
            lab::size::show(spec.op_bytes_max()),
            in_flight(spec),
            match spec.mode.as_str() {
                "default" => String::new(),
                mode => format!(" · {mode}"),
            }
        );
    }
    Ok(())
}

/// The first Ctrl-C, or the first request to terminate, ends the run in order, the second at once.
fn listen_for_ctrl_c() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("ctrl-c".into()).spawn(move || {
        runtime.block_on(async {
            // Without this one, a run under `timeout` would leave its clusters.
            let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
            loop {
                let told = tokio::select! {
                    told = tokio::signal::ctrl_c() => told.is_ok(),
                    told = terminate.recv() => told.is_some(),
                };
                if !told {
                    return;
                }
                if STOP.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
                eprintln!("\nending: what is complete is kept (again: at once)");
            }
        });
    })?;
    Ok(())
}

pub fn minutes(time: Duration) -> String {
    match time.as_secs() {
        s if s < 120 => format!("{s} s"),
        s if s < 7200 => format!("{} min", s / 60),
        s => format!("{:.1} h", s as f64 / 3600.0),
    }
}

/// Progress with the time left on a terminal; a line for each point in any case.
struct Shown {
    bar: ProgressBar,
    began: Instant,
    done: usize,
    of: usize,
}

impl Shown {
    fn new(of: usize) -> Shown {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(of as u64),
            false => ProgressBar::hidden(),
        };
        let style =
            ProgressStyle::with_template("{spinner} [{elapsed_precise}] {bar:30.green} {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Shown { bar, began: Instant::now(), done: 0, of }
    }

    fn left(&self) -> String {
        if self.done == 0 {
            return String::new();
        }
        let each = self.began.elapsed() / self.done as u32;
        format!("{} left · ", minutes(each * (self.of - self.done) as u32))
    }

    fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::Cluster(label) => self.bar.set_message(format!("{}starting {label}", self.left())),
            Event::Point { label, .. } => self.bar.set_message(format!("{}{label}", self.left())),
            Event::Trouble(what) => self.bar.suspend(|| eprintln!("{what}")),
            Event::Done { point } => {
                self.done += 1;
                self.bar.inc(1);
                let line = line(point);
                self.bar.suspend(|| println!("{line}"));
            }
        }
    }
}

/// One point on one line.
fn line(point: &PointRecord) -> String {
    let label = point.label();
    let Some(m) = &point.measured else {
        let why = point.error.as_deref().unwrap_or("nothing was measured");
        return format!("{}  {label}\n    {why}", term::red(&stdout(), "failed"));
    };
    let p99 = m.latency.p99_us.map_or(String::new(), |us| format!(", p99 {us:.0}"));
    let bottleneck = point.verdict.as_ref().and_then(|v| v[0]["what"].as_str());
    let held = bottleneck.map_or(String::new(), |what| format!("  ← {what}"));
    let client =
        m.client_thread_share.map_or(String::new(), |share| format!(", client {:.0} %", share * 100.0));
    let flags = match point.flags.as_slice() {
        [] => String::new(),
        flags => format!("\n    {} {}", term::yellow(&stdout(), "disturbed:"), flags.join("; ")),
    };
    format!("{:>10.0} op/s  {:>9.0} µs{p99}{client}  {label}{held}{flags}", m.ops_per_s, m.latency.mean_us)
}
