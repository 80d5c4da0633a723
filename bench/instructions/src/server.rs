//! One core of an OSD without sockets: session machine, the assembly of one core, store.

use crate::PGS;
use crate::client::{receive, take_written};
use crate::ram::Ram;
use block_store::{FormatOptions, Identity, Options};
use bytes::BytesMut;
use command::options::{Identity as Named, Layers};
use machine::net::NetEvent;
use machine::{CoreId, Effects, Machine, Random, Time};
use messenger::{Config, Effect, Endpoint, Input, SocketId};
use osd::Routes;
use osd::node::{self, Core, CoreConfig, Mail, StoreContents, StoreUsage};
use osd::pg::log::LogLimits;
use osd::shard::{self, ClusterView, PgOrder, PoolView};
use std::sync::Arc;
use store::{Completion, MemoryStore, ObjectStore, memory};
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, EntityName, OsdId, PgId};

const NOW: Time = Time(1);
/// Not core 0, whose control machine needs a monitor.
const CORE: CoreId = CoreId(1);
const DISK_BYTES: usize = 1 << 30;

enum Store {
    Memory(Box<MemoryStore>),
    Disk(Box<block_store::Shard>),
}

pub struct Server {
    pub addrs: EntityAddrVec,
    endpoint: Endpoint,
    endpoint_fx: Effects<Effect>,
    socket: Option<SocketId>,
    core: Core,
    core_fx: Effects<node::Effect>,
    store: Store,
    completions: Vec<Completion>,
}

impl Server {
    pub fn new(is_on_disk: bool) -> Server {
        let addr = EntityAddr::msgr2("10.0.0.1:6800".parse().expect("an address"), 1);
        let mut config = Config::new(EntityName::new(EntityKind::OSD, 0), addr.into());
        config.methods = vec![wire::cephx::METHOD_NONE];
        let core_config = CoreConfig {
            osd: OsdId(0),
            core: CORE,
            cores: 2,
            log: LogLimits::default(),
            scan_max: osd::shard::BACKFILL_SCAN_MAX,
            object_cache_bytes: 8 << 20,
            options: Layers::new(Named::named("osd.0")),
        };
        let store = match is_on_disk {
            false => Store::Memory(Box::new(MemoryStore::new(memory::Config::with_total(8 << 30)))),
            true => {
                let mut ram = Ram::new(DISK_BYTES);
                let options = FormatOptions {
                    identity: Identity([7; 16]),
                    label: "instructions".into(),
                    shards: 1,
                    log_bytes: None,
                    zone_bytes: None,
                    discard: false,
                    encryption: None,
                    devices: Vec::new(),
                };
                block_store::format(&mut ram, &options, &mut || ()).expect("a store fits");
                let pool = block_store::attach(&mut ram, &mut || ()).expect("it was just made");
                let shard = block_store::Shard::open(Box::new(ram), 0, &pool, Options::default(), &mut || ());
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
            core: Core::new(
                core_config,
                StoreContents { metadata_max: u64::MAX, ..StoreContents::default() },
                None,
            ),
            core_fx: Effects::new(),
            store,
            completions: Vec::new(),
        }
    }

    /// Creates the PGs of a pool of size 1.
    pub fn make_pgs(&mut self, has_snapshots: bool) {
        let mut view = ClusterView { epoch: 10, ..ClusterView::of_osds(0..1) };
        let mut pool = PoolView { name: "data".into(), pg_num: PGS, ..PoolView::default() };
        pool.snapshots.is_used = has_snapshots;
        view.pools.insert(1, pool);
        view.routes = Routes::new(2);
        (0..PGS).for_each(|seed| view.routes.set(PgId { pool: 1, seed }, CORE));
        let create = |seed| PgOrder::alone(PgId { pool: 1, seed }.into(), PGS.trailing_zeros() as u8, 10);
        let map = shard::Input::Map { view: Arc::new(view), orders: (0..PGS).map(create).collect() };
        self.step(node::Input::Mail(Mail::Shard(Box::new(map))));
        while self.poll_store() {}
    }

    pub fn handshake(&mut self, bytes: BytesMut) -> BytesMut {
        if self.socket.is_none() {
            let from = "10.0.0.2:4000".parse().expect("an address");
            self.socket = Some(self.endpoint.accept(NOW, from, &mut self.endpoint_fx));
        }
        self.turn(bytes);
        self.take_written()
    }

    /// Runs one turn of the reactor: received requests are executed until every reply is framed. Callgrind counts this.
    #[inline(never)]
    pub fn server_turn(&mut self, bytes: BytesMut) {
        self.turn(bytes);
    }

    /// Bytes of the framed replies.
    pub fn take_written(&mut self) -> BytesMut {
        take_written(&mut self.endpoint, NOW)
    }

    /// The same turn, uncounted. A wrapper of its own would be merged with `server_turn` by the linker.
    #[inline(never)]
    pub fn turn(&mut self, bytes: BytesMut) {
        let socket = self.socket.expect("accepted");
        let mut fx = std::mem::take(&mut self.endpoint_fx);
        receive(&mut self.endpoint, NOW, socket, bytes, &mut fx);
        for effect in fx.drain() {
            if let Effect::Event(event) = effect {
                if let NetEvent::Closed { why, .. } = &event {
                    panic!("the connection ended: {why:?}");
                }
                self.step(node::Input::Net(event));
            }
        }
        self.endpoint_fx = fx;
        while self.poll_store() {}
        self.endpoint.read_on(NOW, &mut self.endpoint_fx);
        if self.core.has_unsent_replies() {
            self.step(node::Input::Sent);
        }
    }

    fn step(&mut self, input: node::Input) {
        self.core.step(NOW, input, &mut self.core_fx);
        self.carry_out();
    }

    /// As production's host does it.
    fn carry_out(&mut self) {
        let mut fx = std::mem::take(&mut self.core_fx);
        for effect in fx.drain() {
            match effect {
                node::Effect::Net(effect) => {
                    self.endpoint.step(NOW, Input::Role(effect), &mut self.endpoint_fx);
                }
                node::Effect::Submit { tag, transaction } => match &mut self.store {
                    Store::Memory(store) => store.submit(tag, transaction),
                    Store::Disk(store) => store.submit(tag, transaction),
                },
                node::Effect::Read { tag, request } => match &mut self.store {
                    Store::Memory(store) => store.read(tag, request),
                    Store::Disk(store) => store.read(tag, request),
                },
                node::Effect::MeasureStore => {
                    let usage = match &self.store {
                        Store::Memory(store) => store.usage(),
                        Store::Disk(store) => store.usage(),
                    };
                    let usage = node::Input::StoreUsage(StoreUsage { usage, compressed: Vec::new() });
                    self.core.step(NOW, usage, &mut self.core_fx);
                }
                // Mail for core 0.
                _ => {}
            }
        }
        if self.core_fx.is_empty() {
            self.core_fx = fx;
        }
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
            self.core.step(NOW, node::Input::Completed(completion), &mut self.core_fx);
        }
        self.carry_out();
        self.completions = completions;
        any || more
    }
}
