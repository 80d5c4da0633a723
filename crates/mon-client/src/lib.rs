//! The session of a daemon or client with the monitors.
//!
//! [`MonSession`] hunts for a monitor that answers, authenticates, and keeps our global id across connections. It renews
//! subscriptions, unanswered requests, tickets for other services, and a daemon's rotating keys. A role owns one, hands it the events of its connection
//! ([`MonSession::owns`]) and its deadline, and gets [`Event`]s back.
//!
//! ```text
//!            ┌──────────── closed, silent, denied ───────────┐
//!            ▼                                               │
//!  Waiting ─────▶ Calling ─── Granted, Ready ──▶ Up ─────────┘
//!   (back-off)    (deadline)                     (sign of life within the deadline)
//! ```
//!
//! One monitor is called at a time, in an order shuffled anew each round. Stock calls three at once, which finds
//! a living one sooner when others swallow packets, and costs each of them a handshake and a global id.

mod hunt;
pub mod osd_maps;
mod requests;
mod subscriptions;
#[cfg(test)]
mod tests;
mod tickets;

pub use requests::RequestId;
pub use tickets::Tickets;

use hunt::Hunt;
use machine::net::{CloseReason, Credentials, NetEffect, NetEvent, Peer};
use machine::{ConnId, Effects, Machine, Random, Time};
use requests::Requests;
use std::collections::BTreeMap;
use std::time::Duration;
use subscriptions::Subscriptions;
use wire::cephx::{Key, RotatingKeys};
use wire::messages::{Body, MConfig, MMonMap, MOSDMap, Message};
use wire::types::{AuthName, EntityAddrVec, EntityKind, MonMap, Uuid};

/// Our name and key, and the monitors to call.
#[derive(Clone, Debug)]
pub struct Config {
    pub auth_name: AuthName,
    /// `None` where the cluster runs with `auth none`.
    pub key: Option<Key>,
    /// Kinds of services whose tickets we keep ([`EntityKind`] bits); the monitor's own is always kept.
    pub services: u32,
    /// A daemon keeps its service's rotating keys, which verify the tickets of connecting peers.
    pub rotating_keys: bool,
    pub hostname: String,
    /// Monitors to call until a MonMap has come.
    pub monitors: Vec<EntityAddrVec>,
    pub timing: Timing,
}

/// Ceph's defaults, which are ours too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time for one monitor to admit us (`mon_client_hunt_interval`).
    pub call_timeout: Duration,
    /// The pause after every monitor has failed, doubled each round up to the second.
    pub round_pause: Duration,
    pub round_pause_max: Duration,
    /// Keepalive: interval of pings to a silent monitor, and the silence after which another is called.
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            call_timeout: Duration::from_secs(3),
            round_pause: Duration::from_millis(200),
            round_pause_max: Duration::from_secs(10),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(30),
        }
    }
}

#[derive(Debug)]
pub enum Input {
    /// Of a connection that [`MonSession::owns`].
    Net(NetEvent),
    Deadline,
}

#[derive(Debug)]
pub enum Effect {
    Net(NetEffect),
    Event(Event),
}

/// Events of the session, for the role that owns it.
#[derive(Debug)]
pub enum Event {
    /// A monitor let us in. The global id is the one we had before unless the monitor would not give it back.
    Connected {
        global_id: u64,
        monitor: Peer,
    },
    /// The monitor is gone; another is being sought. Subscriptions and requests go on by themselves.
    Disconnected,
    /// A monitor refused us: the key or the name is wrong, or the clock too far off. The hunt goes on.
    Denied(String),
    MonMap(MonMap),
    OsdMap(Box<MOSDMap>),
    /// All options that the cluster sets for us.
    Config(BTreeMap<String, String>),
    /// The answer to a request, or that it was not given in time.
    Answer {
        id: RequestId,
        answer: Result<Body, TimedOut>,
    },
    /// New tickets: [`MonSession::credentials`] gives better ones now.
    TicketsRenewed,
    /// The keys that verify connecting peers; the host also gets them as an effect.
    RotatingKeys(RotatingKeys),
    /// Anything else that the monitor sends: other maps, orders to a daemon.
    Message(Message),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

/// See the module.
pub struct MonSession {
    config: Config,
    random: Random,
    monmap: MonMap,
    hunt: Hunt,
    link: Link,
    /// Numbers the connections.
    conn_space: u64,
    conns_opened: u64,
    global_id: u64,
    tickets: Tickets,
    subscriptions: Subscriptions,
    requests: Requests,
}

#[derive(Debug)]
enum Link {
    /// Before the start.
    Idle,
    Waiting {
        until: Time,
    },
    Calling {
        conn: ConnId,
        monitor: EntityAddrVec,
        until: Time,
    },
    Up(Up),
}

#[derive(Debug)]
struct Up {
    conn: ConnId,
    monitor: EntityAddrVec,
    heard_at: Time,
    ping_at: Time,
}

type Fx<'a> = &'a mut Effects<Effect>;

impl MonSession {
    /// `instance` tells several sessions of one messenger apart; the role's own connections must stay below
    /// number 2^56.
    pub fn new(config: Config, instance: u16, random: Random) -> MonSession {
        MonSession {
            hunt: Hunt::new(config.timing),
            link: Link::Idle,
            monmap: MonMap::default(),
            conn_space: (1 << 56) | (instance as u64) << 40,
            conns_opened: 0,
            global_id: 0,
            tickets: Tickets::new(config.services, config.rotating_keys),
            subscriptions: Subscriptions::new(),
            requests: Requests::default(),
            config,
            random,
        }
    }

    /// Begin to hunt.
    pub fn start(&mut self, now: Time, fx: Fx) {
        if matches!(self.link, Link::Idle) {
            self.call_next(now, fx);
        }
    }

    /// True if a connection is this session's, now or before.
    pub fn owns(&self, conn: ConnId) -> bool {
        conn.is_outgoing() && conn.0 & (u64::MAX >> 1) & !0xff_ffff_ffff == self.conn_space
    }

    /// 0 until a monitor let us in.
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    pub fn monmap(&self) -> &MonMap {
        &self.monmap
    }

    pub fn fsid(&self) -> Uuid {
        self.monmap.fsid
    }

    pub fn is_connected(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    /// Credentials for a service; `None` while there is no ticket for it.
    pub fn credentials(&self, now: Time, service: EntityKind) -> Option<Credentials> {
        let auth_name = self.config.auth_name.to_string();
        let global_id = self.global_id;
        if global_id == 0 {
            return None;
        }
        match self.config.key {
            None => Some(Credentials::None { auth_name, global_id }),
            Some(_) => {
                let ticket = self.tickets.valid(now, service)?.clone();
                Some(Credentials::Ticket { auth_name, global_id, ticket })
            }
        }
    }

    /// Ask for a map from version `start` on, now and after every reconnect.
    pub fn subscribe(&mut self, what: &str, start: u64, fx: Fx) {
        self.subscriptions.want(what, start, false);
        self.send_subscriptions(fx);
    }

    /// Ask for one answer: a map not older than `start`.
    pub fn subscribe_once(&mut self, what: &str, start: u64, fx: Fx) {
        self.subscriptions.want(what, start, true);
        self.send_subscriptions(fx);
    }

    /// A map came: what follows is asked for after a reconnect. (Done here for `osdmap` and `monmap`.)
    pub fn got(&mut self, what: &str, version: u64) {
        self.subscriptions.got(what, version);
    }

    pub fn unsubscribe(&mut self, what: &str) {
        self.subscriptions.drop(what);
    }

    /// Ask something that is answered once (`MMonCommand`, `MMonGetVersion`, `MPoolOp`, `MStatfs`,
    /// `MGetPoolStats`): sent now or when connected, and again after a reconnect, until [`Event::Answer`]. The
    /// cluster's id is filled in.
    pub fn request(
        &mut self,
        now: Time,
        body: impl Into<Body>,
        timeout: Option<Duration>,
        fx: Fx,
    ) -> RequestId {
        let id = self.requests.add(body.into(), timeout.map(|t| now + t));
        if let Some(conn) = self.sendable() {
            self.requests.send(id, conn, self.monmap.fsid, fx);
        }
        id
    }

    pub fn cancel(&mut self, id: RequestId) {
        self.requests.remove(id);
    }

    /// Send something that needs no answer; dropped when there is no connection, as a daemon's beacon may be.
    pub fn send(&mut self, message: Message, fx: Fx) -> bool {
        match &self.link {
            Link::Up(up) => {
                fx.push(Effect::Net(NetEffect::Send { conn: up.conn, message }));
                true
            }
            _ => false,
        }
    }

    /// Leaves a monitor that has let us in and does not serve us, and calls the others. False where none has let us in, or no
    /// other is known.
    pub fn leave_monitor(&mut self, now: Time, fx: Fx) -> bool {
        let may_leave = self.is_connected() && self.known_monitors().len() > 1;
        if may_leave {
            self.reopen(now, fx);
        }
        may_leave
    }

    /// End the session for good.
    pub fn stop(&mut self, fx: Fx) {
        if let Link::Calling { conn, .. } | Link::Up(Up { conn, .. }) = self.link {
            fx.push(Effect::Net(NetEffect::Close { conn }));
        }
        self.link = Link::Idle;
    }

    /// The connection, once the monitor's first map has told which cluster this is.
    fn sendable(&self) -> Option<ConnId> {
        match &self.link {
            Link::Up(up) if self.monmap.fsid != Uuid::default() => Some(up.conn),
            _ => None,
        }
    }

    fn send_subscriptions(&mut self, fx: Fx) {
        if let Link::Up(up) = &self.link
            && let Some(message) = self.subscriptions.changed(&self.config.hostname)
        {
            fx.push(Effect::Net(NetEffect::Send { conn: up.conn, message }));
        }
    }

    fn known_monitors(&self) -> Vec<EntityAddrVec> {
        match self.monmap.mons.is_empty() {
            true => self.config.monitors.clone(),
            false => self.monmap.by_rank().map(|(_, mon)| mon.addrs.clone()).collect(),
        }
    }

    fn call_next(&mut self, now: Time, fx: Fx) {
        match self.hunt.next(&self.known_monitors(), &mut self.random) {
            hunt::Next::Call(to) => {
                self.conns_opened += 1;
                let conn = outgoing_number(self.conn_space, self.conns_opened);
                let credentials = self.monitor_credentials(now);
                let policy = machine::net::Policy::Lossy;
                let until = now + self.config.timing.call_timeout;
                self.link = Link::Calling { conn, monitor: to.clone(), until };
                let connect = NetEffect::Connect {
                    conn,
                    to,
                    kind: EntityKind::MON,
                    policy,
                    credentials: credentials.into(),
                };
                fx.push(Effect::Net(connect));
            }
            hunt::Next::Pause(pause) => self.link = Link::Waiting { until: now + pause },
        }
    }

    fn monitor_credentials(&self, now: Time) -> Credentials {
        let auth_name = self.config.auth_name.to_string();
        match &self.config.key {
            None => Credentials::None { auth_name, global_id: self.global_id },
            Some(key) => Credentials::Key {
                auth_name,
                key: key.clone(),
                want_services: self.tickets.services(),
                reclaim: self.tickets.valid(now, EntityKind::AUTH).map(|t| (self.global_id, t.clone())),
            },
        }
    }

    fn on_net(&mut self, now: Time, event: NetEvent, fx: Fx) {
        let current = match &self.link {
            Link::Calling { conn, .. } | Link::Up(Up { conn, .. }) => Some(*conn),
            Link::Idle | Link::Waiting { .. } => None,
        };
        match event {
            NetEvent::Granted { conn, grant } if current == Some(conn) => {
                self.global_id = grant.global_id;
                self.tickets.take(now, grant.tickets);
            }
            NetEvent::Ready { conn, peer } if current == Some(conn) => self.on_ready(now, conn, *peer, fx),
            NetEvent::Message { conn, message, .. } if current == Some(conn) => {
                self.on_message(now, message, fx)
            }
            NetEvent::Closed { conn, why } if current == Some(conn) => self.on_closed(now, why, fx),
            // A connection given up earlier: its last words are of no use.
            NetEvent::Granted { .. }
            | NetEvent::Ready { .. }
            | NetEvent::Message { .. }
            | NetEvent::Closed { .. }
            | NetEvent::Auth { .. } => {}
        }
    }

    fn on_ready(&mut self, now: Time, conn: ConnId, peer: Peer, fx: Fx) {
        self.hunt.found();
        let Link::Calling { monitor, .. } = &self.link else { return };
        let ping_at = now + self.config.timing.ping_interval;
        self.link = Link::Up(Up { conn, monitor: monitor.clone(), heard_at: now, ping_at });
        fx.push(Effect::Event(Event::Connected { global_id: self.global_id, monitor: peer }));
        if self.config.key.is_some() {
            fx.push(Effect::Event(Event::TicketsRenewed));
        }
        let message = self.subscriptions.all(&self.config.hostname);
        fx.push(Effect::Net(NetEffect::Send { conn, message }));
        if let Some(conn) = self.sendable() {
            self.requests.send_all(conn, self.monmap.fsid, fx);
        }
        self.tickets.on_connected(now);
        self.renew_keys(now, fx);
    }

    fn on_closed(&mut self, now: Time, why: CloseReason, fx: Fx) {
        if let Link::Up(up) = &self.link {
            self.hunt.lost(up.monitor.clone());
            fx.push(Effect::Event(Event::Disconnected));
        }
        if let CloseReason::Denied(why) = why {
            // An old ticket may be what the monitor did not like: the next call shows the key alone.
            self.tickets.forget(EntityKind::AUTH);
            fx.push(Effect::Event(Event::Denied(why)));
        }
        self.call_next(now, fx);
    }

    /// Close what there is and try another monitor.
    fn reopen(&mut self, now: Time, fx: Fx) {
        if let Link::Calling { conn, .. } | Link::Up(Up { conn, .. }) = self.link {
            fx.push(Effect::Net(NetEffect::Close { conn }));
            self.on_closed(now, CloseReason::TimedOut, fx);
        }
    }

    fn on_message(&mut self, now: Time, message: Message, fx: Fx) {
        if let Link::Up(up) = &mut self.link {
            up.heard_at = now;
            up.ping_at = now + self.config.timing.ping_interval;
        }
        if let Some(id) = self.requests.answered_by(&message) {
            if self.requests.remove(id) {
                fx.push(Effect::Event(Event::Answer { id, answer: Ok(message.body) }));
            }
            return;
        }
        match message.body {
            Body::MMonMap(map) => self.on_monmap(&map, fx),
            Body::MOSDMap(map) => {
                self.subscriptions.got("osdmap", map.last().unwrap_or(0) as u64);
                fx.push(Effect::Event(Event::OsdMap(map)));
            }
            Body::MConfig(config) => {
                let MConfig { config } = *config;
                fx.push(Effect::Event(Event::Config(config)));
            }
            Body::MAuthReply(reply) => self.on_auth_reply(now, &reply, fx),
            // Sent to old clients only; and the answer to a sign of life.
            Body::MMonSubscribeAck(_) | Body::MMonGetVersionReply(_) => {}
            body => fx.push(Effect::Event(Event::Message(Message { body, ..message }))),
        }
    }

    fn on_monmap(&mut self, map: &MMonMap, fx: Fx) {
        // A map that cannot be read changes nothing: the one that we have still names monitors.
        let Ok(map) = map.decode_map() else { return };
        self.subscriptions.got("monmap", map.epoch as u64);
        let first = self.monmap.mons.is_empty();
        self.monmap = map.clone();
        fx.push(Effect::Event(Event::MonMap(map)));
        if first && let Some(conn) = self.sendable() {
            self.requests.send_all(conn, self.monmap.fsid, fx);
        }
    }

    fn on_auth_reply(&mut self, now: Time, reply: &wire::messages::MAuthReply, fx: Fx) {
        match self.tickets.on_reply(now, reply, self.config.key.as_ref()) {
            tickets::Outcome::Tickets => fx.push(Effect::Event(Event::TicketsRenewed)),
            tickets::Outcome::RotatingKeys(keys) => {
                fx.push(Effect::Net(NetEffect::ServiceKeys(keys.clone())));
                fx.push(Effect::Event(Event::RotatingKeys(keys)));
            }
            tickets::Outcome::Nothing => {}
        }
    }

    /// Ask for the tickets and keys that are due.
    fn renew_keys(&mut self, now: Time, fx: Fx) {
        let Link::Up(up) = &self.link else { return };
        if self.config.key.is_none() {
            return;
        }
        let conn = up.conn;
        for message in self.tickets.renewals(now, self.global_id, self.monmap.epoch, &mut self.random) {
            fx.push(Effect::Net(NetEffect::Send { conn, message }));
        }
    }

    fn on_deadline(&mut self, now: Time, fx: Fx) {
        for id in self.requests.overdue(now) {
            fx.push(Effect::Event(Event::Answer { id, answer: Err(TimedOut) }));
        }
        match &mut self.link {
            Link::Idle => {}
            Link::Waiting { until } if *until <= now => self.call_next(now, fx),
            Link::Calling { until, .. } if *until <= now => self.reopen(now, fx),
            Link::Waiting { .. } | Link::Calling { .. } => {}
            Link::Up(up) => {
                if up.heard_at + self.config.timing.ping_timeout <= now {
                    return self.reopen(now, fx);
                }
                if up.ping_at <= now {
                    up.ping_at = now + self.config.timing.ping_interval;
                    let message = requests::sign_of_life();
                    fx.push(Effect::Net(NetEffect::Send { conn: up.conn, message }));
                }
                if self.tickets.must_reconnect(now) {
                    return self.reopen(now, fx);
                }
                self.renew_keys(now, fx);
            }
        }
    }
}

/// The connection that was opened as the `count`-th.
fn outgoing_number(space: u64, count: u64) -> ConnId {
    ConnId::outgoing(space | count)
}

impl Machine for MonSession {
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Time, input: Input, effects: &mut Effects<Effect>) {
        match input {
            Input::Net(event) => self.on_net(now, event, effects),
            Input::Deadline => self.on_deadline(now, effects),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let link = match &self.link {
            Link::Idle => None,
            Link::Waiting { until } | Link::Calling { until, .. } => Some(*until),
            Link::Up(up) => {
                let silent = up.heard_at + self.config.timing.ping_timeout;
                let keys = if self.config.key.is_some() { self.tickets.next_renewal() } else { None };
                Time::earliest(Some(up.ping_at.min(silent)), keys)
            }
        };
        Time::earliest(link, self.requests.next_deadline())
    }

    fn check(&self) {
        let newest = outgoing_number(self.conn_space, self.conns_opened);
        if let Link::Calling { conn, .. } | Link::Up(Up { conn, .. }) = &self.link {
            assert_eq!(*conn, newest, "the connection in use is the newest");
        }
        if self.is_connected() {
            assert!(self.global_id != 0, "a monitor that lets us in gives us a number");
        }
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        let state = match &self.link {
            Link::Idle => "idle",
            Link::Waiting { .. } => "waiting",
            Link::Calling { .. } => "calling",
            Link::Up(_) => "up",
        };
        see("monitor session", self.conn_space, state);
    }
}
