//! CPU time of a client's write in the block store, on a device without cost.
//!
//! `cargo test -p block-store --release cost -- --ignored --nocapture`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

use super::operations::{home, object, pg};
use super::{attached, new_keys};
use crate::mkfs::format;
use crate::shard::{Options, Shard};
use crate::{FormatOptions, Identity};
use bytes::Bytes;
use device::encrypted::Encrypted;
use device::{BlockDevice, Done, Durability, Request};
use std::collections::BTreeMap;
use store::{Change, Completion, ObjectId, ObjectStore, Transaction};
use wire::types::Eversion;

/// A device that keeps the first blocks, which recovery needs, and drops all others.
struct Nothing {
    size: u64,
    front: BTreeMap<u64, Bytes>,
    done: Vec<Done>,
}

impl BlockDevice for Nothing {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&mut self, token: u64, request: Request) {
        let result = match request {
            Request::Read { offset, len } => match self.front.get(&offset) {
                Some(data) => data.slice(..len.min(data.len())),
                None => vec![0; len].into(),
            },
            Request::Write { offset, data, .. } => {
                if offset < 64 << 12 {
                    self.front.insert(offset, data.to_bytes());
                }
                Bytes::new()
            }
            Request::Flush | Request::Discard { .. } => Bytes::new(),
        };
        self.done.push(Done { token, result: Ok(result) });
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        out.append(&mut self.done);
        false
    }
}

fn shard() -> Shard {
    shard_with(false)
}

fn shard_with(is_encrypted: bool) -> Shard {
    let mut device = Nothing { size: 64 << 30, front: BTreeMap::new(), done: Vec::new() };
    let options = FormatOptions {
        identity: Identity([1; 16]),
        label: String::new(),
        shards: 1,
        discard: false,
        encryption: is_encrypted.then(new_keys),
        devices: Vec::new(),
        log_bytes: Some(1 << 30),
        zone_bytes: None,
    };
    format(&mut device, &options, &mut || ()).unwrap();
    let pool = attached(&mut device).unwrap();
    Shard::open(Box::new(device), 0, &pool, Options::default(), &mut || ()).unwrap()
}

/// A value of so many bytes, of which those that hold a version change with each write.
fn changed(data: &Bytes, len: usize, version: u64) -> Bytes {
    let mut out = data[..len].to_vec();
    [20, 50, 80].into_iter().for_each(|at| out[at..at + 8].copy_from_slice(&version.to_le_bytes()));
    out.into()
}

/// The transaction of a client's write: bytes, object info, log entry, progress, and a trim of the log now and then.
fn client_write(object: &ObjectId, offset: u64, data: &Bytes, version: u64) -> Transaction {
    let meta = ObjectId::pg_meta(pg(0));
    let mut changes = vec![
        Change::Write { object: object.clone(), offset, data: data.clone().into() },
        Change::SetAttr { object: object.clone(), name: "_".into(), value: changed(data, 250, version) },
        Change::OmapSetHeader { object: meta, header: changed(data, 170, version) },
        Change::LogAppend { records: vec![(Eversion { epoch: 9, version }, data.slice(..50))] },
    ];
    if version > 6000 && version.is_multiple_of(100) {
        changes.push(Change::LogTrim { to: Eversion { epoch: 9, version: version - 6000 } });
    }
    Transaction { collection: home(), changes }
}

/// CPU time of a client's write, in microseconds: the mean of so many writes, some at a time.
fn cost_of_writes(mut shard: Shard, depth: usize, len: usize, count: u64) -> f64 {
    let mut out = Vec::new();
    let create = vec![Change::CreateCollection { split_bits: 0 }];
    shard.submit(0, Transaction { collection: home(), changes: create });
    while shard.poll(&mut out) {}
    let data = Bytes::from((0..len).map(|i| (i * 7 + i / 256) as u8).collect::<Vec<u8>>());
    let objects: Vec<ObjectId> = (0..1000).map(|i| object(&format!("object.{i:08}"), i * 7919)).collect();
    let begun = cpu_time();
    let mut version = 0;
    while version < count {
        for _ in 0..depth {
            version += 1;
            let n = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let (object, block) = (&objects[(n % 1000) as usize], n / 1000 % 1024);
            let offset = if len > 4096 { 0 } else { block * 4096 };
            shard.submit(version, client_write(object, offset, &data, version));
        }
        out.clear();
        while out.iter().filter(|c| matches!(c, Completion::Committed { .. })).count() < depth {
            shard.poll(&mut out);
        }
    }
    (cpu_time() - begun).as_nanos() as f64 / count as f64 / 1000.0
}

const SHAPES: [(&str, usize, usize, u64); 4] = [
    ("4 KiB", 1, 4096, 300_000),
    ("4 KiB", 16, 4096, 300_000),
    ("4 KiB", 64, 4096, 300_000),
    ("4 MiB", 4, 4 << 20, 2_000),
];

#[test]
#[ignore = "a measurement: it checks nothing"]
fn cost_of_a_client_write() {
    for (name, depth, len, count) in SHAPES {
        let each = cost_of_writes(shard(), depth, len, count);
        println!("{name} writes, {depth} at a time: {each:.2} us each");
    }
}

/// Plain and encrypted stores in turns.
#[test]
#[ignore = "a measurement: it checks nothing"]
fn cost_of_encryption() {
    const ROUNDS: usize = 5;
    for (name, depth, len, count) in SHAPES {
        let mut each = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for is_encrypted in [false, true] {
                let cost = cost_of_writes(shard_with(is_encrypted), depth, len, count / 5);
                each[usize::from(is_encrypted)].push(cost);
            }
        }
        each.iter_mut().for_each(|costs| costs.sort_by(f64::total_cmp));
        let [plain, encrypted] = each.map(|costs| costs[ROUNDS / 2]);
        println!(
            "{name} writes, {depth} at a time: {plain:.2} us plain, {encrypted:.2} us encrypted (medians)"
        );
    }
    let key = new_keys().data_key;
    let device = Nothing { size: 1 << 30, front: BTreeMap::new(), done: Vec::new() };
    let mut device = Encrypted::new(device, &key);
    for len in [4096, 4 << 20] {
        let count = (2 << 30) / len;
        let mut costs = [0.0; 2];
        for (is_write, cost) in [false, true].into_iter().zip(&mut costs) {
            let data = Bytes::from(vec![7; len]);
            let begun = cpu_time();
            for _ in 0..count {
                let request = match is_write {
                    true => Request::Write {
                        offset: 1 << 20,
                        data: data.clone().into(),
                        durability: Durability::Later,
                    },
                    false => Request::Read { offset: 1 << 20, len },
                };
                device.submit(1, request);
                device.poll(&mut Vec::new());
            }
            *cost = (cpu_time() - begun).as_nanos() as f64 / count as f64 / 1000.0;
        }
        let [read, write] = costs;
        println!("the cipher alone, {len} bytes: {read:.2} us a read, {write:.2} us a write");
    }
}

/// A clone of 4 MiB in 1,024 fragments of one block each, and the first write after it.
#[test]
#[ignore = "a measurement: it checks nothing"]
fn cost_of_a_clone() {
    const CLONES: u32 = 20_000;
    let mut shard = shard();
    let mut out = Vec::new();
    let submit = |shard: &mut Shard, changes| shard.submit(0, Transaction { collection: home(), changes });
    submit(&mut shard, vec![Change::CreateCollection { split_bits: 0 }]);
    let (head, other) = (object("head", 1), object("other", 1));
    let block = Bytes::from(vec![7; 4096]);
    // Blocks of another object lie between.
    for i in 0..1024 {
        for object in [&head, &other] {
            let data = block.clone().into();
            submit(&mut shard, vec![Change::Write { object: object.clone(), offset: i << 12, data }]);
        }
    }
    while shard.poll(&mut out) {}
    let copy = |i: u32| object(&format!("copy-{i:05}"), 1);
    for (name, writes) in [("clone", false), ("clone, and the first write after it", true)] {
        let (mut clones, mut rest) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
        for i in 0..CLONES {
            let begun = cpu_time();
            let mut changes = vec![Change::Clone { from: head.clone(), to: copy(i) }];
            if writes {
                let (object, data) = (head.clone(), block.clone().into());
                changes.push(Change::Write { object, offset: u64::from(i % 1024) << 12, data });
            }
            submit(&mut shard, changes);
            clones += cpu_time() - begun;
            if i >= 4 {
                submit(&mut shard, vec![Change::Remove { object: copy(i - 4) }]);
            }
            while shard.poll(&mut out) {}
            rest += cpu_time() - begun;
        }
        for i in CLONES - 4..CLONES {
            submit(&mut shard, vec![Change::Remove { object: copy(i) }]);
        }
        while shard.poll(&mut out) {}
        let each = |time: std::time::Duration| time.as_nanos() as f64 / f64::from(CLONES) / 1000.0;
        println!(
            "{name}: {:.2} us to submit, {:.2} us with its log record, the removal of an older one and cleaning",
            each(clones),
            each(rest)
        );
    }
}

/// CPU time of this thread: other processes on the machine do not count.
fn cpu_time() -> std::time::Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// CPU time from submit to commit of 4 KiB writes, before and during the removal of an object with 1,000,000 omap keys, on a
/// simulated disk in memory that completes everything at once. It is the work of the turns that a write waits for.
#[test]
#[ignore = "a measurement: it checks nothing"]
fn writes_during_removal_of_a_large_omap() {
    use device::simulated::Pace;
    const KEYS: u32 = 1_000_000;
    let disk = super::formatted(2 << 30, 256 << 20, Pace::AtOnce, 1);
    let mut shard = super::open(&disk, Options::default());
    let mut out = Vec::new();
    let large = object("large", 1);
    let submit = |shard: &mut Shard, changes| shard.submit(0, Transaction { collection: home(), changes });
    submit(&mut shard, vec![Change::CreateCollection { split_bits: 0 }]);
    for first in (0..KEYS).step_by(1000) {
        let entry = |i: u32| (format!("key-{i:08}").into(), vec![1; 100].into());
        let entries = (first..first + 1000).map(entry).collect();
        submit(&mut shard, vec![Change::OmapSet { object: large.clone(), entries }]);
        while shard.poll(&mut out) {}
    }
    let data = Bytes::from(vec![7; 4096]);
    let objects: Vec<ObjectId> = (0..1000).map(|i| object(&format!("object.{i:08}"), i * 7919)).collect();
    let mut version = 0u64;
    let mut measure = |shard: &mut Shard, name: &str, mut goes_on: Box<dyn FnMut(&Shard, usize) -> bool>| {
        let mut each: Vec<u128> = Vec::new();
        while goes_on(shard, each.len()) {
            version += 1;
            let n = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let begun = cpu_time();
            shard.submit(
                version,
                client_write(&objects[(n % 1000) as usize], n / 1000 % 256 * 4096, &data, version),
            );
            let mut out = Vec::new();
            while !out.contains(&Completion::Committed { tag: version }) {
                shard.poll(&mut out);
            }
            each.push((cpu_time() - begun).as_micros());
        }
        each.sort_unstable();
        let at = |part: usize| each[(each.len() * part / 1000).min(each.len() - 1)];
        println!(
            "{name}: {} writes, p50 {} us, p99 {} us, p99.9 {} us, max {} us",
            each.len(),
            at(500),
            at(990),
            at(999),
            at(1000)
        );
    };
    measure(&mut shard, "before", Box::new(|_, count| count < 50_000));
    submit(&mut shard, vec![Change::Remove { object: large.clone() }]);
    while shard.figures().numbers_to_clean == 0 {
        shard.poll(&mut out);
    }
    measure(&mut shard, "during", Box::new(|shard, _| shard.figures().numbers_to_clean > 0));
    measure(&mut shard, "after", Box::new(|_, count| count < 50_000));
}

/// CPU time of the longest call, while transactions of many omap keys are carried out and the keys are read.
#[test]
#[ignore = "a measurement: it checks nothing"]
fn longest_turn_of_many_keys() {
    use device::simulated::Pace;
    use store::{Query, ReadRequest};
    const OBJECTS: u32 = 16;
    let entry = |i: u32, value: u8| (Bytes::from(format!("key-{i:08}")), Bytes::from(vec![value; 100]));
    for keys in [1_000, 5_000, 16_384] {
        let disk = super::formatted(4 << 30, 256 << 20, Pace::AtOnce, 1);
        let mut shard = super::open(&disk, Options::default());
        let large = |i: u32| object(&format!("large-{i}"), i);
        // In collections of their own they are planned side by side.
        let home = |i: u32| store::Collection::Pg(pg(i));
        for i in 0..OBJECTS {
            let changes = vec![Change::CreateCollection { split_bits: OBJECTS.ilog2() as u8 }];
            shard.submit(0, Transaction { collection: home(i), changes });
        }
        while shard.poll(&mut Vec::new()) {}
        let mut measure = |name: &str, each: &dyn Fn(&mut Shard, u32)| {
            let (mut longest, begun) = (std::time::Duration::ZERO, cpu_time());
            for i in 0..OBJECTS {
                let before = cpu_time();
                each(&mut shard, i);
                longest = longest.max(cpu_time() - before);
            }
            let (mut out, mut turns, mut goes_on) = (Vec::new(), 0, true);
            while goes_on {
                let before = cpu_time();
                goes_on = shard.poll(&mut out);
                longest = longest.max(cpu_time() - before);
                turns += 1;
            }
            let each = (cpu_time() - begun).as_micros() as f64 / f64::from(OBJECTS) / 1e3;
            println!(
                "{keys} keys, {name}: longest turn {:.2} ms of {turns}, {each:.2} ms each",
                longest.as_micros() as f64 / 1e3
            );
        };
        let set = |value: u8| {
            move |shard: &mut Shard, i: u32| {
                let entries = (0..keys).map(|key| entry(key, value)).collect();
                let changes = vec![Change::OmapSet { object: large(i), entries }];
                shard.submit(0, Transaction { collection: home(i), changes });
            }
        };
        measure("new", &set(1));
        measure("set again", &set(2));
        measure("read by key", &|shard, i| {
            let queries = vec![Query::OmapGet { keys: (0..keys).map(|key| entry(key, 0).0).collect() }];
            shard.read(0, ReadRequest { collection: home(i), object: large(i), queries });
        });
        measure("removed", &|shard, i| {
            let names = (0..keys).map(|key| entry(key, 0).0).collect();
            let changes = vec![Change::OmapRemove { object: large(i), keys: names }];
            shard.submit(0, Transaction { collection: home(i), changes });
        });
    }
}
