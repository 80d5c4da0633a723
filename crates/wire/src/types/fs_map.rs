//! The file systems of a cluster (`FSMap`), and what a mere user of RADOS is told of them (`FSMapUser`).
//!
//! Clients of RADOS subscribe to these maps and expect an answer although there is no file system. What an MDS is
//! and does stays closed here: its map and its rows are handed on as they came.

use super::{CompatSet, Epoch, Opaque, UTime};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// Another cluster's file system that mirrors one of ours.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct MirrorRemote {
    pub client_name: String,
    pub cluster_name: String,
    pub fs_name: String,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct MirrorPeer {
    pub uuid: String,
    pub remote: MirrorRemote,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct MirrorInfo {
    pub mirrored: bool,
    pub peers: BTreeSet<MirrorPeer>,
}

/// One file system (`Filesystem`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct Filesystem {
    pub id: i32,
    /// An encoded `MDSMap`.
    pub mds_map: Bytes,
    #[since(2)]
    pub mirror: MirrorInfo,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 8, compat = 6)]
pub struct FsMap {
    pub epoch: Epoch,
    pub next_filesystem_id: u64,
    /// File system of a client that names none; -1 is none.
    pub legacy_client_filesystem: i32,
    pub default_compat: CompatSet,
    pub enable_multiple: bool,
    pub filesystems: Vec<Filesystem>,
    /// File system that an MDS, by its global id, works for.
    pub mds_roles: BTreeMap<u64, i32>,
    pub standby_daemons: BTreeMap<u64, Opaque>,
    pub standby_epochs: BTreeMap<u64, Epoch>,
    #[since(7)]
    pub ever_enabled_multiple: bool,
    #[since(8)]
    pub btime: UTime,
}

impl Default for FsMap {
    /// The first epoch of a new cluster: no file system.
    fn default() -> FsMap {
        FsMap {
            epoch: 1,
            next_filesystem_id: 1,
            legacy_client_filesystem: -1,
            default_compat: CompatSet::default(),
            enable_multiple: true,
            filesystems: Vec::new(),
            mds_roles: BTreeMap::new(),
            standby_daemons: BTreeMap::new(),
            standby_epochs: BTreeMap::new(),
            ever_enabled_multiple: true,
            btime: UTime::ZERO,
        }
    }
}

/// A file system's number and name.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct FsName {
    pub id: i32,
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsMapUser {
    pub epoch: Epoch,
    pub legacy_client_filesystem: i32,
    pub filesystems: Vec<FsName>,
}

impl Encode for FsMapUser {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.epoch);
            w.i32(self.legacy_client_filesystem);
            w.put(&self.filesystems);
        });
    }
}

impl Decode for FsMapUser {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("FSMapUser", 1, |r, _| {
            Ok(FsMapUser {
                epoch: codec::field(r, "epoch", true, Epoch::default)?,
                legacy_client_filesystem: codec::field(r, "legacy_client_filesystem", true, i32::default)?,
                filesystems: codec::field(r, "filesystems", true, Vec::default)?,
            })
        })
    }
}
