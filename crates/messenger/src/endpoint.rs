//! All sessions of one core, as one machine.

use super::config::Config;
use super::inflow::Inflow;
use super::matching::peer_key;
use super::state::{Cx, Fault, Next, Session, Stage};
use super::ticket_clock::TicketClock;
use bytes::BytesMut;
use machine::net::{CloseReason, NetEffect, NetEvent, Policy};
use machine::{ConnId, CoreId, Effects, Machine, Random, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use wire::cephx::RotatingKeys;
use wire::frames::WriteQueue;
use wire::types::{EntityAddr, EntityAddrVec, EntityName};

/// One socket, for its life; never reused within a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SocketId(pub u64);

/// Events of sockets, and effects of the role. The host accepts with [`Endpoint::accept`].
#[derive(Debug)]
pub enum Input {
    /// [`Effect::Open`] succeeded.
    Connected {
        socket: SocketId,
    },
    /// Bytes from a socket, after what [`Endpoint::read_plan`] gave.
    Received {
        socket: SocketId,
        bytes: BytesMut,
    },
    /// The buffer of [`ReadPlan::Own`] got bytes.
    Filled {
        socket: SocketId,
    },
    /// Bytes of [`Endpoint::outgoing`] were written.
    Wrote {
        socket: SocketId,
    },
    /// The socket is closed, or could not be opened.
    Broken {
        socket: SocketId,
        why: String,
    },
    Role(NetEffect),
    Deadline,
}

#[derive(Debug)]
pub enum Effect {
    Open {
        socket: SocketId,
        to: SocketAddr,
    },
    /// Close it. Unwritten bytes are dropped.
    Shut {
        socket: SocketId,
    },
    /// Start or stop reading from this socket. Sockets are read from the start.
    Reading {
        socket: SocketId,
        on: bool,
    },
    Event(NetEvent),
    /// A caller was refused, or did not finish its handshake: for the host's log. The role does not hear of it.
    Refused {
        from: EntityAddr,
        why: CloseReason,
    },
    /// The session migrates to another core: hand over the socket and this, by [`Endpoint::receive_moved`].
    Move {
        socket: SocketId,
        to: CoreId,
        session: Box<Moved>,
    },
}

/// A session that migrates between two cores.
pub struct Moved(Session);

impl std::fmt::Debug for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Moved({})", self.0.peer.claimed)
    }
}

/// The destination of the next bytes from a socket.
#[derive(Debug)]
pub enum ReadPlan<'a> {
    /// Any buffer, best behind the bytes of [`Endpoint::take_partial`]; then [`Input::Received`].
    Shared,
    /// This buffer, at most so many bytes; then [`Input::Filled`].
    Own(&'a mut BytesMut, usize),
    /// None: the socket is unknown, or paused.
    Nothing,
}

/// See [`Endpoint::take_long`].
const LONG_QUEUE_LEN: usize = 256 << 10;

pub struct Endpoint {
    pub(super) config: Config,
    keys: RotatingKeys,
    ticket_clock: TicketClock,
    random: Random,
    global_seq: u64,
    sockets_made: u64,
    conns_made: u64,
    moves_made: u64,
    pub(super) sessions: BTreeMap<ConnId, Session>,
    pub(super) sockets: BTreeMap<SocketId, ConnId>,
    /// Lossless sessions by their peer's address.
    pub(super) by_peer: BTreeMap<EntityAddr, ConnId>,
    deadlines: BTreeSet<(Time, ConnId)>,
    /// Sockets with bytes to write, once each.
    dirty: Vec<SocketId>,
    /// The last of them whose queue became long.
    long: Option<SocketId>,
    inflow: Inflow,
}

impl Endpoint {
    pub fn new(config: Config, random: Random) -> Endpoint {
        let inflow = Inflow::new(config.held_len_max);
        Endpoint {
            config,
            keys: RotatingKeys::default(),
            ticket_clock: TicketClock::default(),
            random,
            global_seq: 0,
            sockets_made: 0,
            conns_made: 0,
            moves_made: 0,
            sessions: BTreeMap::new(),
            sockets: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            dirty: Vec::new(),
            long: None,
            inflow,
        }
    }

    /// Our addresses as the peer of this session sees them, once it has said so.
    pub fn addrs_seen_by(&self, conn: ConnId) -> Option<EntityAddrVec> {
        let session = self.sessions.get(&conn).filter(|session| session.peer_sees_us_as.is_some())?;
        Some(session.our_addrs(&self.config))
    }

    /// The host has accepted a socket. Its bytes come as [`Input::Received`] under the returned id.
    pub fn accept(&mut self, now: Time, from: SocketAddr, effects: &mut Effects<Effect>) -> SocketId {
        let socket = self.new_socket();
        let conn = self.new_conn();
        let mut cx = Cx {
            now,
            config: &self.config,
            keys: &self.keys,
            ticket_clock: &self.ticket_clock,
            random: &mut self.random,
            global_seq: &mut self.global_seq,
            inflow: &mut self.inflow,
            effects,
        };
        let session = Session::accepted(conn, socket, EntityAddr::msgr2(from, 0), &mut cx);
        self.sockets.insert(socket, conn);
        self.sessions.insert(conn, session);
        self.inflow.set_sessions(self.sessions.len());
        self.settle(conn, None);
        socket
    }

    /// The core on which the next session will live, round robin; `None` for this core.
    pub(super) fn next_home(&mut self) -> Option<CoreId> {
        self.moves_made += 1;
        let home = CoreId((self.moves_made % self.config.core_count.max(1) as u64) as u16);
        (home != self.config.core).then_some(home)
    }

    pub(super) fn move_away(&mut self, conn: ConnId, to: CoreId, effects: &mut Effects<Effect>) {
        let Some(mut session) = self.forget(conn) else { return };
        let Some(t) = &mut session.transport else { return };
        t.dirty = false;
        let socket = t.socket;
        effects.push(Effect::Move { socket, to, session: Box::new(Moved(session)) });
    }

    /// Take a session that migrated here, under new ids. Its handshake is finished.
    pub fn receive_moved(&mut self, now: Time, moved: Moved, effects: &mut Effects<Effect>) -> SocketId {
        let Moved(mut session) = moved;
        let (conn, socket) = (self.new_conn(), self.new_socket());
        session.conn = conn;
        session.filed_deadline = None;
        if let Some(t) = &mut session.transport {
            t.socket = socket;
        }
        self.sockets.insert(socket, conn);
        self.sessions.insert(conn, session);
        self.inflow.set_sessions(self.sessions.len());
        self.with(now, conn, effects, |s, cx| s.send_server_ident(cx));
        self.on_bytes(now, conn, effects);
        socket
    }

    /// A monitor has assigned our number.
    pub fn set_name(&mut self, name: EntityName) {
        self.config.name = name;
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// The destination of the next bytes of this socket.
    pub fn read_plan(&mut self, socket: SocketId) -> ReadPlan<'_> {
        let session = self.sockets.get(&socket).and_then(|conn| self.sessions.get_mut(conn));
        let Some(session) = session.filter(|s| s.reading) else { return ReadPlan::Nothing };
        match session.transport.as_mut().map(|t| t.own_buffer()) {
            None => ReadPlan::Nothing,
            Some(Some((buffer, missing))) => ReadPlan::Own(buffer, missing),
            Some(None) => ReadPlan::Shared,
        }
    }

    /// Take the bytes of an unfinished small frame. A host that puts them in front of the next bytes saves a copy.
    pub fn take_partial(&mut self, socket: SocketId) -> BytesMut {
        let session = self.sockets.get(&socket).and_then(|conn| self.sessions.get_mut(conn));
        let transport = session.and_then(|s| s.transport.as_mut());
        transport.map_or_else(BytesMut::new, |t| t.take_partial())
    }

    /// Bytes to be written to this socket.
    pub fn outgoing(&mut self, socket: SocketId) -> Option<&mut WriteQueue> {
        let session = self.sessions.get_mut(self.sockets.get(&socket)?)?;
        session.transport.as_mut().map(|t| &mut t.out)
    }

    /// Take the sockets that got bytes to write since the last call.
    pub fn take_dirty(&mut self, into: &mut Vec<SocketId>) {
        into.append(&mut self.dirty);
    }

    /// Take a socket with a long queue, to be written before the end of the turn: the peer reads the beginning while the
    /// next replies are framed.
    pub fn take_long(&mut self) -> Option<SocketId> {
        self.long.take()
    }

    /// Once a turn: sessions under backpressure go on when there is memory for their requests.
    pub fn read_on(&mut self, now: Time, effects: &mut Effects<Effect>) {
        for conn in self.inflow.take_choked() {
            if let Some(session) = self.sessions.get_mut(&conn) {
                session.share.unchoke();
                self.on_bytes(now, conn, effects);
            }
        }
        if !self.inflow.is_waited_for() {
            return;
        }
        while let Some(conn) = self.inflow.call_next() {
            let Some(session) = self.sessions.get_mut(&conn) else { continue };
            session.share.call();
            let frame = session.share.frame();
            self.on_bytes(now, conn, effects);
            let is_stuck = |s: &Session| s.share.waits() && s.share.frame() == frame;
            if self.sessions.get(&conn).is_some_and(is_stuck) {
                return;
            }
        }
    }

    fn on_role(&mut self, now: Time, effect: NetEffect, effects: &mut Effects<Effect>) {
        match effect {
            NetEffect::Connect { conn, to, kind, policy, credentials } => {
                let key = peer_key(&to);
                let session = Session::opened(conn, to, kind, policy, *credentials);
                self.sessions.insert(conn, session);
                self.inflow.set_sessions(self.sessions.len());
                if policy != Policy::Lossy {
                    self.by_peer.insert(key, conn);
                }
                self.open(now, conn, effects);
            }
            NetEffect::Send { conn, message } => self.with(now, conn, effects, |s, cx| {
                s.send(message);
                s.wake(cx.now);
            }),
            NetEffect::AuthReply { conn, reply } => {
                let fault = self.try_with(now, conn, effects, |s, cx| s.on_auth_reply(*reply, cx));
                self.on_result(now, conn, fault, effects);
                self.on_bytes(now, conn, effects);
            }
            NetEffect::ServiceKeys(keys) => {
                self.ticket_clock.learn(now, &keys);
                self.keys = keys;
            }
            NetEffect::Renew { conn, credentials } => {
                self.with(now, conn, effects, |s, _| s.credentials = Some(*credentials));
            }
            NetEffect::Number(number) => self.config.name.num = number,
            NetEffect::HoldAtMost(len) => self.inflow.set_len_max(len),
            NetEffect::Close { conn } => self.close(conn, None, effects),
        }
    }

    fn open(&mut self, now: Time, conn: ConnId, effects: &mut Effects<Effect>) {
        let socket = self.new_socket();
        self.sockets.insert(socket, conn);
        self.with(now, conn, effects, |s, cx| s.open(socket, cx));
    }

    /// Process all received bytes of a session, and their consequences for other sessions.
    pub(super) fn on_bytes(&mut self, now: Time, conn: ConnId, effects: &mut Effects<Effect>) {
        loop {
            match self.try_with(now, conn, effects, |s, cx| s.on_bytes(cx)) {
                None => return,
                Some(Err(fault)) => return self.on_result(now, conn, Some(Err(fault)), effects),
                Some(Ok(Next::Go)) => break,
                Some(Ok(Next::Identified)) => self.on_identified(now, conn, effects),
                Some(Ok(Next::Returned(back))) => self.on_returned(now, conn, back, effects),
            }
        }
        self.with(now, conn, effects, |s, _| s.flush_ack());
    }

    fn on_result(
        &mut self,
        now: Time,
        conn: ConnId,
        result: Option<Result<(), Fault>>,
        effects: &mut Effects<Effect>,
    ) {
        let Some(Err(fault)) = result else { return };
        if let Some(Err(why)) = self.try_with(now, conn, effects, |s, cx| s.on_fault(fault, cx)) {
            self.close(conn, Some(why), effects);
        }
    }

    fn on_deadline(&mut self, now: Time, effects: &mut Effects<Effect>) {
        while let Some(&(at, conn)) = self.deadlines.first() {
            if at > now {
                return;
            }
            self.deadlines.pop_first();
            let Some(session) = self.sessions.get_mut(&conn) else { continue };
            session.deadline = None;
            match session.stage {
                Stage::Backoff => self.open(now, conn, effects),
                Stage::Standby => {}
                Stage::Ready => {
                    let judged = self.try_with(now, conn, effects, |s, cx| s.on_ready_deadline(cx));
                    self.on_result(now, conn, judged, effects);
                }
                _ => {
                    let why = match session.denied.take() {
                        Some(why) => CloseReason::Denied(why),
                        None => CloseReason::TimedOut,
                    };
                    self.on_result(now, conn, Some(Err(Fault(why))), effects);
                }
            }
        }
    }

    /// End a session, and report it if there is a reason.
    pub(super) fn close(&mut self, conn: ConnId, why: Option<CloseReason>, effects: &mut Effects<Effect>) {
        let Some(session) = self.forget(conn) else { return };
        if let Some(t) = &session.transport {
            effects.push(Effect::Shut { socket: t.socket });
        }
        let known = session.was_ready || session.was_announced || session.credentials.is_some();
        // A peer that the role itself has refused (the monitor) stands in the host's log like any other.
        if let Some(CloseReason::Denied(why)) = &why
            && session.was_announced
            && !session.was_ready
        {
            let why = CloseReason::Denied(why.clone());
            effects.push(Effect::Refused { from: session.peer.socket, why });
        }
        match why {
            Some(why) if known => effects.push(Effect::Event(NetEvent::Closed { conn, why })),
            Some(why) => effects.push(Effect::Refused { from: session.peer.socket, why }),
            None => {}
        }
    }

    /// Take a session out of every table. Its socket is not shut.
    pub(super) fn forget(&mut self, conn: ConnId) -> Option<Session> {
        let mut session = self.sessions.remove(&conn)?;
        self.inflow.forget(&mut session.share);
        self.inflow.set_sessions(self.sessions.len());
        if let Some(socket) = session.socket() {
            self.sockets.remove(&socket);
        }
        if let Some(at) = session.filed_deadline {
            self.deadlines.remove(&(at, conn));
        }
        let key = peer_key(&session.peer.addrs);
        if self.by_peer.get(&key) == Some(&conn) {
            self.by_peer.remove(&key);
        }
        Some(session)
    }

    /// Run `f` on a session, if it is there, and bring the tables up to date.
    pub(super) fn with(
        &mut self,
        now: Time,
        conn: ConnId,
        effects: &mut Effects<Effect>,
        f: impl FnOnce(&mut Session, &mut Cx<'_>),
    ) {
        self.try_with(now, conn, effects, f);
    }

    fn try_with<R>(
        &mut self,
        now: Time,
        conn: ConnId,
        effects: &mut Effects<Effect>,
        f: impl FnOnce(&mut Session, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let session = self.sessions.get_mut(&conn)?;
        let mut cx = Cx {
            now,
            config: &self.config,
            keys: &self.keys,
            ticket_clock: &self.ticket_clock,
            random: &mut self.random,
            global_seq: &mut self.global_seq,
            inflow: &mut self.inflow,
            effects,
        };
        let socket = session.socket();
        let out = f(session, &mut cx);
        session.update_reading(&mut cx);
        self.settle(conn, socket);
        Some(out)
    }

    /// After a session changed: its deadline is filed, its lost socket forgotten, its bytes noted for writing.
    fn settle(&mut self, conn: ConnId, had: Option<SocketId>) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if session.deadline != session.filed_deadline {
            if let Some(old) = session.filed_deadline {
                self.deadlines.remove(&(old, conn));
            }
            if let Some(new) = session.deadline {
                self.deadlines.insert((new, conn));
            }
            session.filed_deadline = session.deadline;
        }
        let unwritten =
            session.transport.as_ref().filter(|_| session.is_metered()).map_or(0, |t| t.out.len());
        self.inflow.note_unwritten(&mut session.share, unwritten);
        let has = session.socket();
        if let Some(lost) = had.filter(|_| had != has) {
            self.sockets.remove(&lost);
        }
        if let Some(t) = &mut session.transport
            && !t.out.is_empty()
            && session.stage != Stage::Opening
        {
            if t.out.len() >= LONG_QUEUE_LEN {
                self.long = Some(t.socket);
            }
            if !t.dirty {
                t.dirty = true;
                self.dirty.push(t.socket);
            }
        }
    }

    fn new_conn(&mut self) -> ConnId {
        self.conns_made += 1;
        ConnId::accepted_on(self.config.core, self.conns_made)
    }

    fn new_socket(&mut self) -> SocketId {
        self.sockets_made += 1;
        SocketId(self.sockets_made)
    }

    fn conn_of(&self, socket: SocketId) -> Option<ConnId> {
        self.sockets.get(&socket).copied()
    }
}

impl Machine for Endpoint {
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Time, input: Input, effects: &mut Effects<Effect>) {
        match input {
            Input::Role(effect) => self.on_role(now, effect, effects),
            Input::Received { socket, bytes } => {
                let Some(conn) = self.conn_of(socket) else { return };
                let taken = self.try_with(now, conn, effects, |s, cx| {
                    s.last_heard = cx.now;
                    s.transport.as_mut().map_or(Ok(()), |t| t.receive(bytes)).map_err(Fault::protocol)
                });
                match taken {
                    Some(Ok(())) => self.on_bytes(now, conn, effects),
                    failed => self.on_result(now, conn, failed, effects),
                }
            }
            Input::Filled { socket } => {
                let Some(conn) = self.conn_of(socket) else { return };
                self.with(now, conn, effects, |s, cx| s.last_heard = cx.now);
                self.on_bytes(now, conn, effects);
            }
            Input::Connected { socket } => {
                let Some(conn) = self.conn_of(socket) else { return };
                self.with(now, conn, effects, |s, _| s.on_connected());
            }
            Input::Wrote { socket } => {
                let Some(conn) = self.conn_of(socket) else { return };
                self.with(now, conn, effects, |s, _| {
                    if let Some(t) = &mut s.transport {
                        t.dirty = false;
                    }
                });
                if self.sessions.get(&conn).is_some_and(|s| s.has_more) {
                    self.on_bytes(now, conn, effects);
                }
            }
            Input::Broken { socket, why } => {
                let Some(conn) = self.conn_of(socket) else { return };
                let denied = self.sessions.get_mut(&conn).and_then(|s| s.denied.take());
                let why = denied.map_or(CloseReason::Broken(why), CloseReason::Denied);
                self.on_result(now, conn, Some(Err(Fault(why))), effects);
            }
            Input::Deadline => self.on_deadline(now, effects),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn check(&self) {
        for (socket, conn) in &self.sockets {
            let session = self.sessions.get(conn).expect("a socket belongs to a session");
            assert_eq!(session.socket(), Some(*socket), "a session knows its socket");
        }
        for (conn, session) in &self.sessions {
            assert_eq!(session.conn, *conn);
            assert_eq!(session.deadline, session.filed_deadline, "deadlines are filed");
            if let Some(socket) = session.socket() {
                assert_eq!(self.sockets.get(&socket), Some(conn), "a socket is known to the table");
            }
            if session.is_lossy() {
                assert!(session.sent.is_empty(), "a lossy session keeps nothing");
            }
        }
        self.inflow.check(self.sessions.values().map(|s| &s.share));
        for conn in self.by_peer.values() {
            assert!(self.sessions.contains_key(conn), "a peer is filed under a session that lives");
        }
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.sessions.iter().for_each(|(conn, session)| see("session", conn.0, session.stage.name()));
    }
}
