//! Cold blocks: how often a request waits for the device, counted on a device that answers all of a wait at once.

use super::operations::{home, object, pg};
use super::{formatted, open, settle, small};
use crate::attach;
use crate::index;
use crate::shard::jobs::PROBES_OF_PLAN;
use crate::shard::{JOB_STEPS_MAX, Options, Shard};
use device::simulated::{Pace, Simulated};
use device::{BLOCK, BlockDevice, Done, Request};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use store::{Answer, Change, Collection, Completion, ObjectId, ObjectStore, Query, ReadRequest, Transaction};

const KEYS: u64 = 20_000;
const ASKED: u64 = 1_000;

/// A device that is slower than turns are: it answers when a turn has brought no further read. Counts the polls that bring
/// completions of reads: everything asked for in between was one wait.
struct Waits {
    disk: Simulated,
    reads: BTreeSet<u64>,
    is_asked: bool,
    count: Rc<Cell<u64>>,
}

impl BlockDevice for Waits {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn submit(&mut self, token: u64, request: Request) {
        if matches!(request, Request::Read { .. }) {
            self.reads.insert(token);
            self.is_asked = true;
        }
        self.disk.submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        if std::mem::take(&mut self.is_asked) {
            return true;
        }
        let first = out.len();
        let goes_on = self.disk.poll(out);
        let done: Vec<u64> = out[first..].iter().map(|done| done.token).collect();
        let brings_reads = done.iter().filter(|token| self.reads.remove(token)).count() > 0;
        self.count.set(self.count.get() + u64::from(brings_reads));
        goes_on
    }
}

/// Small tables, so that thousands of keys lie in hundreds of blocks; and a cache that keeps what was read.
fn options() -> Options {
    let index = index::Options { cache_bytes: 32 << 20, ..small().index };
    Options { index, part_keys_max: ASKED as usize, ..small() }
}

fn submit(shard: &mut Shard, tag: u64, changes: Vec<Change>) {
    shard.submit(tag, Transaction { collection: home(), changes });
}

fn omap_key(i: u64) -> bytes::Bytes {
    format!("key-{i:08}").into()
}

/// Every twentieth key, so that each lies in another block of the index.
fn asked() -> impl Iterator<Item = bytes::Bytes> {
    (0..ASKED).map(|i| omap_key(i * (KEYS / ASKED)))
}

fn large() -> ObjectId {
    object("large", 1)
}

/// A disk with an object of [`KEYS`] omap keys and one of 60 pages, in several levels of tables.
fn filled() -> Simulated {
    let disk = formatted(128 << 20, 8 << 20, Pace::AtOnce, 1);
    let mut shard = open(&disk, options());
    submit(&mut shard, 0, vec![Change::CreateCollection { split_bits: 0 }]);
    for first in (0..KEYS).step_by(500) {
        let entries = (first..first + 500).map(|i| (omap_key(i), vec![i as u8; 200].into())).collect();
        submit(&mut shard, 0, vec![Change::OmapSet { object: large(), entries }]);
        settle(&mut shard);
    }
    for i in 0..60 {
        let data = vec![i as u8; BLOCK].into();
        submit(&mut shard, 0, vec![Change::Write { object: object("bytes", 2), offset: i << 16, data }]);
    }
    settle(&mut shard);
    shard.force_checkpoint();
    settle(&mut shard);
    assert!(shard.index.fresh_tables() < 4, "merges are done");
    shard.stop();
    settle(&mut shard);
    disk
}

/// A shard with nothing in memory, and the count of its waits.
fn opened_cold(disk: &Simulated) -> (Shard, Rc<Cell<u64>>) {
    let count = Rc::new(Cell::new(0));
    let device = Waits { disk: disk.clone(), reads: BTreeSet::new(), is_asked: false, count: count.clone() };
    let pool = attach(&mut disk.clone(), &mut || ()).expect("it was formatted");
    let mut shard = Shard::open(Box::new(device), 0, &pool, options(), &mut || ()).expect("it was formatted");
    settle(&mut shard);
    count.set(0);
    (shard, count)
}

/// Waits for reads until the transaction is committed.
fn waits_of(shard: &mut Shard, count: &Cell<u64>, changes: Vec<Change>) -> u64 {
    count.set(0);
    submit(shard, 7, changes);
    let done = settle(shard);
    assert_eq!(done, [Completion::Committed { tag: 7 }]);
    count.get()
}

fn set_all(byte: u8) -> Vec<Change> {
    let entries = asked().map(|key| (key, vec![byte; 30].into())).collect();
    vec![Change::OmapSet { object: large(), entries }]
}

#[test]
fn cold_omap_keys_wait_once_per_index_level() {
    let disk = filled();
    let (mut shard, count) = opened_cold(&disk);
    let reads_before = disk.counts().reads;
    // Root, guide and block of the record; then the same of the keys.
    let waits = waits_of(&mut shard, &count, set_all(1));
    let reads = disk.counts().reads - reads_before;
    assert!(reads > ASKED / 3, "only {reads} reads: the keys are not cold");
    assert!(waits <= 6, "{waits} waits for {ASKED} keys");
}

#[test]
fn cold_omap_keys_below_known_guides_wait_once() {
    let disk = filled();
    let (mut shard, count) = opened_cold(&disk);
    // Absent keys between those that are there: their look-ups read the guides, and blocks only for false positives.
    let absent = |i| [&omap_key(i)[..], b"+"].concat().into();
    let keys = (0..KEYS).step_by(5).map(absent).collect();
    waits_of(&mut shard, &count, vec![Change::OmapRemove { object: large(), keys }]);
    let reads_before = disk.counts().reads;
    let waits = waits_of(&mut shard, &count, set_all(1));
    let reads = disk.counts().reads - reads_before;
    assert!(reads > ASKED / 4, "only {reads} reads: the keys are not cold");
    assert_eq!(waits, 1, "{ASKED} keys");
}

#[test]
fn cold_omap_read_waits_once_per_index_level() {
    let disk = filled();
    let (mut shard, count) = opened_cold(&disk);
    let queries = vec![Query::OmapGet { keys: asked().collect() }];
    shard.read(1, ReadRequest { collection: home(), object: large(), queries });
    let done = settle(&mut shard);
    let [Completion::Read { tag: 1, answers: Ok(answers) }] = &done[..] else { panic!("{done:?}") };
    let [Answer::OmapGet(entries)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(entries.len() as u64, ASKED);
    assert!(count.get() <= 6, "{} waits for {ASKED} keys", count.get());
}

#[test]
fn cold_writes_of_one_transaction_read_old_blocks_at_once() {
    let disk = filled();
    let (mut shard, count) = opened_cold(&disk);
    let write = |i: u64| Change::Write {
        object: object("bytes", 2),
        offset: (i << 16) + 10,
        data: vec![0xee; 20].into(),
    };
    // Record, page and old block: with their roots and guides at most seven waits.
    let waits = waits_of(&mut shard, &count, (0..50).map(write).collect());
    assert!(waits <= 7, "{waits} waits for 50 writes");
    let queries = vec![Query::Data { offset: (49 << 16) + 9, len: 22 }];
    shard.read(1, ReadRequest { collection: home(), object: object("bytes", 2), queries });
    let done = settle(&mut shard);
    let expected = [&[49][..], &[0xee; 20], &[49]].concat();
    assert_eq!(done, [Completion::Read { tag: 1, answers: Ok(vec![Answer::Data(expected.into())]) }]);
}

#[test]
fn cold_listing_returns_its_part_and_goes_on() {
    let disk = formatted(128 << 20, 8 << 20, Pace::AtOnce, 1);
    let mut shard = open(&disk, options());
    submit(&mut shard, 0, vec![Change::CreateCollection { split_bits: 0 }]);
    let objects: Vec<ObjectId> = (0..3000).map(|i| object(&format!("object-{i:05}"), 7)).collect();
    for few in objects.chunks(100) {
        let value = bytes::Bytes::from(vec![1; 300]);
        let attr = |object: &ObjectId| Change::SetAttr {
            object: object.clone(),
            name: "a".into(),
            value: value.clone(),
        };
        submit(&mut shard, 0, few.iter().map(attr).collect());
        settle(&mut shard);
    }
    shard.stop();
    settle(&mut shard);
    let (mut shard, _) = opened_cold(&disk);
    let end = wire::types::HObject::max().into();
    let mut next = Some(object("", 0));
    let (mut listed, mut answers) = (Vec::new(), 0);
    while let Some(start) = next {
        let queries = vec![Query::List { end: ObjectId::clone(&end), max: 1000 }];
        shard.read(1, ReadRequest { collection: home(), object: start, queries });
        let done = settle(&mut shard);
        let [Completion::Read { answers: Ok(page), .. }] = &done[..] else { panic!("{done:?}") };
        let [Answer::List { objects, next: then }] = &page[..] else { panic!("{page:?}") };
        assert!(!objects.is_empty() && objects.len() <= 1000);
        listed.extend(objects.clone());
        next = then.clone();
        answers += 1;
    }
    assert_eq!(listed, objects);
    assert!(answers > 3, "{answers} answers: none was cut short");
}

#[test]
fn waiting_transactions_share_several_polls() {
    const PGS: u32 = 8;
    let disk = formatted(128 << 20, 8 << 20, Pace::AtOnce, 1);
    let mut shard = open(&disk, options());
    let collection = |seed| Collection::Pg(pg(seed));
    let set = |seed: u32, byte: u8| Transaction {
        collection: collection(seed),
        changes: vec![Change::OmapSet {
            object: object("keys", seed),
            entries: (0..ASKED).map(|i| (omap_key(i), vec![byte; 100].into())).collect(),
        }],
    };
    for seed in 0..PGS {
        let changes = vec![Change::CreateCollection { split_bits: PGS.ilog2() as u8 }];
        shard.submit(0, Transaction { collection: collection(seed), changes });
        shard.submit(0, set(seed, 1));
        settle(&mut shard);
    }
    shard.stop();
    settle(&mut shard);
    let (mut shard, _) = opened_cold(&disk);
    (0..PGS).for_each(|seed| shard.submit(seed.into(), set(seed, 2)));
    let (mut done, mut steps_max, mut goes_on) = (Vec::new(), 0, true);
    while goes_on {
        let before = shard.index.query_steps();
        goes_on = shard.poll(&mut done);
        steps_max = steps_max.max(shard.index.query_steps() - before);
    }
    assert_eq!(done.len(), PGS as usize, "{done:?}");
    // A transaction is planned as a whole.
    assert!(steps_max <= JOB_STEPS_MAX + 2 * ASKED, "{steps_max} steps in one poll");
}

#[test]
fn large_transaction_is_planned_in_several_turns() {
    let disk = filled();
    let (mut shard, _) = opened_cold(&disk);
    let entries = (0..KEYS).step_by(4).map(|i| (omap_key(i), vec![7; 50].into())).collect();
    submit(&mut shard, 1, vec![Change::OmapSet { object: large(), entries }]);
    let (mut done, mut most, mut turns, mut goes_on) = (Vec::new(), 0, 0, true);
    while goes_on {
        let before = shard.index.probes();
        goes_on = shard.poll(&mut done);
        let asked = shard.index.probes() - before;
        (most, turns) = (most.max(asked), turns + u64::from(asked > PROBES_OF_PLAN / 2));
    }
    assert_eq!(done, [Completion::Committed { tag: 1 }]);
    // A plan that ends in a poll's first round may go on in its later ones.
    assert!(most <= 2 * PROBES_OF_PLAN, "{most} tables asked in one poll");
    assert!(turns >= 3, "5,000 keys took {turns} turns");
    let queries = vec![Query::OmapGet { keys: (0..KEYS).map(omap_key).collect() }];
    shard.read(2, ReadRequest { collection: home(), object: large(), queries });
    let done = settle(&mut shard);
    let [Completion::Read { answers: Ok(answers), .. }] = &done[..] else { panic!("{done:?}") };
    let [Answer::OmapGet(entries)] = &answers[..] else { panic!("{answers:?}") };
    let new = entries.iter().filter(|(_, value)| value.len() == 50).count() as u64;
    assert_eq!((entries.len() as u64, new), (KEYS, KEYS / 4));
}

#[test]
fn transactions_of_new_keys_share_several_polls() {
    const WRITES: u64 = 16;
    let disk = filled();
    let (mut shard, _) = opened_cold(&disk);
    // It waits for the device, and those behind it need nothing of the tables.
    submit(&mut shard, 0, vec![Change::OmapRemove { object: large(), keys: asked().collect() }]);
    for tag in 1..=WRITES {
        let entries = (0..ASKED).map(|i| (omap_key(i), vec![1; 100].into())).collect();
        submit(&mut shard, tag, vec![Change::OmapSet { object: object("new", tag as u32), entries }]);
    }
    let (mut done, mut most, mut goes_on) = (Vec::new(), 0, true);
    while goes_on {
        let before = shard.job_steps();
        goes_on = shard.poll(&mut done);
        most = most.max(shard.job_steps() - before);
    }
    assert_eq!(done.len() as u64, 1 + WRITES, "{done:?}");
    assert!(most <= JOB_STEPS_MAX + 3 * ASKED, "{most} steps in one poll");
}
