//! The work of a store on its index, in phases with separate costs.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

use crate::file::Counts;
use crate::{CHECKPOINT_BYTES, Candidate, Changes};
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PGS: u64 = 64;
/// Entries of a PG log.
const LOG_LEN: u64 = 3000;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = mix(self.0);
        ((z as u128 * end as u128) >> 64) as u64
    }
}

fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A key like that of an object: pool, hash, name.
fn object_key(i: u64) -> Vec<u8> {
    let mut key = vec![2, 0, 0, 0, 0, 0, 0, 0, 3, 0];
    key.extend_from_slice(&(mix(i) as u32).to_be_bytes());
    key.extend_from_slice(format!("\0\0rbd_data.1f3a6b8b4567.{i:016x}\0head").as_bytes());
    key
}

fn extent_key(object: u64, page: u64) -> Vec<u8> {
    [&[3][..], &object.to_be_bytes(), &(page as u32).to_be_bytes()].concat()
}

fn log_key(pg: u64, version: u64) -> Vec<u8> {
    [&[4][..], &pg.to_be_bytes(), format!("{:010}.{version:020}", 17).as_bytes()].concat()
}

fn info_key(pg: u64) -> Vec<u8> {
    [&[4][..], &pg.to_be_bytes(), b"_info"].concat()
}

fn value(seed: u64, len: usize) -> Option<Bytes> {
    let mut out = vec![0; len];
    out.chunks_mut(8).enumerate().for_each(|(i, chunk)| {
        let word = mix(seed ^ (i as u64) << 48).to_le_bytes();
        let n = chunk.len();
        chunk.copy_from_slice(&word[..n]);
    });
    Some(out.into())
}

fn bytes(changes: &Changes) -> u64 {
    changes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len)).sum::<usize>() as u64
}

pub fn run(candidate: &mut dyn Candidate, counts: &Arc<Mutex<Counts>>, objects: u64) {
    println!("\n{}", candidate.name());
    println!("{:34} {:>9} {:>9} {:>9} {:>9} {:>8}", "", "CPU us", "wall us", "read KiB", "reads", "written");
    println!("{:34} {:>9} {:>9} {:>9} {:>9} {:>8}", "", "/op", "/op", "/op", "/op", "/changed");
    let mut dice = Dice(7);
    let mut since_checkpoint = 0;
    let mut apply = |candidate: &mut dyn Candidate, changes: Changes| {
        let len = bytes(&changes);
        candidate.apply(changes);
        since_checkpoint += len;
        if since_checkpoint > CHECKPOINT_BYTES {
            candidate.checkpoint();
            since_checkpoint = 0;
        }
        len
    };

    let phase = Phase::begin("create objects (2 puts)", counts);
    let mut changed = 0;
    for i in 0..objects {
        let puts = vec![(object_key(i), value(i, 250)), (extent_key(i, 0), value(!i, 60))];
        changed += apply(candidate, puts);
    }
    candidate.checkpoint();
    candidate.settle();
    phase.end(objects, changed);

    let writes = objects / 2;
    let phase = Phase::begin("client writes (4 puts, 1 delete)", counts);
    let (mut changed, mut versions) = (0, [0; PGS as usize]);
    for n in 0..writes {
        let object = dice.below(objects);
        let pg = mix(object) % PGS;
        let version = &mut versions[pg as usize];
        *version += 1;
        let mut changes = vec![
            (log_key(pg, *version), value(n, 180)),
            (object_key(object), value(n, 250)),
            (extent_key(object, dice.below(64)), value(!n, 200)),
            (info_key(pg), value(n, 400)),
        ];
        if *version > LOG_LEN / 4 {
            changes.push((log_key(pg, *version - LOG_LEN / 4), None));
        }
        changed += apply(candidate, changes);
    }
    candidate.checkpoint();
    candidate.settle();
    phase.end(writes, changed);
    println!("{:34} {:>9} MiB", "on the device", candidate.space() >> 20);

    let phase = Phase::begin("open again", counts);
    candidate.reopen();
    phase.end(1, 0);

    let lookups = 50_000;
    let phase = Phase::begin("look-ups beyond the cache", counts);
    for _ in 0..lookups {
        let found = candidate.get(&object_key(dice.below(objects)));
        assert_eq!(found.map(|value| value.len()), Some(250));
    }
    phase.end(lookups, 0);

    let phase = Phase::begin("look-ups of absent keys", counts);
    for i in 0..lookups {
        assert!(candidate.get(&object_key(objects + i)).is_none());
    }
    phase.end(lookups, 0);

    let hot: Vec<_> = (0..2000).map(|_| object_key(dice.below(objects))).collect();
    hot.iter().for_each(|key| drop(candidate.get(key)));
    let phase = Phase::begin("look-ups in the cache", counts);
    for i in 0..300_000 {
        assert!(candidate.get(&hot[i % hot.len()]).is_some());
    }
    phase.end(300_000, 0);

    let phase = Phase::begin("scans of 100 from anywhere", counts);
    for _ in 0..2000 {
        let from = object_key(dice.below(objects));
        std::hint::black_box(candidate.scan(&from, &[3], 100));
    }
    phase.end(2000, 0);

    let phase = Phase::begin("all objects in order", counts);
    let seen = candidate.scan(&[2], &[3], usize::MAX);
    assert_eq!(seen as u64, objects);
    phase.end(objects, 0);
}

struct Phase {
    name: &'static str,
    counts: Arc<Mutex<Counts>>,
    before: Counts,
    wall: Instant,
    cpu: Duration,
}

impl Phase {
    fn begin(name: &'static str, counts: &Arc<Mutex<Counts>>) -> Phase {
        Phase {
            name,
            counts: counts.clone(),
            before: *counts.lock().expect("no panic"),
            wall: Instant::now(),
            cpu: cpu(),
        }
    }

    fn end(self, operations: u64, changed: u64) {
        let (now, n) = (*self.counts.lock().expect("no panic"), operations as f64);
        let us = |time: Duration| time.as_secs_f64() * 1e6 / n;
        let amplification = match changed {
            0 => String::new(),
            _ => format!("{:8.2}", (now.write_bytes - self.before.write_bytes) as f64 / changed as f64),
        };
        println!(
            "{:34} {:9.2} {:9.2} {:9.2} {:9.3} {amplification}",
            self.name,
            us(cpu() - self.cpu),
            us(self.wall.elapsed()),
            (now.read_bytes - self.before.read_bytes) as f64 / 1024.0 / n,
            (now.reads - self.before.reads) as f64 / n,
        );
    }
}

/// Processor time of this process, user and system.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
