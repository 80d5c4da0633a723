//! PG states, recovery, and the time that it will take.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgState {
    pub name: String,
    pub count: u64,
    pub standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Active and clean.
    Clean,
    /// It serves.
    Active,
    /// It serves nothing, or has damage.
    Bad,
}

fn standing(name: &str) -> Standing {
    let has = |word: &str| name.split('+').any(|part| part == word);
    let is_damaged = ["inconsistent", "recovery_unfound", "backfill_unfound", "stale"].into_iter().any(has);
    match (has("active"), has("clean"), is_damaged) {
        (false, ..) | (_, _, true) => Standing::Bad,
        (true, true, false) => Standing::Clean,
        (true, false, false) => Standing::Active,
    }
}

/// States of `status`, clean ones first, then by number. `None` without an answer.
pub fn pg_states(status: Option<&Value>) -> Option<Vec<PgState>> {
    let rows = status?["pgmap"]["pgs_by_state"].as_array()?.iter();
    let mut states: Vec<PgState> = rows
        .filter_map(|row| {
            let (name, count) = (row["state_name"].as_str()?.to_owned(), row["count"].as_u64()?);
            Some(PgState { standing: standing(&name), name, count })
        })
        .collect();
    states.sort_by_key(|state| (state.standing, std::cmp::Reverse(state.count)));
    Some(states)
}

#[derive(Clone, Debug, PartialEq, Default)]
pub struct Recovery {
    pub degraded: u64,
    pub misplaced: u64,
    pub unfound: u64,
    pub objects_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    /// Copies that lack, by the present rate.
    pub left_s: Option<f64>,
    pub events: Vec<Progress>,
}

/// One event of the manager's progress module.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub message: String,
    /// 0 to 1.
    pub part: f64,
    pub left_s: Option<f64>,
}

/// `now` is in seconds since 1970, as the events' times are.
pub fn recovery(status: Option<&Value>, progress: Option<&Value>, now: f64) -> Recovery {
    let nothing = Value::Null;
    let map = status.map_or(&nothing, |status| &status["pgmap"]);
    let (degraded, misplaced) = (&map["degraded_objects"], &map["misplaced_objects"]);
    let (degraded, misplaced) = (degraded.as_u64().unwrap_or(0), misplaced.as_u64().unwrap_or(0));
    let objects_per_s = map["recovering_objects_per_sec"].as_f64();
    let copies = (degraded + misplaced) as f64;
    Recovery {
        degraded,
        misplaced,
        unfound: map["unfound_objects"].as_u64().unwrap_or(0),
        objects_per_s,
        bytes_per_s: map["recovering_bytes_per_sec"].as_f64(),
        left_s: objects_per_s.filter(|rate| *rate > 0.0 && copies > 0.0).map(|rate| copies / rate),
        events: events(status, progress, now),
    }
}

fn events(status: Option<&Value>, progress: Option<&Value>, now: f64) -> Vec<Progress> {
    if let Some(events) = progress.and_then(|progress| progress["events"].as_array()) {
        return events.iter().filter_map(|event| one_event(event, now)).collect();
    }
    let events = status.and_then(|status| status["progress_events"].as_object());
    events.into_iter().flatten().filter_map(|(_, event)| one_event(event, now)).collect()
}

fn one_event(event: &Value, now: f64) -> Option<Progress> {
    let message = event["message"].as_str()?.trim().to_owned();
    let part = event["progress"].as_f64()?.clamp(0.0, 1.0);
    let elapsed = event["started_at"].as_f64().map(|since| now - since).filter(|elapsed| *elapsed > 0.0);
    let left_s = elapsed.filter(|_| part > 0.0).map(|elapsed| elapsed * (1.0 - part) / part);
    Some(Progress { message, part, left_s })
}
