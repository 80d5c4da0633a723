//! What on a host or in a cluster would spoil a measurement, and how is it mended?
//!
//! - [`facts`]: what is read of a host: sysfs, procfs, programs.
//! - [`probe`]: what is measured: pings, disks.
//! - [`host`], [`devices`], [`cluster`]: the checks, each a function of facts.
//! - [`apply`]: changes on request, and their way back.

pub mod apply;
pub mod cluster;
pub mod devices;
pub mod facts;
pub mod host;
pub mod probe;
#[cfg(test)]
mod tests;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Good,
    /// Nothing can be said here.
    Unknown,
    Warning,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What `--apply` calls it.
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

/// All that can be said, the worst first.
pub fn judge(facts: &facts::Facts, probes: &probe::Probes, cluster: Option<&cluster::Facts>) -> Vec<Finding> {
    let mut out = host::all(facts);
    out.extend(devices::all(facts, probes));
    out.extend(cluster.into_iter().flat_map(cluster::all));
    out.sort_by_key(|f| std::cmp::Reverse(f.severity));
    out
}
