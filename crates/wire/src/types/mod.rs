//! Ceph's types as values. One file a type, or a family that is never used apart.

mod auth_name;
pub mod cls;
mod compat_set;
pub mod crush;
mod entity;
mod fs_map;
mod health;
mod hobject;
mod ids;
mod interval_set;
mod listing;
mod locator;
mod log_entry;
mod mgr_map;
mod mon_map;
mod name;
mod object_copy;
mod object_info;
mod op_code;
mod opaque;
mod osd_flags;
pub mod osd_map;
pub mod osd_op;
mod osd_stat;
mod osd_superblock;
mod perf_query;
mod pg_info;
mod pg_log;
mod pg_map_digest;
mod pg_peer;
mod pg_scrub;
mod pg_stat;
mod pg_state;
mod pool;
mod pool_stat;
mod release;
mod service_map;
mod snap_set;
mod time;
mod watch;

pub use auth_name::AuthName;
pub use compat_set::{CompatSet, FeatureSet};
pub use crush::CrushMap;
pub use entity::{AddrKind, EntityAddr, EntityAddrVec, EntityInst, EntityKind, EntityName};
pub use fs_map::{Filesystem, FsMap, FsMapUser, FsName, MirrorInfo, MirrorPeer, MirrorRemote};
pub use health::{HealthCheck, HealthChecks, HealthMute, HealthStatus};
pub use hobject::HObject;
pub use ids::{Epoch, Eversion, OsdId, PgId, PoolId, ReqId, ShardId, SnapId, SpgId, Uuid};
pub use interval_set::IntervalSet;
pub use listing::{LegacyListPage, ListPage, ListedObject};
pub use locator::{ObjectLocator, RequestRedirect};
pub use log_entry::{LogEntry, LogPriority};
pub use mgr_map::{ManagerModule, ManagerOption, ManagerStandby, MgrMap};
pub use mon_map::{AuthPolicy, MonFeatures, MonInfo, MonMap};
pub use name::Name;
pub use object_copy::{CopyCursor, CopyData, copy_flags};
pub use object_info::{ChunkInfo, ObjectFlags, ObjectInfo, ObjectManifest};
pub use op_code::OpCode;
pub use opaque::Opaque;
pub use osd_flags::{OpFlags, OsdFlags, op_value};
pub use osd_map::{OsdAddrs, OsdInfo, OsdMap, OsdMapIncremental, OsdRow, OsdState, OsdXinfo};
pub use osd_op::{OpParams, OsdOp, OsdOpResult, ReplyVersions};
pub use osd_stat::{OsdStat, PingTimes};
pub use osd_superblock::OsdSuperblock;
pub use perf_query::{
    MetricReport, PerfCount, PerfCounterKind, PerfKey, PerfKeyPart, PerfLimit, PerfQueries, PerfQuery,
    PerfReport, PerfReports, ShortList,
};
pub use pg_info::{HitSetHistory, HitSetInfo, PgHistory, PgInfo};
pub use pg_log::{CleanRegions, LogOp, ModDesc, OpReturn, PgLogDup, PgLogEntry, ShardSet};
pub use pg_map_digest::{PgCount, PgMapDigest, ProgressEvent};
pub use pg_peer::{
    Activation, BackfillProgress, CopyReport, LogRun, MissingObject, ObjectPull, ObjectPush, PastInterval,
    PastIntervals, PeerBody, PeerWrite, PgCopyInfo, PgCounts, PlaceAnswer, PlaceDecision, PlaceRequest,
    PushAck, RecoveredCounts, ScanAnswer, ScanRequest, SnapCounts, StoreLife,
};
#[cfg(feature = "erasure-trial")]
pub use pg_peer::{ShardData, ShardRead};
pub use pg_scrub::{
    BadCopies, InconsistentCopy, InconsistentObject, InconsistentSnapSet, ObjectSurvey, ScrubStamps,
    SurveyAnswer, SurveyRequest, object_error, shard_error, snap_set_error,
};
pub use pg_stat::{PgShard, PgStat, ScrubSchedule};
pub use pg_state::PgState;
pub use pool::{
    HitSetParams, PeeringCrush, PgMergeMeta, PgPool, PoolFlags, PoolKind, PoolOption, PoolOptionKind,
    PoolOptionValue, PoolOptions, PoolSnap,
};
pub use pool_stat::{ObjectStatCollection, ObjectStatSum, PoolStat, StoreStatfs};
pub use release::Release;
pub use service_map::{Service, ServiceDaemonRow, ServiceMap};
pub use snap_set::{CloneInfo, SnapList, SnapSet};
pub use time::UTime;
pub use watch::{NotifyAck, NotifyOutcome, NotifyRequest, WatchInfo, WatchItem, WatcherList};
