//! A value under a key: `u8 1 | u64 magic | value`, encrypted. The magic is what tells a wrong AES-128 key.

use super::{Entropy, Key, KeyError, Usage};
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use thiserror::Error;
use zeroize::Zeroizing;

const MAGIC: u64 = 0xff00_9cad_8826_aa55;

#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SealError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("sealed with another key")]
    Magic,
}

/// The ciphertext alone (`encode_encrypt_enc_bl`).
pub fn seal(
    key: &Key,
    usage: Usage,
    value: &(impl Encode + ?Sized),
    entropy: &mut impl Entropy,
) -> Result<Vec<u8>, KeyError> {
    let mut w = Writer::new(Features::ALL);
    w.u8(1);
    w.u64(MAGIC);
    w.put(value);
    let plain = Zeroizing::new(w.into_vec());
    key.encrypt(usage, &plain, entropy)
}

/// With its length in front (`encode_encrypt`).
pub fn seal_to(
    w: &mut Writer,
    key: &Key,
    usage: Usage,
    value: &(impl Encode + ?Sized),
    entropy: &mut impl Entropy,
) -> Result<(), KeyError> {
    w.blob(&seal(key, usage, value, entropy)?);
    Ok(())
}

pub fn open<T: Decode>(key: &Key, usage: Usage, sealed: &[u8]) -> Result<T, SealError> {
    let plain = Zeroizing::new(key.decrypt(usage, sealed)?);
    let mut r = Reader::new(&plain);
    r.u8()?;
    if r.u64()? != MAGIC {
        return Err(SealError::Magic);
    }
    Ok(r.get()?)
}

/// The reverse of [`seal_to`].
pub fn open_from<T: Decode>(r: &mut Reader<'_>, key: &Key, usage: Usage) -> Result<T, SealError> {
    open(key, usage, r.blob()?)
}
