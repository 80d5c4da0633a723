//! Ceph's types as values. One file a type, or a family that is never used apart.

pub mod crush;
mod entity;
mod hobject;
mod ids;
mod locator;
mod op_code;
mod osd_flags;
pub mod osd_op;
mod time;

pub use crush::CrushMap;
pub use entity::{AddrKind, EntityAddr, EntityAddrVec, EntityInst, EntityKind, EntityName};
pub use hobject::HObject;
pub use ids::{Epoch, Eversion, OsdId, PgId, PoolId, ReqId, ShardId, SnapId, SpgId, Uuid};
pub use locator::{ObjectLocator, RequestRedirect};
pub use op_code::OpCode;
pub use osd_flags::{OpFlags, OsdFlags, op_value};
pub use osd_op::{OpParams, OsdOp, OsdOpResult, ReplyVersions};
pub use time::UTime;
