//! Keys, tickets, authorizers, as cephx writes them.

use bytes::Bytes;

/// A secret key (`CryptoKey`): its type decides the cipher.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// 1: AES-128-CBC, 2: AES256-CTS-HMAC-SHA384-192.
    pub kind: u16,
    pub created: crate::types::UTime,
    pub secret: Bytes,
}

impl std::fmt::Debug for Key {
    /// Never the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key(kind {})", self.kind)
    }
}

/// A ticket for one service, with the session key that proves it is ours.
#[derive(Clone, Debug)]
pub struct ServiceTicket {
    pub service: u32,
    pub session_key: Key,
    /// Opaque to us: the service's own secret protects it.
    pub blob: Bytes,
    pub secret_id: u64,
    /// How long the ticket lasts from the moment it came (zero: for ever). Clocks differ: the receiver counts by
    /// its own. Stock renews when a quarter of it is left.
    pub validity: crate::types::UTime,
}

/// A service's rotating secrets: previous, current and next, by secret id.
#[derive(Clone, Debug, Default)]
pub struct RotatingKeys {
    pub secrets: Vec<(u64, Key, crate::types::UTime)>,
    pub max_version: u64,
}
