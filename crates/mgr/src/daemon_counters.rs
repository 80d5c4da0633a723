//! Performance counters that daemons report (`MMgrReport`).

use std::collections::BTreeMap;
use wire::messages::{CounterDeclaration, MMgrReport, PackedValue};

/// Counters that one daemon may declare; more are ignored.
const DECLARED_MAX: usize = 4096;

/// One daemon's counters. A declaration comes once, values with every report, in order of path.
#[derive(Default)]
pub(crate) struct DaemonCounters {
    declared: BTreeMap<String, CounterDeclaration>,
    values: Vec<PackedValue>,
}

impl DaemonCounters {
    /// A report whose values do not decode changes none.
    pub fn take(&mut self, report: &MMgrReport) {
        for path in &report.undeclared {
            self.declared.remove(path);
        }
        for declaration in &report.declared {
            if self.declared.len() < DECLARED_MAX {
                self.declared.insert(declaration.path.clone(), declaration.clone());
            }
        }
        let kinds = self.declared.values().map(|declaration| declaration.kind);
        match report.unpack(kinds) {
            Ok(values) => self.values = values,
            // Without values a path is not shown.
            Err(_) => self.values.clear(),
        }
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
        counters.take(&report);
        report.declared.clear();
        report.packed = MMgrReport::pack([(3_000, Some(5)), (8, None)]);
        counters.take(&report);
        let shown: Vec<_> = counters.iter().map(|(d, value)| (d.path.as_str(), value)).collect();
        assert_eq!(shown, [("osd.op_latency", (3_000, Some(5))), ("osd.op_w", (8, None))]);

        report.packed = MMgrReport::pack([(1, None)]);
        counters.take(&report);
        assert_eq!(counters.iter().count(), 0, "too few values");
    }
}
