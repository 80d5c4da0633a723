//! Randomness from a seed: the same seed gives the same machine.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A stream of random numbers fit for keys and nonces when the host seeds it from the operating system, and
/// replayable when a test seeds it by hand.
#[derive(Clone, Debug)]
pub struct Random(ChaCha20Rng);

impl Random {
    pub fn from_seed(seed: [u8; 32]) -> Random {
        Random(ChaCha20Rng::from_seed(seed))
    }

    /// A reproducible stream: for tests, the simulator and measured loads.
    pub fn from_number(seed: u64) -> Random {
        Random(ChaCha20Rng::seed_from_u64(seed))
    }

    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A number in `0..end`. The bias of at most `end / 2^64` does not matter for scheduling.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { ((self.u64() as u128 * end as u128) >> 64) as u64 }
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// An independent stream, so that one consumer's appetite does not shift another's numbers.
    pub fn fork(&mut self) -> Random {
        Random::from_seed(self.bytes())
    }
}

impl wire::cephx::Entropy for Random {
    fn fill(&mut self, out: &mut [u8]) {
        Random::fill(self, out);
    }
}
