//! Performance counters: their shapes in `perf dump`, `perf schema`, `perf histogram dump` and on a Prometheus page.
//!
//! The shapes, type bits and metric names are stock Ceph's (`common/perf_counters.cc`, `perf_histogram.h`, and for
//! metrics the ceph-exporter and the manager's prometheus module), so that `ceph daemonperf`, exporters and dashboards
//! read them.

use crate::{Json, object};
use std::borrow::Cow;
use std::fmt::Write;

/// One measured value at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// Group and name as in `perf dump`: `osd`, `op_r`.
    pub group: Cow<'static, str>,
    pub name: Cow<'static, str>,
    pub help: Cow<'static, str>,
    pub nick: &'static str,
    /// Exporters leave out what is below 5.
    pub priority: u8,
    pub unit: Unit,
    /// Stock has a counter of this name and meaning.
    pub is_stock: bool,
    pub value: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// Only grows.
    Total(u64),
    /// Goes up and down.
    Level(u64),
    /// Number of measurements and their sum, in nanoseconds.
    Time { count: u64, sum_ns: u64 },
}

impl Counter {
    /// A counter of shoal's own.
    pub fn own(
        group: impl Into<Cow<'static, str>>,
        name: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
        value: Reading,
    ) -> Counter {
        let (group, name, help) = (group.into(), name.into(), help.into());
        Counter { group, name, help, nick: "", priority: 5, unit: Unit::None, is_stock: false, value }
    }
}

/// `perfcounter_type_d`.
const TYPE_TIME: u8 = 0x1;
const TYPE_U64: u8 = 0x2;
const TYPE_LONG_RUNNING_AVG: u8 = 0x4;
const TYPE_COUNTER: u8 = 0x8;
const TYPE_HISTOGRAM: u8 = 0x10;

impl Reading {
    /// `perfcounter_type_d` bits: what `ceph daemonperf` reads from the schema.
    pub fn ceph_type(self) -> u8 {
        match self {
            Reading::Total(_) => TYPE_U64 | TYPE_COUNTER,
            Reading::Level(_) => TYPE_U64,
            Reading::Time { .. } => TYPE_TIME | TYPE_LONG_RUNNING_AVG,
        }
    }

    fn json(self) -> Json {
        match self {
            Reading::Total(n) | Reading::Level(n) => n.into(),
            Reading::Time { count, sum_ns } => {
                let mean_ns = sum_ns.checked_div(count).unwrap_or(0);
                let seconds = |ns| Json::Raw(format!("{}.{:09}", ns / NS_PER_SEC, ns % NS_PER_SEC));
                object! { "avgcount" => count, "sum" => seconds(sum_ns), "avgtime" => seconds(mean_ns) }
            }
        }
    }
}

const NS_PER_SEC: u64 = 1_000_000_000;

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::None => "none",
            Unit::Bytes => "bytes",
        }
    }

    /// `unit_t`.
    pub fn ceph_unit(self) -> u8 {
        match self {
            Unit::None => 1,
            Unit::Bytes => 0,
        }
    }
}

/// Puts rows under their groups, in the order in which the groups first appear.
fn grouped<'a>(rows: impl Iterator<Item = (&'a str, &'a str, Json)>) -> Json {
    let mut groups: Vec<(Cow<'static, str>, Json)> = Vec::new();
    for (group, name, json) in rows {
        let at = groups.iter().position(|(known, _)| known == group).unwrap_or_else(|| {
            groups.push((group.to_owned().into(), Json::Object(Vec::new())));
            groups.len() - 1
        });
        groups[at].1.push(name.to_owned(), json);
    }
    Json::Object(groups)
}

/// A `perf …` command's optional group and counter; an empty one is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    pub group: Option<&'a str>,
    pub name: Option<&'a str>,
}

impl Filter<'_> {
    fn takes(&self, group: &str, name: &str) -> bool {
        self.group.is_none_or(|g| g.is_empty() || g == group)
            && self.name.is_none_or(|n| n.is_empty() || n == name)
    }
}

/// `perf dump [group [name]]`.
pub fn dump(counters: &[Counter], filter: Filter<'_>) -> Json {
    let wanted = counters.iter().filter(|c| filter.takes(&c.group, &c.name));
    grouped(wanted.map(|c| (&*c.group, &*c.name, c.value.json())))
}

/// `perf schema [group [name]]`.
pub fn schema(counters: &[Counter], filter: Filter<'_>) -> Json {
    let wanted = counters.iter().filter(|c| filter.takes(&c.group, &c.name));
    grouped(wanted.map(|c| {
        let (metric, value) = match c.value {
            Reading::Total(_) => ("counter", "integer"),
            Reading::Level(_) => ("gauge", "integer"),
            Reading::Time { .. } => ("gauge", "real-integer-pair"),
        };
        let row = object! {
            "type" => u64::from(c.value.ceph_type()),
            "metric_type" => metric,
            "value_type" => value,
            "description" => c.help.as_ref(),
            "nick" => c.nick,
            "priority" => u64::from(c.priority),
            "units" => c.unit.name(),
        };
        (&*c.group, &*c.name, row)
    }))
}

/// Buckets along one axis of a histogram, as stock lays them out: values below the minimum, then one quantum, then
/// twice as much with each bucket; the last is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    pub name: &'static str,
    pub quantum: u64,
}

pub const BUCKETS: usize = 32;

impl Axis {
    #[inline]
    pub const fn bucket(&self, value: u64) -> usize {
        let quanta = value / self.quantum;
        let bucket = 1 + (u64::BITS - quanta.leading_zeros()) as usize;
        if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
    }

    fn json(&self) -> Json {
        let mut ranges =
            vec![object! { "max" => -1i64 }, object! { "min" => 0u64, "max" => self.quantum - 1 }];
        for bucket in 2..BUCKETS {
            let min = self.quantum << (bucket - 2);
            let mut range = object! { "min" => min };
            if bucket < BUCKETS - 1 {
                range.push("max", 2 * min - 1);
            }
            ranges.push(range);
        }
        object! {
            "name" => self.name,
            "min" => 0u64,
            "quant_size" => self.quantum,
            "buckets" => BUCKETS as u64,
            "scale_type" => "log2",
            "ranges" => Json::Array(ranges),
        }
    }
}

/// A histogram with one axis, or with two.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    pub group: Cow<'static, str>,
    pub name: Cow<'static, str>,
    pub help: Cow<'static, str>,
    pub axes: Vec<Axis>,
    /// The first axis' buckets, one after another; for two axes each with the second's buckets in it.
    pub values: Vec<u64>,
}

/// `perf histogram dump [group [name]]`.
pub fn histogram_dump(histograms: &[Histogram], filter: Filter<'_>) -> Json {
    let wanted = histograms.iter().filter(|h| filter.takes(&h.group, &h.name));
    grouped(wanted.map(|h| {
        let values = match h.axes.len() {
            2 => Json::array(h.values.chunks(BUCKETS).map(|row| Json::array(row.iter().copied()))),
            _ => Json::array(h.values.iter().copied()),
        };
        let row = object! { "axes" => Json::array(h.axes.iter().map(Axis::json)), "values" => values };
        (&*h.group, &*h.name, row)
    }))
}

/// `perf histogram schema [group [name]]`.
pub fn histogram_schema(histograms: &[Histogram], filter: Filter<'_>) -> Json {
    let wanted = histograms.iter().filter(|h| filter.takes(&h.group, &h.name));
    grouped(wanted.map(|h| {
        let row = object! {
            "type" => u64::from(TYPE_U64 | TYPE_COUNTER | TYPE_HISTOGRAM),
            "metric_type" => "counter",
            "value_type" => if h.axes.len() == 2 { "integer-2d-histogram" } else { "integer-histogram" },
            "description" => h.help.as_ref(),
            "nick" => "",
            "priority" => 5u64,
            "units" => "none",
        };
        (&*h.group, &*h.name, row)
    }))
}

/// The least priority of a counter that a Prometheus page shows (`exporter_prio_limit`).
const METRIC_PRIORITY: u8 = 5;

/// The Prometheus text format: `ceph_osd_op_r{ceph_daemon="osd.0"} 5` for what stock has, `shoal_…` for the rest.
pub fn prometheus(counters: &[Counter], daemon: &str) -> String {
    let mut out = String::new();
    for counter in counters.iter().filter(|c| c.priority >= METRIC_PRIORITY || !c.is_stock) {
        let prefix = if counter.is_stock { "ceph" } else { "shoal" };
        let family = metric_name(&format!("{prefix}_{}_{}", counter.group, counter.name));
        let help = &counter.help;
        let mut line = |name: &str, kind: &str, value: String| {
            let _ = writeln!(
                out,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{ceph_daemon=\"{daemon}\"}} {value}"
            );
        };
        match counter.value {
            Reading::Total(n) => line(&family, "counter", n.to_string()),
            Reading::Level(n) => line(&family, "gauge", n.to_string()),
            Reading::Time { count, sum_ns } => {
                line(&format!("{family}_sum"), "counter", format!("{}", sum_ns as f64 / 1e9));
                line(&format!("{family}_count"), "counter", count.to_string());
            }
        }
    }
    out
}

/// Letters, digits and underscores; anything else becomes an underscore.
pub fn metric_name(path: &str) -> String {
    path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Counter> {
        let latency = Reading::Time { count: 4, sum_ns: 2_000_000_000 };
        vec![
            Counter { is_stock: true, ..Counter::own("osd", "op_r", "reads", Reading::Total(5)) },
            Counter {
                priority: 0,
                is_stock: true,
                ..Counter::own("osd", "numpg_stray", "PGs", Reading::Level(8))
            },
            Counter { is_stock: true, ..Counter::own("osd", "op_latency", "time", latency) },
            Counter::own("store-0", "commit", "commits", Reading::Total(1)),
        ]
    }

    #[test]
    fn dump_groups_and_filters() {
        let all = dump(&sample(), Filter::default()).compact();
        assert_eq!(
            all,
            r#"{"osd":{"op_r":5,"numpg_stray":8,"op_latency":{"avgcount":4,"sum":2.000000000,"avgtime":0.500000000}},"store-0":{"commit":1}}"#
        );
        let one = Filter { group: Some("osd"), name: Some("numpg_stray") };
        assert_eq!(dump(&sample(), one).compact(), r#"{"osd":{"numpg_stray":8}}"#);
        assert!(schema(&sample(), one).compact().contains(r#""type":2,"metric_type":"gauge""#));
    }

    #[test]
    fn metrics_have_stock_names_where_stock_has_them() {
        let text = prometheus(&sample(), "osd.0");
        assert!(
            text.contains("# TYPE ceph_osd_op_r counter\nceph_osd_op_r{ceph_daemon=\"osd.0\"} 5\n"),
            "{text}"
        );
        assert!(text.contains("ceph_osd_op_latency_sum{ceph_daemon=\"osd.0\"} 2\n"));
        assert!(text.contains("shoal_store_0_commit{ceph_daemon=\"osd.0\"} 1\n"));
        assert!(!text.contains("numpg_stray"), "stock's exporter leaves out low priorities");
    }

    /// Ranges as a stock OSD's `perf histogram dump` has them.
    #[test]
    fn buckets_are_where_stock_has_them() {
        let axis = Axis { name: "Latency (usec)", quantum: 100_000 };
        let of = |value| axis.bucket(value);
        assert_eq!((of(0), of(99_999), of(100_000), of(199_999)), (1, 1, 2, 2));
        assert_eq!((of(200_000), of(399_999), of(400_000), of(u64::MAX)), (3, 3, 4, 31));
        let json = axis.json().compact();
        assert!(json.contains(
            r#""ranges":[{"max":-1},{"min":0,"max":99999},{"min":100000,"max":199999},{"min":200000,"#
        ));
        assert!(json.ends_with(r#"{"min":53687091200000}]}"#), "{json}");
    }
}
