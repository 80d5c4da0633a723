//! The arrival process of a load: when each operation starts, on which object, and of which size.
//!
//! Open loop: a Poisson process, independent of the replies. Closed loop: `depth` users, each of which starts its next
//! operation after the reply to the last one and a think time. Every operation carries its *intended* start, and
//! latency counts from there. A generator that runs late, or that is at its limit of operations in flight, therefore
//! adds to the latency instead of omitting the operation (no coordinated omission).

use crate::matrix::{Access, Op, Spec};
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Exp, Zipf};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Limit of an open loop's operations in flight. Later arrivals wait, and their latency includes the wait.
const IN_FLIGHT_MAX: usize = 65_536;

/// One operation to start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Counts the operations of one generator from 1.
    pub ticket: u64,
    pub object: u64,
    /// The part of the object, in units of the operation's size; 0 unless objects are larger than operations.
    pub block: u64,
    pub read: bool,
    pub bytes: u64,
    pub intended_ns: u64,
}

impl Start {
    pub fn offset(&self) -> u64 {
        self.block * self.bytes
    }
}

pub struct Generator {
    arrivals: Arrivals,
    read_percent: u32,
    pick: Pick,
    objects: u64,
    /// Operations that fit into one object.
    blocks: u64,
    /// Bytes, and the share of operations that are at most that large; the last share is 1.
    sizes: Vec<(u64, f64)>,
    /// Sequential operations: the next block, counted over all objects. Wraps round.
    sequence: Option<u64>,
    random: StdRng,
    tickets: u64,
}

enum Arrivals {
    Open {
        rate: Rate,
        next_ns: u64,
        in_flight: usize,
    },
    /// The time at which each idle user starts again.
    Closed {
        idle: BinaryHeap<Reverse<u64>>,
        think_ns: u64,
    },
}

/// Arrivals of a Poisson process whose rate changes evenly with time: those of its highest rate, thinned.
struct Rate {
    gap: Exp<f64>,
    /// Shares of the highest rate, before `ramp.0` and after `ramp.1` nanoseconds.
    shares: (f64, f64),
    ramp_ns: (f64, f64),
}

impl Rate {
    fn new(spec: &Spec, share: f64, from: f64) -> Rate {
        let to = spec.rate_to.unwrap_or(from);
        let highest = from.max(to);
        let gap = Exp::new((highest * share / 1e9).max(1e-12)).expect("a rate is positive");
        let shares = if highest > 0.0 { (from / highest, to / highest) } else { (1.0, 1.0) };
        Rate { gap, shares, ramp_ns: (spec.ramp_s * 1e9, (spec.ramp_s + spec.seconds) * 1e9) }
    }

    fn next_ns(&self, mut at_ns: u64, random: &mut StdRng) -> u64 {
        loop {
            at_ns = at_ns.saturating_add((self.gap.sample(random) as u64).max(1));
            if self.shares.0 == self.shares.1 || at_ns as f64 > self.ramp_ns.1 {
                return at_ns;
            }
            let (begin, end) = self.ramp_ns;
            let part = ((at_ns as f64 - begin) / (end - begin)).clamp(0.0, 1.0);
            if unit(random) < self.shares.0 + (self.shares.1 - self.shares.0) * part {
                return at_ns;
            }
        }
    }
}

enum Pick {
    Uniform,
    Zipf(Zipf<f64>),
    HotSpot { share: f64, hot: u64 },
}

impl Generator {
    /// `share` is this connection's part of the spec's rate. Time starts at 0.
    pub fn new(spec: &Spec, share: f64, seed: u64) -> Generator {
        let mut random = StdRng::seed_from_u64(seed);
        let arrivals = match spec.rate {
            Some(rate) => {
                let rate = Rate::new(spec, share, rate);
                let next_ns = rate.next_ns(0, &mut random);
                Arrivals::Open { rate, next_ns, in_flight: 0 }
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
        let mut below = 0.0;
        let mut sizes: Vec<(u64, f64)> = spec.sizes.clone();
        for (_, share) in &mut sizes {
            below += *share;
            *share = below;
        }
        if sizes.is_empty() {
            sizes.push((spec.op_bytes, 1.0));
        }
        let blocks = spec.blocks_per_object();
        Generator { arrivals, read_percent, pick, objects, blocks, sizes, sequence, random, tickets: 0 }
    }

    /// The next operation that is due. Call until it returns `None`.
    pub fn next(&mut self, now_ns: u64) -> Option<Start> {
        let intended_ns = match &mut self.arrivals {
            Arrivals::Open { rate, next_ns, in_flight } => {
                if *next_ns > now_ns || *in_flight >= IN_FLIGHT_MAX {
                    return None;
                }
                let intended = *next_ns;
                *next_ns = rate.next_ns(intended, &mut self.random);
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
        let bytes = self.bytes();
        let (object, block) = self.place();
        Some(Start { ticket: self.tickets, object, block, read, bytes, intended_ns })
    }

    fn bytes(&mut self) -> u64 {
        if let [(bytes, _)] = self.sizes[..] {
            return bytes;
        }
        let place = unit(&mut self.random);
        let found = self.sizes.iter().find(|(_, below)| place < *below).or(self.sizes.last());
        found.expect("there is a size").0
    }

    /// The earliest time at which `next` returns an operation if no reply arrives before.
    pub fn next_due_ns(&self) -> Option<u64> {
        match &self.arrivals {
            Arrivals::Open { next_ns, in_flight, .. } => (*in_flight < IN_FLIGHT_MAX).then_some(*next_ns),
            Arrivals::Closed { idle, .. } => idle.peek().map(|Reverse(ready)| *ready),
        }
    }

    /// A reply to an operation has arrived, a success or an error.
    pub fn answered(&mut self, now_ns: u64) {
        match &mut self.arrivals {
            Arrivals::Open { in_flight, .. } => *in_flight -= 1,
            Arrivals::Closed { idle, think_ns } => idle.push(Reverse((now_ns + *think_ns).max(1))),
        }
    }

    /// The object, and the block in it.
    fn place(&mut self) -> (u64, u64) {
        if let Some(next) = &mut self.sequence {
            let block = *next;
            *next = (block + 1) % (self.objects * self.blocks);
            return (block / self.blocks, block % self.blocks);
        }
        let object = self.object();
        let block = if self.blocks > 1 { self.random.random_range(0..self.blocks) } else { 0 };
        (object, block)
    }

    fn object(&mut self) -> u64 {
        let random = &mut self.random;
        match &self.pick {
            Pick::Uniform => random.random_range(0..self.objects),
            // Rank 1 is the most frequent. The ranks are scattered, so that popular objects are not neighbours.
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
