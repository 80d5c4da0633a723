//! Payloads that prove a read: each names its object and version, and all its other bytes follow from the two.
//!
//! ```text
//! 0        8        16
//! | object | version | words of a generator seeded by both …
//! ```
//! Both little-endian. A payload shorter than 16 bytes is cut from that.

const HEAD: usize = 16;

pub fn make(object: u64, version: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + HEAD);
    out.extend_from_slice(&object.to_le_bytes());
    out.extend_from_slice(&version.to_le_bytes());
    let mut state = seed(object, version);
    while out.len() < len {
        out.extend_from_slice(&word(&mut state).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// True if these bytes are a whole payload of this object, of this version or a later one.
pub fn check(object: u64, version_min: u64, bytes: &[u8]) -> bool {
    if bytes.len() < HEAD {
        return bytes == &object.to_le_bytes()[..bytes.len().min(8)];
    }
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (named, version) = (number(0), number(8));
    if named != object || version < version_min {
        return false;
    }
    let mut state = seed(object, version);
    bytes[HEAD..].chunks(8).all(|chunk| chunk == &word(&mut state).to_le_bytes()[..chunk.len()])
}

fn seed(object: u64, version: u64) -> u64 {
    object.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version.rotate_left(32)
}

/// SplitMix64.
fn word(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn changed_byte_is_found(object: u64, version in 1u64..1 << 40, len in 24usize..600, at: prop::sample::Index, flip in 1u8..) {
            let mut bytes = make(object, version, len);
            prop_assert_eq!(bytes.len(), len);
            prop_assert!(check(object, version, &bytes));
            prop_assert!(check(object, 0, &bytes), "a later version than the one known of is right");
            prop_assert!(!check(object, version + 1, &bytes), "an older one is not");
            prop_assert!(!check(object ^ 1, 0, &bytes));
            bytes[at.index(len)] ^= flip;
            prop_assert!(!check(object, version, &bytes));
        }
    }

    #[test]
    fn mixed_versions_are_found() {
        let (a, b) = (make(7, 1, 4096), make(7, 2, 4096));
        let torn = [&b[..2048], &a[2048..]].concat();
        assert!(!check(7, 1, &torn));
    }
}
