//! The result of `shoal bench`: the line that moves, the text, the JSON.

use super::Work;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use lab::judge::stats::quantile_of_bins;
use lab::load::Progress;
use lab::matrix::Spec;
use lab::results::Measured;
use serde_json::{Value, json};
use std::cell::Cell;
use std::fmt;
use std::time::Instant;

pub(super) struct Bar {
    bar: Option<ProgressBar>,
    shown: Cell<(Instant, u64)>,
}

impl Bar {
    pub(super) fn new(wanted: bool) -> Bar {
        let bar = wanted.then(|| {
            let style = ProgressStyle::with_template("{wide_bar:.green} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(1000).with_style(style)
        });
        Bar { bar, shown: Cell::new((Instant::now(), 0)) }
    }

    pub(super) fn show(&self, Progress { share, ops, median_us, errors }: Progress) {
        let Some(bar) = &self.bar else { return };
        let now = Instant::now();
        let (shown_at, ops_before) = self.shown.replace((now, ops));
        let rate = ops.saturating_sub(ops_before) as f64 / (now - shown_at).as_secs_f64().max(1e-3);
        bar.set_position((share * 1000.0) as u64);
        bar.set_message(format!("{rate:.0} op/s, median {median_us:.0} µs, {errors} errors"));
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

pub(super) struct Report {
    pub(super) work: Work,
    pub(super) spec: Spec,
    pub(super) measured: Measured,
}

impl Report {
    /// No error, and every operation answered.
    pub(super) fn is_clean(&self) -> bool {
        self.measured.errors == 0 && self.measured.unanswered == 0
    }

    /// Operations completed within the time that counts.
    fn ops(&self) -> u64 {
        (self.measured.ops_per_s * self.measured.seconds).round() as u64
    }

    fn client_cpu_us_per_op(&self) -> f64 {
        self.measured.cpu_us_per_op.iter().map(|(_, us)| us).sum()
    }

    /// Name and microseconds.
    fn latencies(&self) -> [(&'static str, f64); 7] {
        let latency = &self.measured.latency;
        let p90 = quantile_of_bins(&self.measured.histogram, 0.9);
        [
            ("mean", latency.mean_us),
            ("min", latency.min_us),
            ("p50", latency.p50_us.unwrap_or(0.0)),
            ("p90", p90.unwrap_or(0.0)),
            ("p99", latency.p99_us.unwrap_or(0.0)),
            ("p99.9", latency.p999_us.unwrap_or(0.0)),
            ("max", latency.max_us),
        ]
    }

    pub(super) fn to_json(&self) -> Value {
        let round = |v: f64| (v * 100.0).round() / 100.0;
        let latency: serde_json::Map<String, Value> =
            self.latencies().iter().map(|(name, us)| ((*name).to_owned(), round(*us).into())).collect();
        let Report { spec, measured, .. } = self;
        json!({
            "work": self.work.name(),
            "io_bytes": spec.op_bytes,
            "connections": spec.clients,
            "depth": spec.depth,
            "seconds": measured.seconds,
            "ops": self.ops(),
            "errors": measured.errors,
            "first_error": measured.first_error,
            "unanswered": measured.unanswered,
            "ops_per_second": round(measured.ops_per_s),
            "bytes_per_second": round(measured.bytes_per_s),
            "client_cpu_us_per_op": round(self.client_cpu_us_per_op()),
            "latency_us": latency,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { work, spec, measured } = self;
        writeln!(
            f,
            "{} of {}, {} in flight on each of {} connections, {:.0} s",
            work.name(),
            HumanBytes(spec.op_bytes),
            spec.depth,
            spec.clients,
            measured.seconds
        )?;
        writeln!(
            f,
            "  {:>10.0} op/s   {}/s   {} operations, {} errors",
            measured.ops_per_s,
            HumanBytes(measured.bytes_per_s as u64),
            self.ops(),
            measured.errors
        )?;
        write!(f, "  latency µs:")?;
        for (name, us) in self.latencies().iter().filter(|(name, _)| *name != "min") {
            write!(f, " {name} {us:.0} ")?;
        }
        write!(
            f,
            "\n  this client took {:.1} µs of processor time an operation",
            self.client_cpu_us_per_op()
        )?;
        if self.ops() == 0 && self.is_clean() {
            write!(f, "\n  no operation completed within that time: try more --seconds, or less --depth")?;
        }
        if let Some(errno) = measured.first_error {
            let error = std::io::Error::from_raw_os_error(-errno);
            write!(f, "\n  the first error was errno {}: {error}", -errno)?;
        }
        if measured.unanswered > 0 {
            write!(
                f,
                "\n  {} operations have no answer: the cluster went away, or is slower than --grace; \
                 the objects stay in the pool",
                measured.unanswered
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(measured: Measured) -> Report {
        Report { work: Work::Write, spec: Spec { depth: 64, clients: 8, ..Spec::default() }, measured }
    }

    #[test]
    fn json_keeps_its_keys() {
        let measured = Measured {
            seconds: 2.0,
            ops_per_s: 500.0,
            histogram: vec![(10.0, 900), (70.0, 100)],
            cpu_us_per_op: vec![("client".into(), 2.345)],
            ..Measured::default()
        };
        let json = report(measured).to_json();
        for (key, value) in
            [("ops", json!(1000)), ("client_cpu_us_per_op", json!(2.35)), ("unanswered", json!(0))]
        {
            assert_eq!(json[key], value, "{key}");
        }
        assert_eq!(json["latency_us"]["p90"], 10.0);
        assert_eq!(json["latency_us"].as_object().unwrap().len(), 7);
    }

    #[test]
    fn unanswered_operations_are_reported_and_fail() {
        let report = report(Measured { seconds: 1.0, unanswered: 512, ..Measured::default() });
        assert!(!report.is_clean());
        assert!(report.to_string().contains("512 operations have no answer"), "{report}");
    }
}
