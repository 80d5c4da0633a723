//! What did the operations take? Latencies and errors by the time at which they were meant to begin, the rate by when they
//! were done.

use super::Start;
use crate::results::record::{Latency, Measured, Second};
use hdrhistogram::Histogram;

/// Longer than any operation is waited for.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

pub struct Recorder {
    begin_ns: u64,
    end_ns: u64,
    latency_ns: Histogram<u64>,
    completed_in_window: u64,
    bytes_in_window: u64,
    errors: u64,
    first_error: Option<i32>,
    /// One histogram for the second that runs; the others are told.
    second: u64,
    second_ns: Histogram<u64>,
    series: Vec<Second>,
    pub checked: u64,
    pub wrong: u64,
}

impl Recorder {
    /// The window is from `begin_ns` to before `end_ns`; what is before warms up.
    pub fn new(begin_ns: u64, end_ns: u64) -> anyhow::Result<Recorder> {
        Ok(Recorder {
            begin_ns,
            end_ns,
            latency_ns: Histogram::new_with_max(LATENCY_MAX_NS, 3)?,
            completed_in_window: 0,
            bytes_in_window: 0,
            errors: 0,
            first_error: None,
            second: 0,
            second_ns: Histogram::new_with_max(LATENCY_MAX_NS, 2)?,
            series: Vec::new(),
            checked: 0,
            wrong: 0,
        })
    }

    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Whether the window's last operations have all been answered is the caller's to know: it must wait for them.
    pub fn done(&mut self, now_ns: u64, start: &Start, errno: i32) {
        let latency_ns = now_ns.saturating_sub(start.intended_ns).max(1);
        let second = now_ns / 1_000_000_000;
        if second != self.second {
            self.end_second(second);
        }
        if now_ns < self.end_ns {
            self.second_ns.saturating_record(latency_ns);
        }
        let window = self.begin_ns..self.end_ns;
        let is_meant = window.contains(&start.intended_ns);
        if errno < 0 {
            if is_meant {
                self.errors += 1;
                self.first_error.get_or_insert(errno);
            }
            return;
        }
        // Whenever it was meant to begin: with many large operations in flight those of the warm-up complete within the
        // window for a good while, and those that begin near its end after it.
        if window.contains(&now_ns) {
            self.completed_in_window += 1;
            self.bytes_in_window += start.bytes;
        }
        if is_meant {
            self.latency_ns.saturating_record(latency_ns);
        }
    }

    fn end_second(&mut self, next: u64) {
        let h = &self.second_ns;
        let (ops, has_any) = (h.len() as f64, !h.is_empty());
        self.series.push(Second {
            at_s: (self.second + 1) as f64,
            ops,
            mean_us: has_any.then(|| h.mean() / 1e3),
            p99_us: has_any.then(|| h.value_at_quantile(0.99) as f64 / 1e3),
        });
        self.second_ns.reset();
        // Seconds in which nothing was answered are seconds of rate zero.
        for silent in self.second + 1..next.min(self.second + 3600) {
            self.series.push(Second { at_s: (silent + 1) as f64, ..Second::default() });
        }
        self.second = next;
    }

    pub fn measured(mut self) -> Measured {
        // The last second is a whole one only where the window ends with it.
        if self.end_ns.is_multiple_of(1_000_000_000) && self.second == self.end_ns / 1_000_000_000 - 1 {
            self.end_second(self.end_ns / 1_000_000_000);
        }
        self.series.retain(|s| s.at_s * 1e9 <= self.end_ns as f64);
        let seconds = (self.end_ns - self.begin_ns) as f64 / 1e9;
        let us = |ns: u64| ns as f64 / 1e3;
        let h = &self.latency_ns;
        let at = |q: f64| (!h.is_empty()).then(|| us(h.value_at_quantile(q)));
        let histogram =
            h.iter_recorded().map(|step| (us(step.value_iterated_to()), step.count_since_last_iteration()));
        let ops_per_s = self.completed_in_window as f64 / seconds;
        Measured {
            ops: h.len() as f64,
            seconds,
            ops_per_s,
            bytes_per_s: self.bytes_in_window as f64 / seconds,
            errors: self.errors,
            latency: Latency {
                mean_us: h.mean() / 1e3,
                min_us: us(if h.is_empty() { 0 } else { h.min() }),
                max_us: us(h.max()),
                p50_us: at(0.5),
                p95_us: at(0.95),
                p99_us: at(0.99),
                p999_us: at(0.999),
            },
            histogram: histogram.collect(),
            series: self.series,
            verified: (self.checked > 0).then_some((self.checked, self.wrong)),
            ..Measured::default()
        }
    }

    pub fn first_error(&self) -> Option<i32> {
        self.first_error
    }
}
