//! Queries about an object or a collection, and their answers.

use crate::{Collection, LogRecord, ObjectId};
use bytes::Bytes;
use codec::Rope;
use thiserror::Error;
use wire::types::Eversion;

/// Queries about one object, answered from one moment: no transaction is applied between them. If the object does not
/// exist, the answer is [`ReadError::NoObject`], unless all queries are listings of objects or of the log.
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
    /// Up to `len` bytes, fewer at the object's end. Holes are zeroes.
    Data {
        offset: u64,
        len: u64,
    },
    /// Stored extents of a range: `(offset, len)`, ascending, not adjacent. All other bytes read as zeroes; stored ones may
    /// be zeroes, too.
    Extents {
        offset: u64,
        len: u64,
    },
    Attr {
        name: Bytes,
    },
    Attrs,
    OmapHeader,
    /// Keys that are greater than `after` (if given), at least `from`, and start with `prefix`; ascending.
    OmapList {
        after: Option<Bytes>,
        from: Bytes,
        prefix: Bytes,
        max: usize,
        values: bool,
    },
    /// Entries of the existing ones of `keys`, ascending.
    OmapGet {
        keys: Vec<Bytes>,
    },
    /// Objects of the collection in order from `ReadRequest::object` (included), before `end`, at most `max`. A store may
    /// answer with fewer, at least one, and a `next`, where it would wait for its device; a `max` of `usize::MAX` asks for
    /// all. The PG meta object is not listed. The object of the request need not exist.
    List {
        end: ObjectId,
        max: usize,
    },
    /// Records of the collection's log above `after`, ascending, at most `max`. A store may return fewer.
    LogList {
        after: Eversion,
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
    /// `None` if the object has no such attribute.
    Attr(Option<Bytes>),
    Attrs(Vec<(Bytes, Bytes)>),
    OmapHeader(Bytes),
    /// `more`: keys follow the last one returned.
    OmapList {
        entries: Vec<(Bytes, Bytes)>,
        more: bool,
    },
    OmapGet(Vec<(Bytes, Bytes)>),
    /// `next` is the first object of the next listing; `None` at the end.
    List {
        objects: Vec<ListEntry>,
        next: Option<ObjectId>,
    },
    /// `more`: records may follow the last one returned.
    LogList {
        records: Vec<LogRecord>,
        more: bool,
    },
}

pub type ListEntry = ObjectId;

impl Query {
    /// True if the answer does not depend on the request's object.
    pub fn is_of_collection(&self) -> bool {
        matches!(self, Query::List { .. } | Query::LogList { .. })
    }

    /// All entries of an omap whose size has a bound.
    pub fn whole_omap() -> Query {
        let (from, prefix) = (Bytes::new(), Bytes::new());
        Query::OmapList { after: None, from, prefix, max: usize::MAX, values: true }
    }
}

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
