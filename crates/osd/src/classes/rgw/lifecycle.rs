//! Buckets that lifecycle processing visits: entries by name, and how far the visit is.

use super::{MethodCall, MethodResult, MethodStop, read_omap};
use crate::classes::omap::{self, Entry};
use crate::errno::Errno;
use codec::{Encode, Features, Reader};
use wire::types::cls::rgw::{
    LifecycleBox, LifecycleEntry, LifecycleHead, LifecycleHeadBox, LifecycleListOp, LifecycleListReply,
    LifecycleMarkerOp,
};

pub fn lc_get_entry(call: &mut MethodCall<'_>) -> MethodResult {
    let op: LifecycleMarkerOp = call.argument()?;
    let entry = call.omap_must(&op.marker)?;
    call.finish_with(&LifecycleBox { entry })
}

pub fn lc_set_entry(call: &mut MethodCall<'_>) -> MethodResult {
    let LifecycleBox { entry } = call.argument()?;
    call.set_omap(&entry.bucket, &entry)?;
    Ok(0)
}

pub fn lc_rm_entry(call: &mut MethodCall<'_>) -> MethodResult {
    let LifecycleBox { entry } = call.argument()?;
    call.remove_omap_key(&entry.bucket)?;
    Ok(0)
}

/// The first entry behind the marker; an empty one at the end.
pub fn lc_get_next_entry(call: &mut MethodCall<'_>) -> MethodResult {
    let op: LifecycleMarkerOp = call.argument()?;
    let (stored, _) = read_omap(call, &op.marker, b"", 1)?;
    let entry = stored.first().map(|(_, value)| omap::stored(value)).transpose()?;
    call.finish_with(&LifecycleBox { entry: entry.unwrap_or_default() })
}

/// An entry, or the pair of name and status that was stored before entries had a time.
fn either_form((_, value): &Entry) -> Result<LifecycleEntry, MethodStop> {
    let entry = Reader::new(value).get();
    entry.or_else(|_| LifecycleEntry::decode_pair(&mut Reader::new(value))).map_err(|_| Errno::IO.into())
}

pub fn lc_list_entries(call: &mut MethodCall<'_>) -> MethodResult {
    let op: LifecycleListOp = call.argument()?;
    let (stored, truncated) = read_omap(call, &op.marker, b"", op.max_entries as usize)?;
    let entries = stored.iter().map(either_form).collect::<Result<_, _>>()?;
    call.finish_with(&LifecycleListReply { version: op.version, entries, truncated })
}

pub fn lc_put_head(call: &mut MethodCall<'_>) -> MethodResult {
    let LifecycleHeadBox { head } = call.argument()?;
    call.set_omap_header(&head.to_vec(Features::NONE))?;
    Ok(0)
}

/// An empty one if none was put.
pub fn lc_get_head(call: &mut MethodCall<'_>) -> MethodResult {
    call.must_exist()?;
    let bytes = call.omap_header()?;
    let head = match bytes.is_empty() {
        true => LifecycleHead::default(),
        false => Reader::new(&bytes).get().map_err(|_| MethodStop::Failed(Errno::INVAL))?,
    };
    call.finish_with(&LifecycleHeadBox { head })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn set(o: &mut Object, bucket: &str, status: u32) {
        let entry = LifecycleEntry { bucket: bucket.into(), start_time: 9, status };
        o.call("rgw", "lc_set_entry", &LifecycleBox { entry }).unwrap();
    }

    fn marker(marker: &str) -> LifecycleMarkerOp {
        LifecycleMarkerOp { marker: marker.into() }
    }

    fn list(o: &mut Object, version: u8, max_entries: u32) -> (Vec<(String, u64, u32)>, bool) {
        let op = LifecycleListOp { version, max_entries, ..LifecycleListOp::default() };
        let reply: LifecycleListReply = decode(&o.call("rgw", "lc_list_entries", &op).unwrap());
        let entries = reply.entries.iter().map(|e| (e.bucket.to_string(), e.start_time, e.status));
        (entries.collect(), reply.truncated)
    }

    #[test]
    fn buckets_are_visited_in_order() {
        let mut o = Object::missing();
        for (bucket, status) in [("b", 2), ("a", 1)] {
            set(&mut o, bucket, status);
        }
        let get = |o: &mut Object, method: &str, at: &str| {
            let reply = o.call("rgw", method, &marker(at))?;
            Ok::<_, Errno>(decode::<LifecycleBox>(&reply).entry.bucket.to_string())
        };
        assert_eq!(get(&mut o, "lc_get_next_entry", "").unwrap(), "a");
        assert_eq!(get(&mut o, "lc_get_next_entry", "a").unwrap(), "b");
        assert_eq!(get(&mut o, "lc_get_next_entry", "b").unwrap(), "");
        assert_eq!(o.call("rgw", "lc_get_entry", &marker("x")), Err(Errno::NOENT));
        let b: LifecycleBox = decode(&o.call("rgw", "lc_get_entry", &marker("b")).unwrap());
        assert_eq!((b.entry.status, b.entry.start_time), (2, 9));
        o.call("rgw", "lc_get_next_entry", &marker("")).unwrap();
        o.call("rgw", "lc_rm_entry", &b).unwrap();
        assert_eq!(list(&mut o, 3, 9).0, [("a".into(), 9, 1)]);
        assert_eq!(Object::missing().call("rgw", "lc_rm_entry", &b), Err(Errno::NOENT));
    }

    #[test]
    fn listing_knows_the_old_forms() {
        let mut o = Object::existing();
        set(&mut o, "a", 1);
        o.put_omap("b", &("b".to_string(), 7u32).to_vec(Features::NONE));
        let both = |time| vec![("a".to_string(), time, 1), ("b".to_string(), 0, 7)];
        assert_eq!(list(&mut o, 3, 9), (both(9), false));
        assert_eq!(list(&mut o, 2, 9), (both(0), false));
        assert_eq!(list(&mut o, 3, 1), (vec![("a".into(), 9, 1)], true));
        assert_eq!(list(&mut o, 3, 0), (Vec::new(), true));
        o.put_omap("c", b"\xff");
        let op = LifecycleListOp { version: 3, max_entries: 9, ..LifecycleListOp::default() };
        assert_eq!(o.call("rgw", "lc_list_entries", &op), Err(Errno::IO));
    }

    #[test]
    fn head_is_kept() {
        let mut o = Object::existing();
        let get = |o: &mut Object| decode::<LifecycleHeadBox>(&o.call_bare("rgw", "lc_get_head").unwrap());
        assert_eq!(get(&mut o).head, LifecycleHead::default());
        let head = LifecycleHead { start_date: 5, marker: "m".into(), shard_rollover_date: 6 };
        o.call("rgw", "lc_put_head", &LifecycleHeadBox { head: head.clone() }).unwrap();
        assert_eq!(get(&mut o).head, head);
        assert_eq!(Object::missing().call_bare("rgw", "lc_get_head"), Err(Errno::NOENT));
    }
}
