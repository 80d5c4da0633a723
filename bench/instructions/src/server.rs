//! One core of an OSD without sockets: session machine, shard, store.

use crate::PGS;
use crate::client::{receive, take_written};
use crate::ram::Ram;
use block_store::{FormatOptions, Identity, Options};
use bytes::BytesMut;
use machine::net::{NetEffect, NetEvent};
use machine::{CoreId, Effects, Machine, Random, ReadTag, Tag, Time};
use messenger::{Config, Effect, Endpoint, Input, SocketId};
use osd::headroom::Headroom;
use osd::ops::Limits;
use osd::pg::log::LogLimits;
use osd::shard::{self, ClusterView, PgOrder, PoolView, Shard, ShardConfig};
use osd::{Destination, Routes};
use std::sync::Arc;
use store::{Completion, MemoryStore, ObjectStore, memory};
use wire::messages::Body;
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, EntityName, OsdId, PgId};

const NOW: Time = Time(1);
const DISK_BYTES: usize = 1 << 30;

enum Store {
    Memory(MemoryStore),
    Disk(Box<block_store::Shard>),
}

pub struct Server {
    pub addrs: EntityAddrVec,
    endpoint: Endpoint,
    endpoint_fx: Effects<Effect>,
    socket: Option<SocketId>,
    shard: Shard,
    shard_fx: Effects<shard::Effect>,
    store: Store,
    completions: Vec<Completion>,
    headroom: Headroom,
    routes: Routes,
}

impl Server {
    pub fn new(is_on_disk: bool) -> Server {
        let addr = EntityAddr::msgr2("10.0.0.1:6800".parse().expect("an address"), 1);
        let mut config = Config::new(EntityName::new(EntityKind::OSD, 0), addr.into());
        config.methods = vec![wire::cephx::METHOD_NONE];
        let shard_config = ShardConfig {
            osd: OsdId(0),
            core: CoreId(0),
            limits: Limits::default(),
            log: LogLimits::default(),
            object_cache_bytes: 8 << 20,
        };
        let store = match is_on_disk {
            false => Store::Memory(MemoryStore::new(memory::Config::with_total(8 << 30))),
            true => {
                let mut ram = Ram::new(DISK_BYTES);
                let options = FormatOptions {
                    identity: Identity([7; 16]),
                    label: "instructions".into(),
                    shards: 1,
                    log_bytes: None,
                    discard: false,
                };
                block_store::format(&mut ram, &options, &mut || ()).expect("a store fits");
                let shard = block_store::Shard::open(Box::new(ram), 0, Options::default(), &mut || ());
                let mut shard = shard.expect("it was just made");
                shard.set_cache_budget(256 << 20);
                Store::Disk(Box::new(shard))
            }
        };
        Server {
            addrs: addr.into(),
            endpoint: Endpoint::new(config, Random::from_number(3)),
            endpoint_fx: Effects::new(),
            socket: None,
            shard: Shard::new(shard_config, Vec::new()),
            shard_fx: Effects::new(),
            store,
            completions: Vec::new(),
            headroom: Headroom::new(0.97),
            routes: Routes::new(1),
        }
    }

    /// Creates the PGs of a pool of size 1.
    pub fn make_pgs(&mut self) {
        let mut view = ClusterView { epoch: 10, ..ClusterView::default() };
        view.pools.insert(1, PoolView { name: "data".into(), pg_num: PGS, ..PoolView::default() });
        self.routes = Routes::new(1);
        (0..PGS).for_each(|seed| self.routes.set(PgId { pool: 1, seed }, CoreId(0)));
        let create = |seed| PgOrder::Create {
            pg: PgId { pool: 1, seed }.into(),
            split_bits: PGS.trailing_zeros() as u8,
            created: 10,
            since: 10,
        };
        let map = shard::Input::Map { view: Arc::new(view), orders: (0..PGS).map(create).collect() };
        self.step_shard(map);
        while self.poll_store() {}
    }

    pub fn handshake(&mut self, bytes: BytesMut) -> BytesMut {
        if self.socket.is_none() {
            let from = "10.0.0.2:4000".parse().expect("an address");
            self.socket = Some(self.endpoint.accept(NOW, from, &mut self.endpoint_fx));
        }
        self.uncounted_turn(bytes);
        self.take_written()
    }

    /// Runs one turn of the reactor: received requests are executed until every reply is framed. Callgrind counts this.
    #[inline(never)]
    pub fn server_turn(&mut self, bytes: BytesMut) {
        self.turn(bytes);
    }

    #[inline(never)]
    pub fn uncounted_turn(&mut self, bytes: BytesMut) {
        self.turn(bytes);
    }

    /// Bytes of the framed replies.
    pub fn take_written(&mut self) -> BytesMut {
        take_written(&mut self.endpoint, NOW)
    }

    #[inline(never)]
    fn turn(&mut self, bytes: BytesMut) {
        let socket = self.socket.expect("accepted");
        let mut fx = std::mem::take(&mut self.endpoint_fx);
        receive(&mut self.endpoint, NOW, socket, bytes, &mut fx);
        for effect in fx.drain() {
            if let Effect::Event(event) = effect {
                self.on_net(event);
            }
        }
        self.endpoint_fx = fx;
        while self.poll_store() {}
        self.endpoint.read_on(NOW, &mut self.endpoint_fx);
    }

    fn on_net(&mut self, event: NetEvent) {
        match event {
            NetEvent::Message { conn, message, held } => match self.routes.of(&message) {
                Destination::Control => {}
                Destination::Shard(_) => {
                    let Body::MOSDOp(op) = message.body else { return };
                    self.step_shard(shard::Input::Op { conn, tid: message.tid, op, held });
                }
            },
            NetEvent::Ready { conn, peer } => {
                self.step_shard(shard::Input::Opened { conn, peer: Arc::new(peer) });
            }
            NetEvent::Closed { why, .. } => panic!("the connection ended: {why:?}"),
            _ => {}
        }
    }

    fn step_shard(&mut self, input: shard::Input) {
        self.shard.step(NOW, input, &mut self.shard_fx);
        let mut fx = std::mem::take(&mut self.shard_fx);
        for effect in fx.drain() {
            match effect {
                shard::Effect::Send { conn, message } => {
                    self.endpoint.step(
                        NOW,
                        Input::Role(NetEffect::Send { conn, message }),
                        &mut self.endpoint_fx,
                    );
                }
                shard::Effect::Submit { tag, transaction } => {
                    self.headroom.on_submit(&transaction);
                    match &mut self.store {
                        Store::Memory(store) => store.submit(tag.0, transaction),
                        Store::Disk(store) => store.submit(tag.0, transaction),
                    }
                }
                shard::Effect::Read { tag, request } => match &mut self.store {
                    Store::Memory(store) => store.read(tag.0, request),
                    Store::Disk(store) => store.read(tag.0, request),
                },
                _ => {}
            }
        }
        self.shard_fx = fx;
    }

    /// Polls the store once. True if it had completions or has background work.
    fn poll_store(&mut self) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        let more = match &mut self.store {
            Store::Memory(store) => store.poll(&mut completions),
            Store::Disk(store) => store.poll(&mut completions),
        };
        let any = !completions.is_empty();
        for completion in completions.drain(..) {
            self.step_shard(match completion {
                Completion::Committed { tag } => shard::Input::Committed { tag: Tag(tag) },
                Completion::Failed { .. } => panic!("the store failed"),
                Completion::Read { tag, answers } => shard::Input::Read { tag: ReadTag(tag), answers },
            });
        }
        self.completions = completions;
        any || more
    }
}
