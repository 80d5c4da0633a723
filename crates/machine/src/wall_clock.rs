//! Wall time, counted on from when the host last told it.

use crate::Time;
use std::time::Duration;
use wire::types::UTime;

/// Smaller differences between the two clocks change nothing that a machine does.
const JUMP_MIN: Duration = Duration::from_millis(20);

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

    /// Compares with the host's clock and follows it when it has jumped or drifted away. True then.
    pub fn follow(&mut self, now: Time, wall: UTime) -> bool {
        let apart = wall.as_nanos().abs_diff(self.at(now).as_nanos());
        let has_jumped = u128::from(apart) > JUMP_MIN.as_nanos();
        if has_jumped {
            *self = WallClock::new(now, wall);
        }
        has_jumped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_follows_jumps_only() {
        let at = |s: u64, ns: u64| UTime::from_nanos((1_700_000_000 + s) * 1_000_000_000 + ns);
        let mut clock = WallClock::new(Time(0), at(0, 0));
        assert!(!clock.follow(Time(1_000_000_000), at(1, 5_000)));
        assert_eq!(clock.at(Time(1_000_000_000)), at(1, 0));
        assert!(clock.follow(Time(2_000_000_000), at(62, 0)));
        assert_eq!(clock.at(Time(3_000_000_000)), at(63, 0));
        assert!(!clock.follow(Time(3_000_000_000), at(63, 0)));
        assert!(clock.follow(Time(4_000_000_000), at(10, 0)), "backwards too");
    }
}
