//! Membership: one change at a time, learners first, and leadership that moves before a leader leaves.
//!
//! A new member starts as a learner, so that it holds the log before it counts. The leader promotes it by itself. Only
//! simple changes are proposed; a joint configuration that came with a state is left at once.

use super::planted::{Rule, is_broken};
use super::record::{Members, NUMBER_MAX};
use super::{Event, Quorum, Refused, STATE_RETRY_TICKS, guard};
use prost::Message as _;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2};
use raft::{ProgressState, SnapshotStatus};

/// A learner that lacks at most this many entries is promoted.
const PROMOTION_LAG_MAX: u64 = 64;

impl Quorum {
    /// Adds a member, which votes once it has caught up. Its disk is empty. Ids are never reused.
    pub fn add_learner(&mut self, id: u64) -> Result<(), Refused> {
        self.require_no_change()?;
        let members = self.members();
        if members.contains(id) {
            return Err(Refused::IsMember(id));
        }
        if id > NUMBER_MAX {
            return Err(Refused::BadId(id));
        }
        if id <= members.id_max {
            return Err(Refused::UsedId { id, free: members.id_max + 1 });
        }
        if !members.learners.is_empty() {
            return Err(Refused::ChangePending);
        }
        self.propose_change(ConfChangeType::AddLearnerNode, id)
    }

    /// Removes a member that does not lead.
    pub fn remove(&mut self, id: u64) -> Result<(), Refused> {
        self.require_no_change()?;
        let members = self.members();
        if !members.contains(id) {
            return Err(Refused::NoMember(id));
        }
        if id == self.member {
            return Err(Refused::IsLeader(id));
        }
        let left: Vec<u64> = members.voters.iter().copied().filter(|voter| *voter != id).collect();
        let active = left.iter().filter(|voter| self.is_active(**voter)).count();
        if members.voters.contains(&id) && active <= left.len() / 2 {
            return Err(Refused::NoMajority(id));
        }
        self.propose_change(ConfChangeType::RemoveNode, id)
    }

    /// Starts to hand the leadership to a voter. Proposals are refused until it has moved, at most for
    /// [`ELECTION_TICKS`](super::ELECTION_TICKS).
    pub fn transfer_leadership(&mut self, to: u64) -> Result<(), Refused> {
        self.require_established()?;
        if !self.members().contains(to) {
            return Err(Refused::NoMember(to));
        }
        if !self.members().voters.contains(&to) {
            return Err(Refused::NoVoter(to));
        }
        if to == self.member {
            return Err(Refused::IsLeader(to));
        }
        if !self.is_active(to) {
            return Err(Refused::Inactive(to));
        }
        self.node.transfer_leader(to);
        self.pump();
        Ok(())
    }

    fn require_no_change(&self) -> Result<(), Refused> {
        self.require_established()?;
        if self.node.raft.lead_transferee.is_some() {
            return Err(Refused::Transferring);
        }
        if self.node.raft.has_pending_conf() || self.members().is_joint() {
            return Err(Refused::ChangePending);
        }
        Ok(())
    }

    fn propose_change(&mut self, kind: ConfChangeType, id: u64) -> Result<(), Refused> {
        let single = ConfChangeSingle { change_type: kind as i32, node_id: id };
        let change = ConfChangeV2 { changes: vec![single], ..ConfChangeV2::default() };
        let data = change.encode_to_vec();
        assert!(guard::decode_change(&data).is_some(), "ids are within bounds");
        self.node.propose_conf_change(Vec::new(), change).map_err(|_| Refused::Busy)?;
        self.pump();
        Ok(())
    }

    pub(super) fn apply_change(&mut self, index: u64, data: &[u8]) {
        // Every member decides the same on the same bytes.
        let Some(change) = guard::decode_change(data) else { return };
        let Ok(conf) = self.node.apply_conf_change(&change) else { return };
        let members = Members::from_conf(&conf, self.members().id_max);
        self.peers.retain(|id, _| !members.is_removed(*id));
        self.history.push((index, members.clone()));
        self.outcome.events.push(Event::Members { index, members });
    }

    /// The leader's work at each tick: states that were lost, learners that caught up, a joint configuration.
    pub(super) fn tend_members(&mut self) {
        if !self.is_leader() {
            self.peers.values_mut().for_each(|peer| peer.state_ticks = 0);
            return;
        }
        self.asked_ticks = self.asked_ticks.map(|ticks| ticks + 1);
        let progress: Vec<(u64, ProgressState, u64)> =
            self.node.raft.prs().iter().map(|(id, of)| (*id, of.state, of.matched)).collect();
        for (id, state, _) in &progress {
            let peer = self.peers.entry(*id).or_default();
            peer.state_ticks = if *state == ProgressState::Snapshot { peer.state_ticks + 1 } else { 0 };
            if peer.state_ticks >= STATE_RETRY_TICKS && !is_broken(Rule::ReportLostState) {
                peer.state_ticks = 0;
                self.node.report_snapshot(*id, SnapshotStatus::Failure);
            }
        }
        if self.require_established().is_err()
            || self.node.raft.has_pending_conf()
            || self.node.raft.lead_transferee.is_some()
        {
            return;
        }
        if self.members().is_joint() {
            if is_broken(Rule::LeaveJoint) {
                return;
            }
            // The empty change leaves it. A refusal is repeated at the next tick.
            let _ = self.node.propose_conf_change(Vec::new(), ConfChangeV2::default());
            return;
        }
        let last = self.node.raft.raft_log.last_index();
        let is_ready = |(id, state, matched): &&(u64, ProgressState, u64)| {
            // An idle member that has caught up by a state stays in the probing state. One that matches nothing waits for
            // its first state.
            let has_state = *state != ProgressState::Snapshot && *matched > 0;
            let has_log = has_state && matched + PROMOTION_LAG_MAX >= last;
            has_log && self.members().learners.contains(id) && self.is_active(*id)
        };
        if let Some((id, ..)) = progress.iter().find(is_ready) {
            let id = *id;
            // A refusal is repeated at the next tick.
            let _ = self.propose_change(ConfChangeType::AddNode, id);
        }
    }
}
