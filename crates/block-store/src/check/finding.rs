//! What a check can find.

use crate::index::Bad;
use store::{Compressed, ObjectId};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What names what.
    Metadata,
    /// And every block of data against its checksum.
    Deep,
}

/// What a check counted, and what does not agree.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub objects: u64,
    pub data_bytes: u64,
    pub omap_bytes: u64,
    pub compressed: Compressed,
    /// Blocks of the device that hold objects' bytes.
    pub blocks_stored: u64,
    /// By a deep check; what clones share counts for each.
    pub blocks_read: u64,
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Finding {
    #[error("the index cannot be read from key {from:02x?} on: {bad}")]
    IndexUnreadable { from: Vec<u8>, bad: Bad },
    #[error("a key that nothing makes: {key:02x?}")]
    BadKey { key: Vec<u8> },
    #[error("the value of key {key:02x?} cannot be decoded")]
    BadValue { key: Vec<u8> },
    #[error("{object:?} belongs to no collection")]
    NoCollection { object: ObjectId },
    #[error("{object:?} has the number {number}, which something else has too")]
    NumberTwice { object: ObjectId, number: u64 },
    #[error("number {number} has pages or keys and no object")]
    Orphan { number: u64 },
    #[error("{object:?} has {found} bytes stored, and its record says {recorded}")]
    DataBytes { object: ObjectId, recorded: u64, found: u64 },
    #[error("{object:?} has bytes at {offset}, beyond its end")]
    BeyondTheEnd { object: ObjectId, offset: u64 },
    #[error("{object:?}: {found:?} omap keys and bytes, and its record says {recorded:?}")]
    OmapBytes { object: ObjectId, recorded: (u64, u64), found: (u64, u64) },
    #[error("a page points to block {unit}, which is not among the data")]
    OutsideOfData { unit: u64 },
    #[error("block {unit} has several owners, one of which does not know")]
    NotShared { unit: u64 },
    #[error("block {unit} has {found} owners, and its count says {recorded}")]
    Owners { unit: u64, recorded: u64, found: u64 },
    #[error("block {unit} holds data and is marked as free")]
    UsedButFree { unit: u64 },
    #[error("block {unit} is marked as used and holds nothing")]
    LeakedBlock { unit: u64 },
    #[error("{len} blocks from {start} on are used for two things")]
    Overlap { start: u64, len: u64 },
    #[error("the totals of objects, bytes and omap bytes are {recorded:?}, and there are {found:?}")]
    Totals { recorded: (u64, u64, u64), found: (u64, u64, u64) },
    #[error("{found:?} is compressed, and {recorded:?} is recorded")]
    Compressed { recorded: Compressed, found: Compressed },
    #[error("{} is damaged at byte {offset}, on the device at {device_offset}", named(object, *number))]
    Corrupt { object: Option<ObjectId>, number: u64, offset: u64, device_offset: u64 },
    #[error("{} has lost {len} bytes from {offset} on: they were damaged when they had to be changed", named(object, *number))]
    Lost { object: Option<ObjectId>, number: u64, offset: u64, len: u64 },
    #[error("{object:?} is lost: its entry, or its omap, was damaged when it had to be changed; remove it")]
    LostObject { object: ObjectId },
}

fn named(object: &Option<ObjectId>, number: u64) -> String {
    match object {
        Some(object) => format!("{object:?}"),
        None => format!("number {number}, which is no object's,"),
    }
}
