//! The `rbd` class: block images as their header, directory, group, trash and mirroring objects hold them.

mod group;
mod image;
mod mirror;
mod snapshot;
mod trash;

pub use group::{
    GROUP_SNAPSHOT_INCOMPLETE, GroupImageSpec, GroupImageStatus, GroupSnapshot, GroupSpec, ImageSnapshotSpec,
};
pub use image::{ChildSpec, MIGRATION_SOURCE, MIGRATION_TARGET, MigrationSpec, Parent, ParentSpec};
pub use mirror::{
    DIRECTION_RX, DIRECTION_RX_TX, DIRECTION_TX, IMAGE_DISABLING, IMAGE_ENABLED, MirrorImage, MirrorImageMap,
    MirrorPeer, MirrorSiteStatus, MirrorStatus, STATUS_ERROR, STATUS_UNKNOWN, StatusOrigin, StoredSiteStatus,
};
pub use snapshot::{MirrorNamespace, Snapshot, SnapshotInfo, SnapshotNamespace};
pub use trash::TrashSpec;

/// "No snapshot": the image's head (`CEPH_NOSNAP`).
pub const NO_SNAP: u64 = u64::MAX - 1;
