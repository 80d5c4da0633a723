//! The load generator in virtual time, against servers with known replies.

use super::{Generator, Next, Recorder, Schedule, Start};
use crate::matrix::{Access, Op, Spec};
use crate::results::Measured;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;
const GRACE: u64 = 30 * SECOND;

/// The time of the reply to an operation that arrives now; `u64::MAX` for no reply.
type Server<'a> = &'a mut dyn FnMut(u64) -> u64;

/// Runs a schedule against a server; time jumps from event to event. The result, and the time at which it was over.
fn run(spec: &Spec, seconds: u64, server: Server<'_>) -> (Measured, u64) {
    let spec = Spec { ramp_s: 1.0, seconds: seconds as f64, ..spec.clone() };
    let mut schedule = Schedule::new(&spec, 1.0, 7, GRACE);
    let mut recorder = Recorder::new(SECOND, (seconds + 1) * SECOND).unwrap();
    let mut replies: BTreeMap<(u64, u64), Start> = BTreeMap::new();
    let mut now = 0;
    loop {
        let until = match schedule.next(now) {
            Next::Start(start) => {
                replies.insert((server(now), start.ticket), start);
                continue;
            }
            Next::Wait { until_ns } => until_ns,
            Next::Over { unanswered } => {
                recorder.give_up(unanswered);
                return (recorder.measured(), now);
            }
        };
        now = replies.first_key_value().map_or(until, |((at, _), _)| until.min(*at)).max(now);
        while let Some(entry) = replies.first_entry().filter(|e| e.key().0 <= now) {
            let start = entry.remove();
            schedule.answered(now);
            recorder.done(now, &start, 0);
        }
    }
}

fn simulate(spec: &Spec, seconds: u64, server: Server<'_>) -> Measured {
    let (measured, _) = run(spec, seconds, server);
    assert_eq!(measured.unanswered, 0);
    measured
}

fn near(value: Option<f64>, expected: f64) {
    let value = value.expect("percentiles are known");
    assert!((value / expected - 1.0).abs() < 0.02, "{value} is not within 2 % of {expected}");
}

fn open(rate: f64) -> Spec {
    Spec { rate: Some(rate), objects: 100, ..Spec::default() }
}

fn closed(depth: u32) -> Spec {
    Spec { depth, objects: 100, ..Spec::default() }
}

/// A server with a fixed delay that goes away at a moment.
fn dying(at: u64) -> impl FnMut(u64) -> u64 {
    move |now| if now < at { now + 400_000 } else { u64::MAX }
}

#[test]
fn closed_loop_ends_when_cluster_dies() {
    let (m, over_at) = run(&closed(16), 20, &mut dying(8 * SECOND));
    assert_eq!(over_at, 21 * SECOND + GRACE, "its time and the grace, no longer");
    assert_eq!(m.unanswered, 16);
    near(Some(m.ops_per_s), 16.0 / 400e-6 * 7.0 / 20.0);
    assert_eq!(m.series.len(), 21, "silent seconds are seconds of rate zero");
    assert!(m.series[9..].iter().all(|s| s.ops == 0.0));
}

#[test]
fn open_loop_ends_when_cluster_dies() {
    let (m, over_at) = run(&open(1000.0), 20, &mut dying(8 * SECOND));
    assert_eq!(over_at, 21 * SECOND + GRACE);
    near(Some(m.unanswered as f64 / 13.0), 1000.0);
}

#[test]
fn replies_within_grace_are_awaited() {
    let (m, over_at) =
        run(&closed(4), 20, &mut |now| if now < 20 * SECOND { now + SECOND } else { 40 * SECOND });
    assert_eq!((m.unanswered, over_at), (0, 40 * SECOND));
    near(Some(m.latency.max_us), 20e6);
}

#[test]
fn full_cluster_ends_load_early() {
    let mut schedule = Schedule::new(&Spec { seconds: 60.0, ..closed(2) }, 1.0, 7, GRACE);
    assert!(matches!(schedule.next(0), Next::Start(_)));
    assert!(matches!(schedule.next(0), Next::Start(_)));
    schedule.answered(SECOND);
    schedule.stop_early(SECOND);
    assert_eq!(schedule.next(SECOND), Next::Wait { until_ns: SECOND + GRACE });
    schedule.answered(2 * SECOND);
    assert_eq!(schedule.next(2 * SECOND), Next::Over { unanswered: 0 });
}

#[test]
fn blocks_cover_large_objects() {
    let spec = Spec { object_bytes: Some(16384), objects: 4, ..closed(1) };
    let places = |op: Op, n: usize| -> Vec<(u64, u64)> {
        let mut generator = Generator::new(&Spec { op, ..spec.clone() }, 1.0, 7);
        let mut place = || {
            let start = generator.next(1).unwrap();
            generator.answered(0);
            (start.object, start.offset())
        };
        (0..n).map(|_| place()).collect()
    };
    let in_order: Vec<(u64, u64)> = (0..4).flat_map(|o| (0..4).map(move |b| (o, b * 4096))).collect();
    assert_eq!(places(Op::Write, 16), in_order);
    let mut random = places(Op::RandWrite, 1000);
    random.sort_unstable();
    random.dedup();
    assert_eq!(random, in_order);
}

#[test]
fn fixed_delay_is_every_percentile() {
    for spec in [open(5000.0), closed(8)] {
        let m = simulate(&spec, 20, &mut |now| now + 400_000);
        for p in [m.latency.p50_us, m.latency.p99_us, m.latency.p999_us, Some(m.latency.mean_us)] {
            near(p, 400.0);
        }
    }
    let m = simulate(&closed(8), 20, &mut |now| now + 400_000);
    near(Some(m.ops_per_s), 8.0 / 400e-6);
    near(Some(simulate(&open(5000.0), 20, &mut |now| now + 400_000).ops_per_s), 5000.0);
}

/// A queue whose latency is half of the run: operations of the warm-up complete within the window, and half of the
/// operations that start in the window complete after it.
#[test]
fn deep_queue_keeps_the_rate() {
    let mut free_at = 0;
    let m = simulate(&closed(64), 20, &mut |now| {
        free_at = now.max(free_at) + SECOND / 5;
        free_at
    });
    near(Some(m.ops_per_s), 5.0);
    near(Some(m.latency.max_us), 64e6 / 5.0);
}

#[test]
fn bimodal_latency_keeps_both_modes() {
    for spec in [open(5000.0), closed(8)] {
        let mut n = 0u64;
        let m = simulate(&spec, 20, &mut |now| {
            n += 1;
            now + if n.is_multiple_of(10) { 5_000_000 } else { 200_000 }
        });
        near(m.latency.p50_us, 200.0);
        near(m.latency.p95_us, 5000.0);
        near(m.latency.p99_us, 5000.0);
        near(Some(m.latency.mean_us), 0.9 * 200.0 + 0.1 * 5000.0);
    }
}

/// Of every ten seconds the server sleeps one: what comes then is answered at its end.
fn stalling(now: u64) -> u64 {
    let in_cycle = now % (10 * SECOND);
    let wait = if in_cycle >= 9 * SECOND { 10 * SECOND - in_cycle } else { 0 };
    now + wait + 100_000
}

#[test]
fn stall_is_not_omitted() {
    // A tenth of the arrivals wait, evenly from 0 to 1 s: the 95th percentile is half a second, the 99th is 0.9 s.
    let m = simulate(&open(2000.0), 100, &mut stalling);
    near(m.latency.p50_us, 100.0);
    near(m.latency.p95_us, 500_000.0);
    near(m.latency.p99_us, 900_000.0);
    near(m.latency.p999_us, 990_000.0);
    // A closed loop sends nothing while it waits: four users see one slow answer each, ten times in all. It shows in
    // the maximum and in seconds without operations.
    let m = simulate(&closed(4), 100, &mut stalling);
    near(m.latency.p99_us, 100.0);
    near(Some(m.latency.max_us), 1_000_100.0);
    assert!(m.series.iter().filter(|s| s.ops < 10.0).count() >= 9, "the stalls show on the timeline");
}

#[test]
fn think_time_is_no_latency() {
    let m = simulate(&Spec { think_us: 900, ..closed(1) }, 10, &mut |now| now + 100_000);
    near(m.latency.p50_us, 100.0);
    near(Some(m.ops_per_s), 1000.0);
}

#[test]
fn arrivals_are_poisson() {
    let mut generator = Generator::new(&open(1e6), 1.0, 3);
    let mut before = 0;
    let gaps: Vec<f64> = (0..50_000)
        .map(|_| {
            let start = generator.next(u64::MAX).unwrap();
            generator.answered(0);
            let gap = start.intended_ns - before;
            before = start.intended_ns;
            gap as f64
        })
        .collect();
    let mean = crate::judge::stats::mean(&gaps);
    near(Some(mean), 1000.0);
    near(Some(crate::judge::stats::variance(&gaps).sqrt()), mean);
}

#[test]
fn mix_and_popularity_follow_the_spec() {
    let count = |spec: &Spec| {
        let mut generator = Generator::new(spec, 1.0, 5);
        let (mut reads, mut objects) = (0, vec![0u32; spec.objects as usize]);
        for _ in 0..100_000 {
            let start = generator.next(1).unwrap();
            reads += u32::from(start.read);
            objects[start.object as usize] += 1;
            generator.answered(0);
        }
        (f64::from(reads) / 1e5, objects)
    };
    let base = Spec { op: Op::RandMixed, read_percent: 30, objects: 1000, depth: 1, ..Spec::default() };
    let (reads, uniform) = count(&base);
    assert!((reads - 0.3).abs() < 0.01);
    assert!(uniform.iter().all(|n| *n > 40 && *n < 180));
    let (_, hot) = count(&Spec { access: Access::HotSpot { share: 0.9, part: 0.1 }, ..base.clone() });
    let share = f64::from(hot[..100].iter().sum::<u32>()) / 1e5;
    assert!((share - 0.9).abs() < 0.01, "{share}");
    let (_, zipf) = count(&Spec { access: Access::Zipf { exponent: 1.0 }, ..base.clone() });
    let mut sorted = zipf.clone();
    sorted.sort_by(|a, b| b.cmp(a));
    // One over the rank: the first has about twice the second's share, and 1/H(1000) of all.
    assert!((f64::from(sorted[0]) / 1e5 - 1.0 / 7.485).abs() < 0.01, "{}", sorted[0]);
    let (_, sequence) = count(&Spec { op: Op::Write, ..base });
    assert!(sequence.iter().all(|n| *n == 100));
}

#[test]
fn growing_rate_follows_its_ramp() {
    let spec = Spec { rate_to: Some(3000.0), seconds: 20.0, ramp_s: 1.0, ..open(1000.0) };
    let m = simulate(&spec, 20, &mut |now| now + 1000);
    near(Some(m.ops_per_s), 2000.0);
    let mean = |seconds: &[crate::results::record::Second]| {
        crate::judge::stats::mean(&seconds.iter().map(|s| s.ops).collect::<Vec<_>>())
    };
    assert!(
        (m.series[0].ops - 1000.0).abs() < 120.0,
        "the warm-up is at the first rate: {}",
        m.series[0].ops
    );
    let (first, last) = (mean(&m.series[1..6]), mean(&m.series[16..]));
    assert!((first - 1250.0).abs() < 60.0 && (last - 2750.0).abs() < 80.0, "{first} {last}");
}

#[test]
fn sizes_follow_their_shares_and_bytes_are_counted() {
    let spec = Spec { sizes: vec![(4096, 0.75), (65536, 0.25)], op_bytes: 19456, ..open(5000.0) };
    let m = simulate(&spec, 20, &mut |now| now + 1000);
    near(Some(m.bytes_per_s / m.ops_per_s), 19456.0);
    assert_eq!(simulate(&open(100.0), 5, &mut |now| now + 1000).bytes_per_s % 4096.0, 0.0);
}
