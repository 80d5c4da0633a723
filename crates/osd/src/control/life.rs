//! Boot, beacons, full states, and stopping: what the monitor must know of us.

use super::history::History;
use super::pg_stats::present_status;
use super::{Control, Effect, Fx, Level, refused_transaction};
use crate::shard;
use command::builds::MERGES_PGS;
use machine::{CoreId, Tag, Time};
use mon_client::{RequestId, TimedOut};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use store::{Answer, ReadError, Refusal, Usage};
use wire::features;
use wire::messages::{
    Body, MMonGetVersion, MOSDBeacon, MOSDBoot, MOSDFull, MOSDMarkMeDown, MOSDPGCreated, PaxosHeader,
};
use wire::types::{Epoch, LogPriority, OsdMap, OsdState, OsdSuperblock, PgId, PgState, PoolFlags};

#[derive(Debug)]
pub(super) struct Life {
    phase: Phase,
    has_meta: bool,
    /// Cores whose shards have not yet said what they hold.
    cores_loading: BTreeSet<CoreId>,
    own_loaded: bool,
    asked_version: Option<RequestId>,
    /// The monitor's newest map when it was last asked.
    newest: Option<Epoch>,
    booted_at: Option<Time>,
    /// When the map that had had this process up had it down.
    marked_down_at: Option<Time>,
    /// All such times of the last `osd_max_markdown_period`.
    markdowns: VecDeque<Time>,
    /// The epoch in which this process was first up; 0 before.
    first_up: Epoch,
    /// It has been logged that no boot is sent for now.
    is_held_back: bool,
    beacon_at: Option<Time>,
    full_told: Option<(u32, Time)>,
    stop_at: Option<Time>,
    /// Cores that may still answer reads, and the time until which the stop waits for them.
    stop_fence: Option<(BTreeSet<CoreId>, Time)>,
    stop_commit: Option<Tag>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing has happened yet.
    New,
    /// The stores are read; the monitor is not called before we know what we hold.
    Loading,
    /// Maps come in until ours is the newest; then we say that we are here.
    Booting,
    Up,
    /// The monitor has been told that we go.
    Stopping,
    Stopped,
}

/// How often a boot message is repeated until the map has us.
const BOOT_AGAIN: Duration = Duration::from_secs(5);
const BEACON_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// An OSD that was marked down and hears no neighbour boots after so long all the same: those that it misses may be dead.
const HELD_BACK_MAX: Duration = Duration::from_secs(60);
/// How long a clean stop waits for the monitor.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How long a clean stop waits for its cores. One that hangs may hold replies, and peers wait for the end of its leases then.
const FENCE_PATIENCE: Duration = Duration::from_millis(500);

impl Life {
    pub fn new(has_meta: bool, cores: u16) -> Life {
        Life {
            phase: Phase::New,
            has_meta,
            cores_loading: (0..cores).map(CoreId).collect(),
            own_loaded: false,
            asked_version: None,
            newest: None,
            booted_at: None,
            marked_down_at: None,
            markdowns: VecDeque::new(),
            first_up: 0,
            is_held_back: false,
            beacon_at: None,
            full_told: None,
            stop_at: None,
            stop_fence: None,
            stop_commit: None,
        }
    }

    #[cfg(test)]
    pub fn pretend_loaded(&mut self) {
        self.phase = Phase::Booting;
    }

    pub fn has_loaded(&self) -> bool {
        !matches!(self.phase, Phase::New | Phase::Loading)
    }

    /// The OSD has begun to stop.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Stopped)
    }

    /// The monitor has this process up, and it is not about to stop.
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// The map has this process down, which lives and wants to come back.
    pub fn is_marked_down(&self) -> bool {
        self.phase == Phase::Booting && self.marked_down_at.is_some()
    }

    pub fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Stopped)
    }

    /// `is_up`: the newest map has this very process up.
    pub fn check(&self, is_up: bool) {
        let has_all = self.own_loaded && self.cores_loading.is_empty();
        assert!(has_all || !matches!(self.phase, Phase::Booting | Phase::Up), "it boots with all PGs known");
        assert!(is_up || self.phase != Phase::Up, "it counts itself up and the map has it down");
        assert!(self.stop_commit.is_none() || self.is_stopping(), "only a stop records that it was clean");
        let is_recorded = self.stop_commit.is_some() || !self.own_loaded;
        assert!(is_recorded || self.phase != Phase::Stopped, "a clean stop is recorded first");
    }

    pub fn fence_deadline(&self) -> Option<Time> {
        self.stop_fence.as_ref().map(|(_, until)| *until)
    }

    /// More exact than [`Life::state_name`], which has stock's words.
    pub fn phase_name(&self) -> &'static str {
        match self.phase {
            Phase::New => "new",
            Phase::Loading => "loading",
            Phase::Booting => "booting",
            Phase::Up => "up",
            Phase::Stopping => "stopping",
            Phase::Stopped => "stopped",
        }
    }

    pub fn state_name(&self) -> &'static str {
        match self.phase {
            Phase::New | Phase::Loading => "initializing",
            Phase::Booting => "booting",
            Phase::Up => "active",
            Phase::Stopping | Phase::Stopped => "stopping",
        }
    }
}

impl Control {
    pub(super) fn begin_life(&mut self, now: Time, fx: &mut Fx) {
        if self.life.phase != Phase::New {
            return;
        }
        self.life.phase = Phase::Loading;
        if self.life.has_meta {
            self.next_tag += 1;
            let tag = machine::ReadTag(self.next_tag);
            fx.push(Effect::Read { tag, request: History::load_request() });
        } else {
            self.submit(History::create(), fx);
            self.life.own_loaded = true;
            self.call_when_loaded(now, fx);
        }
    }

    pub(super) fn on_own_read(&mut self, now: Time, answers: Result<Vec<Answer>, ReadError>, fx: &mut Fx) {
        if self.life.phase == Phase::Stopped {
            return;
        }
        match answers.map_err(|e| e.to_string()).and_then(History::loaded) {
            Ok((history, records)) => {
                let (ours, cluster) = (self.config.osd_fsid, history.lineage.osd_fsid);
                if history.lineage.osd_fsid != Default::default() && cluster != ours {
                    let why = format!("the store belongs to OSD {cluster}, we are {ours}");
                    return fx.push(Effect::Fatal { why });
                }
                self.holdings.read_records(records);
                self.history = history;
                self.life.own_loaded = true;
                self.call_when_loaded(now, fx);
            }
            Err(why) => fx.push(Effect::Fatal { why }),
        }
    }

    pub(super) fn on_loaded(&mut self, now: Time, core: CoreId, fx: &mut Fx) {
        self.life.cores_loading.remove(&core);
        self.call_when_loaded(now, fx);
    }

    fn call_when_loaded(&mut self, now: Time, fx: &mut Fx) {
        if self.life.phase != Phase::Loading || !self.life.own_loaded || !self.life.cores_loading.is_empty() {
            return;
        }
        self.life.phase = Phase::Booting;
        self.holdings.start(self.history.map.as_ref());
        self.history.lineage.osd_fsid = self.config.osd_fsid;
        self.history.lineage.mounted = self.epoch();
        // From the first map on where we have none: who began which PG is in the maps.
        let start = self.epoch() as u64 + 1;
        self.with_mon(now, fx, |mon, wanted| {
            mon.subscribe("osdmap", start, wanted);
            mon.subscribe("mgrmap", 0, wanted);
            mon.subscribe("config", 0, wanted);
            mon.subscribe("osd_pg_creates", 0, wanted);
            mon.start(now, wanted);
        });
    }

    pub(super) fn on_mon_connected(&mut self, now: Time, fx: &mut Fx) {
        self.life.booted_at = None;
        self.life.beacon_at = None;
        // The last messages to the monitor before it may be lost.
        self.wishes.ask_again();
        self.report_failures_again();
        self.ask_newest(now, fx);
    }

    fn ask_newest(&mut self, now: Time, fx: &mut Fx) {
        let ask = MMonGetVersion { handle: 0, what: "osdmap".into() };
        let id = self
            .with_mon(now, fx, |mon, wanted| mon.request(now, ask, Some(Duration::from_secs(30)), wanted));
        self.life.asked_version = Some(id);
    }

    pub(super) fn on_mon_answer(
        &mut self,
        now: Time,
        id: RequestId,
        answer: Result<Body, TimedOut>,
        fx: &mut Fx,
    ) {
        if self.life.asked_version != Some(id) {
            return;
        }
        self.life.asked_version = None;
        if let Ok(Body::MMonGetVersionReply(reply)) = answer {
            self.history.lineage.cluster_fsid = self.mon.fsid();
            self.life.newest = Some(reply.version as Epoch);
            self.boot_when_current(now, fx);
        }
    }

    /// What a new map says of ourselves.
    pub(super) fn on_new_map(&mut self, now: Time, map: &OsdMap, fx: &mut Fx) {
        let is_us = self.is_us(map);
        match self.life.phase {
            Phase::Booting if is_us => {
                self.life.phase = Phase::Up;
                self.life.marked_down_at = None;
                self.life.beacon_at = None;
                let up_from = self.history.lineage.boot_epoch;
                if self.life.first_up == 0 {
                    self.life.first_up = up_from;
                }
                self.log(Level::Info, format!("up since map {up_from}"), fx);
                self.tell_unreadable(now, fx);
            }
            Phase::Up if !is_us => {
                self.log(Level::Warn, format!("map {} has us down though we are not", map.epoch), fx);
                self.life.markdowns.push_back(now);
                if let Some(why) = self.flaps_too_often(now) {
                    self.tell_cluster(now, LogPriority::ERROR, why, fx);
                }
                self.life.phase = Phase::Booting;
                self.life.booted_at = None;
                self.life.marked_down_at = Some(now);
                self.ask_newest(now, fx);
            }
            Phase::Stopping if !is_us => self.finish_stop(now, fx),
            _ => {}
        }
        self.boot_when_current(now, fx);
        self.repeat_wishes(now, fx);
        self.choose_neighbours(map);
        if self.life.beacon_at.is_none() {
            self.live(now, fx);
        }
    }

    /// Text if an OSD that has been marked down so often must stay down: each boot costs its PGs two peerings
    /// (`osd_max_markdown_count`). Stock's OSD stops. This one waits until the period has passed: silence of a second marks it
    /// down, and a switch that fails for minutes must not take OSDs away for good.
    fn flaps_too_often(&mut self, now: Time) -> Option<String> {
        let (period, count_max) = (self.options.max_markdown_period, self.options.max_markdown_count);
        let markdowns = &mut self.life.markdowns;
        while markdowns.front().is_some_and(|at| now.since(*at) > period) {
            markdowns.pop_front();
        }
        let (count, osd) = (markdowns.len(), self.config.osd.0);
        (count as u64 > count_max).then(|| {
            format!(
                "osd.{osd} marked down {count} > osd_max_markdown_count {count_max} times in last {} seconds, \
                 staying down",
                period.as_secs()
            )
        })
    }

    fn boot_when_current(&mut self, now: Time, fx: &mut Fx) {
        let current = self.life.newest.is_some_and(|newest| self.epoch() >= newest);
        let lately = self.life.booted_at.is_some_and(|at| now < at + BOOT_AGAIN);
        if self.life.phase != Phase::Booting || !current || lately {
            return;
        }
        let is_held = self.life.marked_down_at.is_some_and(|at| now < at + HELD_BACK_MAX);
        let is_deaf = is_held && !self.hears_neighbours(now);
        let deaf = || "fewer than a third of the neighbours answer".to_owned();
        let stall = self.stalls.description();
        if let Some(why) = stall.or_else(|| self.flaps_too_often(now)).or_else(|| is_deaf.then(deaf)) {
            if !std::mem::replace(&mut self.life.is_held_back, true) {
                self.log(Level::Warn, format!("not booting: {why}"), fx);
            }
            return;
        }
        self.life.is_held_back = false;
        self.life.booted_at = Some(now);
        let mut metadata = self.config.metadata.clone();
        metadata.insert(MERGES_PGS.into(), "1".into());
        let lineage = &self.history.lineage;
        let epoch = self.epoch();
        let boot = MOSDBoot {
            paxos: PaxosHeader { version: 0 },
            superblock: OsdSuperblock {
                cluster_fsid: lineage.cluster_fsid,
                osd_fsid: self.config.osd_fsid,
                whoami: self.config.osd.0,
                current_epoch: epoch,
                maps: vec![(epoch, 1)],
                clean_thru: lineage.clean_thru,
                mounted: lineage.mounted,
                ..OsdSuperblock::default()
            },
            heartbeat_back_addrs: self.config.addrs.heartbeat_back.clone(),
            cluster_addrs: self.config.addrs.cluster.clone(),
            boot_epoch: self.life.first_up,
            heartbeat_front_addrs: self.config.addrs.heartbeat_front.clone(),
            metadata,
            features: features::SUPPORTED.0,
        };
        self.send_mon(now, boot, fx);
    }

    /// What is repeated while we live.
    pub(super) fn live(&mut self, now: Time, fx: &mut Fx) {
        self.boot_when_current(now, fx);
        if self.life.phase == Phase::Stopping && self.life.stop_at.is_some_and(|at| at <= now) {
            return self.finish_stop(now, fx);
        }
        if self.life.phase != Phase::Up {
            return;
        }
        let interval = self.beacon_interval();
        if self.life.beacon_at.is_none_or(|at| now >= at + interval) {
            self.send_beacon(now, fx);
            self.tell_created_again(now, fx);
        }
        self.tell_fullness(now, fx);
    }

    fn beacon_interval(&self) -> Duration {
        self.options.beacon_interval.max(BEACON_INTERVAL_MIN)
    }

    /// Nothing is sent before the OSD is up: the monitor does not know its process yet.
    pub(super) fn send_beacon(&mut self, now: Time, fx: &mut Fx) {
        if self.life.phase != Phase::Up {
            return;
        }
        self.life.beacon_at = Some(now);
        let (pgs, min_last_epoch_clean) = self.clean_epochs();
        let beacon = MOSDBeacon {
            paxos: PaxosHeader { version: self.epoch() as u64 },
            pgs,
            min_last_epoch_clean,
            last_purged_snaps_scrub: Default::default(),
            beacon_interval_s: self.beacon_interval().as_secs() as i32,
        };
        self.send_mon(now, beacon, fx);
    }

    /// The PGs that this OSD is the primary of, and the oldest of the epochs in which each was last clean: for a PG that is
    /// clean, the present one. The monitor keeps maps from there on. A PG whose shard has not reported is left out, and the
    /// monitor goes by what it heard before.
    pub(super) fn clean_epochs(&self) -> (Vec<PgId>, Epoch) {
        let (mut pgs, mut oldest) = (Vec::new(), self.epoch());
        for (pg, entry) in &self.holdings.entries {
            let report = self.pg_reports.get(pg).filter(|_| entry.primary_since.is_some());
            let Some(report) = report else { continue };
            let status = present_status(Some(report), self.holdings.interval_since(*pg));
            let is_clean = status.is_some_and(|status| status.state.has(PgState::CLEAN));
            let history = &report.history;
            let last_clean = history.last_epoch_clean.max(history.created).min(self.epoch());
            pgs.push(*pg);
            oldest = oldest.min(if is_clean { self.epoch() } else { last_clean });
        }
        (pgs, oldest)
    }

    /// The monitor may not have heard that a new pool's PGs exist: its pool says so while it waits.
    fn tell_created_again(&mut self, now: Time, fx: &mut Fx) {
        let Some(map) = self.history.map.clone() else { return };
        let waits = |pg: &PgId| map.pools.get(&pg.pool).is_some_and(|p| p.flags.has(PoolFlags::CREATING));
        // The monitor believes the acting primary only.
        let primary = |pg: &PgId| self.holdings.entries[pg].primary_since.is_some();
        // A PG whose copies are lost waits for its creation.
        let is_created =
            |pg: &PgId| self.pg_reports.get(pg).is_some_and(|report| report.history.created != 0);
        let held = self.holdings.held().filter(primary).filter(waits).filter(is_created);
        for pg in held.collect::<Vec<_>>() {
            self.send_mon(now, MOSDPGCreated { paxos: PaxosHeader { version: 0 }, pg }, fx);
        }
    }

    /// The monitor turns fullness into flags of the map; what goes beyond the failsafe is refused here at once.
    fn tell_fullness(&mut self, now: Time, fx: &mut Fx) {
        let Some(map) = self.history.map.clone() else { return };
        // As full as the fullest core's store: room in another does not help the PGs that are there.
        let used = |u: Usage| u.total.saturating_sub(u.available) as f64 / u.total as f64;
        let reaches = self.usage.values().map(|usage| usage.within_reach());
        let ratios = reaches.filter(|u| u.total > 0).map(used);
        let Some(ratio) = ratios.reduce(f64::max) else { return };
        let state = if ratio >= map.full_ratio as f64 {
            OsdState::FULL
        } else if ratio >= map.backfillfull_ratio as f64 {
            OsdState::BACKFILLFULL
        } else if ratio >= map.nearfull_ratio as f64 {
            OsdState::NEARFULL
        } else {
            0
        };
        let mask = OsdState::FULL | OsdState::BACKFILLFULL | OsdState::NEARFULL;
        let in_map = map.osd(self.config.osd.0).map_or(0, |row| row.state.0 & mask);
        let lately = self.life.full_told.is_some_and(|(told, at)| told == state && now < at + BOOT_AGAIN);
        if state != in_map && !lately {
            self.life.full_told = Some((state, now));
            let (paxos, map_epoch) = (PaxosHeader { version: map.epoch as u64 }, map.epoch);
            self.send_mon(now, MOSDFull { paxos, map_epoch, state }, fx);
        }
        let failsafe = self.failsafe.judge(self.options.failsafe_full_ratio, ratio);
        let before = std::mem::replace(&mut self.failsafe, failsafe);
        if failsafe.is_full != before.is_full {
            let (ratio, most) = (ratio * 100.0, failsafe.ratio_max * 100.0);
            let what = if failsafe.is_full { "no writes are taken" } else { "writes are taken again" };
            self.log(Level::Warn, format!("store {ratio:.1} % full, {most:.1} % may be: {what}"), fx);
        }
        if failsafe != before {
            self.publish(&map, fx);
        }
    }

    pub(super) fn begin_stop(&mut self, now: Time, fx: &mut Fx) {
        if self.life.is_stopping() {
            return;
        }
        if !self.life.own_loaded {
            // Its records are unknown yet: a write would replace the store's lineage with an empty one.
            self.life.phase = Phase::Stopped;
            fx.push(Effect::Stopped);
            return;
        }
        let was_up = self.life.phase == Phase::Up && self.is_up();
        self.life.phase = Phase::Stopping;
        self.life.stop_at = Some(now + STOP_PATIENCE);
        if !was_up {
            return self.finish_stop(now, fx);
        }
        let cores = (0..self.config.cores).map(CoreId);
        cores.clone().for_each(|core| fx.push(Effect::Shard { core, input: shard::Input::EndLeases }));
        self.life.stop_fence = Some((cores.collect(), now + FENCE_PATIENCE));
    }

    /// The core answers no reads any more.
    pub(super) fn on_leases_ended(&mut self, now: Time, core: CoreId, fx: &mut Fx) {
        if let Some((cores, _)) = &mut self.life.stop_fence {
            cores.remove(&core);
            if cores.is_empty() {
                self.leave(now, true, fx);
            }
        }
    }

    /// A core that hangs does not keep the stop from going on.
    pub(super) fn look_at_fence(&mut self, now: Time, fx: &mut Fx) {
        if self.life.fence_deadline().is_some_and(|at| at <= now) {
            self.leave(now, false, fx);
        }
    }

    /// All cores have ended the use of leases, or one hangs.
    fn leave(&mut self, now: Time, is_dead: bool, fx: &mut Fx) {
        self.life.stop_fence = None;
        if self.life.phase == Phase::Stopping && !self.mark_me_down(now, true, is_dead, fx) {
            self.finish_stop(now, fx);
        }
    }

    /// Asks the monitor to mark this process down. `stops`: it waits for the answer. `is_dead`: it answers no reads any more.
    pub(super) fn mark_me_down(&mut self, now: Time, stops: bool, is_dead: bool, fx: &mut Fx) -> bool {
        let epoch = self.epoch();
        let body = MOSDMarkMeDown {
            paxos: PaxosHeader { version: epoch as u64 },
            fsid: self.mon.fsid(),
            target_osd: self.config.osd.0,
            target_addrs: self.config.addrs.client.clone(),
            epoch,
            request_ack: stops,
            down_and_dead: is_dead,
        };
        self.send_mon(now, body, fx)
    }

    pub(super) fn on_marked_down(&mut self, now: Time, fx: &mut Fx) {
        if self.life.phase == Phase::Stopping {
            self.finish_stop(now, fx);
        }
    }

    fn finish_stop(&mut self, _now: Time, fx: &mut Fx) {
        if self.life.stop_commit.is_some() || self.life.phase == Phase::Stopped {
            return;
        }
        self.history.lineage.clean_thru = self.epoch();
        let transaction = self.history.save_lineage();
        self.life.stop_commit = Some(self.submit(transaction, fx));
    }

    pub(super) fn on_own_commit(&mut self, now: Time, tag: Tag, fx: &mut Fx) {
        if self.life.stop_commit == Some(tag) && self.life.phase == Phase::Stopping {
            self.life.phase = Phase::Stopped;
            fx.push(Effect::Stopped);
        }
        self.on_rebuild_noted(tag, fx);
        self.on_bench_commit(now, tag, fx);
    }

    pub(super) fn on_own_refusal(&mut self, now: Time, tag: Tag, why: Refusal, fx: &mut Fx) {
        if !self.on_bench_refused(now, tag, why, fx) {
            fx.push(Effect::Fatal { why: refused_transaction(why) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Input, testing};
    use super::*;
    use machine::{Effects, Machine, Random, ReadTag};
    use std::sync::Arc;
    use wire::types::{OsdRow, UTime};

    fn step(control: &mut Control, input: Input) -> Vec<Effect> {
        let mut out = Effects::new();
        control.step(Time(1), input, &mut out);
        control.check();
        out.take()
    }

    #[test]
    fn stop_before_records_are_read_leaves_the_lineage() {
        let mut control = Control::new(testing::config(1), true, Random::from_number(1));
        let started = step(&mut control, Input::Wall { now: UTime::ZERO });
        assert!(started.iter().any(|effect| matches!(effect, Effect::Read { .. })), "{started:?}");
        let mut stopped = step(&mut control, Input::Stop);
        stopped.retain(|effect| !matches!(effect, Effect::Look { .. }));
        assert!(matches!(stopped[..], [Effect::Stopped]), "{stopped:?}");
        let late = step(&mut control, Input::Read { tag: ReadTag(1), answers: Ok(Vec::new()) });
        assert!(late.is_empty(), "{late:?}");
    }

    /// osd.0 alone, in this state.
    fn map(epoch: Epoch, state: u32) -> Arc<OsdMap> {
        let mut row = OsdRow { state: OsdState(OsdState::EXISTS | state), ..OsdRow::default() };
        row.info.up_from = epoch;
        Arc::new(OsdMap { epoch, osds: vec![row], ..OsdMap::default() })
    }

    /// The OSD is marked down so many times, at these intervals of seconds, and comes back each time that it may.
    fn after_markdowns(times: u32, every_s: u64) -> Control {
        let mut control = Control::new(testing::config(1), true, Random::from_number(1));
        (control.life.own_loaded, control.life.phase) = (true, Phase::Booting);
        control.life.cores_loading.clear();
        for time in 0..times {
            for (step, state) in [OsdState::UP, 0].into_iter().enumerate() {
                let map = map(10 + 2 * time + step as u32, state);
                control.history.map = Some(map.clone());
                control.history.lineage.boot_epoch = map.epoch - step as u32;
                let now = Time(1) + Duration::from_secs(u64::from(time) * every_s);
                control.on_new_map(now, &map, &mut Effects::new());
            }
        }
        control
    }

    #[test]
    fn osd_that_is_marked_down_too_often_stays_down_for_the_period() {
        let held_at = |times: u32, every_s: u64, later_s: u64| {
            let mut control = after_markdowns(times, every_s);
            assert_eq!(control.life.phase, Phase::Booting);
            let last = Time(1) + Duration::from_secs(u64::from(times - 1) * every_s);
            control.flaps_too_often(last + Duration::from_secs(later_s)).is_some()
        };
        assert!(!held_at(5, 10, 0));
        assert!(held_at(6, 10, 0) && held_at(6, 10, 500), "all within 600 s");
        assert!(!held_at(6, 10, 551), "the first is forgotten");
        assert!(held_at(6, 119, 0) && !held_at(6, 119, 6));
        assert!(!held_at(20, 121, 0));
    }

    #[test]
    fn process_that_lived_on_says_so_when_it_boots() {
        assert_eq!(after_markdowns(0, 1).life.first_up, 0);
        assert_eq!(after_markdowns(3, 1).life.first_up, 10);
    }
}
