//! Progress of recovery and of tasks, for `ceph progress` and the progress lines of `ceph -s` (the `progress` module of stock).
//!
//! Each task on block images has an event, from its first step on.
//!
//! One more event stands for all recovery and backfill of the cluster. It begins when a PG starts or waits to recover, and
//! ends when none does. Its share is objects recovered since it began, of those and the objects that PGs in recovery
//! still lack or have misplaced. Stock's share counts clean PGs, and its event begins only beside another one.

use crate::PgMap;
use command::{Json, TaskEvent, TaskState, object};
use machine::Random;
use std::collections::{BTreeMap, VecDeque};
use wire::text::Age;
use wire::types::{PgState, ProgressEvent, UTime};

/// As stock's `sleep_interval`.
const LOOK_INTERVAL_S: u32 = 5;
/// As stock's `max_completed_events`.
const COMPLETED_MAX: usize = 50;
const RECOVERY: &str = "Global Recovery Event";
const RECOVERING: [PgState; 6] = [
    PgState::RECOVERING,
    PgState::RECOVERY_WAIT,
    PgState::RECOVERY_TOOFULL,
    PgState::BACKFILLING,
    PgState::BACKFILL_WAIT,
    PgState::BACKFILL_TOOFULL,
];

#[derive(Clone)]
enum Refs {
    Global,
    Task(BTreeMap<String, String>),
}

impl Refs {
    fn json(&self) -> Json {
        match self {
            Refs::Global => Json::array([Json::array(["global", ""])]),
            Refs::Task(refs) => {
                Json::Object(refs.iter().map(|(k, v)| (k.clone().into(), v.as_str().into())).collect())
            }
        }
    }
}

#[derive(Clone)]
struct Event {
    id: String,
    message: String,
    refs: Refs,
    started: UTime,
    /// 0 to 1.
    share: f64,
}

struct Completed {
    event: Event,
    finished: UTime,
    failure: Option<String>,
}

struct Recovery {
    event: Event,
    /// The cluster's count of recovered objects at the start.
    recovered_before: u64,
}

pub(crate) struct ProgressEvents {
    is_on: bool,
    recovery: Option<Recovery>,
    /// By their ids.
    tasks: BTreeMap<String, Event>,
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

impl ProgressEvents {
    pub fn new(random: Random) -> ProgressEvents {
        ProgressEvents {
            is_on: true,
            recovery: None,
            tasks: BTreeMap::new(),
            completed: VecDeque::new(),
            looked: UTime::ZERO,
            random,
        }
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub fn set(&mut self, setting: Setting) {
        if setting != Setting::On {
            (self.recovery, self.completed) = (None, VecDeque::new());
            self.tasks.clear();
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
            if let Some(Recovery { event, .. }) = self.recovery.take() {
                self.complete(event, now, None);
            }
            return;
        }
        let left: u64 =
            sums.iter().map(|sum| (sum.num_objects_degraded + sum.num_objects_misplaced).max(0) as u64).sum();
        let recovered = pg_map.recovered_objects;
        let random = &mut self.random;
        let recovery = self.recovery.get_or_insert_with(|| Recovery {
            event: Event {
                id: uuid(random),
                message: RECOVERY.to_owned(),
                refs: Refs::Global,
                started: now,
                share: 0.0,
            },
            recovered_before: recovered,
        });
        let done = recovered - recovery.recovered_before;
        recovery.event.share = match done + left {
            // All objects are there; the PGs have yet to say that they are clean.
            0 => 1.0,
            work => done as f64 / work as f64,
        };
    }

    /// A task has begun, gone on or ended. An event begins with the first news of its task.
    pub fn on_task(&mut self, now: UTime, task: TaskEvent) {
        if !self.is_on {
            return;
        }
        let TaskEvent { id, message, refs, state } = task;
        let begun = || Event { id: id.clone(), message, refs: Refs::Task(refs), started: now, share: 0.0 };
        let event = self.tasks.entry(id.clone()).or_insert_with(begun);
        let failure = match state {
            TaskState::UnderWay(share) => {
                event.share = share.clamp(0.0, 1.0);
                return;
            }
            TaskState::Done => None,
            TaskState::Failed(why) => Some(why),
        };
        if let Some(event) = self.tasks.remove(&id) {
            self.complete(event, now, failure);
        }
    }

    /// Those that told of tasks begin anew, or have gone.
    pub fn forget_tasks(&mut self) {
        self.tasks.clear();
    }

    fn complete(&mut self, event: Event, now: UTime, failure: Option<String>) {
        self.completed.push_back(Completed { event, finished: now, failure });
        if self.completed.len() > COMPLETED_MAX {
            self.completed.pop_front();
        }
    }

    /// The last to begin comes first.
    fn under_way(&self) -> Vec<&Event> {
        let recovery = self.recovery.iter().map(|recovery| &recovery.event);
        let mut events: Vec<&Event> = recovery.chain(self.tasks.values()).collect();
        events.sort_by_key(|event| std::cmp::Reverse(event.started));
        events
    }

    /// For the monitor, which shows them in `ceph -s`.
    pub fn events(&self, now: UTime) -> BTreeMap<String, ProgressEvent> {
        let shown = self.under_way().into_iter().map(|event| {
            let message = two_lines(event, event.age(now), event.share, event.remaining_s(now), 6);
            (event.id.clone(), ProgressEvent { message, progress: event.share as f32, add_to_status: true })
        });
        shown.collect()
    }

    pub fn text(&self, now: UTime) -> Option<String> {
        let under_way = self.under_way();
        if under_way.is_empty() && self.completed.is_empty() {
            return None;
        }
        let mut text = String::new();
        for event in under_way {
            text += &(two_lines(event, event.age(now), event.share, event.remaining_s(now), 4) + "\n");
        }
        if !self.completed.is_empty() {
            text.push('\n');
        }
        for Completed { event, finished, failure } in &self.completed {
            let lines = two_lines(event, Age::between(event.started, *finished), 1.0, None, 4);
            let how = if failure.is_some() { "Failed" } else { "Complete" };
            text += &format!("[{how}]: {lines}\n");
        }
        Some(text)
    }

    pub fn json(&self, now: UTime) -> Json {
        let events = self.under_way().into_iter().map(|event| {
            let mut json = object! {
                "duration" => format!("({})", event.age(now)),
                "id" => event.id.as_str(),
                "message" => event.message.as_str(),
                "progress" => event.share,
                "refs" => event.refs.json(),
                "started_at" => event.started.as_secs_f64(),
            };
            match event.remaining_s(now) {
                Some(seconds) => json.push("time_remaining", seconds),
                None => json.push("time_remaining", Json::Raw("null".into())),
            }
            json
        });
        let completed = self.completed.iter().map(|Completed { event, finished, failure }| {
            let mut json = object! {
                // The colon is part of stock's key.
                "add_to_ceph_s:" => true,
            };
            if let Some(why) = failure {
                json.push("failed", true);
                json.push("failure_message", why.as_str());
            }
            json.push("finished_at", finished.as_secs_f64());
            json.push("id", event.id.as_str());
            json.push("message", event.message.as_str());
            json.push("refs", event.refs.json());
            json.push("started_at", event.started.as_secs_f64());
            json
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
fn two_lines(event: &Event, age: Age, share: f64, remaining_s: Option<u64>, indent: usize) -> String {
    const BAR: usize = 28;
    let done = (share * BAR as f64) as usize;
    let remaining = match remaining_s.filter(|seconds| *seconds > 0) {
        Some(seconds) => format!("(remaining: {})", Age { nanos: seconds * 1_000_000_000 }),
        None => String::new(),
    };
    let (bar, rest) = ("=".repeat(done), ".".repeat(BAR - done));
    let message = &event.message;
    format!("{message} ({age})\n{:indent$}[{bar}{rest}] {remaining}", "")
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
        let mut progress = ProgressEvents::new(Random::from_number(1));
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

    fn task(id: &str, state: TaskState) -> TaskEvent {
        let refs = [("action", "flatten"), ("origin", "rbd_support")];
        let refs = refs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        TaskEvent { id: id.into(), message: format!("Flattening image rbd/{id}"), refs, state }
    }

    #[test]
    fn task_has_an_event_from_first_news_to_its_end() {
        let mut progress = ProgressEvents::new(Random::from_number(1));
        progress.on_task(at(0), task("a", TaskState::UnderWay(0.25)));
        progress.on_task(at(5), task("b", TaskState::UnderWay(0.0)));
        progress.on_task(at(10), task("a", TaskState::UnderWay(0.5)));
        let lines = "Flattening image rbd/b (5s)\n    [............................] \n\
                     Flattening image rbd/a (10s)\n    [==============..............] (remaining: 10s)\n";
        assert_eq!(progress.text(at(10)).unwrap(), lines);
        let events = progress.events(at(10));
        assert_eq!((events["a"].progress, events["b"].add_to_status), (0.5, true));
        let refs = r#""refs":{"action":"flatten","origin":"rbd_support"},"#;
        let shown = progress.json(at(10)).compact();
        assert!(shown.contains(refs) && shown.contains(r#""time_remaining":null"#), "{shown}");

        progress.on_task(at(20), task("a", TaskState::Done));
        progress.on_task(at(20), task("b", TaskState::Failed("Operation canceled".into())));
        progress.on_task(at(20), task("c", TaskState::Done));
        assert!(progress.events(at(20)).is_empty());
        let shown = progress.json(at(20)).compact();
        let failed = r#"{"add_to_ceph_s:":true,"failed":true,"failure_message":"Operation canceled","finished_at":1800000020,"#;
        assert!(shown.contains(failed) && shown.contains(r#""id":"c""#), "{shown}");
        let text = progress.text(at(20)).unwrap();
        assert!(text.contains("[Complete]: Flattening image rbd/a (20s)\n"), "{text}");
        assert!(text.contains("[Failed]: Flattening image rbd/b (15s)\n"), "{text}");
    }

    #[test]
    fn tasks_of_an_ended_client_leave_no_event() {
        let mut progress = ProgressEvents::new(Random::from_number(1));
        progress.on_task(at(0), task("a", TaskState::UnderWay(0.25)));
        progress.forget_tasks();
        assert_eq!(progress.text(at(0)), None);
        progress.set(Setting::Off);
        progress.on_task(at(0), task("a", TaskState::UnderWay(0.25)));
        assert_eq!(progress.text(at(0)), None, "switched off");
    }

    #[test]
    fn switched_off_progress_forgets_and_stays_silent() {
        let mut m = pg_map();
        let mut progress = ProgressEvents::new(Random::from_number(1));
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
