//! The conversation with a monitor: a challenge, a proof of the key, and tickets in return.

use super::{
    AuthName, Entropy, GET_AUTH_SESSION_KEY, Key, KeyError, KeyKind, MODE_MON, NewTicket, SealError, Secret,
    ServiceTicket, TicketBlob, Usage, open_from, read_tickets, seal, seal_to, write_tickets,
};
use crate::types::EntityKind;
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};

/// `u8 1 | u64`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerChallenge(pub u64);

impl Encode for ServerChallenge {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.0);
    }
}

impl Decode for ServerChallenge {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        r.u64().map(ServerChallenge)
    }
}

/// `u16`: one of the `GET_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader(pub u16);

impl Encode for RequestHeader {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.0);
    }
}

impl Decode for RequestHeader {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u16().map(RequestHeader)
    }
}

/// `u16 | i32`: what was asked, and an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    pub request: u16,
    pub status: i32,
}

impl Encode for ResponseHeader {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.request);
        w.i32(self.status);
    }
}

impl Decode for ResponseHeader {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(ResponseHeader { request: r.u16()?, status: r.i32()? })
    }
}

/// `u8 1 | u32`: the services that tickets are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTicketRequest(pub u32);

impl Encode for ServiceTicketRequest {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u32(self.0);
    }
}

impl Decode for ServiceTicketRequest {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        r.u32().map(ServiceTicketRequest)
    }
}

/// The client's answer to the challenge (`CephXAuthenticate`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticate {
    pub client_challenge: u64,
    /// [`prove`] of both challenges.
    pub proof: u64,
    /// To keep a global id: the AUTH ticket that came with it. Empty otherwise.
    pub old_ticket: TicketBlob,
    /// Services that tickets are wanted for at once; from Nautilus on.
    pub other_keys: u32,
    /// Before version 3 (Pacific's early clients and older), a client that keeps its global id may come without
    /// the ticket.
    pub old_ticket_may_be_omitted: bool,
}

impl Encode for Authenticate {
    fn encode(&self, w: &mut Writer) {
        w.u8(if self.old_ticket_may_be_omitted { 2 } else { 3 });
        w.u64(self.client_challenge);
        w.u64(self.proof);
        w.put(&self.old_ticket);
        w.u32(self.other_keys);
    }
}

impl Decode for Authenticate {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        Ok(Authenticate {
            client_challenge: r.u64()?,
            proof: r.u64()?,
            old_ticket: r.get()?,
            other_keys: if version >= 2 { r.u32()? } else { 0 },
            old_ticket_may_be_omitted: version < 3,
        })
    }
}

/// A proof of `key`, from both challenges (`cephx_calc_client_server_challenge`): their seal
/// (AES) or HMAC (`aes256k`, whose seals are never the same twice), folded to 64 bits.
pub fn prove(key: &Key, server_challenge: u64, client_challenge: u64) -> Result<u64, KeyError> {
    let both = (server_challenge, client_challenge);
    let proof = match key.usable()? {
        KeyKind::Aes => {
            let mut w = Writer::new(Features::ALL);
            // AES-128 sealing neither has a usage nor takes randomness.
            seal_to(&mut w, key, Usage::Authorize, &both, &mut NoEntropy)?;
            w.into_vec()
        }
        KeyKind::Aes256k => Vec::from(key.hmac_sha256(&both.to_vec(Features::ALL))),
    };
    let words = proof.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes")));
    Ok(words.fold(0, |a, b| a ^ b))
}

struct NoEntropy;

impl Entropy for NoEntropy {
    fn fill(&mut self, _: &mut [u8]) {
        unreachable!("AES-128 sealing takes no randomness")
    }
}

/// The client's first payload to a monitor, with cephx and with `auth none`: `u8 10 | name | u64 global id`.
pub(super) fn hello_monitor(name: &AuthName, global_id: u64) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.u8(MODE_MON);
    w.put(name);
    w.u64(global_id);
    w.into_bytes()
}

impl AuthName {
    /// The first payload to a monitor. `global_id` is 0 or the one to keep.
    pub fn hello_monitor(&self, global_id: u64) -> Bytes {
        hello_monitor(self, global_id)
    }

    /// The whole payload to a service under `auth none`: `u8 1 | name | u64 global id`.
    pub fn hello_service(&self, global_id: u64) -> Bytes {
        let mut w = Writer::new(Features::ALL);
        w.u8(super::MODE_AUTHORIZER);
        w.put(self);
        w.u64(global_id);
        w.into_bytes()
    }
}

impl Authenticate {
    /// The payload that answers a monitor's challenge.
    pub fn answer(
        key: &Key,
        challenge: ServerChallenge,
        old_ticket: TicketBlob,
        want_services: u32,
        entropy: &mut impl Entropy,
    ) -> Result<Bytes, KeyError> {
        let client_challenge = entropy.u64();
        let request = Authenticate {
            client_challenge,
            proof: prove(key, challenge.0, client_challenge)?,
            old_ticket,
            other_keys: want_services,
            old_ticket_may_be_omitted: false,
        };
        let mut w = Writer::new(Features::ALL);
        w.put(&RequestHeader(GET_AUTH_SESSION_KEY));
        w.put(&request);
        Ok(w.into_bytes())
    }
}

/// A monitor's answer to a good proof, to be written.
pub struct MonitorGrant<'a> {
    /// The client's long-lived key.
    pub key: &'a Key,
    pub auth_ticket: &'a NewTicket,
    /// Set when the client reclaimed its global id: the session key of the ticket it came with.
    pub old_session_key: Option<&'a Key>,
    /// Both only for a client that asked for other keys at once.
    pub connection_secret: &'a [u8],
    pub more: Option<&'a [NewTicket]>,
}

impl MonitorGrant<'_> {
    /// The payload of `AUTH_DONE`.
    pub fn encode(&self, entropy: &mut impl Entropy) -> Result<Bytes, KeyError> {
        let mut w = Writer::new(Features::ALL);
        w.put(&ResponseHeader { request: GET_AUTH_SESSION_KEY, status: 0 });
        let auth = std::slice::from_ref(self.auth_ticket);
        write_tickets(&mut w, self.key, auth, self.old_session_key, entropy)?;
        if let Some(more) = self.more {
            let session_key = &self.auth_ticket.info.session_key;
            let secret = Bytes::copy_from_slice(self.connection_secret);
            let sealed = seal(session_key, Usage::AuthConnectionSecret, &secret, entropy)?;
            let mut inner = Ok(());
            w.blob_of(|w| w.blob(&sealed));
            w.blob_of(|w| {
                if !more.is_empty() {
                    inner = write_tickets(w, session_key, more, None, entropy);
                }
            });
            inner?;
        }
        Ok(w.into_bytes())
    }
}

/// The same, as the client reads it.
#[derive(Clone, Debug)]
pub struct MonitorReply {
    /// The AUTH ticket's: it signs the transcript.
    pub session_key: Key,
    /// Empty in crc mode.
    pub connection_secret: Secret,
    /// The AUTH ticket and those asked for.
    pub tickets: Vec<ServiceTicket>,
}

impl MonitorReply {
    pub fn decode(
        payload: &[u8],
        key: &Key,
        old_session_key: Option<&Key>,
    ) -> Result<MonitorReply, SealError> {
        let mut r = Reader::new(payload);
        let header: ResponseHeader = r.get()?;
        if header.request != GET_AUTH_SESSION_KEY {
            return Err(r.invalid("cephx response", header.request).into());
        }
        let mut tickets = read_tickets(&mut r, key, old_session_key)?;
        let auth = tickets.iter().find(|t| t.service == EntityKind::AUTH.0 as u32);
        let session_key = auth.ok_or(SealError::Magic)?.session_key.clone();
        let mut connection_secret = Secret::default();
        if !r.is_empty() {
            let mut sealed = Reader::new(r.blob()?);
            if !sealed.is_empty() {
                let opened: Bytes = open_from(&mut sealed, &session_key, Usage::AuthConnectionSecret)?;
                connection_secret = Secret::new(&opened);
            }
            let mut more = Reader::new(r.blob()?);
            if !more.is_empty() {
                tickets.extend(read_tickets(&mut more, &session_key, None)?);
            }
        }
        Ok(MonitorReply { session_key, connection_secret, tickets })
    }
}
