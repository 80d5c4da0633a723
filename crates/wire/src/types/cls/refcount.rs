//! The `refcount` class: tagged references kept in an object's `refcount` attribute.

use crate::types::Name;
use codec::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};

/// `cls_refcount_get_op` and `cls_refcount_put_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TagOp {
    pub tag: Name,
    /// An object without the attribute counts as having one reference, under the empty tag.
    pub implicit_ref: bool,
}

/// `cls_refcount_set_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct SetOp {
    pub refs: Vec<Name>,
}

/// `cls_refcount_read_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReadOp {
    pub implicit_ref: bool,
}

/// `cls_refcount_read_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReadReply {
    pub refs: Vec<Name>,
}

/// The attribute's value (`obj_refcount`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct Refcount {
    /// The flag is always true.
    pub refs: BTreeMap<Name, bool>,
    /// Tags that have been put, so that putting twice does not count twice.
    #[since(2)]
    pub retired_refs: BTreeSet<Name>,
}
