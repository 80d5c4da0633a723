//! Detection of wall clock jumps: machines are told the wall time anew when it drifts from the monotonic clock.

use crate::Time;
use std::time::Duration;
use wire::types::UTime;

/// How often the two clocks are compared.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Smaller drift changes nothing that a machine does.
const JUMP_NS: u64 = 20_000_000;

/// Compares the wall clock with the monotonic clock about once a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallWatch {
    /// Wall minus monotonic, as the machine knows it.
    offset_ns: u64,
    look_at: Time,
}

impl WallWatch {
    /// The machine was told `wall` at `now`.
    pub fn new(now: Time, wall: UTime) -> WallWatch {
        WallWatch { offset_ns: wall.as_nanos().wrapping_sub(now.0), look_at: now + LOOK_EVERY }
    }

    /// The deadline of the next comparison.
    pub fn next_look(&self) -> Time {
        self.look_at
    }

    /// The wall time, if the machine must be told it anew.
    pub fn look(&mut self, now: Time, wall: UTime) -> Option<UTime> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK_EVERY;
        let offset = wall.as_nanos().wrapping_sub(now.0);
        let apart = offset.wrapping_sub(self.offset_ns).min(self.offset_ns.wrapping_sub(offset));
        (apart > JUMP_NS).then(|| {
            self.offset_ns = offset;
            wall
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_watch_tells_jumps_only() {
        let at = |s: u64, ns: u64| UTime::from_nanos((1_700_000_000 + s) * 1_000_000_000 + ns);
        let mut watch = WallWatch::new(Time(0), at(0, 0));
        assert_eq!(watch.look(Time(500_000_000), at(62, 0)), None, "too early to compare");
        assert_eq!(watch.look(Time(1_000_000_000), at(1, 5_000)), None);
        assert_eq!(watch.look(Time(2_000_000_000), at(62, 0)), Some(at(62, 0)));
        assert_eq!(watch.look(Time(3_000_000_000), at(63, 0)), None);
        assert_eq!(watch.look(Time(4_000_000_000), at(10, 0)), Some(at(10, 0)), "backwards too");
    }
}
