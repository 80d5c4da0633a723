//! Operations that give an object the contents of another, or of its own past.

use super::Limits;
use super::SNAPS_ATTR;
use super::execution::Execution;
use super::handler::{Handler, OpOutcome, done};
use crate::errno::Errno;
use codec::Reader;
use store::{Change, ObjectId};
use wire::types::osd_op::CopyFromParams;
use wire::types::{Name, ObjectInfo, ObjectLocator, OpCode, OsdOp, SnapId};

/// `CEPH_OSD_COPY_FROM_FLAG_*`: all that exist, and the one that adds a truncation to the input.
const COPY_FROM_FLAGS: u8 = 0x3f;
const COPY_FROM_TRUNCATE: u8 = 0x20;

/// Makes the object a copy of another, which may be in another PG. Decoded, and refused with `EOPNOTSUPP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFrom {
    source: Name,
    locator: ObjectLocator,
    params: CopyFromParams,
    truncate: Option<(u32, u64)>,
}

impl Handler for CopyFrom {
    type Reads = ();
    const USER_VISIBLE: bool = false;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let mut r = Reader::new(&op.input);
        let params = op.params.copy_from();
        let second = op.code == OpCode::COPY_FROM2;
        if second && params.flags & !COPY_FROM_FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let (source, locator) = (r.get()?, r.get()?);
        let truncate = match second && params.flags & COPY_FROM_TRUNCATE != 0 {
            true => Some((r.u32()?, r.u64()?)),
            false => None,
        };
        Ok(CopyFrom { source, locator, params, truncate })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, _: &mut Execution<'_>, (): ()) -> OpOutcome {
        Err(Errno::OPNOTSUPP.into())
    }
}

/// The state of an object when a snapshot was taken, for a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollbackTo<'a> {
    Absent,
    /// No write has come since.
    Head,
    Clone(&'a ObjectId, &'a ObjectInfo),
}

/// Takes the object back to a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback(SnapId);

impl Rollback {
    pub fn snap(&self) -> SnapId {
        self.0
    }
}

impl Handler for Rollback {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(Rollback(op.params.snap()))
    }

    fn reads(&self, _: &Limits) {}

    /// As `PrimaryLogPG::_rollback_to`.
    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let target = match list.snapshots.rollback {
            Some((snap, target)) if snap == self.0 => target,
            // A second rollback of the list, to another snapshot.
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        match target {
            RollbackTo::Absent if !list.info.watchers.is_empty() => Err(Errno::BUSY.into()),
            RollbackTo::Absent if list.exists => list.delete(),
            RollbackTo::Absent => done(),
            RollbackTo::Head => {
                list.touched = true;
                done()
            }
            RollbackTo::Clone(id, info) => {
                if !list.exists {
                    list.exists = true;
                    list.stats.objects += 1;
                }
                list.changes.push(Change::Clone { from: id.clone(), to: list.id.clone() });
                // The snapshot set and the watchers are the head's own.
                list.changes.push(Change::RemoveAttr { object: list.id.clone(), name: SNAPS_ATTR });
                list.take_contents_of(info);
                done()
            }
        }
    }
}
