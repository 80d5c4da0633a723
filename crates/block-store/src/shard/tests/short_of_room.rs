//! A store that is nearly full of metadata: tables are merged, replaced and freed with hardly a free block, with power cuts.

use super::operations::{home, object};
use super::rig::Rig;
use super::small;
use crate::check::Depth;
use crate::index;
use crate::shard::Options;
use device::dice::Dice;
use device::simulated::Pace;
use store::{Change, ObjectStore, Transaction};

const KEYS: u64 = 8_000;
const OBJECTS: u64 = 24;
/// Free space that data writes need.
const ROOM: u64 = 64 << 10;

/// Random changes of a few omaps and objects.
fn changes(dice: &mut Dice, takes_room: bool, available: u64) -> Vec<Change> {
    let omap = object("omap", dice.below(4) as u32 + 1);
    let key = |dice: &mut Dice| format!("{:05}", dice.below(KEYS)).into();
    let kind = dice.below(if takes_room && available < ROOM { 7 } else { 10 });
    match (takes_room, kind) {
        (true, 0..7) => {
            let value = |dice: &mut Dice| vec![dice.roll() as u8; dice.below(400) as usize].into();
            let entries = (0..1 + dice.below(12)).map(|_| (key(dice), value(dice))).collect();
            vec![Change::OmapSet { object: omap, entries }]
        }
        (true, _) => {
            let data = vec![dice.roll() as u8; 1 + dice.below(30_000) as usize].into();
            let name = format!("o{}", dice.below(OBJECTS));
            vec![Change::Write { object: object(&name, 1), offset: dice.below(20_000), data }]
        }
        (false, 0..8) => {
            let from = dice.below(KEYS);
            let range = from..from + dice.below(60);
            let [from, to] = [range.start, range.end].map(|key| format!("{key:05}").into());
            vec![Change::OmapRemoveRange { object: omap, from, to }]
        }
        (false, _) => {
            let name = format!("o{}", dice.below(OBJECTS));
            vec![Change::Truncate { object: object(&name, 1), size: 0 }]
        }
    }
}

/// Returns the number of times that the store ran out of space.
fn run(seed: u64, steps: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let options = Options {
        inline_bytes_max: [0, 16 << 10][dice.below(2) as usize],
        first_fit: dice.chance(50),
        manifest_in_pieces: dice.chance(50),
        // So much may wait for a manifest, and the log is no reason for one.
        index: index::Options { level_bytes: [128 << 10, 1 << 20][seed as usize % 2], ..small().index },
        log_bytes_max: 8 << 20,
        ..small()
    };
    let pace = if dice.chance(50) { Pace::AtOnce } else { Pace::Shuffled { per_poll_max: 3 } };
    let mut rig = Rig::new(5 << 20, 1 << 20, pace, seed, options);
    let create =
        Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] };
    rig.front_apply(create.clone());
    rig.submit(create);
    let (mut is_full, mut times) = (false, 0);
    for step in 1..=steps {
        // What waits is not counted yet.
        if rig.shard.usage().within_reach().available < 4 * ROOM {
            rig.settle();
        }
        let available = rig.shard.usage().within_reach().available;
        if !is_full && rig.shard.index.is_starving() {
            (is_full, times) = (true, times + 1);
        } else if is_full && available > 2 * ROOM {
            is_full = false;
        }
        let transaction =
            Transaction { collection: home(), changes: changes(&mut dice, !is_full, available) };
        rig.front_apply(transaction.clone());
        rig.submit(transaction);
        for _ in 0..dice.below(6) {
            rig.poll();
        }
        assert_eq!(rig.shard.failure(), None, "step {step}: {:?}", rig.shard.usage());
        if dice.below(300) == 0 {
            rig.crash_now(&mut dice, Depth::Metadata);
        } else if step % 200 == 0 {
            rig.rebase();
        }
    }
    rig.compare(Depth::Deep);
    times
}

#[test]
fn nearly_full_store_keeps_all_data() {
    let times: Vec<u64> = (1..5).map(|seed| run(seed, 2000)).collect();
    assert!(times.iter().all(|times| *times > 0), "it was never full: {times:?}");
}

/// The store is full of replaced tables, and neither the log nor their number causes a checkpoint.
#[test]
fn replaced_tables_are_freed_when_space_is_short() {
    let index = index::Options { level_bytes: 64 << 20, cache_bytes: 8 << 20, ..small().index };
    let options = Options { index, log_bytes_max: 64 << 20, ..small() };
    let mut rig = Rig::new(16 << 20, 7 << 20, Pace::AtOnce, 1, options);
    let create =
        Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] };
    rig.front_apply(create.clone());
    rig.submit(create);
    for round in 0..40 {
        // All keys first, then some in every block.
        let step = if round == 0 { 1 } else { 7 };
        for first in (0..5000).step_by(200) {
            let value = vec![round as u8; 300 + first % 90];
            let keys = (first..first + 200).step_by(step);
            let entries = keys.map(|key| (format!("{key:05}").into(), value.clone().into())).collect();
            let change = Change::OmapSet { object: object("a", 1), entries };
            let transaction = Transaction { collection: home(), changes: vec![change] };
            rig.front_apply(transaction.clone());
            rig.submit(transaction);
        }
        rig.settle();
        assert_eq!(rig.shard.failure(), None, "round {round}");
        assert!(rig.shard.index.fresh_tables() < 4, "round {round}: a merge had no room");
    }
    rig.compare(Depth::Deep);
    rig.crash_now(&mut Dice::new(1), Depth::Deep);
}
