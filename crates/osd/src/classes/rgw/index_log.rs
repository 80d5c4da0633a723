//! The log of an index's changes, which gateways of other zones follow.

use super::keys::{INSTANCE, LOG};
use super::stored::{read_header, write_header};
use super::{MethodCall, MethodResult, MethodStop, read_omap};
use crate::classes::omap;
use crate::errno::Errno;
use wire::types::Name;
use wire::types::cls::rgw::{
    BucketHeader, IndexLogEntry, ListLogOp, ListLogReply, MODIFY_RESYNC, MODIFY_SYNC_STOP, STATE_COMPLETE,
    TrimLogOp,
};

/// Writes one entry under a key of the header's version. The header is the caller's to write.
pub(super) fn log_change(
    call: &mut MethodCall<'_>,
    mut entry: IndexLogEntry,
    header: &mut BucketHeader,
) -> Result<(), MethodStop> {
    let number = call.context.position as usize + call.operation_count();
    let id = format!("{:011}.{}.{number}", header.ver, call.context.pg_user_version);
    entry.id = id.into();
    if entry.id > header.max_marker {
        header.max_marker = entry.id.clone();
    }
    call.set_omap([LOG, &entry.id].concat(), &entry)
}

pub fn bi_log_list(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ListLogOp = call.argument()?;
    let after = [LOG, &op.marker].concat();
    let (stored, truncated) = read_omap(call, &after, b"", op.max as usize)?;
    let mut reply = ListLogReply { truncated, ..ListLogReply::default() };
    for (key, value) in stored {
        if key[..] > *INSTANCE {
            reply.truncated = false;
            break;
        }
        reply.entries.push(omap::stored(&value)?);
    }
    call.finish_with(&reply)
}

/// `ENODATA` when nothing is left in the range.
pub fn bi_log_trim(call: &mut MethodCall<'_>) -> MethodResult {
    let op: TrimLogOp = call.argument()?;
    let from = [LOG, &op.start_marker].concat();
    let to = match op.end_marker.is_empty() {
        true => INSTANCE.to_vec(),
        // The first key behind the marker.
        false => [LOG, &op.end_marker, &[0]].concat(),
    };
    remove_between(call, &from, &to)?;
    Ok(0)
}

/// Removes the keys behind `from`, up to `to`. `ENODATA` if there is none.
pub(super) fn remove_between(call: &mut MethodCall<'_>, from: &[u8], to: &[u8]) -> Result<(), MethodStop> {
    let (first, _) = call.omap_page(from, b"", 1, false)?;
    match first.first() {
        Some((first, _)) if *to >= first[..] => call.remove_omap_range(first, to),
        _ => Err(Errno::NODATA.into()),
    }
}

pub fn bi_log_resync(call: &mut MethodCall<'_>) -> MethodResult {
    set_sync(call, MODIFY_RESYNC, false)
}

pub fn bi_log_stop(call: &mut MethodCall<'_>) -> MethodResult {
    set_sync(call, MODIFY_SYNC_STOP, true)
}

/// The change of state is an entry itself.
fn set_sync(call: &mut MethodCall<'_>, op: u8, is_stopped: bool) -> MethodResult {
    let mut header = read_header(call)?;
    let timestamp = call.context.now;
    let entry = IndexLogEntry { timestamp, op, state: STATE_COMPLETE, ..IndexLogEntry::default() };
    log_change(call, entry, &mut header)?;
    header.sync_stopped = is_stopped;
    write_header(call, &mut header)
}

/// The entry of a change of one object.
pub(super) fn object_entry(name: &Name, instance: &Name, op: u8, index_ver: u64) -> IndexLogEntry {
    IndexLogEntry {
        object: name.clone(),
        instance: instance.clone(),
        op,
        state: STATE_COMPLETE,
        index_ver,
        ..IndexLogEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::rgw::index::tests::{add, header, index};
    use crate::classes::testing::{Object, decode};

    fn list(o: &mut Object, marker: &str, max: u32) -> (Vec<IndexLogEntry>, bool) {
        let op = ListLogOp { marker: marker.into(), max };
        let reply: ListLogReply = decode(&o.call("rgw", "bi_log_list", &op).unwrap());
        (reply.entries, reply.truncated)
    }

    #[test]
    fn changes_are_listed_and_trimmed() {
        let mut o = index();
        for name in ["a", "b", "c"] {
            add(&mut o, name, 1, true);
        }
        let (entries, truncated) = list(&mut o, "", 2);
        assert_eq!((entries.len(), truncated), (2, true));
        let (first, second) = (&entries[0], &entries[1]);
        assert_eq!((&first.object[..], first.op, first.state), (&b"a"[..], 0, STATE_COMPLETE));
        assert_eq!(first.id, "00000000001.5.1", "version of the header, of the PG, and number");
        assert!(o.omap([LOG, &first.id].concat()).is_some());
        let (rest, truncated) = list(&mut o, second.id.to_str().unwrap(), 9);
        assert_eq!((rest.len(), truncated, &rest[0].object[..]), (1, false, &b"c"[..]));
        assert_eq!(header(&o).max_marker, rest[0].id);

        let trim = TrimLogOp { start_marker: Name::EMPTY, end_marker: second.id.clone() };
        o.call("rgw", "bi_log_trim", &trim).unwrap();
        assert_eq!(o.call("rgw", "bi_log_trim", &trim), Err(Errno::NODATA));
        assert_eq!(list(&mut o, "", 9).0, rest);
        o.call("rgw", "bi_log_trim", &TrimLogOp::default()).unwrap();
        assert_eq!(list(&mut o, "", 9).0, []);
        assert!(o.omap("a").is_some(), "entries of the index stay");
    }

    #[test]
    fn a_stopped_log_takes_no_changes_until_resync() {
        let mut o = index();
        o.call_bare("rgw", "bi_log_stop").unwrap();
        add(&mut o, "a", 1, true);
        assert!(header(&o).sync_stopped);
        o.call_bare("rgw", "bi_log_resync").unwrap();
        add(&mut o, "b", 1, true);
        assert!(!header(&o).sync_stopped);
        let ops: Vec<u8> = list(&mut o, "", 9).0.iter().map(|e| e.op).collect();
        assert_eq!(ops, [MODIFY_SYNC_STOP, MODIFY_RESYNC, 0]);
        // Without an index: as stock, the change of state makes one, and there is nothing to trim.
        let mut none = Object::missing();
        let all = TrimLogOp { start_marker: "".into(), end_marker: "".into() };
        assert_eq!(none.call("rgw", "bi_log_trim", &all), Err(Errno::NODATA));
        none.call_bare("rgw", "bi_log_stop").unwrap();
        assert!(header(&none).sync_stopped);
    }
}
