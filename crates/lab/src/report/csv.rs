//! The tables as CSV (RFC 4180): every point, and the table that the study of a production cluster shows.

use super::Group;
use crate::matrix::Pool;
use crate::results::{Measured, PointRecord};
use std::collections::BTreeMap;

fn line(fields: &[String]) -> String {
    let quoted = |field: &String| match field.contains(['"', ',', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.clone(),
    };
    fields.iter().map(quoted).collect::<Vec<_>>().join(",") + "\r\n"
}

/// Processor time of an operation, of the processes with these names.
fn cpu_us(measured: &Measured, is_counted: impl Fn(&str) -> bool) -> f64 {
    measured.cpu_us_per_op.iter().filter(|(name, _)| is_counted(name)).map(|(_, us)| us).sum()
}

/// One line a point, rounds apart.
pub fn points(points: &[PointRecord]) -> String {
    let head = [
        "turn",
        "iteration",
        "cluster",
        "tool",
        "op",
        "op_bytes",
        "depth",
        "clients",
        "pg_num",
        "mode",
        "ops_per_s",
        "bytes_per_s",
        "mean_us",
        "p50_us",
        "p95_us",
        "p99_us",
        "p999_us",
        "max_us",
        "errors",
        "cpu_us_per_op",
        "osd_cpu_us_per_op",
        "client_cpu_us_per_op",
        "client_thread_share",
        "ceiling_ops_per_s",
        "bottleneck",
        "flags",
        "error",
    ];
    let mut out = line(&head.map(str::to_owned));
    for p in points {
        let (m, s) = (p.measured.clone().unwrap_or_default(), &p.spec);
        let optional = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.1}"));
        out += &line(&[
            p.turn.to_string(),
            p.iteration.to_string(),
            p.cluster.label(),
            s.tool.name().into(),
            s.op.name().into(),
            s.op_bytes.to_string(),
            s.depth.to_string(),
            s.clients.to_string(),
            s.pool.as_ref().map_or(String::new(), |p| p.pg_num().to_string()),
            s.mode.clone(),
            format!("{:.1}", m.ops_per_s),
            format!("{:.0}", m.bytes_per_s),
            format!("{:.1}", m.latency.mean_us),
            optional(m.latency.p50_us),
            optional(m.latency.p95_us),
            optional(m.latency.p99_us),
            optional(m.latency.p999_us),
            format!("{:.1}", m.latency.max_us),
            m.errors.to_string(),
            format!("{:.1}", cpu_us(&m, |_| true)),
            format!("{:.1}", cpu_us(&m, |name| name.starts_with("osd."))),
            format!("{:.1}", cpu_us(&m, |name| name == "client")),
            m.client_thread_share.map_or(String::new(), |share| format!("{share:.2}")),
            m.ceiling_ops_per_s.map_or(String::new(), |ceiling| format!("{ceiling:.0}")),
            p.verdict.as_ref().and_then(|v| v[0]["what"].as_str()).unwrap_or("").into(),
            p.flags.join("; "),
            p.error.clone().unwrap_or_default(),
        ]);
    }
    out
}

/// The best rate over the numbers of clients that were tried, for everything else that differs.
pub fn best_by_clients(groups: &[Group]) -> String {
    let head = [
        "client_type",
        "client_n",
        "test",
        "osd_hosts",
        "io_size",
        "io_type",
        "pool_pg_num",
        "client_threads",
        "pool_name",
        "max_bw_client_n",
        "max_bw",
        "max_iops",
    ];
    let mut families: BTreeMap<String, Vec<&Group>> = BTreeMap::new();
    for g in groups.iter().filter(|g| g.ops_per_s() > 0.0) {
        let mut same = g.spec.clone();
        same.clients = 1;
        families.entry(format!("{} {}", g.cluster.label(), same.label())).or_default().push(g);
    }
    let mut out = line(&head.map(str::to_owned));
    for family in families.values() {
        let best = family
            .iter()
            .max_by(|a, b| a.bytes_per_s().total_cmp(&b.bytes_per_s()))
            .expect("a family has members");
        let (most, spec) = (family.iter().map(|g| g.spec.clients).max().unwrap_or(1), &best.spec);
        let (pool, pg_num) = match &spec.pool {
            Some(Pool::Replicated { pg_num, .. }) => ("replicated", pg_num.to_string()),
            Some(Pool::Erasure { pg_num, .. }) => ("erasure", pg_num.to_string()),
            None => ("", String::new()),
        };
        // Of a cluster that was there the lab does not know how many there are.
        let osds = match best.cluster.osds {
            0 => String::new(),
            n => format!("{n}osds-"),
        };
        out += &line(&[
            "baremetal".into(),
            most.to_string(),
            format!("{pool}.pg_num{pg_num}.{osds}{most}_clients"),
            "1osd_hosts".into(),
            crate::size::show(spec.op_bytes).replace([' ', 'i', 'B'], "").to_lowercase(),
            spec.op.name().into(),
            pg_num,
            spec.depth.to_string(),
            pool.into(),
            spec.clients.to_string(),
            format!("{:.0}", best.bytes_per_s() / 1e6),
            format!("{:.0}", best.ops_per_s()),
        ]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{ClusterSpec, Spec};

    #[test]
    fn processor_time_is_split_by_process() {
        let cpu_us_per_op = vec![("osd.0".into(), 70.0), ("osd.1".into(), 5.0), ("client".into(), 30.0)];
        let point = PointRecord {
            id: 0,
            run: "1".into(),
            turn: 0,
            iteration: 0,
            cluster: ClusterSpec::existing(),
            spec: Spec::default(),
            measured: Some(Measured { cpu_us_per_op, ..Measured::default() }),
            error: None,
            flags: vec![],
            verdict: None,
            versions: serde_json::Value::Null,
        };
        let text = points(&[point]);
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let (head, row) = (lines.next().unwrap(), lines.next().unwrap());
        let field = |name: &str| row[head.iter().position(|h| *h == name).unwrap()];
        let names = ["cpu_us_per_op", "osd_cpu_us_per_op", "client_cpu_us_per_op"];
        assert_eq!(names.map(field), ["105.0", "75.0", "30.0"]);
    }

    #[test]
    fn fields_with_separators_are_quoted() {
        let fields = ["a", "b,c", "say \"x\""].map(str::to_owned);
        assert_eq!(super::line(&fields), "a,\"b,c\",\"say \"\"x\"\"\"\r\n");
    }
}
