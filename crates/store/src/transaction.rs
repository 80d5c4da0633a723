//! Transactions: changes of one collection that are applied together.

use crate::{Collection, ObjectId};
use bytes::Bytes;
use codec::Rope;
use wire::types::Eversion;

/// Changes of one collection, in order, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub collection: Collection,
    pub changes: Vec<Change>,
}

/// One change.
///
/// A change that writes ([`Change::creates`]) creates a missing object; one that removes or hints does nothing to a missing
/// object. Preconditions are documented at each change; a store panics when one is broken (see [`crate::ObjectStore`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creates the collection, which must not exist. All its objects have the same `split_bits` low bits of their hash.
    CreateCollection {
        split_bits: u8,
    },
    /// Like [`Change::CreateCollection`], for a copy from another store shard, where the collection has one move less than
    /// `moves`. The copy does not count until it has arrived ([`crate::Placed`]).
    BeginArrival {
        split_bits: u8,
        moves: u32,
    },
    /// Makes this copy of an arriving collection the one that counts.
    Arrive,
    /// Removes the collection, which must be empty except for its PG meta object, and that object.
    RemoveCollection,
    /// Moves objects whose hash has `seed` in its low `split_bits` bits to `into`, which must exist on this store shard,
    /// without objects of the same names. The PG meta object stays. Both collections get `split_bits`.
    SplitCollection {
        split_bits: u8,
        seed: u32,
        into: Collection,
    },
    /// Moves all objects to `into`, as a split does, and removes this collection with its PG meta object.
    MergeCollection {
        split_bits: u8,
        into: Collection,
    },

    Touch {
        object: ObjectId,
    },
    /// Writes bytes; those between the old end and `offset` read as zeroes. A write without data does not extend the object.
    Write {
        object: ObjectId,
        offset: u64,
        data: Rope,
    },
    /// Makes a range a hole, which reads as zeroes. Extends the object as a write does.
    Zero {
        object: ObjectId,
        offset: u64,
        len: u64,
    },
    Truncate {
        object: ObjectId,
        size: u64,
    },
    /// Removes an object, which must exist.
    Remove {
        object: ObjectId,
    },
    /// Replaces `to` by a copy of `from`, which must exist: bytes, attributes, omap. The copy shares space.
    Clone {
        from: ObjectId,
        to: ObjectId,
    },
    /// Copies up to `len` bytes at `from_offset` of `from`, which must exist, to `to_offset` of `to`. Holes stay holes.
    /// `from` and `to` may be the same.
    CloneRange {
        from: ObjectId,
        to: ObjectId,
        from_offset: u64,
        len: u64,
        to_offset: u64,
    },
    /// Renames `from`, which must exist, to `to`, which must not.
    Rename {
        from: ObjectId,
        to: ObjectId,
    },

    SetAttr {
        object: ObjectId,
        name: Bytes,
        value: Bytes,
    },
    RemoveAttr {
        object: ObjectId,
        name: Bytes,
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
    /// Removes keys in `from..to`.
    OmapRemoveRange {
        object: ObjectId,
        from: Bytes,
        to: Bytes,
    },
    OmapSetHeader {
        object: ObjectId,
        header: Bytes,
    },
    /// Removes all keys and the header.
    OmapClear {
        object: ObjectId,
    },

    /// Appends records to the collection's log. Keys ascend, and are above the key of the last append, trim or rewind that
    /// changed the log. A store keeps the bytes as they are: they should not be a part of a larger buffer.
    LogAppend {
        records: Vec<LogRecord>,
    },
    /// Removes the log's records up to and including this key.
    LogTrim {
        to: Eversion,
    },
    /// Removes the log's records above this key.
    LogRewind {
        to: Eversion,
    },
    /// Removes all records of the log. Any key may follow.
    LogClear,

    /// The client's expected use of the object; a store may ignore it.
    AllocHint {
        object: ObjectId,
        object_size: u64,
        write_size: u64,
        flags: u32,
    },
}

/// A record of a collection's log. Its bytes are the owner's.
pub type LogRecord = (Eversion, Bytes);

impl Transaction {
    pub fn new(collection: Collection) -> Transaction {
        Transaction { collection, changes: Vec::new() }
    }

    /// Its collection, and the others of splits and merges.
    pub fn collections(&self) -> impl Iterator<Item = Collection> + '_ {
        let others = self.changes.iter().filter_map(Change::other_collection);
        std::iter::once(self.collection).chain(others)
    }
}

impl Change {
    /// The object, if the change affects the contents of a single object only.
    pub fn content_of(&self) -> Option<&ObjectId> {
        match self {
            Change::Touch { object }
            | Change::Write { object, .. }
            | Change::Zero { object, .. }
            | Change::Truncate { object, .. }
            | Change::SetAttr { object, .. }
            | Change::RemoveAttr { object, .. }
            | Change::RemoveAttrs { object }
            | Change::OmapSet { object, .. }
            | Change::OmapRemove { object, .. }
            | Change::OmapRemoveRange { object, .. }
            | Change::OmapSetHeader { object, .. }
            | Change::OmapClear { object }
            | Change::AllocHint { object, .. } => Some(object),
            Change::CreateCollection { .. }
            | Change::BeginArrival { .. }
            | Change::Arrive
            | Change::RemoveCollection
            | Change::SplitCollection { .. }
            | Change::MergeCollection { .. }
            | Change::Remove { .. }
            | Change::Clone { .. }
            | Change::CloneRange { .. }
            | Change::Rename { .. }
            | Change::LogAppend { .. }
            | Change::LogTrim { .. }
            | Change::LogRewind { .. }
            | Change::LogClear => None,
        }
    }

    /// Objects whose contents or existence the change affects.
    pub fn changed(&self) -> impl Iterator<Item = &ObjectId> {
        let (one, other) = match self {
            Change::Remove { object } => (Some(object), None),
            Change::Clone { to, .. } | Change::CloneRange { to, .. } => (Some(to), None),
            Change::Rename { from, to } => (Some(from), Some(to)),
            content => (content.content_of(), None),
        };
        one.into_iter().chain(other)
    }

    /// True if the change creates a missing object.
    pub fn creates(&self) -> bool {
        matches!(
            self,
            Change::Touch { .. }
                | Change::Write { .. }
                | Change::Zero { .. }
                | Change::Truncate { .. }
                | Change::SetAttr { .. }
                | Change::OmapSet { .. }
                | Change::OmapSetHeader { .. }
        )
    }

    /// The second collection of a split or merge.
    pub fn other_collection(&self) -> Option<Collection> {
        match self {
            Change::SplitCollection { into, .. } | Change::MergeCollection { into, .. } => Some(*into),
            _ => None,
        }
    }

    /// Bytes of keys and values, without object data.
    pub fn metadata(&self) -> u64 {
        match self {
            Change::Write { .. } => 0,
            // With the prefix of a key, and lengths.
            Change::OmapSet { entries, .. } => self.growth() + 40 * entries.len() as u64,
            Change::OmapRemove { keys, .. } => keys.iter().map(|key| key.len() as u64 + 40).sum(),
            Change::LogAppend { records } => self.growth() + 40 * records.len() as u64,
            other => other.growth(),
        }
    }

    /// Upper bound of the bytes that the change adds; a clone shares its space and adds none.
    pub fn growth(&self) -> u64 {
        let bytes = match self {
            Change::Write { data, .. } => data.len(),
            Change::SetAttr { name, value, .. } => name.len() + value.len(),
            Change::OmapSet { entries, .. } => entries.iter().map(|(k, v)| k.len() + v.len()).sum(),
            Change::OmapSetHeader { header, .. } => header.len(),
            Change::LogAppend { records } => records.iter().map(|(_, record)| record.len()).sum(),
            _ => 0,
        };
        bytes as u64
    }
}
