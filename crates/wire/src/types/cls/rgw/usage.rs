//! The usage log: what users sent and received, by hour.

use crate::types::Name;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Traffic of one category of requests (`rgw_usage_data`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct UsageData {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub ops: u64,
    pub successful_ops: u64,
}

impl UsageData {
    pub fn add(&mut self, other: UsageData) {
        self.bytes_sent = self.bytes_sent.wrapping_add(other.bytes_sent);
        self.bytes_received = self.bytes_received.wrapping_add(other.bytes_received);
        self.ops = self.ops.wrapping_add(other.ops);
        self.successful_ops = self.successful_ops.wrapping_add(other.successful_ops);
    }
}

/// Traffic of queries (`rgw_s3select_usage_data`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct SelectUsage {
    pub bytes_processed: u64,
    pub bytes_returned: u64,
}

/// Traffic of one user with one bucket in one hour (`rgw_usage_log_entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageEntry {
    pub owner: Name,
    /// Empty: the owner.
    pub payer: Name,
    pub bucket: Name,
    /// Start of the hour, in seconds.
    pub epoch: u64,
    pub total: UsageData,
    /// By category of request.
    pub by_category: BTreeMap<Name, UsageData>,
    pub select: SelectUsage,
}

/// A user without an id, with or without a tenant.
fn is_nobody(user: &[u8]) -> bool {
    user.is_empty() || user.ends_with(b"$")
}

impl UsageEntry {
    /// The user who pays.
    pub fn payer(&self) -> &Name {
        if is_nobody(&self.payer) { &self.owner } else { &self.payer }
    }

    /// Adds another entry's traffic; an entry without an owner takes over whose it is.
    pub fn aggregate(&mut self, other: &UsageEntry) {
        if is_nobody(&self.owner) {
            self.owner = other.owner.clone();
            self.payer = other.payer.clone();
            self.bucket = other.bucket.clone();
            self.epoch = other.epoch;
        }
        for (category, data) in &other.by_category {
            self.by_category.entry(category.clone()).or_default().add(*data);
            self.total.add(*data);
        }
        let (select, more) = (&mut self.select, other.select);
        select.bytes_processed = select.bytes_processed.wrapping_add(more.bytes_processed);
        select.bytes_returned = select.bytes_returned.wrapping_add(more.bytes_returned);
    }
}

impl Encode for UsageEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.put(&self.owner);
            w.put(&self.bucket);
            w.u64(self.epoch);
            w.u64(self.total.bytes_sent);
            w.u64(self.total.bytes_received);
            w.u64(self.total.ops);
            w.u64(self.total.successful_ops);
            w.put(&self.by_category);
            w.put(&self.payer);
            w.put(&self.select);
        });
    }
}

impl Decode for UsageEntry {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("rgw_usage_log_entry", 4, |r, version| {
            let owner = r.get()?;
            let bucket = r.get()?;
            let epoch = r.u64()?;
            let total = UsageData {
                bytes_sent: r.u64()?,
                bytes_received: r.u64()?,
                ops: r.u64()?,
                successful_ops: r.u64()?,
            };
            let uncategorized = || BTreeMap::from([(Name::EMPTY, total)]);
            Ok(UsageEntry {
                owner,
                bucket,
                epoch,
                total,
                by_category: codec::field(r, "usage_map", version >= 2, uncategorized)?,
                payer: codec::field(r, "payer", version >= 3, Name::default)?,
                select: codec::field(r, "s3select_usage", version >= 4, SelectUsage::default)?,
            })
        })
    }
}

/// `rgw_usage_log_info`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct UsageInfo {
    pub entries: Vec<UsageEntry>,
}

/// `rgw_cls_usage_log_add_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct UsageAddOp {
    pub info: UsageInfo,
    #[since(2)]
    pub user: Name,
}

/// `rgw_cls_usage_log_read_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct UsageReadOp {
    pub start_epoch: u64,
    /// Excluded.
    pub end_epoch: u64,
    /// Empty: all.
    pub owner: Name,
    /// Key to go on from.
    pub iter: Name,
    /// 0: the default.
    pub max_entries: u32,
    /// Empty: all.
    #[since(2)]
    pub bucket: Name,
}

/// `rgw_user_bucket`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct UserBucketKey {
    pub user: Name,
    pub bucket: Name,
}

/// `rgw_cls_usage_log_read_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct UsageReadReply {
    pub usage: BTreeMap<UserBucketKey, UsageEntry>,
    pub truncated: bool,
    pub next_iter: Name,
}

/// `rgw_cls_usage_log_trim_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 3, compat = 2)]
pub struct UsageTrimOp {
    pub start_epoch: u64,
    /// Excluded.
    pub end_epoch: u64,
    pub user: Name,
    #[since(3)]
    pub bucket: Name,
}
