//! Conditions of two runs: host, kernel, other programs, steal, and the time between them. A comparison counts their
//! effect as a difference between the runs, so differences are told beside the verdict.

use super::disturbed::values;
use super::stats::mean;
use crate::results::{RunRecord, Sample};

/// Means over one point, after its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    pub cpus: f64,
    /// Processors that programs took which are neither the cluster nor the load.
    pub others: f64,
    /// Share of the processors that the hypervisor took.
    pub steal: f64,
}

/// `None` if there is no sample of the host.
pub fn of(samples: &[Sample], from_s: f64) -> Option<Conditions> {
    let host = |metric: &str| values(samples, "host", metric, from_s);
    (!host("cpus").is_empty()).then(|| Conditions {
        cpus: mean(&host("cpus")),
        others: mean(&host("cpu_others")),
        steal: mean(&host("cpu_steal")),
    })
}

/// Differences in words; empty if there is none.
pub fn differences(a: (&RunRecord, &[Conditions]), b: (&RunRecord, &[Conditions])) -> Vec<String> {
    let mut out = Vec::new();
    for (key, words) in
        [("hostname", "the host"), ("cpu", "the processor"), ("cpus", "processors"), ("kernel", "the kernel")]
    {
        let (left, right) = (&a.0.host[key], &b.0.host[key]);
        if left != right && !left.is_null() && !right.is_null() {
            out.push(format!("{words} differs: {left} in A, {right} in B"));
        }
    }
    if let (Some(apart_s), longest_s) = (gap_s(a.0, b.0), duration_s(a.0).max(duration_s(b.0)))
        && apart_s > longest_s.max(600.0)
    {
        out.push(format!(
            "{:.1} hours lie between the runs: the promise of at most 5 false alarms in 100 holds for successive runs",
            apart_s / 3600.0
        ));
    }
    let average = |side: &[Conditions], of: fn(&Conditions) -> f64| {
        let all: Vec<f64> = side.iter().map(of).collect();
        (!all.is_empty()).then(|| mean(&all))
    };
    let cpus = average(a.1, |c| c.cpus).unwrap_or(1.0);
    if let (Some(left), Some(right)) = (average(a.1, |c| c.others), average(b.1, |c| c.others))
        && (left - right).abs() > (0.05 * cpus).max(0.1)
    {
        out.push(format!(
            "other programs took {left:.2} of {cpus:.0} processors during A and {right:.2} during B: what differs may \
             be their doing"
        ));
    }
    if let (Some(left), Some(right)) = (average(a.1, |c| c.steal), average(b.1, |c| c.steal))
        && (left - right).abs() > 0.02
    {
        out.push(format!(
            "the hypervisor took {:.0} % of the processors during A and {:.0} % during B",
            left * 100.0,
            right * 100.0
        ));
    }
    out
}

fn duration_s(run: &RunRecord) -> f64 {
    run.ended_unix_s.map_or(0.0, |ended| ended - run.started_unix_s)
}

/// Seconds from the end of the earlier run to the start of the later one.
fn gap_s(a: &RunRecord, b: &RunRecord) -> Option<f64> {
    let (first, second) = if a.started_unix_s <= b.started_unix_s { (a, b) } else { (b, a) };
    Some(second.started_unix_s - first.ended_unix_s?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn runs_hours_apart_are_reported() {
        let at = |started: f64| RunRecord {
            started_unix_s: started,
            ended_unix_s: Some(started + 100.0),
            ..run("6.1")
        };
        assert!(differences((&at(0.0), &[]), (&at(200.0), &[])).is_empty());
        let told = differences((&at(90_100.0), &[]), (&at(0.0), &[])).join("");
        assert!(told.contains("25.0 hours"), "{told}");
    }

    fn run(kernel: &str) -> RunRecord {
        RunRecord {
            id: "1".into(),
            name: "x".into(),
            started_unix_s: 0.0,
            ended_unix_s: None,
            state: "complete".into(),
            file: String::new(),
            notes: vec![],
            host: json!({"hostname": "h", "kernel": kernel}),
        }
    }

    #[test]
    fn busier_host_and_other_kernel_are_reported() {
        let at = |others: f64, steal: f64| Conditions { cpus: 2.0, others, steal };
        let (one, other) = (run("6.1"), run("6.12"));
        let quiet = [at(0.1, 0.0), at(0.12, 0.0)];
        assert!(differences((&one, &quiet), (&one, &[at(0.15, 0.01)])).is_empty());
        let told = differences((&one, &quiet), (&other, &[at(1.5, 0.2)])).join("\n");
        for words in ["the kernel differs", "0.11 of 2", "1.50 during B", "20 % during B"] {
            assert!(told.contains(words), "{words}: {told}");
        }
        assert!(differences((&one, &[]), (&one, &quiet)).is_empty(), "nothing seen is nothing told");
        let samples = [("cpus", 2.0), ("cpu_others", 0.4)].map(|(metric, value)| Sample {
            at_s: 1.0,
            source: "host".into(),
            metric: metric.into(),
            value,
        });
        assert_eq!(of(&samples, 0.5).unwrap().others, 0.4);
        assert_eq!(of(&samples, 2.0), None);
    }
}
