//! A client node that makes and removes snapshots of a pool, writes objects under them, reads the objects as they were, and rolls
//! them back. It compares each answer with [`SnapModel`].
//!
//! Its objects are its own, with one operation in flight each. A client that crashes restarts as another client with other objects.

use super::{Keys, Monitors, Seat, Shared, name_of_client, new_client};
use crate::WallClock;
use crate::check::Promise;
use crate::check::snapshots::{Context, ENOENT, SnapModel, SnapWrite};
use crate::node::{Death, Node};
use bytes::Bytes;
use client::{Client, Effect, Event, Failure, Input, ObjectRef, OpId, Operation, ReadOps, Reply, WriteOps};
use codec::decode_exact;
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Time};
use mon_client::{RequestId, TimedOut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::messages::{Body, MPoolOp, PaxosHeader};
use wire::types::{EntityAddrVec, EntityName, OpCode, OsdOp, PoolId, SnapId, SnapList, Uuid};

/// Objects of one life.
const OBJECTS: u64 = 4;
/// Snapshots that exist at the same time, at most.
const SNAPS_MAX: usize = 6;
/// Bytes of an object, at most.
const BYTES_MAX: u64 = 300;
const PAUSE_MAX: Duration = Duration::from_millis(60);
/// Time after the last fault in which only reads begin.
const READS_AFTER: Duration = Duration::from_secs(20);
/// Time after the last fault until which each operation is answered.
const ANSWERED_AFTER: Duration = Duration::from_secs(45);

pub struct SnapperNode {
    index: usize,
    life: u32,
    monitors: Monitors,
    random: Random,
    wall: WallClock,
    keys: Option<Rc<Keys>>,
    pool: PoolId,
    history: Shared,
    client: Option<Client>,
    context: Context,
    objects: BTreeMap<u64, SnapModel>,
    /// The object of each operation, and what it does.
    open: BTreeMap<OpId, (u64, Act)>,
    request: Option<(RequestId, Request)>,
    next_at: Time,
    quiet_after: Time,
    is_judged: bool,
}

#[derive(Clone, Debug)]
enum Act {
    Write(Context, SnapWrite),
    Read(Option<u64>),
    List,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Make,
    Remove,
}

/// An event of the client machine. It lives for one turn, so its size does not matter.
#[allow(clippy::large_enum_variant)]
enum Heard {
    Done(OpId, Result<Reply, Failure>),
    Answer(RequestId, Result<Body, TimedOut>),
}

impl SnapperNode {
    pub fn new(seat: Seat, pool: PoolId, history: Shared, quiet_after: Time) -> SnapperNode {
        let Seat { index, monitors, random, wall, keys } = seat;
        SnapperNode {
            index,
            life: 0,
            monitors,
            random,
            wall,
            keys,
            pool,
            history,
            client: None,
            context: Context::default(),
            objects: BTreeMap::new(),
            open: BTreeMap::new(),
            request: None,
            next_at: Time::ZERO,
            quiet_after,
            is_judged: false,
        }
    }

    fn with<R>(
        &mut self,
        out: &mut Vec<NetEffect>,
        act: impl FnOnce(&mut Client, &mut Effects<Effect>) -> R,
    ) -> R {
        let mut effects = Effects::new();
        let result = act(self.client.as_mut().expect("a node that is up has its machine"), &mut effects);
        let mut heard = Vec::new();
        for effect in effects.take() {
            match effect {
                Effect::Net(effect) => out.push(effect),
                Effect::Event(Event::Done { id, outcome }) => heard.push(Heard::Done(id, outcome)),
                Effect::Event(Event::Answer { id, answer }) => heard.push(Heard::Answer(id, answer)),
                Effect::Event(_) => {}
            }
        }
        for heard in heard {
            match heard {
                Heard::Done(id, outcome) => self.done(id, outcome),
                Heard::Answer(id, answer) => self.answered(id, answer),
            }
        }
        result
    }

    fn violation(&self, promise: Promise, words: String) {
        self.history.borrow_mut().violation(promise, words);
    }

    fn name_of(&self, object: u64) -> String {
        format!("snapped-{}-{}-{object}", self.index, self.life)
    }

    fn done(&mut self, id: OpId, outcome: Result<Reply, Failure>) {
        let Some((object, act)) = self.open.remove(&id) else { return };
        let name = self.name_of(object);
        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) => return self.violation(Promise::Answered, format!("{name}: {act:?}: {failure}")),
        };
        let model = self.objects.entry(object).or_default();
        let found = match &act {
            Act::Write(context, write) => {
                let before = model.clone();
                let expected = model.write(context, write);
                let is_right = reply.result == expected;
                (!is_right).then(|| format!("{} instead of {expected}, it was {before:?}", reply.result))
            }
            Act::Read(snap) => {
                let expected = model.contents(*snap);
                let data = reply.data(0);
                let is_right = match expected {
                    Some(expected) => reply.is_ok() && data == expected,
                    None => reply.result == ENOENT,
                };
                let told = || format!("{} {data:?} instead of {expected:?} of {model:?}", reply.result);
                (!is_right).then(told)
            }
            Act::List => {
                let list = if reply.is_ok() { reply.decode::<SnapList>(0).ok() } else { None };
                let has_failed = list.is_none() && reply.result != ENOENT;
                match has_failed {
                    true => Some(format!("{}", reply.result)),
                    false => {
                        let found = model.check_list(list.as_ref()).err();
                        found.map(|words| format!("{words}: {list:?} of {model:?}"))
                    }
                }
            }
        };
        self.history.borrow_mut().snap_answered();
        if let Some(words) = found {
            self.violation(Promise::SnapshotsKept, format!("{name}: {act:?} gave {words}"));
        }
    }

    /// The monitor has made or removed a snapshot.
    fn answered(&mut self, id: RequestId, answer: Result<Body, TimedOut>) {
        let Some((_, request)) = self.request.take_if(|(open, _)| *open == id) else { return };
        let Ok(Body::MPoolOpReply(reply)) = answer else {
            return self.violation(Promise::Answered, format!("{request:?} of a snapshot: {answer:?}"));
        };
        match (request, decode_exact::<SnapId>(&reply.response)) {
            (Request::Make, Ok(snap)) if reply.result == 0 && snap.0 > self.context.seq => {
                self.context.seq = snap.0;
                self.context.snaps.insert(0, snap.0);
            }
            (Request::Remove, _) if reply.result == 0 => {}
            (request, snap) => {
                let words = format!("{request:?} of a snapshot: {} {snap:?}", reply.result);
                self.violation(Promise::SnapshotsKept, words);
            }
        }
    }

    fn ask_pool(&mut self, now: Time, request: Request, op: u32, snap: SnapId, out: &mut Vec<NetEffect>) {
        let body = MPoolOp {
            paxos: PaxosHeader { version: 0 },
            fsid: Uuid::default(),
            pool: self.pool as u32,
            op,
            snap,
            name: String::new(),
            crush_rule: -1,
        };
        let id = self.with(out, |client, fx| client.mon_request(now, body, None, fx));
        self.request = Some((id, request));
    }

    fn make_snap(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.ask_pool(now, Request::Make, MPoolOp::CREATE_UNMANAGED_SNAP, SnapId(0), out);
    }

    /// No operation uses the snapshot from now on.
    fn remove_snap(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let reads = |act: &Act, snap| match act {
            Act::Read(read) => *read == Some(snap),
            Act::Write(_, write) => *write == SnapWrite::Rollback(snap),
            Act::List => false,
        };
        let at = self.random.below(self.context.snaps.len() as u64) as usize;
        let snap = self.context.snaps[at];
        if self.open.values().any(|(_, act)| reads(act, snap)) {
            return;
        }
        self.context.snaps.remove(at);
        self.objects.values_mut().for_each(|model| model.remove_snap(snap));
        self.ask_pool(now, Request::Remove, MPoolOp::DELETE_UNMANAGED_SNAP, SnapId(snap), out);
    }

    fn data(&mut self) -> Bytes {
        let len = 1 + self.random.below(BYTES_MAX);
        let first = self.random.below(200) as u8;
        (0..len).map(|at| first.wrapping_add(at as u8)).collect::<Vec<u8>>().into()
    }

    fn some_snap(&mut self) -> Option<u64> {
        let count = self.context.snaps.len() as u64;
        (count > 0).then(|| self.context.snaps[self.random.below(count) as usize])
    }

    fn draw(&mut self, only_reads: bool) -> Act {
        let first = if only_reads { 10 } else { 0 };
        match first + self.random.below(16 - first) {
            0..2 => self.write(|node| SnapWrite::WriteFull(node.data())),
            2..5 => self.write(|node| SnapWrite::Write {
                offset: node.random.below(BYTES_MAX) as usize,
                data: node.data(),
            }),
            5..7 => self.write(|node| SnapWrite::Truncate(node.random.below(BYTES_MAX) as usize)),
            7 => self.write(|_| SnapWrite::Remove),
            8..10 => match self.some_snap() {
                Some(snap) => self.write(|_| SnapWrite::Rollback(snap)),
                None => Act::Read(None),
            },
            10..14 => Act::Read(self.some_snap()),
            14 => Act::Read(None),
            _ => Act::List,
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut SnapperNode) -> SnapWrite) -> Act {
        let write = write(self);
        Act::Write(self.context.clone(), write)
    }

    fn issue(&mut self, now: Time, only_reads: bool, out: &mut Vec<NetEffect>) {
        let object = self.random.below(OBJECTS);
        if self.open.values().any(|(busy, _)| *busy == object) {
            return;
        }
        let act = self.draw(only_reads);
        let place = ObjectRef::new(self.pool, self.name_of(object));
        let operation = match &act {
            Act::Write(context, write) => {
                let ops = WriteOps::new();
                let ops = match write {
                    SnapWrite::WriteFull(data) => ops.write_full(data.clone()),
                    SnapWrite::Write { offset, data } => ops.write(*offset as u64, data.clone()),
                    // Without an object a truncation alone changes nothing, also no snapshot set.
                    SnapWrite::Truncate(size) => ops.create(false).truncate(*size as u64),
                    SnapWrite::Remove => ops.remove(),
                    SnapWrite::Rollback(snap) => {
                        ops.op(OsdOp::new(OpCode::ROLLBACK, SnapId(*snap), Bytes::new()))
                    }
                };
                let snaps = context.snaps.iter().map(|snap| SnapId(*snap)).collect();
                Operation::write(place, ops).with_snap_context(SnapId(context.seq), snaps)
            }
            Act::Read(snap) => {
                let read = Operation::read(place, ReadOps::new().read(0, 0));
                read.at_snap(snap.map_or(SnapId::HEAD, SnapId))
            }
            Act::List => {
                let list = ReadOps::new().op(OsdOp::bare(OpCode::LIST_SNAPS));
                Operation::read(place, list).at_snap(SnapId::DIR)
            }
        };
        let id = self.with(out, |client, fx| client.submit(now, operation, fx));
        self.open.insert(id, (object, act));
    }

    /// The last word: every operation is answered.
    fn judge(&mut self) {
        self.is_judged = true;
        if let Some((object, act)) = self.open.values().next() {
            let words = format!("{}: {act:?} has no answer", self.name_of(*object));
            self.violation(Promise::AnsweredAtLast, words);
        }
    }

    fn judge_at(&self) -> Option<Time> {
        (!self.is_judged).then_some(self.quiet_after + ANSWERED_AFTER)
    }

    fn ends(&self) -> Time {
        self.quiet_after + READS_AFTER
    }
}

impl Node for SnapperNode {
    fn name(&self) -> EntityName {
        name_of_client(self.client.as_ref())
    }

    fn addrs(&self) -> EntityAddrVec {
        super::addrs(self.index, self.life)
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.life += 1;
        let mut client = new_client(&self.monitors, &self.keys, self.random.fork());
        client.set_wall_time(now, self.wall.at(now));
        self.client = Some(client);
        self.next_at = now;
        self.with(out, |client, fx| client.start(now, fx));
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        self.with(out, |client, fx| client.step(now, Input::Net(event), fx));
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let client = self.client.as_ref().expect("a node that is up has its machine");
        let has_pool = client.map().is_some_and(|map| map.pools.contains_key(&self.pool));
        if client.next_deadline().is_some_and(|at| at <= now) {
            self.with(out, |client, fx| client.step(now, Input::Deadline, fx));
        }
        if self.next_at <= now && now < self.ends() {
            self.next_at = now + Duration::from_nanos(self.random.below(PAUSE_MAX.as_nanos() as u64));
            let only_reads = now >= self.quiet_after;
            let asks = !only_reads && self.request.is_none() && self.random.below(10) == 0;
            if !has_pool {
                self.with(out, |client, fx| {
                    let next = client.map().map_or(1, |map| map.epoch + 1);
                    client.want_map(now, next, fx);
                });
            } else if asks && self.context.snaps.len() < SNAPS_MAX && self.random.below(3) > 0 {
                self.make_snap(now, out);
            } else if asks && !self.context.snaps.is_empty() {
                self.remove_snap(now, out);
            } else {
                self.issue(now, only_reads, out);
            }
        }
        if self.judge_at().is_some_and(|at| at <= now) {
            self.judge();
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let next = (self.next_at < self.ends()).then_some(self.next_at);
        let client = self.client.as_ref()?;
        Time::earliest(client.next_deadline(), Time::earliest(next, self.judge_at()))
    }

    fn crash(&mut self, _now: Time, _death: Death, _dice: &mut Random) {
        self.open.clear();
        self.objects.clear();
        // Its snapshots stay, and nobody writes under them.
        (self.client, self.request, self.context) = (None, None, Context::default());
    }

    fn check(&self) {
        self.client.iter().for_each(Machine::check);
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.client.iter().for_each(|machine| machine.states(see));
    }
}
