//! `shoal lab doctor`: what on this host, between hosts and in a cluster would spoil a measurement.

use super::hands::Own;
use crate::cli::term;
use lab::doctor::facts::Facts;
use lab::doctor::probe::{self, Probes};
use lab::doctor::{Finding, Severity, apply, cluster, judge};
use lab::hands::Hands;
use std::io::stdout;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Look for what would spoil measurements: on this host, between hosts, in a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab doctor                                  this host
  shoal lab doctor --conf ceph.conf                 and a cluster
  shoal lab doctor --hosts 10.0.0.2,10.0.0.3        and the way to other hosts (ping; iperf3 where it serves there)
  shoal lab doctor --disk /mnt/a --disk /mnt/b --disk /mnt/c
                                                    and disks, by synchronous writes to a file of its own
  shoal lab doctor --apply governor                 change one thing; --revert puts all back

It reads and changes nothing unless asked. Exit codes: 0 nothing is bad, 1 something is.")]
pub struct Args {
    /// A cluster's ceph.conf
    #[arg(long, short)]
    conf: Option<PathBuf>,
    #[arg(long)]
    keyring: Option<PathBuf>,
    /// Other hosts, by address
    #[arg(long, value_delimiter = ',')]
    hosts: Vec<String>,
    /// A folder on a disk to probe
    #[arg(long)]
    disk: Vec<PathBuf>,
    /// Seconds for each step of a disk's probe
    #[arg(long, default_value_t = 2)]
    disk_seconds: u32,
    /// Tell findings as JSON
    #[arg(long)]
    json: bool,
    /// Also tell what is good
    #[arg(long)]
    all: bool,
    /// Change this: governor, idle-states or socket-buffers
    #[arg(long, conflicts_with = "revert")]
    apply: Vec<String>,
    /// Put back what --apply changed
    #[arg(long)]
    revert: bool,
    /// Where --apply notes what was before
    #[arg(long, default_value = "/var/tmp/shoal-lab-doctor-undo.json")]
    undo: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.revert {
        println!("put back: {} settings", apply::revert(&args.undo)?);
        return Ok(ExitCode::SUCCESS);
    }
    for item in &args.apply {
        let changed = apply::apply(Path::new("/"), item, &args.undo)?;
        println!("{item}: {} settings changed; shoal lab doctor --revert puts them back", changed.len());
    }
    let cluster = match &args.conf {
        None => None,
        Some(conf) => {
            let hands = Own { keyring: args.keyring.clone(), name: None };
            Some(cluster::ask(hands.connect(conf)?.as_mut()))
        }
    };
    let mut probes = Probes::default();
    for host in &args.hosts {
        probes.pings.push(probe::ping(host)?);
        probes.streams.extend(probe::streams(host));
    }
    for dir in &args.disk {
        probes.disks.extend(probe::disk(dir, args.disk_seconds)?);
    }
    let findings = judge(&Facts::read(Path::new("/")), &probes, cluster.as_ref());
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&findings)?),
        false => print(&findings, args.all),
    }
    let is_bad = findings.iter().any(|f| f.severity == Severity::Bad);
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(findings: &[Finding], all: bool) {
    for f in findings {
        let word = match f.severity {
            Severity::Bad => term::red(&stdout(), "bad    "),
            Severity::Warning => term::yellow(&stdout(), "warning"),
            Severity::Unknown => "unknown".to_owned(),
            Severity::Good => term::green(&stdout(), "good   "),
        };
        if f.severity == Severity::Good && !all {
            continue;
        }
        println!("{word}  {}: {}", f.id, f.measured);
        if f.severity >= Severity::Warning {
            println!("         expected: {}", f.expected);
            println!("         why:      {}", f.why);
            println!("         mend:     {}", f.mend);
        }
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    println!(
        "{} bad, {} warnings, {} unknown, {} good{}",
        count(Severity::Bad),
        count(Severity::Warning),
        count(Severity::Unknown),
        count(Severity::Good),
        if all { "" } else { " (--all shows them)" }
    );
}
