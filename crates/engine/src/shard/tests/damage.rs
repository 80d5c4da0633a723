//! Transactions that meet damage: they are carried out, nothing wrong is read, and what is lost is said to be.

use super::dump::{ask, list};
use super::operations::{bytes, home, object, transaction};
use super::{formatted, open, settle, small};
use crate::check::{Depth, Finding};
use crate::device::BLOCK;
use crate::device::dice::Dice;
use crate::device::faulty::{Faulty, Rot};
use crate::device::simulated::{Pace, Simulated};
use crate::index::{Get, Ticket};
use crate::object::key;
use crate::shard::Shard;
use crate::space::Run;
use store::{
    Answer, Change, Collection, Completion, MemoryStore, ObjectId, ObjectStore, Query, ReadError, Transaction,
};

const BLOCK_BYTES: u64 = BLOCK as u64;

fn commit(shard: &mut Shard, transaction: Transaction) {
    shard.submit(1, transaction);
    let done = settle(shard);
    assert_eq!(done, [Completion::Committed { tag: 1 }], "{:?}", shard.failure());
}

fn apply(shard: &mut Shard, changes: Vec<Change>) {
    commit(shard, Transaction { collection: home(), changes });
}

/// Everything in its place, and a clean end.
fn stop(mut shard: Shard) {
    shard.stop();
    settle(&mut shard);
    assert!(shard.is_stopped());
}

fn rotten(disk: &Simulated, rot: &Rot) -> Result<Shard, crate::OpenError> {
    let device = Faulty::new(disk.clone(), rot.clone());
    Shard::open(Box::new(device), 0, small(), &mut || ())
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
fn a_copy_of_what_cannot_be_read_cannot_be_read() {
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

/// Blocks of the index's tables.
fn tables(shard: &Shard) -> Vec<u64> {
    shard.index.runs().flat_map(|(offset, len)| Run::of_bytes(offset, len).blocks()).collect()
}

/// Reads are right or refused; says how many were which.
fn compare(shard: &mut Shard, front: &mut MemoryStore, collection: Collection, id: &ObjectId) -> (u64, u64) {
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
            Err(ReadError::Corrupt) => refused += 1,
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

/// Bits of the index flip while transactions go on: none fails, none is torn, no read is wrong.
#[test]
fn a_rotten_index_fails_reads_and_nothing_else() {
    let (mut right, mut refused, mut opened) = (0, 0, 0);
    for seed in 0..24 {
        let mut dice = Dice::new(seed);
        let disk = formatted(32 << 20, 512 << 10, Pace::AtOnce, seed);
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

fn zones_are_readable(shard: &mut Shard) -> bool {
    (0..shard.space.zones()).all(|zone| {
        loop {
            let Shard { index, io, .. } = &mut *shard;
            match index.get(&key::zone(zone), Ticket(77), io) {
                Get::Pending => drop(settle(shard)),
                Get::Bad(_) => return false,
                Get::Found(_) | Get::Absent => return true,
            }
        }
    })
}

#[test]
fn a_rotten_bitmap_is_made_anew() {
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

/// What a read points to stays until it has been read, whatever is written meanwhile.
#[test]
fn a_read_under_way_keeps_its_blocks() {
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
