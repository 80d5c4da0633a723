//! When do machines need to be told the time anew? When the wall clock no longer runs as the monotonic one does.

use machine::Time;
use runtime::system;
use std::time::Duration;
use wire::types::UTime;

/// How often the two clocks are compared.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A drift that nobody would notice is not worth telling.
const JUMP_NS: u64 = 20_000_000;

/// Watches the wall clock for one role.
#[derive(Debug)]
pub struct WallWatch {
    /// Wall minus monotonic, as the machines were told.
    offset_ns: u64,
    look_at: Time,
}

impl WallWatch {
    /// The machines are told `wall` at `now`.
    pub fn new(now: Time, wall: UTime) -> WallWatch {
        WallWatch { offset_ns: wall.as_nanos().wrapping_sub(now.0), look_at: now + LOOK_EVERY }
    }

    pub fn next_look(&self) -> Time {
        self.look_at
    }

    /// The wall time to tell the machines, if it jumped.
    pub fn look(&mut self, now: Time) -> Option<UTime> {
        self.look_with(now, system::wall_clock)
    }

    fn look_with(&mut self, now: Time, read: impl FnOnce() -> UTime) -> Option<UTime> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK_EVERY;
        let wall = read();
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
    fn only_a_jump_is_told() {
        let at = |s: u64, ns: u64| UTime::from_nanos((1_700_000_000 + s) * 1_000_000_000 + ns);
        let mut watch = WallWatch::new(Time(0), at(0, 0));
        assert_eq!(watch.look_with(Time(500_000_000), || panic!("too early")), None);
        assert_eq!(watch.look_with(Time(1_000_000_000), || at(1, 5_000)), None);
        assert_eq!(watch.look_with(Time(2_000_000_000), || at(62, 0)), Some(at(62, 0)));
        assert_eq!(watch.look_with(Time(3_000_000_000), || at(63, 0)), None);
        assert_eq!(watch.look_with(Time(4_000_000_000), || at(10, 0)), Some(at(10, 0)), "backwards too");
    }
}
