//! A host for one shard: the memory store, virtual time, clients that only send.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod cluster;
pub mod two_cores;

use bytes::Bytes;
use machine::identity::Proof;
use machine::net::{CloseReason, Held, Peer};
use machine::{ConnId, CoreId, Effects, Machine, ReadTag, Tag, Time};
use osd::ops::Limits;
use osd::pg::log::LogLimits;
use osd::shard::{
    ClusterView, Effect, Input, LeaseNews, PgOrder, PgReport, PoolView, Shard, ShardConfig, ToControl,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Answer, Change, Collection, Completion, MemoryStore, ObjectStore, Query, ReadError, ReadRequest, memory,
};
use wire::messages::{Body, MOSDBackoff, MOSDOp, MOSDOpReply, MWatchNotify, Message, OsdOps};
use wire::types::*;

pub const POOL: PoolId = 1;

pub struct Host {
    pub shard: Shard,
    pub store: MemoryStore,
    pub now: Time,
    pub sent: VecDeque<(ConnId, Message)>,
    pub control: Vec<ToControl>,
    /// Statements to other OSDs.
    pub peers: Vec<(OsdId, Box<wire::messages::MOSDPeer>)>,
    /// Requests to OSDs, with their numbers.
    pub asks: Vec<(OsdId, u64, Box<MOSDOp>)>,
    /// Connections that the shard wants ended.
    pub closed: Vec<ConnId>,
    pub view: ClusterView,
    /// Bytes of objects that cannot be read, until they are cut off or written over.
    rot: Vec<(&'static str, Range<u64>)>,
    /// An object whose bytes cannot be read back, however often they are written.
    bad_place: Option<&'static str>,
    /// An object whose listing, or whose metadata, cannot be read.
    pub hidden: Option<(&'static str, Hidden)>,
    /// A PG whose log's body cannot be read.
    pub bad_log: Option<SpgId>,
    failed_reads: Vec<ReadTag>,
    /// Completions that `read_now` has taken from the store.
    polled: Vec<Completion>,
    /// Number of the cluster's merges that it was told.
    merges_told: usize,
    /// Number of listings of objects that the shard has asked for.
    pub listings: usize,
    pub next_tid: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    Listing,
    Metadata,
}

pub fn config() -> ShardConfig {
    ShardConfig {
        osd: OsdId(0),
        core: CoreId(0),
        limits: Limits::default(),
        tracking: Default::default(),
        log: LogLimits::default(),
        scan_max: osd::shard::BACKFILL_SCAN_MAX,
        object_cache_bytes: 1 << 20,
    }
}

pub fn memory_store() -> MemoryStore {
    MemoryStore::new(memory::Config::with_total(1 << 30))
}

/// A completion of the store, as its shard gets it.
pub fn completed(completion: Completion) -> Input {
    match completion {
        Completion::Committed { tag } => Input::Committed { tag: Tag(tag) },
        Completion::Failed { tag } | Completion::Refused { tag, .. } => Input::Failed { tag: Tag(tag) },
        Completion::Read { tag, answers } => Input::Read { tag: ReadTag(tag), answers },
    }
}

/// A client's request for the PG, with the map of this epoch.
pub fn request_at(epoch: Epoch, object: HObject, ops: Vec<OsdOp>) -> MOSDOp {
    MOSDOp {
        pg: pg(),
        epoch,
        flags: OsdFlags::NONE,
        explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 },
        client_incarnation: 0,
        mtime: UTime { sec: 77, nsec: 0 },
        object,
        ops: OsdOps::from_vec(ops),
        snap_seq: SnapId(0),
        snaps: Vec::new(),
        retry_attempt: 0,
        features: u64::MAX,
    }
}

/// The client of a connection: its proven number, and the one that it says.
pub fn client_peer(conn: u64, proven: u64, said: i64) -> Peer {
    let addr = EntityAddr::msgr2(format!("10.0.0.1:{}", 40000 + conn).parse().unwrap(), conn as u32);
    let proof = Proof::none("client.admin".parse().unwrap(), proven);
    Peer::identified(proof, EntityName::new(EntityKind::CLIENT, said), addr).unwrap()
}

pub fn pg() -> SpgId {
    SpgId::from(PgId { pool: POOL, seed: 0 })
}

/// Another OSD's link is this connection, to every OSD.
pub fn link_of(osd: i32) -> ConnId {
    ConnId(1000 + osd as u64)
}

/// The OSD at the other end of a link.
pub fn osd_peer(osd: i32) -> Peer {
    let addr = EntityAddr::msgr2(format!("10.0.0.2:{}", 6800 + osd).parse().unwrap(), osd as u32);
    let proof = Proof::none(format!("osd.{osd}").parse().unwrap(), 100 + osd as u64);
    Peer::identified(proof, EntityName::new(EntityKind::OSD, osd.into()), addr).unwrap()
}

/// An object of the only PG.
pub fn object(name: &str) -> HObject {
    let hash = name.bytes().fold(7u32, |h, b| h.wrapping_mul(31).wrapping_add(b as u32));
    HObject { pool: POOL, hash, snap: SnapId::HEAD, name: name.into(), ..HObject::min() }
}

impl Host {
    /// A shard that serves one empty PG, with one client connected as connection 1.
    pub fn serving() -> Host {
        let mut host = Host::with(config(), memory_store());
        host.open(1, 4100);
        let since = host.view.epoch;
        host.map(vec![PgOrder::alone(pg(), 0, since)]);
        host
    }

    pub fn with(config: ShardConfig, store: MemoryStore) -> Host {
        let pgs = store.placed().into_iter().filter_map(|(c, placed)| match c {
            store::Collection::Pg(id) => Some((id, placed)),
            store::Collection::Meta => None,
        });
        let mut view = ClusterView { epoch: 10, ..ClusterView::of_osds(0..6) };
        view.pools.insert(POOL, PoolView { name: "data".into(), pg_num: 1, ..PoolView::default() });
        let shard = Shard::new(config, pgs.collect());
        let (sent, control) = (VecDeque::new(), Vec::new());
        let mut host = Host {
            shard,
            store,
            now: Time::ZERO,
            sent,
            control,
            closed: Vec::new(),
            peers: Vec::new(),
            asks: Vec::new(),
            view,
            rot: Vec::new(),
            bad_place: None,
            hidden: None,
            bad_log: None,
            failed_reads: Vec::new(),
            polled: Vec::new(),
            merges_told: 0,
            listings: 0,
            next_tid: 0,
        };
        host.step(Input::Wall { now: UTime { sec: 1000, nsec: 0 } });
        host.step(Input::Leases(Arc::new(LeaseNews::endless(0..8))));
        host.settle();
        host
    }

    /// One input, its effects given to the store; completions stay there.
    pub fn step(&mut self, input: Input) {
        let mut fx = Effects::new();
        self.shard.step(self.now, input, &mut fx);
        self.shard.check();
        for effect in fx.drain() {
            if let Effect::Read { request, .. } = &effect {
                let is_list = |query: &&Query| matches!(query, Query::List { .. });
                self.listings += request.queries.iter().filter(is_list).count();
            }
            match effect {
                Effect::Send { conn, message } => self.sent.push_back((conn, message)),
                Effect::Submit { tag, transaction } => {
                    transaction.changes.iter().for_each(|change| self.replace_rot(change));
                    let is_emptied = transaction.changes.contains(&Change::RemoveCollection);
                    self.bad_log.take_if(|pg| is_emptied && transaction.collection == Collection::Pg(*pg));
                    self.store.submit(tag.0, transaction);
                }
                Effect::Read { tag, request } if self.is_rotten(&request) => self.failed_reads.push(tag),
                Effect::Read { tag, request } => self.store.read(tag.0, request),
                Effect::Close { conn } => self.closed.push(conn),
                Effect::SendPeer { to, message } => self.peers.push((to, message)),
                Effect::AskPeer { to, tid, request } => self.asks.push((to, tid, request)),
                Effect::Reroute(_) | Effect::ToShard { .. } => {}
                Effect::Control(c) => self.control.push(c),
            }
        }
        self.shard.on_sent(self.now);
    }

    /// Runs until the store has nothing more to say.
    pub fn settle(&mut self) {
        while self.poll_once() {}
    }

    /// Delivers the store's completions. Returns false if there were none and none will come.
    pub fn poll_once(&mut self) -> bool {
        let mut done = std::mem::take(&mut self.polled);
        let more = self.store.poll(&mut done);
        let failed = std::mem::take(&mut self.failed_reads);
        let has_said = !done.is_empty() || !failed.is_empty();
        for tag in failed {
            self.step(Input::Read { tag, answers: Err(ReadError::Corrupt) });
        }
        for completion in done {
            self.step(completed(completion));
        }
        has_said || more
    }

    /// Reads from the store, past the shard. The shard gets its completions when it is next polled.
    pub fn read_now(&mut self, request: ReadRequest) -> Result<Vec<Answer>, ReadError> {
        const TAG: u64 = u64::MAX;
        self.store.read(TAG, request);
        loop {
            self.store.poll(&mut self.polled);
            let is_own = |done: &mut Completion| matches!(done, Completion::Read { tag: TAG, .. });
            if let Some(Completion::Read { answers, .. }) = self.polled.extract_if(.., is_own).next() {
                return answers;
            }
        }
    }

    /// The device damages all bytes of an object.
    pub fn rot(&mut self, name: &'static str) {
        self.rot_range(name, 0..u64::MAX);
    }

    pub fn rot_range(&mut self, name: &'static str, bytes: Range<u64>) {
        self.rot.push((name, bytes));
    }

    /// New copies of the object are damaged, too.
    pub fn rot_for_good(&mut self, name: &'static str) {
        self.bad_place = Some(name);
    }

    pub fn heal(&mut self) {
        self.rot.clear();
        self.hidden = None;
    }

    pub fn has_rot(&self) -> bool {
        !self.rot.is_empty()
    }

    fn replace_rot(&mut self, change: &Change) {
        let is_left = |(name, rot): &(&'static str, Range<u64>)| match change {
            Change::Truncate { object, size } => object.object.name != *name || rot.start < *size,
            Change::Remove { object } => object.object.name != *name,
            Change::Write { object, offset, data } => {
                let end = offset + data.len() as u64;
                object.object.name != *name || rot.start < *offset || end < rot.end
            }
            _ => true,
        };
        self.rot.retain(is_left);
    }

    fn is_rotten(&self, request: &ReadRequest) -> bool {
        let meets = |(name, rot): &(&'static str, Range<u64>)| {
            request.object.object.name == *name
                && request.queries.iter().any(|query| match query {
                    Query::Data { offset, len } => {
                        *offset < rot.end && rot.start < offset.saturating_add(*len)
                    }
                    _ => false,
                })
        };
        let reads_bytes = || request.queries.iter().any(|query| matches!(query, Query::Data { .. }));
        let is_bad = self.bad_place.is_some_and(|name| request.object.object.name == name);
        let is_hidden = self.hidden.is_some_and(|(name, hidden)| {
            let concerns = |query: &Query| match query {
                Query::List { .. } => hidden == Hidden::Listing,
                Query::Attr { .. } => hidden == Hidden::Metadata,
                _ => false,
            };
            request.object.object.name == name && request.queries.iter().any(concerns)
        });
        let is_of_log = |query: &Query| matches!(query, Query::LogList { .. });
        let is_bad_log = self.bad_log.is_some_and(|pg| request.collection == Collection::Pg(pg))
            && request.queries.iter().any(is_of_log);
        is_bad_log || is_hidden || self.rot.iter().any(meets) || (is_bad && reads_bytes())
    }

    /// The daemon ends and starts again with the same store, and serves what it finds.
    pub fn restart(self) -> Host {
        let mut host = Host::with(config(), self.store);
        // Another request than those before.
        host.next_tid = self.next_tid;
        host.open(1, 4100);
        let pgs = host.store.collections().into_iter().filter_map(|(collection, _)| match collection {
            Collection::Pg(pg) => Some(PgOrder::alone(pg, 0, 10)),
            Collection::Meta => None,
        });
        let orders = pgs.collect();
        host.map(orders);
        host
    }

    /// Number of damaged objects of each PG that has any.
    pub fn damaged(&mut self) -> Vec<(SpgId, usize)> {
        let damaged = self.pg_reports().into_iter().filter(|report| report.damaged > 0);
        damaged.map(|report| (report.pg, report.damaged)).collect()
    }

    /// The body of the PG's log is in memory.
    pub fn is_resident(&self, pg: SpgId) -> bool {
        let mut copies = self.shard.copies();
        copies.find(|copy| copy.id == pg).expect("the PG is here").log.is_resident()
    }

    pub fn pg_reports(&mut self) -> Vec<PgReport> {
        self.control.clear();
        self.step(Input::Report);
        let mut reports = self.control.drain(..).filter_map(|said| match said {
            ToControl::Report { pgs, .. } => Some(pgs),
            _ => None,
        });
        reports.next_back().expect("a report")
    }

    /// The core's counters.
    pub fn figures(&mut self) -> osd::signals::ShardFigures {
        self.control.clear();
        self.step(Input::Report);
        let mut reports = self.control.drain(..).filter_map(|said| match said {
            ToControl::Report { figures, .. } => Some(*figures),
            _ => None,
        });
        reports.next_back().expect("a report")
    }

    pub fn map(&mut self, orders: Vec<PgOrder>) {
        self.map_meanwhile(orders);
        self.settle();
    }

    /// A new map while the store is at work.
    pub fn map_meanwhile(&mut self, orders: Vec<PgOrder>) {
        self.view.epoch += 1;
        self.step(Input::Map { view: Arc::new(self.view.clone()), orders });
    }

    pub fn open(&mut self, conn: u64, gid: i64) {
        let peer = Arc::new(client_peer(conn, gid as u64, gid));
        self.step(Input::Opened { conn: ConnId(conn), peer });
    }

    pub fn close(&mut self, conn: u64) {
        self.step(Input::Closed { conn: ConnId(conn), why: CloseReason::Broken("test".into()) });
    }

    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.step(Input::Deadline);
        self.settle();
    }

    pub fn request(&mut self, object: HObject, ops: Vec<OsdOp>) -> MOSDOp {
        request_at(self.view.epoch, object, ops)
    }

    /// Sends and does not wait. Gives the request's tid.
    pub fn send(&mut self, conn: u64, op: MOSDOp) -> u64 {
        self.next_tid += 1;
        self.resend(conn, self.next_tid, op);
        self.next_tid
    }

    pub fn resend(&mut self, conn: u64, tid: u64, op: MOSDOp) {
        let received = self.now;
        self.step(Input::Op { conn: ConnId(conn), tid, op: Box::new(op), held: Held::default(), received });
    }

    /// Sends over connection 1 and waits for the reply.
    pub fn ask(&mut self, name: &str, ops: Vec<OsdOp>) -> MOSDOpReply {
        let request = self.request(object(name), ops);
        let tid = self.send(1, request);
        self.settle();
        self.reply(tid)
    }

    /// The reply to `tid`, which must have been sent; other messages stay.
    pub fn reply(&mut self, tid: u64) -> MOSDOpReply {
        self.find_reply(tid).unwrap_or_else(|| panic!("no reply to {tid} in {:?}", self.sent))
    }

    pub fn find_reply(&mut self, tid: u64) -> Option<MOSDOpReply> {
        let ours = |m: &Message| m.tid == tid && matches!(m.body, Body::MOSDOpReply(_));
        let at = self.sent.iter().position(|(_, m)| ours(m))?;
        match self.sent.remove(at)?.1.body {
            Body::MOSDOpReply(reply) => Some(*reply),
            _ => None,
        }
    }

    /// The clients acknowledge what they were told to hold back.
    pub fn acknowledge_backoffs(&mut self) {
        for (conn, message) in std::mem::take(&mut self.sent) {
            match message.body {
                Body::MOSDBackoff(block) if block.op == op_value::BACKOFF_BLOCK => {
                    let message = Box::new(MOSDBackoff { op: op_value::BACKOFF_ACK_BLOCK, ..*block });
                    self.step(Input::Backoff { conn, message });
                }
                body => self.sent.push_back((conn, Message { body, ..message })),
            }
        }
    }

    /// The next watch event sent to `conn`.
    pub fn event(&mut self, conn: u64) -> Option<MWatchNotify> {
        let at = self
            .sent
            .iter()
            .position(|(c, m)| *c == ConnId(conn) && matches!(m.body, Body::MWatchNotify(_)))?;
        match self.sent.remove(at)?.1.body {
            Body::MWatchNotify(event) => Some(*event),
            _ => None,
        }
    }
}

pub fn write(offset: u64, data: &'static [u8]) -> OsdOp {
    OsdOp::extent(OpCode::WRITE, offset, data.len() as u64, Bytes::from_static(data))
}

pub fn write_full(data: &'static [u8]) -> OsdOp {
    OsdOp::extent(OpCode::WRITEFULL, 0, data.len() as u64, Bytes::from_static(data))
}

pub fn read(offset: u64, len: u64) -> OsdOp {
    OsdOp::extent(OpCode::READ, offset, len, Bytes::new())
}

pub fn output(reply: &MOSDOpReply, op: usize) -> Bytes {
    reply.ops[op].output.to_bytes()
}
