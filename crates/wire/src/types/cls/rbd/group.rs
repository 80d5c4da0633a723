//! Groups of images and their snapshots.

use crate::types::Name;
use codec::{Decode, Encode};

/// A group, as an image of it holds it (`cls::rbd::GroupSpec`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GroupSpec {
    /// -1: none.
    pub pool: i64,
    pub group: Name,
}

impl Default for GroupSpec {
    fn default() -> GroupSpec {
        GroupSpec { pool: -1, group: Name::EMPTY }
    }
}

/// An image of a group (`cls::rbd::GroupImageSpec`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GroupImageSpec {
    pub image: Name,
    /// -1: none.
    pub pool: i64,
}

/// An image of a group and the state of their link (`cls::rbd::GroupImageStatus`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GroupImageStatus {
    pub spec: GroupImageSpec,
    /// 0 attached, 1 incomplete.
    pub state: u8,
}

/// One image's share of a group's snapshot (`cls::rbd::ImageSnapshotSpec`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ImageSnapshotSpec {
    pub pool: i64,
    pub image: Name,
    pub snap: u64,
}

/// [`GroupSnapshot::state`] of a snapshot that is being made.
pub const GROUP_SNAPSHOT_INCOMPLETE: u8 = 0;

/// Snapshot of all images of a group (`cls::rbd::GroupSnapshot`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GroupSnapshot {
    pub id: Name,
    pub name: Name,
    pub state: u8,
    pub snaps: Vec<ImageSnapshotSpec>,
}
