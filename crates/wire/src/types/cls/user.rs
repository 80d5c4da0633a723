//! The `user` class: a gateway user's buckets with their statistics, and an account's resources.

use crate::types::{Name, UTime};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A bucket (`cls_user_bucket`, which is `rgw_bucket`'s old form).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserBucket {
    pub name: Name,
    pub marker: Name,
    pub bucket_id: Name,
    pub placement_id: Name,
    pub data_pool: Name,
    pub index_pool: Name,
    pub data_extra_pool: Name,
}

/// A bucket with a placement needs a reader of version 8.
impl Encode for UserBucket {
    fn encode(&self, w: &mut Writer) {
        if self.placement_id.is_empty() {
            w.envelope(7, 3, |w| {
                w.put(&self.name);
                w.put(&self.data_pool);
                w.put(&self.marker);
                w.put(&self.bucket_id);
                w.put(&self.index_pool);
                w.put(&self.data_extra_pool);
            });
        } else {
            w.envelope(9, 8, |w| {
                w.put(&self.name);
                w.put(&self.marker);
                w.put(&self.bucket_id);
                w.put(&self.placement_id);
            });
        }
    }
}

impl Decode for UserBucket {
    const MIN_LEN: usize = 1;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("cls_user_bucket", 9, 3, 3, |r, version| {
            let mut bucket = UserBucket { name: r.get()?, ..UserBucket::default() };
            if version < 8 {
                bucket.data_pool = r.get()?;
            }
            if version >= 2 {
                bucket.marker = r.get()?;
                bucket.bucket_id = if version <= 3 { r.u64()?.to_string().into() } else { r.get()? };
            }
            if version < 8 {
                bucket.index_pool = if version >= 5 { r.get()? } else { bucket.data_pool.clone() };
                bucket.data_extra_pool = if version >= 7 { r.get()? } else { Name::EMPTY };
            } else {
                bucket.placement_id = r.get()?;
                if version == 8 && bucket.placement_id.is_empty() {
                    bucket.data_pool = r.get()?;
                    bucket.index_pool = r.get()?;
                    bucket.data_extra_pool = r.get()?;
                }
            }
            Ok(bucket)
        })
    }
}

/// A bucket with its statistics (`cls_user_bucket_entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BucketEntry {
    pub bucket: UserBucket,
    pub size: u64,
    pub size_rounded: u64,
    pub creation_time: UTime,
    pub count: u64,
    /// The user's statistics contain this bucket's.
    pub is_counted: bool,
}

impl Encode for BucketEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 5, |w| {
            // The name's old place.
            w.count(0);
            w.u64(self.size);
            w.u32(self.creation_time.sec);
            w.u64(self.count);
            w.put(&self.bucket);
            w.u64(self.size_rounded);
            w.bool(self.is_counted);
            w.put(&self.creation_time);
        });
    }
}

impl Decode for BucketEntry {
    const MIN_LEN: usize = 1;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("cls_user_bucket_entry", 9, 5, 5, |r, version| {
            r.get::<Name>()?;
            let size = r.u64()?;
            let sec = r.u32()?;
            let count = codec::field(r, "count", version >= 2, || 0)?;
            let bucket = codec::field(r, "bucket", version >= 3, UserBucket::default)?;
            let size_rounded = codec::field(r, "size_rounded", version >= 4, || size)?;
            let is_counted = codec::field(r, "user_stats_sync", version >= 6, || false)?;
            let old_time = UTime { sec, nsec: 0 };
            let creation_time = codec::field(r, "creation_time", version >= 7, || old_time)?;
            if version == 8 {
                r.get::<Name>()?;
            }
            Ok(BucketEntry { bucket, size, size_rounded, creation_time, count, is_counted })
        })
    }
}

/// `cls_user_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct UserStats {
    pub entries: u64,
    pub bytes: u64,
    pub bytes_rounded: u64,
}

/// Header of a user's omap (`cls_user_header`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct UserHeader {
    pub stats: UserStats,
    pub last_sync: UTime,
    pub last_update: UTime,
}

/// `cls_user_set_buckets_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct SetBucketsOp {
    pub entries: Vec<BucketEntry>,
    /// Also buckets that the user does not have yet.
    pub add: bool,
    pub time: UTime,
}

/// `cls_user_remove_bucket_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct RemoveBucketOp {
    pub bucket: UserBucket,
}

/// `cls_user_list_buckets_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ListBucketsOp {
    pub marker: Name,
    pub max_entries: i32,
    /// Excluded, unless empty.
    #[since(2)]
    pub end_marker: Name,
}

/// `cls_user_list_buckets_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListBucketsReply {
    pub entries: Vec<BucketEntry>,
    pub marker: Name,
    pub truncated: bool,
}

/// `cls_user_get_header_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GetHeaderOp {}

/// `cls_user_get_header_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GetHeaderReply {
    pub header: UserHeader,
}

/// `cls_user_complete_stats_sync_op` and `cls_user_reset_stats_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TimeOp {
    pub time: UTime,
}

/// `cls_user_reset_stats2_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ResetStatsOp {
    pub time: UTime,
    pub marker: Name,
    /// Of the buckets up to the marker.
    pub stats: UserStats,
}

/// `cls_user_reset_stats2_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ResetStatsReply {
    pub marker: Name,
    pub stats: UserStats,
    pub truncated: bool,
}

/// User, group or role of an account (`cls_user_account_resource`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct AccountResource {
    pub name: Name,
    pub path: Name,
    pub metadata: Bytes,
}

/// Header of an account's omap (`cls_user_account_header`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct AccountHeader {
    pub count: u32,
}

/// `cls_user_account_resource_add_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ResourceAddOp {
    pub entry: AccountResource,
    pub exclusive: bool,
    pub limit: u32,
}

/// `cls_user_account_resource_get_op` and `cls_user_account_resource_rm_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ResourceNameOp {
    pub name: Name,
}

/// `cls_user_account_resource_get_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ResourceGetReply {
    pub entry: AccountResource,
}

/// `cls_user_account_resource_list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ResourceListOp {
    pub marker: Name,
    pub path_prefix: Name,
    pub max_entries: u32,
}

/// `cls_user_account_resource_list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ResourceListReply {
    pub entries: Vec<AccountResource>,
    pub truncated: bool,
    pub marker: Name,
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Features;

    #[test]
    fn bucket_with_placement_demands_newer_reader() {
        let old = UserBucket { name: "b".into(), data_pool: "d".into(), ..UserBucket::default() };
        let new = UserBucket { name: "b".into(), placement_id: "p".into(), ..UserBucket::default() };
        assert_eq!((old.to_vec(Features::NONE)[1], new.to_vec(Features::NONE)[1]), (3, 8));
        for bucket in [old, new] {
            let entry = BucketEntry { bucket, size: 1, count: 2, ..BucketEntry::default() };
            assert_eq!(codec::decode_exact::<BucketEntry>(&entry.to_vec(Features::NONE)), Ok(entry));
        }
    }
}
