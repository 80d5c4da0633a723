//! The client as a machine: its state, the calls of its owner, and the order of its work.
//!
//! ```text
//! submit ─▶ has a map? pool? primary? not paused? ─▶ the primary's session ─▶ sent ─▶ answered
//!                │ no: waits for a map                     │ not open, or backed off: waits for it
//! ```
//! Handlers over the same state, one file each: [`placing`], [`osd_sessions`], [`maps`], [`monitor`], [`watching`],
//! [`commands`].

mod commands;
mod maps;
mod monitor;
mod osd_sessions;
mod placing;
mod watching;

use crate::config::{Config, Timing};
use crate::event::{Effect, Event, Failure, Input, OpId};
use crate::in_flight::{InFlight, Pending, Purpose, State};
use crate::operation::Operation;
use crate::reply::Reply;
use crate::session::{Link, Session};
use crate::target::Routes;
use crate::watches::Watches;
use commands::Commands;
use machine::net::NetEffect;
use machine::{ConnId, Effects, Machine, Random, Time};
use mon_client::{MonSession, RequestId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::messages::Body;
use wire::types::{EntityKind, MonMap, OsdMap, PoolId, UTime};

type Fx<'a> = &'a mut Effects<Effect>;

/// Owned by one core; callers submit, the host feeds it events.
pub struct Client {
    timing: Timing,
    mon: MonSession,
    mon_effects: Effects<mon_client::Effect>,
    global_id: u64,
    /// Numbers the connections to OSDs; the monitor session has a range of its own.
    conn_space: u64,
    /// Counts the connections to OSDs.
    lives: u32,
    /// The wall clock's reading at a monotonic time. Dates writes.
    wall: Option<(Time, UTime)>,
    map: Option<Arc<OsdMap>>,
    /// The newest epoch that a caller knows of.
    wanted_epoch: u32,
    routes: Routes,
    sessions: BTreeMap<i32, Session>,
    osd_of_conn: BTreeMap<ConnId, i32>,
    last_op: u64,
    in_flight: InFlight,
    /// Requests to the monitor that prove a pool's absence.
    pool_checks: BTreeMap<RequestId, OpId>,
    /// Their answers: a map of this epoch or later decides.
    pools_decided_at: BTreeMap<OpId, u32>,
    watches: Watches,
    commands: Commands,
    tick_at: Time,
}

/// Priority of operations, as stock's client sets it (`osd_client_op_priority`).
const OP_PRIORITY: u16 = 63;

impl Client {
    /// `instance` tells several clients of one messenger apart.
    pub fn new(config: Config, instance: u16, random: Random) -> Client {
        let mut mon_config = config.mon;
        mon_config.services |= EntityKind::OSD.0 as u32;
        Client {
            timing: config.timing,
            mon: MonSession::new(mon_config, instance, random),
            mon_effects: Effects::new(),
            global_id: 0,
            conn_space: (instance as u64) << 40,
            lives: 0,
            wall: None,
            map: None,
            wanted_epoch: 0,
            routes: Routes::default(),
            sessions: BTreeMap::new(),
            osd_of_conn: BTreeMap::new(),
            last_op: 0,
            in_flight: InFlight::default(),
            pool_checks: BTreeMap::new(),
            pools_decided_at: BTreeMap::new(),
            watches: Watches::default(),
            commands: Commands::default(),
            tick_at: Time::ZERO,
        }
    }

    pub fn start(&mut self, now: Time, fx: Fx) {
        self.mon.subscribe_once("osdmap", 0, &mut self.mon_effects);
        self.mon.start(now, &mut self.mon_effects);
        self.absorb_mon(now, fx);
    }

    /// Closes all connections. Operations in flight get no event.
    pub fn stop(&mut self, fx: Fx) {
        self.mon.stop(&mut self.mon_effects);
        for effect in self.mon_effects.drain() {
            if let mon_client::Effect::Net(effect) = effect {
                fx.push(Effect::Net(effect));
            }
        }
        self.leave_manager(fx);
        for (_, session) in std::mem::take(&mut self.sessions) {
            if let Some(conn) = session.conn() {
                fx.push(Effect::Net(NetEffect::Close { conn }));
            }
        }
    }

    /// Set the wall clock: its reading at `now`.
    pub fn set_wall_time(&mut self, now: Time, wall: UTime) {
        self.wall = Some((now, wall));
    }

    /// The newest map of the monitors. Its epoch is 0 until a monitor has answered.
    pub fn monmap(&self) -> &MonMap {
        self.mon.monmap()
    }

    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.map.as_ref()
    }

    pub fn pool_by_name(&self, name: &str) -> Option<PoolId> {
        self.map.as_ref()?.pool_by_name(name)
    }

    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Asks until the map is of this epoch or a later one, for a caller that knows there is one (a pool operation's answer says so).
    pub fn want_map(&mut self, now: Time, epoch: u32, fx: Fx) {
        self.wanted_epoch = self.wanted_epoch.max(epoch);
        if self.map.as_ref().is_none_or(|m| m.epoch < epoch) {
            self.ask_for_next_map();
            self.absorb_mon(now, fx);
        }
    }

    /// Ask the monitors something: see [`MonSession::request`].
    pub fn mon_request(
        &mut self,
        now: Time,
        body: impl Into<Body>,
        timeout: Option<Duration>,
        fx: Fx,
    ) -> RequestId {
        let id = self.mon.request(now, body, timeout, &mut self.mon_effects);
        self.absorb_mon(now, fx);
        id
    }

    /// Begin an operation. Its answer is [`Event::Done`]; operations on one object are done in order of submission.
    pub fn submit(&mut self, now: Time, operation: Operation, fx: Fx) -> OpId {
        self.submit_for(now, operation, Purpose::Caller, fx)
    }

    fn submit_for(&mut self, now: Time, operation: Operation, purpose: Purpose, fx: Fx) -> OpId {
        if self.in_flight.is_empty() {
            self.tick_at = now + self.timing.tick;
        }
        self.last_op += 1;
        let id = OpId(self.last_op);
        let pending = Pending {
            deadline: operation.timeout.map(|t| now + t),
            operation,
            purpose,
            object: None,
            state: State::WaitsForMap,
            attempts: 0,
            submitted_at: now,
        };
        self.in_flight.insert(id, pending);
        self.place(now, id, fx);
        id
    }

    /// Drops an operation without an event. The OSD may still apply it.
    pub fn cancel(&mut self, id: OpId) {
        self.forget(id);
    }

    fn forget(&mut self, id: OpId) -> Option<Pending> {
        let op = self.in_flight.remove(id)?;
        // Both are empty but for the rare operation on a pool that was not in the map.
        self.pools_decided_at.remove(&id);
        if !self.pool_checks.is_empty() {
            self.pool_checks.retain(|_, waiting| *waiting != id);
        }
        Some(op)
    }

    fn finish(&mut self, id: OpId, outcome: Result<Reply, Failure>, fx: Fx) {
        let Some(op) = self.forget(id) else { return };
        match op.purpose {
            Purpose::Caller => fx.push(Event::Done { id, outcome }.into()),
            purpose => self.on_watch_reply(purpose, op.state, outcome.map_err(Failure::errno), fx),
        }
    }

    fn on_deadline(&mut self, now: Time, fx: Fx) {
        for id in self.in_flight.overdue(now) {
            self.finish(id, Err(Failure::TimedOut), fx);
        }
        self.fail_overdue_commands(now, fx);
        let due = |(osd, s): (&i32, &Session)| match s.link {
            Link::Waiting { until } if until <= now => Some(*osd),
            _ => None,
        };
        let due: Vec<i32> = self.sessions.iter().filter_map(due).collect();
        due.into_iter().for_each(|osd| self.call(now, osd, fx));
        if self.watches.next_ping().is_some_and(|at| at <= now) {
            self.ping_watches(now, fx);
        }
        if !self.in_flight.is_empty() && self.tick_at <= now {
            self.tick_at = now + self.timing.tick;
            self.look_over(now, fx);
        }
        if self.mon.next_deadline().is_some_and(|at| at <= now) {
            self.mon.step(now, mon_client::Input::Deadline, &mut self.mon_effects);
        }
        self.absorb_mon(now, fx);
    }
}

impl Machine for Client {
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Time, input: Input, effects: &mut Effects<Effect>) {
        match input {
            Input::Net(event) => self.on_net(now, event, effects),
            Input::Deadline => self.on_deadline(now, effects),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let reconnect = self.sessions.values().filter_map(|s| match s.link {
            Link::Waiting { until } => Some(until),
            _ => None,
        });
        let tick = (!self.in_flight.is_empty()).then_some(self.tick_at);
        let commands = self.commands.next_deadline();
        let all = [self.mon.next_deadline(), self.in_flight.next_deadline(), self.watches.next_ping(), tick];
        all.into_iter().chain([commands]).flatten().chain(reconnect).min()
    }

    fn check(&self) {
        self.mon.check();
        for (conn, osd) in &self.osd_of_conn {
            let session = self.sessions.get(osd).expect("a connection belongs to a session");
            assert_eq!(session.conn(), Some(*conn), "a session knows its connection");
        }
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.mon.states(see);
        for (osd, session) in &self.sessions {
            let state = match session.link {
                Link::NoTicket => "no ticket",
                Link::Waiting { .. } => "waiting",
                Link::Open { ready: false, .. } => "calling",
                Link::Open { ready: true, .. } => "open",
            };
            see("client's OSD session", *osd as u64, state);
        }
    }
}
