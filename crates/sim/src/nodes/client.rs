//! A client node: it reads, writes, lists, watches and notifies at random, and records operations and answers.
//!
//! A client that crashes restarts as another client. Its operations in flight have unknown outcomes, and its watch must
//! time out: at the end of the quiet time, the living clients check the list of watchers.

use super::workload::{self, Draw, Workload};
use super::{Keys, Monitors, Seat, name_of_client, new_client};
use crate::WallClock;
use crate::check::{History, ListingRef, OpRef, Promise, Step, history_key, object};
use crate::node::{Death, Node};
use bytes::Bytes;
use client::{
    Client, Effect, Event, Failure, Input, Listing, ObjectRef, OpId, Operation, ReadOps, WatchEvent, WatchId,
    WriteOps,
};
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Time};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::types::{EntityAddrVec, EntityName, OsdFlags, PoolId, WatcherList};

/// The history, shared by all clients of a run.
pub type Shared = Rc<RefCell<History>>;

pub struct ClientNode {
    index: usize,
    /// The client's number in the history, new in every life.
    number: u32,
    life: u32,
    monitors: Monitors,
    random: Random,
    wall: WallClock,
    keys: Option<Rc<Keys>>,
    workload: Workload,
    pools: Vec<PoolId>,
    history: Shared,
    client: Option<Client>,
    draw: Draw,
    open: BTreeMap<OpId, (OpRef, Rc<[Step]>)>,
    listing: Option<PoolListing>,
    watch: Option<WatchId>,
    /// The OSD has confirmed the watch, and has not said since that it was lost.
    is_watching: bool,
    notifications: BTreeSet<WatchId>,
    /// The request that lists the watchers, at the end.
    look: Option<OpId>,
    next_at: Time,
    /// The object of the current burst.
    burst: Option<ObjectRef>,
    /// Operations begun.
    issued: u64,
    /// The end of the workload: no operation begins later.
    quiet_after: Time,
}

/// An unfinished listing of the pool.
struct PoolListing {
    reference: ListingRef,
    pool: PoolId,
    cursor: Listing,
    page: OpId,
    names: Vec<String>,
    /// `pg_num` at its begin. A split may repeat objects.
    pg_num: u32,
}

impl ClientNode {
    pub fn new(
        seat: Seat,
        workload: Workload,
        pools: Vec<PoolId>,
        history: Shared,
        quiet_after: Time,
    ) -> ClientNode {
        let Seat { index, monitors, random, wall, keys } = seat;
        ClientNode {
            index,
            number: 0,
            life: 0,
            monitors,
            random,
            wall,
            keys,
            workload,
            pools,
            history,
            client: None,
            draw: Draw::default(),
            open: BTreeMap::new(),
            listing: None,
            watch: None,
            is_watching: false,
            notifications: BTreeSet::new(),
            look: None,
            next_at: Time::ZERO,
            burst: None,
            issued: 0,
            quiet_after,
        }
    }

    /// Steps the machine, and returns its events for the caller to record.
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
                Heard::Done(id, outcome) if self.look == Some(id) => self.looked(outcome),
                Heard::Done(id, outcome) if self.listing.as_ref().is_some_and(|l| l.page == id) => {
                    self.listed(now, outcome, out)
                }
                Heard::Done(id, outcome) => self.done(id, outcome),
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
        let pool = self.pools[self.index / 2 % self.pools.len()];
        ObjectRef::new(pool, format!("watched-{}", self.index % 2))
    }

    /// Registers the watch, again if it was lost. Creates the object first: only an existing object can be watched.
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

    /// Checks the list of watchers after the quiet time: it must name all living watchers and no dead client.
    fn looked(&mut self, outcome: Result<client::Reply, Failure>) {
        let mut history = self.history.borrow_mut();
        let list = outcome.ok().filter(client::Reply::is_ok).and_then(|r| r.decode::<WatcherList>(0).ok());
        let Some(list) = list else {
            return history.violation(Promise::Answered, "the watchers cannot be listed".into());
        };
        for watcher in &list.entries {
            if history.is_dead(watcher.name.num) {
                let words = format!("{} is long dead and still listed as a watcher", watcher.name);
                history.violation(Promise::DeadWatchersEnd, words);
            }
        }
        let me = self.client.as_ref().map_or(0, Client::global_id) as i64;
        if self.is_watching && !list.entries.iter().any(|w| w.name.num == me) {
            let words = format!("client.{me} watches and is not listed: {:?}", list.entries);
            history.violation(Promise::WatchersAreListed, words);
        }
        if !self.notifications.is_empty() {
            let words = format!("client.{me} has notifications without an end");
            history.violation(Promise::NotificationsEnd, words);
        }
        history.looked();
    }

    fn step(&mut self, now: Time, input: Input, out: &mut Vec<NetEffect>) {
        let ((), heard) = self.with(out, |client, fx| client.step(now, input, fx));
        self.hear(now, heard, out);
    }

    fn done(&mut self, id: OpId, outcome: Result<client::Reply, Failure>) {
        let Some((op, steps)) = self.open.remove(&id) else { return };
        let mut history = self.history.borrow_mut();
        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) => {
                return history.violation(Promise::Answered, format!("{steps:?} failed: {failure}"));
            }
        };
        if reply.result == object::EIO && steps.iter().any(Step::reads_data) {
            return history.fail_read(op);
        }
        match workload::answer(&steps, &reply) {
            Ok(answer) => history.answer(op, answer),
            Err(error) => history.violation(Promise::Answered, format!("{steps:?}'s answer: {error}")),
        }
    }

    fn list(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let map = self.client.as_ref().and_then(Client::map).expect("there is a pool").clone();
        let (pool, page_max) = (self.any_pool(), 1 + self.random.below(20));
        let Some(mut cursor) = Listing::new(&map, pool, "", page_max) else { return };
        let pg_num = map.pools[&pool].pg_num;
        let reference = self.history.borrow_mut().begin_listing(self.number, &history_key(pool, ""));
        let page = cursor.next_page(&map);
        let (page, heard) = self.with(out, |client, fx| client.submit(now, page, fx));
        self.listing = Some(PoolListing { reference, pool, cursor, page, names: Vec::new(), pg_num });
        self.hear(now, heard, out);
    }

    /// Takes a page of the listing, then requests the next page or checks the whole listing.
    fn listed(&mut self, now: Time, outcome: Result<client::Reply, Failure>, out: &mut Vec<NetEffect>) {
        let Some(mut listing) = self.listing.take() else { return };
        let map = self.client.as_ref().and_then(Client::map).expect("there was a map").clone();
        let page = outcome.ok().and_then(|reply| listing.cursor.take(&map, &reply).ok());
        let Some(page) = page else {
            let mut history = self.history.borrow_mut();
            history.drop_listing(listing.reference);
            return history.violation(Promise::Answered, "a page of a listing cannot be had".into());
        };
        let names = page.objects.iter().map(|object| String::from_utf8_lossy(&object.name));
        let names = names.filter(|name| name.starts_with(OBJECT));
        listing.names.extend(names.map(|name| history_key(listing.pool, &name)));
        if !page.complete {
            let page = listing.cursor.next_page(&map);
            let (page, heard) = self.with(out, |client, fx| client.submit(now, page, fx));
            self.listing = Some(PoolListing { page, ..listing });
            return self.hear(now, heard, out);
        }
        let pool = map.pools.get(&listing.pool);
        let has_split = pool.is_none_or(|pool| pool.pg_num != listing.pg_num);
        self.history.borrow_mut().answer_listing(listing.reference, &listing.names, has_split);
    }

    fn look_at(&self) -> Option<Time> {
        (self.look.is_none() && self.watch.is_some()).then_some(self.quiet_after + LOOK_AFTER)
    }

    /// A random pool. A single pool costs no draw.
    fn any_pool(&mut self) -> PoolId {
        match self.pools[..] {
            [pool] => pool,
            _ => self.pools[self.random.below(self.pools.len() as u64) as usize],
        }
    }

    fn issue(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let is_burst = self.burst.is_some();
        let object = self.burst.take().unwrap_or_else(|| {
            let pool = self.any_pool();
            ObjectRef::new(pool, format!("{OBJECT}{}", self.workload.object(&mut self.random)))
        });
        let name = history_key(object.pool, &object.name.to_string());
        let owner = self.client.as_ref().map_or(0, Client::global_id) as i64;
        let (op, steps) = {
            let mut history = self.history.borrow_mut();
            let is_crowded = history.writes_open(&name) >= WRITES_OPEN_MAX;
            let steps: Rc<[Step]> = if history.pasts(&name) >= PASTS_MAX {
                workload::everything().into()
            } else {
                let Self { draw, random, workload, .. } = self;
                draw.steps(random, workload, &mut history, &name, owner, is_crowded).into()
            };
            (history.begin(self.number, &name, steps.clone()), steps)
        };
        let operation = workload::operation(object.clone(), &steps);
        // Without a draw, so that older seeds keep theirs.
        self.issued += 1;
        let every = self.workload.balanced_every;
        let is_balanced = every != 0 && self.issued.is_multiple_of(every) && !operation.writes();
        let flags = if is_balanced { OsdFlags::BALANCE_READS } else { OsdFlags::NONE };
        let operation = operation.with_flags(flags);
        let (id, heard) = self.with(out, |client, fx| client.submit(now, operation, fx));
        self.open.insert(id, (op, steps));
        self.hear(now, heard, out);
        let goes_on = is_burst || self.random.below(16) < self.workload.bursts;
        self.burst = (goes_on && self.open.len() < self.workload.depth).then_some(object);
        if self.burst.is_some() {
            self.next_at = now + BURST_PAUSE;
        }
    }
}

/// An event of the client machine. It lives for one turn, so its size does not matter.
#[allow(clippy::large_enum_variant)]
enum Heard {
    Done(OpId, Result<client::Reply, Failure>),
    Watch(WatchEvent),
    Notified(WatchId),
}

/// Prefix of the names of the workload's objects.
const OBJECT: &str = "object-";
/// Number of possible pasts from which an object is read as a whole, to reduce them: see [`History::pasts`].
const PASTS_MAX: usize = 32;
/// Maximum concurrent writes to an object: see [`History::writes_open`].
const WRITES_OPEN_MAX: usize = 6;
const BURST_PAUSE: Duration = Duration::from_micros(20);
const WATCH_TIMEOUT: Duration = Duration::from_secs(15);
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after the last fault in which every OSD restarts, reads its watchers, and times them out.
const LOOK_AFTER: Duration = Duration::from_secs(60);
/// The quiet time after the last fault: [`LOOK_AFTER`] and the check of the watchers.
pub const QUIET: Duration = Duration::from_secs(90);

impl Node for ClientNode {
    fn name(&self) -> EntityName {
        name_of_client(self.client.as_ref())
    }

    fn addrs(&self) -> EntityAddrVec {
        super::addrs(self.index, self.life)
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.life += 1;
        self.number = (self.index as u32) << 16 | self.life;
        let mut client = new_client(&self.monitors, &self.keys, self.random.fork());
        client.set_wall_time(now, self.wall.at(now));
        self.client = Some(client);
        self.next_at = now;
        self.with(out, |client, fx| client.start(now, fx));
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        self.step(now, Input::Net(event), out);
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let client = self.client.as_ref().expect("a node that is up has its machine");
        let has_pools =
            client.map().is_some_and(|map| self.pools.iter().all(|pool| map.pools.contains_key(pool)));
        if client.next_deadline().is_some_and(|at| at <= now) {
            self.step(now, Input::Deadline, out);
        }
        if self.next_at <= now {
            self.next_at =
                now + Duration::from_nanos(self.random.below(self.workload.pause_max.as_nanos() as u64));
            if !has_pools {
                self.with(out, |client, fx| {
                    // A client does not hear of maps that it did not ask for.
                    let next = client.map().map_or(1, |map| map.epoch + 1);
                    client.want_map(now, next, fx);
                });
            } else if now < self.quiet_after {
                if self.watch.is_none() {
                    self.rewatch(now, out);
                } else if self.random.below(64) == 0 && self.notifications.len() < 2 {
                    self.notify(now, out);
                } else if self.listing.is_none() && self.random.below(256) == 0 {
                    self.list(now, out);
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

    fn crash(&mut self, _now: Time, _death: Death, _dice: &mut Random) {
        let global_id = self.client.as_ref().map_or(0, Client::global_id) as i64;
        self.history.borrow_mut().abandon_client(self.number, global_id);
        self.open.clear();
        self.listing = None;
        self.notifications.clear();
        self.burst = None;
        (self.watch, self.is_watching, self.look, self.client) = (None, false, None, None);
    }

    fn check(&self) {
        self.client.iter().for_each(Machine::check);
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.client.iter().for_each(|machine| machine.states(see));
    }
}
