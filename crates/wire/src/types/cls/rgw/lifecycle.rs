//! Buckets that lifecycle processing visits.

use crate::types::Name;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// A bucket (`cls_rgw_lc_entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct LifecycleEntry {
    pub bucket: Name,
    /// While in progress.
    pub start_time: u64,
    pub status: u32,
}

impl LifecycleEntry {
    /// The form before there was a start time: a name and a status.
    pub fn decode_pair(r: &mut Reader<'_>) -> Result<LifecycleEntry, DecodeError> {
        Ok(LifecycleEntry { bucket: r.get()?, start_time: 0, status: r.u32()? })
    }
}

/// `cls_rgw_lc_set_entry_op`, `cls_rgw_lc_rm_entry_op`, `cls_rgw_lc_get_entry_ret` and `cls_rgw_lc_get_next_entry_ret`, which are
/// alike.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LifecycleBox {
    pub entry: LifecycleEntry,
}

impl Encode for LifecycleBox {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| w.put(&self.entry));
    }
}

impl Decode for LifecycleBox {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_lc_set_entry_op", 2, |r, version| {
            let entry = if version < 2 { LifecycleEntry::decode_pair(r)? } else { r.get()? };
            Ok(LifecycleBox { entry })
        })
    }
}

/// `cls_rgw_lc_get_entry_op` and `cls_rgw_lc_get_next_entry_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct LifecycleMarkerOp {
    pub marker: Name,
}

/// Progress of a shard (`cls_rgw_lc_obj_head`). Stock demands a reader of version 2, which Pacific's gateway is not;
/// the field that version 2 appended is no reason to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct LifecycleHead {
    pub start_date: u64,
    pub marker: Name,
    #[since(2)]
    pub shard_rollover_date: u64,
}

/// `cls_rgw_lc_put_head_op` and `cls_rgw_lc_get_head_ret`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct LifecycleHeadBox {
    pub head: LifecycleHead,
}

/// `cls_rgw_lc_list_entries_op`. Its version says which one the reply shall have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LifecycleListOp {
    pub version: u8,
    pub marker: Name,
    pub max_entries: u32,
}

impl Encode for LifecycleListOp {
    fn encode(&self, w: &mut Writer) {
        w.envelope(self.version, 1, |w| {
            w.put(&self.marker);
            w.u32(self.max_entries);
        });
    }
}

impl Decode for LifecycleListOp {
    const MIN_LEN: usize = 14;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_lc_list_entries_op", 3, |r, version| {
            Ok(LifecycleListOp { version, marker: r.get()?, max_entries: r.u32()? })
        })
    }
}

/// `cls_rgw_lc_list_entries_ret`. Up to version 2 the entries are names with their status.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LifecycleListReply {
    pub version: u8,
    pub entries: Vec<LifecycleEntry>,
    pub truncated: bool,
}

impl Encode for LifecycleListReply {
    fn encode(&self, w: &mut Writer) {
        w.envelope(self.version, 1, |w| {
            if self.version <= 2 {
                let mut statuses = BTreeMap::new();
                for entry in &self.entries {
                    statuses.entry(&entry.bucket).or_insert(entry.status);
                }
                w.put(&statuses);
            } else {
                w.put(&self.entries);
            }
            w.bool(self.truncated);
        });
    }
}

impl Decode for LifecycleListReply {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_lc_list_entries_ret", 3, |r, version| {
            let entries = if version <= 2 {
                let statuses: BTreeMap<Name, u32> = r.get()?;
                let entry = |(bucket, status)| LifecycleEntry { bucket, start_time: 0, status };
                statuses.into_iter().map(entry).collect()
            } else {
                r.get()?
            };
            let truncated = codec::field(r, "is_truncated", version >= 2, || false)?;
            Ok(LifecycleListReply { version, entries, truncated })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Features;

    #[test]
    fn reply_has_the_version_of_the_request() {
        let entry = LifecycleEntry { bucket: "b".into(), start_time: 7, status: 2 };
        for version in [1, 2, 3] {
            let reply = LifecycleListReply { version, entries: vec![entry.clone()], truncated: true };
            let read: LifecycleListReply = codec::Reader::new(&reply.to_vec(Features::NONE)).get().unwrap();
            assert_eq!((read.entries[0].status, read.truncated), (2, version >= 2));
            assert_eq!(read.entries[0].start_time, if version < 3 { 0 } else { 7 });
        }
    }
}
