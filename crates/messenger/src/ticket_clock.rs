//! A lower bound of the monitors' wall time, by which tickets expire.
//!
//! Tickets carry wall times of the monitors' clocks, and this host's clock may be wrong, so it is not asked. The
//! rotating keys tell the time instead: a monitor forgets the previous key's predecessor when the previous key has
//! expired, so the oldest key of a set has expired when the set arrives. From then on our monotonic clock counts. The
//! bound lags behind the monitors' time by up to the interval between two fetches of the keys (a quarter of a key's life,
//! 15 minutes with stock's settings), and goes on without a monitor. A ticket is refused when it has expired for certain.

use machine::Time;
use wire::cephx::RotatingKeys;
use wire::types::UTime;

#[derive(Default)]
pub(super) struct TicketClock {
    /// The monitors' time was at least this at that moment of ours.
    known: Option<(UTime, Time)>,
}

impl TicketClock {
    /// A set of keys came from a monitor.
    pub fn learn(&mut self, now: Time, keys: &RotatingKeys) {
        // The very first keys of a cluster have no predecessors: nothing had to expire for them.
        if keys.max_version <= RotatingKeys::COUNT as u64 {
            return;
        }
        let Some(oldest) = keys.secrets.values().next() else { return };
        if oldest.expires > self.at_least(now) {
            self.known = Some((oldest.expires, now));
        }
    }

    /// The monitors' clocks show at least this. Zero while nothing is known.
    pub fn at_least(&self, now: Time) -> UTime {
        self.known.map_or(UTime::ZERO, |(wall, since)| {
            UTime::from_nanos(wall.as_nanos().saturating_add(now.since(since).as_nanos() as u64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Random;
    use std::time::Duration;
    use wire::cephx::{Key, KeyKind, RotatingSecret};

    /// The keys of a monitor after `rotations`: key n expires at hour n.
    fn keys(rotations: u32) -> RotatingKeys {
        let mut keys = RotatingKeys::default();
        for hour in 1..=3 + rotations {
            let key = Key::generate(KeyKind::Aes256k, UTime::ZERO, &mut Random::from_number(1));
            keys.rotate(RotatingSecret { key, expires: UTime { sec: hour * 3600, nsec: 0 } });
        }
        keys
    }

    #[test]
    fn first_keys_of_a_cluster_tell_no_time() {
        let mut clock = TicketClock::default();
        clock.learn(Time(5), &keys(0));
        assert_eq!(clock.at_least(Time(5)), UTime::ZERO);
    }

    #[test]
    fn time_goes_on_from_the_oldest_key_without_a_monitor() {
        let mut clock = TicketClock::default();
        let start = Time(7);
        clock.learn(start, &keys(2));
        assert_eq!(clock.at_least(start).sec, 3 * 3600);
        assert_eq!(clock.at_least(start + Duration::from_secs(60)).sec, 3 * 3600 + 60);
    }

    #[test]
    fn keys_that_come_again_do_not_set_the_time_back() {
        let mut clock = TicketClock::default();
        clock.learn(Time(0), &keys(2));
        let later = Time(0) + Duration::from_secs(600);
        clock.learn(later, &keys(2));
        assert_eq!(clock.at_least(later).sec, 3 * 3600 + 600);
        clock.learn(later, &keys(3));
        assert_eq!(clock.at_least(later).sec, 4 * 3600);
    }
}
