//! The `cmpomap` class: comparisons of omap values, and changes that depend on them.

use crate::types::Name;
use bytes::Bytes;
use codec::{Decode, Encode};
use std::collections::BTreeMap;

/// `cls::cmpomap::cmp_vals_op` and `cmp_set_vals_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CompareOp {
    /// `op_value::CMP_MODE_*`.
    pub mode: u8,
    /// `op_value::CMP_*`.
    pub comparison: u8,
    pub values: BTreeMap<Name, Bytes>,
    /// Value of a key that is not there.
    pub default: Option<Bytes>,
}

/// `cls::cmpomap::cmp_rm_keys_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CompareRemoveOp {
    pub mode: u8,
    pub comparison: u8,
    pub values: BTreeMap<Name, Bytes>,
}
