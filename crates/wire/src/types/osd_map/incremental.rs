//! The step from one epoch of the map to the next (`OSDMap::Incremental`).

use super::{ErasureCodeProfiles, OsdMap, OsdXinfo};
use crate::types::{
    CrushMap, EntityAddr, EntityAddrVec, Epoch, IntervalSet, PgId, PgPool, PoolId, Release, UTime, Uuid,
};
use ::codec::{Decode, DecodeError, Encode, Features, Reader};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Changes. `None`, an empty collection or an absent key changes nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OsdMapIncremental {
    pub fsid: Uuid,
    /// The epoch that this leads to.
    pub epoch: Epoch,
    pub modified: UTime,
    /// The features that the epoch's canonical bytes, and `full_crc`, are for. Written from what the writer has.
    pub encode_features: u64,
    /// The crc of the epoch's canonical bytes.
    pub full_crc: u32,

    /// A whole map in place of the rest (rare), as bytes; empty for none.
    pub full_map: Bytes,
    /// A new CRUSH map, as bytes; empty for none.
    pub crush: Bytes,

    pub new_pool_max: Option<i64>,
    pub new_flags: Option<u32>,
    pub new_max_osd: Option<i32>,
    pub new_pools: BTreeMap<PoolId, PgPool>,
    pub new_pool_names: BTreeMap<PoolId, String>,
    pub old_pools: BTreeSet<PoolId>,
    pub new_erasure_code_profiles: ErasureCodeProfiles,
    pub old_erasure_code_profiles: Vec<String>,

    /// OSDs that come up, with where they listen. The heartbeat addresses must name the same OSDs.
    pub new_up_client: BTreeMap<i32, EntityAddrVec>,
    pub new_up_cluster: BTreeMap<i32, EntityAddrVec>,
    pub new_heartbeat_back_up: BTreeMap<i32, EntityAddrVec>,
    pub new_heartbeat_front_up: BTreeMap<i32, EntityAddrVec>,
    /// Bits to flip in an OSD's state; 0 stands for [`super::OsdState::UP`].
    pub new_state: BTreeMap<i32, u32>,
    pub new_weight: BTreeMap<i32, u32>,
    pub new_primary_affinity: BTreeMap<i32, u32>,
    pub new_up_thru: BTreeMap<i32, Epoch>,
    pub new_last_clean_interval: BTreeMap<i32, (Epoch, Epoch)>,
    pub new_lost: BTreeMap<i32, Epoch>,
    pub new_uuid: BTreeMap<i32, Uuid>,
    pub new_xinfo: BTreeMap<i32, OsdXinfo>,

    /// An empty set removes the PG's entry, and so does a primary of -1.
    pub new_pg_temp: BTreeMap<PgId, Vec<i32>>,
    pub new_primary_temp: BTreeMap<PgId, i32>,
    pub new_pg_upmap: BTreeMap<PgId, Vec<i32>>,
    pub old_pg_upmap: BTreeSet<PgId>,
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(i32, i32)>>,
    pub old_pg_upmap_items: BTreeSet<PgId>,
    pub new_pg_upmap_primaries: BTreeMap<PgId, i32>,
    pub old_pg_upmap_primaries: BTreeSet<PgId>,

    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,

    /// Zero changes nothing.
    pub new_last_up_change: UTime,
    pub new_last_in_change: UTime,

    pub new_blocklist: BTreeMap<EntityAddr, UTime>,
    pub old_blocklist: Vec<EntityAddr>,
    pub new_range_blocklist: BTreeMap<EntityAddr, UTime>,
    pub old_range_blocklist: Vec<EntityAddr>,

    pub cluster_snapshot: String,

    pub new_nearfull_ratio: Option<f32>,
    pub new_full_ratio: Option<f32>,
    pub new_backfillfull_ratio: Option<f32>,
    pub new_require_min_compat_client: Option<Release>,
    pub new_require_osd_release: Option<Release>,

    /// 0 removes the node's entry.
    pub new_crush_node_flags: BTreeMap<i32, u32>,
    pub new_device_class_flags: BTreeMap<i32, u32>,

    pub stretch: Option<StretchChange>,
    pub crimson: Option<CrimsonChange>,
}

/// Stretch mode as it is to be, whole.
pub type StretchChange = super::StretchMode;

/// Crimson OSDs may join from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrimsonChange {
    Allow,
    Forbid,
}

impl OsdMapIncremental {
    /// A change of `map` that changes nothing yet.
    pub fn after(map: &OsdMap, modified: UTime) -> OsdMapIncremental {
        OsdMapIncremental { fsid: map.fsid, epoch: map.epoch + 1, modified, ..OsdMapIncremental::default() }
    }

    pub fn set_crush(&mut self, crush: &CrushMap, features: Features) {
        self.crush = crush.to_vec(features).into();
    }

    pub fn decode_crush(&self) -> Result<Option<CrushMap>, DecodeError> {
        if self.crush.is_empty() {
            return Ok(None);
        }
        CrushMap::decode(&mut Reader::new(&self.crush)).map(Some)
    }

    /// Name the features and the crc of the map that this leads to from `map`, so that everyone who applies it can
    /// tell whether they got the same. Done once, by who makes the change, after all else is in it.
    pub fn seal(&mut self, map: &OsdMap) -> Result<OsdMap, super::ApplyError> {
        let next = map.apply(self)?;
        self.encode_features = next.encoding_features().0;
        self.full_crc = next.to_canonical().1;
        Ok(next)
    }

    /// The change as a peer with `features` reads it: maps embedded as bytes are written anew for it.
    pub fn to_vec_for(&self, peer: Features) -> Result<Vec<u8>, DecodeError> {
        let features = Features(self.encode_features & peer.0);
        if features.0 == self.encode_features {
            return Ok(self.to_vec(features));
        }
        let mut own = self.clone();
        if !own.full_map.is_empty() {
            own.full_map = OsdMap::decode(&mut Reader::new(&own.full_map))?.to_vec(features).into();
        }
        if let Some(crush) = own.decode_crush()? {
            own.set_crush(&crush, features);
        }
        Ok(own.to_vec(features))
    }
}
