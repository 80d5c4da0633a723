//! Discards: of all freed space, of nothing else, and after other work.

use super::operations::{home, object};
use super::{formatted, open, settle, small};
use crate::check::Depth;
use crate::shard::Options;
use device::simulated::Pace;
use store::{Change, Completion, ObjectStore, Transaction};

const OBJECT_LEN: usize = 1 << 20;

fn one(change: Change) -> Transaction {
    Transaction { collection: home(), changes: vec![change] }
}

fn write(name: &str) -> Transaction {
    one(Change::Write { object: object(name, 1), offset: 0, data: vec![7; OBJECT_LEN].into() })
}

#[test]
fn freed_blocks_are_discarded_and_reused() {
    for granule in [1, 16] {
        let disk = formatted(32 << 20, 1 << 20, Pace::Shuffled { per_poll_max: 3 }, granule);
        let options =
            Options { discard_blocks: Some(granule), discard_patience: 64, first_fit: false, ..small() };
        let mut shard = open(&disk, options);
        shard.submit(0, one(Change::CreateCollection { split_bits: 0 }));
        shard.submit(1, write("kept"));
        settle(&mut shard);
        let available = shard.usage().within_reach().available;
        for round in 0..60 {
            shard.submit(2, write("a"));
            shard.submit(3, one(Change::Remove { object: object("a", 1) }));
            let out = settle(&mut shard);
            assert_eq!(out.len(), 2, "round {round}");
            assert!(out.iter().all(|done| matches!(done, Completion::Committed { .. })));
        }
        let discarded = disk.counts().discard_bytes;
        assert!(discarded >= 60 * (OBJECT_LEN as u64 - 32 * 4096), "{discarded} bytes");
        assert_eq!(shard.figures().discarded, discarded);
        assert!(shard.usage().within_reach().available + (2 << 20) > available);
        assert_eq!(shard.space.discarding_blocks(), 0);
        let report = shard.check(Depth::Deep, &mut || ());
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

#[test]
fn busy_store_discards_once_in_many_batches() {
    for (patience, expected) in [(u64::MAX - (1 << 32), false), (5, true)] {
        let disk = formatted(32 << 20, 1 << 20, Pace::Steps, 3);
        let options = Options { discard_blocks: Some(1), discard_patience: patience, ..small() };
        let mut shard = open(&disk, options);
        shard.submit(0, one(Change::CreateCollection { split_bits: 0 }));
        let (mut submitted, mut completed, mut out) = (1, 0, Vec::new());
        while submitted < 100 {
            // Never idle: there is always something submitted and not committed.
            if submitted - completed < 3 {
                shard.submit(submitted, write("a"));
                submitted += 1;
            }
            shard.poll(&mut out);
            completed += out.drain(..).count() as u64;
        }
        assert_eq!(disk.counts().discards > 0, expected, "patience {patience}");
        settle(&mut shard);
        assert!(disk.counts().discards > 0);
    }
}

#[test]
fn failed_discard_disables_discards() {
    let disk = formatted(32 << 20, 1 << 20, Pace::AtOnce, 4);
    let mut shard = open(&disk, Options { discard_blocks: Some(1), ..small() });
    shard.submit(0, one(Change::CreateCollection { split_bits: 0 }));
    disk.fail_discards();
    for _ in 0..3 {
        shard.submit(1, write("a"));
        shard.submit(2, one(Change::Remove { object: object("a", 1) }));
        assert_eq!(
            settle(&mut shard).iter().filter(|done| matches!(done, Completion::Failed { .. })).count(),
            0
        );
    }
    assert_eq!(disk.counts().discards, 1);
    assert_eq!(shard.failure(), None);
}
