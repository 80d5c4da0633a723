//! Every PG's and every OSD's last report, and the sums over them (`PGMap`).

use crate::options::MgrOptions;
use crate::rates::Rate;
use command::options::{Identity, Layers};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::messages::MPGStats;
use wire::types::{
    OsdMap, OsdStat, PgCount, PgId, PgMapDigest, PgStat, PgState, PoolId, PoolStat, StoreStatfs, UTime,
};

#[derive(Default)]
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
    /// `mon_pg_stuck_threshold`; the default where no manager says it.
    stuck_sec: Option<u64>,
    total_rate: Rate,
    pool_rates: BTreeMap<PoolId, Rate>,
}

impl PgMap {
    pub fn set_stuck_threshold(&mut self, sec: u64) {
        self.stuck_sec = Some(sec);
    }

    pub(crate) fn stuck_sec(&self) -> u64 {
        let default = || MgrOptions::read(&Layers::new(Identity::named("mgr.x"))).pg_stuck_threshold_s;
        self.stuck_sec.unwrap_or_else(default)
    }

    /// A newer map: PGs of new pools appear, those of pools that are gone disappear, and those whose primary is
    /// down are stale, because nobody reports them.
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
        for stat in self.pgs.values_mut() {
            let primary = stat.acting_primary;
            let reported = stat.reported_epoch > 0;
            if reported && !stat.state.has(PgState::STALE) && !map.is_up(primary) {
                stat.state = stat.state.with(PgState::STALE);
                stat.last_unstale = now;
                stat.last_change = now;
            }
        }
        self.osds.retain(|&osd, _| map.exists(osd));
        for (&osd, stat) in &mut self.osds {
            // An OSD that is out holds nothing that counts.
            if !map.is_in(osd) {
                *stat = OsdStat { up_from: stat.up_from, seq: stat.seq, ..OsdStat::default() };
            }
        }
        self.pool_statfs.retain(|(pool, osd), _| map.pools.contains_key(pool) && map.exists(*osd));
        self.pool_rates.retain(|pool, _| map.pools.contains_key(pool));
    }

    /// An OSD reports. PGs that the map does not know, and news older than what is known, are passed over.
    pub fn ingest(&mut self, now: UTime, osd: i32, report: MPGStats) {
        if !self.map.exists(osd) {
            return;
        }
        self.stamp = now;
        self.version += 1;
        let newer = self.osds.get(&osd).is_none_or(|known| known.seq < report.osd.seq || report.osd.seq == 0);
        if newer && self.map.is_in(osd) {
            let mut stat = report.osd;
            stat.num_osds = stat.num_osds.max(1);
            self.osds.insert(osd, stat);
            self.pool_statfs.retain(|(_, o), _| *o != osd);
            self.pool_statfs.extend(report.pools.into_iter().map(|(pool, s)| ((pool, osd), s)));
        }
        for (pg, stat) in report.pgs {
            let Some(known) = self.pgs.get_mut(&pg) else { continue };
            if (stat.reported_epoch, stat.reported_seq) >= (known.reported_epoch, known.reported_seq) {
                *known = stat;
            }
        }
        self.observe(now);
    }

    fn observe(&mut self, now: UTime) {
        let (total, by_pool) = self.sums();
        self.total_rate.observe(now, &total);
        for (pool, sum) in by_pool {
            self.pool_rates.entry(pool).or_default().observe(now, &sum);
        }
    }

    /// A daemon says how its operations do.
    pub(crate) fn on_slow_ops(&mut self, daemon: String, count: u32, oldest_sec: u32) {
        match count {
            0 => self.slow_ops.remove(&daemon),
            _ => self.slow_ops.insert(daemon, (count, oldest_sec)),
        };
    }

    pub(crate) fn pool_rate(&self, pool: PoolId) -> Option<(PoolStat, UTime)> {
        self.pool_rates.get(&pool).map(Rate::delta)
    }

    pub(crate) fn total_rate(&self) -> (PoolStat, UTime) {
        self.total_rate.delta()
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
            if stat.acting_primary >= 0 {
                counts.entry(stat.acting_primary).or_default().primary += 1;
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
    pub fn digest(&self) -> PgMapDigest {
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
        let (delta, delta_over) = self.total_rate();
        let mut unavailable_pgs: BTreeMap<u64, Vec<PgId>> = BTreeMap::new();
        for (pg, stat) in &self.pgs {
            if !stat.state.has(PgState::ACTIVE) || stat.state.has(PgState::STALE) {
                unavailable_pgs.entry(pg.pool as u64).or_default().push(*pg);
            }
        }
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
            pool_deltas: self.pool_rates.iter().map(|(pool, r)| (*pool, r.delta())).collect(),
            pool_delta_stamps: self.pool_rates.iter().map(|(pool, r)| (*pool, r.last_stamp)).collect(),
            delta,
            delta_over,
            available_by_rule: self.available_by_rule(),
            purged_snaps: BTreeMap::new(),
            osd_sum_by_class: self.osd_sum_by_class(),
            unavailable_pgs,
        }
    }

    fn osd_sum_by_class(&self) -> BTreeMap<String, OsdStat> {
        let crush = &self.map.crush;
        let mut sums: BTreeMap<String, OsdStat> = BTreeMap::new();
        for (osd, stat) in &self.osds {
            if let Some(name) = crush.item_classes.get(osd).and_then(|class| crush.class_names.get(class)) {
                *sums.entry(name.clone()).or_default() += stat;
            }
        }
        sums
    }

    /// Bytes that still fit under each CRUSH rule: the fullest OSD, for its share, sets the limit.
    fn available_by_rule(&self) -> BTreeMap<i32, i64> {
        let rules = self.map.pools.values().map(|p| i32::from(p.crush_rule));
        rules.map(|rule| (rule, self.available_for(rule))).collect()
    }

    pub(crate) fn available_for(&self, rule: i32) -> i64 {
        let weights = self.rule_weights(rule);
        let total: f64 = weights.values().sum();
        let mut least: Option<f64> = None;
        for (osd, weight) in weights {
            let Some(stat) = self.osds.get(&osd) else { continue };
            if weight <= 0.0 || stat.statfs.total == 0 {
                continue;
            }
            let unusable = stat.statfs.total as f64 * f64::from(1.0 - self.map.full_ratio);
            let free = (stat.statfs.available as f64 - unusable).max(0.0);
            let fits = free / (weight / total);
            least = Some(least.map_or(fits, |l| l.min(fits)));
        }
        least.unwrap_or(0.0) as i64
    }

    /// The OSDs that a rule can reach, by the weight that data finds them with.
    pub(crate) fn rule_weights(&self, rule: i32) -> BTreeMap<i32, f64> {
        const TAKE: u32 = 1;
        let crush = &self.map.crush;
        let mut weights = BTreeMap::new();
        let Some(rule) = u32::try_from(rule).ok().and_then(|r| crush.rule(r)) else { return weights };
        let mut pending: Vec<(i32, u32)> =
            rule.steps.iter().filter(|s| s.op == TAKE).map(|s| (s.arg1, 0)).collect();
        while let Some((item, weight)) = pending.pop() {
            match crush.bucket(item) {
                Some(bucket) => {
                    pending
                        .extend(bucket.items.iter().enumerate().map(|(i, &it)| (it, bucket.item_weight(i))));
                }
                None => {
                    let reweight = f64::from(self.map.weight(item)) / f64::from(OsdMap::WEIGHT_IN);
                    *weights.entry(item).or_default() += f64::from(weight) / 65_536.0 * reweight;
                }
            }
        }
        weights
    }
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
