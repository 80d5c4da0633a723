//! One point: its pool, what must be there before, the load, and what the tool says of it. All of it is gone after.

use super::pool;
use crate::hands::{Cluster, Hands};
use crate::judge::stats::mean;
use crate::load;
use crate::matrix::{Op, Pool, Spec, Tool};
use crate::observe::Observer;
use crate::results::Measured;
use crate::tool::process::{CLIENTS, rest, run, run_all, stopped};
use crate::tool::{fio, rados_bench};
use anyhow::{Context, bail, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

type Artifacts = Vec<(String, Vec<u8>)>;

pub fn measure(
    hands: &dyn Hands,
    conf: Option<&Path>,
    spec: &Spec,
    scratch: &Path,
    observer: &Observer,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    match (spec.tool, conf) {
        (Tool::Nothing, _) => {
            observer.begin();
            rest(spec.seconds);
            Ok(Measured { seconds: spec.seconds, ..Measured::default() })
        }
        (Tool::Fio, _) => disk(spec, scratch, observer, artifacts),
        (_, None) => bail!("this needs a cluster: --conf CEPH_CONF"),
        (_, Some(conf)) => {
            let conf = client_conf(conf, spec, scratch)?;
            in_a_pool(hands, &conf, spec, scratch, observer, artifacts)
        }
    }
}

/// The ceph.conf of stock clients of this point: the cluster's, with how connections are protected.
fn client_conf(conf: &Path, spec: &Spec, scratch: &Path) -> anyhow::Result<PathBuf> {
    if spec.mode == "default" {
        return Ok(conf.to_owned());
    }
    let text = std::fs::read_to_string(conf).with_context(|| conf.display().to_string())?;
    let mode = &spec.mode;
    let added = format!("\n[client]\nms_client_mode = {mode}\nms_mon_client_mode = {mode}\n");
    let path = scratch.join("client.conf");
    std::fs::write(&path, text + &added)?;
    Ok(path)
}

fn in_a_pool(
    hands: &dyn Hands,
    conf: &Path,
    spec: &Spec,
    scratch: &Path,
    observer: &Observer,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    let mut cluster = hands.connect(conf)?;
    let name = format!("{}{}", pool::PREFIX, super::host::new_id());
    let shape = spec.pool.clone().unwrap_or(Pool::Replicated { size: 1, pg_num: 32 });
    let outcome = pool::create(cluster.as_mut(), &name, &shape)
        .and_then(|()| options(cluster.as_mut(), spec, true))
        .and_then(|()| match spec.tool {
            Tool::RadosBench => objects(conf, &name, spec, observer, artifacts),
            Tool::FioRbd => images(conf, &name, spec, scratch, observer, artifacts),
            _ => own(hands, conf, &name, spec, observer),
        });
    // A connection of its own: the first may have broken with the cluster.
    let cleaned = hands.connect(conf).and_then(|mut cluster| {
        options(cluster.as_mut(), spec, false)?;
        pool::delete(cluster.as_mut(), &name)
    });
    let measured = outcome?;
    cleaned.context("cleaning up (shoal lab clean does it later)")?;
    Ok(measured)
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
    Ok(())
}

fn own(
    hands: &dyn Hands,
    conf: &Path,
    pool: &str,
    spec: &Spec,
    observer: &Observer,
) -> anyhow::Result<Measured> {
    let ceiling = load::ceiling(spec)?;
    *CLIENTS.lock().expect("no holder panics") = vec![std::process::id()];
    let measured = hands.load(conf, pool, spec, &mut || observer.begin());
    CLIENTS.lock().expect("no holder panics").clear();
    Ok(Measured { ceiling_ops_per_s: Some(ceiling), ..measured? })
}

fn patience(spec: &Spec) -> Duration {
    Duration::from_secs_f64((spec.seconds + spec.ramp_s) * 1.5 + 60.0)
}

fn objects(
    conf: &Path,
    pool: &str,
    spec: &Spec,
    observer: &Observer,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    ensure!(
        spec.op != Op::RandMixed,
        "rados bench does not mix reads and writes: use the tool shoal or fio-rbd"
    );
    if spec.op.reads() {
        // As long as the reads will take: in-order reads end where the objects end.
        run_all(
            rados_bench::commands(
                conf,
                pool,
                &Spec { depth: spec.depth.max(64), ..spec.clone() },
                Op::Write,
                spec.seconds,
            ),
            patience(spec),
        )
        .context("writing what will be read")?;
    } else if spec.ramp_s > 0.0 {
        run_all(rados_bench::commands(conf, pool, spec, Op::Write, spec.ramp_s), patience(spec))
            .context("warming up")?;
    }
    observer.begin();
    let finished = run_all(rados_bench::commands(conf, pool, spec, spec.op, spec.seconds), patience(spec))?;
    let mut parts = Vec::new();
    for (n, one) in finished.iter().enumerate() {
        artifacts.push((format!("rados-bench.{n}.txt"), one.output.clone().into_bytes()));
        parts.push(rados_bench::parse(&one.output, spec)?);
    }
    let mut all = together(parts);
    all.cpu_us_per_op =
        vec![("client".into(), finished.iter().map(|f| f.cpu_s).sum::<f64>() * 1e6 / all.ops)];
    Ok(all)
}

/// Several clients at the same time: rates add up, means are weighed, extremes are extremes.
fn together(parts: Vec<Measured>) -> Measured {
    let mut all = Measured::default();
    let ops: f64 = parts.iter().map(|p| p.ops).sum();
    all.latency.min_us = f64::INFINITY;
    for part in &parts {
        all.ops_per_s += part.ops_per_s;
        all.bytes_per_s += part.bytes_per_s;
        all.errors += part.errors;
        all.latency.mean_us += part.latency.mean_us * part.ops / ops;
        all.latency.min_us = all.latency.min_us.min(part.latency.min_us);
        all.latency.max_us = all.latency.max_us.max(part.latency.max_us);
    }
    all.ops = ops;
    all.seconds = mean(&parts.iter().map(|p| p.seconds).collect::<Vec<_>>());
    let seconds = parts.iter().map(|p| p.series.len()).min().unwrap_or(0);
    for n in 0..seconds {
        let mut second = parts[0].series[n].clone();
        second.ops = parts.iter().map(|p| p.series[n].ops).sum();
        let means: Vec<f64> = parts.iter().filter_map(|p| p.series[n].mean_us).collect();
        second.mean_us = (!means.is_empty()).then(|| mean(&means));
        all.series.push(second);
    }
    all
}

fn images(
    conf: &Path,
    pool: &str,
    spec: &Spec,
    scratch: &Path,
    observer: &Observer,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    ensure!(
        !matches!(spec.pool, Some(Pool::Erasure { .. })),
        "images need a replicated pool for their headers"
    );
    for client in 0..spec.clients {
        let mut create = Command::new("rbd");
        let size_mib = spec.volume_bytes.div_ceil(1 << 20).to_string();
        create.arg("-c").arg(conf).args([
            "create",
            "-p",
            pool,
            &fio::image_name(client),
            "--size",
            &size_mib,
        ]);
        run(create, Duration::from_secs(60)).context("making an image")?;
    }
    let image = fio::Image { pool, conf };
    run(fio::fill_command(spec, Some(&image)), Duration::from_secs(3600)).context("filling the images")?;
    with_fio(spec, Some(&image), scratch, observer, artifacts)
}

fn disk(
    spec: &Spec,
    scratch: &Path,
    observer: &Observer,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    let path = spec.path.as_deref().context("a path is missing")?;
    let existed = path.exists();
    let outcome = (|| {
        if !existed || (path.is_file() && std::fs::metadata(path)?.len() < spec.volume_bytes) {
            run(fio::fill_command(spec, None), Duration::from_secs(3600)).context("filling the file")?;
        }
        with_fio(spec, None, scratch, observer, artifacts)
    })();
    if !existed {
        drop(std::fs::remove_file(path));
    }
    outcome
}

fn with_fio(
    spec: &Spec,
    image: Option<&fio::Image<'_>>,
    scratch: &Path,
    observer: &Observer,
    artifacts: &mut Artifacts,
) -> anyhow::Result<Measured> {
    ensure!(!stopped(), "interrupted");
    let logs = scratch.join("fio");
    drop(std::fs::remove_dir_all(&logs));
    std::fs::create_dir_all(&logs)?;
    observer.begin();
    let finished = run(fio::command(spec, spec.op, image, &logs), patience(spec))?;
    artifacts.push(("fio.json".into(), finished.output.clone().into_bytes()));
    let mut measured = fio::parse(&finished.output, spec, &logs)?;
    measured.cpu_us_per_op = vec![("client".into(), finished.cpu_s * 1e6 / measured.ops)];
    Ok(measured)
}
