//! The cluster itself: health, PGs, ratios, and what works in the background.

use super::Finding;
use super::Severity::{Bad, Good, Unknown, Warning};
use crate::cluster::Cluster;
use serde_json::{Value, json};

/// The state of a cluster as its monitors tell it. Asking changes nothing.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    pub status: Value,
    pub osd_dump: Value,
    pub df: Value,
    pub versions: Value,
    /// `null` where there is no balancer to ask.
    pub balancer: Value,
}

pub fn ask(cluster: &mut dyn Cluster) -> ClusterState {
    let mut ask =
        |prefix: &str| cluster.ask(json!({"prefix": prefix, "format": "json"})).unwrap_or(Value::Null);
    ClusterState {
        status: ask("status"),
        osd_dump: ask("osd dump"),
        df: ask("df"),
        versions: ask("versions"),
        balancer: ask("balancer status"),
    }
}

pub fn all(f: &ClusterState) -> Vec<Finding> {
    [health, pgs_per_osd, pools, fullness, background, one_version].iter().map(|check| check(f)).collect()
}

pub fn health(f: &ClusterState) -> Finding {
    let word = f.status["health"]["status"].as_str().unwrap_or("unknown");
    let checks: Vec<&String> =
        f.status["health"]["checks"].as_object().into_iter().flat_map(|c| c.keys()).collect();
    let severity = match word {
        "HEALTH_OK" => Good,
        "HEALTH_WARN" => Warning,
        "HEALTH_ERR" => Bad,
        _ => Unknown,
    };
    let names = checks.iter().map(|c| c.as_str()).collect::<Vec<_>>().join(", ");
    Finding::new(
        "health",
        severity,
        format!("{word} {names}").trim().to_owned(),
        "HEALTH_OK",
        "a cluster that mends itself measures its mending",
        "ceph health detail",
    )
}

pub fn pgs_per_osd(f: &ClusterState) -> Finding {
    let why = "with few PGs the data lies in lumps and locks are fought over; random reads gained up to 270 PGs an OSD \
               and more";
    let osds = f.osd_dump["osds"].as_array().map_or(0, |o| o.iter().filter(|o| o["in"] == 1).count());
    let copies: u64 = f.osd_dump["pools"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| p["pg_num"].as_u64().unwrap_or(0) * p["size"].as_u64().unwrap_or(1))
        .sum();
    if osds == 0 {
        return Finding::new("pgs", Unknown, "there is no OSD", "100 and more", why, "");
    }
    let each = copies as f64 / osds as f64;
    let severity = match each {
        n if n < 30.0 => Warning,
        n if n > 1000.0 => Warning,
        _ => Good,
    };
    Finding::new(
        "pgs",
        severity,
        format!("{each:.0} PGs on each of {osds} OSDs"),
        "100 to 300 (measure more on fast drives)",
        why,
        "ceph osd pool set POOL pg_num N; the lab's own pools bring theirs",
    )
}

/// Pools whose PGs are about to change, or lie unevenly by their number.
pub fn pools(f: &ClusterState) -> Finding {
    let all = f.osd_dump["pools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (mut moving, mut odd) = (Vec::new(), Vec::new());
    for pool in all {
        let name = pool["pool_name"].as_str().unwrap_or("?");
        let number = |key: &str| pool[key].as_u64();
        let pg_num = number("pg_num").unwrap_or(1);
        if number("pg_num_target").is_some_and(|target| target != pg_num) {
            moving.push(format!("{name}: {pg_num} PGs become {}", pool["pg_num_target"]));
        }
        if pool["pg_autoscale_mode"] == "on" {
            odd.push(format!("{name}: the autoscaler may change its PGs meanwhile"));
        }
        if !pg_num.is_power_of_two() {
            odd.push(format!("{name}: {pg_num} PGs are no power of two, so some are twice as large"));
        }
    }
    let (severity, measured) = match (moving.is_empty(), odd.is_empty()) {
        (false, _) => (Bad, moving.join("; ")),
        (_, false) => (Warning, odd.join("; ")),
        _ => (Good, format!("{} pools, none of which changes", all.len())),
    };
    Finding::new(
        "pools",
        severity,
        measured,
        "a power of two PGs each, and no change meanwhile",
        "splitting PGs moves data, and PGs of two sizes load their OSDs unevenly",
        "ceph osd pool set POOL pg_autoscale_mode off; ceph osd pool set POOL pg_num N",
    )
}

pub fn fullness(f: &ClusterState) -> Finding {
    let used = f.df["stats"]["total_used_raw_ratio"].as_f64();
    let near = f.osd_dump["nearfull_ratio"].as_f64().unwrap_or(0.85);
    let ratio = |key: &str| f.osd_dump[key].as_f64();
    let ratios = [Some(near), ratio("backfillfull_ratio"), ratio("full_ratio")];
    let known: Vec<f64> = ratios.into_iter().flatten().collect();
    let in_order = known.is_sorted();
    let severity = match used {
        _ if !in_order => Bad,
        None => Unknown,
        Some(u) if u >= near => Bad,
        Some(u) if u >= 0.8 * near => Warning,
        Some(_) => Good,
    };
    let measured = match in_order {
        true => used.map_or("unknown".into(), |u| format!("{:.0} % used", u * 100.0)),
        false => format!("the ratios nearfull, backfillfull, full are not in this order: {known:?}"),
    };
    Finding::new(
        "fullness",
        severity,
        measured,
        format!("below {:.0} %", near * 80.0),
        "full drives write slower, and a measurement that fills them stops the cluster",
        "free space before measuring",
    )
}

pub fn background(f: &ClusterState) -> Finding {
    let flags = f.osd_dump["flags"].as_str().unwrap_or("");
    let states = f.status["pgmap"]["pgs_by_state"].as_array().cloned().unwrap_or_default();
    let busy: Vec<&str> = states
        .iter()
        .filter_map(|s| s["state_name"].as_str())
        .filter(|s| {
            ["scrub", "backfill", "recover", "remapped", "degraded", "peering"].iter().any(|w| s.contains(w))
        })
        .collect();
    let mut may_start: Vec<&str> = ["noscrub", "nodeep-scrub", "norebalance"]
        .into_iter()
        .filter(|w| !flags.split(',').any(|f| f == *w))
        .collect();
    if f.balancer["active"] == true {
        may_start.push("balancer off");
    }
    let (severity, measured) = match (busy.is_empty(), may_start.is_empty()) {
        (false, _) => (Bad, format!("going on: {}", busy.join(", "))),
        (_, true) => (Good, "nothing goes on, and nothing may start".to_owned()),
        _ => (Warning, format!("nothing goes on; may start meanwhile (not set: {})", may_start.join(", "))),
    };
    Finding::new(
        "background",
        severity,
        measured,
        "no scrub, recovery or balancing while measuring",
        "background work takes the same disks, and comes when it likes",
        "ceph osd set noscrub; ceph osd set nodeep-scrub; ceph balancer off; and back after",
    )
}

pub fn one_version(f: &ClusterState) -> Finding {
    let overall = f.versions["overall"].as_object().map_or(0, |v| v.len());
    let (severity, measured) = match overall {
        0 => (Unknown, "unknown".to_owned()),
        1 => (
            Good,
            f.versions["overall"].as_object().and_then(|v| v.keys().next().cloned()).unwrap_or_default(),
        ),
        n => (Warning, format!("{n} versions run at the same time")),
    };
    Finding::new(
        "versions",
        severity,
        measured,
        "one",
        "a mixture measures neither",
        "finish the upgrade first",
    )
}
