//! Corrections of the index: what a gateway found of objects whose changes were prepared and never completed.

use super::index_log::{log_change, object_entry};
use super::keys::object_key;
use super::stored::{account, open_header, remove_entry, unaccount, write_entry, write_header};
use super::{MethodCall, MethodResult, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{DecodeError, Reader};
use std::collections::BTreeMap;
use wire::types::UTime;
use wire::types::cls::rgw::{BucketHeader, DirEntry, MODIFY_ADD, MODIFY_DEL};

/// Seconds after which a prepared change counts as given up, unless the header says another number.
const TAG_TIMEOUT_S: u64 = 120;
/// Kinds of suggestion, and the bit of one that goes to the index log.
const REMOVE: u8 = b'r';
const UPDATE: u8 = b'u';
const LOGGED: u8 = 0x80;

/// Each suggestion is a byte and the entry as it should be.
fn suggestions(r: &mut Reader<'_>) -> Result<Vec<(u8, DirEntry)>, DecodeError> {
    let mut all = Vec::new();
    while !r.is_empty() {
        all.push((r.u8()?, r.get()?));
    }
    Ok(all)
}

fn has_expired(since: UTime, now: UTime, timeout_s: u64) -> bool {
    let timeout = timeout_s.saturating_mul(1_000_000_000);
    now.as_nanos() > since.as_nanos().saturating_add(timeout)
}

/// Carries suggestions out whose entries have no prepared change left. Those for entries that have changed since are
/// dropped.
pub fn dir_suggest_changes(call: &mut MethodCall<'_>) -> MethodResult {
    let mut header = open_header(call)?;
    let suggestions = call.parse(suggestions)?;
    let keys = suggestions.iter().map(|(_, entry)| object_key(&entry.key)).collect();
    let stored: BTreeMap<Bytes, Bytes> = call.omap_values(keys)?.into_iter().collect();
    let timeout_s = if header.tag_timeout == 0 { TAG_TIMEOUT_S } else { header.tag_timeout };
    let mut is_changed = false;
    for (kind, suggested) in suggestions {
        let idx = object_key(&suggested.key);
        let Some(value) = stored.get(&idx) else { continue };
        let mut present = match value.is_empty() {
            true => DirEntry::default(),
            false => Reader::new(value).get().map_err(|_| MethodStop::Failed(Errno::INVAL))?,
        };
        present.pending.retain(|(_, info)| !has_expired(info.timestamp, call.context.now, timeout_s));
        if suggested.index_ver < present.index_ver || !present.pending.is_empty() {
            continue;
        }
        if present.exists {
            unaccount(&mut header, &present);
            is_changed = true;
        }
        let is_logged = kind & LOGGED != 0 && !header.sync_stopped;
        match kind & !LOGGED {
            REMOVE => {
                remove_entry(call, &idx, &suggested.key, &mut header)?;
                if is_logged && present.exists {
                    log(call, &present, MODIFY_DEL, &mut header)?;
                }
            }
            UPDATE => {
                account(&mut header, &suggested.meta);
                is_changed = true;
                let entry = DirEntry { index_ver: header.ver, ..suggested };
                write_entry(call, &idx, &entry, &mut header)?;
                if is_logged {
                    log(call, &entry, MODIFY_ADD, &mut header)?;
                }
            }
            _ => {}
        }
    }
    if is_changed { write_header(call, &mut header) } else { Ok(0) }
}

fn log(
    call: &mut MethodCall<'_>,
    entry: &DirEntry,
    op: u8,
    header: &mut BucketHeader,
) -> Result<(), MethodStop> {
    let mut log = object_entry(&entry.key.name, &entry.key.instance, op, header.ver);
    log.tag = entry.tag.clone();
    log.timestamp = entry.meta.mtime;
    log.ver = entry.ver;
    log_change(call, log, header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::rgw::index::tests::{add, header, index, prepare, stats, stored};
    use crate::classes::testing::{Object, decode};
    use codec::{Encode, Features};
    use wire::types::cls::rgw::{ListLogOp, ListLogReply, TagTimeoutOp};

    fn suggest(o: &mut Object, kind: u8, entry: &DirEntry) -> i32 {
        let argument = [&[kind][..], &entry.to_vec(Features::ALL)].concat();
        o.call_raw("rgw", "dir_suggest_changes", &argument).result
    }

    #[test]
    fn suggestion_waits_for_the_prepared_change() {
        let mut o = index();
        add(&mut o, "a", 5, false);
        prepare(&mut o, "a", "lost", MODIFY_ADD).unwrap();
        let seen = stored(&o, "a").unwrap();
        let update = |size| {
            let mut entry = DirEntry { pending: Vec::new(), ..seen.clone() };
            (entry.meta.size, entry.meta.accounted_size) = (size, size);
            entry
        };
        assert_eq!(suggest(&mut o, UPDATE, &update(7)), 0);
        assert_eq!((stats(&o), stored(&o, "a")), ((1, 5), Some(seen.clone())));
        o.now.sec += 120;
        suggest(&mut o, UPDATE, &update(7));
        assert_eq!(stats(&o), (1, 5), "120 s are not more than 120 s");
        o.now.sec += 1;
        suggest(&mut o, UPDATE, &update(7));
        let entry = stored(&o, "a").unwrap();
        assert_eq!((stats(&o), entry.pending.len(), entry.index_ver), ((1, 7), 0, 2));

        // The header's time stands before the default.
        prepare(&mut o, "a", "lost", MODIFY_ADD).unwrap();
        o.call("rgw", "bucket_set_tag_timeout", &TagTimeoutOp { seconds: 1 }).unwrap();
        o.now.sec += 2;
        let entry = DirEntry { index_ver: 2, ..update(9) };
        suggest(&mut o, REMOVE, &entry);
        assert_eq!((stats(&o), stored(&o, "a")), ((0, 0), None));
    }

    #[test]
    fn suggestion_of_an_older_state_is_dropped() {
        let mut o = index();
        add(&mut o, "a", 5, false);
        let seen = stored(&o, "a").unwrap();
        add(&mut o, "a", 6, false);
        let before = header(&o).ver;
        assert_eq!(suggest(&mut o, REMOVE, &seen), 0);
        assert_eq!((stats(&o), header(&o).ver), ((1, 6), before));
        let unknown = DirEntry { key: crate::classes::rgw::index::tests::key("x"), ..seen };
        assert_eq!(suggest(&mut o, UPDATE, &unknown), 0);
        assert_eq!(stored(&o, "x"), None);
    }

    #[test]
    fn suggestions_of_one_call_are_logged_apart() {
        let mut o = index();
        for name in ["a", "b"] {
            add(&mut o, name, 5, false);
        }
        let change = |o: &Object, name, kind: u8| {
            [&[kind | LOGGED][..], &stored(o, name).unwrap().to_vec(Features::ALL)].concat()
        };
        let argument = [change(&o, "a", REMOVE), change(&o, "b", UPDATE)].concat();
        assert_eq!(o.call_raw("rgw", "dir_suggest_changes", &argument).result, 0);
        let op = ListLogOp { max: 10, ..ListLogOp::default() };
        let log: ListLogReply = decode(&o.call("rgw", "bi_log_list", &op).unwrap());
        let ops: Vec<_> = log.entries.iter().map(|e| (e.object.to_string(), e.op)).collect();
        assert_eq!(ops, [("a".into(), MODIFY_DEL), ("b".into(), MODIFY_ADD)]);
        assert_eq!(stats(&o), (1, 5));
    }

    #[test]
    fn damaged_suggestions_change_nothing() {
        let mut o = index();
        add(&mut o, "a", 5, false);
        let good = [&[REMOVE][..], &stored(&o, "a").unwrap().to_vec(Features::ALL)].concat();
        let argument = [&good[..], &[UPDATE, 1]].concat();
        assert_eq!(o.call_raw("rgw", "dir_suggest_changes", &argument).result, Errno::INVAL.result());
        assert!(stored(&o, "a").is_some());
        // `radosgw-admin bucket check --fix` sends nothing to the index of a bucket without shards, which is not there.
        let mut none = Object::missing();
        none.call_bare("rgw", "dir_suggest_changes").unwrap();
        assert!(!none.exists());
    }
}
