//! A store with a db device, or with a wal device: places of tables, spilling, and devices that are missing or exchanged.

use super::disks::{Disks, Several, formatted_on};
use super::dump::Dump;
use super::operations::{bytes, home, object};
use super::rig::Rig;
use super::{attached, secret, settle, small, try_open};
use crate::attach::FurtherError;
use crate::check::Depth;
use crate::format::{DeviceRole, SuperblockError};
use crate::shard::{OpenError, Options, Shard};
use crate::{attach_with_key, read_superblock};
use device::BLOCK;
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use store::{Change, ObjectStore, Transaction};

const MAIN: u64 = 24 << 20;
const LOG: u64 = 512 << 10;

fn with_db(db_bytes: u64) -> Several {
    formatted_on(MAIN, &[(DeviceRole::Db, db_bytes)], LOG, Pace::AtOnce, 3, false)
}

fn commit(rig: &mut Rig<Several>, changes: Vec<Change>) {
    let transaction = Transaction { collection: home(), changes };
    rig.front_apply(transaction.clone());
    rig.submit(transaction);
    rig.settle();
}

/// Adds omap keys with values of so many bytes each, which fill the index.
fn add_keys(rig: &mut Rig<Several>, count: u64, seed: u64) {
    let mut dice = Dice::new(seed);
    for n in 0..count.div_ceil(50) {
        let entries = (0..50).map(|i| (format!("{seed}-{n}-{i}").into(), bytes(&mut dice, 300).into()));
        commit(rig, vec![Change::OmapSet { object: object("keys", 5), entries: entries.collect() }]);
    }
}

fn begun(disks: Several, options: Options) -> Rig<Several> {
    let mut rig = Rig::on(disks, options);
    commit(&mut rig, vec![Change::CreateCollection { split_bits: 0 }]);
    rig
}

fn checkpoint(rig: &mut Rig<Several>) {
    rig.shard.force_checkpoint();
    rig.settle();
}

/// Bytes of tables on the main device and on the db device.
fn tables(shard: &Shard) -> [u64; 2] {
    shard.space.index_bytes()
}

#[test]
fn log_and_index_are_on_db_device_and_data_on_main_device() {
    let mut rig = begun(with_db(16 << 20), small());
    let superblock = read_superblock(&mut rig.disk.disk(0).clone(), &mut || ()).unwrap();
    let place = superblock.shards[0];
    let first = DeviceRole::Db.first_block();
    assert!(place.headers.iter().chain([&place.log.start]).all(|block| *block > first), "{place:?}");
    let before = rig.disk.disk(0).counts();
    add_keys(&mut rig, 2000, 1);
    checkpoint(&mut rig);
    let [on_main, on_db] = tables(&rig.shard);
    assert!(on_main == 0 && on_db > 300_000, "{on_main}, {on_db}");
    assert_eq!(rig.disk.disk(0).counts().writes, before.writes, "keys are no matter of the main device");
    let written = rig.disk.disk(1).counts().write_bytes;
    let data = bytes(&mut Dice::new(1), 1 << 20).into();
    commit(&mut rig, vec![Change::Write { object: object("large", 1), offset: 0, data }]);
    assert!(rig.disk.disk(0).counts().write_bytes >= before.write_bytes + (1 << 20));
    assert!(rig.disk.disk(1).counts().write_bytes < written + (64 << 10), "its record alone");
    let first = rig.shard.stored_runs().map(|run| run.start).max();
    assert!(first < Some(DeviceRole::Db.first_block()));
    rig.compare(Depth::Deep);
}

#[test]
fn full_db_device_spills_and_takes_tables_back() {
    let mut rig = begun(with_db(3 << 20), small());
    add_keys(&mut rig, 12_000, 1);
    checkpoint(&mut rig);
    let [spilled, on_db] = tables(&rig.shard);
    assert!(spilled > 1 << 20 && on_db > 1 << 20, "{spilled}, {on_db}");
    rig.compare(Depth::Deep);
    // A crash while tables are on both.
    rig.rebase();
    rig.crash_now(&mut Dice::new(4), Depth::Deep);
    assert!(tables(&rig.shard)[0] > 0);
    commit(&mut rig, vec![Change::OmapClear { object: object("keys", 5) }]);
    for n in 0..400 {
        let entries = (0..4).map(|i| (format!("{n}-{i}").into(), "value".into())).collect();
        commit(&mut rig, vec![Change::OmapSet { object: object("few", 6), entries }]);
        if n % 50 == 0 {
            checkpoint(&mut rig);
        }
    }
    for _ in 0..5 {
        checkpoint(&mut rig);
    }
    assert_eq!(tables(&rig.shard)[0], 0, "{:?}", rig.shard.figures());
    rig.compare(Depth::Deep);
}

/// Objects fill the main device while the db device has room: writes are refused, and the index goes on.
#[test]
fn full_main_device_refuses_data_and_takes_keys() {
    let mut rig = begun(with_db(16 << 20), small());
    let mut refused = 0;
    for n in 0..40 {
        let data = bytes(&mut Dice::new(n), 1 << 20).into();
        let changes = vec![Change::Write { object: object(&format!("o{n}"), n as u32), offset: 0, data }];
        rig.shard.submit(1, Transaction { collection: home(), changes });
        refused += settle(&mut rig.shard)
            .iter()
            .filter(|done| matches!(done, store::Completion::Refused { .. }))
            .count();
    }
    let usage = rig.shard.usage();
    assert!(refused > 15 && usage.available < 1 << 20, "{refused}, {usage:?}");
    assert!(usage.total > MAIN, "the db device is a part of it: {usage:?}");
    let entries = (0..50).map(|i| (format!("k{i}").into(), "value".into())).collect();
    rig.shard.submit(
        2,
        Transaction {
            collection: home(),
            changes: vec![Change::OmapSet { object: object("a", 1), entries }],
        },
    );
    assert!(settle(&mut rig.shard).contains(&store::Completion::Committed { tag: 2 }));
}

#[test]
fn wal_device_has_the_logs_alone() {
    let further = [(DeviceRole::Wal, 2 << 20)];
    let mut rig = begun(formatted_on(MAIN, &further, LOG, Pace::AtOnce, 3, false), small());
    add_keys(&mut rig, 2000, 1);
    checkpoint(&mut rig);
    let place = rig.shard.place();
    assert!(place.log.start > DeviceRole::Wal.first_block() && place.headers[1] < MAIN / BLOCK as u64);
    assert_eq!(tables(&rig.shard)[1], 0);
    rig.compare(Depth::Deep);
    rig.rebase();
    rig.crash_now(&mut Dice::new(4), Depth::Deep);
    let both = [(DeviceRole::Db, 8 << 20), (DeviceRole::Wal, 2 << 20)];
    let rig = begun(formatted_on(MAIN, &both, LOG, Pace::AtOnce, 3, true), small());
    let place = rig.shard.place();
    assert!(place.log.start > DeviceRole::Wal.first_block());
    let db = DeviceRole::Db.first_block()..DeviceRole::Wal.first_block();
    assert!(place.headers.iter().all(|block| db.contains(block)));
}

fn refusal(disks: &Several) -> (DeviceRole, FurtherError) {
    let writes = |disks: &Several| disks.disks.iter().map(|(_, disk)| disk.counts().writes).sum::<u64>();
    let before = writes(disks);
    let refused = attach_with_key(&mut disks.clone(), Some(&secret(1)), &mut || ());
    assert_eq!(writes(disks), before, "nothing is written");
    match refused {
        Err(OpenError::Further { role, why }) => (role, why),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the store opens"),
    }
}

#[test]
fn missing_and_exchanged_devices_are_refused_by_name() {
    let own = formatted_on(MAIN, &[(DeviceRole::Db, 8 << 20)], LOG, Pace::AtOnce, 3, false);
    let other = formatted_on(MAIN, &[(DeviceRole::Db, 8 << 20)], LOG, Pace::AtOnce, 4, false);
    let wal = formatted_on(MAIN, &[(DeviceRole::Wal, 8 << 20)], LOG, Pace::AtOnce, 3, false);
    let with = |db: Option<&Simulated>| {
        let disks = [Some((0, own.disk(0).clone())), db.map(|db| (1, db.clone()))];
        Several::new(disks.into_iter().flatten().collect())
    };
    assert_eq!(refusal(&with(None)), (DeviceRole::Db, FurtherError::Missing));
    let (role, why) = refusal(&with(Some(other.disk(1))));
    assert!(matches!(&why, FurtherError::Foreign { owner, .. } if owner == "test"), "{why}");
    assert_eq!(role, DeviceRole::Db);
    let (_, why) = refusal(&with(Some(wal.disk(2))));
    assert!(why.to_string().contains("the wal device of test"), "{why}");
    let blank = Simulated::new(8 << 20, Pace::AtOnce, 1);
    assert_eq!(refusal(&with(Some(&blank))).1, FurtherError::Unlabelled);
    let short = Simulated::new(4 << 20, Pace::AtOnce, 1);
    for block in 0..2 {
        short.poke(block * BLOCK as u64, |to| to.copy_from_slice(&own.disk(1).peek(block * BLOCK as u64)));
    }
    assert_eq!(refusal(&with(Some(&short))).1, FurtherError::Shrunk { stored: 8 << 20, device: 4 << 20 });
    own.disk(1).fail_reads(0..8 << 20);
    assert!(matches!(refusal(&own).1, FurtherError::Device(_)));
    own.disk(1).heal();
    try_open(&own, small()).unwrap();
}

#[test]
fn damaged_copy_of_a_label_is_written_again() {
    let own = with_db(8 << 20);
    let label = own.disk(1).peek(0);
    for copy in [0, 1, (8 << 20) / BLOCK as u64 - 1] {
        own.disk(1).poke(copy * BLOCK as u64, |block| block[60] ^= 1);
        try_open(&own, small()).unwrap();
        assert_eq!(own.disk(1).peek(copy * BLOCK as u64), label, "copy {copy}");
    }
}

/// The superblock of a store on several devices has a version of its own: the text is that of a program that reads two.
#[test]
fn store_on_several_devices_has_its_own_version() {
    let own = with_db(8 << 20);
    assert_eq!(own.disk(0).peek(0)[8], 3);
    let single = super::formatted(MAIN, LOG, Pace::AtOnce, 3);
    assert_eq!(single.peek(0)[8], 2);
    let newer = SuperblockError::Version(3);
    assert_eq!(newer.to_string(), "the store's format is version 3; this program reads versions 1 to 3");
}

#[test]
fn outcome_equals_that_of_one_device() {
    let mut several = begun(with_db(8 << 20), small());
    add_keys(&mut several, 1000, 1);
    let mut single = Rig::on(super::formatted(MAIN, LOG, Pace::AtOnce, 3), small());
    let Rig { shard, .. } = &mut single;
    let mut copy = |changes| {
        shard.submit(1, Transaction { collection: home(), changes });
        settle(shard);
    };
    copy(vec![Change::CreateCollection { split_bits: 0 }]);
    let mut dice = Dice::new(1);
    for n in 0..20 {
        let entries = (0..50).map(|i| (format!("1-{n}-{i}").into(), bytes(&mut dice, 300).into()));
        copy(vec![Change::OmapSet { object: object("keys", 5), entries: entries.collect() }]);
    }
    assert!(Dump::of(&mut several.shard) == Dump::of(&mut single.shard));
    attached(&mut several.disk.killed(&mut dice)).unwrap();
}
