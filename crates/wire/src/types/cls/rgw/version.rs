//! Versioned objects: an object's logical head (OLH) points to its current instance.

use super::{EntryMeta, ObjectKey, ZoneSet};
use crate::types::{Name, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Kinds of steps in the log of a logical head (`OLHLogOp`).
pub const OLH_LINK: u8 = 1;
pub const OLH_UNLINK: u8 = 2;
pub const OLH_REMOVE_INSTANCE: u8 = 3;

/// A step that the gateway has still to do to the head object (`rgw_bucket_olh_log_entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct OlhLogEntry {
    pub epoch: u64,
    pub op: u8,
    pub op_tag: Name,
    pub key: ObjectKey,
    pub delete_marker: bool,
}

/// Logical head of a versioned object (`rgw_bucket_olh_entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct OlhEntry {
    /// The current instance.
    pub key: ObjectKey,
    pub delete_marker: bool,
    pub epoch: u64,
    pub pending_log: BTreeMap<u64, Vec<OlhLogEntry>>,
    pub tag: Name,
    pub exists: bool,
    pub pending_removal: bool,
}

/// `rgw_cls_link_olh_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkOlhOp {
    pub key: ObjectKey,
    pub olh_tag: Name,
    pub delete_marker: bool,
    pub op_tag: Name,
    pub meta: EntryMeta,
    /// Of another zone; 0: the next one.
    pub olh_epoch: u64,
    pub log_op: bool,
    pub bilog_flags: u16,
    /// Nothing happens if the instance is as new as this or newer.
    pub unmodified_since: UTime,
    pub high_precision_time: bool,
    pub zones: ZoneSet,
}

impl Encode for LinkOlhOp {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 1, |w| {
            w.put(&self.key);
            w.put(&self.olh_tag);
            w.bool(self.delete_marker);
            w.put(&self.op_tag);
            w.put(&self.meta);
            w.u64(self.olh_epoch);
            w.bool(self.log_op);
            w.u16(self.bilog_flags);
            // The time in seconds, for old readers.
            w.u64(self.unmodified_since.sec.into());
            w.put(&self.unmodified_since);
            w.bool(self.high_precision_time);
            w.put(&self.zones);
        });
    }
}

impl Decode for LinkOlhOp {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("rgw_cls_link_olh_op", 5, |r, version| {
            let mut op = LinkOlhOp {
                key: r.get()?,
                olh_tag: r.get()?,
                delete_marker: r.bool()?,
                op_tag: r.get()?,
                meta: r.get()?,
                olh_epoch: r.u64()?,
                log_op: r.bool()?,
                bilog_flags: r.u16()?,
                ..LinkOlhOp::default()
            };
            if version >= 2 {
                let seconds = r.u64()?;
                op.unmodified_since = UTime { sec: u32::try_from(seconds).unwrap_or(u32::MAX), nsec: 0 };
            }
            if version >= 3 {
                op.unmodified_since = r.get()?;
            }
            op.high_precision_time = codec::field(r, "high_precision_time", version >= 4, || false)?;
            op.zones = codec::field(r, "zones_trace", version >= 5, Vec::new)?;
            Ok(op)
        })
    }
}

/// `rgw_cls_unlink_instance_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 3, compat = 1)]
pub struct UnlinkInstanceOp {
    pub key: ObjectKey,
    pub op_tag: Name,
    /// Of another zone; 0: the next one.
    pub olh_epoch: u64,
    pub log_op: bool,
    pub bilog_flags: u16,
    #[since(2)]
    pub olh_tag: Name,
    #[since(3)]
    pub zones: ZoneSet,
}

/// `rgw_cls_read_olh_log_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReadOlhLogOp {
    pub olh: ObjectKey,
    /// Excluded.
    pub ver_marker: u64,
    pub olh_tag: Name,
}

/// `rgw_cls_read_olh_log_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReadOlhLogReply {
    pub log: BTreeMap<u64, Vec<OlhLogEntry>>,
    pub truncated: bool,
}

/// `rgw_cls_trim_olh_log_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TrimOlhLogOp {
    pub olh: ObjectKey,
    /// Included.
    pub ver: u64,
    pub olh_tag: Name,
}

/// `rgw_cls_bucket_clear_olh_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ClearOlhOp {
    pub key: ObjectKey,
    pub olh_tag: Name,
}
