//! The bytes of a whole map.
//!
//! ```text
//! envelope 8 ─┬─ envelope 7..10: what clients use (pools, OSDs' addresses and states, CRUSH, exceptions)
//!             ├─ envelope 6..12: what only daemons use (OSDs' histories, blocklist, ratios)
//!             └─ u32 crc32c of all the rest of the envelope, its header included
//! ```
//! Client part: 9 since Nautilus, 10 since Reef (upmapped primaries). Daemon part: 9 since Nautilus, and 10, 11 or
//! 12 only when the map has what they brought (stretch mode, blocked networks, Crimson), so that older daemons
//! refuse nothing they do not have to.

use super::{MapFlags, OsdMap, OsdState, StretchMode, seal};
use crate::features::{RESERVED, SERVER_REEF};
use crate::types::{EntityAddrVec, OsdRow, Release};
use ::codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use std::sync::Arc;

impl Encode for OsdMap {
    fn encode(&self, w: &mut Writer) {
        self.encode_with_crc(w);
    }
}

impl OsdMap {
    /// The map's bytes for [`OsdMap::encoding_features`] and their crc, which the incremental to this epoch names.
    pub fn to_canonical(&self) -> (Vec<u8>, u32) {
        let mut w = Writer::new(self.encoding_features());
        let crc = self.encode_with_crc(&mut w);
        (w.into_vec(), crc)
    }

    /// Appends the map; returns its crc.
    pub fn encode_with_crc(&self, w: &mut Writer) -> u32 {
        let (start, mut crc_at) = (w.len(), 0);
        w.envelope(8, 7, |w| {
            self.encode_client_part(w);
            self.encode_daemon_part(w);
            crc_at = w.len();
            w.u32(0);
        });
        seal::close(w, start, crc_at)
    }

    fn column<T: Encode>(&self, w: &mut Writer, field: impl Fn(&OsdRow) -> &T) {
        w.count(self.osds.len());
        self.osds.iter().for_each(|row| w.put(field(row)));
    }

    fn encode_client_part(&self, w: &mut Writer) {
        let version = if w.features().has(SERVER_REEF) { 10 } else { 9 };
        w.envelope(version, 1, |w| {
            w.put(&self.fsid);
            w.u32(self.epoch);
            w.put(&self.created);
            w.put(&self.modified);
            w.put(&self.pools);
            w.put(&self.pool_names);
            w.i32(self.pool_max);
            w.u32(self.flags.0);
            w.i32(self.max_osd());
            self.column(w, |row| &row.state.0);
            self.column(w, |row| &row.weight);
            self.column(w, |row| &row.addrs.client);
            w.put(&self.pg_temp);
            w.put(&self.primary_temp);
            w.put(self.primary_affinity.as_deref().unwrap_or_default());
            w.blob_of(|w| w.put(&*self.crush));
            w.put(&self.erasure_code_profiles);
            w.put(&self.pg_upmap);
            w.put(&self.pg_upmap_items);
            w.u32(self.crush_version);
            w.put(&self.new_removed_snaps);
            w.put(&self.new_purged_snaps);
            w.put(&self.last_up_change);
            w.put(&self.last_in_change);
            if version >= 10 {
                w.put(&self.pg_upmap_primaries);
            }
        });
    }

    fn encode_daemon_part(&self, w: &mut Writer) {
        let version = match self {
            _ if self.allow_crimson => 12,
            _ if !self.range_blocklist.is_empty() => 11,
            _ if self.stretch.enabled => 10,
            _ => 9,
        };
        w.envelope(version, 1, |w| {
            self.column(w, |row| &row.addrs.heartbeat_back);
            self.column(w, |row| &row.info);
            w.put(&self.blocklist);
            self.column(w, |row| &row.addrs.cluster);
            w.u32(self.cluster_snapshot_epoch);
            w.put(&self.cluster_snapshot);
            self.column(w, |row| &row.uuid);
            self.column(w, |row| &row.xinfo);
            self.column(w, |row| &row.addrs.heartbeat_front);
            w.f32(self.nearfull_ratio);
            w.f32(self.full_ratio);
            w.f32(self.backfillfull_ratio);
            w.put(&self.require_min_compat_client);
            w.put(&self.require_osd_release);
            w.put(&self.removed_snaps_queue);
            w.put(&self.crush_node_flags);
            w.put(&self.device_class_flags);
            if version >= 10 {
                w.bool(self.stretch.enabled);
                w.u32(self.stretch.bucket_count);
                w.u32(self.stretch.degraded);
                w.u32(self.stretch.recovering);
                w.i32(self.stretch.bucket);
            }
            if version >= 11 {
                w.put(&self.range_blocklist);
            }
            if version >= 12 {
                w.bool(self.allow_crimson);
            }
        });
    }
}

impl Decode for OsdMap {
    const MIN_LEN: usize = 6;

    /// Refuses a map whose crc does not hold, whose OSD arrays differ in length, or from before Nautilus.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (start, ahead) = (r.offset(), r.ahead());
        let mut crc = None;
        let mut map = r.envelope("OSDMap", 8, |r, version| {
            if version < 7 {
                return Err(DecodeError::TooOld { what: "OSDMap", version });
            }
            let mut map = OsdMap::default();
            r.envelope("OSDMap client part", 10, |r, version| map.decode_client_part(r, version))?;
            r.envelope("OSDMap daemon part", 12, |r, version| map.decode_daemon_part(r, version))?;
            if version >= 8 {
                r.label("crc");
                crc = Some((r.offset() - start, r.u32()?));
            }
            Ok(map)
        })?;
        if let Some((at, stored)) = crc {
            seal::verify("OSDMap crc", &ahead[..r.offset() - start], at, stored)?;
        }
        if map.require_osd_release >= Release::NAUTILUS {
            map.flags.set(MapFlags::PGLOG_HARDLIMIT, true);
        }
        if map.require_osd_release >= Release::LUMINOUS {
            map.flags.set(MapFlags::LEGACY_REQUIRE, false);
            map.flags.set(MapFlags::RECOVERY_DELETES, true);
        }
        Ok(map)
    }
}

impl OsdMap {
    /// An array over all OSDs, of which there must be as many as of the first one read.
    fn read_column<T: Decode>(
        &mut self,
        r: &mut Reader<'_>,
        name: &'static str,
        mut set: impl FnMut(&mut OsdRow, T),
    ) -> Result<(), DecodeError> {
        r.label(name);
        let n = r.count(name, T::MIN_LEN)?;
        if n != self.osds.len() {
            return Err(r.invalid(name, n));
        }
        for row in &mut self.osds {
            set(row, r.get()?);
        }
        Ok(())
    }

    fn decode_client_part(&mut self, r: &mut Reader<'_>, version: u8) -> Result<(), DecodeError> {
        if version < 8 {
            return Err(DecodeError::TooOld { what: "OSDMap client part", version });
        }
        r.label("fsid");
        self.fsid = r.get()?;
        r.label("epoch");
        self.epoch = r.u32()?;
        r.label("created");
        self.created = r.get()?;
        r.label("modified");
        self.modified = r.get()?;
        r.label("pools");
        self.pools = r.get()?;
        r.label("pool_names");
        self.pool_names = r.get()?;
        r.label("pool_max");
        self.pool_max = r.i32()?;
        r.label("flags");
        self.flags = MapFlags(r.u32()?);
        r.label("max_osd");
        let max_osd = r.i32()?;
        // Each OSD takes 4 bytes of the very next array, so the rows are bounded by what is there.
        let room = r.remaining() / 4;
        match usize::try_from(max_osd) {
            Ok(n) if n <= room => self.osds.resize_with(n, OsdRow::default),
            _ => return Err(r.invalid("max_osd", max_osd as u32)),
        }
        self.read_column(r, "osd_state", |row, state: u32| row.state = OsdState(state))?;
        self.read_column(r, "osd_weight", |row, weight: u32| row.weight = weight)?;
        self.read_column(r, "client_addrs", |row, a: EntityAddrVec| row.addrs.client = a)?;
        r.label("pg_temp");
        self.pg_temp = r.get()?;
        r.label("primary_temp");
        self.primary_temp = r.get()?;
        r.label("primary_affinity");
        let affinity: Vec<u32> = r.get()?;
        self.primary_affinity = match affinity.len() {
            0 => None,
            n if n == self.osds.len() => Some(affinity),
            n => return Err(r.invalid("primary_affinity", n)),
        };
        let len = r.u32()? as usize;
        r.label("crush");
        self.crush = Arc::new(r.sub("crush", len)?.get()?);
        r.label("erasure_code_profiles");
        self.erasure_code_profiles = r.get()?;
        r.label("pg_upmap");
        self.pg_upmap = r.get()?;
        r.label("pg_upmap_items");
        self.pg_upmap_items = r.get()?;
        r.label("crush_version");
        self.crush_version = r.u32()?;
        r.label("new_removed_snaps");
        self.new_removed_snaps = r.get()?;
        r.label("new_purged_snaps");
        self.new_purged_snaps = r.get()?;
        if version >= 9 {
            r.label("last_up_change");
            self.last_up_change = r.get()?;
            r.label("last_in_change");
            self.last_in_change = r.get()?;
        }
        if version >= 10 {
            r.label("pg_upmap_primaries");
            self.pg_upmap_primaries = r.get()?;
        }
        Ok(())
    }

    fn decode_daemon_part(&mut self, r: &mut Reader<'_>, version: u8) -> Result<(), DecodeError> {
        if version < 7 {
            return Err(DecodeError::TooOld { what: "OSDMap daemon part", version });
        }
        self.read_column(r, "heartbeat_back", |row, a: EntityAddrVec| row.addrs.heartbeat_back = a)?;
        self.read_column(r, "osd_info", |row, info| row.info = info)?;
        r.label("blocklist");
        self.blocklist = r.get()?;
        self.read_column(r, "cluster_addrs", |row, a: EntityAddrVec| row.addrs.cluster = a)?;
        r.label("cluster_snapshot_epoch");
        self.cluster_snapshot_epoch = r.u32()?;
        self.cluster_snapshot = r.get()?;
        self.read_column(r, "osd_uuid", |row, uuid| row.uuid = uuid)?;
        self.read_column(r, "osd_xinfo", |row, xinfo| row.xinfo = xinfo)?;
        self.read_column(r, "heartbeat_front", |row, a: EntityAddrVec| row.addrs.heartbeat_front = a)?;
        r.label("nearfull_ratio");
        self.nearfull_ratio = r.f32()?;
        r.label("full_ratio");
        self.full_ratio = r.f32()?;
        r.label("backfillfull_ratio");
        self.backfillfull_ratio = r.f32()?;
        r.label("require_min_compat_client");
        self.require_min_compat_client = r.get()?;
        r.label("require_osd_release");
        self.require_osd_release = r.get()?;
        r.label("removed_snaps_queue");
        self.removed_snaps_queue = r.get()?;
        if version >= 8 {
            r.label("crush_node_flags");
            self.crush_node_flags = r.get()?;
        }
        if version >= 9 {
            r.label("device_class_flags");
            self.device_class_flags = r.get()?;
        }
        if version >= 10 {
            r.label("stretch");
            self.stretch = StretchMode {
                enabled: r.bool()?,
                bucket_count: r.u32()?,
                degraded: r.u32()?,
                recovering: r.u32()?,
                bucket: r.i32()?,
            };
        }
        if version >= 11 {
            r.label("range_blocklist");
            self.range_blocklist = r.get()?;
        }
        if version >= 12 {
            r.label("allow_crimson");
            self.allow_crimson = r.bool()?;
        }
        Ok(())
    }
}

/// The features as they stand inside a map: stock's sentinel never gets there.
pub(super) fn without_sentinel(features: Features) -> u64 {
    features.0 & !RESERVED
}
