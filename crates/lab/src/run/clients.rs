//! One load of many hosts. Each runs `shoal lab agent`, reached by ssh; they begin at the same moment, each by
//! its own clock, whose offset is measured; their measurements are added up.
//!
//! A host that dies ends the point: the lab stops the other hosts and their programs. An agent whose connection breaks
//! stops by itself.

use super::agent::{FromAgent, Prepare, ToAgent};
use super::host::unix_s;
use super::part::{Artifacts, Begin, Pools, patience};
use super::reach::{self, Host};
use crate::judge::stats::{mean, quantile_of_bins};
use crate::matrix::{OtherHosts, Spec};
use crate::observe::Observer;
use crate::results::Measured;
use crate::tool::process::stopped;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Preparing includes filling images.
const READY_PATIENCE: Duration = Duration::from_secs(3600);
const GO_AHEAD_S: f64 = 0.3;

pub struct Clients {
    hosts: Vec<Host>,
}

impl Clients {
    pub fn connect(hosts: &OtherHosts) -> anyhow::Result<Clients> {
        Ok(Clients { hosts: reach::connect(hosts)? })
    }

    pub fn load(
        &mut self,
        conf: &str,
        keyring: &str,
        pools: &Pools,
        spec: &Spec,
        begin: Begin<'_>,
        observer: &Observer,
        artifacts: &mut Artifacts,
    ) -> anyhow::Result<Measured> {
        ensure!(spec.tool.needs_pool(), "only loads on a cluster are made by many hosts");
        let parts = self.hosts.len() as f64;
        for (n, host) in self.hosts.iter_mut().enumerate() {
            let own = Spec {
                first_client: n as u32 * spec.clients,
                rate: spec.rate.map(|rate| rate / parts),
                rate_to: spec.rate_to.map(|rate| rate / parts),
                faults: Vec::new(),
                ..spec.clone()
            };
            let (conf, keyring, pools) = (conf.to_owned(), keyring.to_owned(), pools.clone());
            host.tell(&ToAgent::Prepare(Box::new(Prepare { conf, keyring, pools, spec: own })))?;
        }
        self.each(READY_PATIENCE, |answer| match answer {
            FromAgent::Ready => Ok(()),
            other => bail!("expected Ready, received {other:?}"),
        })?;
        let slowest_s = self.hosts.iter().map(|host| host.clock.1).fold(0.0, f64::max);
        let at = unix_s() + GO_AHEAD_S + 2.0 * slowest_s;
        for host in &mut self.hosts {
            let at_unix_s = at + host.clock.0;
            host.tell(&ToAgent::Go { at_unix_s })?;
        }
        std::thread::sleep(Duration::from_secs_f64((at - unix_s()).max(0.0)));
        begin()?;
        let measured = self.each(patience(spec), |answer| match answer {
            FromAgent::Measured { measured, artifacts, samples } => Ok((*measured, artifacts, samples)),
            other => bail!("expected a measurement, received {other:?}"),
        })?;
        let mut parts = Vec::new();
        let mut told = Vec::new();
        for (host, (part, raw, samples)) in self.hosts.iter().zip(measured) {
            observer.take_in(&host.name, samples);
            let (offset, round_trip) = host.clock;
            told.push(serde_json::json!({
                "host": host.name, "clock_offset_s": offset, "clock_round_trip_s": round_trip,
                "ops_per_s": part.ops_per_s, "mean_us": part.latency.mean_us,
            }));
            artifacts.extend(
                raw.into_iter().map(|(name, text)| (format!("{}/{name}", host.name), text.into_bytes())),
            );
            parts.push(part);
        }
        artifacts.push(("clients.json".into(), serde_json::to_vec_pretty(&told)?));
        Ok(together(parts))
    }

    /// One answer of each; the first host that fails ends it.
    fn each<T>(
        &mut self,
        patience: Duration,
        read: impl Fn(FromAgent) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        let until = Instant::now() + patience;
        let mut answers: Vec<Option<T>> = self.hosts.iter().map(|_| None).collect();
        while answers.iter().any(Option::is_none) {
            ensure!(!stopped(), "interrupted");
            for (host, answer) in
                self.hosts.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none())
            {
                let left = Duration::from_millis(20);
                if let Some(line) = host.hear(left)? {
                    *answer = Some(read(line).with_context(|| format!("client host {}", host.name))?);
                } else if Instant::now() > until {
                    bail!("client host {} says nothing for {} s", host.name, patience.as_secs());
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }
}

/// Several clients at the same time: rates add up, means are weighed, extremes are extremes, histograms are added.
pub fn together(mut parts: Vec<Measured>) -> Measured {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut all = Measured::default();
    let ops: f64 = parts.iter().map(|p| p.ops).sum::<f64>().max(1.0);
    all.latency.min_us = f64::INFINITY;
    let mut bins: BTreeMap<u64, (f64, u64)> = BTreeMap::new();
    let mut cpu: BTreeMap<&str, f64> = BTreeMap::new();
    for part in &parts {
        all.ops_per_s += part.ops_per_s;
        all.bytes_per_s += part.bytes_per_s;
        all.errors += part.errors;
        all.first_error = all.first_error.or(part.first_error);
        all.unanswered += part.unanswered;
        all.latency.mean_us += part.latency.mean_us * part.ops / ops;
        all.latency.min_us = all.latency.min_us.min(part.latency.min_us);
        all.latency.max_us = all.latency.max_us.max(part.latency.max_us);
        for (us, count) in &part.histogram {
            // Not negative: the order of the bits is that of the numbers.
            bins.entry(us.to_bits()).or_insert((*us, 0)).1 += count;
        }
        for (name, us) in &part.cpu_us_per_op {
            *cpu.entry(name).or_default() += us * part.ops / ops;
        }
        if let Some((checked, wrong)) = part.verified {
            let before = all.verified.unwrap_or_default();
            all.verified = Some((before.0 + checked, before.1 + wrong));
        }
    }
    all.cpu_us_per_op = cpu.into_iter().map(|(name, us)| (name.to_owned(), us)).collect();
    if parts.iter().all(|p| !p.histogram.is_empty()) {
        all.histogram = bins.into_values().collect();
        let at = |quantile| quantile_of_bins(&all.histogram, quantile);
        let (p50, p95, p99, p999) = (at(0.5), at(0.95), at(0.99), at(0.999));
        (all.latency.p50_us, all.latency.p95_us) = (p50, p95);
        (all.latency.p99_us, all.latency.p999_us) = (p99, p999);
    }
    let ceilings: Vec<f64> = parts.iter().filter_map(|p| p.ceiling_ops_per_s).collect();
    all.ceiling_ops_per_s = (ceilings.len() == parts.len()).then(|| ceilings.iter().sum());
    all.ops = parts.iter().map(|p| p.ops).sum();
    all.seconds = mean(&parts.iter().map(|p| p.seconds).collect::<Vec<_>>());
    let seconds = parts.iter().map(|p| p.series.len()).min().unwrap_or(0);
    for n in 0..seconds {
        let mut second = parts[0].series[n].clone();
        second.ops = parts.iter().map(|p| p.series[n].ops).sum();
        let means: Vec<f64> = parts.iter().filter_map(|p| p.series[n].mean_us).collect();
        second.mean_us = (!means.is_empty()).then(|| mean(&means));
        second.p99_us = None;
        all.series.push(second);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::Latency;

    #[test]
    fn hosts_are_merged_by_histogram() {
        let part = |ops: f64, us: f64| Measured {
            ops,
            ops_per_s: ops,
            seconds: 1.0,
            latency: Latency { mean_us: us, min_us: us, max_us: us, ..Latency::default() },
            histogram: vec![(us, ops as u64)],
            cpu_us_per_op: vec![("client".into(), us / 10.0)],
            ceiling_ops_per_s: Some(1e5),
            ..Measured::default()
        };
        let all = together(vec![part(990.0, 100.0), part(10.0, 9000.0)]);
        assert_eq!((all.ops_per_s, all.latency.mean_us), (1000.0, 189.0));
        assert_eq!((all.latency.p50_us, all.latency.p999_us), (Some(100.0), Some(9000.0)));
        assert_eq!(all.latency.p95_us, Some(100.0));
        assert_eq!(all.cpu_us_per_op, [("client".to_owned(), 18.9)]);
        assert_eq!(all.ceiling_ops_per_s, Some(2e5));
    }
}
