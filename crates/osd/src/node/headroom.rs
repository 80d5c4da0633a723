//! Headroom: free space of one core's store, watched closely enough that writes never overrun it.
//!
//! The monitor's full flags arrive seconds late, and fast clients fill a small store within that time. So submitted bytes
//! are counted against the last measurement of free space, and the store is measured again when half of it may be used.

use crate::options::ControlOptions;
use command::options::{Identity, Layers};
use store::{Transaction, Usage};

/// The OSD's own full state: beyond `osd_failsafe_full_ratio` it refuses writes, whatever the map says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failsafe {
    pub ratio_max: f64,
    pub is_full: bool,
}

/// With the default of the table of options.
impl Default for Failsafe {
    fn default() -> Failsafe {
        Failsafe::of(&Layers::new(Identity::named("osd.0")))
    }
}

impl Failsafe {
    /// The state at the start of an OSD with these options.
    pub fn of(layers: &Layers) -> Failsafe {
        Failsafe { ratio_max: ControlOptions::read(layers).failsafe_full_ratio, is_full: false }
    }

    /// The state with `ratio` of the store used. Hysteresis: full ends [`ROOM_PART`] below the ratio where it began.
    pub fn judge(self, ratio_max: f64, ratio: f64) -> Failsafe {
        let enough = if self.is_full { 1.0 / ROOM_PART as f64 } else { 0.0 };
        Failsafe { ratio_max, is_full: ratio >= ratio_max - enough }
    }
}

/// Bytes that a transaction may use beyond its contents: its record in the log, partly used blocks.
const OVERHEAD: u64 = 8 << 10;
/// Minimum bytes between two measurements.
const MEASURE_AFTER_MIN: u64 = 256 << 10;
/// Hysteresis: a full store has room again when one part in so many is free. With less, the resent writes would fill it at
/// once, and every client would be disconnected again for each deleted object.
const ROOM_PART: u64 = 200;

#[derive(Debug)]
pub struct Headroom {
    /// Maximum used part of the store.
    ratio_max: f64,
    /// Bytes that may be submitted before the next measurement.
    left: u64,
    is_full: bool,
}

impl Headroom {
    pub fn new(ratio_max: f64) -> Headroom {
        Headroom { ratio_max, left: 0, is_full: false }
    }

    /// Takes a changed ratio. True: measure the store now.
    pub fn set_ratio_max(&mut self, ratio_max: f64) -> bool {
        std::mem::replace(&mut self.ratio_max, ratio_max) != ratio_max
    }

    /// Counts a transaction. True: measure the store now.
    pub fn on_submit(&mut self, transaction: &Transaction) -> bool {
        let growth: u64 = transaction.changes.iter().map(|change| change.growth()).sum();
        self.left = self.left.saturating_sub(growth + OVERHEAD);
        self.left == 0
    }

    /// Takes a measurement. `Some(is_full)` when the store became full or has room again.
    pub fn measured(&mut self, usage: &Usage) -> Option<bool> {
        let reach = usage.within_reach();
        let kept = (reach.total as f64 * (1.0 - self.ratio_max)) as u64;
        let room = reach.available.saturating_sub(kept);
        // Others take from the pool, too: a share of it is measured before it can be used up.
        let of_others = usage.pooled - usage.pooled / u64::from(usage.sharers.max(1));
        self.left = (room.saturating_sub(of_others) / 2).max(MEASURE_AFTER_MIN);
        let enough = if self.is_full { (reach.total / ROOM_PART).max(MEASURE_AFTER_MIN) } else { 1 };
        let is_full = room < enough;
        (is_full != self.is_full).then(|| {
            self.is_full = is_full;
            is_full
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Change, Collection, ObjectId};
    use wire::types::HObject;

    fn write(len: usize) -> Transaction {
        let object = ObjectId::from(HObject::min());
        let changes = vec![Change::Write { object, offset: 0, data: vec![0; len].into() }];
        Transaction { collection: Collection::Meta, changes }
    }

    #[test]
    fn failsafe_has_hysteresis() {
        let mut failsafe = Failsafe::default();
        for (ratio_max, ratio, is_full) in [
            (0.97, 0.969, false),
            (0.97, 0.97, true),
            (0.97, 0.966, true),
            (0.97, 0.964, false),
            (0.97, 0.969, false),
            (0.95, 0.969, true),
            (0.97, 0.969, true),
            (0.98, 0.969, false),
        ] {
            failsafe = failsafe.judge(ratio_max, ratio);
            assert_eq!(failsafe, Failsafe { ratio_max, is_full }, "at {ratio}");
        }
    }

    /// The store uses half of the counted overhead.
    #[test]
    fn store_is_never_overrun() {
        let mut usage = Usage { total: 1 << 30, available: 1 << 30, ..Usage::default() };
        let mut headroom = Headroom::new(0.97);
        let (mut measured, mut writes) = (0u64, 0u64);
        loop {
            usage.available -= 4096 + OVERHEAD / 2;
            writes += 1;
            if headroom.on_submit(&write(4096)) {
                measured += 1;
                if headroom.measured(&usage) == Some(true) {
                    break;
                }
            }
        }
        let kept = usage.total as f64 * 0.03;
        assert!(usage.available as f64 > kept - (2 * MEASURE_AFTER_MIN) as f64, "{usage:?}");
        assert!((usage.available as f64) < kept + 1e6, "{usage:?}");
        assert!(measured < writes / 1000, "{measured} measurements for {writes} writes");
        usage.available = kept as u64 + usage.total / (2 * ROOM_PART);
        assert_eq!(headroom.measured(&usage), None, "too little to leave full");
        usage.available = 1 << 29;
        assert_eq!(headroom.measured(&usage), Some(false), "room again");
        assert_eq!(headroom.measured(&usage), None);
        assert!(!headroom.set_ratio_max(0.97));
        assert!(headroom.set_ratio_max(0.4), "a changed ratio asks for a measurement");
        assert_eq!(headroom.measured(&usage), Some(true), "full by the new ratio");
    }
}
