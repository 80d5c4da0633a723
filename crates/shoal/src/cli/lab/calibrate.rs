//! `shoal lab calibrate`: the rate of false alarms of `compare` and `versus`, on recorded rounds of an unchanged cluster.

use super::Where;
use super::report::By;
use anyhow::{Context, ensure};
use lab::judge::calibrate::Recording;
use lab::judge::compare::Design;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure how often comparisons of a cluster with itself say that it differs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  for n in $(seq 60); do shoal lab run matrix.yaml --conf ceph.conf --name same; done
  shoal lab calibrate same                      all runs of that name, as successive runs and as turns
  shoal lab calibrate same --by cpu             by processor time of an operation
  shoal lab calibrate same --csv same.csv       keep the rounds as a small file
  shoal lab calibrate --from same.csv           judge such a file

For each number of rounds, every stretch of that many rounds is compared with the stretch that follows it (successive
runs), and in pairs of neighbouring rounds (in turns). Nothing has changed, so every difference that is shown is false.
The promise is at most 5 of 100. Comparisons at neighbouring places share rounds: trust the rate only as far as the
number of disjoint ones goes. The last column doubles B's values: how often a twofold difference is found.")]
pub struct Args {
    /// Runs of the same matrix on the same cluster: names (all runs of it) or beginnings of ids
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    runs: Vec<String>,
    /// Judge a file that --csv wrote
    #[arg(long)]
    from: Option<PathBuf>,
    /// Write the rounds into this file
    #[arg(long, conflicts_with = "from")]
    csv: Option<PathBuf>,
    /// The compared quantity
    #[arg(long, value_enum, default_value = "rate")]
    by: By,
    /// Rounds of each side
    #[arg(long, value_delimiter = ',', default_value = "3,5,10,20")]
    rounds: Vec<usize>,
    /// Fail where more than 5 of 100 comparisons and more than two disjoint ones are false alarms
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    place: Where,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let recording = match &args.from {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Recording::from_csv(&text).with_context(|| path.display().to_string())?
        }
        None => recorded(args)?,
    };
    if let Some(path) = &args.csv {
        std::fs::write(path, recording.to_csv()).with_context(|| format!("writing {}", path.display()))?;
    }
    ensure!(recording.len() >= 6, "{} rounds are too few: six at least", recording.len());
    println!("{} rounds in which nothing changed", recording.len());
    println!(
        "{:<12} {:>7} {:>12} {:>9} {:>13} {:>15}",
        "design", "rounds", "comparisons", "disjoint", "false alarms", "twofold found"
    );
    let mut is_broken = false;
    for design in [Design::Successive, Design::InTurns] {
        for &rounds in args.rounds.iter().filter(|rounds| **rounds >= 1 && 2 * **rounds <= recording.len()) {
            let found = recording.calibrate(design, rounds);
            let name = if design == Design::Successive { "successive" } else { "in turns" };
            println!(
                "{name:<12} {rounds:>7} {:>12} {:>9} {:>11.1} % {:>13.0} %",
                found.comparisons,
                found.disjoint,
                found.alarm_rate() * 100.0,
                found.twofold_rate() * 100.0
            );
            is_broken |= found.alarm_rate() > 0.05 && found.alarm_rate() * found.disjoint as f64 > 2.0;
        }
    }
    Ok(if args.check && is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// All runs that are asked for, oldest first.
fn recorded(args: &Args) -> anyhow::Result<Recording> {
    let results = args.place.read()?;
    let mut recording = Recording::default();
    let mut taken = 0;
    for run in results.runs()? {
        let is_wanted = |wanted: &String| run.name == *wanted || run.id.starts_with(wanted.as_str());
        if run.state == "complete" && args.runs.iter().any(is_wanted) {
            recording.add_run(&results.points(&run.id)?, args.by.metric());
            taken += 1;
        }
    }
    ensure!(taken > 0, "no complete run is named so; shoal lab list shows them");
    println!("{taken} runs");
    Ok(recording)
}
