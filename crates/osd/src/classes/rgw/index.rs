//! An index's beginning, the two steps of each change, and its statistics.

use super::entries::{Region, instance_entries, plain_entries};
use super::index_log::{log_change, object_entry};
use super::keys::{instance_key, object_key};
use super::stored::{
    account, is_busy, is_logged, open_header, read_header, read_key_entry, remove_entry, unaccount,
    write_entry, write_header,
};
use super::{BUSY_RESHARDING, MethodCall, MethodResult, MethodStop};
use crate::classes::omap;
use crate::errno::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::types::cls::rgw::{
    BucketHeader, CheckReply, CompleteOp, DirEntry, FLAG_VER, FLAG_VER_MARKER, MODIFY_ADD, MODIFY_CANCEL,
    MODIFY_DEL, ObjectKey, PendingInfo, PrepareOp, STATE_PENDING, TagTimeoutOp, UpdateStatsOp,
};

/// `EINVAL` for an object that has a header.
pub fn bucket_init_index(call: &mut MethodCall<'_>) -> MethodResult {
    if !call.omap_header()?.is_empty() {
        return Err(Errno::INVAL.into());
    }
    write_header(call, &mut BucketHeader::default())
}

pub fn bucket_set_tag_timeout(call: &mut MethodCall<'_>) -> MethodResult {
    let op: TagTimeoutOp = call.argument()?;
    let mut header = read_header(call)?;
    header.tag_timeout = op.seconds;
    write_header(call, &mut header)
}

/// Notes a change that a gateway is about to make. The header stays as it is.
pub fn bucket_prepare_op(call: &mut MethodCall<'_>) -> MethodResult {
    let op: PrepareOp = call.argument()?;
    if op.tag.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let mut header = open_header(call)?;
    let (idx, stored) = read_key_entry(call, &op.key, false)?;
    let mut entry = stored.unwrap_or_else(|| DirEntry {
        key: op.key.clone(),
        locator: op.locator.clone(),
        ..DirEntry::default()
    });
    let info = PendingInfo { state: STATE_PENDING, timestamp: call.context.now, op: op.op };
    let at = entry.pending.partition_point(|(tag, _)| *tag <= op.tag);
    entry.pending.insert(at, (op.tag, info));
    write_entry(call, &idx, &entry, &mut header)?;
    Ok(0)
}

/// Ends a prepared change, or makes one that was not. `EINVAL` for a tag without a prepared change. A change of an older version
/// of the object than the entry's counts as cancelled.
pub fn bucket_complete_op(call: &mut MethodCall<'_>) -> MethodResult {
    let mut op: CompleteOp = call.argument()?;
    let mut header = match read_header(call) {
        Err(MethodStop::Failed(_)) => return Err(Errno::INVAL.into()),
        other => other?,
    };
    if is_busy(&header) {
        return Err(BUSY_RESHARDING.into());
    }
    let (idx, stored) = read_key_entry(call, &op.key, false)?;
    let is_stored = stored.is_some();
    let mut entry = stored.unwrap_or_else(|| DirEntry {
        key: op.key.clone(),
        ver: op.ver,
        meta: op.meta.clone(),
        locator: op.locator.clone(),
        ..DirEntry::default()
    });
    let removed = read_removed(call, &op.remove)?;

    entry.index_ver = header.ver;
    // The entry may have been a delete marker.
    entry.flags &= FLAG_VER;
    let has_tag = !op.tag.is_empty();
    if has_tag {
        let at = entry.pending.iter().position(|(tag, _)| *tag == op.tag);
        entry.pending.remove(at.ok_or(MethodStop::Failed(Errno::INVAL))?);
    }
    let is_old = op.ver.pool == entry.ver.pool && op.ver.epoch != 0 && op.ver.epoch <= entry.ver.epoch;
    if is_old {
        op.op = MODIFY_CANCEL;
    }
    entry.ver = op.ver;
    let mut is_logged_op = op.log_op && !header.sync_stopped;
    match op.op {
        MODIFY_CANCEL => {
            is_logged_op = false;
            if has_tag && !entry.exists && entry.pending.is_empty() {
                // A delete came between, and this was the last prepared change.
                remove_entry(call, &idx, &entry.key, &mut header)?;
            } else if has_tag {
                write_entry(call, &idx, &entry, &mut header)?;
            }
        }
        MODIFY_DEL => {
            unaccount(&mut header, &entry);
            entry.meta = op.meta.clone();
            if !is_stored {
                is_logged_op = false;
            } else if entry.pending.is_empty() {
                remove_entry(call, &idx, &entry.key, &mut header)?;
            } else {
                entry.exists = false;
                write_entry(call, &idx, &entry, &mut header)?;
            }
        }
        MODIFY_ADD => {
            unaccount(&mut header, &entry);
            account(&mut header, &op.meta);
            entry.meta = op.meta.clone();
            entry.key = op.key.clone();
            entry.exists = true;
            entry.tag = op.tag.clone();
            write_entry(call, &idx, &entry, &mut header)?;
        }
        _ => {}
    }
    if is_logged_op {
        let mut log = object_entry(&op.key.name, &op.key.instance, op.op, header.ver);
        log.tag = op.tag;
        log.timestamp = entry.meta.mtime;
        log.ver = entry.ver;
        log.bilog_flags = op.bilog_flags;
        log.zones = op.zones;
        log_change(call, log, &mut header)?;
    }
    remove_others(call, removed, &mut header)?;
    write_header(call, &mut header)
}

/// Entries that a change takes along, each with its key: those that are there and sound. In two reads, however many.
fn read_removed(
    call: &mut MethodCall<'_>,
    keys: &[ObjectKey],
) -> Result<Vec<(Bytes, ObjectKey, DirEntry)>, MethodStop> {
    let direct = read_entries(call, keys.iter().map(object_key).collect())?;
    let is_placeholder = |key: &ObjectKey| {
        let entry = direct.get(&object_key(key));
        key.instance.is_empty() && entry.is_some_and(|entry| entry.flags & FLAG_VER_MARKER != 0)
    };
    let behind = keys.iter().filter(|key| is_placeholder(key)).map(|key| instance_key(key, false)).collect();
    let behind = read_entries(call, behind)?;
    let found = |key: &ObjectKey| {
        let (idx, entries) = match is_placeholder(key) {
            true => (instance_key(key, false), &behind),
            false => (object_key(key), &direct),
        };
        let entry = entries.get(&idx)?.clone();
        Some((idx, key.clone(), entry))
    };
    Ok(keys.iter().filter_map(found).collect())
}

fn read_entries(
    call: &mut MethodCall<'_>,
    keys: Vec<Bytes>,
) -> Result<BTreeMap<Bytes, DirEntry>, MethodStop> {
    let stored = call.omap_values(keys)?;
    Ok(stored.into_iter().filter_map(|(idx, value)| Some((idx, omap::stored(&value).ok()?))).collect())
}

/// Removes entries that go with a change, with one operation as long as no reshard log wants each of them.
fn remove_others(
    call: &mut MethodCall<'_>,
    removed: Vec<(Bytes, ObjectKey, DirEntry)>,
    header: &mut BucketHeader,
) -> Result<(), MethodStop> {
    for (_, _, entry) in &removed {
        unaccount(header, entry);
    }
    if is_logged(header) {
        return removed.iter().try_for_each(|(idx, key, _)| remove_entry(call, idx, key, header));
    }
    let keys: Vec<Bytes> = removed.into_iter().map(|(idx, _, _)| idx).collect();
    if keys.is_empty() { Ok(()) } else { call.remove_omap_keys(&keys) }
}

pub fn bucket_update_stats(call: &mut MethodCall<'_>) -> MethodResult {
    let op: UpdateStatsOp = call.argument()?;
    let mut header = read_header(call)?;
    for (category, stats) in op.stats {
        let sum = header.stats.entry(category).or_default();
        if op.absolute {
            *sum = stats;
        } else {
            sum.add(stats);
        }
    }
    if op.absolute && !op.less.is_empty() {
        return Err(Errno::INVAL.into());
    }
    for (category, stats) in op.less {
        header.stats.entry(category).or_default().subtract(stats);
    }
    write_header(call, &mut header)
}

/// The header with statistics that are summed anew. What it says of resharding and of the log is not kept.
fn calculated(call: &mut MethodCall<'_>, existing: &BucketHeader) -> Result<BucketHeader, MethodStop> {
    let mut header = BucketHeader {
        tag_timeout: existing.tag_timeout,
        ver: existing.ver,
        sync_stopped: existing.sync_stopped,
        ..BucketHeader::default()
    };
    let mut stored = plain_entries(call, Region::Low)?;
    stored.extend(plain_entries(call, Region::High)?);
    let plain_count = stored.len();
    stored.extend(instance_entries(call)?);
    for (at, (_, value)) in stored.iter().enumerate() {
        let entry: DirEntry = omap::stored(value)?;
        if entry.exists && (at >= plain_count || entry.flags == 0) {
            account(&mut header, &entry.meta);
        }
    }
    Ok(header)
}

pub fn bucket_check_index(call: &mut MethodCall<'_>) -> MethodResult {
    let existing = read_header(call)?;
    let calculated = calculated(call, &existing)?;
    call.finish_with(&CheckReply { existing, calculated })
}

pub fn bucket_rebuild_index(call: &mut MethodCall<'_>) -> MethodResult {
    let existing = open_header(call)?;
    let mut header = calculated(call, &existing)?;
    write_header(call, &mut header)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::cls::rgw::{CategoryStats, EntryMeta, EntryVersion, Reshard, ReshardStatusBox};
    use wire::types::{Name, UTime};

    pub fn index() -> Object {
        let mut o = Object::missing();
        o.call_bare("rgw", "bucket_init_index").unwrap();
        o
    }

    pub fn header(o: &Object) -> BucketHeader {
        codec::decode_exact(&o.omap_header()).unwrap()
    }

    pub fn stored(o: &Object, idx: impl AsRef<[u8]>) -> Option<DirEntry> {
        o.omap(idx).map(|value| decode(&value))
    }

    pub fn key(name: &str) -> ObjectKey {
        ObjectKey { name: name.into(), instance: Name::EMPTY }
    }

    pub fn prepare(o: &mut Object, name: &str, tag: &str, op: u8) -> Result<Bytes, Errno> {
        let op = PrepareOp { op, tag: tag.into(), key: key(name), ..PrepareOp::default() };
        o.call("rgw", "bucket_prepare_op", &op)
    }

    pub fn completion(name: &str, tag: &str, op: u8, epoch: u64, size: u64) -> CompleteOp {
        CompleteOp {
            op,
            tag: tag.into(),
            key: key(name),
            ver: EntryVersion { pool: 1, epoch },
            meta: EntryMeta { category: 1, size, accounted_size: size, ..EntryMeta::default() },
            ..CompleteOp::default()
        }
    }

    pub fn complete(o: &mut Object, op: &CompleteOp) -> Result<Bytes, Errno> {
        o.call("rgw", "bucket_complete_op", op)
    }

    /// An object with its change prepared and completed.
    pub fn add(o: &mut Object, name: &str, size: u64, log_op: bool) {
        prepare(o, name, "tag", MODIFY_ADD).unwrap();
        let epoch = header(o).ver + 1;
        complete(o, &CompleteOp { log_op, ..completion(name, "tag", MODIFY_ADD, epoch, size) }).unwrap();
    }

    pub fn stats(o: &Object) -> (u64, u64) {
        let stats = header(o).stats.get(&1).copied().unwrap_or_default();
        (stats.num_entries, stats.total_size)
    }

    #[test]
    fn an_index_is_made_once() {
        let mut o = index();
        assert_eq!(header(&o), BucketHeader { ver: 1, ..BucketHeader::default() });
        assert_eq!(o.call_bare("rgw", "bucket_init_index"), Err(Errno::INVAL));
        assert_eq!(o.call_bare("rgw", "bucket_init_index2"), Err(Errno::INVAL));
        o.call("rgw", "bucket_set_tag_timeout", &TagTimeoutOp { seconds: 7 }).unwrap();
        assert_eq!((header(&o).tag_timeout, header(&o).ver), (7, 2));
        let timeout = TagTimeoutOp { seconds: 7 };
        let mut none = Object::missing();
        none.call("rgw", "bucket_set_tag_timeout", &timeout).unwrap();
        assert_eq!(header(&none).tag_timeout, 7);
    }

    #[test]
    fn change_is_prepared_then_counted() {
        let mut o = index();
        prepare(&mut o, "a", "t", MODIFY_ADD).unwrap();
        let entry = stored(&o, "a").unwrap();
        assert!(!entry.exists && entry.pending[0].0 == "t");
        assert_eq!(entry.pending[0].1.timestamp, UTime { sec: 1000, nsec: 0 });
        assert_eq!((stats(&o), header(&o).ver), ((0, 0), 1), "nothing is counted yet");
        complete(&mut o, &completion("a", "t", MODIFY_ADD, 5, 4097)).unwrap();
        let entry = stored(&o, "a").unwrap();
        assert!(entry.exists && entry.pending.is_empty() && entry.tag == "t");
        assert_eq!((entry.index_ver, header(&o).ver), (1, 2));
        let sums =
            CategoryStats { total_size: 4097, total_size_rounded: 8192, num_entries: 1, actual_size: 4097 };
        assert_eq!(header(&o).stats[&1], sums);

        // An overwrite replaces what was counted.
        prepare(&mut o, "a", "u", MODIFY_ADD).unwrap();
        complete(&mut o, &completion("a", "u", MODIFY_ADD, 6, 10)).unwrap();
        assert_eq!(stats(&o), (1, 10));
        prepare(&mut o, "a", "v", MODIFY_DEL).unwrap();
        complete(&mut o, &completion("a", "v", MODIFY_DEL, 7, 0)).unwrap();
        assert_eq!((stored(&o, "a"), stats(&o)), (None, (0, 0)));
    }

    #[test]
    fn wrong_tags_and_missing_indexes_are_refused() {
        let mut o = index();
        assert_eq!(prepare(&mut o, "a", "", MODIFY_ADD), Err(Errno::INVAL));
        assert_eq!(complete(&mut o, &completion("a", "t", MODIFY_ADD, 1, 1)), Err(Errno::INVAL));
        assert_eq!(o.call_raw("rgw", "bucket_prepare_op", b"x").result, Errno::INVAL.result());
        let mut none = Object::missing();
        assert_eq!(complete(&mut none, &completion("a", "t", MODIFY_ADD, 1, 1)), Err(Errno::INVAL));
        assert!(!none.exists());
    }

    #[test]
    fn older_version_counts_as_cancelled() {
        let mut o = index();
        for tag in ["old", "new"] {
            prepare(&mut o, "a", tag, MODIFY_ADD).unwrap();
        }
        complete(&mut o, &completion("a", "new", MODIFY_ADD, 9, 100)).unwrap();
        complete(&mut o, &completion("a", "old", MODIFY_ADD, 8, 7)).unwrap();
        let entry = stored(&o, "a").unwrap();
        assert_eq!((entry.meta.size, entry.pending.len(), stats(&o)), (100, 0, (1, 100)));
        // Without a tag nothing was prepared, and an old change leaves the entry alone.
        complete(&mut o, &completion("a", "", MODIFY_DEL, 1, 0)).unwrap();
        assert!(stored(&o, "a").unwrap().exists);
    }

    #[test]
    fn delete_during_another_change_leaves_a_hidden_entry() {
        let mut o = index();
        add(&mut o, "a", 3, false);
        prepare(&mut o, "a", "other", MODIFY_ADD).unwrap();
        prepare(&mut o, "a", "del", MODIFY_DEL).unwrap();
        complete(&mut o, &completion("a", "del", MODIFY_DEL, 50, 0)).unwrap();
        let entry = stored(&o, "a").unwrap();
        assert_eq!((entry.exists, entry.pending.len(), stats(&o)), (false, 1, (0, 0)));
        complete(&mut o, &completion("a", "other", MODIFY_CANCEL, 0, 0)).unwrap();
        assert_eq!(stored(&o, "a"), None, "the last cancelled change removes it");
    }

    #[test]
    fn completed_upload_takes_its_parts_along() {
        let mut o = index();
        for part in ["_multipart_a.1", "_multipart_a.2"] {
            add(&mut o, part, 10, false);
        }
        prepare(&mut o, "a", "t", MODIFY_ADD).unwrap();
        let mut op = completion("a", "t", MODIFY_ADD, 90, 20);
        op.remove = ["_multipart_a.1", "_multipart_a.2", "_multipart_a.3"].map(key).to_vec();
        complete(&mut o, &op).unwrap();
        assert_eq!((stats(&o), o.omap_keys()), ((1, 20), vec![Bytes::from("a")]));
    }

    #[test]
    fn statistics_are_set_and_changed() {
        let mut o = index();
        let some = |n| CategoryStats { total_size: n, total_size_rounded: n, num_entries: n, actual_size: n };
        let map = |n| BTreeMap::from([(1, some(n))]);
        let set = UpdateStatsOp { absolute: true, stats: map(9), less: BTreeMap::new() };
        o.call("rgw", "bucket_update_stats", &set).unwrap();
        let change = UpdateStatsOp { absolute: false, stats: map(3), less: map(2) };
        o.call("rgw", "bucket_update_stats", &change).unwrap();
        assert_eq!(header(&o).stats[&1], some(10));
        let both = UpdateStatsOp { absolute: true, ..change };
        assert_eq!(o.call("rgw", "bucket_update_stats", &both), Err(Errno::INVAL));
    }

    #[test]
    fn rebuild_sums_all_entries() {
        let mut o = index();
        for name in ["a", "b", "\u{e9}"] {
            add(&mut o, name, 5, true);
        }
        prepare(&mut o, "c", "t", MODIFY_ADD).unwrap();
        let zero = BTreeMap::from([(1, CategoryStats::default())]);
        let wrong = UpdateStatsOp { absolute: true, stats: zero, less: BTreeMap::new() };
        o.call("rgw", "bucket_update_stats", &wrong).unwrap();
        let reply: CheckReply = decode(&o.call_bare("rgw", "bucket_check_index").unwrap());
        assert_eq!((reply.existing.stats[&1].num_entries, reply.calculated.stats[&1].num_entries), (0, 3));
        let before = header(&o).ver;
        o.call_bare("rgw", "bucket_rebuild_index").unwrap();
        assert_eq!((stats(&o), header(&o).ver), ((3, 15), before + 1));
    }

    #[test]
    fn a_moving_index_takes_no_changes_and_logs_them_before() {
        let mut o = index();
        add(&mut o, "a", 5, false);
        let set = |o: &mut Object, status| {
            let op = ReshardStatusBox { reshard: Reshard { status } };
            o.call("rgw", "set_bucket_resharding", &op).unwrap();
        };
        set(&mut o, 1);
        assert_eq!(prepare(&mut o, "b", "t", MODIFY_ADD), Err(BUSY_RESHARDING));
        assert_eq!(complete(&mut o, &completion("a", "", MODIFY_DEL, 99, 0)), Err(BUSY_RESHARDING));
        set(&mut o, 3);
        add(&mut o, "b", 5, false);
        complete(&mut o, &completion("a", "", MODIFY_DEL, 99, 0)).unwrap();
        assert!(o.omap(b"\x802001_a").is_some() && o.omap(b"\x802001_b").is_some());
        assert_eq!(header(&o).reshard_log_entries, 2, "preparing does not write the header");
    }
}
