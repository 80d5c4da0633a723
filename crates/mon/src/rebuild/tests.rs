//! Rebuilt disks against the history of a small cluster: three OSDs, a pool.

use super::*;
use crate::genesis::{FullRatios, Genesis};
use bytes::Bytes;
use codec::{Encode, Features};
use std::sync::Arc;
use wire::types::{EntityAddr, OsdRow, OsdState, PgPool, PoolKind};

const CLUSTER: Uuid = Uuid([7; 16]);
const NOW: UTime = UTime { sec: 1_800_000_000, nsec: 0 };
/// The newest map of the lost monitors' history.
const NEWEST: Epoch = 12;
const SKIPPED: u32 = 20;

fn identity(osd: i32) -> Uuid {
    Uuid([osd as u8 + 100; 16])
}

fn at(sec: u32) -> UTime {
    UTime { sec: 1_700_000_000 + sec, nsec: 0 }
}

/// The lost monitors' history. Maps from `parted` on are of other monitors, which marked osd.2 down there.
fn history(parted: Epoch) -> OsdHistory {
    let genesis = Genesis {
        fsid: CLUSTER,
        monitors: vec![("a".into(), EntityAddrVec::default())],
        entities: BTreeMap::new(),
        failure_domain: "osd".into(),
        full_ratios: FullRatios::default(),
    };
    let mut state = State::default();
    state.apply(&genesis.proposal(at(0), &mut Random::from_number(1)));
    let mut history = state.osd;
    while history.map().epoch < NEWEST {
        let map = history.map();
        let mut step = step_after(map, at(map.epoch));
        match step.epoch {
            2 => {
                let row = |osd| (osd, OsdState::EXISTS);
                step.new_max_osd = Some(4);
                step.new_state = (0..4).map(row).collect();
                step.new_uuid = (0..4).map(|osd| (osd, identity(osd))).collect();
            }
            3 => {
                let addrs = |osd: i32| {
                    let addr = ([127, 0, 0, 1], 6800 + osd as u16).into();
                    (osd, EntityAddrVec::one(EntityAddr::msgr2(addr, 1)))
                };
                step.new_up_client = (0..3).map(addrs).collect();
                step.new_heartbeat_back_up = (0..3).map(addrs).collect();
                step.new_heartbeat_front_up = (0..3).map(addrs).collect();
                step.new_weight = (0..3).map(|osd| (osd, OsdMap::WEIGHT_IN)).collect();
            }
            5 => {
                let mut pool = PgPool {
                    kind: PoolKind::REPLICATED,
                    size: 3,
                    min_size: 2,
                    pg_num: 4,
                    pgp_num: 4,
                    ..PgPool::default()
                };
                pool.flags.set(PoolFlags::CREATING, true);
                step.new_pool_max = Some(1);
                step.new_pools.insert(1, pool);
                step.new_pool_names.insert(1, "data".into());
            }
            7 => {
                let mut pool = map.pools[&1].clone();
                pool.flags.set(PoolFlags::CREATING, false);
                step.new_pools.insert(1, pool);
            }
            epoch if epoch == parted => step.new_state = [(2, OsdState::UP)].into(),
            _ => step.new_weight = [(1, 0x8000 + step.epoch)].into(),
        }
        history.apply(&sealed(step, map));
    }
    history
}

fn lost() -> OsdHistory {
    history(0)
}

/// The store of an OSD that has the maps up to `newest`, and increments from `first` on.
fn store(history: &OsdHistory, osd: i32, first: Epoch, newest: Epoch) -> Store {
    let bytes = |epoch| {
        let step = history.step_to(epoch).unwrap();
        (epoch, Bytes::from(step.to_vec(Features(step.encode_features))))
    };
    Store {
        name: format!("osd.{osd}"),
        cluster: CLUSTER,
        identity: identity(osd),
        newest,
        map: history.at(newest),
        steps: (first..=newest).map(bytes).collect(),
    }
}

fn found(stores: impl IntoIterator<Item = Store>) -> Found {
    let mut found = Found::default();
    for store in stores {
        assert_eq!(found.add(store), Ok(Vec::new()));
    }
    found
}

fn rebuild() -> Rebuild {
    let key = |random: &mut Random| wire::cephx::Key::generate(wire::cephx::KeyKind::Aes, NOW, random);
    let mut random = Random::from_number(2);
    let entity = |name: &str, random: &mut Random| {
        (name.parse().unwrap(), AuthEntity::new(key(random), BTreeMap::new()))
    };
    let names = ["mon.", "client.admin", "osd.0", "osd.1", "osd.2"];
    Rebuild {
        name: "b".into(),
        addrs: EntityAddrVec::default(),
        entities: names.iter().map(|name| entity(name, &mut random)).collect(),
        without: BTreeSet::new(),
        skipped: SKIPPED,
    }
}

fn make(found: &Found) -> Result<Rebuilt, Refused> {
    rebuild().make(found, NOW, &mut Random::from_number(3))
}

fn state(rebuilt: &Rebuilt) -> State {
    codec::decode_exact(&rebuilt.write.snapshot.as_ref().unwrap().1).unwrap()
}

fn three() -> Found {
    let lost = lost();
    found([store(&lost, 0, 4, NEWEST), store(&lost, 1, 6, NEWEST), store(&lost, 2, 4, 9)])
}

#[test]
fn rebuilt_map_is_the_newest_one_under_a_later_epoch() {
    let rebuilt = make(&three()).unwrap();
    assert_eq!((rebuilt.found, rebuilt.epoch, rebuilt.oldest), (NEWEST, NEWEST + SKIPPED, 9));
    assert_eq!(
        (&rebuilt.osds[..], &rebuilt.never_up[..], &rebuilt.keyless[..]),
        (&[0, 1, 2][..], &[3][..], &[3][..])
    );
    let state = state(&rebuilt);
    let mut osds = lost().map().osds.clone();
    osds[..3].iter_mut().for_each(|row| row.info.up_thru = NEWEST);
    let (epoch, pool_max) = (rebuilt.epoch, 1 + SKIPPED as i32);
    let expected = OsdMap { epoch, modified: NOW, pool_max, osds, ..lost().map().clone() };
    assert_eq!(*state.osdmap(), expected);
    assert!(state.osd.creating.is_empty());
}

#[test]
fn rebuilt_numbers_are_above_all_that_were_used() {
    let rebuilt = make(&three()).unwrap();
    let state = state(&rebuilt);
    assert!(state.auth.global_id_limit >= u64::from(NOW.sec) * CLIENTS_PER_SECOND);
    assert!(state.members.get("b").unwrap().id > u64::from(NOW.sec));
    assert_eq!((state.monmap.epoch, state.mgrmap.epoch), (rebuilt.epoch, rebuilt.epoch));
    assert_eq!((state.monmap.fsid, state.monmap.created), (CLUSTER, at(0)));
    assert_eq!(rebuilt.write.identity.map(|own| own.member), state.members.get("b").map(|member| member.id));
    assert!(state.auth.entities.contains_key(&"osd.2".parse().unwrap()));
    assert!(state.auth.entities.contains_key(&"client.bootstrap-osd".parse().unwrap()));
    assert!(
        state.log.last(1, LogPriority::WARN, "*")[0]
            .message
            .contains("rebuilt from the stores of osd.0, osd.1, osd.2")
    );
    // A clock that was set back gives out no number twice.
    let early = rebuild().make(&three(), at(0), &mut Random::from_number(3)).unwrap();
    assert!(self::state(&early).auth.global_id_limit >= u64::from(at(NEWEST - 1).sec) * CLIENTS_PER_SECOND);
}

/// The map of a peer that takes the increments after `map`, with or without a look at the map's checksum.
fn caught_up(
    state: &State,
    map: &OsdMap,
    verified: bool,
) -> Result<OsdMap, wire::types::osd_map::ApplyError> {
    let mut map = map.clone();
    for epoch in map.epoch + 1..=state.osdmap().epoch {
        let step = state.osd.step_to(epoch).expect("no increment is missing");
        map = if verified { map.apply_verified(step)? } else { map.apply(step)? };
    }
    Ok(map)
}

#[test]
fn gap_of_any_length_ends_with_the_map_whole() {
    for skipped in [2, 3, 200] {
        let rebuilt =
            Rebuild { skipped, ..rebuild() }.make(&three(), NOW, &mut Random::from_number(3)).unwrap();
        let state = state(&rebuilt);
        assert_eq!(state.osdmap().epoch, NEWEST + skipped);
        assert!(!state.osd.step_to(NEWEST + skipped).unwrap().full_map.is_empty());
    }
}

#[test]
fn osd_that_was_behind_catches_up_by_increments() {
    let state = state(&make(&three()).unwrap());
    for epoch in [9, NEWEST] {
        let map = lost().at(epoch).unwrap();
        assert_eq!(caught_up(&state, &map, true).as_ref(), Ok(state.osdmap()), "from {epoch}");
    }
}

#[test]
fn lost_newer_map_is_noticed_by_osds_and_replaced_in_clients() {
    let lost = lost();
    let known = found([0, 1, 2].map(|osd| store(&lost, osd, 4, 10)));
    let state = state(&make(&known).unwrap());
    // These peers have two maps that no store has.
    let peer = lost.at(NEWEST).unwrap();
    assert!(matches!(caught_up(&state, &peer, true), Err(wire::types::osd_map::ApplyError::Crc { .. })));
    assert_eq!(caught_up(&state, &peer, false).as_ref(), Ok(state.osdmap()));
}

#[test]
fn pool_whose_pgs_are_not_all_reported_still_waits() {
    let lost = lost();
    let state_of = |first| state(&make(&found([0, 1, 2].map(|osd| store(&lost, osd, first, 6)))).unwrap());
    let creating = state_of(7).osd.creating;
    assert_eq!(
        creating.values().map(|(since, _)| *since).collect::<Vec<_>>(),
        [1; 4],
        "the creation is not known"
    );
    let mut behind = found([store(&lost, 0, 4, 6), store(&lost, 1, 4, 6)]);
    behind.add(store(&lost, 2, 4, 4)).unwrap();
    let creating = state(&make(&behind).unwrap()).osd.creating;
    assert_eq!(creating.values().map(|(since, _)| *since).collect::<Vec<_>>(), [5; 4]);
}

#[test]
fn store_behind_a_gap_is_told() {
    let lost = lost();
    let known = found([store(&lost, 0, 8, NEWEST), store(&lost, 1, 8, NEWEST), store(&lost, 2, 4, 5)]);
    let rebuilt = make(&known).unwrap();
    assert_eq!((rebuilt.oldest, rebuilt.behind), (NEWEST, vec![Seen { name: "osd.2".into(), newest: 5 }]));
    assert_eq!(state(&make(&known).unwrap()).osd.oldest(), NEWEST);
}

#[test]
fn osd_without_a_store_must_be_declared_lost() {
    let lost = lost();
    let known = found([store(&lost, 0, 4, NEWEST), store(&lost, 2, 4, NEWEST)]);
    let refused = make(&known).unwrap_err();
    assert_eq!(refused, Refused::NotRead { epoch: NEWEST, missing: vec![1] });
    assert!(refused.to_string().ends_with("If a store is lost, say so: --without 1"), "{refused}");
    let without = Rebuild { without: [1].into(), ..rebuild() };
    let rebuilt = without.make(&known, NOW, &mut Random::from_number(3)).unwrap();
    assert_eq!(rebuilt.osds, [0, 2]);
}

#[test]
fn stores_of_two_histories_are_refused() {
    let (lost, other) = (lost(), history(10));
    let mut known = found([store(&lost, 0, 4, NEWEST)]);
    let conflict = known.add(store(&other, 1, 4, NEWEST)).unwrap_err();
    let expected = Conflict::TwoHistories { one: "osd.0".into(), other: "osd.1".into(), epoch: 10 };
    assert_eq!((conflict, known.stores().count()), (expected, 1));
    // Increments of one do not lead to the map of the other.
    let known = found([store(&other, 1, 11, 10), store(&lost, 0, 11, NEWEST), store(&lost, 2, 4, 9)]);
    let expected =
        Refused::TwoHistories { one: "osd.1".into(), one_epoch: 10, other: "osd.0".into(), epoch: 11 };
    assert_eq!(make(&known).unwrap_err(), expected);
    let foreign = Store { cluster: Uuid([9; 16]), ..store(&lost, 1, 4, NEWEST) };
    assert!(matches!(found([store(&lost, 0, 4, 5)]).add(foreign), Err(Conflict::OtherCluster { .. })));
}

#[test]
fn damaged_records_are_left_out_and_named() {
    let lost = lost();
    let mut torn = store(&lost, 2, 4, NEWEST);
    let mut bytes = Vec::from(&torn.steps[&8][..]);
    bytes[40] ^= 1;
    torn.steps.insert(8, bytes.into());
    torn.steps.insert(9, torn.steps[&10].clone());
    let mut known = found([store(&lost, 0, 9, NEWEST), store(&lost, 1, 4, 7)]);
    let damaged = known.add(torn.clone()).unwrap();
    assert!(damaged[0].starts_with("the increment to OSDMap 8 is damaged"), "{damaged:?}");
    assert_eq!(damaged[1], "the increment to OSDMap 9 is damaged: it leads to epoch 10");
    assert_eq!(make(&known).unwrap().oldest, NEWEST);

    // The newest map of osd.2 is damaged, and others are older.
    torn.map = None;
    torn.steps.retain(|epoch, _| *epoch < 8);
    let mut known = found([0, 1].map(|osd| store(&lost, osd, 4, 9)));
    known.add(torn).unwrap();
    let refused = make(&known).unwrap_err();
    assert_eq!(
        refused,
        Refused::NewestDamaged { name: "osd.2".into(), osd: Some(2), seen: NEWEST, found: 9 }
    );
    let without = Rebuild { without: [2].into(), ..rebuild() };
    let rebuilt = without.make(&known, NOW, &mut Random::from_number(3)).unwrap();
    assert_eq!((rebuilt.found, rebuilt.epoch), (9, NEWEST + SKIPPED), "above all that was seen");
}

#[test]
fn damaged_whole_map_is_made_from_an_older_one() {
    let lost = lost();
    let torn = Store { map: None, ..store(&lost, 0, 4, NEWEST) };
    let known = found([torn, store(&lost, 1, 4, 9), store(&lost, 2, 4, 9)]);
    assert_eq!(make(&known).unwrap().found, NEWEST);
}

#[test]
fn replaced_osd_is_told_apart() {
    let lost = lost();
    let mut known = three();
    let old = Store { identity: Uuid([55; 16]), name: "an old disk".into(), ..store(&lost, 1, 4, 5) };
    known.add(old).unwrap();
    let rebuilt = make(&known).unwrap();
    assert_eq!(rebuilt.strange, [Seen { name: "an old disk".into(), newest: 5 }]);
    assert_eq!(make(&Found::default()).unwrap_err(), Refused::NoMap);
    let row = OsdRow::default();
    assert_eq!(row.info.up_from, 0, "an OSD that was never up is not missed");
}

#[test]
fn file_carries_everything_and_detects_damage() {
    let mut known = three();
    known.keys = rebuild().entities;
    known
        .hosts
        .insert("h2".into(), Host { id: identity(9), addr: "10.0.0.2".into(), monitor: true, joined: at(1) });
    let file = known.to_file();
    let read = Found::from_file(&file).unwrap();
    assert_eq!(read.to_file(), file);
    assert_eq!((read.keys.len(), read.stores().count(), read.newest_seen()), (5, 3, NEWEST));
    assert_eq!(state(&make(&read).unwrap()).digest(), state(&make(&known).unwrap()).digest());
    assert_eq!(state(&make(&read).unwrap()).joining.hosts, known.hosts);
    for at in 0..file.len() {
        let mut torn = file.clone();
        torn[at] ^= 0x20;
        assert!(Found::from_file(&torn).is_err(), "byte {at}");
    }
    for len in 0..file.len() {
        assert!(Found::from_file(&file[..len]).is_err(), "{len} bytes");
    }
    assert_eq!(Found::from_file(b"[osd.0]\n").unwrap_err(), BadFile::Magic);
}

#[test]
fn pool_with_too_many_pgs_is_damage() {
    let lost = lost();
    let mut huge = lost.map().clone();
    huge.pools.get_mut(&1).unwrap().pg_num = u32::MAX;
    let mut step = step_after(&lost.at(NEWEST - 1).unwrap(), NOW);
    step.new_pools = huge.pools.clone();
    let step = sealed(step, &lost.at(NEWEST - 1).unwrap());
    let bytes = Bytes::from(step.step().to_vec(Features(step.step().encode_features)));
    let torn =
        Store { map: Some(Arc::new(huge)), steps: [(NEWEST, bytes)].into(), ..store(&lost, 0, 4, NEWEST) };
    let mut known = Found::default();
    assert_eq!(known.add(torn).unwrap(), ["the increment to OSDMap 12 is damaged: a pool has too many PGs"]);
    assert_eq!(make(&known).unwrap_err(), Refused::NoMap);
}

/// An attacker computes the checksum, too.
#[test]
fn file_of_an_attacker_gives_no_panic() {
    let file = three().to_file();
    let content = &file[24..file.len() - 4];
    let mut random = Random::from_number(11);
    for _ in 0..4000 {
        let mut torn = content.to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(torn.len() as u64) as usize;
            torn[at] = random.below(256) as u8;
        }
        torn.truncate(torn.len() - random.below(2) as usize * random.below(torn.len() as u64) as usize);
        if let Ok(known) = Found::from_content(&torn) {
            let _ = make(&known);
        }
    }
}
