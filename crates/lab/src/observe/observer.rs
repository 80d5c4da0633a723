//! The sampling thread: the kernel every half second, monitors and daemons' counters every second.
//!
//! Its own cost is part of the host's and small: a few hundred small files a second for a handful of daemons.

use super::daemon::{self, Daemon};
use super::procfs::{self, Disk, Link, Process, Processors};
use crate::cluster::{Cluster, Login};
use crate::results::Sample;
use crate::tool::process::{CLIENTS, GIVE_UP};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);
/// The source of the whole host's values.
pub const HOST: &str = "host";
/// Daemons and monitors are asked every so many rounds.
const ASK_EVERY: u32 = 2;

pub struct Observer {
    daemons: Vec<Daemon>,
    /// Start of the load: the timeline's zero.
    began: Mutex<Instant>,
    has_begun: AtomicBool,
    /// The last reading of the counters is older than the load.
    is_stale: AtomicBool,
    /// A cluster that becomes full ends the load.
    must_write: AtomicBool,
    was_full: AtomicBool,
    samples: Mutex<Vec<Sample>>,
    stop: AtomicBool,
}

impl Observer {
    pub fn new(conf: &Path) -> Observer {
        Observer {
            daemons: daemon::find(&read_to_string(conf).unwrap_or_default()),
            began: Mutex::new(Instant::now()),
            has_begun: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
            must_write: AtomicBool::new(true),
            was_full: AtomicBool::new(false),
            samples: Mutex::new(Vec::new()),
            stop: AtomicBool::new(false),
        }
    }

    pub fn daemons(&self) -> &[Daemon] {
        &self.daemons
    }

    /// The load begins now. Drops earlier samples.
    pub fn begin(&self) {
        *self.began.lock().expect("no holder panics") = Instant::now();
        self.samples.lock().expect("no holder panics").clear();
        self.is_stale.store(true, Ordering::Release);
        self.has_begun.store(true, Ordering::Release);
    }

    /// The load has ended. Takes no more samples.
    pub fn end(&self) {
        let _held = self.samples.lock().expect("no holder panics");
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Samples of another host, from the same zero on. A daemon is the same wherever it was seen, and this
    /// host's own samples of it are enough; all other sources are named after that host: `host:b`, `b:eth0`, `client.b.0`.
    pub fn take_in(&self, host: &str, seen: Vec<Sample>) {
        let is_own = |source: &str| self.daemons.iter().any(|daemon| daemon.name == source);
        let mut samples = self.samples.lock().expect("no holder panics");
        samples.extend(seen.into_iter().filter(|s| !is_own(&s.source)).map(|s| {
            let source = match s.source.split_once('.') {
                Some(("client", n)) => format!("client.{host}.{n}"),
                Some(("osd" | "mon" | "mgr" | "mds", _)) => s.source,
                _ if s.source == HOST => format!("{HOST}:{host}"),
                _ => format!("{host}:{}", s.source),
            };
            Sample { source, ..s }
        }));
    }

    /// The load only reads, so a full cluster does not end it.
    pub fn only_reads(&self) {
        self.must_write.store(false, Ordering::Relaxed);
    }

    /// True if the load was ended because the cluster is full.
    pub fn was_full(&self) -> bool {
        self.was_full.load(Ordering::Relaxed)
    }

    /// Seconds since the load began; `None` before.
    pub fn load_s(&self) -> Option<f64> {
        self.has_begun
            .load(Ordering::Acquire)
            .then(|| self.began.lock().expect("no holder panics").elapsed().as_secs_f64())
    }

    /// Runs `work` while sampling; its result and the samples.
    pub fn during<T>(
        &self,
        login: &Login,
        conf: Option<&Path>,
        work: impl FnOnce() -> T,
    ) -> (T, Vec<Sample>) {
        let done = std::thread::scope(|scope| {
            scope.spawn(|| self.sample_kernel());
            scope.spawn(|| self.sample_daemons(conf.and_then(|conf| login.connect(conf).ok())));
            let done = work();
            self.stop.store(true, Ordering::Relaxed);
            done
        });
        (done, std::mem::take(&mut *self.samples.lock().expect("no holder panics")))
    }

    /// A value of now.
    pub fn add(&self, source: &str, metric: impl Into<String>, value: f64) {
        let at_s = self.began.lock().expect("no holder panics").elapsed().as_secs_f64();
        let sample = Sample { at_s, source: source.to_owned(), metric: metric.into(), value };
        self.samples.lock().expect("no holder panics").push(sample);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn pause(&self) {
        let until = Instant::now() + EVERY;
        while Instant::now() < until && !self.stopped() && !self.is_stale.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn sample_kernel(&self) {
        let mut before = Reading::take(&self.daemons);
        while !self.stopped() {
            self.pause();
            let now = Reading::take(&self.daemons);
            if !self.is_stale.swap(false, Ordering::AcqRel) {
                self.record_usage(&before, &now);
            }
            before = now;
        }
    }

    fn record_usage(&self, before: &Reading, now: &Reading) {
        let seconds = (now.at - before.at).as_secs_f64();
        if seconds < 0.1 {
            return;
        }
        let (a, b) = (&before.processors, &now.processors);
        let total =
            (b.busy_s + b.idle_s + b.wait_s + b.steal_s) - (a.busy_s + a.idle_s + a.wait_s + a.steal_s);
        let share = |value: f64| if total > 0.0 { value / total } else { 0.0 };
        self.add(HOST, "cpus", b.count as f64);
        self.add(HOST, "cpu_busy", share(b.busy_s - a.busy_s));
        self.add(HOST, "cpu_wait", share(b.wait_s - a.wait_s));
        self.add(HOST, "cpu_steal", share(b.steal_s - a.steal_s));
        self.add(HOST, "cpu_interrupt", share(b.interrupt_s - a.interrupt_s));
        self.add(HOST, "context_switches_per_s", (b.context_switches - a.context_switches) / seconds);
        let mut own_s = 0.0;
        for (name, process) in &now.processes {
            let Some(earlier) = before.processes.get(name) else { continue };
            let cpu_s = (process.cpu_s - earlier.cpu_s).max(0.0);
            own_s += cpu_s;
            self.add(name, "cpu_cores", cpu_s / seconds);
            self.add(
                name,
                "context_switches_per_s",
                (process.context_switches - earlier.context_switches).max(0.0) / seconds,
            );
            let used = process.threads.iter().map(|(id, (name, cpu_s))| {
                let earlier = earlier.threads.get(id).map_or(0.0, |(_, cpu_s)| *cpu_s);
                (name, (cpu_s - earlier) / seconds)
            });
            if let Some((thread, share)) = used.max_by(|a, b| a.1.total_cmp(&b.1)) {
                self.add(name, "thread_top", share);
                self.add(name, format!("thread:{thread}"), share);
            }
        }
        self.add(HOST, "cpu_others", ((b.busy_s - a.busy_s - own_s) / seconds).max(0.0));
        for (name, disk) in &now.disks {
            let earlier = before.disks.get(name).copied().unwrap_or(*disk);
            self.add(name, "disk_util", (disk.busy_s - earlier.busy_s) / seconds);
            self.add(name, "disk_ops_per_s", (disk.operations - earlier.operations) / seconds);
            self.add(name, "disk_bytes_per_s", (disk.bytes - earlier.bytes) / seconds);
        }
        for (name, link) in &now.links {
            let earlier = before.links.get(name).copied().unwrap_or(*link);
            let (received, sent) =
                ((link.received - earlier.received) / seconds, (link.sent - earlier.sent) / seconds);
            self.add(name, "net_received_per_s", received);
            self.add(name, "net_sent_per_s", sent);
            if let Some(rate) = link.rate {
                self.add(name, "net_share", received.max(sent) / rate);
            }
        }
    }

    fn sample_daemons(&self, mut cluster: Option<Box<dyn Cluster>>) {
        let mut before: BTreeMap<&str, BTreeMap<String, (f64, f64)>> = BTreeMap::new();
        let mut round = 0;
        while !self.stopped() {
            if round % ASK_EVERY == 0 {
                for daemon in self.daemons.iter().filter(|d| d.name.starts_with("osd.")) {
                    let Ok(dump) = daemon::ask(&daemon.socket, "perf dump") else { continue };
                    let now = daemon::averages(&dump);
                    if let Some(before) = before.get(daemon.name.as_str()) {
                        self.record_latencies(&daemon.name, before, &now);
                    }
                    self.add(
                        &daemon.name,
                        "throttle_full",
                        f64::from(u8::from(daemon::has_full_throttle(&dump))),
                    );
                    before.insert(&daemon.name, now);
                }
                if let Some(status) =
                    cluster.as_mut().and_then(|c| c.ask(json!({"prefix": "status", "format": "json"})).ok())
                {
                    for (source, metric, value) in of_status(&status) {
                        self.add(source, metric, value);
                    }
                    if is_full(&status) && self.must_write.load(Ordering::Relaxed) {
                        let _held = self.samples.lock().expect("no holder panics");
                        if !self.stopped() {
                            self.was_full.store(true, Ordering::Relaxed);
                            GIVE_UP.store(true, Ordering::Relaxed);
                        }
                    }
                }
            }
            round += 1;
            self.pause();
        }
    }

    fn record_latencies(
        &self,
        daemon: &str,
        before: &BTreeMap<String, (f64, f64)>,
        now: &BTreeMap<String, (f64, f64)>,
    ) {
        for (name, (count, sum)) in now {
            let (count_before, sum_before) = before.get(name).copied().unwrap_or_default();
            if *count > count_before {
                let mean_us = (sum - sum_before) / (count - count_before) * 1e6;
                self.add(daemon, format!("perf:{name}"), mean_us);
            }
        }
    }
}

/// True if `ceph -s` reports a full OSD. A pool of the lab's has no quota of its own.
pub fn is_full(status: &Value) -> bool {
    status["health"]["checks"].get("OSD_FULL").is_some()
}

/// The samples in the output of `ceph -s`: source, metric, value.
fn of_status(status: &Value) -> Vec<(&'static str, String, f64)> {
    let mut out = Vec::new();
    let pgs = &status["pgmap"];
    for state in pgs["pgs_by_state"].as_array().into_iter().flatten() {
        let name = state["state_name"].as_str().unwrap_or("unknown").to_owned();
        out.push(("pgs", name, state["count"].as_f64().unwrap_or(0.0)));
    }
    for key in ["recovering_objects_per_sec", "recovering_bytes_per_sec", "misplaced_ratio", "degraded_ratio"]
    {
        if let Some(value) = pgs[key].as_f64() {
            out.push(("cluster", key.to_owned(), value));
        }
    }
    let slow = &status["health"]["checks"]["SLOW_OPS"]["summary"]["count"];
    out.push(("cluster", "slow_ops".into(), slow.as_f64().unwrap_or(0.0)));
    if let Some(up) = status["osdmap"]["num_up_osds"].as_f64() {
        out.push(("cluster", "osds_up".into(), up));
    }
    out
}

struct Reading {
    at: Instant,
    processors: Processors,
    processes: BTreeMap<String, Process>,
    disks: BTreeMap<String, Disk>,
    links: BTreeMap<String, Link>,
}

impl Reading {
    fn take(daemons: &[Daemon]) -> Reading {
        let text = |path: &str| read_to_string(path).unwrap_or_default();
        let mut processes: BTreeMap<String, Process> =
            daemons.iter().filter_map(|d| Some((d.name.clone(), procfs::process(d.pid)?))).collect();
        let clients = CLIENTS.lock().expect("no holder panics").clone();
        for (n, pid) in clients.iter().enumerate() {
            if let Some(process) = procfs::process(*pid) {
                processes.insert(format!("client.{n}"), process);
            }
        }
        Reading {
            at: Instant::now(),
            processors: procfs::processors(&text("/proc/stat")),
            processes,
            disks: procfs::disks(&text("/proc/diskstats"), procfs::is_whole_disk),
            links: procfs::links(&text("/proc/net/dev"), procfs::link_speed_mbit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(source: &str) -> Sample {
        Sample { at_s: 1.0, source: source.into(), metric: "cpu_cores".into(), value: 0.5 }
    }

    #[test]
    fn samples_of_another_host_are_renamed() {
        let observer = Observer::new(Path::new("/dev/null"));
        observer.take_in("b", ["host", "osd.3", "client.0", "eth0"].map(sample).to_vec());
        let seen: Vec<String> = observer.samples.lock().unwrap().iter().map(|s| s.source.clone()).collect();
        assert_eq!(seen, ["host:b", "osd.3", "client.b.0", "b:eth0"]);
    }

    #[test]
    fn full_osd_marks_the_cluster_full() {
        let status = |check: &str| json!({"health": {"checks": {check: {}}}});
        assert!(is_full(&status("OSD_FULL")));
        assert!(!is_full(&status("POOL_FULL")) && !is_full(&json!({})));
    }
}
