//! Encryption at rest: the device has no plaintext, keys are told apart from damage, and the key can be changed.

use super::dump::{Dump, ask};
use super::operations::{home, object};
use super::rig::{Rig, same};
use super::{attached, formatted_with, new_keys, open, secret, settle, small, try_open};
use crate::check::Depth;
use crate::format::{KeyHolder, Superblock};
use crate::shard::{OpenError, Shard};
use crate::{attach, attach_with_key, read_superblock, rekey};
use device::BLOCK;
use device::dice::Dice;
use device::faulty::{Faulty, Rot};
use device::simulated::{Pace, Simulated};
use std::collections::BTreeSet;
use store::{Change, MemoryStore, ObjectStore, Query, Transaction};
use wire::types::Eversion;

const BLOCK_BYTES: u64 = BLOCK as u64;
const SIZE: u64 = 32 << 20;
const COPIES: [u64; 3] = [0, 1, SIZE / BLOCK_BYTES - 1];

fn disk(is_encrypted: bool) -> Simulated {
    formatted_with(SIZE, 1 << 20, Pace::AtOnce, 5, is_encrypted)
}

fn commit(rig: &mut Rig, changes: Vec<Change>) {
    let transaction = Transaction { collection: home(), changes };
    rig.front_apply(transaction.clone());
    rig.submit(transaction);
    rig.settle();
}

/// Texts that a store with all kinds of contents has on its device.
const TEXTS: [&str; 7] = [
    "text-of-a-small-write",
    "text-of-a-large-write",
    "text-of-an-object-name",
    "text-of-an-attribute",
    "text-of-an-omap-key",
    "text-of-an-omap-value",
    "text-of-a-log-record",
];

/// A store with all of [`TEXTS`], in its log and then in its blocks and tables.
fn filled(is_encrypted: bool) -> Rig {
    let mut rig = Rig::on(disk(is_encrypted), small());
    let named = object(TEXTS[2], 1);
    let whole = |text: &str, len: usize| text.repeat(len / text.len() + 1)[..len].to_owned().into_bytes();
    commit(&mut rig, vec![Change::CreateCollection { split_bits: 0 }]);
    for round in 0..3u64 {
        let small = Change::Write {
            object: object("a", 1),
            offset: round * 5000,
            data: whole(TEXTS[0], 5000).into(),
        };
        let large = whole(TEXTS[1], 200_000).into();
        let large = Change::Write { object: named.clone(), offset: round * 200_000, data: large };
        let entries = (0..50)
            .map(|n| (format!("{}-{round}-{n}", TEXTS[4]).into(), format!("{}-{n}", TEXTS[5]).into()))
            .collect();
        let attr = Change::SetAttr { object: named.clone(), name: "x".into(), value: TEXTS[3].into() };
        let record = |n| (Eversion { epoch: 1, version: round * 200 + n + 1 }, whole(TEXTS[6], 200).into());
        let log = Change::LogAppend { records: (0..200).map(record).collect() };
        commit(&mut rig, vec![small, large]);
        commit(&mut rig, vec![Change::OmapSet { object: named.clone(), entries }, attr, log]);
        // The last round stays in the log.
        if round < 2 {
            rig.shard.force_checkpoint();
            rig.settle();
        }
    }
    rig
}

/// Those of [`TEXTS`] that a scan of the device finds.
fn readable(disk: &Simulated) -> Vec<&'static str> {
    let mut all = Vec::new();
    (0..SIZE / BLOCK_BYTES).for_each(|block| all.extend_from_slice(&disk.peek(block * BLOCK_BYTES)));
    let has = |text: &&str| all.windows(text.len()).any(|part| part == text.as_bytes());
    TEXTS.into_iter().filter(has).collect()
}

#[test]
fn scan_of_encrypted_device_finds_no_plaintext() {
    assert_eq!(readable(&filled(false).disk), TEXTS, "a plain device has each of them");
    let mut rig = filled(true);
    assert_eq!(readable(&rig.disk), <[&str; 0]>::default());
    // The superblock alone is not ciphertext: elsewhere each written block has nearly all values of a byte.
    for block in 0..SIZE / BLOCK_BYTES {
        let bytes = rig.disk.peek(block * BLOCK_BYTES);
        let values = bytes.iter().collect::<BTreeSet<_>>().len();
        let is_untouched = values == 1;
        assert!(is_untouched || values > 200 || COPIES.contains(&block), "block {block}: {values} values");
    }
    let data_key = *new_keys().data_key.bytes();
    for copy in COPIES {
        let block = rig.disk.peek(copy * BLOCK_BYTES);
        assert!(!block.windows(8).any(|part| data_key.windows(8).any(|key| key == part)));
    }
    rig.shard.stop();
    settle(&mut rig.shard);
    assert_eq!(readable(&rig.disk), <[&str; 0]>::default());
    same(&mut open(&rig.disk, small()), &mut rig.front, Depth::Deep);
}

#[test]
fn start_without_key_or_with_wrong_one_is_refused() {
    let disk = disk(true);
    let before: Vec<_> = COPIES.iter().map(|block| disk.peek(block * BLOCK_BYTES)).collect();
    let with = |byte| attach_with_key(&mut disk.clone(), Some(&secret(byte)), &mut || ()).map(drop);
    assert_eq!(attach(&mut disk.clone(), &mut || ()).err(), Some(OpenError::KeyMissing(KeyHolder::File)));
    assert_eq!(with(2).err(), Some(OpenError::KeyWrong(KeyHolder::File)));
    let after: Vec<_> = COPIES.iter().map(|block| disk.peek(block * BLOCK_BYTES)).collect();
    assert_eq!(before, after, "a refused start writes nothing");
    assert!(with(1).is_ok());
    // The owner is known without the key.
    assert_eq!(read_superblock(&mut disk.clone(), &mut || ()).unwrap().label, "test");
    assert!(
        attach_with_key(&mut self::disk(false), Some(&secret(2)), &mut || ()).is_ok(),
        "no key is needed"
    );
}

#[test]
fn damaged_copy_of_the_wrapped_key_is_written_again() {
    for damaged in 1..8 {
        let disk = disk(true);
        let whole = disk.peek(0);
        let chosen: Vec<u64> =
            COPIES.into_iter().enumerate().filter(|(n, _)| damaged >> n & 1 == 1).map(|(_, at)| at).collect();
        for at in &chosen {
            // Within the wrapped key, the last field.
            let last = whole[..BLOCK - 4].iter().rposition(|byte| *byte != 0).unwrap();
            disk.poke(at * BLOCK_BYTES, |block| block[last - 20] ^= 4);
        }
        match attached(&mut disk.clone()) {
            Ok(_) => {
                assert!(damaged != 7);
                COPIES.iter().for_each(|at| assert_eq!(disk.peek(at * BLOCK_BYTES), whole));
            }
            // Damage, not a wrong key.
            Err(error) => assert!(damaged == 7 && matches!(error, OpenError::Superblock(_)), "{error}"),
        }
    }
}

#[test]
fn rekey_changes_the_key_and_writes_only_superblocks() {
    let mut rig = filled(true);
    rig.shard.stop();
    settle(&mut rig.shard);
    let before = rig.disk.counts();
    let mut disk = rig.disk.clone();
    assert_eq!(
        rekey(&mut disk, &secret(2), &secret(3), KeyHolder::File, &mut || ()),
        Err(OpenError::KeyWrong(KeyHolder::File))
    );
    assert_eq!(rig.disk.counts().writes, before.writes);
    rekey(&mut disk, &secret(1), &secret(2), KeyHolder::Monitors, &mut || ()).unwrap();
    assert_eq!(rig.disk.counts().write_bytes - before.write_bytes, 3 * BLOCK_BYTES);
    assert_eq!(attached(&mut disk).err(), Some(OpenError::KeyWrong(KeyHolder::Monitors)));
    let pool = attach_with_key(&mut disk, Some(&secret(2)), &mut || ()).unwrap();
    let mut shard = Shard::open(Box::new(disk.clone()), 0, &pool, small(), &mut || ()).unwrap();
    same(&mut shard, &mut rig.front, Depth::Deep);
    let mut plain = self::disk(false);
    let refused = rekey(&mut plain, &secret(1), &secret(2), KeyHolder::File, &mut || ());
    assert_eq!(refused, Err(OpenError::NotEncrypted));
}

#[test]
fn interrupted_rekey_leaves_a_store_for_either_key() {
    // The write of each copy in turn fails, with any part of it done.
    for (n, failing) in COPIES.into_iter().enumerate() {
        for chosen in [1, 2] {
            let disk = disk(true);
            let offset = failing * BLOCK_BYTES;
            disk.fail_writes(offset..offset + BLOCK_BYTES);
            rekey(&mut disk.clone(), &secret(1), &secret(2), KeyHolder::File, &mut || ()).unwrap_err();
            disk.heal();
            let with = |byte| attach_with_key(&mut disk.clone(), Some(&secret(byte)), &mut || ()).map(drop);
            // A failed write of the first copy may be undone, and one of the last may be done.
            if (n, chosen) == (0, 2) || (n, chosen) == (2, 1) {
                let has_key = |at: &u64| {
                    let copy = Superblock::decode(&disk.peek(at * BLOCK_BYTES)).ok()?;
                    copy.encryption?.unlock(&copy.identity, &secret(chosen))
                };
                if COPIES.iter().find_map(has_key).is_none() {
                    with(3 - chosen).unwrap();
                    continue;
                }
            }
            with(chosen).unwrap();
            // All copies have the key that opened it, and the other one is void.
            assert_eq!(with(3 - chosen).err(), Some(OpenError::KeyWrong(KeyHolder::File)), "{n}, {chosen}");
            assert!(COPIES.iter().all(|at| disk.peek(at * BLOCK_BYTES) == disk.peek(0)));
            with(chosen).unwrap();
        }
    }
}

/// Compares whatever a damaged store serves with what was written. Returns the number of refused reads.
fn refused_reads(shard: &mut Shard, front: &mut MemoryStore) -> usize {
    let mut refused = 0;
    for (collection, _) in front.collections() {
        for id in super::dump::list(front, collection) {
            for query in [Query::Data { offset: 0, len: u64::MAX }, Query::Attrs, Query::OmapHeader] {
                let expected = ask(front, collection, &id, vec![query.clone()]);
                match ask(shard, collection, &id, vec![query.clone()]) {
                    Err(store::ReadError::Corrupt | store::ReadError::Io) => refused += 1,
                    found => match (found, expected) {
                        (Ok(found), Ok(expected)) => match (&found[0], &expected[0]) {
                            (store::Answer::Data(a), store::Answer::Data(b)) => {
                                assert!(a.to_bytes() == b.to_bytes(), "{id:?}: wrong bytes");
                            }
                            (a, b) => assert_eq!(a, b),
                        },
                        (found, expected) => assert_eq!(found.err(), expected.err(), "{id:?}"),
                    },
                }
            }
        }
    }
    refused
}

#[test]
fn flipped_bits_anywhere_never_serve_wrong_bytes() {
    let (mut flips, mut opened, mut refused, mut reported) = (0, 0, 0, 0);
    for is_encrypted in [false, true] {
        let mut rig = filled(is_encrypted);
        rig.shard.stop();
        settle(&mut rig.shard);
        let touched: Vec<u64> = (0..SIZE / BLOCK_BYTES)
            .filter(|block| rig.disk.peek(block * BLOCK_BYTES).windows(2).any(|pair| pair[0] != pair[1]))
            .collect();
        let mut dice = Dice::new(7);
        for _ in 0..50 {
            // Ten bits: in superblocks, headers, log, tables and data alike.
            let rot = Rot::default();
            for _ in 0..10 {
                let block = touched[dice.below(touched.len() as u64) as usize];
                rot.flip(block * BLOCK_BYTES + dice.below(BLOCK_BYTES), dice.below(8) as u8);
                flips += 1;
            }
            let disk = rig.disk.killed(&mut dice);
            let mut device = Faulty::new(disk.clone(), rot.clone());
            let Ok(pool) = attached(&mut device) else { continue };
            let Ok(mut shard) = Shard::open(Box::new(device), 0, &pool, small(), &mut || ()) else {
                continue;
            };
            opened += 1;
            refused += refused_reads(&mut shard, &mut rig.front);
            reported += usize::from(!shard.check(Depth::Deep, &mut || ()).findings.is_empty());
        }
    }
    println!(
        "{flips} bits: {opened} of 100 stores opened, {refused} reads refused, fsck reported {reported}"
    );
    assert!(
        flips == 1000 && opened >= 20 && refused > 10 && reported > 10,
        "{opened}, {refused}, {reported}"
    );
}

#[test]
fn encrypted_store_equals_plain_one() {
    let (plain, encrypted) = (filled(false), filled(true));
    assert_eq!(plain.disk.counts(), encrypted.disk.counts(), "the same requests");
    let dump = |rig: &Rig| Dump::of(&mut try_open(&rig.disk, small()).unwrap());
    assert!(dump(&plain) == dump(&encrypted));
}
