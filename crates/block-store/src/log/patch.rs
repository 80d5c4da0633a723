//! Patches: a new value of an index key as its differences from the value before.
//!
//! ```text
//! varint length of the base, u32 crc of the base
//! any number of splices: varint bytes kept, varint bytes dropped, varint length and bytes added
//! ```
//! What follows the last splice is kept. Length and checksum prove that a patch is applied to the value from which it was
//! made.

use crate::checksum::crc32c;
use crate::varint;
use codec::{DecodeError, Reader};
use thiserror::Error;

/// Equal bytes between two differences that are not worth a splice of their own.
const GAP_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PatchError {
    #[error("it was made from another value: of {expected} bytes, not {found}, or with another checksum")]
    OtherBase { expected: u64, found: u64 },
    #[error("it reaches beyond the end of the value before")]
    TooLong,
    #[error("it cannot be decoded")]
    Undecodable,
}

impl From<DecodeError> for PatchError {
    fn from(_: DecodeError) -> PatchError {
        PatchError::Undecodable
    }
}

/// Appends a patch from `base` to `new`. Returns false, and appends nothing, if it takes no fewer bytes than `new`.
pub fn put_patch(out: &mut Vec<u8>, base: &[u8], new: &[u8]) -> bool {
    let start = out.len();
    varint::put(out, base.len() as u64);
    out.extend_from_slice(&crc32c(base).to_le_bytes());
    match base.len() == new.len() {
        true => put_replaced(out, base, new),
        false => put_middle(out, base, new),
    }
    let is_short = out.len() - start < new.len();
    if !is_short {
        out.truncate(start);
    }
    is_short
}

/// Splices between values of one length.
fn put_replaced(out: &mut Vec<u8>, base: &[u8], new: &[u8]) {
    let differs = |at: usize| base[at] != new[at];
    let (mut kept_from, mut at) = (0, 0);
    while let Some(begin) = (at..base.len()).find(|at| differs(*at)) {
        let mut end = begin + 1;
        while let Some(next) = (end..base.len().min(end + GAP_MAX + 1)).find(|at| differs(*at)) {
            end = next + 1;
        }
        put_splice(out, begin - kept_from, end - begin, &new[begin..end]);
        (kept_from, at) = (end, end);
    }
}

/// One splice between a common beginning and a common end.
fn put_middle(out: &mut Vec<u8>, base: &[u8], new: &[u8]) {
    let front = base.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (base, new) = (&base[front..], &new[front..]);
    let back = base.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    put_splice(out, front, base.len() - back, &new[..new.len() - back]);
}

fn put_splice(out: &mut Vec<u8>, kept: usize, dropped: usize, added: &[u8]) {
    varint::put(out, kept as u64);
    varint::put(out, dropped as u64);
    varint::put_bytes(out, added);
}

/// The value that a patch makes of `base`.
pub fn patched(patch: &[u8], base: &[u8]) -> Result<Vec<u8>, PatchError> {
    let mut r = Reader::new(patch);
    let (expected, crc) = (varint::take(&mut r)?, r.u32()?);
    let found = base.len() as u64;
    if expected != found || crc != crc32c(base) {
        return Err(PatchError::OtherBase { expected, found });
    }
    let mut out = Vec::with_capacity(base.len() + r.remaining());
    let mut rest = base;
    let mut take = |len: u64| -> Result<&[u8], PatchError> {
        let len = usize::try_from(len).map_err(|_| PatchError::TooLong)?;
        let (front, behind) = rest.split_at_checked(len).ok_or(PatchError::TooLong)?;
        rest = behind;
        Ok(front)
    };
    while !r.is_empty() {
        out.extend_from_slice(take(varint::take(&mut r)?)?);
        take(varint::take(&mut r)?)?;
        out.extend_from_slice(varint::take_bytes(&mut r, "added")?);
    }
    out.extend_from_slice(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_changed_bytes_take_few_bytes() {
        let base: Vec<u8> = (0..350u32).map(|i| (i * 7) as u8).collect();
        let mut new = base.clone();
        for at in [10, 12, 100, 101, 102, 300] {
            new[at] ^= 0x55;
        }
        let mut out = Vec::new();
        assert!(put_patch(&mut out, &base, &new));
        assert_eq!(patched(&out, &base), Ok(new.clone()));
        assert!(out.len() <= 6 + 3 * 4 + 7, "{} bytes", out.len());
        // Longer by a number of two bytes.
        new.splice(50..51, [1, 2]);
        out.clear();
        assert!(put_patch(&mut out, &new[..], &base));
        assert_eq!(patched(&out, &new), Ok(base));
    }

    #[test]
    fn patch_is_refused_on_any_other_base() {
        let (base, new) = (vec![1; 100], [vec![1; 50], vec![2; 50]].concat());
        let mut out = Vec::new();
        assert!(put_patch(&mut out, &base, &new));
        assert!(matches!(patched(&out, &new), Err(PatchError::OtherBase { .. })));
        assert!(matches!(patched(&out, &base[1..]), Err(PatchError::OtherBase { .. })));
    }

    #[test]
    fn patch_no_shorter_than_its_value_is_not_made() {
        let mut out = vec![7];
        assert!(!put_patch(&mut out, b"something else", b"short"));
        assert!(!put_patch(&mut out, b"", &[9; 100]));
        assert_eq!(out, [7]);
    }

    proptest! {
        #[test]
        fn patches_make_the_new_value(base in prop::collection::vec(0u8..4, 0..200), new in prop::collection::vec(0u8..4, 0..200), same in any::<bool>()) {
            let new = if same { new.into_iter().chain(base.iter().copied()).take(base.len()).collect() } else { new };
            let mut out = Vec::new();
            if put_patch(&mut out, &base, &new) {
                prop_assert_eq!(patched(&out, &base), Ok(new));
            }
        }

        #[test]
        fn arbitrary_patches_never_panic(mut patch in prop::collection::vec(any::<u8>(), 0..60), base in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = patched(&patch, &base);
            let mut front = vec![base.len() as u8];
            front.extend_from_slice(&crc32c(&base).to_le_bytes());
            patch.splice(0..0, front);
            let _ = patched(&patch, &base);
        }
    }
}
