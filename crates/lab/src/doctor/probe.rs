//! Probes of properties that no file tells: round trips to other hosts, synchronous writes to disks.

use crate::matrix::{Spec, Tool};
use crate::tool::network;
use crate::tool::process::run;
use anyhow::Context;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Probes {
    pub pings: Vec<Ping>,
    pub disks: Vec<Disk>,
    /// `(host, streams, Gbit/s)`
    pub streams: Vec<(String, u32, f64)>,
}

/// Round trips to one host in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ping {
    pub host: String,
    pub sent: usize,
    pub round_trips_ms: Vec<f64>,
}

/// Synchronous 4 KiB writes a second by so many jobs.
#[derive(Clone, Debug, Serialize)]
pub struct Disk {
    pub path: PathBuf,
    /// Of the drive below, as far as the kernel tells; empty where it does not.
    pub model: String,
    pub jobs: u32,
    pub writes_per_s: f64,
}

const PINGS: usize = 50;

/// By `ping`; where that is not installed, by the lab's own messages to the agent that serves there.
pub fn ping(host: &str) -> anyhow::Result<Ping> {
    let output = Command::new("ping")
        .args(["-n", "-c", &PINGS.to_string(), "-i", "0.02", "-w", "5", host])
        .env("LC_ALL", "C")
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return network::round_trips_ms(host, PINGS)
                .map(|round_trips_ms| Ping { host: host.to_owned(), sent: PINGS, round_trips_ms })
                .context("ping is not installed, and no `shoal lab agent --serve` answers there");
        }
        other => other.context("ping cannot be started")?,
    };
    Ok(Ping {
        host: host.to_owned(),
        sent: PINGS,
        round_trips_ms: round_trips(&String::from_utf8_lossy(&output.stdout)),
    })
}

/// Of `64 bytes from …: icmp_seq=1 ttl=64 time=0.061 ms`
pub fn round_trips(output: &str) -> Vec<f64> {
    let times = output.lines().filter_map(|l| l.split_once(" time=")?.1.split(' ').next()?.parse().ok());
    times.collect()
}

/// With one and with four streams: against the lab's own agent where it serves there, else with iperf3 where that is
/// installed here and serves there; nothing otherwise.
pub fn streams(host: &str) -> Vec<(String, u32, f64)> {
    let counts = [1, 4];
    let own = counts.map(|streams| Some((host.to_owned(), streams, own_stream(host, streams)?)));
    match own.iter().any(Option::is_some) {
        true => own.into_iter().flatten().collect(),
        false => counts
            .into_iter()
            .filter_map(|streams| Some((host.to_owned(), streams, iperf3_stream(host, streams)?)))
            .collect(),
    }
}

fn own_stream(host: &str, streams: u32) -> Option<f64> {
    let spec = Spec {
        tool: Tool::TcpStream,
        clients: streams,
        op_bytes: 128 << 10,
        seconds: 2.0,
        ramp_s: 0.0,
        to: Some(host.to_owned()),
        ..Spec::default()
    };
    let (measured, _) = network::measure(&spec, &mut || Ok(())).ok()?;
    Some(measured.bytes_per_s * 8.0 / 1e9).filter(|gbit| *gbit > 0.0)
}

fn iperf3_stream(host: &str, streams: u32) -> Option<f64> {
    let mut command = Command::new("iperf3");
    command.args(["-c", host, "-J", "-t", "3", "-P", &streams.to_string()]);
    let output = run(command, Duration::from_secs(20)).ok()?.output;
    let report: serde_json::Value = serde_json::from_str(&output).ok()?;
    Some(report["end"]["sum_received"]["bits_per_second"].as_f64()? / 1e9)
}

/// Writes a file of the probe's own in this folder and removes it. Never a device, because that would destroy its data.
pub fn disk(dir: &Path, seconds: u32) -> anyhow::Result<Vec<Disk>> {
    anyhow::ensure!(
        dir.is_dir(),
        "{} is no folder: the probe writes a file of its own into one",
        dir.display()
    );
    let file = dir.join(format!(".shoal-lab-doctor-{}", std::process::id()));
    let model = model(Path::new("/"), dir).unwrap_or_default();
    let one = |jobs: u32| {
        let mut fio = Command::new("fio");
        fio.args(["--output-format=json", "--direct=1", "--fsync=1", "--rw=write", "--bs=4k", "--iodepth=1"]);
        fio.args(["--time_based", "--group_reporting", "--size=64M", "--ioengine=psync", "--thread=1"]);
        fio.arg(format!("--filename={}", file.display())).arg(format!("--numjobs={jobs}"));
        fio.arg(format!("--runtime={seconds}")).arg(format!("--name=4k-sync-write-{jobs}"));
        let output = run(fio, Duration::from_secs(u64::from(seconds) + 60))?.output;
        let start = output.find('{').context("fio printed no JSON")?;
        let report: serde_json::Value = serde_json::from_str(&output[start..])?;
        let writes_per_s = report["jobs"][0]["write"]["iops"].as_f64().context("fio printed no rate")?;
        Ok(Disk { path: dir.to_owned(), model: model.clone(), jobs, writes_per_s })
    };
    let all = [1, 2, 4, 8, 16].into_iter().map(one).collect();
    drop(std::fs::remove_file(&file));
    all
}

/// The model of the drive that a folder lies on: its device's number leads to the drive, or to a partition of it.
fn model(root: &Path, dir: &Path) -> Option<String> {
    let device = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(dir).ok()?);
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let block = std::fs::canonicalize(root.join(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    let drive = if block.join("partition").exists() { block.parent()?.to_owned() } else { block };
    Some(std::fs::read_to_string(drive.join("device/model")).ok()?.trim().to_owned())
}

/// The clocks while a processor works: at rest they tell nothing of what can be reached.
pub fn mhz_under_load() -> Vec<f64> {
    use std::sync::atomic::{AtomicBool, Ordering};
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        done.store(true, Ordering::Relaxed);
        super::inventory::cpuinfo_mhz(&text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_measured_against_the_agent() {
        let server = network::Server::start("127.0.0.1:0").unwrap();
        let gbit = own_stream(&server.address().to_string(), 4).unwrap();
        assert!((0.01..10_000.0).contains(&gbit), "{gbit}");
        let gone = server.address().to_string();
        let trips = network::round_trips_ms(&gone, 20).unwrap();
        assert!(trips.len() == 20 && trips.iter().all(|ms| (0.001..1000.0).contains(ms)), "{trips:?}");
        drop(server);
        assert!(network::round_trips_ms(&gone, 1).is_err());
        assert_eq!(own_stream(&gone, 1), None);
    }

    #[test]
    fn clock_of_a_busy_processor_is_read() {
        let mhz = mhz_under_load();
        assert!(mhz.iter().all(|mhz| (100.0..10_000.0).contains(mhz)), "{mhz:?}");
    }
}
