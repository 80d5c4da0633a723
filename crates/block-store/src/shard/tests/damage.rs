//! Transactions on a damaged index: they succeed, no read returns wrong bytes, and lost bytes are reported.

use super::dump::{ask, list};
use super::operations::{bytes, home, object, other, transaction};
use super::{attached, formatted, formatted_with, open, settle, small};
use crate::check::{Depth, Finding};
use crate::index::{Get, Ticket};
use crate::object::key;
use crate::shard::Shard;
use crate::space::Run;
use device::BLOCK;
use device::dice::Dice;
use device::faulty::{Faulty, Rot};
use device::simulated::{Pace, Simulated};
use store::{
    Answer, Change, Collection, Completion, MemoryStore, ObjectId, ObjectStore, Query, ReadError, Transaction,
};

const BLOCK_BYTES: u64 = BLOCK as u64;

pub(super) fn commit(shard: &mut Shard, transaction: Transaction) {
    shard.submit(1, transaction);
    let done = settle(shard);
    assert_eq!(done, [Completion::Committed { tag: 1 }], "{:?}", shard.failure());
}

fn apply(shard: &mut Shard, changes: Vec<Change>) {
    commit(shard, Transaction { collection: home(), changes });
}

/// A clean stop: all data is in its blocks.
pub(super) fn stop(mut shard: Shard) {
    shard.stop();
    settle(&mut shard);
    assert!(shard.is_stopped());
}

fn rotten(disk: &Simulated, rot: &Rot) -> Result<Shard, crate::OpenError> {
    let device = Faulty::new(disk.clone(), rot.clone());
    let pool = attached(&mut disk.clone())?;
    Shard::open(Box::new(device), 0, &pool, small(), &mut || ())
}

fn a() -> ObjectId {
    object("a", 1)
}

fn b() -> ObjectId {
    object("b", 1)
}

fn read(shard: &mut Shard, id: &ObjectId, offset: u64, len: u64) -> Result<Vec<u8>, ReadError> {
    let answers = ask(shard, home(), id, vec![Query::Data { offset, len }])?;
    let [Answer::Data(data)] = answers.as_slice() else { panic!("{answers:?}") };
    Ok(data.to_bytes().to_vec())
}

#[test]
fn copy_of_unreadable_range_is_unreadable() {
    let disk = formatted(32 << 20, 512 << 10, Pace::AtOnce, 1);
    let data = bytes(&mut Dice::new(1), 20_000);
    let mut shard = open(&disk, small());
    apply(&mut shard, vec![Change::CreateCollection { split_bits: 0 }]);
    apply(&mut shard, vec![Change::Write { object: a(), offset: 0, data: data.clone().into() }]);
    let second = shard.space.stored_runs().next().unwrap().start + 1;
    stop(shard);
    let rot = Rot::default();
    rot.flip(second * BLOCK_BYTES + 5, 3);

    let mut shard = rotten(&disk, &rot).unwrap();
    let whole = Change::CloneRange { from: a(), to: b(), from_offset: 0, len: 20_000, to_offset: 777 };
    apply(&mut shard, vec![Change::Touch { object: b() }, whole]);
    // Byte 4096 of the source, the first that cannot be read, is 4873 of the copy.
    let (lost, end) = (4096 + 777, 8192 + 777);
    assert_eq!(read(&mut shard, &b(), 777, 4096).unwrap(), data[..4096]);
    assert_eq!(read(&mut shard, &b(), end, 50_000).unwrap(), data[8192..]);
    for (offset, len) in [(lost, 1), (end - 1, 1), (0, 30_000), (lost + 1000, 10)] {
        assert_eq!(read(&mut shard, &b(), offset, len), Err(ReadError::Corrupt), "{offset}");
    }
    assert_eq!(
        shard.take_damage().len(),
        5,
        "each is reported; where it goes over a border of blocks, twice"
    );
    // What is written anew can be read, and what is copied in its turn is as it is.
    apply(&mut shard, vec![Change::Write { object: b(), offset: lost, data: vec![7; 100].into() }]);
    assert_eq!(read(&mut shard, &b(), lost, 100).unwrap(), [7; 100]);
    assert_eq!(read(&mut shard, &b(), lost + 100, 1), Err(ReadError::Corrupt));
    let aligned = Change::CloneRange { from: b(), to: a(), from_offset: 0, len: 30_000, to_offset: 0 };
    apply(&mut shard, vec![aligned, Change::Clone { from: b(), to: object("c", 1) }]);
    for id in [a(), object("c", 1)] {
        assert_eq!(read(&mut shard, &id, lost + 100, 1), Err(ReadError::Corrupt));
        assert_eq!(read(&mut shard, &id, lost, 100).unwrap(), [7; 100]);
    }
    let is_lost = |f: &Finding| matches!(f, Finding::Lost { .. });
    let findings = shard.check(Depth::Deep, &mut || ()).findings;
    assert!(!findings.is_empty() && findings.iter().all(is_lost), "{findings:#?}");
    stop(shard);
    let mut shard = rotten(&disk, &rot).unwrap();
    assert_eq!(read(&mut shard, &b(), end - 1, 1), Err(ReadError::Corrupt));
    for id in [a(), b(), object("c", 1)] {
        apply(&mut shard, vec![Change::Remove { object: id }]);
    }
    assert_eq!(shard.check(Depth::Deep, &mut || ()).findings, []);
    assert_eq!(shard.usage().data, 0);
}

/// Blocks of index tables.
pub(super) fn tables(shard: &Shard) -> Vec<u64> {
    shard.index.runs().flat_map(|(offset, len)| Run::of_bytes(offset, len).blocks()).collect()
}

/// Compares all reads with the model. Returns the number of correct and of refused ones.
pub(super) fn compare(
    shard: &mut Shard,
    front: &mut MemoryStore,
    collection: Collection,
    id: &ObjectId,
) -> (u64, u64) {
    let all = |max| Query::OmapList { after: None, from: "".into(), prefix: "".into(), max, values: true };
    let queries = [
        Query::Stat,
        Query::Data { offset: 0, len: u64::MAX },
        Query::Data { offset: 5000, len: 10_000 },
        Query::Attrs,
        Query::OmapHeader,
        all(usize::MAX),
        all(3),
        Query::OmapGet { keys: (0..40).map(|n| format!("{n:02}").into()).collect() },
    ];
    let (mut right, mut refused) = (0, 0);
    for query in queries {
        let expected = ask(front, collection, id, vec![query.clone()]);
        match ask(shard, collection, id, vec![query.clone()]) {
            Err(ReadError::Corrupt | ReadError::Io) => refused += 1,
            found => {
                let same = match (&found, &expected) {
                    (Ok(found), Ok(expected)) => match (&found[0], &expected[0]) {
                        (Answer::Data(found), Answer::Data(expected)) => {
                            found.to_bytes() == expected.to_bytes()
                        }
                        (found, expected) => found == expected,
                    },
                    (found, expected) => found.is_err() && found.as_ref().err() == expected.as_ref().err(),
                };
                assert!(same, "{id:?}, {query:?}: {found:?}, and expected {expected:?}");
                right += 1;
            }
        }
    }
    (right, refused)
}

/// Flips bits of the index during transactions: none fails, none is torn, no read is wrong.
#[test]
fn corrupt_index_fails_reads_only() {
    let (mut right, mut refused, mut opened) = (0, 0, 0);
    for seed in 0..24 {
        let mut dice = Dice::new(seed);
        let disk = formatted_with(32 << 20, 512 << 10, Pace::AtOnce, seed, seed.is_multiple_of(2));
        let mut front = MemoryStore::new(store::memory::Config::with_total(1 << 40));
        let rot = Rot::default();
        let mut shard = rotten(&disk, &rot).unwrap();
        for round in 0..4 {
            for _ in 0..60 {
                let next = transaction(&mut front, &mut dice);
                commit(&mut shard, next);
            }
            stop(shard);
            shard = match rotten(&disk, &rot) {
                Ok(shard) => shard,
                Err(_) => break, // What is read at opening is hit.
            };
            opened += 1;
            let blocks = tables(&shard);
            for _ in 0..1 + round {
                let block = blocks[dice.below(blocks.len() as u64) as usize];
                rot.flip(block * BLOCK_BYTES + dice.below(BLOCK_BYTES), dice.below(8) as u8);
            }
            // Nothing of it in memory any more.
            shard.set_cache_budget(0);
            for _ in 0..30 {
                let next = transaction(&mut front, &mut dice);
                commit(&mut shard, next);
            }
            for (collection, _) in front.collections() {
                for id in list(&mut front, collection) {
                    let (is_right, is_refused) = compare(&mut shard, &mut front, collection, &id);
                    (right, refused) = (right + is_right, refused + is_refused);
                }
            }
            let report = shard.check(Depth::Deep, &mut || ());
            let wrong = |f: &Finding| matches!(f, Finding::Overlap { .. } | Finding::Corrupt { .. });
            assert!(!report.findings.iter().any(wrong), "seed {seed}: {:#?}", report.findings);
        }
    }
    println!("{opened} openings, {right} reads right, {refused} refused");
    assert!(
        opened > 30 && right > 1000 && refused > 100,
        "{opened} openings, {right} right, {refused} refused"
    );
}

/// Objects of all kinds: with one page and with many, shared, with few and many keys.
pub(super) fn populated() -> Vec<Transaction> {
    let mut dice = Dice::new(3);
    let mut out = vec![vec![Change::CreateCollection { split_bits: 0 }]];
    for n in 0..24 {
        let id = object(&format!("o{n:02}"), n);
        let len = [100, 5000, 70_000, 200_000][n as usize % 4];
        let key = |k: u64| format!("{k:02}").into();
        out.push(vec![
            Change::Write { object: id.clone(), offset: 0, data: bytes(&mut dice, len).into() },
            Change::SetAttr { object: id.clone(), name: "a".into(), value: bytes(&mut dice, 300).into() },
            Change::OmapSetHeader { object: id.clone(), header: "header".into() },
            Change::OmapSet {
                object: id.clone(),
                entries: (0..30).map(|k| (key(k), bytes(&mut dice, 80).into())).collect(),
            },
        ]);
        if n % 3 == 0 {
            out.push(vec![Change::Clone { from: id, to: object(&format!("c{n:02}"), n) }]);
        }
    }
    out.into_iter().map(|changes| Transaction { collection: home(), changes }).collect()
}

/// Every kind of change of every object, each in its own transaction.
fn every_change(ids: &[ObjectId]) -> Vec<Transaction> {
    let mut dice = Dice::new(4);
    let mut out = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        let object = || id.clone();
        let copy = || super::operations::object(&format!("copy{n}"), n as u32);
        let changes = [
            Change::Write { object: object(), offset: 2000, data: bytes(&mut dice, 3000).into() },
            Change::Zero { object: object(), offset: 66_000, len: 5000 },
            Change::Truncate { object: object(), size: 90_000 },
            Change::SetAttr { object: object(), name: "b".into(), value: "b".into() },
            Change::RemoveAttr { object: object(), name: "a".into() },
            Change::OmapSet {
                object: object(),
                entries: vec![("05".into(), "x".into()), ("99".into(), "y".into())],
            },
            Change::OmapRemove { object: object(), keys: vec!["07".into()] },
            Change::OmapRemoveRange { object: object(), from: "10".into(), to: "20".into() },
            Change::Clone { from: object(), to: copy() },
            Change::CloneRange { from: object(), to: copy(), from_offset: 0, len: 8192, to_offset: 4096 },
            Change::Remove { object: copy() },
            Change::OmapSetHeader { object: object(), header: "anew".into() },
            Change::Rename { from: object(), to: copy() },
            Change::Rename { from: copy(), to: object() },
        ];
        let changes = changes.into_iter().map(|change| vec![change]);
        out.extend(changes.map(|changes| Transaction { collection: home(), changes }));
        if n % 4 == 0 {
            let changes = vec![Change::OmapClear { object: object() }];
            out.push(Transaction { collection: home(), changes });
        }
    }
    let split = Change::SplitCollection { split_bits: 1, seed: 1, into: other() };
    out.push(Transaction { collection: other(), changes: vec![Change::CreateCollection { split_bits: 1 }] });
    out.push(Transaction { collection: home(), changes: vec![split] });
    out
}

pub(super) fn apply_to(front: &mut MemoryStore, transaction: &Transaction) {
    front.submit(0, transaction.clone());
    while front.poll(&mut Vec::new()) {}
}

/// Each block of the index in turn is corrupt or unreadable: every change succeeds, whatever it needs of that block; reads are
/// correct or refused; at the end all objects can be removed.
#[test]
fn store_goes_on_without_any_one_index_block() {
    let disk = formatted(32 << 20, 2 << 20, Pace::AtOnce, 7);
    let mut shard = open(&disk, small());
    let mut ids: Vec<ObjectId> = Vec::new();
    let mut prepared = MemoryStore::new(store::memory::Config {
        track_committed: true,
        ..store::memory::Config::with_total(1 << 40)
    });
    for transaction in populated() {
        apply_to(&mut prepared, &transaction);
        commit(&mut shard, transaction);
    }
    ids.extend(list(&mut prepared, home()));
    stop(shard);
    let blocks = tables(&open(&disk, small()));
    let (mut tried, mut unopened, mut right, mut refused) = (0, 0, 0, 0);
    for (n, &block) in blocks.iter().enumerate() {
        let disk = disk.killed(&mut Dice::new(n as u64));
        let rot = Rot::default();
        let mut front = prepared.crash_image(0).expect("what is committed is tracked");
        let mut shard = rotten(&disk, &rot).unwrap();
        shard.set_cache_budget(0);
        // Nothing of what the opening has read is in memory any more.
        match n % 2 {
            0 => rot.flip(block * BLOCK_BYTES + 99, 1),
            _ => disk.fail_reads(block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES),
        }
        for transaction in every_change(&ids) {
            apply_to(&mut front, &transaction);
            commit(&mut shard, transaction);
        }
        for collection in [home(), other()] {
            for id in list(&mut front, collection) {
                let (is_right, is_refused) = compare(&mut shard, &mut front, collection, &id);
                (right, refused) = (right + is_right, refused + is_refused);
            }
        }
        for collection in [home(), other()] {
            for object in list(&mut front, collection) {
                let changes = vec![Change::Remove { object }];
                commit(&mut shard, Transaction { collection, changes });
            }
            commit(&mut shard, Transaction { collection, changes: vec![Change::RemoveCollection] });
        }
        disk.heal();
        stop(shard);
        let Ok(mut shard) = rotten(&disk, &rot) else {
            unopened += 1; // Which collections there are is in this block.
            continue;
        };
        assert_eq!(shard.collections(), []);
        apply(&mut shard, vec![Change::CreateCollection { split_bits: 0 }]);
        apply(&mut shard, vec![Change::Write { object: a(), offset: 0, data: vec![1; 9000].into() }]);
        // It may lie where the block is not known any more.
        if let Ok(data) = read(&mut shard, &a(), 0, 9000) {
            assert_eq!(data, [1; 9000]);
        }
        tried += 1;
    }
    println!("{tried} blocks, {right} reads right, {refused} refused; {unopened} do not open again");
    assert!(unopened <= 2, "{unopened} do not open again");
    assert!(tried > 20 && right > 7_000 && refused > 500, "{tried} blocks, {right} right, {refused} refused");
}

fn zones_are_readable(shard: &mut Shard) -> bool {
    (0..shard.pool.map().count()).all(|zone| {
        loop {
            let Shard { index, io, .. } = &mut *shard;
            match index.get(&key::lease(zone), Ticket(77), io) {
                Get::Pending => drop(settle(shard)),
                Get::Bad(_) => return false,
                Get::Found(_) | Get::Absent => return true,
            }
        }
    })
}

#[test]
fn corrupt_bitmap_is_rebuilt() {
    let disk = formatted(32 << 20, 512 << 10, Pace::AtOnce, 1);
    let mut dice = Dice::new(5);
    let mut shard = open(&disk, small());
    apply(&mut shard, vec![Change::CreateCollection { split_bits: 0 }]);
    for n in 0..150 {
        let (offset, data) = (dice.below(90_000), bytes(&mut dice, 9000).into());
        apply(
            &mut shard,
            vec![Change::Write { object: object(&format!("o{}", n % 30), n % 7), offset, data }],
        );
    }
    // Some blocks of the index between what names the data and the bitmap.
    let entries = (0..200).map(|n| (format!("key {n}").into(), bytes(&mut dice, 100).into())).collect();
    let omap = Change::OmapSet { object: a(), entries };
    apply(&mut shard, vec![omap]);
    stop(shard);
    let blocks = tables(&open(&disk, small()));
    let mut rebuilt = 0;
    for block in &blocks {
        let disk = disk.killed(&mut dice);
        let rot = Rot::default();
        rot.flip(block * BLOCK_BYTES + 100, 1);
        let Ok(mut shard) = rotten(&disk, &rot) else { continue };
        if zones_are_readable(&mut shard) {
            continue;
        }
        rebuilt += 1;
        // The block may hold more than the bitmap: keys of the omap.
        let is_the_block =
            |f: &Finding| matches!(f, Finding::IndexUnreadable { .. } | Finding::OmapBytes { .. });
        let findings = shard.check(Depth::Deep, &mut || ()).findings;
        assert!(findings.iter().all(is_the_block), "{findings:#?}");
        apply(&mut shard, vec![Change::Write { object: b(), offset: 0, data: vec![1; 50_000].into() }]);
        stop(shard);
        let mut shard = rotten(&disk, &rot).unwrap();
        assert!(zones_are_readable(&mut shard), "recorded anew");
        let findings = shard.check(Depth::Deep, &mut || ()).findings;
        assert!(findings.iter().all(is_the_block), "{findings:#?}");
    }
    assert!(rebuilt > 0, "none of {} blocks of the index is that of the bitmap", blocks.len());
}

/// Blocks of a read in flight are not allocated again, whatever is written meanwhile.
#[test]
fn pending_read_keeps_its_blocks() {
    let disk = formatted(32 << 20, 512 << 10, Pace::AtOnce, 9);
    let data = bytes(&mut Dice::new(9), 40_000);
    let mut shard = open(&disk, small());
    apply(&mut shard, vec![Change::CreateCollection { split_bits: 0 }]);
    apply(&mut shard, vec![Change::Write { object: a(), offset: 0, data: data.clone().into() }]);
    stop(shard);
    for seed in 0..20 {
        let disk = disk.killed(&mut Dice::new(seed));
        let mut shard = open(&disk, small());
        disk.set_pace(Pace::Shuffled { per_poll_max: 1 });
        let queries = vec![Query::Data { offset: 0, len: u64::MAX }];
        shard.read(7, store::ReadRequest { collection: home(), object: a(), queries });
        for tag in 0..6 {
            let data = bytes(&mut Dice::new(100 + tag), 40_000).into();
            let change = Change::Write { object: a(), offset: 0, data };
            shard.submit(tag, Transaction { collection: home(), changes: vec![change] });
        }
        let done = settle(&mut shard);
        let read = done.iter().find_map(|done| match done {
            Completion::Read { tag: 7, answers } => Some(answers.clone()),
            _ => None,
        });
        let Some(Ok(answers)) = read else { panic!("{read:?}") };
        let [Answer::Data(found)] = answers.as_slice() else { panic!("{answers:?}") };
        // A read may see what was submitted after it; never something else.
        let later = (0..6).map(|tag| bytes(&mut Dice::new(100 + tag), 40_000));
        let found = found.to_bytes();
        assert!(later.chain([data.clone()]).any(|data| found == data), "seed {seed}");
    }
}
