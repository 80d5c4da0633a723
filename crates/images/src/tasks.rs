//! Tasks on images: the table, and the work on them, one after another.
//!
//! A task is a row of the omap of `rbd_task` in its image's pool and namespace, in stock's format: key the sequence in sixteen
//! hexadecimal digits, value JSON. A manager that becomes active reads the rows and goes on with them. Facts:
//! `src/pybind/mgr/rbd_support/task.py`.

use crate::cx::Cx;
use crate::errors;
use crate::flatten;
use crate::migration;
use crate::pool::{Errno, Pool};
use crate::progress::{CANCELED, Progress};
use crate::remove::{self, Patience};
use crate::text::{indented, iso_time, one_line};
use crate::trash;
use bytes::Bytes;
use client::WriteOps;
use command::{Answer, TaskEvent, TaskState, errno};
use machine::Time;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::types::{Name, PoolId, UTime};

pub(crate) const OBJECT: &str = "rbd_task";
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(300);
/// Tasks that are done are remembered, for a client that repeats its command.
const DONE_MAX: usize = 50;
/// Time between two notes of a task's progress, as stock's `Throttle`.
const NEWS_INTERVAL: Duration = Duration::from_secs(1);
const NEWS_CANCELED: &str = "Operation canceled";
/// A task that another manager left waits so long for that manager's watch to end.
const PATIENCE: Patience = Patience(Duration::from_secs(25));

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Flatten,
    Remove,
    TrashRemove,
    MigrationExecute,
    MigrationCommit,
    MigrationAbort,
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Action::Flatten => "flatten",
            Action::Remove => "remove",
            Action::TrashRemove => "trash remove",
            Action::MigrationExecute => "migrate execute",
            Action::MigrationCommit => "migrate commit",
            Action::MigrationAbort => "migrate abort",
        }
    }

    const ALL: [Action; 6] = [
        Action::Flatten,
        Action::Remove,
        Action::TrashRemove,
        Action::MigrationExecute,
        Action::MigrationCommit,
        Action::MigrationAbort,
    ];

    /// The reason of a failure with EINVAL, after which nothing is left to do.
    fn misfit(self) -> Option<&'static str> {
        match self {
            Action::Flatten => Some("Image does not have parent"),
            Action::Remove | Action::TrashRemove => None,
            Action::MigrationExecute | Action::MigrationAbort => Some("Image is not migrating"),
            Action::MigrationCommit => Some("Image is not migrating or migration not executed"),
        }
    }

    fn of_name(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// Image and action of a task, as its JSON shows them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Refs {
    pub action: Action,
    pub pool: String,
    pub namespace: String,
    /// `None` for an image of the trash.
    pub image_name: Option<String>,
    pub image_id: Option<String>,
}

impl Refs {
    fn json(&self) -> Value {
        let mut refs = Map::new();
        refs.insert("action".into(), self.action.name().into());
        refs.insert("pool_name".into(), self.pool.clone().into());
        refs.insert("pool_namespace".into(), self.namespace.clone().into());
        if let Some(name) = &self.image_name {
            refs.insert("image_name".into(), name.clone().into());
        }
        if let Some(id) = &self.image_id {
            refs.insert("image_id".into(), id.clone().into());
        }
        Value::Object(refs)
    }

    fn parse(value: &Value) -> Option<Refs> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let action = Action::of_name(value.get("action")?.as_str()?)?;
        let (image_name, image_id) = (text("image_name"), text("image_id"));
        let has_image = if action == Action::TrashRemove { image_id.is_some() } else { image_name.is_some() };
        let pool = text("pool_name").filter(|_| has_image)?;
        Some(Refs { action, pool, namespace: text("pool_namespace")?, image_name, image_id })
    }

    /// True if a task with these is what `wanted` asks for. An image that is gone has no id to ask for.
    fn matches(&self, wanted: &Refs) -> bool {
        let has_id = wanted.image_id.is_none() || self.image_id == wanted.image_id;
        let rest = |refs: &Refs| Refs { image_id: None, ..refs.clone() };
        has_id && rest(self) == rest(wanted)
    }
}

pub(crate) struct Task {
    sequence: u64,
    id: String,
    message: String,
    pub refs: Refs,
    retry_message: Option<String>,
    retry_attempts: u32,
    retry_at: Option<(Time, UTime)>,
    is_in_progress: bool,
    is_canceled: bool,
    progress: Progress,
    /// The share that the last news gave; `None` before the first news.
    shown: Option<f64>,
    patience: Patience,
}

impl Task {
    fn news(&self, state: TaskState) -> TaskEvent {
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let refs = self.refs.json().as_object().into_iter().flatten().filter_map(text).collect();
        TaskEvent { id: self.id.clone(), message: self.message.clone(), refs, state }
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "sequence": self.sequence,
            "id": self.id,
            "message": self.message,
            "refs": self.refs.json(),
        });
        let mut set = |key: &str, value: Value| json[key] = value;
        if let Some(message) = &self.retry_message {
            set("retry_message", message.clone().into());
        }
        if self.retry_attempts > 0 {
            set("retry_attempts", self.retry_attempts.into());
        }
        if let Some((_, wall)) = self.retry_at {
            set("retry_time", iso_time(wall).into());
        }
        if self.is_in_progress {
            set("in_progress", true.into());
            set("progress", self.progress.get().into());
        }
        if self.is_canceled {
            set("canceled", true.into());
        }
        json
    }

    fn key(&self) -> Bytes {
        format!("{:016X}", self.sequence).into()
    }

    /// From a row of the table.
    fn parse(text: &[u8]) -> Option<Task> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(Task {
            sequence: value.get("sequence")?.as_u64()?,
            id: text("id")?,
            message: text("message")?,
            refs: Refs::parse(value.get("refs")?)?,
            retry_message: None,
            retry_attempts: 0,
            retry_at: None,
            is_in_progress: false,
            is_canceled: false,
            progress: Progress::default(),
            shown: None,
            patience: PATIENCE,
        })
    }
}

#[derive(Default)]
pub(crate) struct Tasks {
    by_sequence: BTreeMap<u64, Task>,
    done: VecDeque<Task>,
    last_sequence: u64,
    news: Vec<TaskEvent>,
    /// The task under way.
    current: Option<u64>,
    /// Of any task's progress.
    last_news: Option<Time>,
}

pub(crate) type SharedTasks = Rc<RefCell<Tasks>>;

/// A caller's permission: `(pool, namespace)` to true where it may see tasks.
pub(crate) type May<'a> = &'a dyn Fn(&str, &str) -> bool;

impl Tasks {
    /// The task that these ask for: waiting, under way, or done.
    pub(crate) fn find(&self, wanted: &Refs) -> Option<String> {
        let waiting = self.by_sequence.values().rev();
        let found = waiting.chain(self.done.iter().rev()).find(|task| task.refs.matches(wanted));
        found.map(|task| one_line(&task.json()))
    }

    fn of_id(&self, id: &str, may: May<'_>) -> Option<&Task> {
        self.by_sequence.values().find(|task| task.id == id && may(&task.refs.pool, &task.refs.namespace))
    }

    pub(crate) fn list(&self, id: Option<&str>, may: May<'_>) -> Answer {
        let shown = match id.filter(|id| !id.is_empty()) {
            Some(id) => match self.of_id(id, may) {
                Some(task) => task.json(),
                None => return no_task(id),
            },
            None => {
                let shown =
                    self.by_sequence.values().filter(|task| may(&task.refs.pool, &task.refs.namespace));
                shown.map(Task::json).collect()
            }
        };
        Answer::body(indented(&shown))
    }

    /// Takes a row of a table in.
    pub(crate) fn load(&mut self, row: &[u8]) -> bool {
        let Some(task) = Task::parse(row) else { return false };
        self.last_sequence = self.last_sequence.max(task.sequence);
        self.by_sequence.insert(task.sequence, task);
        true
    }

    fn next_due(&self, now: Time) -> Result<u64, Option<Time>> {
        let due = |task: &Task| task.retry_at.is_none_or(|(at, _)| at <= now);
        match self.by_sequence.values().find(|task| due(task)) {
            Some(task) => Ok(task.sequence),
            None => Err(self.by_sequence.values().filter_map(|task| task.retry_at).map(|(at, _)| at).min()),
        }
    }

    /// Changes since the last call. The share of the task under way is among them at most once in [`NEWS_INTERVAL`], and at once when
    /// it is the task's first.
    pub(crate) fn take_news(&mut self, now: Time) -> Vec<TaskEvent> {
        let current = self.current.and_then(|sequence| self.by_sequence.get_mut(&sequence));
        if let Some(task) = current.filter(|task| !task.is_canceled)
            && let Some(share) = task.progress.told().filter(|share| task.shown != Some(*share))
            && (task.shown.is_none() || self.last_news.is_none_or(|at| now.since(at) >= NEWS_INTERVAL))
        {
            task.shown = Some(share);
            self.last_news = Some(now);
            self.news.push(task.news(TaskState::UnderWay(share)));
        }
        std::mem::take(&mut self.news)
    }

    fn tell(&mut self, sequence: u64, state: TaskState) {
        // The cancellation was its last news.
        let task = self.by_sequence.get(&sequence).filter(|task| !task.is_canceled);
        self.news.extend(task.map(|task| task.news(state)));
    }

    /// The task is over. One that was done is remembered.
    fn forget(&mut self, sequence: u64, is_done: bool) {
        if let Some(task) = self.by_sequence.remove(&sequence).filter(|_| is_done) {
            self.done.push_back(task);
            if self.done.len() > DONE_MAX {
                self.done.pop_front();
            }
        }
    }
}

fn no_task(id: &str) -> Answer {
    Answer::error(errno::ENOENT, format!("No such task {id}"))
}

/// Adds a task to its table. The answer shows it.
pub(crate) async fn add(tasks: &SharedTasks, pool: &Pool, message: String, refs: Refs) -> Answer {
    let task = {
        let mut tasks = tasks.borrow_mut();
        tasks.last_sequence += 1;
        Task {
            sequence: tasks.last_sequence,
            id: pool.cx.new_uuid().to_string(),
            message,
            refs,
            retry_message: None,
            retry_attempts: 0,
            retry_at: None,
            is_in_progress: false,
            is_canceled: false,
            progress: Progress::default(),
            shown: None,
            patience: Patience::default(),
        }
    };
    let text = one_line(&task.json());
    let row = BTreeMap::from([(task.key(), Bytes::from(text.clone()))]);
    if let Err(error) = pool.write(OBJECT, WriteOps::new().omap_set(&row)).await {
        return Answer::error(
            error,
            format!("[errno {error}] the task cannot be written to the object {OBJECT}"),
        );
    }
    tasks.borrow_mut().by_sequence.insert(task.sequence, task);
    Answer::body(text)
}

/// Removes a task from its table. One that is under way ends at its next step.
pub(crate) async fn cancel(
    tasks: &SharedTasks,
    cx: &Cx,
    id: &str,
    timeout: Duration,
    may: May<'_>,
) -> Answer {
    let found = tasks.borrow().of_id(id, may).map(|task| (task.sequence, task.key(), task.refs.clone()));
    let Some((sequence, key, refs)) = found else { return no_task(id) };
    let pool_id = match pool_of_name(cx, &refs.pool) {
        Some(pool_id) => pool_id,
        None => {
            let mut tasks = tasks.borrow_mut();
            tasks.tell(sequence, TaskState::Failed(NEWS_CANCELED.into()));
            tasks.forget(sequence, false);
            return errors::no_pool(&refs.pool);
        }
    };
    let pool = Pool::new(cx, pool_id, refs.namespace.as_str()).with_timeout(timeout);
    // The row goes first: a task that this manager forgets must not come back with the next one.
    if let Err(error) = remove_row(&pool, key).await {
        return Answer::error(
            error,
            format!("[errno {error}] the task cannot be removed from the object {OBJECT}"),
        );
    }
    let mut tasks = tasks.borrow_mut();
    tasks.tell(sequence, TaskState::Failed(NEWS_CANCELED.into()));
    if let Some(task) = tasks.by_sequence.get_mut(&sequence) {
        task.is_canceled = true;
        task.progress.cancel();
        if !task.is_in_progress {
            tasks.forget(sequence, false);
        }
    }
    Answer::ok("")
}

async fn remove_row(pool: &Pool, key: Bytes) -> Result<(), Errno> {
    crate::pool::may_be_gone(pool.write(OBJECT, WriteOps::new().omap_remove(&[key])).await)
}

pub(crate) fn pool_of_name(cx: &Cx, name: &str) -> Option<PoolId> {
    cx.map()?.pool_by_name(name)
}

/// The end of an attempt at a task.
enum End {
    Done,
    /// It cannot be done, and is not tried again: for an operator's list, and for the log.
    Failed(&'static str, String),
    Canceled,
    Retry(String),
    /// The pool is gone, and the table with it.
    NoPool,
}

/// Carries out tasks, one at a time, for ever.
pub(crate) async fn work(tasks: SharedTasks, cx: Cx) {
    loop {
        let now = cx.now();
        let due = tasks.borrow().next_due(now);
        let sequence = match due {
            Ok(sequence) => sequence,
            Err(next) => {
                let until = next.unwrap_or(now + RETRY_INTERVAL_MAX).min(now + RETRY_INTERVAL_MAX);
                let is_due = || tasks.borrow().next_due(cx.now()).ok();
                match cx.until_found(until, is_due).await {
                    Some(sequence) => sequence,
                    None => continue,
                }
            }
        };
        carry_out(&tasks, &cx, sequence).await;
    }
}

async fn carry_out(tasks: &SharedTasks, cx: &Cx, sequence: u64) {
    let (refs, progress, patience, key) = {
        let mut tasks = tasks.borrow_mut();
        let Some(task) = tasks.by_sequence.get_mut(&sequence) else { return };
        task.is_in_progress = true;
        tasks.current = Some(sequence);
        let task = &tasks.by_sequence[&sequence];
        (task.refs.clone(), task.progress.clone(), task.patience, task.key())
    };
    let pool = pool_of_name(cx, &refs.pool).map(|id| Pool::new(cx, id, refs.namespace.as_str()));
    let end = match &pool {
        None => End::NoPool,
        Some(pool) => attempt(pool, &refs, patience, &progress).await,
    };
    let is_over = !matches!(end, End::Retry(_));
    if let Some(pool) = pool.filter(|_| is_over) {
        // If this is not written, a later manager finds the task, and that there is nothing left to do.
        if let Err(error) = remove_row(&pool, key).await {
            cx.warn(format!(
                "a task that is over stays in {OBJECT} of pool {}: {}",
                refs.pool,
                errors::text(error)
            ));
        }
    }
    let mut tasks = tasks.borrow_mut();
    let tasks = &mut *tasks;
    tasks.current = None;
    let Some(task) = tasks.by_sequence.get_mut(&sequence) else { return };
    task.is_in_progress = false;
    task.retry_attempts += 1;
    let delay = (RETRY_INTERVAL * task.retry_attempts).min(RETRY_INTERVAL_MAX);
    let wall = UTime::from_nanos(cx.wall().as_nanos().saturating_add(delay.as_nanos() as u64));
    task.retry_at = Some((cx.now() + delay, wall));
    match end {
        End::Retry(_) if task.is_canceled => tasks.forget(sequence, false),
        End::Retry(message) => {
            cx.warn(format!("{}: {message}; the next attempt is in {} s", task.message, delay.as_secs()));
            task.retry_message = Some(message);
            task.patience = Patience::default();
            // The next attempt begins anew.
            if task.shown.is_some_and(|share| share > 0.0) {
                task.shown = Some(0.0);
                tasks.tell(sequence, TaskState::UnderWay(0.0));
            }
        }
        End::Done => {
            tasks.tell(sequence, TaskState::Done);
            tasks.forget(sequence, true);
        }
        End::Failed(shown, message) => {
            cx.warn(format!("{}: {message}; nothing is left to do", task.message));
            tasks.tell(sequence, TaskState::Failed(shown.into()));
            tasks.forget(sequence, false);
        }
        End::NoPool => {
            tasks.tell(sequence, TaskState::Failed("Pool does not exist".into()));
            tasks.forget(sequence, false);
        }
        End::Canceled => tasks.forget(sequence, false),
    }
}

async fn attempt(pool: &Pool, refs: &Refs, patience: Patience, progress: &Progress) -> End {
    let name = Name::from(refs.image_name.clone().unwrap_or_default());
    let (result, what) = match refs.action {
        Action::Flatten => {
            let shown = format!("error flattening {}", refs.image_name.as_deref().unwrap_or_default());
            (flatten::flatten(pool, &name, progress).await, shown)
        }
        Action::Remove => {
            (remove::remove(pool, &name, patience, progress).await, "error removing image".into())
        }
        Action::TrashRemove => {
            let id = Name::from(refs.image_id.clone().unwrap_or_default());
            (
                trash::remove(pool, &id, false, patience, progress).await,
                "error deleting image from trash".into(),
            )
        }
        // Stock's words for all three.
        Action::MigrationExecute => {
            let target = refs.image_id.as_deref();
            (migration::execute(pool, &name, target, progress).await, "error aborting migration".into())
        }
        Action::MigrationCommit => {
            let target = refs.image_id.as_deref();
            let committed = migration::commit(pool, &name, target, patience, progress).await;
            (committed, "error aborting migration".into())
        }
        Action::MigrationAbort => {
            let target = refs.image_id.as_deref();
            let aborted = migration::abort(pool, &name, target, patience, progress).await;
            (aborted, "error aborting migration".into())
        }
    };
    match result {
        Ok(()) => End::Done,
        // Its image is gone, or has no parent: nothing is left to do.
        Err(error @ errno::ENOENT) => End::Failed("Image does not exist", errors::rbd(error, &what)),
        Err(CANCELED) => End::Canceled,
        Err(error) => match refs.action.misfit().filter(|_| error == errno::EINVAL) {
            Some(reason) => End::Failed(reason, errors::rbd(error, &what)),
            None => End::Retry(errors::rbd(error, &what)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"sequence": 3, "id": "35cc89ee", "message": "Flattening image rbd/c", "refs": {"action": "flatten", "pool_name": "rbd", "pool_namespace": "", "image_name": "c", "image_id": "10351033ec75"}}"#;

    fn anyone(_: &str, _: &str) -> bool {
        true
    }

    #[test]
    fn row_of_stock_is_read_and_written_alike() {
        let task = Task::parse(ROW.as_bytes()).unwrap();
        assert_eq!(one_line(&task.json()), ROW);
        assert_eq!(task.key(), "0000000000000003");
        let damaged = ["", "{}", "[]", r#"{"sequence": 1, "id": "a", "message": "b", "refs": {}}"#];
        for row in damaged.iter().map(|row| row.to_string()).chain([ROW.replace("flatten", "migrate away")]) {
            assert!(!Tasks::default().load(row.as_bytes()), "{row}");
        }
    }

    #[test]
    fn repeated_command_finds_its_task() {
        let mut tasks = Tasks::default();
        assert!(tasks.load(ROW.as_bytes()));
        let wanted = tasks.by_sequence[&3].refs.clone();
        assert_eq!(tasks.find(&wanted).as_deref(), Some(ROW));
        let without_id = Refs { image_id: None, ..wanted.clone() };
        tasks.forget(3, true);
        assert_eq!(tasks.find(&without_id).as_deref(), Some(ROW), "a task that is done counts");
        assert_eq!(tasks.find(&Refs { image_id: Some("other".into()), ..wanted.clone() }), None);
        assert_eq!(tasks.find(&Refs { action: Action::Remove, ..wanted }), None);
    }

    #[test]
    fn list_shows_only_tasks_of_permitted_pools() {
        let mut tasks = Tasks::default();
        assert_eq!(tasks.list(None, &anyone), Answer::body("[]"));
        tasks.load(ROW.as_bytes());
        assert_eq!(tasks.list(None, &|pool, _| pool == "other"), Answer::body("[]"));
        let missing = Answer::error(errno::ENOENT, "No such task 35cc89ee");
        assert_eq!(tasks.list(Some("35cc89ee"), &|pool, _| pool == "other"), missing);
        let shown = tasks.list(Some("35cc89ee"), &anyone);
        assert!(shown.body.starts_with(b"{\n    \"id\": \"35cc89ee\",\n    \"message\""), "{shown:?}");
    }

    #[test]
    fn task_under_way_shows_progress_and_retries() {
        let mut task = Task::parse(ROW.as_bytes()).unwrap();
        task.is_in_progress = true;
        task.progress.set(1, 4);
        task.retry_attempts = 1;
        task.retry_message = Some("why".into());
        task.retry_at = Some((Time(0), UTime { sec: 1_798_761_599, nsec: 0 }));
        let shown = one_line(&task.json());
        let end = r#""retry_message": "why", "retry_attempts": 1, "retry_time": "2026-12-31T23:59:59", "in_progress": true, "progress": 0.25}"#;
        assert!(shown.ends_with(end), "{shown}");
    }

    #[test]
    fn news_tell_first_share_then_one_a_second() {
        let mut tasks = Tasks::default();
        tasks.load(ROW.as_bytes());
        tasks.current = Some(3);
        let second = |n: f64| Time((n * 1e9) as u64);
        let progress = tasks.by_sequence[&3].progress.clone();
        assert_eq!(tasks.take_news(second(1.0)), [], "no step yet");
        let mut shares = Vec::new();
        for (at, done) in [(1.0, 1), (1.9, 2), (2.0, 2), (9.0, 2), (9.0, 4)] {
            progress.set(done, 4);
            shares.extend(tasks.take_news(second(at)).into_iter().map(|news| (at, news.state)));
        }
        let under_way = |share| TaskState::UnderWay(share);
        assert_eq!(shares, [(1.0, under_way(0.25)), (2.0, under_way(0.5)), (9.0, under_way(1.0))]);
        tasks.tell(3, TaskState::Done);
        let refs = "action flatten image_id 10351033ec75 image_name c pool_name rbd pool_namespace ";
        let news = tasks.take_news(second(9.0)).remove(0);
        let shown: Vec<String> = news.refs.iter().map(|(key, value)| format!("{key} {value}")).collect();
        assert_eq!((shown.join(" "), news.state), (refs.to_owned(), TaskState::Done));
        assert_eq!((news.id.as_str(), news.message.as_str()), ("35cc89ee", "Flattening image rbd/c"));
    }

    #[test]
    fn canceled_task_has_no_news_after_that() {
        let mut tasks = Tasks::default();
        tasks.load(ROW.as_bytes());
        tasks.current = Some(3);
        tasks.tell(3, TaskState::Failed(NEWS_CANCELED.into()));
        tasks.by_sequence.get_mut(&3).unwrap().is_canceled = true;
        tasks.by_sequence[&3].progress.set(1, 4);
        tasks.tell(3, TaskState::Done);
        let told: Vec<TaskState> = tasks.take_news(Time(0)).into_iter().map(|news| news.state).collect();
        assert_eq!(told, [TaskState::Failed("Operation canceled".into())]);
    }

    #[test]
    fn tasks_are_due_in_order_and_after_their_delay() {
        let mut tasks = Tasks::default();
        assert_eq!(tasks.next_due(Time(0)), Err(None));
        tasks.load(ROW.as_bytes());
        tasks.load(ROW.replace("\"sequence\": 3", "\"sequence\": 9").as_bytes());
        assert_eq!(tasks.next_due(Time(0)), Ok(3));
        tasks.by_sequence.get_mut(&3).unwrap().retry_at = Some((Time(7), UTime::ZERO));
        assert_eq!((tasks.next_due(Time(6)), tasks.next_due(Time(7))), (Ok(9), Ok(3)));
        tasks.forget(9, false);
        assert_eq!(tasks.next_due(Time(6)), Err(Some(Time(7))));
    }
}
