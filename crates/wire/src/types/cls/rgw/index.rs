//! Entries of a bucket index, its header, and listings.

use super::ObjectKey;
use crate::types::{Name, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Instance of a versioned object.
pub const FLAG_VER: u16 = 1;
/// Newest instance of a versioned object.
pub const FLAG_CURRENT: u16 = 2;
pub const FLAG_DELETE_MARKER: u16 = 4;
/// Placeholder under the plain key of a versioned object.
pub const FLAG_VER_MARKER: u16 = 8;
/// A common prefix in a listing with a delimiter; never stored.
pub const FLAG_COMMON_PREFIX: u16 = 0x8000;

pub const STATE_PENDING: u8 = 0;
pub const STATE_COMPLETE: u8 = 1;

/// Size in whole blocks of 4 KiB. The sum wraps, as the statistics do.
pub fn rounded_size(size: u64) -> u64 {
    size.wrapping_add(4095) & !4095
}

/// A number in as few bytes as it needs. Stock writes 0x10000 as two bytes, which lose it; here it gets four, which
/// every reader understands.
pub(super) fn put_packed(w: &mut Writer, value: u64) {
    match value {
        0..=0x7f => w.u8(value as u8),
        0x80..=0xff => {
            w.u8(0x81);
            w.u8(value as u8);
        }
        0x100..=0xffff => {
            w.u8(0x82);
            w.u16(value as u16);
        }
        0x10000..=0x100_0000 => {
            w.u8(0x84);
            w.u32(value as u32);
        }
        _ => {
            w.u8(0x88);
            w.u64(value);
        }
    }
}

pub(super) fn get_packed(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    match r.u8()? {
        value @ 0..=0x7f => Ok(value.into()),
        0x81 => r.u8().map(u64::from),
        0x82 => r.u16().map(u64::from),
        0x84 => r.u32().map(u64::from),
        0x88 => r.u64(),
        other => Err(r.invalid("width of a packed number", other)),
    }
}

/// Version of the object's head (`rgw_bucket_entry_ver`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryVersion {
    /// -1: not known.
    pub pool: i64,
    pub epoch: u64,
}

impl Default for EntryVersion {
    fn default() -> EntryVersion {
        EntryVersion { pool: -1, epoch: 0 }
    }
}

impl Encode for EntryVersion {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            put_packed(w, self.pool as u64);
            put_packed(w, self.epoch);
        });
    }
}

impl Decode for EntryVersion {
    const MIN_LEN: usize = 8;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("rgw_bucket_entry_ver", 1, |r, _| {
            Ok(EntryVersion { pool: get_packed(r)? as i64, epoch: get_packed(r)? })
        })
    }
}

/// A change that was prepared and is not complete (`rgw_bucket_pending_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 2)]
pub struct PendingInfo {
    pub state: u8,
    pub timestamp: UTime,
    pub op: u8,
}

/// Properties of an object for listings (`rgw_bucket_dir_entry_meta`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryMeta {
    pub category: u8,
    pub size: u64,
    pub mtime: UTime,
    pub etag: Name,
    pub owner: Name,
    pub owner_display_name: Name,
    pub content_type: Name,
    /// Before compression and encryption.
    pub accounted_size: u64,
    pub user_data: Name,
    pub storage_class: Name,
    pub appendable: bool,
}

impl Encode for EntryMeta {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 3, |w| {
            w.u8(self.category);
            w.u64(self.size);
            w.put(&self.mtime);
            w.put(&self.etag);
            w.put(&self.owner);
            w.put(&self.owner_display_name);
            w.put(&self.content_type);
            w.u64(self.accounted_size);
            w.put(&self.user_data);
            w.put(&self.storage_class);
            w.bool(self.appendable);
        });
    }
}

impl Decode for EntryMeta {
    const MIN_LEN: usize = 38;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("rgw_bucket_dir_entry_meta", 7, 3, 3, |r, version| {
            let category = r.u8()?;
            let size = r.u64()?;
            Ok(EntryMeta {
                category,
                size,
                mtime: r.get()?,
                etag: r.get()?,
                owner: r.get()?,
                owner_display_name: r.get()?,
                content_type: codec::field(r, "content_type", version >= 2, Name::default)?,
                accounted_size: codec::field(r, "accounted_size", version >= 4, || size)?,
                user_data: codec::field(r, "user_data", version >= 5, Name::default)?,
                storage_class: codec::field(r, "storage_class", version >= 6, Name::default)?,
                appendable: codec::field(r, "appendable", version >= 7, || false)?,
            })
        })
    }
}

/// An entry of the index (`rgw_bucket_dir_entry`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirEntry {
    pub key: ObjectKey,
    pub ver: EntryVersion,
    pub locator: Name,
    pub exists: bool,
    pub meta: EntryMeta,
    /// Prepared changes by tag, ascending; a tag may be there more than once.
    pub pending: Vec<(Name, PendingInfo)>,
    /// The header's version when the entry last changed.
    pub index_ver: u64,
    pub tag: Name,
    pub flags: u16,
    /// Order of the instances of a versioned object: the newest has the greatest.
    pub versioned_epoch: u64,
}

impl DirEntry {
    pub fn is_current(&self) -> bool {
        self.flags & FLAG_VER == 0 || self.flags & FLAG_CURRENT != 0
    }

    pub fn is_delete_marker(&self) -> bool {
        self.flags & FLAG_DELETE_MARKER != 0
    }

    pub fn is_visible(&self) -> bool {
        self.is_current() && !self.is_delete_marker()
    }

    /// False for the placeholder of a versioned object.
    pub fn is_valid(&self) -> bool {
        self.flags & FLAG_VER_MARKER == 0
    }
}

impl Encode for DirEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 3, |w| {
            w.put(&self.key.name);
            w.u64(self.ver.epoch);
            w.bool(self.exists);
            w.put(&self.meta);
            w.put(&self.pending);
            w.put(&self.locator);
            w.put(&self.ver);
            put_packed(w, self.index_ver);
            w.put(&self.tag);
            w.put(&self.key.instance);
            w.u16(self.flags);
            w.u64(self.versioned_epoch);
        });
    }
}

impl Decode for DirEntry {
    const MIN_LEN: usize = 56;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("rgw_bucket_dir_entry", 8, 3, 3, |r, version| {
            let mut entry = DirEntry::default();
            entry.key.name = r.get()?;
            entry.ver.epoch = r.u64()?;
            entry.exists = r.bool()?;
            entry.meta = r.get()?;
            entry.pending = r.get()?;
            // Stable: of equal tags the first one stays first.
            entry.pending.sort_by(|a, b| a.0.cmp(&b.0));
            if version >= 2 {
                entry.locator = r.get()?;
            }
            if version >= 4 {
                entry.ver = r.get()?;
            }
            if version >= 5 {
                entry.index_ver = get_packed(r)?;
                entry.tag = r.get()?;
            }
            if version >= 6 {
                entry.key.instance = r.get()?;
            }
            if version >= 7 {
                entry.flags = r.u16()?;
            }
            if version >= 8 {
                entry.versioned_epoch = r.u64()?;
            }
            Ok(entry)
        })
    }
}

/// Sums over the entries of one category (`rgw_bucket_category_stats`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CategoryStats {
    pub total_size: u64,
    pub total_size_rounded: u64,
    pub num_entries: u64,
    pub actual_size: u64,
}

impl CategoryStats {
    /// One entry's share.
    pub fn of(meta: &EntryMeta) -> CategoryStats {
        CategoryStats {
            total_size: meta.accounted_size,
            total_size_rounded: rounded_size(meta.accounted_size),
            num_entries: 1,
            actual_size: meta.size,
        }
    }

    pub fn add(&mut self, other: CategoryStats) {
        self.total_size = self.total_size.wrapping_add(other.total_size);
        self.total_size_rounded = self.total_size_rounded.wrapping_add(other.total_size_rounded);
        self.num_entries = self.num_entries.wrapping_add(other.num_entries);
        self.actual_size = self.actual_size.wrapping_add(other.actual_size);
    }

    /// Below zero the sums wrap: the next rebuild of the index sets them right.
    pub fn subtract(&mut self, other: CategoryStats) {
        self.total_size = self.total_size.wrapping_sub(other.total_size);
        self.total_size_rounded = self.total_size_rounded.wrapping_sub(other.total_size_rounded);
        self.num_entries = self.num_entries.wrapping_sub(other.num_entries);
        self.actual_size = self.actual_size.wrapping_sub(other.actual_size);
    }
}

impl Encode for CategoryStats {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            w.u64(self.total_size);
            w.u64(self.total_size_rounded);
            w.u64(self.num_entries);
            w.u64(self.actual_size);
        });
    }
}

impl Decode for CategoryStats {
    const MIN_LEN: usize = 25;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("rgw_bucket_category_stats", 3, 2, 2, |r, version| {
            let total_size = r.u64()?;
            Ok(CategoryStats {
                total_size,
                total_size_rounded: r.u64()?,
                num_entries: r.u64()?,
                actual_size: codec::field(r, "actual_size", version >= 3, || total_size)?,
            })
        })
    }
}

/// State of resharding (`cls_rgw_bucket_instance_entry`). Version 1 named the new bucket instance too; version 3 keeps
/// empty fields in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reshard {
    pub status: u8,
}

impl Encode for Reshard {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.u8(self.status);
            w.put(&Name::EMPTY);
            w.i32(-1);
        });
    }
}

impl Decode for Reshard {
    const MIN_LEN: usize = 7;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_bucket_instance_entry", 3, |r, version| {
            let status = r.u8()?;
            if version != 2 {
                r.get::<Name>()?;
                r.i32()?;
            }
            Ok(Reshard { status })
        })
    }
}

/// Header of the index's omap (`rgw_bucket_dir_header`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BucketHeader {
    pub stats: BTreeMap<u8, CategoryStats>,
    /// Seconds after which a prepared change counts as given up; 0: the default.
    pub tag_timeout: u64,
    /// Counts the header's changes.
    pub ver: u64,
    pub master_ver: u64,
    /// Key of the newest entry of the index log.
    pub max_marker: Name,
    pub reshard: Reshard,
    pub sync_stopped: bool,
    /// Entries of the reshard log.
    pub reshard_log_entries: u32,
}

impl Encode for BucketHeader {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 2, |w| {
            w.put(&self.stats);
            w.u64(self.tag_timeout);
            w.u64(self.ver);
            w.u64(self.master_ver);
            w.put(&self.max_marker);
            w.put(&self.reshard);
            w.bool(self.sync_stopped);
            w.u32(self.reshard_log_entries);
        });
    }
}

impl Decode for BucketHeader {
    const MIN_LEN: usize = 5;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("rgw_bucket_dir_header", 8, 2, 2, |r, version| {
            Ok(BucketHeader {
                stats: r.get()?,
                tag_timeout: codec::field(r, "tag_timeout", version >= 3, || 0)?,
                ver: codec::field(r, "ver", version >= 4, || 0)?,
                master_ver: codec::field(r, "master_ver", version >= 4, || 0)?,
                max_marker: codec::field(r, "max_marker", version >= 5, Name::default)?,
                reshard: codec::field(r, "new_instance", version >= 6, Reshard::default)?,
                sync_stopped: codec::field(r, "syncstopped", version >= 7, || false)?,
                reshard_log_entries: codec::field(r, "reshardlog_entries", version >= 8, || 0)?,
            })
        })
    }
}

/// Header and some entries (`rgw_bucket_dir`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 2)]
pub struct BucketDir {
    pub header: BucketHeader,
    pub entries: BTreeMap<Name, DirEntry>,
}

/// `rgw_cls_list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 6, compat = 4)]
pub struct ListOp {
    /// 0: the header only.
    pub num_entries: u32,
    pub filter_prefix: Name,
    /// Excluded.
    pub start: ObjectKey,
    #[since(5)]
    pub list_versions: bool,
    #[since(6)]
    pub delimiter: Name,
}

/// `rgw_cls_list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 4, compat = 2)]
pub struct ListReply {
    pub dir: BucketDir,
    pub truncated: bool,
    /// Where to go on, if truncated.
    #[since(4)]
    pub marker: ObjectKey,
}

/// `rgw_cls_check_index_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CheckReply {
    pub existing: BucketHeader,
    pub calculated: BucketHeader,
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Features;

    #[test]
    fn packed_number_fits_its_width() {
        let numbers = [0, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x10000, 0x100_0000, 0x100_0001, u64::MAX];
        let widths = numbers.map(|number| {
            let mut w = Writer::new(Features::NONE);
            put_packed(&mut w, number);
            let bytes = w.into_vec();
            assert_eq!(get_packed(&mut Reader::new(&bytes)), Ok(number));
            bytes.len()
        });
        assert_eq!(widths, [1, 1, 2, 2, 3, 3, 5, 5, 9, 9]);
        assert!(get_packed(&mut Reader::new(&[0x83, 0, 0, 0])).is_err());
    }

    #[test]
    fn pending_changes_keep_ascending_tags() {
        let info = |op| PendingInfo { op, ..PendingInfo::default() };
        let pending = vec![("b".into(), info(0)), ("a".into(), info(1)), ("b".into(), info(2))];
        let entry = DirEntry { pending, ..DirEntry::default() };
        let read: DirEntry = codec::decode_exact(&entry.to_vec(Features::NONE)).unwrap();
        assert_eq!(read.pending.iter().map(|(_, info)| info.op).collect::<Vec<_>>(), [1, 0, 2]);
    }
}
