//! Global ids that this monitor may give out. The leader hands out ranges below a limit that the log holds, so that no id is
//! given out twice, whoever gives it and whoever leads.

use super::Monitor;
use crate::monitor::Turn;
use crate::proposal::Change;
use crate::state::GLOBAL_ID_MIN;
use machine::Time;
use std::collections::VecDeque;
use std::time::Duration;
use wire::messages::MonPeerBody;

/// Ids are handed out this many at a time.
const STEP: u64 = 10_000;
/// A range that the leader does not send is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(in crate::monitor) struct IdRange {
    next: u64,
    end: u64,
    /// The range after this one.
    spare: Option<(u64, u64)>,
    asked_at: Option<Time>,
    /// At the leader: ranges that become valid when the log holds a version: version, member, first, end.
    promised: VecDeque<(u64, u64, u64, u64)>,
}

impl IdRange {
    fn take(&mut self) -> Option<u64> {
        if self.next == self.end {
            (self.next, self.end) = self.spare.take()?;
        }
        let id = self.next;
        self.next += 1;
        Some(id)
    }

    fn needs_more(&self, now: Time) -> bool {
        let is_low = self.spare.is_none() && self.end - self.next < STEP / 2;
        is_low && self.asked_at.is_none_or(|at| now.since(at) >= ASK_AGAIN)
    }

    fn add(&mut self, first: u64, end: u64) {
        self.asked_at = None;
        if self.next == self.end {
            (self.next, self.end) = (first, end);
        } else if self.spare.is_none() {
            self.spare = Some((first, end));
        }
    }

    pub fn drop_promises(&mut self) {
        self.promised.clear();
    }
}

impl Monitor {
    /// An id that nobody else gets. `None` while the leader has given us none: later.
    pub(in crate::monitor) fn take_global_id(&mut self, turn: &mut Turn<'_>) -> Option<u64> {
        let id = self.quorum.ids.take();
        self.ask_for_ids(turn);
        id
    }

    /// Asks the leader for the next range before this one ends.
    pub(in crate::monitor) fn ask_for_ids(&mut self, turn: &mut Turn<'_>) {
        if !self.quorum.ids.needs_more(turn.now) {
            return;
        }
        let member = self.quorum.member;
        let is_asked = match self.quorum.role.leader() {
            Some(leader) if leader == member => {
                self.reserve_ids(turn, member);
                self.can_propose()
            }
            Some(leader) => self.say_to(turn, leader, MonPeerBody::WantIds),
            None => false,
        };
        if is_asked {
            self.quorum.ids.asked_at = Some(turn.now);
        }
    }

    /// At the leader: a range for a member, which is its own when the new limit is durable.
    pub(super) fn reserve_ids(&mut self, turn: &mut Turn<'_>, member: u64) {
        if !self.can_propose() {
            return;
        }
        let first = self.states.head().auth.global_id_limit.max(GLOBAL_ID_MIN);
        let end = first + STEP;
        let version = self.propose(turn.now, vec![Change::GlobalIdLimit { limit: end }]);
        self.quorum.ids.promised.push_back((version, member, first, end));
    }

    /// Hands out the ranges whose limit is durable.
    pub(in crate::monitor) fn send_promised_ids(&mut self, turn: &mut Turn<'_>) {
        let held = self.states.committed.version;
        while let Some((_, member, first, end)) =
            self.quorum.ids.promised.pop_front_if(|(version, ..)| *version <= held)
        {
            if member == self.quorum.member {
                self.quorum.ids.add(first, end);
            } else {
                self.say_to(turn, member, MonPeerBody::Ids { first, end });
            }
        }
    }

    pub(super) fn on_ids(&mut self, turn: &mut Turn<'_>, first: u64, end: u64) {
        if first < end {
            self.quorum.ids.add(first, end);
            self.auth_retry_waiting(turn);
        }
    }

    #[cfg(test)]
    pub(in crate::monitor) fn spend_global_ids(&mut self) {
        while self.quorum.ids.take().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_from_the_ranges_in_order_and_each_once() {
        let mut range = IdRange::default();
        assert_eq!(range.take(), None);
        range.add(100, 102);
        range.add(200, 201);
        assert_eq!(
            [range.take(), range.take(), range.take(), range.take()],
            [Some(100), Some(101), Some(200), None]
        );
    }

    #[test]
    fn the_next_range_is_asked_for_once_a_second() {
        let mut range = IdRange::default();
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        assert!(range.needs_more(at(0)));
        range.asked_at = Some(at(0));
        assert!(!range.needs_more(at(999)) && range.needs_more(at(1000)));
        range.add(0, STEP);
        assert!(!range.needs_more(at(1000)));
        (0..STEP / 2).for_each(|_| assert!(range.take().is_some()));
        assert!(!range.needs_more(at(1000)));
        range.take();
        assert!(range.needs_more(at(1000)));
        range.add(STEP, 2 * STEP);
        assert!(!range.needs_more(at(1000)), "a spare range is there");
    }
}
