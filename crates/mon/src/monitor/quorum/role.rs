//! The leader's part: its beginning, its end, and the others' knowledge of it.

use super::{Monitor, STEP};
use crate::health;
use crate::monitor::Turn;
use crate::monitor::mgr::MgrWatch;
use crate::monitor::osd::{Creations, OsdWatch};
use crate::replication::{Quorum, Role as LogRole};
use machine::{ConnId, Time};
use std::time::Duration;
use wire::types::{EntityKind, LogPriority, UTime};

/// A monitor that knows no leader for so long sends its clients away: another one may have a quorum. An election takes less than a
/// second.
const LEADERLESS_MAX: Duration = Duration::from_millis(1500);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::monitor) struct Role {
    leader: Option<u64>,
    pub term: u64,
    /// This monitor leads, has applied everything before its term, and may propose.
    is_leading: bool,
    /// Members that take part, as the leader sees them.
    pub quorum: Vec<u64>,
    pub quorum_since: UTime,
}

impl Role {
    pub fn leader(&self) -> Option<u64> {
        self.leader
    }
}

impl Monitor {
    /// This monitor leads. It may still have to wait before it proposes: see [`Monitor::can_propose`].
    pub(in crate::monitor) fn is_leading(&self) -> bool {
        self.quorum.role.is_leading
    }

    /// A change that is proposed now goes into the log: this monitor leads, hands its role to nobody, and not too much waits.
    pub(in crate::monitor) fn can_propose(&self) -> bool {
        self.is_leading() && self.replication.as_ref().is_some_and(Quorum::can_propose)
    }

    /// Acts on what the log says of leaders.
    pub(in crate::monitor) fn follow_role(&mut self, turn: &mut Turn<'_>) {
        let Some(log) = &self.replication else { return };
        let (leader, term, part) = (log.leader(), log.term(), log.role());
        let is_leading = matches!(part, LogRole::Leader { is_established: true, .. });
        let was_leading = self.quorum.role.is_leading;
        let is_same = was_leading == is_leading && self.quorum.role.term == term;
        if was_leading && !is_same {
            self.stop_leading(turn);
        }
        let role = &mut self.quorum.role;
        (role.leader, role.term, role.is_leading) = (leader, term, is_leading);
        self.quorum.leaderless_since = match leader {
            Some(_) => None,
            None => self.quorum.leaderless_since.or(Some(turn.now)),
        };
        if leader != Some(self.quorum.member) {
            self.quorum.early.clear();
        }
        if is_leading && !(was_leading && is_same) {
            self.follow_active_members(turn.now);
            self.quorum.role.quorum_since = self.clock.at(turn.now);
            self.start_leading(turn);
            self.take_early_requests(turn);
        }
        // Those that came while it handed its role to another, who did not take it, or while too much waited.
        if self.can_propose() && !self.quorum.early.is_empty() {
            self.take_early_requests(turn);
        }
        if leader.is_some() {
            self.send_due_requests(turn);
        }
        // It may have been told by the log itself.
        if part == LogRole::Removed {
            self.on_removed(turn);
        }
    }

    /// The members that take part, as the leader sees them. They fall silent and are heard in the log's own clock.
    pub(super) fn follow_active_members(&mut self, now: Time) {
        let Some(log) = self.replication.as_ref().filter(|_| self.quorum.role.is_leading) else { return };
        let role = &mut self.quorum.role;
        if !log.active_voters().eq(role.quorum.iter().copied()) {
            role.quorum = log.active_voters().collect();
            role.quorum_since = self.clock.at(now);
            self.quorum.pulses.make_due(now);
        }
    }

    fn start_leading(&mut self, turn: &mut Turn<'_>) {
        // All that other leaders decided has been applied, and nothing was proposed here.
        self.states.start_leading();
        self.osd = OsdWatch::start(&self.states.committed, turn.now);
        self.mgr = MgrWatch::start(&self.states.committed, turn.now);
        self.creations = Creations::default();
        self.tick_at = turn.now;
        self.last_checks = health::Checks::default();
        if !self.is_alone() {
            // The last leader has written its lines about what is wrong. That a monitor is gone may be news.
            let situation = self.situation(turn);
            self.last_checks =
                health::checks(&self.states.committed, &self.reports, &situation, &self.options);
            self.last_checks.remove("MON_DOWN");
            let line = self.leadership_line();
            let change = self.log_change(self.wall(turn.now), LogPriority::INFO, "cluster", line);
            self.propose(turn.now, vec![change]);
        }
        self.follow_creations(turn);
    }

    /// As stock says it.
    fn leadership_line(&self) -> String {
        let map = &self.states.committed.monmap;
        let ranks = self.quorum_ranks();
        let names: Vec<&str> =
            ranks.iter().filter_map(|rank| map.ranks.get(*rank)).map(String::as_str).collect();
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        let (name, names, ranks) = (&self.settings.name, names.join(","), ranks.join(","));
        format!("mon.{name} is new leader, mons {names} in quorum (ranks {ranks})")
    }

    /// Everything that was promised on the strength of leading is taken back. Requests stay in the outbox, for the next leader.
    fn stop_leading(&mut self, turn: &mut Turn<'_>) {
        self.quorum.answers.drop_all();
        self.quorum.unsettled.clear();
        self.quorum.ids.drop_promises();
        for conn in self.quorum.carried.close_all(None) {
            self.sessions.remove(&conn);
        }
        self.maps_owed.clear();
        self.osd = OsdWatch::start(&self.states.committed, turn.now);
        self.states.stop_leading();
    }

    /// Ranks of the monitors that take part, by what the leader says.
    pub(in crate::monitor) fn quorum_ranks(&self) -> Vec<usize> {
        self.ranks_of(&self.quorum.role.quorum)
    }

    pub(in crate::monitor) fn voter_ranks(&self) -> Vec<usize> {
        self.replication.as_ref().map(|log| self.ranks_of(&log.members().voters)).unwrap_or_default()
    }

    fn ranks_of(&self, members: &[u64]) -> Vec<usize> {
        let map = &self.states.committed.monmap;
        let names = members.iter().filter_map(|member| self.states.committed.members.name_of(*member));
        let mut ranks: Vec<usize> = names.filter_map(|name| map.rank_of(name)).collect();
        ranks.sort_unstable();
        ranks
    }

    /// This monitor's part, in stock's words.
    pub(in crate::monitor) fn part(&self) -> &'static str {
        match self.replication.as_ref().map(|log| log.role()) {
            _ if self.quorum.is_removed => "shutdown",
            None => "probing",
            Some(LogRole::Joining) => "synchronizing",
            Some(LogRole::Leader { is_established: true, .. }) => "leader",
            Some(LogRole::Follower { leader: Some(_) }) => "peon",
            Some(
                LogRole::Leader { .. } | LogRole::Follower { .. } | LogRole::Candidate | LogRole::Removed,
            ) => "electing",
        }
    }

    pub(in crate::monitor) fn leader_rank(&self) -> Option<usize> {
        let name = self.states.committed.members.name_of(self.quorum.role.leader?)?;
        self.states.committed.monmap.rank_of(name)
    }

    /// True while this monitor knows a leader, or did a moment ago. One that has no state yet knows nobody's key.
    pub(in crate::monitor) fn is_in_quorum(&self, now: Time) -> bool {
        self.quorum.member != 0
            && self.states.committed.monmap.epoch > 0
            && !self.quorum.is_removed
            && self.quorum.leaderless_since.is_none_or(|since| now.since(since) < LEADERLESS_MAX)
    }

    /// Sends clients and daemons away that another monitor can serve.
    pub(super) fn send_sessions_away(&mut self, turn: &mut Turn<'_>) {
        if self.is_in_quorum(turn.now) {
            return;
        }
        let is_monitor = |conn: &ConnId| {
            self.sessions.get(conn).is_some_and(|session| session.peer.identity.role() == EntityKind::MON)
        };
        let sent: Vec<ConnId> = self.sessions.keys().copied().filter(|conn| !is_monitor(conn)).collect();
        sent.into_iter().for_each(|conn| self.close(turn, conn));
    }

    /// The log's own clock.
    pub(super) fn tick_log(&mut self, turn: &mut Turn<'_>) {
        while self.quorum.step_at <= turn.now {
            // A monitor that was paused does not make up for all the time it missed.
            let late = turn.now.since(self.quorum.step_at);
            self.quorum.step_at = if late > 4 * STEP { turn.now + STEP } else { self.quorum.step_at + STEP };
            if let Some(log) = &mut self.replication {
                log.tick();
            }
            self.follow_active_members(turn.now);
        }
    }
}
