//! The `timeindex` class: values of an omap by time and name; a name has one time.

use crate::types::{Name, UTime};
use bytes::Bytes;
use codec::{Decode, Encode};

/// `cls_timeindex_entry`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TimeEntry {
    pub time: UTime,
    pub name: Name,
    pub value: Bytes,
}

/// `cls_timeindex_add_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct AddOp {
    pub entries: Vec<TimeEntry>,
}

/// `cls_timeindex_list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListOp {
    pub from_time: UTime,
    /// Unless empty, used instead of `from_time`.
    pub marker: Name,
    /// Excluded.
    pub to_time: UTime,
    pub max_entries: i32,
}

/// `cls_timeindex_list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListReply {
    pub entries: Vec<TimeEntry>,
    pub marker: Name,
    pub truncated: bool,
}

/// `cls_timeindex_trim_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TrimOp {
    pub from_time: UTime,
    /// Included.
    pub to_time: UTime,
    pub from_marker: Name,
    pub to_marker: Name,
}
