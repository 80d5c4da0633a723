//! Layout of a device: superblock, shard headers, logs, data.
//!
//! ```text
//! block 0, 1     the superblock, twice
//! then the region of each shard:
//!     block 0, 1   header slots, written alternately
//!     log          a ring of records
//!     data         object data, index tables, manifests
//! ```
//!
//! Drawn byte by byte in `docs/on-disk-format.md`.

mod header;
mod superblock;

pub use header::{Header, ManifestPlace, Totals};
pub(crate) use header::{MANIFEST_RUNS_MAX, has_shard_header};
pub use superblock::{FormatOptions, Identity, Region, Superblock, SuperblockError};
pub(crate) use superblock::{UnfinishedFormat, has_superblock_magic};

use crate::checksum::crc32c;
use device::BLOCK;

/// Pads to a whole block whose last four bytes are the checksum of all before them.
pub(crate) fn sealed_block(mut bytes: Vec<u8>) -> Vec<u8> {
    assert!(bytes.len() <= BLOCK - 4, "the contents of a block fit into it");
    bytes.resize(BLOCK - 4, 0);
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The contents of a block of [`sealed_block`]; `None` if its checksum does not match.
fn unsealed(block: &[u8]) -> Option<&[u8]> {
    let (body, crc) = block.split_at_checked(BLOCK - 4)?;
    (crc32c(body).to_le_bytes() == crc).then_some(body)
}
