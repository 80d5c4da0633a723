//! `shoal lab`: measure a cluster, shoal's or any Ceph's, and say what the measurements mean.

mod data;
mod hands;
mod load;
mod run;

use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure hosts and clusters, shoal's or any Ceph's: matrices, reports, comparisons
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  shoal lab run bench/lab/first.yaml --conf /etc/ceph/ceph.conf   measure a matrix
  shoal lab list                                                  the runs there are

Results are kept in a folder (--results, or SHOAL_LAB; default: lab-results), in one SQLite file."
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    List(data::ListArgs),
    Export(data::ExportArgs),
    Import(data::ImportArgs),
    Clean(data::CleanArgs),
}

/// Where results are kept.
#[derive(Clone, Debug, clap::Args)]
pub struct Where {
    /// The folder of results
    #[arg(long, env = "SHOAL_LAB", default_value = "lab-results")]
    results: PathBuf,
}

impl Where {
    fn open(&self) -> anyhow::Result<lab::results::Results> {
        let results = lab::results::Results::open(&self.results)?;
        results.settle(lab::run::host::is_alive)?;
        Ok(results)
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::List(args) => data::list(args),
        Command::Export(args) => data::export(args),
        Command::Import(args) => data::import(args),
        Command::Clean(args) => data::clean(args),
    }
}
