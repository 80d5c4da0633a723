//! Pulses of monitors to each other, one a second: clocks, free space on their disks, and the leader's list of who takes part.

use super::{Monitor, STEP};
use crate::monitor::Turn;
use crate::situation::Skew;
use machine::Time;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::{MonPeerBody, MonPulse};
use wire::types::UTime;

const INTERVAL: Duration = Duration::from_secs(1);
/// A monitor that was silent for longer is not spoken of.
const FRESH: Duration = Duration::from_secs(5);

/// The last pulse of another monitor.
#[derive(Clone, Debug)]
struct Heard {
    at: Time,
    pulse: MonPulse,
    /// Their clock less ours, and the time for there and back. `None`: they had not heard us yet.
    skew: Option<(f64, f64)>,
}

#[derive(Debug)]
pub(super) struct Pulses {
    next: Time,
    by_name: BTreeMap<String, Heard>,
}

impl Pulses {
    pub fn new(now: Time) -> Pulses {
        Pulses { next: now, by_name: BTreeMap::new() }
    }

    /// The others hear of a change at once.
    pub fn make_due(&mut self, now: Time) {
        self.next = now;
    }

    pub fn deadline(&self) -> Time {
        self.next
    }

    pub fn skews(&self, now: Time) -> BTreeMap<String, Skew> {
        let fresh = self.by_name.iter().filter(|(_, heard)| now.since(heard.at) < FRESH);
        fresh
            .filter_map(|(name, heard)| {
                let (skew, latency) = heard.skew?;
                Some((name.clone(), Skew { skew, latency }))
            })
            .collect()
    }

    /// Free space on the disks of the other monitors: total and available bytes.
    pub fn disks(&self, now: Time) -> BTreeMap<String, (u64, u64)> {
        let fresh = self.by_name.iter().filter(|(_, heard)| now.since(heard.at) < FRESH);
        fresh
            .map(|(name, heard)| (name.clone(), (heard.pulse.disk_total, heard.pulse.disk_available)))
            .collect()
    }
}

/// Their clock less ours, and the round trip, from a pulse that says when it heard ours.
fn measure(now: UTime, pulse: &MonPulse) -> Option<(f64, f64)> {
    if pulse.heard_wall == UTime::ZERO {
        return None;
    }
    let seconds = |ns: i128| ns as f64 / 1e9;
    let ns = |at: UTime| i128::from(at.as_nanos());
    let latency = ns(now) - ns(pulse.heard_wall) - i128::from(pulse.heard_ago_ns);
    Some((seconds(ns(pulse.wall) + latency / 2 - ns(now)), seconds(latency.max(0))))
}

impl Monitor {
    pub(super) fn tick_pulses_of_monitors(&mut self, turn: &mut Turn<'_>) {
        if turn.now < self.quorum.pulses.next {
            return;
        }
        self.quorum.pulses.next = turn.now + INTERVAL;
        let names: Vec<String> = self.quorum.links.open().map(|(name, _)| name.to_owned()).collect();
        let (disk_total, disk_available) = self.quorum.disk_space;
        let own = MonPulse {
            wall: self.wall(turn.now),
            disk_total,
            disk_available,
            term: if self.is_leading() { self.quorum.role.term } else { 0 },
            quorum: if self.is_leading() { self.quorum.role.quorum.clone() } else { Vec::new() },
            quorum_since: self.quorum.role.quorum_since,
            ..MonPulse::default()
        };
        for name in names {
            let heard = self.quorum.pulses.by_name.get(&name);
            let pulse = MonPulse {
                heard_wall: heard.map_or(UTime::ZERO, |heard| heard.pulse.wall),
                heard_ago_ns: heard.map_or(0, |heard| turn.now.since(heard.at).as_nanos() as u64),
                ..own.clone()
            };
            let to = self.states.committed.members.get(&name).map_or(0, |member| member.id);
            self.say(turn, &name, to, MonPeerBody::Pulse(pulse));
        }
    }

    pub(super) fn on_monitor_pulse(&mut self, turn: &mut Turn<'_>, name: &str, from: u64, pulse: MonPulse) {
        let skew = measure(self.wall(turn.now), &pulse);
        let hears_us =
            pulse.heard_wall != UTime::ZERO && Duration::from_nanos(pulse.heard_ago_ns) < 3 * INTERVAL + STEP;
        if hears_us {
            self.quorum.links.is_heard(name, turn.now);
        }
        if pulse.term != 0 && Some(from) == self.quorum.role.leader() && pulse.term == self.quorum.role.term {
            self.quorum.role.quorum = pulse.quorum.clone();
            self.quorum.role.quorum_since = pulse.quorum_since;
        }
        self.quorum.pulses.by_name.insert(name.to_owned(), Heard { at: turn.now, pulse, skew });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> UTime {
        UTime::from_nanos(1_700_000_000_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn the_skew_of_a_clock_is_measured_over_there_and_back() {
        // We sent at 0; it took 20 ms; they waited 500 ms; it took 20 ms. Their clock is 100 ms ahead.
        let pulse =
            MonPulse { wall: at(620), heard_wall: at(0), heard_ago_ns: 500_000_000, ..MonPulse::default() };
        let (skew, latency) = measure(at(540), &pulse).unwrap();
        assert!((skew - 0.1).abs() < 1e-6 && (latency - 0.04).abs() < 1e-6, "{skew} {latency}");
        let behind = MonPulse { wall: at(420), ..pulse };
        assert!((measure(at(540), &behind).unwrap().0 + 0.1).abs() < 1e-6);
    }

    #[test]
    fn a_monitor_that_has_not_heard_us_has_no_skew() {
        assert_eq!(measure(at(1), &MonPulse { wall: at(0), ..MonPulse::default() }), None);
    }
}
