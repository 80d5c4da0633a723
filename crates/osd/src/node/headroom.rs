//! Has the store room for what the shard submits? Asked of the store itself, before it is too late.
//!
//! The monitor's flags come seconds after the fact, and fast clients fill a small store within that. So what is submitted
//! is counted against the room that was last seen, and the store is asked again when half of that may be gone.

use store::{Transaction, Usage};

/// `osd_failsafe_full_ratio`, and whether the OSD is beyond it: then it takes no writes, whatever the map says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failsafe {
    pub ratio_max: f64,
    pub is_full: bool,
}

impl Default for Failsafe {
    fn default() -> Failsafe {
        Failsafe { ratio_max: 0.97, is_full: false }
    }
}

impl Failsafe {
    /// As it is with this part of the store filled. Full is left some way below where it was entered.
    pub fn judge(self, ratio_max: f64, ratio: f64) -> Failsafe {
        let enough = if self.is_full { 1.0 / ROOM_PART as f64 } else { 0.0 };
        Failsafe { ratio_max, is_full: ratio >= ratio_max - enough }
    }
}

/// What a transaction may cost beyond its contents: its place in the log, and the ends of blocks.
const OVERHEAD: u64 = 8 << 10;
/// Looking is cheap; but not at every transaction.
const LOOK_AFTER_MIN: u64 = 256 << 10;
/// A full store has room again when this part of it may be filled. With less, the writes that were held back would fill it
/// at once, and every client would be disconnected, and send all of it again, once for each object that is deleted.
const ROOM_PART: u64 = 200;

#[derive(Debug)]
pub struct Headroom {
    /// The part of the store that may be filled.
    ratio_max: f64,
    /// So much may be submitted before the store is asked again.
    left: u64,
    is_full: bool,
}

impl Headroom {
    pub fn new(ratio_max: f64) -> Headroom {
        Headroom { ratio_max, left: 0, is_full: false }
    }

    /// The cluster's configuration has said something else. True when it is time to look.
    pub fn set_ratio_max(&mut self, ratio_max: f64) -> bool {
        std::mem::replace(&mut self.ratio_max, ratio_max) != ratio_max
    }

    /// True when it is time to look.
    pub fn on_submit(&mut self, transaction: &Transaction) -> bool {
        let growth: u64 = transaction.changes.iter().map(|change| change.growth()).sum();
        self.left = self.left.saturating_sub(growth + OVERHEAD);
        self.left == 0
    }

    /// `Some` when the store has become full, or is not any more.
    pub fn look(&mut self, usage: &Usage) -> Option<bool> {
        let kept = (usage.total as f64 * (1.0 - self.ratio_max)) as u64;
        let room = usage.available.saturating_sub(kept);
        self.left = (room / 2).max(LOOK_AFTER_MIN);
        let enough = if self.is_full { (usage.total / ROOM_PART).max(LOOK_AFTER_MIN) } else { 1 };
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
    fn an_osd_at_the_brim_does_not_waver() {
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

    /// A store that takes what is submitted, and twice that for a while.
    #[test]
    fn a_store_is_never_overrun() {
        let mut usage = Usage { total: 1 << 30, available: 1 << 30, ..Usage::default() };
        let mut headroom = Headroom::new(0.97);
        let (mut looks, mut writes) = (0u64, 0u64);
        loop {
            usage.available -= 4096 + OVERHEAD / 2;
            writes += 1;
            if headroom.on_submit(&write(4096)) {
                looks += 1;
                if headroom.look(&usage) == Some(true) {
                    break;
                }
            }
        }
        let kept = usage.total as f64 * 0.03;
        assert!(usage.available as f64 > kept - (2 * LOOK_AFTER_MIN) as f64, "{usage:?}");
        assert!((usage.available as f64) < kept + 1e6, "{usage:?}");
        assert!(looks < writes / 1000, "{looks} looks at {writes} writes");
        usage.available = kept as u64 + usage.total / (2 * ROOM_PART);
        assert_eq!(headroom.look(&usage), None, "so little is not worth saying");
        usage.available = 1 << 29;
        assert_eq!(headroom.look(&usage), Some(false), "space has come back");
        assert_eq!(headroom.look(&usage), None);
        assert!(!headroom.set_ratio_max(0.97));
        assert!(headroom.set_ratio_max(0.4), "time to look");
        assert_eq!(headroom.look(&usage), Some(true), "less may be filled now");
    }
}
