//! Hashes of object names, to 32 bits: the two functions that a pool may have.

use crate::crush::hash::mix;

/// Robert Jenkins' string hash (`CEPH_STR_HASH_RJENKINS`), which every pool has had for a decade.
pub fn rjenkins(bytes: &[u8]) -> u32 {
    const GOLDEN_RATIO: u32 = 0x9e37_79b9;
    let (mut a, mut b, mut c) = (GOLDEN_RATIO, GOLDEN_RATIO, 0u32);
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));

    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        a = a.wrapping_add(word(&block[0..4]));
        b = b.wrapping_add(word(&block[4..8]));
        c = c.wrapping_add(word(&block[8..12]));
        mix(&mut a, &mut b, &mut c);
    }
    // What is left, up to 11 bytes, padded with zeroes; the lowest byte of the last word is the length's.
    let tail = blocks.remainder();
    let mut block = [0; 12];
    let split = tail.len().min(8);
    block[..split].copy_from_slice(&tail[..split]);
    block[9..9 + tail.len() - split].copy_from_slice(&tail[split..]);
    a = a.wrapping_add(word(&block[0..4]));
    b = b.wrapping_add(word(&block[4..8]));
    c = c.wrapping_add(word(&block[8..12])).wrapping_add(bytes.len() as u32);
    mix(&mut a, &mut b, &mut c);
    c
}

/// The hash of the Linux directory cache (`CEPH_STR_HASH_LINUX`), for pools from before rjenkins.
pub fn linux_dcache(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0u32, |hash, &byte| {
        let byte = u32::from(byte);
        hash.wrapping_add(byte << 4).wrapping_add(byte >> 4).wrapping_mul(11)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of Ceph's `ceph_str_hash`.
    #[test]
    fn hashes_equal_cephs() {
        let expected: [(&[u8], u32, u32); 7] = [
            (b"", 0xbd49d10d, 0x00000000),
            (b"a", 0x29eec818, 0x000042f2),
            (b"foo", 0x7fc1f406, 0x0024db2a),
            (b"rbd_header.1", 0xa298becf, 0x922d8df4),
            (b"hello world", 0x1aa919e6, 0x1f2e3c54),
            (b"0123456789abcdefghij\xff\xfe", 0x74ae4acb, 0x09984860),
            (b"benchmark_data_host_1234_object17", 0x9713034f, 0x8b52d7b1),
        ];
        for (name, jenkins, dcache) in expected {
            assert_eq!(rjenkins(name), jenkins, "{name:?}");
            assert_eq!(linux_dcache(name), dcache, "{name:?}");
        }
    }
}
