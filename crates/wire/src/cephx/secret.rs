//! Secret bytes: wiped when dropped, compared in constant time, never printed.

use aws_lc_rs::constant_time;
use std::fmt;
use zeroize::Zeroizing;

/// The bytes of a key, or of a connection's secret.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<Box<[u8]>>);

impl Secret {
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(Zeroizing::new(bytes.into()))
    }

    /// `len` zeroes, to be filled in place.
    pub fn zeroed(len: usize) -> Secret {
        Secret(Zeroizing::new(vec![0; len].into_boxed_slice()))
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Secret {
        Secret::new(&Zeroizing::new(bytes))
    }
}

impl std::ops::Deref for Secret {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Compares keys, proofs and signatures. The time that it takes depends on the lengths, which are no secret, and not on
/// the bytes.
pub fn is_same_secret(a: &[u8], b: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(a, b).is_ok()
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        is_same_secret(self, other)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cephx::{Key, KeyKind};
    use crate::types::UTime;

    #[test]
    fn secrets_compare_by_bytes() {
        let secret = Secret::new(b"abcd");
        assert_eq!(secret, Secret::new(b"abcd"));
        assert_ne!(secret, Secret::new(b"abce"));
        assert_ne!(secret, Secret::new(b"abc"));
        let mut filled = Secret::zeroed(4);
        filled.bytes_mut().copy_from_slice(b"abcd");
        assert_eq!(filled, secret);
    }

    #[test]
    fn debug_output_has_no_secret() {
        let key = Key { kind: KeyKind::Aes as u16, created: UTime::ZERO, secret: Secret::new(&[0xab; 16]) };
        for text in [format!("{key:?}"), format!("{:?}", key.secret), format!("{:#?}", Some(key.clone()))] {
            assert!(!text.contains("ab") && !text.contains("171"), "{text}");
        }
    }
}
