//! Ceph's types as values. One file a type, or a family that is never used apart.

pub mod crush;
mod entity;
mod hobject;
mod ids;
mod time;

pub use crush::CrushMap;
pub use entity::{AddrKind, EntityAddr, EntityAddrVec, EntityInst, EntityKind, EntityName};
pub use hobject::HObject;
pub use ids::{Epoch, Eversion, OsdId, PgId, PoolId, ReqId, ShardId, SnapId, SpgId, Uuid};
pub use time::UTime;
