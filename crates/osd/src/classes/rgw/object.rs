//! Head objects: the conditions under which a gateway writes and removes them.

use super::{MethodCall, MethodResult, MethodStop};
use crate::classes::omap::Entry;
use crate::errno::Errno;
use wire::types::UTime;
use wire::types::cls::rgw::{CheckAttrsOp, CheckMtimeOp, RemoveObjectOp, StoreVersionOp};

/// No attributes without an object.
fn attrs(call: &mut MethodCall<'_>) -> Result<Vec<Entry>, MethodStop> {
    match call.attrs() {
        Err(MethodStop::Failed(Errno::NOENT)) => Ok(Vec::new()),
        other => other,
    }
}

/// Removes the object, and makes it anew with the attributes that are to be kept, if it has such.
pub fn obj_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let op: RemoveObjectOp = call.argument()?;
    call.must_exist()?;
    let attrs = if op.keep_attr_prefixes.is_empty() { Vec::new() } else { attrs(call)? };
    let is_kept = |entry: &&Entry| op.keep_attr_prefixes.iter().any(|prefix| entry.0.starts_with(prefix));
    let kept: Vec<&Entry> = attrs.iter().filter(is_kept).collect();
    call.remove()?;
    if !kept.is_empty() {
        call.create(false)?;
    }
    kept.into_iter().try_for_each(|(name, value)| call.set_attr(name, value))?;
    Ok(0)
}

/// Keeps the version of the PG's newest change in an attribute.
pub fn obj_store_pg_ver(call: &mut MethodCall<'_>) -> MethodResult {
    let op: StoreVersionOp = call.argument()?;
    let version = call.context.pg_user_version;
    call.set_attr(&op.attr, &version.to_le_bytes())?;
    Ok(0)
}

/// `ECANCELED` if there is an attribute with the prefix, or if there is none, as the argument says.
pub fn obj_check_attrs_prefix(call: &mut MethodCall<'_>) -> MethodResult {
    let op: CheckAttrsOp = call.argument()?;
    if op.prefix.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let has_any = attrs(call)?.iter().any(|(name, _)| name.starts_with(&op.prefix));
    if has_any == op.fail_if_exist { Err(Errno::CANCELED.into()) } else { Ok(0) }
}

/// `ECANCELED` if the object's time does not compare as the argument says. An object that is not there has time 0.
pub fn obj_check_mtime(call: &mut MethodCall<'_>) -> MethodResult {
    let op: CheckMtimeOp = call.argument()?;
    let cut = |time: UTime| if op.high_precision_time { time } else { UTime { nsec: 0, ..time } };
    let own = if call.exists() { cut(call.context.mtime) } else { UTime::ZERO };
    let asked = cut(op.mtime);
    let holds = match op.comparison {
        0 => own == asked,
        1 => own < asked,
        2 => own <= asked,
        3 => own > asked,
        4 => own >= asked,
        _ => return Err(Errno::INVAL.into()),
    };
    if holds { Ok(0) } else { Err(Errno::CANCELED.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::Object;

    fn object() -> Object {
        let mut o = Object::existing();
        o.put_data(b"data");
        for name in ["user.rgw.acl", "user.rgw.olh.1", "user.rgw.olh.2"] {
            o.put_attr(name, b"value");
        }
        o
    }

    #[test]
    fn removed_object_keeps_chosen_attributes() {
        let mut o = object();
        let keep = RemoveObjectOp { keep_attr_prefixes: vec!["user.rgw.olh".into()] };
        o.call("rgw", "obj_remove", &keep).unwrap();
        assert_eq!((o.data().len(), o.attr("user.rgw.acl")), (0, None));
        assert!(o.attr("user.rgw.olh.1").is_some() && o.attr("user.rgw.olh.2").is_some());
        let none = RemoveObjectOp { keep_attr_prefixes: vec!["x".into()] };
        o.call("rgw", "obj_remove", &none).unwrap();
        assert!(!o.exists());
        assert_eq!(o.call("rgw", "obj_remove", &RemoveObjectOp::default()), Err(Errno::NOENT));
        let mut o = object();
        o.call("rgw", "obj_remove", &RemoveObjectOp::default()).unwrap();
        assert!(!o.exists());
    }

    #[test]
    fn version_of_the_pg_is_kept() {
        let mut o = Object::existing();
        o.call("rgw", "obj_store_pg_ver", &StoreVersionOp { attr: "user.rgw.pg_ver".into() }).unwrap();
        assert_eq!(o.attr("user.rgw.pg_ver").unwrap()[..], 5u64.to_le_bytes());
    }

    #[test]
    fn attributes_are_a_condition() {
        let mut o = object();
        let check = |o: &mut Object, prefix: &str, fail_if_exist| {
            let op = CheckAttrsOp { prefix: prefix.into(), fail_if_exist };
            o.call("rgw", "obj_check_attrs_prefix", &op).map(|_| ())
        };
        assert_eq!(check(&mut o, "user.rgw.olh", false), Ok(()));
        assert_eq!(check(&mut o, "user.rgw.olh", true), Err(Errno::CANCELED));
        assert_eq!(check(&mut o, "user.rgw.x", false), Err(Errno::CANCELED));
        assert_eq!(check(&mut o, "", true), Err(Errno::INVAL));
        assert_eq!(check(&mut Object::missing(), "user", true), Ok(()));
    }

    #[test]
    fn time_is_a_condition() {
        let mut o = object();
        let holds = |o: &mut Object, nsec, high_precision_time| -> Vec<bool> {
            let check = |comparison| {
                let mtime = UTime { sec: 0, nsec };
                let op = CheckMtimeOp { mtime, comparison, high_precision_time };
                o.call("rgw", "obj_check_mtime", &op) == Ok(bytes::Bytes::new())
            };
            (0..5).map(check).collect()
        };
        assert_eq!(holds(&mut o, 9, false), [true, false, true, false, true]);
        assert_eq!(holds(&mut o, 9, true), [false, true, true, false, false]);
        let op = CheckMtimeOp { comparison: 5, ..CheckMtimeOp::default() };
        assert_eq!(o.call("rgw", "obj_check_mtime", &op), Err(Errno::INVAL));
    }
}
