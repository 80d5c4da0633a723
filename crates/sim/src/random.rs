//! Streams of random numbers that have nothing to do with one another.

use machine::Random;

/// The stream of a seed that has this name: who draws from it shifts no other.
pub fn stream(seed: u64, name: &str) -> Random {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut random = Random::from_number(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    random.fork()
}
