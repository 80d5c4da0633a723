//! The rate of false alarms of [`super::compare`] on a recording: the same points measured round after round while
//! nothing changed. Every alarm is false.

use super::compare::{Design, Metric, Round, Rounds, Verdict, compare, rounds};
use crate::matrix::order::balanced_orders;
use crate::results::PointRecord;
use anyhow::{Context, ensure};
use rand::{SeedableRng, rngs::StdRng};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Values by the point's label, larger is better.
type RecordedRound = BTreeMap<String, f64>;

/// Rounds in the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    rounds: Vec<RecordedRound>,
}

/// The result for one length of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    pub design: Design,
    /// Rounds of each side.
    pub rounds: usize,
    /// Comparisons, at every place in the recording. Neighbours share most of their rounds.
    pub comparisons: usize,
    /// The number of comparisons that share no round: the recording's real length.
    pub disjoint: usize,
    /// Comparisons that said better or worse, of the whole or of any point.
    pub alarms: usize,
    /// Comparisons that said better of the whole after B's values were doubled.
    pub twofold_found: usize,
}

impl Calibration {
    pub fn alarm_rate(&self) -> f64 {
        self.alarms as f64 / self.comparisons.max(1) as f64
    }

    pub fn twofold_rate(&self) -> f64 {
        self.twofold_found as f64 / self.comparisons.max(1) as f64
    }
}

impl Recording {
    /// Appends a run's rounds. Rounds without all of the recording's points are left out.
    pub fn add_run(&mut self, points: &[PointRecord], metric: Metric) {
        let mut by_number: BTreeMap<u32, RecordedRound> = BTreeMap::new();
        for (label, rounds) in rounds(points, metric, false) {
            for Round { number, value } in rounds {
                by_number.entry(number).or_default().insert(label.clone(), value);
            }
        }
        self.rounds.extend(by_number.into_values());
        let most = self.rounds.iter().map(BTreeMap::len).max().unwrap_or(0);
        self.rounds.retain(|round| round.len() == most);
    }

    pub fn len(&self) -> usize {
        self.rounds.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Lines of `round,point,value`; lines that begin with `#` are comments.
    pub fn from_csv(text: &str) -> anyhow::Result<Recording> {
        let mut by_number: BTreeMap<u32, RecordedRound> = BTreeMap::new();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        for (n, line) in lines.skip(1) {
            let wrong = || format!("line {}: expected round,point,value: {line}", n + 1);
            // A label may contain commas.
            let (number, rest) = line.split_once(',').with_context(wrong)?;
            let (point, value) = rest.rsplit_once(',').with_context(wrong)?;
            let (number, value) = (number.parse().with_context(wrong)?, value.parse().with_context(wrong)?);
            ensure!(value > 0.0, wrong());
            by_number.entry(number).or_default().insert(point.to_owned(), value);
        }
        let most = by_number.values().map(BTreeMap::len).max().unwrap_or(0);
        Ok(Recording { rounds: by_number.into_values().filter(|r| r.len() == most).collect() })
    }

    pub fn to_csv(&self) -> String {
        let mut out = String::from("round,point,value\n");
        for (number, round) in self.rounds.iter().enumerate() {
            for (point, value) in round {
                writeln!(out, "{number},{point},{value:.4}").expect("writing to a string");
            }
        }
        out
    }

    pub fn calibrate(&self, design: Design, rounds: usize) -> Calibration {
        let span = 2 * rounds;
        let mut random = StdRng::seed_from_u64(1);
        let mut out = Calibration {
            design,
            rounds,
            comparisons: 0,
            disjoint: self.rounds.len() / span.max(1),
            alarms: 0,
            twofold_found: 0,
        };
        for window in self.rounds.windows(span.max(1)) {
            let (a, b): (Vec<&RecordedRound>, Vec<&RecordedRound>) = match design {
                Design::Successive => (window[..rounds].iter().collect(), window[rounds..].iter().collect()),
                Design::InTurns => {
                    let orders = balanced_orders(2, rounds, &mut random);
                    let pairs = window.chunks(2).zip(&orders);
                    pairs.map(|(pair, order)| (&pair[order[0]], &pair[order[1]])).unzip()
                }
            };
            let (a, once, twice) = (side(&a, 1.0), side(&b, 1.0), side(&b, 2.0));
            let (each, whole) = compare(&a, &once, design);
            let is_alarm = |v: Verdict| matches!(v, Verdict::Better | Verdict::Worse);
            out.comparisons += 1;
            out.alarms += usize::from(each.iter().chain(&whole).any(|d| is_alarm(d.verdict)));
            let found = compare(&a, &twice, design).1;
            out.twofold_found += usize::from(found.is_some_and(|d| d.verdict == Verdict::Better));
        }
        out
    }
}

fn side(recorded: &[&RecordedRound], factor: f64) -> Rounds {
    let mut out = Rounds::new();
    for (number, round) in (0..).zip(recorded) {
        for (label, value) in round.iter() {
            out.entry(label.clone()).or_default().push(Round { number, value: value * factor });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each says in its first lines what it is, and whether it holds rates or the inverse of processor time.
    const RECORDINGS: [(&str, &str); 4] = [
        ("shoal, 2026-11-22", include_str!("../../fixtures/nothing-changed-shoal.csv")),
        ("stock, 2026-11-22", include_str!("../../fixtures/nothing-changed-stock.csv")),
        ("shoal, 2026-11-23", include_str!("../../fixtures/successive-runs-shoal.csv")),
        ("stock, 2026-11-23", include_str!("../../fixtures/successive-runs-stock.csv")),
    ];

    #[test]
    fn recorded_runs_of_the_same_differ_in_at_most_5_of_100() {
        for design in [Design::Successive, Design::InTurns] {
            let (mut alarms, mut comparisons) = (0, 0);
            for (name, text) in RECORDINGS {
                let recording = Recording::from_csv(text).unwrap();
                assert!(recording.len() >= 70, "{name}: {} rounds", recording.len());
                for rounds in [3, 5, 10] {
                    let found = recording.calibrate(design, rounds);
                    println!("{name}: {found:?}");
                    // Neighbouring comparisons share rounds, so one alarm comes with several.
                    let most = 0.05 + 1.0 / found.disjoint as f64;
                    assert!(found.alarm_rate() <= most, "{name}: {found:?}");
                    alarms += found.alarms;
                    comparisons += found.comparisons;
                }
            }
            let rate = alarms as f64 / comparisons as f64;
            assert!(rate <= 0.05, "{design:?}: {alarms} of {comparisons} comparisons");
        }
    }

    #[test]
    fn csv_round_trip_keeps_rounds() {
        let recording = Recording::from_csv(RECORDINGS[2].1).unwrap();
        assert_eq!(Recording::from_csv(&recording.to_csv()).unwrap().len(), recording.len());
        let odd = Recording::from_csv("round,point,value\n0,a, b,2\n1,a, b,3\n1,c,1\n").unwrap();
        assert_eq!(odd.len(), 1, "a round without all points is left out");
        assert!(Recording::from_csv("round,point,value\n0,a\n").is_err());
        assert!(Recording::from_csv("round,point,value\n0,a,-1\n").is_err());
    }
}
