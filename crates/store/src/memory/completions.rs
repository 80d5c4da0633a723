//! Completions of the memory store: at once, or after a random delay.

use crate::{Collection, Completion, ReadRequest, Transaction};
use std::collections::{BTreeSet, VecDeque};

/// Random delay of completions, to test a caller's assumptions about order. It is counted in calls of `poll`: a store has
/// no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    pub seed: u64,
    /// Chance in 256 that a completion waits for one more poll; at most 255.
    pub hold: u8,
}

/// A transaction that was applied and has not completed.
pub(super) struct PendingCommit {
    tag: u64,
    /// The collection, and the collections that its splits and merges also change.
    collections: Vec<Collection>,
    /// Kept if the committed state is tracked.
    pub(super) transaction: Option<Transaction>,
}

impl PendingCommit {
    pub(super) fn new(tag: u64, transaction: &Transaction, keep: bool) -> PendingCommit {
        let others = transaction.changes.iter().filter_map(|c| c.other_collection());
        PendingCommit {
            tag,
            collections: std::iter::once(transaction.collection).chain(others).collect(),
            transaction: keep.then(|| transaction.clone()),
        }
    }
}

pub(super) struct PendingRead {
    pub(super) tag: u64,
    pub(super) request: ReadRequest,
}

/// Transactions and reads in flight, in order of submission.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) commits: VecDeque<PendingCommit>,
    pub(super) reads: Vec<PendingRead>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.reads.is_empty()
    }

    /// Releases commits, except those that `hold` delays and those behind a delayed one of the same collection.
    pub(super) fn release_commits(
        &mut self,
        mut hold: impl FnMut() -> bool,
        mut release: impl FnMut(PendingCommit),
    ) {
        let mut blocked: BTreeSet<Collection> = BTreeSet::new();
        for _ in 0..self.commits.len() {
            let Some(commit) = self.commits.pop_front() else { return };
            if commit.collections.iter().any(|c| blocked.contains(c)) || hold() {
                blocked.extend(&commit.collections);
                self.commits.push_back(commit);
            } else {
                release(commit);
            }
        }
    }

    pub(super) fn release_reads(&mut self, mut hold: impl FnMut() -> bool) -> Vec<PendingRead> {
        let (kept, released) = std::mem::take(&mut self.reads).into_iter().partition(|_| hold());
        self.reads = kept;
        released
    }
}

impl PendingCommit {
    pub(super) fn completion(&self) -> Completion {
        Completion::Committed { tag: self.tag }
    }
}

/// SplitMix64: good enough for scheduling, and the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.roll() % end }
    }
}
