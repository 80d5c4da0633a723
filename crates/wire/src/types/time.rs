//! Wall time as Ceph writes it.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Seconds and nanoseconds since 1970 (`utime_t`, `ceph::real_time`). Always an input, never read from a clock here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UTime {
    pub sec: u32,
    pub nsec: u32,
}

impl UTime {
    pub const ZERO: UTime = UTime { sec: 0, nsec: 0 };

    pub fn as_secs_f64(self) -> f64 {
        self.sec as f64 + self.nsec as f64 / 1e9
    }

    pub fn as_nanos(self) -> u64 {
        self.sec as u64 * 1_000_000_000 + self.nsec as u64
    }

    /// Clamped to what 32 bits of seconds hold.
    pub fn from_nanos(ns: u64) -> UTime {
        UTime {
            sec: u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX),
            nsec: (ns % 1_000_000_000) as u32,
        }
    }
}

impl Encode for UTime {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.sec);
        w.u32(self.nsec);
    }
}

impl Decode for UTime {
    const MIN_LEN: usize = 8;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(UTime { sec: r.u32()?, nsec: r.u32()? })
    }
}
