//! A service's rotating keys: previous, current and next. Tickets are sealed with the current one; a ticket whose
//! key has rotated out is refused, which is how tickets expire.

use super::Key;
use crate::types::UTime;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// `ExpiringCryptoKey`: `u8 1 | key | expiration`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatingSecret {
    pub key: Key,
    /// Wall time, by the monitor's clock.
    pub expires: UTime,
}

impl Encode for RotatingSecret {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.key);
        w.put(&self.expires);
    }
}

impl Decode for RotatingSecret {
    const MIN_LEN: usize = 21;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(RotatingSecret { key: r.get()?, expires: r.get()? })
    }
}

/// `RotatingSecrets`: `u8 1 | map id to secret | u64 highest id ever`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotatingKeys {
    /// By secret id, oldest first.
    pub secrets: std::collections::BTreeMap<u64, RotatingSecret>,
    pub max_version: u64,
}

impl RotatingKeys {
    /// Previous, current, next (`KEY_ROTATE_NUM`).
    pub const COUNT: usize = 3;

    /// Add the next key and forget the oldest. Says its id.
    pub fn rotate(&mut self, secret: RotatingSecret) -> u64 {
        self.max_version += 1;
        self.secrets.insert(self.max_version, secret);
        while self.secrets.len() > RotatingKeys::COUNT {
            self.secrets.pop_first();
        }
        self.max_version
    }

    pub fn get(&self, secret_id: u64) -> Option<&Key> {
        self.secrets.get(&secret_id).map(|s| &s.key)
    }

    /// The one that new tickets are sealed with: the second of three, or the newest while there are fewer.
    pub fn current(&self) -> Option<(u64, &RotatingSecret)> {
        let nth = (self.secrets.len() >= RotatingKeys::COUNT) as usize;
        let found = if nth == 1 { self.secrets.iter().nth(1) } else { self.secrets.iter().next_back() };
        found.map(|(id, secret)| (*id, secret))
    }
}

impl Encode for RotatingKeys {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.secrets);
        w.u64(self.max_version);
    }
}

impl Decode for RotatingKeys {
    const MIN_LEN: usize = 13;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(RotatingKeys { secrets: r.get()?, max_version: r.u64()? })
    }
}
