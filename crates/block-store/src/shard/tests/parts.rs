//! Transactions of many omap keys, which are applied in parts.

use super::operations::{home, object, other};
use super::rig::Rig;
use super::{formatted, open, settle, small};
use crate::check::Depth;
use crate::shard::{Failure, Shard};
use bytes::Bytes;
use device::dice::Dice;
use device::simulated::Pace;
use store::{
    Answer, Change, Collection, Completion, ObjectId, ObjectStore, Query, ReadError, ReadRequest, Transaction,
};
use wire::types::Eversion;

const KEYS: u64 = 40;

fn key(i: u64) -> Bytes {
    format!("key-{i:02}").into()
}

fn of(collection: Collection, changes: Vec<Change>) -> Transaction {
    Transaction { collection, changes }
}

fn large() -> ObjectId {
    object("large", 2)
}

fn set(keys: impl Iterator<Item = u64>, value: &Bytes) -> Change {
    Change::OmapSet { object: large(), entries: keys.map(|i| (key(i), value.clone())).collect() }
}

/// Sets keys, removes some of them and others, and changes attributes before and behind.
fn many_keys(dice: &mut Dice, version: u64) -> Transaction {
    let value = Bytes::from(format!("value {version}"));
    let attr =
        |name: &'static str| Change::SetAttr { object: large(), name: name.into(), value: value.clone() };
    let some = |dice: &mut Dice| (0..3 + dice.below(9)).map(|_| dice.below(KEYS)).collect::<Vec<_>>();
    let removed = some(dice).into_iter().map(key).collect();
    let mut changes = vec![
        attr("before"),
        set(some(dice).into_iter(), &value),
        Change::OmapRemove { object: large(), keys: removed },
        set(some(dice).into_iter(), &value),
        attr("behind"),
    ];
    if dice.chance(20) {
        changes.insert(1, Change::OmapSetHeader { object: large(), header: value });
    }
    of(home(), changes)
}

pub(super) fn crash_between_parts_leaves_all_or_none() {
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let pace = match seed % 3 {
            0 => Pace::AtOnce,
            1 => Pace::Shuffled { per_poll_max: 3 },
            _ => Pace::Steps,
        };
        let mut rig = Rig::new(24 << 20, 512 << 10, pace, seed, small());
        let submit = |rig: &mut Rig, transaction: Transaction| {
            rig.front_apply(transaction.clone());
            rig.submit(transaction);
        };
        for collection in [home(), other()] {
            submit(&mut rig, of(collection, vec![Change::CreateCollection { split_bits: 1 }]));
        }
        rig.rebase();
        for round in 0..12 {
            for i in 0..1 + dice.below(3) {
                submit(&mut rig, many_keys(&mut dice, round * 4 + i));
                if dice.chance(50) {
                    let data = Bytes::from(vec![i as u8; 5000]).into();
                    let write = Change::Write { object: object("bytes", 1), offset: 0, data };
                    submit(&mut rig, of(other(), vec![write]));
                }
            }
            for _ in 0..dice.below(14) {
                rig.poll();
            }
            // A clone has the next one write to a new layer, and hide keys of the old one.
            let is_there = rig.front.usage().omap > 0;
            if dice.chance(30) && is_there {
                rig.settle();
                let to = object("copy", 2);
                submit(&mut rig, of(home(), vec![Change::Clone { from: large(), to }]));
            }
            rig.crash_now(&mut dice, Depth::Metadata);
        }
        rig.compare(Depth::Deep);
    }
}

#[test]
fn crash_between_two_parts_leaves_all_or_none() {
    crash_between_parts_leaves_all_or_none();
}

#[test]
fn read_between_two_parts_waits_for_the_last() {
    let disk = formatted(24 << 20, 512 << 10, Pace::AtOnce, 1);
    let mut shard = open(&disk, small());
    for (tag, collection) in [home(), other()].into_iter().enumerate() {
        shard.submit(tag as u64, of(collection, vec![Change::CreateCollection { split_bits: 1 }]));
    }
    shard.submit(2, of(home(), vec![set(0..KEYS, &"value".into())]));
    let mut done = Vec::new();
    while shard.log.divided().is_none() {
        assert!(shard.poll(&mut done), "it was applied as a whole");
    }
    assert!(shard.poll(&mut done) && shard.log.divided().is_some(), "one part a turn");
    let queries = vec![Query::OmapGet { keys: (0..KEYS).map(key).collect() }];
    shard.read(3, ReadRequest { collection: home(), object: large(), queries });
    let touch = Change::Touch { object: object("bytes", 1) };
    shard.submit(4, of(other(), vec![touch]));
    while shard.poll(&mut done) {
        let is_committed = done.contains(&Completion::Committed { tag: 2 });
        assert!(!(shard.log.divided().is_some() && is_committed), "acknowledged before its last part");
    }
    let read = done.iter().find_map(|completion| match completion {
        Completion::Read { tag: 3, answers: Ok(answers) } => Some(&answers[..]),
        _ => None,
    });
    let Some([Answer::OmapGet(entries)]) = read else { panic!("{done:?}") };
    assert_eq!(entries.len() as u64, KEYS);
    for tag in [2, 4] {
        assert!(done.contains(&Completion::Committed { tag }), "{tag}: {done:?}");
    }
}

/// A store with two collections, the first keys of the large object, and a PG log that a checkpoint has to put.
fn begun() -> Shard {
    let disk = formatted(24 << 20, 512 << 10, Pace::AtOnce, 1);
    let mut shard = open(&disk, small());
    for collection in [home(), other()] {
        shard.submit(0, of(collection, vec![Change::CreateCollection { split_bits: 1 }]));
    }
    let records = vec![(Eversion { epoch: 1, version: 1 }, "a record".into())];
    let changes = vec![set(0..2, &"old".into()), Change::LogAppend { records }];
    shard.submit(1, of(home(), changes));
    shard.submit(1, of(other(), vec![Change::Touch { object: object("bytes", 1) }]));
    settle(&mut shard);
    shard
}

/// An object without an omap has nothing to remove: the first parts change nothing, and the open batch has no entry between
/// two parts.
#[test]
fn checkpoint_waits_for_the_last_part() {
    let mut shard = begun();
    let bare = object("bare", 2);
    shard.submit(2, of(home(), vec![Change::Touch { object: bare.clone() }]));
    settle(&mut shard);
    let entries = (0..KEYS).map(|i| (key(i), "new".into())).collect();
    let changes = vec![
        Change::OmapRemove { object: bare.clone(), keys: (0..KEYS).map(key).collect() },
        Change::OmapSet { object: bare, entries },
    ];
    shard.submit(3, of(home(), changes));
    let mut done = Vec::new();
    while shard.log.divided().is_none() {
        assert!(shard.poll(&mut done), "it was applied as a whole");
    }
    assert_eq!(shard.log.open_bytes(), 0, "the first part has an entry");
    shard.force_checkpoint();
    while shard.log.divided().is_some() {
        assert!(!shard.checkpoints.is_running(), "a checkpoint began between two parts");
        shard.poll(&mut done);
    }
    done.append(&mut settle(&mut shard));
    assert_eq!(done, [Completion::Committed { tag: 3 }]);
}

#[test]
fn read_of_a_torn_transaction_fails() {
    let mut shard = begun();
    shard.submit(2, of(home(), vec![set(0..KEYS, &"new".into())]));
    while shard.log.divided().is_none() {
        assert!(shard.poll(&mut Vec::new()), "it was applied as a whole");
    }
    let queries = || vec![Query::OmapGet { keys: (0..KEYS).map(key).collect() }];
    shard.read(3, ReadRequest { collection: home(), object: large(), queries: queries() });
    shard.fail(Failure::Unreadable);
    shard.read(4, ReadRequest { collection: home(), object: large(), queries: queries() });
    shard.read(5, ReadRequest { collection: other(), object: object("bytes", 1), queries: queries() });
    let mut done = settle(&mut shard);
    done.sort_by_key(Completion::tag);
    let io = |tag| Completion::Read { tag, answers: Err(ReadError::Io) };
    let none = Completion::Read { tag: 5, answers: Ok(vec![Answer::OmapGet(Vec::new())]) };
    assert_eq!(done, [Completion::Failed { tag: 2 }, io(3), io(4), none]);
}
