//! An OSD's report on itself (`osd_stat_t`).

use super::{Epoch, StoreStatfs};
use crate::features;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};

/// Round trips to one heartbeat peer, in microseconds, over 1, 5 and 15 minutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct PingTimes {
    pub peer: i32,
    pub last_update_sec: u32,
    pub back_us: (u32, u32, u32),
    pub back_us_min: (u32, u32, u32),
    pub back_us_max: (u32, u32, u32),
    pub back_us_last: u32,
    pub front_us: (u32, u32, u32),
    pub front_us_min: (u32, u32, u32),
    pub front_us_max: (u32, u32, u32),
    pub front_us_last: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OsdStat {
    pub statfs: StoreStatfs,
    pub hb_peers: Vec<i32>,
    pub snap_trim_queue_len: i32,
    pub num_snap_trimming: i32,
    /// Operations in the queue by age: bucket `i` counts those of up to `2^i` milliseconds.
    pub op_queue_age_hist: Vec<i32>,
    pub commit_latency_ns: u64,
    pub apply_latency_ns: u64,
    pub up_from: Epoch,
    /// The OSD's epoch in the upper, a counter in the lower half: tells whether a report is newer.
    pub seq: u64,
    pub num_pgs: u32,
    /// Alerts of the store, by pool (-1: the whole store), then by name.
    pub alerts: BTreeMap<i32, BTreeMap<String, String>>,
    pub num_shards_repaired: u64,
    /// 1 in a report; in a sum, how many OSDs it is of.
    pub num_osds: u32,
    /// OSDs that account for space by pool, and for omap by pool.
    pub num_per_pool_osds: u32,
    pub num_per_pool_omap_osds: u32,
    pub ping_times: Vec<PingTimes>,
}

/// Sums over OSDs: what belongs to one OSD alone (peers, sequence, alerts) is left out.
impl AddAssign<&OsdStat> for OsdStat {
    fn add_assign(&mut self, o: &OsdStat) {
        self.statfs += o.statfs;
        self.snap_trim_queue_len += o.snap_trim_queue_len;
        self.num_snap_trimming += o.num_snap_trimming;
        self.commit_latency_ns += o.commit_latency_ns;
        self.apply_latency_ns += o.apply_latency_ns;
        self.num_pgs += o.num_pgs;
        self.num_shards_repaired += o.num_shards_repaired;
        self.num_osds += o.num_osds;
        self.num_per_pool_osds += o.num_per_pool_osds;
        self.num_per_pool_omap_osds += o.num_per_pool_omap_osds;
    }
}

impl SubAssign<&OsdStat> for OsdStat {
    fn sub_assign(&mut self, o: &OsdStat) {
        self.statfs -= o.statfs;
        self.snap_trim_queue_len -= o.snap_trim_queue_len;
        self.num_snap_trimming -= o.num_snap_trimming;
        self.commit_latency_ns -= o.commit_latency_ns;
        self.apply_latency_ns -= o.apply_latency_ns;
        self.num_pgs -= o.num_pgs;
        self.num_shards_repaired -= o.num_shards_repaired;
        self.num_osds -= o.num_osds;
        self.num_per_pool_osds -= o.num_per_pool_osds;
        self.num_per_pool_omap_osds -= o.num_per_pool_omap_osds;
    }
}

const NS_PER_MS: u64 = 1_000_000;

impl OsdStat {
    /// `objectstore_perf_stat_t`: milliseconds for a peer that does not take nanoseconds.
    fn encode_latencies(&self, w: &mut Writer) {
        if w.features().has(features::OS_PERF_STAT_NS) {
            w.envelope(2, 2, |w| {
                w.u64(self.commit_latency_ns);
                w.u64(self.apply_latency_ns);
            });
        } else {
            w.envelope(1, 1, |w| {
                w.u32((self.commit_latency_ns / NS_PER_MS) as u32);
                w.u32((self.apply_latency_ns / NS_PER_MS) as u32);
            });
        }
    }
}

/// Several kilobyte figures repeat what `statfs` says in bytes, for readers of old; they are written, not kept.
impl Encode for OsdStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(14, 2, |w| {
            w.u64(self.statfs.total >> 10);
            w.u64(self.statfs.used_raw() >> 10);
            w.u64(self.statfs.available >> 10);
            w.i32(self.snap_trim_queue_len);
            w.i32(self.num_snap_trimming);
            w.put(&self.hb_peers);
            w.u32(0);
            w.envelope(1, 1, |w| w.put(&self.op_queue_age_hist));
            self.encode_latencies(w);
            w.u32(self.up_from);
            w.u64(self.seq);
            w.u32(self.num_pgs);
            w.i64((self.statfs.allocated as u64 >> 10) as i64);
            w.i64((self.statfs.omap_allocated as u64 >> 10) as i64);
            w.i64((self.statfs.internal_metadata as u64 >> 10) as i64);
            w.put(&self.statfs);
            w.put(&self.alerts);
            w.u64(self.num_shards_repaired);
            w.u32(self.num_osds);
            w.u32(self.num_per_pool_osds);
            w.u32(self.num_per_pool_omap_osds);
            w.put(&self.ping_times);
        });
    }
}

impl Decode for OsdStat {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("osd_stat_t", 14, |r, version| {
            if version < 9 {
                return Err(DecodeError::TooOld { what: "osd_stat_t", version });
            }
            let mut s = OsdStat::default();
            let (_kb, _kb_used, _kb_available) = (r.u64()?, r.u64()?, r.u64()?);
            s.snap_trim_queue_len = r.i32()?;
            s.num_snap_trimming = r.i32()?;
            r.label("hb_peers");
            s.hb_peers = r.get()?;
            let _heartbeats_out: Vec<i32> = r.get()?;
            s.op_queue_age_hist = r.envelope("pow2_hist_t", 1, |r, _| r.get())?;
            (s.commit_latency_ns, s.apply_latency_ns) =
                r.envelope("objectstore_perf_stat_t", 2, |r, version| {
                    Ok(match version {
                        1 => (r.u32()? as u64 * NS_PER_MS, r.u32()? as u64 * NS_PER_MS),
                        _ => (r.u64()?, r.u64()?),
                    })
                })?;
            s.up_from = r.u32()?;
            s.seq = r.u64()?;
            s.num_pgs = r.u32()?;
            let (_kb_data, _kb_omap, _kb_metadata) = (r.i64()?, r.i64()?, r.i64()?);
            s.statfs = r.get()?;
            s.alerts = codec::field(r, "alerts", version >= 10, BTreeMap::new)?;
            s.num_shards_repaired = codec::field(r, "num_shards_repaired", version >= 11, u64::default)?;
            s.num_osds = codec::field(r, "num_osds", version >= 12, u32::default)?;
            s.num_per_pool_osds = codec::field(r, "num_per_pool_osds", version >= 12, u32::default)?;
            s.num_per_pool_omap_osds =
                codec::field(r, "num_per_pool_omap_osds", version >= 13, u32::default)?;
            s.ping_times = codec::field(r, "ping_times", version >= 14, Vec::new)?;
            Ok(s)
        })
    }
}
