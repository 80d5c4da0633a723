//! A secret key, its text form, and what it can do.

use super::{Secret, aes128, aes256k};
use crate::types::UTime;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use thiserror::Error;

/// Random bytes, from outside: nothing here draws its own.
pub trait Entropy {
    fn fill(&mut self, out: &mut [u8]);

    fn u64(&mut self) -> u64 {
        let mut out = [0; 8];
        self.fill(&mut out);
        u64::from_le_bytes(out)
    }
}

/// The cipher of a key (`CEPH_CRYPTO_*`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KeyKind {
    /// AES-128-CBC with a fixed initialisation vector and no integrity of its own.
    Aes = 1,
    /// AES256-CTS-HMAC-SHA384-192 (RFC 8009).
    Aes256k = 2,
}

impl KeyKind {
    pub fn from_number(n: u16) -> Option<KeyKind> {
        match n {
            1 => Some(KeyKind::Aes),
            2 => Some(KeyKind::Aes256k),
            _ => None,
        }
    }

    /// As `ceph-authtool --key-type` names it.
    pub fn name(self) -> &'static str {
        match self {
            KeyKind::Aes => "aes",
            KeyKind::Aes256k => "aes256k",
        }
    }

    pub fn secret_len(self) -> usize {
        match self {
            KeyKind::Aes => aes128::KEY_LEN,
            KeyKind::Aes256k => aes256k::KEY_LEN,
        }
    }
}

/// The purpose of sealed bytes (`CEPHX_KEY_USAGE_*`). `aes256k` derives other keys for each; AES-128 ignores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    AuthConnectionSecret = 0x03,
    TicketSessionKey = 0x04,
    TicketBlob = 0x05,
    Authorize = 0x10,
    AuthorizeChallenge = 0x11,
    AuthorizeReply = 0x12,
    RotatingSecret = 0x20,
    TicketInfo = 0x30,
}

/// A secret key (`CryptoKey`): its kind decides the cipher. Keys compare in constant time.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// A [`KeyKind`] by number; another number is a key that shoal cannot use but keeps.
    pub kind: u16,
    pub created: UTime,
    pub secret: Secret,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum KeyError {
    #[error("not base64")]
    Base64,
    #[error("not an encoded key")]
    Encoding,
    #[error("a key of kind {0}, which shoal does not know")]
    Kind(u16),
    #[error("a key that is too short")]
    Length,
    #[error("cannot be opened with this key")]
    Open,
}

impl Key {
    pub fn generate(kind: KeyKind, created: UTime, entropy: &mut impl Entropy) -> Key {
        let mut secret = Secret::zeroed(kind.secret_len());
        entropy.fill(secret.bytes_mut());
        Key { kind: kind as u16, created, secret }
    }

    /// The form in keyrings and of `ceph-authtool -p`.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.to_vec(Features::ALL))
    }

    pub fn from_base64(text: &str) -> Result<Key, KeyError> {
        let raw = STANDARD.decode(text.trim()).map_err(|_| KeyError::Base64)?;
        let key: Key = codec::decode_exact(&raw).map_err(|_| KeyError::Encoding)?;
        key.usable()?;
        Ok(key)
    }

    pub fn usable(&self) -> Result<KeyKind, KeyError> {
        let kind = KeyKind::from_number(self.kind).ok_or(KeyError::Kind(self.kind))?;
        if self.secret.len() < kind.secret_len() {
            return Err(KeyError::Length);
        }
        Ok(kind)
    }

    pub fn encrypt(
        &self,
        usage: Usage,
        plaintext: &[u8],
        entropy: &mut impl Entropy,
    ) -> Result<Vec<u8>, KeyError> {
        match self.usable()? {
            KeyKind::Aes => Ok(aes128::encrypt(&self.secret, plaintext)),
            KeyKind::Aes256k => {
                let mut confounder = [0; 16];
                entropy.fill(&mut confounder);
                Ok(aes256k::encrypt(&self.secret, usage as u32, &confounder, plaintext))
            }
        }
    }

    pub fn decrypt(&self, usage: Usage, ciphertext: &[u8]) -> Result<Vec<u8>, KeyError> {
        match self.usable()? {
            KeyKind::Aes => aes128::decrypt(&self.secret, ciphertext),
            KeyKind::Aes256k => aes256k::decrypt(&self.secret, usage as u32, ciphertext),
        }
        .ok_or(KeyError::Open)
    }

    /// The whole secret is the HMAC's key, whatever its kind.
    pub fn hmac_sha256(&self, data: &[u8]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        hmac::sign(&key, data).as_ref().try_into().expect("SHA-256 is 32 bytes")
    }
}

impl std::fmt::Debug for Key {
    /// Never the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match KeyKind::from_number(self.kind) {
            Some(kind) => write!(f, "Key({})", kind.name()),
            None => write!(f, "Key(kind {})", self.kind),
        }
    }
}

/// `u16 kind | created | u16 length | secret`
impl Encode for Key {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.kind);
        w.put(&self.created);
        w.u16(u16::try_from(self.secret.len()).expect("a key is short"));
        w.raw(&self.secret);
    }
}

impl Decode for Key {
    const MIN_LEN: usize = 12;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (kind, created) = (r.u16()?, r.get()?);
        let len = r.u16()? as usize;
        Ok(Key { kind, created, secret: Secret::new(r.take("secret", len)?) })
    }
}
