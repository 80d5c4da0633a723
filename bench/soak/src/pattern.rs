//! Object data that a device can keep in four bytes a block.
//!
//! A block of object data is a magic number, a *mark* that names the object and block that it belongs to, and a fixed
//! filler. The device keeps the mark and regenerates the rest; a reader compares the mark with what it asked for.

use bytes::Bytes;
use codec::Rope;
use device::BLOCK;
use std::sync::LazyLock;

const MAGIC: &[u8; 12] = b"shoal soak\0\0";
const HEAD: usize = MAGIC.len() + 4;

/// Bytes of every block behind its mark.
static FILLER: LazyLock<Bytes> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (0..(BLOCK - HEAD) / 8).flat_map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()
    });
    words.collect::<Vec<u8>>().into()
});

/// The block with this mark.
pub fn block(mark: u32) -> Rope {
    let mut head = Vec::with_capacity(HEAD);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&mark.to_le_bytes());
    [Bytes::from(head), FILLER.clone()].into_iter().collect()
}

/// Appends the block with this mark.
pub fn regenerate(mark: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&mark.to_le_bytes());
    out.extend_from_slice(&FILLER);
}

/// The mark of a block; `None` if the block is not made by [`block`].
pub fn mark_of(block: &[u8]) -> Option<u32> {
    let (head, filler) = block.split_at_checked(HEAD)?;
    let (magic, mark) = head.split_at(MAGIC.len());
    let is_pattern = magic == MAGIC && filler == &FILLER[..];
    is_pattern.then(|| u32::from_le_bytes(mark.try_into().expect("four bytes")))
}

/// The mark of a block of an object. Never zero.
pub fn mark(object: u64, block: u64) -> u32 {
    let mixed = (object << 20 ^ block).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regenerated_block_equals_the_written_one() {
        let written = block(77).to_bytes();
        let mut regenerated = Vec::new();
        regenerate(77, &mut regenerated);
        assert_eq!(written, regenerated);
        assert_eq!(mark_of(&written), Some(77));
    }

    #[test]
    fn mark_of_a_changed_block_is_none() {
        let mut bytes = block(77).to_bytes().to_vec();
        bytes[4000] ^= 1;
        assert_eq!(mark_of(&bytes), None);
    }
}
