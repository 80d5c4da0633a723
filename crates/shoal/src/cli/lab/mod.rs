//! `shoal lab`: measure a cluster, shoal's or any Ceph's, and say what the measurements mean.

mod agent;
mod calibrate;
mod data;
mod doctor;
mod host;
mod peer;
mod report;
mod run;
mod versus;

use clap::Subcommand;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure hosts and clusters, shoal's or any Ceph's: matrices, reports, comparisons
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  shoal lab doctor                                   what on this host would spoil measurements
  shoal lab versus                                   shoal against stock Ceph, in some minutes
  shoal lab run matrix.yaml --conf ceph.conf         measure a matrix on a cluster
  shoal lab report --out today.html                  the newest run as a page
  shoal lab compare last-1 last                      better, worse, or no difference shown

Results are kept in a folder (--results, or SHOAL_LAB; default: lab-results), in one SQLite file."
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Doctor(doctor::Args),
    Run(run::Args),
    Report(report::ReportArgs),
    Compare(report::CompareArgs),
    Gate(report::GateArgs),
    Calibrate(calibrate::Args),
    Versus(versus::VersusArgs),
    Peer(peer::PeerArgs),
    List(data::ListArgs),
    Export(data::ExportArgs),
    Import(data::ImportArgs),
    Clean(data::CleanArgs),
    Agent(agent::Args),
}

/// Where results are kept.
#[derive(Clone, Debug, clap::Args)]
pub struct Where {
    /// The folder of results
    #[arg(long, env = "SHOAL_LAB", default_value = "lab-results")]
    results: PathBuf,
}

impl Where {
    /// To write into: made when it is not there.
    fn open(&self) -> anyhow::Result<lab::results::Results> {
        let results = lab::results::Results::open(&self.results)?;
        results.settle(lab::run::host::is_alive)?;
        Ok(results)
    }

    fn exists(&self) -> bool {
        self.results.join(lab::results::store::FILE).exists()
    }

    /// To read from: a folder that is named wrongly is told, and not made.
    fn read(&self) -> anyhow::Result<lab::results::Results> {
        anyhow::ensure!(
            self.exists(),
            "there are no results in {} yet: shoal lab run FILE makes some; --results says where they are",
            self.results.display()
        );
        self.open()
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Doctor(args) => doctor::run(args),
        Command::Run(args) => run::run(args),
        Command::Report(args) => report::report(args),
        Command::Compare(args) => report::compare_runs(args),
        Command::Gate(args) => report::gate(args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Versus(args) => versus::versus(args),
        Command::Peer(args) => peer::peer(args),
        Command::List(args) => data::list(args),
        Command::Export(args) => data::export(args),
        Command::Import(args) => data::import(args),
        Command::Clean(args) => data::clean(args),
        Command::Agent(args) => agent::run(args),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The lab names bottlenecks by the stages that an OSD reports.
    #[test]
    fn stages_of_the_lab_are_those_of_the_osd() {
        let figures = osd::signals::ShardFigures::default();
        let counters = osd::signals::counters::stages(&figures);
        let reported: BTreeSet<String> = counters.iter().map(|c| format!("{}.{}", c.group, c.name)).collect();
        assert_eq!(lab::judge::bottleneck::stage_counters(), reported);
    }
}
