//! The client with sockets and a clock, for programs: [`ClientHost`] drives the pure machines.
//!
//! One client with its own messenger endpoint, on one thread. Callers submit through [`ClientHost::client`] and turn
//! the loop with [`ClientHost::turn`]:
//!
//! ```text
//! wait for a socket or a deadline ─▶ read ─▶ Endpoint ─▶ Client ─▶ events
//!        one vectored write a socket ◀─ Endpoint ◀─ what the client and its caller want sent
//! ```

mod access;
mod commands;
mod socket;

pub use access::{Access, ClientOptions, Modes};
pub use commands::{Receiver, Refusal};

use client::{Client, Event, OpId, Operation, Reply};
use machine::net::NetEvent;
use machine::{Effects, Machine, Time};
use messenger::{Endpoint, ModeLists, ReadPlan, SocketId};
use runtime::system;
use socket::Socket;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use wire::messages::{Body, MGetConfig};
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName};

pub struct ClientHost {
    started: Instant,
    endpoint: Endpoint,
    client: Client,
    sockets: BTreeMap<SocketId, Socket>,
    timer: Pin<Box<Sleep>>,
    /// The time that the timer is set to; `None` once it has fired.
    timer_at: Option<Time>,
    client_effects: Effects<client::Effect>,
    endpoint_effects: Effects<messenger::Effect>,
    dirty: Vec<SocketId>,
    ready: Vec<SocketId>,
    events: Vec<Event>,
    /// See [`ClientHost::own_addrs`].
    own_addrs: BTreeSet<EntityAddr>,
}

/// The monitors refuse the key.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotAdmitted(pub String);

/// The machine, the time, and the queue of its effects, lent to a caller.
pub type Submit<'a> = (&'a mut Client, Time, &'a mut Effects<client::Effect>);

impl ClientHost {
    /// Needs a tokio runtime around it.
    pub fn new(access: &Access) -> anyhow::Result<ClientHost> {
        ClientHost::with_modes(access, access.modes.lists())
    }

    /// The same, with connection modes in place of those of `access`.
    pub fn with_modes(access: &Access, modes: ModeLists) -> anyhow::Result<ClientHost> {
        let mut random = system::os_random()?;
        let blank = EntityAddr { kind: wire::types::AddrKind::MSGR2, nonce: random.u32(), socket: None };
        let name = EntityName::new(EntityKind::CLIENT, -1);
        let mut config = messenger::Config::new(name, EntityAddrVec(vec![blank]));
        config.methods = access.methods();
        config.modes = modes;
        let endpoint = Endpoint::new(config, random.fork());
        let client = Client::new(access.client_config(), 0, random.fork());
        let mut host = ClientHost {
            started: Instant::now(),
            endpoint,
            client,
            sockets: BTreeMap::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_at: None,
            client_effects: Effects::new(),
            endpoint_effects: Effects::new(),
            dirty: Vec::new(),
            ready: Vec::new(),
            events: Vec::new(),
            own_addrs: BTreeSet::new(),
        };
        host.with(|(client, now, fx)| {
            client.set_wall_time(now, system::wall_clock());
            client.start(now, fx);
        });
        Ok(host)
    }

    pub fn now(&self) -> Time {
        Time(self.started.elapsed().as_nanos() as u64)
    }

    /// Lends the machine to the caller. Its messages are sent at the next turn.
    pub fn with<R>(&mut self, ask: impl FnOnce(Submit<'_>) -> R) -> R {
        let now = self.now();
        ask((&mut self.client, now, &mut self.client_effects))
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The addresses of this client as the daemons see it, of all sessions so far: one nonce, and an IP address for each interface
    /// that a session went through.
    pub fn own_addrs(&self) -> &BTreeSet<EntityAddr> {
        &self.own_addrs
    }

    /// Sends pending messages, waits for sockets or a deadline, and returns events, which may be none.
    pub async fn turn(&mut self) -> std::vec::Drain<'_, Event> {
        let an_hour = self.now() + Duration::from_secs(3600);
        self.turn_until(an_hour).await
    }

    /// The same, but returns at `until` at the latest.
    pub async fn turn_until(&mut self, until: Time) -> std::vec::Drain<'_, Event> {
        self.settle();
        if self.events.is_empty() {
            self.wait(until).await;
            self.read();
            self.settle();
        }
        self.events.drain(..)
    }

    /// Turns until there is a map.
    pub async fn connect(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let until = self.now() + timeout;
        let mut denied = None;
        while self.client.map().is_none() {
            anyhow::ensure!(self.now() < until, "{}", denied.unwrap_or_else(|| "no monitor answers".into()));
            let left = until.since(self.now());
            let told = tokio::time::timeout(left, self.turn()).await;
            let told: Vec<Event> = told.map(|events| events.collect()).unwrap_or_default();
            for event in told {
                if let Event::Denied(why) = event {
                    denied = Some(format!("the monitor does not let us in: {why}"));
                }
            }
        }
        Ok(())
    }

    /// One operation and its answer. Other events that come meanwhile are dropped.
    pub async fn operate(&mut self, operation: Operation) -> anyhow::Result<Reply> {
        let id = self.with(|(client, now, fx)| client.submit(now, operation, fx));
        loop {
            let answer = self.turn().await.find_map(|event| match event {
                Event::Done { id: done, outcome } if done == id => Some(outcome),
                _ => None,
            });
            if let Some(outcome) = answer {
                return Ok(outcome?);
            }
        }
    }

    /// One question to the monitors and its answer.
    pub async fn ask_monitor(&mut self, body: impl Into<Body>, timeout: Duration) -> anyhow::Result<Body> {
        let id = self.with(|(client, now, fx)| client.mon_request(now, body, Some(timeout), fx));
        loop {
            let answer = self.turn().await.find_map(|event| match event {
                Event::Answer { id: answered, answer } if answered == id => Some(answer),
                _ => None,
            });
            if let Some(answer) = answer {
                return answer.map_err(|_| anyhow::anyhow!("the monitor does not answer"));
            }
        }
    }

    /// The same, for a caller whose key may be wrong: fails as soon as monitors have refused it twice. They may learn of a new key
    /// one after the other.
    pub async fn ask_admitted(&mut self, body: impl Into<Body>, timeout: Duration) -> anyhow::Result<Body> {
        const REFUSALS_MAX: u32 = 2;
        let id = self.with(|(client, now, fx)| client.mon_request(now, body, Some(timeout), fx));
        let (mut refusals, mut why) = (0, None);
        loop {
            let events: Vec<Event> = self.turn().await.collect();
            for event in events {
                match event {
                    Event::Answer { id: answered, answer } if answered == id => {
                        let why = why.as_deref().unwrap_or("no monitor answers");
                        return answer.map_err(|_| anyhow::anyhow!("{why}"));
                    }
                    Event::Denied(said) => {
                        refusals += 1;
                        why = Some(format!("the monitor does not let us in: {said}"));
                    }
                    _ => {}
                }
            }
            if let Some(why) = why.as_deref().filter(|_| refusals >= REFUSALS_MAX) {
                return Err(NotAdmitted(why.to_owned()).into());
            }
        }
    }

    /// The options that the monitors' database has for `name`, a daemon on this host that is about to start.
    pub async fn options_of(
        &mut self,
        name: &AuthName,
        timeout: Duration,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let ask = MGetConfig { name: name.clone(), host: system::hostname(), device_class: String::new() };
        let id = self.with(|(client, now, fx)| client.mon_request(now, ask, Some(timeout), fx));
        let until = self.now() + timeout;
        let mut denied = None;
        while self.now() < until {
            let left = until.since(self.now());
            let Ok(events) = tokio::time::timeout(left, self.turn()).await else { break };
            for event in events {
                match event {
                    Event::Config(values) => return Ok(values),
                    Event::Denied(why) => denied = Some(format!("the monitor refuses {name}: {why}")),
                    Event::Answer { id: over, .. } if over == id => {}
                    _ => {}
                }
            }
        }
        anyhow::bail!("{}", denied.unwrap_or_else(|| "no monitor answers".into()))
    }

    /// Forgets an operation. It may still happen.
    pub fn cancel(&mut self, id: OpId) {
        self.client.cancel(id);
    }

    /// Runs both machines until neither has effects left, then writes.
    fn settle(&mut self) {
        let now = self.now();
        loop {
            for effect in self.client_effects.take() {
                match effect {
                    client::Effect::Net(effect) => {
                        self.endpoint.step(now, messenger::Input::Role(effect), &mut self.endpoint_effects);
                    }
                    client::Effect::Event(event) => {
                        if let Event::Connected { global_id } = event {
                            self.endpoint.set_name(EntityName::new(EntityKind::CLIENT, global_id as i64));
                        }
                        self.events.push(event);
                    }
                }
            }
            if self.endpoint_effects.is_empty() && self.write(now) {
                return;
            }
            for effect in self.endpoint_effects.take() {
                self.on_endpoint_effect(now, effect);
            }
        }
    }

    fn on_endpoint_effect(&mut self, now: Time, effect: messenger::Effect) {
        match effect {
            messenger::Effect::Open { socket, to } => drop(self.sockets.insert(socket, Socket::open(to))),
            messenger::Effect::Shut { socket } => drop(self.sockets.remove(&socket)),
            messenger::Effect::Reading { socket, on } => {
                if let Some(socket) = self.sockets.get_mut(&socket) {
                    socket.reading = on;
                }
            }
            messenger::Effect::Event(event) => self.on_net(now, event),
            messenger::Effect::Refused { .. } => {}
            messenger::Effect::Move { .. } => {
                unreachable!("only sessions that others open move between cores")
            }
        }
    }

    fn on_net(&mut self, now: Time, event: NetEvent) {
        if let NetEvent::Ready { conn, .. } = &event {
            self.own_addrs.extend(self.endpoint.addrs_seen_by(*conn).into_iter().flat_map(|addrs| addrs.0));
        }
        self.client.step(now, client::Input::Net(event), &mut self.client_effects);
    }

    /// Writes pending messages. False if that caused effects.
    fn write(&mut self, now: Time) -> bool {
        self.endpoint.take_dirty(&mut self.dirty);
        let mut quiet = true;
        for id in std::mem::take(&mut self.dirty) {
            let (Some(queue), Some(socket)) = (self.endpoint.outgoing(id), self.sockets.get_mut(&id)) else {
                continue;
            };
            match socket.write(queue) {
                Ok(()) if queue.is_empty() => {
                    self.endpoint.step(
                        now,
                        messenger::Input::Wrote { socket: id },
                        &mut self.endpoint_effects,
                    );
                }
                // The rest goes when the socket takes more.
                Ok(()) => {}
                Err(e) => self.on_broken(now, id, &e),
            }
            quiet &= self.endpoint_effects.is_empty();
        }
        quiet
    }

    fn on_broken(&mut self, now: Time, socket: SocketId, error: &std::io::Error) {
        self.sockets.remove(&socket);
        let input = messenger::Input::Broken { socket, why: error.to_string() };
        self.endpoint.step(now, input, &mut self.endpoint_effects);
    }

    /// Wait for sockets, the machines' next deadline or `until`; sockets that are ready are noted.
    async fn wait(&mut self, until: Time) {
        let deadline = Time::earliest(self.client.next_deadline(), self.endpoint.next_deadline());
        let wake_at = deadline.map_or(until, |at| at.min(until));
        if self.timer_at != Some(wake_at) {
            self.timer_at = Some(wake_at);
            self.timer.as_mut().reset((self.started + Duration::from_nanos(wake_at.0)).into());
        }
        let ClientHost { sockets, timer, ready, timer_at, .. } = self;
        poll_fn(|cx| {
            for (id, socket) in sockets.iter_mut() {
                if socket.poll_ready(cx) {
                    ready.push(*id);
                }
            }
            let timed_out = timer.as_mut().poll(cx).is_ready();
            if timed_out {
                *timer_at = None;
            }
            if timed_out || !ready.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn read(&mut self) {
        let now = self.now();
        for id in std::mem::take(&mut self.ready) {
            if let Err(e) = self.read_from(now, id) {
                self.on_broken(now, id, &e);
            }
        }
        if self.endpoint.next_deadline().is_some_and(|at| at <= now) {
            self.endpoint.step(now, messenger::Input::Deadline, &mut self.endpoint_effects);
        }
        if self.client.next_deadline().is_some_and(|at| at <= now) {
            self.client.step(now, client::Input::Deadline, &mut self.client_effects);
        }
    }

    fn read_from(&mut self, now: Time, id: SocketId) -> std::io::Result<()> {
        let Some(socket) = self.sockets.get_mut(&id) else { return Ok(()) };
        if socket.take_connected()? {
            self.endpoint.step(now, messenger::Input::Connected { socket: id }, &mut self.endpoint_effects);
        }
        if let Some(queue) = self.endpoint.outgoing(id).filter(|q| !q.is_empty()) {
            let socket = self.sockets.get_mut(&id).expect("looked up above");
            socket.write(queue)?;
            if queue.is_empty() {
                self.endpoint.step(now, messenger::Input::Wrote { socket: id }, &mut self.endpoint_effects);
            }
        }
        loop {
            let Some(socket) = self.sockets.get_mut(&id).filter(|s| s.reading) else { return Ok(()) };
            let input = match self.endpoint.read_plan(id) {
                ReadPlan::Nothing => return Ok(()),
                ReadPlan::Own(buffer, missing) => match socket.read_into(buffer, missing)? {
                    0 => return Ok(()),
                    _ => messenger::Input::Filled { socket: id },
                },
                ReadPlan::Shared => {
                    let mut bytes = self.endpoint.take_partial(id);
                    let n = socket.read_shared(&mut bytes)?;
                    if bytes.is_empty() {
                        return Ok(());
                    }
                    self.endpoint.step(
                        now,
                        messenger::Input::Received { socket: id, bytes },
                        &mut self.endpoint_effects,
                    );
                    if n == 0 {
                        return Ok(());
                    }
                    // What was read may have ended this socket.
                    for effect in self.endpoint_effects.take() {
                        self.on_endpoint_effect(now, effect);
                    }
                    continue;
                }
            };
            self.endpoint.step(now, input, &mut self.endpoint_effects);
            for effect in self.endpoint_effects.take() {
                self.on_endpoint_effect(now, effect);
            }
        }
    }
}
