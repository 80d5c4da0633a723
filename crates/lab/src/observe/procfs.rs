//! Counters of processors, processes, disks and links, read from `/proc` and `/sys`.

use crate::tool::process::TICKS_PER_S;
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;

/// Of the whole host, in seconds of one processor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processors {
    pub count: usize,
    pub busy_s: f64,
    pub idle_s: f64,
    pub wait_s: f64,
    pub steal_s: f64,
    pub interrupt_s: f64,
    pub context_switches: f64,
}

/// Reads `/proc/stat`.
pub fn processors(stat: &str) -> Processors {
    let mut out = Processors::default();
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or("");
        let values: Vec<f64> = words.map_while(|w| w.parse().ok()).collect();
        if name == "cpu" && values.len() >= 8 {
            let seconds = |n: usize| values[n] / TICKS_PER_S;
            out.idle_s = seconds(3);
            out.wait_s = seconds(4);
            out.interrupt_s = seconds(5) + seconds(6);
            out.steal_s = seconds(7);
            out.busy_s = seconds(0) + seconds(1) + seconds(2) + out.interrupt_s;
        } else if name.starts_with("cpu") {
            out.count += 1;
        } else if name == "ctxt" {
            out.context_switches = values.first().copied().unwrap_or(0.0);
        }
    }
    out
}

/// One process: its time, and that of each thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    pub cpu_s: f64,
    pub threads: BTreeMap<u32, (String, f64)>,
    pub context_switches: f64,
}

/// `None` once it is gone.
pub fn process(pid: u32) -> Option<Process> {
    let mut out = Process { cpu_s: crate::tool::process::cpu_seconds(pid)?, ..Process::default() };
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Ok(stat) = read_to_string(entry.path().join("stat")) else { continue };
        if let Some((name, cpu_s)) = thread(&stat) {
            out.threads.insert(id, (name, cpu_s));
        }
        let status = read_to_string(entry.path().join("status")).unwrap_or_default();
        let switches = status.lines().filter(|l| l.contains("ctxt_switches:"));
        out.context_switches +=
            switches.filter_map(|l| l.rsplit(['\t', ' ']).next()?.parse::<f64>().ok()).sum::<f64>();
    }
    Some(out)
}

/// A thread's name and its seconds, of its `stat`.
fn thread(stat: &str) -> Option<(String, f64)> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let fields: Vec<&str> = stat.get(close + 2..)?.split(' ').collect();
    let ticks: f64 = fields.get(11..13)?.iter().filter_map(|f| f.parse::<f64>().ok()).sum();
    Some((stat[open + 1..close].to_owned(), ticks / TICKS_PER_S))
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disk {
    pub operations: f64,
    pub bytes: f64,
    pub busy_s: f64,
}

/// Reads `/proc/diskstats`: whole disks that have ever worked. Loop and RAM disks are left out.
pub fn disks(diskstats: &str, is_whole: impl Fn(&str) -> bool) -> BTreeMap<String, Disk> {
    let mut out = BTreeMap::new();
    for line in diskstats.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), true) = (words.get(2), words.len() >= 13) else { continue };
        let value = |n: usize| words[n].parse::<f64>().unwrap_or(0.0);
        let operations = value(3) + value(7);
        if operations == 0.0 || name.starts_with("loop") || name.starts_with("ram") || !is_whole(name) {
            continue;
        }
        let bytes = (value(5) + value(9)) * 512.0;
        out.insert((*name).to_owned(), Disk { operations, bytes, busy_s: value(12) / 1e3 });
    }
    out
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    pub received: f64,
    pub sent: f64,
    /// Bytes a second it can carry each way; `None` where it says nothing (loopback, virtual).
    pub rate: Option<f64>,
}

/// Reads `/proc/net/dev`.
pub fn links(dev: &str, speed_mbit: impl Fn(&str) -> Option<f64>) -> BTreeMap<String, Link> {
    let mut out = BTreeMap::new();
    for line in dev.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let values: Vec<f64> = rest.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        let name = name.trim();
        if values.len() >= 9 && values[0] + values[8] > 0.0 {
            let rate = speed_mbit(name).filter(|s| *s > 0.0).map(|s| s * 1e6 / 8.0);
            out.insert(name.to_owned(), Link { received: values[0], sent: values[8], rate });
        }
    }
    out
}

pub fn is_whole_disk(name: &str) -> bool {
    Path::new("/sys/block").join(name).exists()
}

pub fn link_speed_mbit(name: &str) -> Option<f64> {
    read_to_string(format!("/sys/class/net/{name}/speed")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_proc_files_are_read() {
        let stat = "cpu  100 0 50 800 20 1 4 25 0 0\ncpu0 50 0 25 400 10 0 2 12 0 0\ncpu1 50 0 25 400 10 1 2 13 0 0\nctxt 999\n";
        let read = processors(stat);
        assert_eq!((read.count, read.steal_s, read.idle_s, read.context_switches), (2, 0.25, 8.0, 999.0));
        assert!((read.busy_s - 1.55).abs() < 1e-9);
        let disks = disks(
            "   7 0 loop0 9 0 8 1 9 0 8 1 0 5 6\n 259 0 nvme0n1 100 0 800 10 300 0 2400 20 0 1500 30 0 0 0 0 0 0\n",
            |_| true,
        );
        assert_eq!(disks.len(), 1);
        assert_eq!(disks["nvme0n1"], Disk { operations: 400.0, bytes: 1_638_400.0, busy_s: 1.5 });
        let links =
            links("Inter-|\n face |\n  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n", |_| Some(10_000.0));
        assert_eq!(links["eth0"], Link { received: 1000.0, sent: 500.0, rate: Some(1.25e9) });
        assert_eq!(
            thread("12 (msgr (x) 0) S 1 1 1 0 -1 0 0 0 0 0 30 20 0 0"),
            Some(("msgr (x) 0".into(), 0.5))
        );
    }

    #[test]
    fn own_process_is_read() {
        let own = process(std::process::id()).unwrap();
        assert!(!own.threads.is_empty() && own.context_switches > 0.0);
        assert_eq!(process(u32::MAX), None);
    }
}
