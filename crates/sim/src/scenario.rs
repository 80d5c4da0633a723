//! One run: a cluster, a workload, faults, and then quiet, after which everything must have been answered.
//!
//! Faults never exceed what the cluster promises to survive: a disk keeps what it said it kept, every process comes
//! back, and every stall and partition ends. (Unless the run is to show what becomes of a lost disk.) A run ends with
//! the first promise that is broken.

use crate::check::{History, Promise, Summary, Violation};
use crate::nodes::{
    AdminNode, ClientNode, Medium, MgrNode, MonNode, OsdConfig, OsdNode, QUIET, Shared, Workload, addrs,
};
use crate::{Coverage, Death, Fault, Level, Node, NodeId, World};
use machine::{Random, Time};
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;
use wire::types::{EntityAddrVec, EntityKind, EntityName, OsdId, PoolId};

#[derive(Clone, Debug)]
pub struct Config {
    /// How long there is work and there are faults; the quiet time comes on top.
    pub span: Duration,
    pub level: Level,
    pub osds: i32,
    pub clients: usize,
    pub workload: Workload,
    /// The monitor's process may die, too.
    pub monitor_crashes: bool,
    /// One OSD comes back with an empty disk. Its objects are lost, and whoever asks for one of them waits for ever:
    /// that is no violation then, but an answer as if there had never been anything is.
    pub loses_a_disk: bool,
    pub store: StoreChoice,
    pub cores: CoresChoice,
}

/// Reactor cores of each OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoresChoice {
    /// Two with most seeds, one or three with some.
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

/// What OSDs keep their objects in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreChoice {
    /// Disks with even seeds, memory with odd ones.
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

impl Config {
    pub fn new(span: Duration) -> Config {
        let pause_max = Duration::from_millis(40);
        let workload = Workload { pool: 1, objects: 12, token_bytes: 8, depth: 3, pause_max, bursts: 2 };
        Config {
            span,
            level: Level::Messages,
            osds: 3,
            clients: 4,
            workload,
            monitor_crashes: true,
            loses_a_disk: false,
            store: StoreChoice::BySeed,
            cores: CoresChoice::BySeed,
        }
    }

    pub fn pool(&self) -> PoolId {
        self.workload.pool
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub store: Medium,
    /// Two runs of a seed give the same.
    pub trace_hash: u64,
    pub events: u64,
    pub simulated: Duration,
    pub summary: Summary,
    /// Empty when all is well.
    pub violations: Vec<Violation>,
    /// Which message types arrived where, which states were seen, which faults happened; how often.
    pub coverage: Coverage,
    /// The last events in words, when something was wrong.
    pub recent: Vec<String>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.summary;
        let verdict = if self.is_clean() { "holds" } else { "FAILS" };
        writeln!(
            f,
            "seed {} {verdict} {}: trace {:016x}, {:.0} s simulated, {} events, {} answers, {} without an outcome",
            self.seed,
            match self.store {
                Medium::Memory => "in memory",
                Medium::Disk => "on disks",
            },
            self.trace_hash,
            self.simulated.as_secs_f64(),
            self.events,
            s.answered,
            s.abandoned
        )?;
        for (what, count) in &self.coverage {
            writeln!(f, "  {count:>8}  {what}")?;
        }
        self.recent.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        self.violations.iter().try_for_each(|v| writeln!(f, "  VIOLATION {v}"))
    }
}

/// Run a whole cluster of production machines: monitor, manager, OSDs, clients, and an administrator.
pub fn run(seed: u64, config: &Config) -> Report {
    const PGS: u32 = 16;
    let osds = config.osds;
    run_with(
        seed,
        config,
        &|_, addrs, random, _| Box::new(MonNode::new(addrs, random)),
        &[
            &|index, monitor, random, _| Box::new(MgrNode::new(index, monitor, random)),
            &|index, monitor, random, quiet| {
                Box::new(AdminNode::new(index, monitor, random, quiet, osds, PGS))
            },
        ],
    )
}

/// Makes the node that clients and OSDs call their monitor, given its index and addresses, and until when there is
/// work. It must come to have a pool with the workload's number.
pub type MakeMonitor<'a> = &'a dyn Fn(usize, EntityAddrVec, Random, Time) -> Box<dyn Node>;

/// Run a cluster with the given monitor, and further nodes as wanted.
pub fn run_with(seed: u64, config: &Config, monitor: MakeMonitor<'_>, others: &[MakeMonitor<'_>]) -> Report {
    let mut world = make_world(seed, config);
    let mut random = Random::from_number(seed ^ 0x5eed_0ffa_u64);
    let medium = config.store.of(seed);
    let workload = match medium {
        Medium::Memory => config.workload,
        Medium::Disk => on_disks(config.workload, seed),
    };
    let history: Shared = Rc::new(RefCell::new(History::default()));
    let quiet_after = world.now() + config.span;
    let monitor_addrs = addrs(0, 0);
    let mut cast = Cast {
        monitor: world.add(monitor(0, monitor_addrs.clone(), random.fork(), quiet_after)),
        osds: Vec::new(),
        clients: Vec::new(),
        others: Vec::new(),
    };
    for osd in 0..config.osds {
        let index = 1 + osd as usize;
        let cores = config.cores.of(seed);
        let osd_config = OsdConfig { index, osd: OsdId(osd), monitor: monitor_addrs.clone(), medium, cores };
        let node = OsdNode::new(osd_config, random.fork(), history.clone());
        cast.osds.push(world.add(Box::new(node)));
    }
    for client in 0..config.clients {
        let index = 1 + config.osds as usize + client;
        let node = ClientNode::new(
            index,
            monitor_addrs.clone(),
            random.fork(),
            workload,
            history.clone(),
            quiet_after,
        );
        cast.clients.push(world.add(Box::new(node)));
    }
    for other in others {
        let index = 1 + config.osds as usize + config.clients + cast.others.len();
        cast.others.push(world.add(other(index, monitor_addrs.clone(), random.fork(), quiet_after)));
    }

    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let holds = || history.borrow().violations().is_empty();
        play(&mut world, &cast, config, medium, &mut random, quiet_after, &holds);
        if holds() { world.examine() } else { Vec::new() }
    }));
    let mut history = history.borrow_mut();
    match outcome {
        Err(panic) => history.violation(world.now(), Promise::Invariant, words_of(&*panic)),
        Ok(findings) => {
            findings.into_iter().for_each(|words| history.violation(world.now(), Promise::SoundDisks, words));
        }
    }
    if history.violations().is_empty()
        && !config.loses_a_disk
        && let Some((client, object, since)) = history.oldest_open()
    {
        let words = format!("client {client:x} still waits for {object} since {since:?}");
        history.violation(world.now(), Promise::AnsweredAtLast, words);
    }
    let violations = history.violations().to_vec();
    let recent =
        if violations.is_empty() { Vec::new() } else { world.trace().recent().map(str::to_owned).collect() };
    Report {
        seed,
        store: medium,
        trace_hash: world.trace().hash(),
        events: world.trace().events(),
        simulated: world.now().since(quiet_after) + config.span,
        summary: history.summary(),
        violations,
        coverage: world.trace().coverage().clone(),
        recent,
    }
}

struct Cast {
    monitor: NodeId,
    osds: Vec<NodeId>,
    clients: Vec<NodeId>,
    others: Vec<NodeId>,
}

fn make_world(seed: u64, config: &Config) -> World {
    let Level::Bytes { cephx } = config.level else { return World::with_messages(seed) };
    assert!(!cephx, "the nodes have no keys yet");
    let osds = config.osds as usize;
    let clients = config.clients;
    World::with_bytes(seed, move |node, life| {
        let name = match node.0 {
            0 => EntityName::new(EntityKind::MON, 0),
            n if n <= osds => EntityName::new(EntityKind::OSD, n as i64 - 1),
            n if n == osds + clients + 1 => EntityName::new(EntityKind::MGR, 0),
            _ => EntityName::new(EntityKind::CLIENT, -1),
        };
        // The monitor's address is known by its nonce for ever.
        let life = if node.0 == 0 { 0 } else { life };
        let mut config = messenger::Config::new(name, addrs(node.0, life));
        config.methods = vec![wire::cephx::METHOD_NONE];
        config
    })
}

/// Work under faults until the quiet begins, and then quiet; or until something does not hold.
fn play(
    world: &mut World,
    cast: &Cast,
    config: &Config,
    medium: Medium,
    random: &mut Random,
    quiet_after: Time,
    holds: &dyn Fn() -> bool,
) {
    let for_ms = |random: &mut Random, max| Duration::from_millis(random.below(max));
    let any = |random: &mut Random, of: &[NodeId]| of[random.below(of.len() as u64) as usize];
    let all = [&[cast.monitor], &cast.osds[..], &cast.clients, &cast.others].concat();
    all.iter().for_each(|node| world.start(*node));
    world.run_while(Duration::from_secs(5).min(config.span), holds);
    let mut disk_goes_at = config.loses_a_disk.then(|| world.now() + config.span / 3);
    while world.now() < quiet_after && holds() {
        let left = quiet_after.since(world.now());
        world.run_while(Duration::from_millis(200 + random.below(4_000)).min(left), holds);
        if disk_goes_at.take_if(|at| *at <= world.now()).is_some() {
            let node = any(random, &cast.osds);
            world.fault(Fault::LoseDisk { node, down_for: for_ms(random, 8_000) });
        }
        let kinds = match medium {
            Medium::Memory => 20,
            Medium::Disk => 24,
        };
        match random.below(kinds) {
            0 | 1 => {
                let (node, death) = (any(random, &cast.osds), death(medium, random));
                world.fault(Fault::Crash { node, death, down_for: for_ms(random, 8_000) });
            }
            2 | 20 => {
                let (node, death) = (any(random, &cast.osds), death(medium, random));
                let (within, down_for) = (for_ms(random, 2_000), for_ms(random, 8_000));
                world.fault(Fault::CrashWriting { node, death, within, down_for });
            }
            21 => {
                let node = any(random, &cast.osds);
                world.fault(Fault::StallDisk { node, stalled_for: for_ms(random, 4_000) });
            }
            22 => world.fault(Fault::FlipBit { node: any(random, &cast.osds) }),
            23 => {
                let node = any(random, &cast.osds);
                world.fault(Fault::FailReads { node, fails_for: for_ms(random, 10_000) });
            }
            16 => {
                let node = any(random, &cast.osds);
                world.fault(Fault::SlowDisk { node, slow_for: for_ms(random, 4_000) });
            }
            17 if config.monitor_crashes => {
                let (node, death) = (cast.monitor, Death::Process);
                let (within, down_for) = (for_ms(random, 2_000), for_ms(random, 5_000));
                world.fault(Fault::CrashWriting { node, death, within, down_for });
            }
            18 if config.monitor_crashes => {
                world.fault(Fault::SlowDisk { node: cast.monitor, slow_for: for_ms(random, 4_000) });
            }
            3 | 4 => {
                let node = any(random, &cast.osds);
                world.fault(Fault::Stall { node, stalled_for: for_ms(random, 4_000) });
            }
            5 | 6 => {
                let (node, death) = (any(random, &cast.clients), Death::Process);
                world.fault(Fault::Crash { node, death, down_for: for_ms(random, 2_000) });
            }
            7 => {
                let node = any(random, &cast.clients);
                world.fault(Fault::Stall { node, stalled_for: for_ms(random, 4_000) });
            }
            8 if config.monitor_crashes => {
                let (node, death) = (cast.monitor, Death::Process);
                world.fault(Fault::Crash { node, death, down_for: for_ms(random, 5_000) });
            }
            9 if !cast.others.is_empty() => {
                let (node, death) = (any(random, &cast.others), Death::Process);
                world.fault(Fault::Crash { node, death, down_for: for_ms(random, 5_000) });
            }
            _ => world.fault(Fault::Break),
        }
    }
    if holds() {
        world.run_while(QUIET, holds);
    }
}

/// What an OSD dies of; to one whose store is in memory it is all the same.
fn death(medium: Medium, random: &mut Random) -> Death {
    match medium == Medium::Disk && random.below(2) == 0 {
        true => Death::Power,
        false => Death::Process,
    }
}

/// On disks, tokens are of different sizes: within a block, beyond one, and of several. And there are so many objects that
/// some of them are not written for a while: what rots is found.
fn on_disks(workload: Workload, seed: u64) -> Workload {
    const TIMES_AS_MANY: u64 = 4;
    let token_bytes = [8, 1000, 6000, 20_000][seed as usize / 2 % 4];
    Workload { token_bytes, objects: TIMES_AS_MANY * workload.objects, ..workload }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or(panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_else(|| "a panic".into())
}
