//! An object with snapshots as a value: the contents that each snapshot must have, written independently of the OSD.
//!
//! One client alone uses an object, and has one operation on it in flight. So there is one possible past, and no search for it. The
//! client makes the pool's snapshots itself (`selfmanaged`), and knows which ones exist.
//!
//! A snapshot that was removed may be there for a while. The client reads none of these, and the model allows both.

use bytes::Bytes;
use std::collections::BTreeSet;
use wire::types::{CloneInfo, SnapId, SnapList};

/// The snapshots that a client knows, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    pub seq: u64,
    pub snaps: Vec<u64>,
}

/// One change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapWrite {
    WriteFull(Bytes),
    Write {
        offset: usize,
        data: Bytes,
    },
    /// Creates an object that is not there.
    Truncate(usize),
    Remove,
    Rollback(u64),
}

/// A clone that a write made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    id: u64,
    /// Snapshots that have these contents.
    snaps: BTreeSet<u64>,
    data: Vec<u8>,
}

/// An object and its past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapModel {
    head: Option<Vec<u8>>,
    /// The newest snapshot that a write has known.
    seq: u64,
    /// Ascending. Those whose snapshots are all removed stay: a trim may come late.
    kept: Vec<Kept>,
    removed: BTreeSet<u64>,
}

pub const ENOENT: i32 = -2;

impl SnapModel {
    /// The contents of a snapshot that exists, or of the head.
    pub fn contents(&self, snap: Option<u64>) -> Option<&[u8]> {
        let Some(snap) = snap else { return self.head.as_deref() };
        if snap > self.seq {
            return self.head.as_deref();
        }
        let clone = self.kept.iter().find(|clone| clone.id >= snap)?;
        clone.snaps.contains(&snap).then_some(&clone.data[..])
    }

    /// The answer to a write under this context, which then has taken effect.
    pub fn write(&mut self, context: &Context, write: &SnapWrite) -> i32 {
        let next = match write {
            SnapWrite::WriteFull(data) => Some(data.to_vec()),
            SnapWrite::Write { offset, data } => {
                let mut next = self.head.clone().unwrap_or_default();
                next.resize(next.len().max(offset + data.len()), 0);
                next[*offset..offset + data.len()].copy_from_slice(data);
                Some(next)
            }
            SnapWrite::Truncate(size) => {
                let mut next = self.head.clone().unwrap_or_default();
                next.resize(*size, 0);
                Some(next)
            }
            SnapWrite::Remove if self.head.is_none() => return ENOENT,
            SnapWrite::Remove => None,
            SnapWrite::Rollback(snap) => match self.contents(Some(*snap)) {
                // The object did not exist then, and does not now.
                None if self.head.is_none() => return 0,
                past => past.map(<[u8]>::to_vec),
            },
        };
        let newest = context.snaps.first().copied().unwrap_or(0);
        if let Some(data) = self.head.take()
            && newest > self.seq
        {
            let snaps = context.snaps.iter().copied().filter(|snap| *snap > self.seq).collect();
            self.kept.push(Kept { id: context.seq, snaps, data });
        }
        self.seq = self.seq.max(context.seq);
        self.head = next;
        0
    }

    /// The snapshot is being removed.
    pub fn remove_snap(&mut self, snap: u64) {
        self.removed.insert(snap);
    }

    /// Contradictions between the object and the list of its snapshots. `None`: the list failed with ENOENT.
    pub fn check_list(&self, list: Option<&SnapList>) -> Result<(), String> {
        let live: Vec<&Kept> =
            self.kept.iter().filter(|clone| !clone.snaps.is_subset(&self.removed)).collect();
        let Some(list) = list else {
            return match live.is_empty() && self.head.is_none() {
                true => Ok(()),
                false => Err("no such object".into()),
            };
        };
        let has_head = list.clones.last().is_some_and(|clone| clone.clone == SnapId::HEAD);
        if has_head != self.head.is_some() {
            return Err(format!("the head is there: {has_head}"));
        }
        if !list.clones.is_sorted_by(|a, b| a.clone < b.clone) {
            return Err("clones are listed twice or out of order".into());
        }
        if let Some(lost) = live.iter().find(|kept| !list.clones.iter().any(|c| c.clone.0 == kept.id)) {
            return Err(format!("clone {} is not there", lost.id));
        }
        for (at, clone) in list.clones.iter().enumerate() {
            let next = match list.clones.get(at + 1) {
                Some(next) => self.data_of(next)?,
                // The contents of a deleted head.
                None => &[],
            };
            self.check_clone(clone, next)?;
        }
        Ok(())
    }

    fn data_of(&self, clone: &CloneInfo) -> Result<&[u8], String> {
        if clone.clone == SnapId::HEAD {
            return self.head.as_deref().ok_or_else(|| "there is no head".into());
        }
        let kept = self.kept.iter().find(|kept| kept.id == clone.clone.0);
        kept.map(|kept| &kept.data[..]).ok_or_else(|| format!("no write made clone {}", clone.clone.0))
    }

    /// `next`: the contents of the next newer clone, or of the head.
    fn check_clone(&self, clone: &CloneInfo, next: &[u8]) -> Result<(), String> {
        let data = self.data_of(clone)?;
        if clone.size != data.len() as u64 {
            return Err(format!("clone {:?} has {} bytes, not {}", clone.clone, data.len(), clone.size));
        }
        let Some(kept) = self.kept.iter().find(|kept| kept.id == clone.clone.0) else { return Ok(()) };
        let named: BTreeSet<u64> = clone.snaps.iter().map(|snap| snap.0).collect();
        let is_named = named.is_subset(&kept.snaps)
            && kept.snaps.iter().all(|snap| named.contains(snap) || self.removed.contains(snap));
        if !is_named {
            return Err(format!("clone {} is of {named:?}, not of {:?}", kept.id, kept.snaps));
        }
        for (start, len) in &clone.overlap {
            let range = *start as usize..(start + len) as usize;
            if data.get(range.clone()).is_none() || data.get(range.clone()) != next.get(range.clone()) {
                return Err(format!("clone {} does not share {range:?} with the next one", kept.id));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(data: &'static str) -> SnapWrite {
        SnapWrite::WriteFull(Bytes::from_static(data.as_bytes()))
    }

    fn context(snaps: &[u64]) -> Context {
        Context { seq: snaps.first().copied().unwrap_or(0), snaps: snaps.to_vec() }
    }

    /// "one" under snapshot 2, "two" after it, deleted after snapshot 5.
    fn deleted() -> SnapModel {
        let mut model = SnapModel::default();
        assert_eq!(model.write(&context(&[]), &full("one")), 0);
        assert_eq!(model.write(&context(&[2]), &full("two")), 0);
        assert_eq!(model.write(&context(&[5, 2]), &SnapWrite::Remove), 0);
        model
    }

    fn row(id: u64, snaps: &[u64], size: u64, overlap: &[(u64, u64)]) -> CloneInfo {
        let snaps = snaps.iter().map(|snap| SnapId(*snap)).collect();
        CloneInfo { clone: SnapId(id), snaps, overlap: overlap.to_vec(), size }
    }

    fn listed(clones: &[CloneInfo]) -> SnapList {
        SnapList { clones: clones.to_vec(), seq: SnapId(5) }
    }

    #[test]
    fn snapshot_keeps_what_the_head_was() {
        let mut model = deleted();
        assert_eq!(model.contents(Some(2)), Some(&b"one"[..]));
        assert_eq!(model.contents(Some(5)), Some(&b"two"[..]));
        assert_eq!(model.contents(Some(3)), None);
        assert_eq!((model.contents(None), model.contents(Some(7))), (None, None));
        assert_eq!(model.write(&context(&[5, 2]), &SnapWrite::Remove), ENOENT);
        assert_eq!(model.write(&context(&[5, 2]), &SnapWrite::Rollback(2)), 0);
        assert_eq!(model.contents(None), Some(&b"one"[..]));
        assert_eq!(model.contents(Some(7)), Some(&b"one"[..]));
    }

    #[test]
    fn object_born_after_a_snapshot_is_absent_in_it() {
        let mut model = SnapModel::default();
        model.write(&context(&[5]), &full("new"));
        model.write(&context(&[5]), &SnapWrite::Truncate(1));
        assert_eq!((model.contents(Some(5)), model.contents(None)), (None, Some(&b"n"[..])));
    }

    #[test]
    fn list_must_have_each_clone_that_is_needed() {
        let mut model = deleted();
        let rows = [row(2, &[2], 3, &[]), row(5, &[5], 3, &[])];
        assert_eq!(model.check_list(Some(&listed(&rows))), Ok(()));
        assert!(model.check_list(Some(&listed(&rows[1..]))).is_err());
        assert!(model.check_list(None).is_err());
        assert!(model.check_list(Some(&listed(&[row(2, &[2], 4, &[]), rows[1].clone()]))).is_err());
        assert!(model.check_list(Some(&listed(&[row(2, &[5], 3, &[]), rows[1].clone()]))).is_err());
        model.remove_snap(2);
        assert_eq!(model.check_list(Some(&listed(&rows))), Ok(()), "not trimmed yet");
        assert_eq!(model.check_list(Some(&listed(&rows[1..]))), Ok(()));
        model.remove_snap(5);
        assert_eq!(model.check_list(None), Ok(()));
    }

    #[test]
    fn overlap_must_have_equal_bytes() {
        let mut model = SnapModel::default();
        model.write(&context(&[]), &full("abcdef"));
        model.write(&context(&[2]), &SnapWrite::Write { offset: 2, data: Bytes::from_static(b"XY") });
        let list = |overlap: &[(u64, u64)], size| {
            listed(&[row(2, &[2], 6, overlap), row(SnapId::HEAD.0, &[], size, &[])])
        };
        assert_eq!(model.check_list(Some(&list(&[(0, 2), (4, 2)], 6))), Ok(()));
        assert!(model.check_list(Some(&list(&[(0, 3)], 6))).is_err());
        model.write(&context(&[2]), &SnapWrite::Truncate(5));
        assert!(model.check_list(Some(&list(&[(0, 2), (4, 2)], 5))).is_err(), "the head ends before");
        assert_eq!(model.check_list(Some(&list(&[(0, 2), (4, 1)], 5))), Ok(()));
    }
}
