//! One session: its state, how it sends, and what happens when its socket breaks.

use super::config::Config;
use super::endpoint::{Effect, SocketId};
use super::inflow::{Inflow, Share};
use super::ticket_clock::TicketClock;
use super::transport::Transport;
use codec::Features;
use machine::identity::{ClaimedName, Identity, Impostor, Proof};
use machine::net::{CloseReason, Credentials, NetEvent, Peer, Policy};
use machine::{ConnId, Effects, Random, Time};
use std::collections::VecDeque;
use wire::cephx::{Authorizer, Key, RotatingKeys};
use wire::frames::{Control, MessageHeader, Side};
use wire::messages::Message;
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, EntityName};

/// The parts of the endpoint that a session's handlers use.
pub(super) struct Cx<'a> {
    pub now: Time,
    pub config: &'a Config,
    pub keys: &'a RotatingKeys,
    pub ticket_clock: &'a TicketClock,
    pub random: &'a mut Random,
    /// Counts the connections that this endpoint opened or accepted, to tell a stale attempt from a new one.
    pub global_seq: &'a mut u64,
    pub inflow: &'a mut Inflow,
    pub effects: &'a mut Effects<Effect>,
}

impl Cx<'_> {
    pub fn event(&mut self, event: NetEvent) {
        self.effects.push(Effect::Event(event));
    }

    /// The next number, and not below `at_least`.
    pub fn next_global_seq(&mut self, at_least: u64) -> u64 {
        *self.global_seq = (*self.global_seq + 1).max(at_least);
        *self.global_seq
    }

    /// Tells two sessions of one peer apart. Zero means "none".
    pub fn cookie(&mut self) -> u64 {
        self.random.u64().max(1)
    }
}

/// The next event that a session waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The host is connecting a socket.
    Opening,
    /// Banner and HELLO.
    Hello,
    /// The answer to our AUTH_REQUEST or AUTH_REQUEST_MORE.
    AuthConnecting,
    /// The peer's AUTH_REQUEST, or (`more`) its AUTH_REQUEST_MORE.
    AuthAccepting {
        more: bool,
    },
    /// The role's answer to [`NetEvent::Auth`].
    Judging,
    /// The peer's signature, which must be this.
    Signing {
        expected: [u8; 32],
    },
    /// The answer to our CLIENT_IDENT.
    IdentConnecting,
    /// The answer to our SESSION_RECONNECT.
    Reconnecting,
    /// The peer's CLIENT_IDENT or SESSION_RECONNECT.
    IdentAccepting,
    Ready,
    /// Lossless, without a socket: a message to send, or the peer's reconnect.
    Standby,
    /// Lossless, without a socket: the end of the backoff.
    Backoff,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::Opening => "opening",
            Stage::Hello => "hello",
            Stage::AuthConnecting => "authenticating to peer",
            Stage::AuthAccepting { .. } => "authenticating peer",
            Stage::Judging => "judging",
            Stage::Signing { .. } => "signing",
            Stage::IdentConnecting => "identifying to peer",
            Stage::Reconnecting => "reconnecting",
            Stage::IdentAccepting => "identifying peer",
            Stage::Ready => "ready",
            Stage::Standby => "standby",
            Stage::Backoff => "backoff",
        }
    }
}

/// The reason to give up a socket.
#[derive(Clone, Debug)]
pub(super) struct Fault(pub CloseReason);

impl Fault {
    pub fn protocol(why: impl Into<String>) -> Fault {
        Fault(CloseReason::Protocol(why.into()))
    }

    pub fn denied(why: impl Into<String>) -> Fault {
        Fault(CloseReason::Denied(why.into()))
    }
}

impl From<Impostor> for Fault {
    fn from(impostor: Impostor) -> Fault {
        Fault::denied(impostor.to_string())
    }
}

/// Decisions of the endpoint, which knows the other sessions.
#[derive(Debug)]
pub(super) enum Next {
    Go,
    /// CLIENT_IDENT came and is acceptable.
    Identified,
    /// SESSION_RECONNECT came.
    Returned(Return),
}

#[derive(Debug)]
pub(super) struct Return {
    pub addrs: EntityAddrVec,
    pub client_cookie: u64,
    pub server_cookie: u64,
    pub global_seq: u64,
    pub connect_seq: u64,
    pub message_seq: u64,
}

/// Results of the handshake so far.
#[derive(Default)]
pub(super) struct Handshake {
    pub method: u32,
    pub mode: u32,
    /// Connecting with a ticket.
    pub authorizer: Option<Authorizer>,
    /// Accepting: the number that the authorizer must answer.
    pub challenge: Option<u64>,
    pub session_key: Option<Key>,
    /// Accepting: the name that authentication proved. The session's identity once IDENT has completed the claim.
    pub proof: Option<Proof>,
}

/// The progress of a large frame: see [`super::Config::frame_window`].
pub(super) struct FrameWatch {
    frame: u64,
    /// Bytes of the frame that had come, and of our answers that had gone, when the window began.
    moved: u64,
    until: Time,
}

pub(super) struct Session {
    pub conn: ConnId,
    pub policy: Policy,
    pub stage: Stage,
    pub transport: Option<Transport>,
    pub handshake: Handshake,
    /// The peer to call, where the session is ours to open.
    pub target: Option<(EntityAddrVec, EntityKind)>,
    pub credentials: Option<Credentials>,
    /// As the peer calls itself, from HELLO (kind) and IDENT (number). Only the handshake looks at it, where nothing is
    /// proved yet; `peer.identity` decides afterwards.
    pub claim: EntityName,
    pub peer: Peer,
    /// From its HELLO.
    pub peer_sees_us_as: Option<EntityAddr>,
    /// The address of ours that the peer called.
    pub called_at: Option<EntityAddr>,
    /// The reason why authentication failed, for the log if the peer does not try again.
    pub denied: Option<String>,

    pub client_cookie: u64,
    pub server_cookie: u64,
    /// The number of our latest attempt to connect.
    pub global_seq: u64,
    pub peer_global_seq: u64,
    /// Counts the sockets of this session.
    pub connect_seq: u64,
    pub in_seq: u64,
    pub out_seq: u64,
    /// The peer has not been told of `in_seq` yet.
    pub ack_due: bool,
    /// Messages that wait for the session to be ready.
    pub unsent: VecDeque<Message>,
    /// Sent and not acknowledged, by sequence number: empty when lossy.
    pub sent: VecDeque<(u64, Message)>,

    pub was_ready: bool,
    pub backoff: std::time::Duration,
    /// The role has heard of this session before it was ready.
    pub was_announced: bool,
    pub deadline: Option<Time>,
    /// As the endpoint's table has it.
    pub filed_deadline: Option<Time>,
    pub last_heard: Time,
    pub share: Share,
    /// The progress of a large frame, while it holds a part of the memory budget.
    pub frame_watch: Option<FrameWatch>,
    /// Received bytes are left unprocessed, because the peer does not fetch its replies.
    pub has_more: bool,
    /// The last [`Effect::Reading`] sent to the host.
    pub reading: bool,
}

impl Session {
    pub fn accepted(conn: ConnId, socket: SocketId, from: EntityAddr, cx: &mut Cx<'_>) -> Session {
        let transport = Transport::new(socket, Side::Accepting);
        let mut session =
            Session::new(conn, cx.config.accept_policy_default, Stage::Hello, EntityKind(0), from);
        session.transport = Some(transport);
        session.deadline = Some(cx.now + cx.config.handshake_timeout);
        session.last_heard = cx.now;
        session
    }

    pub fn opened(
        conn: ConnId,
        to: EntityAddrVec,
        kind: EntityKind,
        policy: Policy,
        credentials: Credentials,
    ) -> Session {
        let socket = to.msgr2().unwrap_or_default();
        let mut session = Session::new(conn, policy, Stage::Backoff, kind, socket);
        session.peer.addrs = to.clone();
        session.target = Some((to, kind));
        session.credentials = Some(credentials);
        session
    }

    fn new(conn: ConnId, policy: Policy, stage: Stage, kind: EntityKind, socket: EntityAddr) -> Session {
        Session {
            conn,
            policy,
            stage,
            transport: None,
            handshake: Handshake::default(),
            target: None,
            credentials: None,
            claim: EntityName::new(kind, -1),
            peer: Peer {
                identity: Identity::unknown(),
                claimed: ClaimedName::new(EntityName::new(kind, -1)),
                addrs: EntityAddrVec::default(),
                socket,
                features: Features::NONE,
                secure: false,
            },
            peer_sees_us_as: None,
            called_at: None,
            denied: None,
            client_cookie: 0,
            server_cookie: 0,
            global_seq: 0,
            peer_global_seq: 0,
            connect_seq: 0,
            in_seq: 0,
            out_seq: 0,
            ack_due: false,
            unsent: VecDeque::new(),
            sent: VecDeque::new(),
            was_ready: false,
            was_announced: false,
            backoff: std::time::Duration::ZERO,
            deadline: None,
            filed_deadline: None,
            last_heard: Time::ZERO,
            share: Share::default(),
            frame_watch: None,
            has_more: false,
            reading: true,
        }
    }

    pub fn is_lossy(&self) -> bool {
        self.policy == Policy::Lossy
    }

    pub fn socket(&self) -> Option<SocketId> {
        self.transport.as_ref().map(|t| t.socket)
    }

    /// Send a control frame; nothing when there is no socket.
    pub fn control(&mut self, frame: Control) {
        if let Some(t) = &mut self.transport {
            t.control(&frame);
        }
    }

    pub fn send(&mut self, message: Message) {
        if self.stage == Stage::Ready {
            self.write_next(message);
        } else {
            self.unsent.push_back(message);
        }
    }

    /// The session is ready (again): replay unacknowledged messages, then send the waiting ones.
    pub fn write_queued(&mut self) {
        let again = std::mem::take(&mut self.sent);
        for (seq, message) in again {
            self.write(seq, &message);
            self.sent.push_back((seq, message));
        }
        for message in std::mem::take(&mut self.unsent) {
            self.write_next(message);
        }
    }

    /// The session starts over with new sequence numbers: unacknowledged messages wait to be sent again.
    pub fn renumber(&mut self) {
        for (_, message) in std::mem::take(&mut self.sent).into_iter().rev() {
            self.unsent.push_front(message);
        }
        self.out_seq = 0;
    }

    pub fn on_acknowledged(&mut self, seq: u64) {
        while self.sent.front().is_some_and(|(s, _)| *s <= seq) {
            self.sent.pop_front();
        }
    }

    fn write_next(&mut self, message: Message) {
        self.out_seq += 1;
        let seq = self.out_seq;
        self.write(seq, &message);
        if !self.is_lossy() {
            self.sent.push_back((seq, message));
        }
    }

    fn write(&mut self, seq: u64, message: &Message) {
        let Some(t) = &mut self.transport else { return };
        let (header, out) = message.encode(self.peer.features);
        let header = MessageHeader { seq, ack_seq: self.in_seq, data_offset: out.data_offset, header };
        self.ack_due = false;
        t.message(&header, out.front.into_vec(), out.middle, out.data);
    }

    /// After a batch of input: acknowledge it, unless a message of ours has done so.
    pub fn flush_ack(&mut self) {
        if self.ack_due && self.stage == Stage::Ready {
            self.ack_due = false;
            self.control(Control::Ack { seq: self.in_seq });
        }
    }

    pub fn ready(&mut self, cx: &mut Cx<'_>) {
        self.stage = Stage::Ready;
        self.handshake = Handshake::default();
        // An earlier attempt on this socket may have failed.
        self.denied = None;
        self.backoff = std::time::Duration::ZERO;
        self.deadline = self.is_lossy().then(|| cx.now + cx.config.idle_timeout);
        if !self.was_ready {
            self.was_ready = true;
            cx.event(NetEvent::Ready { conn: self.conn, peer: Box::new(self.peer.clone()) });
        }
        self.write_queued();
    }

    /// Have the host connect a socket, as a new attempt.
    pub fn open(&mut self, socket: SocketId, cx: &mut Cx<'_>) {
        let to = self.target.as_ref().and_then(|(to, _)| to.msgr2()).and_then(|a| a.socket);
        self.global_seq = cx.next_global_seq(0);
        self.stage = Stage::Opening;
        self.deadline = Some(cx.now + cx.config.handshake_timeout);
        self.handshake = Handshake::default();
        self.reading = true;
        self.transport = Some(Transport::new(socket, Side::Connecting));
        match to {
            Some(to) => cx.effects.push(Effect::Open { socket, to }),
            // Never connects; the deadline says so.
            None => self.deadline = Some(cx.now),
        }
    }

    /// The socket is gone, or is to go. `Err` when the session ends with it.
    pub fn on_fault(&mut self, fault: Fault, cx: &mut Cx<'_>) -> Result<(), CloseReason> {
        let was_handshake = self.stage != Stage::Ready;
        self.drop_transport(cx);
        let final_word = matches!(fault.0, CloseReason::Denied(_) | CloseReason::Reset);
        let has_state = self.was_ready || self.target.is_some();
        if self.is_lossy() || final_word || !has_state {
            return Err(fault.0);
        }
        let may_call = self.target.is_some() && self.policy != Policy::LosslessServer;
        if !may_call {
            self.stage = Stage::Standby;
            self.deadline = None;
            return Ok(());
        }
        let wait = if was_handshake { self.next_backoff(cx) } else { std::time::Duration::ZERO };
        self.call_again_at(cx.now + wait);
        Ok(())
    }

    /// The peer told us to wait for its own connection. If that never comes, try again much later.
    pub fn on_wait(&mut self, cx: &mut Cx<'_>) {
        self.drop_transport(cx);
        self.backoff = cx.config.backoff_max;
        self.call_again_at(cx.now + cx.config.backoff_max);
    }

    /// A message is to be sent: leave standby.
    pub fn wake(&mut self, now: Time) {
        if self.stage == Stage::Standby && self.target.is_some() && self.policy != Policy::LosslessServer {
            self.call_again_at(now);
        }
    }

    pub fn drop_transport(&mut self, cx: &mut Cx<'_>) {
        cx.inflow.give_up(&mut self.share);
        if let Some(t) = self.transport.take() {
            cx.effects.push(Effect::Shut { socket: t.socket });
        }
    }

    /// True if its messages count against the memory budget: it called us and is not a proven daemon. See
    /// [`super::inflow`].
    pub fn is_metered(&self) -> bool {
        let is_accepted = self.transport.as_ref().is_some_and(|t| t.side == Side::Accepting);
        is_accepted && self.stage == Stage::Ready && !self.peer.identity.is_daemon()
    }

    /// True if it is a session with this very peer. While we are still calling, only the kind of the peer is known.
    pub fn is_with(&self, identity: &Identity) -> bool {
        let known = &self.peer.identity;
        if known.is_unknown() { self.claim.kind == identity.role() } else { known.is_same_peer(identity) }
    }

    /// Backpressure: true if the peer has so many replies to fetch that no more requests are taken from it.
    pub fn is_choked(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(t) = &self.transport else { return false };
        // Only the accepting side applies backpressure. If both did, each could wait for the other to read.
        if t.side != Side::Accepting {
            return false;
        }
        let unwritten = t.out.len();
        // Hysteresis: stop at the mark, go on at half of it.
        let is_over = unwritten > cx.config.unwritten_len_max / if self.reading { 1 } else { 2 };
        is_over || self.is_metered() && cx.inflow.chokes(self.conn, &mut self.share, unwritten, self.reading)
    }

    /// Tell the host to start or stop reading, where that has changed.
    pub fn update_reading(&mut self, cx: &mut Cx<'_>) {
        let is_choked = self.is_choked(cx);
        let Some(t) = &self.transport else { return };
        cx.inflow.begin_frame(&mut self.share, t.frames_taken());
        // Under backpressure no memory is reserved for a frame that is not read.
        let may_read = !is_choked
            && (!self.is_metered()
                || cx.inflow.admits(self.conn, &mut self.share, t.frames_taken(), t.large_len()));
        let on = self.stage != Stage::Judging && may_read;
        if on != self.reading {
            self.reading = on;
            cx.effects.push(Effect::Reading { socket: t.socket, on });
        }
        self.watch_frame(cx);
    }

    /// A large frame has begun to hold memory: from now on it must make progress.
    fn watch_frame(&mut self, cx: &Cx<'_>) {
        let Some(t) = self.transport.as_mut().filter(|_| self.share.is_receiving()) else {
            self.frame_watch = None;
            return;
        };
        let frame = t.frames_taken();
        if self.frame_watch.as_ref().is_none_or(|watch| watch.frame != frame) {
            let until = cx.now + cx.config.frame_window;
            self.frame_watch = Some(FrameWatch { frame, moved: t.progress(), until });
            self.deadline = Time::earliest(self.deadline, Some(until));
        }
    }

    /// The deadline of a session that is ready: it has been silent for too long, or a large frame makes no progress.
    pub fn on_ready_deadline(&mut self, cx: &Cx<'_>) -> Result<(), Fault> {
        let idle_until = self.is_lossy().then(|| self.last_heard + cx.config.idle_timeout);
        if idle_until.is_some_and(|at| at <= cx.now) {
            return Err(Fault(CloseReason::TimedOut));
        }
        if let (Some(watch), Some(t)) = (&mut self.frame_watch, &mut self.transport)
            && watch.until <= cx.now
        {
            let moved = t.progress();
            let least = match cx.inflow.is_waited_for() {
                true => cx.config.frame_progress_min_waited,
                false => cx.config.frame_progress_min,
            };
            if moved.saturating_sub(watch.moved) < least {
                let why = format!("a frame of {} bytes came too slowly", t.large_len().unwrap_or(0));
                return Err(Fault(CloseReason::Broken(why)));
            }
            (watch.moved, watch.until) = (moved, cx.now + cx.config.frame_window);
        }
        self.deadline = Time::earliest(idle_until, self.frame_watch.as_ref().map(|watch| watch.until));
        Ok(())
    }

    fn call_again_at(&mut self, at: Time) {
        if self.server_cookie != 0 {
            self.connect_seq += 1;
        }
        self.stage = Stage::Backoff;
        self.deadline = Some(at);
    }

    fn next_backoff(&mut self, cx: &Cx<'_>) -> std::time::Duration {
        self.backoff = (self.backoff * 2).clamp(cx.config.backoff_min, cx.config.backoff_max);
        self.backoff
    }
}
