//! The OSD tree: usage, latency and processor time of each OSD and of each bucket above.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Default)]
pub struct OsdRow {
    pub name: String,
    /// Levels above it in the tree.
    pub depth: usize,
    /// `None` for a bucket.
    pub osd: Option<i32>,
    pub class: String,
    pub is_up: Option<bool>,
    pub is_in: bool,
    pub bytes: Option<f64>,
    pub used_percent: Option<f64>,
    pub pgs: Option<u64>,
    pub commit_ms: Option<f64>,
    pub cpu_percent: Option<f64>,
}

/// Rows in the order of the tree, from `osd df tree`, or without usage from `osd tree`; latencies from `osd perf`.
pub fn rows(tree: Option<&Value>, perf: Option<&Value>, cpu: &BTreeMap<i32, f64>) -> Vec<OsdRow> {
    let Some(tree) = tree else { return Vec::new() };
    let list = |name: &str| tree[name].as_array().map_or(&[][..], Vec::as_slice);
    let nodes: BTreeMap<i64, &Value> = list("nodes")
        .iter()
        .chain(list("stray"))
        .filter_map(|node| Some((node["id"].as_i64()?, node)))
        .collect();
    let latency = latencies(perf);
    let children = |node: &Value| -> Vec<i64> {
        let mut children: Vec<i64> =
            node["children"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
        // OSDs ascend by number, buckets by name.
        children.sort_by_key(|id| match nodes.get(id).and_then(|node| node["name"].as_str()) {
            Some(name) if *id < 0 => (name, 0),
            _ => ("", *id),
        });
        children
    };
    let below: BTreeSet<i64> = nodes.values().flat_map(|node| children(node)).collect();
    let mut rows = Vec::new();
    // Depth first; a stack, so that the last root is pushed first.
    let roots: Vec<i64> = list("nodes").iter().filter_map(|node| node["id"].as_i64()).collect();
    let strays = list("stray").iter().filter_map(|node| node["id"].as_i64());
    let roots = roots.into_iter().filter(|id| !below.contains(id)).chain(strays);
    let mut stack: Vec<(i64, usize)> = roots.map(|id| (id, 0)).collect();
    stack.reverse();
    let mut seen = BTreeSet::new();
    while let Some((id, depth)) = stack.pop() {
        let Some(node) = nodes.get(&id).filter(|_| seen.insert(id)) else { continue };
        rows.push(row(node, depth, &latency, cpu));
        stack.extend(children(node).into_iter().rev().map(|child| (child, depth + 1)));
    }
    rows
}

fn row(node: &Value, depth: usize, latency: &BTreeMap<i64, f64>, cpu: &BTreeMap<i32, f64>) -> OsdRow {
    let id = node["id"].as_i64().unwrap_or(0);
    let osd = (node["type"] == "osd").then(|| i32::try_from(id).unwrap_or(-1));
    let is_up = osd.and_then(|_| node["status"].as_str()).map(|status| status == "up");
    // A down OSD's latency and processor time are of the past.
    let lives = is_up == Some(true);
    OsdRow {
        name: node["name"].as_str().unwrap_or("?").to_owned(),
        depth,
        osd,
        class: node["device_class"].as_str().unwrap_or("").to_owned(),
        is_up,
        is_in: node["reweight"].as_f64().unwrap_or(1.0) != 0.0,
        bytes: node["kb"].as_f64().map(|kb| kb * 1024.0),
        used_percent: node["kb"].as_f64().filter(|kb| *kb > 0.0).and_then(|_| node["utilization"].as_f64()),
        pgs: osd.and_then(|_| node["pgs"].as_u64()),
        commit_ms: latency.get(&id).copied().filter(|_| osd.is_some() && lives),
        cpu_percent: osd.and_then(|osd| cpu.get(&osd).copied()).filter(|_| lives),
    }
}

/// Commit latency in ms by OSD.
fn latencies(perf: Option<&Value>) -> BTreeMap<i64, f64> {
    let Some(perf) = perf else { return BTreeMap::new() };
    let infos = &perf["osdstats"]["osd_perf_infos"];
    let infos = if infos.is_array() { infos } else { &perf["osd_perf_infos"] };
    let latency = |info: &Value| {
        let stats = &info["perf_stats"];
        let fine = stats["commit_latency_ns"].as_f64().map(|ns| ns / 1e6);
        Some((info["id"].as_i64()?, fine.or(stats["commit_latency_ms"].as_f64())?))
    };
    infos.as_array().into_iter().flatten().filter_map(latency).collect()
}
