//! Pools whose number of PGs falls: the manager takes the steps of [`crate::pg_num`] as they become possible.

use super::asked::{MONITOR_TIMEOUT, monitors_answer};
use super::{Effect, Fx, INTERVAL_MIN, Manager};
use crate::pg_num::{self, Step};
use machine::Time;
use mon_client::{RequestId, TimedOut};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::messages::Body;
use wire::types::{OsdMap, PoolId};

/// Time after a merge that its primary refused. It doubles with each refusal in a row.
const AGAIN_MIN: Duration = Duration::from_secs(5);
const AGAIN_MAX: Duration = Duration::from_secs(60);

pub(super) struct Shrinking {
    pub next_at: Time,
    /// Commands that the monitors have not answered.
    under_way: BTreeSet<RequestId>,
    attempts: BTreeMap<PoolId, Attempt>,
}

/// The last merge of a pool that was asked for.
struct Attempt {
    pg_num: u32,
    not_before: Time,
    pause: Duration,
}

impl Shrinking {
    pub fn new(now: Time) -> Shrinking {
        Shrinking { next_at: now, under_way: BTreeSet::new(), attempts: BTreeMap::new() }
    }

    /// Forgets attempts that led to a merge, and those of deleted pools.
    fn forget_merged(&mut self, map: &OsdMap) {
        self.attempts
            .retain(|pool, attempt| map.pools.get(pool).is_some_and(|pool| pool.pg_num > attempt.pg_num));
    }

    fn may_merge(&self, pool: PoolId, now: Time) -> bool {
        self.attempts.get(&pool).is_none_or(|attempt| now >= attempt.not_before)
    }

    fn note(&mut self, now: Time, step: &Step) {
        let Step::Merge { pool, pg_num } = *step else { return };
        let pause = self.attempts.get(&pool).map_or(AGAIN_MIN, |last| (last.pause * 2).min(AGAIN_MAX));
        self.attempts.insert(pool, Attempt { pg_num, not_before: now + pause, pause });
    }
}

impl Manager {
    pub(super) fn shrink_pools(&mut self, now: Time, fx: Fx<'_>) {
        self.shrinking.next_at = now + INTERVAL_MIN;
        if !self.is_active || !self.shrinking.under_way.is_empty() || !self.session.is_connected() {
            return;
        }
        let map = self.pg_map.map.clone();
        self.shrinking.forget_merged(&map);
        let steps = pg_num::steps(&self.pg_map, |pool| self.shrinking.may_merge(pool, now));
        for step in steps {
            let Some(command) = step.command(&map) else { continue };
            self.shrinking.note(now, &step);
            let asked = self.request_command(now, &command, MONITOR_TIMEOUT, fx);
            self.shrinking.under_way.extend(asked);
        }
    }

    /// True if the answer belongs to a step of a pool.
    pub(super) fn on_shrinking_answer(
        &mut self,
        id: RequestId,
        answer: &Result<Body, TimedOut>,
        fx: Fx<'_>,
    ) -> bool {
        if !self.shrinking.under_way.remove(&id) {
            return false;
        }
        let answer = monitors_answer(answer, "");
        if answer.result != 0 {
            fx.push(Effect::Warn(format!("the number of a pool's PGs was not lowered: {}", answer.status)));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::PgPool;

    const MERGE: Step = Step::Merge { pool: 1, pg_num: 3 };

    fn at(second: u64) -> Time {
        Time::ZERO + Duration::from_secs(second)
    }

    #[test]
    fn refused_merge_is_tried_again_after_longer_pauses() {
        let mut shrinking = Shrinking::new(at(0));
        let mut now = at(0);
        for pause in [5, 10, 20, 40, 60, 60] {
            assert!(shrinking.may_merge(1, now));
            shrinking.note(now, &MERGE);
            let again = now + Duration::from_secs(pause);
            assert!(!shrinking.may_merge(1, Time(again.0 - 1)), "{pause} s");
            now = again;
        }
        let map = |pg_num| {
            let pool = PgPool { pg_num, ..PgPool::default() };
            OsdMap { pools: [(1, pool)].into(), ..OsdMap::default() }
        };
        shrinking.note(now, &MERGE);
        shrinking.forget_merged(&map(4));
        assert!(!shrinking.may_merge(1, now));
        shrinking.forget_merged(&map(3));
        assert!(shrinking.may_merge(1, now), "it was merged: the next one waits for nothing");
    }
}
