//! `cephfs-data-scan` finds the size and the newest object of a lost inode, gathered at its first object.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use codec::{Decode, Encode, Features};
use wire::types::Name;
use wire::types::cls::cephfs::{AccumulateOp, ObjectCeiling};

/// Sets each of three attributes to the greater of its value and the argument's.
pub(super) fn accumulate_inode_metadata(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: AccumulateOp = call.argument()?;
    let ceiling = ObjectCeiling { index: op.object_index, size: op.object_size };
    set_if_greater(call, &op.ceiling_attr, &ceiling, |new, old: &ObjectCeiling| new.index > old.index)?;
    set_if_greater(call, &op.mtime_attr, &op.mtime, |new, old| new > old)?;
    set_if_greater(call, &op.size_attr, &op.object_size, |new, old| new > old)?;
    Ok(0)
}

/// A value that does not decode is replaced.
fn set_if_greater<T: Decode + Encode>(
    call: &mut MethodCall<'_>,
    name: &Name,
    value: &T,
    is_greater: impl Fn(&T, &T) -> bool,
) -> Result<(), MethodStop> {
    let stored = match call.attr(name) {
        Err(MethodStop::Failed(Errno::NOENT | Errno::NODATA)) => None,
        other => codec::decode_exact::<T>(&other?).ok(),
    };
    if stored.is_none_or(|stored| is_greater(value, &stored)) {
        call.set_attr(name, &value.to_vec(Features::NONE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    #[test]
    fn attributes_keep_the_greatest_value() {
        let mut o = Object::missing();
        let mut see = |object_index: u64, object_size: u64, mtime: i64| {
            let (ceiling_attr, mtime_attr, size_attr) = ("c".into(), "m".into(), "s".into());
            let op = AccumulateOp { ceiling_attr, mtime_attr, size_attr, object_index, object_size, mtime };
            o.call("cephfs", "accumulate_inode_metadata", &op).unwrap();
        };
        see(3, 10, 100);
        see(2, 40, 90);
        let ceiling: ObjectCeiling = decode(&o.attr("c").unwrap());
        assert_eq!(ceiling, ObjectCeiling { index: 3, size: 10 });
        assert_eq!(decode::<i64>(&o.attr("m").unwrap()), 100);
        assert_eq!(decode::<u64>(&o.attr("s").unwrap()), 40);
        o.put_attr("m", b"damaged");
        let op = AccumulateOp { mtime_attr: "m".into(), mtime: 5, ..AccumulateOp::default() };
        o.call("cephfs", "accumulate_inode_metadata", &op).unwrap();
        assert_eq!(decode::<i64>(&o.attr("m").unwrap()), 5);
    }
}
