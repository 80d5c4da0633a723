//! Sums and histograms of durations.

use command::perf::{Axis, BUCKETS, Reading};
use std::ops::AddAssign;

/// Number of measurements, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    pub count: u64,
    pub sum_ns: u64,
}

impl Latency {
    pub fn record(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns += ns;
    }

    /// The mean of what came on top of `earlier`; 0 when nothing did.
    pub fn mean_ns_since(self, earlier: Latency) -> u64 {
        let count = self.count.saturating_sub(earlier.count);
        self.sum_ns.saturating_sub(earlier.sum_ns).checked_div(count).unwrap_or(0)
    }

    pub fn reading(self) -> Reading {
        Reading::Time { count: self.count, sum_ns: self.sum_ns }
    }
}

impl AddAssign for Latency {
    fn add_assign(&mut self, other: Latency) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }
}

/// By powers of two from one microsecond on.
pub const STAGE_AXIS: Axis = Axis { name: "Latency (nsec)", quantum: 1000 };

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    pub total: Latency,
    /// See [`Axis::bucket`].
    pub buckets: [u64; BUCKETS],
}

impl LatencyHistogram {
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// So many measurements of the same duration.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.total += Latency { count, sum_ns: ns * count };
        self.buckets[STAGE_AXIS.bucket(ns)] += count;
    }
}

impl AddAssign<&LatencyHistogram> for LatencyHistogram {
    fn add_assign(&mut self, other: &LatencyHistogram) {
        self.total += other.total;
        self.buckets.iter_mut().zip(other.buckets).for_each(|(own, n)| *own += n);
    }
}

/// Latency by size: stock's `op_r_latency_out_bytes_histogram` and its like.
pub const SIZE_AXES: [Axis; 2] = [
    // The name is stock's, and so are the units, which are nanoseconds.
    Axis { name: "Latency (usec)", quantum: 100_000 },
    Axis { name: "Request size (bytes)", quantum: 512 },
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeHistogram(pub Box<[u64; BUCKETS * BUCKETS]>);

impl Default for SizeHistogram {
    fn default() -> SizeHistogram {
        SizeHistogram(Box::new([0; BUCKETS * BUCKETS]))
    }
}

impl SizeHistogram {
    pub fn record(&mut self, ns: u64, bytes: u64) {
        let row = SIZE_AXES[0].bucket(ns);
        self.0[row * BUCKETS + SIZE_AXES[1].bucket(bytes)] += 1;
    }
}

impl AddAssign<&SizeHistogram> for SizeHistogram {
    fn add_assign(&mut self, other: &SizeHistogram) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(own, n)| *own += n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_counts_every_duration_in_one_bucket() {
        let mut histogram = LatencyHistogram::default();
        for ns in [0, 999, 1000, 1999, 2000, u64::MAX / 8] {
            histogram.record(ns);
        }
        assert_eq!((histogram.buckets[1], histogram.buckets[2], histogram.buckets[3]), (2, 2, 1));
        assert_eq!(histogram.buckets.iter().sum::<u64>(), histogram.total.count);
        let mut sum = histogram.clone();
        sum += &histogram;
        assert_eq!((sum.total.count, sum.buckets[2]), (12, 4));
    }

    #[test]
    fn mean_is_of_what_came_since() {
        let mut latency = Latency::default();
        latency.record(100);
        let before = latency;
        assert_eq!(latency.mean_ns_since(before), 0);
        latency.record(300);
        latency.record(500);
        assert_eq!(latency.mean_ns_since(before), 400);
    }

    #[test]
    fn sizes_and_latencies_make_rows_and_columns() {
        let mut histogram = SizeHistogram::default();
        histogram.record(150_000, 4096);
        assert_eq!(histogram.0[2 * BUCKETS + 5], 1);
    }
}
