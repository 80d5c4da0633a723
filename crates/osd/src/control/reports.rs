//! Reports to the manager: every PG that this OSD is the primary of, and the store's space.

use super::holdings::Holding;
use super::pg_stats::{self, Forced, Reported, Stamps};
use super::{Control, Fx, Level};
use crate::shard;
use bytes::Bytes;
use codec::{Encode, Features};
use command::iec::iec_bytes;
use command::options::report;
use machine::net::{NetEffect, Policy};
use machine::{ConnId, CoreId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::{Compressed, Usage};
use wire::messages::{
    MLog, MMgrConfigure, MMgrOpen, MOSDForceRecovery, MOSDScrub2, MPGStats, Message, PaxosHeader,
};
use wire::types::{
    AuthName, EntityAddrVec, EntityKind, EntityName, LogEntry, LogPriority, MgrMap, OsdStat, PerfQueries,
    PgId, PgStat, PgState, StoreStatfs, UTime,
};

#[derive(Default)]
pub(super) struct Reports {
    manager: Option<MgrMap>,
    conn: Option<ConnId>,
    ready: bool,
    called_at: Option<Time>,
    /// As the manager asked.
    period: Option<Duration>,
    /// Lowest priority of the counters that the manager wants.
    pub(super) threshold: u32,
    reported_at: Option<Time>,
    /// The revision of the options that the manager has.
    options_told: u64,
    /// Shards that have not answered the present round.
    awaiting: BTreeSet<CoreId>,
    seq: u64,
    /// Of the last line for the cluster's log.
    said_seq: u64,
    /// Of the PGs that this OSD was the primary of in the last report.
    stamps: BTreeMap<PgId, Stamps>,
    /// PGs to which operators gave priority.
    forced: BTreeMap<PgId, Forced>,
}

impl Reports {
    #[cfg(test)]
    pub fn asked_period(&self) -> Option<Duration> {
        self.period
    }

    /// The next round begins at once.
    pub fn make_due(&mut self) {
        self.reported_at = None;
    }

    /// A round was made due before its time, and the manager is there.
    pub fn is_asked(&self) -> bool {
        self.reported_at.is_none() && self.ready
    }
}

/// Time between reports until the manager names one (`mgr_stats_period`).
const PERIOD_DEFAULT: Duration = Duration::from_secs(5);
const CALL_AGAIN: Duration = Duration::from_secs(2);

impl Control {
    pub(super) fn on_mgr_map(&mut self, now: Time, map: MgrMap, fx: &mut Fx) {
        self.with_mon(now, fx, |mon, _| mon.got("mgrmap", map.epoch as u64));
        let same = self
            .reports
            .manager
            .as_ref()
            .is_some_and(|m| m.active_gid == map.active_gid && m.active_addrs == map.active_addrs);
        self.reports.manager = Some(map);
        if !same {
            if let Some(conn) = self.reports.conn.take() {
                fx.push(super::Effect::Net(NetEffect::Close { conn }));
                self.set_queries(&PerfQueries::new(), fx);
            }
            self.reports.called_at = None;
            self.call_manager(now, fx);
        }
    }

    pub(super) fn on_tickets(&mut self, now: Time, fx: &mut Fx) {
        self.call_manager(now, fx);
    }

    fn call_manager(&mut self, now: Time, fx: &mut Fx) {
        let Some(map) = &self.reports.manager else { return };
        let addrs: EntityAddrVec = map.active_addrs.clone();
        let lately = self.reports.called_at.is_some_and(|at| now < at + CALL_AGAIN);
        if self.reports.conn.is_some() || lately || map.active_gid == 0 || addrs.0.is_empty() {
            return;
        }
        let Some(credentials) = self.mon.credentials(now, EntityKind::MGR) else { return };
        self.reports.called_at = Some(now);
        let conn = self.new_conn();
        self.reports.conn = Some(conn);
        self.reports.ready = false;
        let (kind, policy) = (EntityKind::MGR, Policy::Lossy);
        fx.push(super::Effect::Net(NetEffect::Connect {
            conn,
            to: addrs,
            kind,
            policy,
            credentials: credentials.into(),
        }));
    }

    pub(super) fn on_mgr_ready(&mut self, conn: ConnId, fx: &mut Fx) {
        if self.reports.conn != Some(conn) {
            return;
        }
        self.reports.ready = true;
        self.forget_declarations();
        let open = MMgrOpen {
            daemon_name: self.config.osd.0.to_string(),
            config: self.tell_options(),
            config_defaults: report::defaults().to_vec(Features::ALL).into(),
            ..MMgrOpen::default()
        };
        self.send(conn, Message::new(open), fx);
        // Not after a period, but at once: a person may be looking.
        self.reports.reported_at = None;
    }

    pub(super) fn on_mgr_closed(&mut self, conn: ConnId, fx: &mut Fx) {
        if self.reports.conn == Some(conn) {
            self.reports.conn = None;
            self.reports.ready = false;
            // The next manager, or this one, asks again.
            self.set_queries(&PerfQueries::new(), fx);
        }
    }

    pub(super) fn on_mgr_configure(
        &mut self,
        now: Time,
        conn: ConnId,
        configure: &MMgrConfigure,
        fx: &mut Fx,
    ) {
        if self.reports.conn == Some(conn) {
            self.reports.period = Some(Duration::from_secs(configure.period_sec.max(1) as u64));
            self.reports.threshold = configure.threshold;
            self.set_queries(&configure.queries, fx);
            self.report(now, fx);
        }
    }

    /// Begins a round of reports when one is due: first the shards are asked.
    pub(super) fn report(&mut self, now: Time, fx: &mut Fx) {
        self.call_manager(now, fx);
        let period = self.reports.period.unwrap_or(PERIOD_DEFAULT);
        let due = self.reports.reported_at.is_none_or(|at| now >= at + period);
        if !self.reports.ready || !due || !self.is_up() {
            return;
        }
        self.reports.reported_at = Some(now);
        self.reports.awaiting = (0..self.config.cores).map(CoreId).collect();
        for core in (0..self.config.cores).map(CoreId) {
            fx.push(super::Effect::Shard { core, input: shard::Input::Report });
        }
    }

    pub(super) fn on_shard_report(&mut self, now: Time, core: CoreId, fx: &mut Fx) {
        if !self.reports.awaiting.remove(&core) || !self.reports.awaiting.is_empty() {
            return;
        }
        let Some(conn) = self.reports.conn.filter(|_| self.reports.ready) else { return };
        let mut report = self.mgr_report(now, fx);
        if self.reports.options_told != self.layers.revision() {
            report.config = self.tell_options();
        }
        self.send(conn, Message::new(report), fx);
        self.reports.seq += 1;
        let wall = self.wall.at(now);
        let stats = MPGStats {
            paxos: PaxosHeader { version: 0 },
            fsid: self.mon.fsid(),
            osd: self.osd_stat(),
            pgs: self.pg_stats(wall),
            epoch: self.epoch(),
            had_map_for: UTime::ZERO,
            pools: self.pool_statfs(),
        };
        self.send(conn, Message::new(stats), fx);
    }

    /// The configuration for `ceph config show`.
    fn tell_options(&mut self) -> Bytes {
        self.reports.options_told = self.layers.revision();
        self.layers.report().to_vec(Features::ALL).into()
    }

    /// A line for the cluster's log. Lost where there is no connection: the daemon's own log has it too.
    pub(super) fn tell_cluster(&mut self, now: Time, priority: LogPriority, message: String, fx: &mut Fx) {
        let stamp = self.wall.at(now);
        // Greater than all before it, also than those of this OSD's last run.
        let seq = (stamp.as_nanos() / 1_000_000).max(self.reports.said_seq + 1);
        self.reports.said_seq = seq;
        let entry = LogEntry {
            name: AuthName::new(EntityKind::OSD, self.config.osd.0.to_string()),
            rank: EntityName::new(EntityKind::OSD, i64::from(self.config.osd.0)),
            addrs: self.config.addrs.client.clone(),
            stamp,
            seq,
            priority,
            message,
            channel: "cluster".into(),
        };
        let fsid = self.mon.fsid();
        self.send_mon(now, MLog { paxos: PaxosHeader { version: 0 }, fsid, entries: vec![entry] }, fx);
    }

    /// A copy of a PG is not served from here. The cluster log has it too, once this OSD is up.
    pub(super) fn found_unreadable(&mut self, pg: PgId, why: &str, fx: &mut Fx) {
        let osd = self.config.osd.0;
        let text = format!(
            "{pg}: osd.{osd} cannot read its copy and does not serve it ({why}). It gets a new copy when min_size other \
             copies are whole and the PG has no unfound or damaged objects"
        );
        self.log(Level::Error, text.clone(), fx);
        self.unreadable_pgs.push(text);
    }

    pub(super) fn tell_unreadable(&mut self, now: Time, fx: &mut Fx) {
        if !self.life.is_up() {
            return;
        }
        for text in std::mem::take(&mut self.unreadable_pgs) {
            self.tell_cluster(now, LogPriority::ERROR, text, fx);
        }
    }

    pub(super) fn osd_stat(&self) -> OsdStat {
        let mut statfs = StoreStatfs::default();
        // The cores' shards share one pool.
        let pooled = self.usage.values().map(|usage| usage.pooled).max().unwrap_or(0);
        (statfs.total, statfs.available) = (pooled, pooled);
        for usage in self.usage.values() {
            statfs.total += usage.total;
            statfs.available += usage.available;
            statfs.allocated += usage.data as i64;
            statfs.data_stored += usage.data as i64;
            statfs.omap_allocated += usage.omap as i64;
            statfs.internal_metadata += usage.metadata as i64;
        }
        for (_, compressed) in self.compressed.values().flatten() {
            add_compressed(&mut statfs, compressed);
        }
        let boot = self.history.lineage.boot_epoch;
        let in_flight = self.ops_in_flight();
        OsdStat {
            statfs,
            hb_peers: self.heartbeat_peers(),
            up_from: boot,
            seq: (boot as u64) << 32 | (self.reports.seq & 0xffff_ffff),
            num_pgs: self.pg_roles().all() as u32,
            op_queue_age_hist: in_flight.ages,
            // The store has one latency: what is visible is durable.
            commit_latency_ns: self.commit_mean_ns(),
            apply_latency_ns: self.commit_mean_ns(),
            num_osds: 1,
            num_per_pool_osds: 1,
            num_per_pool_omap_osds: 1,
            ping_times: self.ping_times(),
            alerts: self.store_alerts(),
            ..OsdStat::default()
        }
    }

    /// Stock's warnings of an object store, by OSD and code.
    fn store_alerts(&self) -> BTreeMap<i32, BTreeMap<String, String>> {
        let sum = |of: fn(&Usage) -> u64| self.usage.values().map(of).sum::<u64>();
        let spilled = sum(|usage| usage.spilled);
        if spilled == 0 || !self.options.warns_on_spillover {
            return BTreeMap::new();
        }
        let text = format!(
            "spilled over {} metadata from 'db' device ({} used of {}) to slow device",
            iec_bytes(spilled),
            iec_bytes(sum(|usage| usage.db_used)),
            iec_bytes(sum(|usage| usage.db_total))
        );
        BTreeMap::from([(self.config.osd.0, BTreeMap::from([("BLUEFS_SPILLOVER".to_owned(), text)]))])
    }

    /// The copies here by this OSD's role. Backfill targets outside of the acting set count as strays, as stock counts them.
    pub(super) fn pg_roles(&self) -> PgRoles {
        let mut roles = PgRoles::default();
        for entry in self.holdings.entries.values().filter(|entry| entry.holding != Holding::Named) {
            if entry.primary_since.is_some() {
                roles.primary += 1;
            } else if entry.holding == Holding::Held && entry.placement.acting.contains(&self.config.osd.0) {
                roles.replica += 1;
            } else {
                roles.stray += 1;
            }
        }
        roles
    }

    pub(super) fn pool_statfs(&self) -> BTreeMap<i64, StoreStatfs> {
        let mut out: BTreeMap<i64, StoreStatfs> = BTreeMap::new();
        let mut omap_objects: BTreeMap<i64, u64> = BTreeMap::new();
        for report in self.pg_reports.values() {
            if self.holdings.entries.get(&report.pg.pg).is_none_or(|e| e.holding != Holding::Held) {
                continue;
            }
            let pool = out.entry(report.pg.pg.pool).or_default();
            pool.allocated += report.stats.bytes.max(0);
            pool.data_stored += report.stats.bytes.max(0);
            *omap_objects.entry(report.pg.pg.pool).or_default() += report.stats.omap_objects.max(0) as u64;
        }
        let omap_bytes = self.usage.values().map(|usage| usage.omap).sum();
        for (pool, bytes) in shared_by_weight(omap_bytes, &omap_objects) {
            out.entry(pool).or_default().omap_allocated = bytes as i64;
        }
        for (pool, compressed) in self.compressed.values().flatten() {
            if let Some(pool) = out.get_mut(pool) {
                add_compressed(pool, compressed);
            }
        }
        out
    }

    fn pg_stats(&mut self, wall: UTime) -> BTreeMap<PgId, PgStat> {
        let reported = Reported { seq: self.reports.seq, epoch: self.history.epoch(), at: wall };
        let mut out = BTreeMap::new();
        for (pg, entry) in &self.holdings.entries {
            if entry.primary_since.is_none() || entry.holding == Holding::Leaving {
                continue;
            }
            let report = self.pg_reports.get(pg);
            let since = self.holdings.interval_since(*pg);
            let mut state = pg_stats::state_of(entry, report);
            if let Some(forced) = self.reports.forced.get_mut(pg) {
                forced.keep_useful(state);
                state = state.with(forced.flags());
            }
            let stamps = self.reports.stamps.entry(*pg).or_insert_with(|| Stamps::new(wall));
            stamps.advance(wall, state);
            let status = pg_stats::present_status(report, since);
            out.insert(*pg, pg_stats::pg_stat(entry, report, status, stamps, reported));
        }
        self.reports.stamps.retain(|pg, _| out.contains_key(pg));
        self.reports.forced.retain(|pg, forced| out.contains_key(pg) && !forced.is_none());
        out
    }

    /// The statistics of one PG as of its last report, for `pg query`.
    pub(super) fn present_stat(&self, wall: UTime, pg: PgId) -> Option<PgStat> {
        let entry = self.holdings.entries.get(&pg)?;
        let (report, since) = (self.pg_reports.get(&pg), self.holdings.interval_since(pg));
        let forced = self.reports.forced.get(&pg).copied().unwrap_or_default();
        let mut stamps = self.reports.stamps.get(&pg).copied().unwrap_or_else(|| Stamps::new(wall));
        stamps.advance(wall, pg_stats::state_of(entry, report).with(forced.flags()));
        let reported = Reported { seq: self.reports.seq, epoch: self.history.epoch(), at: wall };
        let status = pg_stats::present_status(report, since);
        Some(pg_stats::pg_stat(entry, report, status, &stamps, reported))
    }

    /// An operator wants PGs scrubbed or repaired.
    pub(super) fn on_scrub_order(&mut self, conn: ConnId, order: &MOSDScrub2, fx: &mut Fx) {
        if self.reports.conn != Some(conn) || order.fsid != self.mon.fsid() {
            return;
        }
        let wish = shard::ScrubWish {
            is_deep: order.is_deep || order.is_repair,
            is_repair: order.is_repair,
            is_asked: true,
        };
        for id in &order.pgs {
            let entry = self.holdings.entries.get(&id.pg);
            let Some(entry) = entry.filter(|entry| entry.primary_since.is_some()) else { continue };
            let input = shard::Input::Scrub { pg: id.pg, wish };
            fx.push(super::Effect::Shard { core: entry.core, input });
        }
        self.reports.make_due();
    }

    /// An operator gives PGs the highest priority, or takes it back. It shows in the state until the work is done.
    pub(super) fn on_force_recovery(&mut self, conn: ConnId, order: &MOSDForceRecovery, fx: &mut Fx) {
        if self.reports.conn != Some(conn) || order.fsid != self.mon.fsid() {
            return;
        }
        let has = |option| order.options & option != 0;
        let flag = match has(MOSDForceRecovery::RECOVERY) {
            true => PgState::FORCED_RECOVERY,
            false => PgState::FORCED_BACKFILL,
        };
        for id in &order.pgs {
            let entry = self.holdings.entries.get(&id.pg);
            let Some(entry) = entry.filter(|entry| entry.primary_since.is_some()) else { continue };
            let forced = self.reports.forced.entry(id.pg).or_default();
            match has(MOSDForceRecovery::CANCEL) {
                true => forced.clear(flag),
                false => forced.set(flag),
            }
            let input = shard::Input::Force { pg: id.pg, flags: forced.flags() };
            fx.push(super::Effect::Shard { core: entry.core, input });
        }
        self.reports.make_due();
    }
}

/// Copies on this OSD, by its role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PgRoles {
    pub primary: u64,
    pub replica: u64,
    pub stray: u64,
}

impl PgRoles {
    pub fn all(self) -> u64 {
        self.primary + self.replica + self.stray
    }
}

/// `bytes` in proportion to the weights. The store counts the bytes of all omaps together.
fn shared_by_weight(bytes: u64, weights: &BTreeMap<i64, u64>) -> Vec<(i64, u64)> {
    let total: u64 = weights.values().sum();
    let share = |weight: u64| (u128::from(bytes) * u128::from(weight)).checked_div(total.into()).unwrap_or(0);
    weights.iter().map(|(pool, weight)| (*pool, share(*weight) as u64)).collect()
}

/// What is allocated was counted as if nothing were compressed.
fn add_compressed(statfs: &mut StoreStatfs, compressed: &Compressed) {
    let Compressed { original, stored, allocated } = *compressed;
    statfs.data_compressed += stored as i64;
    statfs.data_compressed_original += original as i64;
    statfs.data_compressed_allocated += allocated as i64;
    statfs.allocated = (statfs.allocated - original as i64 + allocated as i64).max(0);
}

#[cfg(test)]
mod tests {
    use super::super::pg_stats::tests::report;
    use super::super::{holdings, testing};
    use super::*;
    use crate::shard::Interval;
    use machine::{Effects, Random};
    use std::sync::Arc;
    use wire::types::{OsdMap, Uuid};

    fn pg(seed: u32) -> PgId {
        PgId { pool: 1, seed }
    }

    /// OSD 0 at epoch 50, the primary of PG 1.0, a replica of 1.1, with strays 1.2 and 1.3. PG 1.4 is to come.
    fn control() -> Control {
        let mut control = Control::new(testing::config(1), true, Random::from_number(1));
        control.history.map = Some(Arc::new(OsdMap { epoch: 50, ..OsdMap::default() }));
        for (seed, acting) in [(0, vec![0, 1]), (1, vec![1, 0]), (2, vec![1, 2]), (3, vec![]), (4, vec![0])] {
            let mut entry = holdings::held(CoreId(0), 0);
            entry.primary_since = (seed == 0).then_some(3);
            entry.placement.acting = acting;
            if seed == 4 {
                entry.holding = Holding::Named;
            }
            control.holdings.entries.insert(pg(seed), entry);
        }
        let mut report = report();
        report.status.interval = Arc::new(Interval::new(0, vec![0, 1], 2, 1));
        control.pg_reports.insert(pg(0), report.clone());
        report.status.is_primary = false;
        control.pg_reports.insert(pg(1), report);
        control
    }

    fn set_state(control: &mut Control, state: PgState) {
        control.pg_reports.get_mut(&pg(0)).unwrap().status.state = state;
    }

    #[test]
    fn spilled_index_is_an_alert_of_the_osd() {
        let mut control = control();
        let usage = |spilled| Usage { db_total: 2 << 30, db_used: 1 << 30, spilled, ..Usage::default() };
        control.usage.insert(CoreId(0), usage(0));
        assert!(control.osd_stat().alerts.is_empty());
        control.usage.insert(CoreId(1), Usage { db_total: 0, ..usage(128 << 10) });
        let text = "spilled over 128 KiB metadata from 'db' device (2 GiB used of 2 GiB) to slow device";
        assert_eq!(control.osd_stat().alerts[&0]["BLUEFS_SPILLOVER"], text);
        control.options.warns_on_spillover = false;
        assert!(control.osd_stat().alerts.is_empty());
    }

    #[test]
    fn copies_are_counted_by_role() {
        let control = control();
        assert_eq!(control.pg_roles(), PgRoles { primary: 1, replica: 1, stray: 2 });
        assert_eq!(control.osd_stat().num_pgs, 4);
    }

    #[test]
    fn only_the_primary_reports_a_pg() {
        let mut control = control();
        let stats = control.pg_stats(UTime { sec: 9, nsec: 0 });
        assert_eq!(stats.keys().copied().collect::<Vec<_>>(), [pg(0)]);
        assert_eq!(stats[&pg(0)].state.to_string(), "active+clean");
        assert_eq!(stats[&pg(0)].reported_epoch, 50);
    }

    #[test]
    fn forced_recovery_shows_while_objects_are_degraded() {
        let mut control = control();
        let degraded = PgState::ACTIVE.with(PgState::RECOVERING).with(PgState::DEGRADED);
        set_state(&mut control, degraded);
        let conn = ConnId::outgoing(1);
        let order = |options| MOSDForceRecovery {
            fsid: Uuid::default(),
            pgs: vec![pg(0).into(), pg(1).into()],
            options,
        };
        let mut fx = Effects::new();
        let told = |fx: &mut Fx| -> Vec<PgState> {
            let flags = fx.take().into_iter().filter_map(|effect| match effect {
                super::super::Effect::Shard { input: shard::Input::Force { pg: of, flags }, .. } => {
                    assert_eq!(of, pg(0), "the only PG that this OSD is primary of");
                    Some(flags)
                }
                _ => None,
            });
            flags.collect()
        };
        let state = |control: &mut Control| control.pg_stats(UTime::ZERO)[&pg(0)].state.to_string();
        control.on_force_recovery(conn, &order(MOSDForceRecovery::RECOVERY), &mut fx);
        assert_eq!(state(&mut control), "active+recovering+degraded", "no connection to a manager");
        assert_eq!(told(&mut fx), []);
        control.reports.conn = Some(conn);
        control.on_force_recovery(conn, &order(MOSDForceRecovery::RECOVERY), &mut fx);
        assert_eq!(state(&mut control), "active+recovering+forced_recovery+degraded");
        assert_eq!(told(&mut fx), [PgState::FORCED_RECOVERY]);
        control.on_force_recovery(
            conn,
            &order(MOSDForceRecovery::RECOVERY | MOSDForceRecovery::CANCEL),
            &mut fx,
        );
        assert_eq!(state(&mut control), "active+recovering+degraded");
        assert_eq!(told(&mut fx), [PgState::default()]);
        control.on_force_recovery(conn, &order(MOSDForceRecovery::RECOVERY), &mut fx);
        set_state(&mut control, PgState::ACTIVE.with(PgState::CLEAN));
        assert_eq!(state(&mut control), "active+clean");
        set_state(&mut control, degraded);
        assert_eq!(state(&mut control), "active+recovering+degraded", "the order ended with its work");
    }

    #[test]
    fn clean_epoch_is_the_present_one_of_a_clean_pg() {
        let mut control = control();
        assert_eq!(control.clean_epochs(), (vec![pg(0)], 50));
        set_state(&mut control, PgState::ACTIVE.with(PgState::DEGRADED));
        assert_eq!(control.clean_epochs(), (vec![pg(0)], 4));
        // A report of an older interval.
        set_state(&mut control, PgState::ACTIVE.with(PgState::CLEAN));
        control.pg_reports.get_mut(&pg(0)).unwrap().status.interval = Interval::new(9, vec![0], 2, 1).into();
        assert_eq!(control.clean_epochs(), (vec![pg(0)], 4));
        control.pg_reports.clear();
        assert_eq!(control.clean_epochs(), (vec![], 50));
    }

    #[test]
    fn omap_bytes_are_shared_by_objects_with_omaps() {
        let weights = BTreeMap::from([(1, 3), (2, 0), (3, 1)]);
        assert_eq!(shared_by_weight(1000, &weights), [(1, 750), (2, 0), (3, 250)]);
        assert_eq!(shared_by_weight(1000, &BTreeMap::from([(1, 0)])), [(1, 0)]);
    }
}
