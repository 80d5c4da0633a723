//! Changes of one entry: prepared before the object is written, completed after it.

use super::{CategoryStats, EntryMeta, EntryVersion, ObjectKey, ZoneSet};
use crate::types::Name;
use codec::{Decode, Encode};
use std::collections::BTreeMap;

/// Kinds of change (`RGWModifyOp`).
pub const MODIFY_ADD: u8 = 0;
pub const MODIFY_DEL: u8 = 1;
pub const MODIFY_CANCEL: u8 = 2;
pub const MODIFY_UNKNOWN: u8 = 3;
pub const MODIFY_LINK_OLH: u8 = 4;
/// Creation of a delete marker.
pub const MODIFY_LINK_OLH_MARKER: u8 = 5;
pub const MODIFY_UNLINK_INSTANCE: u8 = 6;
pub const MODIFY_SYNC_STOP: u8 = 7;
pub const MODIFY_RESYNC: u8 = 8;

/// `rgw_cls_obj_prepare_op`. The last three fields have no meaning any more.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 7, compat = 5)]
pub struct PrepareOp {
    pub op: u8,
    pub tag: Name,
    pub locator: Name,
    pub log_op: bool,
    pub key: ObjectKey,
    #[since(6)]
    pub bilog_flags: u16,
    #[since(7)]
    pub zones: ZoneSet,
}

/// `rgw_cls_obj_complete_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 9, compat = 7)]
pub struct CompleteOp {
    pub op: u8,
    /// For old readers: that of `ver`.
    pub epoch: u64,
    pub meta: EntryMeta,
    /// Empty: the change was not prepared.
    pub tag: Name,
    pub locator: Name,
    /// Entries that go with the change.
    pub remove: Vec<ObjectKey>,
    pub ver: EntryVersion,
    pub log_op: bool,
    pub key: ObjectKey,
    #[since(8)]
    pub bilog_flags: u16,
    #[since(9)]
    pub zones: ZoneSet,
}

/// `rgw_cls_bucket_update_stats_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct UpdateStatsOp {
    /// Replaces the statistics instead of adding to them.
    pub absolute: bool,
    pub stats: BTreeMap<u8, CategoryStats>,
    /// Subtracted; an error together with `absolute`.
    #[since(2)]
    pub less: BTreeMap<u8, CategoryStats>,
}

/// `rgw_cls_tag_timeout_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TagTimeoutOp {
    pub seconds: u64,
}
