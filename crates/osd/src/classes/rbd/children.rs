//! Clones of an image's snapshots: the pool's table of clones v1, and the header's lists of clones v2.

use super::header::{OP_CLONE_PARENT, set_op_features};
use super::snapshot::{self, all_snapshots, stored_snapshot};
use super::{MethodResult, ignore_missing};
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use codec::{Decode, DecodeError, Encode, Features, Reader};
use std::collections::BTreeSet;
use wire::types::Name;
use wire::types::cls::rbd::ChildSpec;

/// Snapshot of a parent, as the key of `rbd_children`.
struct ParentKey(u64, Name, u64);

impl Decode for ParentKey {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(ParentKey(r.u64()?, r.get()?, r.u64()?))
    }
}

impl ParentKey {
    fn bytes(&self) -> Vec<u8> {
        (self.0, &self.1, self.2).to_vec(Features::NONE)
    }
}

pub fn add_child(call: &mut MethodCall<'_>) -> MethodResult {
    let (parent, child): (ParentKey, Name) = call.argument()?;
    let mut children: BTreeSet<Name> = call.omap_as(parent.bytes())?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EXIST.into());
    }
    call.set_omap(parent.bytes(), &children)?;
    Ok(0)
}

pub fn remove_child(call: &mut MethodCall<'_>) -> MethodResult {
    let (parent, child): (ParentKey, Name) = call.argument()?;
    let mut children: BTreeSet<Name> = call.omap_must(parent.bytes())?;
    if !children.remove(&child) {
        return Err(Errno::NOENT.into());
    }
    match children.is_empty() {
        true => call.remove_omap_key(parent.bytes())?,
        false => call.set_omap(parent.bytes(), &children)?,
    }
    Ok(0)
}

pub fn get_children(call: &mut MethodCall<'_>) -> MethodResult {
    let parent: ParentKey = call.argument()?;
    let children: BTreeSet<Name> = call.omap_must(parent.bytes())?;
    call.finish_with(&children)
}

fn children_key(snap: u64) -> String {
    format!("snap_children_{snap:016x}")
}

fn stored_children(call: &mut MethodCall<'_>, snap: u64) -> Result<BTreeSet<ChildSpec>, MethodStop> {
    Ok(call.omap_as(children_key(snap))?.unwrap_or_default())
}

pub fn child_attach(call: &mut MethodCall<'_>) -> MethodResult {
    let (snap, child): (u64, ChildSpec) = call.argument()?;
    let mut snapshot = stored_snapshot(call, snap)?;
    if snapshot.namespace.is_trash() {
        return Err(Errno::NOENT.into());
    }
    let mut children = stored_children(call, snap)?;
    if !children.insert(child) {
        return Err(Errno::EXIST.into());
    }
    call.set_omap(children_key(snap), &children)?;
    snapshot.child_count = snapshot.child_count.wrapping_add(1);
    snapshot::write(call, snap, snapshot)?;
    set_op_features(call, OP_CLONE_PARENT, OP_CLONE_PARENT)?;
    Ok(0)
}

pub fn child_detach(call: &mut MethodCall<'_>) -> MethodResult {
    let (snap, child): (u64, ChildSpec) = call.argument()?;
    let mut snapshot = stored_snapshot(call, snap)?;
    let mut children = stored_children(call, snap)?;
    if snapshot.child_count as usize != children.len() {
        return Err(Errno::INVAL.into());
    }
    if !children.remove(&child) {
        return Err(Errno::NOENT.into());
    }
    match children.is_empty() {
        true => ignore_missing(call.remove_omap_key(children_key(snap)))?,
        false => call.set_omap(children_key(snap), &children)?,
    }
    snapshot.child_count -= 1;
    let is_last = snapshot.child_count == 0;
    snapshot::write(call, snap, snapshot)?;
    if is_last && !all_snapshots(call)?.iter().any(|s| s.id != snap && s.child_count > 0) {
        set_op_features(call, 0, OP_CLONE_PARENT)?;
    }
    Ok(0)
}

pub fn children_list(call: &mut MethodCall<'_>) -> MethodResult {
    let snap: u64 = call.argument()?;
    stored_snapshot(call, snap)?;
    let children: BTreeSet<ChildSpec> = call.omap_must(children_key(snap))?;
    call.finish_with(&children)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    #[test]
    fn clones_v1_are_listed_by_parent() {
        let mut o = Object::existing();
        let with = |child: &str| ((1u64, "parent".to_string(), 5u64), child.to_string());
        o.call("rbd", "add_child", &with("b")).unwrap();
        o.call("rbd", "add_child", &with("a")).unwrap();
        assert_eq!(o.call("rbd", "add_child", &with("a")), Err(Errno::EXIST));
        let parent = (1u64, "parent".to_string(), 5u64);
        let got: BTreeSet<Name> = decode(&o.call("rbd", "get_children", &parent).unwrap());
        assert_eq!(got.len(), 2);
        o.call("rbd", "remove_child", &with("a")).unwrap();
        assert_eq!(o.call("rbd", "remove_child", &with("a")), Err(Errno::NOENT));
        o.call("rbd", "remove_child", &with("b")).unwrap();
        assert_eq!(o.call("rbd", "get_children", &parent), Err(Errno::NOENT));
    }

    #[test]
    fn clones_v2_count_in_their_snapshot() {
        let mut o = Object::missing();
        o.call("rbd", "create", &((100u64, 22u8), (1u64, "p".to_string()))).unwrap();
        o.call("rbd", "snapshot_add", &("s".to_string(), 5u64)).unwrap();
        let child = ChildSpec { pool: 2, namespace: "n".into(), image: "i".into() };
        o.call("rbd", "child_attach", &(5u64, child.clone())).unwrap();
        assert_eq!(o.call("rbd", "child_attach", &(5u64, child.clone())), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "snapshot_remove", &5u64), Err(Errno::BUSY));
        let got: BTreeSet<ChildSpec> = decode(&o.call("rbd", "children_list", &5u64).unwrap());
        assert_eq!(got, BTreeSet::from([child.clone()]));
        assert_eq!(decode::<u64>(&o.call_bare("rbd", "op_features_get").unwrap()), OP_CLONE_PARENT);
        o.call("rbd", "child_detach", &(5u64, child.clone())).unwrap();
        assert_eq!(o.call("rbd", "child_detach", &(5u64, child)), Err(Errno::NOENT));
        assert_eq!(o.call("rbd", "children_list", &5u64), Err(Errno::NOENT));
        assert_eq!(decode::<u64>(&o.call_bare("rbd", "op_features_get").unwrap()), 0);
        o.call("rbd", "snapshot_remove", &5u64).unwrap();
    }
}
