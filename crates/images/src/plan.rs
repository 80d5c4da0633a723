//! Plans: schedules of trash purges and of mirror snapshots, where they are kept, and the work at their times.
//!
//! The schedules of a pool, its namespaces and images are rows of the omap of one object, key the level's id, in stock's format. That
//! of all pools is an option of the manager. Facts: `src/pybind/mgr/rbd_support/trash_purge_schedule.py`,
//! `mirror_snapshot_schedule.py`, `schedule.py`.

use crate::cx::Cx;
use crate::errors;
use crate::image::id_of;
use crate::lock::{ask_monitor, latest_map};
use crate::mirror;
use crate::pool::{COMMAND_TIMEOUT, Errno, Pool, image_pools};
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
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use wire::types::{Name, PoolId};

/// Pools, namespaces and images are looked up, and schedules read again, this often.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
const REFRESH_DELAY: Duration = Duration::from_secs(1);

/// The work that a plan's schedules are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// In namespaces.
    TrashPurge,
    /// Of images.
    MirrorSnapshot,
}

impl Purpose {
    /// The object with the rows of a pool.
    fn object(self) -> &'static str {
        match self {
            Purpose::TrashPurge => "rbd_trash_purge_schedule",
            Purpose::MirrorSnapshot => "rbd_mirror_snapshot_schedule",
        }
    }

    /// The option with the schedule of all pools.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Purpose::TrashPurge => "mgr/rbd_support/trash_purge_schedule",
            Purpose::MirrorSnapshot => "mgr/rbd_support/mirror_snapshot_schedule",
        }
    }
}

pub(crate) struct Plan {
    purpose: Purpose,
    /// Work that is under way at a time, at most.
    pub side_by_side_max: usize,
    /// `rbd_mirroring_max_mirroring_snapshots`, where neither image nor pool sets it.
    pub snapshots_max: u64,
    schedules: BTreeMap<Level, Schedule>,
    /// Namespaces or images that work can be planned for, and pools' namespaces; images with their names.
    places: BTreeMap<Level, String>,
    /// Names of images that have schedules of their own.
    names: BTreeMap<Level, String>,
    /// The next time of each place, in seconds since 1970.
    due: BTreeMap<Level, u64>,
    under_way: BTreeSet<Level>,
    /// The last failure at each place, so that the log has it once.
    failures: BTreeMap<Level, String>,
    /// The option's text.
    of_all: String,
    /// Counts changes of schedules by commands.
    changes: u64,
    /// A command has changed a schedule of many images.
    wants_refresh: bool,
}

pub(crate) type SharedPlan = Rc<RefCell<Plan>>;

impl Plan {
    pub(crate) fn new(purpose: Purpose) -> Plan {
        Plan {
            purpose,
            side_by_side_max: 1,
            snapshots_max: u64::MAX,
            schedules: BTreeMap::new(),
            places: BTreeMap::new(),
            names: BTreeMap::new(),
            due: BTreeMap::new(),
            under_way: BTreeSet::new(),
            failures: BTreeMap::new(),
            of_all: String::new(),
            changes: 0,
            wants_refresh: false,
        }
    }

    /// The option may have changed.
    pub(crate) fn set_of_all(&mut self, text: &str, now: u64) -> Result<(), String> {
        if self.of_all == text {
            return Ok(());
        }
        self.of_all = text.to_owned();
        let read = self.read_of_all();
        self.plan(now);
        self.wants_refresh = true;
        read
    }

    fn read_of_all(&mut self) -> Result<(), String> {
        self.schedules.remove(&Level::default());
        if !self.of_all.is_empty() {
            self.schedules.insert(Level::default(), Schedule::from_text(&self.of_all)?);
        }
        Ok(())
    }

    fn schedule_of(&self, place: &Level) -> Option<&Schedule> {
        place.with_parents().find_map(|level| self.schedules.get(&level))
    }

    /// Plans all places anew, but for those that are due.
    fn plan(&mut self, now: u64) {
        let mut due: BTreeMap<Level, u64> =
            std::mem::take(&mut self.due).into_iter().filter(|(_, at)| *at <= now).collect();
        due.retain(|place, _| self.places.contains_key(place) && self.schedule_of(place).is_some());
        for place in self.places.keys() {
            if let Some(at) = self.schedule_of(place).and_then(|schedule| schedule.next_run(now)) {
                due.entry(place.clone()).or_insert(at);
            }
        }
        self.due = due;
        self.failures.retain(|place, _| self.places.contains_key(place));
    }

    /// Takes a place whose time has come, and plans its next time. The time until which there is none, if there is one.
    ///
    /// A place where the last work is still under way is left out this time, as on stock.
    fn take_due(&mut self, now: u64) -> Result<Level, Option<u64>> {
        loop {
            let Some((place, at)) = self.due.iter().min_by_key(|(_, at)| **at) else { return Err(None) };
            if *at > now {
                return Err(Some(*at));
            }
            if self.under_way.len() >= self.side_by_side_max {
                return Err(None);
            }
            let place = place.clone();
            match self.schedule_of(&place).and_then(|schedule| schedule.next_run(now)) {
                Some(next) => self.due.insert(place.clone(), next),
                None => self.due.remove(&place),
            };
            if self.under_way.insert(place.clone()) {
                return Ok(place);
            }
        }
    }

    /// The end of the work at a place. A failure that is new, for the log.
    fn end(&mut self, place: &Level, failure: Option<String>) -> Option<String> {
        self.under_way.remove(place);
        match failure {
            Some(failure) if self.failures.get(place) == Some(&failure) => None,
            Some(failure) => {
                self.failures.insert(place.clone(), failure.clone());
                Some(failure)
            }
            None => {
                self.failures.remove(place);
                None
            }
        }
    }

    fn name_of(&self, level: &Level, pools: &BTreeMap<PoolId, String>) -> String {
        let Some(pool) = level.pool else { return String::new() };
        let pool = pools.get(&pool).cloned().unwrap_or_default();
        let image = self.places.get(level).or_else(|| self.names.get(level)).cloned().unwrap_or_default();
        match (level.namespace.as_deref(), &level.image) {
            (None, _) => format!("{pool}/"),
            (Some(namespace), None) => format!("{pool}/{namespace}/"),
            (Some(""), Some(_)) => format!("{pool}/{image}"),
            (Some(namespace), Some(_)) => format!("{pool}/{namespace}/{image}"),
        }
    }

    fn list(&self, wanted: &Level, pools: &BTreeMap<PoolId, String>) -> Value {
        let parent = wanted.with_parents().find(|level| self.schedules.contains_key(level));
        let parent = parent.unwrap_or_else(|| wanted.clone());
        let shown = |level: &Level| *level == parent || level == wanted || level.is_below(wanted);
        let rows = self.schedules.iter().filter(|(level, _)| shown(level)).map(|(level, schedule)| {
            (level.id(), json!({"name": self.name_of(level, pools), "schedule": schedule.list()}))
        });
        Value::Object(Map::from_iter(rows))
    }

    fn status(&self, wanted: &Level, pools: &BTreeMap<PoolId, String>) -> Value {
        let mut rows: Vec<(u64, &Level)> =
            self.due.iter().filter(|(place, _)| wanted.shows(place)).map(|(p, at)| (*at, p)).collect();
        rows.sort();
        let row = |(at, place): (u64, &Level)| match self.purpose {
            Purpose::TrashPurge => json!({
                "schedule_time": minute(at),
                "pool_id": place.pool.unwrap_or_default().to_string(),
                "pool_name": place.pool.and_then(|pool| pools.get(&pool).cloned()).unwrap_or_default(),
                "namespace": place.namespace,
            }),
            Purpose::MirrorSnapshot => {
                json!({"schedule_time": minute(at), "image": self.name_of(place, pools)})
            }
        };
        let rows: Value = rows.into_iter().map(row).collect();
        match self.purpose {
            Purpose::TrashPurge => json!({"scheduled": rows}),
            Purpose::MirrorSnapshot => json!({"scheduled_images": rows}),
        }
    }
}

fn seconds(cx: &Cx) -> u64 {
    cx.wall().sec.into()
}

/// Reads the schedules of all pools for images, and looks up the places that they count for.
pub(crate) async fn refresh(plan: &SharedPlan, cx: &Cx) {
    // A command that changes a schedule while rows are read makes them old.
    while !try_refresh(plan, cx).await {}
}

/// One pool's part of a plan.
#[derive(Default)]
struct Part {
    schedules: BTreeMap<Level, Schedule>,
    places: BTreeMap<Level, String>,
    names: BTreeMap<Level, String>,
    /// Keys of rows whose namespace or image is gone, or is not mirrored by snapshots any more.
    stale: Vec<Bytes>,
}

/// The entries of one pool.
fn of_pool<T: Clone>(pool: PoolId, all: &BTreeMap<Level, T>) -> impl Iterator<Item = (Level, T)> + '_ {
    let is_here = move |(level, _): &(&Level, &T)| level.pool == Some(pool);
    all.iter().filter(is_here).map(|(level, known)| (level.clone(), known.clone()))
}

async fn try_refresh(plan: &SharedPlan, cx: &Cx) -> bool {
    let (changes, purpose) = {
        let mut plan = plan.borrow_mut();
        plan.wants_refresh = false;
        (plan.changes, plan.purpose)
    };
    let has_of_all = plan.borrow().schedules.contains_key(&Level::default());
    let mut whole = Part::default();
    let mut stale = Vec::new();
    for (id, name) in image_pools(cx) {
        let pool = Pool::new(cx, id, "").with_timeout(COMMAND_TIMEOUT);
        match read_part(purpose, &pool, &name, has_of_all).await {
            Ok(part) => {
                whole.schedules.extend(part.schedules);
                whole.places.extend(part.places);
                whole.names.extend(part.names);
                stale.push((pool, part.stale));
            }
            Err(error) => {
                cx.warn(format!("schedules of pool {name} cannot be read: {}", errors::text(error)));
                // Those that were known hold on.
                let plan = plan.borrow();
                whole.schedules.extend(of_pool(id, &plan.schedules));
                whole.places.extend(of_pool(id, &plan.places));
                whole.names.extend(of_pool(id, &plan.names));
            }
        }
    }
    {
        let mut plan = plan.borrow_mut();
        if plan.changes != changes {
            return false;
        }
        plan.schedules = whole.schedules;
        plan.places = whole.places;
        plan.names = whole.names;
        if let Err(why) = plan.read_of_all() {
            cx.warn(format!("option {} cannot be read: {why}", purpose.option()));
        }
        plan.plan(seconds(cx));
    }
    for (pool, keys) in stale {
        // A command that has begun since may write such a row anew: its write comes after this one.
        if keys.is_empty() || plan.borrow().changes != changes {
            continue;
        }
        if let Err(error) = pool.write(purpose.object(), WriteOps::new().omap_remove(&keys)).await {
            cx.warn(format!("rows of {} are not removed: {}", purpose.object(), errors::text(error)));
        }
    }
    true
}

async fn read_part(purpose: Purpose, pool: &Pool, name: &str, has_of_all: bool) -> Result<Part, Errno> {
    let id = pool.id;
    let mut part = Part::default();
    let rows = pool.omap(purpose.object()).await?;
    let mut namespaces = vec![String::new()];
    namespaces.extend(pool.namespaces().await?.iter().filter_map(|name| name.to_str().map(str::to_owned)));
    for (key, value) in rows {
        let level = std::str::from_utf8(&key).ok().and_then(Level::parse_id);
        let schedule = std::str::from_utf8(&value).map_err(|e| e.to_string()).and_then(Schedule::from_text);
        let (Some(level), Ok(schedule)) = (level.filter(|level| level.pool == Some(id)), schedule) else {
            let object = purpose.object();
            pool.cx.warn(format!("a row of {object} in pool {name} cannot be read: {}", key.escape_ascii()));
            continue;
        };
        // A namespace that is gone has no schedule.
        let is_there = level.namespace.as_ref().is_none_or(|namespace| namespaces.contains(namespace));
        match purpose {
            Purpose::TrashPurge if is_there && level.image.is_none() => {
                part.schedules.insert(level, schedule);
            }
            Purpose::TrashPurge => {}
            Purpose::MirrorSnapshot => match is_there && is_mirrored(pool, &level).await? {
                true => {
                    if let Some(image) = &level.image {
                        part.names.insert(level.clone(), image_name(pool, &level, image).await?);
                    }
                    part.schedules.insert(level, schedule);
                }
                false => part.stale.push(key),
            },
        }
    }
    let is_wanted =
        |level: &Level| has_of_all || part.schedules.keys().any(|own: &Level| own.intersects(level));
    for namespace in namespaces {
        let level = Level::of_namespace(id, namespace.as_str());
        match purpose {
            Purpose::TrashPurge => {
                part.places.insert(level, String::new());
            }
            Purpose::MirrorSnapshot if is_wanted(&level) => {
                let here = pool.in_namespace(namespace.as_str());
                for (image, name) in mirror::primaries(&here).await? {
                    if let (Some(image), Some(name)) = (image.to_str(), name.to_str()) {
                        let place = Level::of_image(id, namespace.as_str(), image);
                        part.places.insert(place, name.to_owned());
                    }
                }
            }
            Purpose::MirrorSnapshot => {}
        }
    }
    Ok(part)
}

/// False for a level of mirror snapshots whose namespace or image is not mirrored so.
async fn is_mirrored(pool: &Pool, level: &Level) -> Result<bool, Errno> {
    let Some(namespace) = &level.namespace else { return Ok(true) };
    let here = pool.in_namespace(namespace.as_str());
    match &level.image {
        Some(image) => Ok(mirror::by_snapshots(&here, &image.as_str().into()).await?.is_some()),
        None => Ok(namespace.is_empty() || mirror::is_by_image(&here).await?),
    }
}

async fn image_name(pool: &Pool, level: &Level, image: &str) -> Result<String, Errno> {
    let here = pool.in_namespace(level.namespace.as_deref().unwrap_or_default());
    match mirror::name_of(&here, &image.into()).await {
        Ok(name) => Ok(name.to_str().unwrap_or_default().to_owned()),
        // In the middle of a change of its name.
        Err(errno::ENOENT) => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Refreshes a plan at intervals, and when a command wants it, for ever.
pub(crate) async fn keep_fresh(plan: SharedPlan, cx: Cx) {
    loop {
        let until = cx.now() + REFRESH_INTERVAL;
        let is_wanted = || Some(()).filter(|()| plan.borrow().wants_refresh);
        let _ = cx.until_found(until, is_wanted).await;
        // Commands that follow one another are for one look.
        cx.sleep(REFRESH_DELAY).await;
        // Without the newest map the next round has it.
        let _ = latest_map(&cx).await;
        refresh(&plan, &cx).await;
    }
}

/// Works at the scheduled times, for ever.
pub(crate) async fn work(plan: SharedPlan, cx: Cx) {
    let mut running: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    let at_work: Infallible = poll_fn(|context| {
        loop {
            loop {
                let now = seconds(&cx);
                match plan.borrow_mut().take_due(now) {
                    Ok(place) => running.push(Box::pin(carry_out(plan.clone(), cx.clone(), place))),
                    Err(next) => {
                        if let Some(at) = next {
                            cx.wake_at(cx.now() + Duration::from_secs(at - now));
                        }
                        break;
                    }
                }
            }
            let before = running.len();
            running.retain_mut(|work| work.as_mut().poll(context).is_pending());
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await;
    match at_work {}
}

async fn carry_out(plan: SharedPlan, cx: Cx, place: Level) {
    let (purpose, snapshots_max) = {
        let plan = plan.borrow();
        (plan.purpose, plan.snapshots_max)
    };
    let pool = Pool::new(&cx, place.pool.unwrap_or_default(), place.namespace.as_deref().unwrap_or_default());
    let (id, namespace) = (pool.id, place.namespace.as_deref().unwrap_or_default());
    let failure = match purpose {
        Purpose::TrashPurge => trash::purge(&pool, &Progress::default()).await.err().map(|error| {
            format!("the trash of pool {id}, namespace '{namespace}', is not purged: {}", errors::text(error))
        }),
        Purpose::MirrorSnapshot => {
            let image = Name::from(place.image.as_deref().unwrap_or_default());
            let made = async {
                let max = mirror::snapshots_max(&pool, &image, snapshots_max).await?;
                mirror::take_snapshot(&pool, &image, max).await
            };
            let name = || plan.borrow().name_of(&place, &image_pools(&cx));
            match made.await {
                Ok(stay) => report_of_snapshot(name, &stay),
                Err(errno::ENOENT) => None,
                Err(error) => {
                    let why = match error {
                        mirror::NO_PEER => "the pool has no peer to mirror to".to_owned(),
                        error => errors::text(error),
                    };
                    Some(format!("image {} has no new mirror snapshot: {why}", name()))
                }
            }
        }
    };
    let news = plan.borrow_mut().end(&place, failure);
    if let Some(news) = news {
        cx.warn(news);
    }
}

/// A sentence about older snapshots that stay beyond the maximum.
fn report_of_snapshot(name: impl Fn() -> String, stay: &[mirror::Stay]) -> Option<String> {
    let reasons: Vec<String> = stay
        .iter()
        .map(|stay| match (stay.snap, stay.why) {
            (None, why) => format!("older snapshots cannot be read: {}", errors::text(why)),
            (Some(snap), mirror::LAST_OF_PARENT) => {
                let why = "it is the last to share data with the parent that the image was flattened from";
                format!("the older snapshot {snap} stays: {why}; remove it with `rbd snap rm --snap-id`")
            }
            (Some(snap), why) => format!("the older snapshot {snap} stays: {}", errors::text(why)),
        })
        .collect();
    (!reasons.is_empty())
        .then(|| format!("image {} has a new mirror snapshot; {}", name(), reasons.join("; ")))
}

/// The level that a command names.
async fn level_of(purpose: Purpose, cx: &Cx, text: &str) -> Result<(Level, Option<String>), Answer> {
    let invalid = |why: String| Answer::invalid(format!("Invalid level spec {text}: {why}"));
    let named = Named::parse(text).ok_or_else(|| invalid(format!("failed to parse {text}")))?;
    let (pool_name, namespace, image) = match named {
        Named::All => return Ok((Level::default(), None)),
        Named::Image { .. } if purpose == Purpose::TrashPurge => {
            return Err(invalid(format!("invalid name {text}: image level is not allowed")));
        }
        Named::Pool(pool) => (pool, None, None),
        Named::Namespace(pool, namespace) => (pool, Some(namespace), None),
        Named::Image { pool, namespace, image } => (pool, Some(namespace), Some(image)),
    };
    let id = crate::tasks::pool_of_name(cx, &pool_name);
    let id = id.ok_or_else(|| invalid(format!("pool {pool_name} does not exist")))?;
    if !image_pools(cx).contains_key(&id) {
        return Err(invalid(format!("{pool_name} is not an RBD pool")));
    }
    let Some(namespace) = namespace else { return Ok((Level::of_pool(id), None)) };
    let pool = Pool::new(cx, id, namespace.as_str()).with_timeout(COMMAND_TIMEOUT);
    if !namespace.is_empty() {
        let known = pool.namespaces().await;
        let known = known.map_err(|error| errors::answer(error, "error listing namespaces"))?;
        if !known.iter().any(|other| *other == *namespace.as_str()) {
            return Err(invalid(format!("namespace {namespace} does not exist")));
        }
        if purpose == Purpose::MirrorSnapshot {
            let is_by_image = mirror::is_by_image(&pool).await;
            if !is_by_image.map_err(|error| errors::answer(error, "error getting mirror mode"))? {
                return Err(invalid(format!("namespace {namespace} is not in mirror image mode")));
            }
        }
    }
    let Some(image) = image else { return Ok((Level::of_namespace(id, namespace), None)) };
    let failed =
        |error| errors::answer(error, &format!("error opening image b'{image}' at snapshot b'None'"));
    let image_id = match id_of(&pool, &image.as_str().into()).await {
        Ok(image_id) => image_id,
        Err(errno::ENOENT) => return Err(invalid(format!("image {image} does not exist"))),
        Err(error) => return Err(failed(error)),
    };
    if mirror::by_snapshots(&pool, &image_id).await.map_err(failed)?.is_none() {
        return Err(invalid(format!("image {image} is not in snapshot mirror mode")));
    }
    let level = Level::of_image(id, namespace, image_id.to_str().unwrap_or_default());
    Ok((level, Some(image)))
}

/// A change of a level's schedule, or a look at it.
pub(crate) enum Ask {
    Add { interval: String, start: Option<String> },
    Remove { interval: Option<String>, start: Option<String> },
    List,
    Status,
}

pub(crate) async fn answer(plan: &SharedPlan, cx: &Cx, level: &str, ask: Ask) -> Answer {
    match try_answer(plan, cx, level, ask).await {
        Ok(answer) | Err(answer) => answer,
    }
}

async fn try_answer(plan: &SharedPlan, cx: &Cx, level: &str, ask: Ask) -> Result<Answer, Answer> {
    let purpose = plan.borrow().purpose;
    let (level, image) = level_of(purpose, cx, level).await?;
    let parsed = |interval: &str, start: &Option<String>| -> Result<(Interval, Option<StartTime>), Answer> {
        let start = start.as_deref().filter(|start| !start.is_empty());
        let interval = Interval::parse(interval).map_err(Answer::invalid)?;
        Ok((interval, start.map(StartTime::parse).transpose().map_err(Answer::invalid)?))
    };
    let before = plan.borrow().schedules.get(&level).cloned();
    let mut schedule = before.clone().unwrap_or_default();
    match ask {
        Ask::List => return Ok(Answer::body(indented(&plan.borrow().list(&level, &image_pools(cx))))),
        Ask::Status => return Ok(Answer::body(indented(&plan.borrow().status(&level, &image_pools(cx))))),
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
    // Before the write too: rows that were read earlier are old from now on.
    plan.borrow_mut().changes += 1;
    save(purpose, cx, &level, &schedule).await.map_err(|error| {
        let what = if level.pool.is_some() { purpose.object() } else { purpose.option() };
        Answer::error(error, format!("[errno {error}] the schedule cannot be written to {what}"))
    })?;
    plan.borrow_mut().changes += 1;
    if purpose == Purpose::TrashPurge {
        // A namespace that was made since the last look counts from now on.
        refresh(plan, cx).await;
    }
    let mut plan = plan.borrow_mut();
    plan.schedules.remove(&level);
    if !schedule.is_empty() {
        plan.schedules.insert(level.clone(), schedule.clone());
        if let Some(image) = image {
            plan.names.insert(level.clone(), image);
        }
    }
    if level.pool.is_none() {
        plan.of_all = if schedule.is_empty() { String::new() } else { schedule.to_text() };
    }
    plan.plan(seconds(cx));
    // Images that no schedule counted for are looked up soon; there may be many.
    plan.wants_refresh |= purpose == Purpose::MirrorSnapshot;
    Ok(Answer::ok(""))
}

async fn save(purpose: Purpose, cx: &Cx, level: &Level, schedule: &Schedule) -> Result<(), Errno> {
    let Some(id) = level.pool else {
        let name = purpose.option();
        let command = match schedule.is_empty() {
            true => object! { "prefix" => "config rm", "who" => "mgr", "name" => name },
            false => {
                object! { "prefix" => "config set", "who" => "mgr", "name" => name, "value" => schedule.to_text() }
            }
        };
        return ask_monitor(cx, command.compact()).await;
    };
    let key = Bytes::from(level.id());
    let steps = match schedule.is_empty() {
        true => WriteOps::new().omap_remove(&[key]),
        false => WriteOps::new().omap_set(&BTreeMap::from([(key, Bytes::from(schedule.to_text()))])),
    };
    match Pool::new(cx, id, "").with_timeout(COMMAND_TIMEOUT).write(purpose.object(), steps).await {
        // Nothing was scheduled here.
        Err(errno::ENOENT) if schedule.is_empty() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: &str = r#"[{"interval": "1h", "start_time": null}]"#;

    fn every(interval: &str) -> Schedule {
        let mut schedule = Schedule::default();
        schedule.add(Interval::parse(interval).unwrap(), None);
        schedule
    }

    fn purging() -> Plan {
        let mut plan = Plan::new(Purpose::TrashPurge);
        for (pool, namespace) in [(2, ""), (2, "ns"), (3, "")] {
            plan.places.insert(Level::of_namespace(pool, namespace), String::new());
        }
        plan.schedules.insert(Level::of_pool(2), every("10"));
        plan.schedules.insert(Level::of_namespace(2, "ns"), every("2h"));
        plan
    }

    fn mirroring() -> Plan {
        let mut plan = Plan::new(Purpose::MirrorSnapshot);
        plan.side_by_side_max = 2;
        for (namespace, image) in [("", "a"), ("", "b"), ("ns", "c")] {
            let name = format!("name-{image}");
            plan.places.insert(Level::of_image(2, namespace, image), name);
        }
        plan.schedules.insert(Level::of_pool(2), every("1m"));
        plan.schedules.insert(Level::of_image(2, "ns", "c"), every("2m"));
        plan
    }

    #[test]
    fn report_names_new_snapshot_and_each_that_stays() {
        let report = |stay: &[mirror::Stay]| report_of_snapshot(|| "rbd/a".to_owned(), stay);
        assert_eq!(report(&[]), None);
        let stay = |snap, why| mirror::Stay { snap, why };
        let told = report(&[stay(Some(7), mirror::LAST_OF_PARENT), stay(Some(9), errno::EBUSY)]).unwrap();
        assert!(told.starts_with(
            "image rbd/a has a new mirror snapshot; the older snapshot 7 stays: it is the last"
        ));
        assert!(
            told.ends_with("; the older snapshot 9 stays: [errno 16] RBD image is busy (block image)"),
            "{told}"
        );
    }

    #[test]
    fn special_level_counts_before_general_one() {
        let mut plan = purging();
        plan.set_of_all(HOUR, 0).unwrap();
        let due: Vec<(String, u64)> = plan.due.iter().map(|(place, at)| (place.id(), *at)).collect();
        assert_eq!(due, [("2/".to_owned(), 600), ("2/ns".to_owned(), 7200), ("3/".to_owned(), 3600)]);
        assert_eq!(plan.take_due(0), Err(Some(600)));
        plan.set_of_all("", 0).unwrap();
        assert_eq!(plan.due.len(), 2);
        assert!(plan.set_of_all("x", 0).is_err());
        assert_eq!(plan.due.len(), 2, "an option that cannot be read plans nothing");
    }

    #[test]
    fn purge_that_is_due_is_not_put_off() {
        let mut plan = purging();
        let place = Level::of_namespace(2, "");
        plan.plan(0);
        plan.plan(601);
        assert_eq!(plan.due[&place], 600);
        assert_eq!(plan.take_due(601), Ok(place.clone()));
        assert_eq!(plan.due[&place], 1200);
        plan.plan(601);
        assert_eq!(plan.due[&place], 1200);
    }

    #[test]
    fn place_without_its_schedule_is_no_longer_due() {
        let mut plan = purging();
        plan.plan(0);
        plan.schedules.remove(&Level::of_pool(2));
        plan.plan(601);
        assert_eq!(plan.take_due(601), Err(Some(7200)));
    }

    #[test]
    fn work_under_way_is_bounded_and_never_twice_at_one_place() {
        let mut plan = mirroring();
        plan.plan(0);
        let (a, b, c) =
            (Level::of_image(2, "", "a"), Level::of_image(2, "", "b"), Level::of_image(2, "ns", "c"));
        assert_eq!(plan.take_due(120), Ok(a.clone()));
        assert_eq!(plan.take_due(120), Ok(b.clone()));
        assert_eq!(plan.take_due(120), Err(None), "two are under way");
        assert_eq!(plan.end(&b, None), None);
        assert_eq!(plan.take_due(120), Ok(c.clone()));
        assert_eq!(plan.end(&c, None), None);
        assert_eq!(plan.take_due(180), Ok(b.clone()), "the other one is still under way");
        assert_eq!(plan.due[&a], 240);
    }

    #[test]
    fn failure_is_told_once_until_it_changes() {
        let mut plan = mirroring();
        let place = Level::of_image(2, "", "a");
        let mut told = |failure: Option<&str>| plan.end(&place, failure.map(str::to_owned));
        assert_eq!(told(Some("x")).as_deref(), Some("x"));
        assert_eq!(told(Some("x")), None);
        assert_eq!(told(Some("y")).as_deref(), Some("y"));
        assert_eq!(told(None), None);
        assert_eq!(told(Some("y")).as_deref(), Some("y"));
    }

    #[test]
    fn listing_of_a_namespace_shows_its_parent() {
        let mut plan = purging();
        let pools = BTreeMap::from([(2, "rbd".to_owned()), (3, "other".to_owned())]);
        let ids = |plan: &Plan, level: &Level| -> Vec<String> {
            plan.list(level, &pools).as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(ids(&plan, &Level::of_namespace(2, "ns")), ["2/ns"]);
        assert_eq!(ids(&plan, &Level::default()), ["2", "2/ns"]);
        plan.schedules.remove(&Level::of_namespace(2, "ns"));
        assert_eq!(ids(&plan, &Level::of_namespace(2, "ns")), ["2"]);
        assert_eq!(ids(&plan, &Level::of_pool(3)), [""; 0]);
        let shown = plan.list(&Level::of_pool(2), &pools);
        assert_eq!(
            shown["2"],
            json!({"name": "rbd/", "schedule": [{"interval": "10m", "start_time": null}]})
        );
    }

    #[test]
    fn images_are_shown_by_their_names() {
        let mut plan = mirroring();
        plan.plan(1_798_761_660);
        let pools = BTreeMap::from([(2, "rbd".to_owned())]);
        let row = |at: &str, image: &str| json!({"schedule_time": format!("2027-01-01 00:0{at}:00"), "image": image});
        let all = [row("2", "rbd/name-a"), row("2", "rbd/name-b"), row("2", "rbd/ns/name-c")];
        assert_eq!(plan.status(&Level::default(), &pools), json!({"scheduled_images": all}));
        assert_eq!(plan.status(&Level::of_image(2, "", "b"), &pools), json!({"scheduled_images": [all[1]]}));
        let listed = plan.list(&Level::of_image(2, "ns", "c"), &pools);
        assert_eq!(listed["2/ns/c"]["name"], "rbd/ns/name-c");
        let gone = Level::of_image(2, "", "d");
        plan.schedules.insert(gone.clone(), every("1h"));
        plan.names.insert(gone.clone(), "name-d".into());
        assert_eq!(plan.list(&gone, &pools)["2//d"]["name"], "rbd/name-d", "an image that is not primary");
    }

    #[test]
    fn status_is_in_order_of_time() {
        let mut plan = purging();
        plan.plan(1_798_761_599);
        let pools = BTreeMap::from([(2, "rbd".to_owned())]);
        let got = plan.status(&Level::default(), &pools);
        let namespaces: Vec<&Value> =
            got["scheduled"].as_array().unwrap().iter().map(|row| &row["namespace"]).collect();
        assert_eq!(namespaces, ["", "ns"]);
        let row = json!({"schedule_time": "2027-01-01 00:00:00", "pool_id": "2", "pool_name": "rbd", "namespace": "ns"});
        assert_eq!(plan.status(&Level::of_namespace(2, "ns"), &pools), json!({"scheduled": [row]}));
        assert_eq!(plan.status(&Level::of_pool(3), &pools), json!({"scheduled": []}));
    }
}
