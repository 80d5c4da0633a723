//! Which charts does a set of points give? Each needs an axis that was varied, or says what all points have.

use super::Group;
use super::charts::{Axes, Bar, Curve, bars, lines};
use crate::matrix::{Op, Tool};
use crate::size;
use std::collections::{BTreeMap, BTreeSet};

pub struct Figure {
    pub title: String,
    pub note: String,
    pub svg: String,
}

/// What a file name can be made of.
pub fn file_name(n: usize, title: &str) -> String {
    let word: String =
        title.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let parts: Vec<&str> = word.split('-').filter(|w| !w.is_empty()).collect();
    format!("{n:02}-{}.svg", parts.join("-"))
}

pub fn all(groups: &[Group]) -> Vec<Figure> {
    let measured: Vec<&Group> = groups.iter().filter(|g| g.ops_per_s() > 0.0).collect();
    let mut out = Vec::new();
    let mut add = |title: String, note: &str, svg: anyhow::Result<String>| {
        if let Ok(svg) = svg {
            out.push(Figure { title, note: note.to_owned(), svg });
        }
    };
    pairs(&measured, &mut add);
    hockey_sticks(&measured, &mut add);
    for (axis, value) in AXES {
        scaling(&measured, axis, *value, &mut add);
    }
    cpu(&measured, &mut add);
    timelines(&measured, &mut add);
    distributions(&measured, &mut add);
    out
}

type Add<'a> = &'a mut dyn FnMut(String, &str, anyhow::Result<String>);
/// What can be scaled: its name, and its value at a point.
type Scaled = (&'static str, fn(&Group) -> f64);

const AXES: &[Scaled] = &[
    ("clients", |g| f64::from(g.spec.clients)),
    ("PGs", |g| g.spec.pool.as_ref().map_or(0.0, |p| f64::from(p.pg_num()))),
    ("OSDs", |g| f64::from(g.cluster.osds)),
];

fn op_of(g: &Group) -> String {
    let mixed =
        if g.spec.op == Op::RandMixed { format!(" {}% reads", g.spec.read_percent) } else { String::new() };
    format!("{} {} {}{mixed}", g.spec.tool.name(), g.spec.op.name(), size::show(g.spec.op_bytes))
}

fn distinct<T: Ord>(groups: &[&Group], of: impl Fn(&Group) -> T) -> usize {
    groups.iter().map(|g| of(g)).collect::<BTreeSet<T>>().len()
}

/// For every operation, size and depth: a pair of charts, rate and latency, over clusters and whatever else differs.
fn pairs(groups: &[&Group], add: Add<'_>) {
    let mut kinds: BTreeMap<(String, u32), Vec<&Group>> = BTreeMap::new();
    for g in groups {
        kinds.entry((op_of(g), g.spec.depth)).or_default().push(g);
    }
    for ((op, depth), groups) in kinds {
        let differs = distinct(&groups, |g| g.spec.label()) > 1;
        let label = |g: &Group| match differs {
            true => format!("{} · {}", g.cluster.label(), g.spec.label()),
            false => g.cluster.label(),
        };
        let of = |value: fn(&Group) -> f64, error: fn(&Group) -> f64| -> Vec<Bar> {
            let bar = |g: &&Group| Bar { label: label(g), pieces: vec![(0, value(g))], error: error(g) };
            groups.iter().map(bar).collect()
        };
        let at =
            if groups[0].spec.rate.is_some() { "an open loop".to_owned() } else { format!("depth {depth}") };
        let rate = bars("operations a second", &[], &of(Group::ops_per_s, Group::ops_error));
        add(
            format!("Rate: {op}, {at}"),
            "Mean of the repeats; the black line is the 95 % confidence interval.",
            rate,
        );
        let latency = bars("mean latency in µs", &[], &of(Group::mean_us, |_| 0.0));
        add(format!("Latency: {op}, {at}"), "Mean of the repeats.", latency);
    }
}

fn hockey_sticks(groups: &[&Group], add: Add<'_>) {
    let mut families: BTreeMap<String, BTreeMap<String, Vec<&Group>>> = BTreeMap::new();
    for g in groups.iter().filter(|g| g.spec.rate.is_none()) {
        let mut same = g.spec.clone();
        same.depth = 0;
        let curve = format!("{} {}", g.cluster.label(), same.label());
        families.entry(op_of(g)).or_default().entry(curve).or_default().push(g);
    }
    for (op, curves) in families {
        if curves.values().all(|c| c.len() < 2) {
            continue;
        }
        let of = |x: fn(&Group) -> f64, y: fn(&Group) -> f64| -> Vec<Curve> {
            let points = |c: &Vec<&Group>| {
                let mut sorted = c.clone();
                sorted.sort_by_key(|g| g.spec.depth);
                sorted.iter().map(|g| (x(g), y(g))).collect()
            };
            let name = |c: &Vec<&Group>| c[0].cluster.label();
            curves.values().map(|c| (name(c), points(c))).collect()
        };
        let axes = Axes { x: "operations in flight", y: "operations a second", log_x: true, log_y: false };
        let depth = |g: &Group| f64::from(g.spec.depth);
        add(format!("Rate against depth: {op}"), "", lines(&axes, &of(depth, Group::ops_per_s)));
        let axes = Axes { x: "operations a second", y: "mean latency in µs", log_x: false, log_y: true };
        let note = "Each point is a depth. Where a curve turns upwards, more depth buys latency and no rate.";
        add(format!("Latency against rate: {op}"), note, lines(&axes, &of(Group::ops_per_s, Group::mean_us)));
    }
}

fn scaling(groups: &[&Group], axis: &str, value: fn(&Group) -> f64, add: Add<'_>) {
    let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for g in groups.iter().filter(|g| value(g) > 0.0) {
        let name = format!("{} {} depth {}", g.cluster.label(), op_of(g), g.spec.depth);
        curves.entry(name).or_default().push((value(g), g.ops_per_s()));
    }
    curves.retain(|_, points| points.len() > 1 && points.iter().any(|p| p.0 != points[0].0));
    if curves.is_empty() {
        return;
    }
    let mut efficiency = Vec::new();
    for (name, points) in &mut curves {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (x0, y0) = points[0];
        efficiency
            .push((name.clone(), points.iter().map(|(x, y)| (*x, y / y0 / (x / x0) * 100.0)).collect()));
    }
    let curves: Vec<Curve> = curves.into_iter().collect();
    let axes = Axes { x: axis, y: "operations a second", log_x: true, log_y: false };
    add(format!("Scaling with {axis}"), "", lines(&axes, &curves));
    let axes = Axes { x: axis, y: "efficiency in %", log_x: true, log_y: false };
    add(format!("Efficiency with {axis}"), "100 % would be a rate in proportion.", lines(&axes, &efficiency));
}

fn cpu(groups: &[&Group], add: Add<'_>) {
    let usage: Vec<(&&Group, BTreeMap<String, f64>)> =
        groups.iter().map(|g| (g, g.cpu_us_per_op())).collect();
    let mut names: Vec<String> = usage.iter().flat_map(|(_, u)| u.keys().cloned()).collect();
    names.sort();
    names.dedup();
    let bar = |(g, usage): &(&&Group, BTreeMap<String, f64>)| Bar {
        label: format!("{} · {}", g.cluster.label(), g.spec.label()),
        pieces: usage.iter().filter_map(|(n, us)| Some((names.iter().position(|x| x == n)?, *us))).collect(),
        error: 0.0,
    };
    let rows: Vec<Bar> = usage.iter().filter(|(_, u)| !u.is_empty()).map(bar).collect();
    let note = "What one operation costs, by process, on this host.";
    add("Processor time of an operation".into(), note, bars("processor µs an operation", &names, &rows));
}

/// The last repeat of each point: what its seconds were like.
fn timelines(groups: &[&Group], add: Add<'_>) {
    let mut kinds: BTreeMap<String, Vec<&Group>> = BTreeMap::new();
    for g in groups {
        kinds.entry(format!("{}, depth {}", op_of(g), g.spec.depth)).or_default().push(g);
    }
    for (kind, groups) in kinds {
        let rate = |g: &&Group| {
            let series = g.measured().last().map(|m| m.series.as_slice()).unwrap_or_default();
            (g.cluster.label(), series.iter().map(|s| (s.at_s, s.ops)).collect())
        };
        let curves: Vec<Curve> = groups.iter().take(8).map(rate).collect();
        let axes = Axes {
            x: "seconds from the load's begin, warm-up included",
            y: "operations a second",
            log_x: false,
            log_y: false,
        };
        add(format!("Over time: {kind}"), "The last repeat of each.", lines(&axes, &curves));
        let tail = |g: &&Group| {
            let series = g.measured().last().map(|m| m.series.as_slice()).unwrap_or_default();
            (g.cluster.label(), series.iter().filter_map(|s| Some((s.at_s, s.p99_us?))).collect())
        };
        let curves: Vec<Curve> = groups.iter().take(8).map(tail).collect();
        let axes = Axes { y: "99th percentile in µs", log_y: true, ..axes };
        add(format!("99th percentile over time: {kind}"), "", lines(&axes, &curves));
    }
}

/// Where tools tell histograms: how slow the slowest are.
fn distributions(groups: &[&Group], add: Add<'_>) {
    let mut kinds: BTreeMap<String, Vec<Curve>> = BTreeMap::new();
    for g in groups.iter().filter(|g| g.spec.tool != Tool::RadosBench) {
        let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
        for (us, count) in g.measured().flat_map(|m| &m.histogram) {
            *bins.entry((us * 1e3) as u64).or_default() += count;
        }
        let total: u64 = bins.values().sum();
        let mut left = total;
        let mut curve: Vec<(f64, f64)> = Vec::new();
        for (ns, count) in bins {
            left -= count;
            let share = left as f64 / total as f64 * 100.0;
            // A thousand points draw like ten thousand.
            if curve.last().is_none_or(|(x, _)| ns as f64 / 1e3 > x * 1.01) {
                curve.push((ns as f64 / 1e3, share));
            }
        }
        if curve.len() > 2 {
            let depth = g.spec.rate.map_or(format!("depth {}", g.spec.depth), |r| format!("{r}/s"));
            kinds.entry(op_of(g)).or_default().push((format!("{} {depth}", g.cluster.label()), curve));
        }
    }
    for (op, curves) in kinds {
        let axes =
            Axes { x: "latency in µs", y: "% of operations that are slower", log_x: true, log_y: true };
        let note = "At 1 % one reads the 99th percentile. All repeats together.";
        add(format!("Distribution of latency: {op}"), note, lines(&axes, &curves[..curves.len().min(8)]));
    }
}
