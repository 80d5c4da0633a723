//! The rounds of a point, put together: means with their uncertainty.

use crate::judge::stats;
use crate::matrix::{ClusterSpec, Spec};
use crate::results::{Measured, PointRecord};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct Group {
    pub cluster: ClusterSpec,
    pub spec: Spec,
    pub points: Vec<PointRecord>,
}

/// Order of groups: by cluster, then by spec, as in the matrix.
pub fn groups(points: &[PointRecord]) -> Vec<Group> {
    let mut out: BTreeMap<(String, String, u32, u32, String), Group> = BTreeMap::new();
    for point in points {
        let spec = &point.spec;
        let what = format!("{} {} {:012}", spec.tool.name(), spec.op.name(), spec.op_bytes);
        let key = (point.cluster.label(), what, spec.clients, spec.depth, spec.label());
        let group = out.entry(key).or_insert_with(|| Group {
            cluster: point.cluster.clone(),
            spec: spec.clone(),
            points: Vec::new(),
        });
        group.points.push(point.clone());
    }
    out.into_values().collect()
}

impl Group {
    pub fn measured(&self) -> impl Iterator<Item = &Measured> {
        self.points.iter().filter_map(|p| p.measured.as_ref())
    }

    fn all(&self, of: impl Fn(&Measured) -> Option<f64>) -> Vec<f64> {
        self.measured().filter_map(of).filter(|v| v.is_finite()).collect()
    }

    pub fn ops_per_s(&self) -> f64 {
        stats::mean(&self.all(|m| Some(m.ops_per_s)))
    }

    /// Half the 95 % interval; zero where there is a single round.
    pub fn ops_error(&self) -> f64 {
        stats::half_width(&self.all(|m| Some(m.ops_per_s))).unwrap_or(0.0)
    }

    pub fn bytes_per_s(&self) -> f64 {
        stats::mean(&self.all(|m| Some(m.bytes_per_s)))
    }

    pub fn mean_us(&self) -> f64 {
        stats::mean(&self.all(|m| Some(m.latency.mean_us)))
    }

    pub fn mean_us_error(&self) -> f64 {
        stats::half_width(&self.all(|m| Some(m.latency.mean_us))).unwrap_or(0.0)
    }

    /// Deviation of the rounds as a share of their mean; `None` for a single round.
    pub fn noise(&self) -> Option<f64> {
        let rates = self.all(|m| Some(m.ops_per_s));
        (rates.len() > 1 && self.ops_per_s() > 0.0).then(|| stats::variation(&rates))
    }

    /// Operations by nanoseconds, all rounds together.
    pub fn bins(&self) -> BTreeMap<u64, u64> {
        let mut bins = BTreeMap::new();
        for (us, count) in self.measured().flat_map(|m| &m.histogram) {
            *bins.entry((us * 1e3) as u64).or_default() += count;
        }
        bins
    }

    /// Of the client's busiest thread, the mean over rounds.
    pub fn client_thread_share(&self) -> Option<f64> {
        let shares: Vec<f64> = self.measured().filter_map(|m| m.client_thread_share).collect();
        (!shares.is_empty()).then(|| stats::mean(&shares))
    }

    pub fn p99_us(&self) -> Option<f64> {
        let all = self.all(|m| m.latency.p99_us);
        (!all.is_empty()).then(|| stats::mean(&all))
    }

    /// Processor microseconds an operation, by process.
    pub fn cpu_us_per_op(&self) -> BTreeMap<String, f64> {
        let mut sums: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (name, us) in self.measured().flat_map(|m| &m.cpu_us_per_op) {
            sums.entry(name.clone()).or_default().push(*us);
        }
        sums.into_iter().map(|(name, all)| (name, stats::mean(&all))).collect()
    }

    /// The answer of most rounds, with its evidence from the last of them.
    pub fn bottleneck(&self) -> Option<(String, String)> {
        let mut votes: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for point in &self.points {
            let Some(first) = point.verdict.as_ref().map(|v| &v[0]) else { continue };
            if let (Some(what), Some(evidence)) = (first["what"].as_str(), first["evidence"].as_str()) {
                let vote = votes.entry(what).or_default();
                *vote = (vote.0 + 1, evidence);
            }
        }
        let (what, (_, evidence)) = votes.into_iter().max_by_key(|(_, (n, _))| *n)?;
        Some((what.to_owned(), evidence.to_owned()))
    }

    /// Disturbances, each kind once: its last description, and the number of rounds that it befell.
    pub fn flags(&self) -> Vec<String> {
        let kind = |flag: &str| flag.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
        for flag in self.points.iter().flat_map(|p| &p.flags) {
            let seen = kinds.entry(kind(flag)).or_default();
            *seen = (seen.0 + 1, flag);
        }
        let of = self.points.len();
        let told = |(n, words): &(usize, &str)| match of {
            1 => (*words).to_owned(),
            _ => format!("{words} ({n} of {of} rounds)"),
        };
        kinds.values().map(told).collect()
    }

    /// Everything that may hold it back, most often named first: what, the evidence, and how much of it is used.
    pub fn bottlenecks(&self) -> Vec<(String, String, f64)> {
        let mut votes: BTreeMap<&str, (usize, &str, f64)> = BTreeMap::new();
        for found in self.points.iter().filter_map(|p| p.verdict.as_ref()?.as_array()).flatten() {
            if let (Some(what), Some(evidence)) = (found["what"].as_str(), found["evidence"].as_str()) {
                let vote = votes.entry(what).or_default();
                *vote = (vote.0 + 1, evidence, found["used"].as_f64().unwrap_or(0.0));
            }
        }
        let mut all: Vec<(&str, (usize, &str, f64))> = votes.into_iter().collect();
        all.sort_by_key(|(_, (n, ..))| std::cmp::Reverse(*n));
        all.into_iter().map(|(what, (_, evidence, used))| (what.into(), evidence.into(), used)).collect()
    }
}
