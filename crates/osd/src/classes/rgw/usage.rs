//! The usage log: each record under its hour and under its user.

use super::{MethodCall, MethodResult, MethodStop, read_omap};
use crate::classes::omap::Entry;
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features, Reader};
use std::collections::BTreeMap;
use wire::types::Name;
use wire::types::cls::rgw::{
    UsageAddOp, UsageEntry, UsageReadOp, UsageReadReply, UsageTrimOp, UserBucketKey,
};

/// Records of one read and of one trim.
const RECORDS_MAX: u32 = 1000;

fn hour_key(epoch: u64, user: &[u8], bucket: &[u8]) -> Bytes {
    [format!("{epoch:011}_").as_bytes(), user, b"_", bucket].concat().into()
}

fn user_key(user: &[u8], epoch: u64, bucket: &[u8]) -> Bytes {
    [user, format!("_{epoch:011}_").as_bytes(), bucket].concat().into()
}

/// `EINVAL` for a damaged record.
fn record(value: &Bytes) -> Result<UsageEntry, MethodStop> {
    Reader::new(value).get().map_err(|_| Errno::INVAL.into())
}

/// Adds to the records of the same hour, user and bucket. Two records of one call for the same three do not add up, as in stock.
pub fn user_usage_log_add(call: &mut MethodCall<'_>) -> MethodResult {
    let op: UsageAddOp = call.argument()?;
    let by_hour = |entry: &UsageEntry| hour_key(entry.epoch, entry.payer(), &entry.bucket);
    let keys = op.info.entries.iter().map(by_hour).collect();
    let stored: BTreeMap<Bytes, Bytes> = call.omap_values(keys)?.into_iter().collect();
    let mut changed: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    for mut entry in op.info.entries {
        let key = by_hour(&entry);
        if let Some(value) = stored.get(&key) {
            entry.aggregate(&record(value)?);
        }
        let value: Bytes = entry.to_vec(Features::NONE).into();
        changed.insert(user_key(entry.payer(), entry.epoch, &entry.bucket), value.clone());
        changed.insert(key, value);
    }
    let changed: Vec<Entry> = changed.into_iter().collect();
    if !changed.is_empty() {
        call.set_omap_values(&changed)?;
    }
    Ok(0)
}

/// Records that are asked for.
struct Range<'a> {
    start: u64,
    /// Excluded.
    end: u64,
    /// Empty: all.
    user: &'a Name,
    bucket: &'a Name,
}

/// Records of a range, from a key on.
struct Page {
    entries: Vec<UsageEntry>,
    last: Name,
    truncated: bool,
}

impl Range<'_> {
    fn read(&self, call: &mut MethodCall<'_>, from: &Name, max: u32) -> Result<Page, MethodStop> {
        let by_user = [&self.user[..], b"_"].concat();
        let is_by_user = !self.user.is_empty();
        let end = format!("{:011}", self.end);
        let after = match (from.is_empty(), is_by_user) {
            (false, _) => Bytes::copy_from_slice(from),
            (true, true) => user_key(self.user, self.start, b""),
            (true, false) => format!("{:011}", self.start).into(),
        };
        let (stored, truncated) = read_omap(call, &after, b"", max as usize)?;
        let mut page = Page { entries: Vec::new(), last: from.clone(), truncated };
        for (key, value) in stored {
            page.last = Name::from(&key[..]);
            let is_outside = if is_by_user { !key.starts_with(&by_user) } else { key[..] >= *end.as_bytes() };
            if is_outside {
                page.truncated = false;
                break;
            }
            let entry = record(&value)?;
            if !self.bucket.is_empty() && *self.bucket != entry.bucket || entry.epoch < self.start {
                continue;
            }
            if entry.epoch >= self.end {
                page.truncated = false;
                break;
            }
            page.entries.push(entry);
        }
        Ok(page)
    }
}

/// Sums by user and bucket.
pub fn user_usage_log_read(call: &mut MethodCall<'_>) -> MethodResult {
    let op: UsageReadOp = call.argument()?;
    let range = Range { start: op.start_epoch, end: op.end_epoch, user: &op.owner, bucket: &op.bucket };
    let max = if op.max_entries == 0 { RECORDS_MAX } else { op.max_entries };
    let page = range.read(call, &op.iter, max)?;
    let mut reply = UsageReadReply { truncated: page.truncated, ..UsageReadReply::default() };
    for entry in &page.entries {
        let key = UserBucketKey { user: entry.payer().clone(), bucket: entry.bucket.clone() };
        reply.usage.entry(key).or_default().aggregate(entry);
    }
    if page.truncated {
        reply.next_iter = page.last;
    }
    call.finish_with(&reply)
}

/// Removes records, under the owner's name as 20.2 does. `ENODATA` when none is left.
pub fn user_usage_log_trim(call: &mut MethodCall<'_>) -> MethodResult {
    call.must_exist()?;
    let op: UsageTrimOp = call.argument()?;
    let range = Range { start: op.start_epoch, end: op.end_epoch, user: &op.user, bucket: &op.bucket };
    let page = range.read(call, &Name::EMPTY, RECORDS_MAX)?;
    if page.entries.is_empty() {
        return if page.truncated { Ok(0) } else { Err(Errno::NODATA.into()) };
    }
    let keys_of = |entry: &UsageEntry| {
        let UsageEntry { owner, epoch, bucket, .. } = entry;
        [hour_key(*epoch, owner, bucket), user_key(owner, *epoch, bucket)]
    };
    let keys: Vec<Bytes> = page.entries.iter().flat_map(keys_of).collect();
    call.remove_omap_keys(&keys)?;
    Ok(0)
}

pub fn usage_log_clear(call: &mut MethodCall<'_>) -> MethodResult {
    if call.exists() {
        call.clear_omap()?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::cls::rgw::{UsageData, UsageInfo};

    fn add(o: &mut Object, owner: &str, payer: &str, bucket: &str, epoch: u64, ops: u64) {
        let data = UsageData { ops, ..UsageData::default() };
        let entry = UsageEntry {
            owner: owner.into(),
            payer: payer.into(),
            bucket: bucket.into(),
            epoch,
            total: data,
            by_category: BTreeMap::from([("get_obj".into(), data)]),
            ..UsageEntry::default()
        };
        let op = UsageAddOp { info: UsageInfo { entries: vec![entry] }, ..UsageAddOp::default() };
        o.call("rgw", "user_usage_log_add", &op).unwrap();
    }

    fn read(o: &mut Object, op: UsageReadOp) -> (Vec<(String, String, u64)>, Name) {
        let reply: UsageReadReply = decode(&o.call("rgw", "user_usage_log_read", &op).unwrap());
        assert_eq!(reply.truncated, !reply.next_iter.is_empty());
        let row = |(key, entry): (&UserBucketKey, &UsageEntry)| {
            (key.user.to_string(), key.bucket.to_string(), entry.total.ops)
        };
        (reply.usage.iter().map(row).collect(), reply.next_iter)
    }

    fn all() -> UsageReadOp {
        UsageReadOp { end_epoch: 1 << 40, ..UsageReadOp::default() }
    }

    fn log() -> Object {
        let mut o = Object::missing();
        add(&mut o, "alice", "", "b1", 3600, 1);
        add(&mut o, "alice", "", "b1", 3600, 2);
        add(&mut o, "alice", "", "b2", 7200, 4);
        add(&mut o, "bob", "", "b1", 7200, 8);
        o
    }

    fn row(user: &str, bucket: &str, ops: u64) -> (String, String, u64) {
        (user.into(), bucket.into(), ops)
    }

    #[test]
    fn usage_adds_up_by_user_and_bucket() {
        let mut o = log();
        assert!(o.omap("00000003600_alice_b1").is_some() && o.omap("alice_00000003600_b1").is_some());
        let (sums, _) = read(&mut o, all());
        assert_eq!(sums, [row("alice", "b1", 3), row("alice", "b2", 4), row("bob", "b1", 8)]);
        let alice = UsageReadOp { owner: "alice".into(), ..all() };
        assert_eq!(read(&mut o, alice.clone()).0, [row("alice", "b1", 3), row("alice", "b2", 4)]);
        let later = UsageReadOp { start_epoch: 3601, ..alice.clone() };
        assert_eq!(read(&mut o, later).0, [row("alice", "b2", 4)]);
        let earlier = UsageReadOp { end_epoch: 7200, ..all() };
        assert_eq!(read(&mut o, earlier).0, [row("alice", "b1", 3)]);
        let bucket = UsageReadOp { bucket: "b1".into(), ..all() };
        assert_eq!(read(&mut o, bucket).0, [row("alice", "b1", 3), row("bob", "b1", 8)]);
        let (first, next) = read(&mut o, UsageReadOp { max_entries: 1, ..alice.clone() });
        assert_eq!((first, next.clone()), (vec![row("alice", "b1", 3)], "alice_00000003600_b1".into()));
        assert_eq!(read(&mut o, UsageReadOp { iter: next, ..alice }).0, [row("alice", "b2", 4)]);
    }

    #[test]
    fn usage_counts_for_the_payer() {
        let mut o = Object::missing();
        add(&mut o, "alice", "bob", "b", 3600, 1);
        assert!(o.omap("bob_00000003600_b").is_some());
        assert_eq!(read(&mut o, all()).0, [row("bob", "b", 1)]);
    }

    #[test]
    fn usage_is_trimmed_and_cleared() {
        let mut o = log();
        let trim = UsageTrimOp { end_epoch: 1 << 40, user: "alice".into(), ..UsageTrimOp::default() };
        o.call("rgw", "user_usage_log_trim", &trim).unwrap();
        assert_eq!(o.call("rgw", "user_usage_log_trim", &trim), Err(Errno::NODATA));
        assert_eq!(read(&mut o, all()).0, [row("bob", "b1", 8)]);
        o.call_bare("rgw", "usage_log_clear").unwrap();
        assert_eq!(o.omap_keys(), [""; 0]);
        assert_eq!(Object::missing().call("rgw", "user_usage_log_trim", &trim), Err(Errno::NOENT));
        Object::missing().call_bare("rgw", "usage_log_clear").unwrap();
        o.put_omap("00000003600_x_y", b"damaged");
        assert_eq!(o.call("rgw", "user_usage_log_read", &all()), Err(Errno::INVAL));
    }
}
