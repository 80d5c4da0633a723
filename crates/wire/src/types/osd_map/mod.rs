//! The map that every client and daemon of a cluster shares (`OSDMap`): pools, OSDs, CRUSH, and every exception to
//! CRUSH.
//!
//! - [`OsdMap`] is one epoch as a value; [`OsdMapIncremental`] is the step to the next one.
//! - `codec` and `incremental_codec` hold the bytes, `apply` the step itself.
//!
//! Where pools' PGs go is computed from this value in the crate `placement`.

mod apply;
mod codec;
mod flags;
mod incremental;
mod incremental_codec;
mod osd_row;
mod seal;

pub use apply::ApplyError;
pub use flags::MapFlags;
pub use incremental::{CrimsonChange, OsdMapIncremental, StretchChange};
pub use osd_row::{OsdAddrs, OsdInfo, OsdRow, OsdState, OsdXinfo};

use super::{CrushMap, EntityAddr, Epoch, IntervalSet, PgId, PgPool, PoolId, Release, UTime, Uuid};
use crate::features;
use ::codec::Features;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Key to value, for each named profile.
pub type ErasureCodeProfiles = BTreeMap<String, BTreeMap<String, String>>;

/// One epoch of the map. OSDs are plain numbers here, as in CRUSH, where `0x7fffffff` is a hole.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OsdMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub created: UTime,
    pub modified: UTime,

    pub pools: BTreeMap<PoolId, PgPool>,
    pub pool_names: BTreeMap<PoolId, String>,
    /// The highest pool number ever given.
    pub pool_max: i32,
    pub flags: MapFlags,

    /// By number; as many as `max_osd` says. A row whose OSD does not exist is blank.
    pub osds: Vec<OsdRow>,
    /// 16.16 fixed point by OSD, once any differs from 1.0.
    pub primary_affinity: Option<Vec<u32>>,

    /// Acting sets that differ from the up set for a while, and primaries likewise.
    pub pg_temp: BTreeMap<PgId, Vec<i32>>,
    pub primary_temp: BTreeMap<PgId, i32>,
    /// Overrides of CRUSH's answer: whole, OSD by OSD, or of the primary alone.
    pub pg_upmap: BTreeMap<PgId, Vec<i32>>,
    pub pg_upmap_items: BTreeMap<PgId, Vec<(i32, i32)>>,
    pub pg_upmap_primaries: BTreeMap<PgId, i32>,

    pub crush: Arc<CrushMap>,
    /// Counts the changes of `crush`.
    pub crush_version: u32,
    pub erasure_code_profiles: ErasureCodeProfiles,

    /// Snapshots that OSDs have still to remove, and this epoch's additions to and removals from that queue.
    pub removed_snaps_queue: BTreeMap<PoolId, IntervalSet>,
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,

    pub last_up_change: UTime,
    pub last_in_change: UTime,

    /// Until when an address, or every address of a network, is kept out.
    pub blocklist: BTreeMap<EntityAddr, UTime>,
    pub range_blocklist: BTreeMap<EntityAddr, UTime>,

    pub cluster_snapshot_epoch: Epoch,
    pub cluster_snapshot: String,

    pub nearfull_ratio: f32,
    pub full_ratio: f32,
    pub backfillfull_ratio: f32,
    pub require_min_compat_client: Release,
    pub require_osd_release: Release,

    /// `noout` and the like, for a CRUSH node or a device class.
    pub crush_node_flags: BTreeMap<i32, u32>,
    pub device_class_flags: BTreeMap<i32, u32>,

    pub stretch: StretchMode,
    pub allow_crimson: bool,
}

/// A cluster stretched over sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StretchMode {
    pub enabled: bool,
    pub bucket_count: u32,
    pub degraded: u32,
    pub recovering: u32,
    pub bucket: i32,
}

impl OsdMap {
    /// 1.0 in the 16.16 fixed point of weights and affinities.
    pub const WEIGHT_IN: u32 = 0x10000;
    pub const DEFAULT_PRIMARY_AFFINITY: u32 = 0x10000;

    pub fn max_osd(&self) -> i32 {
        self.osds.len() as i32
    }

    /// The row of an OSD that exists.
    pub fn osd(&self, osd: i32) -> Option<&OsdRow> {
        self.row(osd).filter(|row| row.state.exists())
    }

    pub fn exists(&self, osd: i32) -> bool {
        self.osd(osd).is_some()
    }

    pub fn is_up(&self, osd: i32) -> bool {
        self.osd(osd).is_some_and(|row| row.state.has(OsdState::UP))
    }

    pub fn is_in(&self, osd: i32) -> bool {
        self.osd(osd).is_some_and(|row| row.weight != 0)
    }

    /// The reweight of an OSD, 0 for one that does not exist.
    pub fn weight(&self, osd: i32) -> u32 {
        self.row(osd).map_or(0, |row| row.weight)
    }

    pub fn primary_affinity_of(&self, osd: i32) -> u32 {
        let set = self.primary_affinity.as_ref();
        set.and_then(|a| a.get(usize::try_from(osd).ok()?)).copied().unwrap_or(Self::DEFAULT_PRIMARY_AFFINITY)
    }

    /// The numbers of the OSDs that exist.
    pub fn osd_ids(&self) -> impl Iterator<Item = i32> {
        (0..self.max_osd()).filter(|&osd| self.exists(osd))
    }

    /// Existing, up and in.
    pub fn osd_counts(&self) -> (usize, usize, usize) {
        let count = |wanted: fn(&OsdMap, i32) -> bool| self.osd_ids().filter(|&o| wanted(self, o)).count();
        (count(OsdMap::exists), count(OsdMap::is_up), count(OsdMap::is_in))
    }

    pub fn pool_by_name(&self, name: &str) -> Option<PoolId> {
        self.pool_names.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    /// Features that all OSDs that are up booted with.
    pub fn up_osd_features(&self) -> Features {
        let up = self.osds.iter().filter(|row| row.state.exists() && row.state.has(OsdState::UP));
        let known = up.map(|row| row.xinfo.features).filter(|&f| f != 0);
        Features(known.reduce(|all, f| all & f).unwrap_or(0))
    }

    /// The features that this epoch is written for (`get_encoding_features`): what every OSD that
    /// `require_osd_release` admits can read. All monitors and OSDs hold these bytes, and the crc is over them.
    pub fn encoding_features(&self) -> Features {
        // Only the release's own bit goes, not the incarnation's markers, which are other features' as well.
        const BIT: fn(u64) -> u64 = |mask| mask & !(1 << 57 | 1 << 28);
        let newer = [
            (Release::TENTACLE, BIT(features::SERVER_TENTACLE)),
            (Release::REEF, BIT(features::SERVER_REEF)),
            (Release::OCTOPUS, BIT(features::SERVER_OCTOPUS)),
            (Release::NAUTILUS, BIT(features::SERVER_NAUTILUS)),
            (Release::MIMIC, 1 << 28),
            (Release::LUMINOUS, BIT(features::SERVER_LUMINOUS)),
        ];
        let gone = newer.iter().filter(|(release, _)| self.require_osd_release < *release);
        Features(gone.fold(features::OSDMAP_SIGNIFICANT, |all, (_, bit)| all & !bit))
    }

    /// The features to write this epoch with for a peer that may know less than the OSDs.
    pub fn features_for(&self, peer: Features) -> Features {
        Features(self.encoding_features().0 & peer.0)
    }

    fn row(&self, osd: i32) -> Option<&OsdRow> {
        self.osds.get(usize::try_from(osd).ok()?)
    }
}
