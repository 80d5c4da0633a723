//! Failing, corrupt and full devices.

use super::dump::{Dump, ask, list};
use super::operations::{bytes, home, object, other, transaction};
use super::rig::{Rig, same};
use super::{attached, formatted, formatted_with, open, settle, small};
use crate::check::{Depth, Finding};
use crate::reading::Damage;
use crate::shard::{Failure, Shard};
use device::dice::Dice;
use device::faulty::{Faulty, Rot};
use device::simulated::{Pace, Simulated};
use device::{BLOCK, DeviceError};
use std::collections::BTreeSet;
use std::ops::Range;
use store::{
    Answer, Change, Completion, MemoryStore, ObjectId, ObjectStore, Query, ReadError, Refusal, Transaction,
    Usage,
};

const BLOCK_BYTES: u64 = BLOCK as u64;

fn write(name: &str, offset: u64, len: u64) -> Transaction {
    let data = bytes(&mut Dice::new(offset ^ len), len).into();
    let changes = vec![Change::Write { object: object(name, 1), offset, data }];
    Transaction { collection: home(), changes }
}

fn create() -> Transaction {
    Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] }
}

fn commit(shard: &mut Shard, transaction: Transaction) -> bool {
    shard.submit(1, transaction);
    match settle(shard).as_slice() {
        [Completion::Committed { tag: 1 }] => true,
        [Completion::Failed { tag: 1 }] => false,
        [Completion::Refused { tag: 1, why: Refusal::NoSpace }] => false,
        other => panic!("{other:?}"),
    }
}

fn read(shard: &mut Shard, name: &str) -> Result<Vec<u8>, ReadError> {
    let all = Query::Data { offset: 0, len: u64::MAX };
    ask(shard, home(), &object(name, 1), vec![all]).map(|answers| match answers.as_slice() {
        [Answer::Data(data)] => data.to_bytes().to_vec(),
        other => panic!("{other:?}"),
    })
}

/// A store at rest, with all data in its blocks.
fn at_rest(transactions: &[Transaction]) -> (Simulated, Shard) {
    let disk = formatted(32 << 20, 512 << 10, Pace::AtOnce, 3);
    let mut shard = open(&disk, small());
    assert!(commit(&mut shard, create()));
    for transaction in transactions {
        assert!(commit(&mut shard, transaction.clone()));
    }
    shard.force_checkpoint();
    settle(&mut shard);
    (disk, shard)
}

fn keys_set(object: &ObjectId, keys: Range<usize>, value: &'static str) -> Change {
    let entries = keys.map(|key| (format!("{key:06}").into(), value.into())).collect();
    Change::OmapSet { object: object.clone(), entries }
}

fn keys_removed(object: &ObjectId, keys: Range<usize>) -> Change {
    let of = |key: usize| format!("{key:06}").into();
    Change::OmapRemoveRange { object: object.clone(), from: of(keys.start), to: of(keys.end) }
}

/// An object with an omap of 20,000 keys; deletions of half of them exceed the log.
fn with_many_keys() -> (Rig, ObjectId) {
    let mut rig = Rig::new(32 << 20, 512 << 10, Pace::AtOnce, 5, small());
    let a = object("a", 1);
    do_at_home(&mut rig, vec![Change::CreateCollection { split_bits: 0 }]);
    do_at_home(&mut rig, vec![Change::OmapSetHeader { object: a.clone(), header: "header".into() }]);
    for first in (0..20_000).step_by(1000) {
        do_at_home(&mut rig, vec![keys_set(&a, first..first + 1000, "value")]);
        rig.settle();
    }
    (rig, a)
}

fn do_at_home(rig: &mut Rig, changes: Vec<Change>) {
    let transaction = Transaction { collection: home(), changes };
    rig.front_apply(transaction.clone());
    rig.submit(transaction);
}

#[test]
fn large_omap_range_is_removed_with_a_small_log() {
    let (mut rig, a) = with_many_keys();
    do_at_home(&mut rig, vec![keys_removed(&a, 10..19_990)]);
    do_at_home(&mut rig, vec![keys_set(&a, 500..501, "anew")]);
    rig.settle();
    rig.compare(Depth::Deep);
    rig.crash_now(&mut Dice::new(1), Depth::Deep);
}

#[test]
fn large_omap_range_is_removed_when_many_keys_stay() {
    let (mut rig, a) = with_many_keys();
    // In one batch: what is put into the range before it goes, with it and after it.
    do_at_home(&mut rig, vec![keys_set(&a, 20_000..20_010, "goes")]);
    let put = [keys_set(&a, 17_995..18_005, "some of it goes"), keys_removed(&a, 4000..18_000)];
    do_at_home(&mut rig, [&put[..], &[keys_set(&a, 5000..5003, "anew")]].concat());
    do_at_home(&mut rig, vec![keys_removed(&a, 19_000..30_000), keys_set(&a, 19_500..19_501, "anew")]);
    do_at_home(&mut rig, vec![keys_removed(&a, 5002..5003), keys_set(&a, 6000..6001, "anew")]);
    rig.settle();
    rig.compare(Depth::Deep);
    for seed in 0..4 {
        rig.crash_now(&mut Dice::new(seed), Depth::Deep);
    }
}

#[test]
fn unreadable_index_block_fails_its_readers_only() {
    // So many that opening does not come by all of their blocks, and keeps them.
    let writes: Vec<Transaction> = (0..300).map(|n| write(&format!("o{n}"), 0, 5000)).collect();
    let (disk, shard) = at_rest(&writes);
    let tables: Vec<(u64, u64)> = shard.index.runs().collect();
    drop(shard);
    let mut shard = open(&disk, small());
    shard.set_cache_budget(0);
    tables.iter().for_each(|(offset, len)| disk.fail_reads(*offset..offset + len));
    assert_eq!(read(&mut shard, "o150"), Err(ReadError::Io));
    assert!(matches!(shard.take_damage()[..], [Damage { device_offset: None, .. }]));
    assert_eq!(shard.failure(), None);
    disk.heal();
    // Only the waiting read failed.
    settle(&mut shard);
    settle(&mut shard);
    assert_eq!(read(&mut shard, "o150").unwrap().len(), 5000);
    assert!(commit(&mut shard, write("o150", 100, 50)));
}

#[test]
fn unreadable_data_block_fails_its_reads_only() {
    let (disk, _) = at_rest(&[write("a", 0, 20_000), write("b", 0, 20_000)]);
    let mut shard = open(&disk, small());
    let good = read(&mut shard, "b").unwrap();
    let data = shard.stored_runs().next().expect("an object was written");
    disk.fail_reads(data.offset()..data.offset() + BLOCK_BYTES);
    assert_eq!(read(&mut shard, "a"), Err(ReadError::Io));
    let found = shard.take_damage();
    assert!(matches!(found[..], [Damage { offset: 0, device_offset: Some(at), .. }] if at == data.offset()));
    assert_eq!(found[0].object, object("a", 1));
    assert_eq!(read(&mut shard, "b"), Ok(good));
    assert_eq!(shard.failure(), None);
    // What is written anew is readable, what cannot be read stays so.
    assert!(commit(&mut shard, write("a", 100, 50)));
    assert_eq!(read(&mut shard, "a"), Err(ReadError::Io));
    let part = Query::Data { offset: 100, len: 50 };
    let answer = ask(&mut shard, home(), &object("a", 1), vec![part]).unwrap();
    let expected = bytes(&mut Dice::new(100 ^ 50), 50);
    assert_eq!(answer, [Answer::Data(expected.into())]);
    disk.heal();
    let whole = read(&mut shard, "a").unwrap();
    assert_eq!(whole[..100], bytes(&mut Dice::new(20_000), 20_000)[..100]);
    assert_eq!(whole[100..150], bytes(&mut Dice::new(100 ^ 50), 50));
    assert!(shard.check(Depth::Deep, &mut || ()).findings.is_empty());
}

#[test]
fn failed_write_fails_store_and_keeps_acknowledged_data() {
    for what in 0..4u64 {
        let mut rig = Rig::new(32 << 20, 512 << 10, Pace::Shuffled { per_poll_max: 2 }, what, small());
        let mut dice = Dice::new(what);
        for _ in 0..60 {
            let next = transaction(&mut rig.front, &mut dice);
            rig.submit(next);
            rig.poll();
        }
        let log = rig.shard.place().log;
        match what {
            0 => rig.disk.fail_writes(log.offset()..log.offset() + log.bytes()),
            1 => rig.disk.fail_writes(log.end() * BLOCK_BYTES..disk_size(&rig.disk)),
            2 => rig.disk.fail_flushes(),
            _ => rig.disk.unplug(),
        }
        let mut failed = false;
        for _ in 0..400 {
            let next = transaction(&mut rig.front, &mut dice);
            rig.submit(next);
            failed |= rig.poll_failing() > 0;
        }
        for _ in 0..10_000 {
            failed |= rig.poll_failing() > 0;
        }
        assert!(failed, "fault {what}");
        // Where nothing works, reading may be the first to fail.
        let why = rig.shard.failure().expect("a transaction failed");
        let is_right = matches!(why, Failure::Device(_)) || (what == 3 && matches!(why, Failure::Index(_)));
        assert!(is_right, "fault {what}: {why}");
        let after = rig.disk.power_cut(&mut dice);
        rig.crash(after, Depth::Deep);
    }
}

#[test]
fn reads_go_on_after_failed_write() {
    let (disk, mut shard) = at_rest(&[write("a", 0, 20_000)]);
    let good = read(&mut shard, "a");
    disk.fail_writes(0..disk_size(&disk));
    assert!(!commit(&mut shard, write("a", 0, 10)));
    assert_eq!(shard.failure(), Some(Failure::Device(DeviceError::Io)));
    assert!(!commit(&mut shard, write("b", 0, 10)));
    drop(good);
    let b = ask(&mut shard, home(), &object("b", 1), vec![Query::Stat]);
    assert_eq!(b, Err(ReadError::NoObject));
}

fn disk_size(disk: &Simulated) -> u64 {
    device::BlockDevice::size(disk)
}

/// Flips bits all over the device: reads are correct or refused, and a deep check finds every flip in live data.
#[test]
fn flipped_bits_are_never_read_and_deep_check_finds_them() {
    rot();
}

pub(super) fn rot() {
    let (mut corrupt_reads, mut opened) = (0, 0);
    for seed in 0..10 {
        let mut dice = Dice::new(seed);
        let disk = formatted_with(32 << 20, 512 << 10, Pace::AtOnce, seed, seed.is_multiple_of(2));
        let mut front = MemoryStore::new(store::memory::Config::with_total(1 << 40));
        let mut shard = open(&disk, small());
        for _ in 0..150 {
            let next = transaction(&mut front, &mut dice);
            assert!(commit(&mut shard, next));
        }
        shard.stop();
        settle(&mut shard);
        assert!(shard.is_stopped());
        let live: BTreeSet<u64> = shard.space.stored_runs().flat_map(|run| run.blocks()).collect();
        let area = shard.pool.superblock().areas[0];
        drop(shard);

        let rot = Rot::default();
        let end = area.offset() + area.bytes();
        // Most of it where data is, so that this is seen to work; the rest anywhere.
        let first: Vec<u64> = live.iter().copied().collect();
        for _ in 0..100 {
            let block = first[dice.below(first.len() as u64) as usize];
            rot.flip(block * BLOCK_BYTES + dice.below(BLOCK_BYTES), dice.below(8) as u8);
        }
        rot.flip_random(area.offset(), end, 100, &mut dice);
        let rotten = Faulty::new(disk.clone(), rot.clone());
        let pool = attached(&mut disk.clone()).expect("the superblock is whole");
        let Ok(mut shard) = Shard::open(Box::new(rotten), 0, &pool, small(), &mut || ()) else {
            continue; // What is read at opening is hit: refused, and nothing wrong was served.
        };
        opened += 1;
        for (collection, _) in front.collections() {
            for id in list(&mut front, collection) {
                corrupt_reads += compare(&mut shard, &mut front, collection, &id);
            }
        }
        let report = shard.check(Depth::Deep, &mut || ());
        let index_is_whole = !report.findings.iter().any(|f| matches!(f, Finding::IndexUnreadable { .. }));
        let found: BTreeSet<u64> = report
            .findings
            .iter()
            .filter_map(|f| match f {
                Finding::Corrupt { device_offset, .. } => Some(device_offset / BLOCK_BYTES),
                _ => None,
            })
            .collect();
        let flipped: BTreeSet<u64> =
            rot.places().iter().map(|at| at / BLOCK_BYTES).filter(|b| live.contains(b)).collect();
        if index_is_whole {
            assert_eq!(found, flipped, "seed {seed}");
        } else {
            assert!(found.is_subset(&flipped), "seed {seed}");
        }
    }
    println!("{opened} of 10 stores opened, {corrupt_reads} reads refused");
    assert!(opened >= 3 && corrupt_reads > 50, "{opened} opened, {corrupt_reads} reads refused");
}

/// Compares reads of an object with the model. Returns the number of failed ones.
fn compare(
    shard: &mut Shard,
    front: &mut MemoryStore,
    collection: store::Collection,
    id: &ObjectId,
) -> usize {
    let mut failures = 0;
    let queries = [
        Query::Stat,
        Query::Data { offset: 0, len: u64::MAX },
        Query::Data { offset: 5000, len: 10_000 },
        Query::Attrs,
        Query::OmapHeader,
    ];
    for query in queries {
        let expected = ask(front, collection, id, vec![query.clone()]).unwrap();
        match ask(shard, collection, id, vec![query]) {
            Ok(found) => match (&found[0], &expected[0]) {
                (Answer::Data(found), Answer::Data(expected)) => {
                    assert_eq!(found.to_bytes(), expected.to_bytes())
                }
                (found, expected) => assert_eq!(found, expected),
            },
            Err(ReadError::Corrupt | ReadError::Io) => failures += 1,
            Err(other) => panic!("{id:?}: {other}"),
        }
    }
    failures
}

#[test]
fn full_store_takes_deletes_and_recovers() {
    let disk = formatted(16 << 20, 512 << 10, Pace::AtOnce, 5);
    let mut shard = open(&disk, small());
    assert!(commit(&mut shard, create()));
    let mut peak = 0;
    for round in 0..4 {
        let mut names = Vec::new();
        // As an OSD does: it refuses what would not fit.
        while shard.usage().within_reach().available > 64 << 10 {
            let name = format!("r{round}n{}", names.len());
            assert!(commit(&mut shard, write(&name, 0, 50_000)), "{:?}", shard.failure());
            names.push(name);
        }
        peak = names.len().max(peak);
        assert!(names.len() * 10 > peak * 9, "the space came back: {} of {peak}", names.len());
        for name in &names {
            assert_eq!(read(&mut shard, name).unwrap().len(), 50_000);
            let changes = vec![Change::Remove { object: object(name, 1) }];
            assert!(commit(&mut shard, Transaction { collection: home(), changes }), "{:?}", shard.failure());
        }
        let Usage { total, available, data, .. } = shard.usage().within_reach();
        assert_eq!(data, 0);
        assert!(available > total * 8 / 10, "{available} of {total}");
        let report = shard.check(Depth::Deep, &mut || ());
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
    }
}

#[test]
fn full_store_refuses_whole_transaction_and_goes_on() {
    let disk = formatted(16 << 20, 512 << 10, Pace::AtOnce, 6);
    let mut shard = open(&disk, small());
    let mut front = MemoryStore::new(store::memory::Config::with_total(1 << 40));
    assert!(commit(&mut shard, create()));
    front.submit(0, create());
    let mut count = 0;
    loop {
        let next = write(&format!("n{count}"), 0, 70_000);
        if !commit(&mut shard, next.clone()) {
            break;
        }
        front.submit(0, next);
        count += 1;
    }
    assert_eq!(shard.failure(), None);
    while front.poll(&mut Vec::new()) {}
    same(&mut shard, &mut front, Depth::Deep);
    // The shard goes on, and so does one that finds its disk after a power cut.
    let mut reopened = open(&disk.power_cut(&mut Dice::new(1)), small());
    same(&mut reopened, &mut front, Depth::Deep);
    for shard in [&mut shard, &mut reopened] {
        for i in 0..count {
            let changes = vec![Change::Remove { object: object(&format!("n{i}"), 1) }];
            assert!(commit(shard, Transaction { collection: home(), changes }), "{:?}", shard.failure());
        }
        assert!(commit(shard, write("again", 0, 70_000)));
        let _ = Dump::of(shard);
    }
}

/// Scenario: one request with more omap keys than the log can hold.
#[test]
fn oversized_record_is_refused_with_its_successors_only() {
    let disk = formatted(32 << 20, 512 << 10, Pace::AtOnce, 6);
    let mut shard = open(&disk, small());
    let submit = |shard: &mut Shard, tag, collection, changes| {
        shard.submit(tag, Transaction { collection, changes });
    };
    let set = |name: &str, count: u32| {
        let key = |i: u32| (i.to_be_bytes().to_vec().into(), vec![7; 100].into());
        vec![Change::OmapSet { object: object(name, 1), entries: (0..count).map(key).collect() }]
    };
    for collection in [home(), other()] {
        submit(&mut shard, 0, collection, vec![Change::CreateCollection { split_bits: 0 }]);
    }
    settle(&mut shard);
    submit(&mut shard, 1, home(), set("a", 10));
    // 400 KiB, in a log of 512.
    submit(&mut shard, 2, home(), set("large", 4000));
    // These count on it.
    submit(&mut shard, 3, home(), set("b", 10));
    submit(&mut shard, 4, other(), set("c", 10));
    let mut done = settle(&mut shard);
    done.sort_by_key(Completion::tag);
    let committed = |tag| Completion::Committed { tag };
    let refused = |tag| Completion::Refused { tag, why: Refusal::TooLarge };
    assert_eq!(done, [committed(1), refused(2), refused(3), committed(4)]);
    assert_eq!(shard.failure(), None);
    submit(&mut shard, 5, home(), set("d", 10));
    assert_eq!(settle(&mut shard), [committed(5)]);
    let names = |shard: &mut Shard, collection| -> Vec<String> {
        let listed = list(shard, collection);
        listed.iter().map(|id| String::from_utf8_lossy(&id.object.name).into_owned()).collect()
    };
    let mut at_home = names(&mut shard, home());
    at_home.sort();
    assert_eq!((at_home, names(&mut shard, other())), (vec!["a".into(), "d".into()], vec!["c".into()]));
    assert_eq!(shard.check(Depth::Deep, &mut || ()).findings, []);
}
