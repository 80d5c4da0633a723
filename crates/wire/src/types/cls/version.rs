//! The `version` class: a counter with a tag, kept in an object's `ceph.objclass.version` attribute.

use crate::types::Name;
use codec::{Decode, Encode};

/// The attribute's value (`obj_version`); also what `set` takes (`cls_version_set_op`) and `read` returns
/// (`cls_version_read_ret`) in one more envelope.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ObjVersion {
    pub version: u64,
    pub tag: Name,
}

/// `cls_version_set_op` and `cls_version_read_ret`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct VersionBox {
    pub version: ObjVersion,
}

/// One condition (`obj_version_cond`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct VersionCond {
    pub version: ObjVersion,
    /// `COND_*`; an unknown one holds always, as with Ceph.
    pub cond: u32,
}

pub const COND_NONE: u32 = 0;
pub const COND_EQ: u32 = 1;
pub const COND_GT: u32 = 2;
pub const COND_GE: u32 = 3;
pub const COND_LT: u32 = 4;
pub const COND_LE: u32 = 5;
pub const COND_TAG_EQ: u32 = 6;
pub const COND_TAG_NE: u32 = 7;

impl VersionCond {
    pub fn holds(&self, have: &ObjVersion) -> bool {
        let want = &self.version;
        match self.cond {
            COND_EQ => have == want,
            COND_GT => have.version > want.version,
            COND_GE => have.version >= want.version,
            COND_LT => have.version < want.version,
            COND_LE => have.version <= want.version,
            COND_TAG_EQ => have.tag == want.tag,
            COND_TAG_NE => have.tag != want.tag,
            _ => true,
        }
    }
}

/// `cls_version_inc_op` and `cls_version_check_op`, which are alike. The version is not used.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CondsOp {
    pub version: ObjVersion,
    pub conds: Vec<VersionCond>,
}
