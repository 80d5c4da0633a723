//! Patience: an OSD that was marked down too early is given more time before it is marked down again.
//!
//! A silence of a second is a death on most hosts. On a host without processor time it is a delay, and each peering that follows
//! takes processor time of all OSDs, which are then late in turn: without patience such a cluster goes up and down for ever.
//!
//! A decision was a mistake if the OSD is heard of again before twice the time has passed that it had, or if it is silent again
//! right after it came back. Each mistake triples the OSD's time, up to `osd_heartbeat_grace`. A mistake is forgotten after
//! [`FORGET`], and all of them when the OSD's process starts anew. The leader keeps this in memory: another one learns again.

use machine::Time;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::Epoch;

/// Time after which an OSD has one mistake less.
const FORGET: Duration = Duration::from_secs(300);
/// An OSD that is silent so soon after it came back was busy with coming back.
const SETTLING: Duration = Duration::from_secs(10);
const FACTOR: u32 = 3;
/// More mistakes give no more time.
const MISTAKES_MAX: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct Patience {
    mistakes: BTreeMap<i32, Mistakes>,
    /// OSDs that were marked down for their silence.
    suspects: BTreeMap<i32, Suspect>,
    /// OSDs that came back with the process that they had.
    returned: BTreeMap<i32, Time>,
}

#[derive(Clone, Copy, Debug)]
struct Mistakes {
    number: u32,
    last_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Suspect {
    silent_since: Time,
    allowed: Duration,
    up_from: Epoch,
}

impl Patience {
    /// The time that an OSD has where others have `grace`.
    pub fn allowed(&self, osd: i32, grace: Duration, max: Duration, now: Time) -> Duration {
        let number = self.mistakes.get(&osd).map_or(0, |mistakes| mistakes.left(now));
        grace.saturating_mul(FACTOR.saturating_pow(number)).min(max.max(grace))
    }

    /// The OSD is marked down for a silence longer than `allowed`.
    pub fn marks_down(&mut self, now: Time, osd: i32, up_from: Epoch, silent_since: Time, allowed: Duration) {
        if !self.misses(now, osd, now.since(silent_since)) {
            self.suspects.insert(osd, Suspect { silent_since, allowed, up_from });
        }
    }

    /// Partners of the OSD miss it, and it is marked down. That it shows life does not make this a mistake: it may be cut off from them
    /// alone. True if it had just come back, which does.
    pub fn misses(&mut self, now: Time, osd: i32, silence: Duration) -> bool {
        let has_returned = |at: Time| now.since(at) < silence + SETTLING;
        let is_mistake = self.returned.remove(&osd).is_some_and(has_returned);
        if is_mistake {
            self.note_mistake(now, osd);
        }
        is_mistake
    }

    /// The OSD, which is down, shows life. True if it was marked down by mistake.
    pub fn hears(&mut self, now: Time, osd: i32, up_from: Epoch) -> bool {
        let Some(suspect) = self.suspects.get(&osd).filter(|suspect| suspect.up_from == up_from) else {
            return false;
        };
        let is_mistake = now.since(suspect.silent_since) < 2 * suspect.allowed;
        self.suspects.remove(&osd);
        if is_mistake {
            self.note_mistake(now, osd);
        }
        is_mistake
    }

    fn note_mistake(&mut self, now: Time, osd: i32) {
        let before = self.mistakes.get(&osd).map_or(0, |mistakes| mistakes.left(now));
        self.mistakes.insert(osd, Mistakes { number: (before + 1).min(MISTAKES_MAX), last_at: now });
    }

    /// `has_lived_on`: with the process that was marked down.
    pub fn boots(&mut self, now: Time, osd: i32, has_lived_on: bool) {
        self.suspects.remove(&osd);
        if has_lived_on {
            self.returned.insert(osd, now);
        } else {
            self.mistakes.remove(&osd);
            self.returned.remove(&osd);
        }
    }
}

impl Mistakes {
    fn left(&self, now: Time) -> u32 {
        let forgotten = now.since(self.last_at).as_secs() / FORGET.as_secs();
        self.number.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(20);

    fn at(s: f64) -> Time {
        Time::ZERO + Duration::from_secs_f64(s)
    }

    fn allowed(patience: &Patience, s: f64) -> u64 {
        patience.allowed(4, GRACE, MAX, at(s)).as_secs()
    }

    #[test]
    fn mistake_triples_the_time_up_to_the_grace_of_peers() {
        let mut patience = Patience::default();
        for (times, (before, after)) in [(1, 3), (3, 9), (9, 20), (20, 20)].into_iter().enumerate() {
            let silent_since = 100.0 * times as f64;
            assert_eq!(allowed(&patience, silent_since), before);
            let down_at = silent_since + before as f64;
            patience.marks_down(at(down_at), 4, 7, at(silent_since), Duration::from_secs(before));
            assert!(patience.hears(at(down_at + 0.1), 4, 7));
            assert_eq!(allowed(&patience, down_at), after);
            patience.boots(at(down_at + 0.5), 4, true);
        }
        assert_eq!(patience.allowed(5, GRACE, MAX, at(900.0)), GRACE, "another OSD");
        patience.boots(at(900.0), 4, false);
        assert_eq!(allowed(&patience, 900.0), 1, "a new process");
    }

    #[test]
    fn long_silence_was_no_mistake() {
        let mut patience = Patience::default();
        patience.marks_down(at(1.0), 4, 7, at(0.0), GRACE);
        assert!(!patience.hears(at(2.1), 4, 7));
        assert!(!patience.hears(at(2.2), 4, 7));
        patience.marks_down(at(5.0), 4, 9, at(4.0), GRACE);
        assert!(!patience.hears(at(5.1), 4, 7), "words of the time before");
        assert_eq!(allowed(&patience, 5.0), 1);
    }

    #[test]
    fn silence_right_after_a_return_is_one() {
        let mut patience = Patience::default();
        patience.marks_down(at(1.0), 4, 7, at(0.0), GRACE);
        patience.boots(at(6.0), 4, true);
        patience.marks_down(at(15.0), 4, 9, at(14.0), GRACE);
        assert_eq!(allowed(&patience, 15.0), 3);
        patience.boots(at(16.0), 4, true);
        patience.marks_down(at(40.0), 4, 11, at(37.0), Duration::from_secs(3));
        assert_eq!(allowed(&patience, 40.0), 3, "it had settled");
    }

    #[test]
    fn mistakes_are_forgotten() {
        let mut patience = Patience::default();
        for s in [0.0, 1.0] {
            patience.marks_down(at(s), 4, 7, at(s), GRACE);
            assert!(patience.hears(at(s), 4, 7));
        }
        assert_eq!([299.0, 302.0, 602.0].map(|s| allowed(&patience, s)), [9, 3, 1]);
    }
}
