//! What does a daemon count, and how is it shown: `perf dump`, `perf schema`, Prometheus?

pub use command::counter::{Counter, Reading};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// `perfcounter_type_d` bits of Ceph: what `ceph daemonperf` reads from the schema.
const TYPE_TIME: u32 = 0x1;
const TYPE_U64: u32 = 0x2;
const TYPE_LONG_RUNNING_AVG: u32 = 0x4;
const TYPE_COUNTER: u32 = 0x8;

fn ceph_type(reading: Reading) -> u32 {
    match reading {
        Reading::Total(_) => TYPE_U64 | TYPE_COUNTER,
        Reading::Level(_) => TYPE_U64,
        Reading::Time { .. } => TYPE_TIME | TYPE_LONG_RUNNING_AVG,
    }
}

fn grouped(counters: &[Counter], mut show: impl FnMut(&Counter) -> Value) -> Value {
    let mut groups: Map<String, Value> = Map::new();
    for counter in counters {
        let group = groups.entry(counter.group.clone()).or_insert_with(|| json!({}));
        let group = group.as_object_mut().expect("only objects are put here");
        group.insert(counter.name.to_string(), show(counter));
    }
    Value::Object(groups)
}

/// `perf dump [group [name]]`.
pub fn dump(counters: &[Counter], group: Option<&str>, name: Option<&str>) -> Value {
    let wanted: Vec<Counter> = counters
        .iter()
        .filter(|c| group.is_none_or(|g| g.is_empty() || g == c.group))
        .filter(|c| name.is_none_or(|n| n.is_empty() || n == c.name))
        .cloned()
        .collect();
    grouped(&wanted, |counter| match counter.value {
        Reading::Total(n) | Reading::Level(n) => json!(n),
        Reading::Time { count, sum_ns } => {
            let sum = sum_ns as f64 / 1e9;
            let mean = if count == 0 { 0.0 } else { sum / count as f64 };
            json!({ "avgcount": count, "sum": sum, "avgtime": mean })
        }
    })
}

pub fn schema(counters: &[Counter]) -> Value {
    grouped(counters, |counter| {
        let (metric, value) = match counter.value {
            Reading::Total(_) => ("counter", "integer"),
            Reading::Level(_) => ("gauge", "integer"),
            Reading::Time { .. } => ("gauge", "real-integer-pair"),
        };
        json!({
            "type": ceph_type(counter.value),
            "metric_type": metric,
            "value_type": value,
            "description": counter.help,
            "nick": "",
            "priority": 5,
            "units": "none",
        })
    })
}

/// The Prometheus text format, one family a counter: `shoal_osd_op_r{daemon="osd.0"} 5`.
pub fn prometheus(counters: &[Counter], daemon: &str) -> String {
    let mut out = String::new();
    let mut line = |name: &str, kind: &str, help: &str, value: String| {
        let _ = writeln!(
            out,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{daemon=\"{daemon}\"}} {value}"
        );
    };
    for Counter { group, name, help, value } in counters {
        let family: String = format!("shoal_{group}_{name}")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        match value {
            Reading::Total(n) => line(&format!("{family}_total"), "counter", help, n.to_string()),
            Reading::Level(n) => line(&family, "gauge", help, n.to_string()),
            Reading::Time { count, sum_ns } => {
                line(&format!("{family}_count"), "counter", help, count.to_string());
                line(&format!("{family}_seconds_sum"), "counter", help, format!("{}", *sum_ns as f64 / 1e9));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Counter> {
        vec![
            Counter {
                group: "osd".into(),
                name: "op_r".into(),
                help: "reads".into(),
                value: Reading::Total(5),
            },
            Counter {
                group: "osd".into(),
                name: "numpg".into(),
                help: "PGs".into(),
                value: Reading::Level(8),
            },
            Counter {
                group: "osd".into(),
                name: "op_latency".into(),
                help: "time".into(),
                value: Reading::Time { count: 4, sum_ns: 2_000_000_000 },
            },
            Counter {
                group: "store-0".into(),
                name: "commit".into(),
                help: "commits".into(),
                value: Reading::Total(1),
            },
        ]
    }

    #[test]
    fn perf_dump_groups_and_filters() {
        let all = dump(&sample(), None, None);
        assert_eq!(all["osd"]["op_r"], 5);
        assert_eq!(all["osd"]["op_latency"]["avgtime"], 0.5);
        assert_eq!(dump(&sample(), Some("osd"), Some("numpg")), json!({"osd": {"numpg": 8}}));
        assert_eq!(schema(&sample())["osd"]["op_r"]["type"], 10);
    }

    #[test]
    fn prometheus_names_are_legal() {
        let text = prometheus(&sample(), "osd.0");
        assert!(
            text.contains("# TYPE shoal_osd_op_r_total counter\nshoal_osd_op_r_total{daemon=\"osd.0\"} 5\n")
        );
        assert!(text.contains("shoal_osd_op_latency_seconds_sum{daemon=\"osd.0\"} 2\n"));
        assert!(text.contains("shoal_store_0_commit_total{"));
    }
}
