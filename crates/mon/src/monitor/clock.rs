//! Wall time, counted on from when the host last told it.

use machine::Time;
use wire::types::UTime;

#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    told_at: Time,
    told: UTime,
}

impl WallClock {
    pub fn new(now: Time, wall: UTime) -> WallClock {
        WallClock { told_at: now, told: wall }
    }

    pub fn at(&self, now: Time) -> UTime {
        let passed = now.since(self.told_at).as_nanos() as u64;
        UTime::from_nanos(self.told.as_nanos().saturating_add(passed))
    }
}
