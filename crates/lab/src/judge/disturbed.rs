//! Disturbances while a point was measured, in words; none for a clean point.

use super::stats::mean;
use super::steady::{self, Steady};
use crate::results::record::{Measured, Sample};
use std::collections::BTreeSet;

/// Values of one metric from `from_s` on.
pub fn values(samples: &[Sample], source: &str, metric: &str, from_s: f64) -> Vec<f64> {
    let wanted = |s: &&Sample| s.source == source && s.metric == metric && s.at_s >= from_s;
    samples.iter().filter(wanted).map(|s| s.value).collect()
}

pub fn flags(measured: &Measured, samples: &[Sample], ramp_s: f64) -> Vec<String> {
    let mut out = Vec::new();
    let rates: Vec<f64> = measured.series.iter().filter(|s| s.at_s > ramp_s).map(|s| s.ops).collect();
    match steady::judge(&rates) {
        Steady::Never { worst_excursion, trend } => out.push(format!(
            "not steady: single seconds are up to {:.0} % off the mean, the trend is {:.0} %",
            worst_excursion * 100.0,
            trend * 100.0
        )),
        Steady::From { second } if second > 0 => {
            out.push(format!("steady only after {second} s: use a longer ramp"));
        }
        Steady::From { .. } | Steady::TooShort => {}
    }
    let hosts: BTreeSet<&str> =
        samples.iter().filter(|s| s.metric == "cpus").map(|s| s.source.as_str()).collect();
    for source in hosts {
        let host = |metric: &str| mean(&values(samples, source, metric, ramp_s));
        let whose = source.strip_prefix("host:").map_or(String::new(), |other| format!(" of {other}"));
        if host("cpu_steal") > 0.05 {
            out.push(format!(
                "the hypervisor took {:.0} % of the processors{whose}",
                host("cpu_steal") * 100.0
            ));
        }
        let cpus = host("cpus").max(1.0);
        if host("cpu_others") > (0.1 * cpus).max(0.15) {
            out.push(format!("other programs used {:.2} of {cpus:.0} processors{whose}", host("cpu_others")));
        }
    }
    let most =
        |source: &str, metric: &str| values(samples, source, metric, 0.0).into_iter().fold(0.0, f64::max);
    let pgs = samples.iter().filter(|s| s.source == "pgs" && s.value > 0.0);
    for (words, what) in [
        ("scrubbing", "scrub"),
        ("recover", "recovery"),
        ("backfill", "backfill"),
        ("peering", "peering"),
        ("degraded", "degraded PGs"),
        ("laggy", "laggy PGs"),
    ] {
        if pgs.clone().any(|s| s.metric.contains(words)) {
            out.push(format!("{what} went on meanwhile"));
        }
    }
    if most("cluster", "slow_ops") > 0.0 {
        out.push(format!("the cluster complained of {} slow operations", most("cluster", "slow_ops")));
    }
    let up = values(samples, "cluster", "osds_up", 0.0);
    if up.iter().any(|n| Some(n) != up.first()) {
        out.push("OSDs went down or came up meanwhile".into());
    }
    if measured.errors > 0 {
        let first = measured.first_error.map_or(String::new(), |errno| {
            format!(", the first with: {}", std::io::Error::from_raw_os_error(-errno))
        });
        out.push(format!("{} operations failed{first}", measured.errors));
    }
    if measured.unanswered > 0 {
        out.push(format!("{} operations were never answered", measured.unanswered));
    }
    if let Some((_, wrong)) = measured.verified.filter(|(_, wrong)| *wrong > 0) {
        out.push(format!("{wrong} READS RETURNED OTHER BYTES THAN WERE WRITTEN"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::Second;

    fn sample(source: &str, metric: &str, value: f64) -> Sample {
        Sample { at_s: 2.0, source: source.into(), metric: metric.into(), value }
    }

    fn steady() -> Measured {
        let series =
            (1..=10).map(|n| Second { at_s: f64::from(n), ops: 100.0, ..Second::default() }).collect();
        Measured { series, ops: 1000.0, ..Measured::default() }
    }

    #[test]
    fn clean_points_have_no_flag_and_disturbed_ones_a_reason() {
        let quiet = [
            sample("host", "cpu_steal", 0.0),
            sample("host", "cpus", 4.0),
            sample("host", "cpu_others", 0.1),
            sample("pgs", "active+clean", 32.0),
            sample("cluster", "osds_up", 3.0),
        ];
        assert_eq!(flags(&steady(), &quiet, 1.0), Vec::<String>::new());
        let mut loud = quiet.to_vec();
        loud.extend([
            sample("host", "cpu_steal", 0.2),
            sample("host", "cpu_others", 2.3),
            sample("host:b", "cpus", 2.0),
            sample("host:b", "cpu_others", 1.5),
            sample("cluster", "osds_up", 2.0),
            sample("pgs", "active+clean+scrubbing+deep", 1.0),
            sample("cluster", "slow_ops", 4.0),
        ]);
        let measured = Measured { errors: 2, verified: Some((10, 1)), ..steady() };
        let told = flags(&measured, &loud, 1.0).join("\n");
        for words in [
            "hypervisor",
            "other programs used 1.20",
            "other programs used 1.50 of 2 processors of b",
            "scrub went on",
            "4 slow",
            "went down",
            "2 operations failed",
            "OTHER BYTES",
        ] {
            assert!(told.contains(words), "{words} in {told}");
        }
    }
}
