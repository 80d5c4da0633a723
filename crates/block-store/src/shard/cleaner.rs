//! The cleaner: removes pages and omap keys of removed objects and cleared omaps in the background.
//!
//! Each poll does one cleaning step, of a bounded number of index entries, whatever the size of the object. The cleaner
//! pauses while merges are behind, so that it never delays clients, unless space is short: its steps free space. After a
//! restart it begins again with the first key of a number.

use super::Shard;
use super::commit::Fit;
use crate::index::Ticket;
use crate::object::key::Key;
use crate::plan::{Cleanup, Fetched, Plan, ShardState};
use crate::reading::InMemory;
use crate::view::{View, Wait};
use std::collections::VecDeque;

/// The index's ticket of the cleaner; jobs count from 1.
pub(super) const CLEANER: Ticket = Ticket(0);
/// Bytes of log entries from cleaning alone at which they are written. Without this, every step would be a log write, and
/// clients' batches would wait for it.
pub(super) const CLEANING_BATCH_BYTES: usize = 32 << 10;

#[derive(Default)]
pub(super) struct Cleaner {
    /// The first is under way.
    queue: VecDeque<Cleanup>,
    /// Next key of the first; `None` before its first step.
    next_key: Option<Key>,
    waits_for_index: bool,
    /// This poll has done its step.
    pub(super) had_step: bool,
}

impl Cleaner {
    pub(super) fn new(work: impl IntoIterator<Item = Cleanup>) -> Cleaner {
        Cleaner { queue: work.into_iter().collect(), ..Cleaner::default() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn numbers_left(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn add(&mut self, work: impl IntoIterator<Item = Cleanup>) {
        self.queue.extend(work);
    }

    pub(super) fn index_is_ready(&mut self) {
        self.waits_for_index = false;
    }
}

impl Shard {
    /// True if a cleaning step can be done now.
    pub(super) fn can_clean(&self) -> bool {
        // A clean stop waits for transactions, and these may wait for space that cleaning frees.
        let is_wanted = !self.checkpoints.is_stopping() || self.jobs.lack_space();
        is_wanted
            && !self.cleaner.is_idle()
            && !self.cleaner.waits_for_index
            && self.log_has_room()
            && (self.index.has_slack() || self.jobs.lack_space())
    }

    /// True if a transaction may wait for the cleaner: a clean stop does not.
    pub(super) fn cleaner_works(&self) -> bool {
        !self.cleaner.is_idle() && !self.checkpoints.is_stopping()
    }

    fn end_cleanup(&mut self) {
        self.cleaner.queue.pop_front();
        self.cleaner.next_key = None;
        self.number_is_cleaned();
    }

    /// Does one cleaning step, at the first call in a poll.
    pub(super) fn clean(&mut self) {
        if self.cleaner.had_step || !self.can_clean() {
            return;
        }
        let Some(&work) = self.cleaner.queue.front() else { return };
        let from = self.cleaner.next_key.clone();
        let Shard {
            index, io, space, staged, clean, collections, pools, compression, options, totals, ..
        } = self;
        let view = View { index, io, ticket: CLEANER };
        let fetched = Fetched::new();
        let range_keys_min = options.range_keys_min;
        let totals = *totals;
        let known =
            ShardState { collections, pools, compression, range_keys_min, totals, cleaner_works: false };
        match Plan::new(view, space, InMemory { staged, clean }, &fetched, known).cleaning(work, from) {
            Ok((effect, next)) if self.fits(&effect) == Fit::Now => {
                self.cleaner.had_step = true;
                if !effect.keys.is_empty() {
                    self.apply(effect, None);
                }
                match next {
                    Some(next) => self.cleaner.next_key = Some(next),
                    None => self.end_cleanup(),
                }
            }
            // The step is repeated when a checkpoint has made room in the log.
            Ok(_) => {}
            Err(Wait::Bad(bad)) => {
                tracing::error!(?work, %bad, "cannot clean up after a removed object: its space stays taken");
                self.end_cleanup();
            }
            // It is repeated as soon as the ticket is ready, in whichever round of a poll: the index keeps unreadable blocks
            // for their waiters only until then.
            Err(_) => self.cleaner.waits_for_index = true,
        }
    }
}
