//! Keys of an encrypted store: the data key in the superblock, wrapped by a key-encryption key.
//!
//! ```text
//! secret (a key file, or the monitors' config-key) ─HKDF-SHA-256, salt: the store's identity─▶ key-encryption key
//! key-encryption key ─AES-256 key wrap (RFC 3394)─▶ data key, 64 bytes ─AES-256-XTS─▶ all blocks but the superblock's
//! ```
//!
//! The key wrap has an integrity check of 64 bits, and the superblock a checksum. So a wrong key and a damaged superblock are
//! told apart: with a wrong key the checksum matches and the check fails.

use crate::varint;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::key_wrap::{AES_256, AesKek, KeyWrap};
use codec::{DecodeError, Reader};
use device::encrypted::{DATA_KEY_BYTES, DataKey};
use std::fmt;
use thiserror::Error;
use wire::cephx::Secret;
use zeroize::Zeroizing;

use super::Identity;

/// No encryption: also the padding of a superblock that was written without this field.
const PLAIN: u64 = 0;
const AES_256_XTS: u64 = 1;
/// A wrapped data key.
const WRAPPED_BYTES: usize = DATA_KEY_BYTES + 8;
/// Shortest secret: as many bits as the key that follows from it.
const SECRET_BYTES_MIN: usize = 32;
const SECRET_BYTES_MAX: usize = 64 << 10;
const KEK_BYTES: usize = 32;
/// Binds the derived key to its use.
const KEK_INFO: &[u8] = b"shoal block store, key-encryption key, version 1";

/// The secret that opens a store: contents of a key file, or a value of the monitors' config-key store. Wiped when dropped,
/// never printed.
#[derive(Clone, Debug)]
pub struct KeySecret(Secret);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the key has {0} bytes; {SECRET_BYTES_MIN} random bytes are the least, and {SECRET_BYTES_MAX} bytes the most"
)]
pub struct SecretLength(usize);

impl KeySecret {
    /// Line ends behind the secret are not a part of it, so text may be kept in a file. Random bytes may end like a line: the
    /// first [`SECRET_BYTES_MIN`] are kept in any case.
    pub fn new(bytes: &[u8]) -> Result<KeySecret, SecretLength> {
        let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        let end = if end == 0 { 0 } else { end.max(SECRET_BYTES_MIN.min(bytes.len())) };
        match end {
            SECRET_BYTES_MIN..=SECRET_BYTES_MAX => Ok(KeySecret(Secret::new(&bytes[..end]))),
            other => Err(SecretLength(other)),
        }
    }

    fn kek(&self, identity: &Identity) -> AesKek {
        struct KekLen;
        impl KeyType for KekLen {
            fn len(&self) -> usize {
                KEK_BYTES
            }
        }
        let derived = Salt::new(HKDF_SHA256, &identity.0).extract(&self.0);
        let mut kek = Zeroizing::new([0; KEK_BYTES]);
        let filled = derived.expand(&[KEK_INFO], KekLen).and_then(|out| out.fill(&mut *kek));
        filled.expect("HKDF yields 32 bytes");
        AesKek::new(&AES_256, &*kek).expect("the key has the length of AES-256")
    }
}

/// Place of the secret, for the message that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyHolder {
    /// A file, whose path the store does not know.
    File = 1,
    /// The monitors: `dm-crypt/osd/<fsid>/luks` in the config-key store.
    Monitors = 2,
}

impl fmt::Display for KeyHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyHolder::File => "in a key file",
            KeyHolder::Monitors => "with the monitors",
        })
    }
}

/// The superblock's record of an encrypted store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    pub holder: KeyHolder,
    wrapped: [u8; WRAPPED_BYTES],
}

/// Keys of a store that is to be made.
#[derive(Clone, Debug)]
pub struct NewKeys {
    /// Random.
    pub data_key: DataKey,
    pub secret: KeySecret,
    pub holder: KeyHolder,
}

impl Encryption {
    pub fn new(identity: &Identity, data_key: &DataKey, secret: &KeySecret, holder: KeyHolder) -> Encryption {
        let mut wrapped = [0; WRAPPED_BYTES];
        let out = secret.kek(identity).wrap(data_key.bytes(), &mut wrapped);
        assert_eq!(out.expect("a data key is a multiple of 8 bytes").len(), WRAPPED_BYTES);
        Encryption { holder, wrapped }
    }

    /// The data key; `None` with a wrong secret.
    pub fn unlock(&self, identity: &Identity, secret: &KeySecret) -> Option<DataKey> {
        let mut key = Zeroizing::new([0; DATA_KEY_BYTES]);
        secret.kek(identity).unwrap(&self.wrapped, &mut *key).ok()?;
        DataKey::new(&key)
    }

    pub(super) fn put(this: Option<&Encryption>, out: &mut Vec<u8>) {
        let Some(Encryption { holder, wrapped }) = this else { return varint::put(out, PLAIN) };
        varint::put(out, AES_256_XTS);
        out.push(*holder as u8);
        out.extend_from_slice(wrapped);
    }

    pub(super) fn take(r: &mut Reader<'_>) -> Result<Option<Encryption>, DecodeError> {
        let offset = r.offset();
        match varint::take(r)? {
            PLAIN => return Ok(None),
            AES_256_XTS => {}
            value => return Err(DecodeError::Invalid { what: "cipher of the store", value, offset }),
        }
        let offset = r.offset();
        let holder = match r.u8()? {
            1 => KeyHolder::File,
            2 => KeyHolder::Monitors,
            other => {
                return Err(DecodeError::Invalid { what: "holder of the key", value: other.into(), offset });
            }
        };
        Ok(Some(Encryption { holder, wrapped: r.get()? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> KeySecret {
        KeySecret::new(&[byte; 40]).unwrap()
    }

    #[test]
    fn data_key_is_wrapped_for_one_secret_and_store() {
        let (own, other) = (Identity([1; 16]), Identity([2; 16]));
        let data_key = DataKey::new(&std::array::from_fn(|i| i as u8)).unwrap();
        let encryption = Encryption::new(&own, &data_key, &secret(1), KeyHolder::File);
        let unlocked = encryption.unlock(&own, &secret(1)).expect("the secret is right");
        assert_eq!(unlocked.bytes(), data_key.bytes());
        assert!(encryption.unlock(&own, &secret(2)).is_none(), "another secret");
        assert!(encryption.unlock(&other, &secret(1)).is_none(), "another store");
        for byte in 0..WRAPPED_BYTES {
            let mut damaged = encryption.clone();
            damaged.wrapped[byte] ^= 1;
            assert!(damaged.unlock(&own, &secret(1)).is_none(), "byte {byte}");
        }
        let plain = data_key.bytes().windows(8).any(|part| encryption.wrapped.windows(8).any(|w| w == part));
        assert!(!plain, "a part of the data key is readable");
    }

    #[test]
    fn record_survives_encoding_and_unknown_ones_are_refused() {
        let data_key = DataKey::new(&std::array::from_fn(|i| i as u8)).unwrap();
        for holder in [KeyHolder::File, KeyHolder::Monitors] {
            let encryption = Encryption::new(&Identity([1; 16]), &data_key, &secret(1), holder);
            let mut out = Vec::new();
            Encryption::put(Some(&encryption), &mut out);
            assert_eq!(Encryption::take(&mut Reader::new(&out)), Ok(Some(encryption)));
            for (at, value) in [(0, 2), (1, 0), (1, 3)] {
                let mut unknown = out.clone();
                unknown[at] = value;
                assert!(Encryption::take(&mut Reader::new(&unknown)).is_err());
            }
        }
        assert_eq!(Encryption::take(&mut Reader::new(&[0])), Ok(None));
    }

    #[test]
    fn secret_is_long_enough_and_never_printed() {
        assert!(KeySecret::new(&[7; 31]).is_err());
        let random: [u8; 32] = std::array::from_fn(|i| if i < 30 { 7 } else { b'\n' });
        assert!(KeySecret::new(&random).is_ok(), "random bytes that end like a line");
        assert!(KeySecret::new(&[b'\n'; 40]).is_err());
        let text = [&[b'a'; 44][..], b"\r\n"].concat();
        assert_eq!(KeySecret::new(&text).unwrap().0, KeySecret::new(&[b'a'; 44]).unwrap().0);
        assert_eq!(format!("{:?}", secret(b'x')), "KeySecret(Secret(40 bytes))");
    }
}
