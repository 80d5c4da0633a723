//! Checks of hosts and clusters for properties that spoil measurements, each with its remedy.
//!
//! - [`inventory`]: a host's settings and devices, read from sysfs, procfs and programs.
//! - [`record`]: the same of another host, or of a file.
//! - [`probe`]: measurements: pings, streams, disks.
//! - [`host`], [`devices`], [`cluster`]: the checks, each a function of an inventory.
//! - [`apply`]: changes on request, and their way back.

pub mod apply;
pub mod cluster;
pub mod devices;
pub mod host;
pub mod inventory;
pub mod probe;
pub mod record;
#[cfg(test)]
mod tests;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Good,
    /// This host does not tell.
    Unknown,
    Warning,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name that `--apply` takes.
    pub id: &'static str,
    pub severity: Severity,
    pub measured: String,
    pub expected: String,
    pub why: &'static str,
    pub mend: String,
}

impl Finding {
    fn new(
        id: &'static str,
        severity: Severity,
        measured: impl Into<String>,
        expected: impl Into<String>,
        why: &'static str,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { id, severity, measured: measured.into(), expected: expected.into(), why, mend: mend.into() }
    }
}

/// Hosts of one cluster should be alike: the slowest sets the pace, and a mixture is hard to explain.
pub fn alike(hosts: &[(String, inventory::HostInventory)]) -> Option<Finding> {
    type Trait = (&'static str, fn(&inventory::HostInventory) -> String);
    let traits: [Trait; 6] = [
        ("governor", |f| f.governors.first().cloned().unwrap_or_default()),
        ("highest clock", |f| f.mhz_max.map_or(String::new(), |m| format!("{m:.0} MHz"))),
        ("hyper-threading", |f| f.smt.clone()),
        ("kernel command line's mitigations", |f| {
            f.command_line.split_whitespace().find(|w| w.starts_with("mitigations=")).unwrap_or("").into()
        }),
        ("MTU", |f| {
            let all: std::collections::BTreeSet<u64> = f.cards.iter().filter_map(|c| c.mtu).collect();
            format!("{all:?}")
        }),
        ("processors", |f| f.mhz_now.len().to_string()),
    ];
    let (first, rest) = hosts.split_first()?;
    let differs = |(name, of): &Trait| {
        let other = rest.iter().find(|(_, host)| of(host) != of(&first.1))?;
        Some(format!("{name}: {} on {}, {} on {}", of(&first.1), first.0, of(&other.1), other.0))
    };
    let found: Vec<String> = traits.iter().filter_map(differs).collect();
    let (severity, measured) = match (rest.is_empty(), found.is_empty()) {
        (true, _) => return None,
        (_, true) => (Severity::Good, format!("{} hosts are alike", hosts.len())),
        _ => (Severity::Warning, found.join("; ")),
    };
    Some(Finding::new(
        "alike",
        severity,
        measured,
        "the same on all hosts",
        "the slowest host sets the pace of every write that it has a copy of",
        "bring the hosts that differ in line, or measure them apart",
    ))
}

/// All findings, the worst first.
pub fn judge(
    host: &inventory::HostInventory,
    probes: &probe::Probes,
    cluster: Option<&cluster::ClusterState>,
) -> Vec<Finding> {
    let mut out = host::all(host);
    out.extend(devices::all(host, probes));
    out.extend(cluster.into_iter().flat_map(cluster::all));
    out.sort_by_key(|f| std::cmp::Reverse(f.severity));
    out
}
