//! The bytes of a change of the map: as the map itself, two envelopes in one, with two checksums at the end, of
//! these bytes and of the map that they lead to.

use super::codec::without_sentinel;
use super::{CrimsonChange, OsdMapIncremental, StretchChange, seal};
use crate::features::SERVER_REEF;
use crate::types::Release;
use ::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Releases and ratios that stay as they are.
const NO_RELEASE: Release = Release(0xff);
const NO_RATIO: f32 = -1.0;

impl Encode for OsdMapIncremental {
    fn encode(&self, w: &mut Writer) {
        let (start, mut crc_at) = (w.len(), 0);
        w.envelope(8, 7, |w| {
            self.encode_client_part(w);
            self.encode_daemon_part(w);
            crc_at = w.len();
            w.u32(0);
            w.u32(self.full_crc);
        });
        seal::close(w, start, crc_at);
    }
}

impl OsdMapIncremental {
    fn encode_client_part(&self, w: &mut Writer) {
        let version = if w.features().has(SERVER_REEF) { 9 } else { 8 };
        w.envelope(version, 1, |w| {
            w.put(&self.fsid);
            w.u32(self.epoch);
            w.put(&self.modified);
            w.i64(self.new_pool_max.unwrap_or(-1));
            w.i32(self.new_flags.map_or(-1, |flags| flags as i32));
            w.put(&self.full_map);
            w.put(&self.crush);
            w.i32(self.new_max_osd.unwrap_or(-1));
            w.put(&self.new_pools);
            w.put(&self.new_pool_names);
            w.put(&self.old_pools);
            w.put(&self.new_up_client);
            w.put(&self.new_state);
            w.put(&self.new_weight);
            w.put(&self.new_pg_temp);
            w.put(&self.new_primary_temp);
            w.put(&self.new_primary_affinity);
            w.put(&self.new_erasure_code_profiles);
            w.put(&self.old_erasure_code_profiles);
            w.put(&self.new_pg_upmap);
            w.put(&self.old_pg_upmap);
            w.put(&self.new_pg_upmap_items);
            w.put(&self.old_pg_upmap_items);
            w.put(&self.new_removed_snaps);
            w.put(&self.new_purged_snaps);
            w.put(&self.new_last_up_change);
            w.put(&self.new_last_in_change);
            if version >= 9 {
                w.put(&self.new_pg_upmap_primaries);
                w.put(&self.old_pg_upmap_primaries);
            }
        });
    }

    fn encode_daemon_part(&self, w: &mut Writer) {
        let version = match self {
            _ if self.crimson.is_some() => 12,
            _ if !self.new_range_blocklist.is_empty() || !self.old_range_blocklist.is_empty() => 11,
            _ if self.stretch.is_some() => 10,
            _ => 9,
        };
        w.envelope(version, 1, |w| {
            w.put(&self.new_heartbeat_back_up);
            w.put(&self.new_up_thru);
            w.put(&self.new_last_clean_interval);
            w.put(&self.new_lost);
            w.put(&self.new_blocklist);
            w.put(&self.old_blocklist);
            w.put(&self.new_up_cluster);
            w.put(&self.cluster_snapshot);
            w.put(&self.new_uuid);
            w.put(&self.new_xinfo);
            w.put(&self.new_heartbeat_front_up);
            w.u64(without_sentinel(w.features()));
            w.f32(self.new_nearfull_ratio.unwrap_or(NO_RATIO));
            w.f32(self.new_full_ratio.unwrap_or(NO_RATIO));
            w.f32(self.new_backfillfull_ratio.unwrap_or(NO_RATIO));
            w.put(&self.new_require_min_compat_client.unwrap_or(NO_RELEASE));
            w.put(&self.new_require_osd_release.unwrap_or(NO_RELEASE));
            w.put(&self.new_crush_node_flags);
            w.put(&self.new_device_class_flags);
            if version >= 10 {
                let stretch = self.stretch.unwrap_or_default();
                w.bool(self.stretch.is_some());
                w.u32(stretch.bucket_count);
                w.u32(stretch.degraded);
                w.u32(stretch.recovering);
                w.i32(stretch.bucket);
                w.bool(stretch.enabled);
            }
            if version >= 11 {
                w.put(&self.new_range_blocklist);
                w.put(&self.old_range_blocklist);
            }
            if version >= 12 {
                w.u8(match self.crimson {
                    None => 0,
                    Some(CrimsonChange::Allow) => 1,
                    Some(CrimsonChange::Forbid) => 2,
                });
            }
        });
    }
}

impl Decode for OsdMapIncremental {
    const MIN_LEN: usize = 6;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (start, ahead) = (r.offset(), r.ahead());
        let mut crc = None;
        let inc = r.envelope("OSDMap::Incremental", 8, |r, version| {
            if version < 7 {
                return Err(DecodeError::TooOld { what: "OSDMap::Incremental", version });
            }
            let mut inc = OsdMapIncremental::default();
            r.envelope("Incremental client part", 9, |r, version| inc.decode_client_part(r, version))?;
            r.envelope("Incremental daemon part", 12, |r, version| inc.decode_daemon_part(r, version))?;
            if version >= 8 {
                r.label("crc");
                crc = Some((r.offset() - start, r.u32()?));
                r.label("full_crc");
                inc.full_crc = r.u32()?;
            }
            Ok(inc)
        })?;
        if let Some((at, stored)) = crc {
            seal::verify("OSDMap::Incremental crc", &ahead[..r.offset() - start], at, stored)?;
        }
        Ok(inc)
    }
}

/// A ratio below zero changes nothing.
fn ratio(value: f32) -> Option<f32> {
    (value >= 0.0).then_some(value)
}

/// Below zero, as a signed byte, likewise.
fn release(value: Release) -> Option<Release> {
    (value.0 < 0x80).then_some(value)
}

impl OsdMapIncremental {
    fn decode_client_part(&mut self, r: &mut Reader<'_>, version: u8) -> Result<(), DecodeError> {
        if version < 7 {
            return Err(DecodeError::TooOld { what: "Incremental client part", version });
        }
        r.label("fsid");
        self.fsid = r.get()?;
        r.label("epoch");
        self.epoch = r.u32()?;
        r.label("modified");
        self.modified = r.get()?;
        r.label("new_pool_max");
        self.new_pool_max = Some(r.i64()?).filter(|&n| n != -1);
        r.label("new_flags");
        self.new_flags = u32::try_from(r.i32()?).ok();
        r.label("full_map");
        self.full_map = r.get()?;
        r.label("crush");
        self.crush = r.get()?;
        r.label("new_max_osd");
        self.new_max_osd = Some(r.i32()?).filter(|&n| n >= 0);
        r.label("new_pools");
        self.new_pools = r.get()?;
        r.label("new_pool_names");
        self.new_pool_names = r.get()?;
        r.label("old_pools");
        self.old_pools = r.get()?;
        r.label("new_up_client");
        self.new_up_client = r.get()?;
        r.label("new_state");
        self.new_state = r.get()?;
        r.label("new_weight");
        self.new_weight = r.get()?;
        r.label("new_pg_temp");
        self.new_pg_temp = r.get()?;
        r.label("new_primary_temp");
        self.new_primary_temp = r.get()?;
        r.label("new_primary_affinity");
        self.new_primary_affinity = r.get()?;
        r.label("new_erasure_code_profiles");
        self.new_erasure_code_profiles = r.get()?;
        r.label("old_erasure_code_profiles");
        self.old_erasure_code_profiles = r.get()?;
        r.label("new_pg_upmap");
        self.new_pg_upmap = r.get()?;
        r.label("old_pg_upmap");
        self.old_pg_upmap = r.get()?;
        r.label("new_pg_upmap_items");
        self.new_pg_upmap_items = r.get()?;
        r.label("old_pg_upmap_items");
        self.old_pg_upmap_items = r.get()?;
        r.label("new_removed_snaps");
        self.new_removed_snaps = r.get()?;
        r.label("new_purged_snaps");
        self.new_purged_snaps = r.get()?;
        if version >= 8 {
            r.label("new_last_up_change");
            self.new_last_up_change = r.get()?;
            r.label("new_last_in_change");
            self.new_last_in_change = r.get()?;
        }
        if version >= 9 {
            r.label("new_pg_upmap_primaries");
            self.new_pg_upmap_primaries = r.get()?;
            self.old_pg_upmap_primaries = r.get()?;
        }
        Ok(())
    }

    fn decode_daemon_part(&mut self, r: &mut Reader<'_>, version: u8) -> Result<(), DecodeError> {
        if version < 7 {
            return Err(DecodeError::TooOld { what: "Incremental daemon part", version });
        }
        r.label("new_heartbeat_back_up");
        self.new_heartbeat_back_up = r.get()?;
        r.label("new_up_thru");
        self.new_up_thru = r.get()?;
        r.label("new_last_clean_interval");
        self.new_last_clean_interval = r.get()?;
        r.label("new_lost");
        self.new_lost = r.get()?;
        r.label("new_blocklist");
        self.new_blocklist = r.get()?;
        r.label("old_blocklist");
        self.old_blocklist = r.get()?;
        r.label("new_up_cluster");
        self.new_up_cluster = r.get()?;
        r.label("cluster_snapshot");
        self.cluster_snapshot = r.get()?;
        r.label("new_uuid");
        self.new_uuid = r.get()?;
        r.label("new_xinfo");
        self.new_xinfo = r.get()?;
        r.label("new_heartbeat_front_up");
        self.new_heartbeat_front_up = r.get()?;
        r.label("encode_features");
        self.encode_features = r.u64()?;
        r.label("ratios");
        self.new_nearfull_ratio = ratio(r.f32()?);
        self.new_full_ratio = ratio(r.f32()?);
        self.new_backfillfull_ratio = ratio(r.f32()?);
        r.label("new_require_min_compat_client");
        self.new_require_min_compat_client = release(r.get()?);
        r.label("new_require_osd_release");
        self.new_require_osd_release = release(r.get()?);
        if version >= 8 {
            r.label("new_crush_node_flags");
            self.new_crush_node_flags = r.get()?;
        }
        if version >= 9 {
            r.label("new_device_class_flags");
            self.new_device_class_flags = r.get()?;
        }
        if version >= 10 {
            r.label("stretch");
            let change = r.bool()?;
            let (bucket_count, degraded, recovering) = (r.u32()?, r.u32()?, r.u32()?);
            let (bucket, enabled) = (r.i32()?, r.bool()?);
            let stretch = StretchChange { enabled, bucket_count, degraded, recovering, bucket };
            self.stretch = change.then_some(stretch);
        }
        if version >= 11 {
            r.label("new_range_blocklist");
            self.new_range_blocklist = r.get()?;
            self.old_range_blocklist = r.get()?;
        }
        if version >= 12 {
            r.label("crimson");
            self.crimson = match r.u8()? {
                0 => None,
                1 => Some(CrimsonChange::Allow),
                2 => Some(CrimsonChange::Forbid),
                other => return Err(r.invalid("crimson change", other)),
            };
        }
        Ok(())
    }
}
