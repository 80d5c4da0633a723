//! A client that reads and writes at random, watches and notifies, and notes what it did and was told.
//!
//! Objects hold tokens, each written once in a run, so that contents tell which writes they have
//! seen. A client that dies comes back as another one; what it had in flight has an unknown outcome, and its watch
//! must end by itself: when all has been quiet for long enough, the survivors look who is listed as a watcher.

use super::{mon_session_config, wall};
use crate::check::{Act, Answer, History, OpRef, Promise, Token};
use crate::node::{Death, Node};
use bytes::Bytes;
use client::{
    Client, Config, Effect, Event, Failure, Input, ObjectRef, OpId, Operation, ReadOps, Timing, WatchEvent,
    WatchId, WriteOps,
};
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Time};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::types::{EntityAddrVec, EntityKind, EntityName, PoolId, WatcherList};

/// What all clients of a run share.
pub type Shared = Rc<RefCell<History>>;

#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub pool: PoolId,
    pub objects: u64,
    /// What a token takes in an object: a multiple of eight, it is repeated.
    pub token_bytes: usize,
    /// Operations in flight at most.
    pub depth: usize,
    /// Between two operations, at most.
    pub pause_max: Duration,
    /// Of 16 operations, how many are followed at once by others on the same object, as many as may be in flight:
    /// so that several are under way together.
    pub bursts: u64,
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
    watch: Option<WatchId>,
    /// The OSD has confirmed the watch, and has not said since that it was lost.
    is_watching: bool,
    notifications: BTreeSet<WatchId>,
    /// The request that looks who watches, at the end.
    look: Option<OpId>,
    next_at: Time,
    /// The object of the present burst.
    burst: Option<String>,
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
            watch: None,
            is_watching: false,
            notifications: BTreeSet::new(),
            look: None,
            next_at: Time::ZERO,
            burst: None,
            quiet_after,
        }
    }

    /// Let the machine act; answers to operations are given back, for the caller to note.
    fn with<R>(
        &mut self,
        out: &mut Vec<NetEffect>,
        act: impl FnOnce(&mut Client, &mut Effects<Effect>) -> R,
    ) -> (R, Vec<Heard>) {
        let mut effects = Effects::new();
        let result = act(self.client.as_mut().expect("a node that is up has its machine"), &mut effects);
        let mut done = Vec::new();
        for effect in effects.take() {
            match effect {
                Effect::Net(effect) => out.push(effect),
                Effect::Event(Event::Done { id, outcome }) => done.push(Heard::Done(id, outcome)),
                Effect::Event(Event::Watch { event, .. }) => done.push(Heard::Watch(event)),
                Effect::Event(Event::Notified { id, .. }) => done.push(Heard::Notified(id)),
                Effect::Event(_) => {}
            }
        }
        (result, done)
    }

    fn hear(&mut self, now: Time, heard: Vec<Heard>, out: &mut Vec<NetEffect>) {
        for heard in heard {
            match heard {
                Heard::Done(id, outcome) if self.look == Some(id) => self.looked(now, outcome),
                Heard::Done(id, outcome) => self.done(now, id, outcome),
                Heard::Notified(id) => drop(self.notifications.remove(&id)),
                Heard::Watch(WatchEvent::Registered) => self.is_watching = true,
                Heard::Watch(WatchEvent::Lost(_)) => {
                    self.is_watching = false;
                    self.rewatch(now, out);
                }
                Heard::Watch(WatchEvent::Notify { notify_id, .. }) => {
                    let Some(watch) = self.watch else { continue };
                    self.with(out, |client, fx| client.notify_ack(now, watch, notify_id, Bytes::new(), fx));
                }
            }
        }
    }

    fn watched(&self) -> ObjectRef {
        ObjectRef::new(self.workload.pool, format!("watched-{}", self.index % 2))
    }

    /// Watch, once more if need be. The object is made first, for only what exists can be watched.
    fn rewatch(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let object = self.watched();
        let old = self.watch.take();
        let (watch, _) = self.with(out, |client, fx| {
            if let Some(old) = old {
                client.unwatch(now, old, fx);
            }
            client.submit(now, Operation::write(object.clone(), WriteOps::new().create(false)), fx);
            client.watch(now, object, WATCH_TIMEOUT, fx)
        });
        self.watch = Some(watch);
    }

    fn notify(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let object = self.watched();
        let news = Bytes::from_static(b"news");
        let (id, heard) = self.with(out, |client, fx| client.notify(now, object, news, NOTIFY_TIMEOUT, fx));
        self.notifications.insert(id);
        self.hear(now, heard, out);
    }

    fn look(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let read = Operation::read(self.watched(), ReadOps::new().list_watchers());
        let (id, heard) = self.with(out, |client, fx| client.submit(now, read, fx));
        self.look = Some(id);
        self.hear(now, heard, out);
    }

    /// Who watches, when all has been quiet: those who live, and nobody else.
    fn looked(&mut self, now: Time, outcome: Result<client::Reply, Failure>) {
        let mut history = self.history.borrow_mut();
        let list = outcome.ok().filter(client::Reply::is_ok).and_then(|r| r.decode::<WatcherList>(0).ok());
        let Some(list) = list else {
            return history.violation(now, Promise::Answered, "the watchers cannot be listed".into());
        };
        for watcher in &list.entries {
            if history.is_dead(watcher.name.num) {
                let words = format!("{} is long dead and still listed as a watcher", watcher.name);
                history.violation(now, Promise::DeadWatchersEnd, words);
            }
        }
        let me = self.client.as_ref().map_or(0, Client::global_id) as i64;
        if self.is_watching && !list.entries.iter().any(|w| w.name.num == me) {
            let words = format!("client.{me} watches and is not listed: {:?}", list.entries);
            history.violation(now, Promise::WatchersAreListed, words);
        }
        if !self.notifications.is_empty() {
            let words = format!("client.{me} has notifications without an end");
            history.violation(now, Promise::NotificationsEnd, words);
        }
        history.looked();
    }

    fn step(&mut self, now: Time, input: Input, out: &mut Vec<NetEffect>) {
        let ((), heard) = self.with(out, |client, fx| client.step(now, input, fx));
        self.hear(now, heard, out);
    }

    fn done(&mut self, now: Time, id: OpId, outcome: Result<client::Reply, Failure>) {
        let Some((op, act)) = self.open.remove(&id) else { return };
        let mut history = self.history.borrow_mut();
        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) => {
                return history.violation(now, Promise::Answered, format!("{act:?} failed: {failure}"));
            }
        };
        const ENOENT: i32 = -2;
        const EIO: i32 = -5;
        let answer = match (act, reply.result) {
            (Act::Read, ENOENT) => Answer::Value(None),
            (Act::Read, EIO) => return history.fail_read(now, op),
            (Act::Read, 0..) => match tokens(&reply.data(0), self.workload.token_bytes) {
                Some(tokens) => Answer::Value(Some(tokens)),
                None => {
                    return history.violation(now, Promise::OneOrder, "a read gave a part of a token".into());
                }
            },
            (Act::Remove, ENOENT) => Answer::NotFound,
            (_, 0..) => Answer::Done,
            (_, errno) => {
                return history.violation(now, Promise::Answered, format!("{act:?} gave error {errno}"));
            }
        };
        history.answer(now, op, answer);
    }

    fn look_at(&self) -> Option<Time> {
        (self.look.is_none() && self.watch.is_some()).then_some(self.quiet_after + LOOK_AFTER)
    }

    fn issue(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let name = self.burst.clone();
        let name = name.unwrap_or_else(|| format!("object-{}", self.random.below(self.workload.objects)));
        let object = ObjectRef::new(self.workload.pool, name.as_str());
        let token = self.history.borrow_mut().token();
        let data = Bytes::from(token.to_le_bytes().repeat(self.workload.token_bytes / 8));
        let crowded = self.history.borrow().writes_open(&name) >= WRITES_OPEN_MAX;
        let (act, operation) = match self.random.below(16) {
            _ if crowded => (Act::Read, Operation::read(object, ReadOps::new().read(0, 1 << 20))),
            0..7 => (Act::Read, Operation::read(object, ReadOps::new().read(0, 1 << 20))),
            7..11 => (Act::Put(token), Operation::write(object, WriteOps::new().write_full(data))),
            11..15 => (Act::Append(token), Operation::write(object, WriteOps::new().append(data))),
            _ => (Act::Remove, Operation::write(object, WriteOps::new().remove())),
        };
        let op = self.history.borrow_mut().begin(now, self.number, &name, act);
        let (id, heard) = self.with(out, |client, fx| client.submit(now, operation, fx));
        self.open.insert(id, (op, act));
        self.hear(now, heard, out);
        let goes_on = self.burst.is_some() || self.random.below(16) < self.workload.bursts;
        self.burst = (goes_on && self.open.len() < self.workload.depth).then_some(name);
        if self.burst.is_some() {
            self.next_at = now + BURST_PAUSE;
        }
    }
}

/// What the machine told its caller. Each lives for one turn, so their sizes do not matter.
#[allow(clippy::large_enum_variant)]
enum Heard {
    Done(OpId, Result<client::Reply, Failure>),
    Watch(WatchEvent),
    Notified(WatchId),
}

/// Nobody writes an object on which so many writes are under way: see [`History::writes_open`].
const WRITES_OPEN_MAX: usize = 6;
const BURST_PAUSE: Duration = Duration::from_micros(20);
const WATCH_TIMEOUT: Duration = Duration::from_secs(15);
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// After the last fault: every OSD is back, has read its watchers, and has waited for them in vain.
const LOOK_AFTER: Duration = Duration::from_secs(60);
/// How long [`LOOK_AFTER`] and what follows it takes: a run goes on for so long after its last fault.
pub const QUIET: Duration = Duration::from_secs(90);

/// What was written, each token in `token_bytes`; `None` where one is not as it was written.
fn tokens(data: &[u8], token_bytes: usize) -> Option<Vec<Token>> {
    let token = |chunk: &[u8]| {
        let (words, rest) = chunk.as_chunks::<8>();
        let is_whole =
            rest.is_empty() && words.len() * 8 == token_bytes && words.iter().all(|w| *w == words[0]);
        is_whole.then(|| Token::from_le_bytes(words[0]))
    };
    data.chunks(token_bytes).map(token).collect()
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
            if has_pool && now < self.quiet_after {
                if self.watch.is_none() {
                    self.rewatch(now, out);
                } else if self.random.below(64) == 0 && self.notifications.len() < 2 {
                    self.notify(now, out);
                } else if self.open.len() < self.workload.depth {
                    self.issue(now, out);
                }
            }
        }
        if self.look_at().is_some_and(|at| at <= now) {
            self.look(now, out);
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let next = (self.next_at < self.quiet_after).then_some(self.next_at);
        let client = self.client.as_ref()?;
        Time::earliest(client.next_deadline(), Time::earliest(next, self.look_at()))
    }

    fn crash(&mut self, now: Time, _death: Death, _dice: &mut Random) {
        let global_id = self.client.as_ref().map_or(0, Client::global_id) as i64;
        self.history.borrow_mut().abandon_client(now, self.number, global_id);
        self.open.clear();
        self.notifications.clear();
        self.burst = None;
        (self.watch, self.is_watching, self.look, self.client) = (None, false, None, None);
    }

    fn check(&self) {
        self.client.iter().for_each(Machine::check);
    }
}
