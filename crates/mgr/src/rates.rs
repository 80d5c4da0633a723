//! Changes of the PGs' counters over the last few intervals, from which rates come.
//!
//! A change is the difference of two reports of one PG. So a manager that has just started, and hears of each PG for the
//! first time, shows no traffic, where a difference of sums would show everything since the cluster began.

use std::collections::{BTreeMap, VecDeque};
use wire::types::{ObjectStatSum, OsdMap, PoolId, PoolStat, UTime};

/// As `mon_stat_smooth_intervals` and twice `mon_delta_reset_interval` of stock.
const INTERVALS: usize = 6;
const INTERVAL_NS_MAX: u64 = 20 * 1_000_000_000;

/// The last intervals of a pool, or of all pools.
#[derive(Clone, Debug, Default)]
struct Window(VecDeque<(ObjectStatSum, u64)>);

impl Window {
    fn push(&mut self, change: ObjectStatSum, over_ns: u64) {
        self.0.push_back((change, over_ns));
        if self.0.len() > INTERVALS {
            self.0.pop_front();
        }
    }

    fn delta(&self) -> (PoolStat, UTime) {
        let mut sum = PoolStat::default();
        for (change, _) in &self.0 {
            sum.stats.sum += *change;
        }
        (sum, UTime::from_nanos(self.0.iter().map(|(_, ns)| ns).sum()))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Rates {
    total: Window,
    pools: BTreeMap<PoolId, Window>,
    /// Changes of the interval that is not over, by pool.
    open: BTreeMap<PoolId, ObjectStatSum>,
    /// The end of the last interval; `None` before the first tick.
    last: Option<UTime>,
}

impl Rates {
    /// A PG's counters have changed.
    pub fn add(&mut self, pool: PoolId, change: ObjectStatSum) {
        *self.open.entry(pool).or_default() += change;
    }

    /// An interval ends. Every pool has one, also a pool without a change.
    pub fn close_interval(&mut self, now: UTime, map: &OsdMap) {
        let open = std::mem::take(&mut self.open);
        let Some(last) = self.last.replace(now) else { return };
        let over_ns = now.as_nanos().saturating_sub(last.as_nanos()).min(INTERVAL_NS_MAX);
        let mut total = ObjectStatSum::default();
        self.pools.retain(|pool, _| map.pools.contains_key(pool));
        for pool in map.pools.keys() {
            let change = open.get(pool).copied().unwrap_or_default();
            total += change;
            self.pools.entry(*pool).or_default().push(change, over_ns);
        }
        self.total.push(total, over_ns);
    }

    /// Change and duration over all pools.
    pub fn total(&self) -> (PoolStat, UTime) {
        self.total.delta()
    }

    /// Change and duration of each pool.
    pub fn pools(&self) -> impl Iterator<Item = (PoolId, (PoolStat, UTime))> {
        self.pools.iter().map(|(pool, window)| (*pool, window.delta()))
    }

    pub fn pool(&self, pool: PoolId) -> Option<(PoolStat, UTime)> {
        self.pools.get(&pool).map(Window::delta)
    }

    /// The end of the last interval.
    pub fn stamp(&self) -> UTime {
        self.last.unwrap_or(UTime::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::text::ClientIo;
    use wire::types::PgPool;

    fn map() -> OsdMap {
        OsdMap { pools: [1, 2].map(|pool| (pool, PgPool::default())).into(), ..OsdMap::default() }
    }

    fn reads(reads: i64) -> ObjectStatSum {
        ObjectStatSum { num_rd: reads, num_rd_kb: 4 * reads, ..ObjectStatSum::default() }
    }

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    fn io((delta, over): (PoolStat, UTime)) -> Option<ClientIo> {
        ClientIo::of(&delta, over)
    }

    #[test]
    fn rate_is_the_change_between_two_ticks() {
        let mut rates = Rates::default();
        rates.add(1, reads(1_000_000));
        rates.close_interval(at(100), &map());
        assert_eq!(io(rates.total()), None, "the first tick begins the first interval");
        rates.add(1, reads(300));
        rates.add(2, reads(200));
        rates.close_interval(at(105), &map());
        let total = io(rates.total()).unwrap();
        assert_eq!((total.reads, total.read_bytes, total.has_writes), (100, 409_600, false));
        assert_eq!(io(rates.pool(1).unwrap()).unwrap().reads, 60);
        assert_eq!(rates.stamp(), at(105));
    }

    #[test]
    fn only_the_last_few_intervals_count() {
        let mut rates = Rates::default();
        for i in 0..20 {
            rates.add(1, reads(if i < 14 { 1000 } else { 0 }));
            rates.close_interval(at(100 + i), &map());
        }
        assert_eq!(io(rates.total()), None);
        assert_eq!(rates.total().1, at(6));
    }

    #[test]
    fn counters_that_go_back_are_no_traffic() {
        let mut rates = Rates::default();
        rates.close_interval(at(100), &map());
        rates.add(1, reads(-1000));
        rates.close_interval(at(105), &map());
        assert_eq!(io(rates.total()), None);
    }

    #[test]
    fn deleted_pool_has_no_rate() {
        let mut rates = Rates::default();
        rates.close_interval(at(100), &map());
        rates.close_interval(at(105), &OsdMap::default());
        assert_eq!(rates.pool(1), None);
    }
}
