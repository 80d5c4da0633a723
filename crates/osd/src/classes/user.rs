//! A gateway user's buckets with the sum of their statistics, and the resources of an account.

use super::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Decode, Encode, Features, Reader};
use std::collections::BTreeMap;
use wire::types::Name;
use wire::types::cls::user::{
    AccountHeader, AccountResource, BucketEntry, GetHeaderOp, GetHeaderReply, ListBucketsOp,
    ListBucketsReply, RemoveBucketOp, ResetStatsOp, ResetStatsReply, ResourceAddOp, ResourceGetReply,
    ResourceListOp, ResourceListReply, ResourceNameOp, SetBucketsOp, TimeOp, UserHeader, UserStats,
};

type MethodResult = Result<i32, MethodStop>;

/// Maximum entries of a reply.
const LIST_MAX: usize = 1000;

/// Without a header everything is zero; `EIO` for a damaged one.
fn stored_header<T: Decode + Default>(call: &mut MethodCall<'_>) -> Result<T, MethodStop> {
    let bytes = call.omap_header()?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    Reader::new(&bytes).get().map_err(|_| Errno::IO.into())
}

fn write_header<T: Encode>(call: &mut MethodCall<'_>, header: &T) -> Result<(), MethodStop> {
    call.set_omap_header(&header.to_vec(Features::NONE))
}

fn add(stats: &mut UserStats, entry: &BucketEntry) {
    stats.entries = stats.entries.wrapping_add(entry.count);
    stats.bytes = stats.bytes.wrapping_add(entry.size);
    stats.bytes_rounded = stats.bytes_rounded.wrapping_add(entry.size_rounded);
}

fn subtract(stats: &mut UserStats, entry: &BucketEntry) {
    stats.entries = stats.entries.wrapping_sub(entry.count);
    stats.bytes = stats.bytes.wrapping_sub(entry.size);
    stats.bytes_rounded = stats.bytes_rounded.wrapping_sub(entry.size_rounded);
}

/// A bucket that the user does not have is ignored unless it may be added: its removal came first.
pub(super) fn set_buckets_info(call: &mut MethodCall<'_>) -> MethodResult {
    let op: SetBucketsOp = call.argument()?;
    let mut header: UserHeader = stored_header(call)?;
    if op.entries.iter().any(|update| update.bucket.name.is_empty()) {
        return Err(Errno::INVAL.into());
    }
    let keys = op.entries.iter().map(|update| Bytes::copy_from_slice(&update.bucket.name)).collect();
    let present: BTreeMap<Bytes, Bytes> = call.omap_values(keys)?.into_iter().collect();
    let mut changed = Vec::with_capacity(op.entries.len());
    for update in op.entries {
        let BucketEntry { size, size_rounded, count, .. } = update;
        let key = Bytes::copy_from_slice(&update.bucket.name);
        let before: BucketEntry = match present.get(&key) {
            Some(value) => omap::stored(value)?,
            None if op.add => update,
            None => continue,
        };
        if before.is_counted {
            subtract(&mut header.stats, &before);
        }
        let entry = BucketEntry { size, size_rounded, count, is_counted: true, ..before };
        add(&mut header.stats, &entry);
        changed.push((key, entry.to_vec(Features::NONE).into()));
    }
    if !changed.is_empty() {
        call.set_omap_values(&changed)?;
    }
    header.last_update = header.last_update.max(op.time);
    write_header(call, &header)?;
    Ok(0)
}

pub(super) fn complete_stats_sync(call: &mut MethodCall<'_>) -> MethodResult {
    let op: TimeOp = call.argument()?;
    let mut header: UserHeader = stored_header(call)?;
    header.last_sync = header.last_sync.max(op.time);
    write_header(call, &header)?;
    Ok(0)
}

/// No error for a bucket that is not there. As stock OSDs do, the sum of the statistics is left as it was.
pub(super) fn remove_bucket(call: &mut MethodCall<'_>) -> MethodResult {
    let op: RemoveBucketOp = call.argument()?;
    stored_header::<UserHeader>(call)?;
    if op.bucket.name.is_empty() {
        return Err(Errno::INVAL.into());
    }
    if call.omap_as::<BucketEntry>(&op.bucket.name)?.is_some() {
        call.remove_omap_key(&op.bucket.name)?;
    }
    Ok(0)
}

/// A damaged entry is left out.
pub(super) fn list_buckets(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ListBucketsOp = call.argument()?;
    let max = usize::try_from(op.max_entries).unwrap_or(LIST_MAX).min(LIST_MAX);
    let (stored, more) = call.omap_list(&op.marker, "", max, true)?;
    let mut reply = ListBucketsReply { truncated: more, ..ListBucketsReply::default() };
    for (key, value) in &stored {
        if !op.end_marker.is_empty() && op.end_marker[..] <= key[..] {
            reply.truncated = false;
            break;
        }
        reply.marker = Name::from(&key[..]);
        reply.entries.extend(omap::stored(value).ok());
    }
    if !reply.truncated {
        reply.marker = Name::EMPTY;
    }
    call.finish_with(&reply)
}

pub(super) fn get_header(call: &mut MethodCall<'_>) -> MethodResult {
    call.argument::<GetHeaderOp>()?;
    let header = stored_header(call)?;
    call.finish_with(&GetHeaderReply { header })
}

/// Sums all buckets at once. `EOVERFLOW` beyond what one call may visit: then `reset_user_stats2` does it in steps.
pub(super) fn reset_user_stats(call: &mut MethodCall<'_>) -> MethodResult {
    let op: TimeOp = call.argument()?;
    let mut stats = UserStats::default();
    for (_, value) in call.omap_scan("")? {
        add(&mut stats, &omap::stored(&value)?);
    }
    write_header(call, &UserHeader { stats, last_update: op.time, ..UserHeader::default() })?;
    Ok(0)
}

/// Sums the next thousand buckets. The last step writes the sum.
pub(super) fn reset_user_stats2(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ResetStatsOp = call.argument()?;
    let (stored, truncated) = call.omap_list(&op.marker, "", LIST_MAX, true)?;
    let mut stats = op.stats;
    for (_, value) in &stored {
        add(&mut stats, &omap::stored(value)?);
    }
    let marker = match stored.last() {
        Some((last, _)) if truncated => Name::from(&last[..]),
        _ => Name::EMPTY,
    };
    if !truncated {
        write_header(call, &UserHeader { stats, last_update: op.time, ..UserHeader::default() })?;
    }
    call.finish_with(&ResetStatsReply { marker, stats, truncated })
}

/// Names that differ in case only are one.
fn resource_key(name: &Name) -> Vec<u8> {
    name.to_ascii_lowercase()
}

/// `EEXIST` for a resource that is there, if asked; `EUSERS` beyond the limit.
pub(super) fn account_resource_add(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ResourceAddOp = call.argument()?;
    let header: AccountHeader = stored_header(call)?;
    let key = resource_key(&op.entry.name);
    if call.omap_value(&Bytes::copy_from_slice(&key))?.is_some() {
        if op.exclusive {
            return Err(Errno::EXIST.into());
        }
    } else {
        if header.count >= op.limit {
            return Err(Errno::USERS.into());
        }
        write_header(call, &AccountHeader { count: header.count + 1 })?;
    }
    call.set_omap(key, &op.entry)?;
    Ok(0)
}

pub(super) fn account_resource_get(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ResourceNameOp = call.argument()?;
    let entry = call.omap_must(resource_key(&op.name))?;
    call.finish_with(&ResourceGetReply { entry })
}

pub(super) fn account_resource_rm(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ResourceNameOp = call.argument()?;
    let header: AccountHeader = stored_header(call)?;
    let key = resource_key(&op.name);
    call.omap_value(&Bytes::copy_from_slice(&key))?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    call.remove_omap_key(key)?;
    write_header(call, &AccountHeader { count: header.count.saturating_sub(1) })?;
    Ok(0)
}

pub(super) fn account_resource_list(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ResourceListOp = call.argument()?;
    let max = (op.max_entries as usize).min(LIST_MAX);
    let (stored, truncated) = call.omap_list(&op.marker, "", max, true)?;
    let marker = stored.last().map_or(Name::EMPTY, |(last, _)| Name::from(&last[..]));
    let entries = stored.iter().map(|(_, value)| omap::stored::<AccountResource>(value));
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.retain(|entry| entry.path.starts_with(&op.path_prefix));
    call.finish_with(&ResourceListReply { entries, truncated, marker })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::UTime;
    use wire::types::cls::user::UserBucket;

    fn bucket(name: &str) -> UserBucket {
        UserBucket { name: name.into(), ..UserBucket::default() }
    }

    fn set(o: &mut Object, name: &str, size: u64, add: bool) {
        let entry = BucketEntry {
            bucket: bucket(name),
            size,
            size_rounded: 4096,
            count: 1,
            ..BucketEntry::default()
        };
        let time = UTime { sec: 5, nsec: 0 };
        o.call("user", "set_buckets_info", &SetBucketsOp { entries: vec![entry], add, time }).unwrap();
    }

    fn header(o: &mut Object) -> UserHeader {
        decode::<GetHeaderReply>(&o.call("user", "get_header", &GetHeaderOp {}).unwrap()).header
    }

    #[test]
    fn statistics_are_the_sum_of_the_buckets() {
        let mut o = Object::missing();
        set(&mut o, "a", 10, true);
        set(&mut o, "b", 20, true);
        set(&mut o, "a", 15, false);
        set(&mut o, "gone", 99, false);
        let sum = UserStats { entries: 2, bytes: 35, bytes_rounded: 8192 };
        assert_eq!((header(&mut o).stats, header(&mut o).last_update.sec), (sum, 5));
        let list = |o: &mut Object, op: ListBucketsOp| -> Vec<String> {
            let reply: ListBucketsReply = decode(&o.call("user", "list_buckets", &op).unwrap());
            reply.entries.iter().map(|e| e.bucket.name.to_string()).collect()
        };
        let all = ListBucketsOp { max_entries: 10, ..ListBucketsOp::default() };
        assert_eq!(list(&mut o, all.clone()), ["a", "b"]);
        assert_eq!(list(&mut o, ListBucketsOp { end_marker: "b".into(), ..all }), ["a"]);
        for _ in 0..2 {
            o.call("user", "remove_bucket", &RemoveBucketOp { bucket: bucket("a") }).unwrap();
        }
        o.call("user", "reset_user_stats", &TimeOp { time: UTime { sec: 7, nsec: 0 } }).unwrap();
        assert_eq!(header(&mut o).stats, UserStats { entries: 1, bytes: 20, bytes_rounded: 4096 });
        o.call("user", "complete_stats_sync", &TimeOp { time: UTime { sec: 9, nsec: 0 } }).unwrap();
        assert_eq!(header(&mut o).last_sync.sec, 9);
    }

    #[test]
    fn many_buckets_are_summed_in_steps() {
        let mut o = Object::missing();
        for i in 0..1500 {
            set(&mut o, &format!("{i:04}"), 1, true);
        }
        let mut op = ResetStatsOp::default();
        let mut steps = 0;
        loop {
            let reply: ResetStatsReply = decode(&o.call("user", "reset_user_stats2", &op).unwrap());
            steps += 1;
            if !reply.truncated {
                break;
            }
            op = ResetStatsOp { marker: reply.marker, stats: reply.stats, ..op };
        }
        assert_eq!((steps, header(&mut o).stats.entries), (2, 1500));
    }

    #[test]
    fn account_counts_its_resources() {
        let mut o = Object::missing();
        let add = |o: &mut Object, name: &str, exclusive: bool| {
            let entry = AccountResource { name: name.into(), path: "/p/".into(), metadata: Bytes::new() };
            o.call("user", "account_resource_add", &ResourceAddOp { entry, exclusive, limit: 2 })
        };
        add(&mut o, "One", true).unwrap();
        assert_eq!(add(&mut o, "one", true), Err(Errno::EXIST));
        add(&mut o, "one", false).unwrap();
        add(&mut o, "two", true).unwrap();
        assert_eq!(add(&mut o, "three", true), Err(Errno::USERS));
        let name = ResourceNameOp { name: "ONE".into() };
        let got: ResourceGetReply = decode(&o.call("user", "account_resource_get", &name).unwrap());
        assert_eq!(got.entry.name, "one");
        let op = ResourceListOp { path_prefix: "/p".into(), max_entries: 1, ..ResourceListOp::default() };
        let list: ResourceListReply = decode(&o.call("user", "account_resource_list", &op).unwrap());
        assert_eq!((list.entries.len(), list.truncated, &list.marker[..]), (1, true, &b"one"[..]));
        o.call("user", "account_resource_rm", &name).unwrap();
        assert_eq!(o.call("user", "account_resource_rm", &name), Err(Errno::NOENT));
        add(&mut o, "three", true).unwrap();
    }
}
