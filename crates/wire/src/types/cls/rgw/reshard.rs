//! The queue of buckets to reshard, and the state of resharding in an index.

use super::Reshard;
use crate::types::{Name, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// States of resharding (`cls_rgw_reshard_status`).
pub const STATUS_NONE: u8 = 0;
pub const STATUS_IN_PROGRESS: u8 = 1;
/// Entries are copied, and changes go to the reshard log too.
pub const STATUS_IN_LOGRECORD: u8 = 3;

/// A bucket to reshard (`cls_rgw_reshard_entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReshardEntry {
    pub time: UTime,
    pub tenant: Name,
    pub bucket_name: Name,
    pub bucket_id: Name,
    pub old_shards: u32,
    pub new_shards: u32,
    /// 0: not known.
    pub initiator: u8,
}

impl Encode for ReshardEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.put(&self.time);
            w.put(&self.tenant);
            w.put(&self.bucket_name);
            w.put(&self.bucket_id);
            w.u32(self.old_shards);
            w.u32(self.new_shards);
            w.u8(self.initiator);
        });
    }
}

impl Decode for ReshardEntry {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_reshard_entry", 3, |r, version| {
            let time = r.get()?;
            let tenant = r.get()?;
            let bucket_name = r.get()?;
            let bucket_id = r.get()?;
            if version < 2 {
                // The new bucket instance.
                r.get::<Name>()?;
            }
            Ok(ReshardEntry {
                time,
                tenant,
                bucket_name,
                bucket_id,
                old_shards: r.u32()?,
                new_shards: r.u32()?,
                initiator: codec::field(r, "initiator", version >= 3, || 0)?,
            })
        })
    }
}

/// `cls_rgw_reshard_add_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ReshardAddOp {
    pub entry: ReshardEntry,
    /// An entry that is there stays as it is.
    #[since(2)]
    pub create_only: bool,
}

/// `cls_rgw_reshard_get_op` and `cls_rgw_reshard_get_ret`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReshardBox {
    pub entry: ReshardEntry,
}

/// `cls_rgw_reshard_list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReshardListOp {
    pub max: u32,
    pub marker: Name,
}

/// `cls_rgw_reshard_list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReshardListReply {
    pub entries: Vec<ReshardEntry>,
    pub truncated: bool,
}

/// `cls_rgw_reshard_remove_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReshardRemoveOp {
    pub tenant: Name,
    pub bucket_name: Name,
    /// Unless empty, an entry of another bucket instance stays.
    pub bucket_id: Name,
}

/// `cls_rgw_set_bucket_resharding_op` and `cls_rgw_get_bucket_resharding_ret`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReshardStatusBox {
    pub reshard: Reshard,
}

/// `cls_rgw_clear_bucket_resharding_op` and `cls_rgw_get_bucket_resharding_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReshardNothingOp {}

/// `cls_rgw_guard_bucket_resharding_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GuardReshardOp {
    /// Result of the call while the index takes no changes.
    pub result: i32,
}
