//! One entity of the auth database, as the log and the state hold it.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;
use wire::cephx::Key;

/// One principal: its key, and for each service a capability in that service's own language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthEntity {
    pub key: Key,
    pub caps: BTreeMap<String, String>,
    /// A new key that replaces `key` once its holder has used it.
    pub pending_key: Option<Key>,
}

impl AuthEntity {
    pub fn new(key: Key, caps: BTreeMap<String, String>) -> AuthEntity {
        AuthEntity { key, caps, pending_key: None }
    }
}

impl Encode for AuthEntity {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.key);
            w.put(&self.caps);
            w.put(&self.pending_key);
        });
    }
}

impl Decode for AuthEntity {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("auth entity", 1, |r, _| {
            Ok(AuthEntity { key: r.get()?, caps: r.get()?, pending_key: r.get()? })
        })
    }
}
