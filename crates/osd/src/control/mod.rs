//! The part of an OSD that is there once: its life with the monitor, the manager and its neighbours.
//!
//! One file an affair: `history` (the maps and the store's own lineage), `holdings` (the PGs of this OSD, and the orders
//! that a map gives for each), `intervals` (of one PG), `copy_starts` (copies that began again), `rebuilds` (those that could not be read),
//! `life` (boot, beacons, full states, stopping), `wishes` (`up_thru` and `pg_temp`), `neighbours` (heartbeats), `pulse`
//! and `stalls` (signs of life and of hanging parts), `reports` (figures for the manager), `moves` (PGs that go from core
//! to core), `merging` (PGs that become one), `full_pools`, `commands` (`ceph tell osd.N`), `inspection` and `bench` (some of them).

mod bench;
pub(crate) mod births;
mod commands;
mod compression;
pub(crate) mod copy_starts;
mod full_pools;
pub(crate) mod history;
mod holdings;
mod inspection;
pub(crate) mod intervals;
mod io;
mod life;
mod merging;
mod moves;
mod neighbours;
mod pacing;
pub(crate) mod pg_info;
mod pg_query;
mod pg_stats;
mod ping_times;
mod pulse;
mod queries;
mod rebuilds;
mod reports;
mod restart;
mod signals;
mod stalls;
#[cfg(test)]
pub(crate) mod testing;
mod wishes;

pub use births::MergeVersions;
pub use commands::all_commands;
pub use copy_starts::{CopyStart, CopyStarts};
pub use history::Lineage;
pub(crate) use io::refused_transaction;
pub use io::{Addrs, ControlConfig, Effect, Input, Level, VersionText};

use crate::fast_map::FastMap;
use crate::node::Failsafe;
use crate::options::{ControlOptions, LimitOptions, TrackingOptions};
use crate::shard::{self, ClusterView, PgReport, PoolSnapshots, PoolView, ToControl};
use crate::signals::TrackingLimits;
use command::Format;
use command::options::Layers;
use history::History;
use holdings::Holdings;
use life::Life;
use machine::gate::{Gate, Refused};
use machine::net::{NetEffect, NetEvent, Peer};
use machine::{ConnId, CoreId, Effects, Machine, Random, Tag, Time, WallClock};
use mon_client::MonSession;
use mon_client::osd_maps::{self, Damaged, Progress, Verify};
use neighbours::Neighbours;
use reports::Reports;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::{Collection, Compressed, Transaction, Usage};
use wire::messages::{Body, MOSDMap, MOSDPGCreate2, MOSDPGCreated, Message, PaxosHeader};
use wire::types::{
    AddrKind, EntityAddr, EntityKind, Epoch, LogPriority, OsdMap, PgId, PoolFlags, PoolOption,
    PoolOptionValue, SpgId, UTime,
};

/// Services that an OSD needs tickets for: the manager for its reports, other OSDs for heartbeats.
pub const SERVICES: u32 = (EntityKind::MGR.0 | EntityKind::OSD.0) as u32;

type Fx = Effects<Effect>;

pub struct Control {
    config: ControlConfig,
    layers: Layers,
    /// As [`Control::layers`] had them at the revision `options_seen`.
    options: ControlOptions,
    options_seen: u64,
    /// The host's load is above `osd_scrub_load_threshold`.
    is_host_busy: bool,
    mon: MonSession,
    wall: WallClock,
    history: History,
    holdings: Holdings,
    /// The monitor's newest orders to create PGs, if their map has not come yet.
    early_creates: Option<Box<MOSDPGCreate2>>,
    life: Life,
    neighbours: Neighbours,
    reports: Reports,
    merges: merging::Merges,
    moves: moves::Moves,
    /// Everybody who has connected to us.
    peers: FastMap<ConnId, Arc<Peer>>,
    gate: Gate,
    /// Connections that we opened ourselves, beside the monitor's: the next number.
    next_conn: u64,
    next_tag: u64,
    /// The cores have credentials for other OSDs.
    has_published_credentials: bool,
    usage: BTreeMap<CoreId, Usage>,
    /// What compression has come to, by pool.
    compressed: BTreeMap<CoreId, Vec<(i64, Compressed)>>,
    compression: compression::Told,
    pg_reports: BTreeMap<PgId, PgReport>,
    stages: pg_query::Stages,
    /// Lines for the cluster log, until the OSD is up.
    unreadable_pgs: Vec<String>,
    /// Copies whose new beginning is on its way to stable storage.
    rebuilds: BTreeMap<Tag, (CoreId, SpgId)>,
    bench: Option<bench::Bench>,
    signals: signals::Signals,
    queries: queries::Queries,
    pace: crate::pace::Law,
    /// Commands `restart` that wait for [`Input::RestartChecked`].
    restarts: Vec<signals::Asker>,
    failsafe: Failsafe,
    full_pools: full_pools::FullPools,
    /// The epoch of the last map that failed its checksum.
    damaged_map: Option<Epoch>,
    wishes: wishes::Wishes,
    pulses: pulse::Pulses,
    stalls: stalls::Stalls,
    ticked_at: Option<Time>,
}

/// How often the slow things are looked at.
const TICK: Duration = Duration::from_secs(1);

impl Control {
    /// `collections`: whether core 0's store has the daemon's own collection already.
    pub fn new(config: ControlConfig, has_meta: bool, random: Random) -> Control {
        let mut layers = config.options.clone();
        layers.run();
        let options = ControlOptions::read(&layers);
        let failsafe = Failsafe { ratio_max: options.failsafe_full_ratio, is_full: false };
        Control {
            mon: MonSession::new(config.mon.clone(), 0, random),
            options,
            is_host_busy: false,
            options_seen: layers.revision(),
            layers,
            wall: WallClock::new(Time::ZERO, UTime::ZERO),
            history: History::default(),
            holdings: Holdings::new(config.osd.0, config.cores),
            early_creates: None,
            life: Life::new(has_meta, config.cores),
            neighbours: Neighbours::default(),
            reports: Reports::default(),
            merges: merging::Merges::default(),
            moves: moves::Moves::default(),
            peers: FastMap::default(),
            gate: Gate::new(EntityKind::OSD),
            next_conn: 0,
            next_tag: 0,
            has_published_credentials: false,
            usage: BTreeMap::new(),
            compressed: BTreeMap::new(),
            compression: compression::Told::default(),
            pg_reports: BTreeMap::new(),
            stages: pg_query::Stages::default(),
            unreadable_pgs: Vec::new(),
            rebuilds: BTreeMap::new(),
            bench: None,
            signals: signals::Signals::default(),
            queries: queries::Queries::default(),
            pace: crate::pace::Law::default(),
            restarts: Vec::new(),
            failsafe,
            full_pools: full_pools::FullPools::default(),
            damaged_map: None,
            wishes: wishes::Wishes::default(),
            pulses: pulse::Pulses::default(),
            stalls: stalls::Stalls::new(config.cores),
            ticked_at: None,
            config,
        }
    }

    pub fn is_up(&self) -> bool {
        self.history.map.as_ref().is_some_and(|map| self.is_us(map))
    }

    /// Clients and other daemons that connected to us.
    pub fn accepted_peers(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.peers.keys().copied().filter(|conn| !conn.is_outgoing())
    }

    /// The map has this very process under our number, and up.
    fn is_us(&self, map: &OsdMap) -> bool {
        let osd = self.config.osd.0;
        map.is_up(osd) && map.osd(osd).is_some_and(|row| row.addrs.client == self.config.addrs.client)
    }

    fn epoch(&self) -> Epoch {
        self.history.epoch()
    }

    fn log(&self, level: Level, text: impl Into<String>, fx: &mut Fx) {
        fx.push(Effect::Log { level, text: text.into() });
    }

    fn send(&self, conn: ConnId, message: Message, fx: &mut Fx) {
        fx.push(Effect::Net(NetEffect::Send { conn, message }));
    }

    fn new_conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId::outgoing(self.next_conn)
    }

    fn submit(&mut self, transaction: Transaction, fx: &mut Fx) -> Tag {
        debug_assert_eq!(transaction.collection, Collection::Meta);
        self.next_tag += 1;
        let tag = Tag(self.next_tag);
        fx.push(Effect::Submit { tag, transaction });
        tag
    }

    /// Runs something of the monitor session and carries out what it wants.
    fn with_mon<R>(
        &mut self,
        now: Time,
        fx: &mut Fx,
        run: impl FnOnce(&mut MonSession, &mut Effects<mon_client::Effect>) -> R,
    ) -> R {
        let mut wanted = Effects::new();
        let out = run(&mut self.mon, &mut wanted);
        for effect in wanted.take() {
            match effect {
                mon_client::Effect::Net(net) => fx.push(Effect::Net(net)),
                mon_client::Effect::Event(event) => self.on_mon_event(now, event, fx),
            }
        }
        out
    }

    fn send_mon(&mut self, now: Time, body: impl Into<Body>, fx: &mut Fx) -> bool {
        let message = Message::new(body);
        self.with_mon(now, fx, |mon, wanted| mon.send(message, wanted))
    }

    fn on_mon_event(&mut self, now: Time, event: mon_client::Event, fx: &mut Fx) {
        use mon_client::Event;
        match event {
            Event::Connected { .. } => {
                self.publish_credentials(now, fx);
                self.restart_pulses();
                self.on_mon_connected(now, fx);
            }
            Event::Disconnected | Event::MonMap(_) | Event::RotatingKeys(_) => {}
            Event::TicketsRenewed => {
                self.publish_credentials(now, fx);
                self.on_tickets(now, fx);
            }
            Event::Denied(why) => self.log(Level::Error, format!("the monitor refuses us: {why}"), fx),
            Event::OsdMap(message) => self.on_maps(now, &message, "the monitor", fx),
            Event::Config(config) => {
                for problem in self.layers.set_monitor(&config) {
                    self.log(Level::Warn, format!("configuration from the monitor: {problem}"), fx);
                }
            }
            Event::Answer { id, answer } => self.on_mon_answer(now, id, answer, fx),
            Event::Message(message) => self.on_mon_message(now, message, fx),
        }
    }

    /// Gives every core credentials for its links, or takes them back.
    fn publish_credentials(&mut self, now: Time, fx: &mut Fx) {
        let credentials = self.mon.credentials(now, EntityKind::OSD).map(Box::new);
        self.has_published_credentials = credentials.is_some();
        fx.push(Effect::Credentials(credentials));
    }

    fn on_mon_message(&mut self, now: Time, message: Message, fx: &mut Fx) {
        match message.body {
            Body::MMgrMap(m) => self.on_mgr_map(now, m.map, fx),
            Body::MOSDMarkMeDown(_) => self.on_marked_down(now, fx),
            Body::MOSDPulse(pulse) => self.on_pulse_heard(&pulse),
            Body::MOSDPGCreate2(creates) => self.on_pg_creates(creates, fx),
            _ => {}
        }
    }

    /// Each map orders the PGs of new pools, with their past. The monitor's word matters for PGs whose copies are all lost.
    fn on_pg_creates(&mut self, creates: Box<MOSDPGCreate2>, fx: &mut Fx) {
        if creates.epoch > self.epoch() {
            // The map may give these PGs another interval.
            self.early_creates = Some(creates);
            return;
        }
        for (pg, (epoch, _)) in &creates.pgs {
            let entry = self.holdings.entries.get(&pg.pg).filter(|entry| entry.primary_since.is_some());
            if let Some(entry) = entry {
                let input = shard::Input::Recreate { pg: entry.id(pg.pg), epoch: *epoch };
                fx.push(Effect::Shard { core: entry.core, input });
            }
        }
    }

    fn on_net(&mut self, now: Time, event: NetEvent, fx: &mut Fx) {
        if self.mon.owns(event.conn()) {
            return self
                .with_mon(now, fx, |mon, wanted| mon.step(now, mon_client::Input::Net(event), wanted));
        }
        match event {
            NetEvent::Ready { conn, peer } => {
                if conn.is_outgoing() {
                    self.on_mgr_ready(conn, fx);
                }
                self.peers.insert(conn, Arc::from(peer));
            }
            NetEvent::Closed { conn, why } => {
                self.peers.remove(&conn);
                self.on_mgr_closed(conn, fx);
                self.on_neighbour_closed(now, conn, &why, fx);
            }
            NetEvent::Message { conn, message, .. } => self.on_message(now, conn, message, fx),
            NetEvent::Auth { .. } | NetEvent::Granted { .. } => {}
        }
    }

    fn on_message(&mut self, now: Time, conn: ConnId, message: Message, fx: &mut Fx) {
        let Some(peer) = self.peers.get(&conn) else { return };
        if let Err(Refused(line)) = self.gate.admit(peer, &message.body) {
            return line.into_iter().for_each(|line| self.log(Level::Warn, line, fx));
        }
        let tid = message.tid;
        match message.body {
            Body::MOSDPing(ping) => self.on_ping(now, conn, &ping, fx),
            Body::MCommand(command) => self.on_command(now, conn, tid, &command, fx),
            Body::MMgrConfigure(configure) => self.on_mgr_configure(now, conn, &configure, fx),
            Body::MOSDForceRecovery(order) => self.on_force_recovery(conn, &order, fx),
            Body::MOSDScrub2(order) => self.on_scrub_order(conn, &order, fx),
            Body::MOSDMap(maps) => self.on_peer_maps(now, conn, &maps, fx),
            // `MPing` wants no answer; acknowledgements of reports neither.
            _ => {}
        }
    }

    /// Maps that another OSD shares. The gate has let only OSDs through.
    fn on_peer_maps(&mut self, now: Time, conn: ConnId, maps: &MOSDMap, fx: &mut Fx) {
        let Some(from) = self.peers.get(&conn).map(|peer| peer.claimed.to_string()) else { return };
        if maps.fsid == self.mon.fsid() {
            self.on_maps(now, maps, &from, fx);
        }
    }

    fn on_maps(&mut self, now: Time, message: &MOSDMap, from: &str, fx: &mut Fx) {
        if !self.life.has_loaded() || message.last().is_none_or(|last| last <= self.epoch()) {
            return;
        }
        self.count_maps(message.maps.len() + message.incremental_maps.len());
        let mut before = self.history.map.clone();
        let mut map = before.clone();
        // The very first increment leads on from nothing at all.
        if map.is_none() && message.incremental_maps.contains_key(&1) {
            map = Some(Arc::new(OsdMap { fsid: message.fsid, ..OsdMap::default() }));
            before = map.clone();
        }
        let Progress { ask_from, damaged } =
            osd_maps::advance(&mut map, message, Verify::Result, |next, step| {
                let is_us = self.is_us(next);
                if is_us {
                    let up_from = next.osd(self.config.osd.0).map_or(0, |row| row.info.up_from);
                    let lineage = &mut self.history.lineage;
                    lineage.boot_epoch = up_from;
                    if lineage.first_up == 0 {
                        lineage.first_up = up_from;
                    }
                }
                self.full_pools.note(next, step);
                let known = before.as_deref().filter(|_| step == osd_maps::Step::Next);
                self.holdings.follow(known, next, self.history.lineage.first_up);
                before = Some(next.clone());
            });
        if let Some(damaged) = damaged {
            self.report_damaged_map(now, &damaged, from, fx);
        }
        let Some(map) = map.filter(|m| m.epoch > self.epoch()) else {
            if let Some(epoch) = ask_from {
                self.with_mon(now, fx, |mon, wanted| mon.subscribe("osdmap", epoch as u64, wanted));
            }
            return;
        };
        self.history.map = Some(map.clone());
        let records = self.holdings.take_record_changes();
        let transaction = self.history.keep(message, self.holdings.births(), records);
        self.submit(transaction, fx);
        self.publish(&map, fx);
        self.on_new_map(now, &map, fx);
        self.look_at_merges(now, fx);
        if let Some(epoch) = ask_from {
            self.with_mon(now, fx, |mon, wanted| mon.subscribe("osdmap", epoch as u64, wanted));
        }
    }

    /// Stores the records of PGs that changed since the newest map.
    fn save_records(&mut self, fx: &mut Fx) {
        let records = self.holdings.take_record_changes();
        if !records.is_empty() {
            self.submit(History::save_records(records), fx);
        }
    }

    /// Once an epoch: whoever sent it may send it again.
    fn report_damaged_map(&mut self, now: Time, damaged: &Damaged, from: &str, fx: &mut Fx) {
        let Damaged { epoch, why } = damaged;
        if self.damaged_map.replace(*epoch) != Some(*epoch) {
            let text = format!("OSDMap {epoch} from {from} is not used: {why}; asking the monitor");
            self.log(Level::Error, text, fx);
            let (osd, own) = (self.config.osd.0, self.epoch());
            let text = format!(
                "osd.{osd} with OSDMap {own} does not use OSDMap {epoch} from {from}: {why}. It takes the newest map whole. After \
                 a rebuild of the monitors' store: this OSD has maps that were lost, and does not know the intervals between \
                 them and the new ones"
            );
            self.tell_cluster(now, LogPriority::ERROR, text, fx);
        }
    }

    /// Tells every shard what the map means for it.
    fn publish(&mut self, map: &Arc<OsdMap>, fx: &mut Fx) {
        let is_us = self.is_us(map);
        let mut orders = self.holdings.orders(map, is_us);
        self.moves.note_orders(&orders);
        let view = Arc::new(self.view(map));
        for core in (0..self.config.cores).map(CoreId) {
            let orders = orders.remove(&core).unwrap_or_default();
            fx.push(Effect::Shard { core, input: shard::Input::Map { view: view.clone(), orders } });
        }
        if let Some(creates) = self.early_creates.take_if(|creates| creates.epoch <= map.epoch) {
            self.on_pg_creates(creates, fx);
        }
    }

    fn view(&self, map: &Arc<OsdMap>) -> ClusterView {
        let pools = map.pools.iter().map(|(id, pool)| {
            let view = PoolView {
                name: map.pool_names.get(id).cloned().unwrap_or_default(),
                pg_num: pool.pg_num,
                pg_num_pending: pool.pg_num_pending,
                recovery_priority: match pool.options.0.get(&PoolOption::RECOVERY_PRIORITY) {
                    Some(PoolOptionValue::Integer(priority)) => *priority,
                    _ => 0,
                },
                full: pool.flags.has(PoolFlags::FULL),
                full_since: self.full_pools.since(*id),
                full_quota: pool.flags.has(PoolFlags::FULL_QUOTA),
                eio: pool.flags.has(PoolFlags::EIO),
                last_force_op_resend: pool.last_force_op_resend,
                snapshots: PoolSnapshots::of(pool, map.removed_snaps_queue.get(id)),
                applications: pool.applications.clone(),
            };
            (*id, view)
        });
        // A blocklist names a client whatever protocol it spoke.
        let any = |addr: &EntityAddr| EntityAddr { kind: AddrKind::ANY, ..*addr };
        // A range is an address whose nonce is the number of bits that count.
        let range = |addr: &EntityAddr| addr.socket.map(|s| (s.ip(), addr.nonce.min(128) as u8));
        ClusterView {
            epoch: map.epoch,
            map: map.clone(),
            store_since: self.history.lineage.first_up,
            copy_starts: self.history.copy_starts.clone(),
            pools: pools.collect(),
            routes: self.holdings.routes(),
            blocklist: map.blocklist.keys().map(any).collect(),
            blocklist_ranges: map.range_blocklist.keys().filter_map(range).collect(),
            merge_obstacles: self.merge_obstacles(map),
            failsafe: self.failsafe,
        }
    }

    /// PGs of pending merges of which an earlier move or merge has left something here.
    fn merge_obstacles(&self, map: &OsdMap) -> BTreeSet<PgId> {
        let sources = self.holdings.pending_sources(map).into_iter();
        sources.filter(|source| self.holdings.has_left(*source)).collect()
    }

    fn on_shard(&mut self, now: Time, core: CoreId, said: ToControl, fx: &mut Fx) {
        match said {
            ToControl::ShareMap { conn, since } => {
                let features = self.peers.get(&conn).map(|p| p.features);
                if let Some(maps) = features.and_then(|f| self.history.share(since, f)) {
                    self.send(conn, Message::new(maps), fx);
                }
            }
            ToControl::WantMap { epoch } => {
                if epoch > self.epoch() {
                    let next = self.epoch() as u64 + 1;
                    self.with_mon(now, fx, |mon, wanted| mon.subscribe("osdmap", next, wanted));
                }
            }
            ToControl::Loaded { pgs, broken } => {
                for (pg, why) in broken {
                    self.found_unreadable(pg.pg, &why, fx);
                }
                pgs.iter().for_each(|pg| self.holdings.found(core, pg));
                self.on_loaded(now, core, fx);
            }
            ToControl::Unreadable { pg, why } => {
                self.found_unreadable(pg.pg, &why, fx);
                self.tell_unreadable(now, fx);
            }
            ToControl::Released { pg, split_bits } => self.note_rebuild(now, core, pg, split_bits, fx),
            ToControl::NeedUpThru { since } => self.want_up_thru(now, since, fx),
            ToControl::WantActing { pg, acting } => self.want_acting(now, pg.pg, acting, fx),
            ToControl::LeasesUsed { osds, is_for_copies } => self.keep_leases(now, &osds, is_for_copies),
            ToControl::LeasesEnded => self.on_leases_ended(now, core, fx),
            // Lost in a crash, it is said again: the next map or tick stores it.
            ToControl::IntervalsDone { pg, epoch } => self.holdings.intervals_done(pg.pg, epoch),
            ToControl::Rejected { why } => self.log(Level::Error, why, fx),
            ToControl::LongerPast { pg, past } => {
                if self.holdings.longer_past(pg.pg, &past) {
                    self.save_records(fx);
                }
            }
            ToControl::Created { pg } => {
                if self.holdings.created(pg.pg) {
                    self.save_records(fx);
                }
                self.send_mon(now, MOSDPGCreated { paxos: PaxosHeader { version: 0 }, pg: pg.pg }, fx);
            }
            ToControl::Removed { pg } => {
                self.pg_reports.remove(&pg.pg);
                self.stages.forget(pg.pg);
                let is_wanted = self.holdings.removed(pg.pg, core);
                if let Some(map) = self.history.map.clone().filter(|_| is_wanted) {
                    self.publish(&map, fx);
                }
            }
            ToControl::Merged { pg, epoch } => self.holdings.merged(pg.pg, epoch),
            ToControl::MergeState { source, epoch, state } => {
                self.on_merge_state(now, source, epoch, state, fx);
            }
            ToControl::Counted(counts) => self.queries.add(counts),
            ToControl::Report { pgs, figures } => {
                self.on_shard_figures(core, *figures);
                let wall = self.wall.at(now);
                for report in pgs {
                    self.stages.note(wall, &report);
                    self.pg_reports.insert(report.pg.pg, report);
                }
                self.on_shard_report(now, core, fx);
            }
            ToControl::Pace(report) => self.on_pace_report(now, core, *report, fx),
            ToControl::Answered { id, answer } => self.on_shard_answered(now, core, id, answer, fx),
            ToControl::Damaged { pg, object } => {
                let text = format!(
                    "{} {object} is damaged: it cannot be read, or does not match its checksum, and reads of it fail",
                    pg.pg
                );
                self.log(Level::Error, text.clone(), fx);
                self.tell_cluster(now, LogPriority::ERROR, text, fx);
                // Health follows at once.
                self.reports.make_due();
            }
            ToControl::Scrub { pg, is_error, text } => {
                let text = format!("{} {text}", pg.pg);
                let (level, priority) = match is_error {
                    true => (Level::Error, LogPriority::ERROR),
                    false => (Level::Debug, LogPriority::DEBUG),
                };
                self.log(level, text.clone(), fx);
                self.tell_cluster(now, priority, text, fx);
                // Health follows at once.
                self.reports.make_due();
            }
            ToControl::NotGivenUp { pg, osd, objects, object } => {
                let pg = pg.pg;
                let text = format!(
                    "{pg}: osd.{osd} cannot read its copies of unfound objects ({objects}, the first is {object}), which \
                     stay unfound: stop the OSD, declare it lost and repeat `ceph pg {pg} mark_unfound_lost revert`, \
                     or use `delete`"
                );
                self.log(Level::Error, text.clone(), fx);
                self.tell_cluster(now, LogPriority::ERROR, text, fx);
            }
            said @ (ToControl::Drained { .. }
            | ToControl::Stayed { .. }
            | ToControl::Moved { .. }
            | ToControl::Cleared { .. }) => self.on_move_said(now, core, said, fx),
            ToControl::StoreFailed => fx.push(Effect::Fatal { why: "the store failed".into() }),
        }
    }

    /// After a change of the configuration: everything that acts on options has the new values.
    fn follow_options(&mut self, fx: &mut Fx) {
        if std::mem::replace(&mut self.options_seen, self.layers.revision()) == self.layers.revision() {
            return;
        }
        self.options = ControlOptions::read(&self.layers);
        let limits = LimitOptions::read(&self.layers);
        let tracking = TrackingLimits::of(&TrackingOptions::read(&self.layers));
        for core in (0..self.config.cores).map(CoreId) {
            fx.push(Effect::Shard { core, input: shard::Input::Tracking(tracking) });
            fx.push(Effect::Shard { core, input: shard::Input::Limits(Box::new(limits.clone())) });
        }
        fx.push(Effect::Options(Arc::new(self.layers.clone())));
    }

    /// Scheduled scrubs wait while the host has too much to do.
    fn on_host_load(&mut self, load: f64, fx: &mut Fx) {
        let threshold = self.options.scrub_load_threshold;
        let is_busy = threshold > 0.0 && load >= threshold;
        if std::mem::replace(&mut self.is_host_busy, is_busy) != is_busy {
            for core in (0..self.config.cores).map(CoreId) {
                fx.push(Effect::Shard { core, input: shard::Input::HostBusy(is_busy) });
            }
        }
    }

    fn tick(&mut self, now: Time, fx: &mut Fx) {
        if self.ticked_at.is_some_and(|at| now < at + TICK) {
            return;
        }
        self.ticked_at = Some(now);
        if self.mon.credentials(now, EntityKind::OSD).is_some() != self.has_published_credentials {
            self.publish_credentials(now, fx);
        }
        self.live(now, fx);
        self.repeat_wishes(now, fx);
        if self.life.has_loaded() {
            self.save_records(fx);
        }
        self.report(now, fx);
        self.bring_together(now);
        self.balance(now);
        self.look_at_merges(now, fx);
    }

    /// A report that somebody waits for does not wait for the next tick.
    fn report_if_asked(&mut self, now: Time, fx: &mut Fx) {
        if self.reports.is_asked() {
            self.report(now, fx);
        }
    }
}

impl Machine for Control {
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Time, input: Input, fx: &mut Fx) {
        match input {
            Input::Net(event) => self.on_net(now, event, fx),
            Input::Shard { core, said } => self.on_shard(now, core, said, fx),
            Input::Committed { tag } => self.on_own_commit(now, tag, fx),
            Input::Refused { tag, why } => self.on_own_refusal(now, tag, why, fx),
            Input::Read { answers, .. } => self.on_own_read(now, answers, fx),
            Input::Usage { core, usage, compressed } => {
                self.usage.insert(core, usage);
                self.compressed.insert(core, compressed);
            }
            Input::Wall { now: wall } => {
                self.wall = WallClock::new(now, wall);
                for core in (0..self.config.cores).map(CoreId) {
                    fx.push(Effect::Shard { core, input: shard::Input::Wall { now: wall } });
                }
            }
            Input::ProcessorTime { total, host_load } => {
                self.signals.processor.on_reading(now, total);
                self.on_host_load(host_load, fx);
            }
            Input::Progress { core, work } => self.on_progress(now, core, work),
            Input::RestartChecked(checked) => self.on_restart_checked(&checked, fx),
            Input::Stop => self.begin_stop(now, fx),
            Input::Admin { id, command } => self.on_admin(now, id, &command, fx),
            Input::Counters { id } => {
                self.ask_shards(signals::Asker::Host { id }, signals::Kind::Counters, Format::Json, fx);
            }
            Input::Deadline => {
                if self.mon.next_deadline().is_some_and(|at| at <= now) {
                    self.with_mon(now, fx, |mon, wanted| mon.step(now, mon_client::Input::Deadline, wanted));
                }
            }
        }
        self.follow_options(fx);
        self.begin_life(now, fx);
        self.look_at_fence(now, fx);
        self.tell_compression(fx);
        self.tick(now, fx);
        self.report_if_asked(now, fx);
        self.ping_neighbours(now, fx);
        self.look_at_cores(now, fx);
        self.send_pulse(now, fx);
        self.tell_leases(now, fx);
        self.begin_wanted_move(fx);
    }

    fn next_deadline(&self) -> Option<Time> {
        let next = Time::earliest(self.ticked_at.map(|at| at + TICK), self.neighbours_deadline());
        let next = Time::earliest(next, self.pulse_deadline());
        let next = Time::earliest(next, self.stalls.deadline());
        let next = Time::earliest(next, self.life.fence_deadline());
        Time::earliest(self.mon.next_deadline(), next)
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.mon.states(see);
        see("OSD", 0, self.life.phase_name());
        self.moves.states(see);
    }

    fn check(&self) {
        self.mon.check();
        self.life.check(self.is_up());
        self.holdings.check(self.history.map.as_deref());
        let at = |pg: PgId| self.holdings.entries.get(&pg).map(|entry| entry.core);
        self.moves.check(self.config.cores, at);
        let cores = self.usage.keys().chain(self.compressed.keys()).chain(self.reporting_cores());
        cores.for_each(|core| {
            assert!(core.0 < self.config.cores, "core {} reports and does not exist", core.0)
        });
        let last = self.history.lineage.newest_map;
        assert!(last <= self.epoch(), "the store has map {last}, the newest known is {}", self.epoch());
    }
}

#[cfg(test)]
mod senders_tests;
