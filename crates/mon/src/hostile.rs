//! Bytes of an attacker as an entry of the replicated log, as a message of the quorum and as a member's disk: called by the
//! fuzz targets and by the replay of their corpora.

pub use crate::replication::quorum::hostile::{
    disk as quorum_disk, disk_examples as quorum_disks, message as quorum_message,
    message_examples as quorum_messages,
};

use crate::genesis::{FullRatios, Genesis};
use crate::proposal::{Change, Proposal};
use crate::state::State;
use codec::{Encode, Features, decode_exact};
use machine::Random;
use std::collections::BTreeMap;
use wire::types::{UTime, Uuid};

/// A command that creates a pool admits fewer PGs; an entry with more was never proposed.
const PG_NUM_MAX: u32 = 1 << 16;

/// Decodes a proposal, writes it again and, where its steps fit a new cluster's map, applies it.
///
/// # Panics
/// If a proposal changes by being written, or a snapshot is not the state that it was taken of.
pub fn proposal(data: &[u8]) {
    let Ok(proposal) = decode_exact::<Proposal>(data) else { return };
    let once = proposal.to_vec(Features::ALL);
    let again = decode_exact::<Proposal>(&once).expect("a proposal reads what it wrote");
    assert!(again.to_vec(Features::ALL) == once, "{proposal:?}");

    let mut state = new_state();
    if !fits(&state, &proposal) {
        return;
    }
    state.apply(&proposal);
    let snapshot = state.snapshot();
    let restored = decode_exact::<State>(&snapshot).expect("a state reads its snapshot");
    assert!(restored.snapshot() == snapshot, "{proposal:?}");
}

/// A new cluster, always the same.
pub fn new_state() -> State {
    let genesis = Genesis {
        fsid: Uuid::default(),
        monitors: Vec::new(),
        entities: BTreeMap::new(),
        failure_domain: "host".into(),
        full_ratios: FullRatios::default(),
    };
    let mut state = State::default();
    state.apply(&genesis.proposal(UTime::default(), &mut Random::from_number(1)));
    state
}

fn fits(state: &State, proposal: &Proposal) -> bool {
    let mut map = state.osdmap().clone();
    proposal.changes.iter().all(|change| match change {
        Change::OsdMap { step } => {
            let small = step.step().new_pools.values().all(|pool| pool.pg_num <= PG_NUM_MAX);
            let next = map.apply(step.step());
            next.is_ok_and(|next| {
                map = next;
                small
            })
        }
        _ => true,
    })
}
