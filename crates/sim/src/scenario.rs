//! One run of a seed: a cluster under a workload and faults, then a quiet time after which every operation is answered.
//!
//! A run ends at the first violation. A second run then records the last events in words.
//!
//! Half of the seeds have one monitor. The others have several, and two operators who send them commands: see
//! [`MonitorsChoice`]. The nodes that several monitors add come after all others, and draw from streams of their own. So a seed
//! with one monitor runs as it did before there were several.

use crate::check::copies::Finding;
use crate::check::copies::damage::Lost;
use crate::check::copies::sight::Look;
use crate::check::elections::MonitorSight;
use crate::check::monitors::at_rest;
use crate::check::settled::{self, Losses};
use crate::check::{History, Promise, Violation, history_key};
use crate::clock::WallClock;
use crate::cluster::{ClusterChoice, ClusterConfig, Racks};
use crate::faults::{Atlas, Cast, Command, Damage, FaultChoice, MonitorDisks, ROWS, Schedule};
use crate::nodes::{
    AdminNode, Bounds, Checks, ClientNode, Keys, Medium, MgrNode, MonNode, Monitors, OperatorNode, OsdConfig,
    OsdNode, QUIET, Seat, Shared, SnapperNode, Workload, addrs,
};
use crate::report::{MonitorFigures, Report};
use crate::{Fault, Level, Node, NodeId, Notes, World, stream};
use machine::Time;
use mon::state::State;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;
use store::ObjectId;
use wire::types::{EntityKind, EntityName, OsdId, SpgId};

#[derive(Clone, Debug)]
pub struct Config {
    /// Duration of the workload and faults. The quiet time follows.
    pub span: Duration,
    pub quiet: Duration,
    pub level: LevelChoice,
    pub cluster: ClusterChoice,
    pub clients: usize,
    /// Further clients that make snapshots of the first pool. They come after all nodes of a cluster with one monitor.
    pub snappers: usize,
    pub workload: Workload,
    pub monitors: MonitorsChoice,
    /// Monitors may crash.
    pub monitor_crashes: bool,
    /// One OSD restarts with an empty disk. Operations on its lost objects never complete, which is then no violation. An
    /// answer as if an object had never existed is one.
    pub loses_a_disk: bool,
    pub store: StoreChoice,
    /// Each core has one store shard. Otherwise one to three, by seed, and PGs of those with more do not merge.
    pub has_one_shard: bool,
    pub cores: CoresChoice,
    /// Faults come so many times as often as the table says.
    pub fault_rate: u32,
    pub faults: FaultChoice,
    pub bounds: BoundsChoice,
    /// Commands of the administrator, in the order of their times since the begin. The cluster has formed after [`FORMED_AFTER`].
    pub orders: Vec<(Duration, Command)>,
    /// `None`: the hosts are right below the root.
    pub racks: Option<Racks>,
    /// From this time after the begin to the quiet time the cluster has to stand still. For runs without faults.
    pub stands_still_after: Option<Duration>,
    /// From this time after the begin to the end each PG has to keep min_size complete copies that serve, and moves of copies are
    /// counted. For runs without faults.
    pub keeps_min_size_after: Option<Duration>,
}

/// The monitors of a cluster at its begin, and those that join them later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorsConfig {
    pub founders: usize,
    pub joining: usize,
}

/// The number of monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorsChoice {
    /// One in half of the seeds. Of eight others, two begin with one that two more join, four with three, two with five.
    BySeed,
    /// So many at the begin. Three are joined by none to two more, by seed.
    Begin(usize),
    Always(MonitorsConfig),
}

impl MonitorsChoice {
    pub fn of(self, seed: u64) -> MonitorsConfig {
        let mut random = stream(seed, "monitors");
        let founders = match self {
            MonitorsChoice::Always(monitors) => return monitors,
            MonitorsChoice::Begin(founders) => founders,
            MonitorsChoice::BySeed => match random.below(16) {
                0..8 => 1,
                8..10 => return MonitorsConfig::GROWING,
                10..14 => 3,
                _ => 5,
            },
        };
        let joining = if founders == 3 { random.below(3) as usize } else { 0 };
        MonitorsConfig { founders, joining }
    }
}

impl MonitorsConfig {
    /// One monitor that becomes three.
    pub const GROWING: MonitorsConfig = MonitorsConfig { founders: 1, joining: 2 };

    fn count(self) -> usize {
        self.founders + self.joining
    }
}

/// Time in which a cluster forms. Faults begin after it.
pub const FORMED_AFTER: Duration = Duration::from_secs(5);

/// Operators of a cluster with several monitors.
const OPERATORS: usize = 2;

/// Bounds of each OSD's logs and backfills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundsChoice {
    /// Those of the store.
    Usual,
    /// Small ones in two of eight seeds: members fall behind the log, and backfills have many windows. In two of five seeds logs
    /// rest soon.
    BySeed,
    Always(Bounds),
}

impl BoundsChoice {
    pub fn of(self, seed: u64, medium: Medium) -> Bounds {
        let mut bounds = match self {
            BoundsChoice::Always(bounds) => return bounds,
            BoundsChoice::BySeed if matches!(seed % 8, 3 | 6) => Bounds::SMALL,
            BoundsChoice::Usual | BoundsChoice::BySeed => Bounds::of(medium),
        };
        match (self, seed % 5) {
            (BoundsChoice::BySeed, 1) => bounds.log.rest_after = Duration::from_millis(300),
            (BoundsChoice::BySeed, 3) => bounds.log.rest_after = Duration::from_millis(20),
            _ => {}
        }
        bounds
    }
}

/// Reactor cores of each OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoresChoice {
    /// Two cores in five of seven seeds, one or three in the others.
    BySeed,
    Always(u16),
}

impl CoresChoice {
    pub fn of(self, seed: u64) -> u16 {
        match self {
            CoresChoice::Always(cores) => cores,
            CoresChoice::BySeed => [2, 2, 2, 1, 3, 2, 2][(seed % 7) as usize],
        }
    }
}

/// The store of the OSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreChoice {
    /// The durable store on disks in even seeds, the memory store in odd ones.
    BySeed,
    Always(Medium),
}

impl StoreChoice {
    pub fn of(self, seed: u64) -> Medium {
        match self {
            StoreChoice::Always(medium) => medium,
            StoreChoice::BySeed if seed.is_multiple_of(2) => Medium::Disk,
            StoreChoice::BySeed => Medium::Memory,
        }
    }
}

/// The level of the simulated network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelChoice {
    BySeed,
    Always(Level),
}

impl LevelChoice {
    /// By pairs of seeds, so that each level meets both stores: of six pairs, three carry messages, one bytes with `auth
    /// none`, and two bytes with cephx.
    pub fn of(self, seed: u64) -> Level {
        match self {
            LevelChoice::Always(level) => level,
            LevelChoice::BySeed => match seed / 2 % 6 {
                1 | 4 => Level::Bytes { cephx: true },
                2 => Level::Bytes { cephx: false },
                _ => Level::Messages,
            },
        }
    }
}

impl Config {
    pub fn new(span: Duration) -> Config {
        let pause_max = Duration::from_millis(40);
        let workload = Workload {
            objects: 12,
            cold_objects: 0,
            unit_bytes: 64,
            depth: 3,
            pause_max,
            bursts: 2,
            balanced_every: 3,
        };
        Config {
            span,
            quiet: QUIET,
            level: LevelChoice::BySeed,
            cluster: ClusterChoice::BySeed,
            clients: 4,
            snappers: 0,
            workload,
            monitors: MonitorsChoice::BySeed,
            monitor_crashes: true,
            loses_a_disk: false,
            store: StoreChoice::BySeed,
            has_one_shard: false,
            cores: CoresChoice::BySeed,
            fault_rate: 1,
            faults: FaultChoice::BySeed,
            bounds: BoundsChoice::Usual,
            orders: Vec::new(),
            racks: None,
            stands_still_after: None,
            keeps_min_size_after: None,
        }
    }
}

/// Runs a cluster of production machines: monitors, manager, OSDs, clients, and an administrator.
pub fn run(seed: u64, config: &Config) -> Report {
    with_cluster(seed, config, |monitor, others| run_with(seed, config, monitor, others))
}

/// Runs a seed, with each event in words to `tell`.
pub fn run_tracing(seed: u64, config: &Config, tell: impl FnMut(&str) + 'static) -> Report {
    with_cluster(seed, config, |monitor, others| {
        play(seed, config, monitor, others, Notes::To(Box::new(tell)))
    })
}

fn with_cluster(
    seed: u64,
    config: &Config,
    run: impl FnOnce(MakeNode<'_>, &[MakeNode<'_>]) -> Report,
) -> Report {
    let cluster = config.cluster.of(seed);
    run(
        &|seat, _| Box::new(MonNode::new(seat)),
        &[&|seat, _| Box::new(MgrNode::new(seat)), &|seat, _| {
            Box::new(AdminNode::of_racks(seat, cluster.clone(), config.racks))
        }],
    )
}

/// Makes a node, given its seat and the end of the workload.
pub type MakeNode<'a> = &'a dyn Fn(Seat, Time) -> Box<dyn Node>;

/// Runs a cluster with the given kind of monitor and further nodes. They must create the pools of the configuration.
pub fn run_with(seed: u64, config: &Config, monitor: MakeNode<'_>, others: &[MakeNode<'_>]) -> Report {
    let report = play(seed, config, monitor, others, Notes::Nowhere);
    if report.is_clean() {
        return report;
    }
    let mut again = play(seed, config, monitor, others, Notes::Recent);
    if again.trace_hash != report.trace_hash {
        let words = "a second run of the seed took another way".to_owned();
        let at = again.violations.first().map_or(Time::ZERO, |violation| violation.at);
        again.violations.push(Violation { promise: Promise::Replays, at, words });
    }
    again
}

/// One run of a seed.
fn play(seed: u64, config: &Config, monitor: MakeNode<'_>, others: &[MakeNode<'_>], notes: Notes) -> Report {
    let mut world = make_world(seed, config);
    world.set_notes(notes);
    let (medium, cluster) = (config.store.of(seed), config.cluster.of(seed));
    let workload = match medium {
        Medium::Memory => config.workload,
        Medium::Disk => on_disks(config.workload, seed),
    };
    let history: Shared = Rc::new(RefCell::new(History::new(world.true_time())));
    let begin = world.now();
    let quiet_after = begin + config.span;
    let mut cast = Cast {
        cluster: cluster.clone(),
        medium,
        span: config.span,
        rate: config.fault_rate,
        ..Cast::default()
    };
    let keys = match config.level.of(seed) {
        Level::Bytes { cephx: true } => Some(Rc::new(Keys::new(&mut stream(seed, "keys"), cluster.osds))),
        Level::Bytes { cephx: false } | Level::Messages => None,
    };
    let monitors_config = config.monitors.of(seed);
    let several = (monitors_config.count() > 1).then(|| {
        // The others come after all nodes of a cluster with one.
        let next = 1 + cluster.osds as usize + config.clients + others.len() + config.snappers;
        let nodes: Vec<usize> = [0].into_iter().chain(next..).take(monitors_config.count()).collect();
        let checks = Checks::new(history.clone());
        Monitors::several(&nodes, monitors_config.founders, stream(seed, "genesis"), checks)
    });
    let monitors = several.unwrap_or_else(Monitors::one);
    let mut index = 0;
    let mut add = |world: &mut World, make: &dyn Fn(Seat) -> Box<dyn Node>| {
        let random = stream(seed, &format!("node {index}"));
        let wall = WallClock::default();
        let node =
            make(Seat { index, monitors: monitors.clone(), random, wall: wall.clone(), keys: keys.clone() });
        index += 1;
        world.add(node, wall)
    };
    let mut all = vec![add(&mut world, &|seat| monitor(seat, quiet_after))];
    for osd in 0..cluster.osds {
        let make = |seat| -> Box<dyn Node> {
            let (cores, bounds) = (config.cores.of(seed), config.bounds.of(seed, medium));
            // The default, and values at which every recovery leaves the acting set.
            let async_recovery_min_cost = [100, 0, 5][(seed / 3 % 3) as usize];
            let has_one_shard = config.has_one_shard;
            let osd = OsdId(osd);
            let config = OsdConfig { osd, medium, has_one_shard, cores, bounds, async_recovery_min_cost };
            Box::new(OsdNode::new(seat, config, history.clone()))
        };
        cast.osds.push(add(&mut world, &make));
    }
    for _ in 0..config.clients {
        let make = |seat| -> Box<dyn Node> {
            let pools = cluster.pool_ids().collect();
            Box::new(ClientNode::new(seat, workload, pools, history.clone(), quiet_after))
        };
        cast.clients.push(add(&mut world, &make));
    }
    for (which, other) in others.iter().enumerate() {
        let node = add(&mut world, &|seat| other(seat, quiet_after));
        if which == 0 { cast.managers.push(node) } else { cast.admins.push(node) }
    }
    for _ in 0..config.snappers {
        let make = |seat| -> Box<dyn Node> {
            let pool = cluster.pool_ids().next().expect("there is a pool");
            Box::new(SnapperNode::new(seat, pool, history.clone(), quiet_after))
        };
        cast.clients.push(add(&mut world, &make));
    }
    all.extend([&cast.osds[..], &cast.clients, &cast.managers, &cast.admins].concat());
    let mut all_monitors = vec![all[0]];
    for place in 1..monitors_config.count() {
        let node = add(&mut world, &|seat| monitor(seat, quiet_after));
        all_monitors.push(node);
        if place < monitors_config.founders { all.push(node) } else { cast.joining.push(node) }
    }
    let operators = if monitors_config.count() > 1 { OPERATORS } else { 0 };
    for number in 0..operators {
        let operator =
            |seat| -> Box<dyn Node> { Box::new(OperatorNode::new(seat, number as u64, OPERATORS as u64)) };
        cast.operators.push(add(&mut world, &operator));
    }
    all.extend(&cast.operators);
    if config.monitor_crashes {
        cast.monitors.clone_from(&all_monitors);
    }

    // Faults begin once the cluster has formed.
    let faults_begin = begin + FORMED_AFTER.min(config.span);
    let mut orders = config.orders.iter().map(|(after, command)| (begin + *after, *command)).peekable();
    let mut atlas = Atlas::new(&cast, config.loses_a_disk);
    let mut schedule = Schedule::new(
        ROWS,
        &config.faults,
        seed,
        cast.clone(),
        faults_begin,
        quiet_after,
        config.loses_a_disk,
    );
    let mut dead = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let holds = || history.borrow().violations().is_empty();
        world.watch_copies(&cast.osds);
        if let Some(after) = config.stands_still_after {
            world.watch_rest(begin + after, quiet_after);
        }
        if let Some(after) = config.keeps_min_size_after {
            world.watch_moves(begin + after);
        }
        if all_monitors.len() > 1 {
            world.watch_monitors(&all_monitors);
        }
        set_clocks(&mut world, &all, seed);
        all.iter().for_each(|node| world.start(*node));
        let advance = |world: &mut World, until: Time| {
            world.run_until(until, holds);
            if let Some((promise, words)) = world.take_finding() {
                history.borrow_mut().violation(promise, words);
            }
            holds()
        };
        loop {
            let ordered_at = orders.peek().map(|(at, _)| *at);
            let Some(at) = Time::earliest(ordered_at, schedule.next_at()).filter(|_| holds()) else { break };
            if !advance(&mut world, at) {
                break;
            }
            if ordered_at == Some(at) {
                let command = orders.next().expect("it was just seen").1;
                cast.admins.iter().for_each(|node| {
                    world.fault(Fault::Command { node: *node, command });
                });
                continue;
            }
            schedule.cast.leader = world.leading_monitor().map(|sight| sight.node);
            if let Some((row, Some(fault))) = schedule.take(quiet_after)
                && let Some(fault) =
                    atlas.admit(fault, || world.sights(Look::Roles), || disks_of_monitors(&world))
            {
                schedule.struck[row] += u64::from(world.fault(fault));
            }
        }
        if holds() && advance(&mut world, quiet_after) {
            world.calm();
            dead = kill_minority(&mut world, &atlas, &cast, seed, advance);
            let end = world.now() + config.quiet;
            advance(&mut world, end);
        }
        if !holds() {
            return (Vec::new(), Lost::new());
        }
        let mut findings: Vec<Finding> =
            world.examine().into_iter().map(|words| (Promise::SoundDisks, words)).collect();
        if let Some(checks) = monitors.checks() {
            findings.extend(check_monitors(&world, checks, &all_monitors).err());
        }
        let compared = world.compare_replicas().map_err(|finding| findings.push(finding));
        (findings, compared.unwrap_or_default())
    }));
    let mut history = history.borrow_mut();
    let mut lost = Lost::new();
    match outcome {
        Err(panic) => history.violation(Promise::Invariant, words_of(&*panic)),
        Ok((findings, to_damage)) => {
            lost = to_damage;
            findings.into_iter().for_each(|(promise, words)| history.violation(promise, words));
        }
    }
    if history.violations().is_empty() {
        history.finish();
    }
    if history.violations().is_empty()
        && !config.loses_a_disk
        && let Some(Err(words)) =
            settled(&world, &cluster, Losses { dead: dead.len(), lost_to_damage: lost.len() as u64 })
    {
        history.violation(Promise::Settles, words);
    }
    if history.violations().is_empty()
        && !config.loses_a_disk
        && let Some((client, object, since)) = history.oldest_open(&names_of(&lost))
    {
        let words = format!("client {client:x} still waits for {object} since {since:?}");
        history.violation(Promise::AnsweredAtLast, words);
    }
    let struck = ROWS.iter().zip(&schedule.struck).filter(|(_, struck)| **struck > 0);
    let only_resets = struck.map(|(row, _)| row.damages).all(|damage| damage == Damage::Connection);
    let was_marked_down = world.coverage().transitions.contains_key(&("OSD", "up", "booting"));
    if history.violations().is_empty() && dead.is_empty() && only_resets && was_marked_down {
        history.violation(Promise::StaysUp, "connections broke, and a running OSD was marked down".into());
    }
    let answered = history.summary().answered;
    if history.violations().is_empty() && !config.loses_a_disk && answered < config.span.as_secs() {
        history.violation(Promise::MakesProgress, format!("clients got only {answered} answers"));
    }
    Report {
        seed,
        store: medium,
        trace_hash: world.trace().hash(),
        events: world.trace().events(),
        simulated: world.now().since(begin),
        summary: history.summary(),
        merges: world.merges(),
        moves: world.moves(),
        looks_at_rest: world.looks_at_rest(),
        monitors: monitors.checks().map(|checks| MonitorFigures {
            monitors: all_monitors.iter().filter(|node| world.has_started(**node)).count(),
            commands: checks.commands.borrow().answered(),
            compared: checks.agreement.borrow().compared(),
            judged_s: world.elections_checked(),
        }),
        violations: history.violations().to_vec(),
        coverage: world.coverage().clone(),
        faults: ROWS.iter().zip(&schedule.struck).map(|(row, struck)| (row.name, *struck)).collect(),
        recent: world.trace().recent().map(str::to_owned).collect(),
    }
}

fn disks_of_monitors(world: &World) -> MonitorDisks {
    let running = world.monitor_sights().into_iter().map(|sight| sight.standing);
    MonitorDisks {
        running: running.collect(),
        members: world.members_on_disks(),
        leaving: world.leaving_monitor(),
    }
}

/// Compares the monitors with each other, and their state with what the operators were told, at the end of a run.
fn check_monitors(world: &World, checks: &Checks, monitors: &[NodeId]) -> Result<(), Finding> {
    let running: Vec<(MonitorSight, &State)> = world
        .monitor_sights()
        .into_iter()
        .filter_map(|sight| Some((sight.clone(), world.monitor(sight.node)?.state())))
        .collect();
    let started: Vec<NodeId> = monitors.iter().copied().filter(|node| world.has_started(*node)).collect();
    let newest = at_rest(&running, &started, world.leaving_monitor())?;
    for (sight, state) in &running {
        checks.agreement.borrow_mut().compare(&format!("{:?}", sight.node), state)?;
    }
    let open = world.open_commands();
    let may_repeat = open.iter().any(|(_, open)| open.may_repeat);
    let commands = checks.commands.borrow();
    commands.check(newest, may_repeat)?;
    if let Some((node, open)) =
        open.iter().find(|(_, open)| world.now().since(open.since) > OPERATOR_WAIT_MAX)
    {
        let words = format!("operator {node:?} still waits since {:?}", open.since);
        return Err((Promise::CommandsAnswered, words));
    }
    let (answered, seconds) = (commands.answered(), world.now().0 / 1_000_000_000);
    if answered < seconds / 4 {
        let words = format!("operators got only {answered} answers");
        return Err((Promise::CommandsAnswered, words));
    }
    Ok(())
}

/// The longest wait of an operator at the end of the quiet time.
const OPERATOR_WAIT_MAX: Duration = Duration::from_secs(10);

/// Kills the OSDs that the cluster must do without from now on, once the atlas permits it, and marks them out.
fn kill_minority(
    world: &mut World,
    atlas: &Atlas,
    cast: &Cast,
    seed: u64,
    advance: impl Fn(&mut World, Time) -> bool,
) -> Vec<NodeId> {
    /// Attempts, and the pause between two. PGs peer in between.
    const ATTEMPTS: usize = 6;
    const PAUSE: Duration = Duration::from_secs(5);
    let minority = atlas.minority(&mut stream(seed, "minority"));
    for _ in 0..if minority.is_empty() { 0 } else { ATTEMPTS } {
        let until = world.now() + PAUSE;
        if advance(world, until) && atlas.may_lose(&minority, &world.sights(Look::Roles)) {
            for node in &minority {
                world.fault(Fault::Kill { node: *node });
                let osd = cast.osds.iter().position(|osd| osd == node).expect("an OSD of the run");
                let command = Command::OsdOut(OsdId(osd as i32));
                cast.admins.iter().for_each(|admin| {
                    world.fault(Fault::Command { node: *admin, command });
                });
            }
            return minority;
        }
    }
    Vec::new()
}

/// Judges the end of the quiet time by the administrator's view. `None` without an administrator.
fn settled(world: &World, cluster: &ClusterConfig, losses: Losses) -> Option<Result<(), String>> {
    let statuses = world.statuses()?;
    Some(statuses.and_then(|statuses| settled::check(&statuses, world.now(), cluster, losses)))
}

/// The lost objects as the history names them.
fn names_of(lost: &Lost) -> BTreeSet<String> {
    let names = |(pg, objects): (&SpgId, &BTreeSet<ObjectId>)| -> Vec<String> {
        let name = |id: &ObjectId| history_key(pg.pg.pool, &id.object.name.to_string());
        objects.iter().map(name).collect()
    };
    lost.iter().flat_map(names).collect()
}

fn make_world(seed: u64, config: &Config) -> World {
    let Level::Bytes { cephx } = config.level.of(seed) else { return World::with_messages(seed) };
    let osds = config.cluster.of(seed).osds as usize;
    let clients = config.clients;
    // After the manager, the administrator, and the clients that make snapshots.
    let first = osds + clients + 3 + config.snappers;
    let more_monitors = first..first - 1 + config.monitors.of(seed).count();
    World::with_bytes(seed, move |node, life| {
        let name = match node.0 {
            0 => EntityName::new(EntityKind::MON, 0),
            n if more_monitors.contains(&n) => {
                EntityName::new(EntityKind::MON, (n - more_monitors.start + 1) as i64)
            }
            n if n <= osds => EntityName::new(EntityKind::OSD, n as i64 - 1),
            n if n == osds + clients + 1 => EntityName::new(EntityKind::MGR, 0),
            _ => EntityName::new(EntityKind::CLIENT, -1),
        };
        // A monitor's nonce is part of its well-known address.
        let life = if name.kind == EntityKind::MON { 0 } else { life };
        let mut config = messenger::Config::new(name, addrs(node.0, life));
        config.methods = vec![if cephx { wire::cephx::METHOD_CEPHX } else { wire::cephx::METHOD_NONE }];
        config
    })
}

/// Gives every node a usual clock drift.
fn set_clocks(world: &mut World, nodes: &[NodeId], seed: u64) {
    const USUAL_PPM: i64 = 100;
    let mut random = stream(seed, "clocks");
    for node in nodes {
        let rate_ppm = random.below(2 * USUAL_PPM as u64 + 1) as i64 - USUAL_PPM;
        world.fault(Fault::ClockRate { node: *node, rate_ppm });
    }
}

/// The workload on disks. Write sizes range from parts of a block to several blocks. Cold objects are rarely written, so
/// that reads find damage in them.
fn on_disks(workload: Workload, seed: u64) -> Workload {
    const COLD_OBJECTS: u64 = 60;
    let unit_bytes = [64, 1000, 6000, 20_000][seed as usize / 2 % 4];
    Workload { unit_bytes, cold_objects: COLD_OBJECTS, ..workload }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or(panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_else(|| "a panic".into())
}
