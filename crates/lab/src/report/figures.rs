//! The charts of a set of points. Each chart needs an axis that was varied, or states what all points have in common.

use super::charts::{Axes, Bar, Curve, bars, lines};
use super::{Group, names};
use crate::matrix::{Op, Pool};
use crate::size;
use std::collections::{BTreeMap, BTreeSet};

pub struct Figure {
    /// The heading it stands under.
    pub chapter: &'static str,
    pub title: String,
    pub note: String,
    pub svg: String,
}

impl Figure {
    /// As a file of its own, which stands on white: in the page it stands on the page's paper.
    pub fn file(&self) -> String {
        let paper = "<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>";
        match self.svg.find('>') {
            Some(at) => format!("{}{paper}{}", &self.svg[..=at], &self.svg[at + 1..]),
            None => self.svg.clone(),
        }
    }
}

/// A figure's title, reduced to characters that suit a file name.
pub fn file_name(n: usize, title: &str) -> String {
    let word: String =
        title.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let parts: Vec<&str> = word.split('-').filter(|w| !w.is_empty()).collect();
    format!("{n:02}-{}.svg", parts.join("-"))
}

pub fn all(groups: &[Group]) -> Vec<Figure> {
    let measured: Vec<&Group> = groups.iter().filter(|g| g.ops_per_s() > 0.0).collect();
    let mut out = Vec::new();
    let chapters: [(&'static str, &dyn Fn(Add<'_>)); 6] = [
        ("Rate and latency", &|add| pairs(&measured, add)),
        ("Depth", &|add| hockey_sticks(&measured, add)),
        ("Scaling", &|add| AXES.iter().for_each(|axis| scaling(&measured, axis, add))),
        ("Processor time", &|add| cpu(&measured, add)),
        ("Over time", &|add| timelines(&measured, add)),
        ("Distribution of latency", &|add| distributions(&measured, add)),
    ];
    for (chapter, figures) in chapters {
        figures(&mut |title, note, svg| {
            // Where there is nothing to draw there is no figure.
            if let Ok(svg) = svg {
                out.push(Figure { chapter, title, note: note.to_owned(), svg });
            }
        });
    }
    out
}

type Add<'a> = &'a mut dyn FnMut(String, &str, anyhow::Result<String>);

/// An axis: its name, its value at a point, and the point's description without it.
struct Scaled {
    name: &'static str,
    value: fn(&Group) -> f64,
    without: fn(&mut Group),
}

const AXES: [Scaled; 3] = [
    Scaled { name: "clients", value: |g| f64::from(g.spec.clients), without: |g| g.spec.clients = 1 },
    Scaled {
        name: "PGs",
        value: |g| g.spec.pool.as_ref().map_or(0.0, |p| f64::from(p.pg_num())),
        without: |g| match &mut g.spec.pool {
            Some(Pool::Replicated { pg_num, .. } | Pool::Erasure { pg_num, .. }) => *pg_num = 1,
            None => {}
        },
    },
    Scaled { name: "OSDs", value: |g| f64::from(g.cluster.osds), without: |g| g.cluster.osds = 1 },
];

/// More curves than these are not told apart.
const CURVES_MAX: usize = 8;

fn op_of(g: &Group) -> String {
    let mixed =
        if g.spec.op == Op::RandMixed { format!(" {}% reads", g.spec.read_percent) } else { String::new() };
    format!("{} {} {}{mixed}", g.spec.tool.name(), g.spec.op.name(), size::show(g.spec.op_bytes))
}

fn by<'a>(groups: &[&'a Group], key: impl Fn(&Group) -> String) -> BTreeMap<String, Vec<&'a Group>> {
    let mut out: BTreeMap<String, Vec<&Group>> = BTreeMap::new();
    for g in groups {
        out.entry(key(g)).or_default().push(g);
    }
    out
}

/// Curves of points that differ in one key only, which `without` removes. The remaining keys name the curve.
fn families<'a>(groups: &[&'a Group], without: impl Fn(&mut Group)) -> Vec<(String, Vec<&'a Group>)> {
    let mut found: BTreeMap<String, (Group, Vec<&Group>)> = BTreeMap::new();
    for g in groups {
        let mut same = Group { points: Vec::new(), ..(*g).clone() };
        without(&mut same);
        let key = format!("{} {}", same.cluster.label(), same.spec.label());
        found.entry(key).or_insert_with(|| (same, Vec::new())).1.push(g);
    }
    let kept: Vec<(Group, Vec<&Group>)> = found.into_values().filter(|(_, of)| of.len() > 1).collect();
    let names = names::of(&kept.iter().map(|(same, _)| same).collect::<Vec<_>>());
    names.into_iter().zip(kept.into_iter().map(|(_, of)| of)).take(CURVES_MAX).collect()
}

/// A pair of charts, rate and latency. Where several clusters were measured, one pair for each operation and depth,
/// as the studies of releases show them; else one for each operation.
fn pairs(groups: &[&Group], add: Add<'_>) {
    let clusters: BTreeSet<String> = groups.iter().map(|g| g.cluster.label()).collect();
    let kinds = by(groups, |g| match (clusters.len() > 1, g.spec.rate) {
        (true, None) => format!("{}, depth {}", op_of(g), g.spec.depth),
        (true, Some(_)) => format!("{}, open loop", op_of(g)),
        (false, _) => op_of(g),
    });
    for (kind, mut groups) in kinds {
        if groups.len() < 2 {
            continue;
        }
        groups.sort_by_key(|g| (g.cluster.label(), g.spec.depth, g.spec.clients));
        let names = names::of(&groups);
        let of = |value: fn(&Group) -> f64, error: fn(&Group) -> f64| -> Vec<Bar> {
            let bar = |(g, name): (&&Group, &String)| Bar {
                label: name.clone(),
                pieces: vec![(0, value(g))],
                error: error(g),
            };
            groups.iter().zip(&names).map(bar).collect()
        };
        let note = "Mean of the rounds; the black line is the 95 % confidence interval.";
        add(
            format!("Rate: {kind}"),
            note,
            bars("operations a second", &[], &of(Group::ops_per_s, Group::ops_error)),
        );
        let latency = of(Group::mean_us, Group::mean_us_error);
        add(format!("Latency: {kind}"), note, bars("mean latency in µs", &[], &latency));
    }
}

fn hockey_sticks(groups: &[&Group], add: Add<'_>) {
    let closed: Vec<&Group> = groups.iter().filter(|g| g.spec.rate.is_none()).copied().collect();
    for (op, groups) in by(&closed, op_of) {
        let mut curves = families(&groups, |g| g.spec.depth = 0);
        for (_, points) in &mut curves {
            points.sort_by_key(|g| g.spec.depth);
        }
        if curves.is_empty() {
            continue;
        }
        let of = |x: fn(&Group) -> f64, y: fn(&Group) -> Option<f64>| -> Vec<Curve> {
            let points = |of: &Vec<&Group>| of.iter().filter_map(|g| Some((x(g), y(g)?))).collect();
            curves.iter().map(|(name, of)| (name.clone(), points(of))).collect()
        };
        let depth = |g: &Group| f64::from(g.spec.depth);
        let axes = Axes { x: "operations in flight", y: "operations a second", log_x: true, log_y: false };
        add(format!("Rate against depth: {op}"), "", lines(&axes, &of(depth, |g| Some(g.ops_per_s()))));
        let axes = Axes { y: "mean latency in µs", log_y: true, ..axes };
        add(
            format!("Latency against depth: {op}"),
            "Flat is where depth is free. Where the curve rises in proportion, more depth only waits longer.",
            lines(&axes, &of(depth, |g| Some(g.mean_us()))),
        );
        let axes = Axes { x: "operations a second", y: "mean latency in µs", log_x: false, log_y: true };
        let note = "Each point is a depth. Where a curve turns upwards, more depth buys latency and no rate.";
        add(
            format!("Latency against rate: {op}"),
            note,
            lines(&axes, &of(Group::ops_per_s, |g| Some(g.mean_us()))),
        );
        let axes = Axes { y: "99th percentile in µs", ..axes };
        add(
            format!("99th percentile against rate: {op}"),
            "",
            lines(&axes, &of(Group::ops_per_s, Group::p99_us)),
        );
    }
}

fn scaling(groups: &[&Group], axis: &Scaled, add: Add<'_>) {
    let counted: Vec<&Group> = groups.iter().filter(|g| (axis.value)(g) > 0.0).copied().collect();
    let (mut rates, mut efficiency) = (Vec::new(), Vec::new());
    for (name, points) in families(&counted, axis.without) {
        let mut curve: Vec<(f64, f64)> = points.iter().map(|g| ((axis.value)(g), g.ops_per_s())).collect();
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (x0, y0) = curve[0];
        let share = |(x, y): &(f64, f64)| (*x, y / y0 / (x / x0) * 100.0);
        efficiency.push((name.clone(), curve.iter().map(share).collect()));
        rates.push((name, curve));
    }
    let x = axis.name;
    let axes = Axes { x, y: "operations a second", log_x: true, log_y: false };
    add(format!("Scaling with {x}"), "", lines(&axes, &rates));
    let axes = Axes { y: "efficiency in %", ..axes };
    let note = "100 % would be a rate in proportion to the least number that was measured.";
    add(format!("Efficiency with {x}"), note, lines(&axes, &efficiency));
}

fn cpu(groups: &[&Group], add: Add<'_>) {
    let note = "What one operation costs, by process, on this host.";
    for (op, groups) in by(groups, op_of) {
        let usage: Vec<BTreeMap<String, f64>> = groups.iter().map(|g| g.cpu_us_per_op()).collect();
        let processes: BTreeSet<&String> = usage.iter().flat_map(|u| u.keys()).collect();
        let processes: Vec<String> = processes.into_iter().cloned().collect();
        let rows: Vec<Bar> = names::of(&groups)
            .into_iter()
            .zip(&usage)
            .filter(|(_, u)| !u.is_empty())
            .map(|(label, u)| Bar {
                label,
                pieces: processes.iter().enumerate().filter_map(|(n, p)| Some((n, *u.get(p)?))).collect(),
                error: 0.0,
            })
            .collect();
        add(
            format!("Processor time of an operation: {op}"),
            note,
            bars("processor µs an operation", &processes, &rows),
        );
    }
}

/// The last round of each point: what its seconds were like.
fn timelines(groups: &[&Group], add: Add<'_>) {
    for (op, of_op) in by(groups, op_of) {
        // By depth, where one chart would hold too many curves.
        let parts = match of_op.len() > CURVES_MAX {
            true => by(&of_op, |g| format!("{op}, depth {}", g.spec.depth)),
            false => BTreeMap::from([(op, of_op)]),
        };
        for (kind, groups) in parts {
            let names = names::of(&groups);
            let of = |value: fn(&crate::results::record::Second) -> Option<f64>| -> Vec<Curve> {
                let curve = |(g, name): (&&Group, &String)| {
                    let series = g.measured().last().map(|m| m.series.as_slice()).unwrap_or_default();
                    (name.clone(), series.iter().filter_map(|s| Some((s.at_s, value(s)?))).collect())
                };
                groups.iter().zip(&names).take(CURVES_MAX).map(curve).collect()
            };
            let axes = Axes {
                x: "seconds from the load's begin, warm-up included",
                y: "operations a second",
                log_x: false,
                log_y: false,
            };
            let note = "The last round of each.";
            add(format!("Rate over time: {kind}"), note, lines(&axes, &of(|s| Some(s.ops))));
            let axes = Axes { y: "mean latency in µs", log_y: true, ..axes };
            add(format!("Mean latency over time: {kind}"), note, lines(&axes, &of(|s| s.mean_us)));
            let axes = Axes { y: "99th percentile in µs", ..axes };
            add(format!("99th percentile over time: {kind}"), note, lines(&axes, &of(|s| s.p99_us)));
        }
    }
}

/// Where tools tell histograms: how many operations took how long, and how slow the slowest are. All rounds together.
fn distributions(groups: &[&Group], add: Add<'_>) {
    for (op, mut groups) in by(groups, op_of) {
        groups.retain(|g| g.measured().any(|m| m.histogram.len() > 2));
        groups.truncate(CURVES_MAX);
        let named = || groups.iter().zip(names::of(&groups));
        let axes = Axes { x: "latency in µs", y: "% of operations", log_x: true, log_y: false };
        let curves: Vec<Curve> = named().map(|(g, name)| (name, histogram(&g.bins()))).collect();
        let note = "Ten bins to a decade: the height is the share of operations that fell into the bin.";
        add(format!("Histogram of latency: {op}"), note, lines(&axes, &curves));
        let axes = Axes { y: "% of operations that are slower", log_y: true, ..axes };
        let curves: Vec<Curve> = named().map(|(g, name)| (name, slower(&g.bins()))).collect();
        let note = "At 1 % one reads the 99th percentile, at 0.1 % the 99.9th.";
        add(format!("Distribution of latency: {op}"), note, lines(&axes, &curves));
    }
}

/// Bins of equal width on a logarithmic axis, drawn as steps.
fn histogram(bins: &BTreeMap<u64, u64>) -> Vec<(f64, f64)> {
    let total: u64 = bins.values().sum();
    let mut wide: BTreeMap<i32, u64> = BTreeMap::new();
    for (ns, count) in bins.iter().filter(|(ns, _)| **ns > 0) {
        *wide.entry((((*ns as f64) / 1e3).log10() * 10.0).floor() as i32).or_default() += count;
    }
    let (Some(first), Some(last)) = (wide.keys().next().copied(), wide.keys().last().copied()) else {
        return Vec::new();
    };
    let edge = |n: i32| 10f64.powf(f64::from(n) / 10.0);
    let step = |n: i32| {
        let share = wide.get(&n).copied().unwrap_or(0) as f64 / total as f64 * 100.0;
        [(edge(n), share), (edge(n + 1), share)]
    };
    let steps = (first..=last).flat_map(step);
    std::iter::once((edge(first), 0.0)).chain(steps).chain([(edge(last + 1), 0.0)]).collect()
}

/// For each latency the share of operations that took longer.
fn slower(bins: &BTreeMap<u64, u64>) -> Vec<(f64, f64)> {
    let total: u64 = bins.values().sum();
    let (mut left, mut curve) = (total, Vec::<(f64, f64)>::new());
    for (ns, count) in bins {
        left -= count;
        let us = *ns as f64 / 1e3;
        // A few hundred points draw like ten thousand.
        if curve.last().is_none_or(|(x, _)| us > x * 1.02) {
            curve.push((us, left as f64 / total as f64 * 100.0));
        }
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{ClusterSpec, Deploy, Spec};
    use crate::results::record::{Latency, Measured, PointRecord};

    #[test]
    fn histogram_counts_each_operation_once() {
        let bins = BTreeMap::from([(100_000, 10), (105_000, 30), (1_000_000, 60)]);
        let steps = histogram(&bins);
        // Each bin is drawn by two points of one height.
        let sum: f64 = steps[1..steps.len() - 1].chunks(2).map(|bin| bin[0].1).sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
        assert_eq!((steps[0].1, steps.last().unwrap().1), (0.0, 0.0));
        assert!(histogram(&BTreeMap::new()).is_empty());
        assert_eq!(slower(&bins), [(100.0, 90.0), (105.0, 60.0), (1000.0, 0.0)]);
    }

    /// The charts of the study of an OSD's releases: writes and reads, one operation at a time and 256, each as rate and
    /// as latency, with every store and with and without authentication side by side.
    #[test]
    fn releases_are_compared_in_four_pairs() {
        let mut points = Vec::new();
        for (store, auth) in
            [("memstore", "cephx"), ("memstore", "none"), ("bluestore", "cephx"), ("bluestore", "none")]
        {
            for (op, depth) in [(Op::Write, 1), (Op::Write, 256), (Op::RandRead, 1), (Op::RandRead, 256)] {
                let cluster = ClusterSpec {
                    deploy: Deploy::Stock { release: None },
                    osds: 1,
                    auth: auth.into(),
                    store: store.into(),
                    cores: 1,
                    ..ClusterSpec::existing()
                };
                let measured = Measured {
                    ops_per_s: 100.0 * f64::from(depth),
                    latency: Latency { mean_us: 500.0, ..Latency::default() },
                    ..Measured::default()
                };
                points.push(PointRecord {
                    id: 0,
                    run: "1".into(),
                    turn: points.len() as u32,
                    iteration: 0,
                    cluster,
                    spec: Spec { op, depth, ..Spec::default() },
                    measured: Some(measured),
                    error: None,
                    flags: vec![],
                    verdict: None,
                    versions: serde_json::Value::Null,
                });
            }
        }
        let all = all(&crate::report::group::groups(&points));
        let pairs: Vec<&Figure> = all.iter().filter(|f| f.chapter == "Rate and latency").collect();
        let titles: Vec<&str> = pairs.iter().map(|f| f.title.as_str()).collect();
        assert_eq!(pairs.len(), 8, "{titles:?}");
        for pair in pairs.chunks(2) {
            let (rate, latency) =
                (pair[0].title.strip_prefix("Rate: "), pair[1].title.strip_prefix("Latency: "));
            assert!(rate.is_some() && rate == latency, "{titles:?}");
            for name in ["memstore, cephx", "memstore, none", "bluestore, cephx", "bluestore, none"] {
                assert!(pair.iter().all(|f| f.svg.contains(name)), "{name} is in {titles:?}");
            }
        }
    }
}
