//! Cleaning after the removal of large objects: bounded per poll, linear in total, without delay of clients.

use super::operations::{home, object};
use super::{formatted, open, settle, small};
use crate::check::Depth;
use crate::index::{Limit, Scan, Ticket};
use crate::object::key::{self, Key};
use crate::plan::CLEANING_STEPS_MAX;
use crate::shard::Shard;
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use store::{Change, Completion, ObjectId, ObjectStore, Transaction};

const KEYS: u64 = 20_000;
/// More than one transaction removes at once.
const PAGES: u64 = 500;

fn large() -> ObjectId {
    object("large", 1)
}

fn submit(shard: &mut Shard, tag: u64, changes: Vec<Change>) {
    shard.submit(tag, Transaction { collection: home(), changes });
}

fn omap_key(i: u64) -> bytes::Bytes {
    format!("key-{i:08}").into()
}

/// A shard at rest whose one object has an omap of [`KEYS`] keys, all of them in tables.
fn with_large_omap() -> (Simulated, Shard) {
    let disk = formatted(64 << 20, 8 << 20, Pace::AtOnce, 1);
    let mut shard = open(&disk, small());
    submit(&mut shard, 0, vec![Change::CreateCollection { split_bits: 0 }]);
    for first in (0..KEYS).step_by(500) {
        let entries = (first..first + 500).map(|i| (omap_key(i), vec![i as u8; 40].into())).collect();
        submit(&mut shard, 0, vec![Change::OmapSet { object: large(), entries }]);
        settle(&mut shard);
    }
    put_into_tables(&mut shard);
    (disk, shard)
}

fn put_into_tables(shard: &mut Shard) {
    shard.force_checkpoint();
    settle(shard);
}

/// Entries of pages, omaps and cleanings.
fn entries_left(shard: &mut Shard) -> usize {
    let spaces: [(Key, Key); 3] = [key::all_pages(), key::all_omaps(), key::all_cleanings()];
    let mut count = 0;
    for (mut at, to) in spaces {
        loop {
            let Shard { index, io, .. } = shard;
            match index.scan(&at, &to, Limit::new(1000, 1 << 20), Ticket(1 << 40), io, &mut |_, _| count += 1)
            {
                Scan::End => break,
                Scan::More(next) => at = next,
                Scan::Pending => drop(settle(shard)),
                Scan::Bad(bad) => panic!("{bad}"),
            }
        }
    }
    count
}

/// Polls until the shard is at rest. Returns the largest number of index entries that one poll looked at, and the total.
fn clean_all(shard: &mut Shard) -> (u64, u64) {
    let (mut most, first) = (0, shard.index.scan_steps());
    loop {
        let before = shard.index.scan_steps();
        let goes_on = shard.poll(&mut Vec::new());
        most = most.max(shard.index.scan_steps() - before);
        if !goes_on {
            return (most, shard.index.scan_steps() - first);
        }
    }
}

#[test]
fn omap_cleaning_is_linear_and_bounded_per_poll() {
    let (disk, mut shard) = with_large_omap();
    let reads_before = disk.counts().reads;
    submit(&mut shard, 1, vec![Change::Remove { object: large() }]);
    let (most, all) = clean_all(&mut shard);
    assert!(most <= 70, "{most} entries in one poll");
    assert!(all <= KEYS + KEYS / 8, "{all} entries for {KEYS} keys");
    // Tables are read by merges, once a level, and in part by the cleaner.
    let reads = disk.counts().reads - reads_before;
    assert!(reads < KEYS / 10, "{reads} reads for {KEYS} keys");
    assert_eq!(entries_left(&mut shard), 0);
    assert_eq!(shard.usage().omap, 0);
    assert_eq!(shard.check(Depth::Deep, &mut || ()).findings, []);
}

#[test]
fn cleaning_of_deleted_keys_is_bounded_per_poll() {
    let (_, mut shard) = with_large_omap();
    // Deletions in the memtable, over keys in tables.
    for first in (0..KEYS - 200).step_by(100) {
        let keys = (first..first + 100).map(omap_key).collect();
        submit(&mut shard, 0, vec![Change::OmapRemove { object: large(), keys }]);
        shard.poll(&mut Vec::new());
    }
    settle(&mut shard);
    submit(&mut shard, 1, vec![Change::Remove { object: large() }]);
    let (most, all) = clean_all(&mut shard);
    assert!(most <= CLEANING_STEPS_MAX as u64, "{most} entries in one poll");
    assert!(all <= 2 * KEYS, "{all} entries for {KEYS} keys");
    assert_eq!(entries_left(&mut shard), 0);
}

#[test]
fn page_cleaning_is_linear_and_gives_back_blocks() {
    let disk = formatted(64 << 20, 8 << 20, Pace::AtOnce, 1);
    let mut shard = open(&disk, small());
    submit(&mut shard, 0, vec![Change::CreateCollection { split_bits: 0 }]);
    let empty = shard.usage().within_reach().available;
    for page in 0..PAGES {
        let data = vec![7; 20_000].into();
        submit(&mut shard, 0, vec![Change::Write { object: large(), offset: page << 16, data }]);
        settle(&mut shard);
    }
    put_into_tables(&mut shard);
    submit(&mut shard, 1, vec![Change::Remove { object: large() }]);
    let (most, all) = clean_all(&mut shard);
    assert!(most <= 20, "{most} entries in one poll");
    assert!(all <= PAGES + PAGES / 4, "{all} entries for {PAGES} pages");
    put_into_tables(&mut shard);
    assert_eq!(entries_left(&mut shard), 0);
    assert!(shard.usage().within_reach().available + (2 << 20) > empty, "{:?}", shard.usage());
    assert_eq!(shard.check(Depth::Deep, &mut || ()).findings, []);
}

#[test]
fn cleaning_completes_after_kills() {
    let (disk, mut shard) = with_large_omap();
    submit(&mut shard, 1, vec![Change::Remove { object: large() }]);
    for kill in 0..20 {
        for _ in 0..25 {
            shard.poll(&mut Vec::new());
        }
        let killed = disk.killed(&mut Dice::new(kill));
        drop(shard);
        shard = open(&killed, small());
        // A start begins anew: it passes over what was deleted before.
    }
    clean_all(&mut shard);
    assert_eq!(entries_left(&mut shard), 0);
    assert_eq!(shard.check(Depth::Deep, &mut || ()).findings, []);
}

#[test]
fn writes_commit_in_few_polls_while_cleaning() {
    let (_, mut shard) = with_large_omap();
    submit(&mut shard, 1, vec![Change::Remove { object: large() }]);
    let (mut polls_max, mut writes) = (0, 0);
    while !shard.cleaner.is_idle() || writes == 0 {
        writes += 1;
        let data = vec![writes as u8; 4096].into();
        submit(&mut shard, 100 + writes, vec![Change::Write { object: object("small", 2), offset: 0, data }]);
        let mut done = Vec::new();
        let mut polls = 0;
        while !done.contains(&Completion::Committed { tag: 100 + writes }) {
            shard.poll(&mut done);
            polls += 1;
        }
        polls_max = polls_max.max(polls);
    }
    assert!(writes > 50, "cleaning took {writes} writes");
    assert!(polls_max <= 8, "a write took {polls_max} polls");
}

/// Keys of PG meta objects are not counted: the plan looks how many there are.
#[test]
fn large_range_of_a_meta_omap_is_cleaned_in_steps() {
    let disk = formatted(128 << 20, 8 << 20, Pace::AtOnce, 1);
    let mut shard = open(&disk, small());
    let meta = ObjectId::pg_meta(super::operations::pg(0));
    let change = |shard: &mut Shard, changes: Vec<Change>| {
        shard.submit(1, Transaction { collection: home(), changes });
        assert_eq!(settle(shard), [Completion::Committed { tag: 1 }]);
    };
    let key = |kind: char, n: u32| bytes::Bytes::from(format!("{kind}{n:06}"));
    let entry = |key: bytes::Bytes| (key, bytes::Bytes::from_static(b"value"));
    change(&mut shard, vec![Change::CreateCollection { split_bits: 0 }]);
    let header = bytes::Bytes::from_static(b"progress");
    change(&mut shard, vec![Change::OmapSetHeader { object: meta.clone(), header: header.clone() }]);
    for first in (0..3000).step_by(500) {
        let keys = ['d', 'l'].into_iter().flat_map(|kind| (first..first + 500).map(move |n| key(kind, n)));
        change(
            &mut shard,
            vec![Change::OmapSet { object: meta.clone(), entries: keys.map(entry).collect() }],
        );
    }
    let kept = [key('a', 1), key('m', 1)];
    let others = kept.iter().cloned().map(entry).collect();
    change(&mut shard, vec![Change::OmapSet { object: meta.clone(), entries: others }]);
    let (from, to) = ("d".into(), "m".into());
    let range = Change::OmapRemoveRange { object: meta.clone(), from, to };
    shard.submit(
        2,
        Transaction {
            collection: home(),
            changes: vec![range, Change::OmapSet { object: meta.clone(), entries: vec![entry(key('h', 1))] }],
        },
    );
    let (mut done, mut is_left_to_cleaner) = (Vec::new(), false);
    while done.is_empty() {
        shard.poll(&mut done);
        is_left_to_cleaner |= shard.figures().numbers_to_clean > 0;
    }
    assert_eq!(done, [Completion::Committed { tag: 2 }]);
    assert!(is_left_to_cleaner, "the transaction removes the keys one by one");
    settle(&mut shard);
    for _ in 0..2 {
        let queries = vec![
            store::Query::OmapHeader,
            store::Query::OmapGet {
                keys: vec![key('a', 1), key('d', 7), key('h', 1), key('l', 2999), key('m', 1)],
            },
        ];
        shard.read(3, store::ReadRequest { collection: home(), object: meta.clone(), queries });
        let done = settle(&mut shard);
        let [Completion::Read { answers: Ok(answers), .. }] = &done[..] else { panic!("{done:?}") };
        let left = [key('a', 1), key('h', 1), key('m', 1)].into_iter().map(entry).collect();
        assert_eq!(*answers, [store::Answer::OmapHeader(header.clone()), store::Answer::OmapGet(left)]);
        assert!(shard.check(Depth::Deep, &mut || ()).findings.is_empty());
        shard.stop();
        settle(&mut shard);
        shard = open(&disk, small());
        settle(&mut shard);
    }
}
