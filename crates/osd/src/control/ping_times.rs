//! Round trips to heartbeat peers: means, minima and maxima over the last 1, 5 and 15 minutes, for OSD_SLOW_PING_TIME and
//! `dump_osd_network`.
//!
//! A minute's figures count when the minute is over, as in stock (`OSD::handle_osd_ping`, the reply's case). Heartbeats go
//! over the back network alone, and its figures stand for the front network, too.

use super::Control;
use super::neighbours::Neighbour;
use command::{Answer, Args, osd_network};
use machine::Time;
use std::collections::VecDeque;
use std::time::Duration;
use wire::types::{PingTimes, UTime};

const MINUTE: Duration = Duration::from_secs(60);
const MINUTES_KEPT: usize = 15;
/// Spans that are shown, in minutes.
const SPANS: [usize; 3] = [1, 5, 15];

/// Round trips to one peer.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrips {
    /// The running minute.
    began_at: Option<Time>,
    sum_us: u64,
    count: u64,
    min_us: u32,
    max_us: u32,
    /// The newest first.
    minutes: VecDeque<Minute>,
    /// When the newest of them ended.
    updated_at: Option<Time>,
    last_us: u32,
}

#[derive(Clone, Copy, Debug)]
struct Minute {
    mean_us: u32,
    min_us: u32,
    max_us: u32,
}

impl RoundTrips {
    /// One answer came. `minute` is the length of a minute, shorter in tests (`debug_heartbeat_testing_span`).
    pub fn add(&mut self, now: Time, took: Duration, minute: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let began_at = *self.began_at.get_or_insert(now);
        (self.min_us, self.max_us) = match self.count {
            0 => (us, us),
            _ => (self.min_us.min(us), self.max_us.max(us)),
        };
        self.sum_us += u64::from(us);
        self.count += 1;
        self.last_us = us;
        if now.since(began_at) < minute {
            return;
        }
        let mean_us = u32::try_from(self.sum_us / self.count).unwrap_or(u32::MAX);
        self.minutes.push_front(Minute { mean_us, min_us: self.min_us, max_us: self.max_us });
        self.minutes.truncate(MINUTES_KEPT);
        self.updated_at = Some(now);
        (self.began_at, self.sum_us, self.count) = (None, 0, 0);
    }

    /// `None` before the first minute is over.
    fn times(&self, peer: i32, wall: impl Fn(Time) -> UTime) -> Option<PingTimes> {
        let updated_at = self.updated_at?;
        let over = |of: fn(&[Minute]) -> u32| {
            let minutes: Vec<Minute> = self.minutes.iter().copied().collect();
            let [one, five, fifteen] = SPANS.map(|span| of(&minutes[..span.min(minutes.len())]));
            (one, five, fifteen)
        };
        let mean = |minutes: &[Minute]| {
            let sum: u64 = minutes.iter().map(|minute| u64::from(minute.mean_us)).sum();
            (sum / minutes.len().max(1) as u64) as u32
        };
        let means = over(mean);
        let minima = over(|minutes| minutes.iter().map(|minute| minute.min_us).min().unwrap_or(0));
        let maxima = over(|minutes| minutes.iter().map(|minute| minute.max_us).max().unwrap_or(0));
        Some(PingTimes {
            peer,
            last_update_sec: wall(updated_at).sec,
            back_us: means,
            back_us_min: minima,
            back_us_max: maxima,
            back_us_last: self.last_us,
            front_us: means,
            front_us_min: minima,
            front_us_max: maxima,
            front_us_last: self.last_us,
        })
    }
}

impl Control {
    pub(super) fn minute_of_pings(&self) -> Duration {
        let span = self.options.heartbeat_testing_span;
        if span.is_zero() { MINUTE } else { span }
    }

    pub(super) fn ping_times(&self) -> Vec<PingTimes> {
        let of = |(osd, peer): (&i32, &Neighbour)| peer.round_trips.times(*osd, |at| self.wall.at(at));
        self.neighbours.iter().filter_map(of).collect()
    }

    pub(super) fn dump_osd_network(&self, args: &Args) -> Answer {
        let options = &self.options;
        let grace_s = options.heartbeat_grace.as_secs_f64();
        let warning_ms = osd_network::warning_ms(grace_s, options.slow_ping_ms, options.slow_ping_ratio);
        let now = self.wall.at(self.ticked_at.unwrap_or(Time::ZERO));
        let pairs = self.ping_times().into_iter().map(|times| (self.config.osd.0, times));
        Answer::json(args.format(), &osd_network::dump(pairs, args, warning_ms, grace_s as u32, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_s(s: u64) -> Time {
        Time(1 + s * 1_000_000_000)
    }

    #[test]
    fn minutes_count_when_they_are_over_and_fade() {
        let mut trips = RoundTrips::default();
        let times =
            |trips: &RoundTrips| trips.times(3, |at| UTime { sec: (at.0 / 1_000_000_000) as u32, nsec: 0 });
        for s in 0..60 {
            trips.add(at_s(s), Duration::from_micros(100 + s % 2 * 20), MINUTE);
        }
        assert_eq!(times(&trips), None);
        trips.add(at_s(60), Duration::from_micros(110), MINUTE);
        let first = times(&trips).unwrap();
        assert_eq!((first.peer, first.last_update_sec, first.back_us), (3, 60, (110, 110, 110)));
        assert_eq!((first.back_us_min.0, first.back_us_max.0, first.front_us_last), (100, 120, 110));
        // Two slow minutes, then quick ones.
        for (minute, us) in [(1, 1000), (2, 1000), (3, 10), (4, 10), (5, 10)] {
            for s in 0..=60 {
                trips.add(at_s(minute * 70 + s), Duration::from_micros(us), MINUTE);
            }
        }
        let later = times(&trips).unwrap();
        assert_eq!(later.back_us, (10, 2030 / 5, 2140 / 6));
        assert_eq!((later.back_us_max, later.back_us_min), ((10, 1000, 1000), (10, 10, 10)));
        for minute in 6..30 {
            for s in 0..=60 {
                trips.add(at_s(minute * 70 + s), Duration::from_micros(7), MINUTE);
            }
        }
        assert_eq!(times(&trips).unwrap().back_us, (7, 7, 7));
    }
}
