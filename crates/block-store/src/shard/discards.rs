//! Discards of free blocks: in the background, one request at a time.
//!
//! A discard is made when the device is idle; on a busy device, once in
//! [`Options::discard_patience`](super::Options::discard_patience) batches. Discards are hints: after a failed one they are
//! disabled.

use super::{DataRequest, Shard};
use crate::io::Owner;
use crate::space::Run;
use device::DeviceError;

#[derive(Default)]
pub(super) struct Discarding {
    is_under_way: bool,
    /// Number of batches at the last discard.
    at_batch: u64,
}

impl Shard {
    /// True if a discard can be made now.
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
        self.data_requests.insert(token, DataRequest::Discard { run });
        self.io.discard(Owner::Data, token, run.offset(), run.bytes());
    }

    /// A planted bug.
    pub(super) fn discard_too_early(&mut self, run: Run) {
        let token = self.token();
        self.data_requests.insert(token, DataRequest::Direct { batch: 0, runs: Vec::new() });
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
