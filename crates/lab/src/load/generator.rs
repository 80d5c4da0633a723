//! When does which operation begin?
//!
//! Open loop: arrivals of a Poisson process, whatever the answers do. Closed loop: so many users, each of whom begins
//! the next operation when the last is answered and thought over. Every operation carries the time at which it was
//! *meant* to begin, and latency counts from there: a generator that is late, or that cannot begin because too much is
//! in flight, adds to the latency instead of leaving the operation out (no coordinated omission).

use crate::matrix::{Access, Op, Spec};
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Exp, Zipf};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What an open loop has in flight at most; later arrivals wait, and their latency counts that.
const IN_FLIGHT_MAX: usize = 65_536;

/// One operation that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub ticket: u64,
    pub object: u64,
    pub read: bool,
    pub intended_ns: u64,
}

pub struct Generator {
    arrivals: Arrivals,
    read_percent: u32,
    pick: Pick,
    objects: u64,
    /// Sequential operations go round.
    sequence: Option<u64>,
    random: StdRng,
    tickets: u64,
}

enum Arrivals {
    Open {
        gap: Exp<f64>,
        next_ns: u64,
        in_flight: usize,
    },
    /// When each idle user begins again.
    Closed {
        idle: BinaryHeap<Reverse<u64>>,
        think_ns: u64,
    },
}

enum Pick {
    Uniform,
    Zipf(Zipf<f64>),
    HotSpot { share: f64, hot: u64 },
}

impl Generator {
    /// The part `share` of the spec's rate, for one of several connections. Time starts at 0.
    pub fn new(spec: &Spec, share: f64, seed: u64) -> Generator {
        let mut random = StdRng::seed_from_u64(seed);
        let arrivals = match spec.rate {
            Some(rate) => {
                let gap = Exp::new((rate * share / 1e9).max(1e-12)).expect("a rate is positive");
                let next_ns = gap.sample(&mut random) as u64;
                Arrivals::Open { gap, next_ns, in_flight: 0 }
            }
            None => {
                let idle = (0..spec.depth).map(|_| Reverse(0)).collect();
                Arrivals::Closed { idle, think_ns: spec.think_us * 1000 }
            }
        };
        let objects = spec.objects.max(1);
        let pick = match spec.access {
            Access::Uniform => Pick::Uniform,
            Access::Zipf { exponent } => {
                Zipf::new(objects as f64, exponent).map_or(Pick::Uniform, Pick::Zipf)
            }
            Access::HotSpot { share, part } => {
                Pick::HotSpot { share, hot: ((objects as f64 * part) as u64).clamp(1, objects) }
            }
        };
        let read_percent = match spec.op {
            Op::Read | Op::RandRead => 100,
            Op::Write | Op::RandWrite => 0,
            Op::RandMixed => spec.read_percent,
        };
        let sequence = matches!(spec.op, Op::Read | Op::Write).then_some(0);
        Generator { arrivals, read_percent, pick, objects, sequence, random, tickets: 0 }
    }

    /// An operation that is due by now. Ask until there is none.
    pub fn next(&mut self, now_ns: u64) -> Option<Start> {
        let intended_ns = match &mut self.arrivals {
            Arrivals::Open { gap, next_ns, in_flight } => {
                if *next_ns > now_ns || *in_flight >= IN_FLIGHT_MAX {
                    return None;
                }
                let intended = *next_ns;
                *next_ns += gap.sample(&mut self.random) as u64;
                *in_flight += 1;
                intended
            }
            Arrivals::Closed { idle, .. } => {
                let Reverse(ready) = *idle.peek()?;
                if ready > now_ns {
                    return None;
                }
                idle.pop();
                // The users' first operations are meant to begin when they can.
                if ready == 0 { now_ns } else { ready }
            }
        };
        self.tickets += 1;
        let read = self.random.random_range(0..100) < self.read_percent;
        Some(Start { ticket: self.tickets, object: self.object(), read, intended_ns })
    }

    /// When `next` would give something though nothing is answered.
    pub fn next_due_ns(&self) -> Option<u64> {
        match &self.arrivals {
            Arrivals::Open { next_ns, in_flight, .. } => (*in_flight < IN_FLIGHT_MAX).then_some(*next_ns),
            Arrivals::Closed { idle, .. } => idle.peek().map(|Reverse(ready)| *ready),
        }
    }

    /// An operation was answered, well or not.
    pub fn done(&mut self, now_ns: u64, _start: &Start) {
        match &mut self.arrivals {
            Arrivals::Open { in_flight, .. } => *in_flight -= 1,
            Arrivals::Closed { idle, think_ns } => idle.push(Reverse((now_ns + *think_ns).max(1))),
        }
    }

    fn object(&mut self) -> u64 {
        if let Some(next) = &mut self.sequence {
            let object = *next;
            *next = (object + 1) % self.objects;
            return object;
        }
        let random = &mut self.random;
        match &self.pick {
            Pick::Uniform => random.random_range(0..self.objects),
            // 1 is the most frequent; scattered, so that the popular ones do not stand together.
            Pick::Zipf(zipf) => {
                (zipf.sample(random) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.objects
            }
            Pick::HotSpot { share, hot } => match unit(random) < *share || *hot == self.objects {
                true => random.random_range(0..*hot),
                false => random.random_range(*hot..self.objects),
            },
        }
    }
}

/// In 0..1.
fn unit(random: &mut impl Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
