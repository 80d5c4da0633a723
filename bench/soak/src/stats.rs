//! Figures of a phase, and of the windows of time that it is divided into.

use crate::device::Counts;
use crate::driver::{Driver, Ended, Kind, histogram};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// Figures of operations between two moments.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub phase: String,
    pub ops: u64,
    pub seconds: f64,
    pub ops_per_second: f64,
    pub cpu_us_per_op: f64,
    /// By kind of operation, in microseconds.
    pub latency_us: BTreeMap<Kind, Percentiles>,
    /// Processor time of a call into the store, in microseconds.
    pub turn_us: Percentiles,
    /// Bytes written to the device for each byte of data or keys that a client wrote.
    pub write_amplification: f64,
    pub device_read_bytes: u64,
    pub device_write_bytes: u64,
    /// Memory that the store accounts for: memtables, caches, deferred data.
    pub store_memory_bytes: u64,
    /// Resident memory of the process without the model's.
    pub resident_bytes: u64,
    pub available_bytes: u64,
    pub index_bytes: u64,
    pub level_0_tables: u64,
    pub numbers_to_clean: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Percentiles {
    pub count: u64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Percentiles {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        let max = histogram.max() as f64 / 1e3;
        Percentiles { count: histogram.len(), p50: at(0.5), p99: at(0.99), p999: at(0.999), max }
    }
}

/// Gathers the figures of a window.
pub struct Window {
    latencies: BTreeMap<Kind, Histogram<u64>>,
    ops: u64,
    client_bytes: u64,
    began_ns: u64,
    device_before: Counts,
}

impl Window {
    pub fn new(driver: &mut Driver) -> Window {
        driver.take_turns();
        let (began_ns, device_before) = (driver.clock.now(), driver.device_counts());
        Window { latencies: BTreeMap::new(), ops: 0, client_bytes: 0, began_ns, device_before }
    }

    pub fn count_written(&mut self, bytes: u64) {
        self.client_bytes += bytes;
    }

    pub fn count(&mut self, ended: &Ended) {
        self.ops += 1;
        self.latencies.entry(ended.kind).or_insert_with(histogram).saturating_record(ended.latency_ns);
    }

    /// Ends the window.
    pub fn row(self, phase: &str, driver: &mut Driver) -> Row {
        let (cpu_ns, turns) = driver.take_turns();
        let seconds = (driver.clock.now() - self.began_ns) as f64 / 1e9;
        let (device, figures, usage) =
            (driver.device_counts() - self.device_before, driver.figures(), driver.usage());
        let ops = self.ops.max(1) as f64;
        Row {
            phase: phase.into(),
            ops: self.ops,
            seconds,
            ops_per_second: self.ops as f64 / seconds.max(1e-9),
            cpu_us_per_op: cpu_ns as f64 / 1e3 / ops,
            latency_us: self.latencies.iter().map(|(kind, times)| (*kind, Percentiles::of(times))).collect(),
            turn_us: Percentiles::of(&turns),
            write_amplification: device.write_bytes as f64 / self.client_bytes.max(1) as f64,
            device_read_bytes: device.read_bytes,
            device_write_bytes: device.write_bytes,
            store_memory_bytes: figures.memtables
                + figures.index_cache
                + figures.data_cache
                + figures.deferred,
            resident_bytes: resident_bytes().saturating_sub(driver.model_bytes()),
            available_bytes: usage.available,
            index_bytes: figures.tables,
            level_0_tables: figures.fresh_tables,
            numbers_to_clean: figures.numbers_to_clean,
        }
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}
