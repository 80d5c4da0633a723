//! Raw entries of the index, as administrators and resharding read and write them.

use super::ObjectKey;
use crate::types::Name;
use bytes::Bytes;
use codec::{Decode, Encode};

/// Kinds of entry (`BIIndexType`).
pub const ENTRY_INVALID: u8 = 0;
pub const ENTRY_PLAIN: u8 = 1;
pub const ENTRY_INSTANCE: u8 = 2;
pub const ENTRY_OLH: u8 = 3;
/// In the reshard log: the entry was removed.
pub const ENTRY_RESHARD_DELETED: u8 = 4;

/// `rgw_cls_bi_entry`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct IndexEntry {
    pub kind: u8,
    /// Key in the omap.
    pub idx: Name,
    pub data: Bytes,
}

/// Data of an entry of the reshard log for a removed one (`rgw_bucket_deleted_entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct DeletedEntry {
    pub key: ObjectKey,
}

/// `rgw_cls_bi_get_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GetEntryOp {
    pub key: ObjectKey,
    pub kind: u8,
}

/// `rgw_cls_bi_get_ret` and `rgw_cls_bi_put_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct EntryBox {
    pub entry: IndexEntry,
}

/// `rgw_cls_bi_put_entries_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PutEntriesOp {
    pub entries: Vec<IndexEntry>,
    /// Takes the statistics of entries that are overwritten out.
    pub check_existing: bool,
}

/// `rgw_cls_bi_list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ListEntriesOp {
    pub max: u32,
    /// One object and its instances only.
    pub name_filter: Name,
    pub marker: Name,
    /// The reshard log instead of the index.
    #[since(2)]
    pub reshard_log: bool,
}

/// `rgw_cls_bi_list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListEntriesReply {
    pub entries: Vec<IndexEntry>,
    pub truncated: bool,
}
