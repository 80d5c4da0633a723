//! The slowest operations of the last minutes, and the last slow ones (`OpHistory` of stock's OpTracker).

use super::record::OpRecord;
use crate::options::TrackingOptions;
use command::options::{Identity, Layers};
use machine::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Thresholds of slow operations and sizes of their history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackingLimits {
    /// An operation in flight for longer is reported (`osd_op_complaint_time`).
    pub complaint_time: Duration,
    /// `osd_op_history_size`, of the whole OSD.
    pub history_size: usize,
    /// `osd_op_history_duration`.
    pub history_duration: Duration,
    /// `osd_op_history_slow_op_size`.
    pub slow_size: usize,
    /// `osd_op_history_slow_op_threshold`.
    pub slow_threshold: Duration,
}

impl TrackingLimits {
    pub fn of(options: &TrackingOptions) -> TrackingLimits {
        TrackingLimits {
            complaint_time: options.complaint_time,
            history_size: options.history_size,
            history_duration: options.history_duration,
            slow_size: options.slow_size,
            slow_threshold: options.slow_threshold,
        }
    }
}

/// As the table of options has them.
impl Default for TrackingLimits {
    fn default() -> TrackingLimits {
        TrackingLimits::of(&TrackingOptions::read(&Layers::new(Identity::named("osd.0"))))
    }
}

/// Cost: one comparison for an operation that is not among the slowest. The bar rises quickly, so after the first
/// moments hardly any is.
#[derive(Debug, Default)]
pub struct History {
    limits: TrackingLimits,
    /// In order of arrival.
    slowest: Vec<OpRecord>,
    /// The last ones slower than the threshold, oldest first.
    slow: VecDeque<OpRecord>,
    /// An operation must take longer to be remembered.
    bar: Duration,
}

impl History {
    pub fn set_limits(&mut self, limits: TrackingLimits) {
        self.limits = limits;
        self.trim();
    }

    pub fn limits(&self) -> TrackingLimits {
        self.limits
    }

    /// True if [`History::add`] would keep an operation of this duration.
    pub fn wants(&self, duration: Duration) -> bool {
        duration > self.bar || duration >= self.limits.slow_threshold
    }

    /// `record` has just been answered.
    pub fn add(&mut self, record: OpRecord, now: Time) {
        let duration = record.duration(now);
        if duration >= self.limits.slow_threshold && self.limits.slow_size > 0 {
            self.slow.push_back(record.clone());
        }
        if duration > self.bar {
            self.slowest.push(record);
        }
        self.expire(now);
    }

    /// Forgets what arrived too long ago.
    pub fn expire(&mut self, now: Time) {
        let (duration, is_old) =
            (self.limits.history_duration, |r: &OpRecord, d| now.since(r.stamps.received) > d);
        self.slowest.retain(|record| !is_old(record, duration));
        self.trim();
    }

    fn trim(&mut self) {
        let took = |record: &OpRecord| record.duration(Time::ZERO);
        while self.slowest.len() > self.limits.history_size {
            let quickest = self.slowest.iter().enumerate().min_by_key(|(_, record)| took(record));
            let (at, _) = quickest.expect("there are more than the limit");
            self.slowest.remove(at);
        }
        while self.slow.len() > self.limits.slow_size {
            self.slow.pop_front();
        }
        let is_full = self.slowest.len() >= self.limits.history_size;
        let quickest = self.slowest.iter().map(took).min();
        self.bar = match quickest {
            Some(quickest) if is_full => quickest,
            None if is_full => Duration::MAX,
            _ => Duration::ZERO,
        };
    }

    pub fn slowest(&self) -> impl Iterator<Item = &OpRecord> {
        self.slowest.iter()
    }

    pub fn slow(&self) -> impl Iterator<Item = &OpRecord> {
        self.slow.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Progress;
    use super::super::stages::OpStamps;
    use super::*;
    use wire::types::{EntityAddr, EntityKind, EntityName};

    /// Answered at `at`, after so many seconds.
    fn record(at: u64, took: u64) -> OpRecord {
        let sec = |n: u64| Time(n * 1_000_000_000);
        OpRecord {
            description: String::new(),
            client: EntityName::new(EntityKind::CLIENT, 1),
            client_addr: EntityAddr::default(),
            tid: took,
            stamps: OpStamps { received: sec(at - took), ..OpStamps::default() },
            progress: Progress::Replied(sec(at)),
        }
    }

    fn add(history: &mut History, at: u64, took: u64) {
        if history.wants(Duration::from_secs(took)) {
            history.add(record(at, took), Time(at * 1_000_000_000));
        }
    }

    fn kept(history: &History) -> Vec<u64> {
        history.slowest().map(|r| r.tid).collect()
    }

    #[test]
    fn slowest_operations_are_kept() {
        let mut history = History::default();
        history.set_limits(TrackingLimits { history_size: 3, slow_size: 2, ..TrackingLimits::default() });
        for (i, took) in [4, 1, 2, 3, 12, 1, 11, 13].into_iter().enumerate() {
            add(&mut history, 100 + i as u64, took);
        }
        assert_eq!(kept(&history), [12, 11, 13]);
        assert_eq!(history.slow().map(|r| r.tid).collect::<Vec<_>>(), [11, 13]);
        assert!(!history.wants(Duration::from_secs(9)));
    }

    #[test]
    fn old_operations_make_room_for_quick_ones() {
        let mut history = History::default();
        history.set_limits(TrackingLimits { history_size: 1, ..TrackingLimits::default() });
        add(&mut history, 100, 9);
        assert!(!history.wants(Duration::from_secs(1)));
        history.expire(Time(800_000_000_000));
        assert!(history.wants(Duration::from_secs(1)));
        assert_eq!(kept(&history), [0; 0]);
    }

    #[test]
    fn history_of_size_zero_keeps_nothing() {
        let mut history = History::default();
        history.set_limits(TrackingLimits { history_size: 0, slow_size: 0, ..TrackingLimits::default() });
        add(&mut history, 100, 9);
        add(&mut history, 100, 90);
        assert_eq!((kept(&history).len(), history.slow().count()), (0, 0));
    }
}
