//! One point: its pool, the load of this host or of many, faults meanwhile. All of it is gone after.

use super::clients::Clients;
use super::faults::Faults;
use super::part::{self, Artifacts, ClientFolder, Part, Pools};

use super::pool;
use super::watchers::Watchers;
use crate::cluster::{Cluster, Login};
use crate::deploy::Running;
use crate::matrix::{OtherHosts, Pool, Spec, Tool};
use crate::observe::Observer;
use crate::results::Measured;
use crate::tool::network;
use crate::tool::process::{GIVE_UP, rest};
use anyhow::{Context, bail, ensure};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Where a point is measured.
pub struct Place<'a> {
    pub login: &'a Login,
    pub cluster: Option<&'a Running<'a>>,
    /// The hosts that make the load; `None`: this one.
    pub hosts: Option<&'a OtherHosts>,
    pub watched: Option<&'a OtherHosts>,
    pub scratch: &'a Path,
}

pub fn measure(
    place: &Place<'_>,
    spec: &Spec,
    observer: &Observer,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    let mut begin = || {
        observer.begin();
        Ok(())
    };
    match (spec.tool, place.cluster) {
        (Tool::Nothing, _) => {
            begin()?;
            rest(spec.seconds);
            Ok(Measured { seconds: spec.seconds, ..Measured::default() })
        }
        (Tool::Fio, _) => part::disk(spec, place.scratch, &mut begin, artifacts),
        (Tool::TcpPing | Tool::TcpStream | Tool::Iperf3, _) => {
            let (measured, raw) = network::measure(spec, &mut begin)?;
            artifacts.extend(raw);
            Ok(measured)
        }
        (_, None) => bail!("this needs a cluster: --conf CEPH_CONF"),
        (_, Some(cluster)) => in_a_pool(place, cluster, spec, observer, artifacts),
    }
}

fn in_a_pool(
    place: &Place<'_>,
    running: &Running<'_>,
    spec: &Spec,
    observer: &Observer,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    let (login, conf) = (place.login, running.conf.as_path());
    let faults = Faults::plan(spec, running)?;
    let mut cluster = login.connect(conf)?;
    let id = super::host::new_id();
    let shape = spec.pool.clone().unwrap_or(Pool::Replicated { size: 1, pg_num: 32 });
    let headers = spec.tool == Tool::FioRbd && matches!(shape, Pool::Erasure { .. });
    let pools = Pools {
        data: format!("{}{id}", pool::PREFIX),
        headers: headers.then(|| format!("{}{id}-headers", pool::PREFIX)),
    };
    let outcome = pools
        .headers
        .as_ref()
        .map_or(Ok(()), |name| {
            pool::create(cluster.as_mut(), name, &Pool::Replicated { size: 1, pg_num: 8 }, false)
        })
        .and_then(|()| pool::create(cluster.as_mut(), &pools.data, &shape, spec.tool != Tool::RadosBench))
        .and_then(|()| options(cluster.as_mut(), spec, true))
        .and_then(|()| faults.during(observer, || load(place, running, &pools, spec, observer, artifacts)));
    observer.end();
    GIVE_UP.store(false, Ordering::Relaxed);
    const FULL: &str = "the cluster is full: free space, raise the ratios, or use less of it";
    let outcome = match observer.was_full() {
        // How the load ended when it was stopped says nothing more.
        true => Err(anyhow::anyhow!("{FULL}")),
        false => outcome.map_err(|error| match pool::is_full(login, conf) {
            true => error.context(FULL),
            false => error,
        }),
    };
    // What was killed comes back before anything else is asked of the cluster.
    let mended = faults.mend(login, conf);
    // A connection of its own: the first may have broken with the cluster.
    let cleaned = login.connect(conf).and_then(|mut cluster| {
        options(cluster.as_mut(), spec, false)?;
        pool::delete(cluster.as_mut(), &pools.data)?;
        pools.headers.as_ref().map_or(Ok(()), |name| pool::delete(cluster.as_mut(), name))
    });
    let measured = outcome?;
    let lost = match measured.unanswered {
        0 => String::new(),
        n => format!("{n} operations were never answered: the cluster went away under the load; "),
    };
    mended.with_context(|| format!("{lost}after the faults"))?;
    cleaned.with_context(|| format!("{lost}cleaning up (shoal lab clean does it later)"))?;
    ensure!(measured.unanswered == 0 || measured.ops_per_s > 0.0, "{lost}nothing was measured");
    Ok(measured)
}

fn load(
    place: &Place<'_>,
    running: &Running<'_>,
    pools: &Pools,
    spec: &Spec,
    observer: &Observer,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    let conf = std::fs::read_to_string(&running.conf).with_context(|| running.conf.display().to_string())?;
    let keyring = place.login.keyring_text(&running.conf)?;
    let mut watchers = Watchers::connect(place.watched, &conf)?;
    let mut begin = || {
        watchers.begin();
        observer.begin();
        if !spec.op.writes() {
            observer.only_reads();
        }
        Ok(())
    };
    let measured = (|| {
        if let Some(hosts) = place.hosts {
            let mut clients = Clients::connect(hosts)?;
            return clients.load(&conf, &keyring, pools, spec, &mut begin, observer, artifacts);
        }
        let dir = place.scratch.join("client");
        let client = ClientFolder::make(&dir, &conf, &keyring, &spec.mode, running.tools.clone())?;
        Part { login: place.login, client: &client, pools, spec }.load(&mut begin, artifacts)
    })();
    observer.end();
    watchers.end(observer);
    measured
}

fn options(cluster: &mut dyn Cluster, spec: &Spec, on: bool) -> anyhow::Result<()> {
    for (name, value) in &spec.options {
        cluster.ask(match on {
            true => json!({"prefix": "config set", "who": "osd", "name": name, "value": value}),
            false => json!({"prefix": "config rm", "who": "osd", "name": name}),
        })?;
    }
    if on && !spec.options.is_empty() {
        rest(1.0);
    }
    ensure!(!crate::tool::process::stopped() || !on, "interrupted");
    Ok(())
}
