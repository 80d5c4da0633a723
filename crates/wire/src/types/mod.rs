//! Ceph's types as values. One file a type, or a family that is never used apart.

mod auth_name;
pub mod crush;
mod entity;
mod hobject;
mod ids;
mod locator;
mod log_entry;
mod mon_map;
mod op_code;
mod osd_flags;
pub mod osd_op;
mod pool_stat;
mod release;
mod time;

pub use auth_name::AuthName;
pub use crush::CrushMap;
pub use entity::{AddrKind, EntityAddr, EntityAddrVec, EntityInst, EntityKind, EntityName};
pub use hobject::HObject;
pub use ids::{Epoch, Eversion, OsdId, PgId, PoolId, ReqId, ShardId, SnapId, SpgId, Uuid};
pub use locator::{ObjectLocator, RequestRedirect};
pub use log_entry::{LogEntry, LogPriority};
pub use mon_map::{AuthPolicy, MonFeatures, MonInfo, MonMap};
pub use op_code::OpCode;
pub use osd_flags::{OpFlags, OsdFlags, op_value};
pub use osd_op::{OpParams, OsdOp, OsdOpResult, ReplyVersions};
pub use pool_stat::{ObjectStatCollection, ObjectStatSum, PoolStat, StoreStatfs};
pub use release::Release;
pub use time::UTime;
