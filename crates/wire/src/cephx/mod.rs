//! cephx: keys, tickets, authorizers (Ceph's `doc/dev/cephx_protocol.rst`, `src/auth/cephx/`, `src/auth/Crypto.cc`).
//!
//! A client proves to a monitor that it knows its long-lived key, and gets a *ticket* for each service it will
//! call: a session key for itself, and a blob that only the service can open, with the same session key and what
//! the client may do. To call the service it sends an *authorizer*: the blob, and a nonce under the session key.
//!
//! ```text
//! client                                              monitor
//!   | AUTH_REQUEST       u8 10 | name | global id        |
//!   |                    ServerChallenge  AUTH_REPLY_MORE|
//!   | AUTH_REQUEST_MORE  header | Authenticate           |
//!   |       header | AUTH ticket | secret | more tickets  AUTH_DONE
//! client                                              service
//!   | AUTH_REQUEST       u8 1 | id | service | blob | {Authorize}
//!   |                 {AuthorizeChallenge} AUTH_REPLY_MORE|
//!   | AUTH_REQUEST_MORE  the same, {Authorize} answers it |
//!   |                         {AuthorizeReply}   AUTH_DONE|
//! ```
//!
//! Two kinds of key: AES-128 (all releases) and `aes256k` (19.2.6, 20.2.4 and later). The kind of the key decides
//! the cipher of everything that it seals; nothing else on the wire says which. What shoal keeps for itself (the
//! rotating keys that seal ticket blobs) is always `aes256k`; the session key in a ticket follows the client's key.
//!
//! - [`Key`] seals and opens under a [`Usage`]. [`seal`] and [`open`] wrap a value in cephx's envelope first.
//! - `authenticate` is the conversation with the monitor, `authorizer` the one with a service.

mod aes128;
mod aes256k;
mod authenticate;
mod authorizer;
mod key;
mod rotating;
mod sealed;
mod secret;
#[cfg(test)]
mod tests;
mod ticket;

pub use crate::types::AuthName;
pub use authenticate::{
    Authenticate, MonitorGrant, MonitorReply, RequestHeader, ResponseHeader, ServerChallenge,
    ServiceTicketRequest, prove,
};
pub use authorizer::{Authorizer, AuthorizerError, ChallengeOrReply, Verified, Verifier};
pub use key::{Entropy, Key, KeyError, KeyKind, Usage};
pub use rotating::{RotatingKeys, RotatingSecret};
pub use sealed::{SealError, open, open_from, seal, seal_to};
pub use secret::{Secret, is_same_secret};
pub use ticket::{
    AuthCaps, AuthTicket, NewTicket, ServiceTicket, TicketBlob, TicketInfo, read_tickets, write_tickets,
};

/// `CEPH_AUTH_*`.
pub const METHOD_NONE: u32 = 1;
pub const METHOD_CEPHX: u32 = 2;

/// The first byte of a payload in `AUTH_REQUEST`: who is asked, and how (`AUTH_MODE_*`).
pub const MODE_AUTHORIZER: u8 = 1;
pub const MODE_MON: u8 = 10;

/// Requests to a monitor (`CEPHX_GET_*`).
pub const GET_AUTH_SESSION_KEY: u16 = 0x100;
pub const GET_PRINCIPAL_SESSION_KEY: u16 = 0x200;
pub const GET_ROTATING_KEY: u16 = 0x400;
