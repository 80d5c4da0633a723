//! Header and entries of an index: reading and writing them.

use super::keys::{RESHARD_LOG, instance_key, object_key};
use super::{BUSY_RESHARDING, MethodCall, MethodResult, MethodStop};
use crate::classes::omap;
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features, Reader};
use wire::types::Name;
use wire::types::cls::rgw::{
    BucketHeader, CategoryStats, DeletedEntry, DirEntry, ENTRY_INVALID, ENTRY_RESHARD_DELETED, EntryMeta,
    FLAG_VER_MARKER, IndexEntry, ObjectKey, STATUS_IN_LOGRECORD, STATUS_IN_PROGRESS,
};

/// Entries of the reshard log from which on the index takes no changes (`rgw_reshardlog_threshold`).
const RESHARD_LOG_MAX: u32 = 30_000;

/// `EIO` for a damaged header. An object without one has an empty one, and so has no object: the OSD refuses a list that only
/// reads before it calls a method, and a list that writes may bring the object into being.
pub(super) fn read_header(call: &mut MethodCall<'_>) -> Result<BucketHeader, MethodStop> {
    let bytes = call.omap_header()?;
    if bytes.is_empty() {
        return Ok(BucketHeader::default());
    }
    Reader::new(&bytes).get().map_err(|_| Errno::IO.into())
}

/// Each write has a version of its own.
pub(super) fn write_header(call: &mut MethodCall<'_>, header: &mut BucketHeader) -> MethodResult {
    header.ver = header.ver.wrapping_add(1);
    call.set_omap_header(&header.to_vec(Features::NONE))?;
    Ok(0)
}

pub(super) fn is_logged(header: &BucketHeader) -> bool {
    header.reshard.status == STATUS_IN_LOGRECORD
}

/// A method that leaves the header alone writes it for the sake of the reshard log's length.
pub(super) fn write_header_if_logged(call: &mut MethodCall<'_>, header: &mut BucketHeader) -> MethodResult {
    if is_logged(header) { write_header(call, header) } else { Ok(0) }
}

/// True if the index takes no changes now.
pub(super) fn is_busy(header: &BucketHeader) -> bool {
    header.reshard.status == STATUS_IN_PROGRESS
        || is_logged(header) && header.reshard_log_entries >= RESHARD_LOG_MAX
}

/// The header of an index that takes changes.
pub(super) fn open_header(call: &mut MethodCall<'_>) -> Result<BucketHeader, MethodStop> {
    let header = read_header(call)?;
    if is_busy(&header) { Err(BUSY_RESHARDING.into()) } else { Ok(header) }
}

/// Writes an entry, and its copy in the reshard log while there is one.
pub(super) fn write_entry<T: Encode>(
    call: &mut MethodCall<'_>,
    idx: &Bytes,
    entry: &T,
    header: &mut BucketHeader,
) -> Result<(), MethodStop> {
    let data: Bytes = entry.to_vec(Features::NONE).into();
    call.set_omap_value(idx, &data)?;
    if is_logged(header) {
        log_for_reshard(call, idx, ENTRY_INVALID, data, header)?;
    }
    Ok(())
}

/// `ENOENT` without an object; an entry that is not there is no error.
pub(super) fn remove_entry(
    call: &mut MethodCall<'_>,
    idx: &Bytes,
    key: &ObjectKey,
    header: &mut BucketHeader,
) -> Result<(), MethodStop> {
    call.remove_omap_key(idx)?;
    if is_logged(header) {
        let data = DeletedEntry { key: key.clone() }.to_vec(Features::NONE).into();
        log_for_reshard(call, idx, ENTRY_RESHARD_DELETED, data, header)?;
    }
    Ok(())
}

fn log_for_reshard(
    call: &mut MethodCall<'_>,
    idx: &Bytes,
    kind: u8,
    data: Bytes,
    header: &mut BucketHeader,
) -> Result<(), MethodStop> {
    let entry = IndexEntry { kind, idx: Name::from(&idx[..]), data };
    call.set_omap([RESHARD_LOG, idx].concat(), &entry)?;
    header.reshard_log_entries = header.reshard_log_entries.wrapping_add(1);
    Ok(())
}

/// Where an object's entry is, and the entry if it is there. Behind the placeholder of a versioned object it is the
/// instance without an id, or, if asked for, the delete marker without one.
pub(super) fn read_key_entry(
    call: &mut MethodCall<'_>,
    key: &ObjectKey,
    with_marker: bool,
) -> Result<(Bytes, Option<DirEntry>), MethodStop> {
    let idx = object_key(key);
    let Some(entry) = call.omap_as::<DirEntry>(&idx)? else { return Ok((idx, None)) };
    if !key.instance.is_empty() || entry.flags & FLAG_VER_MARKER == 0 {
        return Ok((idx, Some(entry)));
    }
    if with_marker {
        let idx = instance_key(key, true);
        if let Some(value) = call.omap_value(&idx)?
            && let Ok(entry) = omap::stored(&value)
        {
            return Ok((idx, Some(entry)));
        }
    }
    let idx = instance_key(key, false);
    let entry = call.omap_as(&idx)?;
    Ok((idx, entry))
}

fn stats_of<'a>(header: &'a mut BucketHeader, meta: &EntryMeta) -> &'a mut CategoryStats {
    header.stats.entry(meta.category).or_default()
}

pub(super) fn account(header: &mut BucketHeader, meta: &EntryMeta) {
    stats_of(header, meta).add(CategoryStats::of(meta));
}

/// Takes an entry that was counted out of the statistics.
pub(super) fn unaccount(header: &mut BucketHeader, entry: &DirEntry) {
    if entry.exists {
        stats_of(header, &entry.meta).subtract(CategoryStats::of(&entry.meta));
    }
}
