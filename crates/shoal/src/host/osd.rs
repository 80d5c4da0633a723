//! The OSD's wiring: on every core a shard with its store, on core 0 the control machine too, and the ways between.
//!
//! ```text
//! socket ─▶ on_net ─┬─ a client's request ─▶ its PG's core ─▶ shard ─▶ store ─▶ (end of turn) ─▶ shard ─▶ reply
//!                   └─ everything else ────▶ core 0 ───────▶ control
//! ```
//! A request for a PG of this core never leaves it. One for another core's goes there in that turn's batch.

use super::ask::{Question, reactor_counters, to_reply};
use super::clock::WallWatch;
use super::store::Store;
use super::store_figures;
use crate::daemon::admin_commands::Common;
use crate::daemon::counters::{Counter, Reading};
use crate::daemon::memory::Budgets;
use machine::net::{CloseReason, NetEffect, NetEvent, Peer};
use machine::{ConnId, CoreId, Effects, Machine, ReadTag, Tag, Time};
use osd::Destination;
use osd::control::{self, Control, Level};
use osd::headroom::Headroom;
use osd::shard::{self, ClusterView, Shard, ToControl};
use runtime::device::Wake;
use runtime::system;
use runtime::{Mailbox, Role, Turn};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Completion, Compressed, Compression, MemoryStore, ObjectStore, Transaction, Usage};
use tokio::sync::oneshot;
use wire::messages::Body;

/// How often the control machine hears how full the stores are.
const USAGE_EVERY: Duration = Duration::from_secs(2);
/// How often a turn asks the store for more completions: a busy one must not keep the network waiting.
const DRAINS_MAX: usize = 8;

pub enum Hop {
    /// For the shard of the core that gets it.
    Shard(Box<shard::Input>),
    /// For the control machine, which is on core 0.
    Said {
        core: CoreId,
        said: ToControl,
    },
    Net(NetEvent),
    Usage {
        core: CoreId,
        usage: Usage,
        compressed: Vec<(i64, Compressed)>,
    },
    /// How pools are compressed from now on.
    Compression(BTreeMap<i64, Compression>),
    Ask(Question),
    /// So much memory may this core's parts take.
    Budgets(Budgets),
    /// Stop cleanly.
    Stop,
}

/// What the process learns from its reactors: some of it while they run, most when they have ended.
#[derive(Default)]
pub struct Outcome {
    /// By core: the memory stores, for the images.
    pub stores: Mutex<Vec<(CoreId, MemoryStore)>>,
    /// By core, what its store on disk counts, as it was at the last report of usage.
    pub figures: Mutex<BTreeMap<CoreId, block_store::Figures>>,
    /// Going on would have been wrong; memory stores may not be kept.
    pub failed: AtomicBool,
}

pub struct OsdRole {
    core: CoreId,
    shard: Shard,
    shard_effects: Effects<shard::Effect>,
    store: Option<Store>,
    headroom: Headroom,
    look_for_room: bool,
    completions: Vec<Completion>,
    view: Arc<ClusterView>,
    control: Option<ControlPart>,
    usage_at: Time,
    usage_told: Option<(Usage, Vec<(i64, Compressed)>)>,
    mailboxes: Vec<Mailbox<Hop>>,
    outcome: Arc<Outcome>,
}

/// What only core 0 has.
pub struct ControlPart {
    control: Control,
    effects: Effects<control::Effect>,
    wall: WallWatch,
    /// Where the rest of the process looks for options.
    common: Arc<Common>,
    asked: HashMap<u64, Asked>,
    next_question: u64,
}

enum Asked {
    Command(oneshot::Sender<crate::daemon::admin_socket::Reply>),
    Counters(oneshot::Sender<Vec<Counter>>, Vec<Counter>),
}

impl ControlPart {
    pub fn new(control: Control, common: Arc<Common>) -> ControlPart {
        ControlPart {
            control,
            effects: Effects::new(),
            common,
            wall: WallWatch::new(Time::ZERO, system::wall_clock()),
            asked: HashMap::new(),
            next_question: 0,
        }
    }
}

/// The control machine's tags share core 0's store with the shard's, whose low half is an index that is never so high.
const CONTROL_TAGS: u64 = 0xffff_ffff_8000_0000;

fn control_tag(n: u64) -> u64 {
    debug_assert!(n < 1 << 31);
    CONTROL_TAGS | n
}

fn of_control(tag: u64) -> Option<u64> {
    (tag & CONTROL_TAGS == CONTROL_TAGS).then_some(tag & !CONTROL_TAGS)
}

impl OsdRole {
    pub fn new(
        core: CoreId,
        shard: Shard,
        store: Store,
        headroom: Headroom,
        control: Option<ControlPart>,
        mailboxes: Vec<Mailbox<Hop>>,
        outcome: Arc<Outcome>,
    ) -> OsdRole {
        OsdRole {
            core,
            shard,
            shard_effects: Effects::new(),
            store: Some(store),
            headroom,
            look_for_room: false,
            completions: Vec::new(),
            view: Arc::new(ClusterView::default()),
            control,
            usage_at: Time::ZERO,
            usage_told: None,
            mailboxes,
            outcome,
        }
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("the store is here until the reactor ends")
    }

    fn submit(&mut self, tag: u64, transaction: Transaction) {
        self.look_for_room |= self.headroom.on_submit(&transaction);
        self.store().submit(tag, transaction);
    }

    // ---- the shard

    fn step_shard(&mut self, input: shard::Input, turn: &mut Turn<Hop>) {
        if let shard::Input::Map { view, .. } = &input {
            self.view = view.clone();
            self.look_for_room |= self.headroom.set_ratio_max(view.failsafe.ratio_max);
        }
        self.shard.step(turn.now(), input, &mut self.shard_effects);
        if cfg!(debug_assertions) {
            self.shard.check();
        }
        let mut effects = std::mem::take(&mut self.shard_effects);
        for effect in effects.drain() {
            match effect {
                shard::Effect::Send { conn, message } => turn.net(NetEffect::Send { conn, message }),
                shard::Effect::Submit { tag, transaction } => self.submit(tag.0, transaction),
                shard::Effect::Read { tag, request } => self.store().read(tag.0, request),
                shard::Effect::Close { conn } => self.close(conn, turn),
                shard::Effect::Reroute { conn, tid, op, held } => {
                    let core = self.view.routes.core_of(op.pg).unwrap_or(self.core);
                    turn.hop(core, Hop::Shard(Box::new(shard::Input::Op { conn, tid, op, held })));
                }
                // As a hop also to this core: after whatever is on its way there.
                shard::Effect::ToShard { core, input } => turn.hop(core, Hop::Shard(input)),
                shard::Effect::Control(said) => self.tell_control(said, turn),
            }
        }
        self.shard_effects = effects;
    }

    /// As if the client had gone.
    fn close(&mut self, conn: ConnId, turn: &mut Turn<Hop>) {
        turn.net(NetEffect::Close { conn });
        let why = CloseReason::Broken("it is to send again what was not answered".into());
        // As hops also to this core: its shard is being stepped just now.
        for core in (0..turn.core_count()).map(CoreId) {
            let input = shard::Input::Closed { conn, why: why.clone() };
            turn.hop(core, Hop::Shard(Box::new(input)));
        }
        turn.hop(CoreId(0), Hop::Net(NetEvent::Closed { conn, why }));
    }

    fn tell_control(&mut self, said: ToControl, turn: &mut Turn<Hop>) {
        // Also from core 0 as a hop: the control machine may be what is stepping the shard just now.
        turn.hop(CoreId(0), Hop::Said { core: self.core, said });
    }

    /// To the shard of `core`, at once when it is here.
    fn hand_to_shard(&mut self, core: CoreId, input: shard::Input, turn: &mut Turn<Hop>) {
        if core == self.core {
            self.step_shard(input, turn);
        } else {
            turn.hop(core, Hop::Shard(Box::new(input)));
        }
    }

    /// Hands completions on until the store has no more, for now.
    fn drain_store(&mut self, turn: &mut Turn<Hop>) {
        let mut completions = std::mem::take(&mut self.completions);
        for _ in 0..DRAINS_MAX {
            if self.look_for_room {
                self.report_usage(turn);
            }
            self.store().poll(&mut completions);
            if completions.is_empty() {
                break;
            }
            for completion in completions.drain(..) {
                self.on_completion(completion, turn);
            }
        }
        self.completions = completions;
    }

    fn on_completion(&mut self, completion: Completion, turn: &mut Turn<Hop>) {
        let (Completion::Committed { tag } | Completion::Failed { tag } | Completion::Read { tag, .. }) =
            &completion;
        if let Some(tag) = of_control(*tag) {
            return match completion {
                Completion::Committed { .. } => {
                    self.step_control(control::Input::Committed { tag: Tag(tag) }, turn)
                }
                Completion::Read { answers, .. } => {
                    self.step_control(control::Input::Read { tag: ReadTag(tag), answers }, turn);
                }
                Completion::Failed { .. } => self.fail("the store failed", turn),
            };
        }
        let input = match completion {
            Completion::Committed { tag } => shard::Input::Committed { tag: Tag(tag) },
            Completion::Failed { tag } => shard::Input::Failed { tag: Tag(tag) },
            Completion::Read { tag, answers } => shard::Input::Read { tag: ReadTag(tag), answers },
        };
        self.step_shard(input, turn);
    }

    // ---- the control machine

    fn step_control(&mut self, input: control::Input, turn: &mut Turn<Hop>) {
        let Some(part) = &mut self.control else { return };
        part.control.step(turn.now(), input, &mut part.effects);
        if cfg!(debug_assertions) {
            part.control.check();
        }
        for effect in part.effects.take() {
            match effect {
                control::Effect::Net(effect) => turn.net(effect),
                control::Effect::Submit { tag, transaction } => self.submit(control_tag(tag.0), transaction),
                control::Effect::Read { tag, request } => self.store().read(control_tag(tag.0), request),
                control::Effect::Shard { core, input } => self.hand_to_shard(core, input, turn),
                control::Effect::Compression { pools } => {
                    for core in (0..self.mailboxes.len() as u16).map(CoreId).filter(|core| *core != self.core)
                    {
                        turn.hop(core, Hop::Compression(pools.clone()));
                    }
                    self.store().set_compression(pools);
                }
                control::Effect::AdminAnswer { id, answer } => self.on_answer(id, &answer),
                control::Effect::Log { level, text } => log(level, &text),
                control::Effect::Options { monitor, injected } => {
                    let Some(part) = &self.control else { return };
                    let mut config = part.common.config.lock().expect("no holder of this lock panics");
                    config.set_from_cluster(monitor, injected);
                }
                control::Effect::Stopped => self.mailboxes.iter().for_each(Mailbox::stop),
                control::Effect::Fatal { why } => self.fail(&why, turn),
            }
        }
    }

    fn fail(&mut self, why: &str, _: &mut Turn<Hop>) {
        tracing::error!("stopping: {why}");
        self.outcome.failed.store(true, Ordering::Release);
        self.mailboxes.iter().for_each(Mailbox::stop);
    }

    fn answer(&mut self, question: Question, turn: &mut Turn<Hop>) {
        let mut reactor: Vec<Counter> = reactor_counters(turn.counters()).collect();
        let figures = self.outcome.figures.lock().expect("nobody panics with it").clone();
        reactor.extend(store_figures::counters(figures.values()));
        let Some(part) = &mut self.control else { return };
        part.next_question += 1;
        let id = part.next_question;
        let (asked, command) = match question {
            Question::Command { text, reply } => (Asked::Command(reply), text),
            Question::Counters { reply } => {
                (Asked::Counters(reply, reactor), r#"{"prefix":"perf dump","format":"json"}"#.to_owned())
            }
        };
        part.asked.insert(id, asked);
        self.step_control(control::Input::Admin { id, command }, turn);
    }

    fn on_answer(&mut self, id: u64, answer: &command::Answer) {
        let Some(asked) = self.control.as_mut().and_then(|part| part.asked.remove(&id)) else { return };
        // Whoever asked may have gone.
        match asked {
            Asked::Command(reply) => drop(reply.send(to_reply(answer))),
            Asked::Counters(reply, mut counters) => {
                counters.splice(0..0, counters_of(answer));
                drop(reply.send(counters));
            }
        }
    }

    // ---- the network

    /// Every shard knows every client, since a client's objects are on all of them.
    fn announce(&mut self, turn: &mut Turn<Hop>, input: impl Fn() -> shard::Input) {
        for core in (0..turn.core_count()).map(CoreId) {
            self.hand_to_shard(core, input(), turn);
        }
    }

    fn net_to_control(&mut self, event: NetEvent, turn: &mut Turn<Hop>) {
        if self.control.is_some() {
            self.step_control(control::Input::Net(event), turn);
        } else {
            turn.hop(CoreId(0), Hop::Net(event));
        }
    }

    fn report_usage(&mut self, turn: &mut Turn<Hop>) {
        self.usage_at = turn.now() + USAGE_EVERY;
        self.look_for_room = false;
        let (core, usage) = (self.core, self.store().usage());
        let compressed = self.store().compressed();
        if let Some(figures) = self.store().figures() {
            self.outcome.figures.lock().expect("nobody panics with it").insert(core, figures);
        }
        match self.headroom.look(&usage) {
            Some(full) => {
                tracing::warn!(
                    "the store of core {} {}",
                    core.0,
                    if full { "is full" } else { "has room again" }
                );
                self.step_shard(shard::Input::Space { full }, turn);
            }
            None if self.usage_told.as_ref().is_some_and(|told| *told == (usage, compressed.clone())) => {
                return;
            }
            None => {}
        }
        self.usage_told = Some((usage, compressed.clone()));
        if self.control.is_some() {
            self.step_control(control::Input::Usage { core, usage, compressed }, turn);
        } else {
            turn.hop(CoreId(0), Hop::Usage { core, usage, compressed });
        }
    }
}

impl Role for OsdRole {
    type Hop = Hop;

    fn on_start(&mut self, turn: &mut Turn<Hop>) {
        self.step_shard(shard::Input::Deadline, turn);
        self.step_control(control::Input::Wall { now: system::wall_clock() }, turn);
        self.report_usage(turn);
        self.drain_store(turn);
    }

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<Hop>) {
        match event {
            NetEvent::Message { conn, message, held } if !conn.is_outgoing() => {
                match self.view.routes.of(&message) {
                    Destination::Control => {
                        self.net_to_control(NetEvent::Message { conn, message, held }, turn)
                    }
                    Destination::Shard(core) => {
                        let tid = message.tid;
                        let input = match message.body {
                            Body::MOSDOp(op) => shard::Input::Op { conn, tid, op, held },
                            Body::MOSDBackoff(message) => shard::Input::Backoff { conn, message },
                            _ => return,
                        };
                        self.hand_to_shard(core, input, turn);
                    }
                }
            }
            NetEvent::Ready { conn, peer } if !conn.is_outgoing() => {
                let shared: Arc<Peer> = Arc::new(peer.clone());
                self.net_to_control(NetEvent::Ready { conn, peer }, turn);
                self.announce(turn, || shard::Input::Opened { conn, peer: shared.clone() });
            }
            NetEvent::Closed { conn, why } if !conn.is_outgoing() => {
                self.announce(turn, || shard::Input::Closed { conn, why: why.clone() });
                self.net_to_control(NetEvent::Closed { conn, why }, turn);
            }
            other => self.net_to_control(other, turn),
        }
    }

    fn on_hop(&mut self, hop: Hop, turn: &mut Turn<Hop>) {
        match hop {
            Hop::Shard(input) => self.step_shard(*input, turn),
            Hop::Said { core, said } => self.step_control(control::Input::Shard { core, said }, turn),
            Hop::Net(event) => self.step_control(control::Input::Net(event), turn),
            Hop::Usage { core, usage, compressed } => {
                self.step_control(control::Input::Usage { core, usage, compressed }, turn);
            }
            Hop::Compression(pools) => self.store().set_compression(pools),
            Hop::Ask(question) => self.answer(question, turn),
            Hop::Budgets(Budgets { caches, messages }) => {
                self.store().set_cache_budget(caches);
                turn.net(NetEffect::HoldAtMost(messages));
            }
            Hop::Stop => self.step_control(control::Input::Stop, turn),
        }
    }

    fn on_deadline(&mut self, turn: &mut Turn<Hop>) {
        let now = turn.now();
        if self.usage_at <= now {
            self.report_usage(turn);
        }
        if let Some(part) = &mut self.control {
            if let Some(wall) = part.wall.look(now) {
                self.step_control(control::Input::Wall { now: wall }, turn);
            }
            self.step_control(control::Input::Deadline, turn);
        }
        self.step_shard(shard::Input::Deadline, turn);
    }

    fn next_deadline(&self) -> Option<Time> {
        let mut next = Time::earliest(self.shard.next_deadline(), Some(self.usage_at));
        if let Some(part) = &self.control {
            next = Time::earliest(
                next,
                Time::earliest(part.control.next_deadline(), Some(part.wall.next_look())),
            );
        }
        next
    }

    fn on_turn_end(&mut self, turn: &mut Turn<Hop>) {
        let is_caller_alone = turn.is_caller_alone();
        self.store().may_wait(is_caller_alone);
        self.drain_store(turn);
        self.store().tell_damage();
    }

    fn wakes(&self) -> Vec<Wake> {
        self.store.as_ref().map_or_else(Vec::new, Store::wakes)
    }

    fn has_news(&self) -> bool {
        self.store.as_ref().is_some_and(Store::has_news)
    }

    fn on_stop(&mut self, turn: &mut Turn<Hop>) {
        self.drain_store(turn);
        match self.store.take() {
            Some(Store::Memory(store)) => {
                let mut stores =
                    self.outcome.stores.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                stores.push((self.core, store));
            }
            Some(Store::Disk(store)) if !self.outcome.failed.load(Ordering::Acquire) => {
                if let Err(error) = store.end() {
                    tracing::error!("core {}: the store did not end cleanly: {error:#}", self.core.0);
                    self.outcome.failed.store(true, Ordering::Release);
                }
            }
            // Whatever the disk has is what was promised, and the next start finds it.
            Some(Store::Disk(_)) | None => {}
        }
    }
}

fn log(level: Level, text: &str) {
    match level {
        Level::Error => tracing::error!("{text}"),
        Level::Warn => tracing::warn!("{text}"),
        Level::Info => tracing::info!("{text}"),
        Level::Debug => tracing::debug!("{text}"),
    }
}

/// The control machine's `perf dump` as counters. What ends in these words goes up and down, the rest only up.
fn counters_of(answer: &command::Answer) -> Vec<Counter> {
    const LEVELS: &[&str] =
        &["numpg", "numpg_moving", "stat_bytes", "stat_bytes_used", "stat_bytes_avail", "map_message_epochs"];
    let Ok(Value::Object(groups)) = serde_json::from_slice(&answer.body) else { return Vec::new() };
    let mut counters = Vec::new();
    for (group, values) in &groups {
        for (name, value) in values.as_object().into_iter().flatten() {
            let Some(value) = value.as_u64() else { continue };
            let level = LEVELS.contains(&name.as_str());
            let value = if level { Reading::Level(value) } else { Reading::Total(value) };
            let help = name.replace('_', " ");
            counters.push(Counter {
                group: group.clone().into(),
                name: name.clone().into(),
                help: help.into(),
                value,
            });
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;
    use osd::slab::Key;

    #[test]
    fn the_control_machines_tags_are_never_a_shards() {
        assert_eq!(of_control(control_tag(7)), Some(7));
        for key in [0, 1, u64::from(u32::MAX >> 1), (u64::from(u32::MAX) << 32) | 5] {
            assert_eq!(of_control(Key::from_u64(key).to_u64()), None);
        }
    }
}
