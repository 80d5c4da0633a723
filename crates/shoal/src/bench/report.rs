//! What a load took: counted while it runs, shown on one line, and told at the end.

use super::load::Load;
use hdrhistogram::Histogram;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Counts operations as they complete.
pub(super) struct Recorder {
    /// Between warming up and the end.
    window: Range<Instant>,
    latency_ns: Histogram<u64>,
    errors: u64,
    first_error: Option<i32>,
}

/// Longer than any operation is waited for.
const LATENCY_MAX: Duration = Duration::from_secs(600);

impl Recorder {
    pub(super) fn new(window: Range<Instant>) -> anyhow::Result<Recorder> {
        let latency_ns = Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, 3)?;
        Ok(Recorder { window, latency_ns, errors: 0, first_error: None })
    }

    /// What completes within the window is its rate, whenever it was submitted: with many large operations in flight, the
    /// first that was submitted within the window may complete seconds after it. An error is one at any time.
    pub(super) fn record(&mut self, submitted_at: Instant, now: Instant, result: i32) {
        if result < 0 {
            self.errors += 1;
            self.first_error.get_or_insert(result);
        } else if self.window.contains(&now) {
            self.latency_ns.saturating_record((now - submitted_at).as_nanos() as u64);
        }
    }

    pub(super) fn report(self, load: &Load, cpu: Duration) -> Report {
        Report {
            load: load.clone(),
            latency_ns: self.latency_ns,
            errors: self.errors,
            first_error: self.first_error,
            cpu,
        }
    }
}

/// The line that moves while a load runs.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    ops_before: u64,
    shown_at: Instant,
}

impl Progress {
    pub(super) fn new(wanted: bool) -> Progress {
        let bar = wanted.then(|| {
            let style = ProgressStyle::with_template("{wide_bar:.green} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(1000).with_style(style)
        });
        Progress { bar, ops_before: 0, shown_at: Instant::now() }
    }

    pub(super) fn show(&mut self, recorder: &Recorder) {
        let Some(bar) = &self.bar else { return };
        let (now, ops) = (Instant::now(), recorder.latency_ns.len());
        let rate = (ops - self.ops_before) as f64 / (now - self.shown_at).as_secs_f64();
        (self.ops_before, self.shown_at) = (ops, now);
        let Range { start, end } = recorder.window;
        let share = (now - start).as_secs_f64() / (end - start).as_secs_f64();
        bar.set_position((share * 1000.0) as u64);
        let median_us = recorder.latency_ns.value_at_quantile(0.5) as f64 / 1e3;
        bar.set_message(format!("{rate:.0} op/s, median {median_us:.0} µs, {} errors", recorder.errors));
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What a load took.
pub struct Report {
    load: Load,
    latency_ns: Histogram<u64>,
    errors: u64,
    first_error: Option<i32>,
    /// Processor time of this process within the window.
    cpu: Duration,
}

impl Report {
    pub fn ops(&self) -> u64 {
        self.latency_ns.len()
    }

    pub fn ops_per_second(&self) -> f64 {
        self.ops() as f64 / self.load.duration.as_secs_f64()
    }

    pub fn errors(&self) -> u64 {
        self.errors
    }

    fn bytes_per_second(&self) -> f64 {
        self.ops_per_second() * self.load.io_bytes as f64
    }

    fn latency_us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1e3
    }

    fn client_cpu_us_per_op(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.ops().max(1) as f64
    }

    pub fn to_json(&self) -> Value {
        let round = |v: f64| (v * 100.0).round() / 100.0;
        json!({
            "work": self.load.work.name(),
            "io_bytes": self.load.io_bytes,
            "connections": self.load.connections,
            "depth": self.load.depth,
            "seconds": self.load.duration.as_secs_f64(),
            "ops": self.ops(),
            "errors": self.errors,
            "first_error": self.first_error,
            "ops_per_second": round(self.ops_per_second()),
            "bytes_per_second": round(self.bytes_per_second()),
            "client_cpu_us_per_op": round(self.client_cpu_us_per_op()),
            "latency_us": {
                "mean": round(self.latency_ns.mean() / 1e3),
                "min": round(self.latency_ns.min() as f64 / 1e3),
                "p50": round(self.latency_us(0.5)),
                "p90": round(self.latency_us(0.9)),
                "p99": round(self.latency_us(0.99)),
                "p99.9": round(self.latency_us(0.999)),
                "max": round(self.latency_ns.max() as f64 / 1e3),
            },
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Load { work, io_bytes, connections, depth, duration, .. } = &self.load;
        writeln!(
            f,
            "{} of {}, {depth} in flight on each of {connections} connections, {:.0} s",
            work.name(),
            HumanBytes(*io_bytes),
            duration.as_secs_f64()
        )?;
        writeln!(
            f,
            "  {:>10.0} op/s   {}/s   {} operations, {} errors",
            self.ops_per_second(),
            HumanBytes(self.bytes_per_second() as u64),
            self.ops(),
            self.errors
        )?;
        writeln!(
            f,
            "  latency µs: mean {:.0}  p50 {:.0}  p90 {:.0}  p99 {:.0}  p99.9 {:.0}  max {:.0}",
            self.latency_ns.mean() / 1e3,
            self.latency_us(0.5),
            self.latency_us(0.9),
            self.latency_us(0.99),
            self.latency_us(0.999),
            self.latency_ns.max() as f64 / 1e3
        )?;
        write!(f, "  this client took {:.1} µs of processor time an operation", self.client_cpu_us_per_op())?;
        if self.ops() == 0 && self.errors == 0 {
            write!(f, "\n  nothing was done within that time: try more --seconds, or less --depth")?;
        }
        if let Some(errno) = self.first_error {
            write!(f, "\n  the first error was errno {}", -errno)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_completes_within_the_window_and_errors_at_any_time() {
        let began = Instant::now();
        let at = |s: u64| began + Duration::from_secs(s);
        let mut recorder = Recorder::new(at(10)..at(20)).unwrap();
        for (submitted, completed) in [(2, 9), (9, 10), (1, 19), (12, 15), (12, 20), (19, 25)] {
            recorder.record(at(submitted), at(completed), 0);
        }
        assert_eq!(recorder.latency_ns.len(), 3);
        assert!(recorder.latency_ns.max() >= 18_000_000_000, "from when it was submitted");
        assert_eq!(recorder.errors, 0);
        recorder.record(at(1), at(2), -5);
        recorder.record(at(12), at(25), -110);
        assert_eq!((recorder.errors, recorder.first_error), (2, Some(-5)));
        assert_eq!(recorder.latency_ns.len(), 3);
    }
}
