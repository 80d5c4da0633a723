//! A counter with a random tag beside an object, and conditions on it.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use base64::Engine as _;
use codec::{Encode, Features};
use machine::Random;
use wire::types::cls::version::{CondsOp, ObjVersion, VersionBox};

const ATTR: &str = "ceph.objclass.version";
/// Characters of a new tag: 18 random bytes in base64.
const TAG_LEN: usize = 24;

/// The stored version; version 0 with an empty tag where there is none.
fn stored(call: &mut MethodCall<'_>) -> Result<Option<ObjVersion>, MethodStop> {
    match call.attr_as(ATTR) {
        Ok(version) => Ok(Some(version)),
        Err(MethodStop::Failed(Errno::NOENT | Errno::NODATA)) => Ok(None),
        Err(stop) => Err(stop),
    }
}

fn store(call: &mut MethodCall<'_>, version: &ObjVersion) -> Result<(), MethodStop> {
    call.set_attr(ATTR, &version.to_vec(Features::NONE))
}

pub(super) fn set(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: VersionBox = call.argument()?;
    store(call, &op.version)?;
    Ok(0)
}

/// `inc` and `inc_conds`: a version that is not there begins at 1 under a new tag, and then is counted up.
pub(super) fn inc(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: CondsOp = call.argument()?;
    let mut version = match stored(call)? {
        Some(version) => version,
        None => ObjVersion { version: 1, tag: new_tag(call.context.seed).into() },
    };
    if !op.conds.iter().all(|c| c.holds(&version)) {
        return Err(Errno::CANCELED.into());
    }
    version.version = version.version.wrapping_add(1);
    store(call, &version)?;
    Ok(0)
}

pub(super) fn read(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let version = stored(call)?.unwrap_or_default();
    call.reply(VersionBox { version }.to_vec(Features::NONE));
    Ok(0)
}

pub(super) fn check(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: CondsOp = call.argument()?;
    let version = stored(call)?.unwrap_or_default();
    match op.conds.iter().all(|c| c.holds(&version)) {
        true => Ok(0),
        false => Err(Errno::CANCELED.into()),
    }
}

fn new_tag(seed: u64) -> String {
    let mut bytes = [0; TAG_LEN / 4 * 3];
    Random::from_number(seed).fill(&mut bytes);
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::cls::version::{COND_EQ, COND_GE, COND_LT, COND_TAG_NE, VersionCond};

    fn current(o: &mut Object) -> ObjVersion {
        decode::<VersionBox>(&o.call_bare("version", "read").unwrap()).version
    }

    fn when(cond: u32, version: u64, tag: &str) -> CondsOp {
        let version = ObjVersion { version, tag: tag.into() };
        CondsOp { conds: vec![VersionCond { version, cond }], ..CondsOp::default() }
    }

    #[test]
    fn a_version_begins_with_a_random_tag_and_the_first_increment() {
        let mut o = Object::missing();
        o.call("version", "inc", &CondsOp::default()).unwrap();
        let first = current(&mut o);
        assert_eq!((first.version, first.tag.len()), (2, TAG_LEN));
        o.call("version", "inc", &CondsOp::default()).unwrap();
        assert_eq!(current(&mut o), ObjVersion { version: 3, tag: first.tag });
    }

    #[test]
    fn reading_what_was_never_set_gives_zero() {
        assert_eq!(current(&mut Object::existing()), ObjVersion::default());
    }

    #[test]
    fn conditions_gate_an_increment() {
        let mut o = Object::existing();
        let version = ObjVersion { version: 7, tag: "t".into() };
        o.call("version", "set", &VersionBox { version }).unwrap();
        assert_eq!(o.call("version", "inc_conds", &when(COND_EQ, 7, "u")), Err(Errno::CANCELED));
        assert_eq!(o.call("version", "inc_conds", &when(COND_LT, 7, "")), Err(Errno::CANCELED));
        o.call("version", "inc_conds", &when(COND_EQ, 7, "t")).unwrap();
        o.call("version", "check_conds", &when(COND_GE, 8, "")).unwrap();
        assert_eq!(o.call("version", "check_conds", &when(COND_TAG_NE, 0, "t")), Err(Errno::CANCELED));
    }

    #[test]
    fn a_damaged_attribute_is_an_io_error() {
        let mut o = Object::existing();
        o.put_attr(ATTR, b"x");
        assert_eq!(o.call_bare("version", "read"), Err(Errno::IO));
        assert_eq!(o.call_raw("version", "set", b"x").result, Errno::INVAL.result());
    }
}
