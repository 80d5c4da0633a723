//! Bytes of an attacker as an entry of the replicated log, as a message of the quorum, as a member's disk and as a file of collected
//! maps: called by the fuzz targets and by the replay of their corpora.

pub use crate::replication::quorum::hostile::{
    disk as quorum_disk, disk_examples as quorum_disks, message as quorum_message,
    message_examples as quorum_messages,
};

use crate::auth_entity::AuthEntity;
use crate::genesis::{FullRatios, Genesis};
use crate::joining::Host;
use crate::osd_step::step_after;
use crate::proposal::{Change, Proposal};
use crate::rebuild::{Found, Rebuild, Store};
use crate::state::State;
use codec::{Encode, Features, decode_exact};
use machine::Random;
use std::collections::BTreeMap;
use wire::cephx::{Key, KeyKind};
use wire::types::{AuthName, EntityKind, OsdMap, UTime, Uuid};

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

/// Reads collected maps, without the checksum of their file, and makes a monitor of them.
///
/// # Panics
/// If what was read changes by being written, or a monitor's disk does not hold its own state.
pub fn collected_maps(data: &[u8]) {
    let Ok(found) = Found::from_content(data) else { return };
    let file = found.to_file();
    let again = Found::from_file(&file).expect("a file reads what it wrote");
    assert!(again.to_file() == file);

    let without = found.stores().zip(0..).map(|(_, osd)| osd).collect();
    let (name, addrs, entities) = ("a".to_owned(), Default::default(), found.keys.clone());
    let rebuild = Rebuild { name, addrs, entities, without, skipped: 3 };
    if let Ok(made) = rebuild.make(&found, UTime::default(), &mut Random::from_number(1)) {
        let (_, state) = made.write.snapshot.expect("a disk has a state");
        decode_exact::<State>(&state).expect("a state reads its snapshot");
    }
}

/// Contents for [`collected_maps`].
pub fn collections() -> Vec<Vec<u8>> {
    let history = new_state().osd;
    let store = Store {
        name: "osd.0".into(),
        cluster: Uuid([1; 16]),
        identity: Uuid([2; 16]),
        newest: 1,
        map: Some(OsdMap { fsid: Uuid([1; 16]), ..history.map().clone() }.into()),
        steps: BTreeMap::new(),
    };
    let mut next = store.clone();
    if let Some(map) = &store.map {
        let mut step = step_after(map, UTime::default());
        step.new_max_osd = Some(1);
        let after = step.seal(map).expect("the step fits");
        next.steps.insert(2, step.to_vec(Features(step.encode_features)).into());
        next.map = Some(after.into());
        next.newest = 2;
    }
    let collected = |stores: Vec<Store>| {
        let mut found = Found::default();
        stores.into_iter().for_each(|store| drop(found.add(store)));
        found.to_content()
    };
    let step_alone = Store { identity: Uuid([3; 16]), map: None, ..next.clone() };
    let mut with_keys = Found::default();
    drop(with_keys.add(next.clone()));
    let key = Key::generate(KeyKind::Aes, UTime::default(), &mut Random::from_number(2));
    with_keys.keys.insert(AuthName::new(EntityKind::OSD, "0"), AuthEntity::new(key, BTreeMap::new()));
    with_keys.hosts.insert("h1".into(), Host { id: Uuid([4; 16]), ..Host::default() });
    let stores =
        [vec![], vec![store.clone()], vec![next.clone()], vec![store.clone(), next], vec![store, step_alone]];
    stores.into_iter().map(collected).chain([with_keys.to_content()]).collect()
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
