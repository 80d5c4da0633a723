//! Bloom filters of segments.
//!
//! A filter has lines of 64 bytes, and all bits of a key lie in one line, so a query costs one cache miss. With 16 bits per
//! key about one absent key in 600 passes: each costs a block of entries, mostly of the device, and a transaction of 1,000
//! new keys asks every run. Tables of older programs have 10 bits per key.

const LINE: usize = 64;
const BITS_PER_KEY: usize = 16;
const PROBES: u32 = 6;

/// Hash of a key, part of the disk format: eight bytes at a time, the 128-bit product with a constant folded in half, and
/// the length of the key at the end.
pub fn hash(key: &[u8]) -> u64 {
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    let fold = |value: u64| {
        let product = value as u128 * FACTOR as u128;
        product as u64 ^ (product >> 64) as u64
    };
    let mut state = SEED;
    let mut words = key.chunks_exact(8);
    for word in &mut words {
        state = fold(state ^ u64::from_le_bytes(word.try_into().expect("eight bytes")));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    state = fold(state ^ u64::from_le_bytes(last));
    fold(state ^ SEED ^ key.len() as u64)
}

/// The filter of keys with these hashes.
pub fn build(hashes: &[u64]) -> Vec<u8> {
    let lines = (hashes.len() * BITS_PER_KEY).div_ceil(LINE * 8);
    let mut out = vec![0; lines * LINE];
    add(&mut out, hashes);
    out
}

/// Adds keys to a filter. More of them pass then, and an empty one passes all.
pub fn add(filter: &mut [u8], hashes: &[u64]) {
    let lines = filter.len() / LINE;
    if lines == 0 {
        return;
    }
    for hash in hashes {
        let line = line(*hash, lines);
        for bit in bits(*hash) {
            filter[line * LINE + bit / 8] |= 1 << (bit % 8);
        }
    }
}

/// False only if no key with this hash was given to [`build`] or [`add`].
pub fn may_hold(filter: &[u8], hash: u64) -> bool {
    let lines = filter.len() / LINE;
    if lines == 0 {
        return true;
    }
    let line = &filter[line(hash, lines) * LINE..][..LINE];
    bits(hash).all(|bit| line[bit / 8] & 1 << (bit % 8) != 0)
}

fn line(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// Six times nine bits of the hash, mixed again so that they are independent of the line.
fn bits(hash: u64) -> impl Iterator<Item = usize> {
    let mixed = hash.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ (hash >> 29);
    (0..PROBES).map(move |i| (mixed >> (9 * i)) as usize & (LINE * 8 - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_keys_pass_and_few_others_do() {
        let key = |i: u64| [&b"some prefix that all share"[..], &i.to_be_bytes()].concat();
        let hashes: Vec<u64> = (0..1300).map(|i| hash(&key(i))).collect();
        let filter = build(&hashes);
        assert!(hashes.iter().all(|hash| may_hold(&filter, *hash)));
        let passed = (1300..101_300).filter(|i| may_hold(&filter, hash(&key(*i)))).count();
        assert!(passed < 400, "{passed} of 100000 absent keys passed");
        assert_eq!(filter.len(), 41 * 64);
    }

    #[test]
    fn hash_matches_the_format() {
        let hashes = [hash(b""), hash(b"\0"), hash(b"object"), hash(b"a key of more than eight bytes")];
        // Computed separately, from the description in docs/on-disk-format.md.
        let expected: [u64; 4] =
            [0x4f329cadfaf7c73c, 0x941d9de59c5dc9af, 0x916985fe52877f18, 0xf4b6f2ff6298242d];
        assert_eq!(hashes, expected);
    }

    #[test]
    fn filter_bits_match_the_format() {
        let filter = build(&[hash(b"object")]);
        let set: Vec<usize> = (0..512).filter(|bit| filter[bit / 8] & 1 << (bit % 8) != 0).collect();
        assert_eq!(set, [109, 228, 298, 386, 458, 489]);
    }

    #[test]
    fn empty_filter_passes_all_keys() {
        assert!(may_hold(&build(&[]), 7) && may_hold(&[1; 30], 7));
    }
}
