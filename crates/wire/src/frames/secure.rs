//! Secure mode's cipher: AES-128-GCM, each direction with its own counted nonces (`crypto_onwire.cc`).

use super::layout::TAG_LEN;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};

/// Length of the secret that authentication agrees on: a key, two nonces, and room that is not used.
pub const CONNECTION_SECRET_LEN: usize = 64;
const KEY_LEN: usize = 16;

/// Our end of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Connecting,
    Accepting,
}

/// Both directions' keys.
pub struct SecureKeys {
    pub(super) rx: Stream,
    pub(super) tx: Stream,
}

impl SecureKeys {
    /// `None` when the secret is too short.
    pub fn new(connection_secret: &[u8], side: Side) -> Option<SecureKeys> {
        let key = connection_secret.get(..KEY_LEN)?;
        let to_connecting = connection_secret.get(KEY_LEN..KEY_LEN + NONCE_LEN)?;
        let to_accepting = connection_secret.get(KEY_LEN + NONCE_LEN..KEY_LEN + 2 * NONCE_LEN)?;
        let (rx, tx) = match side {
            Side::Connecting => (to_connecting, to_accepting),
            Side::Accepting => (to_accepting, to_connecting),
        };
        Some(SecureKeys { rx: Stream::new(key, rx), tx: Stream::new(key, tx) })
    }
}

/// One direction. A nonce is a fixed `u32` and a `u64` that counts sealings; 2^64 of them are never used up.
pub(super) struct Stream {
    key: LessSafeKey,
    fixed: [u8; 4],
    counter: u64,
}

impl Stream {
    fn new(key: &[u8], nonce: &[u8]) -> Stream {
        let key = UnboundKey::new(&AES_128_GCM, key).expect("16 bytes are an AES-128 key");
        Stream {
            key: LessSafeKey::new(key),
            fixed: nonce[..4].try_into().expect("a nonce of 12 bytes"),
            counter: u64::from_le_bytes(nonce[4..].try_into().expect("a nonce of 12 bytes")),
        }
    }

    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&self.fixed);
        nonce[4..].copy_from_slice(&self.counter.to_le_bytes());
        self.counter = self.counter.wrapping_add(1);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypt in place; the tag goes behind it.
    pub fn seal(&mut self, in_out: &mut [u8]) -> Tag {
        let nonce = self.next_nonce();
        self.key
            .seal_in_place_separate_tag(nonce, Aad::empty(), in_out)
            .expect("a frame is under GCM's 64 GiB")
    }

    /// Decrypt in place: ciphertext and tag become plaintext and rubbish. `false` when the tag does not match.
    #[must_use]
    pub fn open(&mut self, in_out: &mut [u8]) -> bool {
        let nonce = self.next_nonce();
        in_out.len() >= TAG_LEN && self.key.open_in_place(nonce, Aad::empty(), in_out).is_ok()
    }
}
