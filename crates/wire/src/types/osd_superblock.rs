//! Superblock of an OSD's store, which the OSD sends to the monitor when it boots (`OSDSuperblock`).

use super::{CompatSet, Epoch, UTime, Uuid};
use codec::{Decode, DecodeError, Encode, Reader, Writer};

#[derive(Clone, PartialEq, Debug, Default)]
pub struct OsdSuperblock {
    pub cluster_fsid: Uuid,
    pub osd_fsid: Uuid,
    pub whoami: i32,
    /// The newest map that the OSD has worked with.
    pub current_epoch: Epoch,
    /// Epochs of the map that the store holds: start and count of each run.
    pub maps: Vec<(Epoch, u32)>,
    pub weight: f64,
    pub compat_features: CompatSet,
    /// The last epoch that the OSD stopped cleanly in, and the one it was then mounted at.
    pub clean_thru: Epoch,
    pub mounted: Epoch,
    pub purged_snaps_last: Epoch,
    pub last_purged_snaps_scrub: UTime,
    /// Maps below this may be forgotten, as far as the monitor has said.
    pub trim_lower_bound: Epoch,
}

impl OsdSuperblock {
    pub fn oldest_map(&self) -> Epoch {
        self.maps.first().map_or(0, |(start, _)| *start)
    }

    pub fn newest_map(&self) -> Epoch {
        self.maps.last().map_or(0, |(start, count)| start.saturating_add(*count).saturating_sub(1))
    }
}

impl Encode for OsdSuperblock {
    fn encode(&self, w: &mut Writer) {
        w.envelope(11, 5, |w| {
            w.put(&self.cluster_fsid);
            w.i32(self.whoami);
            w.u32(self.current_epoch);
            w.u64(0); // the oldest and the newest map, before there could be gaps
            w.f64(self.weight);
            w.put(&self.compat_features);
            w.u32(self.clean_thru);
            w.u32(self.mounted);
            w.put(&self.osd_fsid);
            w.u64(0); // when the cluster and each pool were last full, which nobody needs since Luminous
            w.u32(self.purged_snaps_last);
            w.put(&self.last_purged_snaps_scrub);
            w.u32(self.trim_lower_bound);
            w.put(&self.maps);
        });
    }
}

impl Decode for OsdSuperblock {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("OSDSuperblock", 11, |r, version| {
            if version < 8 {
                return Err(DecodeError::TooOld { what: "OSDSuperblock", version });
            }
            let cluster_fsid = codec::field(r, "cluster_fsid", true, Uuid::default)?;
            let whoami = codec::field(r, "whoami", true, i32::default)?;
            let current_epoch = codec::field(r, "current_epoch", true, Epoch::default)?;
            let oldest_map = codec::field(r, "oldest_map", true, Epoch::default)?;
            let newest_map = codec::field(r, "newest_map", true, Epoch::default)?;
            let weight = codec::field(r, "weight", true, f64::default)?;
            let compat_features = r.get()?;
            let clean_thru = codec::field(r, "clean_thru", true, Epoch::default)?;
            let mounted = codec::field(r, "mounted", true, Epoch::default)?;
            let osd_fsid = codec::field(r, "osd_fsid", true, Uuid::default)?;
            let _last_full = r.u32()?;
            let _pools_last_full = r.get::<std::collections::BTreeMap<i64, Epoch>>()?;
            let one_run = || match newest_map {
                0 => Vec::new(),
                _ => vec![(oldest_map, (newest_map - oldest_map.min(newest_map)).saturating_add(1))],
            };
            Ok(OsdSuperblock {
                cluster_fsid,
                osd_fsid,
                whoami,
                current_epoch,
                weight,
                compat_features,
                clean_thru,
                mounted,
                purged_snaps_last: codec::field(r, "purged_snaps_last", version >= 9, Epoch::default)?,
                last_purged_snaps_scrub: codec::field(r, "purged_scrub", version >= 9, UTime::default)?,
                trim_lower_bound: codec::field(r, "trim_lower_bound", version >= 10, Epoch::default)?,
                maps: codec::field(r, "maps", version >= 11, one_run)?,
            })
        })
    }
}
