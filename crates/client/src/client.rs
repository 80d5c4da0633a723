//! The client as a machine: what comes in, what goes out, and what it keeps in between.
//!
//! ```text
//! submit ─▶ has a map? pool? primary? not paused? ─▶ the primary's session ─▶ sent ─▶ answered
//!                │ no: waits for a map                     │ not open, or backed off: waits for it
//! ```
//! Every change of map or connection puts what it concerns through the same steps again, in the order of
//! submission, under the same request id; an OSD that has done it before answers from memory. That is all there is
//! to resending.

use crate::in_flight::{InFlight, Pending, State};
use crate::linger::{Errand, Lingering, WatchEvent, WatchId};
use crate::operation::Operation;
use crate::session::{Link, Session};
use crate::target::{Route, Routes, Target, hash_of, is_paused, map_holds_back};
use crate::{ObjectRef, Reply};
use bytes::Bytes;
use machine::net::{CloseReason, NetEffect, NetEvent, Policy};
use machine::{ConnId, Effects, Machine, Random, Time};
use mon_client::osd_maps::{self, Step};
use mon_client::{MonSession, RequestId, TimedOut};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use wire::messages::{Body, MMonGetVersion, MOSDBackoff, MOSDMap, MOSDOp, MOSDOpReply, MPing, Message};
use wire::types::{EntityKind, EntityName, HObject, Name, OsdFlags, OsdMap, PoolId, ReqId, UTime, op_value};

#[derive(Clone, Debug)]
pub struct Config {
    pub mon: mon_client::Config,
    pub timing: Timing,
}

/// Ceph's defaults where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often what is in flight is looked over (`objecter_tick_interval`).
    pub tick: Duration,
    /// From what age on an operation asks for a newer map and pings its OSD (`objecter_timeout`).
    pub laggy_after: Duration,
    /// The pause after an OSD could not be reached, doubled each time up to the second.
    pub reconnect_pause: Duration,
    pub reconnect_pause_max: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            tick: Duration::from_secs(5),
            laggy_after: Duration::from_secs(10),
            reconnect_pause: Duration::from_millis(50),
            reconnect_pause_max: Duration::from_secs(2),
        }
    }
}

/// One operation, for its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

#[derive(Debug)]
pub enum Input {
    Net(NetEvent),
    Deadline,
}

#[derive(Debug)]
pub enum Effect {
    Net(NetEffect),
    Event(Event),
}

impl From<Event> for Effect {
    fn from(event: Event) -> Effect {
        Effect::Event(event)
    }
}

#[derive(Debug)]
pub enum Event {
    /// A monitor let us in.
    Connected {
        global_id: u64,
    },
    /// A monitor refused us; the client goes on trying.
    Denied(String),
    /// A newer map is in use.
    Map {
        epoch: u32,
    },
    Done {
        id: OpId,
        outcome: Result<Reply, Failure>,
    },
    Watch {
        id: WatchId,
        event: WatchEvent,
    },
    /// All watchers have answered a notification or the time is up; `outcome` is a `NotifyOutcome`.
    Notified {
        id: WatchId,
        result: i32,
        outcome: Bytes,
    },
    /// The answer to [`Client::mon_request`].
    Answer {
        id: RequestId,
        answer: Result<Body, TimedOut>,
    },
    /// Anything else that the monitor sends.
    Message(Message),
}

/// Why an operation has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    #[error("timed out; whether it was done is not known")]
    TimedOut,
    #[error("no such pool")]
    NoPool,
    #[error("the pool answers every operation with an error")]
    PoolEio,
    /// The monitors know us under a new number, so that an OSD could not tell a repeated write from a new one.
    #[error("the client's identity was lost; whether it was done is not known")]
    IdentityLost,
}

impl Failure {
    /// As a negative errno.
    pub fn errno(self) -> i32 {
        match self {
            Failure::TimedOut => -110,
            Failure::NoPool => -2,
            Failure::PoolEio => -5,
            Failure::IdentityLost => -103,
        }
    }
}

pub(crate) type Fx<'a> = &'a mut Effects<Effect>;

/// See the module. Owned by one core; callers submit, the host feeds it events.
pub struct Client {
    timing: Timing,
    mon: MonSession,
    mon_effects: Effects<mon_client::Effect>,
    global_id: u64,
    /// Numbers the connections to OSDs; the monitor session has a range of its own.
    conn_space: u64,
    /// Counts the connections to OSDs.
    lives: u32,
    /// The wall time at a moment of ours, which dates writes.
    wall: Option<(Time, UTime)>,
    map: Option<Arc<OsdMap>>,
    routes: Routes,
    sessions: BTreeMap<i32, Session>,
    osd_of_conn: BTreeMap<ConnId, i32>,
    last_op: u64,
    in_flight: InFlight,
    /// Questions whether a pool really does not exist.
    pool_checks: BTreeMap<RequestId, OpId>,
    /// Answers to those: a map from this epoch on decides.
    pools_decided_at: BTreeMap<OpId, u32>,
    pub(crate) lingering: Lingering,
    tick_at: Time,
}

const EAGAIN: i32 = -11;
/// What stock's client gives its operations (`osd_client_op_priority`).
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
            routes: Routes::default(),
            sessions: BTreeMap::new(),
            osd_of_conn: BTreeMap::new(),
            last_op: 0,
            in_flight: InFlight::default(),
            pool_checks: BTreeMap::new(),
            pools_decided_at: BTreeMap::new(),
            lingering: Lingering::default(),
            tick_at: Time::ZERO,
        }
    }

    pub fn start(&mut self, now: Time, fx: Fx) {
        self.mon.subscribe_once("osdmap", 0, &mut self.mon_effects);
        self.mon.start(now, &mut self.mon_effects);
        self.absorb_mon(now, fx);
    }

    /// Close everything; what is in flight stays without an answer.
    pub fn stop(&mut self, fx: Fx) {
        self.mon.stop(&mut self.mon_effects);
        for effect in self.mon_effects.drain() {
            if let mon_client::Effect::Net(effect) = effect {
                fx.push(Effect::Net(effect));
            }
        }
        for (_, session) in std::mem::take(&mut self.sessions) {
            if let Some(conn) = session.conn() {
                fx.push(Effect::Net(NetEffect::Close { conn }));
            }
        }
    }

    /// What the clock on the wall shows at `now`.
    pub fn set_wall_time(&mut self, now: Time, wall: UTime) {
        self.wall = Some((now, wall));
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

    /// Ask for a map from `epoch` on, for a caller that knows there is one (a pool operation's answer says so).
    pub fn want_map(&mut self, now: Time, epoch: u32, fx: Fx) {
        if self.map.as_ref().is_none_or(|m| m.epoch < epoch) {
            self.ask_for_map(epoch);
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
        self.submit_errand(now, operation, Errand::Caller, fx)
    }

    pub(crate) fn submit_errand(&mut self, now: Time, operation: Operation, errand: Errand, fx: Fx) -> OpId {
        if self.in_flight.is_empty() {
            self.tick_at = now + self.timing.tick;
        }
        self.last_op += 1;
        let id = OpId(self.last_op);
        let pending = Pending {
            deadline: operation.timeout.map(|t| now + t),
            operation,
            errand,
            object: None,
            state: State::WaitsForMap,
            attempts: 0,
            submitted_at: now,
        };
        self.in_flight.insert(id, pending);
        self.place(now, id, fx);
        id
    }

    /// Forget an operation: it may still happen, and nobody is told.
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
        match op.errand {
            Errand::Caller => fx.push(Event::Done { id, outcome }.into()),
            errand => self.on_errand(errand, op.state, outcome.map_err(Failure::errno), fx),
        }
    }

    /// Find an operation's place under the current map and send it there.
    fn place(&mut self, now: Time, id: OpId, fx: Fx) {
        let Some(map) = self.map.clone() else { return };
        let Some(op) = self.in_flight.get_mut(id) else { return };
        if op.object.is_none() {
            op.object = hash_of(&map, &op.operation).map(|hash| object_of(&op.operation, hash));
        }
        let hash = op.object.as_ref().map_or(0, |o| o.hash);
        match self.routes.target(&map, &op.operation, hash) {
            Target::Route(route) => {
                if is_paused(&map, &op.operation) || route.primary < 0 {
                    op.state = State::WaitsForMap;
                    self.ask_for_map(map.epoch + 1);
                    return self.absorb_mon(now, fx);
                }
                op.state = State::Placed { route, sent_in: None };
                self.send(now, id, fx);
            }
            Target::Eio => self.finish(id, Err(Failure::PoolEio), fx),
            Target::NoPool => self.on_no_pool(now, id, map.epoch, fx),
        }
    }

    /// The map may be older than the pool: the monitor says which epoch decides.
    fn on_no_pool(&mut self, now: Time, id: OpId, epoch: u32, fx: Fx) {
        match self.pools_decided_at.get(&id) {
            Some(decided_at) if *decided_at <= epoch => self.finish(id, Err(Failure::NoPool), fx),
            Some(_) => self.ask_for_map(epoch + 1),
            None => {
                let op = self.in_flight.get_mut(id).expect("the caller has just looked it up");
                op.state = State::WaitsForMap;
                op.object = None;
                if !self.pool_checks.values().any(|waiting| *waiting == id) {
                    let ask = MMonGetVersion { handle: 0, what: "osdmap".into() };
                    let request = self.mon.request(now, ask, None, &mut self.mon_effects);
                    self.pool_checks.insert(request, id);
                }
            }
        }
        self.absorb_mon(now, fx);
    }

    fn on_pool_decided(&mut self, now: Time, id: OpId, newest: u32, fx: Fx) {
        self.pools_decided_at.insert(id, newest);
        self.place(now, id, fx);
    }

    /// Send a placed operation if its session is open and does not hold it back.
    fn send(&mut self, now: Time, id: OpId, fx: Fx) {
        let Some(op) = self.in_flight.get_mut(id) else { return };
        let State::Placed { route, sent_in } = &mut op.state else { return };
        if !self.sessions.contains_key(&route.primary) {
            let osd = route.primary;
            return self.open_session(now, osd, fx);
        }
        let session = self.sessions.get(&route.primary).expect("looked up just now");
        let (Some(conn), Some(object)) = (session.conn(), op.object.as_ref()) else { return };
        if session.backoffs.holds(route.pg, object) {
            return;
        }
        *sent_in = Some(session.life);
        op.attempts += 1;
        let epoch = self.map.as_ref().map_or(0, |m| m.epoch);
        let mtime = self.wall.map_or(UTime::ZERO, |(at, wall)| {
            UTime::from_nanos(wall.as_nanos().saturating_add(now.since(at).as_nanos() as u64))
        });
        let message = message_of(op, id, epoch, mtime);
        fx.push(Effect::Net(NetEffect::Send { conn, message }));
    }

    /// Make a session for an OSD and call it.
    fn open_session(&mut self, now: Time, osd: i32, fx: Fx) {
        let Some(addrs) = self.map.as_ref().and_then(|m| m.osd(osd)).map(|row| row.addrs.client.clone())
        else {
            return;
        };
        self.sessions.insert(osd, Session::new(addrs, self.timing.reconnect_pause));
        self.call(now, osd, fx);
    }

    /// Connect a session, and send what waits for it.
    fn call(&mut self, now: Time, osd: i32, fx: Fx) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        let Some(credentials) = self.mon.credentials(now, EntityKind::OSD) else {
            session.link = Link::NoTicket;
            return;
        };
        self.lives += 1;
        let conn = ConnId::outgoing(self.conn_space | self.lives as u64);
        session.link = Link::Open { conn, ready: false };
        session.life = self.lives;
        self.osd_of_conn.insert(conn, osd);
        fx.push(Effect::Net(NetEffect::Connect {
            conn,
            to: session.addrs.clone(),
            kind: EntityKind::OSD,
            policy: Policy::Lossy,
            credentials,
        }));
        self.send_all(now, osd, fx);
    }

    /// Send, in order, what is placed at an OSD and has not gone over its present connection.
    fn send_all(&mut self, now: Time, osd: i32, fx: Fx) {
        let Some(life) = self.sessions.get(&osd).map(|s| s.life) else { return };
        let waits = |op: &Pending| match &op.state {
            State::Placed { route, sent_in } => route.primary == osd && *sent_in != Some(life),
            State::WaitsForMap => false,
        };
        let ids: Vec<OpId> = self.in_flight.iter().filter(|(_, op)| waits(op)).map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.send(now, id, fx));
    }

    fn close_session(&mut self, osd: i32, fx: Fx) {
        if let Some(session) = self.sessions.remove(&osd)
            && let Some(conn) = session.conn()
        {
            self.osd_of_conn.remove(&conn);
            fx.push(Effect::Net(NetEffect::Close { conn }));
        }
    }

    pub(crate) fn is_life_of(&self, osd: i32, life: u32) -> bool {
        self.sessions.get(&osd).is_some_and(|s| s.life == life && s.conn().is_some())
    }

    /// Whether an object's operations still go where they went.
    pub(crate) fn route_holds(&self, object: &ObjectRef, route: &Route) -> bool {
        let Some(map) = self.map.as_ref() else { return false };
        let operation = Operation::new(object.clone(), Default::default(), OsdFlags::READ);
        let Some(hash) = hash_of(map, &operation) else { return false };
        route.holds(map, &mut Routes::default(), &operation, hash)
    }

    fn ask_for_map(&mut self, from: u32) {
        // Whoever is held back by a flag must hear of its end; others need the next epochs once.
        let lasting = self.map.as_ref().is_some_and(|m| map_holds_back(m));
        match lasting {
            true => self.mon.subscribe("osdmap", from as u64, &mut self.mon_effects),
            false => self.mon.subscribe_once("osdmap", from as u64, &mut self.mon_effects),
        }
    }

    fn on_osdmap(&mut self, now: Time, message: &MOSDMap, fx: Fx) {
        if self.map.as_ref().is_some_and(|m| m.fsid != message.fsid) {
            return;
        }
        let before = self.map.as_ref().map(|m| m.epoch);
        let mut map = self.map.take();
        let more = osd_maps::advance(&mut map, message, |next, step| self.on_map_step(next, step));
        self.map = map;
        let after = self.map.as_ref().map(|m| m.epoch);
        if let Some(from) = more {
            self.ask_for_map(from);
        }
        if let Some(epoch) = after.filter(|_| after > before) {
            self.mon.got("osdmap", epoch as u64);
            fx.push(Event::Map { epoch }.into());
            self.on_new_map(now, fx);
        }
        self.absorb_mon(now, fx);
    }

    /// One epoch further: mark what does not go where it went. (A change that the next epoch takes back is still a
    /// new interval, so every epoch is looked at.)
    fn on_map_step(&mut self, map: &Arc<OsdMap>, step: Step) {
        self.routes.clear();
        for (_, op) in self.in_flight.iter_mut() {
            let State::Placed { route, .. } = &op.state else { continue };
            let hash = op.object.as_ref().map_or(0, |o| o.hash);
            // What the map would hold back now, the OSD may have dropped: it is sent again when that is over, even if the
            // next map of the same message says so.
            let keeps = step == Step::Next
                && !is_paused(map, &op.operation)
                && route.holds(map, &mut self.routes, &op.operation, hash);
            if !keeps {
                op.state = State::WaitsForMap;
            }
        }
        self.lingering.let_go_of_moved(map, &step, &mut self.routes);
    }

    fn on_new_map(&mut self, now: Time, fx: Fx) {
        let Some(map) = self.map.clone() else { return };
        let moved = |(osd, session): (&i32, &Session)| {
            let there = map.is_up(*osd) && map.osd(*osd).is_some_and(|row| row.addrs.client == session.addrs);
            (!there).then_some(*osd)
        };
        let gone: Vec<i32> = self.sessions.iter().filter_map(moved).collect();
        for (_, op) in self.in_flight.iter_mut() {
            if matches!(&op.state, State::Placed { route, .. } if gone.contains(&route.primary)) {
                op.state = State::WaitsForMap;
            }
        }
        gone.into_iter().for_each(|osd| self.close_session(osd, fx));
        let unplaced = |op: &Pending| matches!(op.state, State::WaitsForMap);
        let waiting: Vec<OpId> =
            self.in_flight.iter().filter(|(_, op)| unplaced(op)).map(|(id, _)| id).collect();
        waiting.into_iter().for_each(|id| self.place(now, id, fx));
        self.refresh_lingering(now, fx);
    }

    fn on_net(&mut self, now: Time, event: NetEvent, fx: Fx) {
        let conn = match &event {
            NetEvent::Ready { conn, .. }
            | NetEvent::Message { conn, .. }
            | NetEvent::Auth { conn, .. }
            | NetEvent::Granted { conn, .. }
            | NetEvent::Closed { conn, .. } => *conn,
        };
        if self.mon.owns(conn) {
            self.mon.step(now, mon_client::Input::Net(event), &mut self.mon_effects);
            return self.absorb_mon(now, fx);
        }
        // A connection given up earlier has nothing to say.
        let Some(&osd) = self.osd_of_conn.get(&conn) else { return };
        match event {
            NetEvent::Message { message, .. } => self.on_osd_message(now, osd, conn, message, fx),
            NetEvent::Ready { .. } => {
                if let Some(session) = self.sessions.get_mut(&osd) {
                    session.link = Link::Open { conn, ready: true };
                    session.pause = self.timing.reconnect_pause;
                }
            }
            NetEvent::Closed { why, .. } => self.on_osd_closed(now, osd, conn, why, fx),
            NetEvent::Auth { .. } | NetEvent::Granted { .. } => {}
        }
    }

    fn on_osd_closed(&mut self, now: Time, osd: i32, conn: ConnId, why: CloseReason, fx: Fx) {
        self.osd_of_conn.remove(&conn);
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        let was_ready = session.link == Link::Open { conn, ready: true };
        session.backoffs.clear();
        if was_ready && !matches!(why, CloseReason::Denied(_)) {
            self.call(now, osd, fx);
        } else {
            session.link = Link::Waiting { until: now + session.pause };
            session.pause = (session.pause * 2).min(self.timing.reconnect_pause_max);
        }
        // The OSD may be down, which the next map says.
        let epoch = self.map.as_ref().map_or(0, |m| m.epoch);
        self.ask_for_map(epoch + 1);
        self.refresh_lingering(now, fx);
        self.absorb_mon(now, fx);
    }

    fn on_osd_message(&mut self, now: Time, osd: i32, conn: ConnId, message: Message, fx: Fx) {
        let tid = message.tid;
        match message.body {
            Body::MOSDOpReply(reply) => self.on_reply(now, osd, OpId(tid), *reply, fx),
            Body::MOSDBackoff(backoff) => self.on_backoff(now, osd, conn, &backoff, fx),
            Body::MWatchNotify(notify) => self.on_watch_notify(*notify, fx),
            Body::MOSDMap(map) => self.on_osdmap(now, &map, fx),
            _ => {}
        }
    }

    fn on_reply(&mut self, now: Time, osd: i32, id: OpId, reply: MOSDOpReply, fx: Fx) {
        let life = self.sessions.get(&osd).map(|s| s.life);
        let Some(op) = self.in_flight.get_mut(id) else { return };
        let expected = match &op.state {
            State::Placed { route, sent_in } => route.primary == osd && *sent_in == life && life.is_some(),
            State::WaitsForMap => false,
        };
        // An answer to an earlier sending: the later one is answered, too, and in its turn.
        if !expected || reply.retry_attempt >= 0 && reply.retry_attempt != op.attempts - 1 {
            return;
        }
        if let Some(redirect) = reply.redirect.filter(|r| !r.is_empty()) {
            op.operation.object = redirected(&op.operation.object, &redirect);
            op.operation.flags |= OsdFlags::REDIRECTED | OsdFlags::IGNORE_CACHE | OsdFlags::IGNORE_OVERLAY;
            op.object = None;
            return self.place(now, id, fx);
        }
        if reply.result == EAGAIN {
            return self.place(now, id, fx);
        }
        let MOSDOpReply { result, ops, versions, epoch, .. } = reply;
        self.finish(id, Ok(Reply { result, ops, version: versions.user, epoch }), fx);
    }

    fn on_backoff(&mut self, now: Time, osd: i32, conn: ConnId, backoff: &MOSDBackoff, fx: Fx) {
        let Some(session) = self.sessions.get_mut(&osd).filter(|s| s.conn() == Some(conn)) else { return };
        match backoff.op {
            op_value::BACKOFF_BLOCK => {
                session.backoffs.block(backoff);
                let ack = MOSDBackoff { op: op_value::BACKOFF_ACK_BLOCK, ..backoff.clone() };
                // As urgent as the operations themselves, so that it keeps its place among them.
                let message = Message { priority: OP_PRIORITY, ..Message::new(ack) };
                fx.push(Effect::Net(NetEffect::Send { conn, message }));
            }
            op_value::BACKOFF_UNBLOCK if session.backoffs.unblock(backoff.id) => {
                // The OSD has dropped what it had of the range: all of it goes again.
                let covered = |op: &Pending| match (&op.state, &op.object) {
                    (State::Placed { route, .. }, Some(object)) => {
                        route.primary == osd
                            && route.pg == backoff.pg
                            && (*object == backoff.begin || backoff.begin <= *object && *object < backoff.end)
                    }
                    _ => false,
                };
                let ids: Vec<OpId> =
                    self.in_flight.iter().filter(|(_, op)| covered(op)).map(|(id, _)| id).collect();
                ids.into_iter().for_each(|id| self.send(now, id, fx));
            }
            _ => {}
        }
    }

    /// Take in what the monitor session has to say, which may make it say more.
    fn absorb_mon(&mut self, now: Time, fx: Fx) {
        while !self.mon_effects.is_empty() {
            for effect in self.mon_effects.take() {
                match effect {
                    mon_client::Effect::Net(effect) => fx.push(Effect::Net(effect)),
                    mon_client::Effect::Event(event) => self.on_mon_event(now, event, fx),
                }
            }
        }
    }

    fn on_mon_event(&mut self, now: Time, event: mon_client::Event, fx: Fx) {
        match event {
            mon_client::Event::Connected { global_id, .. } => self.on_connected(global_id, fx),
            mon_client::Event::Denied(why) => fx.push(Event::Denied(why).into()),
            mon_client::Event::OsdMap(map) => self.on_osdmap(now, &map, fx),
            mon_client::Event::TicketsRenewed => {
                let without =
                    self.sessions.iter().filter(|(_, s)| s.link == Link::NoTicket).map(|(osd, _)| *osd);
                let without: Vec<i32> = without.collect();
                without.into_iter().for_each(|osd| self.call(now, osd, fx));
            }
            mon_client::Event::Answer { id, answer } => match (self.pool_checks.remove(&id), answer) {
                (Some(op), Ok(Body::MMonGetVersionReply(reply))) => {
                    self.on_pool_decided(now, op, u32::try_from(reply.version).unwrap_or(u32::MAX), fx);
                }
                (_, answer) => fx.push(Event::Answer { id, answer }.into()),
            },
            mon_client::Event::Message(message) => fx.push(Event::Message(message).into()),
            mon_client::Event::Disconnected
            | mon_client::Event::MonMap(_)
            | mon_client::Event::Config(_)
            | mon_client::Event::RotatingKeys(_) => {}
        }
    }

    fn on_connected(&mut self, global_id: u64, fx: Fx) {
        if self.global_id != 0 && self.global_id != global_id {
            // To OSDs we are somebody else now: a write sent again could be done twice.
            for osd in self.sessions.keys().copied().collect::<Vec<_>>() {
                self.close_session(osd, fx);
            }
            for id in self.in_flight.ids() {
                if self.in_flight.get(id).is_some_and(|op| op.attempts > 0 && op.operation.writes()) {
                    self.finish(id, Err(Failure::IdentityLost), fx);
                } else if let Some(op) = self.in_flight.get_mut(id) {
                    op.state = State::WaitsForMap;
                }
            }
            let epoch = self.map.as_ref().map_or(0, |m| m.epoch);
            self.ask_for_map(epoch + 1);
        }
        self.global_id = global_id;
        fx.push(Event::Connected { global_id }.into());
    }

    fn on_deadline(&mut self, now: Time, fx: Fx) {
        for id in self.in_flight.overdue(now) {
            self.finish(id, Err(Failure::TimedOut), fx);
        }
        let due = |(osd, s): (&i32, &Session)| match s.link {
            Link::Waiting { until } if until <= now => Some(*osd),
            _ => None,
        };
        let due: Vec<i32> = self.sessions.iter().filter_map(due).collect();
        due.into_iter().for_each(|osd| self.call(now, osd, fx));
        if self.next_ping().is_some_and(|at| at <= now) {
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

    /// What has been on its way for long: is there a newer map, and is the OSD still there?
    fn look_over(&mut self, now: Time, fx: Fx) {
        let old = |op: &Pending| now.since(op.submitted_at) >= self.timing.laggy_after;
        let mut osds: Vec<i32> = Vec::new();
        let mut any = false;
        for (_, op) in self.in_flight.iter().filter(|(_, op)| old(op)) {
            any = true;
            if let State::Placed { route, .. } = &op.state {
                osds.push(route.primary);
            }
        }
        osds.sort_unstable();
        osds.dedup();
        for conn in osds.iter().filter_map(|osd| self.sessions.get(osd)?.conn()) {
            fx.push(Effect::Net(NetEffect::Send { conn, message: Message::new(MPing) }));
        }
        if any {
            let epoch = self.map.as_ref().map_or(0, |m| m.epoch + 1);
            self.ask_for_map(epoch);
        }
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
        let all = [self.mon.next_deadline(), self.in_flight.next_deadline(), self.next_ping(), tick];
        all.into_iter().flatten().chain(reconnect).min()
    }
}

fn object_of(operation: &Operation, hash: u32) -> HObject {
    let object = &operation.object;
    HObject {
        pool: object.pool,
        hash,
        snap: operation.snap,
        namespace: object.namespace.clone(),
        key: if object.key == object.name { Name::EMPTY } else { object.key.clone() },
        name: object.name.clone(),
        max: false,
    }
}

fn redirected(object: &ObjectRef, to: &wire::types::RequestRedirect) -> ObjectRef {
    let mut out = object.clone();
    if !to.locator.is_empty() {
        out.pool = to.locator.pool;
        out.key = to.locator.key.clone();
        out.namespace = to.locator.namespace.clone();
    }
    if !to.object.is_empty() {
        out.name = to.object.clone();
    }
    out
}

fn message_of(op: &Pending, id: OpId, epoch: u32, mtime: UTime) -> Message {
    let State::Placed { route, .. } = &op.state else { unreachable!("only what is placed is sent") };
    let object = op.object.clone().expect("what is placed has its hash");
    let mut flags = op.operation.flags | OsdFlags::ONDISK | OsdFlags::KNOWN_REDIR | OsdFlags::SUPPORTSPOOLEIO;
    if op.attempts > 1 {
        flags |= OsdFlags::RETRY;
    }
    let body = MOSDOp {
        pg: route.pg,
        epoch,
        flags,
        explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 },
        client_incarnation: 0,
        mtime,
        object,
        ops: op.operation.ops.clone(),
        snap_seq: op.operation.snap_seq,
        snaps: op.operation.snaps.clone(),
        retry_attempt: op.attempts - 1,
        features: wire::features::SUPPORTED.0,
    };
    Message { priority: OP_PRIORITY, ..Message::with_tid(id.0, body) }
}
