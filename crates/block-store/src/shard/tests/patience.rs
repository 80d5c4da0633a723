//! A device that fails reads for seconds, in virtual time: the operations that need it wait, others go on, and nothing is
//! lost unless it lasts.

use super::operations::{home, object};
use super::{formatted, open, settle, small};
use crate::shard::{Failure, Shard};
use device::simulated::{Pace, Simulated};
use std::time::Duration;
use store::{Answer, Change, Completion, ObjectStore, Query, ReadError, ReadRequest, Transaction};

const SIZE: u64 = 64 << 20;
const OBJECTS: u32 = 40;
const LEN: usize = 20_000;
const TICK: Duration = Duration::from_millis(50);

/// A shard after a start, with nothing in its caches.
struct Rig {
    disk: Simulated,
    shard: Shard,
    now: Duration,
    done: Vec<Completion>,
}

fn one(change: Change) -> Transaction {
    Transaction { collection: home(), changes: vec![change] }
}

fn write(n: u32) -> Change {
    let data = vec![n as u8 + 1; LEN].into();
    Change::Write { object: object(&format!("o{n}"), n), offset: 0, data }
}

impl Rig {
    fn new() -> Rig {
        let disk = formatted(SIZE, 1 << 20, Pace::AtOnce, 1);
        let mut shard = open(&disk, small());
        shard.submit(1, one(Change::CreateCollection { split_bits: 0 }));
        (0..OBJECTS).for_each(|n| shard.submit(1, one(write(n))));
        settle(&mut shard);
        shard.stop();
        settle(&mut shard);
        drop(shard);
        let shard = open(&disk, small());
        let mut rig = Rig { disk, shard, now: Duration::ZERO, done: Vec::new() };
        rig.pass(Duration::from_secs(1));
        rig
    }

    /// Time passes, and the shard is polled as by a host.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            self.shard.set_now(self.now);
            for _ in 0..100 {
                self.shard.poll(&mut self.done);
            }
        }
    }

    fn read(&mut self, tag: u64, n: u32) {
        let query = Query::Data { offset: 0, len: LEN as u64 };
        let object = object(&format!("o{n}"), n);
        self.shard.read(tag, ReadRequest { collection: home(), object, queries: vec![query] });
    }

    fn answer(&self, tag: u64) -> Option<&Completion> {
        self.done.iter().find(|completion| completion.tag() == tag)
    }

    fn is_whole(&self, tag: u64, n: u32) -> bool {
        let Some(Completion::Read { answers: Ok(answers), .. }) = self.answer(tag) else { return false };
        matches!(&answers[0], Answer::Data(data) if data.to_bytes() == vec![n as u8 + 1; LEN])
    }

    fn fail_all_reads(&self) {
        self.disk.fail_reads(0..SIZE);
    }
}

#[test]
fn outage_of_nine_seconds_loses_nothing() {
    let mut rig = Rig::new();
    rig.fail_all_reads();
    (0..OBJECTS).for_each(|n| rig.read(100 + u64::from(n), n));
    // It needs the object's record and a block of its data.
    let object_7 = object("o7", 7);
    rig.shard.submit(200, one(Change::Write { object: object_7, offset: 100, data: vec![9; 10].into() }));
    rig.pass(Duration::from_secs(9));
    assert!(rig.done.is_empty(), "{:?}", rig.done);
    assert!(rig.shard.figures().reads_waiting > 0 && rig.shard.next_deadline().is_some());
    assert_eq!(rig.shard.device_work().reads.waiting, 0, "the device answers");

    rig.disk.heal();
    rig.pass(Duration::from_secs(4));
    assert!((0..OBJECTS).all(|n| rig.is_whole(100 + u64::from(n), n)));
    assert_eq!(rig.answer(200), Some(&Completion::Committed { tag: 200 }));
    assert_eq!((rig.shard.take_damage(), rig.shard.failure()), (vec![], None));
    let figures = rig.shard.figures();
    assert!(figures.reads_recovered > 0 && figures.reads_repeated > figures.reads_recovered);
    assert_eq!((figures.reads_lost, figures.reads_waiting), (0, 0));
}

#[test]
fn other_operations_go_on_beside_a_failing_block() {
    let mut rig = Rig::new();
    rig.read(1, 3);
    rig.pass(TICK);
    let bad = rig.shard.stored_runs().next().expect("data is stored");
    rig.disk.fail_reads(bad.offset()..bad.offset() + 4096);
    (0..OBJECTS).for_each(|n| rig.read(100 + u64::from(n), n));
    rig.shard.submit(200, one(write(OBJECTS + 1)));
    rig.pass(Duration::from_secs(2));
    let waiting: Vec<u32> = (0..OBJECTS).filter(|n| rig.answer(100 + u64::from(*n)).is_none()).collect();
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    assert_eq!(rig.answer(200), Some(&Completion::Committed { tag: 200 }));

    // After ten seconds it is lost, and the next read of it does not wait again.
    rig.pass(Duration::from_secs(9));
    let lost = waiting[0];
    let is_lost = |completion: Option<&Completion>| {
        matches!(completion, Some(Completion::Read { answers: Err(ReadError::Io), .. }))
    };
    assert!(is_lost(rig.answer(100 + u64::from(lost))), "{:?}", rig.answer(100 + u64::from(lost)));
    assert_eq!(rig.shard.take_damage().len(), 1);
    rig.read(300, lost);
    rig.pass(TICK);
    assert!(is_lost(rig.answer(300)));
    assert_eq!((rig.shard.figures().reads_lost, rig.shard.failure()), (1, None));

    // It is there again, after all.
    rig.disk.heal();
    rig.read(400, lost);
    rig.pass(TICK);
    assert!(rig.is_whole(400, lost));
}

#[test]
fn lasting_outage_fails_the_shard_and_records_no_loss() {
    let mut rig = Rig::new();
    // Roots and guides of the index are in memory, so that many blocks are asked for.
    (0..OBJECTS).for_each(|n| rig.read(u64::from(n), n));
    rig.pass(TICK);
    rig.done.clear();
    rig.fail_all_reads();
    (0..OBJECTS).for_each(|n| rig.read(100 + u64::from(n), n));
    rig.pass(Duration::from_secs(11));
    assert_eq!(rig.shard.failure(), Some(Failure::Unreadable));
    assert!(rig.shard.figures().reads_lost > 0);
    assert_eq!(rig.shard.next_deadline(), None);
    rig.shard.submit(300, one(write(1)));
    rig.pass(TICK);
    assert_eq!(rig.answer(300), Some(&Completion::Failed { tag: 300 }));

    // The device comes back, and with it everything.
    rig.disk.heal();
    let shard = open(&rig.disk, small());
    let mut rig = Rig { shard, done: Vec::new(), ..rig };
    (0..OBJECTS).for_each(|n| rig.read(100 + u64::from(n), n));
    rig.pass(TICK);
    assert!((0..OBJECTS).all(|n| rig.is_whole(100 + u64::from(n), n)));
    assert_eq!(rig.shard.take_damage(), []);
}
