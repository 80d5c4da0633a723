//! Listings of a bucket.

use super::keys::{
    BEHIND_SPECIAL, SPECIAL, behind_prefix, behind_versions, instance_key, list_key, listed_name,
};
use super::stored::read_header;
use super::{MethodCall, MethodResult, MethodStop, read_omap};
use crate::classes::omap::{self, Entry};
use crate::errno::Errno;
use bytes::Bytes;
use codec::Reader;
use std::collections::BTreeMap;
use wire::types::Name;
use wire::types::cls::rgw::{BucketDir, DirEntry, FLAG_COMMON_PREFIX, ListOp, ListReply, ObjectKey};

/// Reads of the omap in one call: entries that are not shown are a reason to read on, but not without end.
const READS_MAX: usize = 8;
/// Result of a listing that has entries behind its end and none to show.
const ADVANCE_AND_RETRY: Errno = Errno::FBIG;

/// Key behind which a listing starts.
fn start_key(call: &mut MethodCall<'_>, start: &ObjectKey) -> Result<Bytes, MethodStop> {
    if start.instance.is_empty() {
        return Ok(Bytes::copy_from_slice(&start.name));
    }
    let instance = if start.instance == "null" { Name::EMPTY } else { start.instance.clone() };
    let idx = instance_key(&ObjectKey { name: start.name.clone(), instance }, false);
    match call.omap_value(&idx)? {
        None => Ok(behind_versions(&start.name)),
        // A damaged entry starts the listing at its beginning, as in stock.
        Some(value) => {
            Ok(omap::stored::<DirEntry>(&value).map_or_else(|_| Bytes::new(), |entry| list_key(&entry)))
        }
    }
}

/// At most `max` plain entries behind `after`. The flag says that more follow.
fn read_plain(
    call: &mut MethodCall<'_>,
    after: &[u8],
    prefix: &[u8],
    max: usize,
) -> Result<(Vec<Entry>, bool), MethodStop> {
    let first_of = |entry: &Entry| entry.0.first().copied().unwrap_or(0);
    let (mut entries, more) = read_omap(call, after, prefix, max)?;
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok((entries, more)) };
    if first_of(last) < SPECIAL || first_of(first) > SPECIAL {
        return Ok((entries, more));
    }
    entries.retain(|entry| first_of(entry) != SPECIAL);
    if entries.len() == max || !more {
        return Ok((entries, more));
    }
    let last = entries.last().map_or(&b""[..], |(key, _)| key);
    let after = Bytes::copy_from_slice(last.max(BEHIND_SPECIAL));
    let (rest, more) = read_omap(call, &after, prefix, max - entries.len())?;
    entries.extend(rest);
    Ok((entries, more))
}

/// Position of the delimiter in the name behind the prefix, and the name up to the delimiter's end.
fn common_prefix<'a>(name: &'a [u8], prefix: &[u8], delimiter: &[u8]) -> Option<&'a [u8]> {
    let rest = name.get(prefix.len()..).filter(|_| !delimiter.is_empty())?;
    let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
    Some(&name[..prefix.len() + at + delimiter.len()])
}

/// A listing. Without versions it shows current objects only. With a delimiter names that share what comes before it
/// are one entry. `EFBIG` when nothing is to be shown yet, with the marker to go on from.
pub fn bucket_list(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ListOp = call.argument()?;
    let header = read_header(call)?;
    let mut shown: BTreeMap<Name, DirEntry> = BTreeMap::new();
    let max = op.num_entries as usize;
    let mut reply = ListReply::default();
    let mut after = if max == 0 { Bytes::new() } else { start_key(call, &op.start)? };
    let is_grouped = !op.delimiter.is_empty();
    if is_grouped && after[..] > op.filter_prefix[..] && after.ends_with(&op.delimiter) {
        after = behind_prefix(&after);
    }
    let (mut marker, mut last_prefix) = (ObjectKey::default(), Bytes::new());
    let (mut more, mut is_done) = (max > 0, false);
    for _ in 0..READS_MAX {
        if !more || is_done || shown.len() >= max {
            break;
        }
        let entries;
        (entries, more) = read_plain(call, &after, &op.filter_prefix, max - shown.len())?;
        is_done = entries.is_empty();
        let mut at = 0;
        while let Some((key, value)) = entries.get(at) {
            at += 1;
            let entry: DirEntry = Reader::new(value).get().map_err(|_| MethodStop::Failed(Errno::INVAL))?;
            after = key.clone();
            marker = entry.key.clone();
            let Some(name) = listed_name(key) else { continue };
            if !entry.is_valid() {
                continue;
            }
            let skip_to = if !op.list_versions && (!entry.is_visible() || op.start.name[..] == *name) {
                behind_versions(name)
            } else if let Some(prefix) = common_prefix(name, &op.filter_prefix, &op.delimiter) {
                if last_prefix == prefix {
                    continue;
                }
                last_prefix = Bytes::copy_from_slice(prefix);
                if shown.len() < max {
                    let name = Name::from(prefix);
                    let key = ObjectKey { name: name.clone(), instance: Name::EMPTY };
                    shown.insert(name, DirEntry { key, flags: FLAG_COMMON_PREFIX, ..DirEntry::default() });
                }
                behind_prefix(prefix)
            } else {
                if shown.len() < max {
                    shown.insert(Name::from(&key[..]), entry);
                }
                continue;
            };
            marker = ObjectKey { name: Name::from(&skip_to[..]), instance: Name::EMPTY };
            at = at.max(entries.partition_point(|(key, _)| *key < skip_to));
            after = skip_to;
        }
    }
    reply.truncated = more && !is_done;
    if reply.truncated {
        reply.marker = marker;
    }
    let is_empty = shown.is_empty();
    reply.dir = BucketDir { header, entries: shown };
    let must_retry = reply.truncated && is_empty;
    call.finish_with(&reply)?;
    Ok(if must_retry { ADVANCE_AND_RETRY.result() } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::rgw::index::tests::{add, index, prepare};
    use crate::classes::rgw::versions::tests::{delete_version, put_version};
    use crate::classes::testing::{Object, decode};
    use codec::{Encode, Features};
    use wire::types::cls::rgw::MODIFY_ADD;

    fn list(o: &mut Object, op: &ListOp) -> ListReply {
        decode(&o.call("rgw", "bucket_list", op).unwrap())
    }

    fn names(reply: &ListReply) -> Vec<String> {
        reply.dir.entries.values().map(|e| e.key.name.to_string()).collect()
    }

    fn all() -> ListOp {
        ListOp { num_entries: 1000, ..ListOp::default() }
    }

    fn from(name: &str, num_entries: u32) -> ListOp {
        let start = ObjectKey { name: name.into(), instance: Name::EMPTY };
        ListOp { start, num_entries, ..ListOp::default() }
    }

    #[test]
    fn objects_are_listed_around_special_keys() {
        let mut o = index();
        for name in ["a", "b", "\u{e9}1", "\u{e9}2"] {
            add(&mut o, name, 1, true);
        }
        prepare(&mut o, "c", "t", MODIFY_ADD).unwrap();
        let reply = list(&mut o, &all());
        assert_eq!(names(&reply), ["a", "b", "c", "\u{e9}1", "\u{e9}2"]);
        assert!(!reply.truncated);
        assert!(!reply.dir.entries[&b"c"[..]].exists, "a prepared change is shown to the gateway");
        assert_eq!(reply.dir.header.ver, 5);
        // Pages of each size, from marker to marker.
        for page in 1..5 {
            let (mut seen, mut start) = (Vec::new(), String::new());
            loop {
                let reply = list(&mut o, &from(&start, page));
                seen.extend(names(&reply));
                start = reply.marker.name.to_string();
                if !reply.truncated {
                    break;
                }
            }
            assert_eq!(seen, ["a", "b", "c", "\u{e9}1", "\u{e9}2"], "{page}");
        }
        let header_only = list(&mut o, &ListOp::default());
        assert_eq!(
            (header_only.dir.entries.len(), header_only.truncated, header_only.dir.header.ver),
            (0, false, 5)
        );
    }

    #[test]
    fn delimiter_groups_names() {
        let mut o = index();
        for name in ["a/1", "a/2", "b", "c/1/x", "c/2", "d"] {
            add(&mut o, name, 1, false);
        }
        let grouped = ListOp { delimiter: "/".into(), ..all() };
        let reply = list(&mut o, &grouped);
        assert_eq!(names(&reply), ["a/", "b", "c/", "d"]);
        assert_eq!(reply.dir.entries[&b"a/"[..]].flags, FLAG_COMMON_PREFIX);
        let below = ListOp { filter_prefix: "c/".into(), ..grouped.clone() };
        assert_eq!(names(&list(&mut o, &below)), ["c/1/", "c/2"]);
        let behind = ListOp { delimiter: "/".into(), ..from("a/", 100) };
        assert_eq!(names(&list(&mut o, &behind)), ["b", "c/", "d"]);
        // A group counts as one entry, and the listing goes on behind it.
        let first = list(&mut o, &ListOp { num_entries: 1, ..grouped.clone() });
        assert_eq!((names(&first), first.truncated), (vec!["a/".to_string()], true));
        assert_eq!(first.marker.name[..], b"a/\xff"[..]);
        let next = ListOp { start: first.marker, num_entries: 2, ..grouped };
        assert_eq!(names(&list(&mut o, &next)), ["b", "c/"]);
    }

    #[test]
    fn versions_are_shown_on_demand() {
        let mut o = index();
        put_version(&mut o, "a", "one", 1);
        put_version(&mut o, "a", "two", 2);
        put_version(&mut o, "b", "one", 1);
        delete_version(&mut o, "b", "marker");
        let shown = |o: &mut Object, list_versions| -> Vec<String> {
            let reply = list(o, &ListOp { list_versions, ..all() });
            reply.dir.entries.values().map(|e| format!("{}.{}", e.key.name, e.key.instance)).collect()
        };
        assert_eq!(shown(&mut o, false), ["a.two"]);
        assert_eq!(shown(&mut o, true), ["a.two", "a.one", "b.marker", "b.one"]);
        // From an instance on, and from one that is not there.
        let start = |instance: &str| ObjectKey { name: "a".into(), instance: instance.into() };
        let op = |instance: &str| ListOp { start: start(instance), list_versions: true, ..all() };
        assert_eq!(list(&mut o, &op("two")).dir.entries.len(), 3);
        assert_eq!(list(&mut o, &op("gone")).dir.entries.len(), 2);
    }

    #[test]
    fn hidden_entries_end_a_listing_with_its_marker() {
        let mut o = index();
        for i in 0..20 {
            put_version(&mut o, &format!("{i:02}"), "one", 1);
            delete_version(&mut o, &format!("{i:02}"), "marker");
        }
        let outcome = o.call_raw("rgw", "bucket_list", &from("", 1).to_vec(Features::ALL));
        assert_eq!(outcome.result, ADVANCE_AND_RETRY.result());
        let reply: ListReply = decode(&outcome.output.to_bytes());
        assert!(reply.truncated && reply.dir.entries.is_empty() && !reply.marker.name.is_empty());
        let all = list(&mut o, &from("", 1000));
        assert_eq!((all.truncated, all.dir.entries.len()), (false, 0));
    }

    #[test]
    fn damaged_entries_are_errors() {
        let mut o = index();
        o.put_omap("a", b"damaged");
        assert_eq!(o.call("rgw", "bucket_list", &all()), Err(Errno::INVAL));
        assert_eq!(o.call_raw("rgw", "bucket_list", b"").result, Errno::INVAL.result());
    }
}
