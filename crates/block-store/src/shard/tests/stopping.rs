//! Clean stops: the next start has nothing to replay.

use super::operations::{home, object};
use super::{formatted, open, settle, small};
use crate::shard::Shard;
use device::simulated::Pace;
use store::{Change, Completion, ObjectStore, Transaction};

fn transaction(changes: Vec<Change>) -> Transaction {
    Transaction { collection: home(), changes }
}

fn write(number: u64, offset: u64) -> Transaction {
    let object = object(&format!("object {number}"), number as u32 * 0x1000);
    transaction(vec![Change::Write { object, offset, data: vec![number as u8; 3000].into() }])
}

/// Begins a clean stop and polls until it is complete.
fn stop(shard: &mut Shard, seed: u64, out: &mut Vec<Completion>) {
    shard.stop();
    while !shard.is_stopped() {
        let is_busy = shard.poll(out);
        assert!(is_busy || shard.is_stopped(), "seed {seed}: it rests before it has stopped");
    }
}

/// Transactions wait for blocks of the index when the stop begins: the log is idle, and grows later.
#[test]
fn clean_stop_waits_for_transactions_that_read_the_index() {
    const OBJECTS: u64 = 60;
    let mut waiting = 0;
    for seed in 0..20 {
        let disk = formatted(16 << 20, 2 << 20, Pace::Steps, seed);
        let mut shard = open(&disk, small());
        shard.submit(0, transaction(vec![Change::CreateCollection { split_bits: 0 }]));
        (0..OBJECTS).for_each(|number| shard.submit(number + 1, write(number, 0)));
        assert_eq!(settle(&mut shard).len() as u64, OBJECTS + 1);
        shard.stop();
        settle(&mut shard);
        assert!(shard.is_stopped());
        drop(shard);

        let mut shard = open(&disk, small());
        assert_eq!(shard.figures().log_used, 0);
        (0..OBJECTS).for_each(|number| shard.submit(number + 1, write(number, 2000)));
        waiting += OBJECTS - shard.figures().transactions;
        let mut out = Vec::new();
        stop(&mut shard, seed, &mut out);
        let is_committed = |completion: &&Completion| matches!(completion, Completion::Committed { .. });
        assert_eq!(out.iter().filter(is_committed).count() as u64, OBJECTS, "seed {seed}");
        drop(shard);
        assert_eq!(open(&disk, small()).figures().log_used, 0, "seed {seed}");
    }
    assert!(waiting > 0, "no transaction waits for a block of the index");
}

/// The space of a removed object comes back by cleaning, and a transaction waits for it when the stop begins.
#[test]
fn clean_stop_cleans_for_transactions_that_wait_for_space() {
    let mut waited = 0;
    for seed in 0..10 {
        let disk = formatted(8 << 20, 1 << 20, Pace::Steps, seed);
        let mut shard = open(&disk, small());
        shard.submit(0, transaction(vec![Change::CreateCollection { split_bits: 0 }]));
        settle(&mut shard);
        let large = object("large", 1);
        let (mut number, mut at) = (1, 0);
        while shard.usage().within_reach().available > 512 << 10 {
            let data = vec![seed as u8; 64 << 10].into();
            let write = Change::Write { object: large.clone(), offset: at, data };
            shard.submit(number, transaction(vec![write]));
            settle(&mut shard);
            (number, at) = (number + 1, at + (64 << 10));
        }
        shard.submit(number, transaction(vec![Change::Remove { object: large }]));
        let data = vec![9; 2 << 20].into();
        let write = Change::Write { object: object("next", 2), offset: 0, data };
        shard.submit(number + 1, transaction(vec![write]));
        let mut out = Vec::new();
        for _ in 0..seed * 2 {
            shard.poll(&mut out);
        }
        waited += u64::from(!out.contains(&Completion::Committed { tag: number + 1 }));
        stop(&mut shard, seed, &mut out);
        assert!(shard.failure().is_none(), "seed {seed}: {:?}", shard.failure());
        assert!(out.contains(&Completion::Committed { tag: number + 1 }), "seed {seed}");
        drop(shard);
        assert_eq!(open(&disk, small()).figures().log_used, 0, "seed {seed}");
    }
    assert!(waited > 0, "no transaction waited");
}
