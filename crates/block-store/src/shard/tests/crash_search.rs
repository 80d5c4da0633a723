//! Crash search: every sequence of up to three operations, with a power cut at every boundary of a write or flush.
//!
//! After each completion of the disk, all subsets of the unflushed blocks are tried, if there are at most [`IMAGES_MAX`];
//! otherwise none, all, all but each, each alone, and random ones up to that number; and some with a torn block. Each image
//! is opened: it must hold a prefix of the applied transactions, with all acknowledged ones, and pass fsck. Some are
//! written to and opened once more.
//!
//! A sample runs with the other tests. All of it:
//! `SHOAL_BLOCK_STORE_CRASH_SEARCH=full cargo test -p block-store --release crash_search -- --nocapture`.

use super::disks::{Disks, formatted_on};
use super::dump::{Dump, ask, list, log_of};
use super::operations::{bytes, compression, home, object, other, pg, transaction};
use super::rig::{Rig, same};
use super::{formatted_with, open, small};
use crate::check::Depth;
use crate::format::DeviceRole;
use crate::shard::{Options, Shard};
use device::dice::Dice;
use device::simulated::Pace;
use std::collections::BTreeMap;
use store::{
    Change, Collection, Compression, CompressionMode, MemoryStore, ObjectId, ObjectStore, Query, Transaction,
};
use wire::types::Eversion;

/// Images of one cut: all subsets of up to five blocks, or a sample of this size.
const IMAGES_MAX: usize = 32;

/// An operation, if the state allows it.
type Operation = fn(&mut MemoryStore) -> Option<Step>;

enum Step {
    Do(Transaction),
    /// Requests a checkpoint.
    Checkpoint,
}

const OPERATIONS: &[Operation] = &[
    |_| at_home(vec![write(a(), 4000, 200)]),
    |_| at_home(vec![write(a(), 4096, 4096)]),
    |_| at_home(vec![write(a(), 10_000, 100)]),
    |_| at_home(vec![write(a(), 1000, 40_000)]),
    |_| at_home(vec![write(b(), 100, 10), write(a(), 0, 20_000)]),
    |front| with(front, a(), |from| vec![Change::Clone { from, to: b() }]),
    |front| with(front, a(), |from| vec![Change::Clone { from, to: b() }, write(a(), 4000, 5000)]),
    |front| with(front, a(), |from| vec![range(from, b(), 4096, 8192, 0)]),
    |front| with(front, a(), |from| vec![range(from, b(), 100, 5000, 777)]),
    |front| with(front, b(), |from| vec![range(from, a(), 0, 20_000, 4096)]),
    |front| with(front, a(), |from| vec![range(from, b(), 0, 20_000, 0)]),
    |_| at_home(vec![Change::Truncate { object: a(), size: 5000 }]),
    |_| at_home(vec![Change::Truncate { object: a(), size: 0 }, write(a(), 0, 50)]),
    |_| at_home(vec![Change::Zero { object: a(), offset: 1000, len: 6000 }]),
    |front| with(front, a(), |object| vec![Change::Remove { object }]),
    |front| with(front, a(), |object| vec![Change::Remove { object }, write(a(), 10, 10)]),
    |front| with(front, b(), |object| vec![Change::Remove { object }]),
    rename,
    |_| at_home(vec![omap_set(a()), attr(a(), "x")]),
    |_| {
        let from_to = Change::OmapRemoveRange { object: a(), from: "k1".into(), to: "k3".into() };
        at_home(vec![from_to, Change::OmapSetHeader { object: a(), header: "header".into() }])
    },
    |_| at_home(vec![Change::OmapClear { object: a() }, omap_set(b())]),
    |_| at_home(vec![Change::RemoveAttrs { object: a() }, attr(a(), "y"), attr(b(), "z")]),
    log_entry,
    log_append,
    log_append_many,
    |_| at_home(vec![Change::LogTrim { to: log_key(1) }, write(a(), 8192, 100)]),
    |_| at_home(vec![Change::LogTrim { to: log_key(30) }]),
    log_rewind,
    |_| at_home(vec![Change::LogClear]),
    split,
    merge,
    |_| Some(Step::Checkpoint),
];

fn a() -> ObjectId {
    object("a", 2)
}

fn b() -> ObjectId {
    object("b", 1)
}

fn at_home(changes: Vec<Change>) -> Option<Step> {
    Some(Step::Do(Transaction { collection: home(), changes }))
}

fn write(object: ObjectId, offset: u64, len: u64) -> Change {
    Change::Write { object, offset, data: bytes(&mut Dice::new(offset ^ len), len).into() }
}

fn range(from: ObjectId, to: ObjectId, from_offset: u64, len: u64, to_offset: u64) -> Change {
    Change::CloneRange { from, to, from_offset, len, to_offset }
}

fn omap_set(object: ObjectId) -> Change {
    let entries = (0..4).map(|i| (format!("k{i}").into(), format!("value {i}").into())).collect();
    Change::OmapSet { object, entries }
}

fn attr(object: ObjectId, name: &'static str) -> Change {
    Change::SetAttr { object, name: name.into(), value: "value".into() }
}

fn is_there(front: &mut MemoryStore, collection: Collection, id: &ObjectId) -> bool {
    ask(front, collection, id, vec![Query::Stat]).is_ok()
}

fn with(front: &mut MemoryStore, id: ObjectId, changes: fn(ObjectId) -> Vec<Change>) -> Option<Step> {
    is_there(front, home(), &id).then(|| changes(id)).and_then(at_home)
}

fn rename(front: &mut MemoryStore) -> Option<Step> {
    let to = object("c", 6);
    let can = is_there(front, home(), &a()) && !is_there(front, home(), &to);
    can.then(|| vec![Change::Rename { from: a(), to }]).and_then(at_home)
}

fn log_key(version: u64) -> Eversion {
    Eversion { epoch: 1, version }
}

/// Key of the next record, and of the last one. A rewind may have gone to a later epoch than that of the last record.
fn log_end(front: &mut MemoryStore) -> (Eversion, Eversion) {
    let last = log_of(front, home()).last().map_or(log_key(40), |(key, _)| *key);
    (Eversion { epoch: last.epoch + 1, version: last.version + 1 }, last)
}

fn log_records(first: Eversion, count: u64, len: u64) -> Change {
    let record = |n| (Eversion { version: first.version + n, ..first }, bytes(&mut Dice::new(n), len).into());
    Change::LogAppend { records: (0..count).map(record).collect() }
}

/// A record beside a write.
fn log_append(front: &mut MemoryStore) -> Option<Step> {
    let (next, _) = log_end(front);
    at_home(vec![write(a(), 8192, 4096), log_records(next, 1, 200)])
}

/// More than the blocks of a chunk.
fn log_append_many(front: &mut MemoryStore) -> Option<Step> {
    let (next, _) = log_end(front);
    at_home(vec![log_records(next, 90, 800)])
}

/// As a merge does it: the last records go, and others of a later epoch come.
fn log_rewind(front: &mut MemoryStore) -> Option<Step> {
    let (_, last) = log_end(front);
    let to = Eversion { version: last.version.saturating_sub(25), ..last };
    let next = Eversion { epoch: last.epoch + 1, version: to.version + 1 };
    at_home(vec![Change::LogRewind { to }, log_records(next, 3, 100)])
}

/// A PG's own changes of every write.
fn log_entry(_: &mut MemoryStore) -> Option<Step> {
    let meta = ObjectId::pg_meta(pg(0));
    let entry = vec![("0009".into(), bytes(&mut Dice::new(9), 200).into())];
    at_home(vec![
        write(a(), 8192, 4096),
        Change::OmapSet { object: meta.clone(), entries: entry },
        Change::OmapRemoveRange { object: meta, from: "0000".into(), to: "0002".into() },
    ])
}

fn is_free_of_clashes(front: &mut MemoryStore) -> bool {
    let theirs = list(front, other());
    list(front, home()).iter().all(|id| !theirs.contains(id))
}

fn split(front: &mut MemoryStore) -> Option<Step> {
    let can = front.collections().len() == 2 && is_free_of_clashes(front);
    can.then(|| vec![Change::SplitCollection { split_bits: 1, seed: 1, into: other() }]).and_then(at_home)
}

fn merge(front: &mut MemoryStore) -> Option<Step> {
    let can = front.collections().len() == 2 && is_free_of_clashes(front);
    let changes = vec![Change::MergeCollection { split_bits: 0, into: home() }];
    can.then_some(Step::Do(Transaction { collection: other(), changes }))
}

/// The initial state of all sequences: `a` with three blocks, the last one partial, attributes and an omap; a clone of it;
/// the PG meta object; and a second collection to split into.
fn begun(options: &Options, is_encrypted: bool) -> Rig {
    begun_on(formatted_with(8 << 20, 256 << 10, Pace::AtOnce, 1, is_encrypted), options)
}

fn begun_on<D: Disks>(disk: D, options: &Options) -> Rig<D> {
    let mut rig = Rig::on(disk, options.clone());
    let meta = ObjectId::pg_meta(pg(0));
    let log = (0..4).map(|i| (format!("000{i}").into(), vec![i; 100].into())).collect();
    let at_home = vec![
        Change::CreateCollection { split_bits: 0 },
        write(a(), 0, 10_000),
        omap_set(a()),
        attr(a(), "x"),
        Change::Clone { from: a(), to: object("old", 3) },
        Change::OmapSet { object: meta, entries: log },
        log_records(log_key(1), 40, 150),
    ];
    for (collection, changes) in
        [(home(), at_home), (other(), vec![Change::CreateCollection { split_bits: 1 }])]
    {
        let transaction = Transaction { collection, changes };
        rig.front_apply(transaction.clone());
        rig.submit(transaction);
    }
    rig.rebase();
    rig
}

#[derive(Default)]
struct Counts {
    sequences: u64,
    boundaries: u64,
    images: u64,
}

/// Opens images of cuts and checks their contents.
struct Examiner {
    options: Options,
    dice: Dice,
    counts: Counts,
}

impl Examiner {
    fn new(options: Options, seed: u64) -> Examiner {
        Examiner { options, dice: Dice::new(seed), counts: Counts::default() }
    }

    /// Polls until the shard is at rest, with a power cut after every completion.
    fn settle<D: Disks>(&mut self, rig: &mut Rig<D>, images_max: usize, told: &dyn Fn() -> String) {
        let mut seen = None;
        let mut dumps = BTreeMap::new();
        loop {
            let busy = rig.poll();
            if seen != Some(rig.disk.moment()) {
                seen = Some(rig.disk.moment());
                self.counts.boundaries += 1;
                for image in rig.disk.power_cuts(images_max, &mut self.dice) {
                    self.examine(rig, image, &mut dumps, told);
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn examine<D: Disks>(
        &mut self,
        rig: &Rig<D>,
        image: D,
        dumps: &mut BTreeMap<Vec<u64>, Dump>,
        told: &dyn Fn() -> String,
    ) {
        self.counts.images += 1;
        image.set_pace(Pace::AtOnce);
        let mut reopened = open(&image, self.options.clone());
        let survivors = rig.survivors(&reopened);
        let expected =
            dumps.entry(survivors.clone()).or_insert_with(|| Dump::of(&mut rig.expected(&survivors)));
        let found = Dump::of(&mut reopened);
        if found != *expected {
            let differences = found.differences(expected);
            panic!("{}: of {survivors:?} found, and expected: {differences:#?}", told());
        }
        rest(&mut reopened);
        let report = reopened.check(Depth::Metadata, &mut || ());
        assert!(report.findings.is_empty(), "{}: {:#?}", told(), report.findings);
        if self.dice.below(8) == 0 {
            self.go_on(rig, image, reopened, &survivors);
        }
    }

    /// A recovered store takes transactions, and recovers again.
    fn go_on<D: Disks>(&mut self, rig: &Rig<D>, image: D, mut reopened: Shard, survivors: &[u64]) {
        let mut expected = rig.expected(survivors);
        for tag in 0..2 {
            reopened.submit(tag, transaction(&mut expected, &mut self.dice));
        }
        rest(&mut reopened);
        let mut again = open(&image.power_cut(&mut self.dice), self.options.clone());
        same(&mut again, &mut expected, Depth::Deep);
    }

    fn sequence<D: Disks>(&mut self, begun: &Rig<D>, operations: &[usize], settles: bool) {
        let mut rig = begun.fork(&mut self.dice);
        rig.disk.set_pace(Pace::Steps);
        let told = || format!("operations {operations:?}, one after the other: {settles}");
        for &operation in operations {
            match OPERATIONS[operation](&mut rig.front) {
                None => return,
                Some(Step::Checkpoint) => rig.shard.force_checkpoint(),
                Some(Step::Do(transaction)) => {
                    rig.front_apply(transaction.clone());
                    rig.submit(transaction);
                }
            }
            if settles {
                self.settle(&mut rig, IMAGES_MAX, &told);
            }
        }
        self.settle(&mut rig, IMAGES_MAX, &told);
        self.counts.sequences += 1;
    }

    /// A longer sequence of random transactions, some of them concurrent.
    fn random<D: Disks>(&mut self, begun: &Rig<D>, seed: u64) {
        let mut rig = begun.fork(&mut self.dice);
        rig.disk.set_pace(Pace::Steps);
        let mut dice = Dice::new(seed);
        let told = || format!("random sequence {seed}");
        for _ in 0..4 + dice.below(8) {
            if dice.below(8) == 0 {
                rig.shard.force_checkpoint();
            }
            let next = transaction(&mut rig.front, &mut dice);
            rig.submit(next);
            match dice.below(3) {
                // Some way: what comes next is gathered while this is in flight.
                0 => (0..dice.below(4)).for_each(|_| {
                    rig.poll();
                }),
                1 => self.settle(&mut rig, 3, &told),
                _ => {}
            }
        }
        self.settle(&mut rig, 3, &told);
        self.counts.sequences += 1;
    }
}

fn rest(shard: &mut Shard) {
    while shard.poll(&mut Vec::new()) {}
}

fn is_full() -> bool {
    std::env::var("SHOAL_BLOCK_STORE_CRASH_SEARCH").is_ok_and(|v| v == "full")
}

/// Options with which a write of five blocks is direct, and deferred data is placed soon.
fn options() -> Options {
    Options { inline_bytes_max: 16 << 10, deferred_bytes_max: 8 << 10, ..small() }
}

/// Options with forced compression.
fn forced() -> BTreeMap<i64, Compression> {
    let is_forced = |pools: &BTreeMap<i64, Compression>| {
        pools.values().all(|how| how.mode == CompressionMode::Force && how.bytes_min == 8192)
    };
    (0..).map(|seed| compression(&mut Dice::new(seed))).find(is_forced).expect("one of a few")
}

#[test]
fn short_sequences_survive_every_power_cut() {
    short_sequences("short sequences", options(), 0, false);
}

#[test]
fn short_compressed_sequences_survive_every_power_cut() {
    short_sequences("short sequences, compressed", Options { compression: forced(), ..options() }, 1, false);
}

#[test]
fn short_encrypted_sequences_survive_every_power_cut() {
    short_sequences("short sequences, encrypted", options(), 2, true);
}

/// The main disk and the db disk lose power together, and keep or lose unflushed writes each for itself.
#[test]
fn short_sequences_on_two_disks_survive_every_power_cut() {
    let further = [(DeviceRole::Db, 4 << 20)];
    let disks = formatted_on(8 << 20, &further, 256 << 10, Pace::AtOnce, 1, false);
    sequences_of("short sequences, two disks", &begun_on(disks, &options()), options(), 1);
}

fn short_sequences(what: &str, options: Options, turn: usize, is_encrypted: bool) {
    sequences_of(what, &begun(&options, is_encrypted), options, turn);
}

fn sequences_of<D: Disks>(what: &str, begun: &Rig<D>, options: Options, turn: usize) {
    let mut examiner = Examiner::new(options, 1);
    let count = OPERATIONS.len();
    let sampled = |n: usize| is_full() || n % 206 == 68 * turn;
    for first in 0..count {
        examiner.sequence(begun, &[first], true);
        for second in 0..count {
            let n = first * count + second;
            if is_full() || n % 8 == 3 * turn {
                examiner.sequence(begun, &[first, second], n.is_multiple_of(2));
            }
            for third in (0..count).filter(|third| sampled(n * count + third)) {
                let settles = (n + third).is_multiple_of(2);
                examiner.sequence(begun, &[first, second, third], settles);
                if is_full() {
                    examiner.sequence(begun, &[first, second, third], !settles);
                }
            }
        }
    }
    examiner.report(what);
}

#[test]
fn random_sequences_survive_power_cuts() {
    random_sequences(0..if is_full() { 5_000 } else { 60 });
}

pub(super) fn random_sequences(seeds: std::ops::Range<u64>) {
    // All data straight to its blocks; or as it comes, and encrypted.
    for (seed, inline_bytes_max) in [(2, 0), (3, options().inline_bytes_max)] {
        let options = Options { inline_bytes_max, compression: forced(), ..options() };
        let begun = begun(&options, seed == 3);
        let mut examiner = Examiner::new(options, seed);
        for seed in seeds.clone() {
            examiner.random(&begun, seed);
        }
        examiner.report("random sequences");
    }
    let options = Options { inline_bytes_max: 0, ..options() };
    let further = [(DeviceRole::Db, 2 << 20), (DeviceRole::Wal, 1 << 20)];
    let begun = begun_on(formatted_on(8 << 20, &further, 256 << 10, Pace::AtOnce, 4, false), &options);
    let mut examiner = Examiner::new(options, 4);
    for seed in seeds {
        examiner.random(&begun, seed);
    }
    examiner.report("random sequences, three disks");
}

impl Examiner {
    fn report(&self, what: &str) {
        let Counts { sequences, boundaries, images } = self.counts;
        println!("{what}: {sequences}, {boundaries} boundaries, {images} disks opened");
        assert!(images > sequences, "cuts were tried");
    }
}
