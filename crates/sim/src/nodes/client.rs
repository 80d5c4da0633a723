//! A client that reads and writes at random, and notes what it did and was told.
//!
//! Objects hold tokens of eight bytes, each written once in a run, so that contents tell which writes they have
//! seen. A client that dies comes back as another one; what it had in flight has an unknown outcome.

use super::{mon_session_config, wall};
use crate::Node;
use crate::check::{Act, Answer, History, OpRef, Token};
use bytes::Bytes;
use client::{
    Client, Config, Effect, Event, Failure, Input, ObjectRef, OpId, Operation, ReadOps, Timing, WriteOps,
};
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::types::{EntityAddrVec, EntityKind, EntityName, PoolId};

/// What all clients of a run share.
pub type Shared = Rc<RefCell<History>>;

#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub pool: PoolId,
    pub objects: u64,
    /// Operations in flight at most.
    pub depth: usize,
    /// Between two operations, at most.
    pub pause_max: Duration,
}

pub struct ClientNode {
    index: usize,
    /// Tells clients apart in the history; another one in every life.
    number: u32,
    life: u32,
    monitor: EntityAddrVec,
    random: Random,
    workload: Workload,
    history: Shared,
    client: Option<Client>,
    open: BTreeMap<OpId, (OpRef, Act)>,
    next_at: Time,
    /// No more operations are begun: the run comes to its end.
    quiet_after: Time,
}

impl ClientNode {
    pub fn new(
        index: usize,
        monitor: EntityAddrVec,
        random: Random,
        workload: Workload,
        history: Shared,
        quiet_after: Time,
    ) -> ClientNode {
        ClientNode {
            index,
            number: 0,
            life: 0,
            monitor,
            random,
            workload,
            history,
            client: None,
            open: BTreeMap::new(),
            next_at: Time::ZERO,
            quiet_after,
        }
    }

    /// Let the machine act; answers to operations are given back, for the caller to note.
    fn with<R>(
        &mut self,
        out: &mut Vec<NetEffect>,
        act: impl FnOnce(&mut Client, &mut Effects<Effect>) -> R,
    ) -> (R, Vec<Done>) {
        let mut effects = Effects::new();
        let result = act(self.client.as_mut().expect("a node that is up has its machine"), &mut effects);
        let mut done = Vec::new();
        for effect in effects.take() {
            match effect {
                Effect::Net(effect) => out.push(effect),
                Effect::Event(Event::Done { id, outcome }) => done.push((id, outcome)),
                Effect::Event(_) => {}
            }
        }
        (result, done)
    }

    fn step(&mut self, now: Time, input: Input, out: &mut Vec<NetEffect>) {
        let ((), done) = self.with(out, |client, fx| client.step(now, input, fx));
        done.into_iter().for_each(|(id, outcome)| self.done(now, id, outcome));
    }

    fn done(&mut self, now: Time, id: OpId, outcome: Result<client::Reply, Failure>) {
        let Some((op, act)) = self.open.remove(&id) else { return };
        let mut history = self.history.borrow_mut();
        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) => return history.violation(format!("{now:?}: {act:?} failed: {failure}")),
        };
        const ENOENT: i32 = -2;
        let answer = match (act, reply.result) {
            (Act::Read, ENOENT) => Answer::Value(None),
            (Act::Read, 0..) => match tokens(&reply.data(0)) {
                Some(tokens) => Answer::Value(Some(tokens)),
                None => return history.violation(format!("{now:?}: a read gave a part of a token")),
            },
            (Act::Remove, ENOENT) => Answer::NotFound,
            (_, 0..) => Answer::Done,
            (_, errno) => return history.violation(format!("{now:?}: {act:?} gave error {errno}")),
        };
        history.answer(now, op, answer);
    }

    fn issue(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let name = format!("object-{}", self.random.below(self.workload.objects));
        let object = ObjectRef::new(self.workload.pool, name.as_str());
        let token = self.history.borrow_mut().token();
        let data = Bytes::copy_from_slice(&token.to_le_bytes());
        let (act, operation) = match self.random.below(16) {
            0..7 => (Act::Read, Operation::read(object, ReadOps::new().read(0, 1 << 20))),
            7..11 => (Act::Put(token), Operation::write(object, WriteOps::new().write_full(data))),
            11..15 => (Act::Append(token), Operation::write(object, WriteOps::new().append(data))),
            _ => (Act::Remove, Operation::write(object, WriteOps::new().remove())),
        };
        let op = self.history.borrow_mut().begin(now, self.number, &name, act);
        let (id, done) = self.with(out, |client, fx| client.submit(now, operation, fx));
        self.open.insert(id, (op, act));
        done.into_iter().for_each(|(id, outcome)| self.done(now, id, outcome));
    }
}

type Done = (OpId, Result<client::Reply, Failure>);

fn tokens(data: &[u8]) -> Option<Vec<Token>> {
    let chunks = data.chunks(8);
    chunks.map(|c| c.try_into().ok().map(Token::from_le_bytes)).collect()
}

impl Node for ClientNode {
    fn name(&self) -> EntityName {
        let global_id = self.client.as_ref().map_or(0, Client::global_id);
        EntityName::new(EntityKind::CLIENT, if global_id > 0 { global_id as i64 } else { -1 })
    }

    fn addrs(&self) -> EntityAddrVec {
        super::addrs(self.index, self.life)
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.life += 1;
        self.number = (self.index as u32) << 16 | self.life;
        let mon =
            mon_session_config(EntityKind::CLIENT, "admin", self.monitor.clone(), EntityKind::OSD.0.into());
        let config = Config { mon, timing: Timing::default() };
        let mut client = Client::new(config, 0, self.random.fork());
        client.set_wall_time(now, wall(now));
        self.client = Some(client);
        self.next_at = now;
        self.with(out, |client, fx| client.start(now, fx));
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        self.step(now, Input::Net(event), out);
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let client = self.client.as_ref().expect("a node that is up has its machine");
        let has_pool = client.map().is_some_and(|m| m.pools.contains_key(&self.workload.pool));
        if client.next_deadline().is_some_and(|at| at <= now) {
            self.step(now, Input::Deadline, out);
        }
        if self.next_at <= now {
            self.next_at =
                now + Duration::from_nanos(self.random.below(self.workload.pause_max.as_nanos() as u64));
            if has_pool && self.open.len() < self.workload.depth && now < self.quiet_after {
                self.issue(now, out);
            }
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let next = (self.next_at < self.quiet_after).then_some(self.next_at);
        Time::earliest(self.client.as_ref()?.next_deadline(), next)
    }

    fn crash(&mut self, _now: Time, _dice: &mut Random) {
        self.history.borrow_mut().abandon_client(self.number);
        self.open.clear();
        self.client = None;
    }

    fn check(&self) {
        self.client.iter().for_each(Machine::check);
    }
}
