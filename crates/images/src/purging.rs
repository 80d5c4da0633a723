//! Schedules of trash purges: where they are kept, and the purges at their times.
//!
//! The schedules of a pool and its namespaces are rows of the omap of `rbd_trash_purge_schedule`, key the level's id, in stock's
//! format. That of all pools is an option of the manager. Facts: `src/pybind/mgr/rbd_support/trash_purge_schedule.py`, `schedule.py`.

use crate::cx::Cx;
use crate::errors;
use crate::lock::{ask_monitor, latest_map};
use crate::pool::{Errno, Pool};
use crate::progress::Progress;
use crate::schedule::{Interval, Level, Named, Schedule, StartTime};
use crate::text::{indented, minute};
use crate::trash;
use bytes::Bytes;
use client::WriteOps;
use command::{Answer, errno, object};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::types::PoolId;

const OBJECT: &str = "rbd_trash_purge_schedule";
/// The option with the schedule of all pools.
pub const OPTION: &str = "mgr/rbd_support/trash_purge_schedule";
/// Pools and namespaces are looked up, and schedules read again, this often.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Purging {
    schedules: BTreeMap<Level, Schedule>,
    /// Pools for images and their namespaces, the nameless one among them.
    namespaces: BTreeSet<(PoolId, String)>,
    /// The next purge of each, in seconds since 1970.
    due: BTreeMap<(PoolId, String), u64>,
    /// The option's text.
    of_all: String,
    /// Counts changes of schedules by commands.
    changes: u64,
}

pub(crate) type SharedPurging = Rc<RefCell<Purging>>;

/// Pools for images, by number.
pub(crate) fn image_pools(cx: &Cx) -> BTreeMap<PoolId, String> {
    let Some(map) = cx.map() else { return BTreeMap::new() };
    let is_for_images =
        |id: &PoolId| map.pools.get(id).is_some_and(|pool| pool.applications.contains_key("rbd"));
    map.pool_names
        .iter()
        .filter(|(id, _)| is_for_images(id))
        .map(|(id, name)| (*id, name.to_string()))
        .collect()
}

impl Purging {
    /// The option has changed.
    pub(crate) fn set_of_all(&mut self, text: String, now: u64) -> Result<(), String> {
        if self.of_all == text {
            return Ok(());
        }
        self.of_all = text;
        let read = self.read_of_all();
        self.plan(now);
        read
    }

    fn read_of_all(&mut self) -> Result<(), String> {
        self.schedules.remove(&Level::default());
        if !self.of_all.is_empty() {
            self.schedules.insert(Level::default(), Schedule::from_text(&self.of_all)?);
        }
        Ok(())
    }

    fn schedule_of(&self, pool: PoolId, namespace: &str) -> Option<&Schedule> {
        Level::of_namespace(pool, namespace).with_parents().find_map(|level| self.schedules.get(&level))
    }

    /// Plans all purges anew, but for those that are due.
    fn plan(&mut self, now: u64) {
        let mut due: BTreeMap<(PoolId, String), u64> =
            std::mem::take(&mut self.due).into_iter().filter(|(_, at)| *at <= now).collect();
        due.retain(|place, _| self.namespaces.contains(place));
        for (pool, namespace) in &self.namespaces {
            if let Some(at) = self.schedule_of(*pool, namespace).and_then(|schedule| schedule.next_run(now)) {
                due.entry((*pool, namespace.clone())).or_insert(at);
            }
        }
        self.due = due;
    }

    /// The first purge: its place and time.
    fn first(&self) -> Option<(&(PoolId, String), u64)> {
        self.due.iter().min_by_key(|(_, at)| **at).map(|(place, at)| (place, *at))
    }

    fn list(&self, wanted: &Level, pools: &BTreeMap<PoolId, String>) -> Value {
        let parent = wanted.with_parents().find(|level| self.schedules.contains_key(level));
        let parent = parent.unwrap_or_else(|| wanted.clone());
        let shown = |level: &Level| *level == parent || level == wanted || level.is_below(wanted);
        let rows = self.schedules.iter().filter(|(level, _)| shown(level)).map(|(level, schedule)| {
            (level.id(), json!({"name": name_of(level, pools), "schedule": schedule.list()}))
        });
        Value::Object(Map::from_iter(rows))
    }

    fn status(&self, wanted: &Level, pools: &BTreeMap<PoolId, String>) -> Value {
        let mut rows: Vec<(u64, &(PoolId, String))> = self
            .due
            .iter()
            .filter(|((pool, namespace), _)| wanted.shows(*pool, namespace))
            .map(|(p, at)| (*at, p))
            .collect();
        rows.sort();
        let row = |(at, (pool, namespace)): (u64, &(PoolId, String))| {
            json!({
                "schedule_time": minute(at),
                "pool_id": pool.to_string(),
                "pool_name": pools.get(pool).cloned().unwrap_or_default(),
                "namespace": namespace,
            })
        };
        json!({"scheduled": rows.into_iter().map(row).collect::<Value>()})
    }
}

fn name_of(level: &Level, pools: &BTreeMap<PoolId, String>) -> String {
    let Some(pool) = level.pool else { return String::new() };
    let pool = pools.get(&pool).cloned().unwrap_or_default();
    match &level.namespace {
        None => format!("{pool}/"),
        Some(namespace) => format!("{pool}/{namespace}/"),
    }
}

fn seconds(cx: &Cx) -> u64 {
    cx.wall().sec.into()
}

/// Reads schedules and namespaces of all pools for images.
pub(crate) async fn refresh(purging: &SharedPurging, cx: &Cx) {
    // A command that changes a schedule while rows are read makes them old.
    while !try_refresh(purging, cx).await {}
}

async fn try_refresh(purging: &SharedPurging, cx: &Cx) -> bool {
    let changes = purging.borrow().changes;
    let (mut schedules, mut namespaces) = (BTreeMap::new(), BTreeSet::new());
    for (id, name) in image_pools(cx) {
        let pool = Pool::new(cx, id, "").with_timeout(COMMAND_TIMEOUT);
        let read: Result<_, Errno> = async { Ok((pool.omap(OBJECT).await?, pool.namespaces().await?)) }.await;
        let (rows, found) = match read {
            Ok(read) => read,
            Err(error) => {
                cx.warn(format!("schedules of pool {name} cannot be read: {}", errors::text(error)));
                // Those that were known hold on.
                let purging = purging.borrow();
                let known = purging.schedules.iter().filter(|(level, _)| level.pool == Some(id));
                schedules.extend(known.map(|(level, schedule)| (level.clone(), schedule.clone())));
                namespaces.extend(purging.namespaces.iter().filter(|(pool, _)| *pool == id).cloned());
                continue;
            }
        };
        namespaces.insert((id, String::new()));
        namespaces.extend(found.iter().filter_map(|namespace| Some((id, namespace.to_str()?.to_owned()))));
        for (key, value) in rows {
            let level = std::str::from_utf8(&key).ok().and_then(Level::parse_id);
            let schedule =
                std::str::from_utf8(&value).map_err(|e| e.to_string()).and_then(Schedule::from_text);
            match (level.filter(|level| level.pool == Some(id)), schedule) {
                (Some(level), Ok(schedule)) => {
                    let is_there = |namespace: &String| namespaces.contains(&(id, namespace.clone()));
                    // A namespace that is gone has no schedule.
                    if level.namespace.as_ref().is_none_or(is_there) {
                        schedules.insert(level, schedule);
                    }
                }
                _ => cx
                    .warn(format!("a row of {OBJECT} in pool {name} cannot be read: {}", key.escape_ascii())),
            }
        }
    }
    let mut purging = purging.borrow_mut();
    if purging.changes != changes {
        return false;
    }
    purging.schedules = schedules;
    purging.namespaces = namespaces;
    if let Err(why) = purging.read_of_all() {
        cx.warn(format!("option {OPTION} cannot be read: {why}"));
    }
    purging.plan(seconds(cx));
    true
}

/// Purges the trash at the scheduled times, for ever.
pub(crate) async fn work(purging: SharedPurging, cx: Cx) {
    let mut refresh_at = cx.now() + REFRESH_INTERVAL;
    loop {
        if cx.now() >= refresh_at {
            // Without the newest map the next round has it.
            let _ = latest_map(&cx).await;
            refresh(&purging, &cx).await;
            refresh_at = cx.now() + REFRESH_INTERVAL;
        }
        let is_due = || {
            let purging = purging.borrow();
            let now = seconds(&cx);
            let (place, at) = purging.first()?;
            if at <= now {
                return Some(place.clone());
            }
            cx.wake_at(cx.now() + Duration::from_secs(at - now));
            None
        };
        let Some(place) = cx.until_found(refresh_at, is_due).await else { continue };
        let pool = Pool::new(&cx, place.0, place.1.as_str());
        if let Err(error) = trash::purge(&pool, &Progress::default()).await {
            let (id, namespace) = &place;
            cx.warn(format!(
                "the trash of pool {id}, namespace '{namespace}', is not purged: {}",
                errors::text(error)
            ));
        }
        let mut purging = purging.borrow_mut();
        purging.due.remove(&place);
        purging.plan(seconds(&cx));
    }
}

/// The level that a command names.
async fn level_of(cx: &Cx, text: &str) -> Result<Level, Answer> {
    let invalid = |why: String| Answer::invalid(format!("Invalid level spec {text}: {why}"));
    let named = Named::parse(text).ok_or_else(|| invalid(format!("failed to parse {text}")))?;
    let (pool_name, namespace) = match named {
        Named::All => return Ok(Level::default()),
        Named::Image => return Err(invalid(format!("invalid name {text}: image level is not allowed"))),
        Named::Pool(pool) => (pool, None),
        Named::Namespace(pool, namespace) => (pool, Some(namespace)),
    };
    let id = crate::tasks::pool_of_name(cx, &pool_name);
    let id = id.ok_or_else(|| invalid(format!("pool {pool_name} does not exist")))?;
    if !image_pools(cx).contains_key(&id) {
        return Err(invalid(format!("{pool_name} is not an RBD pool")));
    }
    let Some(namespace) = namespace else { return Ok(Level::of_pool(id)) };
    if !namespace.is_empty() {
        let known = Pool::new(cx, id, "").with_timeout(COMMAND_TIMEOUT).namespaces().await;
        let known = known.map_err(|error| errors::answer(error, "error listing namespaces"))?;
        if !known.iter().any(|other| *other == *namespace.as_str()) {
            return Err(invalid(format!("namespace {namespace} does not exist")));
        }
    }
    Ok(Level::of_namespace(id, namespace))
}

/// A change of a level's schedule, or a look at it.
pub(crate) enum Ask {
    Add { interval: String, start: Option<String> },
    Remove { interval: Option<String>, start: Option<String> },
    List,
    Status,
}

pub(crate) async fn answer(purging: &SharedPurging, cx: &Cx, level: &str, ask: Ask) -> Answer {
    match try_answer(purging, cx, level, ask).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn try_answer(purging: &SharedPurging, cx: &Cx, level: &str, ask: Ask) -> Result<Answer, Answer> {
    let level = level_of(cx, level).await?;
    let parsed = |interval: &str, start: &Option<String>| -> Result<(Interval, Option<StartTime>), Answer> {
        let start = start.as_deref().filter(|start| !start.is_empty());
        let interval = Interval::parse(interval).map_err(Answer::invalid)?;
        Ok((interval, start.map(StartTime::parse).transpose().map_err(Answer::invalid)?))
    };
    let before = purging.borrow().schedules.get(&level).cloned();
    let mut schedule = before.clone().unwrap_or_default();
    match ask {
        Ask::List => return Ok(Answer::body(indented(&purging.borrow().list(&level, &image_pools(cx))))),
        Ask::Status => return Ok(Answer::body(indented(&purging.borrow().status(&level, &image_pools(cx))))),
        Ask::Add { interval, start } => {
            let (interval, start) = parsed(&interval, &start)?;
            schedule.add(interval, start);
        }
        Ask::Remove { .. } if before.is_none() => {}
        Ask::Remove { interval: None, .. } => schedule = Schedule::default(),
        Ask::Remove { interval: Some(interval), start } => {
            let (interval, start) = parsed(&interval, &start)?;
            schedule.remove(interval, start);
        }
    }
    save(cx, &level, &schedule).await.map_err(|error| {
        let what = if level.pool.is_some() { OBJECT } else { OPTION };
        Answer::error(error, format!("[errno {error}] the schedule cannot be written to {what}"))
    })?;
    purging.borrow_mut().changes += 1;
    // A namespace that was made since the last look counts from now on.
    refresh(purging, cx).await;
    let mut purging = purging.borrow_mut();
    purging.schedules.remove(&level);
    if !schedule.is_empty() {
        purging.schedules.insert(level.clone(), schedule.clone());
    }
    if level.pool.is_none() {
        purging.of_all = if schedule.is_empty() { String::new() } else { schedule.to_text() };
    }
    purging.plan(seconds(cx));
    Ok(Answer::ok(""))
}

async fn save(cx: &Cx, level: &Level, schedule: &Schedule) -> Result<(), Errno> {
    let Some(id) = level.pool else {
        let command = match schedule.is_empty() {
            true => object! { "prefix" => "config rm", "who" => "mgr", "name" => OPTION },
            false => {
                object! { "prefix" => "config set", "who" => "mgr", "name" => OPTION, "value" => schedule.to_text() }
            }
        };
        return ask_monitor(cx, command.compact()).await;
    };
    let key = Bytes::from(level.id());
    let steps = match schedule.is_empty() {
        true => WriteOps::new().omap_remove(&[key]),
        false => WriteOps::new().omap_set(&BTreeMap::from([(key, Bytes::from(schedule.to_text()))])),
    };
    match Pool::new(cx, id, "").with_timeout(COMMAND_TIMEOUT).write(OBJECT, steps).await {
        // Nothing was scheduled here.
        Err(errno::ENOENT) if schedule.is_empty() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: &str = r#"[{"interval": "1h", "start_time": null}]"#;

    fn purging() -> Purging {
        let namespaces = [(2, String::new()), (2, "ns".to_owned()), (3, String::new())].into();
        let mut purging = Purging { namespaces, ..Purging::default() };
        let every = |interval: &str| {
            let mut schedule = Schedule::default();
            schedule.add(Interval::parse(interval).unwrap(), None);
            schedule
        };
        purging.schedules.insert(Level::of_pool(2), every("10"));
        purging.schedules.insert(Level::of_namespace(2, "ns"), every("2h"));
        purging
    }

    #[test]
    fn special_level_counts_before_general_one() {
        let mut purging = purging();
        purging.set_of_all(HOUR.into(), 0).unwrap();
        let due: Vec<(PoolId, &str, u64)> =
            purging.due.iter().map(|((p, n), at)| (*p, n.as_str(), *at)).collect();
        assert_eq!(due, [(2, "", 600), (2, "ns", 7200), (3, "", 3600)]);
        assert_eq!(purging.first(), Some((&(2, String::new()), 600)));
        purging.set_of_all(String::new(), 0).unwrap();
        assert_eq!(purging.due.len(), 2);
        assert!(purging.set_of_all("x".into(), 0).is_err());
        assert_eq!(purging.due.len(), 2, "an option that cannot be read plans nothing");
    }

    #[test]
    fn purge_that_is_due_is_not_put_off() {
        let mut purging = purging();
        purging.plan(0);
        purging.plan(601);
        assert_eq!(purging.due[&(2, String::new())], 600);
        purging.due.remove(&(2, String::new()));
        purging.plan(601);
        assert_eq!(purging.due[&(2, String::new())], 1200);
    }

    #[test]
    fn listing_of_a_namespace_shows_its_parent() {
        let mut purging = purging();
        let pools = BTreeMap::from([(2, "rbd".to_owned()), (3, "other".to_owned())]);
        let ids = |purging: &Purging, level: &Level| -> Vec<String> {
            purging.list(level, &pools).as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(ids(&purging, &Level::of_namespace(2, "ns")), ["2/ns"]);
        assert_eq!(ids(&purging, &Level::default()), ["2", "2/ns"]);
        purging.schedules.remove(&Level::of_namespace(2, "ns"));
        assert_eq!(ids(&purging, &Level::of_namespace(2, "ns")), ["2"]);
        assert_eq!(ids(&purging, &Level::of_pool(3)), [""; 0]);
        let shown = purging.list(&Level::of_pool(2), &pools);
        assert_eq!(
            shown["2"],
            json!({"name": "rbd/", "schedule": [{"interval": "10m", "start_time": null}]})
        );
    }

    #[test]
    fn status_is_in_order_of_time() {
        let mut purging = purging();
        purging.plan(1_798_761_599);
        let pools = BTreeMap::from([(2, "rbd".to_owned())]);
        let got = purging.status(&Level::default(), &pools);
        let namespaces: Vec<&Value> =
            got["scheduled"].as_array().unwrap().iter().map(|row| &row["namespace"]).collect();
        assert_eq!(namespaces, ["", "ns"]);
        let row = json!({"schedule_time": "2027-01-01 00:00:00", "pool_id": "2", "pool_name": "rbd", "namespace": "ns"});
        assert_eq!(purging.status(&Level::of_namespace(2, "ns"), &pools), json!({"scheduled": [row]}));
        assert_eq!(purging.status(&Level::of_pool(3), &pools), json!({"scheduled": []}));
    }
}
