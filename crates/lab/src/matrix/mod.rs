//! A matrix of measurements: a file in the lab's own YAML or in CBT's becomes a [`Matrix`] of clusters, points, rounds.
//!
//! - [`spec`]: one point, completely described.
//! - [`tree`]: YAML as a tree whose keys know their line.
//! - [`own`]: the lab's own form; [`cbt`]: CBT's.
//! - [`hosts`]: other hosts that make the load, or are watched.
//! - [`order`]: the order of the points.

pub mod cbt;
mod cluster;
mod hosts;
pub mod order;
pub mod own;
pub mod spec;
mod tree;

pub use hosts::OtherHosts;
pub use spec::{Access, ClusterSpec, Deploy, Fault, FaultKind, Op, Pool, Spec, Tool};
pub use tree::Problem;

use tree::Tree;

/// The content of a file, completely described.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    pub name: String,
    /// The clusters to measure, each with every point.
    pub clusters: Vec<ClusterSpec>,
    pub specs: Vec<Spec>,
    pub iterations: u32,
    /// The order of points is a function of the seed.
    pub seed: u64,
    /// Seconds of rest after each point.
    pub cool_down_s: f64,
    /// Hosts that make the load; `None`: this one.
    pub hosts: Option<OtherHosts>,
    /// Hosts without load that are sampled, because OSDs run there.
    pub watched: Option<OtherHosts>,
    /// Keys without effect here, told to the user.
    pub notes: Vec<String>,
}

impl Matrix {
    /// `name` is used where the file gives none.
    pub fn parse(text: &str, name: &str) -> Result<Matrix, Problem> {
        let tree = Tree::parse(text)?;
        let mut matrix = match tree.root.get("benchmarks") {
            Some(_) => cbt::read(&tree)?,
            None => own::read(&tree)?,
        };
        if matrix.name.is_empty() {
            matrix.name = name.to_owned();
        }
        Ok(matrix)
    }

    pub fn points(&self) -> usize {
        self.specs.len() * self.clusters.len() * self.iterations as usize
    }

    /// Seconds of measuring alone, without starting clusters, prefill and cleaning up.
    pub fn seconds(&self) -> f64 {
        let once: f64 = self.specs.iter().map(|s| s.seconds + s.ramp_s + self.cool_down_s).sum();
        once * self.clusters.len() as f64 * f64::from(self.iterations)
    }
}
