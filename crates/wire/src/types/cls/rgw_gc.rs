//! The `rgw_gc` class: a queue of objects that the gateway deletes later.

use crate::types::{Name, UTime};
use codec::{Decode, Encode};
use std::collections::BTreeMap;

/// `cls_rgw_obj_key`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ObjectKey {
    pub name: Name,
    pub instance: Name,
}

/// `cls_rgw_obj`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct GatewayObject {
    pub pool: Name,
    /// The key's name, for old readers.
    pub name: Name,
    pub locator: Name,
    #[since(2)]
    pub key: ObjectKey,
}

/// `cls_rgw_obj_chain`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ObjectChain {
    pub objects: Vec<GatewayObject>,
}

/// Objects to delete together (`cls_rgw_gc_obj_info`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GarbageInfo {
    pub tag: Name,
    pub chain: ObjectChain,
    /// Not before.
    pub time: UTime,
}

/// `cls_rgw_gc_set_entry_op` and `cls_rgw_gc_queue_defer_entry_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct SetEntryOp {
    pub expiration_s: u32,
    pub info: GarbageInfo,
}

/// `cls_rgw_gc_list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ListOp {
    pub marker: Name,
    /// 0: the default.
    pub max: u32,
    #[since(2)]
    pub expired_only: bool,
}

/// `cls_rgw_gc_list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ListReply {
    pub entries: Vec<GarbageInfo>,
    #[since(2)]
    pub next: Name,
    pub truncated: bool,
}

/// `cls_rgw_gc_queue_init_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct InitOp {
    pub size: u64,
    pub deferred_max: u64,
}

/// `cls_rgw_gc_queue_remove_entries_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct RemoveOp {
    /// 0: the default.
    pub entries: u64,
}

/// Times of deferred entries, by tag.
pub type Deferred = BTreeMap<Name, UTime>;

/// Urgent data of the queue (`cls_rgw_gc_urgent_data`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GarbageQueue {
    pub deferred: Deferred,
    pub deferred_max: u32,
    pub in_head: u32,
    /// Further deferred entries, in an attribute.
    pub in_attr: u32,
}
