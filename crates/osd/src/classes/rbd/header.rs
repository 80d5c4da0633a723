//! Basic properties of an image: size, features, flags, stripes, pools and times.

use super::MethodResult;
use super::snapshot::stored_snapshot;
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features};
use wire::types::cls::rbd::NO_SNAP;
use wire::types::{Name, UTime};

pub(super) const LAYERING: u64 = 1 << 0;
const STRIPING: u64 = 1 << 1;
const EXCLUSIVE_LOCK: u64 = 1 << 2;
const OBJECT_MAP: u64 = 1 << 3;
const FAST_DIFF: u64 = 1 << 4;
pub(super) const DEEP_FLATTEN: u64 = 1 << 5;
const JOURNALING: u64 = 1 << 6;
const DATA_POOL: u64 = 1 << 7;
pub(super) const OPERATIONS: u64 = 1 << 8;
pub(super) const MIGRATING: u64 = 1 << 9;
const NON_PRIMARY: u64 = 1 << 10;
const DIRTY_CACHE: u64 = 1 << 11;

/// Features that an image can have.
const ALL: u64 = (1 << 12) - 1;
/// A client that does not know one of these can neither read nor write the image.
const INCOMPATIBLE: u64 = LAYERING | STRIPING | DATA_POOL | DIRTY_CACHE;
/// Features that can be switched on and off.
const MUTABLE: u64 = EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
/// Features that only methods of this class set.
const INTERNAL: u64 = OPERATIONS | MIGRATING;

pub(super) const OP_CLONE_PARENT: u64 = 1 << 0;
pub(super) const OP_CLONE_CHILD: u64 = 1 << 1;
pub(super) const OP_GROUP: u64 = 1 << 2;
pub(super) const OP_SNAP_TRASH: u64 = 1 << 3;
const OP_ALL: u64 = OP_CLONE_PARENT | OP_CLONE_CHILD | OP_GROUP | OP_SNAP_TRASH;

/// `ENOEXEC` for an image without all of `wanted`, and for one of the old format.
pub(super) fn require_feature(call: &mut MethodCall<'_>, wanted: u64) -> Result<(), MethodStop> {
    match call.omap_as::<u64>("features")? {
        Some(features) if features & wanted == wanted => Ok(()),
        _ => Err(Errno::NOEXEC.into()),
    }
}

/// Sets those of the operation features that are in `mask`; the feature OPERATIONS says whether there are any.
pub(super) fn set_op_features(call: &mut MethodCall<'_>, wanted: u64, mask: u64) -> Result<(), MethodStop> {
    let features: u64 = call.omap_must("features")?;
    let before: u64 = call.omap_as("op_features")?.unwrap_or(0);
    let after = (before & !mask) | (wanted & mask);
    if after == before {
        return Ok(());
    }
    let new_features = if after == 0 {
        call.remove_omap_key("op_features")?;
        features & !OPERATIONS
    } else {
        call.set_omap("op_features", &after)?;
        features | OPERATIONS
    };
    if new_features != features {
        call.set_omap("features", &new_features)?;
    }
    Ok(())
}

pub fn get_all_features(call: &mut MethodCall<'_>) -> MethodResult {
    call.finish_with(&ALL)
}

pub fn create(call: &mut MethodCall<'_>) -> MethodResult {
    let (size, order, features, prefix, data_pool) = call.parse(|r| {
        let fields = (r.u64()?, r.u8()?, r.u64()?, r.get::<Name>()?);
        let data_pool = if r.is_empty() { -1 } else { r.i64()? };
        Ok((fields.0, fields.1, fields.2, fields.3, data_pool))
    })?;
    if features & !ALL != 0 {
        return Err(Errno::NOSYS.into());
    }
    if prefix.is_empty() {
        return Err(Errno::INVAL.into());
    }
    if call.omap_value(&Bytes::from_static(b"object_prefix"))?.is_some() {
        return Err(Errno::EXIST.into());
    }
    let has_data_pool = features & DATA_POOL != 0;
    if features & OPERATIONS != 0 || has_data_pool != (data_pool != -1) {
        return Err(Errno::INVAL.into());
    }
    let now = call.context.now.to_vec(Features::NONE);
    let mut entries = vec![
        ("size", size.to_vec(Features::NONE)),
        ("order", order.to_vec(Features::NONE)),
        ("features", features.to_vec(Features::NONE)),
        ("object_prefix", prefix.to_vec(Features::NONE)),
        ("snap_seq", 0u64.to_vec(Features::NONE)),
        ("create_timestamp", now.clone()),
        ("access_timestamp", now.clone()),
        ("modify_timestamp", now),
    ];
    if has_data_pool {
        entries.push(("data_pool_id", data_pool.to_vec(Features::NONE)));
    }
    let entries: Vec<_> = entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
    call.set_omap_values(&entries)?;
    Ok(0)
}

/// The features, and those of them that a client must know: to read, or to write.
pub fn get_features(call: &mut MethodCall<'_>) -> MethodResult {
    let read_only = call.parse(|r| {
        r.u64()?;
        if r.is_empty() { Ok(false) } else { r.bool() }
    })?;
    let features: u64 = call.omap_must("features")?;
    let mask = if read_only { INCOMPATIBLE } else { ALL };
    call.finish_with(&(features, features & mask))
}

pub fn set_features(call: &mut MethodCall<'_>) -> MethodResult {
    let (features, mask): (u64, u64) = call.argument()?;
    let before: u64 = call.omap_as("features")?.unwrap_or(0);
    if mask & INTERNAL != 0 {
        return Err(Errno::INVAL.into());
    }
    let mask = mask & ALL;
    let (enabled, disabled) = (features & mask, !features & mask);
    if enabled & !MUTABLE != 0 || disabled & !(MUTABLE | DEEP_FLATTEN) != 0 {
        return Err(Errno::INVAL.into());
    }
    call.set_omap("features", &((before & !mask) | enabled))?;
    Ok(0)
}

pub fn get_size(call: &mut MethodCall<'_>) -> MethodResult {
    let snap: u64 = call.argument()?;
    let order: u8 = call.omap_must("order")?;
    let size = match snap {
        NO_SNAP => call.omap_must("size")?,
        snap => stored_snapshot(call, snap)?.image_size,
    };
    call.finish_with(&(order, size))
}

/// An image that shrinks shares less with its parent.
pub fn set_size(call: &mut MethodCall<'_>) -> MethodResult {
    let size: u64 = call.argument()?;
    let before: u64 = call.omap_must("size")?;
    call.set_omap("size", &size)?;
    if size < before {
        let mut parent = super::parent::stored_parent(call)?.unwrap_or_default();
        if parent.exists() && parent.head_overlap.is_some_and(|overlap| overlap > size) {
            parent.head_overlap = Some(size);
            call.set_omap("parent", &parent)?;
        }
    }
    Ok(0)
}

pub fn get_stripe_unit_count(call: &mut MethodCall<'_>) -> MethodResult {
    call.must_exist()?;
    require_feature(call, STRIPING)?;
    let unit = match call.omap_as("stripe_unit")? {
        Some(unit) => unit,
        None => object_size(call.omap_as("order")?.ok_or(MethodStop::Failed(Errno::IO))?),
    };
    let count: u64 = call.omap_as("stripe_count")?.unwrap_or(1);
    call.finish_with(&(unit, count))
}

pub fn set_stripe_unit_count(call: &mut MethodCall<'_>) -> MethodResult {
    let (unit, count): (u64, u64) = call.argument()?;
    if unit == 0 || count == 0 {
        return Err(Errno::INVAL.into());
    }
    call.must_exist()?;
    require_feature(call, STRIPING)?;
    let object_size = object_size(call.omap_must("order")?);
    if unit > object_size || !object_size.is_multiple_of(unit) {
        return Err(Errno::INVAL.into());
    }
    call.set_omap("stripe_unit", &unit)?;
    call.set_omap("stripe_count", &count)?;
    Ok(0)
}

/// Bytes; 0 for an order that no size has.
fn object_size(order: u8) -> u64 {
    1u64.checked_shl(order.into()).unwrap_or(0)
}

pub fn get_create_timestamp(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_time(call, "create_timestamp")
}

pub fn get_access_timestamp(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_time(call, "access_timestamp")
}

pub fn get_modify_timestamp(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_time(call, "modify_timestamp")
}

/// Zero where the image has none.
fn finish_with_time(call: &mut MethodCall<'_>, key: &str) -> MethodResult {
    let time = call.omap_as(key)?.unwrap_or(UTime::ZERO);
    call.finish_with(&time)
}

pub fn set_access_timestamp(call: &mut MethodCall<'_>) -> MethodResult {
    set_time(call, "access_timestamp")
}

pub fn set_modify_timestamp(call: &mut MethodCall<'_>) -> MethodResult {
    set_time(call, "modify_timestamp")
}

fn set_time(call: &mut MethodCall<'_>, key: &str) -> MethodResult {
    call.must_exist()?;
    let now = call.context.now;
    call.set_omap(key, &now)?;
    Ok(0)
}

pub fn get_flags(call: &mut MethodCall<'_>) -> MethodResult {
    let flags = match call.argument()? {
        NO_SNAP => call.omap_as("flags")?.unwrap_or(0),
        snap => stored_snapshot(call, snap)?.flags,
    };
    call.finish_with(&flags)
}

pub fn set_flags(call: &mut MethodCall<'_>) -> MethodResult {
    let (wanted, mask, snap) = call.parse(|r| {
        let (flags, mask) = (r.u64()?, r.u64()?);
        Ok((flags, mask, if r.is_empty() { NO_SNAP } else { r.u64()? }))
    })?;
    let merged = |before: u64| (before & !mask) | (wanted & mask);
    if snap == NO_SNAP {
        let before = call.omap_as("flags")?.unwrap_or(0);
        call.set_omap("flags", &merged(before))?;
    } else {
        let mut snapshot = stored_snapshot(call, snap)?;
        snapshot.flags = merged(snapshot.flags);
        super::snapshot::write(call, snap, snapshot)?;
    }
    Ok(0)
}

pub fn op_features_get(call: &mut MethodCall<'_>) -> MethodResult {
    let features: u64 = call.omap_as("op_features")?.unwrap_or(0);
    call.finish_with(&features)
}

pub fn op_features_set(call: &mut MethodCall<'_>) -> MethodResult {
    let (features, mask): (u64, u64) = call.argument()?;
    if mask & !OP_ALL != 0 {
        return Err(Errno::INVAL.into());
    }
    set_op_features(call, features, mask)?;
    Ok(0)
}

pub fn get_object_prefix(call: &mut MethodCall<'_>) -> MethodResult {
    let prefix: Name = call.omap_must("object_prefix")?;
    call.finish_with(&prefix)
}

/// -1 for an image whose data is in its own pool.
pub fn get_data_pool(call: &mut MethodCall<'_>) -> MethodResult {
    let pool: i64 = call.omap_as("data_pool_id")?.unwrap_or(-1);
    call.finish_with(&pool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn create(features: u64) -> Object {
        let mut o = Object::missing();
        let arguments = ((10u64 << 20, 22u8), (features, "foo".to_string()));
        o.call("rbd", "create", &arguments).unwrap();
        o
    }

    #[test]
    fn creation_writes_stock_keys_and_refuses_second() {
        let mut o = create(LAYERING);
        assert_eq!(o.omap("size").unwrap(), (10u64 << 20).to_le_bytes()[..]);
        assert_eq!(o.omap("order").unwrap(), [22][..]);
        assert_eq!(o.omap("object_prefix").unwrap(), b"\x03\0\0\0foo"[..]);
        assert_eq!(o.omap("snap_seq").unwrap(), [0; 8][..]);
        assert_eq!(decode::<Name>(&o.call_bare("rbd", "get_object_prefix").unwrap()), "foo");
        assert_eq!(decode::<u64>(&o.call_bare("rbd", "get_all_features").unwrap()), 0xfff);
        assert_eq!(o.omap("create_timestamp"), o.omap("modify_timestamp"));
        let again = ((0u64, 22u8), (0u64, "foo".to_string()));
        assert_eq!(o.call("rbd", "create", &again), Err(Errno::EXIST));
        for (features, prefix, errno) in [
            (1 << 12, "p", Errno::NOSYS),
            (0, "", Errno::INVAL),
            (OPERATIONS, "p", Errno::INVAL),
            (DATA_POOL, "p", Errno::INVAL),
        ] {
            let arguments = ((0u64, 22u8), (features, prefix.to_string()));
            assert_eq!(
                Object::missing().call("rbd", "create", &arguments),
                Err(errno),
                "{features:x} {prefix}"
            );
        }
    }

    #[test]
    fn data_pool_needs_its_feature() {
        let mut o = Object::missing();
        let arguments = ((0u64, 22u8), (DATA_POOL, "p".to_string()), 7i64);
        o.call("rbd", "create", &arguments).unwrap();
        assert_eq!(decode::<i64>(&o.call_bare("rbd", "get_data_pool").unwrap()), 7);
        assert_eq!(decode::<i64>(&create(0).call_bare("rbd", "get_data_pool").unwrap()), -1);
        let without = ((0u64, 22u8), (0u64, "p".to_string()), 7i64);
        assert_eq!(Object::missing().call("rbd", "create", &without), Err(Errno::INVAL));
    }

    #[test]
    fn features_change_only_where_mutable() {
        let mut o = create(LAYERING | DEEP_FLATTEN);
        o.call("rbd", "set_features", &(OBJECT_MAP, OBJECT_MAP)).unwrap();
        o.call("rbd", "set_features", &(0u64, DEEP_FLATTEN)).unwrap();
        let got: (u64, u64) = decode(&o.call("rbd", "get_features", &(NO_SNAP, true)).unwrap());
        assert_eq!(got, (LAYERING | OBJECT_MAP, LAYERING));
        for (features, mask) in [(DEEP_FLATTEN, DEEP_FLATTEN), (0, LAYERING), (OPERATIONS, OPERATIONS)] {
            assert_eq!(o.call("rbd", "set_features", &(features, mask)), Err(Errno::INVAL));
        }
    }

    #[test]
    fn operation_features_show_in_features() {
        let mut o = create(LAYERING);
        o.call("rbd", "op_features_set", &(OP_GROUP, OP_GROUP)).unwrap();
        let (features, _): (u64, u64) = decode(&o.call("rbd", "get_features", &NO_SNAP).unwrap());
        assert_eq!(features, LAYERING | OPERATIONS);
        o.call("rbd", "op_features_set", &(0u64, OP_GROUP)).unwrap();
        assert_eq!(o.omap("op_features"), None);
        assert_eq!(o.omap("features").unwrap(), LAYERING.to_le_bytes()[..]);
        assert_eq!(o.call("rbd", "op_features_set", &(16u64, 16u64)), Err(Errno::INVAL));
    }

    #[test]
    fn stripes_divide_the_object() {
        let mut o = create(STRIPING);
        assert_eq!(decode::<(u64, u64)>(&o.call_bare("rbd", "get_stripe_unit_count").unwrap()), (4 << 20, 1));
        o.call("rbd", "set_stripe_unit_count", &(1u64 << 20, 8u64)).unwrap();
        assert_eq!(decode::<(u64, u64)>(&o.call_bare("rbd", "get_stripe_unit_count").unwrap()), (1 << 20, 8));
        for (unit, count) in [(0u64, 1u64), (1, 0), (3, 1), (8 << 20, 1)] {
            assert_eq!(o.call("rbd", "set_stripe_unit_count", &(unit, count)), Err(Errno::INVAL));
        }
        assert_eq!(create(0).call_bare("rbd", "get_stripe_unit_count"), Err(Errno::NOEXEC));
        assert_eq!(Object::missing().call_bare("rbd", "get_stripe_unit_count"), Err(Errno::NOENT));
    }

    #[test]
    fn times_are_set_by_the_clock() {
        let mut o = create(0);
        o.now.sec += 9;
        o.call_bare("rbd", "set_access_timestamp").unwrap();
        assert_eq!(decode::<UTime>(&o.call_bare("rbd", "get_access_timestamp").unwrap()), o.now);
        assert_ne!(decode::<UTime>(&o.call_bare("rbd", "get_modify_timestamp").unwrap()), o.now);
        o.call_bare("rbd", "set_modify_timestamp").unwrap();
        assert_eq!(decode::<UTime>(&o.call_bare("rbd", "get_modify_timestamp").unwrap()), o.now);
        assert_eq!(Object::missing().call_bare("rbd", "set_modify_timestamp"), Err(Errno::NOENT));
        assert_eq!(
            decode::<UTime>(&Object::existing().call_bare("rbd", "get_create_timestamp").unwrap()),
            UTime::ZERO
        );
    }
}
