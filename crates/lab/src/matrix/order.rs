//! In which order do points run? Shuffled within each repeat, so that drift of the machine hits all of them alike.
//!
//! A repeat goes through every cluster and, in it, through every point; both in an order of their own. The order is
//! a function of the seed, and is written down with the run.

use super::Matrix;
use rand::seq::SliceRandom;
use rand::{SeedableRng, rngs::StdRng};

/// Indices into the matrix's clusters and specs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub iteration: u32,
    pub cluster: usize,
    pub spec: usize,
}

pub fn shuffled(matrix: &Matrix) -> Vec<Turn> {
    let mut random = StdRng::seed_from_u64(matrix.seed);
    let mut turns = Vec::with_capacity(matrix.points());
    for iteration in 0..matrix.iterations {
        let mut clusters: Vec<usize> = (0..matrix.clusters.len()).collect();
        clusters.shuffle(&mut random);
        for cluster in clusters {
            let mut specs: Vec<usize> = (0..matrix.specs.len()).collect();
            specs.shuffle(&mut random);
            turns.extend(specs.into_iter().map(|spec| Turn { iteration, cluster, spec }));
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{ClusterSpec, Spec};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_point_runs_once_a_repeat(clusters in 1usize..4, specs in 1usize..9, iterations in 1u32..5, seed: u64) {
            let matrix = Matrix {
                name: String::new(),
                clusters: vec![ClusterSpec::existing(); clusters],
                specs: vec![Spec::default(); specs],
                iterations,
                seed,
                cool_down_s: 0.0,
                hosts: None,
                watched: None,
                notes: Vec::new(),
            };
            let order = shuffled(&matrix);
            prop_assert_eq!(&order, &shuffled(&matrix), "the seed decides");
            let mut sorted = order.clone();
            sorted.sort_by_key(|t| (t.iteration, t.cluster, t.spec));
            let all: Vec<Turn> = (0..iterations)
                .flat_map(|iteration| (0..clusters).flat_map(move |cluster| {
                    (0..specs).map(move |spec| Turn { iteration, cluster, spec })
                }))
                .collect();
            prop_assert_eq!(sorted, all);
            // A cluster is started once in a repeat: its points stand together.
            let mut runs: Vec<(u32, usize)> = order.iter().map(|t| (t.iteration, t.cluster)).collect();
            runs.dedup();
            prop_assert_eq!(runs.len(), clusters * iterations as usize);
        }
    }
}
