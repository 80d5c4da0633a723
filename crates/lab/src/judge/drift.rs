//! The difference of two successive runs on a machine that drifts.
//!
//! A neighbour's load, a warmer cache or a lower clock changes all rounds that follow, so rounds of one run resemble
//! each other more than rounds of two runs do. An error computed from single rounds as if they were independent is
//! therefore too small: on recordings of an unchanged stock cluster it saw a difference in 12 to 60 of 100
//! comparisons.
//!
//! Here each run is cut into consecutive blocks of rounds, and the two runs must differ by far more than the blocks of
//! one run do. "By far more" is calibrated for the strongest drift, a random walk that goes on through both runs:
//!
//! ```text
//!        A: | block | block | block |  B: | block | block | block |
//!   T = |mean of B − mean of A| / √(squares between the blocks of A + squares between the blocks of B)
//! ```
//! A random walk has no scale, so T has one distribution for every speed of drift and every round length; noise that is
//! less correlated gives smaller T. [`Null`] holds that distribution. Interval and verdict both come from it. See
//! docs/decisions/2026-11-23-comparing-successive-runs.md.

use rand::{SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, StandardNormal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const DRAWS: usize = 100_000;
/// Probabilities below this follow from the tail's power law.
const TAIL: f64 = 1e-3;
/// From this many rounds of each run on, the distribution changes only in scale.
const ROUNDS_SIMULATED_MAX: usize = 24;

/// The value of T, and the noise of a single round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockStatistic {
    pub shift: f64,
    /// √ of the squares between blocks: the denominator of T.
    pub scale: f64,
    /// Standard deviation of one round, if rounds were independent.
    pub deviation: f64,
}

/// Blocks of each run: more of them only where a very small error is asked for, whose critical value falls with their
/// number. At three rounds a block is a round.
pub fn block_count(rounds: usize, error: f64) -> usize {
    if error < 0.005 && rounds >= 4 { 4 } else { 3 }
}

/// Degrees of freedom of the squares between blocks.
pub fn degrees(blocks: usize) -> f64 {
    (2 * (blocks - 1)) as f64
}

/// Consecutive blocks of nearly equal size, the larger ones first.
fn block_sizes(rounds: usize, blocks: usize) -> impl Iterator<Item = usize> + Clone {
    (0..blocks).map(move |n| rounds / blocks + usize::from(n < rounds % blocks))
}

/// Mean, and weighted squares between blocks.
fn between_blocks(means: &[f64], sizes: impl Iterator<Item = usize> + Clone) -> (f64, f64) {
    let rounds: f64 = sizes.clone().map(|n| n as f64).sum();
    let mean = means.iter().zip(sizes.clone()).map(|(m, n)| m * n as f64).sum::<f64>() / rounds;
    (mean, means.iter().zip(sizes).map(|(m, n)| n as f64 * (m - mean).powi(2)).sum())
}

/// `a` and `b` are the rounds of the two runs in order, as logarithms.
pub fn block_statistic(a: &[f64], b: &[f64], blocks: usize) -> BlockStatistic {
    let side = |rounds: &[f64]| {
        let mut rest = rounds;
        let means: Vec<f64> = block_sizes(rounds.len(), blocks)
            .map(|n| {
                let (block, after) = rest.split_at(n);
                rest = after;
                block.iter().sum::<f64>() / n as f64
            })
            .collect();
        between_blocks(&means, block_sizes(rounds.len(), blocks))
    };
    let ((mean_a, squares_a), (mean_b, squares_b)) = (side(a), side(b));
    let squares = squares_a + squares_b;
    BlockStatistic {
        shift: mean_b - mean_a,
        scale: squares.sqrt(),
        deviation: (squares / degrees(blocks)).sqrt(),
    }
}

/// The distribution of T under a random walk, for runs of these lengths.
#[derive(Clone)]
pub struct Null {
    /// Ascending.
    draws: Arc<[f64]>,
    degrees: f64,
    /// Multiplies the draws.
    unit: f64,
}

impl Null {
    pub fn of(rounds_a: usize, rounds_b: usize, blocks: usize) -> Null {
        let longest = rounds_a.max(rounds_b);
        let shrink = |n: usize| match longest > ROUNDS_SIMULATED_MAX {
            true => (n * ROUNDS_SIMULATED_MAX).div_ceil(longest).max(blocks),
            false => n,
        };
        let (a, b) = (shrink(rounds_a), shrink(rounds_b));
        // The shift of a walk grows with √rounds, the squares between blocks with rounds.
        let unit = (longest.min(ROUNDS_SIMULATED_MAX) as f64 / longest as f64).sqrt();
        Null { draws: draws(a, b, blocks), degrees: degrees(blocks), unit }
    }

    /// The value that T exceeds with this probability.
    pub fn critical(&self, error: f64) -> f64 {
        let at = |p: f64| self.draws[((1.0 - p) * DRAWS as f64) as usize];
        self.unit
            * match error >= TAIL {
                true => at(error),
                false => at(TAIL) * (TAIL / error).powf(1.0 / self.degrees),
            }
    }

    /// The probability of a value at least this large.
    pub fn p_value(&self, t: f64) -> f64 {
        let t = t / self.unit;
        let beyond = DRAWS - self.draws.partition_point(|draw| *draw < t);
        let p = beyond as f64 / DRAWS as f64;
        if p >= TAIL { p } else { (self.critical(TAIL) / self.unit / t).powf(self.degrees) * TAIL }
    }
}

type Key = (usize, usize, usize);

fn draws(rounds_a: usize, rounds_b: usize, blocks: usize) -> Arc<[f64]> {
    static KNOWN: Mutex<BTreeMap<Key, Arc<[f64]>>> = Mutex::new(BTreeMap::new());
    let key = (rounds_a, rounds_b, blocks);
    let mut known = KNOWN.lock().expect("no holder panics");
    known.entry(key).or_insert_with(|| simulate(rounds_a, rounds_b, blocks)).clone()
}

fn simulate(rounds_a: usize, rounds_b: usize, blocks: usize) -> Arc<[f64]> {
    let sizes: Vec<usize> = block_sizes(rounds_a, blocks).chain(block_sizes(rounds_b, blocks)).collect();
    let factor = cholesky(&walk_covariance(&sizes));
    let mut random = StdRng::seed_from_u64(1);
    let mut normal = vec![0.0; sizes.len()];
    let mut out: Vec<f64> = (0..DRAWS)
        .map(|_| {
            normal.iter_mut().for_each(|n| *n = StandardNormal.sample(&mut random));
            let means: Vec<f64> =
                factor.iter().map(|row| row.iter().zip(&normal).map(|(l, n)| l * n).sum()).collect();
            let (a, b) = means.split_at(blocks);
            let (mean_a, squares_a) = between_blocks(a, sizes[..blocks].iter().copied());
            let (mean_b, squares_b) = between_blocks(b, sizes[blocks..].iter().copied());
            (mean_b - mean_a).abs() / (squares_a + squares_b).sqrt()
        })
        .collect();
    out.sort_by(f64::total_cmp);
    out.into()
}

/// Covariances of the blocks' means of a random walk with steps of variance 1: that of rounds s and t is min(s, t).
fn walk_covariance(sizes: &[usize]) -> Vec<Vec<f64>> {
    let mut first = 1;
    let blocks: Vec<std::ops::Range<usize>> = sizes
        .iter()
        .map(|n| {
            first += n;
            first - n..first
        })
        .collect();
    let covariance = |a: &std::ops::Range<usize>, b: &std::ops::Range<usize>| {
        let sum: usize = a.clone().flat_map(|s| b.clone().map(move |t| s.min(t))).sum();
        sum as f64 / (a.len() * b.len()) as f64
    };
    blocks.iter().map(|a| blocks.iter().map(|b| covariance(a, b)).collect()).collect()
}

/// Lower triangular factor of a positive definite matrix.
fn cholesky(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = matrix.len();
    let mut factor = vec![vec![0.0; n]; n];
    for row in 0..n {
        for column in 0..=row {
            let sum: f64 = (0..column).map(|k| factor[row][k] * factor[column][k]).sum();
            factor[row][column] = match row == column {
                true => (matrix[row][row] - sum).sqrt(),
                false => (matrix[row][column] - sum) / factor[column][column],
            };
        }
    }
    factor
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn statistic_of_known_blocks() {
        let found = block_statistic(&[1.0, 2.0, 3.0, 4.0], &[5.0, 5.0, 5.0], 3);
        // Blocks of A: 1.5 (two rounds), 3, 4, whose mean is 2.5.
        assert_eq!(found.shift, 2.5);
        assert!((found.scale.powi(2) - (2.0 + 0.25 + 2.25)).abs() < 1e-12, "{found:?}");
        assert!((found.deviation - (4.5f64 / 4.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn covariance_of_single_rounds_is_a_walks() {
        assert_eq!(walk_covariance(&[1, 1]), [[1.0, 1.0], [1.0, 2.0]]);
        assert_eq!(walk_covariance(&[2, 1])[0], [1.25, 1.5]);
    }

    #[test]
    fn p_value_and_critical_value_agree() {
        for (rounds, blocks) in [(3, 3), (12, 4), (60, 3)] {
            let null = Null::of(rounds, rounds, blocks);
            for error in [0.05, 0.02, 0.002, 0.0005, 1e-5] {
                let p = null.p_value(null.critical(error));
                assert!((p / error - 1.0).abs() < 0.05, "{rounds} {blocks} {error} {p}");
            }
        }
    }

    /// The property that everything rests on: the distribution is that of simulated walks, step by step.
    #[test]
    fn random_walk_exceeds_critical_value_as_often_as_asked() {
        let mut random = StdRng::seed_from_u64(9);
        for (a, b, blocks) in [(3, 3, 3), (5, 9, 3), (10, 10, 4), (40, 40, 3)] {
            let null = Null::of(a, b, blocks);
            let mut is_beyond = |_: &u32| {
                let mut level = 0.0;
                let walk: Vec<f64> = (0..a + b)
                    .map(|_| {
                        let step: f64 = StandardNormal.sample(&mut random);
                        level += step;
                        level
                    })
                    .collect();
                let found = block_statistic(&walk[..a], &walk[a..], blocks);
                found.shift.abs() > null.critical(0.05) * found.scale
            };
            let beyond = (0..4000).filter(&mut is_beyond).count();
            assert!((150..=250).contains(&beyond), "{a} {b} {blocks}: {beyond} of 4000");
        }
    }

    #[test]
    fn independent_rounds_exceed_it_more_rarely() {
        let mut random = StdRng::seed_from_u64(10);
        let null = Null::of(10, 10, 3);
        let mut is_beyond = |_: &u32| {
            let noise: Vec<f64> = (0..20).map(|_| random.random_range(-1.0..1.0)).collect();
            let found = block_statistic(&noise[..10], &noise[10..], 3);
            found.shift.abs() > null.critical(0.05) * found.scale
        };
        let beyond = (0..4000).filter(&mut is_beyond).count();
        assert!(beyond < 80, "{beyond} of 4000");
    }
}
