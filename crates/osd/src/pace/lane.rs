//! A lane bounds the background bytes that are under way by a window.
//!
//! One step goes however large it is, because a step cannot be divided. After a step that is larger than the window the lane
//! rests, so that its throughput is that of the window: a step of `b` bytes that took `t` is followed by a rest of
//! `t × (b / window − 1)`.

use crate::planted::{self, PlantedBug};
use machine::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest rest after a step.
const REST_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Lane {
    under_way: Arc<AtomicU64>,
    rests_until: Time,
}

/// Bytes of a step under way. They are given back when this is dropped, as with the transfer that an interval's end drops.
#[derive(Debug)]
pub struct Charge {
    under_way: Arc<AtomicU64>,
    pub bytes: u64,
    since: Time,
    is_ended: bool,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if !self.is_ended && planted::has(PlantedBug::PaceBytesKept) {
            return;
        }
        self.under_way.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Lane {
    pub fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    /// True if a step of so many bytes may begin.
    pub fn may_begin(&self, now: Time, bytes: u64, window: u64) -> bool {
        let under_way = self.under_way();
        self.rests_until <= now && (under_way == 0 || under_way + bytes <= window)
    }

    pub fn begin(&mut self, now: Time, bytes: u64) -> Charge {
        self.under_way.fetch_add(bytes, Ordering::Relaxed);
        Charge { under_way: self.under_way.clone(), bytes, since: now, is_ended: false }
    }

    /// A step of this lane has ended.
    pub fn end(&mut self, now: Time, mut charge: Charge, window: u64) {
        charge.is_ended = true;
        let (bytes, window) = (charge.bytes, window.max(1));
        if bytes > window {
            let excess = (bytes - window) as f64 / window as f64;
            let rest = now.since(charge.since).mul_f64(excess.min(1e6)).min(REST_MAX);
            self.rests_until = self.rests_until.max(now + rest);
        }
    }

    /// The end of the rest under way.
    pub fn rests_until(&self, now: Time) -> Option<Time> {
        (self.rests_until > now).then_some(self.rests_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn steps_fill_the_window() {
        let mut lane = Lane::default();
        let first = lane.begin(ms(0), 60);
        assert!(lane.may_begin(ms(0), 40, 100));
        assert!(!lane.may_begin(ms(0), 41, 100));
        drop(first);
        assert!(lane.may_begin(ms(0), 1000, 100), "one step always goes");
    }

    #[test]
    fn rest_follows_a_step_beyond_the_window() {
        let mut lane = Lane::default();
        let step = lane.begin(ms(0), 400);
        lane.end(ms(10), step, 100);
        assert_eq!((lane.under_way(), lane.rests_until(ms(10))), (0, Some(ms(40))));
        assert!(!lane.may_begin(ms(39), 1, 100) && lane.may_begin(ms(40), 1, 100));
        let step = lane.begin(ms(40), 100);
        lane.end(ms(50), step, 100);
        assert_eq!(lane.rests_until(ms(50)), None, "it was within the window");
    }
}
