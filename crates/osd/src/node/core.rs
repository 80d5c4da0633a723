//! One core of an OSD: its shard, its headroom, and on core 0 the control machine.
//!
//! The two machines of core 0 do not call each other both ways. The control machine's orders reach the shard of core 0 at
//! once, in the middle of the control machine's step; a shard's reports reach the control machine as mail, on core 0 too.
//! So no machine is stepped while it is being stepped, and every core's reports take the same way.
//!
//! Cost on the data path: each effect of the shard is moved once, into the list that the host drains. A request for a PG
//! of another core is boxed, and travels with the other mail of the same turn.

use super::contents::StoreContents;
use super::headroom::{Failsafe, Headroom};
use super::io::{Budgets, Damage, Effect, Input, Mail, StoreUsage};
use super::links::{LinkNews, Links, Outgoing};
use super::peers::{Peers, Statement};
use super::requests::{Requests, control_tag, of_control};
use super::routes::Destination;
use crate::control::{self, Control, ControlConfig, Level};
use crate::ops::Limits;
use crate::options::{LimitOptions, TrackingOptions};
use crate::pg::Pg;
use crate::pg::log::LogLimits;
use crate::planted::{self, PlantedBug};
use crate::shard::{self, ClusterView, Parked, Shard, ShardConfig};
use crate::signals::TrackingLimits;
use command::options::Layers;
use machine::net::{CloseReason, NetEffect, NetEvent, Peer};
use machine::{ConnId, CoreId, Effects, Machine, Random, ReadTag, Tag, Time, WallClock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use store::{Collection, Completion, ObjectId, Transaction};
use wire::messages::{Body, MPing, Message};
use wire::types::{Epoch, OsdId, SpgId, UTime};

/// Maximum time between two measurements of a core's store.
const MEASURE_EVERY: Duration = Duration::from_secs(2);
/// Damaged places that are remembered, so that each is logged once.
const DAMAGE_KNOWN_MAX: usize = 10_000;

type Fx = Effects<Effect>;

#[derive(Clone, Debug)]
pub struct CoreConfig {
    pub osd: OsdId,
    pub core: CoreId,
    /// Cores of this OSD.
    pub cores: u16,
    pub log: LogLimits,
    /// Objects of one window of a backfill, at most.
    pub scan_max: usize,
    /// For the object contexts of one PG.
    pub object_cache_bytes: usize,
    /// The configuration at the start. Later changes come from the control machine.
    pub options: Layers,
}

pub struct Core {
    core: CoreId,
    cores: u16,
    shard: Shard,
    shard_effects: Effects<shard::Effect>,
    /// On core 0.
    control: Option<Box<ControlPart>>,
    /// The newest map's digest; its routes hold for the messages that arrive here.
    view: Arc<ClusterView>,
    links: Links,
    peers: Peers,
    headroom: Headroom,
    requests: Requests,
    /// [`Effect::MeasureStore`] is due.
    measure: bool,
    /// It was asked for and is not answered.
    measuring: bool,
    measure_at: Time,
    /// The last measurement that core 0 was told.
    usage_told: Option<StoreUsage>,
    damaged: BTreeSet<(Collection, ObjectId, u64)>,
    /// Mail that the planted bug lets later mail overtake.
    #[cfg(feature = "planted-bugs")]
    delayed_mail: Option<(CoreId, Mail)>,
}

struct ControlPart {
    control: Control,
    effects: Effects<control::Effect>,
    /// As the machines were told it.
    wall: WallClock,
}

impl Core {
    /// `control`: what the control machine needs, for core 0 and for no other.
    pub fn new(
        config: CoreConfig,
        contents: StoreContents,
        control: Option<(ControlConfig, Random)>,
    ) -> Core {
        let CoreConfig { osd, core, cores, log, scan_max, object_cache_bytes, options } = config;
        assert_eq!(control.is_some(), core == CoreId(0), "the control machine is on core 0");
        let tracking = TrackingLimits::of(&TrackingOptions::read(&options));
        let limits = Limits::of(&LimitOptions::read(&options), contents.metadata_max);
        let shard_config = ShardConfig { osd, core, limits, tracking, log, scan_max, object_cache_bytes };
        let pgs = contents
            .collections
            .iter()
            .filter_map(|(collection, placed)| Some((pg_of(*collection)?, *placed)));
        let mut shard = Shard::new(shard_config, pgs.collect());
        shard.set_divided(contents.is_divided);
        shard.obstruct(contents.obstructed.iter().filter_map(|collection| pg_of(*collection)));
        let has_meta = contents.collections.iter().any(|(collection, _)| *collection == Collection::Meta);
        let control = control.map(|(config, random)| {
            Box::new(ControlPart {
                control: Control::new(config, has_meta, random),
                effects: Effects::new(),
                wall: WallClock::new(Time::ZERO, UTime::ZERO),
            })
        });
        Core {
            core,
            cores,
            shard,
            shard_effects: Effects::new(),
            control,
            view: Arc::new(ClusterView::default()),
            links: Links::new(core),
            peers: Peers::default(),
            headroom: Headroom::new(Failsafe::of(&options).ratio_max),
            requests: Requests::default(),
            measure: false,
            measuring: false,
            measure_at: Time::ZERO,
            usage_told: None,
            damaged: BTreeSet::new(),
            #[cfg(feature = "planted-bugs")]
            delayed_mail: None,
        }
    }

    /// The newest map has this OSD up. Known on core 0.
    pub fn is_up(&self) -> bool {
        self.control.as_ref().is_some_and(|part| part.control.is_up())
    }

    /// The first epoch of the interval in which this core serves a PG.
    pub fn served_since(&self, pg: SpgId) -> Option<Epoch> {
        self.shard.served_since(pg)
    }

    /// The PGs' copies on this core, for checkers.
    pub fn copies(&self) -> impl Iterator<Item = &Pg> + '_ {
        self.shard.copies()
    }

    /// Objects that primaries on this core have recovered or backfilled to members.
    pub fn objects_recovered(&self) -> u64 {
        self.shard.objects_recovered()
    }

    /// The PG's primary here may answer reads: the rest of the acting set has given it a lease.
    pub fn may_read(&self, pg: &Pg, now: Time) -> bool {
        self.shard.may_read(pg, now)
    }

    /// The same of a replica and the reads of its copy.
    pub fn may_read_copy(&self, pg: &Pg, now: Time) -> bool {
        self.shard.may_read_copy(pg, now)
    }

    /// The map since which this OSD's store holds the PG.
    pub fn store_since(&self, pg: SpgId) -> Epoch {
        self.shard.store_since(pg)
    }

    /// PGs that clients' requests on this core reach.
    pub fn pgs(&self) -> impl Iterator<Item = SpgId> + '_ {
        self.shard.owned_pgs()
    }

    /// True if this core may block until a write is on its device. Core 0 must not in a cluster with other OSDs: a device that
    /// hangs would stop the pulses, and the OSD would be down at once. Not even if all others are down: one that boots would
    /// wait for its answers.
    pub fn may_block(&self) -> bool {
        self.control.as_ref().is_none_or(|part| !part.control.has_others())
    }

    /// True if this core answered operations since the last [`Input::Sent`].
    pub fn has_unsent_replies(&self) -> bool {
        self.shard.has_unsent_replies()
    }

    /// Store requests that have not completed.
    pub fn requests_outstanding(&self) -> u64 {
        self.requests.outstanding()
    }

    fn post(&mut self, to: CoreId, mail: Mail, out: &mut Fx) {
        #[cfg(feature = "planted-bugs")]
        if planted::has(PlantedBug::RequestMailOvertakes)
            && let Mail::Shard(input) = &mail
            && matches!(**input, shard::Input::Op { .. })
        {
            match self.delayed_mail.take() {
                None => self.delayed_mail = Some((to, mail)),
                Some((earlier_to, earlier)) => {
                    out.push(Effect::Mail { to, mail });
                    out.push(Effect::Mail { to: earlier_to, mail: earlier });
                }
            }
            return;
        }
        out.push(Effect::Mail { to, mail });
    }

    fn submit(&mut self, tag: u64, transaction: Transaction, out: &mut Fx) {
        if self.headroom.on_submit(&transaction) {
            self.measure = true;
            self.shard.await_usage(true);
        }
        self.requests.on_submit(tag);
        out.push(Effect::Submit { tag, transaction });
    }

    fn read(&mut self, tag: u64, request: store::ReadRequest, out: &mut Fx) {
        self.requests.on_read(tag);
        out.push(Effect::Read { tag, request });
    }

    fn other_cores(&self) -> impl Iterator<Item = CoreId> + use<> {
        let own = self.core;
        (0..self.cores).map(CoreId).filter(move |core| *core != own)
    }

    // ---- the shard

    /// Always inline, as the way to it: an input is large, and each call would copy it.
    #[inline(always)]
    fn step_shard(&mut self, now: Time, input: shard::Input, out: &mut Fx) {
        match &input {
            shard::Input::Map { view, .. } => {
                self.view = view.clone();
                self.measure |= self.headroom.set_ratio_max(view.failsafe.ratio_max);
                self.links.on_map(&view.map, out);
                self.peers.on_map(&view.map);
            }
            shard::Input::Opened { conn, peer } if conn.core() == self.core => {
                self.peers.on_ready(*conn, peer);
            }
            shard::Input::Closed { conn, .. } => self.peers.on_closed(*conn),
            _ => {}
        }
        self.shard.step(now, input, &mut self.shard_effects);
        self.carry_out_shard(now, out);
    }

    fn carry_out_shard(&mut self, now: Time, out: &mut Fx) {
        let mut effects = std::mem::take(&mut self.shard_effects);
        for effect in effects.drain() {
            match effect {
                shard::Effect::Send { conn, message } => {
                    out.push(Effect::Net(NetEffect::Send { conn, message }))
                }
                shard::Effect::SendPeer { to, message } => {
                    self.links.send(now, to, Outgoing::Statement(message), &self.view.map, out);
                }
                shard::Effect::AskPeer { to, tid, request } => {
                    self.links.send(now, to, Outgoing::Request { tid, request }, &self.view.map, out);
                }
                shard::Effect::Submit { tag, transaction } => self.submit(tag.0, transaction, out),
                shard::Effect::Read { tag, request } => self.read(tag.0, request, out),
                shard::Effect::Close { conn } => self.close(conn, out),
                shard::Effect::Reroute(Parked { conn, tid, op, held, received }) => {
                    let core = self.view.routes.core_of(op.pg).unwrap_or(self.core);
                    let input = shard::Input::Op { conn, tid, op, held, received };
                    self.post(core, Mail::Shard(Box::new(input)), out);
                }
                // As mail to this core too: after the mail that is on its way here.
                shard::Effect::ToShard { core, input } => self.post(core, Mail::Shard(input), out),
                shard::Effect::Control(said) => {
                    self.post(CoreId(0), Mail::Control { from: self.core, said }, out);
                }
            }
        }
        self.shard_effects.put_back(effects);
    }

    /// To the shard of `core`, at once if it is this one.
    #[inline(always)]
    fn hand_to_shard(&mut self, now: Time, core: CoreId, input: shard::Input, out: &mut Fx) {
        if core == self.core {
            self.step_shard(now, input, out);
        } else {
            self.post(core, Mail::Shard(Box::new(input)), out);
        }
    }

    /// To the core of its PG, at once if it is this one.
    fn hand_statement(&mut self, now: Time, core: CoreId, statement: Statement, out: &mut Fx) {
        if core == self.core {
            self.take_statement(now, statement, out);
        } else {
            self.post(core, Mail::Statement(statement), out);
        }
    }

    fn take_statement(&mut self, now: Time, statement: Statement, out: &mut Fx) {
        if let Some(input) = self.peers.admit(statement) {
            self.step_shard(now, input, out);
        }
    }

    fn on_link(&mut self, now: Time, event: NetEvent, out: &mut Fx) {
        let input = match self.links.on_net(now, event, out) {
            Some(LinkNews::Reset(osd)) => shard::Input::LinkReset { osd },
            Some(LinkNews::Answer { tid, reply }) => shard::Input::Part { tid, reply },
            Some(LinkNews::LetsGo(osd)) => shard::Input::AskAgain { osd },
            None => return,
        };
        self.step_shard(now, input, out);
    }

    /// Ends a client's connection. Every machine hears of it as if the client had closed it.
    fn close(&mut self, conn: ConnId, out: &mut Fx) {
        out.push(Effect::Net(NetEffect::Close { conn }));
        let why = CloseReason::Broken("it is to send again what was not answered".into());
        // As mail to this core too: its shard is being stepped.
        for core in (0..self.cores).map(CoreId) {
            let input = shard::Input::Closed { conn, why: why.clone() };
            self.post(core, Mail::Shard(Box::new(input)), out);
        }
        self.post(CoreId(0), Mail::Net(Box::new(NetEvent::Closed { conn, why })), out);
    }

    // ---- the control machine

    fn step_control(&mut self, now: Time, input: control::Input, out: &mut Fx) {
        let Some(part) = &mut self.control else {
            debug_assert!(false, "core {} has no control machine", self.core.0);
            return;
        };
        part.control.step(now, input, &mut part.effects);
        let mut effects = std::mem::take(&mut part.effects);
        for effect in effects.drain() {
            match effect {
                control::Effect::Net(effect) => out.push(Effect::Net(effect)),
                control::Effect::Submit { tag, transaction } => {
                    self.submit(control_tag(tag.0), transaction, out)
                }
                control::Effect::Read { tag, request } => self.read(control_tag(tag.0), request, out),
                control::Effect::Shard { core, input } => self.hand_to_shard(now, core, input, out),
                control::Effect::Look { core } if core == self.core => out.push(Effect::CountDeviceWork),
                control::Effect::Look { core } => self.post(core, Mail::Look, out),
                control::Effect::Compression { pools } => {
                    for core in self.other_cores() {
                        self.post(core, Mail::Compression(pools.clone()), out);
                    }
                    out.push(Effect::Compression(pools));
                }
                control::Effect::Credentials(credentials) => {
                    for core in self.other_cores() {
                        self.post(core, Mail::Credentials(credentials.clone()), out);
                    }
                    self.links.set_credentials(now, credentials, out);
                }
                control::Effect::AdminAnswer { id, answer } => out.push(Effect::AdminAnswer { id, answer }),
                control::Effect::Counters { id, counters } => out.push(Effect::Counters { id, counters }),
                control::Effect::Log { level, text } => out.push(Effect::Log { level, text }),
                control::Effect::Options(layers) => out.push(Effect::Options(layers)),
                control::Effect::Restart => out.push(Effect::Restart),
                control::Effect::ReleaseMemory => out.push(Effect::ReleaseMemory),
                control::Effect::Stopped => out.push(Effect::Stopped),
                control::Effect::Fatal { why } => out.push(Effect::Fatal { why }),
            }
        }
        if let Some(part) = &mut self.control {
            part.effects = effects;
        }
    }

    /// An event for the control machine, wherever that is.
    fn net_to_control(&mut self, now: Time, event: NetEvent, out: &mut Fx) {
        if self.control.is_some() {
            self.step_control(now, control::Input::Net(event), out);
        } else {
            self.post(CoreId(0), Mail::Net(Box::new(event)), out);
        }
    }

    // ---- inputs

    fn start(&mut self, now: Time, wall: UTime, out: &mut Fx) {
        self.step_shard(now, shard::Input::Deadline, out);
        if let Some(part) = &mut self.control {
            part.wall = WallClock::new(now, wall);
            self.step_control(now, control::Input::Wall { now: wall }, out);
        }
        self.measure = true;
    }

    /// A client's objects are on all cores, so every shard hears of every session. Requests go to their PG's shard.
    #[inline]
    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Fx) {
        match event {
            // Of another OSD's link: the answer keeps it from ending for silence.
            NetEvent::Message { conn, message, .. }
                if matches!(message.body, Body::MPing(_)) && self.peers.sender(conn).is_some() =>
            {
                out.push(Effect::Net(NetEffect::Send { conn, message: Message::new(MPing) }));
            }
            NetEvent::Message { conn, message, held } if !conn.is_outgoing() => {
                let destination = match &message.body {
                    // The gate of the control machine refuses it, and logs that.
                    Body::MOSDPeer(_) if self.peers.sender(conn).is_none() => Destination::Control,
                    _ => self.view.routes.of(&message),
                };
                match destination {
                    Destination::Control => {
                        self.net_to_control(now, NetEvent::Message { conn, message, held }, out);
                    }
                    Destination::Shard(core) => {
                        let tid = message.tid;
                        let input = match message.body {
                            Body::MOSDOp(op) => shard::Input::Op { conn, tid, op, held, received: now },
                            Body::MOSDBackoff(message) => shard::Input::Backoff { conn, message },
                            Body::MOSDPeer(message) => {
                                let Some(sender) = self.peers.sender(conn) else { return };
                                let statement = Statement { sender, link: ConnId(tid), message, held };
                                return self.hand_statement(now, core, statement, out);
                            }
                            _ => unreachable!("other messages go to the control machine"),
                        };
                        self.hand_to_shard(now, core, input, out);
                    }
                }
            }
            NetEvent::Ready { conn, peer } if !conn.is_outgoing() => {
                let shared: Arc<Peer> = Arc::from(peer.clone());
                self.net_to_control(now, NetEvent::Ready { conn, peer }, out);
                for core in (0..self.cores).map(CoreId) {
                    self.hand_to_shard(now, core, shard::Input::Opened { conn, peer: shared.clone() }, out);
                }
            }
            NetEvent::Closed { conn, why } if !conn.is_outgoing() => {
                let told = if planted::has(PlantedBug::ClosedOnCoreZeroOnly) { 1 } else { self.cores };
                for core in (0..told).map(CoreId) {
                    self.hand_to_shard(now, core, shard::Input::Closed { conn, why: why.clone() }, out);
                }
                self.net_to_control(now, NetEvent::Closed { conn, why }, out);
            }
            event if Links::owns(event.conn()) => self.on_link(now, event, out),
            other => self.net_to_control(now, other, out),
        }
    }

    fn on_mail(&mut self, now: Time, mail: Mail, out: &mut Fx) {
        match mail {
            Mail::Shard(input) => self.step_shard(now, *input, out),
            Mail::Statement(statement) => self.take_statement(now, statement, out),
            Mail::Credentials(credentials) => self.links.set_credentials(now, credentials, out),
            Mail::Control { from, said } => {
                self.step_control(now, control::Input::Shard { core: from, said }, out);
            }
            Mail::Net(event) => self.step_control(now, control::Input::Net(*event), out),
            Mail::Usage { from, usage } => self.take_usage(now, from, usage, out),
            Mail::Compression(pools) => out.push(Effect::Compression(pools)),
            Mail::Look => out.push(Effect::CountDeviceWork),
            Mail::Progress { from, work } => {
                self.step_control(now, control::Input::Progress { core: from, work }, out);
            }
        }
    }

    fn on_completion(&mut self, now: Time, completion: Completion, out: &mut Fx) {
        self.requests.on_completion(&completion);
        if let Some(tag) = of_control(completion.tag()) {
            return match completion {
                Completion::Committed { .. } => {
                    self.step_control(now, control::Input::Committed { tag: Tag(tag) }, out);
                }
                Completion::Read { answers, .. } => {
                    self.step_control(now, control::Input::Read { tag: ReadTag(tag), answers }, out);
                }
                Completion::Failed { .. } => out.push(Effect::Fatal { why: "the store failed".into() }),
                Completion::Refused { why, .. } => {
                    self.step_control(now, control::Input::Refused { tag: Tag(tag), why }, out);
                }
            };
        }
        let input = match completion {
            Completion::Committed { tag } => shard::Input::Committed { tag: Tag(tag) },
            Completion::Failed { tag } => shard::Input::Failed { tag: Tag(tag) },
            Completion::Refused { why, .. } => {
                return out.push(Effect::Fatal { why: control::refused_transaction(why) });
            }
            Completion::Read { tag, answers } => shard::Input::Read { tag: ReadTag(tag), answers },
        };
        self.step_shard(now, input, out);
    }

    /// The shard hears at once that its store is full or has room again; core 0 hears of every change.
    fn on_usage(&mut self, now: Time, usage: StoreUsage, out: &mut Fx) {
        self.measuring = false;
        self.shard.await_usage(false);
        self.measure_at = now + MEASURE_EVERY;
        let changed = self.headroom.measured(&usage.usage);
        if let Some(full) = changed {
            let state = if full { "is full" } else { "has room again" };
            let text = format!("the store of core {} {state}", self.core.0);
            out.push(Effect::Log { level: Level::Warn, text });
            self.step_shard(now, shard::Input::Space { full }, out);
        }
        if changed.is_none() && self.usage_told.as_ref() == Some(&usage) {
            return;
        }
        let reach = usage.usage.within_reach();
        let space = shard::StoreSpace { total: reach.total, available: reach.available };
        self.step_shard(now, shard::Input::Usage(space), out);
        self.usage_told = Some(usage.clone());
        if self.control.is_some() {
            self.take_usage(now, self.core, usage, out);
        } else {
            self.post(CoreId(0), Mail::Usage { from: self.core, usage }, out);
        }
    }

    fn take_usage(&mut self, now: Time, core: CoreId, usage: StoreUsage, out: &mut Fx) {
        let StoreUsage { usage, compressed } = usage;
        self.step_control(now, control::Input::Usage { core, usage, compressed }, out);
    }

    /// Logs each damaged place once, however often it is read.
    fn on_damage(&mut self, damage: Damage, out: &mut Fx) {
        let Damage { collection, object, offset, device_offset } = damage;
        let is_known = self.damaged.len() >= DAMAGE_KNOWN_MAX
            || !self.damaged.insert((collection, object.clone(), offset));
        if is_known {
            return;
        }
        let place = device_offset.map_or("in the index".into(), |at| format!("on the device at {at}"));
        let text = format!(
            "{object:?} of {collection} is damaged at byte {offset}, {place}: reads of it fail; \
             `shoal store fsck --deep` finds all damage"
        );
        out.push(Effect::Log { level: Level::Error, text });
    }

    fn on_deadline(&mut self, now: Time, wall: UTime, out: &mut Fx) {
        self.measure |= self.measure_at <= now;
        if let Some(part) = &mut self.control {
            if part.wall.follow(now, wall) {
                self.step_control(now, control::Input::Wall { now: wall }, out);
            }
            self.step_control(now, control::Input::Deadline, out);
        }
        self.links.on_deadline(now, out);
        self.step_shard(now, shard::Input::Deadline, out);
    }

    fn on_budgets(&self, budgets: Budgets, out: &mut Fx) {
        let cores = usize::from(self.cores);
        out.push(Effect::CacheBudget { bytes: budgets.caches / cores });
        out.push(Effect::MemtableBudget { bytes: budgets.memtables / cores });
        out.push(Effect::Net(NetEffect::HoldAtMost(budgets.messages / cores)));
    }
}

impl Machine for Core {
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Time, input: Input, out: &mut Fx) {
        match input {
            Input::Net(event) => self.on_net(now, event, out),
            Input::Completed(completion) => self.on_completion(now, completion, out),
            Input::Mail(mail) => self.on_mail(now, mail, out),
            Input::Deadline { wall } => self.on_deadline(now, wall, out),
            Input::StoreUsage(usage) => self.on_usage(now, usage, out),
            Input::ProcessorTime { total, host_load } => {
                self.step_control(now, control::Input::ProcessorTime { total, host_load }, out);
            }
            Input::DeviceWork(work) if self.control.is_some() => {
                self.step_control(now, control::Input::Progress { core: self.core, work }, out);
            }
            Input::DeviceWork(work) => self.post(CoreId(0), Mail::Progress { from: self.core, work }, out),
            Input::Damage(damage) => self.on_damage(*damage, out),
            Input::Start { wall } => self.start(now, wall, out),
            Input::Admin { id, command } => {
                self.step_control(now, control::Input::Admin { id, command }, out)
            }
            Input::Counters { id } => self.step_control(now, control::Input::Counters { id }, out),
            Input::Budgets(budgets) => self.on_budgets(budgets, out),
            Input::Sent => self.shard.on_sent(now),
            Input::RestartChecked(checked) => {
                self.step_control(now, control::Input::RestartChecked(checked), out);
            }
            Input::Stop => self.step_control(now, control::Input::Stop, out),
        }
        if self.measure && !self.measuring {
            (self.measure, self.measuring) = (false, true);
            out.push(Effect::MeasureStore);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let own = Time::earliest(self.shard.next_deadline(), Some(self.measure_at));
        let own = Time::earliest(own, self.links.next_deadline());
        let Some(part) = &self.control else { return own };
        Time::earliest(own, part.control.next_deadline())
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.shard.states(see);
        if let Some(part) = &self.control {
            part.control.states(see);
        }
    }

    fn check(&self) {
        assert_eq!(self.control.is_some(), self.core == CoreId(0), "the control machine is on core 0");
        assert!(self.shard_effects.is_empty(), "every effect of the shard was carried out");
        assert!(!self.measure || self.measuring, "a measurement that is due was asked for");
        self.requests.check();
        self.links.check();
        self.shard.check();
        if let Some(part) = &self.control {
            assert!(part.effects.is_empty(), "every effect of the control machine was carried out");
            part.control.check();
        }
    }
}

/// Invariants that span the cores of one OSD: a PG is on one core. Panics.
pub fn check_together<'a>(cores: impl IntoIterator<Item = &'a Core, IntoIter: Clone>) {
    let cores = cores.into_iter();
    let mut others = cores.clone();
    for core in cores {
        others.next();
        for other in others.clone() {
            if let Some(pg) = core.pgs().find(|pg| other.shard.owns(*pg)) {
                panic!("{pg} is on two cores, {} and {}", core.core.0, other.core.0);
            }
        }
    }
}

/// While no mail is under way, every shard and the control machine know exactly the clients' sessions that are `open`. Panics.
pub fn check_sessions<'a>(cores: impl IntoIterator<Item = &'a Core>, open: &BTreeSet<ConnId>) {
    for Core { core, shard, control, .. } in cores {
        if !are_all(shard.sessions(), open) {
            let known: BTreeSet<ConnId> = shard.sessions().collect();
            panic!("core {} knows the sessions {known:?}, and open are {open:?}", core.0);
        }
        let Some(part) = control else { continue };
        if !are_all(part.control.accepted_peers(), open) {
            let known: BTreeSet<ConnId> = part.control.accepted_peers().collect();
            panic!("the control machine knows the sessions {known:?}, and open are {open:?}");
        }
    }
}

/// True if `known`, without repetitions, are exactly the open connections.
fn are_all(known: impl Iterator<Item = ConnId>, open: &BTreeSet<ConnId>) -> bool {
    let mut count = 0;
    for conn in known {
        if !open.contains(&conn) {
            return false;
        }
        count += 1;
    }
    count == open.len()
}

fn pg_of(collection: Collection) -> Option<SpgId> {
    match collection {
        Collection::Pg(pg) => Some(pg),
        Collection::Meta => None,
    }
}
