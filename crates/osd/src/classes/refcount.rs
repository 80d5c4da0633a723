//! Tagged references to an object: the last one that is put removes it.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use codec::{Encode, Features};
use wire::types::Name;
use wire::types::cls::refcount::{ReadOp, ReadReply, Refcount, SetOp, TagOp};

const ATTR: &str = "refcount";
/// Tag of an implicit reference.
const WILDCARD_TAG: Name = Name::EMPTY;

fn stored(call: &mut MethodCall<'_>, implicit_ref: bool) -> Result<Refcount, MethodStop> {
    match call.attr_as(ATTR) {
        Err(MethodStop::Failed(Errno::NODATA)) => {
            let mut none = Refcount::default();
            if implicit_ref {
                none.refs.insert(WILDCARD_TAG, true);
            }
            Ok(none)
        }
        other => other,
    }
}

fn store(call: &mut MethodCall<'_>, count: &Refcount) -> Result<(), MethodStop> {
    call.set_attr(ATTR, &count.to_vec(Features::NONE))
}

pub(super) fn get(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: TagOp = call.argument()?;
    let mut count = stored(call, op.implicit_ref)?;
    count.refs.insert(op.tag, true);
    store(call, &count)?;
    Ok(0)
}

pub(super) fn put(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: TagOp = call.argument()?;
    let mut count = stored(call, op.implicit_ref)?;
    if count.refs.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let held = if count.refs.contains_key(&op.tag) {
        &op.tag
    } else if op.implicit_ref && count.refs.contains_key(&WILDCARD_TAG) {
        &WILDCARD_TAG
    } else {
        return Ok(0);
    };
    if count.retired_refs.contains(&op.tag) {
        return Ok(0);
    }
    count.refs.remove(held);
    if count.refs.is_empty() {
        call.remove()?;
        return Ok(0);
    }
    count.retired_refs.insert(op.tag);
    store(call, &count)?;
    Ok(0)
}

pub(super) fn set(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: SetOp = call.argument()?;
    if op.refs.is_empty() {
        call.remove()?;
        return Ok(0);
    }
    let refs = op.refs.into_iter().map(|tag| (tag, true)).collect();
    store(call, &Refcount { refs, ..Refcount::default() })?;
    Ok(0)
}

pub(super) fn read(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: ReadOp = call.argument()?;
    let refs = stored(call, op.implicit_ref)?.refs.into_keys().collect();
    call.reply(ReadReply { refs }.to_vec(Features::NONE));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn tag(tag: &str, implicit_ref: bool) -> TagOp {
        TagOp { tag: tag.into(), implicit_ref }
    }

    fn refs(o: &mut Object, implicit_ref: bool) -> Vec<Name> {
        decode::<ReadReply>(&o.call("refcount", "read", &ReadOp { implicit_ref }).unwrap()).refs
    }

    #[test]
    fn the_last_put_removes_the_object() {
        let mut o = Object::existing();
        o.call("refcount", "get", &tag("a", false)).unwrap();
        o.call("refcount", "get", &tag("b", false)).unwrap();
        assert_eq!(refs(&mut o, false), ["a", "b"]);
        o.call("refcount", "put", &tag("a", false)).unwrap();
        assert_eq!(refs(&mut o, false), ["b"]);
        // A second put of the same tag does not count.
        o.call("refcount", "put", &tag("a", false)).unwrap();
        assert!(o.exists());
        o.call("refcount", "put", &tag("b", false)).unwrap();
        assert!(!o.exists());
    }

    #[test]
    fn an_implicit_reference_is_put_by_any_tag() {
        let mut o = Object::existing();
        assert_eq!(refs(&mut o, true), [""]);
        o.call("refcount", "get", &tag("a", true)).unwrap();
        assert_eq!(refs(&mut o, true), ["", "a"]);
        o.call("refcount", "put", &tag("x", true)).unwrap();
        assert_eq!(refs(&mut o, true), ["a"]);
        o.call("refcount", "put", &tag("a", true)).unwrap();
        assert!(!o.exists());
    }

    #[test]
    fn a_put_without_any_reference_is_an_error() {
        let mut o = Object::existing();
        assert_eq!(o.call("refcount", "put", &tag("a", false)), Err(Errno::INVAL));
        assert_eq!(Object::missing().call("refcount", "put", &tag("a", false)), Err(Errno::NOENT));
    }

    #[test]
    fn setting_no_references_removes_the_object() {
        let mut o = Object::existing();
        o.call("refcount", "set", &SetOp { refs: vec!["q".into(), "p".into()] }).unwrap();
        assert_eq!(refs(&mut o, false), ["p", "q"]);
        o.call("refcount", "set", &SetOp::default()).unwrap();
        assert!(!o.exists());
    }
}
