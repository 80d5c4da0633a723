//! A run in one paragraph, as in a mail: the points that were measured, the best ones, their bottleneck,
//! and the noise.

use super::Group;
use crate::judge::compare::{Metric, noise_floor, rounds};
use crate::results::{PointRecord, RunRecord};
use crate::size;

pub fn paragraph(run: &RunRecord, points: &[PointRecord], groups: &[Group]) -> String {
    let measured: Vec<&Group> = groups.iter().filter(|g| g.ops_per_s() > 0.0).collect();
    let host = |key: &str| run.host[key].as_str().unwrap_or("an unknown one").to_owned();
    let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut out = format!(
        "{}: {} in {}, on {} ({}, {} processors, kernel {}).",
        run.name,
        counted(groups.len(), "point"),
        counted(groups.iter().map(|g| g.points.len()).max().unwrap_or(0), "round"),
        host("hostname"),
        host("cpu"),
        run.host["cpus"],
        host("kernel")
    );
    if run.state != "complete" {
        let words = match run.state.as_str() {
            "interrupted" => "was interrupted",
            "failed" => "has failed",
            _ => "still runs",
        };
        out += &format!(" The run {words}: not every point was measured.");
    }
    for (what, reads) in [("write", false), ("read", true)] {
        let of_kind = measured.iter().filter(|g| g.spec.op.reads() == reads);
        let Some(best) = of_kind.max_by(|a, b| a.ops_per_s().total_cmp(&b.ops_per_s())) else { continue };
        let tail = best.p99_us().map_or(String::new(), |us| format!(", 99th percentile {us:.0} µs"));
        out += &format!(
            " The highest {what} rate is {:.0} op/s ({}) with {} on {}, at {:.0} µs in the mean{tail}",
            best.ops_per_s(),
            size::show_rate(best.bytes_per_s()),
            best.spec.label(),
            best.cluster.label(),
            best.mean_us()
        );
        match best.bottleneck() {
            Some((what, evidence)) => out += &format!("; what holds it back: {what} ({evidence})."),
            None => out += ".",
        }
    }
    match noise_floor(&rounds(points, Metric::OpsPerS, false)) {
        Some(noise) => {
            out += &format!(" Rounds of the same point differ by {:.1} % (median).", noise * 100.0)
        }
        None => out += " Every point was measured once, so nothing is known about noise.",
    }
    let disturbed = points.iter().filter(|p| !p.flags.is_empty()).count();
    let failed = points.iter().filter(|p| p.error.is_some()).count();
    if disturbed > 0 {
        out +=
            &format!(" {disturbed} of {} measurements were disturbed; the table says by what.", points.len());
    }
    if failed > 0 {
        out += &format!(" {failed} failed.");
    }
    out
}
