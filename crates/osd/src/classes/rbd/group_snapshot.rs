//! Snapshots of a group: one key each, and one that says in which order they were made.

use super::{MethodResult, decode_values, list_names};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::Name;
use wire::types::cls::rbd::{GROUP_SNAPSHOT_INCOMPLETE, GroupSnapshot};

const PREFIX: &str = "snapshot_";
const ORDER_PREFIX: &str = "snap_order_";
/// The highest order that was given, also when its snapshot is gone.
const MAX_ORDER: &str = "snap_max_order";

/// `EEXIST` for a name of another snapshot, and for a snapshot that is begun twice.
pub fn group_snap_set(call: &mut MethodCall<'_>) -> MethodResult {
    let snapshot: GroupSnapshot = call.argument()?;
    if snapshot.name.is_empty() || snapshot.id.is_empty() {
        return Err(Errno::INVAL.into());
    }
    for (_, value) in call.omap_scan(PREFIX)? {
        let other: GroupSnapshot = omap::stored(&value)?;
        if other.name == snapshot.name && other.id != snapshot.id {
            return Err(Errno::EXIST.into());
        }
    }
    let key = omap::key(PREFIX, &snapshot.id);
    if snapshot.state == GROUP_SNAPSHOT_INCOMPLETE {
        if call.omap_value(&key)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let order_key = omap::key(ORDER_PREFIX, &snapshot.id);
        if call.omap_value(&order_key)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let newest: u64 = call.omap_as(MAX_ORDER)?.unwrap_or(0);
        let order = newest.wrapping_add(1);
        call.set_omap(MAX_ORDER, &order)?;
        call.set_omap(order_key, &order)?;
    }
    call.set_omap(key, &snapshot)?;
    Ok(0)
}

pub fn group_snap_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let id: Name = call.argument()?;
    call.remove_omap_keys(&[omap::key(PREFIX, &id), omap::key(ORDER_PREFIX, &id)])?;
    Ok(0)
}

pub fn group_snap_get_by_id(call: &mut MethodCall<'_>) -> MethodResult {
    let id: Name = call.argument()?;
    let snapshot: GroupSnapshot = call.omap_must(omap::key(PREFIX, &id))?;
    call.finish_with(&snapshot)
}

/// By id; a client that wants their order asks for that too.
pub fn group_snap_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (GroupSnapshot, u64) = call.argument()?;
    let entries = list_names(call, PREFIX, &after.id, max)?;
    let snapshots = entries.iter().map(|(_, value)| omap::stored::<GroupSnapshot>(value));
    let snapshots = snapshots.collect::<Result<Vec<_>, MethodStop>>()?;
    call.finish_with(&snapshots)
}

pub fn group_snap_list_order(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let orders: Vec<(Bytes, u64)> = decode_values(list_names(call, ORDER_PREFIX, &after, max)?)?;
    call.finish_with(&orders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn snapshot(id: &str, name: &str, state: u8) -> GroupSnapshot {
        GroupSnapshot { id: id.into(), name: name.into(), state, snaps: Vec::new() }
    }

    #[test]
    fn snapshots_keep_the_order_of_their_beginning() {
        let mut o = Object::missing();
        o.call("rbd", "group_snap_set", &snapshot("z", "first", 0)).unwrap();
        o.call("rbd", "group_snap_set", &snapshot("a", "second", 0)).unwrap();
        assert_eq!(o.call("rbd", "group_snap_set", &snapshot("a", "second", 0)), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "group_snap_set", &snapshot("b", "first", 0)), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "group_snap_set", &snapshot("", "x", 0)), Err(Errno::INVAL));
        o.call("rbd", "group_snap_set", &snapshot("a", "second", 1)).unwrap();
        let order: Vec<(Name, u64)> =
            decode(&o.call("rbd", "group_snap_list_order", &(String::new(), 9u64)).unwrap());
        assert_eq!(order, [("a".into(), 2), ("z".into(), 1)]);
        let list: Vec<GroupSnapshot> =
            decode(&o.call("rbd", "group_snap_list", &(snapshot("a", "", 0), 9u64)).unwrap());
        assert_eq!(list, [snapshot("z", "first", 0)]);
        let id = "a".to_string();
        let got: GroupSnapshot = decode(&o.call("rbd", "group_snap_get_by_id", &id).unwrap());
        assert_eq!(got.state, 1);
        o.call("rbd", "group_snap_remove", &id).unwrap();
        assert_eq!(o.call("rbd", "group_snap_get_by_id", &id), Err(Errno::NOENT));
        assert_eq!(o.omap("snap_order_a"), None);
        o.call("rbd", "group_snap_set", &snapshot("b", "third", 0)).unwrap();
        let newest: u64 = decode(&o.omap("snap_order_b").unwrap());
        assert_eq!(newest, 3, "the order of a removed snapshot is not given again");
    }
}
