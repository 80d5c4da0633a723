//! The autoscaler at work: pools get the number of PGs that they should have, and the modes that `noautoscale` wants.

use super::asked::{MONITOR_TIMEOUT, monitors_answer};
use super::{Effect, Fx, INTERVAL_MIN, Manager};
use crate::autoscaler::scales;
use command::{Json, object};
use machine::Time;
use mon_client::{RequestId, TimedOut};
use std::collections::BTreeSet;
use wire::messages::Body;
use wire::types::{OsdMap, PgPool, PoolFlags};

pub(super) struct Autoscaling {
    pub next_at: Time,
    /// Commands that the monitors have not answered.
    under_way: BTreeSet<RequestId>,
    /// The flag `noautoscale` was set when the autoscaler last looked.
    was_off: bool,
}

impl Autoscaling {
    pub fn new(now: Time) -> Autoscaling {
        Autoscaling { next_at: now, under_way: BTreeSet::new(), was_off: false }
    }
}

impl Manager {
    pub(super) fn autoscale(&mut self, now: Time, fx: Fx<'_>) {
        self.autoscaling.next_at = now + self.options.autoscale_interval.max(INTERVAL_MIN);
        if !self.is_active || !self.autoscaling.under_way.is_empty() || !self.session.is_connected() {
            return;
        }
        let is_off = self.options.autoscale_is_off;
        let was_off = std::mem::replace(&mut self.autoscaling.was_off, is_off);
        let map = self.pg_map.map.clone();
        let commands = match (is_off, was_off) {
            (true, _) => set_modes(&map, PgPool::AUTOSCALE_OFF),
            (false, true) => set_modes(&map, PgPool::AUTOSCALE_ON),
            (false, false) => self.adjustments(),
        };
        for command in commands {
            let asked = self.request_command(now, &command, MONITOR_TIMEOUT, fx);
            self.autoscaling.under_way.extend(asked);
        }
    }

    fn adjustments(&self) -> Vec<Json> {
        let pools = &self.pg_map.map.pools;
        let may_change = |id: &i64| {
            let flags = pools[id].flags;
            !flags.has(PoolFlags::NOPGCHANGE) && !flags.has(PoolFlags::CREATING)
        };
        if pools.values().all(|pool| pool.pg_autoscale_mode != PgPool::AUTOSCALE_ON) {
            return Vec::new();
        }
        let mut out = Vec::new();
        for scale in scales(&self.pg_map).iter().filter(|scale| scale.would_adjust() && may_change(&scale.id))
        {
            let number = scale.pg_num_final.to_string();
            out.push(set_pool(&scale.name, "pg_num", &number));
            // A smaller number is approached, and takes `pgp_num` along.
            if scale.pg_num_final > scale.pg_num_target {
                out.push(set_pool(&scale.name, "pgp_num", &number));
            }
        }
        out
    }

    /// True if the answer belongs to a change of the autoscaler.
    pub(super) fn on_autoscaling_answer(
        &mut self,
        id: RequestId,
        answer: &Result<Body, TimedOut>,
        fx: Fx<'_>,
    ) -> bool {
        if !self.autoscaling.under_way.remove(&id) {
            return false;
        }
        let answer = monitors_answer(answer, "");
        if answer.result != 0 {
            fx.push(Effect::Warn(format!("a change of the autoscaler was refused: {}", answer.status)));
        }
        true
    }
}

fn set_pool(name: &str, var: &str, value: &str) -> Json {
    object! { "prefix" => "osd pool set", "pool" => name, "var" => var, "val" => value }
}

fn set_modes(map: &OsdMap, mode: u8) -> Vec<Json> {
    let word = PgPool { pg_autoscale_mode: mode, ..PgPool::default() }.autoscale_mode_name();
    let others = map.pools.iter().filter(|(_, pool)| pool.pg_autoscale_mode != mode);
    let names = others.filter_map(|(id, _)| map.pool_names.get(id));
    names.map(|name| set_pool(name, "pg_autoscale_mode", word)).collect()
}
