//! A run, from a matrix to results: clusters start, points run in order, samples are judged and kept.
//!
//! - [`agent`]: the process on another host; [`reach`]: the connection to it; [`clients`]: hosts that make load;
//!   [`watchers`]: hosts that are only watched.
//! - [`faults`]: faults of the cluster under load.
//! - [`pool`]: pools of the lab's own, deleted after each point.
//! - [`part`]: one host's part of a point: prefill, load, the tools' results.
//! - [`point`]: one point, on one host or many.
//! - [`host`]: the description of the host that a run keeps.

pub mod agent;
mod clients;
mod faults;
pub mod host;
mod part;
mod point;
pub mod pool;
mod reach;
mod watchers;

use crate::cluster::Login;
use crate::deploy;
use crate::judge::{bottleneck, disturbed};
use crate::lab_host::LabHost;
use crate::matrix::{ClusterSpec, Matrix, order};
use crate::observe::Observer;
use crate::results::{Measured, PointRecord, Results, RunRecord, Sample};
use crate::tool;
use crate::tool::process::{rest, stopped};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub struct Wish<'a> {
    pub matrix: &'a Matrix,
    /// The matrix's file, verbatim.
    pub text: &'a str,
    pub conf: Option<&'a Path>,
    pub login: &'a Login,
    pub lab_host: &'a dyn LabHost,
    /// The first port of clusters that the lab starts.
    pub port: u16,
    /// A temporary folder.
    pub scratch: &'a Path,
    pub overwrite_devices: bool,
}

/// Progress of a run.
pub enum Event<'a> {
    Cluster(&'a str),
    Point { turn: usize, of: usize, label: &'a str },
    Done { point: &'a PointRecord },
    Trouble(&'a str),
}

/// Runs the whole matrix. An interrupted run keeps its complete points.
pub fn run(
    results: &mut Results,
    wish: &Wish<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> anyhow::Result<RunRecord> {
    let run = RunRecord {
        id: host::new_id(),
        name: wish.matrix.name.clone(),
        started_unix_s: host::unix_s(),
        ended_unix_s: None,
        state: "running".into(),
        file: wish.text.to_owned(),
        notes: wish.matrix.notes.clone(),
        host: host::describe(),
    };
    std::fs::create_dir_all(wish.scratch)?;
    results.begin(&run)?;
    let outcome = all_points(results, wish, &run.id, tell);
    let state = match (&outcome, stopped()) {
        (_, true) => "interrupted",
        (Ok(()), false) => "complete",
        (Err(_), false) => "failed",
    };
    results.end(&run.id, state, host::unix_s())?;
    if !stopped() {
        outcome?;
    }
    results.find(&run.id)
}

fn all_points(
    results: &mut Results,
    wish: &Wish<'_>,
    run: &str,
    tell: &mut dyn FnMut(Event<'_>),
) -> anyhow::Result<()> {
    let turns = order::shuffled(wish.matrix);
    let of = turns.len();
    let dir: PathBuf = wish.scratch.join("cluster");
    let mut at = 0;
    while at < of && !stopped() {
        let group = (turns[at].iteration, turns[at].cluster);
        let spec = &wish.matrix.clusters[group.1];
        let needs_cluster = turns[at..].iter().take_while(|t| (t.iteration, t.cluster) == group);
        let needs_cluster =
            needs_cluster.clone().any(|t| wish.matrix.specs[t.spec].tool.needs_pool()) || wish.conf.is_some();
        let started = match needs_cluster {
            true => {
                tell(Event::Cluster(&spec.label()));
                start(wish, spec, &dir)
            }
            false => Ok((None, Value::Null)),
        };
        if stopped() {
            return Ok(());
        }
        // A cluster that does not start fails its points; the others go on.
        let (running, versions, failure) = match started {
            Ok((running, versions)) => (running, versions, None),
            Err(error) => (None, Value::Null, Some(format!("{}: {error:#}", spec.label()))),
        };
        while at < of && (turns[at].iteration, turns[at].cluster) == group && !stopped() {
            let spec = &wish.matrix.specs[turns[at].spec];
            let mut record = PointRecord {
                id: 0,
                run: run.to_owned(),
                turn: at as u32,
                iteration: group.0,
                cluster: wish.matrix.clusters[group.1].clone(),
                spec: spec.clone(),
                measured: None,
                error: None,
                flags: Vec::new(),
                verdict: None,
                versions: versions.clone(),
            };
            tell(Event::Point { turn: at + 1, of, label: &record.label() });
            let mut artifacts = Vec::new();
            let (outcome, samples) = match &failure {
                Some(why) => (Err(anyhow::anyhow!("the cluster did not start: {why}")), Vec::new()),
                None => one_point(wish, running.as_ref(), &record, &mut artifacts),
            };
            if stopped() {
                // An interrupted point is not kept.
                return Ok(());
            }
            match outcome {
                Ok(measured) => finish(&mut record, measured, &samples),
                Err(error) => record.error = Some(format!("{error:#}")),
            }
            results.add_point(&record, &samples, &artifacts)?;
            tell(Event::Done { point: &record });
            if failure.is_none() {
                rest(wish.matrix.cool_down_s);
            }
            at += 1;
        }
    }
    Ok(())
}

fn start<'a>(
    wish: &Wish<'a>,
    spec: &ClusterSpec,
    dir: &Path,
) -> anyhow::Result<(Option<deploy::Running<'a>>, Value)> {
    let running = deploy::start(wish.lab_host, spec, wish.conf, dir, wish.port)?;
    let mut versions = versions(wish.login, &running.conf)?;
    versions["tools"] = running.tools.version("rados").into();
    Ok((Some(running), versions))
}

fn versions(login: &Login, conf: &Path) -> anyhow::Result<Value> {
    let mut cluster = login.connect(conf)?;
    let mut ask =
        |prefix: &str| cluster.ask(json!({"prefix": prefix, "format": "json"})).unwrap_or(Value::Null);
    Ok(json!({"versions": ask("versions"), "health": ask("health")["status"], "config": ask("config dump")}))
}

fn one_point(
    wish: &Wish<'_>,
    cluster: Option<&deploy::Running<'_>>,
    record: &PointRecord,
    artifacts: &mut Vec<(String, Vec<u8>)>,
) -> (anyhow::Result<Measured>, Vec<Sample>) {
    let spec = &record.spec;
    if tool::fio::overwrites_device(spec) && !wish.overwrite_devices {
        let path = spec.path.as_deref().unwrap_or(Path::new("?"));
        let error = anyhow::anyhow!(
            "{} is a device and this point writes: all on it would be lost. Say --overwrite-devices if that is meant",
            path.display()
        );
        return (Err(error), Vec::new());
    }
    let conf = cluster.map(|running| running.conf.as_path());
    let observer = Observer::new(conf.unwrap_or(Path::new("/dev/null")));
    let place = point::Place {
        login: wish.login,
        cluster,
        hosts: wish.matrix.hosts.as_ref(),
        watched: wish.matrix.watched.as_ref(),
        scratch: wish.scratch,
    };
    observer.during(wish.login, conf, || point::measure(&place, spec, &observer, artifacts))
}

/// Completes a tool's measurement with flags and bottlenecks from the samples.
fn finish(record: &mut PointRecord, mut measured: Measured, samples: &[Sample]) {
    let ramp_s = record.spec.ramp_s;
    let mut by_process: std::collections::BTreeMap<&str, Vec<f64>> = Default::default();
    for sample in samples.iter().filter(|s| s.metric == "cpu_cores" && s.at_s >= ramp_s) {
        by_process.entry(&sample.source).or_default().push(sample.value);
    }
    if measured.ops_per_s > 0.0 {
        let client_is_known = measured.cpu_us_per_op.iter().any(|(name, _)| name == "client");
        let mut client = 0.0;
        for (name, cores) in by_process {
            let us = crate::judge::stats::mean(&cores) * 1e6 / measured.ops_per_s;
            match name.starts_with("client.") {
                true => client += us,
                false => measured.cpu_us_per_op.push((name.to_owned(), us)),
            }
        }
        if client > 0.0 && !client_is_known {
            measured.cpu_us_per_op.push(("client".into(), client));
        }
    }
    measured.client_thread_share = client_thread_share(samples, ramp_s);
    record.flags = disturbed::flags(&measured, samples, ramp_s);
    record.flags.extend(client_bound(&measured));
    if record.spec.tool != crate::matrix::Tool::Nothing {
        record.verdict = serde_json::to_value(bottleneck::find(&record.spec, &measured, samples)).ok();
    }
    record.measured = Some(measured);
}

/// Share of the load generator's ceiling above which the client is part of the measurement.
const CLIENT_BOUND: f64 = 0.5;

/// The flag of a point that the client bounds, rather than the cluster.
fn client_bound(measured: &Measured) -> Option<String> {
    if let Some(ceiling) =
        measured.ceiling_ops_per_s.filter(|ceiling| measured.ops_per_s > CLIENT_BOUND * ceiling)
    {
        return Some(format!(
            "client-bound: {:.0} op/s are {:.0} % of the {ceiling:.0} that this client makes on a target that takes no \
             time",
            measured.ops_per_s,
            100.0 * measured.ops_per_s / ceiling
        ));
    }
    let busy = measured.client_thread_share.unwrap_or(0.0);
    (busy >= 0.85)
        .then(|| format!("client-bound: a thread of the client ran {:.0} % of the time", busy * 100.0))
}

/// Share of the time that the busiest client's busiest thread ran, after the warm-up.
fn client_thread_share(samples: &[Sample], ramp_s: f64) -> Option<f64> {
    let mut clients: std::collections::BTreeMap<&str, Vec<f64>> = Default::default();
    for s in samples.iter().filter(|s| s.source.starts_with("client.") && s.metric == "thread_top") {
        if s.at_s >= ramp_s {
            clients.entry(&s.source).or_default().push(s.value);
        }
    }
    clients.values().map(|shares| crate::judge::stats::mean(shares)).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturated_client_is_flagged() {
        let at =
            |ops_per_s| Measured { ops_per_s, ceiling_ops_per_s: Some(100_000.0), ..Measured::default() };
        assert_eq!(client_bound(&at(30_000.0)), None);
        let told = client_bound(&at(90_000.0)).unwrap();
        assert!(told.contains("90 % of the 100000"), "{told}");
        let busy = |client: &str, value| Sample {
            at_s: 1.0,
            source: client.into(),
            metric: "thread_top".into(),
            value,
        };
        let with = |samples: &[Sample]| Measured {
            client_thread_share: client_thread_share(samples, 0.0),
            ..at(10.0)
        };
        assert_eq!(with(&[]).client_thread_share, None);
        assert_eq!(client_bound(&with(&[busy("client.1", 0.5), busy("osd.0", 1.0)])), None);
        let told = client_bound(&with(&[busy("client.1", 0.5), busy("client.b.0", 0.97)])).unwrap();
        assert!(told.contains("97 %"), "{told}");
    }
}
