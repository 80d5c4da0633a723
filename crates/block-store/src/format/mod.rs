//! What lies where on a device, and how it is found again.
//!
//! ```text
//! block 0, 1     the superblock, twice
//! then, for each shard, its part:
//!     block 0, 1   header slots, written alternately
//!     log          a ring of batches
//!     data         objects' bytes, tables of the index, manifests
//! ```
//!
//! Drawn byte by byte in `docs/on-disk-format.md`.

mod header;
mod superblock;

pub use header::{Header, ManifestPlace, Totals};
pub(crate) use header::{MANIFEST_RUNS_MAX, has_shard_header};
pub(crate) use superblock::UnfinishedFormat;
pub use superblock::{FormatOptions, Identity, Part, Superblock, SuperblockError};

use crate::checksum::crc32c;
use device::BLOCK;

/// Fill up to a whole block; the last four bytes become the checksum of all before them.
pub(crate) fn sealed_block(mut bytes: Vec<u8>) -> Vec<u8> {
    assert!(bytes.len() <= BLOCK - 4, "what is written as one block fits in one");
    bytes.resize(BLOCK - 4, 0);
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// What [`sealed_block`] sealed; `None` when its checksum does not match.
fn unsealed(block: &[u8]) -> Option<&[u8]> {
    let (body, crc) = block.split_at_checked(BLOCK - 4)?;
    (crc32c(body).to_le_bytes() == crc).then_some(body)
}
