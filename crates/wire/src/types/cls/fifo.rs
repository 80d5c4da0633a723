//! The `fifo` class: a queue of the gateway in several objects, a head that counts parts, and parts with entries.

use crate::types::{Name, UTime};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

/// A field that Ceph no longer has: skipped when read, written empty.
///
/// Parts had tags, which a client had to know, in the first releases of 16.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Retired<T>(PhantomData<T>);

impl<T: Encode + Default> Encode for Retired<T> {
    fn encode(&self, w: &mut Writer) {
        w.put(&T::default());
    }
}

impl<T: Decode> Decode for Retired<T> {
    const MIN_LEN: usize = T::MIN_LEN;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.get::<T>().map(|_| Retired(PhantomData))
    }
}

/// Version of a queue's head (`rados::cls::fifo::objv`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct HeadVersion {
    /// Random: a head that was made anew has another one.
    pub instance: Name,
    pub version: u64,
}

/// Limits of a part (`rados::cls::fifo::data_params`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PartParams {
    pub max_part_size: u64,
    pub max_entry_size: u64,
    /// A part that ends behind this offset takes no more entries.
    pub full_size_threshold: u64,
}

pub const JOURNAL_CREATE: i32 = 1;
pub const JOURNAL_SET_HEAD: i32 = 2;
pub const JOURNAL_REMOVE: i32 = 3;

/// A change of the parts that clients have begun (`rados::cls::fifo::journal_entry`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct JournalEntry {
    /// `JOURNAL_*`.
    pub op: i32,
    pub part: i64,
    pub tag: Retired<Name>,
}

impl JournalEntry {
    /// True for an entry that a head may hold.
    pub fn is_valid(&self) -> bool {
        (JOURNAL_CREATE..=JOURNAL_REMOVE).contains(&self.op) && self.part >= 0
    }
}

/// A head's journal: each entry stands behind its part, for readers that kept a map.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Journal(pub BTreeSet<JournalEntry>);

impl Encode for Journal {
    fn encode(&self, w: &mut Writer) {
        w.count(self.0.len());
        for entry in &self.0 {
            w.i64(entry.part);
            w.put(entry);
        }
    }
}

impl Decode for Journal {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut entries = BTreeSet::new();
        for _ in 0..r.count("journal", 8 + JournalEntry::MIN_LEN)? {
            r.i64()?;
            let entry: JournalEntry = r.get()?;
            if !entry.is_valid() {
                return Err(r.invalid("journal entry", entry.op));
            }
            entries.insert(entry);
        }
        Ok(Journal(entries))
    }
}

/// A queue's head (`rados::cls::fifo::info`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct HeadInfo {
    pub id: Name,
    pub version: HeadVersion,
    /// A part's object is named `PREFIX.PART`.
    pub oid_prefix: Name,
    pub params: PartParams,
    /// The part with the oldest entries.
    pub tail: i64,
    /// The part that takes entries; -1 before the first.
    pub head: i64,
    pub min_push: i64,
    pub max_push: i64,
    pub tags: Retired<BTreeMap<i64, Name>>,
    pub head_tag: Retired<Name>,
    pub journal: Journal,
}

impl Default for HeadInfo {
    fn default() -> HeadInfo {
        HeadInfo {
            id: Name::EMPTY,
            version: HeadVersion::default(),
            oid_prefix: Name::EMPTY,
            params: PartParams::default(),
            tail: 0,
            head: -1,
            min_push: 0,
            max_push: -1,
            tags: Retired::default(),
            head_tag: Retired::default(),
            journal: Journal::default(),
        }
    }
}

/// `rados::cls::fifo::op::create_meta`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CreateMetaOp {
    pub id: Name,
    pub version: Option<HeadVersion>,
    /// Not used.
    pub pool: Name,
    /// Not used.
    pub namespace: Name,
    pub oid_prefix: Option<Name>,
    pub max_part_size: u64,
    pub max_entry_size: u64,
    pub exclusive: bool,
}

/// `rados::cls::fifo::op::get_meta`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GetMetaOp {
    pub version: Option<HeadVersion>,
}

/// `rados::cls::fifo::op::get_meta_reply`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GetMetaReply {
    pub info: HeadInfo,
    pub part_header_size: u32,
    /// Bytes that an entry takes beside its data.
    pub part_entry_overhead: u32,
}

/// `rados::cls::fifo::op::update_meta`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct UpdateMetaOp {
    pub version: HeadVersion,
    pub tail: Option<i64>,
    pub head: Option<i64>,
    pub min_push: Option<i64>,
    pub max_push: Option<i64>,
    pub journal_added: Vec<JournalEntry>,
    pub journal_removed: Vec<JournalEntry>,
}

/// `rados::cls::fifo::op::init_part`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct InitPartOp {
    pub tag: Retired<Name>,
    pub params: PartParams,
}

/// `rados::cls::fifo::op::push_part`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PushPartOp {
    pub tag: Retired<Name>,
    pub entries: Vec<Bytes>,
    /// Bytes of all entries.
    pub total_len: u64,
}

/// `rados::cls::fifo::op::trim_part`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TrimPartOp {
    pub tag: Retired<Option<Name>>,
    pub offset: u64,
    /// The entry at the offset stays.
    pub exclusive: bool,
}

/// `rados::cls::fifo::op::list_part`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListPartOp {
    pub tag: Retired<Option<Name>>,
    /// Of the last entry that the client has.
    pub offset: u64,
    pub max: i32,
}

/// `rados::cls::fifo::part_list_entry`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PartEntry {
    pub data: Bytes,
    pub offset: u64,
    pub time: UTime,
}

/// `rados::cls::fifo::op::list_part_reply`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListPartReply {
    pub tag: Retired<Name>,
    pub entries: Vec<PartEntry>,
    /// More entries follow in this part.
    pub more: bool,
    /// The part takes no more entries.
    pub full: bool,
}

/// `rados::cls::fifo::op::get_part_info`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GetPartInfoOp {}

/// `rados::cls::fifo::op::get_part_info_reply`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PartInfoReply {
    pub header: PartHeader,
}

/// Header of a part (`rados::cls::fifo::part_header`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PartHeader {
    pub tag: Retired<Name>,
    pub params: PartParams,
    /// Random, and in front of each entry.
    pub magic: u64,
    /// Where the oldest entry begins.
    pub min_offset: u64,
    /// Where the newest entry begins.
    pub last_offset: u64,
    /// Where the next entry will begin.
    pub next_offset: u64,
    pub min_index: u64,
    pub max_index: u64,
    /// When the newest entry came.
    pub max_time: UTime,
}

/// Header of a stored entry, behind its lengths (`rados::cls::fifo::entry_header`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct EntryHeader {
    pub time: UTime,
}
