//! A node's own clocks: a monotonic clock with its own rate, and a wall clock with its own offset.

use machine::Time;
use std::cell::Cell;
use std::rc::Rc;
use wire::types::UTime;

/// Maximum rate error of a node's monotonic clock. Real crystals drift by about 100 parts per million, and time daemons
/// correct by up to 500.
pub const RATE_MAX_PPM: i64 = 10_000;

const MILLION: i128 = 1_000_000;

/// Monotonic time of one node as a function of the world's time.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// A reference moment, in both times.
    world: Time,
    local: Time,
    rate_ppm: i64,
    wall: WallClock,
}

impl Clock {
    pub(crate) fn new(wall: WallClock) -> Clock {
        Clock { world: Time::ZERO, local: Time::ZERO, rate_ppm: 0, wall }
    }

    pub(crate) fn local(&self, world: Time) -> Time {
        let passed = world.0.saturating_sub(self.world.0) as i128;
        Time(self.local.0 + (passed * (MILLION + self.rate_ppm as i128) / MILLION) as u64)
    }

    /// The first moment of the world at which the node's time is at least `local`.
    pub(crate) fn world(&self, local: Time) -> Time {
        let wanted = local.0.saturating_sub(self.local.0) as i128;
        let rate = MILLION + self.rate_ppm as i128;
        let passed = (wanted * MILLION + rate - 1) / rate;
        Time(self.world.0.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    pub(crate) fn set_rate(&mut self, now: Time, rate_ppm: i64) {
        assert!(rate_ppm.abs() <= RATE_MAX_PPM);
        (self.local, self.world, self.rate_ppm) = (self.local(now), now, rate_ppm);
    }

    pub(crate) fn set_wall_offset(&mut self, nanos: i64) {
        self.wall.offset_nanos.set(nanos);
    }
}

/// The wall clock of one node, shared by the node and the world.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    offset_nanos: Rc<Cell<i64>>,
}

impl WallClock {
    /// The reading at a moment of the node's own monotonic time.
    pub fn at(&self, now: Time) -> UTime {
        const START_S: u64 = 1_700_000_000;
        let nanos = START_S * 1_000_000_000 + now.0;
        UTime::from_nanos(nanos.saturating_add_signed(self.offset_nanos.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Random;
    use std::time::Duration;

    #[test]
    fn local_time_is_monotonic_and_wakes_are_never_early() {
        let mut random = Random::from_number(3);
        let mut clock = Clock::new(WallClock::default());
        let mut world = Time(1_000_000_000);
        let mut local = clock.local(world);
        for _ in 0..10_000 {
            world = world + Duration::from_nanos(random.below(3_000_000_000));
            if random.below(4) == 0 {
                clock.set_rate(world, random.below(2 * RATE_MAX_PPM as u64 + 1) as i64 - RATE_MAX_PPM);
            }
            assert!(clock.local(world) >= local);
            local = clock.local(world);
            let wanted = local + Duration::from_nanos(random.below(5_000_000_000));
            let at = clock.world(wanted);
            assert!(at >= world && clock.local(at) >= wanted);
            assert!(at.0 == world.0 || clock.local(Time(at.0 - 1)) < wanted, "and not late");
        }
    }
}
