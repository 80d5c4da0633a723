//! Operations that give an object the contents of another, or of its own past.

use super::Limits;
use super::execution::Execution;
use super::handler::{Handler, OpOutcome};
use crate::errno::Errno;
use codec::Reader;
use wire::types::osd_op::CopyFromParams;
use wire::types::{Name, ObjectLocator, OpCode, OsdOp, SnapId};

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

/// Takes the object back to a snapshot. Pools with snapshots are refused, so no object has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback(SnapId);

impl Handler for Rollback {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(Rollback(op.params.snap()))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, _: &mut Execution<'_>, (): ()) -> OpOutcome {
        Err(Errno::NOENT.into())
    }
}
