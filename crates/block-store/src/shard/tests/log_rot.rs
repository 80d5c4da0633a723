//! A damaged log is distinguished from the end of a log.

use super::{formatted, open, small};
use crate::log::{RecordHead, ReplayError};
use crate::shard::{OpenError, Shard, read_superblock};
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
    let log = superblock.regions[0].log();
    let offsets = log.blocks().map(|block| block * BLOCK as u64);
    let identity = superblock.identity.of_shard(0);
    offsets
        .filter_map(|at| RecordHead::decode(&disk.peek(at), identity).map(|head| (at, head.sequence)))
        .collect()
}

fn reopen(disk: &Simulated) -> Result<Shard, OpenError> {
    Shard::open(Box::new(disk.clone()), 0, small(), &mut || ())
}

#[test]
fn damaged_record_before_others_is_not_the_end_of_log() {
    let disk = killed();
    let records = records(&disk);
    assert_eq!(records.len() as u64, COUNT);
    for (at, sequence) in &records[..records.len() - 1] {
        // Its header, then its body.
        for byte in [20, 100] {
            disk.poke(*at, |block| block[byte] ^= 1);
            let error = reopen(&disk).err();
            let damaged = ReplayError::Damaged { missing: *sequence, later: sequence + 1 };
            assert!(
                matches!(&error, Some(OpenError::Log(why)) if *why == damaged),
                "record {sequence}: {error:?}"
            );
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
