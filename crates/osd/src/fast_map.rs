//! Hash maps for the data path: a fixed, cheap hasher, the same in every run.
//!
//! The default hasher draws a random key per process (so a simulated run would not replay) and costs about 20 ns
//! a small key. This one multiplies and folds each word. It does not resist a client that picks colliding keys on
//! purpose; what a client can choose freely (object names) is keyed by Ceph's own object hash instead, and a
//! client that breaks that hash slows only the PG that it may write anyway.

#![allow(clippy::disallowed_types, reason = "the hasher is fixed, so the order is the same in every run")]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;
pub type FastSet<K> = HashSet<K, BuildHasherDefault<FastHasher>>;

/// Folded multiplication, one round a word.
#[derive(Clone, Copy, Default)]
pub struct FastHasher(u64);

/// An odd number without structure (the fraction of the golden ratio).
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

impl FastHasher {
    #[inline]
    fn word(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word).wrapping_mul(u128::from(MIX));
        self.0 = (wide as u64) ^ ((wide >> 64) as u64) ^ self.0.rotate_left(23);
    }
}

impl Hasher for FastHasher {
    #[inline]
    fn finish(&self) -> u64 {
        // The map takes its bucket from the low bits and its tag from the high ones: both must depend on all.
        let wide = u128::from(self.0).wrapping_mul(u128::from(MIX));
        (wide as u64) ^ ((wide >> 64) as u64)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|w| self.word(u64::from_le_bytes(*w)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    #[inline]
    fn write_u8(&mut self, v: u8) {
        self.word(v as u64);
    }

    #[inline]
    fn write_u32(&mut self, v: u32) {
        self.word(v as u64);
    }

    #[inline]
    fn write_u64(&mut self, v: u64) {
        self.word(v);
    }

    #[inline]
    fn write_usize(&mut self, v: usize) {
        self.word(v as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> u64 {
        let mut h = FastHasher::default();
        h.write(bytes);
        h.finish()
    }

    #[test]
    fn neighbours_spread_over_low_and_high_bits() {
        let (mut low, mut high) = (FastSet::default(), FastSet::default());
        for n in 0u64..4096 {
            let mut h = FastHasher::default();
            h.write_u64(n);
            low.insert(h.finish() & 0xfff);
            high.insert(h.finish() >> 52);
        }
        // Random throws into 4096 boxes fill about 63 % of them.
        assert!(low.len() > 2300 && high.len() > 2300, "{} {}", low.len(), high.len());
    }

    #[test]
    fn length_counts() {
        assert_ne!(hash(b"a"), hash(b"a\0"));
        assert_ne!(hash(b""), hash(b"\0\0\0\0\0\0\0\0"));
    }
}
