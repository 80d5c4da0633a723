//! Do two runs differ? Points of the same description are paired; what is compared is the logarithm of a rate, so that
//! "twice" and "half" are equally far, and a difference is a ratio.
//!
//! For one point the interval is Welch's, over its repeats. For the runs as a whole each pair of points gives one log
//! ratio, weighed equally, and its uncertainty comes from the repeats within points (not from how points differ, which
//! is no noise). Words are given at 95 %, corrected after Holm where many points are judged at once.

use super::stats::{mean, t_p_value, t_quantile, variance};
use crate::results::PointRecord;
use serde::Serialize;
use std::collections::BTreeMap;

pub const CONFIDENCE: f64 = 0.95;

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

/// B against A: a ratio above 1 is B's advantage.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub label: String,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
    pub ratio: f64,
    /// Confidence interval of the ratio.
    pub low: f64,
    pub high: f64,
    /// Cohen's d on logarithms; `None` without noise to compare with.
    pub effect: Option<f64>,
    pub p: f64,
    pub verdict: Verdict,
    /// The smallest change that this many repeats would show four times out of five, as a share.
    pub detectable: f64,
    /// Repeats of each side that a change of 5 % would need.
    pub repeats_for_5_percent: u32,
}

/// What is compared: larger must be better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    OpsPerS,
    /// One over the mean latency.
    Latency,
}

impl Metric {
    fn of(self, point: &PointRecord) -> Option<f64> {
        let measured = point.measured.as_ref()?;
        let value = match self {
            Metric::OpsPerS => measured.ops_per_s,
            Metric::Latency => 1e6 / measured.latency.mean_us,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

/// The repeats of each point, by what the point is. Where `across_clusters`, the cluster is not part of that.
pub fn repeats(points: &[PointRecord], metric: Metric, across_clusters: bool) -> BTreeMap<String, Vec<f64>> {
    let mut out: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for point in points {
        let label = if across_clusters { point.spec.label() } else { point.label() };
        if let Some(value) = metric.of(point) {
            out.entry(label).or_default().push(value);
        }
    }
    out
}

/// Every point that both have, and the whole.
pub fn compare(
    a: &BTreeMap<String, Vec<f64>>,
    b: &BTreeMap<String, Vec<f64>>,
) -> (Vec<Difference>, Option<Difference>) {
    let mut points: Vec<Difference> =
        a.iter().filter_map(|(label, a)| Some(difference(label, a, b.get(label)?))).collect();
    holm(&mut points);
    let overall = overall(&points);
    (points, overall)
}

fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| v.ln()).collect()
}

fn difference(label: &str, a: &[f64], b: &[f64]) -> Difference {
    let (la, lb) = (logs(a), logs(b));
    let (na, nb) = (la.len() as f64, lb.len() as f64);
    let (va, vb) = (variance(&la) / na, variance(&lb) / nb);
    // Welch and Satterthwaite.
    let degrees = (va + vb).powi(2) / (va.powi(2) / (na - 1.0).max(1.0) + vb.powi(2) / (nb - 1.0).max(1.0));
    let degrees = if degrees.is_finite() { degrees } else { na + nb - 2.0 };
    let enough = la.len() > 1 && lb.len() > 1;
    let mut out = judge(mean(&lb) - mean(&la), (va + vb).sqrt(), degrees, enough);
    let pooled = ((variance(&la) + variance(&lb)) / 2.0).sqrt();
    out.effect = (pooled > 0.0).then(|| (mean(&lb) - mean(&la)) / pooled);
    out.repeats_for_5_percent = repeats_needed(pooled);
    (out.label, out.a, out.b) = (label.to_owned(), a.to_vec(), b.to_vec());
    out
}

fn judge(shift: f64, error: f64, degrees: f64, enough: bool) -> Difference {
    let reach = if enough { t_quantile(CONFIDENCE, degrees) } else { f64::INFINITY };
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
    // 0.84 standard errors above the threshold is where four of five are found.
    let detectable = if enough { ((reach + 0.84) * error).exp() - 1.0 } else { f64::INFINITY };
    Difference {
        label: String::new(),
        a: vec![],
        b: vec![],
        ratio: shift.exp(),
        low: (shift - width).exp(),
        high: (shift + width).exp(),
        effect: None,
        p,
        verdict,
        detectable,
        repeats_for_5_percent: 0,
    }
}

/// Repeats of each side so that 5 % are found four times out of five, at this noise of a single repeat.
fn repeats_needed(deviation: f64) -> u32 {
    let shift = 1.05f64.ln();
    (2..=1000)
        .find(|n| {
            let n = f64::from(*n);
            (t_quantile(CONFIDENCE, 2.0 * n - 2.0) + 0.84) * deviation * (2.0 / n).sqrt() <= shift
        })
        .unwrap_or(1000)
}

/// The more points are looked at, the more a single one must differ: the smallest p is held against 5 % over all of
/// them, the next against 5 % over the rest, until one is not below.
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

fn overall(points: &[Difference]) -> Option<Difference> {
    if points.is_empty() {
        return None;
    }
    let n = points.len() as f64;
    let shift = mean(&points.iter().map(|p| p.ratio.ln()).collect::<Vec<_>>());
    let (mut squares, mut degrees, mut of_mean) = (0.0, 0.0, 0.0);
    for p in points {
        for side in [logs(&p.a), logs(&p.b)] {
            squares += variance(&side) * (side.len() - 1) as f64;
            degrees += (side.len() - 1) as f64;
            of_mean += 1.0 / side.len() as f64;
        }
    }
    let enough = degrees > 0.0;
    let deviation = if enough { (squares / degrees).sqrt() } else { 0.0 };
    let mut out = judge(shift, deviation * of_mean.sqrt() / n, degrees.max(1.0), enough);
    out.label = "all points together".into();
    out.effect = (deviation > 0.0).then(|| shift / deviation);
    out.repeats_for_5_percent = repeats_needed(deviation);
    Some(out)
}

/// The noise of a run: how much repeats of the same point differ, as a share; the median over points.
pub fn noise_floor(repeats: &BTreeMap<String, Vec<f64>>) -> Option<f64> {
    let noise: Vec<f64> =
        repeats.values().filter(|v| v.len() > 1).map(|v| super::stats::variation(v)).collect();
    (!noise.is_empty()).then(|| super::stats::median(&noise))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};
    use rand_distr::{Distribution, Normal};

    fn run(
        random: &mut StdRng,
        points: usize,
        repeats: usize,
        noise: f64,
        factor: f64,
    ) -> BTreeMap<String, Vec<f64>> {
        let normal = Normal::new(0.0, noise).unwrap();
        (0..points)
            .map(|n| {
                let truth = 1000.0 * (n + 1) as f64 * factor;
                let values = (0..repeats).map(|_| truth * f64::exp(normal.sample(random))).collect();
                (format!("{n}"), values)
            })
            .collect()
    }

    #[test]
    fn doing_nothing_shows_no_difference_in_95_of_100() {
        let mut random = StdRng::seed_from_u64(1);
        for (points, repeats) in [(1, 3), (8, 3), (20, 5)] {
            let rounds = 1000;
            let quiet = |_: &u32| {
                let (a, b) = (
                    run(&mut random, points, repeats, 0.04, 1.0),
                    run(&mut random, points, repeats, 0.04, 1.0),
                );
                let (each, whole) = compare(&a, &b);
                let calm = each.iter().all(|d| d.verdict == Verdict::NoDifferenceShown);
                assert!(calm || each.iter().any(|d| d.p < 0.05), "words follow from p");
                whole.unwrap().verdict == Verdict::NoDifferenceShown
            };
            let calm = (0..rounds).filter(quiet).count();
            assert!(calm >= 935, "{calm} of {rounds} with {points} points of {repeats}");
        }
    }

    #[test]
    fn five_percent_are_found_or_more_repeats_are_asked_for() {
        let mut random = StdRng::seed_from_u64(2);
        let (mut found, mut asked) = (0, 0);
        for _ in 0..200 {
            let (a, b) = (run(&mut random, 8, 3, 0.03, 1.0), run(&mut random, 8, 3, 0.03, 0.95));
            let whole = compare(&a, &b).1.unwrap();
            match whole.verdict {
                Verdict::Worse => found += 1,
                Verdict::NoDifferenceShown => asked += u32::from(whole.repeats_for_5_percent > 3),
                other => panic!("{other:?}"),
            }
        }
        assert!(found >= 190, "{found}");
        assert_eq!(found + asked, 200);
        let noisy = compare(&run(&mut random, 1, 3, 0.2, 1.0), &run(&mut random, 1, 3, 0.2, 1.0)).1.unwrap();
        assert!(noisy.repeats_for_5_percent > 30 && noisy.detectable > 0.3, "{noisy:?}");
    }

    #[test]
    fn a_single_repeat_says_nothing() {
        let one = |v: f64| BTreeMap::from([("x".to_owned(), vec![v])]);
        let (each, whole) = compare(&one(1.0), &one(2.0));
        assert_eq!(each[0].verdict, Verdict::TooFewRepeats);
        assert_eq!(whole.unwrap().verdict, Verdict::TooFewRepeats);
        assert!(compare(&one(1.0), &BTreeMap::new()).1.is_none());
        assert_eq!(noise_floor(&one(1.0)), None);
    }

    #[test]
    fn no_noise_is_no_division_by_zero() {
        let of = |v: f64| BTreeMap::from([("x".to_owned(), vec![v; 3])]);
        let same = compare(&of(5.0), &of(5.0)).1.unwrap();
        assert_eq!(same.verdict, Verdict::NoDifferenceShown);
        let twice = compare(&of(5.0), &of(10.0)).1.unwrap();
        assert_eq!((twice.verdict, twice.ratio.round()), (Verdict::Better, 2.0));
    }
}
