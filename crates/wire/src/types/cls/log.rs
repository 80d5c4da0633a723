//! The `log` class: entries of an omap, by time.

use crate::types::{Name, UTime};
use bytes::Bytes;
use codec::{Decode, Encode};

/// One entry (`cls::log::entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct LogEntry {
    pub section: Name,
    pub name: Name,
    pub timestamp: UTime,
    pub data: Bytes,
    /// Its key; empty before the entry is stored.
    #[since(2)]
    pub id: Name,
}

/// Header of the omap (`cls::log::header`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct LogHeader {
    pub max_marker: Name,
    pub max_time: UTime,
}

/// `cls::log::ops::add_op`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct AddOp {
    pub entries: Vec<LogEntry>,
    /// No entry gets a key with an older time than the newest stored one. Version 1 had no flag and meant it.
    #[since(2)]
    pub monotonic: Monotonic,
}

/// A flag that is set unless it is said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Monotonic(pub bool);

impl Default for Monotonic {
    fn default() -> Monotonic {
        Monotonic(true)
    }
}

/// `cls::log::ops::list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListOp {
    pub from_time: UTime,
    /// Unless empty, used instead of `from_time`.
    pub marker: Name,
    /// Excluded.
    pub to_time: UTime,
    /// 0: as many as a reply may hold.
    pub max_entries: i32,
}

/// `cls::log::ops::list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListReply {
    pub entries: Vec<LogEntry>,
    pub marker: Name,
    pub truncated: bool,
}

/// `cls::log::ops::trim_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct TrimOp {
    pub from_time: UTime,
    /// Included.
    pub to_time: UTime,
    #[since(2)]
    pub from_marker: Name,
    #[since(2)]
    pub to_marker: Name,
}

/// `cls::log::ops::info_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct InfoOp {}

/// `cls::log::ops::info_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct InfoReply {
    pub header: LogHeader,
}
