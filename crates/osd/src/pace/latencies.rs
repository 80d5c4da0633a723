//! Latencies of clients' requests in buckets that are narrow enough for a target of 1.1 times the baseline.

use std::ops::AddAssign;

/// Buckets of one power of two: each is at most 3.2 % wide.
const PARTS: u64 = 32;
const PARTS_BITS: u32 = PARTS.ilog2();
/// The last bucket begins at about 137 seconds.
const BUCKETS: usize = (32 * PARTS) as usize;
/// Unit of the first buckets: 2^10 nanoseconds.
const UNIT_BITS: u32 = 10;

/// Number of requests, by latency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    total: u64,
    /// Empty until the first request.
    counts: Vec<u32>,
}

/// Linear below [`PARTS`] units, then [`PARTS`] buckets for each power of two.
fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT_BITS;
    if units < PARTS {
        return units as usize;
    }
    let power = units.ilog2();
    let part = (units >> (power - PARTS_BITS)) - PARTS;
    let row = u64::from(power - PARTS_BITS) + 1;
    ((row * PARTS + part) as usize).min(BUCKETS - 1)
}

/// The end of a bucket, in nanoseconds.
fn end_of(bucket: usize) -> u64 {
    let (row, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    let units = if row == 0 { part + 1 } else { (PARTS + part + 1) << (row - 1) };
    units << UNIT_BITS
}

impl Latencies {
    pub fn record(&mut self, ns: u64) {
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        let count = &mut self.counts[bucket(ns)];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Upper bound of the latency of 99 % of the requests, in nanoseconds.
    pub fn p99_ns(&self) -> Option<u64> {
        if self.total == 0 {
            return None;
        }
        let mut beyond = self.total / 100;
        for (at, count) in self.counts.iter().enumerate().rev() {
            if u64::from(*count) > beyond {
                return Some(end_of(at));
            }
            beyond -= u64::from(*count);
        }
        None
    }

    /// Number of requests that certainly took longer.
    pub fn slower_than(&self, ns: u64) -> u64 {
        self.counts.iter().skip(bucket(ns) + 1).map(|count| u64::from(*count)).sum()
    }

    /// Makes earlier requests count less.
    pub fn keep_share(&mut self, numerator: u32, denominator: u32) {
        self.counts.iter_mut().for_each(|count| {
            *count = (u64::from(*count) * u64::from(numerator) / u64::from(denominator)) as u32;
        });
        self.total = self.counts.iter().map(|count| u64::from(*count)).sum();
    }
}

impl AddAssign<&Latencies> for Latencies {
    fn add_assign(&mut self, other: &Latencies) {
        if self.counts.is_empty() {
            return self.clone_from(other);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, more)| *own = own.saturating_add(*more));
        self.total += other.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_ends_are_near_their_latencies() {
        for ns in [0, 1, 40_000, 100_000, 999_999, 5_000_000, 80_000_000, 60_000_000_000] {
            let end = end_of(bucket(ns));
            assert!(end > ns && end - ns <= 1024.max(ns / 30), "{ns} ns end at {end}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn p99_leaves_one_percent_beyond() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.p99_ns(), None);
        (0..990).for_each(|_| latencies.record(1_000_000));
        (0..10).for_each(|_| latencies.record(50_000_000));
        let p99 = latencies.p99_ns().expect("there are requests");
        assert!((1_000_000..1_050_000).contains(&p99), "{p99}");
        latencies.record(50_000_000);
        assert!(latencies.p99_ns().expect("there are requests") > 50_000_000);
        assert_eq!(latencies.slower_than(2_000_000), 11);
        assert_eq!(latencies.slower_than(50_000_000), 0);
    }

    #[test]
    fn earlier_requests_count_less() {
        let mut latencies = Latencies::default();
        (0..100).for_each(|_| latencies.record(1_000_000));
        latencies.keep_share(1, 4);
        assert_eq!(latencies.total(), 25);
        let mut sum = Latencies::default();
        sum += &latencies;
        sum += &latencies;
        assert_eq!(sum.total(), 50);
    }
}
