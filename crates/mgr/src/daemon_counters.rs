//! Performance counters that daemons report (`MMgrReport`).

use machine::Time;
use std::collections::BTreeMap;
use wire::messages::{CounterDeclaration, MMgrReport, PackedValue};

/// Limits of one daemon's declarations. Stock's daemons declare some hundreds of counters with texts of up to 200 bytes.
const DECLARED_MAX: usize = 4096;
const TEXT_BYTES_MAX: usize = 1024;
const DECLARED_BYTES_MAX: usize = 2 << 20;

/// One daemon's counters. A declaration comes once, values with every report, in order of path.
#[derive(Default)]
pub(crate) struct DaemonCounters {
    declared: BTreeMap<String, CounterDeclaration>,
    values: Vec<PackedValue>,
    /// When the values came.
    taken_at: Time,
    /// The values before, and when they came.
    before: Option<(Time, Vec<PackedValue>)>,
    /// The declarations went beyond a limit. Values have no names, so that without some of the declarations no value can
    /// be told from another.
    is_refused: bool,
}

impl DaemonCounters {
    /// A report whose values do not decode changes none. A daemon that declares too much has no counters from then on.
    ///
    /// # Errors
    /// The limit that this report exceeds.
    pub fn take(&mut self, now: Time, report: &MMgrReport) -> Result<(), String> {
        if self.is_refused {
            return Ok(());
        }
        for path in &report.undeclared {
            self.declared.remove(path);
        }
        for declaration in &report.declared {
            self.declared.insert(declaration.path.clone(), declaration.clone());
        }
        if !report.declared.is_empty()
            && let Err(limit) = self.check_limits()
        {
            *self = DaemonCounters { is_refused: true, ..DaemonCounters::default() };
            return Err(limit);
        }
        let kinds = self.declared.values().map(|declaration| declaration.kind);
        // Without values a path is not shown.
        let values = report.unpack(kinds).unwrap_or_default();
        let is_same_set = report.declared.is_empty() && report.undeclared.is_empty();
        let before = std::mem::replace(&mut self.values, values);
        let before_at = std::mem::replace(&mut self.taken_at, now);
        self.before = (is_same_set && before.len() == self.values.len()).then_some((before_at, before));
        Ok(())
    }

    fn check_limits(&self) -> Result<(), String> {
        let texts = |d: &CounterDeclaration| [d.path.len(), d.description.len(), d.nick.len()];
        let longest = self.declared.values().flat_map(texts).max().unwrap_or_default();
        let bytes: usize = self.declared.values().flat_map(texts).sum();
        for (what, count, limit) in [
            ("declared counters", self.declared.len(), DECLARED_MAX),
            ("bytes in a counter's name or description", longest, TEXT_BYTES_MAX),
            ("bytes in names and descriptions of counters", bytes, DECLARED_BYTES_MAX),
        ] {
            if count > limit {
                return Err(format!("{count} {what}, and {limit} is the limit"));
            }
        }
        Ok(())
    }

    /// A counter's growth a second between the last two reports. 0 if it is unknown.
    pub fn rate(&self, path: &str) -> f64 {
        let position = self.declared.keys().position(|known| known == path);
        let (Some(position), Some((before_at, before))) = (position, &self.before) else { return 0.0 };
        let (Some(now), Some(then)) = (self.values.get(position), before.get(position)) else { return 0.0 };
        let seconds = self.taken_at.since(*before_at).as_secs_f64();
        if seconds > 0.0 { now.0.saturating_sub(then.0) as f64 / seconds } else { 0.0 }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&CounterDeclaration, PackedValue)> {
        self.declared.values().zip(self.values.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(path: &str, kind: u8) -> CounterDeclaration {
        CounterDeclaration { path: path.into(), kind, ..CounterDeclaration::default() }
    }

    #[test]
    fn values_follow_their_declarations_in_order_of_path() {
        let mut counters = DaemonCounters::default();
        let mut report = MMgrReport {
            declared: vec![declared("osd.op_w", 10), declared("osd.op_latency", 5)],
            packed: MMgrReport::pack([(2_000, Some(4)), (7, None)]),
            ..MMgrReport::default()
        };
        counters.take(Time(1), &report).unwrap();
        assert_eq!(counters.rate("osd.op_w"), 0.0, "one report has no rate");
        report.declared.clear();
        report.packed = MMgrReport::pack([(3_000, Some(5)), (8, None)]);
        counters.take(Time(500_000_001), &report).unwrap();
        assert_eq!((counters.rate("osd.op_w"), counters.rate("osd.no_such")), (2.0, 0.0));
        let shown: Vec<_> = counters.iter().map(|(d, value)| (d.path.as_str(), value)).collect();
        assert_eq!(shown, [("osd.op_latency", (3_000, Some(5))), ("osd.op_w", (8, None))]);

        report.packed = MMgrReport::pack([(1, None)]);
        counters.take(Time(1), &report).unwrap();
        assert_eq!(counters.iter().count(), 0, "too few values");
    }

    #[test]
    fn declarations_beyond_a_limit_leave_no_counters() {
        let report = |declared: Vec<CounterDeclaration>| MMgrReport {
            packed: MMgrReport::pack(declared.iter().map(|_| (7, None))),
            declared,
            ..MMgrReport::default()
        };
        let many = |count: usize, name: &str| -> Vec<_> {
            (0..count).map(|n| declared(&format!("{n:05}{name}"), 2)).collect()
        };
        let long_name = vec![declared(&"x".repeat(TEXT_BYTES_MAX + 1), 2)];
        for (declared, limit) in [
            (many(DECLARED_MAX + 1, ""), "4097 declared counters, and 4096 is the limit"),
            (long_name, "1025 bytes in a counter's name or description, and 1024 is the limit"),
            (
                many(DECLARED_MAX, &"x".repeat(600)),
                "2478080 bytes in names and descriptions of counters, and 2097152 is the limit",
            ),
        ] {
            let mut counters = DaemonCounters::default();
            assert_eq!(counters.take(Time(1), &report(declared)), Err(limit.to_owned()));
            assert_eq!(counters.take(Time(1), &report(many(1, ""))), Ok(()), "said once");
            assert_eq!(counters.iter().count(), 0);
        }
        let mut counters = DaemonCounters::default();
        assert_eq!(counters.take(Time(1), &report(many(DECLARED_MAX, ""))), Ok(()));
        assert_eq!(counters.iter().count(), DECLARED_MAX);
        let one_more = MMgrReport { declared: many(DECLARED_MAX + 1, ""), ..MMgrReport::default() };
        assert!(counters.take(Time(1), &one_more).is_err(), "the limit holds over several reports");
    }
}
