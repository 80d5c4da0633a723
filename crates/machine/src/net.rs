//! The network as a role machine sees it: peers that have been authenticated, whole messages, and nothing of
//! frames, ciphers or reconnects, which the session machine below it handles.
//!
//! Every role's `Input` has a `Net(NetEvent)` and every role's `Effect` a `Net(NetEffect)`.

pub use crate::Held;
use crate::identity::{ClaimedName, Identity, Impostor, Proof};
use crate::{ConnId, CoreId};
use bytes::Bytes;
use codec::Features;
use wire::messages::Message;
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, EntityName};

/// An event of the network. Small, since it moves a few times for each message: what is large and rare is in a box.
#[derive(Debug)]
pub enum NetEvent {
    /// Both sides are authenticated: messages may flow. For a connection that we opened and for one that
    /// we accepted. Comes once in a connection's life, also when a lossless session reconnects under it.
    Ready { conn: ConnId, peer: Box<Peer> },
    Message {
        conn: ConnId,
        message: Message,
        /// Kept as long as the message takes memory: until it is answered or dropped.
        held: Held,
    },
    /// A peer that connected to us wants to authenticate, and the role itself decides (the monitor). The
    /// answer is [`NetEffect::AuthReply`]; until it is given nothing more is read from the peer, and the
    /// handshake's deadline runs.
    Auth { conn: ConnId, request: Box<AuthRequest> },
    /// A monitor let us in: comes just before the `Ready` of a connection opened with [`Credentials::Key`] (or,
    /// with only a global id inside, [`Credentials::None`] to a monitor).
    Granted { conn: ConnId, grant: Grant },
    /// The connection is gone and nothing more comes from it or reaches it. A lossless session that is merely
    /// reconnecting does not report this. Follows every `Connect` that did not become `Ready`, too.
    Closed { conn: ConnId, why: CloseReason },
}

/// An effect of a role on the network. As small as [`NetEvent`].
#[derive(Debug)]
pub enum NetEffect {
    /// Open a connection under an id that the role chose (see [`ConnId::outgoing`]). Ends in `Ready` or `Closed`.
    /// The first msgr2 address of `to` is the one that is called.
    Connect {
        conn: ConnId,
        to: EntityAddrVec,
        kind: EntityKind,
        policy: Policy,
        credentials: Box<Credentials>,
    },
    /// In order, per connection. To a connection that is gone: dropped. Before `Ready`: queued.
    Send { conn: ConnId, message: Message },
    /// The answer to [`NetEvent::Auth`].
    AuthReply { conn: ConnId, reply: Box<AuthReply> },
    /// The keys that verify the tickets of peers that connect to us; replaces those given before.
    ServiceKeys(wire::cephx::RotatingKeys),
    /// New credentials for a lossless session that may have to connect again (its ticket was renewed).
    Renew { conn: ConnId, credentials: Box<Credentials> },
    /// The memory budget for clients' requests on this core, in bytes, held and being received. Beyond it sockets are not
    /// read.
    HoldAtMost(usize),
    /// The number by which this daemon calls itself from now on, the 1 of `mon.1`: the rank of a monitor, which other monitors
    /// change as they come and go.
    Number(i64),
    /// Close at once and drop queued messages. No `Closed` follows.
    Close { conn: ConnId },
}

impl NetEvent {
    pub fn conn(&self) -> ConnId {
        match self {
            NetEvent::Ready { conn, .. }
            | NetEvent::Message { conn, .. }
            | NetEvent::Auth { conn, .. }
            | NetEvent::Granted { conn, .. }
            | NetEvent::Closed { conn, .. } => *conn,
        }
    }
}

impl NetEffect {
    /// The core whose endpoint carries this out, when a role on core `own` wants it.
    pub fn core(&self, own: CoreId) -> CoreId {
        match self {
            NetEffect::Connect { conn, .. }
            | NetEffect::Send { conn, .. }
            | NetEffect::AuthReply { conn, .. }
            | NetEffect::Renew { conn, .. }
            | NetEffect::Close { conn } => conn.core(),
            // Core 0 does all handshakes.
            NetEffect::ServiceKeys(_) | NetEffect::Number(_) => CoreId(0),
            NetEffect::HoldAtMost(_) => own,
        }
    }
}

/// The other end of a session.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The peer's name, kind and capabilities as its key proves them. Every decision rests on this.
    pub identity: Identity,
    /// As the peer calls itself, for log lines and listings: `osd.3`, `client.?`.
    pub claimed: ClaimedName,
    /// As the peer gives them.
    pub addrs: EntityAddrVec,
    /// The source address of its packets.
    pub socket: EntityAddr,
    pub features: Features,
    /// The connection is encrypted.
    pub secure: bool,
}

impl Peer {
    /// The peer at `addr` that has proved `proof` and calls itself `claimed`: as a session makes it, with every feature and
    /// without encryption.
    pub fn identified(proof: Proof, claimed: EntityName, addr: EntityAddr) -> Result<Peer, Impostor> {
        Ok(Peer {
            identity: proof.identify(claimed)?,
            claimed: ClaimedName::new(claimed),
            addrs: addr.into(),
            socket: addr,
            features: Features::ALL,
            secure: false,
        })
    }
}

/// Behaviour of a session when its socket breaks (Ceph's `Messenger::Policy`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// A break ends the session on both sides; the one that cares connects anew.
    Lossy,
    /// We connect again and both sides replay what the other has not acknowledged.
    LosslessClient,
    /// The peer connects again; we keep the session for it.
    LosslessServer,
    /// Either side may connect; two that cross are settled by address.
    LosslessPeer,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The peer closed, or the socket broke, or the connection could not be made.
    Broken(String),
    /// The peer does not let us in, or we did not let it in.
    Denied(String),
    /// The peer broke the protocol.
    Protocol(String),
    /// The peer has lost the session: it may or may not have received the messages in flight.
    Reset,
    TimedOut,
}

/// The proof of our own name when connecting.
#[derive(Clone)]
pub enum Credentials {
    /// The cluster runs with `auth none`: we say who we are.
    None {
        /// `client.admin`.
        auth_name: String,
        /// To a monitor 0, or the id that we had; to a service the id that the monitor gave us.
        global_id: u64,
    },
    /// To a monitor, with our long-lived key. The tickets arrive as [`NetEvent::Granted`].
    Key {
        auth_name: String,
        key: wire::cephx::Key,
        /// Kinds of services ([`EntityKind`] bits) that we want tickets for at once.
        want_services: u32,
        /// To keep our global id across connections: the id, and the ticket for [`EntityKind::AUTH`] that we got
        /// with it.
        reclaim: Option<(u64, wire::cephx::ServiceTicket)>,
    },
    /// To any other service, with a ticket that a monitor gave us.
    Ticket { auth_name: String, global_id: u64, ticket: wire::cephx::ServiceTicket },
}

impl std::fmt::Debug for Credentials {
    /// Never the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Credentials::None { auth_name, .. } => write!(f, "None({auth_name})"),
            Credentials::Key { auth_name, .. } => write!(f, "Key({auth_name})"),
            Credentials::Ticket { auth_name, .. } => write!(f, "Ticket({auth_name})"),
        }
    }
}

/// Id and tickets that a monitor gives an admitted peer.
#[derive(Clone, Debug)]
pub struct Grant {
    pub global_id: u64,
    /// Tickets, among them the one for [`EntityKind::AUTH`], whose session key asks for further ones. Empty with
    /// `auth none`.
    pub tickets: Vec<wire::cephx::ServiceTicket>,
}

/// One turn of the authentication that a monitor conducts.
#[derive(Debug)]
pub struct AuthRequest {
    /// `CEPH_AUTH_NONE` 1, `CEPH_AUTH_CEPHX` 2.
    pub method: u32,
    /// True for the first frame (`AUTH_REQUEST`), false for `AUTH_REQUEST_MORE`.
    pub first: bool,
    pub payload: Bytes,
    /// The kind that the peer claims. Nothing is proved yet.
    pub peer_kind: EntityKind,
    pub peer_addr: EntityAddr,
    /// The connection mode that the session picked by both sides' preferences: 1 crc, 2 secure.
    pub mode: u32,
}

impl AuthRequest {
    /// Length of the connection's secret in [`AuthReply::Done`].
    pub fn connection_secret_len(&self) -> usize {
        if self.mode == 2 { 64 } else { 0 }
    }
}

#[derive(Debug)]
pub enum AuthReply {
    /// `AUTH_REPLY_MORE`.
    More(Bytes),
    /// `AUTH_DONE`.
    Done {
        /// The peer's name and capabilities.
        proof: Proof,
        payload: Bytes,
        /// The key that signs the transcript; `None` with `auth none`.
        session_key: Option<wire::cephx::Key>,
        /// [`AuthRequest::connection_secret_len`] bytes.
        connection_secret: wire::cephx::Secret,
    },
    /// `AUTH_BAD_METHOD` with this (negative) errno; the peer may try once more.
    Bad { result: i32 },
}
