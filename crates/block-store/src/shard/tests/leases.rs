//! Shards that share a pool: zones move between them, with crashes at random moments and at every boundary of a write or
//! flush. In every image the shards' leases are disjoint, and each shard holds a prefix of its transactions with all that
//! were acknowledged.

use super::dump::Dump;
use super::handles::{formatted_for, handles, open_all, try_open_all};
use super::operations::{bytes, home, object};
use super::rig::Rig;
use super::{settle, small};
use crate::blocking::Blocking;
use crate::check::Depth;
use crate::format::{Header, Identity, ShardPlace, Superblock};
use crate::shard::{OpenError, Options, Shard};
use crate::space::Run;
use crate::{Pool, attach};
use device::BLOCK;
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{Change, Completion, ObjectStore, Transaction};

const OBJECTS: u64 = 30;
/// Space within reach of a shard that data writes need.
const ROOM: u64 = 2 << 20;
/// Steps after which the shard that grows shrinks, and the other way round.
const PHASE: u64 = 40;

/// Two shards of one disk.
struct Pair {
    disk: Simulated,
    sides: Vec<Rig>,
    options: Options,
    /// Owners of zones, and the number of times that a zone has come to another shard.
    owners: BTreeMap<u32, usize>,
    moved: u64,
}

fn one(change: Change) -> Transaction {
    Transaction { collection: home(), changes: vec![change] }
}

impl Pair {
    fn new(disk: Simulated, options: Options) -> Pair {
        let shards = open_all(&disk, &options);
        let sides =
            shards.into_iter().map(|shard| Rig::around(disk.clone(), shard, options.clone())).collect();
        let mut pair = Pair { disk, sides, options, owners: BTreeMap::new(), moved: 0 };
        for side in &mut pair.sides {
            let create = one(Change::CreateCollection { split_bits: 0 });
            side.front_apply(create.clone());
            side.submit(create);
        }
        pair.settle();
        pair
    }

    /// Submits a transaction to each shard: one writes objects, the other one empties some.
    fn step(&mut self, step: u64, dice: &mut Dice) {
        for (number, side) in self.sides.iter_mut().enumerate() {
            let grows = (step / PHASE + number as u64).is_multiple_of(2);
            // All objects in turn are emptied, so that zones become empty.
            let n = if grows { dice.below(OBJECTS) } else { step % OBJECTS };
            let id = object(&format!("o{n}"), n as u32 % 5);
            let has_room = side.shard.usage().within_reach().available > ROOM;
            let change = match grows && has_room {
                true => {
                    let len = 1 + dice.below(60_000);
                    Change::Write { object: id, offset: dice.below(30_000), data: bytes(dice, len).into() }
                }
                false => Change::Truncate { object: id, size: 0 },
            };
            let transaction = one(change);
            side.front_apply(transaction.clone());
            side.submit(transaction);
            if dice.below(60) == 0 {
                side.shard.force_checkpoint();
            }
        }
        self.count_moves();
    }

    fn count_moves(&mut self) {
        for (number, side) in self.sides.iter().enumerate() {
            for zone in side.shard.space.leases() {
                let before = self.owners.insert(zone, number);
                self.moved += before.is_some_and(|before| before != number) as u64;
            }
        }
    }

    fn poll(&mut self) -> bool {
        self.sides.iter_mut().fold(false, |busy, side| side.poll() | busy)
    }

    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.poll() {
                return;
            }
        }
        panic!("the shards stay busy");
    }

    /// Goes on with the image of a crash.
    fn crash(&mut self, disk: Simulated, depth: Depth) {
        let (shards, _) = try_open_all(&disk, &self.options).expect("the leases are disjoint");
        for (side, shard) in self.sides.iter_mut().zip(shards) {
            side.go_on_with(disk.clone(), shard, depth);
        }
        self.disk = disk;
    }

    /// Opens an image of a power cut beside the pair.
    fn examine(&self, image: Simulated) {
        image.set_pace(Pace::AtOnce);
        let (mut shards, _) = try_open_all(&image, &self.options).expect("the leases are disjoint");
        for (side, shard) in self.sides.iter().zip(&mut shards) {
            let survivors = side.survivors(shard);
            let (found, expected) = (Dump::of(shard), Dump::of(&mut side.expected(&survivors)));
            assert!(found == expected, "{:#?}", found.differences(&expected));
            settle(shard);
            let report = shard.check(Depth::Deep, &mut || ());
            assert!(report.findings.is_empty(), "{:#?}", report.findings);
        }
    }
}

fn options(dice: &mut Dice) -> Options {
    Options {
        inline_bytes_max: [0, 16 << 10, 64 << 10][dice.below(3) as usize],
        deferred_bytes_max: [0, 256 << 10][dice.below(2) as usize],
        discard_blocks: [None, Some(16)][dice.below(2) as usize],
        first_fit: dice.chance(50),
        ..small()
    }
}

/// Returns the number of zones that went from one shard to the other.
fn run(disk: Simulated, seed: u64, steps: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let mut pair = Pair::new(disk, options(&mut dice));
    let pace =
        |dice: &mut Dice| if dice.chance(50) { Pace::Steps } else { Pace::Shuffled { per_poll_max: 3 } };
    pair.disk.set_pace(pace(&mut dice));
    for step in 0..steps {
        pair.step(step, &mut dice);
        for _ in 0..dice.below(8) {
            pair.poll();
        }
        if dice.below(50) == 0 {
            let image =
                if dice.chance(70) { pair.disk.power_cut(&mut dice) } else { pair.disk.killed(&mut dice) };
            image.set_pace(Pace::AtOnce);
            pair.crash(image, if dice.chance(50) { Depth::Deep } else { Depth::Metadata });
            pair.disk.set_pace(pace(&mut dice));
        }
    }
    pair.settle();
    pair.sides.iter_mut().for_each(|side| side.compare(Depth::Deep));
    pair.moved
}

pub(super) fn random_runs(seeds: std::ops::Range<u64>) -> u64 {
    seeds.map(|seed| run(formatted_for(2, 16 << 20, 256 << 10, seed), seed, 400)).sum()
}

#[test]
fn zones_move_between_shards_through_crashes() {
    let moved = random_runs(1..7);
    assert!(moved > 40, "{moved} zones moved");
}

#[test]
fn zone_has_one_owner_after_every_power_cut() {
    boundaries(1..3);
}

pub(super) fn boundaries(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let mut pair = Pair::new(formatted_for(2, 16 << 20, 256 << 10, seed), options(&mut dice));
        // Both shards hold much of the disk before.
        for step in 0..2 * PHASE {
            pair.step(step, &mut dice);
            pair.settle();
        }
        pair.sides.iter_mut().for_each(Rig::rebase);
        let moved = pair.moved;
        pair.disk.set_pace(Pace::Steps);
        let mut seen = None;
        for step in 0..3 * PHASE {
            pair.step(step, &mut dice);
            for _ in 0..4 {
                pair.poll();
                if seen != Some(pair.disk.moment()) && dice.below(3) == 0 {
                    seen = Some(pair.disk.moment());
                    pair.examine(pair.disk.power_cut(&mut dice));
                }
            }
        }
        assert!(pair.moved > moved, "no zone moved");
    }
}

/// The disk of a store of version 1 with two empty shards, whose zones have 64 MiB.
fn disk_of_version_1(seed: u64) -> Simulated {
    let disk = Simulated::new(1 << 30, Pace::AtOnce, seed);
    let device_blocks = (1u64 << 30) / BLOCK as u64;
    let (half, log_blocks) = (device_blocks / 2 - 1, 64);
    let starts = [2, 2 + half];
    let place = |start: u64| ShardPlace { headers: [start, start + 1], log: Run::new(start + 2, log_blocks) };
    let area = |start: u64| Run::new(start + 2 + log_blocks, half - 2 - log_blocks);
    let superblock = Superblock {
        version: 1,
        identity: Identity([seed as u8; 16]),
        label: "test".into(),
        device_blocks,
        zone_blocks: 1 << 14,
        shards: starts.map(place).to_vec(),
        areas: starts.map(area).to_vec(),
        encryption: None,
        devices: Vec::new(),
    };
    let mut device = disk.clone();
    let mut blocking = Blocking { device: &mut device, wait: &mut || () };
    for (number, place) in superblock.shards.iter().enumerate() {
        let first = Header::first(superblock.identity.of_shard(number));
        let header = Header { has_leases: false, incarnation: 0, ..first };
        blocking.write(place.header_slot(header.slot()).offset(), header.encode()).unwrap();
    }
    for copy in [0, 1] {
        blocking.write(copy * BLOCK as u64, superblock.encode_version_1()).unwrap();
    }
    blocking.flush().unwrap();
    disk
}

#[test]
fn store_of_version_1_leases_zones_after_migration() {
    for seed in 1..4 {
        let disk = disk_of_version_1(seed);
        run(disk.clone(), seed, 200);
        let disk = disk_of_version_1(seed);
        let mut pair = Pair::new(disk, small());
        pair.sides.iter_mut().for_each(|side| side.shard.force_checkpoint());
        pair.settle();
        // Each shard had the eight zones of its area; what it does not need is in the pool.
        let leases: Vec<Vec<u32>> =
            pair.sides.iter().map(|side| side.shard.space.leases().collect()).collect();
        assert!(leases.iter().all(|zones| (2..=4).contains(&zones.len())), "{leases:?}");
        assert!(leases[0].iter().all(|zone| *zone < 8) && leases[1].iter().all(|zone| *zone >= 8));
        let image = pair.disk.power_cut(&mut Dice::new(seed));
        pair.crash(image, Depth::Deep);
        let again: Vec<Vec<u32>> =
            pair.sides.iter().map(|side| side.shard.space.leases().collect()).collect();
        assert_eq!(again, leases);
    }
}

#[test]
fn zone_is_free_when_its_give_back_is_durable() {
    give_back_is_durable();
}

pub(super) fn give_back_is_durable() {
    let disk = formatted_for(2, 16 << 20, 256 << 10, 1);
    let (mut shards, pool) = try_open_all(&disk, &small()).unwrap();
    let shard = &mut shards[0];
    shard.submit(0, one(Change::CreateCollection { split_bits: 0 }));
    let write = |n: u32| Change::Write { object: object("o", n), offset: 0, data: vec![7; 90_000].into() };
    (0..30).for_each(|n| shard.submit(0, one(write(n))));
    settle(shard);
    (0..30).for_each(|n| shard.submit(0, one(Change::Remove { object: object("o", n) })));
    disk.set_pace(Pace::Steps);
    // Zones that the shard has no more, with the batch that was open before.
    let mut left: Vec<(u32, u64)> = Vec::new();
    for _ in 0..100_000 {
        let (before, batch) = (shard.space.leases().collect::<Vec<_>>(), shard.log.gathering());
        let busy = shard.poll(&mut Vec::new());
        let gone = before.into_iter().filter(|zone| !shard.space.leases().any(|now| now == *zone));
        left.extend(gone.map(|zone| (zone, batch)));
        for (zone, batch) in &left {
            let is_durable = shard.log.durable() >= *batch;
            assert!(
                is_durable || !pool.is_free(*zone),
                "zone {zone} is free before batch {batch} is durable"
            );
        }
        if !busy {
            break;
        }
    }
    assert!(left.len() > 3 && left.iter().all(|(zone, _)| pool.is_free(*zone)), "{left:?}");
}

#[test]
fn zone_leased_twice_is_refused_by_name() {
    let disk = formatted_for(2, 16 << 20, 256 << 10, 1);
    let pool = attach(&mut disk.clone(), &mut || ()).unwrap();
    // Shard 1 is told that it is shard 0's successor in the same zones.
    pool.report(0, pool.superblock().first_leases(1).into_iter()).unwrap();
    let handle = handles(&disk, 2).pop().unwrap();
    let refused = Shard::open(Box::new(handle), 1, &pool, small(), &mut || ()).err();
    assert!(
        matches!(refused, Some(OpenError::Leases(conflict)) if (conflict.shard, conflict.other) == (1, 0))
    );
}

#[test]
fn inspection_changes_no_lease() {
    let disk = formatted_for(2, 16 << 20, 256 << 10, 1);
    let superblock = crate::read_superblock(&mut disk.clone(), &mut || ()).unwrap();
    let pool = Pool::new(superblock).for_inspection();
    let writes = disk.counts().writes;
    for (number, handle) in handles(&disk, 2).into_iter().enumerate() {
        let mut shard = Shard::open(Box::new(handle), number, &pool, small(), &mut || ()).unwrap();
        settle(&mut shard);
        assert!(shard.check(Depth::Deep, &mut || ()).findings.is_empty());
    }
    assert_eq!(disk.counts().writes, writes);
}

/// One shard of sixteen gets all data: the reserves and logs of the others are all that it cannot use.
#[test]
fn one_shard_of_sixteen_fills_the_device() {
    const SIZE: u64 = 512 << 20;
    const OBJECT: u64 = 1 << 20;
    let disk = formatted_for(16, SIZE, 256 << 10, 1);
    let options = Options { discard_blocks: None, first_fit: false, ..small() };
    let mut shards = open_all(&disk, &options);
    let commit = |shards: &mut Vec<Shard>, shard: usize, change: Change| {
        shards[shard].submit(1, one(change));
        let mut out = Vec::new();
        while !out.contains(&Completion::Committed { tag: 1 }) {
            assert!(!out.contains(&Completion::Failed { tag: 1 }), "{:?}", shards[shard].failure());
            for shard in shards.iter_mut() {
                shard.poll(&mut out);
            }
        }
    };
    let data = ::bytes::Bytes::from(vec![5; OBJECT as usize]);
    let mut counts = Vec::new();
    for shard in [3, 11] {
        commit(&mut shards, shard, Change::CreateCollection { split_bits: 0 });
        let mut count = 0;
        while shards[shard].usage().within_reach().available > 2 * OBJECT {
            let write = Change::Write {
                object: object(&format!("o{count}"), 1),
                offset: 0,
                data: data.clone().into(),
            };
            commit(&mut shards, shard, write);
            count += 1;
        }
        counts.push(count);
        for number in 0..count {
            commit(&mut shards, shard, Change::Remove { object: object(&format!("o{number}"), 1) });
        }
        shards.iter_mut().for_each(|shard| drop(settle(shard)));
    }
    assert!(counts.iter().all(|count| count * OBJECT > SIZE / 10 * 9), "{counts:?} objects of 1 MiB");
}

/// The other shard has no work of its own: only the pool wakes it.
#[test]
fn idle_shard_spares_its_zones_for_a_full_one() {
    const OBJECT: u64 = 256 << 10;
    let disk = formatted_for(2, 16 << 20, 256 << 10, 1);
    let (mut shards, pool) = try_open_all(&disk, &Options { discard_blocks: None, ..small() }).unwrap();
    let woken = Arc::new(AtomicBool::new(false));
    let waker = Arc::clone(&woken);
    pool.set_waker(1, Box::new(move || waker.store(true, Ordering::Relaxed)));
    shards.iter_mut().for_each(|shard| drop(settle(shard)));
    let spare = shards[1].space.zones_to_spare();
    assert!(spare > 0, "it leases ahead");
    let before = shards[1].space.leases().count();
    let commit = |shards: &mut Vec<Shard>, change: Change| {
        shards[0].submit(1, one(change));
        let mut out = Vec::new();
        while out.is_empty() {
            shards[0].poll(&mut out);
            if woken.swap(false, Ordering::Relaxed) {
                settle(&mut shards[1]);
            }
        }
        out.pop().expect("just seen")
    };
    commit(&mut shards, Change::CreateCollection { split_bits: 0 });
    let data = ::bytes::Bytes::from(vec![5; OBJECT as usize]);
    for count in 0.. {
        let id = object(&format!("o{count}"), 1);
        let write = Change::Write { object: id, offset: 0, data: data.clone().into() };
        let completion = commit(&mut shards, write);
        if completion != (Completion::Committed { tag: 1 }) {
            let refused = Completion::Refused { tag: 1, why: store::Refusal::NoSpace };
            assert_eq!(completion, refused, "{:?}", shards[0].failure());
            break;
        }
    }
    assert_eq!(pool.free_blocks(), 0);
    assert_eq!(shards[1].space.leases().count(), before - spare as usize, "it keeps no spare zone");
}
