//! The loop of one core. One turn: read ready sockets and mail, step the machines, carry out their effects, write.

use crate::counters::Counters;
use crate::idle::IdlePoll;
use crate::mail::{Mail, Mailbox};
use crate::pool::{Pool, READ_LEN};
use crate::refusals::Refusals;
use crate::role::{Role, Turn, time_since};
use crate::single_caller::SingleCaller;
use crate::socket::{ReadOutcome, Socket};
use machine::net::{NetEffect, NetEvent};
use machine::{CoreId, Effects, Machine, Random, Time};
use messenger::{Config, Effect, Endpoint, Input, ReadPlan, SocketId};
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const WAKE: Token = Token(usize::MAX);
/// Tokens from here on are listeners; smaller ones are sockets.
const FIRST_LISTENER: usize = usize::MAX - 1024;

/// Bytes read from one socket before the others of the turn are read.
const TURN_LEN_MAX: usize = 1 << 20;
const EVENTS_MAX: usize = 256;
/// Send buffer of a socket (the kernel counts double, for its own overhead). The kernel's default grows to 4 MiB: a large
/// reply then leaves the processor's caches before it is sent, which costs both ends a third more. This size is enough
/// for 25 Gbit/s over 0.3 ms.
const SEND_BUFFER_LEN: usize = 512 << 10;
/// Pause of accepting when the process is out of file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(200);

pub(crate) struct Reactor<R: Role> {
    poll: Poll,
    started: Instant,
    idle: IdlePoll,
    single_caller: SingleCaller,
    now: Time,
    listeners: Vec<TcpListener>,
    /// Accepting is paused until then; the listeners may have more.
    accept_again: Option<Time>,
    endpoint: Endpoint,
    effects: Effects<Effect>,
    role: R,
    turn: Turn<R::Hop>,
    sockets: HashMap<SocketId, Socket>,
    pool: Pool,
    /// Sockets with unread bytes.
    again: Vec<SocketId>,
    dirty: Vec<SocketId>,
    mailboxes: Vec<Mailbox<R::Hop>>,
    outboxes: Vec<Vec<Mail<R::Hop>>>,
    inbox: Vec<Mail<R::Hop>>,
    counters: Arc<Counters>,
    refusals: Refusals,
}

impl<R: Role> Reactor<R> {
    pub fn new(
        poll: Poll,
        listeners: Vec<std::net::TcpListener>,
        config: Config,
        random: Random,
        role: R,
        mailboxes: Vec<Mailbox<R::Hop>>,
        counters: Arc<Counters>,
        idle_poll: Duration,
        started: Instant,
    ) -> io::Result<Reactor<R>> {
        let mut registered = Vec::new();
        for (i, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            let mut listener = TcpListener::from_std(listener);
            poll.registry().register(&mut listener, Token(FIRST_LISTENER + i), Interest::READABLE)?;
            registered.push(listener);
        }
        let turn = Turn {
            now: Time::ZERO,
            started,
            core: config.core,
            core_count: config.core_count,
            net: Vec::new(),
            hops: Vec::new(),
            is_caller_alone: false,
            stop: false,
            counters: counters.clone(),
        };
        Ok(Reactor {
            poll,
            started,
            idle: IdlePoll::new(idle_poll),
            single_caller: SingleCaller::default(),
            now: Time::ZERO,
            listeners: registered,
            accept_again: None,
            endpoint: Endpoint::new(config, random),
            effects: Effects::new(),
            role,
            turn,
            sockets: HashMap::new(),
            pool: Pool::default(),
            again: Vec::new(),
            dirty: Vec::new(),
            outboxes: mailboxes.iter().map(|_| Vec::new()).collect(),
            mailboxes,
            inbox: Vec::new(),
            counters,
            refusals: Refusals::default(),
        })
    }

    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.tick();
        self.role.on_start(&mut self.turn);
        let wakes = self.role.wakes();
        for wake in &wakes {
            // Edge-triggered: the eventfd need not be read.
            let fd = wake.as_fd().as_raw_fd();
            self.poll.registry().register(&mut SourceFd(&fd), WAKE, Interest::READABLE)?;
        }
        self.settle();
        self.write_all();
        while !self.turn.stop {
            self.tick();
            self.role.on_sent(&mut self.turn);
            let waits_since = self.now;
            match self.wait(&mut events) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            self.tick();
            let waited = self.now.since(waits_since);
            self.counters.turns.add(1);
            let messages_before = self.counters.messages_in.get();
            for event in &events {
                match event.token() {
                    WAKE => {}
                    Token(n) if n >= FIRST_LISTENER => self.accept(n - FIRST_LISTENER),
                    Token(n) => self.on_ready(SocketId(n as u64), event),
                }
            }
            for socket in std::mem::take(&mut self.again) {
                self.read(socket);
            }
            let mails = self.read_mail();
            self.pass_deadlines();
            let messages = self.counters.messages_in.get() - messages_before;
            self.single_caller.on_turn(waited, messages + mails);
            self.turn.is_caller_alone = self.single_caller.is_proven();
            self.role.on_turn_end(&mut self.turn);
            self.settle();
            self.endpoint.read_on(self.now, &mut self.effects);
            self.settle();
            self.send_mail();
            self.write_all();
            let messages = self.counters.messages_in.get() - messages_before;
            self.idle.on_turn(waited, messages);
        }
        self.role.on_stop(&mut self.turn);
        self.settle();
        self.send_mail();
        self.write_all();
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let patience = self.patience();
        if self.idle.is_worthwhile() && patience != Some(Duration::ZERO) {
            let (poll, role) = (&mut self.poll, &self.role);
            events.clear();
            let found = self.idle.poll(patience, || {
                if role.has_news() {
                    return Ok(true);
                }
                poll.poll(events, Some(Duration::ZERO)).map(|()| !events.is_empty())
            })?;
            if found {
                self.counters.turns_polled.add(1);
                return Ok(());
            }
        }
        self.poll.poll(events, patience)
    }

    fn tick(&mut self) {
        self.now = time_since(self.started);
        self.turn.now = self.now;
    }

    /// Longest sleep until the next deadline; zero while there is work.
    fn patience(&self) -> Option<Duration> {
        if !self.again.is_empty() || self.role.has_news() {
            self.counters.turns_busy.add(1);
            return Some(Duration::ZERO);
        }
        let next = Time::earliest(self.endpoint.next_deadline(), self.role.next_deadline());
        Time::earliest(next, self.accept_again).map(|at| at.since(self.now))
    }

    fn pass_deadlines(&mut self) {
        if self.endpoint.next_deadline().is_some_and(|at| at <= self.now) {
            self.step(Input::Deadline);
        }
        if self.role.next_deadline().is_some_and(|at| at <= self.now) {
            self.role.on_deadline(&mut self.turn);
            self.settle();
        }
        if self.accept_again.is_some_and(|at| at <= self.now) {
            self.accept_again = None;
            (0..self.listeners.len()).for_each(|i| self.accept(i));
        }
    }

    // ---- sockets

    fn accept(&mut self, listener: usize) {
        loop {
            match self.listeners[listener].accept() {
                Ok((stream, from)) => {
                    self.counters.accepted.add(1);
                    let socket = self.endpoint.accept(self.now, from, &mut self.effects);
                    self.adopt(socket, stream, true);
                    self.settle();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    // Waiting connections stay in the listener's queue until others close.
                    self.counters.accepts_failed.add(1);
                    if self.accept_again.is_none() {
                        tracing::warn!(
                            "out of file descriptors: new connections wait; raise the limit on open files"
                        );
                    }
                    self.accept_again = Some(self.now + ACCEPT_REST);
                    return;
                }
                // The client gave up before it was accepted.
                Err(_) => {}
            }
        }
    }

    fn adopt(&mut self, id: SocketId, mut stream: TcpStream, connected: bool) {
        let both = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(&mut stream, Token(id.0 as usize), both);
        // The system may grant less.
        let _ = socket2::SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_LEN);
        if let Err(error) = registered.and_then(|()| stream.set_nodelay(true)) {
            return self.step(Input::Broken { socket: id, why: error.to_string() });
        }
        self.sockets.insert(id, Socket::new(stream, connected));
    }

    fn open(&mut self, id: SocketId, to: std::net::SocketAddr) {
        match TcpStream::connect(to) {
            Ok(stream) => self.adopt(id, stream, false),
            Err(error) => self.step(Input::Broken { socket: id, why: error.to_string() }),
        }
    }

    fn on_ready(&mut self, id: SocketId, event: &mio::event::Event) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if !socket.connected && event.is_writable() {
            match socket.stream.take_error().map(|e| e.map_or_else(|| socket.stream.peer_addr().err(), Some))
            {
                Ok(None) => {
                    socket.connected = true;
                    self.step(Input::Connected { socket: id });
                }
                Ok(Some(e)) if e.kind() == io::ErrorKind::NotConnected => return,
                Ok(Some(error)) | Err(error) => return self.break_off(id, error.to_string()),
            }
        }
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if socket.full && event.is_writable() {
            socket.full = false;
            self.dirty.push(id);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            // After a short read the socket is empty. Its end is not signalled again, so that is read, too.
            self.read_until(id, event.is_read_closed() || event.is_error());
        }
    }

    fn read(&mut self, id: SocketId) {
        self.read_until(id, true);
    }

    fn read_until(&mut self, id: SocketId, to_the_end: bool) {
        let mut taken = 0;
        loop {
            let Some(socket) = self.sockets.get_mut(&id) else { return };
            socket.readable = true;
            if taken >= TURN_LEN_MAX {
                return self.again.push(id);
            }
            self.counters.reads.add(1);
            let outcome = match self.endpoint.read_plan(id) {
                ReadPlan::Nothing => return,
                ReadPlan::Own(buffer, missing) => {
                    let outcome = socket.read(buffer, missing);
                    if let Ok(ReadOutcome::Full(n) | ReadOutcome::Drained(n)) = outcome
                        && n > 0
                    {
                        taken += n;
                        self.step(Input::Filled { socket: id });
                    }
                    outcome
                }
                ReadPlan::Shared => {
                    let partial = self.endpoint.take_partial(id);
                    let outcome = socket.read(self.pool.room(&partial), READ_LEN);
                    let bytes = self.pool.take();
                    if !bytes.is_empty() {
                        taken += bytes.len() - partial.len();
                        self.step(Input::Received { socket: id, bytes });
                    }
                    outcome
                }
            };
            match outcome {
                Ok(ReadOutcome::Full(n)) => self.counters.read_bytes.add(n as u64),
                Ok(ReadOutcome::Drained(n)) => {
                    self.counters.read_bytes.add(n as u64);
                    if n == 0 || !to_the_end {
                        if let Some(socket) = self.sockets.get_mut(&id) {
                            socket.readable = false;
                        }
                        return;
                    }
                }
                Ok(ReadOutcome::Closed) => return self.break_off(id, "closed by the peer".into()),
                Err(error) => return self.break_off(id, error.to_string()),
            }
        }
    }

    /// Drops a broken socket and tells its session.
    fn break_off(&mut self, id: SocketId, why: String) {
        self.drop_socket(id);
        self.step(Input::Broken { socket: id, why });
    }

    fn drop_socket(&mut self, id: SocketId) -> Option<TcpStream> {
        let mut socket = self.sockets.remove(&id)?;
        if let Err(error) = self.poll.registry().deregister(&mut socket.stream) {
            tracing::debug!("cannot deregister a socket: {error}");
        }
        Some(socket.stream)
    }

    fn write_all(&mut self) {
        self.endpoint.take_dirty(&mut self.dirty);
        while let Some(id) = self.dirty.pop() {
            self.write(id);
            if self.dirty.is_empty() {
                self.endpoint.take_dirty(&mut self.dirty);
            }
        }
    }

    fn write(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(&id).filter(|s| s.connected && !s.full) else { return };
        let Some(queue) = self.endpoint.outgoing(id) else { return };
        match socket.write(queue) {
            Ok((bytes, calls)) => {
                self.counters.write_bytes.add(bytes as u64);
                self.counters.writes.add(calls as u64);
                if queue.is_empty() {
                    self.step(Input::Wrote { socket: id });
                } else {
                    self.counters.writes_short.add(1);
                }
            }
            Err(error) => self.break_off(id, error.to_string()),
        }
    }

    /// Begins to write a long queue at once. Errors are left for the end of the turn: this may run in the middle of a batch
    /// of effects.
    fn write_long(&mut self) {
        let Some(id) = self.endpoint.take_long() else { return };
        let Some(socket) = self.sockets.get_mut(&id).filter(|s| s.connected) else { return };
        let Some(queue) = self.endpoint.outgoing(id) else { return };
        if let Ok((bytes, calls)) = socket.write(queue) {
            self.counters.write_bytes.add(bytes as u64);
            self.counters.writes.add(calls as u64);
            if queue.is_empty() {
                // The endpoint is told at the end of the turn.
                socket.full = false;
                self.dirty.push(id);
            }
        }
    }

    // ---- machines

    fn step(&mut self, input: Input) {
        self.endpoint.step(self.now, input, &mut self.effects);
        self.settle();
    }

    /// Carries out effects of the endpoint and the role until there are none.
    fn settle(&mut self) {
        loop {
            self.take_role_effects();
            if self.effects.is_empty() {
                return;
            }
            let mut batch = std::mem::take(&mut self.effects);
            for effect in batch.drain() {
                self.perform(effect);
            }
            // Reuse the allocation, unless effects were added meanwhile.
            if self.effects.is_empty() {
                self.effects = batch;
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Event(event) => {
                if matches!(event, NetEvent::Message { .. }) {
                    self.counters.messages_in.add(1);
                }
                self.role.on_net(event, &mut self.turn);
                self.take_role_effects();
            }
            Effect::Refused { from, why } => {
                self.counters.refused.add(1);
                self.refusals.note(self.now, from, &why);
            }
            Effect::Open { socket, to } => self.open(socket, to),
            Effect::Shut { socket } => {
                self.drop_socket(socket);
            }
            Effect::Reading { socket, on } => {
                if on && self.sockets.get(&socket).is_some_and(|s| s.readable) {
                    self.again.push(socket);
                }
            }
            Effect::Move { socket, to, session } => {
                if let Some(stream) = self.drop_socket(socket) {
                    self.mail(to, Mail::Moved { stream: stream.into(), session });
                }
            }
        }
    }

    fn take_role_effects(&mut self) {
        if !self.turn.net.is_empty() {
            let mut net = std::mem::take(&mut self.turn.net);
            for effect in net.drain(..) {
                self.on_role_effect(effect);
                self.write_long();
            }
            self.turn.net = net;
        }
        if !self.turn.hops.is_empty() {
            let mut hops = std::mem::take(&mut self.turn.hops);
            for (to, hop) in hops.drain(..) {
                self.mail(to, Mail::Hop(hop));
            }
            self.turn.hops = hops;
        }
    }

    fn on_role_effect(&mut self, effect: NetEffect) {
        let home = effect.core(self.turn.core);
        if home == self.turn.core {
            self.endpoint.step(self.now, Input::Role(effect), &mut self.effects);
        } else {
            self.mail(home, Mail::Net(effect));
        }
    }

    // ---- other cores

    fn mail(&mut self, to: CoreId, mail: Mail<R::Hop>) {
        self.counters.hops.add(1);
        match self.outboxes.get_mut(to.0 as usize) {
            Some(outbox) => outbox.push(mail),
            None => tracing::error!("dropped mail for core {}, which does not exist", to.0),
        }
    }

    fn send_mail(&mut self) {
        for (outbox, mailbox) in self.outboxes.iter_mut().zip(&self.mailboxes) {
            if !outbox.is_empty() && mailbox.post_all(outbox) {
                self.counters.hop_wakes.add(1);
            }
        }
    }

    /// Handles all mail and returns the number of messages.
    fn read_mail(&mut self) -> u64 {
        let mut inbox = std::mem::take(&mut self.inbox);
        self.mailboxes[self.turn.core.0 as usize].take_all(&mut inbox);
        let mails = inbox.len() as u64;
        for mail in inbox.drain(..) {
            match mail {
                Mail::Hop(hop) => {
                    self.role.on_hop(hop, &mut self.turn);
                    self.settle();
                }
                Mail::Net(effect) => self.step(Input::Role(effect)),
                Mail::Moved { stream, session } => {
                    let socket = self.endpoint.receive_moved(self.now, *session, &mut self.effects);
                    self.adopt(socket, TcpStream::from_std(stream), true);
                    self.settle();
                }
                Mail::Stop => self.turn.stop = true,
            }
        }
        self.inbox = inbox;
        mails
    }
}
