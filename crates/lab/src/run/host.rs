//! The description of the host that a run keeps, so that a figure can be judged years later.

use serde_json::{Value, json};
use std::fs::read_to_string;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Sorts by time, and two hosts or two processes do not give the same.
pub fn new_id() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let host = read_to_string("/etc/machine-id").unwrap_or_default();
    let mix = host.bytes().fold(u64::from(std::process::id()), |h, b| h.wrapping_mul(31) + u64::from(b));
    format!("{:x}{:03x}", nanos / 1_000_000, (mix ^ (nanos as u64)) & 0xfff)
}

fn first_line(path: &str) -> String {
    read_to_string(path).unwrap_or_default().lines().next().unwrap_or("").trim().to_owned()
}

fn version_of(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

pub fn describe() -> Value {
    let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':').map(|(_, v)| v.trim()));
    let memory = first_line("/proc/meminfo");
    json!({
        "hostname": first_line("/proc/sys/kernel/hostname"),
        "kernel": first_line("/proc/sys/kernel/osrelease"),
        "cpu": model,
        "cpus": cpuinfo.lines().filter(|l| l.starts_with("processor")).count(),
        "memory": memory.trim_start_matches("MemTotal:").trim(),
        "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "shoal": env!("CARGO_PKG_VERSION"),
        "rados": version_of("rados", "--version"),
        "fio": version_of("fio", "--version"),
        "pid": std::process::id(),
    })
}

/// True if the process that began a run still runs.
pub fn is_alive(pid: &Value) -> bool {
    pid.as_u64().is_some_and(|pid| {
        read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "shoal")
    })
}
