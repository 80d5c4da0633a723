//! Layout of a device: superblock, shard headers, logs, zones.
//!
//! ```text
//! block 0        the superblock
//! then           the first header slot of each shard, and the log of each shard: a ring of records
//! area           zones: object data, index tables, manifests
//! at the end     the second header slot of each shard, and the copy of the superblock
//! ```
//!
//! A store may have further devices: headers, logs and zones of the index are then on those.
//!
//! Drawn byte by byte in `docs/on-disk-format.md`.

mod encryption;
mod further;
mod header;
mod layout;
mod superblock;

pub use encryption::{Encryption, KeyHolder, KeySecret, NewKeys, SecretLength};
pub(crate) use further::has_label_magic;
pub use further::{DeviceLabel, DeviceRole, FurtherDevice};
pub use header::{Header, ManifestPlace, Totals};
pub(crate) use header::{MANIFEST_RUNS_MAX, has_header_magic};
pub use layout::FormatOptions;
pub use superblock::{Identity, ShardPlace, Superblock, SuperblockError};
pub(crate) use superblock::{SUPERBLOCK_BLOCKS, UnfinishedFormat, has_superblock_magic};

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
