//! Findings and totals of fsck.

use crate::index::Bad;
use store::{Compressed, ObjectId};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Index entries and the references between them.
    Metadata,
    /// Also every data block against its checksum.
    Deep,
}

/// Totals and findings of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub objects: u64,
    pub data_bytes: u64,
    pub omap_bytes: u64,
    pub compressed: Compressed,
    /// Device blocks with object data.
    pub blocks_stored: u64,
    /// Blocks read by a deep check; shared blocks count for each clone.
    pub blocks_read: u64,
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Finding {
    #[error("the index is unreadable from key {from:02x?} on: {bad}")]
    IndexUnreadable { from: Vec<u8>, bad: Bad },
    #[error("invalid key {key:02x?}")]
    BadKey { key: Vec<u8> },
    #[error("the value of key {key:02x?} cannot be decoded")]
    BadValue { key: Vec<u8> },
    #[error("{object:?} belongs to no collection")]
    NoCollection { object: ObjectId },
    #[error("{object:?} has the number {number}, which another object or omap has, too")]
    NumberTwice { object: ObjectId, number: u64 },
    #[error("layer {number}: {what}")]
    Layer { number: u64, what: &'static str },
    #[error("number {number} has pages or omap keys, and no object")]
    Orphan { number: u64 },
    #[error("{object:?} has {found} bytes stored, and its record says {recorded}")]
    DataBytes { object: ObjectId, recorded: u64, found: u64 },
    #[error("{object:?} has bytes at {offset}, beyond its end")]
    BeyondTheEnd { object: ObjectId, offset: u64 },
    #[error("{object:?}: {found:?} omap keys and bytes, and its record says {recorded:?}")]
    OmapBytes { object: ObjectId, recorded: (u64, u64), found: (u64, u64) },
    #[error("a page points to block {unit}, in no zone that the shard leases")]
    OutsideOfData { unit: u64 },
    #[error("block {unit} has several owners, and one of them does not mark it as shared")]
    NotShared { unit: u64 },
    #[error("block {unit} has {found} owners, and its reference count is {recorded}")]
    Owners { unit: u64, recorded: u64, found: u64 },
    #[error("block {unit} holds data and is marked as free")]
    UsedButFree { unit: u64 },
    #[error("block {unit} is marked as used, and nothing points to it")]
    LeakedBlock { unit: u64 },
    #[error("{len} blocks from {start} on are used both for data and for the index")]
    Overlap { start: u64, len: u64 },
    #[error("recorded totals of objects, bytes and omap bytes are {recorded:?}, found {found:?}")]
    Totals { recorded: (u64, u64, u64), found: (u64, u64, u64) },
    #[error("recorded compression totals are {recorded:?}, found {found:?}")]
    Compressed { recorded: Compressed, found: Compressed },
    #[error("{} is damaged at byte {offset}, on the device at {device_offset}", named(object, *number))]
    Corrupt { object: Option<ObjectId>, number: u64, offset: u64, device_offset: u64 },
    #[error("{} has lost {len} bytes from {offset} on: they were unreadable when a write needed them", named(object, *number))]
    Lost { object: Option<ObjectId>, number: u64, offset: u64, len: u64 },
    #[error(
        "{object:?} is lost: its record or omap was unreadable when a write needed it; remove the object"
    )]
    LostObject { object: ObjectId },
}

fn named(object: &Option<ObjectId>, number: u64) -> String {
    match object {
        Some(object) => format!("{object:?}"),
        None => format!("number {number}, of no object,"),
    }
}
