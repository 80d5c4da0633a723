//! Independent streams of random numbers, derived from one seed.

use machine::Random;

/// The stream of a seed with this name. Draws from one stream do not shift another.
pub fn stream(seed: u64, name: &str) -> Random {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut random = Random::from_number(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    random.fork()
}
