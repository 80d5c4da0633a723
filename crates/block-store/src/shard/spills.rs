//! Spills: records of collections' logs are written from memory to blocks in the background.
//!
//! Spills run when logs have more than [`Options::recent_bytes_max`] in memory, until none has a block or more; and before a
//! checkpoint, so that few records enter the index. Nothing depends on them: a checkpoint puts the records that are left
//! into the index, and a shard without space spills nothing. A poll does a bounded number of steps.
//!
//! [`Options::recent_bytes_max`]: super::Options::recent_bytes_max

use super::Shard;
use super::commit::Fit;
use crate::index::Ticket;
use crate::plan::{Fetched, Plan, ShardState};
use crate::reading::InMemory;
use crate::view::{View, Wait};

/// The index's ticket of spills.
pub(super) const SPILLER: Ticket = Ticket(u64::MAX - 1);
/// Steps of a poll; each writes at most a chunk.
const STEPS_MAX: usize = 4;
/// Polls that a checkpoint waits for spills at most. Clients' transactions bring new work meanwhile.
const WAITED_MAX: usize = 1000;

#[derive(Default)]
pub(super) struct Spiller {
    /// Spills run until no log has a block or more.
    is_running: bool,
    waits_for_index: bool,
    steps_left: usize,
    /// Polls that a due checkpoint has waited.
    waited: usize,
}

impl Spiller {
    pub(super) fn begin_poll(&mut self) {
        self.steps_left = STEPS_MAX;
    }

    pub(super) fn index_is_ready(&mut self) {
        self.waits_for_index = false;
    }
}

impl Shard {
    /// Begins to spill all logs that have a block or more, before a checkpoint. False when the checkpoint may begin.
    pub(super) fn spills_first(&mut self) -> bool {
        self.spiller.is_running = self.pg_logs.next_spillable().is_some();
        let spiller = &mut self.spiller;
        let waits = spiller.is_running && spiller.waited < WAITED_MAX && !self.jobs.lack_space();
        spiller.waited = if waits { spiller.waited + 1 } else { 0 };
        waits && self.log_has_room()
    }

    pub(super) fn can_spill(&self) -> bool {
        self.spiller.is_running
            && !self.spiller.waits_for_index
            && self.log_has_room()
            && self.pg_logs.next_spillable().is_some()
    }

    /// Does the steps of this poll.
    pub(super) fn spill(&mut self) {
        self.spiller.is_running |= self.pg_logs.recent_bytes() > self.options.recent_bytes_max;
        while self.spiller.steps_left > 0 && self.can_spill() {
            self.spiller.steps_left -= 1;
            if !self.spill_one() {
                break;
            }
        }
        self.spiller.is_running &= self.pg_logs.next_spillable().is_some();
    }

    /// One step of the first log. False if spills wait.
    fn spill_one(&mut self) -> bool {
        let Some(id) = self.pg_logs.next_spillable() else { return false };
        let Shard {
            index,
            io,
            space,
            staged,
            clean,
            collections,
            pg_logs,
            pools,
            compression,
            options,
            totals,
            ..
        } = self;
        let Some(log) = pg_logs.get(id) else { return false };
        let view = View { index, io, ticket: SPILLER };
        let fetched = Fetched::new();
        let range_keys_min = options.range_keys_min;
        let known = ShardState {
            collections,
            pools,
            compression,
            range_keys_min,
            totals: *totals,
            // A log object has no layers.
            cleaner_works: false,
        };
        let plan = Plan::new(view, space, InMemory { staged, clean }, &fetched, known);
        match plan.spill(id, log) {
            Ok(Some(effect)) => match self.fits(&effect) {
                Fit::Now => self.apply(effect, None),
                fit => {
                    effect.taken.iter().for_each(|run| self.space.untake(*run));
                    if fit == Fit::Later {
                        // The step is repeated when a checkpoint has made room in the log.
                        return false;
                    }
                    self.pg_logs.set_aside(id);
                }
            },
            Err(Wait::Index) => {
                self.spiller.waits_for_index = true;
                return false;
            }
            // Nothing to do; or no space, or a device that is gone: its records stay in memory and in the index.
            Ok(None) | Err(_) => self.pg_logs.set_aside(id),
        }
        true
    }
}
