//! Progress of several monitors: a majority that nothing disturbs has a leader, and answers operators.
//!
//! A node is disturbed while a fault that can delay it lasts: it is dead, paused or slow, or some of its traffic is held up,
//! whoever is at the other end. So the check is silent in much of a run, and right where it speaks. A connection that breaks
//! is no disturbance: monitors open the next one within a second.

use super::Promise;
use crate::node::NodeId;
use machine::Time;
use mon::Standing;
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A majority that was undisturbed for so long had a leader within [`LEADERLESS_MAX`]. An election takes 1 to 3 s, and links that
/// were held up are opened anew after 4 s.
const UNDISTURBED: Duration = Duration::from_secs(20);
const LEADERLESS_MAX: Duration = Duration::from_secs(15);
/// An undisturbed operator gets its answer from an undisturbed majority within this time: it gives up a dead connection after
/// 30 s, and calls one monitor after the other, for 3 s each.
const ANSWER_MAX: Duration = Duration::from_secs(75);

/// A running monitor.
#[derive(Clone, Debug)]
pub struct MonitorSight {
    pub node: NodeId,
    pub standing: Standing,
    pub is_paused: bool,
}

/// The disturbances of every node, and the time of the last leader.
#[derive(Debug, Default)]
pub struct Elections {
    /// The end of each node's last disturbance.
    disturbed: BTreeMap<NodeId, Time>,
    next: Time,
    led_at: Time,
    checked: u64,
}

impl Elections {
    pub fn disturb(&mut self, node: NodeId, until: Time) {
        let end = self.disturbed.entry(node).or_insert(until);
        *end = until.max(*end);
    }

    /// True at intervals.
    pub fn is_due(&mut self, now: Time) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        is_due
    }

    /// Moments at which a majority was undisturbed.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    fn is_undisturbed(&self, node: NodeId, since: Time) -> bool {
        self.disturbed.get(&node).is_none_or(|end| *end <= since)
    }

    /// The monitors that were undisturbed since then are a majority of all members that any of them knows.
    fn has_majority(&self, running: &[MonitorSight], since: Time) -> bool {
        let calm: Vec<&Standing> = running
            .iter()
            .filter(|sight| !sight.is_paused && self.is_undisturbed(sight.node, since))
            .map(|sight| &sight.standing)
            .filter(|standing| !standing.is_removed)
            .collect();
        let is_majority = |voters: &[u64]| {
            let count = calm.iter().filter(|standing| voters.contains(&standing.member)).count();
            voters.is_empty() || 2 * count > voters.len()
        };
        let knows_members = |standing: &&Standing| !standing.members.voters.is_empty();
        calm.iter().any(knows_members)
            && calm.iter().all(|s| is_majority(&s.members.voters) && is_majority(&s.members.voters_outgoing))
    }

    /// `waiting`: operators and the begin of each open command, in the world's time.
    pub fn check(
        &mut self,
        now: Time,
        running: &[MonitorSight],
        waiting: &[(NodeId, Time)],
    ) -> Result<(), (Promise, String)> {
        if running.iter().any(|sight| sight.standing.is_leading && !sight.is_paused) {
            self.led_at = now;
        }
        let before = |span: Duration| Time(now.0.saturating_sub(span.as_nanos() as u64));
        if !self.has_majority(running, before(UNDISTURBED)) {
            return Ok(());
        }
        self.checked += 1;
        if self.led_at < before(LEADERLESS_MAX) {
            let words =
                format!("a majority is undisturbed for {UNDISTURBED:?}, and nobody leads: {running:?}");
            return Err((Promise::MonitorsElect, words));
        }
        let long_ago = before(ANSWER_MAX);
        if !self.has_majority(running, long_ago) {
            return Ok(());
        }
        let waits =
            |(node, since): &&(NodeId, Time)| *since < long_ago && self.is_undisturbed(*node, long_ago);
        match waiting.iter().find(waits) {
            Some((node, since)) => {
                let words = format!("operator {node:?} waits since {since:?} for an undisturbed majority");
                Err((Promise::CommandsAnswered, words))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mon::replication::quorum::Members;

    fn monitor(member: u64, is_leading: bool) -> MonitorSight {
        let members = Members { voters: vec![1, 2, 3], ..Members::default() };
        let standing = Standing { member, is_leading, term: 5, members, ..Standing::default() };
        MonitorSight { node: NodeId(member as usize), standing, is_paused: false }
    }

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    #[test]
    fn undisturbed_majority_without_leader_is_found() {
        let two = [monitor(1, false), monitor(2, false)];
        let mut elections = Elections { led_at: at(100), ..Elections::default() };
        assert_eq!(elections.check(at(114), &two, &[]), Ok(()));
        assert!(elections.check(at(116), &two, &[]).is_err());
        elections.disturb(NodeId(2), at(97));
        assert_eq!(elections.check(at(116), &two, &[]), Ok(()));
        assert!(elections.check(at(117), &two, &[]).is_err());
        assert_eq!(elections.check(at(117), &two[..1], &[]), Ok(()), "one of three");
        assert_eq!(elections.check(at(118), &[monitor(1, true), monitor(2, false)], &[]), Ok(()));
        assert_eq!(elections.check(at(119), &two, &[]), Ok(()));
    }

    #[test]
    fn operator_without_answer_is_found() {
        let two = [monitor(1, true), monitor(2, false)];
        let mut elections = Elections::default();
        let waiting = [(NodeId(9), at(100))];
        assert_eq!(elections.check(at(170), &two, &waiting), Ok(()));
        assert!(elections.check(at(176), &two, &waiting).is_err());
        elections.disturb(NodeId(9), at(150));
        assert_eq!(elections.check(at(176), &two, &waiting), Ok(()));
    }
}
