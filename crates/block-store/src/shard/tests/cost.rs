//! CPU time of a client's write in the block store, on a device without cost.
//!
//! `cargo test -p block-store --release cost -- --ignored --nocapture`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

use super::operations::{home, object, pg};
use crate::mkfs::format;
use crate::shard::{Options, Shard};
use crate::{FormatOptions, Identity, Pool};
use bytes::Bytes;
use device::{BlockDevice, Done, Request};
use std::collections::BTreeMap;
use std::time::Instant;
use store::{Change, Completion, ObjectId, ObjectStore, Transaction};

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
    let mut device = Nothing { size: 64 << 30, front: BTreeMap::new(), done: Vec::new() };
    let options = FormatOptions {
        identity: Identity([1; 16]),
        label: String::new(),
        shards: 1,
        discard: false,
        log_bytes: Some(1 << 30),
        zone_bytes: None,
    };
    let superblock = format(&mut device, &options, &mut || ()).unwrap();
    let pool = Pool::new(superblock);
    Shard::open(Box::new(device), 0, &pool, Options::default(), &mut || ()).unwrap()
}

/// The transaction of a client's write: bytes, object info, log entry, progress, and the removal of an old log entry.
fn client_write(object: &ObjectId, offset: u64, data: &Bytes, version: u64) -> Transaction {
    let meta = ObjectId::pg_meta(pg(0));
    let key = |version: u64| Bytes::from([&b"l"[..], &version.to_be_bytes()].concat());
    let mut changes = vec![
        Change::Write { object: object.clone(), offset, data: data.clone().into() },
        Change::SetAttr { object: object.clone(), name: "_".into(), value: data.slice(..250) },
        Change::OmapSetHeader { object: meta.clone(), header: data.slice(..80) },
        Change::OmapSet { object: meta.clone(), entries: vec![(key(version), data.slice(..220))] },
    ];
    if version > 3000 {
        changes.push(Change::OmapRemove { object: meta, keys: vec![key(version - 3000)] });
    }
    Transaction { collection: home(), changes }
}

#[test]
#[ignore = "a measurement: it checks nothing"]
fn cost_of_a_client_write() {
    for (name, depth, len) in
        [("4 KiB", 1, 4096), ("4 KiB", 16, 4096), ("4 KiB", 64, 4096), ("4 MiB", 4, 4 << 20)]
    {
        let mut shard = shard();
        let mut out = Vec::new();
        let create = vec![Change::CreateCollection { split_bits: 0 }];
        shard.submit(0, Transaction { collection: home(), changes: create });
        while shard.poll(&mut out) {}
        let data = Bytes::from((0..len).map(|i| (i * 7 + i / 256) as u8).collect::<Vec<u8>>());
        let objects: Vec<ObjectId> = (0..1000).map(|i| object(&format!("object.{i:08}"), i * 7919)).collect();
        let count = if len > 4096 { 2_000 } else { 300_000u64 };
        let begun = Instant::now();
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
        let each = begun.elapsed().as_nanos() as f64 / count as f64 / 1000.0;
        println!("{name} writes, {depth} at a time: {each:.2} us each; {:?}", shard.usage());
    }
}
