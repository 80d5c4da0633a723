//! The OSD's host on one reactor core: sockets, mail between cores, the store's completions.
//!
//! [`osd::node::Core`] decides everything; this file carries out its effects. Inputs are network events, mail, store
//! completions and deadlines. The store is polled at the end of each turn, so that all writes of a turn share a group
//! commit.

use super::ask::{Question, reactor_counters, to_reply};
use super::store::Store;
use super::store_figures;
use crate::daemon::admin_commands::Common;
use crate::daemon::admin_socket::Reply;
use command::perf::Counter;
use command::restart::Checked;
use machine::net::NetEvent;
use machine::{CoreId, Effects, Machine, Time};
use osd::control::Level;
use osd::node::{self, Budgets, Core, Effect, Input, StoreUsage};
use runtime::device::Wake;
use runtime::system;
use runtime::{Mailbox, Role, Turn};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::{Completion, MemoryStore, ObjectStore};
use tokio::sync::oneshot;

/// Maximum polls of the store in one turn: a busy store must not starve the network.
const POLLS_MAX: usize = 8;

/// From another core or another thread.
pub enum Mail {
    Core(node::Mail),
    Ask(Question),
    Budgets(Budgets),
    /// The installed program was run for its version.
    RestartChecked(Checked),
    /// Stop cleanly.
    Stop,
}

/// Results of the reactors for the rest of the process: figures while they run, stores when they have ended.
#[derive(Default)]
pub struct Outcome {
    /// Memory stores by core, for the images.
    pub stores: Mutex<Vec<(CoreId, MemoryStore)>>,
    /// Counters of the stores on disk by core, as of the last measurement.
    pub figures: Mutex<BTreeMap<CoreId, block_store::Figures>>,
    /// The OSD failed: memory stores must not be kept.
    pub failed: AtomicBool,
}

/// A question of another thread that waits for the core's answer.
enum Asked {
    /// Waits for [`Effect::AdminAnswer`].
    Command(oneshot::Sender<Reply>),
    /// Waits for [`Effect::Counters`], with the counters of reactor and store.
    Counters(oneshot::Sender<Vec<Counter>>, Vec<Counter>),
}

pub struct OsdRole {
    core_id: CoreId,
    core: Core,
    effects: Effects<Effect>,
    store: Option<Store>,
    completions: Vec<Completion>,
    /// The process's options.
    common: Arc<Common>,
    asked: HashMap<u64, Asked>,
    next_question: u64,
    mailboxes: Vec<Mailbox<Mail>>,
    outcome: Arc<Outcome>,
}

impl OsdRole {
    pub fn new(
        core_id: CoreId,
        core: Core,
        store: Store,
        common: Arc<Common>,
        mailboxes: Vec<Mailbox<Mail>>,
        outcome: Arc<Outcome>,
    ) -> OsdRole {
        OsdRole {
            core_id,
            core,
            effects: Effects::new(),
            store: Some(store),
            completions: Vec::new(),
            common,
            asked: HashMap::new(),
            next_question: 0,
            mailboxes,
            outcome,
        }
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("the store is here until the reactor ends")
    }

    fn step(&mut self, input: Input, turn: &mut Turn<Mail>) {
        self.feed(input, turn);
        self.carry_out(turn);
    }

    /// Steps the machine. Its effects wait for [`OsdRole::carry_out`].
    fn feed(&mut self, input: Input, turn: &mut Turn<Mail>) {
        self.core.step(turn.now(), input, &mut self.effects);
        if cfg!(debug_assertions) {
            self.core.check();
        }
    }

    fn carry_out(&mut self, turn: &mut Turn<Mail>) {
        let (mut measure, mut count_work) = (true, false);
        while std::mem::take(&mut measure) | std::mem::take(&mut count_work) {
            let mut effects = std::mem::take(&mut self.effects);
            for effect in effects.drain() {
                match effect {
                    Effect::Net(effect) => turn.net(effect),
                    Effect::Submit { tag, transaction } => self.store().submit(tag, transaction),
                    Effect::Read { tag, request } => self.store().read(tag, request),
                    Effect::Mail { to, mail } => turn.hop(to, Mail::Core(mail)),
                    Effect::MeasureStore => measure = true,
                    Effect::CountDeviceWork => count_work = true,
                    Effect::Compression(pools) => self.store().set_compression(pools),
                    Effect::CacheBudget { bytes } => self.store().set_cache_budget(bytes),
                    Effect::MemtableBudget { bytes } => self.store().set_memtable_budget(bytes),
                    Effect::AdminAnswer { id, answer } => self.on_answer(id, &answer),
                    Effect::Counters { id, counters } => self.on_counters(id, counters),
                    Effect::Log { level, text } => log(level, &text),
                    Effect::Options(layers) => self.common.follow(&layers),
                    Effect::Restart => self.common.restart.ask(),
                    Effect::ReleaseMemory => runtime::memory::give_back(),
                    Effect::Stopped => self.mailboxes.iter().for_each(Mailbox::stop),
                    Effect::Fatal { why } => {
                        // Each transaction that was under way may bring one.
                        if !self.outcome.failed.swap(true, Ordering::AcqRel) {
                            tracing::error!("stopping: {why}");
                            self.mailboxes.iter().for_each(Mailbox::stop);
                        }
                    }
                }
            }
            self.effects = effects;
            if measure {
                let usage = self.measure_store();
                self.feed(Input::StoreUsage(usage), turn);
                if self.core_id == CoreId(0) {
                    let (total, host_load) = (system::cpu_time(), system::load_by_processor());
                    self.feed(Input::ProcessorTime { total, host_load }, turn);
                }
            }
            if count_work {
                let work = self.store().device_work();
                self.feed(Input::DeviceWork(work), turn);
            }
        }
    }

    fn measure_store(&mut self) -> StoreUsage {
        let core = self.core_id;
        if let Some(figures) = self.store().figures() {
            self.outcome.figures.lock().expect("no holder of this lock panics").insert(core, figures);
        }
        StoreUsage { usage: self.store().usage(), compressed: self.store().compressed() }
    }

    /// Hands completions to the machine until the store has no more for now.
    fn poll_store(&mut self, turn: &mut Turn<Mail>) {
        let mut completions = std::mem::take(&mut self.completions);
        self.store().set_now(turn.now().since(Time::ZERO));
        for _ in 0..POLLS_MAX {
            self.store().poll(&mut completions);
            if completions.is_empty() {
                break;
            }
            // Latencies include the store's own work in this turn.
            turn.read_clock();
            for completion in completions.drain(..) {
                self.feed(Input::Completed(completion), turn);
            }
            self.carry_out(turn);
        }
        self.completions = completions;
    }

    /// A failed store is noticed also where no transaction meets it: other copies must serve.
    fn stop_when_store_failed(&mut self) {
        if let Some(why) = self.store().failure()
            && !self.outcome.failed.swap(true, Ordering::AcqRel)
        {
            tracing::error!("stopping: the store failed: {why}");
            self.mailboxes.iter().for_each(Mailbox::stop);
        }
    }

    fn report_damage(&mut self, turn: &mut Turn<Mail>) {
        for block_store::Damage { collection, object, offset, device_offset } in self.store().take_damage() {
            let damage = node::Damage { collection, object, offset, device_offset };
            self.step(Input::Damage(Box::new(damage)), turn);
        }
    }

    // ---- questions of other threads

    fn answer(&mut self, question: Question, turn: &mut Turn<Mail>) {
        self.next_question += 1;
        let id = self.next_question;
        let (asked, input) = match question {
            Question::Command { text, reply } => (Asked::Command(reply), Input::Admin { id, command: text }),
            Question::Counters { reply } => {
                let mut counters: Vec<Counter> = reactor_counters(turn.counters()).collect();
                let figures = self.outcome.figures.lock().expect("no holder of this lock panics").clone();
                counters.extend(store_figures::counters(figures.values()));
                counters.extend(store_figures::device_counters(figures.values()));
                (Asked::Counters(reply, counters), Input::Counters { id })
            }
        };
        self.asked.insert(id, asked);
        self.step(input, turn);
    }

    // An answer is dropped if the thread that asked has stopped waiting.

    fn on_answer(&mut self, id: u64, answer: &command::Answer) {
        if let Some(Asked::Command(reply)) = self.asked.remove(&id) {
            drop(reply.send(to_reply(answer)));
        }
    }

    fn on_counters(&mut self, id: u64, mut counters: Vec<Counter>) {
        if let Some(Asked::Counters(reply, own)) = self.asked.remove(&id) {
            counters.extend(own);
            drop(reply.send(counters));
        }
    }
}

impl Role for OsdRole {
    type Hop = Mail;

    fn on_start(&mut self, turn: &mut Turn<Mail>) {
        self.step(Input::Start { wall: system::wall_clock() }, turn);
        self.poll_store(turn);
    }

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<Mail>) {
        self.step(Input::Net(event), turn);
    }

    fn on_hop(&mut self, mail: Mail, turn: &mut Turn<Mail>) {
        match mail {
            Mail::Core(mail) => self.step(Input::Mail(mail), turn),
            Mail::Ask(question) => self.answer(question, turn),
            Mail::Budgets(budgets) => self.step(Input::Budgets(budgets), turn),
            Mail::RestartChecked(checked) => self.step(Input::RestartChecked(checked), turn),
            Mail::Stop => self.step(Input::Stop, turn),
        }
    }

    fn on_deadline(&mut self, turn: &mut Turn<Mail>) {
        // The store's deadlines are met at the end of the turn.
        if self.core.next_deadline().is_some_and(|at| at <= turn.now()) {
            self.step(Input::Deadline { wall: system::wall_clock() }, turn);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let of_store = self.store.as_ref().and_then(Store::next_deadline).map(|at| Time::ZERO + at);
        Time::earliest(self.core.next_deadline(), of_store)
    }

    fn on_turn_end(&mut self, turn: &mut Turn<Mail>) {
        let may_wait = turn.is_caller_alone() && self.core.may_block();
        self.store().may_wait(may_wait);
        self.poll_store(turn);
        self.report_damage(turn);
        self.stop_when_store_failed();
    }

    fn on_sent(&mut self, turn: &mut Turn<Mail>) {
        if self.core.has_unsent_replies() {
            self.feed(Input::Sent, turn);
        }
    }

    fn wakes(&self) -> Vec<Wake> {
        self.store.as_ref().map_or_else(Vec::new, Store::wakes)
    }

    fn has_news(&self) -> bool {
        self.store.as_ref().is_some_and(Store::has_news)
    }

    fn on_stop(&mut self, turn: &mut Turn<Mail>) {
        self.poll_store(turn);
        match self.store.take() {
            Some(Store::Memory(store)) => {
                let mut stores = self.outcome.stores.lock().unwrap_or_else(PoisonError::into_inner);
                stores.push((self.core_id, store));
            }
            Some(Store::Disk(store)) if !self.outcome.failed.load(Ordering::Acquire) => {
                if let Err(error) = store.end() {
                    tracing::error!("core {}: the store did not end cleanly: {error:#}", self.core_id.0);
                    self.outcome.failed.store(true, Ordering::Release);
                }
            }
            // A failed store on disk keeps what was acknowledged; the next start recovers it.
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
