//! Verdicts on two measurements of the same points: better, worse, no difference shown, or too few rounds to tell.
//!
//! Rates are compared as logarithms, so that "twice" and "half" are equally far, and a difference is a ratio.
//!
//! **The promise**: of 100 comparisons of a thing with itself, at most 5 say anywhere, of the whole or of any point,
//! that it differs. The whole has an error of [`ERROR_OF_WHOLE`], all points together have [`ERROR_OF_POINTS`], shared
//! equally; the rest is a margin for noise that is worse than the model's. Every verdict follows from the interval
//! beside it: a difference is shown exactly where the interval does not contain 1.
//!
//! **A round** is one pass over all points. It counts once, however many points it has, because a host that is busy
//! for a minute slows all points of that minute.
//!
//! **Two designs.** [`Design::InTurns`]: each round measured both sides, so they share the machine's drift, and the
//! differences within rounds are independent; Student's t applies. [`Design::Successive`]: one run after the other;
//! drift makes them differ, and [`super::drift`] accounts for it at the price of wider intervals.

use super::drift::{self, Null, block_count, block_statistic};
use super::stats::{chi_square_quantile, mean, t_p_value, t_quantile, variance};
use crate::results::PointRecord;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

pub const ERROR_OF_WHOLE: f64 = 0.02;
pub const ERROR_OF_POINTS: f64 = 0.02;
/// Fewer rounds of either side support no verdict.
pub const ROUNDS_MIN: usize = 3;
/// The share of differences of the detectable size that are found.
const POWER: f64 = 0.8;
/// Plans beyond this many rounds are not told: the machine would change meanwhile.
pub const ROUNDS_MAX: u32 = 100_000;
/// The rounds that a patient person measures, for plans.
pub const ROUNDS_OF_PATIENCE: u32 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Better,
    Worse,
    NoDifferenceShown,
    TooFewRounds,
}

impl Verdict {
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifferenceShown => "no difference shown",
            Verdict::TooFewRounds => "too few rounds to tell",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// Two runs, one after the other.
    Successive,
    /// One run: each round has both sides, close together.
    InTurns,
}

/// B against A: a ratio above 1 is B's advantage.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub label: String,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
    pub ratio: f64,
    /// Interval of the ratio at `confidence`. Infinitely wide with too few rounds.
    pub low: f64,
    pub high: f64,
    pub confidence: f64,
    /// The shift in standard deviations of a single round; `None` without noise.
    pub effect: Option<f64>,
    pub p: f64,
    pub verdict: Verdict,
    /// The smallest change, as a share, that these rounds show four times out of five.
    pub detectable: f64,
    /// The same with [`ROUNDS_OF_PATIENCE`] of each side.
    pub detectable_with_patience: f64,
    /// The rounds of the side that has fewer; of complete pairs, for measurements in turns.
    pub rounds: usize,
    /// Rounds of each side that a change of 5 % needs if the noise does not drift; `None` beyond [`ROUNDS_MAX`].
    pub rounds_for_5_percent: Option<u32>,
}

/// The compared quantity; larger is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    OpsPerS,
    /// One over the mean latency.
    Latency,
    /// One over the 99th percentile.
    Tail,
    /// One over the processor time of an operation, daemons and client together. Neighbours disturb it least.
    Processor,
}

impl Metric {
    fn of(self, point: &PointRecord) -> Option<f64> {
        let measured = point.measured.as_ref()?;
        let value = match self {
            Metric::OpsPerS => measured.ops_per_s,
            Metric::Latency => 1e6 / measured.latency.mean_us,
            Metric::Tail => 1e6 / measured.latency.p99_us?,
            Metric::Processor => 1e6 / measured.cpu_us_per_op.iter().map(|(_, us)| us).sum::<f64>(),
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

/// One point's value in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    pub number: u32,
    pub value: f64,
}

/// By the point's label.
pub type Rounds = BTreeMap<String, Vec<Round>>;

/// The rounds of each point. With `across_clusters`, the label does not name the cluster.
pub fn rounds(points: &[PointRecord], metric: Metric, across_clusters: bool) -> Rounds {
    let mut out = Rounds::new();
    for point in points {
        let label = if across_clusters { point.spec.label() } else { point.label() };
        if let Some(value) = metric.of(point) {
            out.entry(label).or_default().push(Round { number: point.iteration, value });
        }
    }
    out
}

/// Every point that both sides have, and the whole.
pub fn compare(a: &Rounds, b: &Rounds, design: Design) -> (Vec<Difference>, Option<Difference>) {
    let common: Vec<(&String, &[Round], &[Round])> =
        a.iter().filter_map(|(label, a)| Some((label, a.as_slice(), b.get(label)?.as_slice()))).collect();
    let judged = |pairs: &[(&[Round], &[Round])], error: f64| match design {
        Design::InTurns => in_turns(pairs, error),
        Design::Successive => successive(pairs, error),
    };
    let values = |rounds: &[Round]| rounds.iter().map(|r| r.value).collect();
    let error_of_point = ERROR_OF_POINTS / common.len().max(1) as f64;
    let points: Vec<Difference> = common
        .iter()
        .map(|(label, a, b)| Difference {
            label: (*label).clone(),
            a: values(a),
            b: values(b),
            ..judged(&[(a, b)], error_of_point)
        })
        .collect();
    let sides: Vec<(&[Round], &[Round])> = common.iter().map(|(_, a, b)| (*a, *b)).collect();
    let whole = (!sides.is_empty()).then(|| judged(&sides, ERROR_OF_WHOLE));
    (points, whole.map(|whole| Difference { label: "all points together".into(), ..whole }))
}

/// One value a round, the mean over points, in the order of rounds. A point that failed in a round does not shift it:
/// each point's own mean counts fully, and rounds differ by what their points deviate from it.
fn series(points: &[BTreeMap<u32, f64>]) -> Vec<f64> {
    let points: Vec<&BTreeMap<u32, f64>> = points.iter().filter(|p| !p.is_empty()).collect();
    let means: Vec<f64> = points.iter().map(|p| mean(&p.values().copied().collect::<Vec<_>>())).collect();
    let numbers: BTreeSet<u32> = points.iter().flat_map(|p| p.keys().copied()).collect();
    let all = mean(&means);
    let deviation = |number: &u32| {
        let own = points.iter().zip(&means).filter_map(|(p, mean)| Some(p.get(number)? - mean));
        mean_of(own)
    };
    numbers.iter().map(|number| all + deviation(number)).collect()
}

fn mean_of(values: impl Iterator<Item = f64>) -> f64 {
    mean(&values.collect::<Vec<_>>())
}

fn logarithms(rounds: &[Round]) -> BTreeMap<u32, f64> {
    rounds.iter().map(|r| (r.number, r.value.ln())).collect()
}

fn successive(points: &[(&[Round], &[Round])], error: f64) -> Difference {
    let side = |of: fn(&(&[Round], &[Round])) -> BTreeMap<u32, f64>| {
        series(&points.iter().map(of).collect::<Vec<_>>())
    };
    let (a, b) = (side(|p| logarithms(p.0)), side(|p| logarithms(p.1)));
    let rounds = a.len().min(b.len());
    if rounds < ROUNDS_MIN {
        return too_few(mean(&b) - mean(&a), rounds, error);
    }
    let blocks = block_count(rounds, error);
    let found = block_statistic(&a, &b, blocks);
    let null = Null::of(a.len(), b.len(), blocks);
    let degrees = drift::degrees(blocks);
    let (na, nb) = (a.len() as f64, b.len() as f64);
    let finding = t_quantile(2.0 * POWER - 1.0, degrees) * found.deviation * (1.0 / na + 1.0 / nb).sqrt();
    let reach = null.critical(error) * found.scale;
    judge(Judged {
        shift: found.shift,
        reach,
        p: if found.scale > 0.0 { null.p_value(found.shift.abs() / found.scale) } else { 1.0 },
        error,
        rounds,
        deviation: found.deviation,
        detectable: reach + finding,
        planned: Plan::Successive { deviation: upper_bound(found.deviation, degrees), error },
    })
}

fn in_turns(points: &[(&[Round], &[Round])], error: f64) -> Difference {
    let shifts: Vec<BTreeMap<u32, f64>> = points
        .iter()
        .map(|(a, b)| {
            let (a, b) = (logarithms(a), logarithms(b));
            a.iter().filter_map(|(round, a)| Some((*round, b.get(round)? - a))).collect()
        })
        .collect();
    let shifts = series(&shifts);
    let n = shifts.len() as f64;
    if shifts.len() < ROUNDS_MIN {
        return too_few(mean(&shifts), shifts.len(), error);
    }
    let deviation = variance(&shifts).sqrt();
    let (degrees, of_mean) = (n - 1.0, deviation / n.sqrt());
    let reach = t_quantile(1.0 - error, degrees) * of_mean;
    judge(Judged {
        shift: mean(&shifts),
        reach,
        p: if of_mean > 0.0 { t_p_value(mean(&shifts) / of_mean, degrees) } else { 1.0 },
        error,
        rounds: shifts.len(),
        // Of a single round of one side.
        deviation: deviation / 2f64.sqrt(),
        detectable: reach + t_quantile(2.0 * POWER - 1.0, degrees) * of_mean,
        planned: Plan::InTurns { deviation: upper_bound(deviation, degrees), error },
    })
}

fn too_few(shift: f64, rounds: usize, error: f64) -> Difference {
    Difference {
        label: String::new(),
        a: vec![],
        b: vec![],
        ratio: shift.exp(),
        low: 0.0,
        high: f64::INFINITY,
        confidence: 1.0 - error,
        effect: None,
        p: 1.0,
        verdict: Verdict::TooFewRounds,
        detectable: f64::INFINITY,
        detectable_with_patience: f64::INFINITY,
        rounds,
        rounds_for_5_percent: Some(ROUNDS_MIN as u32),
    }
}

struct Judged {
    shift: f64,
    /// Half of the interval's width.
    reach: f64,
    p: f64,
    error: f64,
    rounds: usize,
    deviation: f64,
    detectable: f64,
    planned: Plan,
}

fn judge(judged: Judged) -> Difference {
    let Judged { shift, reach, p, error, rounds, deviation, detectable, planned } = judged;
    // The interval decides; without any noise, every difference is one.
    let verdict = match (shift.abs() > reach, shift > 0.0) {
        (false, _) => Verdict::NoDifferenceShown,
        (true, true) => Verdict::Better,
        (true, false) => Verdict::Worse,
    };
    Difference {
        label: String::new(),
        a: vec![],
        b: vec![],
        ratio: shift.exp(),
        low: (shift - reach).exp(),
        high: (shift + reach).exp(),
        confidence: 1.0 - error,
        effect: (deviation > 0.0).then(|| shift / deviation),
        p: if reach > 0.0 || shift == 0.0 { p } else { 0.0 },
        verdict,
        detectable: detectable.exp() - 1.0,
        detectable_with_patience: planned.detectable(ROUNDS_OF_PATIENCE).exp() - 1.0,
        rounds,
        rounds_for_5_percent: planned.rounds_for(1.05f64.ln()),
    }
}

/// A deviation that was measured with few rounds is more often too small than too large. Plans use the bound that holds
/// nine times out of ten.
fn upper_bound(deviation: f64, degrees: f64) -> f64 {
    deviation / (chi_square_quantile(0.1, degrees) / degrees).sqrt()
}

/// The detectable change with other numbers of rounds, if rounds are independent.
#[derive(Clone, Copy)]
enum Plan {
    /// `deviation`: of one round.
    Successive { deviation: f64, error: f64 },
    /// `deviation`: of the difference within one round.
    InTurns { deviation: f64, error: f64 },
}

impl Plan {
    /// As a logarithm.
    fn detectable(self, rounds: u32) -> f64 {
        let n = f64::from(rounds);
        match self {
            Plan::Successive { deviation, error } => {
                let blocks = block_count(rounds as usize, error);
                let degrees = drift::degrees(blocks);
                let rounds = rounds as usize;
                let reach = Null::of(rounds, rounds, blocks).critical(error) * degrees.sqrt();
                (reach + t_quantile(2.0 * POWER - 1.0, degrees) * (2.0 / n).sqrt()) * deviation
            }
            Plan::InTurns { deviation, error } => {
                let reach = t_quantile(1.0 - error, n - 1.0) + t_quantile(2.0 * POWER - 1.0, n - 1.0);
                reach * deviation / n.sqrt()
            }
        }
    }

    fn rounds_for(self, change: f64) -> Option<u32> {
        let is_enough = |n: u32| self.detectable(n) <= change;
        if !is_enough(ROUNDS_MAX) {
            return None;
        }
        let (mut low, mut high) = (ROUNDS_MIN as u32 - 1, ROUNDS_MAX);
        while high - low > 1 {
            let mid = low + (high - low) / 2;
            if is_enough(mid) { high = mid } else { low = mid }
        }
        Some(high)
    }
}

/// The noise of a run: the deviation of rounds of one point as a share of their mean; the median over points.
pub fn noise_floor(rounds: &Rounds) -> Option<f64> {
    let values = |r: &Vec<Round>| r.iter().map(|r| r.value).collect::<Vec<f64>>();
    let noise: Vec<f64> =
        rounds.values().filter(|r| r.len() > 1).map(|r| super::stats::variation(&values(r))).collect();
    (!noise.is_empty()).then(|| super::stats::median(&noise))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    use rand_distr::{Distribution, Normal};

    /// A machine that drifts: a level for each round, which all points share, and noise of each point.
    #[derive(Clone, Copy, Debug)]
    enum Drift {
        None,
        /// Autoregressive, with this correlation of successive rounds.
        Autoregressive(f64),
        Walk,
        /// A new level with this probability in each round.
        Steps(f64),
        /// Rounds that stall, with this probability.
        Outliers(f64),
    }

    const SHARED: f64 = 0.05;
    const OWN: f64 = 0.03;

    fn normal(random: &mut StdRng, deviation: f64) -> f64 {
        Normal::new(0.0, deviation).unwrap().sample(random)
    }

    fn levels(random: &mut StdRng, drift: Drift, rounds: usize) -> Vec<f64> {
        let mut level = 0.0;
        let burn_in = 40;
        let mut next = |_| {
            let step = normal(random, SHARED);
            let stalls = random.random_bool(match drift {
                Drift::Steps(p) | Drift::Outliers(p) => p,
                _ => 0.0,
            });
            match drift {
                Drift::None => step,
                Drift::Autoregressive(rho) => {
                    level = rho * level + step;
                    level
                }
                Drift::Walk => {
                    level += step;
                    level
                }
                Drift::Steps(_) => {
                    level += if stalls { normal(random, 4.0 * SHARED) } else { 0.0 };
                    level + step
                }
                Drift::Outliers(_) => step - if stalls { 20.0 * SHARED } else { 0.0 },
            }
        };
        (0..burn_in + rounds).map(&mut next).skip(burn_in).collect()
    }

    /// Rounds of several points; `factor` is the side's advantage.
    fn side(random: &mut StdRng, points: usize, levels: &[f64], factor: f64) -> Rounds {
        let point = |n: usize| {
            let truth = 1000.0 * (n + 1) as f64 * factor;
            let round = |(number, level): (usize, &f64)| {
                let noise = level + normal(random, OWN);
                Round { number: number as u32, value: truth * noise.exp() }
            };
            (format!("{n}"), levels.iter().enumerate().map(round).collect())
        };
        (0..points).map(point).collect()
    }

    type Compared = (Vec<Difference>, Option<Difference>);

    fn successive_runs(
        random: &mut StdRng,
        drift: Drift,
        points: usize,
        rounds: usize,
        factor: f64,
    ) -> Compared {
        let levels = levels(random, drift, 2 * rounds);
        let a = side(random, points, &levels[..rounds], 1.0);
        let b = side(random, points, &levels[rounds..], factor);
        compare(&a, &b, Design::Successive)
    }

    /// Both sides in each round, in the orders in which the lab measures clusters in turns.
    fn runs_in_turns(
        random: &mut StdRng,
        drift: Drift,
        points: usize,
        rounds: usize,
        factor: f64,
    ) -> Compared {
        let levels = levels(random, drift, 2 * rounds);
        let orders = crate::matrix::order::balanced_orders(2, rounds, random);
        let of = |side: usize| -> Vec<f64> { (0..rounds).map(|n| levels[2 * n + orders[n][side]]).collect() };
        let a = side(random, points, &of(0), 1.0);
        let b = side(random, points, &of(1), factor);
        compare(&a, &b, Design::InTurns)
    }

    fn is_calm((each, whole): &Compared) -> bool {
        each.iter().chain(whole).all(|d| d.verdict == Verdict::NoDifferenceShown)
    }

    const DRIFTS: [Drift; 8] = [
        Drift::None,
        Drift::Autoregressive(0.3),
        Drift::Autoregressive(0.6),
        Drift::Autoregressive(0.9),
        Drift::Walk,
        Drift::Steps(0.02),
        Drift::Steps(0.1),
        Drift::Outliers(0.1),
    ];

    fn false_alarms(design: Design) {
        let mut random = StdRng::seed_from_u64(1);
        const TRIALS: usize = 600;
        for drift in DRIFTS {
            for (points, rounds) in [(1, 3), (8, 3), (8, 5), (2, 10), (20, 20)] {
                let mut is_false = |_: &usize| {
                    let found = match design {
                        Design::Successive => successive_runs(&mut random, drift, points, rounds, 1.0),
                        Design::InTurns => runs_in_turns(&mut random, drift, points, rounds, 1.0),
                    };
                    !is_calm(&found)
                };
                let alarms = (0..TRIALS).filter(&mut is_false).count();
                // 5 %, and twice the deviation of this many trials.
                let most = (0.05 + 2.0 * (0.05f64 * 0.95 / TRIALS as f64).sqrt()) * TRIALS as f64;
                println!("{design:?} {drift:?} {points} points {rounds} rounds: {alarms} of {TRIALS}");
                assert!(alarms as f64 <= most, "{drift:?}, {points} points, {rounds} rounds: {alarms}");
            }
        }
    }

    #[test]
    fn successive_runs_of_the_same_differ_in_at_most_5_of_100() {
        false_alarms(Design::Successive);
    }

    #[test]
    fn same_cluster_in_turns_differs_in_at_most_5_of_100() {
        false_alarms(Design::InTurns);
    }

    #[test]
    fn twofold_difference_is_found_in_3_rounds_of_turns() {
        let mut random = StdRng::seed_from_u64(2);
        for drift in DRIFTS {
            let mut is_found = |_: &usize| {
                runs_in_turns(&mut random, drift, 6, 3, 2.0).1.unwrap().verdict == Verdict::Better
            };
            let found = (0..200).filter(&mut is_found).count();
            let least = if matches!(drift, Drift::Outliers(_)) { 80 } else { 180 };
            assert!(found >= least, "{drift:?}: {found} of 200");
        }
    }

    #[test]
    fn twofold_difference_is_found_in_successive_runs() {
        let mut random = StdRng::seed_from_u64(3);
        for (drift, rounds) in [(Drift::None, 3), (Drift::Autoregressive(0.6), 5), (Drift::Walk, 5)] {
            let mut is_found = |_: &usize| {
                successive_runs(&mut random, drift, 6, rounds, 0.5).1.unwrap().verdict == Verdict::Worse
            };
            let found = (0..200).filter(&mut is_found).count();
            assert!(found >= 180, "{drift:?}: {found} of 200");
        }
    }

    #[test]
    fn turns_find_less_than_successive_runs_do() {
        let mut random = StdRng::seed_from_u64(4);
        let (mut in_turns, mut apart) = (0, 0);
        for _ in 0..200 {
            let is_found = |d: Compared| usize::from(d.1.unwrap().verdict == Verdict::Better);
            in_turns += is_found(runs_in_turns(&mut random, Drift::Autoregressive(0.9), 8, 10, 1.15));
            apart += is_found(successive_runs(&mut random, Drift::Autoregressive(0.9), 8, 10, 1.15));
        }
        assert!(in_turns >= 190 && apart < 100, "{in_turns} {apart}");
    }

    #[test]
    fn planned_rounds_find_the_change() {
        let mut random = StdRng::seed_from_u64(5);
        for design in [Design::Successive, Design::InTurns] {
            let (mut found, mut planned) = (0, 0);
            for _ in 0..100 {
                let mut run = |rounds: usize, factor: f64| {
                    let found = match design {
                        Design::Successive => successive_runs(&mut random, Drift::None, 4, rounds, factor),
                        Design::InTurns => runs_in_turns(&mut random, Drift::None, 4, rounds, factor),
                    };
                    found.1.unwrap()
                };
                let Some(rounds) = run(6, 1.0).rounds_for_5_percent.filter(|n| *n < 2000) else { continue };
                planned += 1;
                found += usize::from(run(rounds as usize, 1.05).verdict == Verdict::Better);
            }
            assert!(planned >= 95 && found * 10 >= planned * 8, "{design:?}: {found} of {planned}");
        }
    }

    proptest::proptest! {
        /// Whatever the values: a difference is shown exactly where the interval leaves out 1.
        #[test]
        fn verdict_and_interval_agree(
            a in proptest::collection::vec(1.0f64..100.0, 1..8),
            b in proptest::collection::vec(1.0f64..100.0, 1..8),
            points in 1usize..4,
        ) {
            let side = |values: &[f64]| -> Rounds {
                let round = |(n, v): (usize, &f64)| Round { number: n as u32, value: *v };
                (0..points).map(|p| (p.to_string(), values.iter().enumerate().map(round).collect())).collect()
            };
            for design in [Design::Successive, Design::InTurns] {
                let (each, whole) = compare(&side(&a), &side(&b), design);
                for d in each.iter().chain(&whole) {
                    let (low, high) = (d.low > 1.0, d.high < 1.0);
                    proptest::prop_assert_eq!(d.verdict == Verdict::Better, low, "{:?}", d);
                    proptest::prop_assert_eq!(d.verdict == Verdict::Worse, high, "{:?}", d);
                    proptest::prop_assert_eq!(d.verdict == Verdict::TooFewRounds, d.rounds < ROUNDS_MIN);
                    if d.verdict != Verdict::TooFewRounds {
                        proptest::prop_assert!(d.low <= d.ratio && d.ratio <= d.high);
                        let is_significant = d.p < 1.0 - d.confidence;
                        let is_near = (d.p / (1.0 - d.confidence) - 1.0).abs() < 0.05;
                        proptest::prop_assert!(is_significant == (low || high) || is_near, "{:?}", d);
                    }
                }
            }
        }
    }

    fn one_point(values: &[f64]) -> Rounds {
        let round = |(n, v): (usize, &f64)| Round { number: n as u32, value: *v };
        Rounds::from([("x".to_owned(), values.iter().enumerate().map(round).collect())])
    }

    /// `versus` that was interrupted after two rounds: a ratio of 6.5 is no verdict, and no interval stands beside it.
    #[test]
    fn two_rounds_are_too_few_to_tell() {
        for design in [Design::Successive, Design::InTurns] {
            let (each, whole) = compare(&one_point(&[10.0, 12.0]), &one_point(&[70.0, 72.0]), design);
            for d in each.iter().chain(&whole) {
                assert_eq!(d.verdict, Verdict::TooFewRounds);
                assert_eq!((d.low, d.high, d.rounds_for_5_percent), (0.0, f64::INFINITY, Some(3)));
                assert!(d.ratio > 6.0);
            }
        }
        assert!(compare(&one_point(&[1.0]), &Rounds::new(), Design::Successive).1.is_none());
        assert_eq!(noise_floor(&one_point(&[1.0])), None);
    }

    #[test]
    fn failed_point_in_one_round_is_no_difference() {
        let mut random = StdRng::seed_from_u64(6);
        for design in [Design::Successive, Design::InTurns] {
            let level = [0.0; 4];
            let a = side(&mut random, 3, &level, 1.0);
            let mut b = side(&mut random, 3, &level, 1.0);
            // A point at another level than the others: its absence must not shift its round.
            b.get_mut("2").unwrap().remove(1);
            let found = compare(&a, &b, design);
            let whole = found.1.as_ref().unwrap();
            assert!(is_calm(&found) && (0.8..1.25).contains(&whole.ratio), "{found:?}");
        }
    }

    #[test]
    fn noiseless_rounds_have_empty_intervals() {
        for design in [Design::Successive, Design::InTurns] {
            let of = |value: f64| one_point(&[value; 3]);
            let same = compare(&of(5.0), &of(5.0), design).1.unwrap();
            assert_eq!((same.verdict, same.p), (Verdict::NoDifferenceShown, 1.0));
            let twice = compare(&of(5.0), &of(10.0), design).1.unwrap();
            assert_eq!((twice.verdict, twice.ratio.round(), twice.p), (Verdict::Better, 2.0, 0.0));
        }
    }
}
