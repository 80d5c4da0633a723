//! The gateway's garbage as old gateways keep it: each chain of objects under its tag and under its time.

use super::{MethodCall, MethodResult, MethodStop, read_omap};
use crate::classes::omap::{self, key};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features};
use std::collections::BTreeMap;
use wire::types::cls::rgw::{
    DeferEntryOp, GarbageInfo, GarbageListOp, GarbageListReply, RemoveTagsOp, SetEntryOp,
};
use wire::types::{Name, UTime};

const BY_TAG: &str = "0_";
const BY_TIME: &str = "1_";
/// Entries of a listing that does not say how many.
const LIST_DEFAULT: u32 = 128;

fn time_key(time: UTime) -> Bytes {
    key(BY_TIME, format!("{:011}.{:09}", time.sec, time.nsec))
}

/// Puts an entry in its new place in the order of times.
fn update(call: &mut MethodCall<'_>, mut info: GarbageInfo, expiration_s: u32) -> MethodResult {
    let tag = key(BY_TAG, &info.tag);
    // A damaged entry is overwritten, and the copy under its time stays.
    let old = call.omap_value(&tag)?.and_then(|value| omap::stored::<GarbageInfo>(&value).ok());
    if let Some(old) = old {
        call.remove_omap_key(time_key(old.time))?;
    }
    let now = call.context.now;
    info.time = UTime { sec: now.sec.saturating_add(expiration_s), ..now };
    let value: Bytes = info.to_vec(Features::NONE).into();
    call.set_omap_value(&tag, &value)?;
    call.set_omap_value(&time_key(info.time), &value)?;
    Ok(0)
}

pub fn gc_set_entry(call: &mut MethodCall<'_>) -> MethodResult {
    let op: SetEntryOp = call.argument()?;
    update(call, op.info, op.expiration_s)
}

pub fn gc_defer_entry(call: &mut MethodCall<'_>) -> MethodResult {
    let op: DeferEntryOp = call.argument()?;
    let info = call.omap_must(key(BY_TAG, &op.tag))?;
    update(call, info, op.expiration_s)
}

/// Entries in the order of their times; expired ones only, if asked.
pub fn gc_list(call: &mut MethodCall<'_>) -> MethodResult {
    let op: GarbageListOp = call.argument()?;
    let after = if op.marker.is_empty() { Name::from(BY_TIME) } else { op.marker };
    let max = if op.max == 0 { LIST_DEFAULT } else { op.max };
    let (stored, truncated) = read_omap(call, &after, b"", max as usize)?;
    let end = op.expired_only.then(|| time_key(call.context.now));
    let mut reply = GarbageListReply { truncated, ..GarbageListReply::default() };
    for (key, value) in &stored {
        if end.as_ref().is_some_and(|end| key >= end) || !key.starts_with(BY_TIME.as_bytes()) {
            reply.truncated = false;
            break;
        }
        reply.entries.push(omap::stored(value)?);
    }
    if reply.truncated {
        reply.next = stored.last().map_or(Name::EMPTY, |(key, _)| Name::from(&key[..]));
    }
    call.finish_with(&reply)
}

/// Tags that are not there are no error.
pub fn gc_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let op: RemoveTagsOp = call.argument()?;
    let keys = op.tags.iter().map(|tag| key(BY_TAG, tag)).collect();
    let stored: BTreeMap<Bytes, Bytes> = call.omap_values(keys)?.into_iter().collect();
    let mut removed = Vec::with_capacity(2 * stored.len());
    for (tag, value) in stored {
        let info: GarbageInfo = omap::stored(&value).map_err(|_| MethodStop::Failed(Errno::IO))?;
        removed.extend([time_key(info.time), tag]);
    }
    if !removed.is_empty() {
        call.remove_omap_keys(&removed)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn set(o: &mut Object, tag: &str, expiration_s: u32) {
        let info = GarbageInfo { tag: tag.into(), ..GarbageInfo::default() };
        o.call("rgw", "gc_set_entry", &SetEntryOp { expiration_s, info }).unwrap();
    }

    fn list(o: &mut Object, op: GarbageListOp) -> (Vec<String>, bool, Name) {
        let reply: GarbageListReply = decode(&o.call("rgw", "gc_list", &op).unwrap());
        (reply.entries.iter().map(|e| e.tag.to_string()).collect(), reply.truncated, reply.next)
    }

    #[test]
    fn garbage_is_listed_by_time() {
        let mut o = Object::missing();
        for (tag, seconds) in [("late", 300), ("now", 0), ("soon", 100)] {
            set(&mut o, tag, seconds);
        }
        assert!(o.omap("0_now").is_some() && o.omap("1_00000001100.000000000").is_some());
        let all = GarbageListOp::default();
        assert_eq!(list(&mut o, all.clone()).0, ["now", "soon", "late"]);
        let (first, truncated, next) = list(&mut o, GarbageListOp { max: 1, ..all.clone() });
        assert_eq!((first, truncated), (vec!["now".into()], true));
        assert_eq!(list(&mut o, GarbageListOp { marker: next, ..all.clone() }).0, ["soon", "late"]);
        let expired = GarbageListOp { expired_only: true, ..all };
        assert_eq!(list(&mut o, expired.clone()).0, [""; 0]);
        o.now.sec += 101;
        assert_eq!(list(&mut o, expired).0, ["now", "soon"]);
    }

    #[test]
    fn entry_is_deferred_and_removed() {
        let mut o = Object::missing();
        set(&mut o, "a", 10);
        set(&mut o, "b", 20);
        let defer = |tag: &str| DeferEntryOp { expiration_s: 30, tag: tag.into() };
        o.call("rgw", "gc_defer_entry", &defer("a")).unwrap();
        assert_eq!(list(&mut o, GarbageListOp::default()).0, ["b", "a"]);
        assert_eq!(o.call("rgw", "gc_defer_entry", &defer("x")), Err(Errno::NOENT));
        let remove = RemoveTagsOp { tags: vec!["a".into(), "x".into()] };
        o.call("rgw", "gc_remove", &remove).unwrap();
        assert_eq!(list(&mut o, GarbageListOp::default()).0, ["b"]);
        assert_eq!(o.omap_keys().len(), 2);
        Object::missing().call("rgw", "gc_remove", &remove).unwrap();
    }
}
