//! The balancer at work: plans at intervals, and upmaps that the monitors have not answered.

use super::asked::{Caller, MONITOR_TIMEOUT, monitors_answer};
use super::{Effect, Fx, INTERVAL_MIN, Manager};
use crate::balancer::{self, Balancer, Change, Plan, limited_to};
use command::Answer;
use machine::Time;
use mon_client::{RequestId, TimedOut};
use std::collections::BTreeSet;
use wire::messages::Body;

pub(super) struct Balancing {
    pub balancer: Balancer,
    /// The next automatic plan.
    pub next_at: Time,
    /// The map for which nothing was left to do.
    even_at: Option<u32>,
    /// Upmaps that the monitors have not answered.
    under_way: BTreeSet<RequestId>,
    /// The client that waits for them; none for an automatic plan.
    caller: Option<Caller>,
    /// The first refusal.
    answer: Answer,
}

impl Balancing {
    pub fn new(now: Time) -> Balancing {
        Balancing {
            balancer: Balancer::default(),
            next_at: now,
            even_at: None,
            under_way: BTreeSet::new(),
            caller: None,
            answer: Answer::default(),
        }
    }
}

impl Manager {
    /// Makes and carries out a plan, if the balancer is on and its last one is done.
    pub(super) fn balance(&mut self, now: Time, fx: Fx<'_>) {
        self.balancing.next_at = now + self.options.balancer_interval.max(INTERVAL_MIN);
        let is_due = self.is_active && self.options.balancer_is_active && self.balancing.under_way.is_empty();
        let map = &self.pg_map.map;
        if !is_due || self.balancing.even_at == Some(map.epoch) || !self.session.is_connected() {
            return;
        }
        let limited = limited_to(&self.options.balancer_pools);
        let names = map.pool_names.iter().filter(|(pool, _)| limited.contains(pool));
        let pools: Vec<String> = names.map(|(_, name)| name.clone()).collect();
        if !limited.is_empty() && pools.is_empty() {
            return;
        }
        let attempt = balancer::attempt(&self.pg_map, &pools);
        self.balancing.balancer.note(self.clock.at(now), &attempt);
        match attempt {
            Ok(plan) => self.carry_out(now, None, &plan, fx),
            Err(why) if balancer::is_even(&why) => self.balancing.even_at = Some(map.epoch),
            Err(_) => {}
        }
    }

    pub(super) fn change_balancer(&mut self, now: Time, caller: Caller, change: Change, fx: Fx<'_>) {
        let balancer = &mut self.balancing.balancer;
        let answer = match change {
            Change::Attempt(name, attempt) => {
                balancer.note(self.clock.at(now), &attempt);
                match attempt {
                    Ok(plan) => {
                        balancer.plans.insert(name, plan);
                        Answer::ok("")
                    }
                    Err(why) => why,
                }
            }
            Change::Remove(name) => {
                balancer.plans.remove(&name);
                Answer::ok("")
            }
            Change::RemoveAll => {
                balancer.plans.clear();
                Answer::ok("")
            }
            Change::Execute(_) if !self.balancing.under_way.is_empty() => {
                Answer::invalid("Balancer finishing up....try again")
            }
            Change::Execute(name) => match balancer.plans.remove(&name) {
                Some(plan) => return self.carry_out(now, Some(caller), &plan, fx),
                None => Answer::ok(""),
            },
        };
        fx.push(caller.reply(answer));
    }

    fn carry_out(&mut self, now: Time, caller: Option<Caller>, plan: &Plan, fx: Fx<'_>) {
        (self.balancing.caller, self.balancing.answer) = (caller, Answer::default());
        for command in plan.commands() {
            let asked = self.request_command(now, &command, MONITOR_TIMEOUT, fx);
            self.balancing.under_way.extend(asked);
        }
        self.end_if_done(fx);
    }

    /// True if the answer belongs to an upmap of a plan.
    pub(super) fn on_upmap_answer(
        &mut self,
        id: RequestId,
        answer: &Result<Body, TimedOut>,
        fx: Fx<'_>,
    ) -> bool {
        if !self.balancing.under_way.remove(&id) {
            return false;
        }
        let answer = monitors_answer(answer, "");
        if answer.result != 0 && self.balancing.answer.result == 0 {
            fx.push(Effect::Warn(format!("the balancer's upmap was refused: {}", answer.status)));
            self.balancing.balancer.result.clone_from(&answer.status);
            self.balancing.answer = answer;
        }
        self.end_if_done(fx);
        true
    }

    fn end_if_done(&mut self, fx: Fx<'_>) {
        if !self.balancing.under_way.is_empty() {
            return;
        }
        let Some(caller) = self.balancing.caller.take() else { return };
        // The client may have gone meanwhile.
        if self.peers.contains_key(&caller.conn) {
            fx.push(caller.reply(std::mem::take(&mut self.balancing.answer)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::asked::tests::{answers, command_with, served};
    use super::*;
    use bytes::Bytes;
    use command::errno;
    use machine::Effects;
    use std::collections::BTreeMap;
    use wire::messages::{MMonCommandAck, PaxosHeader};
    use wire::types::PgId;

    fn ack(result: i32) -> Result<Body, TimedOut> {
        let ack = MMonCommandAck {
            paxos: PaxosHeader::default(),
            result,
            status: "as the monitors say".into(),
            command: Vec::new(),
            output: Bytes::new(),
        };
        Ok(ack.into())
    }

    #[test]
    fn plan_is_answered_when_the_monitors_have_answered_each_upmap() {
        let mut manager = served();
        let upmaps: BTreeMap<PgId, Vec<(i32, i32)>> =
            [(PgId { pool: 1, seed: 0 }, vec![(0, 1)]), (PgId { pool: 1, seed: 1 }, Vec::new())].into();
        for refused in [0, -errno::EINVAL] {
            let plan = Plan { upmaps: upmaps.clone(), ..Plan::default() };
            manager.balancing.balancer.plans.insert("p".into(), plan);
            let execute = r#"{"prefix":"balancer execute","plan":"p"}"#;
            assert!(answers(command_with(&mut manager, execute, b"")).is_empty());
            let asked: Vec<RequestId> = manager.balancing.under_way.iter().copied().collect();
            assert_eq!(asked.len(), 2);
            assert!(manager.balancing.balancer.plans.is_empty(), "the plan is used up");
            let mut fx = Effects::new();
            assert!(manager.on_upmap_answer(asked[0], &ack(refused), &mut fx));
            assert!(answers(fx.take()).is_empty());
            assert!(manager.on_upmap_answer(asked[1], &ack(0), &mut fx));
            assert_eq!(answers(fx.take())[0].result, refused);
            assert!(!manager.on_upmap_answer(asked[1], &ack(0), &mut fx));
        }
        let gone = answers(command_with(&mut manager, r#"{"prefix":"balancer execute","plan":"p"}"#, b""));
        assert_eq!((gone[0].result, gone[0].status.as_str()), (-errno::ENOENT, "plan p not found"));
    }
}
