//! Repeats of a point, put together: means with their uncertainty.

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

/// In the order in which the matrix has them, as far as labels tell: by cluster, then by what was measured.
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

    /// Half the 95 % interval; zero where a single repeat tells none.
    pub fn ops_error(&self) -> f64 {
        stats::half_width(&self.all(|m| Some(m.ops_per_s))).unwrap_or(0.0)
    }

    pub fn bytes_per_s(&self) -> f64 {
        stats::mean(&self.all(|m| Some(m.bytes_per_s)))
    }

    pub fn mean_us(&self) -> f64 {
        stats::mean(&self.all(|m| Some(m.latency.mean_us)))
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

    /// The answer that most repeats give, with its evidence from the last of them.
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

    pub fn flags(&self) -> Vec<String> {
        let mut all: Vec<String> = self.points.iter().flat_map(|p| p.flags.clone()).collect();
        all.sort();
        all.dedup();
        all
    }
}
