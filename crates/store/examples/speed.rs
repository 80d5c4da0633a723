//! Benchmark of the memory store's commonest transactions, in nanoseconds of processor time per operation.
//!
//! `cargo run --release -p store --example speed [OBJECTS]`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

use bytes::Bytes;
use store::memory::Config;
use store::{Change, Collection, MemoryStore, ObjectId, ObjectStore, Query, ReadRequest, Transaction};
use wire::types::{HObject, PgId, SnapId, SpgId};

const ROUNDS: usize = 400_000;
/// Log entries of a PG; each write adds one and removes one.
const LOG_LEN: u64 = 2_000;

fn pg() -> SpgId {
    PgId { pool: 1, seed: 0 }.into()
}

fn object(n: usize) -> ObjectId {
    let hash = (n as u32).wrapping_mul(2_654_435_761);
    HObject {
        pool: 1,
        hash,
        snap: SnapId::HEAD,
        name: format!("rbd_data.10226b8b4567.{n:016x}").into(),
        ..HObject::min()
    }
    .into()
}

fn log_key(n: u64) -> Bytes {
    let mut key = [b'l'; 9];
    key[1..].copy_from_slice(&n.to_be_bytes());
    Bytes::copy_from_slice(&key)
}

/// Processor time of this process.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

struct Driver {
    store: MemoryStore,
    out: Vec<store::Completion>,
}

impl Driver {
    fn submit(&mut self, tag: u64, changes: Vec<Change>) {
        self.store.submit(tag, Transaction { collection: Collection::Pg(pg()), changes });
        // A host polls once per turn, not per transaction.
        if tag.is_multiple_of(32) {
            self.drain();
        }
    }

    fn drain(&mut self) {
        self.store.poll(&mut self.out);
        self.out.clear();
    }

    fn time(&mut self, what: &str, mut op: impl FnMut(&mut Driver, u64)) {
        let start = processor_ns();
        for i in 0..ROUNDS as u64 {
            op(self, i);
        }
        self.drain();
        println!("{:>7.0} ns  {what}", (processor_ns() - start) as f64 / ROUNDS as f64);
    }
}

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let objects: Vec<ObjectId> = (0..count).map(object).collect();
    let mut d = Driver { store: MemoryStore::new(Config::with_total(64 << 30)), out: Vec::new() };
    d.submit(0, vec![Change::CreateCollection { split_bits: 0 }]);
    let payload = Bytes::from(vec![7u8; 4096]);
    let info = Bytes::from(vec![1u8; 250]);
    let pick = |i: u64| &objects[(i as usize).wrapping_mul(7919) % count];
    let write = |object: &ObjectId, offset| Change::Write {
        object: object.clone(),
        offset,
        data: payload.clone().into(),
    };

    d.time("write 4 KiB at the start of an object", |d, i| d.submit(i, vec![write(pick(i), 0)]));
    d.time("write 4 KiB, set its info, log it and trim the log", |d, i| {
        let object = pick(i);
        let meta = ObjectId::pg_meta(pg());
        let set_info = Change::SetAttr { object: object.clone(), name: "_".into(), value: info.clone() };
        let entries = vec![(log_key(i), info.clone())];
        let mut changes = vec![write(object, 0), set_info, Change::OmapSet { object: meta.clone(), entries }];
        if let Some(old) = i.checked_sub(LOG_LEN) {
            changes.push(Change::OmapRemove { object: meta, keys: vec![log_key(old)] });
        }
        d.submit(i, changes);
    });
    d.time("read 4 KiB and the info", |d, i| {
        let queries = vec![Query::Data { offset: 0, len: 4096 }, Query::Attr { name: "_".into() }];
        d.store.read(i, ReadRequest { collection: Collection::Pg(pg()), object: pick(i).clone(), queries });
        if i % 32 == 0 {
            d.drain();
        }
    });
    let large = Bytes::from(vec![9u8; 4 << 20]);
    let target = object(count);
    d.time("overwrite 4 KiB within 4 MiB", |d, i| {
        if i == 0 {
            let copy = Bytes::copy_from_slice(&large);
            d.submit(i, vec![Change::Write { object: target.clone(), offset: 0, data: copy.into() }]);
        }
        d.submit(i, vec![write(&target, (i * 7919 % 1024) * 4096)]);
    });
}
