//! The memory store: an [`ObjectStore`] in the memory of this process. It is saved at a clean stop and loaded at the next
//! start ([`MemoryStore::save`], [`MemoryStore::load`]).
//!
//! A transaction is applied when it is submitted, so that reads see it, and completed by the next `poll`; there is no
//! device. For the simulator and tests a seeded [`Delay`] delays completions, and [`MemoryStore::crash_image`] returns
//! the store that a crash would have left.

mod completions;
mod directory;
mod extent_map;
mod extents;
mod image;
mod log;
mod object;
mod omap;
mod read;
mod state;
#[cfg(test)]
mod tests;

pub use completions::Delay;
pub(crate) use completions::Dice;
pub use image::ImageError;

use crate::{Change, Collection, Completion, ObjectStore, Placed, ReadRequest, Refusal, Transaction, Usage};
use completions::{Pending, PendingCommit, PendingRead};
use state::State;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Capacity. A transaction beyond it is refused.
    pub bytes_total: u64,
    /// `None`: the next `poll` completes everything.
    pub delay: Option<Delay>,
    /// Keep a second copy with committed transactions only, for [`MemoryStore::crash_image`]. It doubles the cost of every
    /// transaction.
    pub track_committed: bool,
}

impl Config {
    pub fn with_total(bytes_total: u64) -> Config {
        Config { bytes_total, delay: None, track_committed: false }
    }
}

pub struct MemoryStore {
    config: Config,
    state: State,
    /// The committed state, if it is tracked.
    committed: Option<State>,
    /// Completions for the next `poll`.
    ready: Vec<Completion>,
    /// Delayed completions.
    pending: Pending,
    dice: Dice,
    /// Collections with a refusal that the caller has not seen.
    refusing: BTreeSet<Collection>,
}

impl MemoryStore {
    pub fn new(config: Config) -> MemoryStore {
        MemoryStore::with_state(config, State::default())
    }

    fn with_state(config: Config, state: State) -> MemoryStore {
        MemoryStore {
            committed: config.track_committed.then(|| state.clone()),
            dice: Dice(config.delay.map_or(0, |d| d.seed)),
            config,
            state,
            ready: Vec::new(),
            pending: Pending::default(),
            refusing: BTreeSet::new(),
        }
    }

    /// The store after a crash at this moment: all committed transactions, and the first `survivors` of the others in order
    /// of submission (a device may have done more than it reported). `None` unless the committed state is tracked.
    pub fn crash_image(&self, survivors: usize) -> Option<MemoryStore> {
        let mut state = self.committed.clone()?;
        for commit in self.pending.commits.iter().take(survivors) {
            state.apply(commit.transaction.clone().expect("kept while the committed state is tracked"));
        }
        Some(MemoryStore::with_state(self.config, state))
    }

    /// Number of transactions in flight.
    pub fn uncommitted(&self) -> usize {
        self.pending.commits.len()
    }

    /// Panics if an invariant is broken. Walks the whole store: for tests.
    pub fn check(&self) {
        self.state.check();
        self.committed.iter().for_each(State::check);
    }

    fn hold(dice: &mut Dice, delay: Option<Delay>) -> bool {
        delay.is_some_and(|d| dice.below(256) < d.hold as u64)
    }

    /// Completions of a collection stay in order of submission.
    fn poll_pending(&mut self, out: &mut Vec<Completion>) {
        let MemoryStore { pending, committed, dice, state, config, .. } = self;
        pending.release_commits(
            || MemoryStore::hold(dice, config.delay),
            |mut commit| {
                out.push(commit.completion());
                if let (Some(committed), Some(transaction)) = (committed.as_mut(), commit.transaction.take())
                {
                    committed.apply(transaction);
                }
            },
        );
        for PendingRead { tag, request } in pending.release_reads(|| MemoryStore::hold(dice, config.delay)) {
            out.push(Completion::Read { tag, answers: read::read(state, &request) });
        }
    }
}

impl ObjectStore for MemoryStore {
    fn submit(&mut self, tag: u64, transaction: Transaction) {
        let growth: u64 = transaction.changes.iter().map(Change::growth).sum();
        let is_too_large = self.state.used().total().saturating_add(growth) > self.config.bytes_total;
        if is_too_large || transaction.collections().any(|id| self.refusing.contains(&id)) {
            self.refusing.extend(transaction.collections());
            self.ready.push(Completion::Refused { tag, why: Refusal::NoSpace });
            return;
        }
        if self.config.delay.is_some() || self.committed.is_some() {
            let keep = self.committed.is_some();
            self.pending.commits.push_back(PendingCommit::new(tag, &transaction, keep));
        } else {
            self.ready.push(Completion::Committed { tag });
        }
        self.state.apply(transaction);
    }

    /// With a delay, the read is done now or when it completes, at random: the contract allows both.
    fn read(&mut self, tag: u64, request: ReadRequest) {
        if self.config.delay.is_some() && self.dice.below(2) == 0 {
            self.pending.reads.push(PendingRead { tag, request });
            return;
        }
        self.ready.push(Completion::Read { tag, answers: read::read(&self.state, &request) });
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> bool {
        out.append(&mut self.ready);
        self.refusing.clear();
        if !self.pending.is_empty() {
            self.poll_pending(out);
        }
        !self.pending.is_empty()
    }

    fn placed(&self) -> Vec<(Collection, Placed)> {
        self.state.collections().map(|(id, objects)| (id, objects.placed)).collect()
    }

    fn usage(&self) -> Usage {
        let used = self.state.used();
        Usage {
            total: self.config.bytes_total,
            available: self.config.bytes_total.saturating_sub(used.total()),
            data: used.data,
            omap: used.omap,
            metadata: used.metadata,
            ..Usage::default()
        }
    }
}
