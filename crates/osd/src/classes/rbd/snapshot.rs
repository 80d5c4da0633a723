//! Snapshots of an image: one key each, `snapshot_` and the id in sixteen hexadecimal digits.

use super::header::{OP_CLONE_CHILD, OP_SNAP_TRASH, set_op_features};
use super::parent::stored_parent;
use super::{MethodResult, ignore_missing, new_uuid, old_format};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use wire::types::Name;
use wire::types::cls::rbd::{NO_SNAP, Parent, Snapshot, SnapshotInfo, SnapshotNamespace};

const PREFIX: &str = "snapshot_";
/// Greatest id of a snapshot (`CEPH_MAXSNAP`).
const ID_MAX: u64 = u64::MAX - 3;

fn snapshot_key(id: u64) -> String {
    format!("{PREFIX}{id:016x}")
}

pub(super) fn stored_snapshot(call: &mut MethodCall<'_>, id: u64) -> Result<Snapshot, MethodStop> {
    call.omap_must(snapshot_key(id))
}

pub(super) fn stored_snapshot_if_any(
    call: &mut MethodCall<'_>,
    id: u64,
) -> Result<Option<Snapshot>, MethodStop> {
    call.omap_as(snapshot_key(id))
}

/// All snapshots, by id ascending.
pub(super) fn all_snapshots(call: &mut MethodCall<'_>) -> Result<Vec<Snapshot>, MethodStop> {
    call.omap_scan(PREFIX)?.iter().map(|(_, value)| omap::stored(value)).collect()
}

/// Writes a snapshot. A parent in the form before Nautilus moves to the header; the snapshot keeps its overlap.
pub(super) fn write(call: &mut MethodCall<'_>, id: u64, mut snapshot: Snapshot) -> Result<(), MethodStop> {
    if snapshot.parent.exists() {
        let head = stored_parent(call)?;
        let overlap = snapshot.parent.head_overlap;
        let parent = std::mem::take(&mut snapshot.parent);
        if !head.is_some_and(|head| head.exists()) {
            call.set_omap("parent", &Parent { head_overlap: None, ..parent })?;
        }
        snapshot.parent_overlap = overlap;
    }
    call.set_omap(snapshot_key(id), &snapshot)
}

/// `snap_seq`, and the ids of all snapshots, descending.
pub fn get_snapcontext(call: &mut MethodCall<'_>) -> MethodResult {
    let keys = call.omap_scan_keys(PREFIX)?;
    let id = |key: &bytes::Bytes| {
        let digits = std::str::from_utf8(omap::name_of(PREFIX, key)).unwrap_or("");
        u64::from_str_radix(digits, 16).unwrap_or(0)
    };
    let ids: Vec<u64> = keys.iter().rev().map(id).collect();
    let seq: u64 = call.omap_must("snap_seq")?;
    call.finish_with(&(seq, ids))
}

/// The snapshot that the argument names; `EINVAL` for the head.
fn named_snapshot(call: &mut MethodCall<'_>) -> Result<Snapshot, MethodStop> {
    match call.argument()? {
        NO_SNAP => Err(Errno::INVAL.into()),
        id => stored_snapshot(call, id),
    }
}

pub fn get_snapshot_name(call: &mut MethodCall<'_>) -> MethodResult {
    let snapshot = named_snapshot(call)?;
    call.finish_with(&snapshot.name)
}

pub fn get_snapshot_timestamp(call: &mut MethodCall<'_>) -> MethodResult {
    let snapshot = named_snapshot(call)?;
    call.finish_with(&snapshot.timestamp)
}

pub fn snapshot_get(call: &mut MethodCall<'_>) -> MethodResult {
    let snapshot = named_snapshot(call)?;
    call.finish_with(&SnapshotInfo::from(snapshot))
}

/// `ESTALE` for an id below the newest, `EEXIST` for a name or id in use, `EDQUOT` beyond the image's limit.
pub fn snapshot_add(call: &mut MethodCall<'_>) -> MethodResult {
    let (name, id, namespace) = call.parse(|r| {
        let (name, id) = (r.get::<Name>()?, r.u64()?);
        Ok((name, id, if r.is_empty() { SnapshotNamespace::User } else { r.get()? }))
    })?;
    if namespace == SnapshotNamespace::Unknown || id > ID_MAX {
        return Err(Errno::INVAL.into());
    }
    if id < call.omap_must::<u64>("snap_seq")? {
        return Err(Errno::STALE.into());
    }
    let image_size = call.omap_must("size")?;
    let flags = call.omap_as("flags")?.unwrap_or(0);
    let limit: u64 = call.omap_as("snap_limit")?.unwrap_or(u64::MAX);
    for (count, other) in (1..).zip(all_snapshots(call)?) {
        if count >= limit {
            return Err(Errno::DQUOT.into());
        }
        if other.id == id || (other.name == name && other.namespace.is_same(&namespace)) {
            return Err(Errno::EXIST.into());
        }
    }
    let parent = stored_parent(call)?.unwrap_or_default();
    if namespace.is_trash() {
        set_op_features(call, OP_SNAP_TRASH, OP_SNAP_TRASH)?;
    }
    call.set_omap("snap_seq", &id)?;
    let timestamp = call.context.now;
    let snapshot =
        Snapshot { id, name, namespace, image_size, flags, timestamp, parent, ..Snapshot::default() };
    write(call, id, snapshot)?;
    Ok(0)
}

/// Only a user's snapshot can be renamed, and not to a name in use.
pub fn snapshot_rename(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, name): (u64, Name) = call.argument()?;
    let is_user = |s: &Snapshot| s.namespace == SnapshotNamespace::User;
    if all_snapshots(call)?.iter().any(|s| is_user(s) && s.name == name) {
        return Err(Errno::EXIST.into());
    }
    let snapshot = stored_snapshot(call, id)?;
    if !is_user(&snapshot) {
        return Err(Errno::INVAL.into());
    }
    write(call, id, Snapshot { name, ..snapshot })?;
    Ok(0)
}

/// `EBUSY` for a snapshot that is protected or has clones.
pub fn snapshot_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let id: u64 = call.argument()?;
    let snapshot = stored_snapshot(call, id)?;
    if snapshot.protection_status != Snapshot::UNPROTECTED || snapshot.child_count > 0 {
        return Err(Errno::BUSY.into());
    }
    ignore_missing(call.remove_omap_key(snapshot_key(id)))?;
    let mut others = all_snapshots(call)?;
    others.retain(|s| s.id != id);
    let has_children = others.iter().any(Snapshot::is_child);
    let parent = stored_parent(call)?.filter(Parent::exists);
    let head_is_child = parent.as_ref().is_some_and(|p| p.head_overlap.is_some());
    if parent.is_some() && !head_is_child && !has_children {
        ignore_missing(call.remove_omap_key("parent"))?;
    }
    let mut unused = 0;
    if !has_children && !head_is_child {
        unused |= OP_CLONE_CHILD;
    }
    if !others.iter().any(|s| s.namespace.is_trash()) {
        unused |= OP_SNAP_TRASH;
    }
    if unused != 0 {
        set_op_features(call, 0, unused)?;
    }
    Ok(0)
}

/// Gives the snapshot a random name in the trash's namespace.
pub fn snapshot_trash_add(call: &mut MethodCall<'_>) -> MethodResult {
    let id: u64 = call.argument()?;
    let snapshot = stored_snapshot(call, id)?;
    if snapshot.protection_status != Snapshot::UNPROTECTED {
        return Err(Errno::BUSY.into());
    }
    if snapshot.namespace.is_trash() {
        return Err(Errno::EXIST.into());
    }
    set_op_features(call, OP_SNAP_TRASH, OP_SNAP_TRASH)?;
    let original_type = snapshot.namespace.type_number();
    let namespace = SnapshotNamespace::Trash { original_name: snapshot.name.clone(), original_type };
    let name = new_uuid(call);
    write(call, id, Snapshot { name, namespace, ..snapshot })?;
    Ok(0)
}

pub fn get_protection_status(call: &mut MethodCall<'_>) -> MethodResult {
    let id: u64 = call.argument()?;
    call.must_exist()?;
    if id == NO_SNAP {
        return Err(Errno::INVAL.into());
    }
    let status = stored_snapshot(call, id)?.protection_status;
    if status >= Snapshot::PROTECTION_STATUS_END {
        return Err(Errno::IO.into());
    }
    call.finish_with(&status)
}

pub fn set_protection_status(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, protection_status): (u64, u8) = call.argument()?;
    call.must_exist()?;
    super::header::require_feature(call, super::header::LAYERING)?;
    if id == NO_SNAP || protection_status >= Snapshot::PROTECTION_STATUS_END {
        return Err(Errno::INVAL.into());
    }
    let snapshot = stored_snapshot(call, id)?;
    write(call, id, Snapshot { protection_status, ..snapshot })?;
    Ok(0)
}

pub fn snapshot_get_limit(call: &mut MethodCall<'_>) -> MethodResult {
    let limit: u64 = call.omap_as("snap_limit")?.unwrap_or(u64::MAX);
    call.finish_with(&limit)
}

/// `ERANGE` below the number of snapshots. All ones removes the limit.
pub fn snapshot_set_limit(call: &mut MethodCall<'_>) -> MethodResult {
    let limit: u64 = call.argument()?;
    if limit == u64::MAX {
        call.remove_omap_key("snap_limit")?;
        return Ok(0);
    }
    let count = match old_format::snapshot_count(call)? {
        Some(count) => count,
        None => call.omap_scan_keys(PREFIX)?.len() as u64,
    };
    if limit < count {
        return Err(Errno::RANGE.into());
    }
    call.set_omap("snap_limit", &limit)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn image() -> Object {
        let mut o = Object::missing();
        o.call("rbd", "create", &((100u64, 22u8), (1u64, "p".to_string()))).unwrap();
        o
    }

    fn add(o: &mut Object, name: &str, id: u64) -> Result<bytes::Bytes, Errno> {
        o.call("rbd", "snapshot_add", &(name.to_string(), id))
    }

    fn info(o: &mut Object, id: u64) -> SnapshotInfo {
        decode(&o.call("rbd", "snapshot_get", &id).unwrap())
    }

    #[test]
    fn context_lists_ids_descending() {
        let mut o = image();
        add(&mut o, "a", 9).unwrap();
        add(&mut o, "b", 16).unwrap();
        assert!(o.omap("snapshot_0000000000000010").is_some());
        assert_eq!(decode::<Name>(&o.call("rbd", "get_snapshot_name", &9u64).unwrap()), "a");
        let time = o.call("rbd", "get_snapshot_timestamp", &9u64).unwrap();
        assert_eq!(decode::<wire::types::UTime>(&time), o.now);
        assert_eq!(o.call("rbd", "get_snapshot_name", &NO_SNAP), Err(Errno::INVAL));
        let got: (u64, Vec<u64>) = decode(&o.call_bare("rbd", "get_snapcontext").unwrap());
        assert_eq!(got, (16, vec![16, 9]));
        assert_eq!(add(&mut o, "c", 10), Err(Errno::STALE));
        assert_eq!(add(&mut o, "b", 17), Err(Errno::EXIST));
        assert_eq!(add(&mut o, "c", 16), Err(Errno::EXIST));
        assert_eq!(add(&mut o, "c", NO_SNAP), Err(Errno::INVAL));
    }

    #[test]
    fn renaming_refuses_names_in_use_and_foreign_snapshots() {
        let mut o = image();
        add(&mut o, "a", 1).unwrap();
        let group = SnapshotNamespace::Group { pool: 1, group: "g".into(), group_snapshot: "s".into() };
        o.call("rbd", "snapshot_add", &("b".to_string(), 2u64, group)).unwrap();
        o.call("rbd", "snapshot_rename", &(1u64, "b".to_string())).unwrap();
        assert_eq!(info(&mut o, 1).name, "b");
        assert_eq!(o.call("rbd", "snapshot_rename", &(1u64, "b".to_string())), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "snapshot_rename", &(2u64, "c".to_string())), Err(Errno::INVAL));
        assert_eq!(o.call("rbd", "snapshot_rename", &(3u64, "c".to_string())), Err(Errno::NOENT));
    }

    #[test]
    fn protected_snapshot_stays() {
        let mut o = image();
        add(&mut o, "a", 1).unwrap();
        o.call("rbd", "set_protection_status", &(1u64, 2u8)).unwrap();
        assert_eq!(decode::<u8>(&o.call("rbd", "get_protection_status", &1u64).unwrap()), 2);
        assert_eq!(o.call("rbd", "snapshot_remove", &1u64), Err(Errno::BUSY));
        assert_eq!(o.call("rbd", "snapshot_trash_add", &1u64), Err(Errno::BUSY));
        assert_eq!(o.call("rbd", "set_protection_status", &(1u64, 3u8)), Err(Errno::INVAL));
        o.call("rbd", "set_protection_status", &(1u64, 0u8)).unwrap();
        o.call("rbd", "snapshot_remove", &1u64).unwrap();
        assert_eq!(o.call("rbd", "snapshot_remove", &1u64), Err(Errno::NOENT));
    }

    #[test]
    fn trashed_snapshot_keeps_its_name_in_the_namespace() {
        let mut o = image();
        add(&mut o, "a", 1).unwrap();
        o.call("rbd", "snapshot_trash_add", &1u64).unwrap();
        let trashed = info(&mut o, 1);
        let namespace = SnapshotNamespace::Trash { original_name: "a".into(), original_type: 0 };
        assert_eq!((trashed.namespace, trashed.name.len()), (namespace, 36));
        assert_eq!(o.call("rbd", "snapshot_trash_add", &1u64), Err(Errno::EXIST));
        assert_eq!(decode::<u64>(&o.call_bare("rbd", "op_features_get").unwrap()), OP_SNAP_TRASH);
        add(&mut o, "a", 2).unwrap();
        o.call("rbd", "snapshot_remove", &1u64).unwrap();
        assert_eq!(decode::<u64>(&o.call_bare("rbd", "op_features_get").unwrap()), 0);
    }

    #[test]
    fn limit_counts_snapshots() {
        let mut o = image();
        for id in 1..=3 {
            add(&mut o, &id.to_string(), id).unwrap();
        }
        assert_eq!(o.call("rbd", "snapshot_set_limit", &2u64), Err(Errno::RANGE));
        o.call("rbd", "snapshot_set_limit", &3u64).unwrap();
        assert_eq!(add(&mut o, "4", 4), Err(Errno::DQUOT));
        o.call("rbd", "snapshot_set_limit", &u64::MAX).unwrap();
        assert_eq!(decode::<u64>(&o.call_bare("rbd", "snapshot_get_limit").unwrap()), u64::MAX);
        add(&mut o, "4", 4).unwrap();
    }

    #[test]
    fn snapshot_flags_and_size_are_its_own() {
        let mut o = image();
        add(&mut o, "a", 1).unwrap();
        o.call("rbd", "set_size", &50u64).unwrap();
        o.call("rbd", "set_flags", &(1u64, 1u64, 1u64)).unwrap();
        assert_eq!(decode::<(u8, u64)>(&o.call("rbd", "get_size", &1u64).unwrap()), (22, 100));
        assert_eq!(decode::<(u8, u64)>(&o.call("rbd", "get_size", &NO_SNAP).unwrap()), (22, 50));
        assert_eq!(decode::<u64>(&o.call("rbd", "get_flags", &1u64).unwrap()), 1);
        assert_eq!(decode::<u64>(&o.call("rbd", "get_flags", &NO_SNAP).unwrap()), 0);
        assert_eq!(o.call("rbd", "get_flags", &7u64), Err(Errno::NOENT));
    }
}
