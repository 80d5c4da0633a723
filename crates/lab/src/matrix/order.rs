//! The order of a matrix's points: shuffled, so that drift of the machine hits all of them alike.
//!
//! A round (iteration) goes through every cluster and, in it, through every point. Points are shuffled in each round.
//! The order of clusters is shuffled, too, but balanced: half of the rounds go the opposite way of the other half, so
//! that a steady trend is no cluster's advantage. Where every cluster is there already, each point is measured on all
//! clusters in turn, which brings the measurements to be compared as close together as they can be. The order is a
//! function of the seed, and is kept with the run.

use super::{Deploy, Matrix};
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
    let orders = balanced_orders(matrix.clusters.len(), matrix.iterations as usize, &mut random);
    let is_interleaved = matrix.clusters.iter().all(|cluster| cluster.deploy == Deploy::Existing);
    let mut turns = Vec::with_capacity(matrix.points());
    for (iteration, clusters) in (0..).zip(orders) {
        let mut specs: Vec<usize> = (0..matrix.specs.len()).collect();
        match is_interleaved {
            true => {
                specs.shuffle(&mut random);
                // The same balance within the round.
                for (n, spec) in specs.into_iter().enumerate() {
                    let mut order = clusters.clone();
                    if n % 2 == 1 {
                        order.reverse();
                    }
                    turns.extend(order.into_iter().map(|cluster| Turn { iteration, cluster, spec }));
                }
            }
            false => {
                for cluster in clusters {
                    specs.shuffle(&mut random);
                    turns.extend(specs.iter().map(|&spec| Turn { iteration, cluster, spec }));
                }
            }
        }
    }
    turns
}

/// An order of the clusters for each round. For each order its opposite, in shuffled rounds.
pub fn balanced_orders(clusters: usize, rounds: usize, random: &mut StdRng) -> Vec<Vec<usize>> {
    let mut orders: Vec<Vec<usize>> = Vec::with_capacity(rounds + 1);
    while orders.len() < rounds {
        let mut order: Vec<usize> = (0..clusters).collect();
        order.shuffle(random);
        orders.push(order.clone());
        order.reverse();
        orders.push(order);
    }
    orders.truncate(rounds);
    orders.shuffle(random);
    orders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{ClusterSpec, Spec};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_point_runs_once_a_round(clusters in 1usize..4, specs in 1usize..9, iterations in 1u32..5, seed: u64) {
            let matrix = Matrix {
                name: String::new(),
                clusters: vec![ClusterSpec { deploy: Deploy::Shoal, ..ClusterSpec::existing() }; clusters],
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
            // A cluster is started once in a round: its points stand together.
            let mut runs: Vec<(u32, usize)> = order.iter().map(|t| (t.iteration, t.cluster)).collect();
            runs.dedup();
            prop_assert_eq!(runs.len(), clusters * iterations as usize);
        }
    }

    #[test]
    fn half_of_the_rounds_go_the_opposite_way() {
        let mut random = StdRng::seed_from_u64(3);
        for rounds in [2, 6, 20] {
            let orders = balanced_orders(2, rounds, &mut random);
            assert_eq!(orders.iter().filter(|order| order[0] == 0).count(), rounds / 2);
        }
        assert_eq!(balanced_orders(3, 5, &mut random).len(), 5);
    }

    #[test]
    fn existing_clusters_take_turns_at_each_point() {
        let matrix = Matrix {
            name: String::new(),
            clusters: vec![ClusterSpec::existing(); 2],
            specs: vec![Spec::default(); 4],
            iterations: 2,
            seed: 1,
            cool_down_s: 0.0,
            hosts: None,
            watched: None,
            notes: Vec::new(),
        };
        let turns = shuffled(&matrix);
        assert!(
            turns.chunks(2).all(|pair| pair[0].spec == pair[1].spec && pair[0].cluster != pair[1].cluster)
        );
        let first = turns.chunks(2).filter(|pair| pair[0].cluster == 0).count();
        assert_eq!(first, 4, "each is the first of a pair as often as the other");
    }
}
