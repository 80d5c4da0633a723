//! Free space under CRUSH rules, and space by device class.

use crate::PgMap;
use std::collections::BTreeMap;
use wire::types::{OsdStat, PgPool, PoolStat};

impl PgMap {
    pub(crate) fn osd_sum_by_class(&self) -> BTreeMap<String, OsdStat> {
        let crush = &self.map.crush;
        let mut sums: BTreeMap<String, OsdStat> = BTreeMap::new();
        for (osd, stat) in &self.osds {
            if let Some(name) = crush.item_classes.get(osd).and_then(|class| crush.class_names.get(class)) {
                *sums.entry(name.clone()).or_default() += stat;
            }
        }
        sums
    }

    /// Bytes of a pool's objects and omaps, each counted once.
    pub(crate) fn stored(&self, pool: &PgPool, stat: &PoolStat) -> f64 {
        let omap = stat.store_stats.omap_allocated.max(0) as f64;
        stat.stats.sum.num_bytes.max(0) as f64 + omap / f64::from(pool.size).max(1.0)
    }

    /// Bytes that still fit under each CRUSH rule: the fullest OSD, for its share, sets the limit.
    pub(crate) fn available_by_rule(&self) -> BTreeMap<i32, i64> {
        let rules = self.map.pools.values().map(|p| i32::from(p.crush_rule));
        rules.map(|rule| (rule, self.available_for(rule))).collect()
    }

    /// Raw bytes, over all copies, that still fit under a rule; stock's `PGMap::get_rule_avail`.
    pub(crate) fn available_for(&self, rule: i32) -> i64 {
        let mut least: Option<f64> = None;
        for (osd, share) in self.rule_shares(rule) {
            let Some(stat) = self.osds.get(&osd) else { continue };
            // Without space: the OSD is out.
            if share <= 0.0 || stat.statfs.total == 0 {
                continue;
            }
            let kib = |bytes: u64| (bytes >> 10) as f64;
            let unusable = kib(stat.statfs.total) * f64::from(1.0 - self.map.full_ratio);
            let free = (kib(stat.statfs.available) - unusable).max(0.0) * 1024.0;
            let fits = free / share;
            least = Some(least.map_or(fits, |l| l.min(fits)));
        }
        least.unwrap_or(0.0) as i64
    }

    /// The share of a rule's data that each OSD takes by its CRUSH weight. Where a rule has several roots, each of them
    /// counts as 1. An OSD's reweight is left out, as in stock.
    fn rule_shares(&self, rule: i32) -> BTreeMap<i32, f64> {
        const TAKE: u32 = 1;
        let crush = &self.map.crush;
        let mut shares = BTreeMap::new();
        let Some(rule) = u32::try_from(rule).ok().and_then(|r| crush.rule(r)) else { return shares };
        for take in rule.steps.iter().filter(|step| step.op == TAKE) {
            let mut weights: BTreeMap<i32, f64> = BTreeMap::new();
            let mut pending = vec![(take.arg1, 1 << 16)];
            while let Some((item, weight)) = pending.pop() {
                match crush.bucket(item) {
                    Some(bucket) => {
                        let weighted = bucket.items.iter().enumerate();
                        pending.extend(weighted.map(|(i, &item)| (item, bucket.item_weight(i))));
                    }
                    None => *weights.entry(item).or_default() += f64::from(weight),
                }
            }
            let total: f64 = weights.values().sum();
            for (osd, weight) in weights.into_iter().filter(|_| total > 0.0) {
                *shares.entry(osd).or_default() += weight / total;
            }
        }
        shares
    }
}
