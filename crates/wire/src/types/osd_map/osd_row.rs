//! The map's row of one OSD (`osd_state`, `osd_info_t`, `osd_xinfo_t`).

use crate::features::SERVER_OCTOPUS;
use crate::types::{EntityAddrVec, Epoch, UTime, Uuid};
use ::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A set of `CEPH_OSD_*`; bits that shoal does not know survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OsdState(pub u32);

impl OsdState {
    pub const EXISTS: u32 = 1 << 0;
    pub const UP: u32 = 1 << 1;
    /// Marked out by the monitor, not by a person.
    pub const AUTOOUT: u32 = 1 << 2;
    /// Never marked in so far.
    pub const NEW: u32 = 1 << 3;
    pub const FULL: u32 = 1 << 4;
    pub const NEARFULL: u32 = 1 << 5;
    pub const BACKFILLFULL: u32 = 1 << 6;
    pub const DESTROYED: u32 = 1 << 7;
    pub const NOUP: u32 = 1 << 8;
    pub const NODOWN: u32 = 1 << 9;
    pub const NOIN: u32 = 1 << 10;
    pub const NOOUT: u32 = 1 << 11;
    pub const STOP: u32 = 1 << 12;

    const NAMES: [&str; 13] = [
        "exists",
        "up",
        "autoout",
        "new",
        "full",
        "nearfull",
        "backfillfull",
        "destroyed",
        "noup",
        "nodown",
        "noin",
        "noout",
        "stop",
    ];

    pub fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    pub fn exists(self) -> bool {
        self.has(OsdState::EXISTS)
    }

    /// The names of the bits that are set, as `ceph osd dump` lists them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        (0..32)
            .filter(move |bit| self.has(1 << bit))
            .map(|bit| OsdState::NAMES.get(bit).copied().unwrap_or("???"))
    }
}

/// The OSD's lives, as peering needs to know them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OsdInfo {
    /// The last stretch of epochs that ended in a clean stop.
    pub last_clean_begin: Epoch,
    pub last_clean_end: Epoch,
    /// When it was last marked up.
    pub up_from: Epoch,
    /// Until when it may have accepted writes, at the least.
    pub up_thru: Epoch,
    pub down_at: Epoch,
    /// Until when a person has declared its data lost.
    pub lost_at: Epoch,
}

/// A version byte without an envelope.
impl Encode for OsdInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u32(self.last_clean_begin);
        w.u32(self.last_clean_end);
        w.u32(self.up_from);
        w.u32(self.up_thru);
        w.u32(self.down_at);
        w.u32(self.lost_at);
    }
}

impl Decode for OsdInfo {
    const MIN_LEN: usize = 25;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(OsdInfo {
            last_clean_begin: ::codec::field(r, "last_clean_begin", true, Epoch::default)?,
            last_clean_end: ::codec::field(r, "last_clean_end", true, Epoch::default)?,
            up_from: ::codec::field(r, "up_from", true, Epoch::default)?,
            up_thru: ::codec::field(r, "up_thru", true, Epoch::default)?,
            down_at: ::codec::field(r, "down_at", true, Epoch::default)?,
            lost_at: ::codec::field(r, "lost_at", true, Epoch::default)?,
        })
    }
}

/// Fields for the cluster's own daemons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OsdXinfo {
    pub down_stamp: UTime,
    /// Probability that the OSD was slow rather than dead, in units of 2⁻³².
    pub laggy_probability: u32,
    pub laggy_interval_s: u32,
    /// The features it booted with.
    pub features: u64,
    /// The weight it had before it was marked out by the monitor.
    pub old_weight: u32,
    pub last_purged_snaps_scrub: UTime,
    pub dead_epoch: Epoch,
}

impl OsdXinfo {
    pub fn laggy_probability(&self) -> f32 {
        self.laggy_probability as f32 / u32::MAX as f32
    }
}

impl Encode for OsdXinfo {
    fn encode(&self, w: &mut Writer) {
        let version = if w.features().has(SERVER_OCTOPUS) { 4 } else { 3 };
        w.envelope(version, 1, |w| {
            w.put(&self.down_stamp);
            w.u32(self.laggy_probability);
            w.u32(self.laggy_interval_s);
            w.u64(self.features);
            w.u32(self.old_weight);
            if version >= 4 {
                w.put(&self.last_purged_snaps_scrub);
                w.u32(self.dead_epoch);
            }
        });
    }
}

impl Decode for OsdXinfo {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("osd_xinfo_t", 4, |r, version| {
            Ok(OsdXinfo {
                down_stamp: ::codec::field(r, "down_stamp", true, UTime::default)?,
                laggy_probability: ::codec::field(r, "laggy_probability", true, u32::default)?,
                laggy_interval_s: ::codec::field(r, "laggy_interval_s", true, u32::default)?,
                features: ::codec::field(r, "features", version >= 2, u64::default)?,
                old_weight: ::codec::field(r, "old_weight", version >= 3, u32::default)?,
                last_purged_snaps_scrub: ::codec::field(r, "last_purged", version >= 4, UTime::default)?,
                dead_epoch: ::codec::field(r, "dead_epoch", version >= 4, Epoch::default)?,
            })
        })
    }
}

/// Where an OSD listens: for clients, for other OSDs, and for their heartbeats on either network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OsdAddrs {
    pub client: EntityAddrVec,
    pub cluster: EntityAddrVec,
    pub heartbeat_back: EntityAddrVec,
    pub heartbeat_front: EntityAddrVec,
}

/// One OSD. The map stores each field as an array over all OSDs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OsdRow {
    pub state: OsdState,
    /// 16.16 fixed point: `0x10000` is in, 0 is out.
    pub weight: u32,
    pub addrs: OsdAddrs,
    pub info: OsdInfo,
    pub xinfo: OsdXinfo,
    pub uuid: Uuid,
}
