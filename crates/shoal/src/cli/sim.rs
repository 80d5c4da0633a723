//! `shoal sim`: runs simulated clusters of production machines under faults, each from one seed on one thread.

mod campaign;

use clap::ValueEnum;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Run simulated clusters from seeds and check what their clients saw
///
/// A seed decides everything: a second run of it is the same, event for event. It fails when a promise to clients is
/// broken, a machine's invariant does not hold, or the checker cannot decide. The exit code is 1 if any seed fails.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal sim --seeds 0..200 --jobs 2        200 seeds of ten simulated minutes, and a summary
  shoal sim --seeds 0..8 --twice-in 4      one in four runs twice; the two must be the same
  shoal sim --seeds 0..8 --ledger seeds.tsv  and a line for each in a file
  shoal sim --seed 7                       one seed, with faults injected and messages seen
  shoal sim --kind merges --seeds 0..50    50 seeds of a small cluster whose PGs merge
  shoal sim --seed 7 --trace               and every event in words, to find out what went wrong
  shoal sim --seed 7 --store disk          with the durable store on simulated disks
  shoal sim --seed 7 --osds 5 --size 3     five OSDs, a pool of size 3; disks are lost, too
  shoal sim --seed 7 --cluster one-copy    three OSDs and a pool of size 1, instead of a cluster drawn from the seed
  shoal sim --seed 7 --monitors 5          five monitors, two operators, and faults among the monitors
  shoal sim --seed 7 --level cephx         with frames, handshakes, keys and tickets between the machines")]
pub struct Args {
    /// Run this seed alone
    #[arg(long, required_unless_present = "seeds", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds from FROM up to, not including, TO
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range)]
    seeds: Option<Range<u64>>,
    /// Seeds that run at the same time [default: one a processor]
    #[arg(long)]
    jobs: Option<usize>,
    /// Simulated minutes of work and faults; a quiet time follows
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Run one seed in N a second time, and compare the traces
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    twice_in: Option<u64>,
    /// Append a line for each seed to FILE: commit, options, seed, minutes, answers, trace and result
    #[arg(long, value_name = "FILE", requires = "seeds")]
    ledger: Option<PathBuf>,
    /// Print every event in words
    #[arg(long, conflicts_with = "seeds")]
    trace: bool,
    /// Cluster, workload and faults [default: whole]. The options below replace a part of it
    #[arg(long, value_parser = parse_kind)]
    kind: Option<sim::Kind>,
    /// Level of the simulated network [default: by seed]
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// Store of the OSDs [default: by seed]
    #[arg(long, value_enum)]
    store: Option<Store>,
    /// Reactor cores of each OSD [default: by seed]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=8))]
    cores: Option<u16>,
    /// Monitors at the begin [default: by seed, one in half of them]
    #[arg(long, value_enum)]
    monitors: Option<Monitors>,
    /// OSDs and pools of a cluster [default: by-seed]
    #[arg(long, value_enum, conflicts_with_all = ["osds", "pools", "size", "min_size"])]
    cluster: Option<Cluster>,
    /// Number of OSDs [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16))]
    osds: Option<u8>,
    /// Number of pools [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    pools: Option<u8>,
    /// Copies of each object, in every pool [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    size: Option<u8>,
    /// Copies without which a pool stops serving [default: size minus half of it]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    min_size: Option<u8>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cluster {
    /// 3 OSDs and one pool of size 1
    OneCopy,
    /// 3 to 6 OSDs, and one to three pools of size 1 to 3
    BySeed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Monitors {
    /// One, and no operators
    #[value(name = "1")]
    One,
    /// One that two more join
    #[value(name = "1+2")]
    Growing,
    /// Three, and none to two more that join them, by seed
    #[value(name = "3")]
    Three,
    /// Five
    #[value(name = "5")]
    Five,
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
    /// Bytes, through the session machines, without authentication
    Bytes,
    /// Bytes, with cephx keys and tickets
    Cephx,
}

/// `3..10`
fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("a range is written FROM..TO")?;
    let number = |part: &str| part.trim().parse::<u64>().map_err(|error| format!("{part}: {error}"));
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err("the range is empty".to_owned()) } else { Ok(range) }
}

fn parse_kind(name: &str) -> Result<sim::Kind, String> {
    let names = sim::Kind::ALL.map(sim::Kind::name).join(", ");
    sim::Kind::named(name).ok_or_else(|| format!("a kind is one of {names}"))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = config(args)?;
    let clean = match (&args.seeds, args.seed) {
        (Some(seeds), _) => {
            let jobs =
                args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
            let campaign = campaign::Campaign {
                seeds: seeds.clone(),
                jobs: jobs.max(1),
                twice_in: args.twice_in,
                minutes: args.minutes,
                options: given_options(args),
                ledger: args.ledger.as_deref().map(campaign::LedgerFile::open).transpose()?,
            };
            campaign.run(&config)?
        }
        (None, seed) => {
            let seed = seed.expect("clap asks for one of the two");
            let report = match args.trace {
                true => sim::run_tracing(seed, &config, |words| {
                    // A pipe that was closed: the reader has seen enough.
                    let _ = writeln!(std::io::stdout(), "{words}");
                }),
                false => sim::run(seed, &config),
            };
            print!("{report}");
            let replays = args.twice_in.is_none() || sim::run(seed, &config).trace_hash == report.trace_hash;
            if !replays {
                println!("seed {seed}: a second run took another way");
            }
            report.is_clean() && replays
        }
    };
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn config(args: &Args) -> anyhow::Result<sim::Config> {
    let kind = args.kind.unwrap_or(sim::Kind::Whole);
    let mut config = kind.config(Duration::from_secs(60 * args.minutes));
    if let Some(level) = args.level {
        config.level = sim::LevelChoice::Always(match level {
            Level::Messages => sim::Level::Messages,
            Level::Bytes => sim::Level::Bytes { cephx: false },
            Level::Cephx => sim::Level::Bytes { cephx: true },
        });
    }
    if let Some(store) = args.store {
        config.store = sim::StoreChoice::Always(match store {
            Store::Disk => sim::Medium::Disk,
            Store::Mem => sim::Medium::Memory,
        });
    }
    if let Some(cores) = args.cores {
        config.cores = sim::CoresChoice::Always(cores);
    }
    if let Some(monitors) = args.monitors {
        config.monitors = match monitors {
            Monitors::One => sim::MonitorsChoice::Begin(1),
            Monitors::Growing => sim::MonitorsChoice::Always(sim::MonitorsConfig::GROWING),
            Monitors::Three => sim::MonitorsChoice::Begin(3),
            Monitors::Five => sim::MonitorsChoice::Begin(5),
        };
    }
    if let Some(cluster) = cluster(args)? {
        config.cluster = cluster;
    }
    Ok(config)
}

/// The cluster that the options ask for. `None` without one of them.
fn cluster(args: &Args) -> anyhow::Result<Option<sim::ClusterChoice>> {
    let Args { osds, pools, size, min_size, .. } = *args;
    match args.cluster {
        Some(Cluster::BySeed) => return Ok(Some(sim::ClusterChoice::BySeed)),
        Some(Cluster::OneCopy) => {}
        None if [osds, pools, size, min_size].iter().all(Option::is_none) => return Ok(None),
        None => {}
    }
    let (osds, size) = (osds.unwrap_or(3), size.unwrap_or(1));
    let usual = sim::PoolConfig::of_size(size);
    let min_size = min_size.unwrap_or(usual.min_size);
    anyhow::ensure!(size <= osds, "--size {size} needs {size} OSDs, and there are {osds}: raise --osds");
    anyhow::ensure!(min_size <= size, "--min-size {min_size} is above --size {size}");
    let pools = usize::from(pools.unwrap_or(1));
    let pg_num = usual.pg_num / pools as u32;
    let pool = sim::PoolConfig { min_size, pg_num, ..usual };
    let cluster = sim::ClusterConfig { osds: osds.into(), pools: vec![pool; pools] };
    Ok(Some(sim::ClusterChoice::Always(cluster)))
}

/// The options besides seed and minutes that a replay of one seed must be given again.
fn given_options(args: &Args) -> String {
    let mut options = String::new();
    let name =
        |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| value().map(|v| v.get_name().to_owned());
    if let Some(kind) = args.kind {
        options += &format!(" --kind {}", kind.name());
    }
    if let Some(level) = args.level.and_then(|level| name(&|| level.to_possible_value())) {
        options += &format!(" --level {level}");
    }
    if let Some(store) = args.store.and_then(|store| name(&|| store.to_possible_value())) {
        options += &format!(" --store {store}");
    }
    if let Some(cores) = args.cores {
        options += &format!(" --cores {cores}");
    }
    if let Some(monitors) = args.monitors.and_then(|monitors| name(&|| monitors.to_possible_value())) {
        options += &format!(" --monitors {monitors}");
    }
    if let Some(cluster) = args.cluster.and_then(|cluster| name(&|| cluster.to_possible_value())) {
        options += &format!(" --cluster {cluster}");
    }
    let Args { osds, pools, size, min_size, .. } = *args;
    for (option, value) in [("osds", osds), ("pools", pools), ("size", size), ("min-size", min_size)] {
        options += &value.map(|value| format!(" --{option} {value}")).unwrap_or_default();
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::parse_from([&["sim", "--seed", "7"], &line.split_whitespace().collect::<Vec<_>>()[..]].concat())
            .args
    }

    #[test]
    fn options_give_osds_and_pools() {
        assert_eq!(cluster(&args("")).unwrap(), None);
        assert_eq!(cluster(&args("--cluster by-seed")).unwrap(), Some(sim::ClusterChoice::BySeed));
        assert_eq!(given_options(&args("--monitors 1+2")), " --monitors 1+2");
        let given = args("--osds 5 --pools 2 --size 3 --min-size 1");
        let pool = sim::PoolConfig { min_size: 1, pg_num: 8, ..sim::PoolConfig::of_size(3) };
        let cluster_config = sim::ClusterConfig { osds: 5, pools: vec![pool; 2] };
        assert_eq!(cluster(&given).unwrap(), Some(sim::ClusterChoice::Always(cluster_config)));
        assert_eq!(given_options(&given), " --osds 5 --pools 2 --size 3 --min-size 1");
    }

    #[test]
    fn kind_gives_the_rest_of_the_configuration() {
        let given = args("--kind merges --minutes 1");
        let expected = sim::Kind::Merges.config(Duration::from_secs(60));
        assert_eq!(format!("{:?}", config(&given).unwrap()), format!("{expected:?}"));
        assert_eq!(given_options(&given), " --kind merges");
        assert!(parse_kind("other").unwrap_err().contains("merges-away"));
    }

    #[test]
    fn sizes_beyond_osds_or_size_are_refused() {
        assert!(cluster(&args("--osds 2 --size 3")).is_err());
        assert!(cluster(&args("--size 2 --min-size 3")).is_err());
    }
}
