//! The `cephfs` class: what a scan of a data pool learns of an inode.

use crate::types::Name;
use codec::{Decode, Encode};

/// `AccumulateArgs`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct AccumulateOp {
    /// Attributes to set.
    pub ceiling_attr: Name,
    pub mtime_attr: Name,
    pub size_attr: Name,
    pub object_index: u64,
    pub object_size: u64,
    pub mtime: i64,
}

/// The highest object of an inode that was seen (`ObjCeiling`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ObjectCeiling {
    pub index: u64,
    pub size: u64,
}
