//! The `rgw` class: the gateway's bucket index, and its logs of garbage, lifecycle, usage and resharding.
//!
//! Arguments are read as Pacific (16.2) and later write them. What is stored has the form of 20.2.

mod change;
mod entry;
mod garbage;
mod index;
mod index_log;
mod lifecycle;
mod object;
mod reshard;
mod upload;
mod usage;
mod version;

pub use super::rgw_gc::{
    GarbageInfo, ListOp as GarbageListOp, ListReply as GarbageListReply, ObjectKey, SetEntryOp,
};
pub use change::{
    CompleteOp, MODIFY_ADD, MODIFY_CANCEL, MODIFY_DEL, MODIFY_LINK_OLH, MODIFY_LINK_OLH_MARKER,
    MODIFY_RESYNC, MODIFY_SYNC_STOP, MODIFY_UNKNOWN, MODIFY_UNLINK_INSTANCE, PrepareOp, TagTimeoutOp,
    UpdateStatsOp,
};
pub use entry::{
    DeletedEntry, ENTRY_INSTANCE, ENTRY_INVALID, ENTRY_OLH, ENTRY_PLAIN, ENTRY_RESHARD_DELETED, EntryBox,
    GetEntryOp, IndexEntry, ListEntriesOp, ListEntriesReply, PutEntriesOp,
};
pub use garbage::{DeferEntryOp, RemoveTagsOp};
pub use index::{
    BucketDir, BucketHeader, CategoryStats, CheckReply, DirEntry, EntryMeta, EntryVersion,
    FLAG_COMMON_PREFIX, FLAG_CURRENT, FLAG_DELETE_MARKER, FLAG_VER, FLAG_VER_MARKER, ListOp, ListReply,
    PendingInfo, Reshard, STATE_COMPLETE, STATE_PENDING, rounded_size,
};
pub use index_log::{BILOG_VERSIONED, IndexLogEntry, ListLogOp, ListLogReply, TrimLogOp};
pub use lifecycle::{
    LifecycleBox, LifecycleEntry, LifecycleHead, LifecycleHeadBox, LifecycleListOp, LifecycleListReply,
    LifecycleMarkerOp,
};
pub use object::{CheckAttrsOp, CheckMtimeOp, RemoveObjectOp, StoreVersionOp};
pub use reshard::{
    GuardReshardOp, ReshardAddOp, ReshardBox, ReshardEntry, ReshardListOp, ReshardListReply,
    ReshardNothingOp, ReshardRemoveOp, ReshardStatusBox, STATUS_IN_LOGRECORD, STATUS_IN_PROGRESS,
    STATUS_NONE,
};
pub use upload::{Manifest, UploadPart, UploadPartOp};
pub use usage::{
    SelectUsage, UsageAddOp, UsageData, UsageEntry, UsageInfo, UsageReadOp, UsageReadReply, UsageTrimOp,
    UserBucketKey,
};
pub use version::{
    ClearOlhOp, LinkOlhOp, OLH_LINK, OLH_REMOVE_INSTANCE, OLH_UNLINK, OlhEntry, OlhLogEntry, ReadOlhLogOp,
    ReadOlhLogReply, TrimOlhLogOp, UnlinkInstanceOp,
};

use crate::types::Name;

/// Zones that have seen a change (`rgw_zone_set`), in the order in which they came.
pub type ZoneSet = Vec<Name>;
