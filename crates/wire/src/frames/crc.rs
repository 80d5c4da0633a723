//! The checksum of frames: crc32c as Ceph uses it, started from all ones and never inverted at the end.
//!
//! `crc-fast` computes the standard iSCSI form, which inverts at the end; the two differ by that inversion only.

use crc_fast::{CrcAlgorithm, Digest};

/// `ceph_crc32c(-1, data)`.
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    !crc_fast::crc32_iscsi(data)
}

/// The same over bytes in pieces.
pub struct Crc32c(Digest);

impl Crc32c {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Crc32c {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub fn finish(self) -> u32 {
        !(self.0.finalize() as u32)
    }
}

/// `ceph_crc32c(0, data)` of a preamble's 28 bytes. A crc is affine in its seed: the difference between seeds 0
/// and -1 is the same for all data of one length.
pub(super) fn crc32c_from_zero(data: &[u8; 28]) -> u32 {
    /// `crc32c` of 28 zero bytes.
    const OF_ZEROES: u32 = 0x0836_3896;
    crc32c(data) ^ OF_ZEROES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, from the polynomial's definition.
    fn slow(seed: u32, data: &[u8]) -> u32 {
        data.iter().fold(seed, |mut crc, &byte| {
            crc ^= byte as u32;
            for _ in 0..8 {
                crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            }
            crc
        })
    }

    #[test]
    fn crc_is_crc32c_with_cephs_seed() {
        // Values that Ceph's own test of crc32c expects.
        assert_eq!(slow(0, b"foo bar baz"), 4119623852);
        assert_eq!(slow(1234, b"foo bar baz"), 881700046);
        assert_eq!(slow(0, b"whiz bang boom"), 2360230088);
        let data: Vec<u8> = (0..10_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for len in [0, 1, 3, 15, 16, 41, 255, 256, 4096, 10_000] {
            assert_eq!(crc32c(&data[..len]), slow(u32::MAX, &data[..len]), "{len} bytes");
        }
        let mut pieces = Crc32c::new();
        data.chunks(37).for_each(|c| pieces.update(c));
        assert_eq!(pieces.finish(), crc32c(&data));
    }

    #[test]
    fn preamble_crc_starts_from_zero() {
        let data: [u8; 28] = std::array::from_fn(|i| (i * 11) as u8);
        assert_eq!(crc32c_from_zero(&data), slow(0, &data));
        assert_eq!(crc32c_from_zero(&[0; 28]), 0);
    }
}
