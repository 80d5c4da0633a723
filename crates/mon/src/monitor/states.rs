//! The monitor's copies of the state: the one that holds, and at the leader one that has its own proposals as well.
//!
//! A follower decodes and applies each entry of the log once. The leader needs the second copy: it makes each proposal for the
//! state that all earlier ones lead to, and tells nobody of a state before it holds. It keeps its proposals until they hold, so
//! that it decodes none of them; both copies share the maps that a proposal leads to ([`crate::proposal::SealedStep`]).

use crate::proposal::Proposal;
use crate::state::State;
use bytes::Bytes;
use std::cell::Cell;
use std::collections::VecDeque;

pub(super) struct States {
    /// The state after the newest entry that holds.
    pub committed: State,
    /// `None` on a follower.
    lead: Option<Lead>,
}

/// A leader's own proposals.
struct Lead {
    /// The state after the newest one.
    head: State,
    /// Those that do not hold yet, with their entries.
    waiting: VecDeque<(Bytes, Proposal)>,
    /// The version at which `check` compared both copies last.
    compared: Cell<u64>,
}

impl States {
    pub fn new(committed: State) -> States {
        States { committed, lead: None }
    }

    /// The newest state: with this monitor's own proposals, where it leads.
    pub fn head(&self) -> &State {
        self.lead.as_ref().map_or(&self.committed, |lead| &lead.head)
    }

    /// The leader waits for proposals of its own to hold.
    pub fn is_ahead(&self) -> bool {
        self.committed.version < self.head().version
    }

    pub fn start_leading(&mut self) {
        let head = self.committed.clone();
        self.lead = Some(Lead { head, waiting: VecDeque::new(), compared: Cell::new(0) });
    }

    /// Takes proposals back that may not hold: the next leader's version of that number may be another.
    pub fn stop_leading(&mut self) {
        self.lead = None;
    }

    /// Applies a proposal of this monitor, which leads, made it for [`States::head`], and has put its entry into the log.
    pub fn propose(&mut self, entry: Bytes, proposal: Proposal) {
        let lead = self.lead.as_mut().expect("a monitor that leads proposes");
        let fits = lead.head.apply(&proposal);
        debug_assert!(fits, "a proposal is made for the newest state");
        lead.waiting.push_back((entry, proposal));
    }

    /// Applies an entry that holds. Where this monitor leads it is its own proposal, which `head` has already.
    pub fn commit(&mut self, entry: &Bytes) {
        let waiting = self.lead.as_mut().and_then(|lead| lead.waiting.pop_front());
        let proposal = match waiting.filter(|(own, _)| own == entry) {
            Some((_, proposal)) => proposal,
            None => codec::decode_exact(entry).expect("an entry that a monitor wrote decodes"),
        };
        self.committed.apply(&proposal);
    }

    /// Replaces the state of a follower by the leader's.
    pub fn install(&mut self, state: State) {
        *self = States::new(state);
    }

    pub fn check(&self, is_leading: bool) {
        assert_eq!(self.lead.is_some(), is_leading, "the leader alone is ahead");
        let Some(lead) = &self.lead else { return };
        let (committed, version) = (self.committed.version, lead.head.version);
        assert_eq!(committed + lead.waiting.len() as u64, version);
        let is_due = version.is_multiple_of(64) && lead.compared.get() != version;
        if is_due && committed == version {
            lead.compared.set(version);
            assert!(self.committed.digest() == lead.head.digest(), "both copies applied the same log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::new_state;
    use crate::osd_step::{sealed, step_after};
    use crate::proposal::Change;
    use codec::{Encode, Features};
    use std::sync::Arc;
    use wire::types::UTime;

    /// A new epoch of the OSDMap, and a key with this value.
    fn proposal(states: &States, value: &'static str) -> (Bytes, Proposal) {
        let map = states.head().osdmap();
        let step = sealed(step_after(map, UTime::default()), map).unwrap();
        let key = Change::ConfigKey { key: "k".into(), value: Some(Bytes::from_static(value.as_bytes())) };
        let base = Some(states.head().version);
        let proposal = Proposal { at: UTime::default(), base, changes: vec![step, key] };
        (proposal.to_vec(Features::ALL).into(), proposal)
    }

    fn value(state: &State) -> Option<&[u8]> {
        state.config_keys.get("k").map(|value| &value[..])
    }

    #[test]
    fn leader_is_ahead_until_its_proposals_hold() {
        let mut states = States::new(new_state());
        states.start_leading();
        let entries = ["1", "2"].map(|value| {
            let (entry, proposal) = proposal(&states, value);
            states.propose(entry.clone(), proposal);
            entry
        });
        assert!(states.is_ahead());
        assert_eq!((value(&states.committed), value(states.head())), (None, Some(&b"2"[..])));
        states.commit(&entries[0]);
        assert_eq!(value(&states.committed), Some(&b"1"[..]));
        states.commit(&entries[1]);
        states.check(true);
        assert!(!states.is_ahead());
        let maps = [&states.committed, states.head()].map(|state| state.osd.shared_map());
        assert!(Arc::ptr_eq(&maps[0], &maps[1]), "a map is made once");

        let mut follower = States::new(new_state());
        entries.iter().for_each(|entry| follower.commit(entry));
        follower.check(false);
        assert_eq!(follower.head().digest(), states.head().digest());
    }

    /// Its entry did not hold: another leader's has this number.
    #[test]
    fn proposal_of_a_former_leader_is_taken_back() {
        let mut states = States::new(new_state());
        let (others, _) = proposal(&states, "others");
        states.start_leading();
        let (entry, proposal) = proposal(&states, "own");
        states.propose(entry, proposal);
        states.commit(&others);
        states.stop_leading();
        states.check(false);
        assert_eq!(value(states.head()), Some(&b"others"[..]));
    }
}
