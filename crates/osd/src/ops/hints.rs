//! Operations that only look at, or change, an object's info: versions, hints, and what stays of cache tiering.

use super::Limits;
use super::execution::Execution;
use super::handler::{Handler, OpOutcome, done};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Rope};
use std::cmp::Ordering;
use store::Change;
use wire::types::{CloneInfo, OsdOp, SnapId, SnapList, osd_op::AllocHint};

/// Fails unless the object has this user version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertVersion(u64);

impl Handler for AssertVersion {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(AssertVersion(op.params.assert_version()))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        match self.0.cmp(&list.info.user_version) {
            _ if self.0 == 0 => Err(Errno::INVAL.into()),
            Ordering::Less => Err(Errno::RANGE.into()),
            Ordering::Greater => Err(Errno::OVERFLOW.into()),
            Ordering::Equal => done(),
        }
    }
}

/// No object is dirty: no pool is a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsDirty;

impl Handler for IsDirty {
    type Reads = ();

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(IsDirty)
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.stats.reads += 1;
        Ok(Rope::from(Bytes::from_static(&[0])).into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undirty;

impl Handler for Undirty {
    type Reads = ();
    const USER_VISIBLE: bool = false;

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(Undirty)
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, _: &mut Execution<'_>, (): ()) -> OpOutcome {
        done()
    }
}

/// The clones with their snapshots, and the head unless it is a whiteout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSnaps;

impl Handler for ListSnaps {
    type Reads = ();

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(ListSnaps)
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.stats.reads += 1;
        let mut out = SnapList { clones: Vec::new(), seq: SnapId(0) };
        if let Some(set) = list.snapshots.set {
            out.seq = set.seq;
            for clone in &set.clones {
                let parts =
                    (set.clone_snaps.get(clone), set.clone_overlap.get(clone), set.clone_size.get(clone));
                let (Some(snaps), Some(overlap), Some(size)) = parts else { return Err(Errno::INVAL.into()) };
                let snaps = snaps.iter().rev().copied().collect();
                let overlap = overlap.iter().collect();
                out.clones.push(CloneInfo { clone: *clone, snaps, overlap, size: *size });
            }
        }
        if list.exists {
            let (snaps, overlap) = (Vec::new(), Vec::new());
            out.clones.push(CloneInfo { clone: SnapId::HEAD, snaps, overlap, size: list.info.size });
        }
        Ok(Rope::from(out.to_vec(list.features)).into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAllocHint(AllocHint);

impl Handler for SetAllocHint {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(SetAllocHint(op.params.alloc_hint()))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let AllocHint { object_size, write_size, flags } = self.0;
        list.ensure_exists();
        let info = list.info.to_mut();
        info.expected_object_size = object_size;
        info.expected_write_size = write_size;
        info.alloc_hint_flags = flags;
        list.changes.push(Change::AllocHint { object: list.id.clone(), object_size, write_size, flags });
        done()
    }
}

/// Writes a log entry and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartSync;

impl Handler for StartSync {
    type Reads = ();

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(StartSync)
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.touched = true;
        done()
    }
}
