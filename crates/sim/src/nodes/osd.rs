//! An OSD of one core: its control machine, its shard, its store.
//!
//! What is checked here because clients cannot see it: a request that was made under a map from before the PG's
//! present interval is not carried out.
//!
//! The store reports what it has done when the node polls it, some random time after it was given something.

use super::osd_store::{Medium, OsdStore};
use super::{Shared, metadata, mon_session_config, wall};
use crate::check::Promise;
use crate::node::{Death, Node};
use machine::net::{CloseReason, NetEffect, NetEvent};
use machine::{ConnId, CoreId, Effects, Machine, Random, ReadTag, Tag, Time};
use osd::control::{self, Addrs, Control, ControlConfig, VersionText};
use osd::headroom::{Failsafe, Headroom};
use osd::ops::Limits;
use osd::pg::log::LogLimits;
use osd::shard::{self, PgOrder, Shard, ShardConfig};
use osd::{Destination, Routes};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{Collection, Completion};
use wire::messages::{Body, Message};
use wire::types::{EntityAddrVec, EntityKind, EntityName, Epoch, OsdId, SpgId, UTime, Uuid};

const CORE: CoreId = CoreId(0);
/// How long the store takes at least and at most from one poll to the next.
const DISK_MIN: Duration = Duration::from_micros(20);
const DISK_MAX: Duration = Duration::from_millis(3);
const SLOW_DISK_MAX: Duration = Duration::from_millis(300);
const SLOW_THINGS: Duration = Duration::from_secs(1);

pub struct OsdNode {
    index: usize,
    osd: OsdId,
    life: u32,
    monitor: EntityAddrVec,
    random: Random,
    medium: Medium,
    store: OsdStore,
    slow_until: Time,
    stalled_until: Time,
    history: Shared,
    machines: Option<Machines>,
}

struct Machines {
    control: Control,
    shard: Shard,
    routes: Routes,
    /// Whom the store's completions concern.
    asked: BTreeMap<u64, Owner>,
    next_ask: u64,
    poll_at: Option<Time>,
    slow_at: Time,
    headroom: Headroom,
    /// It is time to look whether there is room.
    look_for_room: bool,
    /// Since which map each PG is served from here without a break.
    served_since: BTreeMap<SpgId, Epoch>,
    /// Requests that came under a map from before that: what is wrong with answering them.
    stale: BTreeMap<(ConnId, u64), String>,
}

#[derive(Clone, Copy)]
enum Owner {
    Control(u64),
    Shard(u64),
}

/// What one machine has for the other, in the order in which it came up.
enum Step {
    Control(control::Input),
    Shard(shard::Input),
}

impl OsdNode {
    pub fn new(
        index: usize,
        osd: OsdId,
        monitor: EntityAddrVec,
        mut random: Random,
        history: Shared,
        medium: Medium,
    ) -> OsdNode {
        let store = OsdStore::empty(medium, &mut random);
        OsdNode {
            index,
            osd,
            life: 0,
            monitor,
            random,
            medium,
            store,
            slow_until: Time::ZERO,
            stalled_until: Time::ZERO,
            history,
            machines: None,
        }
    }

    /// What tells this store from another one.
    pub fn fsid(osd: OsdId) -> Uuid {
        let mut bytes = [7; 16];
        bytes[..4].copy_from_slice(&osd.0.to_le_bytes());
        Uuid(bytes)
    }

    /// Run steps and what follows from them until nothing is left to do at this moment.
    fn run(&mut self, now: Time, first: Step, out: &mut Vec<NetEffect>) {
        let OsdNode { store, machines, random, history, osd, slow_until, .. } = self;
        let m = machines.as_mut().expect("a node that is up has its machines");
        let mut todo = VecDeque::from([first]);
        let (mut control_fx, mut shard_fx) = (Effects::new(), Effects::new());
        while let Some(step) = todo.pop_front() {
            match step {
                Step::Control(input) => m.control.step(now, input, &mut control_fx),
                Step::Shard(input) => {
                    m.note(&input);
                    m.shard.step(now, input, &mut shard_fx);
                }
            }
            for effect in shard_fx.drain() {
                match effect {
                    shard::Effect::Send { conn, message } => {
                        if let Some(stale) = m.answers_stale(conn, &message) {
                            let mut history = history.borrow_mut();
                            history.violation(now, Promise::NoStaleRequest, format!("{osd} {stale}"));
                        }
                        out.push(NetEffect::Send { conn, message });
                    }
                    shard::Effect::Submit { tag, transaction } => {
                        m.look_for_room |= m.headroom.on_submit(&transaction);
                        let ask = m.ask(Owner::Shard(tag.0));
                        store.submit(ask, transaction);
                    }
                    shard::Effect::Read { tag, request } => {
                        let ask = m.ask(Owner::Shard(tag.0));
                        store.read(ask, request);
                    }
                    shard::Effect::Close { conn } => {
                        out.push(NetEffect::Close { conn });
                        let why = CloseReason::Broken("it is to send again what was not answered".into());
                        todo.push_back(Step::Shard(shard::Input::Closed { conn, why: why.clone() }));
                        todo.push_back(Step::Control(control::Input::Net(NetEvent::Closed { conn, why })));
                    }
                    shard::Effect::Reroute { conn, tid, op, held } => {
                        todo.push_back(Step::Shard(shard::Input::Op { conn, tid, op, held }));
                    }
                    shard::Effect::ToShard { input, .. } => todo.push_back(Step::Shard(*input)),
                    shard::Effect::Control(said) => {
                        todo.push_back(Step::Control(control::Input::Shard { core: CORE, said }));
                    }
                }
            }
            for effect in control_fx.drain() {
                match effect {
                    control::Effect::Net(effect) => out.push(effect),
                    control::Effect::Submit { tag, transaction } => {
                        let ask = m.ask(Owner::Control(tag.0));
                        store.submit(ask, transaction);
                    }
                    control::Effect::Read { tag, request } => {
                        let ask = m.ask(Owner::Control(tag.0));
                        store.read(ask, request);
                    }
                    control::Effect::Shard { input, .. } => todo.push_back(Step::Shard(input)),
                    control::Effect::AdminAnswer { .. }
                    | control::Effect::Compression { .. }
                    | control::Effect::Log { .. }
                    | control::Effect::Options { .. } => {}
                    control::Effect::Stopped => {}
                    control::Effect::Fatal { why } => panic!("{} gives up: {why}", self.osd),
                }
            }
        }
        m.poll_later(now, *slow_until, store.is_busy(), random);
        if std::mem::take(&mut m.look_for_room)
            && let Some(full) = m.headroom.look(&store.usage())
        {
            self.run(now, Step::Shard(shard::Input::Space { full }), out);
        }
    }

    fn poll(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let (completions, damage) = self.store.poll(now);
        for found in damage {
            let mut history = self.history.borrow_mut();
            match found.unexplained {
                None => history.damaged(&found.object.object.name),
                Some(why) => {
                    history.violation(now, Promise::OnlyDamageIsAnError, format!("{}: {why}", self.osd))
                }
            }
        }
        for completion in completions {
            let m = self.machines.as_mut().expect("a node that is up has its machines");
            let (Completion::Committed { tag } | Completion::Failed { tag } | Completion::Read { tag, .. }) =
                completion;
            let owner = m.asked.remove(&tag).expect("completions are of what was asked");
            let step = match (completion, owner) {
                (Completion::Committed { .. }, Owner::Shard(tag)) => {
                    Step::Shard(shard::Input::Committed { tag: Tag(tag) })
                }
                (Completion::Committed { .. }, Owner::Control(tag)) => {
                    Step::Control(control::Input::Committed { tag: Tag(tag) })
                }
                (Completion::Read { answers, .. }, Owner::Shard(tag)) => {
                    Step::Shard(shard::Input::Read { tag: ReadTag(tag), answers })
                }
                (Completion::Read { answers, .. }, Owner::Control(tag)) => {
                    Step::Control(control::Input::Read { tag: ReadTag(tag), answers })
                }
                (Completion::Failed { .. }, _) => panic!("{}: the store is full", self.osd),
            };
            self.run(now, step, out);
        }
    }
}

impl Machines {
    /// What the checks need of what the shard is told.
    fn note(&mut self, input: &shard::Input) {
        match input {
            shard::Input::Map { view, orders } => {
                self.routes = view.routes.clone();
                self.look_for_room |= self.headroom.set_ratio_max(view.failsafe.ratio_max);
                for order in orders {
                    match order {
                        PgOrder::Create { pg, since, .. } | PgOrder::Serve { pg, since } => {
                            self.served_since.insert(*pg, *since);
                        }
                        PgOrder::Idle { pg } | PgOrder::Block { pg } | PgOrder::Remove { pg } => {
                            self.served_since.remove(pg);
                        }
                        PgOrder::Unblock { .. } | PgOrder::Split { .. } => {}
                    }
                }
            }
            shard::Input::Op { conn, tid, op, .. } => {
                let (pg, epoch) = (op.pg, op.epoch);
                if let Some(since) = self.served_since.get(&pg).filter(|since| epoch < **since) {
                    let wrong = format!(
                        "carried out a request of epoch {epoch} on {pg}, which it serves since {since}"
                    );
                    self.stale.insert((*conn, *tid), wrong);
                } else {
                    self.stale.remove(&(*conn, *tid));
                }
            }
            shard::Input::Closed { conn, .. } => self.stale.retain(|(c, _), _| c != conn),
            _ => {}
        }
    }

    /// A successful answer to a request from before the interval: what is wrong with it.
    fn answers_stale(&mut self, conn: ConnId, message: &Message) -> Option<String> {
        let Body::MOSDOpReply(reply) = &message.body else { return None };
        self.stale.remove(&(conn, message.tid)).filter(|_| reply.result >= 0)
    }

    /// The store is looked at again while somebody waits for it, or it has something of its own to do.
    fn poll_later(&mut self, now: Time, slow_until: Time, is_busy: bool, random: &mut Random) {
        if self.asked.is_empty() && !is_busy || self.poll_at.is_some() {
            return;
        }
        let max = if now < slow_until { SLOW_DISK_MAX } else { DISK_MAX };
        let span = (max - DISK_MIN).as_nanos() as u64;
        self.poll_at = Some(now + DISK_MIN + Duration::from_nanos(random.below(span)));
    }

    fn ask(&mut self, owner: Owner) -> u64 {
        self.next_ask += 1;
        self.asked.insert(self.next_ask, owner);
        self.next_ask
    }
}

impl Node for OsdNode {
    fn name(&self) -> EntityName {
        EntityName::new(EntityKind::OSD, self.osd.0.into())
    }

    fn addrs(&self) -> EntityAddrVec {
        super::addrs(self.index, self.life)
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.life += 1;
        if let Err(error) = self.store.open() {
            let words = format!("{}: its store does not open: {error}", self.osd);
            return self.history.borrow_mut().violation(now, Promise::SoundDisks, words);
        }
        let addrs = self.addrs();
        let id = self.osd.0.to_string();
        let config = ControlConfig {
            osd: self.osd,
            osd_fsid: OsdNode::fsid(self.osd),
            cores: 1,
            mon: mon_session_config(EntityKind::OSD, &id, self.monitor.clone(), EntityKind::MGR.0.into()),
            addrs: Addrs {
                client: addrs.clone(),
                cluster: addrs.clone(),
                heartbeat_back: addrs.clone(),
                heartbeat_front: addrs,
            },
            metadata: metadata(),
            options: BTreeMap::new(),
            version: VersionText::default(),
        };
        let limits = Limits { max_metadata_size: self.store.metadata_max(), ..Limits::default() };
        let shard_config = ShardConfig {
            osd: self.osd,
            core: CORE,
            limits,
            log: match self.medium {
                Medium::Memory => LogLimits::default(),
                Medium::Disk => LogLimits { max_entries: 300, max_duplicates: 1000, batch: 50 },
            },
            object_cache_bytes: 1 << 20,
        };
        let collections = self.store.placed();
        let has_meta = collections.iter().any(|(c, _)| *c == Collection::Meta);
        let pgs = collections.into_iter().filter_map(|(c, placed)| match c {
            Collection::Pg(id) => Some((id, placed)),
            Collection::Meta => None,
        });
        self.machines = Some(Machines {
            control: Control::new(config, has_meta, self.random.fork()),
            shard: Shard::new(shard_config, pgs.collect()),
            routes: Routes::new(1),
            asked: BTreeMap::new(),
            next_ask: 0,
            poll_at: None,
            slow_at: now + SLOW_THINGS,
            headroom: Headroom::new(Failsafe::default().ratio_max),
            look_for_room: true,
            served_since: BTreeMap::new(),
            stale: BTreeMap::new(),
        });
        let wall: UTime = wall(now);
        self.run(now, Step::Control(control::Input::Wall { now: wall }), out);
        self.run(now, Step::Shard(shard::Input::Deadline), out);
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        if self.machines.is_none() {
            return; // Its store did not open, which ends the run.
        }
        match event {
            NetEvent::Ready { conn, peer } => {
                if !conn.is_outgoing() {
                    let peer = Arc::new(peer.clone());
                    self.run(now, Step::Shard(shard::Input::Opened { conn, peer }), out);
                }
                self.run(now, Step::Control(control::Input::Net(NetEvent::Ready { conn, peer })), out);
            }
            NetEvent::Closed { conn, why } => {
                if !conn.is_outgoing() {
                    let why = why.clone();
                    self.run(now, Step::Shard(shard::Input::Closed { conn, why }), out);
                }
                self.run(now, Step::Control(control::Input::Net(NetEvent::Closed { conn, why })), out);
            }
            NetEvent::Message { conn, message, held } if !conn.is_outgoing() => {
                let m = self.machines.as_ref().expect("a node that is up has its machines");
                let step = match (m.routes.of(&message), message.body) {
                    (Destination::Shard(_), Body::MOSDOp(op)) => {
                        Step::Shard(shard::Input::Op { conn, tid: message.tid, op, held })
                    }
                    (Destination::Shard(_), Body::MOSDBackoff(message)) => {
                        Step::Shard(shard::Input::Backoff { conn, message })
                    }
                    (_, body) => {
                        let message = Message { body, ..message };
                        Step::Control(control::Input::Net(NetEvent::Message { conn, message, held }))
                    }
                };
                self.run(now, step, out);
            }
            other => self.run(now, Step::Control(control::Input::Net(other)), out),
        }
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let m = self.machines.as_mut().expect("a node that is up has its machines");
        if self.stalled_until > now {
            m.poll_at = m.poll_at.map(|at| at.max(self.stalled_until));
        }
        if m.poll_at.take_if(|at| *at <= now).is_some() {
            self.poll(now, out);
            let m = self.machines.as_mut().expect("still up");
            m.poll_later(now, self.slow_until, self.store.is_busy(), &mut self.random);
        }
        let m = self.machines.as_mut().expect("still up");
        if m.slow_at <= now {
            m.slow_at = now + SLOW_THINGS;
            m.look_for_room = true;
            let usage = self.store.usage();
            self.run(now, Step::Control(control::Input::Wall { now: wall(now) }), out);
            self.run(
                now,
                Step::Control(control::Input::Usage { core: CORE, usage, compressed: Vec::new() }),
                out,
            );
        }
        let m = self.machines.as_ref().expect("still up");
        if m.shard.next_deadline().is_some_and(|at| at <= now) {
            self.run(now, Step::Shard(shard::Input::Deadline), out);
        }
        let m = self.machines.as_ref().expect("still up");
        if m.control.next_deadline().is_some_and(|at| at <= now) {
            self.run(now, Step::Control(control::Input::Deadline), out);
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let m = self.machines.as_ref()?;
        let machines = Time::earliest(m.control.next_deadline(), m.shard.next_deadline());
        Time::earliest(machines, Time::earliest(m.poll_at, Some(m.slow_at)))
    }

    fn crash(&mut self, _now: Time, death: Death, dice: &mut Random) {
        self.machines = None;
        self.store.died(death, dice);
    }

    fn is_writing(&self) -> bool {
        self.store.is_writing()
    }

    fn slow_disk(&mut self, until: Time) {
        self.slow_until = until;
    }

    fn stall_disk(&mut self, until: Time) {
        self.stalled_until = until;
    }

    fn flip_bit(&mut self) -> bool {
        self.store.disk().is_some_and(|disk| disk.flip_bit())
    }

    fn fail_reads(&mut self, until: Time) -> bool {
        self.store.disk().is_some_and(|disk| disk.fail_reads(until))
    }

    fn lose_disk(&mut self) {
        self.store = OsdStore::empty(self.medium, &mut self.random);
    }

    fn examine(&mut self) -> Result<(), String> {
        self.store.disk().map_or(Ok(()), |disk| disk.examine())
    }

    fn check(&self) {
        if let Some(m) = &self.machines {
            m.control.check();
            m.shard.check();
        }
    }

    fn states(&self, into: &mut dyn FnMut(&str)) {
        if self.machines.as_ref().is_some_and(|m| m.control.is_up()) {
            into("osd: up");
        }
    }
}
