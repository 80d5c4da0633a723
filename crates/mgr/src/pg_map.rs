//! Every PG's and every OSD's last report, and the sums over them (`PGMap`).

use crate::options::MgrOptions;
use crate::outliers::Outliers;
use crate::rates::Rates;
use command::options::{Identity, Layers};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use wire::messages::MPGStats;
use wire::types::{
    IntervalSet, OsdMap, OsdStat, PgCount, PgId, PgMapDigest, PgStat, PgState, PoolId, PoolStat, SnapId,
    StoreStatfs, UTime,
};

pub struct PgMap {
    /// Counts the changes, as `pg dump` shows.
    pub version: u64,
    pub stamp: UTime,
    pub(crate) map: Arc<OsdMap>,
    /// All PGs of all pools: one that nobody has reported is there as unknown.
    pub(crate) pgs: BTreeMap<PgId, PgStat>,
    pub(crate) osds: BTreeMap<i32, OsdStat>,
    /// Space of a pool on an OSD.
    pub(crate) pool_statfs: BTreeMap<(PoolId, i32), StoreStatfs>,
    /// Operations that take too long, by daemon: how many, and the age of the oldest in seconds.
    pub(crate) slow_ops: BTreeMap<String, (u32, u32)>,
    pub(crate) options: MgrOptions,
    pub(crate) rates: Rates,
    pub(crate) outliers: Outliers,
    /// Objects that PGs have recovered since this manager began.
    pub(crate) recovered_objects: u64,
}

/// With the defaults of all options.
impl Default for PgMap {
    fn default() -> PgMap {
        PgMap {
            version: 0,
            stamp: UTime::ZERO,
            map: Arc::default(),
            pgs: BTreeMap::new(),
            osds: BTreeMap::new(),
            pool_statfs: BTreeMap::new(),
            slow_ops: BTreeMap::new(),
            options: MgrOptions::read(&Layers::new(Identity::named("mgr.x"))),
            rates: Rates::default(),
            outliers: Outliers::default(),
            recovered_objects: 0,
        }
    }
}

impl PgMap {
    /// A newer map: PGs of new pools appear, those of pools that are gone disappear, and those whose primary is
    /// down become stale.
    pub fn on_osd_map(&mut self, now: UTime, map: Arc<OsdMap>) {
        self.map = map;
        self.stamp = now;
        self.version += 1;
        let map = Arc::clone(&self.map);
        self.pgs.retain(|pg, _| map.pools.get(&pg.pool).is_some_and(|p| pg.seed < p.pg_num));
        for (&pool, info) in &map.pools {
            for seed in 0..info.pg_num {
                self.pgs.entry(PgId { pool, seed }).or_insert_with(|| unreported(now, map.epoch));
            }
        }
        self.pgs.values_mut().for_each(|stat| mark_stale(stat, &map, now));
        self.osds.retain(|&osd, _| map.exists(osd));
        for (&osd, stat) in &mut self.osds {
            if !map.is_in(osd) {
                *stat = out_of_cluster(stat);
            } else if !map.is_up(osd) {
                stat.op_queue_age_hist.clear();
            }
        }
        self.pool_statfs.retain(|(pool, osd), _| map.pools.contains_key(pool) && map.exists(*osd));
    }

    /// An OSD reports. PGs that the map does not know, and news older than what is known, are passed over.
    pub fn ingest(&mut self, now: UTime, osd: i32, report: MPGStats) {
        if !self.map.exists(osd) {
            return;
        }
        self.stamp = now;
        self.version += 1;
        let newer = self.osds.get(&osd).is_none_or(|known| known.seq < report.osd.seq || report.osd.seq == 0);
        if newer {
            let mut stat = report.osd;
            stat.num_osds = stat.num_osds.max(1);
            self.pool_statfs.retain(|(_, o), _| *o != osd);
            if self.map.is_in(osd) {
                self.pool_statfs.extend(report.pools.into_iter().map(|(pool, s)| ((pool, osd), s)));
            } else {
                stat = out_of_cluster(&stat);
            }
            self.outliers.note(osd, stat.commit_latency_ns);
            self.osds.insert(osd, stat);
        }
        for (pg, mut stat) in report.pgs {
            let Some(known) = self.pgs.get_mut(&pg) else { continue };
            if (stat.reported_epoch, stat.reported_seq) < (known.reported_epoch, known.reported_seq) {
                continue;
            }
            if known.state != PgState::UNKNOWN {
                let mut change = stat.stats.sum;
                change -= known.stats.sum;
                self.rates.add(pg.pool, change);
                self.recovered_objects += change.num_objects_recovered.max(0) as u64;
            }
            // The report may have been under way when its sender went down.
            mark_stale(&mut stat, &self.map, now);
            *known = stat;
        }
    }

    /// The end of an interval of the rates, every `mgr_tick_period`.
    pub fn tick(&mut self, now: UTime) {
        self.rates.close_interval(now, &self.map);
        self.outliers.tick(now, &self.map);
    }

    /// A daemon says how its operations do.
    pub(crate) fn on_slow_ops(&mut self, daemon: String, count: u32, oldest_sec: u32) {
        match count {
            0 => self.slow_ops.remove(&daemon),
            _ => self.slow_ops.insert(daemon, (count, oldest_sec)),
        };
    }

    /// Over all PGs, and by pool.
    pub(crate) fn sums(&self) -> (PoolStat, BTreeMap<PoolId, PoolStat>) {
        let mut by_pool: BTreeMap<PoolId, PoolStat> =
            self.map.pools.keys().map(|&pool| (pool, PoolStat::default())).collect();
        for (pg, stat) in &self.pgs {
            let sum = by_pool.entry(pg.pool).or_default();
            sum.stats.sum += stat.stats.sum;
            sum.log_size += stat.log_size;
            sum.ondisk_log_size += stat.ondisk_log_size;
            sum.up += stat.up.len() as i32;
            sum.acting += stat.acting.len() as i32;
        }
        for ((pool, _), statfs) in &self.pool_statfs {
            let sum = by_pool.entry(*pool).or_default();
            sum.store_stats += *statfs;
            sum.num_store_stats += 1;
        }
        let mut total = PoolStat::default();
        for sum in by_pool.values() {
            total.stats.sum += sum.stats.sum;
            total.store_stats += sum.store_stats;
            total.log_size += sum.log_size;
            total.ondisk_log_size += sum.ondisk_log_size;
            total.up += sum.up;
            total.acting += sum.acting;
            total.num_store_stats += sum.num_store_stats;
        }
        (total, by_pool)
    }

    pub(crate) fn osd_sum(&self) -> OsdStat {
        self.osds.values().fold(OsdStat::default(), |mut sum, stat| {
            sum += stat;
            sum
        })
    }

    pub(crate) fn pg_counts(&self) -> BTreeMap<i32, PgCount> {
        let mut counts: BTreeMap<i32, PgCount> = BTreeMap::new();
        for stat in self.pgs.values() {
            for &osd in &stat.acting {
                counts.entry(osd).or_default().acting += 1;
            }
            for &osd in stat.up.iter().filter(|osd| !stat.acting.contains(osd)) {
                counts.entry(osd).or_default().up_not_acting += 1;
            }
            if stat.up_primary >= 0 {
                counts.entry(stat.up_primary).or_default().primary += 1;
            }
        }
        counts
    }

    pub(crate) fn states(&self) -> BTreeMap<PgState, i32> {
        let mut states = BTreeMap::new();
        for stat in self.pgs.values() {
            *states.entry(stat.state).or_default() += 1;
        }
        states
    }

    /// The digest for the monitor.
    pub fn digest(&self, now: UTime) -> PgMapDigest {
        let (pg_sum, by_pool) = self.sums();
        let states = self.states();
        let count = |wanted: &dyn Fn(PgState) -> bool| -> i64 {
            states.iter().filter(|(s, _)| wanted(**s)).map(|(_, n)| *n as i64).sum()
        };
        let mut num_pg_by_pool: BTreeMap<PoolId, i64> = BTreeMap::new();
        self.pgs.keys().for_each(|pg| *num_pg_by_pool.entry(pg.pool).or_default() += 1);
        let last = self.osds.keys().next_back().map_or(0, |&osd| osd as usize + 1);
        let mut osd_last_seq = vec![0; last];
        self.osds.iter().for_each(|(&osd, stat)| osd_last_seq[osd as usize] = stat.seq);
        let (delta, delta_over) = self.rates.total();
        let stamp = self.rates.stamp();
        PgMapDigest {
            num_pg: self.pgs.len() as i64,
            num_pg_active: count(&|s| s.has(PgState::ACTIVE)),
            num_pg_unknown: count(&|s| s == PgState::UNKNOWN),
            num_osd: self.osds.len() as i64,
            pool_sums: by_pool.into_iter().map(|(pool, sum)| (pool as i32, sum)).collect(),
            pg_sum,
            osd_sum: self.osd_sum(),
            num_pg_by_state: states,
            num_pg_by_osd: self.pg_counts(),
            num_pg_by_pool,
            osd_last_seq,
            pool_deltas: self.rates.pools().map(|(pool, (delta, _))| (pool, (delta, stamp))).collect(),
            pool_delta_over: self.rates.pools().map(|(pool, (_, over))| (pool, over)).collect(),
            delta,
            delta_over,
            available_by_rule: self.available_by_rule(),
            purged_snaps: self.purged_snaps(),
            osd_sum_by_class: self.osd_sum_by_class(),
            unavailable_pgs: self.unavailable_pgs(now),
        }
    }

    /// By pool: removed snapshots that no PG has a clone of. A PG that has not reported may have some.
    fn purged_snaps(&self) -> BTreeMap<PoolId, BTreeMap<SnapId, u64>> {
        let mut pools: BTreeMap<PoolId, IntervalSet> = BTreeMap::new();
        for (pg, stat) in &self.pgs {
            let of_pg = || {
                let is_known = stat.state != PgState::UNKNOWN && !stat.state.has(PgState::STALE);
                let purged = stat.purged_snaps.iter().filter(|_| is_known);
                purged.map(|(start, len)| (start.0, *len)).collect::<IntervalSet>()
            };
            match pools.entry(pg.pool) {
                Entry::Vacant(first) => drop(first.insert(of_pg())),
                Entry::Occupied(common) if common.get().is_empty() => {}
                Entry::Occupied(mut common) => *common.get_mut() = common.get().intersection(&of_pg()),
            }
        }
        let runs = |set: IntervalSet| set.iter().map(|(start, len)| (SnapId(start), len)).collect();
        pools.into_iter().filter(|(_, set)| !set.is_empty()).map(|(pool, set)| (pool, runs(set))).collect()
    }

    /// By pool, PGs that serve no clients: inactive or stale for `mon_pg_stuck_threshold`, or with unfound objects.
    fn unavailable_pgs(&self, now: UTime) -> BTreeMap<u64, Vec<PgId>> {
        let cutoff_ns = now.as_nanos().saturating_sub(self.options.pg_stuck_threshold_s * 1_000_000_000);
        let is_stuck = |is_bad: bool, last_good: UTime| is_bad && last_good.as_nanos() < cutoff_ns;
        let mut pgs: BTreeMap<u64, Vec<PgId>> = BTreeMap::new();
        for (pg, stat) in &self.pgs {
            let of_pool = pgs.entry(pg.pool as u64).or_default();
            if is_stuck(!stat.state.has(PgState::ACTIVE), stat.last_active)
                || is_stuck(stat.state.has(PgState::STALE), stat.last_unstale)
                || stat.stats.sum.num_objects_unfound > 0
            {
                of_pool.push(*pg);
            }
        }
        pgs
    }
}

/// The report of a PG is stale from the moment its primary is down until a primary reports again.
fn mark_stale(stat: &mut PgStat, map: &OsdMap, now: UTime) {
    let has_primary = stat.acting_primary >= 0;
    if has_primary && !stat.state.has(PgState::STALE) && !map.is_up(stat.acting_primary) {
        stat.state = stat.state.with(PgState::STALE);
        stat.last_unstale = now;
    }
}

/// The report of an OSD that is out: its space holds nothing that counts. The number of its PGs stays, because
/// `osd safe-to-destroy` must see PGs that it still stores.
fn out_of_cluster(stat: &OsdStat) -> OsdStat {
    OsdStat { up_from: stat.up_from, seq: stat.seq, num_pgs: stat.num_pgs, ..OsdStat::default() }
}

fn unreported(now: UTime, epoch: u32) -> PgStat {
    PgStat {
        created: epoch,
        last_fresh: now,
        last_change: now,
        last_active: now,
        last_peered: now,
        last_clean: now,
        last_unstale: now,
        last_undegraded: now,
        last_fullsized: now,
        last_scrub_stamp: now,
        last_deep_scrub_stamp: now,
        last_clean_scrub_stamp: now,
        ..PgStat::unknown()
    }
}
