//! One bit flips anywhere on a device that is not in use: no wrong answer is ever given, and damage is reported where it lies.

use super::damage::{apply_to, commit, compare, populated, stop, tables};
use super::dump::{ask, list};
use super::operations::{home, object, pg};
use super::{formatted, open, small, try_open};
use crate::check::{Depth, Finding};
use crate::log::RecordHead;
use crate::read_superblock;
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use device::{BLOCK, BlockDevice};
use store::{Answer, Change, MemoryStore, ObjectId, ObjectStore, Query, ReadError, Transaction};
use wire::types::Eversion;

const FLIPS: u64 = 1000;
const BLOCK_BYTES: u64 = BLOCK as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    Superblock,
    Header,
    /// The write-ahead log.
    Log,
    Index,
    /// Blocks of objects and of PG logs.
    Data,
}

/// A store with objects of all kinds and a PG log, its twin in memory, and the blocks of each area that are in use.
struct Image {
    disk: Simulated,
    front: MemoryStore,
    blocks: Vec<(Area, Vec<u64>)>,
    is_killed: bool,
}

impl Image {
    /// `is_killed`: the write-ahead log has records that are nowhere else.
    fn new(is_killed: bool) -> Image {
        let disk = formatted(32 << 20, 1 << 20, Pace::AtOnce, 7);
        let config =
            store::memory::Config { track_committed: true, ..store::memory::Config::with_total(1 << 40) };
        let mut front = MemoryStore::new(config);
        let mut shard = open(&disk, small());
        let records = (1..=400).map(|version| (key(version), vec![version as u8; 150].into())).collect();
        let log = Transaction { collection: home(), changes: vec![Change::LogAppend { records }] };
        let mut all = populated();
        all.push(log);
        // Damage of the last record, or of its data, looks like a write that a crash interrupted: it must change nothing.
        let touch = Change::Touch { object: object("o00", 0) };
        all.push(Transaction { collection: home(), changes: vec![touch] });
        let late = all.split_off(all.len() / 2);
        for (batch, checkpoint) in [(all, true), (late, !is_killed)] {
            for transaction in batch {
                apply_to(&mut front, &transaction);
                commit(&mut shard, transaction);
            }
            if checkpoint {
                shard.force_checkpoint();
                super::settle(&mut shard);
            }
        }
        match is_killed {
            true => drop(shard),
            false => stop(shard),
        }
        let superblock = read_superblock(&mut disk.clone(), &mut || ()).expect("it was formatted");
        let of_shard = &superblock.shards[0];
        let identity = superblock.identity.of_shard(0);
        let is_record = |block: &u64| RecordHead::decode(&disk.peek(block * BLOCK_BYTES), identity).is_some();
        let mut shard = open(&disk, small());
        assert!(log_is_right(&mut shard, &mut front, "before any flip"));
        let blocks = vec![
            (Area::Superblock, vec![0, 1, disk.size() / BLOCK_BYTES - 1]),
            (Area::Header, of_shard.headers.to_vec()),
            (Area::Log, of_shard.log.blocks().filter(is_record).collect()),
            (Area::Index, tables(&shard)),
            (Area::Data, shard.stored_runs().flat_map(|run| run.blocks()).collect()),
        ];
        drop(shard);
        assert!(blocks.iter().all(|(_, blocks)| !blocks.is_empty()), "{blocks:?}");
        Image { disk, front, blocks, is_killed }
    }
}

fn key(version: u64) -> Eversion {
    Eversion { epoch: 2, version }
}

/// The outcome of a flip.
#[derive(Debug, Default)]
struct Outcomes {
    refused_stores: u64,
    right: u64,
    refused_reads: u64,
    reported: u64,
    /// Nothing that was read contains the bit.
    unnoticed: u64,
}

fn flip_one(image: &mut Image, dice: &mut Dice, out: &mut Outcomes) {
    let (area, blocks) = &image.blocks[dice.below(image.blocks.len() as u64) as usize];
    let block = blocks[dice.below(blocks.len() as u64) as usize];
    let (byte, bit) = (dice.below(BLOCK_BYTES) as usize, dice.below(8));
    let disk = image.disk.killed(dice);
    disk.poke(block * BLOCK_BYTES, |bytes| bytes[byte] ^= 1 << bit);
    let what = format!("{area:?} block {block}, byte {byte}, bit {bit}");
    let mut shard = match try_open(&disk, small()) {
        Ok(shard) => shard,
        Err(error) => {
            // Both have copies, and data is not read at a start.
            let may_refuse = matches!(area, Area::Log | Area::Index);
            assert!(may_refuse, "{what}: {error}");
            out.refused_stores += 1;
            return;
        }
    };
    let mut refused = 0;
    for id in list(&mut image.front, home()) {
        let (is_right, is_refused) = compare(&mut shard, &mut image.front, home(), &id);
        out.right += is_right;
        refused += is_refused;
    }
    refused += u64::from(!log_is_right(&mut shard, &mut image.front, &what));
    out.refused_reads += refused;
    let findings = shard.check(Depth::Deep, &mut || ()).findings;
    let at_block = |finding: &Finding| matches!(finding, Finding::Corrupt { device_offset, .. } if *device_offset == block * BLOCK_BYTES);
    match area {
        // Copies were used, or it was the last record.
        Area::Superblock | Area::Header | Area::Log => {
            assert_eq!((refused, &findings[..]), (0, &[][..]), "{what}");
        }
        Area::Index => {
            assert!(refused == 0 || !findings.is_empty(), "{what}: {refused} refused reads, no finding")
        }
        // Blocks whose bytes the log still has are written again by the start.
        Area::Data if image.is_killed && findings.is_empty() => assert_eq!(refused, 0, "{what}"),
        Area::Data => assert!(findings.iter().any(at_block), "{what}: {findings:?}"),
    }
    match findings.is_empty() {
        true => out.unnoticed += 1,
        false => out.reported += 1,
    }
}

/// False if the listing of the PG's log fails. One with wrong records is a panic.
fn log_is_right(shard: &mut impl ObjectStore, front: &mut MemoryStore, what: &str) -> bool {
    let queries = || vec![Query::LogList { after: Eversion::ZERO, max: 1000 }];
    let meta = ObjectId::pg_meta(pg(0));
    let expected: Result<Vec<Answer>, ReadError> = ask(front, home(), &meta, queries());
    match ask(shard, home(), &meta, queries()) {
        Err(ReadError::Corrupt | ReadError::Io) => false,
        found => {
            assert_eq!(found, expected, "{what}");
            true
        }
    }
}

#[test]
fn bit_flips_anywhere_yield_no_wrong_answer() {
    let mut dice = Dice::new(11);
    let mut out = Outcomes::default();
    let mut images = [Image::new(false), Image::new(true)];
    for flip in 0..FLIPS {
        flip_one(&mut images[(flip % 2) as usize], &mut dice, &mut out);
    }
    println!("{FLIPS} flips: {out:?}");
    assert!(out.reported > FLIPS / 5 && out.refused_reads > 300 && out.refused_stores > 10, "{out:?}");
}
