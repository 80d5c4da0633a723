//! Ages a block store of the size of a real disk on a machine that has no such disk.
//!
//! The device keeps object data as marks ([`device`]), so that 1 TB fits into a few GB of memory and disk. Latencies are on a
//! clock of the store's processor time and the modelled device's ([`clock`]).

mod clock;
mod device;
mod driver;
mod generations;
mod objects;
mod pattern;
mod phases;
mod removal;
mod report;
mod stats;
mod trace;

use clap::{Parser, ValueEnum};
use device::Model;
use driver::{Disks, Driver, OpenOptions};
use phases::{Lengths, Population, Soak};
use report::Report;
use std::path::PathBuf;

/// As in the daemon, with its options: jemalloc's own ones give memory back in the middle of turns.
#[global_allocator]
static ALLOCATOR: runtime::memory::Allocator = runtime::memory::Allocator;

/// Ages a block store and reports rates, latencies, costs and space.
#[derive(Parser)]
#[command(after_help = "Examples:
  soak --gib 64                          the smallest of the three sizes
  soak --gib 30 --fill 0.92              the rate of a nearly full store against that of an empty one
  soak --gib 16 --mode removal           writes while an object of 1,000,000 omap keys is removed
  soak --gib 64 --mode generations --objects 1000 --generations 1000
                                         clones of objects that are overwritten between, then the removal of all clones
  soak --gib 64 --mode empty --disk hdd --db-gib 2 --measured 20000
                                         a rotating disk with log and index on NVMe
  soak --gib 1024 --json soak-1t.json    10 million objects, 100 million omap keys; some 15 GB of disk, 12 GB of memory")]
struct Args {
    /// Size of the device in GiB.
    #[arg(long, default_value_t = 64)]
    gib: u64,
    /// Load of the run.
    #[arg(long, value_enum, default_value_t = Mode::Age)]
    mode: Mode,
    /// Objects of the mode `generations`.
    #[arg(long, default_value_t = 1_000)]
    objects: u64,
    /// Clones of each of them.
    #[arg(long, default_value_t = 100)]
    generations: u64,
    /// Share of the device that is filled.
    #[arg(long, default_value_t = 0.8)]
    fill: f64,
    /// Shards of the store, all on one thread.
    #[arg(long, default_value_t = 1)]
    shards: usize,
    /// Operations of the aging phase.
    #[arg(long, default_value_t = 2_000_000)]
    aging: u64,
    /// Operations of each measured phase.
    #[arg(long, default_value_t = 400_000)]
    measured: u64,
    /// Operations in flight.
    #[arg(long, default_value_t = 16)]
    depth: usize,
    /// Omap keys of a transaction, while omaps are filled.
    #[arg(long, default_value_t = 1_000)]
    omap_step: u64,
    /// Caches of all shards together, in MiB.
    #[arg(long, default_value_t = 2048)]
    cache_mib: usize,
    /// Tell turns of at least so many ms of processor time, with their phases.
    #[arg(long, value_name = "MS")]
    trace_turns: Option<f64>,
    /// Move the clock by a fixed time a turn: runs of one seed do the same work in the same turns. Rates and latencies mean
    /// nothing then.
    #[arg(long, value_name = "NS")]
    turn_ns: Option<u64>,
    /// Memory that is touched and freed before, in MiB. The first use of a page costs a virtual machine's host a fault of up to
    /// milliseconds, which counts as the turn's. [default: the caches, 1 GiB, and the model's marks of a full device]
    #[arg(long, value_name = "MIB")]
    warm_mib: Option<usize>,
    /// Seed of the random operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Modelled drive.
    #[arg(long, value_enum, default_value_t = Disk::Nvme)]
    disk: Disk,
    /// Size in GiB of a db device on NVMe; 0: none.
    #[arg(long, default_value_t = 0)]
    db_gib: u64,
    /// On a rotating disk, write as on another one: only batches with little data go into the log.
    #[arg(long)]
    no_deferral: bool,
    /// Directory of the sparse file with logs and tables.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Also write the report, with all windows, to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Disk {
    Nvme,
    /// Seeks, rotates and streams.
    Hdd,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Measure the empty store: 4 MiB objects one after the other, then random 4 KiB overwrites.
    Empty,
    /// Fill, age, measure.
    Age,
    /// Remove an object with many omap keys while others are written.
    Removal,
    /// Clone, overwrite, remove all clones.
    Generations,
}

/// Touches and frees memory, which the allocator keeps.
fn warm_up(mib: usize) {
    const PIECE: usize = 4 << 20;
    let mut pieces: Vec<Vec<u8>> = (0..mib / 4).map(|_| Vec::with_capacity(PIECE)).collect();
    pieces.iter_mut().for_each(|piece| piece.resize(PIECE, 1));
    std::hint::black_box(&pieces);
}

fn main() {
    let args = Args::parse();
    let device_bytes = args.gib << 30;
    let marks_mib = (device::Medium::marks_bytes(device_bytes) >> 20) as usize;
    warm_up(args.warm_mib.unwrap_or(args.cache_mib + 1024 + marks_mib));
    let population = Population::of(device_bytes, args.fill);
    let lengths = Lengths {
        measured: args.measured,
        aging: args.aging,
        window: args.aging.div_ceil(10).max(1),
        depth: args.depth,
        omap_step: args.omap_step,
    };
    let is_rotating = args.disk == Disk::Hdd;
    let options = OpenOptions {
        shards: args.shards,
        cache_bytes: args.cache_mib << 20,
        defers: is_rotating && !args.no_deferral,
        trace_turns_ms: args.trace_turns,
        turn_ns: args.turn_ns,
    };
    let disks = Disks {
        bytes: device_bytes,
        model: if is_rotating { Model::rotating() } else { Model::default() },
        db_bytes: (args.db_gib > 0).then_some(args.db_gib << 30),
    };
    let driver = Driver::format(disks, options, &args.dir);
    let mut soak = Soak::new(driver, population, lengths, args.seed);
    soak.create_pgs();
    soak.measure_empty();
    match args.mode {
        Mode::Empty => {}
        Mode::Age => {
            soak.fill();
            soak.age();
            soak.measure_full();
        }
        Mode::Removal => soak.remove_large_omap(),
        Mode::Generations => soak.clone_generations(args.objects, args.generations),
    }
    let settle_ns = soak.driver.settle();
    soak.leave_writes_in_flight();
    let (rows, reads_verified) = (soak.rows, soak.verified);
    let (mut driver, start_ns, start_cpu_ns) = soak.driver.kill_and_open();
    driver.settle();
    let (usage, figures) = (driver.usage(), driver.figures());
    let (checks, check_ns, check_cpu_ns) = driver.check();
    for finding in checks.iter().flat_map(|check| &check.findings) {
        eprintln!("check: {finding}");
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let report = Report {
        device_bytes,
        shards: args.shards,
        population,
        lengths,
        settle_seconds: seconds(settle_ns),
        start_seconds: seconds(start_ns),
        start_cpu_seconds: seconds(start_cpu_ns),
        check_seconds: seconds(check_ns),
        check_cpu_seconds: seconds(check_cpu_ns),
        check_findings: checks.iter().map(|check| check.findings.len()).sum(),
        objects: checks.iter().map(|check| check.objects).sum(),
        reads_verified,
        data_bytes: usage.data,
        omap_bytes: usage.omap,
        index_bytes: figures.tables,
        resident_bytes_max: rows.iter().map(|row| row.resident_bytes).max().unwrap_or_default(),
        rows,
    };
    report.print();
    if let Some(path) = args.json {
        let text = serde_json::to_string_pretty(&report).expect("figures become JSON");
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    if report.check_findings > 0 {
        std::process::exit(1);
    }
}
