//! Telling the device which blocks are free: in the background, one request at a time, after everything else.
//!
//! A request is made when nothing is being written or read; if that does not come to pass, once in
//! [`Options::discard_patience`](super::Options::discard_patience) batches. It is a hint: when the device fails at one,
//! it is not asked again.

use super::{Shard, Transfer};
use crate::io::Owner;
use crate::space::Run;
use device::DeviceError;

#[derive(Default)]
pub(super) struct Discarding {
    is_under_way: bool,
    /// How many batches there had been when the last request was made.
    at_batch: u64,
}

impl Shard {
    /// Whether there may be something to discard, and nothing to wait for.
    pub(super) fn can_discard(&self) -> bool {
        if self.discarding.is_under_way || !self.space.has_stale() || self.checkpoints.is_stopping() {
            return false;
        }
        let is_quiet = self.log.is_idle() && self.reading.is_empty() && self.jobs.is_empty();
        is_quiet || self.counts.batches >= self.discarding.at_batch + self.options.discard_patience
    }

    pub(super) fn discard(&mut self) {
        if !self.can_discard() {
            return;
        }
        let Some(run) = self.space.next_discard() else { return };
        self.discarding.is_under_way = true;
        self.discarding.at_batch = self.counts.batches;
        self.counts.discarded += run.bytes();
        let token = self.token();
        self.transfers.insert(token, Transfer::Discard { run });
        self.io.discard(Owner::Data, token, run.offset(), run.bytes());
    }

    /// A planted bug; nothing waits for it.
    pub(super) fn discard_too_early(&mut self, run: Run) {
        let token = self.token();
        self.transfers.insert(token, Transfer::Direct { batch: 0, runs: Vec::new() });
        self.io.discard(Owner::Data, token, run.offset(), run.bytes());
    }

    pub(super) fn on_discarded(&mut self, run: Run, result: Result<(), DeviceError>) {
        self.discarding.is_under_way = false;
        self.space.discarded(run);
        if let Err(error) = result {
            tracing::warn!(%error, "the device does not discard: it is not asked to any more");
            self.space.set_discards(None);
        }
        self.jobs_may_go_on();
    }
}
