//! Cost of a 4 KiB read and of a 4 KiB write in the shard and the memory store together, without sockets.
//!
//! `cargo run --release -p osd --example shard_cost`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

use bytes::Bytes;
use machine::identity::Proof;
use machine::net::{Held, Peer};
use machine::{ConnId, CoreId, Effects, Machine, ReadTag, Tag, Time};
use osd::ops::Limits;
use osd::pg::log::LogLimits;
use osd::shard::{ClusterView, Effect, Input, PgOrder, PoolView, Shard, ShardConfig};
use std::sync::Arc;
use std::time::Instant;
use store::{Completion, MemoryStore, ObjectStore, memory};
use wire::messages::{MOSDOp, OsdOps};
use wire::types::*;

const PGS: u32 = 64;
const OBJECTS: u32 = 4096;
const DEPTH: usize = 64;
const BATCHES: usize = 4000;

struct Host {
    shard: Shard,
    store: MemoryStore,
    fx: Effects<Effect>,
    done: Vec<Completion>,
    replies: usize,
}

impl Host {
    fn step(&mut self, input: Input) {
        self.shard.step(Time(1), input, &mut self.fx);
        for effect in self.fx.drain() {
            match effect {
                Effect::Send { message, .. } => {
                    self.replies += 1;
                    drop(message);
                }
                Effect::Submit { tag, transaction } => self.store.submit(tag.0, transaction),
                Effect::Read { tag, request } => self.store.read(tag.0, request),
                Effect::SendPeer { .. }
                | Effect::AskPeer { .. }
                | Effect::Close { .. }
                | Effect::Reroute(_)
                | Effect::ToShard { .. }
                | Effect::Control(_) => {}
            }
        }
    }

    fn settle(&mut self) {
        loop {
            let mut done = std::mem::take(&mut self.done);
            self.store.poll(&mut done);
            if done.is_empty() {
                self.done = done;
                return;
            }
            for completion in done.drain(..) {
                self.step(match completion {
                    Completion::Committed { tag } => Input::Committed { tag: Tag(tag) },
                    Completion::Failed { tag } | Completion::Refused { tag, .. } => {
                        Input::Failed { tag: Tag(tag) }
                    }
                    Completion::Read { tag, answers } => Input::Read { tag: ReadTag(tag), answers },
                });
            }
            self.done = done;
        }
    }
}

fn main() {
    let config = ShardConfig {
        osd: OsdId(0),
        core: CoreId(0),
        limits: Limits::default(),
        tracking: Default::default(),
        log: LogLimits::default(),
        scan_max: osd::shard::BACKFILL_SCAN_MAX,
        object_cache_bytes: 1 << 20,
    };
    let mut host = Host {
        shard: Shard::new(config, Vec::new()),
        store: MemoryStore::new(memory::Config::with_total(8 << 30)),
        fx: Effects::new(),
        done: Vec::new(),
        replies: 0,
    };
    let addr = EntityAddr::msgr2("10.0.0.1:4000".parse().expect("an address"), 1);
    let proof = Proof::none("client.admin".parse().expect("a name"), 4100);
    let claimed = EntityName::new(EntityKind::CLIENT, 4100);
    let peer = Peer::identified(proof, claimed, addr).expect("the name fits");
    host.step(Input::Opened { conn: ConnId(1), peer: Arc::new(peer) });
    let mut view = ClusterView { epoch: 10, ..ClusterView::of_osds(0..1) };
    view.pools.insert(1, PoolView { name: "data".into(), pg_num: PGS, ..PoolView::default() });
    let create = |seed| PgOrder::alone(PgId { pool: 1, seed }.into(), PGS.trailing_zeros() as u8, 10);
    host.step(Input::Map { view: Arc::new(view), orders: (0..PGS).map(create).collect() });
    host.settle();

    let payload = Bytes::from(vec![7u8; 4096]);
    let request = |n: u32, op: OsdOp| {
        let hash = n.wrapping_mul(0x9e37_79b1);
        let name = format!("benchmark_data_host_12345_object{n}");
        let object = HObject { pool: 1, hash, snap: SnapId::HEAD, name: name.into(), ..HObject::min() };
        Box::new(MOSDOp {
            pg: PgId { pool: 1, seed: hash % PGS }.into(),
            epoch: 10,
            flags: OsdFlags::ONDISK,
            explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 },
            client_incarnation: 0,
            mtime: UTime { sec: 77, nsec: 0 },
            object,
            ops: OsdOps::from_iter([op]),
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: u64::MAX,
        })
    };
    let mut tid = 0;
    let mut rng = machine::Random::from_number(1);
    for (name, write, first) in [("fill", true, true), ("write", true, false), ("read", false, false)] {
        let batches = if first { OBJECTS as usize / DEPTH } else { BATCHES };
        let mut ns = 0;
        for batch in 0..batches {
            let requests: Vec<Box<MOSDOp>> = (0..DEPTH)
                .map(|i| {
                    let n = if first { (batch * DEPTH + i) as u32 } else { rng.below(OBJECTS as u64) as u32 };
                    let op = match write {
                        true => OsdOp::extent(OpCode::WRITE, 0, 4096, Bytes::copy_from_slice(&payload)),
                        false => OsdOp::extent(OpCode::READ, 0, 4096, Bytes::new()),
                    };
                    request(n, op)
                })
                .collect();
            let begun = Instant::now();
            for op in requests {
                tid += 1;
                host.step(Input::Op { conn: ConnId(1), tid, op, held: Held::default(), received: Time(1) });
            }
            host.settle();
            ns += begun.elapsed().as_nanos();
        }
        let ops = batches * DEPTH;
        println!("{name}: {} ns an operation over {ops}", ns / ops as u128);
    }
    assert_eq!(host.replies, tid as usize);
}
