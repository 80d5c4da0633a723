//! Counts of one load: latency by intended start, rate by completion, errors and unanswered operations at any time.

use super::Start;
use crate::results::record::{Latency, Measured, Second};
use hdrhistogram::Histogram;

/// Longer than the load generator waits for any reply.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// A load in progress, for a person.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    pub share: f64,
    pub ops: u64,
    pub median_us: f64,
    pub errors: u64,
}

pub struct Recorder {
    begin_ns: u64,
    end_ns: u64,
    latency_ns: Histogram<u64>,
    completed_in_window: u64,
    bytes_in_window: u64,
    errors: u64,
    first_error: Option<i32>,
    unanswered: u64,
    /// One histogram for the current second; earlier seconds are in `series`.
    second: u64,
    second_ns: Histogram<u64>,
    series: Vec<Second>,
    pub checked: u64,
    pub wrong: u64,
}

impl Recorder {
    /// Counting starts at `begin_ns` and ends before `end_ns`. The time before is the warm-up.
    pub fn new(begin_ns: u64, end_ns: u64) -> anyhow::Result<Recorder> {
        Ok(Recorder {
            begin_ns,
            end_ns,
            latency_ns: Histogram::new_with_max(LATENCY_MAX_NS, 3)?,
            completed_in_window: 0,
            bytes_in_window: 0,
            errors: 0,
            first_error: None,
            unanswered: 0,
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

    /// Share of the window that has passed, operations completed in it, their median latency, and errors so far.
    pub fn progress(&self, now_ns: u64) -> Progress {
        let window_ns = (self.end_ns - self.begin_ns).max(1) as f64;
        Progress {
            share: (now_ns.saturating_sub(self.begin_ns) as f64 / window_ns).min(1.0),
            ops: self.completed_in_window,
            median_us: self.latency_ns.value_at_quantile(0.5) as f64 / 1e3,
            errors: self.errors,
        }
    }

    /// These operations have no reply, and none is waited for any more.
    pub fn give_up(&mut self, unanswered: u64) {
        self.unanswered += unanswered;
    }

    /// A reply has arrived. `errno` is negative for an error.
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
            self.errors += 1;
            self.first_error.get_or_insert(errno);
            return;
        }
        // The rate counts completions, whatever their start: with many large operations in flight, operations of the
        // warm-up complete long into the window, and the window's last ones after its end.
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
        // Seconds without a reply are seconds of rate zero.
        for silent in self.second + 1..next.min(self.second + 3600) {
            self.series.push(Second { at_s: (silent + 1) as f64, ..Second::default() });
        }
        self.second = next;
    }

    pub fn measured(mut self) -> Measured {
        // Silence up to the end of the window is rate zero, too.
        let last = (self.end_ns / 1_000_000_000).saturating_sub(1);
        if self.second < last {
            self.end_second(last);
        }
        // The last second is a whole one only if the window ends with it.
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
            first_error: self.first_error,
            unanswered: self.unanswered,
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
}
