//! fio: how is it called for images, devices and files, and what does its JSON say?

use crate::matrix::{Op, Spec, Tool};
use crate::results::record::{Latency, Measured, Second};
use crate::tool::release::Release;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Where an image engine finds its image.
pub struct Image<'a> {
    pub tools: &'a Release,
    pub pool: &'a str,
    pub conf: &'a Path,
}

pub fn image_name(client: u32) -> String {
    format!("shoal_lab_{client}")
}

fn fio(image: Option<&Image<'_>>) -> Command {
    image.map_or_else(|| Command::new("fio"), |image| image.tools.command("fio"))
}

/// One fio with a thread for each client. `logs` is a folder for its logs of each second.
pub fn command(spec: &Spec, op: Op, image: Option<&Image<'_>>, logs: &Path) -> Command {
    let mut command = fio(image);
    let mut arg = |key: &str, value: String| {
        command.arg(format!("--{key}={value}"));
    };
    arg("output-format", "json+".into());
    arg("thread", "1".into());
    arg("rw", op.name().into());
    if spec.sizes.is_empty() {
        arg("bs", spec.op_bytes.to_string());
    } else {
        arg("bssplit", split(&spec.sizes));
    }
    arg("iodepth", spec.depth.to_string());
    arg("runtime", format!("{}", spec.seconds.ceil()));
    arg("time_based", "1".into());
    arg("ramp_time", format!("{}", spec.ramp_s));
    arg("size", spec.volume_bytes.to_string());
    arg("randrepeat", "1".into());
    arg("norandommap", "1".into());
    arg("log_avg_msec", "1000".into());
    arg("write_iops_log", logs.join("fio").display().to_string());
    arg("write_lat_log", logs.join("fio").display().to_string());
    if op == Op::RandMixed {
        arg("rwmixread", spec.read_percent.to_string());
    }
    if spec.fsync > 0 {
        arg("fsync", spec.fsync.to_string());
    }
    match image {
        Some(image) => {
            arg("ioengine", "rbd".into());
            arg("pool", image.pool.into());
            arg("clientname", "admin".into());
            for client in spec.first_client..spec.first_client + spec.clients {
                command
                    .arg(format!("--name=client{client}"))
                    .arg(format!("--rbdname={}", image_name(client)));
            }
            // The engine reads no option for it.
            command.env("CEPH_CONF", image.conf);
        }
        None => {
            let path = spec.path.as_deref().unwrap_or(Path::new("")).display().to_string();
            arg("ioengine", "libaio".into());
            arg("direct", "1".into());
            arg("filename", path);
            arg("numjobs", spec.clients.to_string());
            arg("group_reporting", "1".into());
            command.arg("--name=disk");
        }
    }
    command
}

/// `4096/75:65536/25`: fio takes whole percents. The last share is the remainder to 100.
fn split(sizes: &[(u64, f64)]) -> String {
    let mut left = 100;
    let mut words = Vec::new();
    for (n, (bytes, share)) in sizes.iter().enumerate() {
        let percent = if n + 1 == sizes.len() { left } else { ((share * 100.0).round() as u64).min(left) };
        left -= percent;
        words.push(format!("{bytes}/{percent}"));
    }
    words.join(":")
}

/// Write the whole volume once, in large pieces.
pub fn fill_command(spec: &Spec, image: Option<&Image<'_>>) -> Command {
    let mut command = fio(image);
    command.args(["--output-format=json", "--thread=1", "--rw=write", "--bs=4M", "--iodepth=16"]);
    command.arg(format!("--size={}", spec.volume_bytes));
    match image {
        Some(image) => {
            command.args(["--ioengine=rbd", &format!("--pool={}", image.pool), "--clientname=admin"]);
            for client in spec.first_client..spec.first_client + spec.clients {
                command.arg(format!("--name=fill{client}")).arg(format!("--rbdname={}", image_name(client)));
            }
            command.env("CEPH_CONF", image.conf);
        }
        None => {
            let path = spec.path.as_deref().unwrap_or(Path::new("")).display().to_string();
            command.args(["--ioengine=libaio", "--direct=1", "--name=fill", &format!("--filename={path}")]);
        }
    }
    command
}

/// All jobs together, reads and writes together: their histograms are added, never their percentiles.
pub fn parse(output: &str, spec: &Spec, logs: &Path) -> anyhow::Result<Measured> {
    // Warnings may stand before the JSON.
    let start = output.find('{').context("fio printed no JSON")?;
    let report: Value = serde_json::from_str(&output[start..]).context("fio's JSON")?;
    let jobs = report["jobs"].as_array().context("fio's JSON has no jobs")?;
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    let mut out = Measured::default();
    let (mut sum_us, mut min_us, mut max_us) = (0.0, f64::INFINITY, 0.0f64);
    for job in jobs {
        out.errors += job["error"].as_u64().unwrap_or(0);
        for direction in ["read", "write"] {
            let part = &job[direction];
            let ops = part["total_ios"].as_f64().unwrap_or(0.0);
            if ops == 0.0 {
                continue;
            }
            out.ops += ops;
            out.ops_per_s += part["iops"].as_f64().unwrap_or(0.0);
            out.bytes_per_s += part["bw_bytes"].as_f64().unwrap_or(0.0);
            out.seconds = out.seconds.max(part["runtime"].as_f64().unwrap_or(0.0) / 1e3);
            let latency = &part["clat_ns"];
            sum_us += latency["mean"].as_f64().unwrap_or(0.0) / 1e3 * ops;
            min_us = min_us.min(latency["min"].as_f64().unwrap_or(0.0) / 1e3);
            max_us = max_us.max(latency["max"].as_f64().unwrap_or(0.0) / 1e3);
            for (ns, count) in latency["bins"].as_object().into_iter().flatten() {
                *bins.entry(ns.parse().unwrap_or(0)).or_default() += count.as_u64().unwrap_or(0);
            }
        }
    }
    ensure!(out.ops > 0.0, "fio did no operation");
    out.histogram = bins.iter().map(|(ns, count)| (*ns as f64 / 1e3, *count)).collect();
    let at = |quantile| crate::judge::stats::quantile_of_bins(&out.histogram, quantile);
    out.latency = Latency {
        mean_us: sum_us / out.ops,
        min_us,
        max_us,
        p50_us: at(0.5),
        p95_us: at(0.95),
        p99_us: at(0.99),
        p999_us: at(0.999),
    };
    out.series = series(logs, spec.ramp_s);
    Ok(out)
}

/// Adds up the logs of all jobs: `milliseconds, value, direction, block size, …` in each line.
fn series(logs: &Path, ramp_s: f64) -> Vec<Second> {
    let mut seconds: BTreeMap<u64, (f64, f64, f64)> = BTreeMap::new();
    for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_rate = name.contains("_iops.");
        if !is_rate && !name.contains("_clat.") {
            continue;
        }
        for line in std::fs::read_to_string(entry.path()).unwrap_or_default().lines() {
            let mut words = line.split(',').map(str::trim);
            let (Some(Ok(ms)), Some(Ok(value))) =
                (words.next().map(str::parse::<f64>), words.next().map(str::parse::<f64>))
            else {
                continue;
            };
            let second = seconds.entry((ms / 1e3).round() as u64).or_default();
            match is_rate {
                true => second.0 += value,
                false => (second.1, second.2) = (second.1 + value / 1e3, second.2 + 1.0),
            }
        }
    }
    let second = |(at, (ops, sum, n)): (u64, (f64, f64, f64))| Second {
        at_s: at as f64 + ramp_s,
        ops,
        mean_us: (n > 0.0).then(|| sum / n),
        p99_us: None,
    };
    seconds.into_iter().map(second).collect()
}

/// True if this point overwrites a block device.
pub fn overwrites_device(spec: &Spec) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_device = |path: &Path| std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    spec.tool == Tool::Fio && spec.op.writes() && spec.path.as_deref().is_some_and(is_device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_to_100_percent() {
        assert_eq!(split(&[(4096, 0.75), (65536, 0.25)]), "4096/75:65536/25");
        assert_eq!(split(&[(1, 1.0 / 3.0), (2, 1.0 / 3.0), (3, 1.0 / 3.0)]), "1/33:2/33:3/34");
    }

    #[test]
    fn fio_jobs_and_directions_are_summed() {
        let job = |reads: u64, ns: u64| {
            serde_json::json!({"error": 0,
                "read": {"total_ios": reads, "iops": reads as f64 / 2.0, "bw_bytes": reads * 2048, "runtime": 2000,
                    "clat_ns": {"mean": ns as f64, "min": ns, "max": ns, "bins": {(ns.to_string()): reads}}},
                "write": {"total_ios": 0}})
        };
        let text =
            format!("a warning\n{}", serde_json::json!({"jobs": [job(900, 10_000), job(100, 1_000_000)]}));
        let measured = parse(&text, &Spec::default(), Path::new("/nonexistent")).unwrap();
        assert_eq!((measured.ops, measured.ops_per_s, measured.seconds), (1000.0, 500.0, 2.0));
        assert_eq!(measured.latency.p50_us, Some(10.0));
        assert_eq!(measured.latency.p99_us, Some(1000.0));
        assert_eq!(measured.latency.mean_us, 109.0);
        assert!(parse("{\"jobs\": []}", &Spec::default(), Path::new("/x")).is_err());
    }
}
