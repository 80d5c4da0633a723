//! Rates of counters: differences of sums, smoothed over the last few reports.

use std::collections::VecDeque;
use wire::types::{PoolStat, UTime};

/// As `mon_stat_smooth_intervals` and twice `mon_delta_reset_interval` of stock.
const INTERVALS: usize = 6;
const LONGEST_NS: u64 = 20 * 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Rate {
    recent: VecDeque<(PoolStat, u64)>,
    last_sum: Option<PoolStat>,
    pub last_stamp: UTime,
}

impl Rate {
    /// A new sum was reached at `now`.
    pub(crate) fn observe(&mut self, now: UTime, sum: &PoolStat) {
        let over_ns = now.as_nanos().saturating_sub(self.last_stamp.as_nanos()).min(LONGEST_NS);
        self.last_stamp = now;
        if let Some(last) = self.last_sum.replace(*sum) {
            let mut delta = *sum;
            delta.stats.sum -= last.stats.sum;
            self.recent.push_back((delta, over_ns));
            if self.recent.len() > INTERVALS {
                self.recent.pop_front();
            }
        }
    }

    /// A change, and its duration.
    pub(crate) fn delta(&self) -> (PoolStat, UTime) {
        let mut sum = PoolStat::default();
        for (delta, _) in &self.recent {
            sum.stats.sum += delta.stats.sum;
        }
        let over_ns = self.recent.iter().map(|(_, ns)| ns).sum();
        (sum, UTime::from_nanos(over_ns))
    }
}

/// Client traffic per second, as `osd pool stats` and `status` print it. Counters can go back for a moment, when an
/// OSD restarts: that is no traffic, not a negative one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientIo {
    pub read_bytes: i64,
    pub write_bytes: i64,
    pub reads: i64,
    pub writes: i64,
    pub has_reads: bool,
    pub has_writes: bool,
}

impl ClientIo {
    /// `None` when nothing moved.
    pub(crate) fn of(delta: &PoolStat, over: UTime) -> Option<ClientIo> {
        let sum = &delta.stats.sum;
        let (reads, writes) = (sum.num_rd.max(0), sum.num_wr.max(0));
        let seconds = over.as_secs_f64();
        if (reads == 0 && writes == 0) || seconds <= 0.0 {
            return None;
        }
        let rate = |n: i64| (n.max(0) as f64 / seconds) as i64;
        Some(ClientIo {
            read_bytes: rate(sum.num_rd_kb << 10),
            write_bytes: rate(sum.num_wr_kb << 10),
            reads: rate(reads),
            writes: rate(writes),
            has_reads: reads > 0,
            has_writes: writes > 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(reads: i64) -> PoolStat {
        let mut s = PoolStat::default();
        s.stats.sum.num_rd = reads;
        s.stats.sum.num_rd_kb = 4 * reads;
        s
    }

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    #[test]
    fn a_rate_is_of_what_moved_since_the_first_sum() {
        let mut r = Rate::default();
        r.observe(at(100), &sum(1000));
        assert_eq!(ClientIo::of(&r.delta().0, r.delta().1), None, "one sum says nothing of speed");
        r.observe(at(105), &sum(1500));
        let (delta, over) = r.delta();
        let io = ClientIo::of(&delta, over).unwrap();
        assert_eq!((io.reads, io.read_bytes, io.writes, io.has_writes), (100, 409_600, 0, false));
    }

    #[test]
    fn only_the_last_few_intervals_count() {
        let mut r = Rate::default();
        for i in 0..20 {
            r.observe(at(100 + i), &sum(if i < 10 { 1000 * i as i64 } else { 9000 }));
        }
        assert_eq!(ClientIo::of(&r.delta().0, r.delta().1), None);
    }

    #[test]
    fn counters_that_go_back_are_no_traffic() {
        let mut r = Rate::default();
        r.observe(at(100), &sum(1000));
        r.observe(at(105), &sum(0));
        assert_eq!(ClientIo::of(&r.delta().0, r.delta().1), None);
    }
}
