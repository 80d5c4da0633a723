//! One step of the map (`OSDMap::apply_incremental`): the same result as stock's, byte for byte, since every
//! daemon compares the crc.

use super::{CrimsonChange, MapFlags, OsdInfo, OsdMap, OsdMapIncremental, OsdRow, OsdState, OsdXinfo};
use crate::types::{CrushMap, EntityAddrVec, Epoch, PoolId, Release, UTime, Uuid};
use ::codec::{Decode, DecodeError, Features, Reader, Writer};
use std::sync::Arc;
use thiserror::Error;

/// The most OSDs that a change may make room for. Stock's own limit (`mon_max_osd`) is 10,000.
const MAX_OSDS: i32 = 1_000_000;

#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ApplyError {
    #[error("a change of cluster {theirs} does not fit a map of {ours}")]
    OtherCluster { ours: Uuid, theirs: Uuid },
    #[error("a change to epoch {change} does not fit the map of epoch {map}")]
    NotNext { map: Epoch, change: Epoch },
    #[error("osd.{0} is beyond max_osd")]
    NoSuchOsd(i32),
    #[error("osd.{0} comes up without heartbeat addresses")]
    NoHeartbeat(i32),
    #[error("{0} is not a number of OSDs")]
    MaxOsd(i32),
    #[error("snapshots of pool {0} were purged that were not in the queue")]
    NotQueued(PoolId),
    #[error("the map inside the change: {0}")]
    Embedded(#[from] DecodeError),
    #[error("the result has crc {actual:#010x}, not {expected:#010x}")]
    Crc { expected: u32, actual: u32 },
}

impl OsdMap {
    /// The map after `inc`. The map itself stays as it is, whatever goes wrong.
    pub fn apply(&self, inc: &OsdMapIncremental) -> Result<OsdMap, ApplyError> {
        let mut map = self.clone();
        map.step(inc)?;
        Ok(map)
    }

    /// [`OsdMap::apply`] for a daemon, which gets changes as everyone has them, and must end with the same bytes.
    /// (What a client gets may be written for it alone; the crc is not of those bytes.)
    pub fn apply_verified(&self, inc: &OsdMapIncremental) -> Result<OsdMap, ApplyError> {
        let map = self.apply(inc)?;
        let mut w = Writer::new(Features(inc.encode_features));
        let (expected, actual) = (inc.full_crc, map.encode_with_crc(&mut w));
        if expected != actual {
            return Err(ApplyError::Crc { expected, actual });
        }
        Ok(map)
    }

    fn step(&mut self, inc: &OsdMapIncremental) -> Result<(), ApplyError> {
        match inc.epoch {
            1 => self.fsid = inc.fsid,
            _ if inc.fsid != self.fsid => {
                return Err(ApplyError::OtherCluster { ours: self.fsid, theirs: inc.fsid });
            }
            _ => {}
        }
        if self.epoch.checked_add(1) != Some(inc.epoch) {
            return Err(ApplyError::NotNext { map: self.epoch, change: inc.epoch });
        }
        self.epoch = inc.epoch;
        self.modified = inc.modified;
        if !inc.full_map.is_empty() {
            *self = OsdMap::decode(&mut Reader::new(&inc.full_map))?;
            return Ok(());
        }

        if let Some(flags) = inc.new_flags {
            self.flags = MapFlags(flags);
        }
        if let Some(max_osd) = inc.new_max_osd {
            self.set_max_osd(max_osd)?;
        }
        self.step_pools(inc)?;
        self.step_osds(inc)?;
        self.step_placement(inc);
        self.step_blocklists(inc);
        self.step_settings(inc);
        self.step_crush(inc)?;
        if let Some(stretch) = inc.stretch {
            self.stretch = stretch;
        }
        if let Some(crimson) = inc.crimson {
            self.allow_crimson = crimson == CrimsonChange::Allow;
        }
        Ok(())
    }

    fn set_max_osd(&mut self, max_osd: i32) -> Result<(), ApplyError> {
        if !(0..=MAX_OSDS).contains(&max_osd) {
            return Err(ApplyError::MaxOsd(max_osd));
        }
        self.osds.resize_with(max_osd as usize, OsdRow::default);
        if let Some(affinity) = &mut self.primary_affinity {
            affinity.resize(max_osd as usize, OsdMap::DEFAULT_PRIMARY_AFFINITY);
        }
        Ok(())
    }

    fn row_mut(&mut self, osd: i32) -> Result<&mut OsdRow, ApplyError> {
        let index = usize::try_from(osd).map_err(|_| ApplyError::NoSuchOsd(osd))?;
        self.osds.get_mut(index).ok_or(ApplyError::NoSuchOsd(osd))
    }

    fn step_pools(&mut self, inc: &OsdMapIncremental) -> Result<(), ApplyError> {
        if let Some(pool_max) = inc.new_pool_max {
            self.pool_max = pool_max as i32;
        }
        for (id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = self.epoch;
            self.pools.insert(*id, pool);
        }
        self.new_removed_snaps.clone_from(&inc.new_removed_snaps);
        self.new_purged_snaps.clone_from(&inc.new_purged_snaps);
        for (pool, snaps) in &inc.new_removed_snaps {
            let queue = self.removed_snaps_queue.entry(*pool).or_default();
            snaps.iter().for_each(|(start, len)| queue.insert(start, len));
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            let queue = self.removed_snaps_queue.get_mut(pool).ok_or(ApplyError::NotQueued(*pool))?;
            snaps.iter().for_each(|(start, len)| queue.remove(start, len));
            if queue.is_empty() {
                self.removed_snaps_queue.remove(pool);
            }
        }
        if inc.new_last_up_change != UTime::ZERO {
            self.last_up_change = inc.new_last_up_change;
        }
        if inc.new_last_in_change != UTime::ZERO {
            self.last_in_change = inc.new_last_in_change;
        }
        self.pool_names.extend(inc.new_pool_names.iter().map(|(id, name)| (*id, name.clone())));
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_names.remove(id);
        }
        for name in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(name);
        }
        let new = inc.new_erasure_code_profiles.iter();
        self.erasure_code_profiles.extend(new.map(|(name, profile)| (name.clone(), profile.clone())));
        Ok(())
    }

    /// The order matters: a weight may make an OSD exist, a state may destroy it, and coming up overrides both.
    fn step_osds(&mut self, inc: &OsdMapIncremental) -> Result<(), ApplyError> {
        for (&osd, &weight) in &inc.new_weight {
            let row = self.row_mut(osd)?;
            row.weight = weight;
            if weight != 0 {
                row.state.0 |= OsdState::EXISTS;
                row.state.0 &= !(OsdState::AUTOOUT | OsdState::NEW);
                row.xinfo.old_weight = 0;
            }
        }
        for (&osd, &affinity) in &inc.new_primary_affinity {
            self.set_primary_affinity(osd, affinity)?;
        }
        for (&osd, &flip) in &inc.new_state {
            self.flip_state(osd, if flip == 0 { OsdState::UP } else { flip })?;
        }
        let epoch = self.epoch;
        for (&osd, client) in &inc.new_up_client {
            let heartbeat = |of: &std::collections::BTreeMap<i32, EntityAddrVec>| {
                of.get(&osd).cloned().ok_or(ApplyError::NoHeartbeat(osd))
            };
            let back = heartbeat(&inc.new_heartbeat_back_up)?;
            let front = heartbeat(&inc.new_heartbeat_front_up)?;
            let row = self.row_mut(osd)?;
            row.state.0 |= OsdState::EXISTS | OsdState::UP;
            row.state.0 &= !OsdState::STOP;
            row.addrs.client = client.clone();
            row.addrs.heartbeat_back = back;
            row.addrs.heartbeat_front = front;
            row.info.up_from = epoch;
        }
        for (&osd, cluster) in &inc.new_up_cluster {
            self.row_mut(osd)?.addrs.cluster = cluster.clone();
        }
        for (&osd, &up_thru) in &inc.new_up_thru {
            self.row_mut(osd)?.info.up_thru = up_thru;
        }
        for (&osd, &(begin, end)) in &inc.new_last_clean_interval {
            let info = &mut self.row_mut(osd)?.info;
            (info.last_clean_begin, info.last_clean_end) = (begin, end);
        }
        for (&osd, &lost_at) in &inc.new_lost {
            self.row_mut(osd)?.info.lost_at = lost_at;
        }
        for (&osd, xinfo) in &inc.new_xinfo {
            self.row_mut(osd)?.xinfo = *xinfo;
        }
        for (&osd, uuid) in &inc.new_uuid {
            self.row_mut(osd)?.uuid = *uuid;
        }
        Ok(())
    }

    fn flip_state(&mut self, osd: i32, flip: u32) -> Result<(), ApplyError> {
        let (epoch, modified) = (self.epoch, self.modified);
        let row = self.row_mut(osd)?;
        let gone = |bit| row.state.has(bit) && flip & bit != 0;
        let (goes_down, is_destroyed) = (gone(OsdState::UP), gone(OsdState::EXISTS));
        if goes_down {
            row.info.down_at = epoch;
            row.xinfo.down_stamp = modified;
        }
        if !is_destroyed {
            row.state.0 ^= flip;
            return Ok(());
        }
        // All that is left of it is its weight.
        *row = OsdRow { weight: row.weight, ..OsdRow::default() };
        debug_assert!(row.info == OsdInfo::default() && row.xinfo == OsdXinfo::default());
        self.set_primary_affinity(osd, OsdMap::DEFAULT_PRIMARY_AFFINITY)
    }

    /// Setting one, even to the default, gives every OSD one.
    fn set_primary_affinity(&mut self, osd: i32, affinity: u32) -> Result<(), ApplyError> {
        let count = self.osds.len();
        let all = self.primary_affinity.get_or_insert_with(|| vec![OsdMap::DEFAULT_PRIMARY_AFFINITY; count]);
        let index = usize::try_from(osd).map_err(|_| ApplyError::NoSuchOsd(osd))?;
        *all.get_mut(index).ok_or(ApplyError::NoSuchOsd(osd))? = affinity;
        Ok(())
    }

    fn step_placement(&mut self, inc: &OsdMapIncremental) {
        for (pg, osds) in &inc.new_pg_temp {
            match osds.is_empty() {
                true => self.pg_temp.remove(pg),
                false => self.pg_temp.insert(*pg, osds.clone()),
            };
        }
        for (pg, &primary) in &inc.new_primary_temp {
            match primary {
                -1 => self.primary_temp.remove(pg),
                _ => self.primary_temp.insert(*pg, primary),
            };
        }
        self.pg_upmap.extend(inc.new_pg_upmap.iter().map(|(pg, to)| (*pg, to.clone())));
        self.pg_upmap.retain(|pg, _| !inc.old_pg_upmap.contains(pg));
        self.pg_upmap_items.extend(inc.new_pg_upmap_items.iter().map(|(pg, to)| (*pg, to.clone())));
        self.pg_upmap_items.retain(|pg, _| !inc.old_pg_upmap_items.contains(pg));
        self.pg_upmap_primaries.extend(&inc.new_pg_upmap_primaries);
        self.pg_upmap_primaries.retain(|pg, _| !inc.old_pg_upmap_primaries.contains(pg));
    }

    /// An address that is blocked already keeps its time.
    fn step_blocklists(&mut self, inc: &OsdMapIncremental) {
        for (addr, until) in &inc.new_blocklist {
            self.blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_blocklist {
            self.blocklist.remove(addr);
        }
        for (addr, until) in &inc.new_range_blocklist {
            self.range_blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_range_blocklist {
            self.range_blocklist.remove(addr);
        }
    }

    fn step_settings(&mut self, inc: &OsdMapIncremental) {
        for (flags, new) in [
            (&mut self.crush_node_flags, &inc.new_crush_node_flags),
            (&mut self.device_class_flags, &inc.new_device_class_flags),
        ] {
            flags.extend(new);
            flags.retain(|_, set| *set != 0);
        }
        self.cluster_snapshot.clone_from(&inc.cluster_snapshot);
        self.cluster_snapshot_epoch = if inc.cluster_snapshot.is_empty() { 0 } else { inc.epoch };

        self.nearfull_ratio = inc.new_nearfull_ratio.unwrap_or(self.nearfull_ratio);
        self.backfillfull_ratio = inc.new_backfillfull_ratio.unwrap_or(self.backfillfull_ratio);
        self.full_ratio = inc.new_full_ratio.unwrap_or(self.full_ratio);
        if let Some(release) = inc.new_require_min_compat_client.filter(|&r| r != Release::UNKNOWN) {
            self.require_min_compat_client = release;
        }
        if let Some(release) = inc.new_require_osd_release {
            self.require_osd_release = release;
            if release >= Release::LUMINOUS {
                self.flags.set(MapFlags::LEGACY_REQUIRE, false);
                self.flags.set(MapFlags::RECOVERY_DELETES, true);
            }
            if release >= Release::NAUTILUS {
                self.flags.set(MapFlags::PGLOG_HARDLIMIT, true);
            }
        }
    }

    fn step_crush(&mut self, inc: &OsdMapIncremental) -> Result<(), ApplyError> {
        let Some(crush) = inc.decode_crush()? else { return Ok(()) };
        let crush: Arc<CrushMap> = Arc::new(crush);
        if self.require_osd_release >= Release::LUMINOUS {
            self.crush_version = self.crush_version.wrapping_add(1);
        }
        // Flags of a device class that is gone go with it.
        self.device_class_flags.retain(|class, _| crush.class_names.contains_key(class));
        self.crush = crush;
        Ok(())
    }
}
