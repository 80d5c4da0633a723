//! Ceph's types as values. One file a type, or a family that is never used apart.

mod auth_name;
pub mod cls;
pub mod crush;
mod entity;
mod health;
mod hobject;
mod ids;
mod interval_set;
mod listing;
mod locator;
mod log_entry;
mod mon_map;
mod object_info;
mod op_code;
#[cfg(test)]
mod osd_corpus_tests;
mod osd_flags;
pub mod osd_map;
pub mod osd_op;
mod osd_stat;
mod pg_log;
mod pg_map_digest;
mod pg_stat;
mod pg_state;
mod pool;
mod pool_stat;
mod release;
mod snap_set;
mod time;
mod watch;

pub use auth_name::AuthName;
pub use crush::CrushMap;
pub use entity::{AddrKind, EntityAddr, EntityAddrVec, EntityInst, EntityKind, EntityName};
pub use health::{HealthCheck, HealthMute, HealthStatus};
pub use hobject::HObject;
pub use ids::{Epoch, Eversion, OsdId, PgId, PoolId, ReqId, ShardId, SnapId, SpgId, Uuid};
pub use interval_set::IntervalSet;
pub use listing::{LegacyListPage, ListPage, ListedObject};
pub use locator::{ObjectLocator, RequestRedirect};
pub use log_entry::{LogEntry, LogPriority};
pub use mon_map::{AuthPolicy, MonFeatures, MonInfo, MonMap};
pub use object_info::{ChunkInfo, ObjectFlags, ObjectInfo, ObjectManifest};
pub use op_code::OpCode;
pub use osd_flags::{OpFlags, OsdFlags, op_value};
pub use osd_map::{OsdAddrs, OsdInfo, OsdMap, OsdMapIncremental, OsdRow, OsdState, OsdXinfo};
pub use osd_op::{OpParams, OsdOp, OsdOpResult, ReplyVersions};
pub use osd_stat::{OsdStat, PingTimes};
pub use pg_log::{CleanRegions, LogOp, ModDesc, OpReturn, PgLogDup, PgLogEntry, ShardSet};
pub use pg_map_digest::{PgCount, PgMapDigest, ProgressEvent};
pub use pg_stat::{PgShard, PgStat, ScrubSchedule};
pub use pg_state::PgState;
pub use pool::{
    HitSetParams, PeeringCrush, PgMergeMeta, PgPool, PoolFlags, PoolKind, PoolOption, PoolOptionKind,
    PoolOptionValue, PoolOptions, PoolSnap,
};
pub use pool_stat::{ObjectStatCollection, ObjectStatSum, PoolStat, StoreStatfs};
pub use release::Release;
pub use snap_set::{CloneInfo, SnapList, SnapSet};
pub use time::UTime;
pub use watch::{NotifyAck, NotifyOutcome, NotifyRequest, WatchInfo, WatchItem, WatcherList};
