//! `shoal lab doctor`: what on this host, between hosts and in a cluster would spoil a measurement.

use crate::cli::term;
use anyhow::Context;
use lab::cluster::Login;
use lab::doctor::inventory::HostInventory;
use lab::doctor::probe::{self, Probes};
use lab::doctor::{Finding, Severity, alike, apply, cluster, judge, record};
use std::io::stdout;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Look for what would spoil measurements: on this host, between hosts, in a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab doctor                                  this host
  shoal lab doctor --conf ceph.conf                 and a cluster
  shoal lab doctor --hosts node2,root@10.0.0.3      and other hosts, by ssh (keys, no password), and the way to
                                                    them: ping; TCP where `shoal lab agent --serve 7373` or
                                                    iperf3 serves there
  shoal lab doctor --record node1.txt               keep what is read of this host; --from node1.txt judges it anywhere
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
    /// Other hosts, as ssh takes them
    #[arg(long, value_delimiter = ',')]
    hosts: Vec<String>,
    /// The program that reaches them, and its options
    #[arg(long, default_value = "ssh")]
    ssh: String,
    /// Do not ask other hosts by ssh: only the way to them is measured
    #[arg(long)]
    no_ssh: bool,
    /// Write this host's settings into a file, and judge nothing
    #[arg(long)]
    record: Option<PathBuf>,
    /// Judge a host by its record instead of this one
    #[arg(long, conflicts_with_all = ["apply", "revert", "disk"])]
    from: Option<PathBuf>,
    /// A folder on a disk to probe
    #[arg(long)]
    disk: Vec<PathBuf>,
    /// Seconds for each step of a disk's probe
    #[arg(long, default_value_t = 2)]
    disk_seconds: u32,
    /// Tell findings as JSON
    #[arg(long)]
    json: bool,
    /// Also print findings that are good
    #[arg(long)]
    all: bool,
    /// Change this: governor, idle-states or socket-buffers
    #[arg(long, conflicts_with = "revert")]
    apply: Vec<String>,
    /// Put back what --apply changed
    #[arg(long)]
    revert: bool,
    /// The file in which --apply keeps the old values
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
    if let Some(path) = &args.record {
        let text = record::here()?;
        std::fs::write(path, &text).with_context(|| format!("writing {}", path.display()))?;
        println!(
            "written: {} ({} lines); shoal lab doctor --from judges it",
            path.display(),
            text.lines().count()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let cluster = match &args.conf {
        None => None,
        Some(conf) => {
            let login = Login::with_keyring(args.keyring.clone());
            Some(cluster::ask(login.connect(conf)?.as_mut()))
        }
    };
    let mut probes = Probes::default();
    let mut hosts = Vec::new();
    for host in &args.hosts {
        // ssh takes a user before the address, ping does not.
        let address = host.rsplit_once('@').map_or(host.as_str(), |(_, address)| address);
        match probe::ping(address) {
            Ok(ping) => probes.pings.push(ping),
            // The rest can be said without.
            Err(error) => eprintln!("round trips are not measured: {error:#}"),
        }
        probes.streams.extend(probe::streams(address));
        if !args.no_ssh {
            let text = record::by_ssh(&args.ssh, host).context("--no-ssh measures only the way to it")?;
            hosts.push((host.clone(), record::read(&text, &scratch(hosts.len()))?));
        }
    }
    for dir in &args.disk {
        probes.disks.extend(probe::disk(dir, args.disk_seconds)?);
    }
    let own = match &args.from {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            record::read(&text, &scratch(0)).with_context(|| path.display().to_string())?
        }
        None => HostInventory { mhz_now: probe::mhz_under_load(), ..HostInventory::read(Path::new("/")) },
    };
    let mut all = vec![(None, judge(&own, &probes, cluster.as_ref()))];
    hosts.insert(0, ("this host".to_owned(), own));
    for (name, host) in &hosts[1..] {
        all.push((Some(name.as_str()), judge(host, &Probes::default(), None)));
    }
    all[0].1.extend(alike(&hosts));
    all[0].1.sort_by_key(|f| std::cmp::Reverse(f.severity));
    if args.json {
        println!("{}", serde_json::to_string_pretty(&as_json(&all)?)?);
    } else {
        for (host, findings) in &all {
            if let Some(host) = host {
                println!("\n{host}:");
            }
            print(findings, args.all);
        }
    }
    let is_bad = all.iter().flat_map(|(_, found)| found).any(|f| f.severity == Severity::Bad);
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A folder for a record, for the moment.
fn scratch(n: usize) -> PathBuf {
    std::env::temp_dir().join(format!("shoal-lab-doctor-{}-{n}", std::process::id()))
}

/// One list of findings. Those of other hosts begin with the host.
fn as_json(all: &[(Option<&str>, Vec<Finding>)]) -> anyhow::Result<Vec<serde_json::Value>> {
    let mut out = Vec::new();
    for (host, finding) in all.iter().flat_map(|(host, findings)| findings.iter().map(move |f| (host, f))) {
        let mut value = serde_json::to_value(finding)?;
        if let Some(host) = host {
            value["host"] = (*host).into();
        }
        out.push(value);
    }
    Ok(out)
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
