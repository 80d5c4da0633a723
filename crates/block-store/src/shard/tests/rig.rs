//! A shard, its disk, and two memory stores: `base` with the state after the last crash, and `front` with all submitted
//! transactions.

use super::disks::Disks;
use super::dump::Dump;
use super::{formatted, open};
use crate::check::Depth;
use crate::shard::{Options, Shard};
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use store::memory::Config;
use store::{Completion, MemoryStore, ObjectStore, Transaction};

pub(crate) struct Rig<D = Simulated> {
    pub(crate) disk: D,
    pub(crate) shard: Shard,
    pub(crate) front: MemoryStore,
    base: MemoryStore,
    options: Options,
    /// Transactions submitted since the last crash; a tag is an index.
    submitted: Vec<Transaction>,
    acknowledged: Vec<u64>,
}

fn memory() -> MemoryStore {
    MemoryStore::new(Config { bytes_total: 1 << 40, delay: None, track_committed: true })
}

fn apply(store: &mut MemoryStore, transaction: Transaction) {
    store.submit(0, transaction);
    while store.poll(&mut Vec::new()) {}
}

impl Rig {
    pub(crate) fn new(size: u64, log_bytes: u64, pace: Pace, seed: u64, options: Options) -> Rig {
        Rig::on(formatted(size, log_bytes, pace, seed), options)
    }
}

impl<D: Disks> Rig<D> {
    /// A rig on a disk with an empty store.
    pub(crate) fn on(disk: D, options: Options) -> Rig<D> {
        let shard = open(&disk, options.clone());
        Rig::around(disk, shard, options)
    }

    /// A shard without transactions, on a disk that others may use.
    pub(crate) fn around(disk: D, shard: Shard, options: Options) -> Rig<D> {
        Rig {
            disk,
            shard,
            front: memory(),
            base: memory(),
            options,
            submitted: Vec::new(),
            acknowledged: Vec::new(),
        }
    }

    /// An independent copy, at rest.
    pub(crate) fn fork(&self, dice: &mut Dice) -> Rig<D> {
        let disk = self.disk.killed(dice);
        let fork = |store: &MemoryStore| store.crash_image(0).expect("what is committed is tracked");
        Rig {
            shard: open(&disk, self.options.clone()),
            disk,
            front: fork(&self.front),
            base: fork(&self.base),
            options: self.options.clone(),
            submitted: Vec::new(),
            acknowledged: Vec::new(),
        }
    }

    pub(crate) fn front_apply(&mut self, transaction: Transaction) {
        apply(&mut self.front, transaction);
    }

    /// Submits a transaction that `front` has applied.
    pub(crate) fn submit(&mut self, transaction: Transaction) {
        self.submitted.push(transaction.clone());
        self.shard.submit(self.submitted.len() as u64 - 1, transaction);
    }

    /// Polls once. Returns true while the shard is busy.
    pub(crate) fn poll(&mut self) -> bool {
        let mut out = Vec::new();
        let busy = self.shard.poll(&mut out);
        for completion in out {
            match completion {
                Completion::Committed { tag } => self.acknowledged.push(tag),
                other => panic!("{other:?}: {:?}", self.shard.failure()),
            }
        }
        busy
    }

    /// Polls a shard whose device fails. Returns the number of failed transactions.
    pub(crate) fn poll_failing(&mut self) -> usize {
        let mut out = Vec::new();
        self.shard.poll(&mut out);
        let mut failed = 0;
        for completion in out {
            match completion {
                Completion::Committed { tag } => self.acknowledged.push(tag),
                Completion::Failed { .. } => failed += 1,
                Completion::Read { .. } => panic!("nothing is read"),
                Completion::Refused { why, .. } => panic!("{why}"),
            }
        }
        failed
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.poll() {
                return;
            }
        }
        panic!("the shard says that something is under way and does not complete it");
    }

    /// Number of applied transactions, in the order applied, that `reopened` has; it must have no others.
    pub(crate) fn survivors(&self, reopened: &Shard) -> Vec<u64> {
        let durable = reopened.log.durable();
        let survivors: Vec<u64> =
            self.shard.trace.iter().take_while(|(_, batch)| *batch <= durable).map(|(tag, _)| *tag).collect();
        for tag in &self.acknowledged {
            assert!(survivors.contains(tag), "transaction {tag} was acknowledged and is lost");
        }
        survivors
    }

    /// Contents of a store with these transactions.
    pub(crate) fn expected(&self, survivors: &[u64]) -> MemoryStore {
        let mut out = self.base.crash_image(0).expect("what is committed is tracked");
        survivors.iter().for_each(|tag| apply(&mut out, self.submitted[*tag as usize].clone()));
        out
    }

    /// Goes on with the image of a crash.
    pub(crate) fn crash(&mut self, disk: D, depth: Depth) {
        let reopened = open(&disk, self.options.clone());
        self.go_on_with(disk, reopened, depth);
    }

    /// Goes on with a shard that was opened on the image of a crash.
    pub(crate) fn go_on_with(&mut self, disk: D, mut reopened: Shard, depth: Depth) {
        let survivors = self.survivors(&reopened);
        let mut expected = self.expected(&survivors);
        same(&mut reopened, &mut expected, depth);
        self.front = expected.crash_image(0).expect("what is committed is tracked");
        self.base = expected;
        (self.disk, self.shard) = (disk, reopened);
        self.submitted.clear();
        self.acknowledged.clear();
    }

    /// Compares the shard with all submitted transactions, which were acknowledged.
    pub(crate) fn compare(&mut self, depth: Depth) {
        self.settle();
        assert_eq!(self.acknowledged.len(), self.submitted.len(), "everything is acknowledged");
        same(&mut self.shard, &mut self.front, depth);
    }

    /// Moves acknowledged transactions into `base`.
    pub(crate) fn rebase(&mut self) {
        self.settle();
        self.base = self.front.crash_image(0).expect("what is committed is tracked");
        self.submitted.clear();
        self.acknowledged.clear();
        self.shard.trace.clear();
    }

    /// Crashes now: a power cut, or a kill of the process.
    pub(crate) fn crash_now(&mut self, dice: &mut Dice, depth: Depth) {
        let disk = if dice.chance(70) { self.disk.power_cut(dice) } else { self.disk.killed(dice) };
        self.crash(disk, depth);
    }
}

/// Compares the shard with the memory store, and runs fsck.
pub(crate) fn same(shard: &mut Shard, expected: &mut MemoryStore, depth: Depth) {
    let (found, expected_dump) = (Dump::of(shard), Dump::of(expected));
    if found != expected_dump {
        panic!("found, and expected: {:#?}", found.differences(&expected_dump));
    }
    assert_eq!(shard.usage().omap, expected_dump.omap_bytes(), "bytes of omaps");
    let mut out = Vec::new();
    for _ in 0..1_000_000 {
        if !shard.poll(&mut out) {
            break;
        }
    }
    let report = shard.check(depth, &mut || ());
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}
