//! Damage of log, headers and superblocks: a damaged log is distinguished from the end of a log, and one bad block of a header
//! or superblock refuses no store.

use super::{formatted, open, small, try_open};
use crate::log::{RecordHead, ReplayError};
use crate::read_superblock;
use crate::shard::{OpenError, Shard};
use device::BLOCK;
use device::simulated::{Pace, Simulated};
use store::{Change, Collection, Completion, ObjectId, ObjectStore, Transaction};
use wire::types::{HObject, PgId};

const COUNT: u64 = 8;

/// A store killed after so many acknowledged transactions, one per record.
fn killed() -> Simulated {
    let disk = formatted(64 << 20, 1 << 20, Pace::AtOnce, 1);
    let mut shard = open(&disk, small());
    let home = Collection::Pg(PgId { pool: 1, seed: 0 }.into());
    let object: ObjectId = HObject { pool: 1, name: "o".into(), ..HObject::min() }.into();
    for tag in 0..COUNT {
        let changes = match tag {
            0 => vec![Change::CreateCollection { split_bits: 0 }],
            n => vec![Change::Write {
                object: object.clone(),
                offset: n * BLOCK as u64,
                data: vec![n as u8; BLOCK].into(),
            }],
        };
        shard.submit(tag, Transaction { collection: home, changes });
        let mut out = Vec::new();
        while !out.contains(&Completion::Committed { tag }) {
            shard.poll(&mut out);
        }
    }
    disk
}

/// Device offsets of log records, with their sequences.
fn records(disk: &Simulated) -> Vec<(u64, u64)> {
    let superblock = read_superblock(&mut disk.clone(), &mut || ()).unwrap();
    let log = superblock.shards[0].log;
    let offsets = log.blocks().map(|block| block * BLOCK as u64);
    let identity = superblock.identity.of_shard(0);
    offsets
        .filter_map(|at| RecordHead::decode(&disk.peek(at), identity).map(|head| (at, head.front.sequence)))
        .collect()
}

fn reopen(disk: &Simulated) -> Result<Shard, OpenError> {
    try_open(disk, small())
}

#[test]
fn damaged_record_before_others_is_not_the_end_of_log() {
    let disk = killed();
    let records = records(&disk);
    assert!(records.len() as u64 > COUNT, "those of the transactions, and leases");
    for (at, sequence) in &records[..records.len() - 1] {
        // Its header, then its body.
        for byte in [20, 100] {
            disk.poke(*at, |block| block[byte] ^= 1);
            let error = reopen(&disk).err();
            let Some(OpenError::Log(ReplayError::Damaged { missing, later, place })) = &error else {
                panic!("record {sequence}: {error:?}");
            };
            assert_eq!((missing, *later, place.offset()), (sequence, sequence + 1, *at));
            disk.poke(*at, |block| block[byte] ^= 1);
        }
    }
    reopen(&disk).expect("whole again");
}

/// A damaged last record looks like an unfinished one.
#[test]
fn the_last_record_may_be_torn() {
    let disk = killed();
    let (at, _) = *records(&disk).last().unwrap();
    disk.poke(at, |block| block[100] ^= 1);
    reopen(&disk).expect("a store that was killed while it wrote its last record");
}

/// The last record's block, and the first one behind the log.
fn end_of_log(disk: &Simulated) -> (u64, u64) {
    let (last, _) = *records(disk).last().unwrap();
    let head = RecordHead::decode(&disk.peek(last), identity(disk)).unwrap();
    (last, last + head.blocks() * BLOCK as u64)
}

fn identity(disk: &Simulated) -> u64 {
    read_superblock(&mut disk.clone(), &mut || ()).unwrap().identity.of_shard(0)
}

fn fail_block(disk: &Simulated, at: u64) {
    disk.fail_reads(at..at + BLOCK as u64);
}

#[test]
fn unreadable_block_behind_the_log_is_its_end() {
    let disk = killed();
    let (_, end) = end_of_log(&disk);
    for block in [0, 1, 9, 200] {
        fail_block(&disk, end + block * BLOCK as u64);
        let shard = reopen(&disk).unwrap_or_else(|error| panic!("block {block}: {error}"));
        assert_eq!(shard.log.durable(), records(&disk).len() as u64, "block {block}");
        disk.heal();
    }
}

#[test]
fn unreadable_record_inside_the_log_is_named() {
    let disk = killed();
    let all = records(&disk);
    for (at, sequence) in [all[0], all[all.len() / 2]] {
        fail_block(&disk, at);
        let error = reopen(&disk).err();
        let Some(OpenError::Log(ReplayError::Damaged { missing, place, .. })) = &error else {
            panic!("record {sequence}: {error:?}");
        };
        assert_eq!((*missing, place.offset()), (sequence, at));
        disk.heal();
    }
    // The second block of a record that was acknowledged last: it may be the only copy of a transaction.
    let (at, sequence) = *all.last().unwrap();
    assert!(end_of_log(&disk).1 > at + BLOCK as u64, "a record with its data");
    fail_block(&disk, at + BLOCK as u64);
    let error = reopen(&disk).err();
    let Some(OpenError::Log(ReplayError::Unreadable { sequence: found, place })) = &error else {
        panic!("{error:?}");
    };
    assert_eq!((*found, place.offset()), (sequence, at));
}

/// A store after two checkpoints, so that the older header's tables are gone.
fn checkpointed() -> Simulated {
    let disk = killed();
    for round in 0..2 {
        let mut shard = open(&disk, small());
        let change = Change::Write {
            object: HObject { pool: 1, name: "o".into(), ..HObject::min() }.into(),
            offset: round * BLOCK as u64,
            data: vec![9; BLOCK].into(),
        };
        let home = Collection::Pg(PgId { pool: 1, seed: 0 }.into());
        shard.submit(0, Transaction { collection: home, changes: vec![change] });
        shard.force_checkpoint();
        super::settle(&mut shard);
    }
    disk
}

#[test]
fn one_bad_header_slot_changes_nothing() {
    let disk = checkpointed();
    let whole = super::dump::Dump::of(&mut open(&disk, small()));
    let slots = read_superblock(&mut disk.clone(), &mut || ()).unwrap().shards[0].headers;
    for slot in slots {
        let at = slot * BLOCK as u64;
        fail_block(&disk, at);
        assert!(whole == super::dump::Dump::of(&mut reopen(&disk).expect("the other slot is enough")));
        disk.heal();
        disk.poke(at, |block| block[50] ^= 1);
        let mut shard = reopen(&disk).expect("the other slot is enough");
        assert!(whole == super::dump::Dump::of(&mut shard));
        shard.force_checkpoint();
        super::settle(&mut shard);
        assert_ne!(disk.peek(at)[..4], [0; 4], "the next checkpoint writes both slots");
    }
}

#[test]
fn header_older_than_the_log_is_refused_by_name() {
    let disk = checkpointed();
    let slots = read_superblock(&mut disk.clone(), &mut || ()).unwrap().shards[0].headers;
    let old = slots.map(|slot| disk.peek(slot * BLOCK as u64));
    let mut shard = open(&disk, small());
    let home = Collection::Pg(PgId { pool: 1, seed: 0 }.into());
    let meta = |tag: u64| Change::Touch {
        object: HObject { pool: 1, hash: tag as u32, name: "n".into(), ..HObject::min() }.into(),
    };
    shard.force_checkpoint();
    super::settle(&mut shard);
    shard.submit(0, Transaction { collection: home, changes: vec![meta(1)] });
    super::settle(&mut shard);
    // Both writes of the newest header are lost.
    for (slot, block) in slots.iter().zip(&old) {
        disk.poke(slot * BLOCK as u64, |now| now.copy_from_slice(block));
    }
    let error = reopen(&disk).err();
    assert!(matches!(&error, Some(OpenError::Log(ReplayError::HeaderLost { .. }))), "{error:?}");
}

#[test]
fn one_bad_superblock_copy_is_written_again() {
    let disk = killed();
    let last = device::BlockDevice::size(&disk) - BLOCK as u64;
    for at in [0, BLOCK as u64, last] {
        disk.fail_reads_until_written(at);
        reopen(&disk).expect("another copy is there");
        disk.poke(at, |block| block[100] ^= 1);
        reopen(&disk).expect("another copy is there");
        assert_eq!(disk.peek(at), disk.peek(last), "written again");
    }
}

/// The same transaction after the same records, in the place of a record that a crash tore.
#[test]
fn record_written_again_differs_from_the_lost_one() {
    let disk = killed();
    let (_, end) = end_of_log(&disk);
    let write_last = || {
        let mut shard = open(&disk, small());
        let change = Change::Write {
            object: HObject { pool: 1, name: "o".into(), ..HObject::min() }.into(),
            offset: 0,
            data: vec![3; BLOCK].into(),
        };
        let home = Collection::Pg(PgId { pool: 1, seed: 0 }.into());
        shard.submit(0, Transaction { collection: home, changes: vec![change] });
        super::settle(&mut shard);
        RecordHead::decode(&disk.peek(end), identity(&disk)).expect("a record behind the last one")
    };
    let first = write_last();
    disk.poke(end, |block| block[100] ^= 1);
    let second = write_last();
    assert_eq!(first.front.sequence, second.front.sequence);
    assert_ne!(first.crc, second.crc, "a successor of the lost record does not follow this one");
}
