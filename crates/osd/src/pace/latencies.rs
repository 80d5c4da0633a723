//! Latencies of clients' requests, precise enough for a target of 1.1 times the baseline.

use hdrhistogram::Histogram;
use std::ops::AddAssign;

/// Latencies are told apart from here on, in nanoseconds.
const LEAST_NS: u64 = 1 << 10;
/// Longer ones count as this one.
const MOST_NS: u64 = 137_000_000_000;
/// Decimal digits of a latency that are kept: it is at most 1 % wide.
const DIGITS: u8 = 2;

/// Number of requests, by latency.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// None until the first request: an idle core has no memory for it.
    counts: Option<Box<Histogram<u32>>>,
}

// A histogram compares its counts, which are whole numbers.
impl Eq for Latencies {}

fn empty() -> Box<Histogram<u32>> {
    Box::new(Histogram::new_with_bounds(LEAST_NS, MOST_NS, DIGITS).expect("the bounds are in order"))
}

impl Latencies {
    pub fn record(&mut self, ns: u64) {
        self.counts.get_or_insert_with(empty).saturating_record(ns);
    }

    pub fn total(&self) -> u64 {
        self.counts.as_ref().map_or(0, |counts| counts.len())
    }

    /// Upper bound of the latency of 99 % of the requests, in nanoseconds.
    pub fn p99_ns(&self) -> Option<u64> {
        let counts = self.counts.as_ref().filter(|counts| !counts.is_empty())?;
        Some(counts.value_at_quantile(0.99))
    }

    /// Number of requests that certainly took longer.
    pub fn slower_than(&self, ns: u64) -> u64 {
        let Some(counts) = &self.counts else { return 0 };
        let beyond = counts.highest_equivalent(ns.min(MOST_NS)) + 1;
        counts.count_between(beyond, u64::MAX)
    }

    /// Makes earlier requests count less.
    pub fn keep_share(&mut self, numerator: u32, denominator: u32) {
        let Some(counts) = &mut self.counts else { return };
        let mut kept = empty();
        for step in counts.iter_recorded() {
            let count = u64::from(step.count_at_value()) * u64::from(numerator) / u64::from(denominator);
            kept.saturating_record_n(step.value_iterated_to(), count as u32);
        }
        *counts = kept;
    }
}

impl AddAssign<&Latencies> for Latencies {
    fn add_assign(&mut self, other: &Latencies) {
        match (&mut self.counts, &other.counts) {
            (_, None) => {}
            (None, Some(_)) => self.clone_from(other),
            (Some(own), Some(more)) => own.add(&**more).expect("both have the same bounds"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_kept_within_a_percent() {
        for ns in [1, 40_000, 100_000, 999_999, 5_000_000, 80_000_000, 60_000_000_000] {
            let mut latencies = Latencies::default();
            latencies.record(ns);
            let p99 = latencies.p99_ns().expect("there is a request");
            assert!(p99 >= ns && p99 - ns <= LEAST_NS.max(ns / 99), "{ns} ns are {p99}");
        }
        let mut latencies = Latencies::default();
        latencies.record(u64::MAX);
        assert_eq!((latencies.total(), latencies.slower_than(60_000_000_000)), (1, 1));
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
