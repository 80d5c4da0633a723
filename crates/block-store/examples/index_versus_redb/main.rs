//! Comparison of the index with redb, on the same device with the same work: `cargo run --release -p block-store --example
//! index_versus_redb -- FILE [THOUSANDS OF OBJECTS] [ours|redb|redb-gathered]`. Prints the table of the decision note.
//!
//! Each candidate has the same total memory, gets the same changes and queries from the same seed, and makes them durable at
//! the same moments: a store has a log, so its index must be durable at checkpoints only.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

mod file;
mod ours;
mod redbs;
mod work;

use std::path::PathBuf;

/// Memory of a candidate: memtables and caches.
const MEMORY_BYTES: usize = 96 << 20;
/// Bytes of changes between two checkpoints.
const CHECKPOINT_BYTES: u64 = 32 << 20;

type Changes = Vec<(Vec<u8>, Option<bytes::Bytes>)>;

/// An ordered map with checkpoints.
trait Candidate {
    fn name(&self) -> &'static str;
    fn apply(&mut self, changes: Changes);
    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>>;
    /// Visits up to `count` entries from a key on. Returns their number.
    fn scan(&mut self, from: &[u8], to: &[u8], count: usize) -> usize;
    /// Makes all applied changes durable.
    fn checkpoint(&mut self);
    /// Waits until background work is done.
    fn settle(&mut self) {}
    /// Stops cleanly and opens again.
    fn reopen(&mut self);
    /// Device space in use.
    fn space(&self) -> u64;
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().unwrap_or_else(|| "index_versus_redb.img".into()));
    let objects = args.next().map_or(500, |n| n.parse().expect("a number of thousands")) * 1000;
    let only = args.next();
    println!(
        "{objects} objects, {} MiB of memory, checkpoints every {} MiB",
        MEMORY_BYTES >> 20,
        CHECKPOINT_BYTES >> 20
    );
    for name in ["ours", "redb", "redb-gathered"] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let device = file::FileDevice::create(&path, 16 << 30);
        let counts = device.counts();
        match name {
            "ours" => work::run(&mut ours::Ours::new(device), &counts, objects),
            "redb" => work::run(&mut redbs::Redb::new(device, false), &counts, objects),
            _ => work::run(&mut redbs::Redb::new(device, true), &counts, objects),
        }
        std::fs::remove_file(&path).expect("the file that was just made");
    }
}
