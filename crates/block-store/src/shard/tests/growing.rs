//! A store gets more shards, with a power cut at every step: it opens with the old shards or with all of them, and nothing
//! that it held has changed.

use super::dump::Dump;
use super::handles::{formatted_for, open_all, try_open_all};
use super::operations::{bytes, home, object};
use super::{settle, small};
use crate::check::Depth;
use crate::grow::{GrowError, grow};
use crate::shard::Shard;
use crate::{Pool, attach};
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use std::cell::RefCell;
use std::sync::Arc;
use store::{Change, Completion, ObjectStore, Transaction};

const SIZE: u64 = 16 << 20;
const LOG_BYTES: u64 = 256 << 10;

fn commit(shard: &mut Shard, change: Change) {
    shard.submit(1, Transaction { collection: home(), changes: vec![change] });
    assert!(settle(shard).contains(&Completion::Committed { tag: 1 }), "{:?}", shard.failure());
}

/// A store of two shards with objects in the first one.
fn filled() -> Simulated {
    let disk = formatted_for(2, SIZE, LOG_BYTES, 1);
    let mut dice = Dice::new(2);
    let mut shards = open_all(&disk, &small());
    commit(&mut shards[0], Change::CreateCollection { split_bits: 0 });
    for n in 0..40 {
        let len = 1 + dice.below(60_000);
        let data = bytes(&mut dice, len).into();
        commit(&mut shards[0], Change::Write { object: object(&format!("o{n}"), n), offset: 0, data });
    }
    disk
}

/// Opens every shard with the pool of a growth, and drops it.
fn reported(disk: &Simulated) -> Arc<Pool> {
    try_open_all(disk, &small()).expect("the store opens").1
}

/// Contents of the first shard, and the number of shards. The store is whole, and each shard takes writes.
fn examine(disk: &Simulated) -> (Dump, usize) {
    disk.set_pace(Pace::AtOnce);
    let (mut shards, _) = try_open_all(disk, &small()).expect("the store opens");
    let dump = Dump::of(&mut shards[0]);
    for shard in &mut shards {
        settle(shard);
        let findings = shard.check(Depth::Deep, &mut || ()).findings;
        assert!(findings.is_empty(), "{findings:?}");
    }
    for shard in &mut shards[1..] {
        commit(shard, Change::CreateCollection { split_bits: 0 });
        commit(shard, Change::Write { object: object("new", 3), offset: 0, data: vec![7; 9000].into() });
    }
    let count = shards.len();
    drop(shards);
    let shards = open_all(disk, &small());
    assert!(shards[1..].iter().all(|shard| shard.placed().len() == 1), "a new shard recovers");
    (dump, count)
}

#[test]
fn grown_store_has_its_objects_and_empty_shards() {
    let disk = filled();
    let before = Dump::of(&mut open_all(&disk, &small())[0]);
    let written = disk.counts().write_bytes;
    let superblock = grow(&reported(&disk), 5, &mut disk.clone(), &mut || ()).unwrap();
    // Logs, and a few blocks of headers: no object is copied.
    let written = disk.counts().write_bytes - written;
    assert!(written < 3 * (LOG_BYTES + (64 << 10)), "{written} bytes");
    assert_eq!(attach(&mut disk.clone(), &mut || ()).unwrap().superblock(), &superblock);
    let (after, count) = examine(&disk);
    assert_eq!(count, 5);
    assert!(after == before, "{:#?}", after.differences(&before));
    // Once more, and the new shards have their objects.
    grow(&reported(&disk), 6, &mut disk.clone(), &mut || ()).unwrap();
    let (mut shards, _) = try_open_all(&disk, &small()).unwrap();
    assert_eq!(shards.len(), 6);
    assert_eq!(shards.iter_mut().filter(|shard| !shard.placed().is_empty()).count(), 5);
}

#[test]
fn power_cut_during_growth_leaves_old_or_new_shards() {
    let disk = filled();
    let before = Dump::of(&mut open_all(&disk, &small())[0]);
    let pool = reported(&disk);
    disk.set_pace(Pace::Steps);
    let (images, dice) = (RefCell::new(Vec::new()), RefCell::new(Dice::new(3)));
    let mut moment = 0;
    grow(&pool, 4, &mut disk.clone(), &mut || {
        if moment != disk.moment() {
            moment = disk.moment();
            images.borrow_mut().push(disk.power_cut(&mut dice.borrow_mut()));
            images.borrow_mut().push(disk.killed(&mut dice.borrow_mut()));
        }
    })
    .unwrap();
    let images = images.into_inner();
    let counts: Vec<usize> = images
        .iter()
        .map(|image| {
            let (after, count) = examine(image);
            assert!(after == before, "{:#?}", after.differences(&before));
            assert!(count == 2 || count == 4, "{count} shards");
            count
        })
        .collect();
    assert!(counts.contains(&2) && counts.contains(&4), "{counts:?}");
}

/// The process dies when the first copy of the superblock is written, and that copy rots after the next start.
#[test]
fn outdated_copy_is_written_again_at_the_next_start() {
    let disk = filled();
    let old: Vec<_> = [1, SIZE / 4096 - 1].map(|block| (block, disk.peek(block * 4096))).into();
    grow(&reported(&disk), 4, &mut disk.clone(), &mut || ()).unwrap();
    for (block, bytes) in &old {
        disk.poke(block * 4096, |at| at.copy_from_slice(bytes));
    }
    let shards = open_all(&disk, &small());
    assert_eq!(shards.len(), 4);
    drop(shards);
    disk.poke(0, |block| block[100] ^= 1);
    assert_eq!(open_all(&disk, &small()).len(), 4);
    // Where it cannot be written, the store does not open: it might be chosen later.
    for (block, bytes) in &old {
        disk.poke(block * 4096, |at| at.copy_from_slice(bytes));
    }
    disk.fail_writes(4096..8192);
    assert!(try_open_all(&disk, &small()).is_err());
}

#[test]
fn store_without_room_stays_as_it_is() {
    let disk = filled();
    let before = disk.counts().writes;
    let refused = grow(&reported(&disk), 30, &mut disk.clone(), &mut || ());
    assert!(matches!(refused, Err(GrowError::NoRoom { added: 28, .. })), "{refused:?}");
    assert_eq!(disk.counts().writes, before);
    assert_eq!(examine(&disk).1, 2);
}
