//! The checksum inside a map: over all of the envelope but the checksum itself.

use ::codec::{DecodeError, Writer};
use crc_fast::{CrcAlgorithm, Digest};

/// crc32c as Ceph computes it, of two pieces in a row: started from all ones and not inverted at the end.
fn crc32c(front: &[u8], tail: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(front);
    digest.update(tail);
    !(digest.finalize() as u32)
}

/// Fill in the checksum at `at` of what was written from `start` on.
pub(super) fn close(w: &mut Writer, start: usize, at: usize) -> u32 {
    let crc = crc32c(&w.as_slice()[start..at], &w.as_slice()[at + 4..]);
    w.patch_u32(at, crc);
    crc
}

/// `whole` is the envelope; the checksum that it holds at `at` was read as `stored`.
pub(super) fn verify(what: &'static str, whole: &[u8], at: usize, stored: u32) -> Result<(), DecodeError> {
    if crc32c(&whole[..at], &whole[at + 4..]) != stored {
        return Err(DecodeError::Invalid { what, value: stored.into(), offset: at });
    }
    Ok(())
}
