//! What can be asked of an object or a collection.

use crate::{Collection, ObjectId};
use bytes::Bytes;
use codec::Rope;
use thiserror::Error;

/// Queries about one object, answered from one moment: no transaction comes between them. When the object does
/// not exist the whole request is answered [`ReadError::NoObject`], unless it only lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub collection: Collection,
    pub object: ObjectId,
    pub queries: Vec<Query>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Size in bytes.
    Stat,
    /// Up to `len` bytes; less at the object's end, none beyond it. Holes are zeroes.
    Data {
        offset: u64,
        len: u64,
    },
    /// Which parts of a range are stored: `(offset, len)`, ascending, not touching. What is not among them reads as
    /// zeroes; what is may hold zeroes too.
    Extents {
        offset: u64,
        len: u64,
    },
    Attr {
        name: Bytes,
    },
    Attrs,
    OmapHeader,
    /// Keys greater than `after` (all when `None`) that are at least `from` and start with `prefix`, ascending.
    OmapList {
        after: Option<Bytes>,
        from: Bytes,
        prefix: Bytes,
        max: usize,
        values: bool,
    },
    /// The entries of those of `keys` that exist, ascending.
    OmapGet {
        keys: Vec<Bytes>,
    },
    /// Objects of the collection in order from `ReadRequest::object` (included), before `end`, at most `max`.
    /// The PG meta object is not listed. The object of the request need not exist.
    List {
        end: ObjectId,
        max: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Stat {
        size: u64,
    },
    Data(Rope),
    Extents(Vec<(u64, u64)>),
    /// `None` when the object has no such attribute.
    Attr(Option<Bytes>),
    Attrs(Vec<(Bytes, Bytes)>),
    OmapHeader(Bytes),
    /// `more`: there are keys beyond the last one returned.
    OmapList {
        entries: Vec<(Bytes, Bytes)>,
        more: bool,
    },
    OmapGet(Vec<(Bytes, Bytes)>),
    /// `next` is where a listing goes on; `None` when it is complete.
    List {
        objects: Vec<ListEntry>,
        next: Option<ObjectId>,
    },
}

pub type ListEntry = ObjectId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    #[error("no such collection")]
    NoCollection,
    #[error("no such object")]
    NoObject,
    #[error("the device failed")]
    Io,
    #[error("a checksum does not match")]
    Corrupt,
}
