//! The machine: commands and a client's events in, requests to the client and answers out.

use crate::cx::{Cx, Notification, Outcome, Procedures, Request, Ticket};
use crate::errors;
use crate::figures::{self, Kind, SharedFigures};
use crate::image::{Image, id_of};
use crate::lock::latest_map;
use crate::migration;
use crate::plan::{self, Ask, Plan, Purpose, SharedPlan};
use crate::pool::{COMMAND_TIMEOUT, Pool, image_pools};
use crate::remove::unsupported;
use crate::tasks::{self, Action, Refs, SharedTasks};
use crate::text::ImageSpec;
use crate::trash;
use client::{Client, Event, OpId, WatchEvent, WatchId};
use command::{Answer, Args, ImageSettings, TaskEvent, errno};
use machine::{Effects, Random, Time};
use mon_client::RequestId;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire::types::{Name, PerfQueries, PerfReports, UTime};

/// A caller's permission: `(pool, namespace)` to true where it may act.
#[derive(Clone)]
pub struct May(pub Arc<dyn Fn(&str, &str) -> bool + Send + Sync>);

impl fmt::Debug for May {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("May")
    }
}

/// A command of the manager's module `rbd_support`.
#[derive(Clone, Debug)]
pub struct Command {
    /// Comes back with the answer.
    pub number: u64,
    /// `{"prefix": "rbd task list", …}`.
    pub text: String,
    pub may: May,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a client's event is the largest, and by far the most frequent")]
pub enum Input {
    Client(Event),
    Command(Command),
    Settings(ImageSettings),
    /// An OSD's counts for the queries of [`Support::take_queries`].
    Counted(PerfReports),
    /// [`Support::next_deadline`] has passed.
    Deadline,
}

/// The module `rbd_support` of an active manager. A manager that is no longer active drops it; its tables are in the cluster.
pub struct Support {
    cx: Cx,
    procedures: Procedures,
    state: Rc<State>,
    operations: BTreeMap<OpId, Ticket>,
    questions: BTreeMap<RequestId, Ticket>,
    notifications: BTreeMap<WatchId, Ticket>,
    watches: BTreeMap<WatchId, Ticket>,
}

struct State {
    tasks: SharedTasks,
    purging: SharedPlan,
    mirroring: SharedPlan,
    figures: SharedFigures,
    /// The tables have been read.
    is_loaded: Cell<bool>,
    commands: RefCell<VecDeque<(u64, Parsed)>>,
}

impl State {
    fn new() -> State {
        let plan = |purpose| Rc::new(RefCell::new(Plan::new(purpose)));
        State {
            tasks: SharedTasks::default(),
            purging: plan(Purpose::TrashPurge),
            mirroring: plan(Purpose::MirrorSnapshot),
            figures: SharedFigures::default(),
            is_loaded: Cell::new(false),
            commands: RefCell::default(),
        }
    }

    fn plan_of(&self, purpose: Purpose) -> &SharedPlan {
        match purpose {
            Purpose::TrashPurge => &self.purging,
            Purpose::MirrorSnapshot => &self.mirroring,
        }
    }
}

/// A command and its arguments.
struct Parsed {
    verb: Verb,
    may: May,
}

enum Verb {
    Add(Action, String),
    Cancel(String),
    Schedule(Purpose, String, Ask),
    Figures(figures::Ask),
}

const MONITOR_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two attempts to read the tables.
const LOAD_RETRY: Duration = Duration::from_secs(5);

impl Support {
    pub fn new(now: Time, wall: UTime, random: Random) -> Support {
        let cx = Cx::new(now, wall, random);
        let state = Rc::new(State::new());
        let mut procedures = Procedures::default();
        procedures.start(load(Rc::clone(&state), cx.clone()));
        procedures.start(serve(Rc::clone(&state), cx.clone()));
        procedures.start(after_load(
            Rc::clone(&state),
            cx.clone(),
            tasks::work(state.tasks.clone(), cx.clone()),
        ));
        for plan in [&state.purging, &state.mirroring] {
            let (work, fresh) =
                (plan::work(plan.clone(), cx.clone()), plan::keep_fresh(plan.clone(), cx.clone()));
            procedures.start(after_load(Rc::clone(&state), cx.clone(), work));
            procedures.start(after_load(Rc::clone(&state), cx.clone(), fresh));
        }
        procedures.start(figures::work(state.figures.clone(), cx.clone()));
        Support {
            cx,
            procedures,
            state,
            operations: BTreeMap::new(),
            questions: BTreeMap::new(),
            notifications: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    /// One input. What the procedures then want goes to the client.
    pub fn step(
        &mut self,
        client: &mut Client,
        now: Time,
        wall: UTime,
        input: Input,
        fx: &mut Effects<client::Effect>,
    ) {
        self.cx.set_time(now, wall);
        self.cx.set_client(client.global_id(), client.map().cloned());
        match input {
            Input::Client(event) => self.on_event(event),
            Input::Command(command) => self.on_command(command),
            Input::Settings(settings) => self.on_settings(&settings, wall),
            Input::Counted(reports) => self.state.figures.borrow_mut().gather(&reports),
            Input::Deadline => {}
        }
        self.procedures.poll(&self.cx);
        for (ticket, request) in self.cx.take_requests() {
            self.carry_out(client, now, ticket, request, fx);
        }
    }

    fn on_settings(&mut self, settings: &ImageSettings, wall: UTime) {
        self.state.figures.borrow_mut().period = settings.report_period;
        {
            let mut mirroring = self.state.mirroring.borrow_mut();
            mirroring.side_by_side_max = settings.mirror_snapshots_at_once.max(1);
            mirroring.snapshots_max = settings.mirror_snapshots_max;
        }
        for (purpose, text) in [
            (Purpose::TrashPurge, &settings.trash_purge_schedule),
            (Purpose::MirrorSnapshot, &settings.mirror_snapshot_schedule),
        ] {
            if let Err(why) = self.state.plan_of(purpose).borrow_mut().set_of_all(text, wall.sec.into()) {
                self.cx.warn(format!("option {} cannot be read: {why}", purpose.option()));
            }
        }
    }

    /// Ends all procedures. The watches that they have end too, so that others need not wait for them.
    pub fn stop(&mut self, client: &mut Client, now: Time, fx: &mut Effects<client::Effect>) {
        self.procedures = Procedures::default();
        for (ticket, request) in self.cx.take_requests() {
            if matches!(request, Request::Unwatch { .. } | Request::Acknowledge { .. }) {
                self.carry_out(client, now, ticket, request, fx);
            }
        }
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.cx.next_wake()
    }

    /// Answers to commands, by their numbers.
    pub fn take_answers(&mut self) -> Vec<(u64, Answer)> {
        self.cx.take_answers()
    }

    /// Changes of tasks, for the list of what is under way.
    pub fn take_news(&mut self) -> Vec<TaskEvent> {
        self.state.tasks.borrow_mut().take_news(self.cx.now())
    }

    /// The metric queries that OSDs are to serve from now on, if they have changed.
    pub fn take_queries(&mut self) -> Option<PerfQueries> {
        self.state.figures.borrow_mut().take_queries()
    }

    /// Sentences that an operator should read.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.cx.take_warnings()
    }

    /// The client is on the cluster's blocklist: a new client and a new machine must take over.
    pub fn is_fenced(&self) -> bool {
        self.cx.is_fenced()
    }

    fn carry_out(
        &mut self,
        client: &mut Client,
        now: Time,
        ticket: Ticket,
        request: Request,
        fx: &mut Effects<client::Effect>,
    ) {
        let watch_id = |watches: &BTreeMap<WatchId, Ticket>, watch: Ticket| {
            watches.iter().find(|(_, ticket)| **ticket == watch).map(|(id, _)| *id)
        };
        match request {
            Request::Operate(operation) => {
                self.operations.insert(client.submit(now, operation, fx), ticket);
            }
            Request::AskMonitor(body) => {
                self.questions.insert(client.mon_request(now, body, Some(MONITOR_TIMEOUT), fx), ticket);
            }
            Request::Watch { object, timeout } => {
                let id = client.watch(now, object, timeout, fx);
                self.cx.with_watch(ticket, |watch| watch.cookie = id.0);
                self.watches.insert(id, ticket);
            }
            Request::Unwatch { watch } => {
                if let Some(id) = watch_id(&self.watches, watch) {
                    self.watches.remove(&id);
                    client.unwatch(now, id, fx);
                }
            }
            Request::Acknowledge { watch, notify_id, reply } => {
                if let Some(id) = watch_id(&self.watches, watch) {
                    client.notify_ack(now, id, notify_id, reply, fx);
                }
            }
            Request::Notify { object, payload, timeout } => {
                self.notifications.insert(client.notify(now, object, payload, timeout, fx), ticket);
            }
            Request::WantMap(epoch) => client.want_map(now, epoch, fx),
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Done { id, outcome } => {
                if let Some(ticket) = self.operations.remove(&id) {
                    self.cx.set_outcome(ticket, Outcome::Reply(outcome));
                }
            }
            Event::Answer { id, answer } => {
                if let Some(ticket) = self.questions.remove(&id) {
                    self.cx.set_outcome(ticket, Outcome::Answer(answer));
                }
            }
            Event::Notified { id, result, outcome } => {
                if let Some(ticket) = self.notifications.remove(&id) {
                    self.cx.set_outcome(ticket, Outcome::Notified(result, outcome));
                }
            }
            Event::Watch { id, event } => {
                let Some(ticket) = self.watches.get(&id) else { return };
                self.cx.with_watch(*ticket, |watch| match event {
                    WatchEvent::Registered => watch.is_registered = true,
                    WatchEvent::Notify { notify_id, payload, .. } => {
                        watch.inbox.push_back(Notification { notify_id, payload });
                    }
                    WatchEvent::Lost(error) => watch.lost = Some(error),
                });
            }
            Event::Connected { .. }
            | Event::Denied(_)
            | Event::Map { .. }
            | Event::Commanded { .. }
            | Event::Config(_)
            | Event::Message(_) => {}
        }
    }

    fn on_command(&mut self, command: Command) {
        let Command { number, text, may } = command;
        let args = match Args::parse(&text) {
            Ok(args) => args,
            Err(why) => return self.cx.answer(number, Answer::invalid(why)),
        };
        if !self.state.is_loaded.get() {
            let answer = Answer::error(errno::EAGAIN, "rbd_support module is not ready, try again");
            return self.cx.answer(number, answer);
        }
        let prefix = args.text("prefix").unwrap_or_default();
        let text = |name: &str| args.text(name);
        let must = |name: &str| args.text(name).unwrap_or_default();
        let figures_of = |kind| figures::Ask { kind, pool_spec: must("pool_spec"), sort_by: text("sort_by") };
        let schedule_of = |rest: &str| {
            let (purpose, word) = match rest.strip_prefix("rbd trash purge schedule ") {
                Some(word) => (Purpose::TrashPurge, word),
                None => (Purpose::MirrorSnapshot, rest.strip_prefix("rbd mirror snapshot schedule ")?),
            };
            let ask = match word {
                "add" => Ask::Add { interval: must("interval"), start: text("start_time") },
                "remove" => Ask::Remove { interval: text("interval"), start: text("start_time") },
                "list" => Ask::List,
                "status" => Ask::Status,
                _ => return None,
            };
            Some(Verb::Schedule(purpose, must("level_spec"), ask))
        };
        let verb = match prefix.as_str() {
            "rbd task list" => {
                // Needs nobody's answer.
                let id = text("task_id");
                let answer = self
                    .state
                    .tasks
                    .borrow()
                    .list(id.as_deref(), &|pool, namespace| (may.0)(pool, namespace));
                return self.cx.answer(number, answer);
            }
            "rbd task add flatten" => Verb::Add(Action::Flatten, must("image_spec")),
            "rbd task add remove" => Verb::Add(Action::Remove, must("image_spec")),
            "rbd task add trash remove" => Verb::Add(Action::TrashRemove, must("image_id_spec")),
            "rbd task add migration execute" => Verb::Add(Action::MigrationExecute, must("image_spec")),
            "rbd task add migration commit" => Verb::Add(Action::MigrationCommit, must("image_spec")),
            "rbd task add migration abort" => Verb::Add(Action::MigrationAbort, must("image_spec")),
            "rbd task cancel" => Verb::Cancel(must("task_id")),
            "rbd perf image stats" => Verb::Figures(figures_of(Kind::Rates)),
            "rbd perf image counters" => Verb::Figures(figures_of(Kind::Totals)),
            prefix => match schedule_of(prefix) {
                Some(verb) => verb,
                None => {
                    let answer = Answer::invalid(format!("No handler found for '{prefix}'"));
                    return self.cx.answer(number, answer);
                }
            },
        };
        self.state.commands.borrow_mut().push_back((number, Parsed { verb, may }));
    }
}

/// Reads the tables of all pools, until it has succeeded.
async fn load(state: Rc<State>, cx: Cx) {
    while let Err(why) = try_load(&state, &cx).await {
        cx.warn(format!("tasks of images cannot be read: {why}"));
        cx.sleep(LOAD_RETRY).await;
    }
    plan::refresh(&state.purging, &cx).await;
    plan::refresh(&state.mirroring, &cx).await;
    state.is_loaded.set(true);
}

async fn try_load(state: &State, cx: &Cx) -> Result<(), String> {
    latest_map(cx).await.map_err(|_| "the monitors do not answer".to_owned())?;
    for (id, name) in image_pools(cx) {
        let read = async {
            let pool = Pool::new(cx, id, "").with_timeout(COMMAND_TIMEOUT);
            for namespace in pool.with_namespaces().await? {
                for (key, row) in namespace.omap(tasks::OBJECT).await? {
                    if !state.tasks.borrow_mut().load(&row) {
                        let key = key.escape_ascii();
                        cx.warn(format!(
                            "row {key} of {} in pool {name} is no task that can be carried out",
                            tasks::OBJECT
                        ));
                    }
                }
            }
            Ok(())
        };
        read.await.map_err(|error| format!("pool {name}: {}", errors::text(error)))?;
    }
    Ok(())
}

async fn after_load(state: Rc<State>, cx: Cx, work: impl Future<Output = ()>) {
    let far = cx.now() + Duration::from_secs(3600);
    while cx.until_found(far, || state.is_loaded.get().then_some(())).await.is_none() {}
    work.await;
}

/// Answers commands, one after another.
async fn serve(state: Rc<State>, cx: Cx) {
    loop {
        let far = cx.now() + Duration::from_secs(3600);
        let next = || state.commands.borrow_mut().pop_front();
        let Some((number, command)) = cx.until_found(far, next).await else { continue };
        let answer = match latest_map(&cx).await {
            Ok(()) => answer(&state, &cx, command).await,
            Err(_) => Answer::error(errno::ETIMEDOUT, "the monitors do not answer: try again"),
        };
        cx.answer(number, answer);
    }
}

async fn answer(state: &State, cx: &Cx, command: Parsed) -> Answer {
    let Parsed { verb, may } = command;
    let may = |pool: &str, namespace: &str| (may.0)(pool, namespace);
    match verb {
        Verb::Cancel(id) => tasks::cancel(&state.tasks, cx, &id, COMMAND_TIMEOUT, &may).await,
        Verb::Schedule(purpose, level, ask) => plan::answer(state.plan_of(purpose), cx, &level, ask).await,
        Verb::Figures(ask) => figures::answer(&state.figures, cx, ask, &may).await,
        Verb::Add(action, text) => {
            let Some(spec) = ImageSpec::parse(&text) else {
                return Answer::invalid(format!("Invalid image spec: {text}"));
            };
            if !may(&spec.pool, &spec.namespace) {
                let why = format!("not authorized on pool={}, namespace={}", spec.pool, spec.namespace);
                return Answer::error(errno::EACCES, why);
            }
            match add_task(state, cx, action, &spec).await {
                Ok(answer) | Err(answer) => answer,
            }
        }
    }
}

/// Checks as stock's manager does, and adds the task, or finds the one that is there.
async fn add_task(state: &State, cx: &Cx, action: Action, spec: &ImageSpec) -> Result<Answer, Answer> {
    let pool = tasks::pool_of_name(cx, &spec.pool).ok_or_else(|| errors::no_pool(&spec.pool))?;
    let pool = Pool::new(cx, pool, spec.namespace.as_str()).with_timeout(COMMAND_TIMEOUT);
    let name = Name::from(spec.image.as_str());
    let mut refs = Refs {
        action,
        pool: spec.pool.clone(),
        namespace: spec.namespace.clone(),
        image_name: (action != Action::TrashRemove).then(|| spec.image.clone()),
        image_id: (action == Action::TrashRemove).then(|| spec.image.clone()),
    };
    let known = |refs: &Refs| state.tasks.borrow().find(refs).map(Answer::body);
    let failed =
        |error| errors::answer(error, &format!("error opening image b'{}' at snapshot None", spec.image));
    if matches!(action, Action::MigrationExecute | Action::MigrationCommit | Action::MigrationAbort) {
        return add_migration(state, &pool, spec, refs).await;
    }
    if action == Action::TrashRemove {
        if let Some(answer) = known(&refs) {
            return Ok(answer);
        }
        trash::get(&pool, &name)
            .await
            .map_err(|error| errors::answer(error, "error retrieving image from trash"))?;
        refuse_unsupported(&pool, &name, spec).await?;
        return Ok(tasks::add(&state.tasks, &pool, format!("Removing image {spec} from trash"), refs).await);
    }
    let image = match id_of(&pool, &name).await {
        Ok(id) => Some(Image::open(&pool, &id).await.map_err(failed)?),
        Err(errno::ENOENT) => None,
        Err(error) => return Err(failed(error)),
    };
    refs.image_id = image.as_ref().and_then(|image| image.id.to_str()).map(str::to_owned);
    if let Some(answer) = known(&refs) {
        return Ok(answer);
    }
    let Some(image) = image else {
        if pool.read([name.as_ref(), b".rbd"].concat(), client::ReadOps::new().stat()).await.is_ok() {
            let why = format!("image {spec} has format 1: use `rbd rm`, or `rbd migration` to format 2");
            return Err(Answer::error(errno::EOPNOTSUPP, why));
        }
        return Err(errors::answer(errno::ENOENT, &format!("Image {spec} does not exist")));
    };
    let message = match action {
        Action::Flatten if image.shared.is_none() => {
            return Err(errors::answer(errno::ENOENT, &format!("Image {spec} does not have a parent")));
        }
        Action::Flatten => format!("Flattening image {spec}"),
        _ if !image.snaps.is_empty() => {
            return Err(errors::answer(errno::EBUSY, &format!("Image {spec} has snapshots")));
        }
        _ => format!("Removing image {spec}"),
    };
    refuse_unsupported(&pool, &image.id, spec).await?;
    Ok(tasks::add(&state.tasks, &pool, message, refs).await)
}

/// The same for a step of a migration.
async fn add_migration(
    state: &State,
    pool: &Pool,
    spec: &ImageSpec,
    mut refs: Refs,
) -> Result<Answer, Answer> {
    let invalid = |what: &str| Err(errors::answer(errno::EINVAL, &format!("Image {spec} {what}")));
    let failed = |error| match error {
        errno::EOPNOTSUPP => {
            let why = format!(
                "image {spec} migrates from an image of format 1, or of elsewhere: use `rbd migration`"
            );
            Answer::error(errno::EOPNOTSUPP, why)
        }
        error => errors::answer(error, "error getting migration status"),
    };
    let name = Name::from(spec.image.as_str());
    let mut found = migration::status(pool, &name).await.map_err(failed)?;
    if found.is_none() {
        // An earlier task may have ended past its point of no return.
        found = match refs.action {
            Action::MigrationCommit => migration::begun_commit(pool, &name).await.map_err(failed)?,
            Action::MigrationAbort => migration::begun_abort(pool, &name).await.map_err(failed)?,
            _ => None,
        };
    }
    refs.image_id = found.as_ref().and_then(|found| found.target.id.to_str()).map(str::to_owned);
    if let Some(known) = state.tasks.borrow().find(&refs) {
        return Ok(Answer::body(known));
    }
    let Some(found) = found else { return invalid("is not migrating") };
    let message = match refs.action {
        Action::MigrationExecute if !found.may_execute() => return invalid("is not in ready state"),
        Action::MigrationExecute => {
            let shown = [&found.source, &found.target].map(|side| shown_side(&pool.cx, side));
            format!("Migrating image {} to {}", shown[0], shown[1])
        }
        Action::MigrationCommit if !found.is_executed() => return invalid("has not completed migration"),
        Action::MigrationCommit => format!("Committing image migration for {spec}"),
        _ => format!("Aborting image migration for {spec}"),
    };
    let is_abort = refs.action == Action::MigrationAbort;
    if let Some(reason) = migration::unsupported(&found, is_abort).await.map_err(failed)? {
        return Err(Answer::error(errno::EOPNOTSUPP, format!("image {spec} {reason}")));
    }
    Ok(tasks::add(&state.tasks, pool, message, refs).await)
}

/// `POOL/[NAMESPACE/]IMAGE` of one side of a migration.
fn shown_side(cx: &Cx, side: &migration::Side) -> ImageSpec {
    let pool = cx.map().and_then(|map| map.pool_names.get(&side.pool.id).map(|name| name.to_string()));
    let text = |name: &Name| name.to_str().unwrap_or("?").to_owned();
    ImageSpec {
        pool: pool.unwrap_or_else(|| "<unknown>".to_owned()),
        namespace: text(&side.pool.namespace),
        image: text(&side.name),
    }
}

/// EOPNOTSUPP at once, where stock's manager has librbd do it.
async fn refuse_unsupported(pool: &Pool, id: &Name, spec: &ImageSpec) -> Result<(), Answer> {
    let image = match Image::open(pool, id).await {
        // What an interrupted removal has left.
        Err(errno::ENOENT) => return Ok(()),
        other => other.map_err(|error| errors::answer(error, "error opening image"))?,
    };
    let reason = unsupported(&image).await.map_err(|error| errors::answer(error, "error opening image"))?;
    match reason {
        None => Ok(()),
        Some(reason) => Err(Answer::error(errno::EOPNOTSUPP, format!("image {spec} {reason}"))),
    }
}
