//! The network as a role machine sees it: peers that have been authenticated, whole messages, and nothing of
//! frames, ciphers or reconnects, which the session machine below it handles.
//!
//! Every role's `Input` has a `Net(NetEvent)` and every role's `Effect` a `Net(NetEffect)`.

use crate::ConnId;
use bytes::Bytes;
use codec::Features;
use wire::messages::Message;
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, EntityName};

/// What happened on the network.
#[derive(Debug)]
pub enum NetEvent {
    /// Both sides have proved who they are: messages may flow. For a connection that we opened and for one that
    /// we accepted.
    Ready {
        conn: ConnId,
        peer: Peer,
    },
    Message {
        conn: ConnId,
        message: Message,
    },
    /// A peer that connected to us wants to authenticate and the role itself is the judge (the monitor). The
    /// answer is [`NetEffect::AuthReply`].
    Auth {
        conn: ConnId,
        request: AuthRequest,
    },
    /// The connection is gone and nothing more comes from it or reaches it. A lossless session that is merely
    /// reconnecting does not report this.
    Closed {
        conn: ConnId,
        why: CloseReason,
    },
}

/// What a role wants of the network.
#[derive(Debug)]
pub enum NetEffect {
    /// Open a connection under an id that the role chose (see [`ConnId::outgoing`]). Ends in `Ready` or `Closed`.
    Connect {
        conn: ConnId,
        to: EntityAddrVec,
        kind: EntityKind,
        policy: Policy,
        credentials: Credentials,
    },
    /// In order, per connection. To a connection that is gone: dropped.
    Send {
        conn: ConnId,
        message: Message,
    },
    AuthReply {
        conn: ConnId,
        reply: AuthReply,
    },
    /// The keys that verify authorizers of peers that connect to us, newest last.
    ServiceKeys(wire::cephx::RotatingKeys),
    /// Close at once; what is queued is dropped. No `Closed` follows.
    Close {
        conn: ConnId,
    },
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    /// As the peer calls itself now: `osd.3`, `client.4123`.
    pub name: EntityName,
    /// The name its key is under: `client.admin`. Empty with `auth none` until the peer says it.
    pub auth_name: String,
    pub global_id: u64,
    pub addrs: EntityAddrVec,
    /// Where its packets come from.
    pub socket: EntityAddr,
    pub features: Features,
    /// Capabilities for *this* service as its ticket carries them: an encoded string. Empty with `auth none`.
    pub caps: Bytes,
    /// With `auth none` every capability is granted.
    pub allow_all: bool,
    pub secure: bool,
}

/// How a session behaves when its socket breaks (Ceph's `Messenger::Policy`).
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
    /// The peer has lost the session: what was in flight may or may not have been seen.
    Reset,
    TimedOut,
}

/// How we prove who we are when connecting.
#[derive(Clone)]
pub enum Credentials {
    None,
    /// To a monitor, with our long-lived key. The tickets that come back arrive with `Ready` as a
    /// [`wire::cephx`] reply in the connection's first events; see `session::ClientAuth`.
    Key {
        auth_name: String,
        key: wire::cephx::Key,
        want_services: u32,
        previous_global_id: u64,
        old_ticket: Bytes,
    },
    /// To any other service, with a ticket that a monitor gave us.
    Ticket {
        auth_name: String,
        global_id: u64,
        ticket: wire::cephx::ServiceTicket,
    },
}

impl std::fmt::Debug for Credentials {
    /// Never the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Credentials::None => f.write_str("None"),
            Credentials::Key { auth_name, .. } => write!(f, "Key({auth_name})"),
            Credentials::Ticket { auth_name, .. } => write!(f, "Ticket({auth_name})"),
        }
    }
}

/// One turn of the authentication that a monitor conducts.
#[derive(Debug)]
pub struct AuthRequest {
    /// `CEPH_AUTH_NONE` 1, `CEPH_AUTH_CEPHX` 2.
    pub method: u32,
    /// True for the first frame (`AUTH_REQUEST`), false for `AUTH_REQUEST_MORE`.
    pub first: bool,
    pub payload: Bytes,
    pub peer_addr: EntityAddr,
    /// The connection modes that the peer prefers, best first: 1 crc, 2 secure.
    pub preferred_modes: Vec<u32>,
}

#[derive(Debug)]
pub enum AuthReply {
    /// `AUTH_REPLY_MORE`.
    More(Bytes),
    /// `AUTH_DONE`.
    Done {
        auth_name: String,
        global_id: u64,
        mode: u32,
        payload: Bytes,
        /// The key that signs the transcript; `None` with `auth none`.
        session_key: Option<wire::cephx::Key>,
        connection_secret: Bytes,
        caps: Bytes,
        allow_all: bool,
    },
    /// `AUTH_BAD_METHOD`: errno (negative), methods and modes that would do.
    Bad { method: u32, result: i32, methods: Vec<u32>, modes: Vec<u32> },
}
