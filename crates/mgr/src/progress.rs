//! Progress of recovery, for `ceph progress` and the progress lines of `ceph -s` (the `progress` module of stock).
//!
//! One event stands for all recovery and backfill of the cluster. It begins when a PG starts or waits to recover, and
//! ends when none does. Its share is objects recovered since it began, of those and the objects that PGs in recovery
//! still lack or have misplaced. Stock's share counts clean PGs, and its event begins only beside another one.

use crate::PgMap;
use command::{Json, object};
use machine::Random;
use std::collections::{BTreeMap, VecDeque};
use wire::text::Age;
use wire::types::{PgState, ProgressEvent, UTime};

/// As stock's `sleep_interval`.
const LOOK_INTERVAL_S: u32 = 5;
/// As stock's `max_completed_events`.
const COMPLETED_MAX: usize = 50;
const MESSAGE: &str = "Global Recovery Event";
const RECOVERING: [PgState; 6] = [
    PgState::RECOVERING,
    PgState::RECOVERY_WAIT,
    PgState::RECOVERY_TOOFULL,
    PgState::BACKFILLING,
    PgState::BACKFILL_WAIT,
    PgState::BACKFILL_TOOFULL,
];

struct Event {
    id: String,
    started: UTime,
    /// The cluster's count of recovered objects at the start.
    recovered_before: u64,
    /// 0 to 1.
    share: f64,
}

struct Completed {
    id: String,
    started: UTime,
    finished: UTime,
}

pub(crate) struct RecoveryProgress {
    is_on: bool,
    event: Option<Event>,
    completed: VecDeque<Completed>,
    looked: UTime,
    random: Random,
}

/// A change by `progress on`, `progress off` or `progress clear`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Setting {
    On,
    Off,
    Clear,
}

impl RecoveryProgress {
    pub fn new(random: Random) -> RecoveryProgress {
        RecoveryProgress { is_on: true, event: None, completed: VecDeque::new(), looked: UTime::ZERO, random }
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub fn set(&mut self, setting: Setting) {
        if setting != Setting::On {
            (self.event, self.completed) = (None, VecDeque::new());
        }
        self.is_on = match setting {
            Setting::On => true,
            Setting::Off => false,
            Setting::Clear => self.is_on,
        };
    }

    /// Follows the PGs, every few seconds.
    pub fn look(&mut self, now: UTime, pg_map: &PgMap) {
        if !self.is_on || now.sec < self.looked.sec.saturating_add(LOOK_INTERVAL_S) {
            return;
        }
        self.looked = now;
        let is_recovering = |state: PgState| RECOVERING.iter().any(|flag| state.has(*flag));
        let pgs = pg_map.pgs.values().filter(|stat| is_recovering(stat.state));
        let sums: Vec<_> = pgs.map(|stat| stat.stats.sum).collect();
        if sums.is_empty() {
            if let Some(Event { id, started, .. }) = self.event.take() {
                self.completed.push_back(Completed { id, started, finished: now });
                if self.completed.len() > COMPLETED_MAX {
                    self.completed.pop_front();
                }
            }
            return;
        }
        let left: u64 =
            sums.iter().map(|sum| (sum.num_objects_degraded + sum.num_objects_misplaced).max(0) as u64).sum();
        let recovered = pg_map.recovered_objects;
        let random = &mut self.random;
        let event = self.event.get_or_insert_with(|| Event {
            id: uuid(random),
            started: now,
            recovered_before: recovered,
            share: 0.0,
        });
        let done = recovered - event.recovered_before;
        event.share = match done + left {
            // All objects are there; the PGs have yet to say that they are clean.
            0 => 1.0,
            work => done as f64 / work as f64,
        };
    }

    /// For the monitor, which shows them in `ceph -s`.
    pub fn events(&self, now: UTime) -> BTreeMap<String, ProgressEvent> {
        let event = self.event.iter().map(|event| {
            let message = two_lines(event.age(now), event.share, event.remaining_s(now), 6);
            (event.id.clone(), ProgressEvent { message, progress: event.share as f32, add_to_status: true })
        });
        event.collect()
    }

    pub fn text(&self, now: UTime) -> Option<String> {
        if self.event.is_none() && self.completed.is_empty() {
            return None;
        }
        let mut text = String::new();
        if let Some(event) = &self.event {
            text += &(two_lines(event.age(now), event.share, event.remaining_s(now), 4) + "\n");
        }
        if !self.completed.is_empty() {
            text.push('\n');
        }
        for event in &self.completed {
            let lines = two_lines(Age::between(event.started, event.finished), 1.0, None, 4);
            text += &format!("[Complete]: {lines}\n");
        }
        Some(text)
    }

    pub fn json(&self, now: UTime) -> Json {
        let refs = || Json::array([Json::array(["global", ""])]);
        let events = self.event.iter().map(|event| {
            let mut json = object! {
                "duration" => format!("({})", event.age(now)),
                "id" => event.id.as_str(),
                "message" => MESSAGE,
                "progress" => event.share,
                "refs" => refs(),
                "started_at" => event.started.as_secs_f64(),
            };
            match event.remaining_s(now) {
                Some(seconds) => json.push("time_remaining", seconds),
                None => json.push("time_remaining", Json::Raw("null".into())),
            }
            json
        });
        let completed = self.completed.iter().map(|event| {
            object! {
                // The colon is part of stock's key.
                "add_to_ceph_s:" => true,
                "finished_at" => event.finished.as_secs_f64(),
                "id" => event.id.as_str(),
                "message" => MESSAGE,
                "refs" => refs(),
                "started_at" => event.started.as_secs_f64(),
            }
        });
        object! { "completed" => Json::array(completed), "events" => Json::array(events) }
    }
}

impl Event {
    /// In whole seconds.
    fn age(&self, now: UTime) -> Age {
        let nanos = Age::between(self.started, now).nanos;
        Age { nanos: nanos - nanos % 1_000_000_000 }
    }

    /// At the speed so far; nothing before the first object.
    fn remaining_s(&self, now: UTime) -> Option<u64> {
        let elapsed = Age::between(self.started, now).nanos as f64 / 1e9;
        (self.share > 0.0).then(|| (elapsed * (1.0 - self.share) / self.share) as u64)
    }
}

/// `Global Recovery Event (30s)`, and under it a bar with the time that is left.
fn two_lines(age: Age, share: f64, remaining_s: Option<u64>, indent: usize) -> String {
    const BAR: usize = 28;
    let done = (share * BAR as f64) as usize;
    let remaining = match remaining_s.filter(|seconds| *seconds > 0) {
        Some(seconds) => format!("(remaining: {})", Age { nanos: seconds * 1_000_000_000 }),
        None => String::new(),
    };
    let (bar, rest) = ("=".repeat(done), ".".repeat(BAR - done));
    format!("{MESSAGE} ({age})\n{:indent$}[{bar}{rest}] {remaining}", "")
}

fn uuid(random: &mut Random) -> String {
    let bytes: [u8; 16] = random.bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    // Version 4, as the letters of a random UUID are.
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{pg_map, report};

    fn at(sec: u32) -> UTime {
        UTime { sec: 1_800_000_000 + sec, nsec: 0 }
    }

    /// PG 1.0 in recovery, with so many objects recovered in its life and so many left.
    fn recover(m: &mut PgMap, words: &str, recovered: i64, left: i64) {
        report(m, 0, &[0, 1, 2], words, |stat| {
            stat.stats.sum.num_objects_recovered = recovered;
            stat.stats.sum.num_objects_degraded = left;
        });
    }

    #[test]
    fn event_begins_with_recovery_and_ends_with_it() {
        let mut m = pg_map();
        let mut progress = RecoveryProgress::new(Random::from_number(1));
        recover(&mut m, "active+undersized+degraded", 100, 40);
        progress.look(at(0), &m);
        assert!(progress.events(at(0)).is_empty(), "nothing can recover while the OSD is away");
        assert_eq!(progress.text(at(0)), None);

        recover(&mut m, "active+recovery_wait+degraded", 100, 40);
        progress.look(at(4), &m);
        assert!(progress.events(at(4)).is_empty(), "looks are five seconds apart");
        progress.look(at(5), &m);
        recover(&mut m, "active+recovering+degraded", 110, 30);
        progress.look(at(25), &m);
        let events = progress.events(at(25));
        let (id, event) = events.first_key_value().unwrap();
        assert_eq!((id.len(), &id[14..15], event.progress, event.add_to_status), (36, "4", 0.25, true));
        assert_eq!(
            event.message,
            "Global Recovery Event (20s)\n      [=======.....................] (remaining: 60s)"
        );
        assert_eq!(
            progress.json(at(25)).compact(),
            format!(
                r#"{{"completed":[],"events":[{{"duration":"(20s)","id":"{id}","message":"Global Recovery Event","#
            ) + r#""progress":0.25,"refs":[["global",""]],"started_at":1800000005,"time_remaining":60}]}"#
        );

        recover(&mut m, "active+clean", 140, 0);
        progress.look(at(45), &m);
        assert!(progress.events(at(45)).is_empty());
        assert_eq!(
            progress.text(at(45)).unwrap(),
            "\n[Complete]: Global Recovery Event (40s)\n    [============================] \n"
        );
    }

    #[test]
    fn switched_off_progress_forgets_and_stays_silent() {
        let mut m = pg_map();
        let mut progress = RecoveryProgress::new(Random::from_number(1));
        recover(&mut m, "active+recovering+degraded", 0, 40);
        progress.look(at(5), &m);
        progress.set(Setting::Clear);
        assert_eq!(progress.text(at(5)), None);
        progress.look(at(10), &m);
        assert!(progress.text(at(10)).is_some(), "cleared, not off");
        progress.set(Setting::Off);
        progress.look(at(20), &m);
        assert_eq!((progress.text(at(20)), progress.is_on()), (None, false));
        progress.set(Setting::On);
        progress.look(at(30), &m);
        assert!(progress.text(at(30)).is_some());
    }
}
