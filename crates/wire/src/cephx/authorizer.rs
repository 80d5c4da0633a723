//! The conversation with a service: an authorizer, a challenge against its replay, and a reply.

use super::{
    Entropy, Key, KeyError, MODE_AUTHORIZER, RotatingKeys, SealError, Secret, ServiceTicket, TicketBlob,
    TicketInfo, Usage, open, open_from, seal, seal_to,
};
use crate::types::UTime;
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use thiserror::Error;

/// The state of a client that presents a ticket.
#[derive(Clone, Debug)]
pub struct Authorizer {
    global_id: u64,
    ticket: ServiceTicket,
    nonce: u64,
}

impl Authorizer {
    pub fn new(global_id: u64, ticket: ServiceTicket, entropy: &mut impl Entropy) -> Authorizer {
        Authorizer { global_id, ticket, nonce: entropy.u64() }
    }

    pub fn session_key(&self) -> &Key {
        &self.ticket.session_key
    }

    /// The first payload.
    pub fn present(&self, entropy: &mut impl Entropy) -> Result<Bytes, KeyError> {
        self.payload(None, entropy)
    }

    /// The payload that answers the service's challenge.
    pub fn answer(&self, challenge: &[u8], entropy: &mut impl Entropy) -> Result<Bytes, SealError> {
        let Challenge(n) = open(self.session_key(), Usage::AuthorizeChallenge, challenge)?;
        Ok(self.payload(Some(n), entropy)?)
    }

    /// Check that the service could open our ticket; the connection's secret (empty in crc mode).
    pub fn finish(&self, reply: &[u8]) -> Result<Secret, SealError> {
        let reply: Reply = open_from(&mut Reader::new(reply), self.session_key(), Usage::AuthorizeReply)?;
        if reply.nonce_plus_one != self.nonce.wrapping_add(1) {
            return Err(SealError::Magic);
        }
        Ok(Secret::new(&reply.connection_secret))
    }

    fn payload(&self, challenge: Option<u64>, entropy: &mut impl Entropy) -> Result<Bytes, KeyError> {
        let mut w = Writer::new(Features::ALL);
        w.u8(MODE_AUTHORIZER);
        w.u64(self.global_id);
        w.u32(self.ticket.service);
        w.put(&self.ticket.to_blob());
        let authorize = Authorize { nonce: self.nonce, challenge_plus_one: challenge.map(plus_one) };
        seal_to(&mut w, self.session_key(), Usage::Authorize, &authorize, entropy)?;
        Ok(w.into_bytes())
    }
}

fn plus_one(n: u64) -> u64 {
    n.wrapping_add(1)
}

/// The contents of a good authorizer.
#[derive(Clone, Debug)]
pub struct Verified {
    pub info: TicketInfo,
    /// The payload of `AUTH_DONE`.
    pub reply: Bytes,
}

/// The service's next payload.
#[derive(Clone, Debug)]
pub enum ChallengeOrReply {
    /// Remember the number, send the payload (`AUTH_REPLY_MORE`), and ask again with both.
    Challenge {
        number: u64,
        payload: Bytes,
    },
    Accepted(Box<Verified>),
}

#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AuthorizerError {
    #[error("the authorizer is garbled: {0}")]
    Decode(#[from] DecodeError),
    #[error("a payload of mode {0}, not an authorizer")]
    Mode(u8),
    #[error("a ticket for service {0}, not this one")]
    Service(u32),
    #[error("the ticket's key {0} is not here: the ticket has expired, or the keys have not arrived")]
    SecretId(u64),
    #[error("the ticket does not open: {0}")]
    Ticket(SealError),
    #[error("the ticket is for another global id")]
    GlobalId,
    #[error("the ticket has expired")]
    Expired,
    #[error("the authorizer was not made by the ticket's owner: {0}")]
    Session(SealError),
    #[error("the challenge is not answered: a replay?")]
    Challenge,
    #[error("cannot seal the reply: {0}")]
    Seal(#[from] KeyError),
}

/// A service that checks the authorizers of those who call it.
#[derive(Clone, Copy)]
pub struct Verifier<'a> {
    /// Its kind, an [`crate::types::EntityKind`] by number.
    pub service: u32,
    pub keys: &'a RotatingKeys,
    /// The monitors' wall time, or an earlier one where it is not known: tickets that ended before it are refused.
    pub now_at_least: UTime,
}

impl Verifier<'_> {
    /// One turn. `challenge` is the number given out on this connection, if any; `connection_secret` goes into the reply
    /// when the authorizer is good.
    pub fn verify(
        &self,
        payload: &[u8],
        challenge: Option<u64>,
        connection_secret: &[u8],
        entropy: &mut impl Entropy,
    ) -> Result<ChallengeOrReply, AuthorizerError> {
        let mut r = Reader::new(payload);
        let mode = r.u8()?;
        if mode != MODE_AUTHORIZER {
            return Err(AuthorizerError::Mode(mode));
        }
        let (global_id, for_service) = (r.u64()?, r.u32()?);
        let ticket: TicketBlob = r.get()?;
        if for_service != self.service {
            return Err(AuthorizerError::Service(for_service));
        }
        let secret = self.keys.get(ticket.secret_id).ok_or(AuthorizerError::SecretId(ticket.secret_id))?;
        let info: TicketInfo =
            open(secret, Usage::TicketInfo, &ticket.blob).map_err(AuthorizerError::Ticket)?;
        if info.ticket.global_id != global_id {
            return Err(AuthorizerError::GlobalId);
        }
        if info.ticket.has_expired(self.now_at_least) {
            return Err(AuthorizerError::Expired);
        }
        let authorize: Authorize =
            open_from(&mut r, &info.session_key, Usage::Authorize).map_err(AuthorizerError::Session)?;
        let Some(number) = challenge else {
            let number = entropy.u64();
            let payload = seal(&info.session_key, Usage::AuthorizeChallenge, &Challenge(number), entropy)?;
            return Ok(ChallengeOrReply::Challenge { number, payload: payload.into() });
        };
        if authorize.challenge_plus_one != Some(plus_one(number)) {
            return Err(AuthorizerError::Challenge);
        }
        let reply = Reply {
            nonce_plus_one: plus_one(authorize.nonce),
            connection_secret: Bytes::copy_from_slice(connection_secret),
        };
        let mut w = Writer::new(Features::ALL);
        seal_to(&mut w, &info.session_key, Usage::AuthorizeReply, &reply, entropy)?;
        Ok(ChallengeOrReply::Accepted(Box::new(Verified { info, reply: w.into_bytes() })))
    }
}

/// `CephXAuthorize`: `u8 2 | u64 nonce | bool answered | u64 challenge + 1`
struct Authorize {
    nonce: u64,
    challenge_plus_one: Option<u64>,
}

impl Encode for Authorize {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.u64(self.nonce);
        w.bool(self.challenge_plus_one.is_some());
        w.u64(self.challenge_plus_one.unwrap_or(0));
    }
}

impl Decode for Authorize {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let nonce = r.u64()?;
        if version < 2 {
            return Ok(Authorize { nonce, challenge_plus_one: None });
        }
        let (answered, number) = (r.bool()?, r.u64()?);
        Ok(Authorize { nonce, challenge_plus_one: answered.then_some(number) })
    }
}

/// `CephXAuthorizeChallenge`: `u8 1 | u64`
struct Challenge(u64);

impl Encode for Challenge {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.0);
    }
}

impl Decode for Challenge {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        r.u64().map(Challenge)
    }
}

/// `CephXAuthorizeReply`: `u8 1 | u64 nonce + 1`, or with a secret `u8 2 | u64 nonce + 1 | secret`
struct Reply {
    nonce_plus_one: u64,
    connection_secret: Bytes,
}

impl Encode for Reply {
    fn encode(&self, w: &mut Writer) {
        w.u8(if self.connection_secret.is_empty() { 1 } else { 2 });
        w.u64(self.nonce_plus_one);
        if !self.connection_secret.is_empty() {
            w.put(&self.connection_secret);
        }
    }
}

impl Decode for Reply {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let nonce_plus_one = r.u64()?;
        let connection_secret = if version >= 2 { r.get()? } else { Bytes::new() };
        Ok(Reply { nonce_plus_one, connection_secret })
    }
}
