//! `shoal sim`: a cluster of production machines through faults, on one thread, from one seed.

use clap::ValueEnum;
use std::process::ExitCode;
use std::time::Duration;

/// Run a simulated cluster from a seed and say what held; the same seed is the same run, event for event
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal sim --seed 7                       ten simulated minutes of seed 7
  shoal sim --seed 1 --count 200           seeds 1 to 200; stops with an error if any fails
  shoal sim --seed 7 --twice               and that a second run is the same, event for event
  shoal sim --seed 7 --store disk          with the durable store on simulated disks
  shoal sim --seed 7 --level bytes         with frames and handshakes between the machines")]
pub struct Args {
    #[arg(long)]
    seed: u64,
    /// Simulated minutes of work and faults; a quiet time follows
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// How many seeds, counting up from the first
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Run each seed again, and compare the traces
    #[arg(long)]
    twice: bool,
    /// What the simulated network carries
    #[arg(long, value_enum, default_value_t = Level::Messages)]
    level: Level,
    /// What OSDs keep their objects in; chosen by the seed if not given: disks for even ones
    #[arg(long, value_enum)]
    store: Option<Store>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Store {
    /// The durable store, on disks that lose what was not flushed, rot and stall
    Disk,
    /// The memory store, as if it were durable
    Mem,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    /// Whole messages: fast
    Messages,
    /// Bytes, through the session machines, with nobody asked to prove who they are
    Bytes,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut config = sim::Config::new(Duration::from_secs(60 * args.minutes));
    config.level = match args.level {
        Level::Messages => sim::Level::Messages,
        Level::Bytes => sim::Level::Bytes { cephx: false },
    };
    config.store = match args.store {
        None => sim::StoreChoice::BySeed,
        Some(Store::Disk) => sim::StoreChoice::Always(sim::Medium::Disk),
        Some(Store::Mem) => sim::StoreChoice::Always(sim::Medium::Memory),
    };
    let mut failed = 0;
    for seed in args.seed..args.seed.saturating_add(args.count) {
        let report = sim::run(seed, &config);
        print!("{report}");
        let replays = !args.twice || sim::run(seed, &config).trace_hash == report.trace_hash;
        if !replays {
            println!("seed {seed}: a second run took another way");
        }
        failed += u64::from(!report.is_clean() || !replays);
    }
    if args.count > 1 {
        println!("{} passed, {failed} failed", args.count - failed);
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
