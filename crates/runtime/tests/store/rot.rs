//! Bit rot on a real file: random bits are flipped in data, index, log and free blocks. No read may return a wrong byte, and a
//! deep check must find every flip in live data.
//!
//! A sample runs with the other tests; `SHOAL_ROT_FLIPS=1000` flips a thousand bits. Flips come in rounds of
//! [`ROUND_FLIPS`], each on a new store, so that one flip that prevents recovery does not hide all others.

use super::disks::{OnDisk, TemporaryFile, format};
use block_store::check::{Depth, Finding};
use device::BLOCK;
use device::dice::Dice;
use runtime::device::{Disk, Method};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use store::memory::Config;
use store::{
    Answer, Change, Collection, Completion, MemoryStore, ObjectId, ObjectStore, Query, ReadError,
    ReadRequest, Transaction,
};
use wire::types::{HObject, PgId, SnapId};

const DISK_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 4 << 20;
const OBJECTS: u64 = 300;
const ROUND_FLIPS: usize = 100;
const BLOCK_BYTES: u64 = BLOCK as u64;

fn home() -> Collection {
    Collection::Pg(PgId { pool: 1, seed: 0 }.into())
}

fn object(n: u64) -> ObjectId {
    let (name, hash) = (format!("object {n}"), (n as u32).wrapping_mul(0x9e37_79b9));
    HObject { pool: 1, hash, snap: SnapId::HEAD, name: name.into(), ..HObject::min() }.into()
}

fn bytes(dice: &mut Dice, len: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes());
    words.take(len as usize).collect()
}

/// Applies a transaction to both stores, durably.
fn apply(disk: &mut OnDisk, memory: &mut MemoryStore, changes: Vec<Change>) {
    for store in [disk as &mut dyn ObjectStore, memory] {
        store.submit(1, Transaction { collection: home(), changes: changes.clone() });
        let mut out = Vec::new();
        while store.poll(&mut out) {}
        assert_eq!(out, [Completion::Committed { tag: 1 }]);
    }
}

fn ask(store: &mut dyn ObjectStore, object: &ObjectId, query: Query) -> Result<Answer, ReadError> {
    store.read(2, ReadRequest { collection: home(), object: object.clone(), queries: vec![query] });
    let mut out = Vec::new();
    while store.poll(&mut out) {}
    match out.pop() {
        Some(Completion::Read { tag: 2, answers }) => answers.map(|mut answers| answers.remove(0)),
        other => panic!("{other:?}"),
    }
}

/// Objects of all sizes with overwrites, clones, removals, attributes and omaps.
fn fill(disk: &mut OnDisk, memory: &mut MemoryStore, dice: &mut Dice) {
    apply(disk, memory, vec![Change::CreateCollection { split_bits: 0 }]);
    for n in 0..OBJECTS {
        let id = object(n);
        let len = 1 + dice.below(200_000);
        let entries =
            (0..dice.below(8)).map(|i| (format!("key {i}").into(), bytes(dice, 50).into())).collect();
        let mut changes = vec![
            Change::Write { object: id.clone(), offset: dice.below(10_000), data: bytes(dice, len).into() },
            Change::SetAttr { object: id.clone(), name: "_".into(), value: bytes(dice, 200).into() },
            Change::OmapSet { object: id.clone(), entries },
        ];
        let old = object(dice.below(n + 1));
        match dice.below(8) {
            0 => {
                let to = HObject { snap: SnapId(4), ..id.object.clone() }.into();
                changes.push(Change::Clone { from: id.clone(), to });
                changes.push(Change::Write { object: id, offset: 5000, data: bytes(dice, 6000).into() });
            }
            1 => changes.push(Change::Truncate { object: old, size: dice.below(50_000) }),
            2 => changes.push(Change::Write {
                object: old,
                offset: dice.below(90_000),
                data: bytes(dice, 3000).into(),
            }),
            _ => {}
        }
        apply(disk, memory, changes);
    }
    for n in 0..OBJECTS / 8 {
        if ask(memory, &object(n * 8), Query::Stat).is_ok() {
            apply(disk, memory, vec![Change::Remove { object: object(n * 8) }]);
        }
    }
}

fn objects(memory: &mut MemoryStore) -> Vec<ObjectId> {
    let all = Query::List { end: HObject::max().into(), max: usize::MAX };
    match ask(memory, &HObject::min().into(), all) {
        Ok(Answer::List { objects, .. }) => objects,
        other => panic!("{other:?}"),
    }
}

fn flip(path: &Path, offset: u64, bit: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, offset).unwrap();
    file.sync_all().unwrap();
}

#[derive(Debug, Default)]
struct Counts {
    flips: usize,
    flips_in_live_data: usize,
    found_by_check: usize,
    reads_right: usize,
    reads_refused: usize,
    stores_that_did_not_open: usize,
    checks_with_an_unreadable_index: usize,
}

fn round(seed: u64, flips: usize, counts: &mut Counts) {
    let mut dice = Dice::new(seed);
    let file = TemporaryFile::new(&format!("rot-{seed}"), DISK_BYTES);
    let mut memory = MemoryStore::new(Config::with_total(1 << 40));
    let live: Vec<u64> = {
        let disk = Disk::open(&file.0).unwrap();
        format(&disk, Method::Threads, LOG_BYTES, seed as u8);
        let mut store = OnDisk::open(&disk, Method::Threads).unwrap();
        fill(&mut store, &mut memory, &mut dice);
        let report = store.check(Depth::Deep);
        assert_eq!(report.findings, [], "before anything was flipped");
        store.shard.stop();
        store.settle();
        assert!(store.shard.is_stopped());
        store.shard.stored_runs().flat_map(|run| run.blocks()).collect()
    };
    // Half of the flips anywhere, half in live data.
    let mut flipped = BTreeSet::new();
    for n in 0..flips {
        let block = match n % 2 {
            0 => dice.below(DISK_BYTES / BLOCK_BYTES),
            _ => live[dice.below(live.len() as u64) as usize],
        };
        // At most one per block: a second flip could undo the first.
        if flipped.insert(block) {
            flip(&file.0, block * BLOCK_BYTES + dice.below(BLOCK_BYTES), dice.below(8));
        }
    }
    counts.flips += flipped.len();
    let in_live: BTreeSet<u64> =
        flipped.iter().copied().filter(|block| live.binary_search(block).is_ok()).collect();

    let disk = Disk::open(&file.0).unwrap();
    let mut store = match OnDisk::open(&disk, Method::Threads) {
        Ok(store) => store,
        Err(error) => {
            println!("round {seed}: not opened: {error}");
            counts.stores_that_did_not_open += 1;
            return;
        }
    };
    for id in objects(&mut memory) {
        let everything = [
            Query::Stat,
            Query::Data { offset: 0, len: u64::MAX },
            Query::Data { offset: 4096, len: 9000 },
            Query::Attrs,
            Query::OmapList { after: None, from: "".into(), prefix: "".into(), max: 100, values: true },
        ];
        for query in everything {
            let expected = ask(&mut memory, &id, query.clone()).unwrap();
            match ask(&mut store, &id, query) {
                Ok(found) => {
                    assert!(same(&found, &expected), "{id:?}: wrong bytes were returned");
                    counts.reads_right += 1;
                }
                Err(ReadError::Corrupt | ReadError::Io) => counts.reads_refused += 1,
                Err(other) => panic!("{id:?}: {other}"),
            }
        }
    }
    counts.flips_in_live_data += in_live.len();
    let report = store.check(Depth::Deep);
    let found: BTreeSet<u64> = report
        .findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Corrupt { device_offset, .. } => Some(device_offset / BLOCK_BYTES),
            _ => None,
        })
        .collect();
    counts.found_by_check += found.len();
    assert!(found.is_subset(&in_live), "a sound block is called damaged");
    let index_is_whole = !report.findings.iter().any(|f| matches!(f, Finding::IndexUnreadable { .. }));
    counts.checks_with_an_unreadable_index += !index_is_whole as usize;
    if index_is_whole {
        assert_eq!(found, in_live, "round {seed}: every flip in live data is found");
    }
}

fn same(found: &Answer, expected: &Answer) -> bool {
    match (found, expected) {
        (Answer::Data(found), Answer::Data(expected)) => found.to_bytes() == expected.to_bytes(),
        _ => found == expected,
    }
}

#[test]
fn flipped_bits_are_never_read_and_deep_check_finds_them() {
    let flips =
        std::env::var("SHOAL_ROT_FLIPS").map_or(2 * ROUND_FLIPS, |text| text.parse().expect("a number"));
    let mut counts = Counts::default();
    for seed in 0..flips.div_ceil(ROUND_FLIPS) as u64 {
        round(seed, ROUND_FLIPS, &mut counts);
    }
    println!("{counts:#?}");
    let Counts { flips, flips_in_live_data, found_by_check, reads_right, reads_refused, .. } = counts;
    assert!(flips_in_live_data * 4 > flips && found_by_check * 4 > flips, "most of it was seen to work");
    assert!(reads_right > 0 && reads_refused > 0);
}
