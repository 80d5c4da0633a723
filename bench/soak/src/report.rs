//! The report of a soak: a table for people, and JSON.

use crate::driver::Kind;
use crate::phases::{Lengths, Population};
use crate::stats::Row;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Report {
    pub device_bytes: u64,
    pub shards: usize,
    pub population: Population,
    pub lengths: Lengths,
    pub rows: Vec<Row>,
    /// From the last answer until the store has no background work left.
    pub settle_seconds: f64,
    /// The start after a kill, with the replay of the log.
    pub start_seconds: f64,
    pub start_cpu_seconds: f64,
    pub check_seconds: f64,
    pub check_cpu_seconds: f64,
    pub check_findings: usize,
    pub objects: u64,
    pub reads_verified: u64,
    pub data_bytes: u64,
    pub omap_bytes: u64,
    pub index_bytes: u64,
    pub resident_bytes_max: u64,
}

impl Report {
    fn latency(&self, phase: &str, pick: impl Fn(&crate::stats::Percentiles) -> f64) -> Option<f64> {
        let row = self.rows.iter().rev().find(|row| row.phase == phase)?;
        row.latency_us.get(&Kind::Write4k).map(pick)
    }

    /// p99.9 of 4 KiB writes of the aged store, over the empty store's.
    pub fn aged_over_empty(&self) -> Option<f64> {
        Some(self.latency("4k writes, aged", |l| l.p999)? / self.latency("4k writes, empty", |l| l.p999)?)
    }

    pub fn print(&self) {
        let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
        println!(
            "device {:.0} GiB, {} shards; {} objects, {:.1} GiB of data, {:.2} GiB of omap keys, {:.2} GiB of tables",
            gib(self.device_bytes),
            self.shards,
            self.objects,
            gib(self.data_bytes),
            gib(self.omap_bytes),
            gib(self.index_bytes)
        );
        println!(
            "{:<20} {:>9} {:>9} {:>7} {:>7} {:>7} {:>8} {:>8} {:>9} {:>6} {:>8} {:>8}",
            "phase",
            "ops",
            "op/s",
            "cpu us",
            "p50",
            "p99",
            "p99.9",
            "max ms",
            "turn ms",
            "w.amp",
            "mem MiB",
            "rss MiB"
        );
        for row in &self.rows {
            // Of the 4 KiB writes, or of the most frequent operation of a phase without them.
            let most = || row.latency_us.values().max_by_key(|latency| latency.count);
            let latency = row.latency_us.get(&Kind::Write4k).or_else(most).copied().unwrap_or_default();
            println!(
                "{:<20} {:>9} {:>9.0} {:>7.1} {:>7.0} {:>7.0} {:>8.0} {:>8.2} {:>9.2} {:>6.2} {:>8} {:>8}",
                row.phase,
                row.ops,
                row.ops_per_second,
                row.cpu_us_per_op,
                latency.p50,
                latency.p99,
                latency.p999,
                latency.max / 1e3,
                row.turn_us.max / 1e3,
                row.write_amplification,
                row.store_memory_bytes >> 20,
                row.resident_bytes >> 20,
            );
        }
        println!(
            "at rest after {:.1} s; start after a kill {:.2} s ({:.2} s of CPU); check {:.1} s ({:.1} s of CPU), {} findings; {} reads compared",
            self.settle_seconds,
            self.start_seconds,
            self.start_cpu_seconds,
            self.check_seconds,
            self.check_cpu_seconds,
            self.check_findings,
            self.reads_verified
        );
        if let Some(ratio) = self.aged_over_empty() {
            println!("p99.9 of 4 KiB writes, aged over empty: {ratio:.2}");
        }
    }
}
