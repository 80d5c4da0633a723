//! The gateway's garbage in an omap, which the queue of `rgw_gc` has replaced.

use crate::types::Name;
use codec::{Decode, Encode};

/// `cls_rgw_gc_defer_entry_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct DeferEntryOp {
    pub expiration_s: u32,
    pub tag: Name,
}

/// `cls_rgw_gc_remove_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct RemoveTagsOp {
    pub tags: Vec<Name>,
}
