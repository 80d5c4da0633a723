//! Tickets: as a monitor makes them, as a client keeps them, and as a service opens them.

use super::{AuthName, Entropy, Key, KeyError, SealError, Usage, open_from, seal, seal_to};
use crate::types::UTime;
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A service's owner key sealed it; to the client it is bytes (`CephXTicketBlob`: `u8 1 | u64 id | blob`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TicketBlob {
    /// The id of the service's rotating key.
    pub secret_id: u64,
    pub blob: Bytes,
}

impl Encode for TicketBlob {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.secret_id);
        w.put(&self.blob);
    }
}

impl Decode for TicketBlob {
    const MIN_LEN: usize = 13;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(TicketBlob { secret_id: r.u64()?, blob: r.get()? })
    }
}

/// A ticket for one service, with the session key that proves it is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTicket {
    /// An [`crate::types::EntityKind`] by number.
    pub service: u32,
    pub session_key: Key,
    /// Opaque to us: the service's own secret protects it.
    pub blob: Bytes,
    pub secret_id: u64,
    /// The lifetime of the ticket from the moment it came (zero: for ever). Clocks differ: the receiver counts by
    /// its own. Stock renews when a quarter of it is left.
    pub validity: UTime,
}

impl ServiceTicket {
    pub fn to_blob(&self) -> TicketBlob {
        TicketBlob { secret_id: self.secret_id, blob: self.blob.clone() }
    }
}

/// Capabilities for one service (`AuthCapsInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthCaps {
    pub allow_all: bool,
    /// An encoded string.
    pub caps: Bytes,
}

impl AuthCaps {
    pub fn from_text(text: &str) -> AuthCaps {
        let mut w = Writer::new(codec::Features::ALL);
        w.string(text);
        AuthCaps { allow_all: false, caps: w.into_bytes() }
    }

    /// The capabilities as a person writes them; `None` when they are not text. Empty bytes are no capabilities.
    pub fn text(&self) -> Option<String> {
        if self.caps.is_empty() {
            return Some(String::new());
        }
        Reader::new(&self.caps).string().ok()
    }
}

impl Encode for AuthCaps {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.bool(self.allow_all);
        w.put(&self.caps);
    }
}

impl Decode for AuthCaps {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(AuthCaps { allow_all: r.bool()?, caps: r.get()? })
    }
}

/// A name with capabilities and an end (`AuthTicket`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthTicket {
    pub name: AuthName,
    pub global_id: u64,
    /// Wall times, by the monitor's clock.
    pub created: UTime,
    pub expires: UTime,
    pub caps: AuthCaps,
    pub flags: u32,
}

impl AuthTicket {
    /// `now`: by the monitors' clocks. A ticket without an end does not expire.
    pub fn has_expired(&self, now: UTime) -> bool {
        self.expires != UTime::ZERO && self.expires < now
    }
}

/// A user id that stock no longer has: always -1.
const AUID_DEFAULT: u64 = u64::MAX;

impl Encode for AuthTicket {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.put(&self.name);
        w.u64(self.global_id);
        w.u64(AUID_DEFAULT);
        w.put(&self.created);
        w.put(&self.expires);
        w.put(&self.caps);
        w.u32(self.flags);
    }
}

impl Decode for AuthTicket {
    const MIN_LEN: usize = 43;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let (name, global_id) = (r.get()?, r.u64()?);
        if version >= 2 {
            r.u64()?;
        }
        Ok(AuthTicket {
            name,
            global_id,
            created: r.get()?,
            expires: r.get()?,
            caps: r.get()?,
            flags: r.u32()?,
        })
    }
}

/// The contents of a [`TicketBlob`] (`CephXServiceTicketInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketInfo {
    pub ticket: AuthTicket,
    pub session_key: Key,
}

impl Encode for TicketInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.ticket);
        w.put(&self.session_key);
    }
}

impl Decode for TicketInfo {
    const MIN_LEN: usize = 56;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(TicketInfo { ticket: r.get()?, session_key: r.get()? })
    }
}

/// The client's part of a ticket (`CephXServiceTicket`).
struct ForClient {
    session_key: Key,
    validity: UTime,
}

impl Encode for ForClient {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.session_key);
        w.put(&self.validity);
    }
}

impl Decode for ForClient {
    const MIN_LEN: usize = 21;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(ForClient { session_key: r.get()?, validity: r.get()? })
    }
}

/// A ticket about to be made (`CephXSessionAuthInfo`).
#[derive(Clone, Debug)]
pub struct NewTicket {
    pub service: u32,
    pub info: TicketInfo,
    /// The service's current rotating key and its id.
    pub service_secret: Key,
    pub secret_id: u64,
    pub validity: UTime,
}

impl NewTicket {
    pub fn to_blob(&self, entropy: &mut impl Entropy) -> Result<TicketBlob, KeyError> {
        let blob = seal(&self.service_secret, Usage::TicketInfo, &self.info, entropy)?;
        Ok(TicketBlob { secret_id: self.secret_id, blob: blob.into() })
    }
}

/// Tickets for a client whose `key` opens what is meant for it. With `old_session_key` the blobs are sealed too,
/// under the session key of the ticket that the client reclaims its global id with.
pub fn write_tickets(
    w: &mut Writer,
    key: &Key,
    tickets: &[NewTicket],
    old_session_key: Option<&Key>,
    entropy: &mut impl Entropy,
) -> Result<(), KeyError> {
    w.u8(1);
    w.count(tickets.len());
    for t in tickets {
        w.u32(t.service);
        w.u8(1);
        let for_client = ForClient { session_key: t.info.session_key.clone(), validity: t.validity };
        seal_to(w, key, Usage::TicketSessionKey, &for_client, entropy)?;
        let blob = Bytes::from(t.to_blob(entropy)?.to_vec(codec::Features::ALL));
        w.bool(old_session_key.is_some());
        match old_session_key {
            Some(old) => seal_to(w, old, Usage::TicketBlob, &blob, entropy)?,
            None => w.put(&blob),
        }
    }
    Ok(())
}

pub fn read_tickets(
    r: &mut Reader<'_>,
    key: &Key,
    old_session_key: Option<&Key>,
) -> Result<Vec<ServiceTicket>, SealError> {
    let _version = r.u8()?;
    let n = r.count("tickets", 14)?;
    let mut out = Vec::new();
    for _ in 0..n {
        let service = r.u32()?;
        let _version = r.u8()?;
        let ForClient { session_key, validity } = open_from(r, key, Usage::TicketSessionKey)?;
        let sealed = r.bool()?;
        let blob: Bytes = match (sealed, old_session_key) {
            (false, _) => r.get()?,
            (true, Some(old)) => open_from(r, old, Usage::TicketBlob)?,
            (true, None) => return Err(SealError::Magic),
        };
        let TicketBlob { secret_id, blob } = Reader::new(&blob).get()?;
        out.push(ServiceTicket { service, session_key, blob, secret_id, validity });
    }
    Ok(out)
}
