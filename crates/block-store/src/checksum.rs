//! crc32c, the checksum of the disk format.

use codec::Rope;
use crc_fast::{CrcAlgorithm, Digest, checksum_combine, crc32_iscsi};
use device::BLOCK;
use std::sync::LazyLock;

pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// Checksum of a concatenation: bytes with the checksum `front`, then a block with the checksum `block`.
pub fn followed_by(front: u32, block: u32) -> u32 {
    /// Effect of a block of zeroes on a checksum, for each of its bytes: the effect is linear.
    static MOVED: LazyLock<Box<[[u32; 256]; 4]>> = LazyLock::new(|| {
        let moved = |crc: u64| checksum_combine(CrcAlgorithm::Crc32Iscsi, crc, 0, BLOCK as u64) as u32;
        let mut tables = Box::new([[0; 256]; 4]);
        for (place, table) in tables.iter_mut().enumerate() {
            for (byte, entry) in table.iter_mut().enumerate() {
                *entry = moved((byte as u64) << (8 * place));
            }
        }
        tables
    });
    let bytes = front.to_le_bytes();
    let moved = MOVED.iter().zip(bytes).fold(0, |all, (table, byte)| all ^ table[byte as usize]);
    moved ^ block
}

/// Conversion between the checksum of the disk format and that of frames, which lacks the final inversion; see
/// [`Rope::sum`].
pub fn of_frame(crc: u32) -> u32 {
    !crc
}

/// The checksum of each block of `rope`. The last block is padded with zeroes.
pub fn of_blocks(rope: &Rope, mut each: impl FnMut(u32)) {
    static ZEROES: [u8; BLOCK] = [0; BLOCK];
    // The messenger has verified the checksum of the frame. It is kept, so that one checksum covers the bytes from the
    // client to the disk.
    if let Some(sum) = rope.sum().filter(|_| rope.len() == BLOCK) {
        return each(of_frame(sum));
    }
    let mut digest: Option<Digest> = None;
    let mut filled = 0;
    for piece in rope.pieces() {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(BLOCK - filled));
            rest = after;
            if part.len() == BLOCK {
                each(crc32c(part));
                continue;
            }
            let running = digest.get_or_insert_with(|| Digest::new(CrcAlgorithm::Crc32Iscsi));
            running.update(part);
            filled += part.len();
            if filled == BLOCK {
                each(digest.take().expect("begun above").finalize() as u32);
                filled = 0;
            }
        }
    }
    if let Some(mut running) = digest {
        running.update(&ZEROES[filled..]);
        each(running.finalize() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn crc32c_has_the_known_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn block_checksums_combine_to_that_of_all_bytes() {
        let bytes: Vec<u8> = (0..5 * BLOCK).map(|i| (i * 7 + i / 300) as u8).collect();
        let crcs: Vec<u32> = bytes.chunks(BLOCK).map(crc32c).collect();
        let joined = crcs.iter().copied().reduce(followed_by).unwrap();
        assert_eq!(joined, crc32c(&bytes));
        assert_eq!(of_frame(joined), wire::frames::crc32c(&bytes));
    }

    #[test]
    fn block_keeps_the_checksum_of_its_frame() {
        let sum_of = |bytes: &[u8]| Some(wire::frames::crc32c(bytes));
        for len in [100, BLOCK, 2 * BLOCK] {
            let bytes: Bytes = (0..len).map(|i| (i * 5 + i / 256) as u8).collect::<Vec<_>>().into();
            let (mut with, mut without) = (Vec::new(), Vec::new());
            of_blocks(&Rope::summed(bytes.clone(), sum_of(&bytes)), |crc| with.push(crc));
            of_blocks(&Rope::from(bytes), |crc| without.push(crc));
            assert_eq!(with, without, "{len} bytes");
        }
        let block = Bytes::from(vec![1; BLOCK]);
        let other = Rope::summed(block, sum_of(&[2; BLOCK]));
        of_blocks(&other, |crc| assert_eq!(crc, crc32c(&[2; BLOCK]), "not computed again"));
    }

    #[test]
    fn block_checksums_do_not_depend_on_rope_pieces() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 100).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut padded = bytes.clone();
        padded.resize(4 * BLOCK, 0);
        let expected: Vec<u32> = padded.chunks(BLOCK).map(crc32c).collect();
        for cut in [1, 100, BLOCK, BLOCK + 5, 2 * BLOCK, bytes.len()] {
            let rope: Rope = bytes.chunks(cut).map(Bytes::copy_from_slice).collect();
            let mut got = Vec::new();
            of_blocks(&rope, |crc| got.push(crc));
            assert_eq!(got, expected, "cut every {cut}");
        }
    }
}
