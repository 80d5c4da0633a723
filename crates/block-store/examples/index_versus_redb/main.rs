//! The index of our own against redb, on the same device and the same work: `cargo run --release -p block-store --example
//! index_versus_redb -- FILE [THOUSANDS OF OBJECTS] [ours|redb|redb-gathered]`. Prints the table of the decision note.
//!
//! Each candidate has the same memory in all, sees the same changes and questions from the same seed, and makes what it
//! was told durable at the same moments: an engine has a log, so its index must be durable at checkpoints only.

mod file;
mod ours;
mod redbs;
mod work;

use std::path::PathBuf;

/// All a candidate may hold: memtables and caches.
const MEMORY_BYTES: usize = 96 << 20;
/// Of changes, between two checkpoints.
const CHECKPOINT_BYTES: u64 = 32 << 20;

type Changes = Vec<(Vec<u8>, Option<bytes::Bytes>)>;

/// An ordered map that is made durable now and then.
trait Candidate {
    fn name(&self) -> &'static str;
    fn apply(&mut self, changes: Changes);
    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>>;
    /// Visit up to `count` entries from a key on; how many there were.
    fn scan(&mut self, from: &[u8], to: &[u8], count: usize) -> usize;
    /// All applied so far survives a power cut when this returns.
    fn checkpoint(&mut self);
    /// Nothing is left to be done in the background.
    fn settle(&mut self) {}
    /// Stop cleanly and open again.
    fn reopen(&mut self);
    /// Of the device.
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
