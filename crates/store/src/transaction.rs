//! What can change, and that it changes together.

use crate::{Collection, ObjectId};
use bytes::Bytes;
use codec::Rope;

/// Changes to one collection, all or nothing, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub collection: Collection,
    pub changes: Vec<Change>,
}

/// One change. An object named by a change that writes comes into being when it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `split_bits`: how many low bits of the hash are the same for all objects here.
    CreateCollection {
        split_bits: u8,
    },
    /// The collection must be empty but for its PG meta object, which goes too.
    RemoveCollection,
    /// Objects whose hash has `seed` in its low `split_bits` bits move to `into` (which must exist, on this store shard).
    SplitCollection {
        split_bits: u8,
        seed: u32,
        into: Collection,
    },
    /// All objects move to `into`, and this collection ends.
    MergeCollection {
        split_bits: u8,
        into: Collection,
    },

    Touch {
        object: ObjectId,
    },
    /// Bytes between the old end and `offset` read as zeroes.
    Write {
        object: ObjectId,
        offset: u64,
        data: Rope,
    },
    /// The range reads as zeroes afterwards and need not be stored. Extends the object as a write would.
    Zero {
        object: ObjectId,
        offset: u64,
        len: u64,
    },
    Truncate {
        object: ObjectId,
        size: u64,
    },
    /// Removing what is not there is an error of the caller: see the conformance suite.
    Remove {
        object: ObjectId,
    },
    /// `to` becomes a copy of `from` (bytes, attributes, omap), sharing its space.
    Clone {
        from: ObjectId,
        to: ObjectId,
    },
    CloneRange {
        from: ObjectId,
        to: ObjectId,
        from_offset: u64,
        len: u64,
        to_offset: u64,
    },
    /// `to` must not exist.
    Rename {
        from: ObjectId,
        to: ObjectId,
    },

    SetAttr {
        object: ObjectId,
        name: Box<str>,
        value: Bytes,
    },
    RemoveAttr {
        object: ObjectId,
        name: Box<str>,
    },
    RemoveAttrs {
        object: ObjectId,
    },

    OmapSet {
        object: ObjectId,
        entries: Vec<(Bytes, Bytes)>,
    },
    OmapRemove {
        object: ObjectId,
        keys: Vec<Bytes>,
    },
    /// Keys in `from..to`.
    OmapRemoveRange {
        object: ObjectId,
        from: Bytes,
        to: Bytes,
    },
    OmapSetHeader {
        object: ObjectId,
        header: Bytes,
    },
    /// Keys and header.
    OmapClear {
        object: ObjectId,
    },

    /// How the client expects to use the object; a store may ignore it.
    AllocHint {
        object: ObjectId,
        object_size: u64,
        write_size: u64,
        flags: u32,
    },
}

impl Transaction {
    pub fn new(collection: Collection) -> Transaction {
        Transaction { collection, changes: Vec::new() }
    }
}
