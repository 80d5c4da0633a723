//! The monitor as a machine: who is connected, what they want, and what is proposed for them.
//!
//! There are two copies of the state. `committed` has applied what holds for good; everything that is shown to
//! anybody comes from it. `head` has also applied what this monitor, as the leader, proposed and what does not hold yet; a
//! change is checked against it, so that two changes that arrive together see each other. Both change only by [`State::apply`].
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
mod mgr_proxy;
mod once;
mod options;
mod osd;
mod pool_op;
mod quorum;
mod quota;
mod restart;
mod session;
mod snapshots;
mod states;
mod stop;
mod subscribe;
#[cfg(test)]
mod tests;
mod tick;

pub use options::{AuthMode, Settings};
pub use quorum::Standing;

use crate::options::MonOptions;
use crate::proposal::{Change, Proposal};
use crate::replication::{CorruptLog, Event, Identity, Quorum, Recovered, Write};
use crate::situation::Reports;
use crate::state::State;
use bytes::Bytes;
use codec::{Encode, Features};
use command::options::Layers;
use command::{Counter, Reading};
use machine::gate::{Gate, Refused};
use machine::net::{NetEffect, NetEvent};
use machine::{ConnId, Effects, Machine, Random, Tag, Time, WallClock};
use session::Session;
use states::States;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::messages::{Body, Message};
use wire::types::{AuthName, EntityKind, MonMap, UTime, Uuid};

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
    /// Size of the file system that holds the log, and what is free there, in bytes.
    DiskSpace {
        total: u64,
        available: u64,
    },
    /// The answer to [`Effect::Restart`].
    RestartChecked(command::restart::Checked),
    /// Stop cleanly: ends in [`Effect::Stopped`].
    Stop,
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
    /// Somebody asked for a restart: run the installed program for its version and tell the outcome with
    /// [`Input::RestartChecked`]. If it runs, begin a clean stop with [`Input::Stop`], and start again after it.
    Restart,
    /// The monitor leads no more, or has nobody to lead in its place: end.
    Stopped,
}

/// The number of the monitor whose directory is from before monitors had numbers.
const FIRST_MEMBER: u64 = 1;

/// A monitor's disk that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Log(#[from] CorruptLog),
    #[error("the monitors' state: {0}")]
    State(#[from] codec::DecodeError),
    #[error(
        "the disk does not say which member of the log it belongs to; remove the directory, and the monitor joins anew"
    )]
    NoIdentity,
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
    /// `None`: this monitor has no part in the log yet.
    replication: Option<Quorum>,
    quorum: quorum::QuorumWatch,
    states: States,
    /// The index in the log of the newest entry that was applied, and of the snapshot.
    applied: u64,
    last_snapshot: u64,
    /// Batches handed to the disk.
    log_writes: u64,
    sessions: BTreeMap<ConnId, Session>,
    gate: Gate,
    auth: auth::AuthServer,
    maps: maps::MapCache,
    osd: osd::OsdWatch,
    mgr: mgr::MgrWatch,
    mgr_proxy: mgr_proxy::MgrProxy,
    reports: Reports,
    /// OSDMaps promised to peers once an entry holds: its number, to whom, from which epoch.
    maps_owed: Vec<(u64, ConnId, wire::types::Epoch)>,
    /// The newest OSDMap that peers were told of.
    published_epoch: wire::types::Epoch,
    creations: osd::Creations,
    stop: stop::Stop,
    restarts: restart::Restarts,
    /// Health checks that failed at the last tick.
    last_checks: crate::health::Checks,
    tick_at: Time,
}

/// The state that a disk holds, and the index of its snapshot. Entries after it are handed out by the log.
fn snapshot_of(disk: &Recovered) -> Result<(State, u64), codec::DecodeError> {
    match &disk.snapshot {
        Some((index, bytes)) => Ok((codec::decode_exact(bytes)?, *index)),
        None => Ok((State::default(), 0)),
    }
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
    /// A monitor that continues from what is on its disk: see [`crate::Genesis`]. One whose disk is empty asks the monitors of
    /// `settings.seeds` to let it join them.
    pub fn recover(
        mut settings: Settings,
        disk: Recovered,
        mut random: Random,
        now: Time,
        wall: UTime,
    ) -> Result<Monitor, Unreadable> {
        let (mut state, snapshot_index) = snapshot_of(&disk)?;
        let identity = disk.identity;
        let is_new = identity.is_none() && disk.entries.is_empty() && disk.snapshot.is_none();
        let mut replication = None;
        let mut applied = snapshot_index;
        if !is_new {
            // A disk from before there were several monitors has no record of the consensus either.
            if identity.is_none() && disk.vote.is_some() {
                return Err(Unreadable::NoIdentity);
            }
            let member = identity.map_or(FIRST_MEMBER, |identity| identity.member);
            let mut log = Quorum::recover(member, random.u64(), disk, random.fork())?;
            // What is known to hold is applied before the first message comes.
            for (index, entry) in log.take_committed() {
                state.apply(&codec::decode_exact(&entry)?);
                applied = index;
            }
            replication = Some(log);
        }
        // The configuration of one that is no member yet has the key; later it may be gone from there.
        if settings.monitor_key.is_none() && settings.auth == AuthMode::Cephx {
            let own = state.auth.entities.get(&AuthName::new(EntityKind::MON, ""));
            settings.monitor_key = own.map(|entity| entity.key.clone());
        }
        let is_unwritten = identity.is_none() && !is_new;
        let identity = identity.unwrap_or_else(|| match is_new {
            true => Identity { member: 0, disk: crate::genesis::random_uuid(&mut random) },
            false => Identity { member: FIRST_MEMBER, disk: Uuid::default() },
        });
        let mut quorum = quorum::QuorumWatch::new(identity, settings.seeds.clone(), now);
        quorum.unwritten = is_unwritten.then_some(identity);
        let own = options::OwnOptions::start(settings.options.clone());
        Ok(Monitor {
            options: MonOptions::read(&own.layers),
            own,
            auth: auth::AuthServer::default(),
            maps: maps::MapCache::default(),
            osd: osd::OsdWatch::start(&state, now),
            mgr: mgr::MgrWatch::start(&state, now),
            mgr_proxy: mgr_proxy::MgrProxy::default(),
            reports: Reports::default(),
            maps_owed: Vec::new(),
            published_epoch: state.osdmap().epoch,
            creations: osd::Creations::default(),
            stop: stop::Stop::default(),
            restarts: restart::Restarts::default(),
            last_checks: Default::default(),
            settings,
            random,
            clock: WallClock::new(now, wall),
            replication,
            quorum,
            states: States::new(state),
            applied,
            last_snapshot: snapshot_index,
            log_writes: 0,
            sessions: BTreeMap::new(),
            gate: Gate::new(EntityKind::MON),
            tick_at: now,
        })
    }

    /// The options that the database on this disk has for each of these daemons on `host`: the monitor and its manager.
    pub fn stored_options<const N: usize>(
        disk: &Recovered,
        names: [&AuthName; N],
        host: &str,
    ) -> Result<[BTreeMap<String, String>; N], Unreadable> {
        let state = Monitor::stored_state(disk)?;
        Ok(names.map(|name| options::of_daemon(&state.config, name, host)))
    }

    /// The monitor map on this disk, as far as the monitor knows that it holds.
    pub fn stored_monmap(disk: &Recovered) -> Result<MonMap, Unreadable> {
        Ok(Monitor::stored_state(disk)?.monmap)
    }

    fn stored_state(disk: &Recovered) -> Result<State, Unreadable> {
        let (mut state, _) = snapshot_of(disk)?;
        if disk.snapshot.is_some() || !disk.entries.is_empty() {
            let member = disk.identity.map_or(FIRST_MEMBER, |identity| identity.member);
            let mut log = Quorum::recover(member, 0, disk.clone(), Random::from_number(1))?;
            for (_, entry) in log.take_committed() {
                state.apply(&codec::decode_exact(&entry)?);
            }
        }
        Ok(state)
    }

    /// The committed state.
    pub fn state(&self) -> &State {
        &self.states.committed
    }

    pub fn counters(&self) -> Vec<Counter> {
        use Reading::{Level, Total};
        let mon = |name, help, value| Counter::own("mon", name, help, value);
        let sessions = mon("num_sessions", "Open sessions", Level(self.sessions.len() as u64));
        vec![
            Counter { is_stock: true, ..sessions },
            mon("log_index", "committed entries of the replicated log", Level(self.states.committed.version)),
            mon("osdmap_epoch", "epoch of the OSDMap", Level(self.states.committed.osdmap().epoch.into())),
            mon("log_writes", "batches written to the log", Total(self.log_writes)),
        ]
    }

    fn wall(&self, now: Time) -> UTime {
        self.clock.at(now)
    }

    /// Proposes changes that happen together. Returns the version that has them; see [`Monitor::answer_at`]. A monitor that
    /// does not lead proposes nothing: the leader comes to the same by itself.
    fn propose(&mut self, now: Time, changes: Vec<Change>) -> u64 {
        if changes.is_empty() || !self.is_leading() {
            return self.states.head().version;
        }
        let Some(log) = &mut self.replication else { return self.states.head().version };
        let proposal = Proposal { at: self.clock.at(now), base: Some(self.states.head().version), changes };
        let entry = Bytes::from(proposal.to_vec(Features::ALL));
        if log.propose(entry.clone()).is_ok() {
            self.states.propose(entry, proposal);
        }
        self.states.head().version
    }

    /// Sends `effect` once the changes that were proposed up to this version hold.
    fn answer_at(&mut self, turn: &mut Turn<'_>, version: u64, effect: NetEffect) {
        debug_assert_eq!(version, self.states.head().version);
        if !self.is_leading() {
            // About this monitor itself, or what it has applied: nothing to wait for.
            return turn.effects.push(Effect::Net(effect));
        }
        self.wait_for_hold(quorum::Outgoing::Answer(effect));
        self.send_answers(turn);
    }

    fn pump(&mut self, turn: &mut Turn<'_>) {
        loop {
            self.propose_requests(turn);
            let Some(log) = &mut self.replication else { break };
            let outcome = log.take();
            if let Some((tag, mut write)) = outcome.write {
                write.identity = self.quorum.unwritten.take();
                self.log_writes += 1;
                turn.effects.push(Effect::Write { tag, write });
            }
            for (member, bytes) in outcome.send {
                self.send_log(turn, member, bytes);
            }
            let before = self.states.committed.version;
            let (is_quiet, mut is_state_wanted) = (outcome.events.is_empty(), false);
            let mut have_members_changed = false;
            for event in outcome.events {
                match event {
                    Event::Committed { index, entry } => self.apply(index, &entry),
                    Event::Installed { index, state } => self.install(index, &state),
                    Event::Readable { read, .. } => self.on_read(read),
                    Event::StateWanted { .. } => is_state_wanted = true,
                    Event::Members { .. } => have_members_changed = true,
                    // What it says is in the log's status.
                    Event::Role(_) => {}
                }
            }
            let has_new = self.states.committed.version != before;
            self.follow_role(turn);
            if is_state_wanted || self.applied >= self.last_snapshot + SNAPSHOT_EVERY {
                self.last_snapshot = self.applied;
                let state = self.states.committed.snapshot();
                if let Some(log) = &mut self.replication {
                    log.snapshot(self.applied, state);
                }
            }
            if has_new {
                self.follow_state(turn);
            }
            // One change of members waits for the other.
            if have_members_changed {
                self.follow_members(turn.now);
            }
            self.send_answers(turn);
            self.answer_versions(turn);
            if is_quiet && !self.replication.as_ref().is_some_and(Quorum::has_output) {
                break;
            }
        }
    }

    /// Applies an entry of the log that holds.
    fn apply(&mut self, index: u64, entry: &Bytes) {
        self.states.commit(entry);
        self.applied = index;
    }

    /// The leader has sent a whole state, because the log before it is gone there.
    fn install(&mut self, index: u64, state: &[u8]) {
        self.states.install(codec::decode_exact(state).expect("a state that a monitor wrote decodes"));
        (self.applied, self.last_snapshot) = (index, index);
    }

    /// Acts on new versions of the state.
    fn follow_state(&mut self, turn: &mut Turn<'_>) {
        self.follow_options(turn);
        self.follow_monitors(turn);
        self.follow_members(turn.now);
        self.answer_joining(turn);
        self.send_promised_ids(turn);
        self.auth_retry_waiting(turn);
        self.follow_creations(turn);
        self.publish(turn);
        self.send_owed_maps(turn);
    }

    fn on_net(&mut self, turn: &mut Turn<'_>, event: NetEvent) {
        let Some(event) = self.on_mgr_proxy_event(turn, event) else { return };
        match event {
            NetEvent::Auth { conn, request } => self.on_auth(turn, conn, *request),
            NetEvent::Ready { conn, peer } => {
                let is_monitor = peer.identity.role() == EntityKind::MON;
                self.on_ready(turn, conn, *peer);
                if is_monitor && !self.on_link_ready(turn, conn) {
                    self.greet(turn, conn);
                }
            }
            NetEvent::Message { conn, message, .. } => self.on_message(turn, conn, message),
            NetEvent::Granted { .. } => {}
            NetEvent::Closed { conn, .. } => {
                self.auth.forget(conn);
                if !self.on_link_closed(turn, conn) {
                    self.on_monitor_gone(turn, conn);
                }
                let Some(session) = self.sessions.remove(&conn) else { return };
                self.forget_requests(turn, conn);
                self.forget_proxied(conn);
                if let Some(osd) = session.peer.identity.osd() {
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
        self.take_request(turn, conn, message);
    }

    /// Acts on a message of a session: our own, or one that another monitor holds.
    fn carry_out(&mut self, turn: &mut Turn<'_>, conn: ConnId, message: Message) {
        let tid = message.tid;
        match message.body {
            Body::MAuth(m) => self.on_mauth(turn, conn, tid, *m),
            Body::MMonGetMap(_) => self.send_monmap(turn, conn),
            Body::MMonSubscribe(m) => self.on_subscribe(turn, conn, *m),
            Body::MMonGetVersion(m) => self.ask_version(turn, conn, tid, *m),
            Body::MMonPeer(m) => self.on_mon_peer(turn, conn, *m),
            Body::MMonCommand(m) => self.on_command(turn, conn, tid, *m),
            Body::MCommand(m) => self.on_tell(turn, conn, tid, *m),
            Body::MGetConfig(m) => self.on_get_config(turn, conn, *m),
            Body::MLog(m) => self.on_log(turn, conn, *m),
            Body::MStatfs(m) => self.on_statfs(turn, conn, tid, *m),
            Body::MGetPoolStats(m) => self.on_get_pool_stats(turn, conn, tid, *m),
            Body::MPoolOp(m) => self.on_pool_op(turn, conn, tid, *m),
            Body::MRemoveSnaps(m) => self.on_remove_snaps(turn, conn, tid, *m),
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
                if let Some(log) = &mut self.replication {
                    log.on_written(tag);
                }
                self.osd.requests.is_due = true;
            }
            Input::Admin { id, command } => {
                self.admin_command(&mut turn, id, &command);
            }
            Input::RestartChecked(checked) => self.on_restart_checked(&mut turn, &checked),
            Input::DiskSpace { total, available } => self.quorum.disk_space = (total, available),
            Input::Stop => self.begin_stop(now),
            Input::Deadline { wall } => drop(self.clock.follow(now, wall)),
        }
        self.follow_options(&mut turn);
        self.tick_quorum(&mut turn);
        self.tick_mgr_proxy(&mut turn);
        if self.is_leading() {
            self.tick_pulses(&mut turn);
        }
        self.pump(&mut turn);
        // Also at once after this monitor began to lead.
        if now >= self.tick_at {
            self.tick(&mut turn);
            self.pump(&mut turn);
        }
        self.osd.requests.is_due = false;
        self.follow_stop(&mut turn);
        self.route(&mut turn);
    }

    fn next_deadline(&self) -> Option<Time> {
        let pulses = self.osd.pulses.deadline().filter(|_| self.is_leading());
        let other = Time::earliest(self.stop.deadline(), Time::earliest(pulses, self.quorum_deadline()));
        let other = Time::earliest(other, self.mgr_proxy.deadline());
        Time::earliest(Some(self.tick_at), other)
    }

    fn check(&self) {
        self.states.check(self.is_leading());
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        let is_ahead = self.states.is_ahead();
        see("monitor's part", 0, self.part());
        see("monitor", 0, if is_ahead { "writing" } else { "at rest" });
        let map = self.states.committed.osdmap();
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
