//! Logs of collections, and patches in the write-ahead log, under power cuts: spills, trims and checkpoints come with nearly every
//! batch, and memtables end after some changes.

use super::dump::ask;
use super::operations::{bytes, home, object, pg};
use super::rig::Rig;
use super::{open, small};
use crate::check::{Depth, Finding};
use crate::index;
use crate::shard::{Options, Shard};
use device::BLOCK;
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use store::{Answer, Change, ObjectId, ObjectStore, Query, ReadError, Transaction};
use wire::types::Eversion;

const STEPS: usize = 160;

/// With much deferred data a checkpoint waits for its blocks, and memtables behind it are flushed before its manifest.
fn deferring() -> Options {
    Options { inline_bytes_max: 64 << 10, deferred_bytes_max: 4 << 20, ..options() }
}

fn options() -> Options {
    let index = index::Options { memtable_bytes: 3 << 10, ..small().index };
    Options { recent_bytes_max: 4 << 10, inline_bytes_max: 4 << 10, first_fit: true, index, ..small() }
}

fn key(version: u64) -> Eversion {
    Eversion { epoch: 2, version }
}

/// A transaction of a PG: bytes and attributes of an object, progress, log records; now and then a trim up to its last records.
fn change_of(version: &mut u64, dice: &mut Dice) -> Transaction {
    let object = object(["a", "b", "c"][dice.below(3) as usize], dice.below(2) as u32);
    let meta = ObjectId::pg_meta(pg(0));
    let len = if dice.chance(30) { 20_000 } else { 1 + dice.below(4000) };
    let mut info = vec![7; 300];
    info[dice.below(300) as usize] = dice.roll() as u8;
    info[..8].copy_from_slice(&version.to_le_bytes());
    let mut changes = vec![
        Change::Write { object: object.clone(), offset: dice.below(6) << 12, data: bytes(dice, len).into() },
        Change::SetAttr { object, name: "_".into(), value: info.clone().into() },
        Change::OmapSetHeader { object: meta, header: info[..100].to_vec().into() },
    ];
    let count = if dice.chance(30) { 12 } else { 1 };
    let records = (0..count).map(|_| {
        *version += 1;
        (key(*version), bytes(dice, 700).into())
    });
    changes.push(Change::LogAppend { records: records.collect() });
    match dice.below(6) {
        0 => changes.push(Change::LogTrim { to: key(version.saturating_sub(dice.below(6))) }),
        1 => changes.push(Change::LogRewind { to: key(version.saturating_sub(dice.below(3))) }),
        _ => {}
    }
    Transaction { collection: home(), changes }
}

pub(super) fn run(seed: u64) {
    let mut dice = Dice::new(seed);
    let (options, pace) = match seed.is_multiple_of(2) {
        true => (deferring(), Pace::Shuffled { per_poll_max: 2 }),
        false => (options(), Pace::Steps),
    };
    let mut rig = Rig::new(16 << 20, 512 << 10, pace, seed, options);
    let mut version = 1;
    let create =
        Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] };
    rig.front_apply(create.clone());
    rig.submit(create);
    rig.rebase();
    for _ in 0..STEPS {
        for _ in 0..1 + dice.below(4) {
            let next = change_of(&mut version, &mut dice);
            rig.front_apply(next.clone());
            rig.submit(next);
        }
        for _ in 0..dice.below(12) {
            rig.poll();
        }
        if dice.chance(25) {
            rig.shard.force_checkpoint();
            for _ in 0..dice.below(60) {
                let next = change_of(&mut version, &mut dice);
                rig.front_apply(next.clone());
                rig.submit(next);
                rig.poll();
            }
        }
        if dice.chance(30) {
            let depth = if dice.chance(20) { Depth::Deep } else { Depth::Metadata };
            rig.crash_now(&mut dice, depth);
        }
    }
    rig.compare(Depth::Deep);
}

#[test]
fn logs_and_patches_survive_power_cuts() {
    (1..7).for_each(run);
}

/// A log as long as that of a busy PG takes the space that its records need, and gives it back.
#[test]
fn trimmed_log_gives_its_blocks_back() {
    let mut rig =
        Rig::new(64 << 20, 4 << 20, Pace::AtOnce, 3, Options { recent_bytes_max: 64 << 10, ..small() });
    let create =
        Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] };
    rig.front_apply(create.clone());
    rig.submit(create);
    let mut most = 0;
    for version in 1..=12_000u64 {
        let record = (key(version), vec![version as u8; 100].into());
        let mut changes = vec![Change::LogAppend { records: vec![record] }];
        if version.is_multiple_of(100) {
            changes.push(Change::LogTrim { to: key(version.saturating_sub(2000)) });
        }
        let next = Transaction { collection: home(), changes };
        rig.front_apply(next.clone());
        rig.submit(next);
        if version.is_multiple_of(50) {
            rig.settle();
        }
        let stored: u64 = rig.shard.stored_runs().map(|run| run.len).sum();
        most = stored.max(most);
    }
    // 2,000 records of 100 bytes in two copies, and those that wait for a spill.
    assert!((80..=260).contains(&most), "{most} blocks");
    rig.compare(Depth::Deep);
}

/// The owner must not take a log for shorter than it is.
#[test]
fn rotten_chunk_costs_log_with_its_copy_only() {
    let mut rig = Rig::new(16 << 20, 1 << 20, Pace::AtOnce, 3, options());
    let records = (1..=200).map(|version| (key(version), vec![version as u8; 150].into())).collect();
    let changes = vec![Change::CreateCollection { split_bits: 0 }, Change::LogAppend { records }];
    rig.submit(Transaction { collection: home(), changes });
    rig.settle();
    // Without its data, the last record of the log would be torn.
    rig.shard.force_checkpoint();
    rig.settle();
    let meta = ObjectId::pg_meta(pg(0));
    let list = |shard: &mut Shard, after| {
        ask(shard, home(), &meta, vec![Query::LogList { after: key(after), max: 1000 }])
    };
    let stored: Vec<u64> = rig.shard.stored_runs().flat_map(|run| run.blocks()).collect();
    assert!(stored.len() > 8 && stored.len().is_multiple_of(2), "{} blocks", stored.len());
    let list_all = |disk: &Simulated| list(&mut open(disk, options()), 0);
    let whole = list_all(&rig.disk);
    assert!(whole.is_ok());
    let block_at = |number: u64| number * BLOCK as u64;
    let flip = |disk: &Simulated, number| disk.poke(block_at(number), |block| block[77] ^= 4);
    // Different blocks of the two copies: each part is taken from the good one.
    let half = stored.len() / 2;
    flip(&rig.disk, stored[1]);
    assert_eq!(list_all(&rig.disk), whole);
    flip(&rig.disk, stored[half + 2]);
    let mut shard = open(&rig.disk, options());
    assert_eq!(list(&mut shard, 0), whole);
    let damage: Vec<_> = shard.take_damage().into_iter().filter_map(|damage| damage.device_offset).collect();
    assert_eq!(damage, [block_at(stored[1]), block_at(stored[half + 2])]);
    // The same block of both copies.
    flip(&rig.disk, stored[half + 1]);
    let mut shard = open(&rig.disk, options());
    assert_eq!(list(&mut shard, 0), Err(ReadError::Corrupt));
    assert!(list(&mut shard, 199).is_ok(), "records in memory");
    super::settle(&mut shard);
    let report = shard.check(Depth::Deep, &mut || ());
    assert!(
        report.findings.iter().all(|finding| matches!(finding, Finding::Corrupt { .. })),
        "{:?}",
        report.findings
    );
    assert_eq!(report.findings.len(), 3);
    let again = vec![(key(1), "again".into())];
    let changes = vec![Change::LogClear, Change::LogAppend { records: again.clone() }];
    shard.submit(1, Transaction { collection: home(), changes });
    shard.force_checkpoint();
    super::settle(&mut shard);
    assert_eq!(list(&mut shard, 0), Ok(vec![Answer::LogList { records: again, more: false }]));
    let report = shard.check(Depth::Deep, &mut || ());
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// An OSD replaces a copy of a PG whose log cannot be read: new records, removal, and a collection of the same name.
#[test]
fn collection_with_a_rotten_log_is_replaced() {
    let mut rig = Rig::new(16 << 20, 1 << 20, Pace::AtOnce, 4, options());
    let records = (1..=200).map(|version| (key(version), vec![version as u8; 150].into())).collect();
    let meta = ObjectId::pg_meta(pg(0));
    let changes = vec![
        Change::CreateCollection { split_bits: 0 },
        Change::OmapSetHeader { object: meta.clone(), header: "old".into() },
        Change::LogAppend { records },
    ];
    rig.submit(Transaction { collection: home(), changes });
    rig.settle();
    rig.shard.force_checkpoint();
    rig.settle();
    let stored: Vec<u64> = rig.shard.stored_runs().flat_map(|run| run.blocks()).collect();
    for number in [stored[1], stored[stored.len() / 2 + 1]] {
        rig.disk.poke(number * BLOCK as u64, |block| block[77] ^= 4);
    }
    let queries = || vec![Query::OmapHeader, Query::LogList { after: key(0), max: 1000 }];
    let mut shard = open(&rig.disk, options());
    assert_eq!(ask(&mut shard, home(), &meta, queries()), Err(ReadError::Corrupt));

    let changes = vec![
        Change::Touch { object: meta.clone() },
        Change::OmapClear { object: meta.clone() },
        Change::LogClear,
        Change::OmapSetHeader { object: meta.clone(), header: "incomplete".into() },
    ];
    shard.submit(1, Transaction { collection: home(), changes });
    super::settle(&mut shard);
    let expected = |header: &'static str, records| {
        Ok(vec![Answer::OmapHeader(header.into()), Answer::LogList { records, more: false }])
    };
    assert_eq!(ask(&mut shard, home(), &meta, queries()), expected("incomplete", Vec::new()));
    store::moving::remove(&mut shard, home(), &mut |_| ()).expect("it is removed");
    let again = vec![(key(1), "again".into())];
    let changes = vec![
        Change::CreateCollection { split_bits: 0 },
        Change::OmapSetHeader { object: meta.clone(), header: "new".into() },
        Change::LogAppend { records: again.clone() },
    ];
    shard.submit(2, Transaction { collection: home(), changes });
    shard.force_checkpoint();
    super::settle(&mut shard);
    let mut shard = open(&rig.disk, options());
    assert_eq!(ask(&mut shard, home(), &meta, queries()), expected("new", again));
    let report = shard.check(Depth::Deep, &mut || ());
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}
