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

/// One change.
///
/// An object named by a change that writes ([`Change::creates`]) comes into being when it is not there; a change
/// that only takes away or hints leaves a missing object missing. What a caller must not ask is said at each
/// change; a store panics then (see [`crate::ObjectStore`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `split_bits`: how many low bits of the hash are the same for all objects here. It must not exist.
    CreateCollection {
        split_bits: u8,
    },
    /// As [`Change::CreateCollection`], of a collection that is being copied from another store shard, where it has moved
    /// one time less than `moves`. It does not count until it has arrived ([`crate::Placed`]).
    BeginArrival {
        split_bits: u8,
        moves: u32,
    },
    /// From this transaction on this copy of the collection counts, and no other. It must be arriving.
    Arrive,
    /// The collection must be empty but for its PG meta object, which goes too.
    RemoveCollection,
    /// Objects whose hash has `seed` in its low `split_bits` bits move to `into` (which must exist, on this store
    /// shard, without objects of the same names). The PG meta object stays. Both collections have `split_bits` then.
    SplitCollection {
        split_bits: u8,
        seed: u32,
        into: Collection,
    },
    /// All objects move to `into` (as for a split), and this collection ends; its PG meta object goes with it.
    MergeCollection {
        split_bits: u8,
        into: Collection,
    },

    Touch {
        object: ObjectId,
    },
    /// Bytes between the old end and `offset` read as zeroes. Without data, nothing is extended.
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
    /// It must exist.
    Remove {
        object: ObjectId,
    },
    /// `to` becomes a copy of `from` (bytes, attributes, omap), sharing its space; what it was before is gone.
    /// `from` must exist.
    Clone {
        from: ObjectId,
        to: ObjectId,
    },
    /// `to` reads at `to_offset` as `from` does at `from_offset`, up to `len` bytes or the end of `from`; holes
    /// stay holes. `from` must exist; it may be `to`.
    CloneRange {
        from: ObjectId,
        to: ObjectId,
        from_offset: u64,
        len: u64,
        to_offset: u64,
    },
    /// `from` must exist and `to` must not.
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

impl Change {
    /// The object whose contents this change touches, when it touches those of one object and nothing else.
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
            | Change::Rename { .. } => None,
        }
    }

    /// Whose contents, or existence, are not what they were before.
    pub fn changed(&self) -> impl Iterator<Item = &ObjectId> {
        let (one, other) = match self {
            Change::Remove { object } => (Some(object), None),
            Change::Clone { to, .. } | Change::CloneRange { to, .. } => (Some(to), None),
            Change::Rename { from, to } => (Some(from), Some(to)),
            content => (content.content_of(), None),
        };
        one.into_iter().chain(other)
    }

    /// Whether the object comes into being when it is not there. Taking away from nothing, or a hint, leaves nothing.
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

    /// The collection that a split or merge changes beside the transaction's own.
    pub fn other_collection(&self) -> Option<Collection> {
        match self {
            Change::SplitCollection { into, .. } | Change::MergeCollection { into, .. } => Some(*into),
            _ => None,
        }
    }

    /// How many bytes of it are keys and values rather than an object's bytes.
    pub fn metadata(&self) -> u64 {
        match self {
            Change::Write { .. } => 0,
            // A key costs its names in front and its lengths, too.
            Change::OmapSet { entries, .. } => self.growth() + 40 * entries.len() as u64,
            Change::OmapRemove { keys, .. } => keys.iter().map(|key| key.len() as u64 + 40).sum(),
            other => other.growth(),
        }
    }

    /// At most how many bytes of contents this change adds; a clone that shares its space adds none.
    pub fn growth(&self) -> u64 {
        let bytes = match self {
            Change::Write { data, .. } => data.len(),
            Change::SetAttr { name, value, .. } => name.len() + value.len(),
            Change::OmapSet { entries, .. } => entries.iter().map(|(k, v)| k.len() + v.len()).sum(),
            Change::OmapSetHeader { header, .. } => header.len(),
            _ => 0,
        };
        bytes as u64
    }
}
