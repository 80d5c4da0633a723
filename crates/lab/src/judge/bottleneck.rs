//! The bottleneck of a point: rules over its samples, the most telling first, each with its evidence.
//!
//! A resource that is used up is a bottleneck. If none is, the point is bound by latency: a closed loop's rate is depth
//! over latency (Little's law). The OSDs' own latency counters tell the client's share from the OSD's, and their stages
//! ([`STAGES`]) name the part of the OSD. With one operation in flight, a busy thread is no bottleneck: a core that polls
//! for its only caller is always busy. Without any of these counters the answer is "unknown", with the readings that excluded the others.

use super::disturbed::values;
use super::stats::mean;
use crate::matrix::Spec;
use crate::observe::observer::HOST;
use crate::results::record::{Measured, Sample};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// A few words: `the load generator`, `osd.0: one thread (msgr-worker-0)`.
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
        if busy >= 0.85 && !is_single(spec) {
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

/// True if one operation is in flight at a time.
fn is_single(spec: &Spec) -> bool {
    spec.rate.is_none() && spec.depth == 1 && spec.clients == 1
}

/// No resource is used up: the part of an operation's way that takes most of its time.
fn waiting(spec: &Spec, measured: &Measured, samples: &[Sample], busy: f64) -> Bottleneck {
    let total_us = measured.latency.mean_us;
    let in_flight = measured.ops_per_s * total_us / 1e6;
    if let Some(rate) = spec.mean_rate().filter(|rate| measured.ops_per_s >= 0.97 * rate) {
        let evidence = format!(
            "{:.0} op/s of the {rate:.0} that were asked for, {in_flight:.1} in flight on average",
            measured.ops_per_s
        );
        return Bottleneck {
            what: "nothing: the cluster keeps up with the rate".into(),
            evidence,
            used: busy,
        };
    }
    let client_us = measured.cpu_us_per_op.iter().find(|(name, _)| name == "client").map(|(_, us)| *us);
    let by_client = client_us.filter(|us| is_single(spec) && *us >= 0.4 * total_us && total_us > 0.0);
    let in_osd_us = server_latency_us(spec, samples).filter(|_| total_us > 0.0);
    let idle = format!("nothing is used up ({:.0} % of the processors busy)", busy * 100.0);
    let of_client = client_us
        .map_or(String::new(), |us| format!("; the client's processor time is {us:.0} µs an operation"));
    let Some(in_osd_us) = in_osd_us else {
        let evidence = format!(
            "{idle}, and the OSDs report no latency of their own; {in_flight:.1} in flight at {total_us:.0} µs{of_client}"
        );
        let what = match by_client {
            Some(_) => "the client's own processor time (one operation at a time)",
            None => "unknown",
        };
        return Bottleneck { what: what.into(), evidence, used: busy };
    };
    let share = (in_osd_us / total_us).min(1.0);
    let stages = stage_times(spec, samples);
    let of_stages = match stages.as_slice() {
        [] => String::new(),
        stages => {
            let words: Vec<String> = stages.iter().map(|s| format!("{} {:.0}", s.name, s.us)).collect();
            format!(" (by stage, µs: {})", words.join(", "))
        }
    };
    let evidence = format!(
        "of {total_us:.0} µs an operation takes, {in_osd_us:.0} µs pass in the OSD ({:.0} %){of_stages}; {idle}{of_client}",
        share * 100.0
    );
    let longest = stages.iter().max_by(|a, b| a.us.total_cmp(&b.us));
    let busiest = busiest_source(samples, spec.ramp_s).filter(|(_, share)| !is_single(spec) && *share >= 0.5);
    let what = match (share >= 0.5, longest, by_client, busiest) {
        (true, Some(stage), ..) => format!("the OSD: {}", stage.words),
        (true, None, ..) if is_single(spec) => "latency inside the OSD (one operation at a time)".into(),
        (true, None, ..) => "queues and waits inside the OSD".into(),
        (false, _, Some(_), _) => "the client's own processor time (one operation at a time)".into(),
        (false, ..) if is_single(spec) => {
            "latency between client and OSD: network and wake-ups (one operation at a time)".into()
        }
        (false, _, _, Some((source, share))) => {
            let name = busiest_thread(samples, source, spec.ramp_s);
            let evidence =
                format!("it ran {:.0} % of the time, more than any other; {evidence}", share * 100.0);
            return Bottleneck { what: format!("{source}: its thread {name}"), evidence, used: share };
        }
        (false, ..) => "the way between client and OSD: messengers, network, the client's own queue".into(),
    };
    Bottleneck { what, evidence, used: share }
}

/// A stage of an operation inside an OSD of shoal's, as docs/guide/signals.md has them.
#[derive(Debug)]
struct Stage {
    name: &'static str,
    /// The bottleneck, when this stage is the longest.
    words: &'static str,
}

/// In the order of an operation's way. All but the last together are its `op_latency`.
const STAGES: &[Stage] = &[
    Stage {
        name: "route",
        words: "operations wait for their PG's core, a map or the PG (received to admitted)",
    },
    Stage {
        name: "object_wait",
        words: "operations wait for other operations on the same object (admitted to begun)",
    },
    Stage { name: "fetch", words: "reads from the store (begun to read)" },
    Stage { name: "commit", words: "writes wait for group commit (submitted to durable)" },
    Stage { name: "reply", words: "replies wait to be sent (replied to sent)" },
];

/// A stage of reads or of writes, and its mean.
struct StageTime {
    /// `w_commit`
    name: String,
    words: &'static str,
    us: f64,
}

/// The stages of operations that read (`r`) or write (`w`). Reads have no commit.
fn stages_of(direction: &str) -> impl Iterator<Item = &'static Stage> {
    let has_commit = direction == "w";
    STAGES.iter().filter(move |stage| has_commit || stage.name != "commit")
}

/// The counter of a stage in an OSD's `perf dump`.
fn stage_counter(direction: &str, stage: &Stage) -> String {
    format!("osd_stages.{direction}_{}_latency", stage.name)
}

/// Every counter of a stage that the lab reads, as `GROUP.NAME`.
pub fn stage_counters() -> BTreeSet<String> {
    ["r", "w"].iter().flat_map(|d| stages_of(d).map(|stage| stage_counter(d, stage))).collect()
}

/// The stages that the OSDs report after the warm-up, of the directions that the load has.
fn stage_times(spec: &Spec, samples: &[Sample]) -> Vec<StageTime> {
    let mut out = Vec::new();
    for (direction, is_in_load) in [("r", spec.op.reads()), ("w", spec.op.writes())] {
        for stage in stages_of(direction).filter(|_| is_in_load) {
            let metric = format!("perf:{}", stage_counter(direction, stage));
            let is_of_stage = |s: &&Sample| s.metric == metric && s.at_s >= spec.ramp_s;
            let found: Vec<f64> = samples.iter().filter(is_of_stage).map(|s| s.value).collect();
            if !found.is_empty() {
                let name = format!("{direction}_{}", stage.name);
                out.push(StageTime { name, words: stage.words, us: mean(&found) });
            }
        }
    }
    out
}

/// The mean latency that the OSDs report. Zero is a reading: the stamps of shoal's OSDs are the times of their reactors'
/// turns, so an operation within one turn takes none.
fn server_latency_us(spec: &Spec, samples: &[Sample]) -> Option<f64> {
    let metrics: &[&str] = match (spec.op.reads(), spec.op.writes()) {
        (true, false) => &["perf:osd.op_r_latency", "perf:osd.op_latency"],
        (false, true) => &["perf:osd.op_w_latency", "perf:osd.op_latency"],
        _ => &["perf:osd.op_latency"],
    };
    metrics.iter().find_map(|metric| {
        let found: Vec<f64> = samples
            .iter()
            .filter(|s| s.metric == *metric && s.at_s >= spec.ramp_s)
            .map(|s| s.value)
            .collect();
        (!found.is_empty()).then(|| mean(&found))
    })
}

fn sources<'a>(samples: &'a [Sample], metric: &str) -> BTreeSet<&'a str> {
    samples.iter().filter(|s| s.metric == metric).map(|s| s.source.as_str()).collect()
}

/// The process with the busiest thread, and that thread's mean share of a processor.
fn busiest_source(samples: &[Sample], from_s: f64) -> Option<(&str, f64)> {
    let shares = sources(samples, "thread_top").into_iter();
    let shares = shares.map(|source| (source, mean(&values(samples, source, "thread_top", from_s))));
    shares.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The busiest thread's name, of the sample with the largest share.
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
    fn exhausted_resource_is_named_with_evidence() {
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
    fn idle_cluster_is_bound_by_latency() {
        let spec = Spec { depth: 1, op: Op::RandRead, ..Spec::default() };
        let idle = sample("host", "cpu_busy", 0.1);
        let in_osd = |us| vec![idle.clone(), sample("osd.0", "perf:osd.op_r_latency", us)];
        let m = measured(2500.0, 400.0);
        assert!(first(&spec, &m, &in_osd(90.0)).what.contains("between client and OSD"));
        assert!(first(&spec, &m, &in_osd(350.0)).what.contains("inside the OSD"));
        assert_eq!(first(&spec, &m, std::slice::from_ref(&idle)).what, "unknown");
        let open = Spec { rate: Some(1000.0), ..spec };
        assert!(first(&open, &measured(999.0, 300.0), &in_osd(90.0)).what.starts_with("nothing"));
        assert!(first(&open, &measured(500.0, 300.0), &in_osd(90.0)).what.contains("between client and OSD"));
        assert_eq!(first(&open, &measured(500.0, 300.0), std::slice::from_ref(&idle)).what, "unknown");
    }

    #[test]
    fn operations_within_one_turn_are_bound_by_the_busiest_thread() {
        let spec = Spec { depth: 16, op: Op::RandRead, ..Spec::default() };
        let mut samples = vec![
            sample("host", "cpu_busy", 0.6),
            sample("osd.0", "perf:osd.op_r_latency", 0.0),
            sample("osd.0", "thread_top", 0.3),
            sample("client.0", "thread_top", 0.7),
            sample("client.0", "thread:shoal", 0.7),
        ];
        let found = first(&spec, &measured(30_000.0, 500.0), &samples);
        assert_eq!(found.what, "client.0: its thread shoal");
        assert!(found.evidence.starts_with("it ran 70 % of the time"), "{}", found.evidence);
        samples.retain(|s| s.source != "client.0");
        let found = first(&spec, &measured(30_000.0, 500.0), &samples);
        assert!(found.what.starts_with("the way between client and OSD"), "{}", found.what);
    }

    #[test]
    fn longest_stage_of_the_osd_is_named() {
        let spec = Spec { depth: 16, op: Op::RandWrite, ..Spec::default() };
        let osd = |metric: &str, us| sample("osd.0", &format!("perf:{metric}"), us);
        let samples = [
            sample("host", "cpu_busy", 0.4),
            osd("osd.op_w_latency", 900.0),
            osd("osd_stages.w_object_wait_latency", 20.0),
            osd("osd_stages.w_commit_latency", 700.0),
            osd("osd_stages.w_reply_latency", 30.0),
            osd("osd_stages.r_fetch_latency", 5000.0),
        ];
        let found = first(&spec, &measured(16_000.0, 1000.0), &samples);
        assert_eq!(found.what, "the OSD: writes wait for group commit (submitted to durable)");
        assert!(
            found.evidence.contains("by stage, µs: w_object_wait 20, w_commit 700, w_reply 30"),
            "{}",
            found.evidence
        );
    }

    #[test]
    fn busy_thread_holds_no_single_operation_back() {
        let single = Spec { depth: 1, op: Op::RandRead, ..Spec::default() };
        let samples = [
            sample("host", "cpu_busy", 0.6),
            sample("osd.0", "thread_top", 0.99),
            sample("osd.0", "thread:core-0", 0.99),
            sample("osd.0", "perf:osd.op_r_latency", 12.0),
        ];
        let mut m = measured(11_000.0, 88.0);
        m.cpu_us_per_op = vec![("client".into(), 63.0)];
        assert!(first(&single, &m, &samples).what.starts_with("the client's own processor time"));
        let many = Spec { depth: 2, ..single };
        assert_eq!(first(&many, &m, &samples).what, "osd.0: one thread (core-0)");
    }
}
