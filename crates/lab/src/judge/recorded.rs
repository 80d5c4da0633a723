//! Do the judgements hold on recorded runs, with the drift, the bursts and the bad seconds that a real machine has?
//! The recordings say in their first lines what they are: the same two points, again and again, nothing changed.

use super::compare::{Design, Difference, Repeat, Repeats, Verdict, compare};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::collections::BTreeMap;

const RECORDINGS: [(&str, &str); 2] = [
    ("shoal", include_str!("../../fixtures/nothing-changed-shoal.csv")),
    ("stock", include_str!("../../fixtures/nothing-changed-stock.csv")),
];
/// What a matrix has that does not say otherwise.
const ITERATIONS: usize = 3;

/// One repeat: each point's rate.
type Measured = BTreeMap<String, f64>;

fn recorded(text: &str) -> Vec<Measured> {
    let mut repeats: BTreeMap<u32, Measured> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')).skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let rate = fields[2].parse().unwrap();
        repeats.entry(fields[0].parse().unwrap()).or_default().insert(fields[1].to_owned(), rate);
    }
    let whole = repeats.into_values().filter(|r| r.len() == 2).collect::<Vec<_>>();
    assert!(whole.len() >= 60, "a recording of {} repeats", whole.len());
    whole
}

fn side<'a>(repeats: impl Iterator<Item = &'a Measured>, factor: f64) -> Repeats {
    let mut out = Repeats::new();
    for (iteration, repeat) in (0..).zip(repeats) {
        for (label, rate) in repeat {
            out.entry(label.clone()).or_default().push(Repeat { iteration, value: rate * factor });
        }
    }
    out
}

fn says_nothing((each, whole): &(Vec<Difference>, Option<Difference>)) -> bool {
    each.iter().chain(whole).all(|d| d.verdict == Verdict::NoDifferenceShown)
}

#[test]
fn two_halves_of_the_same_show_no_difference_in_95_of_100() {
    let mut random = StdRng::seed_from_u64(5);
    for (name, text) in RECORDINGS {
        let all = recorded(text);
        // The whole recording in two halves, and two runs as short as they come by default.
        for each in [all.len() / 2, ITERATIONS] {
            let mut calm = |_: &u32| {
                let mut shuffled: Vec<&Measured> = all.iter().collect();
                shuffled.shuffle(&mut random);
                let (a, b) = shuffled.split_at(each);
                let (a, b) = (a.iter().copied(), b.iter().copied().take(each));
                says_nothing(&compare(&side(a, 1.0), &side(b, 1.0), Design::Apart))
            };
            let calm = (0..1000).filter(&mut calm).count();
            println!("{name}, {each} repeats each: {calm} of 1000 show nothing");
            assert!(calm >= 950, "{name}: {calm} of 1000 with {each} repeats on each side");
        }
    }
}

/// As `versus` measures: one after the other in each repeat, in an order of its own.
#[test]
fn in_turns_drift_is_no_difference() {
    let mut random = StdRng::seed_from_u64(6);
    for (name, text) in RECORDINGS {
        let all = recorded(text);
        for repeats in [ITERATIONS, 10, all.len() / 2] {
            let mut calm = |_: &u32| {
                let begin = random.random_range(0..=all.len() - 2 * repeats);
                let (mut a, mut b) = (Vec::new(), Vec::new());
                for pair in all[begin..begin + 2 * repeats].chunks(2) {
                    let swap = random.random_bool(0.5);
                    a.push(&pair[usize::from(swap)]);
                    b.push(&pair[usize::from(!swap)]);
                }
                says_nothing(&compare(&side(a.into_iter(), 1.0), &side(b.into_iter(), 1.0), Design::InTurns))
            };
            let calm = (0..1000).filter(&mut calm).count();
            println!("{name}, in turns, {repeats} repeats: {calm} of 1000 show nothing");
            assert!(calm >= 950, "{name}: {calm} of 1000 with {repeats} repeats in turns");
        }
    }
}

#[test]
fn five_percent_are_found_or_the_repeats_that_are_asked_for_find_them() {
    let mut random = StdRng::seed_from_u64(7);
    for (name, text) in RECORDINGS {
        let all = recorded(text);
        let mut trial = |repeats: usize| {
            let mut draw =
                |factor| side((0..repeats).map(|_| all.choose(&mut random).expect("not empty")), factor);
            compare(&draw(1.0), &draw(0.95), Design::Apart).1.expect("points in common")
        };
        let (rounds, mut at_once, mut with_more, mut no_plan, mut asked) = (60, 0, 0, 0, Vec::new());
        for _ in 0..rounds {
            let first = trial(ITERATIONS);
            if first.verdict == Verdict::Worse {
                at_once += 1;
                continue;
            }
            // One stall in the few repeats that there were: then it is said that no number within reason would do.
            let Some(needed) = first.repeats_for_5_percent else {
                no_plan += 1;
                continue;
            };
            assert!(needed > ITERATIONS as u32, "{name}: {needed} repeats asked for");
            asked.push(needed);
            with_more += usize::from(trial(needed as usize).verdict == Verdict::Worse);
        }
        asked.sort_unstable();
        println!(
            "{name}: {at_once} of {rounds} at once, {with_more} with what was asked for, {no_plan} without a plan, {asked:?}"
        );
        assert!(no_plan <= rounds / 10, "{name}: {no_plan} of {rounds} are told no number");
        let told = rounds - no_plan;
        assert!(at_once + with_more >= told * 8 / 10, "{name}: {at_once} + {with_more} of {told}");
    }
}
