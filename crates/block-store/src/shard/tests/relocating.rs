//! Log and index move to a db device and back, with a power cut at every step: the store opens at its old or at its new places,
//! and holds what it held.

use super::disks::{Disks, Several};
use super::dump::Dump;
use super::operations::{bytes, home, object};
use super::{attached, formatted_with, settle, small, try_open};
use crate::Pool;
use crate::check::Depth;
use crate::format::{DeviceRole, FurtherDevice, Identity, Superblock};
use crate::relocate::{RelocateError, relocate, without_devices};
use crate::shard::Shard;
use device::BLOCK;
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use std::cell::RefCell;
use std::sync::Arc;
use store::{Change, ObjectStore, Transaction};

const MAIN: u64 = 24 << 20;
const DB: u64 = 4 << 20;

fn filled(is_encrypted: bool) -> Simulated {
    let disk = formatted_with(MAIN, 1 << 20, Pace::AtOnce, 6, is_encrypted);
    let mut shard = try_open(&disk, small()).unwrap();
    let mut commit = |changes| {
        shard.submit(1, Transaction { collection: home(), changes });
        settle(&mut shard);
    };
    commit(vec![Change::CreateCollection { split_bits: 0 }]);
    let mut dice = Dice::new(2);
    for n in 0..10 {
        let len = 1 + dice.below(60_000);
        let data = bytes(&mut dice, len).into();
        let entries = (0..60).map(|i| (format!("{n}-{i}").into(), bytes(&mut dice, 200).into())).collect();
        let object = object(&format!("o{n}"), n);
        commit(vec![
            Change::Write { object: object.clone(), offset: 0, data },
            Change::OmapSet { object, entries },
        ]);
    }
    disk
}

fn stop(mut shard: Shard) {
    shard.stop();
    settle(&mut shard);
    assert!(shard.is_stopped() && shard.failure().is_none());
}

/// Opens with this pool, lets tables go where they belong, and stops.
fn brought_home(disks: &Several, pool: &Arc<Pool>) {
    let mut shard = Shard::open(Box::new(disks.clone()), 0, pool, small(), &mut || ()).unwrap();
    for _ in 0..4 {
        settle(&mut shard);
        shard.force_checkpoint();
    }
    settle(&mut shard);
    stop(shard);
}

fn db() -> FurtherDevice {
    FurtherDevice { role: DeviceRole::Db, identity: Identity([9; 16]), blocks: DB / BLOCK as u64 }
}

/// A pool of a store that was opened and stopped.
fn stopped(disks: &Several) -> Arc<Pool> {
    let pool = attached(&mut disks.clone()).unwrap();
    stop(Shard::open(Box::new(disks.clone()), 0, &pool, small(), &mut || ()).unwrap());
    pool
}

fn dump(disks: &Several) -> Dump {
    let mut shard = try_open(disks, small()).unwrap();
    let dump = Dump::of(&mut shard);
    settle(&mut shard);
    let findings = shard.check(Depth::Metadata, &mut || ()).findings;
    assert!(findings.is_empty(), "{findings:?}");
    dump
}

/// The move, with an image after each request.
fn moved(pool: &Pool, to: &Superblock, disks: &Several) -> Vec<Several> {
    disks.set_pace(Pace::Steps);
    let (images, dice) = (RefCell::new(Vec::new()), RefCell::new(Dice::new(3)));
    let mut moment = 0;
    relocate(pool, to, &mut disks.clone(), &mut || {
        if moment != disks.moment() {
            moment = disks.moment();
            let (images, dice) = (&mut *images.borrow_mut(), &mut *dice.borrow_mut());
            images.push(if images.len() % 3 == 0 { disks.killed(dice) } else { disks.power_cut(dice) });
        }
    })
    .unwrap();
    disks.set_pace(Pace::AtOnce);
    images.into_inner()
}

fn round_trip(is_encrypted: bool) {
    let main = filled(is_encrypted);
    let single = Several::new(vec![(0, main.clone())]);
    let before = dump(&single);
    let disks = Several::new(vec![(0, main), (1, Simulated::new(DB, Pace::AtOnce, 8))]);

    // There.
    let pool = stopped(&disks);
    let home = pool.superblock().shards[0];
    let to = pool.superblock().with_device(db()).unwrap();
    let images = moved(&pool, &to, &disks);
    let counts = images.iter().fold([0, 0], |mut counts, image| {
        image.set_pace(Pace::AtOnce);
        assert!(dump(image) == before);
        let is_there = attached(&mut image.clone()).unwrap().superblock().devices.len();
        counts[is_there] += 1;
        counts
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert!(dump(&disks) == before);
    brought_home(&disks, &attached(&mut disks.clone()).unwrap());
    let shard = try_open(&disks, small()).unwrap();
    let [on_main, on_db] = shard.table_bytes();
    assert!(on_main == 0 && on_db > 0, "{on_main}, {on_db}");
    stop(shard);

    // And back: not before the index has left.
    let pool = stopped(&disks);
    let in_use = without_devices(&pool, &[DeviceRole::Db]);
    assert!(matches!(in_use, Err(RelocateError::InUse { bytes }) if bytes > 0), "{in_use:?}");
    let leaving = pool.leaving_db();
    brought_home(&disks, &leaving);
    assert!(dump(&disks) == before);
    let leaving = attached(&mut disks.clone()).unwrap().leaving_db();
    brought_home(&disks, &leaving);
    let to = without_devices(&leaving, &[DeviceRole::Db]).unwrap();
    assert_eq!((to.devices.len(), to.areas.len()), (0, 1));
    assert!(to.shards[0].log.end() <= home.log.end(), "in the room of the old one");
    let images = moved(&leaving, &to, &disks);
    for image in &images {
        image.set_pace(Pace::AtOnce);
        assert!(dump(image) == before);
    }
    let main = Several::new(vec![(0, disks.disk(0).clone())]);
    assert!(dump(&main) == before, "without the db device");
    assert_eq!(main.disk(0).peek(0)[8], 2, "the version of stores on one device");
}

#[test]
fn log_and_index_move_there_and_back_through_power_cuts() {
    round_trip(false);
}

#[test]
fn log_and_index_of_encrypted_store_move_there_and_back() {
    round_trip(true);
}

#[test]
fn log_moves_to_wal_device_and_to_db_device() {
    let main = filled(false);
    let before = dump(&Several::new(vec![(0, main.clone())]));
    let blank = |seed| Simulated::new(DB, Pace::AtOnce, seed);
    let disks = Several::new(vec![(0, main), (1, blank(1)), (2, blank(2))]);
    let wal = FurtherDevice { role: DeviceRole::Wal, ..db() };
    for further in [wal, db()] {
        let pool = stopped(&disks);
        let to = pool.superblock().with_device(further).unwrap();
        relocate(&pool, &to, &mut disks.clone(), &mut || ()).unwrap();
        assert!(dump(&disks) == before);
        let log = attached(&mut disks.clone()).unwrap().superblock().shards[0].log;
        assert!(log.start > DeviceRole::Wal.first_block(), "the wal device keeps it");
    }
    let pool = stopped(&disks);
    let to = without_devices(&pool, &[DeviceRole::Wal]).unwrap();
    relocate(&pool, &to, &mut disks.clone(), &mut || ()).unwrap();
    let disks = Several::new(disks.disks.into_iter().filter(|(number, _)| *number != 2).collect());
    assert!(dump(&disks) == before);
    let log = attached(&mut disks.clone()).unwrap().superblock().shards[0].log;
    assert_eq!(device::joined::device_of_block(log.start), DeviceRole::Db.number());
}

#[test]
fn store_that_was_killed_is_not_moved() {
    let main = filled(false);
    let disks = Several::new(vec![(0, main), (1, Simulated::new(DB, Pace::AtOnce, 8))]);
    let pool = attached(&mut disks.clone()).unwrap();
    drop(Shard::open(Box::new(disks.clone()), 0, &pool, small(), &mut || ()).unwrap());
    let to = pool.superblock().with_device(db()).unwrap();
    let refused = relocate(&pool, &to, &mut disks.clone(), &mut || ());
    assert!(matches!(refused, Err(RelocateError::NotStopped(0))), "{refused:?}");
    let too_small = pool.superblock().with_device(FurtherDevice { blocks: 20, ..db() });
    assert!(too_small.is_err(), "{too_small:?}");
}
