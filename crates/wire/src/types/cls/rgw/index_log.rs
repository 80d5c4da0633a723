//! The index log: changes of a bucket for other zones.

use super::index::{get_packed, put_packed};
use super::{EntryVersion, ZoneSet};
use crate::types::{Name, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Flag of a change of a versioned object.
pub const BILOG_VERSIONED: u16 = 1;

/// One change (`rgw_bi_log_entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IndexLogEntry {
    /// End of the entry's key.
    pub id: Name,
    pub object: Name,
    pub instance: Name,
    pub timestamp: UTime,
    pub ver: EntryVersion,
    pub op: u8,
    pub state: u8,
    pub index_ver: u64,
    pub tag: Name,
    pub bilog_flags: u16,
    /// Of a delete marker only.
    pub owner: Name,
    pub owner_display_name: Name,
    pub zones: ZoneSet,
}

impl Encode for IndexLogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.put(&self.id);
            w.put(&self.object);
            w.put(&self.timestamp);
            w.put(&self.ver);
            w.put(&self.tag);
            w.u8(self.op);
            w.u8(self.state);
            put_packed(w, self.index_ver);
            w.put(&self.instance);
            w.u16(self.bilog_flags);
            w.put(&self.owner);
            w.put(&self.owner_display_name);
            w.put(&self.zones);
        });
    }
}

impl Decode for IndexLogEntry {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("rgw_bi_log_entry", 4, |r, version| {
            let mut entry = IndexLogEntry {
                id: r.get()?,
                object: r.get()?,
                timestamp: r.get()?,
                ver: r.get()?,
                tag: r.get()?,
                op: r.u8()?,
                state: r.u8()?,
                index_ver: get_packed(r)?,
                ..IndexLogEntry::default()
            };
            entry.instance = codec::field(r, "instance", version >= 2, Name::default)?;
            entry.bilog_flags = codec::field(r, "bilog_flags", version >= 2, || 0)?;
            entry.owner = codec::field(r, "owner", version >= 3, Name::default)?;
            entry.owner_display_name = codec::field(r, "owner_display_name", version >= 3, Name::default)?;
            entry.zones = codec::field(r, "zones_trace", version >= 4, Vec::new)?;
            Ok(entry)
        })
    }
}

/// `cls_rgw_bi_log_list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListLogOp {
    /// Excluded.
    pub marker: Name,
    pub max: u32,
}

/// `cls_rgw_bi_log_list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListLogReply {
    pub entries: Vec<IndexLogEntry>,
    pub truncated: bool,
}

/// `cls_rgw_bi_log_trim_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TrimLogOp {
    pub start_marker: Name,
    /// Included; empty: the log's end.
    pub end_marker: Name,
}
