//! What held a phase back? Rules over what was sampled, the most telling first, each with its evidence.
//!
//! A resource that is used up is a bottleneck. Where none is, and a closed loop's rate equals depth over latency (it
//! always does: Little's law), the phase waits: for the network and for queues, which the share of latency that the
//! OSDs themselves account for tells apart. Where nothing of that is seen, the answer is "unknown", and says what was
//! looked at.

use super::disturbed::values;
use super::stats::mean;
use crate::matrix::Spec;
use crate::observe::observer::HOST;
use crate::results::record::{Measured, Sample};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// A few words: `client processor`, `osd.0: thread msgr-worker-0`.
    pub what: String,
    pub evidence: String,
    /// 0 to 1: how much of that resource is used.
    pub used: f64,
}

/// All that apply, the first being the answer.
pub fn find(spec: &Spec, measured: &Measured, samples: &[Sample]) -> Vec<Bottleneck> {
    let from_s = spec.ramp_s;
    let average = |source: &str, metric: &str| mean(&values(samples, source, metric, from_s));
    let mut out = Vec::new();
    let mut add = |what: String, evidence: String, used: f64| out.push(Bottleneck { what, evidence, used });

    if let Some(ceiling) = measured.ceiling_ops_per_s.filter(|c| measured.ops_per_s > 0.8 * c) {
        let evidence = format!(
            "{:.0} op/s, and the load generator itself can make {ceiling:.0}: this measures the client",
            measured.ops_per_s
        );
        add("the load generator".into(), evidence, measured.ops_per_s / ceiling);
    }
    for source in sources(samples, "thread_top") {
        let busy = average(source, "thread_top");
        if busy >= 0.85 {
            let name = busiest_thread(samples, source, from_s);
            let evidence = format!(
                "its thread {name} ran {:.0} % of the time: more threads, shards or OSDs would help",
                busy * 100.0
            );
            add(format!("{source}: one thread ({name})"), evidence, busy);
        }
    }
    let busy = average(HOST, "cpu_busy");
    for host in sources(samples, "cpu_busy") {
        let (busy, cpus) = (average(host, "cpu_busy"), average(host, "cpus").max(1.0));
        if busy < 0.9 {
            continue;
        }
        // Of another host only its own whole is known here, not which processes are its.
        let mut users: Vec<(String, f64)> = match host == HOST {
            true => sources(samples, "cpu_cores")
                .into_iter()
                .map(|s| (s.to_owned(), average(s, "cpu_cores")))
                .collect(),
            false => Vec::new(),
        };
        users.push(("other programs".into(), average(host, "cpu_others")));
        users.sort_by(|a, b| b.1.total_cmp(&a.1));
        let list: Vec<String> =
            users.iter().take(3).map(|(name, cores)| format!("{name} {cores:.2}")).collect();
        let evidence =
            format!("{:.0} % of {cpus:.0} processors were busy; in cores: {}", busy * 100.0, list.join(", "));
        let what = match host.strip_prefix("host:") {
            Some(other) => format!("the processors of {other}"),
            None if users[0].0 == "other programs" => {
                "other programs on this host: its processors are busy with them".into()
            }
            None => "the host's processors".into(),
        };
        add(what, evidence, busy);
    }
    for disk in sources(samples, "disk_util") {
        let util = average(disk, "disk_util");
        let work = average(disk, "disk_ops_per_s");
        if util >= 0.9 && work > 10.0 {
            let evidence =
                format!("{disk} was busy {:.0} % of the time with {work:.0} requests a second", util * 100.0);
            add(format!("the disk {disk}"), evidence, util);
        }
    }
    for interface in sources(samples, "net_share") {
        let share = average(interface, "net_share");
        if share >= 0.8 {
            add(
                format!("the network ({interface})"),
                format!("{:.0} % of the link's rate", share * 100.0),
                share,
            );
        }
    }
    for source in sources(samples, "throttle_full") {
        let full = average(source, "throttle_full");
        if full >= 0.5 {
            let evidence = format!("one of its throttles was full in {:.0} % of the samples", full * 100.0);
            add(format!("a throttle of {source}"), evidence, full);
        }
    }
    if out.is_empty() {
        out.push(waiting(spec, measured, samples, busy));
    }
    out
}

/// Nothing is used up: where does an operation spend its time?
fn waiting(spec: &Spec, measured: &Measured, samples: &[Sample], busy: f64) -> Bottleneck {
    let in_osd = server_latency_us(spec, samples);
    let total = measured.latency.mean_us;
    let in_flight = measured.ops_per_s * total / 1e6;
    if let Some(rate) = spec.mean_rate() {
        let evidence = format!(
            "{:.0} op/s of the {rate:.0} that were asked for, {:.1} in flight on average",
            measured.ops_per_s, in_flight
        );
        return match measured.ops_per_s >= 0.97 * rate {
            true => Bottleneck {
                what: "nothing: the cluster keeps up with the rate".into(),
                evidence,
                used: busy,
            },
            false => Bottleneck {
                what: "unknown: it does not keep up, and nothing is used up".into(),
                evidence,
                used: busy,
            },
        };
    }
    let Some(in_osd) = in_osd.filter(|_| total > 0.0) else {
        let evidence = format!(
            "no thread, processor, disk or link is used up ({:.0} % of the processors busy), and the OSDs told no latency of their own; {in_flight:.1} in flight",
            busy * 100.0
        );
        return Bottleneck { what: "unknown".into(), evidence, used: busy };
    };
    let share = (in_osd / total).min(1.0);
    let evidence = format!(
        "of {total:.0} µs an operation takes, {in_osd:.0} µs pass in the OSD ({:.0} %); nothing is used up ({:.0} % of the processors busy)",
        share * 100.0,
        busy * 100.0
    );
    let what = match (share >= 0.6, spec.depth) {
        (true, 1) => "latency inside the OSD (one operation at a time)",
        (true, _) => "queues and waits inside the OSD",
        (false, 1) => "latency between client and OSD: network and wake-ups (one operation at a time)",
        (false, _) => "the way between client and OSD: messengers, network, the client's own queue",
    };
    Bottleneck { what: what.into(), evidence, used: share }
}

/// The mean that the OSDs account for.
fn server_latency_us(spec: &Spec, samples: &[Sample]) -> Option<f64> {
    let metrics: &[&str] = match (spec.op.reads(), spec.op.writes()) {
        (true, false) => &["perf:osd.op_r_latency", "perf:osd.op_latency"],
        (false, true) => &["perf:osd.op_w_latency", "perf:osd.op_latency"],
        _ => &["perf:osd.op_latency"],
    };
    metrics.iter().find_map(|metric| {
        let found: Vec<f64> = samples
            .iter()
            .filter(|s| s.metric == *metric && s.at_s >= spec.ramp_s && s.value > 0.0)
            .map(|s| s.value)
            .collect();
        (!found.is_empty()).then(|| mean(&found))
    })
}

fn sources<'a>(samples: &'a [Sample], metric: &str) -> BTreeSet<&'a str> {
    samples.iter().filter(|s| s.metric == metric).map(|s| s.source.as_str()).collect()
}

/// The thread whose name comes up most often as a process's busiest.
fn busiest_thread<'a>(samples: &'a [Sample], source: &str, from_s: f64) -> &'a str {
    let named = samples.iter().filter(|s| s.source == source && s.at_s >= from_s);
    let named = named.filter_map(|s| Some((s.metric.strip_prefix("thread:")?, s.value)));
    named.max_by(|a, b| a.1.total_cmp(&b.1)).map_or("?", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Op;

    fn sample(source: &str, metric: &str, value: f64) -> Sample {
        Sample { at_s: 2.0, source: source.into(), metric: metric.into(), value }
    }

    fn measured(ops_per_s: f64, mean_us: f64) -> Measured {
        let mut m = Measured { ops_per_s, ..Measured::default() };
        m.latency.mean_us = mean_us;
        m
    }

    fn first(spec: &Spec, measured: &Measured, samples: &[Sample]) -> Bottleneck {
        find(spec, measured, samples).remove(0)
    }

    #[test]
    fn what_is_used_up_is_named_with_its_evidence() {
        let spec = Spec::default();
        let m = measured(10_000.0, 1600.0);
        let idle = [sample("host", "cpu_busy", 0.3), sample("host", "cpus", 8.0)];
        let with = |more: &[Sample]| first(&spec, &m, &[&idle[..], more].concat());
        let found =
            with(&[sample("osd.0", "thread_top", 0.97), sample("osd.0", "thread:msgr-worker-0", 0.97)]);
        assert_eq!(found.what, "osd.0: one thread (msgr-worker-0)");
        assert!(found.evidence.contains("97 %"), "{}", found.evidence);
        let found = with(&[sample("nvme0n1", "disk_util", 0.99), sample("nvme0n1", "disk_ops_per_s", 900.0)]);
        assert_eq!(found.what, "the disk nvme0n1");
        assert_eq!(with(&[sample("eth0", "net_share", 0.92)]).what, "the network (eth0)");
        let busy = [
            sample("host", "cpu_busy", 0.96),
            sample("host", "cpus", 2.0),
            sample("osd.0", "cpu_cores", 1.2),
        ];
        let found = first(&spec, &m, &busy);
        assert_eq!(found.what, "the host's processors");
        assert!(found.evidence.contains("osd.0 1.20"), "{}", found.evidence);
        let neighbours = first(&spec, &m, &[&busy[..], &[sample("host", "cpu_others", 1.7)]].concat());
        assert!(neighbours.what.starts_with("other programs"), "{}", neighbours.what);
        let elsewhere = [sample("host:b", "cpu_busy", 0.99), sample("host:b", "cpus", 4.0)];
        assert_eq!(with(&elsewhere).what, "the processors of b");
        let own = Measured { ceiling_ops_per_s: Some(11_000.0), ..m.clone() };
        assert_eq!(first(&spec, &own, &idle).what, "the load generator");
    }

    #[test]
    fn what_waits_is_told_from_what_is_used_up() {
        let spec = Spec { depth: 1, op: Op::RandRead, ..Spec::default() };
        let idle = sample("host", "cpu_busy", 0.1);
        let in_osd = |us| vec![idle.clone(), sample("osd.0", "perf:osd.op_r_latency", us)];
        let m = measured(2500.0, 400.0);
        assert!(first(&spec, &m, &in_osd(90.0)).what.contains("between client and OSD"));
        assert!(first(&spec, &m, &in_osd(350.0)).what.contains("inside the OSD"));
        assert_eq!(first(&spec, &m, std::slice::from_ref(&idle)).what, "unknown");
        let open = Spec { rate: Some(1000.0), ..spec };
        assert!(first(&open, &measured(999.0, 300.0), &in_osd(90.0)).what.starts_with("nothing"));
        assert!(first(&open, &measured(500.0, 300.0), &in_osd(90.0)).what.starts_with("unknown"));
    }
}
