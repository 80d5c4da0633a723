//! Schedule of scrubs: the PG that is due, by its last scrubs, the options of its pool, the hour, and the flags of the map.
//!
//! As on stock, a scrub is due a minimum interval after the last one, later by a share of the interval that differs from PG to PG.
//! After the maximum interval it waits for no hour. Hours and days are those of UTC.

use super::super::super::{Fx, Shard};
use super::ScrubWish;
use crate::pg::role::Role;
use crate::slab::Key;
use wire::types::osd_map::MapFlags;
use wire::types::{PgId, PoolFlags, PoolOption, PoolOptionValue, PoolOptions, ScrubStamps, UTime};

/// PGs that are looked at in one turn.
const LOOKED_AT_MAX: usize = 64;
const DAY_S: u64 = 86_400;

/// Options of the schedule. Intervals in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScrubTimes {
    pub min_s: f64,
    pub max_s: f64,
    pub deep_s: f64,
    /// The share of an interval by which a scrub may come later.
    pub spread: f64,
    pub hours: (u32, u32),
    /// 0 is Sunday.
    pub days: (u32, u32),
    pub may_scrub: bool,
    pub may_deep_scrub: bool,
}

impl ScrubTimes {
    /// The scrub that is due at a time of the wall's clock.
    pub(super) fn due(&self, pg: PgId, stamps: &ScrubStamps, now: UTime) -> Option<ScrubWish> {
        let age_s = |at: UTime| f64::from(now.sec) - f64::from(at.sec);
        let later = 1.0 + self.spread * share_of(pg, stamps.last_scrub_at);
        let is_deep = self.may_deep_scrub && age_s(stamps.last_deep_scrub_at) >= self.deep_s;
        let is_shallow = self.may_scrub && age_s(stamps.last_scrub_at) >= self.min_s * later;
        let is_overdue = age_s(stamps.last_scrub_at) >= self.max_s;
        let is_time = is_overdue || (self.is_hour(now) && self.is_day(now));
        let wish = ScrubWish { is_deep, ..ScrubWish::default() };
        (is_time && (is_deep || is_shallow)).then_some(wish)
    }

    fn is_hour(&self, now: UTime) -> bool {
        is_within((u64::from(now.sec) % DAY_S / 3600) as u32, self.hours)
    }

    fn is_day(&self, now: UTime) -> bool {
        // The first day of 1970 was a Thursday.
        is_within(((u64::from(now.sec) / DAY_S + 4) % 7) as u32, self.days)
    }
}

/// From the first to before the last, over the end of the day or week; all if they are equal.
fn is_within(at: u32, (first, last): (u32, u32)) -> bool {
    match first.cmp(&last) {
        std::cmp::Ordering::Equal => true,
        std::cmp::Ordering::Less => (first..last).contains(&at),
        std::cmp::Ordering::Greater => at >= first || at < last,
    }
}

/// A share from 0 to 1 that differs from PG to PG and from scrub to scrub.
fn share_of(pg: PgId, last: UTime) -> f64 {
    let seed = (pg.pool as u64) << 32 ^ u64::from(pg.seed) ^ u64::from(last.sec) << 20;
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 40) as f64 / f64::from(1u32 << 24)
}

impl Shard {
    /// Every second or so: begins scrubs that are due.
    pub(in crate::shard) fn look_for_due_scrubs(&mut self, fx: &mut Fx) {
        let after = self.scrub_places.looked_at;
        let primary = |(key, pg): (Key, &crate::pg::Pg)| matches!(pg.role, Role::Primary(_)).then_some(key);
        let ids = self.pg_by_id.len();
        let skip = if after >= ids { 0 } else { after };
        let keys: Vec<Key> = self.pgs.iter().skip(skip).take(LOOKED_AT_MAX).filter_map(primary).collect();
        self.scrub_places.looked_at = skip + LOOKED_AT_MAX;
        for key in keys {
            self.look_for_due_scrub(key, fx);
        }
    }

    fn look_for_due_scrub(&mut self, key: Key, fx: &mut Fx) {
        let wall = self.wall(self.step_time);
        let limits = &self.config.limits;
        let may_begin = self.scrub_places.has_free(limits.scrubs_max)
            && !self.scrub_places.is_host_busy
            && (limits.scrub_during_recovery || !self.recovers_any());
        let pg = &mut self.pgs[key];
        if pg.scrub_wish.is_some() || !pg.may_scrub() {
            return;
        }
        let stamps = &mut pg.scrub.stamps;
        if stamps.last_scrub_at == UTime::ZERO {
            // A copy that a backfill made, or that is older than scrubs: its time begins now.
            *stamps = never_scrubbed(wall);
            return;
        }
        let (id, stamps) = (pg.id.pg, *stamps);
        if let Some(wish) = self.scrub_times(id).due(id, &stamps, wall).filter(|_| may_begin) {
            self.want_scrub(id, wish, fx);
        }
    }

    /// The options for a PG: those of its pool come first.
    fn scrub_times(&self, pg: PgId) -> ScrubTimes {
        let map = &self.view.map;
        let mut times = self.config.limits.scrub_times;
        let mut flags = PoolFlags::default();
        if let Some(pool) = map.pools.get(&pg.pool) {
            flags = pool.flags;
            let options = [
                (PoolOption::SCRUB_MIN_INTERVAL, &mut times.min_s),
                (PoolOption::SCRUB_MAX_INTERVAL, &mut times.max_s),
                (PoolOption::DEEP_SCRUB_INTERVAL, &mut times.deep_s),
            ];
            for (option, time) in options {
                if let Some(seconds) = real(&pool.options, option).filter(|seconds| *seconds > 0.0) {
                    *time = seconds;
                }
            }
        }
        times.may_scrub = !map.flags.has(MapFlags::NOSCRUB) && !flags.has(PoolFlags::NOSCRUB);
        times.may_deep_scrub = !map.flags.has(MapFlags::NODEEP_SCRUB) && !flags.has(PoolFlags::NODEEP_SCRUB);
        times
    }
}

/// As if a scrub had ended when the PG began.
pub(in super::super) fn never_scrubbed(at: UTime) -> ScrubStamps {
    ScrubStamps { last_scrub_at: at, last_deep_scrub_at: at, last_clean_at: at, ..ScrubStamps::default() }
}

fn real(options: &PoolOptions, option: PoolOption) -> Option<f64> {
    match options.0.get(&option) {
        Some(PoolOptionValue::Real(value)) => Some(*value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    fn times() -> ScrubTimes {
        ScrubTimes {
            min_s: 100.0,
            max_s: 1000.0,
            deep_s: 700.0,
            spread: 0.5,
            hours: (0, 0),
            days: (0, 0),
            may_scrub: true,
            may_deep_scrub: true,
        }
    }

    fn due(times: ScrubTimes, shallow: u32, deep: u32, now: u32) -> Option<bool> {
        let stamps = ScrubStamps {
            last_scrub_at: at(shallow),
            last_deep_scrub_at: at(deep),
            ..ScrubStamps::default()
        };
        times.due(PgId { pool: 1, seed: 3 }, &stamps, at(now)).map(|wish| wish.is_deep)
    }

    #[test]
    fn scrub_is_due_between_the_interval_and_its_spread() {
        assert_eq!(due(times(), 5000, 5000, 5099), None);
        assert_eq!(due(times(), 5000, 5000, 5150), Some(false));
        assert_eq!(due(times(), 5650, 5000, 5700), Some(true));
    }

    #[test]
    fn flags_hold_back_each_kind() {
        assert_eq!(due(ScrubTimes { may_scrub: false, ..times() }, 5000, 5000, 5150), None);
        assert_eq!(due(ScrubTimes { may_deep_scrub: false, ..times() }, 5650, 5000, 5700), None);
    }

    #[test]
    fn hours_hold_a_scrub_back_until_it_is_overdue() {
        // 5000 s after midnight it is one o'clock.
        for (hours, expected) in
            [((1, 2), Some(false)), ((2, 4), None), ((22, 2), Some(false)), ((22, 1), None)]
        {
            let times = ScrubTimes { hours, ..times() };
            assert_eq!(due(times, 4800, 4800, 5000), expected, "{hours:?}");
            assert_eq!(due(times, 3990, 4900, 5000), Some(false), "overdue");
        }
        let times = ScrubTimes { days: (0, 4), ..times() };
        assert_eq!(due(times, 4800, 4800, 5000), None, "it is Thursday");
    }

    #[test]
    fn share_spreads_the_pgs() {
        let shares: Vec<f64> = (0..64).map(|seed| share_of(PgId { pool: 1, seed }, at(5000))).collect();
        assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
        let low = shares.iter().filter(|share| **share < 0.5).count();
        assert!((16..48).contains(&low), "{low}");
    }
}
