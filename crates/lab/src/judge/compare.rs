//! Do two runs differ? Points of the same description are paired; what is compared is the logarithm of a rate, so that
//! "twice" and "half" are equally far, and a difference is a ratio.
//!
//! **What is promised**: of 100 comparisons of a thing with itself, at most 5 say anywhere, of the whole or of any
//! point, that it differs. Half of that error is for the whole, half for all points together (after Holm).
//!
//! **What a repeat is.** A host that is busy for a minute slows all points that run in that minute, so points of one
//! repeat are not independent, and the whole may not be judged as if they were: eight points in three repeats are
//! three observations, not 24. Here each repeat gives the whole one value, the mean over its points, and the
//! uncertainty comes from how those differ. (Taking points as independent found a difference in nothing in 9 of
//! 100 comparisons of two halves of a recording; this way it is 2.)
//!
//! **Drift.** Repeats of one run that measured both in turns share the machine's drift, so they are compared within
//! each repeat ([`Design::InTurns`]). Two runs one after the other ([`Design::Apart`]) share nothing: what has changed
//! on the host between them counts as theirs, which no formula can undo, and [`super::conditions`] tells.

use super::stats::{chi_square_quantile, mean, t_p_value, t_quantile, variance};
use crate::results::PointRecord;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Of the whole; all points together share the same again.
pub const CONFIDENCE: f64 = 0.975;
/// Of the interval that stands beside a single point, seen by itself.
pub const CONFIDENCE_OF_POINT: f64 = 0.95;
/// How often a difference of the size asked for is to be found.
const POWER: f64 = 0.8;
/// With fewer repeats than this, comparing within them leaves too little to judge noise by.
const PAIRS_MIN: usize = 6;
/// More repeats than this are not counted: by then nobody would know what has changed meanwhile.
pub const REPEATS_MAX: u32 = 100_000;
/// As many as a patient person measures: what these would show is told where 5 % take more.
pub const REPEATS_OF_PATIENCE: u32 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Better,
    Worse,
    NoDifferenceShown,
    /// A single repeat says nothing about noise.
    TooFewRepeats,
}

impl Verdict {
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifferenceShown => "no difference shown",
            Verdict::TooFewRepeats => "too few repeats to tell",
        }
    }
}

/// How were the two sides measured?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// Each in a run of its own.
    Apart,
    /// In one run: each repeat has both, close together.
    InTurns,
}

/// B against A: a ratio above 1 is B's advantage.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub label: String,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
    pub ratio: f64,
    /// Confidence interval of the ratio, at `confidence`.
    pub low: f64,
    pub high: f64,
    pub confidence: f64,
    /// Cohen's d on logarithms; `None` without noise to compare with.
    pub effect: Option<f64>,
    pub p: f64,
    pub verdict: Verdict,
    /// The smallest change that this many repeats would show four times out of five, as a share.
    pub detectable: f64,
    /// The same with [`REPEATS_OF_PATIENCE`] of each side.
    pub detectable_with_patience: f64,
    /// The fewest repeats that a side has.
    pub repeats: usize,
    /// Repeats of each side that a change of 5 % would need; `None` where that is more than [`REPEATS_MAX`].
    pub repeats_for_5_percent: Option<u32>,
}

/// What is compared: larger must be better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    OpsPerS,
    /// One over the mean latency.
    Latency,
    /// One over the 99th percentile.
    Tail,
    /// One over the processor time of an operation, daemons and client together: what a busy neighbour changes least.
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

/// One repeat of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeat {
    pub iteration: u32,
    pub value: f64,
}

/// By what the point is.
pub type Repeats = BTreeMap<String, Vec<Repeat>>;

/// The repeats of each point. Where `across_clusters`, the cluster is not part of what the point is.
pub fn repeats(points: &[PointRecord], metric: Metric, across_clusters: bool) -> Repeats {
    let mut out = Repeats::new();
    for point in points {
        let label = if across_clusters { point.spec.label() } else { point.label() };
        if let Some(value) = metric.of(point) {
            out.entry(label).or_default().push(Repeat { iteration: point.iteration, value });
        }
    }
    out
}

/// Every point that both have, and the whole.
pub fn compare(a: &Repeats, b: &Repeats, design: Design) -> (Vec<Difference>, Option<Difference>) {
    let common: Vec<(&String, &[Repeat], &[Repeat])> =
        a.iter().filter_map(|(label, a)| Some((label, a.as_slice(), b.get(label)?.as_slice()))).collect();
    let judged = |pairs: &[(&[Repeat], &[Repeat])], confidence: f64| match design {
        Design::InTurns => in_turns(pairs, confidence).unwrap_or_else(|| apart(pairs, confidence)),
        Design::Apart => apart(pairs, confidence),
    };
    let values = |repeats: &[Repeat]| repeats.iter().map(|r| r.value).collect();
    let mut points: Vec<Difference> = common
        .iter()
        .map(|(label, a, b)| Difference {
            label: (*label).clone(),
            a: values(a),
            b: values(b),
            ..judged(&[(a, b)], CONFIDENCE_OF_POINT)
        })
        .collect();
    holm(&mut points);
    let sides: Vec<(&[Repeat], &[Repeat])> = common.iter().map(|(_, a, b)| (*a, *b)).collect();
    let whole = (!sides.is_empty()).then(|| judged(&sides, CONFIDENCE));
    (points, whole.map(|whole| Difference { label: "all points together".into(), ..whole }))
}

/// What one side's repeats say of the mean over points of logarithms.
struct Side {
    mean: f64,
    /// Of the mean.
    variance: f64,
    /// Of a single repeat, all points together.
    spread: f64,
    repeats: usize,
}

/// The mean is a sum over repeats of what each adds to it; how those differ is its uncertainty, whatever points of one
/// repeat share. A point that failed in one repeat weighs as much as the others by those it has.
fn side(points: &[&[Repeat]]) -> Side {
    let n = points.len() as f64;
    let mut added: BTreeMap<u32, f64> = BTreeMap::new();
    let mut total = 0.0;
    for repeats in points {
        let logs: Vec<f64> = repeats.iter().map(|r| r.value.ln()).collect();
        let own = mean(&logs);
        total += own / n;
        for (repeat, log) in repeats.iter().zip(&logs) {
            *added.entry(repeat.iteration).or_default() += (log - own) / (n * logs.len() as f64);
        }
    }
    let count = added.len() as f64;
    let squares: f64 = added.values().map(|v| v * v).sum();
    let variance = if count > 1.0 { squares * count / (count - 1.0) } else { 0.0 };
    Side { mean: total, variance, spread: variance * count, repeats: added.len() }
}

/// Welch's and Satterthwaite's, over repeats.
fn apart(points: &[(&[Repeat], &[Repeat])], confidence: f64) -> Difference {
    let a = side(&points.iter().map(|p| p.0).collect::<Vec<_>>());
    let b = side(&points.iter().map(|p| p.1).collect::<Vec<_>>());
    let (na, nb) = (a.repeats as f64 - 1.0, b.repeats as f64 - 1.0);
    let variance = a.variance + b.variance;
    let degrees = variance.powi(2) / (a.variance.powi(2) / na.max(1.0) + b.variance.powi(2) / nb.max(1.0));
    let degrees = if degrees.is_finite() { degrees } else { na + nb };
    let repeats = a.repeats.min(b.repeats);
    let spread = (a.spread + b.spread) / 2.0;
    // The noise of a difference of two single repeats, each on its own.
    judge(
        b.mean - a.mean,
        variance.sqrt(),
        degrees,
        repeats,
        confidence,
        (2.0 * spread).sqrt(),
        spread.sqrt(),
    )
}

/// Within each repeat that has every point on both sides. `None` where those are too few.
fn in_turns(points: &[(&[Repeat], &[Repeat])], confidence: f64) -> Option<Difference> {
    let of = |repeats: &[Repeat]| -> BTreeMap<u32, f64> {
        repeats.iter().map(|r| (r.iteration, r.value.ln())).collect()
    };
    let points: Vec<(BTreeMap<u32, f64>, BTreeMap<u32, f64>)> =
        points.iter().map(|(a, b)| (of(a), of(b))).collect();
    let all: BTreeSet<u32> = points.iter().flat_map(|(a, _)| a.keys().copied()).collect();
    let shift = |r: &u32| -> Option<f64> {
        let each: Option<Vec<f64>> = points.iter().map(|(a, b)| Some(b.get(r)? - a.get(r)?)).collect();
        each.map(|each| mean(&each))
    };
    let shifts: Vec<f64> = all.iter().filter_map(shift).collect();
    (shifts.len() >= PAIRS_MIN).then(|| {
        let (n, spread) = (shifts.len() as f64, variance(&shifts));
        let each = (spread / 2.0).sqrt();
        judge(mean(&shifts), (spread / n).sqrt(), n - 1.0, shifts.len(), confidence, spread.sqrt(), each)
    })
}

/// `of_pair`: the deviation of the difference of one repeat on each side; `of_one`: that of a single repeat.
fn judge(
    shift: f64,
    error: f64,
    degrees: f64,
    repeats: usize,
    confidence: f64,
    of_pair: f64,
    of_one: f64,
) -> Difference {
    let enough = repeats > 1;
    let reach = if enough { t_quantile(confidence, degrees) } else { f64::INFINITY };
    let p = match (enough, error > 0.0) {
        (false, _) => 1.0,
        (true, true) => t_p_value(shift / error, degrees),
        // No noise at all: any difference is one.
        (true, false) => f64::from(u8::from(shift == 0.0)),
    };
    let width = if error > 0.0 { reach * error } else { 0.0 };
    let verdict = match (enough, p < 1.0 - CONFIDENCE, shift > 0.0) {
        (false, ..) => Verdict::TooFewRepeats,
        (true, false, _) => Verdict::NoDifferenceShown,
        (true, true, true) => Verdict::Better,
        (true, true, false) => Verdict::Worse,
    };
    let found = t_quantile(2.0 * POWER - 1.0, degrees);
    let reach_of_verdict = t_quantile(CONFIDENCE, degrees);
    let detectable = if enough { ((reach_of_verdict + found) * error).exp() - 1.0 } else { f64::INFINITY };
    Difference {
        label: String::new(),
        a: vec![],
        b: vec![],
        ratio: shift.exp(),
        low: (shift - width).exp(),
        high: (shift + width).exp(),
        confidence,
        effect: (of_one > 0.0).then(|| shift / of_one),
        p,
        verdict,
        detectable,
        repeats,
        detectable_with_patience: match enough {
            true => found_with(REPEATS_OF_PATIENCE, planned(of_pair, degrees)).exp() - 1.0,
            false => f64::INFINITY,
        },
        repeats_for_5_percent: if enough { repeats_needed(planned(of_pair, degrees)) } else { Some(2) },
    }
}

/// The noise was itself measured with few repeats, and where single repeats stall it is more often taken for too small than
/// for too large: what is planned with is the upper bound that holds nine times out of ten.
fn planned(of_pair: f64, degrees: f64) -> f64 {
    of_pair / (chi_square_quantile(0.1, degrees) / degrees).sqrt()
}

/// The change, as a logarithm, that so many repeats of each side find four times out of five.
fn found_with(repeats: u32, deviation: f64) -> f64 {
    let degrees = 2.0 * f64::from(repeats) - 2.0;
    let reach = t_quantile(CONFIDENCE, degrees) + t_quantile(2.0 * POWER - 1.0, degrees);
    reach * deviation / f64::from(repeats).sqrt()
}

/// Repeats of each side so that 5 % are found.
fn repeats_needed(deviation: f64) -> Option<u32> {
    let enough = |n: u32| found_with(n, deviation) <= 1.05f64.ln();
    if !enough(REPEATS_MAX) {
        return None;
    }
    let (mut low, mut high) = (1, REPEATS_MAX);
    while high - low > 1 {
        let mid = low + (high - low) / 2;
        if enough(mid) { high = mid } else { low = mid }
    }
    Some(high)
}

/// The more points are looked at, the more a single one must differ: the smallest p is held against the error that all
/// points share, the next against what the rest shares, until one is not below.
fn holm(points: &mut [Difference]) {
    let mut order: Vec<usize> =
        (0..points.len()).filter(|n| points[*n].verdict != Verdict::TooFewRepeats).collect();
    order.sort_by(|a, b| points[*a].p.total_cmp(&points[*b].p));
    let mut shown = true;
    for (rank, n) in order.iter().enumerate() {
        shown &= points[*n].p < (1.0 - CONFIDENCE) / (order.len() - rank) as f64;
        if !shown {
            points[*n].verdict = Verdict::NoDifferenceShown;
        }
    }
}

/// The noise of a run: how much repeats of the same point differ, as a share; the median over points.
pub fn noise_floor(repeats: &Repeats) -> Option<f64> {
    let values = |r: &Vec<Repeat>| r.iter().map(|r| r.value).collect::<Vec<f64>>();
    let noise: Vec<f64> =
        repeats.values().filter(|r| r.len() > 1).map(|r| super::stats::variation(&values(r))).collect();
    (!noise.is_empty()).then(|| super::stats::median(&noise))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};
    use rand_distr::{Distribution, Normal};

    /// Noise of single points, and noise that all points of a repeat share.
    struct Noise(f64, f64);

    fn run(random: &mut StdRng, points: usize, repeats: u32, noise: Noise, factor: f64) -> Repeats {
        let own = Normal::new(0.0, noise.0).unwrap();
        let shared: Vec<f64> =
            (0..repeats).map(|_| Normal::new(0.0, noise.1).unwrap().sample(random)).collect();
        let mut point = |n: usize| {
            let truth = 1000.0 * (n + 1) as f64 * factor;
            let mut repeat = |iteration: u32| {
                let noise = own.sample(random) + shared[iteration as usize];
                Repeat { iteration, value: truth * f64::exp(noise) }
            };
            (format!("{n}"), (0..repeats).map(&mut repeat).collect())
        };
        (0..points).map(&mut point).collect()
    }

    fn is_calm((each, whole): &(Vec<Difference>, Option<Difference>)) -> bool {
        each.iter().chain(whole).all(|d| d.verdict == Verdict::NoDifferenceShown)
    }

    #[test]
    fn doing_nothing_shows_no_difference_anywhere_in_95_of_100() {
        let mut random = StdRng::seed_from_u64(1);
        for (points, repeats, shared) in [(1, 3, 0.0), (8, 3, 0.0), (20, 5, 0.0), (8, 3, 0.04), (20, 8, 0.1)]
        {
            let mut quiet = |_: &u32| {
                let a = run(&mut random, points, repeats, Noise(0.04, shared), 1.0);
                let b = run(&mut random, points, repeats, Noise(0.04, shared), 1.0);
                is_calm(&compare(&a, &b, Design::Apart))
            };
            let calm = (0..1000).filter(&mut quiet).count();
            assert!(calm >= 950, "{calm} of 1000 with {points} points of {repeats}, {shared} shared");
        }
    }

    #[test]
    fn what_a_repeat_shares_is_taken_away_by_measuring_in_turns() {
        let mut random = StdRng::seed_from_u64(3);
        let (mut calm, mut found, mut found_apart) = (0, 0, 0);
        for _ in 0..300 {
            // Both sides of a repeat ran while the host was as busy: a and b are two halves of the same points.
            let both = run(&mut random, 8, 8, Noise(0.02, 0.3), 1.0);
            let half = |odd: usize, factor: f64| -> Repeats {
                let own = both.iter().enumerate().filter(|(n, _)| n % 2 == odd);
                own.enumerate()
                    .map(|(n, (_, (_, repeats)))| {
                        let mean = repeats.iter().map(|r| r.value.ln()).sum::<f64>() / 8.0;
                        let level = |r: &Repeat| Repeat { value: r.value / mean.exp() * factor, ..*r };
                        (n.to_string(), repeats.iter().map(level).collect())
                    })
                    .collect()
            };
            let whole =
                |factor: f64, design| compare(&half(0, 1.0), &half(1, factor), design).1.unwrap().verdict;
            calm += u32::from(whole(1.0, Design::InTurns) == Verdict::NoDifferenceShown);
            found += u32::from(whole(0.95, Design::InTurns) == Verdict::Worse);
            found_apart += u32::from(whole(0.95, Design::Apart) == Verdict::Worse);
        }
        assert!(calm >= 285 && found >= 285 && found_apart <= 15, "{calm} {found} {found_apart}");
    }

    #[test]
    fn five_percent_are_found_or_more_repeats_are_asked_for() {
        let mut random = StdRng::seed_from_u64(2);
        let (mut found, mut asked) = (0, 0);
        for _ in 0..200 {
            let a = run(&mut random, 8, 3, Noise(0.03, 0.0), 1.0);
            let b = run(&mut random, 8, 3, Noise(0.03, 0.0), 0.95);
            let whole = compare(&a, &b, Design::Apart).1.unwrap();
            match whole.verdict {
                Verdict::Worse => found += 1,
                Verdict::NoDifferenceShown => {
                    asked += u32::from(whole.repeats_for_5_percent.is_none_or(|n| n > 3))
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(found >= 160, "four in five: {found}");
        assert_eq!(found + asked, 200);
        let mut noisy = || run(&mut random, 1, 3, Noise(0.2, 0.0), 1.0);
        let whole = compare(&noisy(), &noisy(), Design::Apart).1.unwrap();
        assert!(whole.repeats_for_5_percent.is_none_or(|n| n > 30) && whole.detectable > 0.3, "{whole:?}");
    }

    #[test]
    fn what_no_number_of_repeats_would_find_is_not_counted() {
        assert!(repeats_needed(0.02).is_some_and(|n| (2..20).contains(&n)));
        assert!(repeats_needed(0.1).is_some_and(|n| (20..100).contains(&n)));
        assert_eq!(repeats_needed(50.0), None);
        let n = repeats_needed(0.1).unwrap();
        assert!(found_with(n, 0.1) <= 1.05f64.ln() && found_with(n - 1, 0.1) > 1.05f64.ln());
    }

    #[test]
    fn a_point_that_failed_in_one_repeat_is_no_difference() {
        let mut random = StdRng::seed_from_u64(4);
        let a = run(&mut random, 3, 4, Noise(0.01, 0.0), 1.0);
        let mut b = run(&mut random, 3, 4, Noise(0.01, 0.0), 1.0);
        b.get_mut("2").unwrap().remove(1);
        let found = compare(&a, &b, Design::Apart);
        assert!(is_calm(&found), "{found:?}");
    }

    #[test]
    fn a_single_repeat_says_nothing() {
        let one = |value: f64| Repeats::from([("x".to_owned(), vec![Repeat { iteration: 0, value }])]);
        let (each, whole) = compare(&one(1.0), &one(2.0), Design::Apart);
        assert_eq!(each[0].verdict, Verdict::TooFewRepeats);
        assert_eq!(whole.unwrap().verdict, Verdict::TooFewRepeats);
        assert!(compare(&one(1.0), &Repeats::new(), Design::Apart).1.is_none());
        assert_eq!(noise_floor(&one(1.0)), None);
    }

    #[test]
    fn no_noise_is_no_division_by_zero() {
        let of = |value: f64| {
            let repeats = (0..3).map(|iteration| Repeat { iteration, value }).collect();
            Repeats::from([("x".to_owned(), repeats)])
        };
        let same = compare(&of(5.0), &of(5.0), Design::Apart).1.unwrap();
        assert_eq!(same.verdict, Verdict::NoDifferenceShown);
        let twice = compare(&of(5.0), &of(10.0), Design::Apart).1.unwrap();
        assert_eq!((twice.verdict, twice.ratio.round()), (Verdict::Better, 2.0));
    }
}
