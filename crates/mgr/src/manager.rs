//! The manager as a machine: a session with the monitor, reports from daemons, commands from clients.

mod asked;
mod autoscaling;
mod balancing;
mod crash_store;
mod images;
mod shrinking;
mod stopping;

use crate::caps::Caps;
use crate::configs::Configs;
use crate::daemon_counters::DaemonCounters;
use crate::metrics::{self, Page};
use crate::options::MgrOptions;
use crate::progress::ProgressEvents;
use crate::services::{Origin, Services};
use crate::{PgMap, descriptions};
use asked::{Caller, Form, Relay};
use codec::Encode;
use command::options::Layers;
use command::options::report::Reported;
use command::{Answer, object};
pub use images::{ImagesNews, ImagesOrder, May};
use machine::gate::{Gate, Refused};
use machine::identity::Capabilities;
use machine::net::{NetEffect, NetEvent, Peer};
use machine::{ConnId, Effects, Machine, Random, Time, WallClock};
use mon_client::osd_maps::{self, Damaged, Progress, Verify};
use mon_client::{MonSession, RequestId, TimedOut};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stopping::Stopping;
use wire::messages::{
    Body, MMgrBeacon, MMgrClose, MMgrConfigure, MMgrOpen, MMgrReport, MMonMgrReport, MOSDMap, MPGStats,
    Message, MessageBody, PaxosHeader,
};
use wire::types::{EntityAddrVec, EntityKind, HealthChecks, MetricReport, OsdMap, UTime};

#[derive(Clone, Debug)]
pub struct Config {
    /// The part after `mgr.`.
    pub name: String,
    pub monitors: mon_client::Config,
    /// Where daemons and clients reach us.
    pub addrs: EntityAddrVec,
    /// Metadata that the monitor keeps (`ceph mgr metadata`).
    pub metadata: BTreeMap<String, String>,
    /// Addresses for people, by name (`ceph mgr services`): `prometheus` is the metrics page.
    pub services: BTreeMap<String, String>,
    /// The manager's configuration so far. From the start on the machine owns it.
    pub options: Layers,
    pub timing: Timing,
}

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Delay of a report to the monitor after news.
    pub digest: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { digest: Duration::from_millis(500) }
    }
}

/// Services that a manager needs tickets for.
pub const SERVICES: u32 = EntityKind::MGR.0 as u32;

#[derive(Debug)]
pub enum Input {
    Net(NetEvent),
    /// [`Machine::next_deadline`] has passed. `wall` is the wall clock's time.
    Deadline {
        wall: UTime,
    },
    /// The answer to [`ImagesOrder::Command`].
    ImagesAnswer {
        number: u64,
        answer: Answer,
    },
    ImagesNews(ImagesNews),
    /// The process is to end. [`Effect::Stopped`] follows.
    Stop,
}

#[derive(Debug)]
// Effects are moved once, into the host; a box would cost more than the move.
#[allow(clippy::large_enum_variant)]
pub enum Effect {
    Net(NetEffect),
    /// Something that an operator should read.
    Warn(String),
    /// For the host's work on block images.
    Images(ImagesOrder),
    /// The end of [`Input::Stop`].
    Stopped,
}

/// See the module.
pub struct Manager {
    config: Config,
    clock: WallClock,
    session: MonSession,
    map: Option<Arc<OsdMap>>,
    pg_map: PgMap,
    progress: ProgressEvents,
    peers: BTreeMap<ConnId, Reporter>,
    services: Services,
    crash_store: crash_store::CrashStore,
    balancing: balancing::Balancing,
    shrinking: shrinking::Shrinking,
    autoscaling: autoscaling::Autoscaling,
    images: images::Images,
    /// Commands that wait for the monitor's answer.
    relays: BTreeMap<RequestId, Relay>,
    gate: Gate,
    layers: Layers,
    /// As [`Manager::layers`] had them at the revision `options_seen`.
    options: MgrOptions,
    options_seen: u64,
    configs: Configs,
    /// The question to the monitor for its own configuration.
    mon_config_asked: Option<RequestId>,
    mon_config_at: Time,
    beacon_at: Time,
    /// When the monitor is told what is new; `None` when nothing is.
    digest_at: Option<Time>,
    /// The manager map names this manager.
    is_active: bool,
    /// The manager map has other managers.
    has_others: bool,
    stopping: Stopping,
}

/// A peer that connected to us.
struct Reporter {
    peer: Peer,
    caps: Caps,
    /// The daemon that it reports as, once it has opened a report: `osd.3`.
    daemon: Option<String>,
    /// Its service and name there, when it is a service's: `rgw` and `4123`.
    service: Option<(String, String)>,
    counters: DaemonCounters,
}

type Fx<'a> = &'a mut Effects<Effect>;

/// No interval between beacons or reports is shorter.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

impl Manager {
    pub fn new(config: Config, now: Time, wall: UTime, mut random: Random, fx: Fx<'_>) -> Manager {
        let session = MonSession::new(config.monitors.clone(), 0, random.fork());
        let mut layers = config.options.clone();
        layers.run();
        let mut manager = Manager {
            options: MgrOptions::read(&layers),
            // Behind, so that the first step acts on all of them.
            options_seen: layers.revision().wrapping_sub(1),
            layers,
            configs: Configs::default(),
            mon_config_asked: None,
            mon_config_at: now,
            config,
            clock: WallClock::new(now, wall),
            session,
            map: None,
            pg_map: PgMap::default(),
            progress: ProgressEvents::new(random),
            peers: BTreeMap::new(),
            services: Services::default(),
            crash_store: crash_store::CrashStore::default(),
            balancing: balancing::Balancing::new(now),
            shrinking: shrinking::Shrinking::new(now),
            autoscaling: autoscaling::Autoscaling::new(now),
            images: images::Images::default(),
            relays: BTreeMap::new(),
            gate: Gate::new(EntityKind::MGR),
            beacon_at: now,
            digest_at: None,
            is_active: false,
            has_others: false,
            stopping: Stopping::default(),
        };
        manager.with_session(now, fx, |session, fx| {
            session.subscribe("monmap", 0, fx);
            session.subscribe("osdmap", 0, fx);
            session.subscribe("config", 0, fx);
            session.subscribe("mgrmap", 0, fx);
            session.start(now, fx);
        });
        manager
    }

    pub fn pg_map(&self) -> &PgMap {
        &self.pg_map
    }

    /// The manager map names this manager.
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// The manager's part of the Prometheus page; only `ceph_mgr_status` while another manager is active.
    pub fn metrics(&self) -> String {
        let mut page = Page::default();
        let daemon = format!("mgr.{}", self.config.name);
        page.family("ceph_mgr_status", "gauge", "MGR status (0=standby, 1=active)");
        page.sample("ceph_mgr_status", &[("ceph_daemon", &daemon)], u8::from(self.is_active));
        if self.is_active {
            let reporters = self.peers.values();
            let daemons = reporters.filter_map(|r| Some((r.daemon.as_deref()?, &r.counters)));
            let by_name: BTreeMap<&str, &DaemonCounters> = daemons.collect();
            metrics::write(&mut page, &self.pg_map, by_name.into_iter());
        }
        page.into_text()
    }

    /// Let the monitor session act, and deal with what it says.
    fn with_session(
        &mut self,
        now: Time,
        fx: Fx<'_>,
        act: impl FnOnce(&mut MonSession, &mut Effects<mon_client::Effect>),
    ) {
        let mut effects = Effects::new();
        act(&mut self.session, &mut effects);
        // Events may make the session act again; each is dealt with in the order it came.
        for effect in effects.take() {
            match effect {
                mon_client::Effect::Net(effect) => fx.push(Effect::Net(effect)),
                mon_client::Effect::Event(event) => self.on_session(now, event, fx),
            }
        }
    }

    fn on_session(&mut self, now: Time, event: mon_client::Event, fx: Fx<'_>) {
        match event {
            mon_client::Event::Connected { .. } => {
                self.send_beacon(now, fx);
                self.read_crashes(now, fx);
            }
            mon_client::Event::OsdMap(message) => self.on_osd_map(now, &message, fx),
            mon_client::Event::Denied(why) => {
                fx.push(Effect::Warn(format!("the monitor refuses mgr.{}: {why}", self.config.name)));
            }
            mon_client::Event::Config(values) => {
                for problem in self.layers.set_monitor(&values) {
                    fx.push(Effect::Warn(format!("configuration from the monitor: {problem}")));
                }
            }
            mon_client::Event::Answer { id, answer } => {
                let is_taken = self.on_mon_answer(id, &answer, fx)
                    || self.on_crash_answer(now, id, &answer, fx)
                    || self.on_upmap_answer(id, &answer, fx)
                    || self.on_shrinking_answer(id, &answer, fx)
                    || self.on_autoscaling_answer(id, &answer, fx)
                    || self.on_farewell_answer(id, fx);
                if !is_taken {
                    self.on_mon_config(id, answer);
                }
            }
            mon_client::Event::Disconnected
            | mon_client::Event::MonMap(_)
            | mon_client::Event::TicketsRenewed
            | mon_client::Event::RotatingKeys(_) => {}
            mon_client::Event::Message(message) => {
                if let Body::MMgrMap(m) = message.body {
                    let gid = self.session.global_id();
                    self.has_others = stopping::has_others(&m.map, gid);
                    self.set_active(m.map.active_gid == gid, fx);
                    self.with_session(now, fx, |session, _| session.got("mgrmap", m.map.epoch.into()));
                }
            }
        }
    }

    fn on_osd_map(&mut self, now: Time, message: &MOSDMap, fx: Fx<'_>) {
        let wall = self.clock.at(now);
        let mut newest = None;
        let Progress { ask_from, damaged } =
            osd_maps::advance(&mut self.map, message, Verify::Result, |map, _| {
                newest = Some(Arc::clone(map))
            });
        if let Some(Damaged { epoch, why }) = damaged {
            fx.push(Effect::Warn(format!("OSDMap {epoch} from the monitor is not used: {why}")));
        }
        if let Some(map) = newest {
            self.pg_map.on_osd_map(wall, map);
            self.note_news(now);
        }
        if let Some(epoch) = ask_from {
            self.with_session(now, fx, |session, fx| session.subscribe("osdmap", epoch.into(), fx));
        }
    }

    fn note_news(&mut self, now: Time) {
        self.digest_at.get_or_insert(now + self.config.timing.digest);
    }

    fn send_beacon(&mut self, now: Time, fx: Fx<'_>) {
        self.beacon_at = now + self.options.beacon_interval.max(INTERVAL_MIN);
        // After the farewell a beacon would make it a standby.
        if !self.session.is_connected() || self.stopping != Stopping::NotAsked {
            return;
        }
        let beacon = self.beacon();
        self.with_session(now, fx, |session, fx| {
            session.send(Message::new(beacon), fx);
        });
    }

    fn beacon(&self) -> MMgrBeacon {
        MMgrBeacon {
            paxos: PaxosHeader::default(),
            addrs: self.config.addrs.clone(),
            gid: self.session.global_id(),
            available: true,
            name: self.config.name.clone(),
            fsid: self.session.fsid(),
            module_names: Default::default(),
            commands: descriptions(),
            metadata: self.config.metadata.clone(),
            services: self.config.services.clone(),
            modules: Vec::new(),
            features: wire::features::SUPPORTED.0,
            client_names: self.images.addrs.iter().map(|_| images::CLIENT_NAME.to_owned()).collect(),
            client_addrs: self.images.addrs.clone().into_iter().collect(),
        }
    }

    fn send_digest(&mut self, now: Time, fx: Fx<'_>) {
        self.digest_at = None;
        // Before the first map nothing is known, and zeroes would be a lie.
        if self.map.is_none() || !self.session.is_connected() {
            return;
        }
        let mut health = self.pg_map.health(self.clock.at(now));
        let warn_seconds = self.options.crash_warn_interval.as_secs();
        health.extend(self.crash_store.crashes.health(self.clock.at(now), warn_seconds));
        let report = MMonMgrReport {
            paxos: PaxosHeader::default(),
            health: HealthChecks(health),
            service_map: self.services.commit(self.clock.at(now)).into(),
            progress: self.progress.events(self.clock.at(now)),
            gid: self.session.global_id(),
            digest: self.pg_map.digest(self.clock.at(now)).to_vec(wire::features::SUPPORTED).into(),
        };
        self.with_session(now, fx, |session, fx| {
            session.send(Message::new(report), fx);
        });
    }

    /// Acts on options that have changed.
    fn follow_options(&mut self, now: Time, fx: Fx<'_>) {
        if std::mem::replace(&mut self.options_seen, self.layers.revision()) == self.layers.revision() {
            return;
        }
        self.options = MgrOptions::read(&self.layers);
        self.configs.set_own(&format!("mgr.{}", self.config.name), &self.layers);
        self.pg_map.options = self.options.clone();
        self.follow_images_options(fx);
        self.note_news(now);
        let reporters: Vec<ConnId> =
            self.peers.iter().filter(|(_, peer)| peer.daemon.is_some()).map(|(conn, _)| *conn).collect();
        reporters.into_iter().for_each(|conn| self.configure(conn, fx));
    }

    /// Tells a daemon how often to report, and what.
    fn configure(&self, conn: ConnId, fx: Fx<'_>) {
        let MgrOptions { report_period_s, report_threshold: threshold, .. } = self.options;
        let queries = self.queries_for(conn);
        let configure = MMgrConfigure { period_sec: report_period_s.max(1), threshold, queries };
        fx.push(Effect::Net(NetEffect::Send { conn, message: Message::new(configure) }));
    }

    /// Monitors do not report to the manager: it asks, as often as other daemons report.
    fn ask_mon_config(&mut self, now: Time, fx: Fx<'_>) {
        let period = Duration::from_secs(self.options.report_period_s.into()).max(INTERVAL_MIN);
        self.mon_config_at = now + period;
        if !self.session.is_connected() || self.mon_config_asked.is_some() {
            return;
        }
        self.mon_config_asked =
            self.request_command(now, &object! { "prefix" => "config report" }, period, fx);
    }

    fn on_mon_config(&mut self, id: RequestId, answer: Result<Body, TimedOut>) {
        if self.mon_config_asked != Some(id) {
            return;
        }
        self.mon_config_asked = None;
        if let Ok(Body::MMonCommandAck(ack)) = answer
            && ack.result == 0
            && let Ok(configs) = codec::decode_exact::<BTreeMap<String, Reported>>(&ack.output)
        {
            configs.into_iter().for_each(|(name, reported)| self.configs.set_kin(&name, reported));
        }
    }

    fn on_net(&mut self, now: Time, event: NetEvent, fx: Fx<'_>) {
        let conn = match &event {
            NetEvent::Ready { conn, .. }
            | NetEvent::Message { conn, .. }
            | NetEvent::Auth { conn, .. }
            | NetEvent::Granted { conn, .. }
            | NetEvent::Closed { conn, .. } => *conn,
        };
        if self.session.owns(conn) {
            return self.with_session(now, fx, |session, effects| {
                session.step(now, mon_client::Input::Net(event), effects);
            });
        }
        match event {
            NetEvent::Ready { conn, peer } => self.on_peer(conn, *peer, fx),
            NetEvent::Message { conn, message, .. } => self.on_message(now, conn, message, fx),
            NetEvent::Closed { conn, .. } => self.on_peer_gone(conn),
            NetEvent::Auth { .. } | NetEvent::Granted { .. } => {}
        }
    }

    fn on_peer(&mut self, conn: ConnId, peer: Peer, fx: Fx<'_>) {
        let caps = match peer.identity.capabilities() {
            Capabilities::Everything => Caps::all(),
            Capabilities::Text(text) => Caps::parse(&text).unwrap_or_else(|| {
                let name = peer.identity.name();
                fx.push(Effect::Warn(format!("{name} has mgr caps that cannot be read: {text:?}")));
                Caps::default()
            }),
        };
        let counters = DaemonCounters::default();
        self.peers.insert(conn, Reporter { peer, caps, daemon: None, service: None, counters });
    }

    fn on_peer_gone(&mut self, conn: ConnId) {
        self.relays.retain(|_, relay| relay.caller.conn != conn);
        self.images.forget(conn);
        self.forget_daemon(conn);
        self.peers.remove(&conn);
    }

    /// The session is no daemon's any more.
    fn forget_daemon(&mut self, conn: ConnId) {
        let Some(reporter) = self.peers.get_mut(&conn) else { return };
        reporter.counters = DaemonCounters::default();
        if let Some(daemon) = reporter.daemon.take() {
            // A restarted daemon may have a new session before its old one ends.
            if self.peers.values().any(|reporter| reporter.daemon.as_ref() == Some(&daemon)) {
                return;
            }
            self.configs.forget(&daemon);
            // Its slow operations went with it.
            self.pg_map.on_slow_ops(daemon, 0, 0);
        }
    }

    fn on_message(&mut self, now: Time, conn: ConnId, message: Message, fx: Fx<'_>) {
        let Some(reporter) = self.peers.get(&conn) else { return };
        if let Err(refused) = self.gate.admit(&reporter.peer, &message.body) {
            return warn(refused, fx);
        }
        let tid = message.tid;
        match message.body {
            Body::MMgrOpen(open) => self.on_open(now, conn, &open, fx),
            Body::MMgrReport(report) => self.on_report(now, conn, &report, fx),
            Body::MPGStats(stats) => self.on_pg_stats(now, conn, *stats),
            Body::MMgrClose(close) => self.on_close(now, conn, *close, fx),
            Body::MMgrCommand(command) => {
                let caller = Caller { conn, tid, form: Form::Command };
                self.on_command(now, caller, &command.command, &command.input, fx);
            }
            Body::MCommand(command) => {
                let caller = Caller { conn, tid, form: Form::Tell };
                self.on_command(now, caller, &command.command, &command.input, fx);
            }
            _ => {}
        }
    }

    fn on_open(&mut self, now: Time, conn: ConnId, open: &MMgrOpen, fx: Fx<'_>) {
        let Some(reporter) = self.peers.get_mut(&conn) else { return };
        let identity = &reporter.peer.identity;
        let daemon = match open.service_name.is_empty() {
            true => format!("{}.{}", identity.role().name(), open.daemon_name),
            false => format!("{}.{}", open.service_name, open.daemon_name),
        };
        // A service (a gateway, say) runs with a client's key and names itself. A daemon of the cluster has its own key;
        // monitors share one without an id.
        let id = identity.daemon(identity.role());
        let is_own = id == Some(&open.daemon_name) || id.is_some() && identity.role() == EntityKind::MON;
        let is_service = EntityKind::from_name(&open.service_name).is_none() && !open.service_name.is_empty();
        let is_renamed = reporter.daemon.as_ref().is_some_and(|known| *known != daemon);
        if !is_own && !is_service || is_renamed {
            let what = format!("reports of {daemon}");
            return warn(self.gate.refuse_kind(&reporter.peer, MMgrOpen::TYPE, &what), fx);
        }
        if let Some(told) = open.service.as_ref().filter(|_| is_service) {
            let origin = Origin { gid: identity.global_id(), addr: reporter.peer.addrs.legacy() };
            let name = (open.service_name.as_str(), open.daemon_name.as_str());
            if let Err(limit) = self.services.on_open(self.clock.at(now), name, origin, told) {
                let what = format!("reports of {daemon}: {limit}");
                return warn(self.gate.refuse_kind(&reporter.peer, MMgrOpen::TYPE, &what), fx);
            }
            reporter.service = Some((open.service_name.clone(), open.daemon_name.clone()));
            self.note_news(now);
        }
        let Some(reporter) = self.peers.get_mut(&conn) else { return };
        self.configs.on_open(&daemon, &open.config, &open.config_defaults);
        reporter.daemon = Some(daemon);
        self.configure(conn, fx);
    }

    fn on_report(&mut self, now: Time, conn: ConnId, report: &MMgrReport, fx: Fx<'_>) {
        let Some(reporter) = self.peers.get_mut(&conn) else { return };
        let Some(daemon) = &reporter.daemon else {
            return warn(
                self.gate.refuse_kind(&reporter.peer, MMgrReport::TYPE, "a report of no daemon"),
                fx,
            );
        };
        self.configs.on_report(daemon, &report.config);
        if let Some((service, name)) = &reporter.service {
            let wall = self.clock.at(now);
            let (status, tasks) = (report.status.as_ref(), report.task_status.as_ref());
            if let Err(limit) = self.services.on_report(wall, (service, name), status, tasks) {
                let what = format!("status of {daemon}: {limit}");
                warn(self.gate.refuse_kind(&reporter.peer, MMgrReport::TYPE, &what), fx);
            }
        }
        if let Err(limit) = reporter.counters.take(now, report) {
            let what = format!("counters of {daemon}: {limit}");
            warn(self.gate.refuse_kind(&reporter.peer, MMgrReport::TYPE, &what), fx);
        }
        // The cluster's health follows from its daemons, not from services, which have clients' keys.
        if reporter.peer.identity.is_daemon() {
            for (count, oldest_sec) in report.health.iter().filter_map(|metric| metric.as_slow_ops()) {
                self.pg_map.on_slow_ops(daemon.clone(), count, oldest_sec);
            }
        }
        if let Some(MetricReport::Osd(reports)) = &report.metrics {
            self.on_counted(conn, reports, fx);
        }
        self.note_news(now);
    }

    /// A daemon ends. It waits for the same message as an answer, and closes the connection.
    fn on_close(&mut self, now: Time, conn: ConnId, close: MMgrClose, fx: Fx<'_>) {
        let service = self.peers.get_mut(&conn).and_then(|reporter| reporter.service.take());
        if let Some((service, daemon)) = service {
            self.services.on_close(&service, &daemon);
            self.note_news(now);
        }
        self.forget_daemon(conn);
        fx.push(Effect::Net(NetEffect::Send { conn, message: Message::new(close) }));
    }

    /// The statistics count as those of the OSD that sent them.
    fn on_pg_stats(&mut self, now: Time, conn: ConnId, stats: MPGStats) {
        let Some(osd) = self.peers.get(&conn).and_then(|reporter| reporter.peer.identity.osd()) else {
            return;
        };
        if stats.fsid == self.session.fsid() {
            let wall = self.clock.at(now);
            self.pg_map.ingest(wall, osd, stats);
            self.note_news(now);
        }
    }
}

fn warn(Refused(line): Refused, fx: Fx<'_>) {
    line.into_iter().for_each(|line| fx.push(Effect::Warn(line)));
}

impl Machine for Manager {
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Time, input: Input, effects: &mut Effects<Effect>) {
        match input {
            Input::Net(event) => self.on_net(now, event, effects),
            Input::ImagesAnswer { number, answer } => self.on_images_answer(number, answer, effects),
            Input::ImagesNews(news) => self.on_images_news(now, news, effects),
            Input::Stop => self.begin_stop(now, effects),
            Input::Deadline { wall } => {
                self.clock.follow(now, wall);
                if self.session.next_deadline().is_some_and(|at| at <= now) {
                    self.with_session(now, effects, |session, fx| {
                        session.step(now, mon_client::Input::Deadline, fx);
                    });
                }
                if self.mon_config_at <= now {
                    self.ask_mon_config(now, effects);
                    if !self.crash_store.crashes.is_loaded() && self.session.is_connected() {
                        self.read_crashes(now, effects);
                    }
                }
                if self.beacon_at <= now {
                    let wall = self.clock.at(now);
                    self.pg_map.tick(wall);
                    self.services.prune(wall, self.options.service_grace);
                    if self.is_active() {
                        self.prune_crashes(now, effects);
                    }
                    self.progress.look(wall, &self.pg_map);
                    self.send_beacon(now, effects);
                    self.note_news(now);
                }
                if self.balancing.next_at <= now {
                    self.balance(now, effects);
                }
                if self.autoscaling.next_at <= now {
                    self.autoscale(now, effects);
                }
                if self.shrinking.next_at <= now {
                    self.shrink_pools(now, effects);
                }
                if self.digest_at.is_some_and(|at| at <= now) {
                    self.send_digest(now, effects);
                }
            }
        }
        self.follow_options(now, effects);
    }

    fn next_deadline(&self) -> Option<Time> {
        let regular = self
            .beacon_at
            .min(self.mon_config_at)
            .min(self.balancing.next_at)
            .min(self.shrinking.next_at)
            .min(self.autoscaling.next_at);
        let own = Time::earliest(Some(regular), self.digest_at);
        Time::earliest(own, self.session.next_deadline())
    }

    fn check(&self) {
        self.session.check();
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.session.states(see);
        see("manager", 0, if self.digest_at.is_some() { "has news" } else { "has no news" });
    }
}

#[cfg(test)]
#[path = "senders_tests.rs"]
mod senders_tests;
