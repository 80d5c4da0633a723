//! An OSD: production's assembly ([`osd::node`]) with simulated stores, clocks and mail between its cores.
//!
//! Each core has a store of one or more shards, which completes requests when it is polled, a random time after a request.
//! Connections live on the core that the network chose. Clients' requests meet migrations of PGs between cores, which are
//! ordered at random as an operator would order them, and changes of compression.
//!
//! The node checks what clients cannot see: no request from before the PG's current interval is executed, a PG is on one
//! core, and every core knows exactly the open sessions.

use super::disk::Disk;
use super::osd_mail::{Parcel, Post};
use super::osd_store::{Medium, OsdStore, scan_stores};
use super::{Keys, Monitors, Seat, Shared, metadata, mon_session_config, osd_sight};
use crate::WallClock;
use crate::check::Promise;
use crate::check::copies::sight::{Look, PgSight};
use crate::check::copies::{Ack, Contents};
use crate::node::{Death, Node};
use bytes::Bytes;
use command::options::{Identity, Layers};
use machine::net::{NetEffect, NetEvent};
use machine::{ConnId, CoreId, Effects, Machine, Random, Time};
use osd::control::{Addrs, ControlConfig, VersionText};
use osd::node::{self, Core, CoreConfig, Effect, Input, Mail};
use osd::ops::INFO_ATTR;
use osd::pg::log::LogLimits;
use osd::pg::role::Role;
use osd::shard::{self, ScrubWish};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use store::moving::leftovers;
use store::{Change, Collection, Transaction};
use wire::messages::{Body, MOSDOp, Message};
use wire::types::{EntityAddrVec, EntityKind, EntityName, OsdId, PgId, SpgId, Uuid};

/// Time from one poll of a store to the next.
const DISK_MIN: Duration = Duration::from_micros(20);
const DISK_MAX: Duration = Duration::from_millis(3);
const SLOW_DISK_MAX: Duration = Duration::from_millis(300);
/// The same while the disk answers nothing: the store finds out that it goes on.
const STALLED_DISK_MAX: Duration = Duration::from_millis(100);
/// Maximum time between two orders to this OSD, and the orders in 16 that change the compression.
const ORDER_PAUSE_MAX_MS: u64 = 6_000;
const COMPRESSION_ORDERS: u64 = 3;
/// Maximum duration of a clean stop. The monitor has 5 s to confirm it; pauses, hanging cores and disks add up to the rest.
const STOP_MAX: Duration = Duration::from_secs(90);

/// Parameters of one simulated OSD.
pub struct OsdConfig {
    pub osd: OsdId,
    pub medium: Medium,
    /// Each core has one store shard.
    pub has_one_shard: bool,
    pub cores: u16,
    pub bounds: Bounds,
    /// A member that lacks more objects recovers beside the acting set.
    pub async_recovery_min_cost: u64,
}

/// Bounds of an OSD's logs and backfills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub log: LogLimits,
    /// Objects of one window of a backfill, at most.
    pub scan_max: usize,
}

impl Bounds {
    /// Logs of some seconds.
    pub const SMALL: Bounds = Bounds { log: logs(20, 5), scan_max: 3 };

    /// The usual ones. Logs on disks are trimmed within a run.
    pub fn of(medium: Medium) -> Bounds {
        let log = match medium {
            Medium::Memory => LogLimits::default(),
            Medium::Disk => logs(300, 50),
        };
        Bounds { log, scan_max: shard::BACKFILL_SCAN_MAX }
    }
}

const fn logs(max_entries: usize, batch: usize) -> LogLimits {
    LogLimits { max_entries, max_duplicates: 1000, batch, rest_after: Duration::from_secs(5) }
}

pub struct OsdNode {
    config: OsdConfig,
    index: usize,
    monitors: Monitors,
    wall: WallClock,
    keys: Option<Rc<Keys>>,
    life: u32,
    random: Random,
    cores: Vec<SimulatedCore>,
    post: Post,
    slow_until: Time,
    stalled_until: Time,
    /// A core that does not run, and until when. Events of its connections wait, as its mail does.
    hung: Option<(CoreId, Time)>,
    events_waiting: VecDeque<NetEvent>,
    /// The next order of the operator.
    order_at: Time,
    orders: u64,
    /// End of [`STOP_MAX`], once the process was asked to stop.
    stop_by: Option<Time>,
    /// Core 0 hangs, and has not heard of the stop.
    stop_is_due: bool,
    /// The next write of an object is to leave a copy that differs.
    spoils_next: bool,
    history: Shared,
    /// Acknowledged writes that no checker has taken yet.
    acks: Vec<Ack>,
    /// Connections that were accepted and are open.
    open: BTreeSet<ConnId>,
    /// Requests from before the current interval, each with the violation that its execution would be.
    outdated: BTreeMap<(ConnId, u64), String>,
}

struct SimulatedCore {
    store: OsdStore,
    /// Until the process dies, or the core ends in a clean stop.
    core: Option<Core>,
    poll_at: Option<Time>,
}

impl OsdNode {
    pub fn new(seat: Seat, config: OsdConfig, history: Shared) -> OsdNode {
        let Seat { index, monitors, mut random, wall, keys } = seat;
        let post = Post::new(config.cores, random.fork());
        let core = |core| {
            let store = OsdStore::empty(&config, CoreId(core), &mut random);
            SimulatedCore { store, core: None, poll_at: None }
        };
        OsdNode {
            cores: (0..config.cores).map(core).collect(),
            config,
            index,
            monitors,
            wall,
            keys,
            life: 0,
            random,
            post,
            slow_until: Time::ZERO,
            stalled_until: Time::ZERO,
            hung: None,
            events_waiting: VecDeque::new(),
            order_at: Time::ZERO,
            orders: 0,
            stop_by: None,
            stop_is_due: false,
            spoils_next: false,
            history,
            acks: Vec::new(),
            open: BTreeSet::new(),
            outdated: BTreeMap::new(),
        }
    }

    /// Identity of this OSD's store.
    pub fn fsid(osd: OsdId) -> Uuid {
        let mut bytes = [7; 16];
        bytes[..4].copy_from_slice(&osd.0.to_le_bytes());
        Uuid(bytes)
    }

    fn is_running(&self) -> bool {
        self.cores.iter().all(|core| core.core.is_some())
    }

    /// The operator orders nothing that a core which hangs would have to answer.
    fn takes_orders(&self) -> bool {
        self.is_running() && self.hung.is_none()
    }

    /// Steps one core and carries out its effects. A core that has ended drops its input.
    fn step(&mut self, at: CoreId, now: Time, input: Input, out: &mut Vec<NetEffect>) {
        if self.cores[usize::from(at.0)].core.is_none() {
            return;
        }
        self.note_outdated(at, &input);
        let mut effects = Effects::new();
        self.core(at).step(now, input, &mut effects);
        self.core(at).check();
        while !effects.is_empty() {
            let (mut measure, mut count_work) = (false, false);
            for effect in effects.take() {
                match effect {
                    Effect::Net(effect) => self.send(at, now, effect, out),
                    Effect::Mail { to, mail } => self.post.send(now, at, to, Parcel::Mail(mail)),
                    Effect::Submit { tag, mut transaction } => {
                        self.spoils_next = self.spoils_next && !spoil(&mut transaction);
                        self.store(at).submit(tag, transaction);
                    }
                    Effect::Read { tag, request } => self.store(at).read(tag, request),
                    Effect::MeasureStore => measure = true,
                    Effect::CountDeviceWork => count_work = true,
                    Effect::Compression(pools) => self.store(at).set_compression(pools),
                    Effect::Fatal { why } => panic!("{} gives up: {why}", self.config.osd),
                    Effect::Stopped => {
                        let cores = (0..self.config.cores).map(CoreId);
                        cores.for_each(|to| self.post.send(now, at, to, Parcel::End));
                    }
                    Effect::CacheBudget { .. }
                    | Effect::MemtableBudget { .. }
                    | Effect::AdminAnswer { .. }
                    | Effect::Counters { .. }
                    | Effect::Options { .. }
                    | Effect::Restart
                    | Effect::ReleaseMemory
                    | Effect::Log { .. } => {}
                }
            }
            if measure {
                let usage = self.store(at).measure();
                self.core(at).step(now, Input::StoreUsage(usage), &mut effects);
                self.core(at).check();
            }
            if count_work {
                let work = self.store(at).device_work();
                self.core(at).step(now, Input::DeviceWork(work), &mut effects);
                self.core(at).check();
            }
        }
        if self.core(at).has_unsent_replies() {
            self.core(at).step(now, Input::Sent, &mut effects);
        }
        self.poll_later(at, now);
    }

    fn core(&mut self, at: CoreId) -> &mut Core {
        self.cores[usize::from(at.0)].core.as_mut().expect("a node that is up has its machines")
    }

    fn store(&mut self, at: CoreId) -> &mut OsdStore {
        &mut self.cores[usize::from(at.0)].store
    }

    /// A connection's effects leave from the core that it lives on.
    fn send(&mut self, at: CoreId, now: Time, effect: NetEffect, out: &mut Vec<NetEffect>) {
        if let NetEffect::Send { message, .. } = &effect {
            let core = self.cores[usize::from(at.0)].core.as_ref();
            self.acks.extend(osd_sight::ack(self.config.osd, core, message));
            if let Some(words) = core.and_then(|core| osd_sight::read_without_lease(core, now, message)) {
                let words = format!("{} {words}", self.config.osd);
                self.history.borrow_mut().violation(Promise::ReadsByLease, words);
            }
        }
        if let NetEffect::Send { conn, message } = &effect
            && let Some(outdated) = self.answers_outdated(*conn, message)
        {
            let words = format!("{} {outdated}", self.config.osd);
            self.history.borrow_mut().violation(Promise::NoStaleRequest, words);
        }
        match effect.core(at) {
            to if to == at => self.leave(effect, out),
            to => self.post.send(now, at, to, Parcel::Net(effect)),
        }
    }

    fn leave(&mut self, effect: NetEffect, out: &mut Vec<NetEffect>) {
        if let NetEffect::Close { conn } = &effect {
            self.open.remove(conn);
        }
        out.push(effect);
    }

    /// A request that reaches its PG's core must name a map of the PG's present interval.
    fn note_outdated(&mut self, at: CoreId, input: &Input) {
        let request = match input {
            Input::Net(NetEvent::Message {
                conn,
                message: Message { tid, body: Body::MOSDOp(op), .. },
                ..
            }) => Some((*conn, *tid, op)),
            Input::Mail(Mail::Shard(input)) => match &**input {
                shard::Input::Op { conn, tid, op, .. } => Some((*conn, *tid, op)),
                _ => None,
            },
            Input::Net(NetEvent::Closed { conn, .. }) => {
                self.outdated.retain(|(c, _), _| c != conn);
                None
            }
            _ => None,
        };
        let Some((conn, tid, op)) = request else { return };
        let MOSDOp { pg, epoch, .. } = **op;
        match self.core(at).served_since(pg) {
            Some(since) if epoch < since => {
                let wrong =
                    format!("carried out a request of epoch {epoch} on {pg}, which it serves since {since}");
                self.outdated.insert((conn, tid), wrong);
            }
            _ => drop(self.outdated.remove(&(conn, tid))),
        }
    }

    /// The violation of a successful answer to a request from before the interval.
    fn answers_outdated(&mut self, conn: ConnId, message: &Message) -> Option<String> {
        let Body::MOSDOpReply(reply) = &message.body else { return None };
        self.outdated.remove(&(conn, message.tid)).filter(|_| reply.result >= 0)
    }

    // ---- stores

    /// A store is polled while requests are outstanding or it has work of its own.
    fn poll_later(&mut self, at: CoreId, now: Time) {
        let SimulatedCore { store, core, poll_at } = &mut self.cores[usize::from(at.0)];
        let is_waited_for = core.as_ref().is_some_and(|core| core.requests_outstanding() > 0);
        if poll_at.is_some() || !(is_waited_for || store.is_busy()) {
            return;
        }
        let max = match () {
            () if now < self.stalled_until => STALLED_DISK_MAX,
            () if now < self.slow_until => SLOW_DISK_MAX,
            () => DISK_MAX,
        };
        let span = (max - DISK_MIN).as_nanos() as u64;
        *poll_at = Some(now + DISK_MIN + Duration::from_nanos(self.random.below(span)));
    }

    fn poll_when_due(&mut self, at: CoreId, now: Time, out: &mut Vec<NetEffect>) {
        let poll_at = &mut self.cores[usize::from(at.0)].poll_at;
        if poll_at.take_if(|at| *at <= now).is_some() {
            self.poll(at, now, out);
        }
    }

    fn poll(&mut self, at: CoreId, now: Time, out: &mut Vec<NetEffect>) {
        let is_stalled = now < self.stalled_until;
        self.store(at).set_stalled(is_stalled);
        let (completions, damage) = self.store(at).poll(now);
        for found in &damage {
            let mut history = self.history.borrow_mut();
            match &found.unexplained {
                None => history.damaged(&found.object_key()),
                Some(why) => {
                    let words = format!("{}: {why}", self.config.osd);
                    history.violation(Promise::OnlyDamageIsAnError, words);
                }
            }
        }
        for completion in completions {
            self.step(at, now, Input::Completed(completion), out);
        }
        for found in damage {
            self.step(at, now, Input::Damage(Box::new(found.damage)), out);
        }
        if self.cores[usize::from(at.0)].core.is_some() && self.store(at).take_ballast_change() {
            let usage = self.store(at).measure();
            self.step(at, now, Input::StoreUsage(usage), out);
        }
        self.poll_later(at, now);
    }

    // ---- mail and orders

    fn deliver_mail(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let hung = self.hung_core();
        while let Some((to, parcel)) = self.post.deliver(now, hung) {
            match parcel {
                Parcel::Mail(mail) => self.step(to, now, Input::Mail(mail), out),
                Parcel::Net(effect) => self.leave(effect, out),
                Parcel::End => self.end_core(to, now, out),
            }
        }
    }

    fn hung_core(&self) -> Option<CoreId> {
        self.hung.map(|(core, _)| core)
    }

    /// A core that hung runs again, and takes the events of its connections first.
    fn run_again_when_due(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        if self.hung.take_if(|(_, until)| *until <= now).is_some() {
            for event in std::mem::take(&mut self.events_waiting) {
                self.take_event(now, event, out);
            }
            self.stop_when_core_runs(now, out);
        }
    }

    fn stop_when_core_runs(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        if self.hung_core() != Some(CoreId(0)) && std::mem::take(&mut self.stop_is_due) {
            self.step(CoreId(0), now, Input::Stop, out);
        }
    }

    fn take_event(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        // Without its machines a core has ended, or its store did not open, which ends the run.
        if self.cores[usize::from(event.conn().core().0)].core.is_some() {
            match &event {
                NetEvent::Ready { conn, .. } if !conn.is_outgoing() => drop(self.open.insert(*conn)),
                NetEvent::Closed { conn, .. } => drop(self.open.remove(conn)),
                _ => {}
            }
            self.step(event.conn().core(), now, Input::Net(event), out);
        }
    }

    /// Ends a core as production's host does: after a last poll the store stops.
    fn end_core(&mut self, at: CoreId, now: Time, out: &mut Vec<NetEffect>) {
        if self.stalled_until <= now {
            self.poll(at, now, out);
        }
        self.cores[usize::from(at.0)].core = None;
        self.store(at).stop();
        self.poll_later(at, now);
    }

    /// Gives an operator's order: move a PG to another core, or change the compression.
    fn give_order(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.order_at = now + Duration::from_millis(500 + self.random.below(ORDER_PAUSE_MAX_MS));
        let command = if self.random.below(16) < COMPRESSION_ORDERS {
            let mode = ["none", "force"][self.random.below(2) as usize];
            format!(r#"{{"prefix":"config set","var":"bluestore_compression_mode","val":["{mode}"]}}"#)
        } else {
            let from = self.random.below(self.cores.len() as u64) as usize;
            let to = self.random.below(self.cores.len() as u64);
            let mut pgs: Vec<SpgId> = self.core(CoreId(from as u16)).pgs().collect();
            pgs.sort_unstable();
            let Some(pg) = pgs.get(self.random.below(pgs.len() as u64) as usize) else { return };
            format!(r#"{{"prefix":"pg move","pgid":"{}","core":{to}}}"#, pg.pg)
        };
        self.orders += 1;
        self.step(CoreId(0), now, Input::Admin { id: self.orders, command }, out);
    }

    fn core_config(&self, core: CoreId) -> CoreConfig {
        CoreConfig {
            osd: self.config.osd,
            core,
            cores: self.config.cores,
            log: self.config.bounds.log,
            scan_max: self.config.bounds.scan_max,
            object_cache_bytes: 1 << 20,
            options: self.layers(),
        }
    }

    fn layers(&self) -> Layers {
        let mut layers = Layers::new(Identity::named(&self.config.osd.to_string()));
        // Faults mark OSDs down more often than a running OSD allows by default.
        let min_cost = self.config.async_recovery_min_cost.to_string();
        for (option, value) in
            [("osd_max_markdown_count", "100000"), ("osd_async_recovery_min_cost", &min_cost)]
        {
            layers.set_override(option, value).expect("an option of the table");
        }
        layers
    }

    fn control_config(&self) -> ControlConfig {
        let (osd, addrs) = (self.config.osd, self.addrs());
        let id = osd.0.to_string();
        ControlConfig {
            osd,
            osd_fsid: OsdNode::fsid(osd),
            cores: self.config.cores,
            mon: mon_session_config(EntityKind::OSD, &id, &self.monitors, &self.keys, osd::control::SERVICES),
            addrs: Addrs {
                client: addrs.clone(),
                cluster: addrs.clone(),
                heartbeat_back: addrs.clone(),
                heartbeat_front: addrs,
            },
            metadata: metadata(),
            options: self.layers(),
            version: VersionText::default(),
        }
    }
}

/// Adds an attribute to the object that a transaction writes. False if it writes none.
fn spoil(transaction: &mut Transaction) -> bool {
    if !matches!(transaction.collection, Collection::Pg(_)) {
        return false;
    }
    let written = transaction
        .changes
        .iter()
        .rposition(|change| matches!(change, Change::SetAttr { name, .. } if *name == INFO_ATTR));
    let Some(at) = written else { return false };
    let Change::SetAttr { object, .. } = &transaction.changes[at] else { return false };
    let (object, name) = (object.clone(), Bytes::from_static(b"spoiled"));
    let value = Bytes::from_static(b"by the simulator");
    transaction.changes.insert(at + 1, Change::SetAttr { object, name, value });
    true
}

impl Node for OsdNode {
    fn name(&self) -> EntityName {
        EntityName::new(EntityKind::OSD, self.config.osd.0.into())
    }

    fn addrs(&self) -> EntityAddrVec {
        super::addrs(self.index, self.life)
    }

    fn cores(&self) -> u16 {
        self.config.cores
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.life += 1;
        let opened = self.cores.iter_mut().try_for_each(|core| core.store.open());
        if let Err(error) = opened {
            let words = format!("{}: its store does not open: {error}", self.config.osd);
            return self.history.borrow_mut().violation(Promise::SoundDisks, words);
        }
        let contents = scan_stores(self.cores.iter_mut().map(|core| &mut core.store));
        for (at, contents) in contents.into_iter().enumerate() {
            let at = CoreId(at as u16);
            let control = (at == CoreId(0)).then(|| (self.control_config(), self.random.fork()));
            let core = Core::new(self.core_config(at), contents, control);
            self.cores[usize::from(at.0)].core = Some(core);
        }
        self.order_at = now + Duration::from_millis(self.random.below(ORDER_PAUSE_MAX_MS));
        for at in (0..self.config.cores).map(CoreId) {
            self.step(at, now, Input::Start { wall: self.wall.at(now) }, out);
        }
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        self.run_again_when_due(now, out);
        if self.hung_core() == Some(event.conn().core()) {
            return self.events_waiting.push_back(event);
        }
        self.take_event(now, event, out);
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        assert!(self.stop_by.is_none_or(|by| now < by), "{} stops for {STOP_MAX:?}", self.config.osd);
        self.run_again_when_due(now, out);
        self.deliver_mail(now, out);
        let hung = self.hung_core();
        for at in (0..self.config.cores).map(CoreId).filter(|at| Some(*at) != hung) {
            self.poll_when_due(at, now, out);
            let core = self.cores[usize::from(at.0)].core.as_ref();
            if core.and_then(Machine::next_deadline).is_some_and(|at| at <= now) {
                self.step(at, now, Input::Deadline { wall: self.wall.at(now) }, out);
            }
        }
        if self.order_at <= now && self.takes_orders() {
            self.give_order(now, out);
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let hung = self.hung_core();
        let order_at = self.takes_orders().then_some(self.order_at);
        let mut next = Time::earliest(self.post.next_delivery(hung), order_at);
        next = Time::earliest(next, self.hung.map(|(_, until)| until));
        for (SimulatedCore { core, poll_at, .. }, at) in self.cores.iter().zip(0..) {
            if hung == Some(CoreId(at)) {
                continue;
            }
            let deadline = core.as_ref().and_then(Machine::next_deadline);
            next = Time::earliest(next, Time::earliest(deadline, *poll_at));
        }
        next
    }

    fn crash(&mut self, _now: Time, death: Death, dice: &mut Random) {
        for SimulatedCore { store, core, poll_at } in &mut self.cores {
            (*core, *poll_at) = (None, None);
            store.died(death, dice);
        }
        (self.stop_by, self.stop_is_due) = (None, false);
        self.hung = None;
        self.events_waiting.clear();
        self.post.clear();
        self.open.clear();
        self.outdated.clear();
    }

    fn stop(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.stop_by = Some(now + STOP_MAX);
        self.stop_is_due = true;
        self.stop_when_core_runs(now, out);
    }

    fn has_ended(&self) -> bool {
        self.cores.iter().all(|core| core.core.is_none() && core.store.has_stopped())
    }

    fn is_writing(&self) -> bool {
        self.cores.iter().any(|core| core.store.is_writing())
    }

    fn slow_disk(&mut self, until: Time) {
        self.slow_until = until;
    }

    fn stall_disk(&mut self, until: Time) {
        self.stalled_until = until;
    }

    fn hang_core(&mut self, pick: u64, until: Time) -> bool {
        let is_free = self.is_running() && self.hung.is_none();
        if is_free {
            self.hung = Some((CoreId((pick % u64::from(self.config.cores)) as u16), until));
        }
        is_free
    }

    fn flip_bit(&mut self) -> bool {
        let at = self.random.below(self.cores.len() as u64) as usize;
        self.cores[at].store.any_disk(&mut self.random).is_some_and(Disk::flip_bit)
    }

    fn flip_twins(&mut self) -> bool {
        let at = self.random.below(self.cores.len() as u64) as usize;
        self.cores[at].store.any_disk(&mut self.random).is_some_and(Disk::flip_twins)
    }

    fn fail_reads(&mut self, until: Time) -> bool {
        let at = self.random.below(self.cores.len() as u64) as usize;
        self.cores[at].store.any_disk(&mut self.random).is_some_and(|disk| disk.fail_reads(until))
    }

    fn spoil_copy(&mut self) -> bool {
        !std::mem::replace(&mut self.spoils_next, true)
    }

    fn scrub(&mut self, now: Time, pick: Option<u64>, wish: ScrubWish, out: &mut Vec<NetEffect>) -> bool {
        if !self.takes_orders() {
            return false;
        }
        let mut pgs: Vec<(PgId, CoreId)> = Vec::new();
        for (at, core) in (0..).map(CoreId).zip(&self.cores) {
            let copies = core.core.iter().flat_map(Core::copies);
            let served = copies.filter(|pg| matches!(pg.role, Role::Primary(_)));
            pgs.extend(served.map(|pg| (pg.id.pg, at)));
        }
        pgs.sort_unstable();
        let one = pick.and_then(|pick| pgs.get(pick.checked_rem(pgs.len() as u64)? as usize).copied());
        let chosen = if pick.is_some() { one.into_iter().collect() } else { pgs };
        for (pg, at) in &chosen {
            let input = shard::Input::Scrub { pg: *pg, wish };
            self.step(*at, now, Input::Mail(Mail::Shard(Box::new(input))), out);
        }
        !chosen.is_empty()
    }

    fn reset_disk(&mut self, now: Time, until: Time) -> bool {
        let disks = self.cores.iter_mut().flat_map(|core| core.store.disks());
        disks.filter_map(|disk| disk.reset(now, until).then_some(())).count() > 0
    }

    fn fill_disk(&mut self, until: Time) -> bool {
        let disks = self.cores.iter_mut().flat_map(|core| core.store.disks());
        disks.filter_map(|disk| disk.fill(until).then_some(())).count() > 0
    }

    fn lose_disk(&mut self) {
        for (core, at) in self.cores.iter_mut().zip(0..) {
            core.store = OsdStore::empty(&self.config, CoreId(at), &mut self.random);
        }
    }

    fn pg_sights(&self, now: Time, look: Look) -> Vec<PgSight> {
        let cores = self.cores.iter().filter_map(|core| core.core.as_ref());
        let OsdConfig { osd, bounds, .. } = &self.config;
        cores.flat_map(|core| osd_sight::pg_sights(*osd, core, now, &bounds.log, look)).collect()
    }

    fn objects_copied(&self) -> u64 {
        let cores = self.cores.iter().filter_map(|core| core.core.as_ref());
        cores.map(Core::objects_recovered).sum()
    }

    fn take_acks(&mut self) -> Vec<Ack> {
        std::mem::take(&mut self.acks)
    }

    fn contents(&mut self) -> Option<(OsdId, Contents)> {
        // A PG that moves between cores has two copies, of which one counts.
        let placed = self.cores.iter_mut().enumerate().flat_map(|(at, core)| {
            core.store.placed().into_iter().map(move |(collection, placed)| (at, collection, placed))
        });
        let left = leftovers(placed);
        let of_core = |(at, core): (usize, &mut SimulatedCore)| {
            osd_sight::contents(&mut core.store, |collection| !left.contains(&(at, collection)))
        };
        Some((self.config.osd, self.cores.iter_mut().enumerate().flat_map(of_core).collect()))
    }

    fn index_gap(&mut self) -> Option<String> {
        // The rule holds for a copy that does not count, too.
        let words = self.cores.iter_mut().find_map(|core| osd_sight::index_gap(&mut core.store))?;
        Some(format!("{}: {words}", self.config.osd))
    }

    fn examine(&mut self) -> Result<(), String> {
        self.cores.iter_mut().flat_map(|core| core.store.disks()).try_for_each(Disk::examine)
    }

    fn check(&self) {
        // Each core was checked after its last input.
        let cores = || self.cores.iter().filter_map(|core| core.core.as_ref());
        node::check_together(cores());
        if self.post.is_empty() && self.events_waiting.is_empty() && self.is_running() {
            node::check_sessions(cores(), &self.open);
        }
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.cores.iter().filter_map(|core| core.core.as_ref()).for_each(|core| core.states(see));
    }
}
