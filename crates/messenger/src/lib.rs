//! The messenger as a machine: sockets' bytes on one side, [`NetEvent`](machine::net::NetEvent)s and
//! [`NetEffect`](machine::net::NetEffect)s on the other.
//!
//! ```text
//! role    NetEffect: connect, send, answer auth, close        NetEvent: ready, message, auth, closed
//!            |                                                    ^
//!         Endpoint   every session of one core; finds the session that a reconnecting peer means
//!            |                                                    |
//!         Session    outlives sockets when lossless: cookies, sequence numbers, unacknowledged messages
//!            |                                                    |
//!         Transport  one socket: banner, frames, transcript, keys
//!            v                                                    |
//! host    bytes to write, Effect: open, shut, read or do not      Input: accepted, connected, received, broken
//! ```
//!
//! The handshake, both sides (`doc/dev/msgr2.rst`, `src/msg/async/ProtocolV2.cc`):
//!
//! ```text
//! connecting                                   accepting
//!   banner                                       banner
//!   HELLO                                        HELLO
//!   AUTH_REQUEST                          -->    authorizer? verified here. To a monitor: NetEvent::Auth
//!     (AUTH_REPLY_MORE, AUTH_REQUEST_MORE)*
//!                                         <--    AUTH_DONE
//!   AUTH_SIGNATURE                               AUTH_SIGNATURE      from here on sealed, in secure mode
//!   CLIENT_IDENT                          -->    SERVER_IDENT
//!   or SESSION_RECONNECT                  -->    SESSION_RECONNECT_OK, _RESET, _RETRY, _RETRY_GLOBAL or WAIT
//! ```
//!
//! - `config` is what an endpoint is told; `transport` one socket; `state` one session, `connecting` and `accepting`
//!   the two sides of its handshake, `established` what happens after it; `endpoint` is the table of sessions and
//!   the machine itself, `matching` how it finds the one that a returning peer means, `inflow` how much of what clients
//!   send is in memory at once.

mod accepting;
mod config;
mod connecting;
mod endpoint;
mod established;
mod inflow;
mod matching;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod ticket_clock;
mod transport;

pub use config::{Config, ModeLists};
pub use endpoint::{Effect, Endpoint, Input, Moved, ReadPlan, SocketId};
