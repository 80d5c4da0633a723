//! The world: nodes with clocks of their own, the network between them, and one event queue.
//!
//! All randomness derives from the seed. The network and each kind of fault have streams of their own, so that a change in
//! one does not shift the others. Events of the same time happen in the order of their scheduling. Two runs of a seed have
//! the same events; [`Trace::hash`] compares them.

use crate::check::copies::damage::Lost;
use crate::check::copies::min_size::{MoveFigures, Moves};
use crate::check::copies::scrub_blame::Damaged;
use crate::check::copies::sight::{Look, Sights};
use crate::check::copies::{self, Ack, Finding, Watch};
use crate::check::elections::{Elections, MonitorSight};
use crate::check::left_alone::LeftAlone;
use crate::check::settled::StatusSight;
use crate::check::standing_still::StandingStill;
use crate::check::{Promise, TrueTime};
use crate::clock::{Clock, WallClock};
use crate::faults::{Command, Fault, NodeSet};
use crate::network::{Arrival, BytesNetwork, Cx, EndpointConfig, MessageNetwork, Network, Station, Weather};
use crate::node::{Death, Life, Node, NodeId};
use crate::nodes::{Monitors, OpenCommand};
use crate::stream;
use crate::trace::{Coverage, Notes, Source, Trace};
use machine::net::{NetEffect, NetEvent};
use machine::{Random, Time};
use mon::Monitor;
use osd::shard::ScrubWish;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::types::{Epoch, OsdId, PoolId};

/// A process that is down when the last fault has struck starts within this time: the quiet time counts on it.
const ABSENCE_MAX: Duration = Duration::from_secs(10);
/// Times of the quiet time in which all PGs are repaired. A PG that is not clean yet is repaired later.
const REPAIRS_AFTER_S: [u64; 2] = [12, 24];

pub struct World {
    now: Time,
    /// The same time, shared with the history.
    true_time: TrueTime,
    nodes: Vec<Box<dyn Node>>,
    /// The network's view of each node.
    stations: Vec<Station>,
    /// Each node's next wake, in the world's time.
    wakes: Vec<Option<Time>>,
    network: Network,
    weather: Weather,
    network_random: Random,
    /// Seeds the dice of crashes.
    seed: u64,
    ambushes: BTreeMap<NodeId, Ambush>,
    merge_ambush: Option<MergeAmbush>,
    pauses: BTreeMap<NodeId, Pause>,
    /// Processes that were asked to stop.
    stops: BTreeMap<NodeId, Stop>,
    /// When each process that is down starts again.
    starts: BTreeMap<NodeId, Time>,
    /// Nodes that never start again.
    dead: BTreeSet<NodeId>,
    queue: BTreeMap<(Time, u64), Event>,
    queued: u64,
    trace: Trace,
    work: VecDeque<Work>,
    /// Acknowledgements of the current event.
    acks: Vec<Ack>,
    watch: Option<Watch>,
    /// The monitors of the run, and the watch over several of them.
    monitors: Vec<NodeId>,
    elections: Option<Elections>,
    /// The monitor that an administrator takes out, and who that is.
    leaving: Option<(NodeId, NodeId)>,
    is_calm: bool,
    /// OSDs that are away, each with the administrator who brings it in again.
    away: BTreeMap<NodeId, (NodeId, OsdId)>,
    /// The nodes of the OSDs, by number.
    osds: Vec<NodeId>,
    damaged: Damaged,
    /// A scrub was ordered, or a copy differs: the quiet time begins with repairs.
    wants_repairs: bool,
    /// Merges of PGs that the monitors have published: the pool, and the epoch in which the source was ready.
    merges: BTreeSet<(PoolId, Epoch)>,
    left_alone: LeftAlone,
    rest: Option<StandingStill>,
    /// The begin of the watch over moves of copies, and what it saw.
    moves: Option<(Time, Moves)>,
    finding: Option<Finding>,
}

/// A crash of a node at its next disk write before `until`.
#[derive(Clone, Copy)]
struct Ambush {
    until: Time,
    death: Death,
    down_for: Duration,
}

/// A crash of all these nodes at the next merge before `until`.
#[derive(Clone, Copy)]
struct MergeAmbush {
    nodes: NodeSet,
    until: Time,
    down_for: Duration,
    merges_before: usize,
}

/// A process that is stopped, or will be after some steps.
struct Pause {
    /// Steps until the process stops.
    steps_left: u64,
    until: Time,
    /// Its events and effects during the pause, in order.
    waiting: VecDeque<Work>,
}

/// A clean stop of a process that has not ended.
#[derive(Clone, Copy)]
struct Stop {
    down_for: Duration,
    /// Time from the next start to the next stop.
    again_after: Option<Duration>,
}

/// A consequence of the current event, at the same moment.
enum Work {
    Event(NodeId, NetEvent),
    Effect(NodeId, NetEffect),
    Arrival(NodeId, Arrival),
    Stop(NodeId),
    /// The process has ended after a stop.
    End(NodeId),
}

impl Work {
    fn node(&self) -> NodeId {
        let (Work::Event(node, _)
        | Work::Effect(node, _)
        | Work::Arrival(node, _)
        | Work::Stop(node)
        | Work::End(node)) = self;
        *node
    }
}

#[derive(Debug)]
enum Event {
    Arrival(Arrival),
    Start(NodeId),
    Stop(NodeId, Duration),
    /// The process runs again.
    Resume(NodeId),
    /// The monitor joins anew, if it was taken out.
    Rejoin(NodeId),
    /// All PGs are repaired.
    Repair,
}

impl World {
    pub fn with_messages(seed: u64) -> World {
        World::new(seed, Network::Messages(MessageNetwork::default()))
    }

    /// A world with session machines. `config` configures each node's endpoint.
    pub fn with_bytes(seed: u64, config: impl Fn(NodeId, Life) -> messenger::Config + 'static) -> World {
        let config: EndpointConfig = Box::new(config);
        World::new(seed, Network::Bytes(Box::new(BytesNetwork::new(config))))
    }

    fn new(seed: u64, network: Network) -> World {
        // Not zero: machines use zero for "never".
        let now = Time(1_000_000_000);
        World {
            now,
            true_time: Rc::new(now.into()),
            nodes: Vec::new(),
            stations: Vec::new(),
            wakes: Vec::new(),
            network,
            weather: Weather::default(),
            network_random: stream(seed, "network"),
            seed,
            ambushes: BTreeMap::new(),
            merge_ambush: None,
            pauses: BTreeMap::new(),
            stops: BTreeMap::new(),
            starts: BTreeMap::new(),
            dead: BTreeSet::new(),
            queue: BTreeMap::new(),
            queued: 0,
            trace: Trace::default(),
            work: VecDeque::new(),
            acks: Vec::new(),
            watch: None,
            monitors: Vec::new(),
            elections: None,
            leaving: None,
            is_calm: false,
            away: BTreeMap::new(),
            osds: Vec::new(),
            damaged: Damaged::default(),
            wants_repairs: false,
            merges: BTreeSet::new(),
            left_alone: LeftAlone::default(),
            rest: None,
            moves: None,
            finding: None,
        }
    }

    pub fn set_notes(&mut self, notes: Notes) {
        self.trace.set_notes(notes);
    }

    /// Adds a node that is down. `wall` is its wall clock.
    pub fn add(&mut self, node: Box<dyn Node>, wall: WallClock) -> NodeId {
        self.stations.push(Station {
            name: node.name(),
            addrs: node.addrs(),
            cores: node.cores(),
            judges: node.judges(),
            is_up: false,
            is_paused: false,
            life: 0,
            clock: Clock::new(wall),
        });
        self.nodes.push(node);
        self.wakes.push(None);
        NodeId(self.nodes.len() - 1)
    }

    pub fn start(&mut self, node: NodeId) {
        self.put(self.now, Event::Start(node));
    }

    /// Inconsistencies on the disks of running nodes. Only at the end of a run: the nodes cannot continue.
    pub fn examine(&mut self) -> Vec<String> {
        let up = self.nodes.iter_mut().zip(&self.stations).filter(|(_, station)| station.is_up);
        up.filter_map(|(node, _)| node.examine().err().map(|why| format!("{}: {why}", node.name()))).collect()
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn true_time(&self) -> TrueTime {
        self.true_time.clone()
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    pub fn coverage(&self) -> &Coverage {
        self.trace.coverage()
    }

    /// The PGs of every running OSD, at this moment.
    pub fn sights(&self, look: Look) -> Sights {
        let running = self.nodes.iter().zip(&self.stations).filter(|(_, station)| station.is_up);
        running.flat_map(|(node, station)| node.pg_sights(station.clock.local(self.now), look)).collect()
    }

    /// From now on the copies of all PGs are checked. The run ends at the first finding.
    pub fn watch_copies(&mut self, osds: &[NodeId]) {
        self.osds = osds.to_vec();
        self.watch = Some(Watch::default());
    }

    /// From now on these monitors are checked. The run ends at the first finding.
    pub fn watch_monitors(&mut self, monitors: &[NodeId]) {
        self.monitors = monitors.to_vec();
        self.elections = Some(Elections::default());
    }

    /// The monitors that run.
    pub fn monitor_sights(&self) -> Vec<MonitorSight> {
        let sight = |node: &NodeId| {
            let standing = self.nodes[node.0].monitor()?.standing();
            Some(MonitorSight { node: *node, standing, is_paused: self.pauses.contains_key(node) })
        };
        self.monitors.iter().filter_map(sight).collect()
    }

    /// A machine of [`World::monitor_sights`].
    pub fn monitor(&self, node: NodeId) -> Option<&Monitor> {
        self.nodes[node.0].monitor()
    }

    /// Members of the monitors' log whose disks exist, running or not.
    pub fn members_on_disks(&self) -> BTreeMap<NodeId, u64> {
        let member = |node: &NodeId| Some((*node, self.nodes[node.0].member_on_disk()?));
        self.monitors.iter().filter_map(member).collect()
    }

    /// Open commands of operators, with their begin in the world's time.
    pub fn open_commands(&self) -> Vec<(NodeId, OpenCommand)> {
        let open = |index: usize| {
            let open = self.nodes[index].open_command()?;
            let since = self.stations[index].clock.world(open.since);
            Some((NodeId(index), OpenCommand { since, ..open }))
        };
        (0..self.nodes.len()).filter_map(open).collect()
    }

    /// The monitor that an administrator may have taken out.
    pub fn leaving_monitor(&self) -> Option<NodeId> {
        self.leaving.map(|(node, _)| node)
    }

    /// The monitor that leads. Of two, one does not know yet that it does no more.
    pub fn leading_monitor(&self) -> Option<MonitorSight> {
        let leading = self.monitor_sights().into_iter().filter(|sight| sight.standing.is_leading);
        leading.max_by_key(|sight| sight.standing.term)
    }

    /// Empties the disk of a monitor that is no member any more, and starts it. If the removal was refused, nothing happens.
    fn rejoin(&mut self, node: NodeId) {
        const AGAIN_AFTER: Duration = Duration::from_secs(5);
        let Some((_, admin)) = self.leaving.filter(|(leaving, _)| *leaving == node) else { return };
        let place = self.monitors.iter().position(|monitor| *monitor == node).expect("it was removed");
        let member = self.nodes[node.0].member_on_disk();
        let leader = self.leading_monitor();
        let is_member =
            leader.map(|sight| member.is_some_and(|member| sight.standing.members.contains(member)));
        match is_member.filter(|_| self.has_decided(place, admin)) {
            Some(false) => {
                self.leaving = None;
                self.crash(node, Death::Process, Duration::from_millis(500));
                self.nodes[node.0].lose_disk();
            }
            Some(true) => self.leaving = None,
            None if self.is_calm => {}
            None => self.put(self.now + AGAIN_AFTER, Event::Rejoin(node)),
        }
    }

    /// No monitor is about to leave, and the administrator has no command left that would change that.
    fn has_decided(&self, place: usize, admin: NodeId) -> bool {
        let leader = self.leading_monitor().and_then(|sight| self.monitor(sight.node));
        let is_leaving = leader.is_none_or(|leader| leader.state().members.is_leaving(Monitors::name(place)));
        !is_leaving && !self.nodes[admin.0].has_to_do(&Monitors::removal(place))
    }

    /// Moments at which an undisturbed majority of the monitors was seen.
    pub fn elections_checked(&self) -> u64 {
        self.elections.as_ref().map_or(0, Elections::checked)
    }

    fn check_monitors(&mut self) {
        if !self.elections.as_mut().is_some_and(|elections| elections.is_due(self.now)) {
            return;
        }
        let running = self.monitor_sights();
        let waiting: Vec<(NodeId, Time)> =
            self.open_commands().into_iter().map(|(node, open)| (node, open.since)).collect();
        let Some(elections) = &mut self.elections else { return };
        let checked = elections.check(self.now, &running, &waiting);
        self.finding = self.finding.take().or(checked.err());
    }

    /// Something holds up these nodes until then.
    fn disturb(&mut self, nodes: impl IntoIterator<Item = NodeId>, until: Time) {
        if let Some(elections) = &mut self.elections {
            nodes.into_iter().for_each(|node| elections.disturb(node, until));
        }
    }

    /// The first broken invariant of the copies of a PG, or of the monitors, since the last call.
    pub fn take_finding(&mut self) -> Option<Finding> {
        self.finding.take()
    }

    /// Checks acknowledgements, and at intervals the roles and logs of all copies.
    fn check_copies(&mut self) {
        let acks = std::mem::take(&mut self.acks);
        let Some(watch) = &mut self.watch else { return };
        let look = watch.due(self.now);
        let acknowledged = acks.into_iter().try_for_each(|ack| {
            let checked = copies::acknowledged::check(ack, &self.sights(Look::Pg(ack.pg)));
            checked.map_err(|words| (Promise::OnEveryMember, words))
        });
        let looked = look.map_or(Ok(()), |look| {
            let sights = self.sights(look);
            copies::check(&sights)?;
            let blame = copies::scrub_blame::check(&sights, &self.damaged);
            blame.map_err(|words| (Promise::ScrubsBlameDamage, words))?;
            self.look_at_rest_and_moves(&sights)
        });
        let mapped = look.map_or(Ok(()), |_| {
            self.note_merges();
            self.look_at_maps().map_err(|words| (Promise::LeftAlone, words))
        });
        self.finding = self.finding.take().or(acknowledged.and(looked).and(mapped).err());
    }

    /// From `from` to `until` nothing may change. The run ends at the first finding.
    pub fn watch_rest(&mut self, from: Time, until: Time) {
        self.rest = Some(StandingStill::new(from, until));
    }

    /// From `from` each PG keeps min_size complete copies, and moves of copies are counted.
    pub fn watch_moves(&mut self, from: Time) {
        self.moves = Some((from, Moves::default()));
    }

    pub fn moves(&self) -> Option<MoveFigures> {
        self.moves.as_ref().map(|(_, moves)| moves.figures())
    }

    pub fn looks_at_rest(&self) -> u64 {
        self.rest.as_ref().map_or(0, StandingStill::looks)
    }

    fn look_at_rest_and_moves(&mut self, sights: &Sights) -> Result<(), Finding> {
        if self.rest.is_none() && self.moves.is_none() {
            return Ok(());
        }
        let maps = self.nodes.iter().filter_map(|node| Some(node.monitor()?.state().osdmap()));
        let Some(map) = maps.max_by_key(|map| map.epoch) else { return Ok(()) };
        let copied = self.nodes.iter().map(|node| node.objects_copied()).sum();
        if let Some(rest) = &mut self.rest {
            let found = rest.look(self.now, map, sights, copied);
            found.map_err(|words| (Promise::StandsStill, words))?;
        }
        if let Some((from, moves)) = &mut self.moves
            && *from <= self.now
        {
            moves.look(map, sights, copied).map_err(|words| (Promise::KeepsMinSize, words))?;
        }
        Ok(())
    }

    fn look_at_maps(&mut self) -> Result<(), String> {
        for map in self.nodes.iter().filter_map(|node| Some(node.monitor()?.state().osdmap())) {
            self.left_alone.look(map)?;
        }
        Ok(())
    }

    fn note_merges(&mut self) {
        let maps = self.nodes.iter().filter_map(|node| Some(node.monitor()?.state().osdmap()));
        let merged = maps.flat_map(|map| &map.pools).map(|(id, pool)| (*id, pool.last_pg_merge.ready_epoch));
        self.merges.extend(merged.filter(|(_, epoch)| *epoch > 0));
    }

    /// Merges of PGs so far.
    pub fn merges(&self) -> u64 {
        self.merges.len() as u64
    }

    /// Compares the copies of every PG, and returns what damage has taken from all of them. Only at the end of a run.
    pub fn compare_replicas(&mut self) -> Result<Lost, Finding> {
        let sights = self.sights(Look::Roles);
        let running = self.nodes.iter_mut().zip(&self.stations).filter(|(_, station)| station.is_up);
        let contents = running.filter_map(|(node, _)| node.contents()).collect();
        let lost = copies::damage::lost(&sights, &contents);
        let compared = copies::replicas_equal::check(&sights, &contents, &lost);
        compared.map_err(|words| (Promise::ReplicasEqual, words))?;
        let mut running = self.nodes.iter_mut().zip(&self.stations).filter(|(_, station)| station.is_up);
        match running.find_map(|(node, _)| node.index_gap()) {
            Some(words) => Err((Promise::SnapshotsIndexed, words)),
            None => Ok(lost),
        }
    }

    /// The node was started at least once.
    pub fn has_started(&self, node: NodeId) -> bool {
        self.stations[node.0].life > 0
    }

    pub fn is_up(&self, node: NodeId) -> bool {
        self.stations[node.0].is_up
    }

    fn put(&mut self, at: Time, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    /// Runs for `span`.
    pub fn run(&mut self, span: Duration) {
        self.run_until(self.now + span, || true);
    }

    /// Runs until `end`, or until `go_on` returns false after an event.
    pub fn run_until(&mut self, end: Time, go_on: impl Fn() -> bool) {
        while self.step(end) {
            if !go_on() || self.finding.is_some() {
                return;
            }
        }
        self.set_now(end);
    }

    fn set_now(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.true_time.set(self.now);
    }

    /// Executes the next event, if there is one until `end`.
    fn step(&mut self, end: Time) -> bool {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let woken = self.wakes.iter().enumerate().filter_map(|(i, at)| Some(((*at)?, i))).min();
        let sessions = self.network.next_deadline(&self.stations);
        let earliest = Time::earliest(queued, Time::earliest(woken.map(|(at, _)| at), sessions));
        let Some(at) = earliest.filter(|at| *at <= end) else { return false };
        self.set_now(at);
        if queued == Some(at) {
            let (_, event) = self.queue.pop_first().expect("its time was just read");
            self.happen(event);
        } else if let Some((_, node)) = woken.filter(|(t, _)| *t == at) {
            self.trace.event(self.now, node, "wake", &[]);
            self.with_node(NodeId(node), |node, now, out| node.wake(now, out));
        } else {
            self.with_network(|network, cx| network.deadline(cx));
        }
        self.settle();
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(arrival) => {
                if let Some(node) = self.network.destination(&arrival) {
                    self.work.push_back(Work::Arrival(node, arrival));
                }
            }
            Event::Start(node) => {
                let station = &mut self.stations[node.0];
                if station.is_up || self.dead.contains(&node) {
                    return;
                }
                self.starts.remove(&node);
                station.is_up = true;
                station.life += 1;
                let life = station.life;
                self.disturb([node], self.now);
                self.trace.event(self.now, node.0, "start", &life.to_le_bytes());
                self.trace.note(|| format!("{:?} {node:?} starts, life {life}", self.now));
                self.with_network(|network, cx| network.started(cx, node));
                self.with_node(node, |node, now, out| node.start(now, out));
                self.stations[node.0].addrs = self.nodes[node.0].addrs();
                if let Some((admin, osd)) = self.away.remove(&node) {
                    self.order(admin, Command::OsdIn(osd));
                }
            }
            Event::Stop(node, down_for) => {
                self.stop(node, Stop { down_for, again_after: None });
            }
            Event::Rejoin(node) => self.rejoin(node),
            Event::Repair => {
                let wish = ScrubWish { is_deep: true, is_repair: true, is_asked: true };
                let runs = |node: &NodeId| !self.pauses.contains_key(node);
                let osds: Vec<NodeId> = self.osds.iter().copied().filter(runs).collect();
                for node in osds {
                    self.with_node(node, |node, now, out| {
                        node.scrub(now, None, wish, out);
                    });
                }
            }
            Event::Resume(node) => {
                let Some(pause) = self.pauses.get(&node).filter(|pause| pause.until <= self.now) else {
                    return;
                };
                self.trace.event(self.now, node.0, "resumed", &[]);
                debug_assert!(pause.steps_left == 0 || pause.waiting.is_empty());
                let pause = self.pauses.remove(&node).expect("just seen");
                self.work.extend(pause.waiting);
                self.stations[node.0].is_paused = false;
                self.look_at_clock(node);
            }
        }
    }

    pub fn fault(&mut self, fault: Fault) -> bool {
        self.trace.event(self.now, 0, "fault", format!("{fault:?}").as_bytes());
        self.trace.note(|| format!("{:?} fault {fault:?}", self.now));
        let has_happened = self.inject(fault);
        let osds = &self.osds;
        let osd = |node| osds.iter().position(|osd| *osd == node).map(|at| OsdId(at as i32));
        self.damaged.note(fault, osd);
        self.settle();
        has_happened
    }

    /// Injects a fault. False if it met no target.
    fn inject(&mut self, fault: Fault) -> bool {
        let now = self.now;
        if self.elections.is_some()
            && let Some((nodes, lasts)) = fault.holds_up()
        {
            let everybody = || (0..self.nodes.len()).map(NodeId).collect::<Vec<NodeId>>();
            let nodes = nodes.map_or_else(everybody, |nodes| nodes.iter().collect());
            self.disturb(nodes, now + lasts);
        }
        let is_up = |node: NodeId| self.stations[node.0].is_up;
        match fault {
            Fault::Reset { pick } => {
                let mut was_broken = false;
                self.with_network(|network, cx| was_broken = network.break_one(cx, pick));
                return was_broken;
            }
            Fault::Crash { node, death, down_for } => return self.crash(node, death, down_for),
            Fault::CrashWriting { node, death, within, down_for } => {
                self.ambushes.insert(node, Ambush { until: now + within, death, down_for });
            }
            Fault::CrashAtMerge { nodes, within, down_for } => {
                self.note_merges();
                let merges_before = self.merges.len();
                self.merge_ambush = Some(MergeAmbush { nodes, until: now + within, down_for, merges_before });
            }
            Fault::Blackout { nodes, death, down_max, loses } => {
                let mut dice = stream(self.seed ^ self.queued, "blackout");
                for node in nodes.iter() {
                    let down_for = Duration::from_millis(dice.below(1 + down_max.as_millis() as u64));
                    if self.crash(node, death, down_for) && loses == Some(node) {
                        self.nodes[node.0].lose_disk();
                    }
                }
            }
            Fault::Kill { node } => {
                self.dead.insert(node);
                return self.crash(node, Death::Process, Duration::ZERO);
            }
            Fault::Stop { node, down_for, again_after } => {
                return self.stop(node, Stop { down_for, again_after });
            }
            Fault::LoseDisk { node, down_for } => {
                if !self.crash(node, Death::Process, down_for) {
                    return false;
                }
                self.nodes[node.0].lose_disk();
            }
            Fault::SlowDisk { node, slow_for } => {
                let until = self.local(node, now + slow_for);
                self.nodes[node.0].slow_disk(until);
            }
            Fault::StallDisk { node, stalled_for } => {
                let until = self.local(node, now + stalled_for);
                self.nodes[node.0].stall_disk(until);
            }
            Fault::HangCore { node, pick, hangs_for } => {
                let until = self.local(node, now + hangs_for);
                let has_hung = is_up(node) && self.nodes[node.0].hang_core(pick, until);
                self.look_at_clock(node);
                return has_hung;
            }
            Fault::FlipBit { node } => return is_up(node) && self.nodes[node.0].flip_bit(),
            Fault::FlipTwins { node } => return is_up(node) && self.nodes[node.0].flip_twins(),
            Fault::FailReads { node, fails_for } => {
                let until = self.local(node, now + fails_for);
                return is_up(node) && self.nodes[node.0].fail_reads(until);
            }
            Fault::ResetDisk { node, lasts } => {
                let (begin, until) = (self.local(node, now), self.local(node, now + lasts));
                return is_up(node) && self.nodes[node.0].reset_disk(begin, until);
            }
            Fault::FillDisk { node, full_for } => {
                let until = self.local(node, now + full_for);
                let has_filled = is_up(node) && self.nodes[node.0].fill_disk(until);
                self.look_at_clock(node);
                return has_filled;
            }
            Fault::Isolate { node, lasts } => self.weather.isolate(node, now + lasts),
            Fault::Partition { from, to, both_ways, lasts } => {
                if from == to {
                    return false;
                }
                self.weather.partition(from, to, now + lasts);
                if both_ways {
                    self.weather.partition(to, from, now + lasts);
                }
            }
            Fault::Divide { from, to, both_ways, lasts } => {
                for (one, other) in from.iter().flat_map(|one| to.iter().map(move |other| (one, other))) {
                    self.weather.partition(one, other, now + lasts);
                    if both_ways {
                        self.weather.partition(other, one, now + lasts);
                    }
                }
            }
            Fault::Chain { order, lasts } => {
                let order: Vec<NodeId> = order.iter().collect();
                for (place, one) in order.iter().enumerate() {
                    for other in order.iter().skip(place + 2) {
                        self.weather.partition(*one, *other, now + lasts);
                        self.weather.partition(*other, *one, now + lasts);
                    }
                }
            }
            Fault::Remove { admin, node, back_after } => {
                let Some(place) = self.monitors.iter().position(|monitor| *monitor == node) else {
                    return false;
                };
                if !is_up(admin) {
                    return false;
                }
                self.leaving = Some((node, admin));
                self.with_node(admin, |node, now, _| node.command(now, Monitors::removal(place)));
                self.put(now + back_after, Event::Rejoin(node));
            }
            Fault::Join { node } => {
                if self.stations[node.0].life > 0 {
                    return false;
                }
                self.start(node);
            }
            Fault::SlowNetwork { delay_max, slow_for } => self.weather.slow_down(delay_max, now + slow_for),
            Fault::Pause { node, after_steps, paused_for } => {
                if !is_up(node) || self.pauses.contains_key(&node) {
                    return false;
                }
                let until = now + paused_for;
                let pause = Pause { steps_left: after_steps, until, waiting: VecDeque::new() };
                self.pauses.insert(node, pause);
                self.put(until, Event::Resume(node));
                self.look_at_clock(node);
            }
            Fault::Away { node, admin, osd, down_for } => {
                if !self.crash(node, Death::Process, down_for) {
                    return false;
                }
                self.away.insert(node, (admin, osd));
                self.order(admin, Command::OsdOut(osd));
            }
            Fault::Scrub { node, pick, wish } => {
                self.wants_repairs = true;
                if !is_up(node) || self.pauses.contains_key(&node) {
                    return false;
                }
                let mut is_ordered = false;
                self.with_node(node, |node, now, out| is_ordered = node.scrub(now, Some(pick), wish, out));
                return is_ordered;
            }
            Fault::SpoilCopy { node } => {
                self.wants_repairs = true;
                return is_up(node) && self.nodes[node.0].spoil_copy();
            }
            Fault::ClockRate { node, rate_ppm } => {
                self.stations[node.0].clock.set_rate(now, rate_ppm);
                self.look_at_clock(node);
            }
            Fault::WallJump { node, offset_ms } => {
                self.stations[node.0].clock.set_wall_offset(offset_ms * 1_000_000);
            }
            Fault::Command { node, command } => {
                if !is_up(node) {
                    return false;
                }
                self.left_alone.begin_anew();
                self.order(node, command);
            }
        }
        true
    }

    /// Gives a command to an administrator who is up.
    fn order(&mut self, admin: NodeId, command: Command) {
        for text in command.texts() {
            self.with_node(admin, |node, now, _| node.command(now, text));
        }
    }

    /// Ends partitions and long absences, corrects the wall clocks, and tells every node that the last fault has struck.
    pub fn calm(&mut self) {
        (self.is_calm, self.merge_ambush) = (true, None);
        self.weather.calm();
        let soon = self.now + ABSENCE_MAX;
        let away: Vec<NodeId> =
            self.starts.iter().filter(|(_, at)| **at > soon).map(|(node, _)| *node).collect();
        away.into_iter().for_each(|node| self.put(soon, Event::Start(node)));
        self.stations.iter_mut().for_each(|station| station.clock.set_wall_offset(0));
        for node in (0..self.nodes.len()).map(NodeId) {
            self.with_node(node, |node, now, _| node.calm(now));
        }
        if self.wants_repairs {
            REPAIRS_AFTER_S
                .iter()
                .for_each(|after| self.put(self.now + Duration::from_secs(*after), Event::Repair));
        }
        self.settle();
    }

    /// Answers to `ceph status` after the last fault, with the world's time, or the reason for which the cluster was not set
    /// up. `None` without an administrator.
    pub fn statuses(&self) -> Option<Result<Vec<StatusSight>, String>> {
        let mut asked = self.nodes.iter().zip(&self.stations);
        let (statuses, station) = asked.find_map(|(node, station)| Some((node.statuses()?, station)))?;
        let at_world =
            |status: &StatusSight| StatusSight { at: station.clock.world(status.at), ..status.clone() };
        Some(statuses.map(|all| all.iter().map(at_world).collect()).map_err(str::to_owned))
    }

    fn local(&self, node: NodeId, at: Time) -> Time {
        self.stations[node.0].clock.local(at)
    }

    /// Kills a process. False if it was dead.
    fn crash(&mut self, node: NodeId, death: Death, down_for: Duration) -> bool {
        if !self.stations[node.0].is_up {
            return false;
        }
        self.pauses.remove(&node);
        self.stops.remove(&node);
        self.trace.forget_states(node);
        self.with_network(|network, cx| network.died(cx, node));
        self.disturb([node], self.now + down_for);
        let station = &mut self.stations[node.0];
        (station.is_up, station.is_paused) = (false, false);
        let mut dice = stream(self.seed ^ u64::from(station.life) << 8 ^ node.0 as u64, "crash");
        let now = station.clock.local(self.now);
        self.nodes[node.0].crash(now, death, &mut dice);
        self.wakes[node.0] = None;
        self.put(self.now + down_for, Event::Start(node));
        self.starts.insert(node, self.now + down_for);
        true
    }

    /// Asks a process to stop. False if it is dead or stops already.
    fn stop(&mut self, node: NodeId, stop: Stop) -> bool {
        if !self.stations[node.0].is_up || self.stops.contains_key(&node) {
            return false;
        }
        self.trace.event(self.now, node.0, "stop", &[]);
        self.trace.note(|| format!("{:?} {node:?} is asked to stop", self.now));
        self.stops.insert(node, stop);
        self.work.push_back(Work::Stop(node));
        true
    }

    /// Ends a process that has stopped. Its machine then loses power, because a clean stop leaves nothing unflushed.
    fn end(&mut self, node: NodeId) {
        if let Some(Stop { down_for, again_after }) = self.stops.get(&node).copied() {
            self.trace.event(self.now, node.0, "ended", &[]);
            self.trace.note(|| format!("{:?} {node:?} has ended", self.now));
            self.crash(node, Death::Power, down_for);
            if let Some(after) = again_after {
                self.put(self.now + down_for + after, Event::Stop(node, down_for));
            }
        }
    }

    /// Executes the ambushes of nodes that are writing.
    fn spring_ambushes(&mut self) {
        if self.ambushes.is_empty() {
            return;
        }
        let now = self.now;
        self.ambushes.retain(|_, ambush| now < ambush.until);
        let writes = |node: &NodeId| self.stations[node.0].is_up && self.nodes[node.0].is_writing();
        let caught: Vec<NodeId> = self.ambushes.keys().copied().filter(writes).collect();
        for node in caught {
            let Ambush { death, down_for, .. } = self.ambushes.remove(&node).expect("just listed");
            self.trace.event(now, node.0, "crashes while it writes", &[]);
            self.trace.note(|| format!("{now:?} {node:?} crashes while it writes"));
            self.crash(node, death, down_for);
        }
    }

    fn spring_merge_ambush(&mut self) {
        /// Time to the start of those that were down.
        const START_AFTER: Duration = Duration::from_millis(100);
        let now = self.now;
        let Some(ambush) = self.merge_ambush.filter(|ambush| now < ambush.until) else {
            self.merge_ambush = None;
            return;
        };
        self.note_merges();
        if self.merges.len() == ambush.merges_before {
            return;
        }
        self.merge_ambush = None;
        self.trace.event(now, 0, "crash at a merge", &[]);
        self.trace.note(|| format!("{now:?} the OSDs crash at a merge"));
        for node in ambush.nodes.iter() {
            if self.starts.contains_key(&node) {
                self.put(now + START_AFTER, Event::Start(node));
            } else {
                self.crash(node, Death::Process, ambush.down_for);
            }
        }
    }

    fn with_node(&mut self, id: NodeId, f: impl FnOnce(&mut dyn Node, Time, &mut Vec<NetEffect>)) {
        let station = &mut self.stations[id.0];
        if !station.is_up {
            return;
        }
        let node = &mut self.nodes[id.0];
        let mut out = Vec::new();
        f(node.as_mut(), station.clock.local(self.now), &mut out);
        node.check();
        self.acks.append(&mut node.take_acks());
        station.name = node.name();
        self.trace.states(Source::Node(id), |see| node.states(see));
        self.work.extend(out.into_iter().map(|effect| Work::Effect(id, effect)));
        if self.stops.contains_key(&id) && node.has_ended() {
            self.work.push_back(Work::End(id));
        }
        if let Some(pause) = self.pauses.get_mut(&id) {
            pause.steps_left = pause.steps_left.saturating_sub(1);
        }
        self.look_at_clock(id);
    }

    /// Updates the node's next wake. A stopped process has none.
    fn look_at_clock(&mut self, id: NodeId) {
        let station = &mut self.stations[id.0];
        station.is_paused = self.pauses.get(&id).is_some_and(|pause| pause.steps_left == 0);
        let goes_on = station.is_up && !station.is_paused;
        let wake = goes_on.then(|| self.nodes[id.0].next_wake()).flatten();
        self.wakes[id.0] = wake.map(|at| station.clock.world(at).max(self.now));
    }

    /// Calls the network with its context.
    fn with_network(&mut self, f: impl FnOnce(&mut Network, &mut Cx<'_>)) {
        let mut schedule = Vec::new();
        let mut events = VecDeque::new();
        let mut cx = Cx {
            now: self.now,
            random: &mut self.network_random,
            weather: &mut self.weather,
            stations: &self.stations,
            trace: &mut self.trace,
            schedule: &mut schedule,
            events: &mut events,
        };
        f(&mut self.network, &mut cx);
        for (at, arrival) in schedule {
            self.put(at, Event::Arrival(arrival));
        }
        self.work.extend(events.into_iter().map(|(node, event)| Work::Event(node, event)));
    }

    /// Delivers events to nodes and effects to the network until none is left.
    fn settle(&mut self) {
        self.carry();
        self.check_copies();
        self.check_monitors();
        self.spring_ambushes();
        self.spring_merge_ambush();
        self.carry();
    }

    fn carry(&mut self) {
        while let Some(work) = self.work.pop_front() {
            let paused = self.pauses.get_mut(&work.node()).filter(|pause| pause.steps_left == 0);
            if let Some(pause) = paused {
                pause.waiting.push_back(work);
                continue;
            }
            match work {
                Work::Event(node, event) => {
                    self.with_node(node, |node, now, out| node.on_net(now, event, out))
                }
                Work::Effect(node, effect) => {
                    self.with_network(|network, cx| network.effect(cx, node, effect))
                }
                Work::Arrival(_, arrival) => self.with_network(|network, cx| network.arrive(cx, arrival)),
                Work::Stop(node) => self.with_node(node, |node, now, out| node.stop(now, out)),
                Work::End(node) => self.end(node),
            }
        }
    }
}
