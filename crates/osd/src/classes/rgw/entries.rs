//! Raw entries of the index: for administrators, and for resharding, which copies them to other objects.

use super::index_log::remove_between;
use super::keys::{
    INSTANCE, OLH, RESHARD_LOG, SPECIAL, SPECIAL_END, instance_key, is_behind, is_special, kind, object_key,
    olh_key,
};
use super::stored::{open_header, read_header, write_header};
use super::{MethodCall, MethodResult, MethodStop, READ_MAX, read_omap};
use crate::classes::omap::{self, Entry};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Decode, Reader};
use std::collections::BTreeMap;
use wire::types::Name;
use wire::types::cls::rgw::{
    CategoryStats, DirEntry, ENTRY_INSTANCE, ENTRY_INVALID, ENTRY_OLH, ENTRY_PLAIN, ENTRY_RESHARD_DELETED,
    EntryBox, GetEntryOp, IndexEntry, ListEntriesOp, ListEntriesReply, ObjectKey, OlhEntry, PutEntriesOp,
};

/// Entries of a listing, whatever the client asks for.
const LIST_MAX: u32 = 1000;
/// Entries that a check or rebuild may sum: a gateway reshards from 100,000 on.
const SUM_MAX: usize = 1 << 18;

pub fn bi_get(call: &mut MethodCall<'_>) -> MethodResult {
    let op: GetEntryOp = call.argument()?;
    let idx = match op.kind {
        ENTRY_PLAIN => Bytes::copy_from_slice(&op.key.name),
        ENTRY_INSTANCE => object_key(&op.key),
        ENTRY_OLH => olh_key(&op.key.name),
        _ => return Err(Errno::INVAL.into()),
    };
    let data = call.omap_value(&idx)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    call.finish_with(&EntryBox { entry: IndexEntry { kind: op.kind, idx: Name::from(&idx[..]), data } })
}

/// Statistics stay as they are. Removing where nothing is, is no error.
pub fn bi_put(call: &mut MethodCall<'_>) -> MethodResult {
    let EntryBox { entry } = call.argument()?;
    if entry.kind != ENTRY_RESHARD_DELETED {
        call.set_omap_value(&Bytes::copy_from_slice(&entry.idx), &entry.data)?;
    } else if call.exists() {
        call.remove_omap_key(&entry.idx)?;
    }
    Ok(0)
}

/// Category and share in the statistics of an entry that is counted. `EIO` for a damaged one.
fn counted(kind: u8, data: &Bytes) -> Result<Option<(u8, CategoryStats)>, MethodStop> {
    if kind == ENTRY_OLH {
        omap::stored::<OlhEntry>(data)?;
        return Ok(None);
    }
    let entry: DirEntry = omap::stored(data)?;
    let is_counted = match kind {
        ENTRY_PLAIN => entry.exists && entry.flags == 0,
        ENTRY_INSTANCE => entry.exists,
        _ => false,
    };
    Ok(is_counted.then(|| (entry.meta.category, CategoryStats::of(&entry.meta))))
}

/// Writes entries together with their statistics. `E2BIG` for more than one read returns.
pub fn bi_put_entries(call: &mut MethodCall<'_>) -> MethodResult {
    let op: PutEntriesOp = call.argument()?;
    if op.entries.len() > READ_MAX {
        return Err(Errno::TOOBIG.into());
    }
    let mut header = open_header(call)?;
    if op.check_existing {
        let keys = op.entries.iter().map(|entry| Bytes::copy_from_slice(&entry.idx)).collect();
        // A key that comes twice is there once.
        let stored: BTreeMap<Bytes, Bytes> = call.omap_values(keys)?.into_iter().collect();
        for (idx, data) in &stored {
            if let Some((category, stats)) = counted(kind_of(idx), data)? {
                header.stats.entry(category).or_default().subtract(stats);
            }
        }
    }
    let mut values: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    for entry in op.entries {
        let idx = Bytes::copy_from_slice(&entry.idx);
        if entry.kind == ENTRY_RESHARD_DELETED {
            call.remove_omap_key(&idx)?;
            continue;
        }
        if let Some((category, stats)) = counted(entry.kind, &entry.data)? {
            header.stats.entry(category).or_default().add(stats);
        }
        values.entry(idx).or_insert(entry.data);
    }
    let values: Vec<Entry> = values.into_iter().collect();
    if !values.is_empty() {
        call.set_omap_values(&values)?;
    }
    write_header(call, &mut header)
}

/// Kind of the entry under a key, as listings name it.
fn kind_of(idx: &[u8]) -> u8 {
    match kind(idx) {
        0 => ENTRY_PLAIN,
        at => u8::try_from(at).unwrap_or(ENTRY_INVALID),
    }
}

/// Plain keys before the special ones, or behind them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    Low,
    High,
}

/// All plain entries of a region; `EOVERFLOW` beyond [`SUM_MAX`].
pub(super) fn plain_entries(call: &mut MethodCall<'_>, region: Region) -> Result<Vec<Entry>, MethodStop> {
    let (mut after, end): (Bytes, _) = match region {
        Region::Low => (Bytes::new(), Some(SPECIAL)),
        Region::High => (Bytes::from_static(SPECIAL_END), None),
    };
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let (page, more) = call.omap_page(&after, b"", 4 * READ_MAX, true)?;
        let is_inside =
            |entry: &Entry| end.is_none_or(|end| entry.0.first().is_none_or(|first| *first < end));
        let inside = page.iter().take_while(|entry| is_inside(entry)).count();
        let is_last = !more || inside < page.len();
        all.extend(page.into_iter().take(inside));
        match all.last() {
            _ if is_last => return Ok(all),
            Some((last, _)) if all.len() <= SUM_MAX => after = last.clone(),
            Some(_) => return Err(Errno::OVERFLOW.into()),
            None => return Ok(all),
        }
    }
}

/// All entries of instances.
pub(super) fn instance_entries(call: &mut MethodCall<'_>) -> Result<Vec<Entry>, MethodStop> {
    match call.omap_list(INSTANCE, INSTANCE, SUM_MAX, true)? {
        (entries, false) => Ok(entries),
        (_, true) => Err(Errno::OVERFLOW.into()),
    }
}

/// A listing as it grows.
struct Listing {
    filter: Name,
    marker: Name,
    max: u32,
    entries: Vec<IndexEntry>,
    more: bool,
}

impl Listing {
    /// Entries that still fit. Stock counts in 32 bits, and one entry too many leaves room for as many as one read has.
    fn room(&self) -> u32 {
        self.max.wrapping_sub(self.entries.len() as u32)
    }

    fn push(&mut self, kind: u8, (key, data): Entry) {
        self.entries.push(IndexEntry { kind, idx: Name::from(&key[..]), data });
    }

    fn list_plain(&mut self, call: &mut MethodCall<'_>, region: Region) -> Result<(), MethodStop> {
        let after = match region {
            Region::Low if is_special(&self.marker) || self.marker.first() > Some(&SPECIAL) => return Ok(()),
            Region::Low => self.marker.clone(),
            Region::High => self.marker.clone().max(Name::from(SPECIAL_END)),
        };
        let (stored, more) = read_omap(call, &after, &self.filter.clone(), self.room() as usize)?;
        self.more = more;
        for entry in stored {
            let is_behind = region == Region::Low && entry.0.first() >= Some(&SPECIAL);
            let is_filtered = !self.filter.is_empty();
            if is_behind || decoded::<DirEntry>(&entry)?.key.name > self.filter && is_filtered {
                self.more = false;
                return Ok(());
            }
            self.push(ENTRY_PLAIN, entry);
        }
        Ok(())
    }

    /// Entries whose keys start as the filtered object's do, or as all of this kind do.
    fn list_special<T: Decode>(
        &mut self,
        call: &mut MethodCall<'_>,
        kind: u8,
        filter: Bytes,
        name_of: impl Fn(&T) -> &Name,
    ) -> Result<(), MethodStop> {
        let is_advanced = is_behind(&self.marker, &filter);
        let start = if is_advanced { Bytes::copy_from_slice(&self.marker) } else { filter.clone() };
        let first = call.omap_value(&start)?.filter(|_| start[..] != self.marker[..]);
        let room = if first.is_some() { self.room().wrapping_sub(1) } else { self.room() };
        let mut stored = Vec::new();
        if room > 0 {
            (stored, self.more) = read_omap(call, &start, b"", room as usize)?;
        }
        let first = first.map(|value| (start, value));
        for entry in first.into_iter().chain(stored) {
            let is_listed = entry.0.starts_with(&filter);
            if !is_listed || !self.filter.is_empty() && *name_of(&decoded(&entry)?) != self.filter {
                self.more = false;
                return Ok(());
            }
            decoded::<T>(&entry)?;
            self.push(kind, entry);
        }
        Ok(())
    }
}

fn decoded<T: Decode>(entry: &Entry) -> Result<T, MethodStop> {
    Reader::new(&entry.1).get().map_err(|_| MethodStop::Failed(Errno::IO))
}

/// Lists plain entries, instances, logical heads and then plain entries that sort behind those.
pub fn bi_list(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ListEntriesOp = call.argument()?;
    if op.reshard_log {
        return list_reshard_log(call, &op);
    }
    let max = op.max.min(LIST_MAX);
    let mut listing =
        Listing { filter: op.name_filter, marker: op.marker, max, entries: Vec::new(), more: false };
    let name = listing.filter.clone();
    listing.list_plain(call, Region::Low)?;
    if !listing.more {
        let key = ObjectKey { name: name.clone(), instance: Name::EMPTY };
        let filter = if name.is_empty() { Bytes::from_static(INSTANCE) } else { instance_key(&key, false) };
        listing.list_special(call, ENTRY_INSTANCE, filter, |entry: &DirEntry| &entry.key.name)?;
    }
    if !listing.more {
        let filter = if name.is_empty() { Bytes::from_static(OLH) } else { olh_key(&name) };
        listing.list_special(call, ENTRY_OLH, filter, |entry: &OlhEntry| &entry.key.name)?;
    }
    if !listing.more {
        listing.list_plain(call, Region::High)?;
    }
    let Listing { mut entries, more, .. } = listing;
    let truncated = entries.len() > max as usize || more;
    entries.truncate(max as usize);
    call.finish_with(&ListEntriesReply { entries, truncated })
}

fn list_reshard_log(call: &mut MethodCall<'_>, op: &ListEntriesOp) -> MethodResult {
    let after = [RESHARD_LOG, &op.marker].concat();
    let (stored, truncated) = read_omap(call, &after, b"", op.max as usize)?;
    let mut reply = ListEntriesReply { entries: Vec::new(), truncated };
    for (key, value) in stored {
        if key[..] >= *SPECIAL_END {
            reply.truncated = false;
            break;
        }
        let mut entry: IndexEntry = omap::stored(&value)?;
        if entry.kind != ENTRY_RESHARD_DELETED {
            entry.kind = kind_of(key.strip_prefix(RESHARD_LOG).unwrap_or_default());
        }
        reply.entries.push(entry);
    }
    call.finish_with(&reply)
}

/// `ENODATA` when the log is empty.
pub fn reshard_log_trim(call: &mut MethodCall<'_>) -> MethodResult {
    let mut header = read_header(call)?;
    remove_between(call, RESHARD_LOG, SPECIAL_END)?;
    header.reshard_log_entries = 0;
    write_header(call, &mut header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::rgw::index::tests::{add, complete, completion, header, index, key, stats, stored};
    use crate::classes::rgw::versions::tests::put_version;
    use crate::classes::testing::{Object, decode};
    use codec::{Encode, Features};
    use wire::types::cls::rgw::{MODIFY_DEL, Reshard, ReshardStatusBox};

    fn list(o: &mut Object, op: ListEntriesOp) -> (Vec<IndexEntry>, bool) {
        let reply: ListEntriesReply = decode(&o.call("rgw", "bi_list", &op).unwrap());
        (reply.entries, reply.truncated)
    }

    fn kinds(entries: &[IndexEntry]) -> Vec<u8> {
        entries.iter().map(|entry| entry.kind).collect()
    }

    /// Two plain objects around the special keys, and one with two versions.
    fn mixed() -> Object {
        let mut o = index();
        for name in ["a", "\u{e9}"] {
            add(&mut o, name, 5, true);
        }
        put_version(&mut o, "v", "one", 1);
        put_version(&mut o, "v", "two", 2);
        o
    }

    #[test]
    fn entries_are_listed_by_kind_in_pages() {
        let mut o = mixed();
        let (all, truncated) = list(&mut o, ListEntriesOp { max: 100, ..ListEntriesOp::default() });
        // The placeholder of "v" and its two list entries are plain.
        assert_eq!((kinds(&all), truncated), (vec![1, 1, 1, 1, 2, 2, 3, 1], false));
        let (mut paged, mut marker) = (Vec::new(), Name::EMPTY);
        loop {
            let op = ListEntriesOp { max: 3, marker, ..ListEntriesOp::default() };
            let (entries, truncated) = list(&mut o, op);
            assert!(!entries.is_empty() && entries.len() <= 3);
            marker = entries.last().unwrap().idx.clone();
            paged.extend(entries);
            if !truncated {
                break;
            }
        }
        assert_eq!(paged, all);
    }

    #[test]
    fn filter_lists_one_object_with_its_instances() {
        let mut o = mixed();
        add(&mut o, "vv", 5, false);
        let op = ListEntriesOp { max: 100, name_filter: "v".into(), ..ListEntriesOp::default() };
        let (entries, truncated) = list(&mut o, op);
        assert_eq!((kinds(&entries), truncated), (vec![1, 1, 1, 2, 2, 3], false));
        assert!(entries.iter().all(|entry| !entry.idx.ends_with(b"vv")));
        o.put_omap("zz", b"damaged");
        let all = ListEntriesOp { max: 99, ..ListEntriesOp::default() };
        assert_eq!(o.call("rgw", "bi_list", &all), Err(Errno::IO));
    }

    #[test]
    fn one_entry_is_read_and_written() {
        let mut o = mixed();
        let get = |o: &mut Object, kind, instance: &str| {
            let key = ObjectKey { name: "v".into(), instance: instance.into() };
            let reply = o.call("rgw", "bi_get", &GetEntryOp { key, kind })?;
            Ok::<_, Errno>(decode::<EntryBox>(&reply).entry)
        };
        let entry = get(&mut o, ENTRY_INSTANCE, "two").unwrap();
        assert_eq!(entry.idx[..], b"\x801000_v\0itwo"[..]);
        assert_eq!(get(&mut o, ENTRY_OLH, "").unwrap().idx[..], b"\x801001_v"[..]);
        assert_eq!(get(&mut o, ENTRY_PLAIN, "two").unwrap().idx, "v");
        assert_eq!(get(&mut o, ENTRY_INSTANCE, "three"), Err(Errno::NOENT));
        assert_eq!(get(&mut o, ENTRY_RESHARD_DELETED, ""), Err(Errno::INVAL));

        let mut copy = Object::missing();
        copy.call("rgw", "bi_put", &EntryBox { entry: entry.clone() }).unwrap();
        assert_eq!(copy.omap(&entry.idx).unwrap(), entry.data);
        let gone = IndexEntry { kind: ENTRY_RESHARD_DELETED, ..entry };
        copy.call("rgw", "bi_put", &EntryBox { entry: gone.clone() }).unwrap();
        assert_eq!(copy.omap_keys(), [""; 0]);
        Object::missing().call("rgw", "bi_put", &EntryBox { entry: gone }).unwrap();
    }

    #[test]
    fn copied_entries_bring_their_statistics() {
        let mut from = mixed();
        let (entries, _) = list(&mut from, ListEntriesOp { max: 100, ..ListEntriesOp::default() });
        let mut to = index();
        let put = PutEntriesOp { entries: entries.clone(), check_existing: false };
        to.call("rgw", "bi_put_entries", &put).unwrap();
        assert_eq!(stats(&to), (4, 13), "two plain objects and two instances");
        let again = PutEntriesOp { check_existing: true, ..put };
        to.call("rgw", "bi_put_entries", &again).unwrap();
        assert_eq!(stats(&to), (4, 13));
        let gone = IndexEntry { kind: ENTRY_RESHARD_DELETED, ..entries[0].clone() };
        let op = PutEntriesOp { entries: vec![gone], check_existing: true };
        to.call("rgw", "bi_put_entries", &op).unwrap();
        assert_eq!((stats(&to), stored(&to, "a")), ((3, 8), None));
        let many = PutEntriesOp { entries: vec![IndexEntry::default(); READ_MAX + 1], check_existing: false };
        assert_eq!(to.call("rgw", "bi_put_entries", &many), Err(Errno::TOOBIG));
        let mut none = Object::missing();
        none.call("rgw", "bi_put_entries", &again).unwrap();
        assert!(none.exists());
    }

    #[test]
    fn reshard_log_is_listed_and_trimmed() {
        let mut o = mixed();
        let op = ReshardStatusBox { reshard: Reshard { status: 3 } };
        o.call("rgw", "set_bucket_resharding", &op).unwrap();
        complete(&mut o, &completion("a", "", MODIFY_DEL, 99, 0)).unwrap();
        add(&mut o, "b", 1, false);
        put_version(&mut o, "w", "one", 1);
        let op = ListEntriesOp { max: 100, reshard_log: true, ..ListEntriesOp::default() };
        let (entries, truncated) = list(&mut o, op.clone());
        let names: Vec<_> = entries.iter().map(|e| (e.kind, e.idx.to_string())).collect();
        assert!(!truncated);
        assert_eq!(names[..2], [(ENTRY_RESHARD_DELETED, "a".into()), (ENTRY_PLAIN, "b".into())]);
        assert_eq!(kinds(&entries), [4, 1, 1, 1, 2, 3]);
        assert_eq!(
            entries[0].data,
            wire::types::cls::rgw::DeletedEntry { key: key("a") }.to_vec(Features::NONE)
        );
        assert!(list(&mut o, ListEntriesOp { max: 1, ..op.clone() }).1);
        o.call_bare("rgw", "reshard_log_trim").unwrap();
        assert_eq!((list(&mut o, op).0, header(&o).reshard_log_entries), (Vec::new(), 0));
        assert_eq!(o.call_bare("rgw", "reshard_log_trim"), Err(Errno::NODATA));
    }
}
