//! The parent of a clone.
//!
//! The header's `parent` names it, with the bytes that the head shares. Each snapshot has its own overlap. Releases
//! before Nautilus wrote the whole parent into each snapshot; that form is read, and never written.

use super::header::{self, DEEP_FLATTEN, LAYERING, require_feature, set_op_features};
use super::snapshot::{self, all_snapshots, stored_snapshot_if_any};
use super::{MethodResult, ignore_missing};
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use wire::types::Name;
use wire::types::cls::rbd::{NO_SNAP, Parent, ParentSpec, Snapshot};

pub(super) fn stored_parent(call: &mut MethodCall<'_>) -> Result<Option<Parent>, MethodStop> {
    call.omap_as("parent")
}

/// True if the image can have a parent; an image without the feature has none.
fn has_layering(call: &mut MethodCall<'_>) -> Result<bool, MethodStop> {
    match require_feature(call, LAYERING) {
        Ok(()) => Ok(true),
        Err(MethodStop::Failed(_)) => Ok(false),
        Err(stop) => Err(stop),
    }
}

/// Without namespaces: `EXDEV` where the parent is in one.
pub fn get_parent(call: &mut MethodCall<'_>) -> MethodResult {
    let snap: u64 = call.argument()?;
    call.must_exist()?;
    let mut parent = Parent::default();
    if has_layering(call)? {
        parent = stored_parent(call)?.unwrap_or_default();
        if !parent.namespace.is_empty() {
            return Err(Errno::XDEV.into());
        }
        if snap != NO_SNAP {
            let snapshot = stored_snapshot_if_any(call, snap)?.unwrap_or_default();
            parent = if snapshot.parent.exists() {
                snapshot.parent
            } else if snapshot.parent_overlap.is_some() {
                if !parent.exists() {
                    return Err(Errno::INVAL.into());
                }
                Parent { head_overlap: snapshot.parent_overlap, ..parent }
            } else {
                Parent::default()
            };
        }
    }
    let Parent { pool, image, snap, head_overlap, .. } = parent;
    call.finish_with(&((pool, image), (snap, head_overlap.unwrap_or(0))))
}

pub fn set_parent(call: &mut MethodCall<'_>) -> MethodResult {
    let ((pool, image), snap, overlap): ((i64, Name), u64, u64) = call.argument()?;
    let spec = ParentSpec { pool, namespace: Name::EMPTY, image, snap };
    attach(call, spec.with_overlap(overlap), false)
}

pub fn remove_parent(call: &mut MethodCall<'_>) -> MethodResult {
    detach(call, true)
}

pub fn parent_get(call: &mut MethodCall<'_>) -> MethodResult {
    call.must_exist()?;
    let mut parent = Parent::default();
    if has_layering(call)? {
        parent = match stored_parent(call)? {
            Some(parent) => parent,
            None => {
                let legacy = all_snapshots(call)?.into_iter().map(|s| s.parent).rfind(Parent::exists);
                legacy.unwrap_or_default()
            }
        };
    }
    call.finish_with(&parent.spec())
}

pub fn parent_overlap_get(call: &mut MethodCall<'_>) -> MethodResult {
    let snap: u64 = call.argument()?;
    let mut overlap = None;
    if has_layering(call)? {
        overlap = if snap == NO_SNAP {
            stored_parent(call)?.and_then(|parent| parent.head_overlap)
        } else {
            let Snapshot { parent_overlap, parent, .. } = snapshot::stored_snapshot(call, snap)?;
            parent_overlap.or(if parent.exists() { parent.head_overlap } else { None })
        };
    }
    call.finish_with(&overlap)
}

pub fn parent_attach(call: &mut MethodCall<'_>) -> MethodResult {
    let (spec, overlap, again) = call.parse(|r| {
        let (spec, overlap) = (r.get::<ParentSpec>()?, r.u64()?);
        Ok((spec, overlap, if r.is_empty() { false } else { r.bool()? }))
    })?;
    attach(call, spec.with_overlap(overlap), again)
}

pub fn parent_detach(call: &mut MethodCall<'_>) -> MethodResult {
    detach(call, false)
}

fn attach(call: &mut MethodCall<'_>, mut parent: Parent, again: bool) -> MethodResult {
    call.must_exist()?;
    require_feature(call, LAYERING)?;
    let wanted = parent.head_overlap.unwrap_or(0);
    if !parent.exists() || wanted == 0 {
        return Err(Errno::INVAL.into());
    }
    if let Some(present) = stored_parent(call)? {
        let is_same = present.clone().spec() == parent.clone().spec();
        if (present.head_overlap.is_some() || !is_same) && !again {
            return Err(Errno::EXIST.into());
        }
    }
    let size: u64 = call.omap_must("size")?;
    parent.head_overlap = Some(wanted.min(size));
    call.set_omap("parent", &parent)?;
    Ok(0)
}

/// Snapshots keep the parent unless the image has deep-flatten: then they let go of it too.
fn detach(call: &mut MethodCall<'_>, legacy: bool) -> MethodResult {
    call.must_exist()?;
    let features = call.omap_as::<u64>("features")?.unwrap_or(0);
    if features & LAYERING == 0 {
        return Err(Errno::NOEXEC.into());
    }
    let mut parent: Parent = call.omap_must("parent")?;
    if legacy && !parent.namespace.is_empty() {
        return Err(Errno::XDEV.into());
    }
    if parent.head_overlap.is_none() {
        return Err(Errno::NOENT.into());
    }
    let children: Vec<Snapshot> = all_snapshots(call)?.into_iter().filter(Snapshot::is_child).collect();
    let keep_for_snapshots = features & DEEP_FLATTEN == 0 && !children.is_empty();
    if keep_for_snapshots {
        parent.head_overlap = None;
        call.set_omap("parent", &parent)?;
        return Ok(0);
    }
    for child in children {
        let id = child.id;
        snapshot::write(call, id, Snapshot { parent: Parent::default(), parent_overlap: None, ..child })?;
    }
    ignore_missing(call.remove_omap_key("parent"))?;
    set_op_features(call, 0, header::OP_CLONE_CHILD)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn clone_of(pool: i64) -> Object {
        let mut o = Object::missing();
        o.call("rbd", "create", &((100u64, 22u8), (LAYERING, "p".to_string()))).unwrap();
        let spec = ParentSpec { pool, namespace: Name::EMPTY, image: "parent".into(), snap: 4 };
        o.call("rbd", "parent_attach", &(spec, 1000u64)).unwrap();
        o
    }

    fn overlap(o: &mut Object, snap: u64) -> Option<u64> {
        decode(&o.call("rbd", "parent_overlap_get", &snap).unwrap())
    }

    #[test]
    fn overlap_is_bounded_by_size_and_shrinks_with_it() {
        let mut o = clone_of(3);
        assert_eq!(overlap(&mut o, NO_SNAP), Some(100));
        o.call("rbd", "set_size", &40u64).unwrap();
        o.call("rbd", "set_size", &90u64).unwrap();
        assert_eq!(overlap(&mut o, NO_SNAP), Some(40));
        let spec: ParentSpec = decode(&o.call_bare("rbd", "parent_get").unwrap());
        assert_eq!((spec.pool, &spec.image[..], spec.snap), (3, &b"parent"[..], 4));
    }

    #[test]
    fn old_call_lets_go_of_parent_without_namespace() {
        let mut o = clone_of(3);
        o.call_bare("rbd", "remove_parent").unwrap();
        assert_eq!(o.omap("parent"), None);
        let spec = ParentSpec { pool: 3, namespace: "n".into(), image: "parent".into(), snap: 4 };
        o.call("rbd", "parent_attach", &(spec, 1000u64)).unwrap();
        assert_eq!(o.call_bare("rbd", "remove_parent"), Err(Errno::XDEV));
        assert_eq!(o.call("rbd", "get_parent", &NO_SNAP), Err(Errno::XDEV));
    }

    #[test]
    fn second_parent_is_refused() {
        let mut o = clone_of(3);
        let other = ((4i64, "parent".to_string()), 4u64, 10u64);
        assert_eq!(o.call("rbd", "set_parent", &other), Err(Errno::EXIST));
        let none = ((-1i64, "parent".to_string()), 4u64, 10u64);
        assert_eq!(o.call("rbd", "set_parent", &none), Err(Errno::INVAL));
        assert_eq!(Object::missing().call("rbd", "set_parent", &other), Err(Errno::NOENT));
    }

    #[test]
    fn flattened_head_leaves_parent_to_its_snapshots() {
        let mut o = clone_of(3);
        o.call("rbd", "snapshot_add", &("s".to_string(), 5u64)).unwrap();
        o.call_bare("rbd", "parent_detach").unwrap();
        assert_eq!((overlap(&mut o, NO_SNAP), overlap(&mut o, 5)), (None, Some(100)));
        assert_eq!(o.call_bare("rbd", "parent_detach"), Err(Errno::NOENT));
        let legacy = o.call("rbd", "get_parent", &5u64).unwrap();
        let ((pool, _), (_, shared)): ((i64, Name), (u64, u64)) = decode(&legacy);
        assert_eq!((pool, shared), (3, 100));
        o.call("rbd", "snapshot_remove", &5u64).unwrap();
        assert_eq!(o.omap("parent"), None, "nothing refers to it");
    }
}
