//! Resharding: the queue of buckets, and the state that an index is in.

use super::stored::{is_busy, read_header, write_header};
use super::{MethodCall, MethodResult, read_omap};
use crate::classes::omap;
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::Name;
use wire::types::cls::rgw::{
    GuardReshardOp, Reshard, ReshardAddOp, ReshardBox, ReshardEntry, ReshardListOp, ReshardListReply,
    ReshardNothingOp, ReshardRemoveOp, ReshardStatusBox,
};

/// Entries of one listing.
const LIST_MAX: u32 = 1000;

fn queue_key(tenant: &Name, bucket: &Name) -> Bytes {
    [&tenant[..], b":", bucket].concat().into()
}

/// `EEXIST` for a bucket that is there, if it is not to be overwritten.
pub fn reshard_add(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ReshardAddOp = call.argument()?;
    let key = queue_key(&op.entry.tenant, &op.entry.bucket_name);
    if op.create_only && call.omap_value(&key)?.is_some() {
        return Err(Errno::EXIST.into());
    }
    call.set_omap(key, &op.entry)?;
    Ok(0)
}

/// A listing of 0 entries says if there are any.
pub fn reshard_list(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ReshardListOp = call.argument()?;
    let max = if op.max == 0 { LIST_MAX } else { op.max.min(LIST_MAX) };
    let (stored, truncated) = read_omap(call, &op.marker, b"", max as usize)?;
    let wanted = stored.iter().take(op.max as usize);
    let entries = wanted.map(|(_, value)| omap::stored(value)).collect::<Result<_, _>>()?;
    call.finish_with(&ReshardListReply { entries, truncated })
}

pub fn reshard_get(call: &mut MethodCall<'_>) -> MethodResult {
    let ReshardBox { entry } = call.argument()?;
    let entry = call.omap_must(queue_key(&entry.tenant, &entry.bucket_name))?;
    call.finish_with(&ReshardBox { entry })
}

/// An entry of another instance of the bucket stays, without an error.
pub fn reshard_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ReshardRemoveOp = call.argument()?;
    let key = queue_key(&op.tenant, &op.bucket_name);
    let entry: ReshardEntry = call.omap_must(&key)?;
    if op.bucket_id.is_empty() || op.bucket_id == entry.bucket_id {
        call.remove_omap_key(key)?;
    }
    Ok(0)
}

fn set_state(call: &mut MethodCall<'_>, reshard: Reshard) -> MethodResult {
    let mut header = read_header(call)?;
    header.reshard = reshard;
    write_header(call, &mut header)
}

pub fn set_bucket_resharding(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ReshardStatusBox = call.argument()?;
    set_state(call, op.reshard)
}

pub fn clear_bucket_resharding(call: &mut MethodCall<'_>) -> MethodResult {
    call.argument::<ReshardNothingOp>()?;
    set_state(call, Reshard::default())
}

/// The argument's result while the index takes no changes.
pub fn guard_bucket_resharding(call: &mut MethodCall<'_>) -> MethodResult {
    let op: GuardReshardOp = call.argument()?;
    let header = read_header(call)?;
    Ok(if is_busy(&header) { op.result } else { 0 })
}

pub fn get_bucket_resharding(call: &mut MethodCall<'_>) -> MethodResult {
    call.argument::<ReshardNothingOp>()?;
    let reshard = read_header(call)?.reshard;
    call.finish_with(&ReshardStatusBox { reshard })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::rgw::index::tests::{header, index};
    use crate::classes::testing::{Object, decode};
    use codec::{Encode, Features};
    use wire::types::cls::rgw::{BucketHeader, STATUS_IN_LOGRECORD, STATUS_IN_PROGRESS, STATUS_NONE};

    fn entry(bucket: &str, id: &str) -> ReshardEntry {
        ReshardEntry {
            bucket_name: bucket.into(),
            bucket_id: id.into(),
            new_shards: 7,
            ..ReshardEntry::default()
        }
    }

    #[test]
    fn queue_holds_a_bucket_once() {
        let mut o = Object::missing();
        let add = |o: &mut Object, bucket: &str, id: &str, create_only| {
            let op = ReshardAddOp { entry: entry(bucket, id), create_only };
            o.call("rgw", "reshard_add", &op).map(|_| ())
        };
        add(&mut o, "b", "1", true).unwrap();
        add(&mut o, "a", "1", false).unwrap();
        assert_eq!(add(&mut o, "a", "2", true), Err(Errno::EXIST));
        add(&mut o, "a", "2", false).unwrap();
        assert!(o.omap(":a").is_some());
        let list = |o: &mut Object, max, marker: &str| {
            let op = ReshardListOp { max, marker: marker.into() };
            let reply: ReshardListReply = decode(&o.call("rgw", "reshard_list", &op).unwrap());
            let names: Vec<_> = reply.entries.iter().map(|e| e.bucket_name.to_string()).collect();
            (names, reply.truncated)
        };
        assert_eq!(list(&mut o, 10, ""), (vec!["a".into(), "b".into()], false));
        assert_eq!(list(&mut o, 1, ""), (vec!["a".into()], true));
        assert_eq!(list(&mut o, 10, ":a"), (vec!["b".into()], false));
        assert_eq!(list(&mut o, 0, ""), (Vec::new(), false));
        let get = ReshardBox { entry: entry("a", "") };
        let got: ReshardBox = decode(&o.call("rgw", "reshard_get", &get).unwrap());
        assert_eq!(got.entry, entry("a", "2"));
        let remove = |id: &str| ReshardRemoveOp {
            bucket_name: "a".into(),
            bucket_id: id.into(),
            ..ReshardRemoveOp::default()
        };
        o.call("rgw", "reshard_remove", &remove("1")).unwrap();
        assert!(o.omap(":a").is_some());
        o.call("rgw", "reshard_remove", &remove("2")).unwrap();
        assert_eq!(o.call("rgw", "reshard_remove", &remove("")), Err(Errno::NOENT));
        assert_eq!(o.call("rgw", "reshard_get", &get), Err(Errno::NOENT));
    }

    #[test]
    fn guard_answers_while_entries_move() {
        let mut o = index();
        let guard = |o: &mut Object| {
            let op = GuardReshardOp { result: -2300 };
            o.call_raw("rgw", "guard_bucket_resharding", &op.to_vec(Features::ALL)).result
        };
        let set = |o: &mut Object, status| {
            let op = ReshardStatusBox { reshard: Reshard { status } };
            o.call("rgw", "set_bucket_resharding", &op).unwrap();
        };
        let get = |o: &mut Object| {
            let reply = o.call("rgw", "get_bucket_resharding", &ReshardNothingOp {}).unwrap();
            decode::<ReshardStatusBox>(&reply).reshard.status
        };
        assert_eq!((guard(&mut o), get(&mut o)), (0, STATUS_NONE));
        set(&mut o, STATUS_IN_PROGRESS);
        assert_eq!((guard(&mut o), get(&mut o)), (-2300, STATUS_IN_PROGRESS));
        set(&mut o, 2);
        assert_eq!(guard(&mut o), 0, "resharding is done");
        // While changes are logged they go on, until the log is too long.
        let reshard = Reshard { status: STATUS_IN_LOGRECORD };
        for (length, result) in [(29_999, 0), (30_000, -2300)] {
            let long = BucketHeader { reshard, reshard_log_entries: length, ..header(&o) };
            o.put_omap_header(&long.to_vec(Features::NONE));
            assert_eq!(guard(&mut o), result, "{length}");
        }
        o.call("rgw", "clear_bucket_resharding", &ReshardNothingOp {}).unwrap();
        assert_eq!((guard(&mut o), get(&mut o)), (0, STATUS_NONE));
        assert_eq!(o.call_bare("rgw", "get_bucket_resharding"), Err(Errno::INVAL));
    }
}
