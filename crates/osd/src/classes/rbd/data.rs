//! Objects of an image's data: copying them up from a parent, giving back their zeroes, and guarding their snapshots.

use super::MethodResult;
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum size of an object that is read whole: twice the largest object of an image.
const SPARSIFY_MAX: u64 = 64 << 20;
/// Maximum extents of one call. What is left is written as one.
const EXTENTS_MAX: usize = 1 << 14;

/// Writes the argument unless the object is there.
pub fn copyup(call: &mut MethodCall<'_>) -> MethodResult {
    if !call.exists() {
        let data = call.context.argument.clone();
        call.write(0, data)?;
    }
    Ok(0)
}

/// Extents with their bytes, joined.
pub fn sparse_copyup(call: &mut MethodCall<'_>) -> MethodResult {
    let (extents, data): (BTreeMap<u64, u64>, Bytes) = call.argument()?;
    if call.exists() {
        return Ok(0);
    }
    if extents.is_empty() {
        call.create(true)?;
        return Ok(0);
    }
    let mut rest = data;
    for (offset, len) in extents {
        let len = usize::try_from(len).ok().filter(|len| *len <= rest.len());
        let piece = rest.split_to(len.ok_or(MethodStop::Failed(Errno::INVAL))?);
        call.write(offset, piece)?;
    }
    Ok(0)
}

/// Gives back blocks of zeroes. `ENOENT` without an object, `EFBIG` for one of more than 64 MiB.
pub fn sparsify(call: &mut MethodCall<'_>) -> MethodResult {
    let (block, remove_empty): (u64, bool) = call.argument()?;
    call.must_exist()?;
    if block == 0 {
        return Err(Errno::INVAL.into());
    }
    if call.context.size > SPARSIFY_MAX {
        return Err(Errno::FBIG.into());
    }
    let data = call.data(0, call.context.size)?.to_bytes();
    let extents = non_zero_extents(&data, usize::try_from(block).unwrap_or(usize::MAX));
    match &extents[..] {
        [] if remove_empty => call.remove()?,
        [] if data.is_empty() => {}
        [] => call.truncate(0)?,
        [all] if all.len() == data.len() => {}
        extents => {
            call.truncate(0)?;
            for extent in extents {
                call.write(extent.start as u64, data.slice(extent.clone()))?;
            }
        }
    }
    Ok(0)
}

/// Runs of blocks that are not all zeroes. Beyond [`EXTENTS_MAX`] the last run takes the rest.
fn non_zero_extents(data: &[u8], block: usize) -> Vec<Range<usize>> {
    let mut extents: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for piece in data.chunks(block) {
        let end = start + piece.len();
        if piece.iter().any(|b| *b != 0) {
            let is_full = extents.len() == EXTENTS_MAX;
            match extents.last_mut() {
                Some(last) if last.end == start || is_full => last.end = end,
                _ => extents.push(start..end),
            }
        }
        start = end;
    }
    extents
}

const SNAPC_GREATER: u8 = 0;
const SNAPC_LESS_OR_EQUAL: u8 = 1;

/// Compares the writer's snapshot sequence with the object's; `ERANGE` if it is not as expected. An object that is
/// not there is older than any.
pub fn assert_snapc_seq(call: &mut MethodCall<'_>) -> MethodResult {
    let (seq, expected): (u64, u8) = call.argument()?;
    let is_greater = !call.exists() || seq > call.context.snapset_seq;
    match expected {
        SNAPC_GREATER if is_greater => Ok(0),
        SNAPC_LESS_OR_EQUAL if !is_greater => Ok(0),
        SNAPC_GREATER | SNAPC_LESS_OR_EQUAL => Err(Errno::RANGE.into()),
        _ => Err(Errno::OPNOTSUPP.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::Object;

    #[test]
    fn copyup_writes_only_absent_object() {
        let mut o = Object::missing();
        assert_eq!(o.call_raw("rbd", "copyup", b"parent").result, 0);
        assert_eq!(o.call_raw("rbd", "copyup", b"other").result, 0);
        assert_eq!(o.data(), "parent");
    }

    #[test]
    fn sparse_copyup_writes_extents() {
        let extents = BTreeMap::from([(1u64, 2u64), (6, 1)]);
        let mut o = Object::missing();
        let short = (extents.clone(), Bytes::from_static(b"ab"));
        assert_eq!(o.call("rbd", "sparse_copyup", &short), Err(Errno::INVAL));
        o.call("rbd", "sparse_copyup", &(extents, Bytes::from_static(b"abc"))).unwrap();
        assert_eq!(o.data(), "\0ab\0\0\0c");
        let mut empty = Object::missing();
        empty.call("rbd", "sparse_copyup", &(BTreeMap::<u64, u64>::new(), Bytes::new())).unwrap();
        assert!(empty.exists() && empty.data().is_empty());
    }

    #[test]
    fn sparsify_keeps_bytes_and_drops_zeroes() {
        let mut o = Object::existing();
        let data = [&[0; 8][..], b"ab", &[0; 14], b"c", &[0; 20]].concat();
        o.put_data(&data);
        o.call("rbd", "sparsify", &(4u64, false)).unwrap();
        assert_eq!(o.data(), data[..28]);
        o.put_data(&[0; 9]);
        o.call("rbd", "sparsify", &(4u64, false)).unwrap();
        assert!(o.exists() && o.data().is_empty());
        o.call("rbd", "sparsify", &(4u64, true)).unwrap();
        assert!(!o.exists());
        assert_eq!(o.call("rbd", "sparsify", &(4u64, true)), Err(Errno::NOENT));
    }

    #[test]
    fn extents_beyond_the_maximum_are_one() {
        let data: Vec<u8> = (0..4 * EXTENTS_MAX).map(|i| (i % 2) as u8).collect();
        let extents = non_zero_extents(&data, 1);
        assert_eq!(extents.len(), EXTENTS_MAX);
        assert_eq!(extents.last().unwrap().end, data.len());
    }

    #[test]
    fn absent_object_is_older_than_any_context() {
        let mut o = Object::missing();
        o.call("rbd", "assert_snapc_seq", &(0u64, SNAPC_GREATER)).unwrap();
        assert_eq!(o.call("rbd", "assert_snapc_seq", &(0u64, SNAPC_LESS_OR_EQUAL)), Err(Errno::RANGE));
        let mut o = Object::existing();
        assert_eq!(o.call("rbd", "assert_snapc_seq", &(0u64, SNAPC_GREATER)), Err(Errno::RANGE));
        o.call("rbd", "assert_snapc_seq", &(0u64, SNAPC_LESS_OR_EQUAL)).unwrap();
        o.call("rbd", "assert_snapc_seq", &(1u64, SNAPC_GREATER)).unwrap();
        assert_eq!(o.call("rbd", "assert_snapc_seq", &(1u64, 7u8)), Err(Errno::OPNOTSUPP));
    }
}
