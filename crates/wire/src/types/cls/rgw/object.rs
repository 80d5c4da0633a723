//! Operations on the head object of an S3 object.

use crate::types::{Name, UTime};
use codec::{Decode, Encode};

/// `rgw_cls_obj_remove_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct RemoveObjectOp {
    pub keep_attr_prefixes: Vec<Name>,
}

/// `rgw_cls_obj_store_pg_ver_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct StoreVersionOp {
    pub attr: Name,
}

/// `rgw_cls_obj_check_attrs_prefix`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CheckAttrsOp {
    pub prefix: Name,
    pub fail_if_exist: bool,
}

/// `rgw_cls_obj_check_mtime`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct CheckMtimeOp {
    pub mtime: UTime,
    /// 0 to 4: equal, less, less or equal, greater, greater or equal.
    pub comparison: u8,
    #[since(2)]
    pub high_precision_time: bool,
}
