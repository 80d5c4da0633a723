//! The watch over OSDs: they boot, beacon, report one another, stop; what follows is a step of the OSDMap.
//!
//! An OSD is marked down when it says so, when its port refuses connections, when enough others have missed it for
//! long enough, or when its own beacons stop. It is marked out when it stays down.

use super::{Monitor, Turn};
use crate::caps::Allow;
use crate::osd_step::{mark_down, sealed, step_after};
use crate::proposal::{Change, Metadata};
use crate::state::State;
use machine::net::NetEffect;
use machine::{ConnId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::messages::{
    Body, MOSDAlive, MOSDBeacon, MOSDBoot, MOSDFailure, MOSDFull, MOSDMarkMeDead, MOSDMarkMeDown,
    MOSDPGCreate2, MOSDPGCreated, MOSDPGTemp, Message, MessageBody,
};
use wire::types::osd_map::MapFlags;
use wire::types::{
    EntityKind, Epoch, LogPriority, OsdMap, OsdMapIncremental, OsdState, PgId, PoolFlags, Release, SpgId,
    UTime,
};

/// Until an OSD has said how often it beacons.
const BEACON_INTERVAL_DEFAULT_S: u64 = 300;
/// A shorter grace would mark OSDs down that are merely busy.
const GRACE_MIN: Duration = Duration::from_secs(1);
/// Beacons that may be missed in a row.
const BEACONS_MISSED_MAX: u64 = 3;

#[derive(Clone, Copy, Debug)]
struct Beacon {
    at: Time,
    interval_s: u64,
}

/// OSDs that report another as failed, with the time of the failure by their own account.
type Reporters = BTreeMap<i32, Time>;

#[derive(Debug, Default)]
pub(super) struct OsdWatch {
    beacons: BTreeMap<i32, Beacon>,
    failures: BTreeMap<i32, Reporters>,
    /// OSDs that are down and in, since when this monitor has seen them so.
    down_since: BTreeMap<i32, Time>,
}

impl OsdWatch {
    /// Every OSD gets a full grace after a start of the monitor.
    pub fn start(state: &State, now: Time) -> OsdWatch {
        let map = state.osdmap();
        let beacon = Beacon { at: now, interval_s: BEACON_INTERVAL_DEFAULT_S };
        OsdWatch {
            beacons: map.osd_ids().filter(|&o| map.is_up(o)).map(|o| (o, beacon)).collect(),
            ..OsdWatch::default()
        }
    }
}

impl Monitor {
    /// True when it was an OSD's.
    pub(super) fn on_osd_message(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        tid: u64,
        body: &Body,
    ) -> bool {
        let from = self.osd_of(conn);
        if from.is_none() && body.senders(EntityKind::MON).is_only(EntityKind::OSD) {
            let what = format!("{}, without the capability to act as an OSD", body.name());
            self.refuse(turn, conn, body.kind(), &what);
            return true;
        }
        match body {
            Body::MOSDBoot(m) => self.on_boot(turn, conn, m),
            Body::MOSDPGCreated(m) => self.on_pg_created(turn, from, m),
            Body::MOSDAlive(m) => self.on_alive(turn, conn, from, m),
            Body::MOSDBeacon(m) => self.on_beacon(turn, conn, from, m),
            Body::MOSDFailure(m) => self.on_failure(turn, conn, from, m),
            Body::MOSDMarkMeDown(m) => self.on_mark_me_down(turn, conn, tid, from, m),
            Body::MOSDMarkMeDead(m) => self.on_mark_me_dead(turn, conn, from, m),
            Body::MOSDPGTemp(m) => self.on_pg_temp(turn, conn, from, m),
            Body::MOSDFull(m) => self.on_full(turn, conn, from, m),
            _ => return false,
        }
        true
    }

    /// The OSD at the other end, when it may act as one.
    fn osd_of(&self, conn: ConnId) -> Option<i32> {
        let session = self.sessions.get(&conn)?;
        session.peer.identity.osd().filter(|_| session.may("osd", Allow::X))
    }

    pub(super) fn propose_step(
        &mut self,
        turn: &Turn<'_>,
        step: OsdMapIncremental,
        more: Vec<Change>,
    ) -> Option<u64> {
        let mut changes = vec![sealed(step, self.head.osdmap())?];
        changes.extend(more);
        Some(self.propose(turn.now, changes))
    }

    /// Sends the peer the maps from `first` on once everything proposed so far holds.
    fn send_maps_later(&mut self, turn: &mut Turn<'_>, conn: ConnId, first: Epoch) {
        if self.last_proposed <= self.committed.version {
            self.send_osdmaps_since(turn, conn, first);
        } else {
            self.maps_owed.push((self.last_proposed, conn, first));
        }
    }

    /// Maps promised to peers whose change now holds.
    pub(super) fn send_owed_maps(&mut self, turn: &mut Turn<'_>) {
        let version = self.committed.version;
        let (due, later) =
            std::mem::take(&mut self.maps_owed).into_iter().partition(|(at, ..)| *at <= version);
        self.maps_owed = later;
        let due: Vec<(u64, ConnId, Epoch)> = due;
        for (_, conn, first) in due {
            self.send_osdmaps_since(turn, conn, first);
        }
    }

    fn on_boot(&mut self, turn: &mut Turn<'_>, conn: ConnId, m: &MOSDBoot) {
        let Some(osd) = self.osd_of(conn) else { return };
        if m.superblock.whoami != osd {
            let what = format!("a boot of osd.{}", m.superblock.whoami);
            return self.refuse(turn, conn, MOSDBoot::TYPE, &what);
        }
        let Some(session) = self.sessions.get(&conn) else { return };
        let addrs = session.peer.addrs.clone();
        let map = self.head.osdmap();
        let fits = (m.superblock.cluster_fsid == self.head.monmap.fsid)
            && map.exists(osd)
            && !map.flags.has(MapFlags::NOUP)
            && !self.head.osdmap().osds[osd as usize].state.has(OsdState::NOUP);
        let uuid = map.osd(osd).map(|row| row.uuid).unwrap_or_default();
        let is_other = uuid != Default::default() && uuid != m.superblock.osd_fsid;
        if !fits || is_other {
            return;
        }
        let row = &map.osds[osd as usize];
        if map.is_up(osd) && row.addrs.client == addrs && row.addrs.cluster == m.cluster_addrs {
            let first = m.superblock.current_epoch + 1;
            self.beacon(osd, turn.now);
            self.send_maps_later(turn, conn, first);
            return;
        }
        let now = self.wall(turn.now);
        if map.is_up(osd) {
            // Its former life never said goodbye.
            let mut down = step_after(map, now);
            mark_down(map, &mut down, osd, now);
            self.propose_step(turn, down, Vec::new());
        }
        let map = self.head.osdmap();
        let row = &map.osds[osd as usize];
        let mut step = step_after(map, now);
        step.new_up_client.insert(osd, addrs.clone());
        step.new_up_cluster.insert(osd, m.cluster_addrs.clone());
        step.new_heartbeat_back_up.insert(osd, m.heartbeat_back_addrs.clone());
        step.new_heartbeat_front_up.insert(osd, m.heartbeat_front_addrs.clone());
        step.new_last_up_change = now;
        if uuid != m.superblock.osd_fsid {
            step.new_uuid.insert(osd, m.superblock.osd_fsid);
        }
        let clean = (m.superblock.mounted, m.superblock.clean_thru);
        if clean > (row.info.last_clean_begin, row.info.last_clean_end) {
            step.new_last_clean_interval.insert(osd, clean);
        }
        let mut xinfo = row.xinfo;
        xinfo.features = m.features;
        xinfo.last_purged_snaps_scrub = m.superblock.last_purged_snaps_scrub;
        let comes_in = (self.options.osd_auto_mark_auto_out_in && row.state.has(OsdState::AUTOOUT))
            || (self.options.osd_auto_mark_new_in && row.state.has(OsdState::NEW))
            || self.options.osd_auto_mark_in;
        if comes_in && !map.flags.has(MapFlags::NOIN) && !row.state.has(OsdState::NOIN) {
            let weight = if xinfo.old_weight > 0 { xinfo.old_weight } else { OsdMap::WEIGHT_IN };
            xinfo.old_weight = 0;
            step.new_weight.insert(osd, weight);
            step.new_last_in_change = now;
        }
        step.new_xinfo.insert(osd, xinfo);
        let metadata: Metadata = m.metadata.clone();
        let line = format!("osd.{osd} {addrs} boot");
        let more = vec![
            Change::OsdMetadata { osd, metadata: Some(metadata) },
            self.log_change(now, LogPriority::INFO, "cluster", line),
        ];
        self.propose_step(turn, step, more);
        self.beacon(osd, turn.now);
        self.osd.failures.remove(&osd);
        self.osd.down_since.remove(&osd);
        self.send_maps_later(turn, conn, m.superblock.current_epoch + 1);
    }

    fn beacon(&mut self, osd: i32, now: Time) {
        let interval_s = self.osd.beacons.get(&osd).map_or(BEACON_INTERVAL_DEFAULT_S, |b| b.interval_s);
        self.osd.beacons.insert(osd, Beacon { at: now, interval_s });
    }

    fn on_beacon(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDBeacon) {
        let Some(osd) = from else { return };
        if !self.head.osdmap().is_up(osd) {
            // It does not know that it was marked down.
            self.send_maps_later(turn, conn, m.paxos.version as Epoch + 1);
            return;
        }
        let interval_s = match u64::try_from(m.beacon_interval_s) {
            Ok(0) | Err(_) => BEACON_INTERVAL_DEFAULT_S,
            Ok(s) => s,
        };
        self.osd.beacons.insert(osd, Beacon { at: turn.now, interval_s });
    }

    fn on_alive(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDAlive) {
        let Some(osd) = from else { return };
        let map = self.head.osdmap();
        if !map.is_up(osd) {
            return;
        }
        // Everything up to the map that the OSD works with is granted at once.
        let grant = (m.paxos.version as Epoch).max(m.want).min(map.epoch);
        if map.osds[osd as usize].info.up_thru < m.want {
            let mut step = step_after(map, self.wall(turn.now));
            step.new_up_thru.insert(osd, grant);
            self.propose_step(turn, step, Vec::new());
        }
        self.send_maps_later(turn, conn, m.paxos.version as Epoch + 1);
    }

    fn on_failure(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDFailure) {
        let Some(reporter) = from else { return };
        let target = m.target_osd;
        let map = self.head.osdmap();
        if !map.is_up(reporter) || m.fsid != self.head.monmap.fsid {
            return;
        }
        if !map.is_up(target) || map.osds[target as usize].addrs.client != m.target_addrs {
            self.send_maps_later(turn, conn, m.epoch + 1);
            return;
        }
        if m.flags & MOSDFailure::FAILED == 0 {
            if let Some(reporters) = self.osd.failures.get_mut(&target) {
                reporters.remove(&reporter);
            }
            return;
        }
        if m.flags & MOSDFailure::IMMEDIATE != 0 {
            self.fail(turn, target, &format!("failed (connection refused reported by osd.{reporter})"));
            return;
        }
        let failed_for = Duration::from_secs(m.failed_for_s.max(0) as u64);
        let since = Time(turn.now.0.saturating_sub(failed_for.as_nanos() as u64));
        self.osd.failures.entry(target).or_default().insert(reporter, since);
        self.judge(turn, target);
    }

    /// Marks an OSD down when enough others, in enough places, have missed it for long enough.
    fn judge(&mut self, turn: &mut Turn<'_>, target: i32) {
        let Some(reporters) = self.osd.failures.get(&target) else { return };
        let grace = self.options.osd_heartbeat_grace.max(GRACE_MIN);
        let level = &self.options.osd_reporter_subtree_level;
        let crush = &self.head.osdmap().crush;
        let place = |osd: i32| {
            let path = crate::crush::location(crush, osd);
            path.into_iter().find(|(kind, _)| kind == level).map_or(format!("osd.{osd}"), |(_, name)| name)
        };
        let places: BTreeSet<String> = reporters.keys().map(|&r| place(r)).collect();
        let longest = reporters.values().map(|&since| turn.now.since(since)).max().unwrap_or_default();
        let enough = places.len() as u64 >= self.options.osd_min_down_reporters.max(1);
        if enough && longest >= grace {
            let text = format!(
                "failed ({} reporters from different {level} after {:.6} >= grace {:.6})",
                places.len(),
                longest.as_secs_f64(),
                grace.as_secs_f64()
            );
            self.fail(turn, target, &text);
        }
    }

    fn can_mark_down(&self, osd: i32) -> bool {
        let map = self.head.osdmap();
        map.is_up(osd)
            && !map.flags.has(MapFlags::NODOWN)
            && !map.osds[osd as usize].state.has(OsdState::NODOWN)
    }

    fn fail(&mut self, turn: &mut Turn<'_>, osd: i32, why: &str) {
        if !self.can_mark_down(osd) {
            return;
        }
        let now = self.wall(turn.now);
        let map = self.head.osdmap();
        let mut step = step_after(map, now);
        mark_down(map, &mut step, osd, now);
        let place = crate::crush::location(&map.crush, osd);
        let place: Vec<_> = place.iter().map(|(kind, name)| format!("{kind}={name}")).collect();
        let line = format!("osd.{osd} {why} ({})", place.join(","));
        let more = vec![self.log_change(now, LogPriority::INFO, "cluster", line)];
        self.propose_step(turn, step, more);
        self.osd.failures.remove(&osd);
        self.osd.beacons.remove(&osd);
    }

    fn on_mark_me_down(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        tid: u64,
        from: Option<i32>,
        m: &MOSDMarkMeDown,
    ) {
        let Some(osd) = from.filter(|osd| *osd == m.target_osd) else { return };
        let map = self.head.osdmap();
        if map.is_up(osd) && map.osds[osd as usize].addrs.client == m.target_addrs && self.can_mark_down(osd)
        {
            let now = self.wall(turn.now);
            let mut step = step_after(map, now);
            mark_down(map, &mut step, osd, now);
            if m.down_and_dead
                && let Some(xinfo) = step.new_xinfo.get_mut(&osd)
            {
                xinfo.dead_epoch = m.epoch;
            }
            let line =
                format!("osd.{osd} marked itself {}", if m.down_and_dead { "down and dead" } else { "down" });
            let more = vec![self.log_change(now, LogPriority::INFO, "cluster", line)];
            self.propose_step(turn, step, more);
            self.osd.beacons.remove(&osd);
        }
        if m.request_ack {
            let ack = MOSDMarkMeDown { request_ack: false, ..m.clone() };
            let index = self.last_proposed;
            let message = Message::with_tid(tid, ack);
            self.answer_at(turn, index, NetEffect::Send { conn, message });
        }
    }

    fn on_mark_me_dead(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDMarkMeDead) {
        let Some(osd) = from.filter(|osd| *osd == m.target_osd) else { return };
        let map = self.head.osdmap();
        if map.exists(osd) && !map.is_up(osd) {
            let mut step = step_after(map, self.wall(turn.now));
            let mut xinfo = map.osds[osd as usize].xinfo;
            xinfo.dead_epoch = m.epoch;
            step.new_xinfo.insert(osd, xinfo);
            self.propose_step(turn, step, Vec::new());
        }
        self.send_maps_later(turn, conn, m.epoch + 1);
    }

    fn on_full(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDFull) {
        const MASK: u32 = OsdState::FULL | OsdState::NEARFULL | OsdState::BACKFILLFULL;
        let Some(osd) = from else { return };
        let map = self.head.osdmap();
        if !map.is_up(osd) {
            return;
        }
        let flip = (map.osds[osd as usize].state.0 ^ m.state) & MASK;
        if flip != 0 {
            let mut step = step_after(map, self.wall(turn.now));
            step.new_state.insert(osd, flip);
            self.propose_step(turn, step, Vec::new());
            self.tick_fullness(turn);
        }
        self.send_maps_later(turn, conn, m.map_epoch + 1);
    }

    fn on_pg_temp(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDPGTemp) {
        let Some(osd) = from else { return };
        let map = self.head.osdmap();
        if !map.is_up(osd) {
            return;
        }
        let mut step = step_after(map, self.wall(turn.now));
        for (pg, wanted) in &m.pg_temp {
            let known = map.pools.get(&pg.pool).is_some_and(|pool| pg.seed < pool.pg_num);
            let real = wanted.iter().all(|&o| map.exists(o) && map.is_up(o));
            let current = map.pg_temp.get(pg);
            let differs = match current {
                Some(current) => current != wanted,
                None => !wanted.is_empty(),
            };
            if known && real && differs {
                step.new_pg_temp.insert(*pg, wanted.clone());
            }
        }
        if !step.new_pg_temp.is_empty() {
            if map.osds[osd as usize].info.up_thru < m.map_epoch {
                step.new_up_thru.insert(osd, m.map_epoch.min(map.epoch));
            }
            self.propose_step(turn, step, Vec::new());
        }
        self.send_maps_later(turn, conn, m.map_epoch + 1);
    }

    fn on_pg_created(&mut self, turn: &mut Turn<'_>, from: Option<i32>, m: &MOSDPGCreated) {
        if from.is_none() || !self.head.osd.creating.contains_key(&m.pg) {
            return;
        }
        let mut changes = vec![Change::PgCreated { pg: m.pg }];
        let mut left = self.head.osd.creating.keys().filter(|pg| pg.pool == m.pg.pool);
        let is_last = left.all(|pg| *pg == m.pg);
        let map = self.head.osdmap();
        if is_last
            && let Some(pool) = map.pools.get(&m.pg.pool)
            && pool.flags.has(PoolFlags::CREATING)
        {
            let mut pool = pool.clone();
            pool.flags.set(PoolFlags::CREATING, false);
            let mut step = step_after(map, self.wall(turn.now));
            pool.last_change = step.epoch;
            step.new_pools.insert(m.pg.pool, pool);
            changes.extend(sealed(step, map));
        }
        self.propose(turn.now, changes);
    }

    /// Groups of new pools whose primary the subscriber is.
    pub(super) fn serve_pg_creates(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> Option<u64> {
        let osd = self.osd_of(conn)?;
        let next = self.wanted(conn, "osd_pg_creates")?;
        let history = &self.committed.osd;
        let map = history.map();
        if !map.is_up(osd) || u64::from(map.epoch) < next {
            return None;
        }
        let mut mapper = placement::Mapper::default();
        let mut mine = |pg: PgId| mapper.map(map, pg).acting_primary == osd;
        // A group that moved here since is told about again: only who has it answers.
        let pgs: BTreeMap<SpgId, (Epoch, UTime)> = history
            .creating
            .iter()
            .filter(|(pg, _)| mine(**pg))
            .map(|(pg, since)| (SpgId::from(*pg), *since))
            .collect();
        if !pgs.is_empty() {
            turn.send(conn, MOSDPGCreate2 { epoch: map.epoch, pgs });
        }
        Some(u64::from(map.epoch) + 1)
    }

    pub(super) fn tick_osds(&mut self, turn: &mut Turn<'_>) {
        self.tick_beacons(turn);
        let suspects: Vec<i32> = self.osd.failures.keys().copied().collect();
        for osd in suspects {
            self.judge(turn, osd);
        }
        self.tick_down_to_out(turn);
        self.tick_features(turn);
    }

    fn tick_beacons(&mut self, turn: &mut Turn<'_>) {
        let heartbeat_s = self.options.osd_heartbeat_grace.max(GRACE_MIN).as_secs();
        let report_s = self.options.osd_report_timeout.as_secs().max(heartbeat_s);
        let silent: Vec<(i32, u64)> = self
            .osd
            .beacons
            .iter()
            .filter_map(|(&osd, beacon)| {
                let allowed_s = (beacon.interval_s * BEACONS_MISSED_MAX).clamp(heartbeat_s, report_s);
                let silent_s = turn.now.since(beacon.at).as_secs();
                (silent_s >= allowed_s).then_some((osd, silent_s))
            })
            .collect();
        for (osd, silent_s) in silent {
            self.fail(turn, osd, &format!("marked down after no beacon for {silent_s} seconds"));
            self.osd.beacons.remove(&osd);
        }
    }

    fn tick_down_to_out(&mut self, turn: &mut Turn<'_>) {
        let map = self.head.osdmap();
        let down_in: BTreeSet<i32> = map.osd_ids().filter(|&o| !map.is_up(o) && map.is_in(o)).collect();
        self.osd.down_since.retain(|osd, _| down_in.contains(osd));
        for &osd in &down_in {
            self.osd.down_since.entry(osd).or_insert(turn.now);
        }
        let interval = self.options.osd_down_out_interval;
        if interval.is_zero() || map.flags.has(MapFlags::NOOUT) {
            return;
        }
        let (all, _, inside) = map.osd_counts();
        let least = self.options.osd_min_in_ratio * all as f64;
        let now = self.wall(turn.now);
        let mut step = step_after(map, now);
        let mut lines = Vec::new();
        for (&osd, &since) in &self.osd.down_since {
            let row = &map.osds[osd as usize];
            let left = inside as f64 - step.new_weight.len() as f64;
            let due = turn.now.since(since) >= interval;
            if !due || left - 1.0 < least || row.state.has(OsdState::NOOUT) {
                continue;
            }
            step.new_weight.insert(osd, 0);
            step.new_last_in_change = now;
            if !row.state.has(OsdState::AUTOOUT) {
                step.new_state.insert(osd, OsdState::AUTOOUT);
            }
            let mut xinfo = row.xinfo;
            xinfo.old_weight = row.weight;
            step.new_xinfo.insert(osd, xinfo);
            lines.push(format!(
                "Marking osd.{osd} out (has been down for {} seconds)",
                turn.now.since(since).as_secs()
            ));
        }
        if lines.is_empty() {
            return;
        }
        let more =
            lines.into_iter().map(|line| self.log_change(now, LogPriority::INFO, "cluster", line)).collect();
        self.propose_step(turn, step, more);
    }

    /// Blocklist entries that have run out, and the release that all OSDs have.
    fn tick_features(&mut self, turn: &mut Turn<'_>) {
        let now = self.wall(turn.now);
        let map = self.head.osdmap();
        let mut step = step_after(map, now);
        let over = |until: &UTime| *until < now;
        step.old_blocklist = map.blocklist.iter().filter(|(_, u)| over(u)).map(|(a, _)| *a).collect();
        step.old_range_blocklist =
            map.range_blocklist.iter().filter(|(_, u)| over(u)).map(|(a, _)| *a).collect();
        if map.require_osd_release < Release::TENTACLE && map.epoch == 0 {
            return;
        }
        if !step.old_blocklist.is_empty() || !step.old_range_blocklist.is_empty() {
            self.propose_step(turn, step, Vec::new());
        }
    }
}
