//! The monitor as a machine: who is connected, what they want, and what is proposed for them.
//!
//! There are two copies of the state. `committed` has applied what holds for good; everything that is shown to
//! anybody comes from it. `head` has also applied what was proposed and is not yet on disk; a change is checked
//! against it, so that two changes that arrive together see each other. Both change only by [`State::apply`].
//! (One copy, and changes waiting for each other's disk writes, was the alternative: a flush for each command.)
//!
//! Every step ends in [`Monitor::pump`]: hand new entries to the disk, apply what came to hold, release the answers
//! that waited for it, and tell subscribers what is new.

mod admin;
mod audit;
mod auth;
mod commands;
mod fullness;
mod log;
mod maps;
mod mgr;
mod options;
mod osd;
mod pool_op;
mod quota;
mod session;
mod subscribe;
#[cfg(test)]
mod tests;
mod tick;

pub use options::{AuthMode, Settings};

use crate::options::MonOptions;
use crate::proposal::{Change, Proposal};
use crate::replication::{Recovered, Replication, Solo, Write};
use crate::situation::Reports;
use crate::state::State;
use codec::{Encode, Features};
use command::options::Layers;
use command::{Counter, Reading};
use machine::gate::{Gate, Refused};
use machine::net::{NetEffect, NetEvent};
use machine::{ConnId, Effects, Machine, Random, Tag, Time, WallClock};
use session::Session;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wire::messages::{Body, Message};
use wire::types::{AuthName, EntityKind, UTime};

#[derive(Debug)]
pub enum Input {
    Net(NetEvent),
    /// A [`Effect::Write`] is on the disk for good.
    Written(Tag),
    /// A command from the admin socket. Answered by [`Effect::AdminAnswer`].
    Admin {
        id: u64,
        command: String,
    },
    /// [`Machine::next_deadline`] has passed. `wall` is the wall clock's time.
    Deadline {
        wall: UTime,
    },
}

#[derive(Debug)]
pub enum Effect {
    Net(NetEffect),
    /// A line for the daemon's own log that an operator should read.
    Warn(String),
    /// Make durable, as one step; then [`Input::Written`].
    Write {
        tag: Tag,
        write: Write,
    },
    AdminAnswer {
        id: u64,
        answer: command::Answer,
    },
    /// An option may have changed: for what the host itself acts on (log level, memory).
    Options(Arc<Layers>),
}

/// Log entries between two snapshots. A snapshot lets older entries be trimmed.
const SNAPSHOT_EVERY: u64 = 512;

pub struct Monitor {
    settings: Settings,
    own: options::OwnOptions,
    /// As [`options::OwnOptions::layers`] has them.
    options: MonOptions,
    random: Random,
    clock: WallClock,
    replication: Solo,
    committed: State,
    head: State,
    /// Proposals so far applied to `head`; the number of the newest entry.
    last_proposed: u64,
    last_snapshot: u64,
    /// Batches handed to the disk.
    log_writes: u64,
    /// Answers that wait for an entry to hold, by its number.
    waiting: VecDeque<(u64, NetEffect)>,
    sessions: BTreeMap<ConnId, Session>,
    gate: Gate,
    auth: auth::AuthServer,
    maps: maps::MapCache,
    osd: osd::OsdWatch,
    mgr: mgr::MgrWatch,
    reports: Reports,
    /// OSDMaps promised to peers once an entry holds: its number, to whom, from which epoch.
    maps_owed: Vec<(u64, ConnId, wire::types::Epoch)>,
    /// The newest OSDMap that peers were told of.
    published_epoch: wire::types::Epoch,
    creations: osd::Creations,
    /// Health checks that failed at the last tick.
    last_checks: crate::health::Checks,
    tick_at: Time,
    started_at: Time,
    /// The version at which `check` compared both copies last.
    compared: Cell<u64>,
}

/// The state that a disk holds, the replication that continues it, and the index of its snapshot.
fn replay(disk: Recovered) -> Result<(State, Solo, u64), codec::DecodeError> {
    let mut state = State::default();
    let mut snapshot_index = 0;
    if let Some((index, bytes)) = &disk.snapshot {
        state = codec::decode_exact(bytes)?;
        snapshot_index = *index;
    }
    let mut replication = Solo::recover(disk);
    for (_, entry) in replication.take().committed {
        state.apply(&codec::decode_exact(&entry)?);
    }
    Ok((state, replication, snapshot_index))
}

/// The time and the effects of one step, for its handlers.
struct Turn<'a> {
    now: Time,
    effects: &'a mut Effects<Effect>,
}

impl Turn<'_> {
    fn send(&mut self, conn: ConnId, body: impl Into<Body>) {
        self.send_message(conn, Message::new(body));
    }

    fn send_message(&mut self, conn: ConnId, message: Message) {
        self.effects.push(Effect::Net(NetEffect::Send { conn, message }));
    }
}

impl Monitor {
    /// A monitor that continues from what is on its disk. An empty disk needs [`Monitor::format`] first.
    pub fn recover(
        settings: Settings,
        disk: Recovered,
        random: Random,
        now: Time,
        wall: UTime,
    ) -> Result<Monitor, codec::DecodeError> {
        let (state, replication, snapshot_index) = replay(disk)?;
        let last_proposed = state.version;
        let own = options::OwnOptions::start(settings.options.clone());
        Ok(Monitor {
            options: MonOptions::read(&own.layers),
            own,
            auth: auth::AuthServer::new(state.auth.global_id_limit),
            maps: maps::MapCache::default(),
            osd: osd::OsdWatch::start(&state, now),
            mgr: mgr::MgrWatch::start(&state, now),
            reports: Reports::default(),
            maps_owed: Vec::new(),
            published_epoch: state.osdmap().epoch,
            creations: osd::Creations::default(),
            last_checks: Default::default(),
            settings,
            random,
            clock: WallClock::new(now, wall),
            replication,
            head: state.clone(),
            committed: state,
            last_proposed,
            last_snapshot: snapshot_index,
            log_writes: 0,
            waiting: VecDeque::new(),
            sessions: BTreeMap::new(),
            gate: Gate::new(EntityKind::MON),
            tick_at: now,
            started_at: now,
            compared: Cell::new(0),
        })
    }

    /// The options that the database on this disk has for each of these daemons on `host`: the monitor and its manager.
    pub fn stored_options<const N: usize>(
        disk: &Recovered,
        names: [&AuthName; N],
        host: &str,
    ) -> Result<[BTreeMap<String, String>; N], codec::DecodeError> {
        let database = replay(disk.clone())?.0.config;
        Ok(names.map(|name| options::of_daemon(&database, name, host)))
    }

    /// The committed state.
    pub fn state(&self) -> &State {
        &self.committed
    }

    pub fn counters(&self) -> Vec<Counter> {
        use Reading::{Level, Total};
        let mon = |name, help, value| Counter::own("mon", name, help, value);
        let sessions = mon("num_sessions", "Open sessions", Level(self.sessions.len() as u64));
        vec![
            Counter { is_stock: true, ..sessions },
            mon("log_index", "committed entries of the replicated log", Level(self.committed.version)),
            mon("osdmap_epoch", "epoch of the OSDMap", Level(self.committed.osdmap().epoch.into())),
            mon("log_writes", "batches written to the log", Total(self.log_writes)),
        ]
    }

    fn wall(&self, now: Time) -> UTime {
        self.clock.at(now)
    }

    /// Proposes changes that happen together. Returns the number of the entry; see [`Monitor::answer_at`].
    fn propose(&mut self, now: Time, changes: Vec<Change>) -> u64 {
        if changes.is_empty() {
            return self.last_proposed;
        }
        let proposal = Proposal { at: self.wall(now), changes };
        self.head.apply(&proposal);
        self.last_proposed = self.replication.propose(proposal.to_vec(Features::ALL).into());
        self.last_proposed
    }

    /// Sends `effect` once the entry of this number holds: at once when it does already.
    fn answer_at(&mut self, turn: &mut Turn<'_>, index: u64, effect: NetEffect) {
        if index <= self.committed.version {
            turn.effects.push(Effect::Net(effect));
        } else {
            self.waiting.push_back((index, effect));
        }
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        loop {
            self.propose_requests(turn);
            let ready = self.replication.take();
            if let Some((tag, write)) = ready.write {
                self.log_writes += 1;
                turn.effects.push(Effect::Write { tag, write });
            }
            if ready.committed.is_empty() {
                break;
            }
            for (index, entry) in ready.committed {
                let proposal = codec::decode_exact(&entry).expect("an entry that this monitor wrote decodes");
                self.committed.apply(&proposal);
                assert_eq!(self.committed.version, index, "entries come in order, without gaps");
            }
            while let Some((index, _)) = self.waiting.front()
                && *index <= self.committed.version
            {
                let (_, effect) = self.waiting.pop_front().expect("there is a front");
                turn.effects.push(Effect::Net(effect));
            }
            self.follow_options(turn);
            self.auth_retry_waiting(turn);
            self.follow_creations(turn);
            self.publish(turn);
            self.send_owed_maps(turn);
            if self.committed.version >= self.last_snapshot + SNAPSHOT_EVERY {
                self.last_snapshot = self.committed.version;
                self.replication.snapshot(self.committed.version, self.committed.snapshot());
            }
        }
    }

    fn on_net(&mut self, turn: &mut Turn<'_>, event: NetEvent) {
        match event {
            NetEvent::Auth { conn, request } => self.on_auth(turn, conn, *request),
            NetEvent::Ready { conn, peer } => self.on_ready(turn, conn, *peer),
            NetEvent::Message { conn, message, .. } => self.on_message(turn, conn, message),
            NetEvent::Granted { .. } => {}
            NetEvent::Closed { conn, .. } => {
                self.auth.forget(conn);
                let session = self.sessions.remove(&conn);
                if let Some(osd) = session.and_then(|session| session.peer.identity.osd()) {
                    self.on_osd_gone(osd);
                }
            }
        }
    }

    fn on_message(&mut self, turn: &mut Turn<'_>, conn: ConnId, message: Message) {
        let Some(session) = self.sessions.get(&conn) else { return };
        if let Err(Refused(line)) = self.gate.admit(&session.peer, &message.body) {
            return line.into_iter().for_each(|line| turn.effects.push(Effect::Warn(line)));
        }
        let tid = message.tid;
        match message.body {
            Body::MAuth(m) => self.on_mauth(turn, conn, tid, *m),
            Body::MMonGetMap(_) => self.send_monmap(turn, conn),
            Body::MMonSubscribe(m) => self.on_subscribe(turn, conn, *m),
            Body::MMonGetVersion(m) => self.on_get_version(turn, conn, tid, *m),
            Body::MMonCommand(m) => self.on_command(turn, conn, tid, *m),
            Body::MCommand(m) => self.on_tell(turn, conn, tid, *m),
            Body::MGetConfig(m) => self.on_get_config(turn, conn, *m),
            Body::MLog(m) => self.on_log(turn, conn, *m),
            Body::MStatfs(m) => self.on_statfs(turn, conn, tid, *m),
            Body::MGetPoolStats(m) => self.on_get_pool_stats(turn, conn, tid, *m),
            Body::MPoolOp(m) => self.on_pool_op(turn, conn, tid, *m),
            Body::MPing(_) => turn.send(conn, wire::messages::MPing),
            other => {
                if !self.on_osd_message(turn, conn, tid, &other) {
                    self.on_mgr_message(turn, conn, &other);
                }
            }
        }
    }
}

impl Machine for Monitor {
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Time, input: Input, effects: &mut Effects<Effect>) {
        let mut turn = Turn { now, effects };
        match input {
            Input::Net(event) => self.on_net(&mut turn, event),
            Input::Written(tag) => {
                self.replication.on_written(tag);
                self.osd.requests.is_due = true;
            }
            Input::Admin { id, command } => {
                let answer = self.admin_command(&mut turn, &command);
                turn.effects.push(Effect::AdminAnswer { id, answer });
            }
            Input::Deadline { wall } => drop(self.clock.follow(now, wall)),
        }
        self.follow_options(&mut turn);
        self.tick_pulses(&mut turn);
        if now >= self.tick_at {
            self.tick(&mut turn);
        }
        self.pump(&mut turn);
        self.osd.requests.is_due = false;
    }

    fn next_deadline(&self) -> Option<Time> {
        Time::earliest(Some(self.tick_at), self.osd.pulses.deadline())
    }

    fn check(&self) {
        assert!(self.committed.version <= self.last_proposed);
        assert!(self.waiting.iter().all(|(index, _)| *index > self.committed.version));
        let version = self.head.version;
        let is_due = version.is_multiple_of(64) && self.compared.get() != version;
        if is_due && self.committed.version == version {
            self.compared.set(version);
            assert!(self.committed.digest() == self.head.digest(), "both copies applied the same log");
        }
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        let is_behind = self.committed.version < self.last_proposed;
        see("monitor", 0, if is_behind { "writing" } else { "at rest" });
        let map = self.committed.osdmap();
        for osd in map.osd_ids() {
            let state = match (map.is_up(osd), map.is_in(osd)) {
                (true, true) => "up, in",
                (true, false) => "up, out",
                (false, true) => "down, in",
                (false, false) => "down, out",
            };
            see("OSD in the map", osd as u64, state);
        }
    }
}
